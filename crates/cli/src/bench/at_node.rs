//! A workload through a node: this process joins the server of a database, and its transactions run on copies of pages.

use super::meter::Meter;
use super::terms::Terms;
use crate::Failure;
use crate::node::joining::{Joining, PAUSE_NS, on_a_machine};
use crate::progress::Progress;
use crate::report::Response;
use crate::table::{fact, facts};
use base::units::{format_duration_ns, grouped, grouped_decimal};
use entresol::configuration::Configuration;
use node::page_client::{NodeInternals, PageClient};
use serde::Serialize;
use std::net::SocketAddr;
use workload::debit_credit::{self, DebitCredit};
use workload::tpcc::{self, Scale, Tpcc};
use workload::ycsb::{self, USERTABLE, Ycsb};
use workload::{AtNode, Load, MeasuredAtNode, NodePlan, at_node};

/// What a run through a node measured.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    workload: String,
    server: SocketAddr,
    clients: u32,
    seed: u64,
    seconds: f64,
    transactions: u64,
    throughput_per_s: f64,
    /// Attempts of transactions that came to nothing and were run again.
    repeated: u64,
    /// Transactions that may be committed: the server was gone before it had answered.
    unknown: u64,
    response_us: Response,
    cpu_us_per_transaction: f64,
    messages_per_transaction: f64,
    bytes_per_transaction: f64,
}

/// How a node runs a workload.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub server: SocketAddr,
    pub joining: &'a Joining,
    /// Its clients; one if none are asked for.
    pub clients: Option<u32>,
    pub terms: &'a Terms,
    pub progress: &'a Progress,
}

impl Node<'_> {
    pub fn debit_credit(self) -> Result<NodeReport, Failure> {
        self.measure(async |client| {
            let tables = debit_credit::Tables::at_node(client).await?;
            let name = format!("debit-credit through a node, scale {}", tables.scale().branches);
            Ok((name, DebitCredit(tables)))
        })
    }

    pub fn ycsb(self, mix: ycsb::Mix) -> Result<NodeReport, Failure> {
        self.measure(async |client| {
            let (table, records) = (client.partition(USERTABLE).await?.id(), ycsb::records_at_node(client).await?);
            let name = format!("ycsb {} through a node, {} records", mix.letter(), grouped(records));
            Ok((name, Ycsb::new(table, mix, records)))
        })
    }

    pub fn tpcc(self) -> Result<NodeReport, Failure> {
        self.measure(async |client| {
            let tables = tpcc::Tables::at_node(client).await?;
            let scale: Scale = client.transaction(async |tx| tables.scale(tx).await).await?;
            let name = format!("tpcc through a node, warehouses {}", scale.warehouses);
            Ok((name, Tpcc { tables, scale }))
        })
    }

    /// Joins the server, and measures the workload that is found there.
    fn measure<W: AtNode>(
        self,
        find: impl AsyncFnOnce(&PageClient) -> entresol::Result<(String, W)>,
    ) -> Result<NodeReport, Failure> {
        let Node { server, joining, terms, progress, .. } = self;
        let configuration = Configuration::read(terms.setup.config.as_deref(), None)?;
        on_a_machine(async |executor| {
            let client = joining.join(executor, server, &configuration, progress).await?;
            let (name, workload) = find(&client).await?;
            let report = self.run(&client, (name, workload)).await?;
            drop(client);
            // The server is told that this node leaves.
            executor.sleep_ns(PAUSE_NS).await;
            Ok(report)
        })
    }

    async fn run<W: AtNode>(self, client: &PageClient, (name, workload): (String, W)) -> Result<NodeReport, Failure> {
        let clients = self.clients.unwrap_or(1);
        let plan = self.terms.plan(Load::Closed { clients });
        let mut meter = Meter::new(self.progress, &plan, false);
        let plan = NodePlan { clients, warm_up: plan.warm_up, measure: plan.measure, seed: plan.seed };
        let mut cpu_ns = real_driver::thread_cpu_ns();
        let measured = at_node::run(client, workload, &plan, &mut meter).await?;
        cpu_ns = real_driver::thread_cpu_ns() - cpu_ns;
        Ok(NodeReport::new(name, (self.server, &plan), &measured, (client, cpu_ns)))
    }
}

impl NodeReport {
    fn new(
        workload: String,
        (server, plan): (SocketAddr, &NodePlan),
        measured: &MeasuredAtNode,
        (client, cpu_ns): (&PageClient, u64),
    ) -> NodeReport {
        let count = measured.transactions.max(1) as f64;
        let seconds = measured.elapsed_ns as f64 / 1e9;
        NodeReport {
            workload,
            server,
            clients: plan.clients,
            seed: plan.seed,
            seconds,
            transactions: measured.transactions,
            throughput_per_s: measured.transactions as f64 / seconds.max(1e-9),
            repeated: measured.repeated,
            unknown: measured.unknown,
            response_us: Response::new(&measured.response, measured.means.interval()),
            cpu_us_per_transaction: cpu_ns as f64 / 1e3 / count,
            messages_per_transaction: client.traffic().messages.get() as f64 / count,
            bytes_per_transaction: client.traffic().bytes.get() as f64 / count,
        }
    }

    /// The report for programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The report for people.
    pub fn to_text(&self) -> String {
        let at_once = match self.clients {
            1 => "transactions, one at a time".to_owned(),
            clients => format!("{} clients, each with one transaction at a time", grouped(clients.into())),
        };
        let rows = [
            fact("throughput", format!("{}/s", grouped_decimal(self.throughput_per_s, 1)), at_once),
            fact("transactions", grouped(self.transactions), format!("in {:.2} s", self.seconds)),
            fact("repeated", grouped(self.repeated), "deadlocks' victims, and those lost with a connection"),
            fact("unknown", grouped(self.unknown), "were sent to a server that was gone before it answered"),
            self.response_us.fact(),
            fact("CPU", format_duration_ns(self.cpu_us_per_transaction * 1e3), "per transaction on the node's thread"),
            fact("messages", format!("{:.2}", self.messages_per_transaction), "sent per transaction"),
            fact("bytes", grouped_decimal(self.bytes_per_transaction, 0), "sent per transaction"),
        ];
        format!("{}\nserver at {}; seed {}\n\n{}", self.workload, self.server, self.seed, facts(rows))
    }
}
