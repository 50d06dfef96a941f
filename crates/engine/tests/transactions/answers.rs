//! Answers that say no: they, too, leave only when what they follow from can no longer be lost.

use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::server::{self, TransactionServer};
use entresol_engine::{
    Database, Direction, Error, Internals, Isolation, PartitionSpec, Procedures, Result, Settings, Transaction,
    checkpoint,
};
use executor::{Executor, Order};
use std::ops::Bound;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, VirtualDriver};

/// A log write takes so long.
const WRITE_NS: u64 = 10 * MILLISECOND_NS;

/// Runs `work` with a database of a tree and a set, each with a record, whose log is slow.
fn run(procedures: Procedures, work: impl AsyncFnOnce(&Database, [PartitionId; 2]) -> Result<()>) {
    let text = "[device.disk]\nmedium.service = \"1 us\"\n[device.log]\nmedium.service = \"10 ms\"\n";
    let hardware = Hardware::parse(text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done: Result<()> = executor
        .run(async {
            let settings = Settings { procedures, log_device: "log".into(), ..Settings::default() };
            let database = Database::create(&executor, settings).await?;
            let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let set = database.create_partition(PartitionSpec::new("set", set, Locking::Record)).await?;
            let load = async |tx: &mut Transaction| {
                tx.put(tree, b"old", &[1]).await?;
                tx.put(set, b"old", &[1]).await
            };
            database.transaction(load).await?;
            work(&database, [tree, set]).await
        })
        .expect("the machine goes on");
    executor.stop();
    done.expect("nothing else fails");
}

/// Commits `work` in the background, so far that its locks are free.
async fn commit_meanwhile(
    database: &Database,
    work: impl AsyncFnOnce(&mut Transaction) -> Result<()> + 'static,
) -> executor::JoinHandle<Result<()>> {
    let (background, before) = (database.clone(), database.log().end());
    let committed = database.executor().spawn(async move {
        let mut tx = background.begin().await?;
        work(&mut tx).await?;
        tx.commit().await
    });
    database.executor().sleep_ns(1_000).await;
    assert!(database.log().end() > before, "its commit record stands in the log");
    committed
}

/// What `work` in a transaction of its own comes to while `change` is committed and not yet durable: it must not be told before.
async fn refused<T: std::fmt::Debug>(
    database: &Database,
    isolation: Isolation,
    change: impl AsyncFnOnce(&mut Transaction) -> Result<()> + 'static,
    work: impl AsyncFnMut(&mut Transaction) -> Result<T>,
) -> Result<T> {
    let committed = commit_meanwhile(database, change).await;
    let depends_on = database.log().end();
    let answer = database.transaction_at(isolation, work).await;
    assert!(database.log().durable() >= depends_on, "it was told {answer:?} before that is durable");
    committed.join().await?;
    answer
}

#[test]
fn a_refusal_waits_for_the_commits_that_it_follows_from() {
    run(Procedures::new(), async |database, [tree, set]| {
        for isolation in Isolation::ALL {
            for (partition, name) in [(tree, "tree"), (set, "set")] {
                let insert = async move |tx: &mut Transaction| tx.insert(partition, b"new", &[2]).await;
                let duplicate = refused(database, isolation, insert, insert).await;
                assert_eq!(duplicate, Err(Error::Duplicate(name.into())));
                let delete = async move |tx: &mut Transaction| tx.delete(partition, b"new").await.map(|_| ());
                let modify = async |tx: &mut Transaction| tx.modify(partition, b"new", |_| ()).await;
                assert_eq!(refused(database, isolation, delete, modify).await, Err(Error::NoRecord(name.into())));
                let value = 10 + isolation as u8;
                let put = async move |tx: &mut Transaction| tx.put(partition, b"old", &[value]).await;
                let own = async |tx: &mut Transaction| match tx.get(partition, b"old").await? {
                    Some(value) => Err::<(), _>(Error::RolledBack(format!("it is {}", value[0]))),
                    None => Ok(()),
                };
                assert_eq!(
                    refused(database, isolation, put, own).await,
                    Err(Error::RolledBack(format!("it is {value}")))
                );
            }
            let scan = async |tx: &mut Transaction| {
                let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                let mut count = 0;
                while tx.next(&mut cursor).await?.is_some() {
                    count += 1;
                }
                Err::<(), _>(Error::RolledBack(format!("{count}")))
            };
            let insert = async move |tx: &mut Transaction| tx.insert(tree, b"scanned", &[2]).await;
            assert_eq!(refused(database, isolation, insert, scan).await, Err(Error::RolledBack("2".into())));
            let delete = async move |tx: &mut Transaction| tx.delete(tree, b"scanned").await.map(|_| ());
            assert_eq!(refused(database, isolation, delete, scan).await, Err(Error::RolledBack("1".into())));
        }
        Ok(())
    });
}

#[test]
fn so_does_a_rollback_that_the_caller_asks_for() {
    run(Procedures::new(), async |database, [tree, _]| {
        for isolation in Isolation::ALL {
            let put = async move |tx: &mut Transaction| tx.put(tree, b"old", &[7]).await;
            let committed = commit_meanwhile(database, put).await;
            let depends_on = database.log().end();
            let mut tx = database.begin_at(isolation).await?;
            assert_eq!(tx.get(tree, b"old").await?, Some(vec![7]));
            tx.rollback().await?;
            assert!(database.log().durable() >= depends_on, "{isolation:?}");
            committed.join().await?;
        }
        Ok(())
    });
}

/// Partitions without locks, with a record or an object each: a tree, objects, one for records in their order, a set of arrivals.
async fn without_locks(database: &Database) -> Result<[PartitionId; 4]> {
    let objects = Organization::Direct { objects: 10, blocking_factor: 10, record_size: 8 };
    let arrivals = Organization::Set { arrivals: true, segment_size: 16 << 10, reserve_percent: 10 };
    let organizations = [
        ("loose-tree", Organization::BTree),
        ("objects", objects),
        ("heap", Organization::Append { blocking_factor: 0 }),
        ("arrivals", arrivals),
    ];
    let mut partitions = [PartitionId(0); 4];
    for (partition, (name, organization)) in partitions.iter_mut().zip(organizations) {
        *partition = database.create_partition(PartitionSpec::new(name, organization, Locking::None)).await?;
    }
    let [tree, objects, heap, arrivals] = partitions;
    let load = async |tx: &mut Transaction| {
        tx.put(tree, b"old", &[1]).await?;
        tx.modify_object(objects, 3, |object| object[0] = 1).await?;
        tx.append(heap, &[1]).await?;
        tx.append(arrivals, &[1]).await.map(drop)
    };
    database.transaction(load).await?;
    Ok(partitions)
}

async fn count_appended(tx: &mut Transaction, partition: PartitionId) -> Result<u8> {
    let mut count = 0;
    tx.scan_appended(partition, |_, _| {
        count += 1;
        true
    })
    .await?;
    Ok(count)
}

/// What a transaction sees in one of these partitions, in one of several ways.
async fn see(tx: &mut Transaction, [tree, objects, heap, arrivals]: [PartitionId; 4], way: u8) -> Result<u8> {
    Ok(match way {
        0 => tx.get(tree, b"old").await?.expect("it is there")[0],
        1 => tx.get_with(tree, b"old", |value| value.expect("it is there")[0]).await?,
        2 => {
            let mut seen = 0;
            tx.get_each_with(tree, &["old"], |_, value| seen = value.expect("it is there")[0]).await?;
            seen
        }
        3 => {
            let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            tx.next(&mut cursor).await?.expect("it is there").1[0]
        }
        4 => {
            let mut seen = 0;
            let look = |_: &[u8], value: &[u8]| {
                seen = value[0];
                true
            };
            tx.scan(tree, .., Direction::Backward).look(look).await?;
            seen
        }
        5 => tx.get_for_update(tree, b"old").await?.expect("it is there")[0],
        6 => tx.modify(tree, b"old", |value| value[0]).await?,
        7 => tx.read_object(objects, 3, |object| object[0]).await?,
        8 => count_appended(tx, heap).await?,
        _ => count_appended(tx, arrivals).await?,
    })
}

/// A snapshot ends without an answer of its own: what it shows of the present is durable when it is shown.
#[test]
fn a_snapshot_shows_the_present_of_what_has_no_locks_once_that_is_durable() {
    run(Procedures::new(), async |database, _| {
        let [tree, objects, ..] = without_locks(database).await?;
        for way in 0..5 {
            let value = way + 1;
            let mut snapshot = database.snapshot().await?;
            let change = async move |tx: &mut Transaction| {
                tx.put(tree, b"old", &[value]).await?;
                tx.modify_object(objects, 3, |object| object[0] = value).await
            };
            let committed = commit_meanwhile(database, change).await;
            let depends_on = database.log().end();
            let mut seen = 0;
            match way {
                0 => seen = snapshot.get(tree, b"old").await?.expect("it is there")[0],
                1 => {
                    let mut cursor = snapshot.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                    seen = snapshot.next(&mut cursor).await?.expect("it is there").1[0];
                }
                2 => seen = snapshot.scan(tree, .., Direction::Forward).take(1).await?[0].1[0],
                3 => {
                    let look = |_: &[u8], record: &[u8]| {
                        seen = record[0];
                        true
                    };
                    snapshot.scan(tree, .., Direction::Backward).look(look).await?;
                }
                _ => seen = snapshot.read_object(objects, 3, |object| object[0]).await?,
            }
            assert_eq!(seen, value, "way {way}");
            assert!(database.log().durable() >= depends_on, "way {way}: it was shown before that is durable");
            committed.join().await?;
        }
        Ok(())
    });
}

/// Where nothing is locked, nothing tells whose updates were read.
#[test]
fn what_was_seen_without_locks_is_told_when_the_commits_are_durable_that_it_may_show() {
    run(Procedures::new(), async |database, _| {
        let all = without_locks(database).await?;
        let [tree, objects, heap, arrivals] = all;
        let mut value = 1;
        for (isolation, way) in
            Isolation::ALL.into_iter().flat_map(|isolation| (0..10).map(move |way| (isolation, way)))
        {
            // Views see what was added in its order as it was at their moment.
            if isolation != Isolation::Serializable && way > 7 {
                continue;
            }
            for commits in [true, false] {
                value += 1;
                let change = async move |tx: &mut Transaction| {
                    tx.put(tree, b"old", &[value]).await?;
                    tx.modify_object(objects, 3, |object| object[0] = value).await?;
                    tx.append(heap, &[value]).await?;
                    tx.append(arrivals, &[value]).await.map(drop)
                };
                let mut tx = database.begin_at(isolation).await?;
                let committed = commit_meanwhile(database, change).await;
                let depends_on = database.log().end();
                assert_eq!(see(&mut tx, all, way).await?, value, "{isolation:?}, way {way}");
                if commits {
                    tx.commit().await?
                } else {
                    tx.rollback().await?
                }
                let durable = database.log().durable();
                assert!(durable >= depends_on, "{isolation:?}, way {way}: it was told before that is durable");
                committed.join().await?;
            }
        }
        Ok(())
    });
}

#[cfg(feature = "canary")]
#[test]
fn what_is_told_of_partitions_without_locks_too_early_is_found() {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;
    is_found(Canary::UnlockedSight, what_was_seen_without_locks_is_told_when_the_commits_are_durable_that_it_may_show);
}

/// A call that waits behind a part of its range has locked that part, and may be given up.
#[test]
fn what_is_missing_from_the_locked_part_of_a_range_is_told_when_that_is_durable() {
    run(Procedures::new(), async |database, [tree, _]| {
        let load = async |tx: &mut Transaction| {
            tx.put(tree, b"k1", &[1]).await?;
            tx.put(tree, b"k2", &[1]).await
        };
        database.transaction(load).await?;
        let delete = async move |tx: &mut Transaction| tx.delete(tree, b"k1").await.map(drop);
        let committed = commit_meanwhile(database, delete).await;
        let depends_on = database.log().end();
        let mut writer = database.begin().await?;
        writer.delete(tree, b"k2").await?;
        let mut tx = database.begin().await?;
        let mut cursor = tx.cursor(tree, Bound::Included(b"k1"), Bound::Unbounded, Direction::Forward);
        {
            let mut next = std::pin::pin!(tx.next(&mut cursor));
            std::future::poll_fn(|context| {
                assert!(next.as_mut().poll(context).is_pending(), "it waits for the deletion behind");
                std::task::Poll::Ready(())
            })
            .await;
        }
        assert_eq!(tx.get(tree, b"k1").await?, None);
        tx.commit().await?;
        assert!(database.log().durable() >= depends_on, "it was told before the deletion is durable");
        writer.rollback().await?;
        committed.join().await
    });
}

#[test]
fn a_refusal_that_follows_from_nothing_new_waits_for_nothing() {
    run(Procedures::new(), async |database, [tree, set]| {
        for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
            let value = 10 + isolation as u8;
            let put = async move |tx: &mut Transaction| tx.put(set, b"old", &[value]).await;
            let committed = commit_meanwhile(database, put).await;
            let began = database.executor().now();
            let insert = async |tx: &mut Transaction| tx.insert(tree, b"old", &[2]).await;
            assert_eq!(database.transaction_at(isolation, insert).await, Err(Error::Duplicate("tree".into())));
            database.begin_at(isolation).await?.rollback().await?;
            database.begin_at(isolation).await?.commit().await?;
            assert!(database.executor().now().since_ns(began) < WRITE_NS / 10, "{isolation:?}");
            committed.join().await?;
        }
        Ok(())
    });
}

#[test]
fn a_refusal_whose_reasons_are_lost_with_the_log_is_none() {
    let text = "[device.disk]\nmedium.service = \"1 us\"\n[device.log]\nmedium.service = \"10 ms\"\n";
    for nth in 1.. {
        let hardware = Hardware::parse(text, "test").expect("a description");
        let errors = (nth..nth + 1_000).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("log".into()), nth });
        let faults = Some(FaultPlan { errors: errors.collect(), ..FaultPlan::default() });
        let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
        let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let answers = executor.run(async {
            let settings = Settings { log_device: "log".into(), ..Settings::default() };
            let database = Database::create(&executor, settings).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let insert = async move |tx: &mut Transaction| tx.insert(tree, b"new", &[2]).await;
            let committed = commit_meanwhile(&database, insert).await;
            let refused = database.transaction(insert).await;
            Ok::<_, Error>((committed.join().await, refused))
        });
        executor.stop();
        // Until then the log has failed during the creation.
        let Ok((committed, refused)) = answers.expect("the machine goes on") else { continue };
        if committed.is_ok() {
            assert_eq!(refused, Err(Error::Duplicate("tree".into())));
            return;
        }
        assert!(matches!(refused, Err(Error::LogFailed(_))), "{refused:?}");
    }
}

/// Procedures that insert the record `new` into the tree, and that say no when it is there.
fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    for (name, isolation) in
        [("insert", Isolation::Serializable), ("insert at read committed", Isolation::ReadCommitted)]
    {
        let insert = procedures.register(name, async |tx, _| {
            let tree = tx.partition("tree")?;
            tx.insert(tree, b"new", &[2]).await.map(|()| Vec::new())
        });
        insert.at(isolation);
    }
    procedures
}

#[test]
fn a_server_answers_no_only_when_that_can_be_told() {
    for name in ["insert", "insert at read committed"] {
        for is_served in [false, true] {
            run(procedures(), async |database, [tree, _]| {
                let server = TransactionServer::start(database, server::Settings::default())?;
                let insert = async move |tx: &mut Transaction| tx.insert(tree, b"new", &[2]).await;
                let committed = commit_meanwhile(database, insert).await;
                let depends_on = database.log().end();
                let answer = if is_served {
                    let (messages, mut responses) = (server.message_server(), Vec::new());
                    messages.submit(server.procedure(name)?, 0, Vec::new()).await?;
                    messages.receive(&mut responses).await;
                    responses.remove(0).answer
                } else {
                    database.call(name, &[]).await
                };
                assert_eq!(answer, Err(Error::Duplicate("tree".into())));
                assert!(database.log().durable() >= depends_on, "{name}, served: {is_served}");
                committed.join().await?;
                server.close().await;
                Ok(())
            });
        }
    }
}

#[test]
fn an_abandoned_commit_keeps_no_reader_of_it_waiting() {
    let text = "[cpu]\ncount = 1\nmips = 1\n[cpu.instructions]\nbegin_transaction = 0\nobject_reference = 0\nend_transaction = 0\n\
                input_output = 0\nnvem_access = 0\nlog_page = 5000\n[device.disk]\nmedium.service = \"20 us\"\n";
    let hardware = Hardware::parse(text, "test").expect("a description");
    let options = Options { faults: Some(FaultPlan::default()), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done: Result<()> = executor
        .run(async {
            let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
            let database = Database::create(&executor, settings).await?;
            let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
            let set = database.create_partition(PartitionSpec::new("set", set, Locking::Record)).await?;
            let mut tx = database.begin().await?;
            for key in 0..10_u8 {
                tx.put(set, &[key], &[7; 1_000]).await?;
            }
            let before = database.log().end();
            {
                // Its record fills pages of the log, which cost CPU time: the caller gives up while that is paid.
                let mut commits = std::pin::pin!(tx.commit());
                while database.log().end() == before {
                    std::future::poll_fn(|context| {
                        assert!(commits.as_mut().poll(context).is_pending());
                        std::task::Poll::Ready(())
                    })
                    .await;
                    executor.yield_now().await;
                }
            }
            let read = async |tx: &mut Transaction| tx.get(set, &[3]).await;
            let mut read = std::pin::pin!(database.transaction(read));
            let mut patience = std::pin::pin!(executor.sleep_ns(SECOND_NS));
            let read = std::future::poll_fn(|context| match read.as_mut().poll(context) {
                std::task::Poll::Ready(read) => std::task::Poll::Ready(Some(read)),
                std::task::Poll::Pending => patience.as_mut().poll(context).map(|()| None),
            });
            assert!(read.await == Some(Ok(Some(vec![7; 1_000]))), "it waits for a log write that does not come");
            Ok(())
        })
        .expect("the machine goes on");
    executor.stop();
    done.expect("nothing else fails");
}
