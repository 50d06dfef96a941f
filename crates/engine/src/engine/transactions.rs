//! The transactions of a database: what each has done so far, which are active, and what they share.

use super::PartialRollbacks;
use super::call::Call;
use super::left_undo::LeftUndos;
use super::registry::Registry;
use super::{Engine, Isolation};
use crate::version::ReaderPace;
use crate::{Error, Result};
use base::{Instant, Lsn, PageId, TransactionId};
use executor::{Caller, TaskId, Turn, WaitQueue};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use structures::lock::Owner;
use structures::reuse::empty_for_reuse;
use structures::set::Logging;
use structures::undo::UndoList;

/// What commits and procedures keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// FORCE: a transaction's pages are written before its commit is acknowledged.
    pub force: bool,
    /// Whether locks are held until the commit is durable.
    pub hold_locks: bool,
    /// What the log repeats of memory-resident sets.
    pub logging: Logging,
    /// How many transactions run at once.
    pub multiprogramming_level: usize,
    /// How long a call waits for a lock at most, in nanoseconds.
    pub lock_wait_ns_max: Option<u64>,
}

/// The transactions of a database.
pub(crate) struct Transactions {
    pub rules: Rules,
    pub registry: RefCell<Registry>,
    /// Transactions that wait to be admitted.
    pub admission: WaitQueue,
    /// The tasks among those that may keep others from their ends.
    pub nested: RefCell<Vec<TaskId>>,
    pub active: Cell<usize>,
    /// How many of those only read a snapshot.
    pub reading: Cell<usize>,
    /// How many transactions may be active, those not counted that only read a snapshot: the multiprogramming level, or none while a sweep waits for them to end.
    pub admitted_max: Cell<usize>,
    /// Log bytes of updates by transactions that have not ended: about what rolling them all back would log.
    pub unfinished: Cell<u64>,
    /// How many ends of transactions go on by themselves: rollbacks, and the freeing of what was deleted.
    pub endings: Cell<u32>,
    /// What the opening has left to be undone.
    pub left: LeftUndos,
    /// The turn to be promised room in the log.
    pub log_claims: Turn,
    /// Which calls of procedures are logged as such.
    pub call_barrier: CallBarrier,
    /// Whether the log may have calls of procedures.
    pub may_have_calls: Cell<bool>,
}

impl Transactions {
    /// None yet. Their numbers begin with `next`.
    pub fn new(rules: Rules, next: u64) -> Transactions {
        Transactions {
            rules,
            registry: RefCell::new(Registry::new(next)),
            admission: WaitQueue::new(),
            nested: RefCell::default(),
            active: Cell::new(0),
            reading: Cell::new(0),
            admitted_max: Cell::new(rules.multiprogramming_level),
            unfinished: Cell::new(0),
            endings: Cell::new(0),
            left: LeftUndos::default(),
            log_claims: Turn::new(),
            call_barrier: CallBarrier::default(),
            may_have_calls: Cell::new(rules.logging == Logging::Procedures),
        }
    }

    /// Checks that nothing is changed but by those that run.
    ///
    /// # Errors
    /// [`Error::RollbackStalled`], [`Error::StillUndoing`] or [`Error::StillFreeing`].
    pub fn check_ended(&self) -> Result<()> {
        match self.registry.borrow().stalled().first() {
            Some((_, cause)) => Err(Error::stalled(cause.clone())),
            None if self.left.is_any() => Err(Error::StillUndoing),
            None if self.endings.get() > 0 => Err(Error::StillFreeing),
            None => Ok(()),
        }
    }

    /// How many of those that are active may change something.
    pub fn may_change(&self) -> usize {
        self.active.get() - self.reading.get()
    }

    /// Whether the transaction's commit is logged as the call of its procedure.
    #[inline]
    pub fn logs_call(&self, state: &TransactionState) -> bool {
        state.has_call() && state.id >= self.call_barrier.first.get()
    }
}

/// The end of a transaction that goes on by itself, until this is dropped.
pub(crate) struct EndingTask(Rc<Engine>);

impl EndingTask {
    /// One begins.
    pub fn new(engine: &Rc<Engine>) -> EndingTask {
        let endings = &engine.transactions.endings;
        endings.set(endings.get() + 1);
        EndingTask(Rc::clone(engine))
    }
}

impl Drop for EndingTask {
    fn drop(&mut self) {
        let endings = &self.0.transactions.endings;
        endings.set(endings.get() - 1);
    }
}

/// Which calls are logged as such.
#[derive(Default)]
pub(crate) struct CallBarrier {
    /// Those of transactions from this number on.
    pub first: Cell<TransactionId>,
    /// How many changes of the catalog are under way.
    pub changes: Cell<u32>,
    /// Whether it is unknown which partitions the next opening will find.
    pub is_unsettled: Cell<bool>,
}

/// What a transaction has done so far.
#[derive(Debug, Default)]
pub(crate) struct TransactionState {
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
    pub reserved: u64,
    /// Its rollbacks to savepoints.
    pub rollbacks: PartialRollbacks,
    /// What must be durable before its answer may leave, also one that says no: the commits whose updates it has read.
    pub dependency: Cell<Lsn>,
    /// Whether it has looked at a partition without locks, where nothing tells whose updates it has read.
    pub saw_unlocked: Cell<bool>,
    /// Those that began before it and those after it, as [`Registry`] counts them.
    pub group: u8,
    /// Its age for the choice of a deadlock's victim: the number of the first try.
    pub began: u64,
    /// Long values that it deleted.
    pub chains: Vec<Chain>,
    /// A long value that it has built, at least in part, and not put into the tree: abandoned if it never does.
    pub loose: Option<Chain>,
    /// The pages that it changed, under FORCE.
    pub pages: Vec<PageId>,
    /// The procedure's call that it is, where procedures are logged.
    pub call: Call,
    pub isolation: Isolation,
    /// The moment that it sees, at snapshot level.
    pub at: Lsn,
    /// Whether a change that consists of several was given up halfway.
    pub is_half_changed: Rc<Cell<bool>>,
    /// Why it has to give up, once its caller was told so.
    pub aborted: OnceCell<Error>,
    /// How fast it reads the past.
    pub pace: Rc<ReaderPace>,
    /// Who has used it last, so that a task that waits for itself can be told. The registry has it too.
    pub user: Rc<Cell<Option<Caller>>>,
    /// How long a call may wait for a lock, in nanoseconds, if this is said.
    pub lock_wait_ns_max: Option<u64>,
    /// The task in which it has begun, and when, if one listens.
    pub watched: Option<(TaskId, Instant)>,
    /// Whether it is to be committed, and no more can be done in it.
    pub is_decided: bool,
}

impl TransactionState {
    /// A transaction found unfinished after a restart.
    pub fn unfinished(id: TransactionId, undo: UndoList) -> TransactionState {
        TransactionState { id, undo: Rc::new(RefCell::new(undo)), wrote: true, ..TransactionState::default() }
    }

    /// Whether it is a procedure's call and would come out the same if that were run again.
    #[inline]
    pub fn has_call(&self) -> bool {
        self.call.is_logged()
    }

    /// It has seen what was committed up to `lsn`, or some of it.
    #[inline]
    pub fn depend_on(&self, lsn: Lsn) {
        self.dependency.set(self.dependency.get().max(lsn));
    }

    /// Up to where the log must be durable before its answer may leave, if the last commit is at `present`.
    #[inline]
    pub fn answer_depends_on(&self, present: Lsn) -> Lsn {
        let seen = if self.saw_unlocked.get() { present } else { Lsn::ZERO };
        self.dependency.get().max(seen)
    }

    /// How many updates it would have to take back.
    pub fn updates(&self) -> usize {
        self.undo.borrow().len()
    }

    /// Forgets everything but its place and the memory.
    pub(super) fn clear(&mut self) {
        self.undo.borrow_mut().clear();
        empty_for_reuse(&mut self.chains);
        self.loose = None;
        empty_for_reuse(&mut self.pages);
        self.call.end();
        self.wrote = false;
        self.logged = 0;
        self.reserved = 0;
        self.rollbacks.clear();
        self.dependency.set(Lsn::ZERO);
        self.saw_unlocked.set(false);
        self.isolation = Isolation::Serializable;
        self.is_half_changed.set(false);
        self.aborted.take();
        self.user.set(None);
        self.lock_wait_ns_max = None;
        self.watched = None;
        self.is_decided = false;
    }
}

/// The state of an active transaction, which is handed on by its address and goes back to the registry in the end.
#[derive(Debug, Default)]
pub(crate) struct Active(pub(super) Option<Box<TransactionState>>);

impl Deref for Active {
    type Target = TransactionState;

    #[inline]
    fn deref(&self) -> &TransactionState {
        self.0.as_deref().expect("the state of a transaction that ended is not asked for")
    }
}

impl DerefMut for Active {
    #[inline]
    fn deref_mut(&mut self) -> &mut TransactionState {
        self.0.as_deref_mut().expect("the state of a transaction that ended is not changed")
    }
}

/// A long value whose pages are to be freed if its transaction commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// The position in the undo list of the update that this depends on.
    pub undo: usize,
    /// Where it begins.
    pub first: PageId,
}

/// A use of partitions outside of transactions, for the end of which a drop waits as for theirs.
pub(crate) struct Visit {
    engine: Rc<Engine>,
    group: u8,
}

impl Visit {
    pub fn new(engine: &Rc<Engine>) -> Visit {
        Visit { engine: Rc::clone(engine), group: engine.transactions.registry.borrow_mut().enter_group() }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.engine.transactions.registry.borrow_mut().leave_group(self.group);
    }
}
