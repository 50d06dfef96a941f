//! Debit-Credit: load if need be, warm up, measure, report.

use super::DebitCredit;
use crate::Failure;
use crate::progress::Progress;
use crate::report::{Clock, Composition, Response, RunReport, Station, Transfers};
use entresol::configuration::{Configuration, LockGranule, Organization, Partition};
use entresol::{Database, Opening, PartitionSpec, Store};
use std::collections::BTreeMap;
use workload::debit_credit::{self, ACCOUNT, BRANCH, HISTORY, Scale, TELLER, Tables};
use workload::{Length, Load, Measured, Plan, Watch};

/// The configuration of the paper, for its machine.
const RAHM_1991: &str = include_str!("rahm-1991.toml");

/// The configuration that the arguments name.
pub fn configuration(arguments: &DebitCredit) -> Result<Configuration, Failure> {
    Ok(match (&arguments.config, arguments.hardware.as_deref()) {
        (None, Some("rahm-1991")) => Configuration::from_bytes("rahm-1991.toml", RAHM_1991.as_bytes(), None)?,
        (file, hardware) => Configuration::read(file.as_deref(), hardware)?,
    })
}

/// Loads the database if it is new, warms up, measures.
pub fn run(arguments: &DebitCredit, configuration: Configuration, progress: &Progress) -> Result<RunReport, Failure> {
    progress.phase("opening", 0);
    let store = Opening::new(&arguments.data, configuration).seed(arguments.seed).open()?;
    let scale = scale(arguments, store.configuration());
    if !debit_credit::exists(store.database()) {
        load(&store, &scale, progress)?;
    }
    let tables = Tables::of(store.database(), &scale)?;
    store.run(async |database| warm(database, progress).await)?;
    let plan = plan(arguments);
    let mut watch = Meter::new(progress, &plan, store.is_virtual());
    let workload = debit_credit::DebitCredit(tables.clone());
    let measured = store.run(async |database| workload::run::run(database, workload, &plan, &mut watch).await)?;
    let report = report(&store, arguments, &scale, &plan, &measured);
    if !store.is_virtual() {
        progress.phase("verifying", 0);
        let totals = store.run(async |database| debit_credit::totals(database, &tables).await)?;
        if !totals.agree() {
            return Err(format!("the balances disagree, which is a defect of this program: {totals:?}").into());
        }
        store.close()?;
    }
    Ok(report)
}

/// TPC-B's records, or only their balances where pages are too small for more.
fn scale(arguments: &DebitCredit, configuration: &Configuration) -> Scale {
    let described = configuration.partition(BRANCH).organization == Organization::Direct;
    if described {
        return Scale::rahm_1991(arguments.scale.unwrap_or(500).into());
    }
    Scale::tpc_b(arguments.scale.unwrap_or(10).into())
}

fn load(store: &Store, scale: &Scale, progress: &Progress) -> Result<(), Failure> {
    let total = scale.accounts() + scale.tellers() + scale.branches;
    progress.phase("loading", total);
    let configuration = store.configuration();
    let spec = |name: &str| -> entresol::Result<PartitionSpec> {
        let mut spec = configuration.partition_spec(name, &layout(name, scale, configuration))?;
        spec.assumed = store.is_virtual();
        Ok(spec)
    };
    store.run(async |database| {
        debit_credit::load(database, scale, spec, |records| progress.advance_to(records)).await
    })?;
    Ok(())
}

/// What a partition is where the configuration leaves it open.
fn layout(name: &str, scale: &Scale, configuration: &Configuration) -> Partition {
    let base = configuration.partition(name);
    let (objects, record_size) = match name {
        ACCOUNT => (scale.accounts(), scale.record_size),
        TELLER => (scale.tellers(), scale.record_size),
        BRANCH if scale.clustered => (scale.branches * (1 + scale.tellers_per_branch), scale.record_size),
        _ => (scale.branches, scale.record_size),
    };
    if name == HISTORY {
        return Partition { organization: Organization::Append, locks: LockGranule::None, ..base };
    }
    Partition { objects: Some(objects), record_size: Some(record_size as u32), ..base }
}

/// Brings what fits into the buffer, so that the measurement does not begin with reads. Described machines warm up by
/// running.
async fn warm(database: &Database, progress: &Progress) -> entresol::Result<()> {
    for name in [BRANCH, TELLER, ACCOUNT] {
        let Ok(partition) = database.partition(name) else { continue };
        if database.partitions()[usize::from(partition.0)].assumed {
            continue;
        }
        let pages = database.buffer().file(partition).written();
        progress.phase("reading", pages.into());
        database.warm(partition, |page| progress.advance_to(page)).await?;
    }
    Ok(())
}

fn plan(arguments: &DebitCredit) -> Plan {
    let load = match arguments.rate {
        Some(rate_per_s) => Load::Open { rate_per_s },
        None => Load::Closed { clients: arguments.clients },
    };
    let measure = match arguments.transactions {
        Some(count) => Length::Transactions(count),
        None => Length::Time((arguments.seconds * 1e9) as u64),
    };
    let warm_up = match measure {
        Length::Transactions(count) => Length::Transactions(count / 5),
        Length::Time(ns) => Length::Time(ns / 5),
    };
    Plan { load, warm_up, measure, seed: arguments.seed }
}

/// Shows progress and reads the clocks that the engine does not.
struct Meter<'a> {
    progress: &'a Progress,
    measure: Length,
    described: bool,
}

impl<'a> Meter<'a> {
    fn new(progress: &'a Progress, plan: &Plan, described: bool) -> Meter<'a> {
        progress.phase("warming up", 0);
        Meter { progress, measure: plan.measure, described }
    }
}

impl Watch for Meter<'_> {
    fn progress(&mut self, transactions: u64, elapsed_ns: u64) {
        let (done, total) = match self.measure {
            Length::Transactions(total) => (transactions, total),
            Length::Time(total_ns) => (elapsed_ns / 1_000_000, total_ns / 1_000_000),
        };
        if done == 0 || transactions == 0 {
            self.progress.phase("measuring", total);
        }
        self.progress.advance_to(done);
    }

    fn cpu_ns(&self) -> u64 {
        if self.described { 0 } else { real_driver::thread_cpu_ns() }
    }

    fn wall_ns(&self) -> u64 {
        real_driver::wall_ns()
    }
}

fn report(store: &Store, arguments: &DebitCredit, scale: &Scale, plan: &Plan, measured: &Measured) -> RunReport {
    let database = store.database();
    let count = measured.transactions.max(1) as f64;
    let seconds = measured.elapsed_ns as f64 / 1e9;
    let statistics = database.statistics();
    let log = database.log().statistics();
    let per_transaction = |ns: u64| ns as f64 / 1e3 / count;
    let mut composition = Composition {
        cpu: 0.0,
        lock_wait: per_transaction(statistics.lock_wait_ns.get()),
        read_wait: per_transaction(statistics.read_wait_ns.get()),
        write_wait: per_transaction(statistics.write_wait_ns.get()),
        commit_wait: per_transaction(statistics.commit_wait_ns.get()),
    };
    let response = Response::new(&measured.response, measured.means.interval());
    // Whatever a transaction does not wait for is computing, or waiting for a processor.
    let waits = composition.lock_wait + composition.read_wait + composition.write_wait + composition.commit_wait;
    composition.cpu = (response.mean - waits).max(0.0);
    let cpu_us = if store.is_virtual() {
        let cpu = measured.stations.iter().filter(|station| station.name == "cpu");
        cpu.map(|cpu| cpu.utilization * f64::from(cpu.servers)).sum::<f64>() * seconds * 1e6 / count
    } else {
        measured.cpu_ns as f64 / 1e3 / count
    };
    let load = match plan.load {
        Load::Closed { clients } => format!("{clients} clients"),
        Load::Open { rate_per_s } => format!("{rate_per_s} arrivals/s"),
    };
    let mut notes = Vec::new();
    if !database.settings().log.durable {
        notes.push("commits are not durable: the log is written after they are acknowledged".to_owned());
    }
    RunReport {
        workload: format!("debit-credit, scale {}, {load}", scale.branches),
        driver: store.executor().description(),
        notes,
        clock: if store.is_virtual() { Clock::Virtual } else { Clock::Real },
        seed: arguments.seed,
        seconds,
        wall_seconds: measured.wall_ns as f64 / 1e9,
        transactions: measured.transactions,
        aborts: statistics.rollbacks.get(),
        throughput_per_s: measured.transactions as f64 / seconds.max(1e-9),
        response_us: response,
        composition_us: composition,
        cpu_us_per_transaction: cpu_us,
        log_bytes_per_transaction: log.bytes_written as f64 / count,
        hit_ratio: hit_ratios(database),
        io_per_transaction: transfers(database, count),
        utilization: measured.stations.iter().cloned().map(Station::from).collect(),
    }
}

fn hit_ratios(database: &Database) -> BTreeMap<String, f64> {
    let references = database.statistics().references();
    database
        .partitions()
        .iter()
        .zip(references)
        .map(|(partition, seen)| (partition.name.clone(), seen.hit_ratio()))
        .collect()
}

fn transfers(database: &Database, transactions: f64) -> BTreeMap<String, Transfers> {
    let mut devices: BTreeMap<String, Transfers> = BTreeMap::new();
    for partition in database.partitions() {
        let file = database.buffer().file(partition.id());
        let device = devices.entry(partition.device.clone()).or_default();
        device.reads += file.reads.get() as f64 / transactions;
        device.writes += file.writes.get() as f64 / transactions;
    }
    let log = devices.entry(database.settings().log_device.clone()).or_default();
    log.writes += database.log().statistics().writes as f64 / transactions;
    devices
}
