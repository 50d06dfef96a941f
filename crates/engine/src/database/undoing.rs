//! What an opening has left to be undone behind it: how far that is, and what waits for it.

use super::Database;
use crate::engine::UndoProgress;
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use executor::WholeExecutor;

/// How long it is waited while nothing of that gets on, in nanoseconds.
const STILL_NS_MAX: u64 = 10 * SECOND_NS;
/// How often it is looked for, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND_NS;
/// How long a step that was under way is waited for when the rest is left to the next opening, in nanoseconds.
const STEP_NS_MAX: u64 = 2 * SECOND_NS;

impl Database {
    /// What the opening has left to be undone of transactions that had not ended, as far as that is not done. It goes on beside everything
    /// else; what they have changed stays locked until it is undone.
    pub fn undoing(&self) -> UndoProgress {
        self.0.engine.transactions.left.progress()
    }

    /// Waits until all of that is done, for as long as it gets on.
    ///
    /// # Errors
    /// [`Error::RollbackStalled`] if it fails, [`Error::StillUndoing`] if it has not got on for ten seconds, [`Error::Closed`], [`Error::LogFailed`].
    pub(super) async fn await_undone(&self) -> Result<()> {
        let (engine, executor) = (&self.0.engine, self.executor().whole());
        let left = &engine.transactions.left;
        let (mut before, mut since) = (left.progress(), executor.now());
        while left.is_any() {
            engine.core.check_open()?;
            engine.core.log.failure().map_or(Ok(()), Err)?;
            if let Some((_, cause)) = engine.transactions.registry.borrow().stalled().first() {
                return Err(Error::stalled(cause.clone()));
            }
            if before != left.progress() {
                (before, since) = (left.progress(), executor.now());
            } else if executor.now().since_ns(since) >= STILL_NS_MAX {
                return Err(Error::StillUndoing);
            }
            executor.sleep_ns(LOOK_NS).await;
        }
        Ok(())
    }

    /// Has the next opening go on with what is left of it.
    pub(super) async fn stop_undoing(&self) {
        let (left, executor) = (&self.0.engine.transactions.left, self.executor().whole());
        left.stop();
        // Tasks that wait for what they have locked are told.
        self.0.engine.core.locks.wake_waiters();
        let until = executor.now().plus_ns(STEP_NS_MAX);
        while left.is_at_work() && executor.now() < until {
            executor.sleep_ns(LOOK_NS).await;
        }
    }
}
