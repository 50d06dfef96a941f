use super::Replacement;
use super::order::Order;
use crate::SparseArray;
use base::PageId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// LRU-2 (E. J. O'Neil, P. E. O'Neil and G. Weikum, SIGMOD 1993): the page leaves whose last reference but one is the
/// longest ago, those with a single one first. So pages that a scan reads once leave before those that are used again and
/// again.
///
/// References that follow each other closely count as one (section 2.1.1, the correlated reference period): a transaction that
/// reads a page and then changes it has not come back to it. Such a page is the last to leave. The last reference of a page
/// that has left is kept as long as those of as many other pages (section 2.1.2, the retained information period).
///
/// Clean and dirty pages are in heaps of their own (Do et al. 2011, section 3.1), so that the coldest of either kind is found
/// without a look at the others.
pub struct Lru2 {
    /// Counts references.
    clock: Cell<u64>,
    frames: SparseArray<FrameHistory>,
    clean: RefCell<Order<Key>>,
    dirty: RefCell<Order<Key>>,
    retained: Retained,
}

/// A reference within this number of references of the one before is correlated with it.
const CORRELATED: u64 = 32;

/// The last uncorrelated reference but one, then the last one. Both grow with each uncorrelated reference.
type Key = (u64, u64);

#[derive(Clone)]
struct FrameHistory {
    page: PageId,
    /// HIST(p, 2) and HIST(p, 1) of the paper; the latter is [`OUT`] without a page.
    history: Cell<Key>,
    /// LAST(p): the last reference, correlated or not.
    last: Cell<u64>,
    /// In which heap it is.
    is_dirty: bool,
}

const OUT: u64 = 0;
const NONE: PageId = PageId { partition: base::PartitionId(u16::MAX), number: u32::MAX };

impl Lru2 {
    /// No pages yet, in frames below `frames`.
    pub fn new(frames: usize) -> Lru2 {
        let entry = FrameHistory { page: NONE, history: Cell::new((OUT, OUT)), last: Cell::new(OUT), is_dirty: false };
        Lru2 {
            clock: Cell::new(OUT),
            frames: SparseArray::new(entry, frames),
            clean: RefCell::new(Order::new(frames)),
            dirty: RefCell::new(Order::unreserved(frames)),
            retained: Retained::new(frames),
        }
    }

    /// A frame's key, if it is in the heap of the dirty or the clean ones.
    fn key(&self, frame: u32, is_dirty: bool) -> Option<Key> {
        let entry = &self.frames[frame as usize];
        Some(entry.history.get()).filter(|(_, last)| *last != OUT && entry.is_dirty == is_dirty)
    }

    /// Has `visit` see the frames that `each` visits, the correlated ones last.
    fn correlated_last(&self, each: impl FnOnce(&mut dyn FnMut(u32) -> bool), visit: &mut dyn FnMut(u32) -> bool) {
        let mut correlated = Vec::new();
        let mut goes_on = true;
        each(&mut |frame| {
            if self.is_correlated(frame) {
                correlated.push(frame);
            } else {
                goes_on = visit(frame);
            }
            goes_on
        });
        for frame in correlated {
            if !goes_on {
                return;
            }
            goes_on = visit(frame);
        }
    }

    fn is_correlated(&self, frame: u32) -> bool {
        self.clock.get() - self.frames[frame as usize].last.get() <= CORRELATED
    }
}

impl Replacement for Lru2 {
    fn insert(&mut self, frame: u32, page: PageId) {
        let now = self.clock.get() + 1;
        self.clock.set(now);
        let before = self.retained.take(page).unwrap_or(OUT);
        let entry = &mut self.frames[frame as usize];
        debug_assert_eq!(entry.last.get(), OUT, "a frame holds one page");
        entry.page = page;
        entry.history.set((before, now));
        entry.last.set(now);
        entry.is_dirty = false;
        self.clean.get_mut().insert(frame, (before, now));
    }

    #[inline]
    fn touch(&self, frame: u32) {
        let now = self.clock.get() + 1;
        self.clock.set(now);
        let entry = &self.frames[frame as usize];
        let last = entry.last.replace(now);
        if now - last > CORRELATED {
            // The correlated references count as if they had been made at their last one.
            entry.history.set((last, now));
        }
    }

    fn references(&self) -> u64 {
        self.clock.get()
    }

    fn latest(&self, frame: u32) -> u64 {
        self.frames[frame as usize].last.get()
    }

    fn evict(&mut self, frame: u32) {
        let entry = &self.frames[frame as usize];
        self.retained.keep(entry.page, entry.last.get());
        self.remove(frame);
    }

    fn remove(&mut self, frame: u32) {
        let entry = &mut self.frames[frame as usize];
        entry.page = NONE;
        entry.history.set((OUT, OUT));
        entry.last.set(OUT);
    }

    fn set_dirty(&mut self, frame: u32, is_dirty: bool) {
        let entry = &mut self.frames[frame as usize];
        let key = entry.history.get();
        if key.1 == OUT || std::mem::replace(&mut entry.is_dirty, is_dirty) == is_dirty {
            return;
        }
        let heap = if is_dirty { &mut self.dirty } else { &mut self.clean };
        heap.get_mut().insert(frame, key);
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let each = |visit: &mut dyn FnMut(u32) -> bool| {
            let orders = [&mut *self.clean.borrow_mut(), &mut *self.dirty.borrow_mut()];
            Order::visit_both(orders, [&|frame| self.key(frame, false), &|frame| self.key(frame, true)], visit);
        };
        self.correlated_last(each, visit);
    }

    fn coldest_of(&self, is_dirty: bool, visit: &mut dyn FnMut(u32) -> bool) {
        let heap = if is_dirty { &self.dirty } else { &self.clean };
        let each = |visit: &mut dyn FnMut(u32) -> bool| {
            heap.borrow_mut().visit(|frame| self.key(frame, is_dirty), visit);
        };
        self.correlated_last(each, visit);
    }
}

/// The last references of pages that have left, as many as there are frames.
struct Retained {
    /// In parts that grow one by one: a table of all pages of a large cache would take seconds for that.
    references: Vec<HashMap<PageId, u64, FixedState>>,
    /// The pages in the order in which they left; one that came back has gone from `references`, or has a later entry there.
    order: VecDeque<(PageId, u64)>,
    limit: usize,
}

/// About how many references one part has at most.
const PART: usize = 1 << 16;

impl Retained {
    fn new(limit: usize) -> Retained {
        let part = || HashMap::with_hasher(FixedState::with_seed(0));
        let references = (0..limit.div_ceil(PART).max(1)).map(|_| part()).collect();
        Retained { references, order: VecDeque::new(), limit }
    }

    fn part(&mut self, page: PageId) -> &mut HashMap<PageId, u64, FixedState> {
        let parts = self.references.len();
        &mut self.references[page.number as usize % parts]
    }

    fn keep(&mut self, page: PageId, reference: u64) {
        self.part(page).insert(page, reference);
        self.order.push_back((page, reference));
        while self.order.len() > self.limit {
            let (oldest, reference) = self.order.pop_front().expect("it is longer than the limit");
            let part = self.part(oldest);
            if part.get(&oldest) == Some(&reference) {
                part.remove(&oldest);
            }
        }
    }

    fn take(&mut self, page: PageId) -> Option<u64> {
        self.part(page).remove(&page)
    }
}
