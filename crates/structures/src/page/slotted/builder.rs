//! Whole nodes, built from their entries in ascending order.

use super::{HEAD_SIZE, HEAP, LENGTH_SIZE, LOWER, NODE_SLOT, PREFIX, SLOTS, UPPER};
use super::{
    count, get, heap_start, insert, key_into, node_slots, prefix_len, rest_len, set, slot_head, slot_key_len, value,
};
use crate::page::{HEADER_SIZE, OwnedChange, PageKind};
use std::ops::Range;

/// Builds the contents of a b-tree node.
pub struct Builder {
    page: Vec<u8>,
}

/// How many bytes `a` and `b` share at their front.
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Builder {
    /// A node without entries. An empty fence is no bound.
    ///
    /// # Panics
    /// If the fences do not fit the page.
    pub fn new(page_size: usize, level: u8, lower: &[u8], upper: &[u8]) -> Builder {
        let mut page = vec![0; page_size];
        page[4] = PageKind::Node as u8;
        page[5] = level;
        set(&mut page, HEAP, lower.len() + upper.len());
        set(&mut page, PREFIX, common_prefix_len(lower, upper));
        set(&mut page, LOWER, lower.len());
        set(&mut page, UPPER, upper.len());
        let upper_start = page_size - upper.len();
        page[upper_start..].copy_from_slice(upper);
        page[upper_start - lower.len()..upper_start].copy_from_slice(lower);
        Builder { page }
    }

    /// Adds an entry behind the others. An inner node's first entry is for all keys from the lower fence on: its key is not
    /// stored.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let slot = count(&self.page);
        if slot == 0 && self.page[5] > 0 {
            let prefix = super::prefix(&self.page).to_vec();
            insert(&mut self.page, 0, &prefix, value);
        } else {
            insert(&mut self.page, slot, key, value);
        }
    }

    /// Adds entries of a node of the same level, which lie within these fences. If the fences have no less in common than those of that
    /// node, entries are not taken apart: what the prefix takes of a key is shifted out of its head.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy(&mut self, page: &[u8], slots: Range<u16>) {
        let Some(cut) = prefix_len(&self.page).checked_sub(prefix_len(page)).filter(|cut| *cut <= HEAD_SIZE) else {
            return self.copy_by_keys(page, slots);
        };
        let mut rest = slots.clone();
        if self.page[5] > 0 && count(&self.page) == 0 {
            self.copy_by_keys(page, rest.start..slots.end.min(slots.start + 1));
            rest.start += 1;
        }
        let mut end = heap_start(&self.page);
        let mut count = usize::from(count(&self.page));
        for slot in node_slots(page).get(usize::from(rest.start)..usize::from(rest.end)).unwrap_or_default() {
            let suffix_len = slot_key_len(slot);
            let from = usize::from(u16::from_le_bytes([slot[0], slot[1]]));
            let record = &page[from..from + LENGTH_SIZE + rest_len(suffix_len) + get(page, from)];
            let at = SLOTS + count * NODE_SLOT;
            // The record's first bytes of the key, as many as the head has lost.
            let moved = cut.min(rest_len(suffix_len));
            let start = end.checked_sub(record.len() - moved).filter(|start| at + NODE_SLOT <= *start);
            end = start.expect("a node's entries fit the node");
            self.page[end..end + LENGTH_SIZE].copy_from_slice(&record[..LENGTH_SIZE]);
            self.page[end + LENGTH_SIZE..][..record.len() - LENGTH_SIZE - moved]
                .copy_from_slice(&record[LENGTH_SIZE + moved..]);
            let mut head = slot_head(slot).checked_shl(8 * cut as u32).unwrap_or(0);
            for (index, byte) in record[LENGTH_SIZE..LENGTH_SIZE + moved].iter().enumerate() {
                head |= u64::from(*byte) << (8 * (cut - 1 - index));
            }
            set(&mut self.page, at, end);
            set(&mut self.page, at + 2, suffix_len - cut);
            self.page[at + 4..at + NODE_SLOT].copy_from_slice(&head.to_le_bytes());
            count += 1;
        }
        let heap = self.page.len() - end;
        set(&mut self.page, HEAP, heap);
        set(&mut self.page, 6, count);
    }

    fn copy_by_keys(&mut self, page: &[u8], slots: Range<u16>) {
        let mut key = Vec::new();
        for slot in slots {
            key_into(page, slot, &mut key);
            self.push(&key, value(page, slot));
        }
    }

    /// The change that makes a page this node.
    pub fn finish(self) -> OwnedChange {
        let count = count(&self.page);
        let slots_end = SLOTS + usize::from(count) * NODE_SLOT;
        OwnedChange::FormatEnds {
            kind: PageKind::Node,
            level: self.page[5],
            count,
            front: self.page[HEADER_SIZE..slots_end].to_vec(),
            back: self.page[heap_start(&self.page)..].to_vec(),
        }
    }
}
