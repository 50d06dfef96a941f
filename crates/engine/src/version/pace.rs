//! How fast long readers of the past go beside others.
//!
//! A scan is made in steps of about ten microseconds, and yields between them, so that no task waits for more than one. That
//! alone would have it use every moment in which no other task is ready. But a writer waits for the log's device most of the
//! time, and the end of a log write that falls into a step is noticed when the step ends: a reader that never pauses delays
//! every commit by half a step. So long readers together take no more than a share of the thread while others are active.
//!
//! Time is measured by the clock before and after a step, in which the reader does not wait. On described hardware a step takes
//! only the time that it is charged with, so readers are not throttled there. Reading one record takes less than a few looks at
//! the clock, so of many such reads a sample is measured, and counts for all.
//!
//! The share is `[undo] reader_percent`, and a reader uses it after a millisecond of its own steps. Short ranges never
//! rest, nor does any reader while nothing else is active. A reader of single records looks at the clock once in 64
//! reads; a read of the undo space, which is an operation on that thread, counts as eight microseconds.

use super::VersionStore;
use base::time::{MICROSECOND_NS, MILLISECOND_NS};
use base::{Instant, Lsn};
use std::cell::Cell;

/// A reader is long when its steps have taken this time, in nanoseconds. Shorter ones are answered without throttling.
const LONG_NS: u64 = MILLISECOND_NS;
/// What a long reader does between two rests at least, in nanoseconds: one timer serves several short steps.
const SLICE_NS: u64 = 50 * MICROSECOND_NS;
/// One in this number of reads of single records is measured.
const SAMPLE: u64 = 64;
/// No read of a single record is taken to be longer than this, in nanoseconds, for those that were not looked at: what took the
/// thread from one need not have taken it from all.
const SINGLE_NS_MAX: u64 = 10 * MICROSECOND_NS;
/// About what a read of the undo space takes of the thread beside the steps of its reader, in nanoseconds: to submit it, to see
/// its end, and to go on (twice `real/examples/rates.rs`).
const UNDO_READ_NS: u64 = 8 * MICROSECOND_NS;

/// The pace of one reader.
#[derive(Debug, Default)]
pub(crate) struct ReaderPace {
    /// The time of its steps, in nanoseconds.
    taken_ns: Cell<u64>,
    /// That since it last rested.
    slice_ns: Cell<u64>,
    /// Reads of single records.
    single: Cell<u64>,
    /// The last commit when that was last looked at.
    latest: Cell<Lsn>,
    /// Whether it is one of [`Readers::count`].
    is_counted: Cell<bool>,
}

impl ReaderPace {
    /// Notes a read of a single record; whether that one counts for all since the last that did.
    #[inline]
    pub(crate) fn is_sample(&self) -> bool {
        self.single.set(self.single.get() + 1);
        self.single.get().is_multiple_of(SAMPLE)
    }
}

/// What long readers have in common.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// Active transactions that are no reason for a reader to rest: those that can only read, and long readers.
    count: Cell<usize>,
    /// When the share of those that have read is used up.
    paid: Cell<Instant>,
    /// Reads of the undo space that have been counted, for all readers.
    undo_reads: Cell<u64>,
}

impl Readers {
    /// A read-only transaction begins, or a reader has become a long one.
    pub(crate) fn enter(&self, pace: &ReaderPace) {
        if !pace.is_counted.replace(true) {
            self.count.set(self.count.get() + 1);
        }
    }

    /// The end of a reader, whose pace the next one begins with anew.
    pub(crate) fn leave(&self, pace: &ReaderPace) {
        pace.taken_ns.set(0);
        pace.slice_ns.set(0);
        pace.single.set(0);
        if pace.is_counted.take() {
            self.count.set(self.count.get() - 1);
        }
    }

    /// Until when a reader has to pause after it has run for `slice_ns`. The pause of the next one begins where this one ends,
    /// so that all of them share their part of the thread.
    fn rest(&self, slice_ns: u64, now: Instant, percent: u8) -> Instant {
        let began = Instant::from_ns(now.ns().saturating_sub(slice_ns));
        let until = self.paid.get().max(began).plus_ns(slice_ns * 100 / u64::from(percent));
        self.paid.set(until);
        until
    }
}

impl VersionStore {
    /// Makes a step of a reader's, and notes how long that took.
    pub(crate) fn step_of<T>(&self, pace: &ReaderPace, step: impl FnOnce() -> T) -> T {
        let began = self.executor.now();
        let done = step();
        pace.slice_ns.set(pace.slice_ns.get() + self.executor.now().since_ns(began));
        done
    }

    /// Makes a step of a read of a single record. A `pace` is given to one that counts for all since the last that did.
    #[inline]
    pub(crate) fn single_step_of<T>(&self, pace: Option<&ReaderPace>, step: impl FnOnce() -> T) -> T {
        let Some(pace) = pace else { return step() };
        let before_ns = pace.slice_ns.get();
        let done = self.step_of(pace, step);
        let taken_ns = pace.slice_ns.get() - before_ns;
        pace.slice_ns.set(pace.slice_ns.get() + (SAMPLE - 1) * taken_ns.min(SINGLE_NS_MAX));
        done
    }

    /// Yields between two steps of a reader; a long reader also pauses if a transaction is active.
    pub(crate) async fn pace(&self, pace: &ReaderPace, active: impl Fn() -> usize) {
        if pace.slice_ns.get() >= SLICE_NS
            && let Some(until) = self.end_slice(pace, active)
        {
            self.executor.sleep_until(until).await;
        }
        self.executor.yield_until_idle().await;
    }

    /// Until when a reader rests that has read for some time, if it does.
    #[cold]
    fn end_slice(&self, pace: &ReaderPace, active: impl Fn() -> usize) -> Option<Instant> {
        let reader_percent = self.versions.borrow().settings.reader_percent;
        let readers = &self.readers;
        let undo_reads = self.space.statistics().reads;
        let new_reads = undo_reads - readers.undo_reads.replace(undo_reads);
        let slice_ns = pace.slice_ns.take() + new_reads * UNDO_READ_NS;
        pace.taken_ns.set(pace.taken_ns.get() + slice_ns);
        let has_committed = pace.latest.replace(self.present()) != self.present();
        if pace.taken_ns.get() < LONG_NS {
            return None;
        }
        readers.enter(pace);
        let is_alone = active() <= readers.count.get() && !has_committed;
        (!is_alone).then(|| readers.rest(slice_ns, self.executor.now(), reader_percent))
    }
}

#[cfg(test)]
mod tests;
