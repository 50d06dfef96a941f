//! An index that is being built, as others see it.

use base::PartitionId;
use std::cell::Cell;

/// An index that is being built.
#[derive(Debug)]
pub(crate) struct IndexBuild {
    pub partition: PartitionId,
    pub name: String,
    /// How many records have got their entries.
    pub records: Cell<u64>,
    /// Whether it is to be built no further.
    pub is_given_up: Cell<bool>,
    /// Whether it was built.
    pub is_entered: Cell<bool>,
}

impl IndexBuild {
    /// It has no entries yet.
    pub fn new(partition: PartitionId, name: &str) -> IndexBuild {
        let (is_given_up, is_entered) = (Cell::new(false), Cell::new(false));
        IndexBuild { partition, name: name.to_owned(), records: Cell::new(0), is_given_up, is_entered }
    }
}
