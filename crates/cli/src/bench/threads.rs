//! Debit-Credit with clients on threads of their own, which call a procedure of the engine's thread.

use super::bank;
use super::summary::{self, Headline};
use crate::progress::Progress;
use crate::report::{Clock, RunReport};
use crate::{Failure, opening};
use base::Random;
use base::statistics::{BatchMeans, Histogram};
use entresol::{Handle, Opening, Server};
use real_driver::{process_cpu_ns, thread_cpu_ns, wall_ns};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use workload::debit_credit::{PROCEDURE, Parameters, Scale};
use workload::{Length, Load, Measured, Plan};

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// How often the measuring thread looks.
const LOOK: Duration = Duration::from_millis(10);
/// Each thread has a histogram of its own.
const THREADS_MAX: u32 = 1024;
/// A client's stack in bytes: it holds one call.
const STACK: usize = 128 << 10;

/// Loads the database if it is new, warms up, measures.
pub fn run(opening: Opening, branches: Option<u32>, plan: &Plan, progress: &Progress) -> Result<RunReport, Failure> {
    if opening.configuration().hardware.is_some() {
        return Err("--threads needs this machine's clock, but the configuration names hardware".into());
    }
    if matches!(plan.load, Load::Closed { clients } if clients > THREADS_MAX) {
        return Err(format!("--threads makes at most {THREADS_MAX} clients").into());
    }
    let store = opening::open(opening.clone(), progress)?;
    let warnings = store.warnings();
    let scale = bank::prepare(&store, branches, progress)?;
    store.close()?;
    let known = scale.clone();
    let server = Server::start(opening, move || bank::procedures(&known))?;
    progress.phase("reading", 0);
    server.handle().with_database(async |database| bank::warm(database, |_, _| {}).await)?;
    let report = Clients::new(&scale, plan).measure(&server, progress)?;
    let report = RunReport { warnings, ..report };
    progress.phase("verifying", 0);
    bank::agreed(&server.handle().with_database(async move |database| bank::totals(database, &scale).await)?)?;
    server.close()?;
    Ok(report)
}

/// What the client threads share.
struct Clients<'a> {
    scale: &'a Scale,
    plan: &'a Plan,
    phase: AtomicU8,
    /// Transactions that are done and the sum of their response times, in any phase.
    completed: AtomicU64,
    response_ns: AtomicU64,
    failure: Mutex<Option<entresol::Error>>,
}

impl<'a> Clients<'a> {
    fn new(scale: &'a Scale, plan: &'a Plan) -> Clients<'a> {
        let (completed, response_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Clients { scale, plan, phase: AtomicU8::new(WARM_UP), completed, response_ns, failure: Mutex::new(None) }
    }

    /// Starts the clients, waits for the end of the run and joins them.
    fn measure(&self, server: &Server, progress: &Progress) -> Result<RunReport, Failure> {
        let Load::Closed { clients } = self.plan.load else { unreachable!("threads form a closed loop") };
        progress.phase("warming up", 0);
        std::thread::scope(|scope| {
            // However this thread leaves, the clients end.
            let _over = Over(self);
            let mut threads = Vec::new();
            for number in 0..clients {
                let handle = server.handle();
                let builder = std::thread::Builder::new().name(format!("client {number}")).stack_size(STACK);
                threads.push(builder.spawn_scoped(scope, move || self.client(number, &handle))?);
            }
            let mut measured = self.watch(&server.handle(), progress)?;
            for thread in threads {
                let times = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                measured.response.merge(&times);
            }
            measured.transactions = measured.response.count();
            let headline = Headline {
                workload: format!("debit-credit, scale {}, {clients} client threads", self.scale.branches),
                seed: self.plan.seed,
                clock: Clock::Real,
                warnings: Vec::new(),
            };
            let report = async move |database: &entresol::Database| Ok(summary::report(database, headline, &measured));
            Ok(server.handle().with_database(report)?)
        })
    }

    /// One client: returns the response times of the measured phase.
    fn client(&self, number: u32, handle: &Handle) -> Histogram {
        let mut random = Random::stream(self.plan.seed, &format!("client {number}"));
        let mut times = Histogram::new();
        while self.phase.load(Ordering::Relaxed) != OVER {
            let parameters = Parameters::draw(self.scale, &mut random).to_bytes();
            let began = wall_ns();
            if let Err(error) = handle.call(PROCEDURE, &parameters) {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                self.phase.store(OVER, Ordering::Relaxed);
                break;
            }
            let response = wall_ns() - began;
            self.completed.fetch_add(1, Ordering::Relaxed);
            self.response_ns.fetch_add(response, Ordering::Relaxed);
            if self.phase.load(Ordering::Relaxed) == MEASURED {
                times.record(response);
            }
        }
        times
    }

    /// Leads the clients through the phases. The response times themselves come with the clients.
    fn watch(&self, handle: &Handle, progress: &Progress) -> Result<Measured, Failure> {
        self.wait(self.plan.warm_up, |_, _| {})?;
        let engine_cpu = handle.with_database(async |database| {
            workload::run::restart_statistics(database);
            Ok(thread_cpu_ns())
        })?;
        let (wall, process_cpu) = (wall_ns(), process_cpu_ns());
        self.advance(WARM_UP, MEASURED);
        let total = match self.plan.measure {
            Length::Transactions(count) => count,
            Length::Time(ns) => ns / 1_000_000,
        };
        progress.phase("measuring", total);
        let mut means = BatchMeans::new();
        self.wait(self.plan.measure, |done, mean_ns| {
            progress.advance_to(done);
            means.record(mean_ns);
        })?;
        self.advance(MEASURED, OVER);
        let (elapsed_ns, process_cpu_ns) = (wall_ns() - wall, process_cpu_ns() - process_cpu);
        let end = async |database: &entresol::Database| Ok((thread_cpu_ns(), database.executor().stations()));
        let (cpu, stations) = handle.with_database(end)?;
        workload::run::check_little(&stations)?;
        Ok(Measured {
            transactions: 0,
            elapsed_ns,
            wall_ns: elapsed_ns,
            cpu_ns: cpu - engine_cpu,
            process_cpu_ns,
            response: Histogram::new(),
            means,
            types: Vec::new(),
            stations,
            caches: Vec::new(),
            events: Vec::new(),
            server: None,
            saturated: None,
        })
    }

    /// Goes to the next phase unless a failure ended the run already.
    fn advance(&self, from: u8, to: u8) {
        // A failed exchange means that the run is over, which is where it shall stay.
        let _ = self.phase.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Waits until the phase is over. `look` is told at every look what is done, in transactions or milliseconds, and the
    /// mean response time since the look before.
    fn wait(&self, length: Length, mut look: impl FnMut(u64, f64)) -> Result<(), Failure> {
        let counts = || (self.completed.load(Ordering::Relaxed), self.response_ns.load(Ordering::Relaxed));
        let (began, first) = (wall_ns(), counts());
        let mut before = first;
        loop {
            if let Some(error) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error.into());
            }
            let (elapsed, now) = (wall_ns() - began, counts());
            let (done, over, left) = match length {
                Length::Transactions(count) => (now.0 - first.0, now.0 - first.0 >= count, LOOK),
                Length::Time(ns) => {
                    (elapsed / 1_000_000, elapsed >= ns, Duration::from_nanos(ns.saturating_sub(elapsed)))
                }
            };
            if now.0 > before.0 {
                look(done, (now.1 - before.1) as f64 / (now.0 - before.0) as f64);
                before = now;
            }
            if over {
                return Ok(());
            }
            // Nobody unparks this thread: it is a sleep that the fence against sleeping tasks does not mean.
            std::thread::park_timeout(left.min(LOOK));
        }
    }
}

/// Ends the run when dropped.
struct Over<'a, 'b>(&'a Clients<'b>);

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        self.0.phase.store(OVER, Ordering::Relaxed);
    }
}
