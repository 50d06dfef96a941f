//! Locks that fall to records of a page while several clients want different ones of them (PS-AA: Carey, Franklin, Zaharioudakis,
//! "Fine-Grained Sharing in a Page Server OODBMS", SIGMOD 1994), and rise to the page again.
//!
//! The granules are nested: a copy is a read lock of all records of its page, a page's write lock one for changes of all. As long as no one
//! is in the way that is all there is. A record is one that is found by its number, or on a leaf of a b-tree by a number that is made of its key
//! (`leaf_records.rs`): a change of it moves no other one. Whatever moves records of a leaf needs the page.
//!
//! - A copy that is in the way is called back by [`Answer::Fall`]. A client whose transactions use none of it gives it up. One whose
//!   transactions do with records gives it up, too, and says which they have read and changed: these locks are entered in the same step
//!   in which the copy, and a write lock, are struck out ([`Request::Fell`](crate::message::Request::Fell)). Otherwise it says who uses the
//!   copy, and falls or gives it up when it can.
//! - A record is asked for with its lock, and is sent as it was committed last. A read lock needs that no one has the page's write lock, a
//!   lock for a change that there is no copy of the page at all, so no copy ever lacks what is committed. Both need that no other
//!   transaction has the record in a mode that excludes it, also of the same client: between transactions of a node the server decides.
//! - Locks of records are those of transactions, and end with them: with the server's answer to a commit, or with [`Server::abort`].
//!   What is committed so are log records without numbers, which the server gives them: its page is where the changes of several
//!   clients come together, and never comes whole from one of them.
//! - A page is not given out while one of its records is being changed, and its write lock not while any is locked. Who asks for it is told
//!   so, and may ask for records ([`Answer::ByRecords`]); who needs the page waits. Requests keep their order, but that those of different
//!   records pass each other, and that a transaction with records of a page gets others before those that wait for the page.
//! - A client asks for the page again when it was alone with its records several times, so locks rise when the contention is over.
//! - All of it is in one graph of waits, and goes with a lost client like its copies.
//!
//! The paper's clients keep their copies and mark what is called back in them; here the copy goes. That costs a message for each read of
//! a page while it has fallen, and saves states in which a copy is true only in part: none can be read by mistake, sent to another client,
//! or kept by one that joins again.

use super::directory::{Kind, Waiting};
use super::{Action, Memory, Misbehaviour, Server, misbehaved};
use crate::grants::Right;
use crate::message::{Answer, ClientId, Copy, RecordLock, Transaction};
use base::PageId;
use engine::canary::{self, Canary};

/// Locks of records that transactions of one client may have. One more is refused.
pub const RECORDS_MAX: usize = 1 << 16;

impl Server {
    /// Grants what can be granted of records of a page.
    pub(super) fn advance_records(
        &mut self,
        page: PageId,
        may_grant: bool,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        let places = self.directory.entry(page).grantable_records(may_grant);
        let lock_of = |Waiting { client, transaction, kind, .. }| match kind {
            Kind::Record { slot, writes } => Some((client, RecordLock { slot, transaction, writes })),
            _ => None,
        };
        let granted: Vec<(ClientId, RecordLock)> =
            self.dequeue(page, &places).into_iter().filter_map(lock_of).collect();
        for (client, lock) in &granted {
            self.lock_record(*client, (page, *lock));
        }
        granted.into_iter().for_each(|(client, lock)| self.show_record(client, (page, lock), memory, actions));
    }

    /// Tells those that wait for a page of locks of its records.
    pub(super) fn tell_of_records(&mut self, page: PageId, actions: &mut Vec<Action>) {
        let told = self.directory.entry(page).tell_of_records();
        actions.extend(told.into_iter().map(|(client, copy)| Action::Send(client, Answer::ByRecords { copy })));
    }

    fn lock_record(&mut self, client: ClientId, (page, lock): (PageId, RecordLock)) {
        let is_read_unlocked = canary::is_planted(Canary::UnlockedSetRead) && !self.placement.falls() && !lock.writes;
        if !canary::is_planted(Canary::UnlockedRecord) && !is_read_unlocked {
            self.directory.lock_record(client, page, lock);
        }
    }

    /// Has a record sent whose lock a transaction has.
    fn show_record(
        &mut self,
        client: ClientId,
        (page, lock): (PageId, RecordLock),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        // One of a set is asked for again, with its key.
        self.counts.records += u64::from(!memory.is_set(page.partition));
        let entry = self.directory.entry(page);
        let is_alone = entry.queue.is_empty() && entry.records.are_of(client);
        actions.push(Action::SendRecord { to: client, page, lock, is_alone });
    }

    /// A transaction asks for a record, or about a set. It waits for one answer at a time: what it has asked for before, and waits for, its
    /// program has given up. Who asks for the same record once more keeps its place.
    pub(super) fn withdraw_questions(
        &mut self,
        owner: (ClientId, Transaction),
        but: Option<(PageId, u16)>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.directory.ranges.withdraw(owner);
        self.advance_ranges(memory, actions);
        let Some(page) = self.directory.record_asked_of(owner) else { return };
        let is_other = |kind: Kind| matches!(kind, Kind::Record { slot, .. } if Some((page, slot)) != but);
        let is_meant = |waiting: &Waiting| waiting.owner() == owner && is_other(waiting.kind);
        if !self.take_requests(page, is_meant, actions).is_empty() {
            self.advance(page, memory, actions);
        }
    }

    /// A transaction wants a record.
    pub(super) fn ask_record(
        &mut self,
        client: ClientId,
        (page, lock): (PageId, RecordLock),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let right = if lock.writes { Right::Write } else { Right::Read };
        let owner = (client, lock.transaction);
        if self.writers.get(&owner).is_some_and(|writer| writer.is_committing) {
            return Err(misbehaved(client, "committed the transaction that asks for a record of", page));
        }
        self.withdraw_questions(owner, Some((page, lock.slot)), memory, actions);
        let has_it = self.directory.get(page).is_some_and(|entry| entry.records.has(owner, lock.slot, false));
        let refusal = if !self.may(client, page, right) {
            Some((true, self.note_denial(client, page, right)))
        } else if !memory.may_have_record(page, lock.slot) {
            Some((false, format!("{page} has no object {} that is found by its number", lock.slot)))
        } else if !has_it && self.directory.records_held(client) >= RECORDS_MAX {
            Some((false, format!("its node has locks of {RECORDS_MAX} records, and no more may be locked at a time")))
        } else {
            None
        };
        if let Some((is_denied, reason)) = refusal {
            actions.push(Action::Send(client, Answer::NoRecord { page, lock, is_denied, reason }));
            return Ok(());
        }
        self.want_record(client, (page, lock), memory, actions)
    }

    /// The same, when it may have it: its lock is granted now or later.
    pub(super) fn want_record(
        &mut self,
        client: ClientId,
        (page, lock): (PageId, RecordLock),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let owner = (client, lock.transaction);
        if self.directory.get(page).is_some_and(|entry| entry.records.has(owner, lock.slot, lock.writes)) {
            // It has fallen, and its bytes were not there.
            self.show_record(client, (page, lock), memory, actions);
            return Ok(());
        }
        let copy = Copy { page, number: u64::MAX };
        let kind = Kind::Record { slot: lock.slot, writes: lock.writes };
        if let Some(waiting) = self.directory.waiting_record(owner, page, lock.slot) {
            if lock.writes {
                waiting.kind = kind;
            }
            self.advance(page, memory, actions);
            self.end_deadlock(owner, memory, actions);
            return Ok(());
        }
        self.enqueue(Waiting::new(owner, (copy, kind), self.now), memory, actions)
    }

    /// A client has given up a copy in use, for locks of its records.
    pub(super) fn fall(
        &mut self,
        client: ClientId,
        copy: Copy,
        locks: &[RecordLock],
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let page = copy.page;
        let Some(entry) = self.directory.get(page).filter(|_| self.directory.holds(client, copy)) else {
            return Err(misbehaved(client, "locks of records, and had no copy, of", page));
        };
        let writer = entry.writer.filter(|writer| writer.0 == client);
        if writer.is_some_and(|owner| self.writers.get(&owner).is_some_and(|writer| writer.is_committing)) {
            return Err(misbehaved(client, "a commit under way of, and fell to records of,", page));
        }
        let is_entitled = |lock: &RecordLock| {
            let owner = (client, lock.transaction);
            let is_committing = self.writers.get(&owner).is_some_and(|writer| writer.is_committing);
            !is_committing && (!lock.writes || writer.is_some()) && memory.may_have_record(page, lock.slot)
        };
        let is_bounded = self.directory.records_held(client) + locks.len() <= RECORDS_MAX;
        if !is_bounded || !locks.iter().all(is_entitled) || !entry.records.admits(client, locks) {
            return Err(misbehaved(client, "claimed locks that it cannot have of records of", page));
        }
        self.take_requests(page, |waiting| waiting.client == client && waiting.kind == Kind::Write, actions);
        if let Some(owner) = writer {
            self.end_write(owner, page);
        }
        for lock in locks {
            self.directory.lock_record(client, page, *lock);
        }
        self.counts.falls += 1;
        self.directory.remove(client, copy);
        self.advance(page, memory, actions);
        // They are waited for now that may not have been known to use the copy.
        let owners = locks.iter().map(|lock| (client, lock.transaction)).collect();
        self.end_deadlocks(&owners, memory, actions);
        Ok(())
    }

    /// A client has given up a copy that was called back, or does not want one any more that it has asked for.
    pub(super) fn give_up_copy(
        &mut self,
        client: ClientId,
        copy: Copy,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let is_it = |waiting: &Waiting| (waiting.client, waiting.copy) == (client, copy) && waiting.kind.reads();
        if !self.directory.holds(client, copy) && !self.take_requests(copy.page, is_it, actions).is_empty() {
            if canary::is_planted(Canary::ForgottenWaiter) {
                self.directory.tidy(copy.page);
                return Ok(());
            }
            self.advance(copy.page, memory, actions);
            return Ok(());
        }
        self.drop_copy(client, copy, memory, actions)
    }

    /// A transaction's locks of records are over.
    pub(super) fn release_records(
        &mut self,
        owner: (ClientId, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) {
        self.directory.ranges.end(owner);
        for page in self.directory.unlock_records(owner) {
            self.withdraw_callbacks(page, actions);
            self.advance(page, memory, actions);
        }
        self.advance_ranges(memory, actions);
    }

    /// Whether a transaction, whose commit may be under way, has the lock of a record for a change.
    pub fn changes_record(&self, client: ClientId, transaction: Transaction, (page, slot): (PageId, u16)) -> bool {
        self.directory.changes_record((client, transaction), page, slot)
    }

    /// How many locks of records a client's transactions have.
    pub fn records_held(&self, client: ClientId) -> usize {
        self.directory.records_held(client)
    }
}
