mod networked;
mod thread;

use crate::effects::{Disks, Opened};
use crate::faults::Faults;
use crate::{FaultPlan, Injected, Injury, Media, Port};
use base::{Clock, Instant, Random};
use devices::{Class, Direction, Hardware, JobId, Machine, Transfer};
use driver::{
    Access, CacheReport, CachedFile, Completion, DeviceId, DeviceTraits, Doorbell, Driver, EventCount, Fault,
    FaultKind, FileId, Frame, Halt, Op, OpKind, Output, Prices, StationReport, ThreadUse, Token, Work,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thread::Thread;

/// How a simulation runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Seeds every stream of random numbers.
    pub seed: u64,
    /// What goes wrong; with `None` nothing does and keeping track costs nothing.
    pub faults: Option<FaultPlan>,
    /// Whether all service times are random, so that operations complete in a seeded random order (torture).
    pub jitter: bool,
    /// Files whose names begin with one of these keep their length but not their bytes, which read as zeros: a run that only
    /// measures need not keep its log.
    pub discard: Vec<String>,
}

/// An operation under way.
struct Flight {
    token: Token,
    op: Op,
    /// For a sync: which writes it concerns.
    limit: u64,
    /// Whether its device is slow: then it can be cancelled.
    slow: bool,
    cancelled: bool,
    /// What becomes of it when it completes.
    injury: Option<Injury>,
}

/// A driver on described hardware, under a virtual clock.
///
/// It never waits for another thread: with nothing under way and no deadline, [`Driver::park`] reports [`Halt::Idle`] even
/// while its doorbell is held elsewhere.
///
/// ```
/// use driver::Driver;
/// use executor::{Executor, Order};
/// use entresol_virtual::{Hardware, Media, Options, VirtualDriver};
///
/// let media = Media::new();
/// let driver = VirtualDriver::new(Hardware::named("rahm-1991")?, Options { seed: 7, ..Options::default() }, media);
/// assert!(driver.prices().is_some(), "this machine's CPU steps cost instructions");
/// let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// let hour_ns = 3600 * base::time::SECOND_NS;
/// executor.run(executor.sleep_ns(hour_ns)).expect("the machine goes on");
/// assert_eq!(executor.now().ns(), hour_ns, "without waiting for it");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VirtualDriver {
    machine: Machine,
    /// What its programs are shown of the machine's time.
    clock: Clock,
    prices: Option<Prices>,
    disks: Disks,
    /// Operations under way by the machine's job; a cancelled one has left its place.
    flights: Vec<Option<Flight>>,
    in_flight: usize,
    faults: Option<Faults>,
    /// The engine's thread, where a task keeps it until it waits.
    thread: Option<Thread>,
    /// The machine's place on a network; absent until it is used.
    port: Option<Port>,
    halted: bool,
    bell: Arc<Bell>,
    hash: u64,
    description: String,
    entropy: Random,
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl VirtualDriver {
    /// A machine of this description at the start of time, with these contents.
    pub fn new(hardware: Hardware, options: Options, media: Media) -> VirtualDriver {
        let faulty = if options.faults.is_some() { ", with faults" } else { "" };
        let description = format!("virtual driver: hardware '{}', seed {}{faulty}", hardware.name, options.seed);
        let prices = hardware.cpu.as_ref().map(|cpu| {
            let price = |work| match work {
                Work::BeginTransaction => cpu.instructions.begin_transaction,
                Work::ObjectReference => cpu.instructions.object_reference,
                Work::EndTransaction => cpu.instructions.end_transaction,
                Work::InputOutput => cpu.instructions.input_output,
                Work::NvemAccess => cpu.instructions.nvem_access,
                Work::LockPair => cpu.instructions.lock_pair,
                Work::LogRecord => cpu.instructions.log_record,
                Work::LogPage => cpu.instructions.log_page,
                Work::LogCheck => cpu.instructions.log_check,
                Work::SegmentAllocation => cpu.instructions.segment_allocation,
                Work::SegmentCopy => cpu.instructions.segment_copy,
                Work::Message => cpu.instructions.message,
                Work::KeyComparison => cpu.instructions.key_comparison,
                Work::RowCopy => cpu.instructions.row_copy,
                Work::NetworkMessage => cpu.instructions.network_message,
                Work::NetworkBytes => cpu.instructions.network_bytes,
                Work::CopyRegistration => cpu.instructions.copy_registration,
                Work::Redo => cpu.instructions.redo,
                Work::TreeSearch => cpu.instructions.tree_search,
                Work::HashEntry => cpu.instructions.hash_entry,
                Work::NodeMessage => cpu.instructions.node_message,
                Work::PageImage => cpu.instructions.page_image,
                Work::ShippedChange => cpu.instructions.shipped_change,
                Work::Request => cpu.instructions.request,
                Work::ValueCopy => cpu.instructions.value_copy,
                Work::DistantValue => cpu.instructions.distant_value,
            };
            Prices {
                instructions: Work::ALL.map(price),
                exponential: cpu.instructions.exponential,
                instruction_ns: 1e3 / cpu.mips,
                seed: options.seed,
            }
        });
        let until_wait = |cpu: &&devices::Cpu| cpu.discipline == devices::Discipline::RunUntilWait;
        let thread = hardware.cpu.as_ref().filter(until_wait).map(|cpu| Thread::new(cpu, options.seed));
        VirtualDriver {
            machine: Machine::new(&hardware, options.seed, options.jitter),
            clock: Clock::default(),
            prices,
            disks: Disks::new(hardware, media, options.discard),
            flights: Vec::new(),
            in_flight: 0,
            faults: options.faults.map(|plan| Faults::new(plan, options.seed)),
            thread,
            port: None,
            halted: false,
            bell: Arc::default(),
            entropy: Random::stream(options.seed, "entropy"),
            hash: 0xcbf2_9ce4_8422_2325,
            description,
        }
    }

    /// The same at a place on a network, from the moment that the network has come to. Without this a machine is alone, and
    /// reaches itself only.
    pub fn on_network(hardware: Hardware, options: Options, media: Media, port: Port) -> VirtualDriver {
        let mut driver = VirtualDriver::new(hardware, options, media);
        driver.machine.pass(port.latest());
        driver.port = Some(port);
        driver
    }

    /// The same with a clock of its own: what its programs wait for comes when this one shows it, and no device is faster or slower.
    ///
    /// ```
    /// use base::Clock;
    /// use executor::{Executor, Order};
    /// use entresol_virtual::{Hardware, Media, Options, VirtualDriver};
    ///
    /// let clock = Clock::new(1_000, 250_000);
    /// let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new()).with_clock(clock);
    /// let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    /// executor.run(executor.sleep_ns(500)).expect("the machine goes on");
    /// assert_eq!((executor.now().ns(), clock.when(executor.now()).ns()), (1_500, 400));
    /// ```
    pub fn with_clock(self, clock: Clock) -> VirtualDriver {
        VirtualDriver { clock, ..self }
    }

    /// A hash of all completions so far: when, which token, which kind. Equal seeds give equal hashes.
    pub fn event_hash(&self) -> u64 {
        self.hash
    }

    /// How many events the simulation has had; a power cut can be placed at any.
    pub fn events(&self) -> u64 {
        self.machine.events() + self.port.as_ref().map_or(0, Port::events)
    }

    /// What the fault plan has done so far; nothing without one.
    pub fn injected(&self) -> Injected {
        self.faults.as_ref().map(|faults| faults.injected.clone()).unwrap_or_default()
    }

    /// How many reads were given what was there before the latest write; see [`Injury::Stale`].
    pub fn stale_reads(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.injected.stale_reads)
    }

    /// Decides what becomes of an operation under way when it completes.
    ///
    /// # Panics
    /// If the driver has no fault plan.
    pub fn inject(&mut self, token: Token, injury: Injury) {
        assert!(self.faults.is_some(), "faults need a plan, if only an empty one");
        for flight in self.flights.iter_mut().flatten().filter(|flight| flight.token == token) {
            flight.injury = Some(injury);
        }
    }

    /// Has an operation under way on a device happen only after `ns` nanoseconds, whether it is cancelled or not, as one whose
    /// thread hangs.
    pub fn delay(&mut self, token: Token, ns: u64) {
        let mut flights = self.flights.iter_mut().filter(|flight| flight.as_ref().is_some_and(|f| f.token == token));
        let Some(flight) = flights.next().and_then(Option::take) else { return };
        self.in_flight -= 1;
        let job = self.machine.delay(ns);
        self.board(job, Flight { slow: false, ..flight });
    }

    /// Cuts the power after `events` more events, instead of when the fault plan says.
    ///
    /// # Panics
    /// If the driver has no fault plan.
    pub fn cut_power_after(&mut self, events: u64) {
        let event = VirtualDriver::events(self) + 1 + events;
        self.faults.as_mut().expect("faults need a plan, if only an empty one").cut_power_at(event);
    }

    /// The contents of the devices.
    pub fn media(&self) -> &Media {
        &self.disks.media
    }

    fn start(&mut self, op: &Op) -> (JobId, bool) {
        let class = |class| match class {
            driver::Class::User => Class::User,
            driver::Class::System => Class::System,
        };
        match *op {
            Op::Cpu { instructions, class: of } => (self.machine.compute(instructions, class(of)), false),
            Op::Compute { instructions, .. } => (self.machine.compute(instructions, Class::User), false),
            Op::Read { file, offset, length, access, .. } => {
                self.transfer(OpKind::Read, file, access, (Direction::Read, offset, length))
            }
            Op::Write { file, offset, length, durable, access, .. } => {
                self.transfer(OpKind::Write, file, access, (Direction::Write { durable }, offset, length))
            }
            Op::Sync { file } | Op::Resize { file, .. } => {
                self.transfer(op.kind(), file, Access::Asynchronous, (Direction::Sync, 0, 0))
            }
            Op::Open { device, .. } | Op::Remove { device, .. } | Op::List { device } => {
                let transfer =
                    Transfer { direction: Direction::Sync, file: u32::MAX, offset: 0, length: 0, fresh: false };
                self.request(op.kind(), device, Access::Asynchronous, transfer)
            }
            _ => unreachable!("{op:?} goes to the network"),
        }
    }

    fn transfer(
        &mut self,
        kind: OpKind,
        file: FileId,
        access: Access,
        (direction, offset, length): (Direction, u64, u32),
    ) -> (JobId, bool) {
        let Some(Opened { device, file }) = self.disks.opened(file) else { return (self.machine.delay(0), false) };
        let fresh = direction != Direction::Read && self.disks.media.write_is_fresh(file, offset, length);
        self.request(kind, device, access, Transfer { direction, file: file as u32, offset, length, fresh })
    }

    #[inline]
    fn request(&mut self, kind: OpKind, device: DeviceId, access: Access, transfer: Transfer) -> (JobId, bool) {
        let Some(name) = self.disks.name(device) else { return (self.machine.delay(0), false) };
        let mut slow = false;
        if let Some(faults) = &mut self.faults {
            let factor = faults.slowdown(self.machine.now(), kind, name);
            slow = factor != 1.0;
            self.machine.slow_down(device.0, factor);
        }
        let job = match access {
            Access::Asynchronous => self.machine.transfer(device.0, transfer),
            Access::Synchronous { instructions } => {
                self.machine.transfer_synchronously(instructions, device.0, transfer)
            }
        };
        (job, slow)
    }

    fn board(&mut self, job: JobId, flight: Flight) {
        let index = job.0 as usize;
        if self.flights.len() <= index {
            self.flights.resize_with(index + 1, || None);
        }
        self.flights[index] = Some(flight);
        self.in_flight += 1;
    }

    /// The operation's effect and its completion.
    fn land(&mut self, flight: Flight) -> Completion {
        let Flight { token, op, limit, cancelled, injury, .. } = flight;
        self.in_flight -= 1;
        if let Some(faults) = &mut self.faults {
            faults.injury = injury;
        }
        self.fold(self.machine.now().ns());
        self.fold(token.0);
        self.fold(op.kind() as u64);
        let (result, buffer) = self.disks.perform(op, limit, cancelled, self.faults.as_mut());
        Completion { token, result, buffer }
    }

    fn submit_to_devices(&mut self, token: Token, op: Op) -> JobId {
        let limit = if let Op::Sync { file } = op { self.disks.write_limit(file) } else { 0 };
        let (job, slow) = self.start(&op);
        self.board(job, Flight { token, op, limit, slow, cancelled: false, injury: None });
        job
    }

    /// Events happen until operations have completed, or until a moment.
    fn wait(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let before = done.len();
        loop {
            let limit = if done.len() > before { Some(self.machine.now()) } else { until };
            match self.machine.next() {
                Some(next) if limit.is_none_or(|limit| next <= limit.max(self.machine.now())) => {}
                _ => break,
            }
            if self.faults.as_ref().is_some_and(|faults| faults.power_goes(self.machine.events())) {
                return Err(self.cut_power());
            }
            let completed = self.machine.step().and_then(|job| self.flights[job.0 as usize].take());
            if let Some(flight) = completed {
                let completion = self.land(flight);
                done.push(completion);
            }
        }
        if let (Some(until), true) = (until, done.len() == before) {
            self.machine.pass(until);
        }
        Ok(())
    }

    fn answer_bell(&mut self, done: &mut Vec<Completion>) -> bool {
        let is_rung = self.bell.0.swap(false, Ordering::Acquire);
        if is_rung {
            done.push(Completion { token: Token::DOORBELL, result: Ok(Output::Done), buffer: None });
        }
        is_rung
    }

    fn fold(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn cut_power(&mut self) -> Halt {
        if !std::mem::replace(&mut self.halted, true) {
            let flights = std::mem::take(&mut self.flights);
            for flight in flights.into_iter().flatten() {
                if let Some(faults) = &mut self.faults {
                    *faults.injected.interrupted.entry(flight.op.kind()).or_default() += 1;
                }
                self.disks.interrupt(flight.op);
            }
            if let Some(faults) = &mut self.faults {
                faults.injected.power_cuts += 1;
            }
            if let Some(mut port) = self.port.take() {
                port.cut();
            }
        }
        Halt::PowerCut
    }
}

impl Driver for VirtualDriver {
    fn now(&self) -> Instant {
        self.clock.shows(self.machine.now())
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn submit(&mut self, token: Token, op: Op) {
        if self.halted {
            return;
        }
        match &mut self.thread {
            Some(_) if op.kind() != OpKind::Cpu && op.holds_cpu() => self.access_here(token, op),
            Some(thread) => thread.submit(token, op),
            None if op.kind().is_network() => self.submit_to_network(token, op),
            None => _ = self.submit_to_devices(token, op),
        }
    }

    /// Faults count events and may cut them off, and on a network other machines disturb, so with them every burst takes the
    /// long way.
    fn compute_alone(&mut self, instructions: u64, until: Option<Instant>) -> bool {
        if self.thread.is_some() {
            self.run_steps(instructions);
            return true;
        }
        let is_alone = self.faults.is_none() && self.port.is_none();
        let undisturbed = !self.halted && is_alone && !self.bell.0.load(Ordering::Acquire);
        let alone = undisturbed && self.machine.compute_alone(instructions, until.map(|until| self.clock.when(until)));
        if alone {
            self.fold(self.machine.now().ns());
            self.fold(OpKind::Cpu as u64);
        }
        alone
    }

    fn runs_until_wait(&self) -> bool {
        self.thread.is_some()
    }

    fn set_footprint(&mut self, bytes: u64) {
        self.machine.set_footprint(bytes);
    }

    /// Only operations on slow devices (see [`FaultPlan`]) are given up; all others complete as they would.
    fn cancel(&mut self, token: Token) {
        if self.port.is_some() {
            self.hand_over(false);
        }
        let mut slow =
            self.flights.iter_mut().filter(|flight| flight.as_ref().is_some_and(|f| f.slow && f.token == token));
        let Some(flight) = slow.next().and_then(Option::take) else {
            return self.cancel_on_network(token);
        };
        self.in_flight -= 1;
        let job = self.machine.delay(0);
        self.board(job, Flight { slow: false, cancelled: true, ..flight });
    }

    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        if self.halted {
            return Err(Halt::PowerCut);
        }
        let until = until.map(|until| self.clock.when(until));
        if self.answer_bell(done) {
            return Ok(());
        }
        if self.thread.is_some() {
            return self.park_thread(until, done);
        }
        if self.port.is_some() {
            return self.park_on_network(until, done);
        }
        if until.is_none() && self.in_flight == 0 {
            return Err(Halt::Idle);
        }
        self.wait(until, done)
    }

    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        let bytes = count.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize / 2);
        match bytes {
            Some(_) => Ok(Frame::allocate(count, size)),
            None => {
                Err(Fault::new(FaultKind::NoMemory, format!("{count} frames of {size} bytes exceed the address space")))
            }
        }
    }

    fn next_event(&self) -> Option<Instant> {
        self.next_happening()
    }

    fn next_turn(&self, task: Option<Instant>) -> Option<Instant> {
        match &self.thread {
            Some(thread) => self.next_turn_of(thread, task),
            None => task.into_iter().chain(self.next_happening()).min(),
        }
    }

    fn take_turn(&mut self, moment: Instant, is_due: bool, done: &mut Vec<Completion>) -> Result<bool, Halt> {
        if self.thread.is_some() && !self.halted {
            return self.take_turn_of_thread(moment, is_due, done);
        }
        self.park(Some(self.clock.shows(moment)), done).map(|()| true)
    }

    fn entropy(&mut self) -> u128 {
        u128::from(self.entropy.word()) << 64 | u128::from(self.entropy.word())
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        self.disks.device(name)
    }

    fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.disks.traits(device)
    }

    fn has_described_network(&self) -> bool {
        true
    }

    fn prices(&self) -> Option<Prices> {
        self.prices
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::clone(&self.bell) as Arc<dyn Doorbell>
    }

    fn description(&self) -> String {
        self.description.clone()
    }

    fn stations(&self) -> Vec<StationReport> {
        let network = self.port.iter().flat_map(|port| port.stations(self.network_now()));
        self.machine.stations().into_iter().chain(network).collect()
    }

    fn caches(&self) -> Vec<CacheReport> {
        let report =
            |(device, cache, counts): (u16, &devices::Cache, &BTreeMap<u32, devices::CacheCounts>)| CacheReport {
                device: self.disks.name(DeviceId(device)).unwrap_or_default().to_owned(),
                kind: cache.kind.word().to_owned(),
                pages: cache.pages(),
                files: counts
                    .iter()
                    .map(|(file, counts)| CachedFile {
                        name: self.disks.file_name(*file),
                        reads: counts.reads,
                        read_hits: counts.read_hits,
                        writes: counts.writes,
                        write_hits: counts.write_hits,
                        absorbed: counts.absorbed,
                    })
                    .collect(),
            };
        self.machine.caches().map(report).collect()
    }

    fn events(&self) -> Vec<EventCount> {
        let counts = self.machine.event_counts();
        let mut events = vec![("cpu".to_owned(), counts.cpu)];
        let stages = self.machine.stations().into_iter().filter(|station| station.name.contains('.'));
        events.extend(stages.map(|station| (station.name, station.completed)));
        events.extend([("delays".to_owned(), counts.delays), ("timers".to_owned(), counts.passes)]);
        let happened = events.into_iter().filter(|(_, count)| *count > 0);
        happened.map(|(name, count)| EventCount { name, count }).collect()
    }

    fn thread_use(&self) -> ThreadUse {
        self.thread.as_ref().map_or_else(ThreadUse::default, |thread| thread.used)
    }

    fn restart_statistics(&mut self) {
        self.thread.iter_mut().for_each(|thread| thread.used = ThreadUse::default());
        self.machine.restart_statistics();
        if let Some(port) = &self.port {
            port.restart_statistics(self.network_now());
        }
    }
}
