//! The message server of other threads: their calls go through the transaction server, its responses back to the threads.

use crate::calls::Call;
use crate::reply::{Answers, Promise};
use driver::Work;
use engine::Result;
use engine::server::{MessageServer, Response, TransactionServer};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

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
        self.unsubmitted.borrow_mut().retain(|(_, promise)| place.is_some_and(|place| place != promise.place()));
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
            let tag = self.expect(promise);
            let submitted = match self.server.procedure(call.name()) {
                Ok(procedure) => self.messages.submit(procedure, tag, call.parameters().to_vec()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = submitted {
                self.fulfil(tag, Err(error));
                self.answers.tell(&self.executor);
            }
        }
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
        let promise = self.expected.borrow_mut()[tag as usize].take().expect("a request is answered once");
        self.free.borrow_mut().push(tag);
        self.open.set(self.open.get() - 1);
        self.answers.give(promise, answer);
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
