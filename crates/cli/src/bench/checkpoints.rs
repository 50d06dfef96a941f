//! What checkpoints of memory-resident sets cost: Debit-Credit with sweeps of each strategy beside Debit-Credit without any, in
//! rounds that run everything once.

use super::meter::Span;
use super::ratio::{Ratio, median};
use super::{bank, in_bytes, positive, size};
use crate::files::Directory;
use crate::progress::Progress;
use crate::table::{table, wrapped};
use crate::{Failure, opening};
use base::units::{Size, format_size, grouped_decimal};
use clap::Args;
use engine::Internals;
use entresol::configuration::{Checkpoint, Choice, Configuration, Logging, Strategy};
use entresol::{Database, Opening};
use executor::WholeExecutor;
use serde::Serialize;
use std::path::{Path, PathBuf};
use workload::debit_credit::{DebitCredit, Scale, Tables};
use workload::{Length, Load, Plan};

/// Compares throughput and response with checkpoints of sets to those without any
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    entresol bench checkpoints\n  \
    entresol bench checkpoints --strategies calc,tccou --log toper\n  \
    entresol bench checkpoints --strategies calc,tccou --clients 512 --rounds 5 --json")]
pub struct Arguments {
    /// Directory of each round's database
    #[arg(long, value_name = "DIR", default_value = "checkpoints.data")]
    pub data: PathBuf,
    /// Branches of 100,000 accounts, in sets
    #[arg(
        long, value_name = "BRANCHES", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=40_000)
    )]
    pub scale: u32,
    /// Clients, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub clients: u32,
    /// Run back to back and bounded [default: all that the log goes with]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = named::<Strategy>)]
    pub strategies: Vec<Strategy>,
    /// The log of sets: value, aoper, toper
    #[arg(long, value_name = "NAME", default_value = "value", value_parser = named::<Logging>)]
    pub log: Logging,
    /// Configuration file, but for what the options say
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Log that the longer interval, 8 s at most, allows
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size)]
    pub bound: Size,
    /// Segments are written themselves, not copies of them
    #[arg(long)]
    pub no_spool: bool,
    /// Commits do not wait for the disk
    #[arg(long)]
    pub not_durable: bool,
    /// Length of a run; of a bounded one, whole intervals
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = positive)]
    pub seconds: f64,
    /// How often each is run
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Prints the report as JSON, with every run
    #[arg(long)]
    pub json: bool,
}

impl Arguments {
    /// What is run.
    ///
    /// # Errors
    /// A strategy was asked for that does not go with the log.
    fn strategies(&self) -> Result<Vec<Strategy>, Failure> {
        if self.strategies.is_empty() {
            let all = Strategy::WORDS.iter().map(|(_, strategy)| *strategy);
            return Ok(all.filter(|strategy| strategy.check(self.log).is_ok()).collect());
        }
        for strategy in &self.strategies {
            let words = |why| format!("{} does not go with --log {}: {why}", strategy.word(), self.log.word());
            strategy.check(self.log).map_err(words)?;
        }
        Ok(self.strategies.clone())
    }
}

/// What a word of the configuration means.
fn named<T: Choice>(text: &str) -> Result<T, String> {
    let known = || T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let found = T::WORDS.iter().find(|(word, _)| *word == text);
    found.map(|(_, choice)| *choice).ok_or_else(|| format!("known are {}", known()))
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
    /// The log that the longer interval allows, in bytes.
    pub bound_bytes: u64,
    /// Bytes of memory in segments.
    pub segment_bytes: u64,
    /// The median throughput without checkpoints.
    pub throughput_per_s: f64,
    /// The median of the 99th percentiles of the response time without checkpoints, in microseconds.
    pub p99_us: f64,
    /// The median of the CPU time of the engine's thread for a transaction without checkpoints, in microseconds.
    pub cpu_us: f64,
    /// Each strategy at each interval.
    pub costs: Vec<Cost>,
    /// Every run, in their order.
    pub runs: Vec<MeasuredRun>,
}

impl Arguments {
    fn bound(&self) -> Result<u64, Failure> {
        Ok(in_bytes(self.bound, &Configuration::read(self.config.as_deref(), None)?))
    }
}

/// What one strategy costs. Ratios are over the run without checkpoints before it, in the same round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The strategy, as the configuration names it.
    pub strategy: String,
    /// The least time from one sweep to the next, in seconds; 0: back to back.
    pub interval_seconds: f64,
    /// Of the throughput.
    pub throughput_ratio: Ratio,
    /// Of the 99th percentile of the response time.
    pub p99_ratio: Ratio,
    /// Of the CPU time of the engine's thread for a transaction.
    pub cpu_ratio: Ratio,
    /// The medians of the figures.
    pub median: CheckpointFigures,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Which round, from 1.
    pub round: u32,
    /// The strategy; none without checkpoints.
    pub strategy: Option<String>,
    /// The least time from one sweep to the next, in seconds; 0: back to back.
    pub interval_seconds: f64,
    /// What was measured.
    #[serde(flatten)]
    pub figures: CheckpointFigures,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointFigures {
    /// Transactions per second.
    pub throughput_per_s: f64,
    /// The 99th percentile of the response time, in microseconds.
    pub p99_us: f64,
    /// CPU time of the engine's thread for a transaction, in microseconds.
    pub cpu_us: f64,
    /// Sweeps completed per second.
    pub sweeps_per_s: f64,
    /// Bytes of segments written per second.
    pub written_bytes_per_s: f64,
    /// Bytes of log written per second.
    pub log_bytes_per_s: f64,
    /// The log that was kept when the run ended, in bytes.
    pub log_kept_bytes: f64,
    /// Transactions rolled back for touching both colours, per committed one.
    pub restarts_by_colour: f64,
    /// References that waited for a segment under way, per transaction.
    pub segment_waits: f64,
}

/// How a run is made.
#[derive(Clone, Copy)]
struct Variant {
    /// None for no checkpoints at all.
    strategy: Option<Strategy>,
    interval_s: f64,
}

/// The runs of a round: each part begins with one without checkpoints.
struct Rounds<'a> {
    arguments: &'a Arguments,
    strategies: &'a [Strategy],
    progress: &'a Progress,
    /// The interval that bounds the log, in seconds, once it is known.
    bounded_s: Option<f64>,
    /// How much has been done, and is to be done, in milliseconds of runs.
    done_ms: u64,
    total_ms: u64,
    runs: Vec<MeasuredRun>,
}

/// The part of an interval for which a bounded run goes on before it measures: the sweep that the interval ends with has the
/// same part of the next one to come to its end in, and spreads its writes over half of one.
const LEAD: f64 = 0.7;
/// The same of another run.
const WARM_UP: f64 = 0.2;
/// The longest interval, in seconds, or a slow machine would take an hour. A shorter one than the log allows costs more.
const INTERVAL_MAX_S: f64 = 8.0;

const NONE: Variant = Variant { strategy: None, interval_s: 0.0 };

impl Variant {
    /// How long it warms up and measures, in seconds: whole intervals, so that no run has a sweep more or less than its share.
    fn seconds(&self, arguments: &Arguments) -> (f64, f64) {
        let (warm_up, measure) = (WARM_UP * arguments.seconds, arguments.seconds);
        if self.interval_s == 0.0 {
            return (warm_up, measure);
        }
        (warm_up.max(LEAD * self.interval_s), (measure / self.interval_s).ceil() * self.interval_s)
    }

    fn milliseconds(&self, arguments: &Arguments) -> u64 {
        let (warm_up, measure) = self.seconds(arguments);
        ((warm_up + measure) * 1e3) as u64
    }
}

/// Makes a database for each round, loads it, and runs everything once on it.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<CheckpointsReport, Failure> {
    let strategies = arguments.strategies()?;
    let mut rounds = Rounds {
        arguments,
        strategies: &strategies,
        progress,
        bounded_s: None,
        done_ms: 0,
        total_ms: 0,
        runs: Vec::new(),
    };
    let mut about = None;
    progress.phase("loading", 0);
    for round in 1..=arguments.rounds {
        let directory = Directory::beneath(&arguments.data)?;
        let (scale, driver, segment_bytes) = load(arguments, directory.path())?;
        rounds.run(round, directory.path(), &scale)?;
        about = Some((driver, segment_bytes));
    }
    let (driver, segment_bytes) = about.expect("there is a round");
    let durable = if arguments.not_durable { "not durable" } else { "durable" };
    let spool = if arguments.no_spool { "no spooling" } else { "spooling" };
    let workload = format!(
        "debit-credit on sets, scale {}, {} clients, log {}, {durable}, {spool}, {} rounds of runs of {} s",
        arguments.scale,
        arguments.clients,
        arguments.log.word(),
        arguments.rounds,
        arguments.seconds
    );
    Ok(CheckpointsReport::of(
        (arguments, arguments.bound()?, &strategies),
        (workload, driver),
        segment_bytes,
        rounds.runs,
    ))
}

impl Rounds<'_> {
    /// Runs everything once, after a run that does not count: first back to back, then bounded, each strategy in another place than in the round before.
    fn run(&mut self, round: u32, directory: &Path, scale: &Scale) -> Result<(), Failure> {
        let mut strategies = self.strategies.to_vec();
        let shift = round as usize % strategies.len();
        strategies.rotate_left(shift);
        // The device is still busy with the files that were made, and removed, just now.
        self.measure(round, NONE, directory, scale)?;
        for is_bounded in [false, true] {
            let without = self.measure(round, NONE, directory, scale)?;
            self.runs.push(without);
            let interval_s = self.bounded_s.filter(|_| is_bounded).unwrap_or(0.0);
            for strategy in &strategies {
                let variant = Variant { strategy: Some(*strategy), interval_s };
                let run = self.measure(round, variant, directory, scale)?;
                self.runs.push(run);
            }
        }
        Ok(())
    }

    fn total_ms(&self) -> u64 {
        let of = |interval_s| Variant { strategy: None, interval_s }.milliseconds(self.arguments);
        let bounded_ms = of(self.bounded_s.unwrap_or(0.0));
        let strategies = self.strategies.len() as u64;
        u64::from(self.arguments.rounds) * (3 * of(0.0) + strategies * (of(0.0) + bounded_ms))
    }

    /// Opens the database for one run, and closes it with a checkpoint.
    fn measure(
        &mut self,
        round: u32,
        variant: Variant,
        directory: &Path,
        scale: &Scale,
    ) -> Result<MeasuredRun, Failure> {
        let arguments = self.arguments;
        let (warm_up, measure) = variant.seconds(arguments);
        let length = |seconds: f64| Length::Time((seconds * 1e9) as u64);
        let load = Load::Closed { clients: arguments.clients };
        let plan = Plan { load, warm_up: length(warm_up), measure: length(measure), seed: arguments.seed };
        let store = opening::open(opening_of(arguments, variant, directory)?, &Progress::hidden())?;
        let begin_ms = self.done_ms + (warm_up * 1e3) as u64;
        let mut span = Span::new(self.progress, "measuring", begin_ms..self.total_ms.max(begin_ms));
        let figures = store.run(async |database| {
            // Both copies of the backup are complete then, whatever was run before.
            database.checkpoint().await?;
            let tables = Tables::of(database.catalog(), scale)?;
            let look = |measured: workload::Measured| CheckpointFigures::of(database, &measured);
            workload::run::run(database, DebitCredit(tables), &plan, &mut span, look).await
        })?;
        store.close()?;
        let strategy = variant.strategy.map(|strategy| strategy.word().to_owned());
        let logged = figures.log_bytes_per_s.max(1.0);
        // Log is kept from the beginning of the sweep before the last: twice the interval.
        self.bounded_s.get_or_insert((arguments.bound()? as f64 / 2.0 / logged).min(INTERVAL_MAX_S));
        self.done_ms += variant.milliseconds(arguments);
        self.total_ms = self.total_ms();
        self.progress.step("measuring", self.done_ms, self.total_ms);
        Ok(MeasuredRun { round, strategy, interval_seconds: variant.interval_s, figures })
    }
}

/// Loads a database; how large it is, the driver's description, bytes of segments.
fn load(arguments: &Arguments, directory: &Path) -> Result<(Scale, String, u64), Failure> {
    let store = opening::open(opening_of(arguments, NONE, directory)?, &Progress::hidden())?;
    let scale = bank::prepare(&store, Some(arguments.scale), &Progress::hidden())?;
    let (driver, segment_bytes) = (store.executor().whole().description(), store.database().segment_bytes());
    store.close()?;
    Ok((scale, driver, segment_bytes))
}

fn opening_of(arguments: &Arguments, variant: Variant, directory: &Path) -> Result<Opening, Failure> {
    let mut configuration = Configuration::read(arguments.config.as_deref(), None)?;
    bank::in_memory(&mut configuration);
    configuration.buffer.size = 64 << 20;
    // Room for all that runs without checkpoints log: 100 MB/s, and what a log keeps in reserve.
    let logged = (arguments.seconds * 1.5 * 100e6) as u64;
    configuration.log.size = (2 * in_bytes(arguments.bound, &configuration)).max(logged).next_multiple_of(1 << 20);
    configuration.log.durable = !arguments.not_durable;
    configuration.log.sets = arguments.log;
    configuration.checkpoint = Checkpoint {
        interval_ns: None,
        log_bytes: None,
        // CALC goes with every log, and takes the checkpoint that each run begins with.
        sets: variant.strategy.unwrap_or(Strategy::StableVersions),
        spool: !arguments.no_spool,
        sweep_interval_ns: variant.strategy.map(|_| (variant.interval_s * 1e9) as u64),
        ..configuration.checkpoint
    };
    let scale = Scale::tpc_b(arguments.scale.into());
    Ok(Opening::new(directory, configuration).seed(arguments.seed).procedures(move || bank::procedures(&scale)))
}

impl CheckpointFigures {
    fn of(database: &Database, measured: &workload::Measured) -> CheckpointFigures {
        let seconds = measured.elapsed_ns as f64 / 1e9;
        let (statistics, transactions) = (database.statistics(), measured.transactions.max(1) as f64);
        let segments = statistics.segments_written.get() as f64;
        CheckpointFigures {
            throughput_per_s: measured.transactions as f64 / seconds,
            p99_us: measured.response.quantile_ns(0.99) as f64 / 1e3,
            cpu_us: measured.cpu_ns as f64 / transactions / 1e3,
            sweeps_per_s: statistics.sweeps.get() as f64 / seconds,
            written_bytes_per_s: segments * engine::set::SEGMENT_SIZE as f64 / seconds,
            log_bytes_per_s: database.log().statistics().bytes_written as f64 / seconds,
            log_kept_bytes: database.log().used() as f64,
            restarts_by_colour: statistics.restarts_by_colour.get() as f64 / transactions,
            segment_waits: statistics.segment_waits.get() as f64 / transactions,
        }
    }

    /// The medians of each figure.
    fn median<'a>(of: impl Iterator<Item = &'a CheckpointFigures> + Clone) -> CheckpointFigures {
        let median = |figure: fn(&CheckpointFigures) -> f64| median(of.clone().map(figure));
        CheckpointFigures {
            throughput_per_s: median(|run| run.throughput_per_s),
            p99_us: median(|run| run.p99_us),
            cpu_us: median(|run| run.cpu_us),
            sweeps_per_s: median(|run| run.sweeps_per_s),
            written_bytes_per_s: median(|run| run.written_bytes_per_s),
            log_bytes_per_s: median(|run| run.log_bytes_per_s),
            log_kept_bytes: median(|run| run.log_kept_bytes),
            restarts_by_colour: median(|run| run.restarts_by_colour),
            segment_waits: median(|run| run.segment_waits),
        }
    }
}

impl Cost {
    /// Of one strategy at one interval, among all runs.
    fn of(strategy: &str, is_bounded: bool, runs: &[MeasuredRun]) -> Cost {
        let mut without = &runs[0].figures;
        let mut found = Vec::new();
        let mut interval_seconds = 0.0;
        for run in runs {
            match &run.strategy {
                None => without = &run.figures,
                Some(name) if name == strategy && is_bounded == (run.interval_seconds > 0.0) => {
                    interval_seconds = run.interval_seconds;
                    found.push((&run.figures, without));
                }
                Some(_) => {}
            }
        }
        Cost {
            strategy: strategy.to_owned(),
            interval_seconds,
            throughput_ratio: Ratio::of(&found, |run| run.throughput_per_s),
            p99_ratio: Ratio::of(&found, |run| run.p99_us),
            cpu_ratio: Ratio::of(&found, |run| run.cpu_us),
            median: CheckpointFigures::median(found.iter().map(|(run, _)| *run)),
        }
    }
}

impl CheckpointsReport {
    fn of(
        (arguments, bound, strategies): (&Arguments, u64, &[Strategy]),
        (workload, driver): (String, String),
        segment_bytes: u64,
        runs: Vec<MeasuredRun>,
    ) -> CheckpointsReport {
        let without =
            CheckpointFigures::median(runs.iter().filter(|run| run.strategy.is_none()).map(|run| &run.figures));
        let costs = |is_bounded| strategies.iter().map(move |strategy| (strategy.word(), is_bounded));
        let costs = costs(false).chain(costs(true)).map(|(name, is_bounded)| Cost::of(name, is_bounded, &runs));
        CheckpointsReport {
            workload,
            driver,
            seed: arguments.seed,
            bound_bytes: bound,
            segment_bytes,
            throughput_per_s: without.throughput_per_s,
            p99_us: without.p99_us,
            cpu_us: without.cpu_us,
            costs: costs.collect(),
            runs,
        }
    }

    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds nothing that JSON cannot")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let row = |cost: &Cost| {
            let mut cells = vec![cost.strategy.clone(), format!("{:.1} s", cost.interval_seconds)];
            cells.extend(cost.throughput_ratio.cells());
            cells.extend(cost.p99_ratio.cells());
            cells.extend([
                format!("{:.2}", cost.cpu_ratio.median),
                grouped_decimal(cost.median.throughput_per_s, 0),
                grouped_decimal(cost.median.p99_us, 0),
                format!("{:.2}", cost.median.sweeps_per_s),
            ]);
            cells
        };
        let header = ["strategy", "every", "tps", "", "p99", "", "CPU", "tps", "p99 us", "sweeps/s"];
        let heading = wrapped(&format!(
            "{}\n{}; seed {}; {} in segments\nwithout checkpoints: {} transactions/s, p99 {} us, CPU {:.2} us per \
             transaction; with them, as ratios (medians, extremes), back to back and at the interval that bounds the log \
             to {} or less:",
            self.workload,
            self.driver,
            self.seed,
            format_size(self.segment_bytes),
            grouped_decimal(self.throughput_per_s, 0),
            grouped_decimal(self.p99_us, 0),
            self.cpu_us,
            format_size(self.bound_bytes)
        ));
        format!("{heading}\n\n{}", table(&header, 1, self.costs.iter().map(row)))
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
    fn each_run_is_held_against_the_one_without_checkpoints_before_it() {
        let run = |strategy: Option<&str>, interval_seconds, throughput_per_s| MeasuredRun {
            round: 1,
            strategy: strategy.map(str::to_owned),
            interval_seconds,
            figures: CheckpointFigures { throughput_per_s, ..CheckpointFigures::default() },
        };
        let runs = [
            run(None, 0.0, 100.0),
            run(Some("calc"), 0.0, 90.0),
            run(Some("fuzzy"), 0.0, 1.0),
            run(None, 0.0, 200.0),
            run(Some("calc"), 7.0, 198.0),
            run(None, 0.0, 50.0),
            run(Some("calc"), 0.0, 40.0),
        ];
        let cost = Cost::of("calc", false, &runs);
        let expected = Ratio { median: (0.9 + 0.8) / 2.0, min: 0.8, max: 0.9 };
        assert!((cost.throughput_ratio.median - expected.median).abs() < 1e-9);
        assert_eq!((cost.throughput_ratio.min, cost.throughput_ratio.max), (expected.min, expected.max));
        assert_eq!((cost.median.throughput_per_s, cost.interval_seconds), (65.0, 0.0));
        let cost = Cost::of("calc", true, &runs);
        assert_eq!((cost.throughput_ratio.median, cost.interval_seconds), (0.99, 7.0));
    }

    #[test]
    fn a_strategy_that_does_not_go_with_the_log_is_refused_and_not_run_unasked() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: Arguments,
        }
        let strategies = |line: &str| {
            let line: Line = clap::Parser::parse_from(line.split(' '));
            line.arguments.strategies().map_err(|failure| failure.to_string())
        };
        use Strategy::{StableVersions, TransactionBlackWhite, TransactionCopyOnUpdate};
        let all = [TransactionBlackWhite, TransactionCopyOnUpdate, StableVersions];
        assert_eq!(strategies("checkpoints --log toper").as_deref(), Ok(&all[..]));
        assert_eq!(strategies("checkpoints").map(|all| all.len()), Ok(Strategy::WORDS.len()));
        let refused = strategies("checkpoints --log toper --strategies calc,fuzzy").unwrap_err();
        assert!(refused.contains("fuzzy does not go with --log toper: a procedure has to find"), "{refused}");
    }

    #[test]
    fn strategies_are_named_as_in_the_configuration() {
        assert_eq!(named("calc"), Ok(Strategy::StableVersions));
        assert!(named::<Strategy>("sharp").unwrap_err().contains("tccou"));
    }
}
