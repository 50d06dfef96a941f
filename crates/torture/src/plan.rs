//! What goes wrong in one run.

use crate::configuration::CACHE_DEVICE;
use crate::{FaultKind, SeedKind, Step};
use base::time::MILLISECOND_NS;
use base::{Instant, Random};
use virtual_driver::{Injury, Slow};

/// The n-th operation of a step, counted from 1 in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The step.
    pub step: Step,
    /// Which of its operations.
    pub nth: u64,
}

/// When a run is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPoint {
    /// Tasks waiting for any frame.
    Event(u64),
    /// This number of events after the target was submitted.
    Target(Target, u64),
}

/// A device that answers nothing from an operation on: those of the same file complete and are not told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hang {
    /// From which operation on.
    pub target: Target,
    /// For how long, in nanoseconds; `None` for ever.
    pub ns: Option<u64>,
    /// Whether it hangs only if the log has a second device, which can do without it.
    pub paired: bool,
}

/// A file whose reads fail for a while, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// From which read of a page on, counted from 1 in each run once clients work.
    pub nth: u64,
    /// For how long, in nanoseconds.
    pub ns: u64,
}

/// How a sector that was written is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorDamage {
    /// One of its bits flips.
    Flip,
    /// It cannot be read any more until it is written again.
    Unreadable,
}

/// A file that may grow no more: its device is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Its name.
    pub file: &'static str,
    /// From which growth on, counted from 1 in each run once the database exists.
    pub from: u64,
}

/// A leap of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// At which wait for the driver, counted from 1.
    pub park: u64,
    /// How far ahead, in nanoseconds.
    pub ns: u64,
}

/// What goes wrong in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// When the run is cut off, if it is.
    pub cut: Option<CutPoint>,
    /// Whether it is cut off by a kill; otherwise, and also when it ends by itself, by the power.
    pub kill: bool,
    /// Operations with a fault, and the fault.
    pub injuries: Vec<(Target, Injury)>,
    /// Writes of which a sector is damaged.
    pub damage: Vec<(Target, SectorDamage)>,
    /// When a device is slow.
    pub slow: Vec<Slow>,
    /// A device that hangs.
    pub hang: Option<Hang>,
    /// An operation that happens late, by this many nanoseconds.
    pub late: Option<(Target, u64)>,
    /// A file whose reads fail for a while.
    pub outage: Option<Outage>,
    /// Whether reads of a file's pages wait for a sync of it that is under way and forgets.
    pub late_reads: bool,
    /// For how long devices may leave something unanswered before the database is given up, in nanoseconds, if there is a limit.
    pub answer_ns_max: Option<u64>,
    /// Whether clients have the syncs of loads fail.
    pub fails_loads: bool,
    /// Which allocation of frames fails, counted from 1.
    pub memory: Option<u64>,
    /// A file that finds no room to grow.
    pub full: Option<Full>,
    /// When the clock jumps.
    pub jump: Option<Jump>,
    /// The number of polls after which the opening is abandoned. Another opening begins once the operations of the first have
    /// ended.
    pub reopened_after: Option<u64>,
    /// The operation during which the database is dropped and its process goes on to open it again.
    pub dropped_at: Option<Target>,
    /// If what had been under way in the run before is still under way, after how many waits for the driver it ends.
    pub earlier_ends_after: u64,
}

fn target(random: &mut Random, kind: SeedKind, admitted: impl Fn(Step) -> bool) -> Target {
    let steps: Vec<Step> = Step::ALL
        .into_iter()
        .filter(|step| {
            step.is_met_by(kind)
                && admitted(*step)
                && !step.is_temporary()
                && !step.is_of_backups()
                && !matches!(*step, Step::Memory | Step::CatalogAnew | Step::LogGrowth)
        })
        .collect();
    let step = *random.choose(&steps).expect("some step is admitted");
    // Some steps have few operations in a run; of a frequent step, the first operations are as interesting as the hundredth.
    let mean = match step {
        Step::SuperblockRead | Step::LogOpening => 0.5,
        Step::LogWrite | Step::LogSync | Step::PageRead | Step::PageWrite | Step::Staging => 20.0,
        Step::TierRead | Step::TierWrite | Step::LogBuffer => 10.0,
        Step::Create | Step::RedoRead | Step::Open => 6.0,
        _ => 2.0,
    };
    let nth = random.exponential(mean) as u64 + 1;
    Target { step, nth }
}

/// What a device does to a write that it acknowledges.
fn silent(random: &mut Random) -> Injury {
    *random.choose(&[Injury::Lose, Injury::Misdirect, Injury::Stale]).expect("three injuries")
}

impl Plan {
    /// The same with a cut or an error during a rewrite of the catalog of many partitions, or with checkpoints that wait for a
    /// file while partitions are created.
    pub fn with_many_partitions(mut self, random: &mut Random) -> Plan {
        let target = Target { step: Step::CatalogAnew, nth: random.between(1, 6) };
        match random.below(4) {
            0 | 1 => self.cut = Some(CutPoint::Target(target, random.below(4))),
            2 => self.injuries.push((target, Injury::Fail)),
            _ => {
                let step = if random.chance(0.5) { Step::PageWrite } else { Step::DataSync };
                let target = Target { step, nth: 1 + random.exponential(2.0) as u64 };
                let ns = Some(random.between(10, 1_000) * MILLISECOND_NS);
                self.hang = Some(Hang { target, ns, paired: false });
            }
        }
        self
    }

    /// The same with a cache whose device hangs now and then, for a while or for ever.
    pub fn with_hung_cache(mut self, random: &mut Random) -> Plan {
        if random.chance(0.12) {
            let step = if random.chance(0.6) { Step::TierRead } else { Step::TierWrite };
            let nth = 1 + random.exponential(15.0) as u64;
            // Or as early as in an opening.
            let (step, nth) = if random.chance(0.2) { (Step::TierScan, 1 + nth / 8) } else { (step, nth) };
            let target = Target { step, nth };
            let ns = random.chance(0.4).then(|| 1_000 + random.exponential(2e9) as u64);
            self.hang = self.hang.or(Some(Hang { target, ns, paired: false }));
        }
        self
    }

    /// The same with a lost write of a set's backup now and then.
    pub fn with_lost_segments(mut self, random: &mut Random) -> Plan {
        if random.chance(0.3) {
            let target = Target { step: Step::SegmentWrite, nth: random.exponential(20.0) as u64 + 1 };
            self.injuries.push((target, Injury::Lose));
        }
        self
    }

    /// The same with a device that is full for the rest of the run, for the catalog, the log or old versions.
    pub fn with_full_device(mut self, random: &mut Random, kind: SeedKind) -> Plan {
        self.full = random.chance(0.1).then(|| {
            let from = 1 + random.exponential(0.7) as u64;
            let file = match kind {
                SeedKind::Durability if random.chance(0.5) => "log",
                SeedKind::Durability => "entresol.home",
                SeedKind::Isolation => "undo.space",
            };
            Full { file, from }
        });
        self
    }

    /// The same with a cut, an error or no room while the log's file grows or is made anew.
    pub fn with_growing_log(mut self, random: &mut Random) -> Plan {
        let target = Target { step: Step::LogGrowth, nth: 1 + random.exponential(0.7) as u64 };
        match random.below(16) {
            0..3 => self.cut = Some(CutPoint::Target(target, random.below(4))),
            3 => self.injuries.push((target, Injury::Fail)),
            4 => self.injuries.push((target, Injury::NoSpace)),
            _ => {}
        }
        self
    }

    /// The same with an operation now and then that hangs in the thread which has taken it, while tasks go on that do not wait for
    /// it, and happens in the end.
    pub fn with_late(mut self, random: &mut Random) -> Plan {
        self.late = random.chance(0.2).then(|| {
            let steps = [Step::Resize, Step::DataGrowth, Step::DataGrowth, Step::LogGrowth, Step::Open];
            let step = *random.choose(&steps).expect("five of them");
            let mean = if matches!(step, Step::Resize | Step::Open) { 4.0 } else { 0.7 };
            let nth = 1 + random.exponential(mean) as u64;
            (Target { step, nth }, 1_000 + random.exponential(200e6) as u64)
        });
        self
    }

    /// The same with a partition's file now and then that does not become longer.
    pub fn with_failing_growth(mut self, random: &mut Random) -> Plan {
        if random.chance(0.04) {
            let target = Target { step: Step::DataGrowth, nth: 1 + random.exponential(0.7) as u64 };
            self.injuries.push((target, Injury::Fail));
        }
        self
    }

    /// The same with loads now and then whose syncs fail, behind which the run goes on.
    pub fn with_failing_loads(mut self, random: &mut Random) -> Plan {
        self.fails_loads = random.chance(0.15);
        if self.fails_loads {
            self.cut = None;
        }
        self
    }

    /// The same with damage while there are runs to come, which go on once it is repaired.
    pub fn with_early_damage(mut self, random: &mut Random, kind: SeedKind) -> Plan {
        match random.below(24) {
            0 => self.damage.push((target(random, kind, Step::flips), SectorDamage::Flip)),
            1 => {
                let target = target(random, kind, |step| step.admits(FaultKind::Unreadable));
                self.damage.push((target, SectorDamage::Unreadable));
            }
            2 => {
                let injury = silent(random);
                self.injuries.push((target(random, kind, Step::may_vanish), injury));
            }
            _ => {}
        }
        self
    }

    /// The same with a database that is dropped while clients work, now and then, in a process that goes on.
    pub fn with_dropped_database(mut self, random: &mut Random) -> Plan {
        if random.chance(0.06) {
            let steps = [Step::LogWrite, Step::LogWrite, Step::PageWrite, Step::Staging, Step::SuperblockWrite];
            let step = *random.choose(&steps).expect("five of them");
            let nth = 1 + random.exponential(if step == Step::SuperblockWrite { 3.0 } else { 25.0 }) as u64;
            self.dropped_at = Some(Target { step, nth });
            self.cut = None;
        }
        self.earlier_ends_after = (random.below(12) as f64).exp2() as u64;
        self
    }

    /// The same with syncs that fail and whose lost data is still visible to reads of the same run.
    pub fn with_cached_syncs(mut self, random: &mut Random) -> Plan {
        for (_, injury) in &mut self.injuries {
            if let Injury::Forget { cached } = injury {
                *cached = random.chance(0.5);
            }
        }
        self
    }

    /// The same with reads overtaken by a sync that loses data, and with reads of a file that all fail, for longer than the
    /// engine retries.
    pub fn with_failing_reads(mut self, random: &mut Random) -> Plan {
        if random.chance(0.15) {
            let target = Target { step: Step::DataSync, nth: 1 + random.exponential(2.0) as u64 };
            self.injuries.push((target, Injury::Forget { cached: false }));
            self.late_reads = true;
        }
        self.outage = random.chance(0.15).then(|| {
            let nth = 1 + random.exponential(30.0) as u64;
            Outage { nth, ns: random.between(1_500, 6_000) * MILLISECOND_NS }
        });
        // What fails meanwhile has to go on afterwards.
        if self.outage.is_some() && random.chance(0.5) {
            self.cut = None;
        }
        self
    }

    /// The same with faults in temporary space. Temporary data does not outlive a run, so a bit may flip in any of them.
    pub fn with_temporary(mut self, random: &mut Random) -> Plan {
        let at = |random: &mut Random, step| Target { step, nth: random.exponential(15.0) as u64 + 1 };
        if random.chance(0.3) {
            let step = if random.chance(0.5) { Step::TempWrite } else { Step::TempRead };
            self.injuries.push((at(random, step), Injury::Fail));
        }
        if random.chance(0.3) {
            let step = if random.chance(0.5) { Step::TempWrite } else { Step::TempRead };
            self.cut = Some(CutPoint::Target(at(random, step), random.below(3)));
        }
        if self.damage.is_empty() && random.chance(0.4) {
            self.damage.push((at(random, Step::TempWrite), SectorDamage::Flip));
        }
        self
    }

    /// The same with unreadable sectors of temporary space and lost writes there.
    pub fn with_more_temporary(mut self, random: &mut Random) -> Plan {
        let target = Target { step: Step::TempWrite, nth: random.exponential(15.0) as u64 + 1 };
        match random.below(6) {
            0 => self.damage.push((target, SectorDamage::Unreadable)),
            1 => self.injuries.push((target, Injury::Lose)),
            2 => self.injuries.push((target, Injury::Misdirect)),
            3 => self.injuries.push((target, Injury::Stale)),
            _ => {}
        }
        if random.chance(0.2) {
            let step = if random.chance(0.5) { Step::TempWrite } else { Step::TempRead };
            let target = Target { step, nth: random.exponential(15.0) as u64 + 1 };
            let ns = Some(1_000 + random.exponential(200e6) as u64);
            self.hang = self.hang.or(Some(Hang { target, ns, paired: false }));
        }
        self
    }

    /// The same with a power cut while partitions are being created or dropped now and then: the superblock file says so already,
    /// and the log's end is lost.
    pub fn with_cut_creation(mut self, random: &mut Random) -> Plan {
        if random.chance(0.15) {
            let target = Target { step: Step::SuperblockWrite, nth: random.between(4, 30) };
            (self.cut, self.kill) = (Some(CutPoint::Target(target, random.below(6))), false);
        }
        self
    }

    /// The same with a device that is slow for most of the run: sorts and joins read back late from temporary space, and what a
    /// cache holds becomes known when much has changed.
    pub fn with_slow_device(mut self, random: &mut Random, device: &str, factor_max: u64) -> Plan {
        if random.chance(0.1) {
            let until = Instant::from_ns(random.between(10, 1_000) * MILLISECOND_NS);
            let factor = random.between(2, factor_max) as f64;
            self.slow.push(Slow { device: device.to_owned(), from: Instant::from_ns(0), until, factor });
        }
        self
    }

    /// The same with a write that vanishes, lands elsewhere or shows late, at a step that few runs come by, and there at one
    /// of its first operations.
    pub fn with_seldom_vanishing(mut self, random: &mut Random) -> Plan {
        if random.chance(0.15) {
            let steps = [Step::Staging, Step::RedoWrite, Step::UndoWrite, Step::TierWrite, Step::LogBuffer];
            let step = *random.choose(&steps).expect("five steps");
            let injury = silent(random);
            self.injuries.push((Target { step, nth: 1 + random.exponential(1.5) as u64 }, injury));
        }
        self
    }

    /// The same with syncs that lose data, full devices, failing changes of names and lengths, devices that hang, failing
    /// allocations and a clock that jumps; `damage` allows writes to become unreadable or to vanish.
    pub fn with_more(mut self, random: &mut Random, kind: SeedKind, damage: bool) -> Plan {
        if random.chance(0.25) {
            let injury = Injury::Forget { cached: false };
            self.injuries.push((target(random, kind, Step::syncs), injury));
        }
        if random.chance(0.2) {
            self.injuries.push((target(random, kind, |step| step.admits(FaultKind::NoSpace)), Injury::NoSpace));
        }
        if random.chance(0.25) {
            let step = if random.chance(0.5) { Step::Open } else { Step::Resize };
            self.injuries.push((target(random, kind, |admitted| admitted == step), Injury::Fail));
        }
        if random.chance(0.15) {
            let target = target(random, kind, |step| step.admits(FaultKind::Hung));
            let ns = random.chance(0.7).then(|| 1_000 + random.exponential(200e6) as u64);
            self.hang = self.hang.or(Some(Hang { target, ns, paired: false }));
        }
        self.memory = random.chance(0.1).then(|| 1 + random.exponential(4.0) as u64);
        self.jump = random.chance(0.15).then(|| Jump {
            park: 1 + random.exponential(150.0) as u64,
            ns: 10u64.pow(random.between(3, 9) as u32) * random.between(1, 9),
        });
        self.reopened_after = random.chance(0.1).then(|| 1 << random.below(10));
        if damage && random.chance(0.6) {
            match random.below(5) {
                0 | 1 => self
                    .damage
                    .push((target(random, kind, |step| step.admits(FaultKind::Unreadable)), SectorDamage::Unreadable)),
                2 => self.injuries.push((target(random, kind, Step::may_vanish), Injury::Lose)),
                3 => self.injuries.push((target(random, kind, Step::may_vanish), Injury::Misdirect)),
                _ => self.injuries.push((target(random, kind, Step::may_vanish), Injury::Stale)),
            }
        }
        self
    }

    /// The same with a cut, an error or no room while a backup is taken, or with places for backups that are slow or hang.
    pub fn with_backups(mut self, random: &mut Random, place: &str) -> Plan {
        let target = Target { step: Step::OnlineBackup, nth: 1 + random.exponential(12.0) as u64 };
        match random.below(16) {
            0..3 => self.cut = Some(CutPoint::Target(target, random.below(4))),
            3 | 4 => self.injuries.push((target, Injury::Fail)),
            5 => self.injuries.push((target, Injury::NoSpace)),
            6 => self.injuries.push((target, Injury::Forget { cached: random.chance(0.5) })),
            7 => {
                let ns = Some(1_000 + random.exponential(200e6) as u64);
                self.hang = self.hang.or(Some(Hang { target, ns, paired: false }));
            }
            8..11 => self.cut = None,
            _ => {}
        }
        self.with_slow_device(random, place, 20)
    }

    /// The same with a cut, errors or no room while the log is archived, or with an archive that is slow or hangs.
    pub fn with_archive(mut self, random: &mut Random, place: &str) -> Plan {
        let target = Target { step: Step::LogArchive, nth: 1 + random.exponential(6.0) as u64 };
        match random.below(12) {
            0 | 1 => self.cut = Some(CutPoint::Target(target, random.below(4))),
            2 => self.injuries.push((target, Injury::NoSpace)),
            3 => self.injuries.push((target, Injury::Forget { cached: random.chance(0.5) })),
            // It is away for a while.
            4 | 5 => {
                let nths = target.nth..target.nth + random.between(1, 40);
                self.injuries.extend(nths.map(|nth| (Target { nth, ..target }, Injury::Fail)));
            }
            6 => {
                let ns = Some(1_000 + random.exponential(200e6) as u64);
                self.hang = self.hang.or(Some(Hang { target, ns, paired: false }));
            }
            7..10 => self.cut = None,
            _ => {}
        }
        self.with_slow_device(random, place, 100)
    }

    /// The same now and then with a limit to how long devices may leave something unanswered, and with one that answers nothing any more, or not
    /// before that is over: of data, logs, caches, backups and archives.
    pub fn with_answer_limit(mut self, random: &mut Random, kind: SeedKind) -> Plan {
        if !random.chance(0.3) {
            return self;
        }
        self.answer_ns_max = Some(random.between(100, 4_000) * MILLISECOND_NS);
        // What is given up waits for nothing.
        (self.cut, self.reopened_after, self.dropped_at) = (None, None, None);
        let own = [Step::OnlineBackup, Step::LogArchive, Step::TempRead, Step::TempWrite];
        let of_backups = own.into_iter().filter(|step| kind == SeedKind::Durability || !step.is_of_durability());
        let steps: Vec<Step> = Step::ALL
            .into_iter()
            .filter(|step| step.transfers() && step.is_met_by(kind) && !step.is_temporary() && !step.is_of_backups())
            .filter(|step| !matches!(step, Step::Create | Step::CatalogAnew))
            .chain(of_backups)
            .collect();
        let step = *random.choose(&steps).expect("there are many");
        let mean =
            if matches!(step, Step::LogWrite | Step::LogSync | Step::PageRead | Step::PageWrite) { 20.0 } else { 3.0 };
        let target = Target { step, nth: 1 + random.exponential(mean) as u64 };
        let ns = random.chance(0.2).then(|| random.between(5_000, 20_000) * MILLISECOND_NS);
        self.hang = Some(Hang { target, ns, paired: false });
        self
    }

    /// What may go wrong with a restore: a cut, an error or no room.
    pub fn of_restore(random: &mut Random) -> Plan {
        let target = Target { step: Step::Restore, nth: 1 + random.exponential(12.0) as u64 };
        let mut plan = Plan { kill: random.chance(0.3), ..Plan::default() };
        match random.below(4) {
            0 | 1 => plan.cut = Some(CutPoint::Target(target, random.below(4))),
            2 => plan.injuries.push((target, Injury::Fail)),
            _ => plan.injuries.push((target, Injury::NoSpace)),
        }
        plan
    }

    /// Draws a plan for a seed of this kind; `flips` allows a bit to flip, after which damage may show.
    pub fn draw(random: &mut Random, kind: SeedKind, flips: bool) -> Plan {
        let cut = random.chance(0.85).then(|| {
            if random.chance(0.5) {
                CutPoint::Event((2.0 + random.exponential(6.0).min(10.0)).exp2() as u64)
            } else {
                CutPoint::Target(target(random, kind, |_| true), random.below(3))
            }
        });
        let errors = if random.chance(0.5) { random.between(1, 3) } else { 0 };
        let slow = random.chance(0.3).then(|| {
            let from = if random.chance(0.5) { 0 } else { random.exponential(500_000.0) as u64 };
            let until = from + random.exponential(2_000_000.0) as u64;
            let device = *random.choose(&["disk", "flash", "nvem", "second", CACHE_DEVICE]).expect("five devices");
            let factor = random.between(2, 200) as f64;
            Slow { device: device.into(), from: Instant::from_ns(from), until: Instant::from_ns(until), factor }
        });
        Plan {
            cut,
            kill: random.chance(0.3),
            injuries: (0..errors).map(|_| (target(random, kind, Step::transfers), Injury::Fail)).collect(),
            damage: flips.then(|| (target(random, kind, Step::flips), SectorDamage::Flip)).into_iter().collect(),
            slow: slow.into_iter().collect(),
            ..Plan::default()
        }
    }

    /// The same with a log device that hangs now and then, where there are two.
    pub fn with_two_logs(self, random: &mut Random) -> Plan {
        let step = if random.chance(0.7) { Step::LogWrite } else { Step::LogSync };
        let target = Target { step, nth: random.exponential(20.0) as u64 + 1 };
        let hang = Hang { target, ns: None, paired: true };
        Plan { hang: random.chance(0.2).then_some(hang), ..self }
    }
}
