//! Transactions: strict two-phase locking, commit, rollback, savepoints.

mod abort;
mod add;
mod admission;
mod appended;
mod arrivals;
mod commit;
mod cursor;
mod fields;
mod freeing;
mod get_each;
mod half_change;
mod index_build;
mod index_range;
mod indexed;
mod insert_each;
mod isolation;
mod key_range;
mod left_undo;
mod lock_wait;
mod log_relief;
mod log_room;
mod long_value;
mod modify;
mod objects;
mod observation;
mod own_log;
mod own_wait;
mod past_log;
mod prefetch;
mod read_ranges;
mod records;
mod rollback;
mod savepoint;
mod scan;
mod secondary;
mod set_log;
mod set_records;
mod shipped_sets;
mod snapshot;
mod stall;
#[cfg(test)]
mod tests;
mod unique;
mod update;

pub use appended::arrival_position;
pub(crate) use commit::{Committing, EarlyCommit};
pub use cursor::{Cursor, Direction};
pub(crate) use freeing::{Chains, free_after_restart};
pub(crate) use index_build::not_indexed;
pub(crate) use isolation::await_segments;
pub use key_range::{KeyRange, prefix};
pub(crate) use left_undo::{LeftLoser, Loser, begin_left_undo, leave, without_room};
pub(crate) use log_relief::relieve;
pub(crate) use own_wait::{GRACE_NS, OwnWait, Sought, changer_ids};
pub(crate) use rollback::undo;
pub use savepoint::Savepoint;
pub use scan::Scan;
pub(crate) use shipped_sets::ShippedSets;
pub use snapshot::Snapshot;

use crate::engine::{Active, Catalog, Engine, StoredCall, segments_returned};
use crate::locks::{Grant, Ungranted};
use crate::{Error, Result};
use base::{PartitionId, TransactionId};
use driver::Work;
use executor::UserExecutor;
use log_relief::wait_for_log;
use own_log::wait_for_own;
use std::rc::Rc;
use structures::lock::{Mode, Owner, Resource};
use structures::set::Logging;

/// A transaction. It is rolled back if it is dropped before its commit. What it has read may be told to others as soon as
/// [`Transaction::commit`] or [`Transaction::rollback`] has returned: until then a power cut may take back what it has seen.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// # let accounts = database.create_partition(PartitionSpec::b_tree("accounts")).await?;
/// # database.transaction(async |tx| tx.put(accounts, b"alice", b"\x64").await).await?;
/// # database.transaction(async |tx| tx.put(accounts, b"bob", b"\x32").await).await?;
/// database
///     .transaction(async |tx| {
///         let left = tx.modify(accounts, b"alice", |balance| { balance[0] -= 20; balance[0] }).await?;
///         tx.modify(accounts, b"bob", |balance| balance[0] += 20).await?;
///         if left < 10 { Err(Error::RolledBack("alice keeps ten".into())) } else { Ok(()) }
///     })
///     .await?;
/// let bob = database.transaction(async |tx| tx.get(accounts, b"bob").await).await?;
/// assert_eq!(bob, Some(vec![70]));
/// # Ok(())
/// # });
/// ```
pub struct Transaction {
    engine: Rc<Engine>,
    state: Active,
    ended: bool,
}

/// Begins a transaction that counts as old as `began`, the age of an earlier try, when a deadlock's victim is chosen.
///
/// # Errors
/// [`Error::LogFailed`] if the log has failed; [`Error::LogNotRelieved`] if it is full and a checkpoint fails;
/// [`Error::TooManyTransactions`]; [`Error::OwnLog`].
pub(crate) async fn begin(engine: &Rc<Engine>, began: Option<u64>) -> Result<Transaction> {
    let asked = engine.core.statistics.moment(&engine.core.executor);
    if engine.transactions.may_change() >= engine.transactions.admitted_max.get() {
        admission::wait(engine).await?;
    }
    engine.transactions.active.set(engine.transactions.active.get() + 1);
    let mut state = engine.transactions.registry.borrow_mut().begin(began);
    state.watched = asked.map(|asked| (engine.core.statistics.begin_transaction(&engine.core.executor), asked));
    state.user.set(Some(engine.core.executor.caller()));
    let mut transaction = Transaction { engine: Rc::clone(engine), state, ended: false };
    engine.core.executor.charge(Work::BeginTransaction);
    if engine.core.executor.owes() {
        engine.core.executor.set_footprint(engine.memory_in_use());
        engine.core.executor.pay_debt().await;
    }
    if engine.versions.is_kept() {
        engine.versions.wait_for_room().await;
    }
    let own_before = began.and_then(|began| engine.transactions.registry.borrow_mut().take_own_before(began));
    if let Some(was_kept) = own_before {
        wait_for_own(engine, transaction.state.owner, was_kept).await?;
    }
    match began.and_then(|began| engine.transactions.registry.borrow_mut().take_refused(began)) {
        Some(bytes) => transaction.claim_log(bytes).await?,
        None if engine.core.log.is_crowded() || engine.core.log.is_short_of_file() || engine.core.log.is_claimed() => {
            wait_for_log(engine, transaction.state.owner).await?
        }
        None => {}
    }
    Ok(transaction)
}

/// Begins a transaction that runs a procedure again for a restart.
pub(crate) fn begin_replay(engine: &Rc<Engine>, call: &StoredCall<'_>) -> Transaction {
    engine.transactions.active.set(engine.transactions.active.get() + 1);
    let mut state = engine.transactions.registry.borrow_mut().begin(None);
    state.call.begin_replay(call);
    Transaction { engine: Rc::clone(engine), state, ended: false }
}

/// Why a procedure that is run again must be stopped.
#[cold]
fn not_replayable() -> Error {
    Error::ReplayDiverged("it refers to pages or scans a set, which it did not when it was logged")
}

impl Transaction {
    /// The transaction's number.
    pub fn id(&self) -> TransactionId {
        self.state.id
    }

    /// Its place in the lock table.
    pub(crate) fn owner(&self) -> Owner {
        self.state.owner
    }

    /// The number of its first try, to be handed to [`Database::begin_aged`](crate::Database::begin_aged) when it is tried again.
    pub fn began(&self) -> u64 {
        self.state.began
    }

    /// Notes the call that it is, if calls are logged.
    pub(crate) fn note_call(&mut self, name: &str, parameters: &[u8]) {
        if self.engine.transactions.rules.logging == Logging::Procedures {
            self.state.call.begin(name, parameters);
        }
    }

    /// Notes that it does what would not come out the same if its procedure were run again.
    ///
    /// # Errors
    /// [`Error::ReplayDiverged`] if it is being replayed.
    #[inline]
    fn mark_not_replayable(&self) -> Result<()> {
        if self.state.call.mark_not_replayable() { Ok(()) } else { Err(not_replayable()) }
    }

    /// The executor that it runs on.
    pub fn executor(&self) -> &UserExecutor {
        self.engine.core.for_callers()
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Result<PartitionId> {
        self.engine.catalog.partition(name)
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.engine.catalog
    }

    /// Waits until every segment of sets can be read.
    pub async fn segments_returned(&self) {
        segments_returned(&self.engine.core.executor, &self.engine.sets).await;
    }

    /// How many records a set has, those of transactions under way included: no answer that a procedure may
    /// rest on. `None` for what is no set.
    pub fn set_records(&self, partition: PartitionId) -> Option<u64> {
        self.engine.set_records(partition)
    }

    /// One object reference: charged. True if [`Transaction::delayed_reference`] has to be awaited before it may be made.
    #[inline]
    fn reference(&self) -> bool {
        let engine = &self.engine;
        self.state.user.set(Some(engine.core.executor.caller()));
        engine.core.executor.charge(Work::ObjectReference);
        engine.core.executor.owes() || engine.core.locks.is_victim(self.state.owner) || self.lacks_log()
    }

    /// Pays the reference on described hardware, and waits for room in the log.
    #[cold]
    async fn delayed_reference(&self) -> Result<()> {
        let engine = &self.engine;
        engine.core.executor.pay_debt().await;
        self.check_active()?;
        self.log_room().await
    }

    /// Locks a resource, waiting if need be.
    #[inline]
    async fn lock(&mut self, resource: Resource, mode: Mode) -> Result<()> {
        match self.request(resource, mode) {
            None => Ok(()),
            Some(ungranted) => self.wait_for_lock(resource, ungranted).await,
        }
    }

    /// Asks for a lock. Unless it is granted at once, [`Transaction::wait_for_lock`] has to be awaited for what this returns.
    #[inline]
    fn request(&mut self, resource: Resource, mode: Mode) -> Option<Ungranted> {
        match self.engine.core.locks.acquire(self.state.owner, self.state.began, resource, mode) {
            Grant::Granted(dependency) => {
                self.state.depend_on(dependency);
                None
            }
            Grant::Wait(ungranted) => Some(ungranted),
        }
    }

    /// Asks for a lock that what follows depends on; false if it is not granted at once.
    fn try_lock(&self, resource: Resource, mode: Mode) -> bool {
        let granted = self.engine.core.locks.try_acquire(self.state.owner, resource, mode);
        granted.inspect(|dependency| self.state.depend_on(*dependency)).is_some()
    }
}
