//! The superblock file (superblock): what a database is, what partitions it has, where recovery begins.
//!
//! The file is a sequence of regions of 64 KiB, each followed by its mirror ([`mirror`]). The first one is the superblock:
//!
//! ```text
//!  0 magic "ENTRESOL"   8 format u32   12 length u32   16 CRC-32C of the rest u32   20 zero u32   24 generation u64
//! 32 superblock (postcard), `length` bytes
//! ```
//!
//! The others hold the catalog, as a journal ([`journal`]) of which the superblock says where it begins and ends. Rules:
//!
//! 1. The superblock decides. What it does not name is not there, however whole it is; so the journal is appended first, to
//!    both copies, and no byte is overwritten that one of the last superblocks may name.
//! 2. A superblock is written to one copy and made durable, then to the other. The first is never the only whole one, so a
//!    power cut, a lost write or an unreadable sector leaves one. The greater generation counts.
//! 3. A write counts when both copies have it. If it fails, the next opening may find either state, so the writer does nothing
//!    that one of them forbids: it removes no file of a partition that is in one of them, gives up no log that one of them
//!    needs, and acknowledges nothing that only one of two lost log devices would have.
//! 4. What one copy lacks an opening takes from the other one, and writes it there again.
//! 5. A checkpoint of pages writes the superblock alone, a block or two, however many partitions there are. A sweep over sets
//!    appends what is new of their backup.
//! 6. A number is given to one partition, for ever: it is durable before anything of that is logged or created.
//!
//! There is no checkpoint record in the log. While the file is blank, the database was never created.

mod change;
mod encoding;
mod journal;
mod mirror;

pub(crate) use change::{CatalogChange, stored_index, stored_indexes};
pub(crate) use journal::{begin, followed, read_changes, stored_changes};

use crate::catalog::{Partition, Partitions};
use crate::log::{Circle, Log, LogArchive, Measured};
use crate::tier_file::TierRecord;
use crate::tier_file::table::TablePosition;
use crate::{Error, Result};
use base::{Lsn, PartitionId};
use driver::{DeviceId, FaultKind, Op};
use executor::Executor;
use journal::Journal;
use mirror::{BLOCK, COPIES, Mirror, REGION};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// The format that this release writes and the newest that it reads.
pub const FORMAT: u32 = 21;
/// The superblock file's name: a directory that holds it is a database.
pub const SUPERBLOCK_FILE: &str = "entresol.home";

/// The contents of the superblock file, but for the partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The size of every page in bytes.
    pub page_size: u32,
    /// The size of a log page in bytes.
    pub log_page_size: u32,
    /// The log's device.
    pub log_device: String,
    /// What pages lack is in the log from here on.
    pub redo_start: u64,
    /// The log was durable up to here when this was written: an earlier end of it is damage.
    pub log_durable: u64,
    /// The opening of the log from whose pages on it is needed; those of earlier ones there are what a crash left.
    pub log_epoch: u32,
    /// Greater than every transaction number in use when this was written.
    pub next_transaction: u64,
    /// The tiers that survive power cuts.
    pub tiers: Vec<TierRecord>,
    /// The backup of the memory-resident sets, once there are any.
    pub backup: Option<CurrentBackup>,
    /// What was measured of the log's device when the database was created, if anything was.
    pub log_measured: Option<Measured>,
    /// The log's second device, if it has one.
    pub second_log: Option<SecondLog>,
    /// The table of the second-level cache, if it has one that can be believed.
    pub cache_table: Option<TablePosition>,
    /// The log's file, or both files. Formats before 11 did not say it: then all of the file is there, from position zero on.
    pub log_shape: Option<LogShape>,
    /// How far the log is archived, if it is.
    pub archive: Option<ArchivedLog>,
    /// The moment since which the log has said all that it takes to read moments, if they can be read for a time. No transaction had begun and
    /// not ended then.
    pub moments_since: Option<u64>,
    /// Tells this database from all others, also from the one of which it is a restored backup. While there is none, as in formats before 21,
    /// the next opening draws one.
    pub identity: Option<u64>,
    /// When this was written, the log had nothing behind this position but what other nodes had changed. `None` if that is not known: an
    /// earlier release has written it, it is of a restored backup, or commits did not wait until they were durable. Then what nodes were told
    /// to be there may be gone.
    pub changed_alone: Option<u64>,
}

/// What the superblock file says of the log's archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedLog {
    /// Tells the segments of this log from those of every other one: also of one that lacks some of its end, or has not been archived for
    /// a while.
    pub history: u64,
    /// The archive has everything before this. What is behind it the log's file has.
    pub end: u64,
}

impl ArchivedLog {
    /// Of a log in use.
    pub(crate) fn of(archive: &LogArchive) -> ArchivedLog {
        ArchivedLog { history: archive.history(), end: archive.end().0 }
    }
}

/// What the superblock file says of the log's file, or of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogShape {
    /// Where positions lie in it.
    pub circle: Circle,
    /// How many bytes of it were there when this was written: a shorter file was cut.
    pub extent: u64,
    /// Whether it holds nothing and is to be made anew.
    pub is_blank: bool,
    /// A device that has the log no longer, and perhaps still a file of it.
    pub retired: Option<String>,
}

impl LogShape {
    /// Of a log in use.
    pub(crate) fn of(log: &Log) -> LogShape {
        LogShape { circle: log.circle(), extent: log.extent_of_each(), is_blank: false, retired: None }
    }

    /// Whether there can be such a file, of log pages of this size.
    pub(crate) fn is_sound(&self, page_size: u64) -> bool {
        let Circle { origin, size } = self.circle;
        let pages = [origin, size, self.extent];
        page_size > 0 && size >= page_size && self.extent <= size && pages.iter().all(|bytes| bytes % page_size == 0)
    }
}

/// What the superblock file says of a log on two devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondLog {
    /// The second device.
    pub device: String,
    /// Which of the two was lost: 0 the log's device, 1 the second one. The other one has everything.
    pub lost: Option<u8>,
    /// Whether nothing was acknowledged that one of them did not have.
    pub both: bool,
    /// What was measured of the second device when it was first used, if anything was.
    pub measured: Option<Measured>,
}

impl Superblock {
    /// Where recovery begins to read the log: where pages or sets need it, whichever comes first.
    pub fn scan_start(&self) -> Lsn {
        let sets = self.backup.as_ref().map_or(u64::MAX, |backup| backup.begin);
        Lsn(self.redo_start.min(sets))
    }

    /// Where the recovery of pages begins.
    pub fn redo_start(&self) -> Lsn {
        Lsn(self.redo_start)
    }

    /// The log ends here. Where the sets' backup began behind that, which is gone, it has nothing of what the log will have there.
    pub fn limit_backup(&mut self, end: Lsn) {
        if let Some(backup) = &mut self.backup {
            backup.begin = backup.begin.min(end.0);
        }
    }
}

/// What the superblock file says of the backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentBackup {
    /// The complete copy, 0 or 1.
    pub copy: u8,
    /// What it lacks is in the log from here on.
    pub begin: u64,
    /// How many segments of each partition it has, in the order of their numbers; others have none.
    pub segments: Vec<(u16, u32)>,
    /// The checksum over those of each partition's images, in the order of their numbers; it is not known of the others, whose
    /// copy is that of an earlier release.
    #[serde(skip)]
    pub images: Vec<(u16, u32)>,
}

impl CurrentBackup {
    /// A backup of sets that are created from here on.
    pub fn empty(begin: Lsn) -> CurrentBackup {
        CurrentBackup { begin: begin.0, ..CurrentBackup::default() }
    }

    /// How many segments of this partition the backup has.
    pub fn segments_of(&self, partition: PartitionId) -> u32 {
        let found = self.segments.binary_search_by_key(&partition.0, |(id, _)| *id);
        found.map_or(0, |at| self.segments[at].1)
    }

    /// The checksum over this partition's images, if it is known.
    pub fn images_of(&self, partition: PartitionId) -> Option<u32> {
        let found = self.images.binary_search_by_key(&partition.0, |(id, _)| *id);
        found.ok().map(|at| self.images[at].1)
    }
}

/// The open superblock file.
pub struct SuperblockFile {
    mirror: Mirror,
    generation: u64,
    /// The copy of the superblock that is written first: never the only whole one.
    first: u64,
    journal: Journal,
}

impl SuperblockFile {
    /// Creates the file with its first contents, and a catalog to which `changes` lead.
    ///
    /// # Errors
    /// The driver's.
    pub async fn create(
        executor: &Executor,
        device: DeviceId,
        superblock: &Superblock,
        changes: impl IntoIterator<Item = CatalogChange>,
    ) -> Result<SuperblockFile> {
        let (file, _) = executor.open(device, SUPERBLOCK_FILE, true).await?;
        let length = 2 * REGION;
        executor.perform(Op::Resize { file, length, prewrite: true }).await.result?;
        let mirror = Mirror::new(executor, file, length)?;
        // An opening takes a blank first copy for a creation that was cut off.
        let mut superblock_file = SuperblockFile { mirror, generation: 0, first: 1, journal: Journal::default() };
        superblock_file.change(changes);
        superblock_file.write(executor, superblock).await?;
        Ok(superblock_file)
    }

    /// Opens the file and reads its latest contents. `path` names the database in errors.
    ///
    /// # Errors
    /// [`Error::NotADatabase`] if there is none or both copies are damaged, [`Error::Unfinished`] if it was never written,
    /// [`Error::NewerFormat`], or the driver's.
    pub async fn open(executor: &Executor, device: DeviceId, path: &str) -> Result<(SuperblockFile, Superblock)> {
        let foreign = |detail: &str| Error::NotADatabase { path: path.into(), detail: detail.into() };
        let (file, length) = match executor.open(device, SUPERBLOCK_FILE, false).await {
            Ok(opened) => opened,
            Err(fault) if fault.kind == FaultKind::NotFound => {
                return Err(foreign(&format!("it holds no file '{}'", SUPERBLOCK_FILE)));
            }
            Err(fault) => return Err(Error::Input(fault)),
        };
        let mut mirror = Mirror::new(executor, file, length)?;
        if length < 2 * REGION {
            let front = mirror.read(executor, 0, (0, length.min(REGION) / BLOCK * BLOCK)).await;
            if let Some(fault) = front.fault {
                return Err(Error::Input(fault));
            }
            return Err(if length % BLOCK == 0 && is_blank(&front.bytes) {
                Error::Unfinished { path: path.into() }
            } else {
                foreign(&format!("its file '{}' is too short", SUPERBLOCK_FILE))
            });
        }
        // A program that was killed may have left a copy that can be read and is not durable.
        mirror.sync(executor).await?;
        let mut best: Option<(u64, u64, encoding::Decoded)> = None;
        let mut copies = Vec::new();
        let (mut flaw, mut fault) = (None, None);
        let mut unfinished = false;
        for copy in COPIES {
            let read = mirror.read(executor, copy, (0, REGION)).await;
            // The first write of all begins with the other copy, and torn it may show anything there.
            unfinished |= copy == 0 && read.fault.is_none() && is_blank(&read.bytes);
            match encoding::decode(&read.bytes, path) {
                Ok((generation, found)) => {
                    if best.as_ref().is_none_or(|(_, other, _)| *other < generation) {
                        best = Some((copy, generation, found));
                    }
                }
                // A newer release leaves no copy of an older format behind.
                Err(error @ Error::NewerFormat { .. }) => flaw = Some(error),
                Err(error) => {
                    flaw = flaw.or(Some(error));
                    fault = fault.or(read.fault.clone());
                }
            }
            copies.push(read);
        }
        let (copy, generation, found) = match (best, flaw, fault) {
            (Some(best), _, _) => best,
            (None, Some(error @ Error::NewerFormat { .. }), _) => return Err(error),
            (None, _, Some(fault)) => return Err(Error::Input(fault)),
            (None, _, None) if unfinished => return Err(Error::Unfinished { path: path.into() }),
            (None, flaw, None) => return Err(flaw.unwrap_or_else(|| foreign("it is empty"))),
        };
        let [sound, other] = [copy, 1 - copy].map(|copy| &copies[copy as usize]);
        if other.fault.is_some() || other.bytes != sound.bytes {
            // If that fails, one copy serves as before.
            let _tried = mirror.write(executor, 1 - copy, 0, &sound.bytes).await;
        }
        let (superblock, journal) = match found {
            encoding::Decoded::Present(mut superblock, span) => {
                let loaded = Journal::load(executor, &mut mirror, span).await?;
                let journal =
                    loaded.map_err(|what| foreign(&format!("its file '{SUPERBLOCK_FILE}' is damaged: {what}")))?;
                if let Some(backup) = &mut superblock.backup {
                    (backup.segments, backup.images) = (journal.segments().to_vec(), journal.images());
                }
                (superblock, journal)
            }
            encoding::Decoded::Earlier(superblock, partitions) => {
                let segments = superblock.backup.as_ref().map_or_else(Vec::new, |backup| backup.segments.clone());
                (superblock, Journal::of_earlier(partitions, segments))
            }
        };
        Ok((SuperblockFile { mirror, generation, first: 1 - copy, journal }, superblock))
    }

    /// How often it was written.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Every partition of the database, and the number of the next one.
    pub(crate) fn partitions(&self) -> Partitions {
        Partitions::new(self.journal.live(), self.journal.next())
    }

    /// All that the catalog says, in changes.
    pub(crate) fn catalog(&self) -> Vec<CatalogChange> {
        self.journal.image()
    }

    /// From which position of the log on calls of procedures find a partition.
    pub(crate) fn since(&self, id: u16) -> Lsn {
        Lsn(self.journal.since(id))
    }

    /// The log ends here: what it has lost behind this position was not before what it will have there. The next write says so.
    pub(crate) fn limit_since(&mut self, end: Lsn) {
        self.journal.limit_since(end.0);
    }

    /// What may have left files behind: creations that were cut off, and partitions that were dropped.
    pub(crate) fn leftovers(&self) -> Vec<Rc<Partition>> {
        self.journal.leftovers().cloned().collect()
    }

    /// From the next write on the catalog says this, too.
    pub(crate) fn change(&mut self, changes: impl IntoIterator<Item = CatalogChange>) {
        self.journal.queue(changes);
    }

    /// States which tiers there are, and the cache's table, unless the file says so already.
    ///
    /// # Errors
    /// As [`SuperblockFile::write`].
    pub async fn note_tiers(
        &mut self,
        executor: &Executor,
        superblock: &mut Superblock,
        (tiers, table): (Vec<TierRecord>, Option<TablePosition>),
    ) -> Result<()> {
        if tiers == superblock.tiers && table == superblock.cache_table {
            return Ok(());
        }
        (superblock.tiers, superblock.cache_table) = (tiers, table);
        self.write(executor, superblock).await
    }

    /// States that commits do not wait until they are durable, unless the file says so already: nodes may be told what will be gone.
    ///
    /// # Errors
    /// As [`SuperblockFile::write`].
    pub async fn note_lazy_log(&mut self, executor: &Executor, superblock: &mut Superblock) -> Result<()> {
        match superblock.changed_alone.take() {
            Some(_) => self.write(executor, superblock).await,
            None => Ok(()),
        }
    }

    /// States that what is logged from now on does not say what it takes to read moments, unless the file says so already.
    ///
    /// # Errors
    /// As [`SuperblockFile::write`].
    pub async fn note_no_moments(&mut self, executor: &Executor, superblock: &mut Superblock) -> Result<()> {
        match superblock.moments_since.take() {
            Some(_) => self.write(executor, superblock).await,
            None => Ok(()),
        }
    }

    /// States which second device the log has, unless the file says so already.
    ///
    /// # Errors
    /// As [`SuperblockFile::write`].
    pub async fn note_second_log(
        &mut self,
        executor: &Executor,
        superblock: &mut Superblock,
        second: Option<SecondLog>,
    ) -> Result<()> {
        if second == superblock.second_log {
            return Ok(());
        }
        superblock.second_log = second;
        self.write(executor, superblock).await
    }

    /// Appends what is new in the catalog, then replaces the older copy of the superblock, makes it durable, and does the same
    /// with the other one.
    ///
    /// # Errors
    /// The driver's: one copy at least is whole, and says what this was to say or what was said before.
    pub async fn write(&mut self, executor: &Executor, superblock: &Superblock) -> Result<()> {
        let bytes = self.prepare(executor, superblock).await?;
        for _ in COPIES {
            self.write_next_copy(executor, &bytes).await?;
        }
        self.journal.note_stated();
        Ok(())
    }

    /// Appends what is new in the catalog. Returns the superblock that names it.
    async fn prepare(&mut self, executor: &Executor, superblock: &Superblock) -> Result<Vec<u8>> {
        if let Some(backup) = &superblock.backup {
            self.journal.queue_backup(&backup.segments, &backup.images);
        }
        self.journal.append(executor, &mut self.mirror).await?;
        self.journal.note_named();
        self.generation += 1;
        encoding::encode(self.generation, superblock, self.journal.span)
    }

    /// Replaces the copy of the superblock that is not the only whole one.
    async fn write_next_copy(&mut self, executor: &Executor, encoded: &[u8]) -> Result<()> {
        self.mirror.write(executor, self.first, 0, encoded).await?;
        self.first = 1 - self.first;
        Ok(())
    }
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests;
