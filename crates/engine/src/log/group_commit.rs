//! Group commit: when the commits that wait are written (DeWitt et al. 1984; Helland et al. 1987).

use crate::{Error, Result};

/// When a commit's log records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupCommit {
    /// Each commit closes the present log page and submits its own write at once, several in flight (Rahm 1991: one log
    /// page write per update transaction).
    None,
    /// At once while fewer writes are in flight than may be; otherwise commits gather until one completes.
    Adaptive,
    /// When so many commits wait, but at latest `delay_ns_max` after the first of them.
    Size {
        /// How many commits make a group.
        transactions: u32,
        /// How long the first waits at most, in nanoseconds.
        delay_ns_max: u64,
    },
    /// So many nanoseconds after the first commit that waits.
    Delay {
        /// The delay in nanoseconds.
        ns: u64,
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
pub(super) enum Decision {
    /// The committing task writes by itself.
    WriteOwn,
    /// The writer writes as soon as a write may be submitted.
    Write,
    /// The group waits for more; it was begun before.
    Gather,
    /// The commit begins a group, to be written after so many nanoseconds.
    Begin(u64),
}

/// The commits since the log buffer was last cut.
pub(super) struct Group {
    policy: GroupCommit,
    /// Names the group, so that a late timer does not close a younger one.
    number: u64,
    commits: u32,
}

impl Group {
    pub fn new(policy: GroupCommit) -> Group {
        Group { policy, number: 0, commits: 0 }
    }

    /// Takes one more commit into the group.
    pub fn join(&mut self) -> Decision {
        self.commits += 1;
        match self.policy {
            GroupCommit::None => Decision::WriteOwn,
            GroupCommit::Adaptive => Decision::Write,
            GroupCommit::Size { transactions, .. } if self.commits >= transactions => Decision::Write,
            GroupCommit::Size { delay_ns_max: ns, .. } | GroupCommit::Delay { ns } => {
                if self.commits == 1 {
                    Decision::Begin(ns)
                } else {
                    Decision::Gather
                }
            }
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The log buffer is cut: whoever waits is written now. Returns how many commits the group had.
    pub fn close(&mut self) -> u32 {
        self.number += 1;
        std::mem::take(&mut self.commits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_as_named() {
        let decisions = |policy, n| {
            let mut group = Group::new(policy);
            (0..n).map(|_| group.join()).collect::<Vec<_>>()
        };
        use Decision::*;
        assert_eq!(decisions(GroupCommit::None, 2), [WriteOwn, WriteOwn]);
        assert_eq!(decisions(GroupCommit::Adaptive, 2), [Write, Write]);
        assert_eq!(decisions(GroupCommit::Delay { ns: 5 }, 3), [Begin(5), Gather, Gather]);
        let size = GroupCommit::Size { transactions: 3, delay_ns_max: 9 };
        assert_eq!(decisions(size, 4), [Begin(9), Gather, Write, Write]);
        assert_eq!(decisions(GroupCommit::Size { transactions: 1, delay_ns_max: 9 }, 1), [Write]);
    }

    #[test]
    fn a_closed_group_counts_its_commits_and_begins_anew() {
        let mut group = Group::new(GroupCommit::Delay { ns: 5 });
        group.join();
        group.join();
        let number = group.number();
        assert_eq!(group.close(), 2);
        assert_ne!(group.number(), number);
        assert_eq!(group.join(), Decision::Begin(5));
    }
}
