//! The checkpoint server of the memory-resident sets: sweeps over their segments that bring one copy of the backup up to
//! date (Garcia-Molina and Salem, System M, 1988, sections 2.3 and 3.1).
//!
//! FUZZY: segments are imaged one after the other while transactions run. Each image is a committed state, as uncommitted
//! changes are left out of it, but of different moments; so what was committed since the sweep began is repeated from the
//! log. A copy counts when it is durable, and the log up to the last image with it, and the home file names it.

use crate::Result;
use crate::backup::{Current, DEPTH};
use crate::canary::{self, Canary};
use crate::database::Database;
use crate::statistics::add;
use base::PartitionId;
use driver::Frame;
use executor::JoinHandle;
use std::collections::VecDeque;

/// A segment whose image is being written.
struct Written {
    segment: u32,
    write: JoinHandle<(Option<Frame>, Result<()>)>,
}

/// A sweep over one set.
struct Sweep<'a> {
    database: &'a Database,
    partition: PartitionId,
    copy: usize,
    under_way: VecDeque<Written>,
    spare: Vec<Frame>,
}

impl Database {
    /// Brings the older copy of the sets' backup up to date. Returns what the home file is to say of it; `None` if there are
    /// no sets.
    ///
    /// # Errors
    /// The driver's or the log's. The other copy stays valid.
    pub(super) async fn sweep(&self) -> Result<Option<Current>> {
        let Some(current) = self.0.contents.borrow().backup.clone() else { return Ok(None) };
        let (copy, begin) = (1 - usize::from(current.copy), self.0.log.end().0);
        let mut segments = Vec::new();
        for partition in self.partitions().iter().filter(|partition| partition.set_settings().is_some()) {
            let (partition, count) = (partition.id(), self.0.sets.borrow().segments(partition.id()));
            let (under_way, spare) = (VecDeque::new(), Vec::new());
            Sweep { database: self, partition, copy, under_way, spare }.pass(count).await?;
            segments.push((partition.0, count));
        }
        if !canary::is_planted(Canary::UnsyncedBackup) {
            self.0.backup.sync(&self.0.executor, copy).await?;
        }
        // The images hold what was committed up to now; the log must not end before that.
        self.0.log.flush(self.0.log.end()).await?;
        add(&self.0.statistics.sweeps, 1);
        Ok(Some(Current { copy: copy as u8, begin, segments }))
    }
}

impl Sweep<'_> {
    /// Writes the images of the dirty ones among the first `count` segments. All writes have ended when this returns.
    async fn pass(&mut self, count: u32) -> Result<()> {
        let inner = &self.database.0;
        let size = inner.sets.borrow().segment_size(self.partition);
        let mut outcome = inner.backup.reserve(&inner.executor, (self.partition, self.copy), (count, size)).await;
        for segment in 0..count {
            if outcome.is_ok() && self.database.0.sets.borrow().is_dirty(self.partition, segment, self.copy) {
                outcome = self.begin(segment);
            }
            if self.under_way.len() >= DEPTH {
                outcome = outcome.and(self.end_first().await);
            }
        }
        while !self.under_way.is_empty() {
            let ended = self.end_first().await;
            outcome = outcome.and(ended);
        }
        outcome
    }

    /// Takes a segment's image and starts to write it.
    fn begin(&mut self, segment: u32) -> Result<()> {
        let inner = &self.database.0;
        let mut sets = inner.sets.borrow_mut();
        let mut image = match self.spare.pop() {
            Some(frame) => frame,
            None => {
                let size = sets.segment_size(self.partition);
                inner.executor.frames(1, size)?.pop().expect("one frame was asked for")
            }
        };
        sets.image(self.partition, segment, &mut image);
        sets.clear_dirty(self.partition, segment, self.copy);
        let (database, place) = (self.database.clone(), (self.partition, self.copy));
        let write = inner
            .executor
            .spawn(async move { database.0.backup.write(&database.0.executor, place, segment, image).await });
        self.under_way.push_back(Written { segment, write });
        Ok(())
    }

    async fn end_first(&mut self) -> Result<()> {
        let Written { segment, write } = self.under_way.pop_front().expect("a write is under way");
        let (frame, result) = write.join().await;
        self.spare.extend(frame);
        match &result {
            Ok(()) => add(&self.database.0.statistics.segments_written, 1),
            Err(_) => self.database.0.sets.borrow_mut().mark_dirty(self.partition, segment, self.copy),
        }
        result
    }
}
