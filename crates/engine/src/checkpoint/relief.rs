//! Checkpoints that make room in a full log, when transactions ask for it (`transaction/log_relief.rs`).

use super::paging::{CheckpointExtent, checkpoint_pages};
use super::sweeping::hurry;
use super::{background, checkpoint_sets, group};
use crate::engine::{Checkpointer, Engine, Relief, Transactions};
use crate::log::Log;
use std::rc::Rc;

/// Notes that the sweep can go on only when transactions end. Those that wait for it give up.
pub(super) fn note_stall(log: &Log, relief: &Relief) {
    if relief.is_awaited() {
        relief.stalls.set(relief.stalls.get() + 1);
        log.wake_for_room();
    }
}

/// Whether the log begins with what an unfinished transaction needs, or what cannot be archived: then no checkpoint makes room, and each
/// would take some pages of it, perhaps while that transaction takes itself back.
pub(super) fn is_log_held(log: &Log, transactions: &Transactions) -> bool {
    let is_kept = transactions.registry.borrow().first_lsn().is_some_and(|first| log.is_kept_for(first));
    is_kept || log.archive_failure().is_some()
}

/// Notes that no sweep begins before the end of a load. Tasks waiting for a sweep give up.
pub(super) fn note_load(log: &Log, checkpointer: &Checkpointer) {
    if checkpointer.is_loading.get() && checkpointer.relief.is_awaited() {
        log.wake_for_room();
    }
}

/// Starts the task that takes checkpoints on request, for as long as the log is full or tasks wait for them.
pub(crate) fn start(engine: &Rc<Engine>) {
    let (weak, relief, executor) =
        (Rc::downgrade(engine), Rc::clone(&engine.checkpointer.relief), engine.core.executor.clone());
    engine.core.executor.spawn_in(group(&executor), 0, async move {
        loop {
            while !relief.is_wanted.get() {
                relief.asked.wait(&executor).await;
            }
            let Some(engine) = weak.upgrade() else { return };
            relieve(&engine, &relief).await;
            relief.is_wanted.set(false);
        }
    });
}

async fn relieve(engine: &Rc<Engine>, relief: &Relief) {
    let core = &engine.core;
    let is_short = || core.log.is_full() || core.log.is_short_of_promised();
    let is_wanted = || relief.is_awaited() || is_short() && !core.closing.get();
    while is_wanted() && core.log.failure().is_none() {
        relief.begun.set(relief.begun.get() + 1);
        if is_log_held(&core.log, &engine.transactions) {
            core.executor.sleep_ns(background::POLL_NS).await;
        } else {
            let _noted_of_pages = checkpoint_pages(engine, CheckpointExtent::All).await;
            relief.has_paged.set(true);
            note_load(&core.log, &engine.checkpointer);
            let hurry = hurry(&engine.checkpointer);
            let _noted_of_sets = checkpoint_sets(engine).await;
            drop(hurry);
            relief.has_paged.set(false);
        }
        relief.ended.set(relief.ended.get() + 1);
        core.log.wake_for_room();
        core.executor.yield_now().await;
        if is_wanted() {
            // Transactions that go on hold it, or the checkpoint failed.
            core.executor.sleep_ns(background::POLL_NS).await;
        }
    }
}
