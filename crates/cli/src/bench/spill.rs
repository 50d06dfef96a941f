//! What benchmarks of temporary space share: how much, with what memory, where; and what they report.

use super::bandwidth::{self, Rates};
use super::terms::Setup;
use super::{in_bytes, positive_count, size};
use crate::progress::Progress;
use crate::report::SHARES;
use crate::table::{fact, facts, wrapped};
use crate::{Failure, opening};
use base::units::{Size, format_duration_ns, format_size, grouped, grouped_decimal};
use clap::Args;
use engine::temp;
use entresol::configuration::{Configuration, FILE_NAME};
use entresol::{Database, Opening, Store};
use executor::WholeExecutor;
use real_driver::process_cpu_ns;
use serde::Serialize;
use std::path::PathBuf;

/// How much, with what memory, and where.
#[derive(Args, Clone, Debug)]
pub struct SpillTerms {
    /// Bytes of rows
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub size: Size,
    /// How many rows, in place of bytes
    #[arg(long, value_name = "N", value_parser = positive_count, conflicts_with = "size")]
    pub rows: Option<u64>,
    /// Bytes of a row, of which 8 are its key
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub row_size: u32,
    /// Memory for the operation
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub memory: Size,
    /// The unit of input and output [default: as configured]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub cluster_size: Option<Size>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub setup: Setup,
}

/// What an operator is given.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// How many rows in all.
    pub rows: u64,
    /// Bytes of a row, of which 8 are its key.
    pub row_size: u32,
    /// Memory for the operation, in bytes.
    pub memory: u64,
    /// Seeds the rows.
    pub seed: u64,
}

/// The log of a database that nothing is logged in, and its buffer.
const LOG: u64 = 4 << 20;
const BUFFER: u64 = 16 << 20;
/// As much is written and read to learn how fast the device is, at most.
const PROBE_MAX: u64 = 1 << 30;

impl SpillTerms {
    /// How many rows that makes.
    pub fn rows(&self, configuration: &Configuration) -> u64 {
        self.rows.unwrap_or_else(|| in_bytes(self.size, configuration) / u64::from(self.row_size)).max(1)
    }

    /// What the operator is given.
    pub fn input(&self, configuration: &Configuration) -> Input {
        let (rows, memory) = (self.rows(configuration), in_bytes(self.memory, configuration));
        Input { rows, row_size: self.row_size, memory, seed: self.seed }
    }

    /// Opens the database in the directory `data`, creating it if it is missing.
    pub fn open(&self, data: &PathBuf, progress: &Progress) -> Result<Store, Failure> {
        let inside = data.join(FILE_NAME);
        let file = self.setup.config.clone().or_else(|| inside.is_file().then_some(inside));
        let mut configuration = self.setup.read(file.as_deref())?;
        if file.is_none() {
            configuration.log.size = LOG;
            configuration.buffer.size = BUFFER;
            configuration.checkpoint.log_bytes = None;
        }
        if let Some(cluster_size) = self.cluster_size {
            configuration.temp.cluster_size = u32::try_from(in_bytes(cluster_size, &configuration)).unwrap_or(u32::MAX);
        }
        opening::open(Opening::new(data, configuration).seed(self.seed), progress)
    }
}

/// What an operator did, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spilled {
    /// Runs or partitions that were written.
    pub runs: u64,
    /// How often a row was merged or partitioned at most.
    pub passes: u32,
    /// Bytes written to temporary space; as many were read again, or more.
    pub spilled_bytes: u64,
}

/// What an operation on temporary space took. The JSON has the fields' names as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpillReport {
    /// The operation, for people.
    pub operation: String,
    /// The driver's description of itself.
    pub driver: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Whether the time is a described machine's.
    pub is_virtual: bool,
    /// Rows that went in.
    pub rows: u64,
    /// Rows that came out; they were verified.
    pub answers: u64,
    /// Bytes of rows that went in.
    pub bytes: u64,
    /// Memory allowed, in bytes.
    pub memory_bytes: u64,
    /// Bytes of a cluster.
    pub cluster_size: u64,
    /// What it took.
    #[serde(flatten)]
    pub took: Took,
    /// After what time shares of the answers had been given, at [`SHARES`], in microseconds.
    #[serde(skip)]
    pub distribution_us: Vec<f64>,
    /// CPU time of all threads; none where the time is a described machine's.
    pub cpu_seconds: Option<f64>,
    /// Rows that went in, by time.
    pub rows_per_s: f64,
    /// What the operator says.
    #[serde(flatten)]
    pub spilled: Spilled,
    /// Bytes per second of large writes to the device, one after the other.
    pub device_write_bytes_per_s: f64,
    /// The same of reads.
    pub device_read_bytes_per_s: f64,
    /// The time of writing and of reading the spilled bytes once at these rates.
    pub device_seconds: f64,
    /// `seconds` over `device_seconds`; none if nothing was spilled.
    pub ratio: Option<f64>,
}

/// What an operation took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Took {
    /// From the first row asked for to the last row given.
    pub seconds: f64,
    /// To the first row given.
    pub first_seconds: f64,
    /// Clusters written.
    pub writes: u64,
    /// Clusters read.
    pub reads: u64,
}

/// A run of an operation.
pub struct Watch {
    began: u64,
    cpu_ns: u64,
    first_ns: Option<u64>,
    /// How many rows had been given when, every few thousand.
    given: Vec<(u64, u64)>,
    before: temp::TempStatistics,
}

impl Watch {
    /// The operation begins.
    pub fn start(database: &Database) -> Watch {
        let before = database.temp_statistics();
        Watch {
            began: database.executor().now().ns(),
            cpu_ns: process_cpu_ns(),
            first_ns: None,
            given: Vec::new(),
            before,
        }
    }

    /// This number of rows has been given before this one.
    pub fn row(&mut self, database: &Database, count: u64) {
        let now = database.executor().now().ns() - self.began;
        self.first_ns.get_or_insert(now);
        self.given.push((count, now));
    }

    /// When these shares of all rows had been given, in microseconds.
    fn distribution_us(&self, (answers, seconds): (u64, f64)) -> Vec<f64> {
        let time = |share: f64| {
            let count = (share * answers as f64) as u64;
            let at = self.given.partition_point(|(given, _)| *given < count);
            self.given.get(at).map_or(seconds * 1e6, |(_, ns)| *ns as f64 / 1e3)
        };
        SHARES.map(time).to_vec()
    }

    /// What the operation took up to now.
    pub fn took(&self, database: &Database) -> Took {
        let seconds = (database.executor().now().ns() - self.began) as f64 / 1e9;
        let after = database.temp_statistics();
        Took {
            seconds,
            first_seconds: self.first_ns.map_or(seconds, |ns| ns as f64 / 1e9),
            writes: after.writes - self.before.writes,
            reads: after.reads - self.before.reads,
        }
    }

    /// The operation has ended. Measures the device beside it.
    pub fn report(
        self,
        store: &Store,
        terms: &SpillTerms,
        (operation, answers): (String, u64),
        spilled: Spilled,
        progress: &Progress,
    ) -> Result<SpillReport, Failure> {
        let database = store.database();
        let took = self.took(database);
        let cpu_seconds = (!store.is_virtual()).then(|| (process_cpu_ns() - self.cpu_ns) as f64 / 1e9);
        let configuration = store.configuration();
        let rows = terms.rows(configuration);
        progress.phase("measuring the device", 0);
        let probed = spilled.spilled_bytes.clamp(bandwidth::UNIT, PROBE_MAX);
        let Rates { write, read } = bandwidth::rates(store.executor().whole(), &configuration.temp.device, probed)?;
        let bytes = spilled.spilled_bytes as f64;
        let distribution_us = self.distribution_us((answers, took.seconds));
        let device_seconds = bytes / write + bytes / read;
        Ok(SpillReport {
            operation,
            driver: database.executor().whole().description(),
            seed: terms.seed,
            is_virtual: store.is_virtual(),
            rows,
            answers,
            bytes: rows * u64::from(terms.row_size),
            memory_bytes: in_bytes(terms.memory, configuration),
            cluster_size: configuration.temp.cluster_size.into(),
            took,
            distribution_us,
            cpu_seconds,
            rows_per_s: rows as f64 / took.seconds,
            device_write_bytes_per_s: write,
            device_read_bytes_per_s: read,
            device_seconds,
            ratio: (device_seconds > 0.0).then(|| took.seconds / device_seconds),
            spilled,
        })
    }
}

impl SpillReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let seconds = |seconds: f64| format_duration_ns(seconds * 1e9);
        let rate = |bytes: f64| format!("{}/s", format_size(bytes as u64));
        let Spilled { runs, passes, spilled_bytes } = self.spilled;
        let Took { seconds: whole, first_seconds, writes, reads } = self.took;
        let ratio = self.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let mut rows = vec![
            fact("time", seconds(whole), format!("the first row after {}", seconds(first_seconds))),
            fact("rows", grouped(self.rows), format!("{}/s", grouped_decimal(self.rows_per_s, 0))),
            fact("answers", grouped(self.answers), "verified"),
            fact("spilled", format_size(spilled_bytes), format!("{} runs, {passes} passes", grouped(runs))),
            fact("clusters", grouped(writes), "written"),
            fact("", grouped(reads), "read"),
            fact("device", rate(self.device_write_bytes_per_s), "written in sequence"),
            fact("", rate(self.device_read_bytes_per_s), "read in sequence"),
            fact("", seconds(self.device_seconds), "for writing and reading what was spilled"),
            fact("ratio", ratio, "time over that of the device"),
        ];
        if let Some(cpu) = self.cpu_seconds {
            rows.insert(1, fact("CPU", seconds(cpu), "of all threads"));
        }
        let heading = wrapped(&format!(
            "{}; {} of memory, clusters of {}\n{}; seed {}",
            self.operation,
            format_size(self.memory_bytes),
            format_size(self.cluster_size),
            self.driver,
            self.seed
        ));
        format!("{heading}\n\n{}", facts(rows))
    }
}
