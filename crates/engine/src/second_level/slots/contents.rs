//! What a design sees of the cache.

use super::{SlotState, Slots};
use base::PageId;

/// A cached copy that may make room for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its slot.
    pub slot: u32,
    /// The page.
    pub page: PageId,
    /// Whether it is newer than on the page's own device.
    pub dirty: bool,
}

/// What is in a slot of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupant {
    /// Nothing.
    None,
    /// A copy that may make room for another.
    Idle(Candidate),
    /// A copy that is being read, or written somewhere, or would have to be written to a device that does not answer; or nothing, where
    /// nothing comes any more.
    Busy,
}

/// What the slots of the cache hold at a moment, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheContents {
    /// How many there are.
    pub slots: u64,
    /// How many hold something.
    pub used: u64,
    /// Of those, how many hold a page that is newer than on its own device.
    pub dirty: u64,
    /// Of those, how many hold an old version of a page that has been changed in main memory.
    pub outdated: u64,
}

impl Slots {
    /// How many slots nothing comes to any more, because what was there could not be read.
    pub fn unusable_count(&self) -> u64 {
        self.unusable.into()
    }

    /// What the cache holds now; `changed` are the pages of which main memory has newer versions.
    pub fn cache_contents(&self, changed: impl Iterator<Item = PageId>) -> CacheContents {
        let is_outdated = |slot: &u32| *slot < self.cache && self.slots[*slot as usize].state == SlotState::Kept;
        CacheContents {
            slots: self.cache.into(),
            used: (self.contents().used() - self.unusable).into(),
            dirty: self.pending().filter(|(number, _)| *number < self.cache).count() as u64,
            outdated: changed.filter_map(|page| self.newest.get(page)).filter(is_outdated).count() as u64,
        }
    }
}

/// The cache as it is when its design decides.
#[derive(Clone, Copy)]
pub struct Contents<'a>(pub(super) &'a Slots);

impl Contents<'_> {
    /// How many pages the cache has room for.
    pub fn capacity(&self) -> u32 {
        self.0.cache
    }

    /// How many slots are not free. Those count that nothing comes to any more.
    pub fn used(&self) -> u32 {
        self.0.cache - self.0.free[0].count()
    }

    /// Whether a checkpoint is under way.
    pub fn is_checkpointing(&self) -> bool {
        self.0.checkpoints > 0
    }

    /// Whether a copy of this page is in the cache, be it that main memory has a newer one.
    pub fn holds(&self, page: PageId) -> bool {
        self.0.newest.get(page).is_some_and(|slot| slot < self.0.cache)
    }

    /// Whether a dirty copy could be written to its page's own device now.
    pub fn is_cleanable(&self) -> bool {
        self.0.coldest_group(1).is_some()
    }

    /// The pages that are dirty because the design lets them be: others are left by an earlier opening, or are kept because they may
    /// be torn in their own places.
    pub fn left_dirty(&self) -> impl Iterator<Item = PageId> {
        let cached = self.0.pending().filter(|(number, _)| *number < self.0.cache);
        cached.filter(|(_, slot)| slot.state == SlotState::Dirty && !slot.home_unsure).map(|(_, slot)| slot.page)
    }

    /// What is in a slot.
    pub fn occupant(&self, slot: u32) -> Occupant {
        let entry = &self.0.slots[slot as usize];
        let dirty = entry.state == SlotState::Dirty;
        match entry.state {
            SlotState::Free => Occupant::None,
            SlotState::Dirty if self.0.is_silent(entry.page.partition) => Occupant::Busy,
            SlotState::Kept | SlotState::Dirty if !entry.reading => {
                Occupant::Idle(Candidate { slot, page: entry.page, dirty })
            }
            _ => Occupant::Busy,
        }
    }

    /// Visits the copies that may make room, in the design's order, until `visit` returns false.
    pub fn coldest(&self, visit: &mut dyn FnMut(Candidate) -> bool) {
        self.0.order.coldest(&mut self.candidates(visit));
    }

    /// The same of the dirty or of the clean ones.
    pub fn coldest_of(&self, is_dirty: bool, visit: &mut dyn FnMut(Candidate) -> bool) {
        let mut visit = |candidate: Candidate| candidate.dirty != is_dirty || visit(candidate);
        self.0.order.coldest_of(is_dirty, &mut self.candidates(&mut visit));
    }

    fn candidates<'a>(&'a self, visit: &'a mut dyn FnMut(Candidate) -> bool) -> impl FnMut(u32) -> bool + 'a {
        |slot| match self.occupant(slot) {
            Occupant::Idle(candidate) => visit(candidate),
            Occupant::None | Occupant::Busy => true,
        }
    }

    /// The first clean one; the first of all if none is clean.
    pub fn coldest_clean(&self) -> Option<u32> {
        [false, true].into_iter().find_map(|is_dirty| {
            let mut found = None;
            self.coldest_of(is_dirty, &mut |candidate| {
                found = Some(candidate.slot);
                false
            });
            found
        })
    }
}
