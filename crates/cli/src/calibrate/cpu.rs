//! What the engine's steps cost on this machine's CPU: the engine itself runs, the executor counts the steps, and the prices
//! that explain the measured CPU times best are found.

use super::ENGINE_DEVICE;
use super::values::VALUE_CALLS;
use crate::Failure;
use crate::bench::spill::{Input, Watch};
use crate::bench::{bank, join, meter::Meter, sort};
use crate::progress::Progress;
use base::{PartitionId, Random};
use driver::{Fault, Work};
use engine::Transaction;
use engine::temp::JoinMethod;
use entresol::configuration::Configuration;
use entresol::{Database, Opening, PartitionSpec, Store};
use executor::WholeExecutor;
use serde::{Deserialize, Serialize};
use std::path::Path;
use workload::debit_credit::{DebitCredit, Tables};
use workload::{Length, Load, Measured, Plan, Workload};

/// A run of the engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineRun {
    /// What was run.
    pub name: String,
    /// Steps per transaction, indexed by `Work as usize`.
    pub steps: [f64; Work::ALL.len()],
    /// How often the engine's thread turned to the operating system, per transaction, as [`ThreadUse::counts`](driver::ThreadUse::counts)
    /// orders it.
    pub thread: [f64; 4],
    /// CPU time per transaction, in nanoseconds.
    pub cpu_ns: f64,
    /// Memory that its steps touched, in bytes.
    pub footprint: u64,
    /// Whether its commits waited until they were durable.
    pub durable: bool,
}

impl EngineRun {
    /// Of a store, without anything in it.
    pub fn unnamed(store: &Store) -> EngineRun {
        let (steps, thread) = ([0.0; Work::ALL.len()], [0.0; 4]);
        EngineRun { name: String::new(), steps, thread, cpu_ns: 0.0, footprint: footprint(store), durable: false }
    }

    /// Of transactions that were measured since the counts of steps were these.
    pub fn of_transactions(store: &Store, before: [f64; Work::ALL.len()], measured: &Measured) -> EngineRun {
        let count = measured.transactions.max(1) as f64;
        let after = steps(store);
        let steps = std::array::from_fn(|work| (after[work] - before[work]) / count);
        let thread = measured.thread_use.counts().map(|times| times as f64 / count);
        EngineRun { steps, thread, cpu_ns: measured.cpu_ns as f64 / count, ..EngineRun::unnamed(store) }
    }
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
pub struct Calls {
    pub partition: PartitionId,
    pub records: u64,
    pub reads: u32,
    pub changes: u32,
}

impl Calls {
    /// The keys of a transaction, one after another.
    pub fn keys(&self, first: u64) -> impl FnMut() -> [u8; 8] {
        let (mut at, records) = (first, self.records);
        move || {
            at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((at >> 32) % records).to_be_bytes()
        }
    }
}

impl Workload for Calls {
    type Input = u64;

    fn draw(&self, random: &mut Random) -> u64 {
        random.word()
    }

    async fn run(&self, tx: &mut Transaction, first: &u64) -> entresol::Result<()> {
        let mut key = self.keys(*first);
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
pub const RECORDS: u64 = 4_000;
const VALUE: usize = 92;
/// How many runs there are.
pub const RUNS: u64 = 10
    + VALUE_CALLS.len() as u64
    + (SPILLS.len() * SPILL_MEMORY.len()) as u64
    + 2 * PAGED_CLIENTS.len() as u64
    + 2
    + DURABLE_CLIENTS.len() as u64;
/// How many clients run what does not wait for the log.
const CLIENTS: u32 = 64;
/// Numbers of clients whose records are in pages that memory does not hold: how many such records there are, and the buffer's size.
const PAGED_CLIENTS: [u32; 4] = [1, 8, 64, 512];
const PAGED_RECORDS: u64 = 400_000;
const PAGED_BUFFER: u64 = 8 << 20;
/// Operators that are given 400,000 rows, with more memory than these take and with less, and such memory in bytes.
const SPILLS: [&str; 3] = ["sort", "hash join", "sort-merge join"];
const SPILL_MEMORY: [u64; 2] = [64 << 20, 16 << 20];
/// Numbers of clients whose commits wait until they are durable.
const DURABLE_CLIENTS: [u32; 4] = [1, 8, 64, 512];

/// Of a database on the device to be measured.
pub fn configuration(described: Option<&devices::Device>, durable: bool, buffer: u64) -> Configuration {
    let mut configuration = Configuration::default();
    if described.is_some() {
        configuration.devices.entry(ENGINE_DEVICE.to_owned()).or_default().described = described.cloned();
    }
    configuration.log.durable = durable;
    configuration.log.size = 256 << 20;
    configuration.buffer.size = buffer;
    configuration
}

pub fn plan(clients: u32, span_ns: u64) -> Plan {
    let load = Load::Closed { clients };
    Plan { load, warm_up: Length::Transactions(0), measure: Length::Time(span_ns), seed: 1 }
}

/// Runs the engine in a directory, which is left empty. `known` are the runs that an interrupted calibration has made; `keep` hears
/// of each new one; an error of its ends them.
pub fn run_engine(
    (directory, described): (&Path, Option<&devices::Device>),
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
        let store = Opening::new(directory.join("small"), configuration(described, false, 64 << 20)).open()?;
        for partition in ["b-tree", "set"] {
            let partition_id = fill(&store, of_kind(partition), RECORDS)?;
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
    for calls in VALUE_CALLS {
        if !has(&runs, &calls.name()) {
            let run = calls.run((directory, described), (CLIENTS, extent.span_ns))?;
            add(&mut runs, run)?;
        }
    }
    for (operator, memory) in SPILLS.into_iter().flat_map(|operator| SPILL_MEMORY.map(|memory| (operator, memory))) {
        if !has(&runs, &spill_name(operator, memory)) {
            let store = Opening::new(directory.join("small"), configuration(described, false, 64 << 20)).open()?;
            add(&mut runs, spilled(&store, operator, memory)?)?;
            store.close()?;
        }
    }
    if PAGED_CLIENTS.iter().any(|clients| !has(&runs, &paged_name(1, *clients))) {
        runs.retain(|run| !run.name.contains("of pages on the device"));
        let store = Opening::new(directory.join("paged"), configuration(described, false, PAGED_BUFFER)).open()?;
        let partition = fill(&store, of_kind("b-tree"), PAGED_RECORDS)?;
        for (changes, clients) in [0, 1].into_iter().flat_map(|changes| PAGED_CLIENTS.map(|clients| (changes, clients)))
        {
            let workload = || Calls { partition, records: PAGED_RECORDS, reads: 1 - changes, changes };
            let load = (clients, extent.span_ns);
            add(&mut runs, measured(&store, &paged_name(changes, clients), load, async |_| Ok(workload()))?)?;
        }
        store.close()?;
    }
    for (name, branches, buffer) in
        [("Debit-Credit, 11 MiB", 1, 64 << 20), ("Debit-Credit, larger", extent.branches, 2 << 30)]
    {
        if !has(&runs, name) {
            let opening =
                Opening::new(directory.join(format!("bank-{branches}")), configuration(described, false, buffer));
            let store = opening.open()?;
            let run = debit_credit(&store, branches, (CLIENTS, 2 * extent.span_ns))?;
            add(&mut runs, EngineRun { name: name.to_owned(), ..run })?;
            store.close()?;
        }
    }
    for clients in DURABLE_CLIENTS {
        let name = format!("Debit-Credit, durable, {clients} clients");
        if !runs.iter().any(|run| run.name == name) {
            let store = Opening::new(directory.join("bank-1"), configuration(described, true, 64 << 20)).open()?;
            let run = debit_credit(&store, 1, (clients, 2 * extent.span_ns))?;
            add(&mut runs, EngineRun { name, durable: true, ..run })?;
            store.close()?;
        }
    }
    Ok(runs)
}

/// The name of a run of reads or changes whose pages have to be read.
fn paged_name(changes: u32, clients: u32) -> String {
    let what = if changes == 0 { "reads" } else { "changes" };
    format!("{what} of pages on the device, {clients} clients")
}

fn of_kind(name: &str) -> PartitionSpec {
    if name == "set" { PartitionSpec::set(name) } else { PartitionSpec::b_tree(name) }
}

/// A new partition with this many records.
pub fn fill(store: &Store, spec: PartitionSpec, records: u64) -> Result<PartitionId, Failure> {
    Ok(store.run(async |database| {
        let partition = database.create_partition(spec).await?;
        for first in (0..records).step_by(500) {
            let some = async |tx: &mut Transaction| {
                for number in first..(first + 500).min(records) {
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
pub fn steps(store: &Store) -> [f64; Work::ALL.len()] {
    store.executor().whole().work_counts().map(|count| count as f64)
}

fn footprint(store: &Store) -> u64 {
    store.database().memory_in_use()
}

/// Clients of a workload: the median of three runs.
pub fn measured<W: Workload>(
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
        Ok::<_, Failure>(EngineRun::of_transactions(store, before, &found))
    };
    once(span_ns / 4)?;
    let mut found = [once(span_ns / 2)?, once(span_ns / 2)?, once(span_ns / 2)?];
    found.sort_by(|one, other| one.cpu_ns.total_cmp(&other.cpu_ns));
    let [_, found, _] = found;
    Ok(EngineRun { name: name.to_owned(), ..found })
}

/// Debit-Credit in memory.
pub fn debit_credit(store: &Store, branches: u32, load: (u32, u64)) -> Result<EngineRun, Failure> {
    let hidden = Progress::hidden();
    let scale = bank::prepare(store, Some(branches), &hidden)?;
    store.run(async |database| bank::warm(database, &bank::WARMED, |_, _| {}).await)?;
    measured(store, "", load, async |database| Ok(DebitCredit(Tables::of(database.catalog(), &scale)?)))
}

/// The name of a run of an operator with this much memory.
fn spill_name(operator: &str, memory: u64) -> String {
    format!("{operator}, 100 B rows, {} MiB", memory >> 20)
}

/// A sort or a join; its figures are per row of its input, and of all threads.
fn spilled(store: &Store, operator: &str, memory: u64) -> Result<EngineRun, Failure> {
    const ROWS: u64 = 400_000;
    let input = Input { rows: ROWS, row_size: 100, memory, seed: 1 };
    let hidden = Progress::hidden();
    let mut watch = Watch::start(store.database());
    let mut once = || {
        let (before, turns, cpu) = (steps(store), store.executor().whole().thread_use(), real_driver::process_cpu_ns());
        match operator {
            "sort" => sort::sort(store, input, &mut watch, &hidden),
            "hash join" => join::join(store, JoinMethod::Hash, input, &mut watch, &hidden),
            _ => join::join(store, JoinMethod::SortMerge, input, &mut watch, &hidden),
        }?;
        let cpu_ns = (real_driver::process_cpu_ns() - cpu) as f64 / ROWS as f64;
        let (after, turns) = (steps(store), store.executor().whole().thread_use().since(turns));
        let steps = std::array::from_fn(|work| (after[work] - before[work]) / ROWS as f64);
        Ok::<_, Failure>((steps, turns.counts().map(|times| times as f64 / ROWS as f64), cpu_ns))
    };
    // Memory that is used for the first time is slower.
    once()?;
    let mut found = [once()?, once()?, once()?];
    found.sort_by(|one, other| one.2.total_cmp(&other.2));
    let [_, (steps, thread, cpu_ns), _] = found;
    Ok(EngineRun { name: spill_name(operator, memory), steps, thread, cpu_ns, footprint: memory, durable: false })
}
