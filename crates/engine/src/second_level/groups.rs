//! Slots that are written, and make room, in groups.
//!
//! Pages that enter at about the same time stand in slots that follow each other, and are written by one operation. While one
//! is under way the next pages gather, so that nothing waits for company.

use super::Tiers;
use super::destage::CLEANED_AT_ONCE;
use super::slots::{Occupant, Tier};
use crate::Result;
use crate::tier_file::table::{HeldVersion, PageVersion};
use base::PageId;
use driver::Frame;
use executor::WaitQueue;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// How a write of a slot ended: its memory, and whether it is there.
type SlotWritten = Rc<RefCell<Option<(Frame, bool)>>>;

/// A page on its way to its slot.
struct SlotWrite {
    slot: u32,
    bytes: Frame,
    durable: bool,
    outcome: SlotWritten,
}

/// Pages that are written to slots together.
#[derive(Default)]
pub struct GroupWriter {
    queue: RefCell<Vec<SlotWrite>>,
    is_writing: Cell<bool>,
    ended: WaitQueue,
    spare: RefCell<Vec<Frame>>,
}

impl GroupWriter {
    /// Gives up memory for groups: they may have another size from now on.
    pub(super) fn forget_memory(&self) {
        self.spare.take();
    }
}

impl Tiers {
    /// Whether pages are written to the cache in groups.
    pub fn writes_groups(&self) -> bool {
        self.write_group.get() > 1
    }

    /// Writes a copy into its slot of the cache, with others that are on their way to slots beside it. Returns the copy, and
    /// whether it is there.
    pub(super) async fn write_with_others(self: &Rc<Self>, slot: u32, bytes: Frame, durable: bool) -> (Frame, bool) {
        let outcome = SlotWritten::default();
        self.groups.queue.borrow_mut().push(SlotWrite { slot, bytes, durable, outcome: Rc::clone(&outcome) });
        if !self.groups.is_writing.replace(true) {
            let this = Rc::clone(self);
            self.executor.spawn(async move {
                // The others that leave main memory with this one.
                this.executor.yield_now().await;
                this.write_gathered().await;
            });
        }
        loop {
            if let Some(outcome) = outcome.take() {
                return outcome;
            }
            self.groups.ended.wait(&self.executor).await;
        }
    }

    async fn write_gathered(self: &Rc<Self>) {
        loop {
            let mut requests = self.groups.queue.take();
            if requests.is_empty() {
                self.groups.is_writing.set(false);
                return;
            }
            requests.sort_by_key(|request| request.slot);
            let mut writes = Vec::new();
            while !requests.is_empty() {
                let follows = |count: usize| requests[count].slot == requests[0].slot + count as u32;
                let count = (1..requests.len().min(self.write_group.get() as usize)).find(|count| !follows(*count));
                let rest = requests.split_off(count.unwrap_or(requests.len().min(self.write_group.get() as usize)));
                let (this, group) = (Rc::clone(self), std::mem::replace(&mut requests, rest));
                writes.push(self.executor.spawn(async move { this.write_one_group(group).await }));
            }
            for write in writes {
                write.join().await;
            }
        }
    }

    /// Writes pages to slots that follow each other, by one operation if there is memory for that.
    async fn write_one_group(self: &Rc<Self>, group: Vec<SlotWrite>) {
        let memory = if group.len() > 1 { self.group_memory(group[0].bytes.len()) } else { None };
        let Some(mut memory) = memory else {
            for SlotWrite { slot, bytes, durable, outcome } in group {
                let written = self.write_alone(slot, bytes, durable).await;
                outcome.replace(Some(written));
                self.groups.ended.wake_all(&self.executor);
            }
            return;
        };
        let page_size = group[0].bytes.len();
        for (request, place) in group.iter().zip(memory.chunks_mut(page_size)) {
            place.copy_from_slice(&request.bytes);
        }
        let durable = group.iter().any(|request| request.durable);
        let (memory, written) = self.write_slots(group[0].slot, memory, group.len() * page_size, durable).await;
        let bytes = page_size as u64;
        group.iter().for_each(|_| self.file(Tier::Cache).statistics.count_write(bytes));
        self.groups.spare.borrow_mut().extend(memory);
        for SlotWrite { bytes, outcome, .. } in group {
            outcome.replace(Some((bytes, written)));
        }
        self.groups.ended.wake_all(&self.executor);
    }

    fn group_memory(&self, page_size: usize) -> Option<Frame> {
        let spare = self.groups.spare.borrow_mut().pop();
        spare.or_else(|| self.executor.frame(page_size * self.write_group.get() as usize).ok())
    }

    /// Has a group of slots make room: what was used goes to the end of the queue, what is dirty to its own place. Only one
    /// task does so at a time.
    ///
    /// # Errors
    /// Those of [`Tiers::await_destage`], for pages that make no room.
    pub(super) async fn empty_group(self: &Rc<Self>, group: Range<u32>) -> Result<()> {
        let _turn = self.emptying.take(&self.executor).await;
        let capacity = self.slots.borrow().contents().capacity();
        if self.is_closed.get() || self.policy.borrow().next_group(capacity) != Some(group.clone()) {
            return Ok(());
        }
        self.look_for_silence();
        let kept = self.second_chances(group.clone());
        let copies = self.read_kept(&kept).await;
        let cleaned = self.clean_slots(group.clone(), &kept).await;
        {
            let mut slots = self.slots.borrow_mut();
            group.clone().filter(|slot| !kept.contains(slot)).for_each(|slot| slots.vacate(slot));
        }
        self.policy.borrow_mut().open_group(group);
        self.move_to_end(copies).await;
        cleaned
    }

    /// The slots of a group whose pages stay in the cache, at most half of them.
    fn second_chances(&self, group: Range<u32>) -> Vec<u32> {
        let max = group.len() / 2;
        let (slots, mut policy) = (self.slots.borrow(), self.policy.borrow_mut());
        let mut kept = Vec::new();
        for slot in group {
            // Asked for each, so that it is forgotten what was used before.
            if let Occupant::Idle(candidate) = slots.contents().occupant(slot)
                && policy.second_chance(candidate.page)
                && kept.len() < max
            {
                kept.push(slot);
            }
        }
        kept
    }

    /// The copies in these slots, as far as they can be read.
    async fn read_kept(self: &Rc<Self>, kept: &[u32]) -> Vec<(u32, Frame)> {
        let host = self.host();
        let read = |slot: u32| {
            let (this, host) = (Rc::clone(self), Rc::clone(&host));
            (slot, self.executor.spawn(async move { this.read_back(&*host, slot).await.ok() }))
        };
        let reads: Vec<_> = kept.iter().copied().map(read).collect();
        let mut copies = Vec::new();
        for (slot, read) in reads {
            copies.extend(read.join().await.map(|bytes| (slot, bytes)));
        }
        copies
    }

    /// Has what is dirty in a group of slots written to its own place, but for the slots that are kept.
    async fn clean_slots(self: &Rc<Self>, group: Range<u32>, kept: &[u32]) -> Result<()> {
        let dirty = |slot: &u32| match self.slots.borrow().contents().occupant(*slot) {
            Occupant::Idle(candidate) if candidate.dirty && !kept.contains(slot) => Some(candidate.page),
            _ => None,
        };
        let mut pages: Vec<PageId> = group.filter_map(|slot| dirty(&slot)).collect();
        if canary::is_planted(Canary::UncleanReuse) {
            pages.drain(..).for_each(|page| _ = self.slots.borrow_mut().discard_page(page));
        }
        pages.sort_unstable();
        let mut first_error = Ok(());
        for pages in pages.chunks(CLEANED_AT_ONCE.max(self.group_pages.get() as usize)) {
            let groups = self.slots.borrow().groups(pages, self.group_pages.get());
            groups.into_iter().for_each(|group| self.clean_group(self.host(), group));
            for page in pages {
                // What waits for a device that does not answer stays in its slot.
                let cleaned = self.await_answer(*page).await;
                first_error = first_error.and(cleaned.map(drop));
            }
        }
        first_error
    }

    /// Writes copies from slots of the open group to its beginning. One that finds no slot there stays where it is.
    async fn move_to_end(self: &Rc<Self>, copies: Vec<(u32, Frame)>) {
        let host = self.host();
        let mut moves = Vec::new();
        for (from, bytes) in copies {
            let to = self.slots.borrow_mut().take_for_move(&mut **self.policy.borrow_mut());
            let Some(to) = to else {
                host.return_copy(bytes);
                continue;
            };
            let this = Rc::clone(self);
            moves.push(self.executor.spawn(async move {
                let held = HeldVersion { page: header::id(&bytes), version: PageVersion::of(&bytes) };
                let (bytes, written) = this.write_slot(to, bytes, true).await;
                this.host().return_copy(bytes);
                if !written || !this.slots.borrow_mut().relocate(from, to, held) {
                    this.slots.borrow_mut().give_back(to);
                }
            }));
        }
        for moved in moves {
            moved.join().await;
        }
    }
}
