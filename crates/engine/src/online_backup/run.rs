//! A backup that is being taken: what its parts share.

use super::chunk::{PieceHead, PieceKind};
use super::manifest::BLOCK;
use super::pace::Pace;
use super::pages::sealed;
use super::target::{BackupPlace, PlaceFile};
use super::{BackupProgress, DATA_FILE};
use crate::Result;
use crate::engine::Engine;
use base::{Lsn, PartitionId};
use driver::Frame;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The pages that a backup need not copy: those of these partitions that were not changed since a position of the log.
#[derive(Clone, Default)]
pub(super) struct KnownPages {
    pub unchanged_before: Lsn,
    pub partitions: BTreeSet<u16>,
}

/// A backup that is being taken.
pub(super) struct BackupRun {
    pub engine: Rc<Engine>,
    pub target: BackupPlace,
    /// The file of pages and segments.
    data: PlaceFile,
    data_end: Cell<u64>,
    pub pace: Pace,
    /// What it builds on.
    known: KnownPages,
    /// Pages copied so far.
    pub pages: Cell<u64>,
    /// Bytes that there are to read, about.
    pub total: Cell<u64>,
    /// Whether it has failed, or its caller has gone.
    pub is_over: Cell<bool>,
    progress: RefCell<Box<dyn FnMut(BackupProgress)>>,
}

impl BackupRun {
    pub async fn begin_run(
        engine: &Rc<Engine>,
        target: BackupPlace,
        (pace, known): (Pace, KnownPages),
        progress: Box<dyn FnMut(BackupProgress)>,
    ) -> Result<Rc<BackupRun>> {
        let data = target.create(DATA_FILE).await?;
        Ok(Rc::new(BackupRun {
            engine: Rc::clone(engine),
            target,
            data,
            data_end: Cell::new(0),
            pace,
            known,
            pages: Cell::new(0),
            total: Cell::new(0),
            is_over: Cell::new(false),
            progress: RefCell::new(progress),
        }))
    }

    /// Only those of a partition's pages are copied that were changed since then.
    pub fn pages_since(&self, partition: PartitionId) -> Lsn {
        let is_known = self.known.partitions.contains(&partition.0);
        if is_known { self.known.unchanged_before } else { Lsn::ZERO }
    }

    /// How long the file of pages and segments is by now, in bytes.
    pub fn data_bytes(&self) -> u64 {
        self.data_end.get()
    }

    /// Nothing before this counts of the partition; nor of what an increment builds on, of a set.
    pub async fn begin(&self, partition: PartitionId) -> Result<()> {
        let piece = self.engine.core.executor.frame(BLOCK)?;
        self.append(piece, PieceHead { partition, kind: PieceKind::Begin, length: 0 }).await
    }

    /// Writes a piece whose contents stand behind its first block.
    pub async fn append(&self, piece: Frame, head: PieceHead) -> Result<()> {
        let at = self.data_end.replace(self.data_end.get() + head.total() as u64);
        let (piece, length) = sealed(self, piece, head).await?;
        self.target.write(&self.data, (at, length), piece).await.map(drop)
    }

    /// Makes the file of pages and segments durable.
    pub async fn sync(&self) -> Result<()> {
        self.target.sync(&self.data).await
    }

    /// Waits until `bytes` more may be read: not while transactions wait for room in the log, which the backup holds.
    pub async fn wait(&self, bytes: u64) {
        let hurry = self.engine.core.log.is_full();
        self.pace.wait(&self.engine.core.executor, bytes, hurry).await;
    }

    /// Says how far the backup is.
    pub fn report(&self) {
        let (done, total) = (self.pace.bytes_read(), self.total.get());
        (self.progress.borrow_mut())(BackupProgress { done, total: total.max(done) });
    }
}
