//! One database on several cores: a thread serves its pages, and an engine on each of the others runs transactions on copies.

mod affinity;
mod ranges;

pub use ranges::KeyRanges;

use affinity::{Affinity, Places};

use crate::configuration::{Configuration, Nodes};
use crate::database_thread::{
    DatabaseThread, GRACE_NS, NodeGroup, Request, Serving, Spawned, is_engine_thread, note_cause, receive, spawn,
};
use crate::error;
use crate::handle::Handle;
use crate::network::client_settings;
use crate::pending::Pending;
use crate::reply::Wakes;
use crate::requests::{Host, Requests};

use crate::{OpenError, Opening};
use base::PartitionId;
use driver::Fault;
use engine::{Database, Error, Figures, Machine, PartitionSpec, Result};
use executor::{Executor, Mailbox, Order};
use node::channel::threads::{Exchange, Threads};
use node::page_client::{ClientSettings, PageClient, PageSnapshot, PageTransaction};
use node::survey::Survey;
use real_driver::RealDriver;
use std::any::type_name;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// A database whose transactions run in several threads at a time: as many nodes as the configuration says (`[nodes]`, `count`, or
/// [`Opening::nodes`]), each an engine
/// with a memory of its own, and a thread more that has the disks and the log. Nodes share pages as those of a page server on a network do
/// (Franklin, Carey, Livny, VLDB 1992), over channels in memory. Others reach them through a [`NodeHandle`].
///
/// It pays on more than two cores, where transactions read much, or write different pages in different nodes. Locks are whole pages', and nodes that write the same
/// ones take turns, for each of which pages go to the server and back: there one engine ([`DatabaseThread`]) is faster. What a node can do is what a
/// [`NodeTransaction`](PageTransaction) has, which does with memory-resident sets what the engine's does: registered procedures are not of it.
/// What a partition does not have is refused ([`Error::WrongOrganization`]). So a [`NodeHandle`] is another type than the [`Handle`]
/// of one engine: a program that changes from one to the other is told by its compiler what it has to do without.
///
/// Calls wait for a lock, their own node's or another one's, for as long as `[locks] wait_at_most` says, or [`PageTransaction::wait_at_most`] of
/// their transaction. A transaction must not await a request of a [`NodeHandle`] that wants what it has written or read: that waits for itself,
/// which no node can see, until such a limit is over. A request to a node does not wait for another one to
/// the same node, as long as no more are under way than the configuration says (`[nodes]`, `transactions`); one more waits as long as for a
/// lock.
///
/// Each node may have copies of as many pages as its buffer holds, so together they take as much memory as the sum of theirs and
/// the server's.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[nodes]\ncount = 2\nbuffer = \"1 MiB\"\n[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{KeyRanges, PartitionSpec};
///
/// let threads = entresol::start_nodes(directory)?;
/// // Names from "n" on are the second node's.
/// let names = threads.handle().with_ranges(KeyRanges::split_at(["n"]));
/// let visits = names.ensure_partition(PartitionSpec::b_tree("visits")).wait()?;
/// let visit = |name: &'static [u8]| {
///     names.transaction_near(name, async move |tx| {
///         let count = tx.get(visits, name).await?.map_or(0, |bytes| bytes[0]);
///         tx.put(visits, name, &[count + 1]).await
///     })
/// };
/// let at_once = [visit(b"ann"), visit(b"zoe"), visit(b"ann")];
/// for visit in at_once {
///     visit.wait()?;
/// }
/// assert_eq!(names.get(visits, b"ann").wait()?, Some(vec![2]));
/// threads.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub struct NodeThreads {
    handle: Option<NodeHandle>,
    nodes: Vec<(Handle, JoinHandle<Result<(), OpenError>>)>,
    server: Option<DatabaseThread>,
}

impl NodeThreads {
    /// Opens the database on a thread, and has a thread for each node join it. Nothing else may have the database.
    ///
    /// # Errors
    /// Those of [`Opening::open`]; [`Error::Setting`] if the configuration names hardware, or there are to be no nodes or more than 64,
    /// or `split_keys` names a partition that is not there while others are.
    pub fn start(opening: Opening) -> Result<NodeThreads, OpenError> {
        let configuration = opening.configuration().clone();
        if configuration.hardware.is_some() {
            let words = "nodes of one process are threads of this machine, and the configuration names hardware";
            return Err(Error::Setting(words.to_owned()).into());
        }
        let count = configuration.nodes.count;
        if !(1..=Nodes::COUNT_MAX).contains(&count) {
            return Err(Error::Setting(format!("there are 1 to {} nodes, and not {count}", Nodes::COUNT_MAX)).into());
        }
        let exchange = Exchange::new();
        let (algorithm, chances) = (configuration.nodes.algorithm, configuration.nodes.chances);
        let server = DatabaseThread::serving(opening, (exchange.clone(), SERVER, algorithm, chances))?;
        let reached = server.handle();
        let mut started = NodeThreads { handle: None, nodes: Vec::new(), server: Some(server) };
        let group = NodeGroup::new();
        for number in 0..count {
            let (configuration, exchange) = (configuration.clone(), exchange.clone());
            let Spawned { handle, thread, .. } =
                spawn(Some((number, group)), move || NodeEngine::join(&configuration, &exchange))?;
            started.nodes.push((handle, thread));
        }
        let nodes = started.nodes.iter().map(|(handle, _)| handle.clone()).collect();
        let places = Arc::new(Places::new(configuration.nodes.split_keys.clone()));
        let (known, noted) = (reached.clone(), Arc::clone(&places));
        let partitions = async move |database: &Database| {
            let partitions = database.partitions();
            partitions.iter().for_each(|partition| noted.note(&partition.name, PartitionId(partition.id)));
            Ok(partitions.iter().map(|partition| partition.name.clone()).collect::<BTreeSet<_>>())
        };
        let names = known.with_database(partitions).wait()?;
        // A new database has none yet.
        let unknown = configuration.nodes.split_keys.keys().find(|name| !names.is_empty() && !names.contains(*name));
        if let Some(name) = unknown {
            return Err(Error::Setting(format!(
                "[nodes] split_keys: there is no partition '{name}'; correct the name, or create it first"
            ))
            .into());
        }
        let shared = Shared { server: reached, nodes, next: AtomicUsize::new(0), places };
        started.handle = Some(NodeHandle { shared: Arc::new(shared), affinity: None });
        Ok(started)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone().expect("it has its handle until it is closed")
    }

    /// Waits until all requests that were sent before are done, for half a minute at most, and closes the nodes, one after the other, and then
    /// the database. Requests that are not done by then are ended and their transactions rolled back; their callers, and handles
    /// that are left, get [`Error::NodeEnded`].
    ///
    /// # Errors
    /// Those of [`Store::close`](crate::Store::close). [`Error::NodeEnded`] if a node has panicked: the database is closed all the same.
    /// [`Error::OwnThread`] on a node's own thread, which ends after that. [`OpenError::Panicked`] if the server's thread has panicked.
    pub fn close(mut self) -> Result<(), OpenError> {
        let ended = self.end_nodes();
        let server = self.server.take().expect("it is closed once");
        server.close()?;
        ended
    }

    fn end_nodes(&mut self) -> Result<(), OpenError> {
        self.handle = None;
        // All are told first, so that they have their time of grace together.
        for (handle, _) in &self.nodes {
            handle.link.sender.send(Request::Close { grace_ns: GRACE_NS });
        }
        let mut ended = Ok(());
        for (number, (handle, thread)) in (0..).zip(std::mem::take(&mut self.nodes)) {
            if is_engine_thread(&handle.link.wakes) {
                ended = Err(Error::OwnThread.into());
                continue;
            }
            let result = thread.join().unwrap_or_else(|_| Err(Error::NodeEnded { node: number }.into()));
            ended = ended.and(result);
        }
        ended
    }
}

impl Drop for NodeThreads {
    fn drop(&mut self) {
        // A caller that needs this error calls `close`; what was committed is safe all the same.
        let _ = self.end_nodes();
    }
}

/// Where the server listens.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), u16::MAX);

/// A node, on its own thread.
struct NodeEngine {
    client: PageClient,
    // Behind the client, which is dropped first.
    machine: Machine,
}

impl NodeEngine {
    fn join(configuration: &Configuration, exchange: &Exchange) -> Result<NodeEngine, OpenError> {
        // The server's thread, and those of the system that end the log's writes, are to run as soon as they can: commits wait for them.
        real_driver::give_way_to_woken();
        // It has no files.
        let driver = RealDriver::open(real_driver::Options::default())?;
        let machine = Machine(Executor::new(Box::new(driver), Order::FirstInFirstOut));
        let executor = &machine.0;
        let transport = Rc::new(exchange.transport(executor));
        let settings = client_settings(configuration, configuration.nodes.buffer, Threads::ANY);
        // Threads of one process are not lost and found again.
        let settings = ClientSettings { patience_ns: 0, ..settings };
        let client = executor.run(PageClient::join(executor, transport, SERVER, settings))??;
        Ok(NodeEngine { client, machine })
    }
}

impl Serving for NodeEngine {
    fn executor(&self) -> &Executor {
        &self.machine.0
    }

    fn serve(self, requests: Mailbox<Request>, wakes: &Wakes, cause: &OnceLock<Fault>) -> Result<(), OpenError> {
        let executor = self.executor().clone();
        // What a transaction has changed at a node is dropped with it.
        executor.contain_panics(|panic| panic);
        let host = Requests::new(Host::Node(self.client.clone()), &executor, wakes);
        error::run_telling(&executor, receive(&host, requests, None), |error| note_cause(error, cause))?;
        host.answers.wake();
        Ok(())
    }
}

/// Reaches the nodes of a [`NodeThreads`] from any thread and any runtime, as a [`Handle`] reaches an engine: what it is asked for is under way
/// at once and comes as a [`Pending`].
///
/// A request about a key goes to the node whose key that is: as the program says ([`NodeHandle::with_affinity`], [`NodeHandle::with_ranges`]), and
/// else as the configuration does (`[nodes]`, `split_keys`). Where neither says anything, requests go to each in turn. Any node can do
/// anything: this only saves the pages' ways between memories. A request for a node that has ended goes to another.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[nodes]\nbuffer = \"1 MiB\"\n[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{NodeThreads, Opening, PartitionSpec};
///
/// let threads = NodeThreads::start(Opening::in_directory(directory)?.nodes(2))?;
/// let handle = threads.handle();
/// let orders = handle.ensure_partition(PartitionSpec::b_tree("orders")).wait()?;
/// let customers = handle.ensure_partition(PartitionSpec::b_tree("customers")).wait()?;
/// // The orders of a customer, whose number begins their keys, go where the customer does.
/// let handle = handle.with_affinity(|_partition, key| usize::from(*key.first().unwrap_or(&0)));
/// assert_eq!([orders, customers].map(|partition| handle.node_at(partition, &[3, 1])), [Some(1), Some(1)]);
/// let order = handle.transaction_about(orders, &[3, 1], async move |tx| {
///     tx.put(customers, &[3], b"has ordered").await?;
///     tx.put(orders, &[3, 1], b"pens").await
/// });
/// order.wait()?;
/// threads.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
///
/// Code that a node runs should wait for nothing but the transaction: while it blocks its thread, other nodes wait for pages that are there. It
/// may await a request to any node, and is told [`Error::OwnThread`] if it is to block for one ([`Pending::wait`]).
#[derive(Clone)]
pub struct NodeHandle {
    shared: Arc<Shared>,
    /// What the program says of it.
    affinity: Option<Affinity>,
}

struct Shared {
    server: Handle,
    nodes: Vec<Handle>,
    /// Which node's turn it is.
    next: AtomicUsize,
    /// What the configuration says of keys.
    places: Arc<Places>,
}

/// A partition that is there has all indexes of its description.
fn check_indexes(database: &Database, spec: &PartitionSpec) -> Result<()> {
    let Ok(found) = database.partition(&spec.name).and_then(|id| database.describe(id)) else { return Ok(()) };
    let has = |name: &str| found.schema.as_ref().is_some_and(|schema| schema.secondary(name).is_ok());
    match spec.secondaries.iter().find(|index| !has(&index.name)) {
        Some(index) => Err(Error::Setting(format!(
            "partition '{}' gets no index '{}' while nodes use it; open the database with one engine for that",
            spec.name, index.name
        ))),
        None => Ok(()),
    }
}

/// The partition, which is created if it is not there. One that is there gets no index, also if another caller has just created it.
async fn ensure_partition(database: &Database, spec: PartitionSpec) -> Result<PartitionId> {
    if database.partition(&spec.name).is_err() {
        match database.create_partition(spec.clone()).await {
            Err(Error::PartitionExists(_)) => {}
            created => return created,
        }
    }
    check_indexes(database, &spec)?;
    database.ensure_partition(spec).await
}

impl NodeHandle {
    /// The same, by which requests about keys go to nodes by these ranges: those of the first range to the first node, and so on, over and
    /// over if there are more ranges than nodes.
    pub fn with_ranges(mut self, ranges: KeyRanges) -> NodeHandle {
        self.affinity = Some(Affinity::Ranges(Arc::new(ranges)));
        self
    }

    /// The same, by which requests about a key of a partition go to the node of this number, the first of them 0, over and over.
    pub fn with_affinity(
        mut self,
        node_of: impl Fn(PartitionId, &[u8]) -> usize + Send + Sync + 'static,
    ) -> NodeHandle {
        self.affinity = Some(Affinity::Function(Arc::new(node_of)));
        self
    }

    /// How many nodes there are, those that have ended among them.
    pub fn nodes(&self) -> usize {
        self.shared.nodes.len()
    }

    /// Which node requests about this key go to, whatever its partition; `None` if the program has stated no ranges.
    pub fn node_of(&self, key: &[u8]) -> Option<usize> {
        match &self.affinity {
            Some(Affinity::Ranges(ranges)) => Some(ranges.range_of(key) % self.nodes()),
            _ => None,
        }
    }

    /// Which node requests about this key of a partition go to; `None` if neither the program nor the configuration says so.
    pub fn node_at(&self, partition: PartitionId, key: &[u8]) -> Option<usize> {
        let place = match &self.affinity {
            Some(affinity) => Some(affinity.place(partition, key)),
            None => self.shared.places.place(partition, key),
        };
        place.map(|place| place % self.nodes())
    }

    /// This node, or the next one that has not ended.
    fn from(&self, first: usize) -> &Handle {
        let nodes = &self.shared.nodes;
        let turns = (first..first + nodes.len()).map(|turn| &nodes[turn % nodes.len()]);
        turns.into_iter().find(|node| !node.link.sender.is_closed()).unwrap_or(&nodes[first % nodes.len()])
    }

    fn in_turn(&self) -> &Handle {
        self.from(self.shared.next.fetch_add(1, Ordering::Relaxed) % self.nodes())
    }

    fn near(&self, key: &[u8]) -> &Handle {
        self.node_of(key).map_or_else(|| self.in_turn(), |node| self.from(node))
    }

    fn at(&self, partition: PartitionId, key: &[u8]) -> &Handle {
        self.node_at(partition, key).map_or_else(|| self.in_turn(), |node| self.from(node))
    }

    /// Runs `work` as a transaction of the node whose turn it is, again if it was a deadlock's victim, until it is committed.
    ///
    /// # Errors
    /// Those of `work` and of [`PageTransaction::commit`]; [`Error::NodeEnded`] if the node ends before it answers: then whether the
    /// transaction is committed has to be looked up.
    pub fn transaction<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        work: impl AsyncFnMut(&mut PageTransaction) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        run(self.in_turn(), work)
    }

    /// The same, of the node whose key of the partition this is. The transaction may use other keys and partitions as well.
    ///
    /// # Errors
    /// As [`NodeHandle::transaction`].
    pub fn transaction_about<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        partition: PartitionId,
        key: &[u8],
        work: impl AsyncFnMut(&mut PageTransaction) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        run(self.at(partition, key), work)
    }

    /// The same, of the node whose keys those around `key` are, in whatever partition ([`NodeHandle::with_ranges`]).
    ///
    /// # Errors
    /// As [`NodeHandle::transaction`].
    pub fn transaction_near<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        key: &[u8],
        work: impl AsyncFnMut(&mut PageTransaction) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        run(self.near(key), work)
    }

    /// The same, of the node of this number, the first of them 0, over and over.
    ///
    /// # Errors
    /// As [`NodeHandle::transaction`].
    pub fn transaction_at<T: Send + 'static, E: From<Error> + Send + 'static>(
        &self,
        node: usize,
        work: impl AsyncFnMut(&mut PageTransaction) -> Result<T, E> + Send + 'static,
    ) -> Pending<T, E> {
        run(self.from(node % self.nodes()), work)
    }

    /// Runs `work` on the thread of the node of this number, as often as it likes as transactions: what is done for many of them costs no ways
    /// between threads.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[nodes]\ncount = 2\nbuffer = \"1 MiB\"\n[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{NodeThreads, Opening, PartitionSpec};
    ///
    /// let threads = NodeThreads::start(Opening::in_directory(directory)?)?;
    /// let visits = threads.handle().ensure_partition(PartitionSpec::b_tree("visits")).wait()?;
    /// let noted = threads.handle().with_node(1, async move |node| {
    ///     for number in 0_u32..100 {
    ///         node.transaction(async |tx| tx.put(visits, &number.to_be_bytes(), b"seen").await).await?;
    ///     }
    ///     Ok::<(), entresol::Error>(())
    /// });
    /// noted.wait()?;
    /// assert_eq!(threads.handle().get(visits, &99_u32.to_be_bytes()).wait()?, Some(b"seen".to_vec()));
    /// threads.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; [`Error::NodeEnded`] if the node ends before it is done.
    pub fn with_node<T: Send + 'static, E: From<Error> + Send + 'static, F>(
        &self,
        node: usize,
        work: F,
    ) -> Pending<T, E>
    where
        F: AsyncFnOnce(&PageClient) -> Result<T, E> + Send + 'static,
    {
        self.from(node % self.nodes()).send(move |requests, promise| {
            let client = requests.node().clone();
            requests.run(type_name::<F>(), promise, async move { work(&client).await });
        })
    }

    /// Has `work` read what is committed at all nodes now, all at one moment and without locks, at the node whose turn it is.
    ///
    /// # Errors
    /// Those of [`PageClient::snapshot`] and of `work`; [`Error::NodeEnded`].
    pub fn snapshot<T: Send + 'static, E: From<Error> + Send + 'static, F>(&self, work: F) -> Pending<T, E>
    where
        F: AsyncFnOnce(&mut PageSnapshot) -> Result<T, E> + Send + 'static,
    {
        self.in_turn().send(move |requests, promise| {
            let client = requests.node().clone();
            requests.run(type_name::<F>(), promise, async move { work(&mut client.snapshot().await?).await });
        })
    }

    /// The value of `key`: a transaction by itself, as are [`NodeHandle::put`] and [`NodeHandle::delete`].
    ///
    /// # Errors
    /// As [`NodeHandle::transaction`], and those of [`PageTransaction::get`].
    pub fn get(&self, partition: PartitionId, key: &[u8]) -> Pending<Option<Vec<u8>>> {
        let own = key.to_vec();
        self.transaction_about(partition, key, async move |tx| tx.get(partition, &own).await)
    }

    /// Stores a value under `key`, in place of one that is there.
    ///
    /// # Errors
    /// As [`NodeHandle::transaction`], and those of [`PageTransaction::put`].
    pub fn put(&self, partition: PartitionId, key: &[u8], value: &[u8]) -> Pending<()> {
        let (own, value) = (key.to_vec(), value.to_vec());
        self.transaction_about(partition, key, async move |tx| tx.put(partition, &own, &value).await)
    }

    /// Deletes the record of `key`; false if there is none.
    ///
    /// # Errors
    /// As [`NodeHandle::transaction`], and those of [`PageTransaction::delete`].
    pub fn delete(&self, partition: PartitionId, key: &[u8]) -> Pending<bool> {
        let own = key.to_vec();
        self.transaction_about(partition, key, async move |tx| tx.delete(partition, &own).await)
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Pending<PartitionId> {
        self.shared.server.partition(name)
    }

    /// The partition of this description, which is created if it is not there. All nodes can use it then. One that is there gets no
    /// indexes: nodes know which it has.
    ///
    /// # Errors
    /// Those of [`Database::ensure_partition`](crate::Database::ensure_partition); [`Error::Setting`] if it lacks an index, which it gets when the
    /// database is opened with one engine.
    pub fn ensure_partition(&self, spec: PartitionSpec) -> Pending<PartitionId> {
        let places = Arc::clone(&self.shared.places);
        self.shared.server.with_database(async move |database| {
            let name = spec.name.clone();
            ensure_partition(database, spec).await.inspect(|id| places.note(&name, *id))
        })
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// Those of [`Database::checkpoint`](crate::Database::checkpoint).
    pub fn checkpoint(&self) -> Pending<()> {
        self.shared.server.with_database(async |database| database.checkpoint().await)
    }

    /// What the server's engine has counted.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn figures(&self) -> Pending<Figures> {
        self.shared.server.figures()
    }

    /// What the server knows of its nodes: their copies and locks, copies that are called back, messages.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn survey(&self) -> Pending<Survey> {
        self.shared.server.send(|requests, promise| {
            let survey = requests.page_server().and_then(|server| server.survey(None));
            requests.run("a survey", promise, std::future::ready(survey));
        })
    }
}

/// Has a node run a transaction.
fn run<T: Send + 'static, E: From<Error> + Send + 'static, F>(node: &Handle, work: F) -> Pending<T, E>
where
    F: AsyncFnMut(&mut PageTransaction) -> Result<T, E> + Send + 'static,
{
    node.send(move |requests, promise| {
        let client = requests.node().clone();
        requests.run(type_name::<F>(), promise, async move { client.transaction(work).await });
    })
}

#[cfg(test)]
mod tests;
