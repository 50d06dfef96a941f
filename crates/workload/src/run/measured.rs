//! What a run measured.

use super::Saturation;
use base::statistics::{BatchMeans, Histogram};
use driver::{CacheReport, EventCount, StationReport, ThreadUse};
use engine::server;

/// What a run measured of one type of transaction.
#[derive(Clone, Debug)]
pub struct TypeMeasured {
    /// The type's name.
    pub name: String,
    /// Times from arrival to acknowledgement; as many as transactions committed.
    pub response: Histogram,
    /// Their batch means, in nanoseconds.
    pub means: BatchMeans,
}

impl TypeMeasured {
    pub(super) fn new(name: String) -> TypeMeasured {
        TypeMeasured { name, response: Histogram::new(), means: BatchMeans::new() }
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Transactions committed.
    pub transactions: u64,
    /// The measured time on the run's clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// The same on the wall clock.
    pub wall_ns: u64,
    /// CPU time of the engine's thread, in nanoseconds; zero where the machine is described.
    pub cpu_ns: u64,
    /// CPU time of the whole process, in nanoseconds; zero where the machine is described.
    pub process_cpu_ns: u64,
    /// Times from arrival to acknowledgement.
    pub response: Histogram,
    /// Their batch means, in nanoseconds.
    pub means: BatchMeans,
    /// The same by type of transaction, if the workload has several.
    pub types: Vec<TypeMeasured>,
    /// Load of the driver's stations.
    pub stations: Vec<StationReport>,
    /// What the caches inside devices did.
    pub caches: Vec<CacheReport>,
    /// The simulation's events by sort; none on a real machine.
    pub events: Vec<EventCount>,
    /// What the engine's thread asked of its operating system.
    pub thread_use: ThreadUse,
    /// What the transaction server did, if the transactions went through one.
    pub server: Option<server::ServerReport>,
    /// What limited the run, if more arrived than could be served: then it may have ended early.
    pub saturated: Option<Saturation>,
}
