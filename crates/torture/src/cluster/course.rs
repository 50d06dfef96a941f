//! What is known of a scenario while it runs: what transactions were shown, and what each node is doing.

use super::{ClusterCoverage, ClusterEvent, ClusterShape, ClusterStep, Schedule};
use crate::history::History;
use base::Instant;
use base::time::SECOND_NS;
use driver::FaultKind;
use engine::Error;
use executor::{Executor, TaskId};
use node::page_client::{NodeInternals, PageClient};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// How many things that went wrong are told.
const WRONG_MAX: usize = 5;
/// How long after all is mended a node may still lose its server, in nanoseconds, if it has not committed a write since: what was late has
/// come by then, a node that was not answered has joined again, and leases of sessions before are over.
const AFTERMATH_NS: u64 = 16 * SECOND_NS;

pub(super) struct Course {
    pub shape: ClusterShape,
    pub history: RefCell<History>,
    pub coverage: RefCell<ClusterCoverage>,
    pub wrong: RefCell<Vec<String>>,
    pub acknowledged: Cell<u64>,
    hash: Cell<u64>,
    /// From when on all is mended, or the server is started again since then.
    pub mended: Cell<Option<Instant>>,
    /// How often that has begun.
    mendings: Cell<u32>,
    /// Nodes begin nothing more.
    pub over: Cell<bool>,
    /// How often the server was closed, or has ended.
    closings: Cell<u32>,
    /// By number, from 1 on.
    nodes: Vec<NodeState>,
}

#[derive(Default)]
struct NodeState {
    step: Cell<Option<ClusterStep>>,
    client: RefCell<Option<PageClient>>,
    departure: RefCell<Rc<Departure>>,
    /// Transactions that were begun and acknowledged since all is mended. Of a node that writes those count that have written: what only
    /// reads needs a lease and no server.
    done: Cell<u64>,
    /// How many of its transactions have begun to commit.
    commits_begun: Cell<u64>,
    /// When its server was last known to have answered it, by its own clock.
    answered: Cell<Option<Instant>>,
    /// Whether it may ever do less than everything.
    is_restricted: bool,
}

/// Whether a node leaves its server, and what its program does until then.
#[derive(Default)]
pub(super) struct Departure {
    has_come: Cell<bool>,
    tasks: RefCell<Vec<TaskId>>,
}

impl Departure {
    /// Does something that is given up where it stands when the node leaves.
    pub async fn precedes(&self, executor: &Executor, work: impl Future<Output = ()>) {
        self.tasks.borrow_mut().push(executor.current());
        let mut work = pin!(work);
        poll_fn(|context| if self.has_come.get() { Poll::Ready(()) } else { work.as_mut().poll(context) }).await;
    }
}

/// How a transaction was begun.
#[derive(Clone, Copy)]
pub(super) struct TransactionStart {
    pub node: u32,
    /// When all was mended.
    pub is_mended: bool,
    /// How often that had begun.
    mendings: u32,
    /// When its node had proven that its server hears it, or was to have that long ago: nothing may be lost any more.
    pub is_settled: bool,
}

/// The present moment in the time that all machines share.
fn shared_now(executor: &Executor) -> Instant {
    executor.clock().when(executor.now())
}

impl Course {
    pub fn new(shape: ClusterShape, schedule: &Schedule) -> Course {
        let state =
            |node| NodeState { is_restricted: schedule.restricts(node, shape.shares_names), ..NodeState::default() };
        let nodes = (1..=shape.nodes).map(state).collect();
        Course {
            shape,
            history: RefCell::default(),
            coverage: RefCell::default(),
            wrong: RefCell::default(),
            acknowledged: Cell::new(0),
            hash: Cell::new(0),
            mended: Cell::new(None),
            mendings: Cell::new(0),
            over: Cell::new(false),
            closings: Cell::new(0),
            nodes,
        }
    }

    fn node(&self, node: u32) -> &NodeState {
        &self.nodes[node as usize - 1]
    }

    pub fn enter(&self, node: u32, step: ClusterStep) {
        self.node(node).step.set(Some(step));
    }

    /// What a node is doing. `None` while it does not run.
    pub fn step(&self, node: u32) -> Option<ClusterStep> {
        let state = self.node(node);
        let is_leaseless = state.client.borrow().as_ref().is_some_and(|client| !client.has_lease());
        state.step.get().map(|step| if is_leaseless { ClusterStep::Leaseless } else { step })
    }

    /// Whether some node waits for the end of a commit.
    pub fn commits(&self) -> bool {
        self.nodes.iter().any(|node| node.step.get() == Some(ClusterStep::Commit))
    }

    /// A transaction of a node begins to commit.
    pub fn begin_commit(&self, node: u32) {
        let begun = &self.node(node).commits_begun;
        begun.set(begun.get() + 1);
    }

    /// How many have.
    pub fn commits_begun(&self, node: u32) -> u64 {
        self.node(node).commits_begun.get()
    }

    pub fn set_client(&self, node: u32, client: Option<PageClient>) {
        if let Some(before) = self.node(node).client.replace(client) {
            let lapses = before.lapses();
            let mut coverage = self.coverage.borrow_mut();
            coverage.event_times(ClusterEvent::LeaseOver, lapses.renewed + lapses.copies_lost);
            coverage.event_times(ClusterEvent::CopiesLost, lapses.copies_lost);
        }
    }

    /// A node has joined: what its program does with that comes before this.
    pub fn begin_stay(&self, node: u32) -> Rc<Departure> {
        let departure: Rc<Departure> = Rc::default();
        self.node(node).departure.replace(Rc::clone(&departure));
        departure
    }

    /// A node, on this machine, leaves its server. False if it has not joined one.
    pub fn leave(&self, node: u32, executor: &Executor) -> bool {
        let state = self.node(node);
        if state.client.borrow().is_none() {
            return false;
        }
        let departure = state.departure.borrow();
        departure.has_come.set(true);
        departure.tasks.borrow().iter().for_each(|task| executor.wake(*task));
        true
    }

    /// A node runs no more.
    pub fn end(&self, node: u32) {
        self.node(node).step.set(None);
        self.set_client(node, None);
    }

    /// What is to be expected of something that a node begins now, on this machine.
    pub fn begun(&self, node: u32, executor: &Executor) -> TransactionStart {
        let (mended, now) = (self.mended.get(), shared_now(executor));
        let is_late = mended.is_some_and(|mended| now.since_ns(mended) > AFTERMATH_NS);
        let has_written = self.done(node) > 0 && !self.shape.only_reads(node);
        let (is_mended, mendings) = (mended.is_some(), self.mendings.get());
        TransactionStart { node, is_mended, mendings, is_settled: is_late || has_written }
    }

    /// The server was closed, or has ended.
    pub fn note_close(&self) {
        self.closings.set(self.closings.get() + 1);
    }

    /// How often it was.
    pub fn closings(&self) -> u32 {
        self.closings.get()
    }

    /// From now on all is mended, and every node has to commit again. What was begun before may be lost.
    pub fn expect_commits(&self, now: Instant) {
        self.mended.set(Some(now));
        self.mendings.set(self.mendings.get() + 1);
        self.nodes.iter().for_each(|node| node.done.set(0));
    }

    /// Whether nothing may be lost any more of what was begun so.
    fn is_settled(&self, begun: TransactionStart) -> bool {
        begun.is_settled && begun.mendings == self.mendings.get()
    }

    /// Whether a node takes itself for one that its server hears.
    pub fn has_server(&self, node: u32) -> bool {
        self.node(node).client.borrow().as_ref().is_some_and(PageClient::has_server)
    }

    /// A node's server has answered it, by the clock of this machine.
    pub fn note_answer(&self, node: u32, executor: &Executor) {
        self.node(node).answered.set(Some(executor.now()));
    }

    /// A transaction that was begun so was acknowledged, now and on this machine.
    pub fn acknowledge(
        &self,
        TransactionStart { node, is_mended, mendings, .. }: TransactionStart,
        has_written: bool,
        executor: &Executor,
    ) {
        if has_written {
            self.note_answer(node, executor);
        }
        self.acknowledged.set(self.acknowledged.get() + 1);
        let counts = is_mended && mendings == self.mendings.get() && (has_written || self.shape.only_reads(node));
        self.node(node).done.set(self.node(node).done.get() + u64::from(counts));
        self.fold(shared_now(executor).ns());
    }

    /// How many transactions of a node were acknowledged that count since all is mended.
    pub fn done(&self, node: u32) -> u64 {
        self.node(node).done.get()
    }

    pub fn fold(&self, word: u64) {
        self.hash.set((self.hash.get() ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
    }

    pub fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub fn event(&self, event: ClusterEvent) {
        self.coverage.borrow_mut().event(event);
    }

    pub fn wrong(&self, what: String) {
        let mut wrong = self.wrong.borrow_mut();
        if wrong.len() < WRONG_MAX {
            wrong.push(what);
        }
    }

    /// A node is of no use any more, and another one takes its place. Unless its server has refused it, as it does one that may do nothing any
    /// more, it has sought that for as long as it was told to.
    pub fn give_up(&self, begun: TransactionStart, cause: &str, executor: &Executor) {
        self.event(ClusterEvent::GivenUp);
        let state = self.node(begun.node);
        if self.is_settled(begun) {
            self.wrong(format!("node {} is given up after all is mended: {cause}", begun.node));
        }
        let (patience_ns, now) = (self.shape.patience_ns, executor.now());
        let sought_ns = state.answered.get().map_or(u64::MAX, |answered| now.since_ns(answered));
        if sought_ns < patience_ns && !state.is_restricted {
            let words = "ns after an answer of its server, and was to seek it for";
            self.wrong(format!("node {} gives up {sought_ns} {words} {patience_ns} ns: {cause}", begun.node));
        }
    }

    /// Notes why something failed that was begun so, and whether that may be.
    pub fn judge(&self, begun: TransactionStart, error: &Error, what: &str) {
        let (node, is_settled) = (begun.node, self.is_settled(begun));
        let wrong = |when: &str| self.wrong(format!("{what} of node {node}{when}: {error}"));
        match error {
            Error::Deadlock => self.event(ClusterEvent::Victim),
            Error::LockTimeout { .. } if self.shape.lock_wait_ns_max.is_some() => self.event(ClusterEvent::WaitedOut),
            // All of a node's transactions together may have more pages in use than it has frames.
            Error::BufferExhausted { .. } if self.shape.transactions > 1 => self.event(ClusterEvent::Exhausted),
            Error::Input(fault) => match fault.kind {
                FaultKind::Denied if !self.node(node).is_restricted => wrong(", which may do everything"),
                FaultKind::Denied
                | FaultKind::Reset
                | FaultKind::Cancelled
                | FaultKind::Closed
                | FaultKind::Refused
                | FaultKind::TimedOut
                    if is_settled =>
                {
                    wrong(", after all is mended");
                }
                FaultKind::Denied => self.event(ClusterEvent::Denied),
                FaultKind::Reset | FaultKind::Cancelled | FaultKind::Closed => self.event(ClusterEvent::Lost),
                FaultKind::Refused | FaultKind::TimedOut => {}
                FaultKind::NoSpace if self.shape.fills && !begun.is_mended => self.event(ClusterEvent::DeviceFull),
                FaultKind::Device | FaultKind::NoSpace if self.is_of_failed_device(&fault.message) => {
                    self.event(ClusterEvent::Lost);
                }
                _ => wrong(""),
            },
            Error::CommitRefused(reason) if self.is_of_failed_device(reason) => self.event(ClusterEvent::Lost),
            _ => wrong(""),
        }
    }

    /// Whether it follows from what devices of the server were made to refuse: its log has failed, or an operation of its data device has.
    pub fn is_of_failed_device(&self, words: &str) -> bool {
        let log_fails = self.shape.log_fails || self.shape.disk_fails;
        let may_be_full = self.shape.fills && self.mended.get().is_none();
        log_fails && words.contains("the log failed")
            || self.shape.disk_fails && words.contains("injected")
            || may_be_full && words.contains("has no room for file")
    }
}
