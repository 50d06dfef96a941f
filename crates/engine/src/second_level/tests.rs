use super::{Admission, Design, Filled, Slots, Tier};
use base::{Lsn, PageId, PartitionId, Random};
use std::collections::BTreeMap;

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(0), number)
}

/// Main memory in front of the slots, as the buffer uses them; writes to the pages' own devices end at once.
struct Engine {
    memory: Vec<Frame>,
    frames: usize,
    slots: Slots,
    admission: Box<dyn Admission>,
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

    fn replace(&mut self) {
        let Frame { page: number, dirty, modified } = self.memory.remove(0);
        if dirty {
            self.write(number, true);
        } else if !self.slots.refresh(page(number))
            && self.admission.admits(modified)
            && let Some(slot) = self.slots.take(Tier::Cache, page(number))
        {
            self.slots.filled_clean(slot, page(number), true);
        }
    }

    fn write(&mut self, number: u32, listed: bool) {
        let slot = self
            .admission
            .admits(true)
            .then(|| self.slots.take(Tier::Cache, page(number)).expect("nothing is pending"));
        match slot {
            Some(slot) => {
                let filled = self.slots.filled_dirty(slot, page(number), Lsn(1), listed);
                assert_eq!(filled, Filled { destage: true, superseded: None });
                assert_eq!(self.slots.destaged(slot, true), None);
            }
            None => self.slots.forget(page(number)),
        }
    }
}

/// The same rules on two plain lists, the coldest first.
struct Naive {
    memory: Vec<Frame>,
    cache: Vec<u32>,
    frames: usize,
    size: usize,
    design: Design,
    force: bool,
}

impl Naive {
    fn admits(&self, modified: bool) -> bool {
        match self.design {
            Design::MigrateAll => true,
            Design::MigrateModified => modified,
            Design::MigrateUnmodified => !modified,
        }
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
    for design in [Design::MigrateAll, Design::MigrateModified, Design::MigrateUnmodified] {
        for force in [false, true] {
            for (frames, size) in [(4, 1), (3, 7), (8, 8), (10, 4)] {
                let mut random = Random::stream(size as u64, "hierarchy");
                let mut engine = Engine {
                    memory: Vec::new(),
                    frames,
                    slots: Slots::new(size as u32, 0),
                    admission: design.build(),
                    force,
                };
                let mut naive = Naive { memory: Vec::new(), cache: Vec::new(), frames, size, design, force };
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

/// What stands in the slots and on the pages' own device, by version.
#[derive(Default)]
struct World {
    contents: BTreeMap<u32, (u32, u64)>,
    destaging: Vec<u32>,
    device: BTreeMap<u32, u64>,
    newest: BTreeMap<u32, u64>,
}

impl World {
    fn start(&mut self, slots: &Slots, slot: u32) {
        let page = slots.page_of(slot).number;
        let same = |other: &&u32| self.contents[*other].0 == page;
        assert_eq!(self.destaging.iter().find(same), None, "two versions of page {page} are on their way");
        self.destaging.push(slot);
    }
}

#[test]
fn no_copy_is_lost_while_its_write_is_under_way() {
    for (cache, write_buffer) in [(5, 0), (0, 5), (3, 3)] {
        let mut random = Random::stream(u64::from(cache), "destaging");
        let mut slots = Slots::new(cache, write_buffer);
        let mut world = World::default();
        let (mut refused, mut failures) = (0, 0);
        for step in 0..20_000_u64 {
            let number = random.below(8) as u32;
            if random.chance(0.5) {
                let tier = if random.chance(0.5) { Tier::Cache } else { Tier::WriteBuffer };
                match slots.take(tier, page(number)) {
                    Some(slot) => {
                        assert!(!world.destaging.contains(&slot), "slot {slot} is reused while it is written back");
                        world.contents.insert(slot, (number, step));
                        world.newest.insert(number, step);
                        let filled = slots.filled_dirty(slot, page(number), Lsn(step), random.chance(0.5));
                        if filled.destage {
                            world.start(&slots, slot);
                        }
                    }
                    None => refused += 1,
                }
            } else if !world.destaging.is_empty() {
                let at = random.below(world.destaging.len() as u64) as usize;
                let slot = world.destaging.swap_remove(at);
                let (number, version) = world.contents[&slot];
                let written = random.chance(0.9);
                failures += u32::from(!written);
                if written {
                    let before = world.device.insert(number, version);
                    assert!(before < Some(version), "an older version overtakes a newer one");
                }
                if let Some(next) = slots.destaged(slot, written) {
                    world.start(&slots, next);
                }
            }
            slots.check().expect("consistent");
            for (number, version) in &world.newest {
                let on_device = world.device.get(number) == Some(version);
                let in_slot =
                    slots.lookup(page(*number)).is_some_and(|slot| world.contents[&slot] == (*number, *version));
                assert!(on_device || in_slot, "page {number} of version {version} is nowhere");
                let pending = slots.recovery_lsn().is_some_and(|lsn| lsn.0 <= *version);
                assert!(on_device || pending, "redo begins behind a page that its device lacks");
            }
            for number in 0..8 {
                if let Some((slot, true)) = slots.unsettled(page(number)) {
                    slots.retry(slot);
                    world.start(&slots, slot);
                }
            }
        }
        assert!(refused > 100 && failures > 100, "{refused} {failures}");
    }
}
