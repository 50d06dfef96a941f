//! From what a run measured and the database counted to a report.

use crate::report::{
    Clock, Composition, DiskCache, Locks, References, Response, RunReport, SHARES, Saturated, ServerUse, Simulation,
    Station, TierUse, Transfers, TypeResponse,
};
use engine::Internals;
use entresol::Database;
use entresol::Partition;
use executor::WholeExecutor;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use workload::Measured;

/// What a report says of a run besides figures.
pub struct Headline {
    /// The workload and its parameters, for people.
    pub workload: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Which clock the run went by.
    pub clock: Clock,
    /// What is configured and gains nothing.
    pub warnings: Vec<String>,
}

/// The report of a run that has just ended; it is made on the engine's thread.
pub fn report(database: &Database, headline: Headline, measured: &Measured) -> RunReport {
    let count = measured.transactions.max(1) as f64;
    let seconds = measured.elapsed_ns as f64 / 1e9;
    let described = headline.clock == Clock::Virtual;
    let response = Response::new(&measured.response, measured.means.interval());
    let cpu_us = if described {
        let cpu = measured.stations.iter().filter(|station| station.name == "cpu");
        // An empty sum would be -0.
        cpu.fold(0.0, |sum, cpu| sum + cpu.utilization * f64::from(cpu.servers)) * seconds * 1e6 / count
    } else {
        measured.cpu_ns as f64 / 1e3 / count
    };
    let types = measured.types.iter().map(|of_type| TypeResponse {
        name: of_type.name.clone(),
        transactions: of_type.response.count(),
        response_us: Response::new(&of_type.response, of_type.means.interval()),
    });
    let mut notes = Vec::new();
    if !database.settings().log.durable {
        notes.push("commits are not durable: the log is written and synced after they are acknowledged".to_owned());
    }
    notes.extend(not_durable(database));
    notes.extend(database.log().lost_device().map(|why| format!("the log lost one of its two devices: {why}")));
    notes.extend(measured.saturated.as_ref().map(|saturation| format!("the run was {saturation}")));
    let references = references(database);
    RunReport {
        workload: headline.workload,
        driver: database.executor().whole().description(),
        notes,
        warnings: headline.warnings,
        clock: headline.clock,
        seed: headline.seed,
        seconds,
        wall_seconds: measured.wall_ns as f64 / 1e9,
        transactions: measured.transactions,
        aborts: database.statistics().rollbacks.get(),
        throughput_per_s: measured.transactions as f64 / seconds.max(1e-9),
        response_us: response,
        distribution_us: SHARES.map(|share| measured.response.quantile_ns(share) as f64 / 1e3).to_vec(),
        types: types.collect(),
        composition_us: composition(database, response.mean, count),
        cpu_us_per_transaction: cpu_us,
        process_cpu_us_per_transaction: (!described).then(|| measured.process_cpu_ns as f64 / 1e3 / count),
        batches_per_transaction: measured.thread_use.batches as f64 / count,
        sleeps_per_transaction: measured.thread_use.sleeps as f64 / count,
        log_bytes_per_transaction: database.log().statistics().bytes_written as f64 / count,
        log_record_bytes_per_transaction: database.log().statistics().record_bytes as f64 / count,
        locks: Locks::new(database),
        hit_ratio: references.iter().map(|(name, seen)| (name.clone(), seen.hit_ratio())).collect(),
        hit_ratio_second_level: match database.tiers().iter().any(|tier| tier.name == "cache") {
            true => references.iter().map(|(name, seen)| (name.clone(), seen.second_level_ratio())).collect(),
            false => BTreeMap::new(),
        },
        references,
        tiers: database.tiers().into_iter().map(|tier| TierUse::new(tier, count, seconds.max(1e-9))).collect(),
        server: measured.server.as_ref().map(ServerUse::new),
        io_per_transaction: transfers(database, count),
        io_per_s: transfers(database, seconds.max(1e-9)),
        utilization: measured.stations.iter().cloned().map(Station::from).collect(),
        disk_caches: DiskCache::all(&measured.caches, count),
        simulation: Simulation::new(&measured.events, measured.transactions as f64, measured.wall_ns as f64 / 1e9),
        saturated: measured.saturated.as_ref().map(Saturated::from),
        warm_up: None,
        course: None,
    }
}

/// Bytes written to each device per second: pages, twice where a device may tear one; log; what tiers take.
pub fn written(database: &Database, elapsed_ns: u64) -> BTreeMap<String, f64> {
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    let executor = database.executor().whole();
    let page = database.settings().buffer.page_size as u64;
    for partition in database.partitions() {
        let written = match database.segments_written(partition.id()) {
            Some(segments) => segments * partition.set_settings().map_or(0, |set| set.segment_size as u64),
            None => {
                let device = executor.device(&partition.device);
                let is_torn = device.is_some_and(|device| u64::from(executor.traits(device).atomic_write) < page);
                database.buffer().space(partition.id()).writes.get() * page * if is_torn { 2 } else { 1 }
            }
        };
        *bytes.entry(partition.device.clone()).or_default() += written;
    }
    let settings = database.settings();
    let second = settings.log.second.as_ref().map(|second| &second.device);
    for device in std::iter::once(&settings.log_device).chain(second) {
        *bytes.entry(device.clone()).or_default() += database.log().statistics().bytes_written;
    }
    for tier in database.tiers() {
        *bytes.entry(tier.device).or_default() += tier.bytes_written;
    }
    bytes.into_iter().map(|(device, bytes)| (device, bytes as f64 * 1e9 / elapsed_ns.max(1) as f64)).collect()
}

/// A warning for each device in use that loses what it holds.
fn not_durable(database: &Database) -> impl Iterator<Item = String> {
    let executor = database.executor().whole();
    let mut names: BTreeSet<String> = database.partitions().iter().map(|partition| partition.device.clone()).collect();
    names.insert(database.settings().log_device.clone());
    let volatile = move |name: &String| executor.device(name).is_some_and(|device| !executor.traits(device).durable);
    names.into_iter().filter(volatile).map(|name| {
        format!("device '{name}' is memory: it is not durable, and what it holds does not survive a power cut")
    })
}

/// Where the mean response time went.
fn composition(database: &Database, mean_us: f64, transactions: f64) -> Composition {
    let statistics = database.statistics();
    let per_transaction = |ns: u64| ns as f64 / 1e3 / transactions;
    let mut parts = Composition {
        cpu: 0.0,
        lock_wait: per_transaction(statistics.lock_wait_ns.get()),
        read_wait: per_transaction(statistics.read_wait_ns.get()),
        write_wait: per_transaction(statistics.write_wait_ns.get()),
        commit_wait: per_transaction(statistics.commit_wait_ns.get()),
    };
    // Whatever a transaction does not wait for is computing, or waiting for a processor or, between threads, for a wake.
    let waits = parts.lock_wait + parts.read_wait + parts.write_wait + parts.commit_wait;
    parts.cpu = (mean_us - waits).max(0.0);
    parts
}

/// What became of the references to each partition.
fn references(database: &Database) -> BTreeMap<String, References> {
    let references = database.statistics().references();
    let counted =
        |partition: Rc<Partition>| (partition.name.clone(), References::from(references[usize::from(partition.id)]));
    database.partitions().into_iter().map(counted).collect()
}

/// Transfers of each device, divided by the number of transactions or seconds.
pub fn transfers(database: &Database, by: f64) -> BTreeMap<String, Transfers> {
    let mut devices: BTreeMap<String, Transfers> = BTreeMap::new();
    for partition in database.partitions() {
        let device = devices.entry(partition.device.clone()).or_default();
        if let Some(written) = database.segments_written(partition.id()) {
            device.writes += written as f64 / by;
            continue;
        }
        let file = database.buffer().space(partition.id());
        device.reads += file.reads.get() as f64 / by;
        device.writes += file.writes.get() as f64 / by;
    }
    let log = devices.entry(database.settings().log_device.clone()).or_default();
    log.writes += database.log().statistics().writes as f64 / by;
    for tier in database.tiers() {
        let device = devices.entry(tier.device).or_default();
        device.reads += tier.reads as f64 / by;
        device.writes += tier.writes as f64 / by;
    }
    devices
}
