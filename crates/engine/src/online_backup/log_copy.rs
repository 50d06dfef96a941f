//! Copying the log beside everything else, so that it can be given up behind the backup.

use super::LOG_FILE;
use super::run::BackupRun;
use super::target::PlaceFile;
use crate::error::BackupError;
use crate::log::{Log, LogHold};
use crate::{Error, Result};
use base::Lsn;
use base::time::MILLISECOND_NS;
use executor::JoinHandle;
use std::cell::Cell;
use std::rc::Rc;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// How often new log is looked for, in nanoseconds.
const LOOK_NS: u64 = 5 * MILLISECOND_NS;

/// The copy of the log under way.
pub(super) struct LogCopy {
    /// The position of its first page.
    pub from: Lsn,
    until: Rc<Cell<Option<Lsn>>>,
    task: JoinHandle<Result<()>>,
}

impl LogCopy {
    /// Begins to copy the log, from the page on that has `from`.
    pub async fn begin(run: &Rc<BackupRun>, hold: LogHold, from: Lsn) -> Result<LogCopy> {
        let this = Rc::clone(run);
        // What is left of a backup that is given up is removed when this has come to its end.
        let file = run.engine.core.executor.spawn(async move { this.target.create(LOG_FILE).await }).join().await?;
        let page_size = run.engine.core.log.settings().page_size as u64;
        let from = Lsn((from.0 - from.0 % page_size).max(page_size));
        hold.move_to(from);
        let until = Rc::new(Cell::new(None));
        let (this, end) = (Rc::clone(run), Rc::clone(&until));
        let task = run.engine.core.executor.spawn(async move { copy(&this, &hold, (file, from), &end).await });
        Ok(LogCopy { from, until, task })
    }

    /// Why it has failed, if it has, while the rest of the backup goes on.
    pub fn has_failed(&self) -> bool {
        self.task.is_finished()
    }

    /// It ends with the page of `end`: to be said in the step in which the log ends there, before it has the next page.
    pub fn end_at(&self, end: Lsn) {
        self.until.set(Some(end));
    }

    /// Waits until all log up to its end is copied and durable, or the backup is over.
    pub async fn join(self) -> Result<()> {
        self.task.join().await
    }
}

async fn copy(
    run: &BackupRun,
    hold: &LogHold,
    (file, from): (PlaceFile, Lsn),
    until: &Cell<Option<Lsn>>,
) -> Result<()> {
    let log: &Log = &run.engine.core.log;
    let mut frame = Some(run.engine.core.executor.frame(PIECE.max(log.settings().page_size))?);
    let mut next = from;
    loop {
        if run.is_over.get() {
            return Ok(());
        }
        if let Some(end) = until.get().filter(|end| next >= *end) {
            debug_assert!(next.0 - end.0 < log.settings().page_size as u64, "the copy ends with the page of the end");
            return run.target.sync(&file).await;
        }
        let overtaken = || Error::from(BackupError::Overtaken { place: run.target.name.clone(), position: next });
        let limit = until.get().map_or(Lsn::MAX, |end| log.page_end(end));
        let to = log.copyable().min(limit);
        if to <= next {
            if let Some(error) = log.failure() {
                return Err(error);
            }
            let hurry = if log.is_full() { 10 } else { 1 };
            run.engine.core.executor.sleep_ns(LOOK_NS / hurry).await;
            continue;
        }
        let read = log.read_pages((next, to), frame.take().expect("it comes back")).await;
        if hold.is_broken() {
            return Err(overtaken());
        }
        let (bytes, length) = read?;
        frame = Some(run.target.write(&file, (next.0 - from.0, length), bytes).await?);
        next = Lsn(next.0 + length as u64);
        hold.move_to(next);
    }
}
