//! Waiting to be one of as many transactions as may run at once.

use crate::engine::Engine;
use crate::{Error, Result};
use base::time::MILLISECOND_NS;
use executor::TaskId;

/// How long a task waits that has begun others before it is looked at whether all of them wait so, in nanoseconds.
const GRACE_NS: u64 = 100 * MILLISECOND_NS;

/// A task that has begun a transaction and waits to begin another one.
struct Nested<'a> {
    engine: &'a Engine,
    task: TaskId,
}

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.engine.transactions.nested.borrow_mut().retain(|task| *task != self.task);
    }
}

/// Waits until fewer transactions are active than may be.
///
/// # Errors
/// [`Error::TooManyTransactions`] if all that are active wait, with their tasks, for the same.
#[cold]
pub(super) async fn wait(engine: &Engine) -> Result<()> {
    let (transactions, executor) = (&engine.transactions, &engine.core.executor);
    let task = executor.current();
    let is_nested = transactions.registry.borrow().users().any(|user| user.task() == task);
    let looks_at = executor.now().plus_ns(GRACE_NS);
    let _nested = is_nested.then(|| {
        transactions.nested.borrow_mut().push(task);
        executor.watch_poll();
        executor.poll_at(looks_at);
        Nested { engine, task }
    });
    while transactions.active.get() >= transactions.admitted_max.get() {
        if is_nested && executor.now() >= looks_at && is_hopeless(engine) {
            return Err(Error::TooManyTransactions { level: transactions.rules.multiprogramming_level });
        }
        transactions.admission.wait(executor).await;
    }
    Ok(())
}

/// Whether every active transaction belongs to a task that waits for nothing but to begin another one. One that ends by itself does not,
/// and while a sweep waits for all to end, it is that which goes on.
fn is_hopeless(engine: &Engine) -> bool {
    let (transactions, executor) = (&engine.transactions, &engine.core.executor);
    let (registry, nested) = (transactions.registry.borrow(), transactions.nested.borrow());
    let waits = |task: &TaskId| nested.contains(task) && executor.is_alone(*task);
    let waiting = registry.users().filter(|user| waits(&user.task()) && executor.has_kept(*user)).count();
    let is_open = transactions.admitted_max.get() == transactions.rules.multiprogramming_level;
    is_open && waiting > 0 && waiting == transactions.active.get()
}
