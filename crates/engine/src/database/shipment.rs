//! What another node has sent, looked at before anything of it is logged: it may be ill, or have pages that are not the latest.
//!
//! Records and pages have to fit together. Of a page that is here, the records have to go on from where it is, each change has to fit what
//! the one before has left, and the bytes, if they have come, have to be what comes of that. So nothing is overwritten that the other node
//! has not seen, and what is logged can be redone: now, on pages that have come without their bytes, and by a restart.

use super::Database;
use super::in_order::PagesInOrder;
use super::tried_page::{TriedPage, TriedPages, takes_back};
use crate::buffer::Pool;
use crate::catalog::Organization;
use crate::log::record::{Body, Record, renumbered, split};
use crate::{Error, Result};
use base::{PageId, PartitionId};
use driver::Work;
use executor::WholeExecutor;
use std::collections::{BTreeMap, BTreeSet};
use structures::canary::{self, Canary};
use structures::page::header;
use structures::undo::{Undo, UndoList};

/// How many bytes the changes of one shipment may move on pages beside their own: what a commit as large as a message moves that fills and
/// divides pages is a small part of that, and the server does nothing else meanwhile.
const MOVED_MAX: usize = 1 << 30;

/// Stands in a log record for the sequence number of a change which goes on from where its page is when that is logged.
pub const UNNUMBERED: u64 = 0;

/// A transaction of another node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shipment<'a> {
    /// Its log records, one behind the other in stored form: updates, and restructurings that are never undone. Changes of objects of direct
    /// partitions, and of parts of values of b-trees, may be [`UNNUMBERED`] if their page is redone: others may change others of it meanwhile.
    pub records: &'a [u8],
    /// Pages that it has changed, each with its bytes, sealed.
    pub images: &'a [(PageId, &'a [u8])],
    /// The other pages that it has changed: the records are redone on what is here.
    pub redone: &'a [PageId],
    /// What it has changed in memory-resident sets, in this order.
    pub sets: &'a [SetChange<'a>],
}

/// A change of a record of a memory-resident set. Of one that numbers its records this is only ever a new record: its key is the number, which
/// was given out for it before ([`Internals::reserve_arrival`](super::Internals::reserve_arrival)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetChange<'a> {
    /// The set.
    pub partition: PartitionId,
    /// The record's key.
    pub key: &'a [u8],
    /// What it is from now on; nothing if it is deleted.
    pub value: Option<&'a [u8]>,
}

impl SetChange<'_> {
    /// How many bytes of the log it takes, at most.
    pub(super) fn bytes_of_log(&self) -> u64 {
        const HEAD: usize = 24;
        (HEAD + self.key.len() + self.value.map_or(0, <[u8]>::len)) as u64
    }
}

impl Shipment<'_> {
    /// All pages that it has changed.
    pub fn pages(&self) -> impl Iterator<Item = PageId> {
        self.images.iter().map(|(page, _)| *page).chain(self.redone.iter().copied())
    }
}

/// Those of log records that stand one behind the other, each of which [`Database::check_shipment`] has found to be one.
pub(super) fn looked_through(records: &[u8]) -> impl Iterator<Item = Record<'_>> {
    split(records).filter_map(Record::decode_body)
}

/// The pages that log records change, in their order, and the number of the last change of each, once.
struct ChangedPages(Vec<(PageId, Option<u64>)>);

impl ChangedPages {
    /// Of records each of which has to be one that changes pages.
    fn of(records: &[u8]) -> Result<ChangedPages> {
        let mut pages = Vec::new();
        for bytes in split(records) {
            let record = Record::decode(bytes);
            let record = record.ok_or_else(|| Error::Shipment("its log records are damaged".to_owned()))?;
            if !matches!(record.body, Body::Update(_) | Body::System) {
                return Err(Error::Shipment("it has a log record that changes no pages".to_owned()));
            }
            pages.extend(record.edits().map(|(sequence, edit)| (edit.page, Some(sequence))));
        }
        // The last change of each page stays.
        pages.sort_by_key(|(page, _)| *page);
        pages.dedup_by(|later, kept| {
            later.0 == kept.0 && {
                kept.1 = later.1;
                true
            }
        });
        Ok(ChangedPages(pages))
    }

    /// The number of the last change of a page, if it is changed and this was not asked before.
    fn take(&mut self, page: PageId) -> Option<u64> {
        let place = self.0.binary_search_by_key(&page, |(other, _)| *other).ok()?;
        self.0[place].1.take()
    }

    /// One of which this was not asked.
    fn left(&self) -> Option<PageId> {
        self.0.iter().find(|(_, sequence)| sequence.is_some()).map(|(page, _)| *page)
    }
}

impl Database {
    /// Each record must be an update of one page or a restructuring of pages that the shipment names, and those that have come must be as the records
    /// leave them.
    pub(super) fn check_shipment(&self, shipment: &Shipment<'_>) -> Result<()> {
        for change in shipment.sets {
            let found = self.describe(change.partition)?;
            if !matches!(found.organization, Organization::Set { .. }) {
                let why = format!("it changes a record of '{}', which is no set", found.name);
                return Err(Error::Shipment(why));
            }
        }
        let mut changed = ChangedPages::of(shipment.records)?;
        for (page, bytes) in shipment.images {
            self.check_image(*page, bytes)?;
            if changed.take(*page) != Some(header::sequence(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        for page in shipment.redone {
            self.check_place(*page)?;
            if changed.take(*page).is_none() {
                return Err(Error::Shipment(format!("{page} is said to be changed, and no log record changes it")));
            }
        }
        if let Some(page) = changed.left() {
            return Err(Error::Shipment(format!("{page} is changed by a log record and does not come with it")));
        }
        self.check_undo(shipment)
    }

    /// The records with a number for each change, if some have none: in one step with what follows.
    pub(super) fn number_shipped(&self, shipment: &Shipment<'_>) -> Option<Vec<u8>> {
        let lacks_number =
            |record: Record<'_>| record.edits().any(|(sequence, _)| is_unnumbered(&record.body, sequence));
        if !looked_through(shipment.records).any(lacks_number) {
            return None;
        }
        let redone: BTreeSet<PageId> = shipment.redone.iter().copied().collect();
        let pool = self.buffer().pool().borrow();
        let present = |page| pool.frame_of(page).map_or(0, |frame| header::sequence(pool.bytes(frame)));
        let mut latest: BTreeMap<PageId, u64> = BTreeMap::new();
        Some(renumbered(shipment.records, |body, page, sequence| {
            if !is_unnumbered(body, sequence) || !redone.contains(&page) {
                return sequence;
            }
            let latest = latest.entry(page).or_insert_with(|| present(page));
            *latest = latest.saturating_add(1);
            *latest
        }))
    }

    /// Each update comes with what takes it back, in the way of its partition.
    fn check_undo(&self, shipment: &Shipment<'_>) -> Result<()> {
        let mut organizations = BTreeMap::new();
        for page in shipment.pages() {
            organizations.insert(page.partition, self.organization_of(page.partition)?);
        }
        let is_undone = |record: Record<'_>| {
            let Body::Update(undo) = record.body else { return true };
            let (undo, mut edits) = (UndoList::decode(undo), record.edits());
            let (Some((_, edit)), None) = (edits.next(), edits.next()) else { return false };
            takes_back(&undo, &edit, None) && is_of(&undo, &organizations[&edit.page.partition])
        };
        if looked_through(shipment.records).all(is_undone) { Ok(()) } else { Err(not_undone()) }
    }

    /// The same of the changes themselves, as far as the pages are here. Those that are to be redone are. Returns which pages they leave in
    /// order, and how many changes those have seen then.
    pub(super) fn check_against_present(&self, shipment: &Shipment<'_>) -> Result<Vec<(PageId, u64)>> {
        if canary::is_planted(Canary::BaselessRefusal)
            && shipment.pages().next().is_some()
            && self.log().end().0.is_multiple_of(64)
        {
            return Err(Error::Shipment("its pages do not follow from those that are here".to_owned()));
        }
        let (pool, known) = (self.buffer().pool().borrow(), self.0.in_order.borrow());
        let mut tried = self.pages_to_try(shipment, (&pool, &known))?;
        let (mut moved, mut changes) = (0, 0);
        for record in looked_through(shipment.records) {
            let undo = match record.body {
                Body::Update(undo) => Some(UndoList::decode(undo)),
                _ => None,
            };
            for (sequence, edit) in record.edits() {
                changes += 1;
                let Some(page) = tried.get_mut(edit.page) else { continue };
                let refused = |why| Error::Shipment(format!("{} {why}", edit.page));
                let floor = pool.floor(edit.page.partition);
                moved += page.try_change(sequence, &edit, undo.as_ref(), floor).map_err(refused)?;
            }
            if moved > MOVED_MAX {
                let why = "it would move records on their pages for too long: commit more often".to_owned();
                return Err(Error::Shipment(why));
            }
        }
        self.executor().whole().charge_times(Work::ShippedChange, changes);
        for (page, bytes) in shipment.images {
            if tried.get_mut(*page).is_some_and(|tried| !tried.has_become(bytes)) {
                return Err(Error::Shipment(format!("{page} is not as its log records leave it")));
            }
        }
        Ok(tried.in_order())
    }

    /// The shipment's pages that are here.
    fn pages_to_try<'a>(
        &self,
        shipment: &Shipment<'a>,
        (pool, known): (&'a Pool, &PagesInOrder),
    ) -> Result<TriedPages<'a>> {
        let present = |(page, may_begin): (PageId, bool)| {
            let bytes = pool.bytes(pool.frame_of(page)?);
            let is_in_order = known.has(page, header::sequence(bytes));
            let organization = self.organization_of(page.partition);
            Some(organization.map(|found| (page, TriedPage::new(bytes, found, (may_begin, is_in_order)))))
        };
        let whole = shipment.images.iter().map(|(page, _)| (*page, true));
        let pages = whole.chain(shipment.redone.iter().map(|page| (*page, false))).filter_map(present);
        Ok(TriedPages::new(pages.collect::<Result<_>>()?))
    }

    fn organization_of(&self, partition: PartitionId) -> Result<Organization> {
        Ok(self.0.engine.catalog.describe(partition)?.organization)
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

/// Only what takes the place of bytes that it names may go on from what its node has not seen.
fn is_unnumbered(body: &Body<'_>, sequence: u64) -> bool {
    let is_of_part = |undo: &[u8]| matches!(UndoList::decode(undo), Undo::PatchPage { .. } | Undo::PatchValue { .. });
    sequence == UNNUMBERED && matches!(body, Body::Update(undo) if is_of_part(undo))
}

fn not_undone() -> Error {
    Error::Shipment("it would take back what it has not changed".to_owned())
}

/// Whether a partition of this organization has updates that are taken back so.
fn is_of(undo: &Undo<'_>, organization: &Organization) -> bool {
    match undo {
        Undo::Remove { .. } | Undo::Insert { .. } | Undo::Replace { .. } | Undo::PatchValue { .. } => {
            *organization == Organization::BTree
        }
        Undo::PatchPage { .. } => matches!(organization, Organization::Direct { .. }),
        Undo::EraseAppended { .. } => matches!(organization, Organization::Append { .. }),
        Undo::FreePage { .. } => false,
    }
}
