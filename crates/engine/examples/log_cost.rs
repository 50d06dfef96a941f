//! What appending to the log and sealing its pages costs the CPU, per record.
//!
//! `cargo run --release -p entresol-engine --example log_cost`

use base::time::MILLISECOND_NS;
use base::{Lsn, PageId, PartitionId, TransactionId};
use entresol_engine::log::record::{self, Body};
use entresol_engine::log::{Log, LogScan, Settings};
use entresol_engine::page::{Change, Edit};
use entresol_engine::undo::Undo;
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const RECORDS: u32 = 8_000;
const ROUNDS: usize = 200;

#[allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn time_ns(work: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// A Debit-Credit update of a number in a page: old and new value, 8 bytes each.
fn update(value: &[u8]) -> (Vec<u8>, Edit<'_>) {
    let page = PageId::new(PartitionId(1), 4711);
    let undo = Undo::PatchPage { page, offset: 96, bytes: value };
    (undo.stored(), Edit { page, change: Change::Patch { offset: 96, bytes: value } })
}

fn main() {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let settings = Settings { capacity: 256 << 20, buffer_size_max: 1 << 30, ..Settings::default() };
    let log = executor.run(Log::create(&executor, "disk", &settings)).expect("runs").expect("created");

    println!("{:>12} {:>12} {:>12} {:>12}", "value bytes", "record bytes", "encode ns", "append ns");
    for size in [8, 12, 100, 400, 1_000] {
        let value = vec![7; size];
        let (undo, edit) = update(&value);
        let body = Body::Update(&undo);
        let mut bytes = Vec::new();
        record::encode(TransactionId(1), &body, [(17, &edit)], &mut bytes);
        let encode = || {
            for n in 0..RECORDS {
                bytes.clear();
                record::encode(TransactionId(n.into()), &body, [(17, &edit)], &mut bytes);
                std::hint::black_box(&bytes);
            }
        };
        let mut encode = encode;
        let encode_ns = median((0..ROUNDS).map(|_| time_ns(&mut encode)).collect()) / f64::from(RECORDS);
        let rounds = (0..ROUNDS).map(|_| {
            let ns = time_ns(|| {
                for n in 0..RECORDS {
                    std::hint::black_box(log.append(TransactionId(n.into()), &body, [(17, &edit)]));
                }
            });
            executor.run(log.flush(log.end())).expect("runs").expect("written");
            log.truncate(log.durable());
            ns
        });
        let append_ns = median(rounds.collect()) / f64::from(RECORDS);
        println!("{size:>12} {:>12} {encode_ns:>12.1} {append_ns:>12.1}", bytes.len());
    }
    scan_cost(&executor, &log, &settings);
}

/// Fills half the log with small records and reads it.
fn scan_cost(executor: &Executor, log: &Log, settings: &Settings) {
    let device = executor.device("disk").expect("as before");
    let (undo, edit) = update(&[7; 12]);
    let body = Body::Update(&undo);
    let from: Lsn = log.end();
    while log.used() < log.capacity() / 2 {
        for n in 0..RECORDS {
            log.append(TransactionId(n.into()), &body, [(17, &edit)]);
        }
        executor.run(log.flush(log.end())).expect("runs").expect("written");
    }
    let mut records = 0_u32;
    let before = executor.now();
    let ns = time_ns(|| {
        let scan = async {
            let mut scan = LogScan::open(executor, device, settings, from, log.durable()).await.expect("opened");
            while scan.next().await.expect("sound").is_some() {
                records += 1;
            }
        };
        executor.run(scan).expect("runs");
    });
    let megabytes = (log.end().0 - from.0) as f64 / 1e6;
    println!(
        "scan: {records} records, {megabytes:.0} MB, {:.1} ns per record, the virtual driver's reads included; {:.1} virtual ms",
        ns / f64::from(records),
        executor.now().since_ns(before) as f64 / MILLISECOND_NS as f64
    );
}
