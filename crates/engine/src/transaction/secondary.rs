//! Secondary indexes: range reads, in sets, and changes of a set's records that are in them.
//!
//! Phantoms are kept out of a range by locks on the gaps between an index's entries, pairs of secondary key and key (next-key
//! locking after Mohan, ARIES/KVL, VLDB 1990): adding an entry passes the gap that it falls into, removing one holds both gaps that
//! it joins, a range read holds the gaps it has seen and the records of the entries that bound them. A change of a record is a removal of its old
//! entries and an addition of its new ones. All locks that it needs are taken before it is made, in the step that makes it.

use super::records::LockStep;
use super::{Direction, Transaction};
use crate::catalog::{EntryRange, Locking, Partition, SecondaryIndex};
use crate::engine::resolve_refusal;
use crate::locks::Locks;
use crate::mvcc::{ReadView, rest};
use crate::statistics::FoundIn;
use crate::version::{IndexEntry, Rest, View};
use crate::{Error, Result};
use base::PartitionId;
use std::ops::{Bound, ControlFlow};
use std::rc::Rc;
use structures::key_hash;
use structures::lock::{Mode, Owner, Resource};
use structures::set::{FieldValue, Refusal, Sets};

/// The name of the gap below an entry.
fn gap_below(partition: PartitionId, secondary: usize, (of, key): (&[u8], &[u8])) -> Resource {
    let mut name = Vec::with_capacity(4 + of.len() + key.len());
    name.extend_from_slice(&(of.len() as u32).to_le_bytes());
    name.extend_from_slice(of);
    name.extend_from_slice(key);
    Resource::secondary_gap(partition, secondary, key_hash(&name))
}

/// The gap below the first of these entries, or at the end.
fn gap_above(partition: PartitionId, secondary: usize, above: Option<(&[u8], &[u8])>) -> Resource {
    above.map_or(Resource::secondary_end_gap(partition, secondary), |entry| gap_below(partition, secondary, entry))
}

/// Whether locks were granted at once; if not, the first one that was not, or why the change cannot be made.
type Locked = ControlFlow<Interruption>;

enum Interruption {
    Lock(Resource, Mode),
    Failure(Box<Error>),
}

/// What a step came to that may meet a lock, a refusal of the set's, or a record that has the same contents.
enum TypedStep<T> {
    Met(LockStep<T>),
    Refused(Refusal),
    Failed(Box<Error>),
}

impl<T> From<Interruption> for TypedStep<T> {
    fn from(interruption: Interruption) -> TypedStep<T> {
        match interruption {
            Interruption::Lock(resource, mode) => TypedStep::Met(LockStep::Wait(resource, mode)),
            Interruption::Failure(error) => TypedStep::Failed(error),
        }
    }
}

impl Transaction {
    /// Shows copies of the records whose fields are within bounds, in the order of a secondary index or backward, key and value,
    /// until `look` returns false. A bound may name the contents of the first few of the index's fields only: records that have
    /// these are included, or excluded, all. A repeated read shows the same (serializability). Backward in a set, all of them are
    /// read before the first is shown.
    ///
    /// # Errors
    /// [`crate::Error::WrongOrganization`] if the partition's records have no type, [`crate::Error::Field`],
    /// [`crate::Error::SnapshotTooOld`] if the transaction reads a moment before the index was there, and as [`Transaction::get`].
    pub async fn range(
        &mut self,
        partition: PartitionId,
        secondary: usize,
        bounds: (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>),
        direction: Direction,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.check_active()?;
        let found = self.engine.catalog.describe(partition)?;
        let span = EntryRange::new(found.typed()?, secondary, bounds).map_err(|error| found.field_error(error))?;
        if span.is_empty() {
            return Ok(());
        }
        if found.set_settings().is_none() {
            return Box::pin(self.range_in_tree(&found, secondary, &span, direction, look)).await;
        }
        if direction == Direction::Forward {
            return self.range_in_set(&found, secondary, span, look).await;
        }
        let mut records = Vec::new();
        let keep = |key: &[u8], value: &[u8]| {
            records.push((key.to_vec(), value.to_vec()));
            true
        };
        self.range_in_set(&found, secondary, span, keep).await?;
        let _ended = records.iter().rev().find(|(key, value)| !look(key, value));
        Ok(())
    }

    async fn range_in_set(
        &mut self,
        found: &Partition,
        secondary: usize,
        span: EntryRange,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let partition = found.id();
        if let Some(read_view) = self.read_view_of(partition)? {
            check_since(found, secondary, read_view.view)?;
            return self.range_past(read_view, partition, (secondary, span), look).await;
        }
        if found.locking != Locking::Record {
            self.mark_not_replayable()?;
            self.note_unlocked();
        }
        self.engine.sets.sets.borrow().note_missing(self.state.owner);
        let (mut last, mut value) = (None, Vec::new());
        loop {
            if self.reference() {
                self.delayed_reference().await?;
            }
            match self.read_entry(found, secondary, &span, last.as_ref(), &mut value) {
                TypedStep::Refused(refusal) => self.resolve_refusal(partition, refusal).await?,
                TypedStep::Failed(error) => return Err(*error),
                TypedStep::Met(LockStep::Wait(resource, mode)) => self.lock(resource, mode).await?,
                TypedStep::Met(LockStep::Done(None)) => return Ok(()),
                TypedStep::Met(LockStep::Done(Some(entry))) => {
                    self.engine.core.executor.charge_value(value.len());
                    self.engine.core.statistics.count_reference(usize::from(partition.0), FoundIn::Memory);
                    if !look(&entry.1, &value) {
                        return Ok(());
                    }
                    last = Some(entry);
                }
            }
        }
    }

    /// Shows the records of a span that the view sees.
    async fn range_past(
        &self,
        read_view: ReadView,
        partition: PartitionId,
        (secondary, span): (usize, EntryRange),
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let (engine, pace, view) = (&self.engine, self.pace(), read_view.view);
        let mut left = Rest { last: None, from: span.from, to: span.to };
        loop {
            let step = engine.versions.step_of(&pace, || {
                engine.versions.visit_entries(engine.records(), view, (partition, secondary), &left)
            })?;
            let (found, next) = match step {
                Ok(done) => done,
                Err(refusal) => {
                    resolve_refusal(engine, partition, refusal).await?;
                    continue;
                }
            };
            for ((of, key), past) in found {
                let Some(value) = engine.versions.reconstruct(view, partition, &key, past).await? else { continue };
                let has_entry = engine.sets.sets.borrow().secondary_key(partition, secondary, &value) == Some(of);
                if has_entry && !look(&key, &value) {
                    return Ok(());
                }
            }
            match next {
                Some(next) => left = next,
                None => return Ok(()),
            }
            rest(engine, &pace).await;
        }
    }

    /// Locks the entry behind `last` with the gap below it and copies its record; nothing at the end of the span, whose
    /// last gap is locked then.
    fn read_entry(
        &mut self,
        found: &Partition,
        secondary: usize,
        span: &EntryRange,
        last: Option<&IndexEntry>,
        value: &mut Vec<u8>,
    ) -> TypedStep<Option<IndexEntry>> {
        let (engine, partition) = (self.engine.clone(), found.id());
        let sets = engine.sets.sets.borrow();
        let first = (span.from.as_slice(), &[][..]);
        let mut from = last.map_or(Bound::Included(first), |(of, key)| Bound::Excluded((of, key)));
        loop {
            let entry = sets.next_entry(partition, secondary, from);
            let record = entry.map(|(_, key)| Resource::record(partition, key_hash(key)));
            if found.locking == Locking::Record {
                let gap = gap_above(partition, secondary, entry);
                for resource in [Some(gap), record].into_iter().flatten() {
                    if !self.try_lock(resource, Mode::Shared) {
                        return TypedStep::Met(LockStep::Wait(resource, Mode::Shared));
                    }
                }
            }
            let Some((of, key)) = entry else { return TypedStep::Met(LockStep::Done(None)) };
            if span.contains(of) {
                let entry = (of.to_vec(), key.to_vec());
                return match sets.get(self.state.owner, partition, key, key_hash(key)) {
                    Err(refusal) => TypedStep::Refused(refusal),
                    Ok(stored) => {
                        value.clear();
                        value.extend_from_slice(stored.expect("an entry's record is there"));
                        TypedStep::Met(LockStep::Done(Some(entry)))
                    }
                };
            }
            // An entry that this transaction may take back is no bound of what it has seen.
            let mode = record.and_then(|record| engine.core.locks.holds(self.state.owner, record));
            let is_own = mode == Some(Mode::Exclusive);
            if !is_own {
                return TypedStep::Met(LockStep::Done(None));
            }
            from = Bound::Excluded((of, key));
        }
    }

    /// Gives the record of `key`, which is locked exclusively, a value of its type, or deletes it. Returns false if there is
    /// one already that must not be replaced, or none to delete.
    pub(super) async fn write_typed(
        &mut self,
        found: &Rc<Partition>,
        key: &[u8],
        value: Option<&[u8]>,
        replace: bool,
    ) -> Result<bool> {
        if let Some(value) = value {
            found.typed()?.record.verify(value).map_err(|error| found.field_error(error))?;
        }
        loop {
            // Its indexes may have changed while something was waited for.
            let found = &self.engine.catalog.refresh(found)?;
            match self.try_write_typed(found, key, value, replace) {
                TypedStep::Refused(refusal) => self.resolve_refusal(found.id(), refusal).await?,
                TypedStep::Failed(error) => return Err(*error),
                TypedStep::Met(LockStep::Wait(resource, mode)) => self.lock(resource, mode).await?,
                TypedStep::Met(LockStep::Done(written)) => {
                    self.keep_set_changes();
                    self.engine.core.executor.charge_value(value.map_or(0, <[u8]>::len));
                    self.engine.core.statistics.count_reference(usize::from(found.id), FoundIn::Memory);
                    return Ok(written);
                }
            }
        }
    }

    fn try_write_typed(
        &mut self,
        found: &Partition,
        key: &[u8],
        value: Option<&[u8]>,
        replace: bool,
    ) -> TypedStep<bool> {
        let (engine, partition, owner, hash) = (self.engine.clone(), found.id(), self.state.owner, key_hash(key));
        let mut sets = engine.sets.sets.borrow_mut();
        let old = match sets.get(owner, partition, key, hash) {
            Ok(old) => old.map(<[u8]>::to_vec),
            Err(refusal) => return TypedStep::Refused(refusal),
        };
        if old.is_some() && !replace || old.is_none() && value.is_none() {
            return TypedStep::Met(LockStep::Done(false));
        }
        if let ControlFlow::Break(interruption) = self.lock_entries(&sets, found, key, (old.as_deref(), value)) {
            return interruption.into();
        }
        let done = match (old, value) {
            (Some(_), Some(value)) => sets.replace(owner, partition, key, hash, value),
            (None, Some(value)) => sets.insert(owner, partition, key, hash, value),
            (_, None) => sets.delete(owner, partition, key, hash).map(|_| ()),
        };
        match done {
            Ok(()) => TypedStep::Met(LockStep::Done(true)),
            Err(refusal) => TypedStep::Refused(refusal),
        }
    }

    /// Resolves what a set lacks for the transaction; a refusal for good may take all of it along.
    #[cold]
    pub(super) async fn resolve_refusal(&self, partition: PartitionId, refusal: Refusal) -> Result<()> {
        resolve_refusal(&self.engine, partition, refusal).await.map_err(|error| self.abort_by(error))
    }

    /// After a change: keeps what records were before, if that is wanted.
    pub(super) fn keep_set_changes(&self) {
        if self.engine.versions.is_kept() {
            self.engine.versions.keep_set_changes(self.engine.records(), self.state.owner);
        }
    }

    /// Adds a typed record to a set of arrivals, under this number if one was given out for it before, and returns its number.
    pub(super) async fn append_typed(
        &mut self,
        found: &Rc<Partition>,
        number: Option<u64>,
        value: &[u8],
    ) -> Result<u64> {
        let schema = found.typed()?;
        schema.record.verify(value).map_err(|error| found.field_error(error))?;
        loop {
            let found = &self.engine.catalog.refresh(found)?;
            match self.try_append_typed(found, number, value) {
                TypedStep::Refused(refusal) => self.resolve_refusal(found.id(), refusal).await?,
                TypedStep::Failed(error) => return Err(*error),
                TypedStep::Met(LockStep::Wait(resource, mode)) => self.lock(resource, mode).await?,
                TypedStep::Met(LockStep::Done(number)) => {
                    self.keep_set_changes();
                    self.engine.core.executor.charge_value(value.len());
                    self.engine.core.statistics.count_reference(usize::from(found.id), FoundIn::Memory);
                    return Ok(number);
                }
            }
        }
    }

    /// Locks the record that will have the next number in the step that adds it, before a reader sees it in an index.
    fn try_append_typed(&mut self, found: &Partition, number: Option<u64>, value: &[u8]) -> TypedStep<u64> {
        let (engine, partition, owner) = (self.engine.clone(), found.id(), self.state.owner);
        if found.locking == Locking::Record && !self.pass_end(partition) {
            return TypedStep::Met(LockStep::Wait(Resource::end_gap(partition), Mode::InsertIntention));
        }
        let mut sets = engine.sets.sets.borrow_mut();
        let key = number.unwrap_or_else(|| sets.next_arrival(partition)).to_be_bytes();
        // Before the number, for which all others that add something wait while it is locked.
        if let ControlFlow::Break(interruption) = self.lock_entries(&sets, found, &key, (None, Some(value))) {
            return interruption.into();
        }
        if found.locking == Locking::Record {
            let record = Resource::record(partition, key_hash(&key));
            if engine.core.locks.try_acquire(owner, record, Mode::Exclusive).is_none() {
                return TypedStep::Met(LockStep::Wait(record, Mode::Exclusive));
            }
        }
        let appended = match number {
            None => sets.append(owner, partition, value),
            Some(number) => sets.append_numbered(owner, partition, number, value).map(|()| number),
        };
        match appended {
            Ok(number) => TypedStep::Met(LockStep::Done(number)),
            Err(refusal) => TypedStep::Refused(refusal),
        }
    }

    /// Takes the locks of the gaps that a record's entries leave and enter when it changes from one value to another, and its places in unique
    /// indexes.
    fn lock_entries(
        &mut self,
        sets: &Sets,
        found: &Partition,
        key: &[u8],
        (old, new): (Option<&[u8]>, Option<&[u8]>),
    ) -> Locked {
        if found.locking != Locking::Record {
            return Locked::Continue(());
        }
        let partition = found.id();
        for index in found.schema.iter().flat_map(|schema| &schema.secondaries) {
            let Some(secondary) = index.number() else { continue };
            let of = |value: Option<&[u8]>| value.and_then(|value| sets.secondary_key(partition, secondary, value));
            let (from, to) = (of(old), of(new));
            if from == to {
                continue;
            }
            if index.is_unique {
                self.pass_places(sets, (found, index), (key, new), (from.as_deref(), to.as_deref()))?;
            }
            if let Some(from) = &from {
                self.lock_joined_entries(sets, (partition, secondary), (from, key))?;
            }
            if let Some(to) = &to {
                self.pass_entry_gap(sets, (partition, secondary), (to, key))?;
            }
        }
        Locked::Continue(())
    }

    /// As [`Transaction::take_place`].
    fn pass_places(
        &self,
        sets: &Sets,
        index: (&Partition, &SecondaryIndex),
        record: (&[u8], Option<&[u8]>),
        places: (Option<&[u8]>, Option<&[u8]>),
    ) -> Locked {
        match self.take_place(sets, index, record, places) {
            Ok(LockStep::Done(())) => Locked::Continue(()),
            Ok(LockStep::Wait(resource, mode)) => Locked::Break(Interruption::Lock(resource, mode)),
            Err(error) => Locked::Break(Interruption::Failure(Box::new(error))),
        }
    }

    /// Locks both gaps that the removal of an entry joins, and the record of the entry above, which could otherwise be taken back
    /// together with its gap.
    fn lock_joined_entries(
        &mut self,
        sets: &Sets,
        (partition, secondary): (PartitionId, usize),
        entry: (&[u8], &[u8]),
    ) -> Locked {
        let (locks, owner) = (&self.engine.core.locks, self.state.owner);
        request(locks, owner, gap_below(partition, secondary, entry), Mode::Exclusive)?;
        let mut entry = entry;
        loop {
            let above = sets.next_entry(partition, secondary, Bound::Excluded(entry));
            request(locks, owner, gap_above(partition, secondary, above), Mode::Exclusive)?;
            let Some(above) = above else { return Locked::Continue(()) };
            let record = Resource::record(partition, key_hash(above.1));
            if locks.holds(owner, record) != Some(Mode::Exclusive) {
                return request(locks, owner, record, Mode::Shared);
            }
            entry = above;
        }
    }

    /// Lets a new entry pass the gap that it falls into. If the transaction holds that, having read it, it holds both parts from now
    /// on.
    fn pass_entry_gap(
        &mut self,
        sets: &Sets,
        (partition, secondary): (PartitionId, usize),
        entry: (&[u8], &[u8]),
    ) -> Locked {
        let (locks, owner) = (&self.engine.core.locks, self.state.owner);
        let gap = gap_above(partition, secondary, sets.next_entry(partition, secondary, Bound::Excluded(entry)));
        match locks.pass(owner, gap, Mode::InsertIntention) {
            None => Locked::Break(Interruption::Lock(gap, Mode::InsertIntention)),
            Some(None) => Locked::Continue(()),
            Some(Some(mode)) => request(locks, owner, gap_below(partition, secondary, entry), mode),
        }
    }
}

/// Refuses an index of a set where it did not have all records.
pub(super) fn check_since(found: &Partition, secondary: usize, view: View) -> Result<()> {
    let index = found.typed()?.index(secondary).map_err(|error| found.field_error(error))?;
    match index.since() {
        Some(since) if view.at < since => Err(Error::SnapshotTooOld { oldest: since, asked: None }),
        _ => Ok(()),
    }
}

/// Asks for a lock that must be had at once.
fn request(locks: &Locks, owner: Owner, resource: Resource, mode: Mode) -> Locked {
    match locks.try_acquire(owner, resource, mode) {
        Some(_) => Locked::Continue(()),
        None => Locked::Break(Interruption::Lock(resource, mode)),
    }
}
