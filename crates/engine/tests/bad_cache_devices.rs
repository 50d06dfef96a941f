//! A cache changes its design while its device fails: while the database runs, and by an opening.

use crate::ground::flash_cache::{cache, settings};
use crate::ground::machine::run;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Transaction};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 30;
const SLOTS: u32 = 40;

async fn open(executor: &Executor, cache: &CacheSettings) -> Result<Database> {
    Database::open(executor, settings(Some(cache.clone())), "here").await
}

async fn change(database: &Database, number: u64, value: u8) -> Result<()> {
    let partition = database.partition("objects")?;
    database.transaction(async |tx| tx.modify_object(partition, number, |bytes| bytes[0] = value).await).await
}

async fn read(database: &Database, number: u64) -> Result<u8> {
    let partition = database.partition("objects")?;
    database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await
}

/// A database whose objects have the value 2, most of them in this cache.
fn filled(cache: &CacheSettings) -> Media {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings(Some(cache.clone()))).await.expect("creates");
        let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 4000 };
        let spec = PartitionSpec::new("objects", organization, Locking::Page);
        database.create_partition(spec).await.expect("creates");
        for value in [1, 2] {
            for number in 0..PAGES {
                change(&database, number, value).await.expect("works");
            }
        }
    });
    media
}

/// Runs `work` on a machine whose cache fails from its `nth` read and its `nth` write on.
fn on_failing<T>(media: &Media, nth: u64, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let fail = |kind| move |nth| ErrorAt { kind, device: Some("flash".into()), nth };
    let from = nth..nth + 1_000;
    let errors = from.clone().map(fail(OpKind::Read)).chain(from.map(fail(OpKind::Write))).collect();
    let options = Options { faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// That an error comes from the cache, and says so.
fn assert_named(error: &Error, what: &str) {
    let text = error.to_string();
    let is_known = matches!(error, Error::Input(_) | Error::DamagedPage { .. } | Error::TierMissing { .. });
    assert!(is_known && (text.contains("flash") || text.contains("'objects'")), "{what}: {text}");
}

/// That these objects are as they were acknowledged, or named as out of reach.
async fn assert_nothing_wrong(database: &Database, known: &[u8], what: &str) {
    for (number, expected) in known.iter().enumerate() {
        match read(database, number as u64).await {
            Ok(value) => assert_eq!(value, *expected, "{what}, object {number}"),
            Err(error) => assert_named(&error, what),
        }
    }
    database.buffer().tiers().into_iter().for_each(|tiers| tiers.check().expect("consistent"));
}

/// That an opening where nothing fails finds everything, whichever design it is told.
fn assert_all_there(media: &Media, cache: &CacheSettings, known: &[u8], what: &str) {
    run(media, async |executor| {
        let database = open(executor, cache).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        for (number, expected) in known.iter().enumerate() {
            assert_eq!(read(&database, number as u64).await.as_ref(), Ok(expected), "{what}, object {number}");
        }
        let report = database.check(|_| ()).await.expect("everything is in reach");
        assert!(report.is_clean(), "{what}: {:?}", report.findings);
    });
}

/// Each design, and one that takes over from it.
fn successions() -> impl Iterator<Item = (Design, Design)> {
    DESIGNS.iter().copied().zip(DESIGNS.iter().copied().cycle().skip(3))
}

#[test]
fn a_design_that_is_changed_while_the_device_fails_loses_nothing() {
    let (mut changed, mut refused) = (0, 0);
    for (before, after) in successions() {
        let [before, after] = [before, after].map(|design| cache(design.name(), SLOTS));
        let filled = filled(&before);
        for nth in [1, 3, 8, 20, 40] {
            let what = format!("{} to {}, from operation {nth} on", before.design.name(), after.design.name());
            let (media, mut known) = (filled.copy(), [2; PAGES as usize]);
            on_failing(&media, nth, async |executor| {
                let database = match open(executor, &before).await {
                    Ok(database) => database,
                    Err(error) => return assert_named(&error, &what),
                };
                let was = database.cache();
                for (number, value) in known.iter_mut().enumerate().step_by(2) {
                    match change(&database, number as u64, 3).await {
                        Ok(()) => *value = 3,
                        Err(error) => assert_named(&error, &what),
                    }
                }
                match database.set_cache(Some(after.clone())).await {
                    Ok(()) => {
                        assert_eq!(database.cache().as_ref(), Some(&after), "{what}");
                        changed += 1;
                    }
                    Err(error) => {
                        assert_named(&error, &what);
                        // What it had is not given up, unless its own place has it.
                        assert!(database.cache().is_none_or(|present| Some(present) == was), "{what}");
                        refused += 1;
                    }
                }
                assert_nothing_wrong(&database, &known, &what).await;
            });
            for cache in [&before, &after] {
                assert_all_there(&media.copy(), cache, &known, &what);
            }
        }
    }
    assert!(changed > 0 && refused > 0, "{changed} changes succeeded, {refused} were refused");
}

#[test]
fn an_opening_by_another_design_while_the_device_fails_loses_nothing() {
    let (mut opened, mut refused) = (0, 0);
    for (before, after) in successions() {
        for table in [true, false] {
            let [before, after] =
                [before, after].map(|design| CacheSettings { table: Some(table), ..cache(design.name(), SLOTS) });
            let filled = filled(&before);
            for nth in [1, 2, 3, 5, 12, 40] {
                let what = format!("{} to {}, from operation {nth} on", before.design.name(), after.design.name());
                let media = filled.copy();
                on_failing(&media, nth, async |executor| match open(executor, &after).await {
                    Ok(database) => {
                        opened += 1;
                        assert_nothing_wrong(&database, &[2; PAGES as usize], &what).await;
                    }
                    Err(error) => {
                        refused += 1;
                        assert_named(&error, &what);
                    }
                });
                assert_all_there(&media, &after, &[2; PAGES as usize], &what);
            }
        }
    }
    assert!(opened > 0 && refused > 0, "{opened} openings succeeded, {refused} were refused");
}

/// What slots have of a partition that was dropped.
#[test]
fn a_device_that_can_only_be_read_keeps_no_database_from_being_opened() {
    for &design in DESIGNS {
        let cache = CacheSettings { table: Some(false), ..cache(design.name(), SLOTS) };
        let media = filled(&cache);
        run(&media, async |executor| {
            let database = open(executor, &cache).await.expect("opens");
            let other = database.create_partition(PartitionSpec::b_tree("other")).await.expect("creates");
            for key in 0..200_u64 {
                let put = async |tx: &mut Transaction| tx.put(other, &key.to_be_bytes(), &[7; 1_000]).await;
                database.transaction(put).await.expect("works");
            }
            for number in 0..PAGES {
                read(&database, number).await.expect("works");
            }
            database.drop_partition(other).await.expect("drops");
        });
        let errors = (1..5_000).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth }).collect();
        let options = Options { faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
        let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let done = executor.run(async {
            let database = open(&executor, &cache).await?;
            assert_nothing_wrong(&database, &[2; PAGES as usize], design.name()).await;
            Ok::<(), Error>(())
        });
        executor.stop();
        assert_eq!(done.expect("the machine goes on"), Ok(()), "{design:?}");
    }
}
