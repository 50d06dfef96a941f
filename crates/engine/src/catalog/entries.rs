//! A record's entries in the secondary indexes of a b-tree: what becomes of them when it changes, and ranges of them. Transactions of the
//! engine and those of nodes ask here alike.

use super::{Partition, Schema, SecondaryIndex};
use crate::Error;
use base::PartitionId;
use std::ops::Bound;
use structures::canary::{self, Canary};
use structures::set::{FieldError, FieldValue, NotUnique};

/// What becomes of a record's entry in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMove {
    /// The index.
    pub index: SecondaryIndex,
    /// The b-tree that it is.
    pub tree: PartitionId,
    /// The entry that goes.
    pub from: Option<Vec<u8>>,
    /// The one that comes. Its value is the record's key.
    pub to: Option<Vec<u8>>,
}

impl Schema {
    /// The moves of a record's entries when it changes from one value to another; of those that stay there are none.
    ///
    /// # Errors
    /// [`FieldError::Damaged`] if a value is no record of the type.
    pub fn entry_moves(
        &self,
        key: &[u8],
        (old, new): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<Vec<EntryMove>, FieldError> {
        let mut moves = Vec::new();
        for index in &self.secondaries {
            let Some(tree) = index.tree else { continue };
            if !index.is_ready() && canary::is_planted(Canary::UnseenIndex) {
                continue;
            }
            let entry = |value: Option<&[u8]>| value.map(|value| self.entry(index, key, value)).transpose();
            let (from, to) = (entry(old)?, entry(new)?);
            if from != to {
                moves.push(EntryMove { index: index.clone(), tree: tree.id, from, to });
            }
        }
        Ok(moves)
    }

    /// What the indexes of a set order a record by before a change and after it, each with the number of its index: of those in which it
    /// stays where it is there are none.
    ///
    /// # Errors
    /// [`FieldError::Damaged`] if a value is no record of the type.
    pub fn moved_in_set(
        &self,
        (old, new): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<Vec<(usize, Vec<u8>)>, FieldError> {
        let mut moved = Vec::new();
        for index in &self.secondaries {
            let Some(number) = index.number() else { continue };
            let of = |value: Option<&[u8]>| value.map(|value| self.order_in(index, value)).transpose();
            let (old, new) = (of(old)?, of(new)?);
            if old != new {
                moved.extend([old, new].into_iter().flatten().map(|of| (number, of)));
            }
        }
        Ok(moved)
    }

    /// What the index of this number orders a record by.
    ///
    /// # Errors
    /// [`FieldError::Damaged`] if the value is no record of the type, [`FieldError::NoSecondary`].
    pub fn order_of(&self, number: usize, value: &[u8]) -> Result<Vec<u8>, FieldError> {
        self.order_in(self.index(number)?, value)
    }

    /// Says that a record, of which this is the value, cannot have its place in a unique index: the keys of the one that has it, and its own.
    #[cold]
    pub fn not_unique(&self, index: &SecondaryIndex, value: &[u8], (present, refused): (&[u8], &[u8])) -> FieldError {
        let contents = self.record.shown(value, &index.fields);
        let (present, refused) = (present.to_vec(), refused.to_vec());
        FieldError::NotUnique(Box::new(NotUnique { index: index.name.clone(), contents, present, refused }))
    }

    fn order_in(&self, index: &SecondaryIndex, value: &[u8]) -> Result<Vec<u8>, FieldError> {
        let mut of = Vec::new();
        index.fields.iter().try_for_each(|field| self.record.encode_ordered(value, *field, &mut of))?;
        Ok(of)
    }
}

impl Partition {
    /// The error of a record, of which this is the value, whose place in a unique index another one has.
    #[cold]
    pub(crate) fn not_unique(&self, index: &SecondaryIndex, value: &[u8], keys: (&[u8], &[u8])) -> Error {
        match self.typed() {
            Ok(schema) => self.field_error(schema.not_unique(index, value, keys)),
            Err(error) => error,
        }
    }
}

impl SecondaryIndex {
    /// The error of an index that has no entry of a record, or another one in its place.
    #[cold]
    pub fn lacks_entry(&self, partition: &str) -> Error {
        Error::Inconsistent(format!(
            "secondary index '{}' of partition '{partition}' does not agree with its records; drop it and create it again",
            self.name
        ))
    }
}

/// The least bytes above all that begin with these; `None` if there are none.
fn beyond(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// A range of the keys of an index: from the first on, up to but without the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRange {
    /// Where it begins.
    pub from: Vec<u8>,
    /// Where it ends; nothing if it goes on to the end of the index.
    pub to: Option<Vec<u8>>,
}

impl EntryRange {
    /// That of the records whose fields are within bounds. A bound may name the contents of the first few of the index's fields only: records
    /// that have these are included, or excluded, all.
    ///
    /// # Errors
    /// [`FieldError::NoSecondary`], and those of contents that do not suit the fields.
    pub fn new(
        schema: &Schema,
        secondary: usize,
        (from, to): (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>),
    ) -> Result<EntryRange, FieldError> {
        let fields = &schema.index(secondary)?.fields;
        let bytes = |values: &[FieldValue<'_>]| -> Result<Vec<u8>, FieldError> {
            let mut bound = Vec::new();
            schema.record.encode_bound(fields, values, &mut bound)?;
            Ok(bound)
        };
        // No secondary key is a beginning of another field's, so those that begin with a bound are those that have it.
        let nothing = || EntryRange { from: vec![0], to: Some(Vec::new()) };
        let from = match from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(values) => bytes(values)?,
            Bound::Excluded(values) => match beyond(bytes(values)?) {
                Some(from) => from,
                None => return Ok(nothing()),
            },
        };
        let to = match to {
            Bound::Unbounded => None,
            Bound::Included(values) => beyond(bytes(values)?),
            Bound::Excluded(values) => Some(bytes(values)?),
        };
        Ok(EntryRange { from, to })
    }

    /// That of the records of which an index has exactly this.
    pub fn exactly(of: &[u8]) -> EntryRange {
        EntryRange { from: of.to_vec(), to: beyond(of.to_vec()) }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// Whether an entry that is not below its beginning is in it.
    pub fn contains(&self, secondary: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| secondary < to.as_slice())
    }
}
