//! Changes that consist of several, each of which may wait: one that is given up halfway takes its transaction along.

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
            self.client.condemn(self.transaction, RollbackCause::Victim);
        }
    }
}

impl PageTransaction {
    /// Makes a change wholly, or has the transaction rolled back, which is given up then as a deadlock's victim is, and may be run again.
    pub(super) async fn wholly<T>(&mut self, change: impl AsyncFnOnce(&mut PageTransaction) -> Result<T>) -> Result<T> {
        let before = self.work.borrow().records.len();
        self.wholly_since(before, change).await
    }

    /// The same of the rest of a change that began when the transaction had log records of so many bytes.
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
