//! Copies that leave the memory, and copies that the server offers to a client when they leave the memory of another.
//!
//! A copy that has left is named in the next request. If others are offered it, its bytes stay until they were sent, until a
//! number of others have come behind it, or until it is called back like any other copy.
//!
//! A client takes what it is offered while it has no transactions. That is a request without one: all that is true of pages which were
//! asked for is true of these. When it has sent such a page to a client that wants it, there are two of them, and its own leaves first;
//! until the other one has left, and the server says that this is the last.

use super::{Client, Held, Lock, Place};
use crate::message::{ClientId, Copy, Leaving, Request, Secret, ToServer, Transaction};
use base::PageId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// How many pages that have left the memory wait to be named; older ones are dropped.
const DEPARTED_MAX: usize = 16;
/// How many pages are kept that others are offered; older ones are dropped.
const OFFERED_MAX: usize = 16;

/// Copies that make room for pages which were asked for and have not come.
#[derive(Default)]
pub(super) struct MakingRoom {
    /// By the page that is to come.
    leaving: HashMap<PageId, Leaving, FixedState>,
    /// By the page that leaves: that which is to come.
    coming: HashMap<PageId, PageId, FixedState>,
}

impl MakingRoom {
    fn insert(&mut self, coming: PageId, leaving: Leaving) {
        self.leaving.insert(coming, leaving);
        self.coming.insert(leaving.copy.page, coming);
    }

    /// What makes room for a page.
    pub fn get(&self, coming: PageId) -> Option<Leaving> {
        self.leaving.get(&coming).copied()
    }

    /// The page has come, or does not.
    pub fn remove(&mut self, coming: PageId) -> Option<Leaving> {
        let leaving = self.leaving.remove(&coming)?;
        self.coming.remove(&leaving.copy.page);
        Some(leaving)
    }

    /// Takes out the copy of a page that leaves.
    fn take(&mut self, leaving: PageId) -> Option<Leaving> {
        let coming = self.coming.remove(&leaving)?;
        self.leaving.remove(&coming)
    }

    fn has(&self, copy: Copy) -> bool {
        let coming = self.coming.get(&copy.page);
        coming.and_then(|coming| self.leaving.get(coming)).is_some_and(|leaving| leaving.copy == copy)
    }

    pub fn clear(&mut self) {
        self.leaving.clear();
        self.coming.clear();
    }
}

impl Client {
    /// A transaction uses a page, if that is here or is to come.
    pub(super) fn note_used(&mut self, page: PageId) {
        if let Some(held) = self.copies.get_mut(&page) {
            (held.was_used, held.used) = (true, self.now);
        }
    }

    /// A clean page leaves the memory to make room. Returns the copy whose bytes are to be kept for now, and one whose bytes are not
    /// needed any more.
    ///
    /// # Panics
    /// If it is not there.
    pub fn left(&mut self, page: PageId) -> (Option<Copy>, Option<Copy>) {
        let is_used = self.is_used(page) || self.commits.has(page);
        let held = self.copies.get_mut(&page).expect("what leaves was here");
        assert!(held.place == Place::Resident, "{page} cannot leave: {held:?}");
        if is_used {
            held.place = Place::Left;
            return (None, None);
        }
        let Held { number, lock, was_used, used, .. } = *held;
        let copy = Copy { page, number };
        self.copies.remove(&page);
        if lock == Lock::Kept {
            // The write lock goes with it.
            self.drops.push(copy);
            return (None, None);
        }
        self.departed.push(Leaving { copy, unused_ns: self.now.since_ns(used), was_used });
        let oldest = (self.departed.len() > DEPARTED_MAX).then(|| self.departed.remove(0).copy);
        self.drops.extend(oldest);
        (Some(copy), oldest)
    }

    /// Takes out a copy that has left the memory and whose bytes are kept.
    pub(super) fn take_departed(&mut self, page: PageId) -> Option<Copy> {
        if let Some(place) = self.departed.iter().position(|leaving| leaving.copy.page == page) {
            return Some(self.departed.remove(place).copy);
        }
        if let Some(place) = self.offered.iter().position(|copy| copy.page == page) {
            return Some(self.offered.remove(place));
        }
        self.making_room.take(page).map(|leaving| leaving.copy)
    }

    /// What makes room for a page that is asked for, if anything has left.
    pub(super) fn depart_for(&mut self, page: PageId) -> Option<Leaving> {
        let leaving = self.departed.pop()?;
        self.making_room.insert(page, leaving);
        Some(leaving)
    }

    pub(super) fn has_departed(&self, copy: Copy) -> bool {
        let is_it = |leaving: &Leaving| leaving.copy == copy;
        let is_kept = self.offered.contains(&copy) || self.departed.iter().any(is_it);
        is_kept || self.making_room.has(copy)
    }

    /// Others are offered a copy that has left. Returns one whose bytes are not needed any more.
    pub(super) fn keep_offered(&mut self, copy: Copy) -> Option<Copy> {
        self.offered.push(copy);
        let oldest = (self.offered.len() > OFFERED_MAX).then(|| self.offered.remove(0));
        self.drops.extend(oldest);
        oldest
    }

    /// Whether the client takes a page that it is offered: it has nothing to do, and neither has the page nor is about to.
    pub fn is_free_for(&self, page: PageId) -> bool {
        self.uses.is_empty() && !self.copies.contains_key(&page)
    }

    /// A page that was offered is taken, and not in the memory; its copy gets the secret. Returns what to say, and a copy whose bytes, kept until now, are not
    /// needed.
    ///
    /// # Panics
    /// If it is there or was asked for.
    pub fn accept(&mut self, (page, secret): (PageId, Secret)) -> (ToServer, Option<Copy>) {
        let forgotten = self.take_departed(page);
        self.drops.extend(forgotten);
        let leaving = self.depart_for(page);
        let copy = Copy { page, number: self.next_copy };
        self.next_copy += 1;
        let asked = Held::asked_for((copy.number, secret), Place::Coming { by: Transaction::NONE }, self.now);
        let before = self.copies.insert(page, Held { is_speculative: true, was_used: false, ..asked });
        assert!(before.is_none(), "{page} is asked for once");
        (self.message(Request::Accept { copy, secret, leaving }), forgotten)
    }

    /// Whether a page is on its way for no transaction: because it was offered, or is asked for ahead.
    pub fn is_speculative(&self, page: PageId) -> bool {
        self.copies.get(&page).is_some_and(|held| held.is_speculative)
    }

    /// What to say of a page that was offered and is not taken.
    pub fn decline(&mut self, page: PageId) -> ToServer {
        self.message(Request::Decline { page })
    }

    /// Whether the bytes of this copy are here and may be sent to another client: not if they are not committed, nor while a transaction
    /// wants to write them.
    pub fn may_send(&self, copy: Copy) -> bool {
        let held = self.copies.get(&copy.page).filter(|held| held.number == copy.number);
        match held {
            Some(Held { is_spoiled: true, .. }) => false,
            Some(_) if self.commits.has_changed(copy.page) => false,
            Some(held) => held.place == Place::Resident && held.lock == Lock::Shared,
            None => self.has_departed(copy),
        }
    }

    /// A copy was sent to another client. If others were offered it, it is gone: returns it, for its bytes are not needed any more.
    pub fn sent(&mut self, copy: Copy) -> Option<Copy> {
        let place = self.offered.iter().position(|offered| *offered == copy)?;
        self.drops.push(copy);
        Some(self.offered.remove(place))
    }

    /// Whether a page was passed on to the client and is here for others alone, none of its transactions having used it.
    pub fn is_for_others(&self, page: PageId) -> bool {
        self.copies.get(&page).is_some_and(|held| !held.was_used)
    }

    /// A copy is the last one. Whether it is here for others alone, and so counts as used by this.
    pub fn is_last(&mut self, copy: Copy) -> bool {
        match self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number && !held.was_used) {
            Some(held) => {
                held.used = self.now;
                held.place == Place::Resident
            }
            None => false,
        }
    }

    /// What to say of a page that cannot be sent.
    pub fn refuse(&mut self, wanted: Copy, to: ClientId) -> ToServer {
        self.message(Request::Refused { wanted, to })
    }

    /// What to say with the bytes of a copy that the server wants back.
    pub fn give_back(&mut self, copy: Copy, bytes: Vec<u8>) -> ToServer {
        self.message(Request::Returned { copy, bytes })
    }
}
