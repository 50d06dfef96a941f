//! Bytes on the medium: page header, checksum, slotted pages, and the changes that log records describe.
//!
//! Pages are changed by [`Change::apply`] alone, in normal operation as in redo, so that replaying a log record does what
//! was done.

pub mod change;
pub mod header;
pub mod slotted;

pub use change::{Change, Edit, OwnedChange, OwnedEdit};
pub use header::{HEADER_SIZE, PageKind};

use crate::Need;
use base::{PageId, PartitionId};

/// The pages that a synchronous function may look at: those in the buffer.
pub trait Pages {
    /// The bytes of a page, header included.
    ///
    /// # Errors
    /// [`Need::Page`] if it is not in memory.
    fn page(&self, id: PageId) -> Result<&[u8], Need>;

    /// Asks for the permission to write a page that was seen: before anything of a plan is made, for each page that it edits.
    ///
    /// # Errors
    /// [`Need::Write`] if that has to be waited for.
    #[inline]
    fn write_permission(&self, _: PageId) -> Result<(), Need> {
        Ok(())
    }

    /// Tells the processor that the page's first bytes and what belongs to it will be wanted soon.
    fn prefetch(&self, _: PageId) {}

    /// Tells the processor that the page's header and what belongs to the page will be wanted soon. Returns the page's bytes, if
    /// it is in memory; this counts as no reference.
    fn prefetch_header(&self, _: PageId) -> Option<&[u8]> {
        None
    }

    /// How many pages the partition's file has room for.
    fn capacity(&self, partition: PartitionId) -> u32;

    /// The size of every page of the partition, in bytes.
    fn page_size(&self, partition: PartitionId) -> usize;
}
