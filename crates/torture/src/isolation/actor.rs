//! A transaction that records what it does and what it is shown.

mod several;

use super::contention::TURNS;
use super::store::{INDEX_NAME, Store, number_of, stored_key};
use crate::ClientEvent;
use crate::context::RunContext;
use crate::history::{History, Key, Span, Version};
use base::PartitionId;
use engine::organization::append::Position;
use engine::set::{FieldError, FieldValue};
use engine::{Direction, Error, Isolation, Result, Savepoint, Transaction};
use std::cell::RefMut;
use std::ops::Bound;

/// A transaction of the engine, and its number in the history.
pub struct Actor<'a> {
    pub tx: Transaction,
    pub number: usize,
    context: &'a RunContext,
    savepoints: Vec<(Savepoint, usize)>,
}

/// How a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Copy,
    InPlace,
    ForUpdate,
}

/// A value to be written.
#[derive(Clone, Copy, Debug)]
pub struct New {
    /// Where scans are to find it.
    pub place: u64,
    /// Its length in bytes besides its version.
    pub length: usize,
}

fn partition(tx: &Transaction, store: Store) -> Result<PartitionId> {
    tx.partition(store.name())
}

impl Actor<'_> {
    pub fn new(tx: Transaction, number: usize, context: &RunContext) -> Actor<'_> {
        Actor { tx, number, context, savepoints: Vec::new() }
    }

    fn history(&self) -> RefMut<'_, History> {
        RefMut::map(self.context.oracle.borrow_mut(), |oracle| &mut oracle.history)
    }

    fn new_version(&self, store: Store, number: u64) -> Version {
        self.history().new_version(self.number, store.key(number))
    }

    /// Reads one record.
    pub async fn read(&mut self, store: Store, number: u64, look: Look) -> Result<()> {
        let (partition, key) = (partition(&self.tx, store)?, stored_key(number));
        let version = |value: &[u8]| store.version(value);
        let found = match look {
            _ if store == Store::Direct => Some(self.tx.read_object(partition, number, version).await?),
            Look::Copy => self.tx.get(partition, &key).await?.as_deref().map(version),
            Look::InPlace => self.tx.get_with(partition, &key, |value| value.map(version)).await?,
            Look::ForUpdate => self.tx.get_for_update(partition, &key).await?.as_deref().map(version),
        };
        self.history().read(self.number, store.key(number), found);
        Ok(())
    }

    /// Gives a record another value, whatever it was.
    pub async fn put(&mut self, store: Store, number: u64, new: New) -> Result<()> {
        let partition = partition(&self.tx, store)?;
        let version = self.new_version(store, number);
        let value = store.value(version, new.place, new.length);
        if store == Store::Direct {
            self.tx.modify_object(partition, number, |object| object.copy_from_slice(&value)).await?;
        } else {
            let written = self.tx.put(partition, &stored_key(number), &value).await;
            if !self.is_done((store, number), new.place, written).await? {
                return Ok(());
            }
        }
        self.history().wrote(self.number, version, Some(new.place));
        Ok(())
    }

    /// Takes turns with others where records are added, and nothing is locked. The lock is none of a writer: so it tells nothing of commits
    /// that are not durable yet.
    async fn take_turn(&mut self) -> Result<()> {
        if self.context.configuration.contention.as_ref().is_some_and(|contention| contention.takes_turns) {
            let turns = self.tx.partition(TURNS)?;
            self.tx.get_for_update(turns, TURNS.as_bytes()).await?;
        }
        Ok(())
    }

    /// Adds a record at the end of a store.
    pub async fn append(&mut self, store: Store, new: New) -> Result<()> {
        let partition = partition(&self.tx, store)?;
        self.take_turn().await?;
        let version = self.history().new_record(self.number, store.name());
        self.tx.append(partition, &store.value(version, new.place, new.length)).await?;
        self.history().wrote(self.number, version, Some(new.place));
        Ok(())
    }

    /// Inserts a record, if there is none.
    pub async fn insert(&mut self, store: Store, number: u64, new: New) -> Result<()> {
        let partition = partition(&self.tx, store)?;
        let version = self.new_version(store, number);
        let value = store.value(version, new.place, new.length);
        match self.tx.insert(partition, &stored_key(number), &value).await {
            // Whose record is in the way the next read tells.
            Err(Error::Duplicate(_)) if version.0.is_multiple_of(2) => {
                return self.read(store, number, Look::Copy).await;
            }
            Err(Error::Duplicate(_)) => return Ok(()),
            inserted => {
                if !self.is_done((store, number), new.place, inserted).await? {
                    return Ok(());
                }
            }
        }
        let mut history = self.history();
        history.read(self.number, store.key(number), None);
        history.wrote(self.number, version, Some(new.place));
        Ok(())
    }

    /// Deletes a record, if there is one.
    pub async fn delete(&mut self, store: Store, number: u64) -> Result<()> {
        let partition = partition(&self.tx, store)?;
        let version = self.new_version(store, number);
        let deleted = self.tx.delete(partition, &stored_key(number)).await?;
        let mut history = self.history();
        if deleted {
            history.wrote(self.number, version, None);
        } else {
            history.read(self.number, store.key(number), None);
        }
        Ok(())
    }

    /// Changes a record where it is: reads it and writes it in one call.
    pub async fn modify(&mut self, store: Store, number: u64, place: u64) -> Result<()> {
        let partition = partition(&self.tx, store)?;
        let version = self.new_version(store, number);
        let change = |value: &mut [u8]| {
            let old = store.version(value);
            let new = store.changed(version, place, value);
            if new.len() == value.len() {
                value.copy_from_slice(&new);
            }
            old
        };
        let old = match store {
            Store::Direct => self.tx.modify_object(partition, number, change).await,
            _ => self.tx.modify(partition, &stored_key(number), change).await,
        };
        let old = match old {
            // Long values are not changed in place.
            Err(Error::TooLarge { .. }) => return Ok(()),
            Err(Error::NoRecord(_)) => None,
            Err(refused) => return self.is_done((store, number), place, Err(refused)).await.map(|_| ()),
            Ok(old) => Some(old),
        };
        let mut history = self.history();
        history.read(self.number, store.key(number), old);
        if old.is_some() {
            history.wrote(self.number, version, Some(place));
        }
        Ok(())
    }

    /// Whether a write was done. One is refused if another record has the place in a unique index: that has it then for as long as the
    /// transaction runs, and in what it reads.
    async fn is_done(&mut self, (store, number): (Store, u64), place: u64, written: Result<()>) -> Result<bool> {
        let why = match written {
            Err(Error::Field { error: FieldError::NotUnique(why), .. }) if store == Store::Unique => why,
            written => return written.map(|()| true),
        };
        self.context.event(ClientEvent::ContentsTaken);
        let found = self.tx.get(partition(&self.tx, store)?, &why.present).await?;
        let (found, other) = (found.as_deref(), number_of(&why.present));
        let version = found.map(|value| store.version(value));
        self.history().read(self.number, store.key(other), version);
        let is_true = found.and_then(Store::place) == Some(place) && other != number;
        if !is_true || why.index != INDEX_NAME || why.refused != stored_key(number) {
            let what = format!("record {other} is {version:?}, and place {place} is refused to {number}: {why}");
            self.context.differs(&[store.name()], what);
        }
        Ok(false)
    }

    /// Reads all records whose places lie in a span.
    pub async fn scan(&mut self, store: Store, span: Span, direction: Direction) -> Result<()> {
        let found = match store {
            Store::Index | Store::Unique => self.scan_index(store, span).await?,
            Store::Appended => self.scan_appended().await?,
            _ => self.scan_tree(span, direction).await?,
        };
        self.history().scanned(self.number, store.name(), span, found);
        Ok(())
    }

    async fn scan_tree(&mut self, span: Span, direction: Direction) -> Result<Vec<(Key, Version)>> {
        let partition = partition(&self.tx, Store::Tree)?;
        let (first, last) = (stored_key(span.first), stored_key(span.last));
        let (first, last) = match span {
            Span::ALL => (Bound::Unbounded, Bound::Unbounded),
            _ => (Bound::Included(&first[..]), Bound::Included(&last[..])),
        };
        let mut cursor = self.tx.cursor(partition, first, last, direction);
        let mut found = Vec::new();
        while let Some((key, value)) = self.tx.next(&mut cursor).await? {
            found.push((Store::Tree.key(number_of(&key)), Store::Tree.version(&value)));
        }
        Ok(found)
    }

    async fn scan_index(&mut self, store: Store, span: Span) -> Result<Vec<(Key, Version)>> {
        let partition = partition(&self.tx, store)?;
        let secondary = self.tx.catalog().secondary(partition, INDEX_NAME)?;
        let (first, last) = ([FieldValue::U32(span.first as u32)], [FieldValue::U32(span.last as u32)]);
        let bounds = match span {
            Span::ALL => (Bound::Unbounded, Bound::Unbounded),
            _ => (Bound::Included(&first[..]), Bound::Included(&last[..])),
        };
        let (mut found, mut places) = (Vec::new(), Vec::new());
        let keep = |key: &[u8], value: &[u8]| {
            found.push((store.key(number_of(key)), store.version(value)));
            places.push(Store::place(value));
            true
        };
        self.tx.range(partition, secondary, bounds, Direction::Forward, keep).await?;
        // Of one moment no two records have the same place.
        let is_of_one_moment = self.tx.isolation() != Isolation::ReadCommitted;
        if store == Store::Unique && is_of_one_moment && !places.is_sorted_by(|one, next| one < next) {
            let what = format!("records of '{}' have the same place: {found:?} have {places:?}", store.name());
            self.context.differs(&[store.name()], what);
        }
        Ok(found)
    }

    async fn scan_appended(&mut self) -> Result<Vec<(Key, Version)>> {
        let partition = partition(&self.tx, Store::Appended)?;
        if self.tx.isolation() == Isolation::Serializable {
            self.take_turn().await?;
        }
        let (mut found, mut places) = (Vec::new(), Vec::new());
        let keep = |at: Position, value: &[u8]| {
            found.push(Store::Appended.arrived(value));
            places.push((at.page.number, at.slot));
            true
        };
        self.tx.scan_appended(partition, keep).await?;
        if !places.is_sorted_by(|one, next| one < next) {
            self.context.differs(&[Store::Appended.name()], format!("records come out of their order: {places:?}"));
        }
        Ok(found)
    }

    /// Remembers this moment.
    pub fn set_savepoint(&mut self) {
        let operations = self.history().savepoint(self.number);
        self.savepoints.push((self.tx.savepoint(), operations));
    }

    /// Goes back to a remembered moment, if there is one.
    pub async fn roll_back(&mut self, choice: u64) -> Result<()> {
        if self.savepoints.is_empty() {
            return Ok(());
        }
        let index = (choice % self.savepoints.len() as u64) as usize;
        let (savepoint, operations) = self.savepoints[index];
        self.tx.rollback_to(savepoint).await?;
        self.history().rolled_back_to(self.number, operations);
        self.savepoints.truncate(index + 1);
        Ok(())
    }
}
