//! A node that runs transactions on pages of a server: the client's side of the protocol above an engine's buffer.
//!
//! The buffer is an engine's, and its pages' store is the server. A transaction's changes stay here until it commits: then
//! its log records and the pages go to the server. What it has changed never leaves the buffer before.
//!
//! When the connection to the server is gone, the transaction that runs fails, and the node joins again, with its copies if it can
//! (`session.rs`). While it has no lease, transactions wait.
//!
//! One transaction runs at a time: the protocol has more, but those of one node would need the engine's own locks among
//! themselves, and the server would have to know which of them waits for which.

mod catalog;
mod peers;
mod records;
mod session;
mod store;
mod transaction;
mod view;

pub use transaction::PageTransaction;

use crate::channel::Transport;
use crate::client::{Arrival, Client, Ended};
use crate::lease::Lease;
use crate::message::{Answer, ClientId, Copy, Outcome, Request, Secret, Session, ToPeer, ToServer, Transaction};
use crate::outbox::{Outbox, Traffic};
use base::time::SECOND_NS;
use base::{Instant, PageId, PartitionId};
use catalog::KnownCatalog;
use driver::{Fault, FaultKind};
use engine::buffer::{self, Buffer, PageSpace};
use engine::page::{PageKind, header};
use executor::{Executor, Turn, WaitQueue};
use peers::{PeerPlace, Peers};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use store::{Reads, RemoteStore};

/// How a client works.
#[derive(Clone, Copy, Debug)]
pub struct ClientSettings {
    /// Its buffer.
    pub buffer: buffer::Settings,
    /// Where it accepts connections of other clients that send it pages.
    pub address: SocketAddr,
    /// The least length of a message, in bytes: shorter ones are filled up. None but for described networks.
    pub message_size_min: usize,
    /// For how long a server that cannot be reached is tried again, in nanoseconds. Then the node is of no use any more.
    pub patience_ns: u64,
}

/// A node on a server's pages. Clones are handles to the same node.
#[derive(Clone)]
pub struct PageClient(Rc<ClientNode>);

struct ClientNode {
    executor: Executor,
    settings: ClientSettings,
    server: SocketAddr,
    /// Where other clients reach it.
    address: SocketAddr,
    transport: Rc<dyn Transport>,
    buffer: Rc<Buffer>,
    protocol: RefCell<Client>,
    to_server: RefCell<Rc<Outbox>>,
    lease: Cell<Lease>,
    /// When the server was heard last.
    heard: Cell<Instant>,
    /// The last session that has ended, and what became of its transactions.
    ended: Cell<Option<(Session, Outcome)>>,
    catalog: RefCell<KnownCatalog>,
    peers: Peers,
    traffic: Rc<Traffic>,
    /// Reads of pages that were asked for.
    reads: Reads,
    /// The bytes of copies that have left the buffer and may be wanted.
    kept: RefCell<BTreeMap<Copy, Vec<u8>>>,
    /// The transaction that runs, and what the server has said of it.
    current: Cell<Transaction>,
    told: RefCell<Told>,
    /// Wakes the transaction.
    bell: WaitQueue,
    turn: Turn,
}

/// What the server has said of the present transaction.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Nothing,
    Victim,
    /// It may not write what it wants to.
    Denied(String),
    /// Nothing, since the transaction is to be committed.
    Committing,
    Committed,
    /// Nothing of it is committed.
    Refused(String),
    /// The server is gone for now.
    Lost(String),
    /// The server is not sought any more.
    GivenUp(String),
}

impl PageClient {
    /// Joins a server.
    ///
    /// # Errors
    /// The driver's, or that of a server that does not want this client.
    pub async fn join(
        executor: &Executor,
        transport: Rc<dyn Transport>,
        server: SocketAddr,
        settings: ClientSettings,
    ) -> engine::Result<PageClient> {
        let traffic: Rc<Traffic> = Rc::default();
        let acceptor = transport.listen(settings.address).await?;
        let way = session::Way { executor, transport: &*transport, server, traffic: &traffic, settings: &settings };
        let introduced = session::introduce(&way, acceptor.address(), None).await?;
        let buffer = Buffer::new(executor, None, settings.buffer)?;
        let mut protocol = Client::default();
        protocol.join(introduced.session, introduced.secrets);
        let inner = Rc::new(ClientNode {
            executor: executor.clone(),
            settings,
            server,
            address: acceptor.address(),
            transport: Rc::clone(&transport),
            buffer,
            protocol: RefCell::new(protocol),
            to_server: RefCell::new(introduced.outbox.take_over()),
            lease: Cell::new(introduced.lease),
            heard: Cell::new(executor.now()),
            ended: Cell::new(None),
            catalog: RefCell::default(),
            peers: Peers::new(executor, transport, &traffic, settings.message_size_min),
            traffic,
            reads: Reads::default(),
            kept: RefCell::default(),
            current: Cell::new(Transaction(0)),
            told: RefCell::new(Told::Nothing),
            bell: WaitQueue::new(),
            turn: Turn::new(),
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
        executor.spawn(peers::accept(Rc::downgrade(&inner), acceptor, executor.clone()));
        Ok(PageClient(inner))
    }

    /// Its name at the server, for as long as the present connection lasts.
    pub fn id(&self) -> ClientId {
        self.session().client
    }

    /// Its session at the server.
    pub fn session(&self) -> Session {
        self.0.protocol.borrow().session().expect("it has joined")
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
        match &*self.0.told.borrow() {
            Told::GivenUp(cause) => Some(cause.clone()),
            _ => None,
        }
    }

    /// Its buffer.
    pub fn buffer(&self) -> &Rc<Buffer> {
        &self.0.buffer
    }

    /// What it has sent.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// To how many other clients it has connections, or is making them.
    pub fn peers(&self) -> usize {
        self.0.peers.len()
    }

    /// Makes the pages of a partition of the server's database known here.
    pub fn attach(&self, partition: PartitionId) {
        self.0.attach(partition);
    }

    /// Begins a transaction, when the one before has ended.
    pub async fn begin(&self) -> PageTransaction {
        self.0.turn.take(&self.0.executor).await.keep();
        PageTransaction::new(&self.0)
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
            let again = client.protocol.borrow_mut().repeat(page, client.current.get());
            again.inspect(|again| client.say(again));
        }
    }
}

impl Drop for ClientNode {
    /// The node leaves its server and its peers.
    fn drop(&mut self) {
        self.say(&ToServer { drops: Vec::new(), body: Request::Leave });
        self.to_server.borrow().close();
        self.peers.close();
    }
}

impl ClientNode {
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

    fn tell(&self, told: Told) {
        self.told.replace(told);
        self.bell.wake_all(&self.executor);
    }

    /// The server has said something.
    fn hear(self: &Rc<Self>, answer: Answer) {
        self.heard.set(self.executor.now());
        match answer {
            Answer::Joined { .. } | Answer::Refusal { .. } | Answer::Surveyed(_) => {}
            Answer::Catalog { partitions } => self.take_catalog(partitions),
            Answer::Renewed { sent } => self.prolong(Instant::from_ns(sent)),
            Answer::Page { copy, bytes, returns } => self.arrive(copy, &bytes, returns),
            Answer::Failed { copy, is_denied, reason } => {
                let kind = if is_denied { FaultKind::Denied } else { FaultKind::Device };
                self.fail(copy, Fault::new(kind, reason));
            }
            Answer::Denied { transaction, reason } => {
                if transaction == self.current.get() && *self.told.borrow() == Told::Nothing {
                    self.tell(Told::Denied(reason));
                }
            }
            Answer::Granted { copy, transaction } => {
                if self.protocol.borrow_mut().granted(copy, transaction) {
                    self.bell.wake_all(&self.executor);
                }
            }
            Answer::CallBack { copy } => {
                let called = self.protocol.borrow_mut().call_back(copy);
                self.forget(called.forgets);
                if called.discards {
                    self.discard(copy.page);
                }
                called.answer.inspect(|answer| self.say(answer));
            }
            Answer::Withdrawn { copy } => self.protocol.borrow_mut().withdrawn(copy),
            Answer::Forward { copy, wanted, to, address, name, secret, returns } => {
                self.forward((copy, wanted), (to, PeerPlace { address, name }, secret), returns)
            }
            Answer::Victim { transaction, withdrawn } => {
                // One that is being committed waits for nothing, so the victim is what it waited for before.
                if transaction == self.current.get() && *self.told.borrow() == Told::Nothing {
                    self.tell(Told::Victim);
                }
                withdrawn.into_iter().for_each(|copy| self.withdraw(copy));
            }
            Answer::Committed { transaction } => self.end_commit(transaction, Told::Committed),
            Answer::NotCommitted { transaction, reason } => self.end_commit(transaction, Told::Refused(reason)),
        }
    }

    fn end_commit(&self, transaction: Transaction, told: Told) {
        if transaction == self.current.get() && *self.told.borrow() == Told::Committing {
            self.tell(told);
        }
    }

    /// A page has come from the server.
    fn arrive(&self, copy: Copy, bytes: &[u8], returns: bool) {
        if let Err(detail) = self.check_page(copy.page, bytes) {
            let words = format!("the server at {} has sent {} damaged: {detail}", self.server, copy.page);
            return self.fail(copy, Fault::new(FaultKind::Device, words));
        }
        let arrival = self.protocol.borrow_mut().arrived(copy, returns);
        arrival.inspect(|arrival| self.take_in(copy, bytes, arrival));
    }

    /// A page has come from another client. False if it is none: then the server is asked for it.
    fn arrive_from_peer(&self, to: (Session, Secret), copy: Copy, (bytes, returns): (&[u8], bool)) -> bool {
        if self.to_server.borrow().is_closed() {
            // The reads of this session have failed, or are about to.
            return true;
        }
        if !self.protocol.borrow().is_sent_here(to.0, to.1) {
            // Of a stranger, or late.
            return true;
        }
        if self.check_page(copy.page, bytes).is_err() {
            let again = self.protocol.borrow_mut().repeat(copy.page, self.current.get());
            again.inspect(|again| self.say(again));
            return false;
        }
        let arrival = self.protocol.borrow_mut().arrived_from_peer(to, copy, returns);
        arrival.inspect(|arrival| self.take_in(copy, bytes, arrival));
        true
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

    fn take_in(&self, copy: Copy, bytes: &[u8], arrival: &Arrival) {
        if let Some((left, is_wanted)) = arrival.leaving {
            let kept = self.kept.borrow_mut().remove(&left);
            if let (true, Some(bytes)) = (is_wanted, kept) {
                let message = self.protocol.borrow_mut().give_back(left, bytes);
                self.say(&message);
            }
        }
        let waited_ns = self.reads.complete(copy.page, bytes, self.executor.now());
        waited_ns.inspect(|waited_ns| self.protocol.borrow_mut().note_wait(copy, *waited_ns));
        if arrival.is_called {
            self.discard(copy.page);
            let message = self.protocol.borrow_mut().give_up(copy.page);
            message.inspect(|message| self.say(message));
        }
    }

    /// A page cannot be had.
    fn fail(&self, copy: Copy, cause: Fault) {
        let failure = self.protocol.borrow_mut().failed(copy);
        self.forget(failure.forgets);
        failure.answer.inspect(|answer| self.say(answer));
        if failure.was_waited_for {
            self.reads.fail(copy.page, cause);
        }
    }

    /// A deadlock's victim gets a page no more that it has asked for.
    fn withdraw(&self, copy: Copy) {
        let (was_waited_for, forgotten) = self.protocol.borrow_mut().request_withdrawn(copy);
        self.forget(forgotten);
        if was_waited_for {
            let words = "a deadlock's victim has asked for the page";
            self.reads.fail(copy.page, Fault::new(FaultKind::Cancelled, words));
        }
    }

    /// Sends another client a page, or says that this cannot be done.
    fn forward(
        self: &Rc<Self>,
        (copy, wanted): (Copy, u64),
        (to, place, secret): (ClientId, PeerPlace, Secret),
        returns: bool,
    ) {
        let theirs = Copy { page: copy.page, number: wanted };
        let bytes = self.protocol.borrow().may_send(copy).then(|| self.bytes_of(copy)).flatten();
        match bytes {
            Some(bytes) => {
                let Some(own) = self.protocol.borrow().session() else { return };
                let addressee = Session { epoch: own.epoch, client: to };
                let page = ToPeer::Page { to: addressee, secret, copy: theirs, bytes, returns };
                self.peers.send(self, (to, place), page);
            }
            None => self.refuse(theirs, to, returns),
        }
    }

    fn refuse(&self, theirs: Copy, to: ClientId, returns: bool) {
        let refused = self.protocol.borrow_mut().refuse(theirs, to, returns);
        self.say(&refused);
    }

    /// The bytes of a copy, sealed, from where they are.
    fn bytes_of(&self, copy: Copy) -> Option<Vec<u8>> {
        if let Some(kept) = self.kept.borrow().get(&copy) {
            return Some(kept.clone());
        }
        let pool = self.buffer.pool().borrow();
        let mut bytes = pool.bytes(pool.frame_of(copy.page)?).to_vec();
        header::seal(&mut bytes);
        Some(bytes)
    }

    /// A page makes room for another.
    fn note_departure(&self, page: PageId, bytes: &[u8]) {
        let (kept, forgotten) = self.protocol.borrow_mut().left(page);
        self.forget(forgotten);
        if let Some(copy) = kept {
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

    /// Does what the end of a transaction asks for.
    fn finish(&self, ended: Ended) {
        ended.discards.into_iter().for_each(|page| self.discard(page));
        ended.messages.iter().for_each(|message| self.say(message));
    }
}
