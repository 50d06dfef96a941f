//! What the engine's steps cost on this machine's CPU: the engine itself runs, the executor counts the steps, and the prices
//! that explain the measured CPU times best are found.

use super::fit::SystemCosts;
use super::least_squares::nonnegative;
use crate::Failure;
use crate::bench::spill::{Input, Watch};
use crate::bench::{bank, meter::Meter, sort, threads};
use crate::progress::Progress;
use base::{PartitionId, Random};
use driver::{Fault, Work};
use engine::Transaction;
use entresol::configuration::Configuration;
use entresol::{Database, Opening, PartitionSpec, Store};
use serde::{Deserialize, Serialize};
use std::path::Path;
use workload::debit_credit::{DebitCredit, Tables};
use workload::{Length, Load, Plan, Workload};

/// A run of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineRun {
    /// What was run.
    pub name: String,
    /// Steps per transaction, indexed by `Work as usize`.
    pub steps: [f64; Work::ALL.len()],
    /// CPU time per transaction, in nanoseconds.
    pub cpu_ns: f64,
    /// Memory that its steps touched, in bytes.
    pub footprint: u64,
    /// Whether its commits waited until they were durable.
    pub durable: bool,
}

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineExtent {
    /// How long each run is measured, in nanoseconds.
    pub span_ns: u64,
    /// How large Debit-Credit is that no cache holds.
    pub branches: u32,
}

/// Reads and changes of records.
struct Calls {
    partition: PartitionId,
    records: u64,
    reads: u32,
    changes: u32,
}

impl Workload for Calls {
    type Input = u64;

    fn draw(&self, random: &mut Random) -> u64 {
        random.word()
    }

    async fn run(&self, tx: &mut Transaction, first: &u64) -> entresol::Result<()> {
        let mut at = *first;
        let mut key = || {
            at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((at >> 32) % self.records).to_be_bytes()
        };
        for _ in 0..self.reads {
            tx.get_with(self.partition, &key(), |record| record.map(|record| record[0])).await?;
        }
        for _ in 0..self.changes {
            tx.modify(self.partition, &key(), |record| record[0] ^= 1).await?;
        }
        Ok(())
    }
}

/// Records of the small partitions, which caches hold, and their values' bytes.
const RECORDS: u64 = 4_000;
const VALUE: usize = 92;
/// How many runs there are.
pub const RUNS: u64 = 10 + 1 + 2 + DURABLE_CLIENTS.len() as u64;
/// How many clients run what does not wait for the log.
const CLIENTS: u32 = 64;
/// Numbers of clients whose commits wait until they are durable.
const DURABLE_CLIENTS: [u32; 4] = [1, 8, 64, 512];

fn configuration(durable: bool, buffer: u64) -> Configuration {
    let mut configuration = Configuration::default();
    configuration.log.durable = durable;
    configuration.log.size = 256 << 20;
    configuration.buffer.size = buffer;
    configuration
}

fn plan(clients: u32, span_ns: u64) -> Plan {
    let load = Load::Closed { clients };
    Plan { load, warm_up: Length::Transactions(0), measure: Length::Time(span_ns), seed: 1 }
}

/// Runs the engine in a directory, which is left empty. `known` are the runs that an interrupted calibration has made; `keep` hears
/// of each new one; an error of its ends them.
pub fn run_engine(
    directory: &Path,
    extent: EngineExtent,
    known: Vec<EngineRun>,
    mut keep: impl FnMut(&EngineRun) -> Result<(), Fault>,
) -> Result<Vec<EngineRun>, Failure> {
    let mut runs = known;
    let mut add = |runs: &mut Vec<EngineRun>, run: EngineRun| {
        runs.push(run);
        keep(&runs[runs.len() - 1])
    };
    let has = |runs: &[EngineRun], name: &str| runs.iter().any(|run| run.name.starts_with(name));
    if !has(&runs, "set, 8 changes") {
        runs.clear();
        let store = Opening::new(directory.join("small"), configuration(false, 64 << 20)).open()?;
        for partition in ["b-tree", "set"] {
            let partition_id = fill(&store, partition)?;
            for (reads, changes) in [(1, 0), (16, 0), (0, 1), (4, 4), (0, 8)] {
                let workload = || Calls { partition: partition_id, records: RECORDS, reads, changes };
                let name = match (reads, changes) {
                    (reads, 0) => format!("{partition}, {reads} reads"),
                    (0, changes) => format!("{partition}, {changes} changes"),
                    _ => format!("{partition}, {reads} reads and {changes} changes"),
                };
                add(&mut runs, measured(&store, &name, (CLIENTS, extent.span_ns), async |_| Ok(workload()))?)?;
            }
        }
        store.close()?;
    }
    if !has(&runs, "sort") {
        let store = Opening::new(directory.join("small"), configuration(false, 64 << 20)).open()?;
        add(&mut runs, sorted(&store)?)?;
        store.close()?;
    }
    for (name, branches, buffer) in
        [("Debit-Credit, 11 MiB", 1, 64 << 20), ("Debit-Credit, larger", extent.branches, 2 << 30)]
    {
        if !has(&runs, name) {
            let opening = Opening::new(directory.join(format!("bank-{branches}")), configuration(false, buffer));
            let store = opening.open()?;
            let run = debit_credit(&store, branches, (CLIENTS, 2 * extent.span_ns))?;
            add(&mut runs, EngineRun { name: name.to_owned(), ..run })?;
            store.close()?;
        }
    }
    for clients in DURABLE_CLIENTS {
        let name = format!("Debit-Credit, durable, {clients} clients");
        if !runs.iter().any(|run| run.name == name) {
            let store = Opening::new(directory.join("bank-1"), configuration(true, 64 << 20)).open()?;
            let run = debit_credit(&store, 1, (clients, 2 * extent.span_ns))?;
            add(&mut runs, EngineRun { name, durable: true, ..run })?;
            store.close()?;
        }
    }
    Ok(runs)
}

fn fill(store: &Store, name: &str) -> Result<PartitionId, Failure> {
    let spec = if name == "set" { PartitionSpec::set(name) } else { PartitionSpec::b_tree(name) };
    Ok(store.run(async |database| {
        let partition = database.create_partition(spec).await?;
        for first in (0..RECORDS).step_by(500) {
            let some = async |tx: &mut Transaction| {
                for number in first..(first + 500).min(RECORDS) {
                    tx.put(partition, &number.to_be_bytes(), &[7; VALUE]).await?;
                }
                Ok::<_, entresol::Error>(())
            };
            database.transaction(some).await?;
        }
        Ok(partition)
    })?)
}

/// Steps so far.
fn steps(store: &Store) -> [f64; Work::ALL.len()] {
    store.executor().work_counts().map(|count| count as f64)
}

fn footprint(store: &Store) -> u64 {
    store.database().memory_in_use()
}

fn measured<W: Workload>(
    store: &Store,
    name: &str,
    (clients, span_ns): (u32, u64),
    workload: impl AsyncFn(&Database) -> entresol::Result<W>,
) -> Result<EngineRun, Failure> {
    let hidden = Progress::hidden();
    let once = |span_ns: u64| {
        let plan = plan(clients, span_ns);
        let mut meter = Meter::new(&hidden, &plan, false);
        let before = steps(store);
        let found = store.run(async |database| {
            let workload = workload(database).await?;
            workload::run::run(database, workload, &plan, &mut meter, |measured| measured).await
        })?;
        let count = found.transactions.max(1) as f64;
        let after = steps(store);
        let per_transaction = std::array::from_fn(|work| (after[work] - before[work]) / count);
        Ok::<_, Failure>((per_transaction, found.cpu_ns as f64 / count))
    };
    once(span_ns / 4)?;
    let (steps, cpu_ns) = once(span_ns)?;
    Ok(EngineRun { name: name.to_owned(), steps, cpu_ns, footprint: footprint(store), durable: false })
}

fn debit_credit(store: &Store, branches: u32, load: (u32, u64)) -> Result<EngineRun, Failure> {
    let hidden = Progress::hidden();
    let scale = bank::prepare(store, Some(branches), &hidden)?;
    store.run(async |database| bank::warm(database, &bank::WARMED, |_, _| {}).await)?;
    measured(store, "", load, async |database| Ok(DebitCredit(Tables::of(database.catalog(), &scale)?)))
}

/// A sort in memory; its figures are per row, and of all threads.
fn sorted(store: &Store) -> Result<EngineRun, Failure> {
    const ROWS: u64 = 400_000;
    let input = Input { rows: ROWS, row_size: 100, memory: 64 << 20, seed: 1 };
    let mut watch = Watch::start(store.database());
    let (before, cpu) = (steps(store), real_driver::process_cpu_ns());
    sort::sort(store, input, &mut watch, &Progress::hidden())?;
    let (after, cpu_ns) = (steps(store), (real_driver::process_cpu_ns() - cpu) as f64 / ROWS as f64);
    let steps = std::array::from_fn(|work| (after[work] - before[work]) / ROWS as f64);
    Ok(EngineRun { name: "sort, 100 B rows".to_owned(), steps, cpu_ns, footprint: 64 << 20, durable: false })
}

/// What a request from another thread costs the engine's thread beyond the same transaction of a task of its own, in nanoseconds.
pub fn request_ns(directory: &Path, extent: EngineExtent, runs: &[EngineRun]) -> Result<f64, Failure> {
    let within = runs.iter().find(|run| run.name.ends_with("durable, 8 clients")).map_or(0.0, |run| run.cpu_ns);
    let opening = Opening::new(directory.join("bank-1"), configuration(true, 64 << 20));
    let plan = Plan { warm_up: Length::Time(extent.span_ns / 4), ..plan(8, 2 * extent.span_ns) };
    let opening = opening.procedures(|| bank::procedures(&workload::debit_credit::Scale::tpc_b(1)));
    let report = threads::run(opening, Some(1), &plan, &Progress::hidden())?;
    Ok(report.cpu_us_per_transaction * 1e3 - within)
}

/// The prices of steps, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepPrices {
    /// By `Work as usize`.
    pub steps_ns: [f64; Work::ALL.len()],
    /// Going to sleep and waking up.
    pub wake_up_ns: f64,
    /// The speed by memory that is touched, in proportion to that in caches.
    pub footprint: Vec<(u64, f64)>,
    /// What the prices say each run costs, in nanoseconds.
    pub explained_ns: Vec<f64>,
}

/// Steps that are told apart. Begin and end of a transaction come together: only their sum is known.
const SOLVED: [Work; 8] = [
    Work::BeginTransaction,
    Work::ObjectReference,
    Work::InputOutput,
    Work::LockPair,
    Work::LogRecord,
    Work::LogPage,
    Work::KeyComparison,
    Work::RowCopy,
];

/// Whether a run is one of those that the prices of steps are found by.
pub fn is_solved(run: &EngineRun) -> bool {
    !run.durable && !run.name.contains("larger")
}

/// The least and the greatest prices of steps that are found without one of the runs, and how many runs they are found by.
pub fn ranges(runs: &[EngineRun], costs: SystemCosts) -> (StepRange, usize) {
    let count = runs.iter().filter(|run| is_solved(run)).count();
    let mut range = ([f64::INFINITY; Work::ALL.len()], [0.0_f64; Work::ALL.len()]);
    for left_out in runs.iter().filter(|run| is_solved(run)) {
        let others: Vec<EngineRun> = runs.iter().filter(|run| run.name != left_out.name).cloned().collect();
        for (work, ns) in prices(&others, costs).steps_ns.into_iter().enumerate() {
            range.0[work] = range.0[work].min(ns);
            range.1[work] = range.1[work].max(ns);
        }
    }
    (range, count)
}

/// The least and the greatest price of each step, in nanoseconds.
pub type StepRange = ([f64; Work::ALL.len()], [f64; Work::ALL.len()]);

/// Finds the prices that explain the runs.
pub fn prices(runs: &[EngineRun], costs: SystemCosts) -> StepPrices {
    let mut steps_ns = [0.0; Work::ALL.len()];
    // What the operating system takes for an operation is known; a batch of one belongs to it where logs are written.
    let known_ns = |run: &EngineRun| run.steps[Work::InputOutput as usize] * (costs.operation_ns + costs.submission_ns);
    let fitted: Vec<&EngineRun> = runs.iter().filter(|run| is_solved(run)).collect();
    let rows: Vec<Vec<f64>> =
        fitted.iter().map(|run| SOLVED.map(|work| run.steps[work as usize] / run.cpu_ns).to_vec()).collect();
    let right: Vec<f64> = fitted.iter().map(|run| ((run.cpu_ns - known_ns(run)) / run.cpu_ns).max(0.0)).collect();
    for (work, ns) in SOLVED.into_iter().zip(nonnegative(&rows, &right)) {
        steps_ns[work as usize] = ns;
    }
    steps_ns[Work::InputOutput as usize] += costs.operation_ns;
    let both_ns = std::mem::take(&mut steps_ns[Work::BeginTransaction as usize]);
    steps_ns[Work::BeginTransaction as usize] = both_ns / 2.0;
    steps_ns[Work::EndTransaction as usize] = both_ns / 2.0;
    let of_steps = |run: &EngineRun| {
        let steps: f64 = run.steps.iter().zip(steps_ns).map(|(count, ns)| count * ns).sum();
        steps + run.steps[Work::InputOutput as usize] * costs.submission_ns
    };
    let small = fitted.iter().map(|run| run.footprint).min().unwrap_or(0).max(1);
    let mut footprint = vec![(small, 1.0)];
    for run in runs.iter().filter(|run| run.name.contains("larger")) {
        footprint.push((run.footprint.max(small + 1), (of_steps(run) / run.cpu_ns).clamp(0.1, 1.5)));
    }
    // A client that is alone sleeps once for each write of the log.
    let alone = runs.iter().find(|run| run.name.ends_with("durable, 1 clients"));
    let wake_up_ns = alone.map_or(costs.wake_up_ns, |run| {
        ((run.cpu_ns - of_steps(run)) / run.steps[Work::InputOutput as usize].max(0.1)).max(0.0)
    });
    let speed = |run: &EngineRun| if run.name.contains("larger") { footprint[footprint.len() - 1].1 } else { 1.0 };
    let sleeps = |run: &EngineRun| if run.durable { run.steps[Work::InputOutput as usize] * wake_up_ns } else { 0.0 };
    let explained_ns = runs.iter().map(|run| of_steps(run) / speed(run) + sleeps(run)).collect();
    StepPrices { steps_ns, wake_up_ns, footprint, explained_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, steps: &[(Work, f64)], cpu_ns: f64) -> EngineRun {
        let mut counts = [0.0; Work::ALL.len()];
        steps.iter().for_each(|(work, count)| counts[*work as usize] = *count);
        EngineRun { name: name.to_owned(), steps: counts, cpu_ns, footprint: 1 << 20, durable: false }
    }

    #[test]
    fn a_price_that_its_runs_agree_on_has_a_narrow_range() {
        let (begin, reference) = (Work::BeginTransaction, Work::ObjectReference);
        let mut runs: Vec<EngineRun> = [1.0, 4.0, 16.0, 40.0]
            .map(|count| {
                run(&format!("{count} references"), &[(begin, 1.0), (reference, count)], 900.0 + 250.0 * count)
            })
            .into();
        let ((low, high), count) = ranges(&runs, SystemCosts::default());
        assert_eq!(count, 4);
        for (step, ns) in [(begin, 450.0), (reference, 250.0)] {
            let (low, high) = (low[step as usize], high[step as usize]);
            assert!((low / ns - 1.0).abs() < 0.01 && (high / ns - 1.0).abs() < 0.01, "{step:?}: {low} to {high}");
        }
        runs[1].cpu_ns *= 1.4;
        let ((low, high), _) = ranges(&runs, SystemCosts::default());
        assert!(high[begin as usize] > 1.1 * low[begin as usize], "one run disagrees, and it is seen");
    }
}
