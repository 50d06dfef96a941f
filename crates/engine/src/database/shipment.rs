//! What another node has sent, looked at before anything of it is logged: it may be ill, or have pages that are not the latest.
//!
//! Records and pages have to fit together. Of a page that is here, the records have to go on from where it is, each change has to fit what
//! the one before has left, and the bytes, if they have come, have to be what comes of that. So nothing is overwritten that the other node
//! has not seen, and what is logged can be redone: now, on pages that have come without their bytes, and by a restart.

use super::Database;
use crate::buffer::LOADED;
use crate::log::record::{Body, Record};
use crate::recovery::begins_page;
use crate::{Error, Result};
use base::PageId;
use std::collections::{BTreeMap, BTreeSet};
use structures::canary::{self, Canary};
use structures::page::{Edit, HEADER_SIZE, PageKind, header, slotted};
use structures::undo::{Undo, UndoList};

/// A transaction of another node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shipment<'a> {
    /// Its log records, one behind the other in stored form: updates, and restructurings that are never undone.
    pub records: &'a [u8],
    /// Pages that it has changed, each with its bytes, sealed.
    pub images: &'a [(PageId, &'a [u8])],
    /// The other pages that it has changed: the records are redone on what is here.
    pub redone: &'a [PageId],
}

impl Shipment<'_> {
    /// All pages that it has changed.
    pub fn pages(&self) -> impl Iterator<Item = PageId> {
        self.images.iter().map(|(page, _)| *page).chain(self.redone.iter().copied())
    }
}

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
    /// Whether its bytes have come: then it may have been used for the first time, or anew.
    may_begin: bool,
}

impl TriedPage {
    /// `floor` is the sequence number that pages of the partition begin with.
    fn try_change(&mut self, sequence: u64, edit: &Edit<'_>, floor: u64) -> Result<(), String> {
        let present = header::sequence(&self.bytes);
        if present.checked_add(1) != Some(sequence) {
            let is_blank = self.bytes[HEADER_SIZE..].iter().all(|byte| *byte == 0);
            // Another node may not know that a load which failed has been here.
            let begins = floor.saturating_add(1)..=present.max(floor).max(LOADED).saturating_add(1);
            let may_begin = self.may_begin && is_blank && begins.contains(&sequence);
            if !may_begin || !begins_page(sequence, edit) {
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
        self.bytes == bytes && self.is_sound()
    }

    /// Whether slots and heap are in order, if it has any.
    fn is_sound(&self) -> bool {
        !is_slotted(&self.bytes) || is_in_order(&self.bytes)
    }
}

fn is_slotted(page: &[u8]) -> bool {
    matches!(header::kind(page), Some(PageKind::Node | PageKind::Append))
}

fn is_in_order(page: &[u8]) -> bool {
    is_slotted(page) && slotted::inspect(page).is_empty()
}

impl Database {
    /// Each record must be an update or a restructuring of pages that the shipment names, and those that have come must be as the records
    /// leave them.
    pub(super) fn check_shipment(&self, shipment: &Shipment<'_>) -> Result<()> {
        let mut latest: BTreeMap<PageId, u64> = BTreeMap::new();
        let mut shipped = ShippedRecords(shipment.records);
        for record in shipped.by_ref() {
            if !matches!(record.body, Body::Update(_) | Body::System) {
                return Err(Error::Shipment("it has a log record that changes no pages".to_owned()));
            }
            latest.extend(record.edits().map(|(sequence, edit)| (edit.page, sequence)));
        }
        if !shipped.0.is_empty() {
            return Err(Error::Shipment("its log records are damaged".to_owned()));
        }
        for (page, bytes) in shipment.images {
            self.check_image(*page, bytes)?;
            self.check_organization(*page)?;
            if latest.remove(page) != Some(header::sequence(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        for page in shipment.redone {
            self.check_place(*page)?;
            self.check_organization(*page)?;
            if latest.remove(page).is_none() {
                return Err(Error::Shipment(format!("{page} is said to be changed, and no log record changes it")));
            }
        }
        if let Some((page, _)) = latest.first_key_value() {
            return Err(Error::Shipment(format!("{page} is changed by a log record and does not come with it")));
        }
        self.check_undo(shipment)
    }

    /// Should a crash cut it off, a restart takes back changes of its own pages, and no others.
    fn check_undo(&self, shipment: &Shipment<'_>) -> Result<()> {
        let page_size = self.0.engine.core.page_size();
        let pages: BTreeSet<PageId> = shipment.pages().collect();
        let takes_back_own = |record: Record<'_>| !matches!(record.body, Body::Update(undo) if !is_own(&UndoList::decode(undo), &pages, page_size));
        if ShippedRecords(shipment.records).all(takes_back_own) {
            return Ok(());
        }
        Err(Error::Shipment("it would take back what it has not changed, should a crash cut it off".to_owned()))
    }

    /// The same of the changes themselves, as far as the pages are here. Those that are to be redone are.
    pub(super) fn check_against_present(&self, shipment: &Shipment<'_>) -> Result<()> {
        if canary::is_planted(Canary::BaselessRefusal)
            && shipment.pages().next().is_some()
            && self.log().end().0.is_multiple_of(64)
        {
            return Err(Error::Shipment("its pages do not follow from those that are here".to_owned()));
        }
        let mut tried = self.pages_to_try(shipment);
        for (sequence, edit) in ShippedRecords(shipment.records).flat_map(|record| record.edits()) {
            let floor = self.buffer().pool().borrow().floor(edit.page.partition);
            if let Some(page) = tried.get_mut(&edit.page) {
                page.try_change(sequence, &edit, floor)
                    .map_err(|why| Error::Shipment(format!("{} {why}", edit.page)))?;
            }
        }
        for (page, bytes) in shipment.images {
            if tried.remove(page).is_some_and(|mut tried| !tried.has_become(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        match tried.into_iter().find(|(_, page)| !page.is_sound()) {
            Some((page, _)) => Err(Error::Shipment(format!("{page} would have its slots out of order"))),
            None => Ok(()),
        }
    }

    /// Copies of the shipment's pages that are here.
    fn pages_to_try(&self, shipment: &Shipment<'_>) -> BTreeMap<PageId, TriedPage> {
        let pool = self.buffer().pool().borrow();
        let copy = |(page, may_begin)| {
            let bytes = pool.bytes(pool.frame_of(page)?).to_vec();
            Some((page, TriedPage { bytes, is_in_order: false, may_begin }))
        };
        let whole = shipment.images.iter().map(|(page, _)| (*page, true));
        whole.chain(shipment.redone.iter().map(|page| (*page, false))).filter_map(copy).collect()
    }

    fn check_organization(&self, page: PageId) -> Result<()> {
        let found = self.0.engine.catalog.describe(page.partition)?;
        if found.index_of.is_some() || found.schema.is_some() {
            let why = format!("partition '{}' has records with a type, or is a secondary index", found.name);
            return Err(Error::Shipment(why));
        }
        Ok(())
    }

    /// There is such a page.
    fn check_place(&self, page: PageId) -> Result<()> {
        self.0.engine.catalog.describe(page.partition)?;
        if page.number >= self.buffer().find_space(page.partition)?.capacity() {
            return Err(Error::Shipment(format!("{page} is none of this database")));
        }
        Ok(())
    }

    pub(super) fn check_image(&self, page: PageId, bytes: &[u8]) -> Result<()> {
        self.check_place(page)?;
        if bytes.len() != self.buffer().find_space(page.partition)?.page_size() {
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
fn is_own(undo: &Undo<'_>, pages: &BTreeSet<PageId>, page_size: usize) -> bool {
    match *undo {
        Undo::Remove { partition, .. }
        | Undo::Insert { partition, .. }
        | Undo::Replace { partition, .. }
        | Undo::PatchValue { partition, .. } => {
            let first = PageId::new(partition, 0);
            pages.range(first..).next().is_some_and(|page| page.partition == partition)
        }
        Undo::PatchPage { page, offset, bytes } => {
            let part = usize::from(offset)..usize::from(offset) + bytes.len();
            pages.contains(&page) && part.start >= HEADER_SIZE && part.end <= page_size
        }
        Undo::EraseAppended { page, .. } | Undo::FreePage { page } => pages.contains(&page),
    }
}
