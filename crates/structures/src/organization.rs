//! How a partition's records are found: planning functions that look at pages and return places and edits.

pub mod allocator;
pub mod append;
pub mod b_tree;
pub mod direct;
