//! Pages for which a task looks for a frame. Emptying one may take a write, and other tasks that miss the same page meanwhile
//! wait for that task: if each looked for a frame of its own, a crowd would empty as many for one page.

use super::Buffer;
use crate::second_level::design::Pattern;
use crate::statistics::FoundIn;
use base::{PageId, PartitionId};
use executor::{Relay, TaskId};
use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

/// The pages in their order, and the other tasks waiting for each. They are few at once, so a search and a short move are less than
/// what a tree takes.
#[derive(Default)]
pub(super) struct WantedPages(RefCell<Vec<Wanted>>);

struct Wanted {
    page: PageId,
    waiters: Vec<TaskId>,
}

impl WantedPages {
    /// Where the page is, or where it would come in.
    fn place(&self, page: PageId) -> Result<usize, usize> {
        self.0.borrow().binary_search_by_key(&page, |wanted| wanted.page)
    }
}

/// The turn to fetch a page. The others look again when it is over, even if its task is abandoned.
pub(super) struct Fetching {
    buffer: Rc<Buffer>,
    page: PageId,
    pattern: Pattern,
    past_cache: bool,
    source: FoundIn,
}

impl Buffer {
    /// The turn to fetch a page; `None` if another task has it.
    pub(super) fn want(self: &Rc<Self>, page: PageId, pattern: Pattern) -> Option<Fetching> {
        let place = self.wanted.place(page).err()?;
        self.wanted.0.borrow_mut().insert(place, Wanted { page, waiters: Vec::new() });
        Some(Fetching { buffer: Rc::clone(self), page, pattern, past_cache: false, source: FoundIn::Device })
    }

    /// Whether some task has the turn to fetch this page.
    pub(super) fn is_wanted(&self, page: PageId) -> bool {
        self.wanted.place(page).is_ok()
    }

    /// Whether some task has the turn to fetch one of these pages.
    pub(super) fn is_any_wanted(&self, partition: PartitionId, numbers: Range<u32>) -> bool {
        let [from, to] = [numbers.start, numbers.end].map(|number| PageId::new(partition, number));
        let place = self.wanted.place(from).unwrap_or_else(|place| place);
        self.wanted.0.borrow().get(place).is_some_and(|wanted| wanted.page < to)
    }

    /// Waits until another task's turn to fetch a page is over, or until the task is woken for another reason.
    pub(super) async fn await_turn(&self, page: PageId) {
        let (mut waits, mut relay) = (false, Relay::default());
        poll_fn(|context| {
            if std::mem::replace(&mut waits, true) {
                return Poll::Ready(());
            }
            let task = self.executor.waiter(context, &mut relay);
            let Ok(place) = self.wanted.place(page) else { return Poll::Ready(()) };
            self.wanted.0.borrow_mut()[place].waiters.push(task);
            Poll::Pending
        })
        .await;
    }
}

impl Fetching {
    /// The page.
    pub(super) fn page(&self) -> PageId {
        self.page
    }

    /// The same; the page is read from its own device if that has the version of the cache.
    pub(super) fn past_cache(mut self, past_cache: bool) -> Fetching {
        self.past_cache = past_cache;
        self
    }

    /// Whether it is read from its own device if that has the version of the cache.
    pub(super) fn is_past_cache(&self) -> bool {
        self.past_cache
    }

    /// The same; the page is read from there.
    pub(super) fn from(mut self, source: FoundIn) -> Fetching {
        self.source = source;
        self
    }

    /// Where it is read from.
    pub(super) fn source(&self) -> FoundIn {
        self.source
    }

    /// How it came to be wanted.
    pub(super) fn pattern(&self) -> Pattern {
        self.pattern
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        let wanted = &self.buffer.wanted;
        let Ok(place) = wanted.place(self.page) else { return };
        let waiters = wanted.0.borrow_mut().remove(place).waiters;
        waiters.into_iter().for_each(|task| self.buffer.executor.wake(task));
    }
}
