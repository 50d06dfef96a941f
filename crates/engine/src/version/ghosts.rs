//! Records that no scan of the present finds any more, and a scan of the past has to.
//!
//! Secondary indexes hold the present only. A transaction that removes an entry, or deletes a record, leaves its ghost
//! beside the version, and a range of the past visits both in order.

use base::PartitionId;
use std::collections::BTreeMap;
use std::ops::Bound;
use structures::key_hash;
use structures::set::visit_position;

/// What led a scan to a record before a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ghost {
    partition: PartitionId,
    /// The order of the scan: 0 for that of the partition, 1 more than its number for that of a secondary index.
    order: usize,
    /// The place in that order, the key included.
    name: Vec<u8>,
    /// Where the key begins in the name: behind nothing in a b-tree, behind the position in the order of visits, 8 bytes
    /// big-endian, in a set, behind the secondary key in a secondary index. No secondary key is the beginning of another.
    key_at: usize,
}

impl Ghost {
    /// Of a record of a b-tree.
    pub(crate) fn in_tree(partition: PartitionId, key: &[u8]) -> Ghost {
        Ghost { partition, order: 0, name: key.to_vec(), key_at: 0 }
    }

    /// Of a record of a set.
    pub(crate) fn in_set(partition: PartitionId, key: &[u8]) -> Ghost {
        let name = [&visit_position(key_hash(key)).to_be_bytes(), key].concat();
        Ghost { partition, order: 0, name, key_at: size_of::<u64>() }
    }

    /// Of an entry of a secondary index.
    pub(crate) fn in_index((partition, secondary): (PartitionId, usize), (of, key): (&[u8], &[u8])) -> Ghost {
        Ghost { partition, order: 1 + secondary, name: [of, key].concat(), key_at: of.len() }
    }

    /// What stands before the key in the name, and the key.
    pub(crate) fn split(&self) -> (&[u8], &[u8]) {
        self.name.split_at(self.key_at)
    }
}

/// The ghosts of records that were deleted, or got other places in an index, while read views may need their earlier state: for
/// each, how many transactions under way have done that, and how many extents have a version of the record. A record that
/// exists again may be among them.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    count: BTreeMap<Ghost, usize>,
}

impl Ghosts {
    pub(super) fn add(&mut self, ghost: &Ghost) {
        *self.count.entry(ghost.clone()).or_default() += 1;
    }

    pub(super) fn remove(&mut self, ghost: &Ghost) {
        let count = self.count.get_mut(ghost).expect("a version that goes had its ghost");
        *count -= 1;
        if *count == 0 {
            self.count.remove(ghost);
        }
    }

    /// Those of a partition whose names are within a range, in order; `order` as in [`Ghost`].
    pub(super) fn range(
        &self,
        (partition, order): (PartitionId, usize),
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl Iterator<Item = &Ghost> {
        let is_empty = match (from, to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        // All of a name, wherever its key begins, are within or without.
        let at = |order, name: &[u8], key_at| Ghost { partition, order, name: name.to_vec(), key_at };
        let from = match from {
            Bound::Included(name) => Bound::Included(at(order, name, 0)),
            Bound::Excluded(name) => Bound::Excluded(at(order, name, usize::MAX)),
            Bound::Unbounded => Bound::Included(at(order, &[], 0)),
        };
        let to = match to {
            Bound::Included(name) => Bound::Included(at(order, name, usize::MAX)),
            Bound::Excluded(name) => Bound::Excluded(at(order, name, 0)),
            Bound::Unbounded => Bound::Excluded(at(order + 1, &[], 0)),
        };
        let found = (!is_empty).then(|| self.count.range((from, to)));
        found.into_iter().flatten().map(|(ghost, _)| ghost)
    }
}
