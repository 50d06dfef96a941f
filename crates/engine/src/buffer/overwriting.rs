//! Writes past the buffer, of bulk loads. What is here of the pages that one overwrites goes before, and none of them is read
//! before it has ended, also if its load is given up meanwhile: else what is written there later could be overwritten, too.

use super::{Buffer, PageSpace};
use crate::page_store::Transfer;
use base::{PageId, PartitionId};
use driver::{Access, Completion, Frame};
use executor::{Executor, WaitQueue};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// A file's pages that are being overwritten, and the tasks waiting for the end of that.
#[derive(Default)]
pub(super) struct Overwriting {
    pages: Cell<Option<(u32, u32)>>,
    ended: WaitQueue,
}

impl Overwriting {
    /// Whether a page is being overwritten.
    pub(super) fn includes(&self, number: u32) -> bool {
        self.pages.get().is_some_and(|(from, to)| (from..to).contains(&number))
    }

    /// Whether any is.
    pub(super) fn is_under_way(&self) -> bool {
        self.pages.get().is_some()
    }

    /// Waits for the end of what is under way.
    pub(super) async fn end(&self, executor: &Executor) {
        while self.pages.get().is_some() {
            self.ended.wait(executor).await;
        }
    }
}

impl Buffer {
    /// Empties the frames and slots of pages that are about to be overwritten. False while something keeps one or fetches one,
    /// perhaps from where it was before, or an earlier write past the buffer is under way.
    pub fn make_way(&self, partition: PartitionId, numbers: Range<u32>) -> bool {
        if self.space(partition).overwriting.pages.get().is_some() || self.is_any_wanted(partition, numbers.clone()) {
            return false;
        }
        let is_done = numbers.into_iter().all(|number| {
            let id = PageId::new(partition, number);
            let levels = self.levels();
            let is_gone =
                self.pool.borrow_mut().discard_page(id) && levels.from_top().all(|tiers| tiers.discard_page(id));
            if is_gone {
                self.forget_left_page(id);
                self.double_write.iter().for_each(|area| area.release(&self.executor, std::iter::once(id)));
            }
            is_gone
        });
        self.wake_all_for_frames();
        is_done
    }

    /// Writes `length` bytes from the front of a buffer over pages for which [`Buffer::make_way`] has just made way. The write goes
    /// on if the caller is given up.
    pub async fn overwrite(
        self: &Rc<Self>,
        space: &Rc<PageSpace>,
        numbers: Range<u32>,
        (buffer, length): (Frame, usize),
    ) -> Completion {
        let page = |number| PageId::new(space.partition(), number);
        space.overwriting.pages.set(Some((numbers.start, numbers.end)));
        space.note_write(page(numbers.end - 1));
        let transfer = Transfer { first: page(numbers.start), buffer, length, access: Access::Asynchronous };
        let (executor, space) = (self.executor.clone(), Rc::clone(space));
        let writing = self.executor.spawn(async move {
            let completion = space.write(&executor, transfer).await;
            space.overwriting.pages.set(None);
            space.overwriting.ended.wake_all(&executor);
            completion
        });
        writing.join().await
    }
}
