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
