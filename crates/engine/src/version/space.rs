//! The undo space: where versions go that memory has no room for, and how they are read there.

use super::chain::{self, Target, Version};
use super::history::{Found, is_whole};
use super::{FILE, Past, Versions, View};
use crate::database::Database;
use crate::temp::Extent;
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use std::ops::Range;
use std::rc::Rc;

/// The latest piece of the undo space that was read: consecutive versions of a record often lie near each other.
struct Piece {
    extent: u32,
    start: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn version(&self, extent: u32, at: usize) -> Option<&[u8]> {
        let bytes = self.bytes.get(at.checked_sub(self.start).filter(|_| self.extent == extent)?..)?;
        bytes.get(..chain::length(bytes)?)
    }
}

impl Database {
    /// Begins to move versions out of memory if they take more than their share.
    pub(super) fn relieve_memory(&self) {
        let mut versions = self.0.versions.borrow_mut();
        let is_over = versions.history.memory_bytes() > versions.settings.memory;
        if is_over && !std::mem::replace(&mut versions.is_spilling, true) {
            let database = self.clone();
            self.0.executor.spawn(async move { database.spill().await });
        }
    }

    async fn spill(&self) {
        loop {
            let next = {
                let versions = self.0.versions.borrow();
                let is_over = versions.history.memory_bytes() > versions.settings.memory;
                is_over.then(|| versions.history.oldest_closed()).flatten()
            };
            let Some((number, bytes)) = next else { break };
            match self.store_versions(&bytes).await {
                Ok(place) => self.0.versions.borrow_mut().history.moved(number, place),
                Err(error) => {
                    self.0.versions.borrow_mut().stay_in_memory(error);
                    break;
                }
            }
            self.0.undo_room.wake_all(&self.0.executor);
        }
        self.0.versions.borrow_mut().is_spilling = false;
        self.0.undo_room.wake_all(&self.0.executor);
    }

    /// Writes an extent's versions to the undo space.
    async fn store_versions(&self, bytes: &[u8]) -> Result<Vec<Rc<Extent>>> {
        let mut place = Vec::new();
        for part in bytes.chunks(self.0.undo.extent_bytes() as usize) {
            let extent = self.0.undo.extent().await?;
            self.0.undo.store(&extent, part).await?;
            place.push(extent);
        }
        Ok(place)
    }

    /// Waits while more versions wait for their way to the undo space than memory is for.
    #[cold]
    pub(crate) async fn wait_for_undo_room(&self) {
        while self.0.versions.borrow().is_behind() {
            self.0.undo_room.wait(&self.0.executor).await;
        }
    }

    /// Goes on along a record's chain where that leaves memory.
    #[cold]
    pub(super) async fn take_back_further(
        &self,
        view: View,
        record: (PartitionId, &[u8]),
        mut past: Past,
    ) -> Result<Option<Vec<u8>>> {
        let mut piece: Option<Piece> = None;
        loop {
            let Some((extent, at, place)) = self.0.versions.borrow().leave_memory(view, record, &mut past)? else {
                return Ok(past.state);
            };
            let read = match piece.take() {
                Some(read) if read.version(extent, at).is_some() => read,
                _ => self.load_version(extent, at, &place).await?,
            };
            let stored = read.version(extent, at).expect("it was read");
            let version = Version::decode(stored).filter(|_| is_whole(stored)).ok_or_else(|| damaged(extent, at))?;
            past.put_back(record, &version);
            piece = Some(read);
        }
    }

    /// Reads the piece that holds a version.
    async fn load_version(&self, extent: u32, at: usize, place: &[Rc<Extent>]) -> Result<Piece> {
        let piece = self.load_piece(extent, at..at + chain::HEAD, place).await?;
        let length = piece.bytes.get(at - piece.start..).and_then(chain::length).ok_or_else(|| damaged(extent, at))?;
        if at + length > place.len() * self.0.undo.extent_bytes() as usize {
            return Err(damaged(extent, at));
        }
        if piece.version(extent, at).is_some() {
            Ok(piece)
        } else {
            self.load_piece(extent, at..at + length, place).await
        }
    }

    /// Reads the blocks that a range of an extent touches; they may lie in several extents of the undo space.
    async fn load_piece(&self, extent: u32, range: Range<usize>, place: &[Rc<Extent>]) -> Result<Piece> {
        let each = self.0.undo.extent_bytes() as usize;
        let (mut bytes, mut start) = (Vec::new(), range.start);
        for (number, found) in place.iter().enumerate().take(range.end.div_ceil(each)).skip(range.start / each) {
            let (from, to) = (range.start.max(number * each), range.end.min((number + 1) * each));
            let within = from - number * each..to - number * each;
            let (frame, begin) = self.0.undo.load(found, within, self.settings().undo.block_size()).await?;
            if bytes.is_empty() {
                start = number * each + begin;
            }
            bytes.extend_from_slice(&frame);
        }
        Ok(Piece { extent, start, bytes })
    }
}

fn damaged(extent: u32, at: usize) -> Error {
    let detail = format!("extent {extent} of the rollback segments holds no version at byte {at}");
    Error::DamagedTemp { file: FILE.to_owned(), offset: at as u64, detail }
}

impl Versions {
    /// Takes a record back as far as memory goes; where the version is in the undo space that comes next, if there is one.
    #[expect(clippy::type_complexity, reason = "extent, position, place")]
    fn leave_memory(
        &self,
        view: View,
        record: (PartitionId, &[u8]),
        past: &mut Past,
    ) -> Result<Option<(u32, usize, Vec<Rc<Extent>>)>> {
        self.check(view)?;
        while self.step_back(view, record, past) {}
        let Target::Extent(extent, at) = past.rest.target() else { return Ok(None) };
        Ok(match self.history.find(extent, at) {
            Found::Away(place) => Some((extent, at, place)),
            Found::Here(_) | Found::Gone => None,
        })
    }

    /// The undo space cannot take what is over the memory's share: the oldest versions are given up, whoever reads them.
    fn stay_in_memory(&mut self, error: Error) {
        self.failure = Some(error);
        while self.history.memory_bytes() > self.settings.memory && self.give_up(Lsn::MAX) {
            self.given_up += 1;
        }
    }
}
