//! What the catalog's journal says, and a log that is archived.

use crate::catalog::{Partition, Schema, SecondaryIndex};
use base::PartitionId;
use serde::{Deserialize, Serialize};
use structures::set::RecordType;

/// What becomes of a partition, or of what the catalog says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum CatalogChange {
    /// It was given to this partition, whose files may exist from here on.
    Begin(Box<Partition>, Option<Schema>),
    /// Its partition is one of the database's.
    Enter(u16),
    /// It is so no longer; its files may still exist.
    Drop(u16),
    /// Its files exist no longer.
    Gone(u16),
    /// How many segments the sets' backup has of each partition.
    Segments(Vec<(u16, u32)>),
    /// Smaller numbers were given out.
    Next(u32),
    /// The checksum over those of each partition's images in the sets' backup; nothing where none is known any more. Formats
    /// before 8 had no such change.
    Images(Vec<(u16, Option<u32>)>),
    /// Calls of procedures that the log has from a position on find the partition. Formats before 8 had no such change.
    Since(u16, u64),
    /// The records of a partition that was entered without a type have this one. Formats before 10 had no such change.
    Type(u16, RecordType),
    /// A b-tree is a secondary index of another one. Formats before 10 had no such change.
    Index(u16, StoredIndex),
    /// A partition's files are named after this. Formats before 12 had no such change.
    Files(u16, String),
    /// A partition has this name from now on; its files keep theirs. Formats before 12 had no such change.
    Rename(u16, String),
    /// A set has this secondary index under this number. Formats before 19 had no such change.
    SetIndex(u16, StoredIndex),
    /// A set has no secondary index of this number any more. Formats before 19 had no such change.
    SetIndexGone(u16, u16),
}

/// What the catalog says of the indexes of a new b-tree. Those of a new set its schema says, but not whether one is unique.
pub(crate) fn stored_indexes(partition: &Partition) -> Vec<CatalogChange> {
    let indexes = partition.schema.iter().flat_map(|schema| &schema.secondaries);
    indexes
        .filter(|index| index.tree.is_some() || index.is_unique)
        .filter_map(|index| stored_index(partition.id(), index))
        .collect()
}

/// What the catalog says of an index that has all records.
pub(crate) fn stored_index(base: PartitionId, index: &SecondaryIndex) -> Option<CatalogChange> {
    let (name, fields, is_unique) = (index.name.clone(), index.fields.clone(), index.is_unique);
    let stored = StoredIndex { base: base.0, name, fields, is_unique, since: index.since()?.0 };
    Some(match index.tree {
        Some(tree) => CatalogChange::Index(tree.id.0, stored),
        None => CatalogChange::SetIndex(index.in_set?.number, stored),
    })
}

/// What the catalog says of a secondary index that is a b-tree or of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredIndex {
    /// The partition that it is an index of.
    pub(crate) base: u16,
    pub(crate) name: String,
    pub(crate) fields: Vec<usize>,
    pub(crate) is_unique: bool,
    /// From which position of the log on it has all records.
    pub(crate) since: u64,
}
