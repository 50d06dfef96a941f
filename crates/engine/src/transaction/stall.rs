//! Rollbacks that fail for longer than a while. They keep their locks and what the log has of them, because nobody may see
//! what they leave, and are tried again. Whoever waits for that is told why, and may do something else meanwhile.

use super::Active;
use crate::Error;
use crate::database::Database;
use crate::lock::Owner;
use base::time::{MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;

/// How long a rollback that fails rests before it is tried again, in nanoseconds: twice as long each time.
const REST_NS_MIN: u64 = 100 * MILLISECOND_NS;
const REST_NS_MAX: u64 = 5 * SECOND_NS;

impl Database {
    /// Goes on with a rollback that has failed, beside everything else, and lets those know who wait for it.
    pub(super) fn stall(&self, mut state: Active, cause: Error) {
        let inner = &*self.0;
        self.tell_of_stall(state.owner, cause);
        // It counts no more among those that may be active: nobody may wait for its end without being told.
        inner.active.set(inner.active.get() - 1);
        inner.admission.wake_one(&inner.executor);
        let (weak, executor) = (Rc::downgrade(&self.0), inner.executor.clone());
        inner.executor.spawn(async move {
            let mut rest_ns = REST_NS_MIN;
            loop {
                executor.sleep_ns(rest_ns).await;
                rest_ns = (2 * rest_ns).min(REST_NS_MAX);
                let Some(inner) = weak.upgrade() else { return };
                let database = Database(inner);
                if database.0.closing.get() || database.0.log.failure().is_some() {
                    return;
                }
                match database.undo(&mut state, 0).await {
                    Ok(()) => {
                        database.0.registry.borrow_mut().end_stall(state.owner);
                        database.0.active.set(database.0.active.get() + 1);
                        return database.end_rollback(state).await;
                    }
                    Err(cause) => {
                        database.0.registry.borrow_mut().end_stall(state.owner);
                        database.tell_of_stall(state.owner, cause);
                    }
                }
            }
        });
    }

    /// Lets all that wait, for locks or for log, look whether it is for this transaction.
    fn tell_of_stall(&self, owner: Owner, cause: Error) {
        let waiting = self.0.registry.borrow_mut().stall(owner, cause);
        waiting.into_iter().for_each(|task| self.0.executor.wake(task));
        self.0.log.wake_for_room();
    }

    /// Why an owner that waits for a lock waits for a rollback that fails, if it does.
    pub(super) fn stalled_before(&self, owner: Owner) -> Option<Error> {
        let registry = self.0.registry.borrow();
        if registry.stalled().is_empty() {
            return None;
        }
        let locks = self.0.locks.borrow();
        let found = registry.stalled().iter().find(|(stalled, _)| locks.waits_for(owner, *stalled));
        found.map(|(_, cause)| Error::RollbackStalled { cause: Box::new(cause.clone()) })
    }
}
