//! Records of b-trees with a type, and their entries in secondary indexes.
//!
//! An index is a b-tree of its own, so what the engine does for records it does for entries: they are logged, taken back, redone, kept for
//! readers of earlier moments, and locked one by one and in ranges. What is left to do here is that a record and its entries change
//! together: in one transaction, wholly or not at all, under the exclusive lock of the record. An entry is changed only under the lock of
//! its record.

use super::Transaction;
use super::half_change::HalfChange;
use crate::Result;
use crate::catalog::{EntryMove, Locking, Partition};
use base::PartitionId;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::key_hash;
use structures::lock::{Mode, Resource};

impl Transaction {
    /// Gives the record of `key`, which is locked exclusively, a value of its type, or deletes it, with its entries. Returns false
    /// if there is one already that must not be replaced, or none to delete.
    pub(super) async fn write_indexed(
        &mut self,
        found: &Rc<Partition>,
        key: &[u8],
        value: Option<&[u8]>,
        replace: bool,
    ) -> Result<bool> {
        // Its indexes may have changed while its lock was waited for.
        let found = &self.engine.catalog.describe(found.id())?;
        let schema = found.typed()?;
        if let Some(value) = value {
            schema.record.verify(value).map_err(|error| found.field_error(error))?;
        }
        let old = self.read_in_tree(found.id(), key).await?;
        if old.is_some() && !replace || old.is_none() && value.is_none() {
            return Ok(false);
        }
        let moves = schema.entry_moves(key, (old.as_deref(), value)).map_err(|error| found.field_error(error))?;
        if moves.is_empty() {
            self.change_record(found, key, (old.as_deref(), value)).await?;
            return Ok(true);
        }
        let (before, change) = (self.savepoint(), HalfChange::begin(self));
        let mut done = self.move_entries(found, (key, value), &moves).await;
        if done.is_ok() {
            done = self.change_record(found, key, (old.as_deref(), value)).await;
        }
        if done.is_err() && self.check_active().is_ok() {
            self.rollback_to(before).await?;
        }
        change.end();
        done.map(|()| true)
    }

    /// Changes a record without its entries.
    async fn change_record(
        &mut self,
        found: &Partition,
        key: &[u8],
        (old, new): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<()> {
        let tree = (found.id(), found.locking == Locking::Record);
        match (old, new) {
            (_, None) => self.delete_in_tree(tree, key).await.map(|_| ()),
            (Some(old), Some(new)) if old.len() == new.len() && self.fits_leaf(key, old) => {
                self.patch_in_tree(found.id(), key, new).await
            }
            (_, Some(new)) => self.write_in_tree(tree, key, new, true).await.map(|_| ()),
        }
    }

    /// Removes the old entries of a record first: a new one may have the place of one in a unique index.
    async fn move_entries(
        &mut self,
        found: &Partition,
        (key, value): (&[u8], Option<&[u8]>),
        moves: &[EntryMove],
    ) -> Result<()> {
        for EntryMove { index, tree, from, .. } in moves {
            let Some(from) = from.as_ref().filter(|_| !canary::is_planted(Canary::KeptEntry)) else { continue };
            self.lock_entry(*tree, from).await?;
            // Until a unique index is whole, another record may have taken the place that this one has not got yet.
            if index.is_unique && !index.is_ready() {
                let present = self.read_in_tree(*tree, from).await?;
                if present.is_some_and(|present| present != key) {
                    continue;
                }
            }
            let was_there = self.delete_in_tree((*tree, true), from).await?;
            if !was_there && index.is_ready() {
                return Err(index.lacks_entry(&found.name));
            }
        }
        for EntryMove { index, tree, to, .. } in moves {
            let Some(to) = to else { continue };
            self.lock_entry(*tree, to).await?;
            self.check_place(index, *tree, to)?;
            match self.put_entry(*tree, to, key).await? {
                None => {}
                Some(present) if index.is_unique => {
                    return Err(found.not_unique(index, value.unwrap_or_default(), (&present, key)));
                }
                Some(_) => return Err(index.lacks_entry(&found.name)),
            }
        }
        Ok(())
    }

    /// Adds an entry of a record to an index. If there is one in its place, returns the key of its record.
    pub(super) async fn add_entry(&mut self, tree: PartitionId, entry: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lock_entry(tree, entry).await?;
        self.put_entry(tree, entry, key).await
    }

    /// As [`Transaction::add_entry`], under the entry's lock.
    async fn put_entry(&mut self, tree: PartitionId, entry: &[u8], key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.write_in_tree((tree, true), entry, key, false).await? {
            return Ok(None);
        }
        self.read_in_tree(tree, entry).await
    }

    /// One reference to an entry that is to be changed. Who changed it last has had its record's lock, or is met here.
    async fn lock_entry(&mut self, tree: PartitionId, entry: &[u8]) -> Result<()> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        self.pass_readers(tree, entry).await?;
        self.lock(Resource::record(tree, key_hash(entry)), Mode::Exclusive).await
    }
}
