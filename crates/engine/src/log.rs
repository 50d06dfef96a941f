//! The write-ahead log: records, log pages, group commit, scanning after a crash.
//!
//! A log position ([`Lsn`]) is a byte position in the stream of log pages, page headers included. Records span pages. A
//! record's LSN is the position of its end, so it is durable once the log is durable up to its LSN.
//!
//! A page is never rewritten: a flush closes the open page and the next record begins the next one, so no write touches
//! bytes that were acknowledged. Several writes may be in flight; the durable position only moves over writes without a gap
//! before them, and recovery ends at the first gap.
//!
//! The log may be on two devices (`duplex`): then both have the same pages, and a scan takes each from whichever has it.
//!
//! The first page of each opening is written alone, and is durable before any other page of that opening is written. So a
//! reader that meets the pages of an opening meets its first page, and a later opening never takes the number of an earlier one
//! that has pages: those that an earlier opening left beyond the end carry a smaller number than those before them, which
//! gives them away. An opening that logs nothing writes nothing.

mod archive;
mod batches;
mod buffer;
mod circle;
mod claims;
mod copying;
mod duplex;
mod group_commit;
mod growth;
mod holds;
mod kept;
mod lazy_sync;
mod measured;
pub mod page;
mod past;
mod read_ahead;
pub mod record;
mod scan;
mod settings;
mod start;
mod statistics;
mod time;
mod waiters;
mod write_buffer;
mod writer;

pub use archive::LogArchive;
pub use circle::Circle;
pub(crate) use copying::{cut_page, first_damaged};
pub use group_commit::GroupCommit;
pub(crate) use holds::LogHold;
pub(crate) use kept::KeptLog;
pub use measured::Measured;
pub(crate) use past::PastLog;
pub(crate) use scan::Copies;
pub use scan::{LogEntry, LogScan};
pub use settings::{Acknowledged, Second, Settings, SyncMethod};
pub(crate) use start::LogFile;
pub use statistics::LogStatistics;
pub use write_buffer::WriteBuffer;

use crate::{Error, Result};
use base::{Instant, Lsn, TransactionId};
use batches::Batches;
use buffer::{ClosedPages, LogBuffer};
use driver::{FileId, Work};
use duplex::Duplex;
use executor::{Executor, Relay, WaitQueue};
use group_commit::{CommitDecision, CommitGroup};
use record::Body;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;
use structures::page::Edit;
use structures::reuse::empty_for_reuse;
use waiters::Waiters;

/// The name of the group of the log server's tasks.
pub const GROUP: &str = "log";

/// The log, open for appending.
pub struct Log {
    this: Weak<Log>,
    executor: Executor,
    /// The log server's tasks.
    group: executor::Group,
    settings: Settings,
    /// What was measured of each device, now or when it was first used.
    measured: Vec<Option<Measured>>,
    file: FileId,
    /// Where the first page of this opening stands.
    opened_at: Lsn,
    /// See [`Log::changed_alone`].
    changed_alone: Cell<Lsn>,
    /// Where positions lie in the file.
    circle: Circle,
    /// How much of the file is there.
    growth: growth::LogGrowth,
    /// Bytes of the file that new work may use.
    limit: Cell<u64>,
    /// At least so much of the file is left beside what was promised, in bytes.
    margin_min: Cell<u64>,
    /// Whether a write holds the CPU.
    synchronous: bool,
    write_buffer: OnceCell<WriteBuffer>,
    /// The two devices that it is written to, if there are two.
    duplex: Option<Duplex>,
    writes_in_flight_max: usize,
    inner: RefCell<LogState>,
    /// Everything before this is written without a gap.
    written: Cell<Lsn>,
    /// Everything before this survives a power cut: beyond `written` at no time, and the same where commits wait for it.
    durable: Cell<Lsn>,
    /// Everything before this is durable on both devices, or on the only one: beyond `durable` at no time.
    complete: Cell<Lsn>,
    /// Everything before this is written to each device, and needs no memory.
    released: Cell<Lsn>,
    /// The front of the first page that must not be overwritten.
    oldest: Cell<Lsn>,
    /// Everything before this is to be written.
    demand: Cell<Lsn>,
    syncing: Cell<bool>,
    /// What is to be synced where commits do not wait for that.
    lazy: lazy_sync::LazySync,
    failed: RefCell<Option<String>>,
    waiters: Waiters,
    /// Tasks waiting for room.
    room: WaitQueue,
    /// Room that is promised.
    claims: claims::Claims,
    /// What backups and the archive copy of it.
    holds: holds::Holds,
    /// How far it is archived, if it is.
    archive: OnceCell<LogArchive>,
    /// What it says of the time.
    time: time::SaidTime,
    /// Wakes the writer.
    bell: Rc<WaitQueue>,
}

struct LogState {
    buffer: LogBuffer,
    batches: Batches,
    group: CommitGroup,
    /// A record on its way into the buffer.
    scratch: Vec<u8>,
    statistics: LogStatistics,
}

impl LogState {
    /// Hands what the buffer holds over for writing. Returns its batch's number, if it held anything.
    fn cut(&mut self, own: bool, now: Instant) -> Option<u64> {
        let piece = self.buffer.cut()?;
        let commits = self.group.close(now);
        Some(self.batches.push(piece, commits, own))
    }
}

impl Log {
    /// From now on the log is written by way of this buffer.
    pub fn set_write_buffer(&self, buffer: WriteBuffer) {
        assert!(self.write_buffer.set(buffer).is_ok(), "a log has one write buffer");
    }

    /// The write buffer, if there is one.
    pub fn write_buffer(&self) -> Option<&WriteBuffer> {
        self.write_buffer.get()
    }

    /// Appends a record and returns its LSN. Each edit comes with its page's sequence number after the edit. Never waits
    /// and never fails: whether the log can be written is the commit's affair.
    ///
    /// # Panics
    /// If there are more than 255 edits or the record exceeds 4 GiB.
    #[inline]
    pub fn append<'a>(
        &self,
        transaction: TransactionId,
        body: &Body<'_>,
        edits: impl IntoIterator<Item = (u64, &'a Edit<'a>)>,
    ) -> Lsn {
        let inner = &mut *self.inner.borrow_mut();
        empty_for_reuse(&mut inner.scratch);
        record::encode(transaction, body, edits, &mut inner.scratch);
        let end = inner.buffer.append(&inner.scratch);
        if record::is_own_change(&inner.scratch) {
            self.changed_alone.set(Lsn(end));
        }
        self.note_record(inner, inner.scratch.len(), end)
    }

    /// Appends a record that is encoded already, such as one that a client made. Returns its LSN.
    ///
    /// # Panics
    /// If its first four bytes do not give its length.
    pub fn append_encoded(&self, bytes: &[u8]) -> Lsn {
        let length = bytes.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
        assert!(length as usize == bytes.len() && bytes.len() >= record::Record::FIXED_SIZE, "a whole record");
        let inner = &mut *self.inner.borrow_mut();
        let end = inner.buffer.append(bytes);
        if record::is_own_change(bytes) {
            self.changed_alone.set(Lsn(end));
        }
        self.note_record(inner, bytes.len(), end)
    }

    /// Up to where the database has changed something by itself: behind that the log has nothing but what other nodes have changed.
    pub fn changed_alone(&self) -> Lsn {
        self.changed_alone.get()
    }

    /// The same for the next opening: `None` if commits do not wait until they are durable, so that what nodes have may be gone by then.
    pub(crate) fn known_changed_alone(&self) -> Option<u64> {
        self.settings.durable.then(|| self.changed_alone().0)
    }

    /// The database changes something by itself now that the log does not say.
    pub(crate) fn note_own_change(&self) {
        self.changed_alone.set(self.end());
    }

    #[inline]
    fn note_record(&self, inner: &mut LogState, length: usize, end: u64) -> Lsn {
        inner.statistics.records += 1;
        inner.statistics.record_bytes += length as u64;
        if inner.buffer.has_full() {
            self.hand_over_full(inner);
        }
        Lsn(end)
    }

    #[cold]
    fn hand_over_full(&self, inner: &mut LogState) {
        let pieces: Vec<ClosedPages> = inner.buffer.take_full().collect();
        let failed = self.failed.borrow().is_some();
        // The commits in the group joined before the record that overflowed the frame, so they are written with the frame.
        let mut commits = inner.group.close(self.executor.round_now());
        for piece in pieces {
            if failed {
                inner.buffer.recycle(piece.frame);
            } else {
                inner.batches.push(piece, std::mem::take(&mut commits), false);
            }
        }
        self.bell.wake_all(&self.executor);
    }

    /// What was measured of each of its devices, if anything was: now, or when they were first used.
    pub(crate) fn measured(&self) -> &[Option<Measured>] {
        &self.measured
    }

    /// The size of its pages in bytes.
    pub(crate) fn page_size(&self) -> u64 {
        self.settings.page_size as u64
    }

    /// How it is written; what was left to a measurement is decided.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How many writes may be in flight at once, those that commits submit themselves excepted.
    pub fn writes_in_flight_max(&self) -> usize {
        self.writes_in_flight_max.min(self.settings.in_flight_max())
    }

    /// Which opening of the log this is, counted from 1.
    pub fn epoch(&self) -> u32 {
        self.inner.borrow().buffer.epoch()
    }

    /// Where this opening of the log begins: everything before it was written by earlier ones.
    pub fn opened_at(&self) -> Lsn {
        self.opened_at
    }

    /// The LSN of the last record.
    #[inline]
    pub fn end(&self) -> Lsn {
        Lsn(self.inner.borrow().buffer.end())
    }

    /// The position before which everything is written, and survives the end of the process.
    #[inline]
    pub fn written(&self) -> Lsn {
        self.written.get()
    }

    /// The position before which everything is durable, and survives a power cut: that of [`Log::written`], unless commits do not
    /// wait for it (`Settings::durable`).
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.durable.get()
    }

    /// Asks for the durability of a commit record by the group-commit policy and waits for it. Where commits do not wait
    /// (`Settings::durable`) it returns at once.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if a log write failed before the record was durable.
    pub async fn commit(&self, lsn: Lsn) -> Result<()> {
        if self.demand_commit(lsn)? {
            self.write_own().await;
        }
        if self.settings.durable { self.wait_durable(lsn).await } else { Ok(()) }
    }

    /// The part of [`Log::commit`] that waits for nothing. True if [`Log::write_own`] has to follow.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if a log write failed before.
    pub(crate) fn demand_commit(&self, lsn: Lsn) -> Result<bool> {
        self.inner.borrow_mut().statistics.commits += 1;
        if lsn <= self.written.get() {
            return Ok(false);
        }
        if let Some(why) = &*self.failed.borrow() {
            return Err(Error::LogFailed(why.clone()));
        }
        match self.join_group(lsn) {
            // Two devices get their writes in the order of the log, and so does the first page of an opening its own before
            // all others, which the writer sees to.
            Some(CommitDecision::WriteOwn) if self.duplex.is_some() || !self.may_submit() => self.hand_over(),
            Some(CommitDecision::WriteOwn) if self.may_write() => return Ok(true),
            // The write under way has no commits.
            Some(CommitDecision::WriteOwn | CommitDecision::Write) => self.request(lsn),
            Some(CommitDecision::Begin(ns)) => self.begin_timer(ns),
            Some(CommitDecision::Gather) | None => {}
        }
        Ok(false)
    }

    /// Asks for the durability of a commit record as [`Log::commit`] does, for callers that wait with [`Log::wait_durable`].
    pub fn begin_commit(&self, lsn: Lsn) {
        self.inner.borrow_mut().statistics.commits += 1;
        if lsn <= self.written.get() || self.failed.borrow().is_some() {
            return;
        }
        match self.join_group(lsn) {
            Some(CommitDecision::WriteOwn) => self.hand_over(),
            Some(CommitDecision::Write) => self.request(lsn),
            Some(CommitDecision::Begin(ns)) => self.begin_timer(ns),
            Some(CommitDecision::Gather) | None => {}
        }
    }

    /// Joins the present group, unless the record has been handed over for writing already.
    fn join_group(&self, lsn: Lsn) -> Option<CommitDecision> {
        let inner = &mut *self.inner.borrow_mut();
        debug_assert!(lsn.0 <= inner.buffer.end(), "only appended records commit");
        let is_page_full = inner.buffer.page_room() < inner.scratch.len();
        let now = self.executor.round_now();
        (lsn.0 > inner.buffer.start()).then(|| inner.group.join(inner.batches.commits(), is_page_full, now))
    }

    /// Whether what the buffer holds could be submitted now.
    fn may_submit(&self) -> bool {
        let inner = self.inner.borrow();
        inner.batches.may_submit_next() && self.is_there(inner.buffer.cut_end())
    }

    /// Leaves what the buffer holds to the writer.
    fn hand_over(&self) {
        self.inner.borrow_mut().cut(false, self.executor.round_now());
        self.bell.wake_all(&self.executor);
    }

    /// Writes the present group from the task of the commit that has completed it.
    pub(crate) async fn write_own(&self) {
        let Some(number) = self.inner.borrow_mut().cut(true, self.executor.round_now()) else { return };
        let write = writer::OwnWrite::new(self, number);
        let access = self.pay().await;
        write.submit(access);
    }

    /// Writes the present group after `ns` nanoseconds, if it is still waiting then.
    fn begin_timer(&self, ns: u64) {
        let number = self.inner.borrow().group.number();
        let (log, executor) = (self.this.clone(), self.executor.clone());
        self.executor.spawn_in(self.group, 0, async move {
            executor.sleep_ns(ns).await;
            if let Some(log) = log.upgrade()
                && log.inner.borrow().group.number() == number
            {
                log.request(log.end());
            }
        });
    }

    /// Demands that everything up to `lsn` be written soon and waits until it is durable, as before a page of that LSN is
    /// written back.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if a log write failed before that.
    pub async fn flush(&self, lsn: Lsn) -> Result<()> {
        self.executor.charge(Work::LogCheck);
        self.request(lsn);
        self.wait_durable(lsn).await
    }

    /// Demands that everything up to `lsn` be written soon, without waiting.
    pub fn request(&self, lsn: Lsn) {
        if lsn > self.written.get() && lsn > self.demand.get() {
            self.demand.set(lsn);
            self.bell.wake_all(&self.executor);
        }
    }

    /// Waits until everything up to `lsn` is durable, without demanding it: another caller has done so or will.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if a log write failed before that.
    pub async fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let (mut registered, mut relay) = (None, Relay::default());
        poll_fn(|context| {
            if lsn <= self.durable.get() {
                return Poll::Ready(Ok(()));
            }
            if let Some(why) = &*self.failed.borrow() {
                return Poll::Ready(Err(Error::LogFailed(why.clone())));
            }
            let task = self.executor.waiter(context, &mut relay);
            if registered.replace(task) != Some(task) {
                self.waiters.register(task, lsn);
                self.sync_lazily();
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until the log's own device has everything before `before` that was written into the write buffer.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if the log has failed.
    pub async fn drain_before(&self, before: Lsn) -> Result<()> {
        while self.write_buffer.get().and_then(WriteBuffer::oldest).is_some_and(|oldest| oldest < before.0) {
            if let Some(error) = self.failure() {
                return Err(error);
            }
            self.room.wait(&self.executor).await;
        }
        Ok(())
    }

    /// Gives up everything before `before`, which no recovery and no rollback needs any more, for reuse. The page that holds
    /// `before` stays, and so does what is not yet durable, only in the write buffer, or held.
    pub fn truncate(&self, before: Lsn) {
        let buffered = self.write_buffer.get().and_then(WriteBuffer::oldest).unwrap_or(u64::MAX);
        self.holds.note_asked(before);
        let is_short = || self.is_full() || self.is_claimed();
        let held = self.holds.oldest(is_short(), || self.executor.now());
        let position = before.min(self.complete.get()).min(held).0.min(buffered);
        let front = Lsn(position - position % self.settings.page_size as u64);
        if front > self.oldest.get() {
            self.oldest.set(front);
            self.holds.note(is_short(), || self.executor.now());
            self.room.wake_all(&self.executor);
        }
    }

    /// Whether everything was given up that may be while `position` is needed.
    pub(crate) fn is_kept_for(&self, position: Lsn) -> bool {
        self.oldest.get().0 + self.settings.page_size as u64 > position.0
    }

    /// The oldest position that is still kept.
    pub fn oldest(&self) -> Lsn {
        self.oldest.get()
    }

    /// Bytes between the oldest position and the end.
    #[inline]
    pub fn used(&self) -> u64 {
        self.end().0 - self.oldest.get().0
    }

    /// Bytes of the file, as far as it is there, that hold nothing that is needed.
    #[inline]
    pub fn free(&self) -> u64 {
        self.stop().saturating_sub(self.end().0)
    }

    /// Bytes that the log's file holds once it is all there.
    pub fn capacity(&self) -> u64 {
        self.circle.size
    }

    /// Where positions lie in the log's file.
    pub fn circle(&self) -> Circle {
        self.circle
    }

    /// Whether new work should wait: the log is full but for its reserve, or too much of it waits in memory.
    #[inline]
    pub fn is_crowded(&self) -> bool {
        self.is_full() || self.is_behind()
    }

    /// Whether only the reserve is left of the log's file.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.used() > self.limit.get()
    }

    /// Whether so little of the log's file is free that pages should be filled before they are written.
    pub(crate) fn is_scarce(&self) -> bool {
        2 * self.used() > self.limit.get()
    }

    /// Bytes that can be logged before only the reserve is left.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        self.limit.get().saturating_sub(self.used())
    }

    /// Whether too much of the log waits in memory to be written.
    #[inline]
    pub fn is_behind(&self) -> bool {
        self.end().0 - self.released.get().0 > self.settings.buffer_size_max
    }

    /// Waits until the log has room for new work. Rollbacks and the checkpointer do not ask; the reserve is theirs.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if the log has failed.
    pub async fn throttle(&self) -> Result<()> {
        self.wait_while(Log::is_crowded).await
    }

    /// Waits until not too much of the log waits in memory. Unlike room in the file, that never depends on the end of a
    /// transaction, so transactions may wait for it whatever they hold.
    ///
    /// # Errors
    /// [`Error::LogFailed`] if the log has failed.
    pub async fn catch_up(&self) -> Result<()> {
        self.wait_while(Log::is_behind).await
    }

    async fn wait_while(&self, crowded: impl Fn(&Log) -> bool) -> Result<()> {
        while crowded(self) {
            self.wait_for_room().await?;
        }
        self.grow_until(|| !self.is_short_of_file()).await
    }

    /// Waits until log was written or given up, which may not be enough.
    pub(crate) async fn wait_for_room(&self) -> Result<()> {
        if let Some(why) = &*self.failed.borrow() {
            return Err(Error::LogFailed(why.clone()));
        }
        // What is already on its way makes the room otherwise. Each page that is written before it is full is lost, perhaps to
        // rollbacks that were promised it.
        if self.is_behind() {
            self.request(self.end());
        }
        self.room.wait(&self.executor).await;
        Ok(())
    }

    /// Wakes the tasks waiting for room, because a checkpoint that was to make some has failed.
    pub(crate) fn wake_for_room(&self) {
        self.room.wake_all(&self.executor);
    }

    /// Why the log failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        self.failed.borrow().as_ref().map(|why| Error::LogFailed(why.clone()))
    }

    /// What the log did so far.
    pub fn statistics(&self) -> LogStatistics {
        self.inner.borrow().statistics.clone()
    }

    /// Forgets what the log did so far: the end of a warm-up.
    pub fn restart_statistics(&self) {
        self.inner.borrow_mut().statistics = LogStatistics::default();
        self.write_buffer.get().inspect(|buffer| buffer.restart_statistics());
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The writer finds the log gone and ends.
        self.wake_alarm();
        self.bell.wake_all(&self.executor);
    }
}

#[cfg(test)]
mod tests;
