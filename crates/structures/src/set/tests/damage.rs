//! Arbitrary bytes as images and as redo.

use super::*;
use proptest::prelude::*;

/// An image with some records, of which `edits` then overwrite bytes; the checksum is right again afterwards.
fn load_damaged(keys: Keys, edits: &[(usize, u8)]) -> Result<(), SegmentDamage> {
    let (partition, owner) = (if keys == Keys::Keyed { KEYED } else { ARRIVAL }, Owner(0));
    let mut sets = two_sets();
    for number in 0..40_u8 {
        let value = vec![number; usize::from(number) * 3];
        match keys {
            Keys::Keyed => with_room(&mut sets, partition, |sets| {
                sets.insert(owner, partition, &[number], hash(&[number]), &value)
            }),
            Keys::Arrival => with_room(&mut sets, partition, |sets| sets.append(owner, partition, &value).map(|_| ())),
        }
        .expect("room");
    }
    sets.commit(owner);
    let mut image = frame(16 << 10);
    sets.image(partition, 0, &mut image);
    for (at, byte) in edits {
        image[*at] = *byte;
    }
    layout::reseal(&mut image);
    let mut sets = two_sets();
    let loaded = sets.load(partition, 0, 0, image);
    sets.finish_load();
    sets.check().expect("sound, whatever was loaded");
    use_all(&mut sets, partition);
    loaded
}

/// Changes every record, and rolls that back.
fn use_all(sets: &mut Sets, partition: PartitionId) {
    let keys: Vec<Vec<u8>> = sets.iterate(partition).map(|(key, _)| key.to_vec()).collect();
    let owner = Owner(0);
    for (number, key) in keys.iter().enumerate() {
        let grown = vec![7; number * 40];
        with_room(sets, partition, |sets| sets.replace(owner, partition, key, hash(key), &grown)).expect("it is there");
        assert!(number % 3 > 0 || sets.delete(owner, partition, key, hash(key)) == Ok(true));
    }
    sets.check().expect("sound after changes");
    sets.roll_back(owner);
    sets.check().expect("sound after a rollback");
    assert_eq!(sets.records(partition), keys.len() as u64);
}

proptest! {
    #[test]
    fn damaged_images_are_refused_or_sound(
        keyed in any::<bool>(), edits in prop::collection::vec((4..4000_usize, any::<u8>()), 0..6),
    ) {
        let _ = load_damaged(if keyed { Keys::Keyed } else { Keys::Arrival }, &edits);
    }

    #[test]
    fn arbitrary_redo_is_refused_or_applied(redo in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut sets = two_sets();
        let _ = sets.apply(&redo, |_| false, Frame::allocate);
        sets.check().expect("sound, whatever was applied");
        use_all(&mut sets, KEYED);
        use_all(&mut sets, ARRIVAL);
    }
}

#[test]
fn a_foreign_image_is_refused() {
    assert_eq!(load_damaged(Keys::Keyed, &[]), Ok(()));
    assert_eq!(load_damaged(Keys::Arrival, &[]), Ok(()));
    for at in [4, 8, 12, 19, 64] {
        assert!(load_damaged(Keys::Keyed, &[(at, 0xff)]).is_err(), "byte {at}");
    }
    let mut sets = two_sets();
    assert!(sets.load(KEYED, 0, 0, frame(16 << 10)).is_err(), "zeros are no image");
}
