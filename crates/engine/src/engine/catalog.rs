//! The catalog: which partitions there are, and what the superblock says.

use super::{Core, IndexBuild};
use crate::catalog::{Locking, Organization, Partition, Partitions};
use crate::superblock::{CatalogChange, Superblock, SuperblockFile};
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, Lsn, PartitionId};
use driver::DeviceId;
use executor::Turn;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What an operation has to know of a partition with keys. It is looked up once: what was found stays so for as long as the
/// transaction lasts, because a drop waits for it.
#[derive(Clone, Copy)]
pub(crate) struct KeyedPartition {
    /// Whether it is a memory-resident set, and no b-tree.
    pub is_set: bool,
    pub locks_records: bool,
}

/// What a change of a record has to know beyond that.
pub(crate) enum Keyed {
    BTree,
    /// A b-tree whose records have a type, and perhaps secondary indexes.
    TypedBTree(Rc<Partition>),
    Set,
    /// A set whose records have a type, and perhaps secondary indexes.
    TypedSet(Rc<Partition>),
}

impl KeyedPartition {
    /// What a partition is, if its records have keys.
    ///
    /// # Errors
    /// [`Error::WrongOrganization`] if they have none.
    #[inline]
    pub fn of(found: &Partition) -> Result<KeyedPartition> {
        let is_set = match found.organization {
            Organization::BTree => false,
            Organization::Set { arrivals: false, .. } => true,
            _ => return Err(found.wrong_organization("its records have no keys")),
        };
        Ok(KeyedPartition { is_set, locks_records: found.locking == Locking::Record })
    }
}

/// Something that goes on for as long as this exists, and is counted.
pub(crate) struct Counted<'a>(&'a Cell<u32>);

impl<'a> Counted<'a> {
    pub fn new(count: &'a Cell<u32>) -> Counted<'a> {
        count.set(count.get() + 1);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A partition that is named in a cell of the catalog for as long as this exists.
pub(crate) struct NotedPartition<'a>(&'a Cell<Option<PartitionId>>);

impl<'a> NotedPartition<'a> {
    pub fn new(cell: &'a Cell<Option<PartitionId>>, partition: PartitionId) -> NotedPartition<'a> {
        assert_eq!(cell.replace(Some(partition)), None, "compactions have turns");
        NotedPartition(cell)
    }
}

impl Drop for NotedPartition<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// How long it is waited for a file to become shorter, in nanoseconds: longer than that takes where its device answers.
const SHRINKING_NS_MAX: u64 = 10 * SECOND_NS;

/// Whether nodes use a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// None has since the opening.
    Never,
    /// They do, by way of a server.
    Begun,
    /// The server was told to end, and has something under way.
    Ending,
    /// It has ended. Nodes that have not heard of that may have leases.
    Ended,
}

/// The catalog.
pub struct Catalog {
    /// The device that holds the superblock's file.
    pub(crate) home_device: String,
    pub(crate) partitions: RefCell<Partitions>,
    /// The superblock's file; none while it is being written, or where procedures are run again for a restart.
    pub(crate) superblock_file: RefCell<Option<SuperblockFile>>,
    /// What the superblock says.
    pub(crate) superblock: RefCell<Superblock>,
    /// What the next write of the superblock says of partitions.
    pub(crate) changes: RefCell<Vec<CatalogChange>>,
    /// What the log is to say of them, once the superblock says it.
    unlogged: RefCell<Vec<CatalogChange>>,
    /// The turn to create a partition.
    pub(crate) creation: Turn,
    /// The turn to compact a partition.
    pub(crate) compaction: Turn,
    /// How many backups are under way, and of which partition room is being given back: never both.
    pub(crate) backups: Cell<u32>,
    pub(crate) shrinking: Cell<Option<PartitionId>>,
    /// The indexes that are being built.
    pub(crate) index_builds: RefCell<Vec<Rc<IndexBuild>>>,
    /// Whether nodes use the database.
    pub(crate) served: Cell<Serving>,
    /// Until when nodes have leases whose server has ended.
    pub(crate) leased: Cell<Instant>,
    /// The partition whose pages are being moved.
    pub(crate) moving: Cell<Option<PartitionId>>,
    /// The turn to give a partition indexes that it is ensured to have.
    pub(crate) ensuring: Turn,
    /// How many bulk loads have ended, by partition: what they wrote is not in the log.
    loads: RefCell<BTreeMap<PartitionId, u64>>,
    /// Where the log was when each of the loads began that are under way.
    loading: RefCell<Vec<(PartitionId, Lsn)>>,
    /// How many of them the log says to have ended, which is not so yet.
    pub(crate) ending_loads: Cell<u32>,
    /// How many changes were made since the database was opened before which the sets were swept, so that no earlier call is repeated.
    pub(crate) swept_changes: Cell<u64>,
    /// Where backups are being written, or what is left of them is being removed.
    pub(crate) backed_up_to: RefCell<BTreeSet<DeviceId>>,
}

impl Catalog {
    /// Waits while the file of this partition becomes shorter, or any file.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if that does not end, and [`Error::Closed`].
    pub(crate) async fn await_shrinking(&self, core: &Core, partition: Option<PartitionId>) -> Result<()> {
        let until = core.executor.now().plus_ns(SHRINKING_NS_MAX);
        let shrinking = || self.shrinking.get().filter(|found| partition.is_none_or(|partition| partition == *found));
        while let Some(found) = shrinking() {
            core.check_open()?;
            if core.executor.now() >= until {
                return Err(Error::PartitionInUse(self.describe(found)?.name.clone()));
            }
            core.executor.sleep_ns(MILLISECOND_NS).await;
        }
        Ok(())
    }

    /// The catalog of these partitions.
    pub(crate) fn new(
        partitions: Partitions,
        superblock_file: Option<SuperblockFile>,
        superblock: Superblock,
        home_device: String,
    ) -> Catalog {
        Catalog {
            home_device,
            partitions: RefCell::new(partitions),
            superblock_file: RefCell::new(superblock_file),
            superblock: RefCell::new(superblock),
            changes: RefCell::default(),
            unlogged: RefCell::default(),
            creation: Turn::new(),
            compaction: Turn::new(),
            backups: Cell::new(0),
            shrinking: Cell::new(None),
            index_builds: RefCell::default(),
            served: Cell::new(Serving::Never),
            leased: Cell::new(Instant::START),
            moving: Cell::new(None),
            ensuring: Turn::new(),
            loads: RefCell::default(),
            loading: RefCell::default(),
            ending_loads: Cell::new(0),
            swept_changes: Cell::new(0),
            backed_up_to: RefCell::default(),
        }
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Result<PartitionId> {
        self.partitions.borrow().named(name).ok_or_else(|| Error::NoPartition(name.to_owned()))
    }

    /// The partition's description.
    ///
    /// # Errors
    /// [`Error::NoPartition`] if the number is not one of this database's: never was, or its partition was dropped.
    pub fn describe(&self, id: PartitionId) -> Result<Rc<Partition>> {
        self.partitions.borrow().find(id).cloned()
    }

    /// The partition as it is now, which something may have changed since it was found: seldom.
    ///
    /// # Errors
    /// [`Error::NoPartition`](crate::Error::NoPartition).
    #[inline]
    pub fn refresh(&self, found: &Rc<Partition>) -> Result<Rc<Partition>> {
        let is_same = self.partitions.borrow().get(found.id()).is_some_and(|now| Rc::ptr_eq(now, found));
        if is_same { Ok(Rc::clone(found)) } else { self.describe(found.id()) }
    }

    /// What an operation has to know of a partition with keys.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`].
    #[inline]
    pub(crate) fn find_keyed(&self, partition: PartitionId) -> Result<KeyedPartition> {
        KeyedPartition::of(self.partitions.borrow().find(partition)?)
    }

    /// What a change of a record has to know of a partition with keys.
    ///
    /// # Errors
    /// As [`Catalog::find_keyed`].
    #[inline(always)]
    pub(crate) fn find_keyed_to_change(&self, partition: PartitionId) -> Result<(KeyedPartition, Keyed)> {
        let partitions = self.partitions.borrow();
        let found = partitions.find(partition)?;
        let known = KeyedPartition::of(found)?;
        let keyed = match known.is_set {
            false if found.schema.is_some() => Keyed::TypedBTree(Rc::clone(found)),
            false if found.index_of.is_some() => {
                return Err(found.wrong_organization("only changes of its records change an index"));
            }
            false => Keyed::BTree,
            true if found.schema.is_some() => Keyed::TypedSet(Rc::clone(found)),
            true => Keyed::Set,
        };
        Ok((known, keyed))
    }

    /// The position of a field of a partition's records, by which transactions refer to it.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`] if its records have no type, [`Error::Field`].
    pub fn field(&self, partition: PartitionId, name: &str) -> Result<usize> {
        let found = self.describe(partition)?;
        found.typed()?.record.field(name).map_err(|error| found.field_error(error))
    }

    /// The number of a partition's secondary index, by which transactions refer to it.
    ///
    /// # Errors
    /// As [`Catalog::field`], also while it is being built.
    pub fn secondary(&self, partition: PartitionId, name: &str) -> Result<usize> {
        let found = self.describe(partition)?;
        found.typed()?.secondary(name).map_err(|error| found.field_error(error))
    }

    /// A bulk load begins: what it writes has a later position than this.
    pub(crate) fn begin_load(&self, partition: PartitionId, now: Lsn) {
        self.loading.borrow_mut().push((partition, now));
    }

    /// Whether a bulk load of this partition is under way.
    pub(crate) fn is_loading(&self, partition: PartitionId) -> bool {
        self.loading.borrow().iter().any(|(of, _)| *of == partition)
    }

    /// That of this partition has ended or was given up.
    pub(crate) fn end_load(&self, partition: PartitionId) {
        let mut loading = self.loading.borrow_mut();
        let at = loading.iter().position(|(of, _)| *of == partition).expect("a load ends once");
        loading.swap_remove(at);
    }

    /// Where the log was when the first of the loads began that are under way.
    pub(crate) fn loading_since(&self) -> Option<Lsn> {
        self.loading.borrow().iter().map(|(_, began)| *began).min()
    }

    /// The superblock file says otherwise what partitions and indexes there are, and the sets were swept before.
    pub(crate) fn note_swept_change(&self) {
        self.swept_changes.set(self.swept_changes.get() + 1);
    }

    /// A bulk load of a partition has ended.
    pub(crate) fn note_load(&self, partition: PartitionId) {
        *self.loads.borrow_mut().entry(partition).or_default() += 1;
    }

    /// How many bulk loads of a partition have ended since the database was opened.
    pub(crate) fn loads(&self, partition: PartitionId) -> u64 {
        self.loads.borrow().get(&partition).copied().unwrap_or(0)
    }

    /// The next write of the superblock states what becomes of partitions.
    pub(crate) fn note_change(&self, changes: impl IntoIterator<Item = CatalogChange>) {
        self.changes.borrow_mut().extend(changes);
    }

    /// What becomes of partitions, for a write of the superblock that states it.
    pub(crate) fn take_changes(&self) -> Vec<CatalogChange> {
        let changes = self.changes.take();
        self.unlogged.borrow_mut().extend(changes.iter().cloned());
        changes
    }

    /// What the superblock says of partitions by now that the log does not.
    pub(crate) fn take_unlogged(&self) -> Vec<CatalogChange> {
        self.unlogged.take()
    }
}
