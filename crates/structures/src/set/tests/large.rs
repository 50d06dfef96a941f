//! What others have to look at of a large transaction, and of a large load.

use super::*;
use std::cell::Cell;

const RECORDS: u64 = 20_000;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A set with that many records, in some 250 segments.
fn large_set() -> Sets {
    let (mut sets, owner) = (two_sets(), Owner(0));
    for number in 0..RECORDS {
        let insert = |sets: &mut Sets| sets.insert(owner, KEYED, &key(number), hash(&key(number)), &[1; 150]);
        with_room(&mut sets, KEYED, insert).expect("room");
    }
    sets.commit(owner);
    assert!(sets.segments(KEYED) > 200, "{} segments", sets.segments(KEYED));
    sets
}

/// Changes records, going through the segments again and again.
fn change(sets: &mut Sets, owner: Owner, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let number = number * 7_919 % RECORDS;
        let change = |value: &mut [u8]| value[20] += 1;
        sets.modify(owner, KEYED, &key(number), hash(&key(number)), change).expect("it is there");
    }
}

fn looked_at(sets: &Sets) -> &Cell<usize> {
    &sets.set(KEYED).looked_at
}

fn all_images(sets: &Sets) -> Vec<Frame> {
    let image = |segment| {
        let mut image = frame(16 << 10);
        sets.image(KEYED, segment, &mut image);
        image
    };
    (0..sets.segments(KEYED)).map(image).collect()
}

fn assert_same(images: &[Frame], others: &[Frame], what: &str) {
    assert!(images.iter().zip(others).all(|(one, other)| one[..] == other[..]), "{what}");
}

#[test]
fn a_commit_that_saves_segments_for_a_sweep_looks_at_each_change_once() {
    let (mut sets, owner) = (large_set(), Owner(1));
    let before = all_images(&sets);
    sets.begin_capture(Capture::CopyOnUpdate);
    change(&mut sets, owner, 0..RECORDS);
    looked_at(&sets).set(0);
    sets.commit(owner);
    assert_eq!(sets.snapshots_taken(), u64::from(sets.segments(KEYED)));
    let looked_at = looked_at(&sets).get();
    assert!(looked_at <= 2 * RECORDS as usize, "{looked_at} looks at {RECORDS} changes");
    assert_same(&before, &all_images(&sets), "the sweep gets the state of its beginning");
    sets.end_capture();
    sets.check().expect("sound");
}

#[test]
fn images_beside_a_large_transaction_look_at_each_change_once() {
    let (mut sets, owner) = (large_set(), Owner(1));
    let before = all_images(&sets);
    change(&mut sets, owner, 0..RECORDS / 2);
    let half = sets.position(owner);
    change(&mut sets, owner, RECORDS / 2..RECORDS);
    let check = |sets: &Sets, changes: u64, what: &str| {
        looked_at(sets).set(0);
        assert_same(&before, &all_images(sets), what);
        let looked_at = looked_at(sets).get();
        assert!(looked_at <= changes as usize, "{what}: {looked_at} looks at {changes} changes");
    };
    check(&sets, RECORDS, "at its height");
    sets.roll_back_to(owner, half);
    check(&sets, RECORDS / 2, "half of it is taken back");
    change(&mut sets, owner, RECORDS / 2..RECORDS);
    check(&sets, RECORDS, "at its height again");
    sets.roll_back(owner);
    check(&sets, 0, "all of it is taken back");
    sets.check().expect("sound");
}

#[test]
fn a_load_is_taken_out_as_a_whole_unless_others_are_in_its_way() {
    let (owner, other) = (Owner(0), Owner(1));
    for is_disturbed in [false, true] {
        let mut sets = large_set();
        looked_at(&sets).set(0);
        if is_disturbed {
            change(&mut sets, other, 5..6);
        }
        let unfinished = |sets: &mut Sets| sets.insert(owner, KEYED, b"last", hash(b"last"), &[1; 150]);
        with_room(&mut sets, KEYED, unfinished).expect("room");
        let mut entries = sets.unload(owner, KEYED);
        assert_eq!((sets.records(KEYED), entries.len()), if is_disturbed { (1, 0) } else { (0, 2) });
        assert_eq!(looked_at(&sets).get(), if is_disturbed { RECORDS as usize - 1 } else { 0 });
        assert!(entries.iter_mut().all(|entries| entries.give_up(RECORDS as usize) && !entries.give_up(1)));
        sets.roll_back(other);
        sets.check().expect("sound");
        assert!((0..sets.segments(KEYED)).all(|segment| sets.is_dirty(KEYED, segment, 0)), "it is written anew");
        let again = |sets: &mut Sets| sets.insert(owner, KEYED, &key(5), hash(&key(5)), &[2; 150]);
        with_room(&mut sets, KEYED, again).expect("room");
        sets.commit(owner);
        sets.check().expect("sound");
    }
}
