//! Partitions that were filled by a bulk load, past the log and the versions. To a reader of an earlier moment all their records
//! count as inserted when the load ended: a record that has no older version was not there.
//!
//! A bulk load is one commit of its whole partition to readers of moments: an empty log record gives its end a moment,
//! and a chain that leads back over that has nothing before it. No loaded record costs a version, and a transaction at
//! snapshot level from before the load that would change one gives up.

use base::{Instant, Lsn, PartitionId};

/// Loads whose earlier state may still be read: the moments from which on they are visible, [`Lsn::MAX`] while they are in
/// progress; those of one partition in their order.
#[derive(Debug, Default)]
pub(super) struct Loads(Vec<(PartitionId, Lsn)>);

impl Loads {
    /// The moment of the first load of a partition that a view at `at` does not see; the beginning if it sees them all.
    pub(super) fn first_after(&self, partition: PartitionId, at: Lsn) -> Lsn {
        let found = self.0.iter().find(|(of, seen)| *of == partition && at < *seen);
        found.map_or(Lsn::ZERO, |(_, seen)| *seen)
    }

    /// Forgets those that a view at `oldest` or later sees.
    pub(super) fn forget_before(&mut self, oldest: Lsn) {
        self.0.retain(|(_, seen)| oldest < *seen || *seen == Lsn::MAX);
    }
}

impl super::VersionStore {
    /// A bulk load of a partition begins.
    pub(crate) fn begin_load(&self, partition: PartitionId) {
        self.versions.borrow_mut().loads.0.push((partition, Lsn::MAX));
    }

    /// One has ended before the opening, by the calendar at this time.
    pub(crate) fn rebuild_load(&self, partition: PartitionId, end: Lsn, now: Instant) {
        let mut versions = self.versions.borrow_mut();
        versions.loads.0.push((partition, end));
        versions.latest = versions.latest.max(end);
        versions.moments.note(now, end);
    }

    /// The opening says of one that was cut off that it ends now.
    pub(crate) fn end_lost_load(&self, partition: PartitionId, end: Lsn) {
        self.last_commit.set(end);
        self.rebuild_load(partition, end, self.now());
    }

    /// One that is under way has left nothing.
    pub(crate) fn give_up_load(&self, partition: PartitionId) {
        let loads = &mut self.versions.borrow_mut().loads.0;
        let begun = loads.iter().rposition(|load| *load == (partition, Lsn::MAX)).expect("it has begun");
        loads.remove(begun);
    }

    /// Its end is a moment of its own, which no commit shares.
    pub(crate) fn end_load(&self, partition: PartitionId, end: Lsn) {
        self.last_commit.set(end);
        self.versions.borrow_mut().end_load(partition, end, self.now());
    }
}

impl super::Versions {
    fn end_load(&mut self, partition: PartitionId, end: Lsn, now: Instant) {
        let load = self.loads.0.iter_mut().rfind(|(of, _)| *of == partition).expect("it has begun");
        load.1 = end;
        self.latest = end;
        if self.keeps_all() {
            self.moments.note(now, end);
        }
        if !self.is_wanted() {
            self.loads.forget_before(end);
        }
    }
}
