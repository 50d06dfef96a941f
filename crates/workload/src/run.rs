//! Running a workload: clients, arrivals, warm-up, measurement.

mod measured;
mod servers;
mod stations;

pub use measured::{Measured, TypeMeasured};
pub use stations::{Saturation, check_little};

use base::Instant;
use base::Random;
use base::statistics::{BatchMeans, Histogram};
use base::time::SECOND_NS;
use engine::server::TransactionServer;
use engine::{Database, Error, Result, Transaction};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How transactions arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many clients, each with one transaction at a time and no time to think.
    Closed {
        /// Their number.
        clients: u32,
    },
    /// As many requests as the transaction server's queue takes, at any time (Garcia-Molina and Salem 1988, section 4.3: "the
    /// request rate is limited only by the size of the request queue").
    Full,
    /// At random (a Poisson process), so many per second, whether or not earlier ones are done.
    Open {
        /// Arrivals per second of the run's clock.
        rate_per_s: f64,
    },
}

/// How long a part of a run lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many transactions.
    Transactions(u64),
    /// So many nanoseconds of the run's clock.
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
    /// So many transactions are done, of the measured part.
    fn progress(&mut self, transactions: u64, elapsed_ns: u64);

    /// CPU time of the engine's thread so far, in nanoseconds; zero where the machine is described.
    fn cpu_ns(&self) -> u64;

    /// CPU time of the whole process so far, in nanoseconds; zero where the machine is described.
    fn process_cpu_ns(&self) -> u64;

    /// Wall time, in nanoseconds since any moment.
    fn wall_ns(&self) -> u64;
}

/// Nobody looks: there is no progress to show, and no clock but the engine's.
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

    /// Tells the database what a transaction that is about to begin will need first ([`Database::foresee`]), if that helps.
    fn foresee(&self, _database: &Database, _input: &Self::Input) {}

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

/// From so many transactions on that have arrived and not ended, or so many seconds' worth of arrivals if that is more, a
/// run is saturated.
const UNFINISHED_MAX: f64 = 2_000.0;
const UNFINISHED_MAX_S: f64 = 5.0;
/// A run is saturated, too, if the unfinished grew by more than this share of its arrivals, and by more than so many.
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
    /// How long each batch of the measured part is.
    batch: Length,
    completed: Cell<u64>,
    measuring: Cell<bool>,
    finished: Cell<bool>,
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
/// let workload = DebitCredit(Tables::of(&database, &scale)?);
/// let measured = run::run(&database, workload, &plan, &mut Unwatched, |measured| measured).await?;
/// assert!(measured.transactions >= 1_000 && measured.response.mean_ns() > 0.0);
/// assert!(totals(&database, &Tables::of(&database, &scale)?).await?.agree());
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
/// As [`run_in_batches`]; [`Error::Setting`] if the workload has no procedures, or arrives at a rate.
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
    let executor = database.executor().clone();
    let batches = match plan.measure {
        Length::Transactions(count) => u64::from(batches).min(count),
        Length::Time(_) => u64::from(batches),
    };
    let batches = batches.max(1);
    let shared = Rc::new(Shared::new((database, server), workload, plan, batches));
    shared.begin_part(plan.warm_up);
    shared.begin_load()?;
    shared.wait_for_end(plan.warm_up, watch).await?;
    shared.measuring.set(true);
    let unfinished = shared.running.get();
    // A run whose warm-up was cut off still measures what the saturated machine does.
    shared.unfinished_max.set(shared.unfinished_max.get().max(unfinished.saturating_mul(3) / 2));
    let mut answers = Vec::new();
    let mut completed = 0;
    for batch in 1..=batches {
        restart_statistics(database);
        server.inspect(|server| server.restart_statistics());
        shared.begin_part(shared.batch);
        // The process's time is read around the thread's, so that it is never the smaller one.
        let (wall, process_cpu, cpu) = (watch.wall_ns(), watch.process_cpu_ns(), watch.cpu_ns());
        let result = shared.wait_for_end(shared.batch, watch).await;
        let (cpu, process_cpu, wall) =
            (watch.cpu_ns() - cpu, watch.process_cpu_ns() - process_cpu, watch.wall_ns() - wall);
        result?;
        let elapsed_ns = executor.now().since_ns(shared.began.get());
        completed += shared.completed.get();
        let is_last = batch == batches || shared.running.get() > shared.unfinished_max.get();
        if is_last {
            shared.finished.set(true);
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
            server: server.map(TransactionServer::report),
            saturated: if is_last { shared.saturation(unfinished, completed, elapsed_ns) } else { None },
        };
        if let Err(error) = check_little(&measured.stations) {
            shared.finished.set(true);
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
    database.locks().borrow_mut().restart_statistics();
    database.log().restart_statistics();
    database.buffer().restart_statistics();
    database.executor().restart_statistics();
}

impl<W: Workload> Shared<W> {
    fn new(
        (database, server): (&Database, Option<&TransactionServer>),
        workload: W,
        plan: &Plan,
        batches: u64,
    ) -> Shared<W> {
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
            batch: plan.measure.share(batches),
            completed: Cell::new(0),
            measuring: Cell::new(false),
            finished: Cell::new(false),
            running: Cell::new(0),
            began: Cell::new(Instant::START),
            deadline: Cell::new(Instant::NEVER),
            response: RefCell::new(Histogram::new()),
            means: RefCell::new(BatchMeans::new()),
            failure: RefCell::new(None),
            unfinished_max: Cell::new(usize::MAX),
            overflowed: Cell::new(false),
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
        self.database.executor().spawn_in(group, 0, self.followed(task));
    }

    fn followed(self: &Rc<Self>, task: impl AsyncFnOnce(Rc<Self>) + 'static) -> impl Future<Output = ()> + 'static {
        let shared = Rc::clone(self);
        self.running.set(self.running.get() + 1);
        async move {
            task(Rc::clone(&shared)).await;
            shared.running.set(shared.running.get() - 1);
            if shared.finished.get() {
                shared.part_ended.wake_all(shared.database.executor());
            }
        }
    }

    fn begin_part(&self, length: Length) {
        let now = self.database.executor().now();
        self.completed.set(0);
        self.began.set(now);
        self.deadline.set(match length {
            Length::Transactions(_) => Instant::NEVER,
            Length::Time(ns) => now.plus_ns(ns),
        });
    }

    /// Waits until the present part of the run is over, showing progress on the way.
    async fn wait_for_end(&self, length: Length, watch: &mut impl Watch) -> Result<()> {
        let executor = self.database.executor();
        loop {
            if let Some(error) = self.failure.take() {
                self.finished.set(true);
                return Err(error);
            }
            let elapsed = executor.now().since_ns(self.began.get());
            let over = match length {
                Length::Transactions(count) => self.completed.get() >= count,
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

    async fn client(self: Rc<Self>, client: u32) {
        let mut random = Random::stream(self.plan.seed, &format!("client {client}"));
        let executor = self.database.executor();
        let mut arrival = executor.now();
        while !self.finished.get() {
            let input = self.workload.draw(&mut random);
            // The next request comes when the last one is answered.
            arrival = self.one(arrival, input).await;
            // A client that never waits would keep all others, and the run's end, from their turn.
            if self.completed.get().is_multiple_of(64) {
                executor.yield_now().await;
                arrival = executor.now();
            }
        }
    }

    async fn arrivals(self: Rc<Self>, rate_per_s: f64) {
        let executor = self.database.executor().clone();
        let mut times = Random::stream(self.plan.seed, "arrivals");
        let mut inputs = Random::stream(self.plan.seed, "inputs");
        let mut next = executor.now();
        while !self.finished.get() {
            next = next.plus_ns(times.exponential(SECOND_NS as f64 / rate_per_s) as u64);
            executor.sleep_until(next).await;
            let input = self.workload.draw(&mut inputs);
            self.spawn(async move |shared| {
                shared.one(next, input).await;
            });
            if self.running.get() == self.unfinished_max.get().saturating_add(1) {
                self.part_ended.wake_all(&executor);
            }
        }
    }

    /// What limited the run, if it was saturated. So many were unfinished `before` the measured part, so many `completed` in
    /// it; the counters stand for its last batch, which took so long.
    fn saturation(&self, before: usize, completed: u64, elapsed_ns: u64) -> Option<Saturation> {
        let growth = self.running.get().saturating_sub(before);
        let arrivals = completed + growth as u64;
        let grew = growth > GROWTH_MIN && growth as f64 > GROWTH_MAX * arrivals as f64;
        let open = matches!(self.plan.load, Load::Open { .. });
        // One of those that run is the source of the arrivals.
        let unfinished = self.running.get().saturating_sub(1) as u64;
        (self.overflowed.get() || open && grew).then(|| Saturation::find(&self.database, unfinished, elapsed_ns))
    }

    /// Runs one transaction and counts it. Returns when it ended.
    async fn one(&self, arrival: Instant, input: W::Input) -> Instant {
        let kind = self.workload.type_of(&input);
        self.workload.foresee(&self.database, &input);
        let result = if self.calls.is_empty() {
            self.database.transaction(async |tx| self.workload.run(tx, &input).await).await
        } else {
            let mut parameters = Vec::new();
            let name = &self.calls[self.workload.request(&input, &mut parameters)];
            self.database.call(name, &parameters).await.map(drop)
        };
        let now = self.database.executor().now();
        match result {
            Err(error) => self.fail(error),
            Ok(()) => self.count(kind, arrival, now),
        }
        now
    }

    fn fail(&self, error: Error) {
        self.failure.borrow_mut().get_or_insert(error);
        self.finished.set(true);
        self.part_ended.wake_all(self.database.executor());
    }

    /// Counts a transaction that committed.
    fn count(&self, kind: usize, arrival: Instant, now: Instant) {
        let completed = self.completed.get() + 1;
        if self.measuring.get() {
            if now > self.deadline.get() {
                return;
            }
            let response = now.since_ns(arrival);
            self.response.borrow_mut().record(response);
            self.means.borrow_mut().record(response as f64);
            if let Some(measured) = self.types.borrow_mut().get_mut(kind) {
                measured.response.record(response);
                measured.means.record(response as f64);
            }
        }
        self.completed.set(completed);
        if self.is_over(completed) || completed.is_multiple_of(4096) {
            self.part_ended.wake_all(self.database.executor());
        }
    }

    fn is_over(&self, completed: u64) -> bool {
        let length = if self.measuring.get() { self.batch } else { self.plan.warm_up };
        matches!(length, Length::Transactions(count) if completed >= count)
    }
}
