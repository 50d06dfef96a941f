use crate::Instant;

/// A quantity that changes in steps, averaged over time: queue lengths, busy servers.
///
/// ```
/// use entresol_base::Instant;
/// use entresol_base::statistics::TimeWeighted;
///
/// let mut queue = TimeWeighted::new(Instant::START, 0.0);
/// queue.set(Instant::from_ns(10), 4.0);
/// assert_eq!(queue.mean(Instant::from_ns(20)), 2.0, "empty for one half of the time, four in it for the other");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeWeighted {
    value: f64,
    since: Instant,
    start: Instant,
    area: f64,
    max: f64,
}

impl TimeWeighted {
    /// Starts at `value` at the moment `now`.
    pub fn new(now: Instant, value: f64) -> TimeWeighted {
        TimeWeighted { value, since: now, start: now, area: 0.0, max: value }
    }

    /// The quantity becomes `value` at `now`.
    pub fn set(&mut self, now: Instant, value: f64) {
        self.area += self.value * now.since_ns(self.since) as f64;
        self.since = now;
        self.value = value;
        self.max = self.max.max(value);
    }

    /// The quantity changes by `delta` at `now`.
    pub fn add(&mut self, now: Instant, delta: f64) {
        self.set(now, self.value + delta);
    }

    /// Forgets the past (the end of a warm-up) and goes on from the present value.
    pub fn restart(&mut self, now: Instant) {
        *self = TimeWeighted::new(now, self.value);
    }

    /// The present value.
    pub fn value(&self) -> f64 {
        self.value
    }

    /// The largest value so far.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// The integral of the quantity over time up to `now`, in value times nanoseconds.
    pub fn integral(&self, now: Instant) -> f64 {
        self.area + self.value * now.since_ns(self.since) as f64
    }

    /// The mean over the time from the start to `now`; zero if no time has passed.
    pub fn mean(&self, now: Instant) -> f64 {
        let span = now.since_ns(self.start) as f64;
        if span > 0.0 { self.integral(now) / span } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_weighs_by_time() {
        let mut length = TimeWeighted::new(Instant::START, 0.0);
        length.add(Instant::from_ns(10), 2.0);
        length.add(Instant::from_ns(30), -1.0);
        assert_eq!(length.mean(Instant::from_ns(40)), (2.0 * 20.0 + 10.0) / 40.0);
        length.restart(Instant::from_ns(40));
        assert_eq!(length.mean(Instant::from_ns(50)), 1.0);
        assert_eq!(length.max(), 1.0);
    }
}
