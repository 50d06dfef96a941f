//! Free slots, in memory that grows with those that were ever used.

use super::{Slot, SlotState, Slots, Tier};
use std::ops::Range;
use structures::SparseArray;

/// How many slots one call looks at that an earlier opening may have left in use.
const LOOKED_AT_MAX: u32 = 1 << 16;

/// The free slots of one tier: those that became free, the latest at the end, and those that were free from the beginning on.
pub struct FreeSlots {
    listed: Vec<u32>,
    /// Among these are the others.
    rest: Range<u32>,
    /// How many slots are free.
    count: u32,
}

impl FreeSlots {
    /// These slots, all of them free.
    pub fn new(slots: Range<u32>) -> FreeSlots {
        FreeSlots { listed: Vec::new(), count: slots.len() as u32, rest: slots }
    }

    /// How many slots are free.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether a free slot stands where it should.
    pub fn holds(&self, slot: u32, entry: &Slot) -> bool {
        self.rest.contains(&slot) || self.is_listed(slot, entry)
    }

    fn is_listed(&self, slot: u32, entry: &Slot) -> bool {
        self.listed.get(entry.listed_at as usize) == Some(&slot)
    }

    /// The first of the rest. `None` if many before it are in use, too: then the next call goes on behind those.
    fn next_of_rest(&mut self, slots: &SparseArray<Slot>) -> Option<u32> {
        let mut looked_at = self.rest.by_ref().take(LOOKED_AT_MAX as usize);
        looked_at.find(|slot| slots[*slot as usize].state == SlotState::Free)
    }
}

impl Slots {
    /// How many slots are free, but for bad ones.
    pub(super) fn free_beside_bad(&self, tier: Tier) -> u32 {
        let is_free =
            |slot: &&u32| self.place(**slot).0 == tier && self.slots[**slot as usize].state == SlotState::Free;
        self.free[tier as usize].count() - self.bad.iter().filter(is_free).count() as u32
    }

    /// Takes a free slot: this one, or the one that became free last; a bad one only if there is no other.
    pub(super) fn take_free(&mut self, tier: Tier, named: Option<u32>) -> Option<u32> {
        let (bad, free) = (&self.bad, &mut self.free[tier as usize]);
        let listed = || free.listed.iter().rev().copied().find(|slot| !bad.contains(slot));
        let taken = match named.or_else(listed) {
            Some(slot) => slot,
            None => free.next_of_rest(&self.slots).or(free.listed.last().copied())?,
        };
        free.count -= 1;
        let entry = &self.slots[taken as usize];
        if free.is_listed(taken, entry) {
            let at = entry.listed_at as usize;
            free.listed.swap_remove(at);
            if let Some(moved) = free.listed.get(at) {
                self.slots[*moved as usize].listed_at = at as u32;
            }
        }
        Some(taken)
    }

    /// A slot is free from now on.
    pub(super) fn add_free(&mut self, slot: u32) {
        let free = &mut self.free[self.place(slot).0 as usize];
        self.slots[slot as usize].listed_at = free.listed.len() as u32;
        free.listed.push(slot);
        free.count += 1;
    }
}
