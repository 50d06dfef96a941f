//! Redo that is left until its page is read, so that an opening need not wait for slow devices (instant restart: Graefe, Guy, Sauer 2016).
//!
//! An opening behind a cache that it takes over does not read the pages that the log has changes of. It keeps the changes, and serves.
//! Whatever reads a page makes them in the step in which the page comes into its frame: no task ever sees it without them. A
//! task behind everything else reads the pages that no other one wants, and so does a checkpoint before redo may begin later. Until none
//! is left redo begins where it began, and nothing enters the cache, as while redo goes on: what a power cut has torn on its way
//! from there is looked for in the slots.

use super::{Buffer, Pool, Presence};
use crate::log::record::decode_edit;
use crate::page_store::Future;
use crate::second_level::design::Pattern;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use executor::Turn;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::{Edit, header};

/// How many pages are read at once that no task waits for.
const AT_ONCE: usize = 32;
/// About what a page's entry takes beside its changes, in bytes.
const PAGE_BYTES: usize = 96;

/// Where whole copies of torn pages may be.
pub trait PageCopies {
    /// Brings the copy of a page to its own place that cannot be read there, as `error` says. Redo goes on with its change of this number.
    ///
    /// # Errors
    /// The same error if there is none, or the driver's.
    fn restore<'a>(&'a self, buffer: &'a Buffer, wanted: (PageId, u64), error: Error) -> Future<'a, Result<()>>;
}

#[derive(Default)]
pub(super) struct LeftRedo {
    pages: RefCell<BTreeMap<PageId, LeftChanges>>,
    /// How much memory they take, about.
    bytes: Cell<usize>,
    /// Where the first of them begins.
    since: Cell<Lsn>,
    copies: RefCell<Option<Rc<dyn PageCopies>>>,
    /// Whether the log is read to its end.
    is_read: Cell<bool>,
    /// One task reads what no other wants.
    turn: Turn,
}

/// What the log has for a page, in its order.
#[derive(Default)]
struct LeftChanges {
    /// Of each: where its record begins and ends, and it as the log has it.
    stored: Vec<u8>,
}

impl LeftChanges {
    fn iter(&self) -> impl Iterator<Item = (Lsn, Lsn, u64, Edit<'_>)> {
        let mut input = &self.stored[..];
        std::iter::from_fn(move || {
            let (start, rest) = input.split_first_chunk()?;
            let (end, mut rest) = rest.split_first_chunk()?;
            let (sequence, edit) = decode_edit(&mut rest)?;
            input = rest;
            Some((Lsn(u64::from_le_bytes(*start)), Lsn(u64::from_le_bytes(*end)), sequence, edit))
        })
    }
}

/// Whether nothing of what was on the page before the edit is needed: it was never logged, or is replaced by all that it is from now
/// on, as on a page that is used anew after it was cut off the end.
pub(crate) fn begins_page(sequence: u64, edit: &Edit<'_>) -> bool {
    sequence == 1 || edit.change.is_format()
}

impl Buffer {
    /// Redo begins: this has whole copies of torn pages.
    pub(crate) fn begin_redo(&self, copies: Rc<dyn PageCopies>) {
        self.left.copies.replace(Some(copies));
    }

    /// Whether redo of a page is left until it is read: it is not here, a cache of an earlier opening serves, and there is memory for
    /// more, half of what the buffer has.
    pub(crate) fn leaves_redo(&self, page: PageId) -> bool {
        let is_roomy = || self.left.bytes.get() < self.settings.frames / 2 * self.settings.page_size;
        let is_taken_over = || self.tiers.borrow().as_ref().is_some_and(|tiers| tiers.is_taken_over());
        let is_absent = || self.pool.borrow().presence(page) == Presence::Absent;
        is_taken_over() && is_roomy() && is_absent() && !self.space(page.partition).placement().resident
    }

    /// Keeps a change of a page that is not here, as the log has it between these positions.
    pub(crate) fn leave_redo(&self, page: PageId, (start, end): (Lsn, Lsn), encoded: &[u8]) {
        let mut pages = self.left.pages.borrow_mut();
        if pages.is_empty() {
            self.left.since.set(start);
        }
        let (before, changes) = (pages.len(), pages.entry(page).or_default());
        for part in [&start.0.to_le_bytes()[..], &end.0.to_le_bytes(), encoded] {
            changes.stored.extend_from_slice(part);
        }
        let more = 16 + encoded.len() + PAGE_BYTES * (pages.len() - before);
        self.left.bytes.set(self.left.bytes.get() + more);
    }

    /// The log is read to its end. How many pages are left.
    pub(crate) fn end_reading_log(&self) -> u64 {
        self.left.is_read.set(true);
        self.tiers().iter().for_each(|tiers| tiers.end_reading_log());
        self.end_redo_if_done();
        self.left.pages.borrow().len() as u64
    }

    fn end_redo_if_done(&self) {
        if self.left.is_read.get() && self.left.pages.borrow().is_empty() && self.left.copies.take().is_some() {
            self.left.bytes.set(0);
            self.tiers.borrow().iter().for_each(|tiers| tiers.end_replay());
        }
    }

    /// Whether redo of this page is left.
    pub fn is_left(&self, page: PageId) -> bool {
        self.left.pages.borrow().contains_key(&page)
    }

    /// Whether what a page is shows only when redo has made its changes.
    pub(super) fn is_in_redo(&self, page: PageId) -> bool {
        self.log.get().is_none() || self.is_left(page)
    }

    /// Where what is left begins, if anything is.
    pub(super) fn left_since(&self) -> Option<Lsn> {
        let is_left = !self.left.pages.borrow().is_empty() && !canary::is_planted(Canary::ForgottenRedo);
        is_left.then(|| self.left.since.get())
    }

    /// Behind the last page of a partition of which redo is left.
    pub(super) fn end_of_left(&self, partition: PartitionId) -> u32 {
        let (first, last) = (PageId::new(partition, 0), PageId::new(partition, u32::MAX));
        self.left.pages.borrow().range(first..=last).next_back().map_or(0, |(page, _)| page.number + 1)
    }

    /// Pages of a partition from this number on are not used any more.
    pub(super) fn forget_left(&self, partition: PartitionId, numbers: impl Fn(u32) -> bool) {
        self.left.pages.borrow_mut().retain(|page, _| page.partition != partition || !numbers(page.number));
        self.end_redo_if_done();
    }

    /// Refuses a page that has seen this number of changes and lacks one before those that are left.
    ///
    /// # Errors
    /// That it is damaged.
    pub(super) fn check_left(&self, id: PageId, mut present: u64) -> Result<()> {
        let pages = self.left.pages.borrow();
        let Some(changes) = pages.get(&id) else { return Ok(()) };
        for (_, _, sequence, edit) in changes.iter() {
            if sequence <= present {
                continue;
            }
            if !begins_page(sequence, &edit) && present + 1 != sequence {
                let detail = format!("it has seen {present} changes, the log goes on with change {sequence}");
                return Err(self.find_space(id.partition)?.damaged(id, detail));
            }
            present = sequence;
        }
        Ok(())
    }

    /// Makes the changes that are left of a page which has just come into a frame, and which [`Buffer::check_left`] has not refused.
    pub(super) fn redo_left(&self, pool: &mut Pool, (frame, id): (u32, PageId)) {
        let Some(changes) = self.left.pages.borrow_mut().remove(&id) else { return };
        let _in_redo = self.tiers().map(|tiers| tiers.begin_page_redo());
        for (start, end, sequence, edit) in changes.iter() {
            if header::sequence(pool.bytes(frame)) >= sequence {
                continue;
            }
            if begins_page(sequence, &edit) {
                pool.renumber(frame, sequence - 1);
            }
            pool.edit(frame, &edit.change, start, end);
        }
        self.left.bytes.set(self.left.bytes.get().saturating_sub(changes.stored.len() + PAGE_BYTES));
        self.end_redo_if_done();
    }

    /// A page of which redo is left cannot be read, for this reason: it is begun anew, or its whole copy brought to its own place.
    pub(super) async fn restore_left(self: &Rc<Self>, id: PageId, error: Error) -> Result<()> {
        let first = self.left.pages.borrow().get(&id).and_then(|changes| {
            changes.iter().next().map(|(_, _, sequence, edit)| (sequence, begins_page(sequence, &edit)))
        });
        let Some((sequence, is_begun)) = first else { return Ok(()) };
        if is_begun {
            self.check_left(id, 0)?;
            return self.make_anew(id).await;
        }
        let copies = self.left.copies.borrow().clone();
        match copies {
            Some(copies) => copies.restore(self, (id, sequence), error).await,
            None => Err(error),
        }
    }

    /// Makes what is left of redo.
    ///
    /// # Errors
    /// The first error of a page that cannot be read, after all others; the next call tries it again.
    pub(crate) async fn redo_rest(self: &Rc<Self>) -> Result<()> {
        let (mut after, mut done) = (None, Ok(()));
        while let Some((last, result)) = self.redo_more(after).await {
            (after, done) = (Some(last), done.and(result));
        }
        done
    }

    /// Makes what is left of redo of some pages behind this one. The last of them, and the first error; `None` if there are none.
    pub(crate) async fn redo_more(self: &Rc<Self>, after: Option<PageId>) -> Option<(PageId, Result<()>)> {
        let _turn = self.left.turn.take(&self.executor).await;
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let pages: Vec<PageId> = {
            let left = self.left.pages.borrow();
            // Others need frames meanwhile.
            let count = AT_ONCE.min((self.settings.frames / 4).max(1));
            left.range((first, Bound::Unbounded)).map(|(page, _)| *page).take(count).collect()
        };
        let last = *pages.last()?;
        // What fails shows when the page is fetched.
        let _tried = self.prefetch(pages.iter().copied(), Pattern::Random).await;
        let mut done = Ok(());
        for page in pages {
            if self.is_left(page) {
                let fetched = self.fetch(page, Pattern::Random).await;
                done = done.and(fetched.map(|(frame, _)| self.unpin(frame)));
            }
        }
        Some((last, done))
    }
}
