//! Restart: the changes of sets in a log are replayed. Changes of one record depend on each other, those of two do not; so each
//! set can be detached and replay its own changes on any core.

use super::actions::add_to;
use super::capture::ANY;
use super::changes::Changes;
use super::layout;
use super::load::NUMBER_MAX;
use super::memory::{Finder, Set, number};
use super::redo::{Action, Redo};
use super::{Refusal, Sets};
use crate::PrefetchDistance;
use crate::key_hash;
use base::PartitionId;
use driver::Frame;
use thiserror::Error;

/// The buckets of this many changes are prefetched together, then their records: a record takes two waits for memory. In short
/// loops, because the prefetch itself waits where a page table is to be read, and the processor looks ahead only so far.
pub(super) const TOGETHER: usize = 32;

/// A change to be replayed: the hash of its key, and where its redo stands among the bytes of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayItem {
    pub(super) hash: u64,
    pub(super) at: u32,
}

impl ReplayItem {
    /// Where its redo stands.
    pub fn at(self) -> usize {
        self.at as usize
    }
}

/// Changes by set, those of each in their order.
#[derive(Debug, Default)]
pub struct SortedChanges(Vec<Vec<ReplayItem>>);

/// Bytes that are no redo of these sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the bytes from {0} on are no change of a set")]
pub struct Malformed(pub usize);

/// Where a replay stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayStop {
    /// The change of this number needs a new segment: get frames and go on with it.
    NoRoom(usize),
    /// A change is none.
    Malformed(Malformed),
}

/// A detached set. It owns all that it needs to replay changes, so it may do so beside the engine's thread.
pub struct DetachedSet {
    pub(super) set: Box<Set>,
    /// Frames for new segments.
    frames: Vec<Frame>,
    changes: Changes,
    /// A value while it is being changed.
    scratch: Vec<u8>,
}

impl SortedChanges {
    /// Adds a transaction's changes, which stand in `bytes` from `at` up to `end`, but for those that `skip` names by their
    /// positions: those that the backup holds, as [`Sets::included`] had told at the commit.
    ///
    /// # Errors
    /// [`Malformed`].
    ///
    /// # Panics
    /// If there are 4 GiB or more before them.
    pub fn add(
        &mut self,
        bytes: &[u8],
        (at, end): (usize, usize),
        skip: impl Fn(usize) -> bool,
    ) -> Result<(), Malformed> {
        let mut rest = &bytes[at..end];
        for position in 0.. {
            if rest.is_empty() {
                break;
            }
            let at = end - rest.len();
            let Redo { partition, key, .. } = Redo::decode(&mut rest).ok_or(Malformed(at))?;
            if skip(position) {
                continue;
            }
            let number = usize::from(partition.0);
            if self.0.len() <= number {
                self.0.resize_with(number + 1, Vec::new);
            }
            let at = u32::try_from(at).map_err(|_| Malformed(at))?;
            self.0[number].push(ReplayItem { hash: key_hash(key), at });
        }
        Ok(())
    }

    /// The sets that have changes, and these.
    pub fn by_set(self) -> impl Iterator<Item = (PartitionId, Vec<ReplayItem>)> {
        let numbered = (0..).map(PartitionId).zip(self.0);
        numbered.filter(|(_, changes)| !changes.is_empty())
    }
}

impl Sets {
    /// Takes a set out of its place: until it is back, there is no such set. `None` if there is none.
    pub fn detach_for_replay(&mut self, partition: PartitionId) -> Option<DetachedSet> {
        let set = self.sets.get_mut(usize::from(partition.0))?.take()?;
        let size = set.segment_size;
        let frames = std::iter::from_fn(|| self.spare(size)).collect();
        Some(DetachedSet { set, frames, changes: Changes::default(), scratch: Vec::new() })
    }

    /// Puts a set back.
    ///
    /// # Panics
    /// If its place is taken.
    pub fn reattach(&mut self, detached: DetachedSet) {
        let place = &mut self.sets[usize::from(detached.set.partition.0)];
        assert!(place.is_none(), "a set leaves its place empty");
        *place = Some(detached.set);
        detached.frames.into_iter().for_each(|frame| self.reuse(frame));
    }

    /// Replays a transaction's changes at once, except those at the positions in `skip`. `frames` allocates frames.
    ///
    /// # Errors
    /// [`Malformed`]; some of the changes may have been replayed.
    pub fn apply(
        &mut self,
        redo: &[u8],
        skip: impl Fn(usize) -> bool,
        frames: impl Fn(usize, usize) -> Vec<Frame>,
    ) -> Result<(), Malformed> {
        let mut sorted = SortedChanges::default();
        sorted.add(redo, (0, redo.len()), skip)?;
        for (partition, changes) in sorted.by_set() {
            let Some(mut detached) = self.detach_for_replay(partition) else { continue };
            let mut from = 0;
            let done = loop {
                match detached.replay(redo, &changes, from) {
                    None => break Ok(()),
                    Some(ReplayStop::Malformed(what)) => break Err(what),
                    Some(ReplayStop::NoRoom(number)) => {
                        let (count, size) = detached.growth();
                        detached.grow(frames(count, size));
                        from = number;
                    }
                }
            };
            self.reattach(detached);
            done?;
        }
        Ok(())
    }
}

impl DetachedSet {
    /// How many frames it wants to grow by, and their size.
    pub fn growth(&self) -> (usize, usize) {
        (self.set.growth(), self.set.segment_size)
    }

    /// Takes frames for new segments.
    pub fn grow(&mut self, frames: Vec<Frame>) {
        self.frames.extend(frames);
    }

    /// Replays changes from number `from` on, each of which is committed at once. `bytes` are those that they were sorted from.
    /// Returns where it stopped if it did not come to the end.
    pub fn replay(&mut self, bytes: &[u8], changes: &[ReplayItem], from: usize) -> Option<ReplayStop> {
        for (piece, number) in changes[from..].chunks(TOGETHER).zip((from..).step_by(TOGETHER)) {
            for distance in [PrefetchDistance::Far, PrefetchDistance::Near] {
                piece.iter().for_each(|change| self.set.prefetch(change.hash, distance));
            }
            for (change, number) in piece.iter().zip(number..) {
                if let Err(stopped) = self.replay_one(bytes, *change, number) {
                    return Some(stopped);
                }
            }
        }
        None
    }

    fn replay_one(
        &mut self,
        bytes: &[u8],
        ReplayItem { hash, at }: ReplayItem,
        number: usize,
    ) -> Result<(), ReplayStop> {
        let malformed = ReplayStop::Malformed(Malformed(at as usize));
        let redo = Redo::decode(&mut &bytes[at as usize..]).ok_or(malformed)?;
        while let Err(refusal) = self.set.apply(&mut self.changes, &mut self.scratch, hash, &redo) {
            debug_assert!(self.changes.shadows.is_empty(), "a change is made whole or not at all");
            if refusal != Refusal::NoSegment {
                return Err(malformed);
            }
            self.set.add_segment(self.frames.pop().ok_or(ReplayStop::NoRoom(number))?);
        }
        for shadow in &self.changes.shadows {
            self.set.commit(shadow);
        }
        self.changes.clear();
        Ok(())
    }
}

impl Set {
    /// Replays one change, as part of the transaction of `changes`.
    fn apply(
        &mut self,
        changes: &mut Changes,
        scratch: &mut Vec<u8>,
        hash: u64,
        redo: &Redo<'_>,
    ) -> Result<(), Refusal> {
        let key = redo.key;
        if matches!(self.finder, Finder::Arrival(_)) && number(key).is_none_or(|number| number >= NUMBER_MAX) {
            return Err(Refusal::Missing);
        }
        let found = self.find(key, hash).expect("nothing is lent during recovery");
        if let Some(place) = found.filter(|_| !self.is_ordered()) {
            // A restart replays committed changes only, so there is nothing to undo.
            let (segment, at) = self.locate(place);
            if self.segments[segment].replay_in_place(at, &redo.action) {
                return Ok(());
            }
        }
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
            // A later value may be shorter.
            Err(Refusal::TooLarge { .. }) if matches!(redo.action, Action::Patch { .. } | Action::Add { .. }) => Ok(()),
            done => done,
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_beyond_four_gibibytes_is_malformed() {
        let at = (1 << 32) + 8;
        // No memory is touched but the last page.
        let mut bytes = vec![0; at];
        Redo { partition: PartitionId(1), key: b"k", action: Action::Delete }.encode(&mut bytes);
        let added = SortedChanges::default().add(&bytes, (at, bytes.len()), |_| false);
        assert_eq!(added, Err(Malformed(at)));
    }
}
