//! Panics of a future's own code, as values: what it runs for goes on for others.

use crate::Executor;
use crate::caller::Spawns;
use pin_project_lite::pin_project;
use std::any::Any;
use std::cell::OnceCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a panic was raised with.
pub type Panic = Box<dyn Any + Send>;

pin_project! {
    /// A future whose panic is its result.
    pub struct CatchPanic<F> {
        #[pin]
        future: Option<F>,
    }
}

/// Turns a panic of `future` into a result. What the future had is dropped by then.
///
/// ```
/// # use entresol_executor::{Executor, Order, catch_panic, panic_message};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// let empty: [u8; 0] = [];
/// let fate = executor.run(catch_panic(async { empty.first().copied().expect("there is one") }))?;
/// assert_eq!(panic_message(&*fate.unwrap_err()), "there is one");
/// # Ok::<(), driver::Halt>(())
/// ```
pub fn catch_panic<F: Future>(future: F) -> CatchPanic<F> {
    CatchPanic { future: Some(future) }
}

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let future = this.future.as_mut().as_pin_mut().expect("not polled after its end");
        // What the future shares with others is seen by them whether or not this catches: a borrow ends with its guard.
        catch_unwind(AssertUnwindSafe(|| future.poll(context))).map_or_else(
            |panic| {
                // A destructor that panics as well says nothing that is not known.
                let _ = catch_unwind(AssertUnwindSafe(|| this.future.set(None)));
                Poll::Ready(Err(panic))
            },
            |poll| poll.map(Ok),
        )
    }
}

impl<F> CatchPanic<F> {
    /// Drops the future where it waits, or what is left of it. Returns what a destructor of it has panicked with.
    pub fn end(self: Pin<&mut Self>) -> Option<Panic> {
        let mut future = self.project().future;
        catch_unwind(AssertUnwindSafe(|| future.set(None))).err()
    }
}

impl<F: Future> CatchPanic<F> {
    /// Polls the future as if this were not around it: its panic goes on.
    #[inline]
    pub(crate) fn poll_uncaught(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.as_pin_mut().expect("not polled after its end").poll(context)
    }
}

/// Whether panics of tasks are contained, and who is told of them.
#[derive(Default)]
pub(crate) struct Containment(OnceCell<Box<dyn Fn(Panic) -> Panic>>);

impl Executor {
    /// From now on a panic in a task that was spawned by a handle which is not a library's ([`Executor::of_library`]) ends that task
    /// alone: who joins it goes on panicking, and other tasks go on. So does one of a destructor when the task is dropped. Without this it
    /// goes on through [`Executor::run`].
    ///
    /// `tell` is told of it first and gives it back, or goes on panicking where nothing may go on behind it. The first `tell` stays.
    ///
    /// ```
    /// # use entresol_executor::{Executor, Order, catch_panic, panic_message};
    /// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
    /// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    /// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// executor.contain_panics(|panic| panic);
    /// let told = executor.run(async {
    ///     let task = executor.spawn(async { assert!(is_there_milk(), "out of milk") });
    ///     catch_panic(task.join()).await.map_err(|panic| panic_message(&*panic).to_owned())
    /// })?;
    /// # fn is_there_milk() -> bool { false }
    /// assert_eq!(told.unwrap_err(), "out of milk");
    /// # Ok::<(), driver::Halt>(())
    /// ```
    pub fn contain_panics(&self, tell: impl Fn(Panic) -> Panic + 'static) {
        let _first = self.0.containment.0.set(Box::new(tell));
    }

    /// Tells of a panic that is contained.
    #[cold]
    pub(crate) fn contained(&self, panic: Panic) -> Panic {
        match self.containment() {
            Some(tell) => tell(panic),
            None => panic,
        }
    }

    /// Who is told of a panic in a task that this handle has spawned, if it is contained.
    #[inline]
    pub(crate) fn containment(&self) -> Option<&dyn Fn(Panic) -> Panic> {
        if self.1 == Spawns::OfCaller { self.0.containment.0.get().map(|tell| &**tell) } else { None }
    }
}

/// The text of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it says nothing")
}
