use crate::{Executor, WaitQueue};
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) struct Outcome<T> {
    pub value: RefCell<Option<T>>,
    pub waiters: WaitQueue,
}

/// The result of a spawned task. Dropping it lets the task go on.
pub struct JoinHandle<T> {
    pub(crate) executor: Executor,
    pub(crate) outcome: Rc<Outcome<T>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the task's end.
    pub async fn join(self) -> T {
        loop {
            if let Some(value) = self.outcome.value.borrow_mut().take() {
                return value;
            }
            self.outcome.waiters.wait(&self.executor).await;
        }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.value.borrow().is_some()
    }
}
