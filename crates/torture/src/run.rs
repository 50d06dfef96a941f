//! One run of an instance: the database is opened, compared with the oracle, used, and ended in some way.

use crate::abandon::at_most;
use crate::adversary::{Adversary, Observed, Phase};
use crate::cache_change::CacheChanges;
use crate::configuration::{LOG_DEVICES, undone_first_max};
use crate::context::{After, RunContext};
use crate::coverage::pairs;
use crate::damage::{self, Damage, Damages};
use crate::history::{Anomaly, History};
use crate::lost_end::LogEnd;
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::procedure::procedures;
use crate::{
    ClientEvent, Configuration, Step, backups, closing, debit_credit, isolation, lost_end, partitions, records, spill,
    unlocked, verify,
};
use base::Random;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::{Halt, Op};
use engine::canary::{self, Canary};
use engine::log::{Acknowledged, Log};
use engine::server::{self, TransactionServer};
use engine::{Asked, Database, Error, Internals, Machine, PartitionSpec, Result, Settings, log, second_level};
use executor::{Executor, Order};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use virtual_driver::{FaultPlan, Media, Options, VirtualDriver};

/// What lasts from run to run.
pub struct World {
    /// The scenario's seed.
    pub seed: u64,
    /// What the seed stands for.
    pub configuration: Rc<Configuration>,
    /// The devices' contents.
    pub media: Media,
    /// What is known of them.
    pub oracle: Rc<RefCell<Oracle>>,
    /// What was damaged on them.
    pub damages: Damages,
    /// What the run before ran on, if its database was dropped. Nothing of it is under way any more, or so it should be.
    pub left: Option<Executor>,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Clients work.
    Work,
    /// No client works; everything is compared and checked.
    Inspection,
}

/// How a run ended.
pub struct RunOutcome {
    /// What is wrong with the engine.
    pub wrong: Vec<String>,
    /// Whether damage was reported as it should be.
    pub detected: bool,
    /// Whether what the clients know is not what is there any more, which damage explains.
    pub is_astray: bool,
    /// What the adversary tells.
    pub observed: Rc<Observed>,
    /// What it ran on, if its database was dropped.
    pub left: Option<Executor>,
}

/// How long clients may take, besides drops that give up, in virtual nanoseconds.
pub const WORK_MAX_NS: u64 = 60 * SECOND_NS;

/// How often the creation of a partition is tried: more often than operations fail in a run.
const CREATIONS_MAX: u64 = 5;

/// Performs one run.
pub fn run(world: &World, run: u64, plan: Plan, purpose: Purpose) -> RunOutcome {
    let is_end_lost = lost_end::take_back(world);
    let observed = Rc::new(Observed { damages: Rc::clone(&world.damages), ..Observed::default() });
    let wrong = Rc::new(RefCell::new(Vec::new()));
    let (detected, is_astray) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let reopened_after = plan.reopened_after;
    let fails_loads = plan.fails_loads;
    let creation_fails = plan.injuries.iter().any(|(target, _)| target.step == Step::Create);
    let answer_ns_max = plan.answer_ns_max;
    let machine = Machine(machine(world, run, plan, &observed));
    let executor = machine.0.clone();
    let limit = answer_ns_max.map(|limit_ns| machine.limit_answers(limit_ns));
    let context = Rc::new(RunContext {
        executor: executor.clone(),
        media: world.media.clone(),
        configuration: Rc::clone(&world.configuration),
        oracle: Rc::clone(&world.oracle),
        observed: Rc::clone(&observed),
        wrong: Rc::clone(&wrong),
        detected: Rc::clone(&detected),
        is_astray: Rc::clone(&is_astray),
        limit,
        is_closing: Cell::new(false),
        over: Cell::new(false),
        working: Cell::new(0),
        run,
        seed: world.seed,
        creation_fails,
        fails_loads,
        reopened_after,
        log: RefCell::new(None),
        refused_ns: Cell::new(0),
        throttled: backups::ThrottledTime::default(),
    });
    if is_end_lost {
        context.event(ClientEvent::EndLost);
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        let result = executor.run(use_database(&context, purpose));
        drop(machine);
        // With the planted bug nothing else stops what a cut has ended.
        if !observed.is_dropped.get() {
            executor.stop();
        }
        result
    }));
    match result {
        Ok(Ok(()) | Err(Halt::PowerCut)) => {}
        Ok(Err(Halt::Unanswered)) => match context.judge_silence() {
            Ok(()) => context.event(ClientEvent::SilenceEnded),
            Err(what) => wrong.borrow_mut().push(what),
        },
        Ok(Err(Halt::Idle)) if observed.is_deaf.get() || observed.is_dropped.get() => {}
        Ok(Err(Halt::Idle)) => wrong.borrow_mut().push("all tasks wait for ever".to_owned()),
        Ok(Err(halt)) => wrong.borrow_mut().push(format!("the run ends with {halt:?}")),
        Err(panic) => {
            wrong.borrow_mut().push(format!("panic: {}", message(&*panic)));
            // The state after a panic cannot be destroyed safely.
            std::mem::forget((executor.clone(), context));
        }
    }
    let mut wrong = wrong.take();
    damage::look_at(&mut observed.damages.borrow_mut(), &world.media);
    let (anomalies, has_more) = anomalies(&world.oracle.borrow().history, &observed.damages.borrow());
    wrong.extend(anomalies.iter().take(3).map(ToString::to_string));
    detected.set(detected.get() || has_more);
    let left = (observed.is_dropped.get() && !observed.is_cut.get()).then_some(executor);
    RunOutcome { wrong, detected: detected.get(), is_astray: is_astray.get(), observed, left }
}

/// What should not have happened, and whether there is more of it that damage explains: what depends on partitions, or on a log, of
/// which something older was taken for what was written.
fn anomalies(history: &History, damages: &[Damage]) -> (Vec<Anomaly>, bool) {
    let is_hit = |store: &str| damage::has_spread_to(damages, &[store]);
    if damages.iter().any(Damage::has_spread) {
        let judged = history.without(is_hit).anomalies();
        let has_more = judged.is_empty() && !history.anomalies().is_empty();
        (judged, has_more)
    } else {
        (history.anomalies(), false)
    }
}

pub(crate) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("of unknown cause").to_owned()
}

/// What a run, or a restore, takes place on.
pub(crate) fn machine(world: &World, run: u64, plan: Plan, observed: &Rc<Observed>) -> Executor {
    let hardware = world.configuration.hardware();
    let devices = hardware.devices.keys().cloned().collect();
    let page_size = world.configuration.settings.buffer.page_size as u64;
    let seed = Random::stream(world.seed, &format!("life {run}")).word();
    let keeps_cache = canary::is_planted(Canary::TrustedCache);
    let faults = Some(FaultPlan { slow: plan.slow.clone(), keeps_cache, ..FaultPlan::default() });
    let options = Options { seed, faults, jitter: world.configuration.jitter, discard: Vec::new() };
    let driver = VirtualDriver::new(hardware, options, world.media.clone());
    observed.earlier.replace(world.left.clone());
    let adversary =
        Adversary::new(driver, (devices, page_size), plan, Random::stream(seed, "adversary"), Rc::clone(observed));
    let order = if world.configuration.shuffled { Order::Seeded(seed) } else { Order::FirstInFirstOut };
    Executor::new(Box::new(adversary), order)
}

async fn use_database(context: &Rc<RunContext>, purpose: Purpose) {
    if context.oracle.borrow().log_copy_lost {
        damage::expose_log(&mut context.observed.damages.borrow_mut());
    }
    // An opening may lose a copy as well, and tells it only when it has succeeded.
    context.oracle.borrow_mut().log_copy_lost |= context.configuration.settings.log.second.is_some();
    let Some(Some(database)) = context.in_time(WORK_MAX_NS, "opening", open(context)).await else { return };
    context.log.replace(Some(Rc::clone(database.log())));
    lost_end::compare(context, database.log());
    context.limit.iter().for_each(|limit| limit.opened(&database));
    let is_without = database.settings().log.without.is_some();
    let acknowledged = context.configuration.settings.log.second.as_ref().map(|second| second.acknowledged);
    context.observed.is_log_doubled.set(acknowledged == Some(Acknowledged::Both) && !is_without);
    let _copies = LogCopyWatch { context, log: Rc::clone(database.log()), is_without };
    context.observed.phase.set(Phase::Running);
    let known = async {
        prepare(context, &database).await
            && unlocked::contents(context, &database).await
            && verify::contents(context, &database).await
            && partitions::contents(context, &database).await
    };
    if context.in_time(WORK_MAX_NS, "loading and reading", known).await != Some(true) {
        return;
    }
    let mut random = context.random("acts");
    verify::structure(context, &database).await;
    if purpose == Purpose::Inspection || context.over.get() || context.is_astray.get() {
        return;
    }
    work(context, &database, &mut random).await;
    if context.over.get() || !wait_until_idle(context, &database).await {
        return;
    }
    verify::structure(context, &database).await;
    if random.chance(0.4)
        && let Some(Err(error)) = context.in_time(WORK_MAX_NS, "closing", database.close()).await
    {
        context.judge(&error, "close");
    }
}

/// Records when a run ends, in whatever way, whether a copy of the log was lost.
struct LogCopyWatch<'a> {
    context: &'a RunContext,
    log: Rc<Log>,
    /// Whether the database was opened without one of them.
    is_without: bool,
}

impl Drop for LogCopyWatch<'_> {
    fn drop(&mut self) {
        self.context.log.take();
        let files =
            if self.context.configuration.settings.log.second.is_some() { &["log", "log-2"][..] } else { &["log"] };
        let writes = self.context.observed.log_writes.borrow();
        self.context.oracle.borrow_mut().log_end = LogEnd::of(&self.log, &writes, files);
        drop(writes);
        let is_lost = self.is_without || self.log.lost_device().is_some();
        self.context.oracle.borrow_mut().log_copy_lost = is_lost;
        if is_lost {
            damage::expose_log(&mut self.context.observed.damages.borrow_mut());
        }
    }
}

/// Opens the database, or creates it if its creation was never acknowledged.
async fn open(context: &RunContext) -> Option<Database> {
    let mut settings = context.configuration.settings.clone();
    if context.random("tiers").chance(0.15) {
        // Pages in tiers must return to their files when the configuration drops the tiers.
        settings.hierarchy = second_level::Settings::default();
    }
    let random = &mut context.random("pairs");
    if random.chance(0.25) {
        (settings.logging, settings.sweep.strategy) = *random.choose(&pairs()).expect("there are some");
    }
    context.observed.pair.set((settings.logging, settings.sweep.strategy));
    let random = &mut context.random("undone first");
    if random.chance(0.5) {
        settings.undone_first_max = undone_first_max(random);
    }
    settings.log.durable = lost_end::waits_in(context);
    settings.procedures = procedures(&context.configuration);
    let created = context.oracle.borrow().created;
    settings.asked = asked(context).filter(|_| created).unwrap_or_default();
    context.observed.phase.set(if created { Phase::Opening } else { Phase::Creating });
    if let Some(polls) = context.reopened_after.filter(|_| created) {
        at_most(polls, open_or_leave_log(context, &settings)).await;
        await_operations(context).await;
    }
    let opened = match open_or_leave_log(context, &settings).await {
        Err(Error::NotADatabase { .. } | Error::Unfinished { .. }) if !created => {
            create_database(context, settings.clone()).await
        }
        opened => opened,
    };
    let opened = match opened {
        // Another one follows in the same process: nothing of this one is to come after that.
        Err(error) if created && context.random("second openings").chance(0.5) => {
            context.judge(&error, "opening");
            await_operations(context).await;
            if context.over.get() {
                return None;
            }
            context.event(ClientEvent::OpenedBehindFailure);
            open_or_leave_log(context, &settings).await
        }
        opened => opened,
    };
    match opened {
        Ok(database) => {
            if database.log().circle().origin > 0 {
                context.event(ClientEvent::LogMoved);
            }
            context.oracle.borrow_mut().created = true;
            Some(database)
        }
        Err(error @ Error::BufferExhausted { .. }) => {
            context.wrong(format!("opening: {error}"));
            None
        }
        Err(error) => {
            context.judge(&error, "opening");
            None
        }
    }
}

/// The operations of an opening that was given up, or has failed, may still change the media: a driver keeps its directory locked until
/// they have ended.
async fn await_operations(context: &RunContext) {
    while context.observed.under_way.get() > 0 {
        context.executor.sleep_ns(MILLISECOND_NS).await;
    }
}

/// Creates the database. A creation that fails leaves its devices as they were, unless more fails than that.
async fn create_database(context: &RunContext, settings: Settings) -> Result<Database> {
    if !context.creation_fails {
        return Database::create(&context.executor, settings).await;
    }
    let devices: Vec<String> = context.configuration.hardware().devices.keys().cloned().collect();
    let files = || -> Vec<Vec<String>> { devices.iter().map(|device| context.media.names(device)).collect() };
    let before = files();
    let created = Database::create_or_nothing(&context.executor, settings, &devices).await;
    if created.is_err() && context.observed.errors.get() == 1 {
        context.event(ClientEvent::NothingCreated);
        // What a creation that was cut off has left may go.
        let after = files();
        let remains = after.iter().zip(&before).any(|(after, before)| after.iter().any(|name| !before.contains(name)));
        if remains {
            context.wrong(format!("a creation that failed leaves {after:?} where {before:?} was"));
        }
    }
    created
}

/// Where the log is to be from now on, and of what size, now and then. It is never smaller than it was at first, which says what
/// fits into it.
fn asked(context: &RunContext) -> Option<Asked> {
    let random = &mut context.random("log moves");
    let size = context.configuration.settings.log.capacity;
    random.chance(0.12).then(|| Asked {
        log_device: random.chance(0.6).then(|| (*random.choose(&LOG_DEVICES).expect("there are some")).to_owned()),
        log_size: Some(if random.chance(0.5) { size } else { 2 * size }),
        ..Asked::default()
    })
}

/// Opens the database, its log as it is where that may be no time to move it: one of two devices may have no whole copy of it, and
/// behind errors and damage some of it may be needed although the database was closed.
async fn open_or_leave_log(context: &RunContext, settings: &Settings) -> Result<Database> {
    let may_refuse = || {
        let observed = &context.observed;
        let is_elsewhere = settings.log.second.is_some() || settings.log.archive.is_some();
        is_elsewhere || observed.errors.get() > 0 || !observed.damages.borrow().is_empty()
    };
    match open_or_do_without(context, settings).await {
        Err(Error::Setting(_)) if settings.asked != Asked::default() && may_refuse() => {
            open_or_do_without(context, &Settings { asked: Asked::default(), ..settings.clone() }).await
        }
        opened => opened,
    }
}

/// Opens the database, now and then without one of two log devices, unless that would not be safe.
async fn open_or_do_without(context: &RunContext, settings: &Settings) -> Result<Database> {
    let random = &mut context.random("log devices");
    // What one of them lacks is on the other.
    let is_needed = context.observed.damages.borrow().iter().any(|damage| damage.is_redundant);
    if let Some(second) = settings.log.second.as_ref().filter(|_| random.chance(0.3) && !is_needed) {
        let name = if random.chance(0.5) { &settings.log_device } else { &second.device };
        let log = log::Settings { without: Some(name.clone()), ..settings.log.clone() };
        match Database::open(&context.executor, Settings { log, ..settings.clone() }, "torture").await {
            Err(Error::LogCopyMissing { .. } | Error::Setting(_)) => {}
            opened => return opened,
        }
    }
    open_beside_leftovers(context, settings).await
}

/// Opens the database. A creation that was cut off may have left a cache's file, which names a database that never was: who runs this one takes
/// it away.
async fn open_beside_leftovers(context: &RunContext, settings: &Settings) -> Result<Database> {
    let executor = &context.executor;
    let (device, detail) = match Database::open(executor, settings.clone(), "torture").await {
        Err(Error::ForeignTier { is_wanted: false, device, detail, .. }) => (device, detail),
        opened => return opened,
    };
    let name = detail.split('\'').nth(1).expect("it names the file").to_owned();
    let device = executor.device(&device).expect("the file is there");
    executor.perform(Op::Remove { device, name }).await.result?;
    Database::open(executor, settings.clone(), "torture").await
}

/// Creates and loads what is missing; false if the run is over.
async fn prepare(context: &RunContext, database: &Database) -> bool {
    for spec in context.configuration.partitions() {
        let name = spec.name.clone();
        if database.partition(&name).is_err() {
            if context.oracle.borrow().partitions.contains(&name) {
                context.differs(&[], format!("partition '{name}' is lost"));
                return false;
            }
            if !create(context, database, &spec).await {
                return false;
            }
        }
        context.oracle.borrow_mut().partitions.insert(name);
    }
    if !context.oracle.borrow().loaded {
        if let Err(error) = load(context, database).await {
            context.judge(&error, "loading");
            return false;
        }
        if !lost_end::make_durable(context, database).await {
            return false;
        }
        context.oracle.borrow_mut().loaded = true;
    }
    true
}

/// Creates a partition, again if that fails; false if the run is over.
async fn create(context: &RunContext, database: &Database, spec: &PartitionSpec) -> bool {
    for _ in 0..CREATIONS_MAX {
        let Err(error) = database.create_partition(spec.clone()).await else { return true };
        if context.judge(&error, "creating a partition") == After::Reopen {
            return false;
        }
    }
    false
}

/// What a row holds besides its balance.
pub fn filler(row: u64) -> u8 {
    row as u8 | 0x80
}

async fn load(context: &RunContext, database: &Database) -> Result<()> {
    let configuration = &context.configuration;
    if configuration.contention.is_some() {
        return isolation::load(context, database).await;
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

/// Lets the clients work until they are done or the run is over.
async fn work(context: &Rc<RunContext>, database: &Database, random: &mut Random) {
    let configuration = &context.configuration;
    context.observed.are_clients_at_work.set(true);
    if let Some(contention) = &configuration.contention {
        for number in 0..contention.clients {
            spawn_client(context, isolation::client(Rc::clone(context), database.clone(), number));
        }
        if contention.flood.is_some() {
            spawn_client(context, isolation::flood(Rc::clone(context), database.clone()));
        }
    }
    let server = if configuration.contention.is_none() { start_server(context, database) } else { None };
    let callers = Rc::new(Cell::new(configuration.debit_clients));
    for number in 0..configuration.debit_clients {
        let client = debit_credit::client(Rc::clone(context), database.clone(), server.clone(), number);
        let (server, callers, run) = (server.clone(), Rc::clone(&callers), Rc::clone(context));
        spawn_client(context, async move {
            client.await;
            callers.set(callers.get() - 1);
            // A call that a client abandoned still runs to its end.
            if let (Some(server), 0, false) = (server, callers.get(), run.over.get()) {
                server.close().await;
            }
        });
    }
    for number in 0..configuration.record_clients {
        spawn_client(context, records::client(Rc::clone(context), database.clone(), number));
    }
    for number in 0..configuration.partition_clients {
        spawn_client(context, partitions::client(Rc::clone(context), database.clone(), number));
    }
    closing::spawn(context, database, server.as_ref());
    if configuration.crowd > 0 {
        spawn_client(context, partitions::crowd(Rc::clone(context), database.clone()));
    }
    if configuration.has_unlocked {
        spawn_client(context, unlocked::client(Rc::clone(context), database.clone()));
    }
    if configuration.spills {
        spawn_client(context, spill::client(Rc::clone(context), database.clone()));
    }
    if configuration.backups {
        spawn_client(context, backups::client(Rc::clone(context), database.clone()));
    }
    let mut cache_changes = CacheChanges::new(context);
    let began = context.executor.now();
    let deadline = || {
        let delayed_ns = context.observed.jumped_ns.get() + context.refused_ns.get();
        let backups_ns = context.throttled.ns(context.executor.now(), WORK_MAX_NS);
        began.plus_ns(WORK_MAX_NS + delayed_ns + backups_ns)
    };
    while (context.working.get() > 0 || context.is_closing.get()) && !context.over.get() {
        if context.executor.now() >= deadline() {
            // Behind a log or a sync that has failed they are told so.
            if !context.observed.is_deaf.get() {
                context.wrong(format!("{} clients wait for ever", context.working.get()));
            }
            context.over.set(true);
            return;
        }
        context.executor.sleep_ns(random.between(1, 400) * 1_000).await;
        if random.chance(0.05) {
            checkpoint_and_verify(context, database, random).await;
        }
        cache_changes.look(context, database).await;
    }
    if database.log().archive().is_some_and(|archive| archive.segments() > 0) {
        context.event(ClientEvent::LogArchived);
    }
    if database.tiers().iter().any(|tier| tier.lost.is_some()) {
        context.event(ClientEvent::CacheLost);
    }
}

/// A transaction server for the calls of every second run.
fn start_server(context: &RunContext, database: &Database) -> Option<TransactionServer> {
    let random = &mut context.random("server");
    let settings = server::Settings {
        standbys: random.below(4) as u8,
        queue: random.between(1, 4) as usize,
        retry_interval_ns: random.between(0, 500) * 1_000,
    };
    let server = random.chance(0.5).then(|| TransactionServer::start(database, settings))?;
    server.inspect_err(|error| context.wrong(format!("starting a transaction server: {error}"))).ok()
}

/// A checkpoint in the middle, perhaps abandoned; a look at the tables.
async fn checkpoint_and_verify(context: &RunContext, database: &Database, random: &mut Random) {
    let polls = if random.chance(0.5) { random.between(1, 6) } else { u64::MAX };
    let checkpoint = at_most(polls, database.checkpoint());
    if let Some(Some(Err(error))) = context.in_time(WORK_MAX_NS, "a checkpoint", checkpoint).await {
        context.judge(&error, "checkpoint");
    }
    verify::tables(context, database);
}

fn spawn_client(context: &Rc<RunContext>, client: impl Future<Output = ()> + 'static) {
    context.working.set(context.working.get() + 1);
    let context = Rc::clone(context);
    context.executor.clone().spawn(async move {
        client.await;
        context.working.set(context.working.get() - 1);
    });
}

/// Waits until what goes on in the background has ended; false if it does not, for a reason.
async fn wait_until_idle(context: &RunContext, database: &Database) -> bool {
    let (began, jumped_ns) = (context.executor.now(), context.observed.jumped_ns.get());
    let busy = || {
        let pool = database.buffer().pool().borrow();
        (database.active_transactions(), pool.taken_count(), pool.pinned_count())
    };
    while busy() != (0, 0, 0) {
        if context.executor.now() >= began.plus_ns(10 * SECOND_NS + context.observed.jumped_ns.get() - jumped_ns) {
            if !context.is_crippled(database) {
                let (transactions, frames, pinned) = busy();
                context.wrong(format!(
                    "{transactions} transactions never end, {frames} frames are taken and {pinned} pinned for ever"
                ));
            }
            return false;
        }
        context.executor.sleep_ns(MILLISECOND_NS).await;
    }
    verify::tables(context, database);
    !context.over.get()
}
