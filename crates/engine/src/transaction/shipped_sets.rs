//! Changes of memory-resident sets that come with a transaction of another node.
//!
//! They are made by a transaction of this engine, which changes nothing else; so what they lack is waited for, and all is taken back, before
//! anything is logged. Its commit is part of the other node's record of the log, so that both are there or neither.

use super::Transaction;
use super::commit::charge_copies;
use super::set_log::encode_commit;
use crate::catalog::Organization;
use crate::{Error, Result};
use base::{Lsn, PartitionId, TransactionId};
use structures::lock::Owner;

/// Such changes. Those that are not committed are taken back in the step in which this is dropped: who looks at the sets without locks of the
/// engine's, as others' locks let it, sees none of them.
pub(crate) struct ShippedSets(Option<Transaction>);

impl ShippedSets {
    /// None yet.
    pub(crate) fn new(transaction: Transaction) -> ShippedSets {
        ShippedSets(Some(transaction))
    }

    fn transaction(&mut self) -> &mut Transaction {
        self.0.as_mut().expect("it has not ended")
    }

    /// Gives a record this value, or deletes it. One that its set numbers is added, under the number that is its key.
    ///
    /// # Errors
    /// As [`Transaction::put`]; [`Error::Duplicate`], [`Error::Shipment`] for what is no record to be added.
    pub(crate) async fn change(&mut self, partition: PartitionId, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let found = self.transaction().engine.catalog.describe(partition)?;
        if matches!(found.organization, Organization::Set { arrivals: true, .. }) {
            let number = key.try_into().map(u64::from_be_bytes).ok();
            let (Some(number), Some(record)) = (number, value) else {
                return Err(Error::Shipment(format!(
                    "it changes a record of '{}', whose records are only added",
                    found.name
                )));
            };
            if number >= self.transaction().engine.sets.sets.borrow().next_arrival(partition) {
                return Err(Error::Shipment(format!(
                    "it adds a record of '{}' whose number was not given out",
                    found.name
                )));
            }
            return self.transaction().append_arrival(&found, Some(number), record).await.map(drop);
        }
        match value {
            Some(value) => self.transaction().put(partition, key, value).await,
            None => self.transaction().delete(partition, key).await.map(drop),
        }
    }

    /// Deletes a record that gets a value again, so that others may have its places in unique indexes before. One that its set numbers is new.
    ///
    /// # Errors
    /// As [`Transaction::delete`].
    pub(crate) async fn leave(&mut self, partition: PartitionId, key: &[u8]) -> Result<()> {
        let found = self.transaction().engine.catalog.describe(partition)?;
        if !matches!(found.organization, Organization::Set { arrivals: true, .. }) {
            self.transaction().delete(partition, key).await?;
        }
        Ok(())
    }

    /// Their transaction's place among owners.
    pub(crate) fn owner(&self) -> Owner {
        self.0.as_ref().expect("it has not ended").owner()
    }

    /// At most how many bytes the records have that end them.
    pub(crate) fn bytes_of_log(&self) -> u64 {
        self.0.as_ref().map_or(0, |transaction| transaction.bytes_of_commit() + transaction.bytes_of_past())
    }

    /// Commits them: `append` logs the records that end them, in stored form, under a transaction's number, and says where they end. Its
    /// caller waits until that is durable.
    pub(crate) fn commit_within(mut self, append: impl FnOnce(TransactionId, &[u8]) -> Lsn) -> Lsn {
        let transaction = self.0.take().expect("it has not ended");
        let mut ending = transaction.decide();
        let commit = encode_commit(&ending.engine, &ending.engine.sets.sets.borrow(), &ending.state);
        let lsn = append(ending.state.id, &commit);
        (ending.lsn, ending.is_demanded) = (Some(lsn), true);
        let (engine, owner) = (&ending.engine, ending.state.owner);
        let mut sets = engine.sets.sets.borrow_mut();
        sets.commit(owner);
        engine.versions.commit(owner, lsn);
        if sets.is_capturing() {
            charge_copies(&engine.core, &mut sets);
        }
        lsn
    }
}

impl Drop for ShippedSets {
    fn drop(&mut self) {
        if let Some(Transaction { engine, state, .. }) = &self.0 {
            engine.sets.sets.borrow_mut().roll_back(state.owner);
            engine.versions.forget(state.owner, state.updates(), 0);
        }
    }
}
