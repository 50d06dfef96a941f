//! Timers: a binary heap of packed (deadline, sequence) keys, first in first out on ties (`PROBES.md`, executor).

use crate::TaskId;
use base::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u128, u32, u32)>>,
    sequence: u64,
}

impl Timers {
    pub fn add(&mut self, deadline: Instant, task: TaskId) {
        self.sequence += 1;
        let key = u128::from(deadline.ns()) << 64 | u128::from(self.sequence);
        self.heap.push(Reverse((key, task.slot, task.generation)));
    }

    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((key, ..))| Instant::from_ns((key >> 64) as u64))
    }

    /// Removes and returns a task whose deadline has come.
    pub fn pop_due(&mut self, now: Instant) -> Option<TaskId> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, slot, generation))| TaskId { slot, generation })
    }

    pub fn clear(&mut self) {
        self.heap.clear();
    }
}
