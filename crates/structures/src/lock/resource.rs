//! What can be locked.

use base::{PageId, PartitionId};
use foldhash::fast::FixedState;
use std::fmt;
use std::hash::BuildHasher;

const PAGE: u64 = 0;
const RECORD: u64 = 1;
const INTENT: u64 = 2;
const END_GAP: u64 = 3;
const PARTITION: u64 = 4;
const SECONDARY_GAP: u64 = 5;
const SECONDARY_END_GAP: u64 = 6;
const RANGES: u64 = 7;
const SECONDARY_PLACE: u64 = 8;

/// Something that can be locked: a page, a record, ranges of keys, a gap between entries, a place in a unique index, or a whole
/// partition.
///
/// Records and gaps are named by 64 bits, an object number or a hash of the key. Two keys with one hash share a lock, which
/// costs concurrency but never isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// Page number, record number or key hash; zero where the partition says all.
    number: u64,
    /// The kind above the 16 bits of the partition; above both the number of the secondary index.
    space: u64,
}

impl Resource {
    const fn new(kind: u64, partition: PartitionId, number: u64) -> Resource {
        Resource { number, space: kind << 16 | partition.0 as u64 }
    }

    /// A page.
    pub const fn page(page: PageId) -> Resource {
        Resource::new(PAGE, page.partition, page.number as u64)
    }

    /// The record of `partition` with this object number or key hash.
    pub const fn record(partition: PartitionId, number: u64) -> Resource {
        Resource::new(RECORD, partition, number)
    }

    /// That the record of `partition` with this key hash is going to be changed. Held by an owner that waits for ranges of
    /// others, and met by those that would read a range around the key meanwhile.
    pub const fn intent(partition: PartitionId, number: u64) -> Resource {
        Resource::new(INTENT, partition, number)
    }

    /// All ranges of keys of `partition` that the owner has read which [`KeyRanges`](super::KeyRanges) knows by this number.
    pub const fn ranges(partition: PartitionId, number: u64) -> Resource {
        Resource::new(RANGES, partition, number)
    }

    /// What is added at the end of `partition`.
    pub const fn end_gap(partition: PartitionId) -> Resource {
        Resource::new(END_GAP, partition, 0)
    }

    /// The whole of `partition`, as a resource of its own.
    pub const fn partition(partition: PartitionId) -> Resource {
        Resource::new(PARTITION, partition, 0)
    }

    /// The open interval between the entry of this hash in a secondary index of `partition` and the entry before it.
    pub const fn secondary_gap(partition: PartitionId, secondary: usize, entry: u64) -> Resource {
        let space = (secondary as u64) << 32 | SECONDARY_GAP << 16 | partition.0 as u64;
        Resource { number: entry, space }
    }

    /// The open interval above the greatest entry of a secondary index of `partition`.
    pub const fn secondary_end_gap(partition: PartitionId, secondary: usize) -> Resource {
        let space = (secondary as u64) << 32 | SECONDARY_END_GAP << 16 | partition.0 as u64;
        Resource { number: 0, space }
    }

    /// The place of the contents with this hash in a unique secondary index of `partition`, which one record has at most.
    pub const fn secondary_place(partition: PartitionId, secondary: usize, contents: u64) -> Resource {
        let space = (secondary as u64) << 32 | SECONDARY_PLACE << 16 | partition.0 as u64;
        Resource { number: contents, space }
    }

    /// The partition that it is of.
    pub fn of_partition(self) -> PartitionId {
        PartitionId(self.space as u16)
    }

    /// What it is, in words, where its partition has this name. Records are told by the hash of their keys.
    pub fn in_words(self, partition: &str) -> String {
        let number = self.number;
        match self.space >> 16 & 0xffff {
            PAGE => format!("page {number} of '{partition}'"),
            RECORD => format!("record {number:#x} of '{partition}'"),
            INTENT => format!("a change of record {number:#x} of '{partition}'"),
            RANGES => format!("a range that was read of '{partition}'"),
            END_GAP => format!("the end of '{partition}'"),
            SECONDARY_GAP => format!("a gap of an index of '{partition}'"),
            SECONDARY_END_GAP => format!("the gap at the end of an index of '{partition}'"),
            SECONDARY_PLACE => format!("a place in a unique index of '{partition}'"),
            _ => format!("partition '{partition}'"),
        }
    }

    /// The partition and the number of a record.
    #[inline]
    pub fn as_record(self) -> (PartitionId, u64) {
        debug_assert_eq!(self.space >> 16, RECORD, "{self} is no record");
        (PartitionId(self.space as u16), self.number)
    }

    /// Spreads resources over 64 bits, the same way in every run.
    #[inline]
    pub fn hash_bits(self) -> u64 {
        FixedState::with_seed(0).hash_one(self)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partition = self.space & 0xffff;
        let number = self.number;
        let secondary = self.space >> 32;
        match self.space >> 16 & 0xffff {
            PAGE => write!(f, "page {number} of partition {partition}"),
            RECORD => write!(f, "record {number:#x} of partition {partition}"),
            INTENT => write!(f, "change of record {number:#x} of partition {partition}"),
            RANGES => write!(f, "ranges {number} of partition {partition}"),
            END_GAP => write!(f, "end of partition {partition}"),
            SECONDARY_GAP => write!(f, "gap below entry {number:#x} of index {secondary} of partition {partition}"),
            SECONDARY_END_GAP => write!(f, "gap at the end of index {secondary} of partition {partition}"),
            SECONDARY_PLACE => write!(f, "place {number:#x} in index {secondary} of partition {partition}"),
            _ => write!(f, "partition {partition}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_small_and_distinct() {
        assert_eq!(size_of::<Resource>(), 16);
        let (one, two) = (PartitionId(1), PartitionId(2));
        let resources = [
            Resource::page(PageId::new(one, 0)),
            Resource::page(PageId::new(two, 0)),
            Resource::record(one, 0),
            Resource::record(one, u64::MAX),
            Resource::intent(one, 0),
            Resource::ranges(one, 0),
            Resource::ranges(one, 1),
            Resource::end_gap(one),
            Resource::partition(one),
            Resource::partition(two),
            Resource::secondary_gap(one, 0, 0),
            Resource::secondary_gap(one, 1, 0),
            Resource::secondary_gap(two, 0, 1),
            Resource::secondary_end_gap(one, 0),
            Resource::secondary_end_gap(one, 1),
            Resource::secondary_place(one, 0, 0),
            Resource::secondary_place(one, 1, 0),
        ];
        for (index, resource) in resources.iter().enumerate() {
            for other in &resources[index + 1..] {
                assert_ne!(resource, other);
                assert_ne!(resource.hash_bits(), other.hash_bits());
                assert_ne!(resource.to_string(), other.to_string());
            }
        }
    }
}
