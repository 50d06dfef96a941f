use crate::{Executor, TaskId};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

/// Tasks that wait for some condition, in order of arrival. A waiter checks its condition again after each wake: wakes may
/// come without cause.
#[derive(Default)]
pub struct WaitQueue {
    tasks: RefCell<VecDeque<TaskId>>,
}

impl WaitQueue {
    /// No task waits.
    pub fn new() -> WaitQueue {
        WaitQueue::default()
    }

    /// Waits for one wake.
    pub async fn wait(&self, executor: &Executor) {
        let mut registered = false;
        poll_fn(|_| {
            if std::mem::replace(&mut registered, true) {
                return Poll::Ready(());
            }
            self.tasks.borrow_mut().push_back(executor.current());
            Poll::Pending
        })
        .await;
    }

    /// Registers the current task without waiting; for leaf futures that decide to wait themselves.
    pub fn register(&self, executor: &Executor) {
        self.tasks.borrow_mut().push_back(executor.current());
    }

    /// Wakes every waiter.
    pub fn wake_all(&self, executor: &Executor) {
        let mut tasks = self.tasks.borrow_mut();
        for task in tasks.drain(..) {
            executor.wake(task);
        }
    }

    /// Wakes the first waiter; false if there is none.
    pub fn wake_one(&self, executor: &Executor) -> bool {
        let first = self.tasks.borrow_mut().pop_front();
        first.is_some_and(|task| {
            executor.wake(task);
            true
        })
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.tasks.borrow().is_empty()
    }
}
