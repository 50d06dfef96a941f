//! Futures of others, awaited by our tasks: woken from other threads, or by combinators that poll only the parts that were
//! woken; and ours within theirs.

#![expect(clippy::disallowed_methods, reason = "threads of another runtime wake tasks here, at moments of their own")]

use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::Halt;
use entresol_executor::{BoundedQueue, Executor, Order, WaitQueue};
use real_driver::{Options, RealDriver};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use virtual_driver::{Hardware, Media, VirtualDriver};

fn real() -> (Executor, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let driver = RealDriver::open(Options::new("disk", directory.path())).expect("opens");
    (Executor::new(Box::new(driver), Order::FirstInFirstOut), directory)
}

fn simulated(order: Order) -> Executor {
    let driver = VirtualDriver::new(Hardware::ideal(), virtual_driver::Options::default(), Media::new());
    Executor::new(Box::new(driver), order)
}

/// A channel for one value, as another runtime has it: the sender uses the waker that was cloned.
struct Oneshot<T>(Arc<Mutex<(Option<T>, Option<Waker>)>>);

impl<T> Clone for Oneshot<T> {
    fn clone(&self) -> Oneshot<T> {
        Oneshot(Arc::clone(&self.0))
    }
}

impl<T> Oneshot<T> {
    fn new() -> Oneshot<T> {
        Oneshot(Arc::new(Mutex::new((None, None))))
    }

    fn fill(&self, value: T) {
        let mut state = self.0.lock().expect("not poisoned");
        state.0 = Some(value);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn receive(&self) -> T {
        poll_fn(|context| {
            let mut state = self.0.lock().expect("not poisoned");
            match state.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    state.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// A part of a [`Crowd`], and whether it was woken.
struct Part {
    is_woken: AtomicBool,
    parent: Mutex<Option<Waker>>,
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let parent = self.parent.lock().expect("not poisoned").clone();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

type Pinned<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Many futures as one, of which each poll polls only those that were woken: as `join_all` does with more than thirty.
struct Crowd<'a, T> {
    parts: Vec<(Option<Pinned<'a, T>>, Arc<Part>)>,
    done: Vec<Option<T>>,
}

fn join_all<'a, T: Unpin>(futures: impl IntoIterator<Item = Pinned<'a, T>>) -> Crowd<'a, T> {
    let part = || Arc::new(Part { is_woken: AtomicBool::new(true), parent: Mutex::new(None) });
    let parts: Vec<_> = futures.into_iter().map(|future| (Some(future), part())).collect();
    let done = parts.iter().map(|_| None).collect();
    Crowd { parts, done }
}

impl<T: Unpin> Future for Crowd<'_, T> {
    type Output = Vec<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<T>> {
        let this = &mut *self;
        for ((future, part), done) in this.parts.iter_mut().zip(&mut this.done) {
            *part.parent.lock().expect("not poisoned") = Some(context.waker().clone());
            if !part.is_woken.swap(false, Ordering::SeqCst) {
                continue;
            }
            let Some(running) = future else { continue };
            let waker = Waker::from(Arc::clone(part));
            if let Poll::Ready(value) = running.as_mut().poll(&mut Context::from_waker(&waker)) {
                (*future, *done) = (None, Some(value));
            }
        }
        if this.done.iter().any(Option::is_none) {
            return Poll::Pending;
        }
        Poll::Ready(this.done.iter_mut().map(|done| done.take().expect("all are done")).collect())
    }
}

#[test]
fn another_thread_wakes_what_awaits_it() {
    let (executor, _directory) = real();
    for is_main in [true, false] {
        let (there, here) = (Oneshot::new(), Oneshot::new());
        let (ask, answer) = (there.clone(), here.clone());
        let thread = std::thread::spawn(move || {
            for number in 0..200_u64 {
                if number % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
                answer.fill(number);
                while there.0.lock().expect("not poisoned").0.take().is_none() {
                    std::thread::yield_now();
                }
            }
        });
        let talk = async move {
            for number in 0..200 {
                assert_eq!(here.receive().await, number);
                ask.fill(());
            }
        };
        let other = executor.clone();
        let talked = executor.run(async move { if is_main { talk.await } else { other.spawn(talk).join().await } });
        assert_eq!(talked, Ok(()), "nothing else is under way, and it waits");
        thread.join().expect("no panic");
    }
}

#[test]
fn a_waker_may_outlive_its_task() {
    let (executor, _directory) = real();
    let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
    for round in 0..100_u64 {
        let (clone, other) = (Arc::clone(&kept), executor.clone());
        let task = executor.spawn(async move {
            poll_fn(|context| {
                clone.lock().expect("not poisoned").push(context.waker().clone());
                Poll::Ready(())
            })
            .await;
            other.sleep_ns(1_000).await;
            round
        });
        assert_eq!(executor.run(task.join()), Ok(round));
        let wakers: Vec<Waker> = kept.lock().expect("not poisoned").iter().cloned().collect();
        let thread = std::thread::spawn(move || wakers.into_iter().for_each(Waker::wake));
        thread.join().expect("no panic");
    }
    kept.lock().expect("not poisoned").clear();
    let asleep = async { std::future::pending::<()>().await };
    assert_eq!(executor.run(asleep), Err(Halt::Idle), "no waker is left");
}

#[test]
fn a_task_that_waits_for_a_waker_that_is_gone_is_idle() {
    let (executor, _directory) = real();
    let lost = Oneshot::<u8>::new();
    let receiver = lost.clone();
    let waits = executor.spawn(async move { receiver.receive().await });
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(5));
        // It is woken without an answer, and its new waker is dropped with the channel.
        let waker = lost.0.lock().expect("not poisoned").1.take();
        if let Some(waker) = waker {
            waker.wake();
        }
        std::thread::sleep(Duration::from_millis(5));
        lost.fill(7);
    });
    assert_eq!(executor.run(waits.join()), Ok(7));
    thread.join().expect("no panic");
}

#[test]
fn ours_go_on_within_combinators_that_poll_what_was_woken() {
    let (executor, _directory) = real();
    for executor in [simulated(Order::FirstInFirstOut), simulated(Order::Seeded(7)), executor] {
        let (queue, bell, over) = (Rc::new(BoundedQueue::new(3)), Rc::new(WaitQueue::new()), Rc::new(Cell::new(0)));
        let (taker, taken_by) = (Rc::clone(&queue), executor.clone());
        let (ringer, done) = (Rc::clone(&bell), Rc::clone(&over));
        executor.spawn(async move {
            while done.get() < 60 {
                taken_by.sleep_ns(10_000).await;
                taker.pop(&taken_by);
                ringer.wake_one(&taken_by);
            }
        });
        let part = |number: u64| -> Pinned<'_, u64> {
            let (queue, bell, over, executor) = (&queue, &bell, &over, &executor);
            Box::pin(async move {
                executor.sleep_ns(number % 7 * 1_000).await;
                executor.yield_now().await;
                queue.push(executor, number).await;
                let child = executor.clone();
                let task = executor.spawn(async move {
                    child.sleep_ns(5_000).await;
                    number
                });
                assert_eq!(executor.compute(1, move || number * 2).await, Ok(number * 2));
                bell.wait(executor).await;
                executor.yield_until_idle().await;
                assert_eq!(task.join().await, number);
                over.set(over.get() + 1);
                number
            })
        };
        let began = executor.now();
        let all = executor.run(join_all((0..60).map(part)));
        assert_eq!(all, Ok((0..60).collect()));
        assert!(executor.now().since_ns(began) < 10 * SECOND_NS);
        executor.stop();
    }
}

#[test]
fn what_is_dropped_within_a_combinator_leaves_nothing() {
    let executor = simulated(Order::FirstInFirstOut);
    let bell = WaitQueue::new();
    executor
        .run(async {
            for _ in 0..10 {
                let mut crowd = join_all((0..40).map(|number| -> Pinned<'_, ()> {
                    let (bell, executor) = (&bell, &executor);
                    Box::pin(async move {
                        if number % 2 == 0 {
                            bell.wait(executor).await;
                        } else {
                            executor.sleep_ns(MILLISECOND_NS).await;
                        }
                    })
                }));
                poll_fn(|context| {
                    assert!(Pin::new(&mut crowd).poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                drop(crowd);
                executor.yield_now().await;
            }
            assert!(bell.is_empty());
        })
        .expect("the machine goes on");
    assert_eq!(executor.run(std::future::pending::<()>()), Err(Halt::Idle), "nothing is left that waits");
}
