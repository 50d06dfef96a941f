//! A client's side of the protocol: which copies it has, which transactions use them, what it has asked for.
//!
//! A plain state machine. The owner of the client's memory tells it what transactions use, what leaves the memory and what has come,
//! and is told what to say and what to give up. It never waits.
//!
//! The rules:
//!
//! - A copy is kept across transactions, with its read lock. A transaction locks every page that it looks at among those of its node
//!   (`locks.rs`), and uses it until its end, so that within a node and across nodes locks are held to the end of transactions.
//! - A transaction ends when its commit is put behind those of its node that go before (`commits.rs`). What it has changed stays here until
//!   the server has answered.
//! - A copy in use stays registered at the server though its bytes may leave the memory: that it was dropped is said only when
//!   no transaction uses it any more.
//! - A copy that is called back goes at once if no transaction uses it, else when the last one has ended, and the server is told at once
//!   which ones those are (`calls.rs`). No other one uses it before it has come again.
//! - A write lock is a transaction's. Where write locks are kept, that of a page which was committed is the node's from then on, until the
//!   copy is called back, and any of its transactions writes the page that has locked it in the node.
//! - A page that is asked for counts as in use from then on, because it may come from another client after the server has called it
//!   back.
//! - A page of another client is taken only if it was sent to this session with the secret that the copy was asked for with, which only
//!   the client knows that is to send it; and only if the copy has never been here: one that was here comes again from the server alone, in
//!   order with all else that the server says.
//! - When the connection to the server is gone, its transactions end, and it may join again with the copies that are in its memory.
//! - What leaves the memory is named in the next request for a page, and its bytes are kept until the answer says whether they
//!   are wanted (`leaving.rs`). So are those of a page that another client is offered, until that has it.

mod calls;
mod commits;
mod leaving;
mod locks;
mod records;
mod requests;
mod snapshots;
mod told;

pub use calls::CalledBack;
pub use records::{Fallen, Granule, RecordAccess};
pub use snapshots::{SNAPSHOTS_MAX, Sight, SnapshotState};
pub use told::{Arrival, Due, Failure, PageLock, WriteLock};

use crate::message::LIST_MAX;
use crate::message::{Copy, Leaving, LeavingFate, Request, Secret, Session, ToServer, Transaction, Wait, WaitsFor};
use base::{Instant, PageId};
use commits::Commits;
use engine::canary::{self, Canary};
use engine::lock::Mode;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use leaving::MakingRoom;
use locks::{Asked, LockHolder, NodeLocks};
use records::NodeRecords;
use snapshots::ClientSnapshots;
use std::collections::BTreeSet;

/// How many pages are known as written here before they are forgotten.
const WRITTEN_MAX: usize = 4096;

/// A client's side of the protocol.
#[derive(Default)]
pub struct Client {
    session: Option<Session>,
    secret: Secret,
    copies: HashMap<PageId, Held, FixedState>,
    /// Whether one of them has ever been spoiled.
    has_spoiled: bool,
    /// The pages that each active transaction uses: those that it has locked.
    uses: HashMap<Transaction, BTreeSet<PageId>, FixedState>,
    locks: NodeLocks,
    /// The pages of which transactions wait for the node's locks, and those that they wait for to come.
    waiting: HashMap<Transaction, PageId, FixedState>,
    awaited: HashMap<Transaction, PageId, FixedState>,
    /// What the server was told of these waits.
    told: Vec<WaitsFor>,
    /// The first that it is told of next, where it cannot be told of all of them together.
    tells_from: Transaction,
    commits: Commits,
    snapshots: ClientSnapshots,
    records: NodeRecords,
    /// Whether the node keeps write locks.
    keeps: bool,
    /// Pages that had write locks here.
    written: BTreeSet<PageId>,
    /// What is to be done since that was asked last.
    due: Due,
    /// Copies that have left the memory and are to be named, and those that others are offered.
    departed: Vec<Leaving>,
    offered: Vec<Copy>,
    making_room: MakingRoom,
    /// Copies that were dropped since the last message.
    drops: Vec<Copy>,
    /// How long the last page took that has come.
    waited: Option<Wait>,
    next_copy: u64,
    next_transaction: u64,
    /// The time, as far as its owner has told it: no right is decided by that.
    now: Instant,
}

#[derive(Debug)]
struct Held {
    number: u64,
    /// What another client has to show that sends it.
    secret: Secret,
    place: Place,
    lock: Lock,
    /// After which of the node's snapshots what is here came, or was committed here.
    since: u64,
    /// Whether it is to be given up when no transaction uses it.
    is_called: bool,
    /// Whether what is here is not what was committed, so that it goes in any case.
    is_spoiled: bool,
    /// Whether its bytes were here.
    was_here: bool,
    /// Whether it was offered, or asked for ahead, and has not come: no transaction has asked for it.
    is_speculative: bool,
    /// Whether a transaction has used it, and when one did last.
    was_used: bool,
    used: Instant,
}

impl Held {
    fn asked_for((number, secret): (u64, Secret), place: Place, now: Instant) -> Held {
        Held {
            number,
            secret,
            place,
            lock: Lock::Shared,
            since: 0,
            is_called: false,
            is_spoiled: false,
            was_here: false,
            is_speculative: false,
            was_used: true,
            used: now,
        }
    }

    /// Whether the server is known to have granted it, or its write lock with it.
    fn is_granted(&self) -> bool {
        self.was_here || matches!(self.lock, Lock::Exclusive(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the client's memory.
    Resident,
    /// Its bytes have left, and a transaction uses it.
    Left,
    /// Asked for, on behalf of this transaction.
    Coming { by: Transaction },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Shared,
    Asked(Transaction),
    Exclusive(Transaction),
    /// The node's, as a write lock that it keeps.
    Kept,
}

impl Lock {
    /// Whether the transaction has it as a write lock, or has asked for that.
    fn is_of(self, transaction: Transaction) -> bool {
        self == Lock::Exclusive(transaction) || self == Lock::Asked(transaction)
    }
}

/// What a transaction that was rolled back leaves of the pages that it has changed; the others are dropped.
pub type Restored = Vec<PageId>;

impl Client {
    /// From now on write locks are kept.
    pub fn keep_write_locks(&mut self) {
        self.keeps = true;
    }

    /// It is this time.
    pub fn note_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// What is to be done, in the step in which something was done here that is not told.
    pub fn take_due(&mut self) -> Due {
        self.advance();
        self.try_falls();
        // Where a copy has fallen, others go on that have waited behind it.
        while self.locks.has_woken() {
            self.advance();
            self.try_falls();
        }
        std::mem::take(&mut self.due)
    }

    /// A session has begun, with this secret.
    pub fn join(&mut self, session: Session, secret: Secret) {
        (self.session, self.secret) = (Some(session), secret);
    }

    /// By what the server knows this client when it joins again.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// The present session, or the last one.
    pub fn session(&self) -> Option<Session> {
        self.session
    }

    /// The connection to the server is gone, and all transactions have ended. Returns the copies that are in the memory, to be kept if
    /// `has_lease` and the next session has them; otherwise see [`Client::forget_copies`].
    ///
    /// # Panics
    /// If a transaction is active.
    pub fn disconnect(&mut self, has_lease: bool) -> Vec<Copy> {
        assert!(self.uses.is_empty(), "transactions end with the connection");
        (self.locks, self.due, self.records) = Default::default();
        self.waiting.clear();
        self.awaited.clear();
        self.told.clear();
        self.departed.clear();
        self.offered.clear();
        self.making_room.clear();
        self.drops.clear();
        self.waited = None;
        self.snapshots.end_session();
        self.copies.retain(|_, held| held.place == Place::Resident);
        for held in self.copies.values_mut() {
            (held.is_called, held.lock) = (false, Lock::Shared);
        }
        let is_kept = has_lease || canary::is_planted(Canary::KeptCopies);
        if is_kept && self.copies.len() <= LIST_MAX {
            self.resident().collect::<BTreeSet<_>>().into_iter().collect()
        } else {
            Vec::new()
        }
    }

    /// Forgets all copies, for the new session has none. Returns the pages to be taken out of the memory.
    pub fn forget_copies(&mut self) -> Vec<PageId> {
        let mut pages: Vec<PageId> = std::mem::take(&mut self.copies).into_keys().collect();
        pages.sort();
        pages
    }

    /// A transaction begins.
    pub fn begin(&mut self) -> Transaction {
        let transaction = Transaction(self.next_transaction);
        self.next_transaction += 1;
        self.uses.insert(transaction, BTreeSet::new());
        transaction
    }

    /// A transaction asks for a lock on a page among those of its node: it uses the page from when it has it.
    pub fn lock(&mut self, transaction: Transaction, page: PageId, mode: Mode) -> PageLock {
        self.waiting.remove(&transaction);
        let mode = if canary::is_planted(Canary::SharedChanges) { Mode::Shared } else { mode };
        match self.locks.request(LockHolder::Transaction(transaction), page, mode) {
            Asked::Granted => {
                self.uses.get_mut(&transaction).expect("it has begun and not ended").insert(page);
                self.note_used(page);
                PageLock::Held
            }
            Asked::Deadlock(victim) if victim == transaction => PageLock::Victim(victim),
            asked => {
                self.waiting.insert(transaction, page);
                if let Asked::Deadlock(victim) = asked { PageLock::Victim(victim) } else { PageLock::Wait }
            }
        }
    }

    /// A transaction does not wait for a lock of the node's any more.
    pub fn wait_no_more(&mut self, transaction: Transaction) {
        if self.waiting.remove(&transaction).is_some() {
            self.locks.withdraw(LockHolder::Transaction(transaction));
        } else {
            let again = self.awaits(transaction, None);
            self.due.messages.extend(again);
        }
    }

    /// Whether the transaction waits for a lock of the node's.
    pub fn waits(&self, transaction: Transaction) -> bool {
        self.waiting.contains_key(&transaction)
    }

    /// In which mode the transaction has locked the page.
    pub fn lock_of(&self, transaction: Transaction, page: PageId) -> Option<Mode> {
        self.locks.holds(LockHolder::Transaction(transaction), page)
    }

    /// Whether the transaction has locked the page: then it has, or will have, its read lock.
    pub fn is_used_by(&self, transaction: Transaction, page: PageId) -> bool {
        self.uses.get(&transaction).is_some_and(|pages| pages.contains(&page))
    }

    /// A transaction that uses the page; none if all that have wanted it have ended.
    pub fn user(&self, page: PageId) -> Option<Transaction> {
        self.locks.transactions(page).filter(|transaction| self.is_used_by(*transaction, page)).min()
    }

    /// Whether transactions of this node have written the page before.
    pub fn has_written(&self, page: PageId) -> bool {
        self.written.contains(&page)
    }

    fn is_used(&self, page: PageId) -> bool {
        self.locks.is_held(page)
    }

    /// Grants among the transactions have let others go on.
    fn advance(&mut self) {
        loop {
            let woken = self.locks.take_woken();
            if woken.is_empty() {
                return;
            }
            for holder in woken {
                match holder {
                    LockHolder::Transaction(transaction) if !self.locks.is_waiting(holder) => {
                        if let Some(page) = self.waiting.remove(&transaction) {
                            self.uses.entry(transaction).or_default().insert(page);
                            self.note_used(page);
                            // It comes to the page in its next step.
                            self.awaited.insert(transaction, page);
                            self.due.wakes = true;
                            self.tell_late_use(transaction, page);
                        }
                    }
                    LockHolder::Callback(page) => self.try_give_up(page),
                    LockHolder::Transaction(_) => {}
                }
            }
        }
    }

    /// Whether the page was asked for and has not come.
    pub fn is_coming(&self, page: PageId) -> bool {
        self.copies.get(&page).is_some_and(|held| matches!(held.place, Place::Coming { .. }))
    }

    /// Whether the page is in the memory, as far as was said here.
    pub fn is_resident(&self, page: PageId) -> bool {
        self.copies.get(&page).is_some_and(|held| held.place == Place::Resident)
    }

    /// The client's copies that are in its memory.
    pub fn resident(&self) -> impl Iterator<Item = Copy> {
        let here = self.copies.iter().filter(|(_, held)| held.place == Place::Resident);
        here.map(|(page, held)| Copy { page: *page, number: held.number })
    }

    /// Whether a transaction runs.
    pub fn is_active(&self, transaction: Transaction) -> bool {
        self.uses.contains_key(&transaction)
    }

    /// The active transactions, in the order in which they have begun.
    pub fn active(&self) -> Vec<Transaction> {
        let mut active: Vec<Transaction> = self.uses.keys().copied().collect();
        active.sort_unstable();
        active
    }

    fn users(&self, page: PageId) -> Vec<Transaction> {
        // One that has been granted the page and was not told uses it when it is.
        let holders = self.locks.transactions(page);
        let mut users: Vec<Transaction> = holders.filter(|holder| self.is_used_by(*holder, page)).collect();
        users.sort_unstable();
        users
    }

    fn message(&mut self, body: Request) -> ToServer {
        let rest = self.drops.split_off(self.drops.len().min(LIST_MAX));
        ToServer { drops: std::mem::replace(&mut self.drops, rest), body }
    }

    /// A page that is not in the memory is needed by a transaction, which `writes` it if its write lock is to come with it; or by
    /// [`Transaction::NONE`], ahead of one. A copy that is asked for the first time gets the secret. Returns the request, and a copy whose bytes, kept until now, are not needed.
    ///
    /// # Panics
    /// If it is there or was asked for: a memory asks once.
    pub fn request(
        &mut self,
        (page, secret): (PageId, Secret),
        transaction: Transaction,
        mut writes: bool,
    ) -> (ToServer, Option<Copy>) {
        let forgotten = self.take_departed(page);
        self.drops.extend(forgotten);
        let leaving = self.depart_for(page);
        let place = Place::Coming { by: transaction };
        let (number, secret) = match self.copies.get_mut(&page) {
            Some(held) => {
                assert_eq!(held.place, Place::Left, "{page} is asked for once");
                held.place = place;
                writes = false;
                (held.number, held.secret)
            }
            None => {
                let number = self.next_copy;
                self.next_copy += 1;
                let lock = if writes { Lock::Asked(transaction) } else { Lock::Shared };
                let asked = Held::asked_for((number, secret), place, self.now);
                let is_speculative = transaction == Transaction::NONE;
                self.copies.insert(page, Held { lock, is_speculative, ..asked });
                (number, secret)
            }
        };
        let (copy, waited) = (Copy { page, number }, self.waited.take());
        (self.message(Request::Read { copy, secret, transaction, writes, leaving, waited }), forgotten)
    }

    /// Whether this very copy was asked for and has not come.
    pub fn lacks(&self, copy: Copy) -> bool {
        let held = self.copies.get(&copy.page).filter(|held| held.number == copy.number);
        held.is_some_and(|held| matches!(held.place, Place::Coming { .. }))
    }

    /// The page of a copy that was asked for took so long to come, in nanoseconds: the server is told with the next request.
    pub fn note_wait(&mut self, copy: Copy, waited_ns: u64) {
        self.waited = Some(Wait { copy, waited_ns });
    }

    /// A page has come from another client, which has sent it to this session. `None` if it is late.
    pub fn arrived_from_peer(
        &mut self,
        (to, secret): (Session, Secret),
        copy: Copy,
        fate: LeavingFate,
    ) -> Option<Arrival> {
        let is_ours = self.is_sent_here((to, secret), copy) || canary::is_planted(Canary::MisaddressedPage);
        let was_here = self.copies.get(&copy.page).is_some_and(|held| held.was_here);
        let is_in_time = is_ours && (!was_here || canary::is_planted(Canary::OvertakenPage));
        let arrival = is_in_time.then(|| self.arrived(copy, fate)).flatten()?;
        if let Some((leaving, LeavingFate::Dropped)) = arrival.leaving {
            // It may not be what the server has said.
            self.drops.push(leaving);
        }
        Some(arrival)
    }

    /// Whether a copy was sent to this session, by the one that was told to send it.
    pub fn is_sent_here(&self, (to, secret): (Session, Secret), copy: Copy) -> bool {
        let is_it = |held: &Held| (held.number, held.secret) == (copy.number, secret);
        self.session == Some(to) && self.copies.get(&copy.page).is_some_and(is_it)
    }

    /// A page has come from the server. `None` if it is late: nothing waits for it.
    pub fn arrived(&mut self, copy: Copy, fate: LeavingFate) -> Option<Arrival> {
        let held = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number)?;
        let Place::Coming { .. } = held.place else { return None };
        (held.place, held.was_here, held.used) = (Place::Resident, true, self.now);
        (held.is_speculative, held.since) = (false, self.snapshots.now());
        held.is_called &= !canary::is_planted(Canary::KeptArrival);
        let is_called = held.is_called;
        let is_free = self.user(copy.page).is_none() && !self.commits.has(copy.page);
        if is_called && !is_free {
            self.stay_called(copy);
        }
        let leaving = self.making_room.remove(copy.page).map(|leaving| (leaving.copy, fate));
        let forgets = leaving.filter(|_| fate == LeavingFate::Offered).and_then(|(copy, _)| self.keep_offered(copy));
        Some(Arrival { leaving, forgets, is_called: is_called && is_free })
    }

    /// A page cannot be had. The server has the copy in its directory until it is told otherwise, for the page may have come from
    /// another client. A transaction that has seen the page, or commits, keeps the copy, as one that has left the memory.
    pub fn failed(&mut self, copy: Copy) -> Failure {
        let (is_used, is_committing) = (self.user(copy.page).is_some(), self.commits.has(copy.page));
        let Some((held, leaving)) = self.coming(copy) else { return Failure::default() };
        // A write lock that was not granted before this is not on its way.
        let is_locked = held.was_here && is_used || held.is_granted() && is_committing;
        let (is_called, was_speculative) = (held.is_called, held.is_speculative);
        held.place = Place::Left;
        self.drops.extend(leaving);
        if is_locked && is_called {
            self.stay_called(copy);
        }
        let answer = if is_locked { None } else { self.give_up(copy.page) };
        Failure { was_waited_for: true, was_speculative, forgets: leaving, answer }
    }

    /// The server has taken a request for a page out of its queue. Whether it was waited for, and a copy whose kept bytes are not
    /// needed.
    pub fn request_withdrawn(&mut self, copy: Copy) -> (bool, Option<Copy>) {
        let Some((_, leaving)) = self.coming(copy) else { return (false, None) };
        self.copies.remove(&copy.page);
        // It may have been called back when it was here.
        self.locks.end(LockHolder::Callback(copy.page));
        self.advance();
        self.drops.extend(leaving);
        (true, leaving)
    }

    /// A copy that was asked for and has not come, and what has to make room for it.
    fn coming(&mut self, copy: Copy) -> Option<(&mut Held, Option<Copy>)> {
        let held = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number)?;
        let Place::Coming { .. } = held.place else { return None };
        let leaving = self.making_room.remove(copy.page);
        Some((held, leaving.map(|leaving| leaving.copy)))
    }

    /// A page that was called back has been taken out of the memory, and is in no commit under way.
    pub fn give_up(&mut self, page: PageId) -> Option<ToServer> {
        let held = self.copies.remove(&page)?;
        self.locks.end(LockHolder::Callback(page));
        Some(self.message(Request::CalledBack { copy: Copy { page, number: held.number } }))
    }

    /// A transaction, which has locked the page among those of its node, is to write it.
    pub fn write(&mut self, transaction: Transaction, page: PageId) -> WriteLock {
        if self.may_write(transaction, page) {
            return WriteLock::Held;
        }
        let held = self.copies.get_mut(&page).expect("the page is used");
        if held.lock != Lock::Shared {
            return WriteLock::Wait;
        }
        held.lock = Lock::Asked(transaction);
        let copy = Copy { page, number: held.number };
        WriteLock::Ask(self.message(Request::Write { copy, transaction }))
    }

    /// A write lock is granted. Whether the transaction still waits for it.
    pub fn granted(&mut self, copy: Copy, transaction: Transaction) -> bool {
        let held = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number);
        let Some(held) = held.filter(|held| held.lock == Lock::Asked(transaction)) else { return false };
        held.lock = Lock::Exclusive(transaction);
        if self.written.len() == WRITTEN_MAX {
            self.written.clear();
        }
        self.written.insert(copy.page);
        true
    }

    /// Whether the transaction may write the page.
    pub fn may_write(&self, transaction: Transaction, page: PageId) -> bool {
        let is_its = |held: &Held| match held.lock {
            Lock::Exclusive(owner) if owner == transaction => true,
            // A transaction that has ended hands it on where write locks are kept.
            Lock::Exclusive(_) => self.keeps && self.commits.has_changed(page),
            Lock::Kept => true,
            Lock::Shared | Lock::Asked(_) => false,
        };
        let is_planted = canary::is_planted(Canary::SharedChanges);
        let is_locked = || self.lock_of(transaction, page) == Some(Mode::Exclusive) || is_planted;
        self.copies.get(&page).is_some_and(is_its) && is_locked()
    }
}
