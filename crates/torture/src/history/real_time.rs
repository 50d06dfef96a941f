//! What was certainly earlier than what.

use super::transaction::Moment;

/// Between which moments something happened, both excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// It happened after this.
    pub from: Moment,
    /// It happened before this; `Moment::MAX` if that is unknown.
    pub to: Moment,
}

/// The pairs of intervals of which one ends before the other begins, without those that follow from others.
pub fn order(intervals: &[(usize, Interval)]) -> Vec<(usize, usize)> {
    let mut by_end: Vec<(usize, Interval)> = intervals.to_vec();
    by_end.sort_by_key(|(_, interval)| interval.to);
    // The latest beginning among an interval and those that end before it.
    let mut latest = 0;
    let latest_from: Vec<Moment> = by_end
        .iter()
        .map(|(_, interval)| {
            latest = interval.from.max(latest);
            latest
        })
        .collect();
    let mut pairs = Vec::new();
    for (later, interval) in intervals {
        let before = by_end.partition_point(|(_, earlier)| earlier.to < interval.from);
        let Some(bound) = before.checked_sub(1).map(|last| latest_from[last]) else { continue };
        // One that ends before another of them begins is before this one too.
        let direct = by_end[..before].iter().rev().take_while(|(_, earlier)| earlier.to >= bound);
        pairs.extend(direct.map(|(earlier, _)| (*earlier, *later)));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn what_is_left_out_follows_from_the_rest() {
        let mut random = Random::stream(1, "intervals");
        for _ in 0..300 {
            let count = random.between(1, 9) as usize;
            let intervals: Vec<(usize, Interval)> = (0..count)
                .map(|number| {
                    let from = random.below(20);
                    let to = if random.chance(0.1) { Moment::MAX } else { from + random.below(8) };
                    (number, Interval { from, to })
                })
                .collect();
            let mut reached = vec![vec![false; count]; count];
            let pairs = order(&intervals);
            pairs.iter().for_each(|(earlier, later)| reached[*earlier][*later] = true);
            for through in 0..count {
                for (from, to) in (0..count * count).map(|pair| (pair / count, pair % count)) {
                    reached[from][to] |= reached[from][through] && reached[through][to];
                }
            }
            for (from, to) in (0..count * count).map(|pair| (pair / count, pair % count)) {
                assert_eq!(reached[from][to], intervals[from].1.to < intervals[to].1.from, "{intervals:?}");
            }
            for (earlier, later) in &pairs {
                let is_between = |middle: usize| reached[*earlier][middle] && reached[middle][*later];
                assert!(!(0..count).any(is_between), "{earlier} before {later} follows from others");
            }
        }
    }
}
