//! Writing the archive while the database is open.

use super::super::manifest::BLOCK;
use super::super::target::{BackupPlace, PlaceFile};
use super::segment::{PageSums, SegmentHead, parse_name, segment_name};
use crate::checkpoint::state_archive;
use crate::engine::Engine;
use crate::error::BackupError;
use crate::log::{Log, LogHold, LogScan, Settings};
use crate::statistics::Event;
use crate::superblock::ArchivedLog;
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::units::format_duration_ns;
use base::{Instant, Lsn};
use driver::{Fault, FaultKind};
use executor::{Executor, Turn};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How often it is looked whether there is something to archive, in nanoseconds.
const LOOK_NS: u64 = 20 * MILLISECOND_NS;
/// After this time at most what was logged is in the archive, if that can be written, in nanoseconds.
const EVERY_NS: u64 = 10 * SECOND_NS;
/// At most how long it rests after attempts that have failed one after the other, in nanoseconds.
const REST_NS_MAX: u64 = SECOND_NS;
/// How long the archive may leave a step unanswered, in nanoseconds: looking through it, or writing a segment.
const SILENCE_NS: u64 = 60 * SECOND_NS;
/// How long a closing waits for the archive, in nanoseconds.
const CLOSING_NS: u64 = 10 * SECOND_NS;
/// A segment has no more bytes of log than this.
const SEGMENT_MAX: u64 = 16 << 20;
/// The share of the log that is archived at once is one to this.
const SHARE: u64 = 8;
/// Bytes copied at once.
const PIECE: usize = 1 << 20;

/// What archives a log.
pub(crate) struct Archiver {
    place: String,
    /// Up to where the superblock file says that the archive has the log: an opening keeps everything from there on again, and needs the
    /// room that was left.
    hold: LogHold,
    /// Where the next segment begins, once the archive was looked through.
    next: Cell<Option<Lsn>>,
    /// The segment that was begun last. Another attempt writes the same: what the one before has under way may happen late.
    begun: Cell<(Lsn, Lsn)>,
    /// Whether the database was closed: what goes on nevertheless leaves the archive to the next opening.
    is_over: Cell<bool>,
    /// Since when something is there that is not archived.
    since: Cell<Option<Instant>>,
    turn: Turn,
}

/// A number that tells a log from all others.
fn new_history(executor: &Executor) -> u64 {
    executor.entropy() as u64
}

/// Has the log kept that is to be archived and is not yet. The superblock file says `stated` of it.
///
/// # Errors
/// Those of [`LogScan::keep_since`].
pub(crate) async fn keep_unarchived(
    settings: &Settings,
    stated: Option<ArchivedLog>,
    scan: &mut LogScan,
) -> Result<()> {
    let Some(stated) = stated.filter(|_| settings.archive.is_some()) else { return Ok(()) };
    if canary::is_planted(Canary::UnkeptForArchive) {
        return Ok(());
    }
    scan.keep_since(kept_from(settings, Lsn(stated.end))).await
}

/// What archives the log; nothing if it is not to be archived. The superblock file says `stated` of it.
pub(crate) fn begin_archive(
    settings: &Settings,
    stated: Option<ArchivedLog>,
    (executor, log): (&Executor, &Rc<Log>),
) -> Option<Rc<Archiver>> {
    let place = settings.archive.clone()?;
    let (history, end) = match stated {
        Some(ArchivedLog { history, end }) => (history, Lsn(end)),
        None => (new_history(executor), log.opened_at()),
    };
    log.begin_archive(history, end);
    Some(Rc::new(Archiver {
        place,
        hold: log.hold_firmly(),
        next: Cell::new(None),
        begun: Cell::default(),
        is_over: Cell::new(false),
        since: Cell::new(None),
        turn: Turn::new(),
    }))
}

/// Archives the log from now on, until the database is closed.
pub(crate) fn start_archiving(engine: &Rc<Engine>, archiver: &Rc<Archiver>) {
    let (engine, archiver, executor) = (Rc::downgrade(engine), Rc::downgrade(archiver), engine.core.executor.clone());
    executor.clone().spawn(async move {
        let mut rest_ns = LOOK_NS;
        loop {
            executor.sleep_ns(rest_ns).await;
            let (Some(engine), Some(archiver)) = (engine.upgrade(), archiver.upgrade()) else { return };
            if engine.core.closing.get() || engine.core.log.failure().is_some() {
                return;
            }
            if archiver.is_due(&engine) {
                let is_done = archiver.archive(&engine).await.is_ok();
                rest_ns = if is_done { LOOK_NS } else { (2 * rest_ns).min(REST_NS_MAX) };
            }
        }
    });
}

impl Archiver {
    /// Whether enough is there that is not archived, or has been for long, or it is in the way of transactions.
    fn is_due(&self, engine: &Engine) -> bool {
        let log = &engine.core.log;
        let Some(archive) = log.archive() else { return false };
        let Some(next) = self.next.get() else { return true };
        let waiting = log.copyable().0.saturating_sub(next.0);
        if waiting == 0 {
            self.since.set(None);
            return self.is_in_the_way(engine);
        }
        let now = engine.core.executor.now();
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        let is_old = now.since_ns(since) >= EVERY_NS || archive.failure().is_some();
        waiting >= SEGMENT_MAX.min(log.capacity() / SHARE) || is_old || log.is_scarce() || self.is_in_the_way(engine)
    }

    /// Archives everything that the log's file has, and notes how that has ended.
    ///
    /// # Errors
    /// [`BackupError::ArchiveFull`], [`Error::NoDevice`], or the driver's. The log is kept.
    pub async fn archive(&self, engine: &Rc<Engine>) -> Result<()> {
        let result = {
            let _turn = self.turn.take(&engine.core.executor).await;
            self.archive_all(engine).await.map_err(of_archive)
        };
        let (log, error) = (&engine.core.log, result.as_ref().err());
        let Some(archive) = log.archive() else { return result };
        if archive.note_attempt(error.cloned()) {
            engine.core.statistics.tell(&Event::Archiving { end: archive.end(), error });
        }
        if result.is_err() {
            log.wake_for_room();
        }
        result
    }

    async fn archive_all(&self, engine: &Rc<Engine>) -> Result<()> {
        let (executor, log) = (&engine.core.executor, &engine.core.log);
        let place = BackupPlace::of(executor, &self.place)?;
        let mut next = match self.next.get() {
            Some(next) => next,
            None => self.answered(executor, self.find_end(engine, &place)).await?,
        };
        self.next.set(Some(next));
        loop {
            self.check_open()?;
            self.release(engine).await?;
            let (begun, mut to) = self.begun.get();
            if begun != next || to <= next {
                to = log.copyable().min(Lsn(next.0 + SEGMENT_MAX / log.page_size() * log.page_size()));
            }
            let has_only_made_up = next.0 == log.circle().origin && to <= log.oldest();
            if to <= next || has_only_made_up {
                self.since.set(None);
                return Ok(());
            }
            self.begun.set((next, to));
            self.answered(executor, self.write_segment(engine, &place, (next, to))).await?;
            next = to;
            self.next.set(Some(next));
            engine.core.log.archive().inspect(|archive| archive.note_segment(next));
        }
    }

    /// Gives up the log that the archive has and nothing else needs.
    async fn release(&self, engine: &Rc<Engine>) -> Result<()> {
        let archived = engine.core.log.archive().map_or(Lsn::ZERO, |archive| archive.end());
        if self.is_in_the_way(engine) && stated_end(engine) < archived {
            // In a task of its own, so that no write of the superblock file is abandoned.
            let this = Rc::clone(engine);
            engine.core.executor.spawn(async move { state_archive(&this).await }).join().await?;
        }
        self.hold.move_to(kept_from(engine.core.log.settings(), stated_end(engine)));
        Ok(())
    }

    /// Whether log is kept for the archive alone that has it by now.
    fn is_in_the_way(&self, engine: &Engine) -> bool {
        let log = &engine.core.log;
        let is_archived = |end| kept_from(log.settings(), end) > self.hold.from();
        log.archive().is_some_and(|archive| is_archived(archive.end())) && self.hold.is_in_the_way()
    }

    /// What a step gives, or that the archive does not answer.
    async fn answered<T>(&self, executor: &Executor, step: impl Future<Output = Result<T>>) -> Result<T> {
        executor.within(SILENCE_NS, step).await.unwrap_or_else(|| {
            let patience = format_duration_ns(SILENCE_NS as f64);
            let message = format!("the archive '{}' has not answered for {patience}", self.place);
            Err(Fault::new(FaultKind::Device, message).into())
        })
    }

    /// Archives what there is before the database is closed, unless that fails or takes long: then the next opening goes on with it.
    pub async fn end(&self, engine: &Rc<Engine>) {
        let _told_and_tried_again = engine.core.executor.within(CLOSING_NS, self.archive(engine)).await;
    }

    /// Begins nothing more there.
    pub fn stop(&self) {
        self.is_over.set(true);
    }

    fn check_open(&self) -> Result<()> {
        if self.is_over.get() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Where the next segment begins: where the archive ends, as far as it can go on from there.
    async fn find_end(&self, engine: &Rc<Engine>, place: &BackupPlace) -> Result<Lsn> {
        let log = &engine.core.log;
        let Some(archive) = log.archive() else { return Ok(log.oldest()) };
        let last = last_segment(place, archive.history()).await?;
        let found = last.map(|head| head.end);
        let known = found.unwrap_or(Lsn::ZERO).max(archive.end());
        let is_another = known > log.opened_at() || self.is_rewritten(engine, place, last).await?;
        self.check_open()?;
        if is_another {
            // Commits did not wait until they were durable, and the log has lost what the archive has.
            let opened_at = log.opened_at();
            archive.renew(new_history(&engine.core.executor), opened_at);
            // In a task of its own, so that no write of the superblock file is abandoned.
            let this = Rc::clone(engine);
            engine.core.executor.spawn(async move { state_archive(&this).await }).join().await?;
            archive.note_found(archive.history(), opened_at);
            engine.core.statistics.tell(&Event::ArchiveGap { from: known, to: opened_at });
            return Ok(opened_at);
        }
        if let Some(head) = last.filter(|head| head.end > stated_end(engine)) {
            self.confirm(place, &head).await?;
        }
        let end = found.unwrap_or(archive.end());
        // A log that was made anew begins a page behind its file's front.
        let is_made_anew = end.0 == log.circle().origin && log.oldest().0 == log.circle().first(log.page_size());
        let next = if is_made_anew && end > Lsn::ZERO { end } else { end.max(log.oldest()) };
        if next > end {
            engine.core.statistics.tell(&Event::ArchiveGap { from: end, to: next });
        }
        archive.note_found(archive.history(), next);
        Ok(next)
    }

    /// Makes the first block of a whole segment durable. An earlier opening may have ended before it was, or after a sync that failed:
    /// another sync alone would prove nothing. The pages were durable before.
    async fn confirm(&self, place: &BackupPlace, head: &SegmentHead) -> Result<()> {
        let Some((file, _)) = place.find(&segment_name(head.history, head.first)).await? else { return Ok(()) };
        self.write_head(place, &file, head).await
    }

    /// Whether the log has another page where a segment's last one is: an earlier opening, which could not reach the archive, has written
    /// it anew.
    async fn is_rewritten(&self, engine: &Engine, place: &BackupPlace, last: Option<SegmentHead>) -> Result<bool> {
        let log = &engine.core.log;
        let page_size = log.page_size();
        let Some(head) = last.filter(|head| head.end.0 - page_size >= log.oldest().0) else { return Ok(false) };
        let name = segment_name(head.history, head.first);
        let Some((file, _)) = place.find(&name).await? else { return Ok(false) };
        let archived = place.read(&file, (head.length() - page_size, page_size as usize)).await?;
        drop(file);
        let frame = engine.core.executor.frame(page_size as usize)?;
        let (present, length) = log.read_pages((Lsn(head.end.0 - page_size), head.end), frame).await?;
        Ok(archived[..length] != present[..length])
    }

    /// Writes the pages between these positions, then what says that they are there.
    async fn write_segment(&self, engine: &Engine, place: &BackupPlace, (first, end): (Lsn, Lsn)) -> Result<()> {
        let log = &engine.core.log;
        let history = log.archive().map_or(0, |archive| archive.history());
        let name = segment_name(history, first);
        // It goes over what a failed attempt, or one that was cut off, has left. A removal of that could come late, and take the whole
        // segment away.
        let file = place.create(&name).await?;
        let head = SegmentHead { history, first, end, page_size: log.page_size() as u32, pages: 0 };
        if canary::is_planted(Canary::EarlySegmentHead) {
            self.write_head(place, &file, &head).await?;
        }
        let pages = self.write_pages(engine, (place, &file), (first, end)).await?;
        place.sync(&file).await?;
        self.check_open()?;
        self.write_head(place, &file, &SegmentHead { pages, ..head }).await
    }

    /// Returns the checksum over the pages' checksums.
    async fn write_pages(
        &self,
        engine: &Engine,
        (place, file): (&BackupPlace, &PlaceFile),
        (first, end): (Lsn, Lsn),
    ) -> Result<u32> {
        let (executor, log) = (&engine.core.executor, &engine.core.log);
        let page_size = log.page_size();
        let mut sums = PageSums::default();
        let mut frame = executor.frame(PIECE.max(page_size as usize))?;
        let mut at = first;
        if at.0 == log.circle().origin && at < log.oldest() {
            let next = Lsn(at.0 + page_size);
            let (read, length) = log.read_pages((next, Lsn(next.0 + page_size)), frame).await?;
            frame = read;
            let empty = log.empty_page(at, &frame[..length]).expect("it was verified");
            frame[..length].copy_from_slice(&empty);
            sums.add(&frame[..length], length);
            frame = place.write(file, (BLOCK as u64, length), frame).await?;
            at = next;
        }
        while at < end {
            let (read, length) = log.read_pages((at, end), frame).await?;
            sums.add(&read[..length], page_size as usize);
            frame = place.write(file, (BLOCK as u64 + at.0 - first.0, length), read).await?;
            at = Lsn(at.0 + length as u64);
        }
        Ok(sums.sum())
    }

    async fn write_head(&self, place: &BackupPlace, file: &PlaceFile, head: &SegmentHead) -> Result<()> {
        let mut frame = place.executor.frame(BLOCK)?;
        frame[..BLOCK].copy_from_slice(&head.encode());
        place.write(file, (0, BLOCK), frame).await?;
        place.sync(file).await
    }
}

/// Up to where the superblock file says that the archive has the log.
fn stated_end(engine: &Engine) -> Lsn {
    Lsn(engine.catalog.superblock.borrow().archive.map_or(0, |archive| archive.end))
}

/// From where the log is kept of which the archive has everything before `end`.
fn kept_from(settings: &Settings, end: Lsn) -> Lsn {
    // The last page that the archive has tells whether the log has another one there by now.
    let compared = if settings.durable { 0 } else { settings.page_size as u64 };
    Lsn(end.0.saturating_sub(compared))
}

/// The last whole segment of a history; nothing if there is none.
async fn last_segment(place: &BackupPlace, history: u64) -> Result<Option<SegmentHead>> {
    let names = place.names().await?;
    let mut firsts: Vec<Lsn> = names
        .iter()
        .filter_map(|name| parse_name(name))
        .filter(|(of, _)| *of == history)
        .map(|(_, first)| first)
        .collect();
    firsts.sort_unstable();
    for first in firsts.into_iter().rev() {
        let Some((file, length)) = place.find(&segment_name(history, first)).await? else { continue };
        if length < BLOCK as u64 {
            continue;
        }
        let block = place.read(&file, (0, BLOCK)).await?;
        match SegmentHead::decode(&block[..BLOCK]) {
            Ok(head) if (head.history, head.first) == (history, first) && head.length() <= length => {
                return Ok(Some(head));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Says of an archive what is said of a backup's place.
fn of_archive(error: Error) -> Error {
    match error {
        Error::Backup(BackupError::TargetFull { place, detail }) => BackupError::ArchiveFull { place, detail }.into(),
        other => other,
    }
}
