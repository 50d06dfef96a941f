//! A transaction that was told to give up: nothing more can be done in it, and nothing of it is ever committed.

use crate::ground::machine::run;
use base::PartitionId;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::lock::VictimPolicy;
use entresol_engine::server::{self, TransactionServer};
use entresol_engine::{
    Database, Direction, Error, Isolation, PartitionSpec, Procedures, Result, Settings, Transaction,
};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::rc::Rc;
use virtual_driver::Media;

/// The partitions of a test.
struct Tables {
    tree: PartitionId,
    set: PartitionId,
    objects: PartitionId,
    history: PartitionId,
}

async fn create(executor: &Executor, procedures: Procedures) -> Result<(Database, Tables)> {
    let settings = Settings { procedures, victim: VictimPolicy::Youngest, ..Settings::default() };
    let database = Database::create(executor, settings).await?;
    let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let direct = Organization::Direct { objects: 4, blocking_factor: 2, record_size: 8 };
    let tables = Tables {
        tree: database.create_partition(PartitionSpec::b_tree("tree")).await?,
        set: database.create_partition(PartitionSpec::new("set", set, Locking::Record)).await?,
        objects: database.create_partition(PartitionSpec::new("objects", direct, Locking::Record)).await?,
        history: database.create_partition(PartitionSpec::append("history")).await?,
    };
    let load = async |tx: &mut Transaction| {
        for key in [b"a", b"b", b"c"] {
            tx.put(tables.tree, key, &[1]).await?;
            tx.put(tables.set, key, &[1]).await?;
        }
        Ok::<_, Error>(())
    };
    database.transaction(load).await?;
    Ok((database, tables))
}

/// A transaction that has changed record `a` of the tree and of the set, and was then chosen as a deadlock's victim.
async fn victim(database: &Database, tables: &Tables) -> Result<Transaction> {
    let (tree, set) = (tables.tree, tables.set);
    let mut older = database.begin().await?;
    let mut younger = database.begin().await?;
    older.put(tree, b"b", &[2]).await?;
    younger.put(tree, b"a", &[3]).await?;
    younger.put(set, b"a", &[3]).await?;
    let waits = database.executor().spawn(async move {
        older.put(tree, b"a", &[2]).await?;
        older.rollback().await
    });
    database.executor().sleep_ns(1_000).await;
    assert_eq!(younger.put(tree, b"b", &[3]).await, Err(Error::Deadlock));
    drop(waits);
    Ok(younger)
}

/// A transaction that has changed the same and met a write conflict.
async fn refused(database: &Database, tables: &Tables) -> Result<Transaction> {
    let mut tx = database.begin_at(Isolation::Snapshot).await?;
    database.transaction(async |tx| tx.put(tables.tree, b"b", &[2]).await).await?;
    tx.put(tables.tree, b"a", &[3]).await?;
    tx.put(tables.set, b"a", &[3]).await?;
    assert_eq!(tx.put(tables.tree, b"b", &[3]).await, Err(Error::WriteConflict("tree".into())));
    Ok(tx)
}

/// What every call comes to.
async fn calls(tx: &mut Transaction, tables: &Tables) -> Vec<(&'static str, Result<()>)> {
    let Tables { tree, set, objects, history } = *tables;
    let all = || tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    let (mut cursor, savepoint) = (all(), tx.savepoint());
    vec![
        ("get", tx.get(tree, b"c").await.map(|_| ())),
        ("get what it holds", tx.get(tree, b"a").await.map(|_| ())),
        ("get for update", tx.get_for_update(tree, b"c").await.map(|_| ())),
        ("look", tx.get_with(set, b"c", |_| ()).await),
        ("insert", tx.insert(tree, b"d", &[4]).await),
        ("put", tx.put(set, b"d", &[4]).await),
        ("modify", tx.modify(tree, b"c", |_| ()).await),
        ("add", tx.add(set, b"c", 0..1, 1).await.map(|_| ())),
        ("delete", tx.delete(set, b"c").await.map(|_| ())),
        ("read an object", tx.read_object(objects, 0, |_| ()).await),
        ("modify an object", tx.modify_object(objects, 0, |_| ()).await),
        ("append", tx.append(history, &[1]).await.map(|_| ())),
        ("scan what was appended", tx.scan_appended(history, |_, _| true).await),
        ("scan a set", tx.scan_set(set, |_, _| true).await),
        ("next", tx.next(&mut cursor).await.map(|_| ())),
        ("roll back to a savepoint", tx.rollback_to(savepoint).await),
    ]
}

async fn assert_nothing_is_left(database: &Database, tables: &Tables) -> Result<()> {
    for partition in [tables.tree, tables.set] {
        let found = database.transaction(async |tx| tx.get(partition, b"a").await).await?;
        assert_eq!(found, Some(vec![1]), "half of a transaction is committed");
    }
    Ok(())
}

fn assert_aborted(call: &str, done: &Result<()>, cause: &Error) {
    assert_eq!(done, &Err(Error::Aborted { cause: Box::new(cause.clone()) }), "{call}");
}

#[test]
fn a_transaction_that_was_told_to_give_up_can_do_nothing_more_and_commits_nothing() {
    run(&Media::new(), async |executor| {
        let (database, tables) = create(executor, Procedures::new()).await?;
        for round in 0..2 {
            let (mut tx, cause) = match round {
                0 => (victim(&database, &tables).await?, Error::Deadlock),
                _ => (refused(&database, &tables).await?, Error::WriteConflict("tree".into())),
            };
            for (call, done) in calls(&mut tx, &tables).await {
                assert_aborted(call, &done, &cause);
            }
            assert_aborted("commit", &tx.commit().await, &cause);
            assert_nothing_is_left(&database, &tables).await?;
        }
        Ok::<(), Error>(())
    })
    .expect("nothing else fails");
}

#[test]
fn a_savepoint_does_not_revive_it() {
    run(&Media::new(), async |executor| {
        let (database, tables) = create(executor, Procedures::new()).await?;
        let mut tx = database.begin_at(Isolation::Snapshot).await?;
        tx.put(tables.tree, b"a", &[3]).await?;
        let savepoint = tx.savepoint();
        database.transaction(async |tx| tx.put(tables.tree, b"b", &[2]).await).await?;
        let cause = tx.put(tables.tree, b"b", &[3]).await.expect_err("it was changed since");
        assert_aborted("roll back", &tx.rollback_to(savepoint).await, &cause);
        assert_aborted("commit", &tx.commit().await, &cause);
        assert_nothing_is_left(&database, &tables).await
    })
    .expect("nothing else fails");
}

#[test]
fn a_victim_that_does_not_wait_to_be_told_so_commits_nothing() {
    run(&Media::new(), async |executor| {
        let (database, Tables { tree, .. }) = create(executor, Procedures::new()).await?;
        let (mut older, mut younger) = (database.begin().await?, database.begin().await?);
        older.put(tree, b"b", &[2]).await?;
        younger.put(tree, b"a", &[3]).await?;
        let commits = executor.spawn(async move {
            {
                // It waits for the older one, but not for long enough to hear of the deadlock.
                let mut waits = std::pin::pin!(younger.put(tree, b"b", &[3]));
                std::future::poll_fn(|context| {
                    assert!(waits.as_mut().poll(context).is_pending());
                    std::task::Poll::Ready(())
                })
                .await;
                younger_is_chosen(&database).await;
            }
            younger.commit().await
        });
        executor.sleep_ns(50).await;
        let closes = older.put(tree, b"a", &[2]).await;
        assert_eq!(closes, Ok(()), "it gets the lock when the victim is rolled back");
        older.rollback().await?;
        assert_eq!(commits.join().await, Err(Error::Deadlock));
        Ok::<(), Error>(())
    })
    .expect("nothing else fails");
}

/// Waits until another transaction has closed the circle.
async fn younger_is_chosen(database: &Database) {
    while database.statistics().deadlocks.get() == 0 {
        database.executor().sleep_ns(100).await;
    }
}

/// Does as if nothing had happened, the first time.
async fn stubborn(database: &Database, tx: &mut Transaction, tries: &Cell<u32>) -> Result<u32> {
    let tree = tx.partition("tree")?;
    tries.set(tries.get() + 1);
    tx.put(tree, b"a", &[3]).await?;
    if tries.get() == 1 {
        database.transaction(async |tx| tx.put(tree, b"b", &[2]).await).await?;
        let refused = tx.put(tree, b"b", &[3]).await;
        assert_eq!(refused, Err(Error::WriteConflict("tree".into())));
    }
    Ok(tries.get())
}

#[test]
fn a_closure_that_takes_no_notice_is_run_again() {
    let tries = Rc::new(Cell::new(0));
    let served = Rc::clone(&tries);
    let mut procedures = Procedures::new();
    let known = Rc::new(RefCell::new(None::<Database>));
    let opened = Rc::clone(&known);
    let procedure = procedures.register("stubborn", async move |tx, _| {
        let database = known.borrow().clone().expect("it is open");
        Ok(vec![stubborn(&database, tx, &served).await? as u8])
    });
    procedure.at(Isolation::Snapshot);
    run(&Media::new(), async |executor| {
        let (database, _) = create(executor, procedures).await?;
        opened.replace(Some(database.clone()));
        let work = async |tx: &mut Transaction| stubborn(&database, tx, &tries).await;
        assert_eq!(database.transaction_at(Isolation::Snapshot, work).await, Ok(2));
        tries.set(0);
        assert_eq!(database.call("stubborn", &[]).await, Ok(vec![2]));
        tries.set(0);
        let server = TransactionServer::start(&database, server::Settings::default())?;
        let (messages, mut responses) = (server.message_server(), Vec::new());
        messages.submit(server.procedure("stubborn")?, 0, Vec::new()).await?;
        messages.receive(&mut responses).await;
        assert_eq!(responses[0].answer, Ok(vec![2]));
        server.close().await;
        opened.take();
        Ok::<(), Error>(())
    })
    .expect("nothing else fails");
}
