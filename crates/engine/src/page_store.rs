//! Where the pages of a partition have their own places: a file, or what stands for one.

use base::PageId;
use driver::{Completion, Frame};
use executor::Executor;
use std::pin::Pin;

/// What comes of something that takes time. Allocated, so only for what a miss or a write waits for.
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + 'a>>;

/// The places of a partition's pages.
pub trait PageStore {
    /// Writes one page to its place, durably if it could be torn there. Pays for the access.
    fn write<'a>(&'a self, executor: &'a Executor, page: PageId, bytes: Frame) -> Future<'a, Completion>;
}
