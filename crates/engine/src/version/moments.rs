//! Which moment of the log was when.
//!
//! A commit's time is its log position, and a snapshot waits until its moment is durable before it shows anything. So
//! readers need no wait at their end, and what a reader was shown is never lost.

use base::time::MILLISECOND_NS;
use base::{Instant, Lsn};
use std::collections::VecDeque;

/// Commits nearer to each other in time count as one, in nanoseconds.
const RESOLUTION_NS: u64 = 10 * MILLISECOND_NS;

/// The times of commits, oldest first; those that can no longer be travelled to are forgotten.
#[derive(Default)]
pub(super) struct Moments {
    commits: VecDeque<(Instant, Lsn)>,
}

impl Moments {
    /// A commit is at this position.
    pub(super) fn note(&mut self, now: Instant, commit: Lsn) {
        match self.commits.back_mut() {
            Some((at, last)) if now.since_ns(*at) < RESOLUTION_NS => *last = commit,
            _ => self.commits.push_back((now, commit)),
        }
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.commits.len()
    }

    /// Forgets what was before `time`, but for the last of it, and returns that moment: readers of later times need what was
    /// replaced after it.
    pub(super) fn forget_before(&mut self, time: Instant) -> Option<Lsn> {
        while self.commits.get(1).is_some_and(|(at, _)| *at <= time) {
            self.commits.pop_front();
        }
        self.commits.front().filter(|(at, _)| *at <= time).map(|(_, commit)| *commit)
    }

    /// From when on times lead to moments that are not before `oldest`, if any is known.
    pub(super) fn since(&self, oldest: Lsn) -> Option<Instant> {
        self.commits.iter().find(|(_, commit)| *commit >= oldest).map(|(at, _)| *at)
    }

    /// The last commit by that time, to the resolution; `None` if that is forgotten or was none.
    pub(super) fn at(&self, time: Instant) -> Option<Lsn> {
        let after = self.commits.partition_point(|(at, _)| *at <= time);
        after.checked_sub(1).map(|last| self.commits[last].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lead_to_the_last_commit_before_them() {
        let time = |ms: u64| Instant::from_ns(ms * MILLISECOND_NS);
        let mut moments = Moments::default();
        for (ms, lsn) in [(100, 1), (105, 2), (200, 3), (300, 4)] {
            moments.note(time(ms), Lsn(lsn));
        }
        let at = |moments: &Moments, ms| moments.at(time(ms)).map(|lsn| lsn.0);
        assert_eq!([99, 100, 199, 200, 999].map(|ms| at(&moments, ms)), [None, Some(2), Some(2), Some(3), Some(4)]);
        assert_eq!(
            [0, 2, 3, 4].map(|oldest| moments.since(Lsn(oldest))),
            [100, 100, 200, 300].map(|ms| Some(time(ms)))
        );
        assert_eq!(moments.since(Lsn(5)), None);
        assert_eq!(moments.forget_before(time(50)), None);
        assert_eq!(moments.forget_before(time(250)), Some(Lsn(3)));
        assert_eq!([150, 250].map(|ms| at(&moments, ms)), [None, Some(3)]);
    }
}
