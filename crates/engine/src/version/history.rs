//! The versions of committed changes, in the order of commits: append-only, in extents, given up from the oldest on.

use super::chain;
use crate::lock::Resource;
use base::{Lsn, PartitionId};
use std::collections::VecDeque;

/// An extent is closed before it would be longer than this, in bytes; only a version that is longer itself makes it so.
pub(super) const EXTENT_SIZE: usize = 64 << 10;

/// Consecutive versions.
#[derive(Debug, Default)]
pub(super) struct Extent {
    pub(super) bytes: Vec<u8>,
    /// Whose versions they are, and where each begins.
    pub(super) names: Vec<(Resource, u32)>,
    /// The keys of those from before deletions.
    pub(super) ghosts: Vec<(PartitionId, Vec<u8>)>,
    /// When the last of their changes was committed.
    pub(super) last_commit: Lsn,
}

/// All extents, oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The number of the oldest.
    first: u32,
    extents: VecDeque<Extent>,
    bytes: u64,
    versions: u64,
}

impl History {
    /// Adds a stored version; `ghost` is the key, where it is from before a deletion. Returns its extent and its place there.
    pub(super) fn add(
        &mut self,
        name: Resource,
        version: &[u8],
        ghost: Option<(PartitionId, &[u8])>,
        commit: Lsn,
    ) -> (u32, usize) {
        let is_full = |extent: &Extent| !extent.bytes.is_empty() && extent.bytes.len() + version.len() > EXTENT_SIZE;
        if self.extents.back().is_none_or(is_full) {
            let mut extent = Extent::default();
            extent.bytes.reserve_exact(EXTENT_SIZE.max(version.len()));
            self.extents.push_back(extent);
        }
        let number = self.first + self.extents.len() as u32 - 1;
        let extent = self.extents.back_mut().expect("one was added");
        let at = extent.bytes.len();
        extent.bytes.extend_from_slice(version);
        extent.names.push((name, at as u32));
        extent.ghosts.extend(ghost.map(|(partition, key)| (partition, key.to_vec())));
        extent.last_commit = commit;
        self.bytes += version.len() as u64;
        self.versions += 1;
        (number, at)
    }

    /// Whether the extent is there still.
    pub(super) fn has(&self, extent: u32) -> bool {
        extent >= self.first
    }

    /// A stored version in an extent that is there.
    pub(super) fn version(&self, extent: u32, at: usize) -> &[u8] {
        let bytes = &self.extents[(extent - self.first) as usize].bytes[at..];
        &bytes[..chain::length(bytes).expect("a link leads to a version")]
    }

    /// Takes the oldest extent out, with its number, if all its changes were committed up to `horizon`.
    pub(super) fn take_oldest(&mut self, horizon: Lsn) -> Option<(u32, Extent)> {
        self.extents.front().filter(|extent| extent.last_commit <= horizon)?;
        let extent = self.extents.pop_front()?;
        self.first += 1;
        self.bytes -= extent.bytes.len() as u64;
        self.versions -= extent.names.len() as u64;
        Some((self.first - 1, extent))
    }

    /// Bytes of all versions.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many versions there are.
    pub(super) fn versions(&self) -> u64 {
        self.versions
    }
}
