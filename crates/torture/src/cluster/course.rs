//! What is known of a scenario while it runs: what transactions were shown, and what each node is doing.

use super::{ClusterCoverage, ClusterEvent, ClusterShape, ClusterStep};
use crate::history::History;
use base::Instant;
use driver::FaultKind;
use engine::Error;
use node::page_client::PageClient;
use std::cell::{Cell, RefCell};

/// How many things that went wrong are told.
const WRONG_MAX: usize = 5;

pub(super) struct Course {
    pub shape: ClusterShape,
    pub history: RefCell<History>,
    pub coverage: RefCell<ClusterCoverage>,
    pub wrong: RefCell<Vec<String>>,
    pub acknowledged: Cell<u64>,
    hash: Cell<u64>,
    /// All is mended from here on.
    pub healed: Cell<bool>,
    /// Nodes begin nothing more.
    pub over: Cell<bool>,
    /// By number, from 1 on.
    nodes: Vec<NodeState>,
}

#[derive(Default)]
struct NodeState {
    step: Cell<Option<ClusterStep>>,
    client: RefCell<Option<PageClient>>,
    /// Transactions that were begun and acknowledged since all is mended.
    done: Cell<u64>,
}

impl Course {
    pub fn new(shape: ClusterShape) -> Course {
        let nodes = (1..=shape.nodes).map(|_| NodeState::default()).collect();
        Course {
            shape,
            history: RefCell::default(),
            coverage: RefCell::default(),
            wrong: RefCell::default(),
            acknowledged: Cell::new(0),
            hash: Cell::new(0),
            healed: Cell::new(false),
            over: Cell::new(false),
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

    pub fn set_client(&self, node: u32, client: Option<PageClient>) {
        self.node(node).client.replace(client);
    }

    /// A node runs no more.
    pub fn end(&self, node: u32) {
        self.node(node).step.set(None);
        self.set_client(node, None);
    }

    /// A transaction was acknowledged, `now`, which was begun when all was mended or before.
    pub fn acknowledge(&self, node: u32, is_mended: bool, now: Instant) {
        self.acknowledged.set(self.acknowledged.get() + 1);
        self.node(node).done.set(self.node(node).done.get() + u64::from(is_mended));
        self.fold(now.ns());
    }

    /// How many transactions of a node were acknowledged since all is mended.
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

    /// Notes why something failed, and whether that may be.
    pub fn judge(&self, error: &Error, what: &str) {
        match error {
            Error::Deadlock => self.event(ClusterEvent::Victim),
            Error::Input(fault) => match fault.kind {
                FaultKind::Denied => self.event(ClusterEvent::Denied),
                FaultKind::Reset | FaultKind::Cancelled | FaultKind::Closed => self.event(ClusterEvent::Lost),
                FaultKind::Refused | FaultKind::TimedOut => {}
                _ => self.wrong(format!("{what}: {error}")),
            },
            _ => self.wrong(format!("{what}: {error}")),
        }
    }
}
