//! Partitions whose records were all taken away, past the log and the versions. What they were before is lost.

use crate::Error;
use base::{Lsn, PartitionId};

/// The moments from which on partitions are known, where there may be readers of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Emptied(Vec<(PartitionId, Lsn)>);

impl Emptied {
    /// Forgets those that a view at `oldest` or later knows.
    pub(super) fn forget_before(&mut self, oldest: Lsn) {
        self.0.retain(|(_, since)| oldest < *since);
    }
}

impl super::Versions {
    /// What a partition was before this moment is unknown.
    pub(super) fn forget_partition(&mut self, partition: PartitionId, since: Lsn) {
        match self.emptied.0.iter_mut().find(|(of, _)| *of == partition) {
            Some((_, known)) => *known = since.max(*known),
            None => self.emptied.0.push((partition, since)),
        }
    }

    /// Whether it is known what a partition was at this moment.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`].
    pub(super) fn check_emptied(&self, partition: PartitionId, at: Lsn) -> Result<(), Error> {
        match self.emptied.0.iter().find(|(of, since)| *of == partition && at < *since) {
            Some((_, since)) => Err(Error::SnapshotTooOld { oldest: *since, asked: None }),
            None => Ok(()),
        }
    }
}

impl super::VersionStore {
    /// Partitions are empty since this moment, which no commit shares; what they were before is lost. There may have been commits
    /// since then.
    pub(crate) fn note_emptied(&self, partitions: impl Iterator<Item = PartitionId>, since: Lsn) {
        let present = self.last_commit.get().max(since);
        self.last_commit.set(present);
        let (mut versions, now) = (self.versions.borrow_mut(), self.now());
        versions.latest = versions.latest.max(since);
        if versions.keeps_all() {
            versions.moments.note(now, present);
        }
        if versions.is_wanted() {
            versions.emptied.0.extend(partitions.map(|partition| (partition, since)));
        }
    }

    /// Whether it is known what a partition was at this moment.
    ///
    /// # Errors
    /// [`Error::SnapshotTooOld`] if all of its records were taken away since.
    #[inline]
    pub(crate) fn check_emptied(&self, partition: PartitionId, at: Lsn) -> Result<(), Error> {
        self.versions.borrow().check_emptied(partition, at)
    }
}
