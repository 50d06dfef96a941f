//! Devices that answer no more: whatever needs one of them waits, and nothing else does.

use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PartitionId};
use devices::Hardware;
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, DESIGNS, Design, Parameter, Parameters};
use entresol_engine::transaction::Transaction;
use entresol_engine::{
    BackupSettings, Database, Error, Internals, PartitionSpec, Settings, Snapshot, buffer, checkpoint, version,
};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{FaultPlan, Media, Options, Slow, VirtualDriver};

/// A machine whose device `data` is silent after a second.
fn machine() -> Executor {
    machine_with("512 B")
}

/// The same whose devices write so much at once or nothing of it.
fn machine_with(atomic_write: &str) -> Executor {
    machine_silent_from(SECOND_NS, atomic_write)
}

/// The same whose device `data` is silent after this many nanoseconds.
fn machine_silent_from(from_ns: u64, atomic_write: &str) -> Executor {
    let device = |name: &str| {
        format!("[device.{name}]\nmedium.service = \"20 us\"\nsync = \"20 us\"\natomic_write = \"{atomic_write}\"\n")
    };
    let text: String = ["disk", "data", "flash"].into_iter().map(device).collect();
    let from = Instant::from_ns(from_ns);
    let slow = Slow { device: "data".into(), from, until: from.plus_ns(3_600 * SECOND_NS), factor: Slow::HUNG };
    let options =
        Options { faults: Some(FaultPlan { slow: vec![slow], ..FaultPlan::default() }), ..Options::default() };
    let hardware = Hardware::parse(&text, "test").expect("a description");
    Executor::new(Box::new(VirtualDriver::new(hardware, options, Media::new())), Order::FirstInFirstOut)
}

/// A database with a record in a partition on the device `data`, which is not written back yet.
async fn with_partition(executor: &Executor, name: &str) -> Result<(Database, PartitionId), Error> {
    let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    let database = Database::create(executor, settings).await?;
    let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree(name) };
    let partition = database.create_partition(spec).await?;
    database.transaction(async |tx| tx.put(partition, b"key", b"value").await).await?;
    Ok((database, partition))
}

#[test]
fn a_request_that_a_device_leaves_unanswered_is_named() {
    let executor = machine();
    let result = executor.run(async {
        let (database, _) = with_partition(&executor, "notes").await?;
        assert_eq!(database.unanswered(MILLISECOND_NS), []);
        executor.sleep_ns(SECOND_NS).await;
        let checkpointed = database.clone();
        executor.spawn(async move { checkpointed.checkpoint().await });
        executor.sleep_ns(7 * SECOND_NS).await;
        let late = database.unanswered(5 * SECOND_NS);
        let [first, ..] = &late[..] else { panic!("none is late") };
        assert_eq!((first.device.as_str(), first.file.as_deref()), ("data", Some("notes.pages")));
        assert!((6 * SECOND_NS..=7 * SECOND_NS).contains(&first.waited_ns), "{first:?}");
        let words = "device 'data' has left a write of file 'notes.pages' unanswered for ";
        assert!(first.to_string().starts_with(words), "{first}");
        assert!(late.iter().all(|request| request.device == "data"), "{late:?}");
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

#[test]
fn a_request_that_is_unanswered_for_longer_than_it_may_ends_the_run() {
    let executor = machine();
    let looked_at = Rc::new(Cell::new(0));
    let looks = Rc::clone(&looked_at);
    executor.limit_answers(5 * SECOND_NS, move |late| {
        looks.set(looks.get() + 1);
        late.waited_ns > 10 * SECOND_NS
    });
    let result = executor.run(async {
        let (database, _) = with_partition(&executor, "notes").await?;
        executor.sleep_ns(SECOND_NS).await;
        database.close().await
    });
    assert_eq!(result, Err(Halt::Unanswered));
    assert!(looked_at.get() > 3);
    let late = executor.overdue().expect("one was");
    assert_eq!((late.device.as_str(), late.file.as_deref()), ("data", Some("notes.pages")));
    assert!((10 * SECOND_NS..12 * SECOND_NS).contains(&late.waited_ns), "{late}");
    assert_eq!(executor.run(async {}), Ok(()), "nothing waits for it");
    assert_eq!(executor.run(executor.sleep_ns(1)), Err(Halt::Unanswered));
    executor.stop();
}

#[test]
fn a_drop_leaves_behind_what_a_silent_device_has() {
    let executor = machine();
    let result = executor.run(async {
        let (database, old) = with_partition(&executor, "old").await?;
        executor.sleep_ns(SECOND_NS).await;
        let checkpointed = database.clone();
        executor.spawn(async move { checkpointed.checkpoint().await });
        // Its pages are on their way by then.
        executor.sleep_ns(MILLISECOND_NS).await;
        let began = executor.now();
        let dropping = {
            let database = database.clone();
            executor.spawn(async move { database.drop_partition(old).await })
        };
        while !dropping.is_finished() {
            assert!(executor.now().since_ns(began) < 12 * SECOND_NS, "it waits for the device");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        assert_eq!(dropping.join().await, Ok(()));
        assert!(executor.now().since_ns(began) > 9 * SECOND_NS, "nothing was on its way");
        assert!(database.partition("old").is_err());
        let other = database.create_partition(PartitionSpec::b_tree("other")).await?;
        database.transaction(async |tx| tx.put(other, b"key", b"value").await).await?;
        let again = database.create_partition(PartitionSpec::b_tree("old")).await;
        assert!(matches!(again, Err(Error::PartitionExists(_))), "its file is still there: {again:?}");
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

#[test]
fn sets_are_swept_after_the_drop_of_one_whose_device_is_silent() {
    let executor = machine();
    let result = executor.run(async {
        let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
        let database = Database::create(&executor, settings).await?;
        let old = PartitionSpec { device: "data".into(), ..PartitionSpec::set("old") };
        let old = database.create_partition(old).await?;
        let stock = database.create_partition(PartitionSpec::set("stock")).await?;
        database.transaction(async |tx| tx.put(old, b"key", b"value").await).await?;
        database.checkpoint().await?;
        executor.sleep_ns(SECOND_NS).await;
        database.drop_partition(old).await?;
        database.transaction(async |tx| tx.put(stock, b"key", b"value").await).await?;
        let sweeping = {
            let database = database.clone();
            executor.spawn(async move { database.checkpoint().await })
        };
        executor.sleep_ns(SECOND_NS).await;
        assert!(sweeping.is_finished(), "it waits for a set that is no more");
        sweeping.join().await
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

/// Partitions `silent` on device `data` and `other`, of this many objects, each on a page of its own.
async fn partitions(database: &Database, silent: u64, other: u64) -> entresol_engine::Result<[PartitionId; 2]> {
    let direct = |objects| Organization::Direct { objects, blocking_factor: 1, record_size: 100 };
    let spec = PartitionSpec::new("silent", direct(silent), Locking::Page);
    let silent = database.create_partition(PartitionSpec { device: "data".into(), ..spec }).await?;
    let other = database.create_partition(PartitionSpec::new("other", direct(other), Locking::Page)).await?;
    Ok([silent, other])
}

/// Changes this many objects of a partition, each by a transaction of its own.
async fn change(database: &Database, partition: PartitionId, count: u64) -> entresol_engine::Result<()> {
    for number in 0..count {
        database.transaction(async |tx| tx.modify_object(partition, number, |_| ()).await).await?;
    }
    Ok(())
}

/// Whether `work` ends within this time.
async fn ends_within<F: Future<Output = entresol_engine::Result<()>>>(
    executor: &Executor,
    seconds: u64,
    work: F,
) -> entresol_engine::Result<bool> {
    executor.within(seconds * SECOND_NS, work).await.transpose().map(|ended| ended.is_some())
}

/// Pages of a device that answers nothing stay dirty in main memory. Others take the frames that are left, be it that pages may
/// be torn and go through the double-write area, and that this has copies of pages that the device will never say are durable.
#[test]
fn a_silent_device_does_not_keep_frames_from_the_pages_of_others() {
    let ways = [("64 KiB", true), ("64 KiB", false), ("512 B", true), ("512 B", false)];
    for ((atomic_write, cleaner), is_written) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let executor = machine_with(atomic_write);
        let result = executor.run(async {
            let settings = Settings {
                checkpoint: checkpoint::Policy::OFF,
                buffer: buffer::Settings { frames: 64, cleaner, ..buffer::Settings::default() },
                ..Settings::default()
            };
            let database = Database::create(&executor, settings).await?;
            let [silent, other] = partitions(&database, 24, 300).await?;
            if is_written {
                change(&database, silent, 24).await?;
                change(&database, other, 100).await?;
            } else {
                change(&database, other, 300).await?;
            }
            change(&database, silent, 24).await?;
            executor.sleep_ns(SECOND_NS).await;
            for round in 0..2 {
                let ended = ends_within(&executor, 60, change(&database, other, 300)).await?;
                assert!(ended, "{atomic_write}, cleaner: {cleaner}, written before: {is_written}, round {round}");
            }
            Ok::<_, Error>(())
        });
        executor.stop();
        assert_eq!(result, Ok(Ok(())));
    }
}

/// Slots of a cache keep pages that a silent device does not take. Others enter the other slots, or go past the cache.
#[test]
fn a_silent_device_keeps_a_cache_from_no_pages_of_others() {
    for design in DESIGNS {
        let shares: &[u8] = if design.uses(Parameter::DirtyMax) { &[50, 100] } else { &[50] };
        for dirty_max_percent in shares {
            let parameters = Parameters { dirty_max_percent: *dirty_max_percent, ..Parameters::default() };
            go_on_beside_dirty_slots(*design, parameters, true);
            go_on_beside_dirty_slots(*design, parameters, false);
        }
    }
}

fn go_on_beside_dirty_slots(design: Design, parameters: Parameters, cleaner: bool) {
    let executor = machine_with("64 KiB");
    let cache = CacheSettings { design, parameters, volatile: Some(false), ..CacheSettings::new("flash", 128) };
    let settings = Settings {
        checkpoint: checkpoint::Policy::OFF,
        buffer: buffer::Settings { frames: 64, cleaner, ..buffer::Settings::default() },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        ..Settings::default()
    };
    let result = executor.run(async {
        let database = Database::create(&executor, settings).await?;
        let [silent, other] = partitions(&database, 120, 300).await?;
        change(&database, silent, 120).await?;
        change(&database, other, 64).await?;
        executor.sleep_ns(SECOND_NS).await;
        for round in 0..2 {
            let ended = ends_within(&executor, 60, change(&database, other, 300)).await?;
            assert!(ended, "{design:?}, {parameters:?}, cleaner: {cleaner}, round {round}");
        }
        database.buffer().tiers().expect("there is a cache").check().expect("consistent");
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

/// The cleaner gathers pages of all partitions in one batch, those of the silent device first.
#[test]
fn a_forced_commit_waits_for_no_pages_of_a_silent_device() {
    let executor = machine_with("64 KiB");
    let settings = Settings { force: true, checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    let result = executor.run(async {
        let database = Database::create(&executor, settings).await?;
        let [silent, other] = partitions(&database, 40, 2_000).await?;
        let mut open = database.begin().await?;
        for number in 0..40 {
            open.modify_object(silent, number, |bytes| bytes[0] = 1).await?;
        }
        let mut tx = database.begin().await?;
        tx.modify_object(other, 0, |bytes| bytes[0] = 1).await?;
        executor.sleep_ns(SECOND_NS).await;
        for number in 0..1_000 {
            database.transaction(async |tx| tx.read_object(other, 1_000 + number, |_| ()).await).await?;
        }
        assert!(ends_within(&executor, 10, tx.commit()).await?, "it waits for the other device");
        drop(open);
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

/// Each forced commit stages a page of the silent device in another region of the double-write area.
#[test]
fn a_silent_device_does_not_keep_the_double_write_area() {
    let executor = machine();
    let settings = Settings { force: true, checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    let result = executor.run(async {
        let database = Database::create(&executor, settings).await?;
        let [silent, other] = partitions(&database, 80, 70).await?;
        executor.sleep_ns(SECOND_NS).await;
        for number in 0..80 {
            let waiting = database.clone();
            executor.spawn(async move {
                waiting.transaction(async |tx| tx.modify_object(silent, number, |bytes| bytes[0] = 1).await).await
            });
            let ended = ends_within(&executor, 10, change(&database, other, 70)).await?;
            assert!(ended, "after {number} commits that wait for the silent device");
        }
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

/// It may fall silent while the file of a partition becomes shorter: then others are loaded, and backups say why they do not begin.
#[test]
fn a_device_that_falls_silent_in_a_compaction_keeps_no_other_partition_from_being_loaded() {
    let (mut waited, mut ended) = (0, false);
    for step in 0.. {
        let executor = machine_silent_from(SECOND_NS + step * 20_000, "512 B");
        let result = executor.run(async {
            let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
            let database = Database::create(&executor, settings).await?;
            let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("old") };
            let old = database.create_partition(spec).await?;
            let other = database.create_partition(PartitionSpec::b_tree("other")).await?;
            for is_there in [true, false] {
                let work = async |tx: &mut Transaction| {
                    for number in 0..200_u32 {
                        match is_there {
                            true => drop(tx.put(old, &number.to_be_bytes(), &[7; 500]).await?),
                            false => drop(tx.delete(old, &number.to_be_bytes()).await?),
                        }
                    }
                    Ok::<_, Error>(())
                };
                database.transaction(work).await?;
            }
            database.checkpoint().await?;
            executor.sleep_until(Instant::from_ns(SECOND_NS)).await;
            let compacted = database.clone();
            let compaction = executor.spawn(async move { compacted.compact_partition(old).await });
            executor.sleep_until(Instant::from_ns(SECOND_NS + 20 * MILLISECOND_NS)).await;
            if compaction.is_finished() {
                return Ok(true);
            }
            let began = executor.now();
            database.load_b_tree(other, [(b"key", b"value")], |_| {}).await?;
            assert!(executor.now().since_ns(began) < SECOND_NS);
            let settings = BackupSettings { target: "flash".into(), base: None, bytes_per_second: None };
            // Where the file does not become shorter, a backup waits for the device itself.
            if let Some(Err(Error::PartitionInUse(name))) =
                executor.within(60 * SECOND_NS, database.backup(&settings, |_| {})).await
            {
                assert_eq!(name, "old");
                waited += 1;
            }
            Ok::<_, Error>(false)
        });
        executor.stop();
        ended = result.expect("the machine goes on").expect("the other partition is on another device");
        if ended {
            break;
        }
    }
    assert!(waited > 0 && ended, "{waited}");
}

/// A database whose old versions go to the device `data`, with a partition of two hundred records; of some versions in memory others are
/// on their way there for ever, and a writer waits for them. How many transactions that has made.
async fn with_waiting_writer(
    executor: &Executor,
    reader: &mut Option<Snapshot>,
) -> Result<(Database, PartitionId, Rc<Cell<u64>>), Error> {
    let undo =
        version::UndoSettings { device: Some("data".into()), cluster_size: 512, memory: 0, ..Default::default() };
    let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    for key in 0..200_u8 {
        database.transaction(async |tx| tx.put(notes, &[key], &[1; 200]).await).await?;
    }
    executor.sleep_ns(SECOND_NS).await;
    *reader = Some(database.snapshot().await?);
    let written = Rc::new(Cell::new(0));
    let (count, writer) = (Rc::clone(&written), database.clone());
    executor.spawn(async move {
        for key in 0..200_u8 {
            writer.transaction(async |tx| tx.put(notes, &[key], &[2; 200]).await).await.expect("it is written");
            count.set(count.get() + 1);
        }
    });
    executor.sleep_ns(SECOND_NS).await;
    assert!((1..150).contains(&written.get()), "the writer waits: {written:?}");
    Ok((database, notes, written))
}

#[test]
fn old_versions_that_a_silent_device_does_not_take_stop_no_transaction_once_they_are_needed_no_more() {
    let executor = machine();
    let result = executor.run(async {
        let mut reader = None;
        let (_database, _, written) = with_waiting_writer(&executor, &mut reader).await?;
        drop(reader);
        executor.sleep_ns(SECOND_NS).await;
        assert_eq!(written.get(), 200);
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}

#[test]
fn old_versions_that_a_silent_device_does_not_take_are_given_up_for_transactions_that_wait() {
    let executor = machine();
    let result = executor.run(async {
        let mut reader = None;
        let (database, notes, written) = with_waiting_writer(&executor, &mut reader).await?;
        executor.sleep_ns(10 * SECOND_NS).await;
        assert_eq!(written.get(), 200);
        let report = database.versions();
        assert!(report.given_up > 0 && report.failure.is_some(), "{report:?}");
        let mut reader = reader.expect("it was begun");
        let read = reader.get(notes, &[0]).await;
        assert!(matches!(read, Err(Error::SnapshotTooOld { .. })), "{read:?}");
        Ok::<_, Error>(())
    });
    executor.stop();
    assert_eq!(result, Ok(Ok(())));
}
