//! Bulk loads of sets are all or nothing: whatever fails, whenever they are given up, wherever the machine stops.

use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use devices::Hardware;
use driver::{Halt, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Policy, SweepSettings};
use entresol_engine::set::{FieldType, RecordType};
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Result, Settings, Transaction, buffer, log,
};
use executor::{Executor, Order};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, VirtualDriver};

const LOADED: u32 = 1_300;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        log_device: "log".into(),
        checkpoint: Policy::OFF,
        ..Settings::default()
    }
}

fn hardware() -> Hardware {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    let text: String = ["disk", "log", "data"].into_iter().map(device).collect();
    Hardware::parse(&text, "test").expect("a description")
}

fn on<T>(media: &Media, faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> Option<T> {
    on_hardware(hardware(), media, faults, work)
}

/// Runs `work` until it ends or the power goes; says whether it came to its end.
fn on_hardware<T>(
    hardware: Hardware,
    media: &Media,
    faults: FaultPlan,
    work: impl AsyncFnOnce(&Executor) -> T,
) -> Option<T> {
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    assert!(result.is_ok() || result.as_ref().err() == Some(&Halt::PowerCut), "{:?}", result.err());
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result.ok()
}

fn typed() -> RecordType {
    RecordType::new([("group", FieldType::U32), ("number", FieldType::U32)]).expect("different names")
}

fn value(number: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = ((number % 7).to_le_bytes(), number.to_le_bytes());
    [a, b, c, d, e, f, g, h]
}

const ORGANIZATION: Organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };

async fn create(executor: &Executor) -> (Database, PartitionId) {
    create_with(executor, settings()).await
}

async fn create_with(executor: &Executor, settings: Settings) -> (Database, PartitionId) {
    let database = Database::create(executor, settings).await.expect("creates");
    let spec = |name| PartitionSpec {
        device: "data".into(),
        ..PartitionSpec::new(name, ORGANIZATION, Locking::Record).record(typed()).secondary("by_group", &["group"])
    };
    let stock = database.create_partition(spec("stock")).await.expect("creates a set");
    database.create_partition(spec("others")).await.expect("creates a set");
    (database, stock)
}

fn records(count: u32) -> impl Iterator<Item = ([u8; 4], [u8; 8])> {
    (0..count).map(|number| (number.to_be_bytes(), value(number)))
}

/// How many records the set has, in every way in which they can be looked for. Each has a value of `added` more than its own.
async fn count(database: &Database, added: u32) -> u32 {
    let stock = database.partition("stock").expect("it exists");
    let mut tx = database.begin().await.expect("begins");
    let (mut scanned, mut ranged) = (0, 0);
    let look = |key: &[u8], found: &[u8]| {
        let number = u32::from_be_bytes(key.try_into().expect("four bytes"));
        assert_eq!(found, value(number + added), "record {number}");
        true
    };
    let scan = |key: &[u8], found: &[u8]| {
        scanned += 1;
        look(key, found)
    };
    tx.scan_set(stock, scan).await.expect("scans");
    let range = |key: &[u8], found: &[u8]| {
        ranged += 1;
        look(key, found)
    };
    tx.range(stock, 0, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded), Direction::Forward, range)
        .await
        .expect("reads a range");
    // Where the load has ended the log, nothing vouches any more for what was read.
    assert!(matches!(tx.rollback().await, Ok(()) | Err(Error::LogFailed(_))));
    assert_eq!(scanned, ranged);
    assert_eq!(database.set_records(stock), Some(u64::from(scanned)));
    scanned
}

/// Work after a load that has added nothing: what is acknowledged from now on is there after a restart, and nothing else;
/// and the set can be loaded.
async fn go_on(database: &Database, stock: PartitionId) -> u32 {
    assert_eq!(count(database, 0).await, 0, "nothing of the load is there");
    let mut acknowledged = 0;
    for number in (0..LOADED).step_by(250) {
        let key = number.to_be_bytes();
        let add = async |tx: &mut Transaction| tx.insert(stock, &key, &value(number + 1)).await;
        match database.transaction(add).await {
            Ok(()) => acknowledged += 1,
            Err(Error::LogFailed(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    acknowledged
}

async fn reopen(executor: &Executor) -> (Database, PartitionId) {
    let database = Database::open(executor, settings(), "test").await.expect("opens");
    let stock = database.partition("stock").expect("it exists");
    (database, stock)
}

/// What a restart must find after `go_on`; then a load succeeds, and lasts.
fn check_restart(media: &Media, acknowledged: u32) {
    on(media, FaultPlan::default(), async |executor| {
        let (database, stock) = reopen(executor).await;
        assert_eq!(count(&database, 1).await, acknowledged, "what was acknowledged");
        let empty = async |tx: &mut Transaction| {
            for number in (0..LOADED).step_by(250) {
                tx.delete(stock, &number.to_be_bytes()).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(empty).await.expect("commits");
        database.load_set(stock, records(LOADED), |_| {}).await.expect("loads");
        assert_eq!(count(&database, 0).await, LOADED);
    });
    check_loaded(media);
}

fn check_loaded(media: &Media) {
    on(media, FaultPlan::default(), async |executor| {
        let (database, stock) = reopen(executor).await;
        assert_eq!(count(&database, 0).await, LOADED);
        database.transaction(async |tx| tx.put(stock, &7_u32.to_be_bytes(), &value(7)).await).await.expect("commits");
    });
    on(media, FaultPlan::default(), async |executor| {
        let (database, _) = reopen(executor).await;
        assert_eq!(count(&database, 0).await, LOADED);
    });
}

#[test]
fn a_load_that_meets_a_bad_record_brings_nothing() {
    for bad in [0, 1, 1_023, 1_024, 1_200] {
        let media = Media::new();
        let acknowledged = on(&media, FaultPlan::default(), async |executor| {
            let (database, stock) = create(executor).await;
            let before = database.snapshot().await.expect("a snapshot");
            let records = (0..LOADED).map(|number| {
                let value = value(number).to_vec();
                (number.to_be_bytes(), if number == bad { vec![0; 3] } else { value })
            });
            let failed = database.load_set(stock, records, |_| {}).await;
            assert!(matches!(failed, Err(Error::Field { .. })), "{failed:?}");
            drop(before);
            assert_eq!(count(&database, 0).await, 0);
            // Once more in the same opening.
            database.load_set(stock, records_of_others(), |_| {}).await.expect_err("a key is too long");
            go_on(&database, stock).await
        });
        check_restart(&media, acknowledged.expect("the power stays"));
    }
}

/// Its transaction may not have ended by then.
#[test]
fn a_load_right_after_one_that_failed_meets_no_versions_of_that() {
    on(&Media::new(), FaultPlan::default(), async |executor| {
        let (database, stock) = create(executor).await;
        let earlier = database.snapshot().await.expect("begins");
        let refused = database.load_set(stock, records(40).chain(records(1)), |_| {}).await;
        assert!(matches!(refused, Err(Error::Duplicate(_))), "{refused:?}");
        database.load_set(stock, records(LOADED), |_| {}).await.expect("loads");
        assert_eq!(count(&database, 0).await, LOADED);
        drop(earlier);
    })
    .expect("the machine goes on");
}

/// It ends only when what it costs is paid, and the set is empty before.
#[test]
fn a_load_beside_a_rollback_meets_no_versions_of_that() {
    // Each lock takes a millisecond to release.
    let text = "[cpu]\ncount = 4\nmips = 1\n[cpu.instructions]\nbegin_transaction = 0\nobject_reference = 0\n\
                end_transaction = 0\ninput_output = 0\nnvem_access = 0\nlock_pair = 1000\n";
    let priced = Hardware::parse(text, "test").expect("a description");
    let hardware = Hardware { cpu: priced.cpu, ..hardware() };
    on_hardware(hardware, &Media::new(), FaultPlan::default(), async |executor| {
        let (database, stock) = create(executor).await;
        let earlier = database.snapshot().await.expect("begins");
        let mut given_up = database.begin().await.expect("begins");
        for number in 0..100 {
            given_up.insert(stock, &u32::to_be_bytes(number), &value(number)).await.expect("inserts");
        }
        drop(given_up);
        while database.set_records(stock) != Some(0) {
            executor.yield_now().await;
        }
        database.load_set(stock, records(LOADED), |_| {}).await.expect("loads");
        assert_eq!(count(&database, 0).await, LOADED);
        drop(earlier);
    })
    .expect("the machine goes on");
}

fn records_of_others() -> impl Iterator<Item = (Vec<u8>, [u8; 8])> {
    (0..2_000).map(|number| (vec![7; if number == 1_999 { 60_000 } else { 4 + number }], value(1)))
}

#[test]
fn a_load_that_is_given_up_brings_nothing() {
    let (mut given_up, mut loaded) = (0, 0);
    for polls in (0..12).chain((12..48).step_by(6)) {
        let media = Media::new();
        let acknowledged = on(&media, FaultPlan::default(), async |executor| {
            let (database, stock) = create(executor).await;
            let done = {
                let mut load = pin!(database.load_set(stock, records(LOADED), |_| {}));
                let mut left = polls;
                poll_fn(|context| {
                    if left == 0 {
                        return Poll::Ready(None);
                    }
                    left -= 1;
                    load.as_mut().poll(context).map(Some)
                })
                .await
            };
            // The end of a load goes on even if its caller does not wait for it.
            executor.sleep_ns(SECOND_NS).await;
            match done {
                Some(done) => done.expect("loads"),
                None if count(&database, 0).await == 0 => return Some(go_on(&database, stock).await),
                None => given_up += 1,
            }
            loaded += 1;
            assert_eq!(count(&database, 0).await, LOADED);
            None
        });
        match acknowledged.expect("the power stays") {
            Some(acknowledged) => {
                given_up += 1;
                check_restart(&media, acknowledged);
            }
            None => check_loaded(&media),
        }
    }
    assert!(given_up > 2 && loaded > 2, "{given_up} were given up, {loaded} came to their ends");
}

#[test]
fn a_load_that_meets_a_fault_brings_all_or_nothing() {
    let (mut failed, mut stopped) = (0, 0);
    for (device, kinds) in [
        ("data", &[OpKind::Write, OpKind::Sync, OpKind::Resize][..]),
        ("disk", &[OpKind::Write, OpKind::Sync]),
        ("log", &[OpKind::Write]),
    ] {
        for kind in kinds.iter().copied() {
            for (nth, lasts) in (0..8).flat_map(|nth| [(nth, 1), (nth, 10_000)]) {
                let error = |nth| ErrorAt { kind, device: Some(device.into()), nth };
                let faults = FaultPlan { errors: (nth..nth + lasts).map(error).collect(), ..FaultPlan::default() };
                let (media, created) = (Media::new(), Cell::new(false));
                on(&media, FaultPlan::default(), async |executor| drop(create(executor).await));
                let result = on(&media, faults, async |executor| {
                    let Ok(database) = Database::open(executor, settings(), "test").await else { return None };
                    created.set(true);
                    let stock = database.partition("stock").expect("it exists");
                    match database.load_set(stock, records(LOADED), |_| {}).await {
                        Ok(()) => {
                            assert_eq!(count(&database, 0).await, LOADED);
                            None
                        }
                        Err(_) => Some((go_on(&database, stock).await, database.log().failure().is_some())),
                    }
                });
                let what = format!("{device} {kind:?} {nth} {lasts}");
                match result.expect("the power stays") {
                    Some((acknowledged, false)) => {
                        failed += 1;
                        check_restart(&media, acknowledged);
                    }
                    Some((0, true)) => {
                        stopped += 1;
                        on(&media, FaultPlan::default(), async |executor| {
                            let (database, _) = reopen(executor).await;
                            let found = count(&database, 0).await;
                            assert!([0, LOADED].contains(&found), "{what}: {found}");
                        });
                    }
                    Some(other) => panic!("{what}: {other:?}"),
                    None if created.get() => check_loaded(&media),
                    None => {}
                }
            }
        }
    }
    assert!(failed > 10 && stopped > 3, "{failed} failed, {stopped} stopped the machine");
}

#[test]
fn a_machine_that_stops_during_a_load_finds_all_or_nothing() {
    let (mut nothing, mut all) = (0, 0);
    let prepared = Media::new();
    on(&prepared, FaultPlan::default(), async |executor| drop(create(executor).await));
    for cut in 0..60 {
        let media = prepared.copy();
        let faults = FaultPlan { power_cut_at: Some(10 + cut * 3), ..FaultPlan::default() };
        let acknowledged = Cell::new(false);
        on(&media, faults, async |executor| {
            let (database, stock) = reopen(executor).await;
            database.load_set(stock, records(LOADED), |_| {}).await.expect("loads");
            acknowledged.set(true);
            executor.sleep_ns(SECOND_NS).await;
        });
        on(&media, FaultPlan::default(), async |executor| {
            let (database, _) = reopen(executor).await;
            match count(&database, 0).await {
                0 => nothing += 1,
                LOADED => all += 1,
                found => panic!("{found} records after a cut at {cut}"),
            }
            assert!(!acknowledged.get() || count(&database, 0).await == LOADED);
        });
    }
    assert!(nothing > 3 && all > 3, "{nothing} times nothing, {all} times all");
}

/// The log is full of what sets need, and a load begins; it is full of what pages need, and nothing was logged since a sweep.
#[test]
fn a_load_beside_a_full_log_ends_and_lasts() {
    for paged in [false, true] {
        let media = Media::new();
        on(&media, FaultPlan::default(), async |executor| {
            let (database, stock) = create(executor).await;
            let others = database.partition("others").expect("it exists");
            let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates a tree");
            let mut holder = None;
            if paged {
                let mut tx = database.begin().await.expect("begins");
                tx.put(notes, b"held", b"until the end").await.expect("puts");
                holder = Some(tx);
            }
            let mut number = 0_u32;
            while !database.log().is_crowded() {
                number += 1;
                let add = async |tx: &mut Transaction| tx.put(others, &number.to_be_bytes(), &value(number)).await;
                database.transaction(add).await.expect("commits");
            }
            if paged {
                // The sweep has everything, and makes no room.
                database.checkpoint().await.expect("sweeps");
                database.checkpoint().await.expect("sweeps");
                let own = executor.clone();
                executor.spawn(async move {
                    own.sleep_ns(50 * MILLISECOND_NS).await;
                    drop(holder);
                });
            }
            let loading = {
                let database = database.clone();
                executor.spawn(async move { database.load_set(stock, records(LOADED), |_| {}).await })
            };
            let deadline = executor.now().plus_ns(20 * SECOND_NS);
            while !loading.is_finished() {
                assert!(executor.now() < deadline, "the load waits for ever");
                executor.sleep_ns(MILLISECOND_NS).await;
            }
            loading.join().await.expect("loads");
            assert_eq!(count(&database, 0).await, LOADED);
        });
        check_loaded(&media);
    }
}

#[test]
fn only_an_empty_set_with_keys_of_the_callers_is_loaded() {
    let media = Media::new();
    on(&media, FaultPlan::default(), async |executor| -> Result<()> {
        let (database, stock) = create(executor).await;
        let arrivals = PartitionSpec::new("arrivals", Organization::set(true), Locking::Record);
        let arrivals = database.create_partition(arrivals).await?;
        let refused = database.load_set(arrivals, records(2), |_| {}).await;
        assert!(matches!(refused, Err(Error::WrongOrganization { .. })), "{refused:?}");
        // Two at once: one of them loads.
        let (one, two) = (database.clone(), database.clone());
        let one = executor.spawn(async move { one.load_set(stock, records(LOADED), |_| {}).await });
        let two = executor.spawn(async move { two.load_set(stock, records(LOADED), |_| {}).await });
        let results = [one.join().await, two.join().await];
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        assert_eq!(count(&database, 0).await, LOADED);
        Ok(())
    })
    .expect("the power stays")
    .expect("nothing fails");
    check_loaded(&media);
}

/// Adds small records to the set `others`.
async fn add_others(database: &Database, numbers: std::ops::Range<u32>) {
    let others = database.partition("others").expect("it exists");
    for number in numbers {
        let add = async |tx: &mut Transaction| tx.put(others, &number.to_be_bytes(), &value(number)).await;
        database.transaction(add).await.expect("commits");
    }
}

#[test]
fn a_load_gives_up_the_log_that_sets_have_kept() {
    on(&Media::new(), FaultPlan::default(), async |executor| {
        let sweep = SweepSettings { interval_ns: Some(3_600 * SECOND_NS), ..SweepSettings::default() };
        let checkpoint = Policy { log_bytes: Some(1), interval_ns: None };
        let (database, stock) = create_with(executor, Settings { sweep, checkpoint, ..settings() }).await;
        add_others(&database, 0..300).await;
        // Pages do not need it by then.
        executor.sleep_ns(SECOND_NS).await;
        let log = database.log();
        let kept = log.used();
        assert!(kept > 16 << 10, "{kept} bytes are kept");
        database.load_set(stock, records(LOADED), |_| {}).await.expect("loads");
        assert!(log.used() < kept / 4, "{} bytes are kept of {kept}", log.used());
    });
}

/// The caller of a load takes its time between two records, and the log is full of what sets need.
#[test]
fn no_transaction_waits_with_locks_for_the_end_of_a_load() {
    on(&Media::new(), FaultPlan::default(), async |executor| {
        let (database, stock) = create(executor).await;
        let plain = PartitionSpec::new("plain", ORGANIZATION, Locking::Record);
        let plain = database.create_partition(plain).await.expect("creates a set");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates a tree");
        let fill = async move |tx: &mut Transaction| {
            for number in 0..155_u8 {
                tx.put(plain, &[number], &[7; 1_000]).await?;
            }
            Ok(())
        };
        database.transaction(fill).await.expect("commits");
        let mut early = database.begin().await.expect("begins");
        let mut load = pin!(database.load_set(stock, records(LOADED), |_| {}));
        while database.set_records(stock) < Some(1_000) {
            poll_fn(|context| {
                assert!(load.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        let own = executor.clone();
        let ends = async move |what: &str, task: &executor::JoinHandle<Result<()>>| {
            let deadline = own.now().plus_ns(5 * SECOND_NS);
            while !task.is_finished() {
                assert!(own.now() < deadline, "{what} waits for the load");
                own.sleep_ns(MILLISECOND_NS).await;
            }
        };
        let pages = {
            let database = database.clone();
            executor.spawn(async move {
                let mut tx = database.begin().await?;
                for number in 0..1_000_u32 {
                    tx.put(notes, &number.to_be_bytes(), &[7; 400]).await?;
                }
                tx.commit().await
            })
        };
        ends("one that changes pages", &pages).await;
        assert_eq!(pages.join().await, Err(Error::Deadlock), "it gives up, and begins again with others");
        let again = {
            let database = database.clone();
            executor.spawn(async move { database.transaction(fill).await })
        };
        executor.sleep_ns(5 * SECOND_NS).await;
        assert!(!again.is_finished(), "it has no room");
        assert_eq!(early.get(plain, &[7]).await, Ok(Some(vec![7; 1_000])), "and no locks");
        early.commit().await.expect("ends");
        load.await.expect("loads");
        ends("one that changes sets", &again).await;
        assert_eq!(again.join().await, Ok(()));
        assert_eq!(count(&database, 0).await, LOADED);
    });
}
