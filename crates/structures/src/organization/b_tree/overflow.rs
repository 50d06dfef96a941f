//! Values too long for a leaf: chains of pages, built from the tail so that each page knows its next one.
//!
//! ```text
//! 32 next page number u32 (0: the last page)   36 bytes on this page u32   40 the bytes
//! ```

use crate::Need;
use crate::organization::allocator;
use crate::page::header::{self, HEADER_SIZE};
use crate::page::{OwnedChange, OwnedEdit, PageKind, Pages};
use base::{PageId, PartitionId};

const DATA: usize = HEADER_SIZE + 8;

/// How many bytes of a value one page takes.
pub const fn capacity(page_size: usize) -> usize {
    page_size - DATA
}

/// Where the last page's part of a value begins when all pages before it are full: the split point for building a chain
/// from its tail. `value_len` is above zero.
pub const fn tail_start(value_len: usize, page_size: usize) -> usize {
    (value_len - 1) / capacity(page_size) * capacity(page_size)
}

/// Plans a page with `part` of a value, followed by page `next` (0: none). Its number comes with the edits.
///
/// # Errors
/// Those of [`allocator::allocate`].
///
/// # Panics
/// If `part` is over the [`capacity`].
pub fn add(pages: &impl Pages, partition: PartitionId, next: u32, part: &[u8]) -> Result<(u32, Vec<OwnedEdit>), Need> {
    assert!(part.len() <= capacity(pages.page_size(partition)), "a part fits its page");
    let (number, mut edits) = allocator::allocate(pages, partition)?;
    let mut image = Vec::with_capacity(8 + part.len());
    image.extend_from_slice(&next.to_le_bytes());
    image.extend_from_slice(&(part.len() as u32).to_le_bytes());
    image.extend_from_slice(part);
    let change = OwnedChange::Format { kind: PageKind::Overflow, level: 0, count: 0, image };
    edits.push(OwnedEdit { page: PageId::new(partition, number), change });
    Ok((number, edits))
}

/// The next page's number (0: none) and this page's part of the value.
///
/// # Errors
/// Words that say what is wrong with the page.
pub fn read(page: &[u8]) -> Result<(u32, &[u8]), String> {
    if header::kind(page) != Some(PageKind::Overflow) {
        return Err("it is not part of a long value".to_owned());
    }
    let word = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
    let length = word(HEADER_SIZE + 4) as usize;
    let part = page[DATA..].get(..length).ok_or_else(|| format!("{length} bytes of a long value do not fit on it"))?;
    if part.is_empty() {
        // Who follows a chain that ends nowhere would never come to the value's length.
        return Err("it has nothing of a long value".to_owned());
    }
    let next = word(HEADER_SIZE);
    if next != 0 && part.len() < capacity(page.len()) {
        // Nor would who follows one of many small parts soon come there.
        return Err(format!(
            "it has {} bytes of a long value, and more follow on page {next}: it would be full",
            part.len()
        ));
    }
    Ok((next, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_nothing_of_a_value_is_none_of_a_chain() {
        let mut page = vec![0; 512];
        header::set_kind(&mut page, PageKind::Overflow);
        page[HEADER_SIZE..HEADER_SIZE + 4].copy_from_slice(&7_u32.to_le_bytes());
        assert!(read(&page).is_err());
        page[HEADER_SIZE + 4] = 1;
        assert!(read(&page).is_err(), "more follows, so it would be full");
        page[HEADER_SIZE] = 0;
        assert_eq!(read(&page), Ok((0, &[0][..])));
        page[HEADER_SIZE..DATA].copy_from_slice(&[7, 0, 0, 0, capacity(512) as u8, (capacity(512) >> 8) as u8, 0, 0]);
        assert_eq!(read(&page), Ok((7, &[0; capacity(512)][..])));
        page[HEADER_SIZE + 4..DATA].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&page).is_err());
    }
}
