//! The undo space: where versions go that memory has no room for, or that are old, and how they are read there.

use super::chain::{self, Target, Version};
use super::history::{FoundVersion, is_whole};
use super::{FILE, Reconstruction, VersionStore, Versions, View};
use crate::temp::Extent;
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::units::format_duration_ns;
use base::{Instant, Lsn, PartitionId};
use driver::{Fault, FaultKind};
use executor::Executor;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// A write of versions that transactions wait for has failed if it makes no progress for so long, in nanoseconds.
const SILENCE_NS: u64 = 5 * SECOND_NS;
/// After so long, at least, it is tried again to write versions that are old, in nanoseconds.
const RETRY_NS_MIN: u64 = 50 * MILLISECOND_NS;

/// The latest piece of the undo space that was read: consecutive versions of a record often lie near each other.
struct ReadPart {
    extent: u64,
    start: usize,
    bytes: Vec<u8>,
}

impl ReadPart {
    fn version(&self, extent: u64, at: usize) -> Option<&[u8]> {
        let bytes = self.bytes.get(at.checked_sub(self.start).filter(|_| self.extent == extent)?..)?;
        bytes.get(..chain::length(bytes)?)
    }
}

impl VersionStore {
    /// Begins to move versions out of memory if they take more than their share; has them watched if they may become too old
    /// there. Has memory made for more.
    pub(super) fn relieve_memory(self: &Rc<Self>) {
        let mut versions = self.versions.borrow_mut();
        self.make_spares(&mut versions);
        if versions.is_over() && !std::mem::replace(&mut versions.is_spilling, true) {
            let store = Rc::clone(self);
            self.executor.spawn(async move { store.spill().await });
        }
        if let Some(age_ns) = versions.settings.age_ns
            && versions.history.memory_since().is_some()
            && !std::mem::replace(&mut versions.is_aging, true)
        {
            let (weak, executor) = (Rc::downgrade(self), self.executor.clone());
            self.executor.spawn(async move { watch_age(weak, executor, age_ns).await });
        }
    }

    /// Moves versions out of memory that have to leave.
    async fn spill(self: &Rc<Self>) {
        loop {
            if self.is_closing.get() {
                break;
            }
            if self.is_silent.get() {
                self.versions.borrow_mut().stay_in_memory(silence());
                break;
            }
            let next = self.versions.borrow_mut().next_to_leave(self.now());
            let Some((number, bytes)) = next else { break };
            let stored = self.store_versions(bytes).await;
            let mut versions = self.versions.borrow_mut();
            match stored {
                Ok(place) => versions.history.moved(number, place),
                Err(error) => {
                    versions.stay_in_memory(error);
                    break;
                }
            }
            drop(versions);
            self.room.wake_all(&self.executor);
        }
        self.versions.borrow_mut().is_spilling = false;
        self.room.wake_all(&self.executor);
    }

    /// Writes an extent's versions to the undo space, unless that falls silent: then they keep their place there until it answers.
    async fn store_versions(self: &Rc<Self>, bytes: Vec<u8>) -> Result<Vec<Rc<Extent>>> {
        let mut storing = Box::pin(Rc::clone(self).store_however_long(bytes));
        loop {
            let writes = self.space.statistics().writes;
            if let Some(stored) = self.executor.within(SILENCE_NS, &mut storing).await {
                return stored;
            }
            let is_silent = self.space.statistics().writes == writes;
            if is_silent && self.versions.borrow().is_behind() {
                break;
            }
        }
        self.is_silent.set(true);
        let store = Rc::downgrade(self);
        self.executor.spawn(async move {
            drop(storing.await);
            if let Some(store) = store.upgrade() {
                store.is_silent.set(false);
            }
        });
        Err(silence())
    }

    /// The same, however long it takes.
    async fn store_however_long(self: Rc<Self>, bytes: Vec<u8>) -> Result<Vec<Rc<Extent>>> {
        let (mut place, mut failure) = (Vec::new(), None);
        for part in bytes.chunks(self.space.extent_bytes() as usize) {
            match self.store_part(part).await {
                Ok(extent) => place.push(extent),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        self.versions.borrow_mut().history.reuse(bytes);
        failure.map_or(Ok(place), Err)
    }

    async fn store_part(&self, bytes: &[u8]) -> Result<Rc<Extent>> {
        let extent = self.space.extent().await?;
        self.space.store(&extent, bytes).await?;
        Ok(extent)
    }

    /// Waits while more versions wait for their way to the undo space than memory is for.
    #[cold]
    pub(crate) async fn wait_for_room(&self) {
        while self.versions.borrow().is_behind() && !self.is_closing.get() {
            self.room.wait(&self.executor).await;
        }
    }

    /// Versions may have been discarded that tasks wait for to leave memory.
    #[inline]
    pub(super) fn tell_of_room(&self) {
        if !self.room.is_empty() && !self.versions.borrow().is_behind() {
            self.room.wake_all(&self.executor);
        }
    }

    /// Goes on along a record's chain where that leaves memory.
    #[cold]
    pub(super) async fn reconstruct_from_space(
        &self,
        view: View,
        record: (PartitionId, &[u8]),
        mut past: Reconstruction,
    ) -> Result<Option<Vec<u8>>> {
        let mut piece: Option<ReadPart> = None;
        loop {
            let Some((extent, at, place)) = self.versions.borrow().leave_memory(view, record, &mut past)? else {
                return Ok(past.state);
            };
            let read = match piece.take() {
                Some(read) if read.version(extent, at).is_some() => read,
                _ => self.load_version(extent, at, &place).await?,
            };
            let stored = read.version(extent, at).expect("it was read");
            let version =
                Version::decode(stored).filter(|_| is_whole(stored, extent, at)).ok_or_else(|| damaged(extent, at))?;
            past.undo_change(record, &version);
            piece = Some(read);
        }
    }

    /// Reads the piece that holds a version.
    async fn load_version(&self, extent: u64, at: usize, place: &[Rc<Extent>]) -> Result<ReadPart> {
        let piece = self.load_piece(extent, at..at + chain::HEAD, place).await?;
        let length = piece.bytes.get(at - piece.start..).and_then(chain::length).ok_or_else(|| damaged(extent, at))?;
        if at + length > place.len() * self.space.extent_bytes() as usize {
            return Err(damaged(extent, at));
        }
        if piece.version(extent, at).is_some() {
            Ok(piece)
        } else {
            self.load_piece(extent, at..at + length, place).await
        }
    }

    /// Reads the blocks that a range of an extent touches; they may lie in several extents of the undo space.
    async fn load_piece(&self, extent: u64, range: Range<usize>, place: &[Rc<Extent>]) -> Result<ReadPart> {
        let block_size = self.versions.borrow().settings.block_size();
        let each = self.space.extent_bytes() as usize;
        let (mut bytes, mut start) = (Vec::new(), range.start);
        for (number, found) in place.iter().enumerate().take(range.end.div_ceil(each)).skip(range.start / each) {
            let (from, to) = (range.start.max(number * each), range.end.min((number + 1) * each));
            let within = from - number * each..to - number * each;
            let load = self.space.load(found, within, block_size).await;
            let (frame, begin) = load.map_err(|error| self.explained(error))?;
            if bytes.is_empty() {
                start = number * each + begin;
            }
            bytes.extend_from_slice(&frame);
        }
        Ok(ReadPart { extent, start, bytes })
    }

    /// What a failed read means: a database that closes removes its undo space, although there are readers.
    fn explained(&self, error: Error) -> Error {
        match &error {
            Error::Input(fault) if fault.kind == FaultKind::NotFound && self.is_closing.get() => Error::Closed,
            _ => error,
        }
    }
}

/// Has versions leave memory that have been there for `age_ns` nanoseconds, as long as there are any.
async fn watch_age(weak: Weak<VersionStore>, executor: Executor, age_ns: u64) {
    loop {
        let Some(store) = weak.upgrade().filter(|store| !store.is_closing.get()) else { return };
        let since = store.versions.borrow().history.memory_since();
        let Some(since) = since else { return store.versions.borrow_mut().is_aging = false };
        let due = since.plus_ns(age_ns);
        let left_ns = due.since_ns(store.now());
        if left_ns > 0 {
            drop(store);
            executor.sleep_ns(left_ns).await;
            continue;
        }
        if std::mem::replace(&mut store.versions.borrow_mut().is_spilling, true) {
            store.room.wait(&executor).await;
            continue;
        }
        store.spill().await;
        let is_stuck = store.versions.borrow().history.memory_since() == Some(since);
        drop(store);
        if is_stuck {
            // The undo space cannot be written: they stay, as long as there is room.
            executor.sleep_ns(age_ns.max(RETRY_NS_MIN)).await;
        }
    }
}

fn silence() -> Error {
    let silence = format_duration_ns(SILENCE_NS as f64);
    Fault::new(FaultKind::Device, format!("the device of the undo space has not answered for {silence}")).into()
}

fn damaged(extent: u64, at: usize) -> Error {
    let detail = format!("extent {extent} of the rollback segments holds no version at byte {at}");
    Error::DamagedTemp { file: FILE.to_owned(), offset: at as u64, detail }
}

impl Versions {
    /// Whether versions take more than their share of memory.
    fn is_over(&self) -> bool {
        self.history.memory_bytes() > self.settings.memory
    }

    /// Whether enough bytes wait for their way to the undo space that transactions should wait, too.
    fn is_behind(&self) -> bool {
        self.is_spilling && self.history.memory_bytes() > 2 * self.settings.memory
    }

    /// The extent that has to leave memory next, if one does, and what is to be written.
    fn next_to_leave(&mut self, now: Instant) -> Option<(u64, Vec<u8>)> {
        let old = self.settings.age_ns.and_then(|age_ns| now.ns().checked_sub(age_ns)).map(Instant::from_ns);
        let is_old = old.is_some_and(|old| self.history.memory_since().is_some_and(|since| since <= old));
        if is_old || self.is_over() { self.history.close_oldest(old) } else { None }
    }

    /// Takes a record back as far as memory goes; where the version is in the undo space that comes next, if there is one.
    #[expect(clippy::type_complexity, reason = "extent, position, place")]
    fn leave_memory(
        &self,
        view: View,
        record: (PartitionId, &[u8]),
        past: &mut Reconstruction,
    ) -> Result<Option<(u64, usize, Vec<Rc<Extent>>)>> {
        self.check(view)?;
        while self.step_back(view, record, past) {}
        let Target::Extent(extent, at) = past.rest.target() else { return Ok(None) };
        Ok(match self.history.find(extent, at) {
            FoundVersion::Spilled(number, place) => Some((number, at, place)),
            FoundVersion::Here(_) | FoundVersion::Gone => None,
        })
    }

    /// The undo space cannot take what is over the memory's share: the oldest versions are discarded, even if readers need
    /// them.
    fn stay_in_memory(&mut self, error: Error) {
        self.failure = Some(error);
        while self.is_over() && self.give_up(Lsn::MAX) {
            self.given_up += 1;
        }
    }
}
