//! Tasks that wait for reads. A page that was read is pinned for each of them until it runs: where tasks are more than
//! frames, another one would take the frame before, and all would read for ever.
//!
//! Waiting for a read that another task has begun counts as no miss: a hit ratio counts the reference that fetches the
//! page.

use super::Buffer;
use executor::{Relay, TaskId};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

/// The waits, by frame and ticket.
#[derive(Default)]
pub struct Loading {
    waits: BTreeMap<(u32, u64), Wait>,
    ticket: u64,
}

struct Wait {
    task: TaskId,
    pinned: bool,
}

impl Loading {
    /// A task begins to wait for the read into a frame.
    pub fn begin(&mut self, frame: u32, task: TaskId) -> u64 {
        self.ticket += 1;
        self.waits.insert((frame, self.ticket), Wait { task, pinned: false });
        self.ticket
    }

    /// The page is there: returns how many pins it needs.
    pub fn loaded(&mut self, frame: u32, woken: &mut Vec<TaskId>) -> u32 {
        let mut pins = 0;
        for wait in self.waits.range_mut((frame, 0)..=(frame, u64::MAX)).map(|(_, wait)| wait) {
            debug_assert!(!wait.pinned, "a frame is read into once while it is pinned");
            wait.pinned = true;
            woken.push(wait.task);
            pins += 1;
        }
        pins
    }

    /// The page will not come.
    pub fn failed(&mut self, frame: u32, woken: &mut Vec<TaskId>) {
        let waits = self.waits.extract_if((frame, 0)..=(frame, u64::MAX), |_, _| true);
        woken.extend(waits.map(|(_, wait)| wait.task));
    }

    /// A wait ends. Returns whether the page is pinned for it.
    pub fn end(&mut self, frame: u32, ticket: u64) -> bool {
        self.waits.remove(&(frame, ticket)).is_some_and(|wait| wait.pinned)
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
