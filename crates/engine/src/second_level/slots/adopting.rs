//! What an earlier opening has left in the slots.

use super::{SlotState, Slots, Tier};
use crate::tier_file::table::HeldVersion;
use base::{Lsn, PageId};

impl Slots {
    /// Takes over a copy that is in this free slot. The page's own device holds it, too.
    pub fn adopt(&mut self, slot: u32, held: HeldVersion) {
        self.take_over(slot, held, SlotState::Kept);
    }

    /// The same by what the cache's table says. The page's own device may lack what was changed at or behind `redo_start`.
    pub fn adopt_stated(&mut self, slot: u32, held: HeldVersion, redo_start: Lsn) {
        let is_old = held.version.lsn <= redo_start;
        self.slots[slot as usize].recovery_lsn = if is_old { Lsn::MAX } else { redo_start };
        self.take_over(slot, held, if is_old { SlotState::Kept } else { SlotState::Dirty });
        let entry = &mut self.slots[slot as usize];
        (entry.unverified, entry.home_unsure) = (true, !is_old);
    }

    /// Whether a slot holds an older version of its page than this one, and nothing is under way for it.
    pub fn is_older(&self, slot: u32, than: HeldVersion) -> bool {
        let entry = &self.slots[slot as usize];
        let is_idle = matches!(entry.state, SlotState::Kept | SlotState::Dirty) && !entry.reading;
        is_idle && entry.unverified && entry.version < than.version
    }

    fn take_over(&mut self, slot: u32, HeldVersion { page, version }: HeldVersion, state: SlotState) {
        assert_eq!(self.slots[slot as usize].state, SlotState::Free, "nothing is in a slot that is adopted");
        self.turns.begin();
        self.take_free(Tier::Cache, Some(slot));
        self.set_state(slot, SlotState::Filling);
        // That is no change: the table says so, or states all slots anew.
        self.fill(slot, page, state, true);
        self.slots[slot as usize].version = version;
    }

    /// Empties every slot of the cache that is not needed, as far as nothing is under way for it. Returns the pages that only the
    /// cache has.
    pub fn drop_clean(&mut self) -> Vec<PageId> {
        let mut dirty = Vec::new();
        let used: Vec<u32> = self.used().map(|(number, _)| number).filter(|number| *number < self.cache).collect();
        for slot in used {
            let entry = &self.slots[slot as usize];
            let page = entry.page;
            match entry.state {
                SlotState::Free | SlotState::Filling | SlotState::Unusable => {}
                SlotState::Dirty if !entry.unverified => dirty.push(page),
                _ if entry.unverified => _ = self.drop_unverified(page),
                _ => self.vacate(slot),
            }
        }
        dirty
    }

    /// Redo changes a page that it has found in the cache, and did not look at its own place, where a power cut may have torn it.
    /// The copy stays until the page's own device has it, or the cache a newer one. False if the cache has none that is idle.
    pub fn keep_for_redo(&mut self, page: PageId, redo_start: Lsn) -> bool {
        let Some(slot) = self.newest.get(page).filter(|slot| *slot < self.cache) else { return false };
        let state = self.slots[slot as usize].state;
        if !matches!(state, SlotState::Kept | SlotState::Dirty) {
            return false;
        }
        if state == SlotState::Kept {
            self.slots[slot as usize].recovery_lsn = redo_start;
            self.set_state(slot, SlotState::Dirty);
            self.list(slot);
        }
        self.slots[slot as usize].home_unsure = true;
        true
    }

    /// The slot's copy was read and is what it should be.
    pub fn note_verified(&mut self, slot: u32) {
        self.slots[slot as usize].unverified = false;
    }

    /// Whether only the table of an earlier opening says what is in the slot.
    pub fn is_unverified(&self, slot: u32) -> bool {
        self.slots[slot as usize].unverified
    }

    /// The slot does not hold what the table of an earlier opening says: it is emptied, once nothing is under way for it. Until
    /// redo is over the log makes up for that; what redo did not need to look at the page's own device has. False if the slot
    /// is not one of these.
    pub fn drop_unverified(&mut self, page: PageId) -> bool {
        let Some(slot) = self.newest.get(page) else { return false };
        let entry = &self.slots[slot as usize];
        let is_idle = (entry.state == SlotState::Kept || entry.state.is_idle()) && entry.older.is_none();
        let is_dropped = entry.unverified && is_idle && !entry.reading;
        if is_dropped {
            self.empty(slot);
        }
        is_dropped
    }
}
