//! Savepoints that a transaction does not have, and rollbacks to savepoints that do not come to their end.

use crate::ground::failing_reads::on;
use crate::ground::machine::run;
use crate::ground::things::{ALL, check, keys, settings, some, spec, stored, thing, with_things};
use base::PartitionId;
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Result, Savepoint, Settings, Transaction, buffer,
};
use executor::Executor;
use std::pin::pin;
use std::task::Poll;
use virtual_driver::Media;

fn assert_refused(done: &Result<()>) {
    assert!(matches!(done, Err(Error::Argument(detail)) if detail.contains("no such savepoint")), "{done:?}");
}

#[test]
fn a_savepoint_that_was_taken_back_takes_no_half_of_a_change_back() {
    with_things(async |database, things, index| {
        let mut tx = database.begin().await.expect("begins");
        let nothing = tx.savepoint();
        tx.put(things, b"one", &stored(&thing(1, 1, "one"))).await.expect("puts");
        let one = tx.savepoint();
        tx.rollback_to(nothing).await.expect("goes back");
        // An entry of the index comes before its record.
        tx.put(things, b"two", &stored(&thing(2, 2, "two"))).await.expect("puts");
        assert_refused(&tx.rollback_to(one).await);
        let two = tx.savepoint();
        tx.put(things, b"three", &stored(&thing(3, 3, "three"))).await.expect("puts");
        tx.rollback_to(two).await.expect("goes back");
        tx.rollback_to(two).await.expect("goes back to where it is");
        tx.commit().await.expect("commits");
        let mut tx = database.begin().await.expect("begins");
        assert_eq!(keys(&mut tx, (things, index), ALL, Direction::Forward).await, Ok(vec![b"two".to_vec()]));
        tx.commit().await.expect("commits");
        check(database).await;
    });
}

#[test]
fn a_savepoint_of_another_transaction_is_refused() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        for spec in [spec("things"), PartitionSpec::set("stock")] {
            let value = stored(&thing(1, 1, "one"));
            let partition = database.create_partition(spec).await.expect("creates");
            let mut other = database.begin().await.expect("begins");
            other.put(partition, b"one", &value).await.expect("puts");
            let of_other = other.savepoint();
            other.rollback().await.expect("rolls back");
            let mut tx = database.begin().await.expect("begins");
            assert_refused(&tx.rollback_to(of_other).await);
            tx.put(partition, b"two", &value).await.expect("puts");
            assert_refused(&tx.rollback_to(of_other).await);
            tx.commit().await.expect("commits");
        }
        check(&database).await;
    });
}

/// Far more records than have pages in memory.
const RECORDS: u32 = 1_500;

/// The records that are changed, no two of a leaf.
fn changed() -> impl Iterator<Item = [u8; 4]> {
    (0..RECORDS).step_by(150).map(u32::to_be_bytes)
}

fn new_value() -> Vec<u8> {
    stored(&thing(7, 7, "changed"))
}

/// A transaction that has changed records of a b-tree with an index on this device and of a set, a savepoint of it before that, and the two.
/// Few of the changed pages are in memory.
async fn prepare(executor: &Executor, device: &str) -> Result<(Database, Transaction, Savepoint, [PartitionId; 2])> {
    let buffer = buffer::Settings { frames: 48, page_size: 1024, ..buffer::Settings::default() };
    let database = Database::create(executor, Settings { buffer, ..settings() }).await?;
    let things = database.create_partition(PartitionSpec { device: device.into(), ..spec("things") }).await?;
    let stock = database.create_partition(PartitionSpec::set("stock")).await?;
    let records = some(RECORDS);
    let fill = async |tx: &mut Transaction| {
        for (key, thing) in &records {
            tx.put(things, key, &stored(thing)).await?;
        }
        Ok::<_, Error>(())
    };
    database.transaction(fill).await?;
    let mut tx = database.begin().await?;
    let before = tx.savepoint();
    for key in changed() {
        tx.put(things, &key, &new_value()).await?;
        tx.put(stock, &key, b"changed").await?;
    }
    for number in (0..RECORDS).rev().filter(|number| number % 150 > 60) {
        tx.get(things, &number.to_be_bytes()).await?;
    }
    Ok((database, tx, before, [things, stock]))
}

/// Commits if that may be, and says whether the changes are there: all of them or none.
async fn commit(database: &Database, tx: Transaction, [things, stock]: [PartitionId; 2]) -> Result<bool> {
    match tx.commit().await {
        Err(Error::Aborted { cause }) => assert_eq!(*cause, Error::Abandoned),
        committed => committed?,
    }
    check(database).await;
    let mut tx = database.begin().await?;
    let mut seen = Vec::new();
    for key in changed() {
        seen.push(tx.get(things, &key).await?.expect("none was deleted") == new_value());
        seen.push(tx.get(stock, &key).await?.is_some());
    }
    tx.commit().await?;
    assert!(seen.iter().all(|is_there| *is_there == seen[0]), "half of a rollback is committed: {seen:?}");
    Ok(seen[0])
}

#[test]
fn a_rollback_to_a_savepoint_that_is_given_up_halfway_takes_its_transaction_along() {
    let (mut untouched, mut aborted) = (0, 0);
    for polls in 1.. {
        let has_ended = run(&Media::new(), async |executor| {
            let (database, mut tx, before, partitions) = prepare(executor, "disk").await.expect("prepares");
            let mut left = polls;
            let done = {
                let mut rollback = pin!(tx.rollback_to(before));
                std::future::poll_fn(|context| {
                    left -= 1;
                    match rollback.as_mut().poll(context) {
                        Poll::Ready(done) => {
                            done.expect("goes back");
                            Poll::Ready(Some(()))
                        }
                        Poll::Pending if left == 0 => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            };
            let read = tx.get(partitions[0], b"other").await;
            let is_changed = commit(&database, tx, partitions).await.expect("reads");
            match (done, read) {
                (Some(()), read) => assert!(read.is_ok() && !is_changed),
                (None, Ok(_)) => {
                    assert!(is_changed, "nothing was taken back");
                    untouched += 1;
                }
                (None, read) => {
                    assert_eq!((read, is_changed), (Err(Error::Abandoned), false));
                    aborted += 1;
                }
            }
            done.is_some()
        });
        if has_ended {
            break;
        }
    }
    assert!(untouched > 0 && aborted > 3, "{untouched} and {aborted} of those that were given up");
}

/// More reads in a row fail than a step of a rollback is tried.
#[test]
fn a_rollback_to_a_savepoint_that_fails_halfway_takes_its_transaction_along() {
    let reads = on(&Media::new(), 0..0, async |executor| {
        let (database, ..) = prepare(executor, "data").await.expect("prepares");
        database.buffer().spaces().iter().map(|space| space.reads.get()).sum::<u64>()
    });
    let mut aborted = 0;
    for first in reads + 1..reads + 20 {
        on(&Media::new(), first..first + 60, async |executor| {
            let (database, mut tx, before, partitions) = prepare(executor, "data").await.expect("prepares");
            let done = tx.rollback_to(before).await;
            // What is left of the failures others meet.
            for key in (0..RECORDS).filter(|number| number % 150 > 0).map(u32::to_be_bytes) {
                while database.transaction(async |tx| tx.get(partitions[0], &key).await).await.is_err() {}
            }
            let read = tx.get(partitions[0], &1_u32.to_be_bytes()).await;
            aborted += u32::from(read == Err(Error::Abandoned));
            let is_changed = commit(&database, tx, partitions).await.expect("reads");
            assert_eq!(is_changed, done.is_err() && read != Err(Error::Abandoned), "{done:?}, {read:?}");
        });
    }
    assert!(aborted > 3, "{aborted} failed halfway");
}
