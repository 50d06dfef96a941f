use crate::{Executor, WaitQueue};
use std::cell::Cell;

/// Lets one task at a time do something that includes waiting; others take their turn in order of arrival.
///
/// ```
/// # use entresol_executor::{Executor, Order, Turn};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// use std::rc::Rc;
///
/// let turn = Rc::new(Turn::new());
/// let began = executor.now();
/// let writers = [1, 2, 3].map(|_| {
///     let (turn, executor) = (Rc::clone(&turn), executor.clone());
///     executor.clone().spawn(async move {
///         let _mine = turn.take(&executor).await;
///         executor.sleep_ns(100).await;
///     })
/// });
/// executor.run(async {
///     for writer in writers {
///         writer.join().await;
///     }
/// })?;
/// assert_eq!(executor.now().since_ns(began), 300, "one after the other");
/// # Ok::<(), driver::Halt>(())
/// ```
#[derive(Default)]
pub struct Turn {
    taken: Cell<bool>,
    waiters: WaitQueue,
}

/// Holds a turn; the next task gets it when this is dropped, even if the holder is abandoned.
pub struct Holding<'a> {
    turn: &'a Turn,
    executor: &'a Executor,
}

impl Turn {
    /// Nobody has the turn.
    pub fn new() -> Turn {
        Turn::default()
    }

    /// Waits for the turn and takes it.
    pub async fn take<'a>(&'a self, executor: &'a Executor) -> Holding<'a> {
        while self.taken.replace(true) {
            self.waiters.wait(executor).await;
        }
        Holding { turn: self, executor }
    }
}

impl Holding<'_> {
    /// Keeps the turn beyond this value: until [`Turn::give_back`].
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Turn {
    /// Ends a turn that was kept by [`Holding::keep`].
    pub fn give_back(&self, executor: &Executor) {
        drop(Holding { turn: self, executor });
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.turn.taken.set(false);
        // An abandoned waiter would swallow a single wake, so all look again.
        self.turn.waiters.wake_all(self.executor);
    }
}
