use crate::{Executor, Relay, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Tasks that wait for some condition, in order of arrival. A waiter checks its condition again after each wake: wakes may
/// come without cause. A waiter that is abandoned leaves the queue, and passes its wake on if it had been woken.
///
/// ```
/// # use entresol_executor::{Executor, Order, WaitQueue};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// use std::{cell::Cell, rc::Rc};
///
/// let (stock, delivered) = (Rc::new(Cell::new(0)), Rc::new(WaitQueue::new()));
/// let supplier = (Rc::clone(&stock), Rc::clone(&delivered), executor.clone());
/// executor.spawn(async move {
///     let (stock, delivered, executor) = supplier;
///     executor.sleep_ns(1_000).await;
///     stock.set(5);
///     delivered.wake_all(&executor);
/// });
/// executor.run(async {
///     while stock.get() == 0 {
///         delivered.wait(&executor).await;
///     }
/// })?;
/// assert_eq!(stock.get(), 5);
/// # Ok::<(), driver::Halt>(())
/// ```
#[derive(Default)]
pub struct WaitQueue {
    waiters: RefCell<VecDeque<(u64, TaskId)>>,
    tickets: Cell<u64>,
}

impl WaitQueue {
    /// No task waits.
    pub fn new() -> WaitQueue {
        WaitQueue::default()
    }

    /// Waits for one wake.
    pub fn wait<'a>(&'a self, executor: &'a Executor) -> Wait<'a> {
        Wait { queue: self, executor, ticket: None, relay: Relay::default() }
    }

    /// Wakes every waiter.
    pub fn wake_all(&self, executor: &Executor) {
        let mut waiters = self.waiters.borrow_mut();
        for (_, task) in waiters.drain(..) {
            executor.wake(task);
        }
    }

    /// Wakes the first waiter; false if there is none.
    pub fn wake_one(&self, executor: &Executor) -> bool {
        let first = self.waiters.borrow_mut().pop_front();
        first.is_some_and(|(_, task)| {
            executor.wake(task);
            true
        })
    }

    /// How many tasks wait.
    pub fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Whether no task waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }

    /// Takes a waiter out; false if it was woken already.
    fn leave(&self, ticket: u64) -> bool {
        let mut waiters = self.waiters.borrow_mut();
        // Tickets ascend along the queue.
        let place = waiters.binary_search_by_key(&ticket, |(other, _)| *other);
        place.is_ok_and(|place| waiters.remove(place).is_some())
    }
}

/// One task's wait in a [`WaitQueue`].
pub struct Wait<'a> {
    queue: &'a WaitQueue,
    executor: &'a Executor,
    ticket: Option<u64>,
    relay: Relay,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.ticket.take() {
            Some(ticket) => {
                self.queue.leave(ticket);
                Poll::Ready(())
            }
            None => {
                let ticket = self.queue.tickets.get();
                self.queue.tickets.set(ticket + 1);
                let task = self.executor.waiter(context, &mut self.relay);
                self.queue.waiters.borrow_mut().push_back((ticket, task));
                self.ticket = Some(ticket);
                Poll::Pending
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket
            && !self.queue.leave(ticket)
        {
            self.queue.wake_one(self.executor);
        }
    }
}
