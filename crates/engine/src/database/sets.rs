//! What a database says of its memory-resident sets.

use super::Database;
use crate::Result;
use crate::catalog::Organization;
use crate::engine::{self, resolve_refusal};
use base::PartitionId;
use executor::WholeExecutor;
use structures::set::Sets;

impl Database {
    /// Waits for a moment at which no sweep is writing a segment itself. None is until the caller waits again.
    pub(crate) async fn segments_returned(&self) {
        engine::segments_returned(&self.0.engine.core.executor, &self.0.engine.sets).await;
    }

    /// The value of `key` in a set as it was changed last, for a caller that knows that no transaction changes it.
    ///
    /// # Errors
    /// [`crate::Error::NoPartition`]; [`crate::Error::WrongOrganization`] if it is no set.
    pub(crate) async fn read_in_set(&self, partition: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        loop {
            let found = self.describe(partition)?;
            if !matches!(found.organization, Organization::Set { .. }) {
                return Err(found.wrong_organization("it is no set"));
            }
            let seen = {
                let sets = self.0.engine.sets.sets.borrow();
                sets.peek(partition, key, Sets::hash(key)).map(|value| value.map(<[u8]>::to_vec))
            };
            match seen {
                Ok(value) => {
                    self.executor().whole().charge_value(value.as_ref().map_or(0, Vec::len));
                    return Ok(value);
                }
                Err(refusal) => resolve_refusal(&self.0.engine, partition, refusal).await?,
            }
        }
    }

    /// The number for a record that is to be added to a set of arrivals by a [`SetChange`](super::SetChange). It is given out once, until the
    /// database is opened again, whether the record comes or not.
    ///
    /// # Errors
    /// [`crate::Error::NoPartition`]; [`crate::Error::WrongOrganization`] if the set does not number its records.
    pub(crate) fn reserve_arrival(&self, partition: PartitionId) -> Result<u64> {
        let found = self.describe(partition)?;
        if !matches!(found.organization, Organization::Set { arrivals: true, .. }) {
            return Err(found.wrong_organization("its records have keys of the caller's"));
        }
        let mut sets = self.0.engine.sets.sets.borrow_mut();
        let number = sets.next_arrival(partition);
        sets.count_arrivals_from(partition, number + 1);
        Ok(number)
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
