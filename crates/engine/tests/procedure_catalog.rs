//! Procedures whose course depends on which partitions there are: a restart runs them again among those that there were.

use crate::ground::machine::run;
use base::time::{MICROSECOND_NS, MILLISECOND_NS};
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldType, Logging, RecordType};
use entresol_engine::{Database, Error, PartitionSpec, Procedures, Result, Settings, Transaction, checkpoint};
use executor::JoinHandle;
use virtual_driver::Media;

/// Puts a record into "stock" whose value says whether there is a partition "flag" (1), whether its records have a type (2) and an
/// index (4), after others had time to change that. What it answers says the same.
async fn note(tx: &mut Transaction, key: &[u8]) -> Result<Vec<u8>> {
    let stock = tx.partition("stock")?;
    let answer = vec![match tx.partition("flag") {
        Ok(flag) => {
            let (typed, index) = (tx.catalog().field(flag, "group"), tx.catalog().secondary(flag, "by_group"));
            1 | u8::from(typed.is_ok()) << 1 | u8::from(index.is_ok()) << 2
        }
        Err(_) => 0,
    }];
    tx.executor().clone().sleep_ns(MILLISECOND_NS).await;
    tx.put(stock, key, &answer).await?;
    Ok(answer)
}

fn settings() -> Settings {
    let mut procedures = Procedures::new();
    procedures.register("note", note);
    let sweep = SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() };
    Settings {
        procedures,
        sweep,
        logging: Logging::Procedures,
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn set(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new(name, organization, Locking::Record)
}

/// What may be called "flag".
fn flags() -> [PartitionSpec; 3] {
    [set("flag"), PartitionSpec::b_tree("flag"), PartitionSpec::append("flag")]
}

/// Calls with the keys 0, 1, ..., and what they answered.
struct Calls(Vec<u8>);

impl Calls {
    async fn call(&mut self, database: &Database) {
        let answer = database.call("note", &[self.0.len() as u8]).await.expect("commits");
        self.0.extend(answer);
    }
}

/// The records of "stock".
async fn found(database: &Database) -> Result<Vec<u8>> {
    let stock = database.partition("stock")?;
    let mut tx = database.begin().await?;
    let mut found = Vec::new();
    for key in 0..u8::MAX {
        found.extend(tx.get(stock, &[key]).await?.map(|value| value[0]));
    }
    tx.commit().await?;
    Ok(found)
}

/// Has the machine vanish after `work`, whose calls must have the effects that they had, in this opening and the next.
fn survives(what: &str, work: impl AsyncFn(&Database, &mut Calls) -> Result<()>) {
    let media = Media::new();
    let mut calls = Calls(Vec::new());
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        database.create_partition(set("stock")).await.expect("creates");
        work(&database, &mut calls).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(found(&database).await.expect("reads"), calls.0, "{what}");
    });
    for opening in 1..=2 {
        run(&media, async |executor| {
            let opened = Database::open(executor, settings(), "here").await;
            let database = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(found(&database).await.expect("reads"), calls.0, "{what}, opening {opening}");
            calls.call(&database).await;
        });
    }
}

#[test]
fn a_call_is_repeated_without_a_partition_that_was_created_later() {
    for flag in flags() {
        survives(&format!("{:?}", flag.organization), async |database, calls| {
            calls.call(database).await;
            database.create_partition(flag.clone()).await?;
            calls.call(database).await;
            assert_eq!(calls.0, [0, 1]);
            Ok(())
        });
    }
}

#[test]
fn a_call_beside_which_a_partition_is_created_has_the_effects_that_it_had() {
    survives("created beside it", async |database, calls| {
        let calling = {
            let database = database.clone();
            database.executor().clone().spawn(async move { database.call("note", &[0]).await })
        };
        database.executor().sleep_ns(100 * MICROSECOND_NS).await;
        database.create_partition(set("flag")).await?;
        assert!(!calling.is_finished(), "it has yet to make its change");
        calls.0.extend(calling.join().await?);
        calls.call(database).await;
        assert_eq!(calls.0, [0, 1]);
        Ok(())
    });
}

#[test]
fn a_call_is_not_repeated_without_a_partition_that_was_dropped_later() {
    for flag in flags() {
        survives(&format!("{:?}", flag.organization), async |database, calls| {
            let first = database.create_partition(flag.clone()).await?;
            calls.call(database).await;
            database.drop_partition(first).await?;
            calls.call(database).await;
            assert_eq!(calls.0, [1, 0]);
            Ok(())
        });
        survives(&format!("{:?}, again and again", flag.organization), async |database, calls| {
            let first = database.create_partition(flag.clone()).await?;
            calls.call(database).await;
            database.drop_partition(first).await?;
            calls.call(database).await;
            let second = database.create_partition(set("flag")).await?;
            calls.call(database).await;
            database.drop_partition(second).await?;
            calls.call(database).await;
            assert_eq!(calls.0, [1, 0, 1, 0]);
            Ok(())
        });
    }
}

/// A partition that a drop keeps from a call is there again if the drop is cut off, or gives up.
#[test]
fn a_call_beside_a_drop_that_does_not_come_to_its_end_has_the_effects_that_it_had() {
    for gives_up in [false, true] {
        for flag in flags() {
            survives(&format!("{:?}, {gives_up}", flag.organization), async |database, calls| {
                let flag = database.create_partition(flag.clone()).await?;
                let keeping = database.begin().await?;
                let dropping = {
                    let database = database.clone();
                    database.executor().clone().spawn(async move { database.drop_partition(flag).await })
                };
                database.executor().sleep_ns(MILLISECOND_NS).await;
                calls.call(database).await;
                if gives_up {
                    let given_up = dropping.join().await;
                    assert_eq!(given_up, Err(Error::PartitionInUse("flag".into())));
                    calls.call(database).await;
                    keeping.rollback().await?;
                    assert_eq!(calls.0, [0, 1]);
                } else {
                    assert_eq!(calls.0, [0]);
                    // It never ends.
                    std::mem::forget(keeping);
                }
                Ok(())
            });
        }
    }
}

fn by_group() -> IndexSpec {
    let record = RecordType::new([("group", FieldType::U32)]).expect("sound");
    IndexSpec::new("by_group", &["group"]).record(record)
}

/// A call that is run beside others.
fn begin_call(database: &Database, key: u8) -> JoinHandle<Result<Vec<u8>>> {
    let database = database.clone();
    database.executor().clone().spawn(async move { database.call("note", &[key]).await })
}

#[test]
fn a_call_is_repeated_without_an_index_and_a_type_that_were_created_later() {
    survives("created later", async |database, calls| {
        let flag = database.create_partition(PartitionSpec::b_tree("flag")).await?;
        calls.call(database).await;
        database.create_index(flag, by_group()).await?;
        calls.call(database).await;
        assert_eq!(calls.0, [1, 7]);
        Ok(())
    });
}

#[test]
fn a_call_is_not_repeated_without_an_index_that_was_dropped_later() {
    survives("dropped later", async |database, calls| {
        let flag = database.create_partition(PartitionSpec::b_tree("flag")).await?;
        database.create_index(flag, by_group()).await?;
        calls.call(database).await;
        database.drop_index(flag, "by_group").await?;
        calls.call(database).await;
        database.create_index(flag, by_group()).await?;
        calls.call(database).await;
        assert_eq!(calls.0, [7, 3, 7]);
        Ok(())
    });
}

/// While it is built its records have the type already, which they do not have after a restart. Another change of the catalog begins
/// and ends meanwhile.
#[test]
fn a_call_beside_an_index_that_is_being_built_has_the_effects_that_it_had() {
    for is_cut_off in [false, true] {
        survives(&format!("cut off: {is_cut_off}"), async |database, calls| {
            let flag = database.create_partition(PartitionSpec::b_tree("flag")).await?;
            let keeping = database.begin().await?;
            let earlier = begin_call(database, 0);
            let creating = {
                let database = database.clone();
                database.executor().clone().spawn(async move { database.create_index(flag, by_group()).await })
            };
            database.executor().sleep_ns(MILLISECOND_NS / 2).await;
            database.create_partition(PartitionSpec::append("other")).await?;
            calls.0.extend(earlier.join().await?);
            calls.call(database).await;
            assert_eq!(calls.0, [1, 3]);
            if is_cut_off {
                std::mem::forget(keeping);
                return Ok(());
            }
            keeping.rollback().await?;
            creating.join().await?;
            calls.call(database).await;
            assert_eq!(calls.0, [1, 3, 7]);
            Ok(())
        });
    }
}
