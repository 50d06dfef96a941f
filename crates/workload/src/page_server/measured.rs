//! What is measured of a server and its clients, over a part of a run.

use base::statistics::StationReport;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Numbers that only grow, so that what was done in between is the difference.
macro_rules! counts {
    ($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$meaning])* pub $field: u64,)*
        }

        impl $name {
            /// Both together.
            pub fn plus(self, other: $name) -> $name {
                $name { $($field: self.$field + other.$field,)* }
            }

            /// What was counted since `before`.
            pub fn since(self, before: $name) -> $name {
                $name { $($field: self.$field - before.$field,)* }
            }
        }
    };
}

counts! {
    /// What clients have done.
    ClientCounts {
        /// Transactions committed.
        commits,
        /// Transactions that were a deadlock's victims and were run again.
        victims,
        /// The times from the first beginnings of the committed ones to the ends of their commits, in nanoseconds.
        response_ns,
        /// References to the clients' hot regions that their own buffers served.
        hot_hits,
        /// Those that they did not.
        hot_misses,
        /// Other references that their own buffers served.
        cold_hits,
        /// Those that they did not.
        cold_misses,
        /// Messages sent.
        messages,
        /// Their bytes.
        bytes,
    }
}

counts! {
    /// What a server has done.
    ServerCounts {
        /// Requests for pages of the asking client's hot region that the server's buffer served.
        hot_hits,
        /// Those that it did not.
        hot_misses,
        /// Requests for other pages that the server's buffer served.
        cold_hits,
        /// Those that it did not.
        cold_misses,
        /// Pages that another client was asked to send.
        forwards,
        /// Pages that it could not send.
        refusals,
        /// Pages read from disk.
        reads,
        /// Pages written to disk.
        writes,
        /// Messages sent.
        messages,
        /// Their bytes.
        bytes,
        /// Pages that commits have changed and that did not come with them.
        redone,
        /// Copies that left a client's memory as it asked for a page.
        leaving,
        /// Those of them that were sent to the server.
        returned,
        /// Those of them that were passed on to idle clients.
        passed_on,
        /// Copies that were called back.
        callbacks,
        /// Deadlocks' victims.
        victims,
    }
}

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

    /// Misses and hits of hot pages, then those of cold ones.
    pub fn counts(&self) -> [[u64; 2]; 2] {
        [&self.hot, &self.cold].map(|cells| [cells[0].get(), cells[1].get()])
    }

    /// Forgets them.
    pub fn restart(&self) {
        self.hot.iter().chain(&self.cold).for_each(|cell| cell.set(0));
    }
}

/// The shares of hits among all references, those to hot pages and those to cold ones, by misses and hits of both.
fn ratios([hot, cold]: [[u64; 2]; 2]) -> [f64; 3] {
    [[hot[0] + cold[0], hot[1] + cold[1]], hot, cold].map(|[misses, hits]| ratio(hits, misses + hits))
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

impl Figures {
    /// Of what all clients and the server have counted in a part of a run; nothing is known of stations.
    pub fn of(
        (clients, server): (&ClientCounts, &ServerCounts),
        throughput_per_s: f64,
        in_memory_ratio: f64,
    ) -> Figures {
        let per_commit = |count: u64| ratio(count, clients.commits);
        let client = ratios([[clients.hot_misses, clients.hot_hits], [clients.cold_misses, clients.cold_hits]]);
        let served = ratios([[server.hot_misses, server.hot_hits], [server.cold_misses, server.cold_hits]]);
        Figures {
            throughput_per_s,
            response_ns_mean: ratio(clients.response_ns, clients.commits),
            transactions: clients.commits,
            victims: clients.victims,
            stations: Vec::new(),
            client_cpu_utilization: 0.0,
            client_hit_ratio: client[0],
            client_hot_hit_ratio: client[1],
            client_cold_hit_ratio: client[2],
            server_hit_ratio: served[0],
            server_hot_hit_ratio: served[1],
            server_cold_hit_ratio: served[2],
            forwarded_ratio: ratio(server.forwards, server.hot_misses + server.cold_misses),
            disk_reads_per_commit: per_commit(server.reads),
            disk_writes_per_commit: per_commit(server.writes),
            disk_io_per_commit: per_commit(server.reads + server.writes),
            messages: BTreeMap::new(),
            messages_per_commit: per_commit(clients.messages + server.messages),
            message_bytes_per_commit: per_commit(clients.bytes + server.bytes),
            redone_per_commit: per_commit(server.redone),
            in_memory_ratio,
            dropped_sent_ratio: ratio(server.returned, server.leaving),
            passed_on_ratio: ratio(server.passed_on, server.leaving),
            callbacks_per_commit: per_commit(server.callbacks),
            refusals_per_commit: per_commit(server.refusals),
            victims_per_commit: per_commit(server.victims),
        }
    }
}
