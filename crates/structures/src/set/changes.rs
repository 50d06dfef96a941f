//! What an unfinished transaction has changed: redo for the log, shadows for the way back.
//!
//! Shadows are private to their transaction. A record is changed in place, and its old bytes are put back into every
//! image of its segment. So a backup holds committed state only, a restart undoes nothing, and a sweep that takes the
//! state of its beginning need not wait for a moment without transactions.

use super::Sets;
use super::by_segment::ChangesBySegment;
use crate::reuse::{capacity_bytes, empty_for_reuse};
use std::cell::RefCell;

/// A moment within a transaction's changes, to which they can be rolled back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangePosition {
    pub(super) redo: usize,
    pub(super) shadows: usize,
}

/// How a record was before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// There was none.
    Nothing,
    /// The saved bytes stood at this offset of the value.
    Bytes { offset: u32, length: u32 },
    /// The saved bytes were the value, in an item of this size.
    Value { size: u32, length: u32 },
    /// It stands there still, marked as deleted.
    Here,
    /// It stands there still, marked as deleted; its new copy is at another place.
    MovedTo(u64),
}

/// The shadow of one change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shadow {
    /// The set's partition.
    pub(super) set: u16,
    /// The record's place in the set when it was changed.
    pub(super) place: u64,
    /// The hash of its key.
    pub(super) hash: u64,
    /// Where its saved bytes begin.
    pub(super) saved: usize,
    pub(super) before: Before,
}

impl Shadow {
    /// Its saved bytes.
    pub(super) fn bytes<'a>(&self, saved: &'a [u8]) -> &'a [u8] {
        match self.before {
            Before::Bytes { length, .. } | Before::Value { length, .. } => &saved[self.saved..][..length as usize],
            Before::Nothing | Before::Here | Before::MovedTo(_) => &[],
        }
    }
}

/// One transaction's changes, in their order. Its vectors are used again by the owner's next transaction.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) redo: Vec<u8>,
    pub(super) shadows: Vec<Shadow>,
    pub(super) saved: Vec<u8>,
    /// Bytes of records that were saved for a sweep and are still to be charged to the owner.
    pub(super) kept_bytes: u64,
    /// Where the shadows are, as far as an image of a segment was made beside the transaction.
    pub(super) by_segment: RefCell<ChangesBySegment>,
}

impl Changes {
    #[inline]
    pub(super) fn position(&self) -> ChangePosition {
        ChangePosition { redo: self.redo.len(), shadows: self.shadows.len() }
    }

    /// Forgets all; the memory stays, unless it is much.
    #[inline]
    pub(super) fn clear(&mut self) {
        empty_for_reuse(&mut self.redo);
        empty_for_reuse(&mut self.shadows);
        empty_for_reuse(&mut self.saved);
        self.by_segment.get_mut().clear();
    }

    /// Its memory, used or not, in bytes.
    fn memory_bytes(&self) -> usize {
        capacity_bytes(&self.redo) + capacity_bytes(&self.shadows) + capacity_bytes(&self.saved)
    }
}

impl Sets {
    /// The memory that holds what unfinished transactions have changed, or is kept for the next ones, in bytes.
    pub fn memory_of_changes(&self) -> usize {
        self.owners.iter().map(Changes::memory_bytes).sum()
    }
}
