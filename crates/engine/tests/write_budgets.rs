//! How much may be written to the device of the cache, what goes past it then, and what a report says of wear and benefit.

use crate::ground::cached;
use crate::ground::machine::run;
use cached::read;
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design, Parameters, WriteBudget};
use entresol_engine::tier_file::TierReport;
use entresol_engine::tier_file::table::{BLOCK_BYTES, TABLE_FILE};
use entresol_engine::{Database, Error, Internals, Settings};
use virtual_driver::Media;

const PAGES: u64 = 60;
const FRAMES: usize = 20;
const PAGE_SIZE: usize = 1024;
const SECOND_NS: u64 = 1_000_000_000;

fn settings(design: Design, write_budget: Option<WriteBudget>) -> Settings {
    // Nothing dirty is cleaned before something needs that.
    let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
    cached::settings(CacheSettings { parameters, write_budget, ..cached::cache(design, 64) })
}

async fn create(executor: &executor::Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

/// Gives every object this value.
async fn change(database: &Database, value: u8) {
    cached::change(database, 0..PAGES, value).await;
}

async fn assert_all(database: &Database, value: u8) {
    assert_eq!(read(database, 0..PAGES).await, [value; PAGES as usize]);
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
                change(&database, round).await;
                assert_all(&database, round).await;
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
            change(&database, 5).await;
            assert_all(&database, 5).await;
            assert!(cache(&database).bytes_written >= written + (4 << 10), "{design:?}");
            database.close().await.expect("closes");
        });
    }
}

/// How many blocks of the cache's table were written: each has a number.
fn table_blocks(media: &Media) -> u64 {
    let mut bytes = vec![0; media.length("flash", TABLE_FILE).expect("there is a table") as usize];
    media.read("flash", TABLE_FILE, 0, &mut bytes).expect("it can be read");
    let number = |block: &[u8]| u64::from_le_bytes(block[16..24].try_into().expect("eight bytes"));
    bytes.chunks(BLOCK_BYTES).map(number).max().expect("it has blocks")
}

#[test]
fn what_the_cache_writes_to_its_table_is_counted_and_pages_wait_for_it() {
    for &design in DESIGNS {
        let media = Media::new();
        run(&media, async |executor| {
            let (burst, rate) = (16 << 10, 2 << 10);
            let budget = WriteBudget { burst_bytes: burst, ..WriteBudget::bytes_per_second(rate) };
            let mut settings = settings(design, Some(budget));
            let tabled = settings.hierarchy.cache.as_mut().expect("there is one");
            (tabled.device, tabled.table) = ("flash".to_owned(), Some(true));
            let began = executor.now();
            let database = create(executor, settings).await;
            let mut entered = 0;
            for round in 1..=6 {
                let (writes, blocks) = (cache(&database).writes, table_blocks(&media));
                change(&database, round).await;
                assert_all(&database, round).await;
                let now_written = cache(&database).writes;
                if now_written > writes {
                    entered += 1;
                    let allowed = burst + executor.now().since_ns(began).div_ceil(SECOND_NS) * rate;
                    let written = now_written * PAGE_SIZE as u64 + blocks * BLOCK_BYTES as u64;
                    assert!(written <= allowed, "{design:?}, round {round}: {written} of {allowed}");
                }
                database.checkpoint().await.expect("succeeds");
                executor.sleep_ns(4 * SECOND_NS).await;
            }
            let (report, blocks) = (cache(&database), table_blocks(&media));
            assert!(entered >= 2 && blocks >= 2, "{design:?}: {entered} rounds, {blocks} blocks");
            assert_eq!(
                report.bytes_written,
                report.writes * PAGE_SIZE as u64 + blocks * BLOCK_BYTES as u64,
                "{design:?}"
            );
            assert!(report.declined > 0, "{design:?}");
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
        change(&database, 1).await;
        let before = own_writes(&database);
        change(&database, 2).await;
        assert_eq!(own_writes(&database), before, "without a budget nothing is written but to the cache");
        database.close().await.expect("closes");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(lazy, Some(spent)), "here").await.expect("opens");
        assert_all(&database, 2).await;
        let before = own_writes(&database);
        change(&database, 3).await;
        assert!(own_writes(&database) - before >= PAGES - FRAMES as u64, "it goes past the cache");
        assert!(cache(&database).writes <= 1);
    });
    // Power is cut here: the newest versions are where they were written.
    run(&media, async |executor| {
        let database = Database::open(executor, settings(lazy, None), "here").await.expect("opens");
        assert_all(&database, 3).await;
    });
}

#[test]
fn restarts_give_no_bursts() {
    let budget = WriteBudget { burst_bytes: 8 << 10, ..WriteBudget::bytes_per_second(1 << 10) };
    let mut with_cache = settings(Design::named("dual-write").expect("it is one"), Some(budget));
    let cache_settings = with_cache.hierarchy.cache.as_mut().expect("there is one");
    cache_settings.table = Some(false);
    let cache_settings = cache_settings.clone();
    let mut without = with_cache.clone();
    without.hierarchy.cache = None;
    let (media, mut written, mut ran_ns) = (Media::new(), 0, 0);
    for opening in 0..8 {
        run(&media, async |executor| {
            // Every other one has its cache turned on later.
            let is_later = opening % 2 == 1;
            let settings = if is_later { &without } else { &with_cache };
            let database = match opening {
                0 => create(executor, settings.clone()).await,
                _ => Database::open(executor, settings.clone(), "here").await.expect("opens"),
            };
            if is_later {
                database.set_cache(Some(cache_settings.clone())).await.expect("goes on");
            }
            change(&database, opening).await;
            written += cache(&database).bytes_written;
            database.close().await.expect("closes");
            ran_ns += executor.now().ns();
        });
        let allowed = (8 << 10) + ran_ns.div_ceil(SECOND_NS) * (1 << 10);
        assert!(written >= 8 << 10 && written <= allowed, "{written} of {allowed} bytes after opening {opening}");
    }
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
        change(&database, 1).await;
        database.buffer().restart_statistics();
        assert_all(&database, 1).await;
        assert_eq!(cache(&database).saved_ns, None, "nothing was read from the pages' own device to compare with");
        drop(database);
    });
    run(&Media::new(), async |executor| {
        // A cache that holds a part of the pages only.
        let mut settings = settings(DESIGNS[0], None);
        settings.hierarchy.cache.as_mut().expect("there is one").pages = 20;
        let database = create(executor, settings).await;
        change(&database, 1).await;
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
        let figures = database.figures();
        let [tier] = &figures.tiers[..] else { panic!("there is a cache: {figures:?}") };
        assert_eq!((tier.reads, tier.bytes_written, tier.saved_ns), (hits, report.bytes_written, Some(saved)));
        let text = figures.open_metrics();
        let reads = format!("entresol_tier_reads_total{{tier=\"cache\",device=\"nvem\"}} {hits}\n");
        assert!(text.contains(&reads) && text.contains("entresol_tier_saved_seconds{"), "{text}");
        database.buffer().restart_statistics();
        assert_eq!(cache(&database).bytes_written, 0);
    });
}
