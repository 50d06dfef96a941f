//! Whether the secondary indexes of a b-tree agree with its records: each record has its entry in each, and there are no others.

use super::Examiner;
use crate::catalog::{Schema, SecondaryIndex};
use crate::transaction::{self, Direction, Transaction};
use crate::{Error, Result};
use base::PartitionId;
use std::ops::Bound;
use std::time::Duration;
use structures::canary::{self, Canary};
use structures::organization::b_tree;
use structures::organization::b_tree::stored::{self, Stored};
use structures::page::slotted;

/// For how long a record is waited for that a transaction may be changing.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// A b-tree's records with their type, and the indexes that have them all.
struct Indexed<'a> {
    schema: &'a Schema,
    indexes: &'a [(SecondaryIndex, PartitionId)],
}

impl Examiner<'_> {
    /// Compares the records with their indexes. What does not fit is looked at again while no transaction changes the record. Returns why that
    /// was not possible of some.
    pub(super) async fn check_indexes(&mut self) -> Option<Error> {
        let schema = self.partition.schema.clone()?;
        let trees = |index: &SecondaryIndex| index.tree.filter(|tree| tree.since.is_some()).map(|tree| tree.id);
        let indexes: Vec<(SecondaryIndex, PartitionId)> =
            schema.secondaries.iter().filter_map(|index| Some((index.clone(), trees(index)?))).collect();
        let indexed = Indexed { schema: &schema, indexes: &indexes };
        let checked = match transaction::begin(self.engine, None).await {
            Ok(mut tx) => {
                let compared = self.compare(&mut tx, &indexed).await;
                tx.end_reading();
                compared
            }
            Err(error) => Err(error),
        };
        match checked {
            // It is being dropped or truncated.
            Ok(()) | Err(Error::NoPartition(_)) => {}
            Err(error @ (Error::Closed | Error::LogFailed { .. })) => _ = self.out_of_reach.get_or_insert(error),
            Err(error) if is_of_others(&error) => return Some(self.restless()),
            Err(error) => {
                self.report(0, format!("its secondary indexes cannot be compared with its records: {error}"));
            }
        }
        None
    }

    async fn compare(&mut self, tx: &mut Transaction, indexed: &Indexed<'_>) -> Result<()> {
        let Indexed { schema, indexes } = *indexed;
        // Whether the records are of the type that an index gives them shows when it is built.
        let is_typed = schema.secondaries.iter().filter_map(|index| index.tree).all(|tree| tree.since.is_some());
        let begin = self.engine.core.log.end();
        let had_ended = self.engine.transactions.check_ended().is_ok();
        let mut records = all(tx, self.partition.id());
        let mut count = 0_u64;
        while let Some((key, value)) = tx.next(&mut records).await? {
            count += 1;
            if is_typed && let Err(error) = schema.record.verify(&value) {
                self.report(0, format!("the record with key {key:02x?}: {error}"));
                continue;
            }
            for (index, tree) in indexes {
                let entry = schema.entry(index, &key, &value).map_err(|error| self.partition.field_error(error))?;
                // Its page was copied before, and it may have another entry by now.
                if !self.has_entry(*tree, &entry, &key).await?
                    && self.lacks_entry(tx, schema, (index, *tree), &key).await?
                {
                    self.report(0, format!("the record with key {key:02x?} is missing from index '{}'", index.name));
                }
            }
        }
        for (index, tree) in indexes {
            let mut entries = all(tx, *tree);
            let mut found = 0_u64;
            while tx.next(&mut entries).await?.is_some() {
                found += 1;
            }
            if found == count {
                continue;
            }
            let is_of_one_moment = self.engine.core.log.end() == begin || canary::is_planted(Canary::HastyCheck);
            if is_of_one_moment && had_ended && self.engine.transactions.check_ended().is_ok() {
                self.report_counts(0, format!("index '{}' has {found} entries for {count} records", index.name));
            } else {
                self.look_for_strangers(tx, schema, (index, *tree)).await?;
            }
        }
        Ok(())
    }

    /// Whether a record has no entry in an index, while no transaction changes it.
    async fn lacks_entry(
        &self,
        tx: &mut Transaction,
        schema: &Schema,
        (index, tree): (&SecondaryIndex, PartitionId),
        key: &[u8],
    ) -> Result<bool> {
        let lacks = match self.entry_of(tx, schema, index, key).await? {
            Some(entry) => !self.has_entry(tree, &entry, key).await?,
            None => false,
        };
        tx.give_locks_back();
        Ok(lacks)
    }

    /// The entry of a record that is there, which no transaction changes until its lock is given back.
    async fn entry_of(
        &self,
        tx: &mut Transaction,
        schema: &Schema,
        index: &SecondaryIndex,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        tx.wait_at_most(Some(LOCK_WAIT));
        let Some(value) = tx.get(self.partition.id(), key).await? else { return Ok(None) };
        schema.entry(index, key, &value).map(Some).map_err(|error| self.partition.field_error(error))
    }

    /// Looks for entries of an index that are those of no record: beside changes the number of all says nothing.
    async fn look_for_strangers(
        &mut self,
        tx: &mut Transaction,
        schema: &Schema,
        (index, tree): (&SecondaryIndex, PartitionId),
    ) -> Result<()> {
        let mut entries = all(tx, tree);
        while let Some((entry, key)) = tx.next(&mut entries).await? {
            let of = Bound::Included(&key[..]);
            let mut present = tx.cursor(self.partition.id(), of, of, Direction::Forward).without_locks();
            let present = tx.next(&mut present).await?;
            if present.is_some_and(|(_, value)| schema.entry(index, &key, &value).as_ref() == Ok(&entry)) {
                continue;
            }
            let is_own = self.entry_of(tx, schema, index, &key).await?.is_some_and(|own| own == entry);
            let is_there = !is_own && self.has_entry(tree, &entry, &key).await?;
            tx.give_locks_back();
            if is_there {
                self.report(
                    0,
                    format!("index '{}' has an entry of key {key:02x?} that is not its record's", index.name),
                );
            }
        }
        Ok(())
    }

    /// Whether an index has this entry of this record.
    async fn has_entry(&self, tree: PartitionId, entry: &[u8], key: &[u8]) -> Result<bool> {
        let core = &self.engine.core;
        let stored = || {
            let pool = core.buffer.pool().borrow();
            let (place, leaf) = b_tree::find(&*pool, tree, entry)?;
            Ok(place.exact.then(|| slotted::value(leaf, place.slot).to_vec()))
        };
        Ok(match core.complete(stored).await?.as_deref().map(stored::read) {
            Some(Stored::Here(of)) => of == key,
            Some(Stored::Elsewhere(length, first)) => core.fetch(tree, length, first).await? == key,
            None => false,
        })
    }
}

/// Whether a call has failed for what other transactions have or do.
fn is_of_others(error: &Error) -> bool {
    matches!(
        error,
        Error::LockTimeout { .. }
            | Error::OwnLock { .. }
            | Error::Deadlock
            | Error::RollbackStalled { .. }
            | Error::TooManyTransactions { .. }
    )
}

/// All records of a partition as they are, without locks.
fn all(tx: &Transaction, partition: PartitionId) -> transaction::Cursor {
    tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward).without_locks()
}
