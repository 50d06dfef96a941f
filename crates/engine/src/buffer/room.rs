//! Room for a page: a frame that is free or is emptied, and the misses that wait for one.
//!
//! A search for a victim steps over all frames at the cold end that may not leave; where most of these are being written, that is
//! the most expensive part of a miss. So misses that found no clean page wait for the cleaner's writes apart from those that wait for any
//! frame, in the order of their arrival, and are given the frames that it has cleaned without a search.

use super::{Buffer, Pool, pool};
use crate::Result;
use crate::second_level::SILENCE_NS;
use crate::second_level::design::Reason;
use base::Lsn;
use std::rc::Rc;

/// How often a task lets others run before it concludes that no frame will become available.
const PATIENCE: u32 = 64;
/// How many victims of a miss fail to be written before it is told.
const UNWRITTEN_MAX: u32 = 4;
/// How far from the cold end a clean victim is looked for before a dirty one is written.
const CLEAN_WITHIN: usize = 128;

impl Buffer {
    /// The frame to be emptied next. While the log is short of room, that is none for whose page a page of the log would be
    /// written before it is full, if there is another: that would take room which rollbacks were promised.
    fn victim(&self, pool: &Pool) -> Option<u32> {
        let silent = self.silence.silent(self.executor.now());
        let victim = pool.victim(if self.settings.cleaner { CLEAN_WITHIN } else { 0 }, &silent)?;
        let written = self.log_to_spare().filter(|written| !pool.is_logged(victim, *written));
        written.and_then(|written| pool.logged_victim(written, &silent)).or(Some(victim))
    }

    /// Where the log is written up to, while it is short of room.
    pub(super) fn log_to_spare(&self) -> Option<Lsn> {
        self.log.get().filter(|log| log.is_scarce()).map(|log| log.written())
    }

    /// A free frame, or a clean page's that nothing keeps; otherwise the one that has to be emptied, if there is one.
    fn take_or_evict(&self) -> std::result::Result<u32, Option<u32>> {
        let mut pool = self.pool.borrow_mut();
        if let Some(frame) = pool.take_free() {
            return Ok(frame);
        }
        let victim = self.victim(&pool);
        let clean = victim.filter(|frame| !pool.is_dirty(*frame) && self.levels.borrow().is_empty());
        let frame = clean.ok_or(victim)?;
        pool.evict(frame);
        if pool.dirty_count() > 0 {
            self.cleaner.note_eviction(&self.executor);
        }
        // Where one is clean another may be.
        self.cleaner.misses.wake_one(&self.executor);
        Ok(frame)
    }

    /// A free frame, emptied if need be.
    pub(super) async fn acquire(self: &Rc<Self>) -> Result<u32> {
        // A search would most likely find no more than those of the misses that wait already.
        if self.cleaner.has_misses() && self.is_cleaning() {
            self.await_cleaned().await;
        }
        let (mut patience, mut unwritten) = (PATIENCE, 0);
        loop {
            let victim = match self.take_or_evict() {
                Ok(frame) => return Ok(frame),
                Err(victim) => victim,
            };
            match victim {
                Some(frame) if !self.pool.borrow().is_dirty(frame) => {
                    self.displace(frame).await?;
                    self.cleaner.note_eviction(&self.executor);
                }
                // Its batches make more frames clean than a write of this one page would.
                Some(_) if self.is_cleaning() => self.await_cleaned().await,
                Some(frame) => {
                    self.cleaner.press(&self.executor);
                    // If its device does not answer another one leaves; the write goes on.
                    let written = self.write_back_for(vec![frame], Reason::Replacement);
                    match self.executor.within(SILENCE_NS, written).await {
                        Some(Ok(())) => self.cleaner.recover(),
                        Some(Err(error)) => {
                            self.pass_over_victim(frame);
                            unwritten += 1;
                            if unwritten == UNWRITTEN_MAX {
                                return Err(error);
                            }
                        }
                        None => {}
                    }
                }
                None if self.in_flight.get() > 0 => self.freed.wait(&self.executor).await,
                None if patience > 0 => {
                    patience -= 1;
                    self.executor.yield_now().await;
                }
                None => return Err(pool::exhausted(&self.pool.borrow())),
            }
        }
    }

    /// The next miss is not to meet a page as its victim, too, that could not be written.
    fn pass_over_victim(&self, frame: u32) {
        let pool = self.pool.borrow();
        if pool.is_dirty(frame) {
            pool.touch(frame);
        }
    }

    /// Whether pages are being cleaned that misses may wait for.
    fn is_cleaning(&self) -> bool {
        self.cleaner.is_at_work(self.executor.now()) && self.levels.borrow().is_empty()
    }

    /// Waits until a page was cleaned for this miss, or it may look again; the batches under way see to that.
    async fn await_cleaned(&self) {
        self.cleaner.press(&self.executor);
        self.cleaner.misses.wait(&self.executor).await;
    }

    /// The writes of these frames' pages ended. Those that were written because the cleaner had chosen them, and have not been
    /// referenced since, are emptied for the misses that wait. How many these are.
    pub(super) fn empty_for_misses(&self, pool: &mut Pool, frames: &[u32], are_written: bool) -> usize {
        let may_empty = are_written && self.levels.borrow().is_empty();
        let wanted = if may_empty { self.cleaner.misses.len() } else { 0 };
        let mut emptied = 0;
        for frame in frames {
            let Some(chosen) = self.cleaner.take_chosen(*frame) else { continue };
            if emptied < wanted && pool.may_leave(*frame) && !pool.is_referenced_since(*frame, chosen) {
                pool.evict_early(*frame);
                pool.give_free(*frame);
                self.cleaner.note_eviction(&self.executor);
                emptied += 1;
            }
        }
        emptied
    }

    /// As many misses that wait take a frame each, and if there is none for them, one looks.
    pub(super) fn wake_misses(&self, emptied: usize) {
        for _ in 0..emptied.max(1) {
            self.cleaner.misses.wake_one(&self.executor);
        }
    }

    /// A frame was given back: one of the waiting tasks may take it.
    pub(super) fn note_free(&self) {
        if !self.freed.wake_one(&self.executor) {
            self.cleaner.misses.wake_one(&self.executor);
        }
    }

    /// All waiting tasks look again.
    pub(super) fn wake_all_for_frames(&self) {
        self.freed.wake_all(&self.executor);
        self.cleaner.misses.wake_all(&self.executor);
    }

    /// `count` frames may now be emptied: as many of the waiting tasks look again, and not all, for each look is a search among
    /// all frames. If nothing is under way any more, all look: there may be nothing left to wait for.
    pub(super) fn wake_for_frames(&self, count: usize) {
        if self.in_flight.get() == 0 {
            return self.wake_all_for_frames();
        }
        for _ in 0..count {
            if !self.freed.wake_one(&self.executor) {
                return;
            }
        }
    }
}
