//! The designs of Do et al. (2011), and those beside which they stand there, against their rules on a plain list. Which page leaves is the first that may in the order of
//! the slots; that order is tested where it is made.

use super::page;
use crate::second_level::design::sketch::Sketch;
use crate::second_level::design::{CachePolicy, Decision, Leaving, Outdated, Pattern, Read, Reason, Setting};
use crate::second_level::slots::{DestageEnd, Room, Slots};
use crate::second_level::{DESIGNS, Design, Parameters, Tier};
use base::{Lsn, Random};
use std::collections::{BTreeMap, BTreeSet};

/// A page in main memory.
#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u32,
    dirty: bool,
    modified: bool,
    pattern: Pattern,
}

/// A cached page, and whether its own device lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cached {
    page: u32,
    dirty: bool,
}

/// Which cached page makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// The coldest clean one, or the coldest of all.
    Clean,
    /// The one in the next slot.
    Next,
    /// One of the coldest extent.
    Extent,
}

/// What a design does with a page, in plain words.
struct Rules {
    name: &'static str,
    /// Whether a page may be in main memory and in the cache.
    is_inclusive: bool,
    /// Whether it takes only what was read at random once it was filled.
    is_choosy: bool,
    /// Whether, once it is filled, of unchanged pages only those enter that are missed more often than what leaves, which is the
    /// least missed of the first clean ones. The cache counts as persistent.
    is_by_frequency: bool,
    /// Whether a page enters that was changed in main memory.
    takes_changed: bool,
    /// Whether it stays dirty then, and what a checkpoint writes goes past the cache.
    stays_dirty: bool,
    /// Which page makes room.
    leaves: Leaves,
}

const USUAL: Rules = Rules {
    name: "clean-write",
    is_inclusive: true,
    is_choosy: true,
    is_by_frequency: false,
    takes_changed: false,
    stays_dirty: false,
    leaves: Leaves::Clean,
};

const RULES: [Rules; 7] = [
    USUAL,
    Rules { name: "dual-write", takes_changed: true, ..USUAL },
    Rules { name: "lazy-cleaning", takes_changed: true, stays_dirty: true, ..USUAL },
    Rules { name: "frequency", is_by_frequency: true, takes_changed: true, stays_dirty: true, ..USUAL },
    Rules { name: "tac", leaves: Leaves::Extent, ..USUAL },
    Rules { name: "rotating", is_choosy: false, takes_changed: true, stays_dirty: true, leaves: Leaves::Next, ..USUAL },
    Rules { name: "exclusive", is_inclusive: false, is_choosy: false, takes_changed: true, stays_dirty: true, ..USUAL },
];

/// Main memory and the slots as the room uses them, beside a plain list of what is cached.
struct Pair {
    rules: &'static Rules,
    memory: Vec<Frame>,
    frames: usize,
    slots: Slots,
    policy: Box<dyn CachePolicy>,
    cached: BTreeSet<Cached>,
    threshold: usize,
    is_filled: bool,
    served: usize,
    cleaned: usize,
    /// The temperatures of extents, in tenths of a millisecond.
    heat: BTreeMap<u32, u64>,
    /// How often pages were missed; it is tested for itself.
    misses: Sketch,
    /// The slot that a circular design writes next.
    next: u32,
    /// Pages in main memory that only the cache had when they were read.
    both: BTreeSet<u32>,
}

impl Pair {
    fn new(rules: &'static Rules, (frames, slots): (usize, u32), parameters: Parameters) -> Pair {
        let design = Design::named(rules.name).expect("it has this name");
        let policy = design.build(&Setting { force: false, parameters });
        let threshold = (slots as usize * usize::from(parameters.fill_threshold_percent)).div_ceil(100);
        Pair {
            rules,
            memory: Vec::new(),
            frames,
            slots: Slots::new(slots, 0, policy.order(slots as usize)),
            policy,
            cached: BTreeSet::new(),
            threshold,
            is_filled: false,
            served: 0,
            cleaned: 0,
            heat: BTreeMap::new(),
            misses: Sketch::default(),
            next: 0,
            both: BTreeSet::new(),
        }
    }

    fn find(&self, number: u32) -> Option<Cached> {
        self.cached.iter().copied().find(|cached| cached.page == number)
    }

    fn is_tac(&self) -> bool {
        self.rules.leaves == Leaves::Extent
    }

    fn heat_of(&self, number: u32) -> u64 {
        self.heat.get(&(number / 32)).copied().unwrap_or(0)
    }

    /// A page that is not in main memory is read.
    fn miss(&mut self, number: u32, pattern: Pattern) {
        let read = Read { page: page(number), pattern };
        *self.heat.entry(number / 32).or_default() += if pattern == Pattern::Random { 7_800 } else { 240 };
        let is_cached = self.slots.lookup(page(number)).is_some();
        if is_cached || pattern == Pattern::Random {
            self.misses.reserve(self.slots.contents().capacity());
            self.misses.add(page(number));
        }
        let Some(slot) = self.slots.lookup(page(number)) else {
            assert_eq!(self.find(number), None, "page {number} is cached and not served");
            self.is_filled |= self.cached.len() >= self.threshold;
            let coldest = self.cached.iter().map(|cached| self.heat_of(cached.page)).min();
            let is_hotter = coldest.is_none_or(|coldest| self.heat_of(number) > coldest);
            let is_taken = self.is_tac() && (!self.is_filled || is_hotter);
            let decision = self.policy.on_read(&read, &self.slots.contents());
            assert_eq!(decision, if is_taken { Decision::WriteThrough } else { Decision::Skip });
            if is_taken {
                let slot = self.take(number);
                self.slots.filled_clean(slot, page(number), true);
                self.cached.insert(Cached { page: number, dirty: false });
            }
            return;
        };
        let cached = self.find(number).unwrap_or_else(|| panic!("page {number} is served and not cached"));
        self.policy.on_hit(&read);
        self.slots.begin_read(slot);
        self.slots.end_read(slot, !self.policy.is_inclusive());
        if !self.rules.is_inclusive {
            _ = if cached.dirty { self.both.insert(number) } else { self.cached.remove(&cached) };
        }
        self.served += 1;
    }

    fn refer(&mut self, number: u32, write: bool, pattern: Pattern) {
        if let Some(at) = self.memory.iter().position(|frame| frame.page == number) {
            let frame = self.memory.remove(at);
            self.memory.push(frame);
        } else {
            self.miss(number, pattern);
            if self.memory.len() == self.frames {
                let leaving = self.memory.remove(0);
                self.leave(leaving, Reason::Replacement);
            }
            self.memory.push(Frame { page: number, dirty: false, modified: false, pattern });
        }
        let is_tac = self.is_tac();
        let frame = self.memory.last_mut().expect("just referenced");
        if write {
            if !frame.dirty && self.slots.lookup(page(number)).is_some() {
                let becomes = self.policy.on_update(page(number));
                assert_eq!(becomes, if is_tac { Outdated::Kept } else { Outdated::Freed });
                if becomes == Outdated::Freed {
                    self.slots.outdate(page(number));
                    self.cached.retain(|cached| cached.page != number);
                }
            }
            (frame.dirty, frame.modified) = (true, true);
        }
    }

    /// A page leaves main memory, or is written by a checkpoint and stays there.
    fn leave(&mut self, frame: Frame, reason: Reason) {
        let Frame { page: number, dirty, modified, pattern } = frame;
        self.both.remove(&number);
        if !dirty && self.slots.refresh(page(number), self.policy.is_used_when_it_leaves()) {
            assert!(self.find(number).is_some());
            return;
        }
        let is_checkpoint = reason == Reason::Background;
        self.is_filled |= self.cached.len() >= self.threshold;
        let is_wanted = match self.is_tac() {
            true => dirty && self.find(number).is_some(),
            false if self.rules.is_by_frequency => {
                let is_filling = self.cached.len() < self.threshold;
                dirty || is_filling || pattern == Pattern::Random && self.is_worth_a_place(number)
            }
            false => !self.is_filled || pattern == Pattern::Random || !self.rules.is_choosy,
        };
        let is_fit = self.rules.takes_changed || !modified || self.is_tac();
        let is_past = is_checkpoint && self.rules.stays_dirty && !self.rules.is_by_frequency;
        let leaving = Leaving { page: page(number), dirty, modified, reason, pattern };
        let decision = self.policy.on_eviction(&leaving, &self.slots.contents());
        if !is_wanted || !is_fit || is_past {
            assert_eq!(decision, Decision::Skip, "{leaving:?}");
            return;
        }
        let stays_dirty = dirty && self.rules.stays_dirty;
        assert_ne!(decision, Decision::Skip, "{leaving:?}");
        let slot = self.take(number);
        if dirty {
            let at_once = decision == Decision::WriteThrough;
            assert_eq!(at_once, !stays_dirty);
            let filled = self.slots.filled_dirty(slot, page(number), (Lsn(1), true), at_once);
            assert_eq!((filled.destage, filled.superseded), (at_once, None));
            if at_once {
                assert_eq!(self.slots.destaged(slot, DestageEnd::Written), None);
            }
        } else {
            self.slots.filled_clean(slot, page(number), true);
        }
        self.cached.insert(Cached { page: number, dirty: stays_dirty });
    }

    /// Whether the page is missed more often than the one that is to leave.
    fn is_worth_a_place(&self, number: u32) -> bool {
        let leaves = self.next_clean().map(|leaves| self.misses.estimate(page(leaves.page)));
        leaves.is_none_or(|leaves| self.misses.estimate(page(number)) > leaves)
    }

    /// The clean page that is to leave: the first, or by frequency the least missed of the first eight.
    fn next_clean(&self) -> Option<Cached> {
        let in_order: Vec<Cached> = self.slots.listed().iter().filter_map(|page| self.find(page.number)).collect();
        let mut clean = in_order.into_iter().filter(|cached| !cached.dirty);
        match self.rules.is_by_frequency {
            true => clean.take(8).min_by_key(|cached| self.misses.estimate(page(cached.page))),
            false => clean.next(),
        }
    }

    fn take(&mut self, number: u32) -> u32 {
        let capacity = self.slots.contents().capacity();
        let is_full = self.cached.len() == capacity as usize && self.find(number).is_none();
        let order: Vec<Cached> = self.slots.listed().iter().filter_map(|page| self.find(page.number)).collect();
        loop {
            let leaves = self.next_clean();
            match self.slots.take(Tier::Cache, page(number), &mut *self.policy) {
                Room::Slot(slot) if self.rules.leaves == Leaves::Next => {
                    assert_eq!(slot, self.next, "the slots are written in turn");
                    self.next = (slot + 1) % capacity;
                    self.cached.retain(|cached| self.slots.lookup(page(cached.page)).is_some());
                    return slot;
                }
                Room::Slot(slot) if self.is_tac() => {
                    let lacks = |cached: &&Cached| self.slots.lookup(page(cached.page)).is_none();
                    let left: Vec<u32> = self.cached.iter().filter(lacks).map(|cached| cached.page).collect();
                    if is_full {
                        let coldest = self.cached.iter().map(|cached| self.heat_of(cached.page)).min();
                        assert_eq!(left.iter().map(|number| self.heat_of(*number)).min(), coldest);
                        assert_eq!(left.len(), 1);
                    } else {
                        assert!(left.is_empty() || left == [number], "{left:?} left for {number}");
                    }
                    self.cached.retain(|cached| !left.contains(&cached.page));
                    return slot;
                }
                Room::Slot(slot) => {
                    if is_full {
                        // The one that was cleaned, if none was clean.
                        let victim = leaves.expect("one was clean");
                        assert_eq!(self.slots.lookup(page(victim.page)), None, "page {} has to leave", victim.page);
                        self.cached.retain(|cached| cached.page != victim.page);
                    }
                    return slot;
                }
                Room::Dirty(victim) => {
                    if self.rules.leaves == Leaves::Clean {
                        assert_eq!(order.first().map(|cached| cached.page), Some(victim.number));
                        assert!(order.iter().all(|cached| cached.dirty), "a clean one leaves before");
                    }
                    self.clean(vec![self.slots.lookup(victim).expect("it is cached")]);
                }
                room => panic!("nothing is under way, and there are no groups: {room:?}"),
            }
        }
    }

    fn clean(&mut self, group: Vec<u32>) {
        for slot in group {
            let number = self.slots.page_of(slot).number;
            assert!(self.cached.remove(&Cached { page: number, dirty: true }), "page {number} is not dirty");
            self.cached.insert(Cached { page: number, dirty: false });
            assert!(self.slots.begin_destage(slot));
            assert_eq!(self.slots.destaged(slot, DestageEnd::Written), None);
            self.cleaned += 1;
        }
    }

    /// The cleaner works as far as it may.
    fn clean_excess(&mut self) {
        let Some(max) = self.policy.dirty_max(self.slots.contents().capacity()) else {
            return assert!(self.slots.dirty_count() == 0 || self.rules.stays_dirty);
        };
        if self.slots.dirty_count() <= max.above as usize {
            return;
        }
        while self.slots.dirty_count() > max.down_to as usize {
            let group = self.slots.coldest_group(self.policy.group_pages()).expect("nothing is under way");
            let numbers: Vec<u32> = group.iter().map(|slot| self.slots.page_of(*slot).number).collect();
            let order = self.slots.listed();
            let coldest = order.iter().find(|page| self.find(page.number).is_some_and(|cached| cached.dirty));
            assert!(numbers.contains(&coldest.expect("some are dirty").number), "{numbers:?}");
            assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?} do not lie side by side");
            assert!(numbers.len() <= self.policy.group_pages() as usize);
            let beside = |number: Option<u32>| number.and_then(|number| self.find(number));
            if numbers.len() < self.policy.group_pages() as usize {
                let ends = [numbers[0].checked_sub(1), numbers.last().map(|last| last + 1)];
                assert!(!ends.into_iter().filter_map(beside).any(|cached| cached.dirty), "{numbers:?} leave one out");
            }
            self.clean(group);
        }
    }

    /// A checkpoint writes what main memory and the cache have changed.
    fn checkpoint(&mut self) {
        self.slots.begin_checkpoint();
        for at in 0..self.memory.len() {
            if self.memory[at].dirty {
                self.leave(self.memory[at], Reason::Background);
                self.memory[at].dirty = false;
            }
        }
        let dirty: Vec<_> = self.cached.iter().filter(|cached| cached.dirty).map(|cached| page(cached.page)).collect();
        assert_eq!(self.policy.cleans_at_checkpoint(), !self.rules.is_by_frequency);
        if self.policy.cleans_at_checkpoint() {
            for group in self.slots.groups(&dirty, self.policy.group_pages()) {
                self.clean(group);
            }
            assert_eq!(self.slots.dirty_count(), 0);
        }
        self.slots.end_checkpoint();
    }

    fn check(&self) {
        self.slots.check().expect("consistent");
        let listed: BTreeSet<u32> = self.slots.listed().iter().map(|page| page.number).collect();
        let cached: BTreeSet<u32> = self.cached.iter().map(|cached| cached.page).collect();
        assert_eq!(listed, cached);
        for Cached { page: number, dirty } in &self.cached {
            assert_eq!(self.slots.pending_destage(page(*number)).is_some(), *dirty, "page {number}");
            let in_memory = self.memory.iter().find(|frame| frame.page == *number);
            let is_outdated = in_memory.is_some_and(|frame| frame.dirty);
            assert!(!is_outdated || self.is_tac(), "page {number} is newer in main memory");
            assert!(self.rules.is_inclusive || in_memory.is_none() || self.both.contains(number));
        }
    }
}

fn assert_kept(rules: &'static Rules) {
    for (dirty_max_percent, group_pages) in [(50, 32), (0, 1), (100, 3), (30, 2)] {
        for (frames, slots, fill_threshold_percent) in [(4, 3, 95), (3, 20, 0), (3, 20, 95), (8, 8, 100)] {
            let parameters = Parameters { fill_threshold_percent, dirty_max_percent, group_pages, throttle: 100 };
            let mut random = Random::stream(u64::from(slots), rules.name);
            let mut pair = Pair::new(rules, (frames, slots), parameters);
            for _ in 0..2_000 {
                let number = if random.chance(0.6) { random.below(6) } else { random.below(30) } as u32;
                // In several extents, or side by side.
                let number = if pair.is_tac() { number * 7 } else { number };
                let pattern = if random.chance(0.7) { Pattern::Random } else { Pattern::Sequential };
                pair.refer(number, random.chance(0.4), pattern);
                pair.clean_excess();
                if rules.is_choosy && rules.stays_dirty {
                    let dirty = 100 * pair.slots.dirty_count() as u64;
                    assert!(dirty <= u64::from(slots) * u64::from(dirty_max_percent), "{} percent slots dirty", dirty);
                }
                if random.chance(0.01) {
                    pair.checkpoint();
                }
                pair.check();
            }
            assert!(pair.served > 20, "{} of {frames} frames, {slots} slots: {} served", rules.name, pair.served);
            assert_eq!(pair.cleaned > 20, rules.stays_dirty, "{} cleaned", pair.cleaned);
        }
    }
}

#[test]
fn designs_keep_their_rules() {
    RULES.iter().for_each(assert_kept);
}

#[cfg(feature = "canary")]
#[test]
fn a_design_that_breaks_its_promise_is_found() {
    use structures::canary::{Canary, plant};
    for rules in &RULES {
        plant(Some(Canary::BrokenPromise));
        let found = std::panic::catch_unwind(|| assert_kept(rules));
        plant(None);
        assert!(found.is_err(), "nothing notices it of {}", rules.name);
    }
}

#[test]
fn every_design_has_its_rules() {
    let has = |design: &Design| {
        // Those with tests of their own.
        let is_other = design.name().starts_with("migrate-") || design.name() == "face";
        is_other || RULES.iter().any(|rules| rules.name == design.name())
    };
    assert!(DESIGNS.iter().all(has), "a design of the list is not tested against plain lists");
}
