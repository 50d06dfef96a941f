//! A client's side of the protocol: which copies it has, which transactions use them, what it has asked for.
//!
//! A plain state machine. The owner of the client's memory tells it what transactions use, what leaves the memory and what has come,
//! and is told what to say and what to give up. It never waits.
//!
//! The rules:
//!
//! - A copy is kept across transactions, with its read lock. A transaction uses every page that it has asked for until its end, so that
//!   within a node and across nodes locks are held to the end of transactions.
//! - A copy in use stays registered at the server though its bytes may leave the memory: that it was dropped is said only when
//!   no transaction uses it any more.
//! - A copy that is called back goes at once if no transaction uses it, else when the last one has ended, and the server is told at once
//!   which ones those are.
//! - A page that is asked for counts as in use from then on, because it may come from another client after the server has called it
//!   back.
//! - A page of another client is taken only if it was sent to this session and the copy has never been here: a copy that was here
//!   comes again from the server alone, in order with all else that the server says.
//! - When the connection to the server is gone, its transactions end, and it may join again with the copies that are in its memory.
//! - What leaves the memory is named in the next request for a page, and its bytes are kept until the answer says whether they
//!   are wanted.

use crate::message::LIST_MAX;
use crate::message::{Copy, Request, Secret, Secrets, Session, ToServer, Transaction, Wait};
use base::PageId;
use engine::canary::{self, Canary};
use std::collections::{BTreeMap, BTreeSet};

/// How many pages that have left the memory wait to be named; older ones are dropped.
const DEPARTED_MAX: usize = 16;

/// A client's side of the protocol.
#[derive(Default)]
pub struct Client {
    session: Option<Session>,
    secrets: Secrets,
    copies: BTreeMap<PageId, Held>,
    /// The pages that each active transaction uses.
    uses: BTreeMap<Transaction, BTreeSet<PageId>>,
    /// Copies that have left the memory and are to be named.
    departed: Vec<Copy>,
    /// Copies that were dropped since the last message.
    drops: Vec<Copy>,
    /// How long the last page took that has come.
    waited: Option<Wait>,
    next_copy: u64,
    next_transaction: u64,
}

#[derive(Debug)]
struct Held {
    number: u64,
    place: Place,
    lock: Lock,
    /// Whether it is to be given up when no transaction uses it.
    is_called: bool,
    /// Whether its bytes were here.
    was_here: bool,
}

impl Held {
    fn asked_for(number: u64, place: Place) -> Held {
        Held { number, place, lock: Lock::Shared, is_called: false, was_here: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the client's memory.
    Resident,
    /// Its bytes have left, and a transaction uses it.
    Left,
    /// Asked for, on behalf of this transaction; that copy has to make room for it.
    Coming { leaving: Option<Copy>, by: Transaction },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Shared,
    Asked(Transaction),
    Exclusive(Transaction),
}

impl Lock {
    /// Whether the transaction has it as a write lock, or has asked for that.
    fn is_of(self, transaction: Transaction) -> bool {
        self == Lock::Exclusive(transaction) || self == Lock::Asked(transaction)
    }
}

/// What is to be done when a page has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The copy that had to make room, and whether its bytes are wanted by the server; they are kept no longer.
    pub leaving: Option<(Copy, bool)>,
    /// The page was called back meanwhile and no transaction uses it: see [`Client::give_up`].
    pub is_called: bool,
}

/// What is to be done when a page cannot be had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Whether it was waited for. If not, this is late, and nothing is to be done.
    pub was_waited_for: bool,
    /// A copy whose bytes were kept and are not needed.
    pub forgets: Option<Copy>,
    /// What to say.
    pub answer: Option<ToServer>,
}

/// What a transaction has to do to write a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteLock {
    /// Nothing: it may.
    Held,
    /// Say this and wait for the answer.
    Ask(ToServer),
    /// Wait: it has asked before, or another transaction of this client has asked or writes.
    Wait,
}

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

/// What is to be done when a transaction has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// What to say, in this order.
    pub messages: Vec<ToServer>,
    /// The pages to be taken out of the memory before that.
    pub discards: Vec<PageId>,
}

impl Client {
    /// A session has begun, with these secrets.
    pub fn join(&mut self, session: Session, secrets: Secrets) {
        (self.session, self.secrets) = (Some(session), secrets);
    }

    /// By what the server knows this client when it joins again.
    pub fn secret(&self) -> Secret {
        self.secrets.own
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
        self.departed.clear();
        self.drops.clear();
        self.waited = None;
        self.copies.retain(|_, held| held.place == Place::Resident);
        for held in self.copies.values_mut() {
            (held.is_called, held.lock) = (false, Lock::Shared);
        }
        let is_kept = has_lease || canary::is_planted(Canary::KeptCopies);
        if is_kept && self.copies.len() <= LIST_MAX { self.resident().collect() } else { Vec::new() }
    }

    /// Forgets all copies, for the new session has none. Returns the pages to be taken out of the memory.
    pub fn forget_copies(&mut self) -> Vec<PageId> {
        std::mem::take(&mut self.copies).into_keys().collect()
    }

    /// A transaction begins.
    pub fn begin(&mut self) -> Transaction {
        let transaction = Transaction(self.next_transaction);
        self.next_transaction += 1;
        self.uses.insert(transaction, BTreeSet::new());
        transaction
    }

    /// A transaction uses this page from now on, wherever it is. If another transaction, which waits no longer, has asked for
    /// it, this says that the page is for this one: the server has to know which waits for which.
    pub fn enter(&mut self, transaction: Transaction, page: PageId) -> Option<ToServer> {
        self.uses.get_mut(&transaction).expect("it has begun and not ended").insert(page);
        match self.copies.get(&page)?.place {
            Place::Coming { by, .. } if by != transaction => self.repeat(page, transaction),
            _ => None,
        }
    }

    /// Whether the transaction has asked for the page: then it has, or will have, its read lock.
    pub fn is_used_by(&self, transaction: Transaction, page: PageId) -> bool {
        self.uses.get(&transaction).is_some_and(|pages| pages.contains(&page))
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

    /// The active transactions.
    pub fn active(&self) -> impl Iterator<Item = Transaction> {
        self.uses.keys().copied()
    }

    fn users(&self, page: PageId) -> Vec<Transaction> {
        let users = self.uses.iter().filter(|(_, pages)| pages.contains(&page));
        users.map(|(transaction, _)| *transaction).collect()
    }

    fn message(&mut self, body: Request) -> ToServer {
        let rest = self.drops.split_off(self.drops.len().min(LIST_MAX));
        ToServer { drops: std::mem::replace(&mut self.drops, rest), body }
    }

    /// A page that is not in the memory is needed by a transaction. Returns the request, and a copy whose bytes, kept until now, are
    /// not needed.
    ///
    /// # Panics
    /// If it is there or was asked for: a memory asks once.
    pub fn request(&mut self, page: PageId, transaction: Transaction) -> (ToServer, Option<Copy>) {
        let forgotten = self.take_departed(page);
        self.drops.extend(forgotten);
        let leaving = self.departed.pop();
        let number = match self.copies.get_mut(&page) {
            Some(held) => {
                assert_eq!(held.place, Place::Left, "{page} is asked for once");
                held.place = Place::Coming { leaving, by: transaction };
                held.number
            }
            None => {
                let number = self.next_copy;
                self.next_copy += 1;
                let place = Place::Coming { leaving, by: transaction };
                self.copies.insert(page, Held::asked_for(number, place));
                number
            }
        };
        let (copy, waited) = (Copy { page, number }, self.waited.take());
        (self.message(Request::Read { copy, transaction, leaving, waited }), forgotten)
    }

    /// A page has not come for long: the same request again, if it is still waited for. An answer that is only late does no harm.
    pub fn repeat(&mut self, page: PageId, transaction: Transaction) -> Option<ToServer> {
        let held = self.copies.get_mut(&page)?;
        let Place::Coming { leaving, by } = &mut held.place else { return None };
        *by = transaction;
        let leaving = *leaving;
        let copy = Copy { page, number: held.number };
        Some(self.message(Request::Read { copy, transaction, leaving, waited: None }))
    }

    /// The page of a copy that was asked for took so long to come, in nanoseconds: the server is told with the next request.
    pub fn note_wait(&mut self, copy: Copy, waited_ns: u64) {
        self.waited = Some(Wait { copy, waited_ns });
    }

    /// Takes out a copy that has left the memory and whose fate is not decided.
    fn take_departed(&mut self, page: PageId) -> Option<Copy> {
        if let Some(place) = self.departed.iter().position(|copy| copy.page == page) {
            return Some(self.departed.remove(place));
        }
        self.copies.values_mut().find_map(|held| match &mut held.place {
            Place::Coming { leaving, .. } if leaving.is_some_and(|leaving| leaving.page == page) => leaving.take(),
            _ => None,
        })
    }

    /// A clean page leaves the memory to make room. Returns the copy whose bytes are to be kept for now, and one whose bytes are not
    /// needed any more.
    ///
    /// # Panics
    /// If it is not there, or a transaction may write it: such pages stay.
    pub fn left(&mut self, page: PageId) -> (Option<Copy>, Option<Copy>) {
        let is_used = !self.users(page).is_empty();
        let held = self.copies.get_mut(&page).expect("what leaves was here");
        assert!(held.place == Place::Resident && held.lock == Lock::Shared, "{page} cannot leave: {held:?}");
        if is_used {
            held.place = Place::Left;
            return (None, None);
        }
        let copy = Copy { page, number: held.number };
        self.copies.remove(&page);
        self.departed.push(copy);
        let oldest = (self.departed.len() > DEPARTED_MAX).then(|| self.departed.remove(0));
        self.drops.extend(oldest);
        (Some(copy), oldest)
    }

    /// A page has come from another client, which has sent it to this session. `None` if it is late.
    pub fn arrived_from_peer(&mut self, (to, secret): (Session, Secret), copy: Copy, returns: bool) -> Option<Arrival> {
        let is_ours = self.is_sent_here(to, secret) || canary::is_planted(Canary::MisaddressedPage);
        let was_here = self.copies.get(&copy.page).is_some_and(|held| held.was_here);
        let is_in_time = is_ours && (!was_here || canary::is_planted(Canary::OvertakenPage));
        is_in_time.then(|| self.arrived(copy, returns)).flatten()
    }

    /// Whether something was sent to this session, by one that was told to.
    pub fn is_sent_here(&self, to: Session, secret: Secret) -> bool {
        (self.session, self.secrets.pages) == (Some(to), secret)
    }

    /// A page has come from the server. `None` if it is late: nothing waits for it.
    pub fn arrived(&mut self, copy: Copy, returns: bool) -> Option<Arrival> {
        let is_used = !self.users(copy.page).is_empty();
        let held = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number)?;
        let Place::Coming { leaving, .. } = held.place else { return None };
        (held.place, held.was_here) = (Place::Resident, true);
        held.is_called &= !canary::is_planted(Canary::KeptArrival);
        let is_called = held.is_called && !is_used;
        Some(Arrival { leaving: leaving.map(|copy| (copy, returns)), is_called })
    }

    /// A page cannot be had. The server has the copy in its directory until it is told otherwise, for the page may have come from
    /// another client. A transaction that has seen the page keeps the copy, as one that has left the memory.
    pub fn failed(&mut self, copy: Copy) -> Failure {
        let is_used = !self.users(copy.page).is_empty();
        let Some((held, leaving)) = self.coming(copy) else { return Failure::default() };
        let is_locked = held.was_here && is_used;
        held.place = Place::Left;
        self.drops.extend(leaving);
        let answer = (!is_locked).then(|| {
            self.copies.remove(&copy.page);
            self.message(Request::CalledBack { copy })
        });
        Failure { was_waited_for: true, forgets: leaving, answer }
    }

    /// The server has taken a request for a page out of its queue. Whether it was waited for, and a copy whose kept bytes are not
    /// needed.
    pub fn request_withdrawn(&mut self, copy: Copy) -> (bool, Option<Copy>) {
        let Some((_, leaving)) = self.coming(copy) else { return (false, None) };
        self.copies.remove(&copy.page);
        self.drops.extend(leaving);
        (true, leaving)
    }

    /// A copy that was asked for and has not come, and what has to make room for it.
    fn coming(&mut self, copy: Copy) -> Option<(&mut Held, Option<Copy>)> {
        let held = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number)?;
        let Place::Coming { leaving, .. } = held.place else { return None };
        Some((held, leaving))
    }

    /// A page that was called back has been taken out of the memory.
    pub fn give_up(&mut self, page: PageId) -> Option<ToServer> {
        let held = self.copies.remove(&page)?;
        Some(self.message(Request::CalledBack { copy: Copy { page, number: held.number } }))
    }

    /// A transaction, which uses the page, is to write it.
    pub fn write(&mut self, transaction: Transaction, page: PageId) -> WriteLock {
        let held = self.copies.get_mut(&page).expect("the page is used");
        match held.lock {
            Lock::Exclusive(writer) if writer == transaction => WriteLock::Held,
            Lock::Exclusive(_) | Lock::Asked(_) => WriteLock::Wait,
            Lock::Shared => {
                held.lock = Lock::Asked(transaction);
                let copy = Copy { page, number: held.number };
                WriteLock::Ask(self.message(Request::Write { copy, transaction }))
            }
        }
    }

    /// A write lock is granted. Whether the transaction still waits for it.
    pub fn granted(&mut self, copy: Copy, transaction: Transaction) -> bool {
        let held = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number);
        match held.filter(|held| held.lock == Lock::Asked(transaction)) {
            Some(held) => {
                held.lock = Lock::Exclusive(transaction);
                true
            }
            None => false,
        }
    }

    /// Whether the transaction may write the page.
    pub fn may_write(&self, transaction: Transaction, page: PageId) -> bool {
        self.copies.get(&page).is_some_and(|held| held.lock == Lock::Exclusive(transaction))
    }

    /// The server calls a copy back.
    pub fn call_back(&mut self, copy: Copy) -> CalledBack {
        let users = self.users(copy.page);
        if let Some(held) = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number) {
            let is_coming = matches!(held.place, Place::Coming { .. });
            if users.is_empty() && !is_coming {
                self.copies.remove(&copy.page);
                let answer = Some(self.message(Request::CalledBack { copy }));
                return CalledBack { answer, discards: true, forgets: None };
            }
            held.is_called = true;
            let is_told = !users.is_empty() && !canary::is_planted(Canary::SilentUse);
            let answer = is_told.then(|| self.message(Request::InUse { copy, by: users }));
            return CalledBack { answer, ..CalledBack::default() };
        }
        // It has left the memory, or is long gone.
        let forgets = self.has_departed(copy).then(|| self.take_departed(copy.page)).flatten();
        CalledBack { answer: Some(self.message(Request::CalledBack { copy })), discards: false, forgets }
    }

    fn has_departed(&self, copy: Copy) -> bool {
        let is_leaving =
            |held: &Held| matches!(held.place, Place::Coming { leaving: Some(leaving), .. } if leaving == copy);
        self.departed.contains(&copy) || self.copies.values().any(is_leaving)
    }

    /// A copy that was called back may stay.
    pub fn withdrawn(&mut self, copy: Copy) {
        if let Some(held) = self.copies.get_mut(&copy.page).filter(|held| held.number == copy.number) {
            held.is_called = false;
        }
    }

    /// Whether the bytes of this copy are here and may be sent to another client: not while a transaction wants to write them.
    pub fn may_send(&self, copy: Copy) -> bool {
        let held = self.copies.get(&copy.page).filter(|held| held.number == copy.number);
        match held {
            Some(held) => held.place == Place::Resident && held.lock == Lock::Shared,
            None => self.has_departed(copy),
        }
    }

    /// What to say of a page that cannot be sent.
    pub fn refuse(&mut self, wanted: Copy, to: crate::message::ClientId, returns: bool) -> ToServer {
        self.message(Request::Refused { wanted, to, returns })
    }

    /// What to say with the bytes of a copy that the server wants back.
    pub fn give_back(&mut self, copy: Copy, bytes: Vec<u8>) -> ToServer {
        self.message(Request::Returned { copy, bytes })
    }

    /// The pages that a transaction may write.
    pub fn written(&self, transaction: Transaction) -> Vec<PageId> {
        let pages = self.uses.get(&transaction).into_iter().flatten().copied();
        pages.filter(|page| self.may_write(transaction, *page)).collect()
    }

    /// What to say to commit a transaction: its log records and the pages that it has changed.
    pub fn commit(
        &mut self,
        transaction: Transaction,
        records: Vec<u8>,
        pages: Vec<crate::message::Image>,
    ) -> ToServer {
        self.message(Request::Commit { transaction, records, pages })
    }

    /// The server has committed a transaction, and its write locks are over.
    pub fn committed(&mut self, transaction: Transaction) -> Ended {
        let mut ended = Ended::default();
        self.end_uses(transaction, &mut ended);
        ended
    }

    /// A transaction is committed that has changed nothing: the server has to know only that it has no write lock any more.
    pub fn committed_unchanged(&mut self, transaction: Transaction) -> Ended {
        let mut ended = Ended::default();
        self.give_locks_back(transaction, &mut ended);
        self.end_uses(transaction, &mut ended);
        ended
    }

    fn end_uses(&mut self, transaction: Transaction, ended: &mut Ended) {
        for page in self.uses.remove(&transaction).unwrap_or_default() {
            if let Some(held) = self.copies.get_mut(&page)
                && held.lock.is_of(transaction)
            {
                held.lock = Lock::Shared;
            }
            self.end_use(page, ended);
        }
    }

    /// Says that the transaction neither has nor wants write locks any more, if it does.
    fn give_locks_back(&mut self, transaction: Transaction, ended: &mut Ended) {
        let mut pages = self.uses.get(&transaction).into_iter().flatten();
        if pages.any(|page| self.copies.get(page).is_some_and(|held| held.lock.is_of(transaction))) {
            ended.messages.push(self.message(Request::Abort { transaction }));
        }
    }

    /// A transaction is rolled back: what it may have changed is dropped.
    pub fn aborted(&mut self, transaction: Transaction) -> Ended {
        let mut ended = Ended::default();
        self.give_locks_back(transaction, &mut ended);
        for page in self.uses.remove(&transaction).unwrap_or_default() {
            match self.copies.get_mut(&page) {
                Some(held) if held.lock == Lock::Exclusive(transaction) => {
                    self.drops.push(Copy { page, number: held.number });
                    self.copies.remove(&page);
                    ended.discards.push(page);
                }
                Some(held) => {
                    if held.lock == Lock::Asked(transaction) {
                        held.lock = Lock::Shared;
                    }
                    self.end_use(page, &mut ended);
                }
                None => {}
            }
        }
        ended
    }

    /// One transaction fewer uses a page: one that was called back is given up now, one that has left the memory is dropped.
    fn end_use(&mut self, page: PageId, ended: &mut Ended) {
        if !self.users(page).is_empty() {
            return;
        }
        let Some(held) = self.copies.get(&page) else { return };
        let copy = Copy { page, number: held.number };
        match (held.place, held.is_called) {
            (Place::Coming { .. }, _) | (Place::Resident, false) => {}
            (place, true) => {
                self.copies.remove(&page);
                ended.discards.extend((place == Place::Resident).then_some(page));
                ended.messages.push(self.message(Request::CalledBack { copy }));
            }
            (Place::Left, false) => {
                self.copies.remove(&page);
                self.drops.push(copy);
            }
        }
    }
}
