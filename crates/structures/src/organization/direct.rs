//! Direct organization: objects of fixed size, found by number. Object `n` is on page `n / blocking factor`.
//!
//! Pages behind those that were ever changed may be cut off the file. Page 0 states then how many it has at least: one behind them that
//! the file does not hold was never changed. The level and the count of its header say it, as `count << level`.

use crate::page::{HEADER_SIZE, OwnedChange, PageKind};
use base::{PageId, PartitionId};

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its page.
    pub page: PageId,
    /// Its first byte, from the front of the page.
    pub offset: u16,
}

impl Place {
    /// Which of its page's objects it is, if they are of `record_size` bytes.
    pub fn slot(self, record_size: usize) -> u16 {
        ((usize::from(self.offset) - HEADER_SIZE) / record_size) as u16
    }
}

/// The place of object `number`.
#[inline]
pub fn place(partition: PartitionId, number: u64, blocking_factor: u32, record_size: u32) -> Place {
    let (page, slot) = (number / u64::from(blocking_factor), number % u64::from(blocking_factor));
    let offset = HEADER_SIZE as u64 + slot * u64::from(record_size);
    Place { page: PageId::new(partition, page as u32), offset: offset as u16 }
}

/// How many pages the file has at least, as page 0 states it; `None`: all.
pub fn stated_end(first: &[u8]) -> Option<u32> {
    end_of(first[5], u16::from_le_bytes([first[6], first[7]]))
}

/// The same as a change of page 0 states it.
pub fn end_of(level: u8, count: u16) -> Option<u32> {
    (count > 0).then(|| u32::from(count).checked_shl(level.into()).unwrap_or(u32::MAX))
}

/// As many pages as these or a few more, which page 0 can state.
pub fn statable_above(pages: u32) -> u32 {
    let unit = 1_u64 << shift(pages);
    u32::try_from(u64::from(pages).next_multiple_of(unit)).unwrap_or(u32::MAX)
}

/// As many pages as these or a few less, which page 0 can state.
pub fn statable_below(pages: u32) -> u32 {
    pages >> shift(pages) << shift(pages)
}

/// The change of page 0 that states that the file has these pages, which can be stated.
pub fn state_end(first: &[u8], pages: u32) -> OwnedChange {
    let (level, contents) = (shift(pages), &first[HEADER_SIZE..]);
    let used = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let count = (pages >> level) as u16;
    OwnedChange::Format { kind: PageKind::Direct, level, count, image: contents[..used].to_vec() }
}

/// By how many bits a number of pages is shortened.
fn shift(pages: u32) -> u8 {
    (0..)
        .find(|bits| u64::from(pages).div_ceil(1 << bits) <= u64::from(u16::MAX))
        .expect("at most 17 bits are too many")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Lsn;

    #[test]
    fn what_page_0_states_is_what_was_meant_or_a_little_more() {
        for pages in
            (0..32).flat_map(|bits| [-1, 0, 1, 77].map(|more| (1_i64 << bits) + more)).filter(|pages| *pages > 0)
        {
            let (pages, mut first) = (pages as u32, vec![0; 128]);
            first[60] = 9;
            let (below, end) = (statable_below(pages), statable_above(pages));
            assert!(
                below <= pages && pages <= end && u64::from(end - below) * 16_384 <= u64::from(pages),
                "{pages} {end}"
            );
            assert_eq!((statable_below(below), stated_end(&first)), (below, None));
            let change = state_end(&first, end);
            change.as_change().apply(&mut first, Lsn::ZERO);
            assert_eq!((stated_end(&first), first[60], first[61]), (Some(end), 9, 0));
        }
    }

    #[test]
    fn objects_fill_pages_in_order_and_do_not_overlap() {
        let at = |number| place(PartitionId(1), number, 10, 8);
        assert_eq!((at(0).page.number, at(0).offset), (0, 32));
        assert_eq!((at(9).page.number, at(9).offset), (0, 104));
        assert_eq!((at(10).page.number, at(10).offset), (1, 32));
    }
}
