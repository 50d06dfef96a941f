//! Random operations against a map.

use super::*;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// How keys are drawn.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// Eight-byte numbers, few of them.
    Numbers,
    /// Eight-byte numbers that mostly grow.
    Ascending,
    /// Long keys with much in common and zeros in awkward places.
    Awkward,
}

struct Draw {
    random: Random,
    keys: Keys,
    page_size: usize,
    next: u64,
}

impl Draw {
    fn key(&mut self) -> Vec<u8> {
        match self.keys {
            Keys::Numbers => self.random.below(4000).to_be_bytes().to_vec(),
            Keys::Ascending => {
                self.next += 1 + self.random.below(3);
                let number = if self.random.chance(0.9) { self.next } else { self.random.below(self.next) };
                number.to_be_bytes().to_vec()
            }
            Keys::Awkward => {
                let parts = [&b"\0"[..], b"a", b"\0\0\0\0\0\0\0\0", b"abcdefgh", b"customer/order/", b"\xff\xff"];
                let mut key = Vec::new();
                for _ in 0..self.random.below(9) {
                    key.extend_from_slice(parts[self.random.below(6) as usize]);
                }
                key.truncate(key_len_max(self.page_size));
                key
            }
        }
    }

    fn value(&mut self, key: &[u8]) -> Vec<u8> {
        let largest = value_len_max(self.page_size, key.len());
        let limit = if self.random.chance(0.1) { largest } else { largest.min(60) };
        let mut value = vec![0; self.random.between(0, limit as u64) as usize];
        self.random.fill(&mut value);
        value
    }
}

fn compare(store: &mut Store, model: &Model, draw: &mut Draw) {
    store.check();
    let pairs = |records: Vec<(&Vec<u8>, &Vec<u8>)>| -> Vec<_> {
        records.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    assert!(store.scan(Bound::Unbounded) == pairs(model.iter().collect()));
    assert!(store.scan_backward(Bound::Unbounded) == pairs(model.iter().rev().collect()));
    for _ in 0..10 {
        let known = model.keys().nth(draw.random.below(model.len().max(1) as u64) as usize).cloned();
        let key = if draw.random.chance(0.5) { known.unwrap_or_default() } else { draw.key() };
        let key = key.as_slice();
        assert_eq!(store.get(key).as_ref(), model.get(key));
        for from in [Bound::Included(key), Bound::Excluded(key)] {
            let above = model.range::<[u8], _>((from, Bound::Unbounded)).collect();
            let below = model.range::<[u8], _>((Bound::Unbounded, from)).rev().collect();
            assert!(store.scan(from) == pairs(above));
            assert!(store.scan_backward(from) == pairs(below));
        }
    }
}

fn run(page_size: usize, keys: Keys, batches: u64) {
    let mut store = Store::new(page_size);
    let mut model = Model::new();
    let mut draw = Draw { random: Random::stream(page_size as u64, "model"), keys, page_size, next: 0 };
    // Batches alternate between growing and shrinking, so that the tree gains and loses levels.
    for batch in 0..batches {
        let growth = if batch % 4 < 2 { 0.8 } else { 0.1 };
        for _ in 0..400 {
            if draw.random.chance(growth) {
                let key = draw.key();
                let value = draw.value(&key);
                store.put(&key, &value);
                model.insert(key, value);
            } else if !model.is_empty() {
                let index = draw.random.below(model.len() as u64) as usize;
                let key = model.keys().nth(index).expect("below the count").clone();
                store.delete(&key);
                model.remove(&key);
            }
        }
        compare(&mut store, &model, &mut draw);
    }
    for key in model.keys() {
        store.delete(key);
    }
    store.check();
    assert_eq!(store.pages_in_use(), 2, "an empty tree is one leaf");
}

#[test]
fn small_pages_hold_what_a_map_holds() {
    for keys in [Keys::Numbers, Keys::Ascending, Keys::Awkward] {
        run(512, keys, 12);
        run(1024, keys, 8);
    }
}

#[test]
fn large_pages_hold_what_a_map_holds() {
    for keys in [Keys::Numbers, Keys::Ascending, Keys::Awkward] {
        run(4096, keys, 8);
        run(65_536, keys, 6);
    }
}
