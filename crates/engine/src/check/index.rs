//! Whether the secondary indexes of a b-tree agree with its records: each record has its entry in each, and there are no others.

use super::Examiner;
use crate::catalog::{Schema, SecondaryIndex};
use crate::transaction::{self, Direction, Transaction};
use crate::{Error, Result};
use base::PartitionId;
use std::ops::Bound;
use structures::organization::b_tree;
use structures::organization::b_tree::stored::{self, Stored};
use structures::page::slotted;

impl Examiner<'_> {
    pub(super) async fn check_indexes(&mut self) {
        let Some(schema) = self.partition.schema.clone() else { return };
        let trees = |index: &SecondaryIndex| index.tree.filter(|tree| tree.since.is_some()).map(|tree| tree.id);
        let indexes: Vec<(SecondaryIndex, PartitionId)> =
            schema.secondaries.iter().filter_map(|index| Some((index.clone(), trees(index)?))).collect();
        let checked = match transaction::begin(self.engine, None).await {
            Ok(mut tx) => {
                let compared = self.compare(&mut tx, &schema, &indexes).await;
                tx.end_reading();
                compared
            }
            Err(error) => Err(error),
        };
        match checked {
            // It is being dropped or truncated.
            Ok(()) | Err(Error::NoPartition(_)) => {}
            Err(error @ (Error::Closed | Error::LogFailed { .. })) => _ = self.out_of_reach.get_or_insert(error),
            Err(error) => {
                self.report(0, format!("its secondary indexes cannot be compared with its records: {error}"));
            }
        }
    }

    async fn compare(
        &mut self,
        tx: &mut Transaction,
        schema: &Schema,
        indexes: &[(SecondaryIndex, PartitionId)],
    ) -> Result<()> {
        // Whether the records are of the type that an index gives them shows when it is built.
        let is_typed = schema.secondaries.iter().filter_map(|index| index.tree).all(|tree| tree.since.is_some());
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
                if !self.has_entry(*tree, &entry, &key).await? {
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
            if found != count {
                self.report_counts(0, format!("index '{}' has {found} entries for {count} records", index.name));
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

/// All records of a partition as they are, without locks.
fn all(tx: &Transaction, partition: PartitionId) -> transaction::Cursor {
    tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward).without_locks()
}
