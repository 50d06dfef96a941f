//! The buffer's side of the tiers below it: pages that leave main memory, are forced or missed.
//!
//! A missed page is copied from its tier before another page leaves for the tier, so its slot is free for the victim,
//! and main memory and cache hold together as many pages as both have room for.

use super::wanted::Bringing;
use super::write_back::Run;
use super::{Buffer, DataFile, Presence};
use crate::second_level::{Filled, Tier, Tiers};
use crate::statistics::add;
use crate::{Error, Result};
use base::{Lsn, PageId};
use driver::{Access, Completion, Frame, Op};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// Why pages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// They stay in main memory: a checkpoint, or the cleaner.
    Background,
    /// Their transaction ends (FORCE).
    Force,
    /// Main memory needs the frame.
    Replacement,
}

impl Buffer {
    /// From now on there are tiers below this buffer.
    pub fn set_tiers(&self, tiers: Rc<Tiers>) {
        assert!(self.tiers.set(tiers).is_ok(), "a buffer's tiers are made once");
    }

    /// The tiers below this buffer.
    pub fn tiers(&self) -> Option<&Rc<Tiers>> {
        self.tiers.get()
    }

    /// Whether pages of this file may be in a tier.
    pub(super) fn is_tiered(&self, file: &DataFile) -> bool {
        self.tiers.get().is_some_and(|tiers| {
            let placement = file.placement();
            (placement.cache && tiers.cache.is_some()) || (placement.write_buffer && tiers.write_buffer.is_some())
        })
    }

    /// Which tier a page that is newer than on its own device is written to.
    fn tier_for(&self, tiers: &Tiers, file: &DataFile, reason: Reason) -> Option<Tier> {
        let placement = file.placement();
        let cached = tiers.cache.as_ref().is_some_and(|cache| !cache.volatile)
            && placement.cache
            && reason != Reason::Background
            && tiers.admission.admits(true);
        match () {
            () if cached => Some(Tier::Cache),
            () if placement.write_buffer && tiers.write_buffer.is_some() => Some(Tier::WriteBuffer),
            () => None,
        }
    }

    /// Writes to the tiers what they take of these copies, and returns the rest. Of that no older version is on its way to its
    /// own device any more, and none is in a tier. If it fails, all that was not written is given back with the error.
    pub(super) async fn absorb(
        self: &Rc<Self>,
        runs: Vec<Run>,
        reason: Reason,
    ) -> std::result::Result<Vec<Run>, (Vec<Run>, Error)> {
        let Some(tiers) = self.tiers.get() else { return Ok(runs) };
        let mut rest = Vec::new();
        let mut runs = runs.into_iter();
        while let Some(run) = runs.next() {
            let file = self.file(run.first.partition);
            if !self.is_tiered(&file) {
                rest.push(run);
                continue;
            }
            let Some(run) = self.store_dirty(tiers, &file, run, reason).await else { continue };
            let page = run.first;
            rest.push(run);
            if let Err(error) = self.settle(page).await {
                rest.extend(runs);
                return Err((rest, error));
            }
            tiers.slots.borrow_mut().forget(page);
        }
        Ok(rest)
    }

    /// Writes a copy to its tier; gives it back if it has none with room, or that fails.
    async fn store_dirty(
        self: &Rc<Self>,
        tiers: &Rc<Tiers>,
        file: &Rc<DataFile>,
        run: Run,
        reason: Reason,
    ) -> Option<Run> {
        let Some(tier) = self.tier_for(tiers, file, reason) else { return Some(run) };
        let (frame, page) = (run.frames[0], run.first);
        let statistics = &tiers.file(tier).statistics;
        let Some(slot) = tiers.slots.borrow_mut().take(tier, page) else {
            add(&statistics.fallbacks, 1);
            return Some(run);
        };
        let (bytes, written) = self.write_slot(tiers, slot, run.bytes, true).await;
        if !written {
            tiers.slots.borrow_mut().give_back(slot);
            add(&statistics.fallbacks, 1);
            return Some(Run { bytes, ..run });
        }
        add(&statistics.modified, 1);
        let recovery_lsn = self.pool.borrow().writing_lsn(frame);
        self.finish_write(&run.frames, true);
        let left = reason == Reason::Replacement && self.leave(frame);
        let Filled { destage, superseded } =
            tiers.slots.borrow_mut().filled_dirty(slot, page, recovery_lsn, left || tiers.replicates);
        self.copies.borrow_mut().extend(superseded.and_then(|slot| tiers.take_copy(slot)));
        tiers.keep(slot, bytes);
        if destage {
            self.start_destage(slot);
        }
        None
    }

    /// Writes the copy into the slot. Returns the copy, and whether it is there.
    async fn write_slot(&self, tiers: &Tiers, slot: u32, bytes: Frame, durable: bool) -> (Frame, bool) {
        let (tier, number) = tiers.slots.borrow().place(slot);
        let file = tiers.file(tier);
        let access = file.access(&self.executor).await;
        let (offset, length) = (file.offset(number), self.settings.page_size as u32);
        let op = Op::Write { file: file.file, offset, length, buffer: bytes, durable, access };
        let completion = self.executor.perform(op).await;
        add(&file.statistics.writes, 1);
        (completion.buffer.expect("a write gives its buffer back"), completion.result.is_ok())
    }

    /// Empties the frame if nothing keeps its page.
    fn leave(&self, frame: u32) -> bool {
        let mut pool = self.pool.borrow_mut();
        if !pool.may_leave(frame) {
            return false;
        }
        pool.evict(frame);
        pool.give_free(frame);
        drop(pool);
        self.freed.wake_one(&self.executor);
        true
    }

    /// Starts to write a slot's copy to its page's own device, and whatever is to follow it there.
    fn start_destage(self: &Rc<Self>, slot: u32) {
        let tiers = self.tiers.get().expect("only tiers have slots");
        let bytes = tiers.take_copy(slot).expect("a copy is kept until it is written");
        if canary::is_planted(Canary::EarlyReuse) {
            // The slot counts as written back while its write is still under way.
            self.end_destage(slot, true);
        }
        let this = Rc::clone(self);
        self.executor.spawn(async move { this.destage(slot, bytes).await });
    }

    async fn destage(self: Rc<Self>, slot: u32, bytes: Frame) {
        let tiers = Rc::clone(self.tiers.get().expect("only tiers have slots"));
        let page = header::id(&bytes);
        let file = self.file(page.partition);
        let access = file.access(&self.executor).await;
        file.note_write(page);
        let (offset, length) = (file.offset(page), self.settings.page_size as u32);
        // Only the slot holds this page whole while it may be torn in its place.
        let durable = file.may_tear();
        let op = Op::Write { file: file.file, offset, length, buffer: bytes, durable, access };
        let completion = self.executor.perform(op).await;
        file.note_written();
        let bytes = completion.buffer.expect("a write gives its buffer back");
        if let Err(fault) = completion.result {
            tiers.failure.replace(Some(Error::Input(fault)));
            tiers.keep(slot, bytes);
            self.end_destage(slot, false);
            return;
        }
        self.copies.borrow_mut().push(bytes);
        if !canary::is_planted(Canary::EarlyReuse) {
            self.end_destage(slot, true);
        }
    }

    fn end_destage(self: &Rc<Self>, slot: u32, written: bool) {
        let tiers = self.tiers.get().expect("only tiers have slots");
        let next = tiers.slots.borrow_mut().destaged(slot, written);
        if let Some(next) = next {
            // A failed copy that a newer one replaces is not needed any more.
            if !written {
                self.copies.borrow_mut().extend(tiers.take_copy(slot));
            }
            self.start_destage(next);
        }
        tiers.settled.wake_all(&self.executor);
        self.written.wake_all(&self.executor);
        self.freed.wake_all(&self.executor);
    }

    /// Waits until the page's own device has its newest copy. One that failed before is tried once more.
    ///
    /// # Errors
    /// The driver's.
    pub(super) async fn settle(self: &Rc<Self>, page: PageId) -> Result<()> {
        let Some(tiers) = self.tiers.get() else { return Ok(()) };
        let mut retried = false;
        loop {
            let unsettled = tiers.slots.borrow().unsettled(page);
            match unsettled {
                None => return Ok(()),
                Some((slot, true)) if !retried => {
                    retried = true;
                    tiers.slots.borrow_mut().retry(slot);
                    self.start_destage(slot);
                }
                Some((_, true)) => {
                    let failure = tiers.failure.borrow().clone();
                    return Err(failure.expect("what failed did so for some reason"));
                }
                Some((_, false)) => tiers.settled.wait(&self.executor).await,
            }
        }
    }

    /// Waits until every page's own device has its changes from before `lsn`.
    ///
    /// # Errors
    /// The driver's.
    pub async fn drain_before(self: &Rc<Self>, lsn: Lsn) -> Result<()> {
        let Some(tiers) = self.tiers.get() else { return Ok(()) };
        let pending = tiers.slots.borrow().pending_before(lsn);
        for page in pending {
            self.settle(page).await?;
        }
        Ok(())
    }

    /// From where redo has to begin so that no page on its own device lacks a change; `None` if none does.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        let pending = self.tiers.get().and_then(|tiers| tiers.slots.borrow().recovery_lsn());
        [self.pool.borrow().recovery_lsn(), pending].into_iter().flatten().min()
    }

    /// A clean page leaves main memory: to the cache, if that takes it. The frame is free afterwards unless somebody began to
    /// use the page meanwhile.
    pub(super) async fn displace(self: &Rc<Self>, frame: u32) -> Result<()> {
        if !self.migrates(frame) {
            self.leave(frame);
            return Ok(());
        }
        let (this, page) = (Rc::clone(self), self.pool.borrow().page_of(frame));
        self.executor.spawn(async move { this.migrate(frame, page).await }).join().await
    }

    /// Whether a clean page is to be copied to the cache. If its copy is there already it counts as used just now.
    fn migrates(&self, frame: u32) -> bool {
        let Some(tiers) = self.tiers.get() else { return false };
        let pool = self.pool.borrow();
        let page = pool.page_of(frame);
        if tiers.slots.borrow_mut().refresh(page) {
            return false;
        }
        let takes = self.file(page.partition).placement().cache && tiers.cache.is_some();
        takes && tiers.admission.admits(pool.is_modified(frame))
    }

    async fn migrate(self: Rc<Self>, frame: u32, page: PageId) -> Result<()> {
        let tiers = Rc::clone(self.tiers.get().expect("only with a cache pages migrate"));
        // Before this task began, others may have used the page or emptied the frame.
        let is_same = self.pool.borrow().may_leave(frame) && self.pool.borrow().page_of(frame) == page;
        if !is_same || !self.migrates(frame) {
            return Ok(());
        }
        let taken = tiers.slots.borrow_mut().take(Tier::Cache, page);
        let Some(slot) = taken else {
            add(&tiers.file(Tier::Cache).statistics.fallbacks, 1);
            self.leave(frame);
            return Ok(());
        };
        let mut bytes = match self.copy_buffer(1) {
            Ok(bytes) => bytes,
            Err(error) => {
                tiers.slots.borrow_mut().give_back(slot);
                return Err(error);
            }
        };
        self.pool.borrow_mut().begin_migration(frame, &mut bytes);
        self.in_flight.set(self.in_flight.get() + 1);
        let (bytes, written) = self.write_slot(&tiers, slot, bytes, false).await;
        self.copies.borrow_mut().push(bytes);
        self.in_flight.set(self.in_flight.get() - 1);
        self.pool.borrow_mut().end_migration(frame);
        let left = self.leave(frame);
        let mut slots = tiers.slots.borrow_mut();
        if written && left {
            slots.filled_clean(slot, page, true);
        } else {
            slots.give_back(slot);
        }
        drop(slots);
        self.written.wake_all(&self.executor);
        self.freed.wake_all(&self.executor);
        Ok(())
    }

    /// The tier that would be read for this page, if one has a copy.
    pub(super) fn tier_of(&self, id: PageId) -> Option<Tier> {
        let tiers = self.tiers.get()?;
        let slots = tiers.slots.borrow();
        slots.lookup(id).map(|slot| slots.place(slot).0)
    }

    /// Starts to read a missed page from the tier that holds it. It comes home before a frame is emptied for it: so the page that
    /// leaves main memory for the cache finds the slot of this one there, and both levels together hold as many pages as they
    /// have room for. False if the page is not there any more.
    pub(super) fn load_from_tier(
        self: &Rc<Self>,
        file: &Rc<DataFile>,
        (tier, access): (Tier, Access),
        turn: Bringing,
    ) -> Result<bool> {
        let id = turn.page();
        if self.pool.borrow().presence(id) != Presence::Absent || self.tier_of(id) != Some(tier) {
            return Ok(false);
        }
        let tiers = self.tiers.get().expect("only tiers have slots");
        let buffer = self.copy_buffer(1)?;
        self.failures.borrow_mut().retain(|(page, _)| *page != id);
        let slot = tiers.slots.borrow().lookup(id).expect("it was just seen");
        let (_, number) = tiers.slots.borrow().place(slot);
        tiers.slots.borrow_mut().begin_read(slot);
        self.in_flight.set(self.in_flight.get() + 1);
        let source = tiers.file(tier);
        add(&source.statistics.reads, 1);
        if tier == Tier::Cache {
            add(&file.cache_hits, 1);
        }
        let (offset, length) = (source.offset(number), self.settings.page_size as u32);
        let op = Op::Read { file: source.file, offset, length, buffer, access };
        let (this, file) = (Rc::clone(self), Rc::clone(file));
        self.executor.submit(op, move |completion| this.finish_tier_load(slot, file, completion, turn));
        Ok(true)
    }

    fn finish_tier_load(self: Rc<Self>, slot: u32, file: Rc<DataFile>, completion: Completion, turn: Bringing) {
        let tiers = self.tiers.get().expect("only tiers have slots");
        let id = turn.page();
        let bytes = completion.buffer.expect("a read gives its buffer back");
        let sound = completion.result.is_ok() && header::verify(&bytes, id) == Ok(true);
        tiers.slots.borrow_mut().end_read(slot, !tiers.replicates || !sound);
        if !sound {
            let (tier, _) = tiers.slots.borrow().place(slot);
            add(&tiers.file(tier).statistics.damaged, 1);
        }
        self.in_flight.set(self.in_flight.get() - 1);
        self.tell_freed(0);
        let this = Rc::clone(&self);
        self.executor.spawn(async move {
            let result = match sound {
                true => this.install(&file, bytes, turn).await,
                false => this.load_instead(&file, bytes, turn).await,
            };
            if let Err(error) = result {
                this.failures.borrow_mut().push((id, error));
            }
        });
    }

    /// Puts a page that came from a tier into a frame, and keeps it there until those who wait for it have seen it.
    async fn install(self: &Rc<Self>, file: &DataFile, bytes: Frame, turn: Bringing) -> Result<()> {
        let spare = self.frame_for(file).await;
        // The partition may have been dropped meanwhile.
        let spare = spare.and_then(|spare| self.find_file(file.partition()).map(|_| spare));
        let placed = spare.map(|spare| self.place(spare.take(), turn.page(), &bytes));
        self.copies.borrow_mut().push(bytes);
        let frame = placed?;
        drop(turn);
        self.executor.yield_now().await;
        self.unpin(frame);
        Ok(())
    }

    /// Puts a page that is nowhere in main memory into a free frame, and pins it.
    fn place(&self, frame: u32, id: PageId, bytes: &[u8]) -> u32 {
        let mut pool = self.pool.borrow_mut();
        let mut home = pool.begin_load(frame, id);
        home.copy_from_slice(bytes);
        let mut woken = Vec::new();
        pool.loaded(frame, home, &mut woken);
        debug_assert!(woken.is_empty(), "nobody waits for what takes no time");
        pool.pin(frame);
        frame
    }

    /// The copy in the tier is unreadable: the page is read from its own device, once that has it.
    async fn load_instead(self: &Rc<Self>, file: &Rc<DataFile>, bytes: Frame, turn: Bringing) -> Result<()> {
        let id = turn.page();
        self.copies.borrow_mut().push(bytes);
        self.settle(id).await?;
        if let Some(tiers) = self.tiers.get() {
            tiers.slots.borrow_mut().forget(id);
        }
        let spare = self.frame_for(file).await?;
        let access = file.access(&self.executor).await;
        self.find_file(id.partition)?;
        self.read_page(spare, id, file, access);
        Ok(())
    }

    /// Reads the pages of partitions that stay in main memory.
    ///
    /// # Errors
    /// The driver's; a damaged page shows when it is used.
    pub async fn bring_residents(self: &Rc<Self>) -> Result<()> {
        for file in self.files().iter().filter(|file| file.placement().resident) {
            let pages = file.written();
            for first in (0..pages).step_by(64) {
                let ids = (first..pages.min(first + 64)).map(|number| PageId::new(file.partition(), number));
                self.prefetch(ids.filter(|id| self.pool.borrow().presence(*id) == Presence::Absent)).await?;
            }
        }
        Ok(())
    }
}
