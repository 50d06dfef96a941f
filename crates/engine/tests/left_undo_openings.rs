//! Openings that leave large transactions to be undone, and fail behind that, or need the log themselves.

use crate::ground::losers::{key, settings, slowly, under};
use base::PartitionId;
use base::time::SECOND_NS;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::set::{FieldType, RecordType};
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, Transaction, buffer, checkpoint, log};
use executor::Executor;
use std::mem::forget;
use std::ops::Range;
use virtual_driver::{ErrorAt, FaultPlan, Media};

const RECORDS: u32 = 300;

async fn put_all(
    tx: &mut Transaction,
    rows: PartitionId,
    (numbers, size): (Range<u32>, usize),
    what: &[u8],
) -> Result<()> {
    for number in numbers {
        let value = [what, &vec![b'.'; size]].concat();
        tx.put(rows, &key(number), &value).await?;
    }
    Ok(())
}

/// Whatever is asked of the device fails, but that its files are opened.
fn away(device: &str) -> FaultPlan {
    let kinds = [OpKind::List, OpKind::Read, OpKind::Write, OpKind::Sync];
    let error = |kind, nth| ErrorAt { kind, device: Some(device.into()), nth };
    let errors = kinds.into_iter().flat_map(|kind| (1..1_000).map(move |nth| error(kind, nth))).collect();
    FaultPlan { errors, ..FaultPlan::default() }
}

/// What the files have.
fn files(media: &Media) -> Vec<Vec<u8>> {
    let read = |(device, name)| {
        let mut bytes = vec![0; media.length(device, name).expect("it is there") as usize];
        media.read(device, name, 0, &mut bytes).expect("can be read");
        bytes
    };
    [("disk", "entresol.home"), ("disk", "log"), ("data", "rows.pages")].map(read).to_vec()
}

/// A small log whose archive is told more of partitions than the log's reserve.
fn archived() -> Settings {
    let log = log::Settings { capacity: 256 << 10, archive: Some("backup".into()), reserve: 0.1, ..settings().log };
    let buffer = buffer::Settings { frames: 24, page_size: 1024, ..buffer::Settings::default() };
    let checkpoint = checkpoint::Policy { log_bytes: Some(32 << 10), interval_ns: None };
    Settings { log, buffer, checkpoint, ..settings() }
}

async fn with_partitions(executor: &Executor) -> Result<()> {
    let database = Database::create(executor, archived()).await?;
    let part = |name, device: &str| PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
    let rows = database.create_partition(part("rows", "data")).await?;
    database.create_partition(part("more", "flash")).await?;
    for number in 0..400 {
        let organization = Organization::Append { blocking_factor: 0 };
        let spec = PartitionSpec::new(&format!("{number:0>64}"), organization, Locking::Page);
        database.create_partition(spec).await?;
    }
    for first in (0..RECORDS).step_by(50) {
        database.transaction(async |tx| put_all(tx, rows, (first..first + 50, 150), b"committed").await).await?;
    }
    database.close().await
}

/// Another opening may follow at once, and what this one writes is not to come after that.
#[test]
fn one_that_fails_behind_what_it_has_left_undoes_nothing_afterwards() {
    let media = Media::new();
    assert_eq!(under(FaultPlan::default(), &media, with_partitions), Ok(Ok(())));
    let until_full = async |database: &Database| {
        let more = database.partition("more").expect("it exists");
        for number in 0.. {
            let put = database.transaction(async |tx| tx.put(more, &key(number), &[7; 400]).await).await;
            if let Err(error) = put {
                assert!(matches!(error, Error::LogNotArchived { .. }), "{error}");
                return number;
            }
        }
        unreachable!("the log has an end")
    };
    let count = under(away("backup"), &media.copy(), async |executor| {
        until_full(&Database::open(executor, archived(), "here").await.expect("the log has room")).await
    });
    let ended = under(away("backup"), &media, async |executor| {
        let database = Database::open(executor, archived(), "here").await.expect("the log has room");
        let [rows, more] = ["rows", "more"].map(|name| database.partition(name).expect("it exists"));
        for number in 0..count.expect("the machine goes on") / 2 {
            database.transaction(async |tx| tx.put(more, &key(number), &[7; 400]).await).await.expect("there is room");
        }
        let mut tx = database.begin().await.expect("begins");
        for number in (0..RECORDS).step_by(10) {
            tx.put(rows, &key(number), b"lost").await.expect("there is room");
        }
        until_full(&database).await;
        forget(tx);
    });
    assert_eq!(ended, Ok(()));
    let ended = under(away("backup"), &media, async |executor| {
        let failed = Database::open(executor, archived(), "here").await.map(drop);
        assert!(matches!(&failed, Err(Error::LogNotArchived { .. })), "{failed:?}");
        let before = files(&media);
        executor.sleep_ns(10 * SECOND_NS).await;
        assert!(files(&media) == before, "it goes on behind its failure");
    });
    assert_eq!(ended, Ok(()));
    under(FaultPlan::default(), &media, async |executor| {
        let database = Database::open(executor, archived(), "here").await.expect("opens");
        assert_eq!(database.recovery().undos_left, 1);
        let rows = database.partition("rows").expect("it exists");
        let found = database.transaction(async |tx| tx.get(rows, &key(0)).await).await.expect("reads");
        assert!(found.is_some_and(|value| value.starts_with(b"committed")));
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    })
    .expect("the machine goes on");
}

/// A log whose archive has to be told more of partitions than half of it, and of whose rest a large transaction holds much.
fn with_long_catalog() -> Settings {
    let log = log::Settings { capacity: 512 << 10, ..archived().log };
    let buffer = buffer::Settings { frames: 60, page_size: 1024, ..buffer::Settings::default() };
    Settings { log, buffer, ..settings() }
}

fn with_long_catalog_killed() -> Media {
    let media = Media::new();
    let made = under(FaultPlan::default(), &media, async |executor| {
        let database = Database::create(executor, with_long_catalog()).await?;
        let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("rows") };
        let rows = database.create_partition(spec).await?;
        let names: Vec<String> = (0..60).map(|number| format!("{number:0>60}")).collect();
        let record =
            RecordType::new(names.iter().map(|name| (name.as_str(), FieldType::U64))).expect("different names");
        for number in 0..70 {
            let spec = PartitionSpec::b_tree(&format!("of-many-fields-{number}")).record(record.clone());
            database.create_partition(spec).await?;
            database.checkpoint().await?;
        }
        database.transaction(async |tx| put_all(tx, rows, (0..RECORDS, 100), b"committed").await).await?;
        database.checkpoint().await?;
        let mut tx = database.begin().await?;
        put_all(&mut tx, rows, (0..RECORDS, 100), b"lost").await?;
        forget(tx);
        database.checkpoint().await
    });
    assert_eq!(made, Ok(Ok(())));
    media
}

/// The opening does not wait for room that only the end of the undoing gives: without that room nothing is left to be undone.
#[test]
fn what_keeps_the_log_from_what_its_archive_is_told_is_undone_before_the_opening_ends() {
    let media = with_long_catalog_killed();
    slowly(&media.copy(), async |executor| {
        let database = Database::open(executor, with_long_catalog(), "here").await.expect("opens");
        assert_eq!((database.recovery().unfinished, database.recovery().undos_left), (1, 0));
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
    // The device is named on which that fails, not a rollback that others are to wait for.
    let failed = under(away("data"), &media, async |executor| {
        let opened = Database::open(executor, with_long_catalog(), "here");
        executor.within(60 * SECOND_NS, opened).await.map(|opened| opened.map(drop))
    });
    assert!(matches!(&failed, Ok(Some(Err(Error::Input(_))))), "{failed:?}");
}
