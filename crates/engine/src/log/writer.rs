//! Submits log writes, notes their completion and moves the positions up to which the log is written and durable.

use super::batches::{FIRST, Taken};
use super::buffer::ClosedPages;
use super::{Log, LogState, SyncMethod, page};
use base::Lsn;
use driver::{Access, Completion, Fault, Frame, Op, Work};
use executor::{Executor, WaitQueue};
use std::rc::{Rc, Weak};

/// The writer's task: submits what is demanded while writes may be submitted. It ends with the log.
pub(super) async fn run(log: Weak<Log>, executor: Executor, bell: Rc<WaitQueue>) {
    loop {
        let Some(log) = log.upgrade() else { return };
        if !log.writer_has_work() {
            drop(log);
            bell.wait(&executor).await;
            continue;
        }
        let access = log.pay().await;
        // Meanwhile a committer may have begun the write that there was room for.
        if log.may_write() {
            log.write_next(access);
        }
    }
}

/// A batch that the committing task submits itself. Dropped early, the batch goes to the writer.
pub(super) struct OwnWrite<'a> {
    log: &'a Log,
    number: Option<u64>,
}

impl<'a> OwnWrite<'a> {
    pub fn new(log: &'a Log, number: u64) -> OwnWrite<'a> {
        OwnWrite { log, number: Some(number) }
    }

    pub fn submit(mut self, access: Access) {
        if let Some(number) = self.number.take() {
            let taken = self.log.inner.borrow_mut().batches.take_own(number, self.log.executor.now());
            self.log.submit(taken, access);
        }
    }
}

impl Drop for OwnWrite<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.log.inner.borrow_mut().batches.release(number);
            self.log.bell.wake_all(&self.log.executor);
        }
    }
}

impl Log {
    /// Charges a log write to the current task and pays before an asynchronous one; a synchronous access takes the debt
    /// along.
    pub(super) async fn pay(&self) -> Access {
        if let Some(buffer) = self.write_buffer.get().filter(|buffer| buffer.has_room(self.settings.page_size as u64)) {
            return buffer.access(&self.executor).await;
        }
        if self.synchronous {
            self.executor.charge(Work::NvemAccess);
            return Access::Synchronous { instructions: self.executor.take_debt() };
        }
        self.executor.charge_times(Work::InputOutput, if self.duplex.is_some() { 2 } else { 1 });
        self.executor.pay_debt().await;
        Access::Asynchronous
    }

    /// Whether one more write may be submitted.
    pub(super) fn may_write(&self) -> bool {
        self.inner.borrow().batches.under_way() < self.writes_in_flight_max
    }

    fn writer_has_work(&self) -> bool {
        let inner = self.inner.borrow();
        let has_ready = || inner.batches.first_ready_end().is_some_and(|end| self.is_there(end));
        self.failed.borrow().is_none() && self.may_write() && (has_ready() || self.may_cut(&inner))
    }

    /// Whether something is demanded of the buffer that could be submitted.
    fn may_cut(&self, inner: &LogState) -> bool {
        let is_demanded = self.demand.get().0 > inner.buffer.start();
        is_demanded && inner.batches.may_submit_next() && self.is_there(inner.buffer.cut_end())
    }

    /// Whether the file is there up to this position. What was logged behind its end, by rollbacks, waits for it to grow.
    pub(super) fn is_there(&self, end: u64) -> bool {
        if end > self.growth_end() {
            self.begin_step();
        }
        end <= self.growth_end()
    }

    /// Submits the first batch that is ready; if there is none, cuts the buffer where something is demanded of it. Paying
    /// took time, so both may be gone.
    fn write_next(&self, access: Access) {
        let taken = {
            let inner = &mut *self.inner.borrow_mut();
            if !inner.batches.has_ready() && self.may_cut(inner) {
                let (end, has_commits) = (inner.buffer.end(), inner.group.has_commits());
                inner.cut(false, self.executor.round_now());
                if !has_commits {
                    self.note_padding(inner.buffer.end() - end);
                }
            }
            let is_there = inner.batches.first_ready_end().is_some_and(|end| self.is_there(end));
            if is_there { inner.batches.take_ready(self.executor.now()) } else { None }
        };
        if let Some(taken) = taken {
            self.submit(taken, access);
        }
    }

    /// Seals a batch's pages and submits the write.
    fn submit(&self, taken: Taken, access: Access) {
        let Taken { number, piece, commits } = taken;
        if piece.end() > self.oldest.get().0 + self.circle.size {
            let (file, size) = (&self.settings.file, self.circle.size);
            let why = format!("its file '{file}' of {size} bytes is full; enlarge it");
            self.fail(&why);
        }
        if self.failed.borrow().is_some() {
            self.inner.borrow_mut().buffer.recycle(piece.frame);
            return;
        }
        self.grow_ahead(piece.end());
        let ClosedPages { position, length, mut frame } = piece;
        for page in frame[..length].chunks_exact_mut(self.settings.page_size) {
            page::seal(page, self.durable.get());
        }
        self.note_submission(commits);
        if let Some(duplex) = &self.duplex {
            return self.submit_twice(duplex, ClosedPages { position, length, frame });
        }
        let log = self.this.upgrade().expect("borrowed from an Rc");
        if number > FIRST
            && let Some(buffer) = self.write_buffer.get()
            && let Some(offset) = buffer.take(position, length as u64)
        {
            let (file, length) = (buffer.file(), length as u32);
            let op = Op::Write { file, offset, length, buffer: frame, durable: true, access };
            self.executor.submit(op, move |completion| log.buffered(number, position, length, completion));
            return;
        }
        let durable = number == FIRST || self.settings.durable && self.settings.method() == SyncMethod::SyncWrite;
        // What was paid may have been for room that the write buffer no longer has.
        let access = if self.synchronous { access } else { Access::Asynchronous };
        let op = self.write_op(position, length as u32, frame, (durable, access));
        self.executor.submit(op, move |completion| log.write_ended(number, length, completion));
    }

    /// The write to the log's own device.
    fn write_op(&self, position: u64, length: u32, buffer: Frame, (durable, access): (bool, Access)) -> Op {
        Op::Write { file: self.file, offset: self.circle.offset(position), length, buffer, durable, access }
    }

    /// Reacts to the end of a write into the write buffer: what it wrote is durable, and goes on to the log's own device.
    fn buffered(&self, number: u64, position: u64, length: u32, completion: Completion) {
        let frame = completion.buffer.expect("a write gives its buffer back");
        let buffer = self.write_buffer.get().expect("its own write ended");
        let log = self.this.upgrade().expect("borrowed from an Rc");
        if self.failed.borrow().is_some() {
            self.inner.borrow_mut().buffer.recycle(frame);
            return;
        }
        if completion.result.is_err() {
            buffer.drained(position);
            let durable = self.settings.method() == SyncMethod::SyncWrite;
            let op = self.write_op(position, length, frame, (durable, Access::Asynchronous));
            self.executor.submit(op, move |completion| log.write_ended(number, length as usize, completion));
            return;
        }
        self.executor.spawn_in(self.group, 0, async move { log.drain(position, length, frame).await });
        self.note_written(number, length as usize, false);
        self.advance();
    }

    /// Writes a piece from the write buffer to the log's own device.
    async fn drain(&self, position: u64, length: u32, frame: Frame) {
        self.executor.charge(Work::InputOutput);
        self.executor.pay_debt().await;
        let completion =
            self.executor.perform(self.write_op(position, length, frame, (true, Access::Asynchronous))).await;
        self.inner.borrow_mut().buffer.recycle(completion.buffer.expect("a write gives its buffer back"));
        match completion.result {
            Ok(_) => {
                self.write_buffer.get().expect("its piece was there").drained(position);
                self.room.wake_all(&self.executor);
            }
            Err(fault) => self.fail_by(&fault),
        }
    }

    pub(super) fn note_written(&self, number: u64, length: usize, needs_sync: bool) {
        let inner = &mut *self.inner.borrow_mut();
        let submitted = inner.batches.written(number, needs_sync);
        inner.statistics.writes += 1;
        inner.statistics.bytes_written += length as u64;
        inner.statistics.write_latency.record(self.executor.now().since_ns(submitted));
    }

    fn note_submission(&self, commits: u32) {
        if commits > 0 {
            let statistics = &mut self.inner.borrow_mut().statistics;
            statistics.commit_writes += 1;
            statistics.group_commits += u64::from(commits);
            statistics.group_size_max = statistics.group_size_max.max(commits);
        }
    }

    /// Reacts to the end of a write.
    fn write_ended(&self, number: u64, length: usize, completion: Completion) {
        let needs_sync = self.settings.durable && self.settings.method() == SyncMethod::WriteThenSync;
        {
            let inner = &mut *self.inner.borrow_mut();
            if let Some(frame) = completion.buffer {
                inner.buffer.recycle(frame);
            }
            // After a failure nothing moves: what was in flight then is never known to be durable.
            if self.failed.borrow().is_some() {
                return;
            }
        }
        if completion.result.is_ok() {
            self.note_written(number, length, needs_sync);
        }
        match completion.result {
            Err(fault) => self.fail_by(&fault),
            Ok(_) if needs_sync => self.start_sync(),
            Ok(_) => self.advance(),
        }
    }

    /// Submits a sync for what is written, unless one is in flight: its end starts the next.
    fn start_sync(&self) {
        if self.syncing.get() || !self.inner.borrow_mut().batches.begin_sync() {
            return;
        }
        self.syncing.set(true);
        let log = self.this.upgrade().expect("borrowed from an Rc");
        self.executor.submit(Op::Sync { file: self.file }, move |completion| log.synced(completion));
        self.bell.wake_all(&self.executor);
    }

    fn synced(&self, completion: Completion) {
        self.syncing.set(false);
        if self.failed.borrow().is_some() {
            return;
        }
        if let Err(fault) = completion.result {
            return self.fail_by(&fault);
        }
        {
            let inner = &mut *self.inner.borrow_mut();
            inner.batches.end_sync();
            inner.statistics.syncs += 1;
        }
        self.start_sync();
        self.advance();
    }

    /// Moves the positions over the finished batches and wakes the tasks waiting for that.
    pub(super) fn advance(&self) {
        let end = self.inner.borrow_mut().batches.advance().map(Lsn);
        if let Some(end) = end {
            self.written.set(end);
            if self.duplex.is_none() {
                self.released.set(end);
            }
            if self.settings.durable {
                if self.duplex.is_none() {
                    self.complete.set(end);
                }
                self.note_durable(end);
            } else {
                self.sync_lazily();
            }
            self.room.wake_all(&self.executor);
        }
        self.bell.wake_all(&self.executor);
    }

    /// Everything before `end` is durable.
    pub(super) fn note_durable(&self, end: Lsn) {
        self.durable.set(end);
        self.waiters.wake_up_to(&self.executor, end);
        self.room.wake_all(&self.executor);
    }

    pub(super) fn fail_by(&self, fault: &Fault) {
        self.fail(&format!("{fault} while writing file '{}'", self.settings.file));
    }

    /// Nothing becomes durable any more: all waiting tasks get the error.
    pub(crate) fn fail(&self, why: &str) {
        self.failed.borrow_mut().get_or_insert_with(|| why.to_owned());
        self.waiters.wake_up_to(&self.executor, Lsn::MAX);
        self.wake_alarm();
        self.room.wake_all(&self.executor);
        self.bell.wake_all(&self.executor);
    }
}
