//! The cache changes while the database runs: design, size, off and on, admission; also while a device fails.

use crate::ground::cached;
use crate::ground::machine::run;
use cached::{read, settings};
use driver::OpKind;
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design, Parameters, WriteBudget};
use entresol_engine::tier_file::{TierReport, WriteBufferSettings};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 60;

fn named(name: &str) -> Design {
    Design::named(name).expect("it has this name")
}

fn cache(design: &str, pages: u32) -> CacheSettings {
    cached::cache(named(design), pages)
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

/// Gives every object this value.
async fn change(database: &Database, value: u8) {
    cached::change(database, 0..PAGES, value).await;
}

async fn assert_all(database: &Database, value: u8) {
    assert_eq!(read(database, 0..PAGES).await, [value; PAGES as usize]);
}

fn report(database: &Database) -> Option<TierReport> {
    database.tiers().into_iter().find(|tier| tier.name == "cache")
}

#[test]
fn every_design_takes_over_from_every_other() {
    for &before in DESIGNS {
        let media = Media::new();
        let mut value = 0;
        run(&media, async |executor| {
            let database = create(executor, settings(cache(before.name(), 64))).await;
            value += 1;
            change(&database, value).await;
            for &after in DESIGNS {
                database.set_cache(Some(cache(after.name(), 64))).await.expect("changes");
                assert_eq!(database.cache().map(|cache| cache.design), Some(after));
                assert_all(&database, value).await;
                value += 1;
                change(&database, value).await;
                assert_all(&database, value).await;
                database.set_cache(Some(cache(before.name(), 64))).await.expect("changes");
                assert_all(&database, value).await;
            }
        });
        // The machine vanishes here.
        run(&media, async |executor| {
            let database = Database::open(executor, settings(None), "here").await.expect("opens");
            assert_all(&database, value).await;
        });
    }
}

#[test]
fn a_cache_keeps_its_contents_under_another_design() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(cache("lazy-cleaning", 64))).await;
        change(&database, 1).await;
        database.set_cache(Some(cache("dual-write", 64))).await.expect("changes");
        assert_eq!(database.buffer().tiers().expect("there are some").pending_count(), 0, "it is clean");
        let partition = database.partition("objects").expect("it exists");
        let reads = database.buffer().space(partition).reads.get();
        assert_all(&database, 1).await;
        assert_eq!(database.buffer().space(partition).reads.get(), reads, "the cache serves everything");
    });
}

#[test]
fn a_cache_is_resized_turned_off_and_on_under_load() {
    let media = Media::new();
    let rounds = run(&media, async |executor| {
        let mut with_buffer = settings(None);
        with_buffer.hierarchy.write_buffer =
            Some(WriteBufferSettings { device: "nvem".to_owned(), pages: 8, log_bytes: 64 << 10, volatile: None });
        let database = create(executor, with_buffer).await;
        let (client, is_over) = (database.clone(), Rc::new(Cell::new(false)));
        let until = Rc::clone(&is_over);
        let load = executor.spawn(async move {
            let mut rounds = 0;
            while !until.get() {
                rounds += 1;
                change(&client, rounds).await;
            }
            rounds
        });
        assert!(report(&database).is_none());
        for pages in [16, 64, 1, 40] {
            for design in ["lazy-cleaning", "exclusive", "migrate-all", "tac"] {
                executor.sleep_ns(3_000_000).await;
                database.set_cache(Some(cache(design, pages))).await.expect("changes");
                assert_eq!(report(&database).map(|report| report.pages), Some(pages.into()));
                executor.sleep_ns(3_000_000).await;
                database.checkpoint().await.expect("succeeds");
            }
            database.set_cache(None).await.expect("goes off");
            assert!(report(&database).is_none() && database.cache().is_none());
            assert_eq!(database.tiers().len(), 2, "the write buffer stays, and that of the log");
        }
        is_over.set(true);
        let rounds = load.join().await;
        assert_all(&database, rounds).await;
        database.set_cache(Some(cache("lazy-cleaning", 64))).await.expect("goes on");
        change(&database, rounds + 1).await;
        rounds + 1
    });
    // The machine vanishes here, with pages that only the cache has.
    run(&media, async |executor| {
        let database = Database::open(executor, settings(cache("lazy-cleaning", 64)), "here").await.expect("opens");
        assert_all(&database, rounds).await;
    });
}

#[test]
fn a_cache_that_cannot_be_is_refused_and_the_one_before_stays() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(cache("lazy-cleaning", 64))).await;
        change(&database, 1).await;
        let spent = WriteBudget::bytes_per_second(0);
        for wrong in [
            CacheSettings { device: "nowhere".to_owned(), ..cache("dual-write", 64) },
            cache("dual-write", 0),
            CacheSettings { write_budget: Some(spent), ..cache("dual-write", 64) },
        ] {
            let refused = database.set_cache(Some(wrong)).await;
            assert!(matches!(refused, Err(Error::Setting(_) | Error::NoDevice(_))), "{refused:?}");
            assert_eq!(database.cache(), Some(cache("lazy-cleaning", 64)));
        }
        assert_all(&database, 1).await;
    });
}

#[test]
fn pages_of_a_partition_stay_out_where_they_are_not_admitted() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(cache("lazy-cleaning", 64))).await;
        let partition = database.partition("objects").expect("it exists");
        change(&database, 1).await;
        let writes = report(&database).expect("there is one").writes;
        assert!(writes > 0);
        database.admit_to_cache(partition, false).expect("it exists");
        change(&database, 2).await;
        assert_all(&database, 2).await;
        assert_eq!(report(&database).expect("there is one").writes, writes, "nothing enters");
        database.admit_to_cache(partition, true).expect("it exists");
        change(&database, 3).await;
        assert_all(&database, 3).await;
        assert!(report(&database).expect("there is one").writes > writes);
        let sets = database.create_partition(PartitionSpec::set("memory")).await.expect("creates");
        assert!(matches!(database.admit_to_cache(sets, true), Err(Error::WrongOrganization { .. })));
    });
}

#[test]
fn a_change_that_a_failing_device_prevents_leaves_the_cache_on() {
    // Two of three reads of the cache's device fail at first, also of those that are made again, so what only the cache has cannot be
    // brought to its own place.
    let fail = |nth| ErrorAt { kind: OpKind::Read, device: Some("nvem".into()), nth };
    let faults =
        Some(FaultPlan { errors: (1..=400).filter(|nth| nth % 3 != 0).map(fail).collect(), ..FaultPlan::default() });
    let options = Options { faults, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(async {
        let lazy = CacheSettings {
            parameters: Parameters { dirty_max_percent: 100, ..Parameters::default() },
            ..cache("lazy-cleaning", 64)
        };
        let database = create(&executor, settings(lazy.clone())).await;
        change(&database, 1).await;
        let mut failures = 0;
        for other in [Some(cache("dual-write", 64)), None, Some(cache("lazy-cleaning", 16))].into_iter().cycle() {
            match database.set_cache(other.clone()).await {
                Ok(()) => {
                    assert_eq!(database.cache(), other);
                    break;
                }
                Err(error) => assert!(matches!(error, Error::DamagedPage { .. }), "{error}"),
            }
            failures += 1;
            assert_eq!(database.cache(), Some(lazy.clone()), "it stays on");
            assert_eq!(report(&database).map(|report| report.pages), Some(64));
            assert!(failures < 100, "the device works again");
        }
        assert!(failures > 0, "some changes failed");
        assert_all(&database, 1).await;
    });
    executor.stop();
    result.expect("the machine goes on");
}
