//! What references to values are charged with: their bytes, and what is waited for because caches do not hold them.

use super::{Buffer, Pool};
use base::PageId;
use driver::Work;
use std::cell::Cell;
use structures::page::Pages;

/// How many bytes of a partition's pages are near a core: what Debit-Credit took longer with 11 and with 118 MiB, and reads of values
/// with 64, was in proportion to what they had beyond this, on a processor with caches of 2 MiB and translations of 6 MiB for each core.
const NEAR: usize = 8 << 20;

/// How far pages are from a core.
pub(super) struct Distances {
    /// As many pages as [`NEAR`] has.
    near: usize,
    /// Pages beyond these that no distant value was charged for yet.
    beyond: Cell<usize>,
}

impl Distances {
    pub fn new(page_size: usize) -> Distances {
        Distances { near: NEAR / page_size, beyond: Cell::default() }
    }
}

impl Buffer {
    /// A value of `length` bytes was copied or shown where it lies on this page, or written there: this is charged; with no bytes, that it was
    /// looked for and is not there. Of a partition with more bytes in memory than caches hold, as many values count as distant as there are
    /// bytes beyond.
    #[inline]
    pub fn charge_value(&self, pool: &Pool, page: PageId, length: usize) {
        self.executor.charge_value(length);
        let near = self.distances.near;
        let pages = (pool.len() - pool.free_count()).min(pool.capacity(page.partition) as usize);
        if pages > near {
            let beyond = self.distances.beyond.get() + pages - near;
            let is_distant = beyond >= pages;
            self.distances.beyond.set(if is_distant { beyond - pages } else { beyond });
            if is_distant {
                self.executor.charge(Work::DistantValue);
            }
        }
    }
}
