//! What the tiers count.

use crate::statistics::{Times, add};
use std::cell::Cell;

/// Counters of one tier, since the last restart of the statistics.
#[derive(Clone, Default)]
pub struct TierStatistics {
    /// Pages that misses in main memory were served with.
    pub reads: Cell<u64>,
    /// Of those, pages newer than on their own device.
    pub dirty_reads: Cell<u64>,
    /// How long these reads took.
    pub read_times: Times,
    /// Pages written into the tier.
    pub writes: Cell<u64>,
    /// The operations that wrote them.
    pub write_operations: Cell<u64>,
    /// Bytes written to its device, those included that are no pages.
    pub bytes_written: Cell<u64>,
    /// Of the pages written, those newer than on their own device: each is followed by a write there.
    pub modified: Cell<u64>,
    /// Pages that were to enter and found no free slot.
    pub fallbacks: Cell<u64>,
    /// Pages that were to enter while the budget of writes was spent.
    pub declined: Cell<u64>,
    /// Copies that were damaged and replaced by those on the pages' own devices.
    pub damaged: Cell<u64>,
}

impl TierStatistics {
    /// Forgets everything: the end of a warm-up.
    pub fn restart(&self) {
        let TierStatistics {
            reads,
            dirty_reads,
            read_times,
            writes,
            write_operations,
            bytes_written,
            modified,
            fallbacks,
            declined,
            damaged,
        } = self;
        read_times.restart();
        for counter in
            [reads, dirty_reads, writes, write_operations, bytes_written, modified, fallbacks, declined, damaged]
        {
            counter.set(0);
        }
    }

    /// Counts a page of this many bytes that was written.
    pub fn count_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.bytes_written, bytes);
    }
}

/// What one tier is and what it did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierReport {
    /// `upper-cache`, `cache`, `write-buffer`, or `log-buffer`.
    pub name: &'static str,
    /// Its device.
    pub device: String,
    /// How many pages it holds.
    pub pages: u64,
    /// How many bytes these are.
    pub size: u64,
    /// Whether it loses its contents with the power.
    pub volatile: bool,
    /// Pages that misses in main memory were served with.
    pub reads: u64,
    /// Of those, how many were newer than on their own device.
    pub dirty_reads: u64,
    /// How long these reads took on average, in nanoseconds; `None` if there were none.
    pub read_ns_mean: Option<f64>,
    /// By how much a cache's reads were shorter than as many reads of the pages' own devices, in nanoseconds: below zero if
    /// they were longer. `None` for other tiers, and if nothing was read from such a device to compare with.
    pub saved_ns: Option<f64>,
    /// Pages (or, for the log, writes) that it took in.
    pub writes: u64,
    /// Bytes written to its device.
    pub bytes_written: u64,
    /// Of the pages (or writes), how many were newer than on their own device.
    pub modified: u64,
    /// Pages (or, for the log, writes) that went to their own device because no room was free.
    pub fallbacks: u64,
    /// Pages that the design wanted in the cache while its budget of writes was spent.
    pub declined: u64,
    /// Copies found damaged.
    pub damaged: u64,
    /// Slots that nothing comes to any more, because what was there could not be read.
    pub unusable: u64,
    /// How many bytes a day the cache's budget lets be written, if it has one.
    pub write_budget_bytes_per_day: Option<u64>,
    /// How many bytes its device is rated to be written with in its life, if that is known.
    pub rated_bytes: Option<u64>,
    /// Why it was switched off, if its device has failed.
    pub lost: Option<String>,
}
