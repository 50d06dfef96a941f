//! The home file: what a database is, what partitions it has, where recovery begins. Two copies, written one after the
//! other: a power cut tears at most one of them, and later decay of one leaves the other.
//!
//! ```text
//! each copy, at 0 and at 64 KiB:
//!  0 magic "ENTRESOL"   8 format u32   12 length u32   16 CRC-32C of the rest u32   20 zero u32   24 generation u64
//! 32 contents (postcard), `length` bytes
//! ```

use crate::backup::Current;
use crate::catalog::{Partition, Schema};
use crate::checksum::checksum;
use crate::hierarchy::Record;
use crate::log::Measured;
use crate::{Error, Result};
use base::Lsn;
use driver::{Access, DeviceId, FaultKind, FileId, Frame, Op};
use executor::Executor;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"ENTRESOL";
/// The format that this release writes and the newest that it reads.
pub const FORMAT: u32 = 6;
/// The home file's name: a directory that holds it is a database.
pub const HOME_FILE: &str = "entresol.home";
const COPY_SIZE: usize = 64 << 10;
/// What every device can read at once, in bytes.
const BLOCK: u64 = 4096;
const CONTENTS: usize = 32;

/// The contents of the home file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
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
    /// The partitions, at the positions of their numbers.
    pub partitions: Vec<Partition>,
    /// The tiers that survive power cuts.
    pub tiers: Vec<Record>,
    /// The backup of the memory-resident sets, once there are any.
    pub backup: Option<Current>,
    /// Numbers of partitions and what their records consist of, as in the file: [`Partition::schema`] says the same.
    pub schemas: Vec<(u16, Schema)>,
    /// What was measured of the log's device when the database was created, if anything was.
    pub log_measured: Option<Measured>,
    /// The log's second device, if it has one.
    pub second_log: Option<SecondLog>,
}

/// What the home file says of a log on two devices.
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

impl Contents {
    /// Where recovery begins to read the log: where pages or sets need it, whichever comes first.
    pub fn scan_start(&self) -> Lsn {
        let sets = self.backup.as_ref().map_or(u64::MAX, |backup| backup.begin);
        Lsn(self.redo_start.min(sets))
    }

    /// Where the recovery of pages begins.
    pub fn redo_start(&self) -> Lsn {
        Lsn(self.redo_start)
    }
}

/// The open home file.
pub struct Home {
    file: FileId,
    generation: u64,
    frame: Option<Frame>,
}

impl Home {
    /// Creates the file with its first contents.
    ///
    /// # Errors
    /// The driver's.
    pub async fn create(executor: &Executor, device: DeviceId, contents: &Contents) -> Result<Home> {
        let (file, _) = executor.open(device, HOME_FILE, true).await?;
        executor.perform(Op::Resize { file, length: 2 * COPY_SIZE as u64, prewrite: true }).await.result?;
        let frame = executor.frames(1, COPY_SIZE)?.pop();
        let mut home = Home { file, generation: 0, frame };
        home.write(executor, contents).await?;
        Ok(home)
    }

    /// Opens the file and reads its latest contents. `path` names the database in errors.
    ///
    /// # Errors
    /// [`Error::NotADatabase`] if there is none or both copies are damaged, [`Error::Unfinished`] if it was never written,
    /// [`Error::NewerFormat`], or the driver's.
    pub async fn open(executor: &Executor, device: DeviceId, path: &str) -> Result<(Home, Contents)> {
        let foreign = |detail: &str| Error::NotADatabase { path: path.into(), detail: detail.into() };
        let (file, length) = match executor.open(device, HOME_FILE, false).await {
            Ok(opened) => opened,
            Err(fault) if fault.kind == FaultKind::NotFound => {
                return Err(foreign(&format!("it holds no file '{}'", HOME_FILE)));
            }
            Err(fault) => return Err(Error::Input(fault)),
        };
        let mut frame = executor.frames(1, COPY_SIZE)?.pop();
        if length < 2 * COPY_SIZE as u64 {
            let front = (length.min(COPY_SIZE as u64) / BLOCK * BLOCK) as u32;
            let bytes = read_copy(executor, file, (0, front), &mut frame).await?;
            let short = || foreign(&format!("its file '{}' is too short", HOME_FILE));
            return Err(if length % BLOCK == 0 && is_blank(bytes) {
                Error::Unfinished { path: path.into() }
            } else {
                short()
            });
        }
        // A program that was killed may have left a copy that can be read and is not durable.
        executor.perform(Op::Sync { file }).await.result?;
        let mut best: Option<(u64, Contents)> = None;
        let mut flaw = None;
        let mut unfinished = false;
        for copy in 0..2_u64 {
            let place = (copy * COPY_SIZE as u64, COPY_SIZE as u32);
            let bytes = read_copy(executor, file, place, &mut frame).await?;
            // The first write of all begins with the other copy, and torn it may show anything there.
            unfinished |= copy == 0 && is_blank(bytes);
            match decode(bytes, path) {
                Ok((generation, contents)) => {
                    if best.as_ref().is_none_or(|(other, _)| *other < generation) {
                        best = Some((generation, contents));
                    }
                }
                // A newer release leaves no copy of an older format behind.
                Err(error @ Error::NewerFormat { .. }) => flaw = Some(error),
                Err(error) => flaw = flaw.or(Some(error)),
            }
        }
        match (best, flaw) {
            (Some((generation, contents)), _) => Ok((Home { file, generation, frame }, contents)),
            (None, _) if unfinished => Err(Error::Unfinished { path: path.into() }),
            (None, flaw) => Err(flaw.unwrap_or_else(|| foreign("it is empty"))),
        }
    }

    /// How often it was written.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// States which tiers there are, unless the file says so already.
    ///
    /// # Errors
    /// As [`Home::write`].
    pub async fn note_tiers(&mut self, executor: &Executor, contents: &mut Contents, tiers: Vec<Record>) -> Result<()> {
        if tiers == contents.tiers {
            return Ok(());
        }
        contents.tiers = tiers;
        self.write(executor, contents).await
    }

    /// States which second device the log has, unless the file says so already.
    ///
    /// # Errors
    /// As [`Home::write`].
    pub async fn note_second_log(
        &mut self,
        executor: &Executor,
        contents: &mut Contents,
        second: Option<SecondLog>,
    ) -> Result<()> {
        if second == contents.second_log {
            return Ok(());
        }
        contents.second_log = second;
        self.write(executor, contents).await
    }

    /// Replaces the older copy, makes it durable, and then does the same with the other one.
    ///
    /// # Errors
    /// The driver's (one copy at least is whole), or [`Error::Setting`] if there are more partitions than a copy holds.
    pub async fn write(&mut self, executor: &Executor, contents: &Contents) -> Result<()> {
        let body = encode(contents);
        if body.len() > COPY_SIZE - CONTENTS {
            return Err(Error::Setting("the catalog is full; use fewer partitions or shorter names".into()));
        }
        let generation = self.generation + 1;
        let mut buffer = self.frame.take().ok_or_else(|| Error::Setting("the home file is being written".into()))?;
        buffer.fill(0);
        buffer[..8].copy_from_slice(MAGIC);
        buffer[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        buffer[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        buffer[24..32].copy_from_slice(&generation.to_le_bytes());
        buffer[CONTENTS..CONTENTS + body.len()].copy_from_slice(&body);
        let sum = checksum(&buffer[24..CONTENTS + body.len()]);
        buffer[16..20].copy_from_slice(&sum.to_le_bytes());
        for copy in [generation % 2, 1 - generation % 2] {
            let (offset, length) = (copy * COPY_SIZE as u64, COPY_SIZE as u32);
            let access = Access::Asynchronous;
            let op = Op::Write { file: self.file, offset, length, buffer, durable: true, access };
            let completion = executor.perform(op).await;
            buffer = completion.buffer.expect("a write gives its buffer back");
            if let Err(fault) = completion.result {
                self.frame = Some(buffer);
                return Err(Error::Input(fault));
            }
            self.generation = generation;
        }
        self.frame = Some(buffer);
        Ok(())
    }
}

/// Reads so many bytes from an offset into the frame.
async fn read_copy<'a>(
    executor: &Executor,
    file: FileId,
    (offset, length): (u64, u32),
    frame: &'a mut Option<Frame>,
) -> Result<&'a [u8]> {
    let buffer = frame.take().expect("the frame comes back from each read");
    let op = Op::Read { file, offset, length, buffer, access: Access::Asynchronous };
    let completion = executor.perform(op).await;
    let buffer = frame.insert(completion.buffer.expect("a read gives its buffer back"));
    completion.result?;
    Ok(&buffer[..length as usize])
}

fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn encode(contents: &Contents) -> Vec<u8> {
    let schema = |partition: &Partition| Some((partition.id, partition.schema.clone()?));
    let schemas = contents.partitions.iter().filter_map(schema).collect();
    let stored = Contents { schemas, ..contents.clone() };
    postcard::to_stdvec(&stored).expect("plain contents can always be stored")
}

fn decode(copy: &[u8], path: &str) -> Result<(u64, Contents)> {
    let foreign = |detail: &str| Error::NotADatabase { path: path.into(), detail: detail.into() };
    let number = |at: usize| u32::from_le_bytes(copy[at..at + 4].try_into().expect("four bytes"));
    if &copy[..8] != MAGIC {
        return Err(foreign(&format!("its file '{}' does not begin with ENTRESOL", HOME_FILE)));
    }
    if number(8) > FORMAT {
        return Err(Error::NewerFormat { path: path.into(), found: number(8), supported: FORMAT });
    }
    let damaged = || foreign(&format!("both copies in '{}' are damaged; restore it from a backup", HOME_FILE));
    let length = number(12) as usize;
    if length > copy.len() - CONTENTS || checksum(&copy[24..CONTENTS + length]) != number(16) {
        return Err(damaged());
    }
    let generation = u64::from_le_bytes(copy[24..32].try_into().expect("eight bytes"));
    let mut body = copy[CONTENTS..CONTENTS + length].to_vec();
    // The first format knew no tiers, the second no sets, the third no schemas, the fourth no
    // measurement, the fifth no second log: an empty list or nothing.
    body.extend((number(8)..FORMAT).map(|_| 0));
    let mut contents: Contents = postcard::from_bytes(&body).map_err(|_| damaged())?;
    for (partition, schema) in std::mem::take(&mut contents.schemas) {
        contents.partitions.get_mut(usize::from(partition)).ok_or_else(damaged)?.schema = Some(schema);
    }
    Ok((generation, contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents {
            page_size: 8192,
            log_page_size: 4096,
            log_device: "flash".into(),
            redo_start: 4711,
            log_durable: 5000,
            log_epoch: 3,
            next_transaction: 17,
            partitions: Vec::new(),
            tiers: Vec::new(),
            backup: None,
            schemas: Vec::new(),
            log_measured: None,
            second_log: None,
        }
    }

    /// A copy of the home file with these contents in this format.
    fn copy(format: u32, body: &[u8]) -> Vec<u8> {
        let mut copy = vec![0; COPY_SIZE];
        copy[..8].copy_from_slice(MAGIC);
        copy[8..12].copy_from_slice(&format.to_le_bytes());
        copy[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
        copy[24..32].copy_from_slice(&9_u64.to_le_bytes());
        copy[CONTENTS..CONTENTS + body.len()].copy_from_slice(body);
        let sum = checksum(&copy[24..CONTENTS + body.len()]);
        copy[16..20].copy_from_slice(&sum.to_le_bytes());
        copy
    }

    #[test]
    fn earlier_formats_are_read_and_later_ones_named() {
        let body = encode(&contents());
        for format in 1..=FORMAT {
            // Each format knew one thing more than the one before, and all these contents lack them.
            let known = &body[..body.len() - (FORMAT - format) as usize];
            assert_eq!(decode(&copy(format, known), "old"), Ok((9, contents())), "format {format}");
        }
        let newer = decode(&copy(FORMAT + 1, &body), "new").expect_err("not yet known");
        assert!(matches!(newer, Error::NewerFormat { found, supported: FORMAT, .. } if found == FORMAT + 1), "{newer}");
        let measured =
            crate::log::Measured { sync_write_ns: 100, write_then_sync_ns: 130, sync_faster: 1, together_ns: 200 };
        let found = Contents { log_measured: Some(measured), ..contents() };
        assert_eq!(decode(&copy(FORMAT, &encode(&found)), "new"), Ok((9, found)));
    }
}
