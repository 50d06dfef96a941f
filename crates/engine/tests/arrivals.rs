//! Sets of arrivals as serializable transactions read them: in their order, nothing that may be taken back, and the same again.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::MILLISECOND_NS;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::organization::append::Position;
use entresol_engine::set::{FieldType, RecordType};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, Transaction, arrival_position};
use executor::{Executor, JoinHandle};
use virtual_driver::Media;

fn arrivals(locking: Locking) -> PartitionSpec {
    let organization = Organization::Set { arrivals: true, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new("orders", organization, locking)
}

/// Runs `work` with a set of arrivals that is locked by record: one whose records have no type, one whose have, and an index.
fn with_orders(work: impl AsyncFn(&Executor, &Database, PartitionId)) {
    let record = || RecordType::new([("number", FieldType::U64)]).expect("one name");
    let plain = arrivals(Locking::Record);
    let typed = arrivals(Locking::Record).record(record()).secondary("by_number", &["number"]);
    for spec in [plain, typed] {
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, Settings::default()).await.expect("creates");
            let orders = database.create_partition(spec.clone()).await.expect("creates a set");
            work(executor, &database, orders).await;
        });
    }
}

/// An order of this number.
fn order(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// The numbers of all orders, as a transaction sees them.
async fn scan(tx: &mut Transaction, orders: PartitionId) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let keep = |_, record: &[u8]| {
        found.push(u64::from_le_bytes(record.try_into().expect("eight bytes")));
        true
    };
    tx.scan_appended(orders, keep).await?;
    Ok(found)
}

/// Has another task append an order, and commit.
fn append(executor: &Executor, database: &Database, orders: PartitionId, number: u64) -> JoinHandle<Result<()>> {
    let database = database.clone();
    executor.spawn(async move {
        let mut tx = database.begin().await?;
        tx.append(orders, &order(number)).await?;
        tx.commit().await
    })
}

/// Later ones go to where an earlier segment has room.
#[test]
fn a_scan_shows_them_in_their_order_wherever_they_are() {
    const LENGTHS: [usize; 4] = [8_000, 7_500, 7_000, 6_000];
    for locking in [Locking::Record, Locking::None] {
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, Settings::default()).await.expect("creates");
            let orders = database.create_partition(arrivals(locking)).await.expect("creates a set");
            for length in LENGTHS {
                let add = async |tx: &mut Transaction| tx.append(orders, &vec![7; length]).await;
                database.transaction(add).await.expect("commits");
            }
            let mut found: Vec<(Position, usize)> = Vec::new();
            let look = async |tx: &mut Transaction| {
                found.clear();
                tx.scan_appended(orders, |position, record: &[u8]| {
                    found.push((position, record.len()));
                    true
                })
                .await
            };
            database.transaction(look).await.expect("scans");
            let expected = (0..).map(|number| arrival_position(orders, number)).zip(LENGTHS);
            assert!(found.iter().copied().eq(expected), "{locking:?}: {found:?}");
            let mut count = 0;
            let some = async |tx: &mut Transaction| {
                count = 0;
                tx.scan_appended(orders, |_, _| {
                    count += 1;
                    count < 2
                })
                .await
            };
            database.transaction(some).await.expect("scans");
            assert_eq!(count, 2, "no more are wanted");
        });
    }
}

#[test]
fn a_scan_waits_for_what_others_have_added_and_not_committed() {
    with_orders(async |executor, database, orders| {
        for commits in [false, true] {
            let mut adds = database.begin().await.expect("begins");
            adds.append(orders, &order(7)).await.expect("adds");
            let scanning = {
                let database = database.clone();
                executor.spawn(async move { database.transaction(async |tx| scan(tx, orders).await).await })
            };
            executor.sleep_ns(MILLISECOND_NS).await;
            assert!(!scanning.is_finished(), "what it shows may be taken back");
            if commits {
                adds.commit().await.expect("commits");
            } else {
                adds.rollback().await.expect("rolls back");
            }
            assert_eq!(scanning.join().await, Ok(if commits { vec![7] } else { Vec::new() }));
        }
    });
}

#[test]
fn a_scan_is_the_same_again_until_its_transaction_ends() {
    with_orders(async |executor, database, orders| {
        append(executor, database, orders, 1).join().await.expect("commits");
        let mut tx = database.begin().await.expect("begins");
        assert_eq!(scan(&mut tx, orders).await, Ok(vec![1]));
        let adding = append(executor, database, orders, 2);
        executor.sleep_ns(MILLISECOND_NS).await;
        assert!(!adding.is_finished(), "it would be seen");
        assert_eq!(scan(&mut tx, orders).await, Ok(vec![1]));
        tx.append(orders, &order(3)).await.expect("its own");
        assert_eq!(scan(&mut tx, orders).await, Ok(vec![1, 3]));
        tx.commit().await.expect("commits");
        adding.join().await.expect("commits");
        let all = database.transaction(async |tx| scan(tx, orders).await).await;
        assert_eq!(all, Ok(vec![1, 3, 2]));
        // Who has not read up to the end keeps none from it.
        let mut other = database.begin().await.expect("begins");
        other.append(orders, &order(4)).await.expect("adds");
        append(executor, database, orders, 5).join().await.expect("commits");
        other.commit().await.expect("commits");
    });
}

/// Each adds what it has counted: one of them has to give way.
#[test]
fn of_two_that_scan_and_then_add_one_sees_what_the_other_has_added() {
    with_orders(async |executor, database, orders| {
        let count = |database: Database| async move {
            database
                .transaction(async |tx| {
                    let count = scan(tx, orders).await?.len() as u64;
                    tx.executor().yield_now().await;
                    tx.append(orders, &order(count)).await.map(drop)
                })
                .await
        };
        let tasks: Vec<_> = (0..3).map(|_| executor.spawn(count(database.clone()))).collect();
        for task in tasks {
            assert_eq!(task.join().await, Ok::<_, Error>(()));
        }
        let all = database.transaction(async |tx| scan(tx, orders).await).await;
        assert_eq!(all, Ok(vec![0, 1, 2]));
    });
}

/// A call that gives up what it waits for leaves the others alone.
#[test]
fn a_scan_that_is_given_up_keeps_the_end_from_none() {
    with_orders(async |executor, database, orders| {
        let mut adds = database.begin().await.expect("begins");
        adds.append(orders, &order(7)).await.expect("adds");
        let mut tx = database.begin().await.expect("begins");
        tx.wait_at_most(Some(std::time::Duration::from_millis(1)));
        let refused = scan(&mut tx, orders).await;
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        let adding = append(executor, database, orders, 8);
        executor.sleep_ns(MILLISECOND_NS).await;
        assert!(!adding.is_finished(), "it has read up to the end");
        tx.rollback().await.expect("rolls back");
        adding.join().await.expect("commits");
        adds.commit().await.expect("commits");
        assert_eq!(database.locks().check(), Ok(()));
    });
}

#[test]
fn what_is_added_where_there_are_no_locks_is_shown_at_once() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await.expect("creates");
        let orders = database.create_partition(arrivals(Locking::None)).await.expect("creates a set");
        let mut adds = database.begin().await.expect("begins");
        adds.append(orders, &order(7)).await.expect("adds");
        let mut tx = database.begin().await.expect("begins");
        assert_eq!(scan(&mut tx, orders).await, Ok(vec![7]));
        append(executor, &database, orders, 8).join().await.expect("commits");
        assert_eq!(scan(&mut tx, orders).await, Ok(vec![7, 8]));
    });
}

#[cfg(feature = "canary")]
#[test]
fn additions_behind_what_was_scanned_are_found() {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;
    is_found(Canary::PassedEnd, a_scan_is_the_same_again_until_its_transaction_ends);
}
