//! Identities that cross crates: partitions, pages, log positions, transactions.

use std::fmt;

/// Names a partition (a file of pages under one organization) within a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u16);

/// Names a page: its partition and its number within the partition. Page `number` lies at byte `number * page size` of the
/// partition's file.
///
/// ```
/// use entresol_base::{PageId, PartitionId};
///
/// let page = PageId::new(PartitionId(3), 42);
/// assert_eq!(PageId::unpacked(page.packed()), page);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The partition that holds the page.
    pub partition: PartitionId,
    /// The page's position in the partition, counted in pages from 0.
    pub number: u32,
}

impl PageId {
    /// The page `number` of `partition`.
    pub const fn new(partition: PartitionId, number: u32) -> PageId {
        PageId { partition, number }
    }

    /// Both parts in one word, as stored on pages and in log records.
    pub const fn packed(self) -> u64 {
        (self.partition.0 as u64) << 32 | self.number as u64
    }

    /// The inverse of [`PageId::packed`]; the 16 bits that no page id uses are ignored.
    pub const fn unpacked(word: u64) -> PageId {
        PageId { partition: PartitionId((word >> 32) as u16), number: word as u32 }
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of partition {}", self.number, self.partition.0)
    }
}

/// A log sequence number: a byte position in the log, which only grows. Position 0 is before every record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before every log record.
    pub const ZERO: Lsn = Lsn(0);
    /// After every log record.
    pub const MAX: Lsn = Lsn(u64::MAX);
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {}", self.0)
    }
}

/// Names a transaction; numbers are never reused within a database. Zero names the system itself (splits, formatting).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// The system: changes that belong to no user's transaction and are never undone.
    pub const SYSTEM: TransactionId = TransactionId(0);
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.0)
    }
}
