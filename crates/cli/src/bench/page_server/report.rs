//! What a run of a server and its nodes reports, on either clock.

use super::nodes_run::{NodeFigures, NodesRun, ServerFigures};
use crate::report::{Clock, Composition, Response, SHARES, Station, TierUse, Transfers};
use crate::table::{fact, facts, wrapped};
use base::statistics::{Histogram, Interval};
use base::units::{format_duration_ns, format_size, grouped, grouped_decimal};
use node::page_client::NodeWaits;
use serde::Serialize;
use std::collections::BTreeMap;
use workload::debit_credit::Scale;

/// What a server and its nodes measured. The JSON has the fields' names as keys.
#[derive(Clone, Debug, Serialize)]
pub struct PageServerReport {
    /// The workload and its parameters, for people.
    pub workload: String,
    /// The server's driver's description of itself.
    pub driver: String,
    /// What a reader must know to trust the figures.
    pub notes: Vec<String>,
    /// Which clock the times are by.
    pub clock: Clock,
    pub seed: u64,
    pub nodes: u32,
    /// Of each node.
    pub clients: u32,
    /// What becomes of copies in the nodes' memories.
    pub algorithm: &'static str,
    pub seconds: f64,
    pub transactions: u64,
    pub throughput_per_s: f64,
    /// Attempts of transactions that came to nothing and were run again, per transaction.
    pub repeated_per_transaction: f64,
    /// Transactions that may be committed: the server was gone before it had answered.
    pub unknown: u64,
    /// From the first attempt to the acknowledgement.
    pub response_us: Response,
    /// Its distribution, at [`SHARES`], in microseconds.
    #[serde(skip)]
    pub distribution_us: Vec<f64>,
    /// What the mean response consists of: `read_wait` for pages from the server or another node, `lock_wait`, `commit_wait` for the server's
    /// answer, and the rest, CPU time and the wait for a CPU. Repeated attempts are in it.
    pub composition_us: Composition,
    /// The share of the pages that transactions came to which were in their nodes' memory.
    pub node_hit_ratio: f64,
    /// Of the server and all nodes.
    pub cpu_us_per_transaction: f64,
    pub server_cpu_us_per_transaction: f64,
    /// To the server, from it, and between nodes.
    pub messages_per_transaction: f64,
    pub bytes_per_transaction: f64,
    /// Pages that nodes asked for, and the share of them that the server had in memory.
    pub pages_per_transaction: f64,
    pub server_hit_ratio: f64,
    pub callbacks_per_transaction: f64,
    pub victims_per_transaction: f64,
    pub log_bytes_per_transaction: f64,
    /// Reads and writes of the server, by device.
    pub io_per_transaction: BTreeMap<String, Transfers>,
    /// Of the server, pages twice where a device may tear them.
    pub written_bytes_per_s: BTreeMap<String, f64>,
    /// Memory that sets take at the server.
    pub segment_bytes: u64,
    /// How busy one processor of each node is.
    pub node_cpu_utilization: Vec<f64>,
    /// The server's cache and write buffers, as far as it has any.
    pub tiers: Vec<TierUse>,
    /// Load and queueing of every station of the server.
    pub utilization: Vec<Station>,
}

impl PageServerReport {
    /// Of a run that has just ended.
    pub fn new((run, scale): (&NodesRun, &Scale), served: &ServerFigures, nodes: &[NodeFigures]) -> PageServerReport {
        let mut response = Histogram::new();
        nodes.iter().for_each(|node| response.merge(&node.response));
        let means: Vec<f64> = nodes.iter().flat_map(|node| &node.means).copied().collect();
        let sum = |of: fn(&NodeFigures) -> u64| nodes.iter().map(of).sum::<u64>();
        let transactions = sum(|node| node.transactions);
        let per_transaction = |count: u64| count as f64 / transactions.max(1) as f64;
        let seconds = nodes.iter().map(|node| node.elapsed_ns).max().unwrap_or(0) as f64 / 1e9;
        let counts = &served.counts;
        let tier_use = |tier| TierUse::new(tier, transactions.max(1) as f64, seconds.max(1e-9));
        let each = |(device, of): (&String, &Transfers)| {
            let share = 1.0 / transactions.max(1) as f64;
            (device.clone(), Transfers { reads: of.reads * share, writes: of.writes * share })
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let response_us = Response::new(&response, Interval::of_means(&means));
        let waits_us =
            |of: fn(&NodeWaits) -> u64| per_transaction(nodes.iter().map(|node| of(&node.waits)).sum()) / 1e3;
        let (lock_wait, read_wait) = (waits_us(|waits| waits.lock_ns), waits_us(|waits| waits.page_ns));
        let commit_wait = waits_us(|waits| waits.commit_ns);
        let [hits, misses] = [sum(|node| node.waits.hits), sum(|node| node.waits.misses)];
        let mut notes = Vec::new();
        if run.clock == Clock::Real && run.nodes as usize + 1 > threads {
            notes.push(format!(
                "the server and {} nodes shared {threads} processors; those that a described loopback joins do so, too",
                run.nodes
            ));
        }
        PageServerReport {
            workload: format!(
                "debit-credit on {} nodes of a page server, scale {}, {} of each",
                run.nodes,
                scale.branches,
                if run.clients == 1 { "1 client".to_owned() } else { format!("{} clients", run.clients) }
            ),
            driver: served.driver.clone(),
            notes,
            clock: run.clock,
            seed: run.plan.seed,
            nodes: run.nodes,
            clients: run.clients,
            algorithm: run.algorithm,
            seconds,
            transactions,
            throughput_per_s: transactions as f64 / seconds.max(1e-9),
            repeated_per_transaction: per_transaction(sum(|node| node.repeated)),
            unknown: sum(|node| node.unknown),
            composition_us: Composition {
                cpu: (response_us.mean - lock_wait - read_wait - commit_wait).max(0.0),
                lock_wait,
                read_wait,
                write_wait: 0.0,
                commit_wait,
            },
            node_hit_ratio: hits as f64 / (hits + misses).max(1) as f64,
            response_us,
            distribution_us: SHARES.map(|share| response.quantile_ns(share) as f64 / 1e3).to_vec(),
            cpu_us_per_transaction: per_transaction(served.cpu_ns + sum(|node| node.cpu_ns)) / 1e3,
            server_cpu_us_per_transaction: per_transaction(served.cpu_ns) / 1e3,
            messages_per_transaction: per_transaction(served.messages + sum(|node| node.messages)),
            bytes_per_transaction: per_transaction(served.bytes + sum(|node| node.bytes)),
            pages_per_transaction: per_transaction(counts.reads),
            server_hit_ratio: counts.hits as f64 / counts.reads.max(1) as f64,
            callbacks_per_transaction: per_transaction(counts.callbacks),
            victims_per_transaction: per_transaction(counts.victims),
            log_bytes_per_transaction: per_transaction(served.log_bytes),
            io_per_transaction: served.transfers.iter().map(each).collect(),
            written_bytes_per_s: served.written_bytes_per_s.clone(),
            segment_bytes: served.segment_bytes,
            node_cpu_utilization: nodes.iter().map(|node| node.cpu_ns as f64 / node.elapsed_ns.max(1) as f64).collect(),
            tiers: served.tiers.iter().map(|tier| tier_use(tier.clone())).collect(),
            utilization: served.stations.clone(),
        }
    }

    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The report for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let clock = if self.clock == Clock::Virtual { "described machines" } else { "threads of this machine" };
        let us = |us: f64| format_duration_ns(us * 1e3);
        let mut rows = vec![
            fact("throughput", format!("{}/s", grouped_decimal(self.throughput_per_s, 1)), "transactions"),
            fact("transactions", grouped(self.transactions), format!("in {:.2} s", self.seconds)),
            self.response_us.fact(),
            fact("of which", us(self.composition_us.read_wait), "for pages of the server or another node"),
            fact("", us(self.composition_us.lock_wait), "for locks"),
            fact("", us(self.composition_us.commit_wait), "for the answer to the commit"),
            fact(
                "CPU",
                us(self.cpu_us_per_transaction),
                format!("per transaction, {} of it the server's", us(self.server_cpu_us_per_transaction)),
            ),
            fact("hits", format!("{:.1} %", self.node_hit_ratio * 100.0), "of the pages in the nodes' memories"),
            fact("messages", format!("{:.2}", self.messages_per_transaction), "per transaction, of all"),
            fact("bytes", grouped_decimal(self.bytes_per_transaction, 0), "per transaction, of these"),
            fact(
                "pages",
                format!("{:.2}", self.pages_per_transaction),
                format!(
                    "asked for per transaction, {:.1} % of them in the server's memory",
                    self.server_hit_ratio * 100.0
                ),
            ),
            fact("callbacks", format!("{:.2}", self.callbacks_per_transaction), "per transaction"),
            fact(
                "repeated",
                format!("{:.4}", self.repeated_per_transaction),
                format!("per transaction; {:.4} victims of deadlocks", self.victims_per_transaction),
            ),
            fact("log", format_size(self.log_bytes_per_transaction as u64), "per transaction"),
        ];
        for (device, Transfers { reads, writes }) in &self.io_per_transaction {
            rows.push(fact(device, format!("{reads:.2} reads"), format!("and {writes:.2} writes per transaction")));
        }
        let heading = format!("{}\n{clock}; {}; seed {}", self.workload, self.algorithm, self.seed);
        let notes = self.notes.iter().map(|note| wrapped(&format!("\nNote: {note}")));
        let tiers = if self.tiers.is_empty() { Vec::new() } else { TierUse::tables(&self.tiers) };
        let tiers = tiers.into_iter().map(|table| format!("\n{table}"));
        let first = format!("{}\n\n{}", wrapped(&heading), facts(rows));
        std::iter::once(first).chain(tiers).chain(notes).collect::<Vec<_>>().join("\n")
    }
}
