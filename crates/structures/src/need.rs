//! What a synchronous function may lack, and why it may never succeed.

use base::{PageId, PartitionId};
use thiserror::Error;

/// What a planning function lacks to go on. The caller waits for it and calls again from the beginning, so such functions
/// change nothing before they have all they need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A page that is not in the buffer.
    Page(PageId),
    /// The permission to write a page that is in the buffer.
    Write(PageId),
    /// Room for more pages in the partition's file.
    Space(PartitionId),
    /// Nothing that waiting could provide.
    Fail(Error),
}

/// Why something can never be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// A page's contents contradict themselves or another page's.
    #[error("{page} is damaged: {detail}")]
    DamagedPage {
        /// The page.
        page: PageId,
        /// What is wrong with it.
        detail: String,
    },
    /// A key or value does not fit.
    #[error("{what} of {found} bytes is over the limit of {limit} bytes in partition {}", .partition.0)]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        found: usize,
        /// The limit in bytes.
        limit: usize,
        /// The partition.
        partition: PartitionId,
    },
}

impl From<Error> for Need {
    fn from(error: Error) -> Need {
        Need::Fail(error)
    }
}
