//! The superblock's bytes, and those of earlier formats.

use super::journal::Span;
use super::mirror::{BLOCK, REGION};
use super::{ArchivedLog, CurrentBackup, FORMAT, LogShape, SUPERBLOCK_FILE, SecondLog, Superblock};
use crate::catalog::{Partition, Schema};
use crate::log::Measured;
use crate::tier_file::TierRecord;
use crate::tier_file::table::TablePosition;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use structures::checksum::checksum;
use structures::page::header::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};

const MAGIC: &[u8; 8] = b"ENTRESOL";
/// Where the contents begin.
pub(super) const CONTENTS: usize = 32;
/// The first format whose catalog is a journal.
const JOURNAL: u32 = 7;
/// The first format whose log has what sets and long values were, where moments are kept.
const PAST_OF_SETS: u32 = 17;

/// The superblock as it is stored. What a later format adds goes behind the rest.
#[derive(Serialize, Deserialize)]
struct StoredSuperblock {
    page_size: u32,
    log_page_size: u32,
    log_device: String,
    redo_start: u64,
    log_durable: u64,
    log_epoch: u32,
    next_transaction: u64,
    tiers: Vec<TierRecord>,
    /// The complete copy, and from where the log goes on from it; the catalog has the rest.
    backup: Option<(u8, u64)>,
    log_measured: Option<Measured>,
    second_log: Option<SecondLog>,
    catalog: Span,
    cache_table: Option<TablePosition>,
    log_shape: Option<LogShape>,
    archive: Option<ArchivedLog>,
    moments_since: Option<u64>,
    identity: Option<u64>,
    /// Came without a new format: releases of format 21 that do not know it pass over it, and write none.
    changed_alone: Option<u64>,
}

/// The same up to format 6, which had the partitions in it.
#[derive(Serialize, Deserialize)]
pub(super) struct Earlier {
    pub(super) page_size: u32,
    pub(super) log_page_size: u32,
    pub(super) log_device: String,
    pub(super) redo_start: u64,
    pub(super) log_durable: u64,
    pub(super) log_epoch: u32,
    pub(super) next_transaction: u64,
    /// At the positions of their numbers.
    pub(super) partitions: Vec<Partition>,
    pub(super) tiers: Vec<TierRecord>,
    pub(super) backup: Option<CurrentBackup>,
    pub(super) schemas: Vec<(u16, Schema)>,
    pub(super) log_measured: Option<Measured>,
    pub(super) second_log: Option<SecondLog>,
}

/// What a copy says.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded {
    /// Of this format; the backup's segments are in the catalog.
    Present(Superblock, Span),
    /// Of an earlier one, with its partitions.
    Earlier(Superblock, Vec<Partition>),
}

/// Whole blocks.
///
/// # Errors
/// [`Error::Setting`] if names of devices are too long for a copy.
pub(super) fn encode(generation: u64, superblock: &Superblock, catalog: Span) -> Result<Vec<u8>> {
    let Superblock { page_size, log_page_size, redo_start, log_durable, log_epoch, next_transaction, .. } = *superblock;
    let stored = StoredSuperblock {
        page_size,
        log_page_size,
        log_device: superblock.log_device.clone(),
        redo_start,
        log_durable,
        log_epoch,
        next_transaction,
        tiers: superblock.tiers.clone(),
        backup: superblock.backup.as_ref().map(|backup| (backup.copy, backup.begin)),
        log_measured: superblock.log_measured,
        second_log: superblock.second_log.clone(),
        catalog,
        cache_table: superblock.cache_table,
        log_shape: superblock.log_shape.clone(),
        archive: superblock.archive,
        moments_since: superblock.moments_since,
        identity: superblock.identity,
        changed_alone: superblock.changed_alone,
    };
    let body = postcard::to_stdvec(&stored).expect("plain contents can always be stored");
    if body.len() > REGION as usize - CONTENTS {
        return Err(Error::Setting("the names of the log's and the tiers' devices are too long".into()));
    }
    let mut bytes = seal(FORMAT, generation, &body);
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    Ok(bytes)
}

/// The bytes of a copy with this body.
pub(super) fn seal(format: u32, generation: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; CONTENTS];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    bytes[24..32].copy_from_slice(&generation.to_le_bytes());
    bytes.extend(body);
    let sum = checksum(&bytes[24..]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The generation of a copy and what it says.
///
/// # Errors
/// [`Error::NotADatabase`], [`Error::NewerFormat`].
pub(super) fn decode(copy: &[u8], path: &str) -> Result<(u64, Decoded)> {
    let foreign = |detail: &str| Error::NotADatabase { path: path.into(), detail: detail.into() };
    let number = |at: usize| u32::from_le_bytes(copy[at..at + 4].try_into().expect("four bytes"));
    if &copy[..8] != MAGIC {
        return Err(foreign(&format!("its file '{}' does not begin with ENTRESOL", SUPERBLOCK_FILE)));
    }
    let format = number(8);
    if format > FORMAT {
        return Err(Error::NewerFormat { path: path.into(), found: format, supported: FORMAT });
    }
    let damaged = || foreign(&format!("both copies in '{}' are damaged; restore it from a backup", SUPERBLOCK_FILE));
    let length = number(12) as usize;
    if length > copy.len() - CONTENTS || checksum(&copy[24..CONTENTS + length]) != number(16) {
        return Err(damaged());
    }
    let generation = u64::from_le_bytes(copy[24..32].try_into().expect("eight bytes"));
    let body = &copy[CONTENTS..CONTENTS + length];
    let found = if format < JOURNAL { earlier(format, body) } else { present(format, body) };
    found.map(|found| (generation, found)).ok_or_else(damaged)
}

fn present(format: u32, body: &[u8]) -> Option<Decoded> {
    let mut body = body.to_vec();
    // What a later format than the file's has added is nothing. Not each has added something; what is too much is not read.
    body.extend((format..=FORMAT).map(|_| 0));
    let found: StoredSuperblock = postcard::from_bytes(&body).ok()?;
    let superblock = Superblock {
        page_size: found.page_size,
        log_page_size: found.log_page_size,
        log_device: found.log_device,
        redo_start: found.redo_start,
        log_durable: found.log_durable,
        log_epoch: found.log_epoch,
        next_transaction: found.next_transaction,
        tiers: found.tiers,
        backup: found.backup.map(|(copy, begin)| CurrentBackup { copy, begin, ..CurrentBackup::default() }),
        log_measured: found.log_measured,
        second_log: found.second_log,
        cache_table: found.cache_table,
        log_shape: found.log_shape,
        archive: found.archive,
        // An earlier log has not what sets and long values were.
        moments_since: found.moments_since.filter(|_| format >= PAST_OF_SETS),
        identity: found.identity,
        changed_alone: found.changed_alone,
    };
    is_sound(&superblock).then_some(Decoded::Present(superblock, found.catalog))
}

fn earlier(format: u32, body: &[u8]) -> Option<Decoded> {
    let mut body = body.to_vec();
    // The first format knew no tiers, the second no sets, the third no schemas, the fourth no
    // measurement, the fifth no second log: an empty list or nothing.
    body.extend((format..JOURNAL - 1).map(|_| 0));
    let found: Earlier = postcard::from_bytes(&body).ok()?;
    let mut partitions = found.partitions;
    for (partition, schema) in found.schemas {
        partitions.get_mut(usize::from(partition))?.schema = Some(schema);
    }
    let is_numbered = (0..).zip(&partitions).all(|(number, partition)| number == u32::from(partition.id));
    let superblock = Superblock {
        page_size: found.page_size,
        log_page_size: found.log_page_size,
        log_device: found.log_device,
        redo_start: found.redo_start,
        log_durable: found.log_durable,
        log_epoch: found.log_epoch,
        next_transaction: found.next_transaction,
        tiers: found.tiers,
        backup: found.backup,
        log_measured: found.log_measured,
        second_log: found.second_log,
        cache_table: None,
        log_shape: None,
        archive: None,
        moments_since: None,
        identity: None,
        changed_alone: None,
    };
    (is_numbered && is_sound(&superblock)).then_some(Decoded::Earlier(superblock, partitions))
}

fn is_sound(superblock: &Superblock) -> bool {
    let page_size = u64::from(superblock.log_page_size);
    (PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&(superblock.page_size as usize))
        && superblock.backup.as_ref().is_none_or(|backup| backup.copy < 2)
        && superblock.log_shape.as_ref().is_none_or(|shape| shape.is_sound(page_size))
}
