//! Secondary indexes of b-trees: ranges, changes, rollbacks, restarts, moments, creation and dropping beside writers.

use crate::ground::building::{built_beside_writers, cut_while_building};
use crate::ground::machine::run;
use crate::ground::things::*;
use base::{PartitionId, Random};
use entresol_engine::catalog::IndexSpec;
use entresol_engine::set::{FieldError, FieldType, FieldValue, RecordType};
use entresol_engine::{
    Database, Direction, Error, Internals, Isolation, PartitionSpec, Result, Settings, Transaction, version,
};
use executor::WholeExecutor;
use std::ops::Bound;
use virtual_driver::Media;

#[test]
fn ranges_go_both_ways_within_bounds_of_several_fields() {
    with_things(async |database, things, index| {
        let model = some(200);
        put_all(database, things, &model).await;
        let mut tx = database.begin().await.expect("begins");
        let forward = keys(&mut tx, (things, index), ALL, Direction::Forward).await.expect("reads");
        assert_eq!(forward, by_group_in(&model));
        let mut backward = keys(&mut tx, (things, index), ALL, Direction::Backward).await.expect("reads");
        backward.reverse();
        assert_eq!(backward, forward);
        let group = [FieldValue::U32(3)];
        let light = [FieldValue::U32(3), FieldValue::I64(0)];
        for (from, to, is_within) in [
            (
                Bound::Included(&group[..]),
                Bound::Included(&group[..]),
                (|thing: &Thing| thing.0 == 3) as fn(&Thing) -> bool,
            ),
            (Bound::Excluded(&group[..]), Bound::Unbounded, |thing| thing.0 > 3),
            (Bound::Included(&group[..]), Bound::Excluded(&light[..]), |thing| thing.0 == 3 && thing.1 < 0),
            (Bound::Excluded(&light[..]), Bound::Unbounded, |thing| (thing.0, thing.1) > (3, 0)),
            (Bound::Excluded(&group[..]), Bound::Excluded(&group[..]), |_| false),
        ] {
            let within: Model =
                model.iter().filter(|(_, thing)| is_within(thing)).map(|(k, v)| (k.clone(), v.clone())).collect();
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = keys(&mut tx, (things, index), (from, to), direction).await.expect("reads");
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(found, by_group_in(&within), "{from:?} to {to:?}");
            }
        }
        tx.commit().await.expect("commits");
    });
}

/// Makes a random change, also in the model.
async fn change(tx: &mut Transaction, things: PartitionId, model: &mut Model, random: &mut Random) -> Result<()> {
    let key = (random.below(40) as u32).to_be_bytes().to_vec();
    let new = thing(random.below(4) as u32, random.below(6) as i64 - 3, &"x".repeat(random.below(30) as usize));
    match random.below(6) {
        0 => {
            let was_there = tx.delete(things, &key).await?;
            assert_eq!(was_there, model.remove(&key).is_some());
        }
        1 => match tx.insert(things, &key, &stored(&new)).await {
            Err(Error::Duplicate(_)) => assert!(model.contains_key(&key)),
            done => {
                done?;
                assert!(model.insert(key, new).is_none());
            }
        },
        2 if model.contains_key(&key) => {
            tx.set_field(things, &key, 0, FieldValue::U32(new.0)).await?;
            tx.add_to_field(things, &key, 1, 1).await?;
            let present = model.get_mut(&key).expect("it is there");
            (present.0, present.1) = (new.0, present.1 + 1);
        }
        3 if model.contains_key(&key) => {
            tx.modify(things, &key, |value| value[..4].copy_from_slice(&new.0.to_le_bytes())).await?;
            model.get_mut(&key).expect("it is there").0 = new.0;
        }
        _ => {
            tx.put(things, &key, &stored(&new)).await?;
            model.insert(key, new);
        }
    }
    Ok(())
}

/// Random transactions with savepoints, some of which are rolled back; what is committed is the model's.
async fn transactions(
    database: &Database,
    (things, index): (PartitionId, usize),
    model: &mut Model,
    random: &mut Random,
    count: u64,
) {
    for _ in 0..count {
        let mut tx = database.begin().await.expect("begins");
        let mut own = model.clone();
        let mut saved = None;
        for _ in 0..random.between(1, 8) {
            change(&mut tx, things, &mut own, random).await.expect("changes");
            match (random.below(5), &saved) {
                (0, _) => saved = Some((tx.savepoint(), own.clone())),
                (1, Some((savepoint, then))) => {
                    tx.rollback_to(*savepoint).await.expect("goes back");
                    own = then.clone();
                }
                _ => {}
            }
        }
        let seen = keys(&mut tx, (things, index), ALL, Direction::Forward).await.expect("reads");
        assert_eq!(seen, by_group_in(&own));
        if random.chance(0.3) {
            tx.rollback().await.expect("rolls back");
        } else {
            tx.commit().await.expect("commits");
            *model = own;
        }
    }
}

#[test]
fn records_and_entries_change_together_and_are_taken_back_together() {
    for seed in 0..5 {
        with_things(async |database, things, index| {
            let (random, mut model) = (&mut Random::stream(seed, "indexes"), Model::new());
            transactions(database, (things, index), &mut model, random, 100).await;
            check(database).await;
        });
    }
}

/// A power cut at the end of this, with a transaction under way.
#[test]
fn a_restart_takes_entries_back_with_their_records() {
    for seed in 0..8 {
        let (media, mut model) = (Media::new(), Model::new());
        let random = &mut Random::stream(seed, "restarts");
        run(&media, async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database
                .create_partition(spec("things").index(IndexSpec::new("by_weight", &["weight"])))
                .await
                .expect("creates");
            let index = database.secondary(things, "by_group").expect("it exists");
            transactions(&database, (things, index), &mut model, random, 20).await;
            if seed % 2 == 0 {
                database.checkpoint().await.expect("is taken");
            }
            let mut tx = database.begin().await.expect("begins");
            let mut own = model.clone();
            for _ in 0..10 {
                change(&mut tx, things, &mut own, random).await.expect("changes");
            }
            database.log().flush(database.log().end()).await.expect("the log is durable");
            std::mem::forget(tx);
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "test").await.expect("opens");
            let things = database.partition("things").expect("it exists");
            let index = database.secondary(things, "by_group").expect("it exists");
            assert_eq!(database.describe(things).expect("is there").typed().expect("has a type").secondaries.len(), 2);
            check(&database).await;
            transactions(&database, (things, index), &mut model, random, 5).await;
            check(&database).await;
        });
    }
}

#[test]
fn an_index_that_a_partition_was_created_with_stays_dropped_after_a_restart() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(spec("things")).await.expect("creates");
        put_all(&database, things, &some(9)).await;
        database.drop_index(things, "by_group").await.expect("drops");
        database.close().await.expect("closes");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        let things = database.partition("things").expect("it exists");
        assert!(database.secondary(things, "by_group").is_err());
        let spec = IndexSpec::new("by_group", &["group", "weight"]);
        let index = database.create_index(things, spec).await.expect("the name is free");
        let all = database.transaction(async |tx| keys(tx, (things, index), ALL, Direction::Forward).await).await;
        assert_eq!(all.expect("reads"), by_group_in(&some(9)));
        check(&database).await;
    });
}

#[test]
fn readers_of_a_moment_see_the_index_of_that_moment() {
    let settings = Settings {
        undo: version::UndoSettings { retention_ns: 60_000_000_000, ..version::UndoSettings::default() },
        ..settings()
    };
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings).await.expect("creates");
        let things = database.create_partition(spec("things")).await.expect("creates");
        let index = database.secondary(things, "by_group").expect("it exists");
        let random = &mut Random::stream(1, "moments");
        let (mut model, mut moments) = (Model::new(), Vec::new());
        for _ in 0..20 {
            transactions(&database, (things, index), &mut model, random, 3).await;
            let snapshot = database.snapshot().await.expect("reads");
            moments.push((snapshot.moment(), model.clone()));
        }
        let late = database.create_index(things, IndexSpec::new("late", &["weight"])).await.expect("is created");
        for (moment, then) in moments {
            let mut past = database.as_of(moment).await.expect("is kept");
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = Vec::new();
                let keep = |key: &[u8], value: &[u8]| {
                    assert_eq!(value, stored(&then[key]), "a record as of the same moment");
                    found.push(key.to_vec());
                    true
                };
                past.range(things, index, ALL, direction, keep).await.expect("reads");
                if direction == Direction::Backward {
                    found.reverse();
                }
                assert_eq!(found, by_group_in(&then));
            }
            let early = past.range(things, late, ALL, Direction::Forward, |_, _| true).await;
            assert!(matches!(early, Err(Error::SnapshotTooOld { .. })), "{early:?}");
        }
        for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
            let mut tx = database.begin_at(isolation).await.expect("begins");
            let mut own = model.clone();
            for _ in 0..10 {
                change(&mut tx, things, &mut own, random).await.expect("changes");
                let seen = keys(&mut tx, (things, index), ALL, Direction::Forward).await.expect("reads");
                assert_eq!(seen, by_group_in(&own), "its own changes, {isolation:?}");
            }
            tx.rollback().await.expect("rolls back");
        }
    });
}

#[test]
fn a_unique_index_refuses_a_second_record_and_leaves_the_transaction_sound() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(spec("things").index(by_name())).await.expect("creates");
        let index = database.secondary(things, "by_name").expect("it exists");
        let put = |key: &'static [u8], name: &str| (key, stored(&thing(1, 2, name)));
        let mut tx = database.begin().await.expect("begins");
        for (key, value) in [put(b"a", "Ada"), put(b"b", "Bob")] {
            tx.insert(things, key, &value).await.expect("inserts");
        }
        let refused = |key: &[u8]| Err(not_unique("Ada", b"a", key));
        assert_eq!(tx.insert(things, b"c", &put(b"", "Ada").1).await, refused(b"c"));
        assert_eq!(tx.put(things, b"b", &put(b"", "Ada").1).await, refused(b"b"));
        assert_eq!(tx.set_field(things, b"b", 2, FieldValue::Text("Ada")).await, refused(b"b"));
        tx.delete(things, b"a").await.expect("deletes");
        tx.put(things, b"b", &put(b"", "Ada").1).await.expect("the name is free");
        assert_eq!(keys(&mut tx, (things, index), ALL, Direction::Forward).await, Ok(vec![b"b".to_vec()]));
        tx.commit().await.expect("commits");
        check(&database).await;
        // Of two that take one name, the second waits, and is refused once the first has committed.
        let mut first = database.begin().await.expect("begins");
        first.insert(things, b"x", &put(b"", "Eve").1).await.expect("inserts");
        let second = executor.spawn({
            let (database, value) = (database.clone(), put(b"", "Eve").1);
            async move { database.transaction(async |tx| tx.insert(things, b"y", &value).await).await }
        });
        executor.sleep_ns(1_000_000).await;
        assert!(!second.is_finished(), "it waits for the first");
        first.commit().await.expect("commits");
        assert_eq!(second.join().await, Err(not_unique("Eve", b"x", b"y")));
        check(&database).await;
    });
}

#[test]
fn a_repeated_range_shows_the_same() {
    with_things(async |database, things, index| {
        put_all(database, things, &some(20)).await;
        let group = [FieldValue::U32(2)];
        let bounds = (Bound::Included(&group[..]), Bound::Included(&group[..]));
        let executor = database.executor().whole().clone();
        let mut tx = database.begin().await.expect("begins");
        let before = keys(&mut tx, (things, index), bounds, Direction::Forward).await.expect("reads");
        let change = |key: &'static [u8], value: Vec<u8>| {
            let database = database.clone();
            executor.spawn(async move { database.transaction(async |tx| tx.put(things, key, &value).await).await })
        };
        let into = change(b"new", stored(&thing(2, 0, "phantom")));
        let out = change(&[0, 0, 0, 2], stored(&thing(4, 0, "gone")));
        let beside = change(b"beside", stored(&thing(3, 100, "beside")));
        executor.sleep_ns(1_000_000).await;
        assert!(!into.is_finished() && !out.is_finished());
        let again = keys(&mut tx, (things, index), bounds, Direction::Backward).await.expect("reads");
        assert!(before.iter().eq(again.iter().rev()));
        tx.commit().await.expect("commits");
        for change in [into, out, beside] {
            change.join().await.expect("goes on");
        }
    });
}

#[test]
fn indexes_are_created_and_dropped_beside_writers() {
    for seed in 0..6 {
        assert_eq!(built_beside_writers(PartitionSpec::b_tree("things"), seed), Vec::<String>::new());
    }
}

/// A unique index is built while a record is added that has the contents of the last one, `at_ns` after the beginning, and the last one is
/// deleted. Returns whether the record was taken before the index was whole, and what the check finds.
fn replaced_beside_a_build(at_ns: u64) -> (bool, Vec<String>) {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things =
            database.create_partition(PartitionSpec::b_tree("things").record(record())).await.expect("creates");
        put_all(&database, things, &some(400)).await;
        let building = {
            let database = database.clone();
            executor.spawn(async move { database.create_index(things, by_name()).await })
        };
        executor.sleep_ns(at_ns).await;
        let twin = stored(&thing(1, 1, "name 399"));
        let added = database.transaction(async |tx| tx.put(things, b"", &twin).await).await;
        let is_beside = added.is_ok() && !building.is_finished();
        if added.is_ok() {
            let last = 399_u32.to_be_bytes();
            database.transaction(async |tx| tx.delete(things, &last).await).await.expect("deletes");
        }
        // It may have met both of them.
        if let Err(error) = building.join().await {
            assert!(matches!(error, Error::Field { .. }), "{error}");
        }
        let report = database.check(|_| {}).await.expect("checks");
        (is_beside, report.findings.iter().map(ToString::to_string).collect())
    })
}

#[test]
fn a_deleted_record_leaves_the_place_in_a_unique_index_to_who_has_it() {
    let outcomes: Vec<(bool, Vec<String>)> = (0..60).map(|step| replaced_beside_a_build(step * 50_000)).collect();
    for (_, found) in &outcomes {
        assert_eq!(*found, Vec::<String>::new());
    }
    assert!(outcomes.iter().any(|(is_beside, _)| *is_beside), "some are added while the index is being built");
}

#[test]
fn a_dropped_index_keeps_phantoms_from_a_transaction_that_has_read_it() {
    with_things(async |database, things, index| {
        put_all(database, things, &Model::from([(b"x".to_vec(), thing(1, 0, "old"))])).await;
        let executor = database.executor().whole().clone();
        let mut tx = database.begin().await.expect("begins");
        let group = [FieldValue::U32(2)];
        let bounds = (Bound::Included(&group[..]), Bound::Included(&group[..]));
        let found = keys(&mut tx, (things, index), bounds, Direction::Forward).await.expect("reads");
        assert_eq!(found, Vec::<Vec<u8>>::new());
        let other = database.clone();
        let dropping = executor.spawn(async move { other.drop_index(things, "by_group").await });
        executor.sleep_ns(20_000_000).await;
        let other = database.clone();
        let adding = executor.spawn(async move {
            let add = async |tx: &mut Transaction| {
                tx.get(things, b"x").await?;
                tx.insert(things, b"new", &stored(&thing(2, 0, "phantom"))).await
            };
            other.transaction(add).await
        });
        executor.sleep_ns(5_000_000).await;
        assert!(!adding.is_finished(), "it would be before a transaction that has not seen it, and behind it");
        let put = tx.put(things, b"x", &stored(&thing(1, 0, "no group 2"))).await;
        assert_eq!(put, Err(Error::Deadlock), "each has read what the other changes");
        drop(tx);
        adding.join().await.expect("goes on");
        dropping.join().await.expect("is dropped");
    });
}

#[test]
fn a_change_that_waited_while_an_index_was_dropped_leaves_it_alone() {
    with_things(async |database, things, _| {
        let executor = database.executor().whole().clone();
        put_all(database, things, &Model::from([(b"a".to_vec(), thing(1, 1, ""))])).await;
        let mut first = database.begin().await.expect("begins");
        first.get_for_update(things, b"a").await.expect("locks");
        let other = database.clone();
        let second = executor.spawn(async move {
            other.transaction(async |tx| tx.put(things, b"a", &stored(&thing(3, 1, ""))).await).await
        });
        executor.sleep_ns(1_000_000).await;
        let other = database.clone();
        let dropping = executor.spawn(async move { other.drop_index(things, "by_group").await });
        while database.secondary(things, "by_group").is_ok() {
            executor.sleep_ns(100_000).await;
        }
        first.put(things, b"a", &stored(&thing(2, 1, ""))).await.expect("puts");
        first.commit().await.expect("commits");
        assert_eq!(second.join().await, Ok(()));
        dropping.join().await.expect("is dropped");
    });
}

#[test]
fn a_snapshot_does_not_take_the_place_of_a_record_that_it_sees() {
    with_things(async |database, things, _| {
        let index = database.create_index(things, by_name()).await.expect("is built");
        put_all(database, things, &Model::from([(b"a".to_vec(), thing(1, 1, "Ada"))])).await;
        let mut tx = database.begin_at(Isolation::Snapshot).await.expect("begins");
        assert!(tx.get(things, b"a").await.expect("reads").is_some());
        database.transaction(async |other| other.delete(things, b"a").await).await.expect("deletes");
        match tx.insert(things, b"b", &stored(&thing(1, 2, "Ada"))).await {
            Ok(_) => {
                let seen = keys(&mut tx, (things, index), ALL, Direction::Forward).await.expect("reads");
                assert_eq!(seen.len(), 2, "the record that it sees and its own");
            }
            Err(error) => assert!(matches!(error, Error::WriteConflict(_)), "{error}"),
        }
    });
}

#[test]
fn what_cannot_be_indexed_leaves_nothing_behind() {
    with_things(async |database, things, _| {
        let refused =
            async |spec: IndexSpec| database.create_index(things, spec).await.expect_err("it cannot be built");
        put_all(database, things, &some(300)).await;
        let twin = stored(&thing(1, 1, "name 7"));
        database.transaction(async |tx| tx.put(things, b"twin", &twin).await).await.expect("puts");
        let unique = refused(by_name()).await;
        assert_eq!(unique, not_unique("name 7", &7_u32.to_be_bytes(), b"twin"));
        let unknown = refused(IndexSpec::new("by_town", &["town"])).await;
        assert!(unknown.to_string().contains("no field 'town'"), "{unknown}");
        let exists = refused(IndexSpec::new("by_group", &["weight"])).await;
        assert!(exists.to_string().contains("by_group"), "{exists}");
        let empty = refused(IndexSpec::new("empty", &[])).await;
        assert!(matches!(empty, Error::Field { error: FieldError::SecondaryEmpty(_), .. }), "{empty}");
        let name = refused(IndexSpec::new("a b", &["weight"])).await;
        assert!(matches!(name, Error::Setting(_)), "{name}");
        let other = RecordType::new([("all", FieldType::Bytes)]).expect("sound");
        let typed = refused(IndexSpec::new("other", &["all"]).record(other)).await;
        assert!(matches!(typed, Error::WrongOrganization { .. }), "{typed}");
        assert_eq!(database.partitions().len(), 2, "the partition and its first index");
        database.transaction(async |tx| tx.delete(things, b"twin").await).await.expect("deletes");
        database.create_index(things, by_name()).await.expect("nothing is in its way now");
        let direct = database.partition("things.by_name").expect("it is a partition");
        let written = database.transaction(async |tx| tx.put(direct, b"a", b"b").await).await;
        assert!(matches!(written, Err(Error::WrongOrganization { .. })), "{written:?}");
        let dropped = database.drop_partition(direct).await;
        assert!(matches!(dropped, Err(Error::WrongOrganization { .. })), "{dropped:?}");
        let loaded = database.load_b_tree(things, [(b"k", stored(&thing(1, 1, "")))], |_| {}).await;
        assert!(matches!(loaded, Err(Error::WrongOrganization { .. })), "{loaded:?}");
        check(database).await;
        database.drop_partition(things).await.expect("is dropped with its indexes");
        assert_eq!(database.partitions().len(), 0);
    });
}

#[test]
fn records_get_a_type_with_their_first_index_if_all_are_of_it() {
    let media = Media::new();
    let spec = || by_name().record(record());
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(PartitionSpec::b_tree("things")).await.expect("creates");
        let put =
            async |key: &[u8], value: &[u8]| database.transaction(async |tx| tx.put(things, key, value).await).await;
        put(b"odd", b"no record of the type").await.expect("puts");
        let refused = database.create_index(things, spec()).await.expect_err("one is not of the type");
        assert!(refused.to_string().contains("record with key 6f6464"), "{refused}");
        put(b"odd", b"which it is not after all").await.expect("has no type yet");
        assert!(matches!(database.create_index(things, by_name()).await, Err(Error::WrongOrganization { .. })));
        put(b"odd", &stored(&thing(1, 1, "even"))).await.expect("puts");
        database.create_index(things, spec()).await.expect("is created");
        assert!(matches!(put(b"odd", b"odd").await, Err(Error::Field { .. })));
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        let things = database.partition("things").expect("it exists");
        assert_eq!(database.describe(things).expect("is there").typed().expect("has a type").record, record());
        database.drop_index(things, "by_name").await.expect("is dropped");
        check(&database).await;
    });
}

/// A change that is given up while it waits for an entry's lock.
#[test]
fn a_change_given_up_halfway_takes_its_transaction_along() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(spec("things").index(by_name())).await.expect("creates");
        let mut other = database.begin().await.expect("begins");
        other.put(things, b"a", &stored(&thing(1, 1, "taken"))).await.expect("puts");
        let mut tx = database.begin().await.expect("begins");
        let value = stored(&thing(1, 1, "taken"));
        let given_up = executor.within(1_000_000, tx.put(things, b"b", &value)).await;
        assert!(given_up.is_none(), "it waits for the name");
        assert_eq!(tx.get(things, b"c").await, Err(Error::Abandoned));
        assert_eq!(tx.commit().await, Err(Error::Aborted { cause: Box::new(Error::Abandoned) }));
        other.rollback().await.expect("rolls back");
        check(&database).await;
    });
}

#[test]
fn a_power_cut_at_any_moment_of_a_creation_leaves_all_of_the_index_or_nothing() {
    cut_while_building(
        &PartitionSpec::b_tree("things").record(record()),
        &IndexSpec::new("by_group", &["group", "weight"]),
        400_000,
    );
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn an_index_that_misses_changes_is_found() {
        plant(Some(Canary::UnseenIndex));
        let found = (0..10)
            .map(|seed| built_beside_writers(PartitionSpec::b_tree("things"), seed))
            .find(|found| !found.is_empty());
        plant(None);
        let found = found.expect("the planted bug is found");
        assert!(found[0].contains("index"), "{found:?}");
    }

    #[test]
    fn an_entry_that_is_left_is_found() {
        plant(Some(Canary::KeptEntry));
        let found = with_things(async |database, things, _| {
            database.transaction(async |tx| tx.put(things, b"a", &stored(&thing(1, 1, ""))).await).await.expect("puts");
            database.transaction(async |tx| tx.put(things, b"a", &stored(&thing(2, 1, ""))).await).await.expect("puts");
            database.check(|_| {}).await.expect("checks").findings
        });
        plant(None);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].what.contains("2 entries for 1 records"), "{}", found[0].what);
    }
}
