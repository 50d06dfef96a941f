//! Task groups: servers in System M's sense (Garcia-Molina and Salem 1988, section 2).
//!
//! A group's CPU time is accounted. In a group that takes turns ([`Members::InTurn`]) one member at a time is runnable: it
//! keeps the turn while it waits for a CPU, and passes it on when it waits for anything else (a lock, a device, another task)
//! or yields. The turn goes to the runnable member of the least rank, among equals to the one that was woken first. Members are
//! never preempted, as among the paper's coroutines (section 2.4).

use crate::tasks::Tasks;
use crate::{Executor, JoinHandle, TaskId};
use base::Instant;
use std::collections::VecDeque;

/// Names a group of one executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub(crate) u8);

/// How the members of a group share the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// Each runs as any other task; the group only has an account.
    Free,
    /// They take turns.
    InTurn,
}

/// A task's place in its group; that of the task that spawned it unless another is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub group: u8,
    rank: u8,
}

/// A rank that takes no turns.
const FREE: u8 = u8::MAX;

impl Membership {
    /// In no group: the account of group zero is not used.
    pub const NONE: Membership = Membership { group: 0, rank: FREE };

    #[inline]
    pub fn takes_turns(self) -> bool {
        self.rank != FREE
    }
}

struct Entry {
    name: &'static str,
    members: Members,
    /// The member that may run or that waits for a CPU.
    holder: Option<TaskId>,
    /// Woken members that wait for the turn, by rank, then in the order in which they were woken.
    runnable: VecDeque<(u8, TaskId)>,
    cpu_ns: u64,
}

/// The groups and their accounts.
#[derive(Default)]
pub(crate) struct Groups {
    entries: Vec<Entry>,
    /// Since when the present account has had the CPU.
    since: Instant,
}

impl Groups {
    pub fn enter(&mut self, name: &'static str, members: Members) -> Group {
        if let Some(place) = self.entries.iter().position(|entry| entry.name == name) {
            assert_eq!(self.entries[place].members, members, "group '{name}' is of one kind");
            return Group(place as u8 + 1);
        }
        assert!(self.entries.len() < usize::from(u8::MAX), "at most 255 groups");
        self.entries.push(Entry { name, members, holder: None, runnable: VecDeque::new(), cpu_ns: 0 });
        Group(self.entries.len() as u8)
    }

    pub fn membership(&self, group: Group, rank: u8) -> Membership {
        assert!(rank < FREE, "ranks are below 255");
        let takes_turns = self.entries[usize::from(group.0) - 1].members == Members::InTurn;
        Membership { group: group.0, rank: if takes_turns { rank } else { FREE } }
    }

    fn entry(&mut self, group: u8) -> &mut Entry {
        &mut self.entries[usize::from(group) - 1]
    }

    /// A member was woken while the task `polled` runs. Returns whether it may run now.
    pub fn wake(&mut self, task: TaskId, member: Membership, polled: TaskId) -> bool {
        let entry = self.entry(member.group);
        match entry.holder {
            // Its wait for a CPU is over.
            Some(holder) if holder == task && polled != task => return true,
            None => {
                entry.holder = Some(task);
                return true;
            }
            Some(_) => {}
        }
        let place = entry.runnable.partition_point(|(rank, _)| *rank <= member.rank);
        entry.runnable.insert(place, (member.rank, task));
        false
    }

    /// The holder of the turn waits for something other than a CPU, or has ended. Returns the task that may run now.
    pub fn pass_turn(&mut self, group: u8, tasks: &Tasks) -> Option<TaskId> {
        let entry = self.entry(group);
        entry.holder = None;
        while let Some((_, task)) = entry.runnable.pop_front() {
            if tasks.is_live(task) {
                entry.holder = Some(task);
                break;
            }
        }
        entry.holder
    }

    fn is_wanted(&self, member: Membership) -> bool {
        let first = self.entries[usize::from(member.group) - 1].runnable.front();
        first.is_some_and(|(rank, _)| *rank <= member.rank)
    }

    /// From `now` on the CPU is another account's than `before`.
    pub fn switch(&mut self, before: u8, now: Instant) {
        if before != 0 {
            let ns = now.since_ns(self.since);
            self.entry(before).cpu_ns += ns;
        }
        self.since = now;
    }

    /// The group was given CPU time.
    pub fn grant(&mut self, group: u8, ns: u64) {
        self.entry(group).cpu_ns += ns;
    }

    pub fn cpu_ns(&self, group: Group) -> u64 {
        self.entries[usize::from(group.0) - 1].cpu_ns
    }

    pub fn accounts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.entries.iter().map(|entry| (entry.name, entry.cpu_ns))
    }

    pub fn restart(&mut self, now: Instant) {
        self.since = now;
        for entry in &mut self.entries {
            entry.cpu_ns = 0;
        }
    }

    /// All tasks are gone.
    pub fn clear(&mut self) {
        for entry in &mut self.entries {
            entry.holder = None;
            entry.runnable.clear();
        }
    }
}

impl Executor {
    /// The group of this name, which is made if there is none.
    ///
    /// # Panics
    /// If there is one whose members are of another kind, or there are 255 groups.
    ///
    /// ```
    /// # use entresol_executor::{Executor, Members, Order};
    /// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
    /// use driver::Work;
    ///
    /// let driver = VirtualDriver::new(Hardware::named("rahm-1991")?, Options::default(), Media::new());
    /// let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// let bank = executor.group("bank", Members::InTurn);
    /// let clone = executor.clone();
    /// let work = executor.spawn_in(bank, 0, async move {
    ///     clone.charge(Work::BeginTransaction);
    ///     clone.pay_debt().await;
    /// });
    /// executor.run(work.join()).expect("the machine goes on");
    /// assert!(executor.cpu_ns(bank) > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group(&self, name: &'static str, members: Members) -> Group {
        self.0.groups.borrow_mut().enter(name, members)
    }

    /// Starts a task in a group. Where members take turns, those of lower `rank` go first.
    ///
    /// # Panics
    /// If `rank` is 255.
    pub fn spawn_in<T: 'static>(
        &self,
        group: Group,
        rank: u8,
        future: impl Future<Output = T> + 'static,
    ) -> JoinHandle<T> {
        let member = self.0.groups.borrow().membership(group, rank);
        self.spawn_as(member, future)
    }

    /// The current task's rank from now on, in a group that takes turns; elsewhere ranks do not matter.
    ///
    /// # Panics
    /// If `rank` is 255.
    pub fn set_rank(&self, rank: u8) {
        assert!(rank < FREE, "ranks are below 255");
        let member = self.0.member.get();
        if member.takes_turns() && member.rank != rank {
            let member = Membership { rank, ..member };
            self.0.member.set(member);
            self.0.tasks.borrow_mut().set_member(self.current(), member);
        }
    }

    /// Whether a member of the current task's group that does not rank behind it waits for the turn: it would go on if this
    /// task let others run ([`Executor::yield_now`]).
    #[inline]
    pub fn is_turn_wanted(&self) -> bool {
        let member = self.0.member.get();
        member.takes_turns() && self.0.groups.borrow().is_wanted(member)
    }

    /// CPU time that the group has had since the start or the last [`Executor::restart_statistics`], in nanoseconds. On
    /// described hardware that which its CPU was asked for; a synchronous access counts with its instructions, not with the
    /// device's time. Really the time between the moments at which the engine's thread turned to the group's tasks and away
    /// from them: what a driver's own threads do is not in it, nor what the driver does in [`driver::Driver::park`].
    pub fn cpu_ns(&self, group: Group) -> u64 {
        self.0.groups.borrow().cpu_ns(group)
    }

    /// Every group's name and CPU time, as [`Executor::cpu_ns`], in the order in which they were made.
    pub fn accounts(&self) -> Vec<(&'static str, u64)> {
        self.0.groups.borrow().accounts().collect()
    }

    /// The task that is being polled waits for a CPU.
    pub(crate) fn keep_turn(&self) {
        self.0.computing.set(true);
    }

    /// A member of a group that takes turns was polled.
    pub(super) fn end_turn(&self, task: TaskId, member: Membership) {
        let tasks = self.0.tasks.borrow();
        if self.0.computing.get() && !tasks.is_queued(task) {
            return;
        }
        if let Some(next) = self.0.groups.borrow_mut().pass_turn(member.group, &tasks) {
            self.0.ready.borrow_mut().push_back(next);
        }
    }

    /// The CPU turns to tasks of another group, or to none's.
    pub(super) fn switch_account(&self, group: u8) {
        let before = self.0.account.replace(group);
        let now = self.now();
        self.0.groups.borrow_mut().switch(before, now);
    }
}
