//! A reader of a moment that is past: it takes no locks and sees the same for as long as it likes.

use super::store::{INDEX_NAME, Store, number_of, stored_key};
use crate::history::Span;
use crate::oracle::Oracle;
use engine::set::FieldValue;
use engine::{Database, Direction, Result, Snapshot};
use std::cell::RefCell;
use std::ops::Bound;
use std::rc::Rc;

/// A snapshot, and its number in the history.
pub struct SnapshotReader {
    pub database: Database,
    pub snapshot: Snapshot,
    pub number: usize,
    pub oracle: Rc<RefCell<Oracle>>,
}

impl SnapshotReader {
    /// Reads one record.
    pub async fn read(&mut self, store: Store, number: u64) -> Result<()> {
        let partition = self.database.partition(store.name())?;
        let version = |value: &[u8]| store.version(value);
        let found = match store {
            Store::Direct => Some(self.snapshot.read_object(partition, number, version).await?),
            _ => self.snapshot.get(partition, &stored_key(number)).await?.as_deref().map(version),
        };
        self.oracle.borrow_mut().history.read(self.number, store.key(number), found);
        Ok(())
    }

    /// Reads all records whose places lie in a span.
    pub async fn scan(&mut self, store: Store, span: Span, direction: Direction) -> Result<()> {
        let partition = self.database.partition(store.name())?;
        let mut found = Vec::new();
        let mut keep = |key: &[u8], value: &[u8]| {
            found.push((store.key(number_of(key)), store.version(value)));
            true
        };
        if store.is_indexed() {
            let secondary = self.database.secondary(partition, INDEX_NAME)?;
            let (first, last) = ([FieldValue::U32(span.first as u32)], [FieldValue::U32(span.last as u32)]);
            let bounds = match span {
                Span::ALL => (Bound::Unbounded, Bound::Unbounded),
                _ => (Bound::Included(&first[..]), Bound::Included(&last[..])),
            };
            self.snapshot.range(partition, secondary, bounds, Direction::Forward, keep).await?;
        } else {
            let (first, last) = (stored_key(span.first), stored_key(span.last));
            let (first, last) = (Bound::Included(&first[..]), Bound::Included(&last[..]));
            let mut cursor = self.snapshot.cursor(partition, first, last, direction);
            while let Some((key, value)) = self.snapshot.next(&mut cursor).await? {
                keep(&key, &value);
            }
        }
        self.oracle.borrow_mut().history.scanned(self.number, store.name(), span, found);
        Ok(())
    }

    /// Reads every record of a store by its number, and all of them in their order.
    pub async fn read_all(&mut self, store: Store, keys: u64) -> Result<()> {
        if store == Store::Appended {
            return self.scan_appended().await;
        }
        for number in 0..keys {
            self.read(store, number).await?;
        }
        if store.is_ordered() { self.scan(store, Span::ALL, Direction::Forward).await } else { Ok(()) }
    }

    /// Reads all records that were added at the end of a store.
    pub async fn scan_appended(&mut self) -> Result<()> {
        let (store, mut found) = (Store::Appended, Vec::new());
        let keep = |_, value: &[u8]| {
            found.push(store.arrived(value));
            true
        };
        self.snapshot.scan_appended(self.database.partition(store.name())?, keep).await?;
        self.oracle.borrow_mut().history.scanned(self.number, store.name(), Span::ALL, found);
        Ok(())
    }
}
