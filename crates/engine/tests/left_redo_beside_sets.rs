//! Redo that an opening has left of pages, where the log begins with what sets need.

use crate::left_redo::{SLOTS, left};
use crate::quick_restarts::{DESIGNS, check_all, objects, run, settings};
use base::time::{MILLISECOND_NS, SECOND_NS};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Policy, SweepSettings};
use entresol_engine::{Database, Internals, PartitionSpec, Settings, Transaction};
use executor::Executor;
use virtual_driver::Media;

/// Sets are swept this often, and pages come home by this policy.
fn with(design: &str, sweeps_ns: u64, policy: Policy) -> Settings {
    let sweep = SweepSettings { interval_ns: Some(sweeps_ns), ..SweepSettings::default() };
    Settings { sweep, ..settings(design, SLOTS, policy) }
}

/// Gives every object another value. The new ones.
async fn change_all(database: &Database, values: &mut [u8]) {
    let objects = database.partition("objects").expect("it exists");
    for (number, value) in values.iter_mut().enumerate() {
        *value = value.wrapping_mul(3).wrapping_add(number as u8);
        let value = *value;
        let fill =
            async |tx: &mut Transaction| tx.modify_object(objects, number as u64, |bytes| bytes.fill(value)).await;
        database.transaction(fill).await.expect("changes");
    }
}

/// Pages have come home again and again since the only sweep over the sets. Then the machine stops.
async fn fill(executor: &Executor, database: &Database, values: &mut [u8]) {
    let organization = Organization::Direct { objects: values.len() as u64, blocking_factor: 1, record_size: 100 };
    let spec = PartitionSpec::new("objects", organization, Locking::Page);
    database.create_partition(PartitionSpec { device: "volume".into(), ..spec }).await.expect("creates");
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let stock = PartitionSpec::new("stock", organization, Locking::Record);
    let stock = database.create_partition(stock).await.expect("creates");
    let records = (0..100_u64).map(|number| (number.to_be_bytes(), [0; 100]));
    database.load_set(stock, records, |_| {}).await.expect("loads");
    for _ in 0..6 {
        change_all(database, values).await;
        executor.sleep_ns(2 * SECOND_NS).await;
    }
    change_all(database, values).await;
}

/// The next sweep gives up all that is before the beginning of redo of pages. Pages that redo is left of name none of that.
#[test]
fn a_sweep_takes_no_log_from_pages_that_redo_is_left_of() {
    for design in DESIGNS {
        let (media, mut values) = (Media::new(), vec![1; objects(SLOTS) as usize]);
        run(&media, async |executor| {
            let policy = Policy { log_bytes: Some(64 << 10), interval_ns: None };
            let settings = with(design, 10_000 * SECOND_NS, policy);
            let database = Database::create(executor, settings).await.expect("creates");
            fill(executor, &database, &mut values).await;
        });
        let settings = with(design, MILLISECOND_NS, Policy::OFF);
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let (stock, before) = (database.partition("stock").expect("it exists"), database.log().oldest());
            let modify =
                async |tx: &mut Transaction| tx.modify(stock, &7_u64.to_be_bytes(), |value| value[0] = 1).await;
            database.transaction(modify).await.expect("changes");
            let mut compared = 0;
            while database.log().oldest() == before || compared == 0 {
                assert!(left(&database).len() > 10, "{design}: nothing is left any more");
                if database.log().oldest() > before {
                    let (needed, kept) = (database.buffer().recovery_lsn(), database.log().oldest());
                    assert!(needed >= Some(kept), "{design}: {needed:?} is needed, and {kept:?} is kept");
                    compared += 1;
                }
                executor.sleep_ns(MILLISECOND_NS).await;
            }
            check_all(&database, &values, design).await;
            database.close().await.expect("closes");
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            check_all(&database, &values, design).await;
            let stock = database.partition("stock").expect("it exists");
            let found = database.transaction(async |tx| tx.get(stock, &7_u64.to_be_bytes()).await).await;
            assert_eq!(found.expect("reads").expect("it is there")[0], 1, "{design}");
        });
    }
}
