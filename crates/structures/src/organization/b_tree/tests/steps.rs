//! Single steps: splits in ascending order, limits, long values, loading.

use super::*;

fn number(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

#[test]
fn ascending_inserts_leave_full_pages() {
    let mut store = Store::new(4096);
    for key in 0..3000 {
        store.put(&number(key), &[1; 50]);
    }
    store.check();
    let least = 3000 * slotted::entry_size(0, 8, 50) / body_size(4096);
    assert!((store.pages_in_use() as usize) < least + 6, "{} pages where {least} suffice", store.pages_in_use());
}

#[test]
fn largest_records_fit_and_larger_ones_are_refused() {
    for page_size in [512, 4096, 65_536] {
        let mut store = Store::new(page_size);
        let key_len = key_len_max(page_size);
        let value_len = value_len_max(page_size, key_len);
        for index in (0..60_u8).map(|index| index.wrapping_mul(37)) {
            let mut key = vec![b'k'; key_len];
            key[key_len - 1] = index;
            store.put(&key, &vec![index; value_len]);
        }
        store.check();
        assert_eq!(store.scan(Bound::Unbounded).len(), 60);
        let refused = |key: &[u8], value_len| loop {
            match make_room(&store, PARTITION, key, value_len) {
                Err(Need::Fail(crate::Error::TooLarge { what, .. })) => return what,
                Err(Need::Page(_)) => {}
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&vec![1; key_len + 1], 0), "a key");
        assert_eq!(refused(&[1; 8], value_len_max(page_size, 8) + 1), "a stored value");
    }
}

#[test]
fn long_values_survive_in_chains() {
    let mut store = Store::new(512);
    let mut value = vec![0; 5000];
    Random::stream(1, "value").fill(&mut value);
    let mut next = 0;
    let mut end = value.len();
    let mut chain = Vec::new();
    while end > 0 {
        let start = overflow::tail_start(end, 512);
        let (number, edits) = store.ask(|pages| overflow::add(pages, PARTITION, next, &value[start..end]));
        store.apply(&edits);
        chain.push(number);
        (next, end) = (number, start);
    }
    let mut read = Vec::new();
    while next != 0 {
        let (following, part) = overflow::read(&store.pages[&PageId::new(PARTITION, next)]).expect("sound");
        read.extend_from_slice(part);
        next = following;
    }
    assert!(read == value);
    assert!(overflow::read(&store.pages[&PageId::new(PARTITION, ROOT)]).is_err());
    for number in chain {
        let edits = store.ask(|pages| allocator::free(pages, PageId::new(PARTITION, number)));
        store.apply(&edits);
    }
    store.check();
}

#[test]
fn a_full_file_is_reported_before_anything_changes() {
    let mut store = Store::new(512);
    store.capacity = 2;
    let before = store.pages.clone();
    let mut key = 0;
    let need = loop {
        match make_room(&store, PARTITION, &number(key), 60) {
            Ok(None) => {
                store.put(&number(key), &[0; 60]);
                key += 1;
            }
            Err(Need::Page(_)) => store.absence.get_mut().1.clear(),
            other => break other,
        }
    };
    assert_eq!(need, Err(Need::Space(PARTITION)));
    assert_eq!(store.pages.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
}

#[test]
fn loading_makes_the_tree_that_inserting_would() {
    for (page_size, fill) in [(512, 1.0), (512, 0.7), (4096, 0.9), (65_536, 1.0)] {
        for records in [0, 1, 7, 5000] {
            let mut random = Random::stream(records, "load");
            let mut expected = BTreeMap::new();
            for index in 0..records {
                let key = match index % 3 {
                    0 => number(index).to_vec(),
                    1 => format!("customer/of/long/name/{:05}", random.below(99_999)).into_bytes(),
                    _ => vec![random.below(256) as u8; random.between(0, key_len_max(page_size) as u64) as usize],
                };
                let value = vec![index as u8; random.between(0, value_len_max(page_size, key.len()) as u64) as usize];
                expected.insert(key, value);
            }
            let mut store = Store::new(page_size);
            let mut loader = BulkLoader::new(PARTITION, page_size, fill);
            let mut done = Vec::new();
            for (key, value) in &expected {
                loader.push(key, value, &mut done);
                assert!(done.len() < 40, "pages come out as they are complete");
                done.drain(..).for_each(|edit| store.apply(&[edit]));
            }
            let pages = loader.finish(&mut done);
            done.drain(..).for_each(|edit| store.apply(&[edit]));
            store.capacity = pages;
            store.check();
            assert!(store.scan(Bound::Unbounded) == expected.into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn loading_fills_pages() {
    let mut loader = BulkLoader::new(PARTITION, 4096, 1.0);
    let mut done = Vec::new();
    for key in 0..20_000 {
        loader.push(&number(key), &[3; 100], &mut done);
    }
    let pages = loader.finish(&mut done) as usize;
    let per_leaf = body_size(4096) / slotted::entry_size(0, 8, 100);
    assert!(pages <= 20_000 / per_leaf + 8, "{pages} pages of {per_leaf} records");
}

/// How full the leaves and the inner nodes are on average.
fn fill(store: &Store) -> [f64; 2] {
    let mean = |is_of: fn(u8) -> bool| {
        let nodes = store.pages.values().filter(|page| header::kind(page) == Some(PageKind::Node));
        let nodes: Vec<_> = nodes.filter(|page| is_of(slotted::level(page))).collect();
        let used = |page: &&Vec<u8>| 1.0 - slotted::room(page) as f64 / body_size(page.len()) as f64;
        nodes.iter().map(used).sum::<f64>() / nodes.len().max(1) as f64
    };
    [mean(|level| level == 0), mean(|level| level > 0)]
}

/// A tree of the first records of 40 owners, loaded, to which further ones come, each owner's in ascending order, in turns of `batch`.
fn owners(batch: u32) -> Store {
    let key = |owner: u32, number: u32| [owner.to_be_bytes(), number.to_be_bytes()].concat();
    let mut store = Store::new(4096);
    let (mut loader, mut done) = (BulkLoader::new(PARTITION, 4096, 1.0), Vec::new());
    for owner in 0..40 {
        (0..100).for_each(|number| loader.push(&key(owner, number), &[1; 50], &mut done));
    }
    store.capacity = loader.finish(&mut done);
    store.apply(&done);
    let (mut random, mut next) = (Random::stream(batch.into(), "owners"), [100; 40]);
    for _ in 0..40_000 / batch {
        let owner = random.below(40) as usize;
        for _ in 0..batch {
            store.put(&key(owner as u32, next[owner]), &[1; 50]);
            next[owner] += 1;
        }
    }
    store.check();
    store
}

#[test]
fn keys_that_ascend_within_a_tree_leave_full_pages() {
    for batch in [1, 10] {
        let store = owners(batch);
        let [leaves, inner] = fill(&store);
        assert!(leaves > 0.9, "leaves are filled to {leaves:.2} with batches of {batch}");
        assert!(inner > 0.6, "inner nodes are filled to {inner:.2} with batches of {batch}");
    }
}

#[test]
fn keys_at_random_places_fill_pages_as_ever() {
    // Alone, and in ascending batches that end soon.
    for (batch, least) in [(1, 0.67), (4, 0.65), (10, 0.63)] {
        let (mut store, mut random) = (Store::new(4096), Random::stream(batch, "places"));
        for _ in 0..20_000 / batch {
            let place = random.below(1 << 40);
            for index in 0..batch {
                store.put(&number(place << 8 | index), &[1; 50]);
            }
        }
        store.check();
        let [leaves, _] = fill(&store);
        assert!(leaves > least, "leaves are filled to {leaves:.2} with batches of {batch}");
    }
}
