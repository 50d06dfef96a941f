//! The cleaner: writes cold dirty pages before they must leave, so that a miss finds a clean victim.
//!
//! It keeps the coldest pages clean, as far from the cold end as [`Cleaner::new`] says, and follows the misses: once as many
//! frames were emptied as make a batch worth its writes, it looks for what has become cold since. Several batches may be under
//! way, so that one is gathered and staged while those before are written in place. A miss that finds no clean frame presses:
//! then any batch is worth it.

use super::Buffer;
use crate::second_level::SILENCE_NS;
use crate::second_level::design::Reason;
use base::Instant;
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::{Rc, Weak};

/// How much of the buffer is kept clean: the coldest eighth, within limits.
const SHARE: usize = 8;
const AHEAD_MIN: usize = 16;
const AHEAD_MAX: usize = 1024;
/// How many batches, and at most which part of what is kept clean, make one that is worth its writes.
const BATCH_PARTS: usize = 2;
const AHEAD_PARTS: usize = 8;
/// The most batches under way.
const BATCHES_MAX: usize = 4;

/// How the cleaner stands.
pub(super) struct Cleaner {
    /// How many of the coldest pages are kept clean.
    ahead: usize,
    /// Frames emptied since it last looked.
    emptied: Cell<usize>,
    /// How many make it look again.
    worth: usize,
    /// Whether a miss found no clean page.
    pressed: Cell<bool>,
    /// Whether a batch could not be written. Until a write succeeds misses write their own victims, so that each learns why.
    failed: Cell<bool>,
    /// Batches under way, and the pages in them.
    batches: Cell<usize>,
    pages: Cell<usize>,
    /// When the last of them ended, or the first began.
    latest: Cell<Instant>,
    /// Whether none begins any more.
    has_ended: Cell<bool>,
    woken: Rc<WaitQueue>,
    /// Misses that found no clean page.
    pub(super) misses: WaitQueue,
    /// The frames whose pages it has chosen and that are being written, each with the number of references by then.
    chosen: RefCell<BTreeMap<u32, u64>>,
}

impl Cleaner {
    /// The cleaner of a buffer of `frames` frames, which writes at most `batch` pages together.
    pub fn new(frames: usize, batch: usize) -> Cleaner {
        let ahead = (frames / SHARE).clamp(AHEAD_MIN, AHEAD_MAX);
        Cleaner {
            ahead,
            emptied: Cell::new(0),
            worth: (batch / BATCH_PARTS).min(ahead / AHEAD_PARTS).max(1),
            pressed: Cell::new(false),
            failed: Cell::new(false),
            batches: Cell::new(0),
            pages: Cell::new(0),
            latest: Cell::default(),
            has_ended: Cell::new(false),
            woken: Rc::new(WaitQueue::new()),
            misses: WaitQueue::new(),
            chosen: RefCell::default(),
        }
    }

    /// Whether pages are being cleaned, so that a frame is going to be clean.
    pub fn is_at_work(&self, now: Instant) -> bool {
        self.batches.get() > 0 && !self.failed.get() && now.since_ns(self.latest.get()) < SILENCE_NS
    }

    /// Whether misses wait for it.
    pub fn has_misses(&self) -> bool {
        !self.misses.is_empty()
    }

    /// The frame's write has ended: how many references there were when it was chosen, if it was.
    pub fn take_chosen(&self, frame: u32) -> Option<u64> {
        self.chosen.borrow_mut().remove(&frame)
    }

    /// It begins nothing any more.
    pub fn end(&self) {
        self.has_ended.set(true);
    }

    /// A write of a miss's own victim succeeded.
    pub fn recover(&self) {
        self.failed.set(false);
    }

    fn begin(&self, pages: usize, now: Instant) {
        if self.batches.get() == 0 {
            self.latest.set(now);
        }
        self.batches.set(self.batches.get() + 1);
        self.pages.set(self.pages.get() + pages);
    }

    fn end_batch(&self, pages: usize, now: Instant) {
        self.latest.set(now);
        self.batches.set(self.batches.get() - 1);
        self.pages.set(self.pages.get() - pages);
    }

    /// A clean frame was emptied for a miss.
    pub fn note_eviction(&self, executor: &Executor) {
        self.emptied.set(self.emptied.get() + 1);
        if self.emptied.get() >= self.worth {
            self.failed.set(false);
            self.woken.wake_one(executor);
        }
    }

    /// A miss found no clean page.
    pub fn press(&self, executor: &Executor) {
        self.pressed.set(true);
        self.woken.wake_one(executor);
    }
}

/// Works while the buffer lives.
pub(super) async fn run(buffer: Weak<Buffer>, executor: Executor) {
    while let Some(present) = buffer.upgrade() {
        present.cleaner.emptied.set(0);
        if present.clean_batch() {
            continue;
        }
        let woken = Rc::clone(&present.cleaner.woken);
        // While it waits it keeps no buffer.
        drop(present);
        woken.wait(&executor).await;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // The cleaner finds that there is nothing to clean, and the checkpointer no cache's table to name.
        self.cleaner.woken.wake_all(&self.executor);
        self.table_growth.note(&self.executor);
    }
}

impl Buffer {
    /// Begins to write the coldest dirty pages back, beside earlier batches. False if there are not enough, or enough are under way.
    fn clean_batch(self: &Rc<Self>) -> bool {
        let cleaner = &self.cleaner;
        let room = cleaner.ahead.saturating_sub(cleaner.pages.get()).min(self.settings.batch);
        if room == 0 || cleaner.has_ended.get() || cleaner.failed.get() || cleaner.batches.get() >= BATCHES_MAX {
            return false;
        }
        let silent = self.silence.silent(self.executor.now());
        let mut cold = self.pool.borrow().coldest_dirty(cleaner.ahead, room, &silent);
        if let Some(written) = self.log_to_spare() {
            cold.retain(|frame| self.pool.borrow().is_logged(*frame, written));
        }
        let worth = if cleaner.pressed.take() { 1 } else { cleaner.worth };
        if cold.len() < worth {
            return false;
        }
        let Ok(runs) = self.begin_write_back(&cold) else { return false };
        let references = self.pool.borrow().references();
        cleaner.chosen.borrow_mut().extend(cold.iter().map(|frame| (*frame, references)));
        cleaner.begin(cold.len(), self.executor.now());
        // Behind what is being written by now there may be clean pages.
        cleaner.misses.wake_one(&self.executor);
        let this = Rc::clone(self);
        self.executor.spawn(async move {
            let mut writing = pin!(Rc::clone(&this).write_runs(runs, Reason::Background));
            let result = loop {
                match this.executor.within(SILENCE_NS, writing.as_mut()).await {
                    Some(result) => break result,
                    // None becomes clean if the device does not answer.
                    None => this.wake_all_for_frames(),
                }
            };
            this.cleaner.end_batch(cold.len(), this.executor.now());
            if result.is_ok() {
                this.cleaner.woken.wake_one(&this.executor);
            } else {
                this.cleaner.failed.set(true);
            }
            if !this.cleaner.is_at_work(this.executor.now()) {
                // Nothing will wake the misses that wait for more. After a failure they learn why from writes of their own.
                this.wake_all_for_frames();
            }
        });
        true
    }
}
