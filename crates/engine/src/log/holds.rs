//! What backups need of the log, which they copy before its space is given up.
//!
//! A hold keeps the log from its position on. It is broken when the log has been full of what it holds for a second and it has
//! not moved, so that transactions do not wait for it for longer, and its owner learns of that.

use super::Log;
use base::time::SECOND_NS;
use base::{Instant, Lsn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// For how long transactions may wait for a hold that does not move, in nanoseconds.
const PATIENCE_NS: u64 = SECOND_NS;

/// The holds of a log.
#[derive(Default)]
pub(super) struct Holds {
    held: RefCell<BTreeMap<u64, HeldLog>>,
    next: Cell<u64>,
    /// What could be given up but for holds.
    asked: Cell<Lsn>,
}

struct HeldLog {
    from: Lsn,
    /// When it moved last.
    moved: Instant,
}

impl Holds {
    /// Notes that everything before this is needed by holds alone.
    pub(super) fn note_asked(&self, before: Lsn) {
        self.asked.set(self.asked.get().max(before));
    }

    /// The oldest position that is held. Where the log is full of what could be given up but for holds, those that
    /// have not moved for long are broken first.
    pub(super) fn oldest(&self, is_full: bool, now: impl Fn() -> Instant) -> Lsn {
        let mut held = self.held.borrow_mut();
        let asked = self.asked.get();
        let is_stuck = |hold: &HeldLog| hold.from < asked && now().since_ns(hold.moved) >= PATIENCE_NS;
        if is_full {
            held.retain(|_, hold| !is_stuck(hold));
        }
        held.values().map(|hold| hold.from).min().unwrap_or(Lsn::MAX)
    }
}

/// Keeps the log from a position on, until this is dropped.
pub(crate) struct LogHold {
    log: Rc<Log>,
    number: u64,
}

impl LogHold {
    /// What is before `from` is not needed any more.
    pub(crate) fn move_to(&self, from: Lsn) {
        if let Some(held) = self.log.holds.held.borrow_mut().get_mut(&self.number) {
            (held.from, held.moved) = (held.from.max(from), self.log.executor.now());
        }
        self.log.truncate(self.log.holds.asked.get());
    }

    /// Whether the log was given up nevertheless, because it was full.
    pub(crate) fn is_broken(&self) -> bool {
        !self.log.holds.held.borrow().contains_key(&self.number)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.log.holds.held.borrow_mut().remove(&self.number);
        self.log.truncate(self.log.holds.asked.get());
    }
}

impl Log {
    /// Keeps everything that the log has now.
    pub(crate) fn hold(self: &Rc<Self>) -> LogHold {
        let number = self.holds.next.get();
        self.holds.next.set(number + 1);
        let held = HeldLog { from: self.oldest(), moved: self.executor.now() };
        self.holds.held.borrow_mut().insert(number, held);
        LogHold { log: Rc::clone(self), number }
    }
}
