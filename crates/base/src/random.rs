//! Seeded random numbers: one stream per concern, so that drawing more for one concern never shifts another.

use rand::RngExt;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A stream of random numbers. The same seed and concern always give the same numbers.
///
/// ```
/// use entresol_base::Random;
///
/// let mut arrivals = Random::stream(7, "arrivals");
/// let gaps: Vec<f64> = (0..10_000).map(|_| arrivals.exponential(2.0)).collect();
/// assert!((gaps.iter().sum::<f64>() / 10_000.0 - 2.0).abs() < 0.1);
///
/// // Another concern draws from a stream of its own, and both can be repeated.
/// assert_ne!(Random::stream(7, "service").word(), Random::stream(7, "arrivals").word());
/// assert_eq!(Random::stream(7, "arrivals").exponential(2.0), gaps[0]);
/// ```
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream of `concern` (such as `"arrivals"`) under `seed`.
    pub fn stream(seed: u64, concern: &str) -> Random {
        // FNV-1a mixes the concern's name into the seed; seeding then runs SplitMix64 over it.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in concern.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Random(Xoshiro256PlusPlus::seed_from_u64(hash))
    }

    /// A whole number drawn uniformly from `0..bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }

    /// A whole number drawn uniformly from `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high)
    }

    /// True with probability `p` (0 to 1).
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A number drawn uniformly from [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Any 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0.random::<u64>()
    }

    /// Exponentially distributed with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        let sample: f64 = Exp1.sample(&mut self.0);
        mean * sample
    }

    /// One element of a slice, drawn uniformly; `None` if it is empty.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { Some(&items[self.below(items.len() as u64) as usize]) }
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ_by_concern() {
        let draw = |seed, concern| {
            let mut random = Random::stream(seed, concern);
            (0..8).map(|_| random.word()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, "arrivals"), draw(7, "arrivals"));
        assert_ne!(draw(7, "arrivals"), draw(7, "service"));
        assert_ne!(draw(7, "arrivals"), draw(8, "arrivals"));
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut random = Random::stream(1, "mean");
        let mean = (0..200_000).map(|_| random.exponential(5.0)).sum::<f64>() / 200_000.0;
        assert!((mean - 5.0).abs() < 0.05, "{mean}");
    }
}
