//! Rows put aside one by one, and read again in the same order.

use super::cluster::Packer;
use super::frames::Frames;
use super::reads::Reads;
use super::row::{self, Row, Rows};
use super::run::{Run, RunWriter};
use super::space::Space;
use super::stream::{Advance, Stream};
use crate::Result;

/// A run that rows are added to. It holds one frame of those that it is given.
pub(super) struct Spool {
    writer: RunWriter,
    packer: Packer,
    frames: Frames,
    rows: u64,
    bytes: u64,
}

impl Spool {
    /// Written from these frames, of which it needs one at a time.
    pub fn new(space: &Space, frames: &Frames) -> Spool {
        let writer = RunWriter::new(space, frames, 0);
        let packer = Packer::new(writer.number());
        Spool { writer, packer, frames: frames.clone(), rows: 0, bytes: 0 }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`crate::Error::TempFull`], or the driver's.
    pub async fn add(&mut self, row: Row<'_>) -> Result<()> {
        let (head, length) = row::head(row);
        let total = length + row.key.len() + row.value.len();
        (self.rows, self.bytes) = (self.rows + 1, self.bytes + total as u64);
        self.writer.note_row(total);
        let mut starts = true;
        for part in [&head[..length], row.key, row.value] {
            let mut rest = part;
            while !rest.is_empty() {
                let put = self.packer.put(rest, starts);
                starts &= put == 0;
                rest = &rest[put..];
                if !rest.is_empty() {
                    self.turn_over().await?;
                }
            }
        }
        Ok(())
    }

    /// Goes on to the next cluster.
    async fn turn_over(&mut self) -> Result<()> {
        if let Some(full) = self.packer.take() {
            self.writer.write(full).await?;
        }
        let frame = self.frames.take().await?;
        self.packer.give(frame);
        Ok(())
    }

    /// The run. It can be read when [`Frames::landed`] says so.
    ///
    /// # Errors
    /// As [`Spool::add`].
    pub async fn finish(mut self) -> Result<Spooled> {
        if let Some(last) = self.packer.take() {
            self.writer.write(last).await?;
        }
        if let Some(frame) = self.packer.give_back() {
            self.frames.put(frame);
        }
        Ok(Spooled { run: self.writer.finish(), rows: self.rows, bytes: self.bytes })
    }
}

/// Rows that were put aside. Clones are the same rows; the last gives their place back.
#[derive(Clone)]
pub(super) struct Spooled {
    pub run: Run,
    pub rows: u64,
    /// Bytes of encoded rows.
    pub bytes: u64,
}

/// Rows on their way back.
pub(super) struct Reader {
    reads: Reads,
    stream: Stream,
}

impl Reader {
    /// Reads rows with `frames` frames, at least one.
    ///
    /// # Errors
    /// The driver's, if there is no memory.
    pub fn new(space: &Space, rows: Spooled, frames: usize) -> Result<Reader> {
        let stream = rows.run.stream();
        Ok(Reader { reads: Reads::new(space, vec![rows.run], frames)?, stream })
    }
}

impl Rows for Reader {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        loop {
            match self.stream.advance().map_err(|damage| self.reads.damaged(0, damage))? {
                Advance::Row => return Ok(Some(self.stream.row())),
                Advance::End => return Ok(None),
                Advance::Lacking => {}
            }
            for frame in self.stream.spent().drain(..) {
                self.reads.take_back(0, frame);
            }
            self.reads.start().await;
            let mut arrived = false;
            self.reads.deliver(|_, frame| {
                self.stream.supply(frame);
                arrived = true;
            });
            self.reads.check()?;
            if !arrived {
                self.reads.changed().await;
            }
        }
    }
}
