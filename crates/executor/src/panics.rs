//! Panics of a future's own code, as values: what it runs for goes on for others.

use pin_project_lite::pin_project;
use std::any::Any;
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

/// The text of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it says nothing")
}
