//! Reading records as they were at a moment.

use super::chain::{Link, Version};
use super::{Pace, View};
use crate::Result;
use crate::database::Database;
use crate::transaction::{Stored, read_stored};
use base::{Lsn, PageId, PartitionId};
use std::fmt;
use std::ops::Bound;
use structures::key_hash;
use structures::lock::Resource;
use structures::organization::append::{self, LIVE, Position};
use structures::organization::b_tree;
use structures::organization::direct::Place;
use structures::page::{Pages, slotted};
use structures::set::Refusal;

/// A record on its way back to what a view sees.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub state: Option<Vec<u8>>,
    /// Where its chain goes on with changes that the view does not see.
    pub(super) rest: Link,
    /// The end of the first bulk load since the view's moment, before which there was no record unless an older version says
    /// so; the beginning if there was no load.
    loaded: Lsn,
}

impl Past {
    /// A record as it is.
    pub(crate) fn present(stored: &[u8]) -> Past {
        Past::new(Some(stored.to_vec()), Link::NOWHERE, Lsn::ZERO)
    }

    /// A record as it is, whose chain begins at `rest`.
    pub(super) fn new(state: Option<Vec<u8>>, rest: Link, loaded: Lsn) -> Past {
        Past { state: state.filter(|_| rest.commit >= loaded), rest, loaded }
    }

    /// Whether it is what the view sees.
    pub(crate) fn is_done(&self) -> bool {
        self.rest == Link::NOWHERE
    }

    /// Takes back the change that the version precedes, if it is one of this record's.
    pub(super) fn put_back(&mut self, record: (PartitionId, &[u8]), version: &Version<'_>) {
        if (version.partition, version.key) == record {
            version.before.put_back(&mut self.state);
        }
        if self.rest.commit >= self.loaded && version.below.commit < self.loaded {
            self.state = None;
        }
        self.rest = version.below;
    }
}

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

    /// Takes the present state of a record back to what a view sees, as far as memory goes.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`].
    pub(crate) fn take_back(
        &self,
        view: View,
        partition: PartitionId,
        key: &[u8],
        state: Option<Vec<u8>>,
    ) -> Result<Past> {
        let name = Resource::record(partition, key_hash(key));
        self.0.versions.borrow().take_back(view, name, (partition, key), state)
    }

    /// Goes on where memory ended.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`], [`Error::DamagedTemp`], or the driver's.
    #[inline]
    pub(crate) async fn all_the_way(
        &self,
        view: View,
        partition: PartitionId,
        key: &[u8],
        past: Past,
    ) -> Result<Option<Vec<u8>>> {
        if past.is_done() {
            return Ok(past.state);
        }
        self.take_back_further(view, (partition, key), past).await
    }

    /// The value of `key` that a view sees; with a `pace` if that read counts for others.
    ///
    /// # Errors
    /// A damaged page, or the driver's.
    pub(crate) async fn read_at(
        &self,
        view: View,
        partition: PartitionId,
        key: &[u8],
        pace: Option<&Pace>,
    ) -> Result<Option<Vec<u8>>> {
        loop {
            let Some(stored) = self.stored_at(view, partition, key, pace).await? else { return Ok(None) };
            if self.is_set(partition) {
                return Ok(Some(stored));
            }
            match read_stored(&stored) {
                Stored::Here(value) => return Ok(Some(value.to_vec())),
                Stored::Elsewhere(length, first) => {
                    let value = self.fetch(partition, length, first).await;
                    // Nobody waits for this reader before it frees the pages of a long value, but what was there is kept
                    // elsewhere by then.
                    if self.stored_at(view, partition, key, None).await?.as_ref() == Some(&stored) {
                        return value.map(Some);
                    }
                }
            }
        }
    }

    /// The stored value that a view sees.
    async fn stored_at(
        &self,
        view: View,
        partition: PartitionId,
        key: &[u8],
        pace: Option<&Pace>,
    ) -> Result<Option<Vec<u8>>> {
        if !self.is_set(partition) {
            let stored = || {
                let state = {
                    let pool = self.0.buffer.pool().borrow();
                    let (place, leaf) = b_tree::find(&*pool, partition, key)?;
                    place.exact.then(|| slotted::value(leaf, place.slot).to_vec())
                };
                Ok(self.take_back(view, partition, key, state)?)
            };
            let past = self.refer(partition, || self.single_step_of(pace, stored)).await?;
            return self.all_the_way(view, partition, key, past).await;
        }
        let hash = key_hash(key);
        let stored = || {
            let state = self.0.sets.borrow().peek(partition, key, hash)?.map(<[u8]>::to_vec);
            Ok(self.take_back(view, partition, key, state))
        };
        loop {
            match self.single_step_of(pace, stored) {
                Err(refusal) => self.overcome_refusal(partition, refusal).await?,
                Ok(past) => {
                    self.0.statistics.count_reference(usize::from(partition.0), true);
                    return self.all_the_way(view, partition, key, past?).await;
                }
            }
        }
    }

    /// Object `number` of a direct partition, `length` bytes at `place`, as a view sees it; with a `pace` if that read counts
    /// for others.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`], a damaged page, or the driver's.
    pub(crate) async fn object_at(
        &self,
        view: View,
        number: u64,
        (place, length): (Place, usize),
        pace: Option<&Pace>,
    ) -> Result<Vec<u8>> {
        let (partition, start, key) = (place.page.partition, usize::from(place.offset), number.to_be_bytes());
        let seen = || {
            let state = self.0.buffer.pool().borrow().page(place.page)?[start..start + length].to_vec();
            let (name, versions) = (Resource::record(partition, number), self.0.versions.borrow());
            Ok(versions.take_back(view, name, (partition, &key), Some(state))?)
        };
        let past = self.refer(partition, || self.single_step_of(pace, seen)).await?;
        let state = self.all_the_way(view, partition, &key, past).await?;
        Ok(state.expect("objects are there always"))
    }

    /// The appended records of a page that a view sees, with their places.
    ///
    /// # Errors
    /// As [`Database::object_at`].
    pub(crate) async fn appended_in(&self, view: View, page: PageId, pace: &Pace) -> Result<Vec<(Position, Vec<u8>)>> {
        let read = || {
            let (records, versions) = (self.appended(page)?, self.0.versions.borrow());
            let number = |slot| append::number(Position { page, slot });
            records.iter().for_each(|(slot, _)| versions.foresee(Resource::record(page.partition, number(*slot))));
            let mut pasts = Vec::with_capacity(records.len());
            for (slot, record) in records {
                let (position, number) = (Position { page, slot }, number(slot));
                let (name, key) = (Resource::record(page.partition, number), number.to_be_bytes());
                pasts.push((position, versions.take_back(view, name, (page.partition, &key), Some(record))?));
            }
            Ok(pasts)
        };
        let mut seen = Vec::new();
        for (position, past) in self.refer(page.partition, || self.step_of(pace, read)).await? {
            let key = append::number(position).to_be_bytes();
            let record = self.all_the_way(view, page.partition, &key, past).await?;
            seen.extend(record.filter(|record| record.first() == Some(&LIVE)).map(|record| (position, record)));
        }
        Ok(seen)
    }

    /// Shows every record of a set that a view sees to `look`, in no particular order, until that returns false: in many small
    /// steps, between which others go on.
    ///
    /// # Errors
    /// As [`Database::object_at`].
    pub(crate) async fn scan_set_at(
        &self,
        view: View,
        partition: PartitionId,
        pace: &Pace,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let mut next = Some(0);
        while let Some(from) = next {
            if from > 0 {
                self.pace(pace).await;
            }
            let mut seen = Vec::new();
            next = loop {
                match self.step_of(pace, || self.visit_set(view, partition, from, &mut seen))? {
                    Ok(next) => break next,
                    Err(refusal) => self.overcome_refusal(partition, refusal).await?,
                }
            };
            for (key, past) in seen {
                let value = self.all_the_way(view, partition, &key, past).await?;
                if value.is_some_and(|value| !look(&key, &value)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One step of [`Database::scan_set_at`]: what the view sees of the records from this position on, and where the next step
    /// begins.
    fn visit_set(
        &self,
        view: View,
        partition: PartitionId,
        from: u64,
        seen: &mut Vec<(Vec<u8>, Past)>,
    ) -> Result<Result<Option<u64>, Refusal>> {
        let (sets, versions) = (self.0.sets.borrow(), self.0.versions.borrow());
        versions.check(view)?;
        let mut present = Vec::new();
        let mut note = |key: &[u8], value: Option<&[u8]>| {
            let name = Resource::record(partition, key_hash(key));
            versions.foresee(name);
            present.push((name, key.to_vec(), value.map(<[u8]>::to_vec)));
        };
        let (visited, next) = match sets.visit(partition, from, |key, value| note(key, Some(value))) {
            Ok(visited) => visited,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (first, end) = (visited.start.to_be_bytes(), visited.end.to_be_bytes());
        for ghost in versions.ghosts.range((partition, 0), (Bound::Included(&first), Bound::Excluded(&end))) {
            let (_, key) = ghost.split();
            if sets.peek(partition, key, key_hash(key)).is_ok_and(|found| found.is_none()) {
                note(key, None);
            }
        }
        for (name, key, state) in present {
            let past = versions.take_back(view, name, (partition, &key), state);
            seen.extend(past.ok().map(|past| (key, past)));
        }
        Ok(Ok(next))
    }

    /// The keys of a b-tree within a range that no scan of the present finds, and one of a view may have to.
    ///
    /// # Errors
    /// [`crate::Error::SnapshotTooOld`]: some may have been given up.
    pub(crate) fn ghosts_within(
        &self,
        view: View,
        partition: PartitionId,
        range: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Vec<Vec<u8>>> {
        let versions = self.0.versions.borrow();
        versions.check(view)?;
        Ok(versions.ghosts.range((partition, 0), range).map(|ghost| ghost.split().1.to_vec()).collect())
    }
}
