//! Who calls, and whether a task that waits can still be woken by anything but that.

use crate::{Executor, TaskId};
use base::Instant;
use std::rc::Rc;

/// The task that called at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    task: TaskId,
    /// How many tasks had been spawned by then.
    spawned: u64,
}

impl Caller {
    /// The task.
    pub fn task(&self) -> TaskId {
        self.task
    }
}

/// Whose the tasks are that a handle spawns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spawns {
    /// The calling task's: it may have given them what it had.
    OfCaller,
    /// A library's: they have nothing of the task that has called it.
    OfLibrary,
}

impl Executor {
    /// A handle for a library: the tasks that it spawns have nothing that the task had which has called it
    /// ([`Executor::has_kept`]).
    pub fn of_library(&self) -> Executor {
        Executor(Rc::clone(&self.0), Spawns::OfLibrary)
    }

    /// A handle for those who call a library.
    pub fn of_callers(&self) -> Executor {
        Executor(Rc::clone(&self.0), Spawns::OfCaller)
    }

    /// The task that is being polled, at this moment.
    #[inline]
    pub fn caller(&self) -> Caller {
        Caller { task: self.current(), spawned: self.0.spawned.get() }
    }

    /// Whether a caller's task has spawned none since, to which what it had then may have been given. Those that a library
    /// has spawned in it do not count ([`Executor::of_library`]).
    pub fn has_kept(&self, caller: Caller) -> bool {
        self.0.tasks.borrow().last_spawn(caller.task).is_some_and(|last| last <= caller.spawned)
    }

    /// Has [`Executor::is_alone`] tell of the present poll of the current task, from its end on.
    pub fn watch_poll(&self) {
        self.0.watched.set(true);
    }

    /// Whether a task waited for one thing only at the end of the poll that was watched last: for one future of ours, and no
    /// waker of it was elsewhere.
    pub fn is_alone(&self, task: TaskId) -> bool {
        self.0.tasks.borrow().is_alone(task)
    }

    /// The same; and if the task waits for one thing only at the end of the present poll, it is polled again at once.
    pub fn poll_when_alone(&self) {
        self.watch_poll();
        self.0.polls_alone.set(true);
    }

    /// Has the current task polled at `deadline`, whatever it waits for.
    pub fn poll_at(&self, deadline: Instant) {
        self.0.timers.borrow_mut().add(deadline, self.current());
    }
}
