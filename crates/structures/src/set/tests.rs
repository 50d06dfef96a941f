//! Sets against a model, through sweeps and crashes.

mod building;
mod damage;
mod history;
mod large;
mod sharding;
mod visit;

use super::*;
use base::Random;
use std::ops::Bound;

fn frame(size: usize) -> Frame {
    Frame::allocate(1, size).pop().expect("one frame")
}

fn hash(key: &[u8]) -> u64 {
    Sets::hash(key)
}

/// Calls until no segment is wanted.
fn with_room<R>(
    sets: &mut Sets,
    partition: PartitionId,
    mut step: impl FnMut(&mut Sets) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    loop {
        match step(sets) {
            Err(Refusal::NoSegment) => {
                let size = sets.segment_size(partition);
                sets.add_segment(partition, frame(size));
            }
            done => return done,
        }
    }
}

const KEYED: PartitionId = PartitionId(3);
const ARRIVAL: PartitionId = PartitionId(40);

fn settings(partition: PartitionId, keys: Keys) -> SetSettings {
    let record_type = RecordType::new([("a", FieldType::U8), ("b", FieldType::U16)]).expect("two names");
    let by_b = Secondary::Fields { record_type, fields: vec![1, 0], is_unique: false };
    let by_bytes = Secondary::Bytes { offset: 1, length: 2 };
    let secondaries = if keys == Keys::Keyed { vec![Some(by_bytes), Some(by_b)] } else { Vec::new() };
    SetSettings { partition, segment_size: 16 << 10, reserve: RESERVE, keys, secondaries }
}

fn two_sets() -> Sets {
    let mut sets = Sets::new();
    sets.attach(settings(KEYED, Keys::Keyed));
    sets.attach(settings(ARRIVAL, Keys::Arrival));
    sets
}

fn bytes(random: &mut Random, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.below(4) as u8).collect()
}

#[test]
fn a_record_fills_a_segment_and_no_more() {
    let mut sets = two_sets();
    let limit = (16 << 10) - 64 - 16;
    let (key, owner) = (b"key", Owner(0));
    let insert = |sets: &mut Sets, length| {
        with_room(sets, KEYED, |sets| sets.insert(owner, KEYED, key, hash(key), &vec![7; length]))
    };
    assert_eq!(
        insert(&mut sets, limit - 2),
        Err(Refusal::TooLarge { what: "a record of a set", found: limit + 1, limit })
    );
    assert_eq!(insert(&mut sets, limit - 3), Ok(()));
    assert_eq!(sets.insert(owner, KEYED, key, hash(key), b""), Err(Refusal::Duplicate));
    assert_eq!(sets.segments(KEYED), 1);
    sets.check().expect("sound");
    sets.roll_back(owner);
    assert_eq!((sets.records(KEYED), sets.bytes(KEYED)), (0, 0));
    sets.check().expect("sound");
}

#[test]
fn a_missing_record_is_refused() {
    let mut sets = two_sets();
    assert_eq!(sets.modify(Owner(1), KEYED, b"a", hash(b"a"), |_| ()), Err(Refusal::Missing));
    assert_eq!(sets.replace(Owner(1), KEYED, b"a", hash(b"a"), b"b"), Err(Refusal::Missing));
    assert_eq!(sets.delete(Owner(1), KEYED, b"a", hash(b"a")), Ok(false));
    assert!(sets.redo(Owner(1)).is_empty());
}

#[test]
fn only_the_bytes_that_differ_are_logged() {
    let (mut sets, owner) = (two_sets(), Owner(2));
    with_room(&mut sets, KEYED, |sets| sets.insert(owner, KEYED, b"key", hash(b"key"), &[0; 100])).expect("room");
    sets.commit(owner);
    assert!(sets.redo(owner).is_empty());
    sets.modify(owner, KEYED, b"key", hash(b"key"), |value| value.fill(0)).expect("it is there");
    assert!(sets.redo(owner).is_empty());
    sets.modify(owner, KEYED, b"key", hash(b"key"), |value| value[40..43].fill(9)).expect("it is there");
    assert_eq!(sets.redo(owner), [3 | 3 << 3, 3, b'k', b'e', b'y', 40, 3, 9, 9, 9]);
}

#[test]
fn a_lent_segment_is_waited_for() {
    let (mut sets, owner) = (two_sets(), Owner(0));
    with_room(&mut sets, KEYED, |sets| sets.insert(owner, KEYED, b"key", hash(b"key"), b"value")).expect("room");
    assert!(sets.lend(KEYED, 0).is_none());
    sets.commit(owner);
    let lent = sets.lend(KEYED, 0).expect("nothing is uncommitted there");
    assert!(sets.lend(KEYED, 0).is_none());
    assert_eq!(sets.get(owner, KEYED, b"key", hash(b"key")), Err(Refusal::Lent(0)));
    assert_eq!(sets.insert(owner, KEYED, b"other", hash(b"other"), b""), Err(Refusal::NoSegment));
    let mut other = two_sets();
    let mut copy = frame(16 << 10);
    copy.copy_from_slice(&lent);
    other.load(KEYED, 0, 0, copy).expect("a sealed image");
    other.finish_load();
    assert_eq!(other.get(owner, KEYED, b"key", hash(b"key")), Ok(Some(&b"value"[..])));
    sets.take_back(KEYED, 0, lent);
    assert_eq!(sets.get(owner, KEYED, b"key", hash(b"key")), Ok(Some(&b"value"[..])));
    sets.check().expect("sound");
}

#[test]
fn a_part_beyond_the_value_is_refused() {
    let (mut sets, owner) = (two_sets(), Owner(0));
    with_room(&mut sets, KEYED, |sets| sets.insert(owner, KEYED, b"key", hash(b"key"), &[0; 10])).expect("room");
    let too_far = Err(Refusal::TooLarge { what: "the end of a part of a value", found: 11, limit: 10 });
    assert_eq!(sets.modify_part(owner, KEYED, b"key", hash(b"key"), 9..11, |part| part.fill(1)), too_far);
    assert_eq!(sets.get(owner, KEYED, b"key", hash(b"key")), Ok(Some(&[0; 10][..])));
}

/// Nine records of 1500 bytes fill segment 0, then `others` come into segment 1, all named by one byte.
fn two_segments(others: u8) -> Sets {
    let (mut sets, owner) = (two_sets(), Owner(0));
    for name in 0..9 + others {
        let insert = |sets: &mut Sets| sets.insert(owner, KEYED, &[name], hash(&[name]), &[name; 1500]);
        with_room(&mut sets, KEYED, insert).expect("room");
    }
    sets.commit(owner);
    assert_eq!(sets.segments(KEYED), 2);
    sets
}

fn images(sets: &Sets) -> [Frame; 2] {
    [0, 1].map(|segment| {
        let mut image = frame(16 << 10);
        sets.image(KEYED, segment, &mut image);
        image
    })
}

/// Record `name` moves from segment `from` to the other between two images; both copies come back, the later one counts,
/// and the segment of the earlier one has to be written again to the copy that it came from.
fn of_two_copies_the_later_counts(mut sets: Sets, name: u8, from: usize) {
    let owner = Owner(0);
    let before = images(&sets);
    sets.replace(owner, KEYED, &[name], hash(&[name]), &[99; 4000]).expect("room");
    sets.commit(owner);
    let after = images(&sets);
    let mut mixed = [before, after].map(|images| images.map(Some));
    let mut restored = two_sets();
    for segment in [0, 1] {
        let image = mixed[usize::from(segment != from)][segment].take().expect("taken once");
        restored.load(KEYED, segment as u32, 0, image).expect("sound");
    }
    restored.finish_load();
    restored.check().expect("sound");
    assert_eq!(restored.records(KEYED), sets.records(KEYED));
    assert_eq!(restored.get(owner, KEYED, &[name], hash(&[name])), Ok(Some(&[99; 4000][..])));
    assert_eq!([0, 1].map(|segment| restored.is_dirty(KEYED, segment, 0)), [from == 0, from == 1]);
    assert_eq!([0, 1].map(|segment| restored.is_dirty(KEYED, segment, 1)), [true; 2]);
}

#[test]
fn a_record_found_twice_is_the_one_placed_later() {
    of_two_copies_the_later_counts(two_segments(3), 0, 0);
    let mut sets = two_segments(9);
    for name in 1..5 {
        sets.delete(Owner(0), KEYED, &[name], hash(&[name])).expect("not lent");
    }
    sets.commit(Owner(0));
    of_two_copies_the_later_counts(sets, 12, 1);
}

#[test]
fn a_secondary_index_orders_by_fields() {
    let (mut sets, owner) = (two_sets(), Owner(0));
    for (key, value) in [(b"x", [1, 0, 2]), (b"y", [0, 0, 2]), (b"z", [9, 255, 1])] {
        with_room(&mut sets, KEYED, |sets| sets.insert(owner, KEYED, key, hash(key), &value)).expect("room");
    }
    let keys = |sets: &Sets, from, to| sets.range(KEYED, 1, from, to).map(|(_, key)| key[0]).collect::<Vec<u8>>();
    let all = Bound::Unbounded;
    assert_eq!(keys(&sets, all, all), b"zyx");
    assert_eq!(keys(&sets, Bound::Included(&[2, 0]), all), b"yx");
    assert_eq!(keys(&sets, Bound::Excluded(&[2, 0, 0]), all), b"x");
    assert_eq!(keys(&sets, all, Bound::Excluded(&[2, 0, 1])), b"zy");
    assert_eq!(keys(&sets, Bound::Excluded(&[3]), Bound::Included(&[2])), b"");
    sets.roll_back(owner);
    assert_eq!(keys(&sets, all, all), b"");
}

#[test]
fn a_rollback_gives_room_back() {
    let (mut sets, owner) = (two_segments(3), Owner(0));
    let taken = sets.bytes(KEYED);
    for (name, length) in [(0, 1600), (8, 1600), (10, 4000), (11, 9000)] {
        sets.replace(owner, KEYED, &[name], hash(&[name]), &vec![1; length]).expect("room");
        assert!(sets.bytes(KEYED) > taken);
        sets.roll_back(owner);
        assert_eq!(sets.bytes(KEYED), taken, "record {name} grew to {length} bytes");
    }
    sets.replace(owner, KEYED, &[0], hash(&[0]), &[1; 500]).expect("room");
    sets.commit(owner);
    assert_eq!(sets.bytes(KEYED), taken - 1000);
    sets.check().expect("sound");
}

/// A backup with a record from a black segment and its successor from a white one, of which it has the insert but not the
/// deletion before it, would lose the record at a restart.
#[test]
fn a_record_deleted_from_a_black_segment_does_not_come_back_in_a_white_one() {
    let (mut sets, owner) = (two_sets(), Owner(0));
    sets.set_logging(Logging::Actions, false);
    for key in [b"a", b"b"] {
        with_room(&mut sets, KEYED, |sets| sets.insert(owner, KEYED, key, hash(key), &[0; 9_000])).expect("room");
    }
    sets.commit(owner);
    assert_eq!(sets.segments(KEYED), 2);
    sets.begin_capture(Capture::BlackWhite(SweepUnit::Action));
    let mut images = [frame(16 << 10), frame(16 << 10)];
    sets.image(KEYED, 0, &mut images[0]);
    sets.mark_taken(KEYED, 0);
    assert_eq!(sets.delete(owner, KEYED, b"a", hash(b"a")), Ok(true));
    with_room(&mut sets, KEYED, |sets| sets.insert(owner, KEYED, b"a", hash(b"a"), &[1; 10])).expect("room");
    let (redo, included) = (sets.redo(owner).to_vec(), sets.included(owner).collect::<Vec<_>>());
    sets.commit(owner);
    sets.image(KEYED, 1, &mut images[1]);
    sets.mark_taken(KEYED, 1);
    sets.end_capture();

    let mut restarted = two_sets();
    for (number, image) in (0..).zip(images) {
        restarted.load(KEYED, number, 0, image).expect("sound");
    }
    restarted.finish_load();
    restarted.apply(&redo, |position| included[position], Frame::allocate).expect("sound redo");
    assert_eq!(restarted.get(owner, KEYED, b"a", hash(b"a")), Ok(Some(&[1; 10][..])));
}

#[test]
fn a_transaction_can_be_run_again_if_all_that_it_has_seen_had_one_colour() {
    let mut sets = two_sets();
    sets.set_logging(Logging::Procedures, false);
    for key in [b"a", b"b"] {
        with_room(&mut sets, KEYED, |sets| sets.insert(Owner(0), KEYED, key, hash(key), &[0; 9_000])).expect("room");
    }
    sets.commit(Owner(0));
    sets.begin_capture(Capture::BlackWhite(SweepUnit::Transaction));
    sets.mark_taken(KEYED, 0);
    let (black, white) = (b"a", b"b");
    let change = |sets: &mut Sets, key: &[u8]| sets.modify(Owner(0), KEYED, key, hash(key), |value| value[0] += 1);
    let ended = |sets: &mut Sets| {
        let repeatable = sets.is_replayable(Owner(0));
        sets.roll_back(Owner(0));
        repeatable
    };
    change(&mut sets, black).expect("it has touched nothing else");
    assert_eq!(change(&mut sets, white), Err(Refusal::MixedColours(1)));
    assert_eq!(ended(&mut sets), Some(false));
    change(&mut sets, white).expect("it has touched nothing else");
    assert_eq!(sets.insert(Owner(0), KEYED, black, hash(black), b""), Err(Refusal::MixedColours(0)));
    assert_eq!(ended(&mut sets), Some(true));
    // A missing record has no colour; nor has one that was inserted and rolled back.
    assert_eq!(sets.get(Owner(0), KEYED, b"c", hash(b"c")), Ok(None));
    change(&mut sets, black).expect("it has touched nothing else");
    assert_eq!(ended(&mut sets), None);
    change(&mut sets, white).expect("it has touched nothing else");
    let position = sets.position(Owner(0));
    change(&mut sets, white).expect("the same");
    sets.roll_back_to(Owner(0), position);
    assert_eq!(ended(&mut sets), None);
}
