//! Whether a wait leads back to the task that waits: then nothing ends it.
//!
//! A task that waits does not end the transactions that it has. So others that wait for these wait for what the task waits for: the end of
//! a transaction whose lock it wants, or of one of all that are active, or the answers of other tasks to what it has asked for by way of
//! a queue, as the requests of a handle are. This is followed from the transaction that is in the way to the task at which it began.
//!
//! A task that has a transaction at hand may have given it to another by ways that are not seen, and so it is looked again after a moment. One
//! that runs a closure as a transaction has not.

use crate::engine::Engine;
use base::time::MILLISECOND_NS;
use base::{Instant, TransactionId};
use executor::{Caller, TaskId};
use std::cell::Cell;
use structures::lock::Owner;

/// How long a task waits before it is told that it waits for itself, in nanoseconds: others may hold its transactions by ways
/// that are not seen, and use them by then.
pub(crate) const GRACE_NS: u64 = 100 * MILLISECOND_NS;

/// How many steps a search makes at most. What it has not found by then it does not find.
const STEPS_MAX: u32 = 4_000;

/// What a task waits for, of what another transaction may keep from it.
#[derive(Clone, Copy)]
pub(crate) enum Sought {
    /// The lock that this owner has asked for.
    Lock(Owner),
    /// To begin one.
    Beginning,
    /// The end of a sweep, which takes no segment that an unfinished transaction has changed.
    Sweep,
}

/// A wait of a task, which may be for itself.
pub(crate) struct OwnWait<'a> {
    engine: &'a Engine,
    sought: Sought,
    task: TaskId,
    /// From when on it is told of what is not sure.
    looks_at: Instant,
    is_timed: Cell<bool>,
    /// Whether its poll before this one was watched.
    was_watched: Cell<bool>,
    has_told: Cell<bool>,
}

impl OwnWait<'_> {
    /// The current task begins to wait.
    pub fn new(engine: &Engine, sought: Sought) -> OwnWait<'_> {
        let executor = &engine.core.executor;
        let (task, looks_at) = (executor.current(), executor.now().plus_ns(GRACE_NS));
        let (is_timed, was_watched, has_told) = Default::default();
        OwnWait { engine, sought, task, looks_at, is_timed, was_watched, has_told }
    }

    /// Whether it is for ever, as it is known at each poll of the wait.
    pub fn is_for_ever(&self) -> bool {
        let executor = &self.engine.core.executor;
        let is_alone = self.was_watched.take() && executor.is_alone(self.task);
        if !self.may_be() {
            return false;
        }
        executor.watch_poll();
        self.was_watched.set(true);
        let is_early = executor.now() < self.looks_at;
        if is_early && !self.is_timed.replace(true) {
            executor.poll_at(self.looks_at);
        }
        let mut search = Search::new(self.engine, self.owner(), self.task);
        match search.of_sought(self.sought) {
            End::Open => false,
            End::Elsewhere => {
                self.tell(search.workers);
                false
            }
            End::Here if is_early && !self.is_sure() => false,
            End::Here if is_alone => true,
            End::Here => {
                executor.poll_when_alone();
                false
            }
        }
    }

    fn owner(&self) -> Option<Owner> {
        match self.sought {
            Sought::Lock(owner) => Some(owner),
            Sought::Beginning | Sought::Sweep => None,
        }
    }

    fn may_be(&self) -> bool {
        may_be_own(self.engine, self.owner(), self.task)
    }

    /// Whether no transaction that it leads through can have been given to others.
    fn is_sure(&self) -> bool {
        let mut search = Search::new(self.engine, self.owner(), self.task);
        search.is_sure = true;
        search.of_sought(self.sought) == End::Here
    }

    /// It closes a circle of others: has those look who may be told of that.
    fn tell(&self, workers: Vec<TaskId>) {
        if !self.has_told.replace(true) {
            workers.into_iter().for_each(|worker| self.engine.core.executor.wake(worker));
        }
    }
}

/// Whether a task has a transaction beside this one, or tasks wait for others of which this may be one. Hardly any does, and a search
/// takes long where many wait.
pub(super) fn may_be_own(engine: &Engine, owner: Option<Owner>, task: TaskId) -> bool {
    let has_other = || engine.transactions.registry.borrow().has_other(owner, |user| is_kept(engine, user, task));
    engine.core.executor.are_answers_awaited() || has_other()
}

/// Whether a transaction ends only by way of this task, which has `owner`, too.
pub(super) fn is_own(engine: &Engine, (owner, task): (Owner, TaskId), other: Owner) -> bool {
    Search::new(engine, Some(owner), task).of_owner(other) == End::Here
}

fn is_kept(engine: &Engine, user: Caller, task: TaskId) -> bool {
    user.task() == task && engine.core.executor.has_kept(user)
}

/// The transactions that have changed something in sets.
fn changers(engine: &Engine) -> Vec<Owner> {
    let (owners, sets) = (engine.transactions.registry.borrow().owners_in_use(), engine.sets.sets.borrow());
    owners.into_iter().filter(|owner| sets.changes(*owner) > 0).collect()
}

/// The numbers of these.
pub(crate) fn changer_ids(engine: &Engine) -> Vec<TransactionId> {
    let (owners, registry) = (changers(engine), engine.transactions.registry.borrow());
    owners.into_iter().map(|owner| registry.id_of(owner)).collect()
}

/// Where a way through those that wait for each other ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// At what may go on.
    Open,
    /// In a circle, but not where it began.
    Elsewhere,
    /// At the task where it began.
    Here,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passed {
    Owner(Owner),
    Task(TaskId),
}

struct Search<'a> {
    engine: &'a Engine,
    /// Where it began.
    owner: Option<Owner>,
    task: TaskId,
    /// Whether it goes through transactions of closures only.
    is_sure: bool,
    path: Vec<Passed>,
    steps_left: u32,
    /// Tasks through which it came, each as one that works on an answer.
    workers: Vec<TaskId>,
}

impl Search<'_> {
    fn new(engine: &Engine, owner: Option<Owner>, task: TaskId) -> Search<'_> {
        let (path, workers) = Default::default();
        Search { engine, owner, task, is_sure: false, path, steps_left: STEPS_MAX, workers }
    }

    fn of_sought(&mut self, sought: Sought) -> End {
        match sought {
            Sought::Lock(owner) => self.of_any(self.engine.core.locks.blockers(owner)),
            Sought::Beginning => self.of_active(),
            Sought::Sweep => self.of_any(changers(self.engine)),
        }
    }

    /// Of a transaction, until it has ended.
    fn of_owner(&mut self, owner: Owner) -> End {
        if Some(owner) == self.owner {
            return End::Elsewhere;
        }
        self.through(Passed::Owner(owner), |search| {
            let blockers = search.engine.core.locks.blockers(owner);
            if !blockers.is_empty() {
                return search.of_any(blockers);
            }
            let user = search.engine.transactions.registry.borrow().user_of(owner);
            match user.filter(|user| search.goes_through(owner, *user)) {
                Some(user) => search.of_task(user.task()),
                None => End::Open,
            }
        })
    }

    fn goes_through(&self, owner: Owner, user: Caller) -> bool {
        let is_sure = || self.engine.transactions.registry.borrow().is_of_closure(owner);
        self.engine.core.executor.has_kept(user) && (!self.is_sure || is_sure())
    }

    /// Of one of them at least.
    fn of_any(&mut self, owners: Vec<Owner>) -> End {
        owners.into_iter().map(|owner| self.of_owner(owner)).max().unwrap_or(End::Open)
    }

    /// Of a task, until it goes on.
    fn of_task(&mut self, task: TaskId) -> End {
        if task == self.task {
            return End::Here;
        }
        self.through(Passed::Task(task), |search| {
            let executor = &search.engine.core.executor;
            if let Some(workers) = executor.workers_for(task) {
                search.workers.extend(&workers);
                return all(workers, |worker| search.of_task(worker));
            }
            if !executor.is_alone(task) {
                return End::Open;
            }
            if let Some(owner) = search.engine.core.locks.waiting_in(task) {
                return search.of_any(search.engine.core.locks.blockers(owner));
            }
            let begins = search.engine.transactions.nested.borrow().contains(&task);
            if begins { search.of_active() } else { End::Open }
        })
    }

    /// Of all that are active but for snapshots, one of which must end before another one begins. While a sweep waits for their ends, it is that which goes on.
    fn of_active(&mut self) -> End {
        let transactions = &self.engine.transactions;
        let owners = transactions.registry.borrow().owners_in_use();
        let (active, level) = (transactions.may_change(), transactions.rules.multiprogramming_level);
        let is_swept = transactions.admitted_max.get() != level;
        // One that ends by itself has no user.
        if is_swept || active < level || owners.len() != active {
            return End::Open;
        }
        all(owners, |owner| self.of_owner(owner))
    }

    /// Goes through a place, unless it has come by it on this way.
    fn through(&mut self, place: Passed, go: impl FnOnce(&mut Self) -> End) -> End {
        if self.path.contains(&place) {
            return End::Elsewhere;
        }
        let Some(left) = self.steps_left.checked_sub(1) else { return End::Open };
        self.steps_left = left;
        self.path.push(place);
        let end = go(self);
        self.path.pop();
        end
    }
}

/// Of all of them together: of none that may go on.
fn all<T>(parts: Vec<T>, end: impl FnMut(T) -> End) -> End {
    let mut latest = End::Open;
    for end in parts.into_iter().map(end) {
        if end == End::Open {
            return End::Open;
        }
        latest = latest.max(end);
    }
    latest
}
