//! A partition's file: where its pages lie, how much room it has, what is known to have been written.

use super::overwriting::Overwriting;
use super::syncs::Syncs;
use crate::page_store::{Future, PageStore};
use crate::second_level::Placement;
use crate::{Error, Result};
use base::{PageId, PartitionId};
use driver::{Access, Completion, DeviceId, DeviceTraits, FileId, Frame, Op};
use executor::{Executor, Turn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use structures::page::{PageKind, header};

/// An open file of pages. Page `n` lies at byte `n * page size`.
pub struct DataFile {
    /// The file's name on its device.
    pub name: String,
    /// The device that holds it.
    pub device: DeviceId,
    /// The file.
    pub file: FileId,
    partition: PartitionId,
    traits: DeviceTraits,
    page_size: usize,
    fresh_kind: PageKind,
    /// Whether it was made in this life of the database.
    is_new: bool,
    capacity: Cell<u32>,
    written: Cell<u32>,
    growth: Turn,
    /// Read operations since the start.
    pub reads: Cell<u64>,
    /// Write operations since the start.
    pub writes: Cell<u64>,
    /// Reads that the second-level cache served since the start.
    pub cache_hits: Cell<u64>,
    placement: Cell<Placement>,
    syncs: Rc<Syncs>,
    /// Pages that were written once and are blank.
    lost: RefCell<BTreeSet<u32>>,
    /// What a bulk load writes.
    pub(super) overwriting: Overwriting,
    /// Whether its partition was dropped.
    is_dropped: Cell<bool>,
}

/// The least and the most that a file grows by at once, in bytes.
const GROWTH_MIN: u64 = 1 << 20;
const GROWTH_MAX: u64 = 256 << 20;

impl DataFile {
    /// Opens or creates the file. Pages that were never written read as zeros of kind `fresh_kind`.
    ///
    /// # Errors
    /// The driver's.
    pub async fn open(
        executor: &Executor,
        device: DeviceId,
        (name, partition): (&str, PartitionId),
        page_size: usize,
        create: bool,
        fresh_kind: PageKind,
    ) -> Result<DataFile> {
        let (file, length) = executor.open(device, name, create).await?;
        let pages = u32::try_from(length / page_size as u64).unwrap_or(u32::MAX);
        Ok(DataFile {
            name: name.to_owned(),
            device,
            file,
            partition,
            traits: executor.traits(device),
            page_size,
            fresh_kind,
            is_new: create,
            capacity: Cell::new(pages),
            written: Cell::new(pages),
            growth: Turn::new(),
            reads: Cell::new(0),
            writes: Cell::new(0),
            cache_hits: Cell::new(0),
            placement: Cell::new(Placement::default()),
            // A program that was killed may have left pages that can be read and are not durable.
            syncs: Syncs::after(u64::from(pages > 0)),
            lost: RefCell::default(),
            overwriting: Overwriting::default(),
            is_dropped: Cell::new(false),
        })
    }

    /// Whose file it is.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// How its pages use the storage hierarchy.
    pub fn placement(&self) -> Placement {
        self.placement.get()
    }

    /// States how its pages use the storage hierarchy, before the file is in use.
    pub fn place(&self, placement: Placement) {
        self.placement.set(placement);
    }

    /// How many pages the file has room for.
    pub fn capacity(&self) -> u32 {
        self.capacity.get()
    }

    /// Pages from this number on were never written, so they need no read.
    pub fn written(&self) -> u32 {
        self.written.get()
    }

    /// Whether it was made in this life of the database, so that no earlier one wrote any of its pages.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Whether its pages are there from its creation on, and count as empty before they are written.
    pub fn is_direct(&self) -> bool {
        self.fresh_kind == PageKind::Direct
    }

    /// Notes that a page was written once, for a copy of it has been found, and is blank.
    pub fn note_lost(&self, page: PageId) {
        self.lost.borrow_mut().insert(page.number);
    }

    /// Whether a page is known to have been there once, and is blank.
    pub fn is_lost(&self, page: PageId) -> bool {
        self.lost.borrow().contains(&page.number)
    }

    /// The error of a page that was there once: the file was cut off, or the page was taken out of it.
    pub fn missing(&self, page: PageId) -> Error {
        let pages = self.capacity.get();
        self.damaged(
            page,
            format!("it is in use, and the file of {pages} pages does not hold it: it is not there or blank"),
        )
    }

    /// States that every page counts as written: described contents (Rahm's five million account pages) are read although
    /// the medium holds nothing yet.
    pub fn assume_written(&self) {
        self.written.set(u32::MAX);
    }

    /// Turns a frame's bytes into a page of this partition that was never written.
    pub fn format(&self, bytes: &mut [u8], id: PageId) {
        header::format(bytes, id);
        header::set_kind(bytes, self.fresh_kind);
    }

    /// Notes that a page, or several up to this one, are about to be written by one operation.
    pub fn note_write(&self, id: PageId) {
        self.written.set(self.written.get().max(id.number.saturating_add(1)));
        self.writes.set(self.writes.get() + 1);
    }

    /// Notes that a write completed.
    pub fn note_written(&self) {
        self.syncs.note_written();
    }

    /// Its partition was dropped: its contents are not needed.
    pub(super) fn note_dropped(&self) {
        self.is_dropped.set(true);
    }

    /// Makes every write durable that completed before this call.
    ///
    /// # Errors
    /// The driver's, also if an earlier sync has failed. What became of the writes is then unknown: the file's contents must
    /// not be relied on any more.
    pub async fn sync(&self, executor: &Executor) -> Result<()> {
        if self.is_dropped.get() {
            return Ok(());
        }
        let result = self.syncs.sync(executor, self.file).await;
        // Its file may have been removed meanwhile.
        if self.is_dropped.get() { Ok(()) } else { result }
    }

    /// Why the file's contents cannot be relied on, if a sync has failed.
    pub fn failure(&self) -> Option<Error> {
        self.syncs.failure()
    }

    /// The size of its pages in bytes.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// The page's place in the file, in bytes.
    pub fn offset(&self, id: PageId) -> u64 {
        u64::from(id.number) * self.page_size as u64
    }

    /// Whether a power cut may leave a page half written.
    pub fn may_tear(&self) -> bool {
        (self.traits.atomic_write as usize) < self.page_size
    }

    /// The error of a damaged page.
    pub fn damaged(&self, page: PageId, detail: String) -> Error {
        Error::DamagedPage { page, file: self.name.clone(), detail }
    }

    /// Pays for one access and says how it is made: a synchronous device is reached by a compound operation that holds the
    /// CPU, any other through a queue.
    pub async fn access(&self, executor: &Executor) -> Access {
        crate::io::access(executor, &self.traits).await
    }

    /// Sets the length to at least `pages` pages.
    ///
    /// # Errors
    /// The driver's; the file keeps its length.
    pub async fn reserve(&self, executor: &Executor, pages: u32) -> Result<()> {
        if pages > self.capacity.get() {
            let length = u64::from(pages) * self.page_size as u64;
            executor.perform(Op::Resize { file: self.file, length, prewrite: true }).await.result?;
            self.capacity.set(pages);
        }
        Ok(())
    }

    /// Makes the file longer by a quarter, within limits, unless another task did so while this one waited for its turn.
    ///
    /// # Errors
    /// The driver's, or [`Error::PartitionFull`]; the file keeps its length.
    pub async fn grow(&self, executor: &Executor) -> Result<()> {
        let before = self.capacity.get();
        if before == u32::MAX {
            return Err(Error::PartitionFull { file: self.name.clone(), pages: before });
        }
        let _turn = self.growth.take(executor).await;
        if self.capacity.get() > before {
            return Ok(());
        }
        let length = u64::from(before) * self.page_size as u64;
        let step = (length / 4).clamp(GROWTH_MIN, GROWTH_MAX);
        let pages = u32::try_from((length + step).div_ceil(self.page_size as u64)).unwrap_or(u32::MAX);
        self.reserve(executor, pages).await
    }
}

impl PageStore for DataFile {
    fn write<'a>(&'a self, executor: &'a Executor, page: PageId, bytes: Frame) -> Future<'a, Completion> {
        Box::pin(async move {
            let access = self.access(executor).await;
            self.note_write(page);
            let (offset, length) = (self.offset(page), bytes.len() as u32);
            let op = Op::Write { file: self.file, offset, length, buffer: bytes, durable: self.may_tear(), access };
            let completion = executor.perform(op).await;
            self.note_written();
            completion
        })
    }
}
