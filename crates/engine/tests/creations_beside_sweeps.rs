//! Creations of sets that fail while other sets are swept: a sweep takes only sets that are the database's, so neither waits for
//! the other.

use base::time::{MILLISECOND_NS, SECOND_NS};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Policy, Strategy, SweepSettings};
use entresol_engine::{Database, Internals, PartitionSpec, Settings, log};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, VirtualDriver};

fn on<T>(media: &Media, faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let device = |(name, us): (&str, u64)| format!("[device.{name}]\nmedium.service = \"{us} us\"\n");
    let text: String = [("disk", 300), ("data", 500)].into_iter().map(device).collect();
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

fn spec(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec { device: "data".into(), ..PartitionSpec::new(name, organization, Locking::Record) }
}

#[test]
fn a_creation_of_a_set_that_fails_beside_a_sweep_leaves_both_sound() {
    let mut failed = 0;
    for strategy in [Strategy::Fuzzy, Strategy::TransactionBlackWhite, Strategy::StableVersions] {
        let (segments_in_flight, segment_interval_ns) = (1, 3 * MILLISECOND_NS);
        let sweep = SweepSettings { strategy, segments_in_flight, segment_interval_ns, ..SweepSettings::default() };
        let log = log::Settings { capacity: 1 << 20, ..log::Settings::default() };
        let settings = Settings { log, sweep, checkpoint: Policy::OFF, ..Settings::default() };
        let prepared = Media::new();
        on(&prepared, FaultPlan::default(), async |executor| {
            let database = Database::create(executor, settings.clone()).await.expect("creates");
            let stock = database.create_partition(spec("stock")).await.expect("creates");
            let records = (0..2_000_u32).map(|number| (number.to_be_bytes(), [1; 100]));
            database.load_set(stock, records, |_| {}).await.expect("loads");
            database.close().await.expect("closes");
        });
        let faults = [(OpKind::Write, "disk"), (OpKind::Open, "data"), (OpKind::Remove, "data")];
        for ((kind, device), nth) in faults.into_iter().flat_map(|place| (0..12).map(move |nth| (place, nth))) {
            let media = prepared.copy();
            let error = |nth| ErrorAt { kind, device: Some(device.into()), nth };
            let errors = (0..2).map(|more| error(nth + more)).collect();
            let what = format!("{strategy:?} {kind:?} {nth}");
            failed += on(&media, FaultPlan { errors, ..FaultPlan::default() }, async |executor| {
                let Ok(database) = Database::open(executor, settings.clone(), "here").await else { return 0 };
                let stock = database.partition("stock").expect("it exists");
                for number in (0..2_000_u32).step_by(50) {
                    let key = number.to_be_bytes();
                    if database.transaction(async |tx| tx.put(stock, &key, &[2; 100]).await).await.is_err() {
                        return 0;
                    }
                }
                let sweeping = {
                    let database = database.clone();
                    executor.spawn(async move { database.checkpoint().await })
                };
                executor.sleep_ns(4 * MILLISECOND_NS).await;
                let created = database.create_partition(spec("new")).await;
                let is_beside = created.is_err() && !sweeping.is_finished();
                let deadline = executor.now().plus_ns(20 * SECOND_NS);
                while !sweeping.is_finished() {
                    assert!(executor.now() < deadline, "{what}: a sweep never ends");
                    executor.sleep_ns(MILLISECOND_NS).await;
                }
                let _swept = sweeping.join().await;
                if database.log().failure().is_some() {
                    return 0;
                }
                database.checkpoint().await.unwrap_or_else(|error| panic!("{what}: {error}"));
                let report = database.check(|_| {}).await.expect("reads");
                assert!(report.is_clean(), "{what}: {:?}", report.findings);
                u32::from(is_beside)
            });
            on(&media, FaultPlan::default(), async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await;
                let database = database.unwrap_or_else(|error| panic!("{what}: {error}"));
                let stock = database.partition("stock").expect("it exists");
                assert_eq!(database.set_records(stock), Some(2_000), "{what}");
                let report = database.check(|_| {}).await.expect("reads");
                assert!(report.is_clean(), "{what}: {:?}", report.findings);
            });
        }
    }
    assert!(failed > 10, "{failed} creations failed before the sweep beside them had ended");
}

#[test]
fn a_sweep_needs_nothing_of_the_device_of_a_set_without_records() {
    let errors = (0..100).map(|nth| ErrorAt { kind: OpKind::Sync, device: Some("data".into()), nth }).collect();
    on(&Media::new(), FaultPlan { errors, ..FaultPlan::default() }, async |executor| {
        let settings = Settings { checkpoint: Policy::OFF, ..Settings::default() };
        let database = Database::create(executor, settings).await.expect("creates");
        let new = database.create_partition(spec("new")).await.expect("creates");
        let stock = PartitionSpec { device: "disk".into(), ..spec("stock") };
        let stock = database.create_partition(stock).await.expect("creates");
        for set in [stock, new] {
            database.transaction(async |tx| tx.put(set, b"key", b"value").await).await.expect("commits");
            assert_eq!(database.checkpoint().await.is_ok(), set == stock, "what a sweep has written is made durable");
        }
    });
}
