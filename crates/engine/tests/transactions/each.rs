//! Several records that are read or changed in one call, against one call after the other, while others divide the leaves.

use crate::ground::machine::run;
use base::time::MILLISECOND_NS;
use base::{PartitionId, Random};
use entresol_engine::{Database, Error, Isolation, PartitionSpec, Result, Settings, buffer};
use executor::{Executor, Order};
use std::collections::BTreeMap;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

type Model = BTreeMap<u64, Vec<u8>>;

fn key(number: u64) -> [u8; 2] {
    (number as u16).to_be_bytes()
}

fn settings(frames: usize) -> Settings {
    let buffer = buffer::Settings { frames, page_size: 1024, ..buffer::Settings::default() };
    Settings { buffer, ..Settings::default() }
}

async fn fill(database: &Database, partition: PartitionId, model: &Model) -> Result<()> {
    let fill = async |tx: &mut entresol_engine::Transaction| {
        for (number, value) in model {
            tx.put(partition, &key(*number), value).await?;
        }
        Ok(())
    };
    database.transaction(fill).await
}

/// Up to `count` numbers below `end`, some of them more than once.
fn numbers(random: &mut Random, count: u64, end: u64) -> Vec<u64> {
    (0..random.below(count)).map(|_| random.below(end)).collect()
}

#[test]
fn each_record_is_shown_and_changed_as_by_a_call_of_its_own() {
    for (seed, isolation) in (1..4).flat_map(|seed| Isolation::ALL.map(|isolation| (seed, isolation))) {
        let outcome = run(&Media::new(), async |executor| {
            // Few frames: pages lack.
            let database = Database::create(executor, settings(64)).await?;
            let specs = [PartitionSpec::b_tree("tree"), PartitionSpec::set("set")];
            for spec in specs {
                let partition = database.create_partition(spec).await?;
                let mut random = Random::stream(seed, "each");
                let value =
                    |number: u64| vec![number as u8; if number % 50 == 7 { 3_000 } else { number as usize % 60 }];
                let mut model: Model = (0..2_000).filter(|number| number % 3 > 0).map(|n| (n, value(n))).collect();
                fill(&database, partition, &model).await?;
                for _ in 0..20 {
                    let mut tx = database.begin_at(isolation).await?;
                    let read = numbers(&mut random, 60, 2_100);
                    let keys: Vec<_> = read.iter().map(|number| key(*number)).collect();
                    let mut shown = Vec::new();
                    let look =
                        |position: usize, value: Option<&[u8]>| shown.push((position, value.map(<[u8]>::to_vec)));
                    tx.get_each_with(partition, &keys, look).await?;
                    let expected: Vec<_> = read.iter().map(|number| model.get(number).cloned()).enumerate().collect();
                    assert_eq!(shown, expected, "{isolation:?}, seed {seed}");
                    let mut changed = numbers(&mut random, 60, 2_000);
                    changed.retain(|number| model.get(number).is_some_and(|value| (1..1_000).contains(&value.len())));
                    let keys: Vec<_> = changed.iter().map(|number| key(*number)).collect();
                    let change = |position: usize, value: &mut [u8]| {
                        value[0] = value[0].wrapping_mul(3).wrapping_add(position as u8)
                    };
                    tx.modify_each(partition, &keys, change).await?;
                    for (position, number) in changed.iter().enumerate() {
                        change(position, model.get_mut(number).expect("it is there"));
                    }
                    tx.commit().await?;
                }
                let mut tx = database.begin().await?;
                for number in 0..2_000 {
                    assert_eq!(tx.get(partition, &key(number)).await?.as_ref(), model.get(&number), "seed {seed}");
                }
                tx.commit().await?;
            }
            Ok::<_, Error>(())
        });
        outcome.expect("nothing fails");
    }
}

#[test]
fn a_record_that_lacks_ends_a_change_of_several_behind_the_first_ones() {
    let outcome = run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings(256)).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        fill(&database, tree, &(0..30).map(|number| (number, vec![0])).collect()).await?;
        let mut tx = database.begin().await?;
        let keys = [key(1), key(2), key(77), key(3)];
        let changed = tx.modify_each(tree, &keys, |position, value| value[0] = position as u8 + 1).await;
        assert_eq!(changed, Err(Error::NoRecord("tree".into())));
        let mut values = Vec::new();
        tx.get_each_with(tree, &keys, |_, value| values.push(value.map(|value| value[0]))).await?;
        assert_eq!(values, [Some(1), Some(2), None, Some(0)]);
        tx.get_each_with::<[u8; 2]>(tree, &[], |_, _| panic!("there is nothing to show")).await?;
        tx.commit().await?;
        Ok::<_, Error>(())
    });
    outcome.expect("nothing else fails");
}

/// Waits for a lock in the middle of a group, while the lock's holder divides the leaves.
#[test]
fn after_a_wait_the_records_are_looked_for_where_they_are_then() {
    for (seed, changes) in (1..30).flat_map(|seed| [false, true].map(|changes| (seed, changes))) {
        let outcome = run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings(256)).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let mut random = Random::stream(seed, "waits");
            let before: Model = (0..60).map(|number| (number * 20, vec![1; 20])).collect();
            fill(&database, tree, &before).await?;
            let asked: Vec<u64> = (0..14).map(|_| random.below(60) * 20).collect();
            let blocked = asked[random.below(14) as usize];
            let first = asked.iter().position(|number| *number == blocked).expect("it is asked for");
            let mut holder = database.begin().await?;
            holder.modify(tree, &key(blocked), |value| value[0] = 2).await?;
            let waiting = {
                let (database, keys) = (database.clone(), asked.iter().map(|number| key(*number)).collect::<Vec<_>>());
                executor.spawn(async move {
                    let (mut tx, mut seen) = (database.begin().await?, Vec::new());
                    if changes {
                        let change = |_: usize, value: &mut [u8]| {
                            seen.push(Some(value[0]));
                            value[1] += 1;
                        };
                        tx.modify_each(tree, &keys, change).await?;
                    } else {
                        tx.get_each_with(tree, &keys, |_, value| seen.push(value.map(|value| value[0]))).await?;
                    }
                    tx.commit().await?;
                    Ok::<_, Error>(seen)
                })
            };
            executor.sleep_ns(MILLISECOND_NS).await;
            for number in (0..1_200).filter(|number| number % 20 > 0 && random.chance(0.4)) {
                holder.put(tree, &key(number), &[3; 60]).await?;
            }
            let mut expected = vec![Some(1); asked.len()];
            for (position, number) in asked.iter().enumerate().skip(first) {
                if !asked[..first].contains(number) {
                    holder.modify(tree, &key(*number), |value| value[0] = 2).await?;
                    expected[position] = Some(2);
                }
            }
            holder.commit().await?;
            assert_eq!(waiting.join().await?, expected, "seed {seed}, changes {changes}");
            let mut tx = database.begin().await?;
            for number in before.keys() {
                let times = if changes { asked.iter().filter(|other| *other == number).count() as u8 } else { 0 };
                let value = tx.get(tree, &key(*number)).await?.expect("it is there");
                assert_eq!(value[1], 1 + times, "record {number}, seed {seed}");
            }
            tx.commit().await?;
            Ok::<_, Error>(())
        });
        outcome.expect("nothing fails");
    }
}

const SLOW_DISK: &str = "[device.disk]\nmedium.service = \"200 us\"\n";
/// CPU steps take time, during which others go on, as they do during reads.
const SLOW_STEPS: &str = "[cpu]\ncount = 1\nmips = 10\n[cpu.instructions]\nbegin_transaction = 0\nobject_reference = 500\n\
                          end_transaction = 0\ninput_output = 0\nnvem_access = 0\nlog_page = 0\n";

fn on_slow_machine<T>(text: &str, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let hardware = Hardware::parse(text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = executor.run(work(&executor));
    executor.stop();
    done.expect("the machine goes on")
}

/// What is read of long values, and the CPU that a reference pays, are waits as locks are: others divide the leaves meanwhile.
#[test]
fn after_any_wait_the_records_are_looked_for_where_they_are_then() {
    for (seed, are_steps_slow) in (1..6).flat_map(|seed| [false, true].map(|are_steps_slow| (seed, are_steps_slow))) {
        let work = async |executor: &Executor| {
            let database = Database::create(executor, settings(512)).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let mut random = Random::stream(seed, "any wait");
            let length = |number: u64| if !are_steps_slow && number.is_multiple_of(60) { 3_000 } else { 20 };
            let model: Model = (0..90).map(|number| (number * 20, vec![1; length(number * 20)])).collect();
            fill(&database, tree, &model).await?;
            database.close().await?;
            let database = Database::open(executor, settings(512), "disk").await?;
            let others = {
                let (database, mut random) = (database.clone(), Random::stream(seed, "others"));
                executor.spawn(async move {
                    let all: Vec<u64> = (0..1_800).filter(|number| number % 20 > 0).collect();
                    for _ in 0..300 {
                        let number = all[random.below(all.len() as u64) as usize];
                        database.transaction(async |tx| tx.put(tree, &key(number), &[3; 60]).await).await?;
                    }
                    Ok::<_, Error>(())
                })
            };
            let mut rounds = 0;
            while !others.is_finished() {
                let asked: Vec<u64> = (0..80).map(|_| random.below(90) * 20).collect();
                let keys: Vec<_> = asked.iter().map(|number| key(*number)).collect();
                let mut shown = Vec::new();
                let note = |_: usize, value: Option<&[u8]>| shown.push(value.map(<[u8]>::len));
                database.begin().await?.get_each_with(tree, &keys, note).await?;
                let expected: Vec<_> = asked.iter().map(|number| model.get(number).map(Vec::len)).collect();
                assert_eq!(shown, expected, "seed {seed}, slow steps {are_steps_slow}");
                rounds += 1;
                executor.sleep_ns(MILLISECOND_NS).await;
            }
            assert!(rounds > 1, "{rounds}");
            others.join().await
        };
        let steps = if are_steps_slow { SLOW_STEPS } else { "" };
        on_slow_machine(&format!("{SLOW_DISK}{steps}"), work).expect("nothing fails");
    }
}
