//! A tier's file: its header, and what the superblock file says of it.
//!
//! ```text
//!  0 magic "ENTRTIER"   8 stamp u64   16 capacity u64   24 page size u32   28 CRC-32C of the bytes before u32
//! 4096 slots, then the header once more
//! ```
//!
//! The second header is for where the first one cannot be read. Files of earlier releases have none.

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
    record: &TierRecord,
    (page_size, slots): (usize, u64),
) -> Result<()> {
    let bytes = record.bytes(page_size);
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

/// Words for why the file, of `length` bytes, is not the tier that `record` describes, if it is not.
///
/// # Errors
/// [`Error::TierMissing`] if it is another tier; the driver's, but for headers that cannot be read.
pub async fn read_header(
    executor: &Executor,
    (file, length): (FileId, u64),
    record: &TierRecord,
    (page_size, slots): (usize, u64),
) -> Result<Result<(), String>> {
    let name = record.kind.file_name();
    let other = || {
        Err(record.missing(&format!(
            "its file '{name}' is another tier's, of another database or of an earlier time of this one: put the right one in \
             its place, or take this one away"
        )))
    };
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
                    return other();
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
