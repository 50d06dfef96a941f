use crate::hardware::Cpu;
use crate::law::rounded;
use crate::sharing::Sharing;
use crate::station::Flow;
use crate::{Discipline, JobId};
use base::Instant;
use base::statistics::StationReport;
use base::statistics::TimeWeighted;
use std::collections::VecDeque;

/// Which work goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Transactions.
    User,
    /// Work that preempts transactions, which resume later where they were.
    System,
}

/// A request for CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) job: JobId,
    pub(crate) demand_ns: u64,
    /// Whether the CPU stays taken after the burst, until it is released.
    pub(crate) hold: bool,
    pub(crate) entered: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Server {
    Idle,
    Busy { burst: Burst, class: Class, finish: Instant },
    Held { entered: Instant },
}

/// A moment at which the CPUs want to be looked at again; one that was overtaken by events is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The burst on this server ends.
    Server(u32),
    /// The first of the bursts that share the processors ends.
    Sharing,
}

/// Receives the timers that a change causes.
pub(crate) trait Timers {
    fn schedule(&mut self, at: Instant, timer: Timer);
}

/// The end of a burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) job: JobId,
    /// The server that stays taken, if the burst holds it.
    pub(crate) held: Option<u32>,
}

/// The processors: user work first-in-first-out or sharing, preempted and later resumed by first-in-first-out system work.
pub(crate) struct Cpus {
    description: Cpu,
    ns_per_instruction: f64,
    /// The bytes of memory for which it is that.
    footprint: u64,
    servers: Vec<Server>,
    system: VecDeque<Burst>,
    user: VecDeque<Burst>,
    /// User bursts by job, if they share; the sharing itself knows only jobs.
    shared: Option<(Sharing, Vec<Option<Burst>>)>,
    busy: TimeWeighted,
    flow: Flow,
}

impl Cpus {
    pub(crate) fn new(cpu: &Cpu) -> Cpus {
        let shared = (cpu.discipline != Discipline::Fifo).then(|| (Sharing::default(), Vec::new()));
        Cpus {
            description: cpu.clone(),
            ns_per_instruction: 1e3 / cpu.mips / cpu.speed(0),
            footprint: 0,
            servers: vec![Server::Idle; cpu.count as usize],
            system: VecDeque::new(),
            user: VecDeque::new(),
            shared,
            busy: TimeWeighted::default(),
            flow: Flow::default(),
        }
    }

    /// From now on the steps touch this many bytes of memory.
    pub(crate) fn set_footprint(&mut self, bytes: u64) {
        if bytes != self.footprint {
            self.footprint = bytes;
            self.ns_per_instruction = 1e3 / self.description.mips / self.description.speed(bytes);
        }
    }

    /// Whether a task keeps its thread until it waits.
    pub(crate) fn run_until_wait(&self) -> bool {
        self.description.discipline == Discipline::RunUntilWait
    }

    /// How long instructions take on one server.
    #[inline]
    pub(crate) fn demand_ns(&self, instructions: u64) -> u64 {
        rounded(instructions as f64 * self.ns_per_instruction)
    }

    #[inline]
    pub(crate) fn arrive(&mut self, now: Instant, burst: Burst, class: Class, timers: &mut impl Timers) {
        self.flow.arrive(now);
        let idle = self.servers.iter().position(|server| matches!(server, Server::Idle));
        match (class, idle) {
            (Class::User, _) if self.shared.is_some() => self.share(now, burst),
            (_, Some(server)) => self.start(now, server, burst, class, timers),
            (Class::User, None) => self.user.push_back(burst),
            (Class::System, None) => match self.preempt(now) {
                Some(server) => self.start(now, server, burst, class, timers),
                None => self.system.push_back(burst),
            },
        }
        self.account(now, timers);
    }

    /// Serves a burst that nothing disturbs from `now` to `end`, if a server is free. A lone burst does not compete, so its
    /// class and the discipline do not matter.
    #[inline]
    pub(crate) fn serve_alone(&mut self, now: Instant, end: Instant) -> bool {
        let idle = self.servers.iter().filter(|server| matches!(server, Server::Idle)).count();
        let shares = self.shared.as_ref().is_some_and(|(sharing, _)| sharing.len() > 0);
        if idle == 0 || shares {
            return false;
        }
        let busy = (self.servers.len() - idle) as f64;
        self.flow.arrive(now);
        self.busy.set(now, busy + 1.0);
        self.flow.depart(end, now);
        self.busy.set(end, busy);
        true
    }

    /// The burst, if any, that ends at this timer.
    #[inline]
    pub(crate) fn expire(&mut self, now: Instant, timer: Timer, timers: &mut impl Timers) -> Option<Finished> {
        let (burst, server) = match timer {
            Timer::Sharing => (self.leave_sharing(now)?, None),
            Timer::Server(index) => match self.servers[index as usize] {
                Server::Busy { burst, finish, .. } if finish == now => (burst, Some(index as usize)),
                _ => return None,
            },
        };
        let mut held = None;
        if burst.hold {
            // A burst that ends while sharing ran on some server that is not taken otherwise.
            let idle = || self.servers.iter().position(|server| matches!(server, Server::Idle));
            let server = server.or_else(idle).expect("a burst makes progress only on a server");
            self.servers[server] = Server::Held { entered: burst.entered };
            held = Some(server as u32);
        } else {
            self.flow.depart(now, burst.entered);
            if let Some(server) = server {
                self.vacate(now, server, timers);
            }
        }
        self.account(now, timers);
        Some(Finished { job: burst.job, held })
    }

    /// Gives back a held server.
    pub(crate) fn release(&mut self, now: Instant, server: u32, timers: &mut impl Timers) {
        let Server::Held { entered } = self.servers[server as usize] else {
            unreachable!("only a held CPU is released")
        };
        self.flow.depart(now, entered);
        self.vacate(now, server as usize, timers);
        self.account(now, timers);
    }

    pub(crate) fn restart(&mut self, now: Instant) {
        self.flow.restart(now);
        self.busy.restart(now);
    }

    pub(crate) fn report(&self, now: Instant) -> StationReport {
        let served = self.servers.iter().filter_map(|server| match server {
            Server::Idle => None,
            Server::Busy { burst, .. } => Some(burst.entered),
            Server::Held { entered } => Some(*entered),
        });
        let sharing = self.shared.iter().flat_map(|(_, bursts)| bursts.iter().flatten());
        let waiting = self.system.iter().chain(&self.user).chain(sharing).map(|burst| burst.entered);
        let busy = (self.servers.len() as u32, self.busy.integral(now));
        self.flow.report("cpu", busy, served.chain(waiting), now)
    }

    #[inline]
    fn start(&mut self, now: Instant, server: usize, burst: Burst, class: Class, timers: &mut impl Timers) {
        let finish = now.plus_ns(burst.demand_ns);
        self.servers[server] = Server::Busy { burst, class, finish };
        timers.schedule(finish, Timer::Server(server as u32));
    }

    /// Stops the user burst that would run longest, if there is one; it resumes before those that wait.
    fn preempt(&mut self, now: Instant) -> Option<usize> {
        let running = self.servers.iter().enumerate().filter_map(|(index, server)| match server {
            Server::Busy { burst, class: Class::User, finish } => Some((*finish, index, *burst)),
            _ => None,
        });
        let (finish, index, burst) = running.max_by_key(|(finish, index, _)| (*finish, *index))?;
        self.user.push_front(Burst { demand_ns: finish.since_ns(now), ..burst });
        Some(index)
    }

    #[inline]
    fn vacate(&mut self, now: Instant, server: usize, timers: &mut impl Timers) {
        self.servers[server] = Server::Idle;
        if let Some(burst) = self.system.pop_front() {
            self.start(now, server, burst, Class::System, timers);
        } else if let Some(burst) = self.user.pop_front() {
            self.start(now, server, burst, Class::User, timers);
        }
    }

    fn share(&mut self, now: Instant, burst: Burst) {
        let Some((sharing, bursts)) = &mut self.shared else { unreachable!("the discipline is processor sharing") };
        let index = burst.job.0 as usize;
        if bursts.len() <= index {
            bursts.resize(index + 1, None);
        }
        bursts[index] = Some(burst);
        sharing.add(now, burst.job.0, burst.demand_ns);
    }

    fn leave_sharing(&mut self, now: Instant) -> Option<Burst> {
        let (sharing, bursts) = self.shared.as_mut().filter(|(sharing, _)| sharing.next() == Some(now))?;
        bursts[sharing.finish(now) as usize].take()
    }

    /// Accounts the busy time, and tells the shared queue how many servers it has left.
    #[inline]
    fn account(&mut self, now: Instant, timers: &mut impl Timers) {
        let idle = self.servers.iter().filter(|server| matches!(server, Server::Idle)).count();
        let mut busy = self.servers.len() - idle;
        if let Some((sharing, _)) = &mut self.shared {
            busy += idle.min(sharing.len());
            if let Some(next) = sharing.set_servers(now, idle as u32) {
                timers.schedule(next, Timer::Sharing);
            }
        }
        self.busy.set(now, busy as f64);
    }
}
