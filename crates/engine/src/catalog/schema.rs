//! What records consist of, and the orders in which they can be read.
//!
//! A secondary index of a set is a structure in memory that is built anew whenever the set is loaded; the catalog says which there are. That of a b-tree is a b-tree of its
//! own, a partition that only the engine changes: its keys are the contents of the fields in a form that orders as they do, followed by the record's
//! key unless they are unique; its values are the records' keys.

use super::Partition;
use base::{Lsn, PartitionId};
use serde::{Deserialize, Serialize};
use structures::set;
use structures::set::{FieldError, RecordType};

/// What the records of a partition consist of, and in what orders they can be read (System M, section 2.6: sets and records are
/// defined by a catalogue).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// The type of every record.
    pub record: RecordType,
    /// The ordered secondary indexes, also those that are being built.
    pub secondaries: Vec<SecondaryIndex>,
}

/// An ordered secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondaryIndex {
    /// Its name.
    pub name: String,
    /// The positions of the fields that it orders by, the first before the second and so on.
    pub fields: Vec<usize>,
    /// Whether no two records have the same contents in these fields.
    #[serde(skip)]
    pub is_unique: bool,
    /// Where its entries are, if its records are in a b-tree.
    #[serde(skip)]
    pub tree: Option<IndexTree>,
    /// Which of a set's it is, if its records are in one.
    #[serde(skip)]
    pub in_set: Option<IndexInSet>,
}

/// The b-tree that an index of a b-tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexTree {
    /// Its partition, whose number also tells the index from others.
    pub id: PartitionId,
    /// Who reads an earlier moment does not find all records in it; nothing while it is being built.
    pub since: Option<Lsn>,
}

/// The index of a set that an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexInSet {
    /// Its number, which no other index of the set ever has.
    pub number: u16,
    /// Who reads an earlier moment does not find all records in it; nothing while it is being built.
    pub since: Option<Lsn>,
}

/// A secondary index to be created.
///
/// ```
/// use entresol_engine::catalog::IndexSpec;
///
/// let by_customer = IndexSpec::new("by_customer", &["customer", "date"]);
/// let by_email = IndexSpec::new("by_email", &["email"]).unique();
/// assert!(by_email.is_unique && !by_customer.is_unique);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Its name.
    pub name: String,
    /// The names of the fields that it orders by, the first before the second and so on.
    pub fields: Vec<String>,
    /// Whether no two records may have the same contents in these fields.
    pub is_unique: bool,
    /// The type of the partition's records, for a partition that has none yet.
    pub record: Option<RecordType>,
}

impl IndexSpec {
    /// An index of this name over the fields of these names.
    pub fn new(name: &str, fields: &[&str]) -> IndexSpec {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        IndexSpec { name: name.to_owned(), fields, is_unique: false, record: None }
    }

    /// No two records may have the same contents in its fields, in a b-tree or in a set that is locked by record. A change that would make it
    /// so is refused ([`FieldError::NotUnique`]); if another transaction has changed a record that has, or had, these contents, its end is waited
    /// for first, at every level of isolation.
    pub fn unique(self) -> IndexSpec {
        IndexSpec { is_unique: true, ..self }
    }

    /// The partition's records, which have had no type, are of this type from now on.
    pub fn record(self, record: RecordType) -> IndexSpec {
        IndexSpec { record: Some(record), ..self }
    }
}

impl Schema {
    /// Records of this type with these secondary indexes.
    ///
    /// # Errors
    /// [`FieldError::Unknown`], [`FieldError::SecondaryTwice`], [`FieldError::SecondaryEmpty`].
    pub fn new(record: RecordType, secondaries: &[IndexSpec]) -> Result<Schema, FieldError> {
        let mut schema = Schema { record, secondaries: Vec::new() };
        for spec in secondaries {
            let index = schema.plan(spec)?;
            schema.secondaries.push(index);
        }
        Ok(schema)
    }

    /// What an index of these records would be.
    pub(crate) fn plan(&self, spec: &IndexSpec) -> Result<SecondaryIndex, FieldError> {
        let name = spec.name.clone();
        if self.secondaries.iter().any(|other| other.name == name) {
            return Err(FieldError::SecondaryTwice(name));
        }
        if spec.fields.is_empty() {
            return Err(FieldError::SecondaryEmpty(name));
        }
        let fields = spec.fields.iter().map(|field| self.record.field(field)).collect::<Result<_, _>>()?;
        Ok(SecondaryIndex { name, fields, is_unique: spec.is_unique, tree: None, in_set: None })
    }

    /// The indexes of a set by their numbers.
    pub(super) fn definitions(&self) -> Vec<Option<set::Secondary>> {
        let numbers = self.secondaries.iter().filter_map(SecondaryIndex::number);
        let mut definitions = vec![None; numbers.max().map_or(0, |last| last + 1)];
        for index in &self.secondaries {
            if let Some(number) = index.number() {
                definitions[number] = Some(self.definition(index));
            }
        }
        definitions
    }

    /// What an index of a set orders by.
    pub(crate) fn definition(&self, index: &SecondaryIndex) -> set::Secondary {
        set::Secondary::Fields {
            record_type: self.record.clone(),
            fields: index.fields.clone(),
            is_unique: index.is_unique,
        }
    }

    /// The same for a set that has these indexes from its creation on: their positions are their numbers.
    pub(crate) fn of_new_set(mut self) -> Schema {
        for (number, index) in (0..).zip(&mut self.secondaries) {
            index.in_set = Some(IndexInSet { number, since: Some(Lsn::ZERO) });
        }
        self
    }

    /// The number of the secondary index of this name, which tells it from others for as long as it is there.
    ///
    /// # Errors
    /// [`FieldError::NoSecondary`], also while it is being built.
    pub fn secondary(&self, name: &str) -> Result<usize, FieldError> {
        let found = self.secondaries.iter().find(|index| index.name == name && index.is_ready());
        found.and_then(SecondaryIndex::number).ok_or_else(|| FieldError::NoSecondary(name.to_owned()))
    }

    /// The secondary index of this number.
    ///
    /// # Errors
    /// [`FieldError::NoSecondary`].
    pub fn index(&self, number: usize) -> Result<&SecondaryIndex, FieldError> {
        let found = self.secondaries.iter().find(|index| index.number() == Some(number) && index.is_ready());
        found.ok_or_else(|| FieldError::NoSecondary(format!("number {number}")))
    }

    /// The key of a record's entry in the b-tree of an index.
    ///
    /// # Errors
    /// [`FieldError::Damaged`] if it is no record of the type.
    pub(crate) fn entry(&self, index: &SecondaryIndex, key: &[u8], value: &[u8]) -> Result<Vec<u8>, FieldError> {
        let mut entry = Vec::new();
        index.fields.iter().try_for_each(|field| self.record.encode_ordered(value, *field, &mut entry))?;
        if !index.is_unique {
            entry.extend_from_slice(key);
        }
        Ok(entry)
    }
}

impl SecondaryIndex {
    /// Whether it has all records.
    pub fn is_ready(&self) -> bool {
        self.since().is_some()
    }

    /// From which moment on it can be read; nothing while it is being built.
    pub fn since(&self) -> Option<Lsn> {
        self.tree.map_or(self.in_set.and_then(|in_set| in_set.since), |tree| tree.since)
    }

    /// What tells it from other indexes of its partition: the number of its b-tree, or its own in its set.
    pub fn number(&self) -> Option<usize> {
        let of_tree = self.tree.map(|tree| tree.id.0);
        of_tree.or(self.in_set.map(|in_set| in_set.number)).map(usize::from)
    }

    /// It can be read from this moment on, or not any more.
    pub(crate) fn set_since(&mut self, since: Option<Lsn>) {
        self.tree.iter_mut().for_each(|tree| tree.since = since);
        self.in_set.iter_mut().for_each(|in_set| in_set.since = since);
    }
}

impl Partition {
    /// The name of the partition that has an index of this one. No partition of a user's has such a name.
    pub(crate) fn index_name(&self, index: &str) -> String {
        format!("{}.{index}", self.name)
    }

    /// The same partition with these secondary indexes, and with records of this type.
    pub(crate) fn with_indexes(&self, record: &RecordType, secondaries: Vec<SecondaryIndex>) -> Partition {
        Partition { schema: Some(Schema { record: record.clone(), secondaries }), ..self.clone() }
    }

    /// Whether an index of it is being built or dropped.
    pub(crate) fn has_unready_index(&self) -> bool {
        self.schema.iter().flat_map(|schema| &schema.secondaries).any(|index| !index.is_ready())
    }

    /// The b-trees that have its secondary indexes, those included that are being built.
    pub(crate) fn index_trees(&self) -> impl Iterator<Item = IndexTree> {
        self.schema.iter().flat_map(|schema| &schema.secondaries).filter_map(|index| index.tree)
    }
}
