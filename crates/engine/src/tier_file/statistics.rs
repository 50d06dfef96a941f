//! What the tiers count.

use std::cell::Cell;

/// Counters of one tier, since the last restart of the statistics.
#[derive(Default)]
pub struct TierStatistics {
    /// Pages that misses in main memory were served with.
    pub reads: Cell<u64>,
    /// Pages written into the tier.
    pub writes: Cell<u64>,
    /// Of those, pages newer than on their own device: each is followed by a write there.
    pub modified: Cell<u64>,
    /// Pages that were to enter and found no free slot.
    pub fallbacks: Cell<u64>,
    /// Copies that were damaged and replaced by those on the pages' own devices.
    pub damaged: Cell<u64>,
}

impl TierStatistics {
    /// Forgets everything: the end of a warm-up.
    pub fn restart(&self) {
        for counter in [&self.reads, &self.writes, &self.modified, &self.fallbacks, &self.damaged] {
            counter.set(0);
        }
    }
}

/// What one tier is and what it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierReport {
    /// `cache` or `write-buffer`, or `log-buffer`.
    pub name: &'static str,
    /// Its device.
    pub device: String,
    /// How many pages it holds.
    pub pages: u64,
    /// Whether it loses its contents with the power.
    pub volatile: bool,
    /// Pages that misses in main memory were served with.
    pub reads: u64,
    /// Pages (or, for the log, writes) that it took in.
    pub writes: u64,
    /// Of those, how many were newer than on their own device.
    pub modified: u64,
    /// Pages (or, for the log, writes) that went to their own device because no room was free.
    pub fallbacks: u64,
    /// Copies found damaged.
    pub damaged: u64,
}
