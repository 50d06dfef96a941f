//! Requests whose transactions commit, and which go on without them.

use super::*;
use crate::message::WaitsFor;

fn commit(transaction: u64, others: &[u64]) -> Request {
    Request::Commit {
        transaction: Transaction(transaction),
        others: others.iter().map(|other| Transaction(*other)).collect(),
        keeps: false,
        records: Vec::new(),
        pages: Vec::new(),
        redone: Vec::new(),
        sets: Vec::new(),
    }
}

fn victims(ground: &Ground) -> u64 {
    ground.server.counts().victims
}

/// Page 0 is V's, and node A has asked for it for a transaction that commits. Another transaction of A, which has read page 1, waits for a
/// page that is asked for in the name of none. V wants to write page 1.
#[test]
fn who_waits_for_what_none_has_asked_for_waits_for_no_request_of_another_transaction() {
    for is_told_first in [false, true] {
        let mut ground = Ground::new("cbl");
        let (a, v) = (ground.join(), ground.join());
        assert!(granted(&ground.say(v, to_write(0, 0, 1)).expect("it is honest"), v));
        ground.say(a, to_write(0, 0, 1)).expect("it is honest");
        ground.say(a, read(copy(1, 1), 2, None)).expect("it is honest");
        ground.say(v, read(copy(1, 1), 1, None)).expect("it is honest");
        let pairs = vec![WaitsFor { transaction: Transaction(2), other: Transaction::NONE }];
        let mut steps = vec![
            (a, commit(1, &[])),
            (a, Request::Waits { pairs }),
            (v, write(copy(1, 1), 1)),
            (a, Request::InUse { copy: copy(1, 1), by: vec![Transaction(2)] }),
        ];
        if is_told_first {
            let commit = steps.remove(0);
            steps.push(commit);
        }
        for (client, said) in steps {
            ground.say(client, said).expect("it is honest");
        }
        assert_eq!(victims(&ground), 0, "{is_told_first}");
    }
}

/// Two transactions of node A commit together. One has asked for page 0, which is V's, the other for page 1, which is W's. X wants page 0
/// after it, and W waits for X: no one waits for W but the second request.
#[test]
fn requests_of_several_transactions_that_commit_wait_each_for_its_own() {
    let mut ground = Ground::new("cbl");
    let [a, v, w, x] = [(); 4].map(|()| ground.join());
    for (client, page) in [(v, 0), (w, 1), (x, 2)] {
        assert!(granted(&ground.say(client, to_write(page, 0, 1)).expect("it is honest"), client));
    }
    ground.say(a, to_write(0, 0, 1)).expect("it is honest");
    ground.say(a, to_write(1, 1, 2)).expect("it is honest");
    ground.say(a, commit(1, &[2])).expect("it is honest");
    ground.say(x, to_write(0, 1, 1)).expect("it is honest");
    ground.say(w, to_write(2, 1, 1)).expect("it is honest");
    assert_eq!(victims(&ground), 0);
    // Said again in the name of none, which is what is done with a page that does not come, they stay two.
    for (page, number) in [(0, 0), (1, 1)] {
        ground.say(a, read(copy(page, number), Transaction::NONE.0, None)).expect("it is honest");
    }
    assert_eq!(victims(&ground), 0);
    let waiting = ground.server.page_state(page(0), String::new(), Instant::from_ns(0)).waiting;
    assert_eq!((waiting[0].client, waiting[0].transaction), (a, None));
}
