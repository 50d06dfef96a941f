//! The table of tasks.

use crate::executor::groups::Membership;
use std::future::Future;
use std::pin::Pin;

/// Names a task. The number is reused after the task's end, the generation tells the uses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// The future given to `Executor::run`, which lives on the caller's stack.
    pub(crate) const MAIN: TaskId = TaskId { slot: u32::MAX, generation: 0 };
}

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct Slot {
    generation: u32,
    /// Whether the task stands in the ready queue; a second wake is then nothing.
    queued: bool,
    live: bool,
    member: Membership,
    /// CPU work charged but not settled, in instructions.
    debt: u64,
    /// Absent while the task is being polled.
    future: Option<BoxedTask>,
}

/// A task that was taken out of the table for polling.
pub(crate) struct Taken {
    pub future: BoxedTask,
    pub debt: u64,
    pub member: Membership,
}

/// What a wake means.
pub(crate) enum Wake {
    /// Nothing: the task is gone or stands in a queue.
    Nothing,
    /// It joins the ready queue.
    Ready,
    /// It may run when its group's turn is its own.
    InTurn(Membership),
}

#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
    main_queued: bool,
    main_debt: u64,
}

impl Tasks {
    pub fn insert(&mut self, future: BoxedTask, member: Membership) -> TaskId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.live = true;
            entry.member = member;
            entry.debt = 0;
            entry.future = Some(future);
            return TaskId { slot, generation: entry.generation };
        }
        let slot = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, queued: false, live: true, member, debt: 0, future: Some(future) });
        TaskId { slot, generation: 0 }
    }

    /// Marks the task as queued, unless it is gone or queued already.
    #[inline]
    pub fn enqueue(&mut self, task: TaskId) -> Wake {
        if task == TaskId::MAIN {
            return if std::mem::replace(&mut self.main_queued, true) { Wake::Nothing } else { Wake::Ready };
        }
        let slot = &mut self.slots[task.slot as usize];
        if !slot.live || slot.generation != task.generation || std::mem::replace(&mut slot.queued, true) {
            return Wake::Nothing;
        }
        if slot.member.takes_turns() { Wake::InTurn(slot.member) } else { Wake::Ready }
    }

    /// Whether the task has not ended.
    pub fn is_live(&self, task: TaskId) -> bool {
        let slot = &self.slots[task.slot as usize];
        slot.live && slot.generation == task.generation
    }

    /// Whether a live task has been woken.
    pub fn is_queued(&self, task: TaskId) -> bool {
        self.slots[task.slot as usize].queued
    }

    /// The task's place in its group is another from now on.
    pub fn set_member(&mut self, task: TaskId, member: Membership) {
        self.slots[task.slot as usize].member = member;
    }

    /// Takes a queued task out for polling; `None` if it ended meanwhile.
    pub fn take(&mut self, task: TaskId) -> Option<Taken> {
        let slot = &mut self.slots[task.slot as usize];
        if slot.generation != task.generation {
            return None;
        }
        slot.queued = false;
        Some(Taken { future: slot.future.take()?, debt: slot.debt, member: slot.member })
    }

    pub fn take_main_debt(&mut self) -> u64 {
        self.main_queued = false;
        self.main_debt
    }

    pub fn set_main_debt(&mut self, debt: u64) {
        self.main_debt = debt;
    }

    pub fn put_back(&mut self, task: TaskId, future: BoxedTask, debt: u64) {
        let slot = &mut self.slots[task.slot as usize];
        slot.future = Some(future);
        slot.debt = debt;
    }

    pub fn remove(&mut self, task: TaskId) {
        let slot = &mut self.slots[task.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.live = false;
        slot.queued = false;
        self.free.push(task.slot);
    }

    pub fn drain(&mut self) -> Vec<BoxedTask> {
        self.slots.iter_mut().filter_map(|slot| slot.future.take()).collect()
    }
}
