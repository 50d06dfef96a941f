//! Copies on their way from slots to their pages' own places.

use super::{SlotState, Slots};
use base::{Lsn, PageId};

/// How a copy is not on its page's own device yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingDestage {
    /// Nothing is under way.
    Dirty,
    /// It is being written there, or waits for the write of an older version.
    UnderWay,
    /// Its write there failed, or there was no memory for it.
    Failed,
    /// It could not be read back to be written there: it is of no use.
    Unreadable,
}

/// How the write of a copy to its page's own device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestageEnd {
    /// It is there.
    Written,
    /// The write failed. Some of the page may have been written.
    Failed,
    /// It did not begin, because the copy could not be read back.
    Unreadable,
    /// It did not begin for want of memory: nothing is wrong with the copy, or with the page's own place.
    NotBegun,
}

impl Slots {
    /// The write of the slot's copy to its page's own device ended. Returns the slot whose copy is to be written there next.
    pub fn destaged(&mut self, slot: u32, end: DestageEnd) -> Option<u32> {
        let entry = &mut self.slots[slot as usize];
        assert_eq!(entry.state, SlotState::Destaging, "only what is being written ends being written");
        if let Some(newer) = entry.newer.take() {
            self.empty(slot);
            let newer_entry = &mut self.slots[newer as usize];
            newer_entry.older = None;
            newer_entry.home_unsure = match end {
                DestageEnd::Written => false,
                DestageEnd::Failed => true,
                DestageEnd::Unreadable | DestageEnd::NotBegun => newer_entry.home_unsure,
            };
            if newer_entry.state == SlotState::Dirty {
                return None;
            }
            self.set_state(newer, SlotState::Destaging);
            return Some(newer);
        }
        match end {
            DestageEnd::Written => {
                entry.home_unsure = false;
                self.set_state(slot, SlotState::Kept);
                self.slots[slot as usize].recovery_lsn = Lsn::MAX;
                self.release_if_unneeded(slot);
            }
            DestageEnd::Failed => {
                entry.home_unsure = true;
                self.set_state(slot, SlotState::Failed);
            }
            DestageEnd::NotBegun => self.set_state(slot, SlotState::Failed),
            DestageEnd::Unreadable => self.set_state(slot, SlotState::Unreadable),
        }
        None
    }

    /// A copy that is dirty, or could not be written before, is to be on its own device. Whether its write begins now: otherwise it
    /// waits for that of an older version.
    pub fn begin_destage(&mut self, slot: u32) -> bool {
        let entry = &self.slots[slot as usize];
        assert!(entry.state.is_idle(), "only what is idle begins to be written");
        let waits = entry.older.is_some();
        self.set_state(slot, if waits { SlotState::Waiting } else { SlotState::Destaging });
        !waits
    }

    /// Where redo of a page begins whose newest copy is pending.
    pub fn redo_start_of(&self, page: PageId) -> Lsn {
        let slot = self.newest.get(page).expect("what is on its way from a slot is pending there");
        self.slots[slot as usize].recovery_lsn
    }

    /// Redo of a page whose newest copy is pending begins there already.
    pub fn extend_redo(&mut self, page: PageId, lsn: Lsn) {
        let newest = self.newest.get(page);
        let older = newest.and_then(|slot| self.slots[slot as usize].older);
        for slot in newest.into_iter().chain(older) {
            let entry = &mut self.slots[slot as usize];
            assert!(entry.state.is_pending(), "what is on its way from a slot is pending there");
            let before = entry.recovery_lsn;
            entry.recovery_lsn = before.min(lsn);
            self.pending.move_redo(slot, entry.state, (before, before.min(lsn)));
        }
    }

    /// What is below has lost the version of a page of which there is a copy: nothing has it but that, and redo of it begins here.
    pub fn write_anew(&mut self, page: PageId, redo_start: Lsn) {
        let kept = self.newest.get(page).filter(|slot| self.slots[*slot as usize].state == SlotState::Kept);
        if let Some(slot) = kept {
            self.slots[slot as usize].recovery_lsn = redo_start;
            self.set_state(slot, SlotState::Dirty);
            self.list(slot);
        }
    }

    /// Whether an older version of a slot's page is being written to its own device.
    pub fn follows(&self, slot: u32) -> bool {
        self.slots[slot as usize].older.is_some()
    }

    /// Whether the slot may have the only whole copy of its page, so that it is not given up for one that is about to be written
    /// to the page's own device.
    pub fn is_needed(&self, slot: u32) -> bool {
        let entry = &self.slots[slot as usize];
        entry.home_unsure && entry.state != SlotState::Unreadable
    }

    /// The slot of a copy of this page that its own device lacks, if nothing is under way for it and it is not needed.
    pub fn unneeded(&self, page: PageId) -> Option<u32> {
        let (slot, pending) = self.pending_destage(page)?;
        (pending != PendingDestage::UnderWay && !self.is_needed(slot)).then_some(slot)
    }

    /// The slot of a copy of this page that its own device lacks, and why it does.
    pub fn pending_destage(&self, page: PageId) -> Option<(u32, PendingDestage)> {
        let slot = self.newest.get(page)?;
        let pending_destage = match self.slots[slot as usize].state {
            SlotState::Dirty => PendingDestage::Dirty,
            SlotState::Waiting | SlotState::Destaging => PendingDestage::UnderWay,
            SlotState::Failed => PendingDestage::Failed,
            SlotState::Unreadable => PendingDestage::Unreadable,
            SlotState::Free | SlotState::Filling | SlotState::Kept | SlotState::Unusable => return None,
        };
        Some((slot, pending_destage))
    }
}
