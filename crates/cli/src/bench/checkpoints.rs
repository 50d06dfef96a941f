//! What checkpoints of memory-resident sets cost: Debit-Credit with sweeps of each strategy beside Debit-Credit without any, in
//! alternating runs.

use super::meter::Meter;
use super::{bank, positive, size};
use crate::progress::Progress;
use crate::table::{table, wrapped};
use crate::{Failure, opening};
use base::units::{format_size, grouped_decimal};
use clap::Args;
use entresol::configuration::{Checkpoint, Choice, Configuration, Strategy};
use entresol::{Database, Opening};
use serde::Serialize;
use std::path::PathBuf;
use workload::debit_credit::{DebitCredit, Tables};
use workload::{Length, Load, Plan};

/// Compares throughput and response with checkpoints of sets to those without any
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench checkpoints\n  \
    entresol bench checkpoints --strategies calc,tccou --clients 512 --rounds 5 --json")]
pub struct Arguments {
    /// Where the database is, created if missing
    #[arg(long, value_name = "DIR", default_value = "checkpoints.data")]
    pub data: PathBuf,
    /// Branches of 100,000 accounts, in sets [default: as loaded, or 10]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clients: u32,
    /// Run back to back and bounded
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "fuzzy,acbw,tcbw,accou,tccou,calc",
        value_parser = strategy
    )]
    pub strategies: Vec<(String, Strategy)>,
    /// How much log the interval allows
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub bound: u64,
    /// Segments are written themselves, not copies of them
    #[arg(long)]
    pub no_spool: bool,
    /// Commits do not wait for the disk
    #[arg(long)]
    pub not_durable: bool,
    /// How long each run measures
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = positive)]
    pub seconds: f64,
    /// How often each is run, each time beside one without
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Prints the report as JSON
    #[arg(long)]
    pub json: bool,
}

fn strategy(text: &str) -> Result<(String, Strategy), String> {
    let found = Strategy::WORDS.iter().find(|(word, _)| *word == text);
    let known = || Strategy::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found.map(|(word, strategy)| ((*word).to_owned(), *strategy)).ok_or_else(|| format!("known are {}", known()))
}

/// What checkpoints cost. The JSON has the fields' names as keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointsReport {
    /// The workload, for people.
    pub workload: String,
    /// The driver's description of itself.
    pub driver: String,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Bytes of memory in segments.
    pub segment_bytes: u64,
    /// The median throughput without checkpoints.
    pub throughput_per_s: f64,
    /// The median of the 99th percentiles of the response time without checkpoints, in microseconds.
    pub p99_us: f64,
    /// Each strategy at each interval.
    pub runs: Vec<Cost>,
}

/// What one strategy costs; medians over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The strategy, as the configuration names it.
    pub strategy: String,
    /// The least time from one sweep to the next, in seconds; 0: back to back.
    pub interval_seconds: f64,
    /// Throughput over that of the run without checkpoints just before.
    pub throughput_ratio: f64,
    /// The 99th percentile of the response time over the same.
    pub p99_ratio: f64,
    /// Transactions per second.
    pub throughput_per_s: f64,
    /// In microseconds.
    pub p99_us: f64,
    /// Sweeps completed per second.
    pub sweeps_per_s: f64,
    /// Bytes of segments written per second.
    pub written_bytes_per_s: f64,
    /// The most log that was kept, in bytes, when the run ended.
    pub log_kept_bytes: f64,
    /// Transactions rolled back for touching both colours, per committed one.
    pub restarts_by_colour: f64,
    /// References that waited for a segment under way, per transaction.
    pub segment_waits: f64,
}

/// One run.
#[derive(Clone, Copy, Default)]
struct Run {
    throughput: f64,
    p99_us: f64,
    sweeps: f64,
    written: f64,
    logged: f64,
    kept: f64,
    restarts: f64,
    waits: f64,
}

/// How checkpoints are taken in a run.
#[derive(Clone, Copy)]
struct Manner {
    strategy: Strategy,
    interval_ns: Option<u64>,
}

/// Loads the database if it is new and runs every strategy beside runs without checkpoints.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<CheckpointsReport, Failure> {
    let none = Manner { strategy: Strategy::default(), interval_ns: None };
    let (first, driver, scale, segment_bytes) = {
        let store = opening::open(opening_of(arguments, none, arguments.seconds)?, progress)?;
        let scale = bank::prepare(&store, arguments.scale, progress)?;
        let driver = store.executor().description();
        let bytes = store.database().segment_bytes();
        store.close()?;
        (measure(arguments, none, arguments.seconds, progress)?, driver, scale, bytes)
    };
    // Log is kept from the beginning of the sweep before the last: twice the interval.
    let bounded_s = (arguments.bound as f64 / 2.0 / first.logged.max(1.0)).min(86_400.0);
    let mut runs = Vec::new();
    let mut without = vec![first];
    for (name, strategy) in &arguments.strategies {
        for interval_s in [0.0, bounded_s] {
            let manner = Manner { strategy: *strategy, interval_ns: Some((interval_s * 1e9) as u64) };
            // Whole intervals, so that no run has a sweep more or less than its share.
            let seconds =
                if interval_s > 0.0 { (arguments.seconds / interval_s).ceil() * interval_s } else { arguments.seconds };
            let mut rounds = Vec::new();
            for _ in 0..arguments.rounds {
                let plain = measure(arguments, none, arguments.seconds, progress)?;
                without.push(plain);
                rounds.push((measure(arguments, manner, seconds, progress)?, plain));
            }
            runs.push(Cost::of(name, interval_s, &rounds));
        }
    }
    let durable = if arguments.not_durable { "not durable" } else { "durable" };
    let spool = if arguments.no_spool { "no spooling" } else { "spooling" };
    Ok(CheckpointsReport {
        workload: format!(
            "debit-credit on sets, scale {}, {} clients, {durable}, {spool}, medians of {} runs of {} s",
            scale.branches, arguments.clients, arguments.rounds, arguments.seconds
        ),
        driver,
        seed: arguments.seed,
        segment_bytes,
        throughput_per_s: median(without.iter().map(|run| run.throughput)),
        p99_us: median(without.iter().map(|run| run.p99_us)),
        runs,
    })
}

fn opening_of(arguments: &Arguments, manner: Manner, seconds: f64) -> Result<Opening, Failure> {
    let mut configuration = Configuration::read(None, None)?;
    bank::in_memory(&mut configuration);
    configuration.buffer.size = 64 << 20;
    // Room for all that runs without checkpoints log: 100 MB/s, and what a log keeps in reserve.
    let logged = (seconds * 1.5 * 100e6) as u64;
    configuration.log.size = (3 * arguments.bound).max(logged).next_multiple_of(1 << 20);
    configuration.log.durable = !arguments.not_durable;
    configuration.checkpoint = Checkpoint {
        interval_ns: None,
        log_bytes: None,
        sets: manner.strategy,
        spool: !arguments.no_spool,
        sweep_interval_ns: manner.interval_ns,
        ..configuration.checkpoint
    };
    Ok(Opening::new(&arguments.data, configuration).seed(arguments.seed))
}

/// Opens the database for one run, and closes it with a checkpoint, so that the next begins alike.
fn measure(arguments: &Arguments, manner: Manner, seconds: f64, progress: &Progress) -> Result<Run, Failure> {
    let store = opening::open(opening_of(arguments, manner, seconds)?, progress)?;
    let scale = bank::prepare(&store, arguments.scale, progress)?;
    let measure = Length::Time((seconds * 1e9) as u64);
    let warm_up = Length::Time((seconds.min(arguments.seconds) * 2e8) as u64);
    let plan = Plan { load: Load::Closed { clients: arguments.clients }, warm_up, measure, seed: arguments.seed };
    let mut meter = Meter::new(progress, &plan, false);
    let run = store.run(async |database| {
        let tables = Tables::of(database, &scale)?;
        let look = |measured: workload::Measured| Run::of(database, &measured);
        workload::run::run(database, DebitCredit(tables), &plan, &mut meter, look).await
    })?;
    store.close()?;
    Ok(run)
}

impl Run {
    fn of(database: &Database, measured: &workload::Measured) -> Run {
        let seconds = measured.elapsed_ns as f64 / 1e9;
        let (statistics, transactions) = (database.statistics(), measured.transactions.max(1) as f64);
        let segments = statistics.segments_written.get() as f64;
        Run {
            throughput: measured.transactions as f64 / seconds,
            p99_us: measured.response.quantile_ns(0.99) as f64 / 1e3,
            sweeps: statistics.sweeps.get() as f64 / seconds,
            written: segments * engine::set::SEGMENT_SIZE as f64 / seconds,
            logged: database.log().statistics().bytes_written as f64 / seconds,
            kept: database.log().used() as f64,
            restarts: statistics.restarts_by_colour.get() as f64 / transactions,
            waits: statistics.segment_waits.get() as f64 / transactions,
        }
    }
}

impl Cost {
    /// Of runs, each with the run without checkpoints before it.
    fn of(name: &str, interval_seconds: f64, rounds: &[(Run, Run)]) -> Cost {
        let of = |figure: fn(&Run) -> f64| median(rounds.iter().map(|(run, _)| figure(run)));
        let ratio =
            |figure: fn(&Run) -> f64| median(rounds.iter().map(|(run, plain)| figure(run) / figure(plain).max(1e-9)));
        Cost {
            strategy: name.to_owned(),
            interval_seconds,
            throughput_ratio: ratio(|run| run.throughput),
            p99_ratio: ratio(|run| run.p99_us),
            throughput_per_s: of(|run| run.throughput),
            p99_us: of(|run| run.p99_us),
            sweeps_per_s: of(|run| run.sweeps),
            written_bytes_per_s: of(|run| run.written),
            log_kept_bytes: of(|run| run.kept),
            restarts_by_colour: of(|run| run.restarts),
            segment_waits: of(|run| run.waits),
        }
    }
}

/// The middle one, of an even number the mean of the two.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 0.0,
        count => (figures[(count - 1) / 2] + figures[count / 2]) / 2.0,
    }
}

impl CheckpointsReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let rate = |bytes: f64| format!("{}/s", format_size(bytes as u64));
        let row = |cost: &Cost| {
            let interval = match cost.interval_seconds {
                0.0 => "back to back".to_owned(),
                seconds => format!("{seconds:.1} s"),
            };
            vec![
                cost.strategy.clone(),
                interval,
                format!("{:.3}", cost.throughput_ratio),
                format!("{:.2}", cost.p99_ratio),
                grouped_decimal(cost.throughput_per_s, 0),
                grouped_decimal(cost.p99_us, 0),
                format!("{:.2}", cost.sweeps_per_s),
                rate(cost.written_bytes_per_s),
                format!("{:.4}", cost.restarts_by_colour),
                format!("{:.4}", cost.segment_waits),
            ]
        };
        let header =
            ["strategy", "interval", "tps", "p99", "tps", "p99 us", "sweeps/s", "written", "restarts", "waits"];
        let heading = wrapped(&format!(
            "{}\n{}; seed {}; {} in segments\nwithout checkpoints: {} transactions/s, p99 {} us; beside them, as ratios:",
            self.workload,
            self.driver,
            self.seed,
            format_size(self.segment_bytes),
            grouped_decimal(self.throughput_per_s, 0),
            grouped_decimal(self.p99_us, 0)
        ));
        format!("{heading}\n\n{}", table(&header, 2, self.runs.iter().map(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn strategies_are_named_as_in_the_configuration() {
        assert_eq!(strategy("calc"), Ok(("calc".to_owned(), Strategy::StableVersions)));
        assert!(strategy("sharp").unwrap_err().contains("tccou"));
    }
}
