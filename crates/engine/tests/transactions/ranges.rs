//! What serializable scans lock: ranges of keys, whose ends are where the scan was told to begin and to end.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::MILLISECOND_NS;
use entresol_engine::{Database, Direction, Error, Internals, PartitionSpec, Result, Settings, Transaction, buffer};
use executor::JoinHandle;
use std::future::{Future, poll_fn};
use std::ops::Bound;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use virtual_driver::Media;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A tree over several leaves, whose keys are even numbers below twice `records`.
fn with_tree(records: u32, work: impl AsyncFn(&Database, PartitionId) -> Result<()>) {
    run(&Media::new(), async |executor| {
        let buffer = buffer::Settings { frames: 4096, page_size: 1024, ..buffer::Settings::default() };
        let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        for first in (0..records).step_by(1_000) {
            let load = async |tx: &mut Transaction| {
                for number in first..records.min(first + 1_000) {
                    tx.insert(tree, &key(2 * number), &[1]).await?;
                }
                Ok::<_, Error>(())
            };
            database.transaction(load).await?;
        }
        work(&database, tree).await?;
        assert_eq!(database.locks().check(), Ok(()));
        Ok::<_, Error>(())
    })
    .expect("nothing fails");
}

async fn scan(
    tx: &mut Transaction,
    tree: PartitionId,
    bounds: (Bound<u32>, Bound<u32>),
    direction: Direction,
) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    let collect = |stored: &[u8], _: &[u8]| {
        found.push(u32::from_be_bytes(stored.try_into().expect("four bytes")));
        true
    };
    tx.scan(tree, (bounds.0.map(key), bounds.1.map(key)), direction).look(collect).await?;
    Ok(found)
}

const ALL: (Bound<u32>, Bound<u32>) = (Bound::Unbounded, Bound::Unbounded);

#[derive(Clone, Copy, Debug)]
enum Change {
    Put,
    Modify,
    Delete,
}

/// A transaction of its own that changes a record.
fn change(database: &Database, tree: PartitionId, number: u32, change: Change) -> JoinHandle<Result<()>> {
    let database = database.clone();
    database.executor().clone().spawn(async move {
        let work = async |tx: &mut Transaction| match change {
            Change::Put => tx.put(tree, &key(number), &[2, 2]).await,
            Change::Modify => tx.modify(tree, &key(number), |value| value[0] = 3).await,
            Change::Delete => tx.delete(tree, &key(number)).await.map(|_| ()),
        };
        database.transaction(work).await
    })
}

async fn pause(database: &Database) {
    database.executor().sleep_ns(MILLISECOND_NS).await;
}

#[test]
fn a_scan_holds_one_range_however_many_records_it_shows() {
    with_tree(20_000, async |database, tree| {
        let before = database.locks().bytes();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut tx = database.begin().await?;
            assert_eq!(scan(&mut tx, tree, ALL, direction).await?.len(), 20_000);
            let grown = database.locks().bytes() - before;
            assert!(grown < 1_000, "{direction:?}: {grown} bytes");
            let writer = change(database, tree, 19_998, Change::Modify);
            pause(database).await;
            assert!(!writer.is_finished(), "it is locked all the same");
            tx.commit().await?;
            writer.join().await?;
        }
        Ok(())
    });
}

#[test]
fn whatever_changes_within_a_range_waits_and_nothing_beside_it_does() {
    let ranges = [
        (Bound::Included(10), Bound::Included(20)),
        (Bound::Excluded(9), Bound::Excluded(21)),
        (Bound::Excluded(8), Bound::Excluded(22)),
    ];
    with_tree(40, async |database, tree| {
        for (direction, bounds) in
            [Direction::Forward, Direction::Backward].into_iter().flat_map(|d| ranges.map(|b| (d, b)))
        {
            let mut tx = database.begin().await?;
            assert_eq!(
                scan(&mut tx, tree, bounds, direction).await?,
                match direction {
                    Direction::Forward => vec![10, 12, 14, 16, 18, 20],
                    Direction::Backward => vec![20, 18, 16, 14, 12, 10],
                }
            );
            let within = [
                change(database, tree, 10, Change::Modify),
                change(database, tree, 12, Change::Put),
                change(database, tree, 14, Change::Delete),
                change(database, tree, 17, Change::Put),
                change(database, tree, 20, Change::Delete),
            ];
            let beside = [8, 22].map(|number| change(database, tree, number, Change::Modify));
            let new = [7, 23].map(|number| change(database, tree, number, Change::Put));
            pause(database).await;
            let waits = database.waits();
            assert_eq!(waits.len(), within.len());
            assert!(
                waits
                    .iter()
                    .all(|wait| wait.holders == [tx.id()] && wait.resource == "a range that was read of 'tree'")
            );
            assert!(beside.iter().chain(&new).all(JoinHandle::is_finished), "{bounds:?} {direction:?}");
            assert_eq!(scan(&mut tx, tree, bounds, direction).await?.len(), 6, "it shows the same");
            tx.commit().await?;
            for done in within.into_iter().chain(beside).chain(new) {
                done.join().await?;
            }
            let restore = async |tx: &mut Transaction| {
                for number in [10, 12, 14, 20] {
                    tx.put(tree, &key(number), &[1]).await?;
                }
                tx.delete(tree, &key(17)).await
            };
            assert!(database.transaction(restore).await?);
        }
        Ok(())
    });
}

#[test]
fn a_scan_waits_for_what_others_have_inserted_changed_or_deleted() {
    with_tree(20, async |database, tree| {
        for (number, what) in [(11, Change::Put), (12, Change::Modify), (12, Change::Delete)] {
            for (direction, is_committed) in [(Direction::Forward, true), (Direction::Backward, false)] {
                let mut writer = database.begin().await?;
                match what {
                    Change::Put => writer.put(tree, &key(number), &[5]).await?,
                    Change::Modify => writer.modify(tree, &key(number), |value| value[0] = 5).await?,
                    Change::Delete => assert!(writer.delete(tree, &key(number)).await?),
                }
                let reader = {
                    let database = database.clone();
                    database.executor().clone().spawn(async move {
                        database.transaction(async |tx| scan(tx, tree, ALL, direction).await).await
                    })
                };
                pause(database).await;
                assert!(!reader.is_finished(), "{what:?} {direction:?}");
                // The records before that are locked, those behind are not.
                let (passed, ahead) = match direction {
                    Direction::Forward => (2, 30),
                    Direction::Backward => (30, 2),
                };
                let (passed, ahead) =
                    (change(database, tree, passed, Change::Modify), change(database, tree, ahead, Change::Modify));
                pause(database).await;
                assert!(!passed.is_finished() && ahead.is_finished(), "{what:?} {direction:?}");
                match is_committed {
                    true => writer.commit().await?,
                    false => writer.rollback().await?,
                }
                let expected = match (what, is_committed) {
                    (Change::Put, true) => 21,
                    (Change::Delete, true) => 19,
                    _ => 20,
                };
                assert_eq!(reader.join().await?.len(), expected, "{what:?} {direction:?}");
                passed.join().await?;
                ahead.join().await?;
                let restore = async |tx: &mut Transaction| {
                    tx.delete(tree, &key(11)).await?;
                    tx.put(tree, &key(12), &[1]).await
                };
                database.transaction(restore).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_reader_has_all_rights_within_its_range_while_others_wait_for_it() {
    with_tree(20, async |database, tree| {
        let mut tx = database.begin().await?;
        assert_eq!(scan(&mut tx, tree, ALL, Direction::Forward).await?.len(), 20);
        let writers = [
            change(database, tree, 4, Change::Modify),
            change(database, tree, 5, Change::Put),
            change(database, tree, 6, Change::Delete),
        ];
        pause(database).await;
        for number in [4, 5, 6] {
            assert_eq!(tx.get(tree, &key(number)).await?.is_some(), number != 5);
            tx.put(tree, &key(number), &[9]).await?;
        }
        assert_eq!(scan(&mut tx, tree, ALL, Direction::Backward).await?.len(), 21);
        assert!(tx.delete(tree, &key(5)).await?);
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        tx.commit().await?;
        for writer in writers {
            writer.join().await?;
        }
        assert_eq!(database.statistics().deadlocks.get(), 0);
        let left = database.transaction(async |tx| scan(tx, tree, ALL, Direction::Forward).await).await?;
        assert!(left.contains(&5) && !left.contains(&6), "{left:?}");
        Ok(())
    });
}

#[test]
fn no_scan_overtakes_a_change_that_waits_for_another_one() {
    with_tree(20, async |database, tree| {
        let mut first = database.begin().await?;
        scan(&mut first, tree, (Bound::Included(8), Bound::Included(16)), Direction::Forward).await?;
        let writer = change(database, tree, 11, Change::Put);
        pause(database).await;
        let second = {
            let database = database.clone();
            database.executor().clone().spawn(async move {
                database.transaction(async |tx| scan(tx, tree, ALL, Direction::Forward).await).await
            })
        };
        pause(database).await;
        assert_eq!(database.waits().len(), 2);
        // Within its range the first one goes on.
        assert_eq!(
            scan(&mut first, tree, (Bound::Included(10), Bound::Included(12)), Direction::Backward).await?,
            [12, 10]
        );
        first.commit().await?;
        writer.join().await?;
        assert!(second.join().await?.contains(&11));
        Ok(())
    });
}

#[test]
fn two_that_change_what_both_have_read_are_a_deadlock() {
    with_tree(20, async |database, tree| {
        let (mut one, mut other) = (database.begin().await?, database.begin().await?);
        scan(&mut one, tree, ALL, Direction::Forward).await?;
        scan(&mut other, tree, ALL, Direction::Backward).await?;
        let waiting = database.executor().spawn(async move {
            one.insert(tree, &key(3), &[1]).await?;
            one.commit().await
        });
        pause(database).await;
        assert_eq!(other.insert(tree, &key(7), &[1]).await, Err(Error::Deadlock));
        other.rollback().await?;
        waiting.join().await
    });
}

#[test]
fn a_record_put_back_at_a_savepoint_and_one_taken_back_are_as_before() {
    with_tree(20, async |database, tree| {
        let mut writer = database.begin().await?;
        let before = writer.savepoint();
        writer.delete(tree, &key(10)).await?;
        writer.insert(tree, &key(21), &[1]).await?;
        writer.rollback_to(before).await?;
        // What was inserted and taken back is nothing that a reader could see.
        let mut reader = database.begin().await?;
        let beyond = (Bound::Included(11), Bound::Unbounded);
        assert_eq!(scan(&mut reader, tree, beyond, Direction::Forward).await?.len(), 14);
        let again = database.executor().spawn(async move {
            writer.insert(tree, &key(21), &[1]).await?;
            writer.commit().await
        });
        pause(database).await;
        assert!(!again.is_finished(), "the range was read meanwhile");
        assert_eq!(scan(&mut reader, tree, beyond, Direction::Backward).await?.len(), 14);
        reader.commit().await?;
        again.join().await?;
        let all = database.transaction(async |tx| scan(tx, tree, ALL, Direction::Forward).await).await?;
        assert!(all.contains(&10) && all.contains(&21));
        Ok(())
    });
}

/// A change that waits for a range stands before a scan that comes later, unless it has to wait for that one, too.
#[test]
fn a_scan_passes_a_waiting_change_of_a_record_that_it_has_read() {
    with_tree(20, async |database, tree| {
        let mut first = database.begin().await?;
        scan(&mut first, tree, (Bound::Included(8), Bound::Included(16)), Direction::Forward).await?;
        first.modify(tree, &key(12), |value| value[0] = 7).await?;
        let writer = change(database, tree, 12, Change::Modify);
        pause(database).await;
        let reading = async move |tx: &mut Transaction| scan(tx, tree, ALL, Direction::Forward).await;
        let reader = {
            let database = database.clone();
            database.executor().clone().spawn(async move { database.transaction(reading).await })
        };
        pause(database).await;
        first.commit().await?;
        writer.join().await?;
        assert_eq!(reader.join().await?.len(), 20);
        assert_eq!(database.statistics().deadlocks.get(), 0);
        Ok(())
    });
}

#[test]
fn a_reader_goes_before_a_change_that_waits_for_it_also_where_another_has_read() {
    for is_first in [true, false] {
        with_tree(20, async |database, tree| {
            let (mut one, mut two) = (database.begin().await?, database.begin().await?);
            if is_first {
                scan(&mut one, tree, ALL, Direction::Forward).await?;
            }
            scan(&mut two, tree, ALL, Direction::Forward).await?;
            scan(&mut one, tree, ALL, Direction::Forward).await?;
            let writer = change(database, tree, 4, Change::Modify);
            pause(database).await;
            let upgrade = database.executor().spawn(async move {
                one.modify(tree, &key(4), |value| value[0] = 9).await?;
                one.commit().await
            });
            pause(database).await;
            two.commit().await?;
            upgrade.join().await?;
            writer.join().await
        });
    }
}

/// A scan of everything, which must not have to wait for any other transaction.
async fn scan_at_once(database: &Database, tree: PartitionId) -> Vec<u32> {
    let mut tx = database.begin().await.expect("begins");
    tx.wait_at_most(Some(Duration::ZERO));
    let found = scan(&mut tx, tree, ALL, Direction::Forward).await.expect("nothing is in its way");
    tx.commit().await.expect("commits");
    found
}

/// Polls a future once, which then waits.
async fn begin_waiting(future: impl Future) {
    let mut future = pin!(future);
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

const BETWEEN: (Bound<u32>, Bound<u32>) = (Bound::Included(8), Bound::Included(16));

#[test]
fn no_scan_waits_for_a_change_that_was_given_up() {
    with_tree(20, async |database, tree| {
        for (number, is_dropped) in [(10, false), (11, false), (10, true), (11, true)] {
            let (mut reader, mut writer) = (database.begin().await?, database.begin().await?);
            scan(&mut reader, tree, BETWEEN, Direction::Forward).await?;
            writer.put(tree, &key(30), &[2]).await?;
            writer.wait_at_most(Some(Duration::from_millis(5)));
            if is_dropped {
                begin_waiting(writer.put(tree, &key(number), &[2])).await;
            } else {
                let refused = writer.put(tree, &key(number), &[2]).await;
                assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
            }
            let mut other = database.begin().await?;
            other.wait_at_most(Some(Duration::ZERO));
            assert_eq!(scan(&mut other, tree, BETWEEN, Direction::Backward).await?, [16, 14, 12, 10, 8]);
            other.commit().await?;
            reader.commit().await?;
            // It may make it later on.
            writer.put(tree, &key(number), &[2]).await?;
            writer.rollback().await?;
            assert_eq!(scan_at_once(database, tree).await.len(), 20);
        }
        Ok(())
    });
}

#[test]
fn no_scan_waits_for_a_change_that_has_passed_readers_and_was_given_up_then() {
    with_tree(20, async |database, tree| {
        let (mut reader, mut holder) = (database.begin().await?, database.begin().await?);
        let mut writer = database.begin().await?;
        scan(&mut reader, tree, BETWEEN, Direction::Forward).await?;
        assert!(holder.get(tree, &key(10)).await?.is_some());
        writer.wait_at_most(Some(Duration::from_millis(20)));
        let writing = database.executor().spawn(async move {
            let refused = writer.put(tree, &key(10), &[2]).await;
            (writer, refused)
        });
        pause(database).await;
        reader.commit().await?;
        let (writer, refused) = writing.join().await;
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        assert_eq!(scan_at_once(database, tree).await.len(), 20);
        writer.commit().await?;
        holder.commit().await
    });
}

/// What it has done is not withdrawn with what it could not do.
#[test]
fn a_scan_waits_for_a_deletion_whose_transaction_has_given_up_something_else() {
    with_tree(20, async |database, tree| {
        let (mut reader, mut writer) = (database.begin().await?, database.begin().await?);
        scan(&mut reader, tree, BETWEEN, Direction::Forward).await?;
        let deleting = database.executor().spawn(async move {
            assert!(writer.delete(tree, &key(10)).await.expect("deletes"));
            writer.put(tree, &key(13), &[2]).await.expect("inserts");
            writer
        });
        pause(database).await;
        assert!(!deleting.is_finished());
        reader.commit().await?;
        let mut writer = deleting.join().await;
        let mut holder = database.begin().await?;
        scan(&mut holder, tree, (Bound::Included(30), Bound::Included(34)), Direction::Forward).await?;
        writer.wait_at_most(Some(Duration::from_millis(5)));
        for number in [32, 33] {
            let refused = writer.put(tree, &key(number), &[2]).await;
            assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        }
        for bounds in [(Bound::Included(9), Bound::Included(11)), (Bound::Included(13), Bound::Included(13))] {
            let mut tx = database.begin().await?;
            tx.wait_at_most(Some(Duration::from_millis(5)));
            let refused = scan(&mut tx, tree, bounds, Direction::Forward).await;
            assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
            tx.rollback().await?;
        }
        writer.rollback().await?;
        holder.commit().await?;
        assert_eq!(scan_at_once(database, tree).await.len(), 20);
        Ok(())
    });
}
