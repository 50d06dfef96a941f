//! Records that a transaction asks for before it refers to them.

use base::PartitionId;
use base::time::MILLISECOND_NS;
use devices::Hardware;
use entresol_engine::{Database, Direction, Internals, PartitionSpec, Settings, buffer, second_level};
use executor::{Executor, Order, WholeExecutor};
use std::future::Future;
use std::ops::Bound;
use virtual_driver::{Media, Options, VirtualDriver};

const READ_NS: u64 = 10 * MILLISECOND_NS;
/// Values of which few fit a page.
const VALUE: [u8; 1500] = [7; 1500];
const RECORDS: u32 = 3_000;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Runs `test` in a database of a tree that is much larger than these frames, on a device that reads in [`READ_NS`].
fn with_tree<F: Future<Output = ()>>(frames: usize, test: impl FnOnce(Database, PartitionId) -> F) {
    with_tree_above(frames, second_level::Settings::default(), test);
}

/// The same, above these tiers.
fn with_tree_above<F: Future<Output = ()>>(
    frames: usize,
    hierarchy: second_level::Settings,
    test: impl FnOnce(Database, PartitionId) -> F,
) {
    let hardware = "[device.disk]\nmedium.service = \"10 ms\"\nmedium.servers = 1000\n[device.flash]\nmedium.service = \"10 us\"\n";
    let hardware = Hardware::parse(hardware, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::default());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(async {
        let settings = Settings {
            home_device: "flash".into(),
            log_device: "flash".into(),
            buffer: buffer::Settings { frames, ..buffer::Settings::default() },
            hierarchy,
            ..Settings::default()
        };
        let database = Database::create(&executor, settings).await.expect("creates");
        let spec = PartitionSpec { device: "disk".into(), ..PartitionSpec::b_tree("records") };
        let records = database.create_partition(spec).await.expect("creates");
        for first in (0..RECORDS).step_by(50) {
            let fill = async |tx: &mut entresol_engine::Transaction| {
                for number in first..first + 50 {
                    tx.insert(records, &key(number), &VALUE).await?;
                }
                Ok::<_, entresol_engine::Error>(())
            };
            database.transaction(fill).await.expect("fills");
        }
        database.checkpoint().await.expect("writes all pages back");
        test(database, records).await;
    });
    executor.stop();
    result.expect("the machine goes on");
}

#[test]
fn pages_are_read_side_by_side() {
    with_tree(256, async |database, records| {
        let executor = database.executor().whole().clone();
        // All of them left the buffer when the last ones came.
        let keys: Vec<[u8; 4]> = (0..20).map(|number| key(number * 40)).collect();
        let mut tx = database.begin().await.expect("begins");
        database.statistics().restart();
        database.buffer().restart_statistics();
        let began = executor.now();
        tx.prefetch(records, &keys).await;
        let prefetched_ns = executor.now().since_ns(began);
        assert!((READ_NS..4 * READ_NS).contains(&prefetched_ns), "one read for each level: {prefetched_ns} ns");
        for key in &keys {
            assert_eq!(tx.get(records, key).await.expect("reads").as_deref(), Some(&VALUE[..]));
        }
        // Each is the first to use its leaf, so it counts where that was read, though it has not waited for it.
        let seen = database.statistics().references()[usize::from(records.0)];
        assert_eq!((seen.hits, seen.device_reads, seen.count()), (0, 20, 20));
        assert!(executor.now().since_ns(began) < prefetched_ns + READ_NS, "no page is waited for");
        tx.commit().await.expect("commits");
    });
}

#[test]
fn each_reference_counts_once_at_the_farthest_place_of_its_pages() {
    let cache = second_level::CacheSettings {
        design: second_level::Design::named("dual-write").expect("it is one"),
        ..second_level::CacheSettings::new("flash", 256)
    };
    let tiers = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
    with_tree_above(64, tiers, async |database, records| {
        let keys: Vec<[u8; 4]> = (0..100).map(|number| key(number * 15)).collect();
        for round in 0..4_usize {
            database.statistics().restart();
            database.buffer().restart_statistics();
            let mut tx = database.begin().await.expect("begins");
            match round % 2 {
                0 => tx.get_each_with(records, &keys, |_, value| assert!(value.is_some())).await.expect("reads"),
                _ => tx.modify_each(records, &keys, |_, value| value[0] = 9).await.expect("changes"),
            }
            let mut cursor = tx.cursor(records, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while tx.next(&mut cursor).await.expect("reads").is_some() {}
            tx.commit().await.expect("commits");
            let seen = database.statistics().references()[usize::from(records.0)];
            assert!(seen.cache_hits > 0 && seen.device_reads > 0, "{round}: {seen:?}");
            let space = database.buffer().space(records);
            assert!(seen.device_reads <= space.reads.get(), "{round}: {seen:?}");
            assert!(seen.cache_hits <= space.cache_hits.get(), "{round}: {seen:?}");
            // Pages that no reference is charged with: inner ones beside a leaf, and what was read ahead twice.
            let read = space.reads.get() + space.cache_hits.get();
            assert!(seen.misses() * 10 >= read * 8, "{round}: {seen:?} of {read} pages");
        }
    });
}

#[test]
fn a_reference_that_waits_for_a_lock_counts_once() {
    with_tree(256, async |database, records| {
        database.statistics().restart();
        let mut first = database.begin().await.expect("begins");
        // It locks the gap that the other one inserts into.
        let mut cursor = first.cursor(records, Bound::Included(&key(RECORDS)), Bound::Unbounded, Direction::Forward);
        assert!(first.next(&mut cursor).await.expect("reads").is_none());
        let read = database.statistics().references()[usize::from(records.0)].count();
        let other = database.clone();
        let insert = database.executor().spawn(async move {
            other.transaction(async |tx| tx.insert(records, &key(RECORDS + 1), &VALUE).await).await.expect("inserts");
        });
        database.executor().sleep_ns(READ_NS).await;
        first.commit().await.expect("commits");
        insert.join().await;
        assert_eq!(database.statistics().references()[usize::from(records.0)].count() - read, 1);
    });
}

#[test]
fn more_than_the_buffer_holds_neither_fails_nor_changes_an_answer() {
    with_tree(24, async |database, records| {
        let keys: Vec<[u8; 4]> = (0..RECORDS + 10).map(key).collect();
        let mut tx = database.begin().await.expect("begins");
        tx.prefetch(records, &keys).await;
        for number in [0, 1_000, RECORDS - 1] {
            assert_eq!(tx.get(records, &key(number)).await.expect("reads").as_deref(), Some(&VALUE[..]));
        }
        assert_eq!(tx.get(records, &key(RECORDS + 5)).await.expect("reads"), None);
        tx.commit().await.expect("commits");
    });
}

#[test]
fn it_locks_nothing_and_waits_for_no_lock() {
    with_tree(256, async |database, records| {
        let mut writer = database.begin().await.expect("begins");
        writer.modify(records, &key(3), |value| value[0] = 8).await.expect("changes");
        let tx = database.begin().await.expect("begins");
        tx.prefetch(records, &[key(3), key(4)]).await;
        writer.modify(records, &key(4), |value| value[0] = 8).await.expect("is not kept waiting");
        writer.commit().await.expect("commits");
        tx.rollback().await.expect("rolls back");
    });
}

#[test]
fn what_has_no_keys_or_does_not_exist_is_no_error() {
    with_tree(64, async |database, _| {
        let history = database.create_partition(PartitionSpec::append("history")).await.expect("creates");
        let set = database.create_partition(PartitionSpec::set("set")).await.expect("creates");
        database.transaction(async |tx| tx.put(set, b"key", b"value").await).await.expect("puts");
        let mut tx = database.begin().await.expect("begins");
        for partition in [history, set, PartitionId(99)] {
            tx.prefetch(partition, &[&b"key"[..], b"", b"other"]).await;
        }
        tx.prefetch::<[u8; 4]>(set, &[]).await;
        assert_eq!(tx.get(set, b"key").await.expect("reads").as_deref(), Some(&b"value"[..]));
        tx.commit().await.expect("commits");
    });
}
