//! What the second level asks of main memory above it.

use crate::Result;
use crate::page_store::Future;
use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use driver::{Completion, Frame};

/// After this time without the end of a write, while some are under way, a partition's device counts as silent, in nanoseconds.
pub const SILENCE_NS: u64 = SECOND_NS;

/// The buffer, as the second level sees it.
pub trait Host {
    /// Writes pages that lie side by side to their own places by one operation, from the first `length` bytes of a frame;
    /// durably if one could be torn there.
    fn write_pages(&self, first: PageId, bytes: Frame, length: usize) -> Future<'_, Completion>;

    /// Memory for the copy of one page.
    ///
    /// # Errors
    /// The driver's, if there is none.
    fn copy_buffer(&self) -> Result<Frame>;

    /// Whether there is a page of this number, and its partition uses the cache.
    fn may_be_cached(&self, page: PageId) -> bool;

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
