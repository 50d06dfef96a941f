//! Ranges of secondary indexes as they were at a moment.
//!
//! An entry that a view sees is either in the index still, or has left a ghost where it was: removing an entry leaves one. So
//! the index and its ghosts are visited together, in order, and each entry counts if the view's state of its record has that
//! place. A record has one place there, so it is found once, wherever its entry is in the index meanwhile.

use super::{Ghost, Reconstruction, Records, VersionStore, View};
use crate::Result;
use base::PartitionId;
use std::collections::BTreeSet;
use std::ops::Bound;
use structures::key_hash;
use structures::lock::Resource;
use structures::set::Refusal;

/// Entries, or ghosts, that a step looks at.
const STEP_ENTRIES: usize = 128;

/// An entry of a secondary index: a secondary key, and the key of a record that has it.
pub(crate) type IndexEntry = (Vec<u8>, Vec<u8>);

/// The range that is left.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    /// The last entry that was looked at.
    pub last: Option<IndexEntry>,
    /// The first secondary key.
    pub from: Vec<u8>,
    /// What is beyond the last one.
    pub to: Option<Vec<u8>>,
}

/// What a step has found: entries that a view may see, with their records on the way back to that.
pub(crate) type FoundEntries = Vec<(IndexEntry, Reconstruction)>;

impl VersionStore {
    /// The next entries of a range that a view may see, and what is left of the range then, if anything.
    ///
    /// # Errors
    /// [`crate::Error::SnapshotTooOld`].
    pub(crate) fn visit_entries(
        &self,
        records: Records<'_>,
        view: View,
        (partition, secondary): (PartitionId, usize),
        rest: &Rest,
    ) -> Result<Result<(FoundEntries, Option<Rest>), Refusal>> {
        let (sets, versions) = (records.sets.borrow(), self.versions.borrow());
        versions.check(view)?;
        let from = match &rest.last {
            Some((of, key)) => Bound::Excluded((of.as_slice(), key.as_slice())),
            None => Bound::Included((rest.from.as_slice(), &[][..])),
        };
        let is_within = |of: &[u8]| rest.to.as_ref().is_none_or(|to| of < to.as_slice());
        let present = sets.entries_beyond(partition, secondary, from).take_while(|(of, _)| is_within(of));
        let mut entries: BTreeSet<IndexEntry> =
            present.take(STEP_ENTRIES).map(|(of, key)| (of.to_vec(), key.to_vec())).collect();
        let mut end = entries.last().filter(|_| entries.len() == STEP_ENTRIES).cloned();
        let first = from.map(|(of, key)| [of, key].concat());
        let names = (first.as_ref().map(Vec::as_slice), rest.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded));
        let ghosts = versions.ghosts.range((partition, 1 + secondary), names).map(Ghost::split);
        let ghosts: Vec<IndexEntry> = ghosts.take(STEP_ENTRIES).map(|(of, key)| (of.to_vec(), key.to_vec())).collect();
        if ghosts.len() == STEP_ENTRIES {
            let last = ghosts.last().cloned();
            end = if end.is_none() { last } else { end.min(last) };
        }
        entries.extend(ghosts);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for entry in entries.into_iter().take_while(|entry| end.as_ref().is_none_or(|end| entry <= end)) {
            let state = match sets.peek(partition, &entry.1, key_hash(&entry.1)) {
                Ok(state) => state.map(<[u8]>::to_vec),
                Err(refusal) => return Ok(Err(refusal)),
            };
            bytes += state.as_ref().map_or(0, Vec::len);
            let name = Resource::record(partition, key_hash(&entry.1));
            let past = versions.reconstruct_in_memory(view, name, (partition, &entry.1), state)?;
            found.push((entry, past));
        }
        self.executor.charge_value(bytes);
        Ok(Ok((found, end.map(|last| Rest { last: Some(last), ..rest.clone() }))))
    }
}

#[cfg(test)]
mod tests;
