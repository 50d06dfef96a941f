//! A log that its settings want elsewhere, or of another size.
//!
//! Positions never go back, and where they lie in a file never changes, so a log that moves or gets another size gets a new file:
//!
//! 1. The database is opened as it is and closed. Nothing in the log is needed after that, which a scan confirms.
//! 2. The superblock file says that the log begins anew behind its end, in a blank file of that size on that device. That is the
//!    moment: a cut before it leaves the old log, one after it the new one, whatever has become of the files.
//! 3. The file is made, in place of any of its name, and the one on the device of before is removed.
//! 4. The superblock file says that the log is in use.
//!
//! An opening that finds a blank log goes on with step 3: where the file is asked to be by then, for the device of before may have
//! refused it.

use super::{Database, Settings, log_files};
use crate::checkpoint::catalog_length;
use crate::io::device;
use crate::log::record::{Body, Record};
use crate::log::{self, Circle, LogFile, LogScan};
use crate::second_level;
use crate::superblock::{LogShape, Superblock, SuperblockFile};
use crate::{Error, Result};
use base::Lsn;
use driver::{FaultKind, Op};
use executor::Executor;

/// What a database that exists is asked to be, of what its files fix. What is not asked for stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The size of its pages in bytes: refused if it is another one.
    pub page_size: Option<usize>,
    /// The size of its log pages in bytes: refused if it is another one.
    pub log_page_size: Option<usize>,
    /// The device of its log: the log moves there.
    pub log_device: Option<String>,
    /// The size of its log in bytes, of which the last part of a page is left out: it gets that size.
    pub log_size: Option<u64>,
}

impl Asked {
    /// Refuses what no opening can change.
    fn check(&self, superblock: &Superblock) -> Result<()> {
        let pairs = [
            ("page_size in [buffer]", self.page_size, superblock.page_size),
            ("page_size in [log]", self.log_page_size, superblock.log_page_size),
        ];
        for (key, asked, present) in pairs {
            if let Some(asked) = asked.filter(|asked| *asked != present as usize) {
                return Err(Error::Setting(format!(
                    "{key} is {asked} bytes, and the database was created with {present}, which never changes; say {present}, \
                     or leave it out"
                )));
            }
        }
        Ok(())
    }
}

/// Where the log is to be.
struct LogDestination {
    device: String,
    size: u64,
}

/// The superblock file and what it says.
type Stated = (SuperblockFile, Superblock);

/// Has the log where it is asked to be, and of the size that it is asked to have, before the database is opened. Returns what the
/// superblock file says then.
///
/// # Errors
/// [`Error::Setting`] for what cannot be followed; those of an opening and of a close; or the driver's.
pub(super) async fn follow(
    executor: &Executor,
    settings: &Settings,
    path: &str,
    (superblock_file, superblock): Stated,
) -> Result<Stated> {
    settings.asked.check(&superblock)?;
    if superblock.log_shape.as_ref().is_some_and(|shape| shape.is_blank) {
        let stated = redirect(executor, settings, (superblock_file, superblock)).await?;
        return make_blank(executor, settings, stated).await;
    }
    let Some(wanted) = wanted(executor, settings, &superblock).await? else { return Ok((superblock_file, superblock)) };
    check_second(settings, &wanted)?;
    check_move(executor, settings, (&superblock, &wanted)).await?;
    if settings.log.archive.is_some() {
        let present = log::Settings { page_size: superblock.log_page_size as usize, ..settings.log.clone() };
        present.check_catalog(catalog_length(&superblock_file.catalog()), wanted.size)?;
    }
    drop(superblock_file);
    let (mut superblock_file, mut superblock) = close_as_it_is(executor, settings, path, &settings.hierarchy).await?;
    let mut end = end_of_unneeded(executor, settings, &superblock).await?;
    if end.is_err() {
        // For pages that only a cache has, the log is kept. Without one they come to their own places.
        let without_cache = second_level::Settings::default();
        (superblock_file, superblock) = close_as_it_is(executor, settings, path, &without_cache).await?;
        end = end_of_unneeded(executor, settings, &superblock).await?;
    }
    let end = end.map_err(|needed| {
        let why = format!("what it has at {needed} is needed although the database was closed");
        Error::Setting(format!("the log cannot move or change its size: {why}; leave it as it is"))
    })?;
    let page_size = u64::from(superblock.log_page_size);
    let circle = Circle { origin: end.0.next_multiple_of(page_size), size: wanted.size };
    if superblock.archive.is_some_and(|archive| archive.end < circle.origin) {
        let why = "its end is not in its archive, which cannot be written; make room there or mend that device first";
        return Err(Error::Setting(format!("the log cannot move or change its size: {why}")));
    }
    let first = circle.first(page_size);
    let before = superblock.log_shape.as_ref().and_then(|shape| shape.retired.clone());
    let retired = match wanted.device == superblock.log_device {
        true => before,
        false => Some(superblock.log_device.clone()),
    };
    superblock.log_device = wanted.device;
    superblock.log_measured = None;
    superblock.log_shape = Some(LogShape { circle, extent: 0, is_blank: true, retired });
    (superblock.redo_start, superblock.log_durable) = (first, first);
    if let Some(backup) = &mut superblock.backup {
        backup.begin = first;
    }
    superblock_file.write(executor, &superblock).await?;
    make_blank(executor, settings, (superblock_file, superblock)).await
}

/// Opens and closes the database with its log as it is. Returns what the superblock file says then.
async fn close_as_it_is(
    executor: &Executor,
    settings: &Settings,
    path: &str,
    hierarchy: &second_level::Settings,
) -> Result<Stated> {
    // What an opening leaves to be undone keeps its part of the log.
    let (asked, undone_first_max) = (Asked::default(), u64::MAX);
    let as_it_is = Settings { asked, hierarchy: hierarchy.clone(), undone_first_max, ..settings.clone() };
    Box::pin(Database::open(executor, as_it_is, path)).await?.close().await?;
    SuperblockFile::open(executor, device(executor, &settings.home_device)?, path).await
}

/// Refuses a device that the settings want the log on a second time: the opening would refuse it when the log is there.
fn check_second(settings: &Settings, wanted: &LogDestination) -> Result<()> {
    Settings { log_device: wanted.device.clone(), ..settings.clone() }.check_second_log()
}

/// Refuses a move that would leave the log worse than it is, or overwrite what is not its own.
async fn check_move(
    executor: &Executor,
    settings: &Settings,
    (superblock, wanted): (&Superblock, &LogDestination),
) -> Result<()> {
    let fail = |why: &str| Err(Error::Setting(format!("the log cannot move or change its size: {why}")));
    let target = device(executor, &wanted.device)?;
    match &superblock.second_log {
        Some(second) if second.lost.is_some() || settings.log.without.is_some() => {
            return fail("one of its two devices was lost; open the database as it is first");
        }
        Some(second) if second.device == wanted.device => return fail("its second device has that name"),
        _ => {}
    }
    // What a retired device still has is the log of before.
    let retired = superblock.log_shape.as_ref().and_then(|shape| shape.retired.as_ref());
    if wanted.device == superblock.log_device || retired == Some(&wanted.device) {
        return Ok(());
    }
    match executor.open(target, &settings.log.file, false).await {
        Err(fault) if fault.kind == FaultKind::NotFound => Ok(()),
        Err(fault) => Err(Error::Input(fault)),
        Ok(_) => fail(&format!(
            "device '{}' holds a file '{}' that is not of this database; give it an empty directory",
            wanted.device, settings.log.file
        )),
    }
}

/// Where the log is to be, if that is not where it is.
async fn wanted(executor: &Executor, settings: &Settings, superblock: &Superblock) -> Result<Option<LogDestination>> {
    let Asked { log_device, log_size, .. } = &settings.asked;
    let page_size = u64::from(superblock.log_page_size);
    let mut present = settings.clone();
    present.log_device.clone_from(&superblock.log_device);
    present.log.page_size = page_size as usize;
    if log_device.as_ref().is_none_or(|device| *device == superblock.log_device) && log_size.is_none() {
        return Ok(None);
    }
    let circle = match log_files::circle(executor, &present, superblock).await {
        // The opening says what is wrong.
        Err(_) if superblock.second_log.is_some() => return Ok(None),
        circle => circle?,
    };
    let size = log_size.map_or(circle.size, |size| size - size % page_size);
    present.log.check_capacity(size)?;
    let device = log_device.clone().unwrap_or_else(|| superblock.log_device.clone());
    let is_same = device == superblock.log_device && size == circle.size;
    Ok((!is_same).then_some(LogDestination { device, size }))
}

/// Where the log of a database ends that was closed, after it was seen that nothing in it is needed; or the first that is.
async fn end_of_unneeded(
    executor: &Executor,
    settings: &Settings,
    superblock: &Superblock,
) -> Result<std::result::Result<Lsn, Lsn>> {
    let mut present = settings.clone();
    present.log_device.clone_from(&superblock.log_device);
    present.log.page_size = superblock.log_page_size as usize;
    let files = log_files::find(executor, &present, superblock).await?;
    let span = (superblock.scan_start(), Lsn(superblock.log_durable));
    let mut scan = LogScan::over(executor, files.copies, &present.log, files.circle, span);
    scan = scan.since_opening(superblock.log_epoch);
    while let Some(entry) = scan.next().await? {
        let record = Record::decode(entry.bytes);
        let is_empty = record.is_some_and(|record| says_nothing(&record.body) && record.edits().next().is_none());
        if !is_empty {
            return Ok(Err(entry.start));
        }
    }
    Ok(Ok(scan.end().max(superblock.scan_start()).max(Lsn(superblock.log_durable))))
}

/// Whether a restart does without records of this kind.
fn says_nothing(body: &Body<'_>) -> bool {
    matches!(
        body,
        Body::System
            | Body::Time { .. }
            | Body::Catalog { .. }
            | Body::SetsBefore { .. }
            | Body::LongValue { .. }
            | Body::Loaded { .. }
            | Body::LoadEnded { .. }
            | Body::LoadUndone { .. }
    )
}

/// Has a blank log, which holds nothing yet, made where it is asked to be now. Returns what the superblock file says then.
async fn redirect(
    executor: &Executor,
    settings: &Settings,
    (mut superblock_file, mut superblock): Stated,
) -> Result<Stated> {
    let shape = superblock.log_shape.clone().expect("a blank log has a shape");
    let (Asked { log_device, log_size, .. }, page_size) = (&settings.asked, u64::from(superblock.log_page_size));
    let device = log_device.clone().unwrap_or_else(|| superblock.log_device.clone());
    let size = log_size.map_or(shape.circle.size, |size| size - size % page_size);
    if device == superblock.log_device && size == shape.circle.size {
        return Ok((superblock_file, superblock));
    }
    log::Settings { page_size: page_size as usize, ..settings.log.clone() }.check_capacity(size)?;
    let wanted = LogDestination { device, size };
    check_second(settings, &wanted)?;
    check_move(executor, settings, (&superblock, &wanted)).await?;
    let retired = shape.retired.filter(|retired| *retired != wanted.device);
    let refused = (wanted.device != superblock.log_device).then(|| superblock.log_device.clone());
    let (circle, retired) = (Circle { size, ..shape.circle }, retired.or(refused));
    superblock.log_device = wanted.device;
    superblock.log_shape = Some(LogShape { circle, retired, ..shape });
    superblock_file.write(executor, &superblock).await?;
    Ok((superblock_file, superblock))
}

/// Removes what a device has that the log has left. Returns the device if it failed: a move back there replaces it. No later opening
/// removes it unasked, for by then it may be another database's.
async fn remove_retired(executor: &Executor, settings: &Settings, retired: Option<String>) -> Option<String> {
    let name = settings.log.file_of(0);
    let device = executor.device(retired.as_ref()?)?;
    let removed = executor.perform(Op::Remove { device, name }).await.result;
    retired.filter(|_| removed.is_err())
}

/// Makes the files of a blank log, but for one of two devices that it is to do without, and says that it is in use.
async fn make_blank(
    executor: &Executor,
    settings: &Settings,
    (mut superblock_file, mut superblock): Stated,
) -> Result<Stated> {
    let shape = superblock.log_shape.clone().expect("a blank log has a shape");
    let mut log = settings.log.clone();
    log.page_size = superblock.log_page_size as usize;
    log.capacity = shape.circle.size;
    let extent = log.first_extent();
    let second = superblock.second_log.as_ref().map(|second| second.device.clone());
    let names = [Some(superblock.log_device.clone()), second];
    // Nothing is in a blank log, so either device has all of it.
    let lost = names.iter().position(|name| name.is_some() && *name == log.without).filter(|_| names[1].is_some());
    let mut measured = [None; 2];
    for (index, name) in names.iter().enumerate().filter(|(index, _)| lost != Some(*index)) {
        let Some(name) = name else { continue };
        let place = (device(executor, name)?, &name[..]);
        let made = LogFile::create(executor, place, (&log, index), extent).await;
        if made.is_err() && index == 0 {
            // What there is of it would look like another's, should the log be asked for elsewhere now.
            let _tried = executor.perform(Op::Remove { device: place.0, name: log.file_of(0) }).await;
        }
        measured[index] = made?.measured;
    }
    superblock.log_measured = measured[0];
    if let Some(second) = &mut superblock.second_log {
        (second.measured, second.lost) = (measured[1], lost.map(|index| index as u8));
    }
    let retired = remove_retired(executor, settings, shape.retired.clone()).await;
    superblock.log_shape = Some(LogShape { extent, is_blank: false, retired, ..shape });
    superblock_file.write(executor, &superblock).await?;
    Ok((superblock_file, superblock))
}
