//! The server's side of the protocol: which client has copies of which pages, which may write, which waits for which.
//!
//! A plain state machine. It is given what has come from a client or has been completed, and adds to a list what is to be done.
//! It never waits, and all that it says of a client's memory may be late but is never too little: the directory is conservative
//! (Franklin, Carey, Livny 1992, section 2.3.1).
//!
//! The rules, each for one page:
//!
//! - A copy at a client is a read lock. It is entered before the page is sent, and stays until the client says that the copy is gone:
//!   also if the page cannot be read, for it may have come from another client.
//! - A write lock is granted when no other client has a copy. Who asks for it has a copy itself and uses it, so two that ask for it
//!   at the same time are a deadlock; or asks for both at once, and gets the page when it has the lock.
//! - A write lock ends with its transaction, or its client keeps it beyond that: then the copy is called back for readers, too, and
//!   the lock goes with it.
//! - Requests that cannot be granted wait in the order in which they came. A client that has a copy already and has only lost the
//!   bytes does not wait.
//! - A transaction that waits does so for those that use the copies that are in its way, as far as their clients have said so and that is
//!   kept (`directory/users.rs`), for the writer, and for writers ahead of it; and for those of its own client for which that says that
//!   it waits. So a deadlock is a cycle, as soon as the clients have said that. A cycle is a deadlock if its transactions wait. One is
//!   taken for one that does as long as a request is its own, though it may have given that up, or made it ahead; and as long as its
//!   client has said last that it waits for another one, though that may be over. So a victim may be in no deadlock; nor is one that has
//!   several requests waiting while its client has many (`queues.rs`).
//! - A request whose transaction commits, or has ended, is another one's that waits for the page, or stands alone from then on, and waits
//!   as that has.
//!
//! - A client whose connection breaks keeps all that until its lease is over, or until it joins again (`joining.rs`). One that is given up
//!   while it commits keeps its copies until that has ended, if it ever does.
//!
//! A message about a copy that is not the one in the directory is late, and is passed over. What no honest client could say is
//! [`Misbehaviour`]: the client is given up like one whose connection broke.

mod action;
mod deadlock;
mod directory;
mod ending;
mod joining;
mod passing;
mod queues;
mod records;
mod rights;
mod serving;
mod set_ranges;
mod sets;
mod snapshots;
mod survey;
mod versions;

use crate::algorithm::{Algorithm, CHANCES, Frames, Placement};
use crate::grants::Access;
use crate::message::{Answer, ClientId, Copy, Leaving, Request, Secret, ToServer, Transaction, WAITS_MAX};
use action::misbehaved;
pub use action::{Action, Counts, Found, Misbehaviour};
use base::time::SECOND_NS;
use base::{Instant, Lsn, PageId, PartitionId};
use directory::{Directory, Kind, Waiting};
use engine::canary::{self, Canary};
pub use joining::{Believed, Joined};
use passing::Idleness;
pub use rights::Newcomer;
pub use set_ranges::{SET_OWNERS_MAX, SET_RANGES_MAX, SetSight, span_of_index, span_of_record, span_of_records};
pub use snapshots::SNAPSHOTS_MAX;
use snapshots::Snapshots;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
pub use versions::AsOf;

/// Requests of one client that may wait at a time. When half as many do, each of its transactions may have one.
pub const WAITING_MAX: usize = 1024;
/// Copies that one client may have. One more is refused, which ends the transaction that wants it: a buffer may be larger than this.
pub const COPIES_MAX: usize = 1 << 18;
/// Transactions that may use a copy.
pub const USERS_MAX: usize = 1024;
/// Clients that may have joined at a time.
pub const CLIENTS_MAX: usize = 256;
/// How many of them may have one name, and how many no grant: so neither can keep all others out.
pub const ALIKE_MAX: usize = CLIENTS_MAX / 8;
/// How long a node without a name keeps its place against others though it commits nothing, in nanoseconds.
pub const UNUSED_NS: u64 = 10 * SECOND_NS;

/// What the server's own memory has.
pub trait Memory {
    /// Whether the page is there, or on its way there.
    fn has(&self, page: PageId) -> bool;

    /// Whether these are the bytes of a page as it has left. Where that is not known, they are not.
    fn has_left_as(&self, page: PageId, bytes: &[u8]) -> bool;

    /// What a page takes there, in bytes.
    fn page_size(&self) -> usize;

    /// Whether the partition is a memory-resident set whose records have keys.
    fn is_set(&self, _partition: PartitionId) -> bool {
        false
    }

    /// Whether a page may have a record of this number, which it is found by. False where it is known that it has none.
    fn may_have_record(&self, _page: PageId, _slot: u16) -> bool {
        true
    }
}

/// The server's side of the protocol.
pub struct Server {
    algorithm: &'static Algorithm,
    placement: Box<dyn Placement>,
    clients: BTreeMap<ClientId, JoinedClient>,
    directory: Directory,
    /// Transactions with write locks, and the pages.
    writers: BTreeMap<(ClientId, Transaction), Writer>,
    snapshots: Snapshots,
    next_client: u32,
    turn: u64,
    /// How often a page is passed on without being used.
    chances: u8,
    counts: Counts,
    /// What partitions are called, for denials.
    partition_names: BTreeMap<PartitionId, String>,
    last_misbehaviour: Option<Misbehaviour>,
    /// Whether clients of the server before this one may have copies that are not known here.
    is_gathering: bool,
    /// Which of its clients' copies are what this server has, too, if any are.
    believed: Option<Believed>,
    epoch: u64,
    /// The time, as far as its owner has told it: no right is decided by that.
    now: Instant,
}

struct JoinedClient {
    address: SocketAddr,
    /// The name that it has proven.
    name: Option<String>,
    access: Access,
    secret: Secret,
    /// When it has joined.
    since: Instant,
    /// When it has committed last. If it has not, when it has come first.
    active: Instant,
    /// Whether it is one only until its lease is over ([`Server::revoke`]).
    is_revoked: bool,
    /// Whether it is given up, and is one only until its commits have ended ([`Server::lose`]).
    is_gone: bool,
    /// Whether its place is to be another one's then.
    loses_place: bool,
    waiting: usize,
    /// Greater than the numbers of all copies that it has asked for.
    next_copy: u64,
    last_committed: Option<Transaction>,
    /// The bytes of its commits that are under way.
    committing: usize,
    idleness: Idleness,
}

#[derive(Default)]
struct Writer {
    pages: BTreeSet<PageId>,
    /// Its commit is under way.
    is_committing: bool,
    /// And what becomes of that is not known before the next start.
    is_undecided: bool,
    /// The bytes of that, and the pages that it changes.
    bytes: usize,
    changed: Vec<PageId>,
    /// Whether its client keeps the locks of these pages.
    keeps: bool,
}

impl Server {
    /// A server without clients, with this memory, and an epoch that is greater than those of all earlier ones of the same pages.
    pub fn new(algorithm: &'static Algorithm, memory: Frames, epoch: u64) -> Server {
        let placement = algorithm.begin(memory);
        let falls = placement.falls();
        Server {
            algorithm,
            placement,
            clients: BTreeMap::new(),
            directory: Directory::new(falls),
            writers: BTreeMap::new(),
            snapshots: Snapshots::new(Lsn(epoch)),
            next_client: 0,
            turn: 0,
            chances: CHANCES,
            counts: Counts::default(),
            partition_names: BTreeMap::new(),
            last_misbehaviour: None,
            is_gathering: false,
            believed: None,
            epoch,
            now: Instant::from_ns(0),
        }
    }

    /// Clients of an earlier server may have copies: no write lock is granted before [`Server::end_gathering`]. Their copies are taken
    /// for what they say if their session is `believed`; those of none if not all was durable that an earlier server has sent.
    pub fn gather(&mut self, believed: Option<Believed>) {
        (self.is_gathering, self.believed) = (true, believed);
    }

    /// No client has a lease of an earlier server any more.
    pub fn end_gathering(&mut self, memory: &dyn Memory, actions: &mut Vec<Action>) {
        self.is_gathering = false;
        for page in self.directory.contended() {
            self.advance(page, memory, actions);
        }
        let waiting: Vec<_> = self.directory.waiting_owners().collect();
        waiting.into_iter().for_each(|owner| self.end_deadlock(owner, memory, actions));
    }

    /// Whether it still waits for clients of an earlier server.
    pub fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// From now on a last copy is passed on so often without being used, if the algorithm passes copies on.
    pub fn set_chances(&mut self, chances: u8) {
        self.chances = chances;
    }

    /// Pages stand in the directory by a hash with this seed, which is to be a secret: a client could make each look at one of them dear
    /// otherwise, by asking for many that have one hash.
    pub fn hash_with(&mut self, seed: u64) {
        self.directory.hash_with(seed);
    }

    /// It is this time: what happens from now on is noted as of it, for those who look ([`Server::survey`]).
    pub fn note_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What the last client has done that is none any more because no honest one does that.
    pub fn last_misbehaviour(&self) -> Option<Misbehaviour> {
        self.last_misbehaviour
    }

    /// The records of a commit were redone on this many pages.
    pub fn note_redone(&mut self, pages: usize) {
        self.counts.redone += pages as u64;
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// The clients.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.clients.iter().filter(|(_, joined)| !joined.is_gone).map(|(client, _)| *client)
    }

    /// How many copies all clients may have.
    pub fn registered(&self) -> usize {
        self.directory.registered()
    }

    /// The copies of a page that clients may have.
    pub fn copies(&self, page: PageId) -> Vec<(ClientId, Copy)> {
        let entry = self.directory.get(page);
        let copies = entry.into_iter().flat_map(|entry| entry.copies.iter());
        copies.map(|(client, held)| (*client, Copy { page, number: held.number })).collect()
    }

    /// Who has a page's write lock.
    pub fn writer(&self, page: PageId) -> Option<(ClientId, Transaction)> {
        self.directory.get(page)?.writer
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.directory.waiting()
    }

    /// A message has come from a client that has joined. One that was given up meanwhile, as an honest one may be, has nothing to say.
    ///
    /// # Errors
    /// [`Misbehaviour`]: then the client is to be given up ([`Server::lose`]).
    pub fn receive(
        &mut self,
        client: ClientId,
        message: ToServer,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        let is_heard = self.clients.get(&client).is_some_and(|joined| !joined.is_revoked);
        if !is_heard && !canary::is_planted(Canary::HeededGhost) {
            return Err(misbehaved(client, "been given up, and cannot ask for", PageId::default()));
        }
        let heeded = self.heed(client, message, memory, actions);
        if let Err(misbehaviour) = heeded {
            self.counts.misbehaviours += 1;
            self.last_misbehaviour = Some(misbehaviour);
        }
        heeded
    }

    fn heed(
        &mut self,
        client: ClientId,
        message: ToServer,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        for copy in message.drops {
            self.drop_copy(client, copy, memory, actions)?;
        }
        match message.body {
            Request::Hello { .. } => {
                Err(misbehaved(client, "introduced itself twice, and never asked for", PageId::default()))
            }
            Request::Survey { .. } => Err(misbehaved(client, "joined, so that it is told of no", PageId::default())),
            Request::Renew { sent } => {
                actions.push(Action::Send(client, Answer::Renewed { sent }));
                Ok(())
            }
            Request::Catalog => {
                actions.push(Action::SendCatalog(client));
                Ok(())
            }
            Request::Leave => {
                self.lose(client, memory, actions);
                Ok(())
            }
            Request::Read { copy, secret, transaction, writes, leaving, waited } => {
                waited.inspect(|waited| self.note_wait(client, *waited));
                self.read(client, (copy, secret), transaction, (leaving, writes), memory, actions)
            }
            Request::Accept { copy, secret, leaving } => self.accept(client, (copy, secret), leaving, memory, actions),
            Request::Decline { page } => self.decline(client, page, actions),
            Request::Write { copy, transaction } => self.write(client, (copy, transaction), memory, actions),
            Request::InUse { copy, by } => self.note_use(client, copy, by, memory, actions),
            Request::CalledBack { copy } => self.give_up_copy(client, copy, memory, actions),
            Request::Fell { copy: Copy { page, .. }, .. } | Request::Record { page, .. } if !self.placement.falls() => {
                Err(misbehaved(client, "been told that locks are of pages, and wants those of records of", page))
            }
            Request::Fell { copy, locks } => self.fall(client, copy, &locks, memory, actions),
            Request::SetRecord(record) => self.ask_set_record(client, record, memory, actions),
            Request::Set(question) => self.ask_set(client, question, memory, actions),
            Request::Record { page, lock } => self.ask_record(client, (page, lock), memory, actions),
            Request::Refused { wanted, to } => {
                self.refused(client, (to, wanted), actions);
                Ok(())
            }
            Request::Waits { pairs } if pairs.len() > WAITS_MAX => {
                Err(misbehaved(client, "over a thousand waits of its own, and not only for", PageId::default()))
            }
            Request::Waits { pairs } => {
                self.note_waits(client, &pairs, memory, actions);
                Ok(())
            }
            commit @ Request::Commit { .. } => self.ask_commit(client, commit, memory, actions),
            Request::Abort { transaction } => self.abort((client, transaction), memory, actions),
            Request::Returned { copy, bytes } => self.take_back(client, (copy, bytes), memory, actions),
            Request::Snapshot { number, request } => self.heed_snapshot((client, number), request, memory, actions),
        }
    }

    fn read(
        &mut self,
        client: ClientId,
        (copy, secret): (Copy, Secret),
        transaction: Transaction,
        (leaving, mut writes): (Option<Leaving>, bool),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        if leaving.is_some_and(|leaving| leaving.copy.page == copy.page) {
            return Err(misbehaved(client, "named as leaving, while it asks for it,", copy.page));
        }
        if self.denies(client, (copy, None), actions) {
            return Ok(());
        }
        // It may still read it.
        writes &= !self.denies(client, (copy, writes.then_some(transaction)), actions);
        match self.directory.get(copy.page).and_then(|entry| entry.copies.get(&client)) {
            // The client that was to send the page is silent, or the page was there and has left: others must not send it again.
            Some(held) if held.number == copy.number => {
                let was_forwarded = self.directory.forget_sender(client, copy);
                self.serve_again(client, copy, (leaving, was_forwarded), memory, actions);
                return Ok(());
            }
            Some(_) => return Err(misbehaved(client, "asked anew, without having dropped it, for", copy.page)),
            None => {}
        }
        let joined = self.clients.get_mut(&client).expect("messages come from clients that have joined");
        if copy.number < joined.next_copy {
            // It is patient no longer, or wants it for another transaction; the request waits, or was withdrawn.
            if self.directory.change_owner(client, copy, transaction) {
                self.withdraw_callbacks(copy.page, actions);
                self.advance(copy.page, memory, actions);
                self.end_deadlock((client, transaction), memory, actions);
            }
            return Ok(());
        }
        joined.next_copy = copy.number.saturating_add(1);
        if self.directory.held_by(client) >= COPIES_MAX {
            let reason = format!("its node has {COPIES_MAX} pages already, and no more may be used at a time");
            actions.push(Action::Send(client, Answer::Failed { copy, is_denied: false, is_full: false, reason }));
            return Ok(());
        }
        if transaction == Transaction::NONE {
            // Were it to wait, others would wait behind it, and it might never be wanted.
            writes = false;
            if !self.directory.get(copy.page).is_none_or(|entry| entry.is_free_for(client)) {
                self.counts.would_block += 1;
                actions.push(Action::Send(client, Answer::WouldBlock { copy }));
                return Ok(());
            }
            self.counts.ahead += 1;
        }
        let kind = Kind::Read { leaving, secret, writes };
        self.enqueue(Waiting::new((client, transaction), (copy, kind), self.now), memory, actions)
    }

    fn write(
        &mut self,
        client: ClientId,
        (copy, transaction): (Copy, Transaction),
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        if self.directory.get(copy.page).and_then(|entry| entry.copies.get(&client)?.is(copy)).is_none() {
            return Err(misbehaved(client, "asked for a write lock and has no copy of", copy.page));
        }
        if self.denies(client, (copy, Some(transaction)), actions) {
            return Ok(());
        }
        if !self.placement.falls() && self.directory.note_writer(client, copy.page, transaction) > USERS_MAX {
            return Err(misbehaved(client, "over a thousand transactions that use", copy.page));
        }
        let entry = self.directory.entry(copy.page);
        let held = entry.copies.get_mut(&client).expect("it has one");
        // What it is about to change is not what was to come back.
        held.is_wanted &= canary::is_planted(Canary::StaleReturn);
        if entry.writer.is_some_and(|writer| writer == (client, transaction) || writer.0 == client && entry.is_kept) {
            return Err(misbehaved(client, "asked twice for a write lock of", copy.page));
        }
        self.enqueue(Waiting::new((client, transaction), (copy, Kind::Write), self.now), memory, actions)
    }

    /// A client's transactions use a copy that was called back.
    fn note_use(
        &mut self,
        client: ClientId,
        copy: Copy,
        by: Vec<Transaction>,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        if self.directory.held(client, copy).is_none_or(|held| held.called.is_none()) {
            // Nothing waits for it any more. Who uses it is told anew if it is called back again.
            return Ok(());
        }
        if self.directory.note_use(client, copy.page, &by) > USERS_MAX {
            return Err(misbehaved(client, "over a thousand transactions that use", copy.page));
        }
        // Whatever this closes a cycle of, it goes through one of these.
        let by = by.into_iter().map(|transaction| (client, transaction)).collect();
        self.end_deadlocks(&by, memory, actions);
        Ok(())
    }

    /// Grants what can be granted of a page, and calls back what is in the way of the first request that cannot.
    fn advance(&mut self, page: PageId, memory: &dyn Memory, actions: &mut Vec<Action>) {
        if self.directory.get(page).is_none_or(|entry| entry.queue.is_empty()) {
            return self.directory.tidy(page);
        }
        let may_grant = !self.is_gathering || canary::is_planted(Canary::HastyGrant);
        loop {
            self.advance_records(page, may_grant, memory, actions);
            let entry = self.directory.entry(page);
            let Some(first) = entry.queue.front() else { break };
            match first.kind {
                Kind::Read { leaving, secret, writes: false } if entry.may_read(first.client) => {
                    let Waiting { client, copy, asked, .. } = self.dequeue_first(page);
                    let queued_ns = self.now.since_ns(asked);
                    self.grant_read(client, (copy, secret), (leaving, queued_ns), memory, actions);
                }
                kind if kind.writes() && may_grant && entry.may_write(first.client) => {
                    let Waiting { client, transaction, copy, .. } = self.dequeue_first(page);
                    let entry = self.directory.entry(page);
                    (entry.writer, entry.is_kept) = (Some((client, transaction)), false);
                    self.writers.entry((client, transaction)).or_default().pages.insert(page);
                    actions.push(Action::Send(client, Answer::Granted { copy, transaction }));
                    if let Kind::Read { leaving, secret, .. } = kind {
                        self.directory.register(client, copy);
                        self.serve(client, (copy, secret), leaving, memory, actions);
                    }
                }
                Kind::Record { writes: true, .. } if !may_grant => break,
                kind if kind.writes() && !may_grant => break,
                _ => {
                    let called = entry.call_back(self.now);
                    self.counts.callbacks += called.len() as u64;
                    let falls = self.placement.falls();
                    let call = |(client, number)| {
                        let copy = Copy { page, number };
                        Action::Send(client, if falls { Answer::Fall { copy } } else { Answer::CallBack { copy } })
                    };
                    actions.extend(called.into_iter().map(call));
                    break;
                }
            }
        }
        self.tell_of_records(page, actions);
        self.directory.tidy(page);
    }

    fn drop_copy(
        &mut self,
        client: ClientId,
        copy: Copy,
        memory: &dyn Memory,
        actions: &mut Vec<Action>,
    ) -> Result<(), Misbehaviour> {
        if !self.directory.holds(client, copy) {
            return Ok(());
        }
        let entry = self.directory.entry(copy.page);
        let writer = entry.writer.filter(|writer| writer.0 == client);
        if writer.is_some_and(|owner| self.writers.get(&owner).is_some_and(|writer| writer.is_committing)) {
            return Err(misbehaved(client, "a commit under way of, and dropped,", copy.page));
        }
        if self.directory.entry(copy.page).is_asked_by(client) {
            return Err(misbehaved(client, "asked for a write lock of, and dropped,", copy.page));
        }
        if let Some(owner) = writer {
            self.end_write(owner, copy.page);
        }
        self.directory.remove(client, copy);
        self.advance(copy.page, memory, actions);
        Ok(())
    }

    /// Checks every invariant of the state.
    ///
    /// # Errors
    /// The first that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.directory.check()?;
        self.directory.check_queues(!self.is_gathering)?;
        let is_miscounted =
            |(client, joined): &(&ClientId, &JoinedClient)| self.directory.waiting_of(**client) != joined.waiting;
        if let Some((client, joined)) = self.clients.iter().find(is_miscounted) {
            return Err(format!("{client:?} should have {} requests that wait", joined.waiting));
        }
        self.check_snapshots()?;
        if let Some((client, page)) = self.copy_without_grant() {
            return Err(format!("{client:?} has a copy of {page}, which it may not read"));
        }
        for (owner, writer) in &self.writers {
            let lacking = writer.pages.iter().find(|page| self.writer(**page) != Some(*owner));
            if let Some(page) = lacking {
                return Err(format!("{owner:?} should be the writer of {page}"));
            }
        }
        for (page, entry) in self.directory.entries() {
            if entry.copies.values().any(|held| held.passed > self.chances) {
                return Err(format!("{page} was passed on more often than {} times without being used", self.chances));
            }
            let is_known = |owner| self.writers.get(&owner).is_some_and(|writer| writer.pages.contains(&page));
            if let Some(owner) = entry.writer.filter(|owner| !is_known(*owner)) {
                return Err(format!("{page} is locked by {owner:?}, which has no such lock"));
            }
        }
        let mut waiting = self.directory.waiting_owners().filter(|_| !self.is_gathering);
        if let Some(page) = self.directory.kept().find(|page| self.writer(*page).is_none()) {
            return Err(format!("{page} is kept by no one"));
        }
        match waiting.find(|owner| deadlock::victim(&self.directory, *owner).is_some()) {
            Some(owner) => Err(format!("{owner:?} waits for itself")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
