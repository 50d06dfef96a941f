//! Debit-Credit on several engines of this process, which share the database. Clients are tasks of the nodes' threads, and those of a node
//! draw transactions of its branches; or they are threads, and their transactions go to the node whose branches they are about.

use super::bank;
use super::terms::Terms;
use crate::progress::Progress;
use crate::report::Response;
use crate::table::{fact, facts};
use crate::{Failure, opening};
use base::Random;
use base::statistics::{BatchMeans, Histogram};
use base::units::{format_duration_ns, grouped, grouped_decimal};
use entresol::survey::Survey;
use entresol::{KeyRanges, Node, NodeHandle, NodeThreads, Opening, Pending};
use real_driver::{process_cpu_ns, wall_ns};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use workload::debit_credit::{Parameters, Scale, Tables};
use workload::{Length, Load, Plan};

/// How often the measuring thread looks.
const LOOK: Duration = Duration::from_millis(5);
/// Each thread has a histogram of its own.
const THREADS_MAX: u32 = 1024;

/// What a run on several nodes measured.
#[derive(Clone, Debug, Serialize)]
pub struct NodesReport {
    workload: String,
    nodes: u32,
    algorithm: &'static str,
    clients: u32,
    client_threads: bool,
    seed: u64,
    seconds: f64,
    transactions: u64,
    throughput_per_s: f64,
    response_us: Response,
    /// Of all threads, the clients' among them.
    cpu_us_per_transaction: f64,
    messages_per_transaction: f64,
    bytes_per_transaction: f64,
    callbacks_per_transaction: f64,
}

/// Loads the database if it is new, warms up, measures.
pub fn run(
    opening: Opening,
    branches: Option<u32>,
    (terms, load, has_threads): (&Terms, Load, bool),
    progress: &Progress,
) -> Result<NodesReport, Failure> {
    let plan = terms.plan(load);
    let clients = match plan.load {
        Load::Closed { clients } if clients <= THREADS_MAX => clients,
        Load::Closed { .. } => return Err(format!("nodes have at most {THREADS_MAX} clients").into()),
        _ => {
            return Err(
                "[nodes] needs clients that wait for their answers: leave --rate, --server and --full away".into()
            );
        }
    };
    if terms.course.is_some() || terms.cold || terms.like.is_some() {
        return Err("[nodes] is measured as a whole and warm: leave --course, --cold and --like away".into());
    }
    let nodes = opening.configuration().nodes.clone();
    let store = opening::open(opening.clone(), progress)?;
    let scale = bank::prepare(&store, branches, progress)?;
    let tables = Tables::of(store.database().catalog(), &scale)?;
    store.close()?;

    progress.phase("starting", 0);
    let threads = NodeThreads::start(opening::watched(opening.clone(), progress))?;
    let ranges = KeyRanges::of_numbers(0..scale.branches, u64::from(nodes.count));
    let handle = threads.handle().with_ranges(ranges);
    let run = NodeClients { tables, plan, handle, count: clients, has_threads };
    let measured = run.measure(progress)?;
    threads.close()?;
    progress.phase("verifying", 0);
    let store = opening::open(opening, progress)?;
    bank::agreed(&store.run(async |database| bank::totals(database, &scale).await)?)?;
    store.close()?;
    let Measured { response, means, elapsed_ns, cpu_ns, transactions, traffic } = measured;
    let count = transactions.max(1) as f64;
    Ok(NodesReport {
        workload: workload_name(&scale),
        nodes: nodes.count,
        algorithm: nodes.algorithm,
        clients,
        client_threads: has_threads,
        seed: plan.seed,
        seconds: elapsed_ns as f64 / 1e9,
        transactions,
        throughput_per_s: transactions as f64 / (elapsed_ns as f64 / 1e9).max(1e-9),
        response_us: Response::new(&response, means.interval()),
        cpu_us_per_transaction: cpu_ns as f64 / 1e3 / count,
        messages_per_transaction: traffic.messages as f64 / count,
        bytes_per_transaction: traffic.bytes as f64 / count,
        callbacks_per_transaction: traffic.callbacks as f64 / count,
    })
}

fn workload_name(scale: &Scale) -> String {
    format!("debit-credit on nodes of one process, scale {}", scale.branches)
}

struct NodeClients {
    tables: Tables,
    plan: Plan,
    handle: NodeHandle,
    count: u32,
    has_threads: bool,
}

struct Measured {
    response: Histogram,
    means: BatchMeans,
    elapsed_ns: u64,
    cpu_ns: u64,
    transactions: u64,
    traffic: Traffic,
}

/// What went between the server and the nodes.
#[derive(Clone, Copy, Default)]
struct Traffic {
    messages: u64,
    bytes: u64,
    callbacks: u64,
}

impl Traffic {
    fn of(survey: &Survey) -> Traffic {
        let mut traffic = Traffic::default();
        for kind in survey.sent.iter().chain(&survey.received) {
            traffic.messages += kind.amount.messages;
            traffic.bytes += kind.amount.bytes;
            traffic.callbacks += if kind.kind == "call back" { kind.amount.messages } else { 0 };
        }
        traffic
    }

    fn since(self, before: Traffic) -> Traffic {
        Traffic {
            messages: self.messages - before.messages,
            bytes: self.bytes - before.bytes,
            callbacks: self.callbacks - before.callbacks,
        }
    }
}

/// What the clients of a phase share.
struct Phase {
    /// How many transactions may still begin; `u64::MAX` where a time ends it.
    permits: AtomicU64,
    is_over: AtomicBool,
    done: AtomicU64,
    /// How many clients are at work.
    clients: AtomicU32,
}

impl Phase {
    /// Whether one more transaction may begin.
    fn begins_one(&self) -> bool {
        let one_less = |left| if left == u64::MAX { Some(left) } else { u64::checked_sub(left, 1) };
        !self.is_over.load(Ordering::Relaxed)
            && self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// A client at work.
struct AtWork(Arc<Phase>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The response times of a client, and their mean.
type ClientTimes = (Histogram, Option<f64>);

fn with_mean(times: Histogram) -> ClientTimes {
    let mean = (times.count() > 0).then(|| times.mean_ns());
    (times, mean)
}

impl NodeClients {
    fn measure(&self, progress: &Progress) -> Result<Measured, Failure> {
        progress.phase("warming up", 0);
        self.phase((self.plan.warm_up, 0), |_| {})?;
        let before = Traffic::of(&self.handle.survey().wait()?);
        let total = match self.plan.measure {
            Length::Transactions(count) => count,
            Length::Time(ns) => ns / 1_000_000,
        };
        progress.phase("measuring", total);
        let (began, cpu) = (wall_ns(), process_cpu_ns());
        let times = self.phase((self.plan.measure, 1), |done| progress.advance_to(done))?;
        let (elapsed_ns, cpu_ns) = (wall_ns() - began, process_cpu_ns() - cpu);
        let traffic = Traffic::of(&self.handle.survey().wait()?).since(before);
        let (mut response, mut means) = (Histogram::new(), BatchMeans::new());
        for (times, mean) in times {
            response.merge(&times);
            mean.into_iter().for_each(|ns| means.record(ns));
        }
        let transactions = response.count();
        Ok(Measured { response, means, elapsed_ns, cpu_ns, transactions, traffic })
    }

    /// Runs transactions for as long as `length` says. Returns the response times of each client.
    fn phase(&self, (length, number): (Length, u32), mut look: impl FnMut(u64)) -> Result<Vec<ClientTimes>, Failure> {
        let permits = match length {
            Length::Transactions(count) => count,
            Length::Time(_) => u64::MAX,
        };
        let phase = Arc::new(Phase {
            permits: AtomicU64::new(permits),
            is_over: AtomicBool::new(false),
            done: AtomicU64::new(0),
            clients: AtomicU32::new(self.count),
        });
        std::thread::scope(|scope| {
            let begun: Vec<Begun<'_>> = (0..self.count)
                .map(|client| {
                    let (at_work, name) = (AtWork(Arc::clone(&phase)), (number, client));
                    match self.has_threads {
                        true => Begun::Thread(scope.spawn(move || self.thread(name, &at_work.0))),
                        false => Begun::Task(self.begin_task(name, at_work)),
                    }
                })
                .collect();
            let began = wall_ns();
            while phase.clients.load(Ordering::Relaxed) > 0 {
                let elapsed_ns = wall_ns() - began;
                match length {
                    Length::Time(ns) => {
                        look(elapsed_ns / 1_000_000);
                        phase.is_over.fetch_or(elapsed_ns >= ns, Ordering::Relaxed);
                    }
                    Length::Transactions(_) => look(phase.done.load(Ordering::Relaxed)),
                }
                std::thread::park_timeout(LOOK);
            }
            Ok(begun.into_iter().map(Begun::end).collect::<entresol::Result<Vec<_>>>()?)
        })
    }

    fn random(&self, (phase_number, client): (u32, u32)) -> Random {
        Random::stream(self.plan.seed, &format!("client {client} of phase {phase_number}"))
    }

    /// A client that is a thread.
    fn thread(&self, name: (u32, u32), phase: &Phase) -> entresol::Result<ClientTimes> {
        let (mut random, mut times) = (self.random(name), Histogram::new());
        while phase.begins_one() {
            let parameters = Parameters::draw(self.tables.scale(), &mut random);
            let (tables, began) = (self.tables.clone(), wall_ns());
            let transaction = self.handle.transaction_near(&parameters.branch.to_be_bytes(), async move |tx| {
                tables.run_at_node(tx, &parameters).await
            });
            if let Err(error) = transaction.wait() {
                phase.is_over.store(true, Ordering::Relaxed);
                return Err(error);
            }
            times.record(wall_ns() - began);
            phase.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(with_mean(times))
    }

    /// A client that is a task of a node's thread. It draws transactions of the node's branches.
    fn begin_task(&self, name: (u32, u32), at_work: AtWork) -> Pending<ClientTimes> {
        let (mut random, tables, handle) = (self.random(name), self.tables.clone(), self.handle.clone());
        let number = name.1 as usize % handle.nodes();
        self.handle.with_node(number, async move |node: &Node| {
            let (phase, mut times) = (&at_work.0, Histogram::new());
            while phase.begins_one() {
                let parameters = draw_near(&handle, number, tables.scale(), &mut random);
                let began = node.executor().now();
                let done = node.transaction(async |tx| tables.run_at_node(tx, &parameters).await).await;
                done.inspect_err(|_: &entresol::Error| phase.is_over.store(true, Ordering::Relaxed))?;
                times.record(node.executor().now().since_ns(began));
                phase.done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(with_mean(times))
        })
    }
}

/// Draws a transaction of a branch that is this node's. If there are more nodes than branches, it is of any.
fn draw_near(handle: &NodeHandle, node: usize, scale: &Scale, random: &mut Random) -> Parameters {
    loop {
        let parameters = Parameters::draw(scale, random);
        let is_near = handle.node_of(&parameters.branch.to_be_bytes()) == Some(node);
        if is_near || scale.branches < handle.nodes() as u64 {
            return parameters;
        }
    }
}

/// A client that was begun.
enum Begun<'scope> {
    Thread(std::thread::ScopedJoinHandle<'scope, entresol::Result<ClientTimes>>),
    Task(Pending<ClientTimes>),
}

impl Begun<'_> {
    fn end(self) -> entresol::Result<ClientTimes> {
        match self {
            Begun::Thread(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Begun::Task(pending) => pending.wait(),
        }
    }
}

impl NodesReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The report for people.
    pub fn to_text(&self) -> String {
        let place = if self.client_threads { "thread" } else { "task" };
        let rows = [
            fact(
                "throughput",
                format!("{}/s", grouped_decimal(self.throughput_per_s, 1)),
                format!("{} clients, each a {place} with one transaction at a time", self.clients),
            ),
            fact("transactions", grouped(self.transactions), format!("in {:.2} s", self.seconds)),
            self.response_us.fact(),
            fact(
                "CPU",
                format_duration_ns(self.cpu_us_per_transaction * 1e3),
                "per transaction on all threads, the clients' among them",
            ),
            fact(
                "messages",
                format!("{:.2}", self.messages_per_transaction),
                "per transaction, to the server and from it",
            ),
            fact("bytes", grouped_decimal(self.bytes_per_transaction, 0), "per transaction, of these"),
            fact("callbacks", format!("{:.2}", self.callbacks_per_transaction), "per transaction"),
        ];
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        let head = format!("{}\n{} {nodes}, {}; seed {}", self.workload, self.nodes, self.algorithm, self.seed);
        format!("{head}\n\n{}", facts(rows))
    }
}
