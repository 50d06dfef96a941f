//! What an opening has found in the log, read once more while the log goes on.

use super::read_ahead::{Chunk, ReadAhead, Sources};
use super::{Log, LogScan};
use crate::Result;
use base::Lsn;
use driver::Frame;
use executor::Executor;
use std::rc::Rc;

/// How many bytes are read at once.
const READ_SIZE: u64 = 1 << 20;

/// The log as an opening has found it, from where it is kept on.
pub(crate) struct KeptLog(LogScan);

impl KeptLog {
    /// Reads the pages that have what is between two positions from the log that goes on behind it, which knows which of its devices
    /// answer.
    pub fn scan(&self, log: &Rc<Log>, (from, to): (Lsn, Lsn)) -> LogScan {
        let page_size = self.0.page_size();
        let (from, limit) = (from.0 - from.0 % page_size, to.0.next_multiple_of(page_size));
        let length = READ_SIZE.next_multiple_of(page_size).min(limit - from) as usize;
        let reads =
            LogReads { log: Rc::clone(log), page_size: page_size as usize, length, next: from, limit, spare: None };
        self.0.again_by(ScanSource::Log(reads), Lsn(from))
    }
}

impl LogScan {
    /// What of the log is kept, to be read once more while it goes on. To be called at the log's end.
    pub(crate) fn kept(&self) -> KeptLog {
        let oldest = Lsn(self.oldest());
        KeptLog(self.again(&self.lasting(), (oldest, oldest)))
    }
}

/// From where a scan has its pages.
pub(super) enum ScanSource {
    /// The files.
    Files(ReadAhead),
    /// A log that goes on.
    Log(LogReads),
}

/// Pages that a log has written, one piece after the other.
pub(super) struct LogReads {
    log: Rc<Log>,
    page_size: usize,
    length: usize,
    next: u64,
    limit: u64,
    spare: Option<Frame>,
}

impl ScanSource {
    /// The next chunk; `None` at the limit.
    ///
    /// # Errors
    /// Those of [`ReadAhead::next`], or of [`Log::read_pages`].
    pub async fn next(&mut self, executor: &Executor) -> Result<Option<Chunk>> {
        let reads = match self {
            ScanSource::Files(reads) => return reads.next().await,
            ScanSource::Log(reads) if reads.next == reads.limit => return Ok(None),
            ScanSource::Log(reads) => reads,
        };
        let frame = reads.spare.take().map_or_else(|| executor.frame(reads.length), Ok)?;
        let position = reads.next;
        let (frame, length) = reads.log.read_pages((Lsn(position), Lsn(reads.limit)), frame).await?;
        reads.next += length as u64;
        Ok(Some(Chunk::read(frame, position, length, reads.page_size)))
    }

    /// Gives a chunk's memory back for the next reads.
    pub fn recycle(&mut self, chunk: Chunk) {
        match self {
            ScanSource::Files(reads) => reads.recycle(chunk),
            ScanSource::Log(reads) => reads.spare = Some(chunk.frame),
        }
    }

    /// What is read, and what is to have it.
    ///
    /// # Panics
    /// If a log is read that goes on: only an opening gives files what they lack.
    pub fn sources(&self) -> &Sources {
        match self {
            ScanSource::Files(reads) => reads.sources(),
            ScanSource::Log(_) => unreachable!("only an opening gives the log's files what they lack"),
        }
    }

    /// How many pages were written where a copy lacked them.
    pub fn repaired(&self) -> u64 {
        match self {
            ScanSource::Files(reads) => reads.repaired(),
            ScanSource::Log(_) => 0,
        }
    }
}
