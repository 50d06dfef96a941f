// Partitions of every organization on a machine that fails.

use base::{PartitionId, Random};
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization, Partition};
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

pub fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        log_device: "flash".into(),
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

pub fn run<T>(media: &Media, faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

pub fn whole<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run(media, FaultPlan::default(), work).expect("the machine goes on")
}

pub fn cut(media: &Media, seed: u64) {
    media.power_cut(&mut Random::stream(seed, "partitions"), &PowerCut::default());
}

pub const KINDS: usize = 4;

/// A partition of this name; `kind` below [`KINDS`] is its organization.
pub fn spec(kind: usize, name: &str) -> PartitionSpec {
    let direct = Organization::Direct { objects: 60, blocking_factor: 10, record_size: 32 };
    match kind {
        0 => PartitionSpec::b_tree(name),
        1 => PartitionSpec::append(name),
        2 => PartitionSpec::new(name, direct, Locking::Record),
        _ => PartitionSpec::set(name),
    }
}

/// Writes record `number` in a transaction of its own.
pub async fn write(database: &Database, (kind, id): (usize, PartitionId), number: u64) -> Result<()> {
    let value = [number as u8; 32];
    database
        .transaction(async |tx| match kind {
            1 => tx.append(id, &value).await.map(drop),
            2 => tx.modify_object(id, number, |object| object.copy_from_slice(&value)).await,
            _ => tx.put(id, &number.to_be_bytes(), &value).await.map(drop),
        })
        .await
}

/// How many of the first `count` records are there.
pub async fn count(database: &Database, (kind, id): (usize, PartitionId), count: u64) -> Result<u64> {
    let mut found = 0;
    database
        .transaction(async |tx| {
            found = 0;
            if kind == 1 {
                return tx
                    .scan_appended(id, |_, _| {
                        found += 1;
                        true
                    })
                    .await;
            }
            for number in 0..count {
                let is_there = match kind {
                    2 => tx.read_object(id, number, |object| object == [number as u8; 32]).await?,
                    _ => tx.get(id, &number.to_be_bytes()).await?.is_some(),
                };
                found += u64::from(is_there);
            }
            Ok(())
        })
        .await?;
    Ok(found)
}

/// A database with a tree `first` of ten records, closed. A set's backup has restarts read the log from there on.
pub fn prepared() -> Media {
    let media = Media::new();
    whole(&media, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let first = database.create_partition(spec(0, "first")).await?;
        for number in 0..10 {
            write(&database, (0, first), number).await?;
        }
        let set = database.create_partition(spec(3, "set")).await?;
        write(&database, (3, set), 0).await?;
        database.close().await
    })
    .expect("is made");
    media
}

/// What must hold once `created` of this kind has ten records, whatever was there before.
pub async fn judge(database: &Database, kind: usize, name: &str) -> Result<()> {
    assert_eq!(count(database, (0, database.partition("first")?), 10).await?, 10);
    assert_eq!(count(database, (kind, database.partition(name)?), 10).await?, 10);
    let report = database.check(|_| {}).await?;
    assert!(report.is_clean(), "{:?}", report.findings);
    Ok(())
}

/// A database as [`prepared`], with partition `old` of this kind and ten records of it, half of them newer than its file; from
/// there on with tiers below memory.
pub fn with_old(kind: usize) -> Media {
    let media = prepared();
    whole(&media, async |executor| {
        let database = Database::open(executor, tiered(), "here").await?;
        let old = database.create_partition(spec(kind, "old")).await?;
        for number in 0..10 {
            write(&database, (kind, old), number).await?;
            if number == 5 {
                database.checkpoint().await?;
            }
        }
        Ok::<_, Error>(())
    })
    .expect("is made");
    media
}

pub fn tiered() -> Settings {
    let cache = CacheSettings::new("disk", 16);
    let write_buffer = WriteBufferSettings { device: "disk".into(), pages: 8, log_bytes: 0, volatile: None };
    let hierarchy = second_level::Settings {
        cache: Some(cache),
        write_buffer: Some(write_buffer),
        ..second_level::Settings::default()
    };
    Settings { hierarchy, ..settings() }
}

/// Files of partitions that the database does not have.
pub fn strangers(media: &Media, database: &Database) -> Vec<String> {
    let stem = |found: &Partition| found.files.clone().unwrap_or_else(|| found.name.clone());
    let known: Vec<String> = database.partitions().iter().map(|found| stem(found)).collect();
    let is_strange = |name: &String| {
        let stem = name.strip_suffix(".pages").or_else(|| Some(name.split_once(".backup-")?.0));
        stem.is_some_and(|stem| !known.iter().any(|known| known == stem))
    };
    media.names("disk").into_iter().filter(is_strange).collect()
}
