//! Partitions that were filled by a bulk load, past the log and the versions. To a reader of an earlier moment all their records
//! count as inserted when the load ended: a record that has no older version was not there.
//!
//! A bulk load is one commit of its whole partition to readers of moments: an empty log record gives its end a moment,
//! and a chain that leads back over that has nothing before it. No loaded record costs a version, and a transaction at
//! snapshot level from before the load that would change one gives up.

use crate::Database;
use crate::database::Visit;
use crate::log::record::Body;
use base::{Instant, Lsn, PartitionId, TransactionId};

/// Loads that somebody may read the time before of: the moments from which on they are seen, [`Lsn::MAX`] while they go on;
/// those of one partition in their order.
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

/// A load that goes on. What it has brought is seen by those who begin to read after its end.
pub(crate) struct Loading {
    _visit: Visit,
    database: Database,
    partition: PartitionId,
}

impl Database {
    /// A bulk load of a partition begins.
    pub(crate) fn begin_load(&self, partition: PartitionId) -> Loading {
        self.0.versions.borrow_mut().loads.0.push((partition, Lsn::MAX));
        Loading { _visit: self.visit(), database: self.clone(), partition }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // An empty record makes a moment of its own, which no commit shares.
        let (_, end) = self.database.log_and_apply(TransactionId::SYSTEM, &Body::System, &[]);
        let inner = &*self.database.0;
        inner.last_commit.set(end);
        inner.versions.borrow_mut().end_load(self.partition, end, inner.executor.now());
        // Who reads at that moment waits until it is durable.
        inner.log.request(end);
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
