//! Pages for which a task looks for a frame. Emptying one may take a write, and who misses the same page meanwhile waits for
//! that task: if each looked for a frame of its own, a crowd would empty as many for one page.

use super::Buffer;
use base::PageId;
use executor::TaskId;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The pages, and who else waits for each.
#[derive(Default)]
pub(super) struct Wanted(RefCell<BTreeMap<PageId, Vec<TaskId>>>);

/// A task's turn to bring a page. The others look again when it is over, even if the task is abandoned.
pub(super) struct Bringing<'a> {
    buffer: &'a Buffer,
    page: PageId,
}

impl Buffer {
    /// The turn to bring a page; `None` if another task has it: then the current one will be woken.
    pub(super) fn want(&self, page: PageId) -> Option<Bringing<'_>> {
        let mut wanted = self.wanted.0.borrow_mut();
        if let Some(waiters) = wanted.get_mut(&page) {
            waiters.push(self.executor.current());
            return None;
        }
        wanted.insert(page, Vec::new());
        Some(Bringing { buffer: self, page })
    }
}

impl Drop for Bringing<'_> {
    fn drop(&mut self) {
        let waiters = self.buffer.wanted.0.borrow_mut().remove(&self.page);
        for task in waiters.into_iter().flatten() {
            self.buffer.executor.wake(task);
        }
    }
}
