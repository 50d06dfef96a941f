//! The plan of a benchmark: which engine, loaded how, run how often; and what came out.

use crate::bank::Scale;
use crate::closed_loop::{ClosedLoop, Measured};
use crate::cpu::cpu_time;
use crate::engines::Contender;
use crate::peer::{Durability, Grouping, Peer};
use serde::Serialize;
use std::error::Error as StdError;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How the benchmark is run; the same for every engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When a transaction is acknowledged.
    pub durability: Durability,
    /// How many clients ask at once. Without durability it is one.
    pub clients: usize,
    /// How many branches.
    pub scale: Scale,
    /// How long each run is measured.
    pub measured: Duration,
    /// How long each run goes on before it is measured.
    pub warm_up: Duration,
    /// How many runs; the report gives their median.
    pub runs: usize,
    /// What all requests derive from.
    pub seed: u64,
    /// The directory under which each engine gets its own.
    pub data: PathBuf,
    /// The groupings wanted; empty for all that make sense.
    pub groupings: Vec<Grouping>,
}

impl Settings {
    /// The groupings in which a contender is run.
    pub fn groupings_of(&self, contender: &Contender) -> Vec<Grouping> {
        match self.durability {
            Durability::Off => vec![Grouping::Single],
            Durability::Sync => {
                let wanted = |grouping: &Grouping| self.groupings.is_empty() || self.groupings.contains(grouping);
                contender.groupings.iter().copied().filter(wanted).collect()
            }
        }
    }
}

/// Why a benchmark ended early.
#[derive(Debug, Error)]
pub enum BenchError {
    /// An engine answered with an error.
    #[error("{engine} failed to {doing}: {source}")]
    Engine {
        /// Which engine.
        engine: &'static str,
        /// What was asked of it.
        doing: &'static str,
        /// What it answered.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// An engine's tables do not add up.
    #[error("{engine}: {source}")]
    Books {
        /// Which engine.
        engine: &'static str,
        /// How the sums differ.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A directory could not be made or removed.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The directory of an engine exists and was not made by a benchmark that ended well.
    #[error("{} exists; remove it or choose another --data", .0.display())]
    Occupied(PathBuf),
}

/// The figures of one run, or the medians of several.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Transactions per second.
    pub throughput_per_s: f64,
    /// Mean response time in microseconds.
    pub response_us_mean: f64,
    /// Median response time in microseconds.
    pub response_us_p50: f64,
    /// 99th percentile of the response time in microseconds.
    pub response_us_p99: f64,
    /// CPU time of the whole process per transaction, in microseconds.
    pub cpu_us: f64,
}

impl From<Measured> for Figures {
    fn from(measured: Measured) -> Figures {
        let Measured { responses, elapsed, cpu } = measured;
        let count = responses.count() as f64;
        Figures {
            throughput_per_s: count / elapsed.as_secs_f64(),
            response_us_mean: responses.mean_ns() / 1e3,
            response_us_p50: responses.quantile_ns(0.5) as f64 / 1e3,
            response_us_p99: responses.quantile_ns(0.99) as f64 / 1e3,
            cpu_us: if count > 0.0 { cpu.as_secs_f64() * 1e6 / count } else { 0.0 },
        }
    }
}

impl Figures {
    /// The median of each figure by itself.
    ///
    /// # Panics
    /// If there are no runs.
    pub fn medians(runs: &[Figures]) -> Figures {
        let median = |figure: fn(&Figures) -> f64| median(&mut runs.iter().map(figure).collect::<Vec<_>>());
        Figures {
            throughput_per_s: median(|figures| figures.throughput_per_s),
            response_us_mean: median(|figures| figures.response_us_mean),
            response_us_p50: median(|figures| figures.response_us_p50),
            response_us_p99: median(|figures| figures.response_us_p99),
            cpu_us: median(|figures| figures.cpu_us),
        }
    }
}

/// The middle one of these values, or the mean of the two in the middle.
///
/// # Panics
/// If there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// One way of grouping an engine's commits.
#[derive(Clone, Debug, Serialize)]
pub struct GroupingResult {
    /// Which way.
    pub grouping: Grouping,
    /// The medians of all runs.
    pub median: Figures,
    /// Every run.
    pub runs: Vec<Figures>,
}

/// All that was measured of one engine.
#[derive(Clone, Debug, Serialize)]
pub struct EngineResult {
    /// Its name.
    pub engine: &'static str,
    /// Its version.
    pub version: &'static str,
    /// How long the load took, in seconds.
    pub load_s: f64,
    /// The CPU time of the load, in seconds.
    pub load_cpu_s: f64,
    /// One entry for each way of grouping.
    pub groupings: Vec<GroupingResult>,
}

impl EngineResult {
    /// The grouping with the highest throughput: what the engine is compared by.
    pub fn best(&self) -> Option<&GroupingResult> {
        self.groupings.iter().max_by(|a, b| a.median.throughput_per_s.total_cmp(&b.median.throughput_per_s))
    }
}

/// Loads and runs one contender in a directory of its own, which is removed afterwards. `progress` hears what goes on.
///
/// # Errors
/// [`BenchError`] if the engine fails, its books do not balance, or its directory is in the way.
pub fn run(contender: &Contender, settings: &Settings, progress: &dyn Fn(&str)) -> Result<EngineResult, BenchError> {
    in_directory(&settings.data, contender.name, |directory| run_in(directory, contender, settings, progress))
}

/// Makes a directory of this name for `body`, and removes it afterwards.
///
/// # Errors
/// Those of `body`; [`BenchError::Occupied`] and [`BenchError::Directory`].
pub fn in_directory<T>(
    data: &Path,
    name: &str,
    body: impl FnOnce(&Path) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let directory = data.join(name);
    if directory.exists() {
        return Err(BenchError::Occupied(directory));
    }
    let at = |source| BenchError::Directory { path: directory.clone(), source };
    fs::create_dir_all(&directory).map_err(at)?;
    let result = body(&directory);
    fs::remove_dir_all(&directory).map_err(at)?;
    result
}

fn run_in(
    directory: &Path,
    contender: &Contender,
    settings: &Settings,
    progress: &dyn Fn(&str),
) -> Result<EngineResult, BenchError> {
    let failed = |doing| move |source| BenchError::Engine { engine: contender.name, doing, source };
    let mut peer = (contender.create)(directory, settings.durability).map_err(failed("create a database"))?;
    progress(&format!("{}: load", contender.name));
    let (start, cpu_start) = (Instant::now(), cpu());
    peer.load(settings.scale).map_err(failed("load"))?;
    let (load_s, load_cpu_s) = (start.elapsed().as_secs_f64(), (cpu() - cpu_start).as_secs_f64());
    check(contender, &mut *peer, 0)?;
    // What the load left to the operating system is written before the first run, not during it.
    nix::unistd::sync();

    let mut next_sequence = 0;
    let mut groupings: Vec<(Grouping, Vec<Figures>)> =
        settings.groupings_of(contender).into_iter().map(|grouping| (grouping, Vec::new())).collect();
    for number in 0..settings.runs {
        for (grouping, runs) in &mut groupings {
            progress(&format!("{}: {}, run {} of {}", contender.name, grouping.name(), number + 1, settings.runs));
            let clients = Arc::new(ClosedLoop::new(
                settings.scale,
                settings.clients,
                settings.seed + number as u64,
                settings.warm_up,
                settings.measured,
                next_sequence,
            ));
            runs.push(peer.run(*grouping, &clients).map_err(failed("run"))?.into());
            next_sequence = clients.next_sequence();
            check(contender, &mut *peer, next_sequence)?;
        }
    }
    let groupings = groupings
        .into_iter()
        .map(|(grouping, runs)| GroupingResult { grouping, median: Figures::medians(&runs), runs })
        .collect();
    Ok(EngineResult { engine: contender.name, version: contender.version, load_s, load_cpu_s, groupings })
}

fn check(contender: &Contender, peer: &mut dyn Peer, transactions: u64) -> Result<(), BenchError> {
    let engine = contender.name;
    let sums = peer.sums().map_err(|source| BenchError::Engine { engine, doing: "add up its tables", source })?;
    sums.check(transactions).map_err(|source| BenchError::Books { engine, source: source.into() })
}

/// The CPU time so far.
pub fn cpu() -> Duration {
    cpu_time().expect("a process may ask for its own CPU time")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(throughput_per_s: f64) -> Figures {
        Figures {
            throughput_per_s,
            response_us_mean: 1.0,
            response_us_p50: 2.0,
            response_us_p99: 10.0 - throughput_per_s,
            cpu_us: 4.0,
        }
    }

    #[test]
    fn medians_are_taken_of_each_figure() {
        let odd = Figures::medians(&[figures(5.0), figures(1.0), figures(3.0)]);
        assert_eq!((odd.throughput_per_s, odd.response_us_p99), (3.0, 7.0));
        let even = Figures::medians(&[figures(5.0), figures(1.0)]);
        assert_eq!(even.throughput_per_s, 3.0);
    }

    #[test]
    fn figures_are_per_transaction_and_second() {
        let mut responses = base::statistics::Histogram::new();
        for _ in 0..500 {
            responses.record(2_000_000);
        }
        let (elapsed, cpu) = (Duration::from_secs(2), Duration::from_millis(10));
        let figures = Figures::from(Measured { responses, elapsed, cpu });
        assert_eq!((figures.throughput_per_s, figures.cpu_us, figures.response_us_mean), (250.0, 20.0, 2_000.0));
    }
}
