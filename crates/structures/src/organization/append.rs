//! Append organization: records in the order of their arrival, found by page and slot.
//!
//! Page 0 allocates pages and names the tail, the last page that holds records. A record's first byte says whether it
//! counts: a rolled-back record stays in place, erased, so that others keep their positions.
//!
//! Where pages take a fixed number of records, places are given out ([`Places`]) before their page is there, so that several
//! pages may be on their way to the buffer at once: else a fast stream of records would wait for one page after the other.

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

/// A number that no other record of its partition has.
pub fn number(position: Position) -> u64 {
    u64::from(position.page.number) << 16 | u64::from(position.slot)
}

/// Places are given out at most this many pages beyond the tail: later appenders wait for the first of these pages, so that a
/// crowd does not fill the buffer with pages of which each waits for the one before.
pub const AHEAD_MAX: u32 = 8;

/// How many pages behind a new tail are read ahead, if they have to be read: at 700 records a second on pages of 20, one is
/// filled in 29 ms, and a disk takes 33 ms to write the victim and to read the new page.
pub const READ_AHEAD: u32 = 2;

/// What is known of the end of a partition in main memory only.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// The places that are given out, once one is.
    pub places: Option<Places>,
    /// The last page whose read was started ahead; 0 if none was.
    read_ahead: u32,
}

impl End {
    /// The pages to be read ahead when `tail` has become the tail; nearest first.
    pub fn read_ahead(&mut self, tail: PageId) -> impl Iterator<Item = PageId> + use<> {
        let first = tail.number.max(self.read_ahead) + 1;
        let last = tail.number.saturating_add(READ_AHEAD);
        (first..=last).map(move |number| PageId { number, ..tail })
    }

    /// The read of a page was started ahead.
    pub fn note_read_ahead(&mut self, page: PageId) {
        self.read_ahead = self.read_ahead.max(page.number);
    }
}

/// The places at the end of a partition whose pages take a fixed number of records: how many are given out. This is known in
/// main memory only. An appender that gives its place up leaves a page with one record less.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The page of the last place given.
    page: u32,
    /// How many of its places are given.
    given: u32,
}

impl Places {
    /// As a partition's pages show them while no record is on its way.
    ///
    /// # Errors
    /// [`Need::Page`] for page 0 or the tail.
    pub fn read(pages: &impl Pages, partition: PartitionId) -> Result<Places, Need> {
        Ok(match tail(pages, partition)? {
            Some(page) => Places { page: page.number, given: u32::from(slotted::count(pages.page(page)?)) },
            None => Places { page: 0, given: u32::MAX },
        })
    }

    /// Gives out the next place of pages that take `blocking_factor` records: its page.
    ///
    /// # Errors
    /// [`Need::Space`] if the file is full.
    pub fn give(&mut self, pages: &impl Pages, partition: PartitionId, blocking_factor: u32) -> Result<PageId, Need> {
        if self.given >= blocking_factor {
            if self.page + 1 >= pages.capacity(partition) {
                return Err(Need::Space(partition));
            }
            *self = Places { page: self.page + 1, given: 0 };
        }
        self.given += 1;
        Ok(PageId::new(partition, self.page))
    }

    /// How many pages the next place will be beyond the tail.
    pub fn ahead(&self, tail: Option<PageId>, blocking_factor: u32) -> u32 {
        let page = self.page + u32::from(self.given >= blocking_factor);
        page.saturating_sub(tail.map_or(0, |tail| tail.number))
    }

    /// No more records go to this page: there is no room for them.
    pub fn close(&mut self, page: PageId) {
        if self.page == page.number {
            self.given = u32::MAX;
        }
    }
}

/// The last page that holds records, if there is one.
///
/// # Errors
/// [`Need::Page`] for page 0.
pub fn tail(pages: &impl Pages, partition: PartitionId) -> Result<Option<PageId>, Need> {
    let page = pages.page(PageId::new(partition, 0))?;
    let bytes = page[ORGANIZATION_OFFSET..ORGANIZATION_OFFSET + 4].try_into().expect("four bytes");
    let number = u32::from_le_bytes(bytes);
    Ok((number != 0).then(|| PageId::new(partition, number)))
}

/// Where a record of `length` stored bytes would go on this page: its next slot, if it has room.
///
/// # Errors
/// [`Need::Page`] for the page.
pub fn next_position(pages: &impl Pages, page: PageId, length: usize) -> Result<Option<Position>, Need> {
    let bytes = pages.page(page)?;
    let slot = slotted::count(bytes);
    Ok(slotted::fits(bytes, 0, length).then_some(Position { page, slot }))
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
