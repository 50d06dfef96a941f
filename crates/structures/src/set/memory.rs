//! One set: its segments, how records are found in them, and each change with its shadow and redo.

use super::arrivals::Arrivals;
use super::changes::{Before, Changes, Shadow};
use super::free_lists::FreeLists;
use super::layout::{
    self, ITEM_HEADER_SIZE, KEY_LENGTH_MAX, SEGMENT_HEADER_SIZE, SegmentHeader, item, needed, set_item,
};
use super::load::LoadState;
use super::parts::Parts;
use super::redo::{Action, Redo};
use super::secondary::Ordered;
use super::segment::{BLACK, Segment};
use super::stable::Versions;
use super::vacate::Vacating;
use super::{Capture, Keys, Refusal, SetSettings};
use crate::PrefetchDistance;
use crate::canary::{self, Canary};
use crate::difference::difference;
use crate::key_hash;
use base::PartitionId;
use driver::Frame;
use std::collections::BTreeSet;
use std::ops::Range;

/// Segments tried before an insert asks for a new one.
const SEGMENTS_TRIED_MAX: usize = 8;
/// How much of a record's memory is prefetched: its header, its key and the beginning of its value.
pub(super) const PREFETCHED_BYTES: usize = 128;
/// A segment is compacted only for at least this part of it.
const COMPACTED_MIN: usize = 32;

/// A set. Places are positions in units of 8 bytes, segments one behind the other.
pub(super) struct Set {
    pub(super) partition: PartitionId,
    pub(super) segment_size: usize,
    /// Bytes of each segment that inserts leave free.
    reserve: usize,
    /// The logarithm of the number of places in a segment.
    pub(super) shift: u32,
    pub(super) segments: Vec<Segment>,
    free_lists: FreeLists,
    /// The segment that inserts go to while it has room.
    pub(super) current: u32,
    /// How far segments are being emptied.
    pub(super) vacating: Vacating,
    pub(super) finder: Finder,
    /// By number.
    pub(super) secondaries: Vec<Option<Ordered>>,
    /// The sweep in progress.
    pub(super) capture: Option<Capture>,
    /// Memory for the records that the next sweeps save.
    pub(super) spare: Vec<Versions>,
    /// What is known of records whose segments are being loaded; secondary indexes follow at the end.
    pub(super) loading: Option<Box<LoadState>>,
    /// The hashes of the keys that were deleted from black segments of a black/white sweep.
    pub(super) buried: BTreeSet<u64>,
    /// The highest sequence number given out.
    pub(super) sequence: u64,
    /// The number of the next arrival.
    pub(super) arrival: u64,
    /// How many shadows were looked at for images.
    #[cfg(test)]
    pub(super) looked_at: std::cell::Cell<usize>,
}

/// The segment that would have to be looked at is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lent(pub(super) u32);

impl From<Lent> for Refusal {
    #[cold]
    fn from(Lent(segment): Lent) -> Refusal {
        Refusal::Lent(segment)
    }
}

/// How records are found.
#[expect(clippy::large_enum_variant, reason = "a set has one of them, which is looked at for every record")]
pub(super) enum Finder {
    Keyed(Parts),
    Arrival(Arrivals),
}

impl Finder {
    pub(super) fn count(&self) -> usize {
        match self {
            Finder::Keyed(index) => index.count(),
            Finder::Arrival(arrivals) => arrivals.count(),
        }
    }

    pub(super) fn add(&mut self, key: &[u8], hash: u64, place: u64) {
        match self {
            Finder::Keyed(index) => index.insert(hash, place),
            Finder::Arrival(arrivals) => arrivals.set(number(key).expect("arrivals have numbers"), place),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8], hash: u64, place: u64) {
        let was_there = match self {
            Finder::Keyed(index) => index.remove(hash, place),
            Finder::Arrival(arrivals) => arrivals.remove(number(key).expect("arrivals have numbers")),
        };
        assert!(was_there, "every record can be found");
    }

    pub(super) fn repoint(&mut self, key: &[u8], hash: u64, from: u64, to: u64) {
        match self {
            Finder::Keyed(index) => assert!(index.replace(hash, from, to), "every record can be found"),
            Finder::Arrival(arrivals) => arrivals.set(number(key).expect("arrivals have numbers"), to),
        }
    }
}

/// The number that is an arrival's key.
#[inline]
pub(super) fn number(key: &[u8]) -> Option<u64> {
    key.try_into().map(u64::from_be_bytes).ok()
}

/// Whether two keys are the same; keys of one word are compared without a call.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    match (<[u8; 8]>::try_from(one), <[u8; 8]>::try_from(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

impl Set {
    pub(super) fn new(settings: SetSettings) -> Set {
        let SetSettings { partition, segment_size, reserve, keys, secondaries } = settings;
        assert!(segment_size.is_power_of_two() && super::SEGMENT_SIZES.contains(&segment_size), "{segment_size} bytes");
        assert!((0.0..=0.9).contains(&reserve), "a reserve of {reserve}");
        Set {
            partition,
            segment_size,
            reserve: (reserve * segment_size as f64) as usize,
            shift: segment_size.ilog2() - 3,
            segments: Vec::new(),
            free_lists: FreeLists::new(),
            current: 0,
            vacating: Vacating::default(),
            finder: match keys {
                Keys::Keyed => Finder::Keyed(Parts::new()),
                Keys::Arrival => Finder::Arrival(Arrivals::default()),
            },
            secondaries: secondaries.into_iter().map(|definition| definition.map(Ordered::new)).collect(),
            capture: None,
            spare: Vec::new(),
            loading: None,
            buried: BTreeSet::new(),
            sequence: 0,
            arrival: 0,
            #[cfg(test)]
            looked_at: std::cell::Cell::new(0),
        }
    }

    /// The segment of a place and the position in it in bytes.
    #[inline]
    pub(super) fn locate(&self, place: u64) -> (usize, usize) {
        ((place >> self.shift) as usize, (place as usize * 8) & (self.segment_size - 1))
    }

    #[inline]
    pub(super) fn place(&self, segment: usize, at: usize) -> u64 {
        (segment as u64) << self.shift | (at as u64 / 8)
    }

    /// The bytes of the segment of a place, and the position.
    #[inline]
    pub(super) fn at(&self, place: u64) -> (&[u8], usize) {
        let (segment, at) = self.locate(place);
        (self.segments[segment].bytes(), at)
    }

    #[inline]
    pub(super) fn at_mut(&mut self, place: u64) -> (&mut [u8], usize) {
        let (segment, at) = self.locate(place);
        (self.segments[segment].bytes_mut(), at)
    }

    /// The place of the record with this key; else the lent segment in which it may be.
    #[inline]
    pub(super) fn find(&self, key: &[u8], hash: u64) -> Result<Option<u64>, Lent> {
        let mut is_lent = false;
        let found = match &self.finder {
            Finder::Keyed(index) => index.find(hash, |place| {
                let (segment, at) = self.locate(place);
                match self.segments[segment].bytes_here() {
                    Some(bytes) => is_same(layout::key(bytes, at), key),
                    None => {
                        is_lent = true;
                        true
                    }
                }
            }),
            Finder::Arrival(arrivals) => {
                let found = number(key).and_then(|number| arrivals.find(number));
                is_lent = found.is_some_and(|place| self.segments[self.locate(place).0].is_lent());
                found
            }
        };
        match found {
            Some(place) if is_lent => Err(Lent(self.locate(place).0 as u32)),
            found => Ok(found),
        }
    }

    /// Asks for what [`Set::find`] and the look at its answer will need.
    pub(super) fn prefetch(&self, hash: u64, distance: PrefetchDistance) {
        let Finder::Keyed(index) = &self.finder else { return };
        if distance == PrefetchDistance::Far {
            return index.prefetch(hash);
        }
        index.find(hash, |place| {
            let (segment, at) = self.locate(place);
            let bytes = self.segments[segment].bytes_here().and_then(|bytes| bytes.get(at..));
            if let Some(bytes) = bytes {
                driver::prefetch(&bytes[..bytes.len().min(PREFETCHED_BYTES)]);
            }
            true
        });
    }

    /// Adds an empty segment.
    pub(super) fn add_segment(&mut self, frame: Frame) {
        assert_eq!(frame.len(), self.segment_size, "a segment is one frame");
        self.segments.push(Segment::new(frame));
        self.current = self.segments.len() as u32 - 1;
        if self.capture.is_some() {
            self.segments[self.current as usize].colour = BLACK;
        }
        self.update_room(self.current as usize);
    }

    /// Bytes that inserts may use of a segment; an empty one may be filled by a single large record.
    pub(super) fn room(&self, segment: usize) -> usize {
        let found = &self.segments[segment];
        if found.is_lent() || self.vacating.segment == Some(segment) {
            0
        } else if found.is_empty() {
            found.free()
        } else {
            found.free().saturating_sub(self.reserve)
        }
    }

    #[inline]
    pub(super) fn update_room(&mut self, segment: usize) {
        let room = self.room(segment);
        self.free_lists.update(&mut self.segments, segment as u32, room);
    }

    pub(super) fn check_free_lists(&self) -> Result<(), String> {
        self.free_lists.check(&self.segments, |number| self.room(number as usize))
    }

    /// Finds room for an item of `size` bytes in a segment of an allowed colour: its place and size.
    fn allocate(&mut self, size: usize, allowed: u8) -> Result<(u64, usize), Refusal> {
        let mut refusal = Refusal::NoSegment;
        let current = self.current as usize;
        if current < self.segments.len()
            && let Some(found) = self.allocate_from(current, size, allowed, &mut refusal)
        {
            return Ok(found);
        }
        let mut tried = [0; SEGMENTS_TRIED_MAX];
        let mut count = 0;
        for (slot, number) in tried.iter_mut().zip(self.free_lists.candidates(&self.segments, size)) {
            *slot = number;
            count += 1;
        }
        for number in &tried[..count] {
            if let Some(found) = self.allocate_from(*number as usize, size, allowed, &mut refusal) {
                self.current = *number;
                return Ok(found);
            }
        }
        Err(refusal)
    }

    /// Finds room for an insert in one segment; if only its colour is in the way, that is the refusal.
    pub(super) fn allocate_from(
        &mut self,
        segment: usize,
        size: usize,
        allowed: u8,
        refusal: &mut Refusal,
    ) -> Option<(u64, usize)> {
        if self.room(segment) < size {
            return None;
        }
        if allowed == 0 || self.segments[segment].colour & !allowed != 0 {
            *refusal = Refusal::MixedColours(segment as u32);
            return None;
        }
        self.allocate_in(segment, size)
    }

    /// Finds room in one segment, reserve included.
    fn allocate_in(&mut self, segment: usize, size: usize) -> Option<(u64, usize)> {
        let found = &mut self.segments[segment];
        let piece = match found.allocate(size) {
            Some(piece) => piece,
            None if self.is_worth_compacting(segment, size) => {
                self.compact(segment);
                self.segments[segment].allocate(size)?
            }
            None => return None,
        };
        self.update_room(segment);
        Some((self.place(segment, piece.0), piece.1))
    }

    fn is_worth_compacting(&self, segment: usize, size: usize) -> bool {
        let found = &self.segments[segment];
        found.uncommitted == 0 && found.free() >= size.max(self.segment_size / COMPACTED_MIN)
    }

    /// Joins the free bytes of a segment.
    pub(super) fn compact(&mut self, segment: usize) {
        let base = self.place(segment, 0);
        let finder = &mut self.finder;
        self.segments[segment].compact(|key, from, to| {
            let hash = if matches!(finder, Finder::Keyed(_)) { key_hash(key) } else { 0 };
            finder.repoint(key, hash, base + from as u64 / 8, base + to as u64 / 8);
        });
        self.update_room(segment);
    }

    fn check_size(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if key.len() > KEY_LENGTH_MAX {
            return Err(Refusal::TooLarge { what: "a key", found: key.len(), limit: KEY_LENGTH_MAX });
        }
        let limit = self.segment_size - SEGMENT_HEADER_SIZE - ITEM_HEADER_SIZE;
        let found = key.len() + value.len();
        if found > limit { Err(Refusal::TooLarge { what: "a record of a set", found, limit }) } else { Ok(()) }
    }

    /// Notes a change at `place` that is not yet committed.
    #[inline]
    fn note(&mut self, changes: &mut Changes, place: u64, hash: u64, saved: usize, before: Before) {
        let (segment, _) = self.locate(place);
        self.segments[segment].uncommitted += 1;
        changes.shadows.push(Shadow { set: self.partition.0, place, hash, saved, before });
    }

    /// Inserts a record into a segment of an allowed colour and returns its place.
    pub(super) fn insert(
        &mut self,
        changes: &mut Changes,
        (key, hash): (&[u8], u64),
        value: &[u8],
        allowed: u8,
    ) -> Result<u64, Refusal> {
        self.check_size(key, value)?;
        if self.find(key, hash)?.is_some() {
            return Err(Refusal::Duplicate);
        }
        let allowed = if self.buried.is_empty() { allowed } else { allowed & self.colours_for(hash) };
        let (place, size) = self.allocate(needed(key.len(), value.len()), allowed)?;
        self.write(place, size, key, value);
        self.mark_new(place);
        self.finder.add(key, hash, place);
        if let Some(number) = number(key)
            && matches!(self.finder, Finder::Arrival(_))
        {
            self.arrival = self.arrival.max(number + 1);
        }
        self.for_secondaries(|secondary| secondary.add(key, value));
        Redo { partition: self.partition, key, action: Action::Insert { value } }.encode(&mut changes.redo);
        self.note(changes, place, hash, changes.saved.len(), Before::Nothing);
        Ok(place)
    }

    fn write(&mut self, place: u64, size: usize, key: &[u8], value: &[u8]) {
        self.sequence += 1;
        let sequence = self.sequence;
        let (bytes, at) = self.at_mut(place);
        layout::write_record(bytes, at, size, sequence, key, value);
    }

    #[inline]
    pub(super) fn for_secondaries(&mut self, change: impl FnMut(&mut Ordered)) {
        if self.loading.is_none() {
            let is_missed = |of: &&mut Ordered| !of.is_whole && canary::is_planted(Canary::MissedInSet);
            self.secondaries.iter_mut().flatten().filter(|of| !is_missed(of)).for_each(change);
        }
    }

    /// Whether it has a secondary index.
    pub(super) fn is_ordered(&self) -> bool {
        self.secondaries.iter().any(Option::is_some)
    }

    /// Changes a part of a value, by way of a copy in `scratch`.
    #[inline]
    pub(super) fn modify<R>(
        &mut self,
        changes: &mut Changes,
        scratch: &mut Vec<u8>,
        (place, hash): (u64, u64),
        part: Option<Range<usize>>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Refusal> {
        let (segment, at) = self.locate(place);
        let found = &mut self.segments[segment];
        found.save_first(at, changes, &mut self.spare);
        let (key, value) = layout::record_mut(found.bytes_mut(), at);
        let part = part.unwrap_or(0..value.len());
        let Some(old) = value.get_mut(part.clone()) else {
            let what = "the end of a part of a value";
            return Err(Refusal::TooLarge { what, found: part.end, limit: value.len() });
        };
        scratch.clear();
        scratch.extend_from_slice(old);
        let answer = change(scratch);
        let Some((from, to)) = difference(old, scratch) else { return Ok(answer) };
        let (saved, offset) = (changes.saved.len(), part.start + from);
        let (old, new) = (&mut old[from..to], &scratch[from..to]);
        changes.saved.extend_from_slice(old);
        Redo { partition: self.partition, key, action: Action::Patch { offset, bytes: new } }.encode(&mut changes.redo);
        old.copy_from_slice(new);
        found.uncommitted += 1;
        let before = Before::Bytes { offset: offset as u32, length: (to - from) as u32 };
        changes.shadows.push(Shadow { set: self.partition.0, place, hash, saved, before });
        let part = offset..offset + (to - from);
        if self.secondaries.iter().flatten().any(|secondary| secondary.depends_on(&part)) {
            self.follow_patch(place, offset, &changes.saved[saved..]);
        }
        Ok(answer)
    }

    /// Corrects the secondary indexes after bytes of a value were changed, which were these before.
    fn follow_patch(&mut self, place: u64, offset: usize, old_bytes: &[u8]) {
        let (bytes, at) = self.at(place);
        let (key, new) = layout::record(bytes, at);
        let (key, new, mut old) = (key.to_vec(), new.to_vec(), new.to_vec());
        old[offset..offset + old_bytes.len()].copy_from_slice(old_bytes);
        self.for_secondaries(|secondary| secondary.change(&key, &old, &new));
    }

    /// Gives a record a value of another length.
    pub(super) fn replace(
        &mut self,
        changes: &mut Changes,
        place: u64,
        key: &[u8],
        hash: u64,
        value: &[u8],
    ) -> Result<(), Refusal> {
        self.check_size(key, value)?;
        let place = self.make_room(place, key, hash, value.len())?;
        let (segment, at) = self.locate(place);
        self.segments[segment].save_first(at, changes, &mut self.spare);
        let size = needed(key.len(), value.len());
        let old_size = item(self.segments[segment].bytes(), at).size();
        let is_here = size <= old_size || self.segments[segment].extend(at, size);
        let moved = if is_here { None } else { Some(self.allocate_near(segment, size)?) };
        self.update_room(segment);
        let bytes = self.segments[segment].bytes_mut();
        let (head, saved) = (item(bytes, at), changes.saved.len());
        changes.saved.extend_from_slice(layout::value(bytes, at));
        self.for_secondaries(|secondary| secondary.change(key, &changes.saved[saved..], value));
        Redo { partition: self.partition, key, action: Action::Replace { value } }.encode(&mut changes.redo);
        let bytes = self.segments[segment].bytes_mut();
        if let Some((to, size)) = moved {
            changes.saved.truncate(saved);
            set_item(bytes, at, head.with_deleted(true));
            self.write(to, size, key, value);
            self.mark_new(to);
            self.finder.repoint(key, hash, place, to);
            let (segment, _) = self.locate(to);
            self.segments[segment].uncommitted += 1;
            self.note(changes, place, hash, saved, Before::MovedTo(to));
        } else {
            set_item(bytes, at, head.with_value_length(value.len()));
            layout::value_mut(bytes, at).copy_from_slice(value);
            let before = Before::Value { size: old_size as u32, length: (changes.saved.len() - saved) as u32 };
            self.note(changes, place, hash, saved, before);
        }
        Ok(())
    }

    /// Compacts the record's segment if its value cannot otherwise get this length there; its place afterwards.
    fn make_room(&mut self, place: u64, key: &[u8], hash: u64, value_length: usize) -> Result<u64, Refusal> {
        let (segment, at) = self.locate(place);
        let size = needed(key.len(), value_length);
        let found = &self.segments[segment];
        let more = size.saturating_sub(item(found.bytes(), at).size());
        if more == 0 || found.tail() + size <= self.segment_size || !self.is_worth_compacting(segment, size) {
            return Ok(place);
        }
        self.compact(segment);
        Ok(self.find(key, hash)?.expect("compaction keeps records"))
    }

    /// Finds room for a record's new copy, in its own segment if possible.
    fn allocate_near(&mut self, segment: usize, size: usize) -> Result<(u64, usize), Refusal> {
        if let Some((at, size)) = self.segments[segment].allocate(size) {
            return Ok((self.place(segment, at), size));
        }
        self.allocate(size, self.colours_near(segment))
    }

    pub(super) fn delete(&mut self, changes: &mut Changes, place: u64, key: &[u8], hash: u64) {
        self.finder.remove(key, hash, place);
        Redo { partition: self.partition, key, action: Action::Delete }.encode(&mut changes.redo);
        let (segment, at) = self.locate(place);
        self.segments[segment].save_first(at, changes, &mut self.spare);
        if self.is_ordered() {
            let value = layout::value(self.segments[segment].bytes(), at).to_vec();
            self.for_secondaries(|secondary| secondary.remove(key, &value));
        }
        let bytes = self.segments[segment].bytes_mut();
        let head = item(bytes, at);
        set_item(bytes, at, head.with_deleted(true));
        if self.is_black_white() && self.segments[segment].colour == BLACK {
            self.buried.insert(hash);
        }
        self.note(changes, place, hash, changes.saved.len(), Before::Here);
    }

    /// What a header of segment `number` says at present, over `used` bytes.
    pub(super) fn header(&self, number: usize, used: usize) -> SegmentHeader {
        SegmentHeader {
            partition: self.partition.0,
            number: number as u32,
            used: used as u32,
            sequence: self.sequence,
            arrival: self.arrival,
        }
    }

    /// Every record that is not deleted, with its place, segment after segment.
    pub(super) fn records(&self) -> impl Iterator<Item = (u64, &[u8], &[u8])> {
        let here = self.segments.iter().enumerate().filter(|(_, segment)| !segment.is_lent());
        here.flat_map(move |(number, segment)| {
            let records = segment.items().filter(|(_, head)| !head.is_hole() && !head.is_deleted());
            records.map(move |(at, _)| {
                (self.place(number, at), layout::key(segment.bytes(), at), layout::value(segment.bytes(), at))
            })
        })
    }
}
