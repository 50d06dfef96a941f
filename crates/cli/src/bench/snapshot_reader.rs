//! The cost of a long snapshot reader to writers: Debit-Credit with a snapshot that is read again and again beside Debit-Credit
//! without, in rounds that run both.

use super::meter::Span;
use super::ratio::{Ratio, median};
use super::terms::Setup;
use super::{bank, positive};
use crate::progress::Progress;
use crate::table::{fact, facts, wrapped};
use crate::{Failure, opening};
use base::units::{format_size, grouped, grouped_decimal};
use clap::Args;
use entresol::configuration::{Configuration, FILE_NAME};
use entresol::{Database, Isolation, Opening, Store};
use executor::WholeExecutor;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use workload::debit_credit::{self, DebitCredit, Scale, Tables, Totals};
use workload::{Length, Load, Plan};

/// Compares Debit-Credit beside one long snapshot reader to Debit-Credit alone
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench snapshot-reader\n  \
    entresol bench snapshot-reader --scale 10 --rounds 5 --json")]
pub struct Arguments {
    /// Directory of the database; created if new
    #[arg(long, value_name = "DIR", default_value = "snapshot-reader.data")]
    pub data: PathBuf,
    /// Branches of 100,000 accounts [default: as loaded, else 10]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// Clients that write, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clients: u32,
    /// Length of a run, the reader's snapshot is as old at its end
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = positive)]
    pub seconds: f64,
    /// How often each is run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub setup: Setup,
}

/// What the reader costs. The JSON has the fields' names as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SnapshotReaderReport {
    /// The workload, for people.
    pub workload: String,
    /// The driver's description of itself.
    pub driver: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Throughput with the reader over that without, by rounds.
    pub throughput_ratio: Ratio,
    /// The same of the 99th percentile of the response time.
    pub p99_ratio: Ratio,
    /// The medians of the runs without a reader.
    pub without: ReaderFigures,
    /// The medians of the runs with one.
    pub with: ReaderFigures,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReaderFigures {
    /// Transactions per second.
    pub throughput_per_s: f64,
    /// The 99th percentile of the response time, in microseconds.
    pub p99_us: f64,
    /// CPU time of the engine's thread per transaction, the reader's with it, in microseconds.
    pub cpu_us: f64,
    /// How often the reader has read all tables beside the writers.
    pub passes: f64,
    /// Records that it has read per second beside the writers.
    pub read_per_s: f64,
    /// Versions that were kept for it at the end.
    pub versions: f64,
    /// Their bytes.
    pub version_bytes: f64,
    /// Bytes of them in the undo space.
    pub undo_bytes: f64,
}

/// A reader under way.
struct Reader {
    stop: Cell<bool>,
    /// Records that it has read.
    records: Cell<u64>,
    /// What it has read first; all passes find the same.
    totals: RefCell<Option<Totals>>,
}

const WARM_UP: f64 = 0.2;

/// Runs Debit-Credit with and without a reader, in turn.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<SnapshotReaderReport, Failure> {
    let inside = arguments.data.join(FILE_NAME);
    let file = arguments.setup.config.clone().or_else(|| inside.is_file().then_some(inside));
    let configuration = Configuration::read(file.as_deref(), arguments.setup.hardware.as_deref())?;
    let store = opening::open(Opening::new(&arguments.data, configuration).seed(arguments.seed), progress)?;
    let scale = bank::prepare(&store, arguments.scale, progress)?;
    store.run(async |database| {
        bank::warm(database, &bank::WARMED, |page, pages| progress.step("reading", page, pages)).await
    })?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    // The first run does not count: the device is still busy with the files that were made just now.
    measure(&store, &scale, arguments, (false, 0), progress)?;
    for round in 0..arguments.rounds {
        for is_read in if round % 2 == 0 { [false, true] } else { [true, false] } {
            let figures = measure(&store, &scale, arguments, (is_read, without.len() + with.len() + 1), progress)?;
            if is_read { with.push(figures) } else { without.push(figures) }
        }
    }
    let pairs: Vec<(&ReaderFigures, &ReaderFigures)> = with.iter().zip(&without).collect();
    let report = SnapshotReaderReport {
        workload: format!(
            "debit-credit, scale {}, {} clients, one reader of all tables in one snapshot; {} rounds of runs of {} s",
            scale.branches, arguments.clients, arguments.rounds, arguments.seconds
        ),
        driver: store.executor().whole().description(),
        seed: arguments.seed,
        throughput_ratio: Ratio::of(&pairs, |run| run.throughput_per_s),
        p99_ratio: Ratio::of(&pairs, |run| run.p99_us),
        without: ReaderFigures::median(&without),
        with: ReaderFigures::median(&with),
    };
    super::session::close(store)?;
    Ok(report)
}

/// One run, number `index` of all.
fn measure(
    store: &Store,
    scale: &Scale,
    arguments: &Arguments,
    (is_read, index): (bool, usize),
    progress: &Progress,
) -> Result<ReaderFigures, Failure> {
    let length = |seconds: f64| Length::Time((seconds * 1e9) as u64);
    let load = Load::Closed { clients: arguments.clients };
    let measure = length(arguments.seconds);
    let plan = Plan { load, warm_up: length(WARM_UP * arguments.seconds), measure, seed: arguments.seed };
    let each_ms = (arguments.seconds * (1.0 + WARM_UP) * 1e3) as u64;
    let total_ms = each_ms * (2 * u64::from(arguments.rounds) + 1);
    let begin_ms = each_ms * index as u64;
    let mut span = Span::new(progress, "measuring", begin_ms..total_ms.max(begin_ms));
    let figures = store.run(async |database| {
        database.checkpoint().await?;
        let tables = Tables::of(database.catalog(), scale)?;
        let reader = Rc::new(Reader { stop: Cell::new(false), records: Cell::new(0), totals: RefCell::default() });
        let reading = is_read.then(|| {
            let work = read(database.clone(), tables.clone(), Rc::clone(&reader));
            database.executor().spawn(work)
        });
        let began = database.executor().now();
        // The reader goes on to the end of its pass when the writers have ended: that is not counted.
        let mut beside = (0, 0.0);
        let look = |measured: workload::Measured| {
            beside = (reader.records.get(), database.executor().now().since_ns(began) as f64 / 1e9);
            ReaderFigures::of(database, &measured)
        };
        let mut figures = workload::run::run(database, DebitCredit(tables), &plan, &mut span, look).await?;
        reader.stop.set(true);
        if let Some(reading) = reading {
            reading.join().await?;
        }
        let (records, seconds) = beside;
        let history = reader.totals.borrow().map_or(0, |totals| totals.transactions);
        let all = scale.accounts() + scale.tellers() + scale.branches + history;
        figures.passes = records as f64 / all as f64;
        figures.read_per_s = records as f64 / seconds;
        Ok(figures)
    })?;
    Ok(figures)
}

/// Reads all tables in one snapshot until told to stop; the sums must agree, and stay.
async fn read(database: Database, tables: Tables, reader: Rc<Reader>) -> entresol::Result<()> {
    let mut tx = database.begin_at(Isolation::Snapshot).await?;
    while !reader.stop.get() {
        let seen = || reader.records.set(reader.records.get() + 1);
        let found = debit_credit::totals_in(&mut tx, &tables, seen).await?;
        assert!(found.agree(), "the snapshot is of no moment between transactions: {found:?}");
        let first = *reader.totals.borrow_mut().get_or_insert(found);
        assert_eq!(first, found, "the snapshot has changed");
    }
    tx.commit().await
}

impl ReaderFigures {
    fn of(database: &Database, measured: &workload::Measured) -> ReaderFigures {
        let versions = database.versions();
        ReaderFigures {
            throughput_per_s: measured.transactions as f64 / (measured.elapsed_ns as f64 / 1e9),
            p99_us: measured.response.quantile_ns(0.99) as f64 / 1e3,
            cpu_us: measured.cpu_ns as f64 / 1e3 / measured.transactions as f64,
            versions: versions.versions as f64,
            version_bytes: versions.bytes as f64,
            undo_bytes: (versions.bytes - versions.memory_bytes) as f64,
            ..ReaderFigures::default()
        }
    }

    /// The medians of each figure.
    fn median(of: &[ReaderFigures]) -> ReaderFigures {
        let median = |figure: fn(&ReaderFigures) -> f64| median(of.iter().map(figure));
        ReaderFigures {
            throughput_per_s: median(|run| run.throughput_per_s),
            p99_us: median(|run| run.p99_us),
            cpu_us: median(|run| run.cpu_us),
            passes: median(|run| run.passes),
            read_per_s: median(|run| run.read_per_s),
            versions: median(|run| run.versions),
            version_bytes: median(|run| run.version_bytes),
            undo_bytes: median(|run| run.undo_bytes),
        }
    }
}

impl SnapshotReaderReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let tps = |figures: &ReaderFigures| format!("{}/s", grouped_decimal(figures.throughput_per_s, 0));
        let each = |figures: &ReaderFigures| {
            format!("p99 {} us, CPU {:.2} us each", grouped_decimal(figures.p99_us, 0), figures.cpu_us)
        };
        let [throughput, throughputs] = self.throughput_ratio.cells();
        let [response, responses] = self.p99_ratio.cells();
        let with = &self.with;
        let rows = [
            fact("without", tps(&self.without), each(&self.without)),
            fact("with", tps(with), each(with)),
            fact("throughput", throughput, format!("with over without: {throughputs}")),
            fact("p99", response, format!("with over without: {responses}")),
            fact(
                "reader",
                format!("{:.1} passes", with.passes),
                format!("{} records/s beside the writers", grouped(with.read_per_s as u64)),
            ),
            fact(
                "versions",
                grouped(with.versions as u64),
                format!("{} at the end", format_size(with.version_bytes as u64)),
            ),
            fact("", format_size(with.undo_bytes as u64), "in the undo space"),
        ];
        let heading = wrapped(&format!("{}\n{}; seed {}", self.workload, self.driver, self.seed));
        format!("{heading}\n\n{}", facts(rows))
    }
}
