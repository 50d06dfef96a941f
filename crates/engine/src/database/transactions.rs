//! Transactions of a database: beginning one, and running a closure as one until it is through.

use super::Database;
use crate::engine::Isolation;
use crate::statistics::Event;
use crate::transaction::{self, Transaction};
use crate::{Error, Result};
use base::time::{MICROSECOND_NS, MILLISECOND_NS};
use std::pin::pin;

/// How long a deadlock's victim waits at least before it is run again, and at most unless its run took longer, in nanoseconds.
const BACKOFF_NS_MIN: u64 = 20 * MICROSECOND_NS;
const BACKOFF_NS_MAX: u64 = 10 * MILLISECOND_NS;

impl Database {
    /// Begins a transaction, as soon as fewer than the multiprogramming level are active.
    ///
    /// # Errors
    /// [`LogFailed`](crate::Error::LogFailed) if the log has failed; [`LogNotRelieved`](crate::Error::LogNotRelieved) if it is full and a checkpoint fails;
    /// [`OwnLog`](crate::Error::OwnLog) and [`TooManyTransactions`](crate::Error::TooManyTransactions) if it would wait for ever for another
    /// transaction of the same task; [`ServesNodes`](crate::Error::ServesNodes) while nodes use the database. Behind the end of their server
    /// it waits until the leases are over of those that may not have heard of it.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut tx = database.begin().await?;
    /// tx.put(notes, b"milk", b"two litres").await?;
    /// tx.commit().await?;
    ///
    /// let mut tx = database.begin().await?;
    /// tx.delete(notes, b"milk").await?;
    /// drop(tx);
    /// let found = database.transaction(async |tx| tx.get(notes, b"milk").await).await?;
    /// assert!(found.is_some(), "what is not committed is taken back");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn begin(&self) -> Result<Transaction> {
        self.begin_aged(None).await
    }

    /// Begins a transaction that counts as old as `began`, the age of an earlier try, when a deadlock's victim is chosen.
    ///
    /// # Errors
    /// Those of [`Database::begin`].
    pub async fn begin_aged(&self, began: Option<u64>) -> Result<Transaction> {
        self.await_leases().await?;
        self.check_own()?;
        let transaction = transaction::begin(&self.0.engine, began).await?;
        // Nodes may have come to use it while this has waited.
        self.check_own()?;
        Ok(transaction)
    }

    /// Begins a transaction at a level of isolation; [`Database::begin`] is for serializable ones.
    ///
    /// # Errors
    /// As [`Database::begin`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Isolation;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let (mut one, mut other) = (database.begin_at(Isolation::Snapshot).await?, database.begin_at(Isolation::Snapshot).await?);
    /// one.put(notes, b"milk", b"none").await?;
    /// assert_eq!(other.get(notes, b"milk").await?.as_deref(), Some(&b"two litres"[..]), "readers wait for no writer");
    /// one.commit().await?;
    /// assert_eq!(other.get(notes, b"milk").await?.as_deref(), Some(&b"two litres"[..]));
    /// assert_eq!(other.put(notes, b"milk", b"three").await, Err(Error::WriteConflict("notes".into())));
    /// # other.rollback().await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn begin_at(&self, isolation: Isolation) -> Result<Transaction> {
        let mut transaction = self.begin().await?;
        transaction.isolate(isolation).await?;
        Ok(transaction)
    }

    /// Runs `work` as a transaction: commits if it succeeds, rolls back if it fails. A deadlock's victim, or one that a
    /// black/white sweep refuses, is run again after a while, so that it does not take its locks again before the others get
    /// through. It keeps its age, so that it is not the youngest for ever. Whether it is run again follows from what happened to
    /// the transaction, whatever `work` makes of that: an error of the caller's own, or none.
    ///
    /// `work` may fail with any error that is made from [`Error`]. Where the compiler cannot tell which, say it at the end of
    /// `work`: `Ok::<_, Error>(())`. Dropped before its end, it is rolled back.
    ///
    /// A task that `work` spawns is another one, which may have been given what `work` has. So it is not seen that `work` waits for a task
    /// which waits for a lock of this transaction: that ends by the limit, [`Settings::lock_wait_ns_max`](crate::Settings::lock_wait_ns_max)
    /// (`[locks] wait_at_most`) or that of the task's own transaction ([`Transaction::wait_at_most`]), and is for ever without one.
    ///
    /// # Errors
    /// Those of `work`, and those of [`Database::begin`] and [`Transaction::commit`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let accounts = database.create_partition(PartitionSpec::b_tree("accounts")).await?;
    /// # for name in [b"a", b"b"] {
    /// #     database.transaction(async |tx| tx.put(accounts, name, &[100]).await).await?;
    /// # }
    /// // Two transfers that lock the same accounts in opposite order: one of them is tried again.
    /// let transfer = |from: &'static [u8], to: &'static [u8]| {
    ///     let database = database.clone();
    ///     database.executor().clone().spawn(async move {
    ///         let work = async |tx: &mut Transaction| {
    ///             tx.modify(accounts, from, |balance| balance[0] -= 10).await?;
    ///             database.executor().sleep_ns(1_000).await;
    ///             tx.modify(accounts, to, |balance| balance[0] += 10).await
    ///         };
    ///         database.transaction(work).await
    ///     })
    /// };
    /// let (there, back) = (transfer(b"a", b"b"), transfer(b"b", b"a"));
    /// there.join().await?;
    /// back.join().await?;
    /// assert_eq!(database.statistics().deadlocks.get(), 1);
    /// let a = database.transaction(async |tx| tx.get(accounts, b"a").await).await?;
    /// assert_eq!(a, Some(vec![100]));
    ///
    /// // An error of the caller's own.
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Poor(u8),
    ///     Engine(Error),
    /// }
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Refused {
    ///         Refused::Engine(error)
    ///     }
    /// }
    /// let withdrawn: Result<(), Refused> = database
    ///     .transaction(async |tx| {
    ///         let left = tx.modify(accounts, b"a", |balance| { balance[0] -= 90; balance[0] }).await?;
    ///         if left < 20 { Err(Refused::Poor(left)) } else { Ok(()) }
    ///     })
    ///     .await;
    /// assert!(matches!(withdrawn, Err(Refused::Poor(10))), "and it was rolled back");
    /// # let a = database.transaction(async |tx| tx.get(accounts, b"a").await).await?;
    /// # assert_eq!(a, Some(vec![100]));
    /// # Ok(())
    /// # });
    /// ```
    pub fn transaction<T, E: From<Error>>(
        &self,
        work: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> impl Future<Output = Result<T, E>> {
        self.transaction_at(Isolation::Serializable, work)
    }

    /// As [`Database::transaction`], at a level of isolation; one that would have overwritten what its snapshot does not have
    /// is run again, too, on a new snapshot.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::Isolation;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database
    ///     .transaction_at(Isolation::Snapshot, async |tx| {
    ///         let number = tx.get(notes, b"number").await?.map_or(0, |bytes| bytes[0]);
    ///         tx.put(notes, b"number", &[number + 1]).await
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # });
    /// ```
    pub async fn transaction_at<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        mut work: impl AsyncFnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut began = None;
        let mut backoff_ns = BACKOFF_NS_MIN;
        // When the latest try but the first began: how long the first took does not matter for the wait behind the second.
        let mut tried = None;
        let mut tries = 0;
        loop {
            let mut transaction = self.begin_aged(began).await?;
            self.0.engine.transactions.registry.borrow_mut().give_to_closure(transaction.owner());
            if isolation != Isolation::Serializable {
                Box::pin(transaction.isolate(isolation)).await?;
            }
            let age = transaction.began();
            match work(&mut transaction).await {
                // The commit of one that had to give up fails, whatever its work made of that.
                // Awaited where it is made: a future of this size is copied otherwise.
                Ok(value) => match pin!(transaction.commit()).await {
                    Ok(()) => return Ok(value),
                    Err(error) if error.is_conflict() => self.tell_retry(age, &mut tries, Some(&error)),
                    Err(error) => return Err(error.into()),
                },
                // Whatever its work says then, which the caller is not told of: the work is run again.
                Err(_) if transaction.check_active().is_err_and(|refused| refused.is_conflict()) => {
                    self.tell_retry(age, &mut tries, transaction.check_active().err().as_ref());
                    _ = transaction.rollback_early().await?;
                }
                Err(error) => {
                    transaction.rollback().await?;
                    return Err(error);
                }
            }
            began = Some(age);
            let tried_ns = tried.map_or(0, |tried| self.executor().now().since_ns(tried));
            // Victims of different ages wait for different times, so that they do not meet again.
            self.executor().sleep_ns(backoff_ns + backoff_ns * (age % 8) / 8).await;
            // Long transactions that begin again at once would meet, and end each other, for ever.
            backoff_ns = (2 * backoff_ns).min(tried_ns.max(BACKOFF_NS_MAX));
            tried = Some(self.executor().now());
        }
    }

    #[cold]
    fn tell_retry(&self, began: u64, tries: &mut u32, cause: Option<&Error>) {
        *tries += 1;
        self.statistics().tell(&Event::Retry { began, tries: *tries, cause });
    }
}
