//! Stable versions: the records of segments that a sweep has still to take, as they were when it began.
//!
//! As CALC (Ren, Diamond, Abadi and Thomson, "Low-Overhead Asynchronous Checkpointing in Main-Memory Database Systems", SIGMOD
//! 2016): beside its live version a record has a stable one while they differ, and one bit says whether it has; the first
//! change of a record since the point of consistency copies it. The bit stands in the record's own header, which a change reads
//! anyway. A segment's stable versions stand one behind the other, in the form that records have in segments, in memory that
//! later sweeps reuse. So a first change costs one copy of the record and a later one a test of a bit, without a search. An
//! image is put together from the records without the bit and the stable versions.
//!
//! Two things are simpler here. The point of consistency is one step of a single thread, so that CALC's phases before the
//! capture (prepare, resolve) come down to saving what unfinished transactions have changed, with their shadows undone. And
//! the capture removes the bits of a segment when it takes it, where CALC lets them change their meaning at the end.
//!
//! A record that is put into a white segment after the beginning gets the bit and no stable version: there was none. A
//! transaction that is rolled back leaves bits and versions, which are right on.
//!
//! Stable versions are laid out where a segment could have them, so an image consists of runs of the segment and of
//! that memory. Undo shadows would be shorter, but a record that every transaction changes would have one for each, and
//! none could be put back after its segment was compacted.

use super::capture::{Preserved, PreservedState};
use super::changes::{Before, Changes};
use super::ending::undo_in;
use super::layout::{SEGMENT_HEADER_SIZE, item, set_item};
use super::memory::Set;
use super::segment::Segment;
use std::collections::BTreeMap;

/// Bytes that are made room for when a segment's first record is saved.
const ROOM_MIN: usize = 1 << 10;

/// Stable versions of the records of a segment, as items one behind the other.
pub(super) type Versions = Vec<u8>;

impl Segment {
    /// Its stable versions, if it has any.
    fn versions(&mut self) -> Option<&mut Versions> {
        match &mut self.preserved.as_mut()?.state {
            PreservedState::Records(versions) => Some(versions),
            PreservedState::Image(_) => None,
        }
    }

    /// Gives the item at `at` the bit; its bytes, and where a stable version is to go.
    #[inline]
    fn mark(&mut self, at: usize, spare: &mut Vec<Versions>) -> (&[u8], &mut Versions) {
        let dirty = self.dirty;
        let preserved = self.preserved.get_or_insert_with(|| {
            let versions = spare.pop().unwrap_or_else(|| Vec::with_capacity(ROOM_MIN));
            Box::new(Preserved { dirty, state: PreservedState::Records(versions) })
        });
        let PreservedState::Records(versions) = &mut preserved.state else {
            unreachable!("a sweep saves records or images")
        };
        let bytes = self.frame.as_mut().expect("a lent segment is not changed");
        let head = item(bytes, at);
        set_item(bytes, at, head.with_saved(true));
        (&bytes[at..], versions)
    }

    /// Saves the record at `at`, if a sweep in progress needs it and has not got it yet. Must be called before a record is
    /// changed.
    #[inline]
    pub(super) fn save_first(&mut self, at: usize, changes: &mut Changes, spare: &mut Vec<Versions>) {
        if self.saves {
            let head = item(self.bytes(), at);
            if !head.is_saved() {
                self.save(at, head.needed(), spare);
                changes.kept_bytes += head.needed() as u64;
            }
        }
    }

    /// Saves the item at `at`; returns where its copy of `size` bytes begins.
    #[inline(never)]
    fn save(&mut self, at: usize, size: usize, spare: &mut Vec<Versions>) -> usize {
        let (bytes, versions) = self.mark(at, spare);
        let start = versions.len();
        versions.extend_from_slice(&bytes[..size]);
        let head = item(versions, start).with_size(size);
        set_item(versions, start, head.with_after_hole(false).with_saved(false));
        start
    }
}

impl Set {
    /// Notes that there was no record at a place when the sweep in progress began.
    #[inline]
    pub(super) fn mark_new(&mut self, place: u64) {
        let (segment, at) = self.locate(place);
        if self.segments[segment].saves {
            self.segments[segment].mark(at, &mut self.spare);
        }
    }

    /// Removes what was saved of a segment.
    pub(super) fn forget_versions(&mut self, segment: usize) {
        let found = &mut self.segments[segment];
        found.saves = false;
        if found.versions().is_none() {
            return;
        }
        if let Some(preserved) = found.preserved.take()
            && let PreservedState::Records(mut versions) = preserved.state
        {
            versions.clear();
            self.spare.push(versions);
        }
        let (mut at, tail) = (SEGMENT_HEADER_SIZE, found.tail());
        let bytes = found.bytes_mut();
        while at < tail {
            let head = item(bytes, at);
            if head.is_saved() {
                set_item(bytes, at, head.with_saved(false));
            }
            at += head.size();
        }
    }

    /// Writes to `out` a segment as it was when the sweep in progress began: the records that were not changed since, and the
    /// stable versions of the others. They fit: each takes at most what it took then.
    pub(super) fn stable_image(&self, segment: usize, versions: &[u8], out: &mut [u8]) {
        // Bytes that come one after the other come faster from memory than items do, so that the gaps are closed in the copy.
        let tail = self.segments[segment].tail();
        out[..tail].copy_from_slice(&self.segments[segment].bytes()[..tail]);
        let (mut at, mut from, mut end) = (SEGMENT_HEADER_SIZE, SEGMENT_HEADER_SIZE, SEGMENT_HEADER_SIZE);
        while at < tail {
            let head = item(out, at);
            if head.is_hole() || head.is_saved() {
                out.copy_within(from..at, end);
                end += at - from;
                from = at + head.size();
            }
            at += head.size();
        }
        out.copy_within(from..tail, end);
        end += tail - from;
        out[end..end + versions.len()].copy_from_slice(versions);
        end += versions.len();
        out[end..].fill(0);
        self.header(segment, end).seal(out);
    }

    /// Words for what is wrong with the bits, if anything.
    pub(super) fn check_saved(&self, segment: usize) -> Result<(), String> {
        let found = &self.segments[segment];
        let is_saving = found.preserved.as_ref().is_some_and(|found| matches!(found.state, PreservedState::Records(_)));
        match found.items().find(|(_, head)| head.is_saved() && (head.is_hole() || !is_saving)) {
            Some((at, _)) => Err(format!("the item at {at} looks saved and is not")),
            None => Ok(()),
        }
    }
}

/// Saves the records that unfinished transactions have changed, as they were before.
pub(super) fn save_unfinished(sets: &mut [Option<Box<Set>>], owners: &[Changes]) {
    for changes in owners {
        // Where the copy of each item begins; it is as long as the item, so that the way back has room.
        let mut copies: BTreeMap<(u16, u64), usize> = BTreeMap::new();
        let mut undo = |number: u16, place: u64, before: &Before, saved: &[u8]| {
            let set = sets[usize::from(number)].as_mut().expect("it had been changed");
            let (segment, at) = set.locate(place);
            let (found, spare) = (&mut set.segments[segment], &mut set.spare);
            let size = item(found.bytes(), at).size();
            let copy = *copies.entry((number, place)).or_insert_with(|| found.save(at, size, spare));
            undo_in(found.versions().expect("a record is saved"), copy, before, saved);
        };
        for shadow in changes.shadows.iter().rev() {
            if let Before::MovedTo(to) = shadow.before {
                undo(shadow.set, to, &Before::Nothing, &[]);
            }
            undo(shadow.set, shadow.place, &shadow.before, shadow.bytes(&changes.saved));
        }
    }
}
