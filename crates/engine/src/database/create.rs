//! Creating a database.

use super::open::assemble;
use super::{Database, Settings, log_files};
use crate::Result;
use crate::backup::Backup;
use crate::buffer::{Buffer, DoubleWrite};
use crate::catalog::Partitions;
use crate::checkpoint;
use crate::engine::stamp;
use crate::io::device;
use crate::log::{Log, WriteBuffer};
use crate::mvcc::keep_moments;
use crate::online_backup::{begin_archive, start_archiving};
use crate::recovery::{StatedTiers, open_upper_cache, reconcile};
use crate::statistics::RecoveryReport;
use crate::superblock::{ArchivedLog, LogShape, SUPERBLOCK_FILE, Superblock, SuperblockFile};
use crate::tier_file::TierMark;
use base::Lsn;
use base::time::SECOND_NS;
use driver::{DeviceId, Op};
use executor::Executor;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How long a device may take for the removal of one file of a database that could not be created, in nanoseconds.
const REMOVAL_NS_MAX: u64 = 10 * SECOND_NS;

impl Database {
    /// Creates an empty database.
    ///
    /// # Errors
    /// [`Setting`](crate::Error::Setting), [`MissingDevice`](crate::Error::MissingDevice), or the driver's.
    // Users of the library have no whole executor, and open databases by its `Opening`.
    #[doc(hidden)]
    pub async fn create(executor: &Executor, settings: Settings) -> Result<Database> {
        let executor = &executor.of_library();
        settings.check()?;
        settings.check_caches()?;
        settings.check_second_log()?;
        let home_device = device(executor, &settings.home_device)?;
        settings.check_devices(executor)?;
        settings.check_log_devices(executor)?;
        settings.clear_spaces(executor).await?;
        let log = Log::create(executor, &settings.log_device, &settings.log).await?;
        let archiver = begin_archive(&settings.log, None, (executor, &log));
        let double_write = DoubleWrite::open(executor, home_device, &settings.buffer).await?;
        let buffer = Buffer::new(executor, Some(double_write), settings.buffer)?;
        buffer.set_log(Rc::clone(&log));
        let stamp = stamp(executor, log.end(), 0, 0);
        let mark = TierMark { stamp, database: stamp, is_new: true };
        let write_buffer = settings.hierarchy.write_buffer.as_ref();
        let mut tiers = Vec::new();
        if let Some((write_buffer, record)) =
            WriteBuffer::open(executor, &settings.log, write_buffer, None, mark).await?
        {
            log.set_write_buffer(write_buffer);
            tiers.push(record);
        }
        let stated = StatedTiers { records: &[], table: None, redo_start: Lsn::ZERO, opening: mark };
        let reconciled = reconcile(executor, &buffer, &settings.hierarchy, stated).await?;
        let opened = reconciled.open(&buffer, executor, (&settings.hierarchy, settings.force, mark)).await?;
        if let Some(bad) = opened.not_opened {
            return Err(bad.error);
        }
        tiers.extend(opened.records);
        if let Some(found) = opened.tiers {
            buffer.set_tiers(Some(found));
        }
        buffer.set_upper_cache(open_upper_cache(executor, &buffer, (&settings.hierarchy, settings.force, mark)).await?);
        let superblock = Superblock {
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
            second_log: log_files::second_log(&settings, log.measured().get(1).copied().flatten()),
            cache_table: opened.table,
            log_shape: Some(LogShape::of(&log)),
            archive: log.archive().map(ArchivedLog::of),
            moments_since: (settings.undo.retention_ns > 0).then(|| log.durable().0),
            identity: Some(stamp),
            changed_alone: log.known_changed_alone(),
        };
        let superblock_file = SuperblockFile::create(executor, home_device, &superblock, []).await?;
        let memory = (RefCell::default(), Backup::default());
        let parts = (buffer, memory, Partitions::default());
        let engine = assemble(executor, &settings, log, parts, Some(superblock_file), superblock);
        log_files::watch(&engine);
        checkpoint::start_relief(&engine);
        checkpoint::start(&engine);
        keep_moments(&engine);
        archiver.iter().for_each(|archiver| start_archiving(&engine, archiver));
        Ok(Database::of(engine, settings, (RecoveryReport::default(), archiver)))
    }

    /// Creates an empty database. If that fails, there are no files on these devices that were not there before, as far as they answer.
    ///
    /// # Errors
    /// As [`Database::create`], and [`NoDevice`](crate::Error::NoDevice).
    #[doc(hidden)]
    pub async fn create_or_nothing(executor: &Executor, settings: Settings, devices: &[String]) -> Result<Database> {
        let mut present = Vec::new();
        for name in devices {
            let device = device(executor, name)?;
            present.push((device, executor.names(device).await?.into_iter().collect::<BTreeSet<String>>()));
        }
        let created = Database::create(executor, settings).await;
        if created.is_err() && !canary::is_planted(Canary::KeptRemains) {
            remove_remains(executor, present).await;
        }
        created
    }
}

/// Takes away what a creation has left on these devices beside what was there before. What cannot be found or removed stays, and so does
/// what is on a device that does not answer: the creation's own error says more than these would.
async fn remove_remains(executor: &Executor, present: Vec<(DeviceId, BTreeSet<String>)>) {
    let mut remains = Vec::new();
    for (device, present) in present {
        let names = executor.within(REMOVAL_NS_MAX, executor.names(device)).await.and_then(Result::ok);
        let new = names.unwrap_or_default().into_iter().filter(|name| !present.contains(name));
        remains.extend(new.map(|name| (device, name)));
    }
    // Without the superblock file what is left of the others is no database.
    remains.sort_by_key(|(_, name)| name != SUPERBLOCK_FILE);
    let mut silent = BTreeSet::new();
    for (device, name) in remains {
        if !silent.contains(&device.0) {
            let removed = executor.within(REMOVAL_NS_MAX, executor.perform(Op::Remove { device, name })).await;
            silent.extend(removed.is_none().then_some(device.0));
        }
    }
}
