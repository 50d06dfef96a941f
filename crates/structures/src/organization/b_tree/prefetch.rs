//! Descents of several keys side by side: while the memory of one is on its way, the others go on ("group prefetching": Chen,
//! Ailamaki, Gibbons and Mowry, "Improving Hash Join Performance through Prefetching", ICDE 2004, section 4).
//!
//! Each pass asks for the memory that the next one looks at. A page that is not what its parent refers to ends the descent: the
//! search that meets it will say so.

use super::{ROOT, child, slot_for};
use crate::page::slotted;
use crate::page::{PageKind, Pages};
use base::{PageId, PartitionId};

/// How many descents go side by side. A core waits for some two dozen cache lines at a time, and a descent asks for several.
pub const GROUP_MAX: usize = 16;

/// Has the records of `keys` come near. Of each key that lacks a page in memory, the first one is appended to `absent`.
pub fn prefetch<K: AsRef<[u8]>>(pages: &impl Pages, partition: PartitionId, keys: &[K], absent: &mut Vec<PageId>) {
    let root = PageId::new(partition, ROOT);
    if pages.prefetch_header(root).is_none() {
        return absent.push(root);
    }
    for group in keys.chunks(GROUP_MAX) {
        descend_group(pages, partition, group, absent, |_| {});
    }
}

/// As [`prefetch`], for references that follow at once: refers to the nodes above the leaves, as a search does, and returns the
/// leaf of each key that lacks no page. It stays the key's leaf until the tree is changed.
///
/// # Panics
/// With more than [`GROUP_MAX`] keys.
pub fn leaves_of<K: AsRef<[u8]>>(
    pages: &impl Pages,
    partition: PartitionId,
    keys: &[K],
    absent: &mut Vec<PageId>,
) -> [Option<PageId>; GROUP_MAX] {
    descend_group(pages, partition, keys, absent, |node| _ = pages.page(node))
}

fn descend_group<K: AsRef<[u8]>>(
    pages: &impl Pages,
    partition: PartitionId,
    keys: &[K],
    absent: &mut Vec<PageId>,
    pass: impl Fn(PageId),
) -> [Option<PageId>; GROUP_MAX] {
    let root = PageId::new(partition, ROOT);
    let Some(page) = pages.prefetch_header(root) else {
        absent.push(root);
        return [None; GROUP_MAX];
    };
    let mut nodes = [None; GROUP_MAX];
    nodes[..keys.len()].fill(Some((root, page)));
    for level in (1..=slotted::level(page)).rev() {
        for (node, key) in nodes.iter_mut().zip(keys) {
            let Some((parent, page)) = node.filter(|(_, page)| is_node(page, level)) else { continue };
            pass(parent);
            let id = PageId::new(partition, child(page, slot_for(page, key.as_ref())));
            *node = pages.prefetch_header(id).map(|page| (id, page));
            if node.is_none() {
                absent.push(id);
            }
        }
    }
    let leaves = nodes.map(|node| node.filter(|(_, page)| is_node(page, 0)));
    leaves.iter().flatten().for_each(|(_, page)| driver::prefetch(slotted::slots(page)));
    let records: [Option<(&[u8], u16)>; GROUP_MAX] = std::array::from_fn(|index| {
        let (_, page) = leaves[index]?;
        let slot = slotted::search(page, keys[index].as_ref()).ok()?;
        driver::prefetch(slotted::record_start(page, slot));
        Some((page, slot))
    });
    records.iter().flatten().for_each(|(page, slot)| driver::prefetch(slotted::value(page, *slot)));
    leaves.map(|leaf| leaf.map(|(id, _)| id))
}

/// Whether the page is a node of this level.
#[inline]
pub(super) fn is_node(page: &[u8], level: u8) -> bool {
    page[4] == PageKind::Node as u8 && slotted::level(page) == level
}
