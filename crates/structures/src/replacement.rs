//! Which page leaves the buffer next. A policy is one file behind [`Replacement`] and one line in [`Policy`].

mod lru;

pub use lru::Lru;

/// Orders the resident frames by how soon they should leave.
///
/// Frames are numbered from 0 to the capacity that the policy was made for.
pub trait Replacement {
    /// The frame holds a page from now on.
    fn insert(&mut self, frame: u32);

    /// The frame's page was referenced: a hit.
    fn touch(&self, frame: u32);

    /// How many references there were.
    fn references(&self) -> u64;

    /// Which of them was the latest to the frame's page, counted from 1.
    fn latest(&self, frame: u32) -> u64;

    /// The frame's page left.
    fn remove(&mut self, frame: u32);

    /// Visits frames in the order in which they should leave, until `visit` returns false.
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool);
}

/// The policies by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used, one global list.
    #[default]
    Lru,
}

impl Policy {
    /// The policy for `frames` frames.
    pub fn build(self, frames: usize) -> Box<dyn Replacement> {
        match self {
            Policy::Lru => Box::new(Lru::new(frames)),
        }
    }
}
