//! The slots whose copies are newer than on their pages' own devices, listed: a checkpoint looks at these, and not at all slots of
//! a large cache.

use super::{DirtyWanted, Slot, SlotState, Slots};
use base::{Lsn, PageId, PartitionId};
use structures::canary::{self, Canary};

/// The slots whose copies are pending, in no order.
#[derive(Default)]
pub struct PendingSlots(Vec<u32>);

impl PendingSlots {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether the slot is one of these.
    pub fn holds(&self, slot: u32, entry: &Slot) -> bool {
        self.0.get(entry.listed_at as usize) == Some(&slot)
    }
}

impl Slots {
    /// The slots whose copies are newer than on their pages' own devices, and what they are.
    pub(super) fn pending(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.pending.0.iter().map(|slot| (*slot, &self.slots[*slot as usize]))
    }

    pub(super) fn add_pending(&mut self, slot: u32) {
        self.slots[slot as usize].listed_at = self.pending.0.len() as u32;
        self.pending.0.push(slot);
    }

    pub(super) fn remove_pending(&mut self, slot: u32) {
        let at = self.slots[slot as usize].listed_at as usize;
        let removed = self.pending.0.swap_remove(at);
        assert_eq!(removed, slot, "a pending slot stands where it says");
        if let Some(moved) = self.pending.0.get(at) {
            self.slots[*moved as usize].listed_at = at as u32;
        }
    }

    /// Where redo has to begin at the latest, for the pages that are newer here than on their own devices.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        let is_kept = |slot: &Slot| slot.state != SlotState::Dirty || !canary::is_planted(Canary::UnkeptLog);
        self.pending().filter(|(_, slot)| is_kept(slot)).map(|(_, slot)| slot.recovery_lsn).min()
    }

    /// The pages whose copies are newer than on their own devices, with changes from before `lsn`, and those that are dirty as
    /// far as `dirty` says.
    pub fn pending_before(&self, lsn: Lsn, dirty: DirtyWanted) -> Vec<PageId> {
        let is_wanted = |slot: &Slot| match (slot.state, dirty) {
            (SlotState::Dirty, DirtyWanted::None) => false,
            (SlotState::Dirty, DirtyWanted::All) => true,
            _ => slot.recovery_lsn < lsn,
        };
        self.pending().filter(|(_, slot)| is_wanted(slot)).map(|(_, slot)| slot.page).collect()
    }

    /// Pages of a partition from this number on are in no slot, but for copies of what their own device has.
    pub fn end_of_changes(&self, partition: PartitionId) -> u32 {
        let changed = self.pending().map(|(_, slot)| slot.page).filter(|page| page.partition == partition);
        changed.map(|page| page.number + 1).max().unwrap_or(0)
    }
}
