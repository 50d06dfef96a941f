//! System M's servers (Garcia-Molina and Salem 1988, section 2) above a database.
//!
//! The *transaction server* runs registered procedures. One priority executor runs them to their end, one after another, for
//! "serial execution will always be more efficient since it avoids context switching and reduces lock contention" (section
//! 2.4). Standby executors are for when it is blocked (by a lock, a device, a sweep): then one of them runs a transaction and
//! gives way again. *Message servers* put requests into the one bounded request queue and take responses from queues of
//! their own; there can be any number of them. A response is released when the log has made its transaction durable, by a
//! task of the *log server*; the executor has gone on long before. The *checkpoint server* is [`crate::checkpoint`].
//!
//! Each server is a group of tasks ([`executor::Group`]) with an account of its CPU time. Transactions that run otherwise
//! ([`Database::transaction`]) may run beside the server's: all take the same locks.

mod executors;
mod message;
mod requests;
mod responses;
mod statistics;

pub use message::{MessageServer, Response};
pub use statistics::{Answered, CpuTimes, RESTARTS_MAX, ServerReport};

use crate::procedure::Registered;
use crate::{Database, Error, Result};
use base::time::MILLISECOND_NS;
use executor::{BoundedQueue, Group, JoinHandle, Members, TaskId, WaitQueue, WholeExecutor};
use executors::Idle;
use requests::{Request, Restarts};
use responses::Responses;
use statistics::ServerStatistics;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The name of the group of the executors.
pub const TRANSACTION_GROUP: &str = "transaction";
/// The name of the group of the message servers.
pub const MESSAGE_GROUP: &str = "message";

/// How a transaction server works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How many standby executors there are: one more than this number of transactions may be blocked before nothing runs.
    pub standbys: u8,
    /// How many requests the request queue holds; further submitters wait.
    pub queue: usize,
    /// How long a transaction that was aborted by a conflict waits before it is run again, in nanoseconds (section 4.3: "the
    /// delay between the abortion of a transaction ... and its restart"); a microsecond at least.
    pub retry_interval_ns: u64,
}

impl Settings {
    /// The most standby executors.
    pub const STANDBYS_MAX: u8 = 250;
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { standbys: 8, queue: 256, retry_interval_ns: 10 * MILLISECOND_NS }
    }
}

/// Names a registered procedure at one transaction server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcedureId(u32);

/// The transaction server of a database. Clones are handles to the same server.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// use entresol_engine::server::{self, TransactionServer};
/// use entresol_engine::{Procedures, Settings};
///
/// let mut procedures = Procedures::new();
/// procedures.register("count", async |tx, name| {
///     let counters = tx.partition("counters")?;
///     let count = tx.get(counters, name).await?.map_or(0, |bytes| bytes[0]) + 1;
///     tx.put(counters, name, &[count]).await?;
///     Ok(vec![count])
/// });
/// # with_database_of(Settings { procedures, ..Settings::default() }, async |database| {
/// # database.create_partition(PartitionSpec::b_tree("counters")).await?;
/// let server = TransactionServer::start(database, server::Settings::default())?;
/// let messages = server.message_server();
/// let count = server.procedure("count")?;
/// for tag in 0..3 {
///     messages.submit(count, tag, b"visits".to_vec()).await?;
/// }
/// let mut responses = Vec::new();
/// while responses.len() < 3 {
///     messages.receive(&mut responses).await;
/// }
/// let answers: Vec<_> = responses.iter().map(|response| (response.tag, response.answer.clone())).collect();
/// assert_eq!(answers, [(0, Ok(vec![1])), (1, Ok(vec![2])), (2, Ok(vec![3]))]);
/// server.close().await;
/// # Ok(())
/// # });
/// ```
#[derive(Clone)]
pub struct TransactionServer(Rc<ServerState>);

pub(crate) struct ServerState {
    database: Database,
    procedures: Vec<(String, Registered)>,
    settings: Settings,
    /// The message servers' group.
    messages: Group,
    /// Requests on their way to an executor.
    requests: BoundedQueue<Request>,
    restarts: Restarts,
    responses: Responses,
    /// The executors that wait for work.
    idle: Idle,
    statistics: ServerStatistics,
    /// No more requests are taken.
    closing: Cell<bool>,
    /// What is under way ends where it waits.
    is_given_up: Cell<bool>,
    /// The tasks of the executors.
    serving: RefCell<Vec<TaskId>>,
    /// Requests without an answer so far.
    unanswered: Cell<usize>,
    /// Told when there are none.
    done: WaitQueue,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl TransactionServer {
    /// Starts the executors on a database's procedures ([`crate::Settings::procedures`]).
    ///
    /// # Errors
    /// [`Error::Setting`] for a queue without places, or too many standby executors.
    pub fn start(database: &Database, settings: Settings) -> Result<TransactionServer> {
        if settings.queue == 0 {
            return Err(Error::Setting("the request queue holds at least 1 request".into()));
        }
        if settings.standbys > Settings::STANDBYS_MAX {
            let (found, limit) = (settings.standbys, Settings::STANDBYS_MAX);
            return Err(Error::Setting(format!("{found} standby executors are over the limit of {limit}")));
        }
        let executor = database.executor().whole();
        let inner = Rc::new(ServerState {
            database: database.clone(),
            procedures: database
                .settings()
                .procedures
                .iter()
                .map(|(name, found)| (name.clone(), found.clone()))
                .collect(),
            settings,
            messages: executor.group(MESSAGE_GROUP, Members::Free),
            requests: BoundedQueue::new(settings.queue),
            restarts: Restarts::default(),
            responses: Responses::default(),
            idle: Idle::default(),
            statistics: ServerStatistics::new(executor.now()),
            closing: Cell::new(false),
            is_given_up: Cell::new(false),
            serving: RefCell::default(),
            unanswered: Cell::new(0),
            done: WaitQueue::new(),
            tasks: RefCell::default(),
        });
        let group = executor.group(TRANSACTION_GROUP, Members::InTurn);
        let mut tasks: Vec<_> = (0..=settings.standbys)
            .map(|number| executor.spawn_in(group, number, executors::serve(Rc::clone(&inner), number)))
            .collect();
        // These two run nothing of the program's. A panic of theirs, after which calls would have no answer, is not contained.
        let library = executor.of_library();
        tasks.push(library.spawn_in(group, 0, requests::restart(Rc::clone(&inner))));
        let log = executor.group(crate::log::GROUP, Members::Free);
        tasks.push(library.spawn_in(log, 0, responses::release(Rc::clone(&inner))));
        inner.tasks.replace(tasks);
        Ok(TransactionServer(inner))
    }

    /// The procedure of this name.
    ///
    /// # Errors
    /// [`Error::NoProcedure`] if there is none.
    pub fn procedure(&self, name: &str) -> Result<ProcedureId> {
        let found = self.0.procedures.iter().position(|(known, _)| known == name);
        found.map(|place| ProcedureId(place as u32)).ok_or_else(|| self.database().settings().procedures.unknown(name))
    }

    /// A new message server. What it charges ([`driver::Work::Message`]) is on the account of the task that uses it, which
    /// should belong to [`TransactionServer::message_group`].
    pub fn message_server(&self) -> MessageServer {
        MessageServer::new(&self.0)
    }

    /// The group for the tasks of message servers.
    pub fn message_group(&self) -> Group {
        self.0.messages
    }

    /// The database that it serves.
    pub fn database(&self) -> &Database {
        &self.0.database
    }

    /// How it works.
    pub fn settings(&self) -> Settings {
        self.0.settings
    }

    /// Takes no more requests, waits until those that were taken are answered, and ends the executors.
    pub async fn close(&self) {
        self.0.closing.set(true);
        self.answered().await;
        self.end_tasks().await;
    }

    /// The same, but waits for this long at most, in nanoseconds. Transactions that are not over by then are ended where they wait and rolled
    /// back, and their requests are not answered; what was committed is.
    pub async fn close_within(&self, grace_ns: u64) {
        let executor = self.database().executor().whole();
        self.0.closing.set(true);
        if executor.within(grace_ns, self.answered()).await.is_none() {
            self.0.is_given_up.set(true);
            self.0.done.wake_all(executor);
            self.0.serving.borrow().iter().for_each(|task| executor.wake(*task));
        }
        self.end_tasks().await;
    }

    /// Waits until all is answered that will be.
    async fn answered(&self) {
        while !self.0.is_over() {
            self.0.done.wait(self.database().executor().whole()).await;
        }
    }

    async fn end_tasks(&self) {
        let executor = self.database().executor().whole();
        self.0.idle.call_all(executor);
        self.0.restarts.call(executor);
        self.0.responses.call(executor);
        let tasks = self.0.tasks.take();
        for task in tasks {
            task.join().await;
        }
    }
}

impl ServerState {
    /// Whether there is nothing to do and never will be.
    fn is_over(&self) -> bool {
        self.closing.get() && (self.unanswered.get() == 0 || self.is_given_up.get())
    }
}
