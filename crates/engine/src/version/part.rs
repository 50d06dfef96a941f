//! Parts of records: a change of a few bytes of a long record keeps these alone.
//!
//! A version of a 100-byte account takes 52 bytes that way instead of 140. A part is of use only on top of all changes
//! that came after it, so what lies between two changes may be left out only if the older version covers the later one.
//! A link says which words its version has, so the version itself is not read to learn that; where it does not cover
//! them, the whole record is kept, which covers all that follow.

use std::ops::Range;

/// Bytes of a word.
const WORD: usize = 8;
/// Words of the longest part.
const WORDS_MAX: usize = 8;
/// Bits of a part in a link.
const BITS: u32 = 9;

/// Some words of a stored value, which a link can tell without a look at the version: up to eight of the first half KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part(u16);

impl Part {
    /// One of which nothing is known.
    pub const UNKNOWN: Part = Part(1);

    /// The words around these bytes; `None` if they are too many, or too far behind.
    pub fn around(bytes: Range<usize>) -> Option<Part> {
        let (first, end) = (bytes.start / WORD, bytes.end.div_ceil(WORD));
        let words = end.checked_sub(first).filter(|words| (1..=WORDS_MAX).contains(words))?;
        let bits = 2 + first * WORDS_MAX + words - 1;
        (bits < 1 << BITS).then_some(Part(bits as u16))
    }

    /// In a link; 0 is for none.
    pub fn bits(self) -> u64 {
        self.0.into()
    }

    /// The part that a link's bits say.
    pub fn of_bits(bits: u64) -> Option<Part> {
        let bits = bits as u16 & ((1 << BITS) - 1);
        (bits != 0).then_some(Part(bits))
    }

    /// Where it is in a value of this length; empty if nothing is known of it.
    pub fn within(self, length: usize) -> Range<usize> {
        let Some(bits) = self.0.checked_sub(2).map(usize::from) else { return 0..0 };
        let first = bits / WORDS_MAX;
        let end = first + bits % WORDS_MAX + 1;
        (first * WORD).min(length)..(end * WORD).min(length)
    }

    /// Whether the other one is known to lie within it.
    pub fn covers(self, other: Part) -> bool {
        let (own, other) = (self.within(usize::MAX), other.within(usize::MAX));
        !other.is_empty() && own.start <= other.start && other.end <= own.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_words_around_its_bytes() {
        for from in 0..600 {
            for to in from + 1..from + 80 {
                let Some(part) = Part::around(from..to) else {
                    assert!(to.div_ceil(8) - from / 8 > 8 || from >= 496, "{from}..{to}");
                    continue;
                };
                assert_eq!(part.within(1_000), from / 8 * 8..to.div_ceil(8) * 8);
                assert_eq!(part.within(to).end, to, "a value may end within a word");
                assert_eq!(Part::of_bits(part.bits()), Some(part));
            }
        }
        assert_eq!(Part::of_bits(0), None);
    }

    #[test]
    fn a_part_covers_what_lies_within_it() {
        let parts: Vec<Part> =
            (0..20).flat_map(|from| (1..9).filter_map(move |n| Part::around(8 * from..8 * (from + n)))).collect();
        for one in &parts {
            for other in &parts {
                let (outer, inner) = (one.within(1_000), other.within(1_000));
                assert_eq!(one.covers(*other), inner.clone().all(|byte| outer.contains(&byte)), "{outer:?} {inner:?}");
            }
            assert!(!one.covers(Part::UNKNOWN) && !Part::UNKNOWN.covers(*one));
        }
        assert!(!Part::UNKNOWN.covers(Part::UNKNOWN));
    }
}
