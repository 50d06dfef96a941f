//! What a database says of its memory-resident sets.

use super::Database;
use crate::engine;
use base::PartitionId;

impl Database {
    /// Waits for a moment at which no sweep is writing a segment itself. None is until the caller waits again.
    pub async fn segments_returned(&self) {
        engine::segments_returned(&self.0.engine.core.executor, &self.0.engine.sets).await;
    }

    /// How many records a set has; `None` if the partition is no set.
    pub fn set_records(&self, partition: PartitionId) -> Option<u64> {
        self.0.engine.set_records(partition)
    }

    /// Bytes of memory that pages and sets take.
    pub fn memory_in_use(&self) -> u64 {
        self.0.engine.memory_in_use()
    }

    /// Bytes of the memory of all sets.
    pub fn segment_bytes(&self) -> u64 {
        self.0.engine.sets.sets.borrow().memory_bytes()
    }

    /// How many segments of a set the checkpoint server has written since the start; `None` if the partition is no set.
    pub fn segments_written(&self, partition: PartitionId) -> Option<u64> {
        self.set_records(partition)?;
        Some(self.0.engine.sets.backup.writes(partition))
    }
}
