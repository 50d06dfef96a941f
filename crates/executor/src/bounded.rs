use crate::{Executor, Relay, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A queue between tasks with a fixed capacity. A sender that finds it full waits; items enter strictly in the order in which
/// their senders came, so a later sender never overtakes a waiting one.
///
/// ```
/// # use entresol_executor::{BoundedQueue, Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// use std::rc::Rc;
///
/// let letters = Rc::new(BoundedQueue::new(2));
/// let (box_, clone) = (Rc::clone(&letters), executor.clone());
/// executor.spawn(async move {
///     for letter in 1..=5 {
///         box_.push(&clone, letter).await;
///     }
/// });
/// let mut taken = Vec::new();
/// executor.run(async {
///     while taken.len() < 5 {
///         executor.yield_now().await;
///         assert!(letters.len() <= 2);
///         taken.extend(letters.pop(&executor));
///     }
/// })?;
/// assert_eq!(taken, [1, 2, 3, 4, 5]);
/// # Ok::<(), driver::Halt>(())
/// ```
pub struct BoundedQueue<T> {
    items: RefCell<VecDeque<T>>,
    capacity: usize,
    /// The senders waiting for room, in order of arrival.
    waiters: RefCell<VecDeque<(u64, TaskId)>>,
    tickets: Cell<u64>,
}

impl<T> BoundedQueue<T> {
    /// An empty queue for `capacity` items.
    ///
    /// # Panics
    /// If that is none.
    pub fn new(capacity: usize) -> BoundedQueue<T> {
        assert!(capacity > 0, "a queue holds at least one item");
        BoundedQueue {
            items: RefCell::new(VecDeque::with_capacity(capacity.min(1024))),
            capacity,
            waiters: RefCell::default(),
            tickets: Cell::new(0),
        }
    }

    /// How many items it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }

    /// How many items it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many tasks wait for room.
    pub fn waiting(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// Adds an item at once.
    ///
    /// # Errors
    /// Returns the item if there is no room, or if senders are waiting for room.
    #[inline]
    pub fn try_push(&self, item: T) -> Result<(), T> {
        if !self.waiters.borrow().is_empty() {
            return Err(item);
        }
        self.enter(item)
    }

    #[inline]
    fn enter(&self, item: T) -> Result<(), T> {
        let mut items = self.items.borrow_mut();
        if items.len() >= self.capacity {
            return Err(item);
        }
        items.push_back(item);
        Ok(())
    }

    /// Adds an item as soon as there is room for it. Abandoned before that, it adds nothing.
    pub fn push<'a>(&'a self, executor: &'a Executor, item: T) -> Push<'a, T> {
        Push { queue: self, executor, item: Some(item), ticket: None, relay: Relay::default() }
    }

    /// Shows `look` the item behind `others` others, if there is one.
    #[inline]
    pub fn look_ahead(&self, others: usize, look: impl FnOnce(&T)) {
        self.items.borrow().get(others).map(look);
    }

    /// Takes the oldest item.
    #[inline]
    pub fn pop(&self, executor: &Executor) -> Option<T> {
        let item = self.items.borrow_mut().pop_front();
        if item.is_some() {
            self.wake_first_sender(executor);
        }
        item
    }

    /// Wakes the first waiting sender, if there is room.
    #[inline]
    fn wake_first_sender(&self, executor: &Executor) {
        let first = self.waiters.borrow().front().copied();
        if let Some((_, task)) = first
            && self.len() < self.capacity
        {
            executor.wake(task);
        }
    }
}

/// An item's way into a [`BoundedQueue`].
pub struct Push<'a, T> {
    queue: &'a BoundedQueue<T>,
    executor: &'a Executor,
    item: Option<T>,
    ticket: Option<u64>,
    relay: Relay,
}

// The item is moved, never pinned.
impl<T> Unpin for Push<'_, T> {}

impl<T> Future for Push<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let item = this.item.take().expect("polled after completion");
        let entered = match this.ticket {
            None => this.queue.try_push(item),
            Some(ticket) if this.queue.waiters.borrow().front().is_some_and(|(first, _)| *first == ticket) => {
                this.queue.enter(item)
            }
            Some(_) => Err(item),
        };
        if let Err(item) = entered {
            this.item = Some(item);
            if this.ticket.is_none() {
                let ticket = this.queue.tickets.get();
                this.queue.tickets.set(ticket + 1);
                let task = this.executor.waiter(context, &mut this.relay);
                this.queue.waiters.borrow_mut().push_back((ticket, task));
                this.ticket = Some(ticket);
            }
            return Poll::Pending;
        }
        if this.ticket.take().is_some() {
            this.queue.waiters.borrow_mut().pop_front();
            this.queue.wake_first_sender(this.executor);
        }
        Poll::Ready(())
    }
}

impl<T> Drop for Push<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let was_first = {
            let mut waiters = self.queue.waiters.borrow_mut();
            // Tickets ascend along the queue.
            let place = waiters.binary_search_by_key(&ticket, |(other, _)| *other);
            place.is_ok_and(|place| waiters.remove(place).is_some() && place == 0)
        };
        if was_first {
            self.queue.wake_first_sender(self.executor);
        }
    }
}

#[cfg(test)]
mod tests;
