//! The buffer's calls of the tiers below it, for pages that leave main memory, are forced or missed.
//!
//! A missed page is copied from its tier before another page leaves for the tier, so its slot is free for the victim,
//! and main memory and cache hold together as many pages as both have room for.

use super::levels::Source;
use super::wanted::Fetching;
use super::write_back::PageRun;
use super::{Buffer, Levels, PageSpace, Presence};
use crate::page_store::Future;
use crate::second_level::design::{Leaving, Pattern, Read, Reason};
use crate::second_level::{DirtyWrite, Host, Placement, TableGrowth, Tier, Tiers};
use crate::statistics::{FoundIn, add};
use crate::tier_file::table::PageVersion;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use driver::{Access, Completion, Frame};
use executor::JoinHandle;
use std::ops::Range;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// A copy on its way to the tiers.
struct EnteringPages {
    frames: Vec<u32>,
    first: PageId,
    write: TierWrite,
}

enum TierWrite {
    /// Its partition has no tier.
    Passes(Frame),
    /// It is written once those before it are.
    Next(Frame),
    /// It is being written.
    Begun(JoinHandle<DirtyWrite>),
}

impl Host for Buffer {
    fn write_pages(
        self: Rc<Self>,
        from: Rc<Tiers>,
        first: PageId,
        bytes: Frame,
        length: usize,
    ) -> Future<'static, Completion> {
        Box::pin(async move {
            match from.is_upper() {
                true => self.write_below(from, first, (bytes, length)).await,
                false => self.write_home(first, (bytes, length), false).await,
            }
        })
    }

    fn copy_buffer(&self) -> Result<Frame> {
        Buffer::copy_buffer(self, 1)
    }

    fn may_be_cached(&self, page: PageId) -> bool {
        let is_there = |space: &PageSpace| space.placement().cache && page.number < space.capacity();
        self.find_space(page.partition).is_ok_and(|space| is_there(&space))
    }

    fn write_anew(&self, page: PageId, redo_start: Lsn) {
        let mut pool = self.pool.borrow_mut();
        match pool.frame_of(page) {
            Some(frame) => pool.note_change(frame, redo_start),
            // A cache that has what cannot be read itself has no other copy.
            None => self.upper_cache().iter().for_each(|upper| upper.write_anew(page, redo_start)),
        }
    }

    fn return_copy(&self, copy: Frame) {
        self.copies.borrow_mut().push(copy);
    }

    fn silent(&self) -> Vec<PartitionId> {
        self.silence.silent(self.executor.now())
    }

    fn is_left(&self, page: PageId) -> bool {
        Buffer::is_left(self, page)
    }

    fn destage_ended(&self) {
        self.written.wake_all(&self.executor);
        self.wake_all_for_frames();
    }

    fn table_has_grown(&self) {
        self.table_growth.note(&self.executor);
    }
}

impl Buffer {
    /// What asks for a later position of a cache's table in the superblock.
    pub(crate) fn table_growth(&self) -> Rc<TableGrowth> {
        Rc::clone(&self.table_growth)
    }

    /// Whether pages of this file may be on a level below.
    pub(super) fn is_tiered(&self, space: &PageSpace) -> bool {
        self.levels.borrow().from_top().any(|tiers| tiers.serves(space.placement()))
    }

    /// What the tiers learn of a frame's page that leaves, or is written.
    fn leaving(&self, frame: u32, dirty: bool, reason: Reason) -> Leaving {
        let pool = self.pool.borrow();
        let (page, modified, pattern) = (pool.page_of(frame), pool.is_modified(frame), pool.pattern(frame));
        Leaving { page, dirty, modified, reason, pattern }
    }

    /// Which tiers a page may enter.
    fn admission(&self, leaving: &Leaving) -> Placement {
        self.space(leaving.page.partition).admission()
    }

    /// Writes to the tiers what they take of these copies, and returns the rest. Of that no older version is on its way to its
    /// own device any more, and none is in a tier. A page whose older version does not make way stays dirty; also the first error of
    /// that.
    pub(super) async fn absorb(&self, runs: Vec<PageRun>, reason: Reason) -> (Vec<PageRun>, Result<()>) {
        let levels = self.levels();
        let (mut rest, mut result) = (runs, Ok(()));
        for (depth, tiers) in levels.from_top().enumerate() {
            let absorbed;
            (rest, absorbed) = self.absorb_by(tiers, depth == 0, rest, reason).await;
            result = result.and(absorbed);
        }
        (rest, result)
    }

    /// The same by one level; those above it have declined the copies.
    async fn absorb_by(
        &self,
        tiers: &Rc<Tiers>,
        is_top: bool,
        runs: Vec<PageRun>,
        reason: Reason,
    ) -> (Vec<PageRun>, Result<()>) {
        let (mut rest, mut result) = (Vec::new(), Ok(()));
        let started: Vec<EnteringPages> = runs.into_iter().map(|run| self.start_entering(tiers, run, reason)).collect();
        for EnteringPages { frames, first, write } in started {
            let outcome = match write {
                TierWrite::Passes(bytes) => {
                    rest.push(PageRun { frames, first, bytes });
                    continue;
                }
                TierWrite::Next(bytes) => {
                    let leaving = self.leaving(frames[0], true, reason);
                    tiers.write_dirty(&leaving, self.admission(&leaving), bytes).await
                }
                TierWrite::Begun(write) => write.join().await,
            };
            match outcome {
                DirtyWrite::Entered(entry) => {
                    let recovery_lsn = self.pool.borrow().writing_lsn(frames[0]);
                    self.finish_write(&frames, true);
                    // Below an upper cache it leaves as a clean page does, by way of that.
                    let left = reason == Reason::Replacement && is_top && self.leave(frames[0]);
                    tiers.enter_dirty(entry, recovery_lsn, left);
                }
                DirtyWrite::Declined(bytes) => {
                    let is_passed_over = tiers.is_upper() && canary::is_planted(Canary::StaleAbove);
                    let way = if is_passed_over { Ok(None) } else { tiers.make_way(first).await };
                    match way {
                        Ok(older) => {
                            older.into_iter().for_each(|lsn| self.pool.borrow_mut().extend_writing(frames[0], lsn));
                            rest.push(PageRun { frames, first, bytes });
                        }
                        Err(error) => {
                            self.end_write(&frames, bytes, false);
                            result = result.and(Err(error));
                        }
                    }
                }
            }
        }
        (rest, result)
    }

    /// A copy starts on its way to the tiers, if they serve its partition: with others if the cache is written in groups.
    fn start_entering(&self, tiers: &Rc<Tiers>, run: PageRun, reason: Reason) -> EnteringPages {
        let PageRun { frames, first, bytes } = run;
        let placement = self.space(first.partition).placement();
        let write = match (tiers.serves(placement) && frames.len() == 1, tiers.writes_groups()) {
            // Several pages were copied side by side before there were tiers for them, which have no copies of them.
            (false, _) => TierWrite::Passes(bytes),
            (true, false) => TierWrite::Next(bytes),
            (true, true) => {
                let (leaving, tiers) = (self.leaving(frames[0], true, reason), Rc::clone(tiers));
                let admission = self.admission(&leaving);
                let write = async move { tiers.write_dirty(&leaving, admission, bytes).await };
                TierWrite::Begun(self.executor.spawn(write))
            }
        };
        EnteringPages { frames, first, write }
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
        self.note_free();
        true
    }

    /// From where redo has to begin so that no page on its own device lacks a change; `None` if none does.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        let pending = self.levels.borrow().recovery_lsn();
        [self.pool.borrow().recovery_lsn(), pending, self.left_since()].into_iter().flatten().min()
    }

    /// A clean page leaves main memory: to the levels below, as each takes it. The frame is free afterwards unless another task began
    /// to use the page meanwhile.
    pub(super) async fn displace(self: &Rc<Self>, frame: u32) -> Result<()> {
        let levels = self.levels();
        if levels.is_empty() {
            self.leave(frame);
            return Ok(());
        }
        let leaving = self.leaving(frame, false, Reason::Replacement);
        let admission = self.admission(&leaving);
        let takes = |tiers: &Rc<Tiers>| tiers.takes_clean(&leaving, admission);
        // What the upper cache has alone counts as clean nowhere below it.
        let is_above_alone = levels.upper.as_ref().is_some_and(|upper| upper.is_pending(leaving.page));
        let upper = levels.upper.filter(takes);
        let takers = Levels { upper, tiers: levels.tiers.filter(|tiers| !is_above_alone && takes(tiers)) };
        if takers.is_empty() {
            self.leave(frame);
            return Ok(());
        }
        let mut bytes = self.copy_buffer(1)?;
        // In the step that has chosen the page: other tasks look for another one then, instead of all for this one.
        self.pool.borrow_mut().begin_migration(frame, &mut bytes);
        self.in_flight.set(self.in_flight.get() + 1);
        let this = Rc::clone(self);
        self.executor.spawn(async move { this.migrate(&takers, frame, leaving.page, bytes).await }).join().await;
        Ok(())
    }

    /// Copies a page that leaves main memory unchanged to caches.
    async fn migrate(&self, takers: &Levels, frame: u32, page: PageId, mut bytes: Frame) {
        let version = PageVersion::of(&bytes);
        let mut taken = [None; 2];
        for (tiers, taken) in takers.from_top().zip(&mut taken) {
            let Some(slot) = tiers.take_for_clean(page).await else { continue };
            if tiers.tier_of(page).is_some() {
                tiers.give_back(slot);
                continue;
            }
            let is_written;
            (bytes, is_written) = tiers.write_slot(slot, bytes, false).await;
            *taken = Some((slot, is_written));
        }
        self.copies.borrow_mut().push(bytes);
        self.in_flight.set(self.in_flight.get() - 1);
        self.pool.borrow_mut().end_migration(frame);
        let has_left = self.leave(frame);
        for (tiers, taken) in takers.from_top().zip(taken) {
            match taken {
                Some((slot, true)) if has_left => tiers.enter_clean(slot, page, version),
                Some((slot, _)) => tiers.give_back(slot),
                None => {}
            }
        }
        self.written.wake_all(&self.executor);
        // If it stays after all, it may be emptied for another miss.
        self.wake_for_frames(usize::from(!has_left));
    }

    /// A page was read from its own device into a frame's memory: the levels above that get a copy as each takes one.
    pub(super) fn offer(&self, frame: u32, space: &PageSpace, bytes: &[u8]) {
        let levels = self.levels();
        if levels.is_empty() {
            return;
        }
        let read = {
            let pool = self.pool.borrow();
            Read { page: pool.page_of(frame), pattern: pool.pattern(frame) }
        };
        levels.from_top().for_each(|tiers| self.offer_to(tiers, &read, (space, bytes)));
    }

    /// A page was read from below these tiers: they get a copy if they take one.
    fn offer_to(&self, tiers: &Rc<Tiers>, read: &Read, (space, bytes): (&PageSpace, &[u8])) {
        if tiers.takes_read(read, space.admission())
            && let Ok(mut copy) = self.copy_buffer(1)
        {
            copy.copy_from_slice(bytes);
            tiers.enter_read(read.page, copy);
        }
    }

    /// Which of these pages are read from their own device even if a cache has them. Of pages in sequence that are those
    /// between the first and the last that no tier has: a device that has to leave some out is slower than one that reads them
    /// all (Do et al. 2011, section 3.3.3).
    ///
    /// Scans of numbered objects and of what was appended, loads and residents read pages so, and cursors the leaves ahead of them that
    /// lie side by side.
    pub(super) fn past_cache(&self, pages: &[PageId], pattern: Pattern) -> Range<usize> {
        if self.levels.borrow().is_empty() || pattern != Pattern::Sequential {
            return 0..0;
        }
        let is_missing = |page: &PageId| !self.is_below(*page);
        let first = pages.iter().position(is_missing);
        let last = pages.iter().rposition(is_missing);
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }

    /// Starts to read a missed page from the level that holds it. It has been read before a frame is emptied for it, so the page that
    /// leaves main memory for the cache finds the slot of this one there, and both levels together hold as many pages as they
    /// have room for. False if the page is not there any more.
    pub(super) fn load_from_below(
        self: &Rc<Self>,
        space: &Rc<PageSpace>,
        (source, access): (Source, Access),
        turn: Fetching,
    ) -> Result<bool> {
        let id = turn.page();
        if self.pool.borrow().presence(id) != Presence::Absent || !self.is_still(&source, id) {
            return Ok(false);
        }
        let buffer = self.copy_buffer(1)?;
        self.failures.forget(|page| page == id);
        self.in_flight.set(self.in_flight.get() + 1);
        let Source { tiers, tier } = source;
        let found = match tier {
            Tier::Cache if tiers.is_upper() => FoundIn::UpperCache,
            Tier::Cache => FoundIn::Cache,
            Tier::WriteBuffer => FoundIn::WriteBuffer,
        };
        if tier == Tier::Cache {
            add(if tiers.is_upper() { &space.upper_cache_hits } else { &space.cache_hits }, 1);
        }
        let turn = turn.from(found);
        let (this, space, from) = (Rc::clone(self), Rc::clone(space), Rc::clone(&tiers));
        let read = Read { page: id, pattern: turn.pattern() };
        let done = move |bytes, is_sound| this.finish_load_from(from, space, (bytes, is_sound), turn);
        tiers.read(&read, buffer, access, done);
        Ok(true)
    }

    fn finish_load_from(
        self: Rc<Self>,
        tiers: Rc<Tiers>,
        space: Rc<PageSpace>,
        (bytes, is_sound): (Frame, bool),
        turn: Fetching,
    ) {
        let id = turn.page();
        self.in_flight.set(self.in_flight.get() - 1);
        self.wake_for_frames(0);
        let this = Rc::clone(&self);
        if let Some(upper) = self.upper_cache().filter(|_| is_sound && !tiers.is_upper()) {
            let read = Read { page: id, pattern: turn.pattern() };
            self.offer_to(&upper, &read, (&space, &bytes));
        }
        self.executor.spawn(async move {
            let result = match is_sound {
                true => this.install(&space, bytes, turn).await,
                false => this.load_instead(&tiers, &space, bytes, turn).await,
            };
            if let Err(error) = result {
                this.failures.note(id, error);
            }
        });
    }

    /// Puts a page that came from a tier into a frame, and keeps it there until the tasks waiting for it have seen it.
    async fn install(self: &Rc<Self>, space: &PageSpace, bytes: Frame, turn: Fetching) -> Result<()> {
        let spare = self.frame_for(space).await;
        // The partition may have been dropped meanwhile.
        let spare = spare.and_then(|spare| self.find_space(space.partition()).map(|_| spare));
        let placed = spare.and_then(|spare| {
            self.check_left(turn.page(), header::sequence(&bytes))?;
            Ok(self.place(spare.take(), &turn, &bytes))
        });
        self.copies.borrow_mut().push(bytes);
        let frame = placed?;
        drop(turn);
        self.executor.yield_now().await;
        self.unpin(frame);
        Ok(())
    }

    /// Puts a page that is nowhere in main memory into a free frame, and pins it.
    fn place(&self, frame: u32, turn: &Fetching, bytes: &[u8]) -> u32 {
        let mut pool = self.pool.borrow_mut();
        let mut frame_bytes = pool.begin_load(frame, turn.page(), turn.pattern());
        pool.note_source(frame, turn.source());
        frame_bytes.copy_from_slice(bytes);
        let mut woken = Vec::new();
        pool.loaded(frame, frame_bytes, &mut woken);
        debug_assert!(woken.is_empty(), "no task waits for what takes no time");
        self.redo_left(&mut pool, (frame, turn.page()));
        pool.pin(frame);
        frame
    }

    /// The copy in a tier is unreadable: the page is read from its own device, once that has it. Where the upper cache had the copy,
    /// those who want the page look again, once what is below has it.
    async fn load_instead(
        self: &Rc<Self>,
        tiers: &Rc<Tiers>,
        space: &Rc<PageSpace>,
        bytes: Frame,
        turn: Fetching,
    ) -> Result<()> {
        let id = turn.page();
        self.copies.borrow_mut().push(bytes);
        tiers.drop_damaged(id).await?;
        if tiers.is_upper() {
            return Ok(());
        }
        let spare = self.frame_for(space).await?;
        let access = space.access(&self.executor).await;
        self.find_space(id.partition)?;
        self.read_page(spare, &turn, space, access);
        Ok(())
    }

    /// A page could not be read from its own device, or is blank there: a copy that a tier has serves instead, if it was passed
    /// over because the tier was busy. The frame's memory comes back with the error if there is none.
    pub(super) fn read_copy_instead(
        self: &Rc<Self>,
        (frame, id): (u32, PageId),
        space: &Rc<PageSpace>,
        (bytes, error): (Frame, Option<Error>),
    ) -> std::result::Result<(), (Frame, Option<Error>)> {
        let Some(Source { tiers, tier }) = self.copy_of(id) else { return Err((bytes, error)) };
        let (this, tiers, space) = (Rc::clone(self), tiers, Rc::clone(space));
        self.executor.spawn(async move {
            let access = tiers.file(tier).access(&this.executor).await;
            if tiers.tier_of(id) != Some(tier) {
                return this.finish_unused((frame, id), &space, bytes, error);
            }
            // The frame's own memory must not get lost with a device that does not answer.
            let copy = match this.copy_buffer(1) {
                Ok(copy) => copy,
                Err(error) => return this.end_load(frame, id, bytes, Err(error)),
            };
            let (read, mut bytes) = (Read { page: id, pattern: Pattern::Random }, bytes);
            tiers.read(&read, copy, access, move |copy, is_sound| {
                if is_sound {
                    bytes.copy_from_slice(&copy);
                }
                this.copies.borrow_mut().push(copy);
                match is_sound {
                    true => this.end_load(frame, id, bytes, Ok(())),
                    false => this.finish_unused((frame, id), &space, bytes, error),
                }
            });
        });
        Ok(())
    }

    /// Reads the pages of partitions that stay in main memory.
    ///
    /// # Errors
    /// The driver's; a damaged page shows when it is used.
    pub async fn bring_residents(self: &Rc<Self>) -> Result<()> {
        for space in self.spaces().iter().filter(|space| space.placement().resident) {
            let pages = space.written();
            for first in (0..pages).step_by(64) {
                let ids = (first..pages.min(first + 64)).map(|number| PageId::new(space.partition(), number));
                let absent = ids.filter(|id| self.pool.borrow().presence(*id) == Presence::Absent);
                self.prefetch(absent, Pattern::Sequential).await?;
            }
        }
        Ok(())
    }
}
