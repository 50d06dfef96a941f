//! One record updated, then a commit (Lee et al. 2008, table 2), held against the log device's own durable writes.

mod report;

pub use report::{Point, UpdateCommitReport};

use super::bandwidth::{self, DurableWrites};
use super::meter::Span;
use super::terms::{Setup, Terms};
use super::{positive, positive_count, session};
use crate::progress::Progress;
use crate::{Failure, opening};
use base::Random;
use clap::Args;
use engine::Internals;
use entresol::{Database, Store};
use executor::WholeExecutor;
use std::path::PathBuf;
use workload::update_commit::{self, RECORD, UpdateCommit};
use workload::{Length, Load, Measured, Plan};

/// Updates single records and commits, beside the log device's own durable writes
///
/// After each run writes of as many bytes are made durable on the log's device, as many at once
/// as the log had under way: what the device gives without an engine.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
    entresol bench update-commit\n  \
    entresol bench update-commit --clients 1,4,16,64 --seconds 5 --rounds 5 --json\n  \
    entresol bench update-commit --hardware hdd-7200"
)]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "update-commit.data")]
    pub data: PathBuf,
    /// How many records [default: as loaded, or 100,000]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    pub records: Option<u64>,
    /// Bytes of a record that is loaded
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=2_000))]
    pub record_size: u32,
    /// Numbers of clients, one run for each
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,4,16,64", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clients: Vec<u32>,
    /// How long to measure each run, on the run's clock
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = positive)]
    pub seconds: f64,
    /// Rounds of all runs; medians count [default: 3, 1 if virtual]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: Option<u32>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub setup: Setup,
}

/// Records that are loaded where none are asked for.
const RECORDS: u64 = 100_000;
/// The share of a run that comes before it.
const WARM_UP: f64 = 0.2;
/// The share of a run for which the device is measured.
const PROBE: f64 = 0.3;

/// Loads the database if it is new; runs and probes in turns.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<UpdateCommitReport, Failure> {
    let terms = Terms {
        seed: arguments.seed,
        seconds: Some(arguments.seconds),
        transactions: None,
        course: None,
        cold: false,
        like: None,
        setup: arguments.setup.clone(),
    };
    let configuration = terms.configuration(&arguments.data)?;
    let store = opening::open(terms.opening(&arguments.data, configuration), progress)?;
    let workload = prepare(&store, arguments, progress)?;
    let rounds = arguments.rounds.unwrap_or(if store.is_virtual() { 1 } else { 3 });
    let run_ms = (arguments.seconds * (1.0 + WARM_UP + PROBE) * 1e3) as u64;
    let total_ms = run_ms * u64::from(rounds) * arguments.clients.len() as u64;
    let mut points = Vec::new();
    for round in 1..=rounds {
        for clients in &arguments.clients {
            let begin_ms = run_ms * points.len() as u64;
            let seed = Random::stream(arguments.seed, &format!("round {round}")).word();
            let mut span = Span::new(progress, "measuring", begin_ms..total_ms);
            let point = measure(&store, workload, (*clients, seed), arguments.seconds, &mut span)?;
            let log = &store.database().settings().log_device;
            let writes = DurableWrites { length: point.write_bytes, depth: point.depth };
            let probe_ns = (arguments.seconds * PROBE * 1e9) as u64;
            let probed = bandwidth::durable_writes(store.executor().whole(), log, writes, probe_ns)?;
            points.push(Point { round, ..point.beside(&probed) });
        }
    }
    let report = UpdateCommitReport::new(&store, arguments, (workload.records, rounds), points);
    session::close(store)?;
    Ok(report)
}

/// Loads the records if there are none, and brings them into memory.
fn prepare(store: &Store, arguments: &Arguments, progress: &Progress) -> Result<UpdateCommit, Failure> {
    if let Some(found) = store.run(async |database| update_commit::find(database).await)? {
        if let Some(asked) = arguments.records.filter(|asked| *asked != found.records) {
            let present = found.records;
            let what = format!("the database has {present} records, not {asked}");
            return Err(format!("{what}; correct --records or name another --data").into());
        }
        if found.records == 0 {
            return Err("loading the database was cut off; name another --data".into());
        }
        store.run(async |database| warm(database, found).await)?;
        return Ok(found);
    }
    let records = arguments.records.unwrap_or(RECORDS);
    progress.phase("loading", records);
    let configuration = store.configuration();
    let spec = configuration.partition_spec(RECORD, &configuration.partition(RECORD))?;
    let terms = (spec, records, arguments.record_size as usize);
    Ok(store.run(async |database| {
        let workload = update_commit::load(database, terms, |loaded| progress.advance_to(loaded)).await?;
        warm(database, workload).await?;
        Ok(workload)
    })?)
}

async fn warm(database: &Database, workload: UpdateCommit) -> entresol::Result<()> {
    if database.set_records(workload.partition).is_some() {
        return Ok(());
    }
    database.warm(workload.partition, |_| ()).await
}

/// One run.
fn measure(
    store: &Store,
    workload: UpdateCommit,
    (clients, seed): (u32, u64),
    seconds: f64,
    span: &mut Span<'_>,
) -> Result<Point, Failure> {
    let length = |seconds: f64| Length::Time((seconds * 1e9) as u64);
    let load = Load::Closed { clients };
    let plan = Plan { load, warm_up: length(seconds * WARM_UP), measure: length(seconds), seed };
    let is_virtual = store.is_virtual();
    Ok(store.run(async |database| {
        let look = |measured: Measured| Point::of(database, clients, &measured, is_virtual);
        workload::run::run(database, workload, &plan, span, look).await
    })?)
}
