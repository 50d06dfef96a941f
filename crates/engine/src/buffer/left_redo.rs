//! Redo that is left until its page is read, so that an opening need not wait for slow devices (instant restart: Graefe, Guy, Sauer 2016).
//!
//! An opening behind a cache that it takes over does not read the pages that the log has changes of. It keeps the changes, and serves.
//! Whatever reads a page makes them in the step in which the page comes into its frame: no task ever sees it without them. A
//! task behind everything else reads the pages that no other one wants, and so does a checkpoint before redo may begin later. Until none
//! is left nothing enters the cache, as while redo goes on: what a power cut has torn on its way
//! from there is looked for in the slots.
//!
//! Half of the buffer's size has room for changes. Of those behind them it is kept where their records are in the log, which is kept
//! for them anyway: 16 bytes for each record and page. They are read from there before their page is ([`KeptRecords`]). Where that takes
//! the other half of the buffer's size, redo of further pages is not left, and of those that are it is kept between which records
//! of the log the others are. A page that is read takes, while it is, what the log has for it.

mod kept_records;

use super::wanted::Fetching;
use super::{Buffer, Pool, Presence};
use crate::log::KeptLog;
use crate::log::record::decode_edit;
use crate::page_store::Future;
use crate::second_level::design::Pattern;
use crate::{Error, Result};
use base::{Lsn, PageId, PartitionId};
use executor::Turn;
use kept_records::KeptRecords;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::page::{Edit, header};

/// How many pages are read at once that no task waits for.
const AT_ONCE: usize = 32;
/// About what a page's entry takes beside its changes, in bytes.
const PAGE_BYTES: usize = 128;
/// What it takes to know where a record is, in bytes.
const PLACE_BYTES: usize = size_of::<(Lsn, Lsn)>();

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
    copies: RefCell<Option<Rc<dyn PageCopies>>>,
    /// How the log is read that has what memory has no room for, once it was read to its end.
    log: OnceCell<KeptLog>,
    /// One task reads what no other wants.
    turn: Turn,
    /// Copies of torn pages are looked for one after the other.
    restoring: Turn,
}

/// What the log has for a page, in its order.
struct LeftChanges {
    /// Where the first of them begins.
    since: Lsn,
    /// Of each: where its record begins and ends, and it as the log has it.
    stored: Vec<u8>,
    /// Where the records of those behind them begin and end, or stretches of the log that have them.
    places: Vec<(Lsn, Lsn)>,
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

    fn store(&mut self, (start, end): (Lsn, Lsn), encoded: &[u8]) {
        for part in [&start.0.to_le_bytes()[..], &end.0.to_le_bytes(), encoded] {
            self.stored.extend_from_slice(part);
        }
    }

    fn bytes(&self) -> usize {
        PAGE_BYTES + self.stored.len() + PLACE_BYTES * self.places.len()
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

    /// How much memory the buffer has, in bytes.
    fn size(&self) -> usize {
        self.settings.frames * self.settings.page_size
    }

    /// Whether redo of a page is left until it is read: it is not here, a cache of an earlier opening serves, and there is memory for
    /// more. What is left of a page once is not read before the end of the log, but for a first page.
    pub(crate) fn leaves_redo(&self, page: PageId) -> bool {
        // The changes of a first page are all in memory, and it is read once others have that room.
        if page.number == 0 && !self.has_room_for_changes() {
            return false;
        }
        if self.is_left(page) {
            return true;
        }
        let is_roomy = || self.left.bytes.get() + PAGE_BYTES < self.size();
        let is_taken_over = || self.tiers().is_some_and(|tiers| tiers.is_taken_over());
        let is_absent = || self.pool.borrow().presence(page) == Presence::Absent;
        is_taken_over() && is_roomy() && is_absent() && !self.space(page.partition).placement().resident
    }

    /// Keeps a change of a page that is not here, as the log has it between these positions.
    pub(crate) fn leave_redo(&self, page: PageId, place: (Lsn, Lsn), encoded: &[u8]) {
        let mut pages = self.left.pages.borrow_mut();
        let before = pages.get(&page).map_or(0, LeftChanges::bytes);
        let changes =
            pages.entry(page).or_insert_with(|| LeftChanges { since: place.0, stored: Vec::new(), places: Vec::new() });
        // A first page may be read before the end of the log, to learn how long its partition's file is to be.
        let is_stored = page.number == 0 || (changes.places.is_empty() && self.has_room_for_changes());
        match changes.places.last_mut() {
            _ if is_stored => changes.store(place, encoded),
            Some(last) if self.left.bytes.get() >= self.size() => last.1 = place.1,
            Some(last) if *last == place => {}
            _ => changes.places.push(place),
        }
        self.left.bytes.set(self.left.bytes.get() + changes.bytes() - before);
    }

    fn has_room_for_changes(&self) -> bool {
        self.left.bytes.get() < self.size() / 2
    }

    /// The log is read to its end, and is this. How many pages are left, and how many bytes of memory that takes.
    pub(crate) fn end_reading_log(&self, log: KeptLog) -> (u64, u64) {
        assert!(self.left.log.set(log).is_ok(), "the log is read once");
        self.tiers().iter().for_each(|tiers| tiers.end_reading_log());
        self.end_redo_if_done();
        (self.left.pages.borrow().len() as u64, self.left.bytes.get() as u64)
    }

    fn end_redo_if_done(&self) {
        let is_read = self.left.log.get().is_some();
        if is_read && self.left.pages.borrow().is_empty() && self.left.copies.take().is_some() {
            self.left.bytes.set(0);
            self.tiers().iter().for_each(|tiers| tiers.end_replay());
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
        let pages = self.left.pages.borrow();
        pages.values().map(|changes| changes.since).min().filter(|_| !canary::is_planted(Canary::LeftBehind))
    }

    /// Behind the last page of a partition of which redo is left.
    pub(super) fn end_of_left(&self, partition: PartitionId) -> u32 {
        let (first, last) = (PageId::new(partition, 0), PageId::new(partition, u32::MAX));
        self.left.pages.borrow().range(first..=last).next_back().map_or(0, |(page, _)| page.number + 1)
    }

    /// A page is not used any more, or is about to be written as a whole past redo, and nothing fetches it: what is left of it goes.
    pub(super) fn forget_left_page(&self, page: PageId) {
        self.left.pages.borrow_mut().remove(&page);
        self.end_redo_if_done();
    }

    /// Pages of a partition are not used any more, for good: those that are on their way come as they were, and nothing reads them.
    pub(super) fn forget_left(&self, partition: PartitionId) {
        self.left.pages.borrow_mut().retain(|page, _| page.partition != partition);
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
        assert!(changes.places.is_empty(), "what is left of a page is read before the page is");
        let _in_redo = self.tiers().map(|tiers| tiers.begin_page_redo(changes.since));
        for (start, end, sequence, edit) in changes.iter() {
            if header::sequence(pool.bytes(frame)) >= sequence || canary::is_planted(Canary::ForgottenRedo) {
                continue;
            }
            if begins_page(sequence, &edit) {
                pool.renumber(frame, sequence - 1);
            }
            pool.edit(frame, &edit.change, start, end);
        }
        self.left.bytes.set(self.left.bytes.get().saturating_sub(changes.bytes()));
        self.end_redo_if_done();
    }

    /// Whether this error says that a page cannot be read from its own place of which redo is left, while its device goes on.
    pub(super) fn is_left_unreadable(&self, id: PageId, error: &Error) -> bool {
        let has_failed = || self.find_space(id.partition).is_ok_and(|space| space.failure().is_some());
        error.is_unreadable() && self.is_left(id) && self.check_syncs().is_ok() && !has_failed()
    }

    /// A page of which redo is left cannot be read, for this reason: it is begun anew, or its whole copy brought to its own place. One
    /// task does so, while no other one fetches the page; a task of its own, as who wants the page may be given up midway.
    pub(super) async fn restore_left(self: &Rc<Self>, id: PageId, error: Error) -> Result<()> {
        let Some(turn) = self.want(id, Pattern::Random) else {
            self.await_turn(id).await;
            return Ok(());
        };
        let this = Rc::clone(self);
        self.executor.spawn(async move { this.restore_in_turn(&turn, error).await }).join().await
    }

    async fn restore_in_turn(self: &Rc<Self>, turn: &Fetching, error: Error) -> Result<()> {
        let id = turn.page();
        self.bring_left(id).await?;
        let first = || {
            let pages = self.left.pages.borrow();
            let (_, _, sequence, edit) = pages.get(&id)?.iter().next()?;
            Some((sequence, begins_page(sequence, &edit)))
        };
        let is_absent = || self.pool.borrow().presence(id) == Presence::Absent;
        let _restoring = match first() {
            // Another task has done so.
            Some(_) if !is_absent() => return Ok(()),
            None => return Ok(()),
            Some((_, true)) => {
                self.check_left(id, 0)?;
                return self.make_anew(id).await;
            }
            Some((_, false)) => self.left.restoring.take(&self.executor).await,
        };
        let Some((sequence, _)) = first().filter(|_| is_absent()) else { return Ok(()) };
        let copies = self.left.copies.borrow().clone();
        match copies {
            Some(copies) => copies.restore(self, (id, sequence), error).await,
            None => Err(error),
        }
    }

    /// Reads what memory had no room for of the changes that are left of a page which is about to be read.
    ///
    /// # Errors
    /// The driver's, or a damaged log.
    pub(super) async fn bring_left(&self, id: PageId) -> Result<()> {
        let has_places = || self.left.pages.borrow().get(&id).is_some_and(|changes| !changes.places.is_empty());
        if has_places() { self.bring_changes(&[id]).await } else { Ok(()) }
    }

    async fn bring_changes(&self, ids: &[PageId]) -> Result<()> {
        let mut wanted = KeptRecords::default();
        {
            let pages = self.left.pages.borrow();
            let places = |id: &PageId| pages.get(id).map(|changes| (*id, changes.places.clone()));
            ids.iter().filter_map(places).for_each(|(id, places)| wanted.add(id, places));
        }
        let kept = self.left.log.get().zip(self.log.get());
        let (kept, log) = kept.expect("what is left is read behind the end of the log");
        let found = wanted.read(&self.executor, (kept, log)).await?;
        let mut pages = self.left.pages.borrow_mut();
        for (id, read) in found {
            // Another task may have brought or made them meanwhile.
            let Some(changes) = pages.get_mut(&id).filter(|changes| !changes.places.is_empty()) else { continue };
            let before = changes.bytes();
            read.iter().for_each(|(place, encoded)| changes.store(*place, encoded));
            changes.places = Vec::new();
            self.left.bytes.set((self.left.bytes.get() + changes.bytes()).saturating_sub(before));
        }
        Ok(())
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
        let (pages, brought) = {
            let left = self.left.pages.borrow();
            let next = || left.range((first, Bound::Unbounded));
            // Others need frames meanwhile.
            let count = AT_ONCE.min((self.settings.frames / 4).max(1));
            let pages: Vec<PageId> = next().map(|(page, _)| *page).take(count).collect();
            let is_read = next().take(count).all(|(_, changes)| changes.places.is_empty());
            // The log is read for as many pages together as have room.
            let mut room = if is_read { 0 } else { self.size() as u64 / 4 };
            let has_room = |(_, changes): &(&PageId, &LeftChanges)| {
                let has_room = room > 0;
                room = room.saturating_sub(changes.places.iter().map(|(start, end)| end.0 - start.0).sum());
                has_room
            };
            (pages, next().take_while(has_room).map(|(page, _)| *page).collect::<Vec<_>>())
        };
        let last = *pages.last()?;
        if !brought.is_empty() {
            // What fails shows when its page is fetched.
            let _tried = self.bring_changes(&brought).await;
        }
        let _tried = self.prefetch(pages.iter().copied(), Pattern::Random).await;
        let mut done = Ok(());
        for page in pages {
            if !self.is_left(page) {
                continue;
            }
            match self.fetch(page, Pattern::Random).await {
                Ok((frame, _)) => self.unpin(frame),
                // Its partition may have been dropped meanwhile.
                Err(error) => done = done.and(if self.is_left(page) { Err(error) } else { Ok(()) }),
            }
        }
        Some((last, done))
    }
}
