//! The hash of a record's key, by which locks, sets and versions name it.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// The hash of a key: 64 bits, the same in every run.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    FixedState::with_seed(1).hash_one(key)
}
