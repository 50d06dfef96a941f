//! The queues of pages: requests in the order in which they have come, and the pages that each transaction waits for.

use super::{Directory, all_of};
use crate::message::{ClientId, Copy, Leaving, Secret, Transaction};
use base::{Instant, PageId};
use std::collections::VecDeque;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub client: ClientId,
    pub transaction: Transaction,
    pub copy: Copy,
    pub kind: Kind,
    /// When it began to.
    pub since: u64,
    /// The time at which it has come.
    pub asked: Instant,
    /// Whether its client was told that locks of records are in its way.
    pub is_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With its write lock if it `writes`.
    Read {
        leaving: Option<Leaving>,
        secret: Secret,
        writes: bool,
    },
    Write,
    /// One record of it, without a copy of the page.
    Record {
        slot: u16,
        writes: bool,
    },
}

impl Waiting {
    /// The transaction that waits.
    pub fn owner(&self) -> (ClientId, Transaction) {
        (self.client, self.transaction)
    }
}

impl Kind {
    /// Whether it is of a copy of a page.
    pub fn reads(self) -> bool {
        matches!(self, Kind::Read { .. })
    }

    /// Whether it is of a page's write lock.
    pub fn writes(self) -> bool {
        matches!(self, Kind::Write | Kind::Read { writes: true, .. })
    }
}

/// Takes what stands at these places, which are in order. The rest keeps its order.
fn take_from(queue: &mut VecDeque<Waiting>, places: &[usize]) -> Vec<Waiting> {
    if let [place] = places {
        return queue.remove(*place).into_iter().collect();
    }
    let mut next = places.iter().peekable();
    let mut taken = Vec::with_capacity(places.len());
    let mut place = 0;
    queue.retain(|waiting| {
        let is_taken = next.next_if(|next| **next == place).is_some();
        place += 1;
        taken.extend(is_taken.then_some(*waiting));
        !is_taken
    });
    taken
}

impl Directory {
    fn note_queued(&mut self, owner: (ClientId, Transaction), page: PageId) {
        *self.waits.entry(owner).or_default().entry(page).or_default() += 1;
    }

    /// Where such requests stand in a page's queue, in order.
    pub fn places(&self, page: PageId, is_meant: impl Fn(&Waiting) -> bool) -> Vec<usize> {
        let queue = self.pages.get(&page).into_iter().flat_map(|entry| &entry.queue);
        queue.enumerate().filter(|(_, waiting)| is_meant(waiting)).map(|(place, _)| place).collect()
    }

    /// Takes the requests at these places, which are in order, out of a page's queue.
    pub fn dequeue(&mut self, page: PageId, places: &[usize]) -> Vec<Waiting> {
        let Some(entry) = self.pages.get_mut(&page) else { return Vec::new() };
        let taken = take_from(&mut entry.queue, places);
        for waiting in &taken {
            self.note_unqueued(waiting.owner(), page);
        }
        taken
    }

    /// A request has been taken out of its page's queue.
    fn note_unqueued(&mut self, owner: (ClientId, Transaction), page: PageId) {
        let Some(pages) = self.waits.get_mut(&owner) else { return };
        let Some(count) = pages.get_mut(&page) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        pages.remove(&page);
        if pages.is_empty() {
            self.waits.remove(&owner);
        }
        self.note_not_asked(owner, page);
    }

    /// Adds a request to its page's queue. False if the same client has the same kind of request waiting there.
    pub fn enqueue(&mut self, mut waiting: Waiting) -> bool {
        self.clock += 1;
        waiting.since = self.clock;
        let place = self.entry(waiting.copy.page).place_of(&waiting);
        let queue = &mut self.entry(waiting.copy.page).queue;
        let is_alike = |other: Kind| std::mem::discriminant(&other) == std::mem::discriminant(&waiting.kind);
        let is_of_record = matches!(waiting.kind, Kind::Record { .. });
        if !is_of_record && queue.iter().any(|other| other.client == waiting.client && is_alike(other.kind)) {
            return false;
        }
        queue.insert(place, waiting);
        self.note_asked(&waiting);
        self.note_queued(waiting.owner(), waiting.copy.page);
        true
    }

    /// A request of a client for this copy, if it waits, is another transaction's from now on, which only reads the page: the write lock
    /// is not wanted that was to come with it. False if there is none.
    pub fn change_owner(&mut self, client: ClientId, copy: Copy, to: Transaction) -> bool {
        let Some(entry) = self.pages.get_mut(&copy.page) else { return false };
        let is_it = |waiting: &&mut Waiting| {
            let is_read = waiting.kind.reads();
            (waiting.client, waiting.copy) == (client, copy) && is_read && waiting.transaction != to
        };
        let Some(waiting) = entry.queue.iter_mut().find(is_it) else { return false };
        let from = std::mem::replace(&mut waiting.transaction, to);
        if let Kind::Read { writes, .. } = &mut waiting.kind {
            *writes = false;
        }
        self.note_unqueued((client, from), copy.page);
        self.note_queued((client, to), copy.page);
        true
    }

    /// What a transaction asks to read comes without its write lock. False if it did not ask for that.
    pub fn forget_writing(&mut self, page: PageId, owner: (ClientId, Transaction)) -> bool {
        let Some(entry) = self.pages.get_mut(&page) else { return false };
        let is_its = |waiting: &&mut Waiting| waiting.owner() == owner;
        let mut changed = false;
        for waiting in entry.queue.iter_mut().filter(is_its) {
            if let Kind::Read { writes, .. } = &mut waiting.kind {
                changed |= std::mem::take(writes);
            }
        }
        changed
    }

    /// The pages that a transaction waits for.
    pub fn waits_of(&self, owner: (ClientId, Transaction)) -> Vec<PageId> {
        self.waits.get(&owner).into_iter().flatten().map(|(page, _)| *page).collect()
    }

    /// With how many requests a transaction waits for pages and their records.
    pub fn requests_of(&self, owner: (ClientId, Transaction)) -> usize {
        self.waits.get(&owner).into_iter().flatten().map(|(_, count)| count).sum()
    }

    /// The transactions of one client that wait.
    pub fn waiting_transactions(&self, client: ClientId) -> Vec<(ClientId, Transaction)> {
        self.waits.range(all_of(client)).map(|(owner, _)| *owner).collect()
    }
}
