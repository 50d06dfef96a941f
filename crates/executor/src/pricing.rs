//! What CPU steps cost where the driver describes a CPU.
//!
//! If no other task is ready, and no event and no deadline comes before a described burst of CPU time ends, then its
//! end would be the next event. The clock advances there (`Driver::compute_alone`) and the task continues without an
//! operation. At low load a third of a run's events need no calendar that way.
//!
//! CPU time is charged to a task group when the thread changes from one group to another, by the clock, at some ten
//! nanoseconds a change; tasks without a group cost nothing. Where a CPU is described, its grants are counted instead.

use base::Random;
use driver::{Prices, Work};

pub(crate) struct Pricing {
    prices: Option<(Prices, Random)>,
}

impl Pricing {
    pub fn new(prices: Option<Prices>) -> Pricing {
        let prices = prices.map(|prices| (prices, Random::stream(prices.seed, "instructions")));
        Pricing { prices }
    }

    /// The instructions that `times` such steps cost together.
    pub fn price(&mut self, work: Work, times: u64) -> u64 {
        match &mut self.prices {
            None => 0,
            Some((prices, random)) => drawn(prices, random, times * prices.instructions[work as usize]),
        }
    }

    /// How long the described CPU takes for this number of instructions, in nanoseconds.
    pub fn duration_ns(&self, instructions: u64) -> u64 {
        self.prices.as_ref().map_or(0, |(prices, _)| (instructions as f64 * prices.instruction_ns).round() as u64)
    }

    /// The instructions of a step that costs `mean` on average; none where no CPU is described.
    pub fn draw(&mut self, mean: u64) -> u64 {
        self.prices.as_mut().map_or(0, |(prices, random)| drawn(prices, random, mean))
    }
}

#[inline]
fn drawn(prices: &Prices, random: &mut Random, mean: u64) -> u64 {
    if prices.exponential && mean > 0 { random.exponential(mean as f64).round() as u64 } else { mean }
}
