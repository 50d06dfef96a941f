//! What partitions with keys are.

use crate::Result;
use crate::catalog::{Locking, Organization};
use crate::database::Database;
use base::PartitionId;

/// What a partition with keys is to who changes its records.
pub(super) enum Keyed {
    BTree,
    Set,
    /// A set whose records have a type, and perhaps secondary indexes.
    TypedSet,
}

impl Database {
    /// Whether the partition is a memory-resident set. It stays one while it is being dropped, for those who were using it.
    #[inline]
    pub(crate) fn is_set(&self, partition: PartitionId) -> bool {
        let partitions = self.0.partitions.borrow();
        partitions.get_or_hidden(partition).is_some_and(|found| matches!(found.organization, Organization::Set { .. }))
    }

    #[inline]
    pub(super) fn keyed(&self, partition: PartitionId) -> Keyed {
        let partitions = self.0.partitions.borrow();
        let Some(found) = partitions.get_or_hidden(partition) else { return Keyed::BTree };
        match found.organization {
            Organization::Set { .. } if found.schema.is_some() => Keyed::TypedSet,
            Organization::Set { .. } => Keyed::Set,
            _ => Keyed::BTree,
        }
    }

    /// What the partition is, and whether its records, which have keys, are locked.
    #[inline]
    pub(super) fn find_keyed(&self, partition: PartitionId) -> Result<(Keyed, bool)> {
        let partitions = self.0.partitions.borrow();
        let found = partitions.find(partition)?;
        let keyed = match found.organization {
            Organization::BTree => Keyed::BTree,
            Organization::Set { arrivals: false, .. } if found.schema.is_some() => Keyed::TypedSet,
            Organization::Set { arrivals: false, .. } => Keyed::Set,
            _ => return Err(found.wrong_organization("its records have no keys")),
        };
        Ok((keyed, found.locking == Locking::Record))
    }
}
