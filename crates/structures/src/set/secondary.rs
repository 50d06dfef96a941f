//! Ordered secondary indexes: from a part of the value to the keys of the records that have it.
//!
//! They are locked as b-trees are: an entry (secondary key, key) stands for a key, and the gap below it for the gap
//! below a key. Every gap that a change of a record leaves or enters is locked before the change, in the step that
//! makes it. A change that no index covers (`add_to_field` of a balance) takes none of these locks. Values of a typed
//! set are always records of its type, whichever call wrote them.

use super::Sets;
use super::schema::RecordType;
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
    },
}

impl Secondary {
    /// Whether the index may change when this part of a value does.
    pub(super) fn depends_on(&self, part: &Range<usize>) -> bool {
        let overlaps = |other: Range<usize>| part.start < other.end && other.start < part.end;
        match self {
            Secondary::Fields { record_type, fields } => fields.iter().any(|field| match record_type.part(*field) {
                Ok(part) => overlaps(part),
                Err(_) => part.end > record_type.fixed_size(),
            }),
            &Secondary::Bytes { offset, length } => overlaps(offset..offset.saturating_add(length)),
        }
    }

    /// Appends the secondary key of a value; false if the record is not in the index.
    fn key(&self, value: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Secondary::Fields { record_type, fields } => {
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
}

impl Ordered {
    pub(super) fn new(definition: Secondary) -> Ordered {
        Ordered { definition, entries: BTreeSet::new() }
    }

    fn entry(&self, key: &[u8], value: &[u8]) -> Option<Entry> {
        let mut secondary = Vec::new();
        self.definition.key(value, &mut secondary).then(|| (secondary.into(), key.into()))
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        if let Some(entry) = self.entry(key, value) {
            self.entries.insert(entry);
        }
    }

    pub(super) fn remove(&mut self, key: &[u8], value: &[u8]) {
        if let Some(entry) = self.entry(key, value) {
            let was_there = self.entries.remove(&entry);
            debug_assert!(was_there, "every record is in the index");
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
        self.entries.extend(new);
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
        self.set(partition).secondaries[secondary].range(from, to)
    }

    /// The secondary key that a value has in a secondary index; `None` if its record is not in it.
    ///
    /// # Panics
    /// If the set has no such index.
    pub fn secondary_key(&self, partition: PartitionId, secondary: usize, value: &[u8]) -> Option<Vec<u8>> {
        self.set(partition).secondaries[secondary].key(value)
    }

    /// The first entry of a secondary index beyond `from`: a secondary key and the key of its record.
    ///
    /// # Panics
    /// If the set has no such index.
    pub fn next_entry(
        &self,
        partition: PartitionId,
        secondary: usize,
        from: Bound<(&[u8], &[u8])>,
    ) -> Option<(&[u8], &[u8])> {
        self.set(partition).secondaries[secondary].beyond(from).next()
    }

    /// All of them.
    pub fn entries_beyond(
        &self,
        partition: PartitionId,
        secondary: usize,
        from: Bound<(&[u8], &[u8])>,
    ) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.set(partition).secondaries[secondary].beyond(from)
    }

    /// Whether a secondary index may change when this part of a value does.
    ///
    /// # Panics
    /// If the partition is no set.
    pub fn is_indexed(&self, partition: PartitionId, part: &Range<usize>) -> bool {
        self.set(partition).secondaries.iter().any(|secondary| secondary.depends_on(part))
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
