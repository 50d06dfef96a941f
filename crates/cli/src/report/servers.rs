//! What a report says of System M's servers, as table 4.1 of Garcia-Molina and Salem (1988).

use super::{percent, time_us};
use crate::table::table;
use base::units::{format_duration_ns, grouped, grouped_decimal};
use engine::Internals;
use engine::server::{Answered, ServerReport};
use entresol::Database;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the transaction server did, and the CPU time of each server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerUse {
    /// CPU time per true transaction by server, in microseconds.
    pub cpu_us_per_transaction: ServerTimes,
    /// Transactions that a conflict aborted, each of which was run again after the retry interval.
    pub restarts: u64,
    /// The same per true transaction.
    pub restarts_per_transaction: f64,
    /// Transactions that a standby executor took over.
    pub takeovers: u64,
    /// Those as a share of the transactions.
    pub takeover_share: f64,
    /// The mean number of requests in the request queue.
    pub queue_mean: f64,
    /// The greatest number.
    pub queue_max: u64,
    /// The mean time that a request waits there.
    pub queue_wait_us: f64,
    /// Requests in the restart queue at the end.
    pub restarting: u64,
    /// By the number of restarts, the last one for that number and more: the requests' share of all that were answered.
    pub share_by_restarts: BTreeMap<String, f64>,
    /// Their mean time from submission to the answer; those that were restarted so often are absent if there were none.
    pub response_us_by_restarts: BTreeMap<String, f64>,
}

/// A time for each server, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServerTimes {
    /// The transaction server.
    pub transaction: f64,
    /// The checkpoint server.
    pub checkpoint: f64,
    /// The log server.
    pub log: f64,
    /// The message servers.
    pub message: f64,
}

impl ServerUse {
    /// Of a run.
    pub fn new(report: &ServerReport) -> ServerUse {
        let transactions = report.transactions.max(1) as f64;
        let us = |ns: u64| ns as f64 / 1e3 / transactions;
        ServerUse {
            cpu_us_per_transaction: ServerTimes {
                transaction: us(report.cpu_ns.transaction),
                checkpoint: us(report.cpu_ns.checkpoint),
                log: us(report.cpu_ns.log),
                message: us(report.cpu_ns.message),
            },
            restarts: report.restarts,
            restarts_per_transaction: report.restarts as f64 / transactions,
            takeovers: report.takeovers,
            takeover_share: report.takeovers as f64 / (report.transactions + report.restarts).max(1) as f64,
            queue_mean: report.queue_mean,
            queue_max: report.queue_max,
            queue_wait_us: report.wait_ns_mean / 1e3,
            restarting: report.restarting,
            share_by_restarts: by_restarts(report, |answered| answered.requests as f64 / transactions),
            response_us_by_restarts: by_restarts(report, |answered| {
                answered.response_ns as f64 / 1e3 / answered.requests as f64
            }),
        }
    }

    /// Two tables.
    pub fn to_text(&self) -> String {
        let times = self.cpu_us_per_transaction;
        let cpu = [times.transaction, times.checkpoint, times.log, times.message].map(time_us);
        let row = std::iter::once("CPU per transaction".to_owned()).chain(cpu).collect();
        let cpu = table(&["server", "transaction", "checkpoint", "log", "message"], 1, std::iter::once(row));
        let row = vec![
            grouped(self.takeovers),
            percent(self.takeover_share),
            grouped(self.restarts),
            grouped_decimal(self.queue_mean, 1),
            grouped(self.queue_max),
            format_duration_ns(self.queue_wait_us * 1e3),
        ];
        let header = ["by standbys", "share", "restarts", "in the queue", "at most", "waiting there"];
        let mut text = format!("{cpu}\n\n{}", table(&header, 0, std::iter::once(row)));
        if self.restarts > 0 {
            let rows = self.share_by_restarts.iter().map(|(restarts, share)| {
                vec![restarts.clone(), percent(*share), time_us(self.response_us_by_restarts[restarts])]
            });
            text += &format!("\n\n{}", table(&["restarts", "share", "response time"], 0, rows));
        }
        text
    }
}

/// A figure of the requests that were restarted as often, for each number of restarts that there was.
fn by_restarts(report: &ServerReport, figure: impl Fn(&Answered) -> f64) -> BTreeMap<String, f64> {
    let met = report.by_restarts.iter().enumerate().filter(|(_, answered)| answered.requests > 0);
    met.map(|(restarts, answered)| (restarts.to_string(), figure(answered))).collect()
}

/// What happened at locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Locks {
    /// Requests for locks: of transactions' records, pages and gaps, and of the segments of sets.
    pub requests: u64,
    /// How many of them had to wait, for another transaction or for a sweep that was writing the segment.
    pub waits: u64,
    /// The share of them (0 to 1) that had to wait, for another transaction or for a sweep that was writing the segment.
    pub conflicts: f64,
    /// Transactions that were restarted because they would have mixed the colours of a black/white sweep.
    pub restarts_by_colour: u64,
}

impl Locks {
    /// What a database counted.
    pub fn new(database: &Database) -> Locks {
        let counted = database.locks().statistics();
        let waits = counted.waits + database.statistics().segment_waits.get();
        let references = database.statistics().references();
        let sets = database.partitions().into_iter().filter(|partition| partition.set_settings().is_some());
        let segments: u64 = sets.map(|set| references[usize::from(set.id)].hits).sum();
        let requests = counted.requests + segments;
        Locks {
            requests,
            waits,
            conflicts: waits as f64 / requests.max(1) as f64,
            restarts_by_colour: database.statistics().restarts_by_colour.get(),
        }
    }
}
