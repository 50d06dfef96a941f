//! Records of b-trees with a type, and their entries in secondary indexes, which are b-trees of their own.
//!
//! What an index has of a record is decided where the engine decides it (`Schema::entry_moves`). Locks are those of pages: who changes a
//! record has it, or its leaf, for itself to the end, and the leaves of its entries. So nothing is seen of a change of which only a part is made,
//! who asks for the place of an entry meets the one that has it, and what a range has shown stays.

use super::PageTransaction;
use super::view::{Intent, LockedPages};
use crate::message::Described;
use base::PartitionId;
use engine::canary::{self, Canary};
use engine::catalog::{EntryMove, EntryRange, Organization, Schema};
use engine::organization::b_tree;
use engine::set::{FieldError, FieldValue};
use engine::{Direction, Error, Result};
use std::ops::Bound;
use std::rc::Rc;

/// A partition whose records have a type.
#[derive(Clone)]
pub(super) struct Typed {
    pub found: Rc<Described>,
    pub schema: Rc<Schema>,
}

impl Typed {
    pub fn field_error(&self, error: FieldError) -> Error {
        Error::Field { partition: self.found.name.clone(), error }
    }
}

impl PageTransaction {
    /// The partition, whose records have a type.
    pub(super) async fn typed(&self, partition: PartitionId) -> Result<Typed> {
        let mut found = self.client.described(partition).await?;
        if found.has_pages() {
            found = self.tree(partition).await?;
        }
        let untyped = || found.wrong_organization("its records have no fields; give it a record type");
        let schema = self.client.schema(&found)?.ok_or_else(untyped)?;
        Ok(Typed { found, schema })
    }

    /// The position of a field of a partition's records, by which others refer to it.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`] if its records have no type, [`Error::Field`].
    pub async fn field(&self, partition: PartitionId, name: &str) -> Result<usize> {
        let typed = self.typed(partition).await?;
        typed.schema.record.field(name).map_err(|error| typed.field_error(error))
    }

    /// The number of a secondary index of a partition, by which [`PageTransaction::range`] refers to it.
    ///
    /// # Errors
    /// As [`PageTransaction::field`].
    pub async fn secondary(&self, partition: PartitionId, name: &str) -> Result<usize> {
        let typed = self.typed(partition).await?;
        typed.schema.secondary(name).map_err(|error| typed.field_error(error))
    }

    /// Shows the records whose fields are within bounds, in the order of a secondary index or backward, key and value, until `look` returns
    /// false. A bound may name the contents of the first few of the index's fields only: records that have these are included, or
    /// excluded, all.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if the partition's records have no type, [`Error::Field`], and as [`PageTransaction::get`].
    pub async fn range(
        &mut self,
        partition: PartitionId,
        secondary: usize,
        bounds: (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>),
        direction: Direction,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let typed = self.typed(partition).await?;
        let span = EntryRange::new(&typed.schema, secondary, bounds).map_err(|error| typed.field_error(error))?;
        if span.is_empty() {
            return Ok(());
        }
        if !typed.found.has_pages() {
            return self.range_in_set(&typed, secondary, span, (direction, look)).await;
        }
        let index = typed.schema.index(secondary).map_err(|error| typed.field_error(error))?;
        let Some(tree) = index.tree else { return Ok(()) };
        let tree = self.tree_of_index(&typed, tree.id).await?;
        let upper = span.to.map_or(Bound::Unbounded, Bound::Excluded);
        let mut entries = self.leaf_scan(tree.id(), (Bound::Included(span.from), upper), direction);
        while let Some((_, stored)) = self.next_of(&mut entries).await? {
            let key = self.value_of(tree.id(), &stored).await?;
            let value = self.read_in_tree(partition, &key, Intent::Read).await?;
            let value = value.ok_or_else(|| index.lacks_entry(&typed.found.name))?;
            if !look(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// The b-tree that an index of a partition is.
    async fn tree_of_index(&self, typed: &Typed, tree: PartitionId) -> Result<Rc<Described>> {
        let found = self.client.described(tree).await?;
        if found.organization == Organization::BTree && found.index_of == Some(typed.found.id) {
            return Ok(found);
        }
        Err(typed.found.wrong_organization("what the server calls an index of it is none"))
    }

    /// Gives a record a value of its type, or deletes it, with its entries. Returns false if there is one already that must not be replaced,
    /// or none to delete.
    pub(super) async fn write_indexed(
        &mut self,
        typed: &Typed,
        key: &[u8],
        value: Option<&[u8]>,
        replace: bool,
    ) -> Result<bool> {
        let partition = typed.found.id();
        if !typed.found.has_pages() {
            return self.write_in_set(&typed.found, key, value, replace).await;
        }
        if let Some(value) = value {
            typed.schema.record.verify(value).map_err(|error| typed.field_error(error))?;
            self.check_length(&typed.found, key, value.len())?;
        }
        let stored = match value {
            Some(_) if replace => self.change_stored(partition, key, |old| (None, old.map(<[u8]>::to_vec))).await?,
            _ => self.find_to_change(partition, key).await?.map(|(_, stored)| stored),
        };
        let old = match stored {
            Some(stored) => Some(self.value_of(partition, &stored).await?),
            None => None,
        };
        if old.is_some() && !replace || old.is_none() && value.is_none() {
            return Ok(false);
        }
        let change = (old.as_deref(), value);
        let moves = typed.schema.entry_moves(key, change).map_err(|error| typed.field_error(error))?;
        if moves.is_empty() {
            self.change_record(&typed.found, key, change).await?;
            return Ok(true);
        }
        self.check_moves(typed, (key, value), &moves).await?;
        self.wholly(async |tx| {
            tx.move_entries(typed, key, &moves).await?;
            tx.change_record(&typed.found, key, change).await
        })
        .await?;
        Ok(true)
    }

    /// Before anything is changed: whether entries may have their new places, whose leaves are this transaction's from here on.
    async fn check_moves(
        &mut self,
        typed: &Typed,
        (key, value): (&[u8], Option<&[u8]>),
        moves: &[EntryMove],
    ) -> Result<()> {
        for EntryMove { index, tree, to, .. } in moves {
            let tree = self.tree_of_index(typed, *tree).await?;
            if !index.is_ready() {
                let why = format!("its secondary index '{}' is being built", index.name);
                return Err(typed.found.wrong_organization(&why));
            }
            let Some(to) = to else { continue };
            self.check_length(&tree, to, key.len())?;
            let is_taken = |pages: &LockedPages<'_>| b_tree::seek(pages, tree.id(), to).map(|place| place.exact);
            if index.is_unique && self.resolve(Intent::Change, is_taken).await? {
                let present = self.read_in_tree(tree.id(), to, Intent::Change).await?.unwrap_or_default();
                let keys = (&present[..], key);
                return Err(typed.field_error(typed.schema.not_unique(index, value.unwrap_or_default(), keys)));
            }
        }
        Ok(())
    }

    /// Removes the old entries of a record first: a new one may have the place of one in a unique index.
    async fn move_entries(&mut self, typed: &Typed, key: &[u8], moves: &[EntryMove]) -> Result<()> {
        for EntryMove { index, tree, from, .. } in moves {
            let Some(from) = from else { continue };
            let tree = self.tree_of_index(typed, *tree).await?;
            if !self.delete_in_tree(&tree, from).await? {
                return Err(index.lacks_entry(&typed.found.name));
            }
        }
        for EntryMove { index, tree, from, to } in moves {
            let Some(to) = to else { continue };
            if from.is_some() && canary::is_planted(Canary::ForgottenEntry) {
                continue;
            }
            let tree = self.tree_of_index(typed, *tree).await?;
            if !self.write_in_tree(&tree, to, key, false).await? {
                return Err(index.lacks_entry(&typed.found.name));
            }
        }
        Ok(())
    }

    /// Changes a record without its entries.
    async fn change_record(
        &mut self,
        found: &Described,
        key: &[u8],
        (old, new): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<()> {
        match (old, new) {
            (_, None) => self.delete_in_tree(found, key).await.map(drop),
            (Some(old), Some(new)) if old.len() == new.len() && self.fits_leaf(key, old) => {
                self.patch_in_tree(found, key, new).await
            }
            (_, Some(new)) => self.write_in_tree(found, key, new, true).await.map(drop),
        }
    }

    /// Gives the record of `key`, whose value is in its leaf, one that is as long.
    async fn patch_in_tree(&mut self, found: &Described, key: &[u8], new: &[u8]) -> Result<()> {
        if self.overwrite(found.id(), key, new).await? { Ok(()) } else { Err(Error::NoRecord(found.name.clone())) }
    }

    /// Gives the record of `key` the value that `change` makes of its present one.
    pub(super) async fn replace_typed(
        &mut self,
        typed: &Typed,
        key: &[u8],
        change: impl FnOnce(&[u8]) -> std::result::Result<Vec<u8>, FieldError>,
    ) -> Result<()> {
        let old = self.read_keyed(&typed.found, key, Intent::Change).await?;
        let old = old.ok_or_else(|| Error::NoRecord(typed.found.name.clone()))?;
        let new = change(&old).map_err(|error| typed.field_error(error))?;
        self.write_indexed(typed, key, Some(&new), true).await.map(drop)
    }

    /// The value of `key` in a b-tree.
    pub(super) async fn read_in_tree(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        intent: Intent,
    ) -> Result<Option<Vec<u8>>> {
        match self.read_stored(partition, key, intent != Intent::Read).await? {
            None => Ok(None),
            Some(stored) => self.value_of(partition, &stored).await.map(Some),
        }
    }
}
