//! A client by itself whose transactions wait for more of each other than it may say at a time.

use base::{PageId, PartitionId};
use engine::lock::Mode;
use entresol_node::client::{Client, PageLock};
use entresol_node::message::{Request, ToServer, Transaction, WAITS_MAX, WaitsFor};
use std::collections::BTreeSet;

const READERS: usize = 400;
const WRITERS: u32 = 5;

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(1), number)
}

fn pairs(told: Option<ToServer>) -> Vec<WaitsFor> {
    match told.map(|told| told.body) {
        Some(Request::Waits { pairs }) => pairs,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_that_wait_are_told_of_by_turns() {
    let mut client = Client::default();
    let readers: Vec<Transaction> = (0..READERS).map(|_| client.begin()).collect();
    for reader in &readers {
        for number in 0..WRITERS {
            assert_eq!(client.lock(*reader, page(number), Mode::Shared), PageLock::Held);
        }
    }
    let writers: Vec<Transaction> = (0..WRITERS).map(|_| client.begin()).collect();
    for (writer, number) in writers.iter().zip(0..) {
        assert_eq!(client.lock(*writer, page(number), Mode::Exclusive), PageLock::Wait);
    }
    let mut together = BTreeSet::new();
    for _ in 0..2 * WRITERS {
        let told = pairs(client.tell_waits());
        assert!(told.len() <= WAITS_MAX, "{}", told.len());
        let named: BTreeSet<Transaction> = told.iter().map(|pair| pair.transaction).collect();
        for writer in &named {
            let others = told.iter().filter(|pair| pair.transaction == *writer).map(|pair| pair.other);
            assert_eq!(others.collect::<BTreeSet<_>>().len(), READERS, "all that {writer:?} waits for");
            together.extend(named.iter().map(|other| (*writer, *other)));
        }
    }
    let neighbours = writers.iter().zip(writers.iter().cycle().skip(1));
    assert!(neighbours.clone().all(|(one, other)| together.contains(&(*one, *other))), "{together:?}");
    // What is little is told once.
    for writer in &writers[2..] {
        client.wait_no_more(*writer);
    }
    let told = pairs(client.tell_waits());
    assert_eq!(told.len(), 2 * READERS);
    let again = client.tell_waits();
    assert!(again.is_none_or(|again| pairs(Some(again)).len() == 2 * READERS));
    assert_eq!(client.tell_waits(), None);
}
