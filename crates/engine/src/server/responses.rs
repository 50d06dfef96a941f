//! Responses that wait until their transactions are durable: "the TS places the response message in the list corresponding to
//! the log page that holds the commit record for the transaction. The LS will then forward the message to the MS after the
//! commit record has been flushed to disk" (section 2.1). One list in the order of the log serves for all pages.
//!
//! The executor does not wait for the log. It commits, puts the response into the list and goes on; one task releases
//! what a log write has made durable. So a client costs no task and a commit no wake.

use super::ServerState;
use super::requests::Request;
use crate::statistics::add;
use crate::{Error, Result};
use base::{Instant, Lsn};
use executor::{Executor, WaitQueue, WholeExecutor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// An ended transaction's answer.
struct Held {
    /// What must be durable before it may leave.
    lsn: Lsn,
    request: Request,
    answer: Result<Vec<u8>>,
    ended: Instant,
}

/// The responses that wait, by position in the log.
#[derive(Default)]
pub(super) struct Responses {
    held: RefCell<VecDeque<Held>>,
    bell: WaitQueue,
}

impl Responses {
    /// Wakes the task that releases responses.
    pub fn call(&self, executor: &Executor) {
        self.bell.wake_all(executor);
    }

    fn first(&self) -> Option<Lsn> {
        self.held.borrow().front().map(|held| held.lsn)
    }

    fn pop_up_to(&self, lsn: Lsn) -> Option<Held> {
        let mut all = self.held.borrow_mut();
        all.pop_front_if(|held| held.lsn <= lsn)
    }
}

impl ServerState {
    /// Answers when the log is durable up to `lsn`.
    pub(super) fn release_at(&self, lsn: Lsn, request: Request, answer: Result<Vec<u8>>) {
        let log = self.database.log();
        if !self.database.settings().log.durable {
            let failed = log.failure();
            return self.respond(request, failed.map_or(answer, Err));
        }
        if lsn <= log.durable() {
            return self.respond(request, answer);
        }
        let ended = self.database.executor().whole().round_now();
        let held = Held { lsn, request, answer, ended };
        let mut all = self.responses.held.borrow_mut();
        let was_empty = all.is_empty();
        // A transaction that only read may depend on an older commit than those before it.
        if all.back().is_none_or(|last| last.lsn <= lsn) {
            all.push_back(held);
        } else {
            let place = all.partition_point(|other| other.lsn <= lsn);
            all.insert(place, held);
        }
        drop(all);
        if was_empty {
            self.responses.call(self.database.executor().whole());
        }
    }

    fn release(&self, up_to: Lsn, outcome: &Result<(), Error>) {
        let now = self.database.executor().whole().round_now();
        while let Some(Held { request, answer, ended, .. }) = self.responses.pop_up_to(up_to) {
            add(&self.database.statistics().commit_wait_ns, now.since_ns(ended));
            self.respond(request, outcome.clone().and(answer));
        }
    }
}

/// Releases responses as the log becomes durable.
pub(super) async fn release(inner: Rc<ServerState>) {
    let (executor, log) = (inner.database.executor().whole(), inner.database.log());
    loop {
        let Some(first) = inner.responses.first() else {
            if inner.is_over() {
                return;
            }
            inner.responses.bell.wait(executor).await;
            continue;
        };
        let outcome = log.wait_durable(first).await;
        // After a failure nothing becomes durable any more.
        let up_to = if outcome.is_ok() { log.durable() } else { Lsn::MAX };
        inner.release(up_to, &outcome);
    }
}
