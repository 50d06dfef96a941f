//! The tasks that wait for locks, and the end of waits that have a limit.
//!
//! Most waits are far shorter than their limit, so a wait sets no timer of its own: one task sleeps until the first limit is
//! over of those that waited when it last looked.

use base::Instant;
use executor::{Executor, TaskId};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use structures::lock::Owner;

/// One owner's wait.
#[derive(Clone, Copy)]
struct Waiter {
    /// The task to be woken, unless it was.
    task: Option<TaskId>,
    since: Instant,
    until: Option<Instant>,
}

/// All waits.
pub(super) struct LockWaiters {
    executor: Executor,
    /// By owner.
    waits: RefCell<Vec<Option<Waiter>>>,
    /// When the latest task that watches limits looks again.
    looks_at: Cell<Option<Instant>>,
}

impl LockWaiters {
    pub fn new(executor: &Executor) -> LockWaiters {
        LockWaiters { executor: executor.clone(), waits: RefCell::default(), looks_at: Cell::new(None) }
    }

    /// An owner begins to wait, until `until` at most.
    pub fn enter(self: &Rc<Self>, owner: Owner, until: Option<Instant>) {
        {
            let mut waits = self.waits.borrow_mut();
            let index = owner.0 as usize;
            if waits.len() <= index {
                waits.resize(index + 1, None);
            }
            waits[index] = Some(Waiter { task: None, since: self.executor.now(), until });
        }
        if let Some(until) = until
            && self.looks_at.get().is_none_or(|at| until < at)
        {
            self.looks_at.set(Some(until));
            self.executor.spawn(watch(Rc::downgrade(self), self.executor.clone(), until));
        }
    }

    /// Names the task to be woken for an owner's wait.
    pub fn set_task(&self, owner: Owner, task: TaskId) {
        if let Some(Some(waiter)) = self.waits.borrow_mut().get_mut(owner.0 as usize) {
            waiter.task = Some(task);
        }
    }

    /// An owner waits no more.
    pub fn leave(&self, owner: Owner) {
        if let Some(waiter) = self.waits.borrow_mut().get_mut(owner.0 as usize) {
            *waiter = None;
        }
    }

    /// Wakes the owner's task, if it waits.
    #[inline]
    pub fn wake(&self, owner: Owner) {
        let task = self.waits.borrow_mut().get_mut(owner.0 as usize).and_then(|wait| wait.as_mut()?.task.take());
        if let Some(task) = task {
            self.executor.wake(task);
        }
    }

    /// Wakes every task that waits.
    pub fn wake_all(&self) {
        let tasks: Vec<TaskId> =
            self.waits.borrow_mut().iter_mut().flatten().filter_map(|waiter| waiter.task.take()).collect();
        tasks.into_iter().for_each(|task| self.executor.wake(task));
    }

    /// The owners that wait, and since when.
    pub fn waiting(&self) -> Vec<(Owner, Instant)> {
        let waits = self.waits.borrow();
        let owners = (0..).map(Owner).zip(&*waits);
        owners.filter_map(|(owner, waiter)| Some((owner, waiter.as_ref()?.since))).collect()
    }

    /// The owner for whose wait this task is to be woken.
    pub fn waiting_in(&self, task: TaskId) -> Option<Owner> {
        let waits = self.waits.borrow();
        let place = waits.iter().position(|wait| wait.as_ref().is_some_and(|waiter| waiter.task == Some(task)))?;
        Some(Owner(place as u32))
    }

    /// Wakes the tasks whose limit is over, and says when the next one is.
    fn end_overdue(&self) -> Option<Instant> {
        let now = self.executor.now();
        let mut next = None;
        for waiter in self.waits.borrow_mut().iter_mut().flatten() {
            match waiter.until {
                Some(until) if until <= now => waiter.task.take().into_iter().for_each(|task| self.executor.wake(task)),
                Some(until) => next = Some(next.map_or(until, |next: Instant| next.min(until))),
                None => {}
            }
        }
        next
    }
}

/// Ends the waits whose limit is over, as long as there are any and no other task looks earlier.
async fn watch(waiters: Weak<LockWaiters>, executor: Executor, mut until: Instant) {
    loop {
        executor.sleep_until(until).await;
        let Some(waiters) = waiters.upgrade() else { return };
        let next = waiters.end_overdue();
        if waiters.looks_at.get() != Some(until) {
            // One that began later looks earlier, and goes on.
            return;
        }
        waiters.looks_at.set(next);
        let Some(next) = next else { return };
        until = next;
    }
}
