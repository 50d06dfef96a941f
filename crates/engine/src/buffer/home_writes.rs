//! Writes to pages' own places: those that are durable by themselves are kept apart from those that a sync makes durable later.
//!
//! A system tells once, to one caller for each open file, that it could not write back what was written before: to a sync, or to a
//! durable write. And a device with a volatile cache may have lost anything that it had not flushed when a flush fails, be it that of a
//! durable write. So where a durable write fails beside others that wait for a sync, any of these may be lost, no sync would tell of it,
//! and the file cannot be relied on any more. One bad sector would do that again and again: checkpoints write pages of main memory that
//! wait for a sync, and just then durable ones from a cache. Therefore, in each file:
//!
//! * While something waits for a sync, no durable write begins. A page that is to be durable is written as the others are, and then
//!   all of them are synced. If its write fails, that says nothing of the others; if the sync fails, nothing is believed that it was
//!   to make durable.
//! * While durable writes are under way, no other one begins. It waits for the end of those, and while it does none follows them.
//!
//! So whatever waits for a sync depends on syncs alone, and a durable write that fails is the failure of its page, and of those that
//! are written durably beside it.

use super::PageSpace;
use crate::page_store::{Then, Transfer, completed};
use base::PageId;
use driver::{Completion, Frame};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Durable writes of one file, and those that wait for their end.
#[derive(Default)]
pub(super) struct HomeWrites {
    durable: Cell<u32>,
    waiting: RefCell<Vec<Box<dyn FnOnce()>>>,
}

impl HomeWrites {
    fn end_durable(&self) {
        self.durable.set(self.durable.get() - 1);
        if self.durable.get() == 0 {
            self.waiting.take().into_iter().for_each(|start| start());
        }
    }
}

impl PageSpace {
    /// Starts to write pages that the next sync makes durable. The caller has paid for the access.
    pub(super) fn start_write(&self, executor: &Executor, transfer: Transfer, then: Then) {
        if self.home_writes.durable.get() == 0 {
            return self.store().write(executor, transfer, false, then);
        }
        let (store, executor) = (Rc::clone(self.store()), executor.clone());
        let start = Box::new(move || store.write(&executor, transfer, false, then));
        self.home_writes.waiting.borrow_mut().push(start);
    }

    /// The same, and waits for the end of that.
    pub(super) async fn write(&self, executor: &Executor, transfer: Transfer) -> Completion {
        completed(executor, |then| self.start_write(executor, transfer, then)).await
    }

    /// Writes pages that lie side by side to their own places by one operation, from the first `length` bytes of a frame;
    /// durably if one could be torn there and no copy of it `is_staged`. Pays for the access.
    pub async fn write_pages(
        &self,
        executor: &Executor,
        first: PageId,
        (buffer, length): (Frame, usize),
        is_staged: bool,
    ) -> Completion {
        let access = self.access(executor).await;
        let pages = length / self.page_size();
        self.note_write(PageId::new(first.partition, first.number + pages as u32 - 1));
        let transfer = Transfer { first, buffer, length, access };
        // A device that writes one page atomically promises nothing of a longer write.
        let may_tear = self.may_tear() || pages > 1;
        match may_tear && !is_staged {
            true => self.write_durably(executor, transfer).await,
            false => self.write(executor, transfer).await,
        }
    }

    async fn write_durably(&self, executor: &Executor, transfer: Transfer) -> Completion {
        if self.store().is_unsynced() || !self.home_writes.waiting.borrow().is_empty() {
            let mut completion = self.write(executor, transfer).await;
            if completion.result.is_ok()
                && let Err(error) = self.sync(executor).await
            {
                completion.result = Err(error.into_fault());
            }
            return completion;
        }
        let writes = Rc::clone(&self.home_writes);
        writes.durable.set(writes.durable.get() + 1);
        let start = |then: Then| {
            let ended = move |completion| {
                writes.end_durable();
                then(completion);
            };
            self.store().write(executor, transfer, true, Box::new(ended));
        };
        completed(executor, start).await
    }
}
