use super::Replacement;
use super::order::Order;
use base::PageId;
use std::cell::{Cell, RefCell};

/// Least recently used, by time stamps: a hit writes one number and reads nothing but the clock, where a linked list would
/// wait for the lines of the frame and of both its neighbours.
pub struct Lru {
    /// Counts references.
    clock: Cell<u64>,
    /// When each frame was last referenced; [`OUT`] without a page.
    touched: Vec<Cell<u64>>,
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

impl Replacement for Lru {
    fn insert(&mut self, frame: u32, _: PageId) {
        debug_assert_eq!(self.touched[frame as usize].get(), OUT, "a frame holds one page");
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
        self.touched[frame as usize].set(OUT);
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let key = |frame| Some(self.touched[frame as usize].get()).filter(|touched| *touched != OUT);
        self.order.borrow_mut().visit(key, visit);
    }
}
