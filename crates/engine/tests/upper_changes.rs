//! An upper cache that keeps what was changed: it alone has the newest version of a page until that is written to what is below.

use crate::ground::cached;
use crate::ground::cut_machine::{run_under, run_up_to};
use crate::ground::machine::run;
use base::time::SECOND_NS;
use base::{Instant, PageId, Random};
use cached::{ONCE, change, read};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::design::{CachePolicy, Contents, Decision, Leaving};
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings};
use executor::Executor;
use std::cell::Cell;
use virtual_driver::{FaultPlan, Hardware, Media, PowerCut, Slow};

const PAGES: u64 = 60;
const PAGE_SIZE: u64 = 1024;

/// Whatever leaves main memory enters and stays until it has to go, or nothing does.
struct Keeps(bool);

impl CachePolicy for Keeps {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, _: &Leaving, _: &Contents<'_>) -> Decision {
        if self.0 { Decision::WriteBack } else { Decision::Skip }
    }
}

const ALL: Design = Design::new("all", |_| Box::new(Keeps(true)));
const NONE: Design = Design::new("none", |_| Box::new(Keeps(false)));

fn named(name: &str) -> Design {
    Design::named(name).expect("it has this name")
}

/// Twenty frames, an upper cache on `nvem`, and below it one of eighty pages on `flash`.
fn settings((above, pages): (Design, u32), below: Design) -> Settings {
    let below = CacheSettings { design: below, volatile: Some(false), ..CacheSettings::new("flash", 80) };
    let mut settings = cached::settings(below);
    settings.hierarchy.upper_cache = Some(CacheSettings { design: above, ..CacheSettings::new("nvem", pages) });
    settings
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

/// What is in each of the caches alone.
fn pending(database: &Database) -> [usize; 2] {
    let levels = database.buffer().levels();
    levels.check().expect("consistent");
    [&levels.upper, &levels.tiers].map(|level| level.as_ref().map_or(0, |level| level.pending_count()))
}

/// How often pages were written to their own places.
fn writes(database: &Database) -> u64 {
    let objects = database.partition("objects").expect("it exists");
    database.buffer().space(objects).writes.get()
}

async fn assert_all(database: &Database, value: impl Fn(u64) -> u8) {
    let values: Vec<u8> = (0..PAGES).map(value).collect();
    assert_eq!(read(database, 0..PAGES).await, values);
}

fn damage_slot(media: &Media, (device, file): (&str, &str), slot: u64) {
    media.flip_bit(device, file, 4096 + slot * PAGE_SIZE + 500, 3).expect("flips");
}

fn damage(media: &Media, device_and_file: (&str, &str), slots: u64) {
    (0..slots).for_each(|slot| damage_slot(media, device_and_file, slot));
}

#[test]
fn a_changed_page_is_in_the_upper_cache_alone_until_it_is_cleaned() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings((ALL, 64), ALL)).await;
        let before = writes(&database);
        for value in 1..4 {
            change(&database, 0..PAGES, value).await;
            assert_all(&database, |_| value).await;
        }
        let [above, below] = pending(&database);
        assert!(above as u64 >= PAGES - 20 && below == 0, "{above} above, {below} below");
        assert_eq!(writes(&database), before, "nothing is written to its own place");
        let needed = database.buffer().recovery_lsn().expect("the log is needed");
        database.checkpoint().await.expect("cleans");
        assert_eq!(pending(&database), [0, 0]);
        assert!(writes(&database) >= before + PAGES);
        assert!(database.buffer().recovery_lsn().is_none_or(|later| later > needed));
        assert_all(&database, |_| 3).await;
    });
    damage(&media, ("nvem", "upper-cache.tier"), 64);
    damage(&media, ("flash", "cache.tier"), 80);
    run(&media, async |executor| {
        let database = Database::open(executor, settings((ALL, 64), ALL), "here").await.expect("opens");
        assert_all(&database, |_| 3).await;
    });
}

/// A slot that another page needs is cleaned into the cache below, as that one's design takes a changed page.
#[test]
fn what_makes_room_goes_to_the_cache_below_or_past_it() {
    for (below, goes_past) in [(ALL, false), (NONE, true), (named("dual-write"), true), (named("clean-write"), true)] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = create(executor, settings((ALL, 10), below)).await;
            let before = writes(&database);
            for value in 1..4 {
                change(&database, 0..PAGES, value).await;
                assert_all(&database, |_| value).await;
            }
            let [above, beneath] = pending(&database);
            assert!((1..=10).contains(&above), "{above}");
            assert_eq!(beneath > 0, !goes_past, "{below:?}: {beneath}");
            assert_eq!(writes(&database) > before, goes_past, "{below:?}");
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings((ALL, 10), below), "here").await.expect("opens");
            assert_all(&database, |_| 3).await;
        });
    }
}

/// The cache below had an older version alone, and gives it up for a newer one that goes past it: redo of that begins where it would
/// of the older one.
#[test]
fn the_log_is_kept_from_where_the_copy_below_needed_it() {
    let from = Instant::from_ns(SECOND_NS);
    let slow = Slow { device: "disk".into(), from, until: Instant::NEVER, factor: Slow::HUNG };
    let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
    let work = async |executor: &Executor| {
        let database = create(executor, settings((NONE, 64), ONCE)).await;
        change(&database, 0..PAGES, 1).await;
        let before = pending(&database);
        assert!(before[0] == 0 && before[1] > 20, "{before:?}");
        let keeps = CacheSettings { design: ALL, ..CacheSettings::new("nvem", 64) };
        database.set_upper_cache(Some(keeps)).await.expect("changes");
        change(&database, 0..PAGES, 2).await;
        assert!(pending(&database)[0] > 20 && pending(&database)[1] >= before[1]);
        let needed = database.buffer().recovery_lsn().expect("the log is needed");
        assert!(executor.now() < from);
        executor.sleep_until(from).await;
        assert!(executor.within(SECOND_NS / 2, database.checkpoint()).await.is_none(), "the disk does not answer");
        assert!(pending(&database)[1] < before[1], "what went past the cache below has no copy there");
        assert_eq!(database.buffer().recovery_lsn(), Some(needed));
    };
    run_under(&Media::new(), Hardware::ideal(), faults, work).expect("the machine goes on");
}

#[test]
fn what_only_the_upper_cache_had_comes_from_the_log() {
    let keeping = DESIGNS.iter().copied().chain([ALL]);
    for above in keeping {
        for below in [ALL, named("migrate-all"), named("lazy-cleaning"), named("face"), named("clean-write")] {
            for is_damaged in [false, true] {
                let media = Media::new();
                let hot = |number: u64| number.is_multiple_of(3);
                run(&media, async |executor| {
                    let database = create(executor, settings((above, 30), below)).await;
                    change(&database, 0..PAGES, 1).await;
                    database.checkpoint().await.expect("succeeds");
                    change(&database, 0..PAGES, 2).await;
                    change(&database, (0..PAGES).filter(|number| hot(*number)), 3).await;
                    pending(&database);
                });
                if is_damaged {
                    damage(&media, ("flash", "cache.tier"), 80);
                }
                for _ in 0..2 {
                    run(&media, async |executor| {
                        let opened = Database::open(executor, settings((above, 30), below), "here").await;
                        let database = opened.unwrap_or_else(|error| panic!("{above:?} above {below:?}: {error}"));
                        assert_all(&database, |number| if hot(number) { 3 } else { 2 }).await;
                    });
                }
            }
        }
    }
}

/// Of each level its slots may be damaged: no older version is shown, and the log goes on to be kept.
#[test]
fn a_changed_page_that_cannot_be_read_back_is_named_and_the_log_keeps_it() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings((ALL, 64), ALL)).await;
        change(&database, 0..PAGES, 1).await;
        let needed = database.buffer().recovery_lsn();
        damage(&media, ("nvem", "upper-cache.tier"), 64);
        for _ in 0..2 {
            let error = database.checkpoint().await.expect_err("nothing has these pages but the log");
            assert!(matches!(&error, Error::DamagedPage { file, .. } if file == "upper-cache.tier"), "{error}");
            assert_eq!(database.buffer().recovery_lsn(), needed);
        }
        let objects = database.partition("objects").expect("it exists");
        let mut tx = database.begin().await.expect("begins");
        let error = tx.read_object(objects, 0, |bytes| bytes[0]).await.expect_err("an older version is not shown");
        assert!(matches!(&error, Error::DamagedPage { file, .. } if file == "upper-cache.tier"), "{error}");
        let error = database.set_upper_cache(None).await.expect_err("it has what nothing else has");
        assert!(matches!(error, Error::DamagedPage { .. }), "{error}");
        assert!(database.upper_cache().is_some());
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings((ALL, 64), ALL), "here").await.expect("opens");
        assert_all(&database, |_| 1).await;
    });
}

/// What else the caches have alone comes to its own place, and the log is kept from the first change of that page on, no longer.
#[test]
fn a_slot_that_cannot_be_read_back_keeps_no_other_page_from_its_place() {
    let in_upper = ((ALL, 10), ("nvem", "upper-cache.tier"), [1, 0]);
    let in_lower = ((NONE, 10), ("flash", "cache.tier"), [0, 1]);
    for (above, bad, left) in [in_upper, in_lower] {
        let media = Media::new();
        let values = |number: u64| if number == PAGES - 1 { 3 } else { 2 };
        run(&media, async |executor| {
            let database = create(executor, settings(above, ALL)).await;
            change(&database, 0..PAGES, 1).await;
            change(&database, 0..PAGES, 2).await;
            let [before_above, before_below] = pending(&database);
            assert!(
                before_below > 30 && (before_above > 5 || left[0] == 0),
                "{before_above} above, {before_below} below"
            );
            damage_slot(&media, bad, 4);
            let (needed, used) = (database.buffer().recovery_lsn(), database.log().used());
            for _ in 0..2 {
                let error = database.checkpoint().await.expect_err("nothing has this page but the log");
                assert!(matches!(&error, Error::DamagedPage { file, .. } if file == bad.1), "{error}");
                assert_eq!(pending(&database), left, "pages that only a cache has, {bad:?}");
            }
            assert!(database.buffer().recovery_lsn() > needed, "only one page holds the log");
            assert!(database.log().used() < used, "{} of {used} bytes of the log are kept", database.log().used());
            change(&database, [PAGES - 1], 3).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings(above, ALL), "here").await.expect("opens");
            assert_all(&database, values).await;
        });
    }
}

/// A page was read from its slot into main memory, and cannot be read from there again. What main memory has is written when that is
/// known; after that it may leave.
#[test]
fn what_main_memory_still_has_of_a_slot_that_cannot_be_read_is_written_anew() {
    let in_upper = ((ALL, 64), NONE, ("nvem", "upper-cache.tier", 64));
    let in_lower = ((NONE, 64), ALL, ("flash", "cache.tier", 80));
    let cases = [in_upper, in_lower].into_iter().flat_map(|case| [false, true].map(|at_once| (case, at_once)));
    for ((above, below, (device, file, slots)), at_once) in cases {
        let media = Media::new();
        run(&media, async |executor| {
            let database = create(executor, settings(above, below)).await;
            change(&database, 0..10, 1).await;
            read(&database, 20..PAGES).await;
            assert_eq!(pending(&database).iter().sum::<usize>(), 10, "they have left main memory");
            assert_eq!(read(&database, 0..10).await, [1; 10]);
            assert_eq!(pending(&database).iter().sum::<usize>(), 10);
            let needed = database.buffer().recovery_lsn();
            damage(&media, (device, file), slots);
            let levels = database.buffer().levels();
            let level = if file == "cache.tier" { levels.tiers } else { levels.upper }.expect("it is there");
            for number in if at_once { 0..0 } else { 0..10 } {
                let page = PageId::new(database.partition("objects").expect("it exists"), number);
                let error = level.await_destage(page).await.expect_err("the slot cannot be read back");
                assert!(matches!(&error, Error::DamagedPage { file: named, .. } if named == file), "{error}");
            }
            assert_eq!(database.buffer().recovery_lsn(), needed, "main memory or the slots alone have these pages");
            if !at_once {
                read(&database, 20..PAGES).await;
            }
            database.checkpoint().await.expect("main memory has them");
            assert_eq!(pending(&database), [0, 0]);
            read(&database, 20..PAGES).await;
            assert_all(&database, |number| u8::from(number < 10)).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings(above, below), "here").await.expect("opens");
            assert_all(&database, |number| u8::from(number < 10)).await;
        });
    }
}

/// A page was handed down and has left main memory, and cannot be read from the lower cache. What the upper one has is written anew.
#[test]
fn what_the_upper_cache_still_has_of_a_slot_that_cannot_be_read_is_written_anew() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings((ALL, 64), ALL)).await;
        change(&database, 0..10, 1).await;
        read(&database, 20..PAGES).await;
        let upper = database.buffer().levels().upper.expect("it is there");
        upper.drain_before(database.log().end(), true, false).await.expect("what is below takes them");
        assert_eq!(pending(&database), [0, 10], "they were handed down");
        let objects = database.partition("objects").expect("it exists");
        let is_above = |number: u32| upper.tier_of(PageId::new(objects, number)).is_some();
        assert!((0..10).all(is_above), "they are in the upper cache, too");
        damage(&media, ("flash", "cache.tier"), 80);
        let before = database.log().end();
        database.checkpoint().await.expect("the upper cache has them");
        assert_eq!(pending(&database), [0, 0]);
        assert!(database.log().oldest() >= before, "they keep no log");
        assert_all(&database, |number| u8::from(number < 10)).await;
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings((ALL, 64), ALL), "here").await.expect("opens");
        assert_all(&database, |number| u8::from(number < 10)).await;
    });
}

/// What is overwritten need not be read, nor come to its own place.
#[test]
fn pages_make_way_for_a_load_although_their_slots_cannot_be_read() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings((ALL, 10), ALL)).await;
        change(&database, 0..PAGES, 1).await;
        damage(&media, ("nvem", "upper-cache.tier"), 10);
        damage(&media, ("flash", "cache.tier"), 80);
        database.checkpoint().await.expect_err("nothing has these pages but the log");
        let left = pending(&database);
        assert!(left[0] > 5 && left[1] > 20, "{left:?}");
        let objects = database.partition("objects").expect("it exists");
        let makes_way = || database.buffer().make_way(objects, 0..PAGES as u32);
        assert!(makes_way() || makes_way(), "nothing is under way for them");
        assert_eq!(pending(&database), [0, 0]);
    });
}

#[test]
fn either_cache_changes_beside_what_the_upper_one_has_alone() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings((ALL, 64), ALL)).await;
        let (both, below) = (database.upper_cache(), database.cache());
        let mut value = 0;
        for (change_above, to) in [(false, None), (true, None), (true, both), (false, below.clone()), (true, None)] {
            value += 1;
            change(&database, 0..PAGES, value).await;
            let of_other = pending(&database)[0];
            match change_above {
                true => database.set_upper_cache(to).await.expect("changes"),
                false => {
                    database.set_cache(to).await.expect("changes");
                    assert_eq!(pending(&database)[0], of_other, "what the upper cache has is as it was");
                }
            }
            assert_all(&database, |_| value).await;
            pending(&database);
        }
        assert_eq!(pending(&database)[0], 0);
        database.check(|_| ()).await.expect("reads");
    });
}

#[test]
fn what_is_dropped_leaves_nothing_although_only_the_upper_cache_had_it() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings((ALL, 20), ALL)).await;
        change(&database, 0..PAGES, 3).await;
        assert!(pending(&database)[0] > 0);
        database.drop_partition(database.partition("objects").expect("it exists")).await.expect("drops");
        assert_eq!(pending(&database), [0, 0]);
        for level in database.buffer().levels().from_top() {
            assert_eq!(level.cache_contents(std::iter::empty()).map(|contents| contents.used), Some(0));
        }
    });
}

/// An upper cache of few pages, above the pages' own device alone, which may tear a page.
async fn work_without_cache(executor: &Executor, done: &Cell<u8>) -> Result<(), Error> {
    let database = Database::create(executor, settings((ALL, 8), ALL)).await?;
    database.set_cache(None).await?;
    // An object reaches from one half of its page into the other.
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 900 };
    let partition = database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await?;
    for value in 1..4 {
        for number in 0..PAGES {
            let mut tx = database.begin().await?;
            // Both halves of its page change, so that one alone is damage.
            let both_ends = |bytes: &mut [u8]| {
                bytes[0] = value;
                *bytes.last_mut().expect("it has some") = value;
            };
            tx.modify_object(partition, number, both_ends).await?;
            tx.commit().await?;
        }
        done.set(value);
        if value == 2 {
            database.checkpoint().await?;
        }
    }
    Ok(())
}

/// The first power cut behind which something is wrong; how many were tried.
fn cut_at_each(step: usize) -> (Option<u64>, usize) {
    let (mut cuts, mut hardware) = (0, Hardware::ideal());
    hardware.device_mut("disk").atomic_write = 512;
    for cut in (300..).step_by(step) {
        let (media, done) = (Media::new(), Cell::new(0));
        let halted = run_up_to(&media, hardware.clone(), Some(cut), async |executor| {
            work_without_cache(executor, &done).await.expect("works");
        });
        if done.get() > 0 {
            cuts += 1;
            media.power_cut(&mut Random::stream(cut, "cut"), &PowerCut { lost: 0.2, torn: 0.8 });
            let is_right = run_up_to(&media, hardware.clone(), None, async |executor| {
                let Ok(database) = Database::open(executor, settings((ALL, 8), ALL), "here").await else {
                    return false;
                };
                let values = read(&database, 0..PAGES).await;
                values.iter().all(|value| (done.get()..=done.get() + 1).contains(value))
            });
            if is_right != Ok(true) {
                return (Some(cut), cuts);
            }
        }
        if halted.is_ok() {
            break;
        }
    }
    (None, cuts)
}

#[test]
fn a_page_that_is_torn_on_its_way_from_the_upper_cache_is_whole_again() {
    let (wrong, cuts) = cut_at_each(7);
    assert_eq!(wrong, None);
    assert!(cuts > 20, "{cuts} cuts");
}

#[cfg(feature = "canary")]
#[test]
fn a_page_that_is_torn_on_its_way_from_the_upper_cache_would_be_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::NoDoubleWrite));
    let found = std::panic::catch_unwind(|| cut_at_each(1).0.is_some());
    plant(None);
    assert!(found.unwrap_or(true), "nothing notices it");
}

#[cfg(feature = "canary")]
#[test]
fn a_copy_below_that_is_older_than_what_went_past_it_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::StaleBelow));
    let found = std::panic::catch_unwind(|| {
        run(&Media::new(), async |executor| {
            let database = create(executor, settings((NONE, 10), ALL)).await;
            change(&database, 0..PAGES, 1).await;
            database.checkpoint().await.expect("succeeds");
            let keeps = CacheSettings { design: ALL, ..CacheSettings::new("nvem", 10) };
            database.set_upper_cache(Some(keeps)).await.expect("changes");
            let past = database.cache().map(|cache| CacheSettings { design: NONE, ..cache });
            database.set_cache(past).await.expect("changes");
            change(&database, 0..PAGES, 2).await;
            database.set_upper_cache(None).await.expect("changes");
            assert_all(&database, |_| 2).await;
        });
    });
    plant(None);
    assert!(found.is_err(), "nothing notices it");
}

#[test]
fn a_closing_leaves_nothing_to_redo_of_what_the_upper_cache_had() {
    for above in [ALL, named("face"), named("lazy-cleaning")] {
        run(&Media::new(), async |executor| {
            let database = create(executor, settings((above, 64), named("face"))).await;
            change(&database, 0..PAGES, 1).await;
            let levels = database.buffer().levels();
            database.close().await.expect("closes");
            let left = levels.upper.map_or(0, |upper| upper.pending_count());
            assert_eq!(left, 0, "{above:?}");
        });
    }
}
