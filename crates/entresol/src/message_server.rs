//! The message server of other threads: their calls go through the transaction server, its responses back to the threads.

use crate::calls::Call;
use crate::reply::{Answers, Promise};
use driver::Work;
use engine::Result;
use engine::server::{MessageServer, Response, TransactionServer};
use executor::{Executor, TaskId, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A thread's expectation of an answer.
type Expected = Promise<Result<Vec<u8>>>;

/// What a task that submits and one that receives share.
pub(crate) struct ThreadMessages {
    server: TransactionServer,
    messages: MessageServer,
    /// The waiting tasks, by tag.
    expected: RefCell<Vec<Option<Expected>>>,
    /// Tags that are not in use.
    free: RefCell<Vec<u64>>,
    /// Calls under way.
    open: Cell<usize>,
    /// Calls that are not submitted yet, and what the task that submits them waits for.
    unsubmitted: RefCell<VecDeque<(Call, Expected)>>,
    bell: WaitQueue,
    /// The slot of the call that is being submitted, and the task that waits for the queue to have room for it.
    submitting: Cell<Option<(usize, TaskId)>>,
    executor: Executor,
    answers: Rc<Answers>,
}

impl ThreadMessages {
    /// A message server whose responses are handed out by a task of its own, through `answers`.
    pub fn start(executor: &Executor, server: &TransactionServer, answers: &Rc<Answers>) -> Rc<ThreadMessages> {
        let this = Rc::new(ThreadMessages {
            server: server.clone(),
            messages: server.message_server(),
            expected: RefCell::default(),
            free: RefCell::default(),
            open: Cell::new(0),
            unsubmitted: RefCell::default(),
            bell: WaitQueue::new(),
            submitting: Cell::default(),
            executor: executor.clone(),
            answers: Rc::clone(answers),
        });
        executor.spawn_in(server.message_group(), 0, Rc::clone(&this).receive());
        executor.spawn_in(server.message_group(), 0, Rc::clone(&this).feed());
        this
    }

    /// How many calls have no answer yet.
    pub fn open(&self) -> usize {
        self.open.get() + self.unsubmitted.borrow().len()
    }

    /// Passes a call on, once the request queue has room. Nothing else waits for that.
    pub fn submit(&self, call: Call, promise: Expected) {
        self.unsubmitted.borrow_mut().push_back((call, promise));
        self.bell.wake_one(&self.executor);
    }

    /// Ends the call whose answer goes to the slot of this name, or all, unless the transaction server has them.
    pub fn cancel(&self, place: Option<usize>) {
        let is_meant = |other| place.is_none_or(|place| place == other);
        self.unsubmitted.borrow_mut().retain(|(_, promise)| !is_meant(promise.place()));
        if let Some((_, task)) = self.submitting.get().filter(|(submitted, _)| is_meant(*submitted)) {
            self.submitting.set(None);
            self.executor.wake(task);
        }
        self.answers.tell(&self.executor);
    }

    /// Submits calls in the order in which they came.
    async fn feed(self: Rc<Self>) {
        loop {
            // Not within the condition, which would keep the queue borrowed.
            let next = self.unsubmitted.borrow_mut().pop_front();
            let Some((call, promise)) = next else {
                self.bell.wait(&self.executor).await;
                continue;
            };
            self.executor.charge(Work::Request);
            let place = promise.place();
            let tag = self.expect(promise);
            let submitted = match self.server.procedure(call.name()) {
                Ok(procedure) => {
                    let submission = self.messages.submit(procedure, tag, call.parameters().to_vec());
                    self.unless_cancelled(place, submission).await
                }
                Err(error) => Some(Err(error)),
            };
            match submitted {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    self.fulfil(tag, Err(error));
                    self.answers.tell(&self.executor);
                }
                None => {
                    drop(self.withdraw(tag));
                    self.answers.tell(&self.executor);
                }
            }
        }
    }

    /// Does this, unless the call whose answer goes to the slot of this name is cancelled meanwhile.
    async fn unless_cancelled<T>(&self, place: usize, submission: impl Future<Output = T>) -> Option<T> {
        let mut submission = pin!(submission);
        self.submitting.set(Some((place, self.executor.current())));
        let submitted = poll_fn(|context| match submission.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.submitting.get().is_none() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        let submitted = submitted.await;
        self.submitting.set(None);
        submitted
    }

    fn expect(&self, promise: Expected) -> u64 {
        self.open.set(self.open.get() + 1);
        let mut expected = self.expected.borrow_mut();
        match self.free.borrow_mut().pop() {
            Some(tag) => {
                expected[tag as usize] = Some(promise);
                tag
            }
            None => {
                expected.push(Some(promise));
                expected.len() as u64 - 1
            }
        }
    }

    fn fulfil(&self, tag: u64, answer: Result<Vec<u8>>) {
        let promise = self.withdraw(tag);
        self.answers.give(promise, answer);
    }

    fn withdraw(&self, tag: u64) -> Expected {
        let promise = self.expected.borrow_mut()[tag as usize].take().expect("a request is answered once");
        self.free.borrow_mut().push(tag);
        self.open.set(self.open.get() - 1);
        promise
    }

    async fn receive(self: Rc<Self>) {
        let mut batch = Vec::new();
        loop {
            self.messages.receive(&mut batch).await;
            for Response { tag, answer, .. } in batch.drain(..) {
                self.fulfil(tag, answer);
            }
            self.answers.tell(&self.executor);
        }
    }
}
