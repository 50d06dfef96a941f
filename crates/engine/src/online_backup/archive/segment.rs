//! A segment of the archive: a block that says what it has, and pages of the log behind that.

use super::super::manifest::BLOCK;
use base::Lsn;
use structures::checksum::checksum;

const MAGIC: &[u8; 8] = b"ENTRLOGS";
/// The format of segments that this release writes and the newest that it reads.
pub(super) const SEGMENT_FORMAT: u32 = 1;
/// Where what the checksum covers begins.
const COVERED: usize = 12;
/// Where that ends.
const END: usize = 48;
/// How the names of segments end.
const SUFFIX: &str = ".log";

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    /// Tells the log from others.
    pub history: u64,
    /// The position of its first page.
    pub first: Lsn,
    /// The position behind its last one.
    pub end: Lsn,
    /// The size of a page in bytes.
    pub page_size: u32,
    /// The checksum over the checksums of its pages.
    pub pages: u32,
}

impl SegmentHead {
    /// The first block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..8].copy_from_slice(MAGIC);
        block[12..16].copy_from_slice(&SEGMENT_FORMAT.to_le_bytes());
        block[16..24].copy_from_slice(&self.history.to_le_bytes());
        block[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        block[32..40].copy_from_slice(&self.end.0.to_le_bytes());
        block[40..44].copy_from_slice(&self.page_size.to_le_bytes());
        block[44..END].copy_from_slice(&self.pages.to_le_bytes());
        let sum = checksum(&block[COVERED..END]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// What the first block of a segment says.
    ///
    /// # Errors
    /// The format of a newer release, or words.
    pub fn decode(block: &[u8]) -> Result<SegmentHead, HeadFlaw> {
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let flaw = |words: &str| Err(HeadFlaw::Words(words.to_owned()));
        if block.len() < END || &block[..8] != MAGIC {
            return flaw("its first block says nothing: it was not written to its end");
        }
        if word(8) != checksum(&block[COVERED..END]) {
            return flaw("the checksum of its first block is another");
        }
        if word(12) > SEGMENT_FORMAT {
            return Err(HeadFlaw::Newer(word(12)));
        }
        let head = SegmentHead {
            history: long(16),
            first: Lsn(long(24)),
            end: Lsn(long(32)),
            page_size: word(40),
            pages: word(44),
        };
        let size = u64::from(head.page_size);
        let is_sound = size > 0 && head.first < head.end && [head.first.0, head.end.0].iter().all(|at| at % size == 0);
        if is_sound { Ok(head) } else { flaw("its first block makes no sense") }
    }

    /// How long the file is at least, in bytes.
    pub fn length(&self) -> u64 {
        BLOCK as u64 + self.end.0 - self.first.0
    }
}

/// Why a block is not the first one of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeadFlaw {
    /// It is of this newer format.
    Newer(u32),
    /// What is wrong with it.
    Words(String),
}

/// The name of the segment of a history that begins here.
pub(super) fn segment_name(history: u64, first: Lsn) -> String {
    format!("{history:016x}-{:020}{SUFFIX}", first.0)
}

/// The history and the first position that a segment of this name has.
pub(super) fn parse_name(name: &str) -> Option<(u64, Lsn)> {
    let (history, first) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    let found = (u64::from_str_radix(history, 16).ok()?, Lsn(first.parse().ok()?));
    (segment_name(found.0, found.1) == name).then_some(found)
}

/// The checksum over the checksums that pages begin with.
#[derive(Default)]
pub(super) struct PageSums(Vec<u8>);

impl PageSums {
    /// Adds whole pages, in their order.
    pub fn add(&mut self, pages: &[u8], page_size: usize) {
        pages.chunks_exact(page_size).for_each(|page| self.0.extend_from_slice(&page[..4]));
    }

    /// The sum over all that were added.
    pub fn sum(&self) -> u32 {
        checksum(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_segment_says_what_it_has_and_any_flipped_bit_of_it_is_found() {
        let head = SegmentHead { history: 77, first: Lsn(4096), end: Lsn(12_288), page_size: 4096, pages: 5 };
        let mut block = head.encode();
        assert_eq!((SegmentHead::decode(&block), head.length()), (Ok(head), 4096 + 8192));
        for bit in 0..END * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHead::decode(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        block[12] = 2;
        let sum = checksum(&block[COVERED..END]);
        block[8..12].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(SegmentHead::decode(&block), Err(HeadFlaw::Newer(2)));
    }

    #[test]
    fn names_are_in_the_order_of_positions() {
        let names = [9, 10, u64::MAX].map(|first| segment_name(0xab, Lsn(first)));
        assert!(names.is_sorted());
        assert_eq!(parse_name(&names[1]), Some((0xab, Lsn(10))));
        for other in ["log", "ab-10.log", "00000000000000ab-00000000000000000010", "entresol.lock"] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_block_is_read_or_refused(mut front in prop::collection::vec(any::<u8>(), END), known in any::<bool>()) {
            if known {
                front[..8].copy_from_slice(MAGIC);
                front[12..16].copy_from_slice(&SEGMENT_FORMAT.to_le_bytes());
                let sum = checksum(&front[COVERED..END]);
                front[8..12].copy_from_slice(&sum.to_le_bytes());
            }
            front.resize(BLOCK, 0);
            if let Ok(head) = SegmentHead::decode(&front) {
                prop_assert!(head.first < head.end);
            }
        }
    }
}
