use base::{Instant, Random};
use driver::OpKind;
use std::collections::BTreeMap;

/// What goes wrong, and when. An empty plan lets nothing go wrong, but keeps track of what a power cut would undo.
///
/// ```
/// use driver::{Driver, FaultKind, Op, OpKind, Token};
/// use entresol_virtual::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};
///
/// let errors = vec![ErrorAt { kind: OpKind::Sync, device: None, nth: 1 }];
/// let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
/// let mut driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, Media::new());
/// let device = driver.device("disk").expect("the ideal machine has a disk");
/// let mut done = Vec::new();
/// driver.submit(Token(1), Op::Open { device, name: "log".into(), create: true });
/// driver.park(None, &mut done).expect("the machine goes on");
/// let Ok(driver::Output::Opened { file, .. }) = done.remove(0).result else { panic!("no open fails") };
/// driver.submit(Token(2), Op::Sync { file });
/// driver.park(None, &mut done).expect("the machine goes on");
/// assert!(matches!(&done[0].result, Err(fault) if fault.kind == FaultKind::Device));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// The power goes in place of this event of the simulation, counted from 1 ([`VirtualDriver::events`] tells how many a
    /// run has).
    ///
    /// [`VirtualDriver::events`]: crate::VirtualDriver::events
    pub power_cut_at: Option<u64>,
    /// Operations that fail.
    pub errors: Vec<ErrorAt>,
    /// Bits that flip.
    pub flips: Vec<BitFlip>,
    /// Operations to which something else happens than that they fail, counted as `errors` are.
    pub injuries: Vec<(ErrorAt, Injury)>,
    /// Devices that are slow for a while.
    pub slow: Vec<Slow>,
    /// A driver's bug: opening a file leaves in the system's cache what a failed sync has marked clean there, so that reads go
    /// on to see it.
    pub keeps_cache: bool,
}

/// An operation on a device or a file fails with [`FaultKind::Device`](driver::FaultKind::Device); of a failed write some
/// sectors may have been written.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorAt {
    /// The kind of operation; CPU steps and computations never fail.
    pub kind: OpKind,
    /// The device, or any.
    pub device: Option<String>,
    /// Which operation of this kind on this device fails, in the order of completion, counted from 1.
    pub nth: u64,
}

/// What becomes of one operation in place of what it asks for; see [`VirtualDriver::inject`].
///
/// An injury that does not suit the operation (a lost read) does nothing to it.
///
/// [`VirtualDriver::inject`]: crate::VirtualDriver::inject
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Injury {
    /// It fails with [`FaultKind::Device`](driver::FaultKind::Device). Of a write some sectors may have been written; what a
    /// sync was to make durable is left to the next sync; names and lengths stay as they were.
    Fail,
    /// It fails with [`FaultKind::NoSpace`](driver::FaultKind::NoSpace), and nothing has happened: writes, creations, resizes.
    NoSpace,
    /// A sync fails, and no later one tries again what it was to make durable ("fsyncgate"): of each sector the new version
    /// is durable or gone, or, if `cached`, still read until the file is opened again, and lost with the power.
    Forget {
        /// Whether reads of this opening may go on to see what is lost: files that are not opened for direct input and output.
        cached: bool,
    },
    /// A write is acknowledged and never happens.
    Lose,
    /// A write is acknowledged and lands at another place of the same file.
    Misdirect,
    /// A write is acknowledged, and the next read of any of it still gives what was there before.
    Stale,
}

/// A random bit among those that a write has just written flips.
#[derive(Clone, Debug, PartialEq)]
pub struct BitFlip {
    /// The device, or any.
    pub device: Option<String>,
    /// Which write to this device, in the order of completion, counted from 1.
    pub nth_write: u64,
}

/// The service times of a device are multiplied for a while.
#[derive(Clone, Debug, PartialEq)]
pub struct Slow {
    /// The device.
    pub device: String,
    /// Requests submitted from here on are slow,
    pub from: Instant,
    /// up to here.
    pub until: Instant,
    /// By what service times are multiplied; [`Slow::HUNG`] for a device that never answers.
    pub factor: f64,
}

impl Slow {
    /// The factor of a device that does not answer: its requests take years, unless they are cancelled.
    pub const HUNG: f64 = 1e18;
}

/// What was injected so far, by kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Operations that failed.
    pub errors: BTreeMap<OpKind, u64>,
    /// Operations on a slow or hung device.
    pub slowed: BTreeMap<OpKind, u64>,
    /// Operations under way when the power went.
    pub interrupted: BTreeMap<OpKind, u64>,
    /// Writes that were acknowledged and lost, misdirected or hidden from the next read.
    pub silent: BTreeMap<Injury, u64>,
    /// Reads that were given what was there before the latest write.
    pub stale_reads: u64,
    /// Bits flipped.
    pub flips: u64,
    /// Power cuts: 0 or 1.
    pub power_cuts: u64,
}

impl Injury {
    /// Whether it does something to operations of this kind.
    pub fn suits(self, kind: OpKind) -> bool {
        match self {
            Injury::Fail => !matches!(kind, OpKind::Cpu | OpKind::Compute),
            Injury::NoSpace => matches!(kind, OpKind::Write | OpKind::Open | OpKind::Resize),
            Injury::Forget { .. } => kind == OpKind::Sync,
            Injury::Lose | Injury::Misdirect | Injury::Stale => kind == OpKind::Write,
        }
    }
}

/// A plan at work.
pub(crate) struct Faults {
    plan: FaultPlan,
    pub(crate) random: Random,
    /// How many matching operations each entry of the plan still lets pass, plus one.
    errors_left: Vec<u64>,
    injuries_left: Vec<u64>,
    flips_left: Vec<u64>,
    /// What becomes of the operation that completes next.
    pub(crate) injury: Option<Injury>,
    pub(crate) injected: Injected,
}

/// True for the `nth` matching call.
fn strikes(left: &mut u64) -> bool {
    let strikes = *left == 1;
    *left = left.saturating_sub(1);
    strikes
}

fn concerns(planned: &Option<String>, device: &str) -> bool {
    planned.as_ref().is_none_or(|planned| planned == device)
}

impl Faults {
    pub(crate) fn new(plan: FaultPlan, seed: u64) -> Faults {
        Faults {
            random: Random::stream(seed, "faults"),
            errors_left: plan.errors.iter().map(|error| error.nth).collect(),
            injuries_left: plan.injuries.iter().map(|(at, _)| at.nth).collect(),
            flips_left: plan.flips.iter().map(|flip| flip.nth_write).collect(),
            injury: None,
            injected: Injected::default(),
            plan,
        }
    }

    /// Whether opening a file leaves in the system's cache what no sync will write.
    pub(crate) fn keeps_cache(&self) -> bool {
        self.plan.keeps_cache
    }

    /// Whether the power goes now that `events` have happened.
    pub(crate) fn power_goes(&self, events: u64) -> bool {
        self.plan.power_cut_at.is_some_and(|at| events + 1 >= at)
    }

    /// Lets the power go in place of this event.
    pub(crate) fn cut_power_at(&mut self, event: u64) {
        self.plan.power_cut_at = Some(event);
    }

    /// Counts an operation that completes, and says what becomes of it.
    pub(crate) fn injury(&mut self, kind: OpKind, device: &str) -> Option<Injury> {
        let mut injury = std::mem::take(&mut self.injury);
        for (error, left) in self.plan.errors.iter().zip(&mut self.errors_left) {
            if error.kind == kind && concerns(&error.device, device) && strikes(left) {
                injury = Some(Injury::Fail);
            }
        }
        for ((at, other), left) in self.plan.injuries.iter().zip(&mut self.injuries_left) {
            if at.kind == kind && concerns(&at.device, device) && strikes(left) {
                injury = Some(*other);
            }
        }
        let injury = injury.filter(|injury| injury.suits(kind))?;
        match injury {
            Injury::Fail | Injury::NoSpace | Injury::Forget { .. } => {
                *self.injected.errors.entry(kind).or_default() += 1;
            }
            Injury::Lose | Injury::Misdirect | Injury::Stale => *self.injected.silent.entry(injury).or_default() += 1,
        }
        Some(injury)
    }

    /// Counts a write, and says which bit of its `length` bytes flips: byte and mask.
    pub(crate) fn flips(&mut self, device: &str, length: u32) -> Option<(u64, u8)> {
        let mut flips = false;
        for (flip, left) in self.plan.flips.iter().zip(&mut self.flips_left) {
            if concerns(&flip.device, device) {
                flips |= strikes(left);
            }
        }
        if !flips || length == 0 {
            return None;
        }
        self.injected.flips += 1;
        Some((self.random.below(u64::from(length)), 1 << self.random.below(8)))
    }

    /// By what the service times of a request submitted now are multiplied; counts it if that is not 1.
    pub(crate) fn slowdown(&mut self, now: Instant, kind: OpKind, device: &str) -> f64 {
        let active = self.plan.slow.iter().filter(|slow| slow.device == device && slow.from <= now && now < slow.until);
        let factor = active.map(|slow| slow.factor).product();
        if factor != 1.0 {
            *self.injected.slowed.entry(kind).or_default() += 1;
        }
        factor
    }
}
