//! Checkpoints that a task awaits which has a transaction that they wait for.

use crate::engine::Engine;
use crate::transaction::{GRACE_NS, OwnWait, Sought, changer_ids};
use crate::{Error, Result};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use structures::set::Capture;

/// Waits for a checkpoint, unless its sweep waits for a transaction that only the task ends which waits here.
pub(super) async fn unless_awaited(engine: &Engine, taken: impl Future<Output = Result<()>>) -> Result<()> {
    if !matches!(engine.checkpointer.sweep.strategy.capture(), Some(Capture::BlackWhite(_))) {
        return taken.await;
    }
    let (executor, mut taken) = (&engine.core.executor, pin!(taken));
    let (own_wait, looks_at) = (OwnWait::new(engine, Sought::Sweep), Cell::new(executor.now()));
    poll_fn(|context| {
        if let Poll::Ready(result) = taken.as_mut().poll(context) {
            return Poll::Ready(result);
        }
        if engine.checkpointer.is_stalled.get() && own_wait.is_for_ever() {
            return Poll::Ready(Err(Error::OwnCheckpoint { holders: changer_ids(engine) }));
        }
        if executor.now() >= looks_at.get() {
            looks_at.set(executor.now().plus_ns(GRACE_NS));
            executor.poll_at(looks_at.get());
        }
        Poll::Pending
    })
    .await
}
