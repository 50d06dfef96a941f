//! The right to sweep, held by operations that do more than sweep: bulk loads and drops of sets.

use super::relief::note_load;
use super::{
    SETS, SuperblockChange, give_up_log, must_await_pins, note_end, pages_begin, write_backup_in_turn, write_superblock,
};
use crate::Result;
use crate::engine::{Checkpointer, Engine};
use base::Lsn;
use std::rc::Rc;

/// The right to sweep. While this exists no other task sweeps.
pub(crate) struct SweepGuard {
    engine: Rc<Engine>,
    loads: bool,
}

impl Drop for SweepGuard {
    fn drop(&mut self) {
        let engine = &self.engine;
        if self.loads {
            engine.checkpointer.is_loading.set(false);
        }
        engine.checkpointer.sweeping.give_back(&engine.core.executor);
    }
}

/// While this lives sweeps do not rest.
pub(super) struct Hurry<'a>(&'a Checkpointer);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.urgent.set(self.0.urgent.get() - 1);
    }
}

/// A task waits for a sweep to end.
pub(super) fn hurry(checkpointer: &Checkpointer) -> Hurry<'_> {
    checkpointer.urgent.set(checkpointer.urgent.get() + 1);
    Hurry(checkpointer)
}

async fn acquire_sweep(engine: &Rc<Engine>, loads: bool) -> SweepGuard {
    let checkpointer = &engine.checkpointer;
    checkpointer.sweeping.take(&engine.core.executor).await.keep();
    if loads {
        checkpointer.is_loading.set(true);
        note_load(&engine.core.log, checkpointer);
    }
    SweepGuard { engine: Rc::clone(engine), loads }
}

/// Forbids sweeps while a set is loaded, because a sweep would take it half loaded.
pub(crate) async fn begin_sweeping_load(engine: &Rc<Engine>) -> SweepGuard {
    acquire_sweep(engine, true).await
}

/// Forbids sweeps while records move between segments, because a sweep could take one segment before and the other after that.
pub(crate) async fn hold_sweeps(engine: &Rc<Engine>) -> SweepGuard {
    acquire_sweep(engine, false).await
}

/// Writes the older copy of the sets' backup after records have moved, of which the log says nothing, if it `fits`. False, with nothing
/// done, if it does not, a backup reads that copy, or others sweep for `patience_ns` nanoseconds. To be run in a task of its own,
/// so that no write of the superblock file is abandoned.
pub(crate) async fn back_up_moved(engine: &Rc<Engine>, patience_ns: u64, fits: impl FnOnce() -> bool) -> Result<bool> {
    let executor = &engine.core.executor;
    let sweeping = executor.within(patience_ns, acquire_sweep(engine, false)).await;
    if sweeping.is_none() || must_await_pins(engine) || !fits() {
        return Ok(false);
    }
    let (_hurry, began) = (hurry(&engine.checkpointer), executor.now());
    let result = write_backup_in_turn(engine, true).await;
    note_end(engine, SETS, began, &result);
    result?;
    give_up_log(engine).await?;
    Ok(true)
}

/// Has the backup begin no earlier than `begin` in the log, by a sweep if need be, and keeps the turn. To be run in a task of
/// its own, so that no write of the superblock file is abandoned.
pub(crate) async fn sweep_since(engine: &Rc<Engine>, begin: Lsn) -> Result<SweepGuard> {
    let hurry = hurry(&engine.checkpointer);
    let sweeping = acquire_sweep(engine, false).await;
    let swept = engine.catalog.superblock.borrow().backup.as_ref().map(|backup| Lsn(backup.begin));
    if swept.is_some_and(|swept| swept < begin) {
        let began = engine.core.executor.now();
        let result = write_backup_in_turn(engine, false).await;
        note_end(engine, SETS, began, &result);
        result?;
        give_up_log(engine).await?;
    }
    drop(hurry);
    Ok(sweeping)
}

/// Writes what a bulk load has added, for the task whose turn it is to sweep. If that fails, the next opening finds nothing of
/// it.
pub(crate) async fn back_up_load(engine: &Rc<Engine>) -> Result<()> {
    let checkpointer = &engine.checkpointer;
    let hurry = hurry(&engine.checkpointer);
    let began = engine.core.executor.now();
    let result = write_backup_in_turn(engine, true).await;
    drop(hurry);
    note_end(engine, SETS, began, &result);
    if result.is_err() {
        let restated = engine.core.persist(async || {
            let _turn = checkpointer.turn.take(&engine.core.executor).await;
            if !checkpointer.superblock_unsure.get() {
                return Ok(());
            }
            write_superblock(engine, pages_begin(&engine.catalog), SuperblockChange::default()).await
        });
        if let Err(error) = restated.await {
            // What is acknowledged from now on would rest on a backup that may be another at the next opening.
            engine.core.log.fail(&format!("a load failed, and the superblock file cannot say so: {error}"));
        }
    }
    result
}
