//! Ranges of keys that are locked for reading, in the order of the keys: a scan holds one range, however many records it shows.
//!
//! A range is bounded by keys, whether there are such records or not (key-range locking as in Lomet, Key Range Locking
//! Strategies for Improved Concurrency, VLDB 1993), so no insert into it and no removal beside it moves its ends. What an owner
//! reads of one partition is kept as disjoint ranges that do not touch; neighbours become one.
//!
//! Nothing waits here. What another owner has to wait for is a [`Resource`](super::Resource) of the lock table: that of all the
//! ranges of one owner in one partition, which are given back together, or that of a *mark*. A mark stands on a key that an owner
//! has deleted, which a scan would not find in the tree, or that it is going to change as soon as others give back the ranges
//! which they have read, so that no later scan goes before it.

use super::Owner;
use base::{Lsn, PartitionId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// Why a key is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The owner, which holds its record's lock, has deleted it.
    Deleted,
    /// The owner waits for the ranges of others around it.
    Intended,
}

/// Keys from the first on, up to but without the second (`None`: all that follow).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpan {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl KeySpan {
    /// The keys between two bounds. The least key above `key` is `key` with a zero behind it.
    pub fn new(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> KeySpan {
        let from = match lower {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => above(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match upper {
            Bound::Included(key) => Some(above(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        KeySpan { from, to }
    }

    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    /// How many bytes its ends have.
    pub fn length(&self) -> usize {
        self.from.len() + self.to.as_ref().map_or(0, Vec::len)
    }

    /// What of it is below `key`.
    pub fn below(self, key: &[u8]) -> KeySpan {
        KeySpan { from: self.from, to: Some(key.to_vec()) }
    }

    /// What of it is above `key`.
    pub fn above(self, key: &[u8]) -> KeySpan {
        KeySpan { from: above(key), to: self.to }
    }
}

fn above(key: &[u8]) -> Vec<u8> {
    let mut above = Vec::with_capacity(key.len() + 1);
    above.extend_from_slice(key);
    above.push(0);
    above
}

/// Disjoint ranges that do not touch: where each begins, and where it ends.
#[derive(Debug, Default)]
struct Spans(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Spans {
    fn contains(&self, key: &[u8]) -> bool {
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        before.is_some_and(|(_, to)| to.as_ref().is_none_or(|to| key < to.as_slice()))
    }

    fn add(&mut self, span: KeySpan) {
        let KeySpan { from, mut to } = span;
        let before = self.0.range_mut::<[u8], _>((Bound::Unbounded, Bound::Included(&from[..]))).next_back();
        let touched = before.filter(|(_, end)| end.as_ref().is_none_or(|end| *end >= from));
        let from = match touched {
            Some((_, end)) if reaches(end, &to) => return,
            Some((begin, _)) => begin.clone(),
            None => from,
        };
        let behind = (Bound::Excluded(&from[..]), to.as_deref().map_or(Bound::Unbounded, Bound::Included));
        let swallowed: Vec<Vec<u8>> = self.0.range::<[u8], _>(behind).map(|(begin, _)| begin.clone()).collect();
        for begin in swallowed {
            let end = self.0.remove(&begin).expect("it was just found");
            if !reaches(&to, &end) {
                to = end;
            }
        }
        self.0.insert(from, to);
    }

    fn has_all(&self, span: &KeySpan) -> bool {
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(&span.from[..]))).next_back();
        before.is_some_and(|(_, to)| reaches(to, &span.to))
    }

    fn bytes(&self) -> usize {
        let entry = size_of::<(Vec<u8>, Option<Vec<u8>>)>();
        self.0.iter().map(|(from, to)| entry + from.capacity() + to.as_ref().map_or(0, Vec::capacity)).sum()
    }

    fn is_sound(&self) -> bool {
        let spans: Vec<_> = self.0.iter().collect();
        let is_parted =
            |(left, right): (&(_, &Option<Vec<u8>>), &(&Vec<u8>, _))| left.1.as_ref().is_some_and(|end| end < right.0);
        spans.iter().all(|(from, to)| to.as_ref().is_none_or(|to| *from < to))
            && spans.iter().zip(spans.iter().skip(1)).all(is_parted)
    }
}

/// Whether a range with the first end has all that one with the second end has, if they begin together.
fn reaches(end: &Option<Vec<u8>>, other: &Option<Vec<u8>>) -> bool {
    match (end, other) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(end), Some(other)) => end >= other,
    }
}

/// What an owner has read of one partition.
#[derive(Debug)]
struct Reader {
    owner: Owner,
    /// The number by which the lock table knows its ranges.
    number: u64,
    spans: Spans,
}

#[derive(Debug, Default)]
struct OfPartition {
    /// Few: transactions that read ranges at the same time.
    readers: Vec<Reader>,
    marks: BTreeMap<Rc<[u8]>, Vec<(Owner, Mark)>>,
    /// The latest commit of one that had marks.
    stamp: Lsn,
    /// Who has marks.
    markers: BTreeSet<Owner>,
}

impl OfPartition {
    /// Who alone has marks has a span searched in vain, however many there are.
    fn is_marked_by_others(&self, owner: Owner) -> bool {
        self.markers.len() > usize::from(self.markers.contains(&owner))
    }

    fn has_mark(&self, key: &[u8], mark: (Owner, Mark)) -> bool {
        self.marks.get(key).is_some_and(|marks| marks.contains(&mark))
    }

    fn unmark(&mut self, owner: Owner, key: &[u8]) {
        let marks = self.marks.get_mut(key).expect("it is marked");
        marks.retain(|(other, _)| *other != owner);
        if marks.is_empty() {
            self.marks.remove(key);
        }
    }

    fn reader(&self, owner: Owner) -> Option<&Reader> {
        self.readers.iter().find(|reader| reader.owner == owner)
    }
}

/// A key of a partition.
pub type MarkedKey = (PartitionId, Rc<[u8]>);

/// All ranges and marks of an engine.
#[derive(Debug, Default)]
pub struct KeyRanges {
    partitions: BTreeMap<PartitionId, OfPartition>,
    /// Of each owner the partitions that it has ranges in, and its marks.
    read: BTreeMap<Owner, Vec<PartitionId>>,
    marked: BTreeMap<Owner, Vec<MarkedKey>>,
    /// The number for the next reader of a partition: none comes twice.
    next: u64,
}

impl KeyRanges {
    /// Whether an owner has a range.
    pub fn has_readers(&self) -> bool {
        !self.read.is_empty()
    }

    /// Whether a key is marked.
    pub fn has_marks(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Gives an owner a range. If it is its first one in the partition, returns the number that the lock table is to know all of
    /// them by. The caller has asked for [`KeyRanges::obstacle`].
    pub fn hold(&mut self, owner: Owner, partition: PartitionId, span: KeySpan) -> Option<u64> {
        if span.is_empty() {
            return None;
        }
        let of_partition = self.partitions.entry(partition).or_default();
        if let Some(reader) = of_partition.readers.iter_mut().find(|reader| reader.owner == owner) {
            reader.spans.add(span);
            return None;
        }
        let number = self.next;
        self.next += 1;
        let mut spans = Spans::default();
        spans.add(span);
        of_partition.readers.push(Reader { owner, number, spans });
        self.read.entry(owner).or_default().push(partition);
        Some(number)
    }

    /// The mark of another owner that is in the way of a range: the first in the order of keys, or the last. What the owner holds
    /// already nothing is in the way of, nor is a change in the way that has to wait for the owner: of a record that `is_locked` by it.
    pub fn obstacle(
        &self,
        owner: Owner,
        partition: PartitionId,
        span: &KeySpan,
        wants_last: bool,
        is_locked: impl Fn(&[u8]) -> bool,
    ) -> Option<(Rc<[u8]>, Mark)> {
        let of_partition = self.partitions.get(&partition).filter(|found| found.is_marked_by_others(owner))?;
        if span.is_empty() {
            return None;
        }
        let own = of_partition.reader(owner);
        let to = span.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut marks = of_partition.marks.range::<[u8], _>((Bound::Included(&span.from[..]), to));
        let others = |(key, marks): (&Rc<[u8]>, &Vec<(Owner, Mark)>)| {
            let is_in_the_way = |mark: Mark| mark == Mark::Deleted || !is_locked(key);
            let (_, mark) = marks.iter().find(|(other, mark)| *other != owner && is_in_the_way(*mark))?;
            let is_held = own.is_some_and(|own| own.spans.contains(key));
            (!is_held).then(|| (Rc::clone(key), *mark))
        };
        if wants_last { marks.rev().find_map(others) } else { marks.find_map(others) }
    }

    /// The number of the ranges of another owner that has read a range with this key; of several the first that came.
    pub fn reader_around(&self, owner: Owner, partition: PartitionId, key: &[u8]) -> Option<u64> {
        let readers = &self.partitions.get(&partition)?.readers;
        let reader = readers.iter().find(|reader| reader.owner != owner && reader.spans.contains(key))?;
        Some(reader.number)
    }

    /// The other owners that have read a range with this key.
    pub fn readers_around(&self, owner: Owner, partition: PartitionId, key: &[u8]) -> impl Iterator<Item = Owner> {
        let readers = self.partitions.get(&partition).into_iter().flat_map(|found| &found.readers);
        readers.filter(move |reader| reader.owner != owner && reader.spans.contains(key)).map(|reader| reader.owner)
    }

    /// The other owners whose marks are in the way of a range, once for each mark: what the owner holds already nothing is in the way of.
    pub fn markers_within<'a>(
        &'a self,
        owner: Owner,
        partition: PartitionId,
        span: &'a KeySpan,
    ) -> impl Iterator<Item = Owner> + 'a {
        let is_searched = |found: &&OfPartition| !span.is_empty() && found.is_marked_by_others(owner);
        let found = self.partitions.get(&partition).filter(is_searched);
        found.into_iter().flat_map(move |found| {
            let own = found.reader(owner);
            let to = span.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let marks = found.marks.range::<[u8], _>((Bound::Included(&span.from[..]), to));
            let unheld = marks.filter(move |(key, _)| !own.is_some_and(|own| own.spans.contains(key)));
            unheld.flat_map(|(_, marks)| marks).map(|(other, _)| *other).filter(move |other| *other != owner)
        })
    }

    /// The keys that an owner has marked, the last first.
    pub fn marks_of(&self, owner: Owner) -> impl Iterator<Item = (PartitionId, &[u8])> {
        let marked = self.marked.get(&owner).into_iter().flatten();
        marked.rev().map(|(partition, key)| (*partition, &key[..]))
    }

    /// Whether the owner has marked a key.
    pub fn is_marked_by(&self, owner: Owner, partition: PartitionId, key: &[u8]) -> bool {
        let marks = self.partitions.get(&partition).and_then(|found| found.marks.get(key));
        marks.is_some_and(|marks| marks.iter().any(|(other, _)| *other == owner))
    }

    /// Whether the key is in a range of the owner.
    pub fn holds(&self, owner: Owner, partition: PartitionId, key: &[u8]) -> bool {
        let reader = self.partitions.get(&partition).and_then(|found| found.reader(owner));
        reader.is_some_and(|reader| reader.spans.contains(key))
    }

    /// Whether all of a range is the owner's.
    pub fn holds_all(&self, owner: Owner, partition: PartitionId, span: &KeySpan) -> bool {
        let reader = self.partitions.get(&partition).and_then(|found| found.reader(owner));
        span.is_empty() || reader.is_some_and(|reader| reader.spans.has_all(span))
    }

    /// Marks a key for an owner, until that ends: for what it intends, until that is withdrawn. A deletion takes the place of the
    /// intention.
    pub fn mark(&mut self, owner: Owner, partition: PartitionId, key: &[u8], mark: Mark) {
        let of_partition = self.partitions.entry(partition).or_default();
        let own = of_partition.marks.get_mut(key).and_then(|marks| marks.iter_mut().find(|(other, _)| *other == owner));
        if let Some((_, present)) = own {
            if mark == Mark::Deleted {
                *present = mark;
            }
            return;
        }
        let key = of_partition.marks.get_key_value(key).map_or_else(|| Rc::from(key), |(key, _)| Rc::clone(key));
        of_partition.marks.entry(Rc::clone(&key)).or_default().push((owner, mark));
        of_partition.markers.insert(owner);
        self.marked.entry(owner).or_default().push((partition, key));
    }

    /// Takes back the marks for what the owner intends. What it has changed has a lock of its own. Returns their keys.
    pub fn withdraw(&mut self, owner: Owner) -> Vec<MarkedKey> {
        let marked = self.marked.remove(&owner).unwrap_or_default();
        let is_intended = |(partition, key): &MarkedKey| {
            self.partitions.get(partition).is_some_and(|found| found.has_mark(key, (owner, Mark::Intended)))
        };
        let (withdrawn, kept): (Vec<_>, Vec<_>) = marked.into_iter().partition(is_intended);
        for (partition, key) in &withdrawn {
            let of_partition = self.partitions.get_mut(partition).expect("it has a mark");
            of_partition.unmark(owner, key);
            if kept.iter().all(|(of, _)| of != partition) {
                of_partition.markers.remove(&owner);
            }
        }
        if !kept.is_empty() {
            self.marked.insert(owner, kept);
        }
        withdrawn
    }

    /// Forgets what an owner has read and marked. If it has committed, who reads a range of a partition in which it had marks
    /// depends on its commit.
    pub fn end(&mut self, owner: Owner, commit: Option<Lsn>) {
        for partition in self.read.remove(&owner).into_iter().flatten() {
            let readers = &mut self.partitions.get_mut(&partition).expect("it has a reader").readers;
            readers.retain(|reader| reader.owner != owner);
        }
        for (partition, key) in self.marked.remove(&owner).into_iter().flatten() {
            let of_partition = self.partitions.get_mut(&partition).expect("it has a mark");
            of_partition.stamp = of_partition.stamp.max(commit.unwrap_or(Lsn::ZERO));
            of_partition.markers.remove(&owner);
            of_partition.unmark(owner, &key);
        }
    }

    /// The LSN that must be durable before anything may be told that a range of this partition shows: of records that are not
    /// there any more. It may be later than necessary, never earlier.
    #[inline]
    pub fn dependency(&self, partition: PartitionId) -> Lsn {
        self.partitions.get(&partition).map_or(Lsn::ZERO, |found| found.stamp)
    }

    /// About how much memory ranges and marks take, in bytes.
    pub fn bytes(&self) -> usize {
        let marks = |found: &OfPartition| found.marks.keys().map(|key| key.len() + MARK_BYTES).sum::<usize>();
        let readers = |found: &OfPartition| {
            found.readers.iter().map(|reader| size_of::<Reader>() + reader.spans.bytes()).sum::<usize>()
        };
        self.partitions.values().map(|found| size_of::<OfPartition>() + readers(found) + marks(found)).sum()
    }

    /// How many ranges an owner has in a partition.
    pub fn ranges(&self, owner: Owner, partition: PartitionId) -> usize {
        let reader = self.partitions.get(&partition).and_then(|found| found.reader(owner));
        reader.map_or(0, |reader| reader.spans.0.len())
    }

    /// Whether ranges are disjoint and do not touch, what belongs to owners agrees with what is in partitions, and no key is
    /// deleted within a range of another owner. For tests: it looks at everything.
    pub fn is_sound(&self) -> bool {
        let is_read = |partition: &PartitionId, reader: &Reader| {
            self.read.get(&reader.owner).is_some_and(|read| read.contains(partition))
        };
        let is_marked = |partition: &PartitionId, key: &Rc<[u8]>, owner: &Owner| {
            self.marked.get(owner).is_some_and(|marked| marked.contains(&(*partition, Rc::clone(key))))
        };
        let is_free = |found: &OfPartition, key: &[u8], (owner, mark): &(Owner, Mark)| {
            *mark == Mark::Intended
                || found.readers.iter().all(|reader| reader.owner == *owner || !reader.spans.contains(key))
        };
        let (mut readers, mut marks) = (0, 0);
        let is_sound = self.partitions.iter().all(|(partition, found)| {
            readers += found.readers.len();
            marks += found.marks.values().map(Vec::len).sum::<usize>();
            found.readers.iter().all(|reader| reader.spans.is_sound() && is_read(partition, reader))
                && found.marks.iter().all(|(key, of_key)| {
                    of_key.iter().all(|mark| is_marked(partition, key, &mark.0) && is_free(found, key, mark))
                })
        });
        let (read, marked) = (self.read.values().map(Vec::len).sum(), self.marked.values().map(Vec::len).sum());
        is_sound && (readers, marks) == (read, marked)
    }
}

/// What a mark takes beside its key: its two places in tables.
const MARK_BYTES: usize =
    2 * size_of::<Rc<[u8]>>() + size_of::<Vec<(Owner, Mark)>>() + size_of::<(Owner, Mark)>() + 2 * size_of::<usize>();

#[cfg(test)]
mod tests;
