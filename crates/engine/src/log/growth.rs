//! How the log's file comes into being: a small front of it at first, the rest in steps, each written with zeros before anything is
//! logged there, so that the writes of commits change no metadata (`PROBES.md`, durable writes).
//!
//! A position's place in the file never changes (`circle.rs`), so a file that is not all there yet holds the first lap and
//! nothing else. What new work and rollbacks may rely on is what is there: [`Log::free`] ends where the file does. The
//! next step begins when half of what is there is used up, so work seldom waits for it. Where the device has no room for
//! it, work that has not begun is refused; what has begun was promised its place in the file as it is. Each further attempt
//! to begin work tries the step again.

use super::Log;
use crate::{Error, Result};
use base::units::format_duration_ns;
use base::{Instant, Lsn};
use driver::{Fault, FaultKind, FileId, Op};
use std::cell::{Cell, RefCell};
use structures::canary::{self, Canary};

/// The largest step, in bytes: a tenth of a second of a device that writes 160 MB/s. The log's own
/// writes may have to wait for that long.
const STEP_MAX: u64 = 16 << 20;
/// How much is kept ahead of the log's end at most, in bytes.
const AHEAD_MAX: u64 = 64 << 20;
/// How long a step that failed is not tried again by itself, in nanoseconds.
const REST_NS: u64 = base::time::SECOND_NS;
/// How long a device of two may take for a step at least, in nanoseconds, before it is lost.
const PATIENCE_NS: u64 = 60 * base::time::SECOND_NS;

/// How often it is looked whether writes have ended, in nanoseconds.
const LOOK_NS: u64 = base::time::MILLISECOND_NS / 2;

/// How much of a file is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogExtent {
    pub file: FileId,
    /// Bytes from its front, which are durable.
    pub length: u64,
    /// Whether the device was lost.
    pub lost: bool,
}

/// How far the file is, or both are.
pub(super) struct LogGrowth {
    extents: RefCell<Vec<LogExtent>>,
    /// How many bytes of each file are there.
    present: Cell<u64>,
    /// Where the part of the file ends that is there, if it does not go on at its front.
    end: Cell<Lsn>,
    /// New work waits where the log ends behind this.
    ease: Cell<u64>,
    running: Cell<bool>,
    /// How many steps have ended, and why the last one failed.
    ended: Cell<u64>,
    failure: RefCell<Option<Error>>,
    failed_at: Cell<Instant>,
}

impl LogGrowth {
    pub fn new(extents: Vec<LogExtent>) -> LogGrowth {
        LogGrowth {
            extents: RefCell::new(extents),
            present: Cell::new(0),
            end: Cell::new(Lsn::MAX),
            ease: Cell::new(u64::MAX),
            running: Cell::new(false),
            ended: Cell::new(0),
            failure: RefCell::new(None),
            failed_at: Cell::new(Instant::START),
        }
    }
}

impl Log {
    /// How many bytes of the log's file are there: all that were lets the log go round.
    #[inline]
    pub fn extent(&self) -> u64 {
        self.growth.present.get()
    }

    /// How many bytes of each file are there, that of a device that was lost included: an opening may find it before anything says
    /// that it was lost.
    pub(crate) fn extent_of_each(&self) -> u64 {
        self.growth.extents.borrow().iter().map(|extent| extent.length).min().unwrap_or(0)
    }

    /// Whether the file is all there.
    #[inline]
    pub(crate) fn is_grown(&self) -> bool {
        self.growth.end.get() == Lsn::MAX
    }

    /// Whether new work should wait for the file to grow.
    #[inline]
    pub(crate) fn is_short_of_file(&self) -> bool {
        self.end().0 > self.growth.ease.get()
    }

    /// The position up to which the log may be written: what it needs itself, and what is not there yet, are not overwritten.
    #[inline]
    pub(super) fn stop(&self) -> u64 {
        self.growth.end.get().0.min(self.oldest.get().0 + self.circle.size)
    }

    /// The position at which the part of the file ends that is there; beyond all positions if the file is.
    #[inline]
    pub(super) fn growth_end(&self) -> u64 {
        self.growth.end.get().0
    }

    /// Takes notice of how much is there.
    pub(super) fn note_extents(&self) {
        let extents = self.growth.extents.borrow();
        let present = extents.iter().filter(|extent| !extent.lost).map(|extent| extent.length).min().unwrap_or(0);
        self.growth.present.set(present);
        let end = self.circle.end_of(present).filter(|_| !canary::is_planted(Canary::UnpreparedLog));
        self.growth.end.set(end.unwrap_or(Lsn::MAX));
        self.growth.ease.set(end.map_or(u64::MAX, |end| end.0.saturating_sub(self.kept_of(present))));
    }

    /// One of two files is written no more.
    pub(super) fn note_lost_extent(&self, index: usize) {
        if let Some(extent) = self.growth.extents.borrow_mut().get_mut(index) {
            extent.lost = true;
        }
        self.note_extents();
    }

    /// Begins the next step where less is left than is to be kept ahead of the log's end.
    #[inline]
    pub(super) fn grow_ahead(&self, end: u64) {
        if !self.is_grown() {
            self.grow_unless_enough(end);
        }
    }

    #[cold]
    fn grow_unless_enough(&self, end: u64) {
        let ahead = (self.extent() / 2).min(AHEAD_MAX);
        let has_failed = self.growth.failure.borrow().is_some();
        let rests = has_failed && self.executor.now().since_ns(self.growth.failed_at.get()) < REST_NS;
        if self.growth.end.get().0.saturating_sub(end) < ahead && !rests {
            self.begin_step();
        }
    }

    /// Waits for one more step.
    ///
    /// # Errors
    /// [`Error::LogNotGrown`] if there is no room for it; [`Error::LogFailed`].
    pub(crate) async fn grow(&self) -> Result<()> {
        let (present, ended) = (self.extent(), self.growth.ended.get());
        self.begin_step();
        loop {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if self.extent() > present || self.is_grown() {
                return Ok(());
            }
            if self.growth.ended.get() > ended {
                return self.growth.failure.borrow().clone().map_or(Ok(()), Err);
            }
            self.room.wait(&self.executor).await;
        }
    }

    /// Waits until `fits`, or the file is all there. Only steps are waited for.
    ///
    /// # Errors
    /// As [`Log::grow`].
    pub(crate) async fn grow_until(&self, fits: impl Fn() -> bool) -> Result<()> {
        while !self.is_grown() && !fits() {
            self.grow().await?;
        }
        Ok(())
    }

    /// Waits until no step is under way: one that ends when the file is open again, and longer, would cut it.
    pub(crate) async fn finish_step(&self) {
        while self.growth.running.get() {
            self.room.wait(&self.executor).await;
        }
    }

    /// Waits until nothing is on its way to a device, if it answers: what came late would be over what the next opening has written.
    pub(crate) async fn finish_writes(&self) {
        let is_writing = || {
            let in_flight = self.inner.borrow().batches.in_flight() > 0;
            let is_duplex_writing = self.duplex.as_ref().is_some_and(|duplex| duplex.is_writing());
            in_flight || self.syncing.get() || is_duplex_writing
        };
        let until = self.executor.now().plus_ns(PATIENCE_NS);
        while is_writing() && self.failed.borrow().is_none() && self.executor.now() < until {
            self.executor.sleep_ns(LOOK_NS).await;
        }
    }

    /// Writes nothing any more: from here on the file is another opening's.
    pub(crate) fn end_writes(&self) {
        self.fail("the database was closed");
    }

    pub(super) fn begin_step(&self) {
        if self.is_grown() || self.growth.running.replace(true) {
            return;
        }
        let log = self.this.upgrade().expect("borrowed from an Rc");
        self.executor.spawn_in(self.group, 0, async move {
            let stepped = log.step().await;
            log.growth.running.set(false);
            log.growth.failed_at.set(log.executor.now());
            log.growth.failure.replace(stepped.err());
            log.growth.ended.set(log.growth.ended.get() + 1);
            log.note_extents();
            log.room.wake_all(&log.executor);
            log.bell.wake_all(&log.executor);
            if log.growth.failure.borrow().is_none() {
                log.grow_ahead(log.end().0);
            } else if log.end().0 > log.growth_end() {
                // Rollbacks have taken more than they were promised: openings that were interrupted again and again, perhaps.
                let why = log.growth.failure.borrow().as_ref().map_or_else(String::new, Error::to_string);
                log.fail(&format!("{why}, and open the database again"));
            }
        });
    }

    /// Brings each file to the next size.
    async fn step(&self) -> Result<()> {
        let page_size = self.settings.page_size as u64;
        let step = self.extent().min(STEP_MAX).next_multiple_of(page_size);
        let target = self.circle.size.min(self.extent() + step);
        let count = self.growth.extents.borrow().len();
        for index in 0..count {
            let extent = self.growth.extents.borrow()[index];
            if extent.lost || extent.length >= target {
                continue;
            }
            let resize = self.executor.perform(Op::Resize { file: extent.file, length: target, prewrite: true });
            let result = match self.duplex {
                None => resize.await.result,
                Some(_) => {
                    let patience_ns = PATIENCE_NS.max(self.settings.silence_ns_max);
                    match self.executor.within(patience_ns, resize).await {
                        Some(completion) => completion.result,
                        None => {
                            let why = format!("its file has not grown for {}", format_duration_ns(patience_ns as f64));
                            Err(Fault::new(FaultKind::Device, why))
                        }
                    }
                }
            };
            match result {
                Ok(_) => self.growth.extents.borrow_mut()[index].length = target,
                Err(fault) => self.step_failed(index, target, fault)?,
            }
        }
        Ok(())
    }

    /// The file did not grow. One of two devices that fails is lost, as by a write. The only one fails the log: growing syncs the
    /// file, and what that could not make durable of earlier writes a later sync would not tell again.
    fn step_failed(&self, index: usize, target: u64, fault: Fault) -> Result<()> {
        if fault.kind != FaultKind::NoSpace {
            if self.lose_side_while_growing(index, &fault) {
                return Ok(());
            }
            self.fail_by(&fault);
        }
        Err(Error::LogNotGrown { file: self.settings.file_of(index), size: self.extent(), wanted: target, fault })
    }
}
