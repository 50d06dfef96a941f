//! What is measured of a server and its clients, over a part of a run.

use base::statistics::StationReport;
use serde::Serialize;
use std::cell::Cell;
use std::collections::BTreeMap;

/// References to hot and cold pages, and how many of them were hits.
#[derive(Default)]
pub struct Hits {
    hot: [Cell<u64>; 2],
    cold: [Cell<u64>; 2],
}

impl Hits {
    /// Counts a reference.
    pub fn count(&self, is_hot: bool, is_hit: bool) {
        let cells = if is_hot { &self.hot } else { &self.cold };
        cells[usize::from(is_hit)].set(cells[usize::from(is_hit)].get() + 1);
    }

    /// How many references there were.
    pub fn references(&self) -> u64 {
        self.hot.iter().chain(&self.cold).map(Cell::get).sum()
    }

    /// The shares of hits among all references, those to hot pages and those to cold ones.
    pub fn ratios(&self) -> [f64; 3] {
        let [hot, cold] = [&self.hot, &self.cold].map(|cells| [cells[0].get(), cells[1].get()]);
        [[hot[0] + cold[0], hot[1] + cold[1]], hot, cold].map(|[misses, hits]| ratio(hits, misses + hits))
    }

    /// Forgets them.
    pub fn restart(&self) {
        self.hot.iter().chain(&self.cold).for_each(|cell| cell.set(0));
    }
}

/// One number per another; nothing of nothing.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The figures of a part of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Transactions committed a second.
    #[serde(skip)]
    pub throughput_per_s: f64,
    /// The mean time from the first beginning of a transaction to the end of its commit, in nanoseconds.
    #[serde(skip)]
    pub response_ns_mean: f64,
    /// Transactions committed.
    #[serde(skip)]
    pub transactions: u64,
    /// Transactions that were a deadlock's victims and were run again.
    #[serde(skip)]
    pub victims: u64,
    /// Load of the server's stations and the network's.
    #[serde(skip)]
    pub stations: Vec<StationReport>,
    /// The mean utilization of the clients' CPUs.
    pub client_cpu_utilization: f64,
    /// References that a client's own buffer served, of all.
    pub client_hit_ratio: f64,
    /// The same of those to its hot region.
    pub client_hot_hit_ratio: f64,
    /// The same of the others.
    pub client_cold_hit_ratio: f64,
    /// Requests for pages that the server's buffer served, of all.
    pub server_hit_ratio: f64,
    /// The same of those for the asking client's hot region.
    pub server_hot_hit_ratio: f64,
    /// The same of the others.
    pub server_cold_hit_ratio: f64,
    /// Pages that the server's buffer lacked and another client was asked to send, of all that it lacked.
    pub forwarded_ratio: f64,
    /// Reads of the server's disks per committed transaction.
    pub disk_reads_per_commit: f64,
    /// Writes of the server's disks per committed transaction.
    pub disk_writes_per_commit: f64,
    /// Both.
    pub disk_io_per_commit: f64,
    /// Messages per committed transaction, by kind: those that `entresol node` counts, with pages between clients apart.
    pub messages: BTreeMap<&'static str, f64>,
    /// All messages per committed transaction.
    pub messages_per_commit: f64,
    /// Their bytes.
    pub message_bytes_per_commit: f64,
    /// Pages that commits have changed and that did not come with them, per committed transaction.
    pub redone_per_commit: f64,
    /// The share of the database that a client can have without a disk: what is in the server's buffer and its own, and in those of
    /// others where pages are forwarded.
    pub in_memory_ratio: f64,
    /// Pages that clients dropped and sent to the server, of all that they dropped as they asked for others.
    pub dropped_sent_ratio: f64,
    /// Pages that were passed on to idle clients, of all that clients dropped as they asked for others.
    pub passed_on_ratio: f64,
    /// Copies that were called back per committed transaction.
    pub callbacks_per_commit: f64,
    /// Pages that another client could not send, per committed transaction.
    pub refusals_per_commit: f64,
    /// Deadlocks' victims per committed transaction.
    pub victims_per_commit: f64,
}
