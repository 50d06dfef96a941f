//! A tier's file: its header, and what the superblock file says of it.
//!
//! ```text
//!  0 magic "ENTRTIER"   8 stamp u64   16 capacity u64   24 page size u32   28 CRC-32C of the bytes before u32
//! 32 identity of the database u64   40 CRC-32C of the identity u32
//! 4096 slots, then the header once more
//! ```
//!
//! The second header is for where the first one cannot be read. Files of earlier releases have none, and no identity.

use crate::{Error, Result};
use driver::{Access, DeviceId, FaultKind, FileId, Frame, Op};
use executor::Executor;
use serde::{Deserialize, Serialize};
use structures::checksum::checksum;

const MAGIC: &[u8; 8] = b"ENTRTIER";
/// Where the slots begin in a tier's file.
pub const HEADER_BYTES: u64 = 4096;

/// What a tier is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The second-level cache.
    Cache,
    /// The write buffer for pages.
    WriteBuffer,
    /// The write buffer for the log.
    LogBuffer,
    /// The cache above the others.
    UpperCache,
}

impl Kind {
    /// The name of the tier's file.
    pub fn file_name(self) -> &'static str {
        match self {
            Kind::Cache => "cache.tier",
            Kind::WriteBuffer => "write-buffer.tier",
            Kind::LogBuffer => "log-buffer.tier",
            Kind::UpperCache => "upper-cache.tier",
        }
    }

    /// What it is called in figures and reports.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Cache => "cache",
            Kind::WriteBuffer => "write-buffer",
            Kind::LogBuffer => "log-buffer",
            Kind::UpperCache => "upper-cache",
        }
    }

    /// The section of a configuration that asks for it.
    pub fn section(self) -> &'static str {
        match self {
            Kind::Cache => "[cache]",
            Kind::WriteBuffer | Kind::LogBuffer => "[write_buffer]",
            Kind::UpperCache => "[upper_cache]",
        }
    }

    /// The tier in words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cache => "second-level cache",
            Kind::WriteBuffer => "write buffer",
            Kind::LogBuffer => "log's write buffer",
            Kind::UpperCache => "upper cache",
        }
    }
}

/// What the superblock file says of a tier that survives power cuts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierRecord {
    /// What it is for.
    pub kind: Kind,
    /// Its device.
    pub device: String,
    /// Tells its file from any other of that name.
    pub stamp: u64,
    /// How many pages it holds, or for the log how many bytes.
    pub capacity: u64,
    /// Whether it may hold what is nowhere else.
    pub in_use: bool,
}

impl TierRecord {
    /// The error of a tier that is not there although it may hold what is nowhere else.
    pub fn missing(&self, detail: &str) -> Error {
        Error::TierMissing { tier: self.kind.name(), device: self.device.clone(), detail: detail.to_owned() }
    }

    /// The error that a file is there which is another one's.
    fn foreign(&self, database: Option<u64>, is_wanted: bool) -> Error {
        let detail = foreign_tier(self.kind, &self.device, database, is_wanted);
        Error::ForeignTier { device: self.device.clone(), database, is_wanted, detail }
    }

    fn bytes(&self, page_size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.stamp.to_le_bytes());
        bytes.extend_from_slice(&self.capacity.to_le_bytes());
        bytes.extend_from_slice(&(page_size as u32).to_le_bytes());
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// What new files of tiers are marked with.
#[derive(Clone, Copy, Debug)]
pub struct TierMark {
    /// Tells them from any others of their names.
    pub stamp: u64,
    /// The identity of their database.
    pub database: u64,
    /// Whether the database is being created: then files are left of a creation that was cut off, and stand for nothing.
    pub is_new: bool,
}

/// Opens a tier's file. Returns it and its length in bytes; `None` if it is missing and not to be created.
///
/// # Errors
/// The driver's.
pub async fn open_file(
    executor: &Executor,
    device: DeviceId,
    kind: Kind,
    create: bool,
) -> Result<Option<(FileId, u64)>> {
    match executor.open(device, kind.file_name(), create).await {
        Ok(opened) => Ok(Some(opened)),
        Err(fault) if fault.kind == FaultKind::NotFound => Ok(None),
        Err(fault) => Err(Error::Input(fault)),
    }
}

/// The length of a tier's file whose slots take `slots` bytes; saturates, so that no file has the length that an impossible capacity asks for.
pub fn file_length(slots: u64) -> u64 {
    slots.saturating_add(2 * HEADER_BYTES)
}

/// Makes the file the tier that `record` describes; what it held is out of reach from then on. Its slots take `slots` bytes.
///
/// # Errors
/// The driver's.
pub async fn write_header(
    executor: &Executor,
    file: FileId,
    (record, database): (&TierRecord, u64),
    (page_size, slots): (usize, u64),
) -> Result<()> {
    let mut bytes = record.bytes(page_size);
    bytes.extend_from_slice(&database.to_le_bytes());
    bytes.extend_from_slice(&checksum(&database.to_le_bytes()).to_le_bytes());
    // The second one first: the file is the tier once the first one says so.
    for offset in [HEADER_BYTES + slots, 0] {
        let mut buffer = frame(executor)?;
        buffer.fill(0);
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let (length, access) = (HEADER_BYTES as u32, Access::Asynchronous);
        executor.perform(Op::Write { file, offset, length, buffer, durable: true, access }).await.result?;
    }
    Ok(())
}

/// Refuses to make a tier in place of a file that may be another database's: one with a sound header that names another one, or none.
///
/// # Errors
/// [`Error::ForeignTier`], or the driver's.
pub async fn check_replaceable(
    executor: &Executor,
    device: DeviceId,
    record: &TierRecord,
    (mark, known): (TierMark, &[u64]),
) -> Result<()> {
    let Some((file, length)) = open_file(executor, device, record.kind, false).await? else { return Ok(()) };
    if mark.is_new || length < HEADER_BYTES {
        return Ok(());
    }
    let op = Op::Read {
        file,
        offset: 0,
        length: HEADER_BYTES as u32,
        buffer: frame(executor)?,
        access: Access::Asynchronous,
    };
    let completion = executor.perform(op).await;
    let (Ok(_), Some(buffer)) = (completion.result, completion.buffer) else { return Ok(()) };
    let stamp = u64::from_le_bytes(*buffer[8..].first_chunk().expect("a header is longer"));
    // What is shorter than it says serves its own database as little.
    let capacity = u64::from_le_bytes(*buffer[16..].first_chunk().expect("a header is longer"));
    let page_size = u32::from_le_bytes(*buffer[24..].first_chunk().expect("a header is longer"));
    let is_whole = length >= HEADER_BYTES.saturating_add(capacity.saturating_mul(page_size.into()));
    if !is_sound(&buffer[..32]) || !is_whole || known.contains(&stamp) {
        return Ok(());
    }
    match database_of(&buffer) {
        Some(database) if database == mark.database => Ok(()),
        database => Err(record.foreign(database, false)),
    }
}

/// The identity of the database that has made a file with this header, if it says so.
fn database_of(header: &[u8]) -> Option<u64> {
    let (identity, sum) = header[32..44].split_at(8);
    let is_stated = sum == checksum(identity).to_le_bytes();
    is_stated.then(|| u64::from_le_bytes(*identity.first_chunk().expect("it is as long")))
}

/// Words for why the file, of `length` bytes, is not the tier that `record` describes, if it is not.
///
/// # Errors
/// [`Error::ForeignTier`] if it is another tier; the driver's, but for headers that cannot be read.
pub async fn read_header(
    executor: &Executor,
    (file, length): (FileId, u64),
    record: &TierRecord,
    (page_size, slots, own): (usize, u64, Option<u64>),
) -> Result<Result<(), String>> {
    let name = record.kind.file_name();
    let second_at = slots.saturating_add(HEADER_BYTES);
    let is_whole = length >= second_at;
    let expected = record.bytes(page_size);
    let mut fault = None;
    let second = Some(second_at).filter(|_| length >= file_length(slots));
    let first = Some(0).filter(|_| length >= HEADER_BYTES);
    for offset in [first, second].into_iter().flatten() {
        let (length, access) = (HEADER_BYTES as u32, Access::Asynchronous);
        let op = Op::Read { file, offset, length, buffer: frame(executor)?, access };
        let completion = executor.perform(op).await;
        match completion.result {
            Ok(_) => {
                let buffer = completion.buffer.expect("a read gives its buffer back");
                let header = &buffer[..expected.len()];
                if header != &expected[..] && is_sound(header) {
                    let other = database_of(&buffer).filter(|database| Some(*database) != own);
                    return Err(record.foreign(other, true));
                }
                if header == &expected[..] && is_whole {
                    if offset > 0 {
                        // If that fails, this one serves as before.
                        let op = Op::Write { file, offset: 0, length, buffer, durable: true, access };
                        let _tried = executor.perform(op).await;
                    }
                    return Ok(Ok(()));
                }
            }
            Err(found) if found.kind == FaultKind::Device => _ = fault.get_or_insert(found),
            Err(found) => return Err(Error::Input(found)),
        }
    }
    if !is_whole {
        return Ok(Err(format!("its file '{name}' is too short")));
    }
    let detail = fault.map_or("is damaged".to_owned(), |fault| format!("cannot be read: {fault}"));
    Ok(Err(format!("the header of its file '{name}' {detail}")))
}

/// Whether this is some tier's header.
fn is_sound(header: &[u8]) -> bool {
    let (bytes, sum) = header.split_at(header.len() - 4);
    bytes.starts_with(MAGIC) && sum == checksum(bytes).to_le_bytes()
}

fn frame(executor: &Executor) -> Result<Frame> {
    Ok(executor.frame(HEADER_BYTES as usize)?)
}

/// Words for a tier's file that is another one's.
fn foreign_tier(tier: Kind, device: &str, database: Option<u64>, is_wanted: bool) -> String {
    let (file, name, section) = (tier.file_name(), tier.name(), tier.section());
    let whose = match database {
        Some(database) => format!("the {name} of another database, whose identity is {database:016x}"),
        None if is_wanted => format!("not this database's {name} but one of another time, or of another database"),
        None => format!("a {name} of which it is not known whose it is"),
    };
    let apart = format!("give this database a directory of its own (a device with another 'path' in {section})");
    if !is_wanted {
        return format!(
            "the file '{file}' in the directory of device '{device}' is {whose}, so none is made in its place: {apart}, \
             or remove the file if no database needs it"
        );
    }
    let without = match tier {
        Kind::Cache | Kind::UpperCache => "the log has all that it may have had alone, so no commit is lost",
        _ => "without it, restore the database from a backup",
    };
    format!(
        "the file '{file}' in the directory of device '{device}' is {whose}: put the right file there, or {apart}, or, if no \
         database needs it, remove it and open again: {without}"
    )
}
