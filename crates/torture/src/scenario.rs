//! The scenario of one seed, from the first run to the last, and ranges of seeds.

mod planning;
mod restoring;

use crate::cache_files::CacheFiles;
use crate::configuration::Rows;
use crate::damage::{self, Damage, Damages};
use crate::isolation::Contention;
use crate::lost_end;
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::records::Owner;
use crate::run::{Purpose, RunOutcome, World, run};
use crate::{ClientEvent, Configuration, Coverage, Options, SeedKind, Step, replay, rot};
use base::Random;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use virtual_driver::{Media, PowerCut};

/// A violated promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed: running it again shows the same.
    pub seed: u64,
    /// In which run, counted from 0.
    pub run: u64,
    /// The faults planned for that run.
    pub plan: String,
    /// What had been damaged by then, and which of it another copy replaces.
    pub damages: String,
    /// The seed's configuration.
    pub configuration: String,
    /// The violated promises.
    pub wrong: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails in run {}:", self.seed, self.run)?;
        for what in &self.wrong {
            writeln!(f, "  {what}")?;
        }
        writeln!(f, "plan: {}", self.plan)?;
        writeln!(f, "damage: {}", self.damages)?;
        write!(f, "configuration: {}", self.configuration)
    }
}

/// The result of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// A hash of every event of every run: equal for equal seeds.
    pub hash: u64,
    /// Runs performed.
    pub runs: u64,
    /// Transactions acknowledged.
    pub transactions: u64,
    /// At which levels transactions that met on few records ran, if that was what they did.
    pub levels: Option<String>,
    /// Which faults hit which steps.
    pub coverage: Coverage,
    /// Whether injected damage was detected.
    pub detected: bool,
    /// The failure, if the engine has failed.
    pub failure: Option<Failure>,
}

/// The results of a range of seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Runs performed.
    pub runs: u64,
    /// Transactions acknowledged.
    pub transactions: u64,
    /// How many seeds tested isolation, by the levels of their transactions.
    pub levels: BTreeMap<String, u64>,
    /// Seeds in which injected damage was detected.
    pub detected: u64,
    /// Which faults hit which steps.
    pub coverage: Coverage,
    /// The seeds that failed.
    pub failures: Vec<Failure>,
}

/// Runs the seeds one after another; `progress` sees each outcome.
///
/// ```
/// use entresol_torture::{Options, run_range};
///
/// let summary = run_range(0..3, Options::QUICK, |outcome| assert!(outcome.runs > 0));
/// assert!(summary.failures.is_empty(), "{}", summary.failures[0]);
/// assert_eq!(run_range(0..3, Options::QUICK, |_| ()).coverage, summary.coverage, "seeds replay exactly");
/// ```
pub fn run_range(seeds: Range<u64>, options: Options, mut progress: impl FnMut(&Outcome)) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let outcome = run_seed(seed, options);
        progress(&outcome);
        summary.seeds += 1;
        summary.runs += outcome.runs;
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
    let owners = vec![Owner::default(); configuration.record_clients];
    let oracle = Oracle {
        owners,
        past: lost_end::past(configuration.backups, configuration.settings.log.durable),
        ..Oracle::default()
    };
    let world = World {
        seed,
        media: Media::new(),
        oracle: Rc::new(RefCell::new(oracle)),
        damages: Damages::default(),
        configuration,
        left: None,
    };
    let outcome = Outcome {
        seed,
        hash: 0,
        runs: 0,
        transactions: 0,
        levels: world.configuration.contention.as_ref().map(Contention::name),
        coverage: Coverage::default(),
        detected: false,
        failure: None,
    };
    let more = Random::stream(seed, "more faults").chance(0.6);
    let mut scenario =
        Scenario { world, outcome, random: Random::stream(seed, "story"), more, older_cache: None, is_unsynced: false };
    scenario.play();
    let mut outcome = scenario.outcome;
    outcome.transactions = scenario.world.oracle.borrow().acknowledged;
    outcome
}

struct Scenario {
    world: World,
    outcome: Outcome,
    random: Random,
    /// Whether its runs meet more kinds of faults.
    more: bool,
    /// What the cache's files were some runs before.
    older_cache: Option<CacheFiles>,
    /// Whether the media may have something that no sync has made durable: its process has ended, and the power has not gone since.
    is_unsynced: bool,
}

impl Scenario {
    fn play(&mut self) {
        let Configuration { runs, ref contention, .. } = *self.world.configuration;
        let kind = if contention.is_some() { SeedKind::Isolation } else { SeedKind::Durability };
        if kind == SeedKind::Durability && Random::stream(self.world.seed, "replays").chance(0.1) && !self.replay() {
            return;
        }
        let flips = self.random.chance(0.5);
        for run in 0..runs {
            let plan = self.plan(run, kind, flips);
            if !self.run(plan, Purpose::Work) || !self.restore_some(0.2) || !self.replace_cache(run) {
                return;
            }
        }
        let is_sound = self.world.damages.borrow().is_empty();
        if is_sound && !(self.restore_some(0.8) && self.restore_further() && self.restore_damaged()) {
            return;
        }
        if is_sound && self.random.chance(0.4) && !self.decay() {
            return;
        }
        if is_sound && self.more && !self.rot() {
            return;
        }
        if is_sound && Random::stream(self.world.seed, "hole").chance(0.12) && !self.hole() {
            return;
        }
        let _ = self.run(Plan::default(), Purpose::Work) && self.run(Plan::default(), Purpose::Inspection);
    }

    /// Replays a trace on a machine of its own. False if the scenario is over.
    fn replay(&mut self) -> bool {
        self.outcome.coverage.event(ClientEvent::Replayed);
        let Some(wrong) = replay::wrong(self.world.seed) else { return true };
        self.fail(vec![wrong], ("a replay", String::new()));
        false
    }

    /// Now and then the cache is another one than it was when the run ended. The scenario goes on with it where no page can tear,
    /// so that the log has what only the cache had. Otherwise, and with another tier's file, an opening of a copy of the media
    /// may say what is missing. False if the scenario is over.
    fn replace_cache(&mut self, run: u64) -> bool {
        let World { seed, ref configuration, ref media, ref damages, .. } = self.world;
        let random = &mut Random::stream(seed, &format!("cache replaced after {run}"));
        let Some(present) = CacheFiles::of(media, configuration).filter(|_| damages.borrow().is_empty()) else {
            return true;
        };
        let (event, files) = match random.below(24) {
            0 | 1 => (ClientEvent::CacheEmptied, Some(present.emptied())),
            2 | 3 => (ClientEvent::CacheOlder, self.older_cache.clone()),
            4 => (ClientEvent::CacheForeign, Some(present.foreign(random))),
            5..11 => {
                let page_size = configuration.settings.buffer.page_size;
                let older = self.older_cache.as_ref();
                (ClientEvent::SlotsOlder, older.and_then(|older| present.with_older_versions(older, page_size, random)))
            }
            11 => return self.miss_cache(&present),
            _ => {
                self.older_cache = Some(present);
                return true;
            }
        };
        let Some(files) = files else { return true };
        self.outcome.coverage.event(event);
        self.outcome.coverage.design(configuration, event.name());
        let can_tear = (configuration.atomic_write as usize) < configuration.settings.buffer.page_size;
        // An opening refuses the file of another tier.
        let is_refused = files.is_of_another_tier_than(&present);
        if !can_tear && !is_refused {
            files.put(media, configuration);
            return true;
        }
        let copy = media.copy();
        files.put(&copy, configuration);
        self.inspect(copy, Some(Damage::of_cache()))
    }

    /// The cache is away for one opening. If that is refused, because the cache may have the whole copy of a page, it is back for
    /// the next one. False if the scenario is over.
    fn miss_cache(&mut self, present: &CacheFiles) -> bool {
        let Scenario { world, outcome, .. } = self;
        outcome.coverage.event(ClientEvent::CacheAway);
        present.emptied().put(&world.media, &world.configuration);
        world.damages.borrow_mut().push(Damage::of_cache());
        let ended = run(world, outcome.runs, Plan::default(), Purpose::Inspection);
        world.damages.borrow_mut().clear();
        world.media.process_end(&mut Random::stream(world.seed, &format!("end of run {}", outcome.runs)));
        if CacheFiles::of(&world.media, &world.configuration).is_none() {
            present.put(&world.media, &world.configuration);
        }
        self.note(&RunOutcome { detected: false, ..ended }, "without the cache")
    }

    /// Performs a run and treats the media according to its end; false if the scenario is over.
    fn run(&mut self, plan: Plan, purpose: Purpose) -> bool {
        let ended = run(&self.world, self.outcome.runs, plan.clone(), purpose);
        self.world.left = ended.left.clone();
        if !self.note(&ended, &format!("{plan:?}")) || ended.is_astray {
            return false;
        }
        // The power may go right behind a drop, before anything has synced what that left.
        let goes_on = self.world.left.is_some()
            && !Random::stream(self.world.seed, &format!("power behind drop {}", self.outcome.runs)).chance(0.3);
        self.is_unsynced = plan.kill || goes_on;
        self.world.oracle.borrow_mut().log_end.note_end(self.is_unsynced);
        if self.is_unsynced {
            self.world.media.process_end(&mut self.random);
        } else {
            self.world.left = None;
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
        let is_repaired = self.look_after_damages(ended.detected);
        // Nothing else would look at what was repaired.
        !(is_repaired && purpose == Purpose::Inspection) || self.run(Plan::default(), purpose)
    }

    /// Forgets what was damaged and is over. If something was reported, all that was damaged is as it should be from now on, as after
    /// copies of its sectors were put back: nothing may be missing then. Whether there was something to be repaired.
    fn look_after_damages(&mut self, is_detected: bool) -> bool {
        let forget = || {
            let damages = &mut *self.world.damages.borrow_mut();
            damage::look_at(damages, &self.world.media);
            damages.retain(|damage| !damage.is_over());
            damages.len()
        };
        let left = forget();
        if is_detected {
            self.world.media.repair();
        }
        let is_repaired = forget() < left;
        if is_repaired {
            self.outcome.coverage.event(ClientEvent::Repaired);
        }
        is_repaired
    }

    /// Records how a run ended; false if the scenario is over.
    fn note(&mut self, ended: &RunOutcome, plan: &str) -> bool {
        let outcome = &mut self.outcome;
        for word in [ended.observed.hash.get(), ended.observed.events.get(), ended.wrong.len() as u64] {
            outcome.hash = (outcome.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        outcome.coverage.add(&ended.observed.coverage.borrow());
        if self.world.configuration.rows == Rows::Set {
            outcome.coverage.end(ended.observed.pair.get(), &ended.observed.coverage.borrow());
        }
        outcome.coverage.end_with_cache(&self.world.configuration, &ended.observed.coverage.borrow());
        outcome.detected |= ended.detected;
        if !ended.wrong.is_empty() {
            let damages = format!("{:?}", ended.observed.damages.borrow());
            self.fail(ended.wrong.clone(), (plan, damages));
        }
        self.outcome.runs += 1;
        self.outcome.failure.is_none()
    }

    fn fail(&mut self, wrong: Vec<String>, (plan, damages): (&str, String)) {
        let (seed, run, plan) = (self.outcome.seed, self.outcome.runs, plan.to_owned());
        let configuration = format!("{:?}", self.world.configuration);
        self.outcome.failure = Some(Failure { seed, run, plan, damages, configuration, wrong });
    }

    /// Flips a bit in a copy of the media: the damage is reported or harmless, and always harmless where another copy can be
    /// read. False if the scenario is over.
    fn decay(&mut self) -> bool {
        const FLIPPED: [Step; 5] =
            [Step::SuperblockWrite, Step::LogWrite, Step::Staging, Step::PageWrite, Step::SegmentWrite];
        let step = *self.random.choose(&FLIPPED).expect("some steps' writes decay");
        let media = self.media_at_rest();
        let damage =
            rot::decay((&media, &self.world.oracle.borrow()), &self.world.configuration, step, &mut self.random);
        self.inspect(media, damage)
    }

    /// The same with unreadable sectors as well, on any device.
    fn rot(&mut self) -> bool {
        let random = &mut Random::stream(self.world.seed, "rot");
        let steps: Vec<Step> = Step::ALL.into_iter().filter(|step| step.decays()).collect();
        let step = *random.choose(&steps).expect("some steps' writes decay");
        let media = self.media_at_rest();
        let damage = rot::rot((&media, &self.world.oracle.borrow()), &self.world.configuration, step, random);
        self.inspect(media, damage)
    }

    /// The same with a page that its file has lost.
    fn hole(&mut self) -> bool {
        let random = &mut Random::stream(self.world.seed, "hole's place");
        let media = self.media_at_rest();
        let damage = rot::hole(&media, &self.world.configuration, random);
        self.inspect(media, damage)
    }

    /// A copy of what the next opening will find.
    fn media_at_rest(&self) -> Media {
        let media = self.world.media.copy();
        media.drop_caches();
        media
    }

    /// Runs on a damaged copy of the media with a copy of the oracle, and again once a damage that was reported is repaired. False
    /// if the scenario is over.
    fn inspect(&mut self, media: Media, damage: Option<Damage>) -> bool {
        let Some(damage) = damage else { return true };
        self.outcome
            .coverage
            .hit(damage.kind, if damage.step == Step::LogBuffer { Step::TierWrite } else { damage.step });
        let oracle = self.world.oracle.borrow().clone();
        if !oracle.created {
            return true;
        }
        let configuration = Rc::clone(&self.world.configuration);
        let oracle = Rc::new(RefCell::new(oracle));
        let told = format!("after {damage:?}");
        let is_on_media = damage.found.is_some();
        let (seed, damages) = (self.world.seed, Rc::new(RefCell::new(vec![damage])));
        let world = World { seed, configuration, media, oracle, damages, left: None };
        let ended = run(&world, self.outcome.runs, Plan::default(), Purpose::Inspection);
        let is_repaired = ended.detected && is_on_media;
        if !self.note(&ended, &told) {
            return false;
        }
        damage::look_at(&mut world.damages.borrow_mut(), &world.media);
        if !ended.detected && world.damages.borrow().iter().any(Damage::is_left) {
            self.fail(vec!["a damaged copy of the superblock is left as it is".to_owned()], (&told, String::new()));
        }
        if !is_repaired {
            return self.outcome.failure.is_none();
        }
        self.outcome.coverage.event(ClientEvent::Repaired);
        let random = &mut Random::stream(self.world.seed, &format!("power behind run {}", self.outcome.runs));
        world.media.power_cut(random, &PowerCut::default());
        world.media.repair();
        world.damages.borrow_mut().clear();
        let ended = run(&world, self.outcome.runs, Plan::default(), Purpose::Inspection);
        self.note(&ended, &format!("{told}, which was repaired"))
    }
}
