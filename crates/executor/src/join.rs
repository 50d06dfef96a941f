use crate::{Executor, WaitQueue};
use pin_project_lite::pin_project;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

pub(crate) struct Outcome<T> {
    pub value: RefCell<Option<T>>,
    pub waiters: WaitQueue,
}

pin_project! {
    /// What a task runs. An async block around the future would hold it twice, once as what it captures and once as what it
    /// awaits, and futures are long.
    pub(crate) struct Job<T, F> {
        #[pin]
        pub(crate) future: F,
        pub(crate) outcome: Rc<Outcome<T>>,
        pub(crate) executor: Executor,
    }
}

impl<T, F: Future<Output = T>> Future for Job<T, F> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let job = self.project();
        job.future.poll(context).map(|value| {
            job.outcome.value.replace(Some(value));
            job.outcome.waiters.wake_all(job.executor);
        })
    }
}

/// The result of a spawned task. Dropping it lets the task go on.
pub struct JoinHandle<T> {
    pub(crate) executor: Executor,
    pub(crate) outcome: Rc<Outcome<T>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the task's end.
    pub async fn join(self) -> T {
        loop {
            if let Some(value) = self.outcome.value.borrow_mut().take() {
                return value;
            }
            self.outcome.waiters.wait(&self.executor).await;
        }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.outcome.value.borrow().is_some()
    }
}
