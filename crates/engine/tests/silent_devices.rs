//! Devices that answer no more: whatever needs one of them waits, and nothing else does.

use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Error, PartitionSpec, Settings, buffer, checkpoint};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Media, Options, Slow, VirtualDriver};

/// A machine whose device `data` is silent after a second.
fn machine() -> Executor {
    machine_with("512 B")
}

/// The same whose devices write so much at once or nothing of it.
fn machine_with(atomic_write: &str) -> Executor {
    let device = |name: &str| {
        format!("[device.{name}]\nmedium.service = \"20 us\"\nsync = \"20 us\"\natomic_write = \"{atomic_write}\"\n")
    };
    let text: String = ["disk", "data"].into_iter().map(device).collect();
    let from = Instant::from_ns(SECOND_NS);
    let slow = Slow { device: "data".into(), from, until: from.plus_ns(3_600 * SECOND_NS), factor: Slow::HUNG };
    let options =
        Options { faults: Some(FaultPlan { slow: vec![slow], ..FaultPlan::default() }), ..Options::default() };
    let hardware = Hardware::parse(&text, "test").expect("a description");
    Executor::new(Box::new(VirtualDriver::new(hardware, options, Media::new())), Order::FirstInFirstOut)
}

#[test]
fn a_request_that_a_device_leaves_unanswered_is_named() {
    let executor = machine();
    let result = executor.run(async {
        let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
        let database = Database::create(&executor, settings).await?;
        let notes = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("notes") };
        let notes = database.create_partition(notes).await?;
        database.transaction(async |tx| tx.put(notes, b"key", b"value").await).await?;
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
fn a_drop_leaves_behind_what_a_silent_device_has() {
    let executor = machine();
    let result = executor.run(async {
        let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
        let database = Database::create(&executor, settings).await?;
        let old = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("old") };
        let old = database.create_partition(old).await?;
        database.transaction(async |tx| tx.put(old, b"key", b"value").await).await?;
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

/// Pages of a device that answers nothing stay dirty in main memory. Others take the frames that are left, be it that pages may
/// be torn and go through the double-write area.
#[test]
fn a_silent_device_does_not_keep_frames_from_the_pages_of_others() {
    for (atomic_write, cleaner) in [("64 KiB", true), ("64 KiB", false), ("512 B", true), ("512 B", false)] {
        let executor = machine_with(atomic_write);
        let result = executor.run(async {
            let settings = Settings {
                checkpoint: checkpoint::Policy::OFF,
                buffer: buffer::Settings { frames: 64, cleaner, ..buffer::Settings::default() },
                ..Settings::default()
            };
            let database = Database::create(&executor, settings).await?;
            let direct = |objects| Organization::Direct { objects, blocking_factor: 1, record_size: 100 };
            let spec = PartitionSpec::new("silent", direct(24), Locking::Page);
            let silent = database.create_partition(PartitionSpec { device: "data".into(), ..spec }).await?;
            let other = database.create_partition(PartitionSpec::new("other", direct(300), Locking::Page)).await?;
            for (partition, count) in [(other, 300), (silent, 24)] {
                for number in 0..count {
                    database.transaction(async |tx| tx.modify_object(partition, number, |_| ()).await).await?;
                }
            }
            executor.sleep_ns(SECOND_NS).await;
            let began = executor.now();
            for number in 0..300 {
                database.transaction(async |tx| tx.modify_object(other, number, |_| ()).await).await?;
            }
            let seconds = executor.now().since_ns(began) / SECOND_NS;
            assert!(seconds < 60, "{atomic_write}, cleaner: {cleaner}: {seconds} s");
            Ok::<_, Error>(())
        });
        executor.stop();
        assert_eq!(result, Ok(Ok(())));
    }
}
