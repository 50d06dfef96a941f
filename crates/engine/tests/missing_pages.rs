//! Files that were cut off, or blanked in the middle, after an opening had written them.

use crate::ground::machine::run;
use driver::{Access, Op};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Error, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::Executor;
use virtual_driver::Media;

const PAGE: u64 = 1024;
const RECORDS: u64 = 300;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: PAGE as usize, ..buffer::Settings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn specs() -> [PartitionSpec; 3] {
    let direct = Organization::Direct { objects: RECORDS, blocking_factor: 4, record_size: 100 };
    [
        PartitionSpec::b_tree("tree"),
        PartitionSpec::append("history"),
        PartitionSpec::new("objects", direct, Locking::Record),
    ]
}

fn created(media: &Media) {
    run(media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        for spec in specs() {
            database.create_partition(spec).await.expect("creates");
        }
        let [tree, history, objects] = specs().map(|spec| database.partition(&spec.name).expect("it was created"));
        for number in 0..RECORDS {
            let filled = database.transaction(async |tx| {
                tx.put(tree, &number.to_be_bytes(), &[7; 100]).await?;
                tx.append(history, &[7; 100]).await?;
                tx.modify_object(objects, number, |bytes| bytes[0] = 7).await
            });
            filled.await.expect("commits");
        }
        database.close().await.expect("closes");
    });
}

/// What each organization says of its last record, and of a new one.
async fn last(database: &Database) -> [Result<(), Error>; 3] {
    let [tree, history, objects] = specs().map(|spec| database.partition(&spec.name).expect("it was created"));
    let of_tree = database.transaction(async |tx| tx.get(tree, &(RECORDS - 1).to_be_bytes()).await).await;
    let appended = database.transaction(async |tx| tx.append(history, &[7; 100]).await).await;
    let object = database.transaction(async |tx| tx.modify_object(objects, RECORDS - 1, |bytes| bytes[0]).await).await;
    [
        of_tree.map(|found| assert!(found.is_some(), "a record is gone without a word")),
        appended.map(drop),
        object.map(|value| assert_eq!(value, 7, "an object is as it never was")),
    ]
}

fn assert_missing(error: Result<(), Error>, file: &str) {
    match error {
        Err(Error::DamagedPage { file: found, detail, .. }) => {
            assert_eq!(found, file);
            assert!(detail.contains("it is not there or blank"), "{detail}");
        }
        other => panic!("{file}: {other:?}"),
    }
}

/// Each organization's file loses what lies behind its fourth page.
#[test]
fn what_was_cut_off_is_missed_by_name() {
    let media = Media::new();
    created(&media);
    run(&media, async |executor| {
        for spec in specs() {
            let device = executor.device("disk").expect("it exists");
            let (file, _) = executor.open(device, &format!("{}.pages", spec.name), false).await.expect("it is there");
            let resized = executor.perform(Op::Resize { file, length: 4 * PAGE, prewrite: false }).await;
            resized.result.expect("it gets shorter");
        }
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let [tree, history, objects] = last(&database).await;
        assert_missing(tree, "tree.pages");
        assert_missing(history, "history.pages");
        assert_missing(objects, "objects.pages");
        let objects = database.partition("objects").expect("it was created");
        let first = database.transaction(async |tx| tx.modify_object(objects, 0, |bytes| bytes[0]).await).await;
        assert_eq!(first, Ok(7), "what is there is read");
        let report = database.check(|_| ()).await.expect("it can be read");
        assert!(report.findings.len() >= 3, "{:?}", report.findings);
    });
}

async fn blank(executor: &Executor, name: &str, from: u64) {
    let device = executor.device("disk").expect("it exists");
    let (file, length) = executor.open(device, name, false).await.expect("it is there");
    let buffer = executor.frame(PAGE as usize).expect("memory");
    for offset in (from..length).step_by(PAGE as usize) {
        let buffer = executor.frame(buffer.len()).expect("memory");
        let (length, durable, access) = (PAGE as u32, false, Access::Asynchronous);
        executor.perform(Op::Write { file, offset, length, buffer, durable, access }).await.result.expect("writes");
    }
}

#[test]
fn what_was_blanked_is_missed_by_trees_and_histories() {
    let media = Media::new();
    created(&media);
    run(&media, async |executor| {
        blank(executor, "tree.pages", 4 * PAGE).await;
        blank(executor, "history.pages", 4 * PAGE).await;
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let [tree, history, objects] = last(&database).await;
        assert_missing(tree, "tree.pages");
        assert_missing(history, "history.pages");
        assert_eq!(objects, Ok(()));
    });
}

/// No page of a direct partition is ever new, and one that is blank has objects of zeros: what was blanked is not told from that.
#[test]
fn what_was_blanked_of_a_direct_partition_reads_as_zeros_and_is_not_noticed() {
    let media = Media::new();
    created(&media);
    run(&media, async |executor| blank(executor, "objects.pages", 4 * PAGE).await);
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let objects = database.partition("objects").expect("it was created");
        let first = database.transaction(async |tx| tx.modify_object(objects, 0, |bytes| bytes[0]).await).await;
        assert_eq!(first, Ok(7), "what was not blanked is there");
        let last =
            database.transaction(async |tx| tx.modify_object(objects, RECORDS - 1, |bytes| bytes.to_vec()).await);
        assert_eq!(last.await, Ok(vec![0; 100]));
        let report = database.check(|_| ()).await.expect("it can be read");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}
