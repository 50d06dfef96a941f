//! Which slots the cache's table is to state anew.

use super::{SlotState, Slots};
use crate::tier_file::table::{HeldVersion, PageVersion};
use std::collections::VecDeque;

/// Slots that have changed since they were stated, each once.
pub struct ChangedSlots {
    queue: VecDeque<u32>,
    is_queued: Vec<bool>,
}

impl Slots {
    /// From now on changes of the cache's slots are noted.
    pub fn note_changes(&mut self) {
        let slots = self.cache as usize;
        self.changes = Some(ChangedSlots { queue: VecDeque::new(), is_queued: vec![false; slots] });
    }

    /// What is in the slots counts as changed, of all that hold something.
    pub fn note_all_held(&mut self) {
        let used = self.used().map(|(number, _)| number);
        let held: Vec<u32> = used.filter(|slot| self.held(*slot).is_some()).collect();
        held.into_iter().for_each(|slot| self.note_change(slot));
    }

    /// What is in a slot has changed.
    pub fn note_change(&mut self, slot: u32) {
        let Some(changes) = &mut self.changes else { return };
        if slot < self.cache && !std::mem::replace(&mut changes.is_queued[slot as usize], true) {
            changes.queue.push_back(slot);
        }
    }

    /// How many slots have changed.
    pub fn changed_count(&self) -> usize {
        self.changes.as_ref().map_or(0, |changes| changes.queue.len())
    }

    /// Takes at most `max` of the slots that have changed.
    pub fn take_changed(&mut self, max: usize) -> Vec<u32> {
        let Some(changes) = &mut self.changes else { return Vec::new() };
        let taken: Vec<u32> = changes.queue.drain(..max.min(changes.queue.len())).collect();
        taken.iter().for_each(|slot| changes.is_queued[*slot as usize] = false);
        taken
    }

    /// What a slot holds that may be used: the newest copy of its page.
    pub fn held(&self, slot: u32) -> Option<HeldVersion> {
        let entry = &self.slots[slot as usize];
        let is_empty = matches!(entry.state, SlotState::Free | SlotState::Filling | SlotState::Unusable);
        let is_used = !is_empty && self.newest.get(entry.page) == Some(slot);
        is_used.then_some(HeldVersion { page: entry.page, version: entry.version })
    }

    /// Which version of its page a slot holds.
    pub fn version(&self, slot: u32) -> PageVersion {
        self.slots[slot as usize].version
    }

    /// States which version is in a slot that has just been filled.
    pub fn set_version(&mut self, slot: u32, version: PageVersion) {
        self.slots[slot as usize].version = version;
    }
}
