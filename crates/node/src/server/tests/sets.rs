//! Records of sets, which have no pages.

use super::*;
use crate::grants::Right;
use crate::message::{RecordLock, SetRecord, SetValue, SetWrite, place_in_set};

const STOCK: u16 = SET.0;

fn wanted(key: u8, transaction: u64, writes: bool) -> SetRecord {
    SetRecord { partition: STOCK, key: vec![key], transaction: Transaction(transaction), writes }
}

fn ask(key: u8, transaction: u64, writes: bool) -> Request {
    Request::SetRecord(wanted(key, transaction, writes))
}

fn sends(to: ClientId, key: u8, transaction: u64, writes: bool) -> Action {
    Action::SendSetRecord { to, record: wanted(key, transaction, writes) }
}

/// That a lock is granted which was waited for: what asks for the record is told to ask again.
fn grants(actions: &[Action], client: ClientId, wanted: &SetRecord) -> bool {
    let (of, granted) = wanted.lock();
    let is_it = |action: &Action| matches!(action, Action::SendRecord { to, page, lock, .. } if (*to, *page, *lock) == (client, of, granted));
    actions.iter().any(is_it)
}

fn commit(transaction: u64, keys: &[u8]) -> Request {
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
        ground.step(|server, memory, actions| server.lose(other, memory, actions));
        assert_eq!((ground.server.records_held(one), ground.server.records_held(other)), (0, 0));
    }
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
        let mut committing = Vec::new();
        for _ in 0..300 {
            let which = random.below(3) as usize;
            let (client, key, transaction) = (clients[which], random.below(3) as u8, random.below(3));
            let (place, slot) = place_in_set(SET, &[key]);
            let held = ground.server.copies(place).into_iter().find(|(holder, _)| *holder == client);
            let copy = held.map_or(Copy { page: place, number: numbers[which] }, |(_, copy)| copy);
            let lock = RecordLock { slot, transaction: Transaction(transaction), writes: random.chance(0.5) };
            let body = match random.below(12) {
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
                Ok(actions) => committing.extend(actions.into_iter().filter_map(|action| match action {
                    Action::Commit { client, transaction, .. } => Some((client, transaction)),
                    _ => None,
                })),
                Err(_) => {
                    ground.step(|server, memory, actions| server.lose(client, memory, actions));
                    (clients[which], numbers[which]) = (ground.join(), 0);
                }
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
            assert_eq!(ground.server.records_held(client), 0, "seed {seed}");
        });
        assert_eq!(ground.server.waiting(), 0);
    }
    assert!(heard > 10_000);
}
