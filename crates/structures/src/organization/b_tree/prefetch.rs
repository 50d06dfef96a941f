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
const GROUP_MAX: usize = 16;

/// Has the records of `keys` come near. Of each key that lacks a page in memory, the first one is appended to `absent`.
pub fn prefetch<K: AsRef<[u8]>>(pages: &impl Pages, partition: PartitionId, keys: &[K], absent: &mut Vec<PageId>) {
    let root = PageId::new(partition, ROOT);
    match pages.prefetch_header(root) {
        Some(page) => keys.chunks(GROUP_MAX).for_each(|group| prefetch_group(pages, (root, page), group, absent)),
        None => absent.push(root),
    }
}

fn prefetch_group<K: AsRef<[u8]>>(
    pages: &impl Pages,
    (root, page): (PageId, &[u8]),
    keys: &[K],
    absent: &mut Vec<PageId>,
) {
    let mut nodes = [None; GROUP_MAX];
    nodes[..keys.len()].fill(Some(page));
    for level in (1..=slotted::level(page)).rev() {
        for (node, key) in nodes.iter_mut().zip(keys) {
            let Some(page) = node.filter(|page| is_node(page, level)) else { continue };
            let id = PageId::new(root.partition, child(page, slot_for(page, key.as_ref())));
            *node = pages.prefetch_header(id);
            if node.is_none() {
                absent.push(id);
            }
        }
    }
    let leaves = nodes.map(|node| node.filter(|page| is_node(page, 0)));
    leaves.iter().flatten().for_each(|page| driver::prefetch(slotted::slots(page)));
    let records: [Option<(&[u8], u16)>; GROUP_MAX] = std::array::from_fn(|index| {
        let page = leaves[index]?;
        let slot = slotted::search(page, keys[index].as_ref()).ok()?;
        driver::prefetch(slotted::record_start(page, slot));
        Some((page, slot))
    });
    records.iter().flatten().for_each(|(page, slot)| driver::prefetch(slotted::value(page, *slot)));
}

/// Whether the page is a node of this level.
#[inline]
fn is_node(page: &[u8], level: u8) -> bool {
    page[4] == PageKind::Node as u8 && slotted::level(page) == level
}
