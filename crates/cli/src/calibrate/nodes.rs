//! What messages cost a page server and its nodes: Debit-Credit on two nodes of this machine, and the price of a batch of messages with which
//! the description takes as much CPU time for it. An exchange of bare messages does not tell: its processors idle more, so that waking up
//! takes longer, and nothing is done for a message.

use super::cpu::configuration;
use crate::Failure;
use crate::bench::page_server::{NodesLoad, run_with};
use crate::progress::Progress;
use entresol::configuration::Configuration;
use serde::{Deserialize, Serialize};
use std::path::Path;
use workload::{Length, Load, Plan};

/// What was seen of the nodes, for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodesSeen {
    /// Between all machines.
    pub messages: f64,
    /// CPU time of the server and the nodes, in microseconds.
    pub cpu_us: f64,
    /// Mean response time, in microseconds.
    pub response_us: f64,
}

/// How often the range of the price is doubled at most until it is found there, and how often halved.
const DOUBLINGS_MAX: usize = 6;
const HALVINGS: usize = 6;
const BUFFER: u64 = 64 << 20;

/// The nodes on this machine, in a directory that is left with their database: the median of three runs.
pub fn measure((directory, described): (&Path, Option<&devices::Device>), seconds: f64) -> Result<NodesSeen, Failure> {
    let once = || seen((directory, configuration(described, true, BUFFER)), seconds);
    let mut found = [once()?, once()?, once()?];
    found.sort_by(|one, other| one.cpu_us.total_cmp(&other.cpu_us));
    Ok(found[1])
}

/// The nodes of a configuration, on the clock of its hardware.
pub fn seen((directory, configuration): (&Path, Configuration), seconds: f64) -> Result<NodesSeen, Failure> {
    let (measure, clients) = (Length::Time((seconds * 1e9) as u64), 1);
    let plan = Plan { load: Load::Closed { clients }, warm_up: measure.share(5), measure, seed: 1 };
    let load = NodesLoad { data: directory.join("nodes"), scale: Some(1), nodes: 2, clients, plan };
    let report = run_with(&load, configuration, None, &Progress::hidden())?;
    Ok(NodesSeen {
        messages: report.messages_per_transaction,
        cpu_us: report.cpu_us_per_transaction,
        response_us: report.response_us.mean,
    })
}

/// The price of a batch of messages, in nanoseconds, with which `show` shows the measured CPU time, and what it then shows.
pub fn fit(
    measured: NodesSeen,
    mut show: impl FnMut(f64) -> Result<NodesSeen, Failure>,
) -> Result<(f64, NodesSeen), Failure> {
    // The more a batch costs the more CPU time is shown, though not in proportion: caches are cold for a part of it.
    let nothing = show(0.0)?;
    let missing_ns = (measured.cpu_us - nothing.cpu_us) * 1e3;
    if missing_ns <= 0.0 {
        return Ok((0.0, nothing));
    }
    let (mut low, mut high) = (0.0, missing_ns / (2.0 * nothing.messages.max(1.0)));
    let mut shown = show(high)?;
    for _ in 0..DOUBLINGS_MAX {
        if shown.cpu_us >= measured.cpu_us {
            break;
        }
        (low, high) = (high, 2.0 * high);
        shown = show(high)?;
    }
    let mut batch_ns = high;
    for _ in 0..HALVINGS {
        batch_ns = f64::midpoint(low, high);
        shown = show(batch_ns)?;
        if shown.cpu_us < measured.cpu_us {
            low = batch_ns;
        } else {
            high = batch_ns;
        }
    }
    Ok((batch_ns, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_a_batch_is_found_again() {
        // Speeds that it does not know of.
        for (batch_ns, speed) in [(6_000.0, 0.8), (500.0, 0.25), (20_000.0, 1.5)] {
            let show = |batch_ns: f64| {
                let messages = 16.0;
                Ok(NodesSeen { messages, cpu_us: 150.0 + 2.0 * messages * batch_ns / 1e3 / speed, response_us: 900.0 })
            };
            let measured = show(batch_ns).expect("it is calculated");
            let (found_ns, shown) = fit(measured, show).expect("it is calculated");
            assert!((found_ns / batch_ns - 1.0).abs() < 0.08, "{found_ns}");
            assert!((shown.cpu_us / measured.cpu_us - 1.0).abs() < 0.05, "{shown:?}");
            let free = NodesSeen { cpu_us: 100.0, ..measured };
            assert_eq!(fit(free, show).expect("it is calculated").0, 0.0);
        }
    }
}
