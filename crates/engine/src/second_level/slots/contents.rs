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
    /// A copy that is being read, or written somewhere.
    Busy,
}

/// The cache as it is when its design decides.
#[derive(Clone, Copy)]
pub struct Contents<'a>(pub(super) &'a Slots);

impl Contents<'_> {
    /// How many pages the cache has room for.
    pub fn capacity(&self) -> u32 {
        self.0.cache
    }

    /// How many slots are not free.
    pub fn used(&self) -> u32 {
        self.0.cache - self.0.free[0].len() as u32
    }

    /// Whether a checkpoint is under way.
    pub fn is_checkpointing(&self) -> bool {
        self.0.checkpoints > 0
    }

    /// Whether a copy of this page is in the cache, be it that main memory has a newer one.
    pub fn holds(&self, page: PageId) -> bool {
        self.0.newest.get(page).is_some_and(|slot| slot < self.0.cache)
    }

    /// What is in a slot.
    pub fn occupant(&self, slot: u32) -> Occupant {
        let entry = &self.0.slots[slot as usize];
        let dirty = entry.state == SlotState::Dirty;
        match entry.state {
            SlotState::Free => Occupant::None,
            SlotState::Kept | SlotState::Dirty if !entry.reading => {
                Occupant::Idle(Candidate { slot, page: entry.page, dirty })
            }
            _ => Occupant::Busy,
        }
    }

    /// Visits the copies that may make room, in the design's order, until `visit` returns false.
    pub fn coldest(&self, visit: &mut dyn FnMut(Candidate) -> bool) {
        self.0.order.coldest(&mut |slot| match self.occupant(slot) {
            Occupant::Idle(candidate) => visit(candidate),
            Occupant::None | Occupant::Busy => true,
        });
    }

    /// The first clean one; the first of all if none is clean.
    pub fn coldest_clean(&self) -> Option<u32> {
        let mut found: Option<Candidate> = None;
        self.coldest(&mut |candidate| {
            if found.is_none() || !candidate.dirty {
                found = Some(candidate);
            }
            candidate.dirty
        });
        found.map(|candidate| candidate.slot)
    }
}
