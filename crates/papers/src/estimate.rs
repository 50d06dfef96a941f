//! A measured figure with its confidence interval, and what follows from several of them.
//!
//! Every figure of an experiment has an interval: a run is cut into batches that are measured separately. A claim is
//! judged by the interval and not by the mean; where the interval reaches over the limit, the claim is undecided.

use crate::Verdict;
use base::statistics::Interval;
use base::units::grouped_decimal;
use std::ops::{Add, Div, Mul, RangeInclusive, Sub};

/// A mean with half the width of its 90 % confidence interval. Sums and quotients take their parts as independent, and the
/// interval of a quotient to first order.
///
/// ```
/// use entresol_papers::Estimate;
///
/// let [slow, fast] = [Estimate::of(&[40.0, 42.0, 41.0]), Estimate::of(&[10.0, 11.0, 10.5])];
/// let speedup = slow / fast;
/// let [low, high] = speedup.interval().expect("both have several replications");
/// assert!(low < speedup.mean && speedup.mean < high && (3.8..4.0).contains(&speedup.mean));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; `None` if one run in one batch gave the figure.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// A figure without an interval.
    pub fn exact(mean: f64) -> Estimate {
        Estimate { mean, half_width: None }
    }

    /// From independent replications, or batches of them.
    pub fn of(replications: &[f64]) -> Estimate {
        let interval = Interval::of_means(replications);
        Estimate { mean: interval.mean, half_width: Some(interval.half_width).filter(|width| width.is_finite()) }
    }

    /// The figure with its unit, with as many places as its size suggests.
    pub fn with_unit(&self, unit: &str) -> String {
        let places = match self.mean.abs() {
            n if n >= 100.0 => 0,
            n if n >= 10.0 => 1,
            _ => 2,
        };
        format!("{} {unit}", grouped_decimal(self.mean, places)).trim_end().to_owned()
    }

    /// The interval's ends.
    pub fn interval(&self) -> Option<[f64; 2]> {
        self.half_width.map(|width| [self.mean - width, self.mean + width])
    }

    /// Whether the figure lies in a range: it does if its whole interval does, it does not if none of its interval does, and else
    /// that is undecided. Without an interval the mean decides.
    pub fn within(self, range: RangeInclusive<f64>) -> Verdict {
        let [low, high] = self.interval().unwrap_or([self.mean; 2]);
        match (range.contains(&low) && range.contains(&high), high < *range.start() || low > *range.end()) {
            (true, _) => Verdict::Holds,
            (_, true) => Verdict::Differs,
            _ => Verdict::Undecided,
        }
    }

    /// Whether the figure is at least this; see [`Estimate::within`].
    pub fn at_least(self, limit: f64) -> Verdict {
        self.within(limit..=f64::INFINITY)
    }

    /// Whether the figure is at most this; see [`Estimate::within`].
    pub fn at_most(self, limit: f64) -> Verdict {
        self.within(f64::NEG_INFINITY..=limit)
    }

    /// Whether this is the greater figure by more than chance explains: the interval of the difference lies above zero.
    pub fn exceeds(self, other: Estimate) -> bool {
        let difference = self - other;
        difference.mean > difference.half_width.unwrap_or(0.0)
    }

    fn with(mean: f64, parts: [Option<f64>; 2]) -> Estimate {
        let half_width = match parts {
            [None, None] => None,
            [a, b] => Some(a.unwrap_or(0.0).hypot(b.unwrap_or(0.0))),
        };
        Estimate { mean, half_width }
    }
}

impl Add for Estimate {
    type Output = Estimate;

    fn add(self, other: Estimate) -> Estimate {
        Estimate::with(self.mean + other.mean, [self.half_width, other.half_width])
    }
}

impl Sub for Estimate {
    type Output = Estimate;

    fn sub(self, other: Estimate) -> Estimate {
        Estimate::with(self.mean - other.mean, [self.half_width, other.half_width])
    }
}

impl Mul<f64> for Estimate {
    type Output = Estimate;

    fn mul(self, factor: f64) -> Estimate {
        Estimate { mean: self.mean * factor, half_width: self.half_width.map(|width| width * factor.abs()) }
    }
}

impl Div for Estimate {
    type Output = Estimate;

    fn div(self, other: Estimate) -> Estimate {
        let quotient = self.mean / other.mean;
        let above = self.half_width.map(|width| width / other.mean.abs());
        let below = other.half_width.map(|width| width / (other.mean / quotient).abs());
        Estimate::with(quotient, [above, below])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_add_in_squares() {
        let a = Estimate { mean: 30.0, half_width: Some(3.0) };
        let b = Estimate { mean: 10.0, half_width: Some(4.0) };
        assert_eq!((a + b).half_width, Some(5.0));
        assert_eq!((a - b).interval(), Some([15.0, 25.0]));
        let quotient = a / b;
        assert_eq!(quotient.mean, 3.0);
        assert!((quotient.half_width.unwrap() - 3.0 * 0.1_f64.hypot(0.4)).abs() < 1e-12);
        assert_eq!((a * -2.0).half_width, Some(6.0));
        assert!(a.exceeds(b) && !b.exceeds(a) && !a.exceeds(b + Estimate::exact(16.0)));
        assert_eq!((Estimate::exact(1.0) / Estimate::exact(2.0)).half_width, None);
    }

    #[test]
    fn one_replication_has_no_interval() {
        assert_eq!(Estimate::of(&[7.0]), Estimate::exact(7.0));
        // Of 1, 2, 3: deviation 1, t = 2.920 with two degrees of freedom.
        let three = Estimate::of(&[1.0, 2.0, 3.0]);
        assert!((three.half_width.unwrap() - 2.920 / 3.0_f64.sqrt()).abs() < 1e-12);
    }
}
