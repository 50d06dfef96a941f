//! Reads of one record by threads, each a request of its own: what a handle's way to the engine's thread costs beside engines whose
//! readers are the threads themselves.

use crate::engines::CACHE_BYTES;
use crate::engines::sqlite::connect;
use crate::peer::{Durability, PeerResult};
use base::Random;
use base::statistics::Histogram;
use base::units::grouped_decimal;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use entresol::configuration::Configuration;
use entresol::{DatabaseThread, Opening, PartitionId, PartitionSpec};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// What is run.
pub struct Plan {
    /// Numbers of threads, one run for each.
    pub threads: Vec<u16>,
    /// How long each run is measured.
    pub measured: Duration,
    /// How many rounds, in each of which all engines take their turn; medians are reported.
    pub rounds: usize,
    /// How many records; all engines have them in memory.
    pub records: u64,
    /// Bytes of a record.
    pub record_size: usize,
    /// What all keys derive from.
    pub seed: u64,
}

/// Reads the record of a number and returns its length, for one thread.
type Get<'s> = Box<dyn FnMut(u64) -> PeerResult<usize> + Send + 's>;

trait Store: Sync {
    fn get(&self) -> PeerResult<Get<'_>>;
}

/// What one run of an engine came to.
#[derive(Clone, Copy)]
struct Measured {
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

struct Entresol {
    thread: DatabaseThread,
    notes: PartitionId,
}

impl Entresol {
    fn create(directory: &Path, plan: &Plan) -> PeerResult<Entresol> {
        let configuration = Configuration::parse("[log]\nsize = \"256 MiB\"\n[buffer]\nsize = \"1 GiB\"")?;
        let thread = DatabaseThread::start(Opening::new(directory, configuration))?;
        let handle = thread.handle();
        let notes = handle.create_partition(PartitionSpec::b_tree("notes")).wait()?;
        let (records, value) = (plan.records, vec![7; plan.record_size]);
        let loaded = handle.with_database(async move |database| {
            let records = (0..records).map(|number| (number.to_be_bytes(), value.clone()));
            database.load_b_tree(notes, records, |_| ()).await
        });
        loaded.wait()?;
        Ok(Entresol { thread, notes })
    }
}

impl Store for Entresol {
    fn get(&self) -> PeerResult<Get<'_>> {
        let handle = self.thread.handle();
        Ok(Box::new(move |number| {
            Ok(handle.get(self.notes, &number.to_be_bytes()).wait()?.ok_or("a record is missing")?.len())
        }))
    }
}

struct Sqlite(PathBuf);

impl Sqlite {
    fn create(directory: &Path, plan: &Plan) -> PeerResult<Sqlite> {
        let mut connection = connect(directory, Durability::Off, CACHE_BYTES)?;
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, value BLOB NOT NULL)", ())?;
        let transaction = connection.transaction()?;
        let value = vec![7_u8; plan.record_size];
        for number in 0..plan.records {
            let row = rusqlite::params![number as i64, value];
            transaction.prepare_cached("INSERT INTO notes VALUES (?1, ?2)")?.execute(row)?;
        }
        transaction.commit()?;
        // An exclusive lock goes with the next read behind this.
        connection.pragma_update(None, "locking_mode", "NORMAL")?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        Ok(Sqlite(directory.join("sqlite")))
    }
}

impl Store for Sqlite {
    fn get(&self) -> PeerResult<Get<'_>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.0, flags)?;
        connection.pragma_update(None, "mmap_size", 1_i64 << 30)?;
        Ok(Box::new(move |number| {
            let mut read = connection.prepare_cached("SELECT value FROM notes WHERE id = ?1")?;
            Ok(read.query_row([number as i64], |row| row.get::<_, Vec<u8>>(0))?.len())
        }))
    }
}

#[cfg(feature = "rocksdb")]
struct Rocksdb(rocksdb::DB);

#[cfg(feature = "rocksdb")]
impl Rocksdb {
    const TABLE: &str = "notes";

    fn create(directory: &Path, plan: &Plan) -> PeerResult<Rocksdb> {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let tables = crate::engines::rocksdb::column_families([Self::TABLE], CACHE_BYTES);
        let database = rocksdb::DB::open_cf_descriptors(&options, directory, tables)?;
        let notes = || database.cf_handle(Self::TABLE).expect("it was created with it");
        let value = vec![7_u8; plan.record_size];
        for number in 0..plan.records {
            database.put_cf(&notes(), number.to_be_bytes(), &value)?;
        }
        database.flush_cf(&notes())?;
        database.compact_range_cf::<&[u8], &[u8]>(&notes(), None, None);
        Ok(Rocksdb(database))
    }
}

#[cfg(feature = "rocksdb")]
impl Store for Rocksdb {
    fn get(&self) -> PeerResult<Get<'_>> {
        let notes = self.0.cf_handle(Self::TABLE).ok_or("the table is missing")?;
        Ok(Box::new(move |number| Ok(self.0.get_cf(&notes, number.to_be_bytes())?.ok_or("a record is missing")?.len())))
    }
}

/// Runs the plan on new databases in `directory`, all engines in turn, and returns a table and the same as JSON.
///
/// # Errors
/// The engines'; words if a record is not there.
pub fn run(directory: &Path, plan: &Plan) -> PeerResult<(String, Value)> {
    let place = |name: &str| -> PeerResult<PathBuf> {
        let place = directory.join(name);
        std::fs::create_dir_all(&place)?;
        Ok(place)
    };
    let entresol = Entresol::create(&place("entresol")?, plan)?;
    let sqlite = Sqlite::create(&place("sqlite")?, plan)?;
    #[cfg(feature = "rocksdb")]
    let rocksdb = Rocksdb::create(&place("rocksdb")?, plan)?;
    let stores: &[(&str, &dyn Store)] = &[
        ("entresol, through a handle", &entresol),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", &rocksdb),
        ("sqlite, a connection each", &sqlite),
    ];
    for (_, store) in stores {
        fill(*store, plan)?;
    }
    let mut results = Vec::new();
    for &threads in &plan.threads {
        let mut runs = vec![Vec::new(); stores.len()];
        for _ in 0..plan.rounds {
            for ((_, store), runs) in stores.iter().zip(&mut runs) {
                runs.push(run_once(*store, plan, threads)?);
            }
        }
        results.extend(stores.iter().zip(runs).map(|((name, _), runs)| (threads, *name, runs)));
    }
    Ok((table(&results), report(&results)))
}

/// Reads each record once, so that the engine has all of them in memory: what was loaded may be on the disk alone.
fn fill(store: &dyn Store, plan: &Plan) -> PeerResult<()> {
    let mut get = store.get()?;
    (0..plan.records).try_for_each(|number| get(number).map(|_| ()))
}

fn run_once(store: &dyn Store, plan: &Plan, threads: u16) -> PeerResult<Measured> {
    let read = |number: u16, measured: Duration| -> PeerResult<Histogram> {
        let mut random = Random::stream(plan.seed, &format!("reader {number} of {threads}"));
        let (mut get, mut times) = (store.get()?, Histogram::new());
        let began = Instant::now();
        let mut last = began;
        while last - began < measured {
            if get(random.below(plan.records))? != plan.record_size {
                return Err("a record has another length".into());
            }
            let now = Instant::now();
            times.record((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(times)
    };
    let mut all = Histogram::new();
    for (measured, counts) in [(plan.measured / 5, false), (plan.measured, true)] {
        let times = thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|number| scope.spawn(move || read(number, measured))).collect();
            let ends = readers
                .into_iter()
                .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ends.collect::<PeerResult<Vec<_>>>()
        })?;
        if counts {
            times.iter().for_each(|times| all.merge(times));
        }
    }
    let us = |quantile| all.quantile_ns(quantile) as f64 / 1e3;
    Ok(Measured { per_s: all.count() as f64 / plan.measured.as_secs_f64(), p50_us: us(0.5), p99_us: us(0.99) })
}

fn median(runs: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn table(results: &[(u16, &str, Vec<Measured>)]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["threads", "engine", "gets/s", "min..max", "p50 us", "p99 us"]);
    for (threads, name, runs) in results {
        let rates = || runs.iter().map(|run| run.per_s);
        let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        table.add_row([
            threads.to_string(),
            (*name).to_owned(),
            grouped_decimal(median(runs, |run| run.per_s), 0),
            format!("{}..{}", grouped_decimal(low, 0), grouped_decimal(high, 0)),
            grouped_decimal(median(runs, |run| run.p50_us), 2),
            grouped_decimal(median(runs, |run| run.p99_us), 1),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn report(results: &[(u16, &str, Vec<Measured>)]) -> Value {
    let result = |(threads, name, runs): &(u16, &str, Vec<Measured>)| {
        json!({
            "threads": threads,
            "engine": name,
            "gets_per_s": runs.iter().map(|run| run.per_s).collect::<Vec<_>>(),
            "response_us": { "p50": median(runs, |run| run.p50_us), "p99": median(runs, |run| run.p99_us) },
        })
    };
    results.iter().map(result).collect()
}
