//! The double-write area (InnoDB's remedy): a page that a power cut may tear is first written here and made durable, so that
//! one whole copy exists at any moment.
//!
//! The area is one file of regions. A region is filled by one write after another, and used again once all pages staged in it
//! are durable in place, so that small batches cost a sync of the data files no more often than large ones. Each region waits for
//! the files that its pages belong to and for no others: one with pages of a device that does not answer waits alone. A region with a
//! page that could not be written in place, and may be torn there, waits until a later copy of that is staged. Should such
//! regions be all there are, the area grows.
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
use driver::{Access, DeviceId, Fault, FaultKind, FileId, Frame, Op};
use executor::{Executor, Turn, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use structures::page::header;

mod regions;

use regions::{REGIONS, REGIONS_MAX, Regions};

/// Pages that one write stages, perhaps of several callers.
struct Gathering {
    /// The copies, side by side at the front. Absent while they are being written.
    frame: RefCell<Option<Frame>>,
    pages: Cell<usize>,
    /// Whose they are.
    partitions: RefCell<Vec<PartitionId>>,
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
        let waiting = self.gathering.borrow().clone().filter(|waiting| waiting.pages.get() + count <= self.batch);
        let gathering = match waiting {
            Some(waiting) => waiting,
            None => self.begin_gathering(buffer)?,
        };
        let mut frame = gathering.frame.borrow_mut();
        let bytes = frame.as_mut().expect("nothing is added to what is being written");
        let mut partitions = gathering.partitions.borrow_mut();
        for page in pages {
            let partition = header::id(page).partition;
            if !partitions.contains(&partition) {
                partitions.push(partition);
            }
            let begin = gathering.pages.replace(gathering.pages.get() + 1) * self.page_size;
            bytes[begin..begin + page.len()].copy_from_slice(page);
        }
        drop((frame, partitions));
        gathering.callers.set(gathering.callers.get() + 1);
        Ok(gathering)
    }

    /// A write that is to be: those that have begun to wait for their turn before it go first.
    fn begin_gathering(&self, buffer: &Rc<Buffer>) -> Result<Rc<Gathering>> {
        let gathering = Rc::new(Gathering {
            frame: RefCell::new(Some(self.frame(&buffer.executor)?)),
            pages: Cell::new(0),
            partitions: RefCell::default(),
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
        let (region, page) = match taken {
            Ok(place) => place,
            Err(error) => {
                self.frames.borrow_mut().push(frame);
                return Err(error);
            }
        };
        let offset = ((region * self.region_pages + page) * self.page_size) as u64;
        let length = (gathering.pages.get() * self.page_size) as u32;
        let access = Access::Asynchronous;
        let op = Op::Write { file: self.file, offset, length, buffer: frame, durable: true, access };
        let completion = executor.perform(op).await;
        if let Err(fault) = completion.result {
            self.frames.borrow_mut().extend(completion.buffer);
            let callers = gathering.callers.get();
            self.with_regions(executor, |regions| (0..callers).for_each(|_| regions.finish(region, &[])));
            return Err(Error::Input(fault));
        }
        let frame = completion.buffer.expect("a write gives its buffer back");
        if self.failed_regions() > 0 {
            let staged = frame.chunks(self.page_size).take(gathering.pages.get()).map(header::id);
            self.with_regions(executor, |regions| regions.staged(staged));
        }
        self.frames.borrow_mut().push(frame);
        Ok(region)
    }

    /// A caller's pages were written in place, but for those that failed to be.
    pub fn finish(&self, buffer: &Rc<Buffer>, region: usize, (result, failed): (&Result<()>, &[PageId])) {
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert_with(|| error.clone());
        }
        self.with_regions(&buffer.executor, |regions| regions.finish(region, failed));
        // Where nothing is written in the background, nothing is synced there: what misses a region waits for its sync.
        if buffer.settings.cleaner && self.regions.borrow().are_scarce() {
            self.free_written(buffer);
        }
    }

    fn failed_regions(&self) -> usize {
        self.regions.borrow().failed_count()
    }

    /// Whether half of the area's first regions keep pages that could not be written in place. What may fail as well should wait.
    pub fn is_short(&self) -> bool {
        self.failed_regions() >= REGIONS / 2
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
    async fn take_place(&self, buffer: &Rc<Buffer>, gathering: &Gathering) -> Result<(usize, usize)> {
        loop {
            let (pages, callers) = (gathering.pages.get(), gathering.callers.get());
            let place = self.regions.borrow_mut().take(pages, callers, &gathering.partitions.borrow());
            if let Some(place) = place {
                return Ok(place);
            }
            if self.regions.borrow().are_all_kept() {
                if self.grow(&buffer.executor).await {
                    continue;
                }
                let first = self.failure.borrow().as_ref().map_or_else(String::new, Error::to_string);
                let message = format!("{first}; now too many pages are not in their places: open the database again");
                return Err(Error::Input(Fault::new(FaultKind::Device, message)));
            }
            buffer.check_syncs()?;
            self.free_written(buffer);
            let freed = buffer.executor.within(SILENCE_NS, self.await_room(&buffer.executor)).await;
            if freed.is_none() && !self.grow(&buffer.executor).await {
                self.await_room(&buffer.executor).await;
            }
        }
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
        let count = self.regions.borrow().count() + 1;
        if count > REGIONS_MAX {
            return false;
        }
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
