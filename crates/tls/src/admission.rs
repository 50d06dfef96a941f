//! What peers may cost before it is known who they are.
//!
//! A handshake costs its server some hundred microseconds, and up to some milliseconds if the peer shows a long chain of certificates. So
//! it is not only counted how many are under way. Each begins only when the time that all before it took is no more than a share of
//! the time that has passed; until then connections wait in the system's queue of its listener, which is bounded, too. Nodes that
//! are known are served meanwhile as if nothing were.

use base::Instant;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use driver::Fault;
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// How many handshakes of peers may be under way. One more, and the first of them is given up.
pub const UNDER_WAY_MAX: usize = 64;
/// How long a handshake may take, in nanoseconds.
const HANDSHAKE_NS: u64 = 5 * SECOND_NS;
/// One part in this many of a node's time may go into handshakes with peers that connect to it.
pub const SHARE: u64 = 10;
/// What a handshake is taken to cost at least, in nanoseconds: its connection and its tasks cost something, too.
pub(crate) const BEGUN_NS: u64 = 250 * MICROSECOND_NS;
/// How much time may be saved up for handshakes, in nanoseconds: as much as a crowd of nodes takes that come all at once.
pub(crate) const SAVED_NS: u64 = 50 * MILLISECOND_NS;
/// The longest reason of a refusal that is kept, in characters.
const REASON_MAX: usize = 300;

/// Peers that were turned away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How many.
    pub count: u64,
    /// Why the latest was.
    pub latest: String,
}

/// Handshakes of peers that have connected to this node.
pub(crate) struct Admission {
    executor: Executor,
    /// The time that may still be spent, in nanoseconds; below zero after handshakes that took longer than they were taken to.
    saved_ns: Cell<i64>,
    counted: Cell<Instant>,
    begun: Cell<u64>,
    under_way: RefCell<VecDeque<Rc<Handshake>>>,
    refusals: RefCell<Refusals>,
}

#[derive(Default)]
struct Handshake {
    is_given_up: Cell<bool>,
    bell: WaitQueue,
}

impl Admission {
    pub fn new(executor: &Executor) -> Admission {
        Admission {
            executor: executor.clone(),
            saved_ns: Cell::new(SAVED_NS as i64),
            counted: Cell::new(executor.now()),
            begun: Cell::new(0),
            under_way: RefCell::default(),
            refusals: RefCell::default(),
        }
    }

    /// Waits until another handshake may begin, and counts it.
    pub async fn may_begin(&self) {
        loop {
            let now = self.executor.now();
            let earned = now.since_ns(self.counted.replace(now)) / SHARE;
            self.saved_ns.set(self.saved_ns.get().saturating_add_unsigned(earned).min(SAVED_NS as i64));
            let lacking = BEGUN_NS as i64 - self.saved_ns.get();
            if lacking <= 0 {
                break;
            }
            self.executor.sleep_ns((lacking as u64).saturating_mul(SHARE)).await;
        }
        self.saved_ns.set(self.saved_ns.get() - BEGUN_NS as i64);
        self.begun.set(self.begun.get() + 1);
    }

    /// A step of a handshake has taken this long. What it was taken to cost is counted already. Of one in which this machine has slept
    /// only as much counts as may be saved up: others would be kept out for ten times as long.
    pub fn note_spent(&self, ns: u64) {
        self.saved_ns.set(self.saved_ns.get().saturating_sub_unsigned(ns.min(SAVED_NS)));
    }

    /// How many handshakes have begun.
    pub fn begun(&self) -> u64 {
        self.begun.get()
    }

    /// How many are under way.
    pub fn under_way(&self) -> usize {
        self.under_way.borrow().len()
    }

    pub fn refusals(&self) -> Refusals {
        self.refusals.borrow().clone()
    }

    /// Has a handshake come to its end. `None` if it fails, takes too long, or has to make room for others.
    pub async fn complete<T>(&self, shaking: impl Future<Output = Result<T, Fault>>) -> Option<T> {
        let own = Rc::new(Handshake::default());
        self.make_room(&own);
        let limited = self.executor.within(HANDSHAKE_NS, shaking);
        let (mut limited, mut given_up) = (pin!(limited), pin!(own.given_up(&self.executor)));
        let ended = poll_fn(|context| match limited.as_mut().poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => given_up.as_mut().poll(context).map(|()| None),
        });
        let ended = ended.await;
        self.under_way.borrow_mut().retain(|other| !Rc::ptr_eq(other, &own));
        match ended {
            Some(Some(Ok(channel))) => return Some(channel),
            Some(Some(Err(fault))) => self.refuse(&fault.message),
            Some(None) => self.refuse("a peer took too long to say who it is"),
            None => self.refuse("too many peers had not said who they are, and the first of them was given up"),
        }
        None
    }

    fn make_room(&self, own: &Rc<Handshake>) {
        let mut under_way = self.under_way.borrow_mut();
        under_way.push_back(Rc::clone(own));
        if under_way.len() > UNDER_WAY_MAX {
            let first = under_way.pop_front().expect("there are some");
            first.is_given_up.set(true);
            first.bell.wake_all(&self.executor);
        }
    }

    fn refuse(&self, reason: &str) {
        let mut refusals = self.refusals.borrow_mut();
        refusals.count += 1;
        refusals.latest = reason.chars().take(REASON_MAX).collect();
    }
}

impl Handshake {
    async fn given_up(&self, executor: &Executor) {
        while !self.is_given_up.get() {
            self.bell.wait(executor).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor::Order;
    use real_driver::{Options, RealDriver};

    #[test]
    fn a_machine_that_has_slept_in_a_handshake_admits_others_soon() {
        let driver = RealDriver::open(Options::default()).expect("a driver without files");
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let admission = Admission::new(&executor);
        admission.note_spent(3_600 * SECOND_NS);
        let admitted = executor.run(executor.within(5 * SECOND_NS, admission.may_begin()));
        assert_eq!(admitted, Ok(Some(())));
        executor.stop();
    }
}
