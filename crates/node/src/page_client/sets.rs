//! Records of memory-resident sets at a node: each is asked for with its lock, and what a transaction changes stays with it until it commits.
//!
//! The server keeps the locks, also between transactions of one node, to the answer of the commit: so nothing is seen here that is not
//! committed. Records that follow each other, and indexes, are in `set_ranges.rs`.

use super::indexed::Typed;
use super::transaction::WorkDone;
use super::view::Intent;
use super::{ClientNode, PageTransaction, RollbackCause};
use crate::message::{Described, RecordLock, SetAnswer, SetRecord, SetValue, SetWrite, Transaction, place_in_set};
use base::{PageId, PartitionId};
use driver::{Fault, FaultKind, Work};
use engine::{Error, Result};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The name of a record: its set and its key.
type SetKey = (PartitionId, Vec<u8>);

/// A value of a record, if there is one.
type MaybeValue = Option<Vec<u8>>;

/// What a transaction has, and wants, of records of sets.
#[derive(Default)]
pub(super) struct SetWork {
    records: BTreeMap<SetKey, WantedRecord>,
    /// The one that it waits for, and whether for a change. What it has asked for before the server withdraws.
    asked: Option<(SetKey, bool)>,
    /// What its own changes have replaced, in their order.
    replaced: Vec<(SetKey, Option<MaybeValue>)>,
    /// The last question, and what was answered.
    pub question: (u64, Option<SetAnswer>),
}

/// A record that it has locked, or has asked for.
#[derive(Default)]
struct WantedRecord {
    /// For what it is locked, and what it was committed as.
    held: Option<(bool, MaybeValue)>,
    /// What the transaction has made of it.
    own: Option<MaybeValue>,
    /// Why it did not come.
    failure: Option<Fault>,
}

impl SetWork {
    /// Whether anything is changed.
    pub fn is_changed(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// How many changes there were until now.
    pub fn changes(&self) -> usize {
        self.replaced.len()
    }

    /// How many records are changed.
    pub fn changed(&self) -> usize {
        self.records.values().filter(|record| record.own.is_some()).count()
    }

    /// Takes all but the first `changes` back.
    pub fn take_back(&mut self, changes: usize) {
        while self.replaced.len() > changes {
            let Some((key, before)) = self.replaced.pop() else { return };
            if let Some(record) = self.records.get_mut(&key) {
                record.own = before;
            }
        }
    }

    /// How many bytes they take in a commit.
    pub fn bytes(&self) -> usize {
        let changed = self.records.iter().filter_map(|((_, key), record)| Some((key, record.own.as_ref()?)));
        changed.map(|(key, value)| SetWrite::length_of(key, value.as_deref())).sum()
    }

    /// What is to be committed: the last change of each record.
    pub fn writes(&self) -> impl Iterator<Item = SetWrite> {
        self.records.iter().filter_map(|((partition, key), record)| {
            let value = record.own.clone()?.map(SetValue);
            Some(SetWrite { partition: partition.0, key: key.clone(), value })
        })
    }

    /// What the transaction has made of records of a set, in the order of their keys.
    pub fn own(&self, partition: PartitionId) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let from = (partition, Vec::new());
        let of_set = self.records.range(from..).take_while(move |((of, _), _)| *of == partition);
        of_set.filter_map(|((_, key), record)| Some((&key[..], record.own.as_ref()?.as_deref())))
    }

    /// Whether the transaction has changed a record.
    pub fn has_changed(&self, partition: PartitionId, key: &[u8]) -> bool {
        self.records.get(&(partition, key.to_vec())).is_some_and(|record| record.own.is_some())
    }

    /// It asks for something else, so that it waits for no record any more.
    pub fn forget_asking(&mut self) {
        self.asked = None;
    }

    /// The record that is waited for, if it is at this place, is not waited for with such a lock any more.
    fn end_asking_at(&mut self, (page, RecordLock { slot, writes, .. }): (PageId, RecordLock)) -> Option<SetKey> {
        let is_there = |((partition, key), of_change): &mut (SetKey, bool)| {
            *partition == page.partition && *of_change <= writes && place_in_set(*partition, key) == (page, slot)
        };
        self.asked.take_if(is_there).map(|(key, _)| key)
    }

    pub fn change(&mut self, key: SetKey, value: MaybeValue) {
        let record = self.records.entry(key.clone()).or_default();
        self.replaced.push((key, record.own.replace(value)));
    }
}

impl PageTransaction {
    /// The value of a record of a b-tree or a set.
    pub(super) async fn read_keyed(
        &mut self,
        found: &Described,
        key: &[u8],
        intent: Intent,
    ) -> Result<Option<Vec<u8>>> {
        if found.has_pages() {
            return self.read_in_tree(found.id(), key, intent).await;
        }
        found.check_set(key, None)?;
        let value = self.lock_in_set(found.id(), key, intent != Intent::Read).await?;
        self.client.executor.charge_value(value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }

    /// Gives a record of a set a value, or deletes it. False if there is one already that must not be replaced, or none to delete.
    pub(super) async fn write_in_set(
        &mut self,
        found: &Rc<Described>,
        key: &[u8],
        value: Option<&[u8]>,
        replace: bool,
    ) -> Result<bool> {
        found.check_set(key, Some(value.map_or(0, <[u8]>::len)))?;
        let typed = self.client.schema(found)?.map(|schema| Typed { found: Rc::clone(found), schema });
        if let (Some(value), Some(typed)) = (value, &typed) {
            typed.schema.record.verify(value).map_err(|error| typed.field_error(error))?;
        }
        let present = self.lock_in_set(found.id(), key, true).await?;
        if present.is_some() && !replace || present.is_none() && value.is_none() {
            return Ok(false);
        }
        if let Some(typed) = &typed {
            let change = (present.as_deref(), value);
            self.lock_entries_in_set(typed, change).await?;
            self.check_places_in_set(typed, key, change).await?;
        }
        self.client.executor.charge(Work::LogRecord);
        self.client.executor.charge_value(value.map_or(0, <[u8]>::len));
        let mut work = self.work.borrow_mut();
        work.sets.change((found.id(), key.to_vec()), value.map(<[u8]>::to_vec));
        Ok(true)
    }

    /// Changes a record of a set in place.
    pub(super) async fn modify_in_set<R>(
        &mut self,
        found: &Rc<Described>,
        key: &[u8],
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let old = self.read_keyed(found, key, Intent::Change).await?;
        let mut value = old.ok_or_else(|| Error::NoRecord(found.name.clone()))?;
        let answer = change(&mut value);
        self.write_in_set(found, key, Some(&value), true).await?;
        Ok(answer)
    }

    /// Has the lock of a record, and returns its value as the transaction sees it.
    pub(super) async fn lock_in_set(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        writes: bool,
    ) -> Result<Option<Vec<u8>>> {
        self.client.executor.charge(Work::LockPair);
        let mut wait = None;
        loop {
            self.check().await?;
            if let Some(found) = self.try_set_record((partition, key.to_vec()), writes) {
                return found;
            }
            self.rest(&mut wait, || format!("a record of the set {}", partition.0)).await?;
        }
    }

    /// The same, if it is here or cannot be had. Otherwise it is asked for.
    fn try_set_record(&mut self, name: SetKey, writes: bool) -> Option<Result<Option<Vec<u8>>>> {
        let mut work = self.work.borrow_mut();
        let sets = &mut work.sets;
        if !sets.records.contains_key(&name) {
            sets.records.insert(name.clone(), WantedRecord::default());
        }
        let record = sets.records.get_mut(&name)?;
        if let Some(cause) = record.failure.take() {
            return Some(Err(cause.into()));
        }
        match &record.held {
            Some((held, value)) if *held >= writes => {
                return Some(Ok(record.own.as_ref().unwrap_or(value).clone()));
            }
            _ => {}
        }
        if !sets.asked.as_ref().is_some_and(|(asked, of_change)| *asked == name && *of_change >= writes) {
            let (partition, key) = (name.0.0, name.1.clone());
            sets.asked = Some((name, writes));
            let wanted = SetRecord { partition, key, transaction: self.transaction, writes };
            let message = self.client.protocol.borrow_mut().ask_set_record(wanted);
            self.client.say(&message);
        }
        None
    }
}

impl WorkDone {
    fn wanted(&mut self, record: &SetRecord) -> Option<&mut WantedRecord> {
        let name = (PartitionId(record.partition), record.key.clone());
        self.sets.asked.take_if(|(asked, of_change)| *asked == name && *of_change <= record.writes);
        self.sets.records.get_mut(&name)
    }
}

impl ClientNode {
    pub(super) fn with_work(&self, transaction: Transaction, look: impl FnOnce(&mut WorkDone)) {
        if let Some(work) = self.works.borrow().get(&transaction) {
            look(&mut work.borrow_mut());
        }
        self.bell.wake_all(&self.executor);
    }

    /// A record has come, with its lock.
    pub(super) fn take_set_record(&self, record: &SetRecord, value: Option<SetValue>) {
        self.with_work(record.transaction, |work| {
            let Some(wanted) = work.wanted(record) else { return };
            // With a lock for a change it may have been changed here.
            if !matches!(wanted.held, Some((true, _))) {
                wanted.held = Some((record.writes, value.map(|SetValue(value)| value)));
            }
        });
    }

    /// A lock was granted that was waited for: its record is asked for once more.
    pub(super) fn note_set_granted(&self, place: (PageId, RecordLock)) {
        self.with_work(place.1.transaction, |work| drop(work.sets.end_asking_at(place)));
    }

    /// A lock that was waited for is of no use: there is no such set any more.
    pub(super) fn lack_set_place(&self, place: (PageId, RecordLock), cause: &Fault) {
        self.with_work(place.1.transaction, |work| {
            let failed = work.sets.end_asking_at(place);
            if let Some(wanted) = failed.and_then(|key| work.sets.records.get_mut(&key)) {
                wanted.failure = Some(cause.clone());
            }
        });
    }

    /// A transaction does not get a record.
    pub(super) fn lack_set_record(&self, record: &SetRecord, cause: Fault) {
        if cause.kind == FaultKind::Denied {
            return self.condemn(record.transaction, RollbackCause::Denied(cause.message));
        }
        self.with_work(record.transaction, |work| {
            if let Some(wanted) = work.wanted(record) {
                wanted.failure = Some(cause);
            }
        });
    }
}
