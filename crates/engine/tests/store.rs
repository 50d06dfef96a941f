//! The store as a whole on an ideal virtual machine: what is committed is there, also after a restart.

use base::Random;
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::lock::VictimPolicy;
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Settings, Transaction, buffer, checkpoint, log,
};
use executor::{Executor, Order};
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

fn settings(frames: usize) -> Settings {
    Settings {
        buffer: buffer::Settings { frames, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy { log_bytes: Some(256 << 10), interval_ns: None },
        ..Settings::default()
    }
}

fn machine(media: &Media) -> Executor {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

/// Runs `work` on a new machine with these media, then lets that machine vanish.
fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    let executor = machine(media);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn value(random: &mut Random) -> Vec<u8> {
    let length = if random.chance(0.02) { random.between(1_000, 20_000) } else { random.between(0, 120) };
    let mut value = vec![0; length as usize];
    random.fill(&mut value);
    value
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One random change to the transaction and the model alike.
async fn change(tx: &mut Transaction, tree: base::PartitionId, model: &mut Model, random: &mut Random) {
    let key = key(random.below(600));
    match random.below(4) {
        0 => {
            let removed = tx.delete(tree, &key).await.expect("deletes");
            assert_eq!(removed, model.remove(&key).is_some());
        }
        1 if model.get(&key).is_some_and(|value| (1..200).contains(&value.len())) => {
            tx.modify(tree, &key, |value| value[0] ^= 0x55).await.expect("modifies");
            model.get_mut(&key).expect("it is there")[0] ^= 0x55;
        }
        _ => {
            let value = value(random);
            tx.put(tree, &key, &value).await.expect("puts");
            model.insert(key, value);
        }
    }
}

async fn contents(database: &Database, tree: base::PartitionId, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut tx = database.begin().await.expect("begins");
    let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, direction);
    let mut found = Vec::new();
    while let Some(record) = tx.next(&mut cursor).await.expect("reads") {
        found.push(record);
    }
    tx.commit().await.expect("commits");
    found
}

async fn assert_contents(database: &Database, tree: base::PartitionId, model: &Model) {
    let forward = contents(database, tree, Direction::Forward).await;
    assert!(forward.iter().map(|(k, v)| (k, v)).eq(model.iter()), "forward");
    let backward = contents(database, tree, Direction::Backward).await;
    assert!(backward.iter().map(|(k, v)| (k, v)).eq(model.iter().rev()), "backward");
}

#[test]
fn a_tree_agrees_with_a_map_through_commits_rollbacks_savepoints_and_restarts() {
    for seed in 0..6 {
        let media = Media::new();
        let mut random = Random::stream(seed, "store");
        let mut model = Model::new();
        for opening in 0..4 {
            run(&media, async |executor| {
                let frames = 48;
                let database = if opening == 0 {
                    let database = Database::create(executor, settings(frames)).await.expect("creates");
                    database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
                    database
                } else {
                    Database::open(executor, settings(frames), "test").await.expect("opens")
                };
                let tree = database.partition("tree").expect("exists");
                assert_contents(&database, tree, &model).await;
                for _ in 0..60 {
                    let mut tx = database.begin().await.expect("begins");
                    let mut after = model.clone();
                    for _ in 0..random.between(1, 12) {
                        change(&mut tx, tree, &mut after, &mut random).await;
                    }
                    if random.chance(0.3) {
                        let savepoint = tx.savepoint();
                        let mut lost = after.clone();
                        for _ in 0..random.between(1, 6) {
                            change(&mut tx, tree, &mut lost, &mut random).await;
                        }
                        tx.rollback_to(savepoint).await.expect("rolls back");
                    }
                    match random.below(4) {
                        0 => tx.rollback().await.expect("rolls back"),
                        1 if random.chance(0.5) => drop(tx),
                        _ => {
                            tx.commit().await.expect("commits");
                            model = after;
                        }
                    }
                }
                database.buffer().pool().borrow().check().expect("sound");
                assert_contents(&database, tree, &model).await;
                if random.chance(0.5) {
                    database.close().await.expect("closes");
                }
            })
            .expect("runs to the end");
        }
    }
}

#[test]
fn direct_and_append_partitions_keep_what_was_committed() {
    let media = Media::new();
    let spec = |name, organization| PartitionSpec::new(name, organization, Locking::Page);
    run(&media, async |executor| {
        let database = Database::create(executor, settings(32)).await.expect("creates");
        let organization = Organization::Direct { objects: 1_000, blocking_factor: 10, record_size: 8 };
        let direct = database.create_partition(spec("direct", organization)).await.expect("creates");
        let append = database.create_partition(PartitionSpec::append("append")).await.expect("creates");
        for round in 0..300_u64 {
            let mut tx = database.begin().await.expect("begins");
            let number = round * 7 % 1_000;
            tx.modify_object(direct, number, |object| object.copy_from_slice(&round.to_le_bytes()))
                .await
                .expect("modifies");
            tx.append(append, &round.to_le_bytes()).await.expect("appends");
            if round % 3 == 0 {
                tx.rollback().await.expect("rolls back");
            } else {
                tx.commit().await.expect("commits");
            }
        }
    })
    .expect("runs to the end");
    run(&media, async |executor| {
        let database = Database::open(executor, settings(32), "test").await.expect("opens");
        let (direct, append) =
            (database.partition("direct").expect("exists"), database.partition("append").expect("exists"));
        let mut tx = database.begin().await.expect("begins");
        for round in 0..300_u64 {
            let expected = if round % 3 == 0 { 0 } else { round };
            let found = tx.read_object(direct, round * 7 % 1_000, |object| {
                u64::from_le_bytes(object.try_into().expect("eight bytes"))
            });
            assert_eq!(found.await.expect("reads"), expected);
        }
        let mut appended = Vec::new();
        tx.scan_appended(append, |_, record| {
            appended.push(u64::from_le_bytes(record.try_into().expect("eight bytes")));
            true
        })
        .await
        .expect("scans");
        assert_eq!(appended, (0..300).filter(|round| round % 3 != 0).collect::<Vec<_>>());
        assert_eq!(tx.read_object(direct, 1_000, |_| ()).await, Err(Error::NoRecord("direct".into())));
        tx.commit().await.expect("commits");
    })
    .expect("runs to the end");
}

/// No other transaction adds to what a serializable transaction has read to its end; its own records it sees.
#[test]
fn appended_phantoms_wait() {
    for locking in [Locking::Record, Locking::Page] {
        let lived = run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings(32)).await.expect("creates");
            let log = database
                .create_partition(PartitionSpec { locking, ..PartitionSpec::append("log") })
                .await
                .expect("creates");
            let count = async |tx: &mut entresol_engine::Transaction| {
                let mut count = 0;
                let all = |_, _: &[u8]| {
                    count += 1;
                    true
                };
                tx.scan_appended(log, all).await.map(|()| count)
            };
            let add = async |database: &Database| {
                database.transaction(async |tx| tx.append(log, &[7; 100]).await.map(|_| ())).await
            };
            add(&database).await.expect("adds");
            let mut reader = database.begin().await.expect("begins");
            assert_eq!(count(&mut reader).await, Ok(1));
            let writers: Vec<_> = (0..30)
                .map(|_| {
                    let database = database.clone();
                    executor.spawn(async move {
                        database.transaction(async |tx| tx.append(log, &[7; 100]).await.map(|_| ())).await
                    })
                })
                .collect();
            executor.sleep_ns(1_000_000).await;
            assert!(writers.iter().all(|writer| !writer.is_finished()), "they wait for the reader");
            reader.append(log, &[8; 100]).await.expect("adds beside its own lock");
            assert_eq!(count(&mut reader).await, Ok(2));
            reader.commit().await.expect("commits");
            for writer in writers {
                writer.join().await.expect("adds");
            }
            assert_eq!(database.transaction(count).await, Ok(32));
        });
        lived.expect("the machine goes on");
    }
}

#[test]
fn a_deadlock_ends_with_one_victim_and_phantoms_wait() {
    for victim in [VictimPolicy::Requester, VictimPolicy::Youngest] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = Database::create(executor, Settings { victim, ..settings(32) }).await.expect("creates");
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
            let mut tx = database.begin().await.expect("begins");
            for number in [1, 2, 5] {
                tx.put(tree, &key(number), b"0").await.expect("puts");
            }
            tx.commit().await.expect("commits");
            let clash = |first: u64, second: u64| {
                let (database, executor) = (database.clone(), executor.clone());
                executor.clone().spawn(async move {
                    let mut tx = database.begin().await.expect("begins");
                    tx.modify(tree, &key(first), |value| value[0] = b'a').await?;
                    executor.sleep_ns(1_000).await;
                    tx.modify(tree, &key(second), |value| value[0] = b'b').await?;
                    tx.commit().await
                })
            };
            let (one, two) = (clash(1, 2), clash(2, 1));
            let results = [one.join().await, two.join().await];
            assert_eq!(results.iter().filter(|result| **result == Err(Error::Deadlock)).count(), 1, "{results:?}");
            assert_eq!(database.statistics().deadlocks.get(), 1);

            let mut reader = database.begin().await.expect("begins");
            let (from, to) = (key(2), key(4));
            let range = (Bound::Included(&from[..]), Bound::Included(&to[..]));
            let mut cursor = reader.cursor(tree, range.0, range.1, Direction::Forward);
            while reader.next(&mut cursor).await.expect("reads").is_some() {}
            let inserter = {
                let database = database.clone();
                executor.spawn(async move {
                    let mut tx = database.begin().await.expect("begins");
                    tx.insert(tree, &key(3), b"phantom").await.expect("inserts");
                    tx.commit().await
                })
            };
            executor.sleep_ns(1_000_000).await;
            assert!(!inserter.is_finished(), "the insert waits for the reader");
            let mut again = reader.cursor(tree, range.0, range.1, Direction::Forward);
            assert_eq!(reader.next(&mut again).await, Ok(Some((key(2), b"b".to_vec()))));
            assert_eq!(reader.next(&mut again).await, Ok(None));
            reader.commit().await.expect("commits");
            assert_eq!(inserter.join().await, Ok(()));
        })
        .expect("runs to the end");
    }
}

#[test]
fn foreign_and_newer_files_are_refused_by_name() {
    let media = Media::new();
    run(&media, async |executor| {
        let error = Database::open(executor, settings(32), "here").await.err().expect("refused");
        assert!(matches!(&error, Error::NotADatabase { path, .. } if path == "here"), "{error}");
        let database = Database::create(executor, settings(32)).await.expect("creates");
        database.close().await.expect("closes");
    })
    .expect("runs to the end");
    for copy in 0..2 {
        media.flip_bit("disk", "entresol.home", copy * 65_536 + 10, 4).expect("flips");
    }
    run(&media, async |executor| {
        let error = Database::open(executor, settings(32), "here").await.err().expect("refused");
        assert!(matches!(error, Error::NewerFormat { supported: entresol_engine::FORMAT, .. }), "{error}");
    })
    .expect("runs to the end");
}

#[test]
fn a_transaction_larger_than_the_log_fails_alone_and_small_ones_go_on() {
    let media = Media::new();
    run(&media, async |executor| {
        let log = log::Settings { page_size: 512, ..settings(256).log };
        let database = Database::create(executor, Settings { log, ..settings(256) }).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        let small = {
            let database = database.clone();
            executor.spawn(async move {
                for number in 0..400 {
                    database.transaction(async |tx| tx.put(tree, &key(number), &[7; 200]).await).await?;
                }
                Ok::<(), Error>(())
            })
        };
        let large = database.transaction(async |tx| {
            for number in 1_000..20_000 {
                tx.put(tree, &key(number), &[1; 200]).await?;
            }
            Ok(())
        });
        let large = large.await;
        assert!(matches!(large, Err(Error::LogFull { needed: 700_000.., capacity: 0x10_0000 })), "{large:?}");
        assert_eq!(small.join().await, Ok(()));
        assert_eq!(contents(&database, tree, Direction::Forward).await.len(), 400);
    })
    .expect("runs to the end");
}
