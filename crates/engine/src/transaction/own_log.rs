//! Waiting for room in the log that would be for ever, because the transaction which keeps it is to be ended by the same task.
//!
//! The log keeps the records of its oldest transaction. A task that has that one, or a lock that it waits for, and waits itself for
//! nothing but room in the log is told so after a moment, as one is that waits for its own lock (`lock_wait.rs`).

use super::lock_wait::{GRACE_NS, has_other_of, leads_to_own};
use super::log_relief::check_failure;
use crate::engine::relief::RoomWait;
use crate::engine::{Engine, TransactionState};
use crate::{Error, Result};
use base::{Instant, Lsn};
use executor::TaskId;
use structures::lock::Owner;

/// A transaction that holds nothing waits for room in the log.
pub(super) struct LogWait<'a> {
    engine: &'a Engine,
    owner: Owner,
    task: TaskId,
    /// When it is told, if it waits for its own task.
    looks_at: Option<Instant>,
}

impl LogWait<'_> {
    pub fn new(engine: &Engine, owner: Owner) -> LogWait<'_> {
        LogWait { engine, owner, task: engine.core.executor.current(), looks_at: None }
    }

    /// To be called before each wait, at whose end it is called again.
    ///
    /// # Errors
    /// [`Error::OwnLog`].
    pub fn check(&mut self) -> Result<()> {
        if !is_own(self.engine, self.owner, self.task) {
            self.looks_at = None;
            return Ok(());
        }
        let executor = &self.engine.core.executor;
        let now = executor.now();
        match self.looks_at {
            Some(looks_at) if now >= looks_at && executor.is_alone(self.task) => return Err(own_log(self.engine)),
            Some(looks_at) if now < looks_at => {}
            _ => {
                let looks_at = now.plus_ns(GRACE_NS);
                executor.poll_at(looks_at);
                self.looks_at = Some(looks_at);
            }
        }
        executor.watch_poll();
        Ok(())
    }
}

/// Before a transaction is run again that gave way to one of its own task: waits for the end of that, if something else may bring it.
/// If the log has more than it had to keep for that one, it waits for a checkpoint and tries again.
///
/// # Errors
/// [`Error::OwnLog`]; those of [`wait_for_log`](super::log_relief::wait_for_log).
#[cold]
pub(super) async fn wait_for_own(engine: &Engine, owner: Owner, was_kept: bool) -> Result<()> {
    /// How often it is looked for, in nanoseconds.
    const LOOK_NS: u64 = GRACE_NS / 20;
    let executor = &engine.core.executor;
    let mut wait = LogWait::new(engine, owner);
    if !was_kept {
        return relieve_own(engine, &wait).await;
    }
    loop {
        wait.check()?;
        if wait.looks_at.is_none() {
            return Ok(());
        }
        executor.sleep_ns(LOOK_NS).await;
        if !executor.is_alone(wait.task) {
            return Ok(());
        }
    }
}

/// Waits until all of the log is kept for the oldest transaction, as long as that is the task's own.
async fn relieve_own(engine: &Engine, wait: &LogWait<'_>) -> Result<()> {
    let (log, checkpointer) = (&engine.core.log, &engine.checkpointer);
    let failed = checkpointer.failed.get();
    let _waiting = RoomWait::new(&checkpointer.relief);
    // In its first lap no checkpoint makes room.
    while log.is_grown() && own_oldest(engine, wait.owner, wait.task).is_some_and(|first| !log.is_kept_for(first)) {
        check_failure(engine, failed)?;
        checkpointer.relief.ask(&engine.core.executor);
        log.wait_for_room().await?;
    }
    Ok(())
}

/// A transaction gives way to the oldest one in the log: notes it if that is of its own task, for the next time that it is run.
pub(super) fn note_own_before(engine: &Engine, state: &TransactionState) {
    if let Some(first) = own_oldest(engine, state.owner, engine.core.executor.current()) {
        let is_kept = engine.core.log.is_kept_for(first);
        engine.transactions.registry.borrow_mut().give_way_to_own(state.began, is_kept);
    }
}

/// Whether all that is in the log is kept for a transaction that only this task ends, perhaps by way of others.
fn is_own(engine: &Engine, owner: Owner, task: TaskId) -> bool {
    own_oldest(engine, owner, task).is_some_and(|first| engine.core.log.is_kept_for(first))
}

/// Where the log of the oldest transaction begins, if only this task ends it, perhaps by way of others.
fn own_oldest(engine: &Engine, owner: Owner, task: TaskId) -> Option<Lsn> {
    if !has_other_of(engine, owner, task) {
        return None;
    }
    let (oldest, first) = engine.transactions.registry.borrow().oldest()?;
    leads_to_own(engine, owner, task, vec![oldest]).then_some(first)
}

fn own_log(engine: &Engine) -> Error {
    let registry = engine.transactions.registry.borrow();
    Error::OwnLog { holders: registry.oldest().map(|(oldest, _)| registry.id_of(oldest)).into_iter().collect() }
}
