//! Checkpoints of pages: writing back, syncing, and having redo begin later.

use super::{PAGES, Policy};
use super::{
    SuperblockChange, give_up_log, note_end, pages_begin, redo_start, state_table_then_take_turn, write_superblock,
};
use crate::Result;
use crate::engine::Engine;
use crate::second_level::Checkpointing;
use crate::statistics::{Event, add};
use base::Lsn;
use base::time::SECOND_NS;
use std::pin::pin;
use std::rc::Rc;

/// How long a checkpoint waits for what is left of redo before it writes other pages, in nanoseconds.
const REDO_NS: u64 = 10 * SECOND_NS;

/// Which pages a checkpoint writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointExtent {
    /// Those that have been dirty since the checkpoint before.
    Old,
    /// All that are dirty.
    All,
    /// All that are dirty in main memory: what only the cache has waits for the next checkpoint. None, and redo begins where it
    /// began, if the log has room and a cache was taken over: that serves before a slow device has all that was redone.
    Restart,
}

pub(super) async fn checkpoint_pages(engine: &Engine, extent: CheckpointExtent) -> Result<()> {
    checkpoint_and_redo(engine, extent).await.flatten()
}

/// The same. Whether all was redone that the restart has left is told apart from the rest.
pub(super) async fn checkpoint_and_redo(engine: &Engine, extent: CheckpointExtent) -> Result<Result<()>> {
    let began = engine.core.executor.now();
    let written = write_pages_back(engine, extent).await;
    if extent == CheckpointExtent::Restart || (extent == CheckpointExtent::All && written.is_ok()) {
        engine.checkpointer.has_restart_failed.set(written.is_err());
    }
    note_end(engine, PAGES, began, &written.clone().flatten());
    written
}

/// Returns whether all was redone that the restart has left, too.
async fn write_pages_back(engine: &Engine, extent: CheckpointExtent) -> Result<Result<()>> {
    let checkpointer = &engine.checkpointer;
    let _turn = checkpointer.paging.take(&engine.core.executor).await;
    engine.core.statistics.tell(&Event::CheckpointBegun { of_sets: false });
    let is_put_off = extent == CheckpointExtent::Restart && may_be_put_off(engine);
    // A page that cannot be read keeps the log from its first change on, as one does that only a cache has; others are written.
    let redone = if is_put_off { Ok(()) } else { redo_rest(engine, extent).await };
    let begin = engine.core.log.end();
    let written = match is_put_off {
        true => put_off(engine).await.map(Ok),
        false => advance_redo(engine, begin, extent).await,
    };
    note_begin(engine, begin, matches!(written, Ok(Ok(()))));
    let written = written?;
    if written.is_ok() {
        add(&engine.core.statistics.checkpoints, u64::from(!is_put_off));
        checkpointer.last_success.set(begin);
        checkpointer.is_put_off.set(is_put_off);
    }
    give_up_log(engine).await?;
    written.map(|()| redone)
}

/// Makes what the restart has left of redo. Where that takes long, others' pages are written meanwhile.
async fn redo_rest(engine: &Engine, extent: CheckpointExtent) -> Result<()> {
    let Engine { core, .. } = engine;
    let buffer = Rc::clone(&core.buffer);
    // A task of its own, for it goes on while those are written, and others wait for what it has begun.
    let mut redoing = pin!(core.executor.spawn(async move { buffer.redo_rest().await }).join());
    loop {
        if let Some(redone) = core.executor.within(REDO_NS, redoing.as_mut()).await {
            return redone;
        }
        let begin = core.log.end();
        // What fails shows when redo is done.
        let written = advance_redo(engine, begin, extent).await;
        note_begin(engine, begin, matches!(written, Ok(Ok(()))));
        let _given_up = give_up_log(engine).await;
    }
}

/// What has been dirty since before this is old. Also where the checkpoint has failed: a page that may never be written is to keep no
/// others from becoming old. But it is tried again soon, and others are not written the more often for that.
fn note_begin(engine: &Engine, begin: Lsn, has_succeeded: bool) {
    let (checkpointer, now) = (&engine.checkpointer, engine.core.executor.now());
    let (last, last_at) = (checkpointer.last_begin.get(), checkpointer.last_begun_at.get());
    let is_old = has_succeeded || checkpointer.policy == Policy::OFF;
    if is_old || checkpointer.policy.is_due(begin.0 - last.0, now.since_ns(last_at)) {
        checkpointer.last_begin.set(begin);
        checkpointer.last_begun_at.set(now);
    }
}

/// Writes pages back that were changed before `begin`, and has redo begin later: where the first of those needs it that were not
/// written, if one was not. Returns whether all were.
async fn advance_redo(engine: &Engine, begin: Lsn, extent: CheckpointExtent) -> Result<Result<()>> {
    // The second checkpoint after a change finds its page old: hot pages are written once in two checkpoints. A log
    // that is nearly full cannot wait for that.
    let everything = extent != CheckpointExtent::Old || engine.core.log.is_crowded();
    let old = if everything { begin } else { engine.checkpointer.last_begin.get() };
    let written = {
        let levels = engine.core.buffer.levels();
        let _checkpointing: Vec<Checkpointing> = levels.from_top().map(|tiers| tiers.begin_checkpoint()).collect();
        engine.core.buffer.write_back_before(old, extent != CheckpointExtent::Restart).await
    };
    let redo_start = redo_start(engine);
    make_durable(engine).await?;
    let (_turn, table) = state_table_then_take_turn(engine).await;
    let change = SuperblockChange { cache_table: Some(table), ..SuperblockChange::default() };
    write_superblock(engine, redo_start, change).await?;
    engine.checkpointer.redo_start.set(redo_start);
    Ok(written)
}

/// What a restart has redone and undone in pages is left to a later checkpoint, and redo begins where it began.
async fn put_off(engine: &Engine) -> Result<()> {
    make_durable(engine).await?;
    let _turn = engine.checkpointer.turn.take(&engine.core.executor).await;
    let redo_start = pages_begin(&engine.catalog);
    write_superblock(engine, redo_start, SuperblockChange::default()).await?;
    engine.checkpointer.redo_start.set(redo_start);
    Ok(())
}

/// Makes durable what was written back, and the log up to here. A transaction that has ended by now holds nothing back, so the records
/// with which it ended must be durable, too: a restart that met neither its updates nor their compensations would leave the updates
/// in place.
async fn make_durable(engine: &Engine) -> Result<()> {
    let ended = engine.core.log.end();
    engine.core.buffer.sync().await?;
    engine.core.log.flush(ended).await
}

/// Whether an opening leaves what it has redone to a later checkpoint.
fn may_be_put_off(engine: &Engine) -> bool {
    let is_taken_over = engine.core.buffer.tiers().is_some_and(|tiers| tiers.is_taken_over());
    // However often it is killed, there is not more to redo than this and what one life adds. A superblock file that lies may say
    // that redo begins behind the end of the log, and must not go on saying so.
    let to_redo = engine.core.log.end().0.checked_sub(pages_begin(&engine.catalog).0);
    let is_little =
        to_redo.is_some_and(|to_redo| engine.checkpointer.policy.log_bytes.is_none_or(|bytes| to_redo < bytes));
    is_taken_over && is_little && !engine.core.log.is_scarce() && !engine.core.log.is_claimed()
}
