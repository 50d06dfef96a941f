//! What records were before the changes of transactions that have not ended, for readers of an earlier state.

use super::Sets;
use super::changes::{Before, Shadow};
use super::layout;
use crate::lock::Owner;
use crate::version;
use base::PartitionId;

/// A record before one change.
pub(crate) struct SetVersion {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    pub before: SetBefore,
    /// Whether the change deletes it.
    pub deletes: bool,
}

/// What it was.
pub(crate) enum SetBefore {
    Absent,
    Value(Vec<u8>),
    /// These bytes stood at this offset.
    Patch(u32, Vec<u8>),
}

impl SetBefore {
    pub(crate) fn as_before(&self) -> version::Before<'_> {
        match self {
            SetBefore::Absent => version::Before::Absent,
            SetBefore::Value(value) => version::Before::Value(value),
            SetBefore::Patch(offset, bytes) => version::Before::Patch(*offset, bytes),
        }
    }
}

impl Sets {
    /// What the record of an owner's change `number` was before it. The value is whole if the change `is_last`: no later one
    /// of the record is in the way.
    pub(crate) fn version_before(&self, owner: Owner, number: usize, is_last: bool) -> SetVersion {
        let changes = &self.owners[owner.0 as usize];
        let shadow @ Shadow { set, place, before, .. } = changes.shadows[number];
        let partition = PartitionId(set);
        let (bytes, at) = self.set(partition).at(place);
        let (key, value) = layout::record(bytes, at);
        let saved = shadow.bytes(&changes.saved);
        let before = match before {
            Before::Nothing => SetBefore::Absent,
            Before::Bytes { offset, .. } if is_last => {
                let mut value = value.to_vec();
                value[offset as usize..][..saved.len()].copy_from_slice(saved);
                SetBefore::Value(value)
            }
            Before::Bytes { offset, .. } => SetBefore::Patch(offset, saved.to_vec()),
            Before::Value { .. } => SetBefore::Value(saved.to_vec()),
            // It stands there still.
            Before::Here | Before::MovedTo(_) => SetBefore::Value(value.to_vec()),
        };
        SetVersion { partition, key: key.to_vec(), before, deletes: matches!(shadow.before, Before::Here) }
    }

    /// The value of `key` as it stands there, whoever reads it; [`Sets::get`] with no transaction.
    ///
    /// # Errors
    /// [`super::Refusal::Lent`].
    pub(crate) fn peek(&self, partition: PartitionId, key: &[u8], hash: u64) -> Result<Option<&[u8]>, super::Refusal> {
        let set = self.set(partition);
        let found = set.find(key, hash)?;
        Ok(found.map(|place| {
            let (bytes, at) = set.at(place);
            layout::value(bytes, at)
        }))
    }
}
