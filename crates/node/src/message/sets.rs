//! Records of memory-resident sets, which clients have no copies of: they are asked for one by one, each with its lock.

use super::{RecordLock, Transaction, raw};
use base::{PageId, PartitionId};
use engine::set;
use serde::{Deserialize, Serialize};

/// A record of a set, as a transaction wants it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRecord {
    /// The set.
    pub partition: u16,
    /// The record's key, of at most [`set::KEY_MAX`] bytes.
    #[serde(with = "raw")]
    pub key: Vec<u8>,
    /// Which transaction.
    pub transaction: Transaction,
    /// Whether its lock is for a change.
    pub writes: bool,
}

/// The value of a record of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetValue(#[serde(with = "raw")] pub Vec<u8>);

/// A change of a record of a set, as it is committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetWrite {
    /// The set.
    pub partition: u16,
    /// The record's key.
    #[serde(with = "raw")]
    pub key: Vec<u8>,
    /// Its value from now on; nothing if it is deleted.
    pub value: Option<SetValue>,
}

/// The place that stands for a record in the tables of locks: sets have no pages, so no copy is in its way. Two records that have the same
/// one are locked together.
pub fn place_in_set(partition: PartitionId, key: &[u8]) -> (PageId, u16) {
    let hash = set::Sets::hash(key);
    (PageId::new(partition, hash as u32), (hash >> 32) as u16)
}

impl SetRecord {
    /// The place of its lock, and the lock.
    pub fn lock(&self) -> (PageId, RecordLock) {
        let (page, slot) = place_in_set(PartitionId(self.partition), &self.key);
        (page, RecordLock { slot, transaction: self.transaction, writes: self.writes })
    }
}

impl SetWrite {
    /// The bytes that it takes in a message, about.
    pub(crate) fn length(&self) -> usize {
        SetWrite::length_of(&self.key, self.value.as_ref().map(|value| &value.0[..]))
    }

    /// The same, of a change that is not made yet.
    pub(crate) fn length_of(key: &[u8], value: Option<&[u8]>) -> usize {
        const HEAD: usize = 16;
        HEAD + key.len() + value.map_or(0, <[u8]>::len)
    }
}
