//! Indexes of one partition that are created and dropped at the same time.

use crate::ground::things::*;
use base::time::MILLISECOND_NS;
use devices::Hardware;
use entresol_engine::Database;
use entresol_engine::catalog::IndexSpec;
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

/// Runs `work` on a machine whose disk takes its time, so that others go on while the superblock file is written.
fn slowly<T>(work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let hardware = Hardware::parse("[device.disk]\nmedium.service = \"1 ms\"\n", "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// A transaction keeps one index from coming and another one from going, and ends at some moment.
#[test]
fn an_index_that_goes_while_another_one_comes_is_gone() {
    let mut overlaps = 0;
    for step in 0..40 {
        overlaps += u32::from(slowly(async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database.create_partition(spec("things")).await.expect("creates");
            put_all(&database, things, &some(30)).await;
            let mut tx = database.begin().await.expect("begins");
            tx.get(things, b"one").await.expect("reads");
            let other = database.clone();
            let creation = executor.spawn(async move { other.create_index(things, by_name()).await });
            executor.sleep_ns(MILLISECOND_NS).await;
            let other = database.clone();
            let drop = executor.spawn(async move { other.drop_index(things, "by_group").await });
            executor.sleep_ns(30 * MILLISECOND_NS + step * MILLISECOND_NS / 4).await;
            let overlap = !creation.is_finished() && !drop.is_finished();
            tx.rollback().await.expect("ends");
            creation.join().await.expect("is created");
            drop.join().await.expect("is dropped");
            let put = database.transaction(async |tx| tx.put(things, b"new", &stored(&thing(1, 2, "new"))).await).await;
            assert_eq!(put, Ok(()), "{step}");
            assert!(database.secondary(things, "by_group").is_err(), "{step}");
            check(&database).await;
            database.create_index(things, IndexSpec::new("by_group", &["group"])).await.expect("its name is free");
            database.close().await.expect("closes");
            overlap
        }));
    }
    assert_eq!(overlaps, 40);
}
