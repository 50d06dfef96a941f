//! The database: its parts, its partitions, and the synchronous core through which every change of a page goes.

mod attempt;
mod catalog_change;
mod drop;
mod growth;
#[cfg(test)]
mod last_page;
mod load;
mod load_set;
mod log_files;
mod open;
mod partition;
mod sort;

pub(crate) use catalog_change::CallBarrier;
pub(crate) use drop::Visit;
pub use open::Settings;
pub use partition::PartitionSpec;

use crate::backup::Backup;
use crate::buffer::Buffer;
use crate::catalog::{Partition, Partitions};
use crate::checkpoint::Checkpointer;
use crate::home::{Contents, Home, SecondLog};
use crate::log::record::Body;
use crate::log::{Log, Measured, WriteBuffer};
use crate::statistics::{RecoveryReport, Statistics};
use crate::temp;
use crate::tier_file::TierReport;
use crate::transaction::{Registry, State};
use crate::version::{Readers, VersionReport, Versions};
use crate::{Error, Result};
use base::{Lsn, PartitionId, TransactionId};
use executor::{Executor, Turn, WaitQueue};
use growth::Growth;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::lock::LockTable;
use structures::organization::append::End;
use structures::page::{Edit, header};
use structures::set::Sets;
use structures::undo::Undo;

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
pub struct Database(pub(crate) Rc<Inner>);

/// The parts of a database.
pub(crate) struct Inner {
    pub executor: Executor,
    pub settings: Settings,
    pub log: Rc<Log>,
    pub buffer: Rc<Buffer>,
    /// The memory-resident sets.
    pub sets: RefCell<Sets>,
    /// Their backup.
    pub backup: Backup,
    /// Who waits for a segment that is lent to a write.
    pub segment_returned: WaitQueue,
    /// Memory on its way to sets.
    pub growth: Growth,
    /// Temporary space.
    pub temp: temp::Space,
    pub locks: RefCell<LockTable>,
    /// What records were, as far as somebody may read it.
    pub versions: RefCell<Versions>,
    /// Where they go that memory has no room for.
    pub undo: temp::Space,
    /// Who waits for them to get there.
    pub undo_room: WaitQueue,
    /// Who reads the past for long.
    pub readers: Readers,
    /// Whether anything is kept there.
    pub keeps_versions: Cell<bool>,
    /// The last commit record.
    pub last_commit: Cell<Lsn>,
    pub registry: RefCell<Registry>,
    pub partitions: RefCell<Partitions>,
    pub home: RefCell<Option<Home>>,
    pub contents: RefCell<Contents>,
    pub statistics: Statistics,
    /// What the restart did that opened this database.
    pub recovery: Cell<RecoveryReport>,
    /// The black/white sweep in progress, where the log has to say what is in its backup.
    pub painting: Cell<Option<Painting>>,
    /// Whether this one only repeats procedures for the restart of the one that it stands for.
    pub is_repeating: bool,
    pub checkpointer: Checkpointer,
    /// Transactions that wait to be admitted.
    pub admission: WaitQueue,
    pub active: Cell<usize>,
    /// How many transactions may be active: the multiprogramming level, or none while a sweep waits for them to end.
    pub admitted_max: Cell<usize>,
    /// Log bytes of updates by transactions that have not ended: about what rolling them all back would log.
    pub unfinished: Cell<u64>,
    /// Who waits to be promised room in the log.
    pub log_claims: Turn,
    pub closing: Cell<bool>,
    /// The ends of partitions that records are appended to, by partition.
    pub ends: RefCell<Vec<End>>,
    /// Who creates a partition.
    pub creation: Turn,
    /// Which calls of procedures are logged as such.
    pub call_barrier: CallBarrier,
    /// Whether the log may have calls of procedures.
    pub may_have_calls: Cell<bool>,
    /// Reusable memory for a record or the part of it that changes, before and after the change.
    pub scratch: RefCell<(Vec<u8>, Vec<u8>)>,
}

/// A black/white sweep in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Painting {
    /// Where it began in the log.
    pub begin: Lsn,
    /// Transactions with smaller numbers had begun before it.
    pub first: TransactionId,
}

impl Inner {
    /// The log bytes that taking back updates of so many log bytes may need: compensations are smaller than updates, but the
    /// merges that follow them are not; and some for the checkpointer.
    #[inline]
    pub fn rollback_room(&self, logged: u64) -> u64 {
        2 * logged + self.log.capacity() / 16
    }
}

impl Database {
    /// Procedures that are run again for a restart have their own transaction and nothing else.
    #[inline]
    pub(crate) fn refuse_while_repeating(&self) -> Result<()> {
        if self.0.is_repeating {
            return Err(Error::Setting("a procedure works through its own transaction alone".into()));
        }
        Ok(())
    }

    /// The executor that the database runs on.
    pub fn executor(&self) -> &Executor {
        &self.0.executor
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
        &self.0.statistics
    }

    /// What the restart that opened this database had to do; nothing if it was just created.
    pub fn recovery(&self) -> RecoveryReport {
        self.0.recovery.get()
    }

    /// Why the last checkpoint of pages or the last sweep over sets failed, if it did: the one before is valid then, and the
    /// next one tries again.
    pub fn checkpoint_failure(&self) -> Option<Error> {
        self.0.checkpointer.failure()
    }

    /// What each tier between main memory and the partitions' own devices is and did, that of the log included.
    pub fn tiers(&self) -> Vec<TierReport> {
        let mut reports = self.0.buffer.tiers().map_or_else(Vec::new, |tiers| tiers.reports());
        reports.extend(self.0.log.write_buffer().map(WriteBuffer::report));
        reports
    }

    /// What was measured of the log's device when the database was created, if anything was.
    pub fn log_measured(&self) -> Option<Measured> {
        self.0.contents.borrow().log_measured
    }

    /// The log's second device, if it has one: what the home file says.
    pub fn second_log(&self) -> Option<SecondLog> {
        self.0.contents.borrow().second_log.clone()
    }

    /// The log.
    pub fn log(&self) -> &Rc<Log> {
        &self.0.log
    }

    /// The buffer.
    pub fn buffer(&self) -> &Rc<Buffer> {
        &self.0.buffer
    }

    /// What the versions cost that readers of the past need.
    pub fn versions(&self) -> VersionReport {
        self.0.versions.borrow().report(self.0.executor.now())
    }

    /// The lock table.
    pub fn locks(&self) -> &RefCell<LockTable> {
        &self.0.locks
    }

    /// How many transactions are active, those included that end in the background.
    pub fn active_transactions(&self) -> usize {
        self.0.active.get()
    }

    /// The settings that the database was opened with.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Every partition, in the order of their numbers, of which some may lead to none any more ([`Database::describe`]).
    pub fn partitions(&self) -> Vec<Rc<Partition>> {
        self.0.partitions.borrow().iter().cloned().collect()
    }

    /// The partition of this name.
    ///
    /// # Errors
    /// [`Error::NoPartition`].
    pub fn partition(&self, name: &str) -> Result<PartitionId> {
        self.0.partitions.borrow().named(name).ok_or_else(|| Error::NoPartition(name.to_owned()))
    }

    /// The partition's description.
    ///
    /// # Errors
    /// [`Error::NoPartition`] if the number is not one of this database's: never was, or its partition was dropped.
    pub fn describe(&self, id: PartitionId) -> Result<Rc<Partition>> {
        self.0.partitions.borrow().find(id).cloned()
    }

    /// Logs a transaction's update as one record and makes its edits.
    #[inline]
    pub(crate) fn update(&self, state: &mut State, undo: &Undo<'_>, edits: &[Edit<'_>]) {
        if self.0.keeps_versions.get() {
            self.keep_before(state, undo, edits);
        }
        let (start, end) = {
            let mut list = state.undo.borrow_mut();
            self.log_and_apply(state.id, &Body::Update(list.push(undo)), edits)
        };
        let logged = end.0 - start.0 + self.0.log.take_padding();
        state.logged += logged;
        self.0.unfinished.set(self.0.unfinished.get() + logged);
        if state.wrote {
            return;
        }
        state.wrote = true;
        self.0.registry.borrow_mut().set_first_lsn(state.owner, start);
    }

    /// Logs a change that is never undone and makes its edits.
    pub(crate) fn change(&self, edits: &[Edit<'_>]) {
        self.log_and_apply(TransactionId::SYSTEM, &Body::System, edits);
    }

    /// Appends the record, then makes the edits. Returns a log position from which a scan finds the record, and its LSN.
    #[inline]
    pub(crate) fn log_and_apply(&self, transaction: TransactionId, body: &Body<'_>, edits: &[Edit<'_>]) -> (Lsn, Lsn) {
        let inner = &*self.0;
        let start = inner.log.end();
        let mut pool = inner.buffer.pool().borrow_mut();
        if let [edit] = edits {
            let frame = pool.frame_in_use(edit.page);
            let sequence = header::sequence(pool.bytes(frame)) + 1;
            let end = inner.log.append(transaction, body, [(sequence, edit)]);
            pool.edit(frame, &edit.change, start, end);
            return (start, end);
        }
        let numbered = edits.iter().enumerate().map(|(index, edit)| {
            let page = pool.peek(edit.page).expect("whoever planned the change saw the page");
            let earlier = edits[..index].iter().filter(|other| other.page == edit.page).count() as u64;
            (header::sequence(page) + 1 + earlier, edit)
        });
        let end = inner.log.append(transaction, body, numbered);
        for edit in edits {
            let frame = pool.frame_in_use(edit.page);
            pool.edit(frame, &edit.change, start, end);
        }
        (start, end)
    }
}
