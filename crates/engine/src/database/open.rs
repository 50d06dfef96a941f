//! Creating, opening and closing a database.

use super::growth::Growth;
use super::{CallBarrier, Database, Inner, log_files, partition};
use crate::backup::Backup;
use crate::buffer::{Buffer, DoubleWrite};
use crate::catalog::Partitions;
use crate::checkpoint::{self, Checkpointer};
use crate::home::{Contents, Home, SecondLog};
use crate::io::device;
use crate::log::{Log, Scan, WriteBuffer};
use crate::recovery;
use crate::recovery::reconcile;
use crate::second_level;
use crate::statistics::{RecoveryReport, Statistics};
use crate::transaction::Registry;
use crate::version::{self, Readers, Versions};
use crate::{Error, Procedures, Result, buffer, log, temp};
use base::Lsn;
use driver::Op;
use executor::{Executor, Turn, WaitQueue};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::lock::{LockTable, VictimPolicy};
use structures::set::{Logging, Sets};

/// How a database works. What its files fix (page sizes, the log's device) is taken from them when it is opened.
///
/// ```
/// use entresol_engine::{Settings, buffer, log};
///
/// let settings = Settings {
///     buffer: buffer::Settings { frames: 100_000, ..buffer::Settings::default() },
///     log: log::Settings { capacity: 64 << 20, ..log::Settings::default() },
///     log_device: "flash".into(),
///     force: true,
///     ..Settings::default()
/// };
/// assert!(settings.log.durable && settings.home_device == "disk");
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    /// The buffer.
    pub buffer: buffer::Settings,
    /// The log.
    pub log: log::Settings,
    /// The device that holds the home file and the double-write area.
    pub home_device: String,
    /// The device that holds the log.
    pub log_device: String,
    /// The tiers between main memory and the partitions' own devices.
    pub hierarchy: second_level::Settings,
    /// FORCE: a transaction's pages are written before its commit is acknowledged.
    pub force: bool,
    /// Whether locks are held until the commit is durable (TPSIM) or only until its record stands in the log buffer.
    pub hold_locks: bool,
    /// Who gives up in a deadlock.
    pub victim: VictimPolicy,
    /// When checkpoints are taken.
    pub checkpoint: checkpoint::Policy,
    /// How memory-resident sets are swept.
    pub sweep: checkpoint::SweepSettings,
    /// What the log repeats of memory-resident sets.
    pub logging: Logging,
    /// Whether a change of a part of a record of a set, such as a field, has the whole part in the log, not only the bytes of it that
    /// differ (System M, section 3: the new value of any part that is modified).
    pub whole_fields: bool,
    /// How many transactions run at once; others wait to be admitted.
    pub multiprogramming_level: usize,
    /// Temporary space.
    pub temp: temp::Settings,
    /// Versions for readers of the past, and the undo space.
    pub undo: version::Settings,
    /// The procedures that callers name.
    pub procedures: Procedures,
}

impl Default for Settings {
    /// Everything on the device `disk`, no tiers, durable commits, NOFORCE; a checkpoint after a quarter of the log's
    /// default size or a minute.
    fn default() -> Settings {
        let log = log::Settings::default();
        let checkpoint =
            checkpoint::Policy { log_bytes: Some(log.capacity / 4), interval_ns: Some(60 * base::time::SECOND_NS) };
        Settings {
            buffer: buffer::Settings::default(),
            log,
            home_device: "disk".into(),
            log_device: "disk".into(),
            hierarchy: second_level::Settings::default(),
            force: false,
            hold_locks: false,
            victim: VictimPolicy::default(),
            checkpoint,
            sweep: checkpoint::SweepSettings::default(),
            logging: Logging::default(),
            whole_fields: false,
            multiprogramming_level: 1024,
            temp: temp::Settings::default(),
            undo: version::Settings::default(),
            procedures: Procedures::new(),
        }
    }
}

impl Settings {
    /// Checks what two settings ask of each other.
    fn check(&self) -> Result<()> {
        self.undo.check()?;
        self.sweep.check()?;
        let pair = self.sweep.strategy.check(self.logging);
        pair.map_err(|why| Error::Setting(format!("this log of sets does not go with these checkpoints: {why}")))
    }

    /// The undo space and the device that holds it.
    fn undo_place(&self) -> (&str, temp::Settings) {
        (self.undo.device.as_ref().unwrap_or(&self.home_device), self.undo.space())
    }

    /// Removes what an earlier life has left where nothing is recovered.
    async fn clear_spaces(&self, executor: &Executor) -> Result<()> {
        let (device, undo) = self.undo_place();
        temp::Space::clear(executor, temp::FILE, self.temp_place()).await?;
        temp::Space::clear(executor, version::FILE, (device, &undo)).await
    }

    /// Temporary space and the device that holds it.
    fn temp_place(&self) -> (&str, &temp::Settings) {
        (self.temp.device.as_ref().unwrap_or(&self.home_device), &self.temp)
    }
}

/// Tells files made at this moment from all others.
fn stamp(executor: &Executor, position: Lsn, epoch: u32, generation: u64) -> u64 {
    let place = position.0.rotate_left(24) ^ u64::from(epoch).rotate_left(52);
    let mixed = executor.now().ns() ^ place ^ generation.rotate_left(40);
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// The memory-resident sets and their backup.
type Memory = (RefCell<Sets>, Backup);

/// Loads the sets as the complete copy of their backup has them.
async fn load_sets(executor: &Executor, partitions: &Partitions, contents: &Contents) -> Result<Memory> {
    let (sets, backup) = Memory::default();
    for partition in partitions.iter() {
        let Some(settings) = partition.set_settings() else { continue };
        sets.borrow_mut().attach(settings);
        backup.attach(executor, partition, false).await?;
        if let Some(current) = &contents.backup {
            backup.load(executor, &sets, partition.id(), current).await?;
        }
    }
    sets.borrow_mut().finish_load();
    Ok((sets, backup))
}

impl Database {
    /// Creates an empty database.
    ///
    /// # Errors
    /// [`Error::Setting`], or the driver's.
    pub async fn create(executor: &Executor, settings: Settings) -> Result<Database> {
        settings.check()?;
        settings.check_second_log()?;
        let home_device = device(executor, &settings.home_device)?;
        device(executor, &settings.log_device)?;
        settings.clear_spaces(executor).await?;
        let log = Log::create(executor, &settings.log_device, &settings.log).await?;
        let double_write = DoubleWrite::open(executor, home_device, settings.buffer.page_size).await?;
        let buffer = Buffer::new(executor, Some(double_write), settings.buffer)?;
        buffer.set_log(Rc::clone(&log));
        let stamp = stamp(executor, log.end(), 0, 0);
        let write_buffer = settings.hierarchy.write_buffer.as_ref();
        let mut tiers = Vec::new();
        if let Some((write_buffer, record)) =
            WriteBuffer::open(executor, &settings.log, write_buffer, None, stamp).await?
        {
            log.set_write_buffer(write_buffer);
            tiers.push(record);
        }
        let reconciled = reconcile(executor, &buffer, &[], Lsn::ZERO).await?;
        let (found, records) = reconciled.open(&buffer, executor, (&settings.hierarchy, settings.force, stamp)).await?;
        tiers.extend(records);
        if let Some(found) = found {
            buffer.set_tiers(Rc::new(found));
        }
        let contents = Contents {
            page_size: settings.buffer.page_size as u32,
            log_page_size: settings.log.page_size as u32,
            log_device: settings.log_device.clone(),
            redo_start: log.end().0,
            log_durable: log.durable().0,
            log_epoch: log.epoch(),
            next_transaction: 1,
            tiers,
            backup: None,
            log_measured: log.measured()[0],
            second_log: SecondLog::wanted(&settings, log.measured().get(1).copied().flatten()),
        };
        let home = Home::create(executor, home_device, &contents).await?;
        let memory = (RefCell::default(), Backup::default());
        let parts = (buffer, memory, Partitions::default());
        let database = Database::assemble(executor, settings, log, parts, Some(home), contents);
        log_files::watch(&database);
        checkpoint::start(&database);
        database.keep_moments();
        Ok(database)
    }

    /// Opens a database and recovers it. `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::NotADatabase`], [`Error::Unfinished`], [`Error::NewerFormat`], [`Error::DamagedLog`],
    /// [`Error::LogCopyMissing`], [`Error::DamagedPage`], [`Error::NotRepeated`], or the driver's.
    pub async fn open(executor: &Executor, mut settings: Settings, path: &str) -> Result<Database> {
        settings.check()?;
        let home_device = device(executor, &settings.home_device)?;
        settings.clear_spaces(executor).await?;
        let (mut home, mut contents) = Home::open(executor, home_device, path).await?;
        settings.buffer.page_size = contents.page_size as usize;
        settings.log.page_size = contents.log_page_size as usize;
        settings.log_device = contents.log_device.clone();
        settings.check_second_log()?;
        let stamp = stamp(executor, contents.redo_start(), contents.log_epoch, home.generation());
        let write_buffer = settings.hierarchy.write_buffer.as_ref();
        let kept = match contents.second_log {
            Some(_) => None,
            None => {
                let place = (device(executor, &settings.log_device)?, &settings.log);
                WriteBuffer::restore(executor, place, write_buffer, (&contents.tiers, contents.scan_start())).await?
            }
        };
        let files = log_files::find(executor, &settings, &contents).await?;
        let span = (contents.scan_start(), Lsn(contents.log_durable));
        let scan = Scan::over(executor, files.copies, &settings.log, files.capacity, span);
        let mut scan = scan.since_opening(contents.log_epoch);
        let double_write = DoubleWrite::open(executor, home_device, settings.buffer.page_size).await?;
        let buffer = Buffer::new(executor, Some(double_write), settings.buffer)?;
        let began = executor.now();
        let partitions = home.partitions();
        partition::remove_leftovers(executor, (&mut home, &contents), &partitions).await?;
        let memory = load_sets(executor, &partitions, &contents).await?;
        let load_ns = executor.now().since_ns(began);
        let backup_bytes = memory.0.borrow().memory_bytes();
        for partition in partitions.iter().filter(|partition| partition.set_settings().is_none()) {
            let placement = settings.hierarchy.placement(&partition.name);
            let page_size = settings.buffer.page_size;
            let file = partition::open_file(executor, partition, (page_size, placement), false).await?;
            buffer.attach(partition.id(), file);
        }
        buffer.repair(contents.redo_start()).await?;
        let reconciled = reconcile(executor, &buffer, &contents.tiers, contents.redo_start()).await?;
        let mut records = reconciled.kept(executor, &settings.hierarchy);
        records.extend(kept.clone());
        home.note_tiers(executor, &mut contents, records).await?;
        let wanted = (&settings.hierarchy, settings.force, stamp);
        let (tiers, mut records) = reconciled.open(&buffer, executor, wanted).await?;
        let log_buffer = WriteBuffer::open(executor, &settings.log, write_buffer, kept, stamp).await?;
        records.extend(log_buffer.as_ref().map(|(_, record)| record.clone()));
        // What a tier is about to hold must be looked for by the next opening.
        home.note_tiers(executor, &mut contents, records).await?;
        if let Some(tiers) = tiers {
            buffer.set_tiers(Rc::new(tiers));
        }
        let sets_begin = contents.backup.as_ref().map_or(Lsn::MAX, |backup| Lsn(backup.begin));
        let (sets, backup) = memory;
        // Procedures that the log has are run again in a database of their own: the sets are there meanwhile, and no log.
        let since = |id| home.since(id);
        let parts = (Rc::clone(&buffer), (sets, Backup::default()), partitions.clone().until(sets_begin, since));
        let repeating = Database::assemble(executor, settings.clone(), scan.idle_log(), parts, None, contents.clone());
        let unfinished = recovery::redo(&repeating, sets_begin, &mut scan).await?;
        let memory = (RefCell::new(repeating.0.sets.take()), backup);
        home.limit_since(scan.end());
        contents.limit_backup(scan.end());
        let log = scan.finish();
        // Nothing was acknowledged yet that only some of the log's files have.
        home.note_second_log(executor, &mut contents, files.second).await?;
        if let Some((device, name)) = files.retired {
            executor.perform(Op::Remove { device, name }).await.result?;
        }
        if let Some((write_buffer, _)) = log_buffer {
            log.set_write_buffer(write_buffer);
        }
        buffer.set_log(Rc::clone(&log));
        let parts = (buffer, memory, partitions);
        let database = Database::assemble(executor, settings, log, parts, Some(home), contents);
        let may_have_calls = database.0.may_have_calls.get() || repeating.0.may_have_calls.get();
        database.0.may_have_calls.set(may_have_calls);
        log_files::watch(&database);
        recovery::finish(&database, unfinished).await?;
        database.0.recovery.set(RecoveryReport { backup_bytes, load_ns, ..database.recovery() });
        database.0.buffer.bring_residents().await?;
        checkpoint::start(&database);
        database.keep_moments();
        Ok(database)
    }

    /// Puts a database together; without a home file it is one that only repeats procedures.
    fn assemble(
        executor: &Executor,
        settings: Settings,
        log: Rc<Log>,
        (buffer, (sets, backup), partitions): (Rc<Buffer>, Memory, Partitions),
        home: Option<Home>,
        contents: Contents,
    ) -> Database {
        let registry = Registry::new(contents.next_transaction);
        let statistics = Statistics::default();
        statistics.reserve(partitions.numbers());
        sets.borrow_mut().set_logging(settings.logging, settings.whole_fields);
        let (device, space) = settings.undo_place();
        let undo = temp::Space::new(executor, version::FILE, (device, &space));
        Database(Rc::new(Inner {
            executor: executor.clone(),
            temp: temp::Space::new(executor, temp::FILE, settings.temp_place()),
            locks: RefCell::new(LockTable::new(settings.victim)),
            versions: RefCell::new(Versions::new(settings.undo.clone(), undo.extent_bytes() as usize, log.durable())),
            undo,
            undo_room: WaitQueue::new(),
            readers: Readers::default(),
            keeps_versions: Cell::new(false),
            last_commit: Cell::new(log.durable()),
            registry: RefCell::new(registry),
            log,
            buffer,
            sets,
            backup,
            segment_returned: WaitQueue::new(),
            growth: Growth::default(),
            partitions: RefCell::new(partitions),
            painting: Cell::new(None),
            is_repeating: home.is_none(),
            home: RefCell::new(home),
            contents: RefCell::new(contents),
            statistics,
            recovery: Cell::default(),
            checkpointer: Checkpointer::new(settings.checkpoint),
            admission: WaitQueue::new(),
            active: Cell::new(0),
            admitted_max: Cell::new(settings.multiprogramming_level),
            unfinished: Cell::new(0),
            log_claims: Turn::new(),
            closing: Cell::new(false),
            creation: Turn::new(),
            call_barrier: CallBarrier::default(),
            may_have_calls: Cell::new(settings.logging == Logging::Procedures),
            ends: RefCell::default(),
            scratch: RefCell::default(),
            settings,
        }))
    }

    /// Takes a full checkpoint, so that the next opening has nothing to redo, and ends the background tasks.
    ///
    /// # Errors
    /// Those of [`Database::checkpoint`].
    pub async fn close(self) -> Result<()> {
        self.0.closing.set(true);
        self.0.temp.remove().await?;
        self.0.undo.remove().await?;
        self.checkpoint().await?;
        self.0.log.complete().await;
        self.retire_tiers().await
    }
}
