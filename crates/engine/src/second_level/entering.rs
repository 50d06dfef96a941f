//! Pages on their way into slots, and back to main memory.

use super::design::{Decision, Leaving, Outdated, Read};
use super::slots::{Filled, Room, Tier};
use super::{Placement, Tiers};
use crate::Error;
use crate::statistics::add;
use crate::tier_file::TierFile;
use crate::tier_file::table::PageVersion;
use base::{Instant, Lsn, PageId};
use driver::{Access, Completion, Frame, Op, Token};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// How many groups of slots a page has make room for it before it goes past the cache: others may take what they give.
const GROUPS_MAX: usize = 4;

/// How long a read that was given up waits for memory before it tries again, in nanoseconds.
const MEMORY_NS: u64 = base::time::MILLISECOND_NS;

/// A page that is newer than on its own device and stands durably in a slot, which is not in use yet.
pub struct EnteredPage {
    slot: u32,
    page: PageId,
    decision: Decision,
    bytes: Frame,
}

/// What came of writing a copy to its tier.
pub enum DirtyWrite {
    /// It is in a slot.
    Entered(EnteredPage),
    /// It has no tier with room, or that fails: its own device has to take it.
    Declined(Frame),
}

impl Tiers {
    /// Which tier a page that is newer than on its own device is written to, and how.
    fn tier_for(&self, leaving: &Leaving, placement: Placement) -> Option<(Tier, Decision)> {
        if self.is_closed.get() {
            return None;
        }
        let is_kept = |cache: &TierFile| !cache.volatile || self.is_upper();
        let is_cached = placement.cache && self.cache.as_ref().is_some_and(is_kept);
        if is_cached && self.is_cache_open() && !self.is_throttled() {
            let decision = self.policy.borrow_mut().on_eviction(leaving, &self.slots.borrow().contents());
            if decision != Decision::Skip && !self.is_spent() {
                return Some((Tier::Cache, decision));
            }
        }
        let is_buffered = placement.write_buffer && self.write_buffer.is_some();
        is_buffered.then_some((Tier::WriteBuffer, Decision::WriteThrough))
    }

    /// Writes a copy that is newer than on its page's own device to its tier, after the log has it.
    pub async fn write_dirty(self: &Rc<Self>, leaving: &Leaving, placement: Placement, bytes: Frame) -> DirtyWrite {
        let Some((tier, decision)) = self.tier_for(leaving, placement) else { return DirtyWrite::Declined(bytes) };
        let (page, statistics) = (leaving.page, &self.file(tier).statistics);
        let Some(slot) = self.take(tier, page).await else {
            add(&statistics.fallbacks, 1);
            return DirtyWrite::Declined(bytes);
        };
        // No opening looks for it in a cache that begins empty.
        let (bytes, written) = self.write_slot(slot, bytes, !self.is_upper()).await;
        if !written {
            self.slots.borrow_mut().give_back(slot);
            add(&statistics.fallbacks, 1);
            return DirtyWrite::Declined(bytes);
        }
        add(&statistics.modified, 1);
        DirtyWrite::Entered(EnteredPage { slot, page, decision, bytes })
    }

    /// A slot for a copy of `page`, if one can be had.
    async fn take(self: &Rc<Self>, tier: Tier, page: PageId) -> Option<u32> {
        let mut groups = 0;
        loop {
            if self.is_closed.get() || (tier == Tier::Cache && self.is_given_up.get()) {
                return None;
            }
            self.look_for_silence();
            let room = self.slots.borrow_mut().take(tier, page, &mut **self.policy.borrow_mut());
            match room {
                Room::Slot(slot) => return Some(slot),
                // If its device does not answer, another one makes room.
                Room::Dirty(victim) => _ = self.await_answer(victim).await.ok()?,
                Room::Group(group) if groups < GROUPS_MAX => {
                    groups += 1;
                    self.empty_group(group).await.ok()?;
                }
                Room::None | Room::Group(_) => return None,
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
        self.slots.borrow_mut().set_version(slot, PageVersion::of(&bytes));
        let Filled { destage, superseded } = filled;
        superseded.into_iter().for_each(|slot| self.forget_copy(slot));
        if at_once {
            self.copies.borrow_mut().insert(slot, bytes);
        } else {
            self.host().return_copy(bytes);
            self.clean_excess();
        }
        if destage {
            self.start_destage(slot);
        }
        self.state_changes();
    }

    /// Whether a page that leaves main memory unchanged is to be copied to the cache. If its copy is there already it counts
    /// as used just now.
    pub fn takes_clean(&self, leaving: &Leaving, placement: Placement) -> bool {
        let mut policy = self.policy.borrow_mut();
        if self.slots.borrow_mut().refresh(leaving.page, policy.is_used_when_it_leaves()) {
            return false;
        }
        let is_cached = placement.cache && self.is_cache_open() && !self.is_throttled();
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

    /// The slot holds this version of a page that has left main memory unchanged.
    pub fn enter_clean(self: &Rc<Self>, slot: u32, page: PageId, version: PageVersion) {
        {
            let mut slots = self.slots.borrow_mut();
            slots.filled_clean(slot, page, true);
            slots.set_version(slot, version);
        }
        self.state_changes();
    }

    /// Whether a page that was read from its own device is to be copied to the cache.
    pub fn takes_read(&self, read: &Read, placement: Placement) -> bool {
        let is_cached = placement.cache && self.is_cache_open() && self.tier_of(read.page).is_none();
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
            let is_changed =
                || this.entering.borrow().get(&page) == Some(&true) && !canary::is_planted(Canary::LateEntry);
            if let Some(slot) = this.take_for_clean(page).await {
                let mut is_written = false;
                if !is_changed() {
                    (copy, is_written) = this.write_slot(slot, copy, false).await;
                }
                if is_written && !is_changed() && this.tier_of(page).is_none() {
                    this.enter_clean(slot, page, PageVersion::of(&copy));
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
        self.pass_over(page);
        self.tier_of(page)?;
        if let Some(redo_start) = self.redoing_from.get().filter(|_| self.replaying_from.get().is_some())
            && self.slots.borrow_mut().keep_for_redo(page, redo_start)
        {
            return None;
        }
        match self.policy.borrow_mut().on_update(page) {
            Outdated::Kept => None,
            Outdated::Freed if canary::is_planted(Canary::StaleCopy) => None,
            Outdated::Freed => self.slots.borrow_mut().outdate(page),
        }
    }

    /// Writes the copy into the slot, unless the budget of writes is spent. Returns the copy, and whether it is there.
    pub async fn write_slot(self: &Rc<Self>, slot: u32, bytes: Frame, durable: bool) -> (Frame, bool) {
        let tier = self.slots.borrow().place(slot).0;
        if !self.take_budget(tier, bytes.len() as u64) {
            return (bytes, false);
        }
        let (bytes, is_written) = match self.writes_groups() && tier == Tier::Cache {
            true => self.write_with_others(slot, bytes, durable).await,
            false => self.write_alone(slot, bytes, durable).await,
        };
        if !is_written {
            self.slots.borrow_mut().note_bad(slot);
        }
        (bytes, is_written)
    }

    /// The same by an operation of its own; the budget has been asked.
    pub(super) async fn write_alone(self: &Rc<Self>, slot: u32, bytes: Frame, durable: bool) -> (Frame, bool) {
        let (tier, number) = self.slots.borrow().place(slot);
        let file = self.file(tier);
        if tier == Tier::Cache && self.is_timed() {
            // What an operation carries may be lost with it.
            let Ok(mut carried) = self.host().copy_buffer() else { return (bytes, false) };
            carried.copy_from_slice(&bytes);
            let (carried, written) = self.write_slots(slot, carried, bytes.len(), durable).await;
            carried.into_iter().for_each(|carried| self.host().return_copy(carried));
            file.statistics.count_write(bytes.len() as u64);
            return (bytes, written);
        }
        let access = file.access(&self.executor).await;
        let (offset, length) = (file.offset(number), bytes.len() as u32);
        let op = Op::Write { file: file.file, offset, length, buffer: bytes, durable, access };
        file.begin();
        let completion = self.executor.perform(op).await;
        file.end();
        file.statistics.count_write(length.into());
        add(&file.statistics.write_operations, 1);
        if tier == Tier::Cache {
            self.note_result(&completion, None);
        }
        (completion.buffer.expect("a write gives its buffer back"), completion.result.is_ok())
    }

    /// Writes the first `length` bytes to slots of the cache that follow each other. Returns the memory, unless it is lost with its
    /// device, and whether they are there.
    pub(super) async fn write_slots(
        self: &Rc<Self>,
        first: u32,
        buffer: Frame,
        length: usize,
        durable: bool,
    ) -> (Option<Frame>, bool) {
        let file = self.file(Tier::Cache);
        if self.is_lost() {
            return (Some(buffer), false);
        }
        let access = file.access(&self.executor).await;
        let (offset, length, executor) = (file.offset(first), length as u32, self.executor.clone());
        let op = Op::Write { file: file.file, offset, length, buffer, durable, access };
        file.begin();
        let answer = self.answered(async move { executor.perform(op).await }).await;
        file.end();
        add(&file.statistics.write_operations, 1);
        let Ok(completion) = answer else { return (None, false) };
        self.note_result(&completion, None);
        (completion.buffer, completion.result.is_ok() && !self.is_lost())
    }

    /// Starts to read the copy of a page that [`Tiers::tier_of`] has named into a buffer. `done` gets the buffer, and whether
    /// it holds the page.
    pub fn read(self: &Rc<Self>, read: &Read, buffer: Frame, access: Access, done: impl FnOnce(Frame, bool) + 'static) {
        let page = read.page;
        let (slot, tier) = {
            let mut slots = self.slots.borrow_mut();
            let slot = slots.lookup(page).expect("it was just seen");
            slots.begin_read(slot);
            (slot, slots.place(slot).0)
        };
        let file = self.file(tier);
        add(&file.statistics.reads, 1);
        add(&file.statistics.dirty_reads, u64::from(self.slots.borrow().is_pending(slot)));
        if tier == Tier::Cache {
            self.policy.borrow_mut().on_hit(read);
        }
        self.start_read((slot, page, self.executor.now()), (buffer, access), false, done);
    }

    /// Starts to read a slot, for the first time or again.
    fn start_read(
        self: &Rc<Self>,
        (slot, page, start): (u32, PageId, Instant),
        (buffer, access): (Frame, Access),
        is_again: bool,
        done: impl FnOnce(Frame, bool) + 'static,
    ) {
        let (tier, number) = self.slots.borrow().place(slot);
        let file = self.file(tier);
        let (offset, length) = (file.offset(number), buffer.len() as u32);
        let op = Op::Read { file: file.file, offset, length, buffer, access };
        let this = Rc::clone(self);
        let end = move |completion: Completion| {
            this.file(tier).end();
            let is_sound = this.is_sound((slot, page), &completion);
            // What is read in vain twice is given up for good, and a device may fail now and then.
            if is_sound || is_again || this.is_lost() || this.slots.borrow().is_unverified(slot) {
                return this.end_read((slot, page, start), (completion, is_sound), done);
            }
            let buffer = completion.buffer.expect("a read gives its buffer back");
            this.start_read((slot, page, start), (buffer, access), true, done);
        };
        file.begin();
        if tier == Tier::Cache && self.is_timed() {
            let (this, executor) = (Rc::clone(self), self.executor.clone());
            self.executor.spawn(async move {
                let answer = this.answered(async move { executor.perform(op).await }).await;
                end(match answer {
                    Ok(completion) => completion,
                    Err(error) => this.unanswered(error).await,
                });
            });
            return;
        }
        self.executor.submit(op, end);
    }

    /// Whether a read of a slot has brought what should be there of a page.
    fn is_sound(&self, (slot, page): (u32, PageId), completion: &Completion) -> bool {
        let bytes = completion.buffer.as_ref().expect("a read gives its buffer back");
        completion.result.is_ok()
            && header::verify(bytes, page) == Ok(true)
            && Tiers::is_version(&self.slots.borrow(), slot, bytes)
    }

    /// A read of the cache that its device does not answer has failed, with other memory.
    async fn unanswered(&self, error: Error) -> Completion {
        let fault = error.into_fault();
        loop {
            if let Ok(buffer) = self.host().copy_buffer() {
                return Completion { token: Token(0), result: Err(fault), buffer: Some(buffer) };
            }
            self.executor.sleep_ns(MEMORY_NS).await;
        }
    }

    /// A read of a slot has ended.
    fn end_read(
        self: &Rc<Self>,
        (slot, page, start): (u32, PageId, Instant),
        (completion, is_sound): (Completion, bool),
        done: impl FnOnce(Frame, bool) + 'static,
    ) {
        let tier = self.slots.borrow().place(slot).0;
        self.file(tier).statistics.read_times.record(self.executor.now().since_ns(start));
        if tier == Tier::Cache {
            self.note_result(&completion, Some(slot));
        }
        let bytes = completion.buffer.expect("a read gives its buffer back");
        // Redo may need the copy in its slot.
        let is_inclusive = self.policy.borrow().is_inclusive() || self.is_in_redo(page);
        let is_exclusive = !is_inclusive && !canary::is_planted(Canary::HeldTwice);
        let leaves = !is_sound || self.is_lost() || is_exclusive;
        match is_sound {
            true => self.slots.borrow_mut().note_verified(slot),
            false => self.note_read_in_vain(slot),
        }
        self.slots.borrow_mut().end_read(slot, leaves);
        if !is_sound {
            add(&self.file(tier).statistics.damaged, 1);
        }
        done(bytes, is_sound);
    }
}
