use crate::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;

/// Lets one task at a time do something that includes waiting; others take their turn in order of arrival, also before one that
/// gives it back and asks for it again at once.
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
    /// The tasks waiting for the turn, in order of arrival.
    line: RefCell<VecDeque<u64>>,
    tickets: Cell<u64>,
    waiters: WaitQueue,
}

/// A place in the line. An abandoned one leaves it.
struct Place<'a> {
    turn: &'a Turn,
    executor: &'a Executor,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turn.line.borrow_mut().retain(|other| *other != self.ticket);
        if !self.turn.taken.get() {
            // It may have been the next.
            self.turn.waiters.wake_all(self.executor);
        }
    }
}

/// Holds a turn; the next task gets it when this is dropped, even if the holder is abandoned.
pub struct Holding<'a> {
    turn: &'a Turn,
    executor: &'a Executor,
}

impl Turn {
    /// A turn without a holder.
    pub fn new() -> Turn {
        Turn::default()
    }

    /// Waits for the turn and takes it.
    pub async fn take<'a>(&'a self, executor: &'a Executor) -> Holding<'a> {
        match self.take_unless(executor, || Ok::<(), Infallible>(())).await {
            Ok(holding) => holding,
            Err(never) => match never {},
        }
    }

    /// The same, unless `check` fails, which is called before each time that it waits, and whenever the task is polled.
    ///
    /// # Errors
    /// Those of `check`.
    pub async fn take_unless<'a, E>(
        &'a self,
        executor: &'a Executor,
        check: impl FnMut() -> Result<(), E>,
    ) -> Result<Holding<'a>, E> {
        if self.taken.get() || !self.line.borrow().is_empty() {
            self.wait_in_line(executor, check).await?;
        }
        self.taken.set(true);
        Ok(Holding { turn: self, executor })
    }

    async fn wait_in_line<E>(&self, executor: &Executor, mut check: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        let ticket = self.tickets.replace(self.tickets.get() + 1);
        self.line.borrow_mut().push_back(ticket);
        let place = Place { turn: self, executor, ticket };
        let is_next = || !self.taken.get() && self.line.borrow().front() == Some(&ticket);
        while !is_next() {
            check()?;
            self.waiters.wait(executor).await;
        }
        self.taken.set(true);
        drop(place);
        Ok(())
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
        // All look whether they are next: the first in line may be abandoned before it does.
        self.turn.waiters.wake_all(self.executor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Order;
    use std::rc::Rc;
    use virtual_driver::{Hardware, Media, Options, VirtualDriver};

    fn run(work: impl AsyncFnOnce(&Executor)) {
        let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        executor.run(work(&executor)).expect("no task waits for ever");
        executor.stop();
    }

    /// A task that takes the turn, notes that and gives it back.
    fn taker(executor: &Executor, turn: &Rc<Turn>, took: &Rc<RefCell<Vec<u32>>>, number: u32) -> crate::JoinHandle<()> {
        let (own, turn, took) = (executor.clone(), Rc::clone(turn), Rc::clone(took));
        executor.spawn(async move {
            let _mine = turn.take(&own).await;
            took.borrow_mut().push(number);
            own.sleep_ns(10).await;
        })
    }

    #[test]
    fn one_that_asks_again_at_once_comes_behind_all_that_wait() {
        run(async |executor| {
            let (turn, took) = (Rc::new(Turn::new()), Rc::<RefCell<Vec<u32>>>::default());
            let greedy = turn.take(executor).await;
            let takers: Vec<_> = (0..3).map(|number| taker(executor, &turn, &took, number)).collect();
            executor.sleep_ns(10).await;
            drop(greedy);
            let _again = turn.take(executor).await;
            assert_eq!(*took.borrow(), [0, 1, 2]);
            assert!(takers.iter().all(crate::JoinHandle::is_finished));
        });
    }

    #[test]
    fn waits_that_are_abandoned_in_line_keep_no_other_waiting() {
        run(async |executor| {
            let (turn, took) = (Rc::new(Turn::new()), Rc::<RefCell<Vec<u32>>>::default());
            for woken in [false, true] {
                let holding = turn.take(executor).await;
                let mut abandoned = Box::pin(turn.take(executor));
                std::future::poll_fn(|context| {
                    assert!(abandoned.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                let yielded_tasks = taker(executor, &turn, &took, 0);
                executor.sleep_ns(10).await;
                if woken {
                    drop(holding);
                    drop(abandoned);
                } else {
                    drop(abandoned);
                    drop(holding);
                }
                yielded_tasks.join().await;
            }
        });
    }
}
