//! Locks of pages that fall to locks of records, as a client sees them; the rules are the server's (`server/records.rs`).
//!
//! A transaction that finds a record by its number, or by its key on a leaf of a b-tree, comes to it by way of its page, or by a lock of its own. It says before which of them it
//! does with, and here is noted what it has read and changed by way of a page: that is what it keeps when the copy is called back. From then
//! on it comes to records of the page by locks of their own, as one does that had such a lock before; so what it has changed of a page is
//! either all in the copy or all beside it.

use super::{CalledBack, Client, LockHolder, Place};
use crate::message::{Copy, LIST_MAX, RecordLock, Request, SetQuestion, SetRecord, ToServer, Transaction};
use base::PageId;
use engine::canary::{self, Canary};
use engine::lock::Mode;
use std::collections::{BTreeMap, BTreeSet};

/// How a transaction comes to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granule {
    /// By a copy of its page, which it locks.
    Page,
    /// By a lock of its own, without the page.
    Record,
}

/// What a transaction has to do to have the lock of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAccess {
    /// Nothing: it has it, and the record.
    Held,
    /// Say this and wait for the answer.
    Ask(ToServer),
    /// Wait: it has asked before.
    Wait,
}

/// A copy was given up while it was in use: what has to be done before the server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallen {
    /// The page.
    pub page: PageId,
    /// Whether it is in the memory. Then it is to be taken out of it, and its transactions keep these records.
    pub is_here: bool,
    /// The locks that they have.
    pub locks: Vec<RecordLock>,
}

/// How often a node that was told that others want records of a page comes to these by locks of their own before it asks for the page again.
const TIMES: u8 = 4;
/// How many transactions of a node come to records by way of a page after one has needed the whole page and had locks of records.
const TRANSACTIONS: u64 = 64;
/// Of how many pages either is known.
const KNOWN_MAX: usize = 4096;
/// How many locks of records a node has, beyond which no copy falls, and further pages are come to whole.
const LOCKS_MAX: usize = 1 << 14;

type Records = BTreeMap<(PageId, u16), RecordHeld>;

/// A lock of a record.
#[derive(Clone, Copy)]
struct RecordHeld {
    writes: bool,
    /// Whether the record is here.
    is_known: bool,
}

#[derive(Default)]
pub(super) struct NodeRecords {
    /// What each transaction that does with records has read, or changed, of each page that it uses.
    used: BTreeMap<(Transaction, PageId), BTreeMap<u16, bool>>,
    /// The locks of transactions, also of those whose commits are not answered; and what they have asked for.
    held: BTreeMap<Transaction, Records>,
    asked: BTreeMap<Transaction, BTreeMap<(PageId, u16), bool>>,
    /// The record for which each waits. The server withdraws what was asked for before, if that is not granted already.
    awaited: BTreeMap<Transaction, (PageId, u16)>,
    /// The transactions that have asked for records of sets.
    of_sets: BTreeSet<Transaction>,
    /// Copies that are to fall when they can.
    falling: BTreeSet<PageId>,
    /// The pages whose records are to be come to by locks of their own, so often; and those that are not, up to that transaction.
    fallen: BTreeMap<PageId, u8>,
    whole: BTreeMap<PageId, Transaction>,
    /// Whether the server is known as one whose locks fall.
    falls: bool,
}

impl NodeRecords {
    fn count(&self) -> usize {
        self.held.values().map(BTreeMap::len).sum()
    }

    /// Whether the transaction has locks of records of the page, or has asked for such.
    fn has(&self, transaction: Transaction, page: PageId) -> bool {
        let all = (page, 0)..=(page, u16::MAX);
        let has_asked = self.asked.get(&transaction).is_some_and(|asked| asked.range(all.clone()).next().is_some());
        has_asked || self.held.get(&transaction).is_some_and(|held| held.range(all).next().is_some())
    }

    /// Whether the server knows of locks or requests of the transaction's.
    pub fn has_any(&self, transaction: Transaction) -> bool {
        let has_of_pages = self.held.contains_key(&transaction) || self.asked.contains_key(&transaction);
        has_of_pages || self.of_sets.contains(&transaction)
    }

    /// The transaction is no longer active.
    pub fn end_uses(&mut self, transaction: Transaction) {
        let all = (transaction, PageId::unpacked(0))..=(transaction, PageId::unpacked(u64::MAX));
        let used: Vec<_> = self.used.range(all).map(|(key, _)| *key).collect();
        used.iter().for_each(|key| drop(self.used.remove(key)));
        self.asked.remove(&transaction);
        self.awaited.remove(&transaction);
    }

    /// Its locks are over.
    pub fn end_locks(&mut self, transaction: Transaction) {
        self.held.remove(&transaction);
        self.of_sets.remove(&transaction);
    }

    /// Others want records of the page.
    fn note_fallen(&mut self, page: PageId) {
        self.falls = true;
        if self.fallen.len() == KNOWN_MAX {
            self.fallen.clear();
        }
        self.fallen.insert(page, TIMES);
    }
}

impl Client {
    /// A transaction uses all of a page, and what it has locked of it is the page. False if it has locks of its records: then it has
    /// to be run again, and comes to those by way of the page.
    pub fn use_page(&mut self, transaction: Transaction, page: PageId) -> bool {
        if self.records.has(transaction, page) {
            self.come_by_page(page);
            return false;
        }
        self.records.used.remove(&(transaction, page));
        true
    }

    /// The next transactions come to records of a page by way of it.
    fn come_by_page(&mut self, page: PageId) {
        if self.records.whole.len() == KNOWN_MAX {
            self.records.whole.clear();
        }
        self.records.whole.insert(page, Transaction(self.next_transaction + TRANSACTIONS));
    }

    /// Locks a page that is here for a transaction which looks at all of it in the same step. False if anything is in the way: then it comes to
    /// the page by [`Client::use_page`] and [`Client::lock`].
    pub fn try_use_page(&mut self, transaction: Transaction, page: PageId, mode: Mode) -> bool {
        let Some(held) = self.copies.get(&page) else { return false };
        let is_free = held.place == Place::Resident && !held.is_called && !held.is_spoiled;
        let mode = if canary::is_planted(Canary::SharedChanges) { Mode::Shared } else { mode };
        is_free && self.try_lock_whole(transaction, page, mode)
    }

    /// Locks a page for reading for a transaction that will look at all of it, wherever it is. False if anything is in the way: then it comes
    /// to the page when it looks at it.
    pub fn lock_ahead(&mut self, transaction: Transaction, page: PageId) -> bool {
        self.try_lock_whole(transaction, page, Mode::Shared)
    }

    /// Locks all of a page among the transactions of the node, if nothing is in the way.
    fn try_lock_whole(&mut self, transaction: Transaction, page: PageId, mode: Mode) -> bool {
        let is_free = !self.records.has(transaction, page)
            && self.locks.try_request(LockHolder::Transaction(transaction), page, mode);
        if is_free {
            self.records.used.remove(&(transaction, page));
            self.uses.get_mut(&transaction).expect("it has begun and not ended").insert(page);
            self.note_used(page);
        }
        is_free
    }

    /// Whether a transaction has locked no more of a page than records.
    pub fn does_with_records(&self, transaction: Transaction, page: PageId) -> bool {
        self.records.used.contains_key(&(transaction, page))
    }

    /// How a transaction, which does with records of a page, is to come to them now.
    pub fn granule(&mut self, transaction: Transaction, page: PageId) -> Granule {
        if self.records.has(transaction, page) {
            return Granule::Record;
        }
        let does_with_records = self.does_with_records(transaction, page);
        if self.is_used_by(transaction, page) && !does_with_records {
            return Granule::Page;
        }
        if self.records.whole.get(&page).is_some_and(|until| transaction < *until) {
            // It waits for the page as one does that needs all of it.
            self.records.used.remove(&(transaction, page));
            return Granule::Page;
        }
        let held = self.copies.get(&page);
        // What it uses it goes on with until that falls: for a record of its own it would wait for that, and for those that do not let it.
        let goes_on = held.is_some() && self.is_used_by(transaction, page);
        let is_here = goes_on || held.is_some_and(|held| !held.is_called);
        if !is_here && self.records.fallen.contains_key(&page) {
            if self.records.count() < LOCKS_MAX {
                return Granule::Record;
            }
            // More would be refused at last, and it would fail whenever it is run.
            self.records.used.remove(&(transaction, page));
            return Granule::Page;
        }
        self.records.used.entry((transaction, page)).or_default();
        Granule::Page
    }

    /// A transaction reads or changes a record by way of its page.
    pub fn note_record(&mut self, transaction: Transaction, page: PageId, (slot, writes): (u16, bool)) {
        if let Some(used) = self.records.used.get_mut(&(transaction, page)) {
            *used.entry(slot).or_default() |= writes;
        }
    }

    /// What a transaction says that wants a record of a set, which the server keeps for it until it ends.
    pub fn ask_set_record(&mut self, record: SetRecord) -> ToServer {
        self.records.of_sets.insert(record.transaction);
        self.records.awaited.remove(&record.transaction);
        self.message(Request::SetRecord(record))
    }

    /// What a transaction says that asks about a set: the server keeps its locks until it ends.
    pub fn ask_about_set(&mut self, question: SetQuestion) -> ToServer {
        self.records.of_sets.insert(question.transaction);
        self.records.awaited.remove(&question.transaction);
        self.message(Request::Set(question))
    }

    /// A transaction comes to a record by a lock of its own.
    pub fn access_record(
        &mut self,
        transaction: Transaction,
        page: PageId,
        (slot, writes): (u16, bool),
    ) -> RecordAccess {
        let key = (page, slot);
        let held = self.records.held.get(&transaction).and_then(|held| held.get(&key));
        if held.is_some_and(|held| held.writes >= writes && held.is_known) {
            return RecordAccess::Held;
        }
        let asked = self.records.asked.entry(transaction).or_default();
        let is_awaited = self.records.awaited.insert(transaction, key) == Some(key);
        if is_awaited && asked.get(&key).is_some_and(|asked| *asked >= writes) {
            return RecordAccess::Wait;
        }
        asked.insert(key, writes);
        RecordAccess::Ask(self.message(Request::Record { page, lock: RecordLock { slot, transaction, writes } }))
    }

    /// A transaction has the lock of a record, which has come. False if that is of no use any more: the transaction has ended, or has got a
    /// greater lock of it before and may have changed it. The next one asks for the page if this one was alone with it often enough.
    pub fn record_granted(&mut self, page: PageId, lock: RecordLock, is_alone: bool) -> bool {
        match self.records.fallen.get_mut(&page) {
            Some(times) if is_alone && *times > 1 => *times -= 1,
            _ if is_alone => drop(self.records.fallen.remove(&page)),
            _ => self.records.note_fallen(page),
        }
        let RecordLock { slot, transaction, writes } = lock;
        if !self.is_active(transaction) {
            return false;
        }
        self.end_asking(page, lock);
        let held = self.records.held.entry(transaction).or_default();
        let held = held.entry((page, slot)).or_insert(RecordHeld { writes, is_known: false });
        let is_news = !held.is_known || (writes && !held.writes);
        (held.writes, held.is_known) = (held.writes || writes, true);
        is_news
    }

    /// A transaction does not get a record, whose lock the server may have given it all the same: who goes on to want the page would wait for
    /// itself. False if that is of no use any more: it has ended, or has got the record by now.
    pub fn record_refused(&mut self, page: PageId, lock: RecordLock) -> bool {
        self.end_asking(page, lock);
        let RecordLock { slot, transaction, writes } = lock;
        if !self.is_active(transaction) {
            return false;
        }
        let held = self.records.held.entry(transaction).or_default();
        let held = held.entry((page, slot)).or_insert(RecordHeld { writes, is_known: false });
        !(held.is_known && held.writes >= writes)
    }

    /// A transaction has asked for a record of what is no leaf any more: it has to be run again, and the next ones come to the page. False if
    /// it has ended.
    pub fn has_no_leaf(&mut self, page: PageId, lock: RecordLock) -> bool {
        self.records.fallen.remove(&page);
        self.come_by_page(page);
        self.record_refused(page, lock)
    }

    fn end_asking(&mut self, page: PageId, RecordLock { slot, transaction, writes }: RecordLock) {
        let Some(asked) = self.records.asked.get_mut(&transaction) else { return };
        if asked.get(&(page, slot)).is_some_and(|asked| *asked <= writes) {
            asked.remove(&(page, slot));
        }
    }

    /// Whether locks have fallen here, or could have.
    pub fn may_see_falls(&self) -> bool {
        self.records.falls
    }

    /// The server calls a copy back. One in use may fall instead; if it cannot at this moment, it does when it can.
    pub fn fall(&mut self, copy: Copy) -> CalledBack {
        let page = copy.page;
        self.records.falls = true;
        if self.copies.get(&page).is_some_and(|held| held.number == copy.number) {
            if self.may_fall(page) {
                self.fall_now(page);
                return CalledBack::default();
            }
            self.records.falling.insert(page);
        }
        self.call_back(copy)
    }

    /// Copies fall that could not before.
    pub(super) fn try_falls(&mut self) {
        for page in self.records.falling.clone() {
            if !self.copies.get(&page).is_some_and(|held| held.is_called) {
                self.records.falling.remove(&page);
            } else if self.may_fall(page) {
                self.fall_now(page);
            }
        }
    }

    /// Whether those that use a called copy do with locks of its records: none waits for its bytes, and what was changed of it before is
    /// committed.
    fn may_fall(&self, page: PageId) -> bool {
        let Some(held) = self.copies.get(&page) else { return false };
        let is_still = !matches!(held.place, Place::Coming { .. }) && !held.is_spoiled && !self.commits.has(page);
        let users = self.users(page);
        let used = |user: &Transaction| self.records.used.get(&(*user, page));
        let is_fit = !users.is_empty() && users.iter().all(|user| used(user).is_some());
        let more: usize = users.iter().filter_map(used).map(BTreeMap::len).sum();
        let is_bounded = more <= LIST_MAX && self.records.count() + more <= LOCKS_MAX;
        is_still && is_fit && is_bounded && !self.awaited.values().any(|awaited| *awaited == page)
    }

    fn fall_now(&mut self, page: PageId) {
        let users = self.users(page);
        let Some(held) = self.copies.remove(&page) else { return };
        let is_here = held.place == Place::Resident;
        let mut locks = Vec::new();
        for transaction in users {
            for (slot, writes) in self.records.used.get(&(transaction, page)).into_iter().flatten() {
                let known = RecordHeld { writes: *writes, is_known: is_here };
                let held = self.records.held.entry(transaction).or_default().entry((page, *slot)).or_insert(known);
                (held.writes, held.is_known) = (held.writes || *writes, held.is_known || is_here);
                locks.push(RecordLock { slot: *slot, transaction, writes: *writes });
            }
        }
        self.records.falling.remove(&page);
        self.records.note_fallen(page);
        self.locks.end(LockHolder::Callback(page));
        self.due.falls.push(Fallen { page, is_here, locks: locks.clone() });
        if canary::is_planted(Canary::UntoldRecord) {
            locks.retain(|lock| lock.writes);
        }
        let message = self.message(Request::Fell { copy: Copy { page, number: held.number }, locks });
        self.due.messages.push(message);
        self.due.wakes = true;
    }

    /// A page that was asked for is kept from this node by locks of its records. If none that wants it needs the page, it is not asked for
    /// any more: whether it was waited for, a copy whose kept bytes are not needed, and what to say.
    pub fn by_records(&mut self, copy: Copy) -> (bool, Option<Copy>, Option<ToServer>) {
        let page = copy.page;
        self.records.note_fallen(page);
        let is_new = self.copies.get(&page).is_some_and(|held| !held.was_here && held.number == copy.number);
        let users = self.users(page);
        let is_fit = users.iter().all(|user| self.does_with_records(*user, page)) && !self.commits.has(page);
        if !is_new || !is_fit || !self.is_coming(page) {
            return (false, None, None);
        }
        let (was_waited_for, forgets) = self.request_withdrawn(copy);
        (was_waited_for, forgets, Some(self.message(Request::CalledBack { copy })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::PageLock;
    use crate::message::{ClientId, LeavingFate, Secret, Session};
    use base::PartitionId;

    const PAGE: PageId = PageId::new(PartitionId(3), 1);

    fn joined() -> Client {
        let mut client = Client::default();
        client.join(Session { epoch: 1, client: ClientId(1) }, Secret(1));
        client
    }

    /// Has a transaction come to this many records of the page by locks of their own, as no other node wants any of it.
    fn come_alone(client: &mut Client, transaction: Transaction, records: u16) {
        for slot in 0..records {
            assert!(matches!(client.access_record(transaction, PAGE, (slot, false)), RecordAccess::Ask(_)));
            assert!(client.record_granted(PAGE, RecordLock { slot, transaction, writes: false }, true));
        }
        client.committed_unchanged(transaction);
    }

    /// It would wait for its own copy to fall, and so for those that keep that from falling, which may wait for it.
    #[test]
    fn who_uses_a_copy_that_cannot_fall_yet_goes_on_with_it() {
        let mut client = joined();
        let [own, whole] = [(); 2].map(|()| client.begin());
        client.records.note_fallen(PAGE);
        client.records.fallen.clear();
        assert_eq!(client.granule(own, PAGE), Granule::Page);
        assert_eq!(client.lock(own, PAGE, Mode::Shared), PageLock::Held);
        let (asked, _) = client.request((PAGE, Secret(2)), own, false);
        let Request::Read { copy, .. } = asked.body else { panic!("{asked:?}") };
        assert!(client.arrived(copy, LeavingFate::Dropped).is_some());
        client.note_record(own, PAGE, (3, false));
        assert!(client.use_page(whole, PAGE));
        assert_eq!(client.lock(whole, PAGE, Mode::Shared), PageLock::Held);
        let said = client.fall(copy).answer.map(|said| said.body);
        assert_eq!(said, Some(Request::InUse { copy, by: vec![own, whole] }));
        client.records.note_fallen(PAGE);
        assert_eq!(client.granule(own, PAGE), Granule::Page);
        let other = client.begin();
        assert_eq!(client.granule(other, PAGE), Granule::Record);
        client.committed_unchanged(whole);
        assert_eq!(client.take_due().falls.len(), 1);
        assert_eq!(client.granule(own, PAGE), Granule::Record);
    }

    /// Otherwise the server would refuse the last of them, whenever they are asked for again.
    #[test]
    fn who_has_locks_of_many_records_comes_to_further_pages_whole() {
        let mut client = joined();
        let transaction = client.begin();
        for number in 0..LOCKS_MAX {
            let (page, slot) = (PageId::new(PAGE.partition, number as u32 / 100), number as u16 % 100);
            client.records.note_fallen(page);
            assert_eq!(client.granule(transaction, page), Granule::Record);
            assert!(matches!(client.access_record(transaction, page, (slot, false)), RecordAccess::Ask(_)));
            client.record_granted(page, RecordLock { slot, transaction, writes: false }, false);
        }
        let further = PageId::new(PAGE.partition, 1_000);
        client.records.note_fallen(further);
        assert_eq!(client.granule(transaction, further), Granule::Page);
        assert!(!client.does_with_records(transaction, further), "it waits for all of it");
        client.committed_unchanged(transaction);
        let transaction = client.begin();
        assert_eq!(client.granule(transaction, further), Granule::Record);
    }

    #[test]
    fn who_is_alone_comes_to_the_page_again_however_many_records_a_transaction_has() {
        for records in 1..20 {
            let mut client = joined();
            client.records.note_fallen(PAGE);
            let has_risen = (0..=TIMES).any(|_| {
                let transaction = client.begin();
                let is_by_page = client.granule(transaction, PAGE) == Granule::Page;
                come_alone(&mut client, transaction, if is_by_page { 0 } else { records });
                is_by_page
            });
            assert!(has_risen, "{records} records in each transaction");
        }
    }
}
