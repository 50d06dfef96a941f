//! A database on a thread of its own.

use crate::calls::Call;
use crate::error::{run, run_telling};
use crate::handle::{Handle, Link};
use crate::message_server::ThreadMessages;
use crate::reply::{Promise, Wakes};
use crate::requests::{Host, Requests};
use crate::spin::Spin;
use crate::store::Store;
use crate::{OpenError, Opening, control};
use base::time::SECOND_NS;
use driver::Fault;
use engine::server::TransactionServer;
use engine::{Error, Internals, Result};
use executor::{Executor, Mailbox, Panic, Sender, WholeExecutor, mailbox, panic_message};
use node::channel::threads::Exchange;
use node::page_server::{PageServer, ServerSettings};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long requests that are under way may go on when the database is closed, unless the caller says so.
pub(crate) const GRACE_NS: u64 = 30 * SECOND_NS;

type Begin = Box<dyn FnOnce(&Rc<Requests>) + Send>;

/// What other threads send.
pub(crate) enum Request {
    Run(Begin),
    Call {
        call: Call,
        promise: Promise<Result<Vec<u8>>>,
    },
    /// The answer to this request is not waited for any more, and its work is to end.
    Cancel {
        place: usize,
    },
    /// What was sent before is done, for as long as the grace lasts; what was sent later is refused.
    Close {
        grace_ns: u64,
    },
}

thread_local! {
    /// Which database has its engine on this thread; zero for none.
    static ENGINE: Cell<usize> = const { Cell::new(0) };
    /// Of which group of nodes one is on this thread.
    static GROUP: Cell<Option<NodeGroup>> = const { Cell::new(None) };
    /// What takes its requests up, while it does.
    static RECEIVING: RefCell<Option<Executor>> = const { RefCell::new(None) };
}

/// Has the requests of this thread's own be known as such until it is dropped.
struct Receiving;

impl Receiving {
    fn on(executor: &Executor) -> Receiving {
        RECEIVING.replace(Some(executor.clone()));
        Receiving
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        drop(RECEIVING.take());
    }
}

/// A waker for the task that awaits, in this context, the request of this name. On the thread that works on the request, the task is known
/// from then on to wait for it.
pub(crate) fn waker_for(wakes: &Wakes, context: &Context<'_>, request: usize) -> Waker {
    let own = if is_engine_thread(wakes) { RECEIVING.with_borrow(Clone::clone) } else { None };
    own.map_or_else(|| context.waker().clone(), |executor| executor.await_answer(context, request))
}

/// The nodes of one database in this process: each waits for the others' pages and locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeGroup(u64);

impl NodeGroup {
    /// One more.
    pub fn new() -> NodeGroup {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NodeGroup(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whether this thread must not block until a request at the other end of the link is done: it is that one's thread, or of another node of the
/// same database, which may wait for this one.
pub(crate) fn may_not_wait_for(link: &Link) -> bool {
    is_engine_thread(&link.wakes) || link.node.is_some_and(|(_, group)| GROUP.get() == Some(group))
}

/// Whether the engine of these wakes runs on this thread, which therefore must not wait for it.
pub(crate) fn is_engine_thread(wakes: &Wakes) -> bool {
    ENGINE.get() == wakes.place()
}

/// A database on a thread of its own, which others reach through a [`Handle`]. Where the configuration has a `[server]`, calls
/// of procedures go through the transaction server, whose request queue, when it is full, makes them wait; else each is a task.
/// Dropping it closes the database as [`DatabaseThread::close`] does; handles stay behind and their later requests are
/// refused.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{DatabaseThread, Opening, PartitionSpec, Procedures};
/// let opening = Opening::in_directory(directory)?.procedures(|| {
///     let mut procedures = Procedures::new();
///     procedures.register("count", async |tx, name| {
///         let counters = tx.partition("counters")?;
///         let count = tx.get(counters, name).await?.map_or(0, |bytes| bytes[0]) + 1;
///         tx.put(counters, name, &[count]).await?;
///         Ok(vec![count])
///     });
///     procedures
/// });
/// let thread = DatabaseThread::start(opening)?;
/// let handle = thread.handle();
/// handle.create_partition(PartitionSpec::b_tree("counters")).wait()?;
/// let threads: Vec<_> = (0..4)
///     .map(|_| {
///         let handle = handle.clone();
///         std::thread::spawn(move || handle.call("count", b"visits").wait())
///     })
///     .collect();
/// let mut counts: Vec<u8> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()[0]).collect();
/// counts.sort();
/// assert_eq!(counts, [1, 2, 3, 4]);
/// thread.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub struct DatabaseThread {
    handle: Option<Handle>,
    warnings: Vec<String>,
    thread: Option<JoinHandle<Result<(), OpenError>>>,
}

impl DatabaseThread {
    /// Opens the database on a new thread. Its procedures are made there.
    ///
    /// # Errors
    /// Those of [`Opening::open`]; [`OpenError::SeveralNodes`] if the configuration says that there are, which
    /// [`NodeThreads`](crate::NodeThreads) starts; [`Error::Setting`] if it names hardware: other threads live by this machine's clock.
    pub fn start(opening: Opening) -> Result<DatabaseThread, OpenError> {
        opening.is_one_engine()?;
        if opening.configuration().hardware.is_some() {
            let words = "a database's thread serves threads of this machine, whose time does not pass on described hardware, and the \
                         configuration names hardware: open it with Opening::open";
            return Err(Error::Setting(words.to_owned()).into());
        }
        let Spawned { handle, warnings, thread } =
            spawn(None, move || Ok(Engine { store: opening.open_on_thread()?, page_server: None }))?;
        Ok(DatabaseThread { handle: Some(handle), warnings, thread: Some(thread) })
    }

    /// The same, with the pages served to nodes of this process.
    pub(crate) fn serving(
        opening: Opening,
        (exchange, address, algorithm, chances): (Exchange, SocketAddr, &'static str, u8),
    ) -> Result<DatabaseThread, OpenError> {
        let Spawned { handle, warnings, thread } = spawn(None, move || {
            let store = opening.nodes(1).open_on_thread()?;
            let settings = ServerSettings {
                algorithm: node::algorithm::named(algorithm).expect("the configuration knows those that there are"),
                chances,
                message_size_min: 0,
                // Nothing is lost between threads, and one that has ended is not taken for one that is only late.
                has_leases: false,
                grants: None,
            };
            let transport = Rc::new(exchange.transport(store.executor().whole()));
            let page_server =
                store.run(async |database| PageServer::serve(database, transport, address, settings).await)?;
            Ok(Engine { store, page_server: Some(page_server) })
        })?;
        Ok(DatabaseThread { handle: Some(handle), warnings, thread: Some(thread) })
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone().expect("it has its handle until it is closed")
    }

    /// What is configured and gains nothing, as [`Store::warnings`] says.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// let text = "[log]\nsize = \"4 MiB\"\n[cache]\ndevice = \"disk\"\nsize = \"100 pages\"\n[partition.notes]\nresidence = \"paged\"";
    /// std::fs::write(directory.join("entresol.toml"), text).unwrap();
    /// let thread = entresol::start(directory)?;
    /// assert!(thread.warnings()[0].contains("its cache is on its own device 'disk'"));
    /// thread.close()?;
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Waits until all requests that were sent before are done, for half a minute at most, and closes the database. Those that
    /// are not done by then are ended and their transactions rolled back; their callers, and handles that are left, get
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// Those of [`Store::close`]; [`Error::OwnThread`] on the engine's own thread; [`OpenError::Panicked`] if the engine's thread has panicked.
    pub fn close(self) -> Result<(), OpenError> {
        self.close_within(Duration::from_nanos(GRACE_NS))
    }

    /// The same, with another time of grace for requests that are under way.
    ///
    /// # Errors
    /// As [`DatabaseThread::close`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use std::time::Duration;
    ///
    /// let thread = entresol::start(directory)?;
    /// let endless = thread.handle().with_database(async |_| std::future::pending::<entresol::Result<()>>().await);
    /// thread.close_within(Duration::from_millis(20))?;
    /// assert_eq!(endless.wait(), Err(entresol::Error::Closed));
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn close_within(mut self, grace: Duration) -> Result<(), OpenError> {
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
        self.end(grace_ns)
    }

    fn end(&mut self, grace_ns: u64) -> Result<(), OpenError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        handle.link.sender.send(Request::Close { grace_ns });
        if is_engine_thread(&handle.link.wakes) {
            return Err(Error::OwnThread.into());
        }
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let panicked = |panic: Panic| Err(OpenError::Panicked { message: panic_message(&*panic).to_owned() });
        thread.join().unwrap_or_else(panicked)
    }
}

impl Drop for DatabaseThread {
    fn drop(&mut self) {
        // A caller that needs this error calls `close`; what was committed is safe all the same.
        let _ = self.end(GRACE_NS);
    }
}

/// What takes requests up on a thread of its own.
pub(crate) trait Serving {
    /// What it runs on.
    fn executor(&self) -> &Executor;

    /// What is configured and gains nothing.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Has other programs ask by this handle, if they may ask anything.
    fn hear(&mut self, _handle: Handle) {}

    /// Takes requests up until it is to be closed, and then closes it.
    /// Whatever ends it before is told by `cause` first.
    fn serve(self, requests: Mailbox<Request>, wakes: &Wakes, cause: &OnceLock<Fault>) -> Result<(), OpenError>;
}

/// What has been started on a thread of its own.
pub(crate) struct Spawned {
    pub handle: Handle,
    pub warnings: Vec<String>,
    pub thread: JoinHandle<Result<(), OpenError>>,
}

/// Starts a thread on which what `open` gives takes requests up; it is a node of this number in its group, or the database's engine.
pub(crate) fn spawn<S: Serving>(
    node: Option<(u32, NodeGroup)>,
    open: impl FnOnce() -> Result<S, OpenError> + Send + 'static,
) -> Result<Spawned, OpenError> {
    let wakes = Wakes::new();
    let shared = wakes.clone();
    let cause = Arc::<OnceLock<Fault>>::default();
    let told = Arc::clone(&cause);
    let (report, opened) = mpsc::channel();
    let name = node.map_or_else(|| "entresol".to_owned(), |(node, _)| format!("entresol {node}"));
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        ENGINE.set(shared.place());
        GROUP.set(node.map(|(_, group)| group));
        let mut opened = match open() {
            Ok(opened) => opened,
            Err(error) => {
                // The caller waits for this answer, so it is there to receive it.
                let _ = report.send(Err(error));
                return Ok(());
            }
        };
        let (sender, requests) = mailbox(opened.executor().whole());
        let link = Link { sender: sender.clone(), wakes: shared.clone(), node, cause: Arc::clone(&told) };
        opened.hear(Handle { link: Arc::new(link) });
        let _ = report.send(Ok((sender, opened.warnings())));
        opened.serve(requests, &shared, &told)
    });
    let thread = thread
        .map_err(|error| Fault::new(driver::FaultKind::NoMemory, format!("starting the engine's thread: {error}")))?;
    let (sender, warnings): (Sender<Request>, Vec<String>) =
        opened.recv().unwrap_or_else(|_| Err(Error::Closed.into()))?;
    let handle = Handle { link: Arc::new(Link { sender, wakes, node, cause }) };
    Ok(Spawned { handle, warnings, thread })
}

/// A database's engine.
struct Engine {
    store: Store,
    page_server: Option<PageServer>,
}

impl Serving for Engine {
    fn executor(&self) -> &Executor {
        self.store.executor().whole()
    }

    fn warnings(&self) -> Vec<String> {
        self.store.warnings()
    }

    fn hear(&mut self, handle: Handle) {
        self.store.hear(control::Way::Thread(handle));
    }

    fn serve(self, requests: Mailbox<Request>, wakes: &Wakes, cause: &OnceLock<Fault>) -> Result<(), OpenError> {
        let Engine { store, page_server } = self;
        store.database().contain_panics();
        let executor = store.executor().whole().clone();
        let transactions = store.transaction_server()?;
        let host = Host::Engine(store.database().clone(), RefCell::new(page_server));
        let host = Requests::new(host, &executor, wakes);
        let tell = |error: &OpenError| note_cause(error, cause);
        run_telling(&executor, receive(&host, requests, transactions.as_ref()), tell)?;
        host.answers.wake();
        if let Some(transactions) = transactions {
            // Those that had any time left have had it.
            let ending = async {
                transactions.close_within(0).await;
                // What it has answered is handed out.
                executor.yield_until_idle().await;
            };
            run(&executor, ending)?;
            host.answers.wake();
        }
        host.close_page_server();
        store.close()
    }
}

/// A handle's requests that are not answered any more are told why.
pub(crate) fn note_cause(error: &OpenError, cause: &OnceLock<Fault>) {
    if let OpenError::Machine(fault) = error {
        let _first = cause.set(fault.clone());
    }
}

pub(crate) async fn receive(host: &Rc<Requests>, requests: Mailbox<Request>, transactions: Option<&TransactionServer>) {
    let executor = &host.executor;
    let _receiving = Receiving::on(executor);
    let messages = transactions.map(|server| ThreadMessages::start(executor, server, &host.answers));
    let (mut batch, mut spin) = (Vec::new(), Spin::new(executor.now()));
    let mut grace_ns = GRACE_NS;
    'open: while spin.receive(executor, &requests, &mut batch).await {
        host.answers.note_gap(spin.gap_ns());
        for request in batch.drain(..) {
            match (request, &messages) {
                (Request::Close { grace_ns: told }, _) => {
                    grace_ns = told;
                    break 'open;
                }
                (Request::Cancel { place }, messages) => {
                    host.cancel(Some(place));
                    messages.iter().for_each(|messages| messages.cancel(Some(place)));
                }
                (Request::Run(begin), _) => begin(host),
                (Request::Call { call, promise }, Some(messages)) => {
                    messages.submit(call, promise);
                }
                (Request::Call { call, promise }, None) => host.call(call, promise),
            }
        }
    }
    // What is sent from here on is refused.
    drop((batch, requests));
    let is_over = || host.count() == 0 && messages.as_ref().is_none_or(|messages| messages.open() == 0);
    let end = async {
        while !is_over() {
            host.answers.wait(executor).await;
        }
    };
    if executor.within(grace_ns, end).await.is_none() {
        host.cancel(None);
        messages.iter().for_each(|messages| messages.cancel(None));
        while host.count() > 0 {
            host.answers.wait(executor).await;
        }
    }
}
