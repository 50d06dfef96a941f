//! How transactions wait for checkpoints that make room in a full log (`checkpoint/relief.rs` takes them).
//!
//! A transaction that has not begun may wait for as long as it takes: it holds nothing. One that holds locks waits only for
//! checkpoints that come to their ends without the end of any transaction:
//!
//! * A black/white sweep may not take segments with unfinished changes, be they of the waiting transaction or of one that waits
//!   for its locks. When a sweep finds no other segments left, all transactions that wait with locks give up.
//! * A quiescing sweep does not begin to wait for transactions while one of them waits for it.
//! * While a set is loaded no sweep runs, and how long the load takes is its caller's affair. When a checkpoint has done what
//!   it can do beside the load, transactions waiting with locks give up.
//! * Log that pages need is kept until the transactions have ended that changed them. If a whole checkpoint has left the log
//!   too full, and there are such transactions, those that wait with locks give up, because the others may want these locks.

use super::own_log::LogWait;
use crate::engine::relief::{ReliefOutcome, RoomWait};
use crate::engine::{Engine, Policy};
use crate::{Error, Result};
use structures::lock::Owner;

/// After this many checkpoints whose room others took, a transaction with locks gives up: before it is run again, it gets its
/// room first.
const ROUNDS_MAX: u64 = 16;

/// Waits until the log has room for new work. Where checkpoints are taken only when asked, a full log asks for them, or
/// the wait would never end. One that is not full, but for what it has promised, asks in any case: the transaction that was
/// promised it may last, and checkpoints by size count only what is logged.
///
/// # Errors
/// [`Error::LogNotRelieved`] if a checkpoint fails meanwhile and leaves the log full, [`Error::LogNotArchived`],
/// [`Error::LogNotGrown`], [`Error::LogFailed`], [`Error::OwnLog`].
#[cold]
pub(super) async fn wait_for_log(engine: &Engine, owner: Owner) -> Result<()> {
    let (log, checkpointer) = (&engine.core.log, &engine.checkpointer);
    let failed = checkpointer.failed.get();
    let mut wait = LogWait::new(engine, owner);
    while log.is_crowded() || log.is_short_of_file() || log.is_claimed() {
        if log.is_short_of_file() {
            log.grow().await?;
            continue;
        }
        if log.is_full() {
            check_failure(engine, failed)?;
            if checkpointer.policy == Policy::OFF {
                checkpointer.relief.ask(&engine.core.executor);
            }
        } else if log.is_short_of_promised() {
            checkpointer.relief.ask(&engine.core.executor);
        }
        // What only waits in memory is written whatever transactions do.
        if log.is_full() || log.is_claimed() {
            wait.check()?;
        }
        log.wait_for_room().await?;
    }
    Ok(())
}

/// Waits, without locks, until `fits`, and keeps others from beginning meanwhile.
///
/// # Errors
/// As [`wait_for_log`].
pub(super) async fn wait_for_claim(engine: &Engine, owner: Owner, fits: impl Fn() -> bool) -> Result<()> {
    let (log, failed) = (&engine.core.log, engine.checkpointer.failed.get());
    let _claim = log.claim();
    let _waiting = RoomWait::new(&engine.checkpointer.relief);
    let mut wait = LogWait::new(engine, owner);
    while !fits() {
        if !log.is_grown() {
            log.grow().await?;
            continue;
        }
        check_failure(engine, failed)?;
        engine.checkpointer.relief.ask(&engine.core.executor);
        wait.check()?;
        log.wait_for_room().await?;
    }
    Ok(())
}

/// Waits, with locks, until `fits`, as long as that cannot be for ever.
///
/// # Errors
/// As [`wait_for_log`].
pub(crate) async fn relieve(engine: &Engine, fits: impl Fn() -> bool) -> Result<ReliefOutcome> {
    let (log, checkpointer) = (&engine.core.log, &engine.checkpointer);
    let state = &checkpointer.relief;
    let (failed, stalls, first) = (checkpointer.failed.get(), state.stalls.get(), state.begun.get());
    let _waiting = RoomWait::new(state);
    // The one under way may have begun too early.
    let mut awaited = first + 1;
    loop {
        if fits() {
            return Ok(ReliefOutcome::Room);
        }
        if !log.is_grown() {
            // In its first lap no checkpoint makes room.
            log.grow().await?;
            continue;
        }
        check_failure(engine, failed)?;
        if state.stalls.get() > stalls || state.has_paged.get() && checkpointer.is_loading.get() {
            return Ok(ReliefOutcome::Stalled);
        }
        if state.ended.get() >= awaited {
            let is_held = engine.transactions.registry.borrow().first_lsn().is_some();
            if is_held || awaited >= first + ROUNDS_MAX {
                return Ok(ReliefOutcome::Spent);
            }
            awaited = state.begun.get() + 1;
        }
        checkpointer.relief.ask(&engine.core.executor);
        log.wait_for_room().await?;
    }
}

pub(super) fn check_failure(engine: &Engine, before: u64) -> Result<()> {
    let checkpointer = &engine.checkpointer;
    if let Some(cause) = engine.core.log.archive_failure() {
        return Err(Error::LogNotArchived { cause: Box::new(cause) });
    }
    let stalled = engine.transactions.registry.borrow().oldest_stalled();
    if let Some((first, cause)) = stalled
        && engine.core.log.is_kept_for(first)
    {
        return Err(Error::stalled(cause));
    }
    match checkpointer.failure() {
        Some(cause) if checkpointer.failed.get() > before => Err(Error::not_relieved(cause)),
        _ => Ok(()),
    }
}
