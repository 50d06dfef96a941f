//! Unique indexes of sets: built beside writers, over restarts and power cuts, from backups, and when sets are loaded.

use crate::ground::backups::{on, restored};
use crate::ground::building::cut_while_building;
use crate::ground::machine::run;
use crate::ground::restoring;
use crate::ground::things::*;
use base::PartitionId;
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldError, Logging};
use entresol_engine::{
    Database, Error, Internals, PartitionSpec, Procedures, RestoreTarget, Result, Settings, Transaction,
};
use virtual_driver::Media;

fn set() -> PartitionSpec {
    PartitionSpec::set("things").record(record())
}

async fn put(database: &Database, things: PartitionId, key: &[u8], name: &str) -> Result<()> {
    database.transaction(async |tx| tx.put(things, key, &stored(&thing(1, 2, name))).await).await
}

fn is_taken<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::Field { error: FieldError::NotUnique(_), .. }))
}

#[test]
fn an_index_over_two_records_of_the_same_contents_is_not_built_and_leaves_nothing() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set()).await.expect("creates");
        put_all(&database, things, &some(900)).await;
        put(&database, things, b"twin", "name 7").await.expect("puts");
        let before = database.describe(things).expect("is there");
        let refused = database.create_index(things, by_name()).await;
        assert_eq!(refused, Err(not_unique("name 7", &7_u32.to_be_bytes(), b"twin")));
        assert_eq!(database.describe(things).expect("is there"), before);
        assert_eq!(database.index_builds(), []);
        put(&database, things, b"other", "name 8").await.expect("nothing keeps it");
        check(&database).await;
        for key in [&b"twin"[..], b"other"] {
            database.transaction(async |tx| tx.delete(things, key).await).await.expect("deletes");
        }
        database.create_index(things, by_name()).await.expect("nothing is in its way now");
        assert_eq!(put(&database, things, b"x", "name 9").await, Err(not_unique("name 9", &9_u32.to_be_bytes(), b"x")));
        check(&database).await;
    });
}

/// One of two records of the same contents is deleted by a transaction that goes on while the index is built. Returns whether it was built,
/// and what the check finds.
fn built_beside_a_deletion(at_ns: u64, commits: bool) -> (bool, Vec<String>) {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set()).await.expect("creates");
        put_all(&database, things, &some(900)).await;
        put(&database, things, b"twin", "name 7").await.expect("puts");
        let creating = executor.spawn({
            let database = database.clone();
            async move { database.create_index(things, by_name()).await }
        });
        for _ in 0..at_ns {
            executor.yield_now().await;
        }
        let mut tx = database.begin().await.expect("begins");
        let deleted = tx.delete(things, &7_u32.to_be_bytes()).await;
        executor.sleep_ns(50_000_000).await;
        if commits && deleted.is_ok() {
            tx.commit().await.expect("commits");
        } else {
            drop(tx);
        }
        let is_built = match creating.join().await {
            Ok(_) => true,
            refused => {
                assert!(is_taken(&refused), "{refused:?}");
                false
            }
        };
        let report = database.check(|_| {}).await.expect("checks");
        (is_built, report.findings.iter().map(ToString::to_string).collect())
    })
}

#[test]
fn a_record_that_comes_back_by_a_rollback_is_met_by_an_index_that_is_built_beside_it() {
    let mut built = 0;
    for at in 0..40 {
        let (is_built, found) = built_beside_a_deletion(at, false);
        assert_eq!((is_built, found), (false, Vec::new()), "{at}: both are there");
        let (is_built, found) = built_beside_a_deletion(at, true);
        assert_eq!(found, Vec::<String>::new());
        built += u32::from(is_built);
    }
    assert!(built > 0, "one is gone where the deletion came first");
}

#[test]
fn a_unique_index_stays_one_over_restarts_sweeps_and_truncations() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set().index(by_name())).await.expect("creates");
        let by_group = IndexSpec::new("by_group", &["group", "weight", "name"]).unique();
        database.create_index(things, by_group).await.expect("is built");
        put_all(&database, things, &some(40)).await;
        assert!(is_taken(&put(&database, things, b"x", "name 3").await));
        // Not committed when the power goes.
        let mut tx = database.begin().await.expect("begins");
        tx.delete(things, &3_u32.to_be_bytes()).await.expect("deletes");
        tx.put(things, b"x", &stored(&thing(1, 2, "name 3"))).await.expect("is free for it");
        database.log().flush(database.log().end()).await.expect("the log is durable");
        std::mem::forget(tx);
    });
    for round in 0..3_u8 {
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "test").await.expect("opens");
            let mut things = database.partition("things").expect("it exists");
            for index in &database.describe(things).expect("is there").typed().expect("has a type").secondaries {
                assert!(index.is_unique && index.is_ready(), "{index:?}");
            }
            assert!(is_taken(&put(&database, things, b"x", "name 3").await));
            put(&database, things, &[round], &format!("of round {round}")).await.expect("is free");
            assert!(is_taken(&put(&database, things, b"x", &format!("of round {round}")).await));
            if round == 1 {
                things = database.truncate_partition(things).await.expect("is emptied");
                put(&database, things, b"x", "name 3").await.expect("is free");
                put_all(&database, things, &Model::from([(b"y".to_vec(), thing(1, 2, "y"))])).await;
                assert!(is_taken(&put(&database, things, b"z", "name 3").await));
                database.transaction(async |tx| tx.delete(things, b"x").await).await.expect("deletes");
                put(&database, things, b"w", "name 3").await.expect("is free again");
            }
            database.checkpoint().await.expect("is taken");
            check(&database).await;
            database.close().await.expect("closes");
        });
    }
}

#[test]
fn a_power_cut_at_any_moment_leaves_all_of_a_unique_index_or_nothing() {
    cut_while_building(&set(), &by_name(), 200_000);
}

#[test]
fn a_set_that_is_restored_has_its_unique_index_from_where_it_was_entered() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, restoring::settings()).await?;
        let first = restoring::set("first").record(record()).index(by_name());
        let first = database.create_partition(first).await?;
        let things = database.create_partition(restoring::set("things").record(record())).await?;
        put(&database, first, b"a", "Ada").await?;
        database.backup(&restoring::backup(), |_| {}).await?;
        put(&database, things, b"a", "Ada").await?;
        put(&database, things, b"b", "Ada").await?;
        let before = database.log().end();
        database.transaction(async |tx| tx.delete(things, b"a").await).await?;
        database.create_index(things, by_name()).await?;
        put(&database, things, b"c", "Eve").await?;
        database.close().await?;
        let target = restoring::to(RestoreTarget::Position(before));
        let (database, _) = restored(executor, &restoring::plain(), &target).await?;
        let [first, things] = ["first", "things"].map(|name| database.partition(name).expect(name));
        assert!(database.secondary(things, "by_name").is_err());
        put(&database, things, b"c", "Ada").await?;
        assert!(is_taken(&put(&database, first, b"b", "Ada").await));
        database.close().await?;
        let (database, _) = restored(executor, &restoring::plain(), &restoring::to(RestoreTarget::End)).await?;
        let [first, things] = ["first", "things"].map(|name| database.partition(name).expect(name));
        assert_eq!(put(&database, things, b"d", "Ada").await, Err(not_unique("Ada", b"b", b"d")));
        assert!(is_taken(&put(&database, first, b"b", "Ada").await));
        database.close().await
    })
    .expect("works");
}

#[test]
fn a_load_of_two_records_of_the_same_contents_leaves_an_empty_set() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(set().index(by_name())).await.expect("creates");
        let record = |number: u32, name: u32| (number.to_be_bytes(), stored(&thing(1, 2, &format!("name {name}"))));
        let twice = (0..3_000).map(|number| record(number, number % 2_999));
        let refused = database.load_set(things, twice, |_| {}).await;
        assert_eq!(refused, Err(not_unique("name 0", &0_u32.to_be_bytes(), &2_999_u32.to_be_bytes())));
        check(&database).await;
        database.load_set(things, (0..3_000).map(|number| record(number, number)), |_| {}).await.expect("loads");
        assert!(is_taken(&put(&database, things, b"x", "name 2998").await));
        check(&database).await;
    });
}

#[test]
fn records_that_are_only_added_have_a_unique_index_if_they_are_locked() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let spec = |locking| PartitionSpec::new("things", Organization::set(true), locking).record(record());
        let refused = database.create_partition(spec(Locking::None).index(by_name())).await.expect_err("no locks");
        assert!(refused.to_string().contains("a set with a unique secondary index is locked by record"), "{refused}");
        let things = database.create_partition(spec(Locking::Record).index(by_name())).await.expect("creates");
        let add = async |name: &str| {
            database.transaction(async |tx| tx.append(things, &stored(&thing(1, 2, name))).await.map(drop)).await
        };
        add("Ada").await.expect("is added");
        let refused = add("Ada").await;
        assert!(is_taken(&refused), "{refused:?}");
        add("Eve").await.expect("is added");
        check(&database).await;
    });
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn an_index_that_is_built_over_two_of_the_same_contents_is_found() {
        plant(Some(Canary::UncheckedTwice));
        let (_, found) = built_beside_a_deletion(30, false);
        plant(None);
        assert!(found.iter().any(|what| what.contains("two records have the same contents")), "{found:?}");
    }

    #[test]
    fn places_that_are_not_locked_are_found() {
        plant(Some(Canary::UnlockedPlace));
        // Gaps keep others from a place that was left; who comes to one that was taken is told of what may be taken back.
        let is_told = run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database.create_partition(set().index(by_name())).await.expect("creates");
            let mut tx = database.begin().await.expect("begins");
            tx.put(things, b"a", &stored(&thing(1, 2, "Ada"))).await.expect("puts");
            let refused = executor.within(10_000_000, put(&database, things, b"x", "Ada")).await;
            tx.rollback().await.expect("rolls back");
            refused.is_some_and(|refused| is_taken(&refused))
        });
        plant(None);
        assert!(is_told, "a record that is not committed has refused another one");
    }
}

#[test]
fn an_index_waits_no_longer_than_others_for_who_keeps_contents_that_two_records_have() {
    for is_dropped in [false, true] {
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database.create_partition(set()).await.expect("creates");
            put_all(&database, things, &some(2_000)).await;
            let other = database.clone();
            let creating = executor.spawn(async move { other.create_index(things, by_name()).await });
            while database.index_builds().first().is_none_or(|build| build.records == 0) {
                executor.yield_now().await;
            }
            let mut tx = database.begin().await.expect("begins");
            let twin = tx.put(things, b"twin", &stored(&thing(1, 2, "name 1999"))).await;
            twin.expect("the other one has no entry yet");
            let mut error = Error::PartitionInUse("things".into());
            if is_dropped {
                database.drop_index(things, "by_name").await.expect("is given up");
                error =
                    Error::Field { partition: "things".into(), error: FieldError::SecondaryDropped("by_name".into()) };
            }
            assert_eq!(creating.join().await, Err(error));
            tx.commit().await.expect("nothing is in its way");
            check(&database).await;
        });
    }
}

fn arrivals() -> PartitionSpec {
    PartitionSpec::new("things", Organization::set(true), Locking::Record).record(record()).index(by_name())
}

/// Adds a thing of a name that is taken, except once, and another one instead.
async fn add(tx: &mut Transaction, name: &[u8]) -> Result<Vec<u8>> {
    let things = tx.partition("things")?;
    let name = str::from_utf8(name).expect("it is a name");
    match tx.append(things, &stored(&thing(1, 2, "taken"))).await {
        Err(Error::Field { .. }) => tx.append(things, &stored(&thing(1, 2, name))).await.map(|_| Vec::new()),
        other => other.map(|_| Vec::new()),
    }
}

#[test]
fn a_call_whose_record_was_refused_is_not_repeated_without_its_number() {
    let calling = || {
        let mut procedures = Procedures::new();
        procedures.register("add", add);
        let sweep = SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() };
        Settings { logging: Logging::Procedures, procedures, sweep, ..settings() }
    };
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, calling()).await.expect("creates");
        database.create_partition(arrivals()).await.expect("creates");
        for name in [&b"none"[..], b"one", b"two"] {
            database.call("add", name).await.expect("adds");
        }
    });
    run(&media, async |executor| {
        let database = Database::open(executor, calling(), "test").await.expect("opens");
        let things = database.partition("things").expect("it exists");
        let mut found = Vec::new();
        let read = async |tx: &mut Transaction| {
            let look = |_position, value: &[u8]| {
                found.push(value.to_vec());
                true
            };
            tx.scan_appended(things, look).await
        };
        database.transaction(read).await.expect("reads");
        assert_eq!(found, ["taken", "one", "two"].map(|name| stored(&thing(1, 2, name))));
        check(&database).await;
    });
}

#[test]
fn a_refused_record_keeps_no_number_from_others() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(arrivals()).await.expect("creates");
        let append = async |tx: &mut Transaction, name: &str| tx.append(things, &stored(&thing(1, 2, name))).await;
        database.transaction(async |tx| append(tx, "one").await).await.expect("adds");
        let mut tx = database.begin().await.expect("begins");
        assert!(is_taken(&append(&mut tx, "one").await));
        database.transaction(async |tx| append(tx, "two").await).await.expect("waits for no one");
        append(&mut tx, "three").await.expect("adds");
        tx.commit().await.expect("commits");
        check(&database).await;
    });
}
