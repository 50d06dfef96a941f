//! Pages that were asked for by transactions that have ended. They come for others that wait for them, or not at all.
//!
//! At the server a request is one transaction's: of those that wait, in its graph of them, and of the number that one client may have waiting.
//! So no request outlives its transaction.

use super::{Client, Place};
use crate::message::{Copy, Request};
use base::PageId;

impl Client {
    /// A transaction that has used a page does so no longer. If it has asked for the page, which has not come, that is for another one that
    /// uses it from now on; or it is asked for no more.
    pub(super) fn end_request(&mut self, page: PageId) {
        let Some(held) = self.copies.get(&page) else { return };
        let Place::Coming { by } = held.place else { return };
        // What was offered comes soon or never. A write lock that may be on its way with it is a commit's.
        if held.was_offered || self.is_used_by(by, page) || self.commits.has(page) {
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
