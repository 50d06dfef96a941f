use crate::calendar::Calendar;
use crate::cpus::{Burst, Class, Cpus, Timer, Timers};
use crate::hardware::Hardware;
use crate::limit::Bucket;
use crate::queue::Stay;
use crate::unit::{DONE, MEDIUM, NextStage, Transfer, Unit};
use crate::{Cache, CacheCounts, Limit};
use base::statistics::StationReport;
use base::{Instant, Random};
use std::collections::BTreeMap;

/// Names a request in a [`Machine`]; given anew once the request has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub u32);

/// Calendar payloads from here on are CPU timers; below are jobs whose present stage ends.
const TIMERS: u32 = Calendar::PAYLOAD_LIMIT / 2;
/// From here on they are stages of devices that want to be looked at: a device's number times four, and the stage.
const STAGES: u32 = TIMERS + TIMERS / 2;
const SHARING: u32 = Calendar::PAYLOAD_LIMIT - 1;

impl Timers for Calendar {
    #[inline]
    fn schedule(&mut self, at: Instant, timer: Timer) {
        let payload = match timer {
            Timer::Server(server) => TIMERS + server,
            Timer::Sharing => SHARING,
        };
        Calendar::schedule(self, at, payload);
    }
}

#[derive(Clone, Copy)]
struct Job {
    /// The device request, if there is one.
    io: Option<(u16, Transfer)>,
    /// The stage of the device that it is in.
    stage: u8,
    /// The CPU that it holds meanwhile.
    held: Option<u32>,
    /// Whether it is a cache's own write to the medium, without a request.
    background: bool,
    entered: Instant,
}

/// How many events of each sort happened since the statistics were last restarted. Departures from a device's stages are in
/// its stations' reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Ends of bursts on CPUs, including those overtaken by a preemption or an arrival.
    pub cpu: u64,
    /// Departures from stages of devices.
    pub devices: u64,
    /// Requests that passed no stage, and delays.
    pub delays: u64,
    /// Times at which the clock was set forward to a moment asked for, without an event.
    pub passes: u64,
}

/// The running model of described hardware: requests go in, time passes in events, requests complete.
///
/// ```
/// use entresol_devices::{Direction, Hardware, Machine, Transfer};
///
/// let text = "[device.disk]\nmedium = { servers = 1, service = \"10 ms\" }";
/// let mut machine = Machine::new(&Hardware::parse(text, "one disk")?, 1, false);
/// let read = |offset| Transfer { direction: Direction::Read, file: 0, offset, length: 4096, fresh: false };
/// let [first, second] = [read(0), read(1 << 20)].map(|read| machine.transfer(0, read));
/// let mut ends = Vec::new();
/// while machine.next().is_some() {
///     ends.extend(machine.step().map(|job| (job, machine.now().ns() / 1_000_000)));
/// }
/// assert_eq!(ends, [(first, 10), (second, 20)], "the second waits for the first");
/// assert_eq!(machine.stations()[0].utilization, 1.0);
/// # Ok::<(), entresol_devices::HardwareError>(())
/// ```
pub struct Machine {
    now: Instant,
    calendar: Calendar,
    cpus: Option<Cpus>,
    units: Vec<Unit>,
    /// The limits of all devices.
    buckets: Vec<Bucket>,
    /// When the statistics were last restarted.
    restarted: Instant,
    jobs: Vec<Job>,
    free: Vec<JobId>,
    jitter: Option<Random>,
    events: u64,
    counts: EventCounts,
}

impl Machine {
    /// A machine of this description, idle at the start of time. Devices are numbered in the order of their names.
    /// With `jitter` all service times become random, so that requests complete in a seeded random order.
    pub fn new(hardware: &Hardware, seed: u64, jitter: bool) -> Machine {
        let mut buckets = Vec::new();
        let devices = hardware.devices.iter();
        let units = devices.map(|(name, device)| {
            let limits = device.limits.iter().map(|limit| bucket(&mut buckets, limit)).collect();
            Unit::new(name, device, limits, seed, jitter)
        });
        let units = units.collect();
        Machine {
            now: Instant::START,
            calendar: Calendar::new(),
            cpus: hardware.cpu.as_ref().map(Cpus::new),
            units,
            buckets,
            restarted: Instant::START,
            jobs: Vec::new(),
            free: Vec::new(),
            jitter: jitter.then(|| Random::stream(seed, "cpu")),
            events: 0,
            counts: EventCounts::default(),
        }
    }

    /// The present moment.
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// How many events have happened.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many events of each sort happened since the statistics were last restarted.
    pub fn event_counts(&self) -> EventCounts {
        self.counts
    }

    /// When the next event happens, if any is scheduled.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        self.calendar.next()
    }

    /// Lets time pass without events, up to `until` or the next event, whichever is first.
    pub fn pass(&mut self, until: Instant) {
        let until = self.next().map_or(until, |next| next.min(until));
        self.counts.passes += u64::from(until > self.now);
        self.now = self.now.max(until);
    }

    /// Asks for CPU time.
    #[inline]
    pub fn compute(&mut self, instructions: u64, class: Class) -> JobId {
        let job = self.admit(None);
        self.burst(job, instructions, class, false);
        job
    }

    /// Spends CPU time at once, if a CPU is free and nothing is to happen before the burst ends, `until` included: then its
    /// end would be the next event. True if so; otherwise nothing has changed.
    #[inline]
    pub fn compute_alone(&mut self, instructions: u64, until: Option<Instant>) -> bool {
        let Some(cpus) = self.cpus.as_mut().filter(|_| self.jitter.is_none()) else { return false };
        let end = self.now.plus_ns(cpus.demand_ns(instructions));
        let disturbed = |at: Option<Instant>| at.is_some_and(|at| at <= end);
        if disturbed(self.calendar.next()) || disturbed(until) || !cpus.serve_alone(self.now, end) {
            return false;
        }
        self.now = end;
        self.events += 1;
        self.counts.cpu += 1;
        true
    }

    /// Whether a task keeps its thread until it waits; see [`crate::Discipline::RunUntilWait`].
    pub fn runs_until_wait(&self) -> bool {
        self.cpus.as_ref().is_some_and(Cpus::run_until_wait)
    }

    /// From now on the CPU's steps touch this many bytes of memory.
    pub fn set_footprint(&mut self, bytes: u64) {
        self.cpus.iter_mut().for_each(|cpus| cpus.set_footprint(bytes));
    }

    /// Asks for nothing but to complete `ns` nanoseconds from now.
    pub fn delay(&mut self, ns: u64) -> JobId {
        let job = self.admit(None);
        self.calendar.schedule(self.now.plus_ns(ns), job.0);
        job
    }

    /// Asks a device, by its number, for a transfer.
    ///
    /// # Panics
    /// If there is no such device.
    #[inline]
    pub fn transfer(&mut self, device: u16, transfer: Transfer) -> JobId {
        let job = self.admit(Some((device, transfer)));
        self.advance(job, 0);
        job
    }

    /// Asks for CPU time and then a transfer, during which the CPU stays taken (Rahm 1991, section 3.2).
    ///
    /// # Panics
    /// If there is no such device.
    pub fn transfer_synchronously(&mut self, instructions: u64, device: u16, transfer: Transfer) -> JobId {
        let job = self.admit(Some((device, transfer)));
        if self.cpus.is_some() {
            self.burst(job, instructions, Class::User, true);
        } else {
            self.advance(job, 0);
        }
        job
    }

    /// The next event happens; returns the request that it completes, if it completes one. `None` also if no event is
    /// scheduled: see [`Machine::next`].
    #[inline]
    pub fn step(&mut self) -> Option<JobId> {
        let (now, payload) = self.calendar.take()?;
        self.now = now;
        self.events += 1;
        if payload < TIMERS {
            let job = JobId(payload);
            let Job { io, stage, entered, background, .. } = self.jobs[payload as usize];
            let stage = usize::from(stage);
            let Some((device, transfer)) = io.filter(|_| stage != DONE) else {
                self.counts.delays += 1;
                return self.complete(job);
            };
            return self.depart((job, stage, entered), (device, transfer), background);
        }
        if (STAGES..SHARING).contains(&payload) {
            return self.look_at((payload - STAGES) / 4, (payload - STAGES) as usize % 4);
        }
        self.counts.cpu += 1;
        let timer = if payload == SHARING { Timer::Sharing } else { Timer::Server(payload - TIMERS) };
        let cpus = self.cpus.as_mut()?;
        let finished = cpus.expire(now, timer, &mut self.calendar)?;
        match finished.held {
            None => self.complete(finished.job),
            Some(server) => {
                self.jobs[finished.job.0 as usize].held = Some(server);
                self.advance_or_complete(finished.job, 0)
            }
        }
    }

    /// A request departs from a stage of its device.
    #[inline]
    fn depart(
        &mut self,
        (job, stage, entered): (JobId, usize, Instant),
        (device, transfer): (u16, Transfer),
        background: bool,
    ) -> Option<JobId> {
        self.counts.devices += 1;
        self.units[usize::from(device)].leave((self.now, entered), stage, &transfer, background);
        if background {
            self.complete(job);
            return None;
        }
        self.advance_or_complete(job, stage + 1)
    }

    /// A stage whose requests are all in service wants to be looked at.
    fn look_at(&mut self, device: u32, stage: usize) -> Option<JobId> {
        let (job, next) = self.units[device as usize].expire(self.now, stage);
        if let Some(next) = next {
            self.calendar.schedule(next, STAGES + device * 4 + stage as u32);
        }
        let job = JobId(job?);
        let Job { io: Some((device, transfer)), entered, background, .. } = self.jobs[job.0 as usize] else {
            unreachable!("only device requests pass stages")
        };
        self.depart((job, stage, entered), (device, transfer), background)
    }

    /// A request stays in a stage until it departs.
    #[inline]
    fn stay(&mut self, job: JobId, device: u16, stage: usize, stay: Stay) {
        let state = &mut self.jobs[job.0 as usize];
        (state.stage, state.entered) = (stage as u8, self.now);
        match stay {
            Stay::Until(departure) => self.calendar.schedule(departure, job.0),
            Stay::Inside(Some(next)) => {
                self.calendar.schedule(next, STAGES + u32::from(device) * 4 + stage as u32);
            }
            Stay::Inside(None) => {}
        }
    }

    /// Multiplies the service times of a device by `factor` from now on; 1 is healthy.
    pub fn slow_down(&mut self, device: u16, factor: f64) {
        self.units[usize::from(device)].set_slowdown(factor);
    }

    /// Load and queueing of every station since the statistics were last restarted.
    pub fn stations(&self) -> Vec<StationReport> {
        let now = self.now;
        let mut stations: Vec<StationReport> = self.cpus.iter().map(|cpus| cpus.report(now)).collect();
        for (number, unit) in self.units.iter().enumerate() {
            let inside = |job: &Job| match job.io {
                Some((device, _)) if usize::from(device) == number => Some((usize::from(job.stage), job.entered)),
                _ => None,
            };
            let present: Vec<_> = self.jobs.iter().filter_map(inside).collect();
            let used_ns = |limit: usize| self.buckets[limit].charged_ns();
            stations.extend(unit.reports(&present, now, (used_ns, now.since_ns(self.restarted))));
        }
        stations
    }

    /// The cache of each device that has one, by the device's number, and what each file's requests met there.
    pub fn caches(&self) -> impl Iterator<Item = (u16, &Cache, &BTreeMap<u32, CacheCounts>)> {
        let caches = self.units.iter().enumerate();
        caches.filter_map(|(number, unit)| unit.cache().map(|(cache, counts)| (number as u16, cache, counts)))
    }

    /// Forgets what stations did so far.
    pub fn restart_statistics(&mut self) {
        let now = self.now;
        self.cpus.iter_mut().for_each(|cpus| cpus.restart(now));
        self.units.iter_mut().for_each(|unit| unit.restart(now));
        self.buckets.iter_mut().for_each(Bucket::restart);
        self.restarted = now;
        self.counts = EventCounts::default();
    }

    #[inline]
    fn admit(&mut self, io: Option<(u16, Transfer)>) -> JobId {
        let job = Job { io, stage: DONE as u8, held: None, background: false, entered: self.now };
        match self.free.pop() {
            Some(id) => {
                self.jobs[id.0 as usize] = job;
                id
            }
            None => {
                let id = JobId(self.jobs.len() as u32);
                assert!(id.0 < TIMERS, "requests in flight fit the calendar's payload");
                self.jobs.push(job);
                id
            }
        }
    }

    #[inline]
    fn burst(&mut self, job: JobId, instructions: u64, class: Class, hold: bool) {
        let shuffle_ns = self.jitter.as_mut().map_or(0, |random| random.below(1_000));
        match &mut self.cpus {
            None => self.calendar.schedule(self.now.plus_ns(shuffle_ns), job.0),
            Some(cpus) => {
                let demand_ns = cpus.demand_ns(instructions) + shuffle_ns;
                let burst = Burst { job, demand_ns, hold, entered: self.now };
                cpus.arrive(self.now, burst, class, &mut self.calendar);
            }
        }
    }

    /// Sends a request to the next stage from `from` on; false if there is none.
    #[inline]
    fn forward(&mut self, job: JobId, from: usize) -> bool {
        let Some((device, transfer)) = self.jobs[job.0 as usize].io else {
            unreachable!("only device requests pass stages")
        };
        match self.units[usize::from(device)].forward((self.now, job.0), from, &transfer, &mut self.buckets) {
            NextStage::Stage(stage, stay) => {
                self.stay(job, device, stage, stay);
                return true;
            }
            NextStage::Destage => self.destage(device, transfer),
            NextStage::End => {}
        }
        self.jobs[job.0 as usize].stage = DONE as u8;
        false
    }

    /// A cache begins to write to its medium what it has taken.
    fn destage(&mut self, device: u16, transfer: Transfer) {
        let job = self.admit(Some((device, transfer)));
        self.jobs[job.0 as usize].background = true;
        let stay = self.units[usize::from(device)].enter((self.now, job.0), MEDIUM, &transfer);
        self.stay(job, device, MEDIUM, stay);
    }

    /// Nothing completes inside its submission: a request without any stage completes in an event of its own.
    fn advance(&mut self, job: JobId, from: usize) {
        if !self.forward(job, from) {
            self.calendar.schedule(self.now, job.0);
        }
    }

    #[inline]
    fn advance_or_complete(&mut self, job: JobId, from: usize) -> Option<JobId> {
        if self.forward(job, from) { None } else { self.complete(job) }
    }

    #[inline]
    fn complete(&mut self, job: JobId) -> Option<JobId> {
        if let (Some(server), Some(cpus)) = (self.jobs[job.0 as usize].held, &mut self.cpus) {
            cpus.release(self.now, server, &mut self.calendar);
        }
        self.jobs[job.0 as usize].io = None;
        self.free.push(job);
        Some(job)
    }
}

/// The place of this limit's bucket. Limits of one name share one.
fn bucket(buckets: &mut Vec<Bucket>, limit: &Limit) -> usize {
    let known = |bucket: &Bucket| limit.shared.is_some() && bucket.limit().shared == limit.shared;
    buckets.iter().position(known).unwrap_or_else(|| {
        buckets.push(Bucket::new(limit));
        buckets.len() - 1
    })
}
