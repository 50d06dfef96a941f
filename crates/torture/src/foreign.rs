//! Waits as other runtimes' futures wait: with a clone of the task's waker, which something else uses later.

use executor::Executor;
use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

#[derive(Default)]
struct Timer {
    is_over: bool,
    waker: Option<Waker>,
}

/// Waits for `ns` nanoseconds.
pub async fn wait(executor: &Executor, ns: u64) {
    let timer = Rc::new(RefCell::new(Timer::default()));
    let (sleeper, shared) = (executor.clone(), Rc::clone(&timer));
    executor.spawn(async move {
        sleeper.sleep_ns(ns).await;
        shared.borrow_mut().is_over = true;
        let waker = shared.borrow_mut().waker.take();
        waker.into_iter().for_each(Waker::wake);
    });
    poll_fn(|context| {
        let mut timer = timer.borrow_mut();
        if timer.is_over {
            return Poll::Ready(());
        }
        timer.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
}
