//! Syncing a log whose commits do not wait for that (`Settings::durable`).
//!
//! Such a log is written as any other, and a commit needs no more. But a page that a power cut leaves on its device must be explained by
//! what it leaves of the log; so what makes pages, partitions or the superblock file durable waits for [`Log::durable`](super::Log::durable), and
//! a sync of all that is written follows. If there is none for a while, one comes by itself. So a power cut takes the end of the log
//! alone, and no more of it than is written in that time.

use super::Log;
use super::duplex::Duplex;
use base::Lsn;
use base::time::MILLISECOND_NS;
use driver::{Completion, Op};
use std::cell::Cell;

/// How long what is written waits for a sync, in nanoseconds: with [`LAZY_WRITE_NS`](super::start::LAZY_WRITE_NS), less than a second
/// after a commit.
pub(super) const LAZY_SYNC_NS: u64 = 800 * MILLISECOND_NS;

/// What is to be synced.
pub(super) struct LazySync {
    /// Everything before this.
    wanted: Cell<Lsn>,
    /// Whether a task waits until it is time for a sync.
    timed: Cell<bool>,
}

impl LazySync {
    pub fn new(durable: Lsn) -> LazySync {
        LazySync { wanted: Cell::new(durable), timed: Cell::new(false) }
    }
}

impl Log {
    /// Begins the sync that a task waits for, if what it waits for is written.
    pub(super) fn sync_lazily(&self) {
        if self.settings.durable || self.failed.borrow().is_some() {
            return;
        }
        let written = self.written.get();
        if self.waiters.first().is_some_and(|lsn| lsn <= written) {
            self.lazy.wanted.set(written);
        }
        match &self.duplex {
            None => self.sync_only_one(),
            Some(duplex) => (0..2).for_each(|index| self.sync_side_lazily(duplex, index)),
        }
        if written > self.durable.get() {
            self.time_sync();
        }
    }

    /// Has what is written now synced in a while at the latest.
    fn time_sync(&self) {
        if self.lazy.timed.replace(true) {
            return;
        }
        let (log, executor) = (self.this.clone(), self.executor.clone());
        self.executor.spawn_in(self.group, 0, async move {
            executor.sleep_ns(LAZY_SYNC_NS).await;
            let Some(log) = log.upgrade() else { return };
            log.lazy.timed.set(false);
            log.lazy.wanted.set(log.written.get());
            log.sync_lazily();
        });
    }

    fn sync_only_one(&self) {
        let written = self.written.get();
        let is_wanted = self.durable.get() < self.lazy.wanted.get().min(written);
        if !is_wanted || self.syncing.replace(true) {
            return;
        }
        let log = self.this.upgrade().expect("borrowed from an Rc");
        self.executor.submit(Op::Sync { file: self.file }, move |completion| log.only_one_synced(written, completion));
    }

    fn only_one_synced(&self, up_to: Lsn, completion: Completion) {
        self.syncing.set(false);
        if self.failed.borrow().is_some() {
            return;
        }
        if let Err(fault) = completion.result {
            return self.fail_by(&fault);
        }
        self.inner.borrow_mut().statistics.syncs += 1;
        self.complete.set(up_to);
        self.note_durable(up_to);
        self.sync_lazily();
    }

    /// The same on one of two devices. One that has been lost leaves the other to catch up with what is durable.
    fn sync_side_lazily(&self, duplex: &Duplex, index: usize) {
        let wanted = self.lazy.wanted.get().max(self.durable.get());
        if let Some((file, up_to)) = self.begin_side_sync(duplex, index, wanted) {
            let log = self.this.upgrade().expect("borrowed from an Rc");
            let op = Op::Sync { file };
            self.executor.submit(op, move |completion| log.side_synced_up_to(index, up_to, completion));
        }
    }
}
