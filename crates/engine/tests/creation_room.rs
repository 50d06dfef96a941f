//! Creations of partitions, bulk loads and sweeps log something of their own: the log has room for that, and for what it has
//! promised to others.

use crate::ground::machine::run;
use base::time::SECOND_NS;
use base::{PartitionId, Random};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, buffer, log};
use executor::Executor;
use virtual_driver::{Media, PowerCut};

/// More than the log has pages.
const PARTITIONS: u32 = 100;
const BY_SIZE: Policy = Policy { log_bytes: Some(64 << 10), interval_ns: None };

fn settings(checkpoint: Policy) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 256, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        checkpoint,
        ..Settings::default()
    }
}

async fn create_tree(database: &Database, number: u32) -> Result<PartitionId> {
    database.create_partition(PartitionSpec::b_tree(&format!("tree-{number}"))).await
}

async fn verify(database: &Database) {
    assert_eq!(database.log().failure(), None);
    let report = database.check(|_| ()).await.expect("reads");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Changes of `notes` of which the log keeps room for the rollback.
async fn begin_and_change(database: &Database, notes: PartitionId) -> entresol_engine::Transaction {
    let mut transaction = database.begin().await.expect("begins");
    for number in 0..100_u32 {
        transaction.put(notes, &number.to_be_bytes(), &[1; 400]).await.expect("puts");
    }
    transaction
}

/// The power goes, and the database is opened again.
fn reopen(media: &Media, partitions: usize) {
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    run(media, async |executor: &Executor| {
        let database = Database::open(executor, settings(BY_SIZE), "here").await.expect("opens");
        assert_eq!(database.partitions().len(), partitions);
        verify(&database).await;
    });
}

#[test]
fn many_partitions_are_created_with_a_small_log() {
    for checkpoint in [Policy::OFF, BY_SIZE] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = Database::create(executor, settings(checkpoint)).await.expect("creates");
            for number in 0..PARTITIONS {
                create_tree(&database, number).await.unwrap_or_else(|error| panic!("{number}: {error}"));
            }
            verify(&database).await;
        });
        reopen(&media, PARTITIONS as usize);
    }
}

#[test]
fn many_trees_are_loaded_with_a_small_log() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings(Policy::OFF)).await.expect("creates");
        for number in 0..PARTITIONS {
            create_tree(&database, number).await.unwrap_or_else(|error| panic!("{number}: {error}"));
            if number % 8 == 0 {
                database.checkpoint().await.expect("checkpoints");
            }
        }
        for number in 0..PARTITIONS {
            let tree = database.partition(&format!("tree-{number}")).expect("it exists");
            let records = (0..100_u32).map(|key| (key.to_be_bytes(), [number as u8; 100]));
            let loaded = database.load_b_tree(tree, records, |_| {}).await;
            loaded.unwrap_or_else(|error| panic!("{number}: {error}"));
        }
        verify(&database).await;
    });
    reopen(&media, PARTITIONS as usize);
}

#[test]
fn creations_leave_others_the_log_that_their_rollbacks_were_promised() {
    let media = Media::new();
    let created = run(&media, async |executor| {
        let database = Database::create(executor, settings(BY_SIZE)).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        // What this holds of the log stays until it ends, and it ends after the creation was refused.
        let held = begin_and_change(&database, notes).await;
        let mut created = 0;
        let refused = loop {
            match create_tree(&database, created).await {
                Ok(_) => created += 1,
                Err(error) => break error,
            }
            assert!(created < PARTITIONS, "the log has no room for all of them");
        };
        assert!(matches!(refused, Error::LogCrowded { .. }), "{refused}");
        assert!(database.partition(&format!("tree-{created}")).is_err(), "it left nothing");
        held.rollback().await.expect("it was promised the room");
        executor.sleep_ns(SECOND_NS).await;
        create_tree(&database, created).await.expect("now there is room");
        verify(&database).await;
        created
    });
    reopen(&media, created as usize + 2);
}

/// One that fails before its end logs nothing, and neither does one that is given up.
#[test]
fn loads_that_fail_take_nothing_of_the_log() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings(Policy::OFF)).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let tree = create_tree(&database, 0).await.expect("creates");
        let held = begin_and_change(&database, notes).await;
        let mut end = None;
        for _ in 0..PARTITIONS {
            let refused = database.load_b_tree(tree, [(b"b", b"x"), (b"a", b"x")], |_| {}).await;
            assert!(matches!(refused, Err(Error::Argument(_))), "{refused:?}");
            let records = (0..100_000_u32).map(|key| (key.to_be_bytes(), [1; 100]));
            let loading = executor.within(1, database.load_b_tree(tree, records, |_| {})).await;
            assert_eq!(loading, None);
            // What others have logged is made durable before the first.
            assert_eq!(*end.get_or_insert(database.log().end()), database.log().end());
        }
        held.rollback().await.expect("it was promised the room");
        let shown = database.transaction(async |tx| tx.get(tree, b"b").await).await;
        assert_eq!(shown, Ok(None));
        database.load_b_tree(tree, [(b"a", b"x"), (b"b", b"x")], |_| {}).await.expect("now there is room");
        verify(&database).await;
    });
}

#[test]
fn a_creation_waits_for_the_end_of_what_holds_the_log() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings(BY_SIZE)).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
        let held = begin_and_change(&database, notes).await;
        let own = database.clone();
        let creating = executor.spawn(async move {
            for number in 0..PARTITIONS {
                create_tree(&own, number).await.unwrap_or_else(|error| panic!("{number}: {error}"));
            }
        });
        executor.sleep_ns(SECOND_NS).await;
        assert!(!creating.is_finished(), "the log has no room for all of them");
        held.commit().await.expect("commits");
        creating.join().await;
        verify(&database).await;
    });
}

/// Here the settings keep no reserve that new work leaves free.
#[test]
fn sweeps_and_loads_of_sets_leave_others_the_log_that_their_rollbacks_were_promised() {
    for loads in [false, true] {
        let log = log::Settings { reserve: 0.0, ..settings(Policy::OFF).log };
        let settings = Settings { log, ..settings(Policy::OFF) };
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings).await.expect("creates");
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates");
            for number in 0..=PARTITIONS {
                let spec = PartitionSpec::set(&format!("set-{number}"));
                database.create_partition(spec).await.expect("creates");
            }
            let held = begin_and_change(&database, notes).await;
            for number in 0..PARTITIONS {
                let set = database.partition(&format!("set-{number}")).expect("it exists");
                if loads {
                    match database.load_set(set, [(b"key", b"value")], |_| {}).await {
                        Ok(()) => {}
                        Err(Error::LogCrowded { .. }) => break,
                        Err(error) => panic!("{number}: {error}"),
                    }
                } else {
                    database.checkpoint().await.unwrap_or_else(|error| panic!("{number}: {error}"));
                }
            }
            held.rollback().await.expect("it was promised the room");
            let set = database.partition("set-100").expect("it exists");
            database.load_set(set, [(b"key", b"value")], |_| {}).await.expect("now there is room");
            verify(&database).await;
        });
    }
}

#[cfg(feature = "canary")]
mod planted {
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn what_is_logged_whatever_room_there_is_is_found() {
        plant(Some(Canary::UnadmittedCreation));
        let found = std::panic::catch_unwind(super::many_partitions_are_created_with_a_small_log);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }
}
