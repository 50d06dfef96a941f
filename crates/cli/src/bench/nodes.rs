//! Debit-Credit on several engines of this process, which share the database: clients are threads, and their transactions go to the node
//! whose branches they are about.

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
use entresol::{KeyRanges, NodeHandle, NodeThreads, Opening};
use real_driver::{process_cpu_ns, wall_ns};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
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
    (terms, load): (&Terms, Load),
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
    let threads = NodeThreads::start(opening.clone())?;
    let ranges = KeyRanges::of_numbers(0..scale.branches, u64::from(nodes.count));
    let run = NodeClients { tables, plan, handle: threads.handle().with_ranges(ranges), count: clients };
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
struct Phase<'a> {
    /// How many transactions may still begin; `u64::MAX` where a time ends it.
    permits: AtomicU64,
    is_over: AtomicBool,
    done: &'a AtomicU64,
}

impl NodeClients {
    fn measure(&self, progress: &Progress) -> Result<Measured, Failure> {
        let done = AtomicU64::new(0);
        progress.phase("warming up", 0);
        self.phase((self.plan.warm_up, 0), &done, |_| {})?;
        let before = Traffic::of(&self.handle.survey().wait()?);
        let total = match self.plan.measure {
            Length::Transactions(count) => count,
            Length::Time(ns) => ns / 1_000_000,
        };
        progress.phase("measuring", total);
        done.store(0, Ordering::Relaxed);
        let (began, cpu) = (wall_ns(), process_cpu_ns());
        let times = self.phase((self.plan.measure, 1), &done, |done| progress.advance_to(done))?;
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
    fn phase(
        &self,
        (length, number): (Length, u32),
        done: &AtomicU64,
        mut look: impl FnMut(u64),
    ) -> Result<Vec<(Histogram, Option<f64>)>, Failure> {
        let permits = match length {
            Length::Transactions(count) => count,
            Length::Time(_) => u64::MAX,
        };
        let phase = Phase { permits: AtomicU64::new(permits), is_over: AtomicBool::new(false), done };
        std::thread::scope(|scope| {
            let start = |client| {
                scope.spawn({
                    let phase = &phase;
                    move || self.client((number, client), phase)
                })
            };
            let clients: Vec<_> = (0..self.count).map(start).collect();
            let began = wall_ns();
            while !clients.iter().all(ScopedJoinHandle::is_finished) {
                let elapsed_ns = wall_ns() - began;
                match length {
                    Length::Time(ns) => {
                        look(elapsed_ns / 1_000_000);
                        phase.is_over.fetch_or(elapsed_ns >= ns, Ordering::Relaxed);
                    }
                    Length::Transactions(_) => look(done.load(Ordering::Relaxed)),
                }
                std::thread::park_timeout(LOOK);
            }
            let times = clients
                .into_iter()
                .map(|client| client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            Ok(times.collect::<entresol::Result<Vec<_>>>()?)
        })
    }

    fn client(
        &self,
        (phase_number, client): (u32, u32),
        phase: &Phase<'_>,
    ) -> entresol::Result<(Histogram, Option<f64>)> {
        let mut random = Random::stream(self.plan.seed, &format!("client {client} of phase {phase_number}"));
        let mut times = Histogram::new();
        let one_less = |left| if left == u64::MAX { Some(left) } else { u64::checked_sub(left, 1) };
        while !phase.is_over.load(Ordering::Relaxed)
            && phase.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        {
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
        let mean = (times.count() > 0).then(|| times.mean_ns());
        Ok((times, mean))
    }
}

impl NodesReport {
    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The report for people.
    pub fn to_text(&self) -> String {
        let rows = [
            fact(
                "throughput",
                format!("{}/s", grouped_decimal(self.throughput_per_s, 1)),
                format!("{} clients, each a thread with one transaction at a time", self.clients),
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
        format!("{}\n{} nodes, {}; seed {}\n\n{}", self.workload, self.nodes, self.algorithm, self.seed, facts(rows))
    }
}
