//! The hash index: from a key's hash to the places of the records of sets that may have it.
//!
//! Linear hashing (Litwin, VLDB 1980) in main memory (Lehman and Carey's Modified Linear Hashing, VLDB 1986): the table grows
//! by one bucket at a time, in the order of bucket numbers, so no insert stops for a rehash. A bucket is a cache line: seven
//! entries and a link to an overflow bucket. An entry is a place (a number of 40 bits) and bits 4 to 27 of its key's hash, of
//! which a bucket number consumes the lower ones; so a bucket is split, and most strangers are told apart, without looking at
//! the places. The table begins with 16 buckets, which consume the hash's lowest 4 bits.
//!
//! Most of a large index is in huge pages: an access to random memory waits for the page tables as long as for the
//! line, and so does a prefetch. A bucket is prefetched before its record's lock is taken. Running other tasks while a
//! record is fetched (interleaved coroutines) was tried and cost as much as it gained.

mod addressing;

pub use addressing::{Addressing, ENTRIES, LINK, Split, lowest, which};

use crate::lines::Lines;
use addressing::FIRST_LEVEL;

const PLACE_BITS: u32 = 40;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// An entry's hash bits determine at most this many bits of a bucket number.
const LEVEL_MAX: u32 = 28;

/// A hash index. Places are never 0.
pub struct Index {
    buckets: Lines,
    overflow: Lines,
    /// The first unused overflow bucket, plus 1; they are linked.
    unused: u64,
    addressing: Addressing,
    entries: usize,
}

/// A bucket's address.
#[derive(Clone, Copy)]
enum Line {
    Primary(usize),
    Overflow(usize),
}

#[inline]
fn entry(hash: u64, place: u64) -> u64 {
    debug_assert!(place != 0 && place <= PLACE_MASK);
    (hash >> FIRST_LEVEL) << PLACE_BITS | place
}

impl Default for Index {
    fn default() -> Index {
        Index::new()
    }
}

impl Index {
    /// An index of nothing.
    pub fn new() -> Index {
        let (mut buckets, overflow) = (Lines::default(), Lines::default());
        buckets.grow_to(Addressing::BUCKETS_MIN);
        Index { buckets, overflow, unused: 0, addressing: Addressing::of(Addressing::BUCKETS_MIN), entries: 0 }
    }

    /// How many places it holds.
    pub fn count(&self) -> usize {
        self.entries
    }

    #[inline]
    fn line(&self, line: Line) -> &[u64; 8] {
        match line {
            Line::Primary(number) => self.buckets.line(number),
            Line::Overflow(number) => self.overflow.line(number),
        }
    }

    #[inline]
    fn line_mut(&mut self, line: Line) -> &mut [u64; 8] {
        match line {
            Line::Primary(number) => self.buckets.line_mut(number),
            Line::Overflow(number) => self.overflow.line_mut(number),
        }
    }

    #[inline]
    fn next(&self, line: Line) -> Option<Line> {
        let link = self.line(line)[LINK];
        (link != 0).then(|| Line::Overflow(link as usize - 1))
    }

    /// The first place that `is_it` accepts of those whose key may have this hash.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        let (mut line, wanted) = (self.buckets.line(self.addressing.bucket(hash)), entry(hash, 1));
        loop {
            let mut candidates = which(line, |found| (found ^ wanted) >> PLACE_BITS == 0);
            while candidates != 0 {
                let place = line[lowest(candidates)] & PLACE_MASK;
                if place != 0 && is_it(place) {
                    return Some(place);
                }
                candidates &= candidates - 1;
            }
            match line[LINK] {
                0 => return None,
                link => line = self.overflow.line(link as usize - 1),
            }
        }
    }

    /// Visits every place whose hash, its lowest 32 bits reversed, is at least `from`, until `buckets` buckets have been
    /// visited. Returns where to continue, and whether entries are left.
    pub fn visit(&self, from: u32, buckets: u64, mut found: impl FnMut(u64)) -> (u32, bool) {
        let level = self.addressing.level();
        let unit = u32::BITS - level;
        let (first, count) = (u64::from(from >> unit), 1_u64 << level);
        let end = (first + buckets).min(count);
        for number in first..end {
            let bits = ((number as u32) << unit).reverse_bits() as usize;
            // A bucket that has been split already has handed on to the one that this level adds.
            for bucket in [bits, bits + (1 << level)] {
                if bucket < self.buckets.count() {
                    self.for_each_in(bucket, &mut found);
                }
            }
        }
        if end == count { (0, true) } else { ((end as u32) << unit, false) }
    }

    fn for_each_in(&self, bucket: usize, found: &mut impl FnMut(u64)) {
        let mut line = Some(Line::Primary(bucket));
        while let Some(here) = line {
            self.line(here)[..ENTRIES].iter().filter(|entry| **entry != 0).for_each(|entry| found(entry & PLACE_MASK));
            line = self.next(here);
        }
    }

    /// Asks for the bucket of this hash, which may come while the caller does something else.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        driver::prefetch(self.buckets.line(self.addressing.bucket(hash)));
    }

    /// Makes an empty index as large as `entries` entries will need it.
    pub fn reserve(&mut self, entries: usize) {
        debug_assert_eq!(self.entries, 0, "it grows bucket by bucket once it has entries");
        let buckets = Addressing::buckets_for(entries).clamp(self.buckets.count(), 1 << LEVEL_MAX);
        self.buckets.grow_to(buckets);
        self.addressing = Addressing::of(buckets);
    }

    /// Adds a place.
    pub fn insert(&mut self, hash: u64, place: u64) {
        self.put(self.addressing.bucket(hash), entry(hash, place));
        self.entries += 1;
        if Addressing::is_crowded(self.entries, self.buckets.count()) && self.addressing.level() < LEVEL_MAX {
            self.grow();
        }
    }

    /// Puts an entry into a bucket or its overflow.
    fn put(&mut self, bucket: usize, entry: u64) {
        let mut line = Line::Primary(bucket);
        loop {
            let words = self.line_mut(line);
            let free = which(words, |found| found == 0);
            if free != 0 {
                words[lowest(free)] = entry;
                return;
            }
            if words[LINK] == 0 {
                break;
            }
            line = Line::Overflow(words[LINK] as usize - 1);
        }
        let added = self.take_overflow();
        self.overflow.line_mut(added)[0] = entry;
        self.line_mut(line)[LINK] = added as u64 + 1;
    }

    fn take_overflow(&mut self) -> usize {
        if self.unused == 0 {
            return self.overflow.push();
        }
        let number = self.unused as usize - 1;
        let line = self.overflow.line_mut(number);
        self.unused = line[LINK];
        *line = [0; 8];
        number
    }

    /// Removes a place; false if it is not here.
    pub fn remove(&mut self, hash: u64, place: u64) -> bool {
        let Some((line, position, before)) = self.position(hash, place) else { return false };
        self.line_mut(line)[position] = 0;
        self.entries -= 1;
        if let (Line::Overflow(number), Some(before)) = (line, before)
            && self.line(line)[..ENTRIES] == [0; ENTRIES]
        {
            self.line_mut(before)[LINK] = self.line(line)[LINK];
            self.overflow.line_mut(number)[LINK] = self.unused;
            self.unused = number as u64 + 1;
        }
        true
    }

    /// Gives the key of this hash and place another place; false if it is not here.
    pub fn replace(&mut self, hash: u64, from: u64, to: u64) -> bool {
        let Some((line, position, _)) = self.position(hash, from) else { return false };
        self.line_mut(line)[position] = entry(hash, to);
        true
    }

    /// The line that holds the place, where in it, and the line that links to that one.
    fn position(&self, hash: u64, place: u64) -> Option<(Line, usize, Option<Line>)> {
        let wanted = entry(hash, place);
        let (mut line, mut before) = (Line::Primary(self.addressing.bucket(hash)), None);
        loop {
            if let Some(position) = self.line(line)[..ENTRIES].iter().position(|found| *found == wanted) {
                return Some((line, position, before));
            }
            before = Some(line);
            line = self.next(line)?;
        }
    }

    /// Splits the next bucket.
    fn grow(&mut self) {
        let Split { from, to, bit } = self.addressing.split();
        assert_eq!(self.buckets.push(), to, "the new bucket comes behind all others");
        let bit = 1_u64 << (bit - FIRST_LEVEL + PLACE_BITS);
        let (mut stay, mut go) = (*self.buckets.line(from), [0; 8]);
        let mut link = std::mem::take(&mut stay[LINK]);
        for position in 0..ENTRIES {
            let goes = stay[position] & bit != 0;
            go[position] = if goes { stay[position] } else { 0 };
            stay[position] ^= go[position];
        }
        *self.buckets.line_mut(from) = stay;
        *self.buckets.line_mut(to) = go;
        while let Some(number) = link.checked_sub(1) {
            let line = *self.overflow.line(number as usize);
            self.overflow.line_mut(number as usize)[LINK] = self.unused;
            self.unused = link;
            for found in line[..ENTRIES].iter().filter(|found| **found != 0) {
                self.put(if found & bit == 0 { from } else { to }, *found);
            }
            link = line[LINK];
        }
    }

    /// Every place.
    #[cfg(test)]
    fn places(&self) -> impl Iterator<Item = u64> {
        (0..self.buckets.count()).flat_map(move |number| {
            std::iter::successors(Some(Line::Primary(number)), |line| self.next(*line))
                .flat_map(|line| self.line(line)[..ENTRIES].iter().filter(|found| **found != 0))
                .map(|found| found & PLACE_MASK)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeSet;

    fn check(index: &Index, model: &BTreeSet<(u64, u64)>) {
        assert_eq!(index.count(), model.len());
        let places: BTreeSet<u64> = index.places().collect();
        assert_eq!(places, model.iter().map(|(_, place)| *place).collect::<BTreeSet<u64>>());
        for (hash, place) in model {
            let found = index.find(*hash, |found| found == *place);
            assert_eq!(found, Some(*place));
        }
    }

    /// Hashes of `bits` bits, so that many are the same in a small table's bucket, and few or many altogether.
    fn history(seed: u64, bits: u32, steps: u64) {
        let mut random = Random::stream(seed, "index");
        let (mut index, mut model) = (Index::new(), BTreeSet::new());
        for step in 1..=steps {
            let hash = random.word() & ((1 << bits) - 1);
            match random.below(8) {
                0..5 => {
                    index.insert(hash, step);
                    model.insert((hash, step));
                }
                kind => {
                    let Some(&(hash, place)) = model.range((hash, 0)..).next() else { continue };
                    model.remove(&(hash, place));
                    if kind == 5 {
                        assert!(index.replace(hash, place, step));
                        model.insert((hash, step));
                    } else {
                        assert!(index.remove(hash, place));
                        assert!(!index.remove(hash, place));
                    }
                }
            }
        }
        check(&index, &model);
        for (hash, place) in std::mem::take(&mut model) {
            assert!(index.remove(hash, place));
        }
        check(&index, &model);
    }

    #[test]
    fn it_agrees_with_a_model() {
        history(1, 63, 20_000);
        history(2, 10, 5_000);
        history(3, 2, 1_000);
    }

    #[test]
    fn one_that_was_made_large_goes_on_as_one_that_grew() {
        let mut random = Random::stream(5, "index");
        for reserved in [0, 1, 100, 700, 5_000, 40_000] {
            let (mut index, mut model) = (Index::new(), BTreeSet::new());
            index.reserve(reserved);
            for place in 1..=20_000 {
                let hash = random.word();
                index.insert(hash, place);
                model.insert((hash, place));
                if place == reserved as u64 {
                    assert_eq!(index.buckets.count(), Addressing::buckets_for(reserved));
                }
            }
            check(&index, &model);
        }
    }

    #[test]
    fn it_grows_by_one_bucket_at_a_time() {
        let mut random = Random::stream(4, "index");
        let mut index = Index::new();
        let mut before = index.buckets.count();
        for place in 1..=100_000 {
            index.insert(random.word(), place);
            assert!(index.buckets.count() - before <= 1);
            before = index.buckets.count();
        }
        let load = index.count() as f64 / (before * ENTRIES) as f64;
        assert!((0.74..=0.76).contains(&load), "{load}");
    }
}
