use base::Random;
use base::units::{UnitError, format_duration_ns, parse_duration_ns};
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How long a service takes: a distribution over nanoseconds.
///
/// Written as `"15 ms"` or `"fixed 15 ms"` (always exactly this: the default), `"exponential 15 ms"` (with this mean),
/// `"uniform 10 ms to 30 ms"`, `"quantiles 0% 40 us, 50% 58 us, 99% 400 us, 100% 2 ms"` (as measured: straight lines between
/// the points) or `"mixture 98% 58 us; 2% exponential 1 ms"` (one of these laws, drawn each time).
///
/// ```
/// use base::Random;
/// use entresol_devices::Law;
///
/// let law: Law = "exponential 15 ms".parse()?;
/// assert_eq!(law, Law::Exponential(15_000_000));
/// let mut random = Random::stream(1, "service");
/// let mean_ns = (0..10_000).map(|_| law.draw(&mut random) as f64).sum::<f64>() / 10_000.0;
/// assert!((mean_ns / law.mean_ns() - 1.0).abs() < 0.05);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// Always exactly this long.
    Fixed(u64),
    /// Exponentially distributed with this mean.
    Exponential(u64),
    /// Uniformly distributed from the first to the second.
    Uniform(u64, u64),
    /// The inverse of the distribution function: shares in ascending order, the first 0 and the last 1, each with the time that
    /// this share of the services does not exceed.
    Quantiles(Arc<[(f64, u64)]>),
    /// One of these laws, each with this probability; together these are 1, and none is a mixture itself.
    Mixture(Arc<[(f64, Law)]>),
}

impl Law {
    /// No time at all.
    pub const NONE: Law = Law::Fixed(0);

    /// Draws one service time in nanoseconds.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Law::Fixed(ns) => *ns,
            Law::Exponential(mean) => rounded(random.exponential(*mean as f64)),
            Law::Uniform(low, high) => random.between(*low, *high),
            Law::Quantiles(points) => quantile(points, random.unit()),
            Law::Mixture(laws) => {
                let mut at = random.unit();
                let chosen = laws.iter().find(|(share, _)| {
                    at -= share;
                    at < 0.0
                });
                chosen.unwrap_or(&laws[laws.len() - 1]).1.draw(random)
            }
        }
    }

    /// The mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        match self {
            Law::Fixed(ns) | Law::Exponential(ns) => *ns as f64,
            Law::Uniform(low, high) => (*low as f64 + *high as f64) / 2.0,
            Law::Quantiles(points) => {
                let middle =
                    |pair: &[(f64, u64)]| (pair[1].0 - pair[0].0) * (pair[0].1 as f64 + pair[1].1 as f64) / 2.0;
                points.windows(2).map(middle).sum()
            }
            Law::Mixture(laws) => laws.iter().map(|(share, law)| share * law.mean_ns()).sum(),
        }
    }

    /// The law by quantiles through these points.
    ///
    /// # Errors
    /// What is wrong with them: shares and times ascend, the first share is 0, the last is 1.
    pub fn quantiles(points: Vec<(f64, u64)>) -> Result<Law, String> {
        let ascends = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        match (points.first(), points.last()) {
            (Some((0.0, _)), Some((1.0, _))) if ascends => Ok(Law::Quantiles(points.into())),
            _ => {
                Err("quantiles begin at 0%, end at 100% and ascend, as in \"0% 40 us, 50% 58 us, 100% 2 ms\""
                    .to_owned())
            }
        }
    }

    /// The law that draws one of these laws, each with its probability.
    ///
    /// # Errors
    /// What is wrong with them: the probabilities add up to 1, and none of the laws is a mixture.
    pub fn mixture(laws: Vec<(f64, Law)>) -> Result<Law, String> {
        let sum: f64 = laws.iter().map(|(share, _)| share).sum();
        if laws.iter().any(|(_, law)| matches!(law, Law::Mixture(_))) {
            return Err("a part of a mixture is no mixture; write all parts one after the other".to_owned());
        }
        if (sum - 1.0).abs() > 1e-6 {
            return Err("the shares of a mixture add up to 100%, as in \"98% 58 us; 2% exponential 1 ms\"".to_owned());
        }
        Ok(Law::Mixture(laws.into()))
    }
}

/// The time at this share, on a straight line between the points around it.
fn quantile(points: &[(f64, u64)], share: f64) -> u64 {
    let above = points.partition_point(|(at, _)| *at <= share).clamp(1, points.len() - 1);
    let ((low, from), (high, to)) = (points[above - 1], points[above]);
    from + rounded((to - from) as f64 * (share - low) / (high - low))
}

/// The share at the front of a text such as `50% 58 us`, and the rest.
fn share(text: &str) -> Result<(f64, &str), String> {
    let wrong = || format!("'{}' does not begin with a share such as 50%", text.trim());
    let (share, rest) = text.trim().split_once('%').ok_or_else(wrong)?;
    let share = share.trim().parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share)).ok_or_else(wrong)?;
    Ok((share / 100.0, rest))
}

/// The nearest whole number of nanoseconds; `f64::round` is a library call on the x86-64 baseline.
#[inline]
pub(crate) fn rounded(ns: f64) -> u64 {
    (ns + 0.5) as u64
}

impl FromStr for Law {
    type Err = String;

    fn from_str(text: &str) -> Result<Law, String> {
        let text = text.trim();
        let duration = |text: &str| parse_duration_ns(text).map_err(|error: UnitError| error.to_string());
        let law = match text.split_once(char::is_whitespace) {
            Some(("fixed", rest)) => Law::Fixed(duration(rest)?),
            Some(("exponential", rest)) => Law::Exponential(duration(rest)?),
            Some(("uniform", rest)) => {
                let (low, high) = rest.split_once(" to ").ok_or("write \"uniform 10 ms to 30 ms\"")?;
                Law::Uniform(duration(low)?, duration(high)?)
            }
            Some(("quantiles", rest)) => {
                let point = |text| share(text).and_then(|(share, time)| Ok((share, duration(time.trim())?)));
                Law::quantiles(rest.split(',').map(point).collect::<Result<_, _>>()?)?
            }
            Some(("mixture", rest)) => {
                let part = |text| share(text).and_then(|(share, law)| Ok((share, law.parse()?)));
                Law::mixture(rest.split(';').map(part).collect::<Result<_, _>>()?)?
            }
            Some((word, _)) if word.chars().all(char::is_alphabetic) => {
                return Err(format!("'{word}' is not a law; write fixed, exponential, uniform, quantiles or mixture"));
            }
            _ => Law::Fixed(duration(text)?),
        };
        match law {
            Law::Uniform(low, high) if low > high => Err(format!("'{text}' ends before it begins")),
            law => Ok(law),
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |ns: &u64| format_duration_ns(*ns as f64);
        let percent = |share: &f64| (share * 1e8).round() / 1e6;
        match self {
            Law::Fixed(ns) => write!(f, "fixed {}", words(ns)),
            Law::Exponential(ns) => write!(f, "exponential {}", words(ns)),
            Law::Uniform(low, high) => write!(f, "uniform {} to {}", words(low), words(high)),
            Law::Quantiles(points) => {
                let points = points.iter().map(|(share, ns)| format!("{}% {}", percent(share), words(ns)));
                write!(f, "quantiles {}", points.collect::<Vec<_>>().join(", "))
            }
            Law::Mixture(laws) => {
                let laws = laws.iter().map(|(share, law)| format!("{}% {law}", percent(share)));
                write!(f, "mixture {}", laws.collect::<Vec<_>>().join("; "))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Law {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Law, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
