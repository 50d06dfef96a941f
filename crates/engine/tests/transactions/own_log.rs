//! A full log that is kept for a transaction of the task which waits for room in it.

use crate::ground::machine::run;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, TransactionId};
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, Transaction, log};
use executor::{JoinHandle, WholeExecutor};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::Media;

const CAPACITY: u64 = 1 << 20;
/// Longer than any wait that ends.
const PATIENCE_NS: u64 = 60 * SECOND_NS;

/// Runs `work` in a task of its own, which has to end.
fn in_a_task<F: AsyncFn(&Database, PartitionId) -> Result<()> + 'static>(work: F) {
    run(&Media::new(), async |executor| {
        let log = log::Settings { capacity: CAPACITY, ..log::Settings::default() };
        let database = Database::create(executor, Settings { log, ..Settings::default() }).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let task = executor.spawn({
            let database = database.clone();
            async move { work(&database, notes).await }
        });
        executor.sleep_ns(PATIENCE_NS).await;
        assert!(task.is_finished(), "the task waits for itself");
        task.join().await?;
        let check = database.transaction(async |tx| tx.put(notes, b"last", &[1]).await).await;
        assert_eq!(check, Ok(()), "others go on");
        Ok::<_, Error>(())
    })
    .expect("nothing else fails");
}

/// Changes records of 1,000 bytes, `count` of them.
async fn fill(tx: &mut Transaction, notes: PartitionId, name: &str, count: u64) -> Result<()> {
    for number in 0..count {
        tx.put(notes, format!("{name} {number:06}").as_bytes(), &[7; 1_000]).await?;
    }
    Ok(())
}

/// A task whose transaction changes records, rests and wants one that others share; and the transaction's number, once it has begun.
fn change_and_then_shared(
    database: &Database,
    notes: PartitionId,
    count: u64,
    rest_ns: u64,
) -> (JoinHandle<Result<()>>, Rc<Cell<Option<TransactionId>>>) {
    let (database, number) = (database.clone(), Rc::new(Cell::new(None)));
    let begun = Rc::clone(&number);
    let task = database.executor().clone().spawn(async move {
        let mut tx = database.begin().await?;
        begun.set(Some(tx.id()));
        fill(&mut tx, notes, "between", count).await?;
        database.executor().sleep_ns(rest_ns).await;
        fill(&mut tx, notes, "shared", 1).await?;
        tx.commit().await
    });
    (task, number)
}

fn assert_told(refused: &Result<()>, holder: &Transaction) {
    assert!(matches!(refused, Err(Error::OwnLog { holders }) if *holders == [holder.id()]), "{refused:?}");
}

#[test]
fn one_that_begins_others_behind_its_own_until_the_log_is_full_is_told() {
    in_a_task(async |database, notes| {
        let mut holder = database.begin().await?;
        fill(&mut holder, notes, "own", 1).await?;
        let mut refused = Ok(());
        for number in 0..4_000 {
            let name = format!("other {}", number % 10);
            refused = database.transaction(async |tx| fill(tx, notes, &name, 2).await).await;
            if refused.is_err() {
                break;
            }
        }
        assert_told(&refused, &holder);
        let refused = database.begin().await.map(drop);
        assert_told(&refused, &holder);
        fill(&mut holder, notes, "own", 2).await?;
        holder.commit().await
    });
}

#[test]
fn one_whose_own_changes_leave_no_room_for_those_of_another_is_told() {
    for kept in [80, 100, 120, 140] {
        in_a_task(async move |database, notes| {
            let mut holder = database.begin().await?;
            fill(&mut holder, notes, "own", kept).await?;
            let refused = database.transaction(async |tx| fill(tx, notes, "other", 150).await).await;
            assert_told(&refused, &holder);
            holder.commit().await?;
            database.transaction(async |tx| fill(tx, notes, "other", 140).await).await
        });
    }
}

#[test]
fn one_whose_own_locks_keep_the_transaction_that_keeps_the_log_is_told() {
    in_a_task(async |database, notes| {
        database.transaction(async |tx| fill(tx, notes, "shared", 1).await).await?;
        let executor = database.executor().whole().clone();
        let mut holder = database.begin().await?;
        let (between, oldest) = change_and_then_shared(database, notes, 100, 0);
        assert!(holder.get_for_update(notes, b"shared 000000").await?.is_some());
        executor.sleep_ns(10 * MILLISECOND_NS).await;
        let refused = database.transaction(async |tx| fill(tx, notes, "other", 150).await).await;
        let Err(Error::OwnLog { holders }) = refused else { panic!("{refused:?}") };
        assert_eq!(holders, [oldest.get().expect("it has begun")]);
        holder.commit().await?;
        between.join().await
    });
}

#[test]
fn one_that_waits_first_and_is_waited_for_later_is_told() {
    in_a_task(async |database, notes| {
        database.transaction(async |tx| fill(tx, notes, "shared", 1).await).await?;
        let executor = database.executor().whole().clone();
        let (between, oldest) = change_and_then_shared(database, notes, 1, 30 * SECOND_NS);
        executor.sleep_ns(10 * MILLISECOND_NS).await;
        let mut holder = database.begin().await?;
        assert!(holder.get_for_update(notes, b"shared 000000").await?.is_some());
        let refused = loop {
            let done = database.transaction(async |tx| fill(tx, notes, "other", 2).await).await;
            if done.is_err() {
                break done;
            }
        };
        let Err(Error::OwnLog { holders }) = refused else { panic!("{refused:?}") };
        assert_eq!(holders, [oldest.get().expect("it has begun")]);
        holder.commit().await?;
        between.join().await
    });
}

#[test]
fn none_is_told_while_others_may_make_room() {
    in_a_task(async |database, notes| {
        let executor = database.executor().whole().clone();
        let mut holder = database.begin().await?;
        let beside = executor.spawn({
            let database = database.clone();
            async move {
                let mut tx = database.begin().await?;
                database.executor().sleep_ns(MILLISECOND_NS).await;
                fill(&mut tx, notes, "beside", 100).await?;
                database.executor().sleep_ns(5 * SECOND_NS).await;
                tx.commit().await
            }
        });
        fill(&mut holder, notes, "own", 1).await?;
        executor.sleep_ns(10 * MILLISECOND_NS).await;
        let refused = database.transaction(async |tx| fill(tx, notes, "other", 130).await).await;
        // What has been tried and taken back meanwhile fills the log, which is kept for the holder.
        assert_told(&refused, &holder);
        assert!(beside.is_finished(), "told at {:?}", executor.now());
        beside.join().await?;
        holder.commit().await
    });
}

#[test]
fn what_is_done_beside_its_own_at_the_same_time_waits() {
    in_a_task(async |database, notes| {
        let executor = database.executor().whole().clone();
        let hold = async {
            let mut holder = database.begin().await?;
            fill(&mut holder, notes, "own", 100).await?;
            executor.sleep_ns(5 * SECOND_NS).await;
            holder.commit().await
        };
        let beside = async {
            executor.sleep_ns(SECOND_NS).await;
            database.transaction(async |tx| fill(tx, notes, "other", 120).await).await
        };
        assert_eq!(super::waits::both(hold, beside).await, (Ok(()), Ok(())));
        // Another task ends it.
        let mut given = database.begin().await?;
        fill(&mut given, notes, "own", 100).await?;
        executor.spawn({
            let executor = executor.clone();
            async move {
                executor.sleep_ns(5 * SECOND_NS).await;
                given.commit().await
            }
        });
        database.transaction(async |tx| fill(tx, notes, "other", 120).await).await
    });
}
