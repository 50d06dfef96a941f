//! How much longer a run may take because its backups are asked to be slow.

use base::Instant;
use std::cell::Cell;

/// The time of backups that read no faster than they are told to. Others are as fast as they can.
#[derive(Default)]
pub struct ThrottledTime {
    ended_ns: Cell<u64>,
    /// When the one that is under way began.
    began: Cell<Option<Instant>>,
}

impl ThrottledTime {
    /// A backup begins. It reads no more than this number of bytes a second, if that is limited.
    pub fn begin(&self, now: Instant, bytes_per_second: Option<u64>) {
        self.began.set(bytes_per_second.map(|_| now));
    }

    /// It has ended.
    pub fn end(&self, now: Instant) {
        let took_ns = self.began.take().map_or(0, |began| now.since_ns(began));
        self.ended_ns.set(self.ended_ns.get() + took_ns);
    }

    /// How long they have taken, in nanoseconds; the one that is under way, which may never end, no more than `under_way_ns_max`.
    pub fn ns(&self, now: Instant, under_way_ns_max: u64) -> u64 {
        let under_way_ns = self.began.get().map_or(0, |began| now.since_ns(began));
        self.ended_ns.get() + under_way_ns.min(under_way_ns_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_backups_that_are_asked_to_be_slow_prolong_a_run() {
        let (time, at) = (ThrottledTime::default(), Instant::from_ns);
        time.begin(at(100), None);
        assert_eq!(time.ns(at(400), 1_000), 0);
        time.end(at(500));
        assert_eq!(time.ns(at(500), 1_000), 0);
        time.begin(at(600), Some(1 << 20));
        assert_eq!([650, 10_000].map(|now| time.ns(at(now), 1_000)), [50, 1_000]);
        time.end(at(10_600));
        assert_eq!(time.ns(at(20_000), 1_000), 10_000);
        time.begin(at(30_000), None);
        assert_eq!(time.ns(at(31_000), 1_000), 10_000);
    }
}
