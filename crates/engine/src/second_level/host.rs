//! What the second level asks of main memory above it.

use super::Tiers;
use crate::Result;
use crate::page_store::Future;
use base::time::SECOND_NS;
use base::{Lsn, PageId, PartitionId};
use driver::{Completion, Frame};
use std::rc::Rc;

/// After this time without the end of a write, while some are under way, a partition's device counts as silent, in nanoseconds.
pub const SILENCE_NS: u64 = SECOND_NS;

/// How long pages are written of partitions of which some have failed, before a checkpoint leaves the others of these, in nanoseconds: a
/// device that is about to break may take minutes for each.
pub const FAILURES_NS_MAX: u64 = 10 * SECOND_NS;

/// The buffer, as the second level sees it.
pub trait Host {
    /// Writes pages that lie side by side, which the cache `from` has alone, to what is below it, from the first `length` bytes of a
    /// frame. From then on a power cut takes none of them, as far as the log is kept for what a level has that its own place lacks.
    fn write_pages(
        self: Rc<Self>,
        from: Rc<Tiers>,
        first: PageId,
        bytes: Frame,
        length: usize,
    ) -> Future<'static, Completion>;

    /// Memory for the copy of one page.
    ///
    /// # Errors
    /// The driver's, if there is none.
    fn copy_buffer(&self) -> Result<Frame>;

    /// Whether there is a page of this number, and its partition uses the cache.
    fn may_be_cached(&self, page: PageId) -> bool;

    /// A version of a page that a cache has alone cannot be read back. If main memory has the page, or else a cache above that one, it
    /// counts as changed there since `redo_start`, and is written as such.
    fn write_anew(&self, page: PageId, redo_start: Lsn);

    /// Takes such memory back.
    fn return_copy(&self, copy: Frame);

    /// The partitions whose devices do not answer writes at present.
    fn silent(&self) -> Vec<PartitionId>;

    /// Whether redo of a page is left until it is read.
    fn is_left(&self, page: PageId) -> bool;

    /// The write of a page to its own place has ended: tasks that wait for writes or frames look again.
    fn destage_ended(&self);

    /// The superblock is to name a later block of the cache's table.
    fn table_has_grown(&self);
}
