//! How the throughput of a run went over its time.

use super::{grouped_decimal, table};
use base::units::format_duration_ns;
use serde::Serialize;

/// Characters of the longest bar.
const WIDTH: f64 = 50.0;

/// The course of a run from the opening on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Course {
    /// What passed before the first transaction: the opening with its recovery, and the load if there was one.
    pub opening_seconds: f64,
    /// The parts of the run in order.
    pub parts: Vec<CoursePart>,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CoursePart {
    /// When it ended, in seconds since the first transaction began.
    pub seconds: f64,
    /// Transactions committed in it, per second.
    pub throughput_per_s: f64,
}

impl Course {
    /// From what a run had done at some moments, each a time in nanoseconds and a number of transactions, in order: parts that are
    /// no shorter than `interval_ns`. What is left behind the last of them is left out.
    pub fn new(opening_ns: u64, interval_ns: u64, seen: &[(u64, u64)]) -> Course {
        let (mut parts, mut last) = (Vec::new(), (0, 0));
        for (elapsed_ns, transactions) in seen.iter().copied() {
            let length_ns = elapsed_ns - last.0;
            if length_ns >= interval_ns {
                let throughput_per_s = (transactions - last.1) as f64 * 1e9 / length_ns as f64;
                parts.push(CoursePart { seconds: elapsed_ns as f64 / 1e9, throughput_per_s });
                last = (elapsed_ns, transactions);
            }
        }
        Course { opening_seconds: opening_ns as f64 / 1e9, parts }
    }

    pub(super) fn to_text(&self) -> String {
        let most = self.parts.iter().map(|part| part.throughput_per_s).fold(f64::MIN_POSITIVE, f64::max);
        let rows = self.parts.iter().map(|part| {
            let bar = "#".repeat((part.throughput_per_s / most * WIDTH).round() as usize);
            vec![bar, grouped_decimal(part.seconds, 1), grouped_decimal(part.throughput_per_s, 0)]
        });
        let opening = format_duration_ns(self.opening_seconds * 1e9);
        format!(
            "The first transaction began {opening} behind the start.\n\n{}",
            table(&["", "after (s)", "transactions/s"], 1, rows)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_no_shorter_than_asked() {
        let tenths: Vec<(u64, u64)> = (1..=25).map(|tenth| (tenth * 100_000_000, tenth * tenth)).collect();
        let course = Course::new(1_500_000_000, 1_000_000_000, &tenths);
        let part = |seconds, throughput_per_s| CoursePart { seconds, throughput_per_s };
        assert_eq!(course.parts, [part(1.0, 100.0), part(2.0, 300.0)], "half a second is left");
        let text = course.to_text();
        assert!(text.contains("1.50 s behind the start") && text.contains(&"#".repeat(50)), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(Course::new(0, 1_000, &[]).parts, []);
    }
}
