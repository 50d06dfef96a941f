//! Which pages a cache holds, in the order of their last use, and which of them await their write to the medium.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A page of a file: the file's number and the page's.
pub(crate) type Page = (u32, u64);

const NONE: u32 = u32::MAX;

struct Slot {
    page: Page,
    newer: u32,
    older: u32,
    /// Writes of this page to the medium that have not ended: with any, the page is modified and cannot be replaced.
    writes: u32,
}

/// The directory of a cache: least recently used pages leave first, but no modified ones.
pub(crate) struct Lru {
    index: HashMap<Page, u32, FixedState>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    capacity: usize,
    modified: usize,
}

impl Lru {
    pub(crate) fn new(capacity: u64) -> Lru {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX).min(NONE as usize - 1);
        let index = HashMap::with_hasher(FixedState::with_seed(0));
        Lru { index, slots: Vec::new(), newest: NONE, oldest: NONE, capacity, modified: 0 }
    }

    /// How many more pages could be taken if everything that is not modified were replaced.
    pub(crate) fn room(&self) -> usize {
        self.capacity - self.modified
    }

    pub(crate) fn contains(&self, page: Page) -> bool {
        self.index.contains_key(&page)
    }

    /// The page becomes the most recently used one; false if it is not there.
    pub(crate) fn touch(&mut self, page: Page) -> bool {
        let Some(slot) = self.index.get(&page).copied() else { return false };
        if slot != self.newest {
            self.unlink(slot);
            self.link(slot);
        }
        true
    }

    /// Takes a page as the most recently used one, in a free slot or in place of the least recently used unmodified page.
    /// False if all pages are modified; then nothing changes.
    ///
    /// # Panics
    /// If the page is there already.
    pub(crate) fn insert(&mut self, page: Page) -> bool {
        let slot = if self.slots.len() < self.capacity {
            self.slots.push(Slot { page, newer: NONE, older: NONE, writes: 0 });
            self.slots.len() as u32 - 1
        } else {
            let Some(victim) = self.victim() else { return false };
            self.unlink(victim);
            let old = std::mem::replace(&mut self.slots[victim as usize].page, page);
            self.index.remove(&old);
            victim
        };
        self.link(slot);
        let before = self.index.insert(page, slot);
        assert!(before.is_none(), "a page is taken once");
        true
    }

    /// A write of the page to the medium begins.
    pub(crate) fn begin_write(&mut self, page: Page) {
        let slot = &mut self.slots[self.index[&page] as usize];
        self.modified += usize::from(slot.writes == 0);
        slot.writes += 1;
    }

    /// A write of the page to the medium has ended; with the last of them the page is unmodified.
    pub(crate) fn end_write(&mut self, page: Page) {
        let slot = &mut self.slots[self.index[&page] as usize];
        slot.writes -= 1;
        self.modified -= usize::from(slot.writes == 0);
    }

    /// The least recently used page that is not modified.
    fn victim(&self) -> Option<u32> {
        if self.room() == 0 {
            return None;
        }
        let mut slot = self.oldest;
        while self.slots[slot as usize].writes > 0 {
            slot = self.slots[slot as usize].newer;
        }
        Some(slot)
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link(&mut self, slot: u32) {
        let second = std::mem::replace(&mut self.newest, slot);
        (self.slots[slot as usize].newer, self.slots[slot as usize].older) = (NONE, second);
        match second {
            NONE => self.oldest = slot,
            second => self.slots[second as usize].newer = slot,
        }
    }
}
