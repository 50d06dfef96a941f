//! Records that are sent without their pages, and commits that change such.

use super::ServerNode;
use super::sets::is_set;
use crate::leaf_records;
use crate::message::{Answer, ClientId, RecordLock, Transaction};
use base::PageId;
use engine::buffer::Pins;
use engine::catalog::Organization;
use engine::log::record::{Body, Record, split};
use engine::organization::b_tree;
use engine::page::{Change, Edit, HEADER_SIZE};
use engine::undo::{Undo, UndoList};
use engine::{Database, Error, Internals, Result, UNNUMBERED};
use std::collections::BTreeSet;
use std::ops::Range;

/// Where records that have a number are on their page.
pub(super) enum RecordPlace {
    /// There.
    Part(Range<usize>),
    /// Wherever it has records whose keys this stands for, if it is a leaf.
    OnLeaf(u16),
}

impl RecordPlace {
    /// What is there; nothing if the page is no leaf.
    fn of(&self, page: &[u8]) -> Option<Vec<u8>> {
        match self {
            RecordPlace::Part(part) => Some(page[part.clone()].to_vec()),
            RecordPlace::OnLeaf(number) => leaf_records::is_leaf(page).then(|| leaf_records::pick(page, *number)),
        }
    }
}

/// Where a record is on its page, if that may have one of this number.
pub(super) fn place_of_record(database: &Database, page: PageId, slot: u16) -> Result<RecordPlace> {
    let found = database.describe(page.partition)?;
    match found.organization {
        Organization::Direct { blocking_factor, record_size, .. } if u32::from(slot) < blocking_factor => {
            let start = HEADER_SIZE + usize::from(slot) * record_size as usize;
            Ok(RecordPlace::Part(start..start + record_size as usize))
        }
        Organization::BTree if page.number >= b_tree::ROOT => Ok(RecordPlace::OnLeaf(slot)),
        _ => Err(Error::NoRecord(found.name.clone())),
    }
}

impl ServerNode {
    /// Sends a record whose lock was granted, from the buffer or by way of it.
    pub(super) fn send_record(&self, to: ClientId, (page, lock): (PageId, RecordLock), is_alone: bool) {
        if is_set(&self.database, page.partition) {
            return self.send(to, &Answer::SetGranted { page, lock });
        }
        let place = match place_of_record(&self.database, page, lock.slot) {
            Ok(place) => place,
            Err(error) => return self.refuse_record(to, (page, lock), &error),
        };
        if self.send_part(to, (page, lock), is_alone, &place) {
            return;
        }
        // Of a small record it is not the bytes that are sent, but those of the page that take memory until then.
        let length = self.database.settings().buffer.page_size;
        let expected = self.outboxes.borrow().get(&to).map(|outbox| outbox.expect(length));
        self.spawn(async move |this| {
            let mut pins = Pins::new(this.database.buffer());
            let fetched = match this.make_room(to, page).await {
                Ok(()) => this.fetch(page, &mut pins).await,
                Err(error) => Err(error),
            };
            match fetched {
                Ok(()) => assert!(this.send_part(to, (page, lock), is_alone, &place), "a pinned page is here"),
                Err(error) => this.refuse_record(to, (page, lock), &error),
            }
            drop(expected);
        });
    }

    fn send_part(&self, to: ClientId, (page, lock): (PageId, RecordLock), is_alone: bool, place: &RecordPlace) -> bool {
        let pool = self.database.buffer().pool().borrow();
        let Some(frame) = pool.frame_of(page) else { return false };
        pool.touch(frame);
        let part = place.of(pool.bytes(frame));
        let slot = if matches!(place, RecordPlace::Part(_)) { lock.slot } else { 0 };
        self.database.buffer().charge_value(page, slot, part.as_ref().map_or(0, Vec::len));
        drop(pool);
        match part {
            Some(bytes) => self.send(to, &Answer::Record { page, lock, is_alone, bytes }),
            None => self.send(to, &Answer::NoLeaf { page, lock }),
        }
        true
    }

    fn refuse_record(&self, to: ClientId, (page, lock): (PageId, RecordLock), error: &Error) {
        self.send(to, &Answer::NoRecord { page, lock, is_denied: false, reason: error.to_string() });
    }

    /// What a transaction changes by locks of records, it has these of: all of the pages of which it has no other locks. Such changes go on
    /// from where their pages are, for others change other records of them.
    pub(super) fn check_record_locks(
        &self,
        (client, transaction): (ClientId, Transaction),
        records: &[u8],
        by_records: &BTreeSet<PageId>,
    ) -> Result<()> {
        for record in split(records).filter_map(Record::decode) {
            let key = match record.body {
                Body::Update(undo) => key_of(&UndoList::decode(undo)),
                _ => None,
            };
            for (sequence, edit) in record.edits() {
                let is_unnumbered = sequence == UNNUMBERED;
                let is_by_record = is_unnumbered || by_records.contains(&edit.page);
                if is_by_record && !(is_unnumbered && self.is_locked((client, transaction), &edit, key)?) {
                    let why = format!("{} has a record that it changes without the lock", edit.page);
                    return Err(Error::Shipment(why));
                }
            }
        }
        Ok(())
    }

    /// Whether a change is one of a record of which a transaction has the lock. That it is of the record of this key is for the engine to
    /// see, which has the leaf.
    fn is_locked(
        &self,
        (client, transaction): (ClientId, Transaction),
        edit: &Edit<'_>,
        key: Option<&[u8]>,
    ) -> Result<bool> {
        let slot = match (edit.change, key) {
            (Change::Patch { offset, bytes }, _) => self.slot_of(edit.page, offset, bytes.len())?,
            (Change::PatchValue { .. }, Some(key)) => Some(leaf_records::number_of(key)),
            _ => None,
        };
        let has_lock = |slot| self.protocol.borrow().changes_record(client, transaction, (edit.page, slot));
        Ok(slot.is_some_and(has_lock))
    }

    /// The object that has all of a part of a page.
    fn slot_of(&self, page: PageId, offset: u16, length: usize) -> Result<Option<u16>> {
        let found = self.database.describe(page.partition)?;
        let Organization::Direct { record_size, .. } = found.organization else { return Ok(None) };
        let from = usize::from(offset).checked_sub(HEADER_SIZE);
        let Some(slot) = from.and_then(|from| u16::try_from(from / (record_size as usize).max(1)).ok()) else {
            return Ok(None);
        };
        let end = usize::from(offset) + length;
        Ok(match place_of_record(&self.database, page, slot)? {
            RecordPlace::Part(part) => (end <= part.end).then_some(slot),
            RecordPlace::OnLeaf(_) => None,
        })
    }
}

/// The key of the record of a b-tree of which a part is taken back so.
fn key_of<'a>(undo: &Undo<'a>) -> Option<&'a [u8]> {
    match *undo {
        Undo::PatchValue { key, .. } => Some(key),
        _ => None,
    }
}
