//! The double-write area (InnoDB's remedy): a page that a power cut may tear is first written here and made durable, so that
//! one whole copy exists at any moment.
//!
//! The area is one file of regions. A region is filled by one write after another, and used again once all pages staged in it
//! are durable in place, so that small batches cost a sync of the data files no more often than large ones. Each region waits for
//! the files that its pages belong to and for no others: one with pages of a device that does not answer waits alone. A region with a
//! page that could not be written in place, and may be torn there, waits until a later copy of that is staged, or the page comes to
//! its own place by another way, or is not used any more. Before such regions are all there are, copies of several are put into one;
//! should they be, or should devices not answer, the area grows. Where many pages of a partition fail, others of it are not staged.
//!
//! One write is under way at a time. Pages that come meanwhile, from any task, are gathered and staged together by
//! the next: the area keeps pace with the device by larger batches, as group commit does. Regions are freed before the last
//! one is used, so that a batch seldom waits for a sync.
//!
//! Full page images in the log would multiply the log of uniform updates by twenty. Where the device's `atomic_write`
//! covers the page size the area is skipped. On real devices it never is, because no write asks for `RWF_ATOMIC`.
//!
//! Neighbouring pages are written by one operation only if they are staged here: a device that writes one page
//! atomically promises nothing about a longer write.

use super::{Buffer, PageSpace, Settings};
use crate::io::salvage;
use crate::second_level::SILENCE_NS;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use driver::{Access, Completion, DeviceId, Fault, FaultKind, FileId, Frame, Op};
use executor::{Executor, Turn, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use structures::page::header;

mod regions;

use regions::{CopyPlace, REGIONS, REGIONS_MAX, RegionCompaction, Regions};

/// Pages that one write stages, perhaps of several callers.
struct Gathering {
    /// The copies, side by side at the front. Absent while they are being written.
    frame: RefCell<Option<Frame>>,
    /// Which pages these are.
    pages: RefCell<Vec<PageId>>,
    /// How many calls brought them.
    callers: Cell<u32>,
    /// The region that has them, once the write has ended.
    staged: RefCell<Option<Result<usize>>>,
    ended: WaitQueue,
}

/// The area's file and the state of its regions.
pub struct DoubleWrite {
    file: FileId,
    page_size: usize,
    /// The most pages that one write stages.
    batch: usize,
    /// How many pages a region holds: as many of them as have blocks of their own.
    region_pages: usize,
    /// The file's length in bytes: it may have had more or larger regions.
    length: Cell<u64>,
    regions: RefCell<Regions>,
    frames: RefCell<Vec<Frame>>,
    /// What the next write stages, as far as it has not begun.
    gathering: RefCell<Option<Rc<Gathering>>>,
    /// The turn to write.
    writing: Turn,
    /// Tasks waiting for a region.
    freed: WaitQueue,
    /// Why a page could not be written in place for the first time.
    failure: RefCell<Option<Error>>,
}

/// What a device may write as a whole, in bytes, and so damage as a whole if its power goes.
const BLOCK_BYTES: usize = 4096;
/// How many pages an opening compares with their copies at once: their devices may be slow.
const REPAIRED_AT_ONCE: usize = 32;

impl DoubleWrite {
    /// The area's file name.
    pub const NAME: &'static str = "double-write";

    /// Opens the area, creating its file if it is missing and extending it if its regions were smaller.
    ///
    /// # Errors
    /// The driver's.
    pub async fn open(executor: &Executor, device: DeviceId, settings: &Settings) -> Result<DoubleWrite> {
        let Settings { page_size, batch, .. } = *settings;
        let (file, length) = executor.open(device, Self::NAME, true).await?;
        let block_pages = (BLOCK_BYTES / page_size).max(1);
        let region_pages = batch * block_pages;
        let size = (REGIONS * region_pages * page_size) as u64;
        if length < size {
            executor.perform(Op::Resize { file, length: size, prewrite: true }).await.result?;
        }
        Ok(DoubleWrite {
            file,
            page_size,
            batch,
            region_pages,
            length: Cell::new(length.max(size)),
            regions: RefCell::new(Regions::new(region_pages, block_pages)),
            frames: RefCell::default(),
            gathering: RefCell::default(),
            writing: Turn::new(),
            freed: WaitQueue::new(),
            failure: RefCell::default(),
        })
    }

    /// Stages `count` pages (at most [`Settings::batch`]): returns when whole copies of them are durable, and the
    /// region that has these, for [`DoubleWrite::finish`].
    ///
    /// # Errors
    /// The driver's; nothing was staged.
    pub async fn stage<'a>(
        &self,
        buffer: &Rc<Buffer>,
        count: usize,
        pages: impl Iterator<Item = &'a [u8]>,
    ) -> Result<usize> {
        let gathering = self.gather(buffer, count, pages)?;
        loop {
            let staged = gathering.staged.borrow().clone();
            if let Some(staged) = staged {
                return staged;
            }
            gathering.ended.wait(&buffer.executor).await;
        }
    }

    /// Adds pages to those that the next write stages. The first of them see to that write.
    fn gather<'a>(
        &self,
        buffer: &Rc<Buffer>,
        count: usize,
        pages: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Rc<Gathering>> {
        let has_room = |waiting: &Rc<Gathering>| waiting.pages.borrow().len() + count <= self.batch;
        let waiting = self.gathering.borrow().clone().filter(has_room);
        let gathering = match waiting {
            Some(waiting) => waiting,
            None => self.begin_gathering(buffer)?,
        };
        let mut frame = gathering.frame.borrow_mut();
        let bytes = frame.as_mut().expect("nothing is added to what is being written");
        let mut ids = gathering.pages.borrow_mut();
        for page in pages {
            let begin = ids.len() * self.page_size;
            bytes[begin..begin + page.len()].copy_from_slice(page);
            ids.push(header::id(page));
        }
        drop((frame, ids));
        gathering.callers.set(gathering.callers.get() + 1);
        Ok(gathering)
    }

    /// A write that is to be: those that have begun to wait for their turn before it go first.
    fn begin_gathering(&self, buffer: &Rc<Buffer>) -> Result<Rc<Gathering>> {
        let gathering = Rc::new(Gathering {
            frame: RefCell::new(Some(self.frame(&buffer.executor)?)),
            pages: RefCell::new(Vec::with_capacity(self.batch)),
            callers: Cell::new(0),
            staged: RefCell::default(),
            ended: WaitQueue::new(),
        });
        self.gathering.replace(Some(Rc::clone(&gathering)));
        let (buffer, begun) = (Rc::clone(buffer), Rc::clone(&gathering));
        buffer.executor.clone().spawn(async move {
            let area = buffer.double_write.as_ref().expect("pages are staged in an area");
            let turn = area.writing.take(&buffer.executor).await;
            let staged = area.write(&buffer, &begun).await;
            drop(turn);
            begun.staged.replace(Some(staged));
            begun.ended.wake_all(&buffer.executor);
        });
        Ok(gathering)
    }

    /// Writes what has gathered into a region and makes it durable.
    async fn write(&self, buffer: &Rc<Buffer>, gathering: &Rc<Gathering>) -> Result<usize> {
        let executor = &buffer.executor;
        let taken = self.take_place(buffer, gathering).await;
        // Nothing is added from here on, also if there is no place.
        self.gathering.borrow_mut().take_if(|waiting| Rc::ptr_eq(waiting, gathering));
        let frame = gathering.frame.borrow_mut().take().expect("written once");
        let (region, first) = match taken {
            Ok(place) => place,
            Err(error) => {
                self.frames.borrow_mut().push(frame);
                return Err(error);
            }
        };
        let pages = gathering.pages.take();
        let completion = self.write_copies(executor, (region, first), (frame, pages.len())).await;
        self.frames.borrow_mut().extend(completion.buffer);
        if let Err(fault) = completion.result {
            let callers = gathering.callers.get();
            self.with_regions(executor, |regions| (0..callers).for_each(|_| regions.finish(region)));
            return Err(Error::Input(fault));
        }
        self.with_regions(executor, |regions| regions.staged((region, first), &pages));
        Ok(region)
    }

    fn offset(&self, (region, page): CopyPlace) -> u64 {
        ((region * self.region_pages + page) * self.page_size) as u64
    }

    /// Writes this number of copies, from the front of a frame, durably to places that follow each other.
    async fn write_copies(&self, executor: &Executor, first: CopyPlace, (buffer, count): (Frame, usize)) -> Completion {
        let (offset, length, access) = (self.offset(first), (count * self.page_size) as u32, Access::Asynchronous);
        executor.perform(Op::Write { file: self.file, offset, length, buffer, durable: true, access }).await
    }

    /// A page that is staged in a region could not be written in place. To be said before the page may be written again.
    pub fn fail(&self, region: usize, page: PageId) {
        self.regions.borrow_mut().fail(region, page);
    }

    /// A caller's pages were written in place, but for those that are known to have failed.
    pub fn finish(&self, buffer: &Rc<Buffer>, region: usize, result: &Result<()>) {
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert_with(|| error.clone());
        }
        self.with_regions(&buffer.executor, |regions| regions.finish(region));
        // Where nothing is written in the background, nothing is synced there: what misses a region waits for its sync.
        if buffer.settings.cleaner && self.regions.borrow().are_scarce() {
            self.free_written(buffer);
        }
    }

    /// These pages are durable in their own places by another way.
    pub fn release(&self, executor: &Executor, pages: impl Iterator<Item = PageId>) {
        if self.regions.borrow().failed_count() > 0 {
            self.with_regions(executor, |regions| regions.release(pages));
        }
    }

    /// The pages of a partition from this number on are not used any more.
    pub fn forget(&self, executor: &Executor, partition: PartitionId, from: u32) {
        self.with_regions(executor, |regions| regions.forget(partition, from));
    }

    /// Whether half of the area's first regions would be full of pages that could not be written in place. What may fail as well should
    /// wait: see [`DoubleWrite::is_spared`].
    pub fn is_short(&self) -> bool {
        self.regions.borrow().failed_count() >= REGIONS / 2 * self.batch
    }

    /// Whether a page has not failed, and others of its partition have.
    pub fn is_spared(&self, page: PageId) -> bool {
        let regions = self.regions.borrow();
        regions.is_failing(page.partition) && !regions.has_failed(page)
    }

    /// Whether a page could not be written in place.
    pub fn has_failed(&self, page: PageId) -> bool {
        self.regions.borrow().has_failed(page)
    }

    /// Refuses pages that have not failed, if too many others of their partitions have. Those regions are left that compactions need for
    /// these, and pages of partitions that do not fail.
    ///
    /// # Errors
    /// The first that a page has failed with.
    pub fn check_room(&self, mut pages: impl Iterator<Item = PageId>) -> Result<()> {
        let is_crowded = self.regions.borrow().failed_count() >= REGIONS_MAX / 4 * self.batch;
        if is_crowded && pages.any(|page| self.is_spared(page)) { Err(self.exhausted()) } else { Ok(()) }
    }

    fn exhausted(&self) -> Error {
        let first = self.failure.borrow().as_ref().map_or_else(String::new, Error::to_string);
        let message = format!("{first}; now too many pages are not in their places, and copies of no more are kept");
        Error::Input(Fault::new(FaultKind::Device, message))
    }

    fn with_regions(&self, executor: &Executor, change: impl FnOnce(&mut Regions)) {
        change(&mut self.regions.borrow_mut());
        self.freed.wake_all(executor);
    }

    fn frame(&self, executor: &Executor) -> Result<Frame> {
        if let Some(frame) = self.frames.borrow_mut().pop() {
            return Ok(frame);
        }
        Ok(executor.frame(self.batch * self.page_size)?)
    }

    /// Room for all that has gathered by then: a region and the first page in it.
    async fn take_place(&self, buffer: &Rc<Buffer>, gathering: &Gathering) -> Result<CopyPlace> {
        loop {
            self.compact(&buffer.executor).await;
            let place = {
                let pages = gathering.pages.borrow();
                let mut partitions: Vec<PartitionId> = pages.iter().map(|page| page.partition).collect();
                partitions.sort_unstable();
                partitions.dedup();
                self.regions.borrow_mut().take(pages.len(), gathering.callers.get(), &partitions)
            };
            if let Some(place) = place {
                return Ok(place);
            }
            if self.regions.borrow().are_all_kept() {
                if self.grow(&buffer.executor).await {
                    continue;
                }
                return Err(self.exhausted());
            }
            buffer.check_syncs()?;
            self.free_written(buffer);
            let freed = buffer.executor.within(SILENCE_NS, self.await_room(&buffer.executor)).await;
            if freed.is_none() && !self.grow(&buffer.executor).await {
                self.await_room(&buffer.executor).await;
            }
        }
    }

    /// Puts kept copies of several regions into one, if there is little room otherwise. The caller has the turn to write. If that fails they
    /// are kept where they are.
    async fn compact(&self, executor: &Executor) {
        if self.regions.borrow().lacks_for_compaction(self.batch) {
            self.grow(executor).await;
        }
        let compaction = self.regions.borrow_mut().begin_compaction(self.batch);
        if let Some(compaction) = compaction {
            let is_durable = self.copy_kept(executor, &compaction).await.unwrap_or(false);
            self.with_regions(executor, |regions| regions.end_compaction(&compaction, is_durable));
        }
    }

    /// Whether all copies are sound, and durable where they are to be.
    async fn copy_kept(
        &self,
        executor: &Executor,
        RegionCompaction { region, copies }: &RegionCompaction,
    ) -> Result<bool> {
        let (mut frame, mut page) = (self.frame(executor)?, executor.frame(self.page_size)?);
        for ((id, place), bytes) in copies.iter().zip(frame.chunks_mut(self.page_size)) {
            let (offset, length, access) = (self.offset(*place), self.page_size as u32, Access::Asynchronous);
            let completion = executor.perform(Op::Read { file: self.file, offset, length, buffer: page, access }).await;
            page = completion.buffer.expect("a read gives its buffer back");
            if completion.result.is_err() || header::verify(&page, *id) != Ok(true) {
                self.frames.borrow_mut().push(frame);
                return Ok(false);
            }
            bytes.copy_from_slice(&page);
        }
        let completion = self.write_copies(executor, (*region, 0), (frame, copies.len())).await;
        self.frames.borrow_mut().extend(completion.buffer);
        Ok(completion.result.is_ok())
    }

    /// Starts to make durable in place what the written regions stage, each by itself, and to free them. Should that fail, the
    /// buffer knows, and the next batch that needs a region learns of it.
    fn free_written(&self, buffer: &Rc<Buffer>) {
        for (region, partitions) in self.regions.borrow_mut().begin_sync() {
            let buffer = Rc::clone(buffer);
            buffer.executor.clone().spawn(async move {
                let area = buffer.double_write.as_ref().expect("pages were staged in an area");
                let mut syncing = pin!(buffer.sync_partitions(&partitions));
                let synced = match buffer.executor.within(SILENCE_NS, syncing.as_mut()).await {
                    Some(synced) => synced,
                    None => {
                        area.regions.borrow_mut().sync_is_late(region);
                        syncing.await
                    }
                };
                area.with_regions(&buffer.executor, |regions| regions.end_sync(region, synced.is_ok()));
            });
        }
    }

    async fn await_room(&self, executor: &Executor) {
        while !self.regions.borrow().have_room() {
            self.freed.wait(executor).await;
        }
    }

    /// Adds a region, because devices that do not answer or fail keep all there are. False if there is no room for one.
    async fn grow(&self, executor: &Executor) -> bool {
        if !self.regions.borrow().may_grow() {
            return false;
        }
        let count = self.regions.borrow().count() + 1;
        let length = (count * self.region_pages * self.page_size) as u64;
        if length > self.length.get() {
            let grown = executor.perform(Op::Resize { file: self.file, length, prewrite: true }).await;
            if grown.result.is_err() {
                return false;
            }
            self.length.set(length);
        }
        self.regions.borrow_mut().add();
        true
    }

    /// Writes whole copies over pages that a power cut has torn, or that cannot be read, before anything is staged again. A torn page was being
    /// written after the checkpoint that set `redo_start`, so a copy that is older belongs to a page that something else
    /// has damaged: that page stays as it is, to be found and reported. Returns how many pages were repaired.
    ///
    /// # Errors
    /// The driver's.
    pub async fn repair(&self, executor: &Executor, buffer: &Buffer, redo_start: Lsn) -> Result<u64> {
        let mut copies = self.copies(executor).await?;
        let is_there =
            |id: &PageId| buffer.is_attached(id.partition) && id.number < buffer.space(id.partition).capacity();
        copies.retain(|(id, copy)| header::lsn(copy) > redo_start && is_there(id));
        let (mut repaired, mut copies) = (0, copies.into_iter());
        while copies.len() > 0 {
            let begin = |(id, copy): (PageId, Vec<u8>)| {
                let (executor, space) = (executor.clone(), buffer.space(id.partition));
                executor.clone().spawn(async move { repair_page(&executor, &space, (id, &copy)).await })
            };
            let tasks: Vec<_> = copies.by_ref().take(REPAIRED_AT_ONCE).map(begin).collect();
            let mut failed = Ok(());
            for task in tasks {
                // Each has ended before another opening may begin.
                let outcome = task.join().await;
                failed = failed.and(outcome.map(|is_repaired| repaired += u64::from(is_repaired)));
            }
            failed?;
        }
        Ok(repaired)
    }

    /// Every sound page copy in the area, the latest for each page.
    ///
    /// # Errors
    /// The driver's.
    async fn copies(&self, executor: &Executor) -> Result<Vec<(PageId, Vec<u8>)>> {
        let mut found: BTreeMap<PageId, Vec<u8>> = BTreeMap::new();
        let piece = (self.batch * self.page_size) as u64;
        let length = self.length.get();
        for offset in (0..length).step_by(piece as usize) {
            let buffer = self.frame(executor)?;
            let place = (offset, piece.min(length - offset) as usize);
            // What cannot be read has no copies; only a page that is torn in its place lacks them.
            let buffer = salvage::read(executor, self.file, place, self.page_size, buffer).await?.frame;
            for page in buffer[..place.1].chunks_exact(self.page_size) {
                let id = header::id(page);
                let newer = found.get(&id).is_none_or(|old| header::sequence(old) < header::sequence(page));
                if header::verify(page, id) == Ok(true) && newer {
                    found.insert(id, page.to_vec());
                }
            }
            self.frames.borrow_mut().push(buffer);
        }
        Ok(found.into_iter().collect())
    }
}

/// Writes the copy of a page to its own place if it is not whole there, and says whether.
async fn repair_page(executor: &Executor, space: &PageSpace, (id, copy): (PageId, &[u8])) -> Result<bool> {
    let (mut frame, fault) = space.salvage(executor, id).await?;
    if fault.is_none() && header::verify(&frame, id).is_ok() {
        return Ok(false);
    }
    frame.copy_from_slice(copy);
    space.restore(executor, id, frame).await?;
    Ok(true)
}
