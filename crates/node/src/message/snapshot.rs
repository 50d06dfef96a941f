//! What is said of snapshots: views of all pages as they were at one moment.

use super::{SetAnswer, SetRange, packed, raw};
use base::PageId;
use serde::{Deserialize, Serialize};

/// What a client says of one of its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotRequest {
    /// It begins: it sees what is committed when this comes.
    Begin,
    /// A page is wanted as it was at its moment. No copy comes of it.
    Read {
        /// Which.
        #[serde(with = "packed")]
        page: PageId,
    },
    /// It has ended.
    End,
    /// Something of a set is wanted as it was at its moment.
    Set {
        /// The number of the question.
        question: u64,
        /// The set.
        partition: u16,
        /// What.
        ask: PastAsk,
    },
}

/// What may be asked of a set as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PastAsk {
    /// The value of the record of this key.
    Record(#[serde(with = "raw")] Vec<u8>),
    /// Records in the order of an index.
    Range(SetRange),
    /// All records from a position of the set's own order on, 0 at first.
    Scan(u64),
}

impl PastAsk {
    /// How many bytes it has of contents and keys.
    pub(crate) fn length(&self) -> usize {
        match self {
            PastAsk::Record(key) => key.len(),
            PastAsk::Range(range) => range.length(),
            PastAsk::Scan(_) => 0,
        }
    }
}

/// What the server says of a client's snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotAnswer {
    /// What it sees is durable.
    Begun {
        /// Its moment: a position of the server's log.
        moment: u64,
    },
    /// A page as it was.
    Page {
        /// Which.
        #[serde(with = "packed")]
        page: PageId,
        /// Its bytes.
        #[serde(with = "raw")]
        bytes: Vec<u8>,
    },
    /// A page cannot be had.
    Failed {
        /// Which.
        #[serde(with = "packed")]
        page: PageId,
        /// Whether it is that the client has no grant to read it.
        is_denied: bool,
        /// Why, in words.
        reason: String,
    },
    /// What pages were at its moment is not known any more.
    TooOld {
        /// The oldest moment of which all is known.
        oldest: u64,
    },
    /// The answer to what was asked of a set.
    Set {
        /// The number of the question.
        question: u64,
        /// What.
        said: SetAnswer,
    },
    /// What it would see is not known to be durable: the log has failed.
    Undecided {
        /// Why, in words.
        reason: String,
    },
}

impl SnapshotRequest {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            SnapshotRequest::Begin => "snapshot",
            SnapshotRequest::Read { .. } => "snapshot read",
            SnapshotRequest::End => "snapshot end",
            SnapshotRequest::Set { .. } => "snapshot set",
        }
    }
}

impl SnapshotAnswer {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            SnapshotAnswer::Begun { .. } => "snapshot begun",
            SnapshotAnswer::Page { .. } => "snapshot page",
            SnapshotAnswer::Set { .. } => "snapshot set",
            SnapshotAnswer::Failed { .. } => "snapshot failed",
            SnapshotAnswer::TooOld { .. } | SnapshotAnswer::Undecided { .. } => "snapshot over",
        }
    }
}
