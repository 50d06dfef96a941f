//! What descents side by side ask for.

use super::*;
use crate::organization::b_tree;

/// A tree some of whose pages are not in memory.
pub(super) struct Partial<'a> {
    pub pages: &'a BTreeMap<PageId, Vec<u8>>,
    pub absent: BTreeSet<PageId>,
    pub asked: RefCell<BTreeSet<PageId>>,
}

impl Pages for Partial<'_> {
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        if self.absent.contains(&id) { Err(Need::Page(id)) } else { Ok(&self.pages[&id]) }
    }

    fn prefetch_header(&self, id: PageId) -> Option<&[u8]> {
        self.asked.borrow_mut().insert(id);
        self.page(id).ok()
    }

    fn capacity(&self, _: PartitionId) -> u32 {
        self.pages.len() as u32
    }

    fn page_size(&self, _: PartitionId) -> usize {
        PAGE_SIZE_MIN
    }
}

pub(super) fn key(number: u64) -> [u8; 8] {
    (number * 3).to_be_bytes()
}

/// A tree of these many records.
pub(super) fn tree(records: u64) -> Store {
    let mut store = Store::new(PAGE_SIZE_MIN);
    for number in 0..records {
        store.put(&key(number), &[7; 30]);
    }
    store
}

/// The pages on the way to a key that are in memory, and the first one that is not.
fn way(pages: &Partial<'_>, key: &[u8]) -> (Vec<PageId>, Option<PageId>) {
    let (mut id, mut way) = (PageId::new(PARTITION, ROOT), Vec::new());
    loop {
        let Ok(page) = pages.page(id) else { return (way, Some(id)) };
        way.push(id);
        if slotted::level(page) == 0 {
            return (way, None);
        }
        id.number = child(page, slot_for(page, key));
    }
}

#[test]
fn every_page_on_the_way_is_asked_for_and_those_that_lack_are_named() {
    let store = tree(2_000);
    let mut random = Random::stream(3, "prefetch");
    for round in 0..200 {
        let absent = |id: &PageId| id.number > 1 && random.chance(0.2 * f64::from(round % 3));
        let absent = store.pages.keys().copied().filter(absent).collect();
        let pages = Partial { pages: &store.pages, absent, asked: RefCell::default() };
        // More than one group, and keys that there are none of.
        let keys: Vec<[u8; 8]> = (0..random.below(40)).map(|_| random.below(6_100).to_be_bytes()).collect();
        let mut lacked = Vec::new();
        b_tree::prefetch(&pages, PARTITION, &keys, &mut lacked);
        let (ways, firsts): (Vec<_>, Vec<_>) = keys.iter().map(|key| way(&pages, key)).unzip();
        let mut expected: Vec<PageId> = firsts.into_iter().flatten().collect();
        let mut asked: BTreeSet<PageId> = ways.into_iter().flatten().chain(expected.iter().copied()).collect();
        asked.insert(PageId::new(PARTITION, ROOT));
        assert_eq!(*pages.asked.borrow(), asked);
        for group in keys.chunks(b_tree::GROUP_MAX) {
            let leaves = b_tree::leaves_of(&pages, PARTITION, group, &mut Vec::new());
            let expected: Vec<_> = group.iter().map(|key| leaf_of(&pages, PARTITION, key).ok()).collect();
            let has_come = |leaf: &Option<PageId>| leaf.filter(|leaf| !pages.absent.contains(leaf));
            assert!(leaves.iter().take(group.len()).copied().eq(expected.iter().map(has_come)));
        }
        expected.sort_unstable();
        lacked.sort_unstable();
        assert_eq!(lacked, expected);
    }
}

#[test]
fn a_root_that_lacks_is_named_once() {
    let store = tree(10);
    let root = PageId::new(PARTITION, ROOT);
    let pages = Partial { pages: &store.pages, absent: [root].into(), asked: RefCell::default() };
    let mut lacked = Vec::new();
    b_tree::prefetch(&pages, PARTITION, &[key(1), key(2)], &mut lacked);
    assert_eq!(lacked, [root]);
}

#[test]
fn a_page_of_another_kind_or_level_ends_the_descent() {
    let mut store = tree(2_000);
    let keys: Vec<[u8; 8]> = (0..2_000).map(key).collect();
    let allocator = store.pages[&PageId::new(PARTITION, 0)].clone();
    let root = store.pages[&PageId::new(PARTITION, ROOT)].clone();
    let mut random = Random::stream(4, "prefetch");
    for (id, page) in &mut store.pages {
        if id.number > ROOT && random.chance(0.3) {
            page.clone_from(if random.chance(0.5) { &allocator } else { &root });
        }
    }
    let pages = Partial { pages: &store.pages, absent: BTreeSet::new(), asked: RefCell::default() };
    let mut lacked = Vec::new();
    b_tree::prefetch(&pages, PARTITION, &keys, &mut lacked);
    assert_eq!(lacked, [], "what is wrong is in memory");
}
