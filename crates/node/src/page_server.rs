//! A node that serves its database's pages: the server's side of the protocol above an engine.
//!
//! The engine's buffer is the server's memory and its log makes commits durable. Each client has a task that receives and a task that
//! sends. What a message causes is decided in one synchronous step, and then done: pages that are here are sent at once, others
//! by a task that fetches them.

use crate::algorithm::{Algorithm, Recency};
use crate::channel::{Acceptor, Channel, ChannelError, Incoming, Transport, next_connection};
use crate::message::{Answer, ClientId, Copy, Image, Request, ToServer, Transaction};
use crate::outbox::{Outbox, Traffic};
use crate::server::{Action, Counts, Found, Memory, Server};
use base::PageId;
use driver::{Fault, Work};
use engine::buffer::{Buffer, Pins, Presence};
use engine::page::header;
use engine::second_level::design::Pattern;
use engine::{CommitFailure, Database, Need};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

/// How a page server works.
#[derive(Clone, Copy)]
pub struct ServerSettings {
    /// What it does with the memories of its clients.
    pub algorithm: &'static dyn Algorithm,
    /// The least length of a message, in bytes: shorter ones are filled up. None but for described networks.
    pub message_size_min: usize,
}

/// Is told of each page that a client gets, and where it was found. Pages that another client sends come as `None`.
pub type Observer = Box<dyn Fn(ClientId, PageId, Option<Found>)>;

/// A database whose pages are served. Clones are handles to the same server.
#[derive(Clone)]
pub struct PageServer(Rc<ServerNode>);

struct ServerNode {
    this: Weak<ServerNode>,
    database: Database,
    settings: ServerSettings,
    protocol: RefCell<Server>,
    outboxes: RefCell<BTreeMap<ClientId, Rc<Outbox>>>,
    traffic: Rc<Traffic>,
    observer: RefCell<Option<Observer>>,
    address: SocketAddr,
    is_closed: Cell<bool>,
}

/// The buffer as the server's memory.
struct InBuffer<'a>(&'a Buffer);

impl Memory for InBuffer<'_> {
    fn has(&self, page: PageId) -> bool {
        self.0.pool().borrow().presence(page) != Presence::Absent
    }
}

impl PageServer {
    /// Serves the pages of a database at an address.
    ///
    /// # Errors
    /// The driver's, such as that of an address in use.
    pub async fn serve(
        database: &Database,
        transport: Rc<dyn Transport>,
        address: SocketAddr,
        settings: ServerSettings,
    ) -> Result<PageServer, Fault> {
        let acceptor = transport.listen(address).await?;
        let inner = Rc::new_cyclic(|this| ServerNode {
            this: this.clone(),
            database: database.clone(),
            settings,
            protocol: RefCell::new(Server::new(settings.algorithm)),
            outboxes: RefCell::default(),
            traffic: Rc::default(),
            observer: RefCell::default(),
            address: acceptor.address(),
            is_closed: Cell::new(false),
        });
        database.executor().spawn(accept(Rc::downgrade(&inner), acceptor, database.executor().clone()));
        Ok(PageServer(inner))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Serves no more: every client is told that this is the end.
    pub fn close(&self) {
        self.0.is_closed.set(true);
        self.0.outboxes.borrow().values().for_each(|outbox| outbox.close());
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.0.protocol.borrow().counts()
    }

    /// The database's buffer.
    pub fn buffer(&self) -> &Rc<Buffer> {
        self.0.database.buffer()
    }

    /// What it has sent.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_counts(&self) {
        self.0.protocol.borrow_mut().restart_counts();
        self.0.traffic.restart();
    }

    /// From now on this is told of each page that a client gets.
    pub fn observe(&self, observer: Observer) {
        self.0.observer.replace(Some(observer));
    }

    /// The server's side of the protocol, to look at.
    pub fn protocol(&self) -> std::cell::Ref<'_, Server> {
        self.0.protocol.borrow()
    }
}

async fn accept(server: Weak<ServerNode>, acceptor: Rc<dyn Acceptor>, executor: Executor) {
    while let Some(channel) = next_connection(&*acceptor, &executor).await {
        let Some(server) = server.upgrade().filter(|server| !server.is_closed.get()) else { return };
        executor.spawn(async move { server.attend(channel).await });
    }
}

impl ServerNode {
    fn executor(&self) -> &Executor {
        self.database.executor()
    }

    /// Hears a client until it ends or is given up.
    async fn attend(&self, channel: Rc<dyn Channel>) {
        let mut incoming = Incoming::new(&channel, self.executor());
        let outbox = Outbox::new(self.executor(), channel, &self.traffic, self.settings.message_size_min);
        if let Ok(Some(client)) = self.admit(&mut incoming, &outbox).await {
            self.hear(client, &mut incoming, &outbox).await;
            self.outboxes.borrow_mut().remove(&client);
            self.step(|server, memory, actions| server.lose(client, memory, actions));
        }
        outbox.close();
    }

    /// The first message says who the client is. `None` if it may not join.
    async fn admit(&self, incoming: &mut Incoming, outbox: &Rc<Outbox>) -> Result<Option<ClientId>, ChannelError> {
        let own = self.database.settings().buffer.page_size;
        let (page_size, address) = match incoming.next().await? {
            Some(ToServer { body: Request::Hello { page_size, address }, .. }) => (page_size, address),
            _ => return Ok(None),
        };
        if page_size as usize != own {
            let reason =
                format!("its pages have {page_size} bytes, those of this database {own}: set its page_size so");
            outbox.push(&Answer::Refusal { reason });
            return Ok(None);
        }
        let client = self.protocol.borrow_mut().join(address);
        self.outboxes.borrow_mut().insert(client, Rc::clone(outbox));
        outbox.push(&Answer::Joined { client });
        Ok(Some(client))
    }

    async fn hear(&self, client: ClientId, incoming: &mut Incoming, outbox: &Outbox) {
        while let Ok(Some(message)) = incoming.next::<ToServer>().await {
            self.charge(&message);
            self.executor().pay_debt().await;
            let heard = self.step(|server, memory, actions| server.receive(client, message, memory, actions));
            if heard.is_err() || outbox.is_closed() {
                return;
            }
        }
    }

    /// Marks what a message costs beside its transfer.
    fn charge(&self, message: &ToServer) {
        let executor = self.executor();
        match &message.body {
            Request::Read { .. } | Request::Write { .. } => {
                executor.charge(Work::LockPair);
                executor.charge(Work::CopyRegistration);
            }
            Request::Commit { pages, .. } => executor.charge_times(Work::CopyRegistration, pages.len() as u64),
            _ => {}
        }
    }

    /// One synchronous step of the protocol, and what follows from it.
    fn step<T>(&self, step: impl FnOnce(&mut Server, &dyn Memory, &mut Vec<Action>) -> T) -> T {
        let mut actions = Vec::new();
        let memory = InBuffer(self.database.buffer());
        let value = step(&mut self.protocol.borrow_mut(), &memory, &mut actions);
        actions.into_iter().for_each(|action| self.perform(action));
        value
    }

    fn perform(&self, action: Action) {
        match action {
            Action::Send(to, answer) => {
                if let (Answer::Forward { copy, to: wanting, .. }, Some(observer)) = (&answer, &*self.observer.borrow())
                {
                    observer(*wanting, copy.page, None);
                }
                self.send(to, &answer);
            }
            Action::SendPage { to, copy, returns, recency, found } => {
                if let Some(observer) = &*self.observer.borrow() {
                    observer(to, copy.page, Some(found));
                }
                if !self.send_page(to, copy, returns, recency) {
                    self.spawn(async move |this| this.fetch_and_send((to, copy), returns, recency).await);
                }
            }
            Action::Touch(page) => {
                let pool = self.database.buffer().pool().borrow();
                if let Some(frame) = pool.frame_of(page) {
                    pool.touch(frame);
                }
            }
            Action::Keep(Image { page, bytes }) => self.spawn(async move |this| {
                // A page that cannot be kept is only dropped.
                let _kept = this.database.keep_shipped(page, &bytes).await;
                this.step(|server, memory, actions| server.kept(page, memory, actions));
            }),
            Action::Commit { client, transaction, records, pages } => {
                self.spawn(async move |this| this.commit((client, transaction), records, pages).await);
            }
        }
    }

    fn spawn(&self, work: impl AsyncFnOnce(Rc<ServerNode>) + 'static) {
        if let Some(this) = self.this.upgrade() {
            self.executor().spawn(async move { work(this).await });
        }
    }

    fn send(&self, to: ClientId, answer: &Answer) {
        if let Some(outbox) = self.outboxes.borrow().get(&to) {
            outbox.push(answer);
        }
    }

    /// Sends a page if it is in the buffer.
    fn send_page(&self, to: ClientId, copy: Copy, returns: bool, recency: Recency) -> bool {
        let mut pool = self.database.buffer().pool().borrow_mut();
        let Some(frame) = pool.frame_of(copy.page) else { return false };
        let mut bytes = pool.bytes(frame).to_vec();
        header::seal(&mut bytes);
        pool.touch(frame);
        if recency == Recency::Hated {
            pool.hate(frame);
        }
        drop(pool);
        self.send(to, &Answer::Page { copy, bytes, returns });
        true
    }

    async fn fetch_and_send(&self, (to, copy): (ClientId, Copy), returns: bool, recency: Recency) {
        let buffer = self.database.buffer();
        let mut pins = Pins::new(buffer);
        // The page may have no partition any more, or never had one.
        let fetched = match self.database.describe(copy.page.partition) {
            Ok(_) => buffer.resolve(Need::Page(copy.page), Pattern::Random, &mut pins).await,
            Err(error) => Err(error),
        };
        match fetched {
            Ok(_) => assert!(self.send_page(to, copy, returns, recency), "a pinned page is here"),
            Err(error) => {
                let reason = error.to_string();
                self.step(|server, memory, actions| server.failed(to, copy, reason, memory, actions));
            }
        }
    }

    async fn commit(&self, owner: (ClientId, Transaction), records: Vec<u8>, pages: Vec<Image>) {
        let shipped: Vec<(PageId, &[u8])> = pages.iter().map(|image| (image.page, &image.bytes[..])).collect();
        match self.database.commit_shipped(&records, &shipped).await {
            Ok(()) => self.step(|server, memory, actions| server.committed(owner, memory, actions)),
            Err(error) => {
                let is_harmless = matches!(error, CommitFailure::NothingLogged(_));
                let reason = error.to_string();
                self.step(|server, memory, actions| {
                    server.not_committed(owner, (reason, is_harmless), memory, actions);
                });
            }
        }
    }
}
