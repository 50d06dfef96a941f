//! Syncs that fail once and then succeed, though what was written before them is gone.

use crate::ground::machine;
use base::{PageId, PartitionId, Random};
use driver::{Access, FaultKind, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::page_store::{DataFile, PageStore, Transfer};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, checkpoint, log};
use executor::{Executor, Order};
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Injury, Media, Options, PowerCut, VirtualDriver};

/// Runs `work` where these syncs of the device `flash` fail.
fn failing<T>(media: &Media, syncs: &[u64], work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let fail = |nth: &u64| ErrorAt { kind: OpKind::Sync, device: Some("flash".into()), nth: *nth };
    let faults = Some(FaultPlan { errors: syncs.iter().map(fail).collect(), ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    result
}

fn is_device_fault(error: &Error) -> bool {
    matches!(error, Error::Input(fault) if fault.kind == FaultKind::Device)
}

async fn open(executor: &Executor) -> Rc<dyn PageStore> {
    let device = executor.device("flash").expect("the ideal machine has it");
    let file = DataFile::open(executor, device, "file", 1024, true).await.expect("creates");
    file.reserve(executor, 8).await.expect("there is room");
    Rc::new(file)
}

async fn write(executor: &Executor, file: &dyn PageStore) {
    let buffer = executor.frame(1024).expect("memory");
    let first = PageId::new(PartitionId(0), 0);
    let transfer = Transfer { first, buffer, length: 1024, access: Access::Asynchronous };
    file.write_now(executor, transfer, false).await.result.expect("writes");
}

#[test]
fn syncs_beside_or_after_a_failure_report_it() {
    failing(&Media::new(), &[1], async |executor| {
        let file = open(executor).await;
        write(executor, &*file).await;
        let mut syncs = Vec::new();
        for _ in 0..3 {
            let (own, other) = (Rc::clone(&file), executor.clone());
            syncs.push(executor.spawn(async move { own.sync(&other).await }));
            // The write that comes last is durable by no sync that was under way before.
            write(executor, &*file).await;
        }
        for (number, sync) in syncs.into_iter().enumerate() {
            let error = sync.join().await.expect_err("its writes may be gone");
            assert!(is_device_fault(&error), "sync {number}: {error}");
        }
        assert!(file.sync(executor).await.is_err_and(|error| is_device_fault(&error)));
    });
}

/// Runs `work` where the second write to the device `flash` fails.
fn failing_write<T>(work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth: 2 }];
    let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    result
}

/// The system reports once that it could not write back what was written before: to a sync, or to a durable write.
#[test]
fn a_durable_write_that_fails_is_taken_for_a_failed_sync_of_what_was_written_before() {
    for (is_durable, is_synced) in [(true, false), (true, true), (false, false)] {
        failing_write(async |executor| {
            let file = open(executor).await;
            write(executor, &*file).await;
            if is_synced {
                file.sync(executor).await.expect("syncs");
            }
            let buffer = executor.frame(1024).expect("memory");
            let first = PageId::new(PartitionId(0), 1);
            let transfer = Transfer { first, buffer, length: 1024, access: Access::Asynchronous };
            file.write_now(executor, transfer, is_durable).await.result.expect_err("it fails");
            let may_be_lost = is_durable && !is_synced;
            assert_eq!(file.failure().is_some(), may_be_lost);
            let synced = file.sync(executor).await;
            assert_eq!(synced.is_err_and(|error| is_device_fault(&error)), may_be_lost);
        });
    }
}

#[test]
fn an_abandoned_sync_that_fails_is_reported_to_the_next() {
    failing(&Media::new(), &[1], async |executor| {
        let file = open(executor).await;
        write(executor, &*file).await;
        {
            let mut sync = std::pin::pin!(file.sync(executor));
            let polled = std::future::poll_fn(|context| std::task::Poll::Ready(sync.as_mut().poll(context))).await;
            assert!(polled.is_pending());
        }
        executor.sleep_ns(1_000_000_000).await;
        assert!(file.sync(executor).await.is_err_and(|error| is_device_fault(&error)));
    });
}

#[test]
fn one_sync_serves_all_who_wrote_before_it() {
    failing(&Media::new(), &[], async |executor| {
        let file = open(executor).await;
        write(executor, &*file).await;
        executor.record_steps();
        let (one, other) = (Rc::clone(&file), executor.clone());
        let beside = executor.spawn(async move { one.sync(&other).await });
        file.sync(executor).await.expect("syncs");
        beside.join().await.expect("syncs");
        file.sync(executor).await.expect("nothing was written since");
        assert_eq!(executor.take_steps().len(), 1);
    });
}

#[test]
fn a_load_whose_sync_fails_lets_no_checkpoint_pass() {
    let settings = Settings {
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    };
    let media = Media::new();
    failing(&media, &[1], async |executor| {
        let database = Database::create(executor, settings.clone()).await.expect("creates");
        let spec = PartitionSpec { device: "flash".into(), ..PartitionSpec::b_tree("notes") };
        let notes = database.create_partition(spec).await.expect("creates");
        let put = database.transaction(async |tx| tx.put(notes, b"key", b"value").await);
        put.await.expect("commits");
        database.transaction(async |tx| tx.delete(notes, b"key").await).await.expect("commits");
        // What the buffer has written of the file so far goes with the load's pages.
        database.buffer().write_back_before(database.log().end(), true).await.expect("writes");
        let records = (0..500_u32).map(|number| (number.to_be_bytes(), [0; 100]));
        let loaded = database.load_b_tree(notes, records, |_| {}).await;
        assert!(loaded.is_err_and(|error| is_device_fault(&error)));
        let checkpoint = database.checkpoint().await;
        assert!(checkpoint.is_err_and(|error| is_device_fault(&error)), "redo must begin where it did");
    });
    machine::run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let notes = database.partition("notes").expect("it was created");
        let read = database.transaction(async |tx| tx.get(notes, b"key").await).await;
        assert_eq!(read, Ok(None));
    });
}

#[test]
fn a_page_whose_read_a_failed_sync_overtakes_is_not_used() {
    let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    let (first, last) = (0_u32.to_be_bytes(), 499_u32.to_be_bytes());
    let media = Media::new();
    machine::run(&media, async |executor| {
        let database = Database::create(executor, settings.clone()).await.expect("creates");
        let spec = PartitionSpec { device: "flash".into(), ..PartitionSpec::b_tree("notes") };
        let notes = database.create_partition(spec).await.expect("creates");
        let records = (0..500_u32).map(|number| (number.to_be_bytes(), [0; 100]));
        database.load_b_tree(notes, records, |_| {}).await.expect("loads");
        database.close().await.expect("closes");
    });
    // The first sync is the opening's.
    failing(&media, &[2], async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let notes = database.partition("notes").expect("it was created");
        database.transaction(async |tx| tx.put(notes, &first, b"new").await).await.expect("commits");
        database.buffer().write_back_before(database.log().end(), true).await.expect("writes");
        let other = database.clone();
        let sync = executor.spawn(async move { other.buffer().sync().await });
        // The sync is under way before the read begins, and ends before the read does.
        executor.yield_now().await;
        let mut tx = database.begin().await.expect("begins");
        let read = tx.get(notes, &last).await;
        assert!(sync.join().await.is_err_and(|error| is_device_fault(&error)));
        assert!(read.as_ref().is_err_and(is_device_fault), "{read:?}");
        assert_eq!(tx.get(notes, &first).await, Ok(Some(b"new".to_vec())), "what is in memory is current");
    });
}

/// An opening of a database on the device `flash`, whose syncs with these numbers fail and leave what they were to make durable in
/// the system's cache. It ends by a kill.
fn forgetting<T>(seed: u64, media: &Media, syncs: &[u64], work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let at = |nth: &u64| ErrorAt { kind: OpKind::Sync, device: Some("flash".into()), nth: *nth };
    let injuries = syncs.iter().map(|nth| (at(nth), Injury::Forget { cached: true })).collect();
    let faults = Some(FaultPlan { injuries, ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { seed, faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    media.process_end(&mut Random::stream(seed, "end"));
    result
}

const LOST: PowerCut = PowerCut { lost: 1.0, torn: 0.0 };

#[test]
fn pages_that_only_the_cache_has_after_a_kill_are_redone() {
    let settings = Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    for seed in 0..12 {
        let media = Media::new();
        let records = || (0..20_u32).map(|number| (number.to_be_bytes(), [7; 1000]));
        forgetting(seed, &media, &[1], async |executor| {
            let database = Database::create(executor, settings.clone()).await.expect("creates");
            let spec = PartitionSpec { device: "flash".into(), ..PartitionSpec::b_tree("notes") };
            let notes = database.create_partition(spec).await.expect("creates");
            for (key, value) in records() {
                database.transaction(async |tx| tx.put(notes, &key, &value).await).await.expect("commits");
            }
            let checkpoint = database.checkpoint().await;
            assert!(checkpoint.is_err_and(|error| is_device_fault(&error)));
        });
        forgetting(seed, &media, &[], async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            database.close().await.expect("closes");
        });
        media.power_cut(&mut Random::stream(seed, "cut"), &LOST);
        machine::run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let notes = database.partition("notes").expect("it was created");
            for (key, value) in records() {
                let found = database.transaction(async |tx| tx.get(notes, &key).await).await;
                assert!(found.as_ref().is_ok_and(|found| found.as_deref() == Some(&value)), "seed {seed}: {found:?}");
            }
        });
    }
}

#[test]
fn log_that_only_the_cache_has_after_a_kill_is_not_gone_on_with() {
    let log = log::Settings {
        capacity: 1 << 20,
        sync_method: Some(log::SyncMethod::WriteThenSync),
        ..log::Settings::default()
    };
    let settings =
        Settings { log, log_device: "flash".into(), checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    for seed in 0..12 {
        let media = Media::new();
        forgetting(seed, &media, &[3], async |executor| {
            let database = Database::create(executor, settings.clone()).await.expect("creates");
            let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
            let spec = PartitionSpec::new("stock", organization, Locking::Record);
            let stock = database.create_partition(spec).await.expect("creates a set");
            let mut failed = 0;
            for number in 0..10_u32 {
                let put = database.transaction(async |tx| tx.put(stock, &number.to_be_bytes(), &[1; 200]).await).await;
                failed += u32::from(put.is_err());
            }
            assert!((1..10).contains(&failed), "{failed} of 10 failed");
        });
        // Whatever of the unacknowledged commits this opening shows, it goes on with.
        let read = async |database: &Database| {
            let stock = database.partition("stock").expect("it was created");
            let mut found = Vec::new();
            for number in 0..20_u32 {
                let get = async |tx: &mut entresol_engine::Transaction| tx.get(stock, &number.to_be_bytes()).await;
                found.push(database.transaction(get).await.expect("reads").is_some());
            }
            found
        };
        let before = forgetting(seed, &media, &[], async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let stock = database.partition("stock").expect("it was created");
            let put = database.transaction(async |tx| tx.put(stock, &15_u32.to_be_bytes(), &[1; 200]).await);
            put.await.expect("commits");
            read(&database).await
        });
        media.power_cut(&mut Random::stream(seed, "cut"), &LOST);
        let after = machine::run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here")
                .await
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            read(&database).await
        });
        assert_eq!(before, after, "seed {seed}");
    }
}

#[cfg(feature = "canary")]
mod planted {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_page_used_although_a_sync_overtook_its_read_is_found() {
        is_found(Canary::LateRead, super::a_page_whose_read_a_failed_sync_overtakes_is_not_used);
    }

    #[test]
    fn a_file_used_although_the_sync_of_a_load_failed_is_found() {
        is_found(Canary::ForgivenLoad, super::a_load_whose_sync_fails_lets_no_checkpoint_pass);
    }
}
