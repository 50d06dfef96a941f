//! What CPU steps cost where the driver describes a CPU.

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

    /// How long the described CPU takes for so many instructions, in nanoseconds.
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
