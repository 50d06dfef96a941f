//! Waits that would last for ever, or for longer than they may, end with an error that names who is in the way.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, Transaction};
use executor::WholeExecutor;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use virtual_driver::Media;

fn with_notes(settings: Settings, work: impl AsyncFn(&Database, PartitionId) -> Result<()>) {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        database.transaction(async |tx| tx.put(notes, b"milk", &[1]).await).await?;
        work(&database, notes).await
    })
    .expect("nothing else fails");
}

/// Both, each polled whenever the task is.
pub(super) async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    let (mut one, mut other, mut done) = (pin!(one), pin!(other), (None, None));
    poll_fn(|context| {
        if done.0.is_none()
            && let Poll::Ready(value) = one.as_mut().poll(context)
        {
            done.0 = Some(value);
        }
        if done.1.is_none()
            && let Poll::Ready(value) = other.as_mut().poll(context)
        {
            done.1 = Some(value);
        }
        if done.0.is_some() && done.1.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (done.0.expect("it is done"), done.1.expect("it is done"))
}

#[test]
fn a_wait_has_the_limit_of_the_settings_or_of_its_transaction() {
    let settings = Settings { lock_wait_ns_max: Some(2 * SECOND_NS), ..Settings::default() };
    with_notes(settings, async |database, notes| {
        let executor = database.executor().whole().clone();
        let mut holder = database.begin().await?;
        holder.put(notes, b"milk", &[2]).await?;
        let wait = |limit: Option<u64>| {
            let database = database.clone();
            executor.spawn(async move {
                let began = database.executor().now();
                let mut tx = database.begin().await?;
                tx.wait_at_most(limit.map(std::time::Duration::from_nanos));
                let refused = tx.put(notes, b"milk", &[3]).await;
                let waited_ns = database.executor().now().since_ns(began);
                tx.put(notes, b"bread", &[3]).await?;
                tx.commit().await?;
                Ok::<_, Error>((refused, waited_ns))
            })
        };
        let waits = [None, Some(SECOND_NS), Some(30 * MILLISECOND_NS), Some(0)].map(|limit| (limit, wait(limit)));
        executor.sleep_ns(10 * MILLISECOND_NS).await;
        assert_eq!(database.waits().len(), 3, "the others still wait");
        for (limit, wait) in waits {
            let (refused, waited_ns) = wait.join().await?;
            let limit_ns = limit.unwrap_or(2 * SECOND_NS);
            assert!((limit_ns..limit_ns + MILLISECOND_NS).contains(&waited_ns), "{waited_ns} ns instead of {limit_ns}");
            let Err(Error::LockTimeout { resource, holders, .. }) = refused else { panic!("{refused:?}") };
            assert!(resource.starts_with("record") && resource.ends_with("of 'notes'"), "{resource}");
            assert!(holders.contains(&holder.id()), "{holders:?}");
        }
        assert!(database.waits().is_empty());
        holder.commit().await?;
        assert_eq!(database.transaction(async |tx| tx.get(notes, b"milk").await).await?, Some(vec![2]));
        database.locks().check().expect("no request is left");
        Ok(())
    });
}

#[test]
fn a_task_is_told_that_it_waits_for_itself() {
    with_notes(Settings::default(), async |database, notes| {
        let mut holder = database.begin().await?;
        holder.put(notes, b"milk", &[2]).await?;
        let refused = database.transaction(async |tx| tx.put(notes, b"milk", &[3]).await).await;
        assert!(matches!(&refused, Err(Error::OwnLock { holders, .. }) if *holders == [holder.id()]), "{refused:?}");
        holder.commit().await?;
        // A closure in a closure.
        let inner = async |outer: &mut Transaction| {
            outer.put(notes, b"milk", &[4]).await?;
            database.transaction(async |tx| tx.put(notes, b"milk", &[5]).await).await
        };
        let refused = database.transaction(inner).await;
        assert!(matches!(&refused, Err(Error::OwnLock { .. })), "{refused:?}");
        assert_eq!(database.transaction(async |tx| tx.get(notes, b"milk").await).await?, Some(vec![2]));
        Ok(())
    });
}

#[test]
fn what_the_engine_spawns_meanwhile_does_not_keep_it_from_being_told() {
    with_notes(Settings::default(), async |database, notes| {
        let mut holder = database.begin().await?;
        holder.put(notes, b"milk", &[2]).await?;
        // Its log is written by a task of the engine's.
        database.transaction(async |tx| tx.put(notes, b"bread", &[3]).await).await?;
        let refused = database.transaction(async |tx| tx.put(notes, b"milk", &[3]).await).await;
        assert!(matches!(&refused, Err(Error::OwnLock { holders, .. }) if *holders == [holder.id()]), "{refused:?}");
        holder.commit().await
    });
}

#[test]
fn a_task_is_told_that_it_waits_for_itself_by_way_of_another() {
    with_notes(Settings::default(), async |database, notes| {
        let mut holder = database.begin().await?;
        let between = {
            let database = database.clone();
            database.executor().clone().spawn(async move {
                let mut tx = database.begin().await?;
                tx.put(notes, b"bread", &[2]).await?;
                database.executor().sleep_ns(MILLISECOND_NS).await;
                tx.put(notes, b"milk", &[2]).await?;
                tx.commit().await
            })
        };
        holder.put(notes, b"milk", &[2]).await?;
        database.executor().sleep_ns(2 * MILLISECOND_NS).await;
        let refused = database.transaction(async |tx| tx.put(notes, b"bread", &[3]).await).await;
        assert!(matches!(&refused, Err(Error::OwnLock { .. })), "{refused:?}");
        holder.commit().await?;
        between.join().await
    });
}

#[test]
fn a_wait_that_ends_is_none_for_oneself() {
    with_notes(Settings::default(), async |database, notes| {
        let executor = database.executor().whole().clone();
        let put = async |number| database.transaction(async |tx| tx.put(notes, b"milk", &[number]).await).await;
        // Another task has the transaction, and rests.
        let mut given = database.begin().await?;
        given.put(notes, b"milk", &[2]).await?;
        let rests = executor.clone();
        executor.spawn(async move {
            rests.sleep_ns(5 * SECOND_NS).await;
            given.commit().await
        });
        assert_eq!(put(3).await, Ok(()), "the other task ends it");
        // The same task goes on with it, beside the wait.
        let hold = async {
            let mut tx = database.begin().await?;
            tx.put(notes, b"milk", &[4]).await?;
            executor.sleep_ns(5 * SECOND_NS).await;
            tx.commit().await
        };
        assert_eq!(both(hold, put(5)).await, (Ok(()), Ok(())));
        let hold = async {
            let mut tx = database.begin().await?;
            tx.put(notes, b"milk", &[6]).await?;
            executor.sleep_ns(5 * SECOND_NS).await;
            tx.commit().await
        };
        let late = async {
            executor.sleep_ns(MILLISECOND_NS).await;
            put(7).await
        };
        assert_eq!(both(late, hold).await, (Ok(()), Ok(())));
        // One that was dropped is being rolled back.
        let mut dropped = database.begin().await?;
        dropped.put(notes, b"milk", &[8]).await?;
        drop(dropped);
        assert_eq!(put(9).await, Ok(()));
        Ok(())
    });
}

#[test]
fn tasks_that_all_wait_to_begin_another_transaction_are_told() {
    let settings = Settings { multiprogramming_level: 3, ..Settings::default() };
    with_notes(settings, async |database, notes| {
        let mut own = Vec::new();
        for _ in 0..3 {
            own.push(database.begin().await?);
        }
        let refused = database.begin().await.err();
        assert_eq!(refused, Some(Error::TooManyTransactions { level: 3 }));
        own.pop().expect("three").commit().await?;
        database.begin().await?.commit().await?;
        for tx in own {
            tx.commit().await?;
        }
        // Three tasks, each with a transaction in which it begins another one.
        let refusals = std::rc::Rc::new(Cell::new(0));
        let clients: Vec<_> = (0..3_u8)
            .map(|number| {
                let (database, refusals) = (database.clone(), std::rc::Rc::clone(&refusals));
                database.executor().clone().spawn(async move {
                    let outer = database.begin().await?;
                    database.executor().sleep_ns(u64::from(number + 1) * MILLISECOND_NS).await;
                    match database.begin().await {
                        Ok(inner) => inner.commit().await?,
                        Err(Error::TooManyTransactions { .. }) => refusals.set(refusals.get() + 1),
                        Err(error) => return Err(error),
                    }
                    outer.commit().await
                })
            })
            .collect();
        for client in clients {
            client.join().await?;
        }
        assert_eq!(refusals.get(), 1, "one gives way, the others go on");
        // Without others of its own a task waits for as long as it takes.
        let held = database.begin().await?;
        let (two, executor) = ([database.begin().await?, database.begin().await?], database.executor().whole().clone());
        let waits = {
            let database = database.clone();
            executor.spawn(async move { database.transaction(async |tx| tx.put(notes, b"milk", &[9]).await).await })
        };
        executor.sleep_ns(60 * SECOND_NS).await;
        assert_eq!((waits.is_finished(), database.waiting_to_begin()), (false, 1));
        held.commit().await?;
        waits.join().await?;
        for tx in two {
            tx.commit().await?;
        }
        Ok(())
    });
}

#[test]
fn a_transaction_that_waits_for_a_task_which_waits_for_it_is_ended_by_the_limit() {
    let settings = Settings { lock_wait_ns_max: Some(2 * SECOND_NS), ..Settings::default() };
    with_notes(settings, async |database, notes| {
        let began = database.executor().now();
        database
            .transaction(async |tx| {
                tx.put(notes, b"milk", &[2]).await?;
                let other = database.clone();
                let task = database
                    .executor()
                    .spawn(async move { other.transaction(async |tx| tx.put(notes, b"milk", &[3]).await).await });
                let refused = task.join().await;
                assert!(matches!(&refused, Err(Error::LockTimeout { holders, .. }) if *holders == [tx.id()]));
                tx.put(notes, b"bread", &[2]).await
            })
            .await?;
        let waited_ns = database.executor().now().since_ns(began);
        assert!((2 * SECOND_NS..3 * SECOND_NS).contains(&waited_ns), "{waited_ns}");
        Ok(())
    });
}

#[test]
fn snapshots_count_for_no_limit_of_transactions() {
    let settings = Settings { multiprogramming_level: 1, ..Settings::default() };
    with_notes(settings, async |database, notes| {
        let mut before = [database.snapshot().await?, database.snapshot().await?];
        // One beside it, of the same task and of another.
        let mut tx = database.begin().await?;
        tx.put(notes, b"milk", &[2]).await?;
        assert_eq!(database.begin().await.err(), Some(Error::TooManyTransactions { level: 1 }));
        let mut beside = database.snapshot().await?;
        let waits = {
            let database = database.clone();
            let executor = database.executor().whole().clone();
            executor.spawn(async move { database.transaction(async |tx| tx.put(notes, b"bread", &[3]).await).await })
        };
        for snapshot in before.iter_mut().chain([&mut beside]) {
            assert_eq!(snapshot.get(notes, b"milk").await?, Some(vec![1]));
        }
        database.executor().sleep_ns(SECOND_NS).await;
        assert_eq!((waits.is_finished(), database.waiting_to_begin()), (false, 1), "one at a time, as ever");
        tx.commit().await?;
        waits.join().await?;
        assert_eq!(before[0].get(notes, b"bread").await?, None);
        Ok(())
    });
}
