//! A database on a thread of its own, and the handles by which other threads reach it.

use crate::message_server::ThreadMessages;
use crate::reply::{Promise, Slot, Wakes};
use crate::store::Store;
use crate::{OpenError, Opening};
use base::{Instant, Lsn};
use engine::server::TransactionServer;
use engine::{Database, Error, Isolation, Procedures, Result, Snapshot, Transaction};
use executor::{Executor, Mailbox, Sender, mailbox};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

type Work = Box<dyn FnOnce(Database) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// What other threads send.
enum Request {
    Run(Work),
    Call {
        name: String,
        parameters: Vec<u8>,
        promise: Promise<Result<Vec<u8>>>,
    },
    /// What was sent before is done; what was sent later is refused.
    Close,
}

/// A database on a thread of its own. Where the configuration has a `[server]`, calls of procedures go through the transaction
/// server, whose request queue, when it is full, makes them wait; else each is a task. Dropping it waits until the requests that were sent before are done and closes the
/// database; handles stay behind and their later requests are refused.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{Opening, PartitionSpec, Procedures, Server};
/// let server = Server::start(Opening::in_directory(directory)?, || {
///     let mut procedures = Procedures::new();
///     procedures.register("count", async |tx, name| {
///         let counters = tx.partition("counters")?;
///         let count = tx.get(counters, name).await?.map_or(0, |bytes| bytes[0]) + 1;
///         tx.put(counters, name, &[count]).await?;
///         Ok(vec![count])
///     });
///     procedures
/// })?;
/// let handle = server.handle();
/// handle.with_database(async |database| database.create_partition(PartitionSpec::b_tree("counters")).await)?;
/// let threads: Vec<_> = (0..4)
///     .map(|_| {
///         let handle = handle.clone();
///         std::thread::spawn(move || handle.call("count", b"visits"))
///     })
///     .collect();
/// let mut counts: Vec<u8> = threads.into_iter().map(|thread| thread.join().unwrap().unwrap()[0]).collect();
/// counts.sort();
/// assert_eq!(counts, [1, 2, 3, 4]);
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub struct Server {
    handle: Option<Handle>,
    thread: Option<JoinHandle<Result<(), OpenError>>>,
}

/// Reaches a [`Server`]'s database from any thread. Requests that are sent while the engine is busy are taken up together.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{Opening, PartitionSpec, Procedures, Server};
///
/// let server = Server::start(Opening::in_directory(directory)?, Procedures::new)?;
/// let handle = server.handle();
/// let notes = handle.with_database(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await)?;
/// let writer = std::thread::spawn({
///     let handle = handle.clone();
///     move || handle.transaction(async move |tx| tx.put(notes, b"milk", b"two litres").await)
/// });
/// writer.join().expect("it does not panic")?;
/// let milk = handle.transaction(async move |tx| tx.get(notes, b"milk").await)?;
/// assert_eq!(milk.as_deref(), Some(&b"two litres"[..]));
/// server.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    sender: Sender<Request>,
    wakes: Wakes,
}

/// A request's answer that was not waited for yet.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::{Opening, PartitionSpec, Procedures, Server};
///
/// let server = Server::start(Opening::in_directory(directory)?, || {
///     let mut procedures = Procedures::new();
///     procedures.register("note", async |tx, text| {
///         let notes = tx.partition("notes")?;
///         tx.append(notes, text).await.map(|_| Vec::new())
///     });
///     procedures
/// })?;
/// let handle = server.handle();
/// handle.with_database(async |database| database.create_partition(PartitionSpec::append("notes")).await)?;
/// // A hundred calls are under way before the first is waited for: they share log writes.
/// let pending: Vec<_> = (0..100_u8).map(|number| handle.submit("note", &[number])).collect();
/// for call in pending {
///     call.wait()?;
/// }
/// # Ok::<(), entresol::OpenError>(())
/// ```
pub struct Pending<T> {
    slot: Arc<Slot<Result<T>>>,
    wakes: Wakes,
}

impl<T> Pending<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The request's; [`Error::Closed`] if the server was closed or the engine's thread has ended: then whether the request
    /// was done shows when the database is opened again.
    pub fn wait(self) -> Result<T> {
        self.slot.wait(&self.wakes).unwrap_or(Err(Error::Closed))
    }
}

impl Server {
    /// Opens the database on a new thread. `procedures` are made there, in place of those of the opening.
    ///
    /// # Errors
    /// Those of [`Opening::open`].
    pub fn start(
        opening: Opening,
        procedures: impl FnOnce() -> Procedures + Send + 'static,
    ) -> Result<Server, OpenError> {
        let wakes = Wakes::default();
        let shared = wakes.clone();
        let (report, opened) = mpsc::channel();
        let thread = std::thread::Builder::new().name("entresol".into()).spawn(move || {
            let store = match opening.open_with(procedures()) {
                Ok(store) => store,
                Err(error) => {
                    // The caller of `start` waits for this answer, so it is there to receive it.
                    let _ = report.send(Err(error));
                    return Ok(());
                }
            };
            let (sender, requests) = mailbox(store.executor());
            let _ = report.send(Ok(sender));
            serve(store, requests, &shared)
        });
        let thread = thread.map_err(|error| {
            driver::Fault::new(driver::FaultKind::NoMemory, format!("starting the engine's thread: {error}"))
        })?;
        let sender = opened.recv().unwrap_or_else(|_| Err(Error::Closed.into()))?;
        Ok(Server { handle: Some(Handle { sender, wakes }), thread: Some(thread) })
    }

    /// A handle for another thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone().expect("a server has its handle until it is closed")
    }

    /// Waits until all requests that were sent before are done, and closes the database. Handles that are left are refused
    /// from then on.
    ///
    /// # Errors
    /// Those of [`Store::close`].
    ///
    /// # Panics
    /// If a request's own code panicked: that ended the engine's thread.
    pub fn close(mut self) -> Result<(), OpenError> {
        self.end().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn end(&mut self) -> std::thread::Result<Result<(), OpenError>> {
        if let Some(handle) = self.handle.take() {
            handle.sender.send(Request::Close);
        }
        self.thread.take().map_or(Ok(Ok(())), JoinHandle::join)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A caller that needs this error calls `close`; what was committed is safe all the same.
        let _ = self.end();
    }
}

/// Takes requests up until the server closes, then closes the store.
fn serve(store: Store, requests: Mailbox<Request>, wakes: &Wakes) -> Result<(), OpenError> {
    let executor = store.executor().clone();
    let transactions = store.transaction_server()?;
    executor.run(receive(&executor, requests, (store.database(), transactions.as_ref()), wakes))?;
    if let Some(transactions) = transactions {
        executor.run(transactions.close())?;
    }
    store.close()
}

async fn receive(
    executor: &Executor,
    requests: Mailbox<Request>,
    (database, transactions): (&Database, Option<&TransactionServer>),
    wakes: &Wakes,
) {
    let mut batch = Vec::new();
    let running = Rc::new(Cell::new(0_usize));
    let answered = Rc::new(executor::WaitQueue::new());
    executor.spawn(wake_callers(executor.clone(), Rc::clone(&answered), wakes.clone()));
    let messages = transactions.map(|server| ThreadMessages::start(executor, server, &answered));
    let run = |future: Pin<Box<dyn Future<Output = ()>>>| {
        running.set(running.get() + 1);
        let (running, answered, other) = (Rc::clone(&running), Rc::clone(&answered), executor.clone());
        executor.spawn(async move {
            future.await;
            running.set(running.get() - 1);
            answered.wake_all(&other);
        });
    };
    let receive = async {
        while requests.receive(executor, &mut batch).await {
            for request in batch.drain(..) {
                match (request, &messages) {
                    (Request::Close, _) => return,
                    (Request::Run(work), _) => run(work(database.clone())),
                    (Request::Call { name, parameters, promise }, Some(messages)) => {
                        messages.submit(&name, parameters, promise).await;
                    }
                    (Request::Call { name, parameters, promise }, None) => {
                        let database = database.clone();
                        run(Box::pin(async move { promise.keep(database.call(&name, &parameters).await) }));
                    }
                }
            }
        }
    };
    receive.await;
    while running.get() > 0 || messages.as_ref().is_some_and(|messages| messages.open() > 0) {
        answered.wait(executor).await;
    }
    wakes.begin();
}

/// Begins to wake the threads whose requests were answered: once for all that were answered in the same round, because this
/// task was woken by the first of them and runs after the others.
async fn wake_callers(executor: Executor, answered: Rc<executor::WaitQueue>, wakes: Wakes) {
    loop {
        answered.wait(&executor).await;
        wakes.begin();
    }
}

impl Handle {
    /// Sends a request and does not wait.
    fn send<T: Send + 'static>(
        &self,
        work: impl FnOnce(Database) -> Pin<Box<dyn Future<Output = Result<T>>>> + Send + 'static,
    ) -> Pending<T> {
        let slot = Slot::new();
        let promise = Promise::new(&slot, &self.wakes);
        self.sender.send(Request::Run(Box::new(move |database| {
            let answer = work(database);
            Box::pin(async move { promise.keep(answer.await) })
        })));
        Pending { slot, wakes: self.wakes.clone() }
    }

    /// Runs `work` as a transaction, again if it was a deadlock's victim, and waits for its commit.
    ///
    /// # Errors
    /// Those of [`Database::transaction`].
    pub fn transaction<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.transaction_at(Isolation::Serializable, work)
    }

    /// As [`Handle::transaction`], at a level of isolation; one at snapshot level is run again, too, if it would have
    /// overwritten what its snapshot does not have.
    ///
    /// # Errors
    /// Those of [`Database::transaction_at`].
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
    /// use entresol::{Isolation, Opening, PartitionSpec, Procedures, Server};
    ///
    /// let server = Server::start(Opening::in_directory(directory)?, Procedures::new)?;
    /// let handle = server.handle();
    /// let visits = handle.with_database(async |database| database.create_partition(PartitionSpec::b_tree("visits")).await)?;
    /// let threads: Vec<_> = (0..4)
    ///     .map(|_| {
    ///         let handle = handle.clone();
    ///         std::thread::spawn(move || {
    ///             handle.transaction_at(Isolation::Snapshot, async move |tx| {
    ///                 let count = tx.get(visits, b"today").await?.map_or(0, |bytes| bytes[0]);
    ///                 tx.put(visits, b"today", &[count + 1]).await
    ///             })
    ///         })
    ///     })
    ///     .collect();
    /// for thread in threads {
    ///     thread.join().unwrap()?;
    /// }
    /// let count = handle.snapshot(async move |then| then.get(visits, b"today").await)?;
    /// assert_eq!(count, Some(vec![4]), "no update is lost");
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn transaction_at<T: Send + 'static>(
        &self,
        isolation: Isolation,
        work: impl AsyncFn(&mut Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let run = move |database: Database| -> Pin<Box<dyn Future<Output = Result<T>>>> {
            Box::pin(async move { database.transaction_at(isolation, async |tx| work(tx).await).await })
        };
        self.send(run).wait()
    }

    /// Has `work` read the database as it is now, all at one moment, without locks.
    ///
    /// # Errors
    /// Those of [`Database::snapshot`] and of `work`.
    pub fn snapshot<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.with_database(async move |database| work(&mut database.snapshot().await?).await)
    }

    /// Has `work` read the database as it was at a position of the log, which may be any that [`Snapshot::moment`] gives.
    ///
    /// # Errors
    /// Those of [`Database::as_of`] and of `work`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// # std::fs::write(directory.join("entresol.toml"), "[undo]\nretention = \"10 min\"\n[log]\nsize = \"4 MiB\"").unwrap();
    /// # use entresol::{Opening, PartitionSpec, Procedures, Server};
    /// # let server = Server::start(Opening::in_directory(directory)?, Procedures::new)?;
    /// # let handle = server.handle();
    /// # let notes = handle.with_database(async |database| database.create_partition(PartitionSpec::b_tree("notes")).await)?;
    /// handle.transaction(async move |tx| tx.put(notes, b"milk", b"two litres").await)?;
    /// let bought = handle.snapshot(async |now| Ok(now.moment()))?;
    /// handle.transaction(async move |tx| tx.delete(notes, b"milk").await)?;
    /// let then = handle.as_of(bought, async move |then| then.get(notes, b"milk").await)?;
    /// assert_eq!(then.as_deref(), Some(&b"two litres"[..]));
    /// # Ok::<(), entresol::OpenError>(())
    /// ```
    pub fn as_of<T: Send + 'static>(
        &self,
        moment: Lsn,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.with_database(async move |database| work(&mut database.as_of(moment).await?).await)
    }

    /// Has `work` read the database as it was at a time of the engine's clock ([`Executor::now`]), to a hundredth of a second.
    ///
    /// # Errors
    /// Those of [`Database::as_of_time`] and of `work`.
    pub fn as_of_time<T: Send + 'static>(
        &self,
        time: Instant,
        work: impl AsyncFnOnce(&mut Snapshot) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.with_database(async move |database| work(&mut database.as_of_time(time).await?).await)
    }

    /// Runs `work` with the database and waits for it: creating partitions, checkpoints, several transactions.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_database<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let run = move |database: Database| -> Pin<Box<dyn Future<Output = Result<T>>>> {
            Box::pin(async move { work(&database).await })
        };
        self.send(run).wait()
    }

    /// Runs a registered procedure and waits for its commit.
    ///
    /// # Errors
    /// Those of [`Database::call`].
    pub fn call(&self, name: &str, parameters: &[u8]) -> Result<Vec<u8>> {
        self.submit(name, parameters).wait()
    }

    /// Sends a call of a registered procedure; its answer is waited for later.
    pub fn submit(&self, name: &str, parameters: &[u8]) -> Pending<Vec<u8>> {
        let slot = Slot::new();
        let promise = Promise::new(&slot, &self.wakes);
        self.sender.send(Request::Call { name: name.to_owned(), parameters: parameters.to_vec(), promise });
        Pending { slot, wakes: self.wakes.clone() }
    }
}
