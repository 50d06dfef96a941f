//! Truncating partitions: an empty one takes the place of a full one, whatever that had.
//!
//! 1. An empty partition of the same description is made, with a number and files of its own; the catalog does not have it yet. Others use the full one
//!    meanwhile.
//! 2. The full one is hidden, and all has to become true that must be before a partition is dropped (`drop`).
//! 3. In one change the superblock file has the empty one and the full one no longer. That is the moment: a cut before it leaves the full one,
//!    one after it the empty one.
//! 4. The empty one is found under the name. The full one's pages leave memory and the tiers, and its files are removed.
//!
//! So it takes as long as a drop, however many records there are, and gives all of their space back.

use super::Database;
use super::log_room::{complete_logged, length_of, wait_for_log_beside};
use super::partition::{FIRST_PAGES_SIZE, number};
use crate::Result;
use crate::catalog::{IndexTree, Partition, Schema};
use crate::checkpoint::{replace_partitions, state_catalog};
use crate::superblock::{CatalogChange, stored_indexes};
use base::{Lsn, PartitionId};
use std::rc::Rc;

impl Database {
    /// Takes all records out of a partition and gives their space back to the file system. Returns the number that the partition
    /// has from now on: the one that it has had leads to nothing any more, and those of its indexes
    /// ([`Database::secondary`]) neither. It is durable when this returns, and goes on to its end even if its future is dropped.
    ///
    /// Every transaction, snapshot and load that is under way is waited for, up to ten seconds, one of the caller's own among
    /// them perhaps, and before that for what the opening has left to be undone, as long as that gets on; those who begin to use the partition meanwhile get [`crate::Error::NoPartition`]. For a set, all sets are swept without
    /// rest. A snapshot of a moment before it gets [`crate::Error::SnapshotTooOld`] from the partition. A
    /// database has 65,536 numbers in its life; this takes one of them, and one for each index of a b-tree.
    ///
    /// # Errors
    /// [`crate::Error::NoPartition`]; [`crate::Error::StillUndoing`] or [`crate::Error::RollbackStalled`] if what the opening has left to be
    /// undone does not get on; [`crate::Error::Setting`] while nodes use the database; [`crate::Error::WrongOrganization`] for a secondary index; [`crate::Error::PartitionInUse`] if an index of it is
    /// being created or dropped, others have not ended in ten seconds or keep the sweep from going on for as long; those of
    /// [`Database::create_partition`]: the partition stays as it was then, or, if the superblock file cannot be written at all, is
    /// out of reach until the next opening shows what has become of it.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let visits = database.create_partition(PartitionSpec::b_tree("visits")).await?;
    /// database.transaction(async |tx| tx.put(visits, b"monday", b"17").await).await?;
    /// let empty = database.truncate_partition(visits).await?;
    /// assert_eq!(database.partition("visits"), Ok(empty));
    /// assert_eq!(database.transaction(async |tx| tx.get(empty, b"monday").await).await?, None);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn truncate_partition(&self, partition: PartitionId) -> Result<PartitionId> {
        let database = self.clone();
        let truncating = async move { database.truncate_undisturbed(partition).await };
        self.0.engine.core.executor.spawn(truncating).join().await
    }

    async fn truncate_undisturbed(&self, id: PartitionId) -> Result<PartitionId> {
        let engine = &self.0.engine;
        self.await_undone().await?;
        self.await_leases().await?;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        let found = self.describe_droppable(id)?;
        self.check_unserved(&found, "is not truncated")?;
        let mut made = Vec::new();
        if let Err(error) = self.build_successors(&found, &mut made).await {
            self.take_back(&made).await;
            return Err(error);
        }
        let hidden = self.hide_with_indexes(&found)?;
        let change = self.begin_catalog_change();
        let prepared = async {
            self.await_users(&found).await?;
            // No commit shares the moment from which on it is empty.
            complete_logged(engine, length_of(&[]), || engine.core.change(&[])).await?;
            let since = engine.core.log.end();
            Ok((self.sweep_dropped(&found).await?, since))
        };
        let (sweeping, since) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.show_again(&hidden);
                self.take_back(&made).await;
                return Err(error);
            }
        };
        let numbers = |partitions: &[Rc<Partition>], change: fn(u16) -> CatalogChange| -> Vec<CatalogChange> {
            partitions.iter().map(|partition| change(partition.id)).collect()
        };
        let mut changes = numbers(&hidden, CatalogChange::Drop);
        changes.extend(numbers(&made, CatalogChange::Enter));
        changes.extend(made.iter().map(|partition| CatalogChange::Since(partition.id, change.since().0)));
        changes.extend(stored_indexes(&made[0]));
        if let Err(error) = replace_partitions(engine, made.clone(), changes).await {
            // The next opening may find either; neither must be changed before it is certain which one.
            let mut changes = numbers(&made, CatalogChange::Drop);
            changes.extend(numbers(&hidden, CatalogChange::Enter));
            if state_catalog(engine, changes).await.is_ok() {
                self.show_again(&hidden);
                self.take_back(&made).await;
            } else {
                for partition in &made {
                    self.detach(partition).await;
                }
                change.leave_undecided();
            }
            return Err(error);
        }
        // A reader at that moment waits until it is durable.
        engine.versions.note_emptied(made.iter().map(|partition| partition.id()), since);
        engine.core.log.request(since);
        engine.catalog.note_swept_change();
        drop(change);
        self.end_drop(hidden, sweeping).await;
        Ok(made[0].id())
    }

    /// Makes an empty partition of the same description, then its indexes.
    async fn build_successors(&self, found: &Partition, made: &mut Vec<Rc<Partition>>) -> Result<()> {
        let partition = self.build_successor(found, made).await?;
        let Some(schema) = &partition.schema else { return Ok(()) };
        let mut secondaries = schema.secondaries.clone();
        for index in &mut secondaries {
            let Some(tree) = index.tree else { continue };
            let tree = self.0.engine.catalog.describe(tree.id)?;
            let tree = Partition { index_of: Some(partition.id()), ..(*tree).clone() };
            let id = self.build_successor(&tree, made).await?.id();
            index.tree = Some(IndexTree { id, since: Some(Lsn::ZERO) });
        }
        made[0] = Rc::new(partition.with_indexes(&schema.record, secondaries));
        Ok(())
    }

    async fn build_successor(&self, found: &Partition, made: &mut Vec<Rc<Partition>>) -> Result<Rc<Partition>> {
        let engine = &self.0.engine;
        let pages = found.first_pages()?;
        // Before anything is made.
        wait_for_log_beside(engine, FIRST_PAGES_SIZE).await?;
        let mut successor = found.clone();
        if successor.set_settings().is_some() {
            successor.schema = successor.schema.map(Schema::of_new_set);
        }
        number(&mut engine.catalog.partitions.borrow_mut(), &mut successor)?;
        let successor = Rc::new(successor);
        made.push(Rc::clone(&successor));
        self.begin_partition(&successor).await?;
        self.build(&successor, pages).await?;
        Ok(successor)
    }
}
