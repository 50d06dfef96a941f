//! The state of an open database, below all that works on it: parts, of which functions take those that they need.
//!
//! A missing page, a lock or a lent segment is waited for outside of the synchronous steps that need it (`need.rs`), and a
//! change is logged and made in one such step (`core.rs`). What transactions, checkpoints and a restart do stands in the
//! rooms above.

mod call;
mod catalog;
mod checkpointer;
mod core;
mod direct_end;
mod growth;
mod index_build;
mod isolation;
mod left_undo;
mod need;
mod pages;
mod pairs;
mod partial_rollbacks;
mod registry;
pub(crate) mod relief;
mod sets;
mod stamp;
mod sweep_settings;
mod transactions;

#[cfg(test)]
pub(crate) use call::Call;
pub(crate) use call::StoredCall;
pub use catalog::Catalog;
pub(crate) use catalog::{Counted, Keyed, KeyedPartition, NotedPartition};
pub(crate) use checkpointer::Checkpointer;
pub use checkpointer::Policy;
pub(crate) use core::{Core, margin_min};
pub(crate) use direct_end::{RedoneEnds, check_length, lengthen, lengthen_unstated, state_end};
pub(crate) use index_build::IndexBuild;
pub use isolation::Isolation;
pub use left_undo::UndoProgress;
pub(crate) use partial_rollbacks::{PartialRollbacks, Position};
pub(crate) use relief::Relief;
pub(crate) use sets::{BlackWhiteSweep, CopyPin, SetStore, resolve_refusal, segments_returned, set_returned};
pub(crate) use stamp::{new_stamp, stamp};
pub use sweep_settings::{Strategy, SweepSettings};
pub(crate) use transactions::{Active, Chain, EndingTask, Rules, TransactionState, Transactions, Visit};

use crate::Error;
use crate::temp;
use crate::version::{Records, VersionStore};
use base::{Lsn, PartitionId};
use executor::{Panic, panic_message};
use std::panic::resume_unwind;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::lock::Resource;

/// The state of an open database.
pub(crate) struct Engine {
    pub core: Core,
    pub transactions: Transactions,
    pub versions: Rc<VersionStore>,
    pub sets: SetStore,
    pub catalog: Catalog,
    pub checkpointer: Checkpointer,
    /// Temporary space.
    pub temp: temp::Space,
}

impl Engine {
    /// What records are now.
    #[inline]
    pub fn records(&self) -> Records<'_> {
        Records { buffer: &self.core.buffer, partitions: &self.catalog.partitions, sets: &self.sets.sets }
    }

    /// Where what the log has of those begins that commit, and of loads that end, from now on.
    fn first_unended(&self) -> Option<Lsn> {
        let first = self.transactions.registry.borrow().first_lsn();
        first.into_iter().chain(self.catalog.loading_since()).min()
    }

    /// Says in the log when the commit is made, or the partition changed, that is logged next, if anyone is to know.
    #[inline]
    pub fn note_time(&self) {
        self.core.log.note_time(|| self.first_unended());
    }

    /// Says there that a load ends, if anyone is to know. Returns the record's LSN.
    pub fn note_load(&self, partition: PartitionId) -> Option<Lsn> {
        self.core.log.note_load(partition, || self.first_unended())
    }

    /// Notes that a transaction has to give up because of `cause`, which its caller is told.
    #[cold]
    pub fn abort(&self, state: &TransactionState, cause: Error) -> Error {
        if !canary::is_planted(Canary::RevivedVictim) {
            self.core.locks.set_victim(state.owner);
            state.aborted.get_or_init(|| cause.clone());
        }
        cause
    }

    /// What a resource is, in words that name its partition.
    pub fn in_words(&self, resource: Resource) -> String {
        let partition = resource.of_partition();
        let name = self
            .catalog
            .describe(partition)
            .map_or_else(|_| format!("number {}", partition.0), |found| found.name.clone());
        resource.in_words(&name)
    }

    /// Gives back the panic of a caller's own code.
    ///
    /// # Panics
    /// Goes on panicking if a change of pages was ended halfway: then the engine must not go on.
    #[cold]
    pub fn contained(&self, panic: Panic) -> Panic {
        if self.core.is_changing.get() {
            resume_unwind(panic);
        }
        panic
    }

    /// What the panic of a caller's own code means for its request.
    ///
    /// # Panics
    /// As [`Engine::contained`].
    #[cold]
    pub fn panicked(&self, what: &str, panic: Panic) -> Error {
        let panic = self.contained(panic);
        Error::Panicked { what: what.to_owned(), message: panic_message(&*panic).to_owned() }
    }

    /// Whether the log has `bytes` bytes beside those that it has promised.
    pub fn has_unpromised_log(&self, bytes: u64) -> bool {
        let core = &self.core;
        core.log.free_beside(0) >= bytes + core.rollback_room(self.transactions.unfinished.get())
    }

    /// How much memory pages and sets take, in bytes.
    pub fn memory_in_use(&self) -> u64 {
        let pages = {
            let pool = self.core.buffer.pool().borrow();
            pool.len() - pool.free_count()
        };
        (pages * self.core.page_size()) as u64 + self.sets.sets.borrow().memory_bytes()
    }

    /// How many records a set has; `None` for what is no set.
    pub fn set_records(&self, partition: PartitionId) -> Option<u64> {
        let is_set = self.catalog.describe(partition).is_ok_and(|found| found.set_settings().is_some());
        is_set.then(|| self.sets.sets.borrow().records(partition))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The checkpointer finds that no task is left to serve.
        self.checkpointer.relief.ask(&self.core.executor);
    }
}
