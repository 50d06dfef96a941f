//! Ends of transactions that fail for longer than a while: rollbacks, and the freeing of long values that were deleted. Both
//! are tried again and retain their part of the log meanwhile; a rollback also keeps its locks, because what it leaves must
//! not be seen. Transactions that wait for these locks or for room in the log get the cause as an error.

use super::rollback::end_rollback;
use super::{Active, undo};
use crate::Error;
use crate::engine::{Core, Engine, Transactions};
use crate::locks::Locks;
use base::time::{MILLISECOND_NS, SECOND_NS};
use executor::Executor;
use std::rc::Rc;
use structures::lock::Owner;

/// How long a rollback that fails rests before it is tried again, in nanoseconds: twice as long each time.
pub(super) const REST_NS_MIN: u64 = 100 * MILLISECOND_NS;
pub(super) const REST_NS_MAX: u64 = 5 * SECOND_NS;

/// Goes on with a rollback that has failed, beside everything else, and tells the tasks waiting for it.
pub(super) fn stall(engine: &Rc<Engine>, mut state: Active, cause: Error) {
    begin_stall(engine, state.owner, cause);
    let (weak, executor) = (Rc::downgrade(engine), engine.core.executor.clone());
    engine.core.executor.spawn(async move {
        let mut rest_ns = REST_NS_MIN;
        loop {
            executor.sleep_ns(rest_ns).await;
            rest_ns = (2 * rest_ns).min(REST_NS_MAX);
            let Some(engine) = weak.upgrade() else { return };
            if engine.core.closing.get() || engine.core.log.failure().is_some() {
                return;
            }
            match undo(&engine.core, &mut state, 0).await {
                Ok(()) => {
                    end_stall(&engine.transactions, state.owner);
                    return end_rollback(&engine, state).await;
                }
                Err(cause) => renew_stall(&engine, state.owner, cause),
            }
        }
    });
}

/// Notes that the end of a transaction fails and is tried again, and tells the tasks waiting for it. It counts no more among
/// those that may be active: a task that waits for its end is told.
pub(super) fn begin_stall(engine: &Engine, owner: Owner, cause: Error) {
    report_stall(&engine.core, &engine.transactions, owner, cause);
    leave_active(&engine.core.executor, &engine.transactions);
}

/// The end of a transaction goes on in the background and counts no more among those that may be active.
pub(super) fn leave_active(executor: &Executor, transactions: &Transactions) {
    transactions.active.set(transactions.active.get() - 1);
    transactions.admission.wake_one(executor);
}

/// Notes that it has failed again.
pub(super) fn renew_stall(engine: &Engine, owner: Owner, cause: Error) {
    engine.transactions.registry.borrow_mut().end_stall(owner);
    report_stall(&engine.core, &engine.transactions, owner, cause);
}

/// Notes that it fails no more: the transaction ends as any other, and counts until it has.
pub(super) fn end_stall(transactions: &Transactions, owner: Owner) {
    transactions.registry.borrow_mut().end_stall(owner);
    transactions.active.set(transactions.active.get() + 1);
}

/// Lets all that wait, for locks or for log, look whether it is for this transaction.
pub(super) fn report_stall(core: &Core, transactions: &Transactions, owner: Owner, cause: Error) {
    transactions.registry.borrow_mut().stall(owner, cause);
    core.locks.wake_waiters();
    core.log.wake_for_room();
}

/// Why an owner that waits for a lock waits for a rollback that fails, if it does.
pub(super) fn stalled_before(locks: &Locks, transactions: &Transactions, owner: Owner) -> Option<Error> {
    let registry = transactions.registry.borrow();
    if registry.stalled().is_empty() {
        return None;
    }
    let found = registry.stalled().iter().find(|(stalled, _)| locks.waits_for(owner, *stalled));
    found.map(|(_, cause)| Error::stalled(cause.clone()))
}

#[cfg(test)]
mod tests {
    use crate::version::tests::on_a_machine;
    use crate::{Database, Error, PartitionSpec, Settings, Transaction, buffer};
    use base::time::MILLISECOND_NS;

    #[test]
    fn a_rollback_that_fails_because_the_log_has_is_told_of_as_that() {
        const FRAMES: usize = 32;
        let key = |number: usize| (number as u32).to_be_bytes();
        let done = on_a_machine(async |executor| {
            let pages = buffer::Settings { frames: FRAMES, page_size: 1024, ..buffer::Settings::default() };
            let database = Database::create(executor, Settings { buffer: pages, ..Settings::default() }).await?;
            let rows = database.create_partition(PartitionSpec::b_tree("rows")).await?;
            let mut tx = database.begin().await?;
            for number in 0..4 * FRAMES {
                tx.put(rows, &key(number), &[1; 400]).await?;
            }
            let waiting = {
                let database = database.clone();
                let write = async move |tx: &mut Transaction| tx.put(rows, &key(0), b"another's").await;
                executor.spawn(async move { database.transaction(write).await })
            };
            executor.sleep_ns(MILLISECOND_NS).await;
            database.0.engine.core.log.fail("its device is gone");
            let rolled_back = tx.rollback().await;
            assert!(matches!(rolled_back, Err(Error::LogFailed(_))), "{rolled_back:?}");
            executor.sleep_ns(MILLISECOND_NS).await;
            assert!(waiting.is_finished(), "a task that waits for a lock is not told");
            // It is not tried again: only the next opening completes it.
            let told = waiting.join().await;
            assert!(matches!(told, Err(Error::LogFailed(_))), "{told:?}");
            let dropped = database.drop_partition(rows).await;
            assert!(matches!(dropped, Err(Error::LogFailed(_))), "{dropped:?}");
            Ok(())
        });
        assert_eq!(done, Ok(()));
    }
}
