//! Pages for which a task looks for a frame. Emptying one may take a write, and who misses the same page meanwhile waits for
//! that task: if each looked for a frame of its own, a crowd would empty as many for one page.

use super::Buffer;
use base::PageId;
use executor::TaskId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The pages, and who else waits for each.
#[derive(Default)]
pub(super) struct Wanted(RefCell<BTreeMap<PageId, Vec<TaskId>>>);

/// The turn to bring a page. The others look again when it is over, even if its task is abandoned.
pub(super) struct Bringing {
    buffer: Rc<Buffer>,
    page: PageId,
}

impl Buffer {
    /// The turn to bring a page; `None` if another task has it: then the current one will be woken.
    pub(super) fn want(self: &Rc<Self>, page: PageId) -> Option<Bringing> {
        if self.joins_waiters(page) {
            return None;
        }
        self.wanted.0.borrow_mut().insert(page, Vec::new());
        Some(Bringing { buffer: Rc::clone(self), page })
    }

    /// Whether some task has the turn to bring this page: then the current one will be woken when that is over.
    pub(super) fn joins_waiters(&self, page: PageId) -> bool {
        let mut wanted = self.wanted.0.borrow_mut();
        let waiters = wanted.get_mut(&page);
        waiters.map(|waiters| waiters.push(self.executor.current())).is_some()
    }
}

impl Bringing {
    /// The page.
    pub(super) fn page(&self) -> PageId {
        self.page
    }
}

impl Drop for Bringing {
    fn drop(&mut self) {
        let waiters = self.buffer.wanted.0.borrow_mut().remove(&self.page);
        for task in waiters.into_iter().flatten() {
            self.buffer.executor.wake(task);
        }
    }
}
