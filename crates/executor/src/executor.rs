pub(crate) mod cluster;
mod faults;
mod files;
pub(crate) mod groups;
mod machine;
mod stop;
mod work;

use crate::awaiting::Awaiting;
use crate::caller::Spawns;
use crate::join::{Job, Outcome};
use crate::mailbox::with_bell;
use crate::operations::{Operations, State};
use crate::panics::{Containment, catch_panic};
use crate::pricing::Pricing;
use crate::tasks::{Taken, Tasks, Wake};
use crate::timers::Timers;
use crate::unanswered::{Names, Submission, Unanswered};
use crate::{JoinHandle, Mailbox, Perform, Relay, TaskId, WaitQueue};
use base::{Clock, Instant, Random};
use driver::{Completion, Driver, Halt, Op, OpKind, Token, Work};
use groups::{Groups, Membership};
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::task::{Context, Poll, Waker};
use stop::Running;

/// How many tasks run before the driver is asked again: few enough that a device waits some ten microseconds at most, enough
/// that a system call for each round costs each task little.
const ROUND_MAX: usize = 16;
/// Rounds for which a task that gives way waits at most.
const YIELDED_ROUNDS_MAX: u32 = 64;

/// In which order ready tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First woken, first run.
    FirstInFirstOut,
    /// Any order, drawn from this seed: torture.
    Seeded(u64),
}

/// One step of the engine as seen from the seam; the sequence of steps is the same on every driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A charge.
    Work(Work),
    /// An operation, CPU requests excepted.
    Op(OpKind),
}

/// Runs tasks on one thread above one driver. Clones are handles to the same executor.
///
/// ```
/// use base::time::SECOND_NS;
/// use entresol_executor::{Executor, Order};
/// use virtual_driver::{Hardware, Media, Options, VirtualDriver};
///
/// let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// let began = executor.now();
/// let total = executor.run(async {
///     let clone = executor.clone();
///     let task = executor.spawn(async move {
///         clone.sleep_ns(3 * SECOND_NS).await;
///         20
///     });
///     executor.sleep_ns(SECOND_NS).await;
///     task.join().await + 1
/// })?;
/// assert_eq!((total, executor.now().since_ns(began)), (21, 3 * SECOND_NS), "of virtual time");
/// # Ok::<(), driver::Halt>(())
/// ```
#[derive(Clone)]
pub struct Executor(pub(crate) Rc<Inner>, pub(crate) Spawns);

pub(crate) struct Inner {
    driver: RefCell<Box<dyn Driver>>,
    pub(crate) tasks: RefCell<Tasks>,
    ready: RefCell<VecDeque<TaskId>>,
    /// Tasks that run when no other is ready, or has been for long.
    yielded_tasks: RefCell<VecDeque<TaskId>>,
    /// Rounds since the first of them was let run, or came.
    waited: Cell<u32>,
    order: RefCell<Option<Random>>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) operations: RefCell<Operations>,
    /// The names of devices and files.
    pub(crate) names: RefCell<Names>,
    /// What was left unanswered for longer than it might be.
    pub(crate) overdue: OnceCell<Unanswered>,
    faults: faults::Ear,
    pub(crate) containment: Containment,
    pricing: RefCell<Pricing>,
    priced: bool,
    /// How often each kind of work was done, indexed by `Work as usize`.
    work_counts: [Cell<u64>; Work::ALL.len()],
    bell: WaitQueue,
    current: Cell<TaskId>,
    /// Which waker is that of the task that is being polled.
    pub(crate) polled: Cell<*const ()>,
    /// Tasks that were woken by their wakers.
    called: Mailbox<TaskId>,
    /// How many tasks were ever spawned.
    pub(crate) spawned: Cell<u64>,
    /// How often the task that is being polled has said, in this poll, that it waits.
    pub(crate) registered: Cell<u32>,
    /// Whether the present poll is watched.
    pub(crate) watched: Cell<bool>,
    /// Whether its task is polled again if it waits for one thing only then.
    pub(crate) polls_alone: Cell<bool>,
    pub(crate) awaiting: Awaiting,
    groups: RefCell<Groups>,
    /// The place of the task that is being polled.
    member: Cell<Membership>,
    /// Whose account the CPU is on, as [`Membership::group`].
    account: Cell<u8>,
    /// Whether the task that was polled last waits for a CPU.
    computing: Cell<bool>,
    debt: Cell<u64>,
    /// The moment at which the present round began, if it was asked for.
    round: Cell<Option<Instant>>,
    steps: RefCell<Option<Vec<Step>>>,
    recording: Cell<bool>,
    /// Whether the driver is gone, so that no task runs any more.
    stopped: Cell<bool>,
    is_running: Cell<bool>,
}

impl Executor {
    /// An executor above `driver`.
    pub fn new(driver: Box<dyn Driver>, order: Order) -> Executor {
        let prices = driver.prices();
        let (caller, called) = with_bell(driver.doorbell());
        let order = match order {
            Order::FirstInFirstOut => None,
            Order::Seeded(seed) => Some(Random::stream(seed, "task order")),
        };
        Executor(
            Rc::new(Inner {
                driver: RefCell::new(driver),
                tasks: RefCell::new(Tasks::new(caller)),
                ready: RefCell::default(),
                yielded_tasks: RefCell::default(),
                waited: Cell::new(0),
                order: RefCell::new(order),
                timers: RefCell::default(),
                operations: RefCell::default(),
                names: RefCell::default(),
                overdue: OnceCell::new(),
                faults: faults::Ear::default(),
                containment: Containment::default(),
                pricing: RefCell::new(Pricing::new(prices)),
                priced: prices.is_some(),
                work_counts: [const { Cell::new(0) }; Work::ALL.len()],
                bell: WaitQueue::new(),
                current: Cell::new(TaskId::MAIN),
                polled: Cell::new(std::ptr::null()),
                called,
                spawned: Cell::new(0),
                registered: Cell::new(0),
                watched: Cell::new(false),
                polls_alone: Cell::new(false),
                awaiting: Awaiting::default(),
                groups: RefCell::default(),
                member: Cell::new(Membership::NONE),
                account: Cell::new(Membership::NONE.group),
                computing: Cell::new(false),
                debt: Cell::new(0),
                round: Cell::new(None),
                steps: RefCell::new(None),
                recording: Cell::new(false),
                stopped: Cell::new(false),
                is_running: Cell::new(false),
            }),
            Spawns::OfCaller,
        )
    }

    /// The present moment on the driver's clock.
    #[inline]
    pub fn now(&self) -> Instant {
        self.0.driver.borrow().now()
    }

    /// The clock of a simulated machine, beside the time that it shares with others; see [`Driver::clock`].
    pub fn clock(&self) -> Clock {
        self.0.driver.borrow().clock()
    }

    /// The time by the calendar, in nanoseconds; see [`Driver::unix_ns`].
    pub fn unix_ns(&self) -> u64 {
        self.0.driver.borrow().unix_ns()
    }

    /// The present moment, to the precision of a round: a reading of the clock that the tasks which run one after another,
    /// before the driver is asked again, share. Exact under a virtual clock, which stands still meanwhile; at most some ten
    /// microseconds ago on a real one.
    #[inline]
    pub fn round_now(&self) -> Instant {
        self.0.round.get().unwrap_or_else(|| {
            let now = self.now();
            self.0.round.set(Some(now));
            now
        })
    }

    /// Starts a task. It first runs when the executor comes to it. It belongs to the group of the task that starts it, if
    /// that has one, and has its rank.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.spawn_as(self.0.member.get(), future)
    }

    fn spawn_as<T: 'static>(&self, member: Membership, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let outcome = Outcome::new();
        if self.0.stopped.get() {
            return JoinHandle { executor: self.clone(), outcome };
        }
        let job = Job { future: catch_panic(future), outcome: Rc::clone(&outcome), executor: self.clone() };
        self.0.spawned.set(self.0.spawned.get() + 1);
        let task = {
            let mut tasks = self.0.tasks.borrow_mut();
            if self.1 == Spawns::OfCaller {
                tasks.note_spawn(self.current(), self.0.spawned.get());
            }
            tasks.insert(Box::pin(job), member)
        };
        self.wake(task);
        JoinHandle { executor: self.clone(), outcome }
    }

    /// Runs `future` and all tasks until `future` is ready. Tasks that are not finished stay and go on in the next call.
    ///
    /// # Errors
    /// [`Halt`] if the machine stops first; [`Halt::Nested`] within a task that it runs, which is to await the future instead.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, Halt> {
        let _running = Running::begin(&self.0.is_running)?;
        let mut main = pin!(future);
        let waker = self.0.tasks.borrow().main_waker();
        let mut done = Vec::new();
        // The latest poll may have panicked.
        if self.0.watched.take() {
            self.0.discard_watched_poll();
        }
        self.0.round.set(None);
        self.wake(TaskId::MAIN);
        loop {
            // One round: the tasks that are ready now, each once, before the driver is asked again. A long queue is no reason
            // to let it wait: what it has to submit keeps devices idle, what it has to report keeps others waiting.
            let round = self.0.ready.borrow().len().min(ROUND_MAX);
            for _ in 0..round {
                let Some(task) = self.next_ready() else { break };
                if task == TaskId::MAIN {
                    if let Poll::Ready(output) = self.poll_main(main.as_mut(), &waker) {
                        return Ok(output);
                    }
                } else {
                    self.poll_task(task);
                }
            }
            self.park(&mut done)?;
        }
    }

    fn next_ready(&self) -> Option<TaskId> {
        let mut ready = self.0.ready.borrow_mut();
        match &mut *self.0.order.borrow_mut() {
            None => ready.pop_front(),
            Some(_) if ready.is_empty() => None,
            Some(random) => {
                let index = random.below(ready.len() as u64) as usize;
                ready.swap_remove_back(index)
            }
        }
    }

    fn poll_main<F: Future>(&self, main: std::pin::Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
        if self.0.awaiting.is_any() {
            self.0.awaiting.forget(TaskId::MAIN);
        }
        self.0.current.set(TaskId::MAIN);
        self.0.polled.set(waker.data());
        self.0.debt.set(self.0.tasks.borrow_mut().take_main_debt());
        self.0.registered.set(0);
        let poll = main.poll(&mut Context::from_waker(waker));
        self.0.tasks.borrow_mut().set_main_debt(self.0.debt.get());
        if self.0.watched.get() {
            self.end_watched_poll(TaskId::MAIN);
        }
        poll
    }

    fn poll_task(&self, task: TaskId) {
        let Some(Taken { mut future, waker, debt, member }) = self.0.tasks.borrow_mut().take(task) else { return };
        if member.group != self.0.account.get() {
            self.switch_account(member.group);
        }
        if self.0.awaiting.is_any() {
            self.0.awaiting.forget(task);
        }
        self.0.current.set(task);
        self.0.polled.set(waker.data());
        self.0.member.set(member);
        self.0.debt.set(debt);
        self.0.computing.set(false);
        self.0.registered.set(0);
        let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
        self.0.current.set(TaskId::MAIN);
        self.0.member.set(Membership::NONE);
        match poll {
            Poll::Pending => {
                let left = self.0.tasks.borrow_mut().put_back(task, future, waker, self.0.debt.get());
                drop(left);
                if self.0.watched.get() {
                    self.end_watched_poll(task);
                }
            }
            Poll::Ready(()) => {
                // The future is dropped before its slot is free: its destructors may still wake or spawn.
                drop(future);
                self.0.tasks.borrow_mut().remove(task, Some(waker));
                self.0.computing.set(false);
                if self.0.watched.take() {
                    self.0.discard_watched_poll();
                }
            }
        }
        if member.takes_turns() {
            self.end_turn(task, member);
        }
    }

    /// Lets the driver work and reacts to what it reports. Waits only if no task is ready.
    fn park(&self, done: &mut Vec<Completion>) -> Result<(), Halt> {
        if self.0.overdue.get().is_some() {
            return Err(Halt::Unanswered);
        }
        self.0.round.set(None);
        if self.0.account.get() != Membership::NONE.group {
            self.switch_account(Membership::NONE.group);
        }
        if self.0.called.has_items() {
            self.wake_called();
        }
        let is_waited_for = !self.0.yielded_tasks.borrow().is_empty();
        let busy = is_waited_for || !self.0.ready.borrow().is_empty();
        let idle_driver = self.0.operations.borrow().in_flight() == 0 && self.0.bell.is_empty();
        if !(busy && idle_driver) {
            let until = if busy { Some(Instant::START) } else { self.0.timers.borrow().next() };
            // A waker that is out may be on another thread, which notifies the driver by the doorbell.
            if idle_driver && until.is_none() && !self.0.tasks.borrow().is_any_waker_out() {
                // The thread that dropped the last waker may have used it just before: what it sent then is visible after this
                // fence.
                fence(Ordering::Acquire);
                if !self.0.called.has_items() {
                    return Err(Halt::Idle);
                }
                self.wake_called();
                return Ok(());
            }
            self.0.driver.borrow_mut().park(until, done)?;
            for completion in done.drain(..) {
                self.react(completion);
            }
        }
        self.wake_due();
        if is_waited_for {
            self.wake_first_yielded();
        }
        Ok(())
    }

    /// Wakes the tasks whose deadlines have come.
    #[inline]
    fn wake_due(&self) {
        let next = self.0.timers.borrow().next();
        if next.is_some() {
            let now = self.now();
            while let Some(task) = { self.0.timers.borrow_mut().pop_due(now) } {
                self.wake(task);
            }
        }
    }

    /// Wakes the tasks whose wakers were used.
    #[cold]
    fn wake_called(&self) {
        for task in self.0.called.take() {
            self.wake(task);
        }
    }

    /// Ends a task before its end.
    pub(crate) fn discard(&self, task: TaskId) {
        let future = self.0.tasks.borrow_mut().discard(task);
        drop(future);
    }

    /// The task that is being polled.
    #[inline]
    pub fn current(&self) -> TaskId {
        self.0.current.get()
    }

    /// Puts a task into the ready queue, if it exists and is not there.
    #[inline]
    pub fn wake(&self, task: TaskId) {
        let wake = self.0.tasks.borrow_mut().enqueue(task);
        let runs = match wake {
            Wake::Nothing => false,
            Wake::Ready => true,
            Wake::InTurn(member) => self.0.groups.borrow_mut().wake(task, member, self.current()),
        };
        if runs {
            self.0.ready.borrow_mut().push_back(task);
        }
    }

    /// Yields until no other task is ready and the driver has nothing to report, but not for long. For tasks with much work
    /// that can wait.
    pub async fn yield_until_idle(&self) {
        let (mut gone, mut relay) = (false, Relay::default());
        poll_fn(|context| {
            if std::mem::replace(&mut gone, true) {
                return Poll::Ready(());
            }
            self.0.yielded_tasks.borrow_mut().push_back(self.waiter(context, &mut relay));
            Poll::Pending
        })
        .await;
    }

    /// Runs the first of the yielding tasks, if it is its time.
    fn wake_first_yielded(&self) {
        let is_idle = self.0.ready.borrow().is_empty();
        let waited = self.0.waited.get() + 1;
        if !is_idle && waited < YIELDED_ROUNDS_MAX {
            return self.0.waited.set(waited);
        }
        self.0.waited.set(0);
        let first = self.0.yielded_tasks.borrow_mut().pop_front();
        if let Some(task) = first {
            self.wake(task);
        }
    }

    /// Lets every other ready task run first.
    pub async fn yield_now(&self) {
        let (mut yielded, mut relay) = (false, Relay::default());
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            self.wake(self.waiter(context, &mut relay));
            Poll::Pending
        })
        .await;
    }

    /// Waits until the clock reaches `deadline`.
    pub async fn sleep_until(&self, deadline: Instant) {
        let (mut set, mut relay) = (None, Relay::default());
        poll_fn(|context| {
            if self.now() >= deadline {
                return Poll::Ready(());
            }
            let task = self.waiter(context, &mut relay);
            if set.replace(task) != Some(task) {
                self.0.timers.borrow_mut().add(deadline, task);
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits for `ns` nanoseconds.
    pub async fn sleep_ns(&self, ns: u64) {
        self.sleep_until(self.now().plus_ns(ns)).await;
    }

    /// Waits `ns` nanoseconds for `future` and then drops it: `None` if it was not ready by then.
    pub async fn within<F: Future>(&self, ns: u64, future: F) -> Option<F::Output> {
        let (mut future, mut end) = (pin!(future), pin!(self.sleep_ns(ns)));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => end.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Performs an operation and waits for its completion.
    ///
    /// ```
    /// # use entresol_executor::{Executor, Order};
    /// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
    /// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    /// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// use driver::{Access, Op, Output};
    ///
    /// let device = executor.device("disk").expect("the ideal machine has a disk");
    /// let bytes = executor.run(async {
    ///     let open = Op::Open { device, name: "notes".into(), create: true };
    ///     let Output::Opened { file, .. } = executor.perform(open).await.result? else { unreachable!() };
    ///     let mut buffer = executor.frames(1, 4096)?.remove(0);
    ///     buffer[..4].copy_from_slice(b"milk");
    ///     let access = Access::Asynchronous;
    ///     let write = Op::Write { file, offset: 0, length: 4096, buffer, durable: true, access };
    ///     let buffer = executor.perform(write).await.buffer.expect("the buffer comes back");
    ///     let read = Op::Read { file, offset: 0, length: 4096, buffer, access };
    ///     let completion = executor.perform(read).await;
    ///     completion.result?;
    ///     Ok::<_, driver::Fault>(completion.buffer.expect("the buffer comes back")[..4].to_vec())
    /// });
    /// assert_eq!(bytes, Ok(Ok(b"milk".to_vec())));
    /// ```
    pub fn perform(&self, op: Op) -> Perform<'_> {
        Perform::new(self, op)
    }

    /// Starts an operation and runs `handler` when it completes, even if the current task has ended by then.
    pub fn submit(&self, op: Op, handler: impl FnOnce(Completion) + 'static) {
        self.submit_boxed(op, Box::new(handler));
    }

    /// As [`Executor::submit`], with a handler in memory of its own already.
    pub fn submit_boxed(&self, op: Op, handler: Box<dyn FnOnce(Completion)>) {
        self.start(op, State::Handled(handler));
    }

    pub(crate) fn start(&self, op: Op, state: State) -> Token {
        if self.0.recording.get() && op.kind() != OpKind::Cpu {
            self.record(Step::Op(op.kind()));
        }
        let group = self.0.member.get().group;
        if group != 0 && self.0.priced {
            let ns = self.0.pricing.borrow().duration_ns(op.instructions());
            self.0.groups.borrow_mut().grant(group, ns);
        }
        let submission = Submission::of(&op, || self.round_now());
        let token = self.0.operations.borrow_mut().insert(state, submission);
        let takes_time = op.holds_cpu();
        self.0.driver.borrow_mut().submit(token, op);
        if takes_time {
            self.0.round.set(None);
        }
        token
    }

    pub(crate) fn operations(&self) -> RefMut<'_, Operations> {
        self.0.operations.borrow_mut()
    }

    pub(crate) fn cancel(&self, token: Token) {
        self.0.driver.borrow_mut().cancel(token);
    }

    pub(crate) fn bell(&self) -> &WaitQueue {
        &self.0.bell
    }

    /// Begins to record the engine's steps.
    pub fn record_steps(&self) {
        self.0.steps.replace(Some(Vec::new()));
        self.0.recording.set(true);
    }

    /// The steps recorded since [`Executor::record_steps`]; recording ends.
    pub fn take_steps(&self) -> Vec<Step> {
        self.0.recording.set(false);
        self.0.steps.take().unwrap_or_default()
    }

    #[cold]
    fn record(&self, step: Step) {
        if let Some(steps) = &mut *self.0.steps.borrow_mut() {
            steps.push(step);
        }
    }
}

#[cfg(test)]
mod tests;
