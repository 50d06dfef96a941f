//! Which records are popular: the original's generators.

use super::keys::hash;
use base::Random;

/// The exponent of the law.
const THETA: f64 = 0.99;

/// A number below `items`, the smaller the more often: that of rank r with a probability in proportion to 1 / r^theta (Gray et al.,
/// "Quickly generating billion-record synthetic databases", SIGMOD 1994, figure 3).
#[derive(Clone, Debug)]
struct Zipfian {
    items: u64,
    zeta: f64,
    /// What follows from these: as much of the law as the first two ranks have, and the approximation's factor.
    two: f64,
    eta: f64,
}

impl Zipfian {
    fn new(items: u64) -> Zipfian {
        let mut zipfian = Zipfian::of(0, 0.0);
        zipfian.grow(items);
        zipfian
    }

    fn of(items: u64, zeta: f64) -> Zipfian {
        let two = 1.0 + 0.5_f64.powf(THETA);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - two / zeta);
        Zipfian { items, zeta, two, eta }
    }

    /// From now on there are `items` items.
    fn grow(&mut self, items: u64) {
        if items > self.items {
            let more = (self.items + 1..=items).map(|rank| 1.0 / (rank as f64).powf(THETA)).sum::<f64>();
            *self = Zipfian::of(items, self.zeta + more);
        }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.two {
            return 1;
        }
        let (items, eta) = (self.items as f64, self.eta);
        let number = (items * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64;
        number.min(self.items - 1)
    }
}

/// Popular records are scattered over the table: the hash of a Zipfian number out of ten thousand million.
#[derive(Clone, Debug)]
pub struct Scrambled {
    zipfian: Zipfian,
    items: u64,
}

impl Scrambled {
    /// Numbers below `items`.
    pub fn new(items: u64) -> Scrambled {
        // The original's constants: the sum over this many items takes a minute.
        let zipfian = Zipfian::of(10_000_000_000, 26.469_028_201_783_02);
        Scrambled { zipfian, items }
    }

    pub fn draw(&self, random: &mut Random) -> u64 {
        hash(self.zipfian.draw(random)) % self.items
    }
}

/// Popular records are those inserted last.
#[derive(Clone, Debug)]
pub struct Latest(Zipfian);

impl Latest {
    /// With `records` records in the table.
    pub fn new(records: u64) -> Latest {
        Latest(Zipfian::new(records))
    }

    /// A number below `records`, which never becomes less.
    pub fn draw(&mut self, records: u64, random: &mut Random) -> u64 {
        self.0.grow(records);
        records - 1 - self.0.draw(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        let (zipfian, mut random) = (Zipfian::new(1_000), Random::stream(1, "zipf"));
        let mut counts = vec![0_u32; 1_000];
        let draws = 400_000;
        (0..draws).for_each(|_| counts[zipfian.draw(&mut random) as usize] += 1);
        for rank in [1_usize, 2, 10, 100] {
            let expected = f64::from(draws) / (rank as f64).powf(THETA) / zipfian.zeta;
            let found = f64::from(counts[rank - 1]);
            // The approximation is exact for the first two ranks and within a few per cent elsewhere.
            let tolerance = if rank <= 2 { 0.03 } else { 0.25 };
            assert!((found / expected - 1.0).abs() < tolerance, "rank {rank}: {found} in place of {expected}");
        }
    }

    #[test]
    fn growing_is_the_same_as_beginning_larger() {
        let mut grown = Zipfian::new(100);
        grown.grow(5_000);
        assert!((grown.zeta - Zipfian::new(5_000).zeta).abs() < 1e-9);
        grown.grow(10);
        assert_eq!(grown.items, 5_000);
    }

    #[test]
    fn the_latest_are_read_most_and_nothing_beyond_the_end() {
        let (mut latest, mut random) = (Latest::new(1_000), Random::stream(1, "latest"));
        let drawn: Vec<u64> = (0..10_000).map(|at| latest.draw(1_000 + at / 10, &mut random)).collect();
        assert!(drawn.iter().zip(0..).all(|(number, at)| *number < 1_000 + at / 10));
        let recent = drawn.iter().zip(0..).filter(|(number, at)| **number + 20 >= 1_000 + at / 10).count();
        assert!(recent > 4_000, "{recent} of 10,000 among the latest 20");
    }

    #[test]
    fn scrambled_numbers_are_skewed_and_spread() {
        let (scrambled, mut random) = (Scrambled::new(10_000), Random::stream(1, "scrambled"));
        let mut counts = vec![0_u32; 10_000];
        (0..100_000).for_each(|_| counts[scrambled.draw(&mut random) as usize] += 1);
        let top = *counts.iter().max().expect("there are some");
        // The most popular record has 1 / zeta of all references.
        assert!((3_500..4_100).contains(&top), "{top}");
        assert!(counts.iter().filter(|count| **count > 0).count() > 8_000);
    }
}
