//! Filling a secondary index of a b-tree, a few records in each transaction, while others change the records.
//!
//! Everyone who changes a record changes its entry from before on. So under the lock of a record, its entry is there, or it has none
//! and gets it here.

use super::{Direction, Transaction};
use crate::catalog::{Partition, SecondaryIndex};
use crate::{Error, Result};
use base::PartitionId;
use std::ops::Bound;
use structures::set::{FieldError, short_hex};

/// How many records are locked at once, and how many are indexed before others get their turn.
const BATCH: usize = 64;
const TURN: usize = 8;

impl Transaction {
    /// Adds the entries of the next records of a b-tree to an index. Returns how many they are, and the last one's key, or nothing at the end.
    ///
    /// # Errors
    /// [`Error::Field`] if a record is not of the type, or another one has its place in a unique index; those of the entries.
    pub(crate) async fn index_records(
        &mut self,
        found: &Partition,
        index: &SecondaryIndex,
        tree: PartitionId,
        from: &Bound<Vec<u8>>,
    ) -> Result<(u64, Option<Vec<u8>>)> {
        let schema = found.typed()?;
        let mut records =
            self.cursor(found.id(), from.as_ref().map(Vec::as_slice), Bound::Unbounded, Direction::Forward);
        let (mut last, mut entries) = (None, Vec::with_capacity(BATCH));
        while entries.len() < BATCH {
            let Some((key, value)) = self.next(&mut records).await? else { break };
            let indexed = schema.record.verify(&value).and_then(|()| schema.entry(index, &key, &value));
            let entry = indexed.map_err(|error| not_indexed(found, &key, error))?;
            entries.push((entry, key.clone()));
            last = Some(key);
        }
        // Neighbours in the index come one after the other.
        entries.sort_unstable();
        for (number, (entry, key)) in entries.iter().enumerate() {
            if number % TURN == TURN - 1 {
                self.executor().clone().yield_now().await;
            }
            if let Some(present) = self.add_entry(tree, entry, key).await?.filter(|present| present != key) {
                let value = self.read_in_tree(found.id(), key).await?;
                return Err(found.not_unique(index, &value.unwrap_or_default(), (&present, key)));
            }
        }
        Ok((entries.len() as u64, last))
    }
}

/// Why a record cannot be in an index.
#[cold]
pub(crate) fn not_indexed(found: &Partition, key: &[u8], error: FieldError) -> Error {
    Error::Unsuitable(format!("partition '{}', record with key {}: {error}", found.name, short_hex(key)))
}
