//! Ranges and marks beside a model of single keys.

use super::*;
use base::Random;
use std::collections::BTreeSet;

const PARTITION: PartitionId = PartitionId(3);

/// Every key of up to three bytes out of three.
fn universe() -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    for length in 0..3 {
        let longer = keys.iter().filter(|key: &&Vec<u8>| key.len() == length).cloned().collect::<Vec<_>>();
        let extended = |key: Vec<u8>| [0, 1, 255].map(|byte| [&key[..], &[byte]].concat());
        keys.extend(longer.into_iter().flat_map(extended));
    }
    keys.sort();
    keys
}

fn random_bound<'a>(random: &mut Random, keys: &'a [Vec<u8>]) -> Bound<&'a [u8]> {
    let key = random.choose(keys).expect("there are some");
    match random.below(7) {
        0 => Bound::Unbounded,
        1..=3 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn lies_within(key: &[u8], (lower, upper): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    let is_above = match lower {
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
        Bound::Unbounded => true,
    };
    let is_below = match upper {
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
        Bound::Unbounded => true,
    };
    is_above && is_below
}

/// What owners have read and marked, key by key.
#[derive(Default)]
struct Model {
    read: BTreeSet<(u32, Vec<u8>)>,
    marked: BTreeMap<(u32, Vec<u8>), Mark>,
}

impl Model {
    fn obstacles(&self, owner: u32, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> BTreeSet<Vec<u8>> {
        let in_the_way = |(other, key): &&(u32, Vec<u8>)| {
            *other != owner && lies_within(key, bounds) && !self.read.contains(&(owner, key.clone()))
        };
        self.marked.keys().filter(in_the_way).map(|(_, key)| key.clone()).collect()
    }

    fn has_reader(&self, but: u32, key: &[u8]) -> bool {
        self.read.iter().any(|(owner, read)| *owner != but && read == key)
    }
}

/// Gives an owner what is free of a range, as a scan does, or checks what is in its way.
fn read(ranges: &mut KeyRanges, model: &mut Model, owner: u32, bounds: (Bound<&[u8]>, Bound<&[u8]>), wants_last: bool) {
    let span = KeySpan::new(bounds.0, bounds.1);
    let obstacles = model.obstacles(owner, bounds);
    let others = model.marked.keys().filter(|(of, key)| *of != owner && obstacles.contains(key));
    let others: BTreeSet<Owner> = others.map(|(of, _)| Owner(*of)).collect();
    let found: BTreeSet<Owner> = ranges.markers_within(Owner(owner), PARTITION, &span).collect();
    assert_eq!(found, others, "{bounds:?}");
    let expected = if wants_last { obstacles.last() } else { obstacles.first() };
    let found = ranges.obstacle(Owner(owner), PARTITION, &span, wants_last, |_| false);
    assert_eq!(found.as_ref().map(|(key, _)| key.to_vec()), expected.cloned(), "{bounds:?}");
    let (span, bounds) = match &found {
        Some((key, _)) if wants_last => (span.above(key), (Bound::Excluded(&key[..]), bounds.1)),
        Some((key, _)) => (span.below(key), (bounds.0, Bound::Excluded(&key[..]))),
        None => (span, bounds),
    };
    let within = universe().into_iter().filter(|key| lies_within(key, bounds));
    let is_read = within.clone().all(|key| model.read.contains(&(owner, key)));
    assert!(is_read || !ranges.holds_all(Owner(owner), PARTITION, &span), "{bounds:?}");
    let had_any = model.read.iter().any(|(other, _)| *other == owner);
    let number = ranges.hold(Owner(owner), PARTITION, span.clone());
    assert!(ranges.holds_all(Owner(owner), PARTITION, &span), "{bounds:?}");
    assert!(number.is_none() || !had_any, "an owner has one number in a partition");
    model.read.extend(within.map(|key| (owner, key)));
}

#[test]
fn ranges_and_marks_are_as_a_model_of_single_keys_has_them() {
    let keys = universe();
    let (mut blocked, mut merged, mut withdrawn, mut upgraded) = (0, 0, 0, 0);
    for seed in 0..300 {
        let mut random = Random::stream(seed, "key ranges");
        let (mut ranges, mut model) = (KeyRanges::default(), Model::default());
        for step in 0..60 {
            let owner = random.below(3) as u32;
            match random.below(11) {
                0..=4 => {
                    let bounds = (random_bound(&mut random, &keys), random_bound(&mut random, &keys));
                    blocked += usize::from(!model.obstacles(owner, bounds).is_empty());
                    read(&mut ranges, &mut model, owner, bounds, random.chance(0.5));
                    merged += usize::from(ranges.ranges(Owner(owner), PARTITION) == 1);
                }
                5..=7 => {
                    let key = random.choose(&keys).expect("there are some");
                    let mark = if model.has_reader(owner, key) { Mark::Intended } else { Mark::Deleted };
                    ranges.mark(Owner(owner), PARTITION, key, mark);
                    let present = model.marked.entry((owner, key.clone())).or_insert(mark);
                    upgraded += usize::from(*present != mark && mark == Mark::Deleted);
                    *present = if mark == Mark::Deleted { mark } else { *present };
                }
                8 => {
                    let before = ranges.dependency(PARTITION);
                    let had_marks = model.marked.keys().any(|(other, _)| *other == owner);
                    ranges.end(Owner(owner), Some(Lsn(step)));
                    model.read.retain(|(other, _)| *other != owner);
                    model.marked.retain(|(other, _), _| *other != owner);
                    let expected = if had_marks { Lsn(step) } else { before };
                    assert_eq!(ranges.dependency(PARTITION), expected);
                }
                9 => {
                    let taken = ranges.withdraw(Owner(owner));
                    withdrawn += taken.len();
                    for (_, key) in taken {
                        assert_eq!(model.marked.remove(&(owner, key.to_vec())), Some(Mark::Intended), "seed {seed}");
                    }
                    assert!(model.marked.iter().all(|((of, _), mark)| *of != owner || *mark == Mark::Deleted));
                }
                _ => ranges.end(Owner(9), None),
            }
            assert_eq!(ranges.has_marks(), !model.marked.is_empty(), "seed {seed}");
            assert!(ranges.is_sound(), "seed {seed}");
            for key in &keys {
                let read = |owner: u32| model.read.contains(&(owner, key.clone()));
                for owner in 0..3 {
                    assert_eq!(ranges.holds(Owner(owner), PARTITION, key), read(owner), "seed {seed}, {key:?}");
                    let around = ranges.reader_around(Owner(owner), PARTITION, key);
                    assert_eq!(around.is_some(), model.has_reader(owner, key), "seed {seed}, {key:?}");
                    let all: BTreeSet<u32> =
                        ranges.readers_around(Owner(owner), PARTITION, key).map(|Owner(other)| other).collect();
                    assert!(all.into_iter().eq((0..3).filter(|other| *other != owner && read(*other))));
                    let is_marked = ranges.is_marked_by(Owner(owner), PARTITION, key);
                    assert_eq!(is_marked, model.marked.contains_key(&(owner, key.clone())));
                }
            }
        }
    }
    assert!(blocked > 500 && merged > 500, "{blocked} {merged}");
    assert!(withdrawn > 500 && upgraded > 10, "{withdrawn} {upgraded}");
}

#[test]
fn a_scan_in_shares_is_one_range_in_either_direction() {
    let mut ranges = KeyRanges::default();
    let key = |number: u32| number.to_be_bytes();
    for share in 0..100 {
        let (from, to) = (key(4 * share), key(4 * share + 3));
        let lower = if share == 0 { Bound::Unbounded } else { Bound::Excluded(&from[..]) };
        ranges.hold(Owner(0), PARTITION, KeySpan::new(lower, Bound::Included(&to)));
        let next = key(4 * share + 4);
        ranges.hold(Owner(0), PARTITION, KeySpan::new(Bound::Excluded(&to), Bound::Included(&next)));
        let (from, to) = (key(1000 - 4 * share), key(1000 - 4 * share - 4));
        ranges.hold(Owner(1), PARTITION, KeySpan::new(Bound::Included(&to), Bound::Excluded(&from)));
    }
    for owner in [Owner(0), Owner(1)] {
        assert_eq!(ranges.ranges(owner, PARTITION), 1);
    }
    assert!(ranges.bytes() < 1_000, "{}", ranges.bytes());
    ranges.end(Owner(0), None);
    ranges.end(Owner(1), None);
    assert!(!ranges.has_readers());
}

#[test]
fn what_is_unsound_is_noticed() {
    let sound = || {
        let mut ranges = KeyRanges::default();
        ranges.hold(Owner(0), PARTITION, KeySpan::new(Bound::Included(b"b"), Bound::Excluded(b"d")));
        ranges.mark(Owner(1), PARTITION, b"e", Mark::Deleted);
        assert!(ranges.is_sound());
        ranges
    };
    let corruptions: [fn(&mut OfPartition); 4] = [
        |found| found.readers[0].spans.0.insert(b"d".to_vec(), None).map_or((), |_| ()),
        |found| found.readers[0].spans.0.insert(b"b".to_vec(), None).map_or((), |_| ()),
        |found| found.readers.clear(),
        |found| found.marks.clear(),
    ];
    for corrupt in corruptions {
        let mut ranges = sound();
        corrupt(ranges.partitions.get_mut(&PARTITION).expect("it is there"));
        assert!(!ranges.is_sound());
    }
}
