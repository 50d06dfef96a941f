//! Commits of which nothing is known before the next start, for the log has failed: when their clients are gone they are in the way of what they
//! change, and of nothing else.

use super::sets::{ask, commit, entries, grants, hears, wanted};
use super::*;
use crate::message::{RecordLock, SetAnswer};

fn lock(slot: u16, writes: bool) -> RecordLock {
    RecordLock { slot, transaction: Transaction(1), writes }
}

/// The log fails under the commit of transaction 1, and the client's lease ends: in this order, or in the other one. What comes of both.
fn end_undecided(ground: &mut Ground, client: ClientId, is_gone_first: bool) -> Vec<Action> {
    let mut said = Vec::new();
    for is_end in [is_gone_first, !is_gone_first] {
        said.extend(ground.step(|server, memory, actions| match is_end {
            true => server.lose(client, memory, actions),
            false => server.note_undecided((client, Transaction(1)), memory, actions),
        }));
    }
    said
}

#[test]
fn records_and_pages_that_an_undecided_commit_has_only_locked_are_free() {
    for is_gone_first in [true, false] {
        let mut ground = Ground::new("ps-aa");
        let gone = ground.join();
        let others = [(); 4].map(|()| ground.join());
        for asked in [to_write(0, 0, 1), to_write(3, 3, 1)] {
            assert!(granted(&ground.say(gone, asked).expect("it is honest"), gone));
        }
        for (number, lock) in [(1, lock(3, false)), (1, lock(4, true)), (2, lock(5, true))] {
            ground.say(gone, Request::Record { page: page(number), lock }).expect("it is honest");
        }
        let mut commits = commit_of_first_page();
        if let Request::Commit { redone, .. } = &mut commits {
            redone.push(page(2));
        }
        ground.say(gone, commits).expect("it is honest");
        let records = [(1, lock(3, true)), (1, lock(4, true)), (2, lock(5, false))];
        for (other, (number, lock)) in others.into_iter().zip(records) {
            let asked = ground.say(other, Request::Record { page: page(number), lock }).expect("it is honest");
            assert_eq!(asked, [], "{number}, {lock:?}");
        }
        for number in [3, 0] {
            let asked = ground.say(others[3], read(copy(number, 9 - u64::from(number)), 1, None));
            assert!(!asked.expect("it is honest").iter().any(|action| matches!(action, Action::SendPage { .. })));
        }
        let said = end_undecided(&mut ground, gone, is_gone_first);
        let comes = |(other, (number, wanted)): (ClientId, (u32, RecordLock))| {
            said.iter().any(|action| {
                matches!(action, Action::SendRecord { to, page: of, lock, .. }
                    if (*to, *of, *lock) == (other, page(number), wanted))
            })
        };
        let came: Vec<bool> = others.into_iter().zip(records).map(comes).collect();
        assert_eq!(came, [true, true, false], "{is_gone_first}: {said:?}");
        let sent = said.iter().filter_map(|action| match action {
            Action::SendPage { copy, .. } => Some(copy.page),
            _ => None,
        });
        assert_eq!(sent.collect::<Vec<_>>(), [page(3)], "{is_gone_first}");
        assert_eq!(ground.server.writer(page(0)), Some((gone, Transaction(1))));
        assert_eq!(ground.server.records_held(gone), 1, "that which it has changed");
    }
}

#[test]
fn what_an_undecided_commit_has_only_read_of_a_set_is_free() {
    for is_gone_first in [true, false] {
        let mut ground = Ground::new("cbl");
        let gone = ground.join();
        let others = [(); 4].map(|()| ground.join());
        ground.say(gone, ask(1, 1, false)).expect("it is honest");
        ground.say(gone, ask(2, 1, true)).expect("it is honest");
        assert_eq!(ground.look(gone, 1, 1, Some((3, 7))).0, SetSight::Locked);
        ground.say(gone, entries(1, 2, 8)).expect("it is honest");
        ground.say(gone, commit(1, &[2])).expect("it is honest");
        assert_eq!(ground.say(others[0], ask(1, 5, true)).expect("it is honest"), [], "it was read");
        assert_eq!(ground.say(others[1], entries(5, 1, 4)).expect("it is honest"), [], "it was read");
        assert_eq!(ground.say(others[2], ask(2, 5, false)).expect("it is honest"), [], "it is changed");
        assert_eq!(ground.look(others[3], 5, 1, Some((8, 9))).0, SetSight::Waits, "there, too");
        let said = end_undecided(&mut ground, gone, is_gone_first);
        assert!(grants(&said, others[0], &wanted(1, 5, true)), "{is_gone_first}: {said:?}");
        assert!(hears(&said, others[1], 1, &SetAnswer::Granted), "{is_gone_first}: {said:?}");
        assert_eq!(said.len(), 2, "{is_gone_first}: {said:?}");
        assert_eq!(ground.server.waiting(), 2);
    }
}
