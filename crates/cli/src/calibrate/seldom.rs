//! Steps that transactions seldom make: accesses to NVEM, looks at the log, copies of segments, messages of a transaction server,
//! redo, requests of other threads, what nodes and their server do. Each has runs of the engine of its own. What such a run takes beyond the steps that are known
//! by then, or beyond the same run without the step, is the price.

use super::cpu::{Calls, EngineExtent, EngineRun, RECORDS, configuration, debit_credit, fill, measured, plan, steps};
use super::fit::SystemCosts;
use super::least_squares::nonnegative;
use super::one_thread::{DIRECTORY, NODE_CALLS, NODES};
use super::prices::{StepPrices, explained_ns};
use crate::Failure;
use crate::bench::meter::Meter;
use crate::bench::{bank, threads};
use crate::progress::Progress;
use devices::Device;
use driver::{Fault, Work};
use engine::Internals;
use engine::Transaction;
use engine::catalog::Organization;
use engine::checkpoint::Strategy;
use entresol::configuration::{Configuration, Device as Place, DeviceKind};
use entresol::{Database, Opening, PartitionId, PartitionSpec, Store};
use executor::WholeExecutor;
use std::path::Path;
use workload::debit_credit::{DebitCredit, Scale, Tables};
use workload::{Length, Plan};

/// The steps that these runs tell, each with what it stands for and which runs' names begin so.
pub const SELDOM: [(Work, &str, &str); 11] = [
    (Work::NvemAccess, "access to NVEM", NVEM),
    (Work::LogCheck, "look whether the log is durable", LOG_CHECKS),
    (Work::SegmentAllocation, "memory for a copy of a segment", SEGMENTS),
    (Work::SegmentCopy, "copying 1 KiB of a segment", SEGMENTS),
    (Work::Message, "message of a transaction server", MESSAGES),
    (Work::Redo, "redo of a change", RESTART),
    (Work::Request, "request of another thread", REQUESTS),
    (Work::CopyRegistration, "look at the directory of copies", DIRECTORY),
    (Work::NodeMessage, "message of a node, at one end", NODES),
    (Work::PageImage, "page in a message, at one end", NODES),
    (Work::ShippedChange, "trial of a node's change", NODES),
];
const NVEM: &str = "pages in NVEM";
const LOG_CHECKS: &str = "looks at the log";
const SEGMENTS: &str = "copies of segments";
const MESSAGES: &str = "Debit-Credit by messages";
const RESTART: &str = "restart";
const REQUESTS: &str = "Debit-Credit by requests";

/// Numbers of clients whose pages are in NVEM.
const NVEM_CLIENTS: [u32; 2] = [1, 64];
/// Bytes of the segments that are copied.
const SEGMENT_SIZES: [u32; 2] = [16 << 10, 256 << 10];
/// How many runs there are.
pub const RUNS: u64 = (NVEM_CLIENTS.len() + SEGMENT_SIZES.len() + NODE_CALLS.len()) as u64 + 5;
const NVEM_RECORDS: u64 = 40_000;
const SEGMENT_RECORDS: u64 = 20_000;
const LOOKS: u32 = 200_000;
/// How many records each transaction has changed that a restart makes again, and for how much of a run's time there is one of these: what
/// an opening takes in any case differs by milliseconds from one to the next.
const REDONE: u64 = 64;
const REDONE_EACH_NS: u64 = 160_000;
/// How many clients send messages and requests.
const CLIENTS: u32 = 8;

/// Runs the engine in a directory of its own. `known` are runs of an interrupted calibration; `keep` hears of each new one, and
/// an error of its ends them.
pub fn run_engine(
    (directory, described): (&Path, Option<&Device>),
    extent: EngineExtent,
    known: Vec<EngineRun>,
    mut keep: impl FnMut(&EngineRun) -> Result<(), Fault>,
) -> Result<Vec<EngineRun>, Failure> {
    let mut runs = known;
    let place = Bench { directory, described, span_ns: extent.span_ns };
    let mut add = |name: String, run: &dyn Fn(&Bench) -> Result<EngineRun, Failure>| {
        if !runs.iter().any(|run| run.name == name) {
            runs.push(EngineRun { name, ..run(&place)? });
            keep(&runs[runs.len() - 1])?;
        }
        Ok::<_, Failure>(())
    };
    for clients in NVEM_CLIENTS {
        add(format!("{NVEM}, {clients} clients"), &|place| place.nvem(clients))?;
    }
    add(LOG_CHECKS.to_owned(), &|place| place.looks())?;
    for size in SEGMENT_SIZES {
        add(format!("{SEGMENTS} of {} KiB", size >> 10), &|place| place.segments(size))?;
    }
    add(format!("{MESSAGES}, {CLIENTS} clients"), &|place| place.messages())?;
    add(RESTART.to_owned(), &|place| place.restart())?;
    add(format!("{REQUESTS}, {CLIENTS} clients"), &|place| place.requests())?;
    add(DIRECTORY.to_owned(), &|place| place.directory())?;
    for calls in NODE_CALLS {
        add(calls.name(), &|place| place.nodes(calls))?;
    }
    Ok(runs)
}

/// Where the engine runs, and for how long.
pub struct Bench<'a> {
    directory: &'a Path,
    pub described: Option<&'a Device>,
    pub span_ns: u64,
}

impl Bench<'_> {
    pub fn opening(&self, name: &str, change: impl Fn(&mut Configuration)) -> Opening {
        let mut configuration = configuration(self.described, false, 64 << 20);
        change(&mut configuration);
        Opening::new(self.directory.join(name), configuration)
    }

    /// Reads of records in pages that memory does not hold and a mapped file does.
    fn nvem(&self, clients: u32) -> Result<EngineRun, Failure> {
        let opening = self.opening("nvem", |configuration| {
            let nvem = Place { kind: DeviceKind::Mapped, ..Place::default() };
            configuration.devices.insert("nvem".to_owned(), nvem);
            configuration.buffer.size = 2 << 20;
        });
        let store = opening.open()?;
        let spec = PartitionSpec { device: "nvem".to_owned(), ..PartitionSpec::b_tree("b-tree") };
        let partition = match store.database().partition("b-tree") {
            Ok(partition) => partition,
            Err(_) => fill(&store, spec, NVEM_RECORDS)?,
        };
        let calls = || Calls { partition, records: NVEM_RECORDS, reads: 1, changes: 0 };
        let run = measured(&store, "", (clients, self.span_ns), async |_| Ok(calls()))?;
        store.close()?;
        Ok(run)
    }

    /// Looks whether the log is durable up to where it has long been.
    fn looks(&self) -> Result<EngineRun, Failure> {
        let store = self.opening("small", |_| ()).open()?;
        let log = store.database().log().clone();
        let look = || {
            counted(&store, f64::from(LOOKS), || {
                let durable = log.durable();
                store.run(async |_| {
                    for _ in 0..LOOKS {
                        log.flush(durable).await?;
                    }
                    Ok(())
                })
            })
        };
        look()?;
        let run = median([look()?, look()?, look()?]);
        store.close()?;
        Ok(run)
    }

    /// What sweeps that copy segments take beyond those that lend them.
    fn segments(&self, size: u32) -> Result<EngineRun, Failure> {
        let [copying, lending] = [true, false].map(|spool| self.sweeps(size, spool));
        Ok(beyond(&copying?, &lending?))
    }

    /// Sweeps over a set in which everything has changed, for each segment that they write.
    fn sweeps(&self, size: u32, spool: bool) -> Result<EngineRun, Failure> {
        let opening = self.opening(&format!("segments-{size}"), |configuration| {
            let checkpoint = &mut configuration.checkpoint;
            (checkpoint.sets, checkpoint.spool) = (Strategy::ActionBlackWhite, spool);
            (checkpoint.interval_ns, checkpoint.log_bytes, checkpoint.sweep_interval_ns) = (None, None, None);
        });
        let store = opening.open()?;
        let organization = Organization::Set { arrivals: false, segment_size: size, reserve_percent: 10 };
        let spec = PartitionSpec { organization, ..PartitionSpec::set("set") };
        let partition = match store.database().partition("set") {
            Ok(partition) => partition,
            Err(_) => fill(&store, spec, SEGMENT_RECORDS)?,
        };
        let sweep = || {
            store.run(async |database| change(database, partition, (0..SEGMENT_RECORDS).step_by(40)).await)?;
            let written = || store.database().segments_written(partition).unwrap_or(0);
            let before = written();
            let run = counted(&store, 1.0, || store.run(async |database| database.checkpoint().await))?;
            Ok::<_, Failure>(per(run, (written() - before).max(1) as f64))
        };
        // Each of the two copies of the set has been written once before it counts.
        sweep()?;
        sweep()?;
        let run = median([sweep()?, sweep()?, sweep()?, sweep()?, sweep()?]);
        store.close()?;
        Ok(run)
    }

    /// What transactions that a transaction server runs take beyond those of tasks.
    fn messages(&self) -> Result<EngineRun, Failure> {
        let scale = Scale::tpc_b(1);
        let known = scale.clone();
        let opening = self.opening("served", |_| ()).procedures(move || bank::procedures(&known));
        let store = opening.open()?;
        let of_tasks = debit_credit(&store, 1, (CLIENTS, self.span_ns))?;
        let server = engine::server::TransactionServer::start(store.database(), engine::server::Settings::default())?;
        let hidden = Progress::hidden();
        let once = |span_ns: u64| {
            let plan = plan(CLIENTS, span_ns);
            let mut meter = Meter::new(&hidden, &plan, false);
            let before = steps(&store);
            let found = store.run(async |database| {
                let load = DebitCredit(Tables::of(database.catalog(), &scale)?);
                workload::run::run_through(&server, load, &plan, 1, &mut meter, |measured| measured).await
            })?;
            let found = found.into_iter().next().ok_or("nothing was measured")?;
            Ok::<_, Failure>(EngineRun::of_transactions(&store, before, &found))
        };
        once(self.span_ns / 4)?;
        let through = median([once(self.span_ns / 2)?, once(self.span_ns / 2)?, once(self.span_ns / 2)?]);
        store.run(async |_| {
            server.close().await;
            Ok(())
        })?;
        store.close()?;
        Ok(beyond(&through, &of_tasks))
    }

    /// What an opening behind a crash takes beyond one behind a close, for each change that it makes again.
    fn restart(&self) -> Result<EngineRun, Failure> {
        let opening = || {
            self.opening("restarted", |configuration| {
                let checkpoint = &mut configuration.checkpoint;
                (checkpoint.interval_ns, checkpoint.log_bytes) = (None, None);
            })
        };
        let store = opening().open()?;
        let partition = fill(&store, PartitionSpec::b_tree("b-tree"), RECORDS)?;
        store.close()?;
        let once = || {
            let closed = opened(opening())?;
            let (transactions, records) = (self.span_ns / REDONE_EACH_NS, REDONE);
            closed.0.run(async |database| {
                for number in 0..transactions {
                    change(database, partition, (0..records).map(|at| (number * 37 + at * 501) % RECORDS)).await?;
                }
                Ok(())
            })?;
            // As a crash leaves it.
            drop(closed.0);
            let crashed = opened(opening())?;
            let redone = crashed.1.steps[Work::Redo as usize].max(1.0);
            crashed.0.close()?;
            Ok::<_, Failure>(per(beyond(&crashed.1, &closed.1), redone))
        };
        Ok(median([once()?, once()?, once()?]))
    }

    /// What transactions that other threads ask for take the engine's thread beyond those of tasks.
    fn requests(&self) -> Result<EngineRun, Failure> {
        let durable = |configuration: &mut Configuration| configuration.log.durable = true;
        let store = self.opening("asked", durable).open()?;
        let of_tasks = debit_credit(&store, 1, (CLIENTS, 2 * self.span_ns))?;
        store.close()?;
        let plan = Plan { warm_up: Length::Time(self.span_ns / 4), ..plan(CLIENTS, 2 * self.span_ns) };
        let opening = self.opening("asked", durable).procedures(|| bank::procedures(&Scale::tpc_b(1)));
        let report = threads::run(opening, Some(1), &plan, &Progress::hidden())?;
        let mut steps = [0.0; Work::ALL.len()];
        steps[Work::Request as usize] = 1.0;
        let cpu_ns = (report.cpu_us_per_transaction * 1e3 - of_tasks.cpu_ns).max(0.0);
        Ok(EngineRun { steps, thread: [0.0; 4], cpu_ns, ..of_tasks })
    }
}

/// Changes these records in one transaction.
async fn change(
    database: &Database,
    partition: PartitionId,
    records: impl Iterator<Item = u64> + Clone,
) -> entresol::Result<()> {
    let work = async |tx: &mut Transaction| {
        for number in records.clone() {
            tx.modify(partition, &number.to_be_bytes(), |record| record[0] ^= 1).await?;
        }
        Ok::<_, entresol::Error>(())
    };
    database.transaction(work).await
}

/// A store, and what it took to open it.
fn opened(opening: Opening) -> Result<(Store, EngineRun), Failure> {
    let cpu = real_driver::process_cpu_ns();
    let store = opening.open()?;
    let cpu_ns = (real_driver::process_cpu_ns() - cpu) as f64;
    let thread = store.executor().whole().thread_use().counts().map(|times| times as f64);
    let run = EngineRun { steps: steps(&store), thread, cpu_ns, ..EngineRun::unnamed(&store) };
    Ok((store, run))
}

/// What some work of a store takes, for each of `times`; of all threads.
pub fn counted<T>(
    store: &Store,
    times: f64,
    work: impl FnOnce() -> Result<T, entresol::OpenError>,
) -> Result<EngineRun, Failure> {
    let (before, turns, cpu) = (steps(store), store.executor().whole().thread_use(), real_driver::process_cpu_ns());
    work()?;
    let cpu_ns = (real_driver::process_cpu_ns() - cpu) as f64;
    let thread = store.executor().whole().thread_use().since(turns).counts().map(|times| times as f64);
    let after = steps(store);
    let steps = std::array::from_fn(|work| after[work] - before[work]);
    Ok(per(EngineRun { steps, thread, cpu_ns, ..EngineRun::unnamed(store) }, times))
}

pub fn per(run: EngineRun, times: f64) -> EngineRun {
    let (steps, thread) = (run.steps.map(|count| count / times), run.thread.map(|count| count / times));
    EngineRun { steps, thread, cpu_ns: run.cpu_ns / times, ..run }
}

/// What a run has more than another one. It may have less of a step, too.
fn beyond(run: &EngineRun, other: &EngineRun) -> EngineRun {
    let steps = std::array::from_fn(|at| run.steps[at] - other.steps[at]);
    let thread = std::array::from_fn(|at| run.thread[at] - other.thread[at]);
    EngineRun { steps, thread, cpu_ns: run.cpu_ns - other.cpu_ns, ..run.clone() }
}

pub fn median<const N: usize>(mut runs: [EngineRun; N]) -> EngineRun {
    runs.sort_by(|one, other| one.cpu_ns.total_cmp(&other.cpu_ns));
    runs[N / 2].clone()
}

/// The price of a seldom step, and how far it is from its runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeldomPrice {
    /// In nanoseconds.
    pub ns: f64,
    /// How many runs tell it.
    pub runs: usize,
    /// How many other seldom steps the same runs tell.
    pub beside: usize,
    /// By how much the worst of them is off, as a share of its CPU time: one that takes less than the known steps explain tells nothing.
    pub off: f64,
}

/// The prices in the order of [`SELDOM`]; nothing of a step that no run has made.
pub fn prices(runs: &[EngineRun], known: &StepPrices, costs: SystemCosts) -> [Option<SeldomPrice>; SELDOM.len()] {
    let mut found: [Option<SeldomPrice>; SELDOM.len()] = [None; SELDOM.len()];
    for (at, (_, _, name)) in SELDOM.iter().enumerate() {
        let steps: Vec<usize> = (0..SELDOM.len()).filter(|other| SELDOM[*other].2 == *name).collect();
        if steps[0] != at {
            continue;
        }
        let count = |run: &EngineRun, step: &usize| run.steps[SELDOM[*step].0 as usize].max(0.0);
        let own = |run: &&EngineRun| run.name.starts_with(name) && steps.iter().any(|step| count(run, step) > 0.0);
        let own: Vec<&EngineRun> = runs.iter().filter(own).collect();
        // Of those that are found by other runs, which come before.
        let of_others = |run: &EngineRun| -> f64 {
            let others = (0..SELDOM.len()).filter(|other| !steps.contains(other));
            others.filter_map(|other| Some(found[other].as_ref()?.ns * count(run, &other))).sum()
        };
        let left = |run: &&EngineRun| run.cpu_ns - explained_ns(run, known, costs) - of_others(run);
        let left: Vec<f64> = own.iter().map(left).collect();
        let weights: Vec<f64> = left.iter().map(|left| 1.0 / left.max(1.0)).collect();
        let counts: Vec<Vec<f64>> = own.iter().map(|run| steps.iter().map(|step| count(run, step)).collect()).collect();
        let weighed = |(row, weight): (&Vec<f64>, &f64)| row.iter().map(|count| count * weight).collect::<Vec<f64>>();
        let rows: Vec<Vec<f64>> = counts.iter().zip(&weights).map(weighed).collect();
        let right: Vec<f64> = left.iter().zip(&weights).map(|(left, weight)| left.max(0.0) * weight).collect();
        let ns = nonnegative(&rows, &right);
        let error = |((row, left), run): ((&Vec<f64>, &f64), &&EngineRun)| {
            let shown: f64 = row.iter().zip(&ns).map(|(count, ns)| count * ns).sum();
            (shown - left).abs() / run.cpu_ns.abs().max(1.0)
        };
        let off = counts.iter().zip(&left).zip(&own).map(error).fold(0.0, f64::max);
        for (step, ns) in steps.iter().zip(ns) {
            found[*step] = Some(SeldomPrice { ns, runs: own.len(), beside: steps.len() - 1, off });
        }
    }
    found
}

#[cfg(test)]
pub mod tests {
    use super::*;

    fn run(name: &str, counts: &[(Work, f64)], cpu_ns: f64) -> EngineRun {
        let mut steps = [0.0; Work::ALL.len()];
        counts.iter().for_each(|(work, count)| steps[*work as usize] = *count);
        EngineRun { name: name.to_owned(), steps, thread: [0.0; 4], cpu_ns, footprint: 1 << 20, durable: false }
    }

    /// A run of nodes with these numbers of messages, pages and changes, which are redone, and of looks at the directory.
    fn of_nodes([messages, images, changes]: [f64; 3], looks: f64) -> EngineRun {
        let own = [(Work::NodeMessage, messages), (Work::PageImage, images), (Work::ShippedChange, changes)];
        let others = [(Work::Redo, changes), (Work::CopyRegistration, looks), (Work::ObjectReference, 1.0)];
        let cpu_ns = 600.0 * messages + 1_100.0 * images + 1_900.0 * changes + 700.0 * changes + 800.0 * looks + 300.0;
        run(&format!("{NODES}, {messages}"), &[own, others].concat(), cpu_ns)
    }

    /// Runs whose prices are known, if a reference to an object takes 300 ns.
    pub fn runs() -> Vec<EngineRun> {
        let reference = (Work::ObjectReference, 2.0);
        let copies = |kib: f64| [(Work::SegmentAllocation, 1.0), (Work::SegmentCopy, kib)];
        vec![
            run(&format!("{NVEM}, 1 clients"), &[reference, (Work::NvemAccess, 1.0)], 600.0 + 1_500.0),
            run(&format!("{NVEM}, 64 clients"), &[reference, (Work::NvemAccess, 0.5)], 600.0 + 750.0),
            run(LOG_CHECKS, &[(Work::LogCheck, 1.0)], 20.0),
            run(&format!("{SEGMENTS} of 16 KiB"), &copies(16.0), 900.0 + 16.0 * 40.0),
            run(&format!("{SEGMENTS} of 256 KiB"), &copies(256.0), 900.0 + 256.0 * 40.0),
            run(&format!("{MESSAGES}, 8 clients"), &[(Work::Message, 2.0)], 2.0 * 250.0),
            run(RESTART, &[(Work::Redo, 1.0), (Work::ObjectReference, 0.0)], 700.0),
            run(&format!("{REQUESTS}, 8 clients"), &[(Work::Request, 1.0)], 3_100.0),
            run(DIRECTORY, &[(Work::CopyRegistration, 1.0)], 800.0),
            of_nodes([4.0, 0.0, 1.0], 1.0),
            of_nodes([4.0, 0.0, 12.0], 12.0),
            of_nodes([16.0, 8.0, 0.0], 4.0),
            of_nodes([20.0, 8.0, 2.0], 6.0),
        ]
    }

    #[test]
    fn each_seldom_step_has_the_price_of_its_runs() {
        let known = [1.0, 4.0, 16.0]
            .map(|count| run(&format!("{count} references"), &[(Work::ObjectReference, count)], 300.0 * count));
        let costs = SystemCosts::default();
        let known = super::super::prices::prices(&known, costs);
        let found = prices(&runs(), &known, costs);
        let expected = [1_500.0, 20.0, 900.0, 40.0, 250.0, 700.0, 3_100.0, 800.0, 600.0, 1_100.0, 1_900.0];
        for (((_, name, _), found), ns) in SELDOM.into_iter().zip(found).zip(expected) {
            let found = found.unwrap_or_else(|| panic!("{name} has runs"));
            assert!((found.ns / ns - 1.0).abs() < 0.01 && found.off < 0.01, "{name}: {found:?}");
        }
        let without: Vec<EngineRun> = runs().into_iter().filter(|run| run.name != RESTART).collect();
        assert_eq!(prices(&without, &known, costs)[5], None, "what no run has made has no price");
        let mut quick = without;
        quick.push(run(RESTART, &[(Work::Redo, 1.0), (Work::ObjectReference, 1.0)], 100.0));
        let untold = prices(&quick, &known, costs)[5].expect("it has a run");
        assert!(untold.ns == 0.0 && untold.off > 1.0, "it takes less than the reference alone: {untold:?}");
    }

    #[test]
    fn the_engine_makes_every_seldom_step() {
        let directory = tempfile::tempdir().expect("a directory");
        let extent = EngineExtent { span_ns: 20_000_000, branches: 1 };
        let runs = run_engine((directory.path(), None), extent, Vec::new(), |_| Ok(())).expect("the engine runs");
        assert_eq!(runs.len() as u64, RUNS);
        for (work, _, name) in SELDOM {
            let made = |run: &&EngineRun| run.name.starts_with(name) && run.steps[work as usize] > 0.0;
            let of_own = runs.iter().filter(|run| run.name.starts_with(name)).count();
            // Not each run of nodes sends pages, or changes any.
            let expected = if name == NODES { 4 } else { of_own };
            assert_eq!(runs.iter().filter(made).count().min(expected), expected, "{work:?}: {runs:?}");
        }
    }
}
