//! What records of a partition consist of and how they can be read, as it is told to clients.

use super::{Described, SIZE_MAX, list};
use base::{Lsn, PartitionId};
use engine::catalog::{IndexInSet, IndexTree, Organization, Schema, SecondaryIndex};
use engine::set::{self, Field, RecordType};
use engine::{Error, Result};
use serde::{Deserialize, Serialize};

/// The most fields of a record that nodes deal with: what they are told of names is looked at in pairs.
const FIELDS_MAX: usize = 4_096;

/// How many bytes the types and indexes in one message have at most, about: the rest of what is told of partitions fits beside them.
pub(crate) const SCHEMAS_MAX: usize = SIZE_MAX / 4;

/// What is sent of a field or an index beside its name, in bytes, and more.
const FIELD_SIZE: usize = 24;

/// The type of records, and their secondary indexes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedSchema {
    /// The fields.
    #[serde(with = "list")]
    pub fields: Vec<Field>,
    /// The indexes.
    #[serde(with = "list")]
    pub indexes: Vec<DescribedIndex>,
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedIndex {
    /// Its name.
    pub name: String,
    /// The positions of the fields that it orders by.
    #[serde(with = "list")]
    pub fields: Vec<u32>,
    /// Whether no two records have the same contents in these fields.
    pub is_unique: bool,
    /// What tells it from others of its partition: the partition of its entries, or, as those of sets are in memory, its number in its set.
    pub tree: Option<u16>,
    /// Whether it has all records.
    pub is_ready: bool,
}

impl DescribedSchema {
    /// As [`DescribedSchema::of`], where the client may know it and this many bytes are left, from which its own are taken. Otherwise it
    /// has no fields, so that no client takes the records for ones without a type.
    pub(crate) fn within(room: &mut usize, schema: &Schema) -> DescribedSchema {
        let fields = schema.record.fields();
        let names = fields.iter().map(|field| field.name.len() + FIELD_SIZE);
        let indexes = schema.secondaries.iter().map(|index| index.name.len() + FIELD_SIZE * (1 + index.fields.len()));
        let size = names.chain(indexes).sum::<usize>();
        if fields.len() > FIELDS_MAX || size > *room {
            return DescribedSchema { fields: Vec::new(), indexes: Vec::new() };
        }
        *room -= size;
        DescribedSchema::of(schema)
    }

    /// That of a partition.
    pub fn of(schema: &Schema) -> DescribedSchema {
        let index = |found: &SecondaryIndex| DescribedIndex {
            name: found.name.clone(),
            fields: found.fields.iter().map(|field| *field as u32).collect(),
            is_unique: found.is_unique,
            tree: found.number().and_then(|number| u16::try_from(number).ok()),
            is_ready: found.is_ready(),
        };
        let indexes = schema.secondaries.iter().map(index).collect();
        DescribedSchema { fields: schema.record.fields().to_vec(), indexes }
    }

    /// As the engine has it of a b-tree, or of a set.
    ///
    /// # Errors
    /// Words that say why it cannot be used: a server may be ill, too.
    pub(crate) fn schema(&self, is_of_set: bool) -> std::result::Result<Schema, String> {
        if self.fields.is_empty() {
            return Err(format!(
                "the server has not told what its records consist of: they are not for this node, have more than {FIELDS_MAX} fields, or all \
                 of its partitions have too many"
            ));
        }
        if self.fields.len() > FIELDS_MAX {
            return Err(format!(
                "its records have {} fields, and nodes deal with {FIELDS_MAX} at most",
                self.fields.len()
            ));
        }
        let record = RecordType::try_from(self.fields.clone()).map_err(|error| error.to_string())?;
        let since = |found: &DescribedIndex| found.is_ready.then_some(Lsn::ZERO);
        let index = |found: &DescribedIndex| SecondaryIndex {
            name: found.name.clone(),
            fields: found.fields.iter().map(|field| *field as usize).collect(),
            is_unique: found.is_unique,
            tree: found
                .tree
                .filter(|_| !is_of_set)
                .map(|tree| IndexTree { id: PartitionId(tree), since: since(found) }),
            in_set: found.tree.filter(|_| is_of_set).map(|number| IndexInSet { number, since: since(found) }),
        };
        Ok(Schema { record, secondaries: self.indexes.iter().map(index).collect() })
    }
}

impl Described {
    /// Its number.
    pub fn id(&self) -> PartitionId {
        PartitionId(self.id)
    }

    /// Whether its records are on pages, which clients may have copies of.
    pub fn has_pages(&self) -> bool {
        !matches!(self.organization, Organization::Set { .. })
    }

    /// Whether another description may be one of the same partition, which may have got another name, and got or lost a type and indexes.
    pub(crate) fn is_same(&self, other: &Described) -> bool {
        let Described { id, name: _, organization, schema: _, index_of } = other;
        (self.id, self.organization, self.index_of) == (*id, *organization, *index_of)
    }

    /// The error of a call that does not suit it.
    pub(crate) fn wrong_organization(&self, detail: &str) -> Error {
        let (partition, organization) = (self.name.clone(), self.organization.name());
        Error::WrongOrganization { partition, organization, detail: detail.to_owned() }
    }

    /// Refuses what nodes cannot do with a set.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`].
    pub(crate) fn refuse_set(&self) -> Result<()> {
        if self.has_pages() {
            return Ok(());
        }
        Err(self.wrong_organization(
            "its records are in the server's memory, not on pages: nodes read and change them by their keys, by an index (range), and all of \
             them (scan_set)",
        ))
    }

    /// Whether it is a set that numbers its records.
    pub(crate) fn is_of_arrivals(&self) -> bool {
        matches!(self.organization, Organization::Set { arrivals: true, .. })
    }

    /// Refuses what is done with sets alone.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`].
    pub(crate) fn refuse_pages(&self) -> Result<()> {
        if self.has_pages() {
            return Err(self.wrong_organization("use a range of keys, object numbers or scan_appended"));
        }
        Ok(())
    }

    /// Refuses what is done with records that their set numbers.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`].
    pub(crate) fn refuse_keyed(&self) -> Result<()> {
        if !self.is_of_arrivals() {
            return Err(self.wrong_organization("its records have keys"));
        }
        Ok(())
    }

    /// Refuses what no set does with a record of this key, and a value of this length if one is to be written.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] for a set that numbers its records; [`Error::TooLarge`].
    pub(crate) fn check_set(&self, key: &[u8], written: Option<usize>) -> Result<()> {
        if self.is_of_arrivals() {
            return Err(self.wrong_organization("its records have no keys"));
        }
        if key.len() > set::KEY_MAX {
            let (what, partition) = ("a key", self.name.clone());
            return Err(Error::TooLarge { what, found: key.len(), limit: set::KEY_MAX, partition });
        }
        written.map_or(Ok(()), |value| self.check_record_of_set(key.len(), value))
    }

    /// Refuses a record that no segment holds.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(crate) fn check_record_of_set(&self, key: usize, value: usize) -> Result<()> {
        let Organization::Set { segment_size, .. } = self.organization else { return Ok(()) };
        let (found, limit) = (key + value, set::record_max(segment_size as usize));
        if found > limit {
            let (what, partition) = ("a record of a set", self.name.clone());
            return Err(Error::TooLarge { what, found, limit, partition });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::set::FieldType;

    fn described(fields: usize) -> DescribedSchema {
        let field = |number| Field { name: format!("field {number}"), kind: FieldType::U8 };
        DescribedSchema { fields: (0..fields).map(field).collect(), indexes: Vec::new() }
    }

    #[test]
    fn an_ill_servers_schema_is_refused() {
        assert!(described(FIELDS_MAX).schema(false).is_ok());
        assert!(described(FIELDS_MAX + 1).schema(false).is_err(), "it would take for ever to look at");
        let mut twice = described(2);
        twice.fields[1].name = "field 0".to_owned();
        assert!(twice.schema(false).is_err());
    }

    /// What is told of types is a message, however many of them a database has.
    #[test]
    fn schemas_that_take_too_much_room_are_not_told_and_not_taken_for_none() {
        let schema = |fields| {
            let field = |number| Field { name: format!("field {number}"), kind: FieldType::U8 };
            let record = RecordType::try_from((0..fields).map(field).collect::<Vec<_>>()).expect("different names");
            Schema { record, secondaries: Vec::new() }
        };
        let (mut room, two) = (100, schema(2));
        assert_eq!(DescribedSchema::within(&mut room, &two), DescribedSchema::of(&two));
        assert!(room < 50);
        let untold = DescribedSchema::within(&mut room, &two);
        assert!(untold.schema(false).is_err_and(|why| why.contains("not told")), "{untold:?}");
        let many = DescribedSchema::within(&mut SCHEMAS_MAX.clone(), &schema(FIELDS_MAX + 1));
        assert!(many.fields.is_empty());
    }

    #[test]
    fn a_schema_is_as_it_was_told() {
        let by_size = DescribedIndex {
            name: "by_size".into(),
            fields: vec![1, 0],
            is_unique: true,
            tree: Some(7),
            is_ready: true,
        };
        let told = DescribedSchema {
            indexes: vec![by_size.clone(), DescribedIndex { is_ready: false, tree: Some(8), ..by_size }],
            ..described(3)
        };
        let schema = told.schema(false).expect("it is right");
        assert_eq!(DescribedSchema::of(&schema), told);
        assert!(schema.secondaries[0].is_ready() && !schema.secondaries[1].is_ready());
        let of_set = told.schema(true).expect("it is right");
        assert_eq!(DescribedSchema::of(&of_set), told);
        assert!(of_set.index(7).is_ok() && of_set.index(8).is_err() && of_set.secondaries[0].tree.is_none());
    }
}
