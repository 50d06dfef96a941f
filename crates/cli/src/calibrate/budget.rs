//! For how long the engine's runs are measured, so that a calibration ends in its time on a slower machine, too: what does not depend on
//! the length of runs takes longer there, and the runs get what is left.

/// The time of a calibration, in nanoseconds of the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of all of it.
    pub all_ns: u64,
    /// The longest and the shortest run.
    pub most_ns: u64,
    pub least_ns: u64,
}

/// How many times as long as one run all take together: some are measured for several times as long.
const RUNS: u64 = 79;
/// How many times as long as the fit of the device everything behind it takes that has a length of its own: the loads of databases, sorts and
/// joins, the runs of described nodes. Both are work of one processor.
const BESIDE: u64 = 3;

impl Budget {
    /// Less than a minute.
    pub const QUICK: Budget = Budget { all_ns: 56_000_000_000, most_ns: 300_000_000, least_ns: 60_000_000 };
    /// Less than ten.
    pub const FULL: Budget = Budget { all_ns: 580_000_000_000, most_ns: 3_000_000_000, least_ns: 600_000_000 };

    /// How long a run is, if the stages before the engine's took this long, and of that the fit of the device as long as this.
    pub fn span_ns(&self, elapsed_ns: u64, fit_ns: u64) -> u64 {
        let left_ns = self.all_ns.saturating_sub(elapsed_ns).saturating_sub(BESIDE * fit_ns);
        // Milliseconds are enough.
        (left_ns / RUNS).clamp(self.least_ns, self.most_ns) / 1_000_000 * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_get_the_time_that_a_slower_machine_leaves() {
        for budget in [Budget::QUICK, Budget::FULL] {
            let fit_ns = budget.all_ns / 20;
            let usual_ns = budget.all_ns - BESIDE * fit_ns - RUNS * budget.most_ns;
            assert_eq!(budget.span_ns(usual_ns, fit_ns), budget.most_ns);
            assert_eq!(budget.span_ns(usual_ns, fit_ns / 2), budget.most_ns, "a faster one measures no longer");
            let slower_ns = budget.span_ns(usual_ns + fit_ns, 2 * fit_ns);
            assert!(slower_ns < budget.most_ns && slower_ns > budget.least_ns, "{slower_ns}");
            let ends_ns = usual_ns + fit_ns + BESIDE * 2 * fit_ns + RUNS * slower_ns;
            assert!(ends_ns <= budget.all_ns && ends_ns > budget.all_ns - RUNS * 1_000_000, "{ends_ns}");
            assert_eq!(budget.span_ns(budget.all_ns, fit_ns), budget.least_ns, "however late it is");
        }
    }
}
