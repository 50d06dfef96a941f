//! B-trees: records with keys in the order of their keys' bytes.
//!
//! Page 0 of the partition allocates pages, page 1 is the root and stays it. A leaf's entries are the records; what their
//! values mean is the caller's business. An inner node's entry at slot `i` says that the keys from its separator up to the
//! next one are below its child; the first entry begins at the node's lower fence and stores no key. Nodes know their
//! fences (Graefe, "Write-Optimized B-Trees", VLDB 2004), so they need no links to their siblings: a scan goes on by a new
//! descent from the fence.
//!
//! Nothing here changes a page. Functions look at pages and return places or edits, which the caller logs as one record and
//! applies. A restructuring is a sequence of steps, each of which leaves a sound tree; the caller makes one and asks again.
//!
//! Each value begins with a version word, reserved for a page server; its top bit marks a long value. Direct objects
//! have none.

pub mod ahead;
pub mod check;
pub mod load;
pub mod merge;
pub mod overflow;
pub mod prefetch;
pub mod relocate;
pub mod scan;
pub mod split;
pub mod stored;
#[cfg(test)]
mod tests;

pub use ahead::{leaves_above, leaves_below};
pub use check::{Child, Expected, check_node};
pub use load::BulkLoader;
pub use merge::{find_to_remove, is_underfull, merge};
pub use prefetch::{GROUP_MAX, leaves_of, prefetch};
pub use relocate::{height, node_at, relocate};
pub use scan::{LeafRange, backward, forward};
pub use split::{has_room, make_room};

use super::allocator::{self, damaged};
use crate::Need;
use crate::page::slotted::{self, NODE_SLOT, SLOTS};
use crate::page::{OwnedEdit, PageKind, Pages};
use base::{PageId, PartitionId};

/// The number of the root's page.
pub const ROOT: u32 = 1;
/// The smallest page size of a b-tree, in bytes.
pub const PAGE_SIZE_MIN: usize = 512;
/// The size of an inner node's value, a page number, in bytes.
pub const CHILD_SIZE: usize = 4;
/// A record's overhead in a node, in bytes.
const ENTRY_OVERHEAD: usize = NODE_SLOT + 2;

/// Where a key is or would come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The leaf.
    pub page: PageId,
    /// The slot of the first record that is not below the key; the leaf's count if there is none.
    pub slot: u16,
    /// Whether that record has this key.
    pub exact: bool,
}

/// The longest key in bytes: four separators and two fences fit an inner node.
pub const fn key_len_max(page_size: usize) -> usize {
    (page_size - SLOTS) / 8
}

/// The longest value in bytes that a leaf holds beside a key of `key_len` bytes: four such records fit a leaf with the longest
/// fences.
pub const fn value_len_max(page_size: usize, key_len: usize) -> usize {
    (page_size - SLOTS - 2 * key_len_max(page_size)) / 4 - ENTRY_OVERHEAD - key_len
}

/// The edits that make an empty tree of the partition's first two pages.
pub fn create(partition: PartitionId, page_size: usize) -> Vec<OwnedEdit> {
    assert!(page_size >= PAGE_SIZE_MIN, "a b-tree's pages have at least {PAGE_SIZE_MIN} bytes");
    let root = slotted::Builder::new(page_size, 0, &[], &[]).finish();
    let root = OwnedEdit { page: PageId::new(partition, ROOT), change: root };
    vec![allocator::create(partition, ROOT + 1, &[]), root]
}

/// Finds the leaf and slot of `key`.
///
/// # Errors
/// [`Need::Page`] for the next page on the way, [`Need::Fail`] if that page is no node of the level that its parent implies.
#[inline]
pub fn seek(pages: &impl Pages, partition: PartitionId, key: &[u8]) -> Result<Location, Need> {
    find(pages, partition, key).map(|(location, _)| location)
}

/// As [`seek`], with the leaf's bytes.
///
/// # Errors
/// As [`seek`].
#[inline]
pub fn find<'a>(pages: &'a impl Pages, partition: PartitionId, key: &[u8]) -> Result<(Location, &'a [u8]), Need> {
    find_in(pages, leaf_of(pages, partition, key)?, key)
}

/// The leaf of `key`, whose bytes are only asked for: they may come while the caller does something else. A root that is a leaf
/// has been looked at.
///
/// # Errors
/// As [`seek`], for the leaf's parents.
#[inline]
pub fn leaf_of(pages: &impl Pages, partition: PartitionId, key: &[u8]) -> Result<PageId, Need> {
    let leaf = descend(pages, partition, |page| slot_for(page, key))?;
    if leaf.number != ROOT {
        pages.prefetch(leaf);
    }
    Ok(leaf)
}

/// Finds the slot of `key` in its leaf, which [`leaf_of`] has named since the tree was last changed.
///
/// # Errors
/// As [`seek`], for the leaf.
#[inline]
pub fn find_in<'a>(pages: &'a impl Pages, leaf: PageId, key: &[u8]) -> Result<(Location, &'a [u8]), Need> {
    let page = open_leaf(pages, leaf)?;
    let found = slotted::search(page, key);
    Ok((Location { page: leaf, slot: found.unwrap_or_else(|slot| slot), exact: found.is_ok() }, page))
}

/// As [`find`], where the key is probably of the leaf `near`, which a search has named since the tree was last changed: its fences tell.
///
/// # Errors
/// As [`seek`].
#[inline]
pub fn find_near<'a>(
    pages: &'a impl Pages,
    partition: PartitionId,
    key: &[u8],
    near: Option<PageId>,
) -> Result<(Location, &'a [u8]), Need> {
    if let Some(near) = near {
        let leaf = open_leaf(pages, near)?;
        let upper = slotted::upper(leaf);
        if slotted::lower(leaf) <= key && (upper.is_empty() || key < upper) {
            return find_in(pages, near, key);
        }
    }
    find(pages, partition, key)
}

/// Goes from the root to the parent of a leaf and returns the leaf; `choose` names the slot to follow in each inner node.
#[inline]
fn descend(pages: &impl Pages, partition: PartitionId, mut choose: impl FnMut(&[u8]) -> u16) -> Result<PageId, Need> {
    let mut id = PageId::new(partition, ROOT);
    let mut page = node(pages, id)?;
    let mut level = slotted::level(page);
    while level > 0 {
        level -= 1;
        id.number = child(page, choose(page));
        if level > 0 {
            page = node(pages, id)?;
            if slotted::level(page) != level {
                return Err(not_in_tree(id));
            }
        }
    }
    Ok(id)
}

/// The page `id`, which is a leaf.
#[inline]
fn open_leaf<P: Pages>(pages: &P, id: PageId) -> Result<&[u8], Need> {
    let page = node(pages, id)?;
    if slotted::level(page) == 0 { Ok(page) } else { Err(not_in_tree(id)) }
}

/// The leaf that `choose` leads to.
#[inline]
fn descend_to_leaf<P: Pages>(
    pages: &P,
    partition: PartitionId,
    choose: impl FnMut(&[u8]) -> u16,
) -> Result<(PageId, &[u8]), Need> {
    let id = descend(pages, partition, choose)?;
    Ok((id, open_leaf(pages, id)?))
}

/// The page `id`, which is a node.
#[inline]
fn node<P: Pages>(pages: &P, id: PageId) -> Result<&[u8], Need> {
    let page = pages.page(id)?;
    if page[4] != PageKind::Node as u8 { Err(not_in_tree(id)) } else { Ok(page) }
}

#[cold]
fn not_in_tree(id: PageId) -> Need {
    damaged(id, "it is not the b-tree node that its parent refers to")
}

/// The slot of the inner node whose child `key` is below.
#[inline]
fn slot_for(page: &[u8], key: &[u8]) -> u16 {
    slotted::search(page, key).unwrap_or_else(|above| above.saturating_sub(1))
}

/// The page number at `slot` of an inner node.
#[inline]
pub fn child(page: &[u8], slot: u16) -> u32 {
    u32::from_le_bytes(slotted::value(page, slot).try_into().expect("a page number"))
}

/// A node on the way from the root to a leaf, with the slot that leads on (0 in the leaf).
struct Step<'a> {
    id: PageId,
    page: &'a [u8],
    slot: u16,
}

/// The way from the root to the leaf of `key`.
fn path<'a>(pages: &'a impl Pages, partition: PartitionId, key: &[u8]) -> Result<Vec<Step<'a>>, Need> {
    let mut id = PageId::new(partition, ROOT);
    let mut page = node(pages, id)?;
    let mut path = Vec::with_capacity(1 + usize::from(slotted::level(page)));
    while slotted::level(page) > 0 {
        let slot = slot_for(page, key);
        path.push(Step { id, page, slot });
        id.number = child(page, slot);
        let below = node(pages, id)?;
        if slotted::level(below) + 1 != slotted::level(page) {
            return Err(not_in_tree(id));
        }
        page = below;
    }
    path.push(Step { id, page, slot: 0 });
    Ok(path)
}

/// Bytes of a node that fences and entries can use.
fn body_size(page_size: usize) -> usize {
    page_size - SLOTS
}
