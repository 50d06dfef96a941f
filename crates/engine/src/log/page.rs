//! Log pages: the unit of checksum, and the proof of what belongs to the log.
//!
//! ```text
//!  0 checksum u32  CRC-32C of the page from 4 to its end
//!  4 magic u16     8 position u64, the page's place in the stream of log pages
//!  6 version u16  16 durable u64, the log position known durable when the page was written
//! 24 epoch u32    28 page size u32
//! 32 used u32, end of the bytes in use    36 first u32, offset of the first record that begins here, 0 if none does
//! 40 record bytes
//! ```
//!
//! Each write closes its page and no page is rewritten. A single client therefore pays up to a page (4 KiB) of log for
//! a commit. In return no write touches acknowledged bytes, and several writes may be in flight. Each page states what
//! was durable when it was made, which tells the tail that a crash leaves from damage.

use base::Lsn;
use structures::checksum::block_checksum;

/// Bytes before a log page's record bytes.
pub const HEADER_SIZE: usize = 40;
/// The smallest log page.
pub const PAGE_SIZE_MIN: usize = 128;
/// The largest log page.
pub const PAGE_SIZE_MAX: usize = 1 << 20;
/// The format that this release writes.
pub const VERSION: u16 = 1;

const MAGIC: u16 = 0x4c45;

/// What a log page says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The page's place in the stream of log pages, in bytes.
    pub position: u64,
    /// Everything before this was known durable when the page was written.
    pub durable: Lsn,
    /// Counts the openings of the log; it never decreases along the log.
    pub epoch: u32,
    /// Where the bytes in use end, counted from the front of the page.
    pub used: usize,
    /// Where the first record that begins in this page begins, counted from its front; 0 if none does.
    pub first: usize,
}

/// Why bytes are not the log page that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Never written, torn, overwritten or rotten: there is no such page.
    Missing,
    /// The device cannot read it: what is there is unknown.
    Unreadable,
    /// A sound page of another place in the log: written on an earlier lap around the file.
    Elsewhere,
    /// A sound page of a newer release.
    Newer(u16),
    /// A sound page of another size, in bytes.
    Size(u32),
}

fn put_u32(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get_u32(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

fn get_u64(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// Begins a page in which no record begins yet.
pub(super) fn begin(page: &mut [u8], position: u64, epoch: u32) {
    page[4..6].copy_from_slice(&MAGIC.to_le_bytes());
    page[6..8].copy_from_slice(&VERSION.to_le_bytes());
    put_u64(page, 8, position);
    put_u32(page, 24, epoch);
    put_u32(page, 28, page.len() as u32);
    put_u32(page, 36, 0);
}

/// Notes where the page's first record begins.
pub(super) fn set_first(page: &mut [u8], first: usize) {
    put_u32(page, 36, first as u32);
}

/// Notes where the bytes in use end and clears the rest: nothing comes in any more.
pub(super) fn close(page: &mut [u8], used: usize) {
    put_u32(page, 32, used as u32);
    page[used..].fill(0);
}

/// The last step before a closed page is written: what is durable by now, and the checksum.
pub(super) fn seal(page: &mut [u8], durable: Lsn) {
    put_u64(page, 16, durable.0);
    let sum = block_checksum(page);
    put_u32(page, 0, sum);
}

/// Takes out of a sound page what stands behind its first `used` bytes.
pub(super) fn cut(page: &mut [u8], used: usize) {
    if get_u32(page, 32) as usize <= used {
        return;
    }
    if get_u32(page, 36) as usize >= used {
        set_first(page, 0);
    }
    close(page, used);
    let durable = Lsn(get_u64(page, 16));
    seal(page, durable);
}

/// Checks that `page` is the log page at `position` and reads its header.
///
/// # Errors
/// The [`Flaw`] that keeps it from being that page.
pub fn verify(page: &[u8], position: u64) -> Result<Header, Flaw> {
    // The cheap tests come first: most pages that fail were never written or belong to an earlier lap.
    if page[4..6] != MAGIC.to_le_bytes() || get_u32(page, 0) != block_checksum(page) {
        return Err(Flaw::Missing);
    }
    let version = u16::from_le_bytes([page[6], page[7]]);
    if version > VERSION {
        return Err(Flaw::Newer(version));
    }
    if get_u64(page, 8) != position {
        return Err(Flaw::Elsewhere);
    }
    let size = get_u32(page, 28);
    if size as usize != page.len() {
        return Err(Flaw::Size(size));
    }
    let header = Header {
        position,
        durable: Lsn(get_u64(page, 16)),
        epoch: get_u32(page, 24),
        used: get_u32(page, 32) as usize,
        first: get_u32(page, 36) as usize,
    };
    let used_fits = (HEADER_SIZE..=page.len()).contains(&header.used);
    let first_fits = header.first == 0 || (HEADER_SIZE..header.used).contains(&header.first);
    if used_fits && first_fits { Ok(header) } else { Err(Flaw::Missing) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut page = vec![0xaa; 256];
        begin(&mut page, 1024, 7);
        set_first(&mut page, 50);
        close(&mut page, 200);
        seal(&mut page, Lsn(900));
        page
    }

    #[test]
    fn a_page_says_what_was_written_and_only_at_its_place() {
        let page = sample();
        let header = Header { position: 1024, durable: Lsn(900), epoch: 7, used: 200, first: 50 };
        assert_eq!(verify(&page, 1024), Ok(header));
        assert_eq!(verify(&page, 2048), Err(Flaw::Elsewhere));
        assert!(page[200..].iter().all(|byte| *byte == 0));
        assert_eq!(verify(&[0; 256], 0), Err(Flaw::Missing));
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let mut page = sample();
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&page, 1024), Err(Flaw::Missing), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn newer_versions_and_other_sizes_are_named() {
        let mut page = sample();
        page[6..8].copy_from_slice(&(VERSION + 1).to_le_bytes());
        seal(&mut page, Lsn(900));
        assert_eq!(verify(&page, 1024), Err(Flaw::Newer(VERSION + 1)));
        let mut page = sample();
        put_u32(&mut page, 28, 512);
        seal(&mut page, Lsn(900));
        assert_eq!(verify(&page, 1024), Err(Flaw::Size(512)));
    }
}
