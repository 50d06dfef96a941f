//! What an operator does with its memory.

use super::row::{HEAD_MAX, Row};
use super::workspace::WORKSPACE_MAX;
use crate::{Error, Result};
use base::units::format_size;

/// As many clusters are the least memory that an operator gets by with.
const CLUSTERS_MIN: u64 = 16;
/// Clusters that are being written or made at once, at most.
const OUTPUTS_MAX: u64 = 32;

/// Memory of an operator, in bytes, beside the size of its clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    pub memory: u64,
    pub cluster: u64,
}

fn too_little(memory: u64, least: u64, cluster_size: usize) -> Error {
    let (memory, least, cluster) = (format_size(memory), format_size(least), format_size(cluster_size as u64));
    Error::Setting(format!(
        "memory of {memory} is too little for clusters of {cluster}: give {least} or more, or make [temp] cluster_size smaller"
    ))
}

impl Budget {
    /// # Errors
    /// [`Error::Setting`] if that is too little.
    pub fn new(memory: u64, cluster_size: usize) -> Result<Budget> {
        let cluster = cluster_size as u64;
        if memory < CLUSTERS_MIN * cluster {
            return Err(too_little(memory, CLUSTERS_MIN * cluster, cluster_size));
        }
        Ok(Budget { memory, cluster })
    }

    /// One of three equal parts of the memory left by this number of clusters.
    ///
    /// # Errors
    /// [`Error::Setting`] if the parts are too little.
    pub fn third(memory: u64, cluster_size: usize, others: u64) -> Result<Budget> {
        let cluster = cluster_size as u64;
        let part = Budget::new(memory.saturating_sub(others * cluster) / 3, cluster_size);
        part.map_err(|_| too_little(memory, (3 * CLUSTERS_MIN + others) * cluster, cluster_size))
    }

    /// Clusters that are being written or made at once.
    pub fn outputs(self) -> usize {
        (self.memory / self.cluster / 16).clamp(2, OUTPUTS_MAX) as usize
    }

    /// Bytes of each of two workspaces: rows come into one while those of the other are sorted and written.
    pub fn workspace(self) -> usize {
        let bytes = (self.memory - self.outputs() as u64 * self.cluster) / 2;
        bytes.min(WORKSPACE_MAX as u64) as usize
    }

    /// The most bytes of a row: two of them can be merged.
    pub fn row_max(self) -> usize {
        (self.memory / 4) as usize
    }

    /// Whether the row is not too long.
    ///
    /// # Errors
    /// [`Error::RowTooLong`].
    pub fn check(self, row: Row<'_>) -> Result<()> {
        let (found, limit) = (row.key.len() + row.value.len(), self.row_max() - HEAD_MAX);
        if found > limit { Err(Error::RowTooLong { found, limit }) } else { Ok(()) }
    }

    /// How many runs can be merged at once if the longest row has `longest` bytes: each run has a cluster and such a row, and
    /// some clusters are read ahead.
    pub fn fan_in(self, longest: usize) -> usize {
        let ahead = (self.memory / self.cluster / 8).max(2);
        let clusters = (self.outputs() as u64 + ahead) * self.cluster;
        ((self.memory - clusters) / (self.cluster + longest as u64)).max(2) as usize
    }

    /// Clusters that are read into when `runs` runs are merged.
    pub fn reads(self, runs: usize, longest: usize) -> usize {
        let rows = runs as u64 * longest as u64 + self.outputs() as u64 * self.cluster;
        (self.memory.saturating_sub(rows) / self.cluster).max(runs as u64 + 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_memory() {
        for cluster in [512, 4096, 262_144] {
            for clusters in [16, 17, 40, 100, 1024, 60_000] {
                let budget = Budget::new(clusters * cluster, cluster as usize).expect("enough");
                let used = 2 * budget.workspace() as u64 + budget.outputs() as u64 * cluster;
                assert!(used <= budget.memory, "{budget:?}");
                for longest in [10, 300, cluster as usize, budget.row_max()] {
                    let runs = budget.fan_in(longest);
                    let reads = budget.reads(runs, longest);
                    let used = (reads + budget.outputs()) as u64 * cluster + (runs * longest) as u64;
                    assert!(runs >= 2 && reads > runs && used <= budget.memory, "{budget:?} {longest}");
                }
            }
        }
        assert!(Budget::new(15 * 4096, 4096).is_err());
    }
}
