//! Reading records as they were at a moment.

use super::View;
use crate::database::Database;
use crate::lock::Resource;
use crate::organization::append::{self, LIVE, Position};
use crate::organization::b_tree;
use crate::organization::direct::Place;
use crate::page::{Pages, slotted};
use crate::transaction::{Stored, key_hash, read_stored};
use crate::{Need, Result};
use base::{Lsn, PartitionId};
use std::fmt;
use std::ops::Bound;

/// Somebody reads at a moment, perhaps only for one call.
pub(crate) struct Viewing {
    pub view: View,
    /// The database, if what is seen is kept for this alone.
    held: Option<Database>,
}

impl Viewing {
    /// A view whose snapshot somebody else holds.
    pub(crate) fn of(view: View) -> Viewing {
        Viewing { view, held: None }
    }

    /// A view of its own.
    pub(crate) fn held(database: &Database, view: View) -> Viewing {
        database.enter_snapshot(view.at);
        Viewing { view, held: Some(database.clone()) }
    }
}

impl fmt::Debug for Viewing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        if let Some(database) = &self.held {
            database.leave_snapshot(self.view.at);
        }
    }
}

impl Database {
    /// Where the last commit is in the log: the moment of a snapshot that begins now.
    pub(crate) fn present(&self) -> Lsn {
        self.0.last_commit.get()
    }

    /// Takes the present state of a record back to what a view sees.
    pub(crate) fn take_back(&self, view: View, partition: PartitionId, key: &[u8], state: &mut Option<Vec<u8>>) {
        let name = Resource::record(partition, key_hash(key));
        self.0.versions.borrow().take_back(view, name, (partition, key), state);
    }

    /// The value of `key` that a view sees.
    ///
    /// # Errors
    /// A damaged page, or the driver's.
    pub(crate) async fn read_at(&self, view: View, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        loop {
            let Some(stored) = self.stored_at(view, partition, key).await? else { return Ok(None) };
            if self.is_set(partition) {
                return Ok(Some(stored));
            }
            match read_stored(&stored) {
                Stored::Here(value) => return Ok(Some(value.to_vec())),
                Stored::Elsewhere(length, first) => {
                    let value = self.fetch(partition, length, first).await;
                    // Nobody waits for this reader before it frees the pages of a long value, but what was there is kept
                    // elsewhere by then.
                    if self.stored_at(view, partition, key).await?.as_ref() == Some(&stored) {
                        return value.map(Some);
                    }
                }
            }
        }
    }

    /// The stored value that a view sees.
    async fn stored_at(&self, view: View, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.versions.borrow().check(view)?;
        if !self.is_set(partition) {
            let stored = || {
                let mut state = {
                    let pool = self.0.buffer.pool().borrow();
                    let (place, leaf) = b_tree::find(&*pool, partition, key)?;
                    place.exact.then(|| slotted::value(leaf, place.slot).to_vec())
                };
                self.take_back(view, partition, key, &mut state);
                Ok(state)
            };
            return self.refer(partition, stored).await;
        }
        let hash = key_hash(key);
        loop {
            let found = self.0.sets.borrow().peek(partition, key, hash).map(|found| found.map(<[u8]>::to_vec));
            match found {
                Err(refusal) => self.overcome_refusal(partition, refusal).await?,
                Ok(mut state) => {
                    self.0.statistics.count_reference(usize::from(partition.0), true);
                    self.take_back(view, partition, key, &mut state);
                    return Ok(state);
                }
            }
        }
    }

    /// Object `number` of a direct partition, `length` bytes at `place`, as a view sees it.
    pub(crate) fn object_at(&self, view: View, number: u64, place: Place, length: usize) -> Result<Vec<u8>, Need> {
        let start = usize::from(place.offset);
        let mut state = Some(self.0.buffer.pool().borrow().page(place.page)?[start..start + length].to_vec());
        let partition = place.page.partition;
        let name = Resource::record(partition, number);
        self.0.versions.borrow().take_back(view, name, (partition, &number.to_be_bytes()), &mut state);
        Ok(state.expect("objects are there always"))
    }

    /// An appended record as a view sees it, unless it was rolled back.
    pub(crate) fn appended_in(&self, view: View, position: Position) -> Result<Option<Vec<u8>>, Need> {
        let mut state =
            Some(slotted::value(self.0.buffer.pool().borrow().page(position.page)?, position.slot).to_vec());
        let (partition, number) = (position.page.partition, append::number(position));
        let name = Resource::record(partition, number);
        self.0.versions.borrow().take_back(view, name, (partition, &number.to_be_bytes()), &mut state);
        Ok(state.filter(|record| record.first() == Some(&LIVE)))
    }

    /// Shows every record of a set that a view sees to `look`, in no particular order, until that returns false.
    pub(crate) fn scan_set_at(&self, view: View, partition: PartitionId, mut look: impl FnMut(&[u8], &[u8]) -> bool) {
        let (sets, versions) = (self.0.sets.borrow(), self.0.versions.borrow());
        let mut show = |key: &[u8], value: Option<&[u8]>| {
            let name = Resource::record(partition, key_hash(key));
            if !versions.is_changed_since(view, name) {
                return value.is_none_or(|value| look(key, value));
            }
            let mut state = value.map(<[u8]>::to_vec);
            versions.take_back(view, name, (partition, key), &mut state);
            state.is_none_or(|value| look(key, &value))
        };
        if sets.iterate(partition).any(|(key, value)| !show(key, Some(value))) {
            return;
        }
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let is_gone = |key: &&[u8]| sets.peek(partition, key, key_hash(key)).is_ok_and(|found| found.is_none());
        let _shown = versions.ghosts.range(partition, everything).filter(is_gone).all(|key| show(key, None));
    }

    /// The keys of a b-tree within a range that no scan of the present finds, and one of a view may have to.
    pub(crate) fn ghosts_within(&self, partition: PartitionId, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Vec<Vec<u8>> {
        self.0.versions.borrow().ghosts.range(partition, range).map(<[u8]>::to_vec).collect()
    }
}
