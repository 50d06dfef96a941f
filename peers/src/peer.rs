//! What the benchmark asks of an engine.

use crate::bank::{Scale, Sums};
use crate::closed_loop::{ClosedLoop, Measured};
use clap::ValueEnum;
use serde::Serialize;
use std::error::Error;
use std::sync::Arc;

/// What an engine answers; the benchmark adds which engine and what it was doing.
pub type PeerResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// When a transaction is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// When it would survive a power cut.
    Sync,
    /// When it stands in the engine's or the operating system's memory.
    Off,
}

/// How transactions come together to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// The engine's own group commit: every client is a thread (in Entresol a task) with a transaction of its own.
    Own,
    /// The application's: every client is a thread that puts its request into a queue; one committer thread drains the
    /// queue and commits what it found as one transaction.
    Queue,
    /// The application's without its cost: the committer thread plays all clients itself and commits one request of each
    /// as one transaction.
    Rounds,
    /// As rounds, several at once: each of a few threads plays its share of the clients on a session of its own.
    Lanes,
    /// None: one client, every request a transaction of its own.
    Single,
}

impl Grouping {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Grouping::Own => "own",
            Grouping::Queue => "queue",
            Grouping::Rounds => "rounds",
            Grouping::Lanes => "lanes",
            Grouping::Single => "single",
        }
    }
}

/// An open database of some engine.
pub trait Peer {
    /// Fills the empty database: all balances 0, no history. On return the rows are on the medium and no compaction that
    /// the load caused is waiting to start.
    fn load(&mut self, scale: Scale) -> PeerResult<()>;

    /// Serves a closed loop of clients. Engines of threads hand themselves to [`ClosedLoop::serve`]; an engine with tasks of
    /// its own plays the clients as tasks.
    fn run(&mut self, grouping: Grouping, clients: &Arc<ClosedLoop>) -> PeerResult<Measured>;

    /// Adds up all tables by reading every row, which also brings them into memory.
    fn sums(&mut self) -> PeerResult<Sums>;
}

/// What the clients of a benchmark ask for; if nothing else is said, the transfers of the bank.
pub trait Requests: Send + Sync {
    /// What a client draws its requests from.
    type Terminal;
    /// What a client asks for: one transaction.
    type Request: Send + Sync + 'static;
    /// What it is answered.
    type Answer: Send + Sync + 'static;

    /// The client `number` of a run under `seed`.
    fn terminal(&self, seed: u64, number: usize) -> Self::Terminal;

    /// A client's next request, the `sequence`th of all, made `time_ns` after the run began.
    fn next(&self, terminal: &mut Self::Terminal, sequence: u64, time_ns: u64) -> Self::Request;

    /// When it was made.
    fn time_ns(request: &Self::Request) -> u64;

    /// Hears of each request that was answered while the run was measured.
    fn answered(&self, _request: &Self::Request) {}
}

/// An engine that several threads use at once.
pub trait Engine<R: Requests = Scale>: Sync {
    /// A client's way into the engine, asked for on the thread that uses it.
    fn session(&self) -> PeerResult<Box<dyn Session<R> + '_>>;
}

/// One thread's use of an engine.
pub trait Session<R: Requests = Scale> {
    /// Executes all requests in their order as one transaction and commits it, durably if the database was opened so.
    /// Appends the answer of each to `answers`; that of a transfer is the new balance of its account.
    fn commit(&mut self, requests: &[R::Request], answers: &mut Vec<R::Answer>) -> PeerResult<()>;
}
