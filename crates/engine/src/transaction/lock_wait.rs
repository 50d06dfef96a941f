//! Waiting for a lock: for how long, and when it would be for ever.
//!
//! A cycle of transactions that wait for each other's locks is a deadlock, which the lock table finds. It does not see that a
//! transaction waits, by way of others perhaps, for one that is never ended because the same task is to end it, or a task that awaits this
//! one's answer: that is looked for beside it ([`OwnWait`]).

use super::Transaction;
use super::own_wait::{OwnWait, Sought};
use super::stall::stalled_before;
use crate::engine::Engine;
use crate::locks::Ungranted;
use crate::statistics::{WaitKind, add};
use crate::{Error, Result};
use base::{Instant, TransactionId};
use std::time::Duration;
use structures::lock::{Owner, Resource};

impl Transaction {
    /// Has each later call of this transaction wait for a lock for at most this long; `None`: as the settings say
    /// ([`crate::Settings::lock_wait_ns_max`]). A call that has waited for longer fails with [`Error::LockTimeout`] and has done nothing; the
    /// transaction itself may go on.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// use std::time::Duration;
    ///
    /// let mut holder = database.begin().await?;
    /// holder.put(notes, b"milk", b"two litres").await?;
    /// let mut tx = database.begin().await?;
    /// tx.wait_at_most(Some(Duration::from_millis(20)));
    /// let refused = tx.put(notes, b"milk", b"none").await;
    /// assert!(matches!(refused, Err(Error::LockTimeout { holders, .. }) if holders == [holder.id()]));
    /// tx.put(notes, b"bread", b"one").await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn wait_at_most(&mut self, limit: Option<Duration>) {
        self.state.lock_wait_ns_max = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }

    #[cold]
    pub(super) async fn wait_for_lock(&mut self, resource: Resource, ungranted: Ungranted) -> Result<()> {
        let (engine, owner) = (&self.engine, self.state.owner);
        if let Some(victim) = ungranted.victim() {
            add(&engine.core.statistics.deadlocks, 1);
            if victim == owner {
                return Err(self.abort(Error::Deadlock));
            }
        }
        let executor = &engine.core.executor;
        let began = executor.now();
        let limit_ns = self.state.lock_wait_ns_max.or(engine.transactions.rules.lock_wait_ns_max);
        let until = limit_ns.and_then(|ns| began.ns().checked_add(ns)).map(Instant::from_ns);
        let own_wait = OwnWait::new(engine, Sought::Lock(owner));
        let hopeless = || {
            let now = executor.now();
            let stalled = stalled_before(&engine.core.locks, &engine.transactions, owner);
            let own = || own_wait.is_for_ever().then(|| own_lock(engine, owner, resource));
            let over =
                || until.filter(|until| now >= *until).map(|_| timeout(engine, owner, resource, now.since_ns(began)));
            // The transaction that is waited for may be one whose undoing the next opening goes on with.
            let left = || engine.transactions.left.is_given_up().then_some(Error::Closed);
            stalled.or_else(own).or_else(over).or_else(left)
        };
        let granted = engine.core.locks.wait(owner, ungranted, until, hopeless).await;
        engine.core.statistics.add_wait(WaitKind::Lock, executor, began);
        self.state.depend_on(engine.core.locks.dependency(resource));
        granted.map_err(|denied| self.abort_by(denied))
    }
}

fn holders(engine: &Engine, owner: Owner) -> Vec<TransactionId> {
    let registry = engine.transactions.registry.borrow();
    engine.core.locks.blockers(owner).into_iter().map(|holder| registry.id_of(holder)).collect()
}

fn own_lock(engine: &Engine, owner: Owner, resource: Resource) -> Error {
    Error::OwnLock { resource: engine.in_words(resource), holders: holders(engine, owner) }
}

fn timeout(engine: &Engine, owner: Owner, resource: Resource, waited_ns: u64) -> Error {
    Error::LockTimeout { resource: engine.in_words(resource), holders: holders(engine, owner), waited_ns }
}
