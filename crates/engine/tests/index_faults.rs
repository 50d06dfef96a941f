//! Creations of secondary indexes beside writes of the superblock file that fail: nothing is left of one that fails, its partition is
//! of use, and what memory has is what the file says.

use crate::ground::machine;
use base::time::SECOND_NS;
use driver::OpKind;
use entresol_engine::catalog::IndexSpec;
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{Database, Error, PartitionSpec, Settings, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

/// The superblock file is alone on its device.
fn settings() -> Settings {
    Settings {
        home_device: "flash".into(),
        log: log::Settings { capacity: 8 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// Runs `work` on a machine on which `count` writes of the superblock file fail from the `first` on.
fn failing<T>(media: &Media, (first, count): (u64, u64), work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth };
    let faults = Some(FaultPlan { errors: (first..first + count).map(error).collect(), ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

async fn put(database: &Database, value: &[u8]) -> Result<(), Error> {
    let things = database.partition("things")?;
    database.transaction(async |tx| tx.put(things, b"one", value).await).await
}

fn typed() -> IndexSpec {
    IndexSpec::new("by_name", &["name"]).unique().record(record())
}

fn record() -> RecordType {
    RecordType::new([("name", FieldType::Text)]).expect("sound")
}

fn named(name: &str) -> Vec<u8> {
    let mut value = Vec::new();
    record().encode(&[FieldValue::Text(name)], &mut value).expect("suits");
    value
}

async fn check(database: &Database) {
    let report = database.check(|_| {}).await.expect("checks");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// A database with a b-tree without a type.
fn untyped(media: &Media) {
    machine::run(media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        database.create_partition(PartitionSpec::b_tree("things")).await.expect("creates");
        put(&database, &named("one")).await.expect("puts");
        database.close().await.expect("closes");
    });
}

#[test]
fn a_creation_that_fails_takes_the_type_back_and_leaves_its_partition_usable() {
    let mut failed = [0; 2];
    for (first, count) in (1..40).flat_map(|first| [1, 2, 9].map(|count| (first, count))) {
        let media = Media::new();
        untyped(&media);
        let has_failed = failing(&media, (first, count), async |executor| {
            let Ok(database) = Database::open(executor, settings(), "test").await else { return false };
            let things = database.partition("things").expect("it exists");
            let has_failed = database.create_index(things, typed()).await.is_err();
            if has_failed {
                // By now the superblock file can be written again.
                executor.sleep_ns(5 * SECOND_NS).await;
                put(&database, b"of no type").await.unwrap_or_else(|error| panic!("{first}, {count}: {error}"));
                assert!(database.describe(things).expect("it exists").schema.is_none());
                while database.checkpoint().await.is_err() {}
                check(&database).await;
                if first % 2 == 0 {
                    put(&database, &named("two")).await.expect("puts");
                    database.create_index(things, typed()).await.unwrap_or_else(|e| panic!("{first}, {count}: {e}"));
                }
            }
            failed[usize::from(count > 2)] += u64::from(has_failed);
            has_failed
        });
        machine::run(&media, async |executor| {
            let database = Database::open(executor, settings(), "test").await.expect("opens");
            let things = database.partition("things").expect("it exists");
            check(&database).await;
            let is_typed = database.describe(things).expect("it exists").schema.is_some();
            if has_failed {
                assert_eq!(is_typed, first % 2 == 0, "{first}, {count}");
                assert_eq!(database.secondary(things, "by_name").is_ok(), first % 2 == 0, "{first}, {count}");
            }
            assert_eq!(put(&database, b"of no type").await.is_err(), is_typed, "{first}, {count}");
        });
    }
    assert!(failed[0] > 5 && failed[1] > 5, "{failed:?}");
}
