//! A node that serves its database's pages: the server's side of the protocol above an engine.
//!
//! The engine's buffer is the server's memory and its log makes commits durable. Each client has a task that receives and a task that
//! sends. What a message causes is decided in one synchronous step, and then done: pages that are here are sent at once, others
//! by a task that fetches them.

mod admitting;
mod committing;
mod describing;
mod ended;
mod fetching;
mod hearing;
mod internals;
mod memory;
mod records;
mod sets;
mod snapshots;
mod survey;

pub use admitting::{STRANGERS_BYTES_MAX, STRANGERS_MAX};
pub use internals::ServerInternals;

use crate::algorithm::{ALGORITHMS, Algorithm, CHANCES, Frames, Recency};
use crate::channel::{Acceptor, Ending, Transport, next_connection};
use crate::grants::{Access, Grants};
use crate::lease::{LEASE_NS, Term};
use crate::message::{Answer, ClientId, Copy, Image, LeavingFate, Message, PageAnswer};
use crate::outbox::{Kinds, Outbox, Traffic};
use crate::server::{Action, Believed, Counts, Found, Memory, Server};
use admitting::Unknown;
use base::{Instant, PageId, PartitionId};
use describing::describe;
use engine::canary::{self, Canary};
use engine::catalog::Partition;
use engine::set;
use engine::{CommitFailure, Database, Error, HeldMoment, Internals, KeptVersions, Served, Shipment};
use executor::{Executor, Turn, WaitQueue, WholeExecutor};
use memory::InBuffer;
use snapshots::SetViews;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

/// How a page server works.
#[derive(Clone)]
pub struct ServerSettings {
    /// What it does with the memories of its clients.
    pub algorithm: &'static Algorithm,
    /// How often a last copy is passed on to an idle client without being used, if the algorithm passes copies on.
    pub chances: u8,
    /// The least length of a message, in bytes: shorter ones are filled up. None but for described networks.
    pub message_size_min: usize,
    /// Whether clients have leases, so that one which is not heard is given up no sooner than it knows. All do but those on described
    /// networks, on which nothing is lost: there a client is given up with its connection.
    pub has_leases: bool,
    /// What nodes may do, by the names that they have proven. If this is none, they are not told apart.
    pub grants: Option<Grants>,
}

impl Default for ServerSettings {
    /// Callback locking, with leases, for nodes that are not told apart.
    fn default() -> ServerSettings {
        let algorithm = &ALGORITHMS[0];
        ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants: None }
    }
}

/// Is told of each page that a client gets, and where it was found. Pages that another client sends come as `None`.
pub type Observer = Box<dyn Fn(ClientId, PageId, Option<Found>)>;

/// A database whose pages are served. Clones are handles to the same server.
#[derive(Clone)]
pub struct PageServer(Rc<ServerNode>);

struct ServerNode {
    this: Weak<ServerNode>,
    database: Database,
    executor: Executor,
    memory: InBuffer,
    settings: ServerSettings,
    /// Keeps the database from changing anything by itself that nodes have copies of or know.
    served: RefCell<Option<Rc<Served>>>,
    grants: RefCell<Option<Grants>>,
    protocol: RefCell<Server>,
    /// Memory for what a step decides.
    actions: RefCell<Vec<Action>>,
    outboxes: RefCell<BTreeMap<ClientId, Rc<Outbox>>>,
    /// Peers that have not said who they are, the latest last.
    strangers: RefCell<VecDeque<Unknown>>,
    /// Until when clients have leases.
    terms: RefCell<BTreeMap<ClientId, Term>>,
    /// What snapshots see of sets, and what keeps it.
    kept: KeptVersions,
    set_views: RefCell<SetViews<HeldMoment>>,
    /// Wakes those who wait for the end of a commit.
    bell: WaitQueue,
    traffic: Rc<Traffic>,
    /// What was heard, by the kind of message.
    received: RefCell<Kinds>,
    /// One at a time is told what is known.
    survey_turn: Turn,
    /// Whose commit is tried again that has found all frames in use.
    frames_turn: Turn,
    since: Instant,
    observer: RefCell<Option<Observer>>,
    address: SocketAddr,
    /// It serves no more, and does not listen.
    ending: Rc<Ending>,
}

impl PageServer {
    /// Serves the pages of a database at an address.
    ///
    /// # Errors
    /// The driver's, such as that of an address in use, and those of a log that has failed. [`Error::NoPartition`] if grants name a
    /// partition that is not there, [`Error::PartitionInUse`] if an index is being built or dropped, or a partition is being compacted or
    /// loaded, [`Error::Setting`] if the database has a page server that was not closed. [`Error::StillRunning`] if transactions of the
    /// database's own have not ended in ten seconds: while it is served it runs none. Those of [`Database::check_ended`] if what transactions
    /// have left has not got on for a minute.
    pub async fn serve(
        database: &Database,
        transport: Rc<dyn Transport>,
        address: SocketAddr,
        settings: ServerSettings,
    ) -> engine::Result<PageServer> {
        settings.grants.as_ref().map_or(Ok(()), |grants| check_grants(database, grants))?;
        let served = RefCell::new(Some(Rc::new(database.serve_nodes().await?)));
        ended::await_ends(database).await?;
        let acceptor = transport.listen(address).await?;
        let buffer = &database.settings().buffer;
        let memory = Frames { count: buffer.frames, replacement: buffer.replacement };
        let mut protocol = Server::new(settings.algorithm, memory, begin_epoch(database, settings.has_leases).await?);
        protocol.set_chances(settings.chances);
        if settings.has_leases {
            protocol.gather(believed(database));
        }
        let kept = database.keep_versions().await;
        let secret = settings.has_leases.then(|| database.executor().whole().entropy());
        if let Some(secret) = secret {
            protocol.hash_with((secret >> 64) as u64);
        }
        let seed = secret.filter(|_| settings.algorithm.returns()).map(|secret| secret as u64);
        let inner = Rc::new_cyclic(|this| ServerNode {
            this: this.clone(),
            database: database.clone(),
            executor: database.executor().whole().of_library(),
            memory: InBuffer::new(database, seed),
            grants: RefCell::new(settings.grants.clone()),
            settings,
            served,
            protocol: RefCell::new(protocol),
            actions: RefCell::default(),
            outboxes: RefCell::default(),
            strangers: RefCell::default(),
            terms: RefCell::default(),
            kept,
            set_views: RefCell::default(),
            bell: WaitQueue::new(),
            traffic: Rc::default(),
            received: RefCell::default(),
            survey_turn: Turn::new(),
            frames_turn: Turn::new(),
            since: database.executor().now(),
            observer: RefCell::default(),
            address: acceptor.address(),
            ending: Rc::default(),
        });
        inner.set_default_snapshot_room();
        let executor = &inner.executor;
        executor.spawn(accept(Rc::downgrade(&inner), acceptor, (Rc::clone(&inner.ending), executor.clone())));
        if inner.settings.has_leases {
            executor.spawn(watch_terms(Rc::downgrade(&inner), executor.clone()));
        }
        Ok(PageServer(inner))
    }

    /// From now on nodes may do this. One that may do other things than before is heard no more, and has to join again. Until it
    /// does, or its lease is over, it may still use the copies that it has, and no other node writes their pages.
    ///
    /// # Errors
    /// [`Error::NoPartition`] if a partition is named that is not there: then all is as before.
    pub fn grant(&self, grants: Grants) -> engine::Result<()> {
        check_grants(&self.0.database, &grants)?;
        self.0.grants.replace(Some(grants));
        let is_other = |(client, name): (ClientId, Option<&str>)| {
            let changed = self.0.protocol.borrow().access(client) != Some(&self.0.access(name));
            changed.then_some(client)
        };
        let other: Vec<ClientId> = self.0.protocol.borrow().names().filter_map(is_other).collect();
        other.into_iter().for_each(|client| self.0.revoke(client));
        Ok(())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Serves no more: every client is told that this is the end. The address is free as soon as other tasks have run. What the database itself
    /// is to change from now on waits until the leases of all of them are over, since some may not hear of it, and another server for the
    /// commits that are under way.
    pub fn close(&self) {
        self.0.ending.come(self.0.executor());
        self.0.set_views.take();
        self.0.end_serving();
        if !canary::is_planted(Canary::SilentClose) {
            self.0.outboxes.borrow().values().for_each(|outbox| outbox.close());
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.0.protocol.borrow().counts()
    }

    /// Why nothing is committed any more, if the log has failed: the server has to be started again.
    pub fn failure(&self) -> Option<Error> {
        self.0.database.log().failure()
    }
}

/// Grants name partitions that there are.
fn check_grants(database: &Database, grants: &Grants) -> engine::Result<()> {
    let partitions = database.partitions();
    let own = partitions.iter().filter(|partition| partition.index_of.is_none());
    let names: Vec<&str> = own.map(|partition| partition.name.as_str()).collect();
    match grants.unknown(&names) {
        None => Ok(()),
        Some((node, name)) => Err(Error::NoPartition(format!("{name}', which is granted to node '{node}"))),
    }
}

/// An epoch greater than all before it: the log's end behind a record that is durable.
async fn begin_epoch(database: &Database, has_leases: bool) -> engine::Result<u64> {
    if !has_leases {
        return Ok(0);
    }
    match database.commit_shipped(&Shipment::default()).await {
        Ok(()) => {
            let epoch = database.log().end();
            database.log().flush(epoch).await?;
            Ok(epoch.0)
        }
        Err(CommitFailure::NothingLogged(error) | CommitFailure::Undecided(error)) => Err(error),
    }
}

/// The sessions with servers of this database behind whose beginning it has changed nothing by itself. None if its log is not durable, and
/// none of openings whose log was not: what they were told to be there may be gone.
fn believed(database: &Database) -> Option<Believed> {
    let since = database.log().changed_alone().0 + 1;
    database.log().settings().durable.then(|| Believed { database: database.identity(), since })
}

/// For how many actions memory is kept from step to step. Most have one or two.
const ACTIONS_KEPT: usize = 64;

/// How often it is looked for leases that are over, in nanoseconds.
const LOOK_NS: u64 = LEASE_NS / 16;
/// Gives up clients whose leases are over. The leases that an earlier server has given end first.
async fn watch_terms(server: Weak<ServerNode>, executor: Executor) {
    let earlier = Term::new(LEASE_NS, executor.now());
    loop {
        executor.sleep_ns(LOOK_NS).await;
        let Some(server) = server.upgrade().filter(|server| !server.ending.has_come()) else { return };
        let now = executor.now();
        if server.protocol.borrow().is_gathering() && now >= earlier.end() {
            server.step(|server, memory, actions| server.end_gathering(memory, actions));
        }
        let is_over = |(client, term): (&ClientId, &Term)| (now >= term.end()).then_some(*client);
        let over: Vec<ClientId> = server.terms.borrow().iter().filter_map(is_over).collect();
        for (place, client) in over.into_iter().enumerate() {
            if place > 0 {
                // Others have their turn between them, and one of them may be heard again.
                executor.yield_now().await;
            }
            let is_over = server.terms.borrow().get(&client).is_some_and(|term| now >= term.end());
            if is_over && !server.ending.has_come() {
                server.protocol.borrow_mut().note_unheard(client);
                server.give_up(client);
            }
        }
    }
}

async fn accept(server: Weak<ServerNode>, acceptor: Rc<dyn Acceptor>, (ending, executor): (Rc<Ending>, Executor)) {
    while let Some(channel) = ending.before(&executor, next_connection(&*acceptor, &executor)).await.flatten() {
        let Some(server) = server.upgrade() else { return };
        executor.spawn(async move { server.attend(channel).await });
    }
}

impl Drop for ServerNode {
    fn drop(&mut self) {
        self.ending.come(self.database.executor().whole());
        self.end_serving();
    }
}

impl ServerNode {
    /// Nodes may use the database until their leases are over, those of an earlier server among them.
    fn end_serving(&self) {
        let Some(served) = self.served.take() else { return };
        let earlier = self.settings.has_leases.then(|| Term::new(LEASE_NS, self.since));
        let terms = self.terms.borrow();
        let ends = terms.values().copied().chain(earlier).map(|term| term.end());
        served.end(ends.max().unwrap_or(Instant::START));
    }

    fn executor(&self) -> &Executor {
        &self.executor
    }

    /// What the node of this name may do.
    fn access(&self, name: Option<&str>) -> Access {
        let grants = self.grants.borrow();
        let Some(grants) = &*grants else { return Access::All };
        let partitions = self.database.partitions();
        let names: BTreeMap<PartitionId, &str> =
            partitions.iter().map(|partition| (PartitionId(partition.id), partition.name.as_str())).collect();
        // What may be done with records may be done with their entries in indexes.
        let granted_as =
            |partition: &Partition| names.get(&partition.index_of.unwrap_or(PartitionId(partition.id))).copied();
        let named = partitions.iter().filter_map(|found| Some((PartitionId(found.id), granted_as(found)?)));
        grants.access(name.unwrap_or_default(), named)
    }

    /// A client's connection ends.
    fn hang_up(&self, client: ClientId) {
        let outbox = self.outboxes.borrow_mut().remove(&client);
        outbox.inspect(|outbox| outbox.close());
    }

    /// A client has no lease any more, or has come again as another one.
    fn give_up(&self, client: ClientId) {
        self.terms.borrow_mut().remove(&client);
        self.hang_up(client);
        self.step(|server, memory, actions| server.lose(client, memory, actions));
    }

    /// A client may do other things than before. Its lease ends as it would without that.
    fn revoke(&self, client: ClientId) {
        if !self.settings.has_leases || canary::is_planted(Canary::HastyRevocation) {
            return self.give_up(client);
        }
        self.hang_up(client);
        self.step(|server, memory, actions| server.revoke(client, memory, actions));
    }

    /// One synchronous step of the protocol, and what follows from it.
    fn step<T>(&self, step: impl FnOnce(&mut Server, &dyn Memory, &mut Vec<Action>) -> T) -> T {
        // What is performed may take a step of its own, with other memory.
        let mut actions = self.actions.take();
        self.protocol.borrow_mut().note_time(self.executor().round_now());
        let value = step(&mut self.protocol.borrow_mut(), &self.memory, &mut actions);
        actions.drain(..).for_each(|action| self.perform(action));
        if actions.capacity() <= ACTIONS_KEPT {
            self.actions.replace(actions);
        }
        self.end_set_views();
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
            Action::PassOn(to, answer) => self.send(to, &answer),
            Action::SendPage { to, copy, fate, recency, found } => {
                if let Some(observer) = &*self.observer.borrow() {
                    observer(to, copy.page, Some(found));
                }
                if !self.send_page(to, copy, fate, recency) {
                    let length = self.database.settings().buffer.page_size;
                    self.spawn_expected(to, length, async move |this| {
                        this.fetch_and_send((to, copy), fate, recency).await;
                    });
                }
            }
            Action::SendRecord { to, page, lock, is_alone } => self.send_record(to, (page, lock), is_alone),
            Action::SendCatalog(to) => self.send(to, &Answer::Catalog { partitions: describe(&self.database) }),
            Action::BeginSnapshot { client, number, moment } => self.begin_snapshot((client, number), moment),
            Action::ReadSnapshot { client, number, page } => self.read_snapshot((client, number), page),
            Action::ReadPastOfSet { client, number, question, partition, ask } => {
                self.spawn_expected(client, sets::PORTION, async move |this| {
                    this.read_past_of_set((client, number), question, (partition, ask)).await;
                });
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
            Action::SendSetRecord { to, record } => {
                self.spawn_expected(to, set::KEY_MAX, async move |this| this.send_set_record(to, record).await);
            }
            Action::AnswerSet { client, question } => {
                self.spawn_expected(client, sets::PORTION, async move |this| this.answer_set(client, question).await);
            }
            Action::Commit { client, transaction, records, pages, redone, by_records, sets } => {
                let sent = (records, pages, redone);
                // Partitions get no indexes before it has ended, though the server may be closed.
                let served = self.served.borrow().clone();
                self.spawn(async move |this| {
                    this.commit((client, transaction), sent, (&by_records, &sets)).await;
                    drop(served);
                });
            }
        }
    }

    fn spawn(&self, work: impl AsyncFnOnce(Rc<ServerNode>) + 'static) {
        if let Some(this) = self.this.upgrade() {
            self.executor().spawn(async move { work(this).await });
        }
    }

    /// The same, of what sends a client this number of bytes: until then they count as sent.
    fn spawn_expected(&self, to: ClientId, length: usize, work: impl AsyncFnOnce(Rc<ServerNode>) + 'static) {
        let expected = self.outboxes.borrow().get(&to).map(|outbox| outbox.expect(length));
        self.spawn(async move |this| {
            work(this).await;
            drop(expected);
        });
    }

    fn send(&self, to: ClientId, answer: &impl Message) {
        if let Some(outbox) = self.outboxes.borrow().get(&to) {
            outbox.push(answer);
        }
    }

    /// Sends a page if it is in the buffer.
    fn send_page(&self, to: ClientId, copy: Copy, fate: LeavingFate, recency: Recency) -> bool {
        let mut pool = self.database.buffer().pool().borrow_mut();
        let Some(frame) = pool.frame_of(copy.page) else { return false };
        pool.touch(frame);
        if recency == Recency::Hated {
            pool.hate(frame);
        }
        self.send(to, &PageAnswer { copy, bytes: pool.sealed(frame), fate });
        true
    }
}
