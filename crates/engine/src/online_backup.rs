//! Backups of a database that goes on, and databases made from them.
//!
//! A backup is what a crash would have left, with enough log to recover from it. What must hold for that:
//!
//! 1. The log is held from before the first page is copied, and copied beside everything else, up to the end of the backup. So
//!    it can be given up behind the copy: transactions never wait for a backup. Where the log is full nevertheless, the backup
//!    is given up, not they.
//! 2. A checkpoint comes first. Every page that is copied later holds, in its own place, all that was logged before where redo
//!    begins, whatever a tier has of it (`pages`).
//! 3. The sets are copied from a complete copy of their own backup, all from the same one (`sets`).
//! 4. What a bulk load writes is not in the log, so a partition is copied anew if a load of it has ended meanwhile.
//! 5. The end of the backup and its catalog are taken in one step, when every partition that there is then has been copied, and
//!    nothing of a partition that came later is needed: the log is cut off there when the backup is restored.
//! 6. The manifest is written last, when all else is durable, and beside it: not in a directory that took the place of the one that has the
//!    rest, which is refused. Before anything else a file says that a backup has begun: what one leaves
//!    whose process is killed is told by it from files of others, and the next backup to the same place removes it.

mod archive;
mod archived;
mod chunk;
mod log_copy;
mod manifest;
mod pace;
mod pages;
mod restore;
mod run;
mod sets;
mod taken;
mod target;
mod unfinished;

pub use archive::RestoreTarget;
pub(crate) use archive::{Archiver, begin_archive, keep_unarchived, start_archiving};
pub use manifest::MANIFEST_FILE;
pub(crate) use restore::restore;
pub use restore::{RestoreArchive, RestoreReport, RestoreSource};

use crate::checkpoint::checkpoint;
use crate::engine::{Counted, Engine};
use crate::error::BackupError;
use crate::log::{LogArchive, LogHold};
use crate::superblock::{CatalogChange, CurrentBackup, Superblock};
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Lsn, PartitionId};
use log_copy::LogCopy;
use manifest::{Base, Manifest};
use pace::Pace;
use run::{BackupRun, KnownPages};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::rc::Rc;
use structures::canary::{self, Canary};
use taken::BackupTaken;
pub(crate) use taken::forget_beyond;
use target::BackupPlace;
use unfinished::{ClaimedPlace, UnfinishedBackup};

/// The file of pages and segments.
const DATA_FILE: &str = "data";
/// The file of the log's pages.
const LOG_FILE: &str = "log";
/// How often it is looked for what the end of a backup waits for, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND_NS;
/// How long a backup waits until it was seen what the archive of the log has, in nanoseconds.
const ARCHIVE_NS: u64 = 10 * SECOND_NS;
/// The file that says that a backup has begun and not ended.
const BEGUN_FILE: &str = "entresol.begun";

/// How a backup is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupSettings {
    /// Where it goes: an empty directory, by its absolute path, or a device. What a backup has left there whose process was killed
    /// is removed.
    pub target: String,
    /// An earlier backup, full or not, that this one builds on: it holds only the pages that were changed since, and needs that one to
    /// be restored. Sets are copied in full.
    pub base: Option<String>,
    /// At most this many bytes are read a second; as many as the devices give if this is absent.
    pub bytes_per_second: Option<u64>,
}

impl BackupSettings {
    /// A full one to an empty directory, by its absolute path, or to a device, as fast as the devices give.
    pub fn to(target: impl Into<String>) -> BackupSettings {
        BackupSettings { target: target.into(), base: None, bytes_per_second: None }
    }
}

/// How far a backup or a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupProgress {
    /// Bytes read so far.
    pub done: u64,
    /// Bytes that there are to read, about.
    pub total: u64,
}

/// What a backup has copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupReport {
    /// It shows what was committed up to this position of the log.
    #[serde(with = "crate::error::position")]
    pub end: Lsn,
    /// Bytes of pages and segments that were read.
    pub bytes_read: u64,
    /// Bytes of the backup's file of pages and segments.
    pub data_bytes: u64,
    /// Bytes of log in it.
    pub log_bytes: u64,
    /// Pages in it.
    pub pages: u64,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
}

/// Takes a backup. What was written of one that fails, or whose caller goes, is removed, and the directory if there was none.
pub(crate) async fn back_up(
    engine: &Rc<Engine>,
    settings: &BackupSettings,
    progress: Box<dyn FnMut(BackupProgress)>,
) -> Result<BackupReport> {
    engine.core.check_open()?;
    let target = BackupPlace::of(&engine.core.executor, &settings.target)?;
    engine.catalog.await_shrinking(&engine.core, None).await?;
    let _counted = Counted::new(&engine.catalog.backups);
    let claimed = Rc::new(ClaimedPlace::claim(engine, &target)?);
    unfinished::make_way(&target, &claimed).await?;
    let base = find_base(engine, settings).await?;
    let pace = Pace::new(engine.core.executor.now(), settings.bytes_per_second);
    let unfinished = UnfinishedBackup::new(target, claimed);
    let result = copy_all(engine, (&unfinished, base), pace, progress).await;
    match result {
        Ok(_) => unfinished.end(),
        Err(_) => unfinished.remove().await,
    }
    result
}

async fn copy_all(
    engine: &Rc<Engine>,
    (unfinished, base): (&UnfinishedBackup, Option<(Base, KnownPages)>),
    pace: Pace,
    progress: Box<dyn FnMut(BackupProgress)>,
) -> Result<BackupReport> {
    let (base, known) = base.map_or((None, KnownPages::default()), |(base, known)| (Some(base), known));
    let began = engine.core.executor.now();
    let hold = engine.core.log.hold();
    // Before the wait for a checkpoint, so that the place does not look empty to another database for long.
    let run = {
        let (engine, target) = (Rc::clone(engine), unfinished.target.clone());
        let begun = async move {
            target.write_file(BEGUN_FILE, unfinished::BEGUN.as_bytes()).await?;
            BackupRun::begin_run(&engine, target, (pace, known), progress).await
        };
        unfinished.undisturbed(begun).await?
    };
    unfinished.note_run(&run);
    await_archive(engine).await;
    // Behind this no page lacks a change that is before where redo begins.
    checkpoint(engine).await?;
    let beginning = engine.catalog.superblock.borrow().clone();
    run.total.set(bytes_of(engine));
    check_hold(&run, &hold)?;
    let log = LogCopy::begin(&run, hold, beginning.scan_start()).await?;
    let log_from = log.from;
    let copied = Copied::copy(&run, &log).await;
    let (copied, end) = match copied {
        Ok(copied) => copied,
        Err(error) => {
            run.is_over.set(true);
            // What the log's copy has failed with is what the others have failed of.
            return Err(log.join().await.err().unwrap_or(error));
        }
    };
    log.end_at(if canary::is_planted(Canary::ForgottenTail) { beginning.scan_start() } else { end });
    let manifest = Manifest { base, ..copied.manifest(&run, &beginning, (log_from, end)) };
    engine.core.log.make_copyable(end).await?;
    log.join().await?;
    run.sync().await?;
    note_taken(engine, BackupTaken { id: manifest.id, end }).await?;
    let target = run.target.clone();
    let writing = async move {
        target.write_file(MANIFEST_FILE, &manifest.encode()).await?;
        target.check_file(DATA_FILE, manifest.data_bytes).await?;
        target.check_file(LOG_FILE, 0).await
    };
    unfinished.undisturbed(writing).await?;
    // If it stays, the manifest says that the backup has ended after all.
    let _tried = run.target.remove(&[BEGUN_FILE]).await;
    Ok(BackupReport {
        end,
        bytes_read: run.pace.bytes_read(),
        data_bytes: run.data_bytes(),
        log_bytes: engine.core.log.page_end(end).0 - log_from.0,
        pages: run.pages.get(),
        elapsed_ns: engine.core.executor.now().since_ns(began),
    })
}

/// Waits until it is known which history the archive of the log has, unless that fails or takes long.
async fn await_archive(engine: &Engine) {
    let until = engine.core.executor.now().plus_ns(ARCHIVE_NS);
    while let Some(archive) = engine.core.log.archive().filter(|_| engine.core.executor.now() < until) {
        if archive.is_found() || archive.failure().is_some() || engine.core.check_open().is_err() {
            return;
        }
        engine.core.executor.sleep_ns(LOOK_NS).await;
    }
}

/// Adds a backup to the list. One at a time, in a task of its own: a list that was read before another one was written, or is
/// written late because the backup was given up, would forget a backup.
async fn note_taken(engine: &Rc<Engine>, new: BackupTaken) -> Result<()> {
    let this = Rc::clone(engine);
    let noted = async move {
        let _turn = this.checkpointer.turn.take(&this.core.executor).await;
        taken::note(&home(&this)?, new).await
    };
    engine.core.executor.spawn(noted).join().await
}

/// Where the database is at home.
fn home(engine: &Engine) -> Result<BackupPlace> {
    BackupPlace::of(&engine.core.executor, &engine.catalog.home_device)
}

/// The backup that an increment is to build on, and which pages that has.
async fn find_base(engine: &Engine, settings: &BackupSettings) -> Result<Option<(Base, KnownPages)>> {
    let Some(place) = settings.base.clone() else { return Ok(None) };
    let manifest = Manifest::read(&BackupPlace::of(&engine.core.executor, &place)?).await?;
    let foreign = |detail: &str| BackupError::ForeignBase { base: place.clone(), detail: detail.to_owned() };
    if !taken::read(&home(engine)?).await?.contains(&BackupTaken { id: manifest.id, end: Lsn(manifest.end) }) {
        return Err(foreign("it is not in the database's list of backups that it has taken").into());
    }
    if manifest.end > engine.core.log.end().0 || manifest.page_size as usize != engine.core.page_size() {
        return Err(foreign("it ends behind the database's log").into());
    }
    // A partition that came later may have pages from before: they were made while others were waited for.
    let partitions = manifest.partitions.iter().map(|(partition, _)| partition.id).collect();
    let known = KnownPages { unchanged_before: Lsn(manifest.unchanged_before), partitions };
    Ok(Some((Base { id: manifest.id, place }, known)))
}

fn check_hold(run: &BackupRun, hold: &LogHold) -> Result<()> {
    if hold.is_broken() {
        let (place, position) = (run.target.name.clone(), run.engine.core.log.oldest());
        return Err(BackupError::Overtaken { place, position }.into());
    }
    Ok(())
}

/// About how many bytes a backup has to read.
fn bytes_of(engine: &Engine) -> u64 {
    let page_size = engine.core.page_size() as u64;
    let spaces = engine.core.buffer.spaces();
    let pages: u64 = spaces.iter().map(|space| u64::from(space.written().min(space.capacity())) * page_size).sum();
    pages + engine.sets.sets.borrow().memory_bytes()
}

/// What was copied, and the loads that it has seen the ends of.
#[derive(Default)]
struct Copied {
    /// How many loads of each partition had ended when its copy began.
    partitions: BTreeMap<PartitionId, u64>,
    sets: Option<CurrentBackup>,
    /// The same of the sets, which are copied together.
    set_loads: BTreeMap<PartitionId, u64>,
    /// How many changes of the catalog there had been when their copy began that no call may be repeated across.
    changes: u64,
}

impl Copied {
    /// Copies everything, and returns that with the end of the backup: in the step in which this returns nothing is missing.
    async fn copy(run: &Rc<BackupRun>, log: &LogCopy) -> Result<(Copied, Lsn)> {
        let engine = &run.engine;
        let mut copied = Copied::default();
        loop {
            engine.core.check_open()?;
            if log.has_failed() {
                return Err(Error::Closed);
            }
            if let Some(partition) = copied.missing(engine) {
                copied.partitions.insert(partition, engine.catalog.loads(partition));
                pages::copy_partition(run, partition).await?;
            } else if copied.lacks_sets(engine) {
                (copied.set_loads, copied.changes) = (set_loads(engine), engine.catalog.swept_changes.get());
                copied.sets = sets::copy_sets(run).await?;
            } else {
                // The superblock file's catalog is at rest.
                let turn = engine.checkpointer.turn.take(&engine.core.executor).await;
                if engine.catalog.ending_loads.get() > 0 {
                    // It needs the turn.
                    drop(turn);
                    engine.core.executor.sleep_ns(LOOK_NS).await;
                } else if copied.missing(engine).is_none() && !copied.lacks_sets(engine) {
                    return Ok((copied, engine.core.log.end()));
                }
            }
        }
    }

    /// A partition of pages that was not copied, or was loaded since.
    fn missing(&self, engine: &Engine) -> Option<PartitionId> {
        let is_missing = |id: PartitionId| match self.partitions.get(&id) {
            Some(loads) => engine.catalog.loads(id) > *loads && !canary::is_planted(Canary::UncopiedLoad),
            None => true,
        };
        // Also one that is being made: what says that it is there may stand in the log behind the backup, and what it began with before.
        let spaces = engine.core.buffer.spaces();
        spaces.iter().map(|space| space.partition()).find(|id| is_missing(*id))
    }

    /// Whether the sets were not copied, or one was loaded since, or calls that the log has from there on have found another
    /// catalog: the sets were swept before it changed, so that none of them is repeated.
    fn lacks_sets(&self, engine: &Engine) -> bool {
        let loads = set_loads(engine);
        let is_loaded = || loads.iter().any(|(set, count)| *count > self.set_loads.get(set).copied().unwrap_or(0));
        let is_missing = self.sets.is_none() && engine.catalog.superblock.borrow().backup.is_some();
        let is_changed = engine.catalog.swept_changes.get() > self.changes && engine.transactions.may_have_calls.get();
        is_missing || is_changed || is_loaded() && !canary::is_planted(Canary::UncopiedLoad)
    }

    /// The manifest of the backup that ends here, in the same step.
    fn manifest(self, run: &BackupRun, beginning: &Superblock, (log_from, end): (Lsn, Lsn)) -> Manifest {
        let engine = &run.engine;
        let (buffer, log) = (&engine.core.buffer, &engine.core.log);
        let superblock_file = engine.catalog.superblock_file.borrow();
        let superblock_file = superblock_file.as_ref().expect("it is being written by the task that has the turn to");
        let mut catalog = superblock_file.catalog();
        let known = engine.catalog.partitions.borrow().kept();
        let (kept, unknown): (Vec<_>, Vec<_>) = superblock_file
            .partitions()
            .iter()
            .cloned()
            .partition(|stated| known.iter().any(|partition| partition.id == stated.id));
        // Of creations that have failed and whose end the superblock file could not be told.
        catalog.extend(unknown.iter().map(|stated| CatalogChange::Drop(stated.id)));
        let pages = |id| buffer.find_space(id).map_or(0, |space| space.capacity());
        // What was given up by now was room that others had been promised.
        let given_up = log.oldest().0.saturating_sub(log_from.0);
        Manifest {
            id: log_from.0.rotate_left(24) ^ engine.core.executor.now().ns(),
            base: None,
            unchanged_before: engine.catalog.loading_since().map_or(u64::MAX, |lsn| lsn.0).min(beginning.redo_start),
            page_size: beginning.page_size,
            log_page_size: beginning.log_page_size,
            log_device: beginning.log_device.clone(),
            log_capacity: log.capacity() + given_up.next_multiple_of(u64::from(beginning.log_page_size)),
            log_measured: beginning.log_measured,
            log_from: log_from.0,
            end: end.0,
            redo_start: beginning.redo_start,
            log_epoch: beginning.log_epoch,
            next_transaction: engine.transactions.registry.borrow().next(),
            images: self.sets.as_ref().map_or_else(Vec::new, |sets| sets.images.clone()),
            sets: self.sets,
            partitions: kept.iter().map(|found| ((**found).clone(), pages(found.id()))).collect(),
            catalog,
            data_bytes: run.data_bytes(),
            history: log.archive().filter(|archive| archive.is_found()).map(LogArchive::history),
            ended_unix_ns: engine.core.executor.unix_ns(),
        }
    }
}

/// How many loads of each set have ended.
fn set_loads(engine: &Engine) -> BTreeMap<PartitionId, u64> {
    let partitions = engine.catalog.partitions.borrow().kept();
    let sets = partitions.iter().filter(|found| found.set_settings().is_some()).map(|found| found.id());
    sets.map(|set| (set, engine.catalog.loads(set))).collect()
}
