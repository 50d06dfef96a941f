//! How long a run warms up: until nothing changes any more.

use super::{Length, Shared, Watch, Workload};
use base::Instant;
use engine::Result;

/// A part of a warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Transactions that ended in it.
    pub transactions: u64,
    /// How long it was, in nanoseconds of the run's clock.
    pub elapsed_ns: u64,
    /// References that were not found in main memory.
    pub misses: u64,
}

impl Window {
    fn throughput_per_s(&self) -> f64 {
        self.transactions as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    fn misses_per_transaction(&self) -> f64 {
        self.misses as f64 / self.transactions.max(1) as f64
    }
}

/// How a warm-up ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WarmUp {
    /// How long it was, in nanoseconds of the run's clock.
    pub elapsed_ns: u64,
    /// How many parts it had.
    pub windows: u32,
    /// Whether the last two parts were alike.
    pub is_steady: bool,
    /// By how much throughput and misses per transaction of the last part differed from those of the one before, as shares.
    pub changes: [f64; 2],
}

/// Finds the steady state of a run: two parts of its warm-up in succession that differ no more than chance would have it.
///
/// ```
/// use entresol_workload::{Steady, Window};
///
/// let mut steady = Steady::default();
/// let window = |misses| Window { transactions: 100_000, elapsed_ns: 1_000_000_000, misses };
/// assert!(!steady.is_reached(window(90_000)), "nothing to compare with");
/// assert!(!steady.is_reached(window(60_000)));
/// assert!(steady.is_reached(window(59_500)));
/// assert!(steady.warm_up().is_steady && steady.warm_up().windows == 3);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Steady {
    before: Option<Window>,
    warm_up: WarmUp,
}

/// A part may differ from the one before by this share.
const CHANGE_MAX: f64 = 0.02;
/// It may also differ by this number of standard deviations of independent events.
const DEVIATIONS_MAX: f64 = 3.0;
/// A warm-up ends behind this number of parts in any case.
const WINDOWS_MAX: u32 = 20;

impl Steady {
    /// A part of the warm-up has ended: whether the run is steady, or has been warmed up for so long that it is measured anyway.
    pub fn is_reached(&mut self, window: Window) -> bool {
        self.warm_up.windows += 1;
        self.warm_up.elapsed_ns += window.elapsed_ns;
        let Some(before) = self.before.replace(window) else { return false };
        let change = |now: f64, then: f64| if then > 0.0 { now / then - 1.0 } else { f64::from(u8::from(now > 0.0)) };
        let chance = |now: u64, then: u64| {
            let least = now.min(then);
            if least == 0 && now.max(then) < 10 { f64::INFINITY } else { DEVIATIONS_MAX / (least.max(1) as f64).sqrt() }
        };
        self.warm_up.changes = [
            change(window.throughput_per_s(), before.throughput_per_s()),
            change(window.misses_per_transaction(), before.misses_per_transaction()),
        ];
        let allowed = [chance(window.transactions, before.transactions), chance(window.misses, before.misses)];
        let alike = |(change, chance): (&f64, f64)| change.abs() <= CHANGE_MAX.max(chance);
        self.warm_up.is_steady = self.warm_up.changes.iter().zip(allowed).all(alike);
        self.warm_up.is_steady || self.warm_up.windows >= WINDOWS_MAX
    }

    /// What the warm-up was.
    pub fn warm_up(&self) -> WarmUp {
        self.warm_up
    }
}

impl<W: Workload> Shared<W> {
    fn misses(&self) -> u64 {
        self.database.statistics().references().iter().map(|seen| seen.misses()).sum()
    }

    /// Warms up, once or for as long as the watch asks for. A workload of which so much is measured as there is has one warm-up.
    pub(super) async fn warm_up(&self, watch: &mut impl Watch) -> Result<()> {
        let length = self.plan.warm_up;
        let mut counted = self.workload.is_counted() || length == Length::Transactions(0) || length == Length::Time(0);
        let (mut began, mut misses): (Instant, u64) = (self.began.get(), self.misses());
        loop {
            self.wait_for_end(length, watch).await?;
            let now = self.ended.get().unwrap_or_else(|| self.database.executor().now());
            let window = Window {
                transactions: self.completed.get(),
                elapsed_ns: now.since_ns(began),
                misses: self.misses() - misses,
            };
            counted |= self.running.get() > self.unfinished_max.get();
            if counted || watch.is_warm(window) {
                return Ok(());
            }
            self.permit(length).await;
            self.begin_part(length);
            (began, misses) = (self.began.get(), self.misses());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(transactions: u64, misses: u64) -> Window {
        Window { transactions, elapsed_ns: 1_000_000_000, misses }
    }

    #[test]
    fn a_trend_is_followed_to_its_end() {
        let mut steady = Steady::default();
        let mut missing = 100_000.0;
        while !steady.is_reached(window(100_000, 20_000 + missing as u64)) {
            missing *= 0.5;
        }
        assert!(steady.warm_up().is_steady && missing < 1_000.0, "{missing}: {:?}", steady.warm_up());
        assert_eq!(steady.warm_up().elapsed_ns, u64::from(steady.warm_up().windows) * 1_000_000_000);
    }

    #[test]
    fn what_never_comes_to_rest_is_told() {
        let mut steady = Steady::default();
        let mut transactions = 1_000;
        while !steady.is_reached(window(transactions, 0)) {
            transactions += transactions / 4;
        }
        assert_eq!((steady.warm_up().windows, steady.warm_up().is_steady), (WINDOWS_MAX, false));
        assert!((steady.warm_up().changes[0] - 0.25).abs() < 0.01);
    }

    #[test]
    fn chance_is_no_change() {
        for (before, now) in [((400, 3), (440, 0)), ((10_000, 900), (10_000, 960)), ((100, 0), (100, 0))] {
            let mut steady = Steady::default();
            assert!(!steady.is_reached(window(before.0, before.1)));
            assert!(steady.is_reached(window(now.0, now.1)), "{before:?} {now:?}");
        }
    }
}
