//! Making a database from a backup. What is made is what a crash at the end of the backup would have left; opening it recovers
//! it.
//!
//! The superblock file is written last, so a restore that is cut off leaves no database. A file beside it says that one has
//! begun, and which files it makes, which tells what it has left from files of others: those are never written over.

use super::archive::{ArchiveReader, RestoreTarget};
use super::archived;
use super::chunk::{self, PieceHead, PieceKind};
use super::manifest::{BLOCK, Manifest};
use super::taken::{self, BackupTaken, TAKEN_FILE};
use super::target::{BackupPlace, PlaceFile};
use super::{BackupProgress, DATA_FILE, LOG_FILE};
use crate::buffer::DoubleWrite;
use crate::catalog::{Organization, Partition};
use crate::error::BackupError;
use crate::log::{self, LogFile, cut_page, first_damaged};
use crate::superblock::{LogShape, SUPERBLOCK_FILE, SuperblockFile};
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use driver::{Access, FileId, Frame, Op};
use executor::Executor;
use std::collections::{BTreeMap, BTreeSet};

/// The file of a restore that has not ended, beside where the superblock file will be.
const RESTORE_FILE: &str = "entresol.restore";
/// Longer ones are none.
const MARK_LENGTH_MAX: usize = 16 << 20;
/// Bytes of a backup that are read at once.
const WINDOW: usize = (1 << 20) + BLOCK;

/// What a database is restored from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreSource {
    /// The directory that holds the backup, by its absolute path, or a device.
    pub backup: String,
    /// The log that goes on from the backup, if there is to be more than that has.
    pub archive: Option<RestoreArchive>,
}

/// The log that goes on from a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreArchive {
    /// The directory that holds the archive of the log, by its absolute path, or a device.
    pub archive: String,
    /// Up to where it is restored.
    pub target: RestoreTarget,
}

/// What a restore has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The database shows what was committed up to this position of the log, once it is opened.
    pub end: Lsn,
    /// Pages written.
    pub pages: u64,
    /// Bytes of pages and segments that were read.
    pub bytes: u64,
    /// Bytes of log that the opening replays at most.
    pub log_bytes: u64,
    /// When the last commit was made that the log of an archive has added, to a millisecond, in nanoseconds since the beginning of 1970
    /// UTC.
    pub committed_unix_ns: Option<u64>,
}

/// A database in the making.
struct Restore<'a> {
    executor: &'a Executor,
    settings: &'a log::Settings,
    home: BackupPlace,
    source: BackupPlace,
    manifest: Manifest,
    /// The partitions of which the backup says how many pages they have.
    counted: BTreeSet<u16>,
    /// What it builds on, the latest first.
    bases: Vec<(BackupPlace, Manifest)>,
    /// Where the log goes on behind the backup's.
    archive: Option<ArchiveReader>,
    files: BTreeMap<PartitionId, RestoredFile>,
    report: RestoreReport,
    total: u64,
    /// Bytes read so far.
    done: u64,
    progress: &'a mut dyn FnMut(BackupProgress),
}

/// The file that a partition's pages or segments go to.
struct RestoredFile {
    file: FileId,
    /// How long it is to be, in bytes.
    length: u64,
    /// The size of a page, or of a segment.
    unit: usize,
    is_set: bool,
    is_written: bool,
    /// Whether the backup does not say how long it is: the partition was being made while the backup was taken.
    may_grow: bool,
}

/// Makes the files of a database from a backup. Opening it recovers it.
pub(crate) async fn restore(
    executor: &Executor,
    (home, settings): (&str, &log::Settings),
    source: &RestoreSource,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<RestoreReport> {
    let (home, backup) = (BackupPlace::of(executor, home)?, BackupPlace::of(executor, &source.backup)?);
    let mut manifest = Manifest::read(&backup).await?;
    let bases = find_bases(executor, (&backup, &manifest)).await?;
    let settings = &log::Settings { page_size: manifest.log_page_size as usize, ..settings.clone() };
    let mut report = RestoreReport { end: Lsn(manifest.end), ..RestoreReport::default() };
    let counted = manifest.partitions.iter().map(|(partition, _)| partition.id).collect();
    let mut archive = None;
    if let Some(wanted) = &source.archive {
        let archived = archived::go_on(&mut manifest, &backup, wanted).await?;
        (report.end, report.committed_unix_ns) = (archived.end, archived.committed_ns);
        archive = Some(archived.reader);
    }
    let data: u64 = bases.iter().map(|(_, base)| base.data_bytes).sum();
    let total = data + manifest.data_bytes + report.end.0 - manifest.log_from;
    let (files, source, done) = (BTreeMap::new(), backup, 0);
    let restore = Restore {
        executor,
        settings,
        home,
        source,
        manifest,
        counted,
        bases,
        archive,
        files,
        report,
        total,
        done,
        progress,
    };
    restore.run().await
}

impl Restore<'_> {
    async fn run(mut self) -> Result<RestoreReport> {
        self.claim_files().await?;
        // Copies of pages of another history, which a restart would take for those of torn ones.
        self.home.remove(&[DoubleWrite::NAME]).await?;
        let partitions = self.manifest.partitions.clone();
        for (partition, pages) in &partitions {
            self.create_files(partition, *pages).await?;
        }
        for (place, base) in std::mem::take(&mut self.bases).into_iter().rev() {
            self.restore_data(&place, &base, true).await?;
        }
        let (source, manifest) = (self.source.clone(), self.manifest.clone());
        self.restore_data(&source, &manifest, false).await?;
        for restored in self.files.values() {
            self.executor.perform(Op::Sync { file: restored.file }).await.result?;
        }
        let (shape, measured) = self.restore_log().await?;
        let superblock = self.manifest.superblock(self.report.end, shape, measured);
        // Another attempt may have begun with another backup.
        self.home.remove(&[TAKEN_FILE]).await?;
        taken::note(&self.home, BackupTaken { id: self.manifest.id, end: Lsn(self.manifest.end) }).await?;
        SuperblockFile::create(self.executor, self.home.device, &superblock, self.manifest.catalog.clone()).await?;
        self.home.remove(&[RESTORE_FILE]).await?;
        Ok(self.report)
    }

    /// Refuses to write over anything but what an earlier attempt has left, and says which files this one makes before it makes them.
    async fn claim_files(&self) -> Result<()> {
        let mut wanted = FileNames::new();
        for (partition, _) in &self.manifest.partitions {
            wanted.extend(partition.file_names().into_iter().map(|name| (partition.device.clone(), name)));
        }
        wanted.insert((self.manifest.log_device.clone(), self.settings.file.clone()));
        wanted.extend([SUPERBLOCK_FILE, TAKEN_FILE].map(|name| (self.home.name.clone(), name.to_owned())));
        let mut own = read_mark(&self.home).await?;
        let devices: BTreeSet<String> = wanted.iter().map(|(device, _)| device.clone()).collect();
        // An earlier attempt may have been cut off while it wrote that.
        let opened = SuperblockFile::open(self.executor, self.home.device, &self.home.name).await;
        let is_unfinished = matches!(opened, Err(Error::Unfinished { .. }));
        for device in devices {
            for name in BackupPlace::of(self.executor, &device)?.names().await? {
                let file = (device.clone(), name);
                let is_own = own.contains(&file) && (file.1 != SUPERBLOCK_FILE || is_unfinished);
                if !is_own && wanted.contains(&file) {
                    return Err(BackupError::Occupied { device, file: file.1 }.into());
                }
            }
        }
        if wanted.is_subset(&own) {
            return Ok(());
        }
        own.extend(wanted);
        self.home.write_file(RESTORE_FILE, mark(&own).as_bytes()).await
    }

    /// Creates a partition's files, blank.
    async fn create_files(&mut self, partition: &Partition, pages: u32) -> Result<()> {
        let place = BackupPlace::of(self.executor, &partition.device)?;
        let current = self.manifest.sets.clone().unwrap_or_default();
        let set = match partition.organization {
            Organization::Set { segment_size, .. } => Some(segment_size as usize),
            _ => None,
        };
        let page_size = self.manifest.page_size as usize;
        let (name, unit, count) = match set {
            Some(size) => {
                let copy = usize::from(current.copy);
                self.blank(&place, &partition.backup_file_name(1 - copy), 0).await?;
                (partition.backup_file_name(copy), size, current.segments_of(partition.id()))
            }
            None => (partition.file_name(), page_size, pages),
        };
        let length = u64::from(count) * unit as u64;
        let file = self.blank(&place, &name, length).await?;
        let (is_set, may_grow) = (set.is_some(), set.is_none() && !self.counted.contains(&partition.id));
        self.files.insert(partition.id(), RestoredFile { file, length, unit, is_set, is_written: false, may_grow });
        Ok(())
    }

    async fn blank(&self, place: &BackupPlace, name: &str, length: u64) -> Result<FileId> {
        place.remove(&[name]).await?;
        let (file, _) = self.executor.open(place.device, name, true).await?;
        self.executor.perform(Op::Resize { file, length, prewrite: false }).await.result?;
        Ok(file)
    }

    /// Writes pages and segments to their places, in the order of the backup.
    async fn restore_data(&mut self, place: &BackupPlace, manifest: &Manifest, is_base: bool) -> Result<()> {
        let length = manifest.data_bytes;
        let Some((file, found)) = place.find(DATA_FILE).await? else {
            return Err(damaged(place, DATA_FILE, 0, "it is not there"));
        };
        if found < length {
            return Err(damaged(place, DATA_FILE, found, &format!("it ends here and should have {length} bytes")));
        }
        let mut at = 0;
        while at < length {
            let (head, piece) = self.read_piece((place, &file), at, length).await?;
            at += head.total() as u64;
            self.report.bytes += head.length as u64;
            self.done += head.total() as u64;
            self.write_piece(&head, &piece[BLOCK..], is_base).await.map_err(|error| match error {
                None => damaged(place, DATA_FILE, at - head.total() as u64, "a piece is of no page that there is"),
                Some(error) => error,
            })?;
            (self.progress)(BackupProgress { done: self.done, total: self.total });
        }
        Ok(())
    }

    /// The piece at this place of the file, verified.
    async fn read_piece(
        &self,
        (place, file): (&BackupPlace, &PlaceFile),
        at: u64,
        length: u64,
    ) -> Result<(PieceHead, Frame)> {
        let fail = |what: String| damaged(place, DATA_FILE, at, &what);
        let mut window = place.read(file, (at, WINDOW.min((length - at) as usize))).await?;
        let head = chunk::head(&window).map_err(fail)?;
        if head.total() as u64 > length - at {
            return Err(fail("a piece ends behind the file".into()));
        }
        if head.total() > window.len() {
            window = place.read(file, (at, head.total())).await?;
        }
        let total = head.total();
        let verify = move || {
            let verified = chunk::verify(&window[..total]);
            (window, verified)
        };
        let (window, verified) = self.executor.compute(total as u64, verify).await?;
        verified.map_err(fail)?;
        Ok((head, window))
    }

    /// Writes what a piece holds, unless it `is_base` and the backup that builds on it has all of that; no error says that it makes
    /// no sense.
    async fn write_piece(&mut self, head: &PieceHead, contents: &[u8], is_base: bool) -> Result<(), Option<Error>> {
        let Some(restored) = self.files.get_mut(&head.partition) else {
            // It was dropped before the backup ended.
            return Ok(());
        };
        if is_base && restored.is_set {
            return Ok(());
        }
        let (file, length, unit) = (restored.file, restored.length, restored.unit);
        let numbers = match &head.kind {
            PieceKind::Begin => {
                if std::mem::replace(&mut restored.is_written, true) {
                    for length in [0, length] {
                        let op = Op::Resize { file, length, prewrite: false };
                        self.executor.perform(op).await.result.map_err(Error::from)?;
                    }
                }
                return Ok(());
            }
            PieceKind::Segment(number) => std::slice::from_ref(number),
            PieceKind::Pages(numbers) => &numbers[..],
        };
        restored.is_written = true;
        let needed = numbers.iter().map(|at| (u64::from(*at) + 1) * unit as u64).max().unwrap_or(0);
        if needed > length && restored.may_grow {
            let op = Op::Resize { file, length: needed, prewrite: false };
            self.executor.perform(op).await.result.map_err(Error::from)?;
            restored.length = needed;
        }
        // What the base has behind its partition's end of now was given back since; so was what a set had when it was copied first.
        let is_given_back = (is_base || restored.is_set) && needed > restored.length;
        if head.length != numbers.len() * unit || needed > restored.length && !is_given_back {
            return Err(None);
        }
        let end = (restored.length / unit as u64).try_into().unwrap_or(u32::MAX);
        self.report.pages += numbers.len() as u64;
        let mut done = 0;
        for run in numbers.chunk_by(|one, next| *next == one.wrapping_add(1) && *next != end) {
            if run[0] >= end {
                done += run.len();
                continue;
            }
            let bytes = &contents[done * unit..(done + run.len()) * unit];
            write_run(self.executor, file, (u64::from(run[0]) * unit as u64, bytes)).await?;
            done += run.len();
        }
        Ok(())
    }

    /// Writes the log up to where the database is to end. Returns what its file is like, and what was measured of its device.
    async fn restore_log(&mut self) -> Result<(LogShape, Option<log::Measured>)> {
        let (manifest, page_size) = (&self.manifest, self.settings.page_size);
        let device = BackupPlace::of(self.executor, &manifest.log_device)?;
        let place = (device.device, &manifest.log_device[..]);
        let (from, end) = (Lsn(manifest.log_from), self.report.end);
        // What was not committed is taken back in as much, which no growth is to be needed for.
        let more = self.settings.first_extent.max(2 * (end.0 - from.0).min(manifest.log_capacity));
        let shape = manifest.log_shape(end, more);
        let circle = shape.circle;
        let made = LogFile::create(self.executor, place, (self.settings, 0), shape.extent).await?;
        let [of_backup, to] = [manifest.end, end.0].map(|end| end.next_multiple_of(page_size as u64));
        let of_backup = of_backup.min(to);
        let Some((file, found)) = self.source.find(LOG_FILE).await? else {
            return Err(damaged(&self.source, LOG_FILE, 0, "it is not there"));
        };
        if found < of_backup - from.0 {
            let detail = format!("it ends here and should have {} bytes", of_backup - from.0);
            return Err(damaged(&self.source, LOG_FILE, found, &detail));
        }
        let per_read = (WINDOW / page_size).max(1) * page_size;
        let mut at = from.0;
        while at < to {
            let rest = if at < of_backup { of_backup - at } else { to - at };
            let mut length = rest.min(per_read as u64).min(circle.left_from(at)) as usize;
            let mut frame = match &mut self.archive {
                Some(archive) if at >= of_backup => {
                    let (frame, read) = archive.read(Lsn(at), length).await?;
                    length = read;
                    frame
                }
                _ => read_log(&self.source, &file, (from, Lsn(at), length), page_size).await?,
            };
            if at + length as u64 == to {
                cut_page(&mut frame[length - page_size..length], to - page_size as u64, end);
            }
            write_frame(self.executor, made.file, (circle.offset(at), length), frame).await?;
            at += length as u64;
            self.done += length as u64;
            (self.progress)(BackupProgress { done: self.done, total: self.total });
        }
        self.executor.perform(Op::Sync { file: made.file }).await.result?;
        self.report.log_bytes = to - from.0;
        Ok((shape, made.measured.or(self.manifest.log_measured)))
    }
}

/// Reads pages of a backup's log, which begins at `from`, and verifies them.
pub(super) async fn read_log(
    source: &BackupPlace,
    file: &PlaceFile,
    (from, at, length): (Lsn, Lsn, usize),
    page_size: usize,
) -> Result<Frame> {
    let frame = source.read(file, (at.0 - from.0, length)).await?;
    match first_damaged(&frame[..length], at, page_size) {
        Some(lsn) => Err(damaged(source, LOG_FILE, lsn.0 - from.0, "it is no page of this log")),
        None => Ok(frame),
    }
}

/// Files by device and name.
type FileNames = BTreeSet<(String, String)>;

/// The first line of a restore's file.
const MARK: &str = "a restore has begun here and not ended; begin it again. It makes these files:";

/// What says that a restore makes these files: a line for each, with its device and its name.
fn mark(files: &FileNames) -> String {
    let mut lines = format!("{MARK}\n");
    files.iter().for_each(|(device, name)| lines.extend([device, "\t", name, "\n"]));
    lines
}

/// The files that earlier attempts make: nothing if there were none, and what there is of a list that was cut off.
async fn read_mark(home: &BackupPlace) -> Result<FileNames> {
    let Some((file, length)) = home.find(RESTORE_FILE).await? else { return Ok(FileNames::new()) };
    let length = (length as usize).min(MARK_LENGTH_MAX) / BLOCK * BLOCK;
    if length == 0 {
        return Ok(FileNames::new());
    }
    let frame = home.read(&file, (0, length)).await?;
    let text = String::from_utf8_lossy(&frame[..length]);
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    if lines.next() != Some(MARK) {
        return Ok(FileNames::new());
    }
    let files = lines.map_while(|line| line.split_once('\t'));
    Ok(files.map(|(device, name)| (device.to_owned(), name.to_owned())).collect())
}

pub(super) fn damaged(place: &BackupPlace, file: &str, offset: u64, detail: &str) -> Error {
    let (place, file, detail) = (place.name.clone(), file.to_owned(), detail.to_owned());
    BackupError::Damaged { place, file, offset, detail }.into()
}

/// What an increment builds on, the latest first.
async fn find_bases(
    executor: &Executor,
    (place, manifest): (&BackupPlace, &Manifest),
) -> Result<Vec<(BackupPlace, Manifest)>> {
    let mut bases: Vec<(BackupPlace, Manifest)> = Vec::new();
    while let Some(base) = bases.last().map_or(manifest, |(_, last)| last).base.clone() {
        let above = bases.last().map_or(place, |(place, _)| place).name.clone();
        let missing = |detail: String| {
            let (place, base) = (above.clone(), base.place.clone());
            Error::from(BackupError::BaseMissing { place, base, detail })
        };
        let found = BackupPlace::of(executor, &base.place).map_err(|error| missing(error.to_string()))?;
        let read = Manifest::read(&found).await.map_err(|error| missing(error.to_string()))?;
        if read.id != base.id || bases.iter().any(|(_, other)| other.id == read.id) {
            return Err(missing("another backup is there".to_owned()));
        }
        bases.push((found, read));
    }
    Ok(bases)
}

async fn write_run(executor: &Executor, file: FileId, (offset, bytes): (u64, &[u8])) -> Result<()> {
    let mut frame = executor.frame(bytes.len())?;
    frame[..bytes.len()].copy_from_slice(bytes);
    write_frame(executor, file, (offset, bytes.len()), frame).await
}

async fn write_frame(executor: &Executor, file: FileId, (offset, length): (u64, usize), buffer: Frame) -> Result<()> {
    let (durable, access) = (false, Access::Asynchronous);
    let op = Op::Write { file, offset, length: length as u32, buffer, durable, access };
    executor.perform(op).await.result?;
    Ok(())
}
