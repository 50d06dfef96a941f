//! Which dirty copies are cleaned together, and slots that make room in groups.

use super::{SlotState, Slots};
use crate::second_level::design::CachePolicy;
use crate::tier_file::table::HeldVersion;
use base::PageId;

impl Slots {
    /// The slots that are cleaned next, by ascending page: that of the dirty page which should leave first, and those of the
    /// dirty pages beside it, at most `pages_max`. `None` if no dirty page is idle.
    pub fn coldest_group(&self, pages_max: u32) -> Option<Vec<u32>> {
        let mut found = None;
        self.order.coldest_of(true, &mut |slot| {
            found = Some(slot).filter(|slot| self.may_be_cleaned(*slot));
            found.is_none()
        });
        found.map(|slot| self.group_around(slot, pages_max))
    }

    /// The slots of the dirty ones among these ascending pages, those that lie side by side together, at most `pages_max`.
    pub fn groups(&self, pages: &[PageId], pages_max: u32) -> Vec<Vec<u32>> {
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut before: Option<PageId> = None;
        for page in pages.iter().copied() {
            let Some(slot) = self.newest.get(page).filter(|slot| self.may_be_cleaned(*slot)) else { continue };
            let follows = before.is_some_and(|before| next_to(before, 1) == Some(page));
            match groups.last_mut() {
                Some(group) if follows && group.len() < pages_max as usize => group.push(slot),
                _ => groups.push(vec![slot]),
            }
            before = Some(page);
        }
        groups
    }

    fn group_around(&self, slot: u32, pages_max: u32) -> Vec<u32> {
        let mut group = vec![slot];
        for step in [-1, 1] {
            let mut page = self.page_of(slot);
            while group.len() < pages_max as usize
                && let Some(beside) = next_to(page, step)
                && let Some(other) = self.newest.get(beside).filter(|other| self.may_be_cleaned(*other))
            {
                group.push(other);
                page = beside;
            }
        }
        group.sort_unstable_by_key(|slot| self.page_of(*slot));
        group
    }

    /// Empties a slot whose copy its page's own device has, too, if nothing is under way for it.
    pub fn vacate(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        if entry.state == SlotState::Kept && !entry.reading {
            self.empty(slot);
        }
    }

    /// A free slot that a circular design names, for a copy that moves there from another one.
    pub fn take_for_move(&mut self, policy: &mut dyn CachePolicy) -> Option<u32> {
        let named =
            policy.victim(&self.contents()).filter(|slot| self.slots[*slot as usize].state == SlotState::Free)?;
        self.note_turn(named, &*policy);
        let taken = self.take_free(super::Tier::Cache, Some(named))?;
        self.set_state(taken, SlotState::Filling);
        Some(taken)
    }

    /// A copy of what one slot holds, if that is still this version and nothing is under way for it, stands in another one,
    /// which takes its place. False if it is not used any more.
    pub fn relocate(&mut self, from: u32, to: u32, held: HeldVersion) -> bool {
        let entry = &self.slots[from as usize];
        let (state, recovery_lsn, home_unsure) = (entry.state, entry.recovery_lsn, entry.home_unsure);
        let HeldVersion { page, version } = held;
        let is_idle = matches!(state, SlotState::Kept | SlotState::Dirty) && entry.older.is_none() && !entry.reading;
        if !is_idle || !entry.listed || entry.version != version || self.newest.get(page) != Some(from) {
            return false;
        }
        self.empty(from);
        self.slots[to as usize].recovery_lsn = recovery_lsn;
        self.fill(to, page, state, true);
        self.note_change(to);
        let moved = &mut self.slots[to as usize];
        (moved.version, moved.home_unsure) = (version, home_unsure);
        true
    }

    /// Whether a copy is dirty, nothing is under way for it, and its page's own device answers.
    fn may_be_cleaned(&self, slot: u32) -> bool {
        let entry = &self.slots[slot as usize];
        let is_idle = entry.state == SlotState::Dirty && entry.older.is_none();
        is_idle && slot < self.cache && !self.is_silent(entry.page.partition)
    }
}

/// The page that lies `step` pages further in its partition.
fn next_to(page: PageId, step: i32) -> Option<PageId> {
    page.number.checked_add_signed(step).map(|number| PageId::new(page.partition, number))
}
