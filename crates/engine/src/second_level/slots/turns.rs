//! Whether a circular design names the slots of its cache one behind the other.

use super::{Occupant, Slots};
use crate::second_level::design::CachePolicy;
use std::ops::Range;

/// What was named last.
#[derive(Default)]
pub struct Turns {
    /// The slot, and the group that was to follow then, of a design that works in groups.
    last: Option<(u32, Option<Range<u32>>)>,
    /// Two slots that were named one after the other, and one between them that could have been.
    passed: Option<[u32; 3]>,
}

impl Turns {
    /// The next slot is the first one: a design may begin anywhere.
    pub fn begin(&mut self) {
        self.last = None;
    }

    /// # Errors
    /// Words that say which slot was passed over.
    pub fn check(&self) -> Result<(), String> {
        match self.passed {
            Some([last, next, between]) => {
                Err(format!("slot {next} was filled behind slot {last}, and slot {between} was passed over"))
            }
            None => Ok(()),
        }
    }
}

impl Slots {
    /// A circular design names this slot. It may pass over slots that are being read or written; within a group it passes over all
    /// that hold something, and the next group may begin anywhere.
    pub(super) fn note_turn(&mut self, slot: u32, policy: &dyn CachePolicy) {
        let group = policy.next_group(self.cache);
        let is_grouped = group.is_some();
        let Some((last, before)) = self.turns.last.replace((slot, group.clone())) else { return };
        if is_grouped && (before != group || slot <= last) {
            return;
        }
        let between = if slot < last { last + 1..self.cache + slot } else { last + 1..slot };
        let could_be_named = |slot: &u32| match self.contents().occupant(*slot) {
            Occupant::None => true,
            Occupant::Idle(_) => !is_grouped,
            Occupant::Busy => false,
        };
        let passed = between.map(|slot| slot % self.cache).find(could_be_named);
        self.turns.passed = self.turns.passed.or(passed.map(|passed| [last, slot, passed]));
    }
}
