//! What a step lacks.

use super::Error;
use base::{PageId, PartitionId};

/// What a step lacks to go on. The caller waits for it and calls again from the beginning, so a step changes nothing before it
/// has all it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Need {
    /// A page that is not in the buffer.
    Page(PageId),
    /// The permission to write a page that is in the buffer.
    Write(PageId),
    /// Room for more pages in the partition's file.
    Space(PartitionId),
    /// Nothing that waiting could provide: pages contradict each other, or something fits none.
    Refused(Box<structures::Error>),
    /// Nothing that waiting could provide.
    Fail(Box<Error>),
}

impl From<Error> for Need {
    fn from(error: Error) -> Need {
        Need::Fail(Box::new(error))
    }
}

impl From<structures::Need> for Need {
    fn from(need: structures::Need) -> Need {
        match need {
            structures::Need::Page(page) => Need::Page(page),
            structures::Need::Write(page) => Need::Write(page),
            structures::Need::Space(partition) => Need::Space(partition),
            structures::Need::Fail(error) => Need::Refused(Box::new(error)),
        }
    }
}
