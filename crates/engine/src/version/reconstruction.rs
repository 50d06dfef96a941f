//! Records on their way back to what they were at a moment.

use super::chain::{Link, Version};
use super::{Records, VersionStore, View};
use crate::Result;
use base::{Lsn, PartitionId};
use std::ops::Bound;
use structures::key_hash;
use structures::lock::Resource;
use structures::set::Refusal;

/// A record on its way back to what a view sees.
#[derive(Clone, Debug)]
pub(crate) struct Reconstruction {
    pub state: Option<Vec<u8>>,
    /// Where its chain goes on with changes that the view does not see.
    pub(super) rest: Link,
    /// The end of the first bulk load since the view's moment, before which there was no record unless an older version says
    /// so; the beginning if there was no load.
    loaded: Lsn,
}

impl Reconstruction {
    /// A record as it is.
    pub(crate) fn present(stored: &[u8]) -> Reconstruction {
        Reconstruction::new(Some(stored.to_vec()), Link::NOWHERE, Lsn::ZERO)
    }

    /// A record as it is, whose chain begins at `rest`.
    pub(super) fn new(state: Option<Vec<u8>>, rest: Link, loaded: Lsn) -> Reconstruction {
        Reconstruction { state: state.filter(|_| rest.commit >= loaded), rest, loaded }
    }

    /// Whether it is what the view sees.
    pub(crate) fn is_done(&self) -> bool {
        self.rest == Link::NOWHERE
    }

    /// Undoes the change that the version precedes, if it is one of this record's.
    pub(super) fn undo_change(&mut self, record: (PartitionId, &[u8]), version: &Version<'_>) {
        if (version.partition, version.key) == record {
            version.before.undo_change(&mut self.state);
        }
        if self.rest.commit >= self.loaded && version.below.commit < self.loaded {
            self.state = None;
        }
        self.rest = version.below;
    }
}

impl VersionStore {
    /// Takes the present state of a record back to what a view sees, as far as memory goes.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`].
    pub(crate) fn reconstruct_in_memory(
        &self,
        view: View,
        partition: PartitionId,
        key: &[u8],
        state: Option<Vec<u8>>,
    ) -> Result<Reconstruction> {
        let name = Resource::record(partition, key_hash(key));
        self.versions.borrow().reconstruct_in_memory(view, name, (partition, key), state)
    }

    /// Goes on where memory ended.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`], [`Error::DamagedTemp`], or the driver's.
    #[inline]
    pub(crate) async fn reconstruct(
        &self,
        view: View,
        partition: PartitionId,
        key: &[u8],
        past: Reconstruction,
    ) -> Result<Option<Vec<u8>>> {
        if past.is_done() {
            return Ok(past.state);
        }
        self.reconstruct_from_space(view, (partition, key), past).await
    }

    /// One step of a scan of a set (`mvcc/read.rs`): what the view sees of the records from this position on, and where the next step
    /// begins.
    pub(crate) fn visit_set(
        &self,
        records: Records<'_>,
        view: View,
        partition: PartitionId,
        from: u64,
        seen: &mut Vec<(Vec<u8>, Reconstruction)>,
    ) -> Result<Result<Option<u64>, Refusal>> {
        let (sets, versions) = (records.sets.borrow(), self.versions.borrow());
        versions.check(view)?;
        let (mut present, mut bytes) = (Vec::new(), 0);
        let mut note = |key: &[u8], value: Option<&[u8]>| {
            bytes += value.map_or(0, <[u8]>::len);
            let name = Resource::record(partition, key_hash(key));
            versions.prefetch(name);
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
        self.executor.charge_value(bytes);
        for (name, key, state) in present {
            let past = versions.reconstruct_in_memory(view, name, (partition, &key), state);
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
        let versions = self.versions.borrow();
        versions.check(view)?;
        Ok(versions.ghosts.range((partition, 0), range).map(|ghost| ghost.split().1.to_vec()).collect())
    }
}
