//! Records of sets, which have no pages.

use super::*;
use crate::grants::Right;
use crate::message::{
    RecordLock, SET_ASK_MAX, SetAnswer, SetAsk, SetEntry, SetQuestion, SetRange, SetRecord, SetValue, SetWrite,
    place_in_set,
};
use std::ops::Bound;

const STOCK: u16 = SET.0;

pub fn wanted(key: u8, transaction: u64, writes: bool) -> SetRecord {
    SetRecord { partition: STOCK, key: vec![key], transaction: Transaction(transaction), writes }
}

pub fn ask(key: u8, transaction: u64, writes: bool) -> Request {
    Request::SetRecord(wanted(key, transaction, writes))
}

fn sends(to: ClientId, key: u8, transaction: u64, writes: bool) -> Action {
    Action::SendSetRecord { to, record: wanted(key, transaction, writes) }
}

/// That a lock is granted which was waited for: what asks for the record is told to ask again.
pub fn grants(actions: &[Action], client: ClientId, wanted: &SetRecord) -> bool {
    let (of, granted) = wanted.lock();
    let is_it = |action: &Action| matches!(action, Action::SendRecord { to, page, lock, .. } if (*to, *page, *lock) == (client, of, granted));
    actions.iter().any(is_it)
}

pub fn commit(transaction: u64, keys: &[u8]) -> Request {
    let write = |key: &u8| SetWrite { partition: STOCK, key: vec![*key], value: Some(SetValue(vec![7])) };
    Request::Commit {
        transaction: Transaction(transaction),
        others: Vec::new(),
        keeps: false,
        records: Vec::new(),
        pages: Vec::new(),
        redone: Vec::new(),
        sets: keys.iter().map(write).collect(),
    }
}

fn changes(server: &Server, client: ClientId, transaction: u64, key: u8) -> bool {
    server.changes_record(client, Transaction(transaction), place_in_set(SET, &[key]))
}

#[test]
fn a_record_is_locked_until_its_transaction_has_ended_whatever_the_algorithm() {
    for name in ["cbl", "ps-aa", "n-chance"] {
        let mut ground = Ground::new(name);
        let (one, other) = (ground.join(), ground.join());
        assert_eq!(ground.say(one, ask(1, 1, false)).expect("it is honest"), [sends(one, 1, 1, false)]);
        assert_eq!(ground.say(other, ask(1, 5, false)).expect("it is honest"), [sends(other, 1, 5, false)]);
        assert_eq!(ground.say(other, ask(2, 5, true)).expect("it is honest"), [sends(other, 2, 5, true)]);
        assert_eq!(ground.say(one, ask(1, 1, true)).expect("it is honest"), [], "another one reads it");
        let ended = ground.say(other, Request::Abort { transaction: Transaction(5) }).expect("it is honest");
        assert!(grants(&ended, one, &wanted(1, 1, true)), "{ended:?}");
        assert_eq!(ground.say(one, ask(1, 1, true)).expect("it is honest"), [sends(one, 1, 1, true)], "with its key");
        assert_eq!(ground.say(other, ask(1, 6, false)).expect("it is honest"), []);
        ground.say(one, commit(1, &[1])).expect("it is honest");
        assert!(changes(&ground.server, one, 1, 1) && ground.server.waiting() == 1, "the commit is under way");
        ground.say(one, ask(3, 1, false)).expect_err("it is being committed");
        let ended = ground.step(|server, memory, actions| server.committed((one, Transaction(1)), memory, actions));
        assert!(grants(&ended, other, &wanted(1, 6, false)), "{ended:?}");
        assert!(!changes(&ground.server, one, 1, 1));
        let counts = ground.server.counts();
        assert_eq!((counts.records, counts.set_records), (0, 4), "no record of a page was sent");
        ground.step(|server, memory, actions| server.lose(other, memory, actions));
        assert_eq!((ground.server.records_held(one), ground.server.records_held(other)), (0, 0));
    }
}

fn question(transaction: u64, number: u64, ask: SetAsk) -> Request {
    Request::Set(SetQuestion { transaction: Transaction(transaction), number, partition: STOCK, ask })
}

pub fn entries(transaction: u64, number: u64, of: u8) -> Request {
    question(transaction, number, SetAsk::Entries(vec![SetEntry { index: 0, of: vec![of] }]))
}

impl Ground {
    /// A transaction reads a part of an index, or all records. What comes of it, and what else is done.
    pub fn look(
        &mut self,
        client: ClientId,
        transaction: u64,
        number: u64,
        span: Option<(u8, u8)>,
    ) -> (SetSight, Vec<Action>) {
        let ask = span.map_or(SetAsk::Scan(0), |(from, _)| {
            SetAsk::Range(SetRange { index: 0, from: vec![from], to: None, behind: None })
        });
        let asked = self.say(client, question(transaction, number, ask)).expect("it is honest");
        assert!(matches!(&asked[..], [Action::AnswerSet { .. }]), "{asked:?}");
        let spans = span.map_or_else(
            || vec![span_of_records()],
            |(from, to)| vec![span_of_index(0, &[from], Bound::Included(&[to]))],
        );
        let mut sight = SetSight::Over;
        let actions = self.step(|server, memory, actions| {
            sight = server.read_set((client, Transaction(transaction)), number, (SET, spans), memory, actions);
        });
        (sight, actions)
    }
}

/// Whether a client is answered so.
pub fn hears(actions: &[Action], client: ClientId, number: u64, answer: &SetAnswer) -> bool {
    let is_it = |action: &Action| matches!(action, Action::Send(to, Answer::Set { number: of, said, .. }) if (*to, *of, said) == (client, number, answer));
    actions.iter().any(is_it)
}

#[test]
fn who_changes_waits_for_those_that_have_read_there_and_the_other_way_round() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    assert_eq!(ground.look(one, 1, 1, Some((3, 5))).0, SetSight::Locked);
    let beside = ground.say(other, entries(2, 1, 6)).expect("it is honest");
    assert!(hears(&beside, other, 1, &SetAnswer::Granted), "{beside:?}");
    assert_eq!(ground.say(other, entries(2, 2, 4)).expect("it is honest"), [], "it was read");
    // Who comes later waits behind it; who has read there goes on.
    let third = ground.join();
    assert_eq!(ground.look(third, 3, 1, Some((4, 4))).0, SetSight::Waits);
    assert_eq!(ground.look(one, 1, 2, Some((4, 5))).0, SetSight::Locked);
    assert_eq!(ground.server.check(), Ok(()));
    let ended = ground.say(one, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert!(
        hears(&ended, other, 2, &SetAnswer::Granted) && !hears(&ended, third, 1, &SetAnswer::AskAgain),
        "{ended:?}"
    );
    ground.step(|server, memory, actions| server.lose(other, memory, actions));
    assert_eq!(ground.look(third, 3, 2, Some((4, 4))).0, SetSight::Locked, "its first question may ask again");
    ground.step(|server, memory, actions| server.lose(third, memory, actions));
    assert_eq!((ground.server.set_ranges_held(one), ground.server.set_ranges_held(third)), (0, 0));
    // All records.
    let (one, other) = (ground.join(), ground.join());
    assert_eq!(ground.look(one, 1, 1, None).0, SetSight::Locked);
    assert_eq!(ground.say(other, ask(1, 2, false)).expect("it is honest"), [sends(other, 1, 2, false)]);
    assert_eq!(ground.say(other, ask(1, 2, true)).expect("it is honest"), [], "it was seen");
    let ended = ground.say(one, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert!(grants(&ended, other, &wanted(1, 2, true)), "{ended:?}");
    assert_eq!(ground.say(other, ask(1, 2, true)).expect("it is honest"), [sends(other, 1, 2, true)]);
    assert_eq!(ground.look(one, 3, 1, None).0, SetSight::Waits);
    let ended = ground.say(other, Request::Abort { transaction: Transaction(2) }).expect("it is honest");
    assert!(hears(&ended, one, 1, &SetAnswer::AskAgain), "{ended:?}");
    assert_eq!(ground.server.check(), Ok(()));
}

/// Its program has given the question up.
#[test]
fn a_question_of_one_that_commits_behind_another_locks_nothing() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    let marked = ground.say(other, entries(5, 1, 4)).expect("it is honest");
    assert!(hears(&marked, other, 1, &SetAnswer::Granted), "{marked:?}");
    assert_eq!(ground.look(one, 2, 1, Some((3, 5))).0, SetSight::Waits);
    assert_eq!(ground.say(one, ask(1, 1, true)).expect("it is honest"), [sends(one, 1, 1, true)]);
    let mut together = commit(1, &[1]);
    if let Request::Commit { others, .. } = &mut together {
        others.push(Transaction(2));
    }
    ground.say(one, together).expect("it is honest");
    assert_eq!(ground.server.waiting(), 0);
    ground.step(|server, memory, actions| server.committed((one, Transaction(1)), memory, actions));
    let ended = ground.say(other, Request::Abort { transaction: Transaction(5) }).expect("it is honest");
    assert!(!hears(&ended, one, 1, &SetAnswer::AskAgain), "{ended:?}");
    assert_eq!(ground.server.set_ranges_held(one), 0, "nothing would give it back");
    assert_eq!(ground.server.check(), Ok(()));
}

/// One of them waits for a page, so that the circle is of both kinds.
#[test]
fn circles_of_ranges_and_pages_are_deadlocks() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    let is_victim = |action: &Action| matches!(action, Action::Send(_, Answer::Victim { .. }));
    ground.say(one, read_to_write()).expect("it is honest");
    assert_eq!(ground.look(other, 2, 1, Some((3, 5))).0, SetSight::Locked);
    ground.say(other, read(copy(0, 0), 2, None)).expect("it is honest");
    let said = ground.say(one, entries(1, 1, 4)).expect("it is honest");
    assert!(said.iter().any(is_victim), "{said:?}");
    // Two that have read the same change it.
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    assert_eq!(ground.look(one, 1, 1, Some((3, 5))).0, SetSight::Locked);
    assert_eq!(ground.look(other, 2, 1, Some((3, 5))).0, SetSight::Locked);
    assert_eq!(ground.say(one, entries(1, 2, 4)).expect("it is honest"), []);
    let said = ground.say(other, entries(2, 2, 3)).expect("it is honest");
    assert!(said.iter().any(is_victim), "{said:?}");
}

#[test]
fn what_is_locked_of_sets_is_bounded_and_a_question_of_one_that_has_ended_locks_nothing() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let long = SetAsk::Entries(vec![SetEntry { index: 0, of: vec![0; SET_ASK_MAX / 2 + 1] }; 2]);
    ground.say(client, question(1, 1, long)).expect_err("no index has that");
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let mut refused = false;
    for number in 0..12_u8 {
        let entry = |of: u8| SetEntry { index: 0, of: [&[number, of][..], &[0; 60_000]].concat() };
        let many = SetAsk::Entries((0..60).map(entry).collect());
        let said = ground.say(client, question(1, u64::from(number), many)).expect("it is honest");
        refused |= matches!(
            &said[..],
            [Action::Send(_, Answer::Set { said: SetAnswer::Failed { is_denied: false, .. }, .. })]
        );
    }
    assert!(refused && ground.server.set_ranges_held(client) < 2 * SET_RANGES_MAX);
    let mut said = ground.say(client, ask(1, 1, true)).expect("it is honest");
    assert!(matches!(said.pop(), Some(Action::Send(_, Answer::NoSetRecord { is_denied: false, .. }))));
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    ground.say(client, question(1, 1, SetAsk::Scan(0))).expect("it is honest");
    ground.say(client, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    let mut sight = SetSight::Locked;
    ground.step(|server, memory, actions| {
        let spans = vec![span_of_records()];
        sight = server.read_set((client, Transaction(1)), 1, (SET, spans), memory, actions);
    });
    assert_eq!((sight, ground.server.set_ranges_held(client)), (SetSight::Over, 0));
    // Many that lock nothing take room all the same.
    for transaction in 0..10 {
        ground.say(client, question(transaction, 1, SetAsk::Entries(Vec::new()))).expect("it is honest");
    }
    assert!(ground.server.set_ranges_held(client) >= 10);
    for transaction in 0..WAITING_MAX as u64 {
        ground.say(client, question(transaction, 2, SetAsk::Scan(0))).expect("it is honest");
    }
    ground.say(client, question(u64::MAX, 2, SetAsk::Scan(0))).expect_err("an honest one runs less at a time");
    let reading = Access::Granted(BTreeMap::from([(SET, Right::Read)]));
    let address: SocketAddr = "10.0.0.1:7000".parse().expect("an address");
    let newcomer = Newcomer { address, name: Some("reader".into()), access: reading };
    let client = ground.server.join(newcomer, (None, Secret(9)), &ground.memory, &mut Vec::new()).session.client;
    for denied in [entries(1, 1, 1), question(1, 2, SetAsk::Arrival)] {
        let said = ground.say(client, denied).expect("it may try");
        assert!(matches!(
            &said[..],
            [Action::Send(_, Answer::Set { said: SetAnswer::Failed { is_denied: true, .. }, .. })]
        ));
    }
}

/// What its program gives up it waits for no more, as it says by asking for something else.
#[test]
fn a_transaction_waits_for_one_answer_at_a_time() {
    let mut ground = Ground::new("cbl");
    let (other, client) = (ground.join(), ground.join());
    for key in 0..200 {
        ground.say(other, ask(key, 1, true)).expect("it is honest");
    }
    assert_eq!(ground.look(other, 1, 1, Some((0, 255))).0, SetSight::Locked);
    for number in 0..2 * WAITING_MAX as u64 {
        let asked = match number % 3 {
            0 => ask((number % 200) as u8, 2, number % 2 == 0),
            1 => entries(2, number, (number % 256) as u8),
            _ => question(2, number, SetAsk::Scan(0)),
        };
        ground.say(client, asked).expect("it is honest");
        assert!(ground.server.waiting() <= 1, "{number}");
    }
    // It keeps its place who asks for the same once more.
    ground.say(client, ask(7, 2, false)).expect("it is honest");
    let behind = ground.join();
    ground.say(behind, ask(7, 3, true)).expect("it is honest");
    ground.say(client, ask(7, 2, false)).expect("it is honest");
    let ended = ground.say(other, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert!(grants(&ended, client, &wanted(7, 2, false)) && !grants(&ended, behind, &wanted(7, 3, true)), "{ended:?}");
}

/// Others change something there one after the other, so that there is always one.
#[test]
fn who_waits_to_read_is_not_passed_by_those_that_are_to_change_that() {
    let mut ground = Ground::new("cbl");
    let (reader, writer, other) = (ground.join(), ground.join(), ground.join());
    let end = |ground: &mut Ground, client, number| {
        ground.say(client, Request::Abort { transaction: Transaction(number) }).expect("it is honest")
    };
    let is_granted = |said: &[Action], client, number| hears(said, client, number, &SetAnswer::Granted);
    ground.say(writer, entries(1, 1, 5)).expect("it is honest");
    assert_eq!(ground.look(reader, 9, 1, Some((3, 7))).0, SetSight::Waits);
    let more = ground.say(writer, entries(1, 2, 6)).expect("it is honest");
    assert!(is_granted(&more, writer, 2), "it is waited for as it is: {more:?}");
    let beside = ground.say(other, entries(2, 1, 9)).expect("it is honest");
    assert!(is_granted(&beside, other, 1), "{beside:?}");
    assert_eq!(ground.say(other, entries(2, 2, 4)).expect("it is honest"), [], "it came later");
    let ended = end(&mut ground, writer, 1);
    assert!(hears(&ended, reader, 1, &SetAnswer::AskAgain) && !is_granted(&ended, other, 2), "{ended:?}");
    // It has marked that by now: who comes later waits for it.
    let late = ground.join();
    assert_eq!(ground.look(late, 8, 1, Some((4, 4))).0, SetSight::Waits);
    assert_eq!(ground.look(reader, 9, 2, Some((3, 7))).0, SetSight::Locked);
    let ended = end(&mut ground, reader, 9);
    assert!(is_granted(&ended, other, 2), "{ended:?}");
    // One that stands behind another goes on when that gives up.
    assert_eq!(ground.say(writer, entries(3, 1, 4)).expect("it is honest"), []);
    let asked = ground.say(late, ask(1, 8, false)).expect("it is honest");
    assert!(is_granted(&asked, writer, 1) && asked.contains(&sends(late, 1, 8, false)), "{asked:?}");
    assert_eq!(ground.server.waiting(), 0);
}

/// However it ends that it waits, also with a commit of its transaction that is refused.
#[test]
fn who_stands_behind_a_reader_goes_on_when_that_waits_no_more() {
    type End = fn(&mut Ground, ClientId) -> Vec<Action>;
    let ends: [End; 4] = [
        |ground, reader| ground.step(|server, memory, actions| server.lose(reader, memory, actions)),
        |ground, reader| ground.step(|server, memory, actions| server.revoke(reader, memory, actions)),
        |ground, reader| ground.say(reader, commit(9, &[])).expect("it is honest"),
        |ground, reader| {
            let mut actions = Vec::new();
            let mut refused = commit(9, &[]);
            if let Request::Commit { redone, .. } = &mut refused {
                redone.push(page(3));
            }
            let message = ToServer { drops: Vec::new(), body: refused };
            let heard = ground.server.receive(reader, message, &ground.memory, &mut actions);
            heard.expect_err("it has no write lock");
            actions
        },
    ];
    for end in ends {
        let mut ground = Ground::new("cbl");
        let (reader, writer, other) = (ground.join(), ground.join(), ground.join());
        ground.say(writer, entries(1, 1, 5)).expect("it is honest");
        assert_eq!(ground.look(reader, 9, 1, Some((3, 7))).0, SetSight::Waits);
        assert_eq!(ground.say(other, entries(2, 1, 4)).expect("it is honest"), []);
        let ended = end(&mut ground, reader);
        assert!(hears(&ended, other, 1, &SetAnswer::Granted), "{ended:?}");
        ground.server.check().expect("the state is right");
    }
}

/// The circle is closed as one marks what it has waited for, behind another.
#[test]
fn who_stands_behind_a_reader_is_part_of_circles() {
    let mut ground = Ground::new("cbl");
    let clients = [(); 3].map(|()| ground.join());
    let [reader, writer, other] = clients;
    ground.say(writer, entries(1, 1, 5)).expect("it is honest");
    assert_eq!(ground.look(other, 2, 1, Some((20, 20))).0, SetSight::Locked);
    assert_eq!(ground.say(writer, entries(1, 2, 20)).expect("it is honest"), [], "the other one has read it");
    assert_eq!(ground.look(reader, 3, 1, Some((3, 7))).0, SetSight::Waits);
    let said = ground.say(other, entries(2, 2, 4)).expect("it is honest");
    let is_victim = |action: &Action| matches!(action, Action::Send(to, Answer::Victim { .. }) if *to == other);
    assert!(said.iter().any(is_victim), "{said:?}");
}

/// However much a client lets wait, nothing of that is looked at as those of others end.
#[test]
fn what_one_client_waits_for_costs_commits_of_others_nothing() {
    let mut ground = Ground::new("cbl");
    let (idle, busy) = (ground.join(), ground.join());
    assert_eq!(ground.look(idle, 0, 1, Some((0, 255))).0, SetSight::Locked);
    const WAITING: u64 = 300;
    for transaction in 1..=WAITING {
        assert_eq!(ground.say(idle, entries(transaction, 1, 7)).expect("it is honest"), []);
    }
    let before = ground.server.directory.ranges.looked_at;
    for transaction in 0..100 {
        let asked = ground.say(busy, ask(1, transaction, true)).expect("it is honest");
        assert_eq!(asked, [sends(busy, 1, transaction, true)]);
        ground.say(busy, commit(transaction, &[1])).expect("it is honest");
        ground.step(|server, memory, actions| server.committed((busy, Transaction(transaction)), memory, actions));
    }
    assert_eq!(ground.server.directory.ranges.looked_at - before, 0);
    // Once each, as that ends which is in their way.
    ground.say(idle, Request::Abort { transaction: Transaction(0) }).expect("it is honest");
    assert_eq!(ground.server.directory.ranges.looked_at - before, WAITING as usize);
    assert_eq!(ground.server.waiting(), 0);
}

#[test]
fn what_is_read_again_takes_nothing_more() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    assert_eq!(ground.look(client, 1, 1, Some((3, 5))).0, SetSight::Locked);
    let held = ground.server.set_ranges_held(client);
    for number in 2..50 {
        let span = if number % 2 == 0 { (3, 5) } else { (4, 4) };
        assert_eq!(ground.look(client, 1, number, Some(span)).0, SetSight::Locked);
    }
    assert_eq!(ground.server.set_ranges_held(client), held);
    ground.say(client, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert_eq!(ground.server.set_ranges_held(client), 0);
}

/// Who changes something looks at all that have read in the set.
#[test]
fn transactions_that_have_locks_in_sets_are_bounded() {
    let mut ground = Ground::new("cbl");
    let (client, other) = (ground.join(), ground.join());
    let mut say = |client, body| {
        let mut actions = Vec::new();
        let message = ToServer { drops: Vec::new(), body };
        ground.server.receive(client, message, &ground.memory, &mut actions).expect("it is honest");
        actions
    };
    let is_refused = |said: &[Action]| match said {
        [Action::Send(_, Answer::Set { said, .. })] => matches!(said, SetAnswer::Failed { is_denied: false, .. }),
        [Action::Send(_, Answer::NoSetRecord { is_denied, .. })] => !is_denied,
        _ => false,
    };
    let refused = (0..10_000).find(|transaction| is_refused(&say(client, entries(*transaction, 1, 7))));
    assert_eq!(refused, Some(SET_OWNERS_MAX as u64));
    assert!(is_refused(&say(client, ask(1, u64::MAX, true))));
    assert!(!is_refused(&say(client, entries(0, 2, 8))), "it has some already");
    assert!(!is_refused(&say(client, ask(1, u64::MAX, false))), "that is looked for by its key");
    assert!(!is_refused(&say(other, entries(0, 1, 7))), "others have their own");
    say(client, Request::Abort { transaction: Transaction(5) });
    assert!(!is_refused(&say(client, ask(1, u64::MAX, true))));
    ground.server.check().expect("the state is right");
}

/// Marks that are there already are asked for again and again while another one reads around them.
#[test]
fn what_is_waited_for_of_sets_is_bounded() {
    let mut ground = Ground::new("cbl");
    let (reader, client) = (ground.join(), ground.join());
    assert_eq!(ground.look(reader, 1, 1, Some((0, 255))).0, SetSight::Locked);
    let long = |transaction| {
        let of = [&[7][..], &[0; 1 << 20]].concat();
        question(transaction, 1, SetAsk::Entries(vec![SetEntry { index: 0, of }]))
    };
    let refused = (1..100).find(|number| !ground.say(client, long(*number)).expect("it is honest").is_empty());
    assert!(refused.is_some_and(|number| number < 40), "{refused:?}");
    for number in 1..100 {
        ground.say(client, Request::Abort { transaction: Transaction(number) }).expect("it is honest");
    }
    assert_eq!(ground.server.set_ranges_held(client), 0);
}

#[test]
fn transactions_that_wait_for_records_and_pages_of_each_other_are_a_deadlock() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    ground.say(one, read_to_write()).expect("it is honest");
    ground.say(other, ask(1, 2, true)).expect("it is honest");
    ground.say(other, read(copy(0, 0), 2, None)).expect("it is honest");
    let said = ground.say(one, ask(1, 1, false)).expect("it is honest");
    let is_victim = |action: &Action| matches!(action, Action::Send(client, Answer::Victim { transaction: Transaction(1), .. }) if *client == one);
    assert!(said.iter().any(is_victim), "{said:?}");
    // Of one client, too.
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    for (key, transaction) in [(1, 1), (2, 2), (2, 1)] {
        ground.say(client, ask(key, transaction, true)).expect("it is honest");
    }
    let said = ground.say(client, ask(1, 2, true)).expect("it is honest");
    assert!(said.iter().any(|action| matches!(action, Action::Send(_, Answer::Victim { .. }))), "{said:?}");
}

/// Two keys may have one place, and so one lock.
#[test]
fn records_of_one_place_are_marked_each_by_its_key() {
    let keys = [22_799_166, 28_736_336].map(u32::to_be_bytes);
    assert_eq!(place_in_set(SET, &keys[0]), place_in_set(SET, &keys[1]));
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    for key in keys {
        let record = SetRecord { key: key.to_vec(), ..wanted(0, 1, true) };
        let asked = ground.say(client, Request::SetRecord(record.clone())).expect("it is honest");
        assert_eq!(asked, [Action::SendSetRecord { to: client, record }]);
    }
    for key in keys {
        assert!(ground.server.may_change_in_set((client, Transaction(1)), (SET, &key), &[]), "{key:?}");
    }
}

#[test]
fn what_is_no_record_of_a_set_is_not_locked() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    let other = SetRecord { partition: 1, ..wanted(1, 1, true) };
    let said = ground.say(client, Request::SetRecord(other)).expect("it may have been one");
    assert!(matches!(&said[..], [Action::Send(_, Answer::NoSetRecord { is_denied: false, .. })]), "{said:?}");
    assert_eq!(ground.server.records_held(client), 0);
    let long = SetRecord { key: vec![0; engine::set::KEY_MAX + 1], ..wanted(1, 1, true) };
    ground.say(client, Request::SetRecord(long)).expect_err("no set has such a key");
    let mut ground = Ground::new("cbl");
    let address: SocketAddr = "10.0.0.1:7000".parse().expect("an address");
    let reading = Access::Granted(BTreeMap::from([(SET, Right::Read)]));
    let newcomer = Newcomer { address, name: Some("reader".into()), access: reading };
    let client = ground.server.join(newcomer, (None, Secret(9)), &ground.memory, &mut Vec::new()).session.client;
    assert_eq!(ground.say(client, ask(1, 1, false)).expect("it may"), [sends(client, 1, 1, false)]);
    let said = ground.say(client, ask(1, 1, true)).expect("it may try");
    assert!(matches!(&said[..], [Action::Send(_, Answer::NoSetRecord { is_denied: true, .. })]), "{said:?}");
}

/// Also of those that ask for pages where sets have none.
#[test]
fn whatever_clients_say_of_sets_the_state_is_right() {
    let mut heard = 0;
    for seed in 0..60 {
        let mut random = base::Random::stream(seed, "sets");
        let mut ground = Ground::new(if seed % 2 == 0 { "cbl" } else { "ps-aa" });
        let mut clients = [(); 3].map(|()| ground.join());
        let mut numbers = [0; 3];
        let (mut committing, mut looking) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            let which = random.below(3) as usize;
            let (client, key, transaction) = (clients[which], random.below(3) as u8, random.below(3));
            let (place, slot) = place_in_set(SET, &[key]);
            let held = ground.server.copies(place).into_iter().find(|(holder, _)| *holder == client);
            let copy = held.map_or(Copy { page: place, number: numbers[which] }, |(_, copy)| copy);
            let lock = RecordLock { slot, transaction: Transaction(transaction), writes: random.chance(0.5) };
            let asked = random.below(8);
            let body = match random.below(16) {
                12 => entries(transaction, asked, key),
                13 => question(transaction, asked, SetAsk::Scan(0)),
                14 => {
                    let range = SetRange { index: 0, from: vec![key], to: None, behind: None };
                    question(transaction, asked, SetAsk::Range(range))
                }
                15 => question(transaction, asked, SetAsk::Arrival),
                0..5 => ask(key, transaction, lock.writes),
                5 => read(copy, transaction, None),
                6 => Request::Write { copy, transaction: Transaction(transaction) },
                7 => Request::CalledBack { copy },
                8 => Request::Abort { transaction: Transaction(transaction) },
                9 if seed % 2 == 1 => Request::Fell { copy, locks: vec![lock] },
                10 => commit(transaction, &[key]),
                _ => Request::InUse { copy, by: vec![Transaction(transaction)] },
            };
            numbers[which] += u64::from(matches!(body, Request::Read { .. }));
            heard += 1;
            match ground.say(client, body) {
                Ok(actions) => {
                    for action in actions {
                        match action {
                            Action::Commit { client, transaction, .. } => committing.push((client, transaction)),
                            Action::AnswerSet { client, question } => looking.push((client, question)),
                            _ => {}
                        }
                    }
                }
                Err(_) => {
                    ground.step(|server, memory, actions| server.lose(client, memory, actions));
                    (clients[which], numbers[which]) = (ground.join(), 0);
                }
            }
            if random.chance(0.3)
                && let Some((client, SetQuestion { transaction, number, ask, .. })) = looking.pop()
            {
                let spans = match ask {
                    SetAsk::Range(range) => vec![span_of_index(0, &range.from, Bound::Unbounded)],
                    _ => vec![span_of_records()],
                };
                ground.step(|server, memory, actions| {
                    server.read_set((client, transaction), number, (SET, spans), memory, actions);
                });
            }
            if random.chance(0.3)
                && let Some(owner) = committing.pop()
            {
                ground.step(|server, memory, actions| server.committed(owner, memory, actions));
            }
        }
        committing.into_iter().for_each(|owner| {
            ground.step(|server, memory, actions| server.not_committed(owner, "no log".into(), memory, actions));
        });
        clients.into_iter().for_each(|client| {
            ground.step(|server, memory, actions| server.lose(client, memory, actions));
            assert_eq!(
                (ground.server.records_held(client), ground.server.set_ranges_held(client)),
                (0, 0),
                "seed {seed}"
            );
        });
        assert_eq!(ground.server.waiting(), 0);
    }
    assert!(heard > 10_000);
}
