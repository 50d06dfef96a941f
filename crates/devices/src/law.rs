use base::Random;
use base::units::{UnitError, format_duration_ns, parse_duration_ns};
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt;
use std::str::FromStr;

/// How long a service takes: a distribution over nanoseconds.
///
/// Written as `"15 ms"` or `"fixed 15 ms"` (always exactly this: the default), `"exponential 15 ms"` (with this mean) or
/// `"uniform 10 ms to 30 ms"`.
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Always exactly this long.
    Fixed(u64),
    /// Exponentially distributed with this mean.
    Exponential(u64),
    /// Uniformly distributed from the first to the second.
    Uniform(u64, u64),
}

impl Law {
    /// No time at all.
    pub const NONE: Law = Law::Fixed(0);

    /// Draws one service time in nanoseconds.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match *self {
            Law::Fixed(ns) => ns,
            Law::Exponential(mean) => rounded(random.exponential(mean as f64)),
            Law::Uniform(low, high) => random.between(low, high),
        }
    }

    /// The mean in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        match *self {
            Law::Fixed(ns) | Law::Exponential(ns) => ns as f64,
            Law::Uniform(low, high) => (low as f64 + high as f64) / 2.0,
        }
    }
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
            Some((word, _)) if word.chars().all(char::is_alphabetic) => {
                return Err(format!("'{word}' is not a law; write fixed, exponential or uniform"));
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
        let words = |ns: u64| format_duration_ns(ns as f64);
        match *self {
            Law::Fixed(ns) => write!(f, "fixed {}", words(ns)),
            Law::Exponential(ns) => write!(f, "exponential {}", words(ns)),
            Law::Uniform(low, high) => write!(f, "uniform {} to {}", words(low), words(high)),
        }
    }
}

impl<'de> Deserialize<'de> for Law {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Law, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
