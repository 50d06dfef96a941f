//! Keeping phantoms out of what was read in b-trees and at the ends of append partitions.
//!
//! A range read locks the keys that it has seen or missed, as one range (`structures::lock::KeyRanges`), and no record: it only makes
//! sure that it could have the lock of each. Who changes a record asks twice whether another transaction has read a range around
//! its key. Once before its record is locked, so that a reader goes on having all rights within its ranges while it is waited
//! for; from then on a reader meets the lock of a record that is there. And once more in the step that inserts one, since a reader
//! does not see what is not there yet. A deleted record is marked, for the same reason.

use super::Direction;
use super::Transaction;
use super::cursor::Cursor;
use crate::Result;
use crate::locks::Ungranted;
use base::PartitionId;
use std::ops::Bound;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Mode, Resource};

/// What a key's own lock is asked for after.
pub(super) enum BeforeLock {
    /// Nothing.
    Nothing,
    /// It is not asked for: the transaction has read a range around the key.
    Covered,
    /// This lock, which was not granted at once.
    Blocked(Resource, Ungranted),
}

impl Transaction {
    /// What others, or this transaction itself, have read around a key whose record's lock is to be asked for.
    #[cold]
    pub(super) fn before_lock(&mut self, partition: PartitionId, key: &[u8], mode: Mode) -> BeforeLock {
        let locks = &self.engine.core.locks;
        if mode == Mode::Shared && locks.has_read(self.state.owner, partition, key) {
            return BeforeLock::Covered;
        }
        if mode != Mode::Exclusive {
            return BeforeLock::Nothing;
        }
        match self.meet_readers(partition, key) {
            None => BeforeLock::Nothing,
            Some((resource, mode)) => match self.request(resource, mode) {
                Some(ungranted) => BeforeLock::Blocked(resource, ungranted),
                None => unreachable!("another transaction holds {resource}"),
            },
        }
    }

    /// What has to be waited for before a key is changed: another transaction has read a range around it.
    #[inline]
    pub(super) fn meet_readers(&self, partition: PartitionId, key: &[u8]) -> Option<(Resource, Mode)> {
        let locks = &self.engine.core.locks;
        if locks.are_ranges_held() { locks.await_readers(self.state.owner, partition, key) } else { None }
    }

    /// Waits until no other transaction has read a range around a key.
    #[inline]
    pub(super) async fn pass_readers(&mut self, partition: PartitionId, key: &[u8]) -> Result<()> {
        while let Some((resource, mode)) = self.meet_readers(partition, key) {
            self.lock(resource, mode).await?;
        }
        Ok(())
    }

    /// Lets a record be added at the end of a partition; false if it has to wait for a transaction that has read up to the end.
    #[inline]
    pub(super) fn pass_end(&self, partition: PartitionId) -> bool {
        self.engine.core.locks.pass_end(self.state.owner, partition)
    }

    /// Keeps others from adding a record at the end of a partition.
    pub(super) async fn lock_end(&mut self, partition: PartitionId) -> Result<()> {
        self.engine.core.locks.note_end_reader(self.state.owner);
        self.lock(Resource::end_gap(partition), Mode::Shared).await
    }

    /// Whether a cursor may show this record. Otherwise returns what has to be waited for.
    pub(super) fn meet_record(&self, cursor: &Cursor, key: &[u8]) -> Option<Resource> {
        if !cursor.takes_locks() {
            return None;
        }
        let (locks, owner, partition) = (&self.engine.core.locks, self.state.owner, cursor.partition());
        let record = Resource::record(partition, key_hash(key));
        match locks.admits(owner, record, Mode::Shared) {
            Some(dependency) => self.state.depend_on(dependency),
            None if locks.has_read(owner, partition, key) => {}
            None => return Some(record),
        }
        None
    }

    /// Locks what a cursor has seen: the keys between two bounds, `last` the last record among them. Returns what has to be waited for.
    pub(super) fn lock_seen(
        &self,
        cursor: &Cursor,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        last: Option<&[u8]>,
    ) -> Option<Resource> {
        if !cursor.takes_locks() {
            return None;
        }
        if canary::is_planted(Canary::UnlockedGap) {
            return last.and_then(|key| self.lock_keys(cursor, (Bound::Included(key), Bound::Included(key))));
        }
        if let Some(key) = last.filter(|_| canary::is_planted(Canary::ShortRange)) {
            let below = self.lock_keys(cursor, (lower, Bound::Excluded(key)));
            return below.or_else(|| self.lock_keys(cursor, (Bound::Excluded(key), upper)));
        }
        self.lock_keys(cursor, (lower, upper))
    }

    fn lock_keys(&self, cursor: &Cursor, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Option<Resource> {
        let (owner, is_backward) = ((self.state.owner, self.state.began), cursor.direction() == Direction::Backward);
        let (dependency, obstacle) = self.engine.core.locks.lock_range(owner, cursor.partition(), bounds, is_backward);
        // Also of the part before an obstacle: what is missing there may be asked for by its key.
        self.state.depend_on(dependency);
        obstacle
    }
}
