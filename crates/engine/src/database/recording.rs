//! Recording what transactions reference, for a while.

use super::Database;
use crate::catalog::{Locking, Organization};
use crate::error::Result;
use crate::statistics::{Observer, Statistics};
use base::{PageId, PartitionId, TransactionId};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How often it is looked whether there is room for more, in nanoseconds.
const TICK_NS: u64 = 100_000_000;
/// A transaction takes as much memory as this number of its references.
const OF_A_TRANSACTION: usize = 4;

/// A reference to an object in a slot of a page, or, in a b-tree, to a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedReference {
    /// The page.
    pub page: PageId,
    /// The slot; 0 in a b-tree.
    pub slot: u16,
    /// Whether it changes the object.
    pub write: bool,
}

/// A partition that was referenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPartition {
    /// By what references name it.
    pub id: PartitionId,
    /// Its name.
    pub name: String,
    /// How many objects it has, where that is fixed.
    pub objects: Option<u64>,
    /// How many objects a page has, where they have fixed places; else 1.
    pub blocking_factor: u32,
    /// What transactions lock.
    pub locks: Locking,
}

impl RecordedPartition {
    /// Of a partition of the catalog.
    pub fn of(id: PartitionId, partition: &crate::catalog::Partition) -> RecordedPartition {
        let (objects, blocking_factor) = match partition.organization {
            Organization::Direct { objects, blocking_factor, .. } => (Some(objects), blocking_factor),
            Organization::Append { blocking_factor } => (None, blocking_factor.max(1)),
            Organization::BTree | Organization::Set { .. } => (None, 1),
        };
        RecordedPartition { id, name: partition.name.clone(), objects, blocking_factor, locks: partition.locking }
    }
}

/// What the transactions of a while have referenced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedReferences {
    /// The partitions that are there still.
    pub partitions: Vec<RecordedPartition>,
    /// The references of each transaction that has committed, in the order of their beginnings.
    pub transactions: Vec<Vec<RecordedReference>>,
    /// Whether it ended because there was no room for more.
    pub is_full: bool,
}

impl Database {
    /// Records for `span_ns` what transactions reference that begin from now on and commit within this time: 16 bytes a reference and 64 a
    /// transaction, and when `references_max` of them are held it ends. Outside of this time nothing is recorded, and nothing is slower.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] while another observer hears of references.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let recorded = {
    ///     let database = database.clone();
    ///     database.executor().clone().spawn(async move { database.record_references(1_000_000_000, 1 << 20).await })
    /// };
    /// # database.executor().yield_now().await;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let recorded = recorded.join().await?;
    /// assert_eq!((recorded.transactions.len(), recorded.partitions[0].name.as_str()), (1, "notes"));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn record_references(&self, span_ns: u64, references_max: usize) -> Result<RecordedReferences> {
        let engine = &self.0.engine;
        let statistics = &engine.core.statistics;
        let first = TransactionId(engine.transactions.registry.borrow().next());
        let recording = Rc::new(Recording { first, room: Cell::new(references_max), ..Recording::default() });
        statistics.observe(Rc::clone(&recording) as Rc<dyn Observer>)?;
        let observed = Observed(statistics);
        let end = engine.core.executor.now().plus_ns(span_ns);
        while !recording.is_full.get() {
            let left = end.since_ns(engine.core.executor.now());
            if left == 0 {
                break;
            }
            engine.core.executor.sleep_ns(left.min(TICK_NS)).await;
        }
        drop(observed);
        let transactions: Vec<Vec<RecordedReference>> = recording.committed.take().into_values().collect();
        let ids: BTreeSet<PartitionId> =
            transactions.iter().flatten().map(|reference| reference.page.partition).collect();
        // One that was dropped meanwhile cannot be described.
        let described = |id| Some(RecordedPartition::of(id, &*self.describe(id).ok()?));
        let partitions = ids.into_iter().filter_map(described).collect();
        Ok(RecordedReferences { partitions, transactions, is_full: recording.is_full.get() })
    }
}

/// Ends the observation, however the recording ends.
struct Observed<'a>(&'a Statistics);

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        self.0.end_observation();
    }
}

#[derive(Default)]
struct Recording {
    /// Transactions before it had begun before.
    first: TransactionId,
    /// For how many references there is room.
    room: Cell<usize>,
    is_full: Cell<bool>,
    unfinished: RefCell<BTreeMap<TransactionId, Vec<RecordedReference>>>,
    committed: RefCell<BTreeMap<TransactionId, Vec<RecordedReference>>>,
}

impl Recording {
    /// Takes room; without any, what is not whole by now is given up.
    fn take_room(&self, references: usize) -> bool {
        match self.room.get().checked_sub(references) {
            Some(left) => self.room.set(left),
            None => {
                self.is_full.set(true);
                self.unfinished.take();
            }
        }
        !self.is_full.get()
    }
}

impl Observer for Recording {
    fn reference(&self, transaction: TransactionId, page: PageId, slot: u16, write: bool) {
        if transaction < self.first || self.is_full.get() {
            return;
        }
        let is_new = !self.unfinished.borrow().contains_key(&transaction);
        if self.take_room(if is_new { 1 + OF_A_TRANSACTION } else { 1 }) {
            let reference = RecordedReference { page, slot, write };
            self.unfinished.borrow_mut().entry(transaction).or_default().push(reference);
        }
    }

    fn ended(&self, transaction: TransactionId, committed: bool) {
        let Some(references) = self.unfinished.borrow_mut().remove(&transaction) else { return };
        if committed {
            self.committed.borrow_mut().insert(transaction, references);
        } else {
            self.room.set(self.room.get() + references.len() + OF_A_TRANSACTION);
        }
    }
}
