//! The database: opening and closing one, its partitions, bulk loads, sorts, and what transactions and checkpoints are begun by.

mod backup;
mod building_index;
mod cache;
mod catalog_change;
mod compact;
mod create;
mod devices;
mod drop;
mod ensure;
mod figures;
mod in_order;
mod index;
mod internals;
#[cfg(test)]
mod last_page;
mod load;
mod load_set;
mod log_files;
mod log_move;
mod log_room;
mod machine;
mod maintenance;
mod open;
mod partition;
mod procedures;
mod recording;
mod rename;
mod residence;
mod served;
mod set_index;
mod set_portions;
mod sets;
mod settings;
mod shipment;
mod shipped;
mod shipped_past;
mod sizes;
mod snapshots;
mod sort;
mod transactions;
mod tried_page;
mod truncate;
mod undoing;
mod upper_cache;
mod waits;

pub use building_index::IndexProgress;
pub use compact::Compaction;
pub use figures::{Figures, PartitionFigures, TierFigures};
pub use internals::Internals;
pub use log_move::Asked;
pub use machine::{Machine, SilenceLimit};
pub use partition::PartitionSpec;
pub use recording::{RecordedPartition, RecordedReference, RecordedReferences};
pub use residence::RESIDENCE_FILE;
pub use served::Served;
pub use set_portions::{HeldMoment, KeptVersions};
pub use settings::Settings;
pub use shipment::{SetChange, Shipment, UNNUMBERED};
pub use shipped::CommitFailure;
pub use sizes::PartitionSize;
pub use waits::LockWait;

use crate::buffer::{Buffer, PageSpace};
use crate::catalog::Partition;
use crate::engine::{Catalog, Engine};
use crate::log::{Log, Measured, WriteBuffer};
use crate::online_backup::Archiver;
use crate::second_level::{CacheContents, CacheSettings};
use crate::statistics::{RecoveryReport, Statistics};
use crate::superblock::SecondLog;
use crate::tier_file::TierReport;
use crate::version::VersionReport;
use crate::{Error, Result};
use base::PartitionId;
use cache::CacheChanges;
use executor::UserExecutor;
use in_order::PagesInOrder;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A database on one executor's thread. Clones are handles to the same database.
///
/// ```
/// use entresol_engine::{Database, PartitionSpec, Settings};
/// use executor::{Executor, Order};
/// use virtual_driver::{Hardware, Media, Options, VirtualDriver};
///
/// let media = Media::new();
/// let machine = || {
///     let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
///     Executor::new(Box::new(driver), Order::FirstInFirstOut)
/// };
/// let executor = machine();
/// let created = executor.run(async {
///     let database = Database::create(&executor, Settings::default()).await?;
///     let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
///     database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await
/// });
/// created.expect("the machine goes on")?;
/// executor.stop();
///
/// // The program was not closed, and begins again.
/// let executor = machine();
/// let found = executor.run(async {
///     let database = Database::open(&executor, Settings::default(), "notes").await?;
///     assert!(database.recovery().records > 0, "what was committed came back from the log");
///     let notes = database.partition("notes")?;
///     database.transaction(async |tx| tx.get(notes, b"milk").await).await
/// });
/// assert_eq!(found.expect("the machine goes on")?.as_deref(), Some(&b"two litres"[..]));
/// executor.stop();
/// # Ok::<(), entresol_engine::Error>(())
/// ```
#[derive(Clone)]
pub struct Database(pub(crate) Rc<OpenDatabase>);

/// An open engine, with what is asked of it from outside.
pub(crate) struct OpenDatabase {
    pub engine: Rc<Engine>,
    pub settings: Settings,
    /// What the restart did that opened this database.
    recovery: RecoveryReport,
    /// The cache as it is.
    cache: RefCell<Option<CacheSettings>>,
    /// The upper cache as it is.
    upper_cache: RefCell<Option<CacheSettings>>,
    changes: CacheChanges,
    /// What archives the log, if it is archived.
    archiver: Option<Rc<Archiver>>,
    /// Pages that other nodes have changed.
    in_order: RefCell<PagesInOrder>,
    /// Which pages were in memory lately.
    noted: Cell<Option<residence::Noted>>,
}

impl Database {
    /// The executor that the database runs on.
    pub fn executor(&self) -> &UserExecutor {
        self.0.engine.core.for_callers()
    }

    /// What the database has counted.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let statistics = database.statistics();
    /// assert_eq!((statistics.commits.get(), statistics.rollbacks.get()), (1, 0));
    /// assert_eq!(statistics.references()[usize::from(notes.0)].hit_ratio(), 1.0);
    /// # Ok(())
    /// # });
    /// ```
    pub fn statistics(&self) -> &Statistics {
        &self.0.engine.core.statistics
    }

    /// What the restart that opened this database had to do; nothing if it was just created.
    pub fn recovery(&self) -> RecoveryReport {
        self.0.recovery
    }

    /// Why the last checkpoint of pages or the last sweep over sets failed, if it did: the one before is valid then, and the
    /// next one tries again.
    pub fn checkpoint_failure(&self) -> Option<Error> {
        self.0.engine.checkpointer.failure()
    }

    /// What each tier between main memory and the partitions' own devices is and did, from the top down, that of the log included.
    pub fn tiers(&self) -> Vec<TierReport> {
        let mut reports: Vec<TierReport> =
            self.buffer().levels().from_top().flat_map(|level| level.reports()).collect();
        for report in &mut reports {
            let hits: fn(&PageSpace) -> u64 = match report.name {
                "upper-cache" => |space| space.upper_cache_hits.get(),
                "cache" => |space| space.cache_hits.get(),
                _ => continue,
            };
            report.saved_ns = report.read_ns_mean.and_then(|read_ns| self.saved_ns(read_ns, hits));
        }
        reports.extend(self.0.engine.core.log.write_buffer().map(WriteBuffer::report));
        reports
    }

    /// By how much reads of a cache, which took `read_ns` on average, were shorter than as many of the pages' own devices. `hits`: those
    /// of a partition's pages.
    fn saved_ns(&self, read_ns: f64, hits: fn(&PageSpace) -> u64) -> Option<f64> {
        let mut devices: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for partition in self.partitions().iter().filter(|partition| partition.set_settings().is_none()) {
            let space = self.buffer().space(partition.id());
            let (served, reads, ns) = devices.entry(partition.device.clone()).or_default();
            *served += hits(&space);
            *reads += space.read_times.count();
            *ns += space.read_times.sum_ns();
        }
        let compared = devices.values().filter(|(hits, reads, _)| *hits > 0 && *reads > 0);
        let saved = compared.map(|&(hits, reads, ns)| hits as f64 * (ns as f64 / reads as f64 - read_ns));
        saved.reduce(|all, of_device| all + of_device)
    }

    /// What the second-level cache holds now; `None` without one. It looks at every frame of main memory, and at the copies that are newer
    /// than on their pages' own devices.
    pub(crate) fn cache_contents(&self) -> Option<CacheContents> {
        let buffer = &self.0.engine.core.buffer;
        let pool = buffer.pool().borrow();
        buffer.tiers()?.cache_contents(pool.dirty_pages())
    }

    /// What was measured of the log's device when the database was created, if anything was.
    pub(crate) fn log_measured(&self) -> Option<Measured> {
        self.0.engine.catalog.superblock.borrow().log_measured
    }

    /// The log's second device, if it has one: what the superblock file says.
    pub(crate) fn second_log(&self) -> Option<SecondLog> {
        self.0.engine.catalog.superblock.borrow().second_log.clone()
    }

    /// The log.
    pub(crate) fn log(&self) -> &Rc<Log> {
        &self.0.engine.core.log
    }

    /// The buffer.
    pub(crate) fn buffer(&self) -> &Rc<Buffer> {
        &self.0.engine.core.buffer
    }

    /// What the versions cost that readers of the past need.
    pub fn versions(&self) -> VersionReport {
        self.0.engine.versions.report()
    }

    /// How many transactions are active, those included that end in the background.
    pub fn active_transactions(&self) -> usize {
        self.0.engine.transactions.active.get()
    }

    /// The settings that the database was opened with.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Every partition, in the order of their numbers, of which some may lead to none any more ([`Database::describe`]).
    pub fn partitions(&self) -> Vec<Rc<Partition>> {
        self.0.engine.catalog.partitions.borrow().iter().cloned().collect()
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Result<PartitionId> {
        self.0.engine.catalog.partition(name)
    }

    /// The partition's description.
    ///
    /// # Errors
    /// [`Error::NoPartition`] if the number is not one of this database's: never was, or its partition was dropped.
    pub fn describe(&self, id: PartitionId) -> Result<Rc<Partition>> {
        self.0.engine.catalog.describe(id)
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.0.engine.catalog
    }

    /// The position of a field of a partition's records, by which transactions refer to it.
    ///
    /// # Errors
    /// [`Error::NoPartition`], [`Error::WrongOrganization`] if its records have no type, [`Error::Field`].
    pub fn field(&self, partition: PartitionId, name: &str) -> Result<usize> {
        self.catalog().field(partition, name)
    }

    /// The number of a partition's secondary index, by which transactions refer to it.
    ///
    /// # Errors
    /// As [`Database::field`], also while it is being built.
    pub fn secondary(&self, partition: PartitionId, name: &str) -> Result<usize> {
        self.catalog().secondary(partition, name)
    }
}
