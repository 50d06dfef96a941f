//! Which byte of the log's file holds which position of the log.

use base::Lsn;
use serde::{Deserialize, Serialize};

/// A file that is used in a circle: the position `origin` lies at its front, and so does every position that is a multiple of
/// `size` bytes behind that. Fixed for as long as the file exists, however much of it is there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circle {
    /// The position of the file's front, a multiple of the log's page size.
    pub origin: u64,
    /// The size that the file grows to, in bytes, a multiple of the log's page size.
    pub size: u64,
}

impl Circle {
    /// That of a log which begins at position zero.
    pub fn from_zero(size: u64) -> Circle {
        Circle { origin: 0, size }
    }

    /// Where in the file this position lies.
    #[inline]
    pub(crate) fn offset(&self, position: u64) -> u64 {
        position.wrapping_sub(self.origin) % self.size
    }

    /// Bytes from this position to the end of the file.
    #[inline]
    pub(crate) fn left_from(&self, position: u64) -> u64 {
        self.size - self.offset(position)
    }

    /// The position of the first page that is ever written. Nothing is at the file's front before the circle has closed, so no
    /// record ends at position zero.
    pub(crate) fn first(&self, page_size: u64) -> u64 {
        self.origin + page_size
    }

    /// The position at which a file ends that is `extent` bytes long; `None` if it has all its bytes, and so goes on at its front.
    pub(super) fn end_of(&self, extent: u64) -> Option<Lsn> {
        (extent < self.size).then_some(Lsn(self.origin + extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_round_from_the_origin() {
        let circle = Circle { origin: 1_000, size: 300 };
        assert_eq!([1_000, 1_001, 1_299, 1_300, 1_901].map(|at| circle.offset(at)), [0, 1, 299, 0, 1]);
        assert_eq!([1_000, 1_299, 1_600].map(|at| circle.left_from(at)), [300, 1, 300]);
        assert_eq!((circle.end_of(299), circle.end_of(300)), (Some(Lsn(1_299)), None));
        assert_eq!(circle.first(100), 1_100);
    }
}
