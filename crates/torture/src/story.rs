//! A seed's story from the first life to the last, and many seeds one after another.

use crate::configuration::Rows;
use crate::hurt::Hurt;
use crate::isolation::Contention;
use crate::life::{Ended, Purpose, World, live};
use crate::plan::Plan;
use crate::records::Owner;
use crate::truth::Truth;
use crate::{Configuration, Coverage, Kind, Options, Step, partitions, rot};
use base::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use virtual_driver::{Media, PowerCut};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed: running it again shows the same.
    pub seed: u64,
    /// In which life, counted from 0.
    pub life: u64,
    /// What had been planned against that life.
    pub plan: String,
    /// What had been damaged by then and what is known to serve in its place.
    pub hurts: String,
    /// The seed's configuration.
    pub configuration: String,
    /// What is wrong.
    pub wrong: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails in life {}:", self.seed, self.life)?;
        for what in &self.wrong {
            writeln!(f, "  {what}")?;
        }
        writeln!(f, "plan: {}", self.plan)?;
        writeln!(f, "damage: {}", self.hurts)?;
        write!(f, "configuration: {}", self.configuration)
    }
}

/// What came of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// A hash of every event of every life: equal for equal seeds.
    pub hash: u64,
    /// Lives lived.
    pub lives: u64,
    /// Transactions acknowledged.
    pub transactions: u64,
    /// At which levels transactions that met on few records ran, if that was what they did.
    pub levels: Option<String>,
    /// What hit what.
    pub coverage: Coverage,
    /// Whether damage was found where something had been hurt.
    pub detected: bool,
    /// What is wrong with the engine, if anything is.
    pub failure: Option<Failure>,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Lives lived.
    pub lives: u64,
    /// Transactions acknowledged.
    pub transactions: u64,
    /// How many seeds had transactions meet on few records, by the levels of these.
    pub levels: BTreeMap<String, u64>,
    /// Seeds in which damage was found where something had been hurt.
    pub detected: u64,
    /// What hit what.
    pub coverage: Coverage,
    /// The seeds that failed.
    pub failures: Vec<Failure>,
}

/// Runs the seeds one after another; `progress` sees each outcome.
///
/// ```
/// use entresol_torture::{Options, run_range};
///
/// let summary = run_range(0..3, Options::QUICK, |outcome| assert!(outcome.lives > 0));
/// assert!(summary.failures.is_empty(), "{}", summary.failures[0]);
/// assert_eq!(run_range(0..3, Options::QUICK, |_| ()).coverage, summary.coverage, "seeds replay exactly");
/// ```
pub fn run_range(seeds: Range<u64>, options: Options, mut progress: impl FnMut(&Outcome)) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let outcome = run_seed(seed, options);
        progress(&outcome);
        summary.seeds += 1;
        summary.lives += outcome.lives;
        summary.transactions += outcome.transactions;
        if let Some(levels) = outcome.levels {
            *summary.levels.entry(levels).or_default() += 1;
        }
        summary.detected += u64::from(outcome.detected);
        summary.coverage.add(&outcome.coverage);
        summary.failures.extend(outcome.failure);
    }
    summary
}

/// Runs one seed.
pub fn run_seed(seed: u64, options: Options) -> Outcome {
    let configuration = Rc::new(Configuration::draw(seed, options));
    let truth = Truth { owners: vec![Owner::default(); configuration.record_clients], ..Truth::default() };
    let world =
        World { seed, media: Media::new(), truth: Rc::new(RefCell::new(truth)), hurts: Vec::new(), configuration };
    let outcome = Outcome {
        seed,
        hash: 0,
        lives: 0,
        transactions: 0,
        levels: world.configuration.contention.as_ref().map(Contention::name),
        coverage: Coverage::default(),
        detected: false,
        failure: None,
    };
    let more = Random::stream(seed, "more faults").chance(0.6);
    let mut story = Story { world, outcome, random: Random::stream(seed, "story"), more };
    story.tell();
    let mut outcome = story.outcome;
    outcome.transactions = story.world.truth.borrow().acknowledged;
    outcome
}

struct Story {
    world: World,
    outcome: Outcome,
    random: Random,
    /// Whether its lives meet faults of more kinds.
    more: bool,
}

impl Story {
    fn tell(&mut self) {
        let Configuration { lives, ref contention, .. } = *self.world.configuration;
        let kind = if contention.is_some() { Kind::Isolation } else { Kind::Durability };
        let flips = self.random.chance(0.5);
        for life in 0..lives {
            let mut plan = Plan::draw(&mut self.random, kind, flips && life + 2 >= lives);
            if self.world.configuration.settings.log.second.is_some() {
                plan = plan.with_two_logs(&mut Random::stream(self.world.seed, &format!("hung {life}")));
            }
            if self.world.configuration.spills {
                plan =
                    plan.with_temporary(&mut Random::stream(self.world.seed, &format!("temporary space, life {life}")));
            }
            if self.more {
                let random = &mut Random::stream(self.world.seed, &format!("more faults, life {life}"));
                plan = plan.with_more(random, kind, life + 2 >= lives);
                if self.world.configuration.spills {
                    plan = plan.with_more_temporary(random);
                }
                plan =
                    plan.with_cached_syncs(&mut Random::stream(self.world.seed, &format!("cached syncs, life {life}")));
            }
            plan =
                plan.with_full_device(&mut Random::stream(self.world.seed, &format!("full device, life {life}")), kind);
            if self.more {
                let random = &mut Random::stream(self.world.seed, &format!("failing reads, life {life}"));
                plan = plan.with_failing_reads(random);
            }
            if self.world.configuration.crowd > 0 {
                let random = &mut Random::stream(self.world.seed, &format!("many partitions, life {life}"));
                plan = plan.with_many_partitions(random);
            }
            if partitions::is_large_crowd(self.world.configuration.crowd) && life == 0 {
                // What comes later is to meet them all.
                plan = Plan::default();
            }
            if !self.live(plan, Purpose::Work) {
                return;
            }
        }
        let is_sound = self.world.hurts.is_empty();
        if is_sound && self.random.chance(0.4) && !self.decay() {
            return;
        }
        if is_sound && self.more && !self.rot() {
            return;
        }
        if is_sound && Random::stream(self.world.seed, "hole").chance(0.12) && !self.hole() {
            return;
        }
        let _ = self.live(Plan::default(), Purpose::Work) && self.live(Plan::default(), Purpose::Inspection);
    }

    /// Lives a life and does to the media what its end does; false if the story is over.
    fn live(&mut self, plan: Plan, purpose: Purpose) -> bool {
        let kill = plan.kill;
        let ended = live(&self.world, self.outcome.lives, plan.clone(), purpose);
        self.world.hurts = ended.scene.hurts.borrow().iter().filter(|hurt| !hurt.is_passing()).cloned().collect();
        if !self.note(&ended, &format!("{plan:?}")) {
            return false;
        }
        if kill {
            self.world.media.process_end(&mut self.random);
        } else {
            let policies = [
                PowerCut::default(),
                PowerCut { lost: 0.0, torn: 1.0 },
                PowerCut { lost: 1.0, torn: 0.0 },
                PowerCut { lost: 0.5, torn: 0.0 },
            ];
            let policy = *self.random.choose(&policies).expect("there are some");
            let survival = self.world.media.power_cut(&mut self.random, &policy);
            self.outcome.coverage.add_survival(survival);
        }
        true
    }

    /// Notes how a life ended; false if the story is over.
    fn note(&mut self, ended: &Ended, plan: &str) -> bool {
        let outcome = &mut self.outcome;
        for word in [ended.scene.hash.get(), ended.scene.events.get(), ended.wrong.len() as u64] {
            outcome.hash = (outcome.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        outcome.coverage.add(&ended.scene.coverage.borrow());
        if self.world.configuration.rows == Rows::Set {
            outcome.coverage.end(ended.scene.pair.get(), &ended.scene.coverage.borrow());
        }
        outcome.detected |= ended.detected;
        if !ended.wrong.is_empty() {
            outcome.failure = Some(Failure {
                seed: outcome.seed,
                life: outcome.lives,
                plan: plan.to_owned(),
                hurts: format!("{:?}", ended.scene.hurts.borrow()),
                configuration: format!("{:?}", self.world.configuration),
                wrong: ended.wrong.clone(),
            });
        }
        outcome.lives += 1;
        outcome.failure.is_none() && !ended.detected
    }

    /// Lets a copy of the media decay: the damage is reported or does no harm, and where another copy serves it does none.
    /// False if the story is over.
    fn decay(&mut self) -> bool {
        const FLIPPED: [Step; 5] =
            [Step::HomeWrite, Step::LogWrite, Step::Staging, Step::PageWrite, Step::SegmentWrite];
        let step = *self.random.choose(&FLIPPED).expect("some steps' writes decay");
        let media = self.world.media.copy();
        let hurt = rot::decay((&media, &self.world.truth.borrow()), &self.world.configuration, step, &mut self.random);
        self.inspect(media, hurt)
    }

    /// The same with sectors that become unreadable besides, on any device.
    fn rot(&mut self) -> bool {
        let random = &mut Random::stream(self.world.seed, "rot");
        let steps: Vec<Step> = Step::ALL.into_iter().filter(|step| step.decays()).collect();
        let step = *random.choose(&steps).expect("some steps' writes decay");
        let media = self.world.media.copy();
        let hurt = rot::rot((&media, &self.world.truth.borrow()), &self.world.configuration, step, random);
        self.inspect(media, hurt)
    }

    /// The same with a page that its file has lost.
    fn hole(&mut self) -> bool {
        let random = &mut Random::stream(self.world.seed, "hole's place");
        let media = self.world.media.copy();
        let hurt = rot::hole(&media, &self.world.configuration, random);
        self.inspect(media, hurt)
    }

    /// Lives on a copy of the media that was hurt, without the knowledge of the original. False if the story is over.
    fn inspect(&mut self, media: Media, hurt: Option<Hurt>) -> bool {
        let Some(hurt) = hurt else { return true };
        self.outcome.coverage.hit(hurt.kind, if hurt.step == Step::LogBuffer { Step::TierWrite } else { hurt.step });
        let truth = self.world.truth.borrow().clone();
        if !truth.created {
            return true;
        }
        let configuration = Rc::clone(&self.world.configuration);
        let truth = Rc::new(RefCell::new(truth));
        let told = format!("after {hurt:?}");
        let world = World { seed: self.world.seed, configuration, media, truth, hurts: vec![hurt] };
        let ended = live(&world, self.outcome.lives, Plan::default(), Purpose::Inspection);
        let detected = ended.detected;
        // The original goes on, whatever came of the copy.
        self.note(&Ended { detected: false, ..ended }, &told);
        self.outcome.detected |= detected;
        self.outcome.failure.is_none()
    }
}
