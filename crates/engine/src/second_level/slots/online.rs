//! What a change of the cache asks of its slots.

use super::{SlotState, Slots};
use structures::replacement::Replacement;

impl Slots {
    /// Empties the slots, which are at rest: they are not used any more.
    pub fn retire(&mut self) {
        self.changes = None;
        let used: Vec<u32> = self.used().map(|(number, _)| number).collect();
        used.into_iter().for_each(|slot| self.vacate(slot));
    }

    /// Whether something is under way for a slot.
    pub fn is_busy(&self) -> bool {
        self.busy > 0
    }

    /// The cached pages leave in another order from now on, which begins as the present one is.
    pub fn reorder(&mut self, order: Box<dyn Replacement>) {
        self.turns.begin();
        let before = std::mem::replace(&mut self.order, order);
        let (slots, order) = (&self.slots, &mut self.order);
        before.coldest(&mut |slot| {
            order.insert(slot, slots[slot as usize].page);
            order.set_dirty(slot, slots[slot as usize].state == SlotState::Dirty);
            true
        });
    }
}
