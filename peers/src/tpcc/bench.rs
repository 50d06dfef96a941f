//! The plan of a run of TPC-C: which engine, loaded how, run how often; and what came out.

use super::engines::Contender;
use super::peer::{Clients, Opening, PAGE_RECORDS, Peer};
use super::requests::Terminals;
use super::tables::Table;
use crate::bench::{BenchError, Figures, cpu, in_directory, median};
use crate::peer::{Durability, Grouping, PeerResult};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use workload::tpcc::Scale;

/// How the benchmark is run; the same for every engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When a transaction is acknowledged, and what each engine may cache.
    pub opening: Opening,
    /// How many clients ask at once. Without durability it is one.
    pub clients: usize,
    /// How large the database is.
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
        match self.opening.durability {
            Durability::Off => vec![Grouping::Single],
            Durability::Sync => {
                let wanted = |grouping: &Grouping| self.groupings.is_empty() || self.groupings.contains(grouping);
                contender.groupings.iter().copied().filter(wanted).collect()
            }
        }
    }
}

/// One way of grouping an engine's commits.
#[derive(Clone, Debug, Serialize)]
pub struct GroupingResult {
    /// Which way.
    pub grouping: Grouping,
    /// The medians of all runs, over the whole mix.
    pub median: Figures,
    /// New-Orders in a minute, the median of all runs. It is no tpmC: clients neither think nor type.
    pub new_orders_per_min: f64,
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
/// [`BenchError`] if the engine fails, a consistency condition does not hold, or its directory is in the way.
pub fn run(contender: &Contender, settings: &Settings, progress: &dyn Fn(&str)) -> Result<EngineResult, BenchError> {
    in_directory(&settings.data, contender.name, |directory| run_in(directory, contender, settings, progress))
}

fn run_in(
    directory: &Path,
    contender: &Contender,
    settings: &Settings,
    progress: &dyn Fn(&str),
) -> Result<EngineResult, BenchError> {
    let engine = contender.name;
    let failed = |doing| move |source| BenchError::Engine { engine, doing, source };
    let mut peer = (contender.create)(directory, settings.opening).map_err(failed("create a database"))?;
    progress(&format!("{engine}: load"));
    let (start, cpu_start) = (Instant::now(), cpu());
    peer.load(&settings.scale).map_err(failed("load"))?;
    let (load_s, load_cpu_s) = (start.elapsed().as_secs_f64(), (cpu() - cpu_start).as_secs_f64());
    read_all(&mut *peer).map_err(failed("read its tables"))?;
    check(engine, &mut *peer)?;
    // What the load left to the operating system is written before the first run, not during it.
    nix::unistd::sync();

    let wanted = settings.groupings_of(contender);
    let mut figures: Vec<Vec<(Figures, f64)>> = vec![Vec::new(); wanted.len()];
    // The load has given each customer's first payment a number in the history.
    let Scale { warehouses, districts, customers, .. } = settings.scale;
    let mut next_sequence = u64::from(warehouses) * u64::from(districts) * u64::from(customers);
    for number in 0..settings.runs {
        for (grouping, figures) in wanted.iter().zip(&mut figures) {
            progress(&format!("{engine}: {}, run {} of {}", grouping.name(), number + 1, settings.runs));
            let clients: Arc<Clients> = Arc::new(Clients::new(
                Terminals::new(settings.scale),
                settings.clients,
                settings.seed + number as u64,
                settings.warm_up,
                settings.measured,
                next_sequence,
            ));
            let measured = peer.run(*grouping, &clients).map_err(failed("run"))?;
            let new_orders = clients.requests().new_orders() as f64 / measured.elapsed.as_secs_f64() * 60.0;
            figures.push((measured.into(), new_orders));
            next_sequence = clients.next_sequence();
            progress(&format!("{engine}: verify"));
            check(engine, &mut *peer)?;
        }
    }
    let groupings = wanted.into_iter().zip(figures).map(|(grouping, figures)| result(grouping, figures)).collect();
    Ok(EngineResult { engine, version: contender.version(), load_s, load_cpu_s, groupings })
}

fn result(grouping: Grouping, figures: Vec<(Figures, f64)>) -> GroupingResult {
    let (runs, mut new_orders): (Vec<Figures>, Vec<f64>) = figures.into_iter().unzip();
    let new_orders_per_min = median(&mut new_orders);
    GroupingResult { grouping, median: Figures::medians(&runs), new_orders_per_min, runs }
}

/// Brings into memory what fits into it.
fn read_all(peer: &mut dyn Peer) -> PeerResult<()> {
    for table in Table::ALL {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let mut records = peer.page(table, after.as_deref(), PAGE_RECORDS)?;
            let Some((last, _)) = records.pop() else { break };
            after = Some(last);
        }
    }
    Ok(())
}

fn check(engine: &'static str, peer: &mut dyn Peer) -> Result<(), BenchError> {
    let doing = "check its tables";
    let violations = peer.violations().map_err(|source| BenchError::Engine { engine, doing, source })?;
    match violations.first() {
        None => Ok(()),
        Some(first) => Err(BenchError::Books { engine, source: first.to_string().into() }),
    }
}
