//! Pages on their way into slots, and back to main memory.

use super::design::{Decision, Leaving, Outdated, Read};
use super::slots::{Filled, Room, Tier};
use super::{Placement, Tiers};
use crate::statistics::add;
use base::{Lsn, PageId};
use driver::{Access, Completion, Frame, Op};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// A page that is newer than on its own device and stands durably in a slot, which is not in use yet.
pub struct EnteredPage {
    slot: u32,
    page: PageId,
    decision: Decision,
    bytes: Frame,
}

impl Tiers {
    /// Which tier a page that is newer than on its own device is written to, and how.
    fn tier_for(&self, leaving: &Leaving, placement: Placement) -> Option<(Tier, Decision)> {
        let is_cached = placement.cache && self.cache.as_ref().is_some_and(|cache| !cache.volatile);
        if is_cached && !self.is_throttled() {
            let decision = self.policy.borrow_mut().on_eviction(leaving, &self.slots.borrow().contents());
            if decision != Decision::Skip && !self.is_spent() {
                return Some((Tier::Cache, decision));
            }
        }
        let is_buffered = placement.write_buffer && self.write_buffer.is_some();
        is_buffered.then_some((Tier::WriteBuffer, Decision::WriteThrough))
    }

    /// Writes a copy that is newer than on its page's own device to its tier, after the log has it.
    ///
    /// # Errors
    /// The copy, if it has no tier with room, or that fails.
    pub async fn write_dirty(
        self: &Rc<Self>,
        leaving: &Leaving,
        placement: Placement,
        bytes: Frame,
    ) -> Result<EnteredPage, Frame> {
        let Some((tier, decision)) = self.tier_for(leaving, placement) else { return Err(bytes) };
        let (page, statistics) = (leaving.page, &self.file(tier).statistics);
        let Some(slot) = self.take(tier, page).await else {
            add(&statistics.fallbacks, 1);
            return Err(bytes);
        };
        let (bytes, written) = self.write_slot(slot, bytes, true).await;
        if !written {
            self.slots.borrow_mut().give_back(slot);
            add(&statistics.fallbacks, 1);
            return Err(bytes);
        }
        add(&statistics.modified, 1);
        Ok(EnteredPage { slot, page, decision, bytes })
    }

    /// A slot for a copy of `page`, if one can be had.
    async fn take(self: &Rc<Self>, tier: Tier, page: PageId) -> Option<u32> {
        loop {
            let room = self.slots.borrow_mut().take(tier, page, &mut **self.policy.borrow_mut());
            match room {
                Room::Slot(slot) => return Some(slot),
                Room::None => return None,
                Room::Dirty(victim) => self.await_destage(victim).await.ok()?,
            }
        }
    }

    /// The slot of an entry holds the page's newest copy from now on. `recovery_lsn` is where redo of the page begins until
    /// its own device has it; `left`: the page is not in main memory any more.
    pub fn enter_dirty(self: &Rc<Self>, entry: EnteredPage, recovery_lsn: Lsn, left: bool) {
        let EnteredPage { slot, page, decision, bytes } = entry;
        let at_once = decision != Decision::WriteBack;
        let listed = left || !at_once || self.policy.borrow().is_inclusive();
        let filled = self.slots.borrow_mut().filled_dirty(slot, page, (recovery_lsn, listed), at_once);
        let Filled { destage, superseded } = filled;
        superseded.into_iter().for_each(|slot| self.forget_copy(slot));
        if at_once {
            self.copies.borrow_mut()[slot as usize] = Some(bytes);
        } else {
            self.host().return_copy(bytes);
            self.clean_excess();
        }
        if destage {
            self.start_destage(slot);
        }
    }

    /// Whether a page that leaves main memory unchanged is to be copied to the cache. If its copy is there already it counts
    /// as used just now.
    pub fn takes_clean(&self, leaving: &Leaving, placement: Placement) -> bool {
        let mut policy = self.policy.borrow_mut();
        if self.slots.borrow_mut().refresh(leaving.page, policy.is_used_when_it_leaves()) {
            return false;
        }
        let is_cached = placement.cache && self.cache.is_some() && !self.is_throttled();
        let mut decide = || policy.on_eviction(leaving, &self.slots.borrow().contents());
        is_cached && decide() != Decision::Skip && !self.is_spent()
    }

    /// A slot of the cache for a page that leaves main memory unchanged, if one can be had.
    pub async fn take_for_clean(self: &Rc<Self>, page: PageId) -> Option<u32> {
        let slot = self.take(Tier::Cache, page).await;
        if slot.is_none() {
            add(&self.file(Tier::Cache).statistics.fallbacks, 1);
        }
        slot
    }

    /// Gives back a slot that was not filled.
    pub fn give_back(&self, slot: u32) {
        self.slots.borrow_mut().give_back(slot);
    }

    /// The slot holds a copy of a page that has left main memory unchanged.
    pub fn enter_clean(&self, slot: u32, page: PageId) {
        self.slots.borrow_mut().filled_clean(slot, page, true);
    }

    /// Whether a page that was read from its own device is to be copied to the cache.
    pub fn takes_read(&self, read: &Read, placement: Placement) -> bool {
        let is_cached = placement.cache && self.cache.is_some() && self.tier_of(read.page).is_none();
        let decide = || self.policy.borrow_mut().on_read(read, &self.slots.borrow().contents());
        is_cached && decide() != Decision::Skip && !self.is_throttled() && !self.is_spent()
    }

    /// Copies a page that was read from its own device to the cache, unless it is changed meanwhile.
    pub fn enter_read(self: &Rc<Self>, page: PageId, copy: Frame) {
        if self.entering.borrow().contains_key(&page) {
            return self.host().return_copy(copy);
        }
        self.entering.borrow_mut().insert(page, false);
        let (this, host) = (Rc::clone(self), self.host());
        self.executor.spawn(async move {
            let mut copy = copy;
            let is_changed = || this.entering.borrow().get(&page) == Some(&true);
            if let Some(slot) = this.take_for_clean(page).await {
                let mut is_written = false;
                if !is_changed() {
                    (copy, is_written) = this.write_slot(slot, copy, false).await;
                }
                if is_written && !is_changed() && this.tier_of(page).is_none() {
                    this.enter_clean(slot, page);
                } else {
                    this.give_back(slot);
                }
            }
            this.entering.borrow_mut().remove(&page);
            host.return_copy(copy);
        });
    }

    /// A page in main memory is changed for the first time since it was read or written. Returns where redo of it begins if
    /// that was in the cache alone: the changed page takes that over.
    pub fn note_update(&self, page: PageId) -> Option<Lsn> {
        self.entering.borrow_mut().entry(page).and_modify(|is_changed| *is_changed = true);
        self.tier_of(page)?;
        match self.policy.borrow_mut().on_update(page) {
            Outdated::Kept => None,
            Outdated::Freed if canary::is_planted(Canary::StaleCopy) => None,
            Outdated::Freed => self.slots.borrow_mut().outdate(page),
        }
    }

    /// Writes the copy into the slot, unless the budget of writes is spent. Returns the copy, and whether it is there.
    pub async fn write_slot(&self, slot: u32, bytes: Frame, durable: bool) -> (Frame, bool) {
        let (tier, number) = self.slots.borrow().place(slot);
        let file = self.file(tier);
        let access = file.access(&self.executor).await;
        let (offset, length) = (file.offset(number), bytes.len() as u32);
        if !self.take_budget(tier, length.into()) {
            return (bytes, false);
        }
        let op = Op::Write { file: file.file, offset, length, buffer: bytes, durable, access };
        file.begin();
        let completion = self.executor.perform(op).await;
        file.end();
        file.statistics.count_write(length.into());
        (completion.buffer.expect("a write gives its buffer back"), completion.result.is_ok())
    }

    /// Starts to read the copy of a page that [`Tiers::tier_of`] has named into a buffer. `done` gets the buffer, and whether
    /// it holds the page.
    pub fn read(self: &Rc<Self>, read: &Read, buffer: Frame, access: Access, done: impl FnOnce(Frame, bool) + 'static) {
        let page = read.page;
        let (slot, (tier, number)) = {
            let mut slots = self.slots.borrow_mut();
            let slot = slots.lookup(page).expect("it was just seen");
            slots.begin_read(slot);
            (slot, slots.place(slot))
        };
        let file = self.file(tier);
        add(&file.statistics.reads, 1);
        if tier == Tier::Cache {
            self.policy.borrow_mut().on_hit(read);
        }
        let (offset, length) = (file.offset(number), buffer.len() as u32);
        let op = Op::Read { file: file.file, offset, length, buffer, access };
        let (this, start) = (Rc::clone(self), self.executor.now());
        file.begin();
        self.executor.submit(op, move |completion: Completion| {
            this.file(tier).end();
            this.file(tier).statistics.read_times.record(this.executor.now().since_ns(start));
            let bytes = completion.buffer.expect("a read gives its buffer back");
            let is_sound = completion.result.is_ok() && header::verify(&bytes, page) == Ok(true);
            let leaves = !is_sound || !this.policy.borrow().is_inclusive();
            this.slots.borrow_mut().end_read(slot, leaves);
            if !is_sound {
                add(&this.file(tier).statistics.damaged, 1);
            }
            done(bytes, is_sound);
        });
    }
}
