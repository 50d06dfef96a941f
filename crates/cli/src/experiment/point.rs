//! One run of an experiment.

use super::page_server;
use crate::Failure;
use crate::bench::page_server::{NodesLoad, run_with};
use crate::bench::spill::{Input, Spilled, Watch};
use crate::bench::{bank, cards, join, meter::Meter, sort, summary, synthetic, terms, tpcc, ycsb};
use crate::files::{self, Directory};
use crate::progress::Progress;
use crate::report::{Clock, Station};
use crate::trace::Recording;
use base::PartitionId;
use engine::Internals;
use engine::catalog::Locking;
use entresol::JoinMethod;
use entresol::configuration::{Choice, Configuration};
use entresol::{Database, Opening, Store};
use executor::WholeExecutor;
use papers::experiment::{Operation, Setting, Work};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::rc::Rc;
use virtual_driver::Media;
use workload::credit_card::{self, CreditCard};
use workload::debit_credit::{DebitCredit, Tables};
use workload::page_stream::{self, PAGES, PageStream};
use workload::run::Workload;
use workload::snapshot_readers::{Readers, Reading};
use workload::synthetic::Synthetic;
use workload::tpcc::{TREES, Tpcc};
use workload::trace::Trace;
use workload::trace::record::Recorded;
use workload::trace::replay::{self, Replay};
use workload::ycsb::{USERTABLE, Ycsb};
use workload::{Load, Measured, Plan};

/// What a run's report has at its top, and so may be plotted.
pub const KEYS: [&str; 29] = [
    "response_us",
    "throughput_per_s",
    "transactions",
    "aborts",
    "types",
    "composition_us",
    "cpu_us_per_transaction",
    "log_bytes_per_transaction",
    "log_record_bytes_per_transaction",
    "locks",
    "server",
    "references",
    "hit_ratio",
    "hit_ratio_all",
    "hit_ratio_second_level_all",
    "io_per_transaction",
    "io_per_s",
    "tiers",
    "written_bytes_per_s",
    "cache",
    "utilization",
    "seconds",
    "wall_seconds",
    "spill",
    "recovery",
    "snapshots",
    "torture",
    "page_server",
    "nodes",
];

/// What one run gave.
pub struct PointRun {
    /// Of each of its batches the report of `entresol bench --json`, and more.
    pub reports: Vec<Value>,
    /// The station that could not keep up with the arrivals.
    pub saturated: Option<String>,
}

/// The traces that experiments replay, by name and number.
pub type Traces = BTreeMap<(String, u32), Trace>;

/// A trace that can be generated.
pub const GENERATED: &str = "rahm-1991";

/// Which trace a replication replays: each another one of those that are generated, all the one in a file.
fn source(name: &str, replication: u32) -> (String, u32) {
    (name.to_owned(), if name == GENERATED { replication } else { 0 })
}

/// Adds the trace of this name, or the file of this path, for the given number of replications.
pub fn load(traces: &mut Traces, name: &str, replications: u32) -> Result<(), Failure> {
    for replication in 0..replications {
        if let Entry::Vacant(place) = traces.entry(source(name, replication)) {
            place.insert(match name {
                GENERATED => workload::trace::rahm_1991::generate(1 + u64::from(replication)),
                path => Trace::read(path, &files::read(Path::new(path))?)?,
            });
        }
    }
    Ok(())
}

/// Under which circumstances a point is run.
#[derive(Clone, Copy, Default)]
pub struct Circumstances<'a> {
    /// Where the devices of described hardware keep what is to be found after the run; nowhere by default.
    pub media: Option<&'a Media>,
    /// Whether the warm-up is repeated until nothing changes any more.
    pub until_steady: bool,
    /// What the references are recorded by, if they are.
    pub recording: Option<&'a Recording>,
}

/// Runs one replication; the first has the seed that the setting names, the others follow.
pub fn run(setting: &Setting, replication: u32, traces: &Traces) -> Result<PointRun, String> {
    run_under(Circumstances::default(), setting, replication, traces)
}

/// The same, under these circumstances.
pub fn run_under(
    circumstances: Circumstances<'_>,
    setting: &Setting,
    replication: u32,
    traces: &Traces,
) -> Result<PointRun, String> {
    let plan = Plan { seed: setting.plan.seed + u64::from(replication), ..setting.plan };
    opened(circumstances, setting, (&plan, replication), traces).map_err(|failure| failure.to_string())
}

/// How a setting's database is opened, on this directory on this machine.
pub fn opening(path: &Path, configuration: Configuration, seed: u64) -> Opening {
    Opening::new(path, configuration).nodes(1).seed(seed).procedures(credit_card::procedures)
}

fn opened(
    circumstances: Circumstances<'_>,
    setting: &Setting,
    (plan, replication): (&Plan, u32),
    traces: &Traces,
) -> Result<PointRun, Failure> {
    let (mut configuration, batches) = (setting.configuration.clone(), (setting.batches, circumstances));
    let ground = if configuration.hardware.is_none() { Some(Directory::new()?) } else { None };
    let path = ground.as_ref().map_or(Path::new("experiment"), Directory::path);
    let opening = |configuration| opening(path, configuration, plan.seed);
    let open = |configuration| match circumstances.media {
        Some(media) => opening(configuration).open_on(media),
        None => opening(configuration).open(),
    };
    match &setting.work {
        Work::DebitCredit { branches } => {
            let store = open(configuration)?;
            let scale = bank::prepare(&store, Some(*branches), &Progress::hidden())?;
            store.run(async |database| bank::warm_loaded(database, &bank::WARMED).await)?;
            let workload = DebitCredit(Tables::of(store.database().catalog(), &scale)?);
            measured(&store, workload, plan, batches)
        }
        Work::CreditCard { accounts, restart } => {
            if *restart && configuration.hardware.is_none() {
                return Err("'restart' stops a described machine, and 'this machine' is none; leave it out".into());
            }
            let (own, opening) = (Media::new(), opening(configuration));
            let media = circumstances.media.or(restart.then_some(&own));
            let store = media.map_or_else(|| opening.clone().open(), |media| opening.clone().open_on(media))?;
            let tables = cards::prepare(&store, Some(*accounts), &Progress::hidden())?;
            let run = measured(&store, CreditCard(tables.clone()), plan, batches)?;
            if let Some(media) = media.filter(|_| *restart) {
                drop(store);
                return restarted(run, opening, media);
            }
            cards::agreed(&store.run(async |database| cards::totals(database, &tables).await)?)?;
            if !store.is_virtual() {
                store.close()?;
            }
            Ok(run)
        }
        Work::Synthetic { model, readers } => {
            for partition in &model.partitions {
                let organization = partition.organization(configuration.buffer.page_size);
                terms::place(&mut configuration, &partition.name, organization, partition.locks);
            }
            let prices = if model.has_instructions() { synthetic::unprice(&mut configuration) } else { None };
            let store = open(configuration)?;
            let spec = |partition: &workload::synthetic::Partition| terms::placed(&store, &partition.name);
            let prepared = store.run(async |database| Synthetic::prepare(database, (**model).clone(), spec).await)?;
            let first = (prepared.tables()[0], model.partitions[0].objects);
            let workload = match prices {
                Some(prices) => prepared.priced(prices),
                None => prepared,
            };
            match readers.count {
                0 => measured(&store, workload, plan, batches),
                _ => beside_readers(&store, workload, (plan, batches), (*readers, first)),
            }
        }
        Work::TpcC { warehouses, shrink } => {
            let store = open(configuration)?;
            let scale = tpcc::prepare(&store, (Some(*warehouses), *shrink), &Progress::hidden())?;
            store.run(async |database| bank::warm_loaded(database, &TREES).await)?;
            measured(&store, Tpcc { tables: tpcc_tables(&store)?, scale }, plan, batches)
        }
        Work::Ycsb { mix, records } => {
            let store = open(configuration)?;
            let records = ycsb::prepare(&store, Some(*records), &Progress::hidden())?;
            store.run(async |database| bank::warm_loaded(database, &[USERTABLE]).await)?;
            let partition = store.database().partition(USERTABLE)?;
            measured(&store, Ycsb::new(partition, *mix, records), plan, batches)
        }
        Work::PageStream { stream, pages } => {
            terms::place(&mut configuration, PAGES, page_stream::organization(*pages), Some(Locking::None));
            let store = open(configuration)?;
            let spec = || terms::placed(&store, PAGES);
            let workload = store.run(async |database| PageStream::prepare(database, *stream, *pages, spec).await)?;
            measured(&store, workload, plan, batches)
        }
        Work::Trace { trace } => {
            let trace = Rc::new(traces.get(&source(trace, replication)).ok_or("the trace was not loaded")?.clone());
            for partition in trace.partitions() {
                let organization = replay::organization(partition, configuration.buffer.page_size);
                terms::place(&mut configuration, &partition.name, organization, Some(partition.locks));
            }
            let store = open(configuration)?;
            let spec = |partition: &workload::trace::Partition| terms::placed(&store, &partition.name);
            let replay = store.run(async |database| Replay::prepare(database, trace, spec).await)?;
            measured(&store, replay, plan, batches)
        }
        Work::PageServer { model, client } => page_server::run((model, client), configuration, plan, batches.0),
        Work::Nodes { branches, nodes } => on_nodes((*branches, *nodes), (path, configuration), plan, circumstances),
        Work::Spill { operation, rows, row_size, memory } => {
            let input = Input { rows: *rows, row_size: *row_size, memory: *memory, seed: plan.seed };
            spilled(open(configuration)?, *operation, input)
        }
        Work::Torture { seeds } => Ok(tortured(*seeds, replication)),
    }
}

/// Runs Debit-Credit on nodes that share the database of a server. Its report has what those of other runs have, of all machines together, and
/// all that is known of nodes.
fn on_nodes(
    (branches, nodes): (u32, u32),
    (path, configuration): (&Path, Configuration),
    plan: &Plan,
    circumstances: Circumstances<'_>,
) -> Result<PointRun, Failure> {
    let Load::Closed { clients } = plan.load else { return Err("nodes have 'clients'".into()) };
    let load = NodesLoad { data: path.to_owned(), scale: Some(branches), nodes, clients, plan: *plan };
    let found = run_with(&load, configuration, circumstances.media, &Progress::hidden())?;
    let of_nodes = serde_json::to_value(&found)?;
    let mut report = of_nodes.clone();
    report["hit_ratio_all"] = json!(found.node_hit_ratio);
    let node_cpus = found.node_cpu_utilization.iter().zip(1..).map(|(utilization, number)| {
        let name = format!("node {number}.cpu");
        json!({ "name": name, "servers": 1, "utilization": utilization })
    });
    report["utilization"].as_array_mut().into_iter().for_each(|stations| stations.extend(node_cpus.clone()));
    report["nodes"] = of_nodes;
    Ok(PointRun { reports: vec![report], saturated: None })
}

/// Starts the machine again that has just stopped, and reports what that took, beside the last batch.
fn restarted(run: PointRun, opening: Opening, media: &Media) -> Result<PointRun, Failure> {
    let PointRun { mut reports, saturated } = run;
    let mut report = reports.pop().ok_or("the run has no batch")?;
    let store = opening.open_on(media)?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let opened = store.executor().now();
    let found = store.database().recovery();
    report["recovery"] = json!({
        "seconds": seconds(opened.since_ns(base::Instant::START)),
        "load_seconds": seconds(found.load_ns),
        "redo_seconds": seconds(found.redo_ns),
        "undo_seconds": seconds(found.undo_ns),
        "records": found.records,
        "log_bytes": found.log_bytes,
        "backup_bytes": found.backup_bytes,
    });
    let tables = credit_card::Tables::of(store.database().catalog(), |set| store.database().set_records(set))?;
    cards::agreed(&store.run(async |database| cards::totals(database, &tables).await)?)?;
    Ok(PointRun { reports: vec![report], saturated })
}

/// Runs one sort or join and reports what it took.
fn spilled(store: Store, operation: Operation, input: Input) -> Result<PointRun, Failure> {
    let executor = store.executor().whole();
    executor.restart_statistics();
    let (mut watch, progress) = (Watch::start(store.database()), Progress::hidden());
    let (_, spilled) = match operation {
        Operation::Sort => sort::sort(&store, input, &mut watch, &progress)?,
        Operation::SortMergeJoin => join::join(&store, JoinMethod::SortMerge, input, &mut watch, &progress)?,
        Operation::HashJoin => join::join(&store, JoinMethod::Hash, input, &mut watch, &progress)?,
    };
    let took = watch.took(store.database());
    let stations: Vec<Station> = executor.stations().into_iter().map(Station::from).collect();
    let Spilled { runs, passes, spilled_bytes } = spilled;
    let report = json!({
        "spill": {
            "seconds": took.seconds, "first_seconds": took.first_seconds, "writes": took.writes, "reads": took.reads,
            "runs": runs, "passes": passes, "spilled_bytes": spilled_bytes,
        },
        "utilization": stations,
    });
    if !store.is_virtual() {
        store.close()?;
    }
    Ok(PointRun { reports: vec![report], saturated: None })
}

/// Runs the replication's own seeds and reports what came of them.
fn tortured(seeds: u64, replication: u32) -> PointRun {
    let first = seeds * u64::from(replication);
    let summary = torture::run_range(first..first + seeds, torture::Options::FULL, |_| ());
    let mut stops = serde_json::Map::new();
    for ((logging, strategy), step, count) in summary.coverage.stops() {
        let pair = format!("{}/{}", strategy.word(), logging.word()).to_uppercase();
        stops.entry(pair).or_insert_with(|| json!({}))[step.name()] = json!(count);
    }
    let report = json!({"torture": {
        "seeds": summary.seeds, "runs": summary.runs, "transactions": summary.transactions,
        "failures": summary.failures.len(), "stops": stops,
    }});
    PointRun { reports: vec![report], saturated: None }
}

fn tpcc_tables(store: &Store) -> Result<workload::tpcc::Tables, Failure> {
    Ok(workload::tpcc::Tables::of(store.database().catalog())?)
}

/// Runs a workload in this number of batches under these circumstances.
fn measured<W: Workload>(
    store: &Store,
    workload: W,
    plan: &Plan,
    (batches, circumstances): (u32, Circumstances<'_>),
) -> Result<PointRun, Failure> {
    let progress = Progress::hidden();
    let mut meter = Meter::new(&progress, plan, store.is_virtual());
    if circumstances.until_steady {
        meter = meter.until_steady();
    }
    let server = store.transaction_server()?;
    let clock = if store.is_virtual() { Clock::Virtual } else { Clock::Real };
    let mut saturated = None;
    let mut reports = store.run(async |database| {
        let at_end = |measured: Measured| {
            saturated = measured.saturated.as_ref().map(|saturated| saturated.station.clone());
            report(database, (plan, clock), &measured)
        };
        let recorder = circumstances.recording.map(Recording::recorder);
        let workload = Recorded::new(database, workload, recorder);
        let Some(server) = server.filter(|_| !workload.procedures().is_empty()) else {
            return workload::run::run_in_batches(database, workload, plan, batches, &mut meter, at_end).await;
        };
        let reports = workload::run::run_through(&server, workload, plan, batches, &mut meter, at_end).await?;
        server.close().await;
        Ok(reports)
    })?;
    if let Some(recording) = circumstances.recording {
        recording.finish(store.database());
    }
    // The batch in which a saturated run was cut off is shorter than the others.
    if saturated.is_some() && reports.len() > 1 {
        reports.pop();
    }
    note_warm_up(&meter, &mut reports);
    Ok(PointRun { reports, saturated })
}

/// As [`measured`], while others read a partition in snapshots.
fn beside_readers<W: Workload>(
    store: &Store,
    workload: W,
    (plan, (batches, circumstances)): (&Plan, (u32, Circumstances<'_>)),
    (readers, partition): (Readers, (PartitionId, u64)),
) -> Result<PointRun, Failure> {
    let progress = Progress::hidden();
    let mut meter = Meter::new(&progress, plan, store.is_virtual());
    if circumstances.until_steady {
        meter = meter.until_steady();
    }
    let clock = if store.is_virtual() { Clock::Virtual } else { Clock::Real };
    let mut saturated = None;
    let mut reports = store.run(async |database| {
        let reading = Reading::begin(database, readers, partition);
        let at_end = |measured: Measured| {
            saturated = measured.saturated.as_ref().map(|saturated| saturated.station.clone());
            let scans = reading.scans(measured.elapsed_ns);
            let versions = database.versions();
            let mut report = report(database, (plan, clock), &measured);
            report["snapshots"] = json!({
                "scans": scans.count,
                "scan_us": if scans.count > 0 { json!(scans.mean_ns / 1e3) } else { Value::Null },
                "reads_per_s": scans.objects as f64 / (measured.elapsed_ns as f64 / 1e9),
                "versions": versions.versions,
                "bytes": versions.bytes,
                "memory_bytes": versions.memory_bytes,
            });
            report
        };
        let reports = workload::run::run_in_batches(database, workload, plan, batches, &mut meter, at_end).await?;
        reading.end().await?;
        Ok(reports)
    })?;
    note_warm_up(&meter, &mut reports);
    Ok(PointRun { reports, saturated })
}

/// Says in the last report how the warm-up ended, of a run that was warmed up until it was steady.
fn note_warm_up(meter: &Meter<'_>, reports: &mut [Value]) {
    if let (Some(warm_up), Some(last)) = (meter.warm_up(), reports.last_mut()) {
        last["warm_up"] = json!({ "windows": warm_up.windows, "is_steady": warm_up.is_steady });
    }
}

fn report(database: &Database, (plan, clock): (&Plan, Clock), measured: &Measured) -> Value {
    let headline = summary::Headline { workload: String::new(), seed: plan.seed, clock, warnings: Vec::new() };
    let report = summary::report(database, headline, measured);
    let mut report = serde_json::to_value(&report).expect("a report holds nothing that JSON cannot");
    let (first, second) = hit_ratios(database, measured);
    (report["hit_ratio_all"], report["hit_ratio_second_level_all"]) = (json!(first), json!(second));
    report["segment_bytes"] = json!(database.segment_bytes());
    report["written_bytes_per_s"] = json!(summary::written(database, measured.elapsed_ns));
    report["cache"] = database.cache_contents().map_or(Value::Null, |cache| {
        let share = |slots: u64| slots as f64 / cache.slots.max(1) as f64;
        json!({ "used": share(cache.used), "dirty": share(cache.dirty), "outdated": share(cache.outdated) })
    });
    report
}

/// The shares of all object references that were found in main memory, and that a second level answered: a cache of the
/// engine's, be there one or two, or of a disk's controller.
fn hit_ratios(database: &Database, measured: &Measured) -> (f64, f64) {
    let references = database.statistics().references();
    let hits: u64 = references.iter().map(|seen| seen.hits).sum();
    let all = references.iter().map(|seen| seen.count()).sum::<u64>().max(1);
    let in_tiers: u64 = references.iter().map(|seen| seen.upper_cache_hits + seen.cache_hits).sum();
    let in_disks: u64 = measured.caches.iter().flat_map(|cache| &cache.files).map(|file| file.read_hits).sum();
    (hits as f64 / all as f64, (in_disks + in_tiers) as f64 / all as f64)
}
