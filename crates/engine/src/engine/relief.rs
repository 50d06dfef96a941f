//! Room in a full log: how transactions ask for checkpoints that make it, and what they learn of them.

use executor::{Executor, WaitQueue};
use std::cell::Cell;

/// Checkpoints that are taken because tasks wait for room in the log.
#[derive(Default)]
pub(crate) struct Relief {
    /// Whether they are asked for, or under way.
    pub is_wanted: Cell<bool>,
    /// The server that takes them waits here to be asked.
    pub asked: WaitQueue,
    /// How many transactions wait with all that they hold.
    pub waiting: Cell<u32>,
    /// How many of these checkpoints have begun and ended.
    pub begun: Cell<u64>,
    pub ended: Cell<u64>,
    /// How often a sweep had only segments left that unfinished transactions have changed.
    pub stalls: Cell<u64>,
    /// Whether the one under way has written pages back, and is about to sweep or sweeps.
    pub has_paged: Cell<bool>,
}

impl Relief {
    /// Asks for checkpoints until the log has room again.
    pub fn ask(&self, executor: &Executor) {
        if !self.is_wanted.replace(true) {
            self.asked.wake_all(executor);
        }
    }

    /// Whether a transaction with locks waits for a checkpoint.
    pub fn is_awaited(&self) -> bool {
        self.waiting.get() > 0
    }
}

/// What became of the wait of a transaction with locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReliefOutcome {
    /// There is room.
    Room,
    /// There is none after a whole checkpoint.
    Spent,
    /// The sweep waits for the end of transactions, or of a load.
    Stalled,
}

/// A transaction that waits with locks.
pub(crate) struct RoomWait<'a>(&'a Relief);

impl<'a> RoomWait<'a> {
    pub fn new(state: &'a Relief) -> RoomWait<'a> {
        state.waiting.set(state.waiting.get() + 1);
        RoomWait(state)
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}
