//! Requests, and those of transactions that a conflict aborted: "the TE ensures that involuntarily aborted transactions will
//! be automatically restarted (though not necessarily by the same TE) by placing the unfulfilled transaction request in a
//! restart queue" (section 2.4).
//!
//! A registered procedure may name its records beforehand. The server prefetches their memory while it runs the
//! requests before, because short transactions on large sets spend most of their time waiting for that memory.

use super::message::Mailbox;
use super::{ProcedureId, ServerState};
use base::Instant;
use executor::{Executor, WaitQueue, WholeExecutor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A request for a transaction.
pub(super) struct Request {
    pub procedure: ProcedureId,
    pub parameters: Vec<u8>,
    /// What its message server calls it.
    pub tag: u64,
    /// Where the response goes.
    pub from: Rc<Mailbox>,
    /// When it was submitted.
    pub submitted: Instant,
    /// The age of its first try, once it has had one.
    pub age: Option<u64>,
    /// How often it was put into the restart queue.
    pub restarts: u32,
}

/// The restart queue. It is not bounded and outside the request queue: what was accepted once must not be refused later. All
/// wait for the same time, so they come back in the order of their aborts.
#[derive(Default)]
pub(super) struct Restarts {
    waiting: RefCell<VecDeque<(Instant, Request)>>,
    /// Those whose interval is over: executors take them before they accept new requests, or a full request queue would
    /// keep them from their turn for ever.
    due: RefCell<VecDeque<Request>>,
    bell: WaitQueue,
}

impl Restarts {
    /// A request whose transaction was aborted is to be run again at `at`.
    pub fn add(&self, executor: &Executor, at: Instant, request: Request) {
        let mut waiting = self.waiting.borrow_mut();
        debug_assert!(waiting.back().is_none_or(|(last, _)| *last <= at), "all wait for the same time");
        waiting.push_back((at, request));
        if waiting.len() == 1 {
            self.call(executor);
        }
    }

    /// Wakes the task that watches the queue.
    pub fn call(&self, executor: &Executor) {
        self.bell.wake_all(executor);
    }

    /// The next whose interval is over.
    #[inline]
    pub fn pop(&self) -> Option<Request> {
        self.due.borrow_mut().pop_front()
    }

    /// Whether one's interval is over.
    #[inline]
    pub fn is_due(&self) -> bool {
        !self.due.borrow().is_empty()
    }

    /// How many requests wait to be run again.
    pub fn len(&self) -> usize {
        self.waiting.borrow().len() + self.due.borrow().len()
    }

    fn next(&self) -> Option<Instant> {
        self.waiting.borrow().front().map(|(at, _)| *at)
    }

    fn move_due(&self, now: Instant) {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|(at, _)| *at <= now) {
            let (_, request) = waiting.pop_front().expect("just seen");
            self.due.borrow_mut().push_back(request);
        }
    }
}

/// Watches the restart queue.
pub(super) async fn restart(inner: Rc<ServerState>) {
    let executor = inner.database.executor().whole();
    while !inner.is_over() {
        match inner.restarts.next() {
            None => inner.restarts.bell.wait(executor).await,
            Some(at) => {
                // Or until it ends: an interval may take an hour.
                executor.within(at.since_ns(executor.now()), inner.restarts.bell.wait(executor)).await;
                inner.restarts.move_due(executor.now());
                inner.idle.call(executor);
            }
        }
    }
}
