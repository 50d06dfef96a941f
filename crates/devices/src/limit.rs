//! Limits that a provider or a kernel sets on a device: token buckets.

use crate::fields::{self, Bandwidth};
use crate::law::rounded;
use crate::{Direction, Transfer};
use base::Instant;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// A limit on the operations or the bytes of a device per second.
///
/// Credit for what was not used is saved for up to `burst`. A volume that does 300 operations per second and 3,000 for as long
/// as its credit of 5,400,000 lasts has two limits: `{ operations = 3000 }` and `{ operations = 300, burst = "300 min" }`. A
/// limit with a name that other devices use, too, is one for all of them: the bandwidth that an instance has for its volumes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Operations per second; either these or `bandwidth` are limited.
    pub operations: Option<f64>,
    /// An operation counts once for each of these many bytes, or part of them; once whatever its length by default.
    #[serde(default, deserialize_with = "fields::optional_size")]
    pub operation_size: Option<u64>,
    /// Bytes per second.
    pub bandwidth: Option<Bandwidth>,
    /// How long credit is saved for, in nanoseconds; it is full at the start. None by default.
    #[serde(default, deserialize_with = "fields::duration")]
    pub burst: u64,
    /// Credit comes at the beginning of each such time, in nanoseconds, as that of Linux's blkio controller does (100 ms); steadily by
    /// default. What a slice leaves may be used in the next one, as in Linux 6.18, and lapses after a slice in which nothing was asked for. A limit has this or `burst`.
    #[serde(default, deserialize_with = "fields::duration")]
    pub slice: u64,
    /// What is limited.
    #[serde(default)]
    pub of: Limited,
    /// Whether flushes are operations, too: a durable write counts one more, and a sync one, as Linux's blkio controller counts them
    /// where a device has a volatile cache. Not by default.
    #[serde(default)]
    pub flushes: bool,
    /// The name of a limit that several devices share.
    pub shared: Option<String>,
}

/// Which transfers a limit concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limited {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Reads and writes together.
    #[default]
    Both,
}

impl Limit {
    /// What is wrong with the description, if anything is.
    pub(crate) fn error(&self) -> Option<&'static str> {
        let positive = self.operations.is_none_or(|rate| rate > 0.0 && rate.is_finite());
        match (self.operations, self.bandwidth) {
            (Some(_), Some(_)) => Some("a limit is one of operations or one of bandwidth; write two"),
            (None, None) => Some("a limit has operations = 3000 (per second) or bandwidth = \"125 MB/s\""),
            (None, _) if self.operation_size.is_some() => Some("operation_size belongs to a limit of operations"),
            (None, _) if self.flushes => Some("flushes belong to a limit of operations"),
            _ if !positive || self.operation_size == Some(0) => Some("a limit is above zero"),
            _ if self.burst > 0 && self.slice > 0 => Some("a limit has burst or slice"),
            _ => None,
        }
    }

    /// Whether it concerns this transfer.
    pub(crate) fn concerns(&self, transfer: &Transfer) -> bool {
        match transfer.direction {
            Direction::Read => self.of != Limited::Writes,
            Direction::Write { .. } => self.of != Limited::Reads,
            Direction::Sync => self.flushes && self.of != Limited::Reads,
        }
    }

    /// How long the rate takes to give credit for this transfer.
    fn cost_ns(&self, transfer: &Transfer) -> u64 {
        let bytes = transfer.length;
        match (self.bandwidth, self.operations) {
            (Some(bandwidth), _) => bandwidth.transfer_ns(bytes),
            (None, rate) => {
                let pieces = self.operation_size.map_or(1, |size| u64::from(bytes).div_ceil(size).max(1));
                let is_flushed = self.flushes && transfer.direction == Direction::Write { durable: true };
                let count = pieces + u64::from(is_flushed);
                rounded(count as f64 * 1e9 / rate.unwrap_or(f64::INFINITY))
            }
        }
    }
}

/// The running model of a limit: all credit is counted as the time that the rate takes to give it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    limit: Limit,
    /// With a burst: when all credit taken so far would have come at the rate, had none been saved.
    taken_until: Instant,
    /// With slices: when the first of a row of them began, what was taken since, and when the row ends if nothing more is taken.
    row: Instant,
    taken_ns: u64,
    row_end: Instant,
    /// Credit taken since the statistics were last restarted.
    charged_ns: u64,
}

impl Bucket {
    pub(crate) fn new(limit: &Limit) -> Bucket {
        let start = Instant::START;
        Bucket { limit: limit.clone(), taken_until: start, row: start, taken_ns: 0, row_end: start, charged_ns: 0 }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// A transfer takes its credit; returns when it has it. Transfers are served in the order of their arrival.
    pub(crate) fn take(&mut self, now: Instant, transfer: &Transfer) -> Instant {
        let cost_ns = self.limit.cost_ns(transfer);
        self.charged_ns += cost_ns;
        if self.limit.slice > 0 {
            return self.take_of_slice(now, cost_ns);
        }
        let behind_ns = self.taken_until.since_ns(now);
        self.taken_until = self.taken_until.max(now).plus_ns(cost_ns);
        now.plus_ns(behind_ns.saturating_sub(self.limit.burst))
    }

    /// As `blk-throttle.c` of Linux 6.18 does it: slices are counted anew after one without use, and all but the last two are
    /// forgotten, with what was taken in them. Where they end is rounded up to a multiple of `slice` on the clock.
    fn take_of_slice(&mut self, now: Instant, cost_ns: u64) -> Instant {
        let slice = self.limit.slice;
        if now > self.row_end {
            (self.row, self.taken_ns) = (now, 0);
        }
        self.taken_ns += cost_ns;
        // The slice that has the credit for the whole of it.
        let slices = self.taken_ns.div_ceil(slice).saturating_sub(1);
        let taken_at = now.max(self.row.plus_ns(slices * slice));
        let over = (taken_at.since_ns(self.row) / slice).saturating_sub(1) * slice;
        self.row = self.row.plus_ns(over);
        self.taken_ns = self.taken_ns.saturating_sub(over);
        self.row_end = Instant::START.plus_ns(taken_at.plus_ns(slice).ns().div_ceil(slice) * slice);
        taken_at
    }

    pub(crate) fn restart(&mut self) {
        self.charged_ns = 0;
    }

    /// Credit taken since the statistics were last restarted, as the time that the rate takes to give it.
    pub(crate) fn charged_ns(&self) -> u64 {
        self.charged_ns
    }
}

pub(crate) fn limits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Limit>, D::Error> {
    let limits = Vec::<Limit>::deserialize(deserializer)?;
    match limits.iter().find_map(Limit::error) {
        Some(error) => Err(D::Error::custom(error)),
        None => Ok(limits),
    }
}
