//! Restart: images of segments come back, the search structures are built anew, redo is applied.

use super::actions::add_to;
use super::capture::ANY;
use super::changes::Changes;
use super::layout::{self, ITEM_SIZE_MIN, SEGMENT_HEADER_SIZE, SegmentHeader, item, sequence};
use super::memory::{Finder, Set, number};
use super::redo::{Action, Redo};
use super::segment::{Segment, items};
use super::{ApplyError, Damage, Position, Refusal, Sets, commit, roll_back};
use crate::transaction::key_hash;
use base::PartitionId;
use driver::Frame;

impl Sets {
    /// Takes up the image of a set's next segment: the first is number 0. It is clean in copy `copy` of the backup, from which
    /// it comes, unless it or another has a record that is outdated by one in the other; that gives way.
    ///
    /// # Errors
    /// [`Damage`] if it is no image of this segment; the set is as before then.
    ///
    /// # Panics
    /// If segments are not loaded in order, or the frame has another size.
    pub fn load(&mut self, partition: PartitionId, segment: u32, copy: usize, frame: Frame) -> Result<(), Damage> {
        let set = self.set_mut(partition);
        assert_eq!(segment as usize, set.segments.len(), "segments are loaded in order");
        set.load(copy, frame)
    }

    /// Ends the loading of segments: builds what was put off.
    pub fn finish_load(&mut self) {
        self.sets.iter_mut().flatten().for_each(|set| set.finish_load());
    }

    /// Repeats a transaction's changes, which are committed at once.
    ///
    /// # Errors
    /// See [`ApplyError`]; nothing was changed then, and the same bytes may be applied again.
    pub fn apply(&mut self, redo: &[u8]) -> Result<(), ApplyError> {
        self.apply_except(redo, |_| false)
    }

    /// As [`Sets::apply`], without the changes that `skip` names by their positions: those that the backup holds, as
    /// [`Sets::included`] had told at the commit.
    ///
    /// # Errors
    /// As [`Sets::apply`].
    pub fn apply_except(&mut self, redo: &[u8], skip: impl Fn(usize) -> bool) -> Result<(), ApplyError> {
        let done = self.replay_except(redo, skip);
        if done.is_ok() {
            commit(&mut self.sets, &mut self.replay);
        } else {
            roll_back(&mut self.sets, &mut self.replay, Position::default());
        }
        done
    }

    fn replay_except(&mut self, mut redo: &[u8], skip: impl Fn(usize) -> bool) -> Result<(), ApplyError> {
        for position in 0.. {
            if redo.is_empty() {
                break;
            }
            let change = Redo::decode(&mut redo).ok_or(ApplyError::Malformed)?;
            let set = self.sets.get_mut(usize::from(change.partition.0)).and_then(Option::as_mut);
            let set = set.ok_or(ApplyError::NoSet(change.partition))?;
            if !skip(position) {
                set.apply(&mut self.replay, &mut self.scratch, &change)?;
            }
        }
        Ok(())
    }
}

/// Sequence numbers and numbers of arrivals are below: nobody counts so far.
const NUMBER_MAX: u64 = 1 << 62;

/// Records whose buckets are brought into the processor's cache together.
const BATCH: usize = 32;

impl Set {
    /// Takes up an image as the next segment; it is clean in copy `copy` of the backup unless it holds an outdated record.
    fn load(&mut self, copy: usize, frame: Frame) -> Result<(), Damage> {
        assert_eq!(frame.len(), self.segment_size, "a segment is one frame");
        let segment = self.segments.len();
        let header = self.verify(segment, &frame).map_err(Damage)?;
        self.is_loading = true;
        self.sequence = self.sequence.max(header.sequence);
        self.arrival = self.arrival.max(header.arrival);
        let mut loaded = Segment::new(frame);
        loaded.rebuild(header.used as usize);
        loaded.dirty = 0b11 & !(1 << copy);
        self.segments.push(loaded);
        let found: Vec<(usize, u64)> = {
            let bytes = self.segments[segment].bytes();
            let records = self.segments[segment].items().filter(|(_, head)| !head.is_hole());
            records.map(|(at, _)| (at, key_hash(layout::key(bytes, at)))).collect()
        };
        for batch in found.chunks(BATCH) {
            if let Finder::Keyed(index) = &self.finder {
                index.warm(batch.iter().map(|(_, hash)| *hash));
            }
            batch.iter().for_each(|(at, hash)| self.take_up(segment, *at, *hash));
        }
        self.update_room(segment);
        Ok(())
    }

    /// Whether these bytes are an image of segment `segment`, every item within its bounds.
    fn verify(&self, segment: usize, bytes: &[u8]) -> Result<SegmentHeader, String> {
        let header = SegmentHeader::read(bytes)?;
        let (partition, expected) = (header.partition, self.partition.0);
        if partition != expected || header.number as usize != segment {
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
            if matches!(self.finder, Finder::Arrival(_)) && !head.is_hole() {
                let number = number(layout::key(bytes, at));
                if number.is_none_or(|number| number >= header.arrival) {
                    return Err(format!("the record at byte {at} has a number that was not given out"));
                }
            }
            at += head.size();
        }
        Ok(header)
    }

    /// Makes a loaded record known, or of two copies of one record the later one.
    fn take_up(&mut self, segment: usize, at: usize, hash: u64) {
        let place = self.place(segment, at);
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

    /// Builds the secondary indexes.
    fn finish_load(&mut self) {
        let mut secondaries = std::mem::take(&mut self.secondaries);
        for secondary in &mut secondaries {
            secondary.rebuild(self.records().map(|(_, key, value)| (key, value)));
        }
        self.secondaries = secondaries;
        self.is_loading = false;
    }

    /// Repeats one change, as part of the transaction of `changes`.
    fn apply(&mut self, changes: &mut Changes, scratch: &mut Vec<u8>, redo: &Redo<'_>) -> Result<(), ApplyError> {
        let key = redo.key;
        let hash = key_hash(key);
        let is_impossible = match self.finder {
            Finder::Keyed(_) => false,
            Finder::Arrival(_) => number(key).is_none_or(|number| number >= NUMBER_MAX),
        };
        if is_impossible {
            return Err(ApplyError::Malformed);
        }
        let found = self.find(key, hash).expect("nothing is lent during recovery");
        let done = match (redo.action, found) {
            (Action::Insert { value } | Action::Replace { value }, None) => {
                self.insert(changes, (key, hash), value, ANY).map(|_| ())
            }
            (Action::Insert { value } | Action::Replace { value }, Some(place)) => {
                self.put(changes, scratch, place, key, hash, value)
            }
            (Action::Patch { offset, bytes }, Some(place)) => {
                let part = offset..offset.saturating_add(bytes.len());
                self.modify(changes, scratch, (place, hash), Some(part), |part| part.copy_from_slice(bytes))
            }
            (Action::Add { offset, width, amount }, Some(place)) => {
                let part = offset..offset.saturating_add(width);
                self.modify(changes, scratch, (place, hash), Some(part), |part| {
                    add_to(part, amount);
                })
            }
            (Action::Delete, Some(place)) => {
                self.delete(changes, place, key, hash);
                Ok(())
            }
            (Action::Patch { .. } | Action::Add { .. } | Action::Delete, None) => Ok(()),
        };
        match done {
            Ok(()) => Ok(()),
            // A later value may be shorter.
            Err(Refusal::TooLarge { .. }) if matches!(redo.action, Action::Patch { .. } | Action::Add { .. }) => Ok(()),
            Err(Refusal::NoSegment) => Err(ApplyError::NoSegment(self.partition)),
            Err(_) => Err(ApplyError::Malformed),
        }
    }

    /// Gives a record a value of whatever length.
    pub(super) fn put(
        &mut self,
        changes: &mut Changes,
        scratch: &mut Vec<u8>,
        place: u64,
        key: &[u8],
        hash: u64,
        value: &[u8],
    ) -> Result<(), Refusal> {
        let (bytes, at) = self.at(place);
        if layout::value(bytes, at).len() != value.len() {
            return self.replace(changes, place, key, hash, value);
        }
        self.modify(changes, scratch, (place, hash), None, |old| old.copy_from_slice(value))
    }

    /// Words for what is wrong with the set, if anything.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut count = 0;
        for (number, segment) in self.segments.iter().enumerate().filter(|(_, segment)| !segment.is_lent()) {
            segment.check().map_err(|what| format!("segment {number}: {what}"))?;
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
            if !self.is_loading && !self.secondaries.iter().all(|secondary| secondary.agrees(records())) {
                return Err("a secondary index disagrees with the records".to_owned());
            }
        }
        self.check_rooms()
    }
}
