//! Records of a scan that are shown where they are, long values among them, and what is read one by one behind them.

use crate::ground::machine::run;
use base::Random;
use entresol_engine::{Database, Direction, Error, Isolation, PartitionSpec, Settings, buffer};
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::Media;

type Model = BTreeMap<[u8; 2], Vec<u8>>;

fn key(number: u64) -> [u8; 2] {
    (number as u16).to_be_bytes()
}

/// A bound among the keys below `keys`, or none.
fn bound(random: &mut Random, keys: u64) -> Bound<[u8; 2]> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random.below(keys))),
        _ => Bound::Excluded(key(random.below(keys))),
    }
}

fn expected(model: &Model, range: (Bound<[u8; 2]>, Bound<[u8; 2]>), direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_above = |key: &[u8; 2]| match range.0 {
        Bound::Included(lower) => *key >= lower,
        Bound::Excluded(lower) => *key > lower,
        Bound::Unbounded => true,
    };
    let is_below = |key: &[u8; 2]| match range.1 {
        Bound::Included(upper) => *key <= upper,
        Bound::Excluded(upper) => *key < upper,
        Bound::Unbounded => true,
    };
    let within = model.iter().filter(|(key, _)| is_above(key) && is_below(key));
    let mut records: Vec<_> = within.map(|(key, value)| (key.to_vec(), value.clone())).collect();
    if direction == Direction::Backward {
        records.reverse();
    }
    records
}

#[test]
fn looks_and_calls_for_the_next_record_share_the_way() {
    for (seed, isolation) in (1..5).flat_map(|seed| Isolation::ALL.map(|isolation| (seed, isolation))) {
        let outcome = run(&Media::new(), async |executor| {
            let buffer = buffer::Settings { frames: 256, page_size: 1024, ..buffer::Settings::default() };
            let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let (mut random, mut model) = (Random::stream(seed, "looks"), Model::new());
            let keys = 300;
            for _ in 0..30 {
                let mut tx = database.begin_at(isolation).await?;
                for _ in 0..random.below(40) {
                    let number = random.below(keys);
                    if random.chance(0.3) {
                        tx.delete(tree, &key(number)).await?;
                        model.remove(&key(number));
                    } else {
                        let length = if random.chance(0.1) { 3_000 } else { random.below(60) };
                        let value = vec![number as u8; length as usize];
                        tx.put(tree, &key(number), &value).await?;
                        model.insert(key(number), value);
                    }
                }
                for direction in [Direction::Forward, Direction::Backward] {
                    let range = (bound(&mut random, keys), bound(&mut random, keys));
                    let expected = expected(&model, range, direction);
                    let mut found = Vec::new();
                    let mut scan = tx.scan(tree, range, direction);
                    loop {
                        let mut more = random.below(20);
                        let mut shown = 0;
                        let note = |key: &[u8], value: &[u8]| {
                            found.push((key.to_vec(), value.to_vec()));
                            shown += 1;
                            more = more.saturating_sub(1);
                            more > 0
                        };
                        scan.look(note).await?;
                        let Some(record) = scan.next().await? else { break };
                        assert!(shown > 0, "what is left would have been shown");
                        found.push(record);
                    }
                    assert_eq!(found, expected, "{range:?} {direction:?} {isolation:?}, seed {seed}");
                }
                tx.commit().await?;
            }
            Ok::<_, Error>(())
        });
        outcome.expect("nothing fails");
    }
}
