//! Room in the log that is promised: to a transaction that is run again because it had none at its commit.

use super::Log;
use std::cell::Cell;

/// Promises of room.
#[derive(Default)]
pub(super) struct Claims {
    /// Bytes that are promised.
    reserved: Cell<u64>,
    /// How many wait for room that they will be promised.
    waiting: Cell<u32>,
    /// What the last page has left empty that was written for the sake of data pages, in bytes, until a transaction bears it.
    padding: Cell<u64>,
}

/// While this exists, new work waits.
pub(crate) struct Claim<'a>(&'a Log);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let waiting = &self.0.claims.waiting;
        waiting.set(waiting.get() - 1);
        self.0.wake_for_room();
    }
}

impl Log {
    /// From now on leaves at least `bytes` bytes beside what it has promised. Work that has not begun waits where less than that
    /// is left: its first change would be refused, however often it were tried again.
    pub(crate) fn keep_margin(&self, bytes: u64) {
        self.margin_min.set(bytes);
        self.limit.set(self.circle.size - self.kept_of(self.circle.size));
        self.note_extents();
    }

    /// What is left of a file of `extent` bytes beside what was promised to rollbacks, some of it for checkpoints, in bytes.
    #[inline]
    pub(crate) fn margin(&self, extent: u64) -> u64 {
        // Half of a log of very few pages has to do.
        (extent / 16).max(self.margin_min.get()).min(extent / 2)
    }

    /// What work that has not begun leaves of a file of `extent` bytes, in bytes.
    pub(super) fn kept_of(&self, extent: u64) -> u64 {
        ((extent as f64 * self.settings.reserve) as u64).max(self.margin(extent))
    }

    /// At most what a record of `length` bytes takes in the log, with the page that it begins on and the rest of the last one.
    pub(crate) fn bytes_for(&self, length: u64) -> u64 {
        self.settings.bytes_for(length)
    }

    /// Has new work wait.
    pub(crate) fn claim(&self) -> Claim<'_> {
        self.claims.waiting.set(self.claims.waiting.get() + 1);
        Claim(self)
    }

    /// Whether new work has to wait for others that were refused room before, or have been promised it.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        self.claims.waiting.get() > 0 || self.used() + self.reserved() > self.limit.get() && self.reserved() > 0
    }

    /// Whether new work waits for promised room that a checkpoint could make. Beside promises of nearly all of the log none can.
    pub(crate) fn is_short_of_promised(&self) -> bool {
        let reserved = self.reserved();
        reserved > 0
            && self.used() + reserved > self.limit.get()
            && reserved + self.circle.size / 16 <= self.limit.get()
    }

    /// Bytes that are promised.
    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        self.claims.reserved.get()
    }

    /// Promises `bytes` bytes, until [`Log::release`].
    pub(crate) fn reserve(&self, bytes: u64) {
        self.claims.reserved.set(self.claims.reserved.get() + bytes);
    }

    /// Takes a promise back, whether or not it was used.
    pub(crate) fn release(&self, bytes: u64) {
        self.claims.reserved.set(self.claims.reserved.get() - bytes);
        self.wake_for_room();
    }

    /// Notes that a page was written with `bytes` bytes left empty, because data pages had to be written, not for a commit. Of two before the
    /// next update the larger one counts: the other is that of what is undone beside it.
    pub(crate) fn note_padding(&self, bytes: u64) {
        self.claims.padding.set(self.claims.padding.get().max(bytes));
    }

    /// The same for an update that counts, once: the update that begins the next page. Its rollback will bring the same pages, in whose
    /// place others are written, so it needs as much.
    #[inline]
    pub(crate) fn take_padding(&self) -> u64 {
        self.claims.padding.take()
    }

    /// Bytes that hold nothing needed and are promised to no task other than the caller, which has `own` bytes promised.
    #[inline]
    pub(crate) fn free_beside(&self, own: u64) -> u64 {
        (self.free() + own).saturating_sub(self.reserved())
    }
}
