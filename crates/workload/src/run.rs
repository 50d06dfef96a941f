//! Running a workload: clients, arrivals, warm-up, measurement.

mod clients;
mod measured;
mod servers;
mod stations;
mod steady;

pub use measured::{Measured, TypeMeasured};
pub use stations::{Saturation, check_little};
pub use steady::{Steady, WarmUp, Window};

use base::Instant;
use base::Random;
use base::statistics::{BatchMeans, Histogram};
use base::time::SECOND_NS;
use engine::canary::{self, Canary};
use engine::server::TransactionServer;
use engine::{Database, Error, Internals, Prefetcher, Result, Transaction};
use executor::WholeExecutor;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How transactions arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// A number of clients, each with one transaction at a time and no time to think.
    Closed {
        /// Their number.
        clients: u32,
    },
    /// As many requests as the transaction server's queue takes, at any time (Garcia-Molina and Salem 1988, section 4.3: "the
    /// request rate is limited only by the size of the request queue").
    Full,
    /// At random (a Poisson process) with this rate per second, whether or not earlier ones are done.
    Open {
        /// Arrivals per second of the run's clock.
        rate_per_s: f64,
    },
}

/// How long a part of a run lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Exactly this number of transactions. Clients begin no others, and all have ended before the next part begins, so that
    /// the engine's counters belong to them alone. Arrivals at a rate behind a warm-up are measured in their steady state: they
    /// go on until this number have ended.
    Transactions(u64),
    /// This number of nanoseconds of the run's clock. Transactions under way at its beginning and its end belong to it in part.
    Time(u64),
}

impl Length {
    /// This length divided by `parts`.
    pub fn share(self, parts: u64) -> Length {
        match self {
            Length::Transactions(count) => Length::Transactions(count / parts),
            Length::Time(ns) => Length::Time(ns / parts),
        }
    }

    /// The `number`th of `parts` of nearly equal length, counted from 1; together they are this length.
    fn part(self, number: u64, parts: u64) -> Length {
        let end = |all: u64, number: u64| (u128::from(all) * u128::from(number) / u128::from(parts)) as u64;
        let part = |all| end(all, number) - end(all, number - 1);
        match self {
            Length::Transactions(count) => Length::Transactions(part(count)),
            Length::Time(ns) => Length::Time(part(ns)),
        }
    }
}

/// A run's plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How transactions arrive.
    pub load: Load,
    /// What is cut off.
    pub warm_up: Length,
    /// What is measured.
    pub measure: Length,
    /// Seeds arrivals and transactions.
    pub seed: u64,
}

/// What the caller of a run hears and knows that the run does not.
pub trait Watch {
    /// Reports how many transactions of the measured part are done.
    fn progress(&mut self, transactions: u64, elapsed_ns: u64);

    /// Hears of each part of the warm-up, which are as long as the plan says, and answers whether the run is to be measured now.
    fn is_warm(&mut self, _window: Window) -> bool {
        true
    }

    /// CPU time of the engine's thread so far, in nanoseconds; zero where the machine is described.
    fn cpu_ns(&self) -> u64;

    /// CPU time of the whole process so far, in nanoseconds; zero where the machine is described.
    fn process_cpu_ns(&self) -> u64;

    /// Wall time, in nanoseconds since any moment.
    fn wall_ns(&self) -> u64;
}

/// Without a watch: there is no progress to show, and no clock but the engine's.
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: u64, _: u64) {}

    fn cpu_ns(&self) -> u64 {
        0
    }

    fn process_cpu_ns(&self) -> u64 {
        0
    }

    fn wall_ns(&self) -> u64 {
        0
    }
}

/// A kind of transaction.
pub trait Workload: 'static {
    /// What one transaction is about.
    type Input;

    /// Draws the next transaction.
    fn draw(&self, random: &mut Random) -> Self::Input;

    /// Asks for the memory that a transaction which is about to begin will need first, if that helps.
    fn prefetch(&self, _memory: &Prefetcher<'_>, _input: &Self::Input) {}

    /// Runs it.
    ///
    /// # Errors
    /// The engine's.
    fn run(&self, tx: &mut Transaction, input: &Self::Input) -> impl Future<Output = Result<()>>;

    /// The names of the types of its transactions, if they are to be reported one by one.
    fn types(&self) -> Vec<String> {
        Vec::new()
    }

    /// Which of [`Workload::types`] this one is.
    fn type_of(&self, _input: &Self::Input) -> usize {
        0
    }

    /// Whether its transactions are counted beforehand, as those of a trace are: then no more begin than the plan asks for,
    /// at whatever rate they arrive.
    fn is_counted(&self) -> bool {
        false
    }

    /// The registered procedures that run its transactions at a transaction server, or where the log of sets has calls of
    /// procedures; none if there are none.
    fn procedures(&self) -> Vec<String> {
        Vec::new()
    }

    /// Writes the transaction's parameters into the empty `parameters`. Returns which of [`Workload::procedures`] takes them.
    fn request(&self, _input: &Self::Input, _parameters: &mut Vec<u8>) -> usize {
        unreachable!("a workload without procedures is not asked for requests")
    }
}

/// A run is saturated once this number of transactions have arrived and not ended, or this number of seconds' worth of arrivals
/// if that is more.
const UNFINISHED_MAX: f64 = 2_000.0;
const UNFINISHED_MAX_S: f64 = 5.0;
/// A run is saturated, too, if the unfinished transactions grew by more than this share of its arrivals, and by more than an
/// absolute number.
const GROWTH_MAX: f64 = 0.05;
const GROWTH_MIN: usize = 100;

/// What clients share.
struct Shared<W> {
    database: Database,
    /// What the transactions go through, if not straight to the database.
    server: Option<TransactionServer>,
    workload: W,
    /// The procedures that are called instead of running its transactions, where the log has their calls; else none.
    calls: Vec<String>,
    plan: Plan,
    /// How long the present part is.
    part: Cell<Length>,
    /// How many transactions may still begin; arrivals at a rate excepted.
    permits: Cell<u64>,
    /// Told when more may begin.
    permitted: executor::WaitQueue,
    completed: Cell<u64>,
    /// When the last transaction of the present part ended, if all have.
    ended: Cell<Option<Instant>>,
    /// Transactions that ended behind it: those of the next part. Their types, arrivals and ends.
    late: RefCell<Vec<(usize, Instant, Instant)>>,
    measuring: Cell<bool>,
    finished: Cell<bool>,
    /// Transactions of clients and requests to a server that have begun and not ended.
    active: Cell<usize>,
    /// Clients, or arrivals with their transactions, that have not ended.
    running: Cell<usize>,
    /// When the present part began, and when it ends if its length is a time.
    began: Cell<Instant>,
    deadline: Cell<Instant>,
    response: RefCell<Histogram>,
    means: RefCell<BatchMeans>,
    types: RefCell<Vec<TypeMeasured>>,
    failure: RefCell<Option<Error>>,
    /// How many may be unfinished before the present part of the run ends.
    unfinished_max: Cell<usize>,
    /// Whether more were in any part.
    overflowed: Cell<bool>,
    /// How many had not ended when the last of all came, where their number is limited.
    unfinished_at_last: Cell<usize>,
    /// Told when a part of the run ends.
    part_ended: executor::WaitQueue,
}

/// Runs the workload by the plan. `at_end` hears what was measured while the database's counters still stand as they did at
/// the end; what is under way then is waited for, so that no transaction of the run goes on behind the caller's back.
///
/// # Errors
/// The first that a transaction met, deadlocks excepted.
///
/// ```
/// # use engine::{Database, PartitionSpec, Settings};
/// # use executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// use entresol_workload::debit_credit::{self, DebitCredit, HISTORY, Scale, Tables, totals};
/// use entresol_workload::{Length, Load, Plan, Unwatched, run};
///
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
/// # let done = executor.run(async {
/// # let database = Database::create(&executor, Settings::default()).await?;
/// let scale = Scale { accounts_per_branch: 100, ..Scale::tpc_b(2) };
/// let spec = |name: &str| Ok(if name == HISTORY { PartitionSpec::append(name) } else { PartitionSpec::b_tree(name) });
/// debit_credit::load(&database, &scale, spec, |_| {}).await?;
///
/// let plan = Plan {
///     load: Load::Closed { clients: 8 },
///     warm_up: Length::Transactions(100),
///     measure: Length::Transactions(1_000),
///     seed: 1,
/// };
/// let workload = DebitCredit(Tables::of(database.catalog(), &scale)?);
/// let measured = run::run(&database, workload, &plan, &mut Unwatched, |measured| measured).await?;
/// assert_eq!(measured.transactions, 1_000);
/// assert!(measured.response.mean_ns() > 0.0);
/// assert!(totals(&database, &Tables::of(database.catalog(), &scale)?).await?.agree());
/// # Ok::<(), engine::Error>(())
/// # });
/// # executor.stop();
/// # done.expect("the machine goes on").expect("the run ends");
/// ```
pub async fn run<W: Workload, T>(
    database: &Database,
    workload: W,
    plan: &Plan,
    watch: &mut impl Watch,
    at_end: impl FnOnce(Measured) -> T,
) -> Result<T> {
    let mut at_end = Some(at_end);
    let once = |measured| at_end.take().expect("one batch ends once")(measured);
    let mut answers = run_in_batches(database, workload, plan, 1, watch, once).await?;
    Ok(answers.pop().expect("a run that has not failed has measured"))
}

/// As [`run`], with the measured part cut into this many batches of equal length, of which each is measured for itself: their
/// figures are nearly independent, so their spread gives every figure a confidence interval (the method of batch means, Law
/// and Carson 1979). A saturated run may end before its last batch.
///
/// # Errors
/// As [`run`].
pub async fn run_in_batches<W: Workload, T>(
    database: &Database,
    workload: W,
    plan: &Plan,
    batches: u32,
    watch: &mut impl Watch,
    at_end: impl FnMut(Measured) -> T,
) -> Result<Vec<T>> {
    measure((database, None), workload, (plan, batches), watch, at_end).await
}

/// As [`run_in_batches`], through a transaction server: a message server submits requests and takes the responses. With
/// [`Load::Closed`] it keeps as many requests under way as there are clients. Response times are those of section 4.3: from
/// the submission to the moment at which the message server takes the response.
///
/// # Errors
/// As [`run_in_batches`]; [`Error::Argument`] if the workload has no procedures, [`Error::Setting`] if it arrives at a rate.
pub async fn run_through<W: Workload, T>(
    server: &TransactionServer,
    workload: W,
    plan: &Plan,
    batches: u32,
    watch: &mut impl Watch,
    at_end: impl FnMut(Measured) -> T,
) -> Result<Vec<T>> {
    measure((server.database(), Some(server)), workload, (plan, batches), watch, at_end).await
}

async fn measure<W: Workload, T>(
    (database, server): (&Database, Option<&TransactionServer>),
    workload: W,
    (plan, batches): (&Plan, u32),
    watch: &mut impl Watch,
    mut at_end: impl FnMut(Measured) -> T,
) -> Result<Vec<T>> {
    let executor = database.executor().whole().clone();
    let batches = match plan.measure {
        Length::Transactions(count) => u64::from(batches).min(count),
        Length::Time(_) => u64::from(batches),
    };
    let batches = batches.max(1);
    let shared = Rc::new(Shared::new((database, server), workload, plan));
    shared.permit(plan.warm_up).await;
    shared.begin_part(plan.warm_up);
    shared.begin_load()?;
    shared.warm_up(watch).await?;
    shared.permit(plan.measure).await;
    shared.measuring.set(true);
    let unfinished = shared.running.get();
    // A run whose warm-up was cut off still measures what the saturated machine does.
    shared.unfinished_max.set(shared.unfinished_max.get().max(unfinished.saturating_mul(3) / 2));
    let mut answers = Vec::new();
    let mut completed = 0;
    for batch in 1..=batches {
        restart_statistics(database);
        server.inspect(|server| server.restart_statistics());
        let length = plan.measure.part(batch, batches);
        shared.begin_part(length);
        // The process's time is read around the thread's, so that it is never the smaller one.
        let (wall, process_cpu, cpu) = (watch.wall_ns(), watch.process_cpu_ns(), watch.cpu_ns());
        let result = shared.wait_for_end(length, watch).await;
        let (cpu, process_cpu, wall) =
            (watch.cpu_ns() - cpu, watch.process_cpu_ns() - process_cpu, watch.wall_ns() - wall);
        result?;
        let elapsed_ns = shared.ended.get().unwrap_or_else(|| executor.now()).since_ns(shared.began.get());
        completed += shared.completed.get();
        let is_last = batch == batches || shared.running.get() > shared.unfinished_max.get();
        if is_last {
            shared.finish();
        }
        let measured = Measured {
            transactions: shared.completed.get(),
            elapsed_ns,
            wall_ns: wall,
            cpu_ns: cpu,
            process_cpu_ns: process_cpu,
            response: shared.response.take(),
            means: shared.means.take(),
            types: shared.types.replace(Shared::types(&shared.workload)),
            stations: executor.stations(),
            caches: executor.caches(),
            events: executor.events(),
            thread_use: executor.thread_use(),
            server: server.map(TransactionServer::report),
            saturated: if is_last { shared.saturation(unfinished, completed, elapsed_ns) } else { None },
        };
        if let Err(error) = check_little(&measured.stations) {
            shared.finish();
            return Err(error);
        }
        answers.push(at_end(measured));
        if is_last {
            break;
        }
    }
    while shared.running.get() > 0 {
        shared.part_ended.wait(&executor).await;
    }
    Ok(answers)
}

/// Forgets what the database and its devices have counted so far: the end of a warm-up.
pub fn restart_statistics(database: &Database) {
    database.statistics().restart();
    database.locks().restart_statistics();
    database.log().restart_statistics();
    database.buffer().restart_statistics();
    database.executor().whole().restart_statistics();
}

impl<W: Workload> Shared<W> {
    fn new((database, server): (&Database, Option<&TransactionServer>), workload: W, plan: &Plan) -> Shared<W> {
        let mut calls = workload.procedures();
        if !calls.iter().all(|name| database.logs_calls_of(name)) {
            calls.clear();
        }
        Shared {
            database: database.clone(),
            server: server.cloned(),
            calls,
            types: RefCell::new(Shared::types(&workload)),
            workload,
            plan: *plan,
            part: Cell::new(plan.warm_up),
            permits: Cell::new(0),
            permitted: executor::WaitQueue::new(),
            completed: Cell::new(0),
            ended: Cell::new(None),
            late: RefCell::default(),
            measuring: Cell::new(false),
            finished: Cell::new(false),
            active: Cell::new(0),
            running: Cell::new(0),
            began: Cell::new(Instant::START),
            deadline: Cell::new(Instant::NEVER),
            response: RefCell::new(Histogram::new()),
            means: RefCell::new(BatchMeans::new()),
            failure: RefCell::new(None),
            unfinished_max: Cell::new(usize::MAX),
            overflowed: Cell::new(false),
            unfinished_at_last: Cell::new(0),
            part_ended: executor::WaitQueue::new(),
        }
    }

    fn types(workload: &W) -> Vec<TypeMeasured> {
        workload.types().into_iter().map(TypeMeasured::new).collect()
    }

    /// Starts the clients, or the source of arrivals.
    fn begin_load(self: &Rc<Self>) -> Result<()> {
        match self.plan.load {
            load if let Some(server) = &self.server => servers::begin(self, server, load)?,
            Load::Full => {
                let why =
                    "a request queue is kept full only where there is a transaction server: describe it in [server]";
                return Err(Error::Setting(why.into()));
            }
            Load::Closed { clients } => {
                for client in 0..clients {
                    self.spawn(async move |shared| shared.client(client).await);
                }
            }
            Load::Open { rate_per_s } => {
                self.unfinished_max.set((rate_per_s * UNFINISHED_MAX_S).max(UNFINISHED_MAX) as usize);
                self.spawn(async move |shared| shared.arrivals(rate_per_s).await);
            }
        }
        Ok(())
    }

    /// Starts a task that the run waits for at its end.
    fn spawn(self: &Rc<Self>, task: impl AsyncFnOnce(Rc<Self>) + 'static) {
        self.database.executor().spawn(self.followed(task));
    }

    /// The same, in a group of tasks.
    fn spawn_in(self: &Rc<Self>, group: executor::Group, task: impl AsyncFnOnce(Rc<Self>) + 'static) {
        self.database.executor().whole().spawn_in(group, 0, self.followed(task));
    }

    fn followed(self: &Rc<Self>, task: impl AsyncFnOnce(Rc<Self>) + 'static) -> impl Future<Output = ()> + 'static {
        let shared = Rc::clone(self);
        self.running.set(self.running.get() + 1);
        async move {
            task(Rc::clone(&shared)).await;
            shared.running.set(shared.running.get() - 1);
            if shared.finished.get() {
                shared.part_ended.wake_all(shared.database.executor().whole());
            }
        }
    }

    /// Has as many transactions begin as `length` says, in as many parts as may be. Where they are counted, those before have
    /// all ended by then: what the engine counts from now on is not theirs.
    async fn permit(&self, length: Length) {
        let open = matches!(self.plan.load, Load::Open { .. });
        match length {
            Length::Transactions(count) if !open => {
                self.permits.set(0);
                while self.active.get() > 0 && !self.finished.get() {
                    self.part_ended.wait(self.database.executor().whole()).await;
                }
                self.permits.set(count + u64::from(canary::is_planted(Canary::Overrun)));
            }
            _ => self.permits.set(u64::MAX),
        }
    }

    /// Whether another transaction may begin at this moment; it counts as begun.
    fn take_permit(&self, now: Instant) -> bool {
        let permits = self.permits.get();
        if self.finished.get() || permits == 0 || now >= self.deadline.get() {
            return false;
        }
        self.permits.set(permits - u64::from(permits != u64::MAX));
        self.active.set(self.active.get() + 1);
        true
    }

    fn begin_part(&self, length: Length) {
        let executor = self.database.executor().whole();
        let now = executor.now();
        self.part.set(length);
        self.completed.set(0);
        self.began.set(now);
        self.deadline.set(match length {
            Length::Transactions(_) => Instant::NEVER,
            Length::Time(ns) => now.plus_ns(ns),
        });
        self.ended.set((length == Length::Transactions(0)).then_some(now));
        for (kind, arrival, end) in self.late.take() {
            self.count(kind, arrival, end);
        }
        self.permitted.wake_all(executor);
    }

    /// No transaction begins any more.
    fn finish(&self) {
        self.finished.set(true);
        self.permitted.wake_all(self.database.executor().whole());
    }

    /// Waits until the present part of the run is over, showing progress on the way.
    async fn wait_for_end(&self, length: Length, watch: &mut impl Watch) -> Result<()> {
        let executor = self.database.executor().whole();
        loop {
            if let Some(error) = self.failure.take() {
                self.finish();
                return Err(error);
            }
            let elapsed = executor.now().since_ns(self.began.get());
            let over = match length {
                Length::Transactions(_) => self.ended.get().is_some(),
                Length::Time(ns) => elapsed >= ns,
            };
            let overflows = self.running.get() > self.unfinished_max.get();
            self.overflowed.set(self.overflowed.get() || overflows);
            if self.measuring.get() {
                watch.progress(self.completed.get(), elapsed);
            }
            if over || overflows {
                return Ok(());
            }
            match length {
                Length::Transactions(_) => self.part_ended.wait(executor).await,
                Length::Time(ns) => executor.sleep_ns((ns - elapsed).min(SECOND_NS / 10)).await,
            }
        }
    }

    /// What limited the run, if it was saturated. `before` transactions were unfinished before the measured part and
    /// `completed` ended in it; the counters are those of its last batch, which took `elapsed_ns`.
    fn saturation(&self, before: usize, completed: u64, elapsed_ns: u64) -> Option<Saturation> {
        let running = self.running.get().max(self.unfinished_at_last.get());
        let growth = running.saturating_sub(before);
        let arrivals = completed + growth as u64;
        let grew = growth > GROWTH_MIN && growth as f64 > GROWTH_MAX * arrivals as f64;
        let open = matches!(self.plan.load, Load::Open { .. });
        // One of those that run is the source of the arrivals.
        let unfinished = running.saturating_sub(1) as u64;
        (self.overflowed.get() || open && grew).then(|| Saturation::find(&self.database, unfinished, elapsed_ns))
    }

    fn fail(&self, error: Error) {
        self.failure.borrow_mut().get_or_insert(error);
        self.finish();
        self.part_ended.wake_all(self.database.executor().whole());
    }

    /// Counts a transaction that committed, in the present part or, if that has all of its transactions, in the next one.
    fn count(&self, kind: usize, arrival: Instant, now: Instant) {
        if self.ended.get().is_some() {
            self.late.borrow_mut().push((kind, arrival, now));
            return;
        }
        if self.measuring.get() {
            let response = now.since_ns(arrival);
            self.response.borrow_mut().record(response);
            self.means.borrow_mut().record(response as f64);
            if let Some(measured) = self.types.borrow_mut().get_mut(kind) {
                measured.response.record(response);
                measured.means.record(response as f64);
            }
        }
        let completed = self.completed.get() + 1;
        self.completed.set(completed);
        let over = self.part.get() == Length::Transactions(completed);
        if over {
            self.ended.set(Some(now.max(self.began.get())));
        }
        if over || completed.is_multiple_of(4096) {
            self.part_ended.wake_all(self.database.executor().whole());
        }
    }
}

#[cfg(test)]
mod tests;
