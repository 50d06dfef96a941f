use super::Replacement;
use super::order::Order;
use crate::SparseArray;
use base::PageId;
use std::cell::{Cell, RefCell};
use std::ops::IndexMut;

/// Least recently used, by time stamps: a hit writes one number and reads nothing but the clock, where a linked list would
/// wait for the lines of the frame and of both its neighbours.
pub struct Lru<Touched = Vec<Cell<u64>>> {
    /// Counts references.
    clock: Cell<u64>,
    /// When each frame was last referenced; [`OUT`] without a page.
    touched: Touched,
    order: RefCell<Order<u64>>,
}

const OUT: u64 = 0;

impl Lru {
    /// No pages yet, in frames below `frames`.
    pub fn new(frames: usize) -> Lru {
        let touched = vec![Cell::new(OUT); frames];
        Lru { clock: Cell::new(OUT), touched, order: RefCell::new(Order::new(frames)) }
    }
}

impl Lru<SparseArray<Cell<u64>>> {
    /// The same; memory is taken with the pages, which may never come.
    pub fn sparse(frames: usize) -> Self {
        let touched = SparseArray::new(Cell::new(OUT), frames);
        Lru { clock: Cell::new(OUT), touched, order: RefCell::new(Order::unreserved(frames)) }
    }
}

impl<Touched: IndexMut<usize, Output = Cell<u64>>> Replacement for Lru<Touched> {
    fn insert(&mut self, frame: u32, _: PageId) {
        debug_assert_eq!(self.touched[frame as usize].get(), OUT, "a frame holds one page");
        // Makes room for it, too.
        *self.touched[frame as usize].get_mut() = OUT;
        self.touch(frame);
        self.order.get_mut().insert(frame, self.clock.get());
    }

    #[inline]
    fn touch(&self, frame: u32) {
        self.clock.set(self.clock.get() + 1);
        self.touched[frame as usize].set(self.clock.get());
    }

    fn references(&self) -> u64 {
        self.clock.get()
    }

    fn latest(&self, frame: u32) -> u64 {
        self.touched[frame as usize].get()
    }

    fn remove(&mut self, frame: u32) {
        *self.touched[frame as usize].get_mut() = OUT;
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let key = |frame| Some(self.touched[frame as usize].get()).filter(|touched| *touched != OUT);
        self.order.borrow_mut().visit(key, visit);
    }
}
