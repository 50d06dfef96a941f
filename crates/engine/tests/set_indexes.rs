//! Secondary indexes that sets get later, beside writers: what they show, at which moments, after a restart, and what is refused.

use crate::ground::building::{built_beside_writers, cut_while_building};
use crate::ground::machine::run;
use crate::ground::things::*;
use base::{PartitionId, Random};
use entresol_engine::catalog::IndexSpec;
use entresol_engine::set::{FieldError, FieldType, FieldValue, RecordType};
use entresol_engine::{Database, Direction, Error, PartitionSpec, Settings, Snapshot, version};
use virtual_driver::Media;

fn set() -> PartitionSpec {
    PartitionSpec::set("things").record(record())
}

fn by_group() -> IndexSpec {
    IndexSpec::new("by_group", &["group", "weight"])
}

fn keeping() -> Settings {
    let undo = version::UndoSettings { retention_ns: 60_000_000_000, ..version::UndoSettings::default() };
    Settings { undo, ..settings() }
}

async fn read(database: &Database, (things, index): (PartitionId, usize)) -> Vec<Vec<u8>> {
    database.transaction(async |tx| keys(tx, (things, index), ALL, Direction::Forward).await).await.expect("reads")
}

async fn read_past(
    past: &mut Snapshot,
    (things, index): (PartitionId, usize),
    direction: Direction,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut found = Vec::new();
    let keep = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        true
    };
    past.range(things, index, ALL, direction, keep).await?;
    Ok(found)
}

#[test]
fn a_set_gets_an_index_that_orders_its_records_in_both_directions() {
    let media = Media::new();
    let model = some(600);
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set()).await.expect("creates");
        put_all(&database, things, &model).await;
        let index = database.create_index(things, by_group()).await.expect("is created");
        assert_eq!(database.secondary(things, "by_group"), Ok(index));
        assert_eq!(database.statistics().indexed_records.get(), 600);
        assert_eq!(read(&database, (things, index)).await, by_group_in(&model));
        let backward = async |tx: &mut entresol_engine::Transaction| {
            let mut found = keys(tx, (things, index), ALL, Direction::Backward).await?;
            found.reverse();
            Ok::<_, Error>(found)
        };
        assert_eq!(database.transaction(backward).await, Ok(by_group_in(&model)));
        check(&database).await;
    });
    // It is there again without any checkpoint.
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        let things = database.partition("things").expect("it exists");
        let index = database.secondary(things, "by_group").expect("it exists");
        assert_eq!(read(&database, (things, index)).await, by_group_in(&model));
        check(&database).await;
    });
}

#[test]
fn indexes_of_a_set_are_created_and_dropped_beside_writers() {
    for seed in 0..6 {
        assert_eq!(built_beside_writers(PartitionSpec::set("things"), seed), Vec::<String>::new());
    }
}

/// A number tells an index from those before it, also when the first ones are gone, and after a restart.
#[test]
fn an_index_keeps_its_number_while_others_come_and_go() {
    let (media, model) = (Media::new(), some(50));
    let spec = set().secondary("first", &["name"]).secondary("second", &["weight"]);
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(spec).await.expect("creates");
        put_all(&database, things, &model).await;
        let second = database.secondary(things, "second").expect("it exists");
        database.drop_index(things, "first").await.expect("is dropped");
        let third = database.create_index(things, by_group()).await.expect("is created");
        assert_eq!(database.secondary(things, "second"), Ok(second));
        assert!(database.secondary(things, "first").is_err() && third != second);
        let gone = database.transaction(async |tx| keys(tx, (things, 0), ALL, Direction::Forward).await).await;
        assert!(matches!(gone, Err(Error::Field { error: FieldError::NoSecondary(_), .. })), "{gone:?}");
        assert_eq!(read(&database, (things, third)).await, by_group_in(&model));
        database.close().await.expect("closes");
    });
    for _ in 0..2 {
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "test").await.expect("opens");
            let things = database.partition("things").expect("it exists");
            assert!(database.secondary(things, "first").is_err());
            assert!(database.secondary(things, "second").is_ok());
            let third = database.secondary(things, "by_group").expect("it exists");
            assert_eq!(read(&database, (things, third)).await, by_group_in(&model));
            check(&database).await;
            database.checkpoint().await.expect("is taken");
            database.close().await.expect("closes");
        });
    }
}

#[test]
fn who_reads_a_moment_before_an_index_of_a_set_is_told_so_and_later_ones_see_their_own() {
    let media = Media::new();
    let (mut model, mut moments) = (some(120), Vec::new());
    let random = &mut Random::stream(7, "moments");
    let mut before = None;
    run(&media, async |executor| {
        let database = Database::create(executor, keeping()).await.expect("creates");
        let things = database.create_partition(set()).await.expect("creates");
        put_all(&database, things, &model).await;
        let early = database.snapshot().await.expect("reads").moment();
        before = Some(early);
        // Another moment than that of the index.
        let (key, new) = (149_u32.to_be_bytes(), thing(1, 1, "between"));
        database.transaction(async |tx| tx.put(things, &key, &stored(&new)).await).await.expect("puts");
        model.insert(key.to_vec(), new);
        let index = database.create_index(things, by_group()).await.expect("is created");
        for _ in 0..20 {
            let work = async |tx: &mut entresol_engine::Transaction| {
                for _ in 0..4 {
                    let key = (random.below(150) as u32).to_be_bytes().to_vec();
                    if random.chance(0.4) {
                        tx.delete(things, &key).await?;
                        model.remove(&key);
                    } else {
                        let new = thing(random.below(4) as u32, random.below(6) as i64, "new");
                        tx.put(things, &key, &stored(&new)).await?;
                        model.insert(key, new);
                    }
                }
                Ok::<_, Error>(())
            };
            database.transaction(work).await.expect("changes");
            moments.push((database.snapshot().await.expect("reads").moment(), model.clone()));
        }
        for (moment, then) in &moments {
            let mut past = database.as_of(*moment).await.expect("is kept");
            let mut backward = read_past(&mut past, (things, index), Direction::Backward).await.expect("reads");
            backward.reverse();
            assert_eq!(backward, by_group_in(then));
        }
        let mut past = database.as_of(early).await.expect("is kept");
        let refused = read_past(&mut past, (things, index), Direction::Forward).await;
        assert!(matches!(refused, Err(Error::SnapshotTooOld { .. })), "{refused:?}");
        drop(past);
        database.close().await.expect("closes");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, keeping(), "test").await.expect("opens");
        let things = database.partition("things").expect("it exists");
        let index = database.secondary(things, "by_group").expect("it exists");
        for (moment, then) in &moments {
            let mut past = database.as_of(*moment).await.expect("is kept over the restart");
            assert_eq!(read_past(&mut past, (things, index), Direction::Forward).await, Ok(by_group_in(then)));
        }
        let mut past = database.as_of(before.expect("was noted")).await.expect("is kept over the restart");
        let refused = read_past(&mut past, (things, index), Direction::Forward).await;
        assert!(matches!(refused, Err(Error::SnapshotTooOld { .. })), "{refused:?}");
    });
}

#[test]
fn what_cannot_be_indexed_in_a_set_is_named_and_leaves_nothing() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set()).await.expect("creates");
        let plain = database.create_partition(PartitionSpec::set("plain")).await.expect("creates");
        put_all(&database, things, &some(10)).await;
        let before = database.describe(things).expect("is there");
        let unknown = database.create_index(things, IndexSpec::new("by_town", &["town"])).await;
        let error = Error::Field { partition: "things".into(), error: FieldError::Unknown("town".into()) };
        assert_eq!(unknown, Err(error));
        let untyped = database.create_index(plain, by_group()).await.expect_err("it has no type");
        assert!(untyped.to_string().contains("its records have no fields"), "{untyped}");
        let none = database.create_index(things, IndexSpec::new("empty", &[])).await;
        assert!(matches!(none, Err(Error::Field { error: FieldError::SecondaryEmpty(_), .. })), "{none:?}");
        assert_eq!(database.describe(things).expect("is there"), before);
        database.create_index(things, by_group()).await.expect("is created");
        let twice = database.create_index(things, by_group()).await;
        assert!(matches!(twice, Err(Error::Field { error: FieldError::SecondaryTwice(_), .. })), "{twice:?}");
        // Records that are not of the type that an index brings are named by their keys, and the set stays without.
        database.transaction(async |tx| tx.put(plain, b"key", b"short").await).await.expect("puts");
        let brought = by_group().record(record());
        let error = database.create_index(plain, brought.clone()).await.expect_err("it is no record");
        assert!(matches!(&error, Error::Unsuitable(what) if what.contains("record with key 6b6579")), "{error}");
        assert_eq!(database.describe(plain).expect("is there").schema, None);
        database.transaction(async |tx| tx.put(plain, b"other", b"short, too").await).await.expect("has no type");
        for key in [&b"key"[..], b"other"] {
            let new = stored(&thing(1, 2, "sound"));
            database.transaction(async |tx| tx.put(plain, key, &new).await).await.expect("puts");
        }
        let index = database.create_index(plain, brought).await.expect("all are of the type now");
        assert_eq!(read(&database, (plain, index)).await, [b"key".to_vec(), b"other".to_vec()]);
        let short = database.transaction(async |tx| tx.put(plain, b"key", b"short").await).await;
        assert!(matches!(short, Err(Error::Field { .. })), "{short:?}");
        check(&database).await;
    });
}

#[test]
fn a_type_that_an_index_has_brought_to_a_set_stays_after_a_restart() {
    let media = Media::new();
    let other = RecordType::new([("group", FieldType::U32)]).expect("sound");
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let plain = database.create_partition(PartitionSpec::set("things")).await.expect("creates");
        put_all(&database, plain, &some(30)).await;
        database.create_index(plain, by_group().record(record())).await.expect("is created");
        database.drop_index(plain, "by_group").await.expect("is dropped");
        let differs = database.create_index(plain, IndexSpec::new("late", &["group"]).record(other)).await;
        assert!(matches!(differs, Err(Error::WrongOrganization { .. })), "{differs:?}");
        database.create_index(plain, IndexSpec::new("late", &["weight"])).await.expect("is created");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        let things = database.partition("things").expect("it exists");
        assert!(database.secondary(things, "by_group").is_err());
        let late = database.secondary(things, "late").expect("it exists");
        assert_eq!(read(&database, (things, late)).await.len(), 30);
        let short = database.transaction(async |tx| tx.put(things, b"key", b"short").await).await;
        assert!(matches!(short, Err(Error::Field { .. })), "{short:?}");
        check(&database).await;
    });
}

/// A transaction that had begun before the index had all records has locked gaps that a reader of the whole index would pass between.
#[test]
fn no_phantom_comes_from_a_transaction_that_met_the_index_half_built() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set()).await.expect("creates");
        put_all(&database, things, &some(2_000)).await;
        let creating = executor.spawn({
            let database = database.clone();
            async move { database.create_index(things, by_group()).await }
        });
        while database.index_builds().first().is_none_or(|build| build.records == 0) {
            executor.yield_now().await;
        }
        let progress = database.index_builds().remove(0);
        assert!(progress.partition == "things" && progress.index == "by_group" && progress.records < 2_000);
        let mut tx = database.begin().await.expect("begins");
        let key = 17_u32.to_be_bytes();
        assert_eq!(tx.delete(things, &key).await, Ok(true));
        executor.sleep_ns(1_000_000_000).await;
        assert!(!creating.is_finished(), "its end is waited for");
        tx.rollback().await.expect("rolls back");
        let index = creating.join().await.expect("is created");
        assert_eq!(read(&database, (things, index)).await, by_group_in(&some(2_000)));
        assert_eq!(database.index_builds(), []);
    });
}

#[test]
fn a_drop_ends_a_creation_and_the_name_is_free_then() {
    for spec in [set(), PartitionSpec::b_tree("things").record(record())] {
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database.create_partition(spec).await.expect("creates");
            put_all(&database, things, &some(2_000)).await;
            let create = || {
                let database = database.clone();
                executor.spawn(async move { database.create_index(things, by_group()).await })
            };
            let creating = create();
            let is_set = database.describe(things).expect("is there").set_settings().is_some();
            while database.index_builds().first().is_none_or(|build| build.records == 0) {
                if is_set {
                    executor.yield_now().await;
                } else {
                    executor.sleep_ns(1_000).await;
                }
            }
            let other = database.create_index(things, IndexSpec::new("other", &["name"])).await;
            assert_eq!(other, Err(Error::PartitionInUse("things".into())));
            database.drop_index(things, "by_group").await.expect("is given up");
            let error = FieldError::SecondaryDropped("by_group".into());
            assert_eq!(creating.join().await, Err(Error::Field { partition: "things".into(), error }));
            assert!(database.secondary(things, "by_group").is_err());
            assert_eq!(database.index_builds(), []);
            let index = create().join().await.expect("the name is free");
            assert_eq!(read(&database, (things, index)).await, by_group_in(&some(2_000)));
            check(&database).await;
        });
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_all_of_an_index_of_a_set_or_nothing() {
    cut_while_building(&set(), &by_group(), 200_000);
}

/// What takes the place of a set has its indexes, under numbers of its own.
#[test]
fn a_truncated_set_keeps_its_indexes_and_follows_changes_in_them() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set().secondary("first", &["name"])).await.expect("creates");
        put_all(&database, things, &some(40)).await;
        database.drop_index(things, "first").await.expect("is dropped");
        database.create_index(things, by_group()).await.expect("is created");
        let empty = database.truncate_partition(things).await.expect("is emptied");
        let index = database.secondary(empty, "by_group").expect("it exists");
        put_all(&database, empty, &some(20)).await;
        assert_eq!(read(&database, (empty, index)).await, by_group_in(&some(20)));
        database.rename_partition(empty, "others").await.expect("is renamed");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        let others = database.partition("others").expect("it exists");
        let index = database.secondary(others, "by_group").expect("it exists");
        assert_eq!(read(&database, (others, index)).await, by_group_in(&some(20)));
        check(&database).await;
    });
}

#[test]
fn arrivals_get_an_index_too() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let organization = entresol_engine::catalog::Organization::set(true);
        let locking = entresol_engine::catalog::Locking::Record;
        let spec = PartitionSpec::new("visits", organization, locking).record(record());
        let visits = database.create_partition(spec).await.expect("creates");
        let add = async |number: u32| {
            let new = stored(&thing(number % 3, i64::from(number), "came"));
            database.transaction(async |tx| tx.append(visits, &new).await).await.expect("is added");
        };
        for number in 0..700 {
            add(number).await;
        }
        let index = database.create_index(visits, by_group()).await.expect("is created");
        add(700).await;
        let one = [FieldValue::U32(1)];
        let bounds = (std::ops::Bound::Included(&one[..]), std::ops::Bound::Included(&one[..]));
        let of_one = database.transaction(async |tx| keys(tx, (visits, index), bounds, Direction::Forward).await).await;
        let expected: Vec<Vec<u8>> =
            (0..=700_u64).filter(|number| number % 3 == 1).map(|number| number.to_be_bytes().to_vec()).collect();
        assert_eq!(of_one, Ok(expected));
        check(&database).await;
    });
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn an_index_of_a_set_that_misses_changes_is_found() {
        plant(Some(Canary::MissedInSet));
        let found = (0..10)
            .map(|seed| built_beside_writers(PartitionSpec::set("things"), seed))
            .find(|found| !found.is_empty());
        plant(None);
        let found = found.expect("the planted bug is found");
        assert!(found[0].contains("index"), "{found:?}");
    }
}
