//! Transactions: strict two-phase locking, commit, rollback, savepoints.

mod abort;
mod add;
mod appended;
pub(crate) mod call;
mod commit;
mod cursor;
mod fields;
mod freeing;
mod gaps;
mod isolation;
mod keyed;
mod log_room;
pub(crate) mod long_value;
mod modify;
mod objects;
mod observation;
mod records;
mod registry;
mod retry;
mod rollback;
mod scan;
mod secondary;
mod set_log;
mod set_records;
mod stall;

pub(crate) use commit::Committing;
pub use cursor::{Cursor, Direction};
pub(crate) use freeing::Chains;
pub use isolation::Isolation;
pub(crate) use long_value::{Stored, read as read_stored, store_here};
pub use registry::Registry;
pub use scan::Scan;

use crate::database::Database;
use crate::statistics::add;
use crate::version::Pace;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId, TransactionId};
use call::Call;
use driver::Work;
use executor::Relay;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::Poll;
use structures::lock::{Mode, Outcome, Owner, Resource};
use structures::set::{self, Logging};
use structures::undo::UndoList;

/// What a transaction has done so far.
#[derive(Debug, Default)]
pub struct State {
    /// Its number.
    pub id: TransactionId,
    /// Its place in the lock table and the registry.
    pub owner: Owner,
    /// How to take its updates back. The registry has it too, for the first reader of what was before.
    pub undo: Rc<RefCell<UndoList>>,
    /// Whether it has logged anything.
    pub wrote: bool,
    /// Bytes of its updates in the log.
    pub logged: u64,
    /// Bytes of the log that it has been promised.
    reserved: u64,
    /// How often it has gone back to a savepoint.
    rollbacks: u64,
    /// What must be durable before its answer may leave, also one that says no: the commits whose updates it has read.
    dependency: Cell<Lsn>,
    /// Those that began before it and those after it, as [`Registry`] counts them.
    group: u8,
    /// Its age for the choice of a deadlock's victim: the number of the first try.
    began: u64,
    /// Long values that it deleted.
    chains: Vec<Chain>,
    /// A long value that it has built, at least in part, and not put into the tree: abandoned if it never does.
    loose: Option<Chain>,
    /// The pages that it changed, under FORCE.
    pages: Vec<PageId>,
    /// The procedure's call that it is, where procedures are logged.
    call: Call,
    isolation: Isolation,
    /// The moment that it sees, at snapshot level.
    at: Lsn,
    /// Why it has to give up, once its caller was told so.
    aborted: OnceCell<Error>,
    /// How fast it reads the past.
    pace: Rc<Pace>,
}

impl State {
    /// A transaction found unfinished after a restart.
    pub(crate) fn unfinished(id: TransactionId, undo: UndoList) -> State {
        State { id, undo: Rc::new(RefCell::new(undo)), wrote: true, ..State::default() }
    }

    /// The transaction's level.
    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Whether it is a procedure's call and would come out the same if that were run again.
    #[inline]
    pub(crate) fn has_call(&self) -> bool {
        self.call.is_logged()
    }

    /// It has seen what was committed up to `lsn`, or some of it.
    #[inline]
    fn depend_on(&self, lsn: Lsn) {
        self.dependency.set(self.dependency.get().max(lsn));
    }

    /// How many updates it would have to take back.
    pub(crate) fn updates(&self) -> usize {
        self.undo.borrow().len()
    }

    /// Forgets everything but its place and the memory.
    fn clear(&mut self) {
        self.undo.borrow_mut().clear();
        self.chains.clear();
        self.loose = None;
        self.pages.clear();
        self.call.end();
        self.wrote = false;
        self.logged = 0;
        self.reserved = 0;
        self.rollbacks = 0;
        self.dependency.set(Lsn::ZERO);
        self.isolation = Isolation::Serializable;
        self.aborted.take();
    }
}

/// The state of an active transaction, which is handed on by its address and goes back to the registry in the end.
#[derive(Debug, Default)]
pub struct Active(Option<Box<State>>);

impl Deref for Active {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        self.0.as_deref().expect("the state of a transaction that ended is not asked for")
    }
}

impl DerefMut for Active {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_deref_mut().expect("the state of a transaction that ended is not changed")
    }
}

/// A long value whose pages are to be freed if its transaction commits.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// The position in the undo list of the update that this depends on.
    undo: usize,
    /// Where it begins.
    first: PageId,
}

/// A moment within a transaction to which it can be rolled back; [`Transaction::savepoint`] shows its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    undo: usize,
    sets: set::Position,
}

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
    database: Database,
    state: Active,
    ended: bool,
}

impl Database {
    /// Begins a transaction, as soon as fewer than the multiprogramming level are active.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if the log has failed; [`Error::LogNotRelieved`] if it is full and a checkpoint fails.
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

    /// Begins a transaction that runs a procedure again for a restart.
    pub(crate) fn begin_repeated(&self, call: &call::Stored<'_>) -> Transaction {
        let inner = &*self.0;
        inner.active.set(inner.active.get() + 1);
        let mut state = inner.registry.borrow_mut().begin(None);
        state.call.repeat(call);
        Transaction { database: self.clone(), state, ended: false }
    }

    /// Begins a transaction that counts as old as `began`, the age of an earlier try, when a deadlock's victim is chosen.
    ///
    /// # Errors
    /// Those of [`Database::begin`].
    pub async fn begin_aged(&self, began: Option<u64>) -> Result<Transaction> {
        let inner = &*self.0;
        self.refuse_while_repeating()?;
        while inner.active.get() >= inner.admitted_max.get() {
            inner.admission.wait(&inner.executor).await;
        }
        inner.active.set(inner.active.get() + 1);
        let state = inner.registry.borrow_mut().begin(began);
        let mut transaction = Transaction { database: self.clone(), state, ended: false };
        inner.executor.charge(Work::BeginTransaction);
        if inner.executor.owes() {
            inner.executor.settle().await;
        }
        if inner.keeps_versions.get() {
            self.wait_for_undo_room().await;
        }
        match began.and_then(|began| inner.registry.borrow_mut().take_refused(began)) {
            Some(bytes) => transaction.claim_log(bytes).await?,
            None if inner.log.is_crowded() || inner.log.is_claimed() => self.wait_for_log().await?,
            None => {}
        }
        Ok(transaction)
    }
}

/// Why a procedure that is run again must be stopped.
#[cold]
fn strayed() -> Error {
    Error::Setting("it refers to pages or scans a set, which it did not when it was logged".into())
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

    /// The number of its first try, to be handed to [`Database::begin_aged`] when it is tried again.
    pub fn began(&self) -> u64 {
        self.state.began
    }

    /// Notes the call that it is, if calls are logged.
    pub(crate) fn note_call(&mut self, name: &str, parameters: &[u8]) {
        if self.database.0.settings.logging == Logging::Procedures {
            self.state.call.begin(name, parameters);
        }
    }

    /// Notes that it does what would not come out the same if its procedure were run again.
    ///
    /// # Errors
    /// [`Error::Setting`] if that is what is going on.
    #[inline]
    fn depart(&self) -> Result<()> {
        if self.state.call.depart() { Ok(()) } else { Err(strayed()) }
    }

    /// The database that it runs in.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Marks this moment.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let orders = database.create_partition(PartitionSpec::b_tree("orders")).await?;
    /// database
    ///     .transaction(async |tx| {
    ///         tx.put(orders, b"1", b"pen").await?;
    ///         let before_second = tx.savepoint();
    ///         tx.put(orders, b"2", b"ink").await?;
    ///         tx.rollback_to(before_second).await?;
    ///         tx.put(orders, b"3", b"paper").await
    ///     })
    ///     .await?;
    /// let kept = database.transaction(async |tx| Ok((tx.get(orders, b"2").await?, tx.get(orders, b"3").await?))).await?;
    /// assert_eq!(kept, (None, Some(b"paper".to_vec())));
    /// # Ok(())
    /// # });
    /// ```
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { undo: self.state.updates(), sets: self.database.0.sets.borrow().position(self.state.owner) }
    }

    /// One object reference: charged. True if [`Transaction::delayed_reference`] has to be awaited before it may be made.
    #[inline]
    fn reference(&self) -> bool {
        let inner = &*self.database.0;
        inner.executor.charge(Work::ObjectReference);
        inner.executor.owes() || inner.registry.borrow().is_doomed(self.state.owner) || self.lacks_log()
    }

    /// Pays the reference on described hardware, and waits for room in the log.
    #[cold]
    async fn delayed_reference(&self) -> Result<()> {
        let inner = &*self.database.0;
        inner.executor.settle().await;
        self.check_active()?;
        self.log_room().await
    }

    /// Locks a resource, waiting if need be.
    #[inline]
    async fn lock(&mut self, resource: Resource, mode: Mode) -> Result<()> {
        match self.request(resource, mode) {
            Outcome::Granted => Ok(()),
            denied => self.wait_for_lock(resource, denied).await,
        }
    }

    /// Asks for a lock. Unless it is granted, [`Transaction::wait_for_lock`] has to be awaited.
    #[inline]
    fn request(&mut self, resource: Resource, mode: Mode) -> Outcome {
        let mut locks = self.database.0.locks.borrow_mut();
        let outcome = locks.request(self.state.owner, resource, mode, self.state.began);
        if outcome == Outcome::Granted {
            self.state.depend_on(locks.dependency(resource));
        }
        outcome
    }

    #[cold]
    async fn wait_for_lock(&mut self, resource: Resource, outcome: Outcome) -> Result<()> {
        let (inner, owner) = (&*self.database.0, self.state.owner);
        if let Outcome::Deadlock { victim } = outcome {
            add(&inner.statistics.deadlocks, 1);
            if victim == owner {
                return Err(self.abort(Error::Deadlock));
            }
            if let Some(task) = inner.registry.borrow_mut().doom(victim) {
                inner.executor.wake(task);
            }
        }
        let began = inner.executor.now();
        let granted = Waiting { database: &self.database, owner }.granted().await;
        add(&inner.statistics.lock_wait_ns, inner.executor.now().since_ns(began));
        self.state.depend_on(inner.locks.borrow().dependency(resource));
        granted.map_err(|denied| self.abort_by(denied))
    }

    /// Whether the locks that `partition` asks for are records'.
    fn locks_records(&self, partition: PartitionId) -> Result<bool> {
        Ok(self.database.describe(partition)?.locking == crate::catalog::Locking::Record)
    }
}

/// A request that waits; withdrawn if the transaction is abandoned meanwhile.
struct Waiting<'a> {
    database: &'a Database,
    owner: Owner,
}

impl Waiting<'_> {
    async fn granted(self) -> Result<()> {
        let inner = &*self.database.0;
        let mut relay = Relay::default();
        poll_fn(|context| {
            if inner.registry.borrow().is_doomed(self.owner) {
                return Poll::Ready(Err(Error::Deadlock));
            }
            if inner.locks.borrow().waiting(self.owner).is_none() {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = self.database.stalled_before(self.owner) {
                return Poll::Ready(Err(error));
            }
            let task = inner.executor.waiter(context, &mut relay);
            inner.registry.borrow_mut().set_waiter(self.owner, task);
            Poll::Pending
        })
        .await
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let inner = &*self.database.0;
        let mut woken = Vec::new();
        inner.locks.borrow_mut().cancel(self.owner, &mut woken);
        self.database.wake_owners(&woken);
    }
}

impl Database {
    /// Wakes the tasks of owners that were granted their locks.
    pub(crate) fn wake_owners(&self, woken: &[Owner]) {
        for owner in woken {
            if let Some(task) = self.0.registry.borrow_mut().take_waiter(*owner) {
                self.0.executor.wake(task);
            }
        }
    }
}
