//! Debit-Credit with clients on threads of their own, which call a procedure of the engine's thread.

use super::bank;
use super::summary::{self, Headline};
use crate::progress::Progress;
use crate::report::{Clock, RunReport};
use crate::{Failure, opening};
use base::Random;
use base::statistics::{BatchMeans, Histogram};
use entresol::{DatabaseThread, Handle, Opening};
use executor::WholeExecutor;
use real_driver::{process_cpu_ns, thread_cpu_ns, wall_ns};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::Thread;
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
    let store = opening::open(opening.clone().unasked(), progress)?;
    let warnings = store.warnings();
    let scale = bank::prepare(&store, branches, progress)?;
    store.close()?;
    let known = scale.clone();
    let opening = opening::watched(opening, progress);
    let thread = DatabaseThread::start(opening.procedures(move || bank::procedures(&known)))?;
    progress.phase("reading", 0);
    let handle = thread.handle();
    handle.with_database(async |database| bank::warm(database, &bank::WARMED, |_, _| {}).await).wait()?;
    let report = Clients::new(&scale, plan).measure(&handle, progress)?;
    let report = RunReport { warnings, ..report };
    progress.phase("verifying", 0);
    bank::agreed(&handle.with_database(async move |database| bank::totals(database, &scale).await).wait()?)?;
    thread.close()?;
    Ok(report)
}

/// What the client threads share.
struct Clients<'a> {
    scale: &'a Scale,
    plan: &'a Plan,
    phase: AtomicU8,
    /// How many transactions may still begin in the present phase; `u64::MAX` where a time ends it.
    permits: AtomicU64,
    /// Told, under the lock, when there are permits again or none will come.
    permitted: (Mutex<()>, Condvar),
    /// How many transactions are done when the present phase ends, and when that was.
    target: AtomicU64,
    ended_ns: AtomicU64,
    /// The thread that leads the clients through the phases.
    leader: Thread,
    /// Transactions that are done and the sum of their response times, in any phase.
    completed: AtomicU64,
    response_ns: AtomicU64,
    failure: Mutex<Option<entresol::Error>>,
}

impl<'a> Clients<'a> {
    fn new(scale: &'a Scale, plan: &'a Plan) -> Clients<'a> {
        let (completed, response_ns) = (AtomicU64::new(0), AtomicU64::new(0));
        Clients {
            scale,
            plan,
            phase: AtomicU8::new(WARM_UP),
            permits: AtomicU64::new(0),
            permitted: (Mutex::new(()), Condvar::new()),
            target: AtomicU64::new(u64::MAX),
            ended_ns: AtomicU64::new(0),
            leader: std::thread::current(),
            completed,
            response_ns,
            failure: Mutex::new(None),
        }
    }

    /// Starts the clients, waits for the end of the run and joins them.
    fn measure(&self, handle: &Handle, progress: &Progress) -> Result<RunReport, Failure> {
        let Load::Closed { clients } = self.plan.load else { unreachable!("threads form a closed loop") };
        progress.phase("warming up", 0);
        std::thread::scope(|scope| {
            // However this thread leaves, the clients end.
            let _over = Over(self);
            let mut threads = Vec::new();
            for number in 0..clients {
                let handle = handle.clone();
                let builder = std::thread::Builder::new().name(format!("client {number}")).stack_size(STACK);
                threads.push(builder.spawn_scoped(scope, move || self.client(number, &handle))?);
            }
            let mut measured = self.watch(handle, progress)?;
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
            Ok(handle.with_database(report).wait()?)
        })
    }

    /// One client: returns the response times of the measured phase.
    fn client(&self, number: u32, handle: &Handle) -> Histogram {
        let mut random = Random::stream(self.plan.seed, &format!("client {number}"));
        let mut times = Histogram::new();
        while self.take_permit() {
            let parameters = Parameters::draw(self.scale, &mut random).to_bytes();
            let began = wall_ns();
            if let Err(error) = handle.call(PROCEDURE, &parameters).wait() {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                self.end();
                break;
            }
            let end = wall_ns();
            if self.phase.load(Ordering::Relaxed) == MEASURED {
                times.record(end - began);
            }
            self.response_ns.fetch_add(end - began, Ordering::Relaxed);
            let target = self.target.load(Ordering::Relaxed);
            if target != u64::MAX {
                self.ended_ns.fetch_max(end, Ordering::Relaxed);
            }
            // The leader that sees the last one counted sees when it ended, too.
            if self.completed.fetch_add(1, Ordering::AcqRel) + 1 == target {
                self.leader.unpark();
            }
        }
        times
    }

    /// Waits until another transaction may begin; false if none may any more.
    fn take_permit(&self) -> bool {
        let one_less = |left| if left == u64::MAX { Some(left) } else { u64::checked_sub(left, 1) };
        loop {
            if self.phase.load(Ordering::Relaxed) == OVER {
                return false;
            }
            if self.permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                return true;
            }
            let (lock, permitted) = &self.permitted;
            let none =
                |_: &mut ()| self.permits.load(Ordering::Relaxed) == 0 && self.phase.load(Ordering::Relaxed) != OVER;
            let locked = lock.lock().unwrap_or_else(PoisonError::into_inner);
            drop(permitted.wait_while(locked, none).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Lets as many transactions begin as the phase is long.
    fn permit(&self, length: Length) {
        let _locked = self.permitted.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (target, permits) = match length {
            Length::Transactions(count) => (self.completed.load(Ordering::Relaxed) + count, count),
            Length::Time(_) => (u64::MAX, u64::MAX),
        };
        self.target.store(target, Ordering::Relaxed);
        self.permits.store(permits, Ordering::Relaxed);
        self.permitted.1.notify_all();
    }

    /// No transaction begins any more.
    fn end(&self) {
        let _locked = self.permitted.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.phase.store(OVER, Ordering::Relaxed);
        self.permitted.1.notify_all();
    }

    /// Leads the clients through the phases. The response times themselves come with the clients.
    fn watch(&self, handle: &Handle, progress: &Progress) -> Result<Measured, Failure> {
        self.wait(self.plan.warm_up, |_, _| {})?;
        let engine_cpu = handle.with_database(async |database| {
            workload::run::restart_statistics(database);
            Ok(thread_cpu_ns())
        });
        let engine_cpu = engine_cpu.wait()?;
        let (wall, process_cpu) = (wall_ns(), process_cpu_ns());
        // A run that failed is over already, and shall stay so.
        let _ = self.phase.compare_exchange(WARM_UP, MEASURED, Ordering::Relaxed, Ordering::Relaxed);
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
        self.end();
        let end = match self.plan.measure {
            Length::Transactions(_) => self.ended_ns.load(Ordering::Relaxed).max(wall),
            Length::Time(_) => wall_ns(),
        };
        let (elapsed_ns, process_cpu_ns) = (end - wall, process_cpu_ns() - process_cpu);
        let end = async |database: &entresol::Database| Ok((thread_cpu_ns(), database.executor().whole().stations()));
        let (cpu, stations) = handle.with_database(end).wait()?;
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
            thread_use: driver::ThreadUse::default(),
            server: None,
            saturated: None,
        })
    }

    /// Lets the phase begin and waits until it is over. `look` is told at every look what is done, in transactions or milliseconds, and the
    /// mean response time since the look before.
    fn wait(&self, length: Length, mut look: impl FnMut(u64, f64)) -> Result<(), Failure> {
        let counts = || (self.completed.load(Ordering::Acquire), self.response_ns.load(Ordering::Relaxed));
        let (began, first) = (wall_ns(), counts());
        let mut before = first;
        self.permit(length);
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
            // The last client unparks this thread; else it is a sleep that the fence against sleeping tasks does not mean.
            std::thread::park_timeout(left.min(LOOK));
        }
    }
}

/// Ends the run when dropped.
struct Over<'a, 'b>(&'a Clients<'b>);

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
