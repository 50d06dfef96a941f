//! Stack distances (Mattson, Gecsei, Slutz and Traiger 1970): for each reference the number of different pages referenced
//! since the page's previous one. A buffer of `n` pages under LRU replacement hits exactly the references whose distance is
//! below `n`, so one pass gives the hit ratios of all sizes. Bennett and Kruskal (1975) count with a tree of sums over time,
//! which makes a reference cost the logarithm of their number.

use super::Trace;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// How many references have which stack distance.
///
/// ```
/// use entresol_workload::trace::stack_distance::StackDistances;
///
/// let pages = [1, 2, 3, 1, 2, 3, 3, 1];
/// let distances = StackDistances::of(pages.into_iter());
/// assert_eq!(distances.pages(), 3);
/// assert_eq!([1, 2, 3].map(|frames| distances.hits(frames)), [1, 1, 5], "under LRU, for every size at once");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackDistances {
    /// References by distance.
    counts: Vec<u64>,
    /// First references to a page.
    first: u64,
}

impl StackDistances {
    /// Of a sequence of pages; equal numbers are the same page.
    pub fn of(pages: impl ExactSizeIterator<Item = u64>) -> StackDistances {
        let mut marks = Marks::new(pages.len());
        let mut latest: HashMap<u64, usize, FixedState> = HashMap::with_hasher(FixedState::with_seed(1));
        let mut distances = StackDistances { counts: Vec::new(), first: 0 };
        for (time, page) in pages.enumerate() {
            match latest.insert(page, time) {
                None => distances.first += 1,
                Some(previous) => {
                    // Each page is marked at its latest reference: the marks behind the previous one are the pages since.
                    let distance = latest.len() - marks.up_to(previous);
                    marks.add(previous, false);
                    if distances.counts.len() <= distance {
                        distances.counts.resize(distance + 1, 0);
                    }
                    distances.counts[distance] += 1;
                }
            }
            marks.add(time, true);
        }
        distances
    }

    /// Of the pages of a trace's references.
    pub fn of_trace(trace: &Trace) -> StackDistances {
        let pages = trace.references().iter().map(|reference| trace.page_number(*reference));
        StackDistances::of(pages)
    }

    /// How many references there are.
    pub fn references(&self) -> u64 {
        self.first + self.counts.iter().sum::<u64>()
    }

    /// How many pages there are.
    pub fn pages(&self) -> u64 {
        self.first
    }

    /// How many references hit in a buffer of `frames` pages that is empty at first.
    pub fn hits(&self, frames: usize) -> u64 {
        self.counts.iter().take(frames).sum()
    }

    /// The share of references, 0 to 1, that hit in a buffer of `frames` pages.
    pub fn hit_ratio(&self, frames: usize) -> f64 {
        let references = self.references();
        if references == 0 { 0.0 } else { self.hits(frames) as f64 / references as f64 }
    }
}

/// Marks on points in time, with their number up to any point (Fenwick 1994).
#[derive(Debug)]
pub(super) struct Marks(Vec<u32>);

impl Marks {
    pub fn new(length: usize) -> Marks {
        Marks(vec![0; length + 1])
    }

    /// Sets a mark, or removes the one that is there.
    pub fn add(&mut self, time: usize, set: bool) {
        let mut at = time + 1;
        while at < self.0.len() {
            self.0[at] = if set { self.0[at] + 1 } else { self.0[at] - 1 };
            at += at & at.wrapping_neg();
        }
    }

    /// How many marks are at this time and before.
    pub fn up_to(&self, time: usize) -> usize {
        let (mut at, mut sum) = (time + 1, 0);
        while at > 0 {
            sum += self.0[at] as usize;
            at &= at - 1;
        }
        sum
    }

    /// The position of the set mark that has `count` others before it.
    pub fn nth(&self, mut count: usize) -> usize {
        let mut at = 0;
        let mut step = self.0.len().next_power_of_two();
        while step > 0 {
            let next = at + step;
            if next < self.0.len() && self.0[next] as usize <= count {
                at = next;
                count -= self.0[next] as usize;
            }
            step /= 2;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    /// The hits of an LRU list of `frames` pages, computed naively.
    fn naive(pages: &[u64], frames: usize) -> u64 {
        let (mut list, mut hits) = (Vec::new(), 0);
        for page in pages {
            if let Some(at) = list.iter().position(|known| known == page) {
                hits += u64::from(at < frames);
                list.remove(at);
            }
            list.insert(0, *page);
        }
        hits
    }

    #[test]
    fn hits_are_those_of_an_lru_list_of_every_size() {
        let mut random = Random::stream(1, "distances");
        for pages in [1, 3, 20, 60] {
            let sequence: Vec<u64> = (0..400).map(|_| random.below(pages).min(random.below(pages))).collect();
            let distances = StackDistances::of(sequence.iter().copied());
            assert_eq!(distances.references(), 400);
            for frames in 0..70 {
                assert_eq!(distances.hits(frames), naive(&sequence, frames), "{pages} {frames}");
            }
        }
        assert_eq!(StackDistances::of([].into_iter()).hit_ratio(5), 0.0);
    }

    #[test]
    fn marks_are_counted_and_found() {
        let mut random = Random::stream(2, "marks");
        for length in [1, 7, 8, 100] {
            let mut marks = Marks::new(length);
            let mut plain = vec![false; length];
            for _ in 0..300 {
                let time = random.below(length as u64) as usize;
                plain[time] = !plain[time];
                marks.add(time, plain[time]);
                let times: Vec<usize> = (0..length).filter(|time| plain[*time]).collect();
                for (count, time) in times.iter().enumerate() {
                    assert_eq!(marks.nth(count), *time);
                    assert_eq!(marks.up_to(*time), count + 1);
                }
            }
        }
    }
}
