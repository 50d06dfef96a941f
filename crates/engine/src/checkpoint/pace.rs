//! How fast a sweep goes while no task waits for it.
//!
//! A sweep rests thirty-one times as long as it copies, so other tasks on the thread lose about a sixteenth to copies
//! and their writes, whatever the size of the database. It writes for a tenth of the time (`sweep_device_percent`), one
//! segment at once, because a log write behind the write of a segment takes twice as long; but it is never slower than
//! the growing log has room for. Copies alone set the pace at first, which filled a device slower than memory with
//! segments: a described NVMe device kept a third of its transactions beside back-to-back sweeps, and keeps all of them
//! now. With an interval, a sweep spreads its writes over half of that instead (`sweep_spread_percent`).

use crate::engine::SweepSettings;
use base::time::MILLISECOND_NS;
use base::{Instant, Lsn};

/// For each nanosecond that a sweep has kept the thread of the transactions, it pauses for this many: copies cost one part in
/// thirty-two, and the system's work for their writes about as much. On described hardware, steps take only the time that they
/// are charged with.
const REST: u64 = 31;

/// The longest pause between two writes, in nanoseconds, after which a sweep notices that a task waits for its end.
const REST_NS_MAX: u64 = 20 * MILLISECOND_NS;

/// The pace of one sweep over all sets.
pub(super) struct SweepPace {
    /// The share of the time in which it writes, in percent, if there is no interval to spread its writes over.
    percent: u8,
    /// The least time from one write to the next that spreads them over the interval, in nanoseconds.
    spread_ns: Option<u64>,
    /// When it began, and where in the log.
    began: Instant,
    begin: Lsn,
    /// Segments that have still to be taken.
    left: u64,
    /// How long the last write took, in nanoseconds.
    write_ns: u64,
}

impl SweepPace {
    /// Of a sweep over `segments` segments that begins now, where the log is at `begin`.
    pub fn new(settings: &SweepSettings, (now, begin): (Instant, Lsn), segments: u64) -> SweepPace {
        let spread_ns = |interval_ns: u64| {
            let spread_ns = u128::from(interval_ns) * u128::from(settings.spread_percent) / 100;
            REST_NS_MAX.min((spread_ns / u128::from(segments.max(1))) as u64)
        };
        SweepPace {
            percent: settings.device_percent,
            spread_ns: settings.interval_ns.filter(|interval_ns| *interval_ns > 0).map(spread_ns),
            began: now,
            begin,
            left: segments,
            write_ns: 0,
        }
    }

    /// Notes that a segment has been taken.
    pub fn took(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Notes that a write took so long, in nanoseconds.
    pub fn wrote(&mut self, write_ns: u64) {
        self.write_ns = write_ns;
    }

    /// How long it rests after a copy that kept the thread for so long, in nanoseconds.
    pub fn after_copy_ns(copy_ns: u64) -> u64 {
        copy_ns.saturating_mul(REST)
    }

    /// The time from the beginning of one write to that of the next, in nanoseconds; `None` if the device says it
    /// ([`SweepPace::after_write_ns`]).
    pub fn spread_ns(&self) -> Option<u64> {
        self.spread_ns.or((self.percent >= 100).then_some(0))
    }

    /// How long it rests after the last write, in nanoseconds: as its share of the device's time says, but no
    /// longer than the log, which is at `end` now, has `room` for, in bytes.
    pub fn after_write_ns(&self, (now, end): (Instant, Lsn), room: u64) -> u64 {
        let percent = u64::from(self.percent);
        let rest_ns = self.write_ns.saturating_mul(100 - percent) / percent;
        rest_ns.min(self.room_ns((now, end), room)).min(REST_NS_MAX)
    }

    /// The time for each segment that is left in which the log, as fast as it has grown since the beginning, fills half of its
    /// room. So the log has a third to spare while it keeps two sweeps.
    fn room_ns(&self, (now, end): (Instant, Lsn), room: u64) -> u64 {
        let logged = (end.0 - self.begin.0).max(1);
        let fill_ns = u128::from(now.since_ns(self.began)) * u128::from(room / 2) / u128::from(logged);
        u64::try_from(fill_ns / u128::from(self.left.max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: u64 = 1_000;
    const BEGIN: Lsn = Lsn(1 << 20);

    fn pace(device_percent: u8, interval_ns: u64) -> SweepPace {
        let settings = SweepSettings { device_percent, interval_ns: Some(interval_ns), ..SweepSettings::default() };
        SweepPace::new(&settings, (Instant::START, BEGIN), 1_000)
    }

    fn at(ms: u64, logged: u64) -> (Instant, Lsn) {
        (Instant::START.plus_ns(ms * MILLISECOND_NS), Lsn(BEGIN.0 + logged))
    }

    #[test]
    fn it_writes_for_its_share_of_the_time() {
        let rest_ns = |percent, write_ns| {
            let mut pace = pace(percent, 0);
            pace.wrote(write_ns);
            pace.after_write_ns(at(5, 1_000), 1 << 40)
        };
        assert_eq!(rest_ns(10, 100 * MICROSECOND), 900 * MICROSECOND);
        assert_eq!(rest_ns(50, 100 * MICROSECOND), 100 * MICROSECOND);
        assert_eq!(rest_ns(1, MILLISECOND_NS), REST_NS_MAX);
        assert_eq!((pace(10, 0).spread_ns(), pace(100, 0).spread_ns()), (None, Some(0)));
    }

    #[test]
    fn it_spreads_its_writes_over_half_of_an_interval_whatever_the_device_takes() {
        assert_eq!(pace(10, 8_000 * MILLISECOND_NS).spread_ns(), Some(4 * MILLISECOND_NS));
        assert_eq!(pace(10, 1).spread_ns(), Some(0));
    }

    #[test]
    fn a_log_that_fills_up_makes_it_faster() {
        let mut pace = pace(10, 0);
        pace.wrote(MILLISECOND_NS);
        // 10 MB in 100 ms; 100 MB are free, half of that lasts for 500 ms, and 1,000 segments are left, then 100.
        let rest_ns = |pace: &SweepPace| pace.after_write_ns(at(100, 10_000_000), 100_000_000);
        assert_eq!(rest_ns(&pace), 500 * MICROSECOND);
        (0..900).for_each(|_| pace.took());
        assert_eq!(rest_ns(&pace), 5_000 * MICROSECOND);
        (0..99).for_each(|_| pace.took());
        assert_eq!(rest_ns(&pace), 9_000 * MICROSECOND, "its share");
        assert_eq!(pace.after_write_ns(at(100, 10_000_000), 0), 0, "the log is full");
    }
}
