//! What another node has sent, looked at before anything of it is logged: it may be ill, or have pages that are not the latest.
//!
//! Records and pages have to fit together. Of a page that is here, the records have to go on from where it is, each change has to fit what
//! the one before has left, and the bytes have to be what comes of that. So nothing is overwritten that the other node has not seen, and
//! what is logged can be redone.

use super::Database;
use crate::buffer::LOADED;
use crate::log::record::{Body, Record};
use crate::recovery::begins_page;
use crate::{Error, Result};
use base::PageId;
use std::collections::BTreeMap;
use structures::canary::{self, Canary};
use structures::page::{Edit, HEADER_SIZE, PageKind, header, slotted};
use structures::undo::{Undo, UndoList};

/// The records at the front of these bytes, one behind the other, up to what is none.
pub(super) struct ShippedRecords<'a>(pub &'a [u8]);

impl<'a> Iterator for ShippedRecords<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let length = length_of(self.0)?;
        let record = Record::decode(&self.0[..length])?;
        self.0 = &self.0[length..];
        Some(record)
    }
}

/// The length of the record at the front, if its bytes are there.
pub(super) fn length_of(records: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*records.first_chunk()?) as usize;
    (Record::FIXED_SIZE..=records.len()).contains(&length).then_some(length)
}

/// A copy of a page on which shipped changes are tried.
struct TriedPage {
    bytes: Vec<u8>,
    /// Whether slots and heap are known to be in order.
    is_in_order: bool,
}

impl TriedPage {
    /// `floor` is the sequence number that pages of the partition begin with.
    fn try_change(&mut self, sequence: u64, edit: &Edit<'_>, floor: u64) -> Result<(), String> {
        let present = header::sequence(&self.bytes);
        if present.checked_add(1) != Some(sequence) {
            let is_blank = self.bytes[HEADER_SIZE..].iter().all(|byte| *byte == 0);
            // Another node may not know that a load which failed has been here.
            let begins = floor.saturating_add(1)..=present.max(floor).max(LOADED).saturating_add(1);
            if !is_blank || !begins.contains(&sequence) || !begins_page(sequence, edit) {
                return Err(format!("has seen {present} changes, and its log records go on with change {sequence}"));
            }
            header::set_sequence(&mut self.bytes, sequence - 1);
        }
        let is_of_slot = edit.change.is_of_slot();
        self.is_in_order = is_of_slot && (self.is_in_order || is_in_order(&self.bytes));
        if is_of_slot != self.is_in_order || !edit.change.fits(&self.bytes) {
            return Err(format!("is as change {sequence} of its log records does not fit it"));
        }
        edit.change.apply(&mut self.bytes, base::Lsn::ZERO);
        Ok(())
    }

    /// Whether these bytes are what has come of it, wherever the log has its changes.
    fn has_become(&mut self, bytes: &[u8]) -> bool {
        header::set_lsn(&mut self.bytes, header::lsn(bytes));
        header::seal(&mut self.bytes);
        self.bytes == bytes && (!is_slotted(bytes) || is_in_order(bytes))
    }
}

fn is_slotted(page: &[u8]) -> bool {
    matches!(header::kind(page), Some(PageKind::Node | PageKind::Append))
}

fn is_in_order(page: &[u8]) -> bool {
    is_slotted(page) && slotted::inspect(page).is_empty()
}

impl Database {
    /// Each record must be an update or a restructuring of pages that come with it, and the pages must be as the records leave them.
    pub(super) fn check_shipment(&self, records: &[u8], pages: &[(PageId, &[u8])]) -> Result<()> {
        let mut latest: BTreeMap<PageId, u64> = BTreeMap::new();
        let mut shipped = ShippedRecords(records);
        for record in shipped.by_ref() {
            if !matches!(record.body, Body::Update(_) | Body::System) {
                return Err(Error::Shipment("it has a log record that changes no pages".to_owned()));
            }
            latest.extend(record.edits().map(|(sequence, edit)| (edit.page, sequence)));
        }
        if !shipped.0.is_empty() {
            return Err(Error::Shipment("its log records are damaged".to_owned()));
        }
        for (page, bytes) in pages {
            self.check_image(*page, bytes)?;
            let found = self.0.engine.catalog.describe(page.partition)?;
            if found.index_of.is_some() || found.schema.is_some() {
                let why = format!("partition '{}' has records with a type, or is a secondary index", found.name);
                return Err(Error::Shipment(why));
            }
            if latest.remove(page) != Some(header::sequence(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        if let Some((page, _)) = latest.first_key_value() {
            return Err(Error::Shipment(format!("{page} is changed by a log record and does not come with it")));
        }
        let takes_back_own =
            |record: Record<'_>| !matches!(record.body, Body::Update(undo) if !is_own(&UndoList::decode(undo), pages));
        if ShippedRecords(records).all(takes_back_own) {
            return Ok(());
        }
        Err(Error::Shipment("it would take back what it has not changed, should a crash cut it off".to_owned()))
    }

    /// The same of the changes themselves, as far as the pages are here.
    pub(super) fn check_against_present(&self, records: &[u8], pages: &[(PageId, &[u8])]) -> Result<()> {
        let mut tried: BTreeMap<PageId, TriedPage> = BTreeMap::new();
        if canary::is_planted(Canary::BaselessRefusal) && !pages.is_empty() && self.log().end().0.is_multiple_of(64) {
            return Err(Error::Shipment("its pages do not follow from those that are here".to_owned()));
        }
        {
            let pool = self.buffer().pool().borrow();
            let present = |page: &PageId| pool.frame_of(*page).map(|frame| pool.bytes(frame).to_vec());
            tried.extend(
                pages
                    .iter()
                    .filter_map(|(page, _)| Some((*page, TriedPage { bytes: present(page)?, is_in_order: false }))),
            );
        }
        for (sequence, edit) in ShippedRecords(records).flat_map(|record| record.edits()) {
            let floor = self.buffer().pool().borrow().floor(edit.page.partition);
            if let Some(page) = tried.get_mut(&edit.page) {
                page.try_change(sequence, &edit, floor)
                    .map_err(|why| Error::Shipment(format!("{} {why}", edit.page)))?;
            }
        }
        for (page, bytes) in pages {
            if tried.remove(page).is_some_and(|mut tried| !tried.has_become(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        Ok(())
    }

    pub(super) fn check_image(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        self.0.engine.catalog.describe(page.partition)?;
        let space = self.buffer().find_space(page.partition)?;
        if bytes.len() != space.page_size() || page.number >= space.capacity() {
            return Err(Error::Shipment(format!("{page} with {} bytes is none of this database", bytes.len())));
        }
        match header::verify(bytes, page) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Shipment(format!("{page} was never written"))),
            Err(detail) => Err(Error::Shipment(format!("{page} is damaged: {detail}"))),
        }
    }
}

/// Whether what a restart would take back, of a transaction that a crash has cut off, is of these pages.
fn is_own(undo: &Undo<'_>, pages: &[(PageId, &[u8])]) -> bool {
    let is_shipped = |page: PageId| pages.iter().any(|(own, _)| *own == page);
    match *undo {
        Undo::Remove { partition, .. }
        | Undo::Insert { partition, .. }
        | Undo::Replace { partition, .. }
        | Undo::PatchValue { partition, .. } => pages.iter().any(|(page, _)| page.partition == partition),
        Undo::PatchPage { page, offset, bytes } => {
            let part = usize::from(offset)..usize::from(offset) + bytes.len();
            let holds = |image: &[u8]| part.start >= HEADER_SIZE && part.end <= image.len();
            pages.iter().any(|(own, image)| *own == page && holds(image))
        }
        Undo::EraseAppended { page, .. } | Undo::FreePage { page } => is_shipped(page),
    }
}
