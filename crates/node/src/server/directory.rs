//! Which clients have copies of which pages, which may write, and which wait.

mod check;
mod holders;
mod queues;
mod records;
pub mod set_ranges;
pub mod users;

use crate::algorithm::Origin;
use crate::message::{ClientId, Copy, LeavingFate, Transaction, WaitsFor};
use base::{Instant, PageId};
use engine::canary::{self, Canary};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
pub use holders::Holders;
pub use queues::{Kind, Order, Waiting};
use records::{RecordLocks, RecordOwners};
use set_ranges::SetRanges;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use users::{Beside, Users};

/// The pages of which clients have copies or want them.
#[derive(Default)]
pub struct Directory {
    /// In no order: what is done with several of them is done in theirs.
    pages: HashMap<PageId, PageEntry, FixedState>,
    /// The pages that transactions wait for, and where their requests stand.
    waits: BTreeMap<(ClientId, Transaction), BTreeMap<PageId, BTreeSet<Order>>>,
    /// Those that wait for others of their own clients, and when they have begun to.
    waits_within: BTreeMap<(ClientId, Transaction), (BTreeSet<Transaction>, u64)>,
    /// Of which pages each client has copies.
    held: BTreeMap<ClientId, HashSet<PageId, FixedState>>,
    /// The copies that each was asked to send and that may not have come: whose they are, and of which pages.
    sending: BTreeMap<ClientId, BTreeSet<(ClientId, PageId)>>,
    /// How many users these have beside one for each.
    beside: BTreeMap<ClientId, Beside>,
    owners: RecordOwners,
    /// Locks in the orders of sets.
    pub ranges: SetRanges,
    /// Whether locks of pages fall to locks of records.
    falls: bool,
    /// Counts requests, so that it is known which began to wait last.
    clock: u64,
}

/// What is known of one page. Invariants, checked by [`Directory::check`]: a writer has the only copy, and a copy is called back only
/// while a write waits, or anything for a lock that is kept.
#[derive(Default)]
pub struct PageEntry {
    pub copies: Holders,
    pub writer: Option<(ClientId, Transaction)>,
    /// Whether the writer's client keeps its lock when that has ended.
    pub is_kept: bool,
    pub queue: VecDeque<Waiting>,
    /// Whether the page is on its way into the server's memory from a client that has dropped it.
    pub is_arriving: bool,
    /// Locks of its records.
    pub records: RecordLocks,
    /// Whether those of the page fall to such ones.
    falls: bool,
}

/// A copy at a client.
#[derive(Default)]
pub struct RegisteredCopy {
    pub number: u64,
    /// Transactions of which the client has said that they use it.
    pub users: Users,
    /// When it was called back, if it was.
    pub called: Option<Instant>,
    /// The client that was asked to send it, and what becomes of the one that makes room for it; until it is known to have come, or is
    /// sent from here.
    pub sender: Option<(ClientId, LeavingFate)>,
    /// How it was served, if that says what a page costs.
    pub served: Option<Served>,
    /// Whether its bytes are to come back, for it leaves the client's memory.
    pub is_wanted: bool,
    /// Whether another client was offered it, for it leaves the client's memory.
    pub is_offered: bool,
    /// How often the page was passed on since it was used last, and whether it came here by that.
    pub passed: u8,
    pub was_accepted: bool,
}

/// How a request for a page was served.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub origin: Origin,
    /// How long it had to wait for locks, in nanoseconds.
    pub queued_ns: u64,
}

impl RegisteredCopy {
    /// This, if it is that copy.
    pub fn is(&self, copy: Copy) -> Option<&RegisteredCopy> {
        (self.number == copy.number).then_some(self)
    }

    /// What was decided of it when it was named as leaving, if that has not taken it away.
    pub fn leaving_fate(&self) -> Option<LeavingFate> {
        match (self.is_wanted, self.is_offered) {
            (true, _) => Some(LeavingFate::Returned),
            (false, true) => Some(LeavingFate::Offered),
            (false, false) => None,
        }
    }
}

impl PageEntry {
    /// Whether this client may have a copy.
    pub fn may_read(&self, client: ClientId) -> bool {
        self.writer.is_none_or(|(writer, _)| writer == client) && !self.records.has_change()
    }

    /// Whether this client, which has a copy, may write.
    pub fn may_write(&self, client: ClientId) -> bool {
        let is_alone = self.copies.keys().all(|holder| *holder == client);
        self.writer.is_none()
            && self.records.is_empty()
            && !self.is_arriving
            && (is_alone || canary::is_planted(Canary::UncalledCopies))
    }

    /// Whether the client writes the page, or asks for that.
    pub fn is_written_by(&self, client: ClientId) -> bool {
        self.writer.is_some_and(|(writer, _)| writer == client) || self.is_asked_by(client)
    }

    /// Whether the client, which has a copy, asks for the write lock.
    pub fn is_asked_by(&self, client: ClientId) -> bool {
        self.queue.iter().any(|waiting| waiting.client == client && waiting.kind == Kind::Write)
    }

    /// Whether the client keeps the write lock.
    fn is_kept_by(&self, client: ClientId) -> bool {
        self.is_kept && self.writer.is_some_and(|(writer, _)| writer == client)
    }

    /// Whether a request can only be granted when this client gives its copy up.
    fn is_in_the_way(&self, client: ClientId, waiting: &Waiting) -> bool {
        let is_writer = self.writer.is_some_and(|(writer, _)| writer == client);
        match waiting.kind {
            Kind::Record { writes, .. } => writes || is_writer,
            kind if waiting.client != client => kind.writes() || self.is_kept_by(client) || (self.falls && is_writer),
            // Its own transactions are to do with records like those of others.
            kind => self.falls && kind == Kind::Write && !self.records.is_empty(),
        }
    }

    /// Whether a request waits for those that use this client's copy, beside the one that writes the page.
    fn has_to_go(&self, client: ClientId, waiting: &Waiting) -> bool {
        match waiting.kind {
            // Who has the write lock itself cannot end before it has the record, so others of its client have to let the copy fall.
            Kind::Record { writes, .. } => {
                writes || self.is_kept_by(client) || client == waiting.client && self.writer == Some(waiting.owner())
            }
            kind => client != waiting.client && (kind.writes() || self.is_kept_by(client)),
        }
    }

    /// The copies that are in the way of the first request and were not called back before.
    pub fn call_back(&mut self, now: Instant) -> Vec<(ClientId, u64)> {
        let is_needed = |client: &&ClientId| self.leading().any(|waiting| self.is_in_the_way(**client, waiting));
        let in_the_way: Vec<ClientId> = self.copies.keys().filter(is_needed).copied().collect();
        let called = in_the_way.into_iter().filter_map(|client| {
            let held = self.copies.get_mut(&client).filter(|held| held.called.is_none())?;
            held.called = Some(now);
            if self.falls {
                // Who uses it is told in answer to this.
                held.users.clear();
            }
            Some((client, held.number))
        });
        called.collect()
    }

    /// The copies that were called back and may stay, for nothing waits any more that they are in the way of.
    pub fn withdraw_callbacks(&mut self) -> Vec<(ClientId, u64)> {
        let is_needed = |client: &ClientId| self.queue.iter().any(|waiting| self.is_in_the_way(*client, waiting));
        let called = self.copies.iter().filter(|(client, held)| held.called.is_some() && !is_needed(client));
        let stays: Vec<(ClientId, u64)> = called.map(|(client, held)| (*client, held.number)).collect();
        for (client, _) in &stays {
            let held = self.copies.get_mut(client).expect("it was found");
            held.called = None;
            // Who uses it is told anew if it is called back again.
            held.users.clear();
        }
        stays
    }

    /// Where that stands in the queue which has this order.
    fn place_at(&self, order: Order) -> Option<usize> {
        self.queue.binary_search_by_key(&order, |waiting| waiting.order).ok()
    }

    /// Whom a request waits for because of copies, the page's write lock, and, if it is of the page, others of the page that are ahead.
    fn waits_by_pages(
        &self,
        (place, own): (usize, &Waiting),
        directory: &Directory,
        found: &mut Vec<(ClientId, Transaction)>,
    ) {
        let owner = own.owner();
        let is_of_record = matches!(own.kind, Kind::Record { .. });
        let is_other = |other: &(ClientId, Transaction)| other.0 != owner.0 || (is_of_record && *other != owner);
        found.extend(self.writer.filter(is_other));
        if !is_of_record {
            let ahead = self.queue.iter().take(place).filter(|other| other.client != owner.0);
            let writes = |other: &&Waiting| own.kind.writes() || other.kind.writes();
            found.extend(ahead.filter(writes).map(Waiting::owner));
        }
        let others = self.copies.iter().filter(|(client, held)| {
            let is_told = !self.falls || held.called.is_some();
            is_told && self.has_to_go(**client, own)
        });
        // Those that wait for nothing are on no cycle, and may be many.
        for (client, held) in others.filter(|(client, held)| !held.users.is_empty() && directory.has_waits(**client)) {
            let users = held.users.iter().map(|user| (*client, user));
            found.extend(users.filter(|user| is_other(user) && directory.is_waiting(*user)));
        }
    }

    /// The clients that may send their copies to this one, because they neither give them up nor want to write.
    pub fn senders(&self, to: ClientId) -> Vec<ClientId> {
        let gives = |client: ClientId, held: &RegisteredCopy| held.called.is_none() && !self.is_written_by(client);
        let held = self.copies.iter().filter(|(client, held)| **client != to && gives(**client, held));
        held.map(|(client, _)| *client).collect()
    }

    /// Whether nothing waits for the page, so that a client which may read it gets a copy when it asks for one.
    pub fn is_free_for(&self, client: ClientId) -> bool {
        self.queue.is_empty() && self.may_read(client)
    }

    fn is_empty(&self) -> bool {
        let is_free = self.copies.is_empty() && self.writer.is_none() && self.records.is_empty();
        is_free && self.queue.is_empty() && !self.is_arriving
    }
}

/// All transactions of a client.
pub fn all_of(client: ClientId) -> RangeInclusive<(ClientId, Transaction)> {
    (client, Transaction(0))..=(client, Transaction(u64::MAX))
}

impl Directory {
    /// One in which locks of pages fall to locks of records if that is so.
    pub fn new(falls: bool) -> Directory {
        Directory { falls, ..Directory::default() }
    }

    /// Where a page stands depends on this seed from now on.
    pub fn hash_with(&mut self, seed: u64) {
        let pages = std::mem::replace(&mut self.pages, HashMap::with_hasher(FixedState::with_seed(seed)));
        self.pages.extend(pages);
    }

    /// All copies.
    pub fn holders(&self) -> impl Iterator<Item = (ClientId, PageId)> {
        self.pages.iter().flat_map(|(page, entry)| entry.copies.keys().map(|client| (*client, *page)))
    }

    /// Everything that is known.
    pub fn entries(&self) -> impl Iterator<Item = (PageId, &PageEntry)> {
        self.pages.iter().map(|(page, entry)| (*page, entry))
    }

    pub fn get(&self, page: PageId) -> Option<&PageEntry> {
        self.pages.get(&page)
    }

    /// The page's entry; [`Directory::tidy`] removes an empty one.
    pub fn entry(&mut self, page: PageId) -> &mut PageEntry {
        self.pages.entry(page).or_insert_with(|| PageEntry { falls: self.falls, ..PageEntry::default() })
    }

    /// A page is on its way into the server's memory from now on. False if it was before.
    pub fn begin_keeping(&mut self, page: PageId) -> bool {
        !std::mem::replace(&mut self.entry(page).is_arriving, true)
    }

    /// The pages whose write locks are kept.
    pub fn kept(&self) -> impl Iterator<Item = PageId> {
        self.pages.iter().filter(|(_, entry)| entry.is_kept).map(|(page, _)| *page)
    }

    /// This very copy, if the client has it.
    pub fn held(&self, client: ClientId, copy: Copy) -> Option<&RegisteredCopy> {
        let held = self.pages.get(&copy.page)?.copies.get(&client)?;
        (held.number == copy.number || canary::is_planted(Canary::UnnumberedCopies)).then_some(held)
    }

    /// Whether the client has this very copy.
    pub fn holds(&self, client: ClientId, copy: Copy) -> bool {
        self.held(client, copy).is_some()
    }

    /// Enters a copy.
    pub fn register(&mut self, client: ClientId, copy: Copy) {
        let held = RegisteredCopy { number: copy.number, ..RegisteredCopy::default() };
        let before = self.enter(client, copy.page, held);
        debug_assert!(before.is_none(), "a client has one copy of a page");
    }

    /// Enters what is known of a copy, and returns what was known of the one that it replaces.
    pub fn enter(&mut self, client: ClientId, page: PageId, held: RegisteredCopy) -> Option<RegisteredCopy> {
        debug_assert!(held.sender.is_none(), "that is set for one that is entered");
        let before = self.entry(page).copies.insert(client, held);
        let hasher = self.pages.hasher();
        self.held.entry(client).or_insert_with(|| HashSet::with_hasher(hasher.clone())).insert(page);
        self.end_sending(before.as_ref().and_then(|before| before.sender), (client, page));
        before
    }

    /// Strikes out a client's copy of a page; [`Directory::tidy`] is left to the caller.
    pub fn strike_out(&mut self, client: ClientId, page: PageId) -> Option<RegisteredCopy> {
        let gone = self.pages.get_mut(&page)?.copies.remove(&client)?;
        if let Some(pages) = self.held.get_mut(&client) {
            pages.remove(&page);
            if pages.is_empty() {
                self.held.remove(&client);
                self.beside.remove(&client);
            }
        }
        self.end_sending(gone.sender, (client, page));
        Some(gone)
    }

    /// A client is asked to send another one a page, of which that has this very copy.
    pub fn begin_sending(&mut self, sender: (ClientId, LeavingFate), (client, page): (ClientId, PageId)) {
        let Some(held) = self.pages.get_mut(&page).and_then(|entry| entry.copies.get_mut(&client)) else { return };
        let before = held.sender.replace(sender);
        self.end_sending(before, (client, page));
        self.sending.entry(sender.0).or_default().insert((client, page));
    }

    /// This copy is to come from that client no more.
    fn end_sending(&mut self, sender: Option<(ClientId, LeavingFate)>, sent: (ClientId, PageId)) {
        let Some((sender, _)) = sender else { return };
        let Some(sending) = self.sending.get_mut(&sender) else { return };
        sending.remove(&sent);
        if sending.is_empty() {
            self.sending.remove(&sender);
        }
    }

    /// A client gets a page, so all copies of it were of use.
    pub fn note_used(&mut self, page: PageId) {
        self.entry(page).copies.values_mut().for_each(|held| held.passed = 0);
    }

    /// How this very copy was served, told once.
    pub fn take_served(&mut self, client: ClientId, copy: Copy) -> Option<Served> {
        let held = self.pages.get_mut(&copy.page)?.copies.get_mut(&client)?;
        held.is(copy)?;
        held.served.take()
    }

    /// What becomes of the copy that makes room for this very one, if that client was to send it: told once.
    pub fn take_sender(&mut self, client: ClientId, copy: Copy, sender: ClientId) -> Option<LeavingFate> {
        let held = self.pages.get_mut(&copy.page)?.copies.get_mut(&client)?;
        held.is(copy)?;
        let taken = held.sender.take_if(|(by, _)| *by == sender);
        self.end_sending(taken, (client, copy.page));
        taken.map(|(_, fate)| fate)
    }

    /// No other client has to send this very copy any more. Whether one had to.
    pub fn forget_sender(&mut self, client: ClientId, copy: Copy) -> bool {
        let held = self.pages.get_mut(&copy.page).and_then(|entry| entry.copies.get_mut(&client));
        let forgotten = held.filter(|held| held.number == copy.number).and_then(|held| held.sender.take());
        self.end_sending(forgotten, (client, copy.page));
        forgotten.is_some()
    }

    /// Transactions of a client use the copy of a page that it has, which was called back. Returns how many do, as far as that is kept.
    pub fn note_use(&mut self, client: ClientId, page: PageId, by: &[Transaction]) -> usize {
        let beside = self.beside.entry(client).or_default();
        let held = self.pages.get_mut(&page).and_then(|entry| entry.copies.get_mut(&client));
        held.map_or(0, |held| {
            held.users.extend(by, beside);
            held.users.len()
        })
    }

    /// A transaction of a client wants to write the copy of a page that it has. Returns how many use that.
    pub fn note_writer(&mut self, client: ClientId, page: PageId, transaction: Transaction) -> usize {
        let beside = self.beside.entry(client).or_default();
        let held = self.pages.get_mut(&page).and_then(|entry| entry.copies.get_mut(&client));
        held.map_or(0, |held| {
            held.users.insert(transaction, beside);
            held.users.len()
        })
    }

    /// What a client has waited for its copy says nothing of what a page costs.
    pub fn forget_served(&mut self, client: ClientId, page: PageId) {
        let held = self.pages.get_mut(&page).and_then(|entry| entry.copies.get_mut(&client));
        if let Some(held) = held {
            held.served = None;
        }
    }

    /// How many copies a client has.
    pub fn held_by(&self, client: ClientId) -> usize {
        self.held.get(&client).map_or(0, HashSet::len)
    }

    /// How many copies all clients have.
    pub fn registered(&self) -> usize {
        self.held.values().map(HashSet::len).sum()
    }

    /// Strikes out a copy.
    pub fn remove(&mut self, client: ClientId, copy: Copy) {
        self.strike_out(client, copy.page);
        self.tidy(copy.page);
    }

    /// Forgets a page about which nothing is known.
    pub fn tidy(&mut self, page: PageId) {
        if self.pages.get(&page).is_some_and(PageEntry::is_empty) {
            self.pages.remove(&page);
        }
    }

    /// Whether a transaction waits for anything.
    fn is_waiting(&self, owner: (ClientId, Transaction)) -> bool {
        self.waits.contains_key(&owner) || self.waits_within.contains_key(&owner) || self.ranges.is_waiting(owner)
    }

    /// Whether one of a client's does.
    fn has_waits(&self, client: ClientId) -> bool {
        let is_some = self.waits.range(all_of(client)).next().is_some();
        is_some || self.waits_within.range(all_of(client)).next().is_some() || self.ranges.has_waits(client)
    }

    /// Every transaction that waits.
    pub fn waiting_owners(&self) -> impl Iterator<Item = (ClientId, Transaction)> {
        self.waits.keys().chain(self.waits_within.keys()).copied().chain(self.ranges.waiting_owners())
    }

    /// These are all that wait for others of the same client.
    pub fn wait_within(&mut self, client: ClientId, pairs: &[WaitsFor]) {
        let earlier: BTreeMap<_, u64> =
            self.waits_within.range(all_of(client)).map(|(owner, (_, since))| (*owner, *since)).collect();
        self.end_waits_within(client, None);
        // What no transaction has asked for comes soon or never.
        for WaitsFor { transaction, other } in pairs.iter().filter(|pair| pair.other != Transaction::NONE) {
            let owner = (client, *transaction);
            let since = earlier.get(&owner).copied().unwrap_or_else(|| {
                self.clock += 1;
                self.clock
            });
            self.waits_within.entry(owner).or_insert_with(|| (BTreeSet::new(), since)).0.insert(*other);
        }
    }

    /// A transaction, or each of the client's, waits for no other one of its client any more.
    pub fn end_waits_within(&mut self, client: ClientId, transaction: Option<Transaction>) {
        match transaction {
            Some(transaction) => drop(self.waits_within.remove(&(client, transaction))),
            None => {
                let theirs: Vec<_> = self.waits_within.range(all_of(client)).map(|(owner, _)| *owner).collect();
                theirs.iter().for_each(|owner| drop(self.waits_within.remove(owner)));
            }
        }
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.pages.values().map(|entry| entry.queue.len()).sum::<usize>() + self.ranges.waiting()
    }

    /// A request begins to wait. Returns when, as others that wait can be compared with it.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The pages that someone waits for.
    pub fn contended(&self) -> Vec<PageId> {
        let contended = self.pages.iter().filter(|(_, entry)| !entry.queue.is_empty());
        let mut pages: Vec<PageId> = contended.map(|(page, _)| *page).collect();
        pages.sort_unstable();
        pages
    }

    /// The copies of one client.
    pub fn copies_of(&self, client: ClientId) -> Vec<Copy> {
        let of_page =
            |page: &PageId| Some(Copy { page: *page, number: self.pages.get(page)?.copies.get(&client)?.number });
        let mut copies: Vec<Copy> = self.held.get(&client).into_iter().flatten().filter_map(of_page).collect();
        copies.sort_unstable();
        copies
    }

    /// The copies that this client was asked to send and that may not have come, by those who get them.
    pub fn sent_by(&self, sender: ClientId) -> BTreeMap<ClientId, Vec<Copy>> {
        let mut sent: BTreeMap<ClientId, Vec<Copy>> = BTreeMap::new();
        for (client, page) in self.sending.get(&sender).into_iter().flatten().filter(|(client, _)| *client != sender) {
            let held = self.pages.get(page).and_then(|entry| entry.copies.get(client));
            let copies = sent.entry(*client).or_default();
            copies.extend(held.map(|held| Copy { page: *page, number: held.number }));
        }
        sent
    }

    /// Whom a transaction waits for, not by way of third ones, and since when it has waited.
    pub fn waits_for(&self, owner: (ClientId, Transaction), found: &mut Vec<(ClientId, Transaction)>) -> Option<u64> {
        let mut since = self.ranges.waits_for(owner, found);
        if let Some((others, began)) = self.waits_within.get(&owner) {
            since = since.max(Some(*began));
            found.extend(others.iter().map(|other| (owner.0, *other)));
        }
        for (page, orders) in self.waits.get(&owner).into_iter().flatten() {
            let Some(entry) = self.pages.get(page) else { continue };
            // Of a page that has fallen a transaction may want several records.
            for place in orders.iter().filter_map(|order| entry.place_at(*order)) {
                let own = &entry.queue[place];
                since = since.max(Some(own.since));
                entry.waits_by_records(place, found);
                entry.waits_by_pages((place, own), self, found);
            }
        }
        since
    }
}
