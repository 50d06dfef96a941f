//! What programs have of the executor that their database runs on.

use crate::{Executor, JoinHandle};
use base::Instant;
use driver::Fault;
use std::future::Future;

/// What a database runs on, for tasks of the program's own: the thread of the database, or a described machine.
///
/// ```
/// # use entresol_executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let machine = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// # let executor = machine.for_users();
/// # machine.run(async {
/// // That of a database is `database.executor()`.
/// let clone = executor.clone();
/// let task = executor.spawn(async move {
///     clone.sleep_ns(3_000_000_000).await;
///     20
/// });
/// let later = executor.within(1_000_000_000, task.join()).await;
/// assert_eq!(later, None, "it takes three seconds");
/// # });
/// ```
#[derive(Clone)]
pub struct UserExecutor(Executor);

/// The executor itself, of what users have of it: for the crates of the house. The library exports no such name.
#[doc(hidden)]
pub trait WholeExecutor {
    /// The executor.
    fn whole(&self) -> &Executor;
}

impl WholeExecutor for Executor {
    fn whole(&self) -> &Executor {
        self
    }
}

impl WholeExecutor for UserExecutor {
    fn whole(&self) -> &Executor {
        &self.0
    }
}

impl Executor {
    /// What users have of it: the tasks that they spawn are theirs.
    pub fn for_users(&self) -> UserExecutor {
        UserExecutor(self.of_callers())
    }
}

impl UserExecutor {
    /// The present moment on the executor's clock, which begins when it does: that of this machine, or of the described one.
    pub fn now(&self) -> Instant {
        self.0.now()
    }

    /// The time by the calendar, in nanoseconds since the beginning of 1970 UTC.
    pub fn unix_ns(&self) -> u64 {
        self.0.unix_ns()
    }

    /// Starts a task, which runs beside the one that starts it, on the same thread. It goes on if the handle is dropped.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.0.spawn(future)
    }

    /// Lets every other task run first that can.
    pub async fn yield_now(&self) {
        self.0.yield_now().await;
    }

    /// Waits until the executor's clock reaches `deadline`.
    pub async fn sleep_until(&self, deadline: Instant) {
        self.0.sleep_until(deadline).await;
    }

    /// Waits for `ns` nanoseconds.
    pub async fn sleep_ns(&self, ns: u64) {
        self.0.sleep_ns(ns).await;
    }

    /// Waits `ns` nanoseconds for `future` and then drops it: `None` if it was not ready by then.
    pub async fn within<F: Future>(&self, ns: u64, future: F) -> Option<F::Output> {
        self.0.within(ns, future).await
    }

    /// Runs a long computation beside the thread of the database, on a core that is free, and waits for its result. On described hardware it costs
    /// `instructions`.
    ///
    /// # Errors
    /// A [`Fault`] if it was given up: the database was closed meanwhile.
    pub async fn compute<T: Send + 'static>(
        &self,
        instructions: u64,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.0.compute(instructions, run).await
    }
}
