//! Group commit: when the commits that wait are written (DeWitt et al. 1984; Helland et al. 1987).
//!
//! Clients that commit together would stay together: all run, then all wait for one log write. An idle log device is
//! therefore given the first half of them, and the executor asks the driver for completions after sixteen tasks, so
//! that one half runs while the records of the other are written.

use crate::{Error, Result};

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
}

impl CommitGroup {
    pub fn new(policy: GroupCommit, is_serial: bool) -> CommitGroup {
        CommitGroup { policy, is_serial, number: 0, commits: 0, crowd: 0 }
    }

    /// Takes one more commit into the group, while `in_flight` earlier writes are in flight. `is_page_full`: whether another
    /// one would begin a log page.
    pub fn join(&mut self, in_flight: u32, is_page_full: bool) -> CommitDecision {
        self.commits += 1;
        self.crowd = self.crowd.max(in_flight + self.commits);
        match self.policy {
            GroupCommit::None => CommitDecision::WriteOwn,
            GroupCommit::Adaptive if self.is_serial && self.crowd > 1 => CommitDecision::Write,
            GroupCommit::Adaptive if in_flight == 0 && 2 * self.commits >= self.crowd => CommitDecision::WriteOwn,
            GroupCommit::Adaptive => CommitDecision::Write,
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

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether commits wait in it.
    pub fn has_commits(&self) -> bool {
        self.commits > 0
    }

    /// The log buffer is cut: the waiting commits are written now. Returns how many commits the group had.
    pub fn close(&mut self) -> u32 {
        self.number += 1;
        self.crowd -= self.crowd.div_ceil(8);
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
            (0..n).map(|_| group.join(1, false)).collect::<Vec<_>>()
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
        assert_eq!(CommitGroup::new(page, false).join(0, true), Write);
    }

    #[test]
    fn an_idle_device_is_given_half_of_those_who_waited_together() {
        let mut group = CommitGroup::new(GroupCommit::Adaptive, false);
        assert_eq!(group.join(0, false), CommitDecision::WriteOwn);
        group.close();
        assert!((0..8).all(|_| group.join(1, false) == CommitDecision::Write));
        group.close();
        let first = (1..=8).find(|_| group.join(0, false) == CommitDecision::WriteOwn);
        assert_eq!(first, Some(4));
        group.close();
        for _ in 0..20 {
            group.join(0, false);
            group.close();
        }
        assert_eq!(group.join(0, false), CommitDecision::WriteOwn, "a crowd is forgotten");
    }

    #[test]
    fn a_device_that_serves_one_write_at_a_time_is_given_all_commits() {
        let mut group = CommitGroup::new(GroupCommit::Adaptive, true);
        assert_eq!(group.join(0, false), CommitDecision::WriteOwn, "one client alone waits for no other");
        group.close();
        assert!((0..8).all(|_| group.join(1, false) == CommitDecision::Write));
        group.close();
        assert!((0..8).all(|_| group.join(0, false) == CommitDecision::Write));
    }

    #[test]
    fn a_closed_group_counts_its_commits_and_begins_anew() {
        let mut group = CommitGroup::new(GroupCommit::Delay { ns: 5 }, false);
        group.join(0, false);
        group.join(0, false);
        let number = group.number();
        assert_eq!(group.close(), 2);
        assert_ne!(group.number(), number);
        assert_eq!(group.join(0, false), CommitDecision::Begin(5));
    }
}
