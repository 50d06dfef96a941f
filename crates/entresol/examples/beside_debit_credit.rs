//! What runs beside Debit-Credit: how fast it is, and what it takes from the transactions. Scans of a million records by a snapshot and by a
//! serializable transaction, bulk loads of a million records, backups at full rate, and indexes that are built on the accounts.
//! `cargo run --release -p entresol --example beside_debit_credit [BRANCHES [DIR]]`; 50 branches are 5,000,000 accounts.

use base::time::SECOND_NS;
use base::units::{format_duration_ns, grouped};
use engine::catalog::Organization;
use entresol::configuration::Configuration;
use entresol::{BackupSettings, Database, Direction, FieldType, IndexSpec, Opening, PartitionSpec, RecordType, Result};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use workload::debit_credit::{self, ACCOUNT, DebitCredit, HISTORY, Scale, Tables};
use workload::run::Unwatched;
use workload::{Length, Load, Plan};

const CLIENTS: u32 = 64;
/// Seconds of Debit-Credit alone, before and after each activity, and the least that an activity is gone on with.
const SECONDS: u64 = 5;
/// Records that are scanned, and that are loaded.
const RECORDS: u32 = 1_000_000;

#[derive(Clone)]
enum Activity {
    SnapshotScan,
    SerializableScan,
    BulkLoad,
    Backup(PathBuf),
    Index(&'static str),
}

impl Activity {
    fn name(&self) -> String {
        match self {
            Activity::SnapshotScan => "scan by a snapshot".to_owned(),
            Activity::SerializableScan => "scan by a serializable transaction".to_owned(),
            Activity::BulkLoad => "bulk load".to_owned(),
            Activity::Backup(_) => "backup".to_owned(),
            Activity::Index(field) => format!("index by {field}"),
        }
    }

    /// Does it once. Returns how many bytes that was, and how long it took, in nanoseconds.
    async fn run(&self, database: &Database) -> Result<(u64, u64)> {
        let (executor, accounts) = (database.executor().clone(), database.partition(ACCOUNT)?);
        let began = executor.now();
        let (mut bytes, mut left) = (0, RECORDS);
        let count = |key: &[u8], value: &[u8]| {
            bytes += (key.len() + value.len()) as u64;
            left -= 1;
            left > 0
        };
        match self {
            Activity::SnapshotScan => {
                database.snapshot().await?.scan(accounts, .., Direction::Forward).look(count).await?;
            }
            Activity::SerializableScan => {
                let mut transaction = database.begin().await?;
                transaction.scan(accounts, .., Direction::Forward).look(count).await?;
                transaction.commit().await?;
            }
            Activity::BulkLoad => {
                let loaded = database.create_partition(PartitionSpec::b_tree("loaded")).await?;
                let records = (0..RECORDS).map(|number| (number.to_be_bytes(), [7; 100]));
                database.load_b_tree(loaded, records, |_| {}).await?;
                let took_ns = executor.now().since_ns(began);
                database.drop_partition(loaded).await?;
                return Ok((u64::from(RECORDS) * 104, took_ns));
            }
            Activity::Backup(directory) => {
                let target = directory.to_string_lossy().into_owned();
                let settings = BackupSettings { target, base: None, bytes_per_second: None };
                let report = database.backup(&settings, |_| {}).await?;
                std::fs::remove_dir_all(directory).expect("it was made just now");
                return Ok((report.bytes_read, report.elapsed_ns));
            }
            Activity::Index(field) => {
                database.create_index(accounts, IndexSpec::new("built", &[field])).await?;
                let took_ns = executor.now().since_ns(began);
                database.drop_index(accounts, "built").await?;
                return Ok((database.size(accounts).await?.used, took_ns));
            }
        }
        Ok((bytes, executor.now().since_ns(began)))
    }
}

/// Transactions per second in a second of Debit-Credit.
async fn rate(database: &Database, tables: &Tables, seed: u64) -> Result<f64> {
    let plan = Plan {
        load: Load::Closed { clients: CLIENTS },
        warm_up: Length::Time(0),
        measure: Length::Time(SECOND_NS),
        seed,
    };
    let per_s = |measured: workload::Measured| measured.transactions as f64 * 1e9 / measured.elapsed_ns as f64;
    workload::run::run(database, DebitCredit(tables.clone()), &plan, &mut Unwatched, per_s).await
}

fn mean(rates: &[f64]) -> u64 {
    (rates.iter().sum::<f64>() / rates.len().max(1) as f64) as u64
}

/// Does it for some seconds. Returns how often, how many bytes that were, and how long it took, in nanoseconds.
async fn repeat(database: &Database, activity: &Activity) -> Result<(u64, u64, u64)> {
    let (mut times, mut bytes, mut ns) = (0, 0, 0);
    while ns < SECONDS * SECOND_NS {
        let (of_one, took_ns) = activity.run(database).await?;
        (times, bytes, ns) = (times + 1, bytes + of_one, ns + took_ns);
    }
    Ok((times, bytes, ns))
}

async fn measure(database: &Database, tables: &Tables, activity: Activity) -> Result<()> {
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for second in 0..SECONDS {
        alone.push(rate(database, tables, second).await?);
    }
    let is_over = Rc::new(Cell::new(false));
    let repeating = database.executor().spawn({
        let (database, activity, is_over) = (database.clone(), activity.clone(), Rc::clone(&is_over));
        async move {
            let done = repeat(&database, &activity).await;
            is_over.set(true);
            done
        }
    });
    while !is_over.get() {
        beside.push(rate(database, tables, 100 + beside.len() as u64).await?);
    }
    let (times, bytes, ns) = repeating.join().await?;
    for second in 0..SECONDS {
        alone.push(rate(database, tables, 200 + second).await?);
    }
    let (name, each) = (activity.name(), format_duration_ns(ns as f64 / f64::from(times.max(1) as u32)));
    let mb_per_s = bytes as f64 * 1e3 / ns as f64;
    let (alone, beside) = (mean(&alone), mean(&beside));
    let ratio = beside as f64 / alone as f64;
    println!("{name}: {times} of {each}, {mb_per_s:.0} MB/s; {} transactions/s beside it,", grouped(beside));
    println!("    {} before and after: {ratio:.2}", grouped(alone));
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let branches: u64 = arguments.next().map_or(Ok(50), |number| number.parse())?;
    let directory = arguments.next().unwrap_or_else(|| "beside-debit-credit.data".to_owned());
    let settings = "[log]\nsize = \"1 GiB\"\n[buffer]\nsize = \"2 GiB\"";
    let store = Opening::new(&directory, Configuration::parse(settings)?).open()?;
    let backup = std::path::absolute(Path::new(&directory))?.with_extension("backup");
    let scale = Scale::tpc_b(branches);
    let fields = [("balance", FieldType::I64), ("district", FieldType::U32), ("filler", FieldType::Array(80))];
    let account = RecordType::new(fields)?;
    store.run(async |database| {
        let spec = |name: &str| -> Result<PartitionSpec> {
            Ok(match name {
                ACCOUNT => PartitionSpec::b_tree(name).record(account.clone()),
                HISTORY => PartitionSpec::append(name),
                _ => PartitionSpec::new(name, Organization::BTree, entresol::Locking::Record),
            })
        };
        debit_credit::load(database, &scale, spec, |_| {}).await?;
        let tables = Tables::of(database.catalog(), &scale)?;
        println!("{} accounts", grouped(scale.accounts()));
        // Transactions do not change the district; each of them moves an entry of the index by balance.
        let activities = [
            Activity::SnapshotScan,
            Activity::SerializableScan,
            Activity::BulkLoad,
            Activity::Backup(backup.clone()),
            Activity::Index("district"),
            Activity::Index("balance"),
        ];
        for activity in activities {
            measure(database, &tables, activity).await?;
        }
        Ok(())
    })?;
    store.close()?;
    Ok(std::fs::remove_dir_all(directory)?)
}
