//! Designs of the second level under which what only the cache has stays there: it is read back from its slot when it has to
//! be on its own device, and the log has it as long as it is not.

use crate::ground::cached;
use crate::ground::machine::run;
use cached::{cache, change, read};
use entresol_engine::second_level::design::{CachePolicy, Contents, Decision, Leaving, Reason};
use entresol_engine::second_level::{self, Design, Tiers};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, Transaction, checkpoint, log};
use std::rc::Rc;
use virtual_driver::Media;

const PAGES: u64 = 60;
const PAGE_SIZE: u64 = 1024;

/// What is replaced in main memory stays dirty in the cache; what else is written goes past the cache or stays dirty there, too.
struct Lazy {
    takes_checkpoints: bool,
    cleans: bool,
}

impl CachePolicy for Lazy {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_eviction(&mut self, leaving: &Leaving, _: &Contents<'_>) -> Decision {
        let is_past = leaving.reason == Reason::Background && !self.takes_checkpoints;
        if is_past { Decision::Skip } else { Decision::WriteBack }
    }

    fn cleans_at_checkpoint(&self) -> bool {
        self.cleans
    }

    fn victim(&mut self, contents: &Contents<'_>) -> Option<u32> {
        let mut coldest = None;
        contents.coldest(&mut |candidate| {
            coldest = Some(candidate.slot);
            false
        });
        coldest
    }
}

const PAST: Design = Design::new("past", |_| Box::new(Lazy { takes_checkpoints: false, cleans: true }));
const THERE: Design = Design::new("there", |_| Box::new(Lazy { takes_checkpoints: true, cleans: true }));
const PERSISTENT: Design = Design::new("persistent", |_| Box::new(Lazy { takes_checkpoints: true, cleans: false }));

fn settings(design: Design, pages: u32) -> Settings {
    cached::settings(cache(design, pages))
}

async fn create(executor: &executor::Executor, settings: Settings) -> Database {
    cached::create(executor, settings, PAGES).await
}

async fn assert_all(database: &Database, value: impl Fn(u64) -> u8) {
    let values: Vec<u8> = (0..PAGES).map(value).collect();
    assert_eq!(read(database, 0..PAGES).await, values);
}

fn tiers(database: &Database) -> Rc<Tiers> {
    let tiers = database.buffer().tiers().expect("there is a cache");
    tiers.check().expect("consistent");
    tiers
}

fn writes(database: &Database) -> u64 {
    let partition = database.partition("objects").expect("it exists");
    database.buffer().space(partition).writes.get()
}

/// Damages every slot.
fn damage(media: &Media, slots: u64) {
    for slot in 0..slots {
        media.flip_bit("nvem", "cache.tier", 4096 + slot * PAGE_SIZE + 500, 3).expect("flips");
    }
}

#[test]
fn a_dirty_page_is_in_the_cache_alone_until_a_checkpoint_reads_it_back() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(THERE, 64)).await;
        let before = writes(&database);
        change(&database, 0..PAGES, 1).await;
        change(&database, 0..PAGES, 2).await;
        assert_eq!(writes(&database), before, "nothing is written to its own place");
        let pending = tiers(&database).pending_count() as u64;
        assert!(pending >= PAGES - 20, "{pending} pages are dirty in the cache");
        let log = database.buffer().recovery_lsn().expect("the log is needed");
        database.checkpoint().await.expect("cleans");
        assert_eq!(tiers(&database).pending_count(), 0);
        assert!(writes(&database) >= before + PAGES, "{} writes", writes(&database) - before);
        assert!(database.buffer().recovery_lsn().is_none_or(|later| later > log), "the log is not needed any more");
        assert_all(&database, |_| 2).await;
    });
    // The pages are in their own places.
    damage(&media, 64);
    run(&media, async |executor| {
        let database = Database::open(executor, settings(THERE, 64), "here").await.expect("opens");
        assert_all(&database, |_| 2).await;
    });
}

#[test]
fn what_only_the_cache_has_is_there_after_a_crash_and_comes_from_the_log_if_its_slots_are_damaged() {
    for design in [PAST, THERE, PERSISTENT] {
        for pages in [3, 30, 64] {
            let media = Media::new();
            run(&media, async |executor| {
                let database = create(executor, settings(design, pages)).await;
                change(&database, 0..PAGES, 1).await;
                database.checkpoint().await.expect("succeeds");
                change(&database, (0..PAGES).step_by(2), 2).await;
                if design == PERSISTENT && pages == 64 {
                    let pending = tiers(&database).pending_count();
                    database.checkpoint().await.expect("succeeds");
                    assert!(tiers(&database).pending_count() >= pending, "a checkpoint cleans nothing");
                }
            });
            let value = |number: u64| if number.is_multiple_of(2) { 2 } else { 1 };
            let damaged = media.copy();
            damage(&damaged, pages.into());
            for media in [media, damaged] {
                run(&media, async |executor| {
                    let database = Database::open(executor, settings(design, pages), "here").await.expect("opens");
                    assert_all(&database, value).await;
                    tiers(&database);
                    database.close().await.expect("closes");
                });
                run(&media, async |executor| {
                    let without = Settings { hierarchy: second_level::Settings::default(), ..settings(design, pages) };
                    let database = Database::open(executor, without, "here").await.expect("opens");
                    assert_all(&database, value).await;
                });
            }
        }
    }
}

#[test]
fn a_dirty_copy_that_cannot_be_read_back_is_named_and_the_log_keeps_it() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(THERE, 64)).await;
        change(&database, 0..PAGES, 1).await;
        let needed = database.buffer().recovery_lsn().expect("the log is needed");
        damage(&media, 64);
        for _ in 0..2 {
            let error = database.checkpoint().await.expect_err("nothing has these pages but the log");
            assert!(matches!(&error, Error::DamagedPage { file, .. } if file == "cache.tier"), "{error}");
            assert!(error.to_string().contains("a restart makes them again from the log"), "{error}");
            assert_eq!(database.buffer().recovery_lsn(), Some(needed), "the log goes on being needed");
            tiers(&database);
        }
        let partition = database.partition("objects").expect("it exists");
        let mut tx = database.begin().await.expect("begins");
        let error = tx.modify_object(partition, 0, |bytes| bytes[0]).await.expect_err("an older version is not shown");
        assert!(matches!(&error, Error::DamagedPage { file, .. } if file == "cache.tier"), "{error}");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(THERE, 64), "here").await.expect("opens");
        assert_all(&database, |_| 1).await;
    });
}

#[test]
fn a_newer_version_from_main_memory_replaces_a_copy_that_cannot_be_read_back() {
    for design in [PAST, THERE] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = create(executor, settings(design, 64)).await;
            change(&database, 0..PAGES, 1).await;
            database.checkpoint().await.expect("succeeds");
            change(&database, 0..PAGES, 2).await;
            // These are read again, and changed in main memory.
            let hot = 0..10;
            change(&database, hot.clone(), 3).await;
            damage(&media, 64);
            let error = database.checkpoint().await.expect_err("some pages are in damaged slots alone");
            assert!(matches!(&error, Error::DamagedPage { page, .. } if !hot.contains(&page.number.into())), "{error}");
            tiers(&database);
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings(design, 64), "here").await.expect("opens");
            assert_all(&database, |number| if number < 10 { 3 } else { 2 }).await;
        });
    }
}

#[test]
fn a_dirty_victim_is_written_to_its_own_place_before_its_slot_is_reused() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(THERE, 5)).await;
        for round in 1..4 {
            change(&database, 0..PAGES, round).await;
            assert_all(&database, |_| round).await;
            assert!(tiers(&database).pending_count() <= 5);
        }
        assert_eq!(database.tiers()[0].fallbacks, 0, "every page finds room");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(THERE, 5), "here").await.expect("opens");
        assert_all(&database, |_| 3).await;
    });
}

#[test]
fn a_version_that_goes_past_the_cache_replaces_a_dirty_one_there() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(PAST, 64)).await;
        change(&database, 0..PAGES, 1).await;
        let before = writes(&database);
        let dirty = tiers(&database).pending_count() as u64;
        // These are in the cache, and come to main memory.
        change(&database, 0..10, 2).await;
        database.checkpoint().await.expect("succeeds");
        assert_eq!(tiers(&database).pending_count(), 0);
        // Each page once: what was newer in main memory was not written from its slot, too.
        assert_eq!(writes(&database) - before, PAGES, "{dirty} were dirty in the cache");
        assert_all(&database, |number| if number < 10 { 2 } else { 1 }).await;
        change(&database, 5..15, 3).await;
    });
    let value = |number: u64| match number {
        5..15 => 3,
        0..5 => 2,
        _ => 1,
    };
    run(&media, async |executor| {
        let database = Database::open(executor, settings(PAST, 64), "here").await.expect("opens");
        assert_all(&database, value).await;
    });
}

#[test]
fn a_check_misses_no_page_that_only_the_cache_has() {
    run(&Media::new(), async |executor| {
        let database = create(executor, settings(PERSISTENT, 64)).await;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let put_all = async |tx: &mut Transaction| {
            for number in 0..100_u64 {
                tx.put(notes, &number.to_be_bytes(), &[1; 200]).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(put_all).await.expect("commits");
        database.checkpoint().await.expect("succeeds");
        assert!(tiers(&database).pending_count() > 20);
        let report = database.check(|_| {}).await.expect("reads");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}

#[test]
fn a_log_that_is_short_of_room_is_given_up_whatever_the_design_says() {
    run(&Media::new(), async |executor| {
        let policy = checkpoint::Policy { log_bytes: Some(64 << 10), interval_ns: None };
        let small = log::Settings { capacity: 256 << 10, ..log::Settings::default() };
        let database = create(executor, Settings { log: small, checkpoint: policy, ..settings(PERSISTENT, 64) }).await;
        for round in 0..20 {
            change(&database, 0..PAGES, round).await;
        }
        assert_all(&database, |_| 19).await;
    });
}
