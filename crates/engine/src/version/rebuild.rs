//! Versions made again at an opening, from the undo records of the log: what came before the opening can be read after it.
//!
//! An undo record says what a record was before a change, and names it by its key, so it is a version, wherever the record is by now.
//! The log is gone through in its order, which is that of the locks, so changes, rollbacks and commits come as they did at run time, and go the same
//! ways. What records of sets and long values were stands in records of their own (`transaction/past_log.rs`). What the log does not say is unknown
//! for earlier moments, of a partition at a time (`emptied.rs`): a long value that could not be read when it was freed.

use super::chain::Target;
use super::fences::Fences;
use super::ghosts::Ghosts;
use super::keep::object_at;
use super::loads::Loads;
use super::moments::Moments;
use super::own::OwnChange;
use super::{Emptied, Records, VersionStore};
use crate::catalog::Organization;
use base::{Instant, Lsn, PartitionId};
use std::rc::Rc;
use structures::key_hash;
use structures::lock::{Owner, Resource};
use structures::organization::append::{self, Position};
use structures::organization::b_tree::stored;
use structures::undo::Undo;

impl VersionStore {
    /// Versions will be made again.
    pub(crate) fn begin_rebuild(&self) {
        self.is_kept.set(true);
    }

    /// Moments from `horizon` on can be read. Before this is said purging takes away what earlier ones need.
    pub(crate) fn set_horizon(&self, horizon: Lsn) {
        self.versions.borrow_mut().horizon = horizon;
    }

    /// Makes the version before an update of a partition that is there still, of which there is its undo record. What the partition was before
    /// `since` is unknown if the update is of no record. False if another transaction has changed the record and not ended, which
    /// contradicts its lock.
    pub(crate) fn keep_recorded(
        &self,
        records: Records<'_>,
        (owner, number): (Owner, usize),
        undo: &Undo<'_>,
        since: Lsn,
    ) -> bool {
        let is_of = |is_organized: fn(&Organization) -> bool| {
            let partitions = records.partitions.borrow();
            partitions.get_or_hidden(undo.partition()).is_some_and(|found| is_organized(&found.organization))
        };
        let record = match *undo {
            Undo::Remove { key, .. }
            | Undo::Insert { key, .. }
            | Undo::Replace { key, .. }
            | Undo::PatchValue { key, .. } => {
                is_of(|found| matches!(found, Organization::BTree)).then(|| key_hash(key))
            }
            Undo::EraseAppended { page, slot } => is_of(|found| matches!(found, Organization::Append { .. }))
                .then(|| append::number(Position { page, slot })),
            Undo::PatchPage { page, offset, bytes } => {
                object_at(records, page, offset, bytes.len()).map(|(object, ..)| object)
            }
            Undo::FreePage { .. } => return true,
        };
        let Some(record) = record else {
            // Nodes may change any part of a page.
            self.forget_partition(undo.partition(), since);
            return true;
        };
        let is_free = self.is_free_for(owner, Resource::record(undo.partition(), record));
        if is_free {
            self.keep_undo(records, owner, number, undo);
        }
        is_free
    }

    /// A transaction has undone its updates from this number on. Others may change what these have changed before it has ended: an opening locks
    /// again only what is left to be undone.
    pub(crate) fn rebuild_undone(&self, owner: Owner, updates: usize) {
        self.versions.borrow_mut().roll_back_updates_to(owner, updates);
    }

    /// Whether no other transaction that has not ended has changed a record, and not undone that.
    fn is_free_for(&self, owner: Owner, name: Resource) -> bool {
        let head = self.versions.borrow().heads.get(name).target();
        !matches!(head, Target::Private(of, _) if of != owner)
    }

    /// Makes the version before a transaction's changes of a record of a set, if that is there still. False as above.
    pub(crate) fn rebuild_set_change(&self, records: Records<'_>, change: (Owner, usize), undo: &Undo<'_>) -> bool {
        let (partition, key, before) = match *undo {
            Undo::Remove { partition, key } => (partition, key, None),
            Undo::Replace { partition, key, value } => (partition, key, Some(value)),
            _ => return false,
        };
        let is_set = {
            let partitions = records.partitions.borrow();
            partitions.get_or_hidden(partition).is_some_and(|found| found.set_settings().is_some())
        };
        let ((owner, number), name) = (change, Resource::record(partition, key_hash(key)));
        if !is_set {
            return true;
        }
        let is_free = self.is_free_for(owner, name);
        if is_free {
            // Whatever has become of it since: the sets are as they are at the log's end.
            let present = records.sets.borrow().peek(partition, key, key_hash(key)).map(|present| present.is_some());
            let is_gone = before.is_some() && present != Ok(true);
            self.keep_set_record(records, (owner, OwnChange::OfSet(number)), (partition, key), (before, is_gone));
        }
        is_free
    }

    /// Makes the version before an update whole, which refers to a long value that is no more. Updates come in their order, so it is looked for
    /// from version `from` on; returns where it is looked for the next one.
    pub(crate) fn make_whole(&self, (owner, from): (Owner, usize), update: usize, value: &[u8]) -> usize {
        let mut versions = self.versions.borrow_mut();
        let (number, is_found) = versions.own_version(owner, from, update);
        if is_found {
            let mut whole = Vec::new();
            stored::store_here(value, &mut whole);
            versions.replace(owner, number, &whole);
        }
        number
    }

    /// A transaction was committed by the record at `commit`, at this time by the calendar; moments from before that do not know what partitions were in which
    /// it gave up long values.
    pub(crate) fn rebuild_commit(self: &Rc<Self>, records: Records<'_>, owner: Owner, commit: Lsn, unix_ns: u64) {
        self.give_up_unread(records, owner, commit);
        self.versions.borrow_mut().commit(owner, commit, Instant::from_ns(unix_ns));
        self.relieve_memory();
    }

    /// Long values that a transaction gives up by its commit, and that were not made whole, are in no version: what their partitions were before
    /// is unknown.
    pub(crate) fn give_up_unread(&self, records: Records<'_>, owner: Owner, commit: Lsn) {
        let mut versions = self.versions.borrow_mut();
        let is_tree = |partition| records.partitions.borrow().is_tree(partition);
        let (mut nothing, mut from) = (Vec::new(), 0);
        stored::store_here(&[], &mut nothing);
        while let Some((number, partition, ..)) = versions.long_value((owner, from), is_tree) {
            versions.replace(owner, number, &nothing);
            versions.forget_partition(partition, commit);
            from = number + 1;
        }
    }

    /// The state at this moment was there at this time by the calendar.
    pub(crate) fn rebuild_moment(&self, moment: Lsn, unix_ns: u64) {
        self.versions.borrow_mut().moments.note(Instant::from_ns(unix_ns), moment);
    }

    /// What a partition was before this moment is unknown.
    pub(crate) fn forget_partition(&self, partition: PartitionId, since: Lsn) {
        self.versions.borrow_mut().forget_partition(partition, since);
    }

    /// All is made that can be.
    pub(crate) fn end_rebuild(&self) {
        let mut versions = self.versions.borrow_mut();
        versions.own.clear();
        versions.purge(self.now());
        self.is_rebuilt.set(true);
    }

    /// Forgets what was made: moments before the opening cannot be read.
    pub(crate) fn abandon_rebuild(&self) {
        let mut versions = self.versions.borrow_mut();
        versions.heads.clear();
        versions.own.clear();
        (versions.ghosts, versions.moments) = (Ghosts::default(), Moments::default());
        (versions.fences, versions.loads, versions.emptied) = (Fences::default(), Loads::default(), Emptied::default());
        while versions.history.take_oldest(Lsn::MAX).is_some() {}
        (versions.horizon, versions.given_up) = (self.present(), 0);
    }
}
