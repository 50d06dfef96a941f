//! FaCE (Kang, Lee, Moon 2012): the cache is a queue of page versions in the order in which they left main memory, and slots are
//! written one behind the other, many pages by one operation. A new version of a page goes to the end of the queue; the
//! older one is merely out of date. Where the queue has gone round, a group of slots makes room together: versions that were
//! read since they entered go to the end of the queue once more (group second chance), what else is dirty is written to its own
//! place, and the rest leaves.
//!
//! The cache counts as persistent: a checkpoint writes what is dirty in main memory to it as well, and cleans nothing.
//!
//! Unlike there, a second chance is given to at most half of a group, so that it makes room, and whatever the cache alone has is
//! also in the log: redo begins where the oldest of it needs it, and a cache that was lost costs time and no data.

use super::{CachePolicy, Contents, Decision, Leaving, Occupant, Outdated, Read, Setting};
use base::PageId;
use std::collections::BTreeSet;
use std::ops::Range;
use structures::canary::{self, Canary};

pub struct Face {
    /// How many slots make room together, and how many pages are written by one operation, at most.
    group_pages: u32,
    /// The slots that are being filled: the next one, and where they end.
    open: Range<u32>,
    /// Cached pages that were read since they entered the queue.
    referenced: BTreeSet<PageId>,
}

impl Face {
    pub fn new(setting: &Setting) -> Face {
        Face { group_pages: setting.parameters.group_pages.max(1), open: 0..0, referenced: BTreeSet::new() }
    }
}

impl CachePolicy for Face {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_hit(&mut self, read: &Read) {
        self.referenced.insert(read.page);
    }

    fn on_eviction(&mut self, leaving: &Leaving, _: &Contents<'_>) -> Decision {
        self.referenced.remove(&leaving.page);
        Decision::WriteBack
    }

    fn on_update(&mut self, page: PageId) -> Outdated {
        // The version that follows has a chance of its own.
        self.referenced.remove(&page);
        Outdated::Freed
    }

    fn cleans_at_checkpoint(&self) -> bool {
        false
    }

    fn is_circular(&self) -> bool {
        true
    }

    fn victim(&mut self, contents: &Contents<'_>) -> Option<u32> {
        // Pages that were dropped, or have left by another way than their group's turn, leave their marks behind.
        if self.referenced.len() > 2 * contents.capacity() as usize {
            self.referenced.retain(|page| contents.holds(*page));
        }
        let slot = self.open.clone().find(|slot| contents.occupant(*slot) == Occupant::None)?;
        self.open.start = slot + if canary::is_planted(Canary::BrokenPromise) { 2 } else { 1 };
        Some(slot)
    }

    fn next_group(&self, capacity: u32) -> Option<Range<u32>> {
        let first = if self.open.end < capacity { self.open.end } else { 0 };
        let pages = self.group_pages.min((capacity / 2).max(1));
        Some(first..(first + pages).min(capacity))
    }

    fn open_group(&mut self, group: Range<u32>) {
        self.open = group;
    }

    fn second_chance(&mut self, page: PageId) -> bool {
        self.referenced.remove(&page)
    }

    fn resume_behind(&mut self, slot: u32) {
        self.open = slot + 1..slot + 1;
    }

    fn write_group(&self) -> u32 {
        self.group_pages
    }

    fn group_pages(&self) -> u32 {
        self.group_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::second_level::design::Pattern;
    use crate::second_level::slots::Slots;
    use base::PartitionId;

    #[test]
    fn marks_of_pages_that_are_gone_do_not_pile_up() {
        let mut face = Face::new(&Setting::default());
        let slots = Slots::new(4, 0, face.order(4));
        for number in 0..100 {
            face.on_hit(&Read { page: PageId::new(PartitionId(1), number), pattern: Pattern::Random });
            face.open_group(0..4);
            assert_eq!(face.victim(&slots.contents()), Some(0));
        }
        assert!(face.referenced.len() <= 8, "{} marks in a cache of four pages", face.referenced.len());
    }
}
