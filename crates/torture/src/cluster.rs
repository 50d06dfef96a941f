//! Torture of several nodes on one database: what is between them is cut, slow or broken, nodes leave, they and the server are killed and lose
//! their power, and what nodes may do changes. In some seeds the server's data device is full for a while, and partitions are made beside nodes; in
//! some its log is slow, for longer than a lease.
//!
//! One seed is one scenario in virtual time: a [server and its nodes](ClusterShape) on machines of their own, joined by a network. Nodes
//! run transactions on pages and on records that all of them want, and some read snapshots beside that; so does the server's program in some seeds. A [schedule](Schedule) says what goes wrong and when, or what a node
//! has to be doing then. At its end all is mended; from then on every node has to commit again in time. The server loses its power once
//! more, and a last reader opens the database.
//!
//! What all transactions were shown, and the last reader, is one [history](crate::history): it has to be one that some order explains in
//! which each transaction has its place between its beginning and its acknowledgement. So reads that miss what was acknowledged before
//! they began, and commits that are lost by a restart, are found by one check. Beside that the server's directory and the database have to
//! be sound, and no task may panic or wait for ever.
//!
//! ```
//! use entresol_torture::cluster::{ClusterOptions, run_seed};
//!
//! let outcome = run_seed(3, ClusterOptions::QUICK);
//! assert_eq!(outcome.failure, None);
//! assert!(outcome.transactions > 0);
//! ```

mod act;
mod actor;
mod course;
mod coverage;
mod judge;
mod machines;
mod named;
mod node;
mod own_snapshots;
mod play;
mod schedule;
mod serving;
mod set_orders;
mod sets;
mod shape;
mod snapshots;
mod space;
mod things;
mod unseen;

pub use act::{ClusterEvent, ClusterFault, ClusterStep};
pub use coverage::ClusterCoverage;
pub use schedule::Schedule;
pub use shape::ClusterShape;

use std::fmt;
use std::ops::Range;

/// How much is done per seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// How many faults there are, at most.
    pub faults_max: u64,
    /// Over how many seconds of virtual time they are spread, at most.
    pub seconds_max: u64,
}

impl ClusterOptions {
    /// For the test suite of a debug build.
    pub const QUICK: ClusterOptions = ClusterOptions { faults_max: 5, seconds_max: 6 };
    /// For the command line.
    pub const FULL: ClusterOptions = ClusterOptions { faults_max: 12, seconds_max: 14 };
}

/// What a cluster has done wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFailure {
    /// The seed: running it again shows the same.
    pub seed: u64,
    /// What should not have happened.
    pub wrong: Vec<String>,
    /// What was planned.
    pub schedule: String,
    /// What it was done with.
    pub shape: String,
}

impl fmt::Display for ClusterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails:", self.seed)?;
        for what in &self.wrong {
            writeln!(f, "  {what}")?;
        }
        writeln!(f, "schedule: {}", self.schedule)?;
        write!(f, "shape: {}", self.shape)
    }
}

/// The result of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOutcome {
    /// The seed.
    pub seed: u64,
    /// A hash of what happened: equal for equal seeds.
    pub hash: u64,
    /// Transactions acknowledged.
    pub transactions: u64,
    /// The server's algorithm.
    pub algorithm: &'static str,
    /// What went wrong on purpose, and what came of it.
    pub coverage: ClusterCoverage,
    /// The failure, if there is one.
    pub failure: Option<ClusterFailure>,
}

/// The results of a range of seeds.
#[derive(Clone, Debug, Default)]
pub struct ClusterSummary {
    /// Seeds run.
    pub seeds: u64,
    /// Transactions acknowledged.
    pub transactions: u64,
    /// What went wrong on purpose, and what came of it.
    pub coverage: ClusterCoverage,
    /// The seeds that failed.
    pub failures: Vec<ClusterFailure>,
}

/// Runs one seed.
pub fn run_seed(seed: u64, options: ClusterOptions) -> ClusterOutcome {
    play::play(seed, options)
}

/// Runs the seeds one after another; `progress` sees each outcome.
pub fn run_range(
    seeds: Range<u64>,
    options: ClusterOptions,
    mut progress: impl FnMut(&ClusterOutcome),
) -> ClusterSummary {
    let mut summary = ClusterSummary::default();
    for seed in seeds {
        let outcome = run_seed(seed, options);
        progress(&outcome);
        summary.seeds += 1;
        summary.transactions += outcome.transactions;
        summary.coverage.add(&outcome.coverage);
        summary.failures.extend(outcome.failure);
    }
    summary
}
