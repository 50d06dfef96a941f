use crate::{CatchPanic, Executor, Panic, WaitQueue};
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

pub(crate) struct Outcome<T> {
    end: RefCell<Option<Result<T, Panic>>>,
    waiters: WaitQueue,
}

impl<T> Outcome<T> {
    pub fn new() -> Rc<Outcome<T>> {
        Rc::new(Outcome { end: RefCell::new(None), waiters: WaitQueue::new() })
    }

    /// The task has ended so.
    #[inline]
    pub fn give(&self, end: Result<T, Panic>, executor: &Executor) {
        self.end.replace(Some(end));
        self.waiters.wake_all(executor);
    }

    /// What the task has come to, if it has ended; its panic goes on.
    pub fn take(&self) -> Option<T> {
        let end = self.end.borrow_mut().take();
        end.map(|end| end.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

pin_project! {
    /// What a task runs. An async block around the future would hold it twice, once as what it captures and once as what it
    /// awaits, and futures are long.
    pub(crate) struct Job<T, F> {
        #[pin]
        pub(crate) future: CatchPanic<F>,
        pub(crate) outcome: Rc<Outcome<T>>,
        pub(crate) executor: Executor,
    }

    impl<T, F> PinnedDrop for Job<T, F> {
        /// Destructors run outside of the poll that panics are caught in.
        fn drop(this: Pin<&mut Self>) {
            let job = this.project();
            if let Some(tell) = job.executor.containment() && let Some(panic) = job.future.end() {
                drop(tell(panic));
            }
        }
    }
}

impl<T, F: Future<Output = T>> Future for Job<T, F> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let job = self.project();
        let poll = match job.executor.containment() {
            None => job.future.poll_uncaught(context).map(Ok),
            Some(tell) => job.future.poll(context).map(|end| end.map_err(tell)),
        };
        poll.map(|end| job.outcome.give(end, job.executor))
    }
}

/// The result of a spawned task. Dropping it lets the task go on.
pub struct JoinHandle<T> {
    pub(crate) executor: Executor,
    pub(crate) outcome: Rc<Outcome<T>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the task's end.
    ///
    /// # Panics
    /// If the task has panicked and panics are contained ([`Executor::contain_panics`]): with what it has panicked with.
    pub async fn join(self) -> T {
        loop {
            if let Some(value) = self.outcome.take() {
                return value;
            }
            self.outcome.waiters.wait(&self.executor).await;
        }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.end.borrow().is_some()
    }
}
