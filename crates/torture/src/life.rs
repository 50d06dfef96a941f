//! One life: the database is opened, compared with what is known, used, and left one way or another.

use crate::abandon::{at_most, within};
use crate::adversary::{Adversary, Phase, Scene};
use crate::coverage::pairs;
use crate::hurt::{self, Hurt};
use crate::plan::Plan;
use crate::procedure::procedures;
use crate::stage::{After, Stage};
use crate::truth::Truth;
use crate::{Configuration, debit_credit, isolation, partitions, records, spill, verify};
use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::Halt;
use engine::canary::{self, Canary};
use engine::log::Log;
use engine::server::{self, TransactionServer};
use engine::{Database, Error, PartitionSpec, Result, Settings, log, second_level};
use executor::{Executor, Order};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use virtual_driver::{FaultPlan, Media, Options, VirtualDriver};

/// What lasts from life to life.
pub struct World {
    /// The story's seed.
    pub seed: u64,
    /// What the seed stands for.
    pub configuration: Rc<Configuration>,
    /// The devices' contents.
    pub media: Media,
    /// What is known of them.
    pub truth: Rc<RefCell<Truth>>,
    /// What was hurt on them.
    pub hurts: Vec<Hurt>,
}

/// What a life is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Clients work.
    Work,
    /// Nobody works; everything is compared and checked.
    Inspection,
}

/// How a life ended.
pub struct Ended {
    /// What is wrong with the engine.
    pub wrong: Vec<String>,
    /// Whether damage was reported as it should be.
    pub detected: bool,
    /// What the adversary tells.
    pub scene: Rc<Scene>,
}

/// How long clients may take, besides drops that give up, in virtual nanoseconds.
const WORK_MAX_NS: u64 = 60 * SECOND_NS;

/// How often the creation of a partition is tried: more often than operations fail in a life.
const CREATIONS_MAX: u64 = 5;

/// Lives one life.
pub fn live(world: &World, life: u64, plan: Plan, purpose: Purpose) -> Ended {
    let scene = Rc::new(Scene::default());
    scene.hurts.replace(world.hurts.clone());
    let (wrong, detected) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
    let reopened_after = plan.reopened_after;
    let executor = machine(world, life, plan, &scene);
    let stage = Rc::new(Stage {
        executor: executor.clone(),
        configuration: Rc::clone(&world.configuration),
        truth: Rc::clone(&world.truth),
        scene: Rc::clone(&scene),
        wrong: Rc::clone(&wrong),
        detected: Rc::clone(&detected),
        over: Cell::new(false),
        working: Cell::new(0),
        life,
        seed: world.seed,
        reopened_after,
        refused_ns: Cell::new(0),
    });
    let result = catch_unwind(AssertUnwindSafe(|| {
        let result = executor.run(act(&stage, purpose));
        // Destructors of what is stopped may begin rollbacks, which are stopped in their turn.
        executor.stop();
        executor.stop();
        result
    }));
    match result {
        Ok(Ok(()) | Err(Halt::PowerCut)) => {}
        Ok(Err(Halt::Idle)) if scene.is_deaf.get() => {}
        Ok(Err(Halt::Idle)) => wrong.borrow_mut().push("everybody waits for ever".to_owned()),
        Err(panic) => {
            wrong.borrow_mut().push(format!("panic: {}", message(&*panic)));
            // What a panic leaves behind is in no state to be taken down.
            std::mem::forget((executor, stage));
        }
    }
    let mut wrong = wrong.take();
    let anomalies = world.truth.borrow().history.anomalies();
    if hurt::has_undetectable(&scene.hurts.borrow()) {
        detected.set(detected.get() || !anomalies.is_empty());
    } else {
        wrong.extend(anomalies.iter().take(3).map(ToString::to_string));
    }
    Ended { wrong, detected: detected.get(), scene }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("of unknown cause").to_owned()
}

fn machine(world: &World, life: u64, plan: Plan, scene: &Rc<Scene>) -> Executor {
    let hardware = world.configuration.hardware();
    let devices = hardware.devices.keys().cloned().collect();
    let seed = Random::stream(world.seed, &format!("life {life}")).word();
    let keeps_cache = canary::is_planted(Canary::TrustedCache);
    let faults = Some(FaultPlan { slow: plan.slow.clone(), keeps_cache, ..FaultPlan::default() });
    let options = Options { seed, faults, jitter: world.configuration.jitter, discard: Vec::new() };
    let driver = VirtualDriver::new(hardware, options, world.media.clone());
    let adversary = Adversary::new(driver, devices, plan, Random::stream(seed, "adversary"), Rc::clone(scene));
    let order = if world.configuration.shuffled { Order::Seeded(seed) } else { Order::FirstInFirstOut };
    Executor::new(Box::new(adversary), order)
}

async fn act(stage: &Rc<Stage>, purpose: Purpose) {
    // An opening may lose a copy as well, and tells it only when it has succeeded.
    stage.truth.borrow_mut().log_copy_lost |= stage.configuration.settings.log.second.is_some();
    let Some(database) = open(stage).await else { return };
    let is_without = database.settings().log.without.is_some();
    let _copies = LogCopies { stage, log: Rc::clone(database.log()), is_without };
    stage.scene.phase.set(Phase::Running);
    let known = async {
        prepare(stage, &database).await
            && verify::contents(stage, &database).await
            && partitions::contents(stage, &database).await
    };
    match within(&stage.executor, WORK_MAX_NS, known).await {
        Some(true) => {}
        Some(false) => return,
        None => {
            if !stage.scene.is_deaf.get() {
                stage.wrong("loading and reading take for ever");
            }
            return;
        }
    }
    let mut random = stage.random("acts");
    verify::structure(stage, &database).await;
    if purpose == Purpose::Inspection || stage.over.get() {
        return;
    }
    work(stage, &database, &mut random).await;
    if stage.over.get() || !end_quietly(stage, &database).await {
        return;
    }
    verify::structure(stage, &database).await;
    if random.chance(0.4)
        && let Err(error) = database.close().await
    {
        stage.judge(&error, "close");
    }
}

/// Notes at the end of a life, however that comes, whether a copy of the log was lost.
struct LogCopies<'a> {
    stage: &'a Stage,
    log: Rc<Log>,
    /// Whether the database was opened without one of them.
    is_without: bool,
}

impl Drop for LogCopies<'_> {
    fn drop(&mut self) {
        self.stage.truth.borrow_mut().log_copy_lost = self.is_without || self.log.lost_device().is_some();
    }
}

/// Opens the database, or creates it if nobody was told yet that it exists.
async fn open(stage: &Stage) -> Option<Database> {
    let mut settings = stage.configuration.settings.clone();
    if stage.random("tiers").chance(0.15) {
        // What tiers hold must come home when nobody wants them any more.
        settings.hierarchy = second_level::Settings::default();
    }
    let random = &mut stage.random("pairs");
    if random.chance(0.25) {
        (settings.logging, settings.sweep.strategy) = *random.choose(&pairs()).expect("there are some");
    }
    stage.scene.pair.set((settings.logging, settings.sweep.strategy));
    settings.procedures = procedures(&stage.configuration);
    let created = stage.truth.borrow().created;
    stage.scene.phase.set(if created { Phase::Opening } else { Phase::Creating });
    if let Some(polls) = stage.reopened_after.filter(|_| created) {
        at_most(polls, open_or_do_without(stage, &settings)).await;
        // What it began may still change the media: a driver keeps its directory locked until that has ended.
        while stage.scene.under_way.get() > 0 {
            stage.executor.sleep_ns(MILLISECOND_NS).await;
        }
    }
    let opened = match open_or_do_without(stage, &settings).await {
        Err(Error::NotADatabase { .. } | Error::Unfinished { .. }) if !created => {
            Database::create(&stage.executor, settings).await
        }
        opened => opened,
    };
    match opened {
        Ok(database) => {
            stage.truth.borrow_mut().created = true;
            Some(database)
        }
        Err(error @ Error::BufferExhausted { .. }) => {
            stage.wrong(format!("opening: {error}"));
            None
        }
        Err(error) => {
            stage.judge(&error, "opening");
            None
        }
    }
}

/// Opens the database, now and then without one of two log devices, unless that would not be safe.
async fn open_or_do_without(stage: &Stage, settings: &Settings) -> Result<Database> {
    let random = &mut stage.random("log devices");
    // What one of them lacks is on the other.
    let is_needed = stage.scene.hurts.borrow().iter().any(|hurt| hurt.is_redundant);
    if let Some(second) = settings.log.second.as_ref().filter(|_| random.chance(0.3) && !is_needed) {
        let name = if random.chance(0.5) { &settings.log_device } else { &second.device };
        let log = log::Settings { without: Some(name.clone()), ..settings.log.clone() };
        match Database::open(&stage.executor, Settings { log, ..settings.clone() }, "torture").await {
            Err(Error::LogCopyMissing { .. } | Error::Setting(_)) => {}
            opened => return opened,
        }
    }
    Database::open(&stage.executor, settings.clone(), "torture").await
}

/// Creates and loads what is missing; false if the life is over.
async fn prepare(stage: &Stage, database: &Database) -> bool {
    for spec in stage.configuration.partitions() {
        let name = spec.name.clone();
        if database.partition(&name).is_err() {
            if stage.truth.borrow().partitions.contains(&name) {
                stage.differs(format!("partition '{name}' is lost"));
                return false;
            }
            if !create(stage, database, &spec).await {
                return false;
            }
        }
        stage.truth.borrow_mut().partitions.insert(name);
    }
    if !stage.truth.borrow().loaded {
        if let Err(error) = load(stage, database).await {
            stage.judge(&error, "loading");
            return false;
        }
        stage.truth.borrow_mut().loaded = true;
    }
    true
}

/// Creates a partition, again if that fails; false if the life is over.
async fn create(stage: &Stage, database: &Database, spec: &PartitionSpec) -> bool {
    for _ in 0..CREATIONS_MAX {
        let Err(error) = database.create_partition(spec.clone()).await else { return true };
        if stage.judge(&error, "creating a partition") == After::Reopen {
            return false;
        }
    }
    false
}

/// What a row holds besides its balance.
pub fn filler(row: u64) -> u8 {
    row as u8 | 0x80
}

async fn load(stage: &Stage, database: &Database) -> Result<()> {
    let configuration = &stage.configuration;
    if configuration.contention.is_some() {
        return isolation::load(stage, database).await;
    }
    if !configuration.rows.have_keys() {
        return Ok(());
    }
    let counts = [configuration.accounts, configuration.tellers, configuration.branches];
    for (name, count) in ["account", "teller", "branch"].into_iter().zip(counts) {
        let partition = database.partition(name)?;
        for first in (0..count).step_by(20) {
            let mut tx = database.begin().await?;
            for number in first..count.min(first + 20) {
                let mut row = vec![filler(number); configuration.row_size];
                row[..8].fill(0);
                tx.put(partition, &debit_credit::row_key(number), &row).await?;
            }
            tx.commit().await?;
        }
    }
    Ok(())
}

/// Lets the clients work until they are done or the life is over.
async fn work(stage: &Rc<Stage>, database: &Database, random: &mut Random) {
    let configuration = &stage.configuration;
    if let Some(contention) = &configuration.contention {
        for number in 0..contention.clients {
            employ(stage, isolation::client(Rc::clone(stage), database.clone(), number));
        }
        if contention.flood.is_some() {
            employ(stage, isolation::flood(Rc::clone(stage), database.clone()));
        }
    }
    let server = if configuration.contention.is_none() { serve(stage, database) } else { None };
    let callers = Rc::new(Cell::new(configuration.debit_clients));
    for number in 0..configuration.debit_clients {
        let client = debit_credit::client(Rc::clone(stage), database.clone(), server.clone(), number);
        let (server, callers, life) = (server.clone(), Rc::clone(&callers), Rc::clone(stage));
        employ(stage, async move {
            client.await;
            callers.set(callers.get() - 1);
            // What was abandoned runs to its end all the same.
            if let (Some(server), 0, false) = (server, callers.get(), life.over.get()) {
                server.close().await;
            }
        });
    }
    for number in 0..configuration.record_clients {
        employ(stage, records::client(Rc::clone(stage), database.clone(), number));
    }
    for number in 0..configuration.partition_clients {
        employ(stage, partitions::client(Rc::clone(stage), database.clone(), number));
    }
    if configuration.crowd > 0 {
        employ(stage, partitions::crowd(Rc::clone(stage), database.clone()));
    }
    if configuration.spills {
        employ(stage, spill::client(Rc::clone(stage), database.clone()));
    }
    let began = stage.executor.now();
    let deadline = || began.plus_ns(WORK_MAX_NS + stage.scene.jumped_ns.get() + stage.refused_ns.get());
    while stage.working.get() > 0 && !stage.over.get() {
        if stage.executor.now() >= deadline() {
            if !stage.is_crippled(database) {
                stage.wrong(format!("{} clients wait for ever", stage.working.get()));
            }
            stage.over.set(true);
            return;
        }
        stage.executor.sleep_ns(random.between(1, 400) * 1_000).await;
        if random.chance(0.05) {
            disturb(stage, database, random).await;
        }
    }
}

/// A transaction server for the calls of every second life.
fn serve(stage: &Stage, database: &Database) -> Option<TransactionServer> {
    let random = &mut stage.random("server");
    let settings = server::Settings {
        standbys: random.below(4) as u8,
        queue: random.between(1, 4) as usize,
        retry_interval_ns: random.between(0, 500) * 1_000,
    };
    let server = random.chance(0.5).then(|| TransactionServer::start(database, settings))?;
    server.inspect_err(|error| stage.wrong(format!("starting a transaction server: {error}"))).ok()
}

/// A checkpoint in the middle, perhaps abandoned; a look at the tables.
async fn disturb(stage: &Stage, database: &Database, random: &mut Random) {
    let polls = if random.chance(0.5) { random.between(1, 6) } else { u64::MAX };
    if let Some(Err(error)) = at_most(polls, database.checkpoint()).await {
        stage.judge(&error, "checkpoint");
    }
    verify::tables(stage, database);
}

fn employ(stage: &Rc<Stage>, client: impl Future<Output = ()> + 'static) {
    stage.working.set(stage.working.get() + 1);
    let stage = Rc::clone(stage);
    stage.executor.clone().spawn(async move {
        client.await;
        stage.working.set(stage.working.get() - 1);
    });
}

/// Waits until what goes on in the background has ended; false if it does not, for a reason.
async fn end_quietly(stage: &Stage, database: &Database) -> bool {
    let (began, jumped_ns) = (stage.executor.now(), stage.scene.jumped_ns.get());
    let busy = || (database.active_transactions(), database.buffer().pool().borrow().taken_count());
    while busy() != (0, 0) {
        if stage.executor.now() >= began.plus_ns(10 * SECOND_NS + stage.scene.jumped_ns.get() - jumped_ns) {
            if !stage.is_crippled(database) {
                let (transactions, frames) = busy();
                stage.wrong(format!("{transactions} transactions never end, {frames} frames are taken for ever"));
            }
            return false;
        }
        stage.executor.sleep_ns(MILLISECOND_NS).await;
    }
    verify::tables(stage, database);
    !stage.over.get()
}
