//! Group commit: when the commits that wait are written (DeWitt et al. 1984; Helland et al. 1987).
//!
//! Clients that commit together would stay together: all run, then all wait for one log write. An idle log device is
//! therefore given the first half of them, and the executor asks the driver for completions after sixteen tasks, so
//! that one half runs while the records of the other are written.
//!
//! Clients that are threads commit one by one, as they are woken, and a write that is begun as soon as it may be has few of them; but
//! each write costs the same, this thread and the system's that serve the device. So writes may be paced while commits come often.

use crate::{Error, Result};
use base::Instant;
use base::time::MICROSECOND_NS;

/// When a commit's log records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommit {
    /// Each commit closes the present log page and submits its own write at once, several in flight (Rahm 1991: one log
    /// page write per update transaction).
    None,
    /// While the device is idle: as soon as half of the commits that lately waited together have come, so that one half works
    /// while the other half's records are written. Otherwise when the ready tasks have run, if another write may be in flight.
    /// A device known to serve one write at a time gets all ready commits at once: two halves would wait for each other.
    Adaptive,
    /// As `Adaptive` for few clients, on slow devices, and on those that serve one write at a time. But while commits come often, a write
    /// waits for half of those that lately waited together, or until 150 us after the last one began.
    Paced,
    /// When a number of commits wait, but at latest `delay_ns_max` after the first of them.
    Size {
        /// How many commits make a group.
        transactions: u32,
        /// How long the first waits at most, in nanoseconds.
        delay_ns_max: u64,
    },
    /// A number of nanoseconds after the first waiting commit.
    Delay {
        /// The delay in nanoseconds.
        ns: u64,
    },
    /// When the open log page has no room for another commit record like the last ("at certain times, such as when a page is
    /// full", Garcia-Molina and Salem 1988, section 2.1), but at latest `delay_ns_max` after the first commit that waits.
    Page {
        /// How long the first waits at most, in nanoseconds.
        delay_ns_max: u64,
    },
}

impl GroupCommit {
    pub(super) fn check(&self) -> Result<()> {
        match self {
            GroupCommit::Size { transactions: 0, .. } => {
                Err(Error::Setting("a commit group has at least 1 transaction".into()))
            }
            _ => Ok(()),
        }
    }
}

/// How long after the last write the next one begins at the latest, where writes are paced.
const PACE_NS: u64 = 150 * MICROSECOND_NS;
/// How many commits must lately have waited together for writes to be paced,
const CROWD_MIN: u32 = 8;
/// and how many must come in that time.
const COMING_MIN: u64 = 4;
/// A pause between two commits that is longer counts as this one.
const GAP_NS_MAX: u64 = 1_000 * MICROSECOND_NS;
/// How many times as many writes it takes to forget a crowd where they are paced: while threads wait to be woken they do not wait here.
const MEMORY: u64 = 16;

/// What a commit causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitDecision {
    /// The committing task writes by itself.
    WriteOwn,
    /// The writer writes as soon as a write may be submitted.
    Write,
    /// The group waits for more; it was begun before.
    Gather,
    /// The commit begins a group, to be written after this number of nanoseconds.
    Begin(u64),
}

/// The commits since the log buffer was last cut.
pub(super) struct CommitGroup {
    policy: GroupCommit,
    /// Whether a write under way keeps others from being served.
    is_serial: bool,
    /// Names the group, so that a late timer does not close a younger one.
    number: u64,
    commits: u32,
    /// How many commits waited at once lately, in this group or for writes in flight; forgotten by and by.
    crowd: u32,
    /// When the buffer was last cut for commits.
    cut: Instant,
    /// The mean time between two commits lately.
    gap_ns: u64,
}

impl CommitGroup {
    pub fn new(policy: GroupCommit, is_serial: bool) -> CommitGroup {
        let (cut, gap_ns) = (Instant::START, GAP_NS_MAX);
        CommitGroup { policy, is_serial, number: 0, commits: 0, crowd: 0, cut, gap_ns }
    }

    /// Takes one more commit into the group, while `in_flight` earlier ones are being written. `is_page_full`: whether another
    /// one would begin a log page.
    pub fn join(&mut self, in_flight: u32, is_page_full: bool, now: Instant) -> CommitDecision {
        self.commits += 1;
        self.crowd = self.crowd.max(in_flight + self.commits);
        match self.policy {
            GroupCommit::Adaptive | GroupCommit::Paced if self.is_serial && self.crowd > 1 => CommitDecision::Write,
            GroupCommit::Adaptive | GroupCommit::Paced if in_flight == 0 && self.is_half() => CommitDecision::WriteOwn,
            GroupCommit::Paced if !self.is_half() && self.is_busy() => self.pace(now),
            GroupCommit::Adaptive | GroupCommit::Paced => CommitDecision::Write,
            GroupCommit::None => CommitDecision::WriteOwn,
            GroupCommit::Size { transactions, .. } if self.commits >= transactions => CommitDecision::Write,
            GroupCommit::Page { .. } if is_page_full => CommitDecision::Write,
            GroupCommit::Size { delay_ns_max: ns, .. }
            | GroupCommit::Delay { ns }
            | GroupCommit::Page { delay_ns_max: ns } => {
                if self.commits == 1 {
                    CommitDecision::Begin(ns)
                } else {
                    CommitDecision::Gather
                }
            }
        }
    }

    /// Whether half of those that lately waited together are there.
    fn is_half(&self) -> bool {
        2 * self.commits >= self.crowd
    }

    /// Whether commits come so often that it is worth waiting for more.
    fn is_busy(&self) -> bool {
        self.crowd >= CROWD_MIN && COMING_MIN * self.gap_ns <= PACE_NS
    }

    /// Leaves the rest of the pace to the group.
    fn pace(&self, now: Instant) -> CommitDecision {
        let since_ns = now.since_ns(self.cut);
        match since_ns < PACE_NS {
            false => CommitDecision::Write,
            true if self.commits == 1 => CommitDecision::Begin(PACE_NS - since_ns),
            true => CommitDecision::Gather,
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether commits wait in it.
    pub fn has_commits(&self) -> bool {
        self.commits > 0
    }

    /// The log buffer is cut: the waiting commits are written now. Returns how many commits the group had.
    pub fn close(&mut self, now: Instant) -> u32 {
        self.number += 1;
        if self.policy != GroupCommit::Paced || self.number.is_multiple_of(MEMORY) {
            self.crowd -= self.crowd.div_ceil(8);
        }
        if self.commits > 0 {
            let gap_ns = (now.since_ns(self.cut) / u64::from(self.commits)).min(GAP_NS_MAX);
            self.gap_ns = (7 * self.gap_ns + gap_ns) / 8;
            self.cut = now;
        }
        std::mem::take(&mut self.commits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_as_named() {
        let decisions = |policy, n| {
            let mut group = CommitGroup::new(policy, false);
            (0..n).map(|_| group.join(1, false, Instant::START)).collect::<Vec<_>>()
        };
        use CommitDecision::*;
        assert_eq!(decisions(GroupCommit::None, 2), [WriteOwn, WriteOwn]);
        assert_eq!(decisions(GroupCommit::Adaptive, 2), [Write, Write]);
        assert_eq!(decisions(GroupCommit::Delay { ns: 5 }, 3), [Begin(5), Gather, Gather]);
        let size = GroupCommit::Size { transactions: 3, delay_ns_max: 9 };
        assert_eq!(decisions(size, 4), [Begin(9), Gather, Write, Write]);
        assert_eq!(decisions(GroupCommit::Size { transactions: 1, delay_ns_max: 9 }, 1), [Write]);
        let page = GroupCommit::Page { delay_ns_max: 7 };
        assert_eq!(decisions(page, 3), [Begin(7), Gather, Gather]);
        assert_eq!(CommitGroup::new(page, false).join(0, true, Instant::START), Write);
    }

    #[test]
    fn an_idle_device_is_given_half_of_those_who_waited_together() {
        let mut group = CommitGroup::new(GroupCommit::Adaptive, false);
        assert_eq!(group.join(0, false, Instant::START), CommitDecision::WriteOwn);
        group.close(Instant::START);
        assert!((0..8).all(|_| group.join(1, false, Instant::START) == CommitDecision::Write));
        group.close(Instant::START);
        let first = (1..=8).find(|_| group.join(0, false, Instant::START) == CommitDecision::WriteOwn);
        assert_eq!(first, Some(4));
        group.close(Instant::START);
        for _ in 0..20 {
            group.join(0, false, Instant::START);
            group.close(Instant::START);
        }
        assert_eq!(group.join(0, false, Instant::START), CommitDecision::WriteOwn, "a crowd is forgotten");
    }

    #[test]
    fn a_device_that_serves_one_write_at_a_time_is_given_all_commits() {
        let mut group = CommitGroup::new(GroupCommit::Adaptive, true);
        assert_eq!(
            group.join(0, false, Instant::START),
            CommitDecision::WriteOwn,
            "one client alone waits for no other"
        );
        group.close(Instant::START);
        assert!((0..8).all(|_| group.join(1, false, Instant::START) == CommitDecision::Write));
        group.close(Instant::START);
        assert!((0..8).all(|_| group.join(0, false, Instant::START) == CommitDecision::Write));
    }

    #[test]
    fn a_closed_group_counts_its_commits_and_begins_anew() {
        let mut group = CommitGroup::new(GroupCommit::Delay { ns: 5 }, false);
        group.join(0, false, Instant::START);
        group.join(0, false, Instant::START);
        let number = group.number();
        assert_eq!(group.close(Instant::START), 2);
        assert_ne!(group.number(), number);
        assert_eq!(group.join(0, false, Instant::START), CommitDecision::Begin(5));
    }

    /// A moment, in microseconds.
    fn at(us: u64) -> Instant {
        Instant::from_ns(us * MICROSECOND_NS)
    }

    /// A group of which 64 commits lately waited together and came every `gap_us`. Returns also the moment of its last cut.
    fn crowded(policy: GroupCommit, is_serial: bool, gap_us: u64) -> (CommitGroup, u64) {
        let mut group = CommitGroup::new(policy, is_serial);
        let mut us = 0;
        for _ in 0..40 {
            us += 32 * gap_us;
            for _ in 0..32 {
                group.join(32, false, at(us));
            }
            group.close(at(us));
        }
        (group, us)
    }

    #[test]
    fn a_paced_write_waits_for_half_of_the_crowd_but_not_for_longer_than_the_pace() {
        // Whether or not another one is in flight.
        for (crowd, in_flight, enough) in [(12, 0, 6), (12, 4, 6), (64, 0, 32), (64, 20, 32)] {
            let (mut group, us) = crowded(GroupCommit::Paced, false, 4);
            group.crowd = crowd;
            assert_eq!(group.join(in_flight, false, at(us + 20)), CommitDecision::Begin(130 * MICROSECOND_NS));
            for commit in 2..=enough {
                let decision = group.join(in_flight, false, at(us + 100));
                assert_eq!(decision == CommitDecision::Gather, commit < enough, "{commit} of {crowd}: {decision:?}");
            }
            group.close(at(us + 140));
            // The pace is over: it is begun at once.
            assert_eq!(group.join(in_flight, false, at(us + 290)), CommitDecision::Write);
            assert_eq!(group.join(in_flight, false, at(us + 290)), CommitDecision::Write);
        }
    }

    #[test]
    fn what_is_not_worth_waiting_for_is_not_paced() {
        use CommitDecision::*;
        // Few come in the time: a slow device keeps them.
        let (mut group, us) = crowded(GroupCommit::Paced, false, 50);
        assert_eq!(group.join(20, false, at(us)), Write);
        // A device that serves one write at a time gets all that are ready.
        let (mut group, us) = crowded(GroupCommit::Paced, true, 4);
        assert_eq!(group.join(0, false, at(us)), Write);
        // Few clients.
        for clients in 1..CROWD_MIN {
            let mut groups = [GroupCommit::Adaptive, GroupCommit::Paced].map(|policy| CommitGroup::new(policy, false));
            for us in 0..100 {
                let [adaptive, paced] = groups.each_mut().map(|group| {
                    let decisions: Vec<_> =
                        (1..=clients).map(|n| group.join(clients - n, false, at(us * 10))).collect();
                    group.close(at(us * 10));
                    decisions
                });
                assert!(paced.iter().all(|decision| matches!(decision, WriteOwn | Write)), "{adaptive:?}, {paced:?}");
            }
        }
    }

    #[test]
    fn one_that_is_left_of_a_crowd_soon_waits_for_no_other() {
        let (mut group, mut us) = crowded(GroupCommit::Paced, false, 4);
        let mut waits = 0;
        for _ in 0..1_000 {
            us += 100;
            waits += u32::from(matches!(group.join(0, false, at(us)), CommitDecision::Begin(_)));
            group.close(at(us));
        }
        assert!(waits <= 4, "{waits}");
    }
}
