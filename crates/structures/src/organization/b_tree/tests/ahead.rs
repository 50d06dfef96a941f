//! Which leaves are named before a scan is there.

use super::prefetch::{Partial, tree};
use super::*;
use crate::organization::b_tree;

const RECORDS: u64 = 3_000;

fn partial(store: &Store, absent: BTreeSet<PageId>) -> Partial<'_> {
    Partial { pages: &store.pages, absent, asked: RefCell::default() }
}

fn bound(random: &mut Random) -> Bound<Vec<u8>> {
    let key = random.below(3 * RECORDS + 10).to_be_bytes().to_vec();
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Excluded(key),
        _ => Bound::Included(key),
    }
}

/// Whether the page is a node right above leaves.
fn is_inner(page: &[u8]) -> bool {
    page[4] == PageKind::Node as u8 && slotted::level(page) == 1
}

fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// The leaves that an ascending scan visits: from fence to fence, until one is past its end.
fn visited_above(pages: &Partial<'_>, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Vec<PageId> {
    let (mut from, mut visited) = (from.clone(), Vec::new());
    loop {
        let range = b_tree::forward(pages, PARTITION, slice(&from)).expect("all is in memory");
        visited.push(range.page);
        let goes_on = |fence: &Vec<u8>| match to {
            Bound::Included(to) => fence <= to,
            Bound::Excluded(to) => fence < to,
            Bound::Unbounded => true,
        };
        match range.fence.filter(goes_on) {
            Some(fence) => from = Bound::Included(fence),
            None => return visited,
        }
    }
}

fn visited_below(pages: &Partial<'_>, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> Vec<PageId> {
    let (mut from, mut visited) = (from.clone(), Vec::new());
    loop {
        let range = b_tree::backward(pages, PARTITION, slice(&from)).expect("all is in memory");
        visited.push(range.page);
        let goes_on = |fence: &Vec<u8>| match to {
            Bound::Included(to) | Bound::Excluded(to) => fence > to,
            Bound::Unbounded => true,
        };
        match range.fence.filter(goes_on) {
            Some(fence) => from = Bound::Excluded(fence),
            None => return visited,
        }
    }
}

#[test]
fn the_leaves_named_are_those_that_a_scan_visits() {
    let store = tree(RECORDS);
    let pages = partial(&store, BTreeSet::new());
    let mut random = Random::stream(5, "leaves ahead");
    for _ in 0..400 {
        let (from, to, count) = (bound(&mut random), bound(&mut random), random.below(80) as usize);
        let mut expected = visited_above(&pages, &from, &to);
        expected.truncate(count);
        assert_eq!(b_tree::leaves_above(&pages, PARTITION, (slice(&from), slice(&to)), count), expected);
        let mut expected = visited_below(&pages, &from, &to);
        expected.truncate(count);
        let found = b_tree::leaves_below(&pages, PARTITION, (slice(&from), slice(&to)), count);
        assert_eq!(found, expected, "{from:?} {to:?}");
    }
    let whole = b_tree::leaves_above(&pages, PARTITION, (Bound::Unbounded, Bound::Unbounded), usize::MAX);
    assert!(whole.len() > 200, "the tree has more than one node above its leaves: {}", whole.len());
}

#[test]
fn a_node_that_is_not_in_memory_is_named_and_ends_them() {
    let store = tree(RECORDS);
    let inner = |id: &PageId| id.number > ROOT && is_inner(&store.pages[id]);
    let absent: BTreeSet<PageId> = store.pages.keys().copied().filter(inner).collect();
    assert!(absent.len() > 2, "{absent:?}");
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let first = b_tree::leaves_above(&partial(&store, absent.clone()), PARTITION, everything, 10);
    assert!(first.len() == 1 && absent.contains(&first[0]), "{first:?}");
    // Only the node of the first leaves is here: they are named, and the next node behind them.
    let mut rest = absent.clone();
    rest.remove(&first[0]);
    let found = b_tree::leaves_above(&partial(&store, rest.clone()), PARTITION, everything, usize::MAX);
    let (last, leaves) = found.split_last().expect("some");
    assert!(rest.contains(last) && !leaves.is_empty() && leaves.iter().all(|leaf| !absent.contains(leaf)), "{found:?}");
    let found = b_tree::leaves_below(&partial(&store, absent.clone()), PARTITION, everything, 10);
    assert!(found.len() == 1 && absent.contains(&found[0]), "{found:?}");
}

#[test]
fn a_tree_of_one_leaf_names_none() {
    let store = tree(3);
    let everything = (Bound::Unbounded, Bound::Unbounded);
    assert!(b_tree::leaves_above(&partial(&store, BTreeSet::new()), PARTITION, everything, 10).is_empty());
    assert!(b_tree::leaves_below(&partial(&store, BTreeSet::new()), PARTITION, everything, 10).is_empty());
    let root: BTreeSet<PageId> = [PageId::new(PARTITION, ROOT)].into();
    assert_eq!(b_tree::leaves_above(&partial(&store, root.clone()), PARTITION, everything, 10), Vec::from_iter(root));
}
