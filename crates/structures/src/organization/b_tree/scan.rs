//! Scans in both directions. A scan visits one leaf at a time: it learns where it begins in the leaf and the fence from which
//! it goes on, by a new descent, when the leaf is done. So it stays right whatever happened to the tree in between.

use super::{descend_to_leaf, not_in_tree, slot_for};
use crate::Need;
use crate::page::Pages;
use crate::page::slotted;
use base::{PageId, PartitionId};
use std::ops::Bound;

/// A scan's share of one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRange {
    /// The leaf.
    pub page: PageId,
    /// Forward: the scan's records are those from this slot on. Backward: those before this slot.
    pub slot: u16,
    /// Where the scan goes on: forward at `Bound::Included` of the leaf's upper fence, backward at `Bound::Excluded` of its
    /// lower fence. `None` if this leaf is the last one.
    pub fence: Option<Vec<u8>>,
}

/// The leaf with which an ascending scan begins, and its first record there (the leaf may have none).
///
/// # Errors
/// Those of [`super::seek`].
pub fn forward(pages: &impl Pages, partition: PartitionId, from: Bound<&[u8]>) -> Result<LeafRange, Need> {
    let key = match from {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    };
    let (id, page) = descend_to_leaf(pages, partition, |page| slot_for(page, key))?;
    check_above(id, page, key)?;
    let slot = match (from, slotted::search(page, key)) {
        (Bound::Excluded(_), Ok(slot)) => slot + 1,
        (_, Ok(slot) | Err(slot)) => slot,
    };
    Ok(LeafRange { page: id, slot, fence: fence(slotted::upper(page)) })
}

/// The leaf with which a descending scan begins, and the slot behind its first record there (the leaf may have none).
///
/// # Errors
/// Those of [`super::seek`].
pub fn backward(pages: &impl Pages, partition: PartitionId, from: Bound<&[u8]>) -> Result<LeafRange, Need> {
    let (id, page) = descend_to_leaf(pages, partition, |page| match from {
        Bound::Included(key) => slot_for(page, key),
        Bound::Excluded(key) => entries_below(page, key).saturating_sub(1),
        Bound::Unbounded => slotted::count(page) - 1,
    })?;
    check_around(id, page, from)?;
    let slot = match from {
        Bound::Included(key) => slotted::search(page, key).map_or_else(|slot| slot, |slot| slot + 1),
        Bound::Excluded(key) => entries_below(page, key),
        Bound::Unbounded => slotted::count(page),
    };
    Ok(LeafRange { page: id, slot, fence: fence(slotted::lower(page)) })
}

/// Fails for a leaf that ends before a key which led there: it is an old one that a lost write has left, and a scan that
/// went on from its fence would come back to it for ever.
fn check_above(id: PageId, page: &[u8], key: &[u8]) -> Result<(), Need> {
    let upper = slotted::upper(page);
    if upper.is_empty() || key < upper { Ok(()) } else { Err(not_in_tree(id)) }
}

/// The same for the first leaf of a descending scan, which also must not begin where the scan does.
fn check_around(id: PageId, page: &[u8], from: Bound<&[u8]>) -> Result<(), Need> {
    let (lower, upper) = (slotted::lower(page), slotted::upper(page));
    let is_around = match from {
        Bound::Included(key) => lower <= key && (upper.is_empty() || key < upper),
        Bound::Excluded(key) => (lower.is_empty() || lower < key) && (upper.is_empty() || key <= upper),
        Bound::Unbounded => upper.is_empty(),
    };
    if is_around { Ok(()) } else { Err(not_in_tree(id)) }
}

/// How many of the node's keys are below `key`, which may be the node's upper fence and then need not have its prefix.
pub(super) fn entries_below(page: &[u8], key: &[u8]) -> u16 {
    if !slotted::upper(page).is_empty() && key >= slotted::upper(page) {
        return slotted::count(page);
    }
    slotted::search(page, key).unwrap_or_else(|slot| slot)
}

fn fence(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.is_empty() { None } else { Some(bytes.to_vec()) }
}
