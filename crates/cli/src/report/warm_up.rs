//! How a run came to its steady state.

use crate::table::fact;
use base::units::format_duration_ns;
use serde::Serialize;
use workload::WarmUp;

/// The warm-up of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WarmedUp {
    /// How long it was, on the run's clock.
    pub seconds: f64,
    /// In how many parts it was looked at.
    pub windows: u32,
    /// Whether the last two were alike; otherwise the run was measured although it still changed.
    pub is_steady: bool,
    /// By which share the throughput of the last part differed from that of the one before.
    pub throughput_change: f64,
    /// The same of the misses per transaction.
    pub misses_change: f64,
}

impl From<WarmUp> for WarmedUp {
    fn from(warm_up: WarmUp) -> WarmedUp {
        let [throughput_change, misses_change] = warm_up.changes;
        WarmedUp {
            seconds: warm_up.elapsed_ns as f64 / 1e9,
            windows: warm_up.windows,
            is_steady: warm_up.is_steady,
            throughput_change,
            misses_change,
        }
    }
}

impl WarmedUp {
    /// The line of a report.
    pub fn to_fact(self) -> Vec<String> {
        let percent = |change: f64| format!("{:+.1} %", change * 100.0);
        let (throughput, misses) = (percent(self.throughput_change), percent(self.misses_change));
        let state = if self.is_steady { "to a steady state" } else { "without a steady state" };
        let within = if self.is_steady { ", within their deviations" } else { "" };
        let words = format!("{state}: throughput {throughput}, misses {misses} in the last part{within}");
        fact("warm-up", format_duration_ns(self.seconds * 1e9), words)
    }
}
