//! Transactions that free the pages of long values at the same time, in a small log, wait neither for each other nor for
//! themselves.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Internals, PartitionSpec, Settings, Transaction, buffer, log};
use executor::{Executor, WaitQueue, WholeExecutor};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::Media;

/// The length of a long value that takes some thirty pages.
const LONG: usize = 30_000;

fn settings(capacity: u64) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 256, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity, ..log::Settings::default() },
        checkpoint: Policy { log_bytes: Some(32 << 10), interval_ns: None },
        ..Settings::default()
    }
}

/// A database with a tree of `values` long values, another tree, and a set.
async fn create(executor: &Executor, capacity: u64, values: u32) -> Database {
    let database = Database::create(executor, settings(capacity)).await.expect("creates");
    for spec in [PartitionSpec::b_tree("texts"), PartitionSpec::b_tree("notes"), PartitionSpec::set("stock")] {
        database.create_partition(spec).await.expect("creates");
    }
    let texts = of(&database, "texts");
    for number in 0..values {
        let put = async |tx: &mut Transaction| tx.put(texts, &number.to_be_bytes(), &[7; LONG]).await;
        database.transaction(put).await.expect("puts");
    }
    database.checkpoint().await.expect("checkpoints");
    database
}

fn of(database: &Database, name: &str) -> PartitionId {
    database.partition(name).expect("it exists")
}

/// Puts `count` records of a kilobyte into the set, which the commit logs.
async fn fill(tx: &mut Transaction, tag: u8, count: u32) -> entresol_engine::Result<()> {
    let stock = tx.partition("stock")?;
    for number in 0..count {
        tx.put(stock, &[&[tag][..], &number.to_be_bytes()].concat(), &[tag; 1_000]).await?;
    }
    Ok(())
}

/// Puts `count` records of a few hundred bytes into a tree.
async fn change(tx: &mut Transaction, notes: PartitionId, tag: u8, count: u32) {
    for number in 0..count {
        let key = [&[tag][..], &number.to_be_bytes()].concat();
        tx.put(notes, &key, &[tag; 400]).await.expect("puts");
    }
}

/// Locks the next one, too.
async fn delete(tx: &mut Transaction, number: u32) -> entresol_engine::Result<bool> {
    let texts = tx.partition("texts")?;
    tx.delete(texts, &number.to_be_bytes()).await
}

/// Runs `work`, which must end within a minute of the machine's time.
fn on(media: &Media, work: impl AsyncFnOnce(Executor) + 'static) {
    run(media, async |executor| {
        let own = executor.clone();
        let work = executor.spawn(async move { work(own).await });
        let deadline = executor.now().plus_ns(60 * SECOND_NS);
        while !work.is_finished() {
            assert!(executor.now() < deadline, "a transaction waits for ever for room in the log");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        work.join().await;
    });
}

/// Others commit, and soon nothing of the deleted values is left.
async fn verify(executor: &Executor, database: &Database) {
    let notes = of(database, "notes");
    for number in 0..300_u32 {
        let put = async |tx: &mut Transaction| tx.put(notes, &number.to_be_bytes(), &[3; 200]).await;
        database.transaction(put).await.unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    executor.sleep_ns(SECOND_NS).await;
    assert_eq!(database.log().failure(), None);
    let report = database.check(|_| ()).await.expect("reads");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Commits one after the other, and waits for neither.
async fn commit_both(executor: &Executor, first: Transaction, second: Transaction) {
    let ends = [first, second].map(|tx| executor.spawn(tx.commit()));
    for end in ends {
        end.join().await.expect("commits");
    }
}

/// Neither may keep the room that taking the other one back would have needed: both are committed.
#[test]
fn of_two_neither_keeps_the_room_that_its_rollback_would_have_taken() {
    on(&Media::new(), async |executor| {
        let database = create(&executor, 256 << 10, 8).await;
        let notes = of(&database, "notes");
        // The log begins with this one, which so has to make room for both.
        let mut small = database.begin().await.expect("begins");
        delete(&mut small, 0).await.expect("deletes");
        let mut large = database.begin().await.expect("begins");
        delete(&mut large, 4).await.expect("deletes");
        change(&mut large, notes, 1, 40).await;
        fill(&mut large, 1, 176).await.expect("puts");
        commit_both(&executor, small, large).await;
        verify(&executor, &database).await;
    });
}

/// However much of the log is left when they are committed, they have the room to go on.
#[test]
fn a_commit_leaves_the_room_that_freeing_begins_with() {
    for records in (150..220).step_by(5) {
        on(&Media::new(), async move |executor| {
            let database = create(&executor, 256 << 10, 8).await;
            let notes = of(&database, "notes");
            let mut small = database.begin().await.expect("begins");
            delete(&mut small, 0).await.expect("deletes");
            let mut large = database.begin().await.expect("begins");
            delete(&mut large, 4).await.expect("deletes");
            change(&mut large, notes, 1, 25).await;
            fill(&mut large, 1, records).await.expect("puts");
            let small = executor.spawn(small.commit());
            let large = executor.spawn(large.commit());
            small.join().await.expect("commits");
            let _refused = large.join().await;
            verify(&executor, &database).await;
        });
    }
}

/// A transaction that had no room at its commit is promised it before it is run again.
#[test]
fn one_that_was_promised_room_does_not_wait_for_itself() {
    on(&Media::new(), async |executor| {
        let database = create(&executor, 256 << 10, 8).await;
        let (gate, arrived) = (Rc::new(WaitQueue::new()), Rc::new(Cell::new(0)));
        let client = |number: u32| {
            let (database, gate, arrived) = (database.clone(), Rc::clone(&gate), Rc::clone(&arrived));
            executor.spawn(async move {
                let work = async |tx: &mut Transaction| {
                    delete(tx, number).await?;
                    fill(tx, number as u8, 150).await?;
                    // Both come to their commits at the same time.
                    arrived.set(arrived.get() + 1);
                    if arrived.get() < 2 {
                        gate.wait(tx.executor().whole()).await;
                    }
                    gate.wake_all(tx.executor().whole());
                    Ok::<_, entresol_engine::Error>(())
                };
                database.transaction(work).await
            })
        };
        let clients = [0, 4].map(client);
        for client in clients {
            client.join().await.expect("commits");
        }
        assert!(arrived.get() > 2, "neither was run again");
        verify(&executor, &database).await;
    });
}

/// Many delete one long value each while another transaction holds the log, so that all of them go on with freeing later.
async fn delete_many(executor: &Executor, database: &Database, count: u32, held: u32) -> Transaction {
    let notes = of(database, "notes");
    let mut holding = database.begin().await.expect("begins");
    change(&mut holding, notes, 1, held).await;
    let client = |number: u32| {
        let database = database.clone();
        executor.spawn(async move { database.transaction(async |tx| delete(tx, number).await).await })
    };
    let clients: Vec<_> = (0..count).map(client).collect();
    for client in clients {
        assert_eq!(client.join().await, Ok(true));
    }
    holding
}

#[test]
fn many_that_free_at_once_come_to_an_end() {
    for (capacity, held) in [(128 << 10, 40), (256 << 10, 90)] {
        for commits in [false, true] {
            on(&Media::new(), async move |executor| {
                let database = create(&executor, capacity, 40).await;
                let holding = delete_many(&executor, &database, 40, held).await;
                executor.sleep_ns(SECOND_NS).await;
                if commits {
                    holding.commit().await.expect("commits")
                } else {
                    holding.rollback().await.expect("ends")
                }
                verify(&executor, &database).await;
            });
        }
    }
}

#[test]
fn a_restart_goes_on_freeing_for_many() {
    for (capacity, held) in [(128 << 10, 40), (256 << 10, 90)] {
        let media = Media::new();
        on(&media, async move |executor| {
            let database = create(&executor, capacity, 40).await;
            let holding = delete_many(&executor, &database, 40, held).await;
            executor.sleep_ns(SECOND_NS).await;
            std::mem::forget(holding);
        });
        on(&media, async move |executor| {
            let database = Database::open(&executor, settings(capacity), "here").await.expect("opens");
            verify(&executor, &database).await;
        });
    }
}

/// The same of transactions that are committed in the reverse order of their numbers.
async fn delete_in_reverse(executor: &Executor, database: &Database, count: u32, held: u32) -> Transaction {
    let notes = of(database, "notes");
    let mut holding = database.begin().await.expect("begins");
    change(&mut holding, notes, 1, held).await;
    let mut deleting = Vec::new();
    for number in 0..count {
        let mut tx = database.begin().await.expect("begins");
        delete(&mut tx, 2 * number).await.expect("deletes");
        deleting.push(tx);
    }
    let ends: Vec<_> = deleting.into_iter().rev().map(|tx| executor.spawn(tx.commit())).collect();
    for end in ends {
        end.join().await.expect("commits");
    }
    holding
}

#[test]
fn a_restart_goes_on_freeing_for_many_in_any_order() {
    for (capacity, held) in [(128 << 10, 20), (128 << 10, 40), (256 << 10, 60), (256 << 10, 90)] {
        for rest_ns in [0, SECOND_NS] {
            let media = Media::new();
            on(&media, async move |executor| {
                let database = create(&executor, capacity, 40).await;
                let holding = delete_in_reverse(&executor, &database, 20, held).await;
                executor.sleep_ns(rest_ns).await;
                std::mem::forget(holding);
            });
            on(&media, async move |executor| {
                let database = Database::open(&executor, settings(capacity), "here").await.expect("opens");
                verify(&executor, &database).await;
            });
        }
    }
}

#[test]
fn freeing_goes_on_as_soon_as_the_log_is_there() {
    for commits in [false, true] {
        on(&Media::new(), async move |executor| {
            let database = create(&executor, 128 << 10, 40).await;
            let holding = delete_many(&executor, &database, 40, 40).await;
            executor.sleep_ns(30 * SECOND_NS).await;
            if commits {
                holding.commit().await.expect("commits")
            } else {
                holding.rollback().await.expect("ends")
            }
            let began = executor.now();
            verify(&executor, &database).await;
            let took_ns = executor.now().since_ns(began);
            assert!(took_ns < 2 * SECOND_NS, "others waited for {took_ns} ns");
        });
    }
}

#[cfg(feature = "canary")]
mod planted {
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn room_that_is_kept_for_a_rollback_behind_the_commit_is_found() {
        plant(Some(Canary::KeptRollbackRoom));
        let found = std::panic::catch_unwind(super::one_that_was_promised_room_does_not_wait_for_itself);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }
}
