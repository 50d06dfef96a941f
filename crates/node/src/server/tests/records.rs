//! Locks that fall to records of a page.

use super::*;
use crate::message::{RecordLock, WaitsFor};

fn lock(slot: u16, transaction: u64, writes: bool) -> RecordLock {
    RecordLock { slot, transaction: Transaction(transaction), writes }
}

fn record(lock: RecordLock) -> Request {
    Request::Record { page: page(0), lock }
}

fn sent(actions: &[Action], client: ClientId, wanted: RecordLock) -> bool {
    let is_it =
        |action: &Action| matches!(action, Action::SendRecord { to, lock, .. } if (*to, *lock) == (client, wanted));
    actions.iter().any(is_it)
}

fn is_said(actions: &[Action], client: ClientId, answer: &Answer) -> bool {
    actions.contains(&Action::Send(client, answer.clone()))
}

/// A page that one client writes and has fallen to records for another one, with these locks.
fn fallen(locks: &[RecordLock]) -> (Ground, ClientId, ClientId) {
    let mut ground = Ground::new("ps-aa");
    let (writer, other) = (ground.join(), ground.join());
    let asked = ground.say(writer, read_to_write()).expect("it is honest");
    assert!(granted(&asked, writer), "a page as long as no one is in the way");
    let asked = ground.say(other, read(copy(0, 0), 1, None)).expect("it is honest");
    assert_eq!(asked, [Action::Send(writer, Answer::Fall { copy: copy(0, 0) })]);
    let fell = ground.say(writer, Request::Fell { copy: copy(0, 0), locks: locks.to_vec() }).expect("it is honest");
    assert_eq!(ground.server.writer(page(0)), None);
    let changes = locks.iter().any(|lock| lock.writes);
    assert_eq!(ground.server.copies(page(0)).is_empty(), changes, "only what is read may be copied");
    assert_eq!(is_said(&fell, other, &Answer::ByRecords { copy: copy(0, 0) }), changes, "{fell:?}");
    (ground, writer, other)
}

#[test]
fn what_falls_without_a_record_is_a_page_as_before() {
    let (ground, writer, other) = fallen(&[]);
    assert_eq!(ground.server.copies(page(0)), [(other, copy(0, 0))]);
    assert_eq!(ground.server.records_held(writer), 0);
}

#[test]
fn two_clients_change_records_of_one_page_at_a_time() {
    let (mut ground, writer, other) = fallen(&[lock(3, 1, true)]);
    let given_up = ground.say(other, Request::CalledBack { copy: copy(0, 0) }).expect("it does with records");
    assert!(given_up.is_empty() && ground.server.waiting() == 0, "{given_up:?}");
    let asked = ground.say(other, record(lock(4, 1, true))).expect("it is honest");
    assert!(sent(&asked, other, lock(4, 1, true)), "{asked:?}");
    let asked = ground.say(other, record(lock(3, 1, false))).expect("it is honest");
    assert!(asked.is_empty(), "that one is being changed: {asked:?}");
    let commit = Request::Commit {
        transaction: Transaction(1),
        others: Vec::new(),
        keeps: true,
        records: Vec::new(),
        pages: Vec::new(),
        redone: vec![page(0)],
        sets: Vec::new(),
    };
    let committing = ground.say(writer, commit).expect("it has locks of records");
    assert!(!sent(&committing, other, lock(3, 1, false)), "it is not committed: {committing:?}");
    let committed = ground.step(|server, memory, actions| server.committed((writer, Transaction(1)), memory, actions));
    assert!(sent(&committed, other, lock(3, 1, false)), "{committed:?}");
    assert!(ground.server.changes_record(other, Transaction(1), (page(0), 4)));
    assert!(!ground.server.changes_record(other, Transaction(1), (page(0), 3)));
    ground.say(other, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert_eq!(ground.server.records_held(other), 0);
    let asked = ground.say(other, read(copy(0, 1), 2, None)).expect("it is honest");
    assert!(asked.iter().any(|action| matches!(action, Action::SendPage { .. })), "it rises again: {asked:?}");
}

#[test]
fn a_copy_is_not_given_while_a_record_is_changed_nor_a_write_lock_while_one_is_read() {
    for writes in [false, true] {
        let (mut ground, writer, other) = fallen(&[lock(0, 1, writes)]);
        assert_eq!(ground.server.waiting(), usize::from(writes), "what is only read may be copied");
        if !writes {
            let asked = ground.say(other, write(copy(0, 0), 1)).expect("it is honest");
            assert!(!granted(&asked, other), "{asked:?}");
            assert!(is_said(&asked, other, &Answer::Fall { copy: copy(0, 0) }), "its own, too: {asked:?}");
        }
        let ended = ground.say(writer, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
        let is_served = |action: &Action| matches!(action, Action::SendPage { to, .. } if *to == other);
        assert!(if writes { ended.iter().any(is_served) } else { granted(&ended, other) }, "{ended:?}");
    }
}

#[test]
fn a_change_of_a_record_waits_until_no_copy_is_left() {
    let mut ground = Ground::new("ps-aa");
    let (one, other) = (ground.join(), ground.join());
    for client in [one, other] {
        ground.say(client, read(copy(0, 0), 0, None)).expect("it is honest");
    }
    let asked = ground.say(one, record(lock(7, 0, true))).expect("it is honest");
    assert_eq!(asked, [one, other].map(|client| Action::Send(client, Answer::Fall { copy: copy(0, 0) })));
    let fell = Request::Fell { copy: copy(0, 0), locks: vec![lock(8, 0, false)] };
    assert!(ground.say(other, fell).expect("it is honest").is_empty());
    let given_up = ground.say(one, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
    assert!(sent(&given_up, one, lock(7, 0, true)), "{given_up:?}");
    let asked = ground.say(one, record(lock(8, 0, true))).expect("it is honest");
    assert!(asked.is_empty(), "the other one has read it: {asked:?}");
}

#[test]
fn a_deadlock_over_records_has_a_victim() {
    let (mut ground, writer, other) = fallen(&[lock(0, 1, true)]);
    ground.say(other, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
    ground.say(other, record(lock(1, 1, true))).expect("it is honest");
    assert!(ground.say(other, record(lock(0, 1, false))).expect("it is honest").is_empty());
    let closed = ground.say(writer, record(lock(1, 1, false))).expect("it is honest");
    let victim = Answer::Victim { transaction: Transaction(1), withdrawn: Vec::new() };
    assert!(is_said(&closed, writer, &victim), "it began to wait last: {closed:?}");
    let ended = ground.say(writer, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert!(sent(&ended, other, lock(0, 1, false)), "{ended:?}");
}

#[test]
fn a_lost_client_leaves_no_lock_of_a_record_but_those_of_its_commit() {
    for commits in [false, true] {
        let (mut ground, writer, other) = fallen(&[lock(0, 1, true), lock(1, 1, false)]);
        ground.say(other, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
        if commits {
            let (others, redone) = (Vec::new(), vec![page(0)]);
            let (records, pages) = (Vec::new(), Vec::new());
            let commit = Request::Commit {
                transaction: Transaction(1),
                others,
                keeps: false,
                records,
                pages,
                redone,
                sets: Vec::new(),
            };
            ground.say(writer, commit).expect("it is honest");
        }
        ground.say(other, record(lock(0, 5, true))).expect("it is honest");
        let lost = ground.step(|server, memory, actions| server.lose(writer, memory, actions));
        assert_eq!(sent(&lost, other, lock(0, 5, true)), !commits, "{lost:?}");
        let ended = ground.step(|server, memory, actions| server.committed((writer, Transaction(1)), memory, actions));
        assert_eq!(sent(&ended, other, lock(0, 5, true)), commits, "{ended:?}");
        assert_eq!(ground.server.records_held(writer), 0);
    }
}

#[test]
fn no_client_claims_locks_that_it_cannot_have() {
    let copies = |ground: &mut Ground| {
        let (one, other) = (ground.join(), ground.join());
        for client in [one, other] {
            ground.say(client, read(copy(0, 0), 0, None)).expect("it is honest");
        }
        (one, other)
    };
    let claims: [Vec<RecordLock>; 2] = [vec![lock(0, 0, true)], (0..=RECORDS_MAX).map(|_| lock(0, 0, false)).collect()];
    for locks in claims {
        let mut ground = Ground::new("ps-aa");
        let (one, _) = copies(&mut ground);
        ground.say(one, Request::Fell { copy: copy(0, 0), locks }).expect_err("it cannot");
    }
    let mut ground = Ground::new("ps-aa");
    let (one, _) = copies(&mut ground);
    let locks = vec![lock(0, 0, false)];
    ground.say(one, Request::Fell { copy: copy(0, 3), locks }).expect_err("it has no such copy");
    let (mut ground, writer, _) = fallen(&[lock(0, 1, true)]);
    let commit = Request::Commit {
        transaction: Transaction(2),
        others: Vec::new(),
        keeps: false,
        records: Vec::new(),
        pages: Vec::new(),
        redone: vec![page(0)],
        sets: Vec::new(),
    };
    ground.say(writer, commit).expect_err("the lock is another transaction's");
}

fn commit(transaction: u64, others: &[u64], images: &[u32], redone: &[u32]) -> Request {
    Request::Commit {
        transaction: Transaction(transaction),
        others: others.iter().map(|other| Transaction(*other)).collect(),
        keeps: false,
        records: Vec::new(),
        pages: images.iter().map(|number| Image { page: page(*number), bytes: vec![1] }).collect(),
        redone: redone.iter().map(|number| page(*number)).collect(),
        sets: Vec::new(),
    }
}

#[test]
fn locks_of_records_let_only_those_be_changed_that_are_locked_for_that() {
    let (mut ground, reader, _) = fallen(&[lock(0, 1, false)]);
    ground.say(reader, commit(1, &[], &[], &[0])).expect_err("it may read a record");
    let (mut ground, reader, _) = fallen(&[lock(0, 1, false)]);
    ground.say(reader, commit(1, &[], &[0], &[])).expect_err("it may read a record");
    let (mut ground, writer, _) = fallen(&[lock(0, 1, true)]);
    ground.say(writer, commit(1, &[], &[0], &[])).expect_err("others change other records of the page");
    let (mut ground, writer, _) = fallen(&[lock(0, 1, true)]);
    let committing = ground.say(writer, commit(1, &[], &[], &[0])).expect("it is honest");
    let is_said =
        |action: &Action| matches!(action, Action::Commit { by_records, .. } if by_records.contains(&page(0)));
    assert!(committing.iter().any(is_said), "{committing:?}");
}

/// What one of them waits for is taken back, and is not given to another one of them, whose name is no one's any more.
#[test]
fn no_lock_of_a_record_outlives_a_commit_of_several_transactions() {
    let (mut ground, one, other) = fallen(&[lock(0, 1, true)]);
    ground.say(other, Request::CalledBack { copy: copy(0, 0) }).expect("it does with records");
    ground.say(other, record(lock(1, 1, false))).expect("it is honest");
    for waiting in [lock(1, 2, true), lock(1, 3, false)] {
        assert!(ground.say(one, record(waiting)).expect("it is honest").is_empty());
    }
    ground.say(one, commit(1, &[2, 3], &[], &[0])).expect("it is honest");
    ground.step(|server, memory, actions| server.committed((one, Transaction(1)), memory, actions));
    assert_eq!((ground.server.records_held(one), ground.server.waiting()), (0, 0));
}

#[test]
fn no_client_has_locks_of_records_where_locks_do_not_fall() {
    for claims in [false, true] {
        let mut ground = Ground::new("cbl");
        let client = ground.join();
        ground.say(client, read(copy(0, 0), 0, None)).expect("it is honest so far");
        let locks = vec![lock(0, 0, false)];
        let said = if claims { Request::Fell { copy: copy(0, 0), locks } } else { record(lock(0, 0, false)) };
        ground.say(client, said).expect_err("no honest one says that");
    }
}

#[test]
fn no_lock_for_a_change_is_given_while_copies_may_be_unknown() {
    let mut ground = Ground::new("ps-aa");
    ground.server.gather(Some(OF_ANY_EPOCH));
    let client = ground.join();
    let asked = ground.say(client, record(lock(0, 1, false))).expect("it is honest");
    assert!(sent(&asked, client, lock(0, 1, false)), "{asked:?}");
    let asked = ground.say(client, record(lock(0, 1, true))).expect("it is honest");
    assert!(asked.is_empty(), "{asked:?}");
    let ended = ground.step(|server, memory, actions| server.end_gathering(memory, actions));
    assert!(sent(&ended, client, lock(0, 1, true)), "{ended:?}");
}

/// Whatever is said, by clients that are given up for what no honest one says.
#[test]
fn whatever_clients_say_of_records_the_state_is_right() {
    let mut heard = 0;
    for seed in 0..60 {
        let mut random = base::Random::stream(seed, "requests");
        let mut ground = Ground::new("ps-aa");
        let mut clients = [(); 3].map(|()| ground.join());
        let mut numbers = [0; 3];
        for _ in 0..300 {
            let which = random.below(3) as usize;
            let client = clients[which];
            let number = if random.chance(0.7) { numbers[which] } else { random.below(numbers[which] + 1) };
            let wanted = copy(random.below(2) as u32, number);
            let held = random.below(2) as u32;
            let held = ground.server.copies(page(held)).into_iter().find(|(holder, _)| *holder == client);
            let held = held.map_or(wanted, |(_, copy)| copy);
            let of = |random: &mut base::Random| lock(random.below(3) as u16, random.below(3), random.chance(0.4));
            let transaction = Transaction(random.below(3));
            let body = match random.below(9) {
                0 | 1 => read(wanted, transaction.0, None),
                2 if held != wanted => Request::Write { copy: held, transaction },
                3 => Request::Fell { copy: held, locks: (0..random.below(3)).map(|_| of(&mut random)).collect() },
                4 | 5 => Request::Record { page: wanted.page, lock: of(&mut random) },
                6 => Request::CalledBack { copy: held },
                7 => Request::Abort { transaction },
                _ => Request::InUse { copy: held, by: vec![transaction] },
            };
            numbers[which] += u64::from(matches!(body, Request::Read { .. }));
            heard += 1;
            if ground.say(client, body).is_err() {
                ground.step(|server, memory, actions| server.lose(client, memory, actions));
                (clients[which], numbers[which]) = (ground.join(), 0);
            }
        }
    }
    assert!(heard > 10_000);
}

/// What its program gives up it waits for no more, as it says by asking for something else.
#[test]
fn a_transaction_waits_for_one_record_at_a_time() {
    let taken: Vec<RecordLock> = (0..2 * WAITING_MAX as u16).map(|slot| lock(slot, 1, true)).collect();
    let (mut ground, writer, other) = fallen(&taken);
    ground.say(other, Request::CalledBack { copy: copy(0, 0) }).expect("it does with records");
    let mut say = |client, body| {
        let mut actions = Vec::new();
        let message = ToServer { drops: Vec::new(), body };
        ground.server.receive(client, message, &ground.memory, &mut actions).map(|()| actions)
    };
    for taken in &taken {
        say(other, record(lock(taken.slot, 2, false))).expect("it is honest");
    }
    let ended = say(writer, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert!(sent(&ended, other, lock(taken.last().expect("many").slot, 2, false)), "{ended:?}");
    assert_eq!((ground.server.records_held(other), ground.server.waiting()), (1, 0));
    ground.server.check().expect("the state is right");
}

/// Its bytes were not there when its page fell.
#[test]
fn a_record_that_is_locked_is_sent_however_many_locks_there_are() {
    let all: Vec<RecordLock> = (0..=u16::MAX).map(|slot| lock(slot, 1, false)).collect();
    assert_eq!(all.len(), RECORDS_MAX);
    let (mut ground, reader, _) = fallen(&all);
    assert_eq!(ground.server.records_held(reader), RECORDS_MAX);
    let asked = ground.say(reader, record(lock(7, 1, false))).expect("it is honest");
    assert!(sent(&asked, reader, lock(7, 1, false)), "{asked:?}");
    let asked = ground.say(reader, record(lock(7, 2, false))).expect("it is honest");
    assert!(!sent(&asked, reader, lock(7, 2, false)), "that is one more: {asked:?}");
}

/// Until the page falls no record of it is to be had, also for the transaction that writes it; and it does not fall while others of its node use all
/// of it.
#[test]
fn who_wants_a_record_behind_its_own_write_lock_waits_for_those_that_keep_the_copy() {
    let mut ground = Ground::new("ps-aa");
    let (one, other) = (ground.join(), ground.join());
    assert!(granted(&ground.say(one, read_to_write()).expect("it is honest"), one));
    let asked = ground.say(other, record(lock(5, 1, false))).expect("it is honest");
    assert!(is_said(&asked, one, &Answer::Fall { copy: copy(0, 0) }), "{asked:?}");
    let by = vec![Transaction(1), Transaction(2)];
    ground.say(one, Request::InUse { copy: copy(0, 0), by }).expect("it is honest");
    assert!(ground.say(one, record(lock(6, 1, false))).expect("it is honest").is_empty());
    let pairs = vec![WaitsFor { transaction: Transaction(2), other: Transaction(1) }];
    let told = ground.say(one, Request::Waits { pairs }).expect("it is honest");
    let victim = |number| Answer::Victim { transaction: Transaction(number), withdrawn: Vec::new() };
    assert!([1, 2].iter().any(|number| is_said(&told, one, &victim(*number))), "{told:?}");
}

#[test]
fn a_page_is_not_written_before_a_record_of_one_whose_locks_of_others_are_waited_for() {
    let (mut ground, holder, other) = fallen(&[lock(3, 1, false)]);
    let asked = ground.say(holder, record(lock(4, 1, true))).expect("it is honest");
    assert_eq!(asked, [Action::Send(other, Answer::Fall { copy: copy(0, 0) })]);
    // That has not been heard.
    let asked = ground.say(other, write(copy(0, 0), 1)).expect("it is honest");
    assert!(asked.is_empty(), "it is no victim: {asked:?}");
    let fell = Request::Fell { copy: copy(0, 0), locks: vec![lock(5, 1, false)] };
    let fell = ground.say(other, fell).expect("it is honest");
    assert!(sent(&fell, holder, lock(4, 1, true)), "{fell:?}");
}
