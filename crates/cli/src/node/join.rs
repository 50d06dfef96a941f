//! A node that joins a server and stays until this process is asked to end. Others get pages from it that the server asks it to send.

use super::joining::{PAUSE_NS, on_a_machine};
use super::{Arguments, NodeLoad};
use crate::progress::Progress;
use crate::table::{fact, facts};
use crate::{Failure, print};
use ::node::page_client::PageClient;
use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::units::{format_duration_ns, grouped, grouped_decimal};
use entresol::configuration::Configuration;
use executor::Executor;
use node::page_client::NodeInternals;
use serde::Serialize;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use workload::debit_credit::{DebitCredit, Tables};
use workload::{MeasuredAtNode, at_node};

/// How often it is looked whether this process is to end, in nanoseconds.
const LOOK_NS: u64 = 50 * MILLISECOND_NS;
/// How long the transaction that runs may take when this process is to end, in nanoseconds. One of a server that is gone is left to it.
const GRACE_NS: u64 = 2 * SECOND_NS;

/// What the node has done.
#[derive(Serialize)]
struct Stayed {
    server: SocketAddr,
    seconds: f64,
    transactions: u64,
    repeated: u64,
    /// Transactions that may be committed.
    unknown: u64,
    throughput_per_s: f64,
    response_mean_us: f64,
    response_p99_us: f64,
    /// How often it had to join again.
    rejoined: u64,
    copies: u64,
    messages_sent: u64,
    bytes_sent: u64,
}

pub fn run(arguments: &Arguments, server: SocketAddr) -> Result<(), Failure> {
    real_driver::note_end_requests();
    let progress = Progress::start("node");
    let configuration = Configuration::read(arguments.config.as_deref(), None)?;
    let stayed = on_a_machine(async |executor| {
        let client = arguments.joining.join(executor, server, &configuration, &progress).await?;
        let stayed = stay(executor, (&client, server), arguments, &progress).await?;
        drop(client);
        // The server is told that this node leaves.
        executor.sleep_ns(PAUSE_NS).await;
        Ok(stayed)
    })?;
    progress.finish();
    print(&if arguments.json { serde_json::to_string_pretty(&stayed)? } else { stayed.to_text() })
}

/// The sessions that a node has had.
struct Sessions {
    last: ::node::message::Session,
    rejoined: u64,
}

async fn stay(
    executor: &Executor,
    (client, server): (&PageClient, SocketAddr),
    arguments: &Arguments,
    progress: &Progress,
) -> Result<Stayed, Failure> {
    let tables = match arguments.load {
        Some(NodeLoad::DebitCredit) => Some(Tables::at_node(client).await?),
        None => None,
    };
    let measured = Rc::new(RefCell::new(MeasuredAtNode::new()));
    let _told = print(&format!("joined {server}"));
    let began = executor.now();
    let load = tables.map(|tables| {
        let figures = Rc::clone(&measured);
        at_node::stay(client, DebitCredit(tables), arguments.seed, figures, real_driver::is_end_requested)
    });
    let mut sessions = Sessions { last: client.session(), rejoined: 0 };
    let watching = async {
        let mut end: Option<Instant> = None;
        while end.is_none_or(|end| executor.now() < end) {
            executor.sleep_ns(LOOK_NS).await;
            sessions.look(client);
            progress.say(status(client, server, &measured.borrow()));
            if let Some(failure) = client.failure() {
                return Err(Failure::from(failure));
            }
            if real_driver::is_end_requested() && end.is_none() {
                end = Some(executor.now().plus_ns(if arguments.load.is_some() { GRACE_NS } else { 0 }));
            }
        }
        Ok(())
    };
    match load {
        Some(load) => first(load, watching).await?,
        None => watching.await?,
    }
    let elapsed_ns = executor.now().since_ns(began);
    Ok(Stayed::of((client, server), &measured.borrow(), sessions.rejoined, elapsed_ns))
}

/// Waits for the end of one of the two.
async fn first(
    load: impl Future<Output = entresol::Result<()>>,
    watching: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let (mut load, mut watching) = (std::pin::pin!(load), std::pin::pin!(watching));
    std::future::poll_fn(|context| match load.as_mut().poll(context) {
        std::task::Poll::Ready(ended) => std::task::Poll::Ready(ended.map_err(Failure::from)),
        std::task::Poll::Pending => watching.as_mut().poll(context),
    })
    .await
}

impl Sessions {
    fn look(&mut self, client: &PageClient) {
        let present = client.session();
        self.rejoined += u64::from(present != self.last);
        self.last = present;
    }
}

/// How it goes, in a line.
fn status(client: &PageClient, server: SocketAddr, measured: &MeasuredAtNode) -> String {
    let lease = if client.has_lease() { "" } else { ", waiting for the server" };
    format!(
        "joined {server}: {} copies, {} transactions, {} run again{lease}",
        grouped(client.copies() as u64),
        grouped(measured.transactions),
        grouped(measured.repeated)
    )
}

impl Stayed {
    fn of(
        (client, server): (&PageClient, SocketAddr),
        measured: &MeasuredAtNode,
        rejoined: u64,
        elapsed_ns: u64,
    ) -> Stayed {
        let seconds = elapsed_ns as f64 / 1e9;
        let response = &measured.response;
        Stayed {
            server,
            seconds,
            transactions: measured.transactions,
            repeated: measured.repeated,
            unknown: measured.unknown,
            throughput_per_s: measured.transactions as f64 / seconds.max(1e-9),
            response_mean_us: response.mean_ns() / 1e3,
            response_p99_us: response.quantile_ns(0.99) as f64 / 1e3,
            rejoined,
            copies: client.copies() as u64,
            messages_sent: client.traffic().messages.get(),
            bytes_sent: client.traffic().bytes.get(),
        }
    }

    fn to_text(&self) -> String {
        let row = |name: &str, number: u64, more: String| fact(name, grouped(number), more);
        let time = |us: f64| format_duration_ns(us * 1e3);
        facts([
            row(
                "transactions",
                self.transactions,
                format!("committed in {:.1} s, {}/s", self.seconds, grouped_decimal(self.throughput_per_s, 1)),
            ),
            row("repeated", self.repeated, "deadlocks' victims, and those lost with a connection".to_owned()),
            row("unknown", self.unknown, "were sent to a server that was gone before it answered".to_owned()),
            fact("response time", time(self.response_mean_us), format!("99 %: {}", time(self.response_p99_us))),
            row("rejoined", self.rejoined, "times, for the connection or the server was gone".to_owned()),
            row("copies", self.copies, "of pages at the end".to_owned()),
            row("messages", self.messages_sent, format!("sent, of {} bytes", grouped(self.bytes_sent))),
        ])
    }
}
