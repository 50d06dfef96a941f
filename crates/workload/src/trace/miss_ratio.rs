//! Miss-ratio curves in one pass and bounded memory: SHARDS (Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC
//! construction with SHARDS", FAST 2015).
//!
//! A page is looked at if a hash of its number is below a threshold, so all references to it are, or none. The stack distance
//! of a reference among the pages that are looked at, divided by their share of all pages, estimates its true one. The
//! threshold is lowered whenever more pages than allowed were seen (fixed-size SHARDS, section 3.3); a reference counts as
//! many times as it stands for pages. While all pages fit, nothing is estimated: the curve is Mattson's.

use super::Trace;
use super::stack_distance::Marks;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BinaryHeap};

/// Takes references one by one and makes a miss-ratio curve of them.
///
/// ```
/// use entresol_workload::trace::miss_ratio::Shards;
///
/// let mut shards = Shards::new(100);
/// [1, 2, 3, 1, 2, 3, 3, 1].into_iter().for_each(|page| shards.reference(page));
/// let curve = shards.curve();
/// assert_eq!(curve.miss_ratio(3), 3.0 / 8.0, "the first reference to each of three pages");
/// assert_eq!(curve.miss_ratio(2), 7.0 / 8.0);
/// ```
#[derive(Debug)]
pub struct Shards {
    pages_max: usize,
    /// Pages whose hash is not above this are looked at.
    threshold: u64,
    /// The pages that are looked at: the time of the latest reference to each.
    latest: HashMap<u64, usize, FixedState>,
    /// The same by their hashes, the largest first.
    by_hash: BinaryHeap<(u64, u64)>,
    marks: Marks,
    /// Which page was referenced at each time; times are numbered anew when there are as many as `marks` has room for.
    times: Vec<u64>,
    distances: BTreeMap<u64, f64>,
    first: f64,
    references: u64,
}

/// A hash of a page's number: the end of SplitMix64 (Steele, Lea and Flood 2014), which mixes all bits.
fn hash(page: u64) -> u64 {
    let mut mixed = page.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Shards {
    /// Looks at no more than this number of pages at once, one at least.
    pub fn new(pages_max: usize) -> Shards {
        let pages_max = pages_max.max(1);
        Shards {
            pages_max,
            threshold: u64::MAX,
            latest: HashMap::with_hasher(FixedState::with_seed(1)),
            by_hash: BinaryHeap::new(),
            marks: Marks::new(2 * pages_max + 2),
            times: Vec::with_capacity(2 * pages_max + 2),
            distances: BTreeMap::new(),
            first: 0.0,
            references: 0,
        }
    }

    /// The share of pages that are looked at, 0 to 1.
    pub fn rate(&self) -> f64 {
        if self.threshold == u64::MAX { 1.0 } else { self.threshold as f64 / 2.0_f64.powi(64) }
    }

    /// The next reference; equal numbers are the same page.
    pub fn reference(&mut self, page: u64) {
        self.references += 1;
        let hash = hash(page);
        if hash > self.threshold {
            return;
        }
        if self.times.len() == 2 * self.pages_max + 2 {
            self.number_anew();
        }
        let (time, weight) = (self.times.len(), 1.0 / self.rate());
        match self.latest.insert(page, time) {
            None => {
                self.first += weight;
                self.by_hash.push((hash, page));
            }
            Some(previous) => {
                let among = self.latest.len() - self.marks.up_to(previous);
                self.marks.add(previous, false);
                *self.distances.entry(self.scaled(among)).or_default() += weight;
            }
        }
        self.marks.add(time, true);
        self.times.push(page);
        if self.latest.len() > self.pages_max {
            self.lower_threshold();
        }
    }

    /// The true distance that is estimated where this number of pages that are looked at lie between. Estimates are rounded
    /// to a few hundredths of a per cent of themselves, so that there are not more of them than memory holds.
    fn scaled(&self, among: usize) -> u64 {
        if self.threshold == u64::MAX {
            return among as u64;
        }
        let distance = (among as f64 / self.rate()) as u64;
        let shift = (64 - distance.leading_zeros()).saturating_sub(12);
        distance >> shift << shift
    }

    /// Gives the pages with the largest hash up.
    fn lower_threshold(&mut self) {
        let largest = self.by_hash.peek().map_or(0, |(hash, _)| *hash);
        while let Some((_, page)) = self.by_hash.peek().copied().filter(|(hash, _)| *hash == largest) {
            self.by_hash.pop();
            let time = self.latest.remove(&page).expect("a page that is looked at was referenced");
            self.marks.add(time, false);
        }
        self.threshold = largest.saturating_sub(1);
    }

    /// Numbers the latest references to pages from zero on, in their order.
    fn number_anew(&mut self) {
        let is_latest = |(time, page): &(usize, u64)| self.latest.get(page) == Some(time);
        let kept: Vec<u64> = self.times.drain(..).enumerate().filter(is_latest).map(|(_, page)| page).collect();
        self.marks = Marks::new(2 * self.pages_max + 2);
        for (time, page) in kept.iter().enumerate() {
            self.marks.add(time, true);
            self.latest.insert(*page, time);
        }
        self.times.extend(kept);
    }

    /// The curve of the references so far.
    pub fn curve(self) -> MissRatioCurve {
        let rate = self.rate();
        let counted: f64 = self.first + self.distances.values().sum::<f64>();
        let mut hits: Vec<(u64, f64)> = Vec::with_capacity(self.distances.len() + 1);
        // What the pages that are looked at lack or have too many of references are the most frequent pages', whose
        // distances are the shortest (section 3.4, SHARDS-adj).
        let mut sum = self.references as f64 - counted;
        if rate < 1.0 {
            hits.push((0, sum));
        } else {
            sum = 0.0;
        }
        for (distance, count) in self.distances {
            sum += count;
            hits.push((distance, sum));
        }
        MissRatioCurve { hits, first: self.first, references: self.references, rate }
    }
}

/// The share of references that miss in a buffer under LRU replacement that is empty at first, by its size.
#[derive(Clone, Debug, PartialEq)]
pub struct MissRatioCurve {
    /// Distances in ascending order, each with how many references have it or a shorter one.
    hits: Vec<(u64, f64)>,
    /// First references to a page.
    first: f64,
    references: u64,
    rate: f64,
}

impl MissRatioCurve {
    /// Of the pages of a trace's references, by looking at no more than this number of pages at once.
    pub fn of_trace(trace: &Trace, pages_max: usize) -> MissRatioCurve {
        let mut shards = Shards::new(pages_max);
        trace.references().iter().for_each(|reference| shards.reference(trace.page_number(*reference)));
        shards.curve()
    }

    /// How many references there are.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// How many different pages were referenced; an estimate if not all were looked at.
    pub fn pages(&self) -> u64 {
        self.first.round() as u64
    }

    /// The share of pages that were looked at in the end, 0 to 1; 1: the curve is exact.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    fn hits(&self, frames: u64) -> f64 {
        let shorter = self.hits.partition_point(|(distance, _)| *distance < frames);
        if shorter == 0 { 0.0 } else { self.hits[shorter - 1].1 }
    }

    fn share(&self, count: f64) -> f64 {
        if self.references == 0 { 0.0 } else { (count / self.references as f64).clamp(0.0, 1.0) }
    }

    /// The share of references, 0 to 1, that miss in a buffer of `frames` pages; 0 if there are no references.
    pub fn miss_ratio(&self, frames: u64) -> f64 {
        self.share(self.references as f64 - self.hits(frames))
    }

    /// The same without first references to pages, which a buffer of any size misses: they say more about the length of what
    /// was seen than about the buffer, whose misses in the long run are at least these.
    pub fn repeated_miss_ratio(&self, frames: u64) -> f64 {
        self.share(self.references as f64 - self.hits(frames) - self.first)
    }

    /// Sizes that double from one to the next, the last the first that holds all pages, each with its miss ratio.
    pub fn doubling(&self, least: u64) -> Vec<(u64, f64)> {
        let sizes = std::iter::successors(Some(least.max(1)), |size| size.checked_mul(2));
        let mut points = Vec::new();
        for size in sizes {
            points.push((size, self.miss_ratio(size)));
            if size >= self.pages() {
                break;
            }
        }
        points
    }
}

#[cfg(test)]
mod tests;
