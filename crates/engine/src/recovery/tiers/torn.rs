//! Pages that a power cut has torn on their way from a slot of a cache. Where the cache's table was believed, the slot has the whole
//! copy, and perhaps the table does not say so yet.
//!
//! An older copy is all that there is if an opening had the page from there and was cut off, too, after others had taken the slot
//! of the newer one. It is from before the point where redo begins, and counts if it lacks nothing but what is redone.

use super::EarlierTier;
use super::scan::{Scanned, SlotCopy, restore, scan};
use crate::buffer::{Buffer, PageCopies};
use crate::page_store::Future;
use crate::tier_file::TierRecord;
use crate::{Error, Result};
use base::{Lsn, PageId};
use executor::Executor;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Where copies of torn pages are looked for while redo goes on.
pub struct TornPages {
    executor: Executor,
    source: CopySource,
}

enum CopySource {
    /// Nowhere: what slots held is on the pages' own devices.
    None,
    /// In all slots of this cache, once, or in those of these copies; redo begins behind the position.
    Slots {
        found: Rc<Vec<EarlierTier>>,
        tier: usize,
        redo_start: Lsn,
        copies: RefCell<Option<BTreeMap<PageId, SlotCopy>>>,
    },
    /// In a cache that is not there, for this reason.
    Missing(TierRecord, String),
}

impl PageCopies for TornPages {
    fn restore<'a>(&'a self, buffer: &'a Buffer, wanted: (PageId, u64), error: Error) -> Future<'a, Result<()>> {
        Box::pin(TornPages::restore(self, buffer, wanted, error))
    }
}

impl TornPages {
    /// No page can be torn for whose copy this would be needed.
    pub(super) fn none(executor: &Executor) -> TornPages {
        TornPages { executor: executor.clone(), source: CopySource::None }
    }

    /// Copies are in the slots of one of these tiers.
    pub(super) fn in_slots(
        executor: &Executor,
        found: Rc<Vec<EarlierTier>>,
        tier: usize,
        redo_start: Lsn,
    ) -> TornPages {
        let source = CopySource::Slots { found, tier, redo_start, copies: RefCell::default() };
        TornPages { executor: executor.clone(), source }
    }

    /// These copies are in slots of one of the tiers.
    pub(super) fn with_copies(
        executor: &Executor,
        found: Rc<Vec<EarlierTier>>,
        tier: usize,
        (redo_start, copies): (Lsn, BTreeMap<PageId, SlotCopy>),
    ) -> TornPages {
        let source = CopySource::Slots { found, tier, redo_start, copies: RefCell::new(Some(copies)) };
        TornPages { executor: executor.clone(), source }
    }

    /// Copies may have been in this cache, which is not there.
    pub(super) fn missing(executor: &Executor, record: TierRecord, detail: String) -> TornPages {
        TornPages { executor: executor.clone(), source: CopySource::Missing(record, detail) }
    }

    /// Brings the copy of a page to its own place that cannot be read there, for the reason that `error` says. Redo goes on with the
    /// page's change of number `sequence`.
    ///
    /// # Errors
    /// The same error if there is none; [`Error::TierMissing`] if a cache that is not there may have one; or the driver's.
    pub async fn restore(&self, buffer: &Buffer, (page, sequence): (PageId, u64), error: Error) -> Result<()> {
        let (found, tier, redo_start, copies) = match &self.source {
            CopySource::None => return Err(error),
            CopySource::Missing(record, detail) => {
                let detail = format!("{detail}, and it may have the whole copy of a page: {error}");
                return Err(record.missing(&detail));
            }
            CopySource::Slots { found, tier, redo_start, copies } => (found, *tier, *redo_start, copies),
        };
        if let Some(tiers) = buffer.tiers().filter(|tiers| tiers.is_loading()) {
            tiers.await_statement(page).await;
            if tiers.tier_of(page).is_some() {
                return Ok(());
            }
        }
        if copies.borrow().is_none() {
            let mut newest = BTreeMap::new();
            if scan(&self.executor, buffer, &found[tier], tier, &mut newest).await? == Scanned::Silent {
                let EarlierTier { record, limit, .. } = &found[tier];
                return Err(record.missing(&limit.exceeded()));
            }
            copies.replace(Some(newest));
        }
        // Each copy serves once: what cannot be read afterwards is damaged.
        let copy = copies.borrow_mut().as_mut().and_then(|copies| copies.remove(&page));
        let space = buffer.find_space(page.partition)?;
        let is_followed = |copy: &SlotCopy| sequence.checked_sub(1) == Some(copy.version.sequence);
        let is_whole = |copy: &SlotCopy| copy.version.lsn > redo_start || is_followed(copy);
        let Some(copy) = copy.filter(|copy| copy.is_distinct(&space) && is_whole(copy)) else { return Err(error) };
        let frame = self.executor.frame(space.page_size())?;
        let is_restored = restore(&self.executor, &found[tier], &space, (page, copy.slot), frame).await?;
        if is_restored { Ok(()) } else { Err(error) }
    }
}
