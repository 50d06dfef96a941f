//! The 32 bytes at the front of every page.
//!
//! ```text
//!  0  checksum   CRC-32C of the bytes from 4 to the end
//!  4  kind       what the page holds (PageKind)
//!  5  level      height above the leaves in a b-tree
//!  6  count      number of slots of a slotted page
//!  8  page id    partition and number, packed
//! 16  sequence   counts the page's changes; redo compares it
//! 24  lsn        end of the log record of the latest change
//! ```
//!
//! Redo compares the sequence number and not the LSN, which serves the write-ahead rule only.

use crate::checksum::block_checksum;
use base::{Lsn, PageId};

/// Bytes before a page's contents.
pub const HEADER_SIZE: usize = 32;
/// The smallest page: for simulations that only need a few numbers on each.
pub const PAGE_SIZE_MIN: usize = 128;
/// The largest page.
pub const PAGE_SIZE_MAX: usize = 65_536;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Never written: all zeros on the medium.
    Empty = 0,
    /// Page 0 of a partition that allocates pages: page count, free list, tail.
    Allocator = 1,
    /// On the free list.
    Free = 2,
    /// Fixed-size objects found by number.
    Direct = 3,
    /// Records in order of arrival.
    Append = 4,
    /// A node of a b-tree, leaf or inner.
    Node = 5,
    /// A part of a long value.
    Overflow = 6,
}

impl PageKind {
    /// The kind with this number, if there is one.
    pub fn from_byte(byte: u8) -> Option<PageKind> {
        use PageKind::*;
        [Empty, Allocator, Free, Direct, Append, Node, Overflow].into_iter().find(|kind| *kind as u8 == byte)
    }
}

#[inline]
fn word(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// The page's kind byte as a [`PageKind`], if it is one.
#[inline]
pub fn kind(page: &[u8]) -> Option<PageKind> {
    PageKind::from_byte(page[4])
}

/// Sets the kind.
pub fn set_kind(page: &mut [u8], kind: PageKind) {
    page[4] = kind as u8;
}

/// The page's id.
#[inline]
pub fn id(page: &[u8]) -> PageId {
    PageId::unpacked(word(page, 8))
}

/// Sets the id.
pub fn set_id(page: &mut [u8], id: PageId) {
    page[8..16].copy_from_slice(&id.packed().to_le_bytes());
}

/// How many changes the page has seen.
#[inline]
pub fn sequence(page: &[u8]) -> u64 {
    word(page, 16)
}

/// Sets the number of changes.
#[inline]
pub fn set_sequence(page: &mut [u8], sequence: u64) {
    page[16..24].copy_from_slice(&sequence.to_le_bytes());
}

/// The end of the log record of the page's latest change: the page may be written once the log is durable up to here.
#[inline]
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn(word(page, 24))
}

/// Sets the log position.
#[inline]
pub fn set_lsn(page: &mut [u8], lsn: Lsn) {
    page[24..32].copy_from_slice(&lsn.0.to_le_bytes());
}

/// Turns a frame's bytes into the formatted but never changed page `id`.
pub fn format(page: &mut [u8], id: PageId) {
    page.fill(0);
    set_id(page, id);
}

/// Stores the checksum; the last step before a page is written.
pub fn seal(page: &mut [u8]) {
    let sum = block_checksum(page);
    page[..4].copy_from_slice(&sum.to_le_bytes());
}

/// Whether these are the zeros of a page that was never written.
pub fn is_unwritten(page: &[u8]) -> bool {
    let (words, rest) = page.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8]) && rest.iter().all(|byte| *byte == 0)
}

/// Checks a page just read: `Ok(true)` for a sound page, `Ok(false)` for one never written.
///
/// # Errors
/// Words that say what is wrong.
pub fn verify(page: &[u8], expected: PageId) -> Result<bool, String> {
    let stored = u32::from_le_bytes(page[..4].try_into().expect("four bytes"));
    let computed = block_checksum(page);
    if stored != computed {
        if stored == 0 && is_unwritten(page) {
            return Ok(false);
        }
        return Err(format!("its checksum is {stored:08x}, its contents give {computed:08x}"));
    }
    if id(page) != expected {
        return Err(format!("it says that it is {}", id(page)));
    }
    if kind(page).is_none() {
        return Err(format!("its kind {} is unknown", page[4]));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PartitionId;

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let id = PageId::new(PartitionId(3), 77);
        let mut page = vec![0; 256];
        assert_eq!(verify(&page, id), Ok(false));
        format(&mut page, id);
        set_sequence(&mut page, 9);
        set_lsn(&mut page, Lsn(1234));
        page[200] = 7;
        seal(&mut page);
        assert_eq!(verify(&page, id), Ok(true));
        assert_eq!((sequence(&page), lsn(&page)), (9, Lsn(1234)));
        assert!(verify(&page, PageId::new(PartitionId(3), 78)).is_err());
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&page, id).is_err(), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
