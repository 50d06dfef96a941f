//! Damage planted in sound nodes has to be found.

use super::*;

fn leaf() -> (Vec<u8>, PageId, Expected) {
    let id = PageId::new(PARTITION, 9);
    let mut page = vec![0; 1024];
    header::format(&mut page, id);
    let mut builder = slotted::Builder::new(1024, 0, b"tree/b", b"tree/d");
    for key in [&b"tree/b"[..], b"tree/birch with a long name", b"tree/c", b"tree/cedar with a long name"] {
        builder.push(key, b"value");
    }
    builder.finish().as_change().apply(&mut page, Lsn(1));
    (page, id, Expected { level: Some(0), lower: b"tree/b".to_vec(), upper: b"tree/d".to_vec() })
}

fn inner() -> (Vec<u8>, PageId, Expected) {
    let id = PageId::new(PARTITION, ROOT);
    let mut page = vec![0; 512];
    header::format(&mut page, id);
    let mut builder = slotted::Builder::new(512, 2, &[], &[]);
    for (key, child) in [(&b""[..], 5_u32), (b"f", 6), (b"p", 7)] {
        builder.push(key, &child.to_le_bytes());
    }
    builder.finish().as_change().apply(&mut page, Lsn(1));
    (page, id, Expected::ROOT)
}

/// The words with which the damage that `plant` does is found.
fn found(node: (Vec<u8>, PageId, Expected), plant: impl FnOnce(&mut Vec<u8>)) -> String {
    let (mut page, id, expected) = node;
    check_node(&page, id, &expected).expect("sound before");
    plant(&mut page);
    check_node(&page, id, &expected).expect_err("damaged").join("; ")
}

fn assert_found(words: &str, message: &str) {
    assert!(message.contains(words), "'{words}' is not in '{message}'");
}

#[test]
fn sound_nodes_tell_their_children() {
    let (page, id, expected) = inner();
    let children = check_node(&page, id, &expected).expect("sound");
    let bounds: Vec<_> = children.iter().map(|child| (child.number, &child.expected)).collect();
    let part = |lower: &[u8], upper: &[u8]| Expected { level: Some(1), lower: lower.to_vec(), upper: upper.to_vec() };
    assert_eq!(bounds, [(5, &part(b"", b"f")), (6, &part(b"f", b"p")), (7, &part(b"p", b""))]);
}

#[test]
fn damage_in_slots_and_heap_is_found() {
    let slot = |index: usize| SLOTS + index * NODE_SLOT;
    assert_found("do not fit", &found(leaf(), |page| page[7] = 9));
    assert_found("not a heap", &found(leaf(), |page| page[6] = 3));
    assert_found("not a heap", &found(leaf(), |page| page[34] = 1));
    assert_found("not inside the heap", &found(leaf(), |page| page[slot(1) + 1] = 0));
    assert_found("not inside the heap", &found(leaf(), |page| page[slot(1) + 1] = 0xff));
    assert_found("overlap", &found(leaf(), |page| page.copy_within(slot(0)..slot(0) + 2, slot(2))));
    assert_found("goes on behind", &found(leaf(), |page| page[slot(0) + 4] = 1));
    assert_found("not above the one before", &found(leaf(), |page| slot_swap(page, slot(1), slot(2))));
    assert_found("outside the fences", &found(leaf(), |page| page[slot(0) + 11] = b'a'));
    assert_found("outside the fences", &found(leaf(), |page| page[slot(3) + 11] = b'x'));
}

fn slot_swap(page: &mut [u8], a: usize, b: usize) {
    for offset in 0..NODE_SLOT {
        page.swap(a + offset, b + offset);
    }
}

#[test]
fn damage_in_fences_and_header_is_found() {
    assert_found("the prefix is", &found(leaf(), |page| page[36] = 2));
    assert_found("the prefix is", &found(leaf(), |page| *page.last_mut().expect("a page") = b'b'));
    assert_found("not the separators", &found(leaf(), |page| *page.last_mut().expect("a page") = b'e'));
    assert_found("not below", &found(leaf(), |page| *page.last_mut().expect("a page") = b'a'));
    assert_found("its level is 1", &found(leaf(), |page| page[5] = 1));
    assert_found("not a b-tree node", &found(leaf(), |page| page[4] = PageKind::Append as u8));
    assert_found("it says that", &found(leaf(), |page| page[8] = 8));
}

#[test]
fn damage_in_inner_nodes_is_found() {
    assert_found("is page 1", &found(inner(), |page| slotted::value_mut(page, 1).copy_from_slice(&[1, 0, 0, 0])));
    assert_found("not a page number", &found(inner(), |page| slotted::replace(page, 2, b"abc")));
    assert_found("without children", &found(inner(), |page| (0..3).for_each(|_| slotted::remove(page, 0))));
    assert_found("first entry has a key", &found(inner(), |page| slotted::remove(page, 0)));
}

/// No byte, whatever it becomes, makes the check panic or the sound page's keys change unnoticed.
#[test]
fn no_damage_makes_the_check_panic() {
    let mut random = Random::stream(1, "damage");
    for node in [leaf(), inner()] {
        for at in (4..SLOTS + 4 * NODE_SLOT).chain(node.0.len() - 120..node.0.len()) {
            for _ in 0..8 {
                let mut page = node.0.clone();
                page[at] = random.below(256) as u8;
                let again = random.between(4, page.len() as u64 - 1) as usize;
                page[again] = random.below(256) as u8;
                let _ = check_node(&page, node.1, &node.2);
            }
        }
    }
}

/// The page that a call finds not to be the node that it should be.
fn misplaced<T: std::fmt::Debug>(store: &Store, call: impl Fn(&Store) -> Result<T, Need>) -> Option<PageId> {
    loop {
        match call(store) {
            Err(Need::Page(_)) => store.absence.borrow_mut().1.clear(),
            Err(Need::Fail(crate::Error::DamagedPage { page, .. })) => return Some(page),
            other => {
                assert!(other.is_ok(), "{other:?}");
                return None;
            }
        }
    }
}

#[test]
fn a_scan_that_comes_to_an_old_leaf_names_it_and_ends() {
    let mut store = Store::new(512);
    for key in 0..200_u32 {
        store.put(&key.to_be_bytes(), b"value");
    }
    let first = store.ask(|store| scan::forward(store, PARTITION, Bound::Unbounded));
    let fence = first.fence.expect("there are several leaves");
    let second = store.ask(|store| scan::forward(store, PARTITION, Bound::Included(&fence)));
    let behind = second.fence.expect("and this is not the last");
    store.pages.insert(second.page, store.pages[&first.page].clone());

    let old = Some(second.page);
    let forward = |bound| misplaced(&store, |store| scan::forward(store, PARTITION, bound));
    assert_eq!([forward(Bound::Included(&fence)), forward(Bound::Excluded(&fence))], [old; 2]);
    let backward = |bound| misplaced(&store, |store| scan::backward(store, PARTITION, bound));
    assert_eq!([backward(Bound::Included(&fence)), backward(Bound::Excluded(&behind))], [old; 2]);
    assert_eq!([forward(Bound::Unbounded), forward(Bound::Included(&behind)), backward(Bound::Unbounded)], [None; 3]);
}
