//! Emptying the last segments of a set, so that their memory, and their part of the backup, can be given back.
//!
//! Records move to segments before, together with the shadows that unfinished transactions have of them: so no transaction is
//! waited for. Nothing of it is logged, because redo names records by their keys. But a backup that had one of two segments as it
//! was before a move and the other as it was after it could lack the record. So nothing moves during a sweep; the next one
//! writes both segments.

use super::capture::ANY;
use super::changes::{Before, Changes};
use super::layout::{self, SEGMENT_HEADER_SIZE, item, set_item, set_word};
use super::memory::{Finder, Set};
use super::{Refusal, Sets};
use crate::canary::{self, Canary};
use crate::key_hash;
use base::PartitionId;
use std::collections::BTreeMap;

/// What a step has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacated {
    /// This number of records was moved; there are more in the last segment.
    Moved(u64),
    /// The last segment is gone; this number of records was moved to that end.
    Gone(u64),
    /// The segments before have no room for the records of the last one.
    Full,
}

/// Where the emptying of segments has come to.
#[derive(Clone, Copy, Default)]
pub(super) struct Vacating {
    /// The last segment, while it is being emptied: no insert goes to it.
    pub(super) segment: Option<usize>,
    /// Segments before this one have been filled.
    filled: usize,
}

/// Shadows by the place that they name: of which owner, and the how manieth.
type ShadowsByPlace = BTreeMap<u64, Vec<(usize, usize)>>;

impl Sets {
    /// Moves at most `records_max` records out of the last segment of a set to segments before, or removes it if it is empty. Its
    /// memory is free then. To be called until the set is [`Vacated::Full`], then [`Sets::end_vacating`].
    ///
    /// # Panics
    /// If a sweep is in progress.
    pub fn vacate(&mut self, partition: PartitionId, records_max: u64) -> Vacated {
        assert!(self.capture.is_none(), "nothing moves during a sweep");
        let set = self.sets[usize::from(partition.0)].as_mut().expect("the partition is a set");
        set.vacate(&mut self.owners, records_max)
    }

    /// From now on inserts may go to any segment.
    pub fn end_vacating(&mut self, partition: PartitionId) {
        self.set_mut(partition).set_vacating(Vacating::default());
    }

    /// Gives up the spare frames of this size.
    pub fn drop_spares(&mut self, size: usize) {
        self.spare.retain(|frame| frame.len() != size);
    }
}

impl Set {
    fn vacate(&mut self, owners: &mut [Changes], records_max: u64) -> Vacated {
        let Some(last) = self.segments.len().checked_sub(1) else { return Vacated::Full };
        let Vacating { segment, filled } = self.vacating;
        if segment != Some(last) {
            let taken = self.segment_size - SEGMENT_HEADER_SIZE - self.segments[last].free();
            if taken > (filled..last).map(|segment| self.room(segment)).sum() {
                return Vacated::Full;
            }
            self.set_vacating(Vacating { segment: Some(last), filled });
        }
        let Ok(moved) = self.move_out(last, owners, records_max) else { return Vacated::Full };
        if !self.segments[last].is_empty() {
            return Vacated::Moved(moved);
        }
        self.segments.pop();
        self.vacating.segment = None;
        self.current = self.current.min(last.saturating_sub(1) as u32);
        Vacated::Gone(moved)
    }

    fn set_vacating(&mut self, vacating: Vacating) {
        let before = std::mem::replace(&mut self.vacating, vacating);
        for segment in [before.segment, vacating.segment].into_iter().flatten() {
            self.update_room(segment);
        }
    }

    /// Moves records out of a segment; the refusal if there is no room for one.
    fn move_out(&mut self, segment: usize, owners: &mut [Changes], records_max: u64) -> Result<u64, Refusal> {
        let shadows = self.shadows_in(segment, owners);
        let (mut moved, mut at) = (0, SEGMENT_HEADER_SIZE);
        while at < self.segments[segment].tail() && moved < records_max {
            let head = item(self.segments[segment].bytes(), at);
            let next = at + head.size();
            if head.is_hole() {
                at = next;
                continue;
            }
            let shadowed = shadows.get(&self.place(segment, at));
            // What is rolled back finds as much room as it has left.
            let size = if shadowed.is_some() { head.size() } else { head.needed() };
            let to = self.allocate_before(segment, size)?;
            // The hole that it leaves joins one behind it.
            let tail = self.segments[segment].tail();
            let behind =
                (next < tail).then(|| item(self.segments[segment].bytes(), next)).filter(|item| item.is_hole());
            self.move_item((segment, at), to, shadowed.map_or(&[][..], Vec::as_slice), owners);
            at = next + behind.map_or(0, |hole| hole.size());
            moved += 1;
        }
        Ok(moved)
    }

    /// The shadows that name places in a segment.
    fn shadows_in(&self, segment: usize, owners: &[Changes]) -> ShadowsByPlace {
        let mut found = ShadowsByPlace::new();
        if self.segments[segment].uncommitted == 0 {
            return found;
        }
        for (owner, changes) in owners.iter().enumerate() {
            for (number, shadow) in changes.shadows.iter().enumerate().filter(|(_, of)| of.set == self.partition.0) {
                let moved_to = if let Before::MovedTo(to) = shadow.before { Some(to) } else { None };
                for place in [Some(shadow.place), moved_to].into_iter().flatten() {
                    if self.locate(place).0 == segment {
                        found.entry(place).or_default().push((owner, number));
                    }
                }
            }
        }
        found
    }

    /// Finds room in the first segment that has not been filled yet.
    fn allocate_before(&mut self, segment: usize, size: usize) -> Result<(u64, usize), Refusal> {
        let mut refusal = Refusal::NoSegment;
        while self.vacating.filled < segment {
            if let Some(found) = self.allocate_from(self.vacating.filled, size, ANY, &mut refusal) {
                return Ok(found);
            }
            self.vacating.filled += 1;
        }
        Err(refusal)
    }

    /// Moves an item, and has these shadows name its new place.
    fn move_item(
        &mut self,
        (segment, at): (usize, usize),
        (to, size): (u64, usize),
        shadows: &[(usize, usize)],
        owners: &mut [Changes],
    ) {
        let from = self.place(segment, at);
        let (moved_to, to_at) = self.locate(to);
        self.sequence += 1;
        let (before, behind) = self.segments.split_at_mut(segment);
        let (source, target) = (&mut behind[0], &mut before[moved_to]);
        let head = item(source.bytes(), at);
        let used = head.needed();
        target.bytes_mut()[to_at..to_at + used].copy_from_slice(&source.bytes()[at..at + used]);
        set_item(target.bytes_mut(), to_at, head.with_size(size).with_after_hole(false));
        set_word(target.bytes_mut(), to_at + 8, self.sequence);
        if !head.is_deleted() {
            let key = layout::key(source.bytes(), at);
            let hash = if matches!(self.finder, Finder::Keyed(_)) { key_hash(key) } else { 0 };
            self.finder.repoint(key, hash, from, to);
        }
        for &(owner, number) in shadows {
            owners[owner].by_segment.get_mut().clear();
            let shadow = &mut owners[owner].shadows[number];
            if shadow.place == from {
                shadow.place = to;
            } else {
                shadow.before = Before::MovedTo(to);
            }
        }
        source.uncommitted -= shadows.len() as u32;
        target.uncommitted += shadows.len() as u32;
        source.release(at);
        if !canary::is_planted(Canary::UnmarkedMove) {
            (source.dirty, target.dirty) = (0b11, 0b11);
        }
    }
}
