//! Records of a leaf of a b-tree, as they are locked and sent without it.
//!
//! What stands for a record is a number that is made of its key, for its slot becomes another one as others come and go. Records whose
//! keys have the same number are locked together, and with them those that could have it and are not there: so who has looked for a record
//! in vain finds none to the end of its transaction. They are sent together, too, so that a request names no key.
//!
//! Each is sent with its slot and its place on the page. Both stay what they are while any record of the leaf is locked, for whatever moves
//! one needs the page.

use engine::organization::b_tree::stored;
use engine::page::{PageKind, header, slotted};
use engine::set::Sets;
use std::ops::Range;

/// Two bytes each: the slot, where the value is on the page, the lengths of key and value.
const HEAD_SIZE: usize = 8;

/// The number under which the record of a key is locked on its leaf.
pub fn number_of(key: &[u8]) -> u16 {
    (Sets::hash(key) >> 48) as u16
}

/// Whether the page is a leaf.
pub(crate) fn is_leaf(page: &[u8]) -> bool {
    header::kind(page) == Some(PageKind::Node) && slotted::level(page) == 0
}

/// The records of a leaf that have this number, one behind the other.
pub(crate) fn pick(leaf: &[u8], number: u16) -> Vec<u8> {
    let (mut picked, mut key) = (Vec::new(), Vec::new());
    for slot in 0..slotted::count(leaf) {
        slotted::key_into(leaf, slot, &mut key);
        if number_of(&key) != number {
            continue;
        }
        let part = slotted::value_range(leaf, slot);
        let words = [slot, part.start as u16, key.len() as u16, part.len() as u16];
        picked.extend(words.into_iter().flat_map(u16::to_le_bytes));
        picked.extend_from_slice(&key);
        picked.extend_from_slice(&leaf[part]);
    }
    picked
}

/// A record among others that were picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PickedRecord {
    pub slot: u16,
    /// Where its stored value begins on the page.
    pub place: u16,
    /// Where its key, and its stored value, are among the bytes.
    pub key: Range<usize>,
    pub value: Range<usize>,
}

/// The records that were picked, up to what is none.
pub(crate) fn picked(bytes: &[u8]) -> impl Iterator<Item = PickedRecord> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let head = bytes.get(at..)?.first_chunk::<HEAD_SIZE>()?;
        let word = |index: usize| u16::from_le_bytes([head[2 * index], head[2 * index + 1]]);
        let key = at + HEAD_SIZE..at + HEAD_SIZE + usize::from(word(2));
        let value = key.end..key.end + usize::from(word(3));
        at = value.end;
        bytes.get(value.clone()).map(|_| PickedRecord { slot: word(0), place: word(1), key, value })
    })
}

/// Whether all of the bytes are records with this number that a node writes.
pub(crate) fn are_sound(bytes: &[u8], number: u16) -> bool {
    let mut end = 0;
    let is_right = |record: PickedRecord| {
        end = record.value.end;
        number_of(&bytes[record.key]) == number && stored::is_sound(&bytes[record.value])
    };
    picked(bytes).all(is_right) && end == bytes.len()
}

/// The record of a key, if it is among them.
pub(crate) fn find(bytes: &[u8], key: &[u8]) -> Option<PickedRecord> {
    picked(bytes).find(|record| &bytes[record.key.clone()] == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Lsn, PartitionId, Random};
    use engine::organization::b_tree;
    use engine::page::Change;
    use std::collections::BTreeMap;

    /// Keys of which many have the same number.
    fn keys(random: &mut Random) -> Vec<Vec<u8>> {
        let number = number_of(&random.word().to_be_bytes());
        let is_of = |key: &Vec<u8>| number_of(key) == number;
        let alike = (0..).map(|word: u64| word.to_be_bytes().to_vec()).filter(is_of).take(4);
        let others = (0..random.below(12)).map(|_| random.word().to_be_bytes()[..random.below(9) as usize].to_vec());
        let others: Vec<Vec<u8>> = others.collect();
        alike.chain(others).collect()
    }

    #[test]
    fn what_is_picked_is_what_a_leaf_has_of_a_number() {
        for seed in 0..40 {
            let mut random = Random::stream(seed, "picked records");
            let mut page = vec![0; 1024];
            for edit in
                b_tree::create(PartitionId(3), page.len()).iter().filter(|edit| edit.page.number == b_tree::ROOT)
            {
                edit.as_edit().change.apply(&mut page, Lsn::ZERO);
            }
            assert!(is_leaf(&page));
            let keys = keys(&mut random);
            let mut records: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            for key in &keys {
                if random.chance(0.7) {
                    let mut value = Vec::new();
                    stored::store_here(&vec![random.word() as u8; random.below(30) as usize], &mut value);
                    records.insert(key.clone(), value);
                }
            }
            for (slot, (key, value)) in records.iter().enumerate() {
                Change::InsertSlot { slot: slot as u16, key, value }.apply(&mut page, Lsn::ZERO);
            }
            for key in &keys {
                let number = number_of(key);
                let bytes = pick(&page, number);
                assert!(are_sound(&bytes, number), "seed {seed}");
                let of_number = records.iter().filter(|(other, _)| number_of(other) == number);
                let found = picked(&bytes).map(|record| (&bytes[record.key], &bytes[record.value]));
                assert!(found.eq(of_number.map(|(key, value)| (&key[..], &value[..]))), "seed {seed}");
                let record = find(&bytes, key);
                assert_eq!(record.is_some(), records.contains_key(key));
                if let Some(PickedRecord { slot, place, value, .. }) = record {
                    assert_eq!(slotted::search(&page, key), Ok(slot));
                    assert_eq!(page[usize::from(place)..][..value.len()], bytes[value]);
                }
                for end in 0..bytes.len() {
                    let is_whole = picked(&bytes).any(|record| record.value.end == end);
                    assert_eq!(are_sound(&bytes[..end], number), end == 0 || is_whole, "seed {seed}");
                }
            }
        }
    }
}
