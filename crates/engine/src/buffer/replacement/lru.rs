use super::Replacement;
use std::cell::Cell;

/// Least recently used: a doubly linked list through two arrays, the end sentinel at index `frames`.
pub struct Lru {
    /// Towards the cold end.
    colder: Vec<Cell<u32>>,
    /// Towards the hot end.
    hotter: Vec<Cell<u32>>,
}

const OUT: u32 = u32::MAX;

impl Lru {
    /// An empty list for frames below `frames`.
    pub fn new(frames: usize) -> Lru {
        let links = || (0..=frames).map(|_| Cell::new(OUT)).collect::<Vec<_>>();
        let lru = Lru { colder: links(), hotter: links() };
        lru.colder[frames].set(frames as u32);
        lru.hotter[frames].set(frames as u32);
        lru
    }

    fn sentinel(&self) -> u32 {
        self.colder.len() as u32 - 1
    }

    #[inline]
    fn unlink(&self, frame: u32) {
        let (colder, hotter) = (self.colder[frame as usize].get(), self.hotter[frame as usize].get());
        self.hotter[colder as usize].set(hotter);
        self.colder[hotter as usize].set(colder);
    }

    #[inline]
    fn link_hottest(&self, frame: u32) {
        let sentinel = self.sentinel();
        let hottest = self.colder[sentinel as usize].get();
        self.colder[frame as usize].set(hottest);
        self.hotter[frame as usize].set(sentinel);
        self.hotter[hottest as usize].set(frame);
        self.colder[sentinel as usize].set(frame);
    }
}

impl Replacement for Lru {
    fn insert(&mut self, frame: u32) {
        debug_assert_eq!(self.colder[frame as usize].get(), OUT, "a frame stands in the list once");
        self.link_hottest(frame);
    }

    #[inline]
    fn touch(&self, frame: u32) {
        if self.hotter[frame as usize].get() != self.sentinel() {
            self.unlink(frame);
            self.link_hottest(frame);
        }
    }

    fn remove(&mut self, frame: u32) {
        self.unlink(frame);
        self.colder[frame as usize].set(OUT);
        self.hotter[frame as usize].set(OUT);
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let sentinel = self.sentinel();
        let mut frame = self.hotter[sentinel as usize].get();
        while frame != sentinel {
            let next = self.hotter[frame as usize].get();
            if !visit(frame) {
                return;
            }
            frame = next;
        }
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
            let mut order = Vec::new();
            lru.coldest(&mut |f| {
                order.push(f);
                true
            });
            assert_eq!(order, naive);
        }
    }
}
