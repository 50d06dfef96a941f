//! Several large transactions are left to be undone, and the first of them cannot be.

use crate::ground::losers::{key, settings, under};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PartitionId};
use driver::OpKind;
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, Transaction, buffer};
use executor::Executor;
use std::mem::forget;
use virtual_driver::{ErrorAt, FaultPlan, Media, Slow};

const RECORDS: u32 = 300;

fn with_few_frames() -> Settings {
    let buffer = buffer::Settings { frames: 24, page_size: 1024, ..buffer::Settings::default() };
    Settings { buffer, log_device: "backup".into(), ..settings() }
}

/// Two partitions on two devices, each with a large transaction that had not ended when the machine stopped: first that of `first`.
fn killed() -> Media {
    let media = Media::new();
    let made = under(FaultPlan::default(), &media, async |executor| {
        let database = Database::create(executor, with_few_frames()).await?;
        let mut parts = Vec::new();
        for (name, device) in [("first", "data"), ("second", "flash")] {
            let spec = PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
            let rows = database.create_partition(spec).await?;
            database.transaction(async |tx| put_all(tx, rows, b"committed").await).await?;
            parts.push(rows);
        }
        for rows in parts {
            let mut tx = database.begin().await?;
            put_all(&mut tx, rows, b"lost").await?;
            forget(tx);
        }
        // What they have changed is in the log, and redo reads none of it.
        database.checkpoint().await
    });
    assert_eq!(made, Ok(Ok(())));
    media
}

async fn put_all(tx: &mut Transaction, rows: PartitionId, what: &[u8]) -> Result<()> {
    for number in 0..RECORDS {
        let value = [what, &[b'.'; 150]].concat();
        tx.put(rows, &key(number), &value).await?;
    }
    Ok(())
}

async fn open(executor: &Executor) -> Result<(Database, [PartitionId; 2])> {
    let database = Database::open(executor, with_few_frames(), "here").await?;
    let parts = ["first", "second"].map(|name| database.partition(name).expect("it exists"));
    Ok((database, parts))
}

/// The operations of this kind on the device from this one on fail.
fn failing(kind: OpKind, device: &str, first: u64) -> FaultPlan {
    let error = |nth| ErrorAt { kind, device: Some(device.into()), nth };
    FaultPlan { errors: (first..first + 5_000).map(error).collect(), ..FaultPlan::default() }
}

/// The same from one on that comes behind the opening, while both are left.
fn failing_behind_opening(media: &Media, kind: OpKind, device: &str) -> FaultPlan {
    let opens = |first: &u64| {
        let opened = under(failing(kind, device, *first), &media.copy(), async |executor| {
            let (database, _) = open(executor).await?;
            Ok::<_, Error>(database.undoing().transactions == 2)
        });
        opened == Ok(Ok(true))
    };
    failing(kind, device, (1..).find(opens).expect("one is behind it") + 10)
}

/// What is read under a lock within a minute.
async fn read(executor: &Executor, database: &Database, rows: PartitionId, number: u32) -> Option<Result<Vec<u8>>> {
    let read = database.transaction(async |tx| tx.get(rows, &key(number)).await);
    let found = executor.within(60 * SECOND_NS, read).await?;
    Some(found.map(|value| value.map_or_else(Vec::new, |value| value[..9].to_vec())))
}

#[test]
fn one_whose_device_fails_for_good_keeps_no_other_from_being_undone() {
    let media = killed();
    let ended = under(failing_behind_opening(&media, OpKind::Read, "data"), &media, async |executor| {
        let (database, [first, second]) = open(executor).await.expect("opens");
        assert_eq!(database.undoing().transactions, 2);
        let refused = read(executor, &database, first, RECORDS / 2).await;
        assert!(matches!(&refused, Some(Err(Error::RollbackStalled { .. }))), "{refused:?}");
        for number in [0, RECORDS - 1] {
            let found = read(executor, &database, second, number).await;
            assert_eq!(found, Some(Ok(b"committed".to_vec())), "its device is sound");
        }
        assert_eq!(database.undoing().transactions, 1);
        let refused = read(executor, &database, first, RECORDS / 2).await;
        assert!(matches!(&refused, Some(Err(Error::RollbackStalled { .. }))), "{refused:?}");
        database.close().await.expect("closes");
    });
    assert_eq!(ended, Ok(()));
    under(FaultPlan::default(), &media, async |executor| {
        let (database, parts) = open(executor).await.expect("opens");
        assert_eq!(database.recovery().unfinished, 1);
        for rows in parts {
            assert_eq!(read(executor, &database, rows, 0).await, Some(Ok(b"committed".to_vec())));
        }
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    })
    .expect("the machine goes on");
}

#[test]
fn one_whose_device_is_silent_keeps_no_other_from_being_undone() {
    let media = killed();
    let opened_ns = under(FaultPlan::default(), &media.copy(), async |executor| {
        let opened = open(executor).await.expect("opens");
        assert_eq!(opened.0.undoing().transactions, 2);
        executor.now().since_ns(Instant::START)
    });
    let from = Instant::START.plus_ns(opened_ns.expect("the machine goes on") + MILLISECOND_NS);
    let hung = Slow { device: "data".into(), from, until: from.plus_ns(3_600 * SECOND_NS), factor: Slow::HUNG };
    let faults = FaultPlan { slow: vec![hung], ..FaultPlan::default() };
    let ended = under(faults, &media, async |executor| {
        let (database, [_, second]) = open(executor).await.expect("opens");
        assert_eq!(database.undoing().transactions, 2);
        for number in [0, RECORDS - 1] {
            let found = read(executor, &database, second, number).await;
            assert_eq!(found, Some(Ok(b"committed".to_vec())), "its device is sound");
        }
        assert_eq!(database.undoing().transactions, 1);
    });
    assert_eq!(ended, Ok(()));
}

/// A log that has failed has none of them undone: those who wait are told, whichever they wait for.
#[test]
fn a_log_that_fails_beside_them_is_told_to_those_who_wait_for_any() {
    let media = killed();
    let ended = under(failing_behind_opening(&media, OpKind::Write, "backup"), &media, async |executor| {
        let (database, parts) = open(executor).await.expect("opens");
        assert_eq!(database.undoing().transactions, 2);
        // Where the undoing, which begins with the last change, is at last.
        let waiting = parts.map(|rows| {
            let (executor, database) = (executor.clone(), database.clone());
            executor.clone().spawn(async move { read(&executor, &database, rows, 0).await })
        });
        for (number, waiting) in waiting.into_iter().enumerate() {
            let told = waiting.join().await;
            assert!(matches!(&told, Some(Err(Error::LogFailed(_)))), "{number}: {told:?}");
        }
    });
    assert_eq!(ended, Ok(()));
}
