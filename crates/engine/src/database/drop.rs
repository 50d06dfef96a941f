//! Dropping partitions.
//!
//! 1. The partition is hidden: a new user is told that there is none.
//! 2. Transactions, snapshots and loads that had begun come to their ends. So nothing of it is unfinished in the log.
//! 3. The log is durable up to those ends, or a restart would undo committed changes in pages that no longer exist. Sets are
//!    swept: a restart must not replay procedures that have used the partition, or only asked for it. If it is a set, no sweep
//!    begins from then on until it is out of memory.
//! 4. The superblock file no longer has it. That is the moment: a cut before it leaves the whole partition, one after it nothing.
//! 5. Its pages leave memory and the tiers, its files are removed, then its name is free. What a cut leaves of them the next
//!    opening removes.
//!
//! What the log, the double-write area and the tiers still hold of it a restart passes over, because its number leads to nothing
//! and never will to anything else.
//!
//! Transactions and snapshots that began before are counted at their ends, in two groups: looking for the partition in
//! each of them would have a price for every reference. After ten seconds the drop gives up. For a set, a sweep without
//! rest follows, and the drop gives up after ten seconds in which that sweep writes nothing.

use super::Database;
use crate::catalog::Partition;
use crate::checkpoint::{SweepGuard, state_catalog, sweep_since};
use crate::superblock::CatalogChange;
use crate::{Error, Result};
use base::PartitionId;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How long a drop waits for users that had begun before, in nanoseconds.
pub(super) const PATIENCE_NS: u64 = 10 * SECOND_NS;
/// How often it looks for them at first, and later, in nanoseconds.
const LOOK_NS: [u64; 2] = [50 * MICROSECOND_NS, 5 * MILLISECOND_NS];

impl Database {
    /// Drops a partition with all that is in it. It is gone for good when this returns; its number is never given again, its
    /// name may be: at once, unless a device that has pages or files of it does not answer. Callers that begin to use it meanwhile get
    /// [`Error::NoPartition`]; every transaction, snapshot and load that is under way is waited for, up to ten seconds, a
    /// committed transaction whose long values are being freed among them. For a set, all sets are swept without rest. The drop
    /// goes on to its end even if its future is dropped. What the opening has left to be undone is waited for as long as that gets on.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::StillUndoing`] or [`Error::RollbackStalled`] if that does not get on; [`Error::Setting`] while nodes use the database; [`Error::PartitionInUse`] if some of those have not ended in ten seconds, one of the caller's own
    /// among them perhaps, or if others keep the sweep from going on for as long: the partition stays then. The log's or the driver's: the partition stays, or, if the superblock file cannot
    /// be written at all, is out of reach until the next opening shows what has become of it.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.drop_partition(notes).await?;
    /// let read = database.transaction(async |tx| tx.get(notes, b"milk").await).await;
    /// assert!(matches!(read, Err(Error::NoPartition(_))));
    /// let again = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// assert_ne!(notes, again);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn drop_partition(&self, partition: PartitionId) -> Result<()> {
        let database = self.clone();
        self.0.engine.core.executor.spawn(async move { database.drop_undisturbed(partition).await }).join().await
    }

    async fn drop_undisturbed(&self, id: PartitionId) -> Result<()> {
        self.await_undone().await?;
        self.await_leases().await?;
        let _turn = self.0.engine.catalog.creation.take(&self.0.engine.core.executor).await;
        self.0.engine.core.check_open()?;
        let found = self.describe_droppable(id)?;
        self.check_unserved(&found, "is not dropped")?;
        let dropped = self.hide_with_indexes(&found)?;
        let change = self.begin_catalog_change();
        let prepared = self.prepare_drop(&found).await;
        let sweeping = match prepared {
            Ok(sweeping) => sweeping,
            Err(error) => {
                self.show_again(&dropped);
                return Err(error);
            }
        };
        let changes = dropped.iter().map(|partition| CatalogChange::Drop(partition.id)).collect();
        if let Err(error) = state_catalog(&self.0.engine, changes).await {
            // The next opening may find it dropped or not. It must not be changed before that is known.
            let changes = dropped.iter().map(|partition| CatalogChange::Enter(partition.id)).collect();
            if state_catalog(&self.0.engine, changes).await.is_ok() {
                self.show_again(&dropped);
            } else {
                change.leave_undecided();
            }
            return Err(error);
        }
        self.0.engine.catalog.note_swept_change();
        drop(change);
        self.end_drop(dropped, sweeping).await;
        Ok(())
    }

    /// Keeps new users from a partition and its indexes. It is the last one of them.
    pub(super) fn hide_with_indexes(&self, found: &Partition) -> Result<Vec<Rc<Partition>>> {
        let mut partitions = self.0.engine.catalog.partitions.borrow_mut();
        found.index_trees().map(|tree| tree.id).chain([found.id()]).map(|id| partitions.hide(id)).collect()
    }

    /// They are there after all.
    pub(super) fn show_again(&self, hidden: &[Rc<Partition>]) {
        hidden.iter().for_each(|partition| self.0.engine.catalog.partitions.borrow_mut().show(partition));
    }

    /// What a partition is that may be dropped.
    pub(super) fn describe_droppable(&self, id: PartitionId) -> Result<Rc<Partition>> {
        self.describe_at_rest(id, "it is a secondary index: drop it as such")
    }

    /// What a partition is that is no index, none of whose indexes is being created or dropped.
    pub(super) fn describe_at_rest(&self, id: PartitionId, of_index: &str) -> Result<Rc<Partition>> {
        let found = self.0.engine.catalog.describe(id)?;
        if found.index_of.is_some() {
            return Err(found.wrong_organization(of_index));
        }
        if found.has_unready_index() {
            return Err(Error::PartitionInUse(found.name.clone()));
        }
        Ok(found)
    }

    /// Takes partitions that the catalog has no longer out of memory, and removes their files.
    pub(super) async fn end_drop(&self, dropped: Vec<Rc<Partition>>, sweeping: Option<SweepGuard>) {
        let database = self.clone();
        let ending = self.0.engine.core.executor.spawn(async move {
            let partitions = &database.0.engine.catalog.partitions;
            for partition in &dropped {
                database.detach(partition).await;
                partitions.borrow_mut().forget(partition);
            }
            // Others' sets are swept whenever its own device comes to remove its files.
            drop(sweeping);
            for partition in &dropped {
                database.remove_files(partition).await;
                partitions.borrow_mut().free_name(partition);
            }
        });
        // A device that answers no more keeps its files of the partition, but does not keep other partitions from being created
        // or dropped.
        let until = self.0.engine.core.executor.now().plus_ns(PATIENCE_NS);
        let mut wait_ns = LOOK_NS[0];
        while !ending.is_finished() && self.0.engine.core.executor.now() < until {
            self.0.engine.core.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(LOOK_NS[1]);
        }
    }

    /// All that has to be true before the superblock file may forget a hidden partition. If it is a set, the turn to sweep comes with
    /// that.
    pub(super) async fn prepare_drop(&self, partition: &Rc<Partition>) -> Result<Option<SweepGuard>> {
        self.await_users(partition).await?;
        self.sweep_dropped(partition).await
    }

    /// Waits until no transaction can use a hidden partition any more.
    pub(super) async fn await_users(&self, partition: &Partition) -> Result<()> {
        if canary::is_planted(Canary::HastyDrop) { Ok(()) } else { self.await_earlier(partition).await }
    }

    /// What is left to be done then, and the turn to sweep of a set. Who has that must not wait for room in the log: it may take a sweep
    /// to make some.
    pub(super) async fn sweep_dropped(&self, partition: &Rc<Partition>) -> Result<Option<SweepGuard>> {
        let engine = &self.0.engine;
        engine.core.log.flush(engine.core.log.end()).await?;
        let is_set = partition.set_settings().is_some();
        if !is_set && !engine.transactions.may_have_calls.get() {
            return Ok(None);
        }
        let sweeping = self.sweep_for_drop(partition).await?;
        Ok(is_set.then_some(sweeping))
    }

    /// Waits until everything has ended that had begun to use the database before.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] after ten seconds, [`Error::RollbackStalled`].
    pub(super) async fn await_earlier(&self, partition: &Partition) -> Result<()> {
        let engine = &self.0.engine;
        let until = engine.core.executor.now().plus_ns(PATIENCE_NS);
        let mut wait_ns = LOOK_NS[0];
        let since = engine.transactions.registry.borrow().changes();
        while !engine.transactions.registry.borrow_mut().have_ended(since) {
            // A stalled rollback may take as long as its device is away.
            if let Some((_, cause)) = engine.transactions.registry.borrow().stalled().first() {
                return Err(Error::stalled(cause.clone()));
            }
            if engine.core.executor.now() >= until {
                return Err(Error::PartitionInUse(partition.name.clone()));
            }
            engine.core.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(LOOK_NS[1]);
        }
        Ok(())
    }

    /// Before the catalog changes otherwise: has no call be repeated that was logged by now.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if others keep the sweep from going on for ten seconds, or the driver's.
    pub(super) async fn sweep_calls(&self, partition: &Partition) -> Result<()> {
        if self.0.engine.transactions.may_have_calls.get() {
            self.sweep_for_drop(partition).await?;
        }
        Ok(())
    }

    /// Has everything swept that was committed by now. A sweep may wait for others: loads, and transactions that keep segments
    /// from being taken; so the drop gives up when no segment has been written for as long as it waits for others.
    async fn sweep_for_drop(&self, partition: &Partition) -> Result<SweepGuard> {
        let engine = &self.0.engine;
        let (database, committed) = (self.clone(), engine.versions.present());
        let sweep = engine.core.executor.spawn(async move { sweep_since(&database.0.engine, committed).await });
        let written = &engine.core.statistics.segments_written;
        let (mut before, mut until) = (written.get(), engine.core.executor.now().plus_ns(PATIENCE_NS));
        let mut wait_ns = LOOK_NS[0];
        while !sweep.is_finished() {
            if before != written.get() {
                (before, until) = (written.get(), engine.core.executor.now().plus_ns(PATIENCE_NS));
            }
            if engine.core.executor.now() >= until {
                return Err(Error::PartitionInUse(partition.name.clone()));
            }
            engine.core.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(LOOK_NS[1]);
        }
        sweep.join().await
    }
}
