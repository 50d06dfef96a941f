//! Torture: seeded crashes and faults under the virtual clock, and proof that nothing acknowledged was lost.
//!
//! One seed is one story: a database of a random configuration lives several lives on the same media. In each life clients
//! work (Debit-Credit on shared rows; records of all sizes, each client its own) while an [adversary](crate::Plan) cuts the
//! power, kills the program, fails operations and allocations, lets syncs forget, devices hang and the clock jump, in restart
//! as well as in normal operation. What is written is damaged as well: bits flip, sectors become unreadable, writes vanish,
//! land elsewhere or are hidden from the next read; and what lies there decays between two lives. Some seeds sort and join
//! beside that, in temporary space that is hurt as well. At the beginning of each life, and at the end of the story,
//! everything is compared with what the clients were told: every acknowledged transaction is there, no other half there.
//!
//! What was injected decides what is excused (`hurt.rs`): an error must name what was hurt, and what is stored twice must
//! serve. Nothing of one life excuses that a later one does not open.
//!
//! A seed of the [other kind](Kind::Isolation) has its clients meet on few records, records what they are shown, and looks for
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
mod act;
mod adversary;
mod configuration;
mod coverage;
mod debit_credit;
pub mod history;
mod hurt;
mod isolation;
pub mod ledger;
mod life;
mod partitions;
mod plan;
mod procedure;
mod records;
mod rot;
mod spill;
mod stage;
mod step;
mod story;
mod truth;
mod verify;

pub use act::Act;
pub use configuration::{Configuration, Rows};
pub use coverage::{Coverage, Pair};
pub use isolation::{Contention, Store};
pub use plan::Plan;
pub use step::{FaultKind, Step};
pub use story::{Failure, Outcome, Summary, run_range, run_seed};

/// What a seed's clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They transfer money and change records of their own; what was acknowledged must be there.
    Durability,
    /// They meet on few records, in the ways of which a level of isolation must keep out some; see [`history`].
    Isolation,
}

/// What is done per seed, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What clients do.
    pub kind: Kind,
    /// How many lives end in some fault, at most.
    pub lives_max: u64,
    /// How many transactions each client runs in a life, at most.
    pub transactions_max: u64,
}

impl Options {
    /// For the test suite of a debug build.
    pub const QUICK: Options = Options { kind: Kind::Durability, lives_max: 3, transactions_max: 8 };
    /// For the command line.
    pub const FULL: Options = Options { kind: Kind::Durability, lives_max: 7, transactions_max: 24 };

    /// The same for another kind of seeds.
    pub const fn of(self, kind: Kind) -> Options {
        Options { kind, ..self }
    }
}
