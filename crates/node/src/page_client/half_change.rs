//! Changes that consist of several, each of which may wait or fail: one of which only a part was made takes its transaction along.

use super::{ClientNode, PageTransaction, RollbackCause};
use crate::message::Transaction;
use engine::Result;
use std::rc::Rc;

/// A change under way. If it is dropped before its end, its transaction can only be rolled back.
struct HalfChange {
    client: Rc<ClientNode>,
    transaction: Transaction,
    is_whole: bool,
}

impl Drop for HalfChange {
    fn drop(&mut self) {
        if !self.is_whole {
            self.client.condemn(self.transaction, RollbackCause::HalfChange);
        }
    }
}

impl PageTransaction {
    /// Makes a change wholly, or has the transaction rolled back. Why it has failed is for its caller to know, who decides by that whether
    /// it is worth another try; what is called afterwards gets [`engine::Error::Abandoned`].
    pub(super) async fn wholly<T>(&mut self, change: impl AsyncFnOnce(&mut PageTransaction) -> Result<T>) -> Result<T> {
        let before = self.work.borrow().records.len();
        self.wholly_since(before, change).await
    }

    /// The same of the rest of a change that began when the transaction had log records of this length.
    pub(super) async fn wholly_since<T>(
        &mut self,
        before: usize,
        change: impl AsyncFnOnce(&mut PageTransaction) -> Result<T>,
    ) -> Result<T> {
        let mut half = HalfChange { client: Rc::clone(&self.client), transaction: self.transaction, is_whole: false };
        let done = change(self).await;
        half.is_whole = done.is_ok() || self.work.borrow().records.len() == before;
        done
    }
}
