//! Rollbacks that fail, because the device of their pages does: tasks waiting for their locks or their log are told, they are
//! tried again until the device is back, and a restart completes those that are not.

use crate::ground::failing_reads::on;
use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Direction, Error, Internals, PartitionSpec, Settings, Transaction, buffer, log};
use executor::Executor;
use std::ops::Bound;
use virtual_driver::Media;

const ROWS: u32 = 200;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        checkpoint: Policy::OFF,
        multiprogramming_level: 2,
        ..Settings::default()
    }
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Trees `rows` and `filler` on the device that will fail, `notes` and the set `stock` on another one; and a transaction that
/// has changed rows which are not in memory any more.
async fn prepare(executor: &Executor, settings: Settings, promised: bool) -> (Database, [PartitionId; 2], Transaction) {
    let database = Database::create(executor, settings).await.expect("creates");
    let mut trees = Vec::new();
    for (name, device) in [("rows", "data"), ("filler", "data"), ("notes", "disk")] {
        let spec = PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
        trees.push(database.create_partition(spec).await.expect("creates a tree"));
    }
    let [rows, filler, notes] = trees[..] else { unreachable!("three were created") };
    for tree in [rows, filler] {
        let records = (0..ROWS * if tree == filler { 3 } else { 1 }).map(|number| (key(number), [1; 150]));
        database.load_b_tree(tree, records, |_| {}).await.expect("loads");
    }
    database.create_partition(PartitionSpec::set("stock")).await.expect("creates a set");
    let mut tx = if promised { begin_with_promise(&database).await } else { database.begin().await.expect("begins") };
    for number in (0..ROWS).step_by(40) {
        tx.modify(rows, &key(number), |value| value.fill(9)).await.expect("changes");
    }
    // Beside one that was promised the log nothing begins.
    let mut other = if promised { None } else { Some(database.begin().await.expect("begins")) };
    let scan = other.as_mut().unwrap_or(&mut tx);
    let mut cursor = scan.cursor(filler, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while scan.next(&mut cursor).await.expect("reads").is_some() {}
    if let Some(scan) = other {
        scan.commit().await.expect("ends");
    }
    (database, [rows, notes], tx)
}

/// Begins one again that had no room in the log at its commit: it is promised most of the log.
async fn begin_with_promise(database: &Database) -> Transaction {
    let [notes, stock] = ["notes", "stock"].map(|name| database.partition(name).expect("it exists"));
    let mut refused = database.begin().await.expect("begins");
    refused.put(notes, b"refused", b"1").await.expect("puts");
    let other = async |tx: &mut Transaction| {
        for number in 0..100 {
            tx.put(notes, &key(number), &[7; 500]).await?;
        }
        Ok::<_, Error>(())
    };
    database.transaction(other).await.expect("commits");
    for number in 0..190 {
        refused.put(stock, &key(number), &[7; 1_000]).await.expect("puts");
    }
    let age = refused.began();
    let crowded = refused.commit().await;
    assert!(matches!(crowded, Err(Error::LogCrowded { .. })), "{crowded:?}");
    database.begin_aged(Some(age)).await.expect("begins")
}

/// How many reads the device has done when the rollback begins.
fn reads_before(promised: bool) -> u64 {
    on(&Media::new(), 0..0, async |executor| {
        let (database, ..) = prepare(executor, settings(), promised).await;
        ["rows", "filler"]
            .map(|name| database.buffer().space(database.partition(name).expect("there")).reads.get())
            .iter()
            .sum()
    })
}

/// Every row is as it was before.
async fn check_rows(database: &Database) {
    let rows = database.partition("rows").expect("it exists");
    for number in 0..ROWS {
        let found = database.transaction(async |tx| tx.get(rows, &key(number)).await).await.expect("reads");
        assert_eq!(found, Some(vec![1; 150]), "row {number}");
    }
}

fn is_stalled<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    let Err(error @ Error::RollbackStalled { .. }) = result else { return false };
    let text = error.to_string();
    assert!(text.contains("'rows.pages'") && text.contains("tried again"), "{text}");
    true
}

fn failing(lasts: u64, work: impl AsyncFnOnce(&Executor, &Database, [PartitionId; 2])) {
    let (media, first) = (Media::new(), reads_before(false) + 1);
    on(&media, first..first + lasts, async |executor| {
        let (database, [rows, notes], tx) = prepare(executor, settings(), false).await;
        let waiting = {
            let database = database.clone();
            let write = async move |tx: &mut Transaction| tx.put(rows, &key(40), b"another's").await;
            executor.spawn(async move { database.transaction(write).await })
        };
        executor.sleep_ns(MILLISECOND_NS).await;
        let began = executor.now();
        let failed = tx.rollback().await;
        assert!(matches!(failed, Err(Error::Input(_))), "{failed:?}");
        let deadline = executor.now().plus_ns(3 * SECOND_NS);
        while !waiting.is_finished() {
            assert!(executor.now() < deadline, "a task that waits for a lock is not told");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        let told = waiting.join().await;
        assert!(is_stalled(&told), "{told:?}");
        assert!(executor.now().since_ns(began) < 4 * SECOND_NS);
        let unended = database.check_ended();
        assert!(is_stalled(&unended), "its pages must not be served: {unended:?}");
        let report = database.check(|_| {}).await.expect("checks");
        let unsearched = report.unsearched.into_iter().next().map_or(Ok(()), Err);
        assert!(is_stalled(&unsearched), "a check says that it has looked for lost pages");
        // Others go on, as many at once as before.
        let mut one = database.begin().await.expect("begins");
        let mut two = database.begin().await.expect("begins");
        one.put(notes, b"one", b"1").await.expect("puts");
        two.put(notes, b"two", b"2").await.expect("puts");
        one.commit().await.expect("commits");
        two.commit().await.expect("commits");
        work(executor, &database, [rows, notes]).await;
    });
    on(&media, 0..0, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        check_rows(&database).await;
        assert_eq!(database.check(|_| {}).await.expect("checks").unsearched, []);
        let notes = database.partition("notes").expect("it exists");
        let found = database.transaction(async |tx| tx.get(notes, b"two").await).await;
        assert_eq!(found, Ok(Some(b"2".to_vec())));
    });
}

#[test]
fn a_rollback_that_fails_for_a_while_is_completed_later() {
    failing(70, async |executor, database, [rows, _]| {
        let locked = async |tx: &mut Transaction| tx.put(rows, &key(0), b"another's").await;
        let told = database.transaction(locked).await;
        assert!(is_stalled(&told), "{told:?}");
        executor.sleep_ns(20 * SECOND_NS).await;
        assert_eq!(database.active_transactions(), 0, "it has ended");
        check_rows(database).await;
        assert_eq!(database.statistics().rollbacks.get(), 3, "its own, and two of those that were told");
        let mut tx = database.begin().await.expect("begins");
        tx.put(rows, &key(0), b"another's").await.expect("the lock is free");
        tx.rollback().await.expect("this one succeeds");
        database.checkpoint().await.expect("writes back");
        assert!(database.log().used() < 32 << 10, "the log was given up");
    });
}

#[test]
fn a_rollback_that_fails_for_good_is_completed_by_a_restart() {
    failing(5_000, async |executor, database, [_, notes]| {
        executor.sleep_ns(20 * SECOND_NS).await;
        // It keeps the log; tasks waiting for that are told, too.
        let deadline = executor.now().plus_ns(20 * SECOND_NS);
        let filling = {
            let database = database.clone();
            executor.spawn(async move {
                for number in 0_u32.. {
                    let add = async |tx: &mut Transaction| tx.put(notes, &key(number), &[7; 200]).await;
                    if let Err(error) = database.transaction(add).await {
                        return error;
                    }
                }
                unreachable!("the log is full some time")
            })
        };
        while !filling.is_finished() {
            assert!(executor.now() < deadline, "a task that waits for the log is not told");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        let told = Err::<(), _>(filling.join().await);
        assert!(is_stalled(&told), "{told:?}");
        assert_eq!(database.log().failure(), None);
    });
}

#[test]
fn a_rollback_that_fails_is_told_of_when_what_it_has_read_is_durable() {
    let (media, first) = (Media::new(), reads_before(false) + 1);
    on(&media, first..first + 5_000, async |executor| {
        let group_commit = log::GroupCommit::Delay { ns: 5 * SECOND_NS };
        let slow = Settings { log: log::Settings { group_commit, ..settings().log }, ..settings() };
        let (database, [_, notes], mut tx) = prepare(executor, slow, false).await;
        let committed = {
            let database = database.clone();
            executor.spawn(async move { database.transaction(async |tx| tx.put(notes, b"read", b"1").await).await })
        };
        executor.sleep_ns(MILLISECOND_NS).await;
        let depends_on = database.log().end();
        assert_eq!(tx.get(notes, b"read").await, Ok(Some(b"1".to_vec())));
        assert!(database.log().durable() < depends_on, "it is committed, and not yet durable");
        let failed = tx.rollback().await;
        assert!(matches!(failed, Err(Error::Input(_))), "{failed:?}");
        assert!(database.log().durable() >= depends_on, "it was told {failed:?} before that is durable");
        assert_eq!(committed.join().await, Ok(()));
    });
}

#[test]
fn a_rollback_that_fails_gives_back_the_log_that_it_was_promised() {
    let (media, first) = (Media::new(), reads_before(true) + 1);
    on(&media, first..first + 5_000, async |executor| {
        let (database, [_, notes], tx) = prepare(executor, settings(), true).await;
        let failed = tx.rollback().await;
        assert!(matches!(failed, Err(Error::Input(_))), "{failed:?}");
        assert!(database.log().free() > 128 << 10, "the log has room");
        let own = database.clone();
        let other = executor.spawn(async move { own.transaction(async |tx| tx.put(notes, b"one", b"1").await).await });
        executor.sleep_ns(SECOND_NS).await;
        assert!(other.is_finished(), "others wait for room that is not needed");
        assert_eq!(other.join().await, Ok(()));
    });
}

#[cfg(feature = "canary")]
#[test]
fn a_rollback_that_is_given_up_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::AbandonedRollback));
    let found = std::panic::catch_unwind(a_rollback_that_fails_for_a_while_is_completed_later);
    plant(None);
    assert!(found.is_err(), "nothing notices a rollback that is given up");
}
