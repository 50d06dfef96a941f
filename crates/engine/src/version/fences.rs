//! Where the records begin that were added after all snapshots of a time. A log-like partition grows by a record with each
//! transaction; beside a long reader that would be a version each, though it is enough to know from where on all are too new.
//!
//! Where the snapshots all began before a page was added, nothing of that page is theirs, and one fence says so for all
//! records behind it.

use base::{Lsn, PartitionId};
use std::collections::BTreeMap;

/// The record of this number and all behind it were added after the commit at `begun`.
#[derive(Clone, Copy, Debug)]
struct Fence {
    first: u64,
    begun: Lsn,
}

/// The fences of append partitions. Records behind a fence are invisible to views of moments before it began, unless the record
/// has versions that say more.
#[derive(Debug, Default)]
pub(super) struct Fences {
    by_partition: BTreeMap<PartitionId, Vec<Fence>>,
}

impl Fences {
    /// Whether a view at this moment does not see a record, because it stands behind a fence.
    pub(super) fn hides(&self, at: Lsn, partition: PartitionId, key: &[u8]) -> bool {
        let Some(fences) = self.by_partition.get(&partition) else { return false };
        let Ok(number) = key.try_into().map(u64::from_be_bytes) else { return false };
        fences.iter().any(|fence| at < fence.begun && fence.first <= number)
    }

    /// The number from which on no snapshot up to `newest` sees a record, if there is a fence for them all.
    pub(super) fn first_behind(&self, partition: PartitionId, newest: Lsn) -> Option<u64> {
        let last = self.by_partition.get(&partition)?.last()?;
        (newest < last.begun).then_some(last.first)
    }

    /// From now on, after the commit at `begun`, records are added at `first` or behind it, or have versions.
    pub(super) fn set(&mut self, partition: PartitionId, first: u64, begun: Lsn) {
        self.by_partition.entry(partition).or_default().push(Fence { first, begun });
    }

    /// Takes down what hides nothing from a view at `oldest` or later.
    pub(super) fn forget_before(&mut self, oldest: Lsn) {
        self.by_partition.retain(|_, fences| {
            fences.retain(|fence| oldest < fence.begun);
            !fences.is_empty()
        });
    }
}
