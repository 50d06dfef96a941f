//! What the clients of one life share.

use crate::Configuration;
use crate::adversary::Scene;
use crate::truth::Truth;
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
    /// Whether damage after a flipped bit was reported as it should be.
    pub detected: Rc<Cell<bool>>,
    /// Whether this life is over: going on makes no sense.
    pub over: Cell<bool>,
    /// Clients that are still at work.
    pub working: Cell<usize>,
    /// The life's number.
    pub life: u64,
    /// The story's seed.
    pub seed: u64,
}

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

    /// Whether something was done to the database that may keep a transaction from ending: one whose rollback fails holds its
    /// locks until the next restart.
    pub fn is_hurt(&self) -> bool {
        self.scene.errors.get() > 0 || self.scene.flipped.get()
    }

    /// Judges an error: is it one that what was done to the database explains?
    pub fn judge(&self, error: &Error, doing: &str) -> After {
        let hurt = self.scene.errors.get() > 0;
        match error {
            error if error.is_conflict() => After::Retry,
            Error::BufferExhausted { .. } | Error::SnapshotTooOld { .. } => After::Retry,
            Error::Input(_) if hurt => After::Retry,
            Error::LogFailed(_) | Error::LogNotRelieved { .. } if hurt => After::Reopen,
            Error::DamagedPage { .. }
            | Error::DamagedBackup { .. }
            | Error::DamagedLog { .. }
            | Error::DamagedTemp { .. }
            | Error::NotADatabase { .. }
                if self.scene.flipped.get() =>
            {
                self.detected.set(true);
                self.over.set(true);
                After::Reopen
            }
            error => {
                self.wrong(format!("{doing}: {error}"));
                After::Reopen
            }
        }
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
