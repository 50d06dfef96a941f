//! Loading the table of a cache that an earlier opening has left, beside the work that the database does.
//!
//! The table is read from its end back, so each slot's first statement is the latest, and is believed at once: the page is served from
//! there, after the usual look at what the slot holds. Until every slot is known
//! * nothing enters the cache, nor is the table written, and no checkpoint lets redo begin later, but for that of an opening, which
//!   leaves redo where it began if the log has room, or goes on behind the opening;
//! * a slot's statement is passed over if redo has come by its page, or the page has been changed, before it was read: its own
//!   device, or main memory, has what is newer. That is stated when all is known.
//!
//! A page that redo does not come by and that was not changed since is on its own device as it is in its slot. So what is not known
//! yet is read from there.

use super::Tiers;
use crate::tier_file::table::{BLOCK_BYTES, Statement, TableReader};
use base::{Lsn, PageId};
use executor::WaitQueue;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How many blocks are read at once, at most.
const BLOCKS_AT_ONCE: u64 = 64;

/// A table that is being loaded.
#[derive(Default)]
pub struct TableLoading {
    present: RefCell<Option<Unstated>>,
    ended: WaitQueue,
    /// The end of the latest change that a slot has which the page's own device may lack.
    latest: Cell<Lsn>,
}

/// What matters until all slots are known.
struct Unstated {
    redo_start: Lsn,
    /// Whether slots may have what pages' own devices lack. Otherwise what redo would come by is of another time.
    is_in_use: bool,
    /// Pages whose slots count no more if they are not known yet.
    passed: BTreeSet<PageId>,
    /// The latest version that was stated, and its slot.
    latest: Option<(Lsn, u32)>,
}

impl Tiers {
    /// Whether it is not known yet what all slots hold.
    pub fn is_loading(&self) -> bool {
        self.loading.present.borrow().is_some()
    }

    /// Returns when it is known of each slot what it holds.
    pub async fn await_loading(&self) {
        while self.is_loading() {
            self.loading.ended.wait(&self.executor).await;
        }
    }

    /// A page's own device or main memory has, or is about to have, what counts: its slot does not if it is not known yet.
    pub fn pass_over(&self, page: PageId) {
        if let Some(unstated) = &mut *self.loading.present.borrow_mut()
            && !canary::is_planted(Canary::LateStatement)
        {
            unstated.passed.insert(page);
        }
    }

    /// Waits until it is known whether the cache has a page that cannot be read from its own device. Nothing has changed it.
    pub async fn await_statement(&self, page: PageId) {
        if let Some(unstated) = &mut *self.loading.present.borrow_mut() {
            unstated.passed.remove(&page);
        }
        self.await_loading().await;
    }

    /// The end of the latest change that the cache's table has told of and that pages' own devices may lack.
    pub fn latest_change(&self) -> Lsn {
        self.loading.latest.get()
    }

    pub(super) fn begin_loading(&self, (redo_start, is_in_use): (Lsn, bool)) {
        let unstated = Unstated { redo_start, is_in_use, passed: BTreeSet::new(), latest: None };
        self.loading.present.replace(Some(unstated));
    }

    /// Takes over what slots hold that are known from now on. It is verified when they are read. Pages' own devices may lack what was
    /// changed behind the beginning of redo; such a copy stays whatever the design wants.
    pub fn adopt_statements(&self, mut statements: Vec<Statement>) {
        let (Some(host), mut loading) = (self.host_if_there(), self.loading.present.borrow_mut()) else { return };
        let Some(unstated) = &mut *loading else { return };
        let (mut slots, mut policy) = (self.slots.borrow_mut(), self.policy.borrow_mut());
        statements.sort_unstable_by_key(|(slot, held)| (held.map(|held| held.version.lsn), *slot));
        for (slot, held) in statements.into_iter().filter_map(|(slot, held)| Some((slot, held?))) {
            let (page, lsn) = (held.page, held.version.lsn);
            let is_newer_than_redo = lsn > unstated.redo_start;
            let is_usable = host.may_be_cached(page)
                && !unstated.passed.contains(&page)
                && match is_newer_than_redo {
                    true => unstated.is_in_use && self.redoing_from.get().is_some(),
                    false => policy.on_restart(page),
                };
            let older = slots.lookup(page);
            if !is_usable || older.is_some_and(|older| !slots.is_older(older, held)) {
                // It must not come back with the next opening.
                slots.note_change(slot);
                continue;
            }
            if older.is_some() {
                slots.drop_unverified(page);
            }
            if is_newer_than_redo {
                self.loading.latest.set(self.loading.latest.get().max(lsn));
            }
            slots.adopt_stated(slot, held, unstated.redo_start);
            unstated.latest = unstated.latest.max(Some((lsn, slot)));
        }
    }

    /// Goes on to load the table, beside all else, at most this number of bytes at once.
    pub fn go_on_loading(self: &Rc<Self>, mut reader: TableReader, bytes: u64) {
        let this = Rc::clone(self);
        let blocks = (bytes / BLOCK_BYTES as u64).clamp(1, BLOCKS_AT_ONCE);
        self.executor.spawn(async move {
            loop {
                let executor = this.executor.clone();
                let read = this.answered(async move {
                    let read = reader.read(&executor, blocks).await;
                    (reader, read)
                });
                let Ok((again, Ok(Ok(read)))) = read.await else { break this.end_loading(false) };
                reader = again;
                match read {
                    _ if this.is_lost() || this.host_if_there().is_none() => break this.end_loading(false),
                    Some(statements) => this.adopt_statements(statements),
                    None => break this.end_loading(true),
                }
                this.executor.yield_now().await;
            }
        });
    }

    /// It is known of all slots what they hold; otherwise those count as empty of which it is not, and the table as lost.
    pub fn end_loading(self: &Rc<Self>, is_whole: bool) {
        let Some(unstated) = self.loading.present.take() else { return };
        if let Some((_, slot)) = unstated.latest {
            self.policy.borrow_mut().resume_behind(slot);
        }
        if !is_whole && let Some(table) = &*self.table.borrow() {
            table.fail();
        }
        self.loading.ended.wake_all(&self.executor);
        self.state_changes();
    }
}
