//! Which leaves a scan comes to next. Their parents name them, so they can be read before the scan is there; leaves themselves know
//! only their fences.

use super::prefetch::is_node;
use super::scan::entries_below;
use super::{ROOT, child, slot_for};
use crate::page::Pages;
use crate::page::slotted;
use base::{PageId, PartitionId};
use std::ops::Bound;

/// The pages of the leaves that an ascending scan comes to from `from` on, the leaf of `from` first: those that have keys before the
/// end `to`, `count` at most. Refers to no page. Where a node above them is not in memory, that node is the last one named.
pub fn leaves_above(
    pages: &impl Pages,
    partition: PartitionId,
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    count: usize,
) -> Vec<PageId> {
    let mut found = Vec::new();
    let mut from = match from {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    };
    let is_past = |key: &[u8]| match to {
        Bound::Included(to) => key > to,
        Bound::Excluded(to) => key >= to,
        Bound::Unbounded => false,
    };
    let mut separator = Vec::new();
    loop {
        let Some(node) = parent(pages, partition, |page| slot_for(page, from), &mut found) else { return found };
        let first = slot_for(node, from);
        for slot in first..slotted::count(node) {
            if slot > first {
                slotted::key_into(node, slot, &mut separator);
            }
            if found.len() == count || slot > first && is_past(&separator) {
                return found;
            }
            found.push(PageId::new(partition, child(node, slot)));
        }
        let fence = slotted::upper(node);
        if found.len() == count || fence.is_empty() || fence <= from || is_past(fence) {
            return found;
        }
        from = fence;
    }
}

/// The same of a descending scan: it begins at `from`, its upper end, and ends at `to`, its lower one.
pub fn leaves_below(
    pages: &impl Pages,
    partition: PartitionId,
    (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    count: usize,
) -> Vec<PageId> {
    let mut found = Vec::new();
    let mut from = from;
    // A leaf has nothing of the range if it begins at its end or past that, and so has what is below it.
    let is_last = |lower: &[u8]| match to {
        Bound::Included(to) | Bound::Excluded(to) => lower <= to,
        Bound::Unbounded => false,
    };
    let mut separator = Vec::new();
    loop {
        let choose = |page: &[u8]| match from {
            Bound::Included(key) => slot_for(page, key),
            Bound::Excluded(key) => entries_below(page, key).saturating_sub(1),
            Bound::Unbounded => slotted::count(page).saturating_sub(1),
        };
        let Some(node) = parent(pages, partition, choose, &mut found) else { return found };
        for slot in (0..=choose(node)).rev() {
            if found.len() == count {
                return found;
            }
            found.push(PageId::new(partition, child(node, slot)));
            slotted::key_into(node, slot, &mut separator);
            if slot > 0 && is_last(&separator) {
                return found;
            }
        }
        let fence = slotted::lower(node);
        let is_before = match from {
            Bound::Included(key) | Bound::Excluded(key) => fence < key,
            Bound::Unbounded => true,
        };
        if found.len() == count || fence.is_empty() || !is_before || is_last(fence) {
            return found;
        }
        from = Bound::Excluded(fence);
    }
}

/// The lowest inner node that `choose` leads to; `None` if the root is a leaf, or a page on the way is not the node that it ought to
/// be: the search that meets it will say so. The first node on the way that is not in memory is added to `absent`.
fn parent<'a>(
    pages: &'a impl Pages,
    partition: PartitionId,
    choose: impl Fn(&[u8]) -> u16,
    absent: &mut Vec<PageId>,
) -> Option<&'a [u8]> {
    let mut look = |id| {
        let page = pages.prefetch_header(id);
        if page.is_none() {
            absent.push(id);
        }
        page
    };
    let mut id = PageId::new(partition, ROOT);
    let mut page = look(id)?;
    let height = slotted::level(page);
    if height == 0 || !is_node(page, height) {
        return None;
    }
    for level in (1..height).rev() {
        id.number = child(page, choose(page));
        page = look(id).filter(|page| is_node(page, level))?;
    }
    Some(page)
}
