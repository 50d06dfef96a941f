//! Pages that were asked for and have not come: in whose name that is, and what becomes of a request when its transaction waits for it no
//! longer. And pages that none has asked for.
//!
//! At the server a request is one transaction's: of those that wait, in its graph of them, and of the number that one client may have waiting.
//! So it is asked in the name of one that waits for the page, as long as there is one. When the one that has asked stops waiting, or ends,
//! it is another one's that waits. If there is none, one that goes on keeps it, and may come to the page again: until then it is taken for
//! one that waits, and so is one that has asked for several pages ahead, which it is about to look at; with one that ends the
//! request ends, too. One for a write lock that is to come with the page stays its transaction's until that has ended. If that commits, the lock
//! may be on its way, and the request outlives it, until the server has answered the commit: as another one's that waits for the page, or
//! as no transaction's. What was here before the server sends without a wait, and the read lock is of all that have seen it: of that
//! request nothing is in the graph.
//!
//! One that is made ahead of a scan is no transaction's, and does not wait there: nothing of it is in the
//! graph, and it may outlive the scan. A transaction that comes to its page waits for what comes of it, and asks for the page itself if that
//! is nothing. A copy that has come so is in use when a transaction has locked the page, like every other.

use super::{Client, Lock, Place};
use crate::message::{Copy, Request, ToServer, Transaction};
use base::PageId;

impl Client {
    /// A page that was asked for ahead is not to be had without a wait. Whether it was waited for, and a copy whose kept bytes are not
    /// needed.
    pub fn would_block(&mut self, copy: Copy) -> (bool, Option<Copy>) {
        let is_ahead = self.lacks(copy) && self.is_speculative(copy.page);
        if is_ahead { self.request_withdrawn(copy) } else { (false, None) }
    }

    /// A transaction that has locked this page comes to it, wherever it is, and waits for it if it is on its way ([`Client::awaits`]). If the
    /// one that has asked for it does not wait for it, this says that the page is for this one: the server has to know which waits for which.
    pub fn enter(&mut self, transaction: Transaction, page: PageId) -> Vec<ToServer> {
        let Some(held) = self.copies.get(&page) else { return Vec::new() };
        // What no transaction has asked for comes soon or never, and waits for no one.
        match held.place {
            Place::Coming { by } if by != transaction && !held.is_speculative && !self.keeps_request(by, page) => {
                self.hand_request(page, transaction)
            }
            _ => Vec::new(),
        }
    }

    /// The transaction waits for a page to come, or does so no longer. Then it may be another one's that waits: what to say.
    pub fn awaits(&mut self, transaction: Transaction, page: Option<PageId>) -> Vec<ToServer> {
        if let Some(page) = page {
            self.awaited.insert(transaction, page);
            return Vec::new();
        }
        let Some(page) = self.awaited.remove(&transaction) else { return Vec::new() };
        let is_its = self.copies.get(&page).is_some_and(|held| held.place == Place::Coming { by: transaction });
        let is_free = is_its && !self.keeps_request(transaction, page);
        let other = self.awaiting(page).filter(|_| is_free);
        other.map(|other| self.hand_request(page, other)).unwrap_or_default()
    }

    /// A transaction that has locked the page and waits for it to come. Of several the youngest: where many give up one after the other
    /// it is about the last of them that does, and what each says of that is about all that are left.
    pub fn awaiting(&self, page: PageId) -> Option<Transaction> {
        self.locks.transactions(page).filter(|transaction| self.is_awaited_by(*transaction, page)).max()
    }

    fn is_awaited_by(&self, transaction: Transaction, page: PageId) -> bool {
        self.is_used_by(transaction, page) && self.awaited.get(&transaction) == Some(&page)
    }

    /// Whether a page that this transaction has asked for stays asked for in its name, though others wait for it.
    fn keeps_request(&self, by: Transaction, page: PageId) -> bool {
        let is_to_write = || self.copies.get(&page).is_some_and(|held| held.lock == Lock::Asked(by));
        self.is_awaited_by(by, page) || (self.is_used_by(by, page) && is_to_write())
    }

    /// A page that was asked for is another transaction's from now on, which waits for it: what to say. First that none waits for the one
    /// that has asked, if the server believes so: it may wait for another page next, and be in no deadlock by that.
    fn hand_request(&mut self, page: PageId, to: Transaction) -> Vec<ToServer> {
        let Some(held) = self.copies.get_mut(&page) else { return Vec::new() };
        let Place::Coming { by: before } = held.place else { return Vec::new() };
        held.place = Place::Coming { by: to };
        // What the server has granted comes without a wait.
        let is_granted = held.is_granted();
        let is_told = self.told.iter().any(|pair| pair.other == before);
        let told = if is_told { self.tell_waits() } else { None };
        let again = if is_granted { None } else { self.repeat(page, to) };
        told.into_iter().chain(again).collect()
    }

    /// A page has not come for long: it is asked for again, for a transaction that waits for it if there is one.
    pub fn ask_again(&mut self, page: PageId) -> Option<ToServer> {
        let Place::Coming { by } = self.copies.get(&page)?.place else { return None };
        let other = self.awaiting(page).filter(|_| !self.keeps_request(by, page));
        let by = if self.is_used_by(by, page) { by } else { Transaction::NONE };
        self.repeat(page, other.unwrap_or(by))
    }

    /// A page has not come for long: the same request again, if it is still waited for. An answer that is only late does no harm.
    pub fn repeat(&mut self, page: PageId, transaction: Transaction) -> Option<ToServer> {
        let held = self.copies.get_mut(&page)?;
        let Place::Coming { by } = &mut held.place else { return None };
        *by = transaction;
        let (leaving, secret) = (self.making_room.get(page), held.secret);
        let copy = Copy { page, number: held.number };
        Some(self.message(Request::Read { copy, secret, transaction, writes: false, leaving, waited: None }))
    }

    /// A transaction that has used a page does so no longer. If it has asked for the page, which has not come, that is for another one that
    /// waits for it from now on; or it is asked for no more, but for a commit that may have its write lock.
    pub(super) fn end_request(&mut self, page: PageId) {
        let Some(held) = self.copies.get(&page) else { return };
        let Place::Coming { by } = held.place else { return };
        if held.is_speculative || self.is_used_by(by, page) {
            return;
        }
        let (copy, was_here) = (Copy { page, number: held.number }, held.was_here);
        // A write lock that may be on its way with it is a commit's.
        let none = self.commits.has(page).then_some(Transaction::NONE);
        if let Some(to) = self.awaiting(page).or(none) {
            if to != by {
                let again = self.hand_request(page, to);
                self.due.messages.extend(again);
            }
            return;
        }
        if was_here && self.user(page).is_some() {
            return;
        }
        let (_, forgets) = self.request_withdrawn(copy);
        let message = self.message(Request::CalledBack { copy });
        self.due.messages.push(message);
        self.due.unwanted.push((copy, forgets));
    }
}
