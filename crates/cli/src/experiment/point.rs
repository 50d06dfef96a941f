//! One run of an experiment.

use crate::Failure;
use crate::bench::{bank, meter::Meter, summary};
use crate::progress::Progress;
use crate::report::Clock;
use entresol::{Database, Opening, Store};
use papers::experiment::{Setting, Work};
use serde_json::{Value, json};
use workload::debit_credit::{DebitCredit, Tables};
use workload::run::Workload;
use workload::{Measured, Plan};

/// What a run's report has at its top, and so may be plotted.
pub const KEYS: [&str; 15] = [
    "response_us",
    "throughput_per_s",
    "transactions",
    "aborts",
    "types",
    "composition_us",
    "cpu_us_per_transaction",
    "log_bytes_per_transaction",
    "hit_ratio",
    "hit_ratio_all",
    "io_per_transaction",
    "io_per_s",
    "utilization",
    "seconds",
    "wall_seconds",
];

/// What one run gave.
pub struct Run {
    /// The report of `entresol bench --json`, and more.
    pub report: Value,
    /// The station that could not keep up with the arrivals.
    pub saturated: Option<String>,
}

/// Runs one replication; the first has the seed that the setting names, the others follow.
pub fn run(setting: &Setting, replication: u32) -> Result<Run, String> {
    let plan = Plan { seed: setting.plan.seed + u64::from(replication), ..setting.plan };
    opened(setting, &plan).map_err(|failure| failure.to_string())
}

fn opened(setting: &Setting, plan: &Plan) -> Result<Run, Failure> {
    let store = Opening::new("experiment", setting.configuration.clone()).seed(plan.seed).open()?;
    let progress = Progress::hidden();
    match &setting.work {
        Work::DebitCredit { branches } => {
            let scale = bank::prepare(&store, Some(*branches), &progress)?;
            let workload = DebitCredit(Tables::of(store.database(), &scale)?);
            measured(&store, workload, plan, &progress)
        }
        other => Err(format!("no such workload yet: {other:?}").into()),
    }
}

fn measured<W: Workload>(store: &Store, workload: W, plan: &Plan, progress: &Progress) -> Result<Run, Failure> {
    let mut meter = Meter::new(progress, plan, true);
    Ok(store.run(async |database| {
        let report = |measured: Measured| report(database, plan, &measured);
        workload::run::run(database, workload, plan, &mut meter, report).await
    })?)
}

fn report(database: &Database, plan: &Plan, measured: &Measured) -> Run {
    let headline = summary::Headline { workload: String::new(), seed: plan.seed, clock: Clock::Virtual };
    let report = summary::report(database, headline, measured);
    let mut report = serde_json::to_value(&report).expect("a report holds nothing that JSON cannot");
    report["hit_ratio_all"] = json!(hit_ratio(database));
    Run { report, saturated: None }
}

/// The share of all object references that were found in main memory.
fn hit_ratio(database: &Database) -> f64 {
    let references = database.statistics().references();
    let hits: u64 = references.iter().map(|seen| seen.hits).sum();
    let all: u64 = references.iter().map(|seen| seen.hits + seen.misses).sum();
    hits as f64 / all.max(1) as f64
}
