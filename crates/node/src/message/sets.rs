//! Records of memory-resident sets, which clients have no copies of: they are asked for one by one, each with its lock, or several that follow
//! each other, with a lock of where they stand.

use super::{RecordLock, Transaction, list, raw};
use base::{PageId, PartitionId};
use engine::{FoundInSet, set};
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

/// The most bytes that one question about a set has of contents and keys: those of a range that goes on behind a record have up to three
/// times what an index orders the largest record by.
pub const SET_ASK_MAX: usize = 40 << 20;

/// What a transaction asks about a set. Each of its questions has a number of its own, and is asked again when what it has waited for has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetQuestion {
    /// Which transaction.
    pub transaction: Transaction,
    /// The question's number.
    pub number: u64,
    /// The set.
    pub partition: u16,
    /// What.
    pub ask: SetAsk,
}

/// What may be asked about a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetAsk {
    /// Entries of its indexes are to come or to go when the transaction commits: others that have read where they are or would be are waited
    /// for, and read there no more.
    Entries(#[serde(with = "list")] Vec<SetEntry>),
    /// Records in the order of an index.
    Range(SetRange),
    /// All records from a position of the set's own order on, 0 at first.
    Scan(u64),
    /// The number for a record that is to be added to a set which numbers its records.
    Arrival,
}

/// The entry of a record in an index of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetEntry {
    /// The position of the index.
    pub index: u16,
    /// What it orders the record by.
    #[serde(with = "raw")]
    pub of: Vec<u8>,
}

/// A range of an index of a set, and where in it to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRange {
    /// The position of the index.
    pub index: u16,
    /// From what on.
    #[serde(with = "raw")]
    pub from: Vec<u8>,
    /// Up to but without what; without this to the end.
    pub to: Option<SetValue>,
    /// What the record is ordered by, and its key, behind which it goes on.
    pub behind: Option<(SetValue, SetValue)>,
}

/// The answer to a question about a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetAnswer {
    /// The transaction has the locks that it asked for.
    Granted,
    /// It has waited, and is to ask again.
    AskAgain,
    /// Records in their order.
    Records {
        /// Which.
        #[serde(with = "list")]
        records: Vec<SetFound>,
        /// Whether none follow, of a range.
        is_last: bool,
        /// From where on others follow, of a scan.
        next: Option<u64>,
    },
    /// The number of a record that is to come. No other one gets it.
    Number(u64),
    /// The value of a record as it was, if it was there.
    Value(Option<SetValue>),
    /// What was asked is not known any more of that moment.
    TooOld {
        /// The oldest moment of which all is known.
        oldest: u64,
    },
    /// There is no answer.
    Failed {
        /// Whether it is that the client has no grant for that.
        is_denied: bool,
        /// Why, in words.
        reason: String,
    },
}

/// A record of a set, where it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetFound {
    /// What the index orders it by; nothing without an index.
    #[serde(with = "raw")]
    pub of: Vec<u8>,
    /// Its key.
    #[serde(with = "raw")]
    pub key: Vec<u8>,
    /// Its value, where it is sent along; otherwise it is to be asked for by its key.
    pub value: Option<SetValue>,
}

impl SetFound {
    /// How many bytes the values of these have, as far as they are sent along.
    pub(crate) fn length_of_values(records: &[SetFound]) -> usize {
        records.iter().filter_map(|record| record.value.as_ref()).map(|SetValue(value)| value.len()).sum()
    }
}

impl SetRange {
    /// How many bytes it has of contents and keys.
    pub(super) fn length(&self) -> usize {
        let behind = self.behind.as_ref().map_or(0, |(of, key)| of.0.len() + key.0.len());
        self.from.len() + self.to.as_ref().map_or(0, |to| to.0.len()) + behind
    }
}

impl SetQuestion {
    /// How many bytes it has of contents and keys.
    pub(crate) fn length(&self) -> usize {
        match &self.ask {
            SetAsk::Entries(entries) => entries.iter().map(|entry| entry.of.len()).sum(),
            SetAsk::Range(range) => range.length(),
            SetAsk::Scan(_) | SetAsk::Arrival => 0,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.ask {
            SetAsk::Entries(_) => "set entries",
            SetAsk::Range(_) => "set range",
            SetAsk::Scan(_) => "set scan",
            SetAsk::Arrival => "set arrival",
        }
    }
}

impl SetAnswer {
    /// How many bytes it has of records.
    pub(crate) fn length(&self) -> usize {
        let length = |value: &Option<SetValue>| value.as_ref().map_or(0, |SetValue(value)| value.len());
        match self {
            SetAnswer::Records { records, .. } => {
                records.iter().map(|found| found.of.len() + found.key.len() + length(&found.value)).sum()
            }
            SetAnswer::Value(value) => length(value),
            _ => 0,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            SetAnswer::Granted | SetAnswer::AskAgain => "set granted",
            SetAnswer::Records { .. } => "set records",
            SetAnswer::Number(_) => "set number",
            SetAnswer::Value(_) => "set value",
            SetAnswer::TooOld { .. } | SetAnswer::Failed { .. } => "no set records",
        }
    }
}

impl From<FoundInSet> for SetFound {
    fn from(found: FoundInSet) -> SetFound {
        SetFound { of: found.of, key: found.key, value: found.value.map(SetValue) }
    }
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
