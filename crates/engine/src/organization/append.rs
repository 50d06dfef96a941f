//! Append organization: records in the order of their arrival, found by page and slot.
//!
//! Page 0 allocates pages and names the tail, the page that the next record goes to. A record's first byte says whether it
//! counts: a rolled-back record stays in place, erased, so that others keep their positions.

use super::allocator::{self, ORGANIZATION_OFFSET};
use crate::Need;
use crate::page::{OwnedChange, OwnedEdit, PageKind, Pages, slotted};
use base::{PageId, PartitionId};

/// What page 0 says of a partition without records.
pub const NO_TAIL: [u8; 4] = [0; 4];
/// The first byte of a record that counts.
pub const LIVE: u8 = 1;
/// The first byte of a record that was rolled back.
pub const ERASED: u8 = 0;

/// Where an appended record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Its page.
    pub page: PageId,
    /// Its slot.
    pub slot: u16,
}

/// The page that the next record goes to, if there is one.
///
/// # Errors
/// [`Need::Page`] for page 0.
pub fn tail(pages: &impl Pages, partition: PartitionId) -> Result<Option<PageId>, Need> {
    let page = pages.page(PageId::new(partition, 0))?;
    let bytes = page[ORGANIZATION_OFFSET..ORGANIZATION_OFFSET + 4].try_into().expect("four bytes");
    let number = u32::from_le_bytes(bytes);
    Ok((number != 0).then(|| PageId::new(partition, number)))
}

/// Where a record of `length` stored bytes would go: the tail's next slot, if it has room and holds fewer than
/// `blocking_factor` records (0: no limit). `None` if a new tail is needed.
///
/// # Errors
/// [`Need::Page`] for page 0 or the tail.
pub fn next_position(
    pages: &impl Pages,
    partition: PartitionId,
    length: usize,
    blocking_factor: u32,
) -> Result<Option<Position>, Need> {
    let Some(page) = tail(pages, partition)? else { return Ok(None) };
    let bytes = pages.page(page)?;
    let slot = slotted::count(bytes);
    let full = blocking_factor > 0 && u32::from(slot) >= blocking_factor;
    Ok((!full && slotted::fits(bytes, 0, length)).then_some(Position { page, slot }))
}

/// The edits that give the partition a new, empty tail.
///
/// # Errors
/// [`Need::Page`] for page 0 or the new page, [`Need::Space`] if the file is full.
pub fn new_tail(pages: &impl Pages, partition: PartitionId) -> Result<Vec<OwnedEdit>, Need> {
    let (number, mut edits) = allocator::allocate(pages, partition)?;
    let page = PageId::new(partition, number);
    pages.page(page)?;
    let format = OwnedChange::Format { kind: PageKind::Append, level: 0, count: 0, image: Vec::new() };
    edits.push(OwnedEdit { page, change: format });
    let patch = OwnedChange::Patch { offset: ORGANIZATION_OFFSET as u16, bytes: number.to_le_bytes().to_vec() };
    edits.push(OwnedEdit { page: PageId::new(partition, 0), change: patch });
    Ok(edits)
}

/// The longest record that fits an empty page, in bytes.
pub const fn length_max(page_size: usize) -> usize {
    slotted::append_value_len_max(page_size) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::header;

    #[test]
    fn the_longest_record_fits_and_a_longer_one_does_not() {
        for page_size in [128, 256, 4096, 65_536] {
            let mut page = vec![0; page_size];
            header::set_kind(&mut page, PageKind::Append);
            let stored = length_max(page_size) + 1;
            assert!(slotted::fits(&page, 0, stored) && !slotted::fits(&page, 0, stored + 1), "{page_size}");
        }
    }
}
