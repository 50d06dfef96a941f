use hdrhistogram::Histogram as Hdr;

/// Durations in nanoseconds, kept with three significant digits from 1 ns to about 10 days.
///
/// ```
/// use entresol_base::statistics::Histogram;
///
/// let mut times = Histogram::new();
/// (1..=1_000).for_each(|us| times.record(us * 1_000));
/// assert_eq!(times.mean_ns(), 500_500.0);
/// let p99 = times.quantile_ns(0.99) as f64;
/// assert!((p99 / 990_000.0 - 1.0).abs() < 0.001, "three digits are kept");
/// ```
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Hdr<u64>,
    sum_ns: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Histogram {
        let counts = Hdr::new_with_bounds(1, 1_000_000_000_000_000, 3).expect("the bounds are valid constants");
        Histogram { counts, sum_ns: 0.0 }
    }

    /// Adds one duration.
    pub fn record(&mut self, ns: u64) {
        self.counts.saturating_record(ns.max(1));
        self.sum_ns += ns as f64;
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.add(&other.counts).expect("all histograms share their bounds");
        self.sum_ns += other.sum_ns;
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The mean in nanoseconds; zero if empty.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns / self.count() as f64 }
    }

    /// The duration in nanoseconds that the share `q` (0 to 1) of all does not exceed; zero if empty.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        if self.count() == 0 { 0 } else { self.counts.value_at_quantile(q) }
    }

    /// The longest duration in nanoseconds, to three digits; zero if empty.
    pub fn max_ns(&self) -> u64 {
        self.counts.max()
    }
}
