//! Records that are sent without their pages, and commits that change such.

use super::ServerNode;
use super::sets::is_set;
use crate::message::{Answer, ClientId, RecordLock, Transaction};
use base::PageId;
use engine::buffer::Pins;
use engine::catalog::Organization;
use engine::log::record::{Record, split};
use engine::page::HEADER_SIZE;
use engine::{Database, Error, Result, UNNUMBERED};
use std::collections::BTreeSet;
use std::ops::Range;

/// Where a record is on its page, if it has a number.
pub(super) fn part_of_record(database: &Database, page: PageId, slot: u16) -> Result<Range<usize>> {
    let found = database.describe(page.partition)?;
    match found.organization {
        Organization::Direct { blocking_factor, record_size, .. } if u32::from(slot) < blocking_factor => {
            let start = HEADER_SIZE + usize::from(slot) * record_size as usize;
            Ok(start..start + record_size as usize)
        }
        _ => Err(Error::NoRecord(found.name.clone())),
    }
}

impl ServerNode {
    /// Sends a record whose lock was granted, from the buffer or by way of it.
    pub(super) fn send_record(&self, to: ClientId, (page, lock): (PageId, RecordLock), is_alone: bool) {
        if is_set(&self.database, page.partition) {
            return self.send(to, &Answer::SetGranted { page, lock });
        }
        let part = match self.part_of_record(page, lock.slot) {
            Ok(part) => part,
            Err(error) => return self.refuse_record(to, (page, lock), &error),
        };
        if self.send_part(to, (page, lock), is_alone, &part) {
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
                Ok(()) => assert!(this.send_part(to, (page, lock), is_alone, &part), "a pinned page is here"),
                Err(error) => this.refuse_record(to, (page, lock), &error),
            }
            drop(expected);
        });
    }

    fn send_part(&self, to: ClientId, (page, lock): (PageId, RecordLock), is_alone: bool, part: &Range<usize>) -> bool {
        let pool = self.database.buffer().pool().borrow();
        let Some(frame) = pool.frame_of(page) else { return false };
        pool.touch(frame);
        let bytes = pool.bytes(frame)[part.clone()].to_vec();
        drop(pool);
        self.send(to, &Answer::Record { page, lock, is_alone, bytes });
        true
    }

    fn refuse_record(&self, to: ClientId, (page, lock): (PageId, RecordLock), error: &Error) {
        self.send(to, &Answer::NoRecord { page, lock, is_denied: false, reason: error.to_string() });
    }

    fn part_of_record(&self, page: PageId, slot: u16) -> Result<Range<usize>> {
        part_of_record(&self.database, page, slot)
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
            for (sequence, edit) in record.edits() {
                let is_unnumbered = sequence == UNNUMBERED;
                let is_by_record = is_unnumbered || by_records.contains(&edit.page);
                if is_by_record && !(is_unnumbered && self.is_locked((client, transaction), &edit)?) {
                    let why = format!("{} has a record that it changes without the lock", edit.page);
                    return Err(Error::Shipment(why));
                }
            }
        }
        Ok(())
    }

    fn is_locked(&self, (client, transaction): (ClientId, Transaction), edit: &engine::page::Edit<'_>) -> Result<bool> {
        let engine::page::Change::Patch { offset, bytes } = edit.change else { return Ok(false) };
        let found = self.database.describe(edit.page.partition)?;
        let Organization::Direct { record_size, .. } = found.organization else { return Ok(false) };
        let from = usize::from(offset).checked_sub(HEADER_SIZE);
        let Some(slot) = from.and_then(|from| u16::try_from(from / (record_size as usize).max(1)).ok()) else {
            return Ok(false);
        };
        let part = self.part_of_record(edit.page, slot)?;
        let is_within = usize::from(offset) + bytes.len() <= part.end;
        Ok(is_within && self.protocol.borrow().changes_record(client, transaction, (edit.page, slot)))
    }
}
