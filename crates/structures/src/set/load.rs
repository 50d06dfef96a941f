//! Restart: images of segments come back, the search structures are built anew.

use super::layout::{self, ITEM_SIZE_MIN, SEGMENT_HEADER_SIZE, SegmentHeader, item, sequence};
use super::memory::{Finder, Set, number};
use super::parts::{PARTS, part};
use super::segment::{Segment, items};
use super::{Keys, SegmentDamage, Sets};
use crate::hash_index::Index;
use crate::key_hash;
use base::PartitionId;
use driver::Frame;

impl Sets {
    /// Takes up the image of a set's next segment: the first is number 0. It is clean in copy `copy` of the backup, from which
    /// it comes, unless it or another has a record that is outdated by one in the other; that gives way.
    ///
    /// # Errors
    /// [`SegmentDamage`] if it is no image of this segment; the set is as before then.
    ///
    /// # Panics
    /// If segments are not loaded in order, or the frame has another size.
    pub fn load(
        &mut self,
        partition: PartitionId,
        segment: u32,
        copy: usize,
        frame: Frame,
    ) -> Result<(), SegmentDamage> {
        let verified = self.verifier(partition, segment, copy).verify(frame)?;
        self.take_in(partition, verified);
        Ok(())
    }

    /// Says how many segments of a set will be loaded, so that its index need not grow piecemeal.
    pub fn expect_segments(&mut self, partition: PartitionId, segments: u32) {
        self.set_mut(partition).loading.get_or_insert_default().segments = segments as usize;
    }

    /// What [`Sets::load`] begins with, for other threads.
    pub fn verifier(&self, partition: PartitionId, segment: u32, copy: usize) -> Verifier {
        let keys = match self.set(partition).finder {
            Finder::Keyed(_) => Keys::Keyed,
            Finder::Arrival(_) => Keys::Arrival,
        };
        Verifier { partition, segment, copy, keys }
    }

    /// What [`Sets::load`] goes on with: takes up a verified image as the next segment. Its records are found after
    /// [`Sets::finish_load`].
    ///
    /// # Panics
    /// If segments are not taken up in order.
    pub fn take_in(&mut self, partition: PartitionId, verified: Verified) {
        self.set_mut(partition).take_in(verified);
    }

    /// A part of a set's index, if it is not away already and at least `records_min` records wait to be added to it. To be
    /// built, wherever, and put back before [`Sets::finish_load`].
    pub fn share(&mut self, partition: PartitionId, records_min: usize) -> Option<Share> {
        self.set_mut(partition).share(records_min)
    }

    /// Puts a part of an index back.
    pub fn put_back(&mut self, share: Share) {
        self.set_mut(share.partition).put_back(share);
    }

    /// Ends the loading of segments: builds what was put off.
    ///
    /// # Panics
    /// If a [`Share`] was not put back.
    pub fn finish_load(&mut self) {
        self.sets.iter_mut().flatten().for_each(|set| set.finish_load());
    }
}

/// Sequence numbers and numbers of arrivals are below.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// The buckets of this many records are prefetched together.
const TOGETHER: usize = 32;

/// Places of records by hash, or by number in a set of arrivals.
type Entries = Vec<(u64, u64)>;

/// What is known of the records of segments that were taken up, until the index has them.
#[derive(Default)]
pub(super) struct LoadState {
    /// By part of the index.
    waiting: [Entries; PARTS],
    /// Parts of the index that are being built elsewhere, one bit each.
    detached: u16,
    /// How many segments there will be.
    segments: usize,
    /// Records that may be earlier or later copies of others.
    suspects: Entries,
}

/// What verifies the image of one segment. It owns all that it needs, so it may do so beside the engine's thread.
#[derive(Clone, Copy, Debug)]
pub struct Verifier {
    partition: PartitionId,
    segment: u32,
    copy: usize,
    keys: Keys,
}

/// A sound image as a segment, and its records.
pub struct Verified {
    number: u32,
    header: SegmentHeader,
    segment: Segment,
    entries: Vec<Entries>,
}

/// A part of an index and what is to be added to it. It owns all that it needs, so it may be built beside the engine's thread.
pub struct Share {
    partition: PartitionId,
    part: usize,
    index: Index,
    /// About how many entries the index will have.
    expected: usize,
    entries: Entries,
    suspects: Entries,
}

impl Verifier {
    /// Whether the frame holds an image of this segment, every item within its bounds; its records by hash.
    ///
    /// # Errors
    /// [`SegmentDamage`].
    pub fn verify(self, frame: Frame) -> Result<Verified, SegmentDamage> {
        let header = self.header(&frame).map_err(SegmentDamage)?;
        let places = u64::from(self.segment) << (frame.len().ilog2() - 3);
        let mut segment = Segment::new(frame);
        segment.rebuild(header.used as usize);
        segment.dirty = 0b11 & !(1 << self.copy);
        let bytes = segment.bytes();
        let records = segment.items().filter(|(_, head)| !head.is_hole());
        let records = records.map(|(at, _)| (layout::key(bytes, at), places | (at as u64 / 8)));
        let entries = match self.keys {
            Keys::Keyed => {
                let mut entries = vec![Entries::new(); PARTS];
                records.map(|(key, place)| (key_hash(key), place)).for_each(|entry| entries[part(entry.0)].push(entry));
                entries
            }
            Keys::Arrival => vec![records.filter_map(|(key, place)| Some((number(key)?, place))).collect()],
        };
        Ok(Verified { number: self.segment, header, segment, entries })
    }

    fn header(self, bytes: &[u8]) -> Result<SegmentHeader, String> {
        let header = SegmentHeader::read(bytes)?;
        let (partition, expected) = (header.partition, self.partition.0);
        if partition != expected || header.number != self.segment {
            return Err(format!("it says that it is segment {} of partition {partition}", header.number));
        }
        let used = header.used as usize;
        if !(SEGMENT_HEADER_SIZE..=bytes.len()).contains(&used) || !used.is_multiple_of(8) {
            return Err(format!("it says that {used} of its bytes are used"));
        }
        if header.sequence.max(header.arrival) >= NUMBER_MAX {
            return Err(format!("it says that {} records have been placed", header.sequence));
        }
        let mut at = SEGMENT_HEADER_SIZE;
        while at < used {
            let head = item(bytes, at);
            let is_sound = (ITEM_SIZE_MIN..=used - at).contains(&head.size())
                && (head.is_hole() || head.needed() <= head.size() && sequence(bytes, at) <= header.sequence);
            if !is_sound {
                return Err(format!("the item at byte {at} has impossible lengths"));
            }
            if self.keys == Keys::Arrival && !head.is_hole() {
                let number = number(layout::key(bytes, at));
                if number.is_none_or(|number| number >= header.arrival) {
                    return Err(format!("the record at byte {at} has a number that was not given out"));
                }
            }
            at += head.size();
        }
        Ok(header)
    }
}

impl Share {
    /// How many records are added.
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// Adds them.
    pub fn build(mut self) -> Share {
        if self.index.count() == 0 {
            self.index.reserve(self.expected);
        }
        for piece in self.entries.chunks(TOGETHER) {
            piece.iter().for_each(|(hash, _)| self.index.prefetch(*hash));
            for &(hash, place) in piece {
                // A record whose hash another one has is compared when every segment is there.
                match self.index.find(hash, |_| true) {
                    None => self.index.insert(hash, place),
                    Some(_) => self.suspects.push((hash, place)),
                }
            }
        }
        self.entries.clear();
        self
    }
}

impl Set {
    fn take_in(&mut self, verified: Verified) {
        let Verified { number, header, segment, entries } = verified;
        assert_eq!(number as usize, self.segments.len(), "segments are loaded in order");
        assert_eq!(segment.bytes().len(), self.segment_size, "a segment is one frame");
        self.sequence = self.sequence.max(header.sequence);
        self.arrival = self.arrival.max(header.arrival);
        self.segments.push(segment);
        self.update_room(number as usize);
        let LoadState { waiting, suspects, .. } = &mut **self.loading.get_or_insert_default();
        match &mut self.finder {
            Finder::Keyed(_) => waiting.iter_mut().zip(entries).for_each(|(waiting, more)| waiting.extend(more)),
            Finder::Arrival(arrivals) => {
                entries
                    .iter()
                    .for_each(|numbers| arrivals.fill(numbers, |number, place| suspects.push((number, place))));
            }
        }
    }

    fn share(&mut self, records_min: usize) -> Option<Share> {
        let (Finder::Keyed(parts), Some(loading)) = (&mut self.finder, &mut self.loading) else { return None };
        let LoadState { waiting, detached, segments, .. } = &mut **loading;
        let is_due = |part: &usize| *detached & 1 << part == 0 && waiting[*part].len() >= records_min.max(1);
        let part = (0..PARTS).find(is_due)?;
        *detached |= 1 << part;
        let (index, entries) = (parts.take(part), std::mem::take(&mut waiting[part]));
        let expected = if index.count() > 0 { 0 } else { entries.len() * *segments / self.segments.len().max(1) };
        Some(Share { partition: self.partition, part, index, expected, entries, suspects: Entries::new() })
    }

    fn put_back(&mut self, share: Share) {
        let (Finder::Keyed(parts), Some(loading)) = (&mut self.finder, &mut self.loading) else {
            unreachable!("a share comes from a set with an index that is being loaded")
        };
        loading.detached &= !(1 << share.part);
        loading.suspects.extend(share.suspects);
        parts.put_back(share.part, share.index);
    }

    /// Makes a loaded record known, or of two copies of one record the later one.
    fn take_up(&mut self, place: u64, hash: u64) {
        let (segment, at) = self.locate(place);
        let key = layout::key(self.segments[segment].bytes(), at);
        let found = self.find(key, hash).expect("nothing is lent while segments are loaded");
        let Some(other) = found else {
            self.finder.add(key, hash, place);
            return;
        };
        let order = |place: u64| {
            let (bytes, at) = self.at(place);
            sequence(bytes, at)
        };
        let outdated = if order(other) < order(place) {
            self.finder.repoint(key, hash, other, place);
            other
        } else {
            place
        };
        let (segment, at) = self.locate(outdated);
        self.segments[segment].release(at);
        self.segments[segment].dirty = 0b11;
        self.update_room(segment);
    }

    /// Builds what is left of the index, tells copies of one record from each other, and builds the secondary indexes.
    fn finish_load(&mut self) {
        while let Some(share) = self.share(1) {
            self.put_back(share.build());
        }
        if let Some(loading) = self.loading.as_deref_mut() {
            assert_eq!(loading.detached, 0, "every share was put back");
            let suspects = std::mem::take(&mut loading.suspects);
            suspects.into_iter().for_each(|(hash, place)| self.take_up(place, hash));
        }
        let mut secondaries = std::mem::take(&mut self.secondaries);
        for secondary in secondaries.iter_mut().flatten() {
            secondary.rebuild(self.records().map(|(_, key, value)| (key, value)));
        }
        self.secondaries = secondaries;
        self.loading = None;
    }

    /// Words for what is wrong with the set, if anything.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut count = 0;
        for (number, segment) in self.segments.iter().enumerate().filter(|(_, segment)| !segment.is_lent()) {
            segment.check().map_err(|what| format!("segment {number}: {what}"))?;
            self.check_saved(number).map_err(|what| format!("segment {number}: {what}"))?;
            let deleted = items(segment.bytes(), segment.tail()).filter(|(_, head)| head.is_deleted()).count();
            if deleted > segment.uncommitted as usize {
                return Err(format!("segment {number}: {deleted} deleted records, {} shadows", segment.uncommitted));
            }
        }
        for (place, key, _) in self.records() {
            count += 1;
            if self.find(key, key_hash(key)) != Ok(Some(place)) && !self.segments.iter().any(Segment::is_lent) {
                return Err(format!("the record at place {place} is not found by its key"));
            }
        }
        if !self.segments.iter().any(Segment::is_lent) {
            if count != self.finder.count() {
                return Err(format!("{count} records, {} in the index", self.finder.count()));
            }
            let records = || self.records().map(|(_, key, value)| (key, value));
            let mut whole = self.secondaries.iter().flatten().filter(|secondary| secondary.is_whole);
            if self.loading.is_none() && !whole.all(|secondary| secondary.agrees(records())) {
                return Err("a secondary index disagrees with the records".to_owned());
            }
            let mut whole = self.secondaries.iter().flatten().filter(|secondary| secondary.is_whole);
            if self.loading.is_none() && whole.any(|secondary| secondary.is_any_twice()) {
                return Err("two records have the same contents in the fields of a unique index".to_owned());
            }
        }
        self.check_free_lists()
    }
}
