//! Registered procedures: transactions that callers name, with their parameters as bytes.
//!
//! A procedure's isolation level is registered with it. Only serializable procedures are logged as calls: what others
//! read does not follow from the order of commits, so their changes are logged as actions, at their place in that
//! order. Two procedures that skew each other's writes are skewed after a restart as well.
//!
//! A restart runs procedures in a separate engine that has the sets and a log that is never written, so the code of
//! transactions is the same and appends nothing.

use crate::engine::{Engine, StoredCall};
use crate::transaction::begin_replay;
use crate::{Error, Isolation, Result, Transaction};
use base::{Lsn, PartitionId};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use structures::{PrefetchDistance, key_hash};

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + 'a>>;
type Hint = dyn Fn(&Prefetcher<'_>, &[u8]);

pub(crate) trait Procedure {
    /// Runs the body in a transaction that was begun.
    fn run<'a>(&'a self, transaction: &'a mut Transaction, parameters: &'a [u8]) -> Answer<'a>;
}

impl<Body: AsyncFn(&mut Transaction, &[u8]) -> Result<Vec<u8>>> Procedure for Body {
    fn run<'a>(&'a self, transaction: &'a mut Transaction, parameters: &'a [u8]) -> Answer<'a> {
        // What it does before it gives its future is done when that is polled, so that its panic is.
        Box::pin(async move { self(transaction, parameters).await })
    }
}

/// Brings memory near that a call is about to use: a hint, without effect on what it does.
pub struct Prefetcher<'a> {
    engine: &'a Engine,
    distance: PrefetchDistance,
}

impl<'a> Prefetcher<'a> {
    pub(crate) fn new(engine: &'a Engine, distance: PrefetchDistance) -> Prefetcher<'a> {
        Prefetcher { engine, distance }
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Result<PartitionId> {
        self.engine.catalog.partition(name)
    }

    /// The record of `key` in a memory-resident set is about to be used.
    #[inline]
    pub fn prefetch(&self, partition: PartitionId, key: &[u8]) {
        self.engine.sets.sets.borrow().prefetch(partition, key_hash(key), self.distance);
    }
}

/// Procedures by name, which a database is opened with ([`crate::Settings::procedures`]). Each runs as one transaction, again
/// if it was a deadlock's victim ([`Database::call`](crate::Database::call)).
///
/// Where procedures are logged ([`structures::set::Logging::Procedures`]) a restart runs them again. So a procedure must be
/// deterministic: what it changes must follow from its parameters, from what it reads through its transaction and from which
/// partitions there are, not from clocks, random numbers, the transaction's number, or other transactions that it begins. Of one
/// that goes on after an error which may not come again, as a device's does not, what it has changed is logged. What it answers
/// is not. A restart that does not find a procedure, or finds that it does something else, ends with [`Error::NotRepeated`]. All
/// this is asked of serializable procedures alone: of one at another level ([`Registered::at`]) what it has changed is logged.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// use entresol_engine::{Procedures, Settings};
///
/// let mut procedures = Procedures::new();
/// procedures.register("remember", async |tx, parameters| {
///     let notes = tx.partition("notes")?;
///     tx.put(notes, parameters, b"noted").await?;
///     Ok(Vec::new())
/// });
/// let settings = Settings { procedures, ..Settings::default() };
/// # with_database_of(settings, async |database| {
/// # database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// database.call("remember", b"milk").await?;
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Default)]
pub struct Procedures {
    pub(crate) bodies: BTreeMap<String, Registered>,
}

/// A procedure that is registered: at which level its transactions run, and what is known of them beforehand.
#[derive(Clone)]
pub struct Registered {
    pub(crate) body: Rc<dyn Procedure>,
    pub(crate) isolation: Isolation,
    hint: Option<Rc<Hint>>,
}

impl Registered {
    /// Has its transactions run at a level of isolation ([`Database::transaction_at`](crate::Database::transaction_at)), however they are called; serializable
    /// if this is not said. Below that, what one reads depends on more than the order of commits, in which a restart would run
    /// it again; so where procedures are logged, its changes of sets are logged as actions.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::{Direction, Isolation, Procedures, Settings};
    /// use std::ops::Bound;
    ///
    /// let mut procedures = Procedures::new();
    /// let count = procedures.register("count", async |tx, _| {
    ///     let notes = tx.partition("notes")?;
    ///     let mut cursor = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    ///     let mut count = 0;
    ///     while tx.next(&mut cursor).await?.is_some() {
    ///         count += 1;
    ///     }
    ///     Ok(vec![count])
    /// });
    /// // What was there at one moment; it keeps no transaction waiting, and waits for none.
    /// count.at(Isolation::Snapshot);
    /// # with_database_of(Settings { procedures, ..Settings::default() }, async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let mut other = database.begin().await?;
    /// other.put(notes, b"bread", b"one").await?;
    /// assert_eq!(database.call("count", &[]).await?, [1]);
    /// # other.commit().await?;
    /// # Ok(())
    /// # });
    /// ```
    pub fn at(&mut self, isolation: Isolation) -> &mut Registered {
        self.isolation = isolation;
        self
    }

    /// Gives it a `hint` that calls [`Prefetcher::prefetch`] for the records that a call with these parameters will need. A
    /// transaction server whose queue holds such a call asks for their memory while it runs the calls before it: waiting for
    /// memory is most of what a short transaction on large sets does. A hint that panics has given none.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// use entresol_engine::{Procedures, Settings};
    ///
    /// let mut procedures = Procedures::new();
    /// let deposit = procedures.register("deposit", async |tx, number| {
    ///     let accounts = tx.partition("accounts")?;
    ///     tx.modify(accounts, number, |balance| vec![{ balance[0] += 1; balance[0] }]).await
    /// });
    /// deposit.prefetch(|memory, number| {
    ///     if let Ok(accounts) = memory.partition("accounts") {
    ///         memory.prefetch(accounts, number);
    ///     }
    /// });
    /// # with_database_of(Settings { procedures, ..Settings::default() }, async |database| {
    /// # let accounts = database.create_partition(PartitionSpec::set("accounts")).await?;
    /// # database.transaction(async |tx| tx.put(accounts, b"17", &[4]).await).await?;
    /// assert_eq!(database.call("deposit", b"17").await?, [5]);
    /// # Ok(())
    /// # });
    /// ```
    pub fn prefetch(&mut self, hint: impl Fn(&Prefetcher<'_>, &[u8]) + 'static) -> &mut Registered {
        self.hint = Some(Rc::new(hint));
        self
    }

    /// Asks for the memory that a call will need, as far as that is known.
    #[inline]
    pub(crate) fn prefetch_for<'a>(&self, parameters: &[u8], prefetcher: impl FnOnce() -> Prefetcher<'a>) {
        if let Some(hint) = &self.hint {
            hint(&prefetcher(), parameters);
        }
    }

    /// Has a transaction that has just begun be the call of this procedure. One that is not serializable cannot be run again
    /// from its parameters, so its changes are logged themselves.
    pub(crate) async fn enter(&self, transaction: &mut Transaction, name: &str, parameters: &[u8]) -> Result<()> {
        if self.isolation == Isolation::Serializable {
            transaction.note_call(name, parameters);
            return Ok(());
        }
        Box::pin(transaction.isolate(self.isolation)).await
    }
}

impl fmt::Debug for Procedures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.bodies.keys()).finish()
    }
}

impl Procedures {
    /// No procedures.
    pub fn new() -> Procedures {
        Procedures::default()
    }

    /// Adds a procedure, in place of one of this name. What is to be said of it is said to what this returns: its level
    /// ([`Registered::at`]), which records it will need ([`Registered::prefetch`]).
    pub fn register(
        &mut self,
        name: &str,
        body: impl AsyncFn(&mut Transaction, &[u8]) -> Result<Vec<u8>> + 'static,
    ) -> &mut Registered {
        let registered = Registered { body: Rc::new(body), isolation: Isolation::Serializable, hint: None };
        self.bodies.entry(name.to_owned()).insert_entry(registered).into_mut()
    }

    /// All procedures, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Registered)> {
        self.bodies.iter()
    }

    /// The error that there is no procedure of this name.
    pub(crate) fn unknown(&self, name: &str) -> Error {
        Error::NoProcedure { name: name.to_owned(), registered: self.known() }
    }

    fn known(&self) -> String {
        let names: Vec<&str> = self.bodies.keys().map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

/// Runs a procedure again that the log has at `lsn`.
///
/// # Errors
/// [`Error::NotRepeated`], [`Error::DamagedLog`].
pub(crate) async fn replay(engine: &Rc<Engine>, procedures: &Procedures, lsn: Lsn, call: &[u8]) -> Result<()> {
    let Some(call) = StoredCall::decode(call) else {
        let detail = "a procedure's call makes no sense".to_owned();
        return Err(Error::DamagedLog { lsn, file: "log".into(), detail });
    };
    engine.catalog.partitions.borrow_mut().go_on_to(lsn);
    let name = String::from_utf8_lossy(call.name).into_owned();
    let result = match procedures.bodies.get(&name) {
        None => Err(format!("there is no such procedure, registered are: {}", procedures.known())),
        // It was serializable when it was logged, so it comes out the same whatever its level is now.
        Some(found) => {
            let mut transaction = begin_replay(engine, &call);
            match found.body.run(&mut transaction, call.parameters).await {
                Err(error) => Err(error.to_string()),
                Ok(_) => transaction.end_replay(),
            }
        }
    };
    result.map_err(|detail| Error::NotRepeated { procedure: name, lsn, detail })
}
