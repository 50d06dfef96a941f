//! Opening and closing a database.

use super::cache::CacheChanges;
use super::log_room::wait_for_log_at_opening;
use super::{Database, OpenDatabase, Settings, devices, log_files, log_move, partition};
use crate::backup::Backup;
use crate::buffer::{Buffer, DoubleWrite};
use crate::catalog::Partitions;
use crate::checkpoint;
use crate::engine::{Catalog, Checkpointer, Core, Engine, Rules, SetStore, Transactions, margin_min, stamp};
use crate::io::device;
use crate::locks::Locks;
use crate::log::{Log, LogScan, WriteBuffer};
use crate::mvcc::keep_moments;
use crate::online_backup::{Archiver, begin_archive, forget_beyond, keep_unarchived, start_archiving};
use crate::recovery::{self, StatedTiers, find_past, open_upper_cache, rebuild_moments, reconcile, unless_bad};
use crate::second_level::CacheSettings;
use crate::statistics::{Event, RecoveryReport, Statistics, hear};
use crate::superblock::{Superblock, SuperblockFile};
use crate::tier_file::{Kind, TierMark};
use crate::transaction::begin_left_undo;
use crate::version::VersionStore;
use crate::{Result, temp};
use base::Lsn;
use driver::Op;
use executor::{Executor, WholeExecutor};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::set::Sets;

/// How long the ends of transactions are waited for when a database is closed, and how often they are looked at, in nanoseconds.
const ENDINGS_NS_MAX: u64 = 10 * base::time::SECOND_NS;
const LOOK_NS: u64 = base::time::MILLISECOND_NS / 2;

/// The memory-resident sets and their backup.
type Memory = (RefCell<Sets>, Backup);

/// What an opening does behind its redo, and that can fail.
async fn make_ready(engine: &Rc<Engine>) -> Result<()> {
    wait_for_log_at_opening(engine, checkpoint::whole_catalog_length(engine)).await?;
    checkpoint::log_whole_catalog(engine);
    engine.core.buffer.bring_residents().await?;
    // What the opening has read is charged to no reference.
    engine.core.buffer.pool().borrow().forget_sources();
    Ok(())
}

/// Loads the sets as the complete copy of their backup has them.
async fn load_sets(executor: &Executor, partitions: &Partitions, superblock: &Superblock) -> Result<Memory> {
    let (sets, backup) = Memory::default();
    for partition in partitions.iter() {
        let Some(settings) = partition.set_settings() else { continue };
        sets.borrow_mut().attach(settings);
        backup.attach(executor, partition, false).await?;
        if let Some(current) = &superblock.backup {
            backup.load(executor, &sets, partition.id(), current).await?;
        }
    }
    sets.borrow_mut().finish_load();
    Ok((sets, backup))
}

/// Puts the state of a database together; without a superblock's file it only runs procedures again for a restart.
pub(super) fn assemble(
    executor: &Executor,
    settings: &Settings,
    log: Rc<Log>,
    (buffer, (sets, backup), partitions): (Rc<Buffer>, Memory, Partitions),
    superblock_file: Option<SuperblockFile>,
    superblock: Superblock,
) -> Rc<Engine> {
    let statistics = Statistics::default();
    statistics.reserve(partitions.numbers());
    if let Some(listener) = &settings.listener {
        statistics.listen(Rc::clone(listener)).expect("none is told of a database that is being opened");
    }
    sets.borrow_mut().set_logging(settings.logging, settings.whole_fields);
    let rules = Rules {
        force: settings.force,
        hold_locks: settings.hold_locks,
        logging: settings.logging,
        multiprogramming_level: settings.multiprogramming_level,
        lock_wait_ns_max: settings.lock_wait_ns_max,
    };
    let (undo_device, _) = settings.undo_place();
    log.keep_margin(margin_min(&log, settings.buffer.page_size));
    Rc::new(Engine {
        transactions: Transactions::new(rules, superblock.next_transaction),
        versions: VersionStore::new(executor, settings.undo.clone(), undo_device, log.durable()),
        sets: SetStore::new(sets, backup),
        catalog: Catalog::new(partitions, superblock_file, superblock, settings.home_device.clone()),
        checkpointer: Checkpointer::new(settings.checkpoint, settings.sweep),
        temp: temp::Space::new(executor, temp::FILE, settings.temp_place()),
        core: Core {
            executor: executor.clone(),
            callers: executor.for_users(),
            log,
            buffer,
            locks: Locks::new(executor, settings.victim),
            statistics,
            append_ends: RefCell::default(),
            scratch: RefCell::default(),
            closing: Cell::new(false),
            is_closed: Cell::new(false),
            is_changing: Cell::new(false),
        },
    })
}

impl Database {
    /// Opens a database and recovers it. `path` names it in errors. What large transactions have left that had not ended is undone behind it
    /// ([`Database::undoing`]). A cache whose device fails or does not answer is done without
    /// ([`Event::CacheNotOpened`]). Behind a cache that is taken over, redo of a page is left until it is
    /// read: that one cannot be read shows then, and in each checkpoint until it can be. An opening that is given up is followed by no other
    /// one on the same executor: what it has begun to write may come after what that has written. [`Executor::stop`] waits for it.
    ///
    /// # Errors
    /// [`Setting`](crate::Error::Setting), [`MissingDevice`](crate::Error::MissingDevice), [`NotADatabase`](crate::Error::NotADatabase),
    /// [`Unfinished`](crate::Error::Unfinished), [`NewerFormat`](crate::Error::NewerFormat),
    /// [`DamagedLog`](crate::Error::DamagedLog), [`LogCopyMissing`](crate::Error::LogCopyMissing),
    /// [`DamagedPage`](crate::Error::DamagedPage), [`NotRepeated`](crate::Error::NotRepeated),
    /// [`TierMissing`](crate::Error::TierMissing), [`LogNotArchived`](crate::Error::LogNotArchived) if a full log has no room for what
    /// its archive has to be told of many partitions, or the driver's.
    // Users of the library have no whole executor, and open databases by its `Opening`.
    #[doc(hidden)]
    pub async fn open(executor: &Executor, mut settings: Settings, path: &str) -> Result<Database> {
        let executor = &executor.of_library();
        settings.check()?;
        let home_device = device(executor, &settings.home_device)?;
        settings.check_devices(executor)?;
        settings.clear_spaces(executor).await?;
        let stated = SuperblockFile::open(executor, home_device, path).await?;
        settings.check_log_devices_of(executor, &stated.1)?;
        devices::check_of_partitions(executor, &stated.0.partitions())?;
        let (mut superblock_file, mut superblock) = log_move::follow(executor, &settings, path, stated).await?;
        settings.buffer.page_size = superblock.page_size as usize;
        settings.log.page_size = superblock.log_page_size as usize;
        settings.log_device = superblock.log_device.clone();
        settings.check_caches()?;
        settings.check_second_log()?;
        let stamp = stamp(executor, superblock.redo_start(), superblock.log_epoch, superblock_file.generation());
        let database = *superblock.identity.get_or_insert(stamp);
        let mark = TierMark { stamp, database, is_new: false };
        let write_buffer = settings.hierarchy.write_buffer.as_ref();
        let kept = match superblock.second_log {
            Some(_) => None,
            None => {
                let circle = log_files::circle(executor, &settings, &superblock).await?;
                let place = (device(executor, &settings.log_device)?, &settings.log, circle);
                WriteBuffer::restore(executor, place, write_buffer, (&superblock.tiers, superblock.scan_start()))
                    .await?
            }
        };
        let files = log_files::find(executor, &settings, &superblock).await?;
        settings.log.capacity = files.circle.size;
        let span = (superblock.scan_start(), Lsn(superblock.log_durable));
        let scan = LogScan::over(executor, files.copies, &settings.log, files.circle, span);
        let scan = scan.since_opening(superblock.log_epoch);
        let mut scan = scan.changed_alone_before(superblock.changed_alone.map(Lsn));
        let double_write = DoubleWrite::open(executor, home_device, &settings.buffer).await?;
        let buffer = Buffer::new(executor, Some(double_write), settings.buffer)?;
        let listener = settings.listener.clone();
        let tell = |event: Event<'_>| listener.iter().for_each(|listener| hear(&**listener, &event));
        tell(Event::RecoveryBegun);
        let began = executor.now();
        let partitions = superblock_file.partitions();
        partition::remove_leftovers(executor, (&mut superblock_file, &superblock), &partitions).await?;
        let memory = load_sets(executor, &partitions, &superblock).await?;
        let load_ns = executor.now().since_ns(began);
        let backup_bytes = memory.0.borrow().memory_bytes();
        for partition in partitions.iter().filter(|partition| partition.set_settings().is_none()) {
            let placement = settings.hierarchy.placement(&partition.name);
            let page_size = settings.buffer.page_size;
            let space = partition::open_space(executor, partition, (page_size, placement), false).await?;
            buffer.attach(partition.id(), space);
        }
        buffer.repair(superblock.redo_start()).await?;
        let (table, redo_start) = (superblock.cache_table, superblock.redo_start());
        let stated = StatedTiers { records: &superblock.tiers, table, redo_start, opening: mark };
        let reconciled = reconcile(executor, &buffer, &settings.hierarchy, stated).await?;
        let without_cache = reconciled.opened_first(&settings.hierarchy);
        let hierarchy = without_cache.as_ref().unwrap_or(&settings.hierarchy);
        let mut records = reconciled.kept(executor, hierarchy);
        records.extend(kept.clone());
        superblock_file.note_tiers(executor, &mut superblock, (records, reconciled.kept_table())).await?;
        let wanted = (hierarchy, settings.force, mark);
        let mut opened = reconciled.open(&buffer, executor, wanted).await?;
        let mut not_opened = Vec::from_iter(opened.not_opened.take());
        let mut records = opened.records.clone();
        let log_buffer = WriteBuffer::open(executor, &settings.log, write_buffer, kept, mark).await?;
        records.extend(log_buffer.as_ref().map(|(_, record)| record.clone()));
        // What a tier is about to hold must be looked for by the next opening.
        superblock_file.note_tiers(executor, &mut superblock, (records, opened.table)).await?;
        if let Some(tiers) = &opened.tiers {
            tiers.begin_spent();
            buffer.set_tiers(Some(Rc::clone(tiers)));
        }
        let sets_begin = superblock.backup.as_ref().map_or(Lsn::MAX, |backup| Lsn(backup.begin));
        let (sets, backup) = memory;
        // Procedures that the log has are run again in an engine of their own: the sets are there meanwhile, and no log.
        let since = |id| superblock_file.since(id);
        let parts = (Rc::clone(&buffer), (sets, Backup::default()), partitions.clone().until(sets_begin, since));
        let replaying = assemble(executor, &settings, scan.idle_log(), parts, None, superblock.clone());
        let unfinished =
            recovery::redo(&replaying, &settings.procedures, (sets_begin, Rc::clone(&opened.torn)), &mut scan).await?;
        opened.check_time(scan.end())?;
        let (pages_left, left_bytes) = buffer.end_reading_log(scan.kept());
        // Nothing comes by it that redo has yet to read, and the log has been read.
        let upper = open_upper_cache(executor, &buffer, (&settings.hierarchy, settings.force, mark)).await;
        let of_upper = settings.hierarchy.upper_cache.as_ref().map_or("", |upper| &upper.device);
        match unless_bad(upper, (Kind::UpperCache, of_upper))? {
            Ok(upper) => buffer.set_upper_cache(upper),
            Err(bad) => not_opened.push(bad),
        }
        let memory = (RefCell::new(replaying.sets.sets.take()), backup);
        superblock_file.limit_since(scan.end());
        if !canary::is_planted(Canary::LostBackupBegin) {
            superblock.limit_backup(scan.end());
        }
        keep_unarchived(&settings.log, superblock.archive, &mut scan).await?;
        let past = find_past(executor, &scan, &superblock, settings.undo.retention_ns).await;
        let log = scan.finish();
        let archiver = begin_archive(&settings.log, superblock.archive, (executor, &log));
        forget_beyond(executor, &settings.home_device, log.end()).await?;
        if !settings.log.durable {
            superblock_file.note_lazy_log(executor, &mut superblock).await?;
        }
        if settings.undo.retention_ns == 0 {
            superblock_file.note_no_moments(executor, &mut superblock).await?;
        }
        // Nothing was acknowledged yet that only some of the log's files have.
        superblock_file.note_second_log(executor, &mut superblock, files.second).await?;
        if let Some((device, name)) = files.retired {
            executor.perform(Op::Remove { device, name }).await.result?;
        }
        if let Some((write_buffer, _)) = log_buffer {
            log.set_write_buffer(write_buffer);
        }
        buffer.set_log(Rc::clone(&log));
        let parts = (buffer, memory, partitions);
        let engine = assemble(executor, &settings, log, parts, Some(superblock_file), superblock);
        if replaying.transactions.may_have_calls.get() {
            engine.transactions.may_have_calls.set(true);
        }
        log_files::watch(&engine);
        checkpoint::start_relief(&engine);
        let rebuilt = rebuild_moments(&engine, past).await;
        let first_max = settings.undone_first_max;
        let (report, left) = recovery::finish(&engine, unfinished, rebuilt.loaded(), first_max).await?;
        // What is in the log yet may have to be archived before all that the catalog says has room in it.
        archiver.iter().for_each(|archiver| start_archiving(&engine, archiver));
        if let Err(error) = make_ready(&engine).await {
            checkpoint::end_restart(&engine).await;
            return Err(error);
        }
        keep_moments(&engine);
        let is_cache_missing = without_cache.is_some();
        let report = rebuilt.report(RecoveryReport { backup_bytes, load_ns, pages_left, left_bytes, ..report });
        tell(Event::Recovered(report));
        let database = Database::of(Rc::clone(&engine), settings, (report, archiver));
        database.begin_spent();
        if is_cache_missing {
            match database.replace_missing_cache().await {
                Ok(bad) => not_opened.extend(bad),
                Err(error) => {
                    checkpoint::end_restart(&engine).await;
                    return Err(error);
                }
            }
        }
        // What goes on by itself begins when nothing can fail any more: behind an opening that has failed, nothing is written.
        checkpoint::start(&engine);
        begin_left_undo(&engine, left);
        for bad in not_opened {
            tell(Event::CacheNotOpened {
                is_upper: bad.kind == Kind::UpperCache,
                device: &bad.device,
                error: &bad.error,
            });
            database.go_on_without(bad);
        }
        Ok(database)
    }

    pub(super) fn of(
        engine: Rc<Engine>,
        settings: Settings,
        (recovery, archiver): (RecoveryReport, Option<Rc<Archiver>>),
    ) -> Database {
        let cache = RefCell::new(settings.hierarchy.cache.clone());
        let upper_cache = RefCell::new(settings.hierarchy.upper_cache.clone().map(CacheSettings::upper));
        let changes = CacheChanges::default();
        let (in_order, noted) = (RefCell::default(), Cell::default());
        Database(Rc::new(OpenDatabase {
            engine,
            settings,
            recovery,
            cache,
            upper_cache,
            changes,
            archiver,
            in_order,
            noted,
        }))
    }

    /// Takes a full checkpoint, so that the next opening has nothing to redo, and ends the background tasks. A transaction that has not
    /// ended by then cannot be committed any more: the next opening takes it back. What this one has left to be undone gets ten seconds;
    /// the next one goes on with the rest.
    ///
    /// # Errors
    /// Those of [`Database::checkpoint`]; [`crate::Error::Unended`].
    pub async fn close(self) -> Result<()> {
        let engine = &self.0.engine;
        // Changes of the cache and of the catalog that are under way end before; those that wait for their turn find it closed.
        let _change = self.0.changes.turn.take(self.executor().whole()).await;
        let _creation = engine.catalog.creation.take(self.executor().whole()).await;
        if engine.core.is_closed.get() {
            return Ok(());
        }
        engine.core.closing.set(true);
        engine.versions.stop();
        self.finish_endings().await;
        self.stop_undoing().await;
        let closed = self.write_back().await;
        let archived = if closed.is_ok() { self.end_archive().await } else { Ok(()) };
        self.0.archiver.iter().for_each(|archiver| archiver.stop());
        engine.core.log.finish_step().await;
        for space in engine.core.buffer.spaces() {
            space.finish_growth(&engine.core.executor).await;
        }
        engine.core.buffer.end_transfers().await;
        engine.core.log.finish_writes().await;
        let superblock_turn = engine.checkpointer.turn.take(&engine.core.executor);
        let _turn = engine.core.executor.within(ENDINGS_NS_MAX, superblock_turn).await;
        if closed.is_ok() {
            engine.core.log.end_writes();
            engine.core.is_closed.set(true);
        }
        closed.and(archived)
    }

    /// Has the archive get what it lacks, if it can be written: otherwise the next opening goes on with that.
    async fn end_archive(&self) -> Result<()> {
        let Some(archiver) = self.0.archiver.clone() else { return Ok(()) };
        let engine = Rc::clone(&self.0.engine);
        // In a task of its own, so that no write of the superblock file is abandoned.
        let ending = async move {
            engine.core.log.make_copyable(engine.core.log.end()).await?;
            archiver.end(&engine).await;
            checkpoint::state_archive(&engine).await
        };
        self.0.engine.core.executor.spawn(ending).join().await
    }

    /// Waits until transactions have ended whose ends go on by themselves, if devices answer.
    pub(super) async fn finish_endings(&self) {
        let (endings, executor) = (&self.0.engine.transactions.endings, self.executor().whole());
        let until = executor.now().plus_ns(ENDINGS_NS_MAX);
        let undoes = || self.0.engine.transactions.left.is_at_work();
        while (endings.get() > 0 || undoes()) && executor.now() < until {
            executor.sleep_ns(LOOK_NS).await;
        }
    }

    async fn write_back(&self) -> Result<()> {
        let engine = &self.0.engine;
        engine.temp.remove().await?;
        engine.versions.remove_space().await?;
        checkpoint::checkpoint(&self.0.engine).await?;
        engine.core.log.complete().await;
        // In a task of its own, so that no write of the superblock file is abandoned.
        let retiring = Rc::clone(engine);
        engine.core.executor.spawn(async move { checkpoint::retire_tiers(&retiring).await }).join().await
    }
}
