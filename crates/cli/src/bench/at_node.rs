//! Debit-Credit through a node: this process joins the server of a database, and its transactions run on copies of pages.

use super::meter::Meter;
use super::terms::Terms;
use crate::Failure;
use crate::node::joining::{Joining, PAUSE_NS, on_a_machine};
use crate::progress::Progress;
use crate::report::Response;
use crate::table::{fact, facts};
use base::units::{format_duration_ns, grouped, grouped_decimal};
use entresol::configuration::Configuration;
use executor::Executor;
use node::page_client::PageClient;
use serde::Serialize;
use std::net::SocketAddr;
use workload::Load;
use workload::debit_credit::{MeasuredAtNode, Tables, run_at_node};

/// What a run through a node measured.
#[derive(Clone, Debug, Serialize)]
pub struct NodeReport {
    workload: String,
    server: SocketAddr,
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

/// Joins the server, and measures.
pub fn run(server: SocketAddr, joining: &Joining, terms: &Terms, progress: &Progress) -> Result<NodeReport, Failure> {
    let configuration = Configuration::read(terms.setup.config.as_deref(), None)?;
    on_a_machine(async |executor| {
        let client = joining.join(executor, server, &configuration, progress).await?;
        measure(executor, server, client, (terms, progress)).await
    })
}

async fn measure(
    executor: &Executor,
    server: SocketAddr,
    client: PageClient,
    (terms, progress): (&Terms, &Progress),
) -> Result<NodeReport, Failure> {
    let tables = Tables::at_node(&client).await?;
    let plan = terms.plan(Load::Closed { clients: 1 });
    let mut meter = Meter::new(progress, &plan, false);
    let mut cpu_ns = real_driver::thread_cpu_ns();
    let measured =
        run_at_node((executor, &client), &tables, (plan.warm_up, plan.measure), terms.seed, &mut meter).await?;
    cpu_ns = real_driver::thread_cpu_ns() - cpu_ns;
    let name = format!("debit-credit through a node, scale {}", tables.scale().branches);
    let report = NodeReport::new(name, (server, terms.seed), &measured, (&client, cpu_ns));
    drop(client);
    // The server is told that this node leaves.
    executor.sleep_ns(PAUSE_NS).await;
    Ok(report)
}

impl NodeReport {
    fn new(
        workload: String,
        (server, seed): (SocketAddr, u64),
        measured: &MeasuredAtNode,
        (client, cpu_ns): (&PageClient, u64),
    ) -> NodeReport {
        let count = measured.transactions.max(1) as f64;
        let seconds = measured.elapsed_ns as f64 / 1e9;
        NodeReport {
            workload,
            server,
            seed,
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
        let rows = [
            fact(
                "throughput",
                format!("{}/s", grouped_decimal(self.throughput_per_s, 1)),
                "transactions, one at a time",
            ),
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
