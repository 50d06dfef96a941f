//! A node that runs transactions on pages of a server: the client's side of the protocol above an engine's buffer.
//!
//! The buffer is an engine's, and its pages' store is the server. A transaction's changes stay here until it commits: then
//! its log records go to the server, and the pages, or only their names: then the server redoes the records on its own. What it has changed never leaves the buffer before.
//!
//! When the connection to the server is gone, the transactions that run fail, and the node joins again, with its copies if it can
//! (`session.rs`). While it has no lease, transactions wait.
//!
//! Many transactions run at a time. Those that commit while a commit is on its way are sent together behind it (`group.rs`). Their locks
//! in the node are over by then, so that the next ones go on with what they have changed; all are acknowledged when the server has
//! answered, and fail together.

mod ahead;
mod callers;
mod catalog;
mod fields;
mod group;
mod half_change;
mod indexed;
mod internals;
mod lock_wait;
mod long_values;
mod objects;
mod offers;
mod peers;
mod ranges;
mod reading;
mod records;
mod retry;
mod savepoint;
mod session;
mod set_ranges;
mod set_snapshot;
mod sets;
mod snapshot;
mod store;
mod transaction;
mod tree_records;
mod view;
mod waits;
mod withdrawing;

pub use ahead::READ_AHEAD_MAX;
pub use callers::CALLERS_MAX;
pub use internals::NodeInternals;
pub use ranges::PageScan;
pub use savepoint::PageSavepoint;
pub use snapshot::PageSnapshot;
pub use transaction::PageTransaction;
pub use waits::NodeWaits;

use crate::channel::Transport;
use crate::client::{Arrival, CalledBack, Client};
use crate::lease::{Lapses, Lease};
use crate::message::{Answer, Copy, LeavingFate, Outcome, Request, Session, ToServer, Transaction};
use crate::outbox::{Outbox, Traffic};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PageId, PartitionId};
use callers::Callers;
use catalog::KnownCatalog;
use driver::{Fault, FaultKind};
use engine::buffer::{self, Buffer, PageSpace};
use engine::page::{PageKind, header};
use executor::{Executor, Turn, UserExecutor, WaitQueue};
use foldhash::fast::FixedState;
use group::Groups;
use hashbrown::HashMap;
use lock_wait::WaitLimits;
use peers::{PeerPlace, Peers};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use store::{Reads, RemoteStore};
use transaction::SharedWork;

/// How a client works.
#[derive(Clone, Copy, Debug)]
pub struct ClientSettings {
    /// Its buffer.
    pub buffer: buffer::Settings,
    /// Where it accepts connections of other clients that send it pages.
    pub address: SocketAddr,
    /// The least length of a message, in bytes: shorter ones are filled up. None but for described networks.
    pub message_size_min: usize,
    /// How many transactions run at a time, at most, those that only wait for the server's answer to their commits not among them. They are
    /// fewer if the buffer has less than eight frames for each, and no more than half of the requests that [may wait](crate::server::WAITING_MAX).
    pub transactions: usize,
    /// Whether a write lock is kept when its transaction has ended, until another node wants the page.
    pub keeps_write_locks: bool,
    /// Whether a commit carries all pages that it has changed. Otherwise it carries those of which that is cheaper than to have the server
    /// redo their log records, which it carries in any case.
    pub commits_pages: bool,
    /// For how long a call of a transaction waits for a lock, in nanoseconds, unless the transaction itself says how long, and a transaction for
    /// others of the node to end before it begins; `None`: without end.
    pub lock_wait_ns_max: Option<u64>,
    /// For how long a server that cannot be reached is tried again, in nanoseconds. Then the node is of no use any more.
    pub patience_ns: u64,
}

/// A node on a server's pages, and on its memory-resident sets: its transactions read and change both, with ranges and indexes, and its snapshots
/// see both as they were at one moment. Clones are handles to the same node.
#[derive(Clone)]
pub struct PageClient(Rc<ClientNode>);

struct ClientNode {
    executor: Executor,
    /// The handle that its users get.
    for_users: UserExecutor,
    settings: ClientSettings,
    server: SocketAddr,
    /// Where other clients reach it.
    address: SocketAddr,
    transport: Rc<dyn Transport>,
    buffer: Rc<Buffer>,
    protocol: RefCell<Client>,
    to_server: RefCell<Rc<Outbox>>,
    lease: Cell<Lease>,
    lapses: Cell<Lapses>,
    /// When the server was heard last.
    heard: Cell<Instant>,
    /// The last session that has ended, and what became of its transactions.
    ended: Cell<Option<(Session, Outcome)>>,
    catalog: RefCell<KnownCatalog>,
    peers: Peers,
    callers: Rc<Callers>,
    traffic: Rc<Traffic>,
    waits: waits::WaitSums,
    /// Reads of pages that were asked for.
    reads: Reads,
    /// The bytes of copies that have left the buffer and may be wanted.
    kept: RefCell<HashMap<Copy, Vec<u8>, FixedState>>,
    of_server: Cell<session::ServerWants>,
    standing: RefCell<ServerState>,
    /// How many transactions run.
    running: Cell<usize>,
    /// Transactions that have to be rolled back, and why.
    doomed: RefCell<BTreeMap<Transaction, RollbackCause>>,
    /// The pages that running transactions have changed, and those that are to come for a transaction which writes them, or which is about to look
    /// at them.
    changing: RefCell<BTreeSet<PageId>>,
    to_write: RefCell<BTreeMap<PageId, Transaction>>,
    to_look_at: RefCell<BTreeMap<PageId, Transaction>>,
    /// What running transactions have done.
    works: RefCell<BTreeMap<Transaction, SharedWork>>,
    /// Pages that were offered and are to be accepted, and one that is to be considered.
    accepting: RefCell<BTreeSet<PageId>>,
    deferred: Cell<Option<PageId>>,
    groups: Groups,
    /// The page of each append partition to which this node adds records: one of its own, once the first is full that it shares. None
    /// where it is to begin one.
    append_pages: RefCell<BTreeMap<PartitionId, Option<PageId>>>,
    is_telling_waits: Cell<bool>,
    wait_limits: WaitLimits,
    /// Wakes transactions that run, those that wait for the server's answer to their commits, and those that wait to begin.
    bell: WaitQueue,
    answered: WaitQueue,
    gate: WaitQueue,
    /// Whose transaction begins next, and whose snapshot: so none that waits for that is passed by those that come later.
    beginning: Turn,
    snapping: Turn,
}

/// How it stands with the server.
#[derive(Clone, Debug, PartialEq)]
enum ServerState {
    Joined,
    /// The server is gone for now.
    Lost(String),
    /// The server is not sought any more.
    GivenUp(String),
}

/// Why a transaction has to be rolled back.
#[derive(Clone, Debug, PartialEq)]
enum RollbackCause {
    /// It is a deadlock's victim.
    Victim,
    /// It may not write what it wants to.
    Denied(String),
    /// A change was given up halfway, or has failed there.
    HalfChange,
}

impl PageClient {
    /// Joins a server. Users of the library, who have no whole executor, join by its `NetworkNode`.
    ///
    /// # Errors
    /// The driver's, or that of a server that does not want this client.
    #[doc(hidden)]
    pub async fn join(
        executor: &Executor,
        transport: Rc<dyn Transport>,
        server: SocketAddr,
        settings: ClientSettings,
    ) -> engine::Result<PageClient> {
        let traffic: Rc<Traffic> = Rc::default();
        let acceptor = transport.listen(settings.address).await?;
        let (users, executor) = (executor.for_users(), &executor.of_library());
        let way = session::Way { executor, transport: &*transport, server, traffic: &traffic, settings: &settings };
        let introduced = session::introduce(&way, acceptor.address(), None).await?;
        let buffer = Buffer::new(executor, None, settings.buffer)?;
        let mut protocol = Client::default();
        if settings.keeps_write_locks {
            protocol.keep_write_locks();
        }
        protocol.set_snapshot_room(snapshot::kept_max(settings.buffer.frames));
        protocol.join(introduced.session, introduced.secret);
        let inner = Rc::new(ClientNode {
            executor: executor.clone(),
            for_users: users,
            settings,
            server,
            address: acceptor.address(),
            transport: Rc::clone(&transport),
            buffer,
            protocol: RefCell::new(protocol),
            to_server: RefCell::new(introduced.outbox.take_over()),
            lease: Cell::new(introduced.lease),
            lapses: Cell::default(),
            waits: waits::WaitSums::default(),
            heard: Cell::new(executor.now()),
            ended: Cell::new(None),
            catalog: RefCell::default(),
            peers: Peers::new(executor, transport, &traffic, settings.message_size_min),
            callers: Rc::default(),
            traffic,
            reads: Reads::default(),
            kept: RefCell::default(),
            of_server: Cell::new(introduced.of_server),
            standing: RefCell::new(ServerState::Joined),
            running: Cell::new(0),
            doomed: RefCell::default(),
            changing: RefCell::default(),
            to_write: RefCell::default(),
            to_look_at: RefCell::default(),
            works: RefCell::default(),
            accepting: RefCell::default(),
            deferred: Cell::new(None),
            groups: Groups::default(),
            append_pages: RefCell::default(),
            is_telling_waits: Cell::new(false),
            wait_limits: WaitLimits::default(),
            bell: WaitQueue::new(),
            answered: WaitQueue::new(),
            gate: WaitQueue::new(),
            beginning: Turn::new(),
            snapping: Turn::new(),
        });
        let weak = Rc::downgrade(&inner);
        let departure = Box::new(move |page, bytes: &[u8]| {
            if let Some(client) = weak.upgrade() {
                client.note_departure(page, bytes);
            }
        });
        inner.buffer.pool().borrow_mut().set_departure(departure);
        executor.spawn(session::stay(Rc::downgrade(&inner), introduced.incoming, executor.clone()));
        if introduced.lease.length_ns() > 0 {
            executor.spawn(session::renew(Rc::downgrade(&inner), executor.clone()));
        }
        executor.spawn(ask_again(Rc::downgrade(&inner), executor.clone()));
        executor.spawn(callers::accept(Rc::downgrade(&inner), acceptor, (Rc::clone(&inner.callers), executor.clone())));
        Ok(PageClient(inner))
    }

    /// How many copies of pages are in its memory.
    pub fn copies(&self) -> usize {
        self.0.protocol.borrow().resident().count()
    }

    /// Whether copies may be used at this moment.
    pub fn has_lease(&self) -> bool {
        self.0.has_lease()
    }

    /// Why it is of no use any more, if its server was sought in vain or does not want it.
    pub fn failure(&self) -> Option<String> {
        match &*self.0.standing.borrow() {
            ServerState::GivenUp(cause) => Some(cause.clone()),
            _ => None,
        }
    }

    /// What its tasks run on.
    pub fn executor(&self) -> &UserExecutor {
        self.0.for_users()
    }
}

/// How long a page is waited for before it is asked for again, in nanoseconds: another client may have died with it.
const PATIENCE_NS: u64 = 5 * SECOND_NS;

/// Asks again for pages that do not come.
async fn ask_again(client: Weak<ClientNode>, executor: Executor) {
    loop {
        executor.sleep_ns(PATIENCE_NS).await;
        let Some(client) = client.upgrade() else { return };
        let now = executor.now();
        let long_ago = Instant::from_ns(now.ns().saturating_sub(PATIENCE_NS));
        for page in client.reads.overdue(long_ago, now) {
            client.ask_again(page);
        }
    }
}

/// How long a transaction waits for others of its node before the server is told, in nanoseconds. Most waits are over by then, and of a
/// deadlock of transactions of several nodes no one else knows.
const WAITS_NS: u64 = 5 * MILLISECOND_NS;

/// Tells the server which transactions wait for others of this node, as long as some do.
async fn tell_waits(client: Weak<ClientNode>, executor: Executor) {
    loop {
        executor.sleep_ns(WAITS_NS).await;
        let Some(client) = client.upgrade() else { return };
        let told = client.protocol.borrow_mut().tell_waits();
        told.inspect(|told| client.say(told));
        if !client.protocol.borrow().has_waits() {
            client.is_telling_waits.set(false);
            return;
        }
    }
}

/// Why something is not to be had that the server was asked for.
fn refusal(is_denied: bool, reason: String) -> Fault {
    Fault::new(if is_denied { FaultKind::Denied } else { FaultKind::Device }, reason)
}

impl Drop for ClientNode {
    /// The node leaves its server and its peers, and listens no more.
    fn drop(&mut self) {
        self.say(&ToServer { drops: Vec::new(), body: Request::Leave });
        self.to_server.borrow().close();
        self.peers.close();
        self.callers.close(&self.executor);
    }
}

impl ClientNode {
    /// What it runs on, as those who use it have it.
    fn for_users(&self) -> &UserExecutor {
        &self.for_users
    }

    fn attach(self: &Rc<Self>, partition: PartitionId) {
        let store = RemoteStore::new(Rc::downgrade(self), self.buffer.settings().page_size);
        let space = PageSpace::new(Rc::new(store), partition, false, PageKind::Direct);
        self.buffer.attach(partition, space);
    }

    fn say(&self, message: &ToServer) {
        self.to_server.borrow().push(message);
    }

    fn has_lease(&self) -> bool {
        self.lease.get().is_valid(self.executor.now())
    }

    fn stand(&self, standing: ServerState) {
        self.standing.replace(standing);
        self.bell.wake_all(&self.executor);
        self.gate.wake_all(&self.executor);
    }

    /// A transaction has to be rolled back, if it runs.
    fn condemn(&self, transaction: Transaction, why: RollbackCause) {
        if self.protocol.borrow().is_active(transaction) {
            self.doomed.borrow_mut().entry(transaction).or_insert(why);
            self.bell.wake_all(&self.executor);
        }
    }

    /// Does what is due because of what was done.
    fn advance(&self) {
        let due = self.protocol.borrow_mut().take_due();
        due.falls.into_iter().for_each(|fallen| self.take_apart(fallen));
        due.discards.into_iter().for_each(|page| self.discard(page));
        due.messages.iter().for_each(|message| self.say(message));
        self.fail_unwanted(due.unwanted);
        if due.wakes {
            self.bell.wake_all(&self.executor);
        }
    }

    /// A transaction waits for others of this node: the server is told if that lasts.
    fn tell_waits(self: &Rc<Self>) {
        if !self.is_telling_waits.replace(true) {
            self.executor.spawn(tell_waits(Rc::downgrade(self), self.executor.clone()));
        }
    }

    fn ask_again(&self, page: PageId) {
        let again = self.protocol.borrow_mut().ask_again(page);
        again.inspect(|again| self.say(again));
    }

    /// The server has said something.
    fn hear(self: &Rc<Self>, answer: Answer) {
        match answer {
            Answer::Joined { .. } | Answer::Refusal { .. } | Answer::Surveyed(_) => {}
            Answer::Catalog { partitions } => self.take_catalog(partitions),
            Answer::Renewed { sent } => self.prolong(Instant::from_ns(sent)),
            Answer::Page { copy, bytes, fate } => self.arrive(copy, &bytes, fate),
            Answer::Failed { copy, is_full: true, reason, .. } => {
                self.fail(copy, Fault::new(FaultKind::NoSpace, reason))
            }
            Answer::Failed { copy, is_denied, reason, .. } => self.fail(copy, refusal(is_denied, reason)),
            Answer::WouldBlock { copy } => self.do_without(copy),
            Answer::Denied { transaction, reason } => self.condemn(transaction, RollbackCause::Denied(reason)),
            Answer::Granted { copy, transaction } => {
                if self.protocol.borrow_mut().granted(copy, transaction) {
                    self.bell.wake_all(&self.executor);
                }
            }
            Answer::CallBack { copy } => {
                self.keep_for_snapshots(copy.page);
                let called = self.protocol.borrow_mut().call_back(copy);
                self.answer_call(copy, called);
            }
            Answer::Fall { copy } => {
                self.keep_for_snapshots(copy.page);
                let called = self.protocol.borrow_mut().fall(copy);
                self.answer_call(copy, called);
            }
            Answer::ByRecords { copy } => self.do_with_records(copy),
            Answer::Record { page, lock, is_alone, bytes } => self.take_record((page, lock), is_alone, bytes),
            Answer::NoLeaf { page, lock } => self.lack_leaf((page, lock)),
            Answer::NoRecord { page, lock, is_denied, reason } => {
                self.lack_record((page, lock), refusal(is_denied, reason))
            }
            Answer::SetRecord { record, value } => self.take_set_record(&record, value),
            Answer::SetGranted { page, lock } => self.note_set_granted((page, lock)),
            Answer::NoSetRecord { record, is_denied, reason } => {
                self.lack_set_record(&record, refusal(is_denied, reason))
            }
            Answer::Set { transaction, number, said } => self.take_set_answer(transaction, number, said),
            Answer::Withdrawn { copy } => {
                self.protocol.borrow_mut().withdrawn(copy);
                self.advance();
            }
            Answer::Offer { page } => self.consider(page),
            Answer::LastCopy { copy } => self.note_last(copy),
            Answer::Forward { copy, wanted, to, address, name, secret, fate } => {
                self.forward((copy, wanted), (to, PeerPlace { address, name }, secret), fate)
            }
            Answer::AskAgain { copies } => copies.into_iter().for_each(|copy| self.ask_elsewhere(copy)),
            Answer::Victim { transaction, withdrawn } => {
                // One that is being committed waits for nothing any more.
                self.condemn(transaction, RollbackCause::Victim);
                withdrawn.into_iter().for_each(|copy| self.withdraw(copy));
            }
            Answer::Committed { transaction } => self.end_group(transaction, None),
            Answer::NotCommitted { transaction, reason } => self.end_group(transaction, Some(reason)),
            Answer::Snapshot { number, said } => self.hear_of_snapshot(number, said),
        }
    }

    fn answer_call(&self, copy: Copy, called: CalledBack) {
        self.forget(called.forgets);
        if called.discards {
            self.discard(copy.page);
        }
        called.answer.inspect(|answer| self.say(answer));
        self.advance();
    }

    /// A page has come from the server.
    fn arrive(self: &Rc<Self>, copy: Copy, bytes: &[u8], fate: LeavingFate) {
        if let Err(detail) = self.check_page(copy.page, bytes) {
            let words = format!("the server at {} has sent {} damaged: {detail}", self.server, copy.page);
            return self.fail(copy, Fault::new(FaultKind::Device, words));
        }
        let arrival = self.protocol.borrow_mut().arrived(copy, fate);
        arrival.inspect(|arrival| self.take_in(copy, bytes, arrival));
    }

    fn check_page(&self, page: PageId, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() != self.settings.buffer.page_size {
            return Err(format!("it has {} bytes", bytes.len()));
        }
        match header::verify(bytes, page) {
            Ok(true) => Ok(()),
            Ok(false) => Err("it was never written".to_owned()),
            Err(detail) => Err(detail),
        }
    }

    fn take_in(self: &Rc<Self>, copy: Copy, bytes: &[u8], arrival: &Arrival) {
        if let Some((left, fate)) = arrival.leaving.filter(|(_, fate)| *fate != LeavingFate::Offered) {
            let kept = self.kept.borrow_mut().remove(&left);
            if let (LeavingFate::Returned, Some(bytes)) = (fate, kept) {
                let message = self.protocol.borrow_mut().give_back(left, bytes);
                self.say(&message);
            }
        }
        self.forget(arrival.forgets);
        if arrival.is_called {
            // No one wants it any more, so it does not come into the buffer at all.
            self.reads.fail(copy.page, Fault::new(FaultKind::Cancelled, "the page was called back"));
            let message = self.protocol.borrow_mut().give_up(copy.page);
            message.inspect(|message| self.say(message));
        } else {
            let waited_ns = self.reads.complete(copy.page, bytes, self.executor.round_now());
            waited_ns.inspect(|waited_ns| self.protocol.borrow_mut().note_wait(copy, *waited_ns));
        }
        self.advance();
        self.consider_deferred();
    }

    /// A page cannot be had.
    fn fail(self: &Rc<Self>, copy: Copy, cause: Fault) {
        let failure = self.protocol.borrow_mut().failed(copy);
        self.forget(failure.forgets);
        failure.answer.inspect(|answer| self.say(answer));
        self.advance();
        if failure.was_waited_for {
            // Transactions that wait for it by now have to ask for it.
            let kind = if failure.was_speculative { FaultKind::Cancelled } else { cause.kind };
            self.reads.fail(copy.page, Fault { kind, ..cause });
        }
        self.consider_deferred();
    }

    /// A page makes room for another.
    fn note_departure(&self, page: PageId, bytes: &[u8]) {
        let (kept, forgotten) = self.protocol.borrow_mut().left(page);
        self.forget(forgotten);
        if let Some(copy) = kept.filter(|_| self.of_server.get().leaving) {
            let mut bytes = bytes.to_vec();
            header::seal(&mut bytes);
            self.kept.borrow_mut().insert(copy, bytes);
        }
    }

    fn forget(&self, copy: Option<Copy>) {
        copy.and_then(|copy| self.kept.borrow_mut().remove(&copy));
    }

    /// Takes a page that no transaction uses out of the buffer.
    fn discard(&self, page: PageId) {
        let is_gone = self.buffer.pool().borrow_mut().discard_page(page);
        assert!(is_gone, "{page} is given up while it is in use");
    }
}
