//! Records that no scan of the present finds any more, and a scan of the past has to.

use base::PartitionId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The names of records that were deleted while somebody may read what was before, in the order in which their partition is
/// scanned: for each, how many transactions under way have deleted it, and how many extents have a version of it. One that
/// was inserted again may be among them.
///
/// In a b-tree a record's name is its key; in a set its position in the order of visits, 8 bytes big-endian, and its key.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    names: BTreeMap<(PartitionId, Vec<u8>), usize>,
}

impl Ghosts {
    pub(super) fn add(&mut self, partition: PartitionId, name: &[u8]) {
        *self.names.entry((partition, name.to_vec())).or_default() += 1;
    }

    pub(super) fn remove(&mut self, partition: PartitionId, name: &[u8]) {
        let name = (partition, name.to_vec());
        let count = self.names.get_mut(&name).expect("a version that goes had its ghost");
        *count -= 1;
        if *count == 0 {
            self.names.remove(&name);
        }
    }

    /// Those of a partition within a range, in order.
    pub(super) fn range(
        &self,
        partition: PartitionId,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl Iterator<Item = &[u8]> {
        let is_empty = match (from, to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
            _ => false,
        };
        let from = match from {
            Bound::Included(key) => Bound::Included((partition, key.to_vec())),
            Bound::Excluded(key) => Bound::Excluded((partition, key.to_vec())),
            Bound::Unbounded => Bound::Included((partition, Vec::new())),
        };
        let to = match to {
            Bound::Included(key) => Bound::Included((partition, key.to_vec())),
            Bound::Excluded(key) => Bound::Excluded((partition, key.to_vec())),
            Bound::Unbounded => match partition.0.checked_add(1) {
                Some(next) => Bound::Excluded((PartitionId(next), Vec::new())),
                None => Bound::Unbounded,
            },
        };
        let found = (!is_empty).then(|| self.names.range((from, to)));
        found.into_iter().flatten().map(|((_, key), _)| key.as_slice())
    }
}
