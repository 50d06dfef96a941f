//! Answers of tasks that others of the same executor await.

use base::time::MILLISECOND_NS;
use entresol_executor::{Executor, JoinHandle, Order, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// An answer that is waited for under this name.
#[derive(Clone)]
struct Answer {
    executor: Executor,
    name: usize,
    place: Rc<(Cell<bool>, RefCell<Option<Waker>>)>,
}

impl Answer {
    fn new(executor: &Executor, name: usize) -> Answer {
        Answer { executor: executor.clone(), name, place: Rc::default() }
    }

    fn give(&self) {
        self.place.0.set(true);
        self.place.1.take().into_iter().for_each(Waker::wake);
    }
}

impl Future for Answer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.place.0.get() {
            return Poll::Ready(());
        }
        self.place.1.replace(Some(self.executor.await_answer(context, self.name)));
        Poll::Pending
    }
}

/// Runs `work` with two tasks, each of which works on the answer of its number and counts its polls.
fn with_workers(work: impl AsyncFn(&Executor, [TaskId; 2], &[Cell<u32>; 2])) {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let (polls, tasks) = (Rc::new([const { Cell::new(0) }; 2]), Rc::new(RefCell::new(BTreeMap::new())));
    for number in 0..2 {
        let (executor, polls, tasks) = (executor.clone(), Rc::clone(&polls), Rc::clone(&tasks));
        executor.clone().spawn(poll_fn(move |_| {
            tasks.borrow_mut().insert(number, executor.current());
            polls[number].set(polls[number].get() + 1);
            Poll::<()>::Pending
        }));
    }
    let named = Rc::clone(&tasks);
    executor.name_workers(move |name| named.borrow().get(&name).copied());
    let run = async {
        executor.yield_now().await;
        let both = [0, 1].map(|number| tasks.borrow()[&number]);
        work(&executor, both, &polls).await;
    };
    executor.run(run).expect("runs to the end");
}

fn asking(executor: &Executor, work: impl Future<Output = ()> + 'static) -> (Rc<Cell<Option<TaskId>>>, JoinHandle<()>) {
    let task = Rc::new(Cell::new(None));
    let (noted, own) = (Rc::clone(&task), executor.clone());
    let join = executor.spawn(async move {
        noted.set(Some(own.current()));
        work.await;
    });
    (task, join)
}

#[test]
fn a_task_that_awaits_answers_leads_to_those_who_work_on_them() {
    with_workers(async |executor, [first, second], polls| {
        let answers = [0, 1].map(|name| Answer::new(executor, name));
        let [one, other] = answers.clone();
        let (task, join) = asking(executor, async move {
            let (mut one, mut other, mut done) = (pin!(one), pin!(other), [false; 2]);
            poll_fn(|context| {
                done[0] = done[0] || one.as_mut().poll(context).is_ready();
                done[1] = done[1] || other.as_mut().poll(context).is_ready();
                if done == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        assert!(!executor.are_answers_awaited());
        executor.sleep_ns(MILLISECOND_NS).await;
        let task = task.get().expect("it has begun");
        assert!(executor.are_answers_awaited());
        assert_eq!(executor.workers_for(task), Some(vec![first, second]));
        assert_eq!([polls[0].get(), polls[1].get()], [2, 2], "they are told that they are waited for");
        answers[0].give();
        executor.sleep_ns(MILLISECOND_NS).await;
        assert_eq!(executor.workers_for(task), Some(vec![second]));
        executor.wake(task);
        assert_eq!(executor.workers_for(task), None, "it goes on");
        answers[1].give();
        join.join().await;
        assert_eq!((executor.workers_for(task), executor.are_answers_awaited()), (None, false));
    });
}

#[test]
fn a_task_that_waits_for_something_else_too_leads_nowhere() {
    with_workers(async |executor, _, _| {
        // Beside a time.
        let (answer, timer) = (Answer::new(executor, 0), executor.clone());
        let (awaited, own) = (answer.clone(), executor.clone());
        let (task, join) = asking(executor, async move {
            assert!(own.within(5 * MILLISECOND_NS, awaited.clone()).await.is_none());
            // It was polled before, and is not awaited now.
            let mut awaited = pin!(awaited);
            let first = poll_fn(|context| Poll::Ready(awaited.as_mut().poll(context))).await;
            assert!(first.is_pending());
            timer.sleep_ns(5 * MILLISECOND_NS).await;
            awaited.await;
        });
        for _ in 0..2 {
            executor.sleep_ns(3 * MILLISECOND_NS).await;
            let task = task.get().expect("it has begun");
            assert_eq!((executor.workers_for(task), executor.are_answers_awaited()), (None, false));
            executor.sleep_ns(2 * MILLISECOND_NS).await;
        }
        executor.sleep_ns(3 * MILLISECOND_NS).await;
        assert!(executor.workers_for(task.get().expect("it has begun")).is_some(), "now it is");
        answer.give();
        join.join().await;
        // What no one works on.
        let answer = Answer::new(executor, 7);
        let (task, join) = asking(executor, answer.clone());
        executor.sleep_ns(MILLISECOND_NS).await;
        assert_eq!(executor.workers_for(task.get().expect("it has begun")), None);
        answer.give();
        join.join().await;
        // In a context that is not its task's.
        let answer = Answer::new(executor, 0);
        let mut awaited = answer.clone();
        let (task, join) = asking(executor, async move {
            let mut kept: Option<Waker> = None;
            poll_fn(|context| {
                let own = kept.insert(context.waker().clone());
                Pin::new(&mut awaited)
                    .poll(&mut Context::from_waker(&Waker::from(std::sync::Arc::new(Other(own.clone())))))
            })
            .await;
        });
        executor.sleep_ns(MILLISECOND_NS).await;
        assert_eq!(executor.workers_for(task.get().expect("it has begun")), None);
        answer.give();
        join.join().await;
    });
}

#[test]
fn what_a_poll_awaited_that_panicked_is_forgotten() {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let worker = executor.current();
    executor.name_workers(move |_| Some(worker));
    let mut awaited = Answer::new(&executor, 0);
    let panics = poll_fn(|context| -> Poll<()> {
        assert!(Pin::new(&mut awaited).poll(context).is_pending());
        panic!("as planned");
    });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.run(panics))).is_err());
    let own = executor.clone();
    let run = executor.run(async {
        executor.spawn(async move { assert_eq!((own.workers_for(worker), own.are_answers_awaited()), (None, false)) });
        // For a time only.
        executor.sleep_ns(MILLISECOND_NS).await;
    });
    run.expect("runs to the end");
}

/// Another one's waker, which passes it on.
struct Other(Waker);

impl std::task::Wake for Other {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.wake_by_ref();
    }
}
