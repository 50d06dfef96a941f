//! For how long transactions of a node wait for locks, those of the node and those that the server gives.
//!
//! A task that waits looks again whenever the node's bell rings. So all that a limit needs is that it rings when the limit is over. Most waits are far
//! shorter than their limit: one task rings for all of them.

use super::{ClientNode, PageClient, PageTransaction};
use base::Instant;
use engine::{Error, Result};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The limits of a node's waits that are not over.
#[derive(Default)]
pub(super) struct WaitLimits {
    /// Each with a number of its own.
    open: RefCell<BTreeSet<(Instant, u64)>>,
    last: Cell<u64>,
    /// When the latest task that watches them looks again.
    looks_at: Cell<Option<Instant>>,
}

/// A call's wait for a lock.
pub(super) struct LockWait {
    client: Rc<ClientNode>,
    began: Instant,
    limit: Option<(Instant, u64)>,
}

impl LockWait {
    fn begin(client: &Rc<ClientNode>, limit_ns: Option<u64>) -> LockWait {
        let (limits, executor) = (&client.wait_limits, &client.executor);
        let began = executor.now();
        let until = limit_ns.and_then(|ns| began.ns().checked_add(ns)).map(Instant::from_ns);
        let limit = until.map(|until| {
            limits.last.set(limits.last.get() + 1);
            limits.open.borrow_mut().insert((until, limits.last.get()));
            if limits.looks_at.get().is_none_or(|at| until < at) {
                limits.looks_at.set(Some(until));
                executor.spawn(watch(Rc::downgrade(client), executor.clone(), until));
            }
            (until, limits.last.get())
        });
        LockWait { client: Rc::clone(client), began, limit }
    }

    fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| !self.client.wait_limits.open.borrow().contains(&limit))
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        if let Some(limit) = &self.limit {
            self.client.wait_limits.open.borrow_mut().remove(limit);
        }
    }
}

impl WaitLimits {
    /// Takes out those that are over, and says when the next one is.
    fn end_overdue(&self, now: Instant, bell: &WaitQueue, executor: &Executor) -> Option<Instant> {
        let mut open = self.open.borrow_mut();
        let count = open.len();
        while open.first().is_some_and(|(until, _)| *until <= now) {
            open.pop_first();
        }
        if open.len() < count {
            bell.wake_all(executor);
        }
        open.first().map(|(until, _)| *until)
    }
}

/// Ends the waits whose limit is over, as long as there are any and no other task looks earlier.
async fn watch(client: Weak<ClientNode>, executor: Executor, mut until: Instant) {
    loop {
        executor.sleep_until(until).await;
        let Some(client) = client.upgrade() else { return };
        let limits = &client.wait_limits;
        let next = limits.end_overdue(executor.now(), &client.bell, &executor);
        if limits.looks_at.get() != Some(until) {
            // One that began later looks earlier, and goes on.
            return;
        }
        limits.looks_at.set(next);
        let Some(next) = next else { return };
        until = next;
    }
}

impl PageClient {
    /// How many calls wait for a lock that have a limit.
    pub fn limited_waits(&self) -> usize {
        self.0.wait_limits.open.borrow().len()
    }
}

impl PageTransaction {
    /// Has each later call of this transaction wait for a lock for at most this long; `None`: as the node's settings say
    /// ([`ClientSettings::lock_wait_ns_max`](super::ClientSettings)). A call that has waited for longer, for other transactions of its node or for
    /// the server's answer, fails with [`Error::LockTimeout`] and has done nothing; the transaction itself may go on.
    pub fn wait_at_most(&mut self, limit: Option<Duration>) {
        self.lock_wait_ns_max = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Waits until something has happened, in a wait for a lock that the first call of this begins.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] for `resource` if its limit is over.
    pub(super) async fn rest(&self, wait: &mut Option<LockWait>, resource: impl FnOnce() -> String) -> Result<()> {
        let (waits, executor) = (&self.client.waits, &self.client.executor);
        let began = executor.now();
        let rested = self.rest_uncounted(wait, resource).await;
        waits.add(|waits| waits.lock_ns += executor.now().since_ns(began));
        rested
    }

    /// The same in a wait that is for something else as well.
    pub(super) async fn rest_uncounted(
        &self,
        wait: &mut Option<LockWait>,
        resource: impl FnOnce() -> String,
    ) -> Result<()> {
        let client = &self.client;
        let limit_ns = self.lock_wait_ns_max.or(client.settings.lock_wait_ns_max);
        let wait = wait.get_or_insert_with(|| LockWait::begin(client, limit_ns));
        if wait.is_over() {
            let waited_ns = client.executor.now().since_ns(wait.began);
            // Which transactions of other nodes are in the way is the server's to know.
            return Err(Error::LockTimeout { resource: resource(), holders: Vec::new(), waited_ns });
        }
        client.bell.wait(&client.executor).await;
        Ok(())
    }
}
