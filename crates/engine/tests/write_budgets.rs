//! How much may be written to the device of the cache, what goes past it then, and what a report says of wear and benefit.

#[path = "ground/machine.rs"]
mod machine;

use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, DESIGNS, Design, Parameters, WriteBudget};
use entresol_engine::tier_file::TierReport;
use entresol_engine::{Database, Error, PartitionSpec, Settings, buffer, checkpoint, log};
use machine::run;
use virtual_driver::Media;

const PAGES: u64 = 60;
const FRAMES: usize = 20;
const PAGE_SIZE: usize = 1024;
const SECOND_NS: u64 = 1_000_000_000;

fn settings(design: Design, write_budget: Option<WriteBudget>) -> Settings {
    // Nothing dirty is cleaned before something needs that.
    let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
    let new = CacheSettings::new("nvem", 64);
    let cache = CacheSettings { design, parameters, write_budget, volatile: Some(false), ..new };
    Settings {
        buffer: buffer::Settings {
            frames: FRAMES,
            page_size: PAGE_SIZE,
            cleaner: false,
            ..buffer::Settings::default()
        },
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

async fn create(executor: &executor::Executor, settings: Settings) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
    database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await.expect("creates");
    database
}

/// Adds one to every object.
async fn change(database: &Database) {
    let partition = database.partition("objects").expect("it exists");
    for number in 0..PAGES {
        database
            .transaction(async |tx| tx.modify_object(partition, number, |bytes| bytes[0] += 1).await)
            .await
            .unwrap();
    }
}

/// That every object was changed so often.
async fn assert_changed(database: &Database, times: u8) {
    let partition = database.partition("objects").expect("it exists");
    for number in 0..PAGES {
        let read = database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await;
        assert_eq!(read, Ok(times), "object {number}");
    }
}

fn cache(database: &Database) -> TierReport {
    database.buffer().tiers().expect("there is a cache").check().expect("consistent");
    database.tiers().remove(0)
}

fn own_writes(database: &Database) -> u64 {
    database.buffer().space(database.partition("objects").expect("it exists")).writes.get()
}

#[test]
fn every_design_keeps_its_budget_and_loses_nothing() {
    for &design in DESIGNS {
        run(&Media::new(), async |executor| {
            let budget = WriteBudget { burst_bytes: 8 << 10, ..WriteBudget::bytes_per_second(2 << 10) };
            let began = executor.now();
            let database = create(executor, settings(design, Some(budget))).await;
            for round in 1..=4 {
                change(&database).await;
                assert_changed(&database, round).await;
                let seconds = executor.now().since_ns(began).div_ceil(SECOND_NS);
                let report = cache(&database);
                let allowed = (8 << 10) + seconds * (2 << 10);
                assert!(report.bytes_written <= allowed, "{design:?} wrote {} of {allowed}", report.bytes_written);
                assert_eq!(report.bytes_written, report.writes * PAGE_SIZE as u64);
                assert_eq!(report.write_budget_bytes_per_day, Some(86_400 * (2 << 10)));
            }
            let (written, declined) = (cache(&database).bytes_written, cache(&database).declined);
            assert!(written >= 8 << 10, "{design:?} uses its burst, and wrote {written}");
            assert!(declined >= PAGES, "{design:?} goes past the cache, and did so {declined} times");
            // Time brings more.
            executor.sleep_ns(2 * SECOND_NS).await;
            change(&database).await;
            assert_changed(&database, 5).await;
            assert!(cache(&database).bytes_written >= written + (4 << 10), "{design:?}");
            database.close().await.expect("closes");
        });
    }
}

#[test]
fn what_lazy_cleaning_may_not_write_to_the_cache_goes_to_its_own_place() {
    let lazy = Design::named("lazy-cleaning").expect("it has this name");
    let media = Media::new();
    let spent = WriteBudget { bytes_per_day: 1, burst_bytes: PAGE_SIZE as u64 };
    run(&media, async |executor| {
        let database = create(executor, settings(lazy, None)).await;
        change(&database).await;
        let before = own_writes(&database);
        change(&database).await;
        assert_eq!(own_writes(&database), before, "without a budget nothing is written but to the cache");
        database.close().await.expect("closes");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(lazy, Some(spent)), "here").await.expect("opens");
        assert_changed(&database, 2).await;
        let before = own_writes(&database);
        change(&database).await;
        assert!(own_writes(&database) - before >= PAGES - FRAMES as u64, "it goes past the cache");
        assert!(cache(&database).writes <= 1);
    });
    // Power is cut here: the newest versions are where they were written.
    run(&media, async |executor| {
        let database = Database::open(executor, settings(lazy, None), "here").await.expect("opens");
        assert_changed(&database, 3).await;
    });
}

#[test]
fn a_budget_that_lets_no_page_enter_is_refused() {
    run(&Media::new(), async |executor| {
        for budget in [WriteBudget::bytes_per_second(0), WriteBudget { bytes_per_day: 1 << 40, burst_bytes: 1023 }] {
            let refused = Database::create(executor, settings(DESIGNS[0], Some(budget))).await;
            assert!(matches!(refused, Err(Error::Setting(_))));
        }
    });
}

#[test]
fn a_report_says_what_the_cache_saves() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(DESIGNS[0], None)).await;
        change(&database).await;
        database.buffer().restart_statistics();
        assert_changed(&database, 1).await;
        assert_eq!(cache(&database).saved_ns, None, "nothing was read from the pages' own device to compare with");
        drop(database);
    });
    run(&Media::new(), async |executor| {
        // A cache that holds a part of the pages only.
        let mut settings = settings(DESIGNS[0], None);
        settings.hierarchy.cache.as_mut().expect("there is one").pages = 20;
        let database = create(executor, settings).await;
        change(&database).await;
        database.buffer().restart_statistics();
        for _ in 0..3 {
            let partition = database.partition("objects").expect("it exists");
            for number in [0..25, 25..PAGES].into_iter().flatten().chain((0..PAGES).rev()) {
                database.transaction(async |tx| tx.read_object(partition, number, |_| ()).await).await.expect("reads");
            }
        }
        let report = cache(&database);
        let space = database.buffer().space(database.partition("objects").expect("it exists"));
        let own = space.read_times.mean_ns().expect("some pages were read there");
        let (hits, mean) = (space.cache_hits.get(), report.read_ns_mean.expect("some were hits"));
        assert_eq!((hits, space.reads.get()), (report.reads, space.read_times.count()));
        let saved = report.saved_ns.expect("there is something to compare with");
        assert!((saved - hits as f64 * (own - mean)).abs() < 1.0, "{saved}");
        assert!(own > mean && saved > 0.0, "the disk takes {own} ns, NVEM {mean}");
        database.buffer().restart_statistics();
        assert_eq!(cache(&database).bytes_written, 0);
    });
}
