//! An index that is created and dropped while others change records.

use crate::ground::machine::run;
use crate::ground::things::*;
use base::{PartitionId, Random};
use entresol_engine::catalog::IndexSpec;
use entresol_engine::{Database, Error, PartitionSpec, Transaction};
use executor::WholeExecutor;
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::Media;

/// Changes records at random until it is told to stop, or finds that an index does not agree with them.
pub async fn writer(database: Database, things: PartitionId, number: u64, stop: Rc<Cell<bool>>) -> Vec<String> {
    let random = &mut Random::stream(number, "writers");
    while !stop.get() {
        let executor = database.executor().whole().clone();
        let work = async |tx: &mut Transaction| {
            for _ in 0..random.between(1, 5) {
                let key = (random.below(400) as u32).to_be_bytes();
                // No name is another record's: an index of them may be unique.
                let name = format!("{key:?} {}", random.below(3));
                let new = stored(&thing(random.below(9) as u32, random.below(9) as i64, &name));
                if random.chance(0.3) {
                    tx.delete(things, &key).await?;
                } else {
                    tx.put(things, &key, &new).await?;
                }
                executor.sleep_ns(random.below(300_000)).await;
            }
            if random.chance(0.2) { Err(Error::RolledBack("some are".into())) } else { Ok(()) }
        };
        match database.transaction(work).await {
            Ok(()) | Err(Error::RolledBack(_)) => {}
            Err(Error::Inconsistent(what)) => return vec![what],
            Err(error) => panic!("{error}"),
        }
    }
    Vec::new()
}

/// Creates and drops indexes while others change records; what the check finds.
pub fn built_beside_writers(spec: PartitionSpec, seed: u64) -> Vec<String> {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(spec.record(record())).await.expect("creates");
        put_all(&database, things, &some(300)).await;
        let stop = Rc::new(Cell::new(false));
        let writers: Vec<_> = (0..6)
            .map(|number| executor.spawn(writer(database.clone(), things, 10 * seed + number, Rc::clone(&stop))))
            .collect();
        executor.sleep_ns(1_000_000).await;
        for round in 0..3 {
            let index = IndexSpec::new("by_group", &["group", "weight"]);
            database.create_index(things, index).await.expect("is created");
            let other = IndexSpec::new(&format!("by_weight_{round}"), &["weight"]);
            database.create_index(things, other).await.expect("is created");
            executor.sleep_ns(500_000).await;
            if round < 2 {
                database.drop_index(things, "by_group").await.expect("is dropped");
            }
        }
        stop.set(true);
        let mut found = Vec::new();
        for writer in writers {
            found.extend(writer.join().await);
        }
        let report = database.check(|_| {}).await.expect("checks");
        found.extend(report.findings.iter().map(ToString::to_string));
        found
    })
}

/// Cuts the power while an index is built beside writers, each time a step later: there is all of it afterwards or nothing.
pub fn cut_while_building(spec: &PartitionSpec, index: &IndexSpec, step_ns: u64) {
    let (mut whole, mut none) = (0, 0);
    for round in 0..24 {
        let media = Media::new();
        run(&media, async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database.create_partition(spec.clone()).await.expect("creates");
            put_all(&database, things, &some(250)).await;
            let stop = Rc::new(Cell::new(false));
            for number in 0..3 {
                drop(executor.spawn(writer(database.clone(), things, 100 * round + number, Rc::clone(&stop))));
            }
            executor.sleep_ns(500_000).await;
            let creating = executor.spawn({
                let (database, index) = (database.clone(), index.clone());
                async move { database.create_index(things, index).await }
            });
            executor.sleep_ns(round * step_ns).await;
            if round % 3 == 0 {
                // Not in time for every cut.
                let _taken = executor.within(100_000, database.checkpoint()).await;
            }
            drop(creating);
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings(), "test").await.expect("opens");
            let things = database.partition("things").expect("it exists");
            match database.secondary(things, &index.name) {
                Ok(_) => whole += 1,
                Err(_) => {
                    none += 1;
                    database.create_index(things, index.clone()).await.expect("is created");
                }
            }
            check(&database).await;
        });
    }
    assert!(whole > 0 && none > 5, "{whole} whole, {none} without");
}
