//! Waiting for room in the log that would be for ever, because the same task is to end the transactions that keep it.
//!
//! The log keeps the records of its oldest transaction, and what was promised. A task that has those transactions, or the locks that they
//! wait for, and waits itself for nothing but room in the log is told so after a moment, as one is that waits for its own lock
//! (`own_wait.rs`). As long as one keeps some of the log that may end without this task, it is not: that end may make the room.

use super::log_relief::check_failure;
use super::own_wait::{GRACE_NS, is_own, may_be_own};
use crate::engine::relief::RoomWait;
use crate::engine::{Engine, TransactionState};
use crate::{Error, Result};
use base::Instant;
use executor::TaskId;
use structures::lock::Owner;

/// A transaction that holds nothing waits for room in the log.
pub(super) struct LogWait<'a> {
    engine: &'a Engine,
    owner: Owner,
    task: TaskId,
    /// Since when it waits for its own task.
    own_since: Option<Instant>,
    /// When it looks again whatever happens.
    looks_at: Instant,
    /// How often sweeps had been kept from their ends before.
    stalls: u64,
}

impl LogWait<'_> {
    pub fn new(engine: &Engine, owner: Owner) -> LogWait<'_> {
        LogWait {
            engine,
            owner,
            task: engine.core.executor.current(),
            own_since: None,
            looks_at: Instant::START,
            stalls: engine.checkpointer.relief.stalls.get(),
        }
    }

    /// To be called before each wait, at whose end it is called again.
    ///
    /// # Errors
    /// [`Error::OwnLog`].
    pub fn check(&mut self) -> Result<()> {
        if !may_be_own(self.engine, Some(self.owner), self.task) {
            self.own_since = None;
            return Ok(());
        }
        let executor = &self.engine.core.executor;
        let now = executor.now();
        let own = own_keepers(self.engine, self.owner, self.task);
        match (own, self.own_since) {
            (Some(own), since) if self.is_all_kept() => {
                let since = *self.own_since.get_or_insert(since.unwrap_or(now));
                if now >= since.plus_ns(GRACE_NS) && executor.is_alone(self.task) {
                    return Err(own_log(self.engine, &own));
                }
            }
            _ => self.own_since = None,
        }
        executor.watch_poll();
        if now >= self.looks_at {
            // Others may come to wait for this task without a word.
            self.looks_at = now.plus_ns(GRACE_NS);
            executor.poll_at(self.looks_at);
        }
        Ok(())
    }

    /// Whether checkpoints make no more room before the transactions end that keep the log.
    fn is_all_kept(&self) -> bool {
        is_kept_for_oldest(self.engine) || self.engine.checkpointer.relief.stalls.get() > self.stalls
    }
}

/// Before a transaction is run again that gave way to those of its own task: waits for their ends, if something else may bring them. If
/// the log has more than it had to keep for them, it waits for a checkpoint and tries again.
///
/// # Errors
/// [`Error::OwnLog`]; those of [`wait_for_log`](super::log_relief::wait_for_log).
#[cold]
pub(super) async fn wait_for_own(engine: &Engine, owner: Owner, was_kept: bool) -> Result<()> {
    /// How often it is looked for, in nanoseconds.
    const LOOK_NS: u64 = GRACE_NS / 20;
    let executor = &engine.core.executor;
    let mut wait = LogWait::new(engine, owner);
    if !was_kept && relieve_own(engine, &wait).await? {
        return Ok(());
    }
    loop {
        wait.check()?;
        if wait.own_since.is_none() {
            return Ok(());
        }
        executor.sleep_ns(LOOK_NS).await;
        if !executor.is_alone(wait.task) {
            return Ok(());
        }
    }
}

/// Waits for a checkpoint that leaves in the log what is kept for the task's own transactions, and no more. False if these keep it
/// from its end.
async fn relieve_own(engine: &Engine, wait: &LogWait<'_>) -> Result<bool> {
    let (log, checkpointer) = (&engine.core.log, &engine.checkpointer);
    let relief = &checkpointer.relief;
    let (failed, awaited) = (checkpointer.failed.get(), relief.begun.get() + 1);
    let _waiting = RoomWait::new(relief);
    // In its first lap no checkpoint makes room.
    while log.is_grown() && !is_kept_for_oldest(engine) && relief.ended.get() < awaited {
        if own_keepers(engine, wait.owner, wait.task).is_none() {
            return Ok(true);
        }
        if relief.stalls.get() > wait.stalls {
            return Ok(false);
        }
        check_failure(engine, failed)?;
        relief.ask(&engine.core.executor);
        log.wait_for_room().await?;
    }
    Ok(true)
}

/// A transaction gives way to the oldest one in the log: notes it if only its own task makes room there, for the next time that it is run.
pub(super) fn note_own_before(engine: &Engine, state: &TransactionState) {
    if own_keepers(engine, state.owner, engine.core.executor.current()).is_some() {
        let is_kept = is_kept_for_oldest(engine);
        engine.transactions.registry.borrow_mut().give_way_to_own(state.began, is_kept);
    }
}

fn is_kept_for_oldest(engine: &Engine) -> bool {
    engine.transactions.registry.borrow().first_lsn().is_some_and(|first| engine.core.log.is_kept_for(first))
}

/// The transactions that keep some of the log, if there are any and only this task ends all of them, perhaps by way of others.
fn own_keepers(engine: &Engine, owner: Owner, task: TaskId) -> Option<Vec<Owner>> {
    if !may_be_own(engine, Some(owner), task) {
        return None;
    }
    let keepers = {
        let sets = engine.sets.sets.borrow();
        engine.transactions.registry.borrow().keepers(owner, |other| sets.changes(other) > 0)
    };
    let are_own = keepers.iter().all(|keeper| is_own(engine, (owner, task), *keeper));
    (!keepers.is_empty() && are_own).then_some(keepers)
}

fn own_log(engine: &Engine, keepers: &[Owner]) -> Error {
    let registry = engine.transactions.registry.borrow();
    Error::OwnLog { holders: keepers.iter().map(|keeper| registry.id_of(*keeper)).collect() }
}
