//! The table of tasks.

use crate::Sender;
use crate::executor::groups::Membership;
use crate::wakers::Call;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;

/// Names a task. The number is reused after the task's end, the generation tells the uses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl TaskId {
    /// The future given to `Executor::run`, which lives on the caller's stack.
    pub(crate) const MAIN: TaskId = TaskId { slot: u32::MAX, generation: 0 };
}

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

struct TaskSlot {
    generation: u32,
    /// Whether the task stands in the ready queue; a second wake is then nothing.
    queued: bool,
    live: bool,
    member: Membership,
    /// CPU work charged but not paid, in instructions.
    debt: u64,
    /// Absent while the task is being polled.
    future: Option<BoxedTask>,
    /// What its waker does.
    call: Arc<Call>,
    /// Absent while the task is being polled.
    waker: Option<Waker>,
    waiting: Waiting,
}

/// What is known of how a task waits.
#[derive(Clone, Copy, Default)]
struct Waiting {
    /// How many tasks had been spawned when it spawned its last one, that one included.
    last_spawn: u64,
    /// Whether it waited for one thing only at the end of the poll that was watched last.
    is_alone: bool,
}

/// A task that was taken out of the table for polling.
pub(crate) struct Taken {
    pub future: BoxedTask,
    pub waker: Waker,
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

pub(crate) struct Tasks {
    /// Where wakers send the tasks that they wake.
    sender: Arc<Sender<TaskId>>,
    main: Arc<Call>,
    slots: Vec<TaskSlot>,
    free: Vec<u32>,
    main_queued: bool,
    main_debt: u64,
    main_waiting: Waiting,
}

impl Tasks {
    pub fn new(sender: Sender<TaskId>) -> Tasks {
        let sender = Arc::new(sender);
        let main = Call::new(TaskId::MAIN, &sender);
        Tasks {
            sender,
            main,
            slots: Vec::new(),
            free: Vec::new(),
            main_queued: false,
            main_debt: 0,
            main_waiting: Waiting::default(),
        }
    }

    /// The waker of the future that is given to `Executor::run`.
    pub fn main_waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.main))
    }

    /// Whether a waker of a task that has not ended exists outside.
    pub fn is_any_waker_out(&self) -> bool {
        self.main.is_out() || self.slots.iter().any(|slot| slot.live && slot.call.is_out())
    }

    pub fn insert(&mut self, future: BoxedTask, member: Membership) -> TaskId {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.live = true;
            entry.member = member;
            entry.debt = 0;
            entry.waiting = Waiting::default();
            entry.future = Some(future);
            let task = TaskId { slot, generation: entry.generation };
            if entry.call.is_out() || entry.waker.is_none() {
                entry.call = Call::new(task, &self.sender);
                entry.waker = Some(Waker::from(Arc::clone(&entry.call)));
            } else {
                entry.call.turn_to(task.generation);
            }
            return task;
        }
        let task = TaskId { slot: self.slots.len() as u32, generation: 0 };
        let call = Call::new(task, &self.sender);
        let waker = Some(Waker::from(Arc::clone(&call)));
        let (member, future) = (member, Some(future));
        let waiting = Waiting::default();
        self.slots.push(TaskSlot {
            generation: 0,
            queued: false,
            live: true,
            member,
            debt: 0,
            future,
            call,
            waker,
            waiting,
        });
        task
    }

    /// Ends a task, which may be under way. Returns its future, to be dropped.
    pub fn discard(&mut self, task: TaskId) -> Option<BoxedTask> {
        if !self.is_live(task) {
            return None;
        }
        let future = self.slots[task.slot as usize].future.take();
        self.remove(task, None);
        future
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

    fn waiting_of(&mut self, task: TaskId) -> Option<&mut Waiting> {
        if task == TaskId::MAIN {
            return Some(&mut self.main_waiting);
        }
        let slot = &mut self.slots[task.slot as usize];
        (slot.live && slot.generation == task.generation).then_some(&mut slot.waiting)
    }

    /// Notes that a task has spawned the `number`th one.
    pub fn note_spawn(&mut self, task: TaskId, number: u64) {
        if let Some(waiting) = self.waiting_of(task) {
            waiting.last_spawn = number;
        }
    }

    /// How many tasks had been spawned when this one spawned its last one; `None` if it has ended.
    pub fn last_spawn(&self, task: TaskId) -> Option<u64> {
        match task == TaskId::MAIN {
            true => Some(self.main_waiting.last_spawn),
            false => self.is_live(task).then(|| self.slots[task.slot as usize].waiting.last_spawn),
        }
    }

    /// Notes whether a task waits for one thing only, as far as its own polls say.
    pub fn set_alone(&mut self, task: TaskId, is_alone: bool) {
        if let Some(waiting) = self.waiting_of(task) {
            waiting.is_alone = is_alone;
        }
    }

    /// Whether a task that does not run waits for one thing only.
    pub fn is_alone(&self, task: TaskId) -> bool {
        if task == TaskId::MAIN {
            return self.main_waiting.is_alone && !self.main.is_out();
        }
        let slot = &self.slots[task.slot as usize];
        // The waker of the task that asks is out of its slot while it is being polled, and counts all the same.
        self.is_live(task) && slot.waiting.is_alone && !slot.call.is_out()
    }

    /// Whether a task waits, was not woken, and no waker of it is elsewhere.
    pub fn is_undisturbed(&self, task: TaskId) -> bool {
        if task == TaskId::MAIN {
            return !self.main_queued && !self.main.is_out();
        }
        let slot = &self.slots[task.slot as usize];
        self.is_live(task) && !slot.queued && !slot.call.is_out()
    }

    /// What calls a task, beside its waker.
    pub fn call_for(&self, task: TaskId) -> Arc<Call> {
        Call::new(task, &self.sender)
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
        let future = slot.future.take()?;
        let waker = slot.waker.take().expect("a task that is not being polled has its waker");
        Some(Taken { future, waker, debt: slot.debt, member: slot.member })
    }

    pub fn take_main_debt(&mut self) -> u64 {
        self.main_queued = false;
        self.main_debt
    }

    pub fn set_main_debt(&mut self, debt: u64) {
        self.main_debt = debt;
    }

    /// Puts a task back that goes on. Returns what there is no task for any more, to be dropped.
    #[inline]
    pub fn put_back(&mut self, task: TaskId, future: BoxedTask, waker: Waker, debt: u64) -> Option<(BoxedTask, Waker)> {
        let slot = &mut self.slots[task.slot as usize];
        if slot.generation != task.generation {
            return Some((future, waker));
        }
        slot.future = Some(future);
        slot.waker = Some(waker);
        slot.debt = debt;
        None
    }

    pub fn remove(&mut self, task: TaskId, waker: Option<Waker>) {
        let slot = &mut self.slots[task.slot as usize];
        if waker.is_some() {
            slot.waker = waker;
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.live = false;
        slot.queued = false;
        self.free.push(task.slot);
    }

    pub fn drain(&mut self) -> Vec<BoxedTask> {
        self.slots.iter_mut().filter_map(|slot| slot.future.take()).collect()
    }
}
