//! A set's hash index in parts, so that a restart can build them side by side: the four highest bits of a hash choose.

use crate::hash_index::Index;

/// How many parts there are.
pub(super) const PARTS: usize = 16;

/// The part that a hash belongs to.
#[inline]
pub(super) fn part(hash: u64) -> usize {
    (hash >> (u64::BITS - PARTS.ilog2())) as usize
}

/// An index by hash. Places are in units of 8 bytes and never 0.
pub(super) struct Parts([Index; PARTS]);

impl Parts {
    pub(super) fn new() -> Parts {
        Parts(std::array::from_fn(|_| Index::new()))
    }

    /// How many places it holds.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Index::count).sum()
    }

    /// See [`Index::find`].
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        self.0[part(hash)].find(hash, is_it)
    }

    /// See [`Index::prefetch`].
    pub(super) fn prefetch(&self, hash: u64) {
        self.0[part(hash)].prefetch(hash);
    }

    /// See [`Index::visit`].
    pub(super) fn visit(&self, part: usize, from: u32, buckets: u64, found: impl FnMut(u64)) -> (u32, bool) {
        self.0[part].visit(from, buckets, found)
    }

    /// Adds a place.
    pub(super) fn insert(&mut self, hash: u64, place: u64) {
        self.0[part(hash)].insert(hash, place);
    }

    /// Removes a place; false if it is not here.
    pub(super) fn remove(&mut self, hash: u64, place: u64) -> bool {
        self.0[part(hash)].remove(hash, place)
    }

    /// Gives the key of this hash and place another place; false if it is not here.
    pub(super) fn replace(&mut self, hash: u64, from: u64, to: u64) -> bool {
        self.0[part(hash)].replace(hash, from, to)
    }

    /// Takes a part out: nothing of it is found until it is put back.
    pub(super) fn take(&mut self, part: usize) -> Index {
        std::mem::take(&mut self.0[part])
    }

    /// Puts a part back.
    pub(super) fn put_back(&mut self, part: usize, index: Index) {
        assert_eq!(self.0[part].count(), 0, "nothing is added to a part that was taken out");
        self.0[part] = index;
    }
}
