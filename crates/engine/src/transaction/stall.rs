//! Ends of transactions that fail for longer than a while: rollbacks, and the freeing of long values that were deleted. Both
//! are tried again and retain their part of the log meanwhile; a rollback also keeps its locks, because what it leaves must
//! not be seen. Transactions that wait for these locks or for room in the log get the cause as an error.

use super::Active;
use crate::Error;
use crate::database::Database;
use base::time::{MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;
use structures::lock::Owner;

/// How long a rollback that fails rests before it is tried again, in nanoseconds: twice as long each time.
pub(super) const REST_NS_MIN: u64 = 100 * MILLISECOND_NS;
pub(super) const REST_NS_MAX: u64 = 5 * SECOND_NS;

impl Database {
    /// Goes on with a rollback that has failed, beside everything else, and lets those know who wait for it.
    pub(super) fn stall(&self, mut state: Active, cause: Error) {
        let inner = &*self.0;
        self.begin_stall(state.owner, cause);
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
                        database.end_stall(state.owner);
                        return database.end_rollback(state).await;
                    }
                    Err(cause) => database.renew_stall(state.owner, cause),
                }
            }
        });
    }

    /// Notes that the end of a transaction fails and is tried again, and lets those know who wait for it. It counts no more
    /// among those that may be active: nobody may wait for its end without being told.
    pub(super) fn begin_stall(&self, owner: Owner, cause: Error) {
        self.tell_of_stall(owner, cause);
        self.leave_active();
    }

    /// The end of a transaction goes on in the background and counts no more among those that may be active.
    pub(super) fn leave_active(&self) {
        let inner = &*self.0;
        inner.active.set(inner.active.get() - 1);
        inner.admission.wake_one(&inner.executor);
    }

    /// Notes that it has failed again.
    pub(super) fn renew_stall(&self, owner: Owner, cause: Error) {
        self.0.registry.borrow_mut().end_stall(owner);
        self.tell_of_stall(owner, cause);
    }

    /// Notes that it fails no more: the transaction ends as any other, and counts until it has.
    pub(super) fn end_stall(&self, owner: Owner) {
        self.0.registry.borrow_mut().end_stall(owner);
        self.0.active.set(self.0.active.get() + 1);
    }

    /// Lets all that wait, for locks or for log, look whether it is for this transaction.
    pub(super) fn tell_of_stall(&self, owner: Owner, cause: Error) {
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
