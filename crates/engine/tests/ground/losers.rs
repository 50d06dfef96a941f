// Databases of every organization in which a large transaction had not ended when the machine stopped.

use crate::ground::cut_machine::run_under;
use crate::ground::things::{ALL, record, stored, thing};
use base::{PartitionId, Random};
use devices::Hardware;
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{
    Database, Direction, Isolation, PartitionSpec, Result, Settings, Transaction, UndoProgress, buffer, log,
};
use executor::Executor;
use std::collections::BTreeMap;
use std::mem::forget;
use std::ops::Bound;
use virtual_driver::{FaultPlan, Media, PowerCut};

/// How many records each partition has.
pub const ROWS: u32 = 240;
/// From how many changes on transactions are left.
pub const FIRST_MAX: u64 = 20;

pub fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 80, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 8 << 20, ..log::Settings::default() },
        checkpoint: Policy::OFF,
        undone_first_max: FIRST_MAX,
        ..Settings::default()
    }
}

/// The machine, where an access of a page takes this number of microseconds, and one of anything else 20.
fn hardware(of_pages: u32) -> Hardware {
    let device = |(name, us): (&str, u32)| format!("[device.{name}]\nmedium.service = \"{us} us\"\n");
    let text: String =
        [("disk", 20), ("backup", 20), ("flash", 20), ("data", of_pages)].into_iter().map(device).collect();
    Hardware::parse(&text, "test").expect("a description")
}

/// Runs `work` on the machine, whatever goes wrong, until the program is killed.
pub fn under<T>(faults: FaultPlan, media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    run_under(media, hardware(500), faults, work)
}

/// The same on a machine that is very slow.
pub fn slowly<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run_under(media, hardware(40_000), FaultPlan::default(), work).expect("the machine goes on")
}

/// The same where nothing goes wrong.
pub fn on<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    under(FaultPlan::default(), media, work).expect("the machine goes on")
}

pub fn cut(media: &Media, seed: u64) {
    media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut { lost: 0.5, torn: 0.2 });
}

pub fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A value of a length that follows from two numbers: one in eight is a long one.
fn value(number: u32, version: u8) -> Vec<u8> {
    let length = match (number + u32::from(version)) % 8 {
        0 => 2_500,
        rest => 20 + 17 * rest as usize,
    };
    vec![version; length]
}

fn direct(locking: Locking, name: &str) -> PartitionSpec {
    let organization = Organization::Direct { objects: u64::from(ROWS), blocking_factor: 10, record_size: 32 };
    PartitionSpec::new(name, organization, locking)
}

fn append(locking: Locking, name: &str) -> PartitionSpec {
    PartitionSpec::new(name, Organization::Append { blocking_factor: 0 }, locking)
}

fn arrivals() -> PartitionSpec {
    let organization = Organization::Set { arrivals: true, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new("arrivals", organization, Locking::Record)
}

/// Every partition that there is.
pub fn specs() -> Vec<PartitionSpec> {
    let things = PartitionSpec::b_tree("things").record(record()).secondary("by_group", &["group", "weight"]);
    let specs = [
        PartitionSpec::b_tree("rows"),
        things,
        direct(Locking::Record, "objects"),
        direct(Locking::Page, "pages"),
        append(Locking::Record, "history"),
        append(Locking::Page, "heap"),
        PartitionSpec::set("stock"),
        arrivals(),
    ];
    specs.into_iter().map(|spec| PartitionSpec { device: "data".into(), ..spec }).collect()
}

pub fn named(database: &Database, name: &str) -> PartitionId {
    database.partition(name).expect("it exists")
}

/// Makes a database in which every partition has records of version 1.
pub async fn create(executor: &Executor, settings: Settings) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    for spec in specs() {
        database.create_partition(spec).await.expect("creates a partition");
    }
    for first in (0..ROWS).step_by(40) {
        let write = async |tx: &mut Transaction| {
            for number in first..first + 40 {
                put_all(tx, &database, number, 1).await?;
            }
            Ok::<_, entresol_engine::Error>(())
        };
        database.transaction(write).await.expect("commits");
    }
    database
}

async fn put_all(tx: &mut Transaction, database: &Database, number: u32, version: u8) -> Result<()> {
    let of_thing = thing(number % 7 + u32::from(version), i64::from(number), &format!("name {version} {number}"));
    tx.put(named(database, "rows"), &key(number), &value(number, version)).await?;
    tx.put(named(database, "things"), &key(number), &stored(&of_thing)).await?;
    tx.put(named(database, "stock"), &key(number), &[version; 40]).await?;
    for name in ["objects", "pages"] {
        tx.modify_object(named(database, name), u64::from(number), |object| object[3..9].fill(version)).await?;
    }
    for name in ["history", "heap", "arrivals"] {
        tx.append(named(database, name), &[version; 60]).await?;
    }
    Ok(())
}

/// Begins a transaction that changes much in every partition, and has all of that in the log.
pub async fn change_much(database: &Database) -> Transaction {
    let mut tx = database.begin().await.expect("begins");
    change(&mut tx, database).await.expect("changes");
    // A commit behind it, which is durable.
    let note = named(database, "rows");
    database.transaction(async |tx| tx.put(note, b"behind", b"1").await).await.expect("commits");
    tx
}

async fn change(tx: &mut Transaction, database: &Database) -> Result<()> {
    let (rows, things) = (named(database, "rows"), named(database, "things"));
    // One after the other on other pages: undoing them reads a page for nearly each.
    for number in (0..ROWS).map(|number| number * 67 % ROWS).filter(|number| number % 3 > 0) {
        put_all(tx, database, number, 2).await?;
        if number % 6 == 1 {
            // Once more, in parts of the value and as a whole.
            tx.modify(rows, &key(number), |value| value[..5].fill(3)).await?;
            tx.put(rows, &key(number), &value(number, 4)).await?;
        }
        if number % 12 == 2 {
            tx.delete(rows, &key(number)).await?;
            tx.delete(things, &key(number)).await?;
        }
        if number % 24 == 2 {
            tx.put(rows, &key(number), b"anew").await?;
        }
    }
    for number in ROWS..ROWS + 60 {
        tx.insert(rows, &key(number), &value(number, 2)).await?;
        let of_thing = thing(1, 1, &format!("new {number}"));
        tx.insert(things, &key(number), &stored(&of_thing)).await?;
    }
    Ok(())
}

/// A database that was killed while a large transaction was under way, and what it has of committed records.
pub fn killed(settings: &Settings) -> (Media, Contents) {
    let media = Media::new();
    let contents = on(&media, async |executor| {
        let database = create(executor, settings.clone()).await;
        forget(change_much(&database).await);
        at_moment(&database).await
    });
    (media, contents)
}

/// All records, by partition and key.
pub type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// What a transaction reads.
pub async fn read_all(tx: &mut Transaction, database: &Database) -> Result<Contents> {
    let mut all = Contents::new();
    for name in ["rows", "things"] {
        let mut cursor = tx.cursor(named(database, name), Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, value)) = tx.next(&mut cursor).await? {
            all.insert((name.to_owned(), key), value);
        }
    }
    let (things, mut entries) = (named(database, "things"), 0_u32);
    let index = database.secondary(things, "by_group")?;
    let keep = |key: &[u8], value: &[u8]| {
        entries += 1;
        all.insert(("by_group".to_owned(), [&entries.to_be_bytes(), key].concat()), value.to_vec());
        true
    };
    tx.range(things, index, ALL, Direction::Forward, keep).await?;
    for name in ["objects", "pages"] {
        for number in 0..u64::from(ROWS) {
            let object = tx.read_object(named(database, name), number, <[u8]>::to_vec).await?;
            all.insert((name.to_owned(), number.to_be_bytes().to_vec()), object);
        }
    }
    for name in ["history", "heap", "arrivals"] {
        let keep = |position, record: &[u8]| {
            all.insert((name.to_owned(), format!("{position:?}").into_bytes()), record.to_vec());
            true
        };
        tx.scan_appended(named(database, name), keep).await?;
    }
    for number in 0..ROWS {
        if let Some(value) = tx.get(named(database, "stock"), &key(number)).await? {
            all.insert(("stock".to_owned(), key(number).to_vec()), value);
        }
    }
    Ok(all)
}

/// What is committed, read without locks.
pub async fn at_moment(database: &Database) -> Contents {
    let mut tx = database.begin_at(Isolation::Snapshot).await.expect("begins");
    let all = read_all(&mut tx, database).await.expect("reads");
    tx.commit().await.expect("ends");
    all
}

/// The same, read under locks: what is left to be undone is waited for.
pub async fn at_present(database: &Database) -> Contents {
    database.transaction(async |tx| read_all(tx, database).await).await.expect("reads")
}

/// Where two differ.
pub fn compare(found: &Contents, wanted: &Contents, when: &str) {
    let differs = |(key, value): &(&(String, Vec<u8>), &Vec<u8>)| wanted.get(key) != Some(value);
    let wrong = found.iter().find(differs);
    assert!(wrong.is_none(), "{when}: {wrong:?} should be {:?}", wrong.and_then(|(key, _)| wanted.get(key)));
    let lost = wanted.keys().find(|key| !found.contains_key(key));
    assert!(lost.is_none(), "{when}: {lost:?} is missing");
}

/// Waits until nothing is left to be undone.
pub async fn undone(executor: &Executor, database: &Database) {
    let until = executor.now().plus_ns(60 * base::time::SECOND_NS);
    while database.undoing() != UndoProgress::default() {
        assert!(executor.now() < until, "{:?} for ever", database.undoing());
        executor.sleep_ns(base::time::MICROSECOND_NS * 50).await;
    }
}

/// Everything is as it was committed, and sound.
pub async fn judge(database: &Database, wanted: &Contents) {
    compare(&at_present(database).await, wanted, "at present");
    compare(&at_moment(database).await, wanted, "at this moment");
    let report = database.check(|_| {}).await.expect("checks");
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(report.unsearched, None);
}
