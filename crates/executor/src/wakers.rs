//! Wakers, for futures that are not ours: another runtime's, and combinators that poll their parts when these were woken.
//!
//! Our own futures name the task that waits and need no waker. One that was cloned may be used on any thread and at any time,
//! also when its task has long ended. So it only sends the task's name through a mailbox into the executor's thread, which
//! takes it out before it asks the driver, or when the doorbell rings.

use crate::executor::groups::Membership;
use crate::{Executor, Sender, TaskId};
use base::canary::{self, Canary};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// What a waker does: calls the task that is in a slot of the table.
pub(crate) struct Call {
    slot: u32,
    generation: AtomicU32,
    sender: Arc<Sender<TaskId>>,
}

impl Call {
    pub fn new(task: TaskId, sender: &Arc<Sender<TaskId>>) -> Arc<Call> {
        let generation = AtomicU32::new(task.generation);
        Arc::new(Call { slot: task.slot, generation, sender: Arc::clone(sender) })
    }

    /// Whether its waker, of which the executor has one, has been cloned.
    pub fn is_out(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 2
    }

    /// From now on it wakes another task of its slot. No clone of its waker may exist then.
    pub fn turn_to(&self, generation: u32) {
        self.generation.store(generation, Ordering::Relaxed);
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if canary::is_planted(Canary::DeafWaker) {
            return;
        }
        self.sender.send(TaskId { slot: self.slot, generation: self.generation.load(Ordering::Relaxed) });
    }
}

impl Executor {
    /// The task to wake for a future of ours that waits in this context: the one that is being polled, if the context is its own,
    /// and otherwise one that stands for the context's waker as long as `relay` is kept.
    #[inline]
    pub fn waiter(&self, context: &Context<'_>, relay: &mut Relay) -> TaskId {
        self.0.registered.set(self.0.registered.get() + 1);
        if self.is_own(context) { self.current() } else { relay.to(self, context) }
    }

    /// Whether a context is that of the task that is being polled.
    #[inline]
    pub(crate) fn is_own(&self, context: &Context<'_>) -> bool {
        std::ptr::eq(context.waker().data(), self.0.polled.get())
    }

    /// A task that wakes with this waker whenever it is woken itself.
    pub(crate) fn proxy_for(&self, waker: Waker) -> TaskId {
        let wakes = poll_fn(move |_| {
            waker.wake_by_ref();
            Poll::Pending
        });
        self.0.tasks.borrow_mut().insert(Box::pin(wakes), Membership::NONE)
    }
}

/// A future's wait in a context that is not its task's own: wakes of that task would not reach it there, so a name of its own
/// stands for the context's waker as long as this is kept.
#[derive(Default)]
pub struct Relay(Option<Box<Proxy>>);

struct Proxy {
    executor: Executor,
    task: TaskId,
    waker: Waker,
}

impl Relay {
    /// The name that stands for the context's waker.
    pub(crate) fn to(&mut self, executor: &Executor, context: &Context<'_>) -> TaskId {
        let proxy = self.0.take().filter(|proxy| proxy.waker.will_wake(context.waker()));
        let proxy = proxy.unwrap_or_else(|| {
            let waker = context.waker().clone();
            Box::new(Proxy { executor: executor.clone(), task: executor.proxy_for(waker.clone()), waker })
        });
        self.0.insert(proxy).task
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.executor.discard(self.task);
    }
}
