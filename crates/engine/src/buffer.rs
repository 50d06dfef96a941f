//! The main-memory buffer: which pages are in memory, reading misses, writing dirty pages back.
//!
//! A page is copied before it is written, so transactions go on changing it meanwhile. Write-ahead rule: the copy leaves
//! only when the log is durable up to the copy's log position. Where a device may tear a page, the copy goes to the
//! double-write area first.

mod ahead;
mod arriving;
mod below;
mod cleaner;
mod detach;
mod double_write;
mod ending;
mod failures;
mod fresh;
mod home_writes;
mod left_redo;
mod levels;
mod loading;
mod overwriting;
mod pins;
mod pool;
mod room;
mod silence;
mod space;
mod spare;
mod tiered;
mod values;
mod wanted;
mod window;
mod write_back;

use ahead::AheadFrames;
pub use ahead::ReservedFrames;
pub use arriving::ArrivingPages;
pub use double_write::DoubleWrite;
pub use fresh::LOADED;
pub use left_redo::PageCopies;
pub(crate) use left_redo::begins_page;
pub use levels::Levels;
pub use pins::Pins;
pub use pool::{Departure, Pool, Presence};
pub use space::PageSpace;
pub use window::AheadWindow;

use crate::log::Log;
use crate::page_store::Transfer;
use crate::second_level::TableGrowth;
use crate::second_level::design::Pattern;
use crate::statistics::FoundIn;
use crate::{Error, Need, Result};
use base::{Lsn, PageId, PartitionId};
use cleaner::Cleaner;
use driver::{Access, Completion, FaultKind, Frame};
use executor::{Executor, WaitQueue};
use failures::Failures;
use left_redo::LeftRedo;
use pins::SparePins;
use silence::Silence;
use spare::Spare;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::{Pages, header};
use structures::replacement::Policy;
use values::NearMemory;
use wanted::{Fetching, WantedPages};

/// How the buffer works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many pages it holds.
    pub frames: usize,
    /// The size of each, in bytes.
    pub page_size: usize,
    /// Which page leaves next.
    pub replacement: Policy,
    /// Whether dirty pages are written before they must leave. Without it a victim is the coldest page, and if that is
    /// dirty the transaction that needs the frame waits for its write (Rahm 1991, section 3.2).
    pub cleaner: bool,
    /// How many pages the cleaner writes together, and one write of the double-write area stages, at most.
    pub batch: usize,
    /// The least by which a partition's file becomes longer, in bytes: large ones become longer by a quarter.
    pub growth_step: u64,
}

impl Default for Settings {
    /// 8 MiB in pages of 8 KiB, with a cleaner.
    fn default() -> Settings {
        Settings {
            frames: 1024,
            page_size: 8192,
            replacement: Policy::default(),
            cleaner: true,
            batch: 64,
            growth_step: 1 << 20,
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<()> {
        match self.batch {
            1..=BATCH_MAX => Ok(()),
            batch => Err(Error::Setting(format!("{batch} pages are no batch of the buffer's: 1 to {BATCH_MAX} are"))),
        }
    }
}

/// The buffer pool with its files.
pub struct Buffer {
    executor: Executor,
    /// Absent during redo: what is redone is in the log already.
    log: OnceCell<Rc<Log>>,
    settings: Settings,
    pool: RefCell<Pool>,
    spaces: RefCell<Vec<Option<Rc<PageSpace>>>>,
    double_write: Option<DoubleWrite>,
    /// What lies between main memory and the partitions' own devices.
    levels: RefCell<Levels>,
    /// Asks for a later position of a cache's table in the superblock.
    table_growth: Rc<TableGrowth>,
    /// Memory that copies are written from: of single pages, and of several side by side.
    copies: RefCell<Vec<Frame>>,
    run_copies: RefCell<Vec<Frame>>,
    failures: Failures,
    /// Redo that waits until its pages are read.
    left: LeftRedo,
    /// The error of a failed sync: what the medium holds is unknown since.
    broken: RefCell<Option<Error>>,
    /// Whether the database was closed.
    is_ended: Cell<bool>,
    /// Reads and writes of pages in flight.
    in_flight: Cell<usize>,
    /// Which pages tasks look for frames for.
    wanted: WantedPages,
    /// How many tasks read pages ahead of scans, or are about to.
    reading_ahead: Cell<usize>,
    /// Frames that scans may fill ahead of them.
    reserved_ahead: Rc<AheadFrames>,
    spare_pins: SparePins,
    /// Tasks waiting for any frame: no page could leave when they looked.
    freed: WaitQueue,
    /// Tasks waiting for the end of a write.
    written: WaitQueue,
    /// Tasks waiting for the permission to write a page.
    permitted: WaitQueue,
    cleaner: Cleaner,
    /// Which devices do not answer writes.
    silence: Silence,
    near: NearMemory,
    /// The farthest place of what the present reference has used first.
    found: Rc<Cell<FoundIn>>,
}

/// How many frames are allocated at once for pages that stay for good.
const LASTING_FRAMES: usize = 64;
/// The most pages of a batch.
const BATCH_MAX: usize = 1024;

impl Buffer {
    /// An empty buffer. Files join it by [`Buffer::attach`].
    ///
    /// # Errors
    /// The driver's, if the memory cannot be had.
    pub fn new(executor: &Executor, double_write: Option<DoubleWrite>, settings: Settings) -> Result<Rc<Buffer>> {
        let frames = executor.frames(settings.frames, settings.page_size)?;
        let pool = Pool::new(frames, settings.page_size, settings.replacement);
        let buffer = Rc::new(Buffer {
            found: pool.found(),
            executor: executor.clone(),
            log: OnceCell::new(),
            settings,
            pool: RefCell::new(pool),
            spaces: RefCell::default(),
            double_write,
            levels: RefCell::default(),
            table_growth: Rc::default(),
            copies: RefCell::default(),
            run_copies: RefCell::default(),
            failures: Failures::default(),
            left: LeftRedo::default(),
            broken: RefCell::new(None),
            is_ended: Cell::new(false),
            in_flight: Cell::new(0),
            wanted: WantedPages::default(),
            reading_ahead: Cell::new(0),
            reserved_ahead: Rc::default(),
            spare_pins: SparePins::default(),
            freed: WaitQueue::new(),
            written: WaitQueue::new(),
            permitted: WaitQueue::new(),
            cleaner: Cleaner::new(settings.frames, settings.batch),
            silence: Silence::default(),
            near: NearMemory::new(settings.page_size),
        });
        if settings.cleaner {
            executor.spawn(cleaner::run(Rc::downgrade(&buffer), executor.clone()));
        }
        Ok(buffer)
    }

    /// From now on pages are written only after the log.
    pub fn set_log(&self, log: Rc<Log>) {
        assert!(self.log.set(log).is_ok(), "a buffer has one log");
    }

    /// A reference begins: what others have used before it is charged to them, or to none.
    #[inline]
    pub fn begin_reference(&self) {
        self.found.set(FoundIn::Memory);
    }

    /// The farthest place where pages came from that were used first since [`Buffer::begin_reference`].
    #[inline]
    pub fn found(&self) -> FoundIn {
        self.found.get()
    }

    /// The pool, for synchronous work between two waits.
    pub fn pool(&self) -> &RefCell<Pool> {
        &self.pool
    }

    /// The buffer's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a partition's file.
    pub fn attach(&self, partition: PartitionId, space: PageSpace) {
        self.pool.borrow_mut().set_capacity(partition, space.capacity());
        let mut spaces = self.spaces.borrow_mut();
        let index = usize::from(partition.0);
        if spaces.len() <= index {
            spaces.resize(index + 1, None);
        }
        spaces[index] = Some(Rc::new(space));
    }

    /// The partition's file.
    ///
    /// # Panics
    /// If it was never attached.
    pub fn space(&self, partition: PartitionId) -> Rc<PageSpace> {
        let spaces = self.spaces.borrow();
        Rc::clone(spaces[usize::from(partition.0)].as_ref().expect("every partition in use is attached"))
    }

    /// The same, or the error that there is no such partition.
    pub(crate) fn find_space(&self, partition: PartitionId) -> Result<Rc<PageSpace>> {
        let found = self.spaces.borrow().get(usize::from(partition.0)).cloned().flatten();
        found.ok_or_else(|| Error::no_partition(partition))
    }

    /// Whether the partition's file was attached.
    pub fn is_attached(&self, partition: PartitionId) -> bool {
        self.spaces.borrow().get(usize::from(partition.0)).is_some_and(Option::is_some)
    }

    /// Repairs pages that a power cut has torn (see [`DoubleWrite::repair`]) and makes the files durable: what a process
    /// that was killed wrote may be read here although only its copies survive a power cut, and those are overwritten next.
    ///
    /// # Errors
    /// The driver's.
    pub async fn repair(&self, redo_start: Lsn) -> Result<u64> {
        let repaired = match &self.double_write {
            Some(area) => area.repair(&self.executor, self, redo_start).await?,
            None => 0,
        };
        self.sync().await?;
        Ok(repaired)
    }

    /// Every attached file, in the order of the partitions.
    pub fn spaces(&self) -> Vec<Rc<PageSpace>> {
        self.spaces.borrow().iter().flatten().cloned().collect()
    }

    /// Forgets what was read and written so far: the end of a warm-up.
    pub fn restart_statistics(&self) {
        for space in self.spaces() {
            space.restart_statistics();
        }
        self.levels().from_top().for_each(|tiers| tiers.restart_statistics());
        self.pool.borrow().forget_sources();
    }

    /// Resolves what a synchronous function lacked, which uses pages in this pattern. A page comes pinned; its frame joins `pins`.
    /// Returns whether this call fetched a page: waiting for one that another task is reading is no miss of its own.
    ///
    /// # Errors
    /// The need's own error, or the driver's, or a damaged page.
    pub async fn resolve(self: &Rc<Self>, need: Need, pattern: Pattern, pins: &mut Pins) -> Result<bool> {
        match need {
            Need::Fail(error) => Err(*error),
            Need::Refused(error) => Err(self.refused(*error)),
            Need::Write(id) => {
                self.await_permission(id, pins).await;
                Ok(false)
            }
            Need::Space(partition) => {
                // Who makes the file shorter waits for pages behind its end.
                if canary::is_planted(Canary::KeptPins) {
                    pins.forget()
                } else {
                    pins.release()
                }
                self.grow(partition).await.map(|()| false)
            }
            Need::Page(id) => {
                let (frame, missed) = self.fetch(id, pattern).await?;
                pins.add(frame);
                Ok(missed)
            }
        }
    }

    /// Waits for the permission to write a page, which stays here meanwhile.
    async fn await_permission(&self, id: PageId, pins: &mut Pins) {
        let frame = self.pool.borrow().frame_of(id);
        let Some(frame) = frame else { return };
        self.pool.borrow_mut().pin(frame);
        pins.add(frame);
        while !self.pool.borrow().may_write(id) {
            self.permitted.wait(&self.executor).await;
        }
    }

    /// The permission to write a page is back: the tasks waiting for it continue.
    pub fn grant_write(&self, id: PageId) {
        self.pool.borrow_mut().grant_write(id);
        self.permitted.wake_all(&self.executor);
    }

    /// The error of what a structure refuses, with the name of the file that it is about.
    #[cold]
    fn refused(&self, error: structures::Error) -> Error {
        match error {
            structures::Error::DamagedPage { page, detail } => match self.find_space(page.partition) {
                Ok(space) => space.damaged(page, detail),
                Err(missing) => missing,
            },
            structures::Error::TooLarge { what, found, limit, partition } => {
                let name = self.find_space(partition).map(|space| space.name().to_owned());
                Error::TooLarge { what, found, limit, partition: name.unwrap_or_else(|_| partition.0.to_string()) }
            }
        }
    }

    /// Reads a page if it is not here, and pins it. Returns its frame, and whether this call started the read.
    async fn fetch(self: &Rc<Self>, id: PageId, pattern: Pattern) -> Result<(u32, bool)> {
        loop {
            match self.fetch_as_it_is(id, pattern).await {
                Err(error) if self.is_left_unreadable(id, &error) => self.restore_left(id, error).await?,
                fetched => return fetched,
            }
        }
    }

    /// The same of a page that no redo makes readable.
    async fn fetch_as_it_is(self: &Rc<Self>, id: PageId, pattern: Pattern) -> Result<(u32, bool)> {
        let (mut waited, mut missed) = (false, false);
        loop {
            let presence = self.pool.borrow().presence(id);
            match presence {
                Presence::Resident(frame) => {
                    self.pool.borrow_mut().pin(frame);
                    return Ok((frame, missed));
                }
                Presence::Loading(frame) => {
                    if self.await_load(frame).await {
                        return Ok((frame, missed));
                    }
                    waited = true;
                }
                Presence::Absent => {
                    if waited && let Some(error) = self.failures.of(id) {
                        return Err(error);
                    }
                    match self.want(id, pattern) {
                        Some(turn) => {
                            let started = self.start_load(id, turn).await?;
                            (missed, waited) = (missed || started, waited || started);
                        }
                        None => self.await_turn(id).await,
                    }
                }
            }
        }
    }

    /// Starts to read the given pages that are absent, all at once, and waits until each was read or failed. Recovery and
    /// scans read ahead with it; failures show when a page is used.
    pub async fn prefetch(self: &Rc<Self>, ids: impl IntoIterator<Item = PageId>, pattern: Pattern) -> Result<()> {
        let started = self.begin_reads(ids, pattern).await?;
        for id in started {
            while self.is_wanted(id) {
                self.await_turn(id).await;
            }
            while let Presence::Loading(frame) = { self.pool.borrow().presence(id) } {
                if self.await_load(frame).await {
                    self.unpin(frame);
                }
            }
        }
        Ok(())
    }

    /// Starts to read the given pages that are absent, and waits for no more than frames for them. Returns which these are.
    pub async fn begin_reads(
        self: &Rc<Self>,
        ids: impl IntoIterator<Item = PageId>,
        pattern: Pattern,
    ) -> Result<Vec<PageId>> {
        let is_absent = |id: &PageId| self.pool.borrow().presence(*id) == Presence::Absent;
        let absent: Vec<PageId> = ids.into_iter().filter(is_absent).collect();
        let past_cache = self.past_cache(&absent, pattern);
        for (index, id) in absent.iter().enumerate().filter(|(_, id)| is_absent(id)) {
            // It may have come to that while a page before this one has waited for its frame.
            if self.is_ended.get() {
                break;
            }
            if let Some(turn) = self.want(*id, pattern) {
                self.start_load(*id, turn.past_cache(past_cache.contains(&index))).await?;
            }
        }
        Ok(absent)
    }

    /// Has a page read, for as long as `turn` lasts at least. False if another task did so meanwhile, or it moved between the
    /// tiers: then the caller begins again. Whenever this waits, the partition may be dropped.
    async fn start_load(self: &Rc<Self>, id: PageId, turn: Fetching) -> Result<bool> {
        self.check_syncs()?;
        if self.is_left(id) {
            Box::pin(self.bring_left(id)).await?;
        }
        let space = self.find_space(id.partition)?;
        if let Some(error) = space.failure() {
            return Err(error);
        }
        if space.overwriting.includes(id.number) {
            space.overwriting.end(&self.executor).await;
            return Ok(false);
        }
        if let Some(source) = self.source_of(&turn) {
            let access = source.access(self).await;
            return self.load_from_below(&space, (source, access), turn);
        }
        if id.number >= space.written() && !self.is_new_page(id, &space).await? {
            return Err(space.missing(id));
        }
        let resident = space.placement().resident;
        let spare = self.frame_for(&space).await?;
        self.find_space(id.partition)?;
        if self.source_of(&turn).is_none() && id.number >= space.written() {
            self.check_left(id, 0)?;
            // A page that stays in memory and never was elsewhere is not missed.
            return Ok(self.format_new(spare.take(), id, &space) && !resident);
        }
        let access = space.access(&self.executor).await;
        self.find_space(id.partition)?;
        if id.number >= space.written() {
            // It was cut off meanwhile.
            return Ok(false);
        }
        Ok(self.source_of(&turn).is_none() && self.read_page(spare, &turn, &space, access))
    }

    /// A free frame for a page of this file.
    async fn frame_for(self: &Rc<Self>, space: &PageSpace) -> Result<Spare<'_>> {
        let frame = if space.placement().resident { self.lasting_frame()? } else { self.acquire().await? };
        Ok(Spare::new(self, frame))
    }

    /// Starts to read a page from its own device. False if it is here, or is being read, already.
    fn read_page(self: &Rc<Self>, frame: Spare<'_>, turn: &Fetching, space: &Rc<PageSpace>, access: Access) -> bool {
        let id = turn.page();
        let mut pool = self.pool.borrow_mut();
        if pool.presence(id) != Presence::Absent {
            return false;
        }
        let frame = frame.take();
        let buffer = pool.begin_load(frame, id, turn.pattern());
        pool.note_source(frame, FoundIn::Device);
        drop(pool);
        self.in_flight.set(self.in_flight.get() + 1);
        space.reads.set(space.reads.get() + 1);
        let (this, of, start) = (Rc::clone(self), Rc::clone(space), self.executor.now());
        let transfer = Transfer { first: id, buffer, length: self.settings.page_size, access };
        let then = Box::new(move |completion| {
            of.read_times.record(this.executor.now().since_ns(start));
            this.finish_load(frame, id, &of, completion);
        });
        self.failures.start(id, || space.store().read(&self.executor, transfer, then));
        true
    }

    fn finish_load(self: &Rc<Self>, frame: u32, id: PageId, space: &Rc<PageSpace>, completion: Completion) {
        let bytes = completion.buffer.expect("a read gives its buffer back");
        let outcome = match (space.failure(), completion.result) {
            // A sync has failed meanwhile: this may be what was there before a write that is lost.
            (Some(error), _) if !canary::is_planted(Canary::LateRead) => Err(error),
            (_, Ok(_)) if space.store().gives_sound_pages() => {
                debug_assert_eq!(header::verify(&bytes, id), Ok(true), "{id} was found sound");
                self.offer(frame, space, &bytes);
                Ok(())
            }
            (_, Ok(_)) => match header::verify(&bytes, id) {
                Ok(true) => {
                    self.offer(frame, space, &bytes);
                    Ok(())
                }
                Ok(false) => return self.finish_unused((frame, id), space, bytes, None),
                // A load that was cut off leaves pages half written beyond those that are in use.
                Err(detail) => return self.finish_unused((frame, id), space, bytes, Some(space.damaged(id, detail))),
            },
            (_, Err(fault)) if fault.kind == FaultKind::EndOfFile => {
                Err(space.damaged(id, "it lies beyond the end of the file".to_owned()))
            }
            (_, Err(fault)) => return self.finish_unused((frame, id), space, bytes, Some(Error::Input(fault))),
        };
        self.end_load(frame, id, bytes, outcome);
    }

    /// A read has given a page, or why there is none.
    fn end_load(&self, frame: u32, id: PageId, bytes: Frame, outcome: Result<()>) {
        self.in_flight.set(self.in_flight.get() - 1);
        let mut woken = Vec::new();
        match outcome.and_then(|()| self.check_left(id, header::sequence(&bytes))) {
            Ok(()) => {
                let mut pool = self.pool.borrow_mut();
                pool.loaded(frame, bytes, &mut woken);
                self.redo_left(&mut pool, (frame, id));
            }
            Err(error) => {
                self.pool.borrow_mut().load_failed(frame, bytes, &mut woken);
                self.note_free();
                self.failures.note_if(!woken.is_empty(), id, error);
            }
        }
        self.wake_for_frames(1);
        for task in woken {
            self.executor.wake(task);
        }
    }

    /// A free frame for a page that stays for good.
    fn lasting_frame(&self) -> Result<u32> {
        let taken = self.pool.borrow_mut().take_lasting();
        if let Some(frame) = taken {
            return Ok(frame);
        }
        let more = self.executor.frames(LASTING_FRAMES, self.settings.page_size)?;
        let mut pool = self.pool.borrow_mut();
        pool.add_lasting(more);
        Ok(pool.take_lasting().expect("just added"))
    }

    /// Makes the partition's file longer, unless its length may be another opening's by now.
    pub(crate) async fn grow(self: &Rc<Self>, partition: PartitionId) -> Result<()> {
        if self.is_ended.get() {
            return Err(Error::Closed);
        }
        let space = self.find_space(partition)?;
        let known = Pages::capacity(&*self.pool.borrow(), partition);
        // It may have become so for a task that did not wait for it.
        if known == space.capacity() {
            space.grow(&self.executor, self.settings.growth_step).await?;
        }
        self.pool.borrow_mut().set_capacity(partition, space.capacity());
        Ok(())
    }

    /// Takes one pin back.
    fn unpin(&self, frame: u32) {
        self.pool.borrow_mut().unpin(frame);
        self.wake_for_frames(1);
    }
}
