//! What a run's clients cannot see: the progress line and this machine's clocks.

use crate::progress::Progress;
use crate::report::Course;
use std::ops::Range;
use workload::{Length, Plan, Steady, WarmUp, Watch, Window};

/// Shows progress and reads the clocks that the engine does not.
pub struct Meter<'a> {
    progress: &'a Progress,
    measure: Length,
    described: bool,
    measuring: bool,
    /// Times in nanoseconds, and how many transactions were committed by then.
    seen: Vec<(u64, u64)>,
    /// Looks for the end of the warm-up, if it does not end by itself.
    steady: Option<Steady>,
}

impl<'a> Meter<'a> {
    /// A meter of a run by this plan; `described` if it is under the virtual clock.
    pub fn new(progress: &'a Progress, plan: &Plan, described: bool) -> Meter<'a> {
        progress.phase("warming up", 0);
        Meter { progress, measure: plan.measure, described, measuring: false, seen: Vec::new(), steady: None }
    }
}

impl<'a> Meter<'a> {
    /// The same, of a run that warms up until it is steady.
    pub fn until_steady(self) -> Meter<'a> {
        Meter { steady: Some(Steady::default()), ..self }
    }

    /// How the warm-up ended, of a run that warms up until it is steady.
    pub fn warm_up(&self) -> Option<WarmUp> {
        self.steady.map(|steady| steady.warm_up()).filter(|warm_up| warm_up.windows > 0)
    }

    /// How the run went, by parts no shorter than `interval_ns`, `opening_ns` behind the start of the program.
    pub fn course(&self, opening_ns: u64, interval_ns: u64) -> Course {
        Course::new(opening_ns, interval_ns, &self.seen)
    }
}

impl Watch for Meter<'_> {
    fn progress(&mut self, transactions: u64, elapsed_ns: u64) {
        let (done, total) = match self.measure {
            Length::Transactions(total) => (transactions, total),
            Length::Time(total_ns) => (elapsed_ns / 1_000_000, total_ns / 1_000_000),
        };
        if !std::mem::replace(&mut self.measuring, true) {
            self.progress.phase("measuring", total);
        }
        self.progress.advance_to(done);
        self.seen.push((elapsed_ns, transactions));
    }

    fn is_warm(&mut self, window: Window) -> bool {
        self.steady.as_mut().is_none_or(|steady| steady.is_reached(window))
    }

    fn cpu_ns(&self) -> u64 {
        if self.described { 0 } else { real_driver::thread_cpu_ns() }
    }

    fn process_cpu_ns(&self) -> u64 {
        if self.described { 0 } else { real_driver::process_cpu_ns() }
    }

    fn wall_ns(&self) -> u64 {
        real_driver::wall_ns()
    }
}

/// Shows a run of a given time as a part of several, and reads the clocks that the engine does not.
pub struct Span<'a> {
    progress: &'a Progress,
    name: &'static str,
    milliseconds: Range<u64>,
}

impl<'a> Span<'a> {
    /// A run whose measured part begins at `milliseconds.start` of all that ends at `milliseconds.end`.
    pub fn new(progress: &'a Progress, name: &'static str, milliseconds: Range<u64>) -> Span<'a> {
        Span { progress, name, milliseconds }
    }
}

impl Watch for Span<'_> {
    fn progress(&mut self, _: u64, elapsed_ns: u64) {
        // How long all will take shows after the first run.
        if !self.milliseconds.is_empty() {
            self.progress.step(self.name, self.milliseconds.start + elapsed_ns / 1_000_000, self.milliseconds.end);
        }
    }

    fn cpu_ns(&self) -> u64 {
        real_driver::thread_cpu_ns()
    }

    fn process_cpu_ns(&self) -> u64 {
        real_driver::process_cpu_ns()
    }

    fn wall_ns(&self) -> u64 {
        real_driver::wall_ns()
    }
}
