//! Giving room back: merges of neighbours, collapse of the root.

use super::{Location, Step, body_size, child, descend, descend_to_leaf, find_in, node, path, slot_for};
use crate::Need;
use crate::organization::allocator;
use crate::page::slotted::{self, Builder, SLOTS};
use crate::page::{OwnedChange, OwnedEdit, Pages};
use base::{PageId, PartitionId};

/// As [`super::find`], and whether a node above the leaf [`is_underfull`]. Unless it is, or the leaf will be once the record is
/// removed, [`merge`] has nothing to do.
///
/// # Errors
/// As [`super::seek`].
pub fn find_to_remove<'a>(
    pages: &'a impl Pages,
    partition: PartitionId,
    key: &[u8],
) -> Result<(Location, &'a [u8], bool), Need> {
    let (mut due, mut is_root) = (false, true);
    let leaf = descend(pages, partition, |page| {
        due |= is_underfull(page, is_root);
        is_root = false;
        slot_for(page, key)
    })?;
    let (location, leaf) = find_in(pages, leaf, key)?;
    Ok((location, leaf, due))
}

/// The edits of one step that gives a page back, on the way from the root to the leaf of `key`; `None` if there is nothing
/// to give back. To be asked after a removal.
///
/// A node that is filled to less than a quarter joins a neighbour below the same parent if both fill at most three quarters
/// of a page, so that a merged node neither splits nor merges again soon. A node without entries (an inner node with one)
/// joins whenever it fits.
///
/// # Errors
/// [`Need::Page`]; [`Need::Fail`] if a page is damaged.
pub fn merge(pages: &impl Pages, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<OwnedEdit>>, Need> {
    let (mut due, mut is_root) = (false, true);
    let (_, leaf) = descend_to_leaf(pages, partition, |page| {
        due |= is_underfull(page, is_root);
        is_root = false;
        slot_for(page, key)
    })?;
    if !due && !is_underfull(leaf, is_root) {
        return Ok(None);
    }
    let path = path(pages, partition, key)?;
    if is_underfull(path[0].page, true) {
        return collapse(pages, &path[0], &path[1]).map(Some);
    }
    for pair in path.windows(2).rev().filter(|pair| is_underfull(pair[1].page, false)) {
        let parent = &pair[0];
        let pairs =
            [parent.slot.checked_sub(1), (parent.slot + 1 < slotted::count(parent.page)).then_some(parent.slot)];
        for left in pairs.into_iter().flatten() {
            if let Some(edits) = join(pages, parent, left)? {
                return Ok(Some(edits));
            }
        }
    }
    Ok(None)
}

/// Bytes in use behind the header of slotted pages.
fn used(page: &[u8]) -> usize {
    page.len() - SLOTS - slotted::room(page)
}

fn bare(page: &[u8]) -> bool {
    slotted::count(page) <= u16::from(slotted::level(page) > 0)
}

/// Whether a node is so empty that [`merge`] joins it with a neighbour, if they fit one page. A root has no neighbour: it takes
/// the place of its only child.
pub fn is_underfull(page: &[u8], is_root: bool) -> bool {
    if is_root { slotted::level(page) > 0 && bare(page) } else { used(page) < body_size(page.len()) / 4 || bare(page) }
}

/// Joins the children at slots `left` and `left + 1`, if they fit.
fn join(pages: &impl Pages, parent: &Step<'_>, left: u16) -> Result<Option<Vec<OwnedEdit>>, Need> {
    let partition = parent.id.partition;
    let left_id = PageId::new(partition, child(parent.page, left));
    let right_id = PageId::new(partition, child(parent.page, left + 1));
    let (left_page, right_page) = (node(pages, left_id)?, node(pages, right_id)?);
    let (lower, upper) = (slotted::lower(left_page), slotted::upper(right_page));

    let mut size = lower.len() + upper.len();
    let prefix_len = slotted::common_prefix_len(lower, upper);
    for page in [left_page, right_page] {
        for slot in 0..slotted::count(page) {
            size += slotted::entry_size(prefix_len, key_len(page, slot), slotted::value(page, slot).len());
        }
    }
    let body = body_size(left_page.len());
    let limit = if bare(left_page) || bare(right_page) { body } else { body / 4 * 3 };
    if size > limit {
        return Ok(None);
    }

    let mut builder = Builder::new(left_page.len(), slotted::level(left_page), lower, upper);
    let mut key = Vec::new();
    for page in [left_page, right_page] {
        for slot in 0..slotted::count(page) {
            key_into(page, slot, &mut key);
            builder.push(&key, slotted::value(page, slot));
        }
    }
    let mut edits = allocator::free(pages, right_id)?;
    edits.extend([
        OwnedEdit { page: left_id, change: builder.finish() },
        OwnedEdit { page: parent.id, change: OwnedChange::RemoveSlot { slot: left + 1 } },
    ]);
    Ok(Some(edits))
}

/// Whether the entry stands for the node's lower fence.
fn at_lower_fence(page: &[u8], slot: u16) -> bool {
    slot == 0 && slotted::level(page) > 0
}

fn key_len(page: &[u8], slot: u16) -> usize {
    if at_lower_fence(page, slot) { slotted::lower(page).len() } else { slotted::key_len(page, slot) }
}

fn key_into(page: &[u8], slot: u16, key: &mut Vec<u8>) {
    slotted::key_into(page, slot, key);
    if at_lower_fence(page, slot) {
        key.clear();
        key.extend_from_slice(slotted::lower(page));
    }
}

/// The root takes the place of its only child.
fn collapse(pages: &impl Pages, root: &Step<'_>, only: &Step<'_>) -> Result<Vec<OwnedEdit>, Need> {
    let mut edits = allocator::free(pages, only.id)?;
    let change = super::split::rebuilt(only.page, 0..slotted::count(only.page), &[], &[]);
    edits.push(OwnedEdit { page: root.id, change });
    Ok(edits)
}
