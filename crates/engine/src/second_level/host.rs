//! What the second level asks of main memory above it.

use crate::Result;
use crate::page_store::PageStore;
use base::PartitionId;
use driver::Frame;
use std::rc::Rc;

/// The buffer, as the second level sees it.
pub trait Host {
    /// Where the partition's pages have their own places.
    fn store(&self, partition: PartitionId) -> Rc<dyn PageStore>;

    /// Memory for the copy of one page.
    ///
    /// # Errors
    /// The driver's, if there is none.
    fn copy_buffer(&self) -> Result<Frame>;

    /// Takes such memory back.
    fn return_copy(&self, copy: Frame);

    /// The write of a page to its own place has ended: tasks that wait for writes or frames look again.
    fn destage_ended(&self);
}
