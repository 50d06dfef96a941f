//! What backups and the archive need of the log, which they copy before its space is given up.
//!
//! A hold keeps the log from its position on. That of a backup is broken when transactions have waited for a second for what it holds, moving or not,
//! and its owner learns of that. What they have waited is forgiven at a tenth of the time in which they do not.

use super::Log;
use base::time::SECOND_NS;
use base::{Instant, Lsn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// For how long transactions may wait for a hold, in nanoseconds.
const PATIENCE_NS: u64 = SECOND_NS;
/// The share of the time without waiting that makes up for waiting is one to this.
const FORGIVEN: u64 = 10;

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
    /// Whether it is kept however long transactions wait.
    is_firm: bool,
    /// For how long it has been in the way of transactions, less what is forgiven, in nanoseconds.
    waited_ns: u64,
    /// Up to when that is known, and whether it has been in the way from then on.
    known: (Instant, bool),
}

impl HeldLog {
    fn new(from: Lsn, now: Instant) -> HeldLog {
        HeldLog { from, is_firm: false, waited_ns: 0, known: (now, false) }
    }

    /// It is in the way from `now` on, or is not.
    fn note(&mut self, is_in_the_way: bool, now: Instant) {
        let (since, was_in_the_way) = std::mem::replace(&mut self.known, (now, is_in_the_way));
        let passed_ns = now.since_ns(since);
        self.waited_ns = match was_in_the_way {
            true => self.waited_ns + passed_ns,
            false => self.waited_ns.saturating_sub(passed_ns / FORGIVEN),
        };
    }
}

impl Holds {
    /// Notes that everything before this is needed by holds alone.
    pub(super) fn note_asked(&self, before: Lsn) {
        self.asked.set(self.asked.get().max(before));
    }

    /// Whether what a hold keeps from this position on could be given up but for holds.
    pub(super) fn are_in_the_way_from(&self, position: Lsn) -> bool {
        position < self.asked.get()
    }

    /// Notes whether transactions wait for room in the log from now on.
    pub(super) fn note(&self, is_short: bool, now: impl Fn() -> Instant) {
        let asked = self.asked.get();
        for hold in self.held.borrow_mut().values_mut() {
            hold.note(is_short && hold.from < asked, now());
        }
    }

    /// The oldest position that is held. Where transactions wait for what could be given up but for holds, those that they have waited
    /// for too long for are broken first.
    pub(super) fn oldest(&self, is_short: bool, now: impl Fn() -> Instant) -> Lsn {
        self.note(is_short, now);
        let mut held = self.held.borrow_mut();
        held.retain(|_, hold| hold.is_firm || !hold.known.1 || hold.waited_ns < PATIENCE_NS);
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
            held.from = held.from.max(from);
        }
        self.log.truncate(self.log.holds.asked.get());
    }

    /// From where the log is kept.
    pub(crate) fn from(&self) -> Lsn {
        self.log.holds.held.borrow().get(&self.number).map_or(Lsn::MAX, |held| held.from)
    }

    /// Whether what is kept could be given up but for holds.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.log.holds.are_in_the_way_from(self.from())
    }

    /// Whether the log was given up nevertheless, because transactions waited for it.
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
        self.hold_as(false)
    }

    /// The same, however long transactions wait for it.
    pub(crate) fn hold_firmly(self: &Rc<Self>) -> LogHold {
        self.hold_as(true)
    }

    fn hold_as(self: &Rc<Self>, is_firm: bool) -> LogHold {
        let number = self.holds.next.get();
        self.holds.next.set(number + 1);
        let held = HeldLog { is_firm, ..HeldLog::new(self.oldest(), self.executor.now()) };
        self.holds.held.borrow_mut().insert(number, held);
        LogHold { log: Rc::clone(self), number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a hold that moves by a byte every tenth of a second, for ten seconds, while transactions wait for room in `waits`
    /// of ten of them.
    fn held(waits: u64) -> Lsn {
        let holds = Holds::default();
        let at = |tenth: u64| Instant::from_ns(tenth * SECOND_NS / 10);
        holds.held.borrow_mut().insert(0, HeldLog::new(Lsn(1), at(0)));
        holds.note_asked(Lsn(1_000));
        for tenth in 0..100 {
            holds.oldest(tenth % 10 < waits, || at(tenth));
            holds.held.borrow_mut().values_mut().for_each(|hold| hold.from.0 += 1);
        }
        holds.oldest(true, || at(100))
    }

    #[test]
    fn a_hold_that_transactions_wait_for_is_broken_though_it_moves() {
        assert_eq!(held(10), Lsn::MAX);
        assert_eq!(held(3), Lsn::MAX, "they have waited for three seconds, now and then");
        assert_eq!(held(0), Lsn(101));
    }

    #[test]
    fn a_firm_hold_is_kept_however_long_transactions_wait() {
        let holds = Holds::default();
        holds.held.borrow_mut().insert(0, HeldLog { is_firm: true, ..HeldLog::new(Lsn(7), Instant::START) });
        holds.note_asked(Lsn(1_000));
        for second in 0..9 {
            assert_eq!(holds.oldest(true, || Instant::from_ns(second * SECOND_NS)), Lsn(7));
        }
        assert!(holds.are_in_the_way_from(Lsn(7)) && !holds.are_in_the_way_from(Lsn(1_000)));
    }

    #[test]
    fn a_hold_of_what_is_needed_anyway_is_not_in_the_way() {
        let holds = Holds::default();
        holds.held.borrow_mut().insert(0, HeldLog::new(Lsn(7), Instant::START));
        holds.note_asked(Lsn(7));
        for second in 0..9 {
            assert_eq!(holds.oldest(true, || Instant::from_ns(second * SECOND_NS)), Lsn(7));
        }
    }
}
