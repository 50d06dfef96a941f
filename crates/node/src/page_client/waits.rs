//! What the transactions of a node wait for, and what they find in its buffer.

use super::PageClient;
use std::cell::Cell;

/// Times in nanoseconds, of all transactions together, and how many pages were looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeWaits {
    /// For locks, of this node's transactions and of others.
    pub lock_ns: u64,
    /// For pages on their way from the server or another node.
    pub page_ns: u64,
    /// For the answers to commits.
    pub commit_ns: u64,
    /// Pages that were in the buffer when a transaction came to them.
    pub hits: u64,
    /// Pages that were not.
    pub misses: u64,
}

impl NodeWaits {
    /// What has come since then.
    pub fn since(self, before: NodeWaits) -> NodeWaits {
        NodeWaits {
            lock_ns: self.lock_ns - before.lock_ns,
            page_ns: self.page_ns - before.page_ns,
            commit_ns: self.commit_ns - before.commit_ns,
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
        }
    }
}

/// The same, counting.
#[derive(Debug, Default)]
pub(super) struct WaitSums(Cell<NodeWaits>);

impl WaitSums {
    pub fn add(&self, change: impl FnOnce(&mut NodeWaits)) {
        let mut waits = self.0.get();
        change(&mut waits);
        self.0.set(waits);
    }

    /// A page was looked for.
    pub fn look(&self, was_here: bool) {
        self.add(|waits| *(if was_here { &mut waits.hits } else { &mut waits.misses }) += 1);
    }
}

impl PageClient {
    /// What its transactions have waited for since it joined.
    pub fn waits(&self) -> NodeWaits {
        self.0.waits.0.get()
    }
}
