//! What it costs to hand requests to one thread and answers back to many, with no engine behind: each request keeps the processor for a
//! while, and all that have come together are answered when a wait like that for a log write is over.
//! `cargo run --release -p entresol --example handoff_cost [CLIENTS [WORK_NS [WAIT_NS]]]`.

#![allow(clippy::disallowed_methods, reason = "threads of a user's program are what is measured")]
#![allow(dead_code, reason = "tasks that wait are another example's")]

#[path = "../src/reply.rs"]
mod reply;

use base::units::grouped;
use executor::{Executor, Order};
use real_driver::{Options, RealDriver, process_cpu_ns, thread_cpu_ns, wall_ns};
use reply::{Answers, Promise, Slot, Wakes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const MEASURED: Duration = Duration::from_secs(1);
const TURNS: u32 = 5;

/// What the threads share.
#[derive(Default)]
struct Exchange {
    requests: Mutex<Vec<Promise<u64>>>,
    has_requests: AtomicBool,
    answered: AtomicU64,
    server_ns: AtomicU64,
    is_over: AtomicBool,
    is_left: AtomicBool,
}

impl Exchange {
    fn send(&self, promise: Promise<u64>) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(promise);
        self.has_requests.store(true, Ordering::Release);
    }

    fn receive(&self, batch: &mut Vec<Promise<u64>>) {
        if self.has_requests.load(Ordering::Acquire) {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            self.has_requests.store(false, Ordering::Relaxed);
            std::mem::swap(&mut *requests, batch);
        }
    }

    /// A client: one request after the other.
    fn ask(&self, wakes: &Wakes) {
        while !self.is_over.load(Ordering::Relaxed) {
            let slot = Slot::new();
            self.send(Promise::new(&slot));
            slot.wait(wakes, None);
        }
    }

    /// The server: it never sleeps.
    fn serve(&self, wakes: &Wakes, work_ns: u64, wait_ns: u64) -> Result<(), driver::Fault> {
        let executor = Executor::new(Box::new(RealDriver::open(Options::default())?), Order::FirstInFirstOut);
        let answers = Answers::new(&executor, wakes);
        let (mut batch, mut done, mut waiting, mut until) = (Vec::new(), Vec::new(), Vec::new(), 0);
        while !self.is_left.load(Ordering::Relaxed) {
            self.receive(&mut batch);
            for promise in batch.drain(..) {
                let end = wall_ns() + work_ns;
                while wall_ns() < end {}
                done.push(promise);
            }
            if wall_ns() >= until && !waiting.is_empty() {
                self.answered.fetch_add(waiting.len() as u64, Ordering::Relaxed);
                waiting.drain(..).for_each(|promise| answers.give(promise, 0));
                answers.note_gap(work_ns);
                answers.wake();
                self.server_ns.store(thread_cpu_ns(), Ordering::Relaxed);
            }
            if waiting.is_empty() && !done.is_empty() {
                std::mem::swap(&mut done, &mut waiting);
                until = wall_ns() + wait_ns;
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// Requests per second, and processor time of each in microseconds: the server's and that of all clients.
fn measure(clients: u64, work_ns: u64, wait_ns: u64) -> Result<[f64; 3], driver::Fault> {
    let (shared, wakes) = (&Exchange::default(), &Wakes::new());
    std::thread::scope(|scope| {
        let server = scope.spawn(move || shared.serve(wakes, work_ns, wait_ns));
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(move || shared.ask(wakes))).collect();
        let read = || {
            let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            [of(&shared.answered), wall_ns(), of(&shared.server_ns), process_cpu_ns()]
        };
        std::thread::sleep(MEASURED / 10);
        let before = read();
        std::thread::sleep(MEASURED);
        let after = read();
        shared.is_over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
        shared.is_left.store(true, Ordering::Relaxed);
        server.join().expect("it does not panic")?;
        let [answered, wall, server, process] = std::array::from_fn(|index| (after[index] - before[index]) as f64);
        Ok([answered * 1e9 / wall, server / answered / 1e3, (process - server) / answered / 1e3])
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse());
    let clients = arguments.next().unwrap_or(Ok(64))?;
    let work_ns = arguments.next().unwrap_or(Ok(3_800))?;
    let wait_ns = arguments.next().unwrap_or(Ok(90_000))?;
    for _ in 0..TURNS {
        let [rate, server_us, clients_us] = measure(clients, work_ns, wait_ns)?;
        let share = rate * work_ns as f64 / 1e9;
        let rate = grouped(rate as u64);
        println!(
            "{rate} requests/s, {share:.2} of what the work allows, {server_us:.2} us of the server, {clients_us:.2} us of clients"
        );
    }
    Ok(())
}
