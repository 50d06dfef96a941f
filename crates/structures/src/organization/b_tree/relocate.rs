//! Moving nodes to other pages, so that the pages at the end of the file become free.

use super::{CHILD_SIZE, ROOT, child, node, not_in_tree};
use crate::Need;
use crate::organization::allocator;
use crate::page::slotted;
use crate::page::{OwnedChange, OwnedEdit, Pages};
use base::{PageId, PartitionId};

/// What a level of a tree has for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAt {
    /// The node of the level that the key is below.
    pub page: PageId,
    /// Its upper fence, where the next node of the level begins; `None` if it is the last one.
    pub next: Option<Vec<u8>>,
}

/// How many levels of nodes are above the leaves.
///
/// # Errors
/// [`Need::Page`] for the root, [`Need::Fail`] if it is none.
pub fn height(pages: &impl Pages, partition: PartitionId) -> Result<u8, Need> {
    Ok(slotted::level(node(pages, PageId::new(partition, ROOT))?))
}

/// The node of a level that `key` is below, by what its parent says; `None` if the tree has no nodes of this level below the root.
/// The node itself is not looked at, but for the sake of its fence.
///
/// # Errors
/// Those of [`super::seek`].
pub fn node_at(pages: &impl Pages, partition: PartitionId, level: u8, key: &[u8]) -> Result<Option<NodeAt>, Need> {
    let Some((parent, slot)) = parent_of(pages, partition, level, key)? else { return Ok(None) };
    let page = node(pages, parent)?;
    let next = if slot + 1 < slotted::count(page) {
        let mut next = Vec::new();
        slotted::key_into(page, slot + 1, &mut next);
        Some(next)
    } else {
        Some(slotted::upper(page).to_vec()).filter(|fence| !fence.is_empty())
    };
    Ok(Some(NodeAt { page: PageId::new(partition, child(page, slot)), next }))
}

/// The edits that move the node of a level that `key` is below to the first page of the free list: its parent refers to that from then
/// on, and its own page is free. `None` if the free list is empty.
///
/// # Errors
/// Those of [`super::seek`] and of [`allocator::allocate`].
pub fn relocate(
    pages: &impl Pages,
    partition: PartitionId,
    level: u8,
    key: &[u8],
) -> Result<Option<Vec<OwnedEdit>>, Need> {
    let Some((parent, slot)) = parent_of(pages, partition, level, key)? else { return Ok(None) };
    let from = PageId::new(partition, child(node(pages, parent)?, slot));
    let page = node(pages, from)?;
    if slotted::level(page) != level {
        return Err(not_in_tree(from));
    }
    let Some((to, mut edits)) = allocator::exchange(pages, from)? else { return Ok(None) };
    let change = super::split::rebuilt(page, 0..slotted::count(page), slotted::lower(page), slotted::upper(page));
    edits.push(OwnedEdit { page: PageId::new(partition, to), change });
    debug_assert_eq!(slotted::value(node(pages, parent)?, slot).len(), CHILD_SIZE);
    edits
        .push(OwnedEdit { page: parent, change: OwnedChange::ReplaceValue { slot, value: to.to_le_bytes().to_vec() } });
    Ok(Some(edits))
}

/// The parent of the node of a level that `key` is below, and the slot that leads there.
fn parent_of(pages: &impl Pages, partition: PartitionId, level: u8, key: &[u8]) -> Result<Option<(PageId, u16)>, Need> {
    let mut id = PageId::new(partition, ROOT);
    let mut page = node(pages, id)?;
    let mut above = slotted::level(page);
    if above <= level {
        return Ok(None);
    }
    loop {
        let slot = super::slot_for(page, key);
        if above == level + 1 {
            return Ok(Some((id, slot)));
        }
        id.number = child(page, slot);
        page = node(pages, id)?;
        above -= 1;
        if slotted::level(page) != above {
            return Err(not_in_tree(id));
        }
    }
}
