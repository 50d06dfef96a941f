//! The world against the engine: the virtual driver, watched and made hostile.

use crate::coverage::Pair;
use crate::plan::{Moment, Plan, Target};
use crate::{Coverage, FaultKind, Step};
use base::{Instant, Random};
use driver::{
    Completion, DeviceId, DeviceTraits, Doorbell, Driver, Fault, FaultKind as Refusal, FileId, Frame, Halt, Op, OpKind,
    Output, Prices, StationReport, Token,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use virtual_driver::{Injury, VirtualDriver};

/// What a life is about at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The database is being created.
    #[default]
    Creating,
    /// It is being opened and recovered.
    Opening,
    /// It is in use.
    Running,
}

/// What the adversary tells of a life, while it lasts and after it.
#[derive(Default)]
pub struct Scene {
    /// Set by the life.
    pub phase: Cell<Phase>,
    /// What was hit.
    pub coverage: RefCell<Coverage>,
    /// Operations failed on purpose.
    pub errors: Cell<u64>,
    /// Whether a bit was flipped, so that damage may show.
    pub flipped: Cell<bool>,
    /// Whether one was flipped in temporary space, so that a sort or a join may find damage.
    pub temp_flipped: Cell<bool>,
    /// The driver's hash of all events.
    pub hash: Cell<u64>,
    /// How many events there were.
    pub events: Cell<u64>,
    /// The log of sets and the sweeps of this life.
    pub pair: Cell<Pair>,
}

/// An operation under way.
struct Flight {
    step: Option<Step>,
    file: Option<u32>,
    opens: Option<(DeviceId, String)>,
    /// Device, file, offset and length of a write of which a bit is to flip.
    flip: Option<(DeviceId, String, u64, u32)>,
}

/// A driver that hurts as planned.
pub struct Adversary {
    driver: VirtualDriver,
    scene: Rc<Scene>,
    plan: Plan,
    random: Random,
    devices: Vec<String>,
    files: BTreeMap<u32, (DeviceId, String)>,
    flights: BTreeMap<Token, Flight>,
    counts: BTreeMap<Step, u64>,
    /// The log's file that gets no answers any more.
    hung: Option<u32>,
    log_opened: bool,
    parks: u64,
}

/// No life takes so many parks.
const PARKS_MAX: u64 = 20_000_000;

impl Adversary {
    /// `devices` are the hardware's, in the order of their numbers.
    pub fn new(mut driver: VirtualDriver, devices: Vec<String>, plan: Plan, random: Random, scene: Rc<Scene>) -> Self {
        if let Some(Moment::Event(event)) = plan.cut {
            driver.cut_power_after(event);
        }
        let (files, flights, counts, hung) = Default::default();
        Adversary { driver, scene, plan, random, devices, files, flights, counts, hung, log_opened: false, parks: 0 }
    }

    fn step(&mut self, op: &Op) -> Option<Step> {
        let kind = op.kind();
        if matches!(kind, OpKind::Cpu | OpKind::Compute) {
            return None;
        }
        let phase = self.scene.phase.get();
        if phase == Phase::Creating {
            return Some(Step::Create);
        }
        let file = match *op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } | Op::Resize { file, .. } => file,
            _ => return Some(Step::Open),
        };
        if kind == OpKind::Resize {
            return Some(Step::Resize);
        }
        let name = self.files.get(&file.0).map_or("", |(_, name)| name.as_str());
        let name = if name == "log-2" { "log" } else { name };
        Some(match (name, kind) {
            ("entresol.home", OpKind::Write) => Step::HomeWrite,
            ("entresol.home", _) => Step::HomeRead,
            ("double-write", OpKind::Write) => Step::Staging,
            ("double-write", _) => Step::CopiesRead,
            ("log", OpKind::Read) => Step::LogScan,
            ("log", OpKind::Sync) => Step::LogSync,
            ("log", _) if phase == Phase::Opening && !self.log_opened => {
                self.log_opened = true;
                Step::LogOpening
            }
            ("log", _) => Step::LogWrite,
            (tier, kind) if tier.ends_with(".tier") => match kind {
                _ if phase == Phase::Opening && !self.log_opened => Step::TierScan,
                OpKind::Read => Step::TierRead,
                _ if tier == "log-buffer.tier" => Step::LogBuffer,
                _ => Step::TierWrite,
            },
            (backup, kind) if backup.contains(".backup-") => match kind {
                OpKind::Read => Step::SegmentRead,
                OpKind::Sync => Step::SegmentSync,
                _ => Step::SegmentWrite,
            },
            ("undo.space", OpKind::Read) => Step::UndoSpaceRead,
            ("undo.space", _) => Step::UndoSpaceWrite,
            (engine::temp::FILE, OpKind::Read) => Step::TempRead,
            (engine::temp::FILE, OpKind::Write) => Step::TempWrite,
            (_, OpKind::Sync) => Step::DataSync,
            (_, OpKind::Read) => match phase {
                Phase::Opening if !self.log_opened => Step::RedoRead,
                Phase::Opening => Step::UndoRead,
                _ => Step::PageRead,
            },
            _ => match phase {
                Phase::Opening if !self.log_opened => Step::RedoWrite,
                Phase::Opening => Step::UndoWrite,
                _ => Step::PageWrite,
            },
        })
    }

    /// Counts an operation of a step and says whether the plan means it.
    fn meant(&self, target: Target) -> bool {
        self.counts.get(&target.step) == Some(&target.nth)
    }

    /// Does to an operation just submitted what is planned for it.
    fn strike(&mut self, token: Token, step: Step) -> bool {
        *self.counts.entry(step).or_default() += 1;
        let is = |target: &Target| target.step == step;
        if self.plan.errors.iter().any(|target| is(target) && self.meant(*target)) {
            self.driver.strike(token, Injury::Fail);
        }
        if let Some(Moment::Target(target, events)) = self.plan.cut
            && is(&target)
            && self.meant(target)
        {
            self.driver.cut_power_after(events);
        }
        self.plan.flip.is_some_and(|target| is(&target) && self.meant(target))
    }

    /// Lets the log device that this operation is for hang, if that is planned and the other one is there. Nothing else is on
    /// the second device.
    fn hang(&mut self, file: u32, step: Step) {
        let has = |name: &str| self.files.values().any(|(_, file)| file == name);
        let meant = self.plan.hung.is_some_and(|target| target.step == step && self.meant(target));
        if meant && self.scene.phase.get() == Phase::Running && has("log") && has("log-2") {
            self.hung = Some(file);
        }
    }

    /// Whether the completion is one that a hung device never gives.
    fn is_withheld(&self, completion: &Completion) -> bool {
        let flight = self.flights.get(&completion.token);
        self.hung.is_some() && flight.is_some_and(|flight| flight.file == self.hung && flight.step.is_some())
    }

    fn note_slowness(&self, op: &Op, step: Step) {
        let file = match *op {
            Op::Read { file, .. } | Op::Write { file, .. } | Op::Sync { file } => file,
            _ => return,
        };
        let Some((device, _)) = self.files.get(&file.0) else { return };
        let (name, now) = (&self.devices[usize::from(device.0)], self.driver.now());
        if self.plan.slow.iter().any(|slow| slow.device == *name && slow.from <= now && now < slow.until) {
            self.scene.coverage.borrow_mut().hit(FaultKind::Slow, step);
        }
    }

    fn landed(&mut self, completion: &Completion) {
        let Some(flight) = self.flights.remove(&completion.token) else { return };
        if let (Some(opens), Ok(Output::Opened { file, .. })) = (flight.opens, &completion.result) {
            self.files.insert(file.0, opens);
        }
        let Some(step) = flight.step else { return };
        match &completion.result {
            Err(fault) if fault.kind == Refusal::Device => {
                self.scene.errors.set(self.scene.errors.get() + 1);
                self.scene.coverage.borrow_mut().hit(FaultKind::Error, step);
            }
            Ok(_) => {
                if let Some((device, file, offset, length)) = flight.flip {
                    let byte = offset + self.random.below(u64::from(length));
                    let device = &self.devices[usize::from(device.0)];
                    let bit = self.random.below(8) as u8;
                    if self.driver.media().flip_bit(device, &file, byte, bit).is_ok() {
                        let flipped = if step.is_temporary() { &self.scene.temp_flipped } else { &self.scene.flipped };
                        flipped.set(true);
                        self.scene.coverage.borrow_mut().hit(FaultKind::Flip, step);
                    }
                }
            }
            Err(_) => {}
        }
    }

    fn note_cut(&mut self) {
        let kind = if self.plan.kill { FaultKind::Kill } else { FaultKind::PowerCut };
        let mut coverage = self.scene.coverage.borrow_mut();
        for step in std::mem::take(&mut self.flights).into_values().filter_map(|flight| flight.step) {
            coverage.hit(kind, step);
        }
    }
}

impl Driver for Adversary {
    fn now(&self) -> Instant {
        self.driver.now()
    }

    fn submit(&mut self, token: Token, op: Op) {
        let step = self.step(&op);
        let opens = match &op {
            Op::Open { device, name, .. } => Some((*device, name.clone())),
            _ => None,
        };
        let file = match op {
            Op::Write { file, .. } | Op::Sync { file } => Some(file.0),
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
        self.driver.submit(token, op);
        let flip = step.is_some_and(|step| self.strike(token, step));
        if let (Some(file), Some(step)) = (file, step) {
            self.hang(file, step);
        }
        self.flights.insert(token, Flight { step, file, opens, flip: write.filter(|_| flip) });
    }

    fn cancel(&mut self, token: Token) {
        self.driver.cancel(token);
    }

    fn park(&mut self, until: Option<Instant>, done: &mut Vec<Completion>) -> Result<(), Halt> {
        self.parks += 1;
        if self.parks > PARKS_MAX {
            return Err(Halt::Idle);
        }
        let mut all = Vec::new();
        let parked = self.driver.park(until, &mut all);
        for completion in all {
            if self.is_withheld(&completion) {
                let step = self.flights.get(&completion.token).and_then(|flight| flight.step);
                step.into_iter().for_each(|step| self.scene.coverage.borrow_mut().hit(FaultKind::Hung, step));
            } else {
                self.landed(&completion);
                done.push(completion);
            }
        }
        if parked == Err(Halt::PowerCut) {
            self.note_cut();
        }
        self.scene.hash.set(self.driver.event_hash());
        self.scene.events.set(self.driver.events());
        parked
    }

    fn frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.driver.frames(count, size)
    }

    fn device(&self, name: &str) -> Option<DeviceId> {
        self.driver.device(name)
    }

    fn traits(&self, device: DeviceId) -> DeviceTraits {
        self.driver.traits(device)
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
