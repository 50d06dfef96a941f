//! The file of temporary space: extents that are taken and given back, clusters that are written and read. Nothing in it is
//! logged, synced or recovered: it is removed when a database is opened and when it is closed.
//!
//! An extent is given back by its last handle, and a write under way is one, so a dropped operation never writes into
//! what belongs to another one by then.

use super::TempSettings;
use super::frames::Frames;
use super::stream::Damage;
use crate::io::access;
use crate::{Error, Result};
use driver::{Access, DeviceTraits, FaultKind, FileId, Frame, Op};
use executor::{Executor, Turn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::iter::successors;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

/// The name of temporary space's file on its device.
pub const FILE: &str = "temp.space";

/// Clusters of an extent: they lie one after the other, so that a run is mostly written and read in sequence.
const EXTENT_CLUSTERS: u64 = 8;
/// Bytes of an extent at most: clusters that are large are read and written well one by one, and a link to an old version tells
/// no position beyond.
const EXTENT_BYTES_MAX: u64 = *TempSettings::CLUSTER_SIZES.end();
/// By how much the file grows at once: by what it has, within these bounds. A file that grows by little is scattered over its device; one
/// in memory takes all of it at once.
const GROWTH: RangeInclusive<u64> = 64 << 20..=512 << 20;

/// What temporary space has done since the database was opened.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// assert_eq!(database.temp_statistics(), entresol_engine::temp::TempStatistics::default());
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TempStatistics {
    /// Clusters written.
    pub writes: u64,
    /// Clusters read.
    pub reads: u64,
    /// Bytes of each.
    pub cluster_size: u64,
    /// Bytes of extents in use.
    pub bytes_in_use: u64,
    /// The most bytes of extents that were in use at once.
    pub bytes_in_use_max: u64,
}

/// Temporary space on one device. Clones are handles to the same space.
#[derive(Clone)]
pub(crate) struct Space(Rc<SpaceState>);

struct SpaceState {
    executor: Executor,
    name: &'static str,
    device: String,
    settings: TempSettings,
    /// The file, once it was needed.
    file: Cell<Option<(FileId, DeviceTraits)>>,
    growth: Turn,
    /// Extents that were in use and are not any more.
    free: RefCell<BTreeSet<u32>>,
    /// Extents that have been in use, from the first on.
    used: Cell<u32>,
    /// Extents that the file has room for.
    extents: Cell<u32>,
    extent_clusters: u64,
    runs: Cell<u64>,
    statistics: Cell<TempStatistics>,
}

/// Consecutive clusters of the file. The last handle gives them back: a writer holds one until its write has ended, even if the
/// write is not wanted any more, so that the clusters of a new owner are not overwritten.
pub(crate) struct Extent {
    space: Space,
    number: u32,
}

impl Extent {
    /// Which of the file's it is.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let inner = &*self.space.0;
        let is_new = inner.free.borrow_mut().insert(self.number);
        debug_assert!(is_new, "an extent is given back once");
        let mut statistics = inner.statistics.get();
        statistics.bytes_in_use -= self.space.extent_bytes();
        inner.statistics.set(statistics);
    }
}

/// How many clusters an extent has.
fn extent_clusters(settings: &TempSettings) -> u64 {
    let bytes = settings.size.min(EXTENT_BYTES_MAX);
    (bytes / settings.cluster_size as u64).clamp(1, EXTENT_CLUSTERS)
}

impl Space {
    /// A space that has no file yet; it will have this name.
    pub fn new(executor: &Executor, name: &'static str, (device, settings): (&str, &TempSettings)) -> Space {
        let statistics = TempStatistics { cluster_size: settings.cluster_size as u64, ..TempStatistics::default() };
        Space(Rc::new(SpaceState {
            executor: executor.clone(),
            name,
            file: Cell::new(None),
            growth: Turn::new(),
            free: RefCell::default(),
            used: Cell::new(0),
            extents: Cell::new(0),
            extent_clusters: extent_clusters(settings),
            runs: Cell::new(0),
            statistics: Cell::new(statistics),
            device: device.to_owned(),
            settings: settings.clone(),
        }))
    }

    /// Removes what an earlier run has left; it is never read.
    ///
    /// # Errors
    /// The driver's, or [`Error::NoDevice`], or [`Error::Setting`] if the device does not suit the settings.
    pub async fn clear(executor: &Executor, name: &str, (device, settings): (&str, &TempSettings)) -> Result<()> {
        settings.check(executor, device)?;
        let device = crate::io::device(executor, device)?;
        executor.perform(Op::Remove { device, name: name.to_owned() }).await.result?;
        Ok(())
    }

    /// Removes the file, if there is one: the end. What is still under way finds it open, or that it is no more.
    ///
    /// # Errors
    /// As [`Space::clear`].
    pub async fn remove(&self) -> Result<()> {
        if self.0.file.get().is_some() {
            Space::clear(&self.0.executor, self.0.name, (&self.0.device, &self.0.settings)).await?;
        }
        Ok(())
    }

    /// The executor that its operations run on.
    pub fn executor(&self) -> &Executor {
        &self.0.executor
    }

    /// Bytes of a cluster.
    pub fn cluster_size(&self) -> usize {
        self.0.settings.cluster_size
    }

    /// What was done so far.
    pub fn statistics(&self) -> TempStatistics {
        let statistics = self.0.statistics.get();
        if statistics.writes == 0 { TempStatistics::default() } else { statistics }
    }

    /// Bytes of an extent.
    pub(crate) fn extent_bytes(&self) -> u64 {
        self.0.extent_clusters * self.cluster_size() as u64
    }

    /// Clusters of an extent.
    pub(super) fn extent_clusters(&self) -> u32 {
        self.0.extent_clusters as u32
    }

    /// A number that no other run has.
    pub(super) fn run_number(&self) -> u64 {
        self.0.runs.replace(self.0.runs.get() + 1)
    }

    /// Takes an extent.
    ///
    /// # Errors
    /// [`Error::TempFull`], or the driver's.
    pub(crate) async fn extent(&self) -> Result<Rc<Extent>> {
        loop {
            if let Some(number) = self.first_free() {
                let mut statistics = self.0.statistics.get();
                statistics.bytes_in_use += self.extent_bytes();
                statistics.bytes_in_use_max = statistics.bytes_in_use_max.max(statistics.bytes_in_use);
                self.0.statistics.set(statistics);
                return Ok(Rc::new(Extent { space: self.clone(), number }));
            }
            let (this, executor) = (self.clone(), &self.0.executor);
            // Goes on to its end even if its caller is given up: the driver does, and would cut what others have grown.
            executor.spawn(async move { this.grow().await }).join().await?;
        }
    }

    /// The first extent that is not in use, from here on in use.
    fn first_free(&self) -> Option<u32> {
        let inner = &*self.0;
        let given_back = inner.free.borrow_mut().pop_first();
        given_back.or_else(|| {
            let next = inner.used.get();
            (next < inner.extents.get()).then(|| inner.used.replace(next + 1))
        })
    }

    /// Makes the file longer, unless another task did so while this one waited for its turn.
    async fn grow(&self) -> Result<()> {
        let inner = &*self.0;
        let _turn = inner.growth.take(&inner.executor).await;
        let (extent, present) = (self.extent_bytes(), inner.extents.get());
        if inner.used.get() < present || !inner.free.borrow().is_empty() {
            return Ok(());
        }
        let most = (inner.settings.size / extent).min(u32::MAX.into()) as u32;
        if present >= most {
            return Err(self.full("that is all [temp] allows; raise its size, or"));
        }
        let file = self.file().await?;
        let growth = (u64::from(present) * extent).clamp(*GROWTH.start(), *GROWTH.end());
        let step = (growth / extent).clamp(1, (most - present).into()) as u32;
        // Where there is no room for much there may be for less.
        for step in successors(Some(step), |step| (*step > 1).then_some(step / 2)) {
            let length = u64::from(present + step) * extent;
            match inner.executor.perform(Op::Resize { file, length, prewrite: false }).await.result {
                Ok(_) => {
                    inner.extents.set(present + step);
                    return Ok(());
                }
                Err(fault) if fault.kind == FaultKind::NoSpace => {}
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(self.full("its device has no room for more; make room, name another device, or"))
    }

    async fn file(&self) -> Result<FileId> {
        let inner = &*self.0;
        if let Some((file, _)) = inner.file.get() {
            return Ok(file);
        }
        let device = crate::io::device(&inner.executor, &inner.device)?;
        let (file, _) = inner.executor.open(device, inner.name, true).await?;
        inner.file.set(Some((file, inner.executor.traits(device))));
        Ok(file)
    }

    fn full(&self, advice: &'static str) -> Error {
        let bytes = u64::from(self.0.extents.get()) * self.extent_bytes();
        Error::TempFull { device: self.0.device.clone(), bytes, advice }
    }

    /// The error that a damaged cluster makes; it lies in this extent.
    pub(super) fn damaged(&self, extent: u32, damage: Damage) -> Error {
        let offset = self.offset(extent, damage.cluster % self.extent_clusters());
        Error::DamagedTemp { file: self.0.name.to_owned(), offset, detail: damage.detail }
    }

    fn offset(&self, extent: u32, index: u32) -> u64 {
        (u64::from(extent) * self.0.extent_clusters + u64::from(index)) * self.cluster_size() as u64
    }

    fn opened(&self) -> (FileId, DeviceTraits) {
        self.0.file.get().expect("an extent lies in a file that is open")
    }

    /// Pays for one read or write and says how it is made. What follows it need not wait for anything.
    pub(super) async fn pay(&self) -> Access {
        access(&self.0.executor, &self.opened().1).await
    }

    /// Writes an extent from its beginning on; the end of the last cluster that `bytes` reach is zeros.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn store(&self, extent: &Rc<Extent>, bytes: &[u8]) -> Result<()> {
        debug_assert!(bytes.len() as u64 <= self.extent_bytes(), "it fits");
        for (index, part) in bytes.chunks(self.cluster_size()).enumerate() {
            let mut buffer = self.0.executor.frames(1, self.cluster_size())?.pop().expect("one was asked for");
            buffer[..part.len()].copy_from_slice(part);
            buffer[part.len()..].fill(0);
            let access = self.pay().await;
            let (file, offset) = (self.opened().0, self.offset(extent.number, index as u32));
            let (length, keep) = (self.cluster_size() as u32, Rc::clone(extent));
            let op = Op::Write { file, offset, length, buffer, durable: false, access };
            let written = self.0.executor.perform(op).await.result;
            drop(keep);
            written?;
            let mut statistics = self.0.statistics.get();
            statistics.writes += 1;
            self.0.statistics.set(statistics);
        }
        Ok(())
    }

    /// Reads the blocks of an extent that `range` touches, of `block` bytes each, a divisor of the cluster size: their bytes,
    /// and where in the extent they begin.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) async fn load(&self, extent: &Rc<Extent>, range: Range<usize>, block: usize) -> Result<(Frame, usize)> {
        let start = range.start - range.start % block;
        let length = (range.end.next_multiple_of(block)).min(self.extent_bytes() as usize) - start;
        let buffer = self.0.executor.frames(1, length)?.pop().expect("one was asked for");
        let access = self.pay().await;
        let (file, offset) = (self.opened().0, self.offset(extent.number, 0) + start as u64);
        let op = Op::Read { file, offset, length: length as u32, buffer, access };
        let completion = self.0.executor.perform(op).await;
        let mut statistics = self.0.statistics.get();
        statistics.reads += 1;
        self.0.statistics.set(statistics);
        completion.result?;
        Ok((completion.buffer.expect("a read gives its buffer back"), start))
    }

    /// Starts to write cluster `index` of an extent. The frame goes back to `frames` when the write has ended, and its failure
    /// is found there.
    pub(super) fn write(&self, extent: Rc<Extent>, index: u32, frames: &Frames, buffer: Frame, access: Access) {
        let (file, offset, length) = (self.opened().0, self.offset(extent.number, index), self.cluster_size() as u32);
        let mut statistics = self.0.statistics.get();
        statistics.writes += 1;
        self.0.statistics.set(statistics);
        let frames = frames.departing();
        let op = Op::Write { file, offset, length, buffer, durable: false, access };
        self.0.executor.submit(op, move |completion| {
            drop(extent);
            frames.arrive(completion);
        });
    }

    /// Starts to read cluster `index` of an extent; `arrived` gets it, unless the read fails, which is found in `frames`.
    pub(super) fn read(
        &self,
        (extent, index): (Rc<Extent>, u32),
        (frames, buffer): (&Frames, Frame),
        access: Access,
        arrived: impl FnOnce(Frame) + 'static,
    ) {
        let (file, offset, length) = (self.opened().0, self.offset(extent.number, index), self.cluster_size() as u32);
        let mut statistics = self.0.statistics.get();
        statistics.reads += 1;
        self.0.statistics.set(statistics);
        let frames = frames.departing();
        let op = Op::Read { file, offset, length, buffer, access };
        self.0.executor.submit(op, move |completion| {
            drop(extent);
            frames.deliver(completion, arrived);
        });
    }
}
