//! A file whose bytes are kept twice: regions of 64 KiB, each followed by its mirror. So either copy of a region may be
//! torn, lost or unreadable, and the other one serves.

use crate::{Error, Result};
use base::canary::{self, Canary};
use driver::{Access, Fault, FileId, Frame, Op};
use executor::Executor;

/// The size of a region in bytes.
pub(super) const REGION: u64 = 64 << 10;
/// What every device can read and write at once, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// Both copies.
pub(super) const COPIES: [u64; 2] = [0, 1];

/// The file.
pub(super) struct Mirror {
    file: FileId,
    /// Its length in bytes, both copies counted.
    length: u64,
    frame: Option<Frame>,
}

/// Bytes of one copy; zeros where a block could not be read.
pub(super) struct MirrorCopy {
    pub(super) bytes: Vec<u8>,
    /// Why the first such block could not.
    pub(super) fault: Option<Fault>,
}

/// Where byte `at` lies in a copy.
fn place(copy: u64, at: u64) -> u64 {
    (at / REGION * 2 + copy) * REGION + at % REGION
}

/// What lies from `from` to `to`, cut where regions end.
fn pieces(from: u64, to: u64, size: u64) -> impl Iterator<Item = (u64, usize)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let end = to.min((at / size + 1) * size);
        let piece = (at < end).then(|| (at, (end - at) as usize));
        at = end;
        piece
    })
}

impl Mirror {
    /// The open file, `length` bytes long.
    pub(super) fn new(executor: &Executor, file: FileId, length: u64) -> Result<Mirror> {
        Ok(Mirror { file, length, frame: Some(executor.frame(REGION as usize)?) })
    }

    /// How many bytes each copy has room for.
    pub(super) fn capacity(&self) -> u64 {
        self.length / (2 * REGION) * REGION
    }

    /// Makes room for `capacity` bytes.
    ///
    /// # Errors
    /// The driver's; the file keeps its length.
    pub(super) async fn reserve(&mut self, executor: &Executor, capacity: u64) -> Result<()> {
        if capacity > self.capacity() {
            if capacity > 4 * REGION && canary::is_planted(Canary::FixedCatalog) {
                return Err(Error::Setting("the catalog is full".into()));
            }
            let length = capacity.max(self.capacity() / 8 * 9).next_multiple_of(REGION) * 2;
            executor.perform(Op::Resize { file: self.file, length, prewrite: true }).await.result?;
            self.length = length;
        }
        Ok(())
    }

    /// Reads a copy from one byte to another, multiples of a block.
    pub(super) async fn read(&mut self, executor: &Executor, copy: u64, (from, to): (u64, u64)) -> MirrorCopy {
        let mut read = MirrorCopy { bytes: vec![0; (to - from) as usize], fault: None };
        for (at, length) in pieces(from, to, REGION) {
            if self.read_piece(executor, copy, (at, length), (&mut read, from)).await.is_ok() {
                continue;
            }
            for (at, length) in pieces(at, at + length as u64, BLOCK) {
                if let Err(fault) = self.read_piece(executor, copy, (at, length), (&mut read, from)).await {
                    read.fault.get_or_insert(fault);
                }
            }
        }
        read
    }

    async fn read_piece(
        &mut self,
        executor: &Executor,
        copy: u64,
        (at, length): (u64, usize),
        (read, from): (&mut MirrorCopy, u64),
    ) -> Result<(), Fault> {
        let buffer = self.frame.take().expect("the frame comes back from each transfer");
        let access = Access::Asynchronous;
        let op = Op::Read { file: self.file, offset: place(copy, at), length: length as u32, buffer, access };
        let completion = executor.perform(op).await;
        let buffer = self.frame.insert(completion.buffer.expect("a read gives its buffer back"));
        completion.result?;
        let to = (at - from) as usize;
        read.bytes[to..to + length].copy_from_slice(&buffer[..length]);
        Ok(())
    }

    /// Writes to one copy and makes that durable: whole blocks at a multiple of a block.
    ///
    /// # Errors
    /// The driver's; what these blocks hold then is unknown.
    pub(super) async fn write(&mut self, executor: &Executor, copy: u64, at: u64, bytes: &[u8]) -> Result<()> {
        for (piece, length) in pieces(at, at + bytes.len() as u64, REGION) {
            let mut buffer = self.frame.take().expect("the frame comes back from each transfer");
            let from = (piece - at) as usize;
            buffer[..length].copy_from_slice(&bytes[from..from + length]);
            let (offset, length, access) = (place(copy, piece), length as u32, Access::Asynchronous);
            let op = Op::Write { file: self.file, offset, length, buffer, durable: true, access };
            let completion = executor.perform(op).await;
            self.frame = completion.buffer;
            completion.result.map_err(Error::Input)?;
        }
        Ok(())
    }

    /// Makes durable what a program that was killed has written.
    ///
    /// # Errors
    /// The driver's.
    pub(super) async fn sync(&self, executor: &Executor) -> Result<()> {
        executor.perform(Op::Sync { file: self.file }).await.result?;
        Ok(())
    }
}
