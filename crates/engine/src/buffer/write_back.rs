//! Writing dirty pages back: copy, make the log durable, stage against tearing, write in place.

use super::{Buffer, PageSpace, below};
use crate::log::Log;
use crate::page_store::Transfer;
use crate::second_level::design::Reason;
use crate::second_level::{FAILURES_NS_MAX, SILENCE_NS};
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use driver::{Completion, Frame};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::header;

/// The most neighbouring pages that one operation writes. Only pages that are staged against tearing are written together: a
/// device that writes one page atomically promises nothing of a longer write.
const RUN_PAGES_MAX: usize = 16;

/// How many writes of one batch are under way in place at once: more would only let reads wait behind them.
const WRITES_MAX: usize = 16;

/// How many pages a checkpoint writes together.
const CHECKPOINT_PAGES: usize = 32;

/// Copies of pages that lie side by side in a file, on their way to the medium.
pub(super) struct PageRun {
    /// The frames that they were copied from, in the order of the file.
    pub frames: Vec<u32>,
    /// The first of them.
    pub first: PageId,
    /// The copies at the front of a buffer.
    pub bytes: Frame,
}

impl PageRun {
    fn copies(&self, page_size: usize) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(page_size).take(self.frames.len())
    }

    fn last(&self) -> PageId {
        PageId::new(self.first.partition, self.first.number + self.frames.len() as u32 - 1)
    }
}

/// How many pages these are.
fn pages(runs: &[PageRun]) -> usize {
    runs.iter().map(|run| run.frames.len()).sum()
}

/// What the writes of one batch share.
#[derive(Default)]
struct BatchProgress {
    under_way: Cell<usize>,
    /// How many of these have been under way for so long that the others do not wait for them.
    late: Cell<usize>,
    /// Whether one has ended since that was looked at.
    has_progress: Cell<bool>,
    error: RefCell<Option<Error>>,
    /// Where they are staged.
    region: Option<usize>,
    finished: WaitQueue,
}

impl BatchProgress {
    /// If none has ended lately, the others go on without those that are under way.
    fn pass_over_late(&self, executor: &Executor) {
        if !self.has_progress.take() {
            self.late.set(self.under_way.get());
            self.finished.wake_all(executor);
        }
    }

    fn end_one(&self) {
        self.has_progress.set(true);
        self.under_way.set(self.under_way.get() - 1);
        self.late.set(self.late.get().min(self.under_way.get()));
    }
}

impl Buffer {
    /// Writes these frames' pages back; frames that are clean or being written are left out. Goes on to the end even if the
    /// caller is abandoned.
    ///
    /// # Errors
    /// The first error; pages that were not written stay dirty.
    pub async fn write_back(self: &Rc<Self>, frames: Vec<u32>) -> Result<()> {
        self.write_back_for(frames, Reason::Background).await
    }

    /// As [`Buffer::write_back`]; the reason decides which tiers take the pages.
    pub(super) async fn write_back_for(self: &Rc<Self>, frames: Vec<u32>, reason: Reason) -> Result<()> {
        let runs = self.begin_write_back(&frames)?;
        if runs.is_empty() {
            // Another task writes these pages; the caller waits for the end of its write.
            if frames.iter().any(|frame| self.pool.borrow().is_writing(*frame)) {
                self.written.wait(&self.executor).await;
            }
            return Ok(());
        }
        let this = Rc::clone(self);
        self.executor.spawn(async move { this.write_runs(runs, reason).await }).join().await
    }

    /// Copies the dirty ones among these frames; [`Buffer::write_runs`] must follow.
    pub(super) fn begin_write_back(&self, frames: &[u32]) -> Result<Vec<PageRun>> {
        let runs = self.copy_out(frames)?;
        self.in_flight.set(self.in_flight.get() + pages(&runs));
        Ok(runs)
    }

    /// Copies the dirty ones among these frames, neighbours side by side.
    fn copy_out(&self, frames: &[u32]) -> Result<Vec<PageRun>> {
        let mut pool = self.pool.borrow_mut();
        let writable = |frame: &u32| pool.is_dirty(*frame) && !pool.is_writing(*frame);
        let mut pages: Vec<(PageId, u32)> =
            frames.iter().copied().filter(writable).map(|frame| (pool.page_of(frame), frame)).collect();
        pages.sort_unstable();
        pages.dedup();
        let neighbours = |a: &(PageId, u32), b: &(PageId, u32)| {
            let adjacent = a.0.partition == b.0.partition && a.0.number + 1 == b.0.number;
            adjacent && self.is_joined(a.0.partition)
        };
        let groups = || pages.chunk_by(neighbours).flat_map(|run| run.chunks(RUN_PAGES_MAX));
        // All memory first: once a page counts as being written, nothing may fail before its write.
        let mut buffers = groups().map(|group| self.copy_buffer(group.len())).collect::<Result<Vec<_>>>()?.into_iter();
        let page_size = self.settings.page_size;
        let copy = |group: &[(PageId, u32)]| {
            let mut bytes = buffers.next().expect("one for each group");
            for ((_, frame), copy) in group.iter().zip(bytes.chunks_mut(page_size)) {
                pool.begin_write(*frame, copy);
            }
            PageRun { frames: group.iter().map(|(_, frame)| *frame).collect(), first: group[0].0, bytes }
        };
        Ok(groups().map(copy).collect())
    }

    /// Whether neighbours in the partition's file are written together.
    fn is_joined(&self, partition: PartitionId) -> bool {
        self.is_staged(partition) && !self.is_tiered(&self.space(partition))
    }

    /// Whether the partition's pages go through the double-write area.
    pub(super) fn is_staged(&self, partition: PartitionId) -> bool {
        self.double_write.is_some() && self.space(partition).may_tear()
    }

    /// Memory for the copies of `pages` pages.
    pub(super) fn copy_buffer(&self, pages: usize) -> Result<Frame> {
        let page_size = self.settings.page_size;
        let (spare, count, size) = match pages {
            1 => (&self.copies, 16, page_size),
            _ => (&self.run_copies, 4, RUN_PAGES_MAX * page_size),
        };
        let mut spare = spare.borrow_mut();
        if spare.is_empty() {
            spare.append(&mut self.executor.frames(count, size)?);
        }
        Ok(spare.pop().expect("just allocated"))
    }

    pub(super) async fn write_runs(self: Rc<Self>, runs: Vec<PageRun>, reason: Reason) -> Result<()> {
        let copies = runs.iter().flat_map(|run| run.copies(self.settings.page_size));
        let lsn = copies.map(header::lsn).max().unwrap_or(Lsn::ZERO);
        let is_passed_over = |log: &Log| canary::is_planted(Canary::PageBeforeLogSync) && lsn <= log.written();
        if let Some(log) = self.log.get().filter(|log| !is_passed_over(log))
            && let Err(error) = log.flush(lsn).await
        {
            return self.give_up(runs, error);
        }
        let mut parts = self.apart(runs);
        if parts.len() == 1 {
            return self.write_part(parts.remove(0), reason).await;
        }
        let write = |part| {
            let this = Rc::clone(&self);
            self.executor.spawn(async move { this.write_part(part, reason).await })
        };
        let mut result = Ok(());
        for part in parts.into_iter().map(write).collect::<Vec<_>>() {
            let written = part.join().await;
            result = result.and(written);
        }
        result
    }

    /// What is written by itself: the pages of each partition, if they may wait for what other pages do not wait for. That is the end
    /// of older writes, where there are tiers, or an answer of their device.
    fn apart(&self, runs: Vec<PageRun>) -> Vec<Vec<PageRun>> {
        if self.levels.borrow().is_empty() && self.silence.silent(self.executor.now()).is_empty() {
            return vec![runs];
        }
        let mut parts: Vec<Vec<PageRun>> = Vec::new();
        for run in runs {
            match parts.last_mut() {
                Some(part) if part[0].first.partition == run.first.partition => part.push(run),
                _ => parts.push(vec![run]),
            }
        }
        parts
    }

    /// Writes what the log has, to the tiers or in place.
    async fn write_part(self: &Rc<Self>, runs: Vec<PageRun>, reason: Reason) -> Result<()> {
        let (runs, absorbed) = self.absorb(runs, reason).await;
        let (runs, has_room) = self.check_room(runs);
        let absorbed = absorbed.and(has_room);
        if runs.is_empty() {
            return absorbed;
        }
        let copies = || runs.iter().flat_map(|run| run.copies(self.settings.page_size));
        let tearable = runs.iter().any(|run| self.is_staged(run.first.partition));
        let region = match &self.double_write {
            Some(area) if tearable && !canary::is_planted(Canary::NoDoubleWrite) => {
                self.await_devices(&runs.iter().map(|run| run.first.partition).collect::<Vec<_>>()).await;
                match area.stage(self, pages(&runs), copies()).await {
                    Ok(region) => Some(region),
                    Err(error) => return self.give_up(runs, error),
                }
            }
            _ => None,
        };
        let result = self.write_in_place(runs, region).await;
        if let (Some(area), Some(region)) = (&self.double_write, region) {
            area.finish(self, region, &result);
        }
        absorbed.and(result)
    }

    /// Gives up the pages that the double-write area has no room for, because too many others of their partitions fail.
    fn check_room(&self, runs: Vec<PageRun>) -> (Vec<PageRun>, Result<()>) {
        let Some(area) = &self.double_write else { return (runs, Ok(())) };
        let (mut rest, mut result) = (Vec::with_capacity(runs.len()), Ok(()));
        for run in runs {
            match area.check_room(below::pages(run.first, run.frames.len())) {
                Ok(()) => rest.push(run),
                Err(error) => result = result.and(self.give_up(vec![run], error)),
            }
        }
        (rest, result)
    }

    /// Waits until the devices of these partitions answer: each page that is staged keeps a region until it is written in place.
    pub(super) async fn await_devices(&self, partitions: &[PartitionId]) {
        let is_silent = || {
            let silent = self.silence.silent(self.executor.now());
            partitions.iter().any(|partition| silent.contains(partition))
        };
        while is_silent() {
            self.written.wait(&self.executor).await;
        }
    }

    fn give_up(&self, runs: Vec<PageRun>, error: Error) -> Result<()> {
        for run in runs {
            self.end_write(&run.frames, run.bytes, false);
        }
        Err(error)
    }

    /// Writes pages of which this region has copies, if they are staged.
    async fn write_in_place(self: &Rc<Self>, runs: Vec<PageRun>, region: Option<usize>) -> Result<()> {
        let batch = Rc::new(BatchProgress { region, ..BatchProgress::default() });
        let mut starting = pin!(self.start_writes(&batch, runs));
        while self.executor.within(SILENCE_NS, starting.as_mut()).await.is_none() {
            batch.pass_over_late(&self.executor);
        }
        while batch.under_way.get() > 0 {
            batch.finished.wait(&self.executor).await;
        }
        batch.error.take().map_or(Ok(()), Err)
    }

    /// Starts all writes of a batch, as far as others have ended.
    async fn start_writes(self: &Rc<Self>, batch: &Rc<BatchProgress>, runs: Vec<PageRun>) {
        let mut runs = VecDeque::from(runs);
        while !runs.is_empty() {
            while batch.under_way.get() - batch.late.get() >= WRITES_MAX {
                batch.finished.wait(&self.executor).await;
            }
            self.start_write(batch, self.take_next(&mut runs)).await;
        }
    }

    /// Takes what is to be written next: pages whose device answers, if there are any.
    fn take_next(&self, runs: &mut VecDeque<PageRun>) -> PageRun {
        let silent = self.silence.silent(self.executor.now());
        let next = runs.iter().position(|run| !silent.contains(&run.first.partition)).unwrap_or(0);
        runs.remove(next).expect("there is one")
    }

    async fn start_write(self: &Rc<Self>, batch: &Rc<BatchProgress>, run: PageRun) {
        batch.under_way.set(batch.under_way.get() + 1);
        let space = self.space(run.first.partition);
        let access = space.access(&self.executor).await;
        space.note_write(run.last());
        self.silence.begin(space.partition(), self.executor.now());
        let length = run.frames.len() * self.settings.page_size;
        let transfer = Transfer { first: run.first, buffer: run.bytes, length, access };
        let (this, batch, first, frames) = (Rc::clone(self), Rc::clone(batch), run.first, run.frames);
        // A page that cannot be torn needs no copy, be it staged with others.
        let (partition, tearable) = (space.partition(), batch.region.filter(|_| space.may_tear()));
        let then = move |completion: Completion| {
            this.silence.end(partition, this.executor.now());
            let bytes = completion.buffer.expect("a write gives its buffer back");
            if let (Err(_), Some(area), Some(region)) = (&completion.result, &this.double_write, tearable) {
                below::pages(first, frames.len()).for_each(|page| area.fail(region, page));
            }
            this.end_write(&frames, bytes, completion.result.is_ok());
            if let Err(fault) = completion.result {
                batch.error.borrow_mut().get_or_insert(Error::Input(fault));
            }
            batch.end_one();
            batch.finished.wake_all(&this.executor);
        };
        space.start_write(&self.executor, transfer, Box::new(then));
    }

    pub(super) fn end_write(&self, frames: &[u32], bytes: Frame, written: bool) {
        let single = bytes.len() == self.settings.page_size;
        (if single { &self.copies } else { &self.run_copies }).borrow_mut().push(bytes);
        self.finish_write(frames, written);
    }

    /// The writes of these frames' copies ended.
    pub(super) fn finish_write(&self, frames: &[u32], written: bool) {
        let mut pool = self.pool.borrow_mut();
        frames.iter().for_each(|frame| pool.end_write(*frame, written));
        let emptied = self.empty_for_misses(&mut pool, frames, written);
        drop(pool);
        self.in_flight.set(self.in_flight.get() - frames.len());
        self.written.wake_all(&self.executor);
        self.wake_for_frames(frames.len());
        self.wake_misses(emptied);
    }

    /// Writes every page back whose changes begin before `lsn`, in the order of the files. `cleans`: also those that only a
    /// cache has, if its design wants that. What fails on one level keeps nothing on another one from being written, and what a cache
    /// cannot give back is written from main memory, or from the cache above it, as far as these have it.
    ///
    /// # Errors
    /// The first error. What was not written counts as before in [`Buffer::recovery_lsn`].
    pub async fn write_back_before(self: &Rc<Self>, lsn: Lsn, cleans: bool) -> Result<()> {
        let written = self.write_frames_before(lsn).await;
        let drained = self.drain_before(lsn, cleans).await;
        let is_old = |oldest: Option<Lsn>| oldest.is_some_and(|oldest| oldest < lsn);
        let above = || self.upper_cache().and_then(|upper| upper.recovery_lsn());
        let is_anew = || is_old(self.pool.borrow().recovery_lsn()) || is_old(above());
        if written.is_err() || drained.is_ok() || !is_anew() {
            return written.and(drained);
        }
        self.write_frames_before(lsn).await?;
        self.drain_before(lsn, cleans).await
    }

    /// Waits until the pages' own devices have what the levels below have alone, as far as it is old, or they are to be clean.
    async fn drain_before(self: &Rc<Self>, lsn: Lsn, cleans: bool) -> Result<()> {
        let mut result = Ok(());
        // What the upper cache has may come to what is below it, which is asked afterwards.
        for level in [Buffer::upper_cache, Buffer::tiers] {
            if let Some(tiers) = level(self) {
                let is_scarce = self.log.get().is_some_and(|log| log.is_scarce() || log.is_claimed());
                let drained = tiers.drain_before(lsn, cleans, is_scarce).await;
                result = result.and(drained);
            }
        }
        result
    }

    /// Writes every page of main memory back whose changes begin before `lsn`. A page that cannot be written keeps others of its partition
    /// from it only where too much of the double-write area keeps such pages, or failures go on for long. Those go first that have
    /// failed before then: later copies of them need less room. Pages of partitions that fail, or whose devices do not answer, come
    /// behind all others.
    async fn write_frames_before(self: &Rc<Self>, lsn: Lsn) -> Result<()> {
        let (mut old, mut result) = (self.pool.borrow().dirty_before(lsn), Ok(()));
        let area = self.double_write.as_ref();
        let page = |frame: &u32| self.pool.borrow().page_of(*frame);
        if let Some(area) = area.filter(|area| area.is_short()) {
            old.sort_by_key(|frame| !area.has_failed(page(frame)));
        }
        let is_spared =
            |frame: &u32| area.filter(|area| area.is_short()).is_some_and(|area| area.is_spared(page(frame)));
        let (mut troubled, mut behind) = (BTreeSet::new(), Vec::new());
        for frames in old.chunks(self.checkpoint_batch()) {
            let (late, mut frames): (Vec<u32>, Vec<u32>) =
                frames.iter().partition(|frame| troubled.contains(&page(frame).partition));
            behind.extend(late);
            frames.retain(|frame| !is_spared(frame));
            let written = self.write_back_answered(&frames).await;
            if !matches!(written, Some(Ok(()))) {
                let is_left =
                    |frame: &&u32| self.pool.borrow().is_dirty(**frame) || self.pool.borrow().is_writing(**frame);
                troubled.extend(frames.iter().filter(is_left).map(|frame| page(frame).partition));
            }
            result = result.and(written.unwrap_or(Ok(())));
        }
        let (silent, mut failed_ns) = (self.silence.silent(self.executor.now()), 0);
        behind.sort_by_key(|frame| silent.contains(&page(frame).partition));
        for frames in behind.chunks(self.checkpoint_batch()) {
            if failed_ns >= FAILURES_NS_MAX {
                break;
            }
            let began = self.executor.now();
            let written = self.write_back(frames.iter().copied().filter(|frame| !is_spared(frame)).collect()).await;
            failed_ns += written.as_ref().err().map_or(0, |_| self.executor.now().since_ns(began));
            result = result.and(written);
        }
        result?;
        while self.pool.borrow().recovery_lsn().is_some_and(|oldest| oldest < lsn) {
            let old = self.pool.borrow().dirty_before(lsn);
            if old.is_empty() {
                // The last of them are being written by others.
                self.written.wait(&self.executor).await;
            } else {
                self.write_back(old.into_iter().take(self.checkpoint_batch()).collect()).await?;
            }
        }
        Ok(())
    }

    /// Writes these frames' pages back. `None` once a device does not answer that has some of them: that goes on.
    async fn write_back_answered(self: &Rc<Self>, frames: &[u32]) -> Option<Result<()>> {
        let partitions: BTreeSet<PartitionId> =
            frames.iter().map(|frame| self.pool.borrow().page_of(*frame).partition).collect();
        let mut writing = pin!(self.write_back(frames.to_vec()));
        loop {
            if let Some(written) = self.executor.within(SILENCE_NS, writing.as_mut()).await {
                return Some(written);
            }
            if self.silence.silent(self.executor.now()).iter().any(|silent| partitions.contains(silent)) {
                return None;
            }
        }
    }

    fn checkpoint_batch(&self) -> usize {
        CHECKPOINT_PAGES.min(self.settings.batch)
    }

    /// Writes these pages back as they are now (FORCE): all that can be at once, then those that were being written, perhaps from
    /// an older copy, when their turn came. Pages that stay in main memory are in the log; that suffices (Rahm 1991, section 3.2).
    ///
    /// # Errors
    /// The first error.
    pub async fn force(self: &Rc<Self>, pages: &[PageId]) -> Result<()> {
        let stays = |page: &PageId| self.space(page.partition).placement().resident;
        let forced: Vec<PageId> = pages.iter().copied().filter(|page| !stays(page)).collect();
        let frame_of = |page: &PageId| self.pool.borrow().frame_of(*page);
        let is_writing = |page: &PageId| frame_of(page).is_some_and(|frame| self.pool.borrow().is_writing(frame));
        let mut under_way = Vec::new();
        // Side by side, as far as the double-write area stages them by one write.
        for batch in forced.chunks(self.settings.batch) {
            let (writing, ready): (Vec<PageId>, Vec<PageId>) = batch.iter().partition(|page| is_writing(page));
            under_way.extend(writing);
            self.write_back_for(ready.iter().filter_map(frame_of).collect(), Reason::Force).await?;
        }
        for page in under_way {
            while is_writing(&page) {
                self.written.wait(&self.executor).await;
            }
            self.write_back_for(frame_of(&page).into_iter().collect(), Reason::Force).await?;
        }
        Ok(())
    }

    /// Makes everything durable that was written before this call.
    ///
    /// # Errors
    /// The driver's. After it the buffer reads nothing any more: pages that left it may be older on the medium than they
    /// were.
    pub async fn sync(&self) -> Result<()> {
        self.check_syncs()?;
        for space in self.spaces() {
            self.sync_space(&space).await?;
        }
        Ok(())
    }

    /// Makes durable what was written to the files of these partitions before this call, but for those that were dropped.
    ///
    /// # Errors
    /// As [`Buffer::sync`].
    pub(super) async fn sync_partitions(&self, partitions: &[PartitionId]) -> Result<()> {
        self.check_syncs()?;
        for space in partitions.iter().filter_map(|partition| self.find_space(*partition).ok()) {
            self.sync_space(&space).await?;
        }
        Ok(())
    }

    /// Refuses what relies on syncs once one has failed: the next might succeed although writes of before were dropped.
    pub(super) fn check_syncs(&self) -> Result<()> {
        self.broken.borrow().as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Makes durable what was written to one file before this call.
    ///
    /// # Errors
    /// As [`Buffer::sync`].
    pub async fn sync_space(&self, space: &PageSpace) -> Result<()> {
        let synced = space.sync(&self.executor).await;
        if let Err(error) = &synced
            && !canary::is_planted(Canary::SyncTriedAgain)
        {
            self.broken.borrow_mut().get_or_insert_with(|| error.clone());
        }
        synced
    }
}
