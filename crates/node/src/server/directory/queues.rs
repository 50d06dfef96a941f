//! The queues of pages: requests in the order in which they have come, and where those of each transaction stand.

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
    /// Its place among those of its queue, which are in this order.
    pub order: Order,
    /// The time at which it has come.
    pub asked: Instant,
    /// Whether its client was told that locks of records are in its way.
    pub is_told: bool,
}

/// Between which two that have come it stands, and when it has come itself if that was later. The first may be before all that have come.
pub type Order = (i64, u64);

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
    /// One that has come at this time and stands in no queue yet.
    pub fn new((client, transaction): (ClientId, Transaction), (copy, kind): (Copy, Kind), asked: Instant) -> Waiting {
        Waiting { client, transaction, copy, kind, since: 0, order: (0, 0), asked, is_told: false }
    }

    /// The transaction that waits.
    pub fn owner(&self) -> (ClientId, Transaction) {
        (self.client, self.transaction)
    }

    /// The same as others know it: none if it is [`disowned`].
    pub fn known_owner(&self) -> Option<Transaction> {
        (self.transaction != disowned(self.copy)).then_some(self.transaction)
    }
}

/// Whose a request for a copy is that is no transaction's any more. It stands alone in the graph of those that wait: two of one client
/// have nothing to do with each other. Transactions are numbered from zero, and never come so far.
pub fn disowned(copy: Copy) -> Transaction {
    Transaction(Transaction::NONE.0.wrapping_sub(1).wrapping_sub(copy.number))
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
    fn note_queued(&mut self, waiting: &Waiting) {
        let pages = self.waits.entry(waiting.owner()).or_default();
        pages.entry(waiting.copy.page).or_default().insert(waiting.order);
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
        taken.iter().for_each(|waiting| self.note_unqueued(waiting));
        taken
    }

    /// A request has been taken out of its page's queue.
    fn note_unqueued(&mut self, waiting: &Waiting) {
        let (owner, page) = (waiting.owner(), waiting.copy.page);
        let Some(pages) = self.waits.get_mut(&owner) else { return };
        let Some(orders) = pages.get_mut(&page) else { return };
        orders.remove(&waiting.order);
        if !orders.is_empty() {
            return;
        }
        pages.remove(&page);
        if pages.is_empty() {
            self.waits.remove(&owner);
        }
        self.end_asking(owner, page);
    }

    /// Adds a request to its page's queue. False if the same client has the same kind of request waiting there.
    pub fn enqueue(&mut self, mut waiting: Waiting) -> bool {
        self.clock += 1;
        waiting.since = self.clock;
        let place = self.entry(waiting.copy.page).place_of(&waiting);
        let queue = &mut self.entry(waiting.copy.page).queue;
        // What is passed has come for itself, or has passed what has, and all that is ahead of it before that.
        waiting.order =
            queue.get(place).map_or((waiting.since.cast_signed(), 0), |passed| (passed.order.0 - 1, waiting.since));
        let is_alike = |other: Kind| std::mem::discriminant(&other) == std::mem::discriminant(&waiting.kind);
        let is_of_record = matches!(waiting.kind, Kind::Record { .. });
        if !is_of_record && queue.iter().any(|other| other.client == waiting.client && is_alike(other.kind)) {
            return false;
        }
        queue.insert(place, waiting);
        self.note_asked(&waiting);
        self.note_queued(&waiting);
        true
    }

    /// A request of a client for this copy, if it waits, is another transaction's from now on, which only reads the page: the write lock
    /// is not wanted that was to come with it; or no transaction's. False if there is none.
    pub fn change_owner(&mut self, client: ClientId, copy: Copy, to: Transaction) -> bool {
        let to = if to == Transaction::NONE { disowned(copy) } else { to };
        let Some(entry) = self.pages.get_mut(&copy.page) else { return false };
        let is_it = |waiting: &&mut Waiting| {
            let is_read = waiting.kind.reads();
            (waiting.client, waiting.copy) == (client, copy) && is_read && waiting.transaction != to
        };
        let Some(waiting) = entry.queue.iter_mut().find(is_it) else { return false };
        let before = *waiting;
        waiting.transaction = to;
        if let Kind::Read { writes, .. } = &mut waiting.kind {
            *writes = false;
        }
        let now = *waiting;
        self.note_unqueued(&before);
        self.note_queued(&now);
        true
    }

    /// What a transaction has asked to read comes without its write lock, and is no transaction's from now on ([`disowned`]). Whether it has asked for that.
    pub fn disown_read(&mut self, page: PageId, owner: (ClientId, Transaction)) -> bool {
        let Some(entry) = self.pages.get_mut(&page) else { return false };
        let is_its = |waiting: &&mut Waiting| waiting.owner() == owner && waiting.kind.reads();
        let Some(waiting) = entry.queue.iter_mut().find(is_its) else { return false };
        let before = *waiting;
        waiting.transaction = disowned(waiting.copy);
        let has_written = match &mut waiting.kind {
            Kind::Read { writes, .. } => std::mem::take(writes),
            Kind::Write | Kind::Record { .. } => false,
        };
        let now = *waiting;
        self.note_unqueued(&before);
        self.note_queued(&now);
        has_written
    }

    /// The pages that a transaction waits for.
    pub fn waits_of(&self, owner: (ClientId, Transaction)) -> Vec<PageId> {
        self.waits.get(&owner).into_iter().flatten().map(|(page, _)| *page).collect()
    }

    /// With how many requests a transaction waits for pages and their records.
    pub fn requests_of(&self, owner: (ClientId, Transaction)) -> usize {
        self.waits.get(&owner).into_iter().flatten().map(|(_, orders)| orders.len()).sum()
    }

    /// The transactions of one client that wait.
    pub fn waiting_transactions(&self, client: ClientId) -> Vec<(ClientId, Transaction)> {
        self.waits.range(all_of(client)).map(|(owner, _)| *owner).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RecordLock;
    use base::{PartitionId, Random};

    fn request(number: u64) -> Waiting {
        let copy = Copy { page: PageId::new(PartitionId(1), 1), number };
        Waiting::new((ClientId(1), Transaction(number)), (copy, Kind::Write), Instant::from_ns(0))
    }

    #[test]
    fn what_is_taken_and_what_is_left_keep_their_orders() {
        for seed in 0..500 {
            let mut random = Random::stream(seed, "queues");
            let mut queue: VecDeque<Waiting> = (0..random.below(20)).map(request).collect();
            let chance = random.below(11) as f64 / 10.0;
            let (mut places, mut taken, mut left) = (Vec::new(), Vec::new(), Vec::new());
            for (place, waiting) in queue.iter().enumerate() {
                if random.chance(chance) {
                    places.push(place);
                    taken.push(waiting.transaction);
                } else {
                    left.push(waiting.transaction);
                }
            }
            let found = take_from(&mut queue, &places);
            assert!(found.iter().map(|waiting| waiting.transaction).eq(taken), "seed {seed}");
            assert!(queue.iter().map(|waiting| waiting.transaction).eq(left), "seed {seed}");
        }
    }

    /// Of many that come at one page, and leave it in any order, each is found by its order.
    #[test]
    fn a_queue_is_in_its_order_wherever_a_request_is_put() {
        for seed in 0..500 {
            let mut random = Random::stream(seed, "orders of queues");
            let mut directory = Directory::new(true);
            let page = request(0).copy.page;
            for number in 0..60 {
                let owner = (ClientId(random.below(12) as u32), Transaction(random.below(3)));
                let kind = match random.below(6) {
                    0 => Kind::Read { leaving: None, secret: Secret(5), writes: random.chance(0.5) },
                    1 | 2 => Kind::Write,
                    _ => Kind::Record { slot: random.below(8) as u16, writes: true },
                };
                let copy = Copy { page, number };
                if random.chance(0.3) {
                    let record = RecordLock { slot: number as u16, transaction: owner.1, writes: false };
                    directory.lock_record(owner.0, page, record);
                }
                directory.enqueue(Waiting::new(owner, (copy, kind), Instant::from_ns(0)));
                let many = directory.entry(page).queue.len() as u64;
                if random.chance(0.4) {
                    directory.dequeue(page, &[random.below(many) as usize]);
                    directory.tidy(page);
                }
                directory.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
        }
    }
}
