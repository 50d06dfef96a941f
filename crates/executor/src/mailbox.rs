//! The way in from other threads: a queue whose sender rings the driver's doorbell.

use crate::Executor;
use driver::Doorbell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// Whether the queue may have items: asked without its lock.
    has_items: AtomicBool,
    bell: Arc<dyn Doorbell>,
}

struct Queue<T> {
    items: Vec<T>,
    senders: usize,
    /// The receiver is gone.
    closed: bool,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing panics while the queue is held, so a poisoned lock still guards a sound queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The executor's end of a mailbox. Items that were not received are dropped with it, and so are later ones.
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

/// Any thread's end of a mailbox.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// Makes a mailbox into `executor`'s thread.
///
/// ```
/// # use entresol_executor::{Executor, Order, mailbox};
/// # use real_driver::{Options, RealDriver};
/// # let directory = tempfile::tempdir()?;
/// let driver = RealDriver::open(Options::new("disk", directory.path()))?;
/// let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// let (sender, letters) = mailbox(&executor);
/// let writer = std::thread::spawn(move || (1..=3).for_each(|letter| sender.send(letter)));
/// let (mut batch, mut received) = (Vec::new(), Vec::new());
/// let read = async {
///     // The writer's end is also that of the mailbox.
///     while letters.receive(&executor, &mut batch).await {
///         received.append(&mut batch);
///     }
/// };
/// executor.run(read).expect("a real machine goes on");
/// writer.join().unwrap();
/// assert_eq!(received, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn mailbox<T: Send>(executor: &Executor) -> (Sender<T>, Mailbox<T>) {
    with_bell(executor.doorbell())
}

/// The same with the driver's doorbell.
pub(crate) fn with_bell<T>(bell: Arc<dyn Doorbell>) -> (Sender<T>, Mailbox<T>) {
    let queue = Mutex::new(Queue { items: Vec::new(), senders: 1, closed: false });
    let shared = Arc::new(Shared { queue, has_items: AtomicBool::new(false), bell });
    (Sender { shared: Arc::clone(&shared) }, Mailbox { shared })
}

impl<T> Sender<T> {
    /// Puts an item into the queue. Only the first item of a batch rings. The item is dropped if the mailbox is gone.
    pub fn send(&self, item: T) {
        let first = {
            let mut queue = self.shared.lock();
            if queue.closed {
                drop(queue);
                return drop(item);
            }
            queue.items.push(item);
            self.shared.has_items.store(true, Ordering::Release);
            queue.items.len() == 1
        };
        if first {
            self.shared.bell.ring();
        }
    }
}

impl<T> Sender<T> {
    /// Whether the mailbox is gone, so that nothing that is sent is received.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.lock().senders += 1;
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let last = {
            let mut queue = self.shared.lock();
            queue.senders -= 1;
            queue.senders == 0
        };
        if last {
            self.shared.bell.ring();
        }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let items = {
            let mut queue = self.shared.lock();
            queue.closed = true;
            std::mem::take(&mut queue.items)
        };
        // Their destructors may send.
        drop(items);
    }
}

impl<T> Mailbox<T> {
    /// Whether something was sent and not taken out.
    #[inline]
    pub fn has_items(&self) -> bool {
        self.shared.has_items.load(Ordering::Acquire)
    }

    /// Takes out what was sent.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut queue = self.shared.lock();
        self.shared.has_items.store(false, Ordering::Release);
        std::mem::take(&mut queue.items)
    }

    /// Waits for items and moves all of them into `batch`, which is empty when called. Returns false when no sender is left
    /// and the queue is empty.
    pub async fn receive(&self, executor: &Executor, batch: &mut Vec<T>) -> bool {
        debug_assert!(batch.is_empty(), "a batch is worked off before the next is fetched");
        loop {
            {
                let mut queue = self.shared.lock();
                if !queue.items.is_empty() {
                    std::mem::swap(&mut queue.items, batch);
                    self.shared.has_items.store(false, Ordering::Release);
                    return true;
                }
                if queue.senders == 0 {
                    return false;
                }
            }
            executor.bell().wait(executor).await;
        }
    }
}
