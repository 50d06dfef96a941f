//! Checkpoints that make room in a full log, and how transactions wait for that.
//!
//! A transaction that has not begun may wait for as long as it takes: it holds nothing. One that holds locks waits only for
//! checkpoints that come to their ends without the end of any transaction:
//!
//! * A black/white sweep may not take segments with unfinished changes, be they of the waiting transaction or of one that waits
//!   for its locks. When a sweep finds no other segments left, all transactions that wait with locks give up.
//! * A quiescing sweep does not begin to wait for transactions while one of them waits for it.
//! * While a set is loaded nobody sweeps, and how long the load takes is its caller's affair. When a checkpoint has done what it
//!   can do beside the load, those that wait with locks give up.
//! * Log that pages need is kept until the transactions have ended that changed them. If a whole checkpoint has left the log
//!   too full, and there are such transactions, those that wait with locks give up, because the others may want these locks.

use super::{Policy, background, group};
use crate::database::Database;
use crate::{Error, Result};
use std::cell::Cell;

/// After so many checkpoints that others had the room of, a transaction with locks gives up: before it is run again, it gets
/// its room first.
const ROUNDS_MAX: u64 = 16;

/// Checkpoints that are taken because somebody waits for room in the log.
#[derive(Default)]
pub(super) struct State {
    /// Whether that is going on.
    is_under_way: Cell<bool>,
    /// How many transactions wait with all that they hold.
    waiting: Cell<u32>,
    /// How many of these checkpoints have begun and ended.
    begun: Cell<u64>,
    ended: Cell<u64>,
    /// How often a sweep had only segments left that unfinished transactions have changed.
    stalls: Cell<u64>,
    /// Whether the one under way has written pages back, and is about to sweep or sweeps.
    has_paged: Cell<bool>,
}

impl State {
    /// Whether a transaction with locks waits for a checkpoint.
    pub fn is_awaited(&self) -> bool {
        self.waiting.get() > 0
    }
}

/// What became of the wait of a transaction with locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relief {
    /// There is room.
    Room,
    /// There is none after a whole checkpoint.
    Spent,
    /// The sweep waits for the end of transactions, or of a load.
    Stalled,
}

/// A transaction that waits with locks.
struct Waiting<'a>(&'a State);

impl<'a> Waiting<'a> {
    fn new(state: &'a State) -> Waiting<'a> {
        state.waiting.set(state.waiting.get() + 1);
        Waiting(state)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

impl Database {
    /// Waits until the log has room for new work. Where checkpoints are taken only when asked, a full log asks for them, or
    /// the wait would never end.
    ///
    /// # Errors
    /// [`Error::LogNotRelieved`] if a checkpoint fails meanwhile and leaves the log full, [`Error::LogFailed`].
    #[cold]
    pub(crate) async fn wait_for_log(&self) -> Result<()> {
        let (log, checkpointer) = (&self.0.log, &self.0.checkpointer);
        let failed = checkpointer.failed.get();
        while log.is_crowded() || log.is_claimed() {
            if log.is_full() {
                self.learn_of_failure(failed)?;
                if checkpointer.policy == Policy::OFF {
                    self.relieve_log();
                }
            }
            log.wait_for_room().await?;
        }
        Ok(())
    }

    /// Waits, without locks, until `fits`, and keeps others from beginning meanwhile.
    ///
    /// # Errors
    /// As [`Database::wait_for_log`].
    pub(crate) async fn wait_for_claim(&self, fits: impl Fn() -> bool) -> Result<()> {
        let (log, failed) = (&self.0.log, self.0.checkpointer.failed.get());
        let _claim = log.claim();
        let _waiting = Waiting::new(&self.0.checkpointer.relief);
        while !fits() {
            self.learn_of_failure(failed)?;
            self.relieve_log();
            log.wait_for_room().await?;
        }
        Ok(())
    }

    /// Waits, with locks, until `fits`, as long as that cannot be for ever.
    ///
    /// # Errors
    /// As [`Database::wait_for_log`].
    pub(crate) async fn relieve(&self, fits: impl Fn() -> bool) -> Result<Relief> {
        let (log, checkpointer) = (&self.0.log, &self.0.checkpointer);
        let state = &checkpointer.relief;
        let (failed, stalls, first) = (checkpointer.failed.get(), state.stalls.get(), state.begun.get());
        let _waiting = Waiting::new(state);
        // The one under way may have begun too early.
        let mut awaited = first + 1;
        loop {
            if fits() {
                return Ok(Relief::Room);
            }
            self.learn_of_failure(failed)?;
            if state.stalls.get() > stalls || state.has_paged.get() && checkpointer.is_loading.get() {
                return Ok(Relief::Stalled);
            }
            if state.ended.get() >= awaited {
                let is_held = self.0.registry.borrow().first_lsn().is_some();
                if is_held || awaited >= first + ROUNDS_MAX {
                    return Ok(Relief::Spent);
                }
                awaited = state.begun.get() + 1;
            }
            self.relieve_log();
            log.wait_for_room().await?;
        }
    }

    fn learn_of_failure(&self, before: u64) -> Result<()> {
        let checkpointer = &self.0.checkpointer;
        let stalled = self.0.registry.borrow().oldest_stalled();
        if let Some((first, cause)) = stalled
            && self.0.log.is_kept_for(first)
        {
            return Err(Error::stalled(cause));
        }
        match checkpointer.failure() {
            Some(cause) if checkpointer.failed.get() > before => Err(Error::not_relieved(cause)),
            _ => Ok(()),
        }
    }

    /// Notes that the sweep can go on only when transactions end. Those that wait for it give up.
    pub(super) fn note_stall(&self) {
        let state = &self.0.checkpointer.relief;
        if state.is_awaited() {
            state.stalls.set(state.stalls.get() + 1);
            self.0.log.wake_for_room();
        }
    }

    /// Whether the log begins with what an unfinished transaction needs: then no checkpoint makes room, and each would take some
    /// pages of it, perhaps while that transaction takes itself back.
    pub(super) fn is_log_held(&self) -> bool {
        self.0.registry.borrow().first_lsn().is_some_and(|first| self.0.log.is_kept_for(first))
    }

    /// Notes that nobody sweeps before the end of a load. Those that wait for a sweep give up.
    pub(super) fn note_load(&self) {
        let checkpointer = &self.0.checkpointer;
        if checkpointer.is_loading.get() && checkpointer.relief.is_awaited() {
            self.0.log.wake_for_room();
        }
    }

    /// Starts to take checkpoints for as long as the log is full, or somebody waits for them, unless that is under way.
    fn relieve_log(&self) {
        if self.0.checkpointer.relief.is_under_way.replace(true) {
            return;
        }
        let database = self.clone();
        self.0.executor.spawn_in(group(&self.0.executor), 0, async move {
            let (inner, state) = (&*database.0, &database.0.checkpointer.relief);
            let is_wanted = || state.is_awaited() || inner.log.is_full() && !inner.closing.get();
            while is_wanted() && inner.log.failure().is_none() {
                state.begun.set(state.begun.get() + 1);
                if database.is_log_held() {
                    inner.executor.sleep_ns(background::POLL_NS).await;
                } else {
                    let _noted_of_pages = database.checkpoint_pages(true).await;
                    state.has_paged.set(true);
                    database.note_load();
                    let hurry = database.hurry();
                    let _noted_of_sets = database.checkpoint_sets().await;
                    drop(hurry);
                    state.has_paged.set(false);
                }
                state.ended.set(state.ended.get() + 1);
                inner.log.wake_for_room();
                inner.executor.yield_now().await;
                if is_wanted() {
                    // Transactions that go on hold it, or the checkpoint failed.
                    inner.executor.sleep_ns(background::POLL_NS).await;
                }
            }
            state.is_under_way.set(false);
        });
    }
}
