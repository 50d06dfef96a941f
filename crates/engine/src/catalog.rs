//! What partitions a database has and how each is organized.
//!
//! A partition's number is given once. The log, the double-write area, tiers and versions name pages by it long after a
//! drop or an interrupted creation; a restart passes over all of these because the number leads to nothing, and none of
//! them has to be searched and cleaned. A database has 65,536 numbers in its life.

mod entries;
mod field_change;
mod partitions;
mod schema;

pub use entries::{EntryMove, EntryRange};
pub(crate) use field_change::{integer, sum};
pub(crate) use partitions::Partitions;
pub use schema::{IndexInSet, IndexSpec, IndexTree, Schema, SecondaryIndex};

use crate::{Error, Result};
use base::PartitionId;
use serde::{Deserialize, Serialize};
use structures::set;
use structures::set::FieldError;

/// How a partition's records are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Organization {
    /// Objects of fixed size found by number: object `n` is on page `n / blocking_factor`.
    Direct {
        /// How many objects there are.
        objects: u64,
        /// Objects per page.
        blocking_factor: u32,
        /// The size of an object in bytes.
        record_size: u32,
    },
    /// Records in the order of their arrival.
    Append {
        /// The most records on a page; 0 for as many as fit.
        blocking_factor: u32,
    },
    /// Records of variable length by key.
    BTree,
    /// A memory-resident set of records (see [`structures::set`]), found by key or by number of arrival.
    Set {
        /// Whether a record's key is the number of its arrival.
        arrivals: bool,
        /// Bytes of a segment.
        segment_size: u32,
        /// The share of a segment that inserts keep free, in percent.
        reserve_percent: u8,
    },
}

impl Organization {
    /// The organization's name in configurations and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Organization::Direct { .. } => "direct",
            Organization::Append { .. } => "append",
            Organization::BTree => "b-tree",
            Organization::Set { .. } => "set",
        }
    }

    /// A memory-resident set with segments of the usual size and reserve.
    pub fn set(arrivals: bool) -> Organization {
        let reserve_percent = (100.0 * set::RESERVE) as u8;
        Organization::Set { arrivals, segment_size: set::SEGMENT_SIZE as u32, reserve_percent }
    }
}

/// What transactions lock in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locking {
    /// Nothing: accesses are synchronized otherwise. They wait only for what an opening has left to be undone of the partition
    /// ([`Database::undoing`](crate::Database::undoing)).
    None,
    /// Whole pages (direct and append only: b-tree records move between pages).
    Page,
    /// Records, and the ranges of keys that are read.
    Record,
}

/// One partition as the catalog keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name, unique in the database.
    pub name: String,
    /// Its number, which no other partition of the database ever has.
    pub id: u16,
    /// Its organization.
    pub organization: Organization,
    /// What is locked.
    pub locking: Locking,
    /// The name of the device that holds its file.
    pub device: String,
    /// Whether its pages count as written from the start: described contents that are read, though nothing stored them.
    pub assumed: bool,
    /// What the records of a b-tree or a set consist of, if that is known. The superblock file has it in a place of its own.
    #[serde(skip)]
    pub schema: Option<Schema>,
    /// The partition that it is a secondary index of, if it is one.
    #[serde(skip)]
    pub index_of: Option<PartitionId>,
    /// What its files are named after, if not after itself: files keep their names when a partition is renamed, and another
    /// one may have that name when it is created. The superblock file says so in a place of its own.
    #[serde(skip)]
    pub files: Option<String>,
}

impl Partition {
    /// The partition's number.
    pub fn id(&self) -> PartitionId {
        PartitionId(self.id)
    }

    /// What it is as a set, if it is one.
    pub fn set_settings(&self) -> Option<set::SetSettings> {
        let Organization::Set { arrivals, segment_size, reserve_percent } = self.organization else { return None };
        Some(set::SetSettings {
            partition: self.id(),
            segment_size: segment_size as usize,
            reserve: f64::from(reserve_percent) / 100.0,
            keys: if arrivals { set::Keys::Arrival } else { set::Keys::Keyed },
            secondaries: self.schema.as_ref().map_or_else(Vec::new, Schema::definitions),
        })
    }

    /// How many pages it has when it is new; 0 for a set.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn first_pages(&self) -> Result<u32> {
        let pages = match self.organization {
            Organization::Direct { objects, blocking_factor, .. } => objects.div_ceil(u64::from(blocking_factor)),
            Organization::Append { .. } => 1,
            Organization::BTree => 2,
            Organization::Set { .. } => 0,
        };
        u32::try_from(pages).map_err(|_| {
            Error::Setting(format!("partition '{}' would have {pages} pages, over 4,294,967,295", self.name))
        })
    }

    /// The schema of its records.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if its records have no schema.
    pub fn typed(&self) -> Result<&Schema> {
        self.schema.as_ref().ok_or_else(|| self.wrong_organization("its records have no fields; give it a record type"))
    }

    /// The error of a call that does not suit the partition.
    pub(crate) fn wrong_organization(&self, detail: &str) -> Error {
        let (partition, organization) = (self.name.clone(), self.organization.name());
        Error::WrongOrganization { partition, organization, detail: detail.to_owned() }
    }

    /// The error of what does not suit the type of its records.
    pub(crate) fn field_error(&self, error: FieldError) -> Error {
        Error::Field { partition: self.name.clone(), error }
    }

    /// What its files are named after.
    pub(crate) fn stem(&self) -> &str {
        self.files.as_deref().unwrap_or(&self.name)
    }

    /// The same partition under another name, with the same files.
    pub(crate) fn renamed(&self, name: String) -> Partition {
        let files = (self.stem() != name).then(|| self.stem().to_owned());
        Partition { name, files, ..self.clone() }
    }

    /// The same partition with files that are named so.
    pub(crate) fn with_files(self, stem: String) -> Partition {
        let files = (stem != self.name).then_some(stem);
        Partition { files, ..self }
    }

    /// The name of its file of pages.
    pub fn file_name(&self) -> String {
        format!("{}.pages", self.stem())
    }

    /// The name of a set's file in this copy of the backup, 0 or 1.
    pub(crate) fn backup_file_name(&self, copy: usize) -> String {
        format!("{}.backup-{copy}", self.stem())
    }

    /// The names of all its files.
    pub(crate) fn file_names(&self) -> Vec<String> {
        match self.organization {
            Organization::Set { .. } => (0..2).map(|copy| self.backup_file_name(copy)).collect(),
            _ => vec![self.file_name()],
        }
    }

    /// Checks that the name can be a file's and that sizes fit pages of `page_size` bytes.
    ///
    /// # Errors
    /// [`Error::Setting`] that says what is allowed.
    pub fn validate(&self, page_size: usize) -> Result<()> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(allowed) {
            let name = &self.name;
            return Err(Error::Setting(format!(
                "partition name '{name}' is not made of 1 to 64 letters, digits, '-' and '_'"
            )));
        }
        let fail = |why: String| Err(Error::Setting(format!("partition '{}': {why}", self.name)));
        match self.organization {
            Organization::Direct { blocking_factor, record_size, .. } => {
                let used = u64::from(blocking_factor) * u64::from(record_size);
                let room = (page_size - structures::page::HEADER_SIZE) as u64;
                if used == 0 || used > room {
                    return fail(format!(
                        "{blocking_factor} objects of {record_size} bytes do not fit the {room} bytes of a page"
                    ));
                }
            }
            Organization::Append { .. } => {}
            Organization::BTree if page_size < structures::organization::b_tree::PAGE_SIZE_MIN => {
                let least = structures::organization::b_tree::PAGE_SIZE_MIN;
                return fail(format!("a b-tree needs pages of at least {least} bytes"));
            }
            Organization::BTree if self.locking == Locking::Page => {
                return fail("a b-tree is locked by record or not at all".into());
            }
            Organization::BTree => {}
            Organization::Set { segment_size, .. }
                if !segment_size.is_power_of_two() || !set::SEGMENT_SIZES.contains(&(segment_size as usize)) =>
            {
                return fail(format!("a segment of {segment_size} bytes is no power of two from 16 KiB to 4 MiB"));
            }
            Organization::Set { reserve_percent: 91.., .. } => {
                return fail("inserts can keep at most 90 % of a segment free".into());
            }
            Organization::Set { .. } if self.locking == Locking::Page => {
                return fail("a set is locked by record or not at all".into());
            }
            // Its shadows presume that what a transaction has changed is left alone by others. Arrivals are only added.
            Organization::Set { arrivals: false, .. } if self.locking == Locking::None => {
                return fail("a set whose records have keys is locked by record".into());
            }
            Organization::Set { .. } => {}
        }
        self.validate_schema()
    }

    fn validate_schema(&self) -> Result<()> {
        let fail = |why: &str| Err(Error::Setting(format!("partition '{}': {why}", self.name)));
        let Some(schema) = &self.schema else { return Ok(()) };
        match self.organization {
            Organization::Set { .. }
                if self.locking != Locking::Record && schema.secondaries.iter().any(|index| index.is_unique) =>
            {
                fail("a set with a unique secondary index is locked by record")
            }
            Organization::Set { .. } => Ok(()),
            Organization::BTree if self.locking == Locking::Record || schema.secondaries.is_empty() => Ok(()),
            Organization::BTree => fail("a b-tree with secondary indexes is locked by record"),
            _ => fail("only the records of b-trees and sets have a type"),
        }
    }
}
