//! Which page leaves memory next. A policy is one file behind [`Replacement`] and one line in [`POLICIES`]: configuration,
//! torture and help read them there.

mod clock;
mod hated;
mod lru;
mod lru_2;
mod order;
#[cfg(test)]
mod tests;

use base::PageId;
use clock::Clock;
pub use hated::Hated;
use lru::Lru;
use lru_2::Lru2;
pub use order::Order;

/// The policies, the usual one first.
pub const POLICIES: &[Policy] = &[
    Policy { name: "lru", build: |frames| Box::new(Lru::new(frames)), counts_arrivals: false },
    Policy { name: "clock", build: |frames| Box::new(Clock::new(frames)), counts_arrivals: false },
    Policy { name: "lru-2", build: |frames| Box::new(Lru2::new(frames)), counts_arrivals: true },
];

/// Orders the resident frames by how soon they should leave.
///
/// Frames are numbered from 0 to the capacity that the policy was made for. References are counted from 1: the count is the
/// policy's clock.
pub trait Replacement {
    /// The frame holds this page from now on, which is referenced.
    fn insert(&mut self, frame: u32, page: PageId);

    /// The frame's page was referenced: a hit.
    fn touch(&self, frame: u32);

    /// How many references there were.
    fn references(&self) -> u64;

    /// Which of them was the latest to the frame's page.
    fn latest(&self, frame: u32) -> u64;

    /// The frame's page made room for another.
    fn evict(&mut self, frame: u32) {
        self.remove(frame);
    }

    /// The same of a page to which the policy has not come in its order.
    fn evict_early(&mut self, frame: u32) {
        self.evict(frame);
    }

    /// The frame's page left for another reason, as when its partition was dropped.
    fn remove(&mut self, frame: u32);

    /// The frame's page is dirty from now on, or clean; one that is inserted is clean. Only policies that keep the two apart listen.
    fn set_dirty(&mut self, _frame: u32, _is_dirty: bool) {}

    /// Visits frames in the order in which they should leave, each once, until `visit` returns false.
    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool);

    /// The same of the dirty or of the clean ones; of all where the policy does not keep them apart.
    fn coldest_of(&self, _is_dirty: bool, visit: &mut dyn FnMut(u32) -> bool) {
        self.coldest(visit);
    }
}

/// A policy by its name.
#[derive(Clone, Copy)]
pub struct Policy {
    name: &'static str,
    build: fn(usize) -> Box<dyn Replacement>,
    counts_arrivals: bool,
}

impl Policy {
    /// What the policy is called.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Whether it takes a page's coming for one of the uses that it counts, so that pages which come before they are used mislead it.
    pub fn counts_arrivals(self) -> bool {
        self.counts_arrivals
    }

    /// The policy of this name, if there is one.
    ///
    /// ```
    /// use entresol_structures::replacement::Policy;
    ///
    /// assert_eq!(Policy::named("clock").map(Policy::name), Some("clock"));
    /// assert_eq!(Policy::named("magic"), None);
    /// ```
    pub fn named(name: &str) -> Option<Policy> {
        POLICIES.iter().copied().find(|policy| policy.name == name)
    }

    /// Least recently used, for `frames` frames of which few may ever hold a page: memory is taken with the pages.
    pub fn sparse_lru(frames: usize) -> Box<dyn Replacement> {
        Box::new(Lru::sparse(frames))
    }

    /// The policy for `frames` frames.
    pub fn build(self, frames: usize) -> Box<dyn Replacement> {
        (self.build)(frames)
    }
}

impl Default for Policy {
    /// Least recently used.
    fn default() -> Policy {
        POLICIES[0]
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Policy) -> bool {
        self.name == other.name
    }
}

impl Eq for Policy {}

impl std::fmt::Debug for Policy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}
