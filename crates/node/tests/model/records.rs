//! Records of pages: a version number has one in it for each of them.

use super::node::{Node, Said, Slot, State};
use base::PageId;
use engine::lock::Mode;
use entresol_node::client::{Fallen, Granule, RecordAccess, WriteLock};
use entresol_node::message::{Copy, Image, RecordLock};
use std::collections::{BTreeMap, BTreeSet};

/// A step of a transaction: on a record of a page, or on the whole page.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub number: u64,
    pub slot: Option<u16>,
    pub writes: bool,
}

/// How many records a page has.
pub const SLOTS: u64 = 3;
/// How many bits of a version number each has.
const BITS: u32 = 20;
/// Stands in what is committed for versions that are to be added to.
pub const ADDED: u64 = 1 << 63;

/// What one change adds to the version of a page.
fn step_of(slot: u16) -> u64 {
    1 << (u32::from(slot) * BITS)
}

/// The version of a record in that of its page.
pub fn of_slot(version: u64, slot: u16) -> u64 {
    (version >> (u32::from(slot) * BITS)) & ((1 << BITS) - 1)
}

/// What a transaction has done with records.
#[derive(Default)]
pub struct RecordUse {
    /// As they were when they were read first.
    reads: BTreeMap<(PageId, u16), u64>,
    /// Those that it has by locks of their own, and how often it has changed such.
    objects: BTreeMap<(PageId, u16), u64>,
    pub updates: BTreeMap<(PageId, u16), u64>,
    /// Copies that the node has asked for and does without.
    pub given_up: BTreeSet<Copy>,
}

impl RecordUse {
    /// The next transaction begins.
    pub fn begin(&mut self) {
        *self = RecordUse { given_up: std::mem::take(&mut self.given_up), ..RecordUse::default() };
    }

    /// What is added to pages by locks of records.
    pub fn images(&self) -> Vec<Image> {
        let mut added: BTreeMap<PageId, u64> = BTreeMap::new();
        for ((page, slot), times) in &self.updates {
            *added.entry(*page).or_insert(ADDED) += times * step_of(*slot);
        }
        added.into_iter().map(|(page, added)| Image { page, bytes: added.to_le_bytes().to_vec() }).collect()
    }
}

impl Node {
    pub(super) fn step_record(
        &mut self,
        page: PageId,
        (slot, writes): (u16, bool),
        committed: &dyn Fn(PageId) -> u64,
    ) -> Result<Vec<Said>, String> {
        if self.protocol.granule(self.transaction, page) == Granule::Record {
            return self.step_beside(page, (slot, writes), committed);
        }
        self.lock(page, if writes { Mode::Exclusive } else { Mode::Shared })?;
        let mut said: Vec<Said> = self.protocol.enter(self.transaction, page).into_iter().map(Said::Server).collect();
        if !self.memory.contains_key(&page) {
            self.state = State::AwaitingPage(page);
            if !self.protocol.is_coming(page) {
                said.extend(self.fetch(page, writes));
            }
            return Ok(said);
        }
        self.read(page, committed)?;
        if writes {
            self.pinned.insert(page);
            match self.protocol.write(self.transaction, page) {
                WriteLock::Held => {}
                asked => {
                    self.state = State::AwaitingLock;
                    said.extend(if let WriteLock::Ask(message) = asked { Some(Said::Server(message)) } else { None });
                    return Ok(said);
                }
            }
            self.write(page, step_of(slot), committed)?;
        }
        self.records.reads.entry((page, slot)).or_insert(of_slot(committed(page), slot));
        self.protocol.note_record(self.transaction, page, (slot, writes));
        self.at += 1;
        said.extend(self.due());
        Ok(said)
    }

    /// A step on a record by a lock of its own.
    fn step_beside(
        &mut self,
        page: PageId,
        (slot, writes): (u16, bool),
        committed: &dyn Fn(PageId) -> u64,
    ) -> Result<Vec<Said>, String> {
        match self.protocol.access_record(self.transaction, page, (slot, writes)) {
            RecordAccess::Held => {}
            RecordAccess::Ask(message) => {
                self.state = State::AwaitingRecord;
                return Ok(vec![Said::Server(message)]);
            }
            RecordAccess::Wait => {
                self.state = State::AwaitingRecord;
                return Ok(Vec::new());
            }
        }
        let (found, before) = (self.records.objects[&(page, slot)], of_slot(committed(page), slot));
        let expected = before + self.records.updates.get(&(page, slot)).copied().unwrap_or(0);
        if found != expected {
            return Err(format!(
                "node {} reads version {found} of record {slot} of {page}, not {expected}",
                self.place
            ));
        }
        self.records.reads.entry((page, slot)).or_insert(before);
        if writes {
            *self.records.updates.entry((page, slot)).or_default() += 1;
            *self.records.objects.entry((page, slot)).or_default() += 1;
        }
        self.at += 1;
        Ok(Vec::new())
    }

    /// What was read of records has not changed.
    pub(super) fn check_records(&self, committed: &dyn Fn(PageId) -> u64) -> Result<(), String> {
        let is_changed =
            |((page, slot), version): &(&(PageId, u16), &u64)| of_slot(committed(*page), *slot) != **version;
        match self.records.reads.iter().find(is_changed) {
            Some(((page, slot), version)) => {
                Err(format!("version {version} of record {slot} of {page} was read, and changed before the commit"))
            }
            None => Ok(()),
        }
    }

    /// A page falls: what was read and changed of it is kept beside it.
    pub(super) fn take_apart(&mut self, Fallen { page, is_here, locks }: Fallen) {
        let word = self.memory.remove(&page).map(|Slot { version, .. }| version);
        assert_eq!(word.is_some(), is_here, "{page} is where it was said to be");
        let changed = self.writes.remove(&page).unwrap_or(0);
        for RecordLock { slot, writes, .. } in locks {
            word.map(|word| self.records.objects.insert((page, slot), of_slot(word, slot)));
            assert!(writes || of_slot(changed, slot) == 0, "what is changed is locked for that");
            if writes {
                *self.records.updates.entry((page, slot)).or_default() += of_slot(changed, slot);
            }
        }
        self.pinned.remove(&page);
        if self.state == State::AwaitingLock {
            self.state = State::Running;
        }
    }

    /// A page does not come, for others have locks of its records.
    pub(super) fn do_with_records(&mut self, copy: Copy) -> Vec<Said> {
        let (was_waited_for, forgets, answer) = self.protocol.by_records(copy);
        forgets.map(|copy| self.kept.remove(&copy));
        if was_waited_for {
            self.records.given_up.insert(copy);
            self.wait_no_more(copy.page);
        }
        answer.into_iter().map(Said::Server).chain(self.due()).collect()
    }

    pub(super) fn take_record(&mut self, (page, lock): (PageId, RecordLock), is_alone: bool, version: u64) {
        if !self.protocol.record_granted(page, lock, is_alone) {
            return;
        }
        self.records.objects.insert((page, lock.slot), version);
        if self.state == State::AwaitingRecord {
            self.state = State::Running;
        }
    }
}
