//! Pages of long values that a committed transaction deleted, and whose device fails: the log that a restart would need stays,
//! tasks waiting for its room are told, and when the device is back the pages are freed.

use crate::ground::failing_reads::on;
use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Direction, Error, Internals, PartitionSpec, Settings, Transaction, buffer, log};
use executor::{Executor, Order};
use std::ops::Bound;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, VirtualDriver};

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        checkpoint: Policy::OFF,
        ..Settings::default()
    }
}

/// A tree on the device that fails has a long value whose pages are not in memory, but for the leaf that leads there.
async fn prepare(executor: &Executor) -> Database {
    let database = Database::create(executor, settings()).await.expect("creates");
    for (name, device) in [("texts", "data"), ("filler", "data"), ("notes", "disk")] {
        let spec = PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
        database.create_partition(spec).await.expect("creates a tree");
    }
    let [texts, filler] = ["texts", "filler"].map(|name| database.partition(name).expect("it exists"));
    database.transaction(async |tx| tx.put(texts, b"long", &[7; 30_000]).await).await.expect("puts");
    let records = (0..600_u32).map(|number| (number.to_be_bytes(), [1; 150]));
    database.load_b_tree(filler, records, |_| {}).await.expect("loads");
    let mut scan = database.begin().await.expect("begins");
    let mut cursor = scan.cursor(filler, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while scan.next(&mut cursor).await.expect("reads").is_some() {}
    scan.commit().await.expect("ends");
    database.transaction(async |tx| tx.get(texts, b"none").await).await.expect("reads the leaf");
    database
}

fn reads(database: &Database) -> u64 {
    let of = |name| database.buffer().space(database.partition(name).expect("there")).reads.get();
    of("texts") + of("filler")
}

/// Puts notes until the log has no room any more.
async fn fill(database: &Database) -> Error {
    let notes = database.partition("notes").expect("it exists");
    loop {
        let put = async |tx: &mut Transaction| tx.put(notes, b"note", &[3; 500]).await;
        if let Err(error) = database.transaction(put).await {
            return error;
        }
    }
}

fn failing(lasts: u64, work: impl AsyncFnOnce(&Executor, &Database)) -> Media {
    let first = on(&Media::new(), 0..0, async |executor| reads(&prepare(executor).await)) + 1;
    let media = Media::new();
    on(&media, first..first + lasts, async |executor| {
        let database = prepare(executor).await;
        let texts = database.partition("texts").expect("it exists");
        let deleted = database.transaction(async |tx| tx.delete(texts, b"long").await).await;
        assert_eq!(deleted, Ok(true), "it is committed, whatever becomes of its pages");
        work(executor, &database).await;
    });
    media
}

#[test]
fn pages_that_cannot_be_freed_for_a_while_are_freed_later() {
    failing(60, async |executor, database| {
        let deadline = executor.now().plus_ns(60 * SECOND_NS);
        let told = fill(database).await;
        assert!(matches!(&told, Error::RollbackStalled { .. }), "{told}");
        assert!(told.to_string().contains("'texts.pages'"), "{told}");
        let notes = database.partition("notes").expect("it exists");
        let mut after = Err(told);
        while after.is_err() && executor.now() < deadline {
            executor.sleep_ns(100 * MILLISECOND_NS).await;
            after = database.transaction(async |tx| tx.put(notes, b"after", b"1").await).await;
        }
        assert_eq!(after, Ok(()), "the device is back");
        executor.sleep_ns(SECOND_NS).await;
        let report = database.check(|_| ()).await.expect("reads");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}

#[test]
fn pages_that_cannot_be_freed_for_good_are_freed_by_a_restart() {
    let media = failing(1 << 20, async |_, database| {
        let told = fill(database).await;
        assert!(matches!(&told, Error::RollbackStalled { .. }), "{told}");
        let dropped = database.drop_partition(database.partition("filler").expect("it exists")).await;
        assert!(matches!(dropped, Err(Error::RollbackStalled { .. })), "{dropped:?}");
    });
    on(&media, 0..0, async |executor| {
        let database = Database::open(executor, settings(), "restart").await.expect("opens");
        let texts = database.partition("texts").expect("it exists");
        let found = database.transaction(async |tx| tx.get(texts, b"long").await).await;
        assert_eq!(found, Ok(None));
        let report = database.check(|_| ()).await.expect("reads");
        assert!(report.is_clean(), "{:?}", report.findings);
    });
}

/// The device `data` fails at this write. Returns whether a forced write of the deletion did.
fn failing_forced_write(nth: u64) -> bool {
    let text = "[device.disk]\nmedium.service = \"20 us\"\n[device.data]\nmedium.service = \"20 us\"\n";
    let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("data".into()), nth }];
    let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
    let hardware = Hardware::parse(text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let failed = executor.run(async {
        let database = Database::create(&executor, Settings { force: true, ..settings() }).await?;
        for (name, device) in [("texts", "data"), ("notes", "disk")] {
            let spec = PartitionSpec { device: device.into(), ..PartitionSpec::b_tree(name) };
            database.create_partition(spec).await?;
        }
        let texts = database.partition("texts")?;
        database.transaction(async |tx| tx.put(texts, b"long", &[7; 30_000]).await).await?;
        let mut tx = database.begin().await?;
        tx.delete(texts, b"long").await?;
        let failed = tx.commit().await.is_err();
        let notes = database.partition("notes")?;
        let other = database.clone();
        let fills = executor.spawn(async move {
            for _ in 0..100 {
                other.transaction(async |tx| tx.put(notes, b"note", &[3; 500]).await).await?;
            }
            Ok::<(), Error>(())
        });
        let deadline = executor.now().plus_ns(5 * SECOND_NS);
        while !fills.is_finished() {
            assert!(executor.now() < deadline, "write {nth}: no task is told that the log stays full");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        fills.join().await?;
        let report = database.check(|_| ()).await?;
        assert!(report.is_clean(), "write {nth}: {:?}", report.findings);
        Ok::<bool, Error>(failed)
    });
    executor.stop();
    let failed = failed.expect("the machine goes on");
    // The creation fails with its own writes, and so does the insertion.
    failed.unwrap_or(false)
}

#[test]
fn a_forced_write_that_fails_keeps_no_pages_from_being_freed() {
    let failed = (1..20).filter(|nth| failing_forced_write(*nth)).count();
    assert!(failed > 0, "no write of the deletion's commit failed");
}
