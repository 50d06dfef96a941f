//! An index that is filled in steps, between which transactions change the set, against a model without any index.

use super::{KEYED, bytes, hash, two_sets, with_room};
use crate::lock::Owner;
use crate::set::{FieldType, RecordType, Refusal, Secondary, Sets, Vacated};
use base::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// What an owner has changed.
type Changed = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

const OWNERS: u64 = 3;

/// Everything in its order, as the model says: records with two bytes at least have a place.
fn ordered(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    let place = |(key, value): (&Vec<u8>, &Vec<u8>)| Some((value.get(..2)?.to_vec(), key.clone()));
    let mut all: Vec<_> = model.iter().filter_map(place).collect();
    all.sort();
    all
}

fn shown(sets: &Sets, number: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = sets.range(KEYED, number, Bound::Unbounded, Bound::Unbounded);
    all.map(|(of, key)| (of.to_vec(), key.to_vec())).collect()
}

/// Changes a record that no other owner has changed.
fn change(sets: &mut Sets, (model, open): (&Model, &mut [Changed]), owner: usize, random: &mut Random) {
    let key = random.below(120).to_be_bytes().to_vec();
    if open.iter().enumerate().any(|(other, changed)| other != owner && changed.contains_key(&key)) {
        return;
    }
    let (me, of) = (Owner(owner as u32), hash(&key));
    let present = open[owner].get(&key).cloned().unwrap_or_else(|| model.get(&key).cloned());
    let length = if random.chance(0.1) { random.below(900) } else { random.below(6) };
    let value = bytes(random, length);
    let new = match (present, random.below(3)) {
        (Some(_), 0) => {
            sets.delete(me, KEYED, &key, of).expect("nothing is lent");
            None
        }
        (Some(mut old), 1) if old.len() > 1 => {
            sets.modify(me, KEYED, &key, of, |value| value[1] ^= 3).expect("it is there");
            old[1] ^= 3;
            Some(old)
        }
        (Some(_), _) => {
            with_room(sets, KEYED, |sets| sets.replace(me, KEYED, &key, of, &value)).expect("room");
            Some(value)
        }
        (None, _) => {
            with_room(sets, KEYED, |sets| sets.insert(me, KEYED, &key, of, &value)).expect("room");
            Some(value)
        }
    };
    open[owner].insert(key, new);
}

fn end(sets: &mut Sets, (model, changed): (&mut Model, &mut Changed), owner: usize, commits: bool) {
    if !commits {
        sets.roll_back(Owner(owner as u32));
        changed.clear();
        return;
    }
    sets.commit(Owner(owner as u32));
    for (key, value) in std::mem::take(changed) {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

/// A unique index by the first byte.
fn unique() -> Secondary {
    let record_type = RecordType::new([("a", FieldType::U8)]).expect("one name");
    Secondary::Fields { record_type, fields: vec![0], is_unique: true }
}

/// The first bytes that two records have.
fn twice(model: &Model) -> BTreeSet<Vec<u8>> {
    let mut count: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    model.values().filter_map(|value| value.get(..1)).for_each(|of| *count.entry(of.to_vec()).or_default() += 1);
    count.into_iter().filter(|(_, count)| *count > 1).map(|(of, _)| of).collect()
}

/// Builds an index beside transactions, and compares it with the model when all have ended.
fn built(seed: u64) -> bool {
    let random = &mut Random::stream(seed, "building");
    let (mut sets, mut model, mut open) = (two_sets(), Model::new(), vec![Changed::new(); OWNERS as usize]);
    let mut number = None;
    for _ in 0..3 {
        let first = number.map(|number| sets.drop_secondary(KEYED, number));
        assert!(first.is_none_or(|mut first| !first.give_up(usize::MAX)));
        for _ in 0..random.below(400) {
            let owner = random.below(OWNERS) as usize;
            change(&mut sets, (&model, &mut open), owner, random);
            end(&mut sets, (&mut model, &mut open[owner]), owner, true);
        }
        let begun = sets.begin_secondary(KEYED, Secondary::Bytes { offset: 0, length: 2 });
        assert!(number.is_none_or(|before| begun > before), "numbers are given once");
        let (beside, mut met) = (sets.begin_secondary(KEYED, unique()), BTreeSet::new());
        number = Some(begun);
        let mut next = Some(0);
        while let Some(from) = next {
            next = sets.fill_secondary((KEYED, begun), from, |_, _| {}).expect("nothing is lent");
            assert_eq!(sets.fill_secondary((KEYED, beside), from, |_, _| {}), Ok(next));
            if random.chance(0.5) {
                met.extend(sets.take_twice(KEYED, beside));
            }
            for _ in 0..random.below(6) {
                let owner = random.below(OWNERS) as usize;
                change(&mut sets, (&model, &mut open), owner, random);
                if random.chance(0.3) {
                    let commits = random.chance(0.5);
                    end(&mut sets, (&mut model, &mut open[owner]), owner, commits);
                }
            }
            if random.chance(0.2) {
                let _moved: Vacated = sets.vacate(KEYED, random.below(40));
                sets.end_vacating(KEYED);
            }
        }
        for (owner, changed) in open.iter_mut().enumerate() {
            let commits = random.chance(0.5);
            end(&mut sets, (&mut model, changed), owner, commits);
        }
        met.extend(sets.take_twice(KEYED, beside));
        if !twice(&model).is_subset(&met) {
            return false;
        }
        if twice(&model).is_empty() {
            sets.end_secondary(KEYED, beside);
        } else {
            sets.drop_secondary(KEYED, beside).give_up(usize::MAX);
        }
        sets.end_secondary(KEYED, begun);
        if sets.check().is_err() || shown(&sets, begun) != ordered(&model) {
            return false;
        }
    }
    true
}

#[test]
fn an_index_built_beside_transactions_has_each_record_once() {
    for seed in 0..60 {
        assert!(built(seed), "seed {seed}");
    }
}

#[test]
fn a_step_that_meets_a_lent_segment_adds_nothing_and_is_made_again() {
    let (mut sets, me) = (two_sets(), Owner(0));
    with_room(&mut sets, KEYED, |sets| sets.insert(me, KEYED, b"k", hash(b"k"), &[1, 2, 3])).expect("room");
    sets.commit(me);
    let record_type = RecordType::new([("a", FieldType::U8)]).expect("one name");
    let begun = sets.begin_secondary(KEYED, Secondary::Fields { record_type, fields: vec![0], is_unique: false });
    let _lent = sets.lend(KEYED, 0).expect("nothing of it is open");
    let mut next = Some(0);
    while let Some(from) = next {
        match sets.fill_secondary((KEYED, begun), from, |_, _| panic!("it is lent")) {
            Ok(then) => next = then,
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Lent(0));
                break;
            }
        }
    }
    assert!(next.is_some() && shown(&sets, begun).is_empty());
}

#[cfg(feature = "canary")]
#[test]
fn changes_that_pass_by_an_index_that_is_filled_are_found() {
    use crate::canary::{Canary, plant};
    plant(Some(Canary::MissedInSet));
    let is_found = (0..20).any(|seed| !built(seed));
    plant(None);
    assert!(is_found);
}
