//! What a database tells while it is open, to one that listens: nothing is measured or kept for that unless one does.

use super::{RecoveryReport, Statistics, add};
use crate::{Error, Result};
use base::{Instant, Lsn, TransactionId};
use executor::{Executor, TaskId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Something that has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// A restart begins to make the database what it was.
    RecoveryBegun,
    /// It is so again, but for what is left to be undone behind the opening.
    Recovered(RecoveryReport),
    /// The device of a cache fails, or does not answer: the opening does without the cache, and nothing is lost by that.
    CacheNotOpened {
        /// Whether it is the upper cache.
        is_upper: bool,
        /// The device's name.
        device: &'a str,
        /// Why not.
        error: &'a Error,
    },
    /// A transaction that the opening had left is undone: what it had changed can be used again.
    Undone {
        /// Its number.
        transaction: TransactionId,
        /// How many of its changes were undone since the opening.
        changes: u64,
        /// How long that took, in nanoseconds.
        took_ns: u64,
    },
    /// A checkpoint begins, of pages or of the memory-resident sets. There is one of each at a time.
    CheckpointBegun {
        /// Whether it is one of sets.
        of_sets: bool,
    },
    /// It has ended.
    Checkpoint {
        /// Whether it was one of sets.
        of_sets: bool,
        /// How long it took, in nanoseconds.
        took_ns: u64,
        /// Why it failed, if it did: the one before stays valid.
        error: Option<&'a Error>,
    },
    /// A transaction gave up because of others and is run again.
    Retry {
        /// The number of its first try, by which tries of one transaction belong together.
        began: u64,
        /// How many tries have failed.
        tries: u32,
        /// Why the last one gave up, if that is known.
        cause: Option<&'a Error>,
    },
    /// A transaction has ended that took long.
    SlowTransaction(TransactionTime),
    /// The log cannot be archived any more, or can again.
    Archiving {
        /// How far the archive has it.
        end: Lsn,
        /// Why it cannot. The log is kept, and it is tried again until it succeeds.
        error: Option<&'a Error>,
    },
    /// The archive lacks a part of the log, or has what the log has lost: a restore to a time behind that needs a backup that is taken from now on.
    ArchiveGap {
        /// Where the archive ended.
        from: Lsn,
        /// Where it goes on.
        to: Lsn,
    },
}

/// What a transaction has spent its time with. What is left is its own: CPU time, waits for the CPU, and whatever its program
/// waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionTime {
    /// Its number.
    pub transaction: TransactionId,
    /// Whether it was committed.
    pub committed: bool,
    /// From its beginning, waits to be admitted included, to its end, in nanoseconds.
    pub took_ns: u64,
    /// What the task in which it began has waited for meanwhile: also for other transactions of this task.
    pub waits: Waits,
}

/// How long a task waited for what, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For locks.
    pub locks_ns: u64,
    /// For pages to be read, writing victims back included.
    pub reads_ns: u64,
    /// For the log, at commit. A transaction server answers later than its transaction ends, and waits for the log by itself.
    pub log_ns: u64,
    /// For forced pages.
    pub writes_ns: u64,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    Lock,
    Read,
    Log,
    Write,
}

/// One that is told of events, on the engine's thread, in the midst of its work: it must not call the database.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # use entresol_engine::statistics::{Event, Listener};
/// # use std::{cell::Cell, rc::Rc};
/// /// Counts checkpoints.
/// #[derive(Debug, Default)]
/// struct Checkpoints(Cell<u64>);
///
/// impl Listener for Checkpoints {
///     fn slow_ns(&self) -> u64 {
///         1_000_000_000
///     }
///
///     fn hear(&self, event: &Event<'_>) {
///         self.0.set(self.0.get() + u64::from(matches!(event, Event::Checkpoint { .. })));
///     }
/// }
///
/// # with_database(async |database| {
/// let checkpoints = Rc::new(Checkpoints::default());
/// database.statistics().listen(Rc::clone(&checkpoints) as Rc<dyn Listener>)?;
/// database.checkpoint().await?;
/// assert_eq!(checkpoints.0.get(), 1);
/// # Ok(())
/// # });
/// ```
pub trait Listener: Debug {
    /// From how many nanoseconds on a transaction is slow. None is if it panics.
    fn slow_ns(&self) -> u64;

    /// Something has happened. A panic ends nothing of what it is told of.
    fn hear(&self, event: &Event<'_>);
}

/// Tells a listener, which is its program's code.
pub(crate) fn hear(listener: &dyn Listener, event: &Event<'_>) {
    let _heard = catch_unwind(AssertUnwindSafe(|| listener.hear(event)));
}

/// Whether what took so long is slow to a listener.
fn is_slow(listener: &dyn Listener, took_ns: u64) -> bool {
    catch_unwind(AssertUnwindSafe(|| took_ns >= listener.slow_ns())).unwrap_or(false)
}

/// The listener, and what is kept for it.
#[derive(Default)]
pub(super) struct Listening {
    listener: OnceCell<Rc<dyn Listener>>,
    /// By task, of tasks with transactions under way.
    waits: RefCell<BTreeMap<TaskId, Waits>>,
}

impl Statistics {
    /// From now on `listener` is told of events. One that is to hear of the opening, too, is in the settings of that.
    ///
    /// # Errors
    /// [`Error::Argument`] if another is told of them: a database has one listener.
    pub fn listen(&self, listener: Rc<dyn Listener>) -> Result<()> {
        let is_told = |_| Error::Argument("a database has one listener, and this one has it already".to_owned());
        self.listening.listener.set(listener).map_err(is_told)
    }

    /// Tells an event.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        if let Some(listener) = self.listening.listener.get() {
            hear(&**listener, event);
        }
    }

    /// This moment, if one listens.
    #[inline]
    pub(crate) fn moment(&self, executor: &Executor) -> Option<Instant> {
        self.listening.listener.get().map(|_| executor.now())
    }

    /// From now on it is known what the current task waits for.
    #[cold]
    pub(crate) fn begin_transaction(&self, executor: &Executor) -> TaskId {
        let task = executor.current();
        self.listening.waits.borrow_mut().insert(task, Waits::default());
        task
    }

    /// The current task has waited since `began`.
    pub(crate) fn add_wait(&self, wait: WaitKind, executor: &Executor, began: Instant) {
        let ns = executor.now().since_ns(began);
        add(self.sum_of(wait), ns);
        if self.listening.listener.get().is_some()
            && let Some(waits) = self.listening.waits.borrow_mut().get_mut(&executor.current())
        {
            *waits.part(wait) += ns;
        }
    }

    fn sum_of(&self, wait: WaitKind) -> &Cell<u64> {
        match wait {
            WaitKind::Lock => &self.lock_wait_ns,
            WaitKind::Read => &self.read_wait_ns,
            WaitKind::Log => &self.commit_wait_ns,
            WaitKind::Write => &self.write_wait_ns,
        }
    }

    /// A transaction has ended that was under way since `began` and has begun in this task.
    #[cold]
    pub(crate) fn end_transaction(
        &self,
        (transaction, committed): (TransactionId, bool),
        (task, began): (TaskId, Instant),
        now: Instant,
    ) {
        let waits = self.listening.waits.borrow_mut().remove(&task).unwrap_or_default();
        let took_ns = now.since_ns(began);
        if let Some(listener) = self.listening.listener.get().filter(|listener| is_slow(&***listener, took_ns)) {
            hear(&**listener, &Event::SlowTransaction(TransactionTime { transaction, committed, took_ns, waits }));
        }
    }
}

impl Waits {
    fn part(&mut self, wait: WaitKind) -> &mut u64 {
        match wait {
            WaitKind::Lock => &mut self.locks_ns,
            WaitKind::Read => &mut self.reads_ns,
            WaitKind::Log => &mut self.log_ns,
            WaitKind::Write => &mut self.writes_ns,
        }
    }
}
