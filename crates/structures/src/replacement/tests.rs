//! Each policy against a naive one that is written as its paper has it; what all of them keep.

use super::*;
use base::{PartitionId, Random};
use std::collections::{BTreeMap, BTreeSet};

/// The frames of all resident pages and what a naive policy knows of them.
trait Naive {
    fn reference(&mut self, frame: u32, page: PageId, now: u64);
    fn leave(&mut self, frame: u32, is_victim: bool);
    fn order(&self, now: u64) -> Vec<u32>;
}

/// No page.
const GONE: PageId = PageId { partition: PartitionId(3), number: u32::MAX };

fn page(number: u64) -> PageId {
    PageId::new(PartitionId(3), number as u32)
}

/// References, evictions, removals and changes between clean and dirty at random; after each the policy's order is the naive one's,
/// and so is that of the clean and of the dirty pages.
fn agree(name: &str, naive: impl Naive) {
    agrees(name, Policy::named(name).expect("it has this name").build(FRAMES as usize), naive);
}

const FRAMES: u64 = 16;

fn agrees(name: &str, mut policy: Box<dyn Replacement>, mut naive: impl Naive) {
    let mut random = Random::stream(3, name);
    let mut resident: BTreeMap<u32, PageId> = BTreeMap::new();
    let mut dirty: BTreeSet<u32> = BTreeSet::new();
    for _ in 0..20_000 {
        // Some pages are referenced more often than others, and some several times in a row.
        let hottest = 1 + random.below(40);
        let wanted = page(random.below(hottest));
        let held = resident.iter().find(|(_, held)| **held == wanted).map(|(frame, _)| *frame);
        match held {
            Some(frame) if random.below(20) == 0 => {
                policy.remove(frame);
                naive.leave(frame, false);
                resident.remove(&frame);
            }
            Some(frame) => {
                policy.touch(frame);
                naive.reference(frame, wanted, policy.references());
                assert_eq!(policy.latest(frame), policy.references());
            }
            None => {
                let free = (0..FRAMES as u32).find(|frame| !resident.contains_key(frame));
                let frame = free.unwrap_or_else(|| {
                    // Now and then the coldest may not leave, as if it were pinned.
                    let skip = random.below(4) as usize / 3;
                    let victim = coldest(&*policy, skip + 1)[skip];
                    policy.evict(victim);
                    naive.leave(victim, true);
                    resident.remove(&victim);
                    victim
                });
                policy.insert(frame, wanted);
                dirty.remove(&frame);
                naive.reference(frame, wanted, policy.references());
                resident.insert(frame, wanted);
            }
        }
        let frame = random.below(FRAMES) as u32;
        if resident.contains_key(&frame) && random.below(3) == 0 {
            let is_dirty = random.below(2) == 0;
            policy.set_dirty(frame, is_dirty);
            if is_dirty {
                dirty.insert(frame)
            } else {
                dirty.remove(&frame)
            };
        }
        // Most questions see the cold end only, and many references come between them.
        let limit = if random.below(4) == 0 { FRAMES } else { random.below(4) } as usize;
        let expected = naive.order(policy.references());
        assert_eq!(expected.len(), resident.len());
        assert_eq!(coldest(&*policy, limit), expected[..expected.len().min(limit)], "{name}");
        for is_dirty in [false, true] {
            let expected: Vec<u32> =
                expected.iter().copied().filter(|frame| dirty.contains(frame) == is_dirty).collect();
            let found = coldest_of(&*policy, is_dirty, limit, &dirty);
            assert_eq!(found, expected[..expected.len().min(limit)], "{name}, dirty: {is_dirty}");
        }
    }
}

/// The coldest of the dirty or the clean frames, at most `limit`.
fn coldest_of(policy: &dyn Replacement, is_dirty: bool, limit: usize, dirty: &BTreeSet<u32>) -> Vec<u32> {
    let mut order = Vec::new();
    if limit > 0 {
        policy.coldest_of(is_dirty, &mut |frame| {
            if dirty.contains(&frame) == is_dirty {
                order.push(frame);
            }
            order.len() < limit
        });
    }
    order
}

fn coldest(policy: &dyn Replacement, limit: usize) -> Vec<u32> {
    let mut order = Vec::new();
    if limit > 0 {
        policy.coldest(&mut |frame| {
            order.push(frame);
            order.len() < limit
        });
    }
    order
}

#[derive(Default)]
struct NaiveLru(Vec<u32>);

impl Naive for NaiveLru {
    fn reference(&mut self, frame: u32, _: PageId, _: u64) {
        self.0.retain(|listed| *listed != frame);
        self.0.push(frame);
    }

    fn leave(&mut self, frame: u32, _: bool) {
        self.0.retain(|listed| *listed != frame);
    }

    fn order(&self, _: u64) -> Vec<u32> {
        self.0.clone()
    }
}

/// A bit for each frame, and a hand that clears bits until it finds one that is clear.
struct NaiveClock {
    bits: Vec<Option<bool>>,
    hand: usize,
}

impl NaiveClock {
    fn advance(&mut self) {
        self.hand = (self.hand + 1) % self.bits.len();
    }
}

impl Naive for NaiveClock {
    fn reference(&mut self, frame: u32, _: PageId, _: u64) {
        self.bits[frame as usize] = Some(true);
    }

    fn leave(&mut self, frame: u32, is_victim: bool) {
        while is_victim && (self.hand != frame as usize || self.bits[self.hand] == Some(true)) {
            self.bits[self.hand] = self.bits[self.hand].map(|_| false);
            self.advance();
        }
        self.bits[frame as usize] = None;
        if is_victim {
            self.advance();
        }
    }

    fn order(&self, _: u64) -> Vec<u32> {
        let around = || (0..self.bits.len()).map(|step| (self.hand + step) % self.bits.len());
        let with = |bit| around().filter(move |frame| self.bits[*frame] == Some(bit));
        with(false).chain(with(true)).map(|frame| frame as u32).collect()
    }
}

/// All references that count, of every page, and when each left.
#[derive(Default)]
struct NaiveLru2 {
    /// By frame: the page, its references that count in ascending order, its last one of any kind.
    resident: BTreeMap<u32, (PageId, Vec<u64>, u64)>,
    left: Vec<(PageId, u64)>,
}

impl Naive for NaiveLru2 {
    fn reference(&mut self, frame: u32, page: PageId, now: u64) {
        match self.resident.get_mut(&frame) {
            Some((_, counted, last)) => {
                if now - *last > 32 {
                    *counted.last_mut().expect("it was referenced") = *last;
                    counted.push(now);
                }
                *last = now;
            }
            None => {
                let recent = self.left.iter().rev().take(16);
                let before = recent.clone().find(|(left, _)| *left == page).map(|(_, last)| *last);
                self.left.iter_mut().filter(|(left, _)| *left == page).for_each(|(left, _)| *left = GONE);
                self.resident.insert(frame, (page, before.into_iter().chain([now]).collect(), now));
            }
        }
    }

    fn leave(&mut self, frame: u32, is_victim: bool) {
        let (page, _, last) = self.resident.remove(&frame).expect("it is resident");
        if is_victim {
            self.left.push((page, last));
        }
    }

    fn order(&self, now: u64) -> Vec<u32> {
        let key = |frame: &u32| {
            let (_, counted, last) = &self.resident[frame];
            let mut latest = counted.iter().rev().copied();
            let (first, second) = (latest.next().unwrap_or(0), latest.next().unwrap_or(0));
            (now - last <= 32, second, first)
        };
        let mut frames: Vec<u32> = self.resident.keys().copied().collect();
        frames.sort_by_key(key);
        frames
    }
}

#[test]
fn lru_agrees_with_a_list() {
    agree("lru", NaiveLru::default());
}

#[test]
fn sparse_lru_agrees_with_a_list() {
    agrees("lru", Policy::sparse_lru(FRAMES as usize), NaiveLru::default());
}

#[test]
fn clock_agrees_with_bits_and_a_hand() {
    agree("clock", NaiveClock { bits: vec![None; 16], hand: 0 });
}

#[test]
fn lru_2_agrees_with_all_references() {
    agree("lru-2", NaiveLru2::default());
}

#[test]
fn lru_2_looks_at_no_dirty_page_for_a_clean_one() {
    let mut policy = Policy::named("lru-2").expect("it has this name").build(100);
    (0..100).for_each(|frame| policy.insert(frame, page(frame.into())));
    (0..100).filter(|frame| frame % 10 != 0).for_each(|frame| policy.set_dirty(frame, true));
    for is_dirty in [false, true] {
        let mut visited = Vec::new();
        policy.coldest_of(is_dirty, &mut |frame| {
            visited.push(frame);
            true
        });
        assert!(visited.iter().all(|frame| (frame % 10 != 0) == is_dirty), "{visited:?}");
        assert_eq!(visited.len(), if is_dirty { 90 } else { 10 });
    }
}

/// Pages that are used again and again survive a scan of others where the policy says so.
#[test]
fn lru_2_keeps_what_a_scan_pushes_out_of_lru() {
    let hits = |name: &str| {
        const FRAMES: u32 = 100;
        let mut policy = Policy::named(name).expect("it has this name").build(FRAMES as usize);
        let mut resident: BTreeMap<PageId, u32> = BTreeMap::new();
        let (mut hits, mut free) = (0, (0..FRAMES).collect::<Vec<_>>());
        for round in 0..200_u64 {
            // 40 pages of an index, then 100 pages of a scan that are never seen again.
            for wanted in (0..40).chain((0..100).map(|step| 1_000 + 100 * round + step)).map(page) {
                if let Some(frame) = resident.get(&wanted) {
                    policy.touch(*frame);
                    hits += 1;
                    continue;
                }
                let frame = free.pop().unwrap_or_else(|| {
                    let victim = coldest(&*policy, 1)[0];
                    policy.evict(victim);
                    resident.retain(|_, frame| *frame != victim);
                    victim
                });
                policy.insert(frame, wanted);
                resident.insert(wanted, frame);
            }
        }
        hits
    };
    assert_eq!(hits("lru"), 0, "each page of the index is pushed out before it comes again");
    assert!(hits("lru-2") > 190 * 40, "{}", hits("lru-2"));
}

#[test]
fn a_page_that_leaves_early_changes_nothing_for_the_others() {
    for policy in POLICIES {
        let mut replacement = policy.build(8);
        (0..8).for_each(|frame| replacement.insert(frame, PageId::new(PartitionId(1), frame)));
        [1, 4, 6].into_iter().for_each(|frame| replacement.touch(frame));
        let order = |replacement: &dyn Replacement| {
            let mut order = Vec::new();
            replacement.coldest(&mut |frame| {
                order.push(frame);
                true
            });
            order
        };
        let before = order(&*replacement);
        replacement.evict_early(before[5]);
        replacement.evict_early(before[2]);
        let others: Vec<u32> = before.iter().copied().filter(|frame| ![before[2], before[5]].contains(frame)).collect();
        assert_eq!(order(&*replacement), others, "{}", policy.name());
    }
}
