//! Computations of an operator beside the engine's thread, and two things that it waits for at once.

use super::frames::Frames;
use crate::Result;
use driver::Fault;
use executor::Executor;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A computation under way. Dropped early, its result is dropped when it comes.
pub(super) struct Background<T> {
    outcome: Rc<RefCell<Option<Result<T, Fault>>>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts a computation of this price; its end is announced where `frames` are waited for.
    pub fn start(
        executor: &Executor,
        instructions: u64,
        frames: &Frames,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> Background<T> {
        let outcome = Rc::new(RefCell::new(None));
        let (here, frames) = (Rc::clone(&outcome), frames.clone());
        executor.compute_then(instructions, run, move |result| {
            here.replace(Some(result));
            frames.announce();
        });
        Background { outcome }
    }

    /// Its result, if it has ended.
    ///
    /// # Errors
    /// The driver's, if it was given up.
    pub fn take(&self) -> Result<Option<T>> {
        Ok(self.outcome.borrow_mut().take().transpose()?)
    }
}

/// Runs both to their ends, in turns, within one task: dropping the whole drops both.
///
/// # Errors
/// The first failure of either; the other is dropped then.
pub(super) async fn both<A, B>(
    one: impl Future<Output = Result<A>>,
    other: impl Future<Output = Result<B>>,
) -> Result<(A, B)> {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(result) = one.as_mut().poll(context)
        {
            first = Some(result?);
        }
        if second.is_none()
            && let Poll::Ready(result) = other.as_mut().poll(context)
        {
            second = Some(result?);
        }
        match (first.take(), second.take()) {
            (Some(first), Some(second)) => Poll::Ready(Ok((first, second))),
            (one, other) => {
                (first, second) = (one, other);
                Poll::Pending
            }
        }
    })
    .await
}
