//! Rollback segments: the versions of committed changes, in the order of commits, append-only, in extents. The oldest extents
//! go to the undo space when memory is short, and are discarded when no view needs them.
//!
//! Extents leave memory whole, and versions come back one at a time. Extents leave when memory's share is used up, or at an age
//! if the settings name one; by default there is none, because the share is there to be used. The undo space is written 64 KiB
//! at a time in the order of commits and read in blocks of 4 KiB along a chain. If it is too slow, transactions wait at their
//! beginning; if it is full, broken or silent, the oldest versions are discarded and their readers are told.
//!
//! Extents are numbered in their order, and no number is used twice. Links tell thirty bits of it, which is enough, because there are
//! never half as many extents at a time. A link to an extent that is gone may seem to lead to one that is there, but no view
//! follows it: it precedes a change that all of them see, since views of earlier moments are refused.

use super::chain::{self, EXTENT_BYTES_MAX, EXTENT_NUMBERS};
use super::ghosts::Ghost;
use super::spares::Spares;
use crate::temp;
use base::{Instant, Lsn};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use structures::checksum::checksum;

/// The most extents that are there at a time.
const EXTENTS_MAX: usize = EXTENT_NUMBERS as usize / 2;

/// Where an extent's versions are.
enum Place {
    Memory(Vec<u8>),
    /// In extents of the undo space, one behind the other.
    Space(Vec<Rc<temp::Extent>>),
}

/// Consecutive versions.
struct VersionExtent {
    place: Place,
    /// Bytes of all of them.
    length: usize,
    versions: u64,
    /// Those of records that one of them may have to show to a scan, and the present does not.
    ghosts: BTreeSet<Ghost>,
    /// When the last of their changes was committed.
    last_commit: Lsn,
    /// The time of the first.
    since: Instant,
    /// Whether it gets no more, because it is on its way to the undo space.
    is_closed: bool,
}

/// All extents, oldest first.
pub(super) struct History {
    /// Memory for extents of usual length.
    spares: Spares,
    /// The number of the oldest.
    first: u64,
    extents: VecDeque<VersionExtent>,
    /// How many of the oldest are not in memory.
    spilled: usize,
    memory_bytes: u64,
    bytes: u64,
    versions: u64,
}

/// A version that was looked for.
pub(super) enum FoundVersion<'a> {
    Here(&'a [u8]),
    /// It begins in the undo space, in the extent of this number, which is there.
    Spilled(u64, Vec<Rc<temp::Extent>>),
    /// It was given up.
    Gone,
}

impl Default for History {
    /// One whose extents have a version each.
    fn default() -> History {
        History::new(0)
    }
}

impl History {
    /// No versions; extents have `extent_size` bytes, which may be as many as a link can tell.
    pub(super) fn new(extent_size: usize) -> History {
        assert!(extent_size <= EXTENT_BYTES_MAX, "a link tells every position in an extent");
        let (extents, spares) = (VecDeque::new(), Spares::new(extent_size));
        History { spares, first: 0, extents, spilled: 0, memory_bytes: 0, bytes: 0, versions: 0 }
    }

    /// From the next extent on they have numbers from this one on; there is none.
    #[cfg(test)]
    pub(super) fn number_from(&mut self, first: u64) {
        assert!(self.extents.is_empty(), "an extent keeps its number");
        self.first = first;
    }

    /// Memory for more.
    pub(super) fn spares(&mut self) -> &mut Spares {
        &mut self.spares
    }

    /// Adds a stored version. An extent is closed before it would be longer than others; only a version that is longer itself
    /// makes it so. Returns its extent, as a link tells it, and its place.
    pub(super) fn add(&mut self, version: &[u8], (commit, since): (Lsn, Instant)) -> (u32, usize) {
        let extent_size = self.spares.capacity();
        let is_full = |extent: &VersionExtent| {
            extent.is_closed || extent.length > 0 && extent.length + version.len() > extent_size
        };
        if self.extents.len() == self.spilled || self.extents.back().is_none_or(is_full) {
            let place = Place::Memory(self.memory_for(version.len()));
            let (ghosts, last_commit) = (BTreeSet::new(), commit);
            let extent = VersionExtent { place, length: 0, versions: 0, ghosts, last_commit, since, is_closed: false };
            self.extents.push_back(extent);
        }
        let number = self.first + self.extents.len() as u64 - 1;
        let extent = self.extents.back_mut().expect("one was added");
        let Place::Memory(bytes) = &mut extent.place else { unreachable!("the last one stays in memory") };
        let at = bytes.len();
        bytes.extend_from_slice(version);
        extent.length = bytes.len();
        extent.versions += 1;
        extent.last_commit = commit;
        self.memory_bytes += version.len() as u64;
        self.bytes += version.len() as u64;
        self.versions += 1;
        (in_link(number), at)
    }

    /// Which one of the extents that are there a link leads to; `None` if it is gone.
    fn index(&self, extent: u32) -> Option<usize> {
        let index = extent.wrapping_sub(in_link(self.first)) % EXTENT_NUMBERS;
        Some(index as usize).filter(|index| *index < self.extents.len())
    }

    /// Whether there are more extents than links can tell from those that are gone.
    pub(super) fn has_too_many(&self) -> bool {
        self.extents.len() > EXTENTS_MAX
    }

    /// Has a ghost stay as long as an extent that is there; false if it does already.
    pub(super) fn add_ghost(&mut self, extent: u32, ghost: &Ghost) -> bool {
        let index = self.index(extent).expect("it is there");
        self.extents[index].ghosts.insert(ghost.clone())
    }

    /// The version that begins at `at` in an extent.
    pub(super) fn find(&self, extent: u32, at: usize) -> FoundVersion<'_> {
        let Some(index) = self.index(extent) else { return FoundVersion::Gone };
        match &self.extents[index].place {
            Place::Memory(bytes) => {
                let bytes = &bytes[at..];
                FoundVersion::Here(&bytes[..chain::length(bytes).expect("a link leads to a version")])
            }
            Place::Space(extents) => FoundVersion::Spilled(self.first + index as u64, extents.clone()),
        }
    }

    /// Whether the extent is there still.
    pub(super) fn has(&self, extent: u32) -> bool {
        self.index(extent).is_some()
    }

    /// Takes the oldest extent out, if all its changes were committed up to `horizon`.
    /// Returns the last commit and the ghosts.
    pub(super) fn take_oldest(&mut self, horizon: Lsn) -> Option<(Lsn, BTreeSet<Ghost>)> {
        self.extents.front().filter(|extent| extent.last_commit <= horizon)?;
        let extent = self.extents.pop_front()?;
        self.first += 1;
        self.bytes -= extent.length as u64;
        self.versions -= extent.versions;
        match extent.place {
            Place::Memory(bytes) => self.leave_memory(bytes),
            Place::Space(_) => self.spilled -= 1,
        }
        Some((extent.last_commit, extent.ghosts))
    }

    /// An extent's versions are not in memory any more.
    fn leave_memory(&mut self, versions: Vec<u8>) {
        self.memory_bytes -= versions.len() as u64;
        self.reuse(versions);
    }

    /// Memory for an extent of `length` bytes, or of the usual length if that is less.
    fn memory_for(&mut self, length: usize) -> Vec<u8> {
        if length <= self.spares.capacity() { self.spares.take() } else { Vec::with_capacity(length) }
    }

    /// Takes memory that an extent, or its copy, does not use any more.
    pub(super) fn reuse(&mut self, memory: Vec<u8>) {
        if memory.len() <= self.spares.capacity() {
            self.spares.give_back(memory);
        }
    }

    /// The number of the oldest extent in memory and a copy of it, ready to be written, whose memory is to be given back. From
    /// now on it gets no more versions; if it gets some still, it is left alone unless its oldest one was committed by `old`.
    pub(super) fn close_oldest(&mut self, old: Option<Instant>) -> Option<(u64, Vec<u8>)> {
        let is_last = self.spilled + 1 == self.extents.len();
        let extent = self.extents.get_mut(self.spilled)?;
        if is_last && !extent.is_closed && old.is_none_or(|old| extent.since > old) {
            return None;
        }
        extent.is_closed = true;
        let length = extent.length;
        let mut copy = self.memory_for(length);
        let Place::Memory(bytes) = &self.extents[self.spilled].place else { unreachable!("the oldest ones are away") };
        copy.extend_from_slice(bytes);
        let number = self.first + self.spilled as u64;
        seal(&mut copy, number);
        Some((number, copy))
    }

    /// When the oldest version that is in memory was committed.
    pub(super) fn memory_since(&self) -> Option<Instant> {
        self.extents.get(self.spilled).map(|extent| extent.since)
    }

    /// An extent has been written to the undo space; it may have been given up meanwhile.
    pub(super) fn moved(&mut self, number: u64, place: Vec<Rc<temp::Extent>>) {
        let Some(index) = number.checked_sub(self.first) else { return };
        let extent = &mut self.extents[index as usize];
        debug_assert_eq!(index as usize, self.spilled, "extents leave memory in their order");
        let before = std::mem::replace(&mut extent.place, Place::Space(place));
        let Place::Memory(versions) = before else { unreachable!("it was in memory") };
        self.spilled += 1;
        self.leave_memory(versions);
    }

    /// Bytes of all versions.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of those in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// How many versions there are.
    pub(super) fn versions(&self) -> u64 {
        self.versions
    }
}

/// What a link tells of an extent's number.
fn in_link(number: u64) -> u32 {
    (number % u64::from(EXTENT_NUMBERS)) as u32
}

/// Gives the stored versions of an extent their checksums.
fn seal(versions: &mut [u8], extent: u64) {
    let (mut rest, mut at) = (versions, 0);
    while let Some(length) = chain::length(rest) {
        let (version, behind) = rest.split_at_mut(length);
        let sum = checksum_at(version, extent, at);
        version[4..8].copy_from_slice(&sum.to_le_bytes());
        (rest, at) = (behind, at + length);
    }
}

/// Whether a version that was read from its place in an extent is as it was written.
pub(super) fn is_whole(version: &[u8], extent: u64, at: usize) -> bool {
    chain::length(version) == Some(version.len()) && version[4..8] == checksum_at(version, extent, at).to_le_bytes()
}

/// The checksum of a version at its place. Numbers of extents are not used again, places in the undo space are: a write that
/// was lost leaves a version there which is sound by itself and belongs to an earlier extent.
fn checksum_at(version: &[u8], extent: u64, at: usize) -> u32 {
    let place = (extent << EXTENT_BYTES_MAX.trailing_zeros() | at as u64).to_le_bytes();
    checksum(&version[8..]) ^ checksum(&place)
}
