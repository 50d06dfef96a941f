//! What the buffer knows of a partition's pages: where they are, how they use the hierarchy, which of them were ever written.

use super::home_writes::HomeWrites;
use super::overwriting::Overwriting;
use crate::page_store::{Future, PageStore, Transfer};
use crate::second_level::Placement;
use crate::statistics::Times;
use crate::{Error, Result};
use base::{PageId, PartitionId};
use driver::{Access, Fault, FaultKind, Frame};
use executor::{Executor, Holding, Turn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::{PageKind, header};

/// The pages of one partition.
pub struct PageSpace {
    store: Rc<dyn PageStore>,
    partition: PartitionId,
    fresh_kind: PageKind,
    /// Whether it was made since the database was opened.
    is_new: bool,
    written: Cell<u32>,
    /// Pages from this number on were not written since [`PageSpace::forget_writes`].
    written_lately: Cell<u32>,
    /// It does not become longer than this by itself.
    pages_max: Cell<u32>,
    growth: Turn,
    /// Read operations since the start.
    pub reads: Cell<u64>,
    /// Write operations since the start.
    pub writes: Cell<u64>,
    /// Reads that the second-level cache served since the start.
    pub cache_hits: Cell<u64>,
    /// And those that the cache above it served.
    pub upper_cache_hits: Cell<u64>,
    /// How long reads of its pages' own places took since the start.
    pub read_times: Times,
    placement: Cell<Placement>,
    /// Whether its pages may enter the cache at present.
    is_admitted: Cell<bool>,
    /// Pages that were written once and are blank.
    lost: RefCell<BTreeSet<u32>>,
    /// What a bulk load writes.
    pub(super) overwriting: Overwriting,
    /// Writes to its pages' own places, kept apart by their kinds.
    pub(super) home_writes: Rc<HomeWrites>,
    /// Whether its partition was dropped.
    is_dropped: Cell<bool>,
}

/// The most that a store grows by at once, in bytes, unless it is asked for more.
const GROWTH_MAX: u64 = 256 << 20;
/// How long growth is waited for at the end, in nanoseconds.
const GROWTH_NS_MAX: u64 = 60 * base::time::SECOND_NS;

impl PageSpace {
    /// The pages of a partition in this store, which `is_new` if it was made just now. Pages that were never written read as zeros
    /// of kind `fresh_kind`.
    pub fn new(store: Rc<dyn PageStore>, partition: PartitionId, is_new: bool, fresh_kind: PageKind) -> PageSpace {
        PageSpace {
            partition,
            fresh_kind,
            is_new,
            written: Cell::new(store.capacity()),
            written_lately: Cell::new(0),
            pages_max: Cell::new(u32::MAX),
            growth: Turn::new(),
            reads: Cell::new(0),
            writes: Cell::new(0),
            cache_hits: Cell::new(0),
            upper_cache_hits: Cell::new(0),
            read_times: Times::default(),
            placement: Cell::new(Placement::default()),
            is_admitted: Cell::new(true),
            lost: RefCell::default(),
            overwriting: Overwriting::default(),
            home_writes: Rc::default(),
            is_dropped: Cell::new(false),
            store,
        }
    }

    /// Where they have their own places.
    pub fn store(&self) -> &Rc<dyn PageStore> {
        &self.store
    }

    /// What they are found under, for messages.
    pub fn name(&self) -> &str {
        self.store.name()
    }

    /// Whose pages they are.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// How its pages use the storage hierarchy.
    pub fn placement(&self) -> Placement {
        self.placement.get()
    }

    /// States how its pages use the storage hierarchy, before they are in use.
    pub fn place(&self, placement: Placement) {
        self.placement.set(placement);
    }

    /// States how many pages there can be, before they are in use.
    pub(crate) fn limit_growth(&self, pages: u32) {
        self.pages_max.set(pages);
    }

    /// How many pages there can be.
    pub(crate) fn pages_max(&self) -> u32 {
        self.pages_max.get()
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_statistics(&self) {
        let counters = [&self.reads, &self.writes, &self.cache_hits, &self.upper_cache_hits];
        counters.iter().for_each(|counter| counter.set(0));
        self.read_times.restart();
    }

    /// Which tiers its pages may enter at present.
    pub fn admission(&self) -> Placement {
        let placement = self.placement();
        Placement { cache: placement.cache && self.is_admitted.get(), ..placement }
    }

    /// From now on its pages may enter the cache, or may not. Those that are there stay until they leave by themselves.
    pub fn admit(&self, is_admitted: bool) {
        self.is_admitted.set(is_admitted);
        if is_admitted {
            self.placement.set(Placement { cache: true, ..self.placement() });
        }
    }

    /// How many pages there is room for.
    pub fn capacity(&self) -> u32 {
        self.store.capacity()
    }

    /// Pages from this number on were never written, so they need no read.
    pub fn written(&self) -> u32 {
        self.written.get()
    }

    /// Whether it was made since the database was opened, so that no earlier opening wrote any of its pages.
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

    /// No page from this number on is known to be lost.
    pub(super) fn end_of_lost(&self) -> u32 {
        self.lost.borrow().last().map_or(0, |last| last.saturating_add(1))
    }

    /// The error of a page that was there once: the file was cut off, or the page was taken out of it.
    pub fn missing(&self, page: PageId) -> Error {
        let pages = self.capacity();
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
        let end = id.number.saturating_add(1);
        self.written.set(self.written.get().max(end));
        self.written_lately.set(self.written_lately.get().max(end));
        self.writes.set(self.writes.get() + 1);
    }

    /// From now on it is noted which pages are written.
    pub(crate) fn forget_writes(&self) {
        self.written_lately.set(0);
    }

    /// Pages from this number on were not written since then.
    pub(super) fn written_lately(&self) -> u32 {
        self.written_lately.get()
    }

    /// Its partition was dropped: its contents are not needed.
    pub(super) fn note_dropped(&self) {
        self.is_dropped.set(true);
    }

    /// Makes every write durable that completed before this call.
    ///
    /// # Errors
    /// The driver's, also if an earlier sync has failed. What became of the writes is then unknown: what the store holds must
    /// not be relied on any more.
    pub async fn sync(&self, executor: &Executor) -> Result<()> {
        if self.is_dropped.get() {
            return Ok(());
        }
        let result = self.store.sync(executor).await;
        // Its store may have been removed meanwhile.
        if self.is_dropped.get() { Ok(()) } else { result }
    }

    /// Why what the store holds cannot be relied on, if a sync has failed.
    pub fn failure(&self) -> Option<Error> {
        self.store.failure()
    }

    /// The size of a page in bytes.
    pub fn page_size(&self) -> usize {
        self.store.page_size()
    }

    /// Whether an access holds the processor until it is done.
    pub fn is_synchronous(&self) -> bool {
        self.store.is_synchronous()
    }

    /// Whether a power cut may leave a page half written.
    pub fn may_tear(&self) -> bool {
        self.store.may_tear()
    }

    /// The error of a damaged page.
    pub fn damaged(&self, page: PageId, detail: String) -> Error {
        Error::DamagedPage { page, file: self.name().to_owned(), detail }
    }

    /// Pays for one access and says how it is made.
    #[inline]
    pub async fn access(&self, executor: &Executor) -> Access {
        match self.store.access_at_once(executor) {
            Some(access) => access,
            None => self.store.access(executor).await,
        }
    }

    /// Reads one page as it is in its own place, and why the device could not, where another copy may serve.
    ///
    /// # Errors
    /// The driver's, but for [`FaultKind::Device`].
    pub async fn salvage(&self, executor: &Executor, page: PageId) -> Result<(Frame, Option<Fault>)> {
        let (length, access) = (self.page_size(), Access::Asynchronous);
        let buffer = executor.frame(length)?;
        let completion = self.store.read_now(executor, Transfer { first: page, buffer, length, access }).await;
        let fault = match completion.result {
            Ok(_) => None,
            Err(fault) if fault.kind == FaultKind::Device && !canary::is_planted(Canary::NoSalvage) => Some(fault),
            Err(fault) => return Err(fault.into()),
        };
        Ok((completion.buffer.expect("a read gives its buffer back"), fault))
    }

    /// Writes a sound copy of a page to its own place, before the buffer is in use.
    ///
    /// # Errors
    /// The driver's.
    pub async fn restore(&self, executor: &Executor, page: PageId, buffer: Frame) -> Result<()> {
        let (length, access) = (self.page_size(), Access::Asynchronous);
        let transfer = Transfer { first: page, buffer, length, access };
        self.store.write_now(executor, transfer, true).await.result?;
        Ok(())
    }

    /// Makes room for at least `pages` pages.
    ///
    /// # Errors
    /// The driver's; the room stays as it was.
    pub fn reserve<'a>(&'a self, executor: &'a Executor, pages: u32) -> Future<'a, Result<()>> {
        self.store.reserve(executor, pages)
    }

    /// Makes room for a quarter more, `step_min` bytes at least, unless another task did so while this one waited for its turn. That
    /// goes on to its end even if its caller is given up: the driver does, and others may use the room only then.
    ///
    /// # Errors
    /// The driver's, or [`Error::PartitionFull`]; the room stays as it was.
    pub async fn grow(self: &Rc<Self>, executor: &Executor, step_min: u64) -> Result<()> {
        let before = self.capacity();
        if before == u32::MAX {
            return Err(Error::PartitionFull { file: self.name().to_owned(), pages: before });
        }
        if canary::is_planted(Canary::AbandonedGrowth) {
            return self.grow_beyond(before, executor, step_min).await;
        }
        let (this, own) = (Rc::clone(self), executor.clone());
        executor.spawn(async move { this.grow_beyond(before, &own, step_min).await }).join().await
    }

    async fn grow_beyond(&self, before: u32, executor: &Executor, step_min: u64) -> Result<()> {
        let _turn = self.growth.take(executor).await;
        if self.capacity() > before {
            return Ok(());
        }
        let length = u64::from(before) * self.page_size() as u64;
        let step = (length / 4).min(GROWTH_MAX).max(step_min);
        let pages = u32::try_from((length + step).div_ceil(self.page_size() as u64)).unwrap_or(u32::MAX);
        self.reserve(executor, pages.min(self.pages_max.get().max(before + 1))).await
    }

    /// Keeps it from becoming longer for as long as this exists.
    pub(crate) async fn keep_length<'a>(&'a self, executor: &'a Executor) -> Holding<'a> {
        self.growth.take(executor).await
    }

    /// From now on there is room for this number of pages at most, and those behind are not used any more.
    pub(super) fn limit(&self, pages: u32) {
        self.store.limit(pages);
        self.written.set(self.written.get().min(self.store.capacity()));
    }

    /// Gives back what its store has beyond its room.
    pub(super) fn shorten<'a>(&'a self, executor: &'a Executor) -> Future<'a, Result<()>> {
        self.store.shorten(executor)
    }

    /// Waits until it does not become longer, if its device answers: what ends when the file is open again might cut it.
    pub(crate) async fn finish_growth(&self, executor: &Executor) {
        drop(executor.within(GROWTH_NS_MAX, self.growth.take(executor)).await);
    }
}
