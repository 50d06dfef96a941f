//! What the server and a node of a run do, on either clock: join, wait for each other, warm up, measure.

use super::may_come;
use crate::Failure;
use crate::bench::summary::{transfers, written};
use crate::calibrate::loopback::busy_ns;
use crate::progress::Progress;
use crate::report::{Clock, Station, Transfers};
use base::statistics::Histogram;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, Random};
use engine::Internals;
use engine::tier_file::TierReport;
use entresol::{Database, Error};
use executor::{Executor, WholeExecutor};
use node::algorithm;
use node::channel::Plain;
use node::page_client::{ClientSettings, NodeInternals, NodeWaits, PageClient};
use node::page_server::{PageServer, ServerInternals, ServerSettings};
use node::server::Counts;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use workload::debit_credit::{DebitCredit, Tables};
use workload::run::restart_statistics;
use workload::{Length, Plan, Unwatched};
use workload::{MeasuredAtNode, NodePlan, at_node};

/// How often it is looked whether all have come as far, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND_NS;
/// How long a node looks for its server, and how often, in nanoseconds.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
const PAUSE_NS: u64 = 10 * MILLISECOND_NS;
/// How long it takes until all have heard that this is the end, in nanoseconds.
const FAREWELL_NS: u64 = 100 * MILLISECOND_NS;

/// How far the nodes have come. Threads share it, and described machines.
pub struct Stages {
    nodes: u32,
    joined: AtomicU32,
    warm: AtomicU32,
    ended: AtomicU32,
    /// Why one of them has ended before.
    failure: Mutex<Option<String>>,
}

/// One has failed; which one and why, the stages know.
#[derive(Debug)]
pub struct GivenUp;

impl Stages {
    /// None of these nodes has joined.
    pub fn new(nodes: u32) -> Stages {
        let none = || AtomicU32::new(0);
        Stages { nodes, joined: none(), warm: none(), ended: none(), failure: Mutex::new(None) }
    }

    /// One has failed: the others are not to wait for it.
    pub fn give_up(&self, failure: &Failure) -> GivenUp {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| failure.to_string());
        GivenUp
    }

    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all nodes have come to this stage.
    async fn all(&self, executor: &Executor, stage: &AtomicU32) -> Result<(), Failure> {
        while stage.load(Ordering::Acquire) < self.nodes {
            if let Some(failure) = self.failure() {
                return Err(failure.into());
            }
            executor.sleep_ns(LOOK_NS).await;
        }
        Ok(())
    }
}

/// A run.
#[derive(Clone)]
pub struct NodesRun {
    pub clock: Clock,
    pub plan: Plan,
    pub nodes: u32,
    /// Of each node.
    pub clients: u32,
    pub algorithm: &'static str,
    /// How often that passes a copy on that none uses.
    pub chances: u8,
    pub stages: Arc<Stages>,
}

/// What a server has done while it was measured.
pub struct ServerFigures {
    pub counts: Counts,
    pub cpu_ns: u64,
    pub messages: u64,
    pub bytes: u64,
    pub log_bytes: u64,
    /// By device.
    pub transfers: BTreeMap<String, Transfers>,
    pub written_bytes_per_s: BTreeMap<String, f64>,
    /// Of memory-resident sets.
    pub segment_bytes: u64,
    /// Of its processor and its devices.
    pub stations: Vec<Station>,
    pub tiers: Vec<TierReport>,
    pub driver: String,
}

/// What a node has done while it was measured.
pub struct NodeFigures {
    pub transactions: u64,
    pub repeated: u64,
    pub unknown: u64,
    pub elapsed_ns: u64,
    pub response: Histogram,
    /// Of each client, in nanoseconds.
    pub means: Vec<f64>,
    pub cpu_ns: u64,
    pub messages: u64,
    pub bytes: u64,
    /// What its transactions have waited for.
    pub waits: NodeWaits,
}

/// CPU time from a moment on: of this thread, or of a described machine.
enum CpuTime {
    Thread(u64),
    Described(Instant),
}

impl CpuTime {
    /// Forgets what the machine has done by now.
    fn begin(executor: &Executor, clock: Clock) -> CpuTime {
        match clock {
            Clock::Real => CpuTime::Thread(real_driver::thread_cpu_ns()),
            Clock::Virtual => {
                executor.restart_statistics();
                CpuTime::Described(executor.now())
            }
        }
    }

    fn ns(&self, executor: &Executor) -> u64 {
        match self {
            CpuTime::Thread(begin) => real_driver::thread_cpu_ns() - begin,
            CpuTime::Described(begin) => busy_ns(executor, *begin),
        }
    }
}

impl NodesRun {
    /// Serves the pages until all nodes have done; `tell` hears where.
    pub async fn serve(
        &self,
        database: &Database,
        address: SocketAddr,
        tell: impl FnOnce(SocketAddr),
        progress: &Progress,
    ) -> Result<ServerFigures, Failure> {
        let executor = database.executor().whole();
        let settings = ServerSettings {
            algorithm: algorithm::named(self.algorithm).expect("a configuration names one that there is"),
            chances: self.chances,
            message_size_min: 0,
            has_leases: true,
            grants: None,
        };
        let transport = Rc::new(Plain(executor.for_users()));
        let server = PageServer::serve(database, transport, address, settings).await?;
        tell(server.address());
        progress.phase("warming up", 0);
        self.stages.all(executor, &self.stages.warm).await?;
        progress.phase("measuring", 0);
        restart_statistics(database);
        server.restart_counts();
        let cpu = CpuTime::begin(executor, self.clock);
        let begin = executor.now();
        self.stages.all(executor, &self.stages.ended).await?;
        let is_here = |station: &Station| !station.name.starts_with("network.");
        let figures = ServerFigures {
            counts: server.counts(),
            cpu_ns: cpu.ns(executor),
            messages: server.traffic().messages.get(),
            bytes: server.traffic().bytes.get(),
            log_bytes: database.log().statistics().bytes_written,
            transfers: transfers(database, 1.0),
            written_bytes_per_s: written(database, executor.now().since_ns(begin)),
            segment_bytes: database.segment_bytes(),
            stations: executor.stations().into_iter().map(Station::from).filter(is_here).collect(),
            tiers: database.tiers(),
            driver: executor.description(),
        };
        server.close();
        executor.sleep_ns(FAREWELL_NS).await;
        Ok(figures)
    }

    /// Joins the server, and runs a node's clients.
    pub async fn run_node(
        &self,
        executor: &Executor,
        (server, settings): (SocketAddr, ClientSettings),
        number: u32,
    ) -> Result<NodeFigures, Failure> {
        let client = join(executor, server, settings).await?;
        let tables = Tables::at_node(&client).await?;
        self.stages.joined.fetch_add(1, Ordering::AcqRel);
        self.stages.all(executor, &self.stages.joined).await?;
        self.phase((executor, &client), &tables, (number, self.plan.warm_up, "warm-up")).await?;
        self.stages.warm.fetch_add(1, Ordering::AcqRel);
        self.stages.all(executor, &self.stages.warm).await?;
        let cpu = CpuTime::begin(executor, self.clock);
        let before = client.waits();
        let all = self.phase((executor, &client), &tables, (number, self.plan.measure, "measured")).await?;
        let mut figures = NodeFigures {
            transactions: 0,
            repeated: 0,
            unknown: 0,
            elapsed_ns: 0,
            response: Histogram::new(),
            means: Vec::new(),
            cpu_ns: cpu.ns(executor),
            messages: client.traffic().messages.get(),
            bytes: client.traffic().bytes.get(),
            waits: client.waits().since(before),
        };
        for measured in &all {
            figures.transactions += measured.transactions;
            figures.repeated += measured.repeated;
            figures.unknown += measured.unknown;
            figures.elapsed_ns = figures.elapsed_ns.max(measured.elapsed_ns);
            figures.response.merge(&measured.response);
            if measured.transactions > 0 {
                figures.means.push(measured.response.mean_ns());
            }
        }
        self.stages.ended.fetch_add(1, Ordering::AcqRel);
        // What it has is needed by others until all have done.
        self.stages.all(executor, &self.stages.ended).await?;
        drop(client);
        executor.sleep_ns(FAREWELL_NS).await;
        Ok(figures)
    }

    /// All clients of a node run for so long.
    async fn phase(
        &self,
        (executor, client): (&Executor, &PageClient),
        tables: &Tables,
        (number, length, phase): (u32, Length, &str),
    ) -> Result<Vec<MeasuredAtNode>, Failure> {
        let start = |place: u32| {
            let length = match length {
                Length::Time(ns) => Length::Time(ns),
                Length::Transactions(count) => {
                    let (all, own) = (u64::from(self.nodes * self.clients), u64::from(number * self.clients + place));
                    Length::Transactions(count / all + u64::from(own < count % all))
                }
            };
            let name = format!("client {place} of node {number}, {phase}");
            let seed = Random::stream(self.plan.seed, &name).word();
            let (client, tables) = (client.clone(), tables.clone());
            let plan = NodePlan { clients: 1, warm_up: Length::Transactions(0), measure: length, seed };
            executor.spawn(async move { at_node::run(&client, DebitCredit(tables), &plan, &mut Unwatched).await })
        };
        let clients: Vec<_> = (0..self.clients).map(start).collect();
        let mut measured = Vec::new();
        for client in clients {
            measured.push(client.join().await?);
        }
        Ok(measured)
    }

    /// What came of the server and of all nodes, or why the first one of them has failed.
    pub fn outcome(
        &self,
        served: Result<ServerFigures, GivenUp>,
        nodes: Vec<Result<NodeFigures, GivenUp>>,
    ) -> Result<(ServerFigures, Vec<NodeFigures>), Failure> {
        let all = nodes.into_iter().collect::<Result<Vec<_>, _>>();
        let failed = |GivenUp| -> Failure { self.stages.failure().unwrap_or_default().into() };
        Ok((served.map_err(failed)?, all.map_err(failed)?))
    }
}

async fn join(executor: &Executor, server: SocketAddr, settings: ClientSettings) -> Result<PageClient, Failure> {
    let end = executor.now().plus_ns(PATIENCE_NS);
    loop {
        let transport = Rc::new(Plain(executor.for_users()));
        match PageClient::join(executor, transport, server, settings).await {
            Ok(client) => return Ok(client),
            Err(Error::Input(fault)) if may_come(fault.kind) && executor.now() < end => {
                executor.sleep_ns(PAUSE_NS).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
