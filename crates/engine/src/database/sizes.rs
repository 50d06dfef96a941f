//! How much room partitions take.

use super::Database;
use crate::Result;
use crate::catalog::Organization;
use base::{PageId, PartitionId};
use structures::organization::allocator;
use structures::page::Pages;

/// The room that a partition takes, in bytes. The secondary indexes of a b-tree are partitions of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSize {
    /// Its files: the data file, or both copies of a set's backup.
    pub file: u64,
    /// What it uses: pages, or the records of a set in memory.
    pub used: u64,
    /// What it can use before it grows: free pages of its file, or what is left of a set's segments in memory.
    pub free: u64,
}

impl Database {
    /// How much room a partition takes.
    ///
    /// # Errors
    /// [`Error::NoPartition`](crate::Error::NoPartition), [`Error::DamagedPage`](crate::Error::DamagedPage), or the driver's.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let before = database.size(notes).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", &[1; 100_000]).await).await?;
    /// let after = database.size(notes).await?;
    /// assert!(after.used >= before.used + 100_000 && after.file >= after.used + after.free);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn size(&self, partition: PartitionId) -> Result<PartitionSize> {
        let engine = &self.0.engine;
        let found = self.describe(partition)?;
        if let Organization::Set { .. } = found.organization {
            let sets = engine.sets.sets.borrow();
            let memory = u64::from(sets.segments(partition)) * sets.segment_size(partition) as u64;
            let used = sets.bytes(partition);
            let file = engine.sets.backup.file_bytes(partition);
            return Ok(PartitionSize { file, used, free: memory.saturating_sub(used) });
        }
        let page_size = self.settings().buffer.page_size as u64;
        let (used, free) = match found.organization {
            Organization::Direct { objects, blocking_factor, .. } => {
                let capacity = u64::from(engine.core.buffer.find_space(partition)?.capacity());
                (objects.div_ceil(u64::from(blocking_factor)).min(capacity), 0)
            }
            _ => self.pages_in_use(partition).await?,
        };
        let space = engine.core.buffer.find_space(partition)?;
        let capacity = u64::from(space.capacity());
        let beyond = capacity.saturating_sub(used + free);
        Ok(PartitionSize { file: capacity * page_size, used: used * page_size, free: (free + beyond) * page_size })
    }

    /// How many pages are in use, and how many were and are free now.
    async fn pages_in_use(&self, partition: PartitionId) -> Result<(u64, u64)> {
        let core = &self.0.engine.core;
        let first = PageId::new(partition, 0);
        let state = core.complete(|| Ok(allocator::read(core.buffer.pool().borrow().page(first)?))).await?;
        let (all, free) = (u64::from(state.page_count), u64::from(state.free_count));
        Ok((all.saturating_sub(free), free))
    }
}
