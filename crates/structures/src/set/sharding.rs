//! Changes of one set replayed by several computations at once.
//!
//! Changes of one record depend on each other, those of two do not; but all records share their set's index and its segments,
//! each of which one computation at a time may have. So replay takes three steps. First, parts of the index are detached, and
//! each looks up the records whose keys' hashes belong to it. Then groups of neighbouring segments are detached, and every
//! change is made that leaves its record in place. The rest comes last: changes that add, delete or move records, and all later
//! changes of the same keys. All changes of a key take the same way in their order.
//!
//! Each step waits for one thing in memory, first the bucket, then the record; so together they take no longer than a record
//! after the other does, on as many cores as there are.

use super::actions::add_to;
use super::layout;
use super::memory::{Finder, PREFETCHED_BYTES};
use super::parts::{PARTS, part};
use super::redo::{Action, Redo};
use super::replay::{DetachedSet, Malformed, ReplayItem, TOGETHER};
use super::segment::Segment;
use crate::hash_index::Index;
use std::collections::BTreeSet;

/// How many computations a step consists of.
pub const SHARES: usize = 8;
const PARTS_EACH: usize = PARTS / SHARES;

/// Some parts of the index, out of their place.
pub struct Lookup {
    number: usize,
    parts: [Index; PARTS_EACH],
    /// Places of a segment, as the logarithm of their number; segments of a shard.
    shift: u32,
    segments_each: usize,
}

/// Where the records are that changes are for.
#[derive(Default)]
pub struct Located {
    /// By shard: the place of a record whose key has the change's hash, and the change.
    found: [Vec<(u64, ReplayItem)>; SHARES],
    /// There is no such record.
    missing: Vec<ReplayItem>,
}

/// Some neighbouring segments, out of their place, and what is to be done there.
pub struct Shard {
    /// The first of the segments.
    first: usize,
    segments: Vec<Segment>,
    shift: u32,
    segment_size: usize,
    changes: Vec<Vec<(u64, ReplayItem)>>,
    /// What could not be done in place, in its order.
    left: Vec<ReplayItem>,
}

impl DetachedSet {
    /// Whether several computations are worthwhile for this number of changes: detaching segments has its price, too.
    pub fn may_shard(&self, changes: usize) -> bool {
        let segments = self.set.segments.len();
        let is_plain = matches!(self.set.finder, Finder::Keyed(_)) && !self.set.is_ordered();
        is_plain && segments >= SHARES && changes >= segments / 4
    }

    /// Takes the index apart.
    ///
    /// # Panics
    /// If its records are not found by key.
    pub fn lookups(&mut self) -> Vec<Lookup> {
        let (shift, segments_each) = (self.set.shift, self.segments_each());
        let Finder::Keyed(index) = &mut self.set.finder else { panic!("only keys have an index") };
        let lookup = |number| {
            let parts = std::array::from_fn(|own| index.take(number * PARTS_EACH + own));
            Lookup { number, parts, shift, segments_each }
        };
        (0..SHARES).map(lookup).collect()
    }

    /// Puts a part of the index back.
    pub fn end_lookup(&mut self, lookup: Lookup) {
        let Finder::Keyed(index) = &mut self.set.finder else { panic!("only keys have an index") };
        let first = lookup.number * PARTS_EACH;
        (first..).zip(lookup.parts).for_each(|(number, part)| index.put_back(number, part));
    }

    /// Takes the segments apart, with the changes of each. Adds to `left` what is not done there.
    pub fn shards(&mut self, located: Vec<Located>, left: &mut Vec<ReplayItem>) -> Vec<Shard> {
        let (shift, segment_size, each) = (self.set.shift, self.set.segment_size, self.segments_each());
        let mut segments = std::mem::take(&mut self.set.segments).into_iter();
        let shard = |number| {
            let segments = segments.by_ref().take(each).collect();
            Shard { first: number * each, segments, shift, segment_size, changes: Vec::new(), left: Vec::new() }
        };
        let mut shards: Vec<Shard> = (0..SHARES).map(shard).collect();
        for Located { found, missing } in located {
            shards.iter_mut().zip(found).for_each(|(shard, found)| shard.changes.push(found));
            left.extend(missing);
        }
        shards
    }

    /// Puts segments back, the first ones first, and adds what is left of their changes to `left`.
    pub fn end_shard(&mut self, shard: Shard, left: &mut Vec<ReplayItem>) {
        let is_next = shard.segments.is_empty() || self.set.segments.len() == shard.first;
        assert!(is_next, "segments come back in their order");
        self.set.segments.extend(shard.segments);
        left.extend(shard.left);
    }

    fn segments_each(&self) -> usize {
        self.set.segments.len().div_ceil(SHARES)
    }
}

impl Lookup {
    /// Finds the records that those of the changes are for whose hashes belong to its parts.
    pub fn locate(&self, changes: &[ReplayItem]) -> Located {
        let own = changes.iter().copied().filter(|change| part(change.hash) / PARTS_EACH == self.number);
        let own: Vec<ReplayItem> = own.collect();
        let mut located = Located::default();
        for piece in own.chunks(TOGETHER) {
            piece.iter().for_each(|change| self.index(change.hash).prefetch(change.hash));
            for change in piece {
                // Whether the key is the same shows when the record is there.
                match self.index(change.hash).find(change.hash, |_| true) {
                    Some(place) => {
                        let share = (place >> self.shift) as usize / self.segments_each;
                        located.found[share].push((place, *change));
                    }
                    None => located.missing.push(*change),
                }
            }
        }
        located
    }

    fn index(&self, hash: u64) -> &Index {
        &self.parts[part(hash) % PARTS_EACH]
    }
}

impl Shard {
    /// How many changes are to be replayed.
    pub fn changes(&self) -> usize {
        self.changes.iter().map(Vec::len).sum()
    }

    /// Replays what can be done in place. `bytes` are those that the changes were sorted from.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn replay(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        // Keys of which a change could not be made there.
        let mut stopped = BTreeSet::new();
        for changes in std::mem::take(&mut self.changes) {
            for piece in changes.chunks(TOGETHER) {
                for (place, _) in piece {
                    let (segment, at) = self.locate(*place);
                    let record = &self.segments[segment].bytes()[at..];
                    driver::prefetch(&record[..record.len().min(PREFETCHED_BYTES)]);
                }
                for &(place, change) in piece {
                    let at = change.at as usize;
                    let redo = Redo::decode(&mut &bytes[at..]).ok_or(Malformed(at))?;
                    let is_stopped = !stopped.is_empty() && stopped.contains(&change.hash);
                    if is_stopped || !self.replay_one(place, &redo) {
                        stopped.insert(change.hash);
                        self.left.push(change);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a change where its record is; false if that is another key's, or it takes more than that.
    fn replay_one(&mut self, place: u64, redo: &Redo<'_>) -> bool {
        let (segment, at) = self.locate(place);
        let segment = &mut self.segments[segment];
        layout::key(segment.bytes(), at) == redo.key && segment.replay_in_place(at, &redo.action)
    }

    fn locate(&self, place: u64) -> (usize, usize) {
        ((place >> self.shift) as usize - self.first, (place as usize * 8) & (self.segment_size - 1))
    }
}

impl Segment {
    /// Replays a change of the record at `at`, if it changes only the bytes of its value. A part that the value lacks is left
    /// out: a later value may be shorter.
    pub(super) fn replay_in_place(&mut self, at: usize, action: &Action<'_>) -> bool {
        let value = layout::value_mut(self.bytes_mut(), at);
        match *action {
            Action::Patch { offset, bytes } => {
                let Some(part) = value.get_mut(offset..offset.saturating_add(bytes.len())) else { return true };
                part.copy_from_slice(bytes);
            }
            Action::Add { offset, width, amount } => {
                let Some(part) = value.get_mut(offset..offset.saturating_add(width)) else { return true };
                add_to(part, amount);
            }
            Action::Insert { value: new } | Action::Replace { value: new } if new.len() == value.len() => {
                if value == new {
                    return true;
                }
                value.copy_from_slice(new);
            }
            Action::Insert { .. } | Action::Replace { .. } | Action::Delete => return false,
        }
        self.dirty = 0b11;
        true
    }
}
