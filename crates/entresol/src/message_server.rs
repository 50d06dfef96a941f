//! The message server of other threads: their calls go through the transaction server, its responses back to the threads.

use crate::reply::{Answers, Promise};
use engine::Result;
use engine::server::{MessageServer, Response, TransactionServer};
use executor::Executor;
use std::cell::{Cell, RefCell};
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
            executor: executor.clone(),
            answers: Rc::clone(answers),
        });
        executor.spawn_in(server.message_group(), 0, Rc::clone(&this).receive());
        this
    }

    /// How many calls have no answer yet.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Passes a call on; waits while the request queue is full.
    pub async fn submit(&self, name: &str, parameters: Vec<u8>, promise: Expected) {
        let tag = self.expect(promise);
        let submitted = match self.server.procedure(name) {
            Ok(procedure) => self.messages.submit(procedure, tag, parameters).await,
            Err(error) => Err(error),
        };
        if let Err(error) = submitted {
            self.fulfil(tag, Err(error));
            self.answers.tell(&self.executor);
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
