//! What keeps two records from having the same contents in the fields of a unique index.
//!
//! Contents have a place in a unique index, which one record has at most. A change of a record locks the places that it leaves and those that
//! it comes to, exclusively, to the end of its transaction and at every level of isolation, and leaves the old ones first. So who has the lock
//! of a place sees there what is committed or what it has done itself: no record that may be taken back yet, and none is missing that may come
//! back. What a place has is looked up as it is now, never as of a moment; a transaction that reads a moment gives up if another one has
//! changed the place since. The lock of a place that was taken is kept, so that being refused comes out the same again.
//!
//! In a b-tree the entry that stands for the place is locked, as each entry is. The entries of a set are told by their keys, too, and what is locked
//! of them are gaps; so a place has a lock of its own there.

use super::Transaction;
use super::records::LockStep;
use crate::catalog::{Partition, SecondaryIndex};
use crate::engine::Isolation;
use crate::version::View;
use crate::{Error, Result};
use base::PartitionId;
use std::ops::Bound;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Mode, Resource};
use structures::set::Sets;

/// The place of these contents in an index of a set.
fn place_in_set(partition: PartitionId, secondary: usize, of: &[u8]) -> Resource {
    Resource::secondary_place(partition, secondary, key_hash(of))
}

impl Transaction {
    /// Whether the place of an entry in the b-tree of a unique index, whose lock is held, may be taken.
    ///
    /// # Errors
    /// [`Error::WriteConflict`] if it was changed since the transaction's moment: the record that had it may still be seen.
    pub(super) fn check_place(&self, index: &SecondaryIndex, tree: PartitionId, entry: &[u8]) -> Result<()> {
        if !index.is_unique || !index.is_ready() {
            return Ok(());
        }
        self.check_conflict(tree, Resource::record(tree, key_hash(entry)), Mode::Exclusive)
    }

    /// Locks the places that a record of a set leaves and comes to in a unique index, and looks whether another record has the latter. None if
    /// a lock has to be waited for first.
    ///
    /// # Errors
    /// [`Error::Field`] if it does, and as [`Transaction::check_place`].
    pub(super) fn take_place(
        &self,
        sets: &Sets,
        (found, index): (&Partition, &SecondaryIndex),
        (key, new): (&[u8], Option<&[u8]>),
        (from, to): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<LockStep<()>> {
        let (partition, Some(number)) = (found.id(), index.number()) else { return Ok(LockStep::Done(())) };
        for of in [from, to].into_iter().flatten() {
            let (place, locks) = (place_in_set(partition, number, of), &self.engine.core.locks);
            let is_planted = canary::is_planted(Canary::UnlockedPlace);
            if !is_planted && locks.try_acquire(self.state.owner, place, Mode::Exclusive).is_none() {
                return Ok(LockStep::Wait(place, Mode::Exclusive));
            }
        }
        let (Some(to), Some(new)) = (to, new) else { return Ok(LockStep::Done(())) };
        let present = sets.other_with(partition, number, to, key);
        if index.is_ready() {
            self.check_place_in_set((found, index), to, present)?;
        }
        let Some(present) = present else { return Ok(LockStep::Done(())) };
        if !index.is_ready() {
            // A restart may know nothing of the index.
            self.mark_not_replayable()?;
        }
        Err(found.not_unique(index, new, (present, key)))
    }

    fn check_place_in_set(
        &self,
        (found, index): (&Partition, &SecondaryIndex),
        of: &[u8],
        present: Option<&[u8]>,
    ) -> Result<()> {
        if self.state.isolation != Isolation::Snapshot || canary::is_planted(Canary::LostUpdate) {
            return Ok(());
        }
        let view = View { at: self.state.at, owner: self.state.owner };
        let (versions, Some(number)) = (self.engine.versions.versions().borrow(), index.number()) else {
            return Ok(());
        };
        if !versions.is_place_changed_since(view, (found.id(), number), of, present)? {
            return Ok(());
        }
        Err(self.abort(Error::WriteConflict(found.index_name(&index.name))))
    }

    /// Before a record of a set is loaded, beside which no other transaction changes it: whether another one has its place in a unique index.
    ///
    /// # Errors
    /// [`Error::Field`] if one has.
    pub(crate) fn check_loaded(&self, found: &Partition, key: &[u8], value: &[u8]) -> Result<()> {
        let sets = self.engine.sets.sets.borrow();
        let indexes = found.schema.iter().flat_map(|schema| &schema.secondaries);
        for index in indexes.filter(|index| index.is_unique) {
            let Some(number) = index.number() else { continue };
            let of = sets.secondary_key(found.id(), number, value);
            let present = of.and_then(|of| sets.other_with(found.id(), number, &of, key));
            if let Some(present) = present {
                return Err(found.not_unique(index, value, (present, key)));
            }
        }
        Ok(())
    }

    /// Whether two records of a set have these contents in a unique index that is being built, once no transaction is about to change that.
    ///
    /// # Errors
    /// [`Error::Field`] if they do; those of waiting for a lock.
    pub(crate) async fn check_unique(&mut self, found: &Partition, index: &SecondaryIndex, of: &[u8]) -> Result<()> {
        let (partition, Some(number)) = (found.id(), index.number()) else { return Ok(()) };
        self.lock(place_in_set(partition, number, of), Mode::Shared).await?;
        let keys: Vec<Vec<u8>> = {
            let sets = self.engine.sets.sets.borrow();
            let entries = sets.entries_beyond(partition, number, Bound::Included((of, &[])));
            entries.take_while(|entry| entry.0 == of).take(2).map(|(_, key)| key.to_vec()).collect()
        };
        let [one, other] = &keys[..] else { return Ok(()) };
        let show = |value: Option<&[u8]>| found.not_unique(index, value.unwrap_or_default(), (one, other));
        Err(self.get_in_set_with(partition, (other, key_hash(other)), show).await?)
    }
}
