//! Dropping partitions.
//!
//! 1. The partition is hidden: whoever begins to use it is told that there is none.
//! 2. Transactions, snapshots and loads that had begun come to their ends. So nothing of it is unfinished in the log.
//! 3. The log is durable up to those ends, or a restart would take back what was committed, in pages that are no more. Sets are
//!    swept: a restart must not run procedures again that have used it, or only asked for it. If it is a set, nobody sweeps from
//!    then on until it is out of memory.
//! 4. The home file no longer has it. That is the moment: a cut before it leaves the whole partition, one after it nothing.
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
use crate::checkpoint::Sweeping;
use crate::home::Change;
use crate::{Error, Result};
use base::PartitionId;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How long a drop waits for those who had begun before, in nanoseconds.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
/// How often it looks for them at first, and later, in nanoseconds.
const LOOK_NS: [u64; 2] = [50 * MICROSECOND_NS, 5 * MILLISECOND_NS];

/// Somebody who uses partitions outside of transactions.
pub(crate) struct Visit {
    database: Database,
    group: u8,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.database.0.registry.borrow_mut().leave_group(self.group);
    }
}

impl Database {
    /// No partition is dropped, of those that are there now, before this is.
    pub(crate) fn visit(&self) -> Visit {
        Visit { database: self.clone(), group: self.0.registry.borrow_mut().enter_group() }
    }

    /// Drops a partition with all that is in it. It is gone for good when this returns; its number is never given again, its
    /// name may be: at once, unless its device does not answer. Callers that begin to use it meanwhile get
    /// [`Error::NoPartition`]; every transaction, snapshot and load that is under way is waited for, up to ten seconds. For a
    /// set, all sets are swept without rest. The drop goes on to its end even if its future is dropped.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::PartitionInUse`] if some of those have not ended in ten seconds, one of the caller's own
    /// among them perhaps, or if others keep the sweep from going on for as long: the partition stays then. The log's or the driver's: the partition stays, or, if the home file cannot
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
        self.refuse_while_repeating()?;
        let database = self.clone();
        self.0.executor.spawn(async move { database.drop_undisturbed(partition).await }).join().await
    }

    async fn drop_undisturbed(&self, id: PartitionId) -> Result<()> {
        let _turn = self.0.creation.take(&self.0.executor).await;
        let partition = self.0.partitions.borrow_mut().hide(id)?;
        let change = self.begin_catalog_change();
        let prepared = self.prepare_drop(&partition).await;
        let sweeping = match prepared {
            Ok(sweeping) => sweeping,
            Err(error) => {
                self.0.partitions.borrow_mut().show(&partition);
                return Err(error);
            }
        };
        if let Err(error) = self.state_catalog(vec![Change::Drop(partition.id)]).await {
            // The next opening may find it dropped or not. Nobody may change it before that is settled.
            if self.state_catalog(vec![Change::Enter(partition.id)]).await.is_ok() {
                self.0.partitions.borrow_mut().show(&partition);
            } else {
                change.leave_unsettled();
            }
            return Err(error);
        }
        drop(change);
        let database = self.clone();
        let ending = self.0.executor.spawn(async move {
            database.detach(&partition).await;
            database.0.partitions.borrow_mut().forget(&partition);
            // Others' sets are swept whenever its own device comes to remove its files.
            drop(sweeping);
            database.remove_files(&partition).await;
            database.0.partitions.borrow_mut().free_name(&partition);
        });
        // A device that answers no more keeps what it has of the partition, and nobody from creating or dropping others.
        let until = self.0.executor.now().plus_ns(PATIENCE_NS);
        let mut wait_ns = LOOK_NS[0];
        while !ending.is_finished() && self.0.executor.now() < until {
            self.0.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(LOOK_NS[1]);
        }
        Ok(())
    }

    /// All that has to be true before the home file may forget a hidden partition. If it is a set, the turn to sweep comes with
    /// that.
    async fn prepare_drop(&self, partition: &Rc<Partition>) -> Result<Option<Sweeping>> {
        let inner = &*self.0;
        let until = inner.executor.now().plus_ns(PATIENCE_NS);
        let mut wait_ns = LOOK_NS[0];
        let mut is_told = false;
        while !canary::is_planted(Canary::HastyDrop) {
            {
                let mut registry = inner.registry.borrow_mut();
                is_told = is_told || registry.change_groups();
                if is_told && !registry.has_earlier() {
                    break;
                }
            }
            // A stalled rollback may take as long as its device is away.
            if let Some((_, cause)) = inner.registry.borrow().stalled().first() {
                return Err(Error::stalled(cause.clone()));
            }
            if inner.executor.now() >= until {
                return Err(Error::PartitionInUse(partition.name.clone()));
            }
            inner.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(LOOK_NS[1]);
        }
        inner.log.flush(inner.log.end()).await?;
        let is_set = partition.set_settings().is_some();
        if !is_set && !inner.may_have_calls.get() {
            return Ok(None);
        }
        let sweeping = self.sweep_for_drop(partition).await?;
        Ok(is_set.then_some(sweeping))
    }

    /// Has everything swept that was committed by now. A sweep may wait for others: loads, and transactions that keep segments
    /// from being taken; so the drop gives up when no segment has been written for as long as it waits for others.
    async fn sweep_for_drop(&self, partition: &Partition) -> Result<Sweeping> {
        let inner = &*self.0;
        let (database, committed) = (self.clone(), inner.last_commit.get());
        let sweep = inner.executor.spawn(async move { database.sweep_since(committed).await });
        let written = &inner.statistics.segments_written;
        let (mut before, mut until) = (written.get(), inner.executor.now().plus_ns(PATIENCE_NS));
        let mut wait_ns = LOOK_NS[0];
        while !sweep.is_finished() {
            if before != written.get() {
                (before, until) = (written.get(), inner.executor.now().plus_ns(PATIENCE_NS));
            }
            if inner.executor.now() >= until {
                return Err(Error::PartitionInUse(partition.name.clone()));
            }
            inner.executor.sleep_ns(wait_ns).await;
            wait_ns = (2 * wait_ns).min(LOOK_NS[1]);
        }
        sweep.join().await
    }
}
