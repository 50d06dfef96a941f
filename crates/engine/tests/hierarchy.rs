//! Tiers between main memory and disk, as a database sees them: what they serve, what survives, what is refused.

use crate::ground::machine::run;
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Placement};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, Transaction, buffer, checkpoint, log};
use executor::{Executor, Order};
use std::ops::Range;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 60;

fn settings(hierarchy: second_level::Settings) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 20, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        hierarchy,
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn cache(volatile: bool) -> second_level::Settings {
    let cache = CacheSettings { volatile: Some(volatile), ..CacheSettings::new("nvem", 64) };
    second_level::Settings { cache: Some(cache), ..second_level::Settings::default() }
}

fn write_buffer() -> second_level::Settings {
    let buffer = WriteBufferSettings { device: "nvem".into(), pages: 8, log_bytes: 64 << 10, volatile: None };
    second_level::Settings { write_buffer: Some(buffer), ..second_level::Settings::default() }
}

fn spec() -> PartitionSpec {
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
    PartitionSpec::new("objects", organization, Locking::Page)
}

/// Changes every object once, each in a transaction of its own.
async fn change_all(database: &Database, value: u8) {
    let partition = database.partition("objects").expect("it exists");
    for number in 0..PAGES {
        let mut tx = database.begin().await.expect("begins");
        tx.modify_object(partition, number, |bytes| bytes[0] = value).await.expect("modifies");
        tx.commit().await.expect("commits");
    }
}

async fn assert_all(database: &Database, value: u8) {
    let partition = database.partition("objects").expect("it exists");
    for number in 0..PAGES {
        let mut tx = database.begin().await.expect("begins");
        let found = tx.modify_object(partition, number, |bytes| bytes[0]).await.expect("reads");
        assert_eq!(found, value, "object {number}");
        tx.commit().await.expect("commits");
    }
}

/// A database of which every object was changed twice, and which was not closed.
fn crashed(media: &Media, hierarchy: second_level::Settings) {
    run(media, async |executor| {
        let database = Database::create(executor, settings(hierarchy)).await.expect("creates");
        database.create_partition(spec()).await.expect("creates");
        change_all(&database, 1).await;
        change_all(&database, 2).await;
    });
}

fn disk_reads(database: &Database) -> u64 {
    database.buffer().spaces().iter().map(|file| file.reads.get()).sum()
}

async fn remove(executor: &Executor, name: &str) {
    let device = executor.device("nvem").expect("it exists");
    executor.perform(Op::Remove { device, name: name.into() }).await.result.expect("removes");
}

#[test]
fn a_cache_that_holds_everything_spares_the_disk_all_reads() {
    for force in [false, true] {
        run(&Media::new(), async |executor| {
            let all = Settings { force, ..settings(cache(false)) };
            let database = Database::create(executor, all).await.expect("creates");
            database.create_partition(spec()).await.expect("creates");
            change_all(&database, 1).await;
            let before = disk_reads(&database);
            change_all(&database, 2).await;
            assert_all(&database, 2).await;
            assert_eq!(disk_reads(&database), before, "every page is in memory or in the cache");
            let tiers = database.tiers();
            assert!(tiers[0].reads >= PAGES && tiers[0].modified >= 40, "{tiers:?}");
            database.buffer().tiers().expect("there is one").check().expect("consistent");
        });
    }
}

#[test]
fn what_a_lasting_cache_holds_is_there_after_a_crash_and_warm() {
    let media = Media::new();
    crashed(&media, cache(false));
    run(&media, async |executor| {
        let database = Database::open(executor, settings(cache(false)), "here").await.expect("opens");
        let before = database.tiers()[0].reads;
        assert_all(&database, 2).await;
        assert!(database.tiers()[0].reads > before, "{:?}", database.tiers());
        database.close().await.expect("closes");
    });
    // The cache is not wanted any more: what it held is on disk.
    run(&media, async |executor| {
        let database =
            Database::open(executor, settings(second_level::Settings::default()), "here").await.expect("opens");
        assert_all(&database, 2).await;
    });
}

#[test]
fn a_cache_that_is_gone_costs_nothing_that_was_committed() {
    for wanted in [cache(false), second_level::Settings::default()] {
        let media = Media::new();
        crashed(&media, cache(false));
        run(&media, async |executor| {
            remove(executor, "cache.tier").await;
            let database = Database::open(executor, settings(wanted), "here").await.expect("opens");
            assert_all(&database, 2).await;
        });
    }
}

#[test]
fn a_cache_of_another_database_is_named_and_left_alone() {
    let (media, other) = (Media::new(), Media::new());
    crashed(&media, cache(false));
    run(&other, async |executor| {
        // Another moment, so that it is another one.
        executor.sleep_ns(1_000_000).await;
        let database = Database::create(executor, settings(cache(false))).await.expect("creates");
        database.close().await.expect("closes");
    });
    let length = other.length("nvem", "cache.tier").expect("it is there");
    let mut bytes = vec![0; length as usize];
    other.read("nvem", "cache.tier", 0, &mut bytes).expect("it can be read");
    run(&media, async |executor| {
        let device = executor.device("nvem").expect("it exists");
        let (file, _) = executor.open(device, "cache.tier", false).await.expect("opens");
        let mut buffer = executor.frame(4096).expect("memory");
        buffer.copy_from_slice(&bytes[..4096]);
        let access = driver::Access::Asynchronous;
        let op = Op::Write { file, offset: 0, length: 4096, buffer, durable: true, access };
        executor.perform(op).await.result.expect("writes");
        let error = Database::open(executor, settings(cache(false)), "here").await.err().expect("refused");
        assert!(matches!(&error, Error::ForeignTier { database: Some(_), is_wanted: true, .. }), "{error}");
        assert!(
            error.to_string().contains("of another database") && error.to_string().contains("remove it and open again")
        );
    });
}

#[test]
fn a_write_buffer_that_is_gone_is_named_unless_the_database_was_closed() {
    let tiers = [(write_buffer(), "write-buffer.tier"), (write_buffer(), "log-buffer.tier")];
    for (hierarchy, file) in tiers {
        let media = Media::new();
        crashed(&media, hierarchy.clone());
        let whole = media.copy();
        run(&media, async |executor| {
            remove(executor, file).await;
            // Whether it is still wanted or not.
            for wanted in [hierarchy.clone(), second_level::Settings::default()] {
                let error = Database::open(executor, settings(wanted), "here").await.err().expect("refused");
                assert!(matches!(&error, Error::TierMissing { device, .. } if device == "nvem"), "{error}");
                assert!(error.to_string().contains(file), "{error}");
            }
        });
        run(&whole, async |executor| {
            let database = Database::open(executor, settings(hierarchy.clone()), "here").await.expect("opens");
            database.close().await.expect("closes");
            remove(executor, file).await;
            let database = Database::open(executor, settings(hierarchy.clone()), "here").await.expect("opens");
            assert_all(&database, 2).await;
        });
    }
}

#[test]
fn a_volatile_cache_that_is_gone_is_not_missed() {
    let media = Media::new();
    crashed(&media, cache(true));
    run(&media, async |executor| {
        remove(executor, "cache.tier").await;
        let database = Database::open(executor, settings(cache(true)), "here").await.expect("opens");
        assert_all(&database, 2).await;
        assert!(database.tiers()[0].modified == 0, "it never holds what the disk lacks: {:?}", database.tiers());
    });
}

#[test]
fn a_damaged_copy_gives_way_to_that_on_disk() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings(cache(false))).await.expect("creates");
        database.create_partition(spec()).await.expect("creates");
        change_all(&database, 1).await;
        database.checkpoint().await.expect("all writes end");
        for slot in 0..64 {
            media.flip_bit("nvem", "cache.tier", 4096 + slot * 1024 + 500, 3).expect("flips");
        }
        assert_all(&database, 1).await;
        assert!(database.tiers()[0].damaged >= 20, "{:?}", database.tiers());
    });
}

#[test]
fn pages_that_stay_in_memory_need_no_frame_of_the_buffer_and_survive() {
    let media = Media::new();
    let placement = Placement { resident: true, ..Placement::default() };
    let resident = second_level::Settings { placements: [("objects".to_owned(), placement)].into(), ..cache(false) };
    crashed(&media, resident.clone());
    run(&media, async |executor| {
        let database = Database::open(executor, settings(resident), "here").await.expect("opens");
        database.statistics().restart();
        let before = disk_reads(&database);
        assert_all(&database, 2).await;
        assert_eq!(disk_reads(&database), before);
        let partition = database.partition("objects").expect("it exists");
        assert_eq!(database.statistics().references()[usize::from(partition.0)].misses(), 0);
        assert_eq!(database.tiers()[0].writes, 0, "what stays in memory is never replaced");
        database.buffer().pool().borrow().check().expect("consistent");
        database.close().await.expect("closes");
    });
}

#[test]
fn a_write_buffer_absorbs_what_it_has_room_for() {
    let media = Media::new();
    crashed(&media, write_buffer());
    run(&media, async |executor| {
        let database = Database::open(executor, settings(write_buffer()), "here").await.expect("opens");
        assert_all(&database, 2).await;
        change_all(&database, 3).await;
        let tiers = database.tiers();
        let absorbed = |name: &str| tiers.iter().find(|tier| tier.name == name).expect("there is one").writes;
        assert!(absorbed("write-buffer") > 30 && absorbed("log-buffer") > 50, "{tiers:?}");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(write_buffer()), "here").await.expect("opens");
        assert_all(&database, 3).await;
    });
}

#[test]
fn a_write_buffer_that_forgets_is_refused() {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("nvem").volatile = true;
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let created = executor.run(Database::create(&executor, settings(write_buffer()))).expect("the machine goes on");
    let error = created.err().expect("refused");
    assert!(matches!(&error, Error::Setting(why) if why.contains("'nvem' loses its contents")), "{error}");
}

/// Sets these objects and records of a tree to this value.
async fn change_both(database: &Database, numbers: Range<u64>, value: u8) {
    let (objects, notes) = (database.partition("objects"), database.partition("notes"));
    let (objects, notes) = (objects.expect("it exists"), notes.expect("it exists"));
    for number in numbers {
        let change = async |tx: &mut Transaction| {
            tx.modify_object(objects, number, |bytes| bytes[0] = value).await?;
            tx.put(notes, &number.to_be_bytes(), &[value; 200]).await
        };
        database.transaction(change).await.expect("commits");
    }
}

/// Those among them that are in the cache when all were changed.
const LATER: Range<u64> = 24..32;

#[test]
fn a_page_that_its_file_has_lost_is_not_taken_from_an_older_copy() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings(cache(false))).await.expect("creates");
        database.create_partition(spec()).await.expect("creates");
        database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        change_both(&database, 0..PAGES, 1).await;
        database.close().await.expect("closes");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(cache(false)), "here").await.expect("opens");
        // Of pages that come from the cache a copy stays there, and grows old.
        change_both(&database, LATER, 2).await;
        for _ in 0..2 {
            database.checkpoint().await.expect("writes them to their places");
        }
    });
    let mut lost = [0; 2];
    for (index, file) in ["objects.pages", "notes.pages"].into_iter().enumerate() {
        for page in 0..media.length("disk", file).expect("it exists").min(64 << 10) / 1024 {
            let media = media.copy();
            media.punch("disk", file, page * 1024, 1024).expect("it exists");
            run(&media, async |executor| {
                let Ok(database) = Database::open(executor, settings(cache(false)), "here").await else { return };
                let (objects, notes) = (database.partition("objects"), database.partition("notes"));
                let (objects, notes) = (objects.expect("it exists"), notes.expect("it exists"));
                for number in 0..PAGES {
                    let expected = if LATER.contains(&number) { 2 } else { 1 };
                    let mut tx = database.begin().await.expect("begins");
                    let found = [
                        tx.modify_object(objects, number, |bytes| bytes[0]).await.map(Some),
                        tx.get(notes, &number.to_be_bytes()).await.map(|found| found.map(|value| value[0])),
                    ];
                    for (of, found) in found.into_iter().enumerate() {
                        match found {
                            // An object of which there is no copy at all is taken for one that never changed.
                            Ok(Some(0)) if of == 0 => {}
                            Ok(value) => {
                                assert_eq!(value, Some(expected), "page {page} of {file} is lost, record {number}");
                            }
                            Err(Error::DamagedPage { .. }) => lost[of] += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
        assert!(lost[index] > 0, "nothing of {file} is lost");
    }
}
