//! FaCE against a plain queue of versions.

use super::page;
use crate::second_level::design::{CachePolicy, Decision, Leaving, Outdated, Pattern, Read, Reason, Setting};
use crate::second_level::slots::{DestageEnd, Room, Slots};
use crate::second_level::{Design, Parameters, Tier};
use crate::tier_file::table::{HeldVersion, PageVersion};
use base::{Lsn, PageId, Random};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A version in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    page: u32,
    version: u64,
    dirty: bool,
    referenced: bool,
}

/// The slots as the room uses them, beside plain ones.
struct Pair {
    slots: Slots,
    policy: Box<dyn CachePolicy>,
    plain: Vec<Option<Entry>>,
    /// Of the plain slots: those that are being filled.
    open: Range<u32>,
    /// The newest version of each page, and that on its own device.
    newest: BTreeMap<u32, u64>,
    home: BTreeMap<u32, u64>,
    /// Pages in main memory that are newer than anywhere else.
    changed: BTreeSet<u32>,
    group: u32,
    moved: usize,
    cleaned: usize,
    served: usize,
}

impl Pair {
    fn new(slots: u32, group_pages: u32) -> Pair {
        let parameters = Parameters { group_pages, ..Parameters::default() };
        let policy = Design::named("face").expect("it has this name").build(&Setting { force: false, parameters });
        Pair {
            slots: Slots::new(slots, 0, policy.order(slots as usize)),
            policy,
            plain: vec![None; slots as usize],
            open: 0..0,
            newest: BTreeMap::new(),
            home: BTreeMap::new(),
            changed: BTreeSet::new(),
            group: group_pages.min((slots / 2).max(1)),
            moved: 0,
            cleaned: 0,
            served: 0,
        }
    }

    fn place(&self, number: u32) -> Option<usize> {
        self.plain.iter().position(|entry| entry.is_some_and(|entry| entry.page == number))
    }

    fn version(&self, number: u32) -> u64 {
        self.newest.get(&number).copied().unwrap_or(0)
    }

    /// A page is read into main memory: from the cache if that has it, else from its own device; it is the newest version.
    fn read(&mut self, number: u32) {
        if self.changed.contains(&number) {
            return;
        }
        let place = self.place(number);
        assert_eq!(self.slots.lookup(page(number)), place.map(|place| place as u32), "page {number}");
        let Some(place) = place else {
            return assert_eq!(self.home.get(&number).copied().unwrap_or(0), self.version(number), "page {number}");
        };
        let entry = self.plain[place].as_mut().expect("it is there");
        entry.referenced = true;
        let found = entry.version;
        assert_eq!(found, self.version(number), "page {number} is stale");
        self.policy.on_hit(&Read { page: page(number), pattern: Pattern::Random });
        self.slots.begin_read(place as u32);
        self.slots.end_read(place as u32, false);
        assert_eq!(self.slots.version(place as u32).sequence, found);
        self.served += 1;
    }

    fn change(&mut self, number: u32) {
        self.read(number);
        *self.newest.entry(number).or_default() += 1;
        if self.changed.insert(number)
            && let Some(place) = self.place(number)
        {
            assert_eq!(self.policy.on_update(page(number)), Outdated::Freed);
            self.slots.outdate(page(number));
            self.plain[place] = None;
        }
    }

    /// A page leaves main memory.
    fn leave(&mut self, number: u32) {
        let dirty = self.changed.remove(&number);
        if !dirty && self.slots.refresh(page(number), true) {
            return;
        }
        let reason = if dirty { Reason::Background } else { Reason::Replacement };
        let leaving = Leaving { page: page(number), dirty, modified: dirty, reason, pattern: Pattern::Sequential };
        assert_eq!(self.policy.on_eviction(&leaving, &self.slots.contents()), Decision::WriteBack);
        let slot = self.take(number);
        let version = self.version(number);
        if dirty {
            self.slots.filled_dirty(slot, page(number), (Lsn(1), true), false);
        } else {
            self.slots.filled_clean(slot, page(number), true);
        }
        self.slots.set_version(slot, PageVersion { sequence: version, lsn: Lsn(version) });
        self.plain[slot as usize] = Some(Entry { page: number, version, dirty, referenced: false });
    }

    fn take(&mut self, number: u32) -> u32 {
        loop {
            match self.slots.take(Tier::Cache, page(number), &mut *self.policy) {
                Room::Slot(slot) => {
                    let expected = self.open.clone().find(|slot| self.plain[*slot as usize].is_none());
                    assert_eq!(Some(slot), expected, "slots are filled one behind the other");
                    self.open.start = slot + 1;
                    return slot;
                }
                Room::Group(group) => {
                    let capacity = self.plain.len() as u32;
                    let first = if self.open.end < capacity { self.open.end } else { 0 };
                    assert_eq!(group, first..(first + self.group).min(capacity));
                    assert!(self.open.clone().all(|slot| self.plain[slot as usize].is_some()), "a slot is left out");
                    self.empty(group);
                }
                room => panic!("{room:?}"),
            }
        }
    }

    fn empty(&mut self, group: Range<u32>) {
        let entries: Vec<(u32, Entry)> =
            group.clone().filter_map(|slot| self.plain[slot as usize].map(|entry| (slot, entry))).collect();
        let mut kept: Vec<(u32, Entry)> = Vec::new();
        for (slot, entry) in entries.iter().copied() {
            assert_eq!(self.policy.second_chance(page(entry.page)), entry.referenced, "slot {slot}");
            if entry.referenced && kept.len() < group.len() / 2 {
                kept.push((slot, entry));
            }
        }
        for (slot, entry) in entries.iter().filter(|(slot, _)| !kept.iter().any(|(other, _)| other == slot)) {
            if entry.dirty {
                assert!(self.slots.begin_destage(*slot));
                assert_eq!(self.slots.destaged(*slot, DestageEnd::Written), None);
                self.home.insert(entry.page, entry.version);
                self.cleaned += 1;
            }
            self.slots.vacate(*slot);
            self.plain[*slot as usize] = None;
        }
        self.policy.open_group(group.clone());
        self.open = group;
        for (from, entry) in kept {
            let expected = self.open.clone().find(|slot| self.plain[*slot as usize].is_none());
            let to = self.slots.take_for_move(&mut *self.policy);
            assert_eq!(to, expected);
            let Some(to) = to else { continue };
            self.open.start = to + 1;
            let version = PageVersion { sequence: entry.version, lsn: Lsn(entry.version) };
            let page = self.slots.page_of(from);
            let other = PageVersion { sequence: entry.version + 1, ..version };
            let beside = PageId::new(page.partition, page.number + 1);
            for (page, version) in [(page, other), (beside, version)] {
                assert!(!self.slots.relocate(from, to, HeldVersion { page, version }));
            }
            assert!(self.slots.relocate(from, to, HeldVersion { page, version }));
            self.plain[from as usize] = None;
            self.plain[to as usize] = Some(Entry { referenced: false, ..entry });
            self.moved += 1;
        }
    }

    fn check(&self) {
        self.slots.check().expect("consistent");
        for (slot, entry) in (0..).zip(&self.plain) {
            let held = self.slots.held(slot);
            assert_eq!(held.map(|held| held.page.number), entry.map(|entry| entry.page), "slot {slot}");
            let is_dirty = entry.is_some_and(|entry| entry.dirty);
            assert_eq!(self.slots.is_pending(slot), is_dirty, "slot {slot}");
        }
    }
}

#[test]
fn versions_go_round_as_in_a_plain_queue() {
    for (slots, group) in [(1, 1), (2, 1), (7, 3), (30, 8), (30, 1), (64, 64)] {
        let mut random = Random::stream(u64::from(slots), "face");
        let mut pair = Pair::new(slots, group);
        for _ in 0..4_000 {
            let number = if random.chance(0.5) { random.below(8) } else { random.below(60) } as u32;
            match random.below(3) {
                0 => pair.read(number),
                1 => pair.change(number),
                _ => pair.leave(number),
            }
            pair.check();
        }
        let Pair { moved, cleaned, served, .. } = pair;
        assert!(cleaned > 50 && served > 50, "{slots} slots: {cleaned} cleaned, {served} served");
        assert_eq!(moved > 20, pair.group > 1, "{slots} slots: {moved} have had a second chance");
    }
}

#[cfg(feature = "canary")]
#[test]
fn a_queue_that_leaves_slots_out_is_found() {
    use structures::canary::{Canary, plant};
    plant(Some(Canary::BrokenPromise));
    let found = std::panic::catch_unwind(versions_go_round_as_in_a_plain_queue);
    plant(None);
    assert!(found.is_err(), "nothing notices it");
}
