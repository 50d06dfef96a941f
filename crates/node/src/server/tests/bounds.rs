//! What one client may cost the server, whatever it says.

use super::*;
use crate::grants::{Access, Right};
use crate::message::{RecordLock, SIZE_MAX, WaitsFor};
use crate::server::directory::users::USED_TOGETHER_MAX;
use std::collections::BTreeMap;

/// Has a client say this without a look at all of the state, which grows here.
fn say(ground: &mut Ground, client: ClientId, body: Request) -> Result<Vec<Action>, Misbehaviour> {
    let mut actions = Vec::new();
    let message = ToServer { drops: Vec::new(), body };
    ground.server.receive(client, message, &ground.memory, &mut actions).map(|()| actions)
}

fn is_refused(actions: &[Action], copy: Copy) -> bool {
    matches!(actions, [Action::Send(_, Answer::Failed { copy: refused, .. })] if *refused == copy)
}

#[test]
fn a_client_registers_no_more_copies_than_the_limit() {
    let mut ground = Ground::new("cbl");
    let (greedy, modest) = (ground.join(), ground.join());
    let asked = |number: usize| copy(number as u32, number as u64);
    for number in 0..COPIES_MAX {
        let actions = say(&mut ground, greedy, read(asked(number), 1, None)).expect("it may");
        assert!(!is_refused(&actions, asked(number)), "{number}");
    }
    assert_eq!(ground.server.registered(), COPIES_MAX);
    let beyond = asked(COPIES_MAX);
    let actions = say(&mut ground, greedy, read(beyond, 1, None)).expect("a large buffer is no misdeed");
    assert!(is_refused(&actions, beyond), "{actions:?}");
    assert_eq!(ground.server.registered(), COPIES_MAX);
    // As an honest client says then.
    say(&mut ground, greedy, Request::CalledBack { copy: beyond }).expect("it is honest");
    let actions = say(&mut ground, modest, read(copy(0, 0), 1, None)).expect("it is honest");
    assert!(!is_refused(&actions, copy(0, 0)), "others have their own");
    // What it gives up makes room.
    say(&mut ground, greedy, Request::CalledBack { copy: asked(7) }).expect("it is honest");
    let actions = say(&mut ground, greedy, read(asked(COPIES_MAX + 1), 1, None)).expect("it is honest");
    assert!(!is_refused(&actions, asked(COPIES_MAX + 1)), "{actions:?}");
    ground.server.check().expect("the state is right");
}

#[test]
fn a_copy_is_used_by_no_more_transactions_than_the_limit() {
    let mut ground = Ground::new("cbl");
    let (liar, writer) = (ground.join(), ground.join());
    for client in [liar, writer] {
        ground.say(client, read(copy(0, 0), 1, None)).expect("it is honest");
    }
    ground.say(writer, write(copy(0, 0), 1)).expect("it is honest");
    let by = |from: u64| (from..from + 100).map(Transaction).collect();
    let mut said = 0;
    let refused = (0..1_000).find_map(|times| {
        said += 100;
        say(&mut ground, liar, Request::InUse { copy: copy(0, 0), by: by(100 * times) }).err()
    });
    assert_eq!(refused.map(|refused| refused.client), Some(liar));
    assert!(said <= USERS_MAX + 100, "{said}");
}

/// There may be very many copies, and none waits for those that use them.
#[test]
fn nothing_is_kept_of_who_uses_a_copy_that_is_not_called_back() {
    let mut ground = Ground::new("cbl");
    let (client, writer) = (ground.join(), ground.join());
    let in_use = || Request::InUse { copy: copy(0, 0), by: vec![Transaction(1), Transaction(2)] };
    let users = |ground: &Ground| ground.server.directory.get(page(0)).expect("it is here").copies[&client].users.len();
    ground.say(client, read(copy(0, 0), 1, None)).expect("it is honest");
    ground.say(client, in_use()).expect("it may be late");
    assert_eq!(users(&ground), 0, "none wants it");
    ground.say(writer, read(copy(0, 0), 1, None)).expect("it is honest");
    ground.say(writer, write(copy(0, 0), 1)).expect("it is honest");
    ground.say(client, in_use()).expect("it is honest");
    assert_eq!(users(&ground), 2);
    ground.say(writer, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    // This crosses the word that the copy may stay.
    ground.say(client, in_use()).expect("it is honest");
    assert_eq!(users(&ground), 0);
}

/// Each copy that is called back is said to be used by as many transactions as may use one. Those that wait for the pages tell of their own
/// waits again and again, and each time a deadlock is sought.
#[test]
fn users_of_many_copies_are_bounded_together_and_not_looked_at_if_they_wait_for_nothing() {
    let mut ground = Ground::new("cbl");
    let (liar, writer) = (ground.join(), ground.join());
    let pages = (WAITING_MAX / 2) as u32;
    for number in 0..pages {
        say(&mut ground, liar, read(copy(number, number.into()), 0, None)).expect("it is honest");
    }
    for number in 0..pages {
        say(&mut ground, writer, to_write(number, number.into(), 1)).expect("it is honest");
    }
    for number in 0..pages {
        let from = u64::from(number) * USERS_MAX as u64;
        let by = (from..from + USERS_MAX as u64).map(Transaction).collect();
        say(&mut ground, liar, Request::InUse { copy: copy(number, number.into()), by }).expect("it may be so");
    }
    let users = ground.server.directory.entries().map(|(_, entry)| entry.copies[&liar].users.len());
    let (most, all) = users.fold((0, 0), |(most, all), users| (users.max(most), all + users));
    assert!(most == USERS_MAX && all <= USED_TOGETHER_MAX + pages as usize, "{most}, {all}");
    ground.server.check().expect("the state is right");
    let waits = || Request::Waits { pairs: vec![WaitsFor { transaction: Transaction(1), other: Transaction(2) }] };
    let began = real_driver::wall_ns();
    for _ in 0..50 {
        say(&mut ground, writer, waits()).expect("it is honest");
    }
    let took_ns = real_driver::wall_ns() - began;
    assert!(took_ns < 1_000_000_000, "{took_ns}");
    // What is not called back any more is not counted either.
    for number in 0..pages {
        say(&mut ground, liar, Request::CalledBack { copy: copy(number, number.into()) }).expect("it is honest");
    }
    say(&mut ground, liar, read(copy(pages, pages.into()), 0, None)).expect("it is honest");
    say(&mut ground, writer, to_write(pages, pages.into(), 2)).expect("it is honest");
    let by = (0..USERS_MAX as u64).map(Transaction).collect();
    say(&mut ground, liar, Request::InUse { copy: copy(pages, pages.into()), by }).expect("it may be so");
    let users = ground.server.directory.get(page(pages)).expect("it is in use").copies[&liar].users.len();
    assert_eq!(users, USERS_MAX);
    ground.server.check().expect("the state is right");
}

#[test]
fn writes_that_are_asked_for_and_rolled_back_leave_nothing() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    for client in [one, other] {
        ground.say(client, read(copy(0, 0), 0, None)).expect("it is honest");
    }
    for number in 0..2 * USERS_MAX as u64 {
        ground.say(one, write(copy(0, 0), number)).expect("it is honest");
        ground.say(one, Request::Abort { transaction: Transaction(number) }).expect("it is honest");
    }
    let users = &ground.server.directory.get(page(0)).expect("it is in use").copies[&one].users;
    assert!(users.is_empty(), "{}", users.len());
    assert_eq!(ground.server.waiting(), 0);
}

#[test]
fn commits_that_are_under_way_have_no_more_bytes_than_one_message() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let commit = |transaction, length| Request::Commit {
        transaction: Transaction(transaction),
        others: Vec::new(),
        keeps: false,
        records: vec![0; length],
        pages: Vec::new(),
        redone: Vec::new(),
        sets: Vec::new(),
    };
    ground.say(client, commit(1, SIZE_MAX / 2)).expect("it is honest");
    ground.say(client, commit(2, SIZE_MAX / 2)).expect("it is honest");
    ground.step(|server, memory, actions| server.committed((client, Transaction(1)), memory, actions));
    let reason = "the log is full".to_owned();
    ground.step(|server, memory, actions| server.not_committed((client, Transaction(2)), reason, memory, actions));
    ground.say(client, commit(3, SIZE_MAX - 1)).expect("those have ended");
    ground.say(client, commit(4, SIZE_MAX / 2)).expect_err("one that waits for its commit sends no other");
}

/// Its program has given up all but the last of them.
#[test]
fn a_transaction_that_lets_much_wait_is_rolled_back_before_its_client_is_given_up() {
    let mut ground = Ground::new("cbl");
    let (reader, client) = (ground.join(), ground.join());
    let pages = 0..4 * WAITING_MAX as u32;
    for number in pages.clone() {
        for client in [reader, client] {
            say(&mut ground, client, read(copy(number, u64::from(number)), 0, None)).expect("it may");
        }
    }
    let (first, second) = (0..pages.end / 2, pages.end / 2..pages.end);
    let is_victim = |action: &Action| matches!(action, Action::Send(to, Answer::Victim { transaction: Transaction(1), .. }) if *to == client);
    let mut victims = 0;
    for number in first {
        let said = say(&mut ground, client, write(copy(number, u64::from(number)), 1)).expect("it is honest");
        victims += said.iter().filter(|action| is_victim(action)).count();
    }
    assert!(victims > 1 && ground.server.waiting() < WAITING_MAX, "{victims}");
    ground.server.check().expect("the state is right");
    // Each of these waits for one.
    let mut own = 2;
    let refused = second.clone().find_map(|number| {
        own += 1;
        say(&mut ground, client, write(copy(number, u64::from(number)), own)).err()
    });
    assert!(refused.is_some_and(|refused| refused.client == client));
}

/// The server brings them into its memory and tries the records on copies of them.
#[test]
fn pages_whose_records_are_redone_count_as_those_that_are_sent() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let pages_max = SIZE_MAX / ground.memory.page_size();
    for number in 0..=pages_max {
        say(&mut ground, client, read(copy(number as u32, number as u64), 1, None)).expect("it may");
        say(&mut ground, client, write(copy(number as u32, number as u64), 1)).expect("it may");
    }
    let redone = |count: usize| Request::Commit {
        transaction: Transaction(1),
        others: Vec::new(),
        keeps: false,
        records: Vec::new(),
        pages: Vec::new(),
        redone: (0..count).map(|number| page(number as u32)).collect(),
        sets: Vec::new(),
    };
    say(&mut ground, client, redone(pages_max + 1)).expect_err("they take more memory than a message");
    say(&mut ground, client, redone(pages_max)).expect("they take as much");
}

#[test]
fn a_client_tells_no_more_waits_of_its_own_than_the_limit() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let waits = |count: usize| Request::Waits {
        pairs: (1..=count as u64).map(|n| WaitsFor { transaction: Transaction(n), other: Transaction(0) }).collect(),
    };
    ground.say(client, waits(WAITS_MAX)).expect("it is honest");
    assert_eq!(ground.server.directory.waiting_owners().count(), WAITS_MAX);
    ground.say(client, waits(0)).expect("it is honest");
    assert_eq!(ground.server.directory.waiting_owners().count(), 0, "what was said before is over");
    ground.say(client, waits(WAITS_MAX + 1)).expect_err("they are too many");
}

/// One that waits for itself, and a thousand that wait for each other and for that: each is looked at once, not for each other one anew.
#[test]
fn waits_that_lead_to_a_deadlock_are_looked_at_once() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let last = WAITS_MAX as u64;
    let pair = |number: u64| WaitsFor { transaction: Transaction(number), other: Transaction((number + 1).min(last)) };
    let began = real_driver::wall_ns();
    for _ in 0..50 {
        let said = say(&mut ground, client, Request::Waits { pairs: (1..=last).map(pair).collect() });
        let victim = |action: Action| match action {
            Action::Send(_, Answer::Victim { transaction, .. }) => Some(transaction),
            _ => None,
        };
        let victims: Vec<_> = said.expect("they are no more than the limit").into_iter().filter_map(victim).collect();
        assert_eq!(victims, [Transaction(last)]);
    }
    let took_ns = real_driver::wall_ns() - began;
    assert!(took_ns < 10_000_000_000, "{took_ns}");
}

/// A node of this name, if it has proven one, which may do this with the partition of [`page`], and nothing else.
fn newcomer(name: Option<&str>, right: Option<Right>) -> Newcomer {
    let rights: BTreeMap<_, _> = right.map(|right| (PartitionId(1), right)).into_iter().collect();
    let access = name.map_or(Access::All, |_| Access::Granted(rights));
    Newcomer { address: "10.0.0.1:7000".parse().expect("an address"), name: name.map(str::to_owned), access }
}

#[test]
fn no_more_clients_join_than_the_limit() {
    let mut ground = Ground::new("cbl");
    let any = newcomer(None, None);
    for _ in 0..CLIENTS_MAX {
        assert_eq!(ground.server.lack_of_room(None, &any), None);
        ground.join();
    }
    let refused = |ground: &Ground, former: &Former| ground.server.lack_of_room(Some(former), &any);
    let session = Session { epoch: 1, client: ClientId(3) };
    let known = Former { session, secret: Secret(9), copies: Vec::new() };
    assert_eq!(refused(&ground, &known), None, "it takes the place that it has");
    let unknown = Former { secret: Secret(1), ..known };
    assert!(refused(&ground, &unknown).is_some_and(|words| words.starts_with("256 nodes have joined")));
}

#[test]
fn a_node_without_a_name_that_commits_nothing_keeps_no_place() {
    let mut ground = Ground::new("cbl");
    let (any, named) = (newcomer(None, None), newcomer(Some("clerk"), Some(Right::Write)));
    let at = |ns: u64| Instant::from_ns(ns);
    ground.server.note_time(at(UNUSED_NS));
    let nodes: Vec<ClientId> = (0..CLIENTS_MAX - 1).map(|_| ground.join()).collect();
    assert_eq!(ground.server.place_for(None, &any), None, "there is one");
    ground.server.note_time(at(UNUSED_NS + 1));
    ground.join();
    assert!(ground.server.lack_of_room(None, &any).is_some());
    assert_eq!(ground.server.place_for(None, &any), None, "all have come just now");
    ground.server.note_time(at(2 * UNUSED_NS));
    assert_eq!(ground.server.place_for(None, &any), Some(nodes[0]));
    assert_eq!(ground.server.place_for(None, &named), None, "who has a name is told apart");
    // What it has committed is not long ago.
    ground.step(|server, memory, actions| server.committed((nodes[0], Transaction(1)), memory, actions));
    assert_eq!(ground.server.place_for(None, &any), Some(nodes[1]));
    // Who comes again is not new by that.
    let former = Former { session: Session { epoch: 1, client: nodes[1] }, secret: Secret(9), copies: Vec::new() };
    let again = ground.join_again(&former).session.client;
    ground.step(|server, memory, actions| server.revoke(nodes[2], memory, actions));
    let others: Vec<ClientId> = (3..).map(|number| nodes[number]).take(3).collect();
    for other in others {
        assert_eq!(ground.server.place_for(None, &any), Some(other));
        ground.step(|server, memory, actions| server.committed((other, Transaction(1)), memory, actions));
    }
    ground.server.note_time(at(3 * UNUSED_NS));
    nodes[6..].iter().for_each(|node| {
        ground.step(|server, memory, actions| server.committed((*node, Transaction(1)), memory, actions));
    });
    assert_eq!(ground.server.place_for(None, &any), Some(again));
}

#[test]
fn who_has_lost_its_place_does_not_take_it_back() {
    let mut ground = Ground::new("cbl");
    let any = newcomer(None, None);
    let nodes: Vec<ClientId> = (0..CLIENTS_MAX).map(|_| ground.join()).collect();
    ground.server.note_time(Instant::from_ns(UNUSED_NS));
    assert_eq!(ground.server.place_for(None, &any), Some(nodes[0]));
    ground.server.lose_place(nodes[0]);
    ground.step(|server, memory, actions| server.revoke(nodes[0], memory, actions));
    let former = Former { session: Session { epoch: 1, client: nodes[0] }, secret: Secret(9), copies: Vec::new() };
    assert!(ground.server.lack_of_room(Some(&former), &any).is_some(), "it was to be another one's");
    assert_eq!(ground.server.place_for(Some(&former), &any), None, "nor that of a third one");
    ground.step(|server, memory, actions| server.lose(nodes[0], memory, actions));
    assert_eq!(ground.server.lack_of_room(None, &any), None);
    ground.join();
    assert_eq!(ground.server.place_for(Some(&former), &any), Some(nodes[1]), "it comes as any other one by then");
}

/// Joins under this name as often as that may, and returns why it may not any more.
fn join_as_often_as_may(ground: &mut Ground, newcomer: &Newcomer) -> (usize, String) {
    let mut joined = 0;
    loop {
        if let Some(refused) = ground.server.lack_of_room(None, newcomer) {
            return (joined, refused);
        }
        ground.server.join(newcomer.clone(), (None, Secret(9)), &ground.memory, &mut Vec::new());
        joined += 1;
    }
}

#[test]
fn no_name_and_none_without_a_grant_takes_the_places_of_others() {
    let mut ground = Ground::new("cbl");
    let (often, refused) = join_as_often_as_may(&mut ground, &newcomer(Some("clerk"), Some(Right::Write)));
    assert_eq!((often, refused.contains("'clerk'")), (ALIKE_MAX, true), "{refused}");
    assert!(ground.server.lack_of_room(None, &newcomer(Some("Clerk"), Some(Right::Write))).is_some(), "of any case");
    // Those without a grant have places for one name, whatever their names are.
    let (often, refused) = join_as_often_as_may(&mut ground, &newcomer(Some("guest"), None));
    assert_eq!((often, refused.contains("'guest'")), (ALIKE_MAX, true), "{refused}");
    let (often, refused) = join_as_often_as_may(&mut ground, &newcomer(Some("stranger"), None));
    assert_eq!((often, refused.contains("without a grant")), (0, true), "{refused}");
    assert_eq!(ground.server.lack_of_room(None, &newcomer(Some("auditor"), Some(Right::Read))), None);
    let session = Session { epoch: 1, client: ClientId(3) };
    let former = Former { session, secret: Secret(9), copies: Vec::new() };
    let again = newcomer(Some("clerk"), Some(Right::Write));
    assert_eq!(ground.server.lack_of_room(Some(&former), &again), None, "it takes the place that it has");
}

#[test]
fn who_comes_again_takes_its_own_place_and_no_other() {
    let mut ground = Ground::new("cbl");
    let guest = newcomer(Some("guest"), None);
    join_as_often_as_may(&mut ground, &guest);
    let session = Session { epoch: 1, client: ClientId(0) };
    let former = |copies: Vec<Copy>| Former { session, secret: Secret(9), copies };
    // Its former session would stay beside it, with copies for which it has no grant.
    assert!(ground.server.lack_of_room(Some(&former(vec![copy(0, 0)])), &guest).is_some());
    ground.server.revoke(ClientId(0), &ground.memory, &mut Vec::new());
    assert!(ground.server.lack_of_room(Some(&former(vec![copy(0, 0)])), &guest).is_some());
    let again = former(Vec::new());
    assert_eq!(ground.server.lack_of_room(Some(&again), &guest), None);
    let joined = ground.server.join(guest, (Some(&again), Secret(9)), &ground.memory, &mut Vec::new());
    assert_eq!((joined.replaces, ground.server.clients().count()), (Some(ClientId(0)), ALIKE_MAX));
}

/// A commit of transactions of one client, which says that it has changed these pages. Those with odd numbers do not come with it.
fn commit(members: &[u64], keeps: bool, pages: &[u32]) -> Request {
    let (redone, sent): (Vec<u32>, Vec<u32>) = pages.iter().partition(|number| **number % 2 == 1);
    let mut members = members.iter().copied().map(Transaction);
    Request::Commit {
        transaction: members.next().expect("it is of one"),
        others: members.collect(),
        keeps,
        records: Vec::new(),
        pages: sent.into_iter().map(|number| Image { page: page(number), bytes: vec![1] }).collect(),
        redone: redone.into_iter().map(page).collect(),
        sets: Vec::new(),
    }
}

#[test]
fn transactions_that_commit_together_use_no_copy_any_more() {
    for keeps in [false, true] {
        let mut ground = Ground::new("cbl");
        let client = ground.join();
        ground.say(client, read(copy(0, 0), 1, None)).expect("it is honest");
        ground.say(client, read(copy(1, 1), 1, None)).expect("it is honest");
        ground.say(client, write(copy(0, 0), 2)).expect("it is honest");
        ground.say(client, write(copy(1, 1), 1)).expect("it is honest");
        ground.say(client, commit(&[1, 2], keeps, &[0, 1])).expect("it is honest");
        ground.step(|server, memory, actions| server.committed((client, Transaction(1)), memory, actions));
        for number in [0, 1] {
            let users = &ground.server.directory.get(page(number)).expect("it has a copy").copies[&client].users;
            assert!(users.is_empty(), "{keeps}, {number}: {users:?}");
        }
    }
}

#[test]
fn what_is_said_to_be_in_use_and_written_together_is_within_the_limit() {
    let mut ground = Ground::new("cbl");
    let (liar, writer) = (ground.join(), ground.join());
    for client in [liar, writer] {
        ground.say(client, read(copy(0, 0), 1, None)).expect("it is honest");
    }
    ground.say(writer, write(copy(0, 0), 1)).expect("it is honest");
    let by = (0..USERS_MAX as u64).map(Transaction).collect();
    say(&mut ground, liar, Request::InUse { copy: copy(0, 0), by }).expect("it is within the limit");
    say(&mut ground, liar, write(copy(0, 0), USERS_MAX as u64)).expect_err("it is one too many");
}

#[test]
fn a_commit_of_what_is_committed_already_leaves_no_page_locked() {
    let mut ground = Ground::new("cbl");
    let (liar, other) = (ground.join(), ground.join());
    for number in [0, 1] {
        ground.say(liar, read(copy(number, u64::from(number)), 1, None)).expect("it is honest so far");
        ground.say(liar, write(copy(number, u64::from(number)), u64::from(number))).expect("it is honest so far");
    }
    ground.say(liar, commit(&[1], false, &[1])).expect("it is honest so far");
    ground.say(liar, commit(&[2, 0, 1], false, &[0])).expect_err("one of them is committed");
    ground.step(|server, memory, actions| server.lose(liar, memory, actions));
    // Until that has ended its client keeps what it has.
    ground.step(|server, memory, actions| server.committed((liar, Transaction(1)), memory, actions));
    ground.say(other, read(copy(0, 0), 0, None)).expect("it is honest");
    let asked = ground.say(other, write(copy(0, 0), 0)).expect("it is honest");
    assert!(granted(&asked, other), "{asked:?}");
}

#[test]
fn one_search_finds_the_deadlocks_of_all_that_a_client_says() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let waits = |pairs: &[(u64, u64)]| Request::Waits {
        pairs: pairs.iter().map(|(a, b)| WaitsFor { transaction: Transaction(*a), other: Transaction(*b) }).collect(),
    };
    let victims = |actions: &[Action]| {
        actions.iter().filter(|action| matches!(action, Action::Send(_, Answer::Victim { .. }))).count()
    };
    for (pairs, count) in [
        (&[(1, 2), (1, 3), (2, 4), (3, 4)][..], 0),
        (&[(1, 2), (2, 3), (3, 1)], 1),
        (&[(1, 2), (3, 4), (4, 3), (5, 6), (6, 5)], 2),
    ] {
        let said = ground.say(client, waits(pairs)).expect("it is honest");
        assert_eq!(victims(&said), count, "{pairs:?}");
    }
}

#[test]
fn what_is_to_be_redone_is_written_as_what_is_sent() {
    let mut ground = Ground::new("cbl");
    let (liar, other) = (ground.join(), ground.join());
    for number in [1, 3] {
        ground.say(liar, read(copy(number, u64::from(number)), 1, None)).expect("it is honest so far");
    }
    ground.say(liar, write(copy(1, 1), 1)).expect("it is honest so far");
    ground.say(liar, commit(&[1], false, &[1, 3])).expect_err("it has one write lock");
    ground.step(|server, memory, actions| server.lose(liar, memory, actions));
    let liar = ground.join();
    ground.say(liar, read(copy(1, 1), 1, None)).expect("it is honest so far");
    ground.say(liar, write(copy(1, 1), 1)).expect("it is honest so far");
    let Request::Commit { transaction, others, keeps, records, redone, .. } = commit(&[1], false, &[1]) else {
        unreachable!("it is one")
    };
    let pages = vec![Image { page: page(1), bytes: vec![1] }];
    let twice = Request::Commit { transaction, others, keeps, records, pages, redone, sets: Vec::new() };
    ground.say(liar, twice).expect_err("it names a page twice");
    ground.step(|server, memory, actions| server.lose(liar, memory, actions));
    ground.say(other, read(copy(1, 1), 0, None)).expect("it is honest");
    let asked = ground.say(other, write(copy(1, 1), 0)).expect("it is honest");
    assert!(granted(&asked, other), "{asked:?}");
}

/// Otherwise a client could ask for pages that all stand in one place, and each look at one of them would be a search among all.
#[test]
fn where_pages_stand_in_the_directory_is_known_to_no_client() {
    let order_of = |seed: u64| {
        let mut ground = Ground::new("cbl");
        ground.server.hash_with(seed);
        let client = ground.join();
        for number in 0..100 {
            ground.say(client, read(copy(number, number.into()), 1, None)).expect("it is honest");
        }
        ground.server.directory.entries().map(|(page, _)| page).collect::<Vec<_>>()
    };
    assert_eq!(order_of(1), order_of(1));
    assert_ne!(order_of(1), order_of(2));
}

/// A switch may take many nodes at once, and who may read a page may come again and again.
#[test]
fn a_client_with_few_copies_goes_at_once_however_many_others_have() {
    let mut ground = Ground::new("fwd-hs");
    for _ in 0..4 {
        let other = ground.join();
        for number in 0..COPIES_MAX as u32 {
            ground.server.directory.register(other, copy(number, number.into()));
        }
    }
    let began = real_driver::wall_ns();
    for _ in 0..1_000 {
        let client = ground.join();
        say(&mut ground, client, read(copy(7, 0), 1, None)).expect("it is honest");
        ground.server.note_unheard(client);
        ground.server.lose(client, &ground.memory, &mut Vec::new());
    }
    let took_ns = real_driver::wall_ns() - began;
    assert!(took_ns < 1_000_000_000, "{took_ns}");
    assert_eq!((ground.server.counts().unheard, ground.server.registered()), (1_000, 4 * COPIES_MAX));
}

/// Each of them is looked for by who has it, not among those of all: while that is done nothing else is, and leases go on.
#[test]
fn a_client_that_has_locked_all_records_of_a_leaf_goes_at_once() {
    let mut ground = Ground::new("ps-aa");
    let (greedy, other) = (ground.join(), ground.join());
    for number in 0..RECORDS_MAX {
        let lock = RecordLock { slot: number as u16, transaction: Transaction(number as u64), writes: number % 2 == 1 };
        say(&mut ground, greedy, Request::Record { page: page(0), lock }).expect("it may");
    }
    assert_eq!(ground.server.records_held(greedy), RECORDS_MAX);
    ground.server.check().expect("the state is right");
    say(&mut ground, other, read(copy(0, 0), 1, None)).expect("it is honest");
    let gone = ground.step(|server, memory, actions| server.lose(greedy, memory, actions));
    assert!(matches!(gone.last(), Some(Action::SendPage { .. })), "{gone:?}");
    assert_eq!(ground.server.records_held(greedy), 0);
}
