//! When commits were made.
//!
//! Positions say nothing of the calendar, so a log that is archived, or whose moments can be read for a time, has its time now and then
//! (`Body::Time`): before the first commit, or change of a partition as such, of each millisecond.
//!
//! For moments it says beside that how far back the transactions reach that have not ended. A reader of the log from any place on
//! learns from that from which moment on it knows all that was committed.

use super::Log;
use super::record::Body;
use base::time::MILLISECOND_NS;
use base::{Lsn, PartitionId, TransactionId};
use std::cell::Cell;

/// Commits nearer to each other in time count as one, in nanoseconds.
const RESOLUTION_NS: u64 = MILLISECOND_NS;

/// What the log says of the time.
#[derive(Debug, Default)]
pub(super) struct SaidTime {
    /// Whether it says anything.
    pub(super) is_said: Cell<bool>,
    /// Whether moments can be read for a time.
    keeps_moments: Cell<bool>,
    /// What it has said last, in nanoseconds since 1970.
    last_ns: Cell<u64>,
}

impl Log {
    /// From now on the log says what it takes to read moments after the next opening.
    pub(crate) fn keep_moments(&self) {
        self.time.is_said.set(true);
        self.time.keeps_moments.set(true);
    }

    /// Whether the log says when commits are made, and what else it takes to come back to a moment.
    pub(crate) fn says_time(&self) -> bool {
        self.time.is_said.get()
    }

    /// Says when the commit is made, or the partition changed, that is logged next. `first` is where the records of the transactions
    /// begin that have not ended, if they have any.
    #[inline]
    pub(crate) fn note_time(&self, first: impl FnOnce() -> Option<Lsn>) {
        if self.time.is_said.get() {
            self.say_time(first);
        }
    }

    /// Says that a load ends, if anyone is to know. Returns the record's LSN.
    pub(crate) fn note_load(&self, partition: PartitionId, first: impl FnOnce() -> Option<Lsn>) -> Option<Lsn> {
        if !self.time.is_said.get() {
            return None;
        }
        self.note_time(first);
        Some(self.append(TransactionId::SYSTEM, &Body::Loaded { partition }, std::iter::empty()))
    }

    #[cold]
    fn say_time(&self, first: impl FnOnce() -> Option<Lsn>) {
        let unix_ns = self.executor.unix_ns();
        let said_ns = self.time.last_ns.get();
        // The clock may have been set back.
        if unix_ns >= said_ns.saturating_add(RESOLUTION_NS) || unix_ns < said_ns {
            self.time.last_ns.set(unix_ns);
            let oldest = self.time.keeps_moments.get().then(|| first().unwrap_or(Lsn::MAX).min(self.end()));
            self.append(TransactionId::SYSTEM, &Body::Time { unix_ns, oldest }, std::iter::empty());
        }
    }
}
