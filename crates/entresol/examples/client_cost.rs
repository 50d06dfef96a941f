//! Debit-Credit by clients in three places, in turns on one database: tasks of the engine's thread, threads, and tasks of one
//! other thread. `cargo run --release -p entresol --example client_cost [CLIENTS [TURNS [BRANCHES [DIR [CONFIG]]]]]`.

#![allow(clippy::disallowed_methods, reason = "threads of a user's program are what is measured")]

use base::Random;
use base::units::grouped;
use entresol::configuration::Configuration;
use entresol::{Database, DatabaseThread, Error, Handle, Opening, PartitionSpec, Procedures, Result};
use real_driver::{process_cpu_ns, thread_cpu_ns, wall_ns};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use workload::debit_credit::{self, HISTORY, PROCEDURE, Parameters, Scale, Tables};

const MEASURED: Duration = Duration::from_secs(1);
const WARM_UP: Duration = Duration::from_millis(100);

/// Where clients are.
#[derive(Clone, Copy)]
enum Place {
    EngineThread,
    Threads,
    OtherThread,
}

const PLACES: [(Place, &str); 3] = [
    (Place::EngineThread, "tasks of the engine's thread"),
    (Place::Threads, "threads"),
    (Place::OtherThread, "tasks of one other thread"),
];

/// What was measured: transactions per second; of each the processor time of the engine's thread and of all others, and the wait for
/// the log, in microseconds; and transactions for each write of the log.
#[derive(Clone, Copy)]
struct Cost {
    rate: f64,
    engine_us: f64,
    others_us: f64,
    log_wait_us: f64,
    group: f64,
}

/// Readings between which costs are.
#[derive(Clone, Copy)]
struct Reading {
    done: u64,
    wall_ns: u64,
    engine_ns: u64,
    process_ns: u64,
    log_wait_ns: u64,
    log_writes: u64,
}

impl Reading {
    /// Now, on the engine's thread.
    fn take(database: &Database) -> Reading {
        let figures = database.figures();
        Reading {
            done: figures.commits,
            wall_ns: wall_ns(),
            engine_ns: thread_cpu_ns(),
            process_ns: process_cpu_ns(),
            log_wait_ns: figures.commit_wait_ns,
            log_writes: figures.log_writes,
        }
    }

    fn cost_until(self, end: Reading) -> Cost {
        let done = (end.done - self.done) as f64;
        let us = |ns: u64| ns as f64 / done / 1e3;
        let engine_ns = end.engine_ns - self.engine_ns;
        Cost {
            rate: done * 1e9 / (end.wall_ns - self.wall_ns) as f64,
            engine_us: us(engine_ns),
            others_us: us((end.process_ns - self.process_ns).saturating_sub(engine_ns)),
            log_wait_us: us(end.log_wait_ns - self.log_wait_ns),
            group: done / (end.log_writes - self.log_writes).max(1) as f64,
        }
    }
}

/// What clients outside the engine's thread share.
struct Bank {
    handle: Handle,
    scale: Scale,
    is_over: AtomicBool,
}

impl Bank {
    fn draw(&self, random: &mut Random) -> [u8; 32] {
        Parameters::draw(&self.scale, random).to_bytes()
    }

    /// The transactions of a client that is a thread.
    fn be_thread(&self, number: u64) -> Result<()> {
        let mut random = Random::stream(number, "client");
        while !self.is_over.load(Ordering::Relaxed) {
            self.handle.call(PROCEDURE, &self.draw(&mut random)).wait()?;
        }
        Ok(())
    }

    /// The same of one that is a task.
    async fn be_task(&self, number: u64) -> Result<()> {
        let mut random = Random::stream(number, "client");
        while !self.is_over.load(Ordering::Relaxed) {
            self.handle.call(PROCEDURE, &self.draw(&mut random)).await?;
        }
        Ok(())
    }
}

/// Wakes one task of a thread that runs many.
struct Bell {
    task: usize,
    woken: Arc<Mutex<Vec<usize>>>,
    thread: Thread,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let is_first = {
            let mut woken = self.woken.lock().expect("nothing panics while it is held");
            woken.push(self.task);
            woken.len() == 1
        };
        if is_first {
            self.thread.unpark();
        }
    }
}

/// Runs futures on this thread until all of them are ready: the least that a runtime does.
fn run_all(futures: Vec<impl Future<Output = Result<()>>>) -> Result<()> {
    let woken = Arc::new(Mutex::new((0..futures.len()).collect::<Vec<_>>()));
    let bell = |task| Arc::new(Bell { task, woken: Arc::clone(&woken), thread: std::thread::current() });
    let mut tasks: Vec<(Option<Pin<Box<_>>>, Waker)> =
        futures.into_iter().enumerate().map(|(task, future)| (Some(Box::pin(future)), bell(task).into())).collect();
    let (mut left, mut batch) = (tasks.len(), Vec::new());
    while left > 0 {
        std::mem::swap(&mut *woken.lock().expect("nothing panics while it is held"), &mut batch);
        if batch.is_empty() {
            std::thread::park();
        }
        for task in batch.drain(..) {
            let (future, waker) = &mut tasks[task];
            let Some(running) = future else { continue };
            if let Poll::Ready(end) = running.as_mut().poll(&mut Context::from_waker(waker)) {
                (*future, left) = (None, left - 1);
                end?;
            }
        }
    }
    Ok(())
}

/// Lets the clients run for a while, and measures.
fn measure(handle: &Handle) -> Result<Cost> {
    let read = || handle.with_database(async |database| Ok(Reading::take(database))).wait();
    std::thread::sleep(WARM_UP);
    let before = read()?;
    std::thread::sleep(MEASURED);
    Ok(before.cost_until(read()?))
}

/// Clients outside the engine's thread.
fn measure_elsewhere(handle: &Handle, scale: &Scale, clients: u32, place: Place) -> Result<Cost> {
    let bank = &Bank { handle: handle.clone(), scale: scale.clone(), is_over: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let threads: Vec<_> = match place {
            Place::Threads => (0..clients).map(|number| scope.spawn(move || bank.be_thread(number.into()))).collect(),
            _ => vec![scope.spawn(|| run_all((0..clients).map(|number| bank.be_task(number.into())).collect()))],
        };
        let cost = measure(handle);
        bank.is_over.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))?;
        cost
    })
}

/// Clients that are tasks of the engine's thread.
fn measure_at_home(handle: &Handle, scale: &Scale, clients: u32) -> Result<Cost> {
    let (scale, is_over) = (scale.clone(), Arc::new(AtomicBool::new(false)));
    let ended = handle.with_database({
        let is_over = Arc::clone(&is_over);
        async move |database| {
            let tables = Tables::of(database.catalog(), &scale)?;
            let client = |number: u32| {
                let (database, tables, is_over) = (database.clone(), tables.clone(), Arc::clone(&is_over));
                async move {
                    let mut random = Random::stream(number.into(), "client");
                    while !is_over.load(Ordering::Relaxed) {
                        let parameters = Parameters::draw(tables.scale(), &mut random);
                        database.transaction(async |tx| tables.run(tx, &parameters).await).await?;
                    }
                    Ok::<(), Error>(())
                }
            };
            let tasks: Vec<_> = (0..clients).map(|number| database.executor().spawn(client(number))).collect();
            for task in tasks {
                task.join().await?;
            }
            Ok::<(), Error>(())
        }
    });
    let cost = measure(handle);
    is_over.store(true, Ordering::Relaxed);
    ended.wait()?;
    cost
}

fn median(costs: &[Cost], figure: fn(&Cost) -> f64) -> f64 {
    let mut figures: Vec<f64> = costs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// The medians in words.
fn line(name: &str, costs: &[Cost]) -> String {
    let figure = |figure| median(costs, figure);
    let rate = grouped(figure(|cost| cost.rate) as u64);
    let (engine, others) = (figure(|cost| cost.engine_us), figure(|cost| cost.others_us));
    let (log, group) = (figure(|cost| cost.log_wait_us), figure(|cost| cost.group));
    format!(
        "{name:<27} {rate:>7} transactions/s, {engine:5.2} us of the engine's thread, {others:5.2} us of others, {log:4.0} us for the log in \
         groups of {group:4.1}"
    )
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let clients: u32 = arguments.next().map_or(Ok(64), |number| number.parse())?;
    let turns: u32 = arguments.next().map_or(Ok(5), |number| number.parse())?;
    let branches: u64 = arguments.next().map_or(Ok(4), |number| number.parse())?;
    let directory = arguments.next().unwrap_or_else(|| "client-cost.data".to_owned());
    let scale = Scale::tpc_b(branches);
    let settings = match arguments.next() {
        Some(file) => std::fs::read_to_string(file)?,
        None => "[log]\nsize = \"1 GiB\"\n[buffer]\nsize = \"1 GiB\"".to_owned(),
    };
    let known = scale.clone();
    let opening = Opening::new(&directory, Configuration::parse(&settings)?).procedures(move || {
        let mut procedures = Procedures::new();
        debit_credit::register(&mut procedures, &known);
        procedures
    });
    let thread = DatabaseThread::start(opening)?;
    let handle = thread.handle();
    let known = scale.clone();
    let spec = |name: &str| -> Result<PartitionSpec> {
        Ok(if name == HISTORY { PartitionSpec::append(name) } else { PartitionSpec::b_tree(name) })
    };
    handle.with_database(async move |database| debit_credit::load(database, &known, spec, |_| {}).await).wait()?;
    let mut costs = PLACES.map(|_| Vec::new());
    for _ in 0..turns {
        for ((place, name), costs) in PLACES.iter().zip(&mut costs) {
            let cost = match place {
                Place::EngineThread => measure_at_home(&handle, &scale, clients)?,
                _ => measure_elsewhere(&handle, &scale, clients, *place)?,
            };
            costs.push(cost);
            println!("{}", line(name, &[cost]));
        }
    }
    println!("medians:");
    let home = median(&costs[0], |cost| cost.rate);
    for ((_, name), costs) in PLACES.iter().zip(&costs) {
        println!("{}, {:.2} of the first", line(name, costs), median(costs, |cost| cost.rate) / home);
    }
    thread.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}
