//! Room in the log for what is logged outside of transactions: the first pages of new partitions, the last ones of loads, and
//! the sweeps after these; and for whole transactions of other nodes. However many there are, they leave rollbacks the room that
//! they were promised.

use crate::engine::Engine;
use crate::engine::relief::ReliefOutcome;
use crate::log::record::{self, Body};
use crate::transaction::relieve;
use crate::{Error, Need, Result};
use base::TransactionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use structures::canary::{self, Canary};
use structures::page::Edit;

/// How long transactions that hold the log are waited for, in nanoseconds: one of them may be the caller's own.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
/// How long an opening waits for an archive that does not answer, in nanoseconds: longer than that takes to be noticed, several times.
const ARCHIVE_PATIENCE_NS: u64 = 600 * SECOND_NS;
/// How often they are looked for, in nanoseconds.
const LOOK_NS: u64 = 5 * MILLISECOND_NS;

/// How many bytes the records have that say that a load ends, and that it has, each with when.
pub(super) const LOADED_SIZE: u64 = 2 * (18 + 32);

/// How many bytes the record of such a change has.
pub(super) fn length_of(edits: &[Edit<'_>]) -> u64 {
    let mut record = Vec::new();
    record::encode(TransactionId::SYSTEM, &Body::System, edits.iter().map(|edit| (0, edit)), &mut record);
    record.len() as u64
}

/// Calls `attempt`, which logs a record of `length` bytes, in a step in which the log has room for that, and until it has what
/// it needs.
///
/// # Errors
/// The attempt's own, that of fetching a page, and those of [`wait_for_log_beside`].
pub(super) async fn complete_logged(
    engine: &Engine,
    length: u64,
    mut attempt: impl FnMut() -> Result<(), Need>,
) -> Result<()> {
    loop {
        wait_for_log_beside(engine, length).await?;
        // Others may take the room while pages are fetched.
        let step = || if has_log_beside(engine, length) { attempt().map(|()| true) } else { Ok(false) };
        if engine.core.complete(step).await? {
            return Ok(());
        }
    }
}

/// Waits until the log has room for a record of `length` bytes: for checkpoints that make it, and up to ten seconds for
/// transactions that hold the log.
///
/// # Errors
/// [`Error::LogCrowded`] if they have not ended by then; those of [`relieve`].
pub(super) async fn wait_for_log_beside(engine: &Engine, length: u64) -> Result<()> {
    let core = &engine.core;
    let until = core.executor.now().plus_ns(PATIENCE_NS);
    while relieve(engine, &|| has_log_beside(engine, length)).await? != ReliefOutcome::Room {
        if core.executor.now() >= until {
            return Err(Error::LogCrowded { needed: core.log.bytes_for(length) });
        }
        core.executor.sleep_ns(LOOK_NS).await;
    }
    Ok(())
}

/// Waits until a log that an opening has found has room for records of `length` bytes. Beside what transactions hold of it that are left to
/// be undone it has that room, so what is in the way is to be checkpointed or archived, for as long as that neither succeeds nor fails.
///
/// # Errors
/// [`Error::Setting`] if the log could never hold that; those of [`relieve`], [`Error::LogNotArchived`] among them. Nothing has changed
/// then, and a later opening may succeed.
pub(super) async fn wait_for_log_at_opening(engine: &Engine, length: u64) -> Result<()> {
    if length == 0 {
        return Ok(());
    }
    let executor = &engine.core.executor;
    engine.core.log.settings().check_catalog(length, engine.core.log.capacity())?;
    let until = executor.now().plus_ns(ARCHIVE_PATIENCE_NS);
    loop {
        match wait_for_log_beside(engine, length).await {
            Err(Error::LogCrowded { .. }) if executor.now() < until => {}
            waited => return waited,
        }
    }
}

/// The same as [`wait_for_log_beside`] for the record of another node's transaction, which is never taken back here.
///
/// # Errors
/// [`Error::LogFull`] if the log could never hold that; [`Error::LogCrowded`] and those of [`relieve`] as above.
pub(super) async fn wait_for_log_of_shipment(engine: &Engine, length: u64) -> Result<()> {
    check_log_of_shipment(engine, length)?;
    wait_for_log_beside(engine, length).await
}

/// Whether the log could hold that at all.
///
/// # Errors
/// [`Error::LogFull`].
pub(super) fn check_log_of_shipment(engine: &Engine, length: u64) -> Result<()> {
    let core = &engine.core;
    let (needed, capacity) = (core.log.bytes_for(length) + core.rollback_room_when_grown(0), core.log.capacity());
    if needed + core.log.bytes_for(0) > capacity { Err(Error::LogFull { needed, capacity }) } else { Ok(()) }
}

/// Whether the log has room for a record of `length` bytes beside what it has promised.
pub(super) fn has_log_beside(engine: &Engine, length: u64) -> bool {
    if canary::is_planted(Canary::UnadmittedCreation) {
        return true;
    }
    let log = &engine.core.log;
    // What the log could never hold beside anything else gets all of it.
    let all = log.capacity() - engine.core.rollback_room_when_grown(0) - log.bytes_for(0);
    engine.has_unpromised_log(log.bytes_for(length).min(all))
}
