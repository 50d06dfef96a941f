//! Last copies that are passed on, and clients that play tricks with them.

use super::*;
use crate::grants::{Access, Right};

/// A server that passes last copies on, one that works, and others.
fn ground<const N: usize>() -> (Ground, ClientId, [ClientId; N]) {
    let mut ground = Ground::new("n-chance");
    let worker = ground.join();
    let others = [(); N].map(|()| ground.join());
    (ground, worker, others)
}

fn leaving(copy: Copy, unused_ns: u64, was_used: bool) -> Option<Leaving> {
    Some(Leaving { copy, unused_ns, was_used })
}

fn read_for(copy: Copy, leaving: Option<Leaving>) -> Request {
    Request::Read { copy, secret: Secret(5), transaction: Transaction(0), writes: false, leaving, waited: None }
}

fn accept(copy: Copy, leaving: Option<Leaving>) -> Request {
    Request::Accept { copy, secret: Secret(6), leaving }
}

/// Whom a page is offered.
fn offered(actions: &[Action], page: PageId) -> Option<ClientId> {
    actions.iter().find_map(|action| match action {
        Action::Send(to, Answer::Offer { page: offered }) if *offered == page => Some(*to),
        _ => None,
    })
}

/// Who sends a page on, and to whom.
fn passed_on(actions: &[Action]) -> Option<(ClientId, ClientId)> {
    actions.iter().find_map(|action| match action {
        Action::PassOn(by, Answer::Forward { to, .. }) => Some((*by, *to)),
        _ => None,
    })
}

fn is_failed(actions: &[Action], client: ClientId) -> bool {
    matches!(actions, [Action::Send(to, Answer::Failed { is_denied: false, .. })] if *to == client)
}

/// The worker reads page 0, and then page 1 in its place. What the server does then.
fn leave(ground: &mut Ground, worker: ClientId) -> Vec<Action> {
    ground.say(worker, read_for(copy(0, 0), None)).expect("it is honest");
    ground.say(worker, read_for(copy(1, 1), leaving(copy(0, 0), 100, true))).expect("it is honest")
}

#[test]
fn a_last_copy_goes_to_an_idle_client_and_is_served_from_there() {
    let (mut ground, worker, [idle]) = ground();
    let actions = leave(&mut ground, worker);
    assert_eq!(offered(&actions, page(0)), Some(idle));
    let kept = actions.iter().any(|action| matches!(action, Action::SendPage { fate: LeavingFate::Offered, .. }));
    assert!(kept, "its bytes stay: {actions:?}");
    let actions = ground.say(idle, accept(copy(0, 0), None)).expect("it was offered that");
    assert_eq!(passed_on(&actions), Some((worker, idle)));
    // The worker has sent it, and says so with what it wants next: the page again.
    let message = ToServer { drops: vec![copy(0, 0)], body: read_for(copy(0, 2), None) };
    let mut actions = Vec::new();
    ground.server.receive(worker, message, &ground.memory, &mut actions).expect("it is honest");
    assert!(matches!(actions[..], [Action::Send(by, Answer::Forward { to, .. })] if (by, to) == (idle, worker)));
    assert_eq!((ground.server.counts().passed_on, ground.server.counts().forwards), (1, 1));
}

#[test]
fn what_is_in_the_servers_memory_or_with_others_is_not_passed_on() {
    let (mut ground, worker, [idle]) = ground();
    ground.memory = Having(vec![page(0)]);
    let actions = leave(&mut ground, worker);
    assert_eq!(offered(&actions, page(0)), None);
    assert!(actions.contains(&Action::Touch(page(0))), "{actions:?}");
    for client in [worker, idle] {
        ground.say(client, read_for(copy(2, 5), None)).expect("it is honest");
    }
    let actions = ground.say(worker, read_for(copy(3, 6), leaving(copy(2, 5), 100, true))).expect("it is honest");
    assert_eq!(offered(&actions, page(2)), None, "the other one has it");
}

/// A page that no one uses goes from one client to the next. How often it is passed on.
fn passed_in_vain(chances: u8) -> u64 {
    let (mut ground, worker, others): (_, _, [ClientId; 6]) = ground();
    ground.server.set_chances(chances);
    let mut actions = leave(&mut ground, worker);
    let (mut holder, mut number) = (worker, 0);
    while let Some(receiver) = offered(&actions, page(0)) {
        assert!(others.contains(&receiver));
        let actions_then = ground.say(receiver, accept(copy(0, 0), None)).expect("it was offered that");
        assert_eq!(passed_on(&actions_then), Some((holder, receiver)));
        ground.say(holder, Request::CalledBack { copy: copy(0, number) }).expect("it has sent it");
        (holder, number) = (receiver, 0);
        // It works again.
        let next = read_for(copy(1, 9), leaving(copy(0, 0), 100, false));
        actions = ground.say(holder, next).expect("it is honest");
    }
    assert!(ground.server.copies(page(0)).is_empty());
    ground.server.counts().passed_on
}

#[test]
fn a_page_is_passed_on_so_often_without_being_used() {
    assert_eq!([0, 1, 2, 4].map(passed_in_vain), [0, 1, 2, 4]);
    assert_eq!(passed_in_vain(CHANCES), 2, "as in the paper");
}

#[test]
fn what_is_used_has_all_its_chances_again() {
    for is_used_elsewhere in [false, true] {
        let (mut ground, worker, [one, other]) = ground();
        ground.server.set_chances(1);
        let actions = leave(&mut ground, worker);
        let receiver = offered(&actions, page(0)).expect("both are idle");
        ground.say(receiver, accept(copy(0, 0), None)).expect("it was offered that");
        ground.say(worker, Request::CalledBack { copy: copy(0, 0) }).expect("it has sent it");
        if is_used_elsewhere {
            ground.say(worker, read_for(copy(0, 2), None)).expect("it is honest");
            ground.say(worker, Request::CalledBack { copy: copy(0, 2) }).expect("it may drop it");
        }
        let next = read_for(copy(1, 9), leaving(copy(0, 0), 100, !is_used_elsewhere));
        let actions = ground.say(receiver, next).expect("it is honest");
        let third = offered(&actions, page(0)).expect("it was used");
        assert!([worker, one, other].contains(&third) && third != receiver);
    }
}

#[test]
fn one_that_keeps_a_page_for_others_is_told_when_they_have_it_no_more() {
    let (mut ground, worker, [idle]) = ground();
    leave(&mut ground, worker);
    ground.say(idle, accept(copy(0, 0), None)).expect("it was offered that");
    ground.say(worker, Request::CalledBack { copy: copy(0, 0) }).expect("it has sent it");
    ground.say(worker, read_for(copy(0, 2), None)).expect("it is honest");
    let next = read_for(copy(2, 3), leaving(copy(0, 2), 100, true));
    let actions = ground.say(worker, next).expect("it is honest");
    assert_eq!(offered(&actions, page(0)), None, "there is another copy");
    assert!(actions.contains(&Action::Send(idle, Answer::LastCopy { copy: copy(0, 0) })), "{actions:?}");
}

#[test]
fn one_that_works_is_not_chosen() {
    let (mut ground, worker, [busy]) = ground();
    // What leaves its memory was used a moment ago.
    ground.say(busy, read_for(copy(5, 0), leaving(copy(7, 7), 150, true))).expect("it is honest");
    let actions = leave(&mut ground, worker);
    assert_eq!(offered(&actions, page(0)), None, "{actions:?}");
    // Later what leaves it next is old.
    ground.server.note_time(Instant::from_ns(1_000));
    ground.say(worker, read_for(copy(0, 2), None)).expect("it is honest");
    let next = read_for(copy(2, 3), leaving(copy(0, 2), 100, true));
    let actions = ground.say(worker, next).expect("it is honest");
    assert_eq!(offered(&actions, page(0)), Some(busy));
    // It works all the same.
    let declined = ground.say(busy, Request::Decline { page: page(0) }).expect("it was offered that");
    assert!(declined.is_empty(), "no other one is there: {declined:?}");
    let next = read_for(copy(3, 4), leaving(copy(2, 3), 100, true));
    let actions = ground.say(worker, next).expect("it is honest");
    assert_eq!(offered(&actions, page(2)), None, "it has just said so");
}

#[test]
fn who_declines_is_followed_by_the_next() {
    let (mut ground, worker, [one, other]) = ground();
    let actions = leave(&mut ground, worker);
    let first = offered(&actions, page(0)).expect("both are idle");
    let second = if first == one { other } else { one };
    let actions = ground.say(first, Request::Decline { page: page(0) }).expect("it was offered that");
    assert_eq!(offered(&actions, page(0)), Some(second));
    let actions = ground.say(second, accept(copy(0, 0), None)).expect("it was offered that");
    assert_eq!(passed_on(&actions), Some((worker, second)));
}

/// The page that was asked for is late, so it is asked for again.
#[test]
fn a_copy_that_leaves_is_offered_once_however_often_it_is_named() {
    let (mut ground, worker, [_one, _other]) = ground();
    leave(&mut ground, worker);
    for _ in 0..3 {
        let again = ground.say(worker, read_for(copy(1, 1), leaving(copy(0, 0), 100, true))).expect("it is honest");
        assert_eq!(offered(&again, page(0)), None, "one has not answered: {again:?}");
        assert!(matches!(again[..], [Action::SendPage { fate: LeavingFate::Offered, .. }]), "{again:?}");
    }
    let counts = ground.server.counts();
    assert_eq!((counts.leaving, counts.offers), (1, 1));
}

/// The one that was to send the page has died with that.
#[test]
fn a_copy_that_is_asked_back_is_so_once_whatever_is_in_the_memory_by_then() {
    let mut ground = Ground::new("fwd-s");
    let (worker, holder) = (ground.join(), ground.join());
    ground.say(worker, read_for(copy(0, 0), None)).expect("it is honest");
    ground.say(holder, read_for(copy(1, 0), None)).expect("it is honest");
    let asks = || read_for(copy(1, 1), leaving(copy(0, 0), 100, true));
    let actions = ground.say(worker, asks()).expect("it is honest");
    let fate = LeavingFate::Returned;
    assert!(
        matches!(actions[..], [Action::Send(_, Answer::Forward { fate: told, .. })] if told == fate),
        "{actions:?}"
    );
    ground.step(|server, memory, actions| server.lose(holder, memory, actions));
    ground.memory = Having(vec![page(0)]);
    let actions = ground.say(worker, asks()).expect("it is honest");
    assert!(matches!(actions[..], [Action::SendPage { fate: told, .. }] if told == fate), "{actions:?}");
    let counts = ground.server.counts();
    assert_eq!((counts.leaving, counts.returned), (1, 1));
}

#[test]
fn what_makes_room_for_a_page_that_is_passed_on_is_not_passed_on_itself() {
    let (mut ground, worker, [idle, third]) = ground();
    ground.say(idle, read_for(copy(5, 0), None)).expect("it is honest");
    ground.say(third, read_for(copy(6, 0), leaving(copy(9, 9), 1, true))).expect("it is honest");
    let actions = leave(&mut ground, worker);
    assert_eq!(offered(&actions, page(0)), Some(idle));
    ground.server.note_time(Instant::from_ns(1_000_000));
    let actions = ground.say(idle, accept(copy(0, 1), leaving(copy(5, 0), 100, true))).expect("it was offered that");
    assert_eq!(passed_on(&actions), Some((worker, idle)));
    assert!(offered(&actions, page(5)).is_none() && ground.server.copies(page(5)).is_empty());
}

#[test]
fn a_page_that_is_called_back_while_it_is_passed_on_is_written_by_no_one_before_it_is_given_up() {
    let (mut ground, worker, [idle, writer]) = ground();
    ground.say(writer, read_for(copy(9, 0), leaving(copy(8, 8), 1, true))).expect("it is honest");
    let actions = leave(&mut ground, worker);
    assert_eq!(offered(&actions, page(0)), Some(idle));
    ground.say(idle, accept(copy(0, 0), None)).expect("it was offered that");
    let both = Request::Read {
        copy: copy(0, 1),
        secret: Secret(5),
        transaction: Transaction(3),
        writes: true,
        leaving: None,
        waited: None,
    };
    let called = ground.say(writer, both).expect("it is honest");
    for holder in [worker, idle] {
        assert!(called.contains(&Action::Send(holder, Answer::CallBack { copy: copy(0, 0) })), "{called:?}");
    }
    let actions = ground.say(worker, Request::CalledBack { copy: copy(0, 0) }).expect("it has sent it");
    assert!(!granted(&actions, writer), "the page is on its way to the other one");
    let actions = ground.say(idle, Request::CalledBack { copy: copy(0, 0) }).expect("it has given it up");
    assert!(granted(&actions, writer), "{actions:?}");
}

#[test]
fn an_offer_of_what_is_gone_or_wanted_for_writing_comes_to_nothing() {
    // The copy was dropped meanwhile.
    let (mut ground, worker, [idle]) = ground();
    leave(&mut ground, worker);
    ground.say(worker, Request::CalledBack { copy: copy(0, 0) }).expect("it may drop it");
    let actions = ground.say(idle, accept(copy(0, 0), None)).expect("it was offered that");
    assert!(is_failed(&actions, idle) && ground.server.copies(page(0)).is_empty(), "{actions:?}");
    // It cannot be sent, or its client is gone: no disk is read for that.
    for is_lost in [true, false] {
        let (mut ground, worker, [idle]) = self::ground();
        leave(&mut ground, worker);
        ground.say(idle, accept(copy(0, 0), None)).expect("it was offered that");
        let actions = if is_lost {
            ground.step(|server, memory, actions| server.lose(worker, memory, actions))
        } else {
            let refused = Request::Refused { wanted: copy(0, 0), to: idle };
            ground.say(worker, refused).expect("it may be honest")
        };
        // The node knows that no one has asked for it.
        let again = Action::Send(idle, Answer::AskAgain { copies: vec![copy(0, 0)] });
        assert!(if is_lost { actions == [again] } else { is_failed(&actions, idle) }, "{actions:?}");
        assert!(ground.server.copies(page(0)).contains(&(idle, copy(0, 0))), "it may have come all the same");
    }
    // One waits for the write lock.
    let (mut ground, worker, [idle, writer]) = self::ground();
    ground.say(writer, read_for(copy(9, 0), leaving(copy(8, 8), 1, true))).expect("it is honest");
    leave(&mut ground, worker);
    let (copy_of_writer, transaction) = (copy(0, 1), Transaction(3));
    let both = Request::Read {
        copy: copy_of_writer,
        secret: Secret(5),
        transaction,
        writes: true,
        leaving: None,
        waited: None,
    };
    ground.say(writer, both).expect("it is honest");
    let actions = ground.say(idle, accept(copy(0, 0), None)).expect("it was offered that");
    assert!(is_failed(&actions, idle), "{actions:?}");
}

fn pages_sent(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::SendPage { .. })).count()
}

#[test]
fn only_who_was_to_send_a_page_may_refuse_that_and_once() {
    let mut ground = Ground::new("fwd");
    let (holder, reader, liar) = (ground.join(), ground.join(), ground.join());
    ground.say(holder, read_for(copy(0, 0), None)).expect("it is honest");
    ground.say(reader, read_for(copy(0, 0), None)).expect("it is honest");
    let refused = || Request::Refused { wanted: copy(0, 0), to: reader };
    for _ in 0..1_000 {
        let actions = ground.say(liar, refused()).expect("it may be late");
        assert!(actions.is_empty(), "it was not to send the page: {actions:?}");
    }
    let actions = ground.say(holder, refused()).expect("it is honest");
    assert_eq!(pages_sent(&actions), 1, "{actions:?}");
    for _ in 0..1_000 {
        let actions = ground.say(holder, refused()).expect("it may be late");
        assert!(actions.is_empty(), "it has said so: {actions:?}");
    }
    assert_eq!(ground.server.counts().refusals, 1);
}

#[test]
fn when_a_client_leaves_no_page_is_sent_that_has_come_from_it() {
    const PAGES: u32 = 1_000;
    for says_what_has_come in [true, false] {
        let mut ground = Ground::new("fwd");
        let (holder, reader) = (ground.join(), ground.join());
        let mut before = None;
        for number in 0..PAGES {
            let copy = copy(number, u64::from(number));
            ground.say(holder, read_for(copy, None)).expect("it is honest");
            let mut asks = read_for(copy, None);
            if let (Request::Read { waited, .. }, true) = (&mut asks, says_what_has_come) {
                *waited = before.replace(copy).map(|copy| Wait { copy, waited_ns: 1 });
            }
            let actions = ground.say(reader, asks).expect("it is honest");
            assert!(matches!(actions[..], [Action::Send(_, Answer::Forward { .. })]), "{actions:?}");
        }
        let actions = ground.step(|server, memory, actions| server.lose(holder, memory, actions));
        let [Action::Send(to, Answer::AskAgain { copies })] = &actions[..] else { panic!("{actions:?}") };
        assert_eq!((*to, copies.len()), (reader, if says_what_has_come { 1 } else { PAGES as usize }));
        // Of the last one nothing was said. It has not come.
        let last = copies[copies.len() - 1];
        assert_eq!(last.page, page(PAGES - 1));
        let actions = ground.say(reader, read_for(last, None)).expect("it is honest");
        assert_eq!(pages_sent(&actions), 1, "{actions:?}");
    }
}

#[test]
fn no_client_is_offered_what_it_may_not_write_or_more_than_one_page_at_a_time() {
    let (mut ground, worker, [idle]) = ground();
    let address: SocketAddr = "10.0.0.1:7000".parse().expect("an address");
    let access = Access::Granted([(PartitionId(1), Right::Read)].into());
    let newcomer = Newcomer { address, name: Some("reader".to_owned()), access };
    let mut actions = Vec::new();
    ground.server.join(newcomer, (None, Secret(9)), &ground.memory, &mut actions);
    let actions = leave(&mut ground, worker);
    assert_eq!(offered(&actions, page(0)), Some(idle));
    for (number, next) in (1..5).zip(2..) {
        let next = read_for(copy(next, u64::from(next)), leaving(copy(number, u64::from(number)), 100, true));
        let actions = ground.say(worker, next).expect("it is honest");
        assert_eq!(offered(&actions, page(number)), None, "one has not answered, the other one may only read");
    }
}

#[test]
fn who_takes_what_it_was_not_offered_is_given_up() {
    let (mut ground, worker, [liar]) = ground();
    ground.say(worker, read_for(copy(0, 0), None)).expect("it is honest");
    ground.say(liar, accept(copy(0, 0), None)).expect_err("it was offered nothing");
    ground.say(liar, Request::Decline { page: page(0) }).expect_err("it was offered nothing");
    let actions = ground.say(worker, read_for(copy(1, 1), leaving(copy(0, 0), 100, true))).expect("it is honest");
    assert_eq!(offered(&actions, page(0)), Some(liar));
    ground.say(liar, accept(copy(1, 0), None)).expect_err("it was offered another one");
    ground.say(liar, accept(copy(0, 0), None)).expect("it was offered that");
    ground.say(liar, accept(copy(0, 1), None)).expect_err("it was offered that once");
}

#[test]
fn a_copy_that_was_offered_and_comes_to_the_server_is_no_lie() {
    let (mut ground, worker, [_idle]) = ground();
    leave(&mut ground, worker);
    // The client that has sent it the next page has said so.
    let actions = ground.say(worker, Request::Returned { copy: copy(0, 0), bytes: vec![1] }).expect("it was told to");
    assert!(actions.is_empty() && ground.server.copies(page(0)).is_empty(), "{actions:?}");
}
