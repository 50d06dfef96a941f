//! The processors of a computer on which several described machines are programs: a machine has one of them from when it has something to
//! do until it has nothing more to do, and makes room for the first of those that wait when it has had it for a slice.

use base::Instant;
use std::collections::VecDeque;

/// For how long a program runs before others that wait have their turn, of one processor. Linux lets programs run for longer on more
/// of them (`sched_base_slice` and its logarithmic scaling).
const SLICE_NS: u64 = 750_000;

pub(crate) struct Processors {
    count: usize,
    slice_ns: u64,
    /// Machines that run, and since when.
    running: Vec<(u32, Instant)>,
    waiting: VecDeque<u32>,
}

impl Processors {
    pub(crate) fn new(count: u32) -> Processors {
        let count = count.max(1);
        let slice_ns = SLICE_NS * u64::from(1 + count.min(8).ilog2());
        Processors { count: count as usize, slice_ns, running: Vec::new(), waiting: VecDeque::new() }
    }

    /// Whether a machine that has something to do runs at this moment. It waits in line otherwise.
    pub(crate) fn runs(&mut self, machine: u32, now: Instant) -> bool {
        if let Some(place) = self.running.iter().position(|(running, _)| *running == machine) {
            if self.waiting.is_empty() || now.since_ns(self.running[place].1) < self.slice_ns {
                return true;
            }
            self.running.swap_remove(place);
        }
        if !self.waiting.contains(&machine) {
            self.waiting.push_back(machine);
        }
        let has_room = self.has_room_for(machine);
        if has_room {
            self.waiting.retain(|waiting| *waiting != machine);
            self.running.push((machine, now));
        }
        has_room
    }

    /// Whether one is free for a machine that waits in line.
    pub(crate) fn has_room_for(&self, machine: u32) -> bool {
        let free = self.count - self.running.len();
        self.waiting.iter().take(free).any(|waiting| *waiting == machine)
    }

    /// A machine has nothing more to do.
    pub(crate) fn leave(&mut self, machine: u32) {
        self.running.retain(|(running, _)| *running != machine);
        self.waiting.retain(|waiting| *waiting != machine);
    }
}
