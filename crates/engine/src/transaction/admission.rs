//! Waiting to be one of as many transactions as may run at once.

use super::own_wait::{OwnWait, Sought};
use crate::engine::Engine;
use crate::{Error, Result};
use executor::TaskId;

/// A task that waits to begin a transaction and may be what keeps others from their ends.
struct Nested<'a> {
    engine: &'a Engine,
    task: TaskId,
}

impl Nested<'_> {
    fn new(engine: &Engine, task: TaskId) -> Nested<'_> {
        engine.transactions.nested.borrow_mut().push(task);
        Nested { engine, task }
    }
}

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.engine.transactions.nested.borrow_mut().retain(|task| *task != self.task);
    }
}

/// Waits until fewer transactions are active than may be. Snapshots do not count.
///
/// # Errors
/// [`Error::TooManyTransactions`] if all that are active wait for this task, or for others that wait for the same.
#[cold]
pub(super) async fn wait(engine: &Engine) -> Result<()> {
    let (transactions, executor) = (&engine.transactions, &engine.core.executor);
    let task = executor.current();
    let is_nested = transactions.registry.borrow().users().any(|user| user.task() == task);
    let (own_wait, mut nested) = (OwnWait::new(engine, Sought::Beginning), None);
    while transactions.may_change() >= transactions.admitted_max.get() {
        if nested.is_none() && (is_nested || executor.are_answers_awaited()) {
            nested = Some(Nested::new(engine, task));
        }
        if nested.is_some() && own_wait.is_for_ever() {
            return Err(Error::TooManyTransactions { level: transactions.rules.multiprogramming_level });
        }
        transactions.admission.wait(executor).await;
    }
    Ok(())
}
