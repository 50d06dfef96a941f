//! Restart after a crash: how fast the log is read and repeated, beside how fast its device could be read.

use super::{bandwidth, bank, in_bytes, size};
use crate::progress::Progress;
use crate::table::{fact, facts, wrapped};
use crate::{Failure, opening};
use base::Random;
use base::time::SECOND_NS;
use base::units::{Size, format_duration_ns, format_size, grouped, grouped_decimal};
use clap::Args;
use engine::Internals;
use entresol::configuration::{Checkpoint, Configuration};
use entresol::{Database, Opening};
use executor::WholeExecutor;
use real_driver::{process_cpu_ns, wall_ns};
use serde::Serialize;
use std::path::{Path, PathBuf};
use workload::debit_credit::{ACCOUNT, DebitCredit, Parameters, Tables};
use workload::{Length, Load, Plan, Unwatched};

/// Crashes Debit-Credit midway without checkpoints and times the restart
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench recovery\n  \
    entresol bench recovery --scale 50 --log 1GiB --json\n  \
    entresol bench recovery --moments --data moments.data\n  \
    entresol bench recovery --sets --scale 300 --log 1GiB --data sets.data\n  \
    entresol bench recovery --sets --again --backed 6GiB --data sets.data --json")]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "recovery.data")]
    pub data: PathBuf,
    /// Branches of 10 tellers and 100,000 accounts [default: as loaded, else 10]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// How much log the restart finds
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub log: Size,
    /// Only restarts what an earlier run has left in DIR
    #[arg(long, conflicts_with = "scale")]
    pub again: bool,
    /// Touches this much memory first: a hypervisor may provide it slowly
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub backed: Option<Size>,
    /// Partitions are memory-resident sets, not pages
    #[arg(long)]
    pub sets: bool,
    /// Keeps the moments of the last hour readable, also over the restart
    #[arg(long, conflicts_with = "sets")]
    pub moments: bool,
    /// Memory for pages
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub buffer: Size,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// What a restart had to do and how long it took. The JSON has the fields' names as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecoveryReport {
    /// The workload that crashed, for people.
    pub workload: String,
    /// The driver's description of itself.
    pub driver: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Bytes of the backup of memory-resident sets.
    pub backup_bytes: u64,
    /// The time of loading them, index included.
    pub load_seconds: f64,
    /// Log records read.
    pub records: u64,
    /// Transactions that had not ended.
    pub unfinished: u64,
    /// The time of reading the log and repeating history.
    pub redo_seconds: f64,
    /// The time of taking back what was not committed.
    pub undo_seconds: f64,
    /// Bytes of log read once more so that moments before the restart can be read.
    pub moments_log_bytes: u64,
    /// The time of that.
    pub moments_seconds: f64,
    /// The time from the start of the opening (with `--again`, of the process) until a first transaction had been committed.
    pub open_seconds: f64,
    /// The CPU time of all threads in it.
    pub open_cpu_seconds: f64,
    /// Log records redone per second.
    pub records_per_s: f64,
    /// Bytes of log redone per second.
    pub log_bytes_per_s: f64,
    /// Bytes per second of large direct reads of the log's file, one after the other.
    pub sequential_read_bytes_per_s: f64,
    /// The time of such reads of the log and of the backup's files.
    pub sequential_read_seconds: f64,
    /// The time in which the system then gave as much new memory as the backup takes, touched on every core.
    pub memory_seconds: f64,
    /// `open_seconds` over `sequential_read_seconds`.
    pub open_ratio: f64,
    /// `log_bytes_per_s` over `sequential_read_bytes_per_s`.
    pub bandwidth_ratio: f64,
}

/// Clients while the log is made.
const CLIENTS: u32 = 16;
/// Transactions between two looks at the log's length.
const STEP: u64 = 10_000;
/// For how long moments are kept, where they are, in nanoseconds.
const RETENTION_NS: u64 = 3_600 * SECOND_NS;
/// Transfers of the transaction that is under way when the crash comes.
const UNFINISHED: usize = 100;

impl Arguments {
    fn log(&self) -> u64 {
        in_bytes(self.log, &Configuration::default())
    }
}

/// Crashes Debit-Credit, restarts, measures what a restart is held against.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<RecoveryReport, Failure> {
    let mut began = (wall_ns(), process_cpu_ns());
    let mut configuration = Configuration::read(None, None)?;
    configuration.buffer.size = in_bytes(arguments.buffer, &configuration);
    if arguments.sets {
        bank::in_memory(&mut configuration);
        // No page is of interest, and the system takes its time to give memory out.
        configuration.buffer.size = configuration.buffer.size.min(64 << 20);
    }
    // Half as much again as is asked for, because a log keeps a quarter of its size in reserve.
    configuration.log.size = (arguments.log() * 3 / 2).next_multiple_of(1 << 20).max(8 << 20);
    configuration.checkpoint = Checkpoint { interval_ns: None, log_bytes: None, ..configuration.checkpoint };
    // Whether commits waited for the disk makes no difference to the log that a restart finds; only filling it is quicker.
    configuration.log.durable = false;
    configuration.undo.retention_ns = if arguments.moments { RETENTION_NS } else { 0 };
    let opening = Opening::new(&arguments.data, configuration).seed(arguments.seed);
    if !arguments.again {
        crash(arguments, &opening, progress)?;
        began = (wall_ns(), process_cpu_ns());
    }
    if let Some(size) = arguments.backed {
        progress.phase("having memory backed", 0);
        bandwidth::populate(in_bytes(size, &Configuration::default()))?;
        began = (wall_ns(), process_cpu_ns());
    }
    progress.phase("restarting", 0);
    let store = opening::watched(opening.nodes(1), progress).open()?;
    let scale = bank::prepare(&store, None, progress)?;
    let mut random = Random::stream(arguments.seed, "first");
    let first = Parameters::draw(&scale, &mut random);
    store.run(async |database| {
        let tables = Tables::of(database.catalog(), &scale)?;
        database.transaction(async |tx| tables.run(tx, &first).await).await
    })?;
    let open_seconds = (wall_ns() - began.0) as f64 / 1e9;
    let open_cpu_seconds = (process_cpu_ns() - began.1) as f64 / 1e9;
    let report = store.database().recovery();
    if report.log_bytes == 0 {
        let data = arguments.data.display();
        return Err(
            format!("the database in '{data}' was closed, nothing is to be redone; run it without --again").into()
        );
    }
    let settings = store.database().settings();
    let (name, driver) = (settings.log.file.clone(), store.executor().whole().description());
    progress.phase("measuring the memory", 0);
    let memory_seconds = bandwidth::populate(report.backup_bytes)?;
    progress.phase("verifying", 0);
    bank::agreed(&store.run(async |database| bank::totals(database, &scale).await)?)?;
    // Another crash: what was restarted from stays as it was.
    drop(store);
    progress.phase("measuring the device", 0);
    let directory = Path::new(&arguments.data);
    let bandwidth = bandwidth::sequential_read(directory, &name, report.log_bytes)?;
    let mut sequential_read_seconds = report.log_bytes as f64 / bandwidth;
    if report.backup_bytes > 0 {
        // Both copies of the accounts are nearly all of the backup.
        let name = format!("{ACCOUNT}.backup-0");
        let rate = bandwidth::sequential_read(directory, &name, report.backup_bytes / 2)?;
        sequential_read_seconds += report.backup_bytes as f64 / rate;
    }
    let redo_seconds = report.redo_ns as f64 / 1e9;
    let log_bytes_per_s = report.log_bytes as f64 / redo_seconds;
    Ok(RecoveryReport {
        workload: format!("restart after debit-credit, scale {}, {CLIENTS} clients", scale.branches),
        driver,
        seed: arguments.seed,
        log_bytes: report.log_bytes,
        backup_bytes: report.backup_bytes,
        load_seconds: report.load_ns as f64 / 1e9,
        records: report.records,
        unfinished: report.unfinished,
        redo_seconds,
        undo_seconds: report.undo_ns as f64 / 1e9,
        moments_log_bytes: report.moments_log_bytes,
        moments_seconds: report.moments_ns as f64 / 1e9,
        open_seconds,
        open_cpu_seconds,
        records_per_s: report.records as f64 / redo_seconds,
        log_bytes_per_s,
        sequential_read_bytes_per_s: bandwidth,
        sequential_read_seconds,
        memory_seconds,
        open_ratio: open_seconds / sequential_read_seconds,
        bandwidth_ratio: log_bytes_per_s / bandwidth,
    })
}

/// Loads the database if it is new, fills the log and crashes.
fn crash(arguments: &Arguments, opening: &Opening, progress: &Progress) -> Result<(), Failure> {
    let store = opening::open(opening.clone(), progress)?;
    let scale = bank::prepare(&store, arguments.scale, progress)?;
    let capacity = store.database().log().capacity();
    if capacity / 4 * 3 < arguments.log() + arguments.log() / 16 {
        let (log, capacity) = (format_size(arguments.log()), format_size(capacity));
        return Err(format!("{log} do not fit the database's log of {capacity}; name another --data").into());
    }
    let tables = Tables::of(store.database().catalog(), &scale)?;
    store.run(async |database| {
        bank::warm(database, &bank::WARMED, |page, pages| progress.step("reading", page, pages)).await
    })?;
    // So that the restart finds as much log as is asked for, and the rest in the backup.
    store.run(async |database| database.checkpoint().await)?;
    store.run(async |database| fill(database, &tables, arguments, progress).await)?;
    // Nothing is written back, no checkpoint is taken.
    drop(store);
    Ok(())
}

/// Runs Debit-Credit until the log is as long as asked for, with a transaction under way at its end.
async fn fill(
    database: &Database,
    tables: &Tables,
    arguments: &Arguments,
    progress: &Progress,
) -> entresol::Result<()> {
    let (log, began) = (database.log(), database.log().end().0);
    let mut seed = arguments.seed;
    while log.end().0 - began < arguments.log() {
        progress.step("filling the log", log.end().0 - began, arguments.log());
        let load = Load::Closed { clients: CLIENTS };
        let measure = Length::Transactions(STEP.min(arguments.log() / 4096 + 1));
        let plan = Plan { load, warm_up: Length::Transactions(0), measure, seed };
        workload::run::run(database, DebitCredit(tables.clone()), &plan, &mut Unwatched, |_| ()).await?;
        seed = seed.wrapping_add(1);
    }
    let mut random = Random::stream(arguments.seed, "unfinished");
    let mut tx = database.begin().await?;
    for _ in 0..UNFINISHED {
        tables.run(&mut tx, &Parameters::draw(tables.scale(), &mut random)).await?;
    }
    // It stays under way in a task of its own, which goes with the store.
    database.executor().spawn(async move {
        let _under_way = tx;
        std::future::pending::<()>().await;
    });
    log.flush(log.end()).await
}

impl RecoveryReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let seconds = |seconds: f64| format_duration_ns(seconds * 1e9);
        let rate = |bytes: f64| format!("{}/s", format_size(bytes as u64));
        let moments = (self.moments_log_bytes > 0).then(|| {
            fact("moments", seconds(self.moments_seconds), format!("{} of log", format_size(self.moments_log_bytes)))
        });
        let rows = [
            fact("log", format_size(self.log_bytes), format!("{} records", grouped(self.records))),
            fact("backup", format_size(self.backup_bytes), format!("loaded in {}", seconds(self.load_seconds))),
            fact("redo", seconds(self.redo_seconds), format!("{} records/s", grouped_decimal(self.records_per_s, 0))),
            fact("", rate(self.log_bytes_per_s), "of log"),
            fact("log device", rate(self.sequential_read_bytes_per_s), "read in sequence"),
            fact("ratio", format!("{:.2}", self.bandwidth_ratio), "redo over the log device"),
            fact("undo", seconds(self.undo_seconds), format!("{} transactions", grouped(self.unfinished))),
        ];
        let rest = [
            fact("opening", seconds(self.open_seconds), "up to the end of a first transaction"),
            fact("", seconds(self.open_cpu_seconds), "of CPU time"),
            fact("reading", seconds(self.sequential_read_seconds), "log and backup in sequence"),
            fact("ratio", format!("{:.2}", self.open_ratio), "opening over reading"),
            fact("memory", seconds(self.memory_seconds), "as much as the backup, new from the system"),
        ];
        let heading = wrapped(&format!("{}\n{}; seed {}", self.workload, self.driver, self.seed));
        format!("{heading}\n\n{}", facts(rows.into_iter().chain(moments).chain(rest)))
    }
}
