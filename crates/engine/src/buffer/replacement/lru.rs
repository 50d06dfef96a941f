use super::Replacement;
use std::cell::Cell;

/// Least recently used: a doubly linked list in one array, the end sentinel at index `frames`.
pub struct Lru {
    links: Vec<Links>,
}

/// The neighbours of a frame.
struct Links {
    /// Towards the cold end.
    colder: Cell<u32>,
    /// Towards the hot end.
    hotter: Cell<u32>,
}

const OUT: u32 = u32::MAX;

impl Lru {
    /// An empty list for frames below `frames`.
    pub fn new(frames: usize) -> Lru {
        let links = |neighbour| Links { colder: Cell::new(neighbour), hotter: Cell::new(neighbour) };
        let sentinel = links(frames as u32);
        Lru { links: (0..frames).map(|_| links(OUT)).chain([sentinel]).collect() }
    }

    fn sentinel(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    #[inline]
    fn at(&self, frame: u32) -> &Links {
        &self.links[frame as usize]
    }

    #[inline]
    fn unlink(&self, frame: u32) {
        let (colder, hotter) = (self.at(frame).colder.get(), self.at(frame).hotter.get());
        self.at(colder).hotter.set(hotter);
        self.at(hotter).colder.set(colder);
    }

    #[inline]
    fn link_hottest(&self, frame: u32) {
        let sentinel = self.sentinel();
        let hottest = self.at(sentinel).colder.get();
        self.at(frame).colder.set(hottest);
        self.at(frame).hotter.set(sentinel);
        self.at(hottest).hotter.set(frame);
        self.at(sentinel).colder.set(frame);
    }
}

impl Replacement for Lru {
    fn insert(&mut self, frame: u32) {
        debug_assert_eq!(self.at(frame).colder.get(), OUT, "a frame stands in the list once");
        self.link_hottest(frame);
    }

    #[inline]
    fn touch(&self, frame: u32) {
        if self.at(frame).hotter.get() != self.sentinel() {
            self.unlink(frame);
            self.link_hottest(frame);
        }
    }

    fn remove(&mut self, frame: u32) {
        self.unlink(frame);
        self.at(frame).colder.set(OUT);
        self.at(frame).hotter.set(OUT);
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let sentinel = self.sentinel();
        let mut frame = self.at(sentinel).hotter.get();
        while frame != sentinel {
            let next = self.at(frame).hotter.get();
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
