//! The tree against the standard library's, on pages in memory.

mod ahead;
mod corruption;
mod model;
mod prefetch;
mod relocation;
mod steps;

use super::*;
use crate::organization::allocator;
use crate::page::{Change, OwnedChange, OwnedEdit, header};
use base::{Lsn, Random};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub(super) const PARTITION: PartitionId = PartitionId(7);

/// Pages in memory, with a copy that is kept up to date by redo alone. Now and then a page pretends to be missing once.
pub(super) struct Store {
    pub page_size: usize,
    pub pages: BTreeMap<PageId, Vec<u8>>,
    redone: BTreeMap<PageId, Vec<u8>>,
    capacity: u32,
    absence: RefCell<(Random, BTreeSet<PageId>)>,
}

impl Pages for Store {
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        let (random, absent) = &mut *self.absence.borrow_mut();
        if random.chance(0.02) {
            absent.insert(id);
        }
        if absent.contains(&id) {
            return Err(Need::Page(id));
        }
        Ok(self.pages.get(&id).unwrap_or_else(|| panic!("{id} was never formatted")))
    }

    fn capacity(&self, partition: PartitionId) -> u32 {
        assert_eq!(partition, PARTITION);
        self.capacity
    }

    fn page_size(&self, _: PartitionId) -> usize {
        self.page_size
    }
}

impl Store {
    pub fn new(page_size: usize) -> Store {
        let mut store = Store {
            page_size,
            pages: BTreeMap::new(),
            redone: BTreeMap::new(),
            capacity: 2,
            absence: RefCell::new((Random::stream(page_size as u64, "absence"), BTreeSet::new())),
        };
        store.apply(&create(PARTITION, page_size));
        store
    }

    /// Calls until nothing is missing any more.
    pub fn ask<T>(&mut self, call: impl Fn(&Store) -> Result<T, Need>) -> T {
        loop {
            match call(self) {
                Ok(result) => return result,
                Err(Need::Page(id)) => assert!(self.absence.get_mut().1.remove(&id), "{id} was there"),
                Err(Need::Space(_)) => self.capacity += 3,
                Err(Need::Write(id)) => panic!("{id} is only looked at"),
                Err(Need::Fail(error)) => panic!("{error}"),
            }
        }
    }

    /// Applies edits, and applies their encoded form to the copies.
    pub fn apply(&mut self, edits: &[OwnedEdit]) {
        for edit in edits {
            let mut encoded = Vec::new();
            edit.as_edit().change.encode(&mut encoded);
            let decoded = Change::decode(&mut &encoded[..]).expect("sound");
            decoded.apply(frame(&mut self.redone, edit.page, self.page_size), Lsn(5));
        }
        for edit in edits {
            edit.as_edit().change.apply(frame(&mut self.pages, edit.page, self.page_size), Lsn(5));
        }
    }
}

fn frame(pages: &mut BTreeMap<PageId, Vec<u8>>, id: PageId, page_size: usize) -> &mut [u8] {
    pages.entry(id).or_insert_with(|| {
        let mut page = vec![0; page_size];
        header::format(&mut page, id);
        page
    })
}

impl Store {
    /// Does with the tree what a caller does: makes room step by step, then inserts or replaces. Returns how many steps.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> usize {
        let mut steps = 0;
        while let Some(edits) = self.ask(|pages| make_room(pages, PARTITION, key, value.len())) {
            self.apply(&edits);
            steps += 1;
            assert!(steps < 20, "splitting gets nowhere");
        }
        let Location { page, slot, exact } = self.ask(|pages| seek(pages, PARTITION, key));
        let value = value.to_vec();
        let change = match exact {
            true => OwnedChange::ReplaceValue { slot, value },
            false => OwnedChange::InsertSlot { slot, key: key.to_vec(), value },
        };
        self.apply(&[OwnedEdit { page, change }]);
        steps
    }

    /// Removes a record that is there, and gives pages back.
    pub fn delete(&mut self, key: &[u8]) {
        let Location { page, slot, exact } = self.ask(|pages| seek(pages, PARTITION, key));
        assert!(exact, "the record is there");
        self.apply(&[OwnedEdit { page, change: OwnedChange::RemoveSlot { slot } }]);
        while let Some(edits) = self.ask(|pages| merge(pages, PARTITION, key)) {
            self.apply(&edits);
        }
    }

    pub fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let Location { page, slot, exact } = self.ask(|pages| seek(pages, PARTITION, key));
        exact.then(|| slotted::value(&self.pages[&page], slot).to_vec())
    }

    pub fn scan(&mut self, from: Bound<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut records = Vec::new();
        let mut next = Some(self.ask(|pages| forward(pages, PARTITION, from)));
        while let Some(LeafRange { page, slot, fence }) = next {
            let leaf = &self.pages[&page];
            records.extend((slot..slotted::count(leaf)).map(|slot| record(leaf, slot)));
            next = fence.map(|fence| self.ask(|pages| forward(pages, PARTITION, Bound::Included(&fence))));
        }
        records
    }

    pub fn scan_backward(&mut self, from: Bound<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut records = Vec::new();
        let mut next = Some(self.ask(|pages| backward(pages, PARTITION, from)));
        while let Some(LeafRange { page, slot, fence }) = next {
            let leaf = &self.pages[&page];
            records.extend((0..slot).rev().map(|slot| record(leaf, slot)));
            next = fence.map(|fence| self.ask(|pages| backward(pages, PARTITION, Bound::Excluded(&fence))));
        }
        records
    }

    /// Checks every node, that each page is a node or free and not both, and that redo made the same pages.
    pub fn check(&self) {
        assert!(self.pages == self.redone, "redo made other pages");
        let state = allocator::read(&self.pages[&PageId::new(PARTITION, 0)]);
        let mut seen = BTreeSet::from([0]);
        let mut open = vec![Child { number: ROOT, expected: Expected::ROOT }];
        while let Some(Child { number, expected }) = open.pop() {
            assert!(seen.insert(number), "page {number} is met twice");
            let id = PageId::new(PARTITION, number);
            match check_node(&self.pages[&id], id, &expected) {
                Ok(children) => open.extend(children),
                Err(wrong) => panic!("{id}: {wrong:?}"),
            }
        }
        let mut free = state.free_head;
        for _ in 0..state.free_count {
            assert!(seen.insert(free), "free page {free} is met twice");
            let page = &self.pages[&PageId::new(PARTITION, free)];
            assert_eq!(header::kind(page), Some(PageKind::Free));
            free = allocator::next_free(page);
        }
        assert_eq!(free, 0, "the free list is longer than its count");
        assert_eq!(seen, (0..state.page_count).collect(), "pages leaked");
    }

    pub fn pages_in_use(&self) -> u32 {
        let state = allocator::read(&self.pages[&PageId::new(PARTITION, 0)]);
        state.page_count - state.free_count
    }
}

fn record(leaf: &[u8], slot: u16) -> (Vec<u8>, Vec<u8>) {
    let mut key = Vec::new();
    slotted::key_into(leaf, slot, &mut key);
    (key, slotted::value(leaf, slot).to_vec())
}
