//! What the clients of one life share.

use crate::adversary::Scene;
use crate::hurt;
use crate::truth::Truth;
use crate::{Act, Configuration};
use base::time::SECOND_NS;
use base::{PartitionId, Random};
use engine::{Database, Error};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// One life's surroundings.
pub struct Stage {
    /// The executor.
    pub executor: Executor,
    /// What the seed stands for.
    pub configuration: Rc<Configuration>,
    /// What is known of the contents.
    pub truth: Rc<RefCell<Truth>>,
    /// What the adversary tells.
    pub scene: Rc<Scene>,
    /// What is wrong with the engine.
    pub wrong: Rc<RefCell<Vec<String>>>,
    /// Whether damage was reported as it should be.
    pub detected: Rc<Cell<bool>>,
    /// Whether this life is over: going on makes no sense.
    pub over: Cell<bool>,
    /// Clients that are still at work.
    pub working: Cell<usize>,
    /// The life's number.
    pub life: u64,
    /// The story's seed.
    pub seed: u64,
    /// After how many polls an opening is given up for another one, if one is.
    pub reopened_after: Option<u64>,
    /// For how long drops have kept clients waiting until they gave up, in nanoseconds.
    pub refused_ns: Cell<u64>,
}

/// How long a drop waits for transactions, snapshots and loads, as [`Database::drop_partition`] says, in nanoseconds.
const DROP_PATIENCE_NS: u64 = 10 * SECOND_NS;

/// What becomes of a transaction after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is rolled back and may be tried again.
    Retry,
    /// The database must be opened again.
    Reopen,
}

impl Stage {
    /// Notes that something is wrong, and ends the life.
    pub fn wrong(&self, what: impl Into<String>) {
        self.wrong.borrow_mut().push(what.into());
        self.over.set(true);
    }

    /// Notes that the database shows something else than it should, and ends the life. If an older state may have been taken
    /// for what was written, that is what it looks like.
    pub fn differs(&self, what: impl Into<String>) {
        if hurt::has_undetectable(&self.scene.hurts.borrow()) {
            self.note_damage();
        } else {
            self.wrong(what);
        }
    }

    /// Notes that damage was reported as it should be, and ends the life.
    pub fn note_damage(&self) {
        self.detected.set(true);
        self.over.set(true);
    }

    /// Counts something that a client has met.
    pub fn act(&self, act: Act) {
        self.scene.coverage.borrow_mut().act(act);
    }

    /// Whether something was done to the database that may keep a transaction from ending before it is opened again.
    pub fn is_crippled(&self, database: &Database) -> bool {
        self.scene.is_deaf.get() || self.scene.sync_failed.get() || database.log().failure().is_some()
    }

    /// Whether no device of the log may have answered for long: one of two hangs and the other one was made to fail, or the
    /// clock jumped.
    fn may_log_be_silent(&self) -> bool {
        let scene = &self.scene;
        scene.jumped_ns.get() > 0 || (scene.is_hung.get() && scene.errors.get() > 0)
    }

    /// Judges an error: is it one that what was done to the database explains?
    pub fn judge(&self, error: &Error, doing: &str) -> After {
        match error {
            error if error.is_conflict() => After::Retry,
            Error::BufferExhausted { .. } | Error::SnapshotTooOld { .. } => After::Retry,
            Error::Input(_) if hurt::is_injected(&error.to_string()) => After::Retry,
            error if hurt::is_injected(&error.to_string()) => After::Reopen,
            Error::LogFailed(why) if why.contains("has not answered") && self.may_log_be_silent() => After::Reopen,
            error if hurt::explain(&self.scene.hurts.borrow(), error) => {
                self.note_damage();
                After::Reopen
            }
            error => {
                self.differs(format!("{doing}: {error}"));
                After::Reopen
            }
        }
    }

    /// Notes that a drop gives up, or may once it was abandoned. Drops take turns, and creations with them, so clients that hold
    /// snapshots keep each other waiting for as long as all these drops have patience.
    pub fn drop_refused(&self) {
        self.refused_ns.set(self.refused_ns.get() + DROP_PATIENCE_NS);
    }

    /// A stream of random numbers of this life.
    pub fn random(&self, concern: &str) -> Random {
        Random::stream(self.seed ^ (self.life + 1).wrapping_mul(0xd6e8_feb8_6659_fd93), concern)
    }

    /// Lets a client rest between two transactions.
    pub async fn pause(&self, random: &mut Random) {
        let pause_ns_max = self.configuration.pause_ns_max;
        if pause_ns_max > 0 {
            self.executor.sleep_ns(random.below(pause_ns_max)).await;
        }
    }

    /// The partition of this name.
    pub fn partition(&self, database: &Database, name: &str) -> Option<PartitionId> {
        match database.partition(name) {
            Ok(id) => Some(id),
            Err(error) => {
                self.wrong(error.to_string());
                None
            }
        }
    }
}
