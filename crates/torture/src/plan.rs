//! What goes wrong in one life.

use crate::{Kind, Step};
use base::{Instant, Random};
use virtual_driver::Slow;

/// The n-th operation of a step, counted from 1 in each life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The step.
    pub step: Step,
    /// Which of its operations.
    pub nth: u64,
}

/// When a life is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// In place of this event of the simulation.
    Event(u64),
    /// So many events after the target was submitted.
    Target(Target, u64),
}

/// What goes wrong in one life.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// When the life is cut off, if it is.
    pub cut: Option<Moment>,
    /// Whether it is cut off by a kill; otherwise, and also when it ends by itself, by the power.
    pub kill: bool,
    /// Operations that fail.
    pub errors: Vec<Target>,
    /// A write of which a bit flips.
    pub flip: Option<Target>,
    /// When a device is slow.
    pub slow: Vec<Slow>,
    /// From which write or sync of the log on, in normal operation, one of two log devices answers nothing.
    pub hung: Option<Target>,
}

fn target(random: &mut Random, kind: Kind, admitted: impl Fn(Step) -> bool) -> Target {
    let steps: Vec<Step> =
        Step::ALL.into_iter().filter(|step| step.is_met_by(kind) && admitted(*step) && !step.is_temporary()).collect();
    let step = *random.choose(&steps).expect("some step is admitted");
    // Operations of some steps are few in a life; of a frequent one the first are as interesting as the hundredth.
    let mean = match step {
        Step::HomeRead | Step::LogOpening => 0.5,
        Step::LogWrite | Step::LogSync | Step::PageRead | Step::PageWrite | Step::Staging => 20.0,
        Step::TierRead | Step::TierWrite | Step::LogBuffer => 10.0,
        Step::Create | Step::RedoRead => 6.0,
        _ => 2.0,
    };
    let nth = random.exponential(mean) as u64 + 1;
    Target { step, nth }
}

impl Plan {
    /// The same with what goes wrong in temporary space besides. Nothing in it lasts, so a bit may flip in any life.
    pub fn with_temporary(mut self, random: &mut Random) -> Plan {
        let at = |random: &mut Random, step| Target { step, nth: random.exponential(15.0) as u64 + 1 };
        if random.chance(0.3) {
            let step = if random.chance(0.5) { Step::TempWrite } else { Step::TempRead };
            self.errors.push(at(random, step));
        }
        if random.chance(0.3) {
            let step = if random.chance(0.5) { Step::TempWrite } else { Step::TempRead };
            self.cut = Some(Moment::Target(at(random, step), random.below(3)));
        }
        if self.flip.is_none() && random.chance(0.4) {
            self.flip = Some(at(random, Step::TempWrite));
        }
        self
    }

    /// Draws a plan for a seed of this kind; `flips` allows a bit to flip, after which damage may show.
    pub fn draw(random: &mut Random, kind: Kind, flips: bool) -> Plan {
        let cut = random.chance(0.85).then(|| {
            if random.chance(0.5) {
                Moment::Event((2.0 + random.exponential(6.0).min(10.0)).exp2() as u64)
            } else {
                Moment::Target(target(random, kind, |_| true), random.below(3))
            }
        });
        let errors = if random.chance(0.5) { random.between(1, 3) } else { 0 };
        let slow = random.chance(0.3).then(|| {
            let from = if random.chance(0.5) { 0 } else { random.exponential(500_000.0) as u64 };
            let until = from + random.exponential(2_000_000.0) as u64;
            let device = *random.choose(&["disk", "flash", "nvem", "second"]).expect("four devices");
            let factor = random.between(2, 200) as f64;
            Slow { device: device.into(), from: Instant::from_ns(from), until: Instant::from_ns(until), factor }
        });
        Plan {
            cut,
            kill: random.chance(0.3),
            errors: (0..errors).map(|_| target(random, kind, Step::transfers)).collect(),
            flip: flips.then(|| target(random, kind, Step::flips)),
            slow: slow.into_iter().collect(),
            hung: None,
        }
    }

    /// The same with a log device that hangs now and then, where there are two.
    pub fn with_two_logs(self, random: &mut Random) -> Plan {
        let step = if random.chance(0.7) { Step::LogWrite } else { Step::LogSync };
        let target = Target { step, nth: random.exponential(20.0) as u64 + 1 };
        Plan { hung: random.chance(0.2).then_some(target), ..self }
    }
}
