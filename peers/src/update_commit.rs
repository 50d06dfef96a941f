//! One record updated, then a commit, on RocksDB: threads with synced writes of their own, which the engine groups.

use crate::peer::PeerResult;
use base::Random;
use base::statistics::Histogram;
use rocksdb::{DB, DBCompressionType, Options, WriteOptions};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is run.
pub struct Plan {
    /// Numbers of threads, one run for each.
    pub clients: Vec<u16>,
    /// How long each run is measured; a fifth of that comes before it.
    pub measured: Duration,
    /// How many records.
    pub records: u64,
    /// Bytes of a record.
    pub record_size: usize,
    /// What all keys derive from.
    pub seed: u64,
}

/// Runs the plan on a new database in an empty directory. Returns an object for each number of threads.
///
/// # Errors
/// The engine's; words if an acknowledged update is not there in the end.
pub fn run(directory: &Path, plan: &Plan) -> PeerResult<Vec<Value>> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_recycle_log_file_num(4);
    options.set_enable_pipelined_write(true);
    let database = DB::open(&options, directory)?;
    for number in 0..plan.records {
        database.put(number.to_be_bytes(), vec![0_u8; plan.record_size])?;
    }
    database.flush()?;
    let mut results = Vec::new();
    let acknowledged = AtomicU64::new(0);
    for clients in &plan.clients {
        results.push(run_once(&database, plan, *clients, &acknowledged)?);
    }
    let mut found = 0;
    for number in 0..plan.records {
        let record = database.get(number.to_be_bytes())?.ok_or("a record is missing")?;
        found += u64::from_le_bytes(record[..8].try_into()?);
    }
    if found != acknowledged.load(Ordering::Relaxed) {
        return Err(format!("{found} updates are there, {acknowledged:?} were acknowledged").into());
    }
    Ok(results)
}

fn run_once(database: &DB, plan: &Plan, clients: u16, acknowledged: &AtomicU64) -> PeerResult<Value> {
    let (measuring, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut write = WriteOptions::default();
    write.set_sync(true);
    // Each thread has records of its own, so that none needs a lock: a gift to the peer.
    let client = |number: u16| -> PeerResult<Histogram> {
        let mut random = Random::stream(plan.seed, &format!("client {number} of {clients}"));
        let mut times = Histogram::new();
        let share = plan.records / u64::from(clients);
        while !over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let key = (random.below(share) * u64::from(clients) + u64::from(number)).to_be_bytes();
            let mut record = database.get(key)?.ok_or("a record is missing")?;
            let count = u64::from_le_bytes(record[..8].try_into()?) + 1;
            record[..8].copy_from_slice(&count.to_le_bytes());
            database.put_opt(key, record, &write)?;
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if measuring.load(Ordering::Relaxed) {
                times.record(began.elapsed().as_nanos() as u64);
            }
        }
        Ok(times)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        thread::sleep(plan.measured / 5);
        measuring.store(true, Ordering::Relaxed);
        let began = Instant::now();
        thread::sleep(plan.measured);
        over.store(true, Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let mut times = Histogram::new();
        for thread in threads {
            times.merge(&thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        let us = |quantile| times.quantile_ns(quantile) as f64 / 1e3;
        Ok(json!({
            "clients": clients,
            "commits_per_s": times.count() as f64 / seconds,
            "response_us": { "mean": times.mean_ns() / 1e3, "p50": us(0.5), "p99": us(0.99) },
        }))
    })
}
