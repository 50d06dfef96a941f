//! The slots whose copies are newer than on their pages' own devices, by where redo of them begins: what a checkpoint asks costs as
//! much as it is told, however many slots of a large cache are dirty.

use super::{DirtyWanted, Slot, SlotState, Slots};
use base::{Lsn, PageId, PartitionId};
use std::collections::BTreeSet;
use structures::canary::{self, Canary};

/// Slots in the order in which redo of their pages begins.
type ByRedo = BTreeSet<(Lsn, u32)>;

/// The slots whose copies are pending: the dirty ones, and those that are being written or could not be.
#[derive(Default)]
pub struct PendingSlots {
    dirty: ByRedo,
    others: ByRedo,
}

impl PendingSlots {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.dirty.len() + self.others.len()
    }

    /// Whether the slot is one of these.
    pub fn holds(&self, slot: u32, entry: &Slot) -> bool {
        let of_its_state = if entry.state == SlotState::Dirty { &self.dirty } else { &self.others };
        of_its_state.contains(&(entry.recovery_lsn, slot))
    }

    fn of(&mut self, state: SlotState) -> Option<&mut ByRedo> {
        match state {
            SlotState::Dirty => Some(&mut self.dirty),
            state => state.is_pending().then_some(&mut self.others),
        }
    }

    /// A slot, redo of whose copy begins there, comes from one state to another.
    pub fn change(&mut self, slot: (Lsn, u32), before: SlotState, after: SlotState) {
        if let Some(before) = self.of(before) {
            assert!(before.remove(&slot), "a pending slot stands where it says");
        }
        if let Some(after) = self.of(after) {
            after.insert(slot);
        }
    }

    /// Redo of a pending slot's copy begins elsewhere.
    pub fn move_redo(&mut self, slot: u32, state: SlotState, (before, after): (Lsn, Lsn)) {
        self.change((before, slot), state, SlotState::Free);
        self.change((after, slot), SlotState::Free, state);
    }
}

impl Slots {
    /// The slots whose copies are newer than on their pages' own devices, and what they are.
    pub(super) fn pending(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let slots = self.pending.dirty.iter().chain(&self.pending.others);
        slots.map(|(_, slot)| (*slot, &self.slots[*slot as usize]))
    }

    /// Where redo has to begin at the latest, for the pages that are newer here than on their own devices.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        let dirty = self.pending.dirty.first().filter(|_| !canary::is_planted(Canary::UnkeptLog));
        dirty.into_iter().chain(self.pending.others.first()).map(|(lsn, _)| *lsn).min()
    }

    /// The pages whose copies are newer than on their own devices, with changes from before `lsn`, and those that are dirty as
    /// far as `dirty` says.
    pub fn pending_before(&self, lsn: Lsn, dirty: DirtyWanted) -> Vec<PageId> {
        let dirty_end = match dirty {
            DirtyWanted::None => (Lsn::ZERO, 0),
            DirtyWanted::Old => (lsn, 0),
            DirtyWanted::All => (Lsn::MAX, u32::MAX),
        };
        let dirty = self.pending.dirty.range(..dirty_end);
        dirty.chain(self.pending.others.range(..(lsn, 0))).map(|(_, slot)| self.page_of(*slot)).collect()
    }

    /// Pages of a partition from this number on are in no slot, but for copies of what their own device has.
    pub fn end_of_changes(&self, partition: PartitionId) -> u32 {
        let changed = self.pending().map(|(_, slot)| slot.page).filter(|page| page.partition == partition);
        changed.map(|page| page.number + 1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DestageEnd, PendingDestage};
    use super::*;
    use crate::second_level::Tier;
    use base::Random;
    use structures::replacement::Policy;

    fn page(number: u32) -> PageId {
        PageId::new(PartitionId(3), number)
    }

    fn empty(slots: u32) -> Slots {
        Slots::new(slots, 0, Policy::sparse_lru(slots as usize))
    }

    /// A newer version of a page enters, redo of which begins there.
    fn enter(slots: &mut Slots, number: u32, lsn: u64, at_once: bool) {
        if let Some(slot) = slots.take_free(Tier::Cache, None) {
            slots.set_state(slot, SlotState::Filling);
            slots.filled_dirty(slot, page(number), (Lsn(lsn), true), at_once);
        }
    }

    fn sorted(pages: impl Iterator<Item = PageId>) -> Vec<PageId> {
        let mut pages: Vec<PageId> = pages.collect();
        pages.sort_unstable();
        pages
    }

    /// The same by a walk over all that is pending.
    fn assert_as_by_a_walk(slots: &Slots) {
        let pending = || slots.used().map(|(_, slot)| slot).filter(|slot| slot.state.is_pending());
        assert_eq!(slots.recovery_lsn(), pending().map(|slot| slot.recovery_lsn).min());
        for wanted in [DirtyWanted::None, DirtyWanted::Old, DirtyWanted::All] {
            for lsn in [Lsn::ZERO, Lsn(20), Lsn(70), Lsn::MAX] {
                let is_wanted = |slot: &&Slot| match (slot.state, wanted) {
                    (SlotState::Dirty, DirtyWanted::None) => false,
                    (SlotState::Dirty, DirtyWanted::All) => true,
                    _ => slot.recovery_lsn < lsn,
                };
                let walked = sorted(pending().filter(is_wanted).map(|slot| slot.page));
                assert_eq!(sorted(slots.pending_before(lsn, wanted).into_iter()), walked, "{wanted:?}, {lsn:?}");
            }
        }
    }

    #[test]
    fn what_a_checkpoint_is_told_is_what_a_walk_over_all_slots_finds() {
        let (mut slots, mut random) = (empty(40), Random::stream(1, "pending"));
        let mut ended = 0;
        for _ in 0..4_000 {
            let number = random.below(30) as u32;
            match (slots.pending_destage(page(number)), random.below(4)) {
                (Some((slot, PendingDestage::UnderWay)), 0..2) if !slots.follows(slot) => {
                    let ends = [DestageEnd::Written, DestageEnd::Failed, DestageEnd::Unreadable];
                    slots.destaged(slot, ends[random.below(3) as usize]);
                    ended += 1;
                }
                (Some((slot, PendingDestage::Dirty | PendingDestage::Failed)), 0) => _ = slots.begin_destage(slot),
                (Some(_), 2) => slots.extend_redo(page(number), Lsn(random.below(100))),
                (_, 1) => _ = slots.outdate(page(number)),
                _ => enter(&mut slots, number, random.below(100), random.chance(0.3)),
            }
            assert_as_by_a_walk(&slots);
        }
        assert!(ended > 20, "{ended}");
        slots.check().expect("consistent");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "what it costs is measured")]
    fn what_a_checkpoint_asks_costs_no_more_where_more_is_dirty() {
        let cost = |dirty: u32| {
            let mut slots = empty(dirty);
            (0..dirty).for_each(|number| enter(&mut slots, number, u64::from(number) + 10, false));
            let began = std::time::Instant::now();
            for _ in 0..2_000 {
                assert_eq!(slots.recovery_lsn(), Some(Lsn(10)));
                assert_eq!(slots.pending_before(Lsn(20), DirtyWanted::Old).len(), 10);
                assert_eq!(slots.pending_before(Lsn::MAX, DirtyWanted::None).len(), 0);
            }
            began.elapsed()
        };
        let (few, many) = (cost(100), cost(100_000));
        assert!(many < 30 * few, "{few:?} with a hundred dirty pages, {many:?} with a thousand times as many");
    }
}
