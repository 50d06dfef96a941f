//! The engine's data structures: bytes on pages, the organizations of records in them, memory-resident sets, the lock table,
//! replacement.
//!
//! All of it is plain synchronous code. Nothing here can wait: a function that lacks a page or room says so ([`Need`]), its
//! caller fetches that and calls again. So an invariant that holds before and after each call holds at every wait of the engine.

pub mod checksum;
pub mod difference;
pub mod hash_index;
pub mod key_hash;
pub mod lines;
pub mod lock;
pub mod need;
pub mod organization;
pub mod page;
pub mod page_table;
pub mod prefetch;
pub mod replacement;
pub mod reuse;
pub mod set;
pub mod sparse_array;
pub mod undo;

pub use base::canary;
pub use key_hash::key_hash;
pub use need::{Error, Need};
pub use page_table::PageTable;
pub use prefetch::PrefetchDistance;
pub use sparse_array::SparseArray;
