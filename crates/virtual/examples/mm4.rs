//! Measures the simulation: events per second of an M/M/4 queue alone, then Debit-Credit-like transactions per second
//! through the whole driver (six CPU bursts and three I/Os of three stages each).
//!
//! `cargo run --release -p entresol-virtual --example mm4`
#![allow(clippy::disallowed_methods, reason = "measures itself on the wall clock")]

use base::Random;
use base::time::SECOND_NS;
use devices::{Class, Hardware, Machine, Servers};
use driver::{Access, Driver, FileId, Frame, Op, Output, Token};
use entresol_virtual::{Media, Options, VirtualDriver};
use std::time::Instant;

fn main() {
    mm4(10_000_000);
    debit_credit(500_000);
}

/// Arrivals at 160 per second, four servers of 50 per second each: every customer is two events.
fn mm4(customers: u64) {
    let hardware = Hardware::named("rahm-1991").expect("embedded");
    let mut machine = Machine::new(&hardware, 1, false);
    let mut random = Random::stream(1, "mm4");
    let wall = Instant::now();
    let mut arrival = None;
    for _ in 0..customers {
        let next = machine.delay(random.exponential(SECOND_NS as f64 / 160.0) as u64);
        arrival = Some(next);
        while machine.next().is_some() {
            if machine.step() == arrival {
                break;
            }
        }
        machine.compute(random.exponential(1e6) as u64, Class::User);
    }
    assert!(arrival.is_some());
    let rate = machine.events() as f64 / wall.elapsed().as_secs_f64();
    let cpu = &machine.stations()[0];
    println!("M/M/4: {:.1} million events/s, utilization {:.3}", rate / 1e6, cpu.utilization);
}

/// What one of the concurrent transactions does next.
struct Client {
    step: usize,
    buffer: Option<Frame>,
}

fn debit_credit(transactions: u64) {
    const PAGE: u32 = 128;
    const PAGES: u64 = 5_000_000;
    let mut hardware = Hardware::named("rahm-1991").expect("embedded");
    hardware.cpu.as_mut().expect("described").count = 4;
    hardware.device_mut("log-disk").medium.as_mut().expect("described").servers = Servers::count(8);
    let mut driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let (data, log) = (open(&mut driver, "disk"), open(&mut driver, "log-disk"));
    let mut random = Random::stream(2, "pages");
    let frames = driver.frames(20, PAGE as usize).expect("memory");
    let mut clients: Vec<_> = frames.into_iter().map(|frame| Client { step: 0, buffer: Some(frame) }).collect();
    let mut done = Vec::new();
    let mut finished = 0;
    let wall = Instant::now();
    for (index, client) in clients.iter_mut().enumerate() {
        advance(&mut driver, client, index, (data, log), random.below(PAGES) * u64::from(PAGE));
    }
    while finished < transactions {
        driver.park(None, &mut done).expect("operations are under way");
        for completion in done.drain(..) {
            let index = completion.token.0 as usize;
            let client = &mut clients[index];
            completion.result.expect("nothing fails");
            client.buffer = completion.buffer.or(client.buffer.take());
            client.step += 1;
            finished += u64::from(client.step.is_multiple_of(9));
            advance(&mut driver, client, index, (data, log), random.below(PAGES) * u64::from(PAGE));
        }
    }
    let seconds = wall.elapsed().as_secs_f64();
    let (rate, events) = (finished as f64 / seconds, driver.events() as f64 / seconds);
    println!("Debit-Credit: {rate:.0} simulated transactions/s, {:.1} million events/s", events / 1e6);
    for station in driver.stations().iter().filter(|station| station.completed > 0) {
        println!(
            "  {:<24} busy {:.2}, response {:.3} ms",
            station.name,
            station.utilization,
            station.response_ns_mean / 1e6
        );
    }
}

fn open(driver: &mut VirtualDriver, device: &str) -> FileId {
    let device = driver.device(device).expect("described");
    driver.submit(Token(0), Op::Open { device, name: "file".to_owned(), create: true });
    let mut done = Vec::new();
    driver.park(None, &mut done).expect("the operation completes");
    let Some(Ok(Output::Opened { file, .. })) = done.pop().map(|completion| completion.result) else {
        panic!("no file")
    };
    driver.submit(Token(0), Op::Resize { file, length: 1 << 30, prewrite: true });
    driver.park(None, &mut done).expect("the operation completes");
    file
}

fn advance(driver: &mut VirtualDriver, client: &mut Client, index: usize, (data, log): (FileId, FileId), offset: u64) {
    let access = Access::Asynchronous;
    let length = 128;
    let op = match client.step % 9 {
        2 => Op::Read { file: data, offset, length, buffer: take(client), access },
        4 => Op::Write { file: data, offset, length, buffer: take(client), durable: false, access },
        7 => Op::Write { file: log, offset, length, buffer: take(client), durable: true, access },
        _ => Op::Cpu { instructions: 40_000, class: driver::Class::User },
    };
    driver.submit(Token(index as u64), op);
}

fn take(client: &mut Client) -> Frame {
    client.buffer.take().expect("a client has one operation under way")
}
