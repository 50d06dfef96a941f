//! The world against the engine: the virtual driver, watched and made hostile.

mod damaging;
mod ending;
mod hanging;
mod log_writes;
mod recognition;

use crate::coverage::Pair;
use crate::damage::Damages;
use crate::plan::{CutPoint, Full, Plan, SectorDamage, Target};
use crate::{ClientEvent, Coverage, FaultKind, Step};
use base::{Instant, Random};
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, FaultKind as Refusal, FileId, Frame, Halt, Op, OpKind,
    Output, Prices, StationReport, Token,
};
use executor::Executor;
pub use log_writes::LogWrites;
use log_writes::pages_of;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use virtual_driver::{Injury, VirtualDriver};

/// What a run is doing at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The database is being created.
    #[default]
    Creating,
    /// It is being opened and recovered.
    Opening,
    /// It is in use.
    Running,
    /// It is being made from a backup.
    Restoring,
}

/// What the adversary and a run tell each other, during the run and after it.
#[derive(Default)]
pub struct Observed {
    /// Set by the run.
    pub phase: Cell<Phase>,
    /// Set by the run once its clients work.
    pub are_clients_at_work: Cell<bool>,
    /// Set by the client that takes backups, while it takes one.
    pub is_backing_up: Cell<bool>,
    /// What was hit.
    pub coverage: RefCell<Coverage>,
    /// Operations failed on purpose.
    pub errors: Cell<u64>,
    /// Whether a sync was among them, or a durable write of pages. Data may be lost, so the engine stops relying on the file.
    pub sync_failed: Cell<bool>,
    /// What was damaged on the media, in this run and earlier ones.
    pub damages: Damages,
    /// How many operations are under way.
    pub under_way: Cell<usize>,
    /// What devices have of the log.
    pub log_writes: RefCell<LogWrites>,
    /// Set by the run: whether what is acknowledged is on two devices of the log, unless one of them is lost.
    pub is_log_doubled: Cell<bool>,
    /// Set by clients: the files of partitions whose next sync is to fail.
    pub failing_loads: RefCell<BTreeSet<String>>,
    /// Whether the log may not become longer in this run.
    pub is_log_full: Cell<bool>,
    /// Whether a device has hung, for a while or for ever.
    pub is_hung: Cell<bool>,
    /// Whether it was a cache's, or may have been.
    pub is_cache_hung: Cell<bool>,
    /// The file that gets no answers, if the database may be given up for it.
    pub missed_file: RefCell<Option<String>>,
    /// Whether a device hangs for ever that nothing else serves for, and for which the database is not given up.
    pub is_deaf: Cell<bool>,
    /// Whether the database is dropped while it is at work.
    pub is_dropped: Cell<bool>,
    /// Whether the power was cut, also while what a dropped database had left was still under way.
    pub is_cut: Cell<bool>,
    /// What the run before ran on, if its database was dropped.
    pub earlier: RefCell<Option<Executor>>,
    /// How far the clock has jumped, in nanoseconds.
    pub jumped_ns: Cell<u64>,
    /// The driver's hash of all events.
    pub hash: Cell<u64>,
    /// How many events there were.
    pub events: Cell<u64>,
    /// The logging method and the checkpoint strategy of this run's sets.
    pub pair: Cell<Pair>,
}

/// An operation under way.
struct Flight {
    step: Option<Step>,
    kind: OpKind,
    file: Option<u32>,
    opens: Option<(DeviceId, String)>,
    /// Whether it creates a file.
    creates: bool,
    injury: Option<Injury>,
    is_durable: bool,
    /// Device, file, offset and length of a write that is to be damaged.
    write: Option<DamagedWrite>,
    /// The log's pages that it brings; of a sync of the log how many writes were answered before it.
    log_pages: Option<Range<u64>>,
    answered: u64,
    damage: Option<SectorDamage>,
    /// Whether what became of the write is noted, though it was not told of yet.
    is_noted: bool,
}

type DamagedWrite = (DeviceId, String, u64, u32);

/// A file that gets no answers.
struct Hung {
    file: u32,
    until: Option<Instant>,
    withheld: Vec<Completion>,
}

/// A driver that injects the planned faults.
pub struct Adversary {
    driver: VirtualDriver,
    observed: Rc<Observed>,
    plan: Plan,
    random: Random,
    devices: Vec<String>,
    page_size: u64,
    files: BTreeMap<u32, (DeviceId, String)>,
    /// The first file of the present opening. A run may abandon one opening for another, which opens the files again.
    opening: u32,
    flights: BTreeMap<Token, Flight>,
    counts: BTreeMap<Step, u64>,
    hung: Option<Hung>,
    /// The file of a sync under way that forgets, and the reads of it that wait for the end of that.
    forgetting: Option<(Token, u32)>,
    overtaken: Vec<(Token, Op)>,
    /// The file whose reads fail, and until when.
    outage: Option<(u32, Instant)>,
    /// Reads of pages while clients work.
    reads_at_work: u64,
    stale_reads: u64,
    log_opened: bool,
    /// How often the file on the full device has grown.
    growths: u64,
    parks: u64,
    allocations: u64,
}

/// Up to how many bytes a power cut would leave a write whole that asks for that.
const UNTORN_ON_REQUEST: u32 = 64 << 10;

/// An upper limit on the parks of one run.
const PARKS_MAX: u64 = 20_000_000;

impl Adversary {
    /// The devices are the hardware's, in the order of their numbers.
    pub fn new(
        mut driver: VirtualDriver,
        (devices, page_size): (Vec<String>, u64),
        plan: Plan,
        random: Random,
        observed: Rc<Observed>,
    ) -> Self {
        if let Some(CutPoint::Event(event)) = plan.cut {
            driver.cut_power_after(event);
        }
        let (files, flights, counts, hung) = Default::default();
        let (forgetting, overtaken, outage) = Default::default();
        let (stale_reads, log_opened, growths, parks, allocations, reads_at_work) = Default::default();
        let opening = 0;
        Adversary {
            driver,
            observed,
            plan,
            random,
            devices,
            page_size,
            files,
            opening,
            flights,
            counts,
            hung,
            forgetting,
            overtaken,
            outage,
            reads_at_work,
            stale_reads,
            log_opened,
            growths,
            parks,
            allocations,
        }
    }

    /// Whether the plan means the latest operation of a step.
    fn meant(&self, target: Target, step: Step) -> bool {
        target.step == step && self.counts.get(&step) == Some(&target.nth)
    }

    /// Does to an operation just submitted what is planned for it.
    fn inject(&mut self, token: Token, step: Step, flight: &mut Flight) {
        *self.counts.entry(step).or_default() += 1;
        let planned = self.plan.injuries.iter().find(|(target, _)| self.meant(*target, step));
        if let Some((_, injury)) = planned.filter(|(_, injury)| injury.suits(flight.kind)) {
            flight.injury = Some(*injury);
            self.driver.inject(token, *injury);
        }
        if self.plan.late_reads
            && let (Step::DataSync, Some(Injury::Forget { .. }), Some(file)) = (step, flight.injury, flight.file)
        {
            self.forgetting = Some((token, file));
        }
        self.fail_load(token, step, flight);
        self.fail_reads(token, step, flight);
        if let Some((target, ns)) = self.plan.late
            && self.meant(target, step)
        {
            self.driver.delay(token, ns);
            self.observed.is_hung.set(true);
            self.observed.is_cache_hung.set(true);
            self.hit(FaultKind::Late, step);
        }
        if let Some(CutPoint::Target(target, events)) = self.plan.cut
            && self.meant(target, step)
        {
            self.driver.cut_power_after(events);
        }
        flight.damage =
            self.plan.damage.iter().find(|(target, _)| self.meant(*target, step)).map(|(_, damage)| *damage);
        if let (Some(hang), Some(file), None) = (self.plan.hang, flight.file, &self.hung)
            && self.meant(hang.target, step)
            && (self.observed.phase.get() == Phase::Running
                || matches!(step, Step::TierScan | Step::SegmentRead)
                || self.is_limited())
        {
            self.hang(hang, file);
        }
    }

    /// Fails a read of the file of which no read succeeds.
    fn fail_reads(&mut self, token: Token, step: Step, flight: &mut Flight) {
        let (Some(planned), Some(file)) = (self.plan.outage, flight.file) else { return };
        self.reads_at_work += u64::from(step == Step::PageRead && self.observed.are_clients_at_work.get());
        if step == Step::PageRead && self.reads_at_work == planned.nth {
            self.outage = Some((file, self.driver.now().plus_ns(planned.ns)));
        }
        let fails = self.outage.is_some_and(|(failing, until)| failing == file && self.driver.now() < until);
        if fails && step == Step::PageRead && flight.injury.is_none() {
            flight.injury = Some(Injury::Fail);
            self.driver.inject(token, Injury::Fail);
            self.observed.coverage.borrow_mut().event(ClientEvent::Outage);
        }
    }

    /// Whether this read has to wait for a sync that forgets.
    fn is_overtaken(&self, op: &Op, step: Option<Step>) -> bool {
        let file = match op {
            Op::Read { file, .. } => Some(file.0),
            _ => None,
        };
        step == Some(Step::PageRead) && file.is_some() && file == self.forgetting.map(|(_, file)| file)
    }

    /// Begins the reads that have waited for a sync, if that has ended.
    fn begin_overtaken(&mut self, completion: &Completion) {
        if self.forgetting.is_some_and(|(sync, _)| sync == completion.token) {
            self.forgetting = None;
            for (token, op) in std::mem::take(&mut self.overtaken) {
                self.driver.submit(token, op);
            }
        }
    }

    /// Refuses a file the room to grow if its device is full.
    fn refuse_growth(&mut self, token: Token, file: FileId, flight: &mut Flight) {
        let Some(Full { file: name, from }) = self.plan.full else { return };
        if self.observed.phase.get() == Phase::Creating || self.files.get(&file.0).is_none_or(|(_, file)| file != name)
        {
            return;
        }
        self.growths += 1;
        if self.growths >= from {
            flight.injury = Some(Injury::NoSpace);
            self.driver.inject(token, Injury::NoSpace);
            self.observed.is_log_full.set(name == "log");
            // That of the log is counted by those who are refused.
            let event = match name {
                "undo.space" => Some(ClientEvent::UndoFull),
                "entresol.home" => Some(ClientEvent::CatalogFull),
                _ => None,
            };
            event.inspect(|event| self.observed.coverage.borrow_mut().event(*event));
        }
    }

    fn jump(&mut self) {
        if let Some(jump) = self.plan.jump.filter(|jump| jump.park == self.parks) {
            self.observed.jumped_ns.set(jump.ns);
            let mut coverage = self.observed.coverage.borrow_mut();
            self.flights.values().filter_map(|flight| flight.step).for_each(|step| coverage.hit(FaultKind::Jump, step));
        }
    }

    fn note_slowness(&self, op: &Op, step: Step) {
        let file = match *op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } => file,
            _ => return,
        };
        let Some((device, _)) = self.files.get(&file.0) else { return };
        let (name, now) = (&self.devices[usize::from(device.0)], self.driver.now());
        if self.plan.slow.iter().any(|slow| slow.device == *name && slow.from <= now && now < slow.until) {
            self.observed.coverage.borrow_mut().hit(FaultKind::Slow, step);
        }
    }

    fn landed(&mut self, completion: &Completion) {
        let Some(flight) = self.flights.remove(&completion.token) else { return };
        if let (Some(opens), Ok(Output::Opened { file, .. })) = (&flight.opens, &completion.result) {
            // An opening begins with the superblock file, a creation ends with it.
            if opens.1 == "entresol.home" && self.observed.phase.get() == Phase::Opening {
                self.opening = file.0;
            }
            self.files.insert(file.0, opens.clone());
        }
        self.note_log(&flight, &completion.result);
        let Some(step) = flight.step else { return };
        match &completion.result {
            Err(fault) if matches!(fault.kind, Refusal::Device | Refusal::NoSpace) && flight.injury.is_some() => {
                self.observed.errors.set(self.observed.errors.get() + 1);
                // A write of a page that fails, durable or not, is the failure of that page: others are written, and read.
                let is_sync = flight.kind == OpKind::Sync && step == Step::DataSync;
                self.observed.sync_failed.set(self.observed.sync_failed.get() || is_sync);
                let kind = match flight.injury {
                    Some(Injury::NoSpace) => FaultKind::NoSpace,
                    Some(Injury::Forget { .. }) => FaultKind::LostSync,
                    _ => FaultKind::Error,
                };
                self.hit(kind, step);
                self.count_name(&flight);
                if step.writes_superblock() {
                    self.expose();
                }
            }
            Ok(_) if flight.kind == OpKind::Write && !flight.is_noted => self.damage(step, &flight),
            Ok(_) if flight.kind == OpKind::Read => {
                let stale_reads = self.driver.stale_reads();
                if std::mem::replace(&mut self.stale_reads, stale_reads) != stale_reads {
                    self.hit(FaultKind::StaleRead, step);
                }
            }
            _ => {}
        }
    }

    /// Notes what a device has of the log from here on. What it says of a write that is hit is not believed.
    fn note_log(&self, flight: &Flight, result: &Result<Output, Fault>) {
        let name = flight.file.and_then(|file| self.files.get(&file)).map_or("", |(_, name)| name.as_str());
        let mut writes = self.observed.log_writes.borrow_mut();
        match (flight.kind, &flight.log_pages, result) {
            (OpKind::Write, Some(pages), Ok(_)) if flight.injury.is_none() && flight.damage.is_none() => {
                writes.note_write(name, pages.clone(), flight.is_durable);
            }
            (OpKind::Sync, _, Ok(_)) => writes.note_sync(name, flight.answered),
            (OpKind::Sync, _, Err(_)) => writes.note_failure(),
            _ => {}
        }
    }

    /// Counts an operation on names that has failed.
    fn count_name(&self, flight: &Flight) {
        let event = match flight.kind {
            _ if self.observed.phase.get() == Phase::Creating => return,
            OpKind::Open if flight.creates => ClientEvent::FileNotCreated,
            OpKind::Open => ClientEvent::FileNotOpened,
            OpKind::Remove => ClientEvent::FileNotRemoved,
            OpKind::List => ClientEvent::NamesNotListed,
            _ => return,
        };
        self.observed.coverage.borrow_mut().event(event);
    }

    fn hit(&self, kind: FaultKind, step: Step) {
        self.observed.coverage.borrow_mut().hit(kind, step);
    }

    /// A write of the superblock file was interrupted: if one copy is damaged, the other may be torn.
    fn expose(&self) {
        self.observed.damages.borrow_mut().iter_mut().for_each(|damage| damage.is_exposed = true);
    }

    fn note_cut(&mut self) {
        self.observed.is_cut.set(true);
        let kind = if self.plan.kill { FaultKind::Kill } else { FaultKind::PowerCut };
        for step in std::mem::take(&mut self.flights).into_values().filter_map(|flight| flight.step) {
            self.hit(kind, step);
            if step.writes_superblock() {
                self.expose();
            }
        }
    }
}

impl Driver for Adversary {
    fn now(&self) -> Instant {
        self.driver.now().plus_ns(self.observed.jumped_ns.get())
    }

    /// Where the clock jumps ahead, the calendar goes with it or is set as far back.
    fn unix_ns(&self) -> u64 {
        let (now_ns, jumped_ns) = (self.driver.now().ns(), self.observed.jumped_ns.get());
        let is_set_back = self.plan.jump.is_some_and(|jump| jump.park % 2 == 0);
        if is_set_back { now_ns.saturating_sub(jumped_ns) } else { now_ns + jumped_ns }
    }

    fn submit(&mut self, token: Token, op: Op) {
        let step = self.step(&op);
        let opens = match &op {
            Op::Open { device, name, .. } => Some((*device, name.clone())),
            _ => None,
        };
        let file = match op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } => Some(file.0),
            _ => None,
        };
        let write = match op {
            Op::Write { file: FileId(file), offset, length, .. } => {
                self.files.get(&file).map(|(device, name)| (*device, name.clone(), offset, length))
            }
            _ => None,
        };
        if let Some(step) = step {
            self.note_slowness(&op, step);
        }
        let is_durable = matches!(op, Op::Write { durable: true, .. });
        let log_pages = match &op {
            Op::Write { buffer, length, .. } => pages_of(&buffer[..*length as usize]),
            _ => None,
        };
        let answered = self.observed.log_writes.borrow().answered();
        let grown = match op {
            Op::Resize { file, .. } => Some(file),
            _ => None,
        };
        let (kind, creates) = (op.kind(), matches!(op, Op::Open { create: true, .. }));
        let (injury, damage) = (None, None);
        let mut flight = Flight {
            step,
            kind,
            file,
            opens,
            creates,
            injury,
            is_durable,
            write,
            log_pages,
            answered,
            damage,
            is_noted: false,
        };
        if self.is_overtaken(&op, step) {
            self.observed.coverage.borrow_mut().event(ClientEvent::ReadOvertaken);
            self.overtaken.push((token, op));
        } else {
            self.driver.submit(token, op);
            if let Some(step) = step {
                self.inject(token, step, &mut flight);
            }
        }
        if let Some(file) = grown {
            self.refuse_growth(token, file, &mut flight);
        }
        self.flights.insert(token, flight);
        self.observed.under_way.set(self.flights.len());
    }

    fn cancel(&mut self, token: Token) {
        // A read that has not begun yet is made all the same; nothing looks at its result.
        if self.overtaken.iter().all(|(waiting, _)| *waiting != token) {
            self.driver.cancel(token);
        }
    }

    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        self.parks += 1;
        if self.parks > PARKS_MAX {
            return Err(Halt::Idle);
        }
        self.jump();
        self.end_earlier();
        if self.is_time_to_drop() {
            return Err(Halt::Idle);
        }
        let own = until.map(|until| Instant::from_ns(until.ns().saturating_sub(self.observed.jumped_ns.get())));
        let release = self.hung.as_ref().and_then(|hung| hung.until);
        let limit = own.into_iter().chain(release).min();
        let mut all = Vec::new();
        let parked = self.driver.park(limit, &mut all);
        for completion in all {
            self.begin_overtaken(&completion);
            if self.is_withheld(&completion) {
                let step = self.flights.get(&completion.token).and_then(|flight| flight.step);
                step.into_iter().for_each(|step| self.hit(FaultKind::Hung, step));
                self.note_withheld(&completion);
                self.hung.as_mut().expect("what is withheld is hung").withheld.push(completion);
            } else {
                self.landed(&completion);
                done.push(completion);
            }
        }
        for completion in self.released() {
            self.landed(&completion);
            done.push(completion);
        }
        if parked == Err(Halt::PowerCut) {
            self.note_cut();
        }
        self.observed.under_way.set(self.flights.len());
        self.observed.hash.set(self.driver.event_hash());
        self.observed.events.set(self.driver.events());
        parked
    }

    fn has_described_network(&self) -> bool {
        self.driver.has_described_network()
    }

    fn entropy(&mut self) -> u128 {
        self.driver.entropy()
    }

    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.allocations += 1;
        if self.plan.memory == Some(self.allocations) {
            self.observed.errors.set(self.observed.errors.get() + 1);
            self.hit(FaultKind::Error, Step::Memory);
            return Err(Fault::new(
                Refusal::NoMemory,
                format!("no memory for {count} frames of {size} bytes (injected)"),
            ));
        }
        self.driver.frames(count, size)
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        self.driver.device(name)
    }

    fn traits(&self, device: DeviceId) -> DeviceTraits {
        DeviceTraits { untorn_on_request: UNTORN_ON_REQUEST, ..self.driver.traits(device) }
    }

    fn prices(&self) -> Option<Prices> {
        self.driver.prices()
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        self.driver.doorbell()
    }

    fn description(&self) -> String {
        self.driver.description()
    }

    fn stations(&self) -> Vec<StationReport> {
        self.driver.stations()
    }

    fn restart_statistics(&mut self) {
        self.driver.restart_statistics();
    }
}
