//! Transfers by threads that make one synchronous system call each.

use crate::bell::Bell;
use crate::mailbox::{JobResult, Mailbox};
use crate::poller::Poller;
use crate::request::Request;
use crate::workers::Workers;
use driver::ThreadUse;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Pool {
    workers: Workers<Request>,
    queued: Vec<Request>,
    /// How often something was handed over.
    batches: u64,
    poller: Poller,
    bell: Arc<Bell>,
}

impl Pool {
    pub(crate) fn new(threads: usize, bell: Arc<Bell>, mailbox: Arc<Mailbox>) -> Pool {
        let poller = Poller::new(Arc::clone(&mailbox));
        let work = move |request: Request| mailbox.post(request.slot, JobResult::Transferred(request.perform()));
        Pool { workers: Workers::new("entresol-io", threads, work), queued: Vec::new(), batches: 0, poller, bell }
    }

    /// Queues a request. Threads see it in [`Pool::wait`].
    pub(crate) fn start(&mut self, request: Request) {
        if request.call.is_network() {
            return self.poller.start(request);
        }
        self.queued.push(request);
    }

    /// Takes a request back if no thread has begun it. True if it will therefore not complete.
    pub(crate) fn cancel(&mut self, slot: u32) -> bool {
        if let Some(position) = self.queued.iter().position(|request| request.slot == slot) {
            self.queued.remove(position);
            return true;
        }
        self.workers.take_back(|request| request.slot == slot).is_some()
    }

    /// Asks that a request of a socket be given up; it completes all the same.
    pub(crate) fn cancel_exchange(&mut self, slot: u32) {
        self.poller.cancel(slot);
    }

    /// Hands over everything queued and waits until the bell is rung, at most for `wait`; `None` waits without limit. Completed
    /// work is in the mailbox.
    pub(crate) fn wait(&mut self, wait: Option<Duration>) {
        if !self.queued.is_empty() {
            self.batches += 1;
            self.workers.push(self.queued.drain(..));
        }
        if wait == Some(Duration::ZERO) {
            return;
        }
        if self.bell.announce() {
            park_while_waiting(&self.bell, wait);
        }
        self.bell.withdraw();
    }

    /// Waits for the requests that threads have begun, at most for `patience`, and forgets the others. False if some go on.
    pub(crate) fn stop_within(&mut self, patience: Duration) -> bool {
        self.poller.stop();
        self.workers.stop_within(patience)
    }

    /// How often something was handed over.
    pub(crate) fn used(&self) -> ThreadUse {
        ThreadUse { batches: self.batches, ..ThreadUse::default() }
    }

    /// The largest number of threads.
    pub(crate) fn limit(&self) -> usize {
        self.workers.limit()
    }
}

fn park_while_waiting(bell: &Bell, wait: Option<Duration>) {
    let Some(wait) = wait else {
        while bell.is_waiting() {
            std::thread::park();
        }
        return;
    };
    let start = crate::real_driver::wall_clock();
    while bell.is_waiting() {
        let rest = wait.saturating_sub(start.elapsed());
        if rest.is_zero() {
            return;
        }
        std::thread::park_timeout(rest);
    }
}
