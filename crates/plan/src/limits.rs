//! What a plan asks for.

use crate::Loss;
use crate::figures::Figures;
use serde::Serialize;

/// The limits that a candidate has to keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// `p99`: 99 % of the response times are no longer than this, in nanoseconds.
    pub p99_ns: Option<u64>,
    /// `throughput`: transactions per second, at least.
    pub throughput_per_s: Option<f64>,
    /// `cost`: the price of a month, at most.
    pub cost_per_month: Option<f64>,
    /// `recovery`: how long a restart after a crash takes at most, in nanoseconds.
    pub recovery_ns: Option<u64>,
    /// `flash_years`: how long drives with a rating last at least.
    pub flash_years: Option<f64>,
    /// `data`: how many bytes the partitions take, which their devices have to hold.
    pub data: Option<u64>,
    /// `survives`: losses after which every acknowledged transaction is still there.
    pub survives: Vec<Loss>,
}

/// How near a figure is to a limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearness {
    /// The limit's name, as in the plan; or `arrivals`, which every candidate has to serve.
    pub limit: String,
    /// How much of what is allowed is used; above 1 the limit is broken.
    pub used: f64,
}

impl Limits {
    /// How near a run's figures are to each limit; those that cannot be told yet are left out.
    pub fn nearness(&self, figures: &Figures) -> Vec<Nearness> {
        let mut found = Vec::new();
        let mut add = |limit: &str, used: f64| found.push(Nearness { limit: limit.to_owned(), used });
        if let Some(limit) = self.p99_ns {
            add("p99", figures.p99_us * 1e3 / limit as f64);
        }
        if let Some(limit) = self.throughput_per_s {
            add("throughput", limit / figures.throughput_per_s.max(f64::MIN_POSITIVE));
        }
        if figures.saturated.is_some() {
            let asked = figures.arrivals_per_s.unwrap_or(figures.throughput_per_s);
            add("arrivals", (asked / figures.throughput_per_s.max(f64::MIN_POSITIVE)).max(1.0) * 1.000_001);
        }
        if let Some(limit) = self.cost_per_month {
            add("cost", figures.cost_per_month / limit);
        }
        if let (Some(limit), Some(seconds)) = (self.recovery_ns, figures.recovery_s) {
            add("recovery", seconds * 1e9 / limit as f64);
        }
        if let Some(limit) = self.flash_years {
            let least = figures.wear.iter().filter_map(|wear| wear.years_of_life).reduce(f64::min);
            if let Some(years) = least {
                add("flash_years", limit / years.max(f64::MIN_POSITIVE));
            }
        }
        found
    }

    /// By which factor the limit that is broken most is exceeded, and which that is; 1 or less if all are kept.
    pub fn worst(&self, figures: &Figures) -> Option<Nearness> {
        self.nearness(figures).into_iter().max_by(|a, b| a.used.total_cmp(&b.used))
    }

    /// Whether all limits are kept.
    pub fn are_kept(&self, figures: &Figures) -> bool {
        self.worst(figures).is_none_or(|worst| worst.used <= 1.0)
    }
}
