//! Nodes that move to free pages, and pages that are cut off the end, against the records that were there.

use super::*;
use crate::organization::allocator::Cut;

/// The free pages in the order of the list, each with the one before it.
fn free_list(store: &Store) -> Vec<(u32, u32)> {
    let (mut before, mut list) = (0, Vec::new());
    let mut number = allocator::read(&store.pages[&PageId::new(PARTITION, 0)]).free_head;
    while number != 0 {
        list.push((number, before));
        (before, number) = (number, allocator::next_free(&store.pages[&PageId::new(PARTITION, number)]));
    }
    list
}

/// Moves every node that is not before page `target`. Returns how many.
fn move_nodes(store: &mut Store, target: u32) -> usize {
    let mut moved = 0;
    for level in 0..store.ask(|pages| height(pages, PARTITION)) {
        let mut key = Some(Vec::new());
        while let Some(from) = key {
            let at = store.ask(|pages| node_at(pages, PARTITION, level, &from)).expect("there is such a level");
            if at.page.number >= target {
                let (low, before) = *free_list(store).iter().min().expect("as many are free before it");
                assert!(low < target);
                let page = PageId::new(PARTITION, low);
                let edits = store.ask(|pages| allocator::bring_forward(pages, page, before)).expect("it is there");
                store.apply(&edits);
                let edits = store.ask(|pages| relocate(pages, PARTITION, level, &from)).expect("one is free");
                store.apply(&edits);
                moved += 1;
                store.check();
            }
            key = at.next;
        }
    }
    moved
}

fn cut_all(store: &mut Store) {
    loop {
        let list: BTreeMap<u32, u32> = free_list(store).into_iter().collect();
        let before = |page: u32| list.get(&page).copied().unwrap_or(0);
        match store.ask(|pages| allocator::cut(pages, PARTITION, ROOT + 1, before)) {
            Cut::Used => return,
            Cut::Elsewhere => panic!("the list was just read"),
            Cut::Planned(_, edits) => store.apply(&edits),
        }
        let count = allocator::read(&store.pages[&PageId::new(PARTITION, 0)]).page_count;
        let cut = PageId::new(PARTITION, count);
        assert!(allocator::floor(&store.pages[&PageId::new(PARTITION, 0)]) >= header::sequence(&store.pages[&cut]));
    }
}

#[test]
fn a_tree_whose_last_nodes_move_has_its_records_in_as_few_pages_as_it_uses() {
    let mut moved = 0;
    for seed in 0..30 {
        let mut random = Random::stream(seed, "relocation");
        let (mut store, mut model) = (Store::new(512), BTreeMap::new());
        let mut key = || format!("{:08}", random.below(100_000)).into_bytes();
        for number in 0..600_u32 {
            let (key, value) = (key(), number.to_le_bytes().repeat(1 + number as usize % 9));
            store.put(&key, &value);
            model.insert(key, value);
        }
        let kept = |index: usize| index.is_multiple_of(3) || index < 20;
        let gone: Vec<_> =
            model.keys().enumerate().filter(|(index, _)| !kept(*index)).map(|(_, key)| key.clone()).collect();
        for key in gone {
            store.delete(&key);
            model.remove(&key);
        }
        let target = store.pages_in_use();
        moved += move_nodes(&mut store, target);
        cut_all(&mut store);
        assert_eq!(allocator::read(&store.pages[&PageId::new(PARTITION, 0)]).page_count, target);
        store.pages.retain(|id, _| id.number < target);
        store.redone.retain(|id, _| id.number < target);
        store.check();
        assert_eq!(store.scan(Bound::Unbounded), model.clone().into_iter().collect::<Vec<_>>());
        // It grows again.
        for number in 0..200_u32 {
            let (key, value) = (key(), number.to_be_bytes().to_vec());
            store.put(&key, &value);
            model.insert(key, value);
        }
        store.check();
        assert_eq!(store.scan(Bound::Unbounded), model.into_iter().collect::<Vec<_>>());
    }
    assert!(moved > 300, "{moved}");
}

#[test]
fn what_is_not_where_it_was_said_to_be_on_the_free_list_stays_there() {
    let mut store = Store::new(512);
    for number in 0..300_u32 {
        store.put(&number.to_be_bytes(), &[7; 40]);
    }
    for number in 0..250_u32 {
        store.delete(&number.to_be_bytes());
    }
    let list = free_list(&store);
    let [.., (before, _), (last, _)] = list[..] else { panic!("{list:?}") };
    let page = |number| PageId::new(PARTITION, number);
    for wrong in [0, last, ROOT, list[0].0] {
        assert_eq!(store.ask(|pages| allocator::bring_forward(pages, page(last), wrong)), None, "{wrong}");
    }
    assert_eq!(store.ask(|pages| allocator::bring_forward(pages, page(ROOT), 0)), None, "it is in use");
    assert_eq!(store.ask(|pages| allocator::bring_forward(pages, page(list[0].0), 9)), Some(Vec::new()));
    let edits = store.ask(|pages| allocator::bring_forward(pages, page(last), before)).expect("it is there");
    store.apply(&edits);
    store.check();
    assert_eq!(free_list(&store)[0], (last, 0));
}
