//! What a backup says of itself. It is written last, so a backup that was cut off has none.

use super::target::BackupPlace;
use crate::catalog::Partition;
use crate::error::BackupError;
use crate::log::{Circle, Measured};
use crate::superblock::{CatalogChange, CurrentBackup, LogShape, Superblock};
use crate::{Error, Result};
use base::Lsn;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use structures::checksum::checksum;

/// The manifest's file: a directory that holds it is a backup.
pub const MANIFEST_FILE: &str = "entresol.backup";
/// The format of backups that this release writes and the newest that it reads.
pub const BACKUP_FORMAT: u32 = 3;
/// The first format that says what archive goes on from the backup.
const ARCHIVED: u32 = 3;

const MAGIC: &[u8; 8] = b"ENTRBACK";
const HEADER: usize = 32;
/// Longer ones are damaged.
const LENGTH_MAX: usize = 64 << 20;
/// The unit in which it is written.
pub(super) const BLOCK: usize = 4096;

/// The contents of a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Tells this backup from all others.
    pub id: u64,
    /// The backup that this one is an increment of.
    pub base: Option<Base>,
    /// Every page that is not as it is in this backup was changed behind this position.
    pub unchanged_before: u64,
    pub page_size: u32,
    pub log_page_size: u32,
    pub log_device: String,
    /// How long a log the database needs to go on from here.
    pub log_capacity: u64,
    pub log_measured: Option<Measured>,
    /// The position of the first page of the log that the backup has.
    pub log_from: u64,
    /// The backup shows what was committed up to this position.
    pub end: u64,
    pub redo_start: u64,
    pub log_epoch: u32,
    pub next_transaction: u64,
    /// The copy of the sets' backup that it has, and from where the log goes on from it.
    pub sets: Option<CurrentBackup>,
    /// The checksums over each set's images.
    pub images: Vec<(u16, u32)>,
    /// The partitions that it has, and how many pages the file of each has room for.
    pub partitions: Vec<(Partition, u32)>,
    /// What a new catalog has to be told.
    pub catalog: Vec<CatalogChange>,
    /// How long the file of pages and segments is, in bytes.
    pub data_bytes: u64,
    /// The history that the segments have with which the log goes on, if it was archived.
    pub history: Option<u64>,
    /// When the backup ended, in nanoseconds since 1970. Formats before 3 did not say it.
    pub ended_unix_ns: u64,
}

/// The backup that an increment builds on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Base {
    pub id: u64,
    /// Where it was when the increment was taken.
    pub place: String,
}

impl Manifest {
    /// Whole blocks.
    pub fn encode(&self) -> Vec<u8> {
        let body = postcard::to_stdvec(self).expect("plain contents can always be stored");
        let mut bytes = vec![0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&BACKUP_FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&checksum(&body).to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    /// What the bytes of a manifest in `place` say.
    ///
    /// # Errors
    /// [`BackupError::NotABackup`], [`BackupError::NewerFormat`], [`BackupError::Damaged`].
    pub fn decode(bytes: &[u8], place: &str) -> Result<Manifest, BackupError> {
        let place = place.to_owned();
        let number = |at: usize| bytes.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().expect("four")));
        if bytes.get(..8) != Some(MAGIC) {
            let detail = format!("its file '{MANIFEST_FILE}' does not begin with ENTRBACK");
            return Err(BackupError::NotABackup { place, detail });
        }
        let found = number(8).unwrap_or(0);
        if found > BACKUP_FORMAT {
            return Err(BackupError::NewerFormat { place, found, supported: BACKUP_FORMAT });
        }
        let length = number(12).unwrap_or(0) as usize;
        let body = bytes.get(HEADER..HEADER + length.min(LENGTH_MAX));
        let body = body.filter(|body| number(16) == Some(checksum(body)));
        let later: &[u8] = if found < ARCHIVED { &[0, 0] } else { &[] };
        let read = body.and_then(|body| postcard::from_bytes(&[body, later].concat()).ok());
        let read = read.map(Manifest::with_file_names);
        read.filter(Manifest::is_sound).ok_or_else(|| {
            let (file, detail) = (MANIFEST_FILE.to_owned(), "its checksum is another".to_owned());
            BackupError::Damaged { place, file, offset: 0, detail }
        })
    }

    /// The same with the names of partitions' files, which the catalog has.
    fn with_file_names(mut self) -> Manifest {
        let stems: BTreeMap<u16, &String> = (self.catalog.iter())
            .filter_map(|change| match change {
                CatalogChange::Files(id, stem) => Some((*id, stem)),
                _ => None,
            })
            .collect();
        for (partition, _) in &mut self.partitions {
            if let Some(stem) = stems.get(&partition.id) {
                *partition = partition.clone().with_files((*stem).clone());
            }
        }
        self
    }

    fn is_sound(&self) -> bool {
        let log_page = u64::from(self.log_page_size);
        let sizes = self.page_size > 0 && log_page > 0 && self.log_from.is_multiple_of(log_page.max(1));
        let sets = self.sets.as_ref().is_none_or(|sets| sets.copy < 2);
        let log = self.log_from >= log_page && self.log_from <= self.end;
        // Its file has whole pages and holds all of it.
        let file = self.log_capacity >= log_page.max(self.end.saturating_sub(self.log_from));
        sizes && sets && log && file && self.log_capacity.is_multiple_of(log_page.max(1))
    }

    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// Those of [`Manifest::decode`], or the driver's.
    pub async fn read(place: &BackupPlace) -> Result<Manifest> {
        let Some((file, length)) = place.find(MANIFEST_FILE).await? else {
            let detail = format!("there is no file '{MANIFEST_FILE}' in it; a backup that was cut off has none");
            return Err(BackupError::NotABackup { place: place.name.clone(), detail }.into());
        };
        let length = (length as usize).min(LENGTH_MAX + BLOCK) / BLOCK * BLOCK;
        if length == 0 {
            return Err(Manifest::decode(&[], &place.name).expect_err("nothing is no manifest").into());
        }
        let frame = place.read(&file, (0, length)).await?;
        Manifest::decode(&frame[..length], &place.name).map_err(Error::from)
    }

    /// The log's file of a database that goes on from the backup: it begins with the backup's log, or an archive's behind that, up to
    /// `end`, and has `more` bytes behind that.
    pub fn log_shape(&self, end: Lsn, more: u64) -> LogShape {
        let page = u64::from(self.log_page_size);
        // What an archive has the log never had at once: rollbacks are to have as much room beside it as they had then.
        let used = end.0 - self.log_from + page;
        let beside = if 2 * used > self.log_capacity { used.next_multiple_of(page) } else { 0 };
        let size = if end.0 > self.end { self.log_capacity + beside } else { self.log_capacity };
        let circle = Circle { origin: self.log_from - page, size };
        let extent = (end.0 - circle.origin).saturating_add(more).min(circle.size).next_multiple_of(page);
        LogShape { circle, extent, is_blank: false, retired: None }
    }

    /// The superblock of a database that goes on from the backup, whose log ends at `end` and has this file.
    pub fn superblock(&self, end: Lsn, log_shape: LogShape, log_measured: Option<Measured>) -> Superblock {
        let sets = self.sets.clone().map(|sets| CurrentBackup { images: self.images.clone(), ..sets });
        Superblock {
            page_size: self.page_size,
            log_page_size: self.log_page_size,
            log_device: self.log_device.clone(),
            redo_start: self.redo_start,
            log_durable: end.0,
            log_epoch: self.log_epoch,
            next_transaction: self.next_transaction,
            tiers: Vec::new(),
            backup: sets,
            log_measured,
            second_log: None,
            cache_table: None,
            log_shape: Some(log_shape),
            archive: None,
            // The log of a restored database may lack what the catalog of the backup has, or the other way round.
            moments_since: None,
            // It is another database, and its first opening names it.
            identity: None,
            changed_alone: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Manifest {
        Manifest {
            id: 7,
            base: Some(Base { id: 5, place: "elsewhere".into() }),
            unchanged_before: 4096,
            page_size: 8192,
            log_page_size: 4096,
            log_device: "disk".into(),
            log_capacity: 1 << 20,
            log_measured: None,
            log_from: 4096,
            end: 5000,
            redo_start: 4096,
            log_epoch: 1,
            next_transaction: 9,
            sets: None,
            images: Vec::new(),
            partitions: Vec::new(),
            catalog: vec![CatalogChange::Next(3)],
            data_bytes: 0,
            history: Some(77),
            ended_unix_ns: 5,
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_any_flipped_bit_of_it_is_found() {
        let bytes = sample().encode();
        assert_eq!(Manifest::decode(&bytes, "there"), Ok(sample()));
        let length = HEADER + postcard::to_stdvec(&sample()).unwrap().len();
        for bit in (0..length * 8).filter(|bit| !(20..HEADER).contains(&(bit / 8))) {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            // An older format, which lacked changes of the catalog, is read as this one.
            let is_older = (8..12).contains(&(bit / 8)) && u32::from_le_bytes(other[8..12].try_into().unwrap()) < 3;
            assert!(is_older || Manifest::decode(&other, "there").is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_says_of_a_log_that_no_file_can_hold_is_refused() {
        let refused = [
            Manifest { log_capacity: 0, ..sample() },
            Manifest { log_capacity: (1 << 20) + 1, ..sample() },
            Manifest { log_from: 0, ..sample() },
            Manifest { end: 4096 + (1 << 20) + 1, ..sample() },
            Manifest { log_page_size: 0, ..sample() },
        ];
        for manifest in refused {
            assert!(Manifest::decode(&manifest.encode(), "there").is_err(), "{manifest:?}");
        }
        let whole = Manifest { end: 4096 + (1 << 20), ..sample() };
        assert_eq!(Manifest::decode(&whole.encode(), "there"), Ok(whole.clone()));
        assert_eq!(whole.log_shape(Lsn(whole.end), 5).extent, 1 << 20);
        let short = sample().log_shape(Lsn(5000), 10_000);
        assert_eq!((short.circle.origin, short.extent), (0, 16_384), "up to 5,000, and 10,000 more");
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = sample().encode();
        bytes[8] = 4;
        let expected = BackupError::NewerFormat { place: "there".into(), found: 4, supported: 3 };
        assert_eq!(Manifest::decode(&bytes, "there"), Err(expected));
    }

    #[test]
    fn a_backup_of_an_earlier_format_has_no_archive() {
        let earlier = Manifest { history: None, ended_unix_ns: 0, ..sample() };
        let mut bytes = earlier.encode();
        bytes[8] = 2;
        // Two bytes less, which are zeros.
        let length = postcard::to_stdvec(&earlier).unwrap().len() - 2;
        bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        let sum = checksum(&bytes[HEADER..HEADER + length]);
        bytes[16..20].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Manifest::decode(&bytes, "there"), Ok(earlier));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300), known in any::<bool>()) {
            if known && bytes.len() > HEADER {
                let length = bytes.len() - HEADER;
                bytes[..8].copy_from_slice(MAGIC);
                bytes[8..12].copy_from_slice(&BACKUP_FORMAT.to_le_bytes());
                bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
                let sum = checksum(&bytes[HEADER..]);
                bytes[16..20].copy_from_slice(&sum.to_le_bytes());
            }
            let _read_or_refused = Manifest::decode(&bytes, "there");
        }
    }
}
