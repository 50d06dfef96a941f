use std::future::Future;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls `future` at most `polls` times (at least once) and then drops it: `None` if it was not ready by then.
pub async fn at_most<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls.max(1);
    poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
