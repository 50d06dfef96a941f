//! Tasks that wait for reads. A page that was read is pinned for each of them until it runs: where tasks are more than
//! frames, another one would take the frame before, and all would read for ever.
//!
//! Waiting for a read that another task has begun counts as no miss: a hit ratio counts the reference that fetches the
//! page.

use super::Buffer;
use executor::{Relay, TaskId};
use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;

/// The waits, in the order of their frames and tickets. Few reads are under way at once, so a search and a short move are less than
/// what a tree takes.
#[derive(Default)]
pub struct Loading {
    waits: Vec<Wait>,
    ticket: u64,
}

struct Wait {
    frame: u32,
    ticket: u64,
    task: TaskId,
    pinned: bool,
}

impl Loading {
    /// A task begins to wait for the read into a frame.
    pub fn begin(&mut self, frame: u32, task: TaskId) -> u64 {
        self.ticket += 1;
        let place = self.place(frame, self.ticket);
        self.waits.insert(place, Wait { frame, ticket: self.ticket, task, pinned: false });
        self.ticket
    }

    /// The page is there: returns how many pins it needs.
    pub fn loaded(&mut self, frame: u32, woken: &mut Vec<TaskId>) -> u32 {
        let waits = self.of(frame);
        for wait in &mut self.waits[waits.clone()] {
            debug_assert!(!wait.pinned, "a frame is read into once while it is pinned");
            wait.pinned = true;
            woken.push(wait.task);
        }
        waits.len() as u32
    }

    /// The page will not come.
    pub fn failed(&mut self, frame: u32, woken: &mut Vec<TaskId>) {
        let waits = self.of(frame);
        woken.extend(self.waits.drain(waits).map(|wait| wait.task));
    }

    /// A wait ends. Returns whether the page is pinned for it.
    pub fn end(&mut self, frame: u32, ticket: u64) -> bool {
        let place = self.place(frame, ticket);
        let is_there = self.waits.get(place).is_some_and(|wait| (wait.frame, wait.ticket) == (frame, ticket));
        is_there && self.waits.remove(place).pinned
    }

    /// The waits for a frame.
    fn of(&self, frame: u32) -> Range<usize> {
        self.place(frame, 0)..self.place(frame, u64::MAX)
    }

    /// Where a wait is or would come in.
    fn place(&self, frame: u32, ticket: u64) -> usize {
        self.waits.partition_point(|wait| (wait.frame, wait.ticket) < (frame, ticket))
    }
}

/// The current task's wait for the read into a frame.
struct LoadingWait<'a> {
    buffer: &'a Buffer,
    frame: u32,
    ticket: u64,
}

impl Buffer {
    /// Waits for the read into a frame. Returns whether the page is there, pinned once for the caller; the task may have been
    /// woken for another reason.
    pub(super) async fn await_load(&self, frame: u32) -> bool {
        let (mut waiting, mut relay) = (None, Relay::default());
        poll_fn(|context| {
            if waiting.is_some() {
                return Poll::Ready(());
            }
            let task = self.executor.waiter(context, &mut relay);
            let ticket = self.pool.borrow_mut().begin_wait(frame, task);
            waiting = Some(LoadingWait { buffer: self, frame, ticket });
            Poll::Pending
        })
        .await;
        let waiting = waiting.expect("it waits since it was polled first");
        let ticket = waiting.ticket;
        std::mem::forget(waiting);
        self.pool.borrow_mut().end_wait(frame, ticket)
    }
}

impl Drop for LoadingWait<'_> {
    fn drop(&mut self) {
        if self.buffer.pool.borrow_mut().end_wait(self.frame, self.ticket) {
            self.buffer.unpin(self.frame);
        }
    }
}
