//! Direct organization: objects of fixed size, found by number. Object `n` is on page `n / blocking factor`.

use crate::page::HEADER_SIZE;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_fill_pages_in_order_and_do_not_overlap() {
        let at = |number| place(PartitionId(1), number, 10, 8);
        assert_eq!((at(0).page.number, at(0).offset), (0, 32));
        assert_eq!((at(9).page.number, at(9).offset), (0, 104));
        assert_eq!((at(10).page.number, at(10).offset), (1, 32));
    }
}
