//! The one notion of time: nanoseconds since the driver's clock started.

use std::fmt;

/// One microsecond, in nanoseconds.
pub const MICROSECOND_NS: u64 = 1_000;
/// One millisecond, in nanoseconds.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// One second, in nanoseconds.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A moment on the driver's clock: nanoseconds since that clock started, wall time or virtual time alike.
///
/// ```
/// use entresol_base::Instant;
/// use entresol_base::time::MILLISECOND_NS;
///
/// let began = Instant::START;
/// let ended = began.plus_ns(3 * MILLISECOND_NS);
/// assert_eq!(ended.since_ns(began), 3_000_000);
/// assert_eq!(ended.seconds(), 0.003);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The moment at which the clock starts.
    pub const START: Instant = Instant(0);
    /// Later than every moment that is ever reached.
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The moment `ns` nanoseconds after the start of the clock.
    pub const fn from_ns(ns: u64) -> Instant {
        Instant(ns)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// Seconds since the start of the clock.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / SECOND_NS as f64
    }

    /// The moment `ns` nanoseconds later, or [`Instant::NEVER`] if that is beyond the clock's range.
    pub const fn plus_ns(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to `self`; zero if `earlier` is the later of the two.
    pub const fn since_ns(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.seconds())
    }
}

/// The clock of one of several simulated machines, beside the time that all of them share.
///
/// It never runs slower than that time, so that it shows each moment of it as another one. How two clocks differ is a matter of both.
///
/// ```
/// use entresol_base::{Clock, Instant};
///
/// let fast = Clock::new(1_000, 250_000);
/// assert_eq!(fast.shows(Instant::from_ns(800)), Instant::from_ns(2_000));
/// assert_eq!(fast.when(Instant::from_ns(2_000)), Instant::from_ns(800));
/// assert_eq!(Clock::default().shows(Instant::from_ns(800)), Instant::from_ns(800));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    ahead_ns: u64,
    gain_ppm: u64,
}

/// What a gain is a part of.
const MILLION: u128 = 1_000_000;

impl Clock {
    /// One that is so far ahead when the shared time starts, and gains this many millionths of what passes.
    pub const fn new(ahead_ns: u64, gain_ppm: u64) -> Clock {
        Clock { ahead_ns, gain_ppm }
    }

    /// What it shows at a moment of the shared time.
    pub fn shows(self, at: Instant) -> Instant {
        // Most gain nothing, and are read often.
        if self.gain_ppm == 0 || at == Instant::NEVER {
            return at.plus_ns(self.ahead_ns);
        }
        at.plus_ns(narrow(u128::from(at.0) * u128::from(self.gain_ppm) / MILLION)).plus_ns(self.ahead_ns)
    }

    /// The first moment of the shared time at which it shows this one or a later one.
    pub fn when(self, shown: Instant) -> Instant {
        if shown == Instant::NEVER {
            return shown;
        }
        let passed_ns = shown.0.saturating_sub(self.ahead_ns);
        if self.gain_ppm == 0 {
            return Instant(passed_ns);
        }
        Instant(narrow((u128::from(passed_ns) * MILLION).div_ceil(MILLION + u128::from(self.gain_ppm))))
    }
}

fn narrow(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn a_clock_shows_each_moment_as_another_one_and_none_before_its_time() {
        let mut random = Random::stream(1, "clocks");
        for _ in 0..10_000 {
            let clock = Clock::new(random.below(1 << 50), random.below(1_000_000));
            let range = 1 << random.between(1, 55);
            let at = Instant(random.below(range));
            let shown = clock.shows(at);
            assert_eq!(clock.when(shown), at, "{clock:?}");
            assert!(clock.shows(at.plus_ns(1)) > shown, "{clock:?}");
            let asked = Instant(random.below(range));
            let when = clock.when(asked);
            assert!(clock.shows(when) >= asked, "{clock:?}: {asked}");
            assert!(when == Instant::START || clock.shows(Instant(when.0 - 1)) < asked, "{clock:?}: {asked}");
        }
        let clock = Clock::new(5, 1);
        assert_eq!([clock.shows(Instant::NEVER), clock.when(Instant::NEVER)], [Instant::NEVER; 2]);
    }
}
