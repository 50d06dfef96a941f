use super::Replacement;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// Least recently used, by time stamps: a hit writes one number and reads nothing but the clock, where a linked list would
/// wait for the lines of the frame and of both its neighbours. The order is made when somebody asks for it.
pub struct Lru {
    /// Counts references.
    clock: Cell<u64>,
    /// When each frame was last referenced; [`OUT`] without a page.
    touched: Vec<Cell<u64>>,
    order: RefCell<Order>,
}

/// The frames by the time of a reference that may have been followed by others. Each frame with a page has one entry here;
/// one without a page has at most one.
///
/// Invariant: no entry of `coldest` is later than any of `rest`, and those of `coldest` ascend.
struct Order {
    /// The cold end, already taken out of `rest`; entries that were overtaken by a later reference become [`GONE`].
    coldest: VecDeque<Entry>,
    /// How many of those are gone.
    gone: usize,
    rest: BinaryHeap<Reverse<Entry>>,
    /// Whether each frame has an entry.
    listed: Vec<bool>,
}

/// A frame, by the time of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    touched: u64,
    frame: u32,
}

const OUT: u64 = 0;
const GONE: u32 = u32::MAX;

impl Lru {
    /// No pages yet, in frames below `frames`.
    pub fn new(frames: usize) -> Lru {
        let order = Order {
            coldest: VecDeque::new(),
            gone: 0,
            rest: BinaryHeap::with_capacity(frames),
            listed: vec![false; frames],
        };
        Lru { clock: Cell::new(OUT), touched: vec![Cell::new(OUT); frames], order: RefCell::new(order) }
    }
}

impl Replacement for Lru {
    fn insert(&mut self, frame: u32) {
        debug_assert_eq!(self.touched[frame as usize].get(), OUT, "a frame holds one page");
        self.touch(frame);
        let order = self.order.get_mut();
        if !std::mem::replace(&mut order.listed[frame as usize], true) {
            order.rest.push(Reverse(Entry { touched: self.clock.get(), frame }));
        }
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
        let order = &mut *self.order.borrow_mut();
        order.drop_front();
        let mut index = 0;
        loop {
            if index == order.coldest.len() && !order.bring(&self.touched) {
                return;
            }
            let frame = order.confirm(index, &self.touched);
            if frame.is_some_and(|frame| !visit(frame)) {
                return;
            }
            index += 1;
        }
    }
}

impl Order {
    /// Forgets the entries at the cold end that are gone, and all of them once they are the most.
    fn drop_front(&mut self) {
        while self.coldest.front().is_some_and(|entry| entry.frame == GONE) {
            self.coldest.pop_front();
            self.gone -= 1;
        }
        if self.gone > self.coldest.len() / 2 {
            self.coldest.retain(|entry| entry.frame != GONE);
            self.gone = 0;
        }
    }

    /// Moves the coldest of `rest` to the end of `coldest`; false if there is none. All of `coldest` has been confirmed.
    fn bring(&mut self, touched: &[Cell<u64>]) -> bool {
        while let Some(mut first) = self.rest.peek_mut() {
            let Entry { touched: then, frame } = first.0;
            let now = touched[frame as usize].get();
            if now == then {
                self.coldest.push_back(PeekMut::pop(first).0);
                return true;
            }
            if now == OUT {
                PeekMut::pop(first);
                self.listed[frame as usize] = false;
            } else {
                first.0.touched = now;
            }
        }
        false
    }

    /// The frame of an entry of `coldest`, if nobody has referenced it since; otherwise the entry is gone.
    fn confirm(&mut self, index: usize, touched: &[Cell<u64>]) -> Option<u32> {
        let Entry { touched: then, frame } = self.coldest[index];
        if frame == GONE {
            return None;
        }
        let now = touched[frame as usize].get();
        if now == then {
            return Some(frame);
        }
        self.coldest[index].frame = GONE;
        self.gone += 1;
        if now == OUT {
            self.listed[frame as usize] = false;
        } else {
            self.rest.push(Reverse(Entry { touched: now, frame }));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn agrees_with_a_naive_list() {
        let mut random = Random::stream(3, "lru");
        let mut lru = Lru::new(16);
        let mut naive: Vec<u32> = Vec::new();
        for _ in 0..10_000 {
            let frame = random.below(16) as u32;
            let position = naive.iter().position(|f| *f == frame);
            match (position, random.below(4)) {
                (None, _) => {
                    lru.insert(frame);
                    naive.push(frame);
                }
                (Some(at), 0) => {
                    lru.remove(frame);
                    naive.remove(at);
                }
                (Some(at), _) => {
                    lru.touch(frame);
                    naive.remove(at);
                    naive.push(frame);
                }
            }
            // Most questions see the cold end only, and many references come between them.
            let limit = if random.below(4) == 0 { 16 } else { random.below(4) as usize };
            let mut order = Vec::new();
            if limit > 0 {
                lru.coldest(&mut |f| {
                    order.push(f);
                    order.len() < limit
                });
            }
            assert_eq!(order, naive[..naive.len().min(limit)]);
        }
    }
}
