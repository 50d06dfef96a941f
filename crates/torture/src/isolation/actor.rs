//! A transaction that records what it does and what it is shown.

use super::store::{Store, number_of, stored_key};
use crate::history::{History, Key, Span, Version};
use crate::oracle::Oracle;
use base::PartitionId;
use engine::set::FieldValue;
use engine::{Direction, Error, Result, Savepoint, Transaction};
use std::cell::{RefCell, RefMut};
use std::ops::Bound;
use std::rc::Rc;

/// A transaction of the engine, and its number in the history.
pub struct Actor {
    pub tx: Transaction,
    pub number: usize,
    pub oracle: Rc<RefCell<Oracle>>,
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

impl Actor {
    pub fn new(tx: Transaction, number: usize, oracle: Rc<RefCell<Oracle>>) -> Actor {
        Actor { tx, number, oracle, savepoints: Vec::new() }
    }

    fn history(&self) -> RefMut<'_, History> {
        RefMut::map(self.oracle.borrow_mut(), |oracle| &mut oracle.history)
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
            self.tx.put(partition, &stored_key(number), &value).await?;
        }
        self.history().wrote(self.number, version, Some(new.place));
        Ok(())
    }

    /// Adds a record at the end of a store.
    pub async fn append(&mut self, store: Store, new: New) -> Result<()> {
        let partition = partition(&self.tx, store)?;
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
            inserted => inserted?,
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
            let new = store.value(version, place, store.filler_length(value));
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
            old => Some(old?),
        };
        let mut history = self.history();
        history.read(self.number, store.key(number), old);
        if old.is_some() {
            history.wrote(self.number, version, Some(place));
        }
        Ok(())
    }

    /// Reads all records whose places lie in a span.
    pub async fn scan(&mut self, store: Store, span: Span, direction: Direction) -> Result<()> {
        let found = match store {
            Store::Index => self.scan_index(span).await?,
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

    async fn scan_index(&mut self, span: Span) -> Result<Vec<(Key, Version)>> {
        let partition = partition(&self.tx, Store::Index)?;
        let secondary = self.tx.catalog().secondary(partition, "by_group")?;
        let (first, last) = ([FieldValue::U32(span.first as u32)], [FieldValue::U32(span.last as u32)]);
        let bounds = match span {
            Span::ALL => (Bound::Unbounded, Bound::Unbounded),
            _ => (Bound::Included(&first[..]), Bound::Included(&last[..])),
        };
        let mut found = Vec::new();
        let keep = |key: &[u8], value: &[u8]| {
            found.push((Store::Index.key(number_of(key)), Store::Index.version(value)));
            true
        };
        self.tx.range(partition, secondary, bounds, Direction::Forward, keep).await?;
        Ok(found)
    }

    async fn scan_appended(&mut self) -> Result<Vec<(Key, Version)>> {
        let partition = partition(&self.tx, Store::Appended)?;
        let mut found = Vec::new();
        let keep = |_, value: &[u8]| {
            found.push(Store::Appended.arrived(value));
            true
        };
        self.tx.scan_appended(partition, keep).await?;
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
