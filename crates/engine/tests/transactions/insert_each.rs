//! Several records that are inserted in one call, against a map, while others divide the leaves.

use crate::ground::machine::run;
use base::time::MILLISECOND_NS;
use base::{PartitionId, Random};
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, buffer};
use std::collections::BTreeMap;
use virtual_driver::Media;

type Model = BTreeMap<u32, Vec<u8>>;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn settings(frames: usize) -> Settings {
    let buffer = buffer::Settings { frames, page_size: 1024, ..buffer::Settings::default() };
    Settings { buffer, ..Settings::default() }
}

async fn all(database: &Database, partition: PartitionId, numbers: impl Iterator<Item = u32>) -> Result<Model> {
    let mut tx = database.begin().await?;
    let mut found = Model::new();
    for number in numbers {
        found.extend(tx.get(partition, &key(number)).await?.map(|value| (number, value)));
    }
    tx.commit().await?;
    Ok(found)
}

/// Runs of ascending numbers, numbers anywhere, and some that are there: these end the call, and what it has inserted stays or is taken
/// back with the savepoint.
#[test]
fn each_record_is_inserted_as_by_a_call_of_its_own() {
    for seed in 1..6 {
        let outcome = run(&Media::new(), async |executor| {
            // Few frames: pages lack.
            let database = Database::create(executor, settings(64)).await?;
            for spec in [PartitionSpec::b_tree("tree"), PartitionSpec::set("set")] {
                let partition = database.create_partition(spec).await?;
                let (mut random, mut model) = (Random::stream(seed, "insert-each"), Model::new());
                for round in 0..150 {
                    let first = random.below(40) as u32 * 100;
                    let place = |random: &mut Random, index| {
                        if random.chance(0.8) { first + index } else { random.below(4_000) as u32 }
                    };
                    let length = |random: &mut Random| if random.chance(0.02) { 3_000 } else { random.below(60) };
                    let records: Vec<_> = (0..random.below(30) as u32)
                        .map(|index| (key(place(&mut random, index)), vec![round as u8; length(&mut random) as usize]))
                        .collect();
                    let mut expected = model.clone();
                    let present = records
                        .iter()
                        .find(|(key, value)| expected.insert(u32::from_be_bytes(*key), value.clone()).is_some());
                    let mut tx = database.begin().await?;
                    let before = tx.savepoint();
                    let inserted = tx.insert_each(partition, &records).await;
                    if present.is_some() {
                        assert!(matches!(inserted, Err(Error::Duplicate(_))), "{inserted:?}, seed {seed}");
                        tx.rollback_to(before).await?;
                    } else {
                        inserted?;
                        model = expected;
                    }
                    tx.commit().await?;
                }
                assert!(model.len() > 300, "{} records, seed {seed}", model.len());
                assert_eq!(all(&database, partition, 0..4_100).await?, model, "seed {seed}");
            }
            assert!(database.check(|_| {}).await?.is_clean(), "seed {seed}");
            Ok::<_, Error>(())
        });
        outcome.expect("nothing else fails");
    }
}

/// Waits for a lock in the middle of a call, while the lock's holder divides the leaf that the records before are in.
#[test]
fn after_a_wait_the_leaf_is_looked_for_again() {
    for seed in 1..30 {
        let outcome = run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings(256)).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let mut random = Random::stream(seed, "insert-waits");
            let mut model: Model = (0..60).map(|number| (number * 20, vec![1; 20])).collect();
            let fill: Vec<_> = model.iter().map(|(number, value)| (key(*number), value.clone())).collect();
            database.transaction(async |tx| tx.insert_each(tree, &fill).await).await?;
            let first = random.below(50) as u32 * 20 + 1;
            let mut holder = database.begin().await?;
            let blocked = first + 3 + random.below(8) as u32;
            holder.put(tree, &key(blocked), &[9; 20]).await?;
            holder.delete(tree, &key(blocked)).await?;
            let records: Vec<_> = (first..first + 18).map(|number| (key(number), vec![2; 30])).collect();
            model.extend((first..first + 18).map(|number| (number, vec![2; 30])));
            let waiting = {
                let database = database.clone();
                executor
                    .spawn(async move { database.transaction(async |tx| tx.insert_each(tree, &records).await).await })
            };
            executor.sleep_ns(MILLISECOND_NS).await;
            assert!(!waiting.is_finished(), "it waits for record {blocked}");
            let others = (0..1_200).filter(|number| number % 20 == 0 || !(first..first + 18).contains(number));
            for number in others.filter(|number| number % 20 > 0) {
                if random.chance(0.4) {
                    holder.put(tree, &key(number), &[3; 60]).await?;
                    model.insert(number, vec![3; 60]);
                }
            }
            holder.commit().await?;
            waiting.join().await?;
            assert_eq!(all(&database, tree, 0..1_300).await?, model, "seed {seed}");
            assert!(database.check(|_| {}).await?.is_clean(), "seed {seed}");
            Ok::<_, Error>(())
        });
        outcome.expect("nothing fails");
    }
}
