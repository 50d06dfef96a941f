//! What records were before the changes of transactions that have not ended, for readers of an earlier state.

use super::Sets;
use super::changes::{Before, Shadow};
use super::layout;
use crate::lock::Owner;
use base::PartitionId;
use std::collections::BTreeMap;
use std::ops::Range;

/// A record before one change.
pub struct SetVersion {
    /// The set.
    pub partition: PartitionId,
    /// The record's key.
    pub key: Vec<u8>,
    /// Its value, if it was there.
    pub before: Option<Vec<u8>>,
    /// Whether the change deletes it.
    pub deletes: bool,
}

/// A record by its set and key.
pub type SetRecord = (PartitionId, Vec<u8>);
/// Values of records, nothing of those that are not there.
pub type SetStates = BTreeMap<SetRecord, Option<Vec<u8>>>;

impl Sets {
    /// What records were before an owner's changes of these numbers, of which the last is the owner's last.
    pub fn versions_before(&self, owner: Owner, numbers: Range<usize>) -> Vec<SetVersion> {
        let Some(changes) = self.owners.get(owner.0 as usize).filter(|_| !numbers.is_empty()) else {
            return Vec::new();
        };
        let mut next = SetStates::new();
        let mut versions = Vec::with_capacity(numbers.len());
        let first = numbers.start;
        for number in numbers.rev() {
            let shadow = &changes.shadows[number];
            let (name, state) = self.state_before(shadow, shadow.bytes(&changes.saved), &next);
            if number > first {
                next.insert(name.clone(), state.clone());
            }
            let deletes = matches!(shadow.before, Before::Here);
            versions.push(SetVersion { partition: name.0, key: name.1, before: state, deletes });
        }
        versions.reverse();
        versions
    }

    /// What the records were that an owner has changed, before its first changes of them.
    pub fn states_before(&self, owner: Owner) -> SetStates {
        let mut states = SetStates::new();
        if let Some(changes) = self.owners.get(owner.0 as usize) {
            for shadow in changes.shadows.iter().rev() {
                let (name, state) = self.state_before(shadow, shadow.bytes(&changes.saved), &states);
                states.insert(name, state);
            }
        }
        states
    }

    /// The record of a change and what it was before that. What it is after it is what it is before the `next` one of it.
    fn state_before(&self, shadow: &Shadow, saved: &[u8], next: &SetStates) -> (SetRecord, Option<Vec<u8>>) {
        let partition = PartitionId(shadow.set);
        let (bytes, at) = self.set(partition).at(shadow.place);
        let (key, value) = layout::record(bytes, at);
        let name = (partition, key.to_vec());
        let state = match shadow.before {
            Before::Nothing => None,
            Before::Bytes { offset, .. } => {
                let mut state = next.get(&name).cloned().flatten().unwrap_or_else(|| value.to_vec());
                state[offset as usize..][..saved.len()].copy_from_slice(saved);
                Some(state)
            }
            Before::Value { .. } => Some(saved.to_vec()),
            // It stands there still.
            Before::Here | Before::MovedTo(_) => Some(value.to_vec()),
        };
        (name, state)
    }

    /// Shows the secondary keys that a record's value has, by index, and the indexes do not have for it any more.
    pub fn lost_entries(&self, partition: PartitionId, key: &[u8], value: &[u8], mut look: impl FnMut(usize, &[u8])) {
        for (number, secondary) in self.set(partition).secondaries.iter().enumerate() {
            let Some(secondary) = secondary else { continue };
            if let Some(of) = secondary.key(value).filter(|of| !secondary.has(of, key)) {
                look(number, &of);
            }
        }
    }

    /// The latest value of `key`, for any reader; [`Sets::get`] with no transaction.
    ///
    /// # Errors
    /// [`super::Refusal::Lent`].
    pub fn peek(&self, partition: PartitionId, key: &[u8], hash: u64) -> Result<Option<&[u8]>, super::Refusal> {
        let set = self.set(partition);
        let found = set.find(key, hash)?;
        Ok(found.map(|place| {
            let (bytes, at) = set.at(place);
            layout::value(bytes, at)
        }))
    }
}
