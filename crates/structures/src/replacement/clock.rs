use super::Replacement;
use base::PageId;
use std::cell::Cell;

/// CLOCK, or second chance (F. J. Corbató, A paging experiment with the Multics system, 1968): a hand goes around the frames
/// and empties the first one that was not referenced since it last passed.
///
/// A frame's reference bit is a comparison: of the time of its last reference with that at which the hand passed it. So the
/// frames can be listed without moving the hand; it moves when one is emptied.
pub struct Clock {
    /// Counts references.
    clock: Cell<u64>,
    frames: Vec<FrameReferences>,
    /// The frame that the hand points to.
    hand: usize,
}

#[derive(Clone, Default)]
struct FrameReferences {
    /// When the page was last referenced; [`OUT`] without a page.
    touched: Cell<u64>,
    /// When the hand last passed.
    passed: u64,
}

const OUT: u64 = 0;

impl FrameReferences {
    fn is_resident(&self) -> bool {
        self.touched.get() != OUT
    }

    fn is_referenced(&self) -> bool {
        self.touched.get() > self.passed
    }
}

impl Clock {
    /// No pages yet, in frames below `frames`.
    pub fn new(frames: usize) -> Clock {
        Clock { clock: Cell::new(OUT), frames: vec![FrameReferences::default(); frames], hand: 0 }
    }

    /// The frames in the order in which the hand meets them.
    fn around(&self) -> impl Iterator<Item = usize> {
        (self.hand..self.frames.len()).chain(0..self.hand)
    }
}

impl Replacement for Clock {
    fn insert(&mut self, frame: u32, _: PageId) {
        debug_assert!(!self.frames[frame as usize].is_resident(), "a frame holds one page");
        self.touch(frame);
    }

    #[inline]
    fn touch(&self, frame: u32) {
        self.clock.set(self.clock.get() + 1);
        self.frames[frame as usize].touched.set(self.clock.get());
    }

    fn references(&self) -> u64 {
        self.clock.get()
    }

    fn latest(&self, frame: u32) -> u64 {
        self.frames[frame as usize].touched.get()
    }

    fn evict(&mut self, frame: u32) {
        let frame = frame as usize;
        // The hand has come past every frame before this one: once around more if this one had been referenced, too.
        let whole = if self.frames[frame].is_referenced() { self.frames.len() } else { 0 };
        let steps = whole + (frame + self.frames.len() - self.hand) % self.frames.len() + 1;
        let now = self.clock.get();
        for passed in self.around().take(steps).collect::<Vec<_>>() {
            self.frames[passed].passed = now;
        }
        self.hand = (frame + 1) % self.frames.len();
        self.remove(frame as u32);
    }

    fn evict_early(&mut self, frame: u32) {
        // The hand stays.
        self.remove(frame);
    }

    fn remove(&mut self, frame: u32) {
        self.frames[frame as usize].touched.set(OUT);
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        for referenced in [false, true] {
            let round = self.around().filter(|frame| {
                let entry = &self.frames[*frame];
                entry.is_resident() && entry.is_referenced() == referenced
            });
            for frame in round {
                if !visit(frame as u32) {
                    return;
                }
            }
        }
    }
}
