//! A client with a memory of version numbers and transactions to run.

mod ahead;
mod snapshots;

use super::records::{Access, RecordUse};
use base::{Instant, PageId, PartitionId, Random};
use engine::lock::Mode;
use entresol_node::client::{Arrival, Client, PageLock, WriteLock};
use entresol_node::lease::Lease;
use entresol_node::message::{
    Answer, ClientId, Copy, Former, Image, LeavingFate, Request, Secret, Session, ToPeer, ToServer, Transaction,
};
use snapshots::NodeSnapshot;
use std::collections::{BTreeMap, BTreeSet};

/// What a node says, and to whom.
pub enum Said {
    Server(ToServer),
    Peer(Place, ToPeer),
}

/// Where a node is found by others: it stays when the node is started again.
pub type Place = u16;

/// A clock that is neither set nor as fast as others.
#[derive(Clone, Copy)]
pub struct Clock {
    pub offset: u64,
    /// How much it gains, in thousandths.
    pub rate: u64,
}

impl Clock {
    pub fn read(self, now: u64) -> Instant {
        Instant::from_ns(self.offset + now * self.rate / 1000)
    }
}

/// A page that the model's memory holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub version: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits for an answer to its introduction, which it has sent then.
    Joining(Instant),
    Idle,
    Running,
    AwaitingPage(PageId),
    AwaitingLock,
    AwaitingRecord,
    AwaitingCommit,
    Done,
}

pub struct Node {
    pub place: Place,
    /// Whether its commits carry pages.
    commits_pages: bool,
    clock: Clock,
    lease: Lease,
    /// What its clock shows.
    pub now: Instant,
    is_renewing: bool,
    /// Whether it has said that it would keep copies.
    names_copies: bool,
    pub protocol: Client,
    pub(super) memory: BTreeMap<PageId, Slot>,
    capacity: usize,
    pub(super) kept: BTreeMap<Copy, u64>,
    uses: u64,
    /// How many secrets it has drawn.
    secrets: u64,
    /// The steps of the transactions still to be run.
    scripts: Vec<Vec<Access>>,
    pub(super) at: usize,
    pub(super) state: State,
    pub(super) transaction: Transaction,
    /// What the present transaction has read, what it has written, and what it has asked write locks of, which stays.
    reads: BTreeMap<PageId, u64>,
    /// By how much.
    pub(super) writes: BTreeMap<PageId, u64>,
    pub(super) records: RecordUse,
    pub(super) pinned: BTreeSet<PageId>,
    snapshot: Option<NodeSnapshot>,
    /// How many pages its snapshots have read, and how many of them were too old.
    pub snapshot_reads: u64,
    pub snapshots_lost: u64,
}

pub fn page(number: u64) -> PageId {
    PageId::new(PartitionId(1), number as u32)
}

pub fn version(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a version"))
}

impl Node {
    pub fn new(
        (place, clock, keeps): (Place, Clock, bool),
        capacity: usize,
        lease_ns: u64,
        scripts: Vec<Vec<Access>>,
    ) -> Node {
        let mut protocol = Client::default();
        if keeps {
            protocol.keep_write_locks();
        }
        Node {
            place,
            commits_pages: !place.is_multiple_of(2),
            clock,
            lease: Lease::new(lease_ns),
            now: clock.read(0),
            is_renewing: false,
            names_copies: false,
            protocol,
            memory: BTreeMap::new(),
            capacity,
            kept: BTreeMap::new(),
            uses: 0,
            secrets: 0,
            scripts,
            at: 0,
            state: State::Idle,
            transaction: Transaction(0),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            records: RecordUse::default(),
            pinned: BTreeSet::new(),
            snapshot: None,
            snapshot_reads: 0,
            snapshots_lost: 0,
        }
    }

    pub fn look_at_clock(&mut self, now: u64) {
        self.now = self.clock.read(now);
        self.protocol.note_time(self.now);
    }

    pub fn has_lease(&self) -> bool {
        self.lease.is_valid(self.now)
    }

    /// It knows that its connection is gone: what runs is over, and it introduces itself anew.
    pub fn introduce(&mut self) -> ToServer {
        if !matches!(self.state, State::Idle | State::Joining(_)) {
            self.roll_back();
            self.end(false);
        }
        self.kept.clear();
        self.is_renewing = false;
        let copies = self.protocol.disconnect(self.has_lease());
        let resident: BTreeSet<PageId> = self.protocol.resident().map(|copy| copy.page).collect();
        self.memory.retain(|page, _| resident.contains(page));
        self.names_copies = !copies.is_empty();
        self.state = State::Joining(self.now);
        let secret = self.protocol.secret();
        let former = self.protocol.session().map(|session| Former { session, secret, copies });
        let address = ([10, 0, 0, 1], self.place).into();
        ToServer { drops: Vec::new(), body: Request::Hello { page_size: 1, address, former } }
    }

    fn begin_session(&mut self, (session, secret): (Session, Secret), keeps: bool, sent: Instant) {
        if !keeps || !self.names_copies {
            self.protocol.forget_copies();
            self.memory.clear();
        }
        self.protocol.join(session, secret);
        self.lease.renew(sent, self.now);
        self.state = State::Idle;
    }

    /// Asks for a longer lease, unless it has asked already.
    pub fn renew(&mut self) -> Option<ToServer> {
        let asks = !std::mem::replace(&mut self.is_renewing, true);
        asks.then(|| ToServer { drops: Vec::new(), body: Request::Renew { sent: self.now.ns() } })
    }

    pub fn may_renew(&self) -> bool {
        !self.is_renewing && !matches!(self.state, State::Done | State::Joining(_))
    }

    /// The scripts that are not done.
    pub fn into_scripts(self) -> Vec<Vec<Access>> {
        self.scripts
    }

    pub fn may_step(&self) -> bool {
        matches!(self.state, State::Idle | State::Running) && self.has_lease()
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub fn is_joining(&self) -> bool {
        matches!(self.state, State::Joining(_))
    }

    /// What it waits for, if it waits.
    pub fn wait(&self) -> String {
        format!("{:?}, {:?} used by {:?}", self.state, self.memory, self.protocol.active())
    }

    /// The copies whose bytes are in its memory.
    pub fn resident(&self) -> impl Iterator<Item = Copy> {
        self.protocol.resident()
    }

    /// The next step of its transaction. `committed` tells the latest version of a page.
    pub fn step(&mut self, committed: &dyn Fn(PageId) -> u64) -> Result<Vec<Said>, String> {
        if self.state == State::Idle {
            let Some(_) = self.scripts.last() else {
                self.state = State::Done;
                return Ok(Vec::new());
            };
            self.transaction = self.protocol.begin();
            (self.at, self.state) = (0, State::Running);
            (self.reads, self.writes, self.pinned) = Default::default();
            self.records.begin();
        }
        let script = self.scripts.last().expect("it runs one").clone();
        let Some(Access { number, slot, writes }) = script.get(self.at).copied() else { return self.commit(committed) };
        let page = page(number);
        if let Some(slot) = slot {
            return self.step_record(page, (slot, writes), committed);
        }
        if !self.protocol.use_page(self.transaction, page) {
            return Ok(self.abort());
        }
        self.lock(page, if writes && number % 2 == 0 { Mode::Exclusive } else { Mode::Shared })?;
        let mut said: Vec<Said> = self.protocol.enter(self.transaction, page).into_iter().map(Said::Server).collect();
        if !self.memory.contains_key(&page) {
            self.state = State::AwaitingPage(page);
            if !self.protocol.is_coming(page) {
                said.extend(self.fetch(page, writes && number % 2 == 0));
            }
            return Ok(said);
        }
        self.read(page, committed)?;
        if !writes {
            self.at += 1;
            return Ok(Vec::new());
        }
        self.lock(page, Mode::Exclusive)?;
        let lock = self.protocol.write(self.transaction, page);
        self.pinned.insert(page);
        match lock {
            WriteLock::Held => {
                self.write(page, 1, committed)?;
                self.at += 1;
                Ok(Vec::new())
            }
            WriteLock::Ask(message) => {
                self.state = State::AwaitingLock;
                Ok(vec![Said::Server(message)])
            }
            WriteLock::Wait => {
                self.state = State::AwaitingLock;
                Ok(Vec::new())
            }
        }
    }

    /// Locks a page in the node, where it is the only transaction.
    pub(super) fn lock(&mut self, page: PageId, mode: Mode) -> Result<(), String> {
        match self.protocol.lock(self.transaction, page, mode) {
            PageLock::Held => Ok(()),
            other => Err(format!("node {}: {other:?} of {page}, and no other transaction is there", self.place)),
        }
    }

    /// Whether it may stop waiting for a lock or a page, as a program does that is impatient.
    pub fn may_skip(&self) -> bool {
        matches!(self.state, State::AwaitingLock | State::AwaitingRecord | State::AwaitingPage(_))
    }

    /// Leaves out what it waits for, and goes on.
    pub fn skip(&mut self) {
        (self.state, self.at) = (State::Running, self.at + 1);
    }

    pub(super) fn read(&mut self, page: PageId, committed: &dyn Fn(PageId) -> u64) -> Result<(), String> {
        self.uses += 1;
        let slot = self.memory.get_mut(&page).expect("it is here");
        slot.used = self.uses;
        let expected = committed(page) + self.writes.get(&page).copied().unwrap_or(0);
        if slot.version != expected {
            return Err(format!("node {} reads version {} of {page}, not {expected}", self.place, slot.version));
        }
        if !self.writes.contains_key(&page) && !self.protocol.does_with_records(self.transaction, page) {
            self.reads.insert(page, slot.version);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, page: PageId, more: u64, committed: &dyn Fn(PageId) -> u64) -> Result<(), String> {
        self.keep_for_snapshot(page);
        *self.writes.entry(page).or_default() += more;
        self.memory.get_mut(&page).expect("it is here").version += more;
        self.read(page, committed)
    }

    /// Makes room and asks for the page.
    pub(super) fn fetch(&mut self, page: PageId, writes: bool) -> Vec<Said> {
        self.make_room();
        let secret = self.draw_secret();
        let (message, forgotten) = self.protocol.request((page, secret), self.transaction, writes);
        forgotten.map(|copy| self.kept.remove(&copy));
        vec![Said::Server(message)]
    }

    /// Takes a page that is offered, if it has nothing to do.
    fn consider(&mut self, page: PageId) -> Vec<Said> {
        if !self.protocol.is_free_for(page) || self.memory.contains_key(&page) || !self.has_lease() {
            return vec![Said::Server(self.protocol.decline(page))];
        }
        self.make_room();
        let secret = self.draw_secret();
        let (message, forgotten) = self.protocol.accept((page, secret));
        forgotten.map(|copy| self.kept.remove(&copy));
        vec![Said::Server(message)]
    }

    /// What no copy had before it.
    fn draw_secret(&mut self) -> Secret {
        self.secrets += 1;
        Secret(u128::from(self.secrets) << 64 | u128::from(self.place))
    }

    /// Makes room as a memory does that forgets what was used least recently.
    fn make_room(&mut self) {
        while self.memory.len() >= self.capacity {
            let clean = self.memory.iter().filter(|(page, _)| !self.pinned.contains(page));
            let Some(victim) = clean.min_by_key(|(_, slot)| slot.used).map(|(page, _)| *page) else { break };
            let slot = self.memory.remove(&victim).expect("it was found");
            let (kept, forgotten) = self.protocol.left(victim);
            self.kept.extend(kept.map(|copy| (copy, slot.version)));
            forgotten.map(|copy| self.kept.remove(&copy));
        }
    }

    fn commit(&mut self, committed: &dyn Fn(PageId) -> u64) -> Result<Vec<Said>, String> {
        if let Some((page, version)) = self.reads.iter().find(|(page, version)| committed(**page) != **version) {
            return Err(format!("version {version} of {page} was read, and changed before the commit"));
        }
        self.check_records(committed)?;
        if self.writes.is_empty() && self.records.updates.is_empty() {
            self.protocol.committed_unchanged(self.transaction);
            return Ok(self.end(true));
        }
        let image = |page: &PageId| Image { page: *page, bytes: self.memory[page].version.to_le_bytes().to_vec() };
        let pages: Vec<Image> = self.writes.keys().map(image).collect();
        self.state = State::AwaitingCommit;
        self.protocol.join_commit(self.transaction, self.writes.keys().copied());
        let mut said = self.due();
        // What is redone is in the records: here the versions, in the order of the pages.
        let (pages, mut redone) = if self.commits_pages { (pages, Vec::new()) } else { (Vec::new(), pages) };
        redone.extend(self.records.images());
        let records = redone.iter().flat_map(|image: &Image| image.bytes.clone()).collect();
        let redone = redone.into_iter().map(|image| image.page).collect();
        said.push(Said::Server(self.protocol.send_commit(records, (pages, redone), Vec::new()).1));
        Ok(said)
    }

    /// Its transaction is over, and nothing of it is committed.
    fn roll_back(&mut self) {
        if self.state == State::AwaitingCommit {
            self.protocol.refused();
        } else {
            let restored = self.protocol.aborted(self.transaction, &self.writes.keys().copied().collect());
            assert!(restored.is_empty(), "no other transaction is there");
        }
    }

    fn end(&mut self, is_committed: bool) -> Vec<Said> {
        if is_committed {
            self.scripts.pop();
        }
        self.state = State::Idle;
        self.pinned.clear();
        self.due()
    }

    pub(super) fn due(&mut self) -> Vec<Said> {
        let due = self.protocol.take_due();
        due.falls.into_iter().for_each(|fallen| self.take_apart(fallen));
        for page in due.discards {
            self.memory.remove(&page);
        }
        for (copy, forgets) in due.unwanted {
            forgets.map(|copy| self.kept.remove(&copy));
            self.records.given_up.insert(copy);
        }
        due.messages.into_iter().map(Said::Server).collect()
    }

    /// The server has said something.
    pub fn hear(&mut self, answer: Answer) -> Result<Vec<Said>, String> {
        match answer {
            Answer::Joined { session, secret, keeps, .. } => {
                let State::Joining(sent) = self.state else { return Ok(Vec::new()) };
                self.begin_session((session, secret), keeps, sent);
                Ok(Vec::new())
            }
            Answer::Renewed { sent } => {
                self.is_renewing = false;
                self.lease.renew(Instant::from_ns(sent), self.now);
                Ok(Vec::new())
            }
            Answer::Page { copy, bytes, fate } => {
                let arrival = self.protocol.arrived(copy, fate);
                Ok(arrival.map_or(Vec::new(), |arrival| self.take_in(copy, &bytes, arrival)))
            }
            Answer::Granted { copy, transaction } => {
                if self.protocol.granted(copy, transaction) && self.state == State::AwaitingLock {
                    self.state = State::Running;
                }
                Ok(Vec::new())
            }
            Answer::CallBack { copy } | Answer::Fall { copy } => {
                self.keep_for_snapshot(copy.page);
                let falls = matches!(answer, Answer::Fall { .. });
                let called = if falls { self.protocol.fall(copy) } else { self.protocol.call_back(copy) };
                if called.discards {
                    self.memory.remove(&copy.page);
                }
                called.forgets.map(|copy| self.kept.remove(&copy));
                let said: Vec<Said> = called.answer.into_iter().map(Said::Server).collect();
                Ok(said.into_iter().chain(self.due()).collect())
            }
            Answer::ByRecords { copy } => Ok(self.do_with_records(copy)),
            Answer::Record { page, lock, is_alone, bytes } => {
                self.take_record((page, lock), is_alone, version(&bytes));
                Ok(Vec::new())
            }
            Answer::Withdrawn { copy } => {
                self.protocol.withdrawn(copy);
                Ok(Vec::new())
            }
            Answer::Failed { copy, .. } => Ok(self.fail(copy)),
            Answer::WouldBlock { copy } => Ok(self.do_without(copy)),
            Answer::Denied { .. } => Err("everything is granted here".to_owned()),
            Answer::Offer { page } => Ok(self.consider(page)),
            Answer::LastCopy { copy } => {
                if self.protocol.is_last(copy) {
                    self.uses += 1;
                    self.memory.get_mut(&copy.page).expect("it is here").used = self.uses;
                }
                Ok(Vec::new())
            }
            Answer::Forward { copy, wanted, to, address, secret, fate, .. } => {
                Ok(vec![self.forward((copy, wanted), (to, address.port(), secret), fate)])
            }
            Answer::AskAgain { copies } => Ok(copies.into_iter().flat_map(|copy| self.ask_elsewhere(copy)).collect()),
            Answer::Victim { transaction, withdrawn } => {
                for copy in withdrawn {
                    let (waited, forgotten) = self.protocol.request_withdrawn(copy);
                    let is_expected = waited || self.records.given_up.contains(&copy);
                    assert!(is_expected, "{copy:?} is withdrawn, and was not waited for");
                    forgotten.map(|copy| self.kept.remove(&copy));
                    self.wait_no_more(copy.page);
                }
                // It may have been rolled back already, or wait no longer for what has made it a victim, and be about to commit.
                let is_active = transaction == self.transaction && self.is_under_way();
                if !is_active {
                    return Ok(Vec::new());
                }
                self.roll_back();
                Ok(self.end(false))
            }
            Answer::Committed { transaction } => {
                if (self.state, transaction) != (State::AwaitingCommit, self.transaction) {
                    return Err("a commit is acknowledged that is over".to_owned());
                }
                self.protocol.committed();
                Ok(self.end(true))
            }
            Answer::Snapshot { number, said } => {
                self.protocol.hear_of_snapshot(number, said);
                Ok(Vec::new())
            }
            other => Err(format!("the server says {other:?}")),
        }
    }

    /// The client is gone that was to send a page, which may have come.
    fn ask_elsewhere(&mut self, copy: Copy) -> Vec<Said> {
        if !self.protocol.lacks(copy) {
            return Vec::new();
        }
        if self.protocol.is_speculative(copy.page) {
            return self.fail(copy);
        }
        self.protocol.ask_again(copy.page).into_iter().map(Said::Server).collect()
    }

    /// A page cannot be had: it is tried again, as if its transaction had come to it only now.
    fn fail(&mut self, copy: Copy) -> Vec<Said> {
        let failure = self.protocol.failed(copy);
        failure.forgets.map(|copy| self.kept.remove(&copy));
        if failure.was_waited_for {
            self.wait_no_more(copy.page);
        }
        failure.answer.into_iter().map(Said::Server).collect()
    }

    pub(super) fn wait_no_more(&mut self, page: PageId) {
        if self.state == State::AwaitingPage(page) {
            self.state = State::Running;
        }
    }

    fn forward(
        &mut self,
        (copy, wanted): (Copy, u64),
        (to, place, secret): (ClientId, Place, Secret),
        fate: LeavingFate,
    ) -> Said {
        let theirs = Copy { page: copy.page, number: wanted };
        if !self.protocol.may_send(copy) {
            return Said::Server(self.protocol.refuse(theirs, to));
        }
        let version = self.kept.get(&copy).copied().unwrap_or_else(|| self.memory[&copy.page].version);
        let epoch = self.protocol.session().expect("it was spoken to").epoch;
        let to = Session { epoch, client: to };
        self.protocol.sent(copy).map(|copy| self.kept.remove(&copy));
        if self.protocol.is_for_others(copy.page) {
            self.memory.get_mut(&copy.page).expect("it is here").used = 0;
        }
        Said::Peer(place, ToPeer::Page { to, secret, copy: theirs, bytes: version.to_le_bytes().to_vec(), fate })
    }

    /// A page has come from another client.
    pub fn arrive_from_peer(
        &mut self,
        to: (Session, Secret),
        copy: Copy,
        (bytes, fate): (&[u8], LeavingFate),
    ) -> Vec<Said> {
        let arrival = self.protocol.arrived_from_peer(to, copy, fate);
        arrival.map_or(Vec::new(), |arrival| self.take_in(copy, bytes, arrival))
    }

    fn take_in(&mut self, copy: Copy, bytes: &[u8], arrival: Arrival) -> Vec<Said> {
        let mut said = Vec::new();
        self.uses += 1;
        // Any time, so that disk and messages become dear and cheap in turns.
        self.protocol.note_wait(copy, (self.uses / 16 % 3) * 1_000 + 1_000 * (copy.number % 3));
        self.memory.insert(copy.page, Slot { version: version(bytes), used: self.uses });
        if let Some((left, fate)) = arrival.leaving.filter(|(_, fate)| *fate != LeavingFate::Offered) {
            let bytes = self.kept.remove(&left).expect("its bytes were kept").to_le_bytes().to_vec();
            if fate == LeavingFate::Returned {
                said.push(Said::Server(self.protocol.give_back(left, bytes)));
            }
        }
        arrival.forgets.map(|copy| self.kept.remove(&copy));
        if arrival.is_called {
            self.memory.remove(&copy.page);
            said.extend(self.protocol.give_up(copy.page).map(Said::Server));
        }
        said.extend(self.due());
        self.wait_no_more(copy.page);
        said
    }

    pub fn awaits_page(&self) -> bool {
        matches!(self.state, State::AwaitingPage(_))
    }

    /// Asks again for the page that it waits for.
    pub fn repeat(&mut self) -> Vec<Said> {
        let State::AwaitingPage(page) = self.state else { return Vec::new() };
        self.protocol.repeat(page, self.transaction).into_iter().map(Said::Server).collect()
    }

    fn is_under_way(&self) -> bool {
        use State::{AwaitingLock, AwaitingPage, AwaitingRecord, Running};
        matches!(self.state, Running | AwaitingLock | AwaitingRecord | AwaitingPage(_))
    }

    /// Whether it may be rolled back for no reason now.
    pub fn may_abort(&self, random: &mut Random) -> bool {
        self.is_under_way() && random.chance(0.02)
    }

    pub fn abort(&mut self) -> Vec<Said> {
        self.roll_back();
        self.end(false)
    }
}
