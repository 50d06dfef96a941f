//! Copies that are called back: they are given up when no transaction uses them any more and all that was changed of them is committed.

use super::{Client, Held, Lock, LockHolder, Place};
use crate::message::{Copy, Request, ToServer, Transaction, WAITS_MAX, WaitsFor};
use base::PageId;
use engine::canary::{self, Canary};
use engine::lock::Mode;

/// What is to be done when the server calls a copy back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledBack {
    /// What to say; nothing if the page is on its way here without a transaction that waits for it.
    pub answer: Option<ToServer>,
    /// The page is to be taken out of the memory.
    pub discards: bool,
    /// The bytes of this copy, which were kept though it has left, are not needed any more.
    pub forgets: Option<Copy>,
}

impl Client {
    /// The server calls a copy back.
    pub fn call_back(&mut self, copy: Copy) -> CalledBack {
        let page = copy.page;
        let is_held = self.copies.get(&page).is_some_and(|held| held.number == copy.number);
        if !is_held {
            // It has left the memory, or is long gone.
            let forgets = self.has_departed(copy).then(|| self.take_departed(page)).flatten();
            return CalledBack { answer: Some(self.message(Request::CalledBack { copy })), discards: false, forgets };
        }
        let users = self.users(page);
        let is_free = users.is_empty() && !self.commits.has(page);
        let held = self.copies.get_mut(&page).expect("it is held");
        let place = held.place;
        let is_coming = matches!(place, Place::Coming { .. });
        if is_free && !is_coming {
            self.copies.remove(&page);
            let answer = Some(self.message(Request::CalledBack { copy }));
            return CalledBack { answer, discards: place == Place::Resident, forgets: None };
        }
        held.is_called = true;
        if !is_coming {
            self.await_users(page);
        }
        let is_told = !users.is_empty() && !canary::is_planted(Canary::SilentUse);
        let answer = is_told.then(|| self.message(Request::InUse { copy, by: users }));
        CalledBack { answer, ..CalledBack::default() }
    }

    /// Says that transactions use a copy that was called back.
    pub(super) fn tell_use(&mut self, copy: Copy, by: Vec<Transaction>) {
        if !canary::is_planted(Canary::SilentUse) {
            let message = self.message(Request::InUse { copy, by });
            self.due.messages.push(message);
        }
    }

    /// A transaction has got the lock of a page for which it had waited before the copy was called back, if it was.
    pub(super) fn tell_late_use(&mut self, transaction: Transaction, page: PageId) {
        if let Some(Held { number, is_called: true, .. }) = self.copies.get(&page) {
            self.tell_use(Copy { page, number: *number }, vec![transaction]);
        }
    }

    /// A copy that was called back may stay.
    pub fn withdrawn(&mut self, copy: Copy) {
        if let Some(held) =
            self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number && !held.is_spoiled)
        {
            held.is_called = false;
            self.locks.end(LockHolder::Callback(copy.page));
        }
    }

    /// The page is given up when those that use it have ended, and no one else uses it before that.
    pub(super) fn await_users(&mut self, page: PageId) {
        let holder = LockHolder::Callback(page);
        // One that stands in the queue keeps its place.
        if !self.locks.is_waiting(holder) && self.locks.holds(holder, page).is_none() {
            let _granted = self.locks.request(holder, page, Mode::Exclusive);
        }
    }

    /// A copy that was called back before it could be looked at stays while it is used, or in a commit under way.
    pub(super) fn stay_called(&mut self, copy: Copy) {
        self.await_users(copy.page);
        // They may have come to it after it was called back.
        let users = self.users(copy.page);
        if !users.is_empty() {
            self.tell_use(copy, users);
        }
    }

    /// Gives up a page that was called back, if it is not needed any more.
    pub(super) fn try_give_up(&mut self, page: PageId) {
        let holder = LockHolder::Callback(page);
        let Some(Held { number, place, is_called: true, .. }) = self.copies.get(&page) else { return };
        let (copy, place) = (Copy { page, number: *number }, *place);
        let is_free = self.locks.holds(holder, page).is_some() && !self.commits.has(page);
        if !is_free || matches!(place, Place::Coming { .. }) {
            return;
        }
        self.copies.remove(&page);
        self.due.discards.extend((place == Place::Resident).then_some(page));
        let message = self.message(Request::CalledBack { copy });
        self.due.messages.push(message);
        self.locks.end(holder);
    }

    /// Whether what is here of a page is not what was committed: who has waited for it must not look at it.
    pub fn is_spoiled(&self, page: PageId) -> bool {
        self.has_spoiled && self.copies.get(&page).is_some_and(|held| held.is_spoiled)
    }

    /// What is here of a page is not what was committed.
    pub(super) fn spoil(&mut self, page: PageId) {
        let Some(held) = self.copies.get_mut(&page) else { return };
        (held.is_called, held.is_spoiled, self.has_spoiled) = (true, true, true);
        if !matches!(held.lock, Lock::Asked(_)) {
            held.lock = Lock::Shared;
        }
        self.await_users(page);
        self.try_give_up(page);
    }

    /// What to say so that the server knows which transactions wait for which others of this node, if it does not know that. Where that is more
    /// than may be said at a time, each time others of them are named. So a cycle by way of one of them, or of two that follow each other, is
    /// found in its turn.
    pub fn tell_waits(&mut self) -> Option<ToServer> {
        let mut active = self.active();
        let turn = active.partition_point(|transaction| *transaction < self.tells_from);
        active.rotate_left(turn);
        let mut pairs: Vec<WaitsFor> = Vec::new();
        let mut left = active.into_iter().map(|transaction| (transaction, self.waits_for(transaction)));
        let next = left.find_map(|(transaction, mut others)| {
            others.truncate(WAITS_MAX);
            let is_beyond = pairs.len() + others.len() > WAITS_MAX;
            let told = if is_beyond { Vec::new() } else { others };
            pairs.extend(told.into_iter().map(|other| WaitsFor { transaction, other }));
            is_beyond.then_some(transaction)
        });
        self.tells_from = next.unwrap_or_default();
        (pairs != self.told).then(|| {
            self.told.clone_from(&pairs);
            self.message(Request::Waits { pairs })
        })
    }

    /// Whether transactions wait for others of this node, or the server believes that they do.
    pub fn has_waits(&self) -> bool {
        !(self.told.is_empty() && self.waiting.is_empty() && self.awaited.is_empty())
    }

    /// The transactions of this node that one waits for: those with a lock that it wants, and the one that has asked for a page that is to
    /// come.
    fn waits_for(&self, transaction: Transaction) -> Vec<Transaction> {
        if canary::is_planted(Canary::UntoldWaits) {
            return Vec::new();
        }
        if self.waiting.contains_key(&transaction) {
            return self.locks.blockers(transaction);
        }
        let page = self.awaited.get(&transaction);
        match page.and_then(|page| self.copies.get(page)).map(|held| held.place) {
            // What none has asked for waits for no one.
            Some(Place::Coming { by }) if by != transaction && by != Transaction::NONE => vec![by],
            _ => Vec::new(),
        }
    }
}
