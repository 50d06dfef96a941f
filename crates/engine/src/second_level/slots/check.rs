//! What must always be true of slots.

use super::{Slot, SlotState, Slots};

impl Slots {
    /// Checks that slots below these, of which `below` knows, hold no newer version of a page, as far as it is known what they hold.
    ///
    /// # Errors
    /// Words that say of which page they do.
    pub fn check_above(&self, below: &Slots) -> Result<(), String> {
        for (number, slot) in self.used() {
            let Some(above) = self.held(number) else { continue };
            let Some(other) = below.newest.get(slot.page).filter(|other| !below.is_unverified(*other)) else {
                continue;
            };
            let beneath = below.version(other);
            if beneath > above.version {
                let (above, below) = (above.version.sequence, beneath.sequence);
                return Err(format!(
                    "{} is as change {above} left it on the upper level, and {below} below",
                    slot.page
                ));
            }
        }
        Ok(())
    }

    /// Checks every invariant stated on this type.
    ///
    /// # Errors
    /// Words that say which does not hold.
    pub fn check(&self) -> Result<(), String> {
        let in_use = self.used().filter(|(_, slot)| slot.state != SlotState::Free).count();
        let free: usize = self.free.iter().map(|free| free.count() as usize).sum();
        if free + in_use != self.slots.len() {
            return Err("the counts of free slots and the slots disagree".into());
        }
        for (slot, entry) in self.used() {
            let free = &self.free[self.place(slot).0 as usize];
            if entry.state == SlotState::Free && !free.holds(slot, entry) {
                return Err(format!("slot {slot} is free and does not stand where it should"));
            }
        }
        let unusable = self.used().filter(|(number, slot)| *number < self.cache && slot.state == SlotState::Unusable);
        if unusable.count() != self.unusable as usize {
            return Err("the count of slots that nothing comes to is off".into());
        }
        if self.dirty != self.used().filter(|(_, slot)| slot.state == SlotState::Dirty).count() {
            return Err("the count of dirty copies is off".into());
        }
        if self.pending_count() != self.used().filter(|(_, slot)| slot.state.is_pending()).count() {
            return Err("the list of pending copies and the slots disagree".into());
        }
        let is_busy = |slot: &Slot| usize::from(slot.reading) + usize::from(slot.state.is_under_way());
        if self.busy != self.used().map(|(_, slot)| is_busy(slot)).sum::<usize>() {
            return Err("the count of what is under way is off".into());
        }
        if self.listed().len() != self.listed_count() {
            return Err("the replacement order and the slots disagree".into());
        }
        self.turns.check()?;
        for (number, slot) in self.used() {
            let newest = self.newest.get(slot.page) == Some(number);
            let in_use = !matches!(slot.state, SlotState::Free | SlotState::Filling | SlotState::Unusable);
            if in_use && !newest && slot.newer.is_none() {
                return Err(format!("slot {number} holds {} and nothing leads to it", slot.page));
            }
            if slot.state.is_pending() && !self.pending.holds(number, slot) {
                return Err(format!("slot {number} is pending and does not stand where it should"));
            }
            if slot.listed && !newest {
                return Err(format!("slot {number} is listed and not in the directory"));
            }
            if slot.state == SlotState::Kept && !slot.listed && !slot.reading {
                return Err(format!("slot {number} is kept for nothing"));
            }
            let may_follow = matches!(slot.state, SlotState::Waiting | SlotState::Dirty);
            if (slot.state == SlotState::Waiting && slot.older.is_none()) || (slot.older.is_some() && !may_follow) {
                return Err(format!("slot {number} waits for no other, or another one is not waited for"));
            }
            if slot.state == SlotState::Dirty && number < self.cache && !slot.listed {
                return Err(format!("slot {number} is dirty, and no victim can be looked for there"));
            }
        }
        Ok(())
    }
}
