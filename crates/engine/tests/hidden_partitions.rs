//! Transactions that were in the midst of a call when the partition was hidden that the call is about.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{Database, Direction, Error, PartitionSpec, Result, Settings, Transaction, version};
use std::ops::Bound;
use virtual_driver::Media;

fn specs() -> [PartitionSpec; 4] {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let set = PartitionSpec::new("old", organization, Locking::Record);
    let record = RecordType::new([("amount", FieldType::I64)]).expect("one name");
    [
        set.clone(),
        set.record(record).secondary("by_amount", &["amount"]),
        PartitionSpec::b_tree("old"),
        PartitionSpec::new(
            "old",
            Organization::Direct { objects: 10, blocking_factor: 5, record_size: 8 },
            Locking::Record,
        ),
    ]
}

const KEY: [u8; 8] = 1_u64.to_be_bytes();
const VALUE: [u8; 8] = 7_i64.to_le_bytes();
/// The only field.
const AMOUNT: usize = 0;

/// What may wait for a lock; `None` where a partition has no such call.
async fn call(tx: &mut Transaction, old: PartitionId, kind: usize, number: usize) -> Option<Result<()>> {
    let by_key = kind < 3;
    Some(match number {
        0 if by_key => tx.get(old, &KEY).await.map(drop),
        1 if by_key => tx.get_for_update(old, &KEY).await.map(drop),
        2 if by_key => tx.get_with(old, &KEY, |_| ()).await,
        3 if kind == 1 => tx.set_field(old, &KEY, AMOUNT, FieldValue::I64(8)).await,
        3 if by_key => tx.put(old, &KEY, &VALUE).await,
        4 if by_key && kind != 1 => tx.insert(old, &KEY, &VALUE).await,
        5 if by_key => tx.delete(old, &KEY).await.map(drop),
        6 if by_key && kind != 1 => tx.modify(old, &KEY, |value| value.to_vec()).await.map(drop),
        7 if kind == 1 => tx.add_to_field(old, &KEY, AMOUNT, 1).await.map(drop),
        8 if kind == 1 => {
            let all = (Bound::Unbounded, Bound::Unbounded);
            tx.range(old, 0, all, Direction::Forward, |_, _| true).await
        }
        9 if kind == 2 => {
            let mut cursor = tx.cursor(old, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            tx.next(&mut cursor).await.map(drop)
        }
        10 if kind == 3 => tx.read_object(old, 1, |_| ()).await,
        11 if kind == 3 => tx.modify_object(old, 1, |object| object.copy_from_slice(&VALUE)).await,
        _ => return None,
    })
}

const CALLS: usize = 12;

async fn write(tx: &mut Transaction, old: PartitionId, kind: usize) -> Result<()> {
    match kind {
        1 => tx.set_field(old, &KEY, AMOUNT, FieldValue::I64(7)).await,
        3 => tx.modify_object(old, 1, |object| object.copy_from_slice(&VALUE)).await,
        _ => tx.put(old, &KEY, &VALUE).await,
    }
}

/// A call that waits for a lock while its partition is hidden comes to its end or is told that there is no partition, and so is
/// the transaction; the drop comes to its end, too.
#[test]
fn a_call_that_was_waiting_when_its_partition_was_hidden_comes_to_its_end() {
    for (kind, spec) in specs().into_iter().enumerate() {
        for (number, commits) in (0..CALLS).flat_map(|number| [(number, true), (number, false)]) {
            let media = Media::new();
            let what = format!("{}, call {number}, {commits}", spec.organization.name());
            run(&media, async |executor| {
                let database = Database::create(executor, Settings::default()).await.expect("creates");
                let old = database.create_partition(spec.clone()).await.expect("creates");
                let prepared = database.transaction(async |tx| match kind {
                    1 => tx.insert_record(old, &KEY, &[FieldValue::I64(6)]).await,
                    _ => write(tx, old, kind).await,
                });
                prepared.await.expect("writes");
                let mut first = database.begin().await.expect("begins");
                write(&mut first, old, kind).await.expect("writes");
                let waiting = {
                    let database = database.clone();
                    executor.spawn(async move {
                        let mut second = database.begin().await?;
                        let called = call(&mut second, old, kind, number).await;
                        let ended = if commits { second.commit().await } else { second.rollback().await };
                        Ok::<_, Error>((called, ended))
                    })
                };
                executor.sleep_ns(MILLISECOND_NS).await;
                let dropping = {
                    let database = database.clone();
                    executor.spawn(async move { database.drop_partition(old).await })
                };
                executor.sleep_ns(MILLISECOND_NS).await;
                assert!(database.describe(old).is_err(), "{what}: it is hidden");
                if commits { first.commit().await } else { first.rollback().await }.expect("ends");
                let (called, ended) = waiting.join().await.expect("begins");
                let is_right = match &called {
                    None | Some(Ok(()) | Err(Error::NoPartition(_) | Error::Duplicate(_))) => true,
                    Some(Err(_)) => false,
                };
                assert!(is_right, "{what}: {called:?}");
                assert_eq!(ended, Ok(()), "{what}");
                assert_eq!(dropping.join().await, Ok(()), "{what}");
            });
            run(&media, async |executor| {
                let database = Database::open(executor, Settings::default(), "here").await;
                let database = database.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(database.partition("old").is_err(), "{what}");
                let report = database.check(|_| {}).await.expect("reads");
                assert!(report.is_clean(), "{what}: {:?}", report.findings);
            });
        }
    }
}

/// A snapshot that was reading what is in the undo space sees the same, though the set is hidden meanwhile.
#[test]
fn a_snapshot_that_was_reading_when_its_partition_was_hidden_sees_its_moment() {
    for (kind, spec) in specs().into_iter().enumerate().filter(|(kind, _)| [0, 2].contains(kind)) {
        run(&Media::new(), async |executor| {
            let undo = version::UndoSettings {
                cluster_size: 512,
                memory: 0,
                lazy_commits: 0,
                ..version::UndoSettings::default()
            };
            let settings = Settings { undo, ..Settings::default() };
            let database = Database::create(executor, settings).await.expect("creates");
            let old = database.create_partition(spec).await.expect("creates");
            let put = async |value: &[u8]| {
                for key in 0..50_u8 {
                    database.transaction(async |tx| tx.put(old, &[key], value).await).await.expect("writes");
                }
            };
            put(&[1; 100]).await;
            let mut snapshot = database.snapshot().await.expect("begins");
            for round in 2..5 {
                put(&[round; 100]).await;
            }
            executor.sleep_ns(SECOND_NS).await;
            assert!(database.versions().memory_bytes < 5_000, "they are in the undo space");
            let reading = executor.spawn(async move {
                let mut found = Vec::new();
                for key in 0..50_u8 {
                    found.push(snapshot.get(old, &[key]).await);
                }
                found
            });
            let dropping = {
                let database = database.clone();
                executor.spawn(async move { database.drop_partition(old).await })
            };
            let found = reading.join().await;
            assert_eq!(found[0], Ok(Some(vec![1; 100])), "partition {kind}: it had begun to read");
            let is_told = |found: &Result<_>| matches!(found, Err(Error::NoPartition(_)));
            assert!(found[1..].iter().all(is_told), "partition {kind}: {found:?}");
            assert_eq!(dropping.join().await, Ok(()));
        });
    }
}
