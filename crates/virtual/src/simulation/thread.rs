//! A described CPU whose tasks keep it until they wait, as the executor's thread does on a real machine: while a burst of CPU
//! time passes, devices go on, and what completes is noticed when the thread next asks. Operations reach the devices and the network
//! when the thread has nothing more to run for the moment, all in one batch; but what it accesses synchronously it carries through at once,
//! and does nothing else meanwhile.
//!
//! Among other machines that a network joins, it takes turns, and its own clock may be ahead of theirs: by a burst, a batch or a
//! wake-up. What others see of it, and it of others, is left until they have come as far. It may share its processor with them.

use super::VirtualDriver;
use crate::Port;
use base::{Instant, Random};
use devices::{Class, ColdCaches, Cpu, JobId, Law};
use driver::{Access, Completion, GATHERING_NS, Halt, Op, OpKind, ThreadUse, Token, ends_gathered};
use std::sync::atomic::Ordering;

/// What the thread does between its turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// It looks again when others have come as far.
    Awake,
    /// It found nothing to do.
    Asleep,
    /// It waits for a processor.
    Waiting { since: Instant, was_asleep: bool },
}

/// The engine's thread.
pub(super) struct Thread {
    submission: u64,
    network_submission: u64,
    notification: u64,
    wake_up: u64,
    network_wake_up: u64,
    interrupt: u64,
    wake_latency: Law,
    gathering: bool,
    cold_caches: Vec<ColdCaches>,
    /// What the caches are cold for yet.
    cold: ColdCaches,
    /// Since when it has slept, if it does.
    asleep_since: Instant,
    random: Random,
    /// Operations that wait to be given to the operating system.
    pub(super) batch: Vec<(Token, Op)>,
    /// What completed while the thread ran.
    landed: Vec<Completion>,
    /// Synchronous accesses, which the thread has carried through itself.
    carried: Vec<Completion>,
    activity: Activity,
    /// Since statistics were last restarted.
    pub(super) used: ThreadUse,
}

impl Thread {
    pub(super) fn new(cpu: &Cpu, seed: u64) -> Thread {
        let submission = cpu.instructions.submission;
        Thread {
            submission,
            network_submission: cpu.instructions.network_submission.unwrap_or(submission),
            notification: cpu.instructions.notification,
            wake_up: cpu.instructions.wake_up,
            network_wake_up: cpu.instructions.network_wake_up.unwrap_or(cpu.instructions.wake_up),
            interrupt: cpu.instructions.interrupt,
            wake_latency: cpu.wake_latency.clone(),
            gathering: cpu.gathering,
            cold_caches: cpu.cold_caches.clone(),
            cold: ColdCaches::default(),
            asleep_since: Instant::START,
            random: Random::stream(seed, "thread"),
            batch: Vec::new(),
            landed: Vec::new(),
            carried: Vec::new(),
            activity: Activity::Awake,
            used: ThreadUse::default(),
        }
    }

    pub(super) fn submit(&mut self, token: Token, op: Op) {
        self.batch.push((token, op));
    }

    /// Behind a sleep of this length, or an interrupt, the caches hold little of what the next steps need. One that comes soon behind a long
    /// sleep changes nothing.
    fn cool_caches(&mut self, sleep_ns: u64) {
        let colder = ColdCaches::behind(&self.cold_caches, sleep_ns).filter(|cold| cold.cost() > self.cold.cost());
        self.cold = colder.unwrap_or(self.cold);
    }

    /// The instructions as which these of steps count.
    fn warm_caches(&mut self, instructions: u64) -> u64 {
        let cold = instructions.min(self.cold.instructions);
        self.cold.instructions -= cold;
        instructions + (cold as f64 * self.cold.slowdown).round() as u64
    }

    fn has_work(&self) -> bool {
        !self.batch.is_empty() || !self.landed.is_empty() || !self.carried.is_empty()
    }
}

impl VirtualDriver {
    /// The thread runs for this number of instructions of steps.
    pub(super) fn run_steps(&mut self, instructions: u64) {
        let counted = self.thread.as_mut().map_or(instructions, |thread| thread.warm_caches(instructions));
        self.run(counted);
    }

    /// The thread runs for this number of instructions.
    fn run(&mut self, instructions: u64) {
        if self.halted || instructions == 0 {
            return;
        }
        // Where nothing comes between, its end is the next event, without the calendar. Faults count events.
        if self.faults.is_some() || !self.machine.compute_alone(instructions, None) {
            let burst = self.machine.compute(instructions, Class::User);
            self.run_until(burst);
        }
        self.fold(self.machine.now().ns());
        self.fold(OpKind::Cpu as u64);
    }

    /// The thread keeps its processor until a request of its own ends; false if the power goes before.
    fn run_until(&mut self, own: JobId) -> bool {
        while !self.halted {
            if self.faults.as_ref().is_some_and(|faults| faults.power_goes(VirtualDriver::events(self))) {
                self.cut_power();
                break;
            }
            let ended = self.machine.step();
            if ended == Some(own) {
                return true;
            }
            self.land_meanwhile(ended);
        }
        false
    }

    /// The thread carries a synchronous access through: others wait until it has ended, however many processors there are.
    pub(super) fn access_here(&mut self, token: Token, mut op: Op) {
        if let Op::Read { access, .. } | Op::Write { access, .. } = &mut op
            && let Access::Synchronous { instructions } = access
        {
            let steps = std::mem::take(instructions);
            self.run_steps(steps);
        }
        if self.halted {
            return;
        }
        let own = self.submit_to_devices(token, op);
        if self.run_until(own)
            && let Some(flight) = self.flights[own.0 as usize].take()
        {
            let completion = self.land(flight);
            self.thread.as_mut().expect("a thread runs").carried.push(completion);
        }
    }

    fn land_meanwhile(&mut self, ended: Option<devices::JobId>) {
        if let Some(flight) = ended.and_then(|job| self.flights.get_mut(job.0 as usize)?.take()) {
            let completion = self.land(flight);
            self.thread.as_mut().expect("a thread runs").landed.push(completion);
        }
    }

    /// The thread has nothing to run: it gives its operations to the operating system and takes what has completed, or sleeps.
    pub(super) fn park_thread(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        self.thread.iter_mut().for_each(|thread| thread.activity = Activity::Awake);
        self.pay_interrupt();
        self.hand_over(true);
        self.take_landed(done)?;
        let is_past = until.is_some_and(|until| until <= self.machine.now());
        if !done.is_empty() || is_past {
            // What happens at this very moment is at hand, too.
            return self.sleep(Some(self.machine.now()), done);
        }
        let now = self.machine.now();
        self.thread.iter_mut().for_each(|thread| thread.asleep_since = now);
        self.gather(until, done)?;
        if done.is_empty() {
            self.sleep(until, done)?;
        }
        self.wake_up(0, false, done)
    }

    /// While much is under way the thread sleeps until several operations have ended, though not for long.
    fn gather(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let ends = ends_gathered(self.in_flight);
        let latest = self.machine.now().plus_ns(GATHERING_NS);
        let gathers = self.port.is_none() && self.thread.as_ref().is_some_and(|thread| thread.gathering);
        if !gathers || ends == 1 || until.is_some_and(|until| until <= latest) {
            return Ok(());
        }
        while done.len() < ends && self.machine.now() < latest {
            self.wait(Some(latest), done)?;
        }
        Ok(())
    }

    /// When this machine has a turn among others. What happens to it does so at its own time, and the thread looks when its clock has
    /// been reached.
    pub(super) fn next_turn_of(&self, thread: &Thread, task: Option<Instant>) -> Option<Instant> {
        let (now, port) = (self.machine.now(), self.port.as_ref());
        let looks = match thread.activity {
            Activity::Waiting { .. } => port.is_none_or(Port::has_processor).then_some(now),
            Activity::Awake => Some(now),
            Activity::Asleep if thread.has_work() || self.bell.0.load(Ordering::Acquire) => Some(now),
            Activity::Asleep => {
                let completed = port.and_then(Port::next_completed);
                completed.into_iter().chain(task).min().map(|at| at.max(now))
            }
        };
        let events = self.machine.next().into_iter().chain(port.and_then(Port::next_event));
        events.chain(looks).min()
    }

    /// A turn among others, see [`driver::Driver::take_turn`].
    pub(super) fn take_turn_of_thread(
        &mut self,
        moment: Instant,
        is_due: bool,
        done: &mut Vec<Completion>,
    ) -> Result<bool, Halt> {
        self.happen_until(moment)?;
        if self.machine.now() > moment {
            return Ok(false);
        }
        self.machine.pass(moment);
        let Some(thread) = &mut self.thread else { unreachable!("there is a thread") };
        let completed = self.port.as_ref().and_then(Port::next_completed).is_some_and(|at| at <= moment);
        let is_called = self.bell.0.load(Ordering::Acquire);
        if !is_due && !completed && !is_called && !thread.has_work() {
            if std::mem::replace(&mut thread.activity, Activity::Asleep) == Activity::Awake {
                thread.asleep_since = moment;
            }
            self.port.iter().for_each(Port::leave_processor);
            return Ok(false);
        }
        let (since, was_asleep) = match thread.activity {
            Activity::Waiting { since, was_asleep } => (since, was_asleep),
            activity => (moment, activity == Activity::Asleep),
        };
        if !self.port.as_ref().is_none_or(|port| port.runs(moment)) {
            thread.activity = Activity::Waiting { since, was_asleep };
            return Ok(false);
        }
        thread.activity = Activity::Awake;
        let is_message = completed && thread.landed.is_empty() && thread.carried.is_empty();
        self.answer_bell(done);
        self.take_landed(done)?;
        self.collect_from_network(done);
        if was_asleep {
            self.wake_up(moment.since_ns(since), is_message, done)?;
        } else {
            self.pay_interrupt();
            self.hand_over(true);
            self.take_landed(done)?;
        }
        Ok(true)
    }

    /// What is to happen up to a moment does, beside the thread.
    fn happen_until(&mut self, moment: Instant) -> Result<(), Halt> {
        loop {
            let network = self.port.as_ref().and_then(Port::next_event).filter(|at| *at <= moment);
            let own = self.machine.next().filter(|at| *at <= moment);
            if network.or(own).is_none() {
                break;
            }
            if self.faults.as_ref().is_some_and(|faults| faults.power_goes(VirtualDriver::events(self))) {
                return Err(self.cut_power());
            }
            match (network, &self.port) {
                (Some(at), Some(port)) if own.is_none_or(|own| at <= own) => port.step(at),
                _ => {
                    let ended = self.machine.step();
                    self.land_meanwhile(ended);
                }
            }
        }
        self.port.iter().for_each(|port| port.come_to(moment));
        Ok(())
    }

    /// The operations of the batch are given to the operating system, which the thread pays for if it does so itself.
    pub(super) fn hand_over(&mut self, is_paid: bool) {
        let Some(thread) = &mut self.thread else { return };
        let batch = std::mem::take(&mut thread.batch);
        if is_paid && !batch.is_empty() {
            thread.used.batches += 1;
            let instructions = if batch.iter().all(|(_, op)| op.kind().is_network()) {
                thread.network_submission
            } else {
                let at_rest = self.in_flight == 0;
                thread.used.notifications += u64::from(at_rest);
                thread.submission + if at_rest { thread.notification } else { 0 }
            };
            self.run(instructions);
        }
        if self.halted {
            return;
        }
        for (token, op) in batch {
            if op.kind().is_network() {
                self.submit_to_network(token, op);
            } else {
                self.submit_to_devices(token, op);
            }
        }
    }

    /// What has completed while the thread ran has interrupted it.
    fn pay_interrupt(&mut self) {
        let Some(thread) = &mut self.thread else { return };
        if !thread.landed.is_empty() {
            thread.used.interrupts += 1;
            let instructions = thread.interrupt;
            if instructions > 0 {
                thread.cool_caches(0);
            }
            self.run(instructions);
        }
    }

    fn sleep(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        if self.port.is_some() {
            let slept = self.park_on_network(until, done);
            self.port.iter().for_each(|port| port.come_to(self.machine.now()));
            return slept;
        }
        if until.is_none() && self.in_flight == 0 {
            return Err(Halt::Idle);
        }
        self.wait(until, done)
    }

    /// The thread slept, and has something to do again. What it had to wait for a processor counts for the latency, which is that of an
    /// idle one.
    fn wake_up(&mut self, waited_ns: u64, is_message: bool, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let Some(thread) = &mut self.thread else { unreachable!("there is a thread") };
        thread.used.sleeps += 1;
        thread.cool_caches(self.machine.now().since_ns(thread.asleep_since));
        let instructions = if is_message { thread.network_wake_up } else { thread.wake_up };
        let latency_ns = thread.wake_latency.draw(&mut thread.random);
        let latency_ns = latency_ns.saturating_sub(waited_ns);
        if latency_ns > 0 {
            let awake = self.machine.delay(latency_ns);
            loop {
                if self.faults.as_ref().is_some_and(|faults| faults.power_goes(VirtualDriver::events(self))) {
                    return Err(self.cut_power());
                }
                match self.machine.step() {
                    Some(ended) if ended == awake => break,
                    ended => self.land_meanwhile(ended),
                }
            }
        }
        self.run(instructions);
        self.take_landed(done)
    }

    fn take_landed(&mut self, done: &mut Vec<Completion>) -> Result<(), Halt> {
        if self.halted {
            return Err(Halt::PowerCut);
        }
        let Some(thread) = &mut self.thread else { unreachable!("there is a thread") };
        done.append(&mut thread.carried);
        done.append(&mut thread.landed);
        Ok(())
    }
}
