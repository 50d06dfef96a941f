//! What is said of snapshots: views of all pages as they were at one moment.

use super::{packed, raw};
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
        }
    }
}

impl SnapshotAnswer {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            SnapshotAnswer::Begun { .. } => "snapshot begun",
            SnapshotAnswer::Page { .. } => "snapshot page",
            SnapshotAnswer::Failed { .. } => "snapshot failed",
            SnapshotAnswer::TooOld { .. } | SnapshotAnswer::Undecided { .. } => "snapshot over",
        }
    }
}
