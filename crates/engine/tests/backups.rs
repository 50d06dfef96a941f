//! Backups beside everything that a database does, and what is restored from them: what was committed up to the end of the
//! backup, and nothing else.

use base::time::{MICROSECOND_NS, MILLISECOND_NS};
use base::{Lsn, Random};
use driver::OpKind;
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::checkpoint::{Policy, Strategy, SweepSettings};
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{
    Asked, BackupError, BackupSettings, Database, Direction, Error, Internals, PartitionSpec, RestoreSource, Result,
    Settings, buffer, log,
};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media};

use crate::ground::backups::{lose, names, on, restored, under};

const KEYS: u64 = 400;

fn settings(cache: Option<CacheSettings>) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 60, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 2 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache, ..second_level::Settings::default() },
        checkpoint: Policy { log_bytes: Some(256 << 10), interval_ns: Some(20 * MILLISECOND_NS) },
        ..Settings::default()
    }
}

fn to(target: &str, bytes_per_second: u64) -> BackupSettings {
    BackupSettings { target: target.into(), base: None, bytes_per_second: Some(bytes_per_second) }
}

fn since(base: &str, target: &str, bytes_per_second: u64) -> BackupSettings {
    BackupSettings { base: Some(base.into()), ..to(target, bytes_per_second) }
}

fn from(backup: &str) -> RestoreSource {
    RestoreSource { backup: backup.into(), ..RestoreSource::default() }
}

/// What writers have done: for each key the values that it got, each with positions of the log before and after its commit.
#[derive(Default)]
struct History {
    writes: RefCell<Vec<(u64, u64, Lsn, Lsn)>>,
    is_over: Cell<bool>,
}

const PARTITIONS: [&str; 3] = ["tree", "set", "objects"];

async fn create(executor: &Executor, settings: Settings) -> Result<Database> {
    let database = Database::create(executor, settings).await?;
    database.create_partition(PartitionSpec::b_tree("tree")).await?;
    let objects = Organization::Direct { objects: KEYS, blocking_factor: 4, record_size: 100 };
    database.create_partition(PartitionSpec::new("objects", objects, Locking::Record)).await?;
    let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 20 };
    database.create_partition(PartitionSpec::new("set", set, Locking::Record)).await?;
    Ok(database)
}

/// A value that takes some room.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; 60 + number as usize % 40];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// Writes to all partitions, in one transaction each time, until it is told to end.
async fn write(database: Database, history: Rc<History>, seed: u64) -> Result<()> {
    let mut random = Random::stream(seed, "writer");
    let ids = PARTITIONS.map(|name| database.partition(name).expect("it is there"));
    let mut number = seed << 32;
    while !history.is_over.get() {
        number += 1;
        let key = random.below(KEYS);
        let before = database.log().end();
        let written = database.transaction(async |tx| {
            tx.put(ids[0], &key.to_be_bytes(), &value(number)).await?;
            tx.put(ids[1], &key.to_be_bytes(), &value(number)).await?;
            tx.modify_object(ids[2], key, |bytes| bytes[..8].copy_from_slice(&number.to_be_bytes())).await?;
            Ok::<(), Error>(())
        });
        written.await?;
        let after = database.log().end();
        history.writes.borrow_mut().push((key, number, before, after));
        database.executor().sleep_ns(300 * MICROSECOND_NS).await;
    }
    Ok(())
}

/// Every key has in all partitions the same value: of a write that had not begun after `end`, and none older than what had
/// ended before it.
async fn verify(database: &Database, history: &History, end: Lsn) -> Result<()> {
    let ids = PARTITIONS.map(|name| database.partition(name).expect("it is there"));
    let writes = history.writes.take();
    let mut seen = 0;
    for key in 0..KEYS {
        let mut found = Vec::new();
        let mut tx = database.begin().await?;
        for id in &ids[..2] {
            let stored = tx.get(*id, &key.to_be_bytes()).await?;
            found.push(stored.map_or(0, |value| u64::from_be_bytes(*value.first_chunk().expect("eight bytes"))));
        }
        found.push(tx.read_object(ids[2], key, |bytes| u64::from_be_bytes(*bytes.first_chunk().unwrap())).await?);
        tx.commit().await?;
        assert!(found.iter().all(|number| *number == found[0]), "key {key}: {found:?}");
        let of_key = || writes.iter().filter(|(of, ..)| *of == key);
        let expected = of_key().filter(|(.., after)| *after <= end).max_by_key(|(.., after)| *after);
        let shown = of_key().find(|(_, number, ..)| *number == found[0]);
        if let Some((_, number, before, after)) = shown {
            assert!(*before < end, "key {key} has a write that began at {before}, the end is {end}");
            let (_, newest, _, until) = expected.copied().unwrap_or((key, *number, *before, Lsn::ZERO));
            assert!(newest == *number || *after >= until, "key {key} has {number}, but {newest} was there");
            seen += 1;
        } else {
            assert!(found[0] == 0 && expected.is_none(), "key {key}: {found:?}, expected {expected:?}");
        }
    }
    assert!(seen > 0, "something was written");
    Ok(())
}

/// Takes a backup beside three writers and `work`, loses the database, and restores it. Returns the restored database.
async fn backed_up_beside(
    executor: &Executor,
    settings: &Settings,
    work: impl AsyncFnOnce(&Database) -> Result<()>,
    then: impl AsyncFnOnce(&Database) -> Result<()>,
) -> Result<()> {
    let database = create(executor, settings.clone()).await?;
    let history = Rc::new(History::default());
    let writers: Vec<_> =
        (1..4).map(|seed| executor.spawn(write(database.clone(), Rc::clone(&history), seed))).collect();
    executor.sleep_ns(30 * MILLISECOND_NS).await;
    let other = database.clone();
    let backup = executor.spawn(async move { other.backup(&to("backup", 4 << 20), |_| {}).await });
    work(&database).await?;
    let report = backup.join().await?;
    let after = history.writes.borrow().len();
    executor.sleep_ns(30 * MILLISECOND_NS).await;
    assert!(history.writes.borrow().len() > after, "writers go on");
    history.is_over.set(true);
    for writer in writers {
        writer.join().await?;
    }
    database.close().await?;
    let (database, restored) = restored(executor, settings, &from("backup")).await?;
    assert_eq!(restored.end, report.end);
    verify(&database, &history, report.end).await?;
    then(&database).await?;
    // It goes on like any other.
    database.transaction(async |tx| tx.put(database.partition("tree")?, b"new", b"value").await).await?;
    database.close().await
}

#[test]
fn a_backup_beside_writers_shows_what_was_committed_at_its_end() {
    let nothing = async |_: &Database| Ok(());
    on(&Media::new(), async |executor| backed_up_beside(executor, &settings(None), nothing, nothing).await)
        .expect("backs up and restores");
}

#[test]
fn a_backup_beside_a_log_whose_file_grows_shows_what_was_committed_at_its_end() {
    let capacity = 16 << 20;
    let log = log::Settings { capacity, first_extent: 0, ..log::Settings::default() };
    let settings = Settings { log, ..settings(None) };
    let work = async |database: &Database| {
        let before = database.log().extent();
        database.executor().sleep_ns(20 * MILLISECOND_NS).await;
        assert!(database.log().extent() > before, "{before}");
        Ok(())
    };
    let then = async |database: &Database| {
        assert!(database.log().extent() < capacity, "what is restored grows, too");
        Ok(())
    };
    on(&Media::new(), async |executor| backed_up_beside(executor, &settings, work, then).await)
        .expect("backs up and restores");
}

#[test]
fn a_log_that_has_moved_is_backed_up_and_restored() {
    let put = async |database: &Database, numbers: std::ops::Range<u64>| {
        let tree = database.partition("tree")?;
        for number in numbers {
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &value(number)).await).await?;
        }
        Ok::<(), Error>(())
    };
    let moved = async |executor: &Executor| {
        let database = create(executor, settings(None)).await?;
        put(&database, 0..100).await?;
        database.close().await?;
        let asked = Asked { log_device: Some("flash".into()), log_size: Some(1 << 20), ..Asked::default() };
        let database = Database::open(executor, Settings { asked, ..settings(None) }, "moved").await?;
        put(&database, 100..200).await?;
        assert!(database.log().circle().origin > 0);
        database.backup(&to("backup", 4 << 20), |_| {}).await?;
        database.close().await?;
        let (database, _) = restored(executor, &settings(None), &from("backup")).await?;
        put(&database, 200..800).await?;
        let circle = database.log().circle();
        assert!(database.log().end().0 > circle.origin + circle.size, "it goes round");
        let tree = database.partition("tree")?;
        for number in 0..800_u64 {
            let found = database.transaction(async |tx| tx.get(tree, &number.to_be_bytes()).await).await?;
            assert_eq!(found, Some(value(number)), "{number}");
        }
        database.close().await
    };
    on(&Media::new(), moved).expect("backs up and restores");
}

#[test]
fn a_backup_has_pages_that_only_a_cache_has() {
    for design in second_level::DESIGNS {
        let cache = CacheSettings { design: *design, volatile: Some(false), ..CacheSettings::new("flash", 150) };
        let nothing = async |_: &Database| Ok(());
        let settings = settings(Some(cache));
        on(&Media::new(), async |executor| backed_up_beside(executor, &settings, nothing, nothing).await)
            .unwrap_or_else(|error| panic!("{}: {error}", design.name()));
    }
}

#[test]
fn partitions_that_come_and_go_beside_a_backup_are_there_if_they_were_at_its_end() {
    let work = async |database: &Database| {
        for round in 0..6_u64 {
            let set = PartitionSpec::new(&format!("set-{round}"), Organization::set(false), Locking::Record);
            for spec in [PartitionSpec::b_tree(&format!("tree-{round}")), set] {
                let id = database.create_partition(spec).await?;
                database.transaction(async |tx| tx.put(id, b"key", &value(round)).await).await?;
                if round % 2 == 0 {
                    database.drop_partition(id).await?;
                }
            }
            database.executor().sleep_ns(MILLISECOND_NS).await;
        }
        Ok(())
    };
    let then = async |database: &Database| {
        for partition in database.partitions() {
            if let Some((_, round)) = partition.name.split_once('-') {
                let key = database.transaction(async |tx| tx.get(partition.id(), b"key").await).await?;
                let expected = value(round.parse().expect("a number"));
                assert!(key.is_none_or(|found| found == expected), "partition '{}'", partition.name);
            }
        }
        Ok(())
    };
    on(&Media::new(), async |executor| backed_up_beside(executor, &settings(None), work, then).await)
        .expect("backs up and restores");
}

#[test]
fn a_backup_beside_sweeps_that_follow_each_other_has_sets_of_one_moment() {
    let nothing = async |_: &Database| Ok(());
    for strategy in Strategy::ALL {
        let sweep = SweepSettings { strategy, interval_ns: Some(0), device_percent: 100, ..SweepSettings::default() };
        let settings = Settings { sweep, ..settings(None) };
        on(&Media::new(), async |executor| backed_up_beside(executor, &settings, nothing, nothing).await)
            .unwrap_or_else(|error| panic!("{strategy:?}: {error}"));
    }
}

#[test]
fn an_index_that_is_made_beside_a_backup_is_one_afterwards() {
    let record = || RecordType::new([("group", FieldType::U32), ("name", FieldType::Text)]).expect("sound");
    let stored = move |group: u32, name: &str| {
        let mut value = Vec::new();
        let fields = [FieldValue::U32(group), FieldValue::Text(name)];
        record().encode(&fields, &mut value).expect("suits");
        value
    };
    let work = async |database: &Database| {
        let spec = PartitionSpec::b_tree("typed").record(record()).secondary("by_group", &["group"]);
        let typed = database.create_partition(spec).await?;
        for number in 0..50_u32 {
            let value = stored(number % 7, "some");
            database.transaction(async |tx| tx.put(typed, &number.to_be_bytes(), &value).await).await?;
        }
        database.create_index(typed, IndexSpec::new("by_name", &["name"])).await.map(drop)
    };
    let then = async |database: &Database| {
        let typed = database.partition("typed")?;
        let value = stored(3, "other");
        database.transaction(async |tx| tx.put(typed, b"more", &value).await).await?;
        for (index, expected) in [("by_group", 51), ("by_name", 51)] {
            let index = database.secondary(typed, index)?;
            let mut found = 0;
            let mut tx = database.begin().await?;
            let keep = |_: &[u8], _: &[u8]| {
                found += 1;
                true
            };
            tx.range(typed, index, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, keep).await?;
            tx.commit().await?;
            assert_eq!(found, expected);
        }
        Ok(())
    };
    on(&Media::new(), async |executor| backed_up_beside(executor, &settings(None), work, then).await)
        .expect("backs up and restores");
}

/// Partitions that are loaded while a backup is under way, from its very beginning on.
async fn load(database: &Database) -> Result<()> {
    let tree = database.create_partition(PartitionSpec::b_tree("loaded-tree")).await?;
    let set = PartitionSpec::new("loaded-set", Organization::set(false), Locking::Record);
    let set = database.create_partition(set).await?;
    database.executor().sleep_ns(2 * MILLISECOND_NS).await;
    let records = || (0..500_u64).map(|number| (number.to_be_bytes(), value(number)));
    database.load_b_tree(tree, records(), |_| {}).await?;
    database.load_set(set, records(), |_| {}).await
}

#[test]
fn what_is_loaded_past_the_log_beside_a_backup_is_in_it() {
    let then = async |database: &Database| {
        for name in ["loaded-tree", "loaded-set"] {
            let id = database.partition(name)?;
            for number in (0..500_u64).step_by(37) {
                let found = database.transaction(async |tx| tx.get(id, &number.to_be_bytes()).await).await?;
                assert_eq!(found, Some(value(number)), "{name}, {number}");
            }
        }
        Ok(())
    };
    let slow = Settings { ..settings(None) };
    on(&Media::new(), async |executor| backed_up_beside(executor, &slow, load, then).await)
        .expect("backs up and restores");
}

#[test]
fn a_partition_that_is_loaded_behind_the_copy_of_it_is_copied_again() {
    on(&Media::new(), async |executor| {
        let database = create(executor, settings(None)).await?;
        let early = database.create_partition(PartitionSpec::b_tree("early")).await?;
        let late = database.create_partition(PartitionSpec::b_tree("late")).await?;
        let records = || (0..1_000_u64).map(|number| (number.to_be_bytes(), value(number)));
        database.load_b_tree(late, records(), |_| {}).await?;
        let other = database.clone();
        // The pages of each empty tree take an eighth of a second; those of the last one follow.
        let backup = executor.spawn(async move { other.backup(&to("backup", 1 << 14), |_| {}).await });
        executor.sleep_ns(160 * MILLISECOND_NS).await;
        database.load_b_tree(early, records(), |_| {}).await?;
        let loaded = database.log().end();
        let report = backup.join().await?;
        assert!(report.end >= loaded, "the load has ended before the backup");
        database.close().await?;
        let (database, _) = restored(executor, &settings(None), &from("backup")).await?;
        for number in (0..1_000_u64).step_by(37) {
            let found = database.transaction(async |tx| tx.get(early, &number.to_be_bytes()).await).await?;
            assert_eq!(found, Some(value(number)));
        }
        database.close().await
    })
    .expect("backs up and restores");
}

#[test]
fn a_backup_goes_into_an_empty_place_alone() {
    on(&Media::new(), async |executor| {
        let database = create(executor, settings(None)).await?;
        database.backup(&to("backup", 1 << 30), |_| {}).await?;
        let again = database.backup(&to("backup", 1 << 30), |_| {}).await;
        let (place, file) = ("backup".to_owned(), "data".to_owned());
        assert_eq!(again, Err(BackupError::NotEmpty { place, file }.into()));
        let elsewhere = database.backup(&to("nowhere", 1 << 30), |_| {}).await;
        assert_eq!(elsewhere, Err(Error::NoDevice("nowhere".into())));
        assert_eq!(names(executor, "backup").await, ["data", "entresol.backup", "log"]);
        database.close().await
    })
    .expect("goes on");
}

/// A full backup and two increments, each beside writers, with a restart and a load between them.
#[test]
fn an_increment_has_what_was_changed_since_its_base() {
    let media = Media::new();
    let history = Rc::new(History::default());
    let end = on(&media, async |executor| {
        let database = create(executor, settings(None)).await?;
        let many = database.create_partition(PartitionSpec::b_tree("many")).await?;
        let records = (0..4_000_u64).map(|number| (number.to_be_bytes(), value(number)));
        database.load_b_tree(many, records, |_| {}).await?;
        let full = increments(&database, &history, None).await?;
        let second = increments(&database, &history, Some(("backup", "next"))).await?;
        assert!(2 * second.pages < full.pages, "{} of {} pages were not changed", second.pages, full.pages);
        database.close().await?;
        let database = Database::open(executor, settings(None), "disk").await?;
        load(&database).await?;
        let third = increments(&database, &history, Some(("next", "archive"))).await?;
        database.close().await?;
        Ok::<_, Error>(third.end)
    });
    let end = end.expect("backs up");
    on(&media, async |executor| {
        let (database, report) = restored(executor, &settings(None), &from("archive")).await?;
        assert_eq!(report.end, end);
        verify(&database, &history, end).await?;
        for name in ["many", "loaded-tree", "loaded-set"] {
            let id = database.partition(name)?;
            for number in (0..500_u64).step_by(37) {
                let found = database.transaction(async |tx| tx.get(id, &number.to_be_bytes()).await).await?;
                assert_eq!(found, Some(value(number)), "{name}, {number}");
            }
        }
        // It goes on from that backup, and from no other of the history before.
        lose(executor, &["next"]).await;
        let foreign = database.backup(&since("backup", "next", 1 << 30), |_| {}).await;
        assert!(matches!(foreign, Err(Error::Backup(BackupError::ForeignBase { .. }))), "{foreign:?}");
        database.backup(&since("archive", "next", 1 << 30), |_| {}).await?;
        database.close().await
    })
    .expect("restores");
    on(&media, async |executor| {
        lose(executor, &["disk", "backup"]).await;
        let result = Database::restore(executor, &settings(None), &from("archive"), |_| {}).await;
        assert!(matches!(&result, Err(Error::Backup(BackupError::BaseMissing { .. }))), "{result:?}");
        assert_eq!(names(executor, "disk").await, [""; 0]);
    });
}

/// A backup, full or an increment from one place to another, beside a writer.
async fn increments(
    database: &Database,
    history: &Rc<History>,
    step: Option<(&str, &str)>,
) -> Result<entresol_engine::BackupReport> {
    history.is_over.set(false);
    let seed = 1 + history.writes.borrow().len() as u64;
    let writer = database.executor().spawn(write(database.clone(), Rc::clone(history), seed));
    database.executor().sleep_ns(5 * MILLISECOND_NS).await;
    let backup = step.map_or(to("backup", 8 << 20), |(base, target)| since(base, target, 8 << 20));
    let report = database.backup(&backup, |_| {}).await?;
    history.is_over.set(true);
    writer.join().await?;
    Ok(report)
}

#[test]
fn a_restore_writes_over_nothing() {
    on(&Media::new(), async |executor| {
        let database = create(executor, settings(None)).await?;
        database.backup(&to("backup", 1 << 30), |_| {}).await?;
        database.close().await?;
        let before = names(executor, "disk").await;
        let result = Database::restore(executor, &settings(None), &from("backup"), |_| {}).await;
        assert!(matches!(&result, Err(Error::Backup(BackupError::Occupied { device, .. })) if device == "disk"));
        assert_eq!(names(executor, "disk").await, before);
        Database::open(executor, settings(None), "disk").await?.close().await
    })
    .expect("goes on");
}

#[test]
fn a_place_without_a_whole_backup_is_named() {
    on(&Media::new(), async |executor| {
        let result = Database::restore(executor, &settings(None), &from("backup"), |_| {}).await;
        assert!(matches!(result, Err(Error::Backup(BackupError::NotABackup { .. }))), "{result:?}");
    });
}

/// An operation of this kind on the backup's device fails.
fn failing(kind: OpKind, nth: u64) -> FaultPlan {
    FaultPlan { errors: vec![ErrorAt { kind, device: Some("backup".into()), nth }], ..FaultPlan::default() }
}

#[test]
fn a_backup_that_fails_leaves_nothing_and_the_database_goes_on() {
    for (kind, count) in [(OpKind::Open, 3), (OpKind::Write, 6), (OpKind::Sync, 3)] {
        for nth in 1..=count {
            under(failing(kind, nth), &Media::new(), async |executor| {
                let database = create(executor, settings(None)).await?;
                let failed = database.backup(&to("backup", 1 << 30), |_| {}).await;
                assert!(matches!(failed, Err(Error::Input(_))), "{kind:?} {nth}: {failed:?}");
                assert_eq!(names(executor, "backup").await, [""; 0], "{kind:?} {nth}");
                // The log is given up as before.
                let held = database.log().oldest();
                let tree = database.partition("tree")?;
                for number in 0..20_u64 {
                    database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[7; 500]).await).await?;
                }
                database.checkpoint().await?;
                assert!(database.log().oldest() > held);
                database.backup(&to("backup", 1 << 30), |_| {}).await?;
                database.close().await
            })
            .expect("goes on");
        }
    }
}

#[test]
fn transactions_do_not_wait_for_a_backup_that_cannot_keep_up() {
    on(&Media::new(), async |executor| {
        let database = create(executor, settings(None)).await?;
        let tree = database.partition("tree")?;
        for number in 0..500_u64 {
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &value(number)).await).await?;
        }
        executor.device("backup").expect("it is there");
        let other = database.clone();
        let backup = executor.spawn(async move { other.backup(&to("backup", 1 << 10), |_| {}).await });
        for number in 0..8_000_u64 {
            let write =
                database.transaction(async |tx| tx.put(tree, &(number % 500).to_be_bytes(), &value(number)).await);
            write.await?;
        }
        // The log was copied beside the pages, so that it never filled; the backup goes on, slowly.
        assert!(database.log().used() < database.log().capacity());
        drop(backup);
        database.close().await
    })
    .expect("goes on");
}

#[test]
fn any_damage_of_a_backup_is_found() {
    let media = Media::new();
    on(&media, async |executor| {
        let database = create(executor, settings(None)).await?;
        let tree = database.partition("tree")?;
        let fill = async |from: u64| {
            for number in from..from + 200 {
                database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &value(number)).await).await?;
            }
            Ok::<(), Error>(())
        };
        fill(0).await?;
        let other = database.clone();
        let backup = executor.spawn(async move { other.backup(&to("backup", 1 << 20), |_| {}).await });
        fill(200).await?;
        backup.join().await?;
        database.close().await
    })
    .expect("backs up");
    for (file, offsets) in [("data", [100, 9_000]), ("log", [40, 300]), ("entresol.backup", [16, 60])] {
        for offset in offsets {
            let damage = |media: &Media| media.flip_bit("backup", file, offset, 1).expect("it is there");
            damage(&media);
            on(&media, async |executor| {
                lose(executor, &["disk", "flash"]).await;
                let result = Database::restore(executor, &settings(None), &from("backup"), |_| {}).await;
                let Err(Error::Backup(BackupError::Damaged { file: named, .. })) = result else {
                    panic!("'{file}' at {offset}: {result:?}")
                };
                assert_eq!(named, file);
                let opened = Database::open(executor, settings(None), "disk").await;
                assert!(matches!(opened, Err(Error::NotADatabase { .. })), "what is left is no database");
            });
            damage(&media);
        }
    }
    on(&media, async |executor| restored(executor, &settings(None), &from("backup")).await.map(drop))
        .expect("what an earlier attempt has left is no hindrance");
}

#[cfg(feature = "canary")]
mod planted {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_backup_that_leaves_changing_pages_out_is_found() {
        is_found(Canary::BackupPastChanges, super::a_backup_beside_writers_shows_what_was_committed_at_its_end);
    }

    #[test]
    fn a_backup_that_forgets_the_end_of_the_log_is_found() {
        is_found(Canary::ForgottenTail, super::a_backup_beside_writers_shows_what_was_committed_at_its_end);
    }

    #[test]
    fn a_sweep_over_what_a_backup_reads_is_found() {
        is_found(Canary::UnpinnedCopy, super::a_backup_beside_sweeps_that_follow_each_other_has_sets_of_one_moment);
    }

    #[test]
    fn a_backup_that_misses_a_load_is_found() {
        is_found(Canary::UncopiedLoad, super::a_partition_that_is_loaded_behind_the_copy_of_it_is_copied_again);
    }
}
