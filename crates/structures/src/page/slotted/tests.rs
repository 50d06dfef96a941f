use super::*;
use crate::page::{Change, header};
use base::{Lsn, PageId, PartitionId, Random};
use std::collections::BTreeMap;

fn node(page_size: usize, lower: &[u8], upper: &[u8]) -> Vec<u8> {
    let mut page = vec![0; page_size];
    header::format(&mut page, PageId::new(PartitionId(1), 1));
    Builder::new(page_size, 0, lower, upper).finish().as_change().apply(&mut page, Lsn(1));
    page
}

fn check(page: &[u8], model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    assert_eq!(inspect(page), Vec::<String>::new());
    assert_eq!(usize::from(count(page)), model.len());
    let mut key = Vec::new();
    for (slot, (expected, record)) in model.iter().enumerate() {
        key_into(page, slot as u16, &mut key);
        assert_eq!((&key, value(page, slot as u16)), (expected, record.as_slice()));
        assert_eq!(search(page, expected), Ok(slot as u16));
    }
}

/// Keys with long common parts, equal heads, zeros at the end.
fn key(random: &mut Random) -> Vec<u8> {
    let mut key = b"prefix/".to_vec();
    for _ in 0..random.below(4) {
        key.extend_from_slice([&b"\0"[..], b"a", b"\0\0\0\0\0\0\0\0", b"abcdefgh"][random.below(4) as usize]);
    }
    key
}

#[test]
fn a_node_holds_what_a_map_holds() {
    for (page_size, seed) in [512, 1024, 4096, 65_536].into_iter().zip(0..) {
        let mut random = Random::stream(seed, "slotted");
        let mut page = node(page_size, b"prefix/", b"prefix0");
        assert_eq!(prefix(&page), b"prefix");
        let mut model = BTreeMap::new();
        for step in 0..2000 {
            let key = key(&mut random);
            let mut record = vec![0; random.below(page_size as u64 / 8) as usize];
            random.fill(&mut record);
            let found = search(&page, &key);
            let place = model.keys().filter(|known| **known < key).count() as u16;
            assert_eq!(found, if model.contains_key(&key) { Ok(place) } else { Err(place) });
            match found {
                Ok(slot) if random.chance(0.5) => {
                    remove(&mut page, slot);
                    model.remove(&key);
                }
                Ok(slot) if fits_replacing(&page, slot, record.len()) => {
                    replace(&mut page, slot, &record);
                    model.insert(key, record);
                }
                Err(slot) if fits(&page, key.len(), record.len()) => {
                    insert(&mut page, slot, &key, &record);
                    model.insert(key, record);
                }
                _ => {}
            }
            if step % 16 == 0 {
                check(&page, &model);
            }
        }
        check(&page, &model);
    }
}

#[test]
fn a_node_fills_to_the_last_byte() {
    for page_size in [512, 65_536] {
        let mut page = node(page_size, &[], &[]);
        let mut number = 0_u32;
        while fits(&page, 4, 10) {
            insert(&mut page, number as u16, &number.to_be_bytes(), &[7; 10]);
            number += 1;
        }
        assert_eq!(inspect(&page), Vec::<String>::new());
        assert_eq!(number as usize, (page_size - SLOTS) / entry_size(0, 4, 10));
        let left = room(&page);
        replace(&mut page, 3, &vec![9; 10 + left]);
        assert_eq!((room(&page), inspect(&page)), (0, Vec::new()));
        assert_eq!(value(&page, 3), vec![9; 10 + left]);
    }
}

#[test]
fn append_pages_hold_records_without_keys() {
    for page_size in [128, 4096, 65_536] {
        let mut page = vec![0; page_size];
        header::set_kind(&mut page, PageKind::Append);
        while fits(&page, 0, 16) {
            let slot = count(&page);
            Change::InsertSlot { slot, key: &[], value: &[slot as u8; 16] }.apply(&mut page, Lsn(2));
        }
        assert_eq!(inspect(&page), Vec::<String>::new());
        assert_eq!(usize::from(count(&page)), (page_size - SLOTS) / 20);
        for slot in 0..count(&page) {
            assert_eq!(value(&page, slot), [slot as u8; 16]);
        }
        value_mut(&mut page, 1).fill(0xee);
        assert_eq!((value(&page, 0), value(&page, 1)), (&[0; 16][..], &[0xee; 16][..]));
    }
}

#[test]
fn heads_order_as_keys_do() {
    let mut random = Random::stream(3, "heads");
    let mut keys: Vec<Vec<u8>> = (0..300).map(|_| key(&mut random)).collect();
    keys.sort();
    for prefix_len in [0, 3, 7, 9] {
        assert!(keys.windows(2).all(|pair| {
            pair[0].get(..prefix_len) != pair[1].get(..prefix_len)
                || head(&pair[0], prefix_len) <= head(&pair[1], prefix_len)
        }));
    }
    assert_eq!(head(b"ab", 1), u64::from(b'b') << 56);
    assert_eq!(head(b"abcdefghij", 8), (u64::from(b'i') << 56) | (u64::from(b'j') << 48));
    assert_eq!(head(b"abcdefghij", 10), 0);
}

#[test]
fn a_search_is_right_however_keys_are_spread() {
    let spreads: [fn(u64) -> u64; 5] =
        [|i| i, |i| i * i * i, |i| 1 << (i % 64), |i| if i < 250 { i } else { u64::MAX - i }, |i| i / 40];
    for spread in spreads {
        // Twelve-byte keys, so that equal heads are told apart by what follows them.
        let mut keys: Vec<Vec<u8>> =
            (0..300_u64).map(|i| [&spread(i).to_be_bytes()[..], &(i as u32).to_be_bytes()].concat()).collect();
        keys.sort();
        let mut page = node(65_536, &[], &[]);
        for (slot, key) in keys.iter().enumerate().filter(|(index, _)| index % 2 == 0) {
            insert(&mut page, slot as u16 / 2, key, b"");
        }
        for (index, key) in keys.iter().enumerate() {
            let expected = if index % 2 == 0 { Ok(index as u16 / 2) } else { Err(index as u16 / 2 + 1) };
            assert_eq!(search(&page, key), expected);
        }
    }
}

#[test]
fn entries_are_copied_to_what_inserting_them_gives() {
    let mut random = Random::stream(9, "copy");
    for round in 0..300 {
        let level = (round % 2) as u8;
        let mut keys: Vec<Vec<u8>> = (0..30).map(|_| key(&mut random)).filter(|key| key.len() > 7).collect();
        keys.sort();
        keys.dedup();
        let mut source = Builder::new(8192, level, b"prefix", b"prefix0");
        for (index, key) in keys.iter().enumerate() {
            source.push(key, &vec![index as u8; 4 * (1 - usize::from(level)) * index % 40 + 4]);
        }
        let mut page = vec![0; 8192];
        header::format(&mut page, PageId::new(PartitionId(1), 1));
        source.finish().as_change().apply(&mut page, Lsn(1));
        for slot in 0..count(&page).min(random.below(9) as u16 * u16::from(level == 0)) {
            let length = value(&page, slot).len().min(7);
            replace(&mut page, slot, &b"shorter"[..length]);
        }
        let from = random.below(keys.len() as u64) as usize;
        let to = random.between(from as u64, keys.len() as u64 - 1) as usize;
        // The fences that these keys allow, one that has nothing in common with them, and none.
        let fences: [(&[u8], &[u8]); 3] = [(&keys[from], &keys[to]), (b"", b"prefix0"), (b"", b"")];
        for (lower, upper) in fences {
            let mut expected = Builder::new(8192, level, lower, upper);
            let mut whole = Vec::new();
            for slot in from..to {
                key_into(&page, slot as u16, &mut whole);
                expected.push(&whole, value(&page, slot as u16));
            }
            let mut copied = Builder::new(8192, level, lower, upper);
            copied.copy(&page, from as u16..to as u16);
            assert_eq!(copied.finish(), expected.finish());
        }
    }
}
