//! Telling an observer what transactions reference: for traces.

use super::Transaction;
use base::{PageId, PartitionId};
use structures::organization::b_tree;

impl Transaction {
    /// Tells the observer, if there is one, of a reference to the record in this slot of a page.
    #[inline]
    pub(super) fn trace_access(&self, page: PageId, slot: u16, write: bool) {
        if let Some(observer) = self.engine.core.statistics.observer() {
            observer.reference(self.state.id, page, slot, write);
        }
    }

    /// Tells the observer, if there is one, of a reference to a record of a b-tree: to its leaf.
    #[inline]
    pub(super) fn trace_key_access(&self, partition: PartitionId, key: &[u8], write: bool) {
        if self.engine.core.statistics.is_observed() {
            self.trace_leaf_access(partition, key, write);
        }
    }

    #[cold]
    fn trace_leaf_access(&self, partition: PartitionId, key: &[u8], write: bool) {
        // The reference has just found its way there, so all pages are in the buffer, and most recently used as before.
        let place = b_tree::seek(&*self.engine.core.buffer.pool().borrow(), partition, key);
        if let Ok(place) = place {
            self.trace_access(place.page, 0, write);
        }
    }
}
