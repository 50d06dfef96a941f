//! The pieces of a backup's file of pages and segments.
//!
//! Each begins with a block that says what it holds. A page that several pieces hold is what the last of them says; a piece
//! that begins a partition says that nothing before it counts.

use super::manifest::BLOCK;
use base::PartitionId;
use structures::checksum::block_checksum;

const MAGIC: u32 = 0x434e_4245;
/// Where the numbers of the pages begin.
const NUMBERS: usize = 24;
/// How many pages a piece has at most.
pub(super) const PAGES_MAX: usize = (BLOCK - NUMBERS) / 4;
/// How many bytes of pages or of a segment a piece has at most.
pub(super) const CONTENTS_MAX: usize = 8 << 20;

/// What a piece holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// Pages of these numbers, in this order.
    Pages(Vec<u32>),
    /// The image of the segment of this number.
    Segment(u32),
    /// Nothing: what pieces before it hold of the partition does not count.
    Begin,
}

/// What a piece says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PieceHead {
    pub partition: PartitionId,
    pub kind: PieceKind,
    /// How long its contents are, in bytes.
    pub length: usize,
}

impl PieceHead {
    /// How long the whole piece is, in bytes.
    pub fn total(&self) -> usize {
        BLOCK + self.length.next_multiple_of(BLOCK)
    }
}

/// Fills in the first block of a piece whose contents stand behind it, and its checksum. Returns how long it is, in bytes.
pub(super) fn seal(piece: &mut [u8], head: &PieceHead) -> usize {
    let total = head.total();
    let (kind, count) = match &head.kind {
        PieceKind::Pages(numbers) => (0_u16, numbers.len() as u32),
        PieceKind::Segment(number) => (1, *number),
        PieceKind::Begin => (2, 0),
    };
    piece[..BLOCK].fill(0);
    piece[BLOCK + head.length..total].fill(0);
    piece[4..8].copy_from_slice(&MAGIC.to_le_bytes());
    piece[8..12].copy_from_slice(&(head.length as u32).to_le_bytes());
    piece[12..14].copy_from_slice(&head.partition.0.to_le_bytes());
    piece[14..16].copy_from_slice(&kind.to_le_bytes());
    piece[16..20].copy_from_slice(&count.to_le_bytes());
    if let PieceKind::Pages(numbers) = &head.kind {
        for (place, number) in piece[NUMBERS..BLOCK].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }
    let sum = block_checksum(&piece[..total]);
    piece[..4].copy_from_slice(&sum.to_le_bytes());
    total
}

/// What the block at the front of a piece says, before the piece as a whole is verified.
///
/// # Errors
/// What is wrong with it.
pub(super) fn head(block: &[u8]) -> Result<PieceHead, String> {
    let short = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
    if block.len() < BLOCK || word(4) != MAGIC {
        return Err("no piece of a backup begins here".into());
    }
    let (length, count) = (word(8) as usize, word(16));
    let numbers = || block[NUMBERS..].chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().expect("four")));
    let kind = match short(14) {
        0 if count as usize <= PAGES_MAX => PieceKind::Pages(numbers().take(count as usize).collect()),
        1 => PieceKind::Segment(count),
        2 if length == 0 => PieceKind::Begin,
        _ => return Err("a piece's first block makes no sense".into()),
    };
    if length > CONTENTS_MAX {
        return Err(format!("a piece claims to have {length} bytes"));
    }
    Ok(PieceHead { partition: PartitionId(short(12)), kind, length })
}

/// Verifies a whole piece.
///
/// # Errors
/// What is wrong with it.
pub(super) fn verify(piece: &[u8]) -> Result<(), String> {
    let stored = u32::from_le_bytes(piece[..4].try_into().expect("four bytes"));
    let computed = block_checksum(piece);
    if stored == computed {
        return Ok(());
    }
    Err(format!("a piece's checksum is {stored:08x}, its contents give {computed:08x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_piece_says_what_it_holds_and_any_flipped_bit_of_it_is_found() {
        let kinds = [PieceKind::Pages(vec![3, 1, 4_000_000_000]), PieceKind::Segment(9), PieceKind::Begin];
        for kind in kinds {
            let length = if kind == PieceKind::Begin { 0 } else { 300 };
            let expected = PieceHead { partition: PartitionId(7), kind, length };
            let mut piece = vec![0xaa; 2 * BLOCK];
            let total = seal(&mut piece, &expected);
            piece.truncate(total);
            assert_eq!((head(&piece), verify(&piece)), (Ok(expected), Ok(())));
            for bit in (0..piece.len() * 8).step_by(37) {
                piece[bit / 8] ^= 1 << (bit % 8);
                assert!(verify(&piece).is_err(), "bit {bit}");
                piece[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    proptest! {
        #[test]
        fn any_block_is_read_or_refused(mut front in prop::collection::vec(any::<u8>(), 32), known in any::<bool>()) {
            if known {
                front[4..8].copy_from_slice(&MAGIC.to_le_bytes());
                (front[14], front[15]) = (front[14] % 3, 0);
            }
            front.resize(BLOCK, 1);
            if let Ok(head) = head(&front) {
                prop_assert!(head.total() <= BLOCK + CONTENTS_MAX);
            }
        }
    }
}
