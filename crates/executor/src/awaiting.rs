//! Answers that tasks await from other tasks of the same executor, by way of a queue.
//!
//! A search for waits without an end follows a task through the answers that it awaits to the tasks that work on them. What a task
//! awaits is known while it waits for such answers and for nothing else.

use crate::executor::Inner;
use crate::{Executor, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::{Context, Waker};

/// Tells which task works on what has this name, if one does.
type WorkerOf = Box<dyn Fn(usize) -> Option<TaskId>>;

#[derive(Default)]
pub(crate) struct Awaiting {
    /// What the present poll has come to await.
    polled: RefCell<Vec<usize>>,
    /// Tasks that awaited answers at the end of their latest poll, and nothing else.
    tasks: RefCell<BTreeMap<TaskId, Vec<usize>>>,
    /// Whether there are any.
    is_any: Cell<bool>,
    worker_of: RefCell<Option<WorkerOf>>,
}

impl Awaiting {
    /// Whether a task is known to await answers only.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.get()
    }

    /// A task is polled, or has ended.
    #[cold]
    pub fn forget(&self, task: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.remove(&task);
        self.is_any.set(!tasks.is_empty());
    }

    /// What the present poll has come to await does not count.
    pub fn discard_poll(&self) {
        self.polled.borrow_mut().clear();
    }

    /// A poll has ended that has come to wait for this number of things. Returns who works on those, if all of them are answers.
    fn end_poll(&self, task: TaskId, waits: u32) -> Vec<TaskId> {
        let polled = self.polled.take();
        if polled.is_empty() || polled.len() != waits as usize {
            return Vec::new();
        }
        let workers = polled.iter().filter_map(|name| self.worker(*name)).collect();
        self.tasks.borrow_mut().insert(task, polled);
        self.is_any.set(true);
        workers
    }

    fn worker(&self, name: usize) -> Option<TaskId> {
        self.worker_of.borrow().as_ref()?(name)
    }

    fn workers_for(&self, task: TaskId) -> Option<Vec<TaskId>> {
        let tasks = self.tasks.borrow();
        tasks.get(&task)?.iter().map(|name| self.worker(*name)).collect()
    }
}

impl Executor {
    /// Names who works on what: `worker_of` tells which task does on something of a name, if one does.
    pub fn name_workers(&self, worker_of: impl Fn(usize) -> Option<TaskId> + 'static) {
        self.0.awaiting.worker_of.replace(Some(Box::new(worker_of)));
    }

    /// A waker for who awaits, in this context, the answer that another task of this executor will give to what has this name
    /// ([`Executor::name_workers`]).
    #[cold]
    pub fn await_answer(&self, context: &Context<'_>, name: usize) -> Waker {
        if !self.is_own(context) {
            return context.waker().clone();
        }
        self.0.registered.set(self.0.registered.get() + 1);
        self.0.awaiting.polled.borrow_mut().push(name);
        self.watch_poll();
        // One of its own: clones of the task's waker are those of which it is not known what uses them.
        Waker::from(self.0.tasks.borrow().call_for(self.current()))
    }

    /// Whether a task waits for answers of other tasks only.
    #[inline]
    pub fn are_answers_awaited(&self) -> bool {
        self.0.awaiting.is_any()
    }

    /// The tasks that work on what a task awaits, if it waits for their answers and for nothing else. `None` also if one has not
    /// begun, or has given its answer.
    pub fn workers_for(&self, task: TaskId) -> Option<Vec<TaskId>> {
        let waits = self.0.tasks.borrow().is_undisturbed(task);
        waits.then(|| self.0.awaiting.workers_for(task)).flatten()
    }

    /// A poll that was watched has ended, and its task goes on. Those that work on what it awaits may want to know.
    #[cold]
    pub(crate) fn end_watched_poll(&self, task: TaskId) {
        let waits = self.0.registered.get();
        self.0.watched.set(false);
        self.0.tasks.borrow_mut().set_alone(task, waits == 1);
        if self.0.polls_alone.take() && waits == 1 {
            self.wake(task);
        }
        self.0.awaiting.end_poll(task, waits).into_iter().for_each(|worker| self.wake(worker));
    }
}

impl Inner {
    /// A poll that was watched has ended with its task.
    #[cold]
    pub(crate) fn discard_watched_poll(&self) {
        self.polls_alone.set(false);
        self.awaiting.discard_poll();
    }
}
