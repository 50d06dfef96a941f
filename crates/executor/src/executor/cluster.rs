//! Several simulated machines, each with an executor of its own, in one time.
//!
//! Machines take turns: the one to which something happens next, or whose next deadline comes first, comes to that moment and runs its
//! tasks until all of them wait. So no machine is ever ahead of what another could still do to it, whatever its own clock shows
//! ([`Driver::clock`](driver::Driver::clock)), and the same seeds give the same run. Ties go to the machine that joined first. Where
//! tasks keep the CPU until they wait, a round of them takes time: its machine is ahead of others then, and looks at nothing before they
//! have come as far.

use super::groups::Membership;
use super::{Executor, ROUND_MAX};
use crate::{JoinHandle, TaskId};
use base::Instant;
use driver::{Completion, Halt};
use std::collections::BTreeMap;

/// Executors above drivers that one simulated network joins.
///
/// ```
/// use entresol_executor::{Cluster, Executor, Order};
/// use virtual_driver::{Hardware, Media, Network, NetworkOptions, Options, VirtualDriver};
///
/// let network = Network::new(NetworkOptions::default());
/// let machine = |number| {
///     let port = network.attach(number);
///     let driver = VirtualDriver::on_network(Hardware::ideal(), Options::default(), Media::new(), port);
///     Executor::new(Box::new(driver), Order::FirstInFirstOut)
/// };
/// let (server, client) = (machine(0), machine(1));
/// let mut cluster = Cluster::new([server.clone(), client.clone()]);
/// let address = (network.address(0), 7000).into();
/// server.clone().spawn(async move {
///     let listener = server.listen(address).await.expect("the port is free");
///     let connection = listener.accept().await.expect("a client comes");
///     connection.send(b"greeting").await.expect("it listens");
///     connection.close().await
/// });
/// let greeting = client.clone().spawn(async move {
///     client.sleep_ns(1).await;
///     let connection = client.connect(address).await?;
///     let mut greeting = Vec::new();
///     while connection.receive(&mut greeting).await? > 0 {}
///     Ok::<_, driver::Fault>(greeting)
/// });
/// assert_eq!(cluster.run(greeting).expect("no machine stops")?, b"greeting");
/// # Ok::<(), driver::Fault>(())
/// ```
#[derive(Default)]
pub struct Cluster {
    machines: Vec<Executor>,
    /// Those that are paused, by place, and until when.
    paused: BTreeMap<usize, Instant>,
    now: Instant,
    done: Vec<Completion>,
}

/// Why a cluster does not go on. A machine that has stopped does so again at each turn, until its executor is stopped
/// ([`Executor::stop`]) or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The machine that stopped, by its place; absent if all of them wait for ever.
    pub machine: Option<usize>,
    /// Why.
    pub halt: Halt,
}

impl Cluster {
    /// These machines, in this order.
    pub fn new(machines: impl IntoIterator<Item = Executor>) -> Cluster {
        Cluster { machines: machines.into_iter().collect(), ..Cluster::default() }
    }

    /// One more machine. Returns its place.
    pub fn add(&mut self, machine: Executor) -> usize {
        self.machines.push(machine);
        self.machines.len() - 1
    }

    /// Another executor takes the place of this one: the machine has started again. Returns the old one.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn replace(&mut self, place: usize, machine: Executor) -> Executor {
        self.paused.remove(&place);
        std::mem::replace(&mut self.machines[place], machine)
    }

    /// A machine does nothing until this moment of the time that all share, whatever comes to it and whatever is due: a process that was stopped, or a
    /// virtual machine that was moved. Its clock goes on meanwhile.
    pub fn pause(&mut self, place: usize, until: Instant) {
        self.paused.insert(place, until);
    }

    /// The moment that the machine which had the latest turn has come to, in the time that all share.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Lets all machines go on until this task has ended.
    ///
    /// # Errors
    /// [`Stop`] if a machine stops before, or all of them wait for ever. The others can go on.
    pub fn run<T>(&mut self, task: JoinHandle<T>) -> Result<T, Stop> {
        loop {
            if let Some(value) = task.outcome.take() {
                return Ok(value);
            }
            self.step(Instant::NEVER)?;
        }
    }

    /// Lets all machines go on until this moment of the time that they share.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn run_until(&mut self, end: Instant) -> Result<(), Stop> {
        while self.step(end)? {}
        self.now = self.now.max(end);
        Ok(())
    }

    /// The next turn, if it comes before `end`; false otherwise.
    fn step(&mut self, end: Instant) -> Result<bool, Stop> {
        let moments = self.machines.iter().enumerate();
        let paused = |place: usize| self.paused.get(&place).copied().unwrap_or_default();
        let moments =
            moments.filter_map(|(place, machine)| Some((machine.next_turn()?.max(self.now).max(paused(place)), place)));
        let moments = moments.filter(|(moment, _)| *moment < Instant::NEVER);
        match moments.min() {
            None if end == Instant::NEVER => Err(Stop { machine: None, halt: Halt::Idle }),
            Some((moment, place)) if moment < end => {
                self.now = moment;
                let turn = self.machines[place].turn(moment, &mut self.done);
                turn.map(|()| true).map_err(|halt| Stop { machine: Some(place), halt })
            }
            _ => Ok(false),
        }
    }
}

impl Executor {
    /// When this machine has a task to run, if it has, in the time that all share. A moment in the past is at once.
    fn next_task(&self) -> Option<Instant> {
        let inner = &*self.0;
        let is_ready = !inner.ready.borrow().is_empty() || !inner.yielded_tasks.borrow().is_empty();
        if is_ready || inner.called.has_items() {
            return Some(Instant::START);
        }
        let (timer, driver) = (inner.timers.borrow().next(), inner.driver.borrow());
        timer.map(|timer| driver.clock().when(timer))
    }

    /// When this machine has its next turn, if it has one.
    fn next_turn(&self) -> Option<Instant> {
        if self.0.stopped.get() {
            return None;
        }
        self.0.driver.borrow().next_turn(self.next_task())
    }

    /// This machine comes to `moment`, and its tasks run until all of them wait.
    fn turn(&self, moment: Instant, done: &mut Vec<Completion>) -> Result<(), Halt> {
        if self.0.driver.borrow().runs_until_wait() {
            return self.turn_of_a_round(moment, done);
        }
        self.look(moment, done)?;
        loop {
            self.run_round();
            self.look(Instant::START, done)?;
            if self.0.ready.borrow().is_empty() {
                return Ok(());
            }
        }
    }

    /// A turn where tasks keep the CPU until they wait: one look, and one round unless the look has taken time.
    fn turn_of_a_round(&self, moment: Instant, done: &mut Vec<Completion>) -> Result<(), Halt> {
        self.begin_look();
        let is_due = self.next_task().is_some_and(|at| at <= moment);
        if self.0.driver.borrow_mut().take_turn(moment, is_due, done)? {
            self.end_look(done);
            if self.clock().when(self.now()) <= moment {
                self.run_round();
            }
        }
        Ok(())
    }

    fn run_round(&self) {
        let round = self.0.ready.borrow().len().min(ROUND_MAX);
        for _ in 0..round {
            match self.next_ready() {
                // Left over from `Executor::run`, which has no future here.
                Some(TaskId::MAIN) => drop(self.0.tasks.borrow_mut().take_main_debt()),
                Some(task) => self.poll_task(task),
                None => break,
            }
        }
    }

    /// Comes to `moment`, and reacts to what has happened by then. What has happened while the machine was paused it finds all at once:
    /// a task that is woken at the moment of the first of it lives in the past of all others.
    fn look(&self, moment: Instant, done: &mut Vec<Completion>) -> Result<(), Halt> {
        self.begin_look();
        let shown = self.clock().shows(moment);
        self.0.driver.borrow_mut().park(Some(shown), done)?;
        while self.now() < shown {
            self.0.driver.borrow_mut().park(Some(shown), done)?;
        }
        self.end_look(done);
        Ok(())
    }

    fn begin_look(&self) {
        self.0.round.set(None);
        if self.0.account.get() != Membership::NONE.group {
            self.switch_account(Membership::NONE.group);
        }
        if self.0.called.has_items() {
            self.wake_called();
        }
    }

    fn end_look(&self, done: &mut Vec<Completion>) {
        for completion in done.drain(..) {
            self.react(completion);
        }
        self.wake_due();
        if !self.0.yielded_tasks.borrow().is_empty() {
            self.wake_first_yielded();
        }
    }
}
