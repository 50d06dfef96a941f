use base::Lsn;
use executor::{Executor, TaskId};
use std::cell::RefCell;
use std::collections::VecDeque;

/// Tasks that wait until the log is durable up to some position, woken in log order. Commits arrive nearly in that order,
/// so a sorted queue is cheapest.
#[derive(Default)]
pub(super) struct Waiters(RefCell<VecDeque<(Lsn, TaskId)>>);

impl Waiters {
    /// Has a task wait.
    pub fn register(&self, task: TaskId, lsn: Lsn) {
        let mut queue = self.0.borrow_mut();
        let entry = (lsn, task);
        if queue.back().is_none_or(|(last, _)| *last <= lsn) {
            queue.push_back(entry);
        } else {
            let index = queue.partition_point(|(other, _)| *other <= lsn);
            queue.insert(index, entry);
        }
    }

    /// The first position that a task waits for.
    pub fn first(&self) -> Option<Lsn> {
        self.0.borrow().front().map(|(lsn, _)| *lsn)
    }

    /// Wakes the tasks that wait for positions up to `durable`.
    pub fn wake_up_to(&self, executor: &Executor, durable: Lsn) {
        let mut queue = self.0.borrow_mut();
        while let Some((lsn, task)) = queue.front().copied() {
            if lsn > durable {
                break;
            }
            queue.pop_front();
            executor.wake(task);
        }
    }
}
