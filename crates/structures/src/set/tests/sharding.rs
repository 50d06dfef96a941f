//! Changes of one set, replayed one after the other and by several computations.

use super::super::redo::{Action, Redo};
use super::*;
use std::collections::BTreeMap;

const KEYS: u64 = 1_500;

fn attached() -> Sets {
    let mut sets = Sets::new();
    sets.attach(SetSettings { secondaries: Vec::new(), ..settings(KEYED, Keys::Keyed) });
    sets
}

/// A change of a random record, which may be there or not.
fn change(random: &mut Random, out: &mut Vec<u8>) {
    let key = random.below(KEYS).to_be_bytes();
    // Most values have the same length.
    let length = if random.chance(0.05) { random.below(300) } else { 100 };
    let new = bytes(random, length);
    let action = match random.below(40) {
        0 => Action::Delete,
        1 => Action::Insert { value: &new },
        2..9 => Action::Replace { value: &new },
        9..25 => Action::Patch { offset: random.below(120) as usize, bytes: &new[..new.len() / 10] },
        _ => Action::Add { offset: random.below(110) as usize, width: 1 << random.below(4), amount: -3 },
    };
    Redo { partition: KEYED, key: &key, action }.encode(out);
}

fn contents(sets: &Sets) -> BTreeMap<Vec<u8>, Vec<u8>> {
    sets.check().expect("sound");
    sets.set(KEYED).records().map(|(_, key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Replays changes in several computations, each step's in a random order. Returns how many were left at the end.
fn replay_sharded(sets: &mut Sets, redo: &[u8], random: &mut Random) -> Result<usize, Malformed> {
    let mut sorted = SortedChanges::default();
    sorted.add(redo, (0, redo.len()), |_| false)?;
    let (_, changes) = sorted.by_set().next().expect("one set has changes");
    let mut detached = sets.detach_for_replay(KEYED).expect("it is there");
    assert!(detached.may_shard(changes.len()));
    let mut lookups = detached.lookups();
    lookups.sort_by_cached_key(|_| random.word());
    let mut located = Vec::new();
    for lookup in lookups {
        located.push(lookup.locate(&changes));
        detached.end_lookup(lookup);
    }
    let mut left = Vec::new();
    let mut shards: Vec<(usize, Shard)> = detached.shards(located, &mut left).into_iter().enumerate().collect();
    shards.sort_by_cached_key(|_| random.word());
    let done: Result<Vec<()>, Malformed> = shards.iter_mut().map(|(_, shard)| shard.replay(redo)).collect();
    done?;
    shards.sort_by_key(|(number, _)| *number);
    shards.into_iter().for_each(|(_, shard)| detached.end_shard(shard, &mut left));
    let mut from = 0;
    while let Some(stopped) = detached.replay(redo, &left, from) {
        match stopped {
            ReplayStop::Malformed(what) => return Err(what),
            ReplayStop::NoRoom(number) => {
                detached.grow(vec![frame(16 << 10)]);
                from = number;
            }
        }
    }
    sets.reattach(detached);
    Ok(left.len())
}

#[test]
fn changes_that_are_spread_come_out_as_one_after_the_other() {
    for seed in 0..8 {
        let random = &mut Random::stream(seed, "spread");
        let (mut one, mut other) = (attached(), attached());
        let mut first = Vec::new();
        for key in 0..KEYS {
            let value = bytes(random, 100);
            let action = Action::Insert { value: &value };
            Redo { partition: KEYED, key: &key.to_be_bytes(), action }.encode(&mut first);
        }
        let apply = |sets: &mut Sets, redo: &[u8]| {
            let frames = |count, size| (0..count).map(|_| frame(size)).collect();
            sets.apply(redo, |_| false, frames).expect("sound redo");
        };
        apply(&mut one, &first);
        apply(&mut other, &first);
        let mut in_place = 0;
        for _ in 0..6 {
            let (mut redo, count) = (Vec::new(), 2_000);
            (0..count).for_each(|_| change(random, &mut redo));
            apply(&mut one, &redo);
            in_place += count - replay_sharded(&mut other, &redo, random).expect("sound redo");
            assert!(contents(&one) == contents(&other), "seed {seed}");
        }
        assert!(in_place > 6_000, "{in_place} changes in place");
    }
}

#[test]
fn what_is_no_change_is_refused_where_it_stands() {
    let mut sets = attached();
    let mut redo = Vec::new();
    for key in 0..KEYS {
        Redo { partition: KEYED, key: &key.to_be_bytes(), action: Action::Insert { value: &[1; 100] } }
            .encode(&mut redo);
    }
    sets.apply(&redo, |_| false, |count, size| (0..count).map(|_| frame(size)).collect()).expect("sound redo");
    let mut sorted = SortedChanges::default();
    sorted.add(&redo, (0, redo.len()), |_| false).expect("sound redo");
    let (_, changes) = sorted.by_set().next().expect("one set has changes");
    redo[changes[700].at as usize] |= 7;
    let mut detached = sets.detach_for_replay(KEYED).expect("it is there");
    let located = detached.lookups().into_iter().map(|lookup| {
        let located = lookup.locate(&changes);
        detached.end_lookup(lookup);
        located
    });
    let located = located.collect();
    let shards = detached.shards(located, &mut Vec::new()).into_iter();
    let refused: Vec<Malformed> = shards.filter_map(|mut shard| shard.replay(&redo).err()).collect();
    assert_eq!(refused, [Malformed(changes[700].at as usize)]);
}
