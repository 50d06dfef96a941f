//! Torture: seeded crashes and faults under the virtual clock, and proof that nothing acknowledged was lost.
//!
//! One seed is one scenario: a database of a random configuration runs several times on the same media. In each run clients
//! work (Debit-Credit on shared rows; records of all sizes, each client its own) while an [adversary](crate::Plan) cuts the
//! power, kills the program, fails operations and allocations, loses the data of syncs, hangs devices and makes the clock jump,
//! in restart as well as in normal operation. Data is damaged as well: bits flip, sectors become unreadable, writes vanish,
//! land elsewhere or are hidden from the next read, data at rest decays between two runs, and a cache is replaced by an empty,
//! older or foreign one, or has older versions of pages in its slots. Some seeds sort and join beside
//! that, in temporary space that is damaged as well, and some replay a trace, whose counts are known. At the beginning of each run, and at the end of the scenario, everything
//! is compared with what the clients were told: every acknowledged transaction is there whole, and no other transaction is
//! there in part.
//!
//! In some seeds commits do not wait until they are durable. What a power cut, or the end of the process, takes of these must be the end of the
//! log, and no more than was not synced ([`ClientEvent::EndLost`]).
//!
//! Some seeds are backed up while clients work, and have their log archived. What is restored on new devices is compared with
//! what was known at its position ([`ClientEvent::Restored`], [`ClientEvent::RestoredTo`]), and a backup that was cut off or
//! damaged must not pass for a whole one.
//!
//! What was injected decides which errors are excused (`damage.rs`): an error must name what was damaged, and data that is
//! stored twice must be served. No fault of one run excuses a later run that does not open, and no damage excuses anything before
//! the engine has read it. Where damage was reported the medium is repaired, and the scenario goes on with it
//! ([`ClientEvent::Repaired`]): nothing else may be missing then.
//!
//! A seed of the [other kind](SeedKind::Isolation) has its clients meet on few records, records what they are shown, and looks for
//! what their [isolation](history) forbids.
//!
//! Everything is drawn from the seed, so a seed that fails replays exactly.
//!
//! This is a crate of its own because it needs engine, workload and virtual driver, and the library should not.
//!
//! ```
//! let outcome = entresol_torture::run_seed(7, entresol_torture::Options::QUICK);
//! assert!(outcome.failure.is_none());
//! ```

mod abandon;
mod adversary;
mod backups;
mod cache_change;
mod cache_files;
mod closing;
pub mod cluster;
mod configuration;
mod context;
mod coverage;
mod damage;
mod debit_credit;
mod event;
mod foreign;
pub mod history;
mod isolation;
pub mod ledger;
mod lost_end;
mod oracle;
mod partitions;
mod plan;
mod procedure;
mod records;
mod replay;
mod rot;
mod run;
mod scenario;
mod spill;
mod step;
mod unlocked;
mod verify;

pub use configuration::{Configuration, Rows};
pub use coverage::{BESIDE_BACKUPS, Coverage, Pair, cache_designs, met_by_caches};
pub use event::ClientEvent;
pub use isolation::{Contention, Store};
pub use plan::Plan;
pub use scenario::{Failure, Outcome, Summary, run_range, run_seed};
pub use step::{FaultKind, Step};

/// The property that a seed tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedKind {
    /// Clients transfer money and change records of their own; acknowledged changes must survive.
    Durability,
    /// Clients contend for few records, so that anomalies would occur which their isolation levels forbid; see [`history`].
    Isolation,
}

/// What is tested per seed, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The property.
    pub kind: SeedKind,
    /// How many runs end in a fault, at most.
    pub runs_max: u64,
    /// How many transactions each client runs in a run, at most.
    pub transactions_max: u64,
}

impl Options {
    /// For the test suite of a debug build.
    pub const QUICK: Options = Options { kind: SeedKind::Durability, runs_max: 3, transactions_max: 8 };
    /// For the command line.
    pub const FULL: Options = Options { kind: SeedKind::Durability, runs_max: 7, transactions_max: 24 };

    /// The same for another kind of seeds.
    pub const fn of(self, kind: SeedKind) -> Options {
        Options { kind, ..self }
    }
}
