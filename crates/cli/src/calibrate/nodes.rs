//! What waking up costs a page server and its nodes: Debit-Credit on two nodes of this machine, and the price of waking up by a message with
//! which the description takes as much CPU time for it. An exchange of bare messages does not tell: its processors idle more, so that waking
//! up takes longer.

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
    /// Of it the server's.
    #[serde(default)]
    pub server_cpu_us: f64,
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
        server_cpu_us: report.server_cpu_us_per_transaction,
        response_us: report.response_us.mean,
    })
}

/// The price of waking up by a message, in nanoseconds, with which `show` shows the measured CPU time, and what it then shows.
pub fn fit(
    measured: NodesSeen,
    mut show: impl FnMut(f64) -> Result<NodesSeen, Failure>,
) -> Result<(f64, NodesSeen), Failure> {
    // The more waking up costs the more CPU time is shown, though not in proportion: caches are cold for a part of it.
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
    let mut wake_ns = high;
    for _ in 0..HALVINGS {
        wake_ns = f64::midpoint(low, high);
        shown = show(wake_ns)?;
        if shown.cpu_us < measured.cpu_us {
            low = wake_ns;
        } else {
            high = wake_ns;
        }
    }
    Ok((wake_ns, shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_waking_up_is_found_again() {
        // Speeds that it does not know of.
        for (wake_ns, speed) in [(6_000.0, 0.8), (500.0, 0.25), (20_000.0, 1.5)] {
            let show = |wake_ns: f64| {
                let messages = 16.0;
                let cpu_us = 150.0 + 2.0 * messages * wake_ns / 1e3 / speed;
                Ok(NodesSeen { messages, cpu_us, server_cpu_us: cpu_us / 2.0, response_us: 900.0 })
            };
            let measured = show(wake_ns).expect("it is calculated");
            let (found_ns, shown) = fit(measured, show).expect("it is calculated");
            assert!((found_ns / wake_ns - 1.0).abs() < 0.08, "{found_ns}");
            assert!((shown.cpu_us / measured.cpu_us - 1.0).abs() < 0.05, "{shown:?}");
            let free = NodesSeen { cpu_us: 100.0, ..measured };
            assert_eq!(fit(free, show).expect("it is calculated").0, 0.0);
        }
    }
}
