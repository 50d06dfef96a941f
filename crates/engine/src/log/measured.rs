//! What suits the log's device, by a measurement when the log is created: a few writes to its own file, before its first page.
//!
//! Some fifty writes to the blank log decide two things. One is whether a data-sync write or a write followed by a sync
//! is faster, by whichever is faster alone. The other is whether the device serves several writes at once: a disk that
//! does not would queue them with a commit or two each, so it is given one write with all commits that are ready.

use super::{Settings, SyncMethod};
use crate::Result;
use driver::{Access, FileId, Frame, Op};
use executor::{Executor, WaitQueue};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::rc::Rc;

/// How often each way of making one page durable is timed, in turns.
const ALONE: usize = 16;
/// So often a sync after a write has to be the faster way: of two equal ways it is in one case of 500 (a sign test).
const SYNC_FASTER_MIN: u32 = 14;
/// How many writes are under way at once, and how often.
const TOGETHER: usize = 4;
const TOGETHER_ROUNDS: usize = 8;
/// A device serves one write at a time if it takes that many times as long for four of them.
const SERIAL: f64 = 2.67;

/// What was measured of a log's device with a few pages, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// One data-sync write, the median.
    pub sync_write_ns: u64,
    /// One plain write and the sync after it, the median.
    pub write_then_sync_ns: u64,
    /// How often of 16 times that took less than the data-sync write before it.
    pub sync_faster: u32,
    /// Four of the faster kind, submitted together, until all are durable: the shortest time, because a busy processor takes
    /// notice of each late.
    pub together_ns: u64,
}

impl Measured {
    /// The way with the shorter latency for a write alone; a data-sync write where that is not certain.
    pub fn sync_method(&self) -> SyncMethod {
        if self.sync_faster >= SYNC_FASTER_MIN { SyncMethod::WriteThenSync } else { SyncMethod::SyncWrite }
    }

    /// How many writes are to be under way at once: one where the device serves no more, because others would only queue
    /// there, each with fewer commits; else four.
    pub fn writes_in_flight_max(&self) -> usize {
        let alone_ns = match self.sync_method() {
            SyncMethod::SyncWrite => self.sync_write_ns,
            SyncMethod::WriteThenSync => self.write_then_sync_ns,
        };
        if self.together_ns as f64 >= SERIAL * alone_ns as f64 { 1 } else { TOGETHER }
    }

    /// Times writes of zeros to a log file of `length` bytes that nothing was written to.
    pub(super) async fn measure(
        executor: &Executor,
        file: FileId,
        settings: &Settings,
        length: u64,
    ) -> Result<Measured> {
        let size = settings.page_size;
        let mut pages = Pages { executor, file, size, file_length: length, next: 0 };
        let mut frame = executor.frame(size)?;
        let (mut sync_writes, mut syncs) = (Vec::new(), Vec::new());
        for _ in 0..ALONE {
            for (method, times) in [(SyncMethod::SyncWrite, &mut sync_writes), (SyncMethod::WriteThenSync, &mut syncs)]
            {
                let began = executor.now();
                frame = pages.write(frame, method).await?;
                times.push(executor.now().since_ns(began));
            }
        }
        let sync_faster = sync_writes.iter().zip(&syncs).filter(|(sync_write, sync)| sync < sync_write).count() as u32;
        let (sync_write_ns, write_then_sync_ns) = (median(sync_writes), median(syncs));
        let alone = Measured { sync_write_ns, write_then_sync_ns, sync_faster, together_ns: 1 };
        let mut together = Vec::new();
        for _ in 0..TOGETHER_ROUNDS {
            together.push(pages.write_together(alone.sync_method()).await?);
        }
        Ok(Measured { together_ns: together.into_iter().min().unwrap_or(1), ..alone })
    }
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2].max(1)
}

/// The pages of the file, one after the other.
struct Pages<'a> {
    executor: &'a Executor,
    file: FileId,
    size: usize,
    file_length: u64,
    next: u64,
}

impl Pages<'_> {
    fn write_op(&mut self, buffer: Frame, method: SyncMethod) -> Op {
        let (file, length, access) = (self.file, self.size as u32, Access::Asynchronous);
        let offset = self.next;
        self.next = (offset + u64::from(length)) % self.file_length;
        Op::Write { file, offset, length, buffer, durable: method == SyncMethod::SyncWrite, access }
    }

    /// Makes the next page durable; gives the frame back.
    async fn write(&mut self, frame: Frame, method: SyncMethod) -> Result<Frame> {
        let completion = self.executor.perform(self.write_op(frame, method)).await;
        completion.result?;
        if method == SyncMethod::WriteThenSync {
            self.executor.perform(Op::Sync { file: self.file }).await.result?;
        }
        Ok(completion.buffer.expect("a write gives its buffer back"))
    }

    /// Makes the next pages durable, submitted together; the nanoseconds until that is so.
    async fn write_together(&mut self, method: SyncMethod) -> Result<u64> {
        let frames = self.executor.frames(TOGETHER, self.size)?;
        let outcome = Rc::new(Cell::new(Ok(())));
        let (left, ended) = (Rc::new(Cell::new(TOGETHER)), Rc::new(WaitQueue::new()));
        let began = self.executor.now();
        for frame in frames {
            let op = self.write_op(frame, method);
            let (outcome, left, ended) = (Rc::clone(&outcome), Rc::clone(&left), Rc::clone(&ended));
            let executor = self.executor.clone();
            self.executor.submit(op, move |completion| {
                if completion.result.is_err() {
                    outcome.set(completion.result.map(|_| ()));
                }
                left.set(left.get() - 1);
                ended.wake_all(&executor);
            });
        }
        while left.get() > 0 {
            ended.wait(self.executor).await;
        }
        outcome.replace(Ok(()))?;
        if method == SyncMethod::WriteThenSync {
            self.executor.perform(Op::Sync { file: self.file }).await.result?;
        }
        Ok(self.executor.now().since_ns(began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_chosen_and_as_many_writes_as_are_served_at_once() {
        let measured = |sync_write_ns, write_then_sync_ns, sync_faster, together_ns| {
            let measured = Measured { sync_write_ns, write_then_sync_ns, sync_faster, together_ns };
            (measured.sync_method(), measured.writes_in_flight_max())
        };
        assert_eq!(measured(100, 130, 0, 100), (SyncMethod::SyncWrite, 4));
        assert_eq!(measured(100, 130, 2, 220), (SyncMethod::SyncWrite, 4));
        assert_eq!(measured(100, 100, 0, 400), (SyncMethod::SyncWrite, 1));
        assert_eq!(measured(100, 80, 10, 300), (SyncMethod::SyncWrite, 1), "as by accident");
        assert_eq!(measured(180, 100, 16, 400), (SyncMethod::WriteThenSync, 1));
        assert_eq!(measured(180, 100, 14, 1), (SyncMethod::WriteThenSync, 4));
    }
}
