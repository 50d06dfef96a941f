mod designs;
mod face;

use super::design::{CachePolicy, Contents, Decision, Leaving, Pattern, Reason, Setting};
use super::slots::{DestageEnd, Filled, PendingDestage, Room, Slots};
use super::{DESIGNS, Tier};
use base::{Lsn, PageId, PartitionId, Random};
use std::collections::{BTreeMap, BTreeSet};
use structures::replacement::{Policy, Replacement};

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(0), number)
}

fn lru(slots: u32) -> Box<dyn Replacement> {
    Policy::default().build(slots as usize)
}

/// Main memory in front of the slots, as the buffer uses them; writes to the pages' own devices end at once.
struct Engine {
    memory: Vec<Frame>,
    frames: usize,
    slots: Slots,
    policy: Box<dyn CachePolicy>,
    force: bool,
}

#[derive(Clone, Copy)]
struct Frame {
    page: u32,
    dirty: bool,
    modified: bool,
}

impl Engine {
    /// True if the cache served the reference.
    fn refer(&mut self, number: u32, write: bool) -> bool {
        let mut served = false;
        if let Some(at) = self.memory.iter().position(|frame| frame.page == number) {
            let frame = self.memory.remove(at);
            self.memory.push(frame);
        } else {
            if let Some(slot) = self.slots.lookup(page(number)) {
                self.slots.begin_read(slot);
                self.slots.end_read(slot, !self.force);
                served = true;
            }
            if self.memory.len() == self.frames {
                self.replace();
            }
            self.memory.push(Frame { page: number, dirty: false, modified: false });
        }
        if write {
            let frame = self.memory.last_mut().expect("just referenced");
            (frame.dirty, frame.modified) = (true, true);
            if self.force {
                frame.dirty = false;
                self.write(number, true);
            }
        }
        served
    }

    fn admits(&mut self, number: u32, dirty: bool, modified: bool) -> bool {
        let reason = if self.force { Reason::Force } else { Reason::Replacement };
        let leaving = Leaving { page: page(number), dirty, modified, reason, pattern: Pattern::Random };
        let decision = self.policy.on_eviction(&leaving, &self.slots.contents());
        assert_ne!(decision, Decision::WriteBack, "what is changed is on its way to its own device at once");
        decision == Decision::WriteThrough
    }

    fn take(&mut self, number: u32) -> u32 {
        let room = self.slots.take(Tier::Cache, page(number), &mut *self.policy);
        let Room::Slot(slot) = room else { panic!("nothing is pending: {room:?}") };
        slot
    }

    fn replace(&mut self) {
        let Frame { page: number, dirty, modified } = self.memory.remove(0);
        if dirty {
            self.write(number, true);
        } else if !self.slots.refresh(page(number), true) && self.admits(number, false, modified) {
            let slot = self.take(number);
            self.slots.filled_clean(slot, page(number), true);
        }
    }

    fn write(&mut self, number: u32, listed: bool) {
        if self.admits(number, true, true) {
            let slot = self.take(number);
            let filled = self.slots.filled_dirty(slot, page(number), (Lsn(1), listed), true);
            assert_eq!(filled, Filled { destage: true, superseded: None });
            assert_eq!(self.slots.destaged(slot, DestageEnd::Written), None);
        } else {
            self.slots.forget(page(number));
        }
    }
}

/// The same rules on two plain lists, the coldest first.
struct Naive {
    memory: Vec<Frame>,
    cache: Vec<u32>,
    frames: usize,
    size: usize,
    /// Whether unmodified and modified pages enter the cache.
    admitted: [bool; 2],
    force: bool,
}

impl Naive {
    fn admits(&self, modified: bool) -> bool {
        self.admitted[usize::from(modified)]
    }

    fn enter(&mut self, number: u32) {
        self.cache.retain(|cached| *cached != number);
        self.cache.push(number);
        if self.cache.len() > self.size {
            self.cache.remove(0);
        }
    }

    fn write(&mut self, number: u32) {
        if self.admits(true) {
            self.enter(number);
        } else {
            self.cache.retain(|cached| *cached != number);
        }
    }

    fn refer(&mut self, number: u32, write: bool) -> bool {
        let mut served = false;
        let mut frame = Frame { page: number, dirty: false, modified: false };
        if let Some(at) = self.memory.iter().position(|frame| frame.page == number) {
            frame = self.memory.remove(at);
        } else {
            served = self.cache.contains(&number);
            if served && self.force {
                self.enter(number);
            } else {
                self.cache.retain(|cached| *cached != number);
            }
            if self.memory.len() == self.frames {
                let Frame { page: left, dirty, modified } = self.memory.remove(0);
                if dirty {
                    self.write(left);
                } else if self.cache.contains(&left) || self.admits(modified) {
                    self.enter(left);
                }
            }
        }
        frame.modified |= write;
        frame.dirty |= write && !self.force;
        self.memory.push(frame);
        if write && self.force {
            self.write(number);
        }
        served
    }
}

#[test]
fn every_design_agrees_with_plain_lists() {
    let admitted = [[true, true], [false, true], [true, false]];
    let migrating = DESIGNS.iter().filter(|design| design.name().starts_with("migrate-"));
    for (design, admitted) in migrating.zip(admitted) {
        for force in [false, true] {
            for (frames, size) in [(4, 1), (3, 7), (8, 8), (10, 4)] {
                let mut random = Random::stream(size as u64, "hierarchy");
                let mut engine = Engine {
                    memory: Vec::new(),
                    frames,
                    slots: Slots::new(size as u32, 0, lru(size as u32)),
                    policy: design.build(&Setting { force, ..Setting::default() }),
                    force,
                };
                let mut naive = Naive { memory: Vec::new(), cache: Vec::new(), frames, size, admitted, force };
                let mut served = 0;
                for step in 0..3_000 {
                    let number = if random.chance(0.6) { random.below(6) } else { random.below(30) } as u32;
                    let write = random.chance(0.4);
                    let hit = engine.refer(number, write);
                    let what = format!("{design:?}, force {force}, {frames} frames, {size} slots, step {step}");
                    assert_eq!(hit, naive.refer(number, write), "{what}");
                    let listed: Vec<u32> = engine.slots.listed().iter().map(|page| page.number).collect();
                    assert_eq!(listed, naive.cache, "{what}");
                    engine.slots.check().expect(&what);
                    served += u32::from(hit);
                    if !force {
                        let both = engine.memory.iter().any(|frame| naive.cache.contains(&frame.page));
                        assert!(!both, "a page is in memory or in the cache: {what}");
                    }
                }
                assert!(served > 50, "{design:?}, force {force}, {frames} frames, {size} slots: {served} served");
            }
        }
    }
}

/// A design under which every page enters, and what was changed stays dirty. It gives up the coldest page of all, or the
/// coldest clean one.
struct Lazy {
    gives_up_dirty: bool,
}

impl CachePolicy for Lazy {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, _: &Leaving, _: &Contents<'_>) -> Decision {
        Decision::WriteBack
    }

    fn victim(&mut self, contents: &Contents<'_>) -> Option<u32> {
        let mut first = None;
        contents.coldest(&mut |candidate| {
            first = first.or(Some(candidate.slot));
            false
        });
        if self.gives_up_dirty { first } else { contents.coldest_clean() }
    }
}

/// What stands in the slots and on the pages' own device, by version.
#[derive(Default)]
struct World {
    contents: BTreeMap<u32, (u32, u64)>,
    destaging: Vec<u32>,
    device: BTreeMap<u32, u64>,
    newest: BTreeMap<u32, u64>,
    /// Where redo of pages begins that are newer in main memory than a copy they have replaced.
    memory: BTreeMap<u32, Lsn>,
    /// Pages that a failed write has torn on their own device.
    torn: BTreeSet<u32>,
    /// The cached pages and whether they are dirty, the coldest first.
    cached: Vec<(u32, bool)>,
}

impl World {
    fn start(&mut self, slots: &Slots, slot: u32) {
        let page = slots.page_of(slot).number;
        let same = |other: &&u32| self.contents[*other].0 == page;
        assert_eq!(self.destaging.iter().find(same), None, "two versions of page {page} are on their way");
        self.destaging.push(slot);
    }

    /// A write to the pages' own device ends.
    fn end(&mut self, slots: &mut Slots, at: usize, end: DestageEnd) {
        let slot = self.destaging.swap_remove(at);
        let (number, version) = self.contents[&slot];
        match end {
            DestageEnd::Written => {
                let before = self.device.insert(number, version);
                assert!(before < Some(version), "an older version overtakes a newer one");
                self.torn.remove(&number);
            }
            DestageEnd::Failed => _ = self.torn.insert(number),
            DestageEnd::Unreadable | DestageEnd::NotBegun => {}
        }
        if let Some(next) = slots.destaged(slot, end) {
            self.start(slots, next);
        }
    }

    /// The newest version of each page is on its own device or in a slot, and the log has what makes it anew in case it is
    /// only there.
    fn check(&self, slots: &Slots) {
        slots.check().expect("consistent");
        for (number, version) in &self.newest {
            let on_device = self.device.get(number) == Some(version);
            let slot = slots.lookup(page(*number));
            let in_slot = slot.is_some_and(|slot| self.contents[&slot] == (*number, *version));
            let in_memory = self.memory.get(number);
            assert!(on_device || in_slot || in_memory.is_some(), "page {number} of version {version} is nowhere");
            let begins = [slots.recovery_lsn(), in_memory.copied()].into_iter().flatten().min();
            let is_pending = begins.is_some_and(|lsn| lsn.0 <= *version);
            assert!(on_device || is_pending, "redo begins behind a page that its device lacks");
            let is_whole = slot.is_some_and(|slot| self.contents[&slot].0 == *number);
            assert!(is_whole || !self.torn.contains(number), "page {number} is torn, and no slot has a whole copy");
        }
    }
}

#[test]
fn no_copy_is_lost_while_its_write_is_under_way() {
    // Which tiers; how many pages stay dirty; whether dirty ones are victims.
    let cases = [(5, 0, 0.0), (0, 5, 0.0), (3, 3, 0.0), (5, 0, 1.0), (5, 0, 0.6), (3, 3, 0.5)];
    for (case, (cache, write_buffer, dirty)) in cases.into_iter().enumerate() {
        let mut random = Random::stream(if case < 3 { u64::from(cache) } else { case as u64 }, "destaging");
        let mut slots = Slots::new(cache, write_buffer, lru(cache));
        let mut policy = Lazy { gives_up_dirty: case % 2 == 0 };
        let mut world = World::default();
        let (mut refused, mut failures, mut cleaned, mut superseded) = (0, 0, 0, 0);
        for step in 0..20_000_u64 {
            let number = random.below(8) as u32;
            if random.chance(0.5) {
                let tier = if random.chance(0.5) { Tier::Cache } else { Tier::WriteBuffer };
                match slots.take(tier, page(number), &mut policy) {
                    Room::Slot(slot) => {
                        assert!(!world.destaging.contains(&slot), "slot {slot} is reused while it is written back");
                        world.contents.insert(slot, (number, step));
                        world.newest.insert(number, step);
                        let begins = world.memory.remove(&number).unwrap_or(Lsn(step));
                        let at_once = dirty == 0.0 || tier == Tier::WriteBuffer || !random.chance(dirty);
                        let listed = random.chance(0.5) || !at_once;
                        let filled = slots.filled_dirty(slot, page(number), (begins, listed), at_once);
                        if filled.destage {
                            world.start(&slots, slot);
                        }
                    }
                    Room::Dirty(victim) => {
                        let (slot, why) = slots.pending_destage(victim).expect("it is dirty");
                        assert_eq!(why, PendingDestage::Dirty);
                        if slots.begin_destage(slot) {
                            world.start(&slots, slot);
                        }
                        cleaned += 1;
                    }
                    Room::None | Room::Group(_) => refused += 1,
                }
            } else if !world.destaging.is_empty() {
                let at = random.below(world.destaging.len() as u64) as usize;
                let end = match random.below(20) {
                    0 => DestageEnd::Failed,
                    // Memory has what is written at once.
                    1 if dirty == 0.0 => DestageEnd::Failed,
                    1 => DestageEnd::Unreadable,
                    2 => DestageEnd::NotBegun,
                    _ => DestageEnd::Written,
                };
                failures += u32::from(end != DestageEnd::Written);
                world.end(&mut slots, at, end);
            }
            world.check(&slots);
            for number in 0..8 {
                match slots.pending_destage(page(number)) {
                    Some((slot, PendingDestage::Failed | PendingDestage::Unreadable))
                        if dirty == 0.0 || random.chance(0.5) =>
                    {
                        slots.begin_destage(slot);
                        world.start(&slots, slot);
                    }
                    // A checkpoint needs it on its own device.
                    Some((slot, PendingDestage::Dirty)) if random.chance(0.05) => {
                        if slots.begin_destage(slot) {
                            world.start(&slots, slot);
                        }
                        cleaned += 1;
                    }
                    // A newer version is about to be written from main memory to its own device.
                    Some((slot, why)) if why != PendingDestage::UnderWay && dirty > 0.0 && random.chance(0.05) => {
                        if slots.is_needed(slot) || slots.follows(slot) {
                            continue;
                        }
                        if why == PendingDestage::Unreadable {
                            // Nothing can be done for a page that is torn besides.
                            world.torn.remove(&number);
                        }
                        world.memory.insert(number, slots.supersede(slot));
                        world.newest.insert(number, step);
                        superseded += 1;
                    }
                    // Main memory changes it.
                    Some(_) if dirty > 0.0 && random.chance(0.05) => {
                        if let Some(begins) = slots.outdate(page(number)) {
                            world.memory.insert(number, begins);
                            world.newest.insert(number, step);
                        }
                    }
                    _ => {}
                }
            }
            if random.chance(0.01) {
                for (number, _) in std::mem::take(&mut world.memory) {
                    world.device.insert(number, world.newest[&number]);
                    world.torn.remove(&number);
                }
            }
            world.check(&slots);
        }
        assert!(failures > 100, "{failures} failures");
        assert!(refused > 100 || dirty > 0.0, "{refused} refused");
        let is_both = cleaned > 100 && superseded > 100;
        assert_eq!(is_both, dirty > 0.0, "{cleaned} cleaned, {superseded} superseded");
    }
}

#[test]
fn what_is_dirty_makes_room_as_in_a_plain_list() {
    for gives_up_dirty in [false, true] {
        let mut random = Random::stream(u64::from(gives_up_dirty), "victims");
        let mut slots = Slots::new(6, 0, lru(6));
        let mut policy = Lazy { gives_up_dirty };
        let mut world = World::default();
        let mut cleaned = 0;
        for step in 0..10_000_u64 {
            let number = random.below(12) as u32;
            let place = world.cached.iter().position(|(cached, _)| *cached == number);
            if let (Some(place), true) = (place, random.chance(0.5)) {
                // It is read from the cache, and stays there.
                let slot = slots.lookup(page(number)).expect("it is cached");
                slots.begin_read(slot);
                slots.end_read(slot, random.chance(0.5) && world.cached[place].1);
                let entry = world.cached.remove(place);
                world.cached.push(entry);
            } else {
                let is_changed = random.chance(0.5);
                if place.is_some() && !is_changed {
                    continue;
                }
                let slot = loop {
                    match slots.take(Tier::Cache, page(number), &mut policy) {
                        Room::Slot(slot) => break slot,
                        Room::Dirty(victim) => {
                            let first_clean = world.cached.iter().position(|(_, dirty)| !dirty);
                            let expected = if gives_up_dirty { 0 } else { first_clean.unwrap_or(0) };
                            assert_eq!(world.cached[expected], (victim.number, true), "step {step}");
                            world.cached[expected].1 = false;
                            let slot = slots.lookup(victim).expect("it is cached");
                            assert!(slots.begin_destage(slot), "nothing else is under way");
                            assert_eq!(slots.destaged(slot, DestageEnd::Written), None);
                            cleaned += 1;
                        }
                        room => panic!("nothing is under way: {room:?}"),
                    }
                };
                if world.cached.len() == 6 && slots.listed_count() < 6 {
                    let own = place.filter(|place| !world.cached[*place].1);
                    let first_clean = world.cached.iter().position(|(_, dirty)| !dirty);
                    world.cached.remove(own.or(first_clean).expect("one had to be clean"));
                }
                world.cached.retain(|(cached, _)| *cached != number);
                world.cached.push((number, is_changed));
                if is_changed {
                    let filled = slots.filled_dirty(slot, page(number), (Lsn(step), true), false);
                    assert!(!filled.destage);
                } else {
                    slots.filled_clean(slot, page(number), true);
                }
            }
            let listed: Vec<u32> = slots.listed().iter().map(|page| page.number).collect();
            let cached: Vec<u32> = world.cached.iter().map(|(page, _)| *page).collect();
            assert_eq!(listed, cached, "step {step}");
            for (number, dirty) in &world.cached {
                assert_eq!(slots.pending_destage(page(*number)).is_some(), *dirty, "page {number}, step {step}");
            }
            slots.check().expect("consistent");
        }
        assert!(cleaned > 100, "{cleaned}");
    }
}
