//! Transactions that wait, and for which others.

use super::Database;
use base::TransactionId;
use executor::{Unanswered, WholeExecutor};
use structures::lock::Mode;

/// A transaction that waits for a lock ([`Database::waits`]).
#[derive(Clone, Debug, PartialEq)]
pub struct LockWait {
    /// The transaction that waits.
    pub transaction: TransactionId,
    /// For what: a record, which is told by the hash of its key, a range that was read, a page or all of a partition.
    pub resource: String,
    /// In which mode it would hold that.
    pub mode: Mode,
    /// How long it has waited, in nanoseconds.
    pub waited_ns: u64,
    /// The transactions in its way: those that hold what it waits for, and those before it in the queue.
    pub holders: Vec<TransactionId>,
}

impl Database {
    /// Every transaction that waits for a lock now, the longest wait first, and who is in its way.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut holder = database.begin().await?;
    /// holder.put(notes, b"milk", b"two litres").await?;
    /// let other = database.clone();
    /// let waiting = database.executor().spawn(async move {
    ///     other.transaction(async |tx| tx.put(notes, b"milk", b"none").await).await
    /// });
    /// database.executor().sleep_ns(1_000_000).await;
    /// let [wait] = &database.waits()[..] else { panic!("one waits") };
    /// assert_eq!(wait.holders, [holder.id()]);
    /// assert!(wait.resource.ends_with("of 'notes'") && wait.waited_ns > 0);
    /// holder.commit().await?;
    /// waiting.join().await?;
    /// assert!(database.waits().is_empty());
    /// # Ok(())
    /// # });
    /// ```
    pub fn waits(&self) -> Vec<LockWait> {
        let engine = &self.0.engine;
        let (now, locks) = (self.executor().now(), &engine.core.locks);
        let registry = engine.transactions.registry.borrow();
        let describe = |(owner, since)| {
            let (resource, mode) = locks.wanted(owner)?;
            Some(LockWait {
                transaction: registry.id_of(owner),
                resource: engine.in_words(resource),
                mode,
                waited_ns: now.since_ns(since),
                holders: locks.blockers(owner).into_iter().map(|holder| registry.id_of(holder)).collect(),
            })
        };
        let mut waits: Vec<LockWait> = locks.waiting().into_iter().filter_map(describe).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited_ns));
        waits
    }

    /// The requests that devices have left unanswered for at least `waited_ns_min` nanoseconds, the oldest first. A device that
    /// answers no more keeps whatever needs it waiting.
    pub fn unanswered(&self, waited_ns_min: u64) -> Vec<Unanswered> {
        self.executor().whole().unanswered(waited_ns_min)
    }

    /// How many tasks wait to begin a transaction because as many are active as may run at once.
    pub fn waiting_to_begin(&self) -> usize {
        self.0.engine.transactions.admission.len()
    }
}
