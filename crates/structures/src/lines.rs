//! Cache lines of eight words, numbered from 0, that never move while their number grows.

/// The number of lines in the first block; each further block has three times as many as all before it.
const FIRST_BLOCK: usize = 16;
/// How many emptied blocks are kept for other lines: together 16 MiB. New memory costs more than the work done in it.
const KEPT_BLOCKS: usize = 8;
/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// A block of at least this size begins where a huge page can. Lines are visited all over it, and in small pages most visits
/// would wait for page tables as long as for the line; so would a prefetch.
const HUGE_PAGE: usize = 2 << 20;

/// A growing row of zeroed cache lines. Its memory comes in blocks, which the operating system fills with zeros as they are
/// touched: growth copies nothing and never stops for long.
#[derive(Default)]
pub struct Lines {
    blocks: Vec<LineBlock>,
    count: usize,
    /// From here on no line was ever used.
    used: usize,
}

struct LineBlock {
    words: Vec<u64>,
    /// The first word of the first line.
    start: usize,
    lines: usize,
}

impl LineBlock {
    fn new(lines: usize) -> LineBlock {
        let size = lines * LINE_BYTES;
        let alignment = if size < HUGE_PAGE { LINE_BYTES } else { HUGE_PAGE };
        let words = vec![0_u64; (size.next_multiple_of(alignment) + alignment) / 8];
        let start = words.as_ptr().align_offset(alignment);
        assert!(start < alignment / 8, "a word's address is a multiple of its size");
        LineBlock { words, start, lines }
    }
}

/// The block of a line and the line's position in it.
#[inline]
fn locate(number: usize) -> (usize, usize) {
    let block = (number / (FIRST_BLOCK / 4)).max(1).ilog2() / 2;
    let before = if block == 0 { 0 } else { FIRST_BLOCK << (2 * (block - 1)) };
    (block as usize, number - before)
}

impl Lines {
    /// How many lines there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds a line of zeros and returns its number.
    pub fn push(&mut self) -> usize {
        let (block, _) = locate(self.count);
        if block == self.blocks.len() {
            self.blocks.push(LineBlock::new((3 * self.count).max(FIRST_BLOCK)));
        }
        let number = self.count;
        self.count += 1;
        if number < self.used {
            *self.line_mut(number) = [0; 8];
        }
        number
    }

    /// Adds lines of zeros until there are `count`.
    pub fn grow_to(&mut self, count: usize) {
        while self.count < count {
            self.push();
        }
    }

    /// Forgets all lines. Some of the memory is kept.
    pub fn clear(&mut self) {
        self.blocks.truncate(KEPT_BLOCKS);
        let kept = self.blocks.iter().map(|block| block.lines).sum();
        self.used = self.used.max(self.count).min(kept);
        self.count = 0;
    }

    /// A line.
    #[inline]
    pub fn line(&self, number: usize) -> &[u64; 8] {
        let (block, position) = locate(number);
        let LineBlock { words, start, .. } = &self.blocks[block];
        words[start + position * 8..].first_chunk().expect("a line below the count")
    }

    /// A line, to be changed.
    #[inline]
    pub fn line_mut(&mut self, number: usize) -> &mut [u64; 8] {
        let (block, position) = locate(number);
        let LineBlock { words, start, .. } = &mut self.blocks[block];
        words[*start + position * 8..].first_chunk_mut().expect("a line below the count")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_distinct_and_stay() {
        let mut lines = Lines::default();
        for number in 0..20_000 {
            assert_eq!(lines.push(), number);
            assert_eq!(lines.line(number), &[0; 8]);
            assert_eq!(lines.line(number).as_ptr().addr() % 64, 0);
            *lines.line_mut(number) = [number as u64; 8];
        }
        assert!((0..20_000).all(|number| *lines.line(number) == [number as u64; 8]));
        for count in [300_000, 70_000, 400_000, 5000, 1, 100] {
            lines.clear();
            assert_eq!(lines.count(), 0);
            lines.grow_to(count);
            assert!((0..count).all(|number| *lines.line(number) == [0; 8]));
            (0..count).for_each(|number| *lines.line_mut(number) = [7; 8]);
        }
    }
}
