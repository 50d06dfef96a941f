//! Whole nodes, built from their entries in ascending order.

use super::{HEAP, LOWER, PREFIX, SLOTS, UPPER, count, heap_start, insert, set};
use crate::page::{HEADER_SIZE, OwnedChange, PageKind};

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

    /// The change that makes a page this node.
    pub fn finish(self) -> OwnedChange {
        let count = count(&self.page);
        let slots_end = SLOTS + usize::from(count) * super::NODE_SLOT;
        OwnedChange::FormatEnds {
            kind: PageKind::Node,
            level: self.page[5],
            count,
            front: self.page[HEADER_SIZE..slots_end].to_vec(),
            back: self.page[heap_start(&self.page)..].to_vec(),
        }
    }
}
