//! Stored values: a version word, then the value itself or, if it is long, where its pages are.
//!
//! ```text
//! 0 version word u64: bit 63 set for a long value; the other bits are reserved for a version pointer
//! 8 the value, or: length u32, first page number u32
//! ```

use super::overflow;
use crate::Need;
use crate::organization::allocator;
use crate::page::Pages;
use base::PageId;

/// The size of the version word in bytes.
pub const VERSION_SIZE: usize = 8;
const LONG: u64 = 1 << 63;
/// The longest value in bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;

/// A stored value, read.
pub enum Stored<'a> {
    /// The value itself.
    Here(&'a [u8]),
    /// Its length in bytes and the page where it begins.
    Elsewhere(usize, u32),
}

/// Whether these bytes are a stored value.
pub fn is_sound(stored: &[u8]) -> bool {
    match stored.first_chunk() {
        Some(version) => u64::from_le_bytes(*version) & LONG == 0 || stored.len() == VERSION_SIZE + 8,
        None => false,
    }
}

/// Whether a stored value is a long one.
pub fn is_long(stored: &[u8]) -> bool {
    matches!(read(stored), Stored::Elsewhere(..))
}

/// Reads a stored value. What is none is read as a long one of more than [`VALUE_LEN_MAX`] bytes, which is refused as damage where its bytes
/// are wanted: it may be of another node, or a damaged page.
#[inline]
pub fn read(stored: &[u8]) -> Stored<'_> {
    let Some((version, rest)) = stored.split_first_chunk() else { return UNSOUND };
    if u64::from_le_bytes(*version) & LONG == 0 {
        return Stored::Here(rest);
    }
    let Ok(words) = <&[u8; 8]>::try_from(rest) else { return UNSOUND };
    let word = |at: usize| u32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
    Stored::Elsewhere(word(0) as usize, word(4))
}

/// Its pages are none.
const UNSOUND: Stored<'static> = Stored::Elsewhere(u32::MAX as usize, 0);

/// Puts the stored form of a value that stays in the leaf into `out`.
pub fn store_here(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; VERSION_SIZE]);
    out.extend_from_slice(value);
}

/// Puts the stored form of a value of `length` bytes whose pages begin at `first` into `out`.
pub fn store_elsewhere(length: usize, first: u32, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&LONG.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
}

/// The page behind `page` in its chain; 0 at the end.
///
/// # Errors
/// As [`part`].
pub fn next(pages: &impl Pages, page: PageId) -> Result<u32, Need> {
    Ok(part(pages, page)?.0)
}

/// The page behind `page` in its chain, and its part of the value.
///
/// # Errors
/// The page is missing, or is not one of a long value.
pub fn part(pages: &impl Pages, page: PageId) -> Result<(u32, &[u8]), Need> {
    part_in(page, pages.page(page)?)
}

/// The same of these bytes of the page.
///
/// # Errors
/// [`Need::Fail`] if it is none.
pub fn part_in(page: PageId, bytes: &[u8]) -> Result<(u32, &[u8]), Need> {
    overflow::read(bytes).map_err(|detail: String| allocator::damaged(page, &detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_stored_value_is_read_as_one_that_no_pages_have() {
        let mut long = Vec::new();
        store_elsewhere(1_000, 7, &mut long);
        for length in 0..long.len() {
            let cut = &long[..length];
            assert!(!is_sound(cut));
            assert!(matches!(read(cut), Stored::Elsewhere(length, 0) if length > VALUE_LEN_MAX), "{cut:?}");
        }
        assert!(matches!(read(&long), Stored::Elsewhere(1_000, 7)));
        long.push(0);
        assert!(matches!(read(&long), Stored::Elsewhere(length, 0) if length > VALUE_LEN_MAX));
        assert!(matches!(read(&[0; 7]), Stored::Elsewhere(length, 0) if length > VALUE_LEN_MAX));
        assert!(matches!(read(&[0; 8]), Stored::Here(&[])));
    }
}
