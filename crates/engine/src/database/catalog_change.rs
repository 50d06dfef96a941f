//! Changes of the catalog beside procedures that are logged as calls.
//!
//! A procedure may ask which partitions there are, and a restart that runs it again must give the same answers. So the log has
//! calls only where that is certain, and the changes of all others:
//!
//! * Nothing is logged as a call while a partition is being created or dropped, nor a transaction that had begun before that
//!   was over.
//! * A partition states from which position of the log on calls find it. Those before that are run again without it.
//! * Before a partition is dropped the sets are swept, so that no call which has found it is run again.
//! * So they are before a secondary index of a b-tree is entered or dropped, and with it perhaps a type of its records. While it is
//!   built, or its last readers are waited for, nothing is logged as a call.
//!
//! A call beside a creation or a drop therefore has its actions logged.

use super::Database;
use base::{Lsn, TransactionId};

/// A change of the catalog, which is over when this is dropped.
pub(super) struct CatalogChangeGuard {
    database: Database,
}

impl Database {
    /// Begins a change of the catalog.
    pub(super) fn begin_catalog_change(&self) -> CatalogChangeGuard {
        let barrier = &self.0.engine.transactions.call_barrier;
        barrier.changes.set(barrier.changes.get() + 1);
        barrier.first.set(TransactionId(u64::MAX));
        CatalogChangeGuard { database: self.clone() }
    }
}

impl CatalogChangeGuard {
    /// From here on the log has no call for as long as the change is under way.
    pub(super) fn since(&self) -> Lsn {
        self.database.0.engine.core.log.end()
    }

    /// The next opening may find the catalog of before or the one of after the change: until then nothing is logged as a call.
    pub(super) fn leave_undecided(self) {
        self.database.0.engine.transactions.call_barrier.is_unsettled.set(true);
    }
}

impl Drop for CatalogChangeGuard {
    fn drop(&mut self) {
        let engine = &self.database.0.engine;
        let barrier = &engine.transactions.call_barrier;
        barrier.changes.set(barrier.changes.get() - 1);
        if barrier.changes.get() == 0 && !barrier.is_unsettled.get() {
            barrier.first.set(TransactionId(engine.transactions.registry.borrow().next()));
        }
    }
}
