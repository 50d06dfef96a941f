//! Frames in the order of a key that grows with each reference, made when it is asked for: a reference writes its frame's
//! key and no more.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, VecDeque};

/// The frames by the key of some moment since which it may have grown. Each page in a frame has one entry here; one that has
/// left may have one for some time.
///
/// Invariant: no entry of `coldest` has a greater key than any of `rest`, and those of `coldest` ascend.
pub struct Order<K> {
    /// The cold end, already taken out of `rest`; entries that were overtaken by a later reference become [`GONE`].
    coldest: VecDeque<OrderedFrame<K>>,
    /// How many of those are gone.
    gone: usize,
    rest: BinaryHeap<Reverse<OrderedFrame<K>>>,
    /// How many pages each frame has held: entries of earlier ones are stale.
    generations: Vec<u32>,
}

/// A page in a frame, by the key that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OrderedFrame<K> {
    key: K,
    frame: u32,
    generation: u32,
}

const GONE: u32 = u32::MAX;

/// For how many frames memory is taken at once. Beyond that the order grows with the pages in them.
const RESERVED_MAX: usize = 1 << 20;

impl<K: Copy + Ord> Order<K> {
    /// No pages yet, in frames below `frames`.
    pub fn new(frames: usize) -> Order<K> {
        Order { rest: BinaryHeap::with_capacity(frames.min(RESERVED_MAX)), ..Order::unreserved(frames) }
    }

    /// The same; memory is taken with the pages, which may never come.
    pub fn unreserved(frames: usize) -> Order<K> {
        Order { coldest: VecDeque::new(), gone: 0, rest: BinaryHeap::new(), generations: vec![0; frames] }
    }

    /// The frame holds a page with this key from now on.
    pub fn insert(&mut self, frame: u32, key: K) {
        let generation = &mut self.generations[frame as usize];
        *generation = generation.wrapping_add(1);
        let entry = OrderedFrame { key, frame, generation: *generation };
        self.add(entry);
        if self.rest.len() > 2 * self.generations.len() {
            let generations = &self.generations;
            self.rest.retain(|Reverse(entry)| entry.generation == generations[entry.frame as usize]);
        }
        if self.coldest.len() > 2 * self.generations.len() {
            let generations = &self.generations;
            let is_present =
                |entry: &OrderedFrame<K>| entry.frame != GONE && entry.generation == generations[entry.frame as usize];
            self.coldest.retain(is_present);
            self.gone = 0;
        }
    }

    fn add(&mut self, entry: OrderedFrame<K>) {
        if self.coldest.back().is_some_and(|last| entry.key < last.key) {
            let place = self.coldest.partition_point(|earlier| earlier.key < entry.key);
            self.coldest.insert(place, entry);
        } else {
            self.rest.push(Reverse(entry));
        }
    }

    /// Visits frames by ascending keys until `visit` returns false. `key` tells a frame's present key, none if it holds no page.
    pub fn visit(&mut self, key: impl Fn(u32) -> Option<K>, visit: &mut dyn FnMut(u32) -> bool) {
        self.drop_front();
        let mut from = 0;
        while let Some((index, _, frame)) = self.next(from, &key) {
            if !visit(frame) {
                return;
            }
            from = index + 1;
        }
    }

    /// Visits the frames of two orders by ascending keys until `visit` returns false. `keys` tell a frame's present key, none if it
    /// is not in that order.
    pub fn visit_both(
        orders: [&mut Order<K>; 2],
        keys: [&dyn Fn(u32) -> Option<K>; 2],
        visit: &mut dyn FnMut(u32) -> bool,
    ) {
        let [one, other] = orders;
        one.drop_front();
        other.drop_front();
        let (mut first, mut second) = (one.next(0, keys[0]), other.next(0, keys[1]));
        loop {
            let is_first = match (first, second) {
                (None, None) => return,
                (Some((_, key, frame)), Some(than)) => (key, frame) <= (than.1, than.2),
                (first, _) => first.is_some(),
            };
            let Some((index, _, frame)) = (if is_first { first } else { second }) else { return };
            if !visit(frame) {
                return;
            }
            match is_first {
                true => first = one.next(index + 1, keys[0]),
                false => second = other.next(index + 1, keys[1]),
            }
        }
    }

    /// The first frame at or behind this place of `coldest`, its place and its key. All before have been confirmed.
    fn next(&mut self, from: usize, key: &(impl Fn(u32) -> Option<K> + ?Sized)) -> Option<(usize, K, u32)> {
        let mut index = from;
        loop {
            if index == self.coldest.len() && !self.take_from_rest(key) {
                return None;
            }
            if let Some(frame) = self.confirm(index, key) {
                return Some((index, self.coldest[index].key, frame));
            }
            index += 1;
        }
    }

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
    fn take_from_rest(&mut self, key: &(impl Fn(u32) -> Option<K> + ?Sized)) -> bool {
        while let Some(mut first) = self.rest.peek_mut() {
            let OrderedFrame { key: then, frame, generation } = first.0;
            match key(frame).filter(|_| generation == self.generations[frame as usize]) {
                Some(now) if now == then => {
                    self.coldest.push_back(PeekMut::pop(first).0);
                    return true;
                }
                Some(now) => first.0.key = now,
                None => _ = PeekMut::pop(first),
            }
        }
        false
    }

    /// The frame of an entry of `coldest` if its key is still the same; otherwise the entry is gone.
    fn confirm(&mut self, index: usize, key: &(impl Fn(u32) -> Option<K> + ?Sized)) -> Option<u32> {
        let OrderedFrame { key: then, frame, generation } = self.coldest[index];
        if frame == GONE {
            return None;
        }
        let now = key(frame).filter(|_| generation == self.generations[frame as usize]);
        if now == Some(then) {
            return Some(frame);
        }
        self.coldest[index].frame = GONE;
        self.gone += 1;
        if let Some(key) = now {
            self.add(OrderedFrame { key, frame, generation });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_visited_takes_no_more_memory_than_its_frames() {
        let mut order = Order::new(4);
        order.insert(0, (5, 9));
        order.visit(|frame| (frame == 0).then_some((5, 9)), &mut |_| false);
        for now in 10..10_000 {
            order.insert(1, (0, now));
            assert!(order.coldest.len() + order.rest.len() <= 16);
        }
        let mut seen = Vec::new();
        let key = |frame| [Some((5, 9)), Some((0, 9_999))].get(frame as usize).copied().flatten();
        order.visit(key, &mut |frame| {
            seen.push(frame);
            true
        });
        assert_eq!(seen, [1, 0]);
    }
}
