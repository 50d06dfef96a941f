//! Ordered secondary indexes: from a part of the value to the keys of the records that have it.
//!
//! They are locked as b-trees are: an entry (secondary key, key) stands for a key, and the gap below it for the gap
//! below a key. Every gap that a change of a record leaves or enters is locked before the change, in the step that
//! makes it. A change that no index covers (`add_to_field` of a balance) takes none of these locks. Values of a typed
//! set are always records of its type, whichever call wrote them.
//!
//! An index that a set gets later is filled in steps, between which others change the set. It follows each change from before the first
//! step on. So an entry that a step adds is that of the record as it is then, also where that is not committed, and one that a change
//! removes may not have been added yet. Steps go in the order of visits, which does not depend on where records are, so that none is
//! passed by because it has moved.

use super::schema::RecordType;
use super::{Refusal, Sets};
use crate::canary::{self, Canary};
use base::PartitionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{Bound, Range};

/// What a secondary index orders records by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Secondary {
    /// The bytes of the value at this offset; records with shorter values are not in the index.
    Bytes {
        /// Where they begin.
        offset: usize,
        /// How many they are.
        length: usize,
    },
    /// These fields of records of this type, the first before the second and so on, in the form of
    /// [`RecordType::encode_ordered`]; records of another type are not in the index.
    Fields {
        /// The records' type.
        record_type: RecordType,
        /// The fields' positions.
        fields: Vec<usize>,
        /// Whether no two records have the same contents in them. The caller sees to that ([`Sets::other_with`]), by locks.
        is_unique: bool,
    },
}

impl Secondary {
    /// Whether the index may change when this part of a value does.
    pub(super) fn depends_on(&self, part: &Range<usize>) -> bool {
        let overlaps = |other: Range<usize>| part.start < other.end && other.start < part.end;
        match self {
            Secondary::Fields { record_type, fields, .. } => {
                fields.iter().any(|field| match record_type.part(*field) {
                    Ok(part) => overlaps(part),
                    Err(_) => part.end > record_type.fixed_size(),
                })
            }
            &Secondary::Bytes { offset, length } => overlaps(offset..offset.saturating_add(length)),
        }
    }

    fn is_unique(&self) -> bool {
        matches!(self, Secondary::Fields { is_unique: true, .. })
    }

    /// Appends the secondary key of a value; false if the record is not in the index.
    fn key(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Secondary::Fields { record_type, fields, .. } => {
                fields.iter().all(|field| record_type.encode_ordered(value, *field, out).is_ok())
            }
            &Secondary::Bytes { offset, length } => {
                let Some(part) = value.get(offset..).and_then(|rest| rest.get(..length)) else { return false };
                out.extend_from_slice(part);
                true
            }
        }
    }
}

type Entry = (Box<[u8]>, Box<[u8]>);

/// One ordered index.
pub(super) struct Ordered {
    definition: Secondary,
    entries: BTreeSet<Entry>,
    /// Whether it has all records; else it is being filled.
    pub(super) is_whole: bool,
    /// Of a unique index that is being filled: secondary keys that two records had at the same time.
    twice: BTreeSet<Box<[u8]>>,
}

/// The entries of an index that was dropped, which are given up a few at a time.
#[derive(Default)]
pub struct DroppedIndex(BTreeSet<Entry>);

impl DroppedIndex {
    /// Gives up this number of entries, or those that are left. False if none are.
    pub fn give_up(&mut self, count: usize) -> bool {
        (0..count).all(|_| self.0.pop_first().is_some())
    }
}

impl Ordered {
    pub(super) fn new(definition: Secondary) -> Ordered {
        Ordered { definition, entries: BTreeSet::new(), is_whole: true, twice: BTreeSet::new() }
    }

    fn entry(&self, key: &[u8], value: &[u8]) -> Option<Entry> {
        let mut secondary = Vec::new();
        self.definition.key(value, &mut secondary).then(|| (secondary.into(), key.into()))
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        if let Some(entry) = self.entry(key, value) {
            self.insert(entry);
        }
    }

    fn insert(&mut self, entry: Entry) {
        if !self.is_whole && self.definition.is_unique() && self.other_with(&entry.0, &entry.1).is_some() {
            self.twice.insert(entry.0.clone());
        }
        self.entries.insert(entry);
    }

    /// The key of another record than that of `key` that has this secondary key.
    fn other_with(&self, secondary: &[u8], key: &[u8]) -> Option<&[u8]> {
        let from = self.beyond(Bound::Included((secondary, &[])));
        from.take_while(|(of, _)| *of == secondary).map(|(_, other)| other).find(|other| *other != key)
    }

    /// Whether two records have the same secondary key, and must not.
    pub(super) fn is_any_twice(&self) -> bool {
        let mut last = None;
        self.definition.is_unique() && self.entries.iter().any(|(of, _)| last.replace(of) == Some(of))
    }

    pub(super) fn remove(&mut self, key: &[u8], value: &[u8]) {
        if let Some(entry) = self.entry(key, value) {
            let was_there = self.entries.remove(&entry);
            let is_missed = canary::is_planted(Canary::MissedInSet);
            debug_assert!(was_there || !self.is_whole || is_missed, "every record is in the index");
        }
    }

    /// Follows a record from one value to another.
    pub(super) fn change(&mut self, key: &[u8], old: &[u8], new: &[u8]) {
        let (old, new) = (self.entry(key, old), self.entry(key, new));
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.entries.remove(&old);
        }
        if let Some(new) = new {
            self.insert(new);
        }
    }

    /// Whether the index may change when this part of a value does.
    pub(super) fn depends_on(&self, part: &Range<usize>) -> bool {
        self.definition.depends_on(part)
    }

    /// The secondary key of a value, if its record is in the index.
    pub(super) fn key(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut secondary = Vec::new();
        self.definition.key(value, &mut secondary).then_some(secondary)
    }

    /// The entries beyond `from`, secondary keys and keys, in order.
    pub(super) fn beyond(&self, from: Bound<(&[u8], &[u8])>) -> impl Iterator<Item = (&[u8], &[u8])> {
        let from = from.map(|(secondary, key)| -> Entry { (secondary.into(), key.into()) });
        self.entries.range((from, Bound::Unbounded)).map(|(secondary, key)| (&**secondary, &**key))
    }

    /// Whether a record has this secondary key.
    pub(super) fn has(&self, secondary: &[u8], key: &[u8]) -> bool {
        self.beyond(Bound::Included((secondary, key))).next() == Some((secondary, key))
    }

    /// Takes all entries out.
    pub(super) fn take_entries(&mut self) -> DroppedIndex {
        DroppedIndex(std::mem::take(&mut self.entries))
    }

    /// Fills the index anew.
    pub(super) fn rebuild<'a>(&mut self, records: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        let entries: Vec<Entry> = records.filter_map(|(key, value)| self.entry(key, value)).collect();
        self.entries = entries.into_iter().collect();
    }

    /// Secondary keys and keys within these bounds of the secondary key, in order.
    pub(super) fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        // Behind all entries of a secondary key stands what follows it at once in the order of bytes: itself and a zero.
        let at = |secondary: &[u8]| -> Entry { (secondary.into(), Box::default()) };
        let behind = |secondary: &[u8]| -> Entry { ([secondary, &[0]].concat().into(), Box::default()) };
        let from = match from {
            Bound::Included(secondary) => Bound::Included(at(secondary)),
            Bound::Excluded(secondary) => Bound::Included(behind(secondary)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let to = match to {
            Bound::Included(secondary) => Bound::Excluded(behind(secondary)),
            Bound::Excluded(secondary) => Bound::Excluded(at(secondary)),
            Bound::Unbounded => Bound::Unbounded,
        };
        let is_sound = match (&from, &to) {
            (Bound::Included(from), Bound::Excluded(to)) => from <= to,
            _ => true,
        };
        let entries = is_sound.then(|| self.entries.range((from, to)));
        entries.into_iter().flatten().map(|(secondary, key)| (&**secondary, &**key))
    }

    /// Whether exactly these records are in the index.
    pub(super) fn agrees<'a>(&self, records: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> bool {
        let mut count = 0;
        let all_here = records.filter_map(|(key, value)| self.entry(key, value)).all(|entry| {
            count += 1;
            self.entries.contains(&entry)
        });
        all_here && count == self.entries.len()
    }
}

impl Sets {
    /// Secondary keys within bounds and the keys of their records, in order of both, from a secondary index of a set.
    ///
    /// # Panics
    /// If the set has no such index.
    pub fn range(
        &self,
        partition: PartitionId,
        secondary: usize,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        let found = self.set(partition).secondaries[secondary].as_ref();
        found.expect("the set has such an index").range(from, to)
    }

    /// The number that the next secondary index gets which is added: no other one that the set has had since it was attached has it.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn next_secondary(&self, partition: PartitionId) -> usize {
        self.set(partition).secondaries.len()
    }

    /// Adds a secondary index that has no record yet and follows every change from now on. Returns its number
    /// ([`Sets::next_secondary`]).
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn begin_secondary(&mut self, partition: PartitionId, definition: Secondary) -> usize {
        let set = self.set_mut(partition);
        set.secondaries.push(Some(Ordered { is_whole: false, ..Ordered::new(definition) }));
        set.secondaries.len() - 1
    }

    /// Adds the records from position `from` of the order of visits on to an index that was begun, as many as a step takes, after `look` has seen
    /// them. Returns where the next step begins, if there is one.
    ///
    /// # Errors
    /// [`Refusal::Lent`]; nothing was added then.
    ///
    /// # Panics
    /// If the set has no such index.
    pub fn fill_secondary(
        &mut self,
        (partition, secondary): (PartitionId, usize),
        from: u64,
        mut look: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<u64>, Refusal> {
        let taken = self.set_mut(partition).secondaries[secondary].take();
        let mut ordered = taken.expect("the index was begun");
        let add = |key: &[u8], value: &[u8]| {
            look(key, value);
            ordered.add(key, value);
        };
        let visited = self.visit(partition, from, add);
        self.set_mut(partition).secondaries[secondary] = Some(ordered);
        visited.map(|(_, next)| next)
    }

    /// The index has all records.
    ///
    /// # Panics
    /// If the set has no such index.
    pub fn end_secondary(&mut self, partition: PartitionId, secondary: usize) {
        let ordered = self.set_mut(partition).secondaries[secondary].as_mut();
        let ordered = ordered.expect("the index was begun");
        ordered.is_whole = true;
        ordered.twice.clear();
    }

    /// The secondary keys that two records have had at the same time since this was asked last, while a unique index is being filled. None
    /// is missing of those that two have when it has all records, and when those have ended that had changed one before.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn take_twice(&mut self, partition: PartitionId, secondary: usize) -> Vec<Vec<u8>> {
        let Some(Some(ordered)) = self.set_mut(partition).secondaries.get_mut(secondary) else { return Vec::new() };
        std::mem::take(&mut ordered.twice).into_iter().map(|of| of.into_vec()).collect()
    }

    /// The key of another record than that of `key` that has this secondary key in an index.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn other_with(&self, partition: PartitionId, secondary: usize, of: &[u8], key: &[u8]) -> Option<&[u8]> {
        self.ordered(partition, secondary)?.other_with(of, key)
    }

    /// Drops an index, if there is such a one. Its number stays its own.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn drop_secondary(&mut self, partition: PartitionId, secondary: usize) -> DroppedIndex {
        let dropped = self.set_mut(partition).secondaries.get_mut(secondary).and_then(Option::take);
        dropped.map_or_else(DroppedIndex::default, |ordered| DroppedIndex(ordered.entries))
    }

    fn ordered(&self, partition: PartitionId, secondary: usize) -> Option<&Ordered> {
        self.set(partition).secondaries.get(secondary)?.as_ref()
    }

    /// The secondary key that a value has in a secondary index; `None` if its record is not in it, or there is no such index.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn secondary_key(&self, partition: PartitionId, secondary: usize, value: &[u8]) -> Option<Vec<u8>> {
        self.ordered(partition, secondary)?.key(value)
    }

    /// The first entry of a secondary index beyond `from`: a secondary key and the key of its record. An index that was dropped has none.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn next_entry(
        &self,
        partition: PartitionId,
        secondary: usize,
        from: Bound<(&[u8], &[u8])>,
    ) -> Option<(&[u8], &[u8])> {
        self.ordered(partition, secondary)?.beyond(from).next()
    }

    /// All of them.
    pub fn entries_beyond(
        &self,
        partition: PartitionId,
        secondary: usize,
        from: Bound<(&[u8], &[u8])>,
    ) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ordered(partition, secondary).into_iter().flat_map(move |ordered| ordered.beyond(from))
    }

    /// Whether a secondary index may change when this part of a value does.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn is_indexed(&self, partition: PartitionId, part: &Range<usize>) -> bool {
        self.set(partition).secondaries.iter().flatten().any(|secondary| secondary.depends_on(part))
    }

    /// The number that the next record of a set of arrivals gets.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn next_arrival(&self, partition: PartitionId) -> u64 {
        self.set(partition).arrival
    }

    /// Gives a set's arrivals numbers from `next` on. Returns the number that the next one would have had.
    pub fn count_arrivals_from(&mut self, partition: PartitionId, next: u64) -> u64 {
        std::mem::replace(&mut self.set_mut(partition).arrival, next)
    }
}
