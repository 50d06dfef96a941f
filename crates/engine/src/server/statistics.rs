//! What the transaction server counts.

use super::{MESSAGE_GROUP, TRANSACTION_GROUP, TransactionServer};
use crate::{checkpoint, log};
use base::Instant;
use base::statistics::TimeWeighted;
use executor::WholeExecutor;
use std::cell::{Cell, RefCell};

/// CPU time by server, in nanoseconds (section 4.1, table 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Of the transaction server's executors.
    pub transaction: u64,
    /// Of the checkpoint server.
    pub checkpoint: u64,
    /// Of the log server.
    pub log: u64,
    /// Of the message servers.
    pub message: u64,
}

/// Requests whose transactions committed after the same number of restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// How many they are.
    pub requests: u64,
    /// The sum of their times from submission to the answer, in nanoseconds.
    pub response_ns: u64,
}

/// Requests that were restarted more often are counted with those that were restarted so often.
pub const RESTARTS_MAX: usize = 5;

/// What a transaction server did since the start or [`TransactionServer::restart_statistics`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerReport {
    /// True transactions: requests whose transactions committed ("the true transaction count does not count restarted
    /// transactions as new transactions", section 4.1).
    pub transactions: u64,
    /// Requests that were answered with an error.
    pub failures: u64,
    /// Transactions that a conflict aborted and that were put into the restart queue.
    pub restarts: u64,
    /// Transactions, or tries of them, that a standby executor ran.
    pub takeovers: u64,
    /// The mean number of requests in the request queue, over time.
    pub queue_mean: f64,
    /// The greatest number.
    pub queue_max: u64,
    /// Mean time of requests from submission to the first try, in nanoseconds; waiting for a place in the queue included.
    pub wait_ns_mean: f64,
    /// Requests in the restart queue at present.
    pub restarting: u64,
    /// The requests that were answered, by the number of their restarts.
    pub by_restarts: [Answered; RESTARTS_MAX + 1],
    /// CPU time by server.
    pub cpu_ns: CpuTimes,
}

/// The counters.
pub(super) struct ServerStatistics {
    transactions: Cell<u64>,
    failures: Cell<u64>,
    restarts: Cell<u64>,
    takeovers: Cell<u64>,
    taken: Cell<u64>,
    wait_ns: Cell<u64>,
    by_restarts: [Cell<Answered>; RESTARTS_MAX + 1],
    queue: RefCell<TimeWeighted>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl ServerStatistics {
    pub fn new(now: Instant) -> ServerStatistics {
        ServerStatistics {
            transactions: Cell::new(0),
            failures: Cell::new(0),
            restarts: Cell::new(0),
            takeovers: Cell::new(0),
            taken: Cell::new(0),
            wait_ns: Cell::new(0),
            by_restarts: Default::default(),
            queue: RefCell::new(TimeWeighted::new(now, 0.0)),
        }
    }

    /// A request has entered the queue, which is so long now.
    #[inline]
    pub fn queued(&self, now: Instant, length: usize) {
        self.queue.borrow_mut().set(now, length as f64);
    }

    /// An executor has taken a request from the queue, which is so long now.
    #[inline]
    pub fn taken(&self, now: Instant, submitted: Instant, length: usize) {
        self.queued(now, length);
        count(&self.taken);
        self.wait_ns.set(self.wait_ns.get() + now.since_ns(submitted));
    }

    pub fn took_over(&self) {
        count(&self.takeovers);
    }

    pub fn restarted(&self) {
        count(&self.restarts);
    }

    pub fn answered(&self, committed: bool, restarts: u32, response_ns: u64) {
        if !committed {
            return count(&self.failures);
        }
        count(&self.transactions);
        let those = &self.by_restarts[(restarts as usize).min(RESTARTS_MAX)];
        let Answered { requests, response_ns: sum } = those.get();
        those.set(Answered { requests: requests + 1, response_ns: sum + response_ns });
    }

    fn restart(&self, now: Instant) {
        let counters =
            [&self.transactions, &self.failures, &self.restarts, &self.takeovers, &self.taken, &self.wait_ns];
        counters.iter().for_each(|counter| counter.set(0));
        self.by_restarts.iter().for_each(|those| those.set(Answered::default()));
        self.queue.borrow_mut().restart(now);
    }
}

impl TransactionServer {
    /// What the server did.
    pub fn report(&self) -> ServerReport {
        let (counted, executor) = (&self.0.statistics, self.database().executor().whole());
        let queue = counted.queue.borrow();
        let accounts = executor.accounts();
        let cpu_ns = |name| accounts.iter().find(|(known, _)| *known == name).map_or(0, |(_, ns)| *ns);
        ServerReport {
            transactions: counted.transactions.get(),
            failures: counted.failures.get(),
            restarts: counted.restarts.get(),
            takeovers: counted.takeovers.get(),
            queue_mean: queue.mean(executor.now()),
            queue_max: queue.max() as u64,
            wait_ns_mean: counted.wait_ns.get() as f64 / counted.taken.get().max(1) as f64,
            restarting: self.0.restarts.len() as u64,
            by_restarts: counted.by_restarts.each_ref().map(Cell::get),
            cpu_ns: CpuTimes {
                transaction: cpu_ns(TRANSACTION_GROUP),
                checkpoint: cpu_ns(checkpoint::GROUP),
                log: cpu_ns(log::GROUP),
                message: cpu_ns(MESSAGE_GROUP),
            },
        }
    }

    /// Forgets what the server did so far: the end of a warm-up. CPU times begin anew with
    /// [`executor::Executor::restart_statistics`].
    pub fn restart_statistics(&self) {
        self.0.statistics.restart(self.database().executor().now());
    }
}
