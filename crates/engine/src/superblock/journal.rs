//! The catalog as the file keeps it: a journal of what became of each number, and now and then all of it anew.

use super::change::{CatalogChange, StoredIndex};
use super::mirror::{BLOCK, COPIES, Mirror, MirrorCopy, REGION};
use crate::catalog::{IndexInSet, IndexTree, Partition, Schema, SecondaryIndex};
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use driver::FaultKind;
use executor::Executor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::checksum::checksum;

const HEADER: usize = 16;
/// About how many bytes of changes one entry has where the catalog is written anew.
const ENTRY_BYTES: usize = 32 << 10;
/// The journal is rewritten when it is longer than twice its contents by this number of bytes.
const SLACK: u64 = 256 << 10;
/// Room that each append leaves behind it, so that what a creation begins it can also end.
const RESERVE: u64 = 4 * BLOCK;
/// How many numbers are skipped after an append that failed in this run, should it not be readable: more than the catalog has
/// entries.
const NUMBERS_BETWEEN: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartitionState {
    Begun,
    Live,
    Dropped,
}

/// Where the journal lies in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) length: u64,
    /// The number of its first entry; the next one has the next.
    pub(super) first: u64,
    /// How many entries it has.
    pub(super) entries: u64,
}

impl Span {
    fn end(&self) -> u64 {
        self.start + self.length
    }

    fn overlaps(&self, (from, to): (u64, u64)) -> bool {
        self.length > 0 && from < self.end() && self.start < to
    }
}

/// The journal.
#[derive(Default)]
pub(super) struct Journal {
    numbers: BTreeMap<u16, (Rc<Partition>, PartitionState)>,
    next: u32,
    segments: Vec<(u16, u32)>,
    /// Of those partitions whose backup is known, dropped ones among them until the next sweep.
    images: BTreeMap<u16, u32>,
    /// From where on calls find a partition; all of them find others.
    since: BTreeMap<u16, u64>,
    /// Which b-trees are secondary indexes.
    indexes: BTreeMap<u16, StoredIndex>,
    /// By set and number: its secondary indexes that its schema does not say, and those that it says and that are gone.
    of_sets: BTreeMap<(u16, u16), Option<StoredIndex>>,
    /// About how many bytes all of it takes.
    bytes: u64,
    /// What was appended.
    pub(super) span: Span,
    /// What a copy of the superblock may name: both name one of them, or one does and the other has failed, perhaps many times.
    named: Vec<Span>,
    /// What the next append says.
    queue: Vec<CatalogChange>,
    /// How many appends have failed one after the other. Each may have left whole entries in one of the copies, so none that
    /// comes later has their numbers in their place: where its write to that copy is lost, theirs would be taken for it.
    failed: u64,
}

impl Journal {
    /// The catalog of a database of an earlier format. There a creation that was cut off has left its number to the next one:
    /// that number is not given out again.
    pub(super) fn of_earlier(partitions: Vec<Partition>, segments: Vec<(u16, u32)>) -> Journal {
        let mut journal = Journal { next: partitions.len() as u32 + 1, segments, ..Journal::default() };
        for partition in partitions {
            let id = partition.id;
            begin(&partition).into_iter().for_each(|change| journal.apply(change));
            journal.apply(CatalogChange::Enter(id));
        }
        journal
    }

    /// Every partition of the database, by number, with its secondary indexes.
    pub(super) fn live(&self) -> impl Iterator<Item = Rc<Partition>> {
        let live = self.of_state(|state| state == PartitionState::Live);
        live.filter(|partition| !self.is_forgotten(partition.id)).map(|partition| self.with_indexes(partition))
    }

    fn is_forgotten(&self, id: u16) -> bool {
        canary::is_planted(Canary::ForgottenIndex) && self.indexes.contains_key(&id)
    }

    /// What a partition is with what the catalog says of indexes.
    fn with_indexes(&self, partition: &Rc<Partition>) -> Rc<Partition> {
        if let Some(index) = self.indexes.get(&partition.id) {
            return Rc::new(Partition { index_of: Some(PartitionId(index.base)), ..(**partition).clone() });
        }
        if partition.set_settings().is_some() {
            return self.with_indexes_of_set(partition);
        }
        let is_live = |id: &u16| self.numbers.get(id).is_some_and(|(_, state)| *state == PartitionState::Live);
        let of_it = self
            .indexes
            .iter()
            .filter(|(id, index)| index.base == partition.id && is_live(id) && !self.is_forgotten(**id));
        let secondaries: Vec<SecondaryIndex> = of_it
            .map(|(id, index)| {
                let tree = IndexTree { id: PartitionId(*id), since: Some(Lsn(index.since)) };
                let StoredIndex { name, fields, is_unique, .. } = index.clone();
                SecondaryIndex { name, fields, is_unique, tree: Some(tree), in_set: None }
            })
            .collect();
        match &partition.schema {
            Some(schema) if !secondaries.is_empty() => Rc::new(partition.with_indexes(&schema.record, secondaries)),
            _ => Rc::clone(partition),
        }
    }

    /// The same of a set: the indexes of its schema have their positions there as numbers.
    fn with_indexes_of_set(&self, partition: &Rc<Partition>) -> Rc<Partition> {
        let Some(schema) = partition.schema.clone().map(Schema::of_new_set) else { return Rc::clone(partition) };
        let first = schema.secondaries.into_iter().filter_map(|index| Some((index.number()? as u16, index)));
        let mut numbered: BTreeMap<u16, SecondaryIndex> = first.collect();
        let later = self.of_sets.range((partition.id, 0)..=(partition.id, u16::MAX));
        for ((_, number), stored) in later.filter(|_| !canary::is_planted(Canary::ForgottenIndex)) {
            numbered.remove(number);
            if let Some(StoredIndex { name, fields, is_unique, since, .. }) = stored.clone() {
                let in_set = Some(IndexInSet { number: *number, since: Some(Lsn(since)) });
                numbered.insert(*number, SecondaryIndex { name, fields, is_unique, tree: None, in_set });
            }
        }
        Rc::new(partition.with_indexes(&schema.record, numbered.into_values().collect()))
    }

    /// Those that have left files behind, perhaps: their creation was cut off, or they were dropped.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = &Rc<Partition>> {
        self.of_state(|state| state != PartitionState::Live)
    }

    fn of_state(&self, wanted: impl Fn(PartitionState) -> bool) -> impl Iterator<Item = &Rc<Partition>> {
        self.numbers.values().filter(move |(_, state)| wanted(*state)).map(|(partition, _)| partition)
    }

    /// Greater than every number that was given out.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn segments(&self) -> &[(u16, u32)] {
        &self.segments
    }

    pub(super) fn images(&self) -> Vec<(u16, u32)> {
        self.images.iter().map(|(id, sum)| (*id, *sum)).collect()
    }

    pub(super) fn since(&self, id: u16) -> u64 {
        self.since.get(&id).copied().unwrap_or(0)
    }

    pub(super) fn limit_since(&mut self, end: u64) {
        for (id, since) in self.since.iter_mut().filter(|(_, since)| **since > end) {
            *since = end;
            self.queue.push(CatalogChange::Since(*id, end));
        }
        for (id, index) in self.indexes.iter_mut().filter(|(_, index)| index.since > end) {
            index.since = end;
            self.queue.push(CatalogChange::Index(*id, index.clone()));
        }
        let of_sets = self.of_sets.iter_mut().filter_map(|((_, number), index)| Some((number, index.as_mut()?)));
        for (number, index) in of_sets.filter(|(_, index)| index.since > end) {
            index.since = end;
            self.queue.push(CatalogChange::SetIndex(*number, index.clone()));
        }
    }

    /// Adds changes to what the next append says.
    pub(super) fn queue(&mut self, changes: impl IntoIterator<Item = CatalogChange>) {
        self.queue.extend(changes);
    }

    /// States how many segments the backup has and which images, if that is new.
    pub(super) fn queue_backup(&mut self, segments: &[(u16, u32)], images: &[(u16, u32)]) {
        // What an append has failed to say is out of date.
        self.queue.retain(|change| !matches!(change, CatalogChange::Images(_)));
        if !images.iter().map(|(id, sum)| (id, sum)).eq(&self.images) {
            let images: BTreeMap<u16, u32> = images.iter().copied().collect();
            let new = images.iter().filter(|(id, sum)| self.images.get(id) != Some(*sum));
            let gone = self.images.keys().filter(|id| !images.contains_key(id));
            let changed = new.map(|(id, sum)| (*id, Some(*sum))).chain(gone.map(|id| (*id, None)));
            self.queue.push(CatalogChange::Images(changed.collect()));
        }
        self.queue_segments(segments);
    }

    fn queue_segments(&mut self, segments: &[(u16, u32)]) {
        let queued = self.queue.iter().rev().find_map(|change| match change {
            CatalogChange::Segments(segments) => Some(&segments[..]),
            _ => None,
        });
        if queued.unwrap_or(&self.segments) != segments {
            self.queue.push(CatalogChange::Segments(segments.to_vec()));
        }
    }

    fn apply(&mut self, change: CatalogChange) {
        match change {
            CatalogChange::Begin(mut partition, schema) => {
                partition.schema = schema;
                // Databases of earlier releases of format 10 say here what a b-tree was created with.
                partition.schema = own_schema(&partition);
                self.next = self.next.max(u32::from(partition.id) + 1);
                // One whose records have lost their type again is stated anew.
                if let Some((before, _)) = self.numbers.remove(&partition.id) {
                    self.bytes -= stated_bytes(&before);
                    *partition = partition.with_files(before.stem().to_owned());
                }
                self.bytes += stated_bytes(&partition);
                self.numbers.insert(partition.id, (Rc::new(*partition), PartitionState::Begun));
            }
            CatalogChange::Enter(id) => self.set(id, PartitionState::Live),
            CatalogChange::Drop(id) => self.set(id, PartitionState::Dropped),
            CatalogChange::Gone(id) => {
                self.since.remove(&id);
                self.indexes.remove(&id);
                self.of_sets.retain(|(base, _), _| *base != id);
                if let Some((partition, _)) = self.numbers.remove(&id) {
                    self.bytes -= stated_bytes(&partition);
                }
            }
            CatalogChange::Segments(segments) => self.segments = segments,
            CatalogChange::Next(next) => self.next = self.next.max(next),
            CatalogChange::Since(id, since) => drop(self.since.insert(id, since)),
            CatalogChange::Index(id, index) => drop(self.indexes.insert(id, index)),
            CatalogChange::SetIndex(number, index) => drop(self.of_sets.insert((index.base, number), Some(index))),
            CatalogChange::SetIndexGone(id, number) => {
                let schema = self.numbers.get(&id).and_then(|(partition, _)| partition.schema.as_ref());
                if schema.is_some_and(|schema| usize::from(number) < schema.secondaries.len()) {
                    self.of_sets.insert((id, number), None);
                } else {
                    self.of_sets.remove(&(id, number));
                }
            }
            CatalogChange::Type(id, record) => self.restate(id, |found| found.with_indexes(&record, Vec::new())),
            CatalogChange::Files(id, stem) => self.restate(id, |found| found.clone().with_files(stem)),
            CatalogChange::Rename(id, name) => self.restate(id, |found| found.renamed(name)),
            CatalogChange::Images(images) => {
                for (id, sum) in images {
                    match sum {
                        Some(sum) => drop(self.images.insert(id, sum)),
                        None => drop(self.images.remove(&id)),
                    }
                }
            }
        }
    }

    /// Something else is true of a partition.
    fn restate(&mut self, id: u16, changed: impl FnOnce(&Partition) -> Partition) {
        if let Some((partition, _)) = self.numbers.get_mut(&id) {
            self.bytes -= stated_bytes(partition);
            *partition = Rc::new(changed(partition));
            self.bytes += stated_bytes(partition);
        }
    }

    fn set(&mut self, id: u16, state: PartitionState) {
        if let Some(entry) = self.numbers.get_mut(&id) {
            entry.1 = state;
        }
    }

    /// All that is to be known, in changes.
    pub(super) fn image(&self) -> Vec<CatalogChange> {
        let mut image = vec![CatalogChange::Next(self.next), CatalogChange::Segments(self.segments.clone())];
        for (id, (partition, state)) in &self.numbers {
            image.extend(begin(partition));
            match state {
                PartitionState::Begun => {}
                PartitionState::Live => image.push(CatalogChange::Enter(*id)),
                PartitionState::Dropped => image.push(CatalogChange::Drop(*id)),
            }
        }
        image.extend(self.indexes.iter().map(|(id, index)| CatalogChange::Index(*id, index.clone())));
        image.extend(self.of_sets.iter().map(|((id, number), index)| match index {
            Some(index) => CatalogChange::SetIndex(*number, index.clone()),
            None => CatalogChange::SetIndexGone(*id, *number),
        }));
        image.extend(self.since.iter().map(|(id, since)| CatalogChange::Since(*id, *since)));
        image.push(CatalogChange::Images(self.images.iter().map(|(id, sum)| (*id, Some(*sum))).collect()));
        image
    }

    /// Appends what is queued, to both copies, or writes all of it anew where nothing is that a superblock names. Nothing is
    /// true of it before a superblock names it.
    ///
    /// # Errors
    /// The driver's. What was queued still is, and will be appended by the next call.
    pub(super) async fn append(&mut self, executor: &Executor, mirror: &mut Mirror) -> Result<()> {
        if self.queue.is_empty() && self.span.length > 0 {
            return Ok(());
        }
        if self.failed > 0 {
            match self.rewrite(executor, mirror).await {
                // There is room for the next entry behind the others.
                Err(Error::Input(fault)) if fault.kind == FaultKind::NoSpace => {}
                written => return written,
            }
        }
        let entry = sealed(self.span.first + self.span.entries, &self.queue);
        let length = entry.len() as u64;
        let (at, to) = (self.span.end(), self.span.end() + length);
        let mut elsewhere = self.named.iter().filter(|named| named.start != self.span.start);
        let is_hindered = self.span.length == 0 || elsewhere.clone().any(|named| named.overlaps((at, to)));
        let of_other = elsewhere.next().is_some();
        let known = 2
            * (self.bytes
                + 8 * (self.segments.len() + self.images.len() + 2 * self.since.len()) as u64
                + 128 * (self.indexes.len() + self.of_sets.len()) as u64)
            + SLACK;
        if is_hindered || (self.span.length + length > known && !of_other) {
            return self.rewrite(executor, mirror).await;
        }
        mirror.reserve(executor, to + RESERVE).await?;
        if self.failed > 0 {
            // What one of them has left here may have this entry's number; if the write of this one is lost, it would be taken
            // for it.
            self.write(executor, mirror, at, &[0; BLOCK as usize]).await?;
        }
        self.write(executor, mirror, at, &entry).await?;
        self.span.length += length;
        self.span.entries += 1;
        std::mem::take(&mut self.queue).into_iter().for_each(|change| self.apply(change));
        Ok(())
    }

    async fn rewrite(&mut self, executor: &Executor, mirror: &mut Mirror) -> Result<()> {
        let mut anew = Journal { next: self.next, segments: self.segments.clone(), ..Journal::default() };
        anew.numbers.clone_from(&self.numbers);
        anew.images.clone_from(&self.images);
        anew.since.clone_from(&self.since);
        anew.indexes.clone_from(&self.indexes);
        anew.of_sets.clone_from(&self.of_sets);
        anew.bytes = self.bytes;
        self.queue.iter().cloned().for_each(|change| anew.apply(change));
        let first = self.unused_number(executor, mirror).await;
        let (mut bytes, mut entries) = (Vec::new(), 0);
        let (mut batch, mut size) = (Vec::new(), 0);
        for change in anew.image() {
            size += encoded(&change).len();
            batch.push(change);
            if size >= ENTRY_BYTES {
                bytes.extend(sealed(first + entries, &batch));
                (entries, size) = (entries + 1, 0);
                batch.clear();
            }
        }
        if !batch.is_empty() {
            bytes.extend(sealed(first + entries, &batch));
            entries += 1;
        }
        let start = self.free_place(bytes.len() as u64);
        mirror.reserve(executor, start + bytes.len() as u64 + RESERVE).await?;
        self.write(executor, mirror, start, &bytes).await?;
        anew.span = Span { start, length: bytes.len() as u64, first, entries };
        anew.named = std::mem::take(&mut self.named);
        *self = anew;
        Ok(())
    }

    /// Greater than the number of each entry that the file has anywhere. A failed append of an earlier run may have left an
    /// entry where this run's entries will be, or where those that follow them will; and what was written over it may be lost
    /// in one copy.
    async fn unused_number(&self, executor: &Executor, mirror: &mut Mirror) -> u64 {
        let mut number = self.span.first + self.span.entries + self.failed * NUMBERS_BETWEEN;
        for copy in COPIES {
            let to = mirror.capacity();
            let MirrorCopy { bytes, .. } = mirror.read(executor, copy, (REGION, to)).await;
            let places = (0..bytes.len()).step_by(BLOCK as usize);
            let found = places.filter_map(|at| checked(&bytes[at..]).map(|(number, _)| number)).max();
            number = number.max(found.map_or(0, |found| found.saturating_add(1)));
        }
        number
    }

    /// Writes entries to both copies.
    async fn write(&mut self, executor: &Executor, mirror: &mut Mirror, at: u64, entries: &[u8]) -> Result<()> {
        self.failed += 1;
        for copy in COPIES {
            mirror.write(executor, copy, at, entries).await?;
        }
        self.failed = 0;
        Ok(())
    }

    /// A place where `length` bytes overwrite nothing that counts, with as much room behind them.
    fn free_place(&self, length: u64) -> u64 {
        if canary::is_planted(Canary::CatalogInPlace) {
            return REGION;
        }
        let counting = || self.named.iter().chain([&self.span]);
        let is_free = |start: &u64| {
            let taken = (*start, start + 2 * length + RESERVE);
            *start >= REGION && !counting().any(|span| span.overlaps(taken))
        };
        let places = counting().map(Span::end).chain([REGION]);
        places.filter(is_free).min().expect("behind everything is room")
    }

    /// A copy of the superblock is about to name what was appended.
    pub(super) fn note_named(&mut self) {
        // What begins there is a beginning of this.
        self.named.retain(|named| named.start != self.span.start);
        self.named.push(self.span);
    }

    /// Both copies of the superblock name what was appended.
    pub(super) fn note_stated(&mut self) {
        self.named = vec![self.span];
    }

    /// Reads the journal that the superblock names, each entry from a copy that has it whole, and writes it over the other
    /// one if that has not.
    ///
    /// # Errors
    /// Words if an entry is whole in neither; [`Error::Input`] if one of them could not be read.
    pub(super) async fn load(executor: &Executor, mirror: &mut Mirror, span: Span) -> Result<Result<Journal, String>> {
        let ends = span.start.checked_add(span.length).filter(|end| *end <= mirror.capacity());
        let aligned = span.start.is_multiple_of(BLOCK) && span.length.is_multiple_of(BLOCK);
        let (Some(end), true) = (ends, aligned && (span.length == 0 || span.start >= REGION)) else {
            return Ok(Err("its catalog lies outside of it".into()));
        };
        let mut copies = Vec::new();
        for copy in COPIES {
            // An entry that an earlier run has failed to append begins behind the last one.
            let to = (end + BLOCK).min(mirror.capacity());
            copies.push(mirror.read(executor, copy, (span.start, to)).await);
        }
        let mut journal = Journal { span, named: vec![span], ..Journal::default() };
        let mut at = 0;
        for number in 0..span.entries {
            let found = |copy: &MirrorCopy| opened(&copy.bytes[at..], span.first + number);
            let both = [found(&copies[0]), found(&copies[1])];
            let Some((length, changes)) = both.iter().flatten().next() else {
                return match copies.into_iter().find_map(|copy| copy.fault) {
                    Some(fault) => Err(Error::Input(fault)),
                    None => Ok(Err(format!("both copies of entry {number} of its catalog are damaged"))),
                };
            };
            changes.iter().cloned().for_each(|change| journal.apply(change));
            let place = at..at + length;
            for (copy, is_damaged) in COPIES.into_iter().zip(both.each_ref().map(Option::is_none)) {
                if is_damaged {
                    let sound = &copies[1 - copy as usize].bytes[place.clone()];
                    // If it fails, the other copy serves on.
                    let _tried = mirror.write(executor, copy, span.start + at as u64, sound).await;
                }
            }
            at += length;
        }
        let next = (span.first + span.entries).to_le_bytes();
        journal.failed = u64::from(copies.iter().any(|copy| copy.bytes.get(at + 8..at + HEADER) == Some(&next[..])));
        Ok(if at as u64 == span.length { Ok(journal) } else { Err("its catalog has another length".into()) })
    }
}

/// That a partition's number is given to it, and what its files are named after.
pub(crate) fn begin(partition: &Partition) -> Vec<CatalogChange> {
    let begun = CatalogChange::Begin(Box::new(partition.clone()), own_schema(partition));
    let files = partition.files.clone().map(|stem| CatalogChange::Files(partition.id, stem));
    [begun].into_iter().chain(files).collect()
}

/// About how many bytes that and the partition's state take.
fn stated_bytes(partition: &Partition) -> u64 {
    encoded(&begin(partition)[..]).len() as u64 + 7
}

/// What a partition's records consist of, with the indexes of a set: those of a b-tree are partitions and said by themselves.
fn own_schema(partition: &Partition) -> Option<Schema> {
    let mut schema = partition.schema.clone();
    if partition.set_settings().is_none() {
        schema.iter_mut().for_each(|schema| schema.secondaries.clear());
    }
    schema
}

/// What the catalog says that `first` lead to after what an archived log has said behind that: all of it anew, but for how far the sets'
/// backup is, or more. Returns the partitions, and all that it says, in changes.
pub(crate) fn followed(
    first: &[CatalogChange],
    then: impl IntoIterator<Item = (bool, Vec<CatalogChange>)>,
) -> (Vec<Rc<Partition>>, Vec<CatalogChange>) {
    let mut journal = Journal::default();
    first.iter().for_each(|change| journal.apply(change.clone()));
    for (is_whole, changes) in then {
        if is_whole {
            let Journal { segments, images, .. } = journal;
            journal = Journal { segments, images, ..Journal::default() };
        }
        changes.into_iter().for_each(|change| journal.apply(change));
    }
    (journal.live().collect(), journal.image())
}

/// What an archived log has stored of changes; nothing if they make no sense.
pub(crate) fn read_changes(stored: &[u8]) -> Option<Vec<CatalogChange>> {
    postcard::from_bytes(stored).ok()
}

/// What the journal, and a log that is archived, store of changes; of how far the sets' backup is the log says nothing.
pub(crate) fn stored_changes(changes: &[CatalogChange]) -> Vec<u8> {
    let is_of_backup =
        |change: &&CatalogChange| matches!(change, CatalogChange::Segments(_) | CatalogChange::Images(_));
    encoded(&changes.iter().filter(|change| !is_of_backup(change)).collect::<Vec<_>>())
}

fn encoded<T: Serialize + ?Sized>(what: &T) -> Vec<u8> {
    postcard::to_stdvec(what).expect("plain contents can always be stored")
}

/// An entry: `0 length u32   4 CRC-32C of the rest u32   8 number u64   16 changes`, filled up to whole blocks.
fn sealed(number: u64, changes: &[CatalogChange]) -> Vec<u8> {
    let body = encoded(changes);
    let mut entry = vec![0; HEADER];
    entry[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    entry[8..].copy_from_slice(&number.to_le_bytes());
    entry.extend(body);
    let sum = checksum(&entry[8..]);
    entry[4..8].copy_from_slice(&sum.to_le_bytes());
    entry.resize(entry.len().next_multiple_of(BLOCK as usize), 0);
    entry
}

/// The number and the changes of the entry at the front of these bytes, if it is whole.
fn checked(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().expect("four bytes")));
    let length = (word(0)? as usize).checked_add(HEADER)?;
    let rest = bytes.get(8..length)?;
    (checksum(rest) == word(4)?).then_some(())?;
    let (number, changes) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), changes))
}

/// The entry at the front of these bytes and its length, if it is whole and has this number.
fn opened(bytes: &[u8], number: u64) -> Option<(usize, Vec<CatalogChange>)> {
    let (found, changes) = checked(bytes)?;
    let length = (HEADER + changes.len()).next_multiple_of(BLOCK as usize);
    (found == number && length <= bytes.len()).then_some(())?;
    Some((length, postcard::from_bytes(changes).ok()?))
}
