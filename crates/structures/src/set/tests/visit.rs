//! Visits of all records, while others change the set.

use super::{settings, with_room};
use crate::lock::Owner;
use crate::set::{Keys, Refusal, SetSettings, Sets};
use base::{PartitionId, Random};
use std::collections::BTreeMap;

const PARTITION: PartitionId = PartitionId(0);
const ME: Owner = Owner(0);

fn sets(keys: Keys) -> Sets {
    let mut sets = Sets::new();
    sets.attach(SetSettings { secondaries: Vec::new(), ..settings(PARTITION, keys) });
    sets
}

fn put(sets: &mut Sets, key: u64, length: usize) {
    let key = key.to_be_bytes();
    let (hash, value) = (Sets::hash(&key), vec![7; length]);
    with_room(sets, PARTITION, |sets| match sets.insert(ME, PARTITION, &key, hash, &value) {
        Err(Refusal::Duplicate) => sets.replace(ME, PARTITION, &key, hash, &value),
        done => done,
    })
    .expect("it fits");
    sets.commit(ME);
}

/// Visits all, and has `meanwhile` change the set between two steps. How often each key was met.
fn visit(sets: &mut Sets, mut meanwhile: impl FnMut(&mut Sets)) -> BTreeMap<u64, usize> {
    let (mut met, mut next, mut steps) = (BTreeMap::new(), Some(0), 0);
    while let Some(from) = next {
        let number = |key: &[u8]| u64::from_be_bytes(key.try_into().expect("eight bytes"));
        let look = |key: &[u8], _: &[u8]| *met.entry(number(key)).or_default() += 1;
        let (visited, behind) = sets.visit(PARTITION, from, look).expect("nothing is lent");
        assert!(visited.start == from && behind.is_none_or(|behind| behind == visited.end && behind > from));
        next = behind;
        steps += 1;
        meanwhile(sets);
    }
    assert!(steps > 10, "{steps} steps");
    met
}

#[test]
fn a_record_that_stays_is_met_once_however_the_set_grows() {
    let random = &mut Random::stream(1, "visits");
    for round in 0..20 {
        let (first, mut sets) = (200 + 400 * (round % 4), sets(Keys::Keyed));
        (0..first).for_each(|key| put(&mut sets, key, 20));
        let mut last = first;
        let met = visit(&mut sets, |sets| {
            // Some come, some grow and move, every third of the first goes and comes back.
            for _ in 0..random.below(200) {
                put(sets, last, 20);
                last += 1;
            }
            put(sets, random.below(first), random.below(300) as usize);
            let key = (random.below(first) / 3 * 3).to_be_bytes();
            sets.delete(ME, PARTITION, &key, Sets::hash(&key)).expect("none is lent");
            sets.commit(ME);
        });
        let stayed = (0..first).filter(|key| key % 3 != 0);
        stayed.for_each(|key| assert_eq!(met.get(&key), Some(&1), "round {round}, key {key} of {last}"));
        assert!(met.values().all(|times| *times <= 1), "no record is met twice");
    }
}

#[test]
fn arrivals_are_met_in_their_order() {
    let mut sets = sets(Keys::Arrival);
    for number in 0..4_000_u64 {
        with_room(&mut sets, PARTITION, |sets| sets.append(ME, PARTITION, &number.to_le_bytes())).expect("it fits");
    }
    sets.commit(ME);
    let met = visit(&mut sets, |_| ());
    assert!((0..4_000).all(|number| met.get(&number) == Some(&1)) && met.len() == 4_000);
}
