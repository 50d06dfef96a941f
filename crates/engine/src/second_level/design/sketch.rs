//! How often pages were missed lately, estimated in little memory: a count-min sketch with conservative counting whose counts
//! are halved again and again, so that it forgets (TinyLFU: Einziger, Friedman and Manes 2017, section 3).

use base::PageId;

/// Counters for each page of the cache.
const COUNTERS_PER_PAGE: usize = 8;
/// In how many places a page is counted.
const PLACES: usize = 4;
/// A counter's greatest value.
const COUNT_MAX: u8 = 15;
/// Counts for each page of the cache after which all are halved: few enough that a hot set that moves on is forgotten while
/// the next one is hot.
const SAMPLE_PER_PAGE: u64 = 4;

/// The counters. Empty until it is known for how many pages they are.
#[derive(Debug, Default)]
pub struct Sketch {
    counters: Vec<u8>,
    pages: u64,
    added: u64,
}

impl Sketch {
    /// Makes room for a cache of this number of pages; what was counted for another size is forgotten.
    pub fn reserve(&mut self, pages: u32) {
        let counters = (pages as usize * COUNTERS_PER_PAGE).next_power_of_two();
        if self.counters.len() != counters {
            *self = Sketch { counters: vec![0; counters], pages: u64::from(pages.max(1)), added: 0 };
        }
    }

    /// Counts a page.
    pub fn add(&mut self, page: PageId) {
        if self.counters.is_empty() {
            return;
        }
        let places = self.places(page);
        let least = self.least(places);
        if least < COUNT_MAX {
            // The estimate is the least of them, so the greater ones need not grow with it.
            places.into_iter().for_each(|place| self.counters[place] = self.counters[place].max(least + 1));
        }
        self.added += 1;
        if self.added >= SAMPLE_PER_PAGE * self.pages {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.added /= 2;
        }
    }

    /// How often a page was counted lately, or more.
    pub fn estimate(&self, page: PageId) -> u8 {
        if self.counters.is_empty() { 0 } else { self.least(self.places(page)) }
    }

    fn least(&self, places: [usize; PLACES]) -> u8 {
        places.map(|place| self.counters[place]).into_iter().min().unwrap_or(0)
    }

    fn places(&self, page: PageId) -> [usize; PLACES] {
        let name = u64::from(page.partition.0) << 32 | u64::from(page.number);
        let mut hash = name;
        [(); PLACES].map(|()| {
            hash = mixed(hash.wrapping_add(0x9e37_79b9_7f4a_7c15));
            hash as usize & (self.counters.len() - 1)
        })
    }
}

/// Stafford's mixer of 64 bits, variant 13.
fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{PartitionId, Random};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page(number: u32) -> PageId {
        PageId::new(PartitionId(3), number)
    }

    proptest! {
        #[test]
        fn estimates_are_never_below_the_counts(numbers in prop::collection::vec(0_u32..200, 0..SAMPLE_PER_PAGE as usize * 100)) {
            let mut sketch = Sketch::default();
            sketch.reserve(100);
            let mut counts: BTreeMap<u32, u8> = BTreeMap::new();
            for number in numbers {
                sketch.add(page(number));
                let count = counts.entry(number).or_default();
                *count = (*count + 1).min(COUNT_MAX);
            }
            for (number, count) in counts {
                prop_assert!(sketch.estimate(page(number)) >= count);
            }
        }
    }

    #[test]
    fn few_estimates_are_above_the_counts() {
        let mut sketch = Sketch::default();
        sketch.reserve(1_000);
        let mut random = Random::stream(1, "pages");
        let mut counts = vec![0_u8; 4_000];
        for _ in 1..SAMPLE_PER_PAGE * 1_000 {
            let number = random.below(4_000) as u32;
            sketch.add(page(number));
            counts[number as usize] += 1;
        }
        let above = (0..4_000).filter(|number| sketch.estimate(page(*number)) > counts[*number as usize]).count();
        assert!(above < 1_000, "{above}: of four times as many pages as the cache has, fewer than a quarter");
    }

    #[test]
    fn it_forgets_what_is_not_missed_any_more() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.estimate(page(1)), 0, "it knows nothing before it has counters");
        sketch.reserve(100);
        (0..40).for_each(|_| sketch.add(page(1)));
        assert_eq!(sketch.estimate(page(1)), COUNT_MAX);
        (0..10_000).for_each(|number| sketch.add(page(2 + number % 100)));
        assert!(sketch.estimate(page(1)) < 3);
        sketch.reserve(100);
        assert!(sketch.estimate(page(50)) > 1, "the same size keeps the counts");
        sketch.reserve(1_000);
        assert_eq!(sketch.estimate(page(50)), 0);
    }
}
