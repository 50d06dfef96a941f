//! Pages that were asked for by transactions that have ended: they come for others that wait for them, or not at all. And pages that none
//! has asked for.
//!
//! At the server a request is one transaction's: of those that wait, in its graph of them, and of the number that one client may have waiting.
//! So no request outlives its transaction. One that is made ahead of a scan is no transaction's, and does not wait there: nothing of it is in the
//! graph, and it may outlive the scan. A transaction that comes to its page waits for what comes of it, and asks for the page itself if that
//! is nothing. A copy that has come so is in use when a transaction has locked the page, like every other.

use super::{Client, Place};
use crate::message::{Copy, Request};
use base::PageId;

impl Client {
    /// A page that was asked for ahead is not to be had without a wait. Whether it was waited for, and a copy whose kept bytes are not
    /// needed.
    pub fn would_block(&mut self, copy: Copy) -> (bool, Option<Copy>) {
        let is_ahead = self.lacks(copy) && self.is_speculative(copy.page);
        if is_ahead { self.request_withdrawn(copy) } else { (false, None) }
    }

    /// A transaction that has used a page does so no longer. If it has asked for the page, which has not come, that is for another one that
    /// uses it from now on; or it is asked for no more.
    pub(super) fn end_request(&mut self, page: PageId) {
        let Some(held) = self.copies.get(&page) else { return };
        let Place::Coming { by } = held.place else { return };
        // What no transaction has asked for comes soon or never. A write lock that may be on its way with it is a commit's.
        if held.is_speculative || self.is_used_by(by, page) || self.commits.has(page) {
            return;
        }
        let copy = Copy { page, number: held.number };
        if let Some(other) = self.user(page) {
            let again = self.repeat(page, other);
            self.due.messages.extend(again);
            return;
        }
        let (_, forgets) = self.request_withdrawn(copy);
        let message = self.message(Request::CalledBack { copy });
        self.due.messages.push(message);
        self.due.unwanted.push((copy, forgets));
    }
}
