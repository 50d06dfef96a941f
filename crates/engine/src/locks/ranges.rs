//! Ranges of keys: what a scan holds instead of a lock on each record, and what those who change records look for.

use super::Locks;
use base::{Lsn, PartitionId};
use std::ops::Bound;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Attempt, KeySpan, Mark, Mode, Owner, Resource};

impl Locks {
    /// Whether there are ranges that a change of another owner could meet.
    #[inline]
    pub(crate) fn are_ranges_held(&self) -> bool {
        self.are_ranges_held.get()
    }

    /// Locks a range of keys for reading, whose records the owner was admitted to ([`Locks::admits`]) since the present step began.
    /// Returns the LSN that must be durable before anything may be told that the range shows, and what has to be waited for first, in
    /// shared mode, if another owner deletes a record within, or waits to change one: the range is locked up to there then from its lower
    /// end, or down to there from its upper one if it is `backward`.
    pub(crate) fn lock_range(
        &self,
        (owner, began): (Owner, u64),
        partition: PartitionId,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        backward: bool,
    ) -> (Lsn, Option<Resource>) {
        let mut ranges = self.ranges.borrow_mut();
        let span = KeySpan::new(lower, upper);
        let is_locked = |key: &[u8]| {
            let record = Resource::record(partition, key_hash(key));
            self.table.borrow().holds(owner, record).is_some()
        };
        let obstacle = ranges.obstacle(owner, partition, &span, backward, is_locked);
        let span = match &obstacle {
            None => span,
            Some((key, _)) if backward => span.above(key),
            Some((key, _)) => span.below(key),
        };
        if let Some(number) = ranges.hold(owner, partition, span) {
            self.are_ranges_held.set(true);
            let _granted =
                self.table.borrow_mut().request(owner, Resource::ranges(partition, number), Mode::Shared, began);
        }
        let obstacle = obstacle.map(|(key, mark)| match mark {
            Mark::Deleted => Resource::record(partition, key_hash(&key)),
            Mark::Intended => Resource::intent(partition, key_hash(&key)),
        });
        (ranges.dependency(partition), obstacle)
    }

    /// Whether the owner could have the resource at once, or has it. Returns the LSN that must be durable before anything may be
    /// told that is read under its lock.
    #[inline]
    pub(crate) fn admits(&self, owner: Owner, resource: Resource, mode: Mode) -> Option<Lsn> {
        let table = self.table.borrow();
        table.would_grant(owner, resource, mode).then(|| table.dependency(resource))
    }

    /// Whether the key is in a range that the owner has read.
    pub(crate) fn has_read(&self, owner: Owner, partition: PartitionId, key: &[u8]) -> bool {
        self.ranges.borrow().holds(owner, partition, key)
    }

    /// What a change of a key has to wait for, and in which mode: another owner has read a range around it. Who reads a range
    /// from now on waits for this owner.
    pub(crate) fn await_readers(&self, owner: Owner, partition: PartitionId, key: &[u8]) -> Option<(Resource, Mode)> {
        let mut ranges = self.ranges.borrow_mut();
        let readers = Resource::ranges(partition, ranges.reader_around(owner, partition, key)?);
        let intent = Resource::intent(partition, key_hash(key));
        if self.table.borrow_mut().try_request(owner, intent, Mode::Exclusive) == Attempt::Denied {
            // The one that has it waits for this one, if that has read the key, too.
            let is_reader = ranges.holds(owner, partition, key);
            return Some(if is_reader { (readers, Mode::InsertIntention) } else { (intent, Mode::Exclusive) });
        }
        ranges.mark(owner, partition, key, Mark::Intended);
        Some((readers, Mode::InsertIntention))
    }

    /// The owner, which holds the record's lock exclusively, deletes it: who reads a range around it will wait.
    pub(crate) fn note_deleted(&self, owner: Owner, partition: PartitionId, key: &[u8]) {
        self.ranges.borrow_mut().mark(owner, partition, key, Mark::Deleted);
        self.are_keys_marked.set(true);
    }

    /// The owner does not make the change for which it may have waited for readers: others read on.
    #[cold]
    pub(super) fn withdraw_change(&self, owner: Owner) {
        let withdrawn = self.ranges.borrow_mut().withdraw(owner);
        let mut granted = Vec::new();
        for (partition, key) in withdrawn {
            self.table.borrow_mut().release(owner, Resource::intent(partition, key_hash(&key)), &mut granted);
        }
        self.wake(granted);
    }

    /// The owner asks for the end of a partition, to read up to there. To be called before, since the lock may be granted in a step of
    /// another owner.
    pub(crate) fn note_end_reader(&self, owner: Owner) {
        let mut readers = self.end_readers.borrow_mut();
        if !readers.contains(&owner) {
            readers.push(owner);
        }
        self.are_ends_read.set(true);
    }

    /// Lets an owner add a record at the end of a partition; false if it has to wait for one that has read up to there.
    #[inline]
    pub(crate) fn pass_end(&self, owner: Owner, partition: PartitionId) -> bool {
        !self.are_ends_read.get() || self.pass_read_end(owner, Resource::end_gap(partition))
    }

    #[cold]
    fn pass_read_end(&self, owner: Owner, end: Resource) -> bool {
        canary::is_planted(Canary::PassedEnd)
            || !self.is_held(end)
            || self.pass(owner, end, Mode::InsertIntention).is_some()
    }

    /// Gives back the ranges and marks of an owner.
    #[inline]
    pub(super) fn release_ranges(&self, owner: Owner, commit: Option<Lsn>) {
        if self.are_ranges_held.get() || self.are_keys_marked.get() {
            self.end_ranges(owner, commit);
        }
        if self.are_ends_read.get() {
            self.forget_end_reader(owner);
        }
    }

    #[cold]
    fn forget_end_reader(&self, owner: Owner) {
        let mut readers = self.end_readers.borrow_mut();
        readers.retain(|reader| *reader != owner);
        self.are_ends_read.set(!readers.is_empty());
    }

    #[cold]
    fn end_ranges(&self, owner: Owner, commit: Option<Lsn>) {
        let mut ranges = self.ranges.borrow_mut();
        ranges.end(owner, commit);
        self.are_ranges_held.set(ranges.has_readers());
        self.are_keys_marked.set(ranges.has_marks());
    }

    /// How many ranges an owner has read in a partition.
    pub fn ranges(&self, owner: Owner, partition: PartitionId) -> usize {
        self.ranges.borrow().ranges(owner, partition)
    }

    /// How much memory locks take, in bytes.
    pub fn bytes(&self) -> usize {
        self.table.borrow().bytes() + self.ranges.borrow().bytes()
    }
}
