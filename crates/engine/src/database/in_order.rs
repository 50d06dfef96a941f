//! Pages whose slots and heap are known to be in order, so that the next commit of another node that changes them does not look at all
//! of their records again: that takes longer than all else that is done for it.
//!
//! A page is known as it is behind a number of changes. It has seen that number once: whatever changes it counts on.

use base::PageId;

/// How many pages are known, at most. One more takes the place of another.
const KNOWN_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct PagesInOrder {
    /// Each in a place of its own among those with the last digits of its number, with how many changes it has seen. None before there is one.
    known: Vec<Option<(PageId, u64)>>,
}

fn place_of(page: PageId) -> usize {
    let spread = u32::from(page.partition.0).wrapping_mul(0x9e37_79b9) >> 16;
    (page.number ^ spread) as usize % KNOWN_MAX
}

impl PagesInOrder {
    /// Whether the page is in order that has seen this number of changes.
    pub fn has(&self, page: PageId, sequence: u64) -> bool {
        self.known.get(place_of(page)) == Some(&Some((page, sequence)))
    }

    /// These pages are in order behind these numbers of changes.
    pub fn note(&mut self, pages: &[(PageId, u64)]) {
        if self.known.is_empty() && !pages.is_empty() {
            self.known = vec![None; KNOWN_MAX];
        }
        for (page, sequence) in pages {
            self.known[place_of(*page)] = Some((*page, *sequence));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PartitionId;

    #[test]
    fn a_page_is_known_behind_the_changes_that_were_looked_at_and_no_others() {
        let mut known = PagesInOrder::default();
        let pages =
            [(1, 7), (2, 7), (1, 7 + KNOWN_MAX as u32)].map(|(id, number)| PageId::new(PartitionId(id), number));
        assert!(!known.has(pages[0], 0));
        known.note(&[(pages[0], 3), (pages[1], 5)]);
        assert!(known.has(pages[0], 3) && known.has(pages[1], 5));
        assert!(![2, 4, 5].into_iter().any(|sequence| known.has(pages[0], sequence)));
        // It has the place of the first.
        known.note(&[(pages[2], 3)]);
        assert!(known.has(pages[2], 3) && !known.has(pages[0], 3) && known.has(pages[1], 5));
    }
}
