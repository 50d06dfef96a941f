mod end;
mod network;
mod whole_files;

use crate::bell::{Bell, Doorbell};
use crate::described::Model;
use crate::descriptors;
use crate::files::{Device, FileTable};
use crate::flight::{AttemptEnd, Flight, FlightTable, Transfer};
use crate::job::Job;
use crate::mailbox::{Answer, JobResult, Mailbox};
use crate::mapped::MapMode;
use crate::mechanism::Mechanism;
use crate::medium::{Medium, nameless_file};
use crate::memory::{BufferTable, Regions};
use crate::options::Options;
use crate::place::{Identity, Place, identity};
use crate::request::{Call, Request};
use crate::slices::Slices;
use crate::sockets::SocketTable;
use crate::station::Station;
use crate::usage::{Entropy, thread_sleeps, unix_ns, wall_ns};
use crate::workers::Workers;
use crate::{DirectoryLocks, MissingDirectories};
use base::Instant;
use driver::{
    Access, CacheReport, Completion, DeviceId, DeviceTraits, Driver, Fault, FaultKind, FileId, Frame, Halt, Op, Output,
    Prices, StationReport, ThreadUse, Token,
};
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Threads for work on whole files.
const FILE_THREADS: usize = 4;

/// A computation and the slot it ends.
type Computation = (u32, Box<dyn FnOnce() + Send>);

/// The driver of this machine. It belongs to the thread that opened it.
///
/// ```
/// use driver::{Driver, Op, Output, Token};
/// use entresol_real::{Options, RealDriver};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// let mut driver = RealDriver::open(Options::new("disk", directory))?;
/// let device = driver.device("disk").expect("it was just named");
/// let mut done = Vec::new();
/// for op in [Op::Open { device, name: "log".into(), create: true }, Op::List { device }] {
///     driver.submit(Token(1), op);
///     while done.is_empty() {
///         driver.park(None, &mut done).expect("a real machine goes on");
///     }
///     if let Ok(Output::Names(names)) = done.remove(0).result {
///         assert_eq!(names, ["log"]);
///     }
/// }
/// println!("{}", driver.description());
/// # Ok::<(), driver::Fault>(())
/// ```
pub struct RealDriver {
    start_ns: u64,
    entropy: Entropy,
    pub(crate) devices: Vec<Device>,
    pub(crate) files: FileTable,
    sockets: SocketTable,
    pub(crate) flights: FlightTable,
    /// Transfers that their devices' descriptions begin at the next park.
    pub(crate) undelayed: Vec<u32>,
    /// What ended without the kernel; delivered by the next park.
    pub(crate) ready: Vec<Completion>,
    results: Vec<(u32, i32)>,
    answers: Vec<Answer>,
    mechanism: Mechanism,
    reason: String,
    regions: Regions,
    bell: Arc<Bell>,
    doorbell: Arc<Doorbell>,
    mailbox: Arc<Mailbox>,
    file_workers: Workers<(u32, Job)>,
    computers: Workers<Computation>,
    patience: Duration,
    /// Whether files are opened for direct I/O.
    direct: bool,
    /// The ring accepts one thread.
    not_send: PhantomData<*const ()>,
    /// How many of the locks the kernel keeps while anything is under way.
    kept_locks: usize,
    /// Goes last, after everything that writes.
    locks: DirectoryLocks,
    /// What the thread had done when statistics were last restarted.
    used_before: ThreadUse,
    slices: Slices,
}

/// The machine's clock.
#[allow(clippy::disallowed_methods, reason = "this is the driver that the fence points to")]
pub(crate) fn wall_clock() -> std::time::Instant {
    std::time::Instant::now()
}

impl RealDriver {
    /// Opens a driver for the calling thread. Raises the limit of files that this process may have open as far as it may.
    ///
    /// # Errors
    /// A [`Fault`] naming the directory that cannot be created or reached, or saying why io_uring is refused if
    /// [`crate::Backend::IoUring`] was asked for.
    pub fn open(options: Options) -> Result<RealDriver, Fault> {
        let start_ns = wall_ns();
        descriptors::raise_limit();
        let mut devices = Vec::with_capacity(options.devices.len());
        for (name, directory) in options.devices {
            let behaviour = options.behaviour.get(&name).cloned().unwrap_or_default();
            let mut medium = Medium::probe(&directory, options.direct && !behaviour.mapped)?;
            let mapped = behaviour.mapped.then(|| MapMode::probe(nameless_file(&directory)));
            if let Some(mode) = mapped {
                medium.traits = mode.traits(medium.traits);
            }
            if let Some(description) = &behaviour.described {
                medium.traits.synchronous = description.synchronous;
            }
            let model = behaviour.described.map(|description| Model::new(&name, &description, devices.len() as u64));
            let (identity, station) = (identity(&directory), Station::new(Instant::START));
            let place = Place { path: directory, identity };
            let created = MissingDirectories::default();
            devices.push(Device { name, place, medium, station, mapped, model, created });
        }
        let opened = Mechanism::open(options.backend, options.pool_threads)?;
        let (mechanism, bell, mailbox, reason) = opened;
        let post = Arc::clone(&mailbox);
        let file_workers = Workers::new("entresol-files", FILE_THREADS, move |(slot, job): (u32, Job)| {
            if let Some(result) = job.run() {
                post.post(slot, result);
            }
        });
        let post = Arc::clone(&mailbox);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let computers = Workers::new("entresol-compute", cores, move |(slot, run): Computation| {
            let result = match std::panic::catch_unwind(AssertUnwindSafe(run)) {
                Ok(()) => JobResult::Ended(Ok(Output::Done)),
                Err(panic) => JobResult::Panicked(panic),
            };
            post.post(slot, result);
        });
        Ok(RealDriver {
            start_ns,
            entropy: Entropy::default(),
            devices,
            files: FileTable::default(),
            sockets: SocketTable::default(),
            flights: FlightTable::default(),
            undelayed: Vec::new(),
            ready: Vec::new(),
            results: Vec::new(),
            answers: Vec::new(),
            mechanism,
            reason,
            regions: Regions::default(),
            doorbell: Arc::new(Doorbell::new(Arc::clone(&bell))),
            bell,
            mailbox,
            file_workers,
            computers,
            patience: options.patience,
            direct: options.direct,
            not_send: PhantomData,
            kept_locks: 0,
            locks: options.locks,
            used_before: ThreadUse::default(),
            slices: Slices::new(),
        })
    }

    /// Whether transfers go through io_uring.
    pub fn uses_io_uring(&self) -> bool {
        matches!(self.mechanism, Mechanism::Ring(_))
    }

    fn finish(&mut self, token: Token, result: Result<Output, Fault>, buffer: Option<Frame>) {
        self.ready.push(Completion { token, result, buffer });
    }

    fn device_of(&self, id: DeviceId) -> Result<&Device, Fault> {
        let unknown = || Fault::new(FaultKind::NotFound, format!("there is no device {}", id.0));
        self.devices.get(usize::from(id.0)).ok_or_else(unknown)
    }

    /// Begins a transfer; `call` says which and `span` its offset and length.
    fn begin_transfer(
        &mut self,
        token: Token,
        call: Call,
        file: FileId,
        span: (u64, u32),
        buffer: Option<Frame>,
        access: Access,
    ) {
        let (offset, length) = span;
        if let Some(buffer) = &buffer {
            assert!(length as usize <= buffer.len(), "{length} bytes do not fit a frame of {}", buffer.len());
        }
        let Some(open) = self.files.get(file) else { return self.finish(token, Err(not_open(file)), buffer) };
        if offset > i64::MAX as u64 - u64::from(length) {
            let message = format!("offset {offset} of '{}' is beyond any file", open.name);
            return self.finish(token, Err(Fault::new(FaultKind::Unsupported, message)), buffer);
        }
        if length == 0 && call != Call::Sync {
            return self.finish(token, Ok(Output::Done), buffer);
        }
        let device = open.device;
        let mapped = open.mapping.is_some();
        self.files.hold(file);
        let arrival = self.now();
        self.devices[usize::from(device.0)].station.arrive(arrival);
        let delayed = self.devices[usize::from(device.0)].model.is_some();
        let transfer = Transfer {
            call,
            file,
            device,
            offset,
            length,
            done: 0,
            buffer,
            cancelled: false,
            arrival,
            delayed,
            outcome: None,
        };
        let slot = self.flights.insert(token, Flight::Transfer(transfer));
        match access {
            Access::Asynchronous if delayed => self.undelayed.push(slot),
            _ if delayed => self.delay(slot),
            _ => {}
        }
        match access {
            _ if mapped => self.copy_here(slot),
            Access::Asynchronous => {
                let request = self.request(slot);
                self.mechanism.start(request);
            }
            Access::Synchronous { .. } => self.transfer_here(slot),
        }
        if delayed && access != Access::Asynchronous {
            self.hold(slot);
        }
    }

    /// The request for what is left of a transfer.
    #[inline]
    fn request(&mut self, slot: u32) -> Request {
        let transfer = self.flights.transfer(slot);
        let place = match (&mut self.mechanism, &transfer.buffer) {
            (Mechanism::Ring(ring), Some(buffer)) => self.regions.place(buffer, Some(&mut **ring)),
            _ => None,
        };
        let file = self.files.entered(transfer.file).expect("a transfer holds its file");
        transfer.request(slot, file.fd(), file.registered, place)
    }

    /// Carries a transfer through on this thread: the CPU is held.
    pub(crate) fn transfer_here(&mut self, slot: u32) {
        loop {
            let result = self.request(slot).perform();
            if let AttemptEnd::Finished(result) = self.advance(slot, result) {
                let now = self.now();
                let completion = self.end_transfer(slot, result, now);
                return self.ready.extend(completion);
            }
        }
    }

    fn advance(&mut self, slot: u32, result: i32) -> AttemptEnd {
        let transfer = self.flights.transfer(slot);
        let file = &*self.files.entered(transfer.file).expect("a transfer holds its file");
        let directory = &self.devices[usize::from(file.device.0)].place.path;
        transfer.advance(result, || directory.join(&file.name).display().to_string(), || file.length())
    }

    /// The device is done with a transfer: its completion, unless the device's description holds it back.
    pub(crate) fn end_transfer(
        &mut self,
        slot: u32,
        result: Result<Output, Fault>,
        now: Instant,
    ) -> Option<Completion> {
        let transfer = self.flights.transfer(slot);
        if transfer.delayed {
            transfer.outcome = Some(result);
            return None;
        }
        let (token, Flight::Transfer(transfer)) = self.flights.remove(slot) else {
            unreachable!("slot {slot} holds no transfer")
        };
        self.devices[usize::from(transfer.device.0)].station.depart(now, transfer.arrival);
        if let Some(file) = self.files.release(transfer.file) {
            self.close(file, transfer.file);
        }
        Some(Completion { token, result, buffer: transfer.buffer })
    }

    /// Takes the result of an attempt: the transfer completes or its rest is queued.
    fn transferred(&mut self, slot: u32, result: i32, now: Instant, done: &mut Vec<Completion>) {
        if self.flights.is_exchange(slot) {
            return self.exchanged(slot, result, done);
        }
        match self.advance(slot, result) {
            AttemptEnd::Finished(result) => done.extend(self.end_transfer(slot, result, now)),
            AttemptEnd::Again => {
                let request = self.request(slot);
                self.mechanism.start(request);
            }
        }
    }

    /// Takes the news of a thread.
    fn read(&mut self, answer: Answer, now: Instant, done: &mut Vec<Completion>) {
        let Answer { slot, result } = answer;
        let result = match result {
            JobResult::Transferred(result) => return self.transferred(slot, result, now, done),
            JobResult::Panicked(panic) => std::panic::resume_unwind(panic),
            JobResult::Opened(opened) => Ok(opened),
            JobResult::Ended(result) => Err(result),
        };
        let (token, flight) = self.flights.remove(slot);
        let result = match (flight, result) {
            (Flight::Open(device, name), Ok(opened)) => self.enter_file(device, name, opened),
            (_, Ok(_)) => unreachable!("only an opening opens a file"),
            (flight, Err(result)) => {
                let followed = self.follow_resize(&flight);
                self.conclude(flight, result.is_ok());
                result.and_then(|output| followed.map(|()| output))
            }
        };
        done.push(Completion { token, result, buffer: None });
    }

    /// Collects what has ended. `results` are the ring's.
    fn collect(&mut self, done: &mut Vec<Completion>) {
        self.pass_described();
        done.append(&mut self.ready);
        self.mailbox.collect(&mut self.answers);
        if !self.results.is_empty() || !self.answers.is_empty() {
            let now = self.now();
            let mut results = std::mem::take(&mut self.results);
            for (slot, result) in results.drain(..) {
                self.transferred(slot, result, now, done);
            }
            self.results = results;
            let mut answers = std::mem::take(&mut self.answers);
            for answer in answers.drain(..) {
                self.read(answer, now, done);
            }
            self.answers = answers;
        }
        if self.bell.take_rung() {
            done.push(Completion { token: Token::DOORBELL, result: Ok(Output::Done), buffer: None });
        }
        if self.regions.has_dropped()
            && let Mechanism::Ring(ring) = &mut self.mechanism
        {
            self.regions.prune(&mut **ring);
        }
    }

    fn used(&self) -> ThreadUse {
        ThreadUse { sleeps: thread_sleeps(), ..self.mechanism.used() }
    }

    fn has_no_waker(&self) -> bool {
        if self.flights.len() > 0 || !self.ready.is_empty() || Arc::strong_count(&self.doorbell) > 1 {
            return false;
        }
        // The thread that dropped the last doorbell may have rung it just before: its writes are visible after this fence.
        fence(Ordering::Acquire);
        !self.bell.is_rung()
    }

    /// How long a park may wait: `None` is without limit.
    fn wait_limit(&self, until: Option<Instant>) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let described = self.devices.iter().filter_map(|device| device.model.as_ref()?.next());
        let described = described.filter(|_| self.flights.len() > 0);
        let until = until.into_iter().chain(described).min();
        until.map(|until| Duration::from_nanos(until.since_ns(self.now())))
    }
}

fn not_open(file: FileId) -> Fault {
    Fault::new(FaultKind::NotFound, format!("file {} is not open; it was removed or never opened", file.0))
}

impl Driver for RealDriver {
    #[inline]
    fn now(&self) -> Instant {
        Instant::from_ns(wall_ns() - self.start_ns)
    }

    fn unix_ns(&self) -> u64 {
        unix_ns()
    }

    fn entropy(&mut self) -> u128 {
        self.entropy.take()
    }

    fn submit(&mut self, token: Token, op: Op) {
        debug_assert_ne!(token, Token::DOORBELL, "this token belongs to the doorbell");
        match op {
            Op::Read { file, offset, length, buffer, access } => {
                self.begin_transfer(token, Call::Read, file, (offset, length), Some(buffer), access);
            }
            Op::Write { file, offset, length, buffer, durable, access } => {
                let call = if durable { Call::WriteDurable } else { Call::Write };
                self.begin_transfer(token, call, file, (offset, length), Some(buffer), access);
            }
            Op::Sync { file } => self.begin_transfer(token, Call::Sync, file, (0, 0), None, Access::Asynchronous),
            Op::Open { device, name, create } => self.begin_open(token, device, name, create),
            Op::Resize { file, length, prewrite } => self.begin_resize(token, (file, length), prewrite),
            Op::Remove { device, name } => self.begin_on_device(token, device, |at| {
                (Flight::Remove(device, name.clone()), Job::Remove { place: at.place.clone(), name })
            }),
            Op::List { device } => {
                self.begin_on_device(token, device, |at| (Flight::Other, Job::List { place: at.place.clone() }))
            }
            Op::Cpu { .. } => self.finish(token, Ok(Output::Done), None),
            Op::Compute { run, .. } => {
                let slot = self.flights.insert(token, Flight::Other);
                self.computers.push([(slot, run)]);
            }
            network => self.submit_to_network(token, network),
        }
    }

    fn cancel(&mut self, token: Token) {
        let Some(slot) = self.flights.find(token) else { return };
        let cancelled = || Err(Fault::new(FaultKind::Cancelled, "given up on request"));
        if self.flights.is_transfer(slot) {
            let transfer = self.flights.transfer(slot);
            transfer.cancelled = true;
            if transfer.outcome.is_none() && self.mechanism.cancel(slot) {
                let now = self.now();
                let completion = self.end_transfer(slot, cancelled(), now);
                self.ready.extend(completion);
            }
        } else if self.flights.is_exchange(slot) {
            self.cancel_exchange(slot);
        } else if self.file_workers.take_back(|job| job.0 == slot).is_some()
            || self.computers.take_back(|job| job.0 == slot).is_some()
        {
            let (token, flight) = self.flights.remove(slot);
            self.conclude(flight, false);
            self.finish(token, cancelled(), None);
        }
    }

    /// # Panics
    /// If called by another thread than the one that opened the driver, and with the panic of a computation.
    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        let before = done.len();
        self.slices.note_park();
        loop {
            // Descriptions begin what the operating system has been given, and nothing is waited for before that.
            let hands_over = !self.undelayed.is_empty();
            let limit = if hands_over { Some(Duration::ZERO) } else { self.wait_limit(until) };
            if limit.is_none() && self.has_no_waker() {
                return Err(Halt::Idle);
            }
            self.mechanism.wait(limit, &mut self.results);
            if hands_over {
                self.delay_handed_over();
            }
            self.collect(done);
            if done.len() > before || until.is_some_and(|until| self.now() >= until) {
                return Ok(());
            }
        }
    }

    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        let table = match &mut self.mechanism {
            Mechanism::Ring(ring) => Some(&mut **ring as &mut dyn BufferTable),
            Mechanism::Pool(_) => None,
        };
        self.regions.frames(count, size, table)
    }

    fn untouched_frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.regions.untouched_frames(count, size)
    }

    fn attach(&mut self, directory: &Path) -> Result<DeviceId, Fault> {
        let name = directory.display().to_string();
        let known = |devices: &[Device], identity: Option<Identity>| {
            let is_it = |device: &Device| device.name == name && device.place.identity == identity;
            devices.iter().position(is_it)
        };
        let found = identity(directory);
        if let Some(index) = found.and_then(|found| known(&self.devices, Some(found))) {
            return Ok(DeviceId(index as u16));
        }
        let created = MissingDirectories::of([directory]);
        let medium = Medium::probe(directory, self.direct).inspect_err(|_| created.remove())?;
        let identity = identity(directory);
        if let Some(index) = known(&self.devices, identity) {
            self.devices[index].medium = medium;
            return Ok(DeviceId(index as u16));
        }
        let Ok(id) = u16::try_from(self.devices.len()) else {
            let message = format!("there are too many devices for '{name}'; open the database again");
            return Err(Fault::new(FaultKind::Unsupported, message));
        };
        let (place, station) = (Place { path: directory.to_owned(), identity }, Station::new(self.now()));
        self.devices.push(Device { name, place, medium, station, mapped: None, model: None, created });
        Ok(DeviceId(id))
    }

    fn remove_attached(&mut self, device: DeviceId) {
        let Device { place, created, .. } = &self.devices[usize::from(device.0)];
        // Another directory may be there by now.
        if place.identity.is_some() && identity(&place.path) == place.identity {
            created.remove();
        }
    }

    fn forget(&mut self, file: FileId) {
        if let Some(open) = self.files.let_go(file) {
            self.close(open, file);
        }
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        self.devices.iter().rposition(|device| device.name == name).map(|index| DeviceId(index as u16))
    }

    /// # Panics
    /// If there is no such device.
    fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.devices[usize::from(device.0)].medium.traits
    }

    fn prices(&self) -> Option<Prices> {
        None
    }

    fn doorbell(&self) -> Arc<dyn driver::Doorbell> {
        Arc::clone(&self.doorbell) as Arc<dyn driver::Doorbell>
    }

    fn description(&self) -> String {
        let reason = &self.reason;
        let mut text = match &self.mechanism {
            Mechanism::Ring(ring) => {
                format!("io_uring ({reason}; {}, {})", ring.describe(), self.regions.describe(ring.places()))
            }
            Mechanism::Pool(pool) => format!("thread pool of up to {} threads ({reason})", pool.limit()),
        };
        for device in &self.devices {
            text += &format!("; {} in '{}', {}", device.name, device.place.path.display(), device.mode());
        }
        text
    }

    fn stations(&self) -> Vec<StationReport> {
        let now = self.now();
        let report = |(number, device): (usize, &Device)| {
            device.station.report(&device.name, self.flights.arrivals(DeviceId(number as u16)), now)
        };
        let described = self.devices.iter().filter_map(|device| Some(device.model.as_ref()?.stations())).flatten();
        self.devices.iter().enumerate().map(report).chain(described).collect()
    }

    fn caches(&self) -> Vec<CacheReport> {
        let mut reports = Vec::new();
        for device in &self.devices {
            let name = |file| self.files.name(file);
            reports.extend(device.model.iter().flat_map(|model| model.caches(&device.name, name)));
        }
        reports
    }

    fn thread_use(&self) -> ThreadUse {
        self.used().since(self.used_before)
    }

    fn restart_statistics(&mut self) {
        self.used_before = self.used();
        let now = self.now();
        for device in &mut self.devices {
            device.station.restart(now);
            device.model.iter_mut().for_each(Model::restart);
        }
    }
}
