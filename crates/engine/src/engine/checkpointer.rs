//! What checkpoints know of each other.

use super::{Relief, SweepSettings};
use crate::Error;
use base::{Instant, Lsn};
use executor::Turn;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// When checkpoints are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// After this many bytes of log; `None` for never.
    pub log_bytes: Option<u64>,
    /// After this many nanoseconds; `None` for never.
    pub interval_ns: Option<u64>,
}

impl Policy {
    /// Only when asked, as when a database is closed.
    pub const OFF: Policy = Policy { log_bytes: None, interval_ns: None };

    /// Whether the next checkpoint is due after this many bytes of log and nanoseconds since one began.
    pub(crate) fn is_due(&self, bytes: u64, ns: u64) -> bool {
        let by_size = self.log_bytes.is_some_and(|limit| bytes >= limit);
        let by_time = self.interval_ns.is_some_and(|limit| ns >= limit);
        by_size || (by_time && bytes > 0)
    }
}

/// The checkpointer's memory between two checkpoints.
pub(crate) struct Checkpointer {
    pub policy: Policy,
    /// How sets are swept.
    pub sweep: SweepSettings,
    /// The end of the log when the last checkpoint began, but for one that has failed before the next was due: pages dirty since before
    /// it are old.
    pub last_begin: Cell<Lsn>,
    /// When that was.
    pub last_begun_at: Cell<Instant>,
    /// The same of the last one that has not failed: the next one is due behind that.
    pub last_success: Cell<Lsn>,
    /// Where the last checkpoint of this opening has redo begin.
    pub redo_start: Cell<Lsn>,
    /// Whether the last checkpoint was that of an opening which has left what it has redone to the next one.
    pub is_put_off: Cell<bool>,
    /// Whether that of the opening has failed, and none has done since what it was for.
    pub has_restart_failed: Cell<bool>,
    /// The end of the log when the last sweep over sets began.
    pub swept: Cell<Lsn>,
    /// The turn to checkpoint pages.
    pub paging: Turn,
    /// The turn to sweep over sets.
    pub sweeping: Turn,
    /// Whether a bulk load has that turn.
    pub is_loading: Cell<bool>,
    /// Whether a sweep can go on only when transactions end.
    pub is_stalled: Cell<bool>,
    /// How many wait for a sweep to end.
    pub urgent: Cell<u32>,
    /// The turn to write the superblock file.
    pub turn: Turn,
    /// Whether the server that sweeps was started.
    pub serves_sets: Cell<bool>,
    /// Whether a write of the superblock file failed, and none has succeeded since.
    pub superblock_unsure: Cell<bool>,
    /// Checkpoints that are taken because tasks wait for room in the log.
    pub relief: Rc<Relief>,
    /// Why the last checkpoint of pages failed, and why the last sweep did.
    pub failures: [RefCell<Option<Error>>; 2],
    /// How often either has failed.
    pub failed: Cell<u64>,
}

impl Checkpointer {
    /// A checkpointer that has yet to take its first checkpoint.
    pub fn new(policy: Policy, sweep: SweepSettings) -> Checkpointer {
        Checkpointer {
            policy,
            sweep,
            last_begin: Cell::new(Lsn::ZERO),
            last_begun_at: Cell::default(),
            last_success: Cell::new(Lsn::ZERO),
            redo_start: Cell::new(Lsn::ZERO),
            is_put_off: Cell::new(false),
            has_restart_failed: Cell::new(false),
            swept: Cell::new(Lsn::ZERO),
            paging: Turn::new(),
            sweeping: Turn::new(),
            is_loading: Cell::new(false),
            is_stalled: Cell::new(false),
            urgent: Cell::new(0),
            turn: Turn::new(),
            serves_sets: Cell::new(false),
            superblock_unsure: Cell::new(false),
            relief: Rc::default(),
            failures: Default::default(),
            failed: Cell::new(0),
        }
    }

    /// Why the last checkpoint of pages or the last sweep failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.failures.iter().find_map(|failure| failure.borrow().clone())
    }
}
