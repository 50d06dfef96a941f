//! The double-write area (InnoDB's remedy): a page that a power cut may tear is first written here and made durable, so that
//! one whole copy exists at any moment.
//!
//! The area is one file of regions. A region is filled by one write, and used again once the pages staged in it are durable
//! in place.
//!
//! Full page images in the log would multiply the log of uniform updates by twenty. Where the device's `atomic_write`
//! covers the page size the area is skipped. On real devices it never is, because no write asks for `RWF_ATOMIC`.
//!
//! Neighbouring pages are written by one operation only if they are staged here: a device that writes one page
//! atomically promises nothing about a longer write.

use super::Buffer;
use crate::io::salvage;
use crate::{Error, Result};
use base::{Lsn, PageId};
use driver::{Access, DeviceId, Fault, FaultKind, FileId, Frame, Op};
use executor::{Executor, WaitQueue};
use std::cell::RefCell;
use std::collections::BTreeMap;
use structures::page::header;

const REGIONS: usize = 8;
const PAGES_PER_REGION: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Free,
    /// Staged pages are being written in place.
    Busy,
    /// They are written, not yet durable.
    Written,
    /// At least one could not be written and may be torn in place: these copies are kept until the database is opened again.
    Kept,
    /// They are being made durable.
    Syncing,
}

/// The area's file and the state of its regions.
pub struct DoubleWrite {
    file: FileId,
    page_size: usize,
    regions: RefCell<Vec<Region>>,
    frames: RefCell<Vec<Frame>>,
    freed: WaitQueue,
    /// Why the first region is kept.
    failure: RefCell<Option<Error>>,
}

impl DoubleWrite {
    /// The area's file name.
    pub const NAME: &'static str = "double-write";

    /// Opens the area, creating its file if it is missing.
    ///
    /// # Errors
    /// The driver's.
    pub async fn open(executor: &Executor, device: DeviceId, page_size: usize) -> Result<DoubleWrite> {
        let (file, length) = executor.open(device, Self::NAME, true).await?;
        let size = (REGIONS * PAGES_PER_REGION * page_size) as u64;
        if length < size {
            executor.perform(Op::Resize { file, length: size, prewrite: true }).await.result?;
        }
        let (regions, frames) = (RefCell::new(vec![Region::Free; REGIONS]), RefCell::default());
        Ok(DoubleWrite { file, page_size, regions, frames, freed: WaitQueue::new(), failure: RefCell::default() })
    }

    /// How many pages are staged by one write.
    pub fn pages_per_region(&self) -> usize {
        PAGES_PER_REGION
    }

    /// Writes the pages (at most [`DoubleWrite::pages_per_region`]) into a free region and makes them durable.
    ///
    /// # Errors
    /// The driver's; nothing was staged.
    pub async fn stage<'a>(&self, buffer: &Buffer, pages: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
        let executor = &buffer.executor;
        let region = self.take_region(buffer).await?;
        let mut frame = self.frame(executor)?;
        let mut length = 0;
        for page in pages {
            frame[length..length + page.len()].copy_from_slice(page);
            length += page.len();
        }
        let offset = (region * PAGES_PER_REGION * self.page_size) as u64;
        let access = Access::Asynchronous;
        let op = Op::Write { file: self.file, offset, length: length as u32, buffer: frame, durable: true, access };
        let completion = executor.perform(op).await;
        self.frames.borrow_mut().extend(completion.buffer);
        if let Err(fault) = completion.result {
            self.set(executor, region, Region::Free);
            return Err(Error::Input(fault));
        }
        Ok(region)
    }

    /// The region's pages were written in place, or at least one failed to be.
    pub fn finish(&self, executor: &Executor, region: usize, result: &Result<()>) {
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert_with(|| error.clone());
        }
        self.set(executor, region, if result.is_ok() { Region::Written } else { Region::Kept });
    }

    fn set(&self, executor: &Executor, region: usize, state: Region) {
        self.regions.borrow_mut()[region] = state;
        self.freed.wake_all(executor);
    }

    fn frame(&self, executor: &Executor) -> Result<Frame> {
        if let Some(frame) = self.frames.borrow_mut().pop() {
            return Ok(frame);
        }
        Ok(executor.frame(PAGES_PER_REGION * self.page_size)?)
    }

    async fn take_region(&self, buffer: &Buffer) -> Result<usize> {
        let executor = &buffer.executor;
        loop {
            let free = self.regions.borrow().iter().position(|region| *region == Region::Free);
            if let Some(region) = free {
                self.regions.borrow_mut()[region] = Region::Busy;
                return Ok(region);
            }
            let written: Vec<usize> =
                (0..REGIONS).filter(|region| self.regions.borrow()[*region] == Region::Written).collect();
            if self.regions.borrow().iter().all(|region| *region == Region::Kept) {
                let first = self.failure.borrow().as_ref().map_or_else(String::new, Error::to_string);
                let message = format!("{first}; now too many pages are not in their places: open the database again");
                return Err(Error::Input(Fault::new(FaultKind::Device, message)));
            }
            if written.is_empty() {
                self.freed.wait(executor).await;
                continue;
            }
            for region in &written {
                self.regions.borrow_mut()[*region] = Region::Syncing;
            }
            let result = buffer.sync().await;
            for region in written {
                self.set(executor, region, if result.is_ok() { Region::Free } else { Region::Written });
            }
            result?;
        }
    }

    /// Writes whole copies over pages that a power cut has torn, or that cannot be read, before anything is staged again. A torn page was being
    /// written after the checkpoint that set `redo_start`, so a copy that is older belongs to a page that something else
    /// has damaged: that page stays as it is, to be found and reported. Returns how many pages were repaired.
    ///
    /// # Errors
    /// The driver's.
    pub async fn repair(&self, executor: &Executor, buffer: &Buffer, redo_start: Lsn) -> Result<u64> {
        let mut repaired = 0;
        for (id, copy) in self.copies(executor).await? {
            if header::lsn(&copy) <= redo_start || !buffer.is_attached(id.partition) {
                continue;
            }
            let space = buffer.space(id.partition);
            if id.number >= space.capacity() {
                continue;
            }
            let (frame, fault) = space.salvage(executor, id).await?;
            if fault.is_none() && header::verify(&frame, id).is_ok() {
                continue;
            }
            let mut frame = frame;
            frame.copy_from_slice(&copy);
            space.restore(executor, id, frame).await?;
            repaired += 1;
        }
        Ok(repaired)
    }

    /// Every sound page copy in the area, the latest for each page.
    ///
    /// # Errors
    /// The driver's.
    async fn copies(&self, executor: &Executor) -> Result<Vec<(PageId, Vec<u8>)>> {
        let mut found: BTreeMap<PageId, Vec<u8>> = BTreeMap::new();
        for region in 0..REGIONS {
            let (buffer, length) = (self.frame(executor)?, PAGES_PER_REGION * self.page_size);
            let place = ((region * length) as u64, length);
            // What cannot be read has no copies; only a page that is torn in its place lacks them.
            let buffer = salvage::read(executor, self.file, place, self.page_size, buffer).await?.frame;
            for page in buffer.chunks(self.page_size) {
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
