//! Adding to an integer: the action that the log of actions is made for.

use super::Transaction;
use crate::engine::Keyed;
use crate::{Error, Result};
use base::PartitionId;
use std::ops::Range;
use structures::key_hash;
use structures::lock::Mode;
use structures::set::{Refusal, add_to};

impl Transaction {
    /// Adds to the little-endian integer of 1, 2, 4 or 8 bytes that is this part of the value of `key`, modulo its range, and
    /// returns it, without sign. If the partition is a set and actions are logged (AOPER), the log has the amount, in as few
    /// bytes as that takes.
    ///
    /// # Errors
    /// As [`Transaction::modify`], and [`Error::TooLarge`] if the part is not within the value, [`Error::Argument`] if it has
    /// another length.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let accounts = database.create_partition(PartitionSpec::b_tree("accounts")).await?;
    /// # database.transaction(async |tx| tx.put(accounts, b"alice", &100_i64.to_le_bytes()).await).await?;
    /// let left = database.transaction(async |tx| tx.add(accounts, b"alice", 0..8, -30).await).await?;
    /// assert_eq!(left as i64, 70);
    /// # Ok(())
    /// # });
    /// ```
    #[inline]
    pub async fn add(&mut self, partition: PartitionId, key: &[u8], part: Range<usize>, amount: i64) -> Result<u64> {
        if !matches!(part.len(), 1 | 2 | 4 | 8) {
            return Err(Error::Argument(format!("an integer has 1, 2, 4 or 8 bytes, not {}", part.len())));
        }
        let (found, keyed) = self.engine.catalog.find_keyed_to_change(partition)?;
        let within = match keyed {
            Keyed::Set => {
                let hash = key_hash(key);
                if self.reference() {
                    self.delayed_reference().await?;
                }
                if let Some(ungranted) = self.enter_found(found, partition, (key, hash), Mode::Exclusive)? {
                    self.wait_to_enter(ungranted, (found, partition), (key, hash), Mode::Exclusive).await?;
                }
                let within = loop {
                    match self.add_in_set(partition, (key, hash), part.clone(), amount) {
                        Ok(within) => break within,
                        Err(refusal) => self.resolve_refusal(partition, refusal).await?,
                    }
                };
                self.engine.core.executor.charge_value(part.len());
                within
            }
            keyed => {
                let change = |value: &mut [u8]| {
                    let length = value.len();
                    value.get_mut(part.clone()).map(|part| add_to(part, amount)).ok_or(length)
                };
                self.modify_found(found, keyed, partition, key, change).await?
            }
        };
        within.map_err(|limit| {
            let name =
                self.engine.catalog.describe(partition).map_or_else(|_| String::new(), |found| found.name.clone());
            Error::TooLarge { what: "the end of a part of a value", found: part.end, limit, partition: name }
        })
    }

    /// Adds to a part of a set's record, whose lock is held; the value's length if the part is not within it.
    #[inline]
    fn add_in_set(
        &mut self,
        partition: PartitionId,
        (key, hash): (&[u8], u64),
        part: Range<usize>,
        amount: i64,
    ) -> Result<Result<u64, usize>, Refusal> {
        self.ask_sets(partition, |sets, owner| match sets.add(owner, partition, key, hash, part, amount) {
            Ok(sum) => Ok(Ok(sum)),
            Err(Refusal::TooLarge { limit, .. }) => Ok(Err(limit)),
            Err(refusal) => Err(refusal),
        })
    }
}
