//! The designs of Do et al. (2011), and those beside which they stand there. What enters, what is freed, when what only the cache
//! has goes to its own place, and what a busy cache is spared.

use crate::ground::cached;
use crate::ground::machine::run;
use cached::{change, read};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Design, Parameters, Tiers};
use entresol_engine::{Database, Direction, Internals, PartitionSpec, Settings};
use std::ops::Bound;
use std::rc::Rc;
use virtual_driver::Media;

const PAGES: u64 = 60;
const FRAMES: u64 = 20;
const PAGE_SIZE: u64 = 1024;
const RECORDS: u64 = 400;
/// Nothing that was not read at random enters.
const STRICT: Parameters =
    Parameters { fill_threshold_percent: 0, dirty_max_percent: 50, group_pages: 32, throttle: 100 };

fn design(name: &str) -> Design {
    Design::named(name).expect("it has this name")
}

fn settings(name: &str, pages: u32, parameters: Parameters) -> Settings {
    cached::settings(CacheSettings { parameters, ..cached::cache(design(name), pages) })
}

async fn create(executor: &executor::Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

async fn assert_all(database: &Database, value: u8) {
    assert_eq!(read(database, 0..PAGES).await, vec![value; PAGES as usize]);
}

fn tiers(database: &Database) -> Rc<Tiers> {
    let tiers = database.buffer().tiers().expect("there is a cache");
    tiers.check().expect("consistent");
    tiers
}

/// Operations on the pages' own device since the start: reads and writes.
fn home(database: &Database) -> (u64, u64) {
    let space = database.buffer().space(database.partition("objects").expect("it exists"));
    (space.reads.get(), space.writes.get())
}

/// Pages read from the cache, written into it, and of the latter those newer than on their own device.
fn cache(database: &Database) -> (u64, u64, u64) {
    let report = &database.tiers()[0];
    (report.reads, report.writes, report.modified)
}

/// Lets everything end that is under way.
async fn let_all_end(executor: &executor::Executor) {
    executor.sleep_ns(1_000_000_000).await;
}

#[test]
fn clean_write_takes_what_was_not_changed_and_frees_what_is() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("clean-write", 64, STRICT)).await;
        change(&database, 0..PAGES, 1).await;
        change(&database, 0..PAGES, 2).await;
        database.checkpoint().await.expect("succeeds");
        for _ in 0..2 {
            read(&database, (0..PAGES).rev()).await;
        }
        let entered = cache(&database).1;
        assert!((PAGES - FRAMES - 5..=PAGES).contains(&entered), "{entered} entered: those that were not changed here");
        assert_eq!(cache(&database).2, 0, "its own device lacks nothing that the cache has");
        let (served, (reads, _)) = (cache(&database).0, home(&database));
        assert_all(&database, 2).await;
        let more = cache(&database).0 - served;
        assert!(more >= PAGES - 2 * FRAMES && more + home(&database).0 - reads <= PAGES, "{more} are served");
        // What is changed has left the cache, and is read from its own device.
        change(&database, 0..PAGES, 3).await;
        database.checkpoint().await.expect("succeeds");
        let (served, (reads, _)) = (cache(&database).0, home(&database));
        assert_all(&database, 3).await;
        assert_eq!(cache(&database).0, served);
        assert!(home(&database).0 - reads >= PAGES - FRAMES);
        tiers(&database);
    });
}

#[test]
fn dual_write_has_what_was_changed_in_both_places() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings("dual-write", 64, STRICT)).await;
        change(&database, 0..PAGES, 1).await;
        let (_, before) = home(&database);
        change(&database, 0..PAGES, 2).await;
        let_all_end(executor).await;
        assert!(home(&database).1 - before >= PAGES - FRAMES, "{} writes", home(&database).1 - before);
        assert!(cache(&database).2 >= PAGES - FRAMES);
        assert_eq!(tiers(&database).pending_count(), 0, "its own device has what the cache has");
        // A checkpoint writes to both, too (section 3.2).
        let (entered, written) = (cache(&database).2, home(&database).1);
        database.checkpoint().await.expect("succeeds");
        let (entered, written) = (cache(&database).2 - entered, home(&database).1 - written);
        assert!(entered >= FRAMES / 2, "{entered} entered at the checkpoint");
        assert_eq!(written, entered);
        let (reads, _) = home(&database);
        assert_all(&database, 2).await;
        assert_eq!(home(&database).0, reads, "the cache serves everything");
    });
    run(&media, async |executor| {
        let without = Settings { hierarchy: second_level::Settings::default(), ..settings("dual-write", 64, STRICT) };
        let database = Database::open(executor, without, "here").await.expect("opens");
        assert_all(&database, 2).await;
    });
}

#[test]
fn lazy_cleaning_keeps_the_dirty_share_and_writes_neighbours_together() {
    for (dirty_max_percent, group_pages) in [(50, 32), (50, 1), (10, 4), (0, 32)] {
        let parameters = Parameters { dirty_max_percent, group_pages, ..STRICT };
        let media = Media::new();
        run(&media, async |executor| {
            let database = create(executor, settings("lazy-cleaning", 50, parameters)).await;
            let max = 50 * usize::from(dirty_max_percent) / 100;
            for round in 1..4 {
                for number in 0..PAGES {
                    change(&database, [number], round).await;
                    let_all_end(executor).await;
                    let dirty = tiers(&database).pending_count();
                    assert!(dirty <= max, "{dirty} of 50 pages are dirty, with at most {dirty_max_percent} %");
                }
            }
            assert_eq!(cache(&database).2, cache(&database).1, "nothing was read that could enter clean");
            let entered = cache(&database).2;
            assert!(entered >= 2 * PAGES, "{entered} entered");
            // Pages are cleaned in the order in which they came, beside which the next ones lie.
            let (_, writes) = home(&database);
            match group_pages {
                1 => assert!(writes + 50 >= entered, "{writes} writes for {entered} pages"),
                _ if max > 0 => assert!(writes * 3 <= entered * 2, "{writes} writes for {entered} pages"),
                _ => {}
            }
            assert_all(&database, 3).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings("lazy-cleaning", 50, parameters), "here").await;
            assert_all(&database.expect("opens"), 3).await;
        });
    }
}

#[test]
fn a_checkpoint_of_lazy_cleaning_cleans_everything_and_nothing_dirty_enters_meanwhile() {
    let media = Media::new();
    run(&media, async |executor| {
        let parameters = Parameters { dirty_max_percent: 100, ..STRICT };
        let database = create(executor, settings("lazy-cleaning", 64, parameters)).await;
        change(&database, 0..PAGES, 1).await;
        change(&database, 0..PAGES, 2).await;
        let dirty = tiers(&database).pending_count() as u64;
        assert!(dirty >= PAGES - FRAMES, "{dirty} are dirty in the cache");
        assert_eq!(home(&database).1, 0, "nothing is in its own place");
        let entered = cache(&database).2;
        database.checkpoint().await.expect("succeeds");
        assert_eq!(cache(&database).2, entered, "what main memory had goes past the cache");
        assert_eq!(tiers(&database).pending_count(), 0);
        let (_, writes) = home(&database);
        assert!(writes < PAGES, "{writes} writes: neighbours are written together");
        assert_all(&database, 2).await;
    });
    run(&media, async |executor| {
        let without =
            Settings { hierarchy: second_level::Settings::default(), ..settings("lazy-cleaning", 64, STRICT) };
        let database = Database::open(executor, without, "here").await.expect("opens");
        assert_all(&database, 2).await;
    });
}

#[test]
fn a_scan_enters_while_the_cache_is_being_filled_and_not_afterwards() {
    for name in ["clean-write", "dual-write", "lazy-cleaning"] {
        for fill_threshold_percent in [0, 95] {
            run(&Media::new(), async |executor| {
                let parameters = Parameters { fill_threshold_percent, ..STRICT };
                let database = create(executor, settings(name, 60, parameters)).await;
                let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
                let put_all = async |tx: &mut entresol_engine::Transaction| {
                    for number in 0..RECORDS {
                        tx.put(notes, &number.to_be_bytes(), &[1; 80]).await?;
                    }
                    Ok::<_, entresol_engine::Error>(())
                };
                database.transaction(put_all).await.expect("commits");
                database.close().await.expect("closes");
                // The cache is another one, and empty.
                let database = Database::open(executor, settings(name, 61, parameters), "here").await.expect("opens");
                let notes = database.partition("notes").expect("it exists");
                let before = cache(&database).1;
                let mut tx = database.begin().await.expect("begins");
                let mut cursor = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                while tx.next(&mut cursor).await.expect("reads").is_some() {}
                tx.commit().await.expect("commits");
                assert_all(&database, 0).await;
                let entered = cache(&database).1 - before;
                match fill_threshold_percent {
                    0 => assert!(entered <= PAGES + 5, "{name}: {entered} entered"),
                    _ => assert!(entered >= PAGES + 10, "{name}: {entered} entered"),
                }
                tiers(&database);
            });
        }
    }
}

#[test]
fn a_busy_cache_is_passed_over_but_for_what_only_it_has() {
    run(&Media::new(), async |executor| {
        let parameters = Parameters { dirty_max_percent: 100, throttle: 0, ..STRICT };
        let database = create(executor, settings("lazy-cleaning", 64, parameters)).await;
        let database = Rc::new(database);
        change(&database, 0..PAGES, 1).await;
        database.checkpoint().await.expect("succeeds");
        // Half of the pages are dirty in the cache, the other half may be read from either place.
        assert_all(&database, 1).await;
        change(&database, (0..PAGES).step_by(2), 2).await;
        assert!(tiers(&database).pending_count() > 5);
        let (reads, served) = (home(&database).0, cache(&database).0);
        for round in 0..5 {
            let tasks: Vec<_> = (0..PAGES)
                .map(|number| {
                    let database = Rc::clone(&database);
                    executor.spawn(async move { read(&database, [(number * 7 + round) % PAGES]).await[0] })
                })
                .collect();
            for (number, task) in (0..PAGES).zip(tasks) {
                let value = if ((number * 7 + round) % PAGES).is_multiple_of(2) { 2 } else { 1 };
                assert_eq!(task.join().await, value);
            }
            tiers(&database);
        }
        let (reads, served) = (home(&database).0 - reads, cache(&database).0 - served);
        assert!(reads > 20, "{reads} pages are read from their own device although the cache has them");
        assert!(served > 20, "{served} pages come from the cache");
    });
}

#[test]
fn a_copy_that_was_passed_over_serves_if_the_other_one_is_damaged() {
    let media = Media::new();
    run(&media, async |executor| {
        let parameters = Parameters { throttle: 0, ..STRICT };
        let database = Rc::new(create(executor, settings("dual-write", 64, parameters)).await);
        for round in 1..4 {
            change(&database, 0..PAGES, round).await;
        }
        let_all_end(executor).await;
        database.checkpoint().await.expect("succeeds");
        assert_all(&database, 3).await;
        for page in 0..PAGES {
            let file = media.names("disk").into_iter().find(|name| name.starts_with("objects")).expect("it exists");
            media.flip_bit("disk", &file, page * PAGE_SIZE + 500, 3).expect("flips");
        }
        let (reads, served) = (home(&database).0, cache(&database).0);
        let tasks: Vec<_> = (0..PAGES)
            .map(|number| {
                let database = Rc::clone(&database);
                executor.spawn(async move { read(&database, [number]).await[0] })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.join().await, 3);
        }
        assert!(home(&database).0 > reads, "some were looked for in their own places");
        assert!(cache(&database).0 - served >= PAGES - FRAMES, "and came from the cache");
    });
}

#[test]
fn tac_takes_what_is_read_and_keeps_the_slots_of_what_is_changed() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("tac", 64, Parameters::default())).await;
        change(&database, 0..PAGES, 1).await;
        change(&database, PAGES - FRAMES / 2..PAGES, 1).await;
        let read_once = cache(&database).1;
        assert_eq!(read_once, 0, "what was created in main memory does not enter");
        database.checkpoint().await.expect("succeeds");
        assert_all(&database, 1).await;
        let_all_end(executor).await;
        let entered = cache(&database).1;
        assert!((PAGES - FRAMES..=PAGES).contains(&entered), "{entered} entered when they were read");
        read(&database, (0..PAGES).rev()).await;
        let_all_end(executor).await;
        assert_eq!(cache(&database).2, 0, "none was changed");
        // Changed pages keep their slots, and are written to them and to their own places.
        let (_, before) = home(&database);
        let served = cache(&database).0;
        change(&database, 0..PAGES, 2).await;
        let_all_end(executor).await;
        let (both, written) = (cache(&database).2, home(&database).1 - before);
        assert!(both >= PAGES - 2 * FRAMES, "{both} pages are written to their slots");
        assert!(written >= both, "{written} writes to their own places");
        assert_eq!(tiers(&database).pending_count(), 0);
        let (reads, _) = home(&database);
        assert_all(&database, 2).await;
        assert!(cache(&database).0 - served > PAGES, "they are served after that as before");
        assert!(home(&database).0 - reads <= FRAMES, "{} are not", home(&database).0 - reads);
    });
}

#[test]
fn tac_takes_described_pages_that_were_never_written() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings("tac", 64, Parameters::default())).await.expect("creates");
        let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec { assumed: true, ..PartitionSpec::new("objects", organization, Locking::Page) };
        database.create_partition(spec).await.expect("creates");
        assert_all(&database, 0).await;
        let_all_end(executor).await;
        assert_eq!(cache(&database).1, PAGES, "each enters when it was read");
        let served = cache(&database).0;
        assert_all(&database, 0).await;
        assert!(cache(&database).0 - served >= PAGES - FRAMES, "and is sound there");
    });
}

#[test]
fn frequency_takes_what_is_missed_more_often_than_what_it_holds() {
    run(&Media::new(), async |executor| {
        let at_once = Parameters { dirty_max_percent: 0, ..Parameters::default() };
        let database = create(executor, settings("frequency", 10, at_once)).await;
        change(&database, 0..PAGES, 1).await;
        let_all_end(executor).await;
        // Ten pages are missed twice as often as the others, which come in between.
        for _ in 0..8 {
            for others in [10..30, 30..50] {
                read(&database, 0..10).await;
                read(&database, others).await;
            }
        }
        let_all_end(executor).await;
        let (served, entered, _) = cache(&database);
        read(&database, 50..PAGES).await;
        read(&database, 10..20).await;
        let_all_end(executor).await;
        assert!(cache(&database).1 - entered <= 2, "what is read once does not replace what is read often");
        read(&database, 0..10).await;
        assert!(cache(&database).0 - served >= 8, "{} of ten were kept", cache(&database).0 - served);
    });
}

#[test]
fn frequency_keeps_what_was_changed_through_a_checkpoint() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("frequency", 20, Parameters::default())).await;
        change(&database, 0..10, 2).await;
        read(&database, 30..PAGES).await;
        let_all_end(executor).await;
        let (_, written) = home(&database);
        assert!(tiers(&database).pending_count() > 0, "what was changed is the cache's alone for now");
        database.checkpoint().await.expect("succeeds");
        assert!(tiers(&database).pending_count() > 0, "a checkpoint leaves it there");
        assert_eq!(home(&database).1, written);
        assert_eq!(read(&database, 0..10).await, vec![2; 10]);
    });
}

#[test]
fn tac_leaves_a_cold_extent_out_once_it_is_full() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("tac", 10, Parameters::default())).await;
        change(&database, 0..PAGES, 1).await;
        database.checkpoint().await.expect("succeeds");
        // The first extent has 32 pages: more than memory has frames, so each of these reads misses.
        for _ in 0..5 {
            read(&database, 0..32).await;
            let_all_end(executor).await;
        }
        let entered = cache(&database).1;
        assert!(entered >= 10, "{entered} entered");
        read(&database, 32..PAGES).await;
        let_all_end(executor).await;
        assert_eq!(cache(&database).1, entered, "the other extent is colder");
        let served = cache(&database).0;
        read(&database, 0..32).await;
        assert!(cache(&database).0 - served >= 8, "the hot one is there");
        // Until it is as hot.
        for _ in 0..12 {
            read(&database, 32..PAGES).await;
            let_all_end(executor).await;
        }
        assert!(cache(&database).1 >= entered + 5, "{} entered", cache(&database).1 - entered);
        tiers(&database);
    });
}

#[test]
fn the_rotating_design_cleans_what_its_pointer_meets() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("rotating", 10, Parameters::default())).await;
        for round in 1..4 {
            change(&database, 0..PAGES, round).await;
        }
        let_all_end(executor).await;
        let (entered, written) = (cache(&database).2, home(&database).1);
        assert!(entered >= 3 * PAGES - FRAMES - 10, "{entered} entered");
        assert_eq!(entered - written, tiers(&database).pending_count() as u64);
        assert_all(&database, 3).await;
    });
}

#[test]
fn a_page_is_in_main_memory_or_in_an_exclusive_cache() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("exclusive", 64, Parameters::default())).await;
        change(&database, 0..PAGES, 1).await;
        assert_eq!(home(&database).1, 0, "what was changed stays in the cache");
        database.checkpoint().await.expect("succeeds");
        for _ in 0..3 {
            assert_all(&database, 1).await;
        }
        let partition = database.partition("objects").expect("it exists");
        let page = |number: u64| base::PageId::new(partition, number as u32);
        let buffer = database.buffer();
        let is_here = |number: u64| buffer.pool().borrow().frame_of(page(number)).is_some();
        let is_cached = |number: u64| tiers(&database).tier_of(page(number)).is_some();
        for number in 0..PAGES {
            assert!(is_here(number) != is_cached(number), "page {number}: {} {}", is_here(number), is_cached(number));
        }
    });
}

#[test]
fn no_design_loses_or_shows_again_what_was_committed() {
    for design in second_level::DESIGNS {
        for pages in [3, 30, 64] {
            for cleaner in [false, true] {
                let parameters = Parameters { group_pages: 4, throttle: 1, ..Parameters::default() };
                let mut settings = settings(design.name(), pages, parameters);
                settings.buffer.cleaner = cleaner;
                let media = Media::new();
                run(&media, async |executor| {
                    let database = create(executor, settings.clone()).await;
                    for round in 1..7 {
                        change(&database, (0..PAGES).step_by(usize::from(round % 3) + 1), round).await;
                        read(&database, (0..PAGES).rev()).await;
                        if round == 4 {
                            database.checkpoint().await.expect("succeeds");
                        }
                        tiers(&database);
                    }
                    change(&database, 0..PAGES, 7).await;
                    change(&database, (0..PAGES).step_by(2), 8).await;
                });
                let expected: Vec<u8> = (0..PAGES).map(|number| if number.is_multiple_of(2) { 8 } else { 7 }).collect();
                let damaged = media.copy();
                for slot in 0..pages {
                    let offset = 4096 + u64::from(slot) * PAGE_SIZE + 500;
                    damaged.flip_bit("nvem", "cache.tier", offset, 3).expect("flips");
                }
                for media in [media, damaged] {
                    run(&media, async |executor| {
                        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                        assert_eq!(read(&database, 0..PAGES).await, expected, "{design:?}, {pages} pages");
                        database.close().await.expect("closes");
                    });
                    run(&media, async |executor| {
                        let hierarchy = second_level::Settings::default();
                        let without = Settings { hierarchy, ..settings.clone() };
                        let database = Database::open(executor, without, "here").await.expect("opens");
                        assert_eq!(read(&database, 0..PAGES).await, expected, "{design:?}, {pages} pages");
                    });
                }
            }
        }
    }
}

#[test]
fn a_scan_reads_cached_pages_between_others_from_their_own_device() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings("clean-write", 64, STRICT)).await;
        change(&database, 0..PAGES, 1).await;
        database.checkpoint().await.expect("succeeds");
        // Pages 0, 5 and 9 are cached, and none of them in main memory.
        read(&database, [0, 5, 9]).await;
        read(&database, 30..30 + FRAMES).await;
        let_all_end(executor).await;
        let held = [0, 5, 9].map(|number| base::PageId::new(database.partition("objects").expect("exists"), number));
        assert!(held.iter().all(|page| tiers(&database).tier_of(*page).is_some()), "they are cached");
        let (served, before) = (cache(&database).0, home(&database).0);
        let partition = database.partition("objects").expect("it exists");
        let mut tx = database.begin().await.expect("begins");
        let mut seen = Vec::new();
        tx.scan_objects(partition, 0..10, |number, bytes| seen.push((number, bytes[0]))).await.expect("scans");
        tx.commit().await.expect("commits");
        assert_eq!(seen, (0..10).map(|number| (number, 1)).collect::<Vec<_>>());
        assert_eq!(cache(&database).0 - served, 2, "the first and the last come from the cache");
        assert_eq!(home(&database).0 - before, 8, "all others in one go from their own device");
        // What only the cache has is read from there.
        let database = create(executor, settings("lazy-cleaning", 64, STRICT)).await;
        change(&database, [5], 3).await;
        read(&database, 30..30 + FRAMES).await;
        let_all_end(executor).await;
        assert_eq!(tiers(&database).pending_count(), 1);
        let mut tx = database.begin().await.expect("begins");
        let mut seen = Vec::new();
        tx.scan_objects(partition, 0..10, |_, bytes| seen.push(bytes[0])).await.expect("scans");
        tx.commit().await.expect("commits");
        assert_eq!(seen, [0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
    });
}
