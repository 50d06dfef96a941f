//! What unlucky, dishonest and vanished clients leave behind at the server.

mod ahead;
mod bounds;
mod disowned;
mod gone;
mod passing;
mod records;
mod rights;
mod sets;
mod snapshots;
mod survey;
mod undecided;

use super::records::RECORDS_MAX;
use super::*;
use crate::algorithm::{self, Fate, Noted, Origin, Recency, Source};
use crate::message::{Former, Image, LeavingFate, Outcome, Secret, Session, Wait};
use base::PartitionId;
use std::cell::RefCell;
use std::rc::Rc;

/// A server's memory that has these pages.
struct Having(Vec<PageId>);

impl Memory for Having {
    fn has(&self, page: PageId) -> bool {
        self.0.contains(&page)
    }

    fn has_left_as(&self, _: PageId, _: &[u8]) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }

    fn is_set(&self, partition: PartitionId) -> bool {
        partition == SET
    }
}

/// The partition that is a set.
const SET: PartitionId = PartitionId(9);

const FRAMES: Frames = Frames::lru(4);

/// Believed are those of database 9, of whatever epoch.
const OF_ANY_EPOCH: Believed = Believed { database: 9, since: 0 };

struct Ground {
    server: Server,
    memory: Having,
}

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(1), number)
}

fn copy(page_number: u32, number: u64) -> Copy {
    Copy { page: page(page_number), number }
}

fn read(copy: Copy, transaction: u64, leaving: Option<Copy>) -> Request {
    let leaving = leaving.map(|copy| Leaving { copy, unused_ns: 0, was_used: true });
    Request::Read {
        copy,
        secret: Secret(5),
        transaction: Transaction(transaction),
        writes: false,
        leaving,
        waited: None,
    }
}

/// A page together with its write lock, for this transaction.
fn to_write(page_number: u32, number: u64, transaction: u64) -> Request {
    Request::Read {
        copy: copy(page_number, number),
        secret: Secret(5),
        transaction: Transaction(transaction),
        writes: true,
        leaving: None,
        waited: None,
    }
}

/// A first page, together with its write lock.
fn read_to_write() -> Request {
    to_write(0, 0, 1)
}

fn write(copy: Copy, transaction: u64) -> Request {
    Request::Write { copy, transaction: Transaction(transaction) }
}

/// Transaction 1 commits the first page.
fn commit_of_first_page() -> Request {
    Request::Commit {
        transaction: Transaction(1),
        others: Vec::new(),
        keeps: false,
        records: Vec::new(),
        pages: vec![Image { page: page(0), bytes: vec![2] }],
        redone: Vec::new(),
        sets: Vec::new(),
    }
}

impl Ground {
    fn new(name: &str) -> Ground {
        let algorithm = algorithm::named(name).expect("it is one of them");
        Ground { server: Server::new(algorithm, FRAMES, 1), memory: Having(Vec::new()) }
    }

    fn join(&mut self) -> ClientId {
        let address: SocketAddr = "10.0.0.1:7000".parse().expect("an address");
        self.server.join(address, (None, Secret(9)), &self.memory, &mut Vec::new()).session.client
    }

    /// A client of a former session joins.
    fn join_again(&mut self, former: &Former) -> Joined {
        let address: SocketAddr = "10.0.0.1:7000".parse().expect("an address");
        let joined = self.server.join(address, (Some(former), Secret(10)), &self.memory, &mut Vec::new());
        self.server.check().expect("the state is right");
        joined
    }

    fn say(&mut self, client: ClientId, body: Request) -> Result<Vec<Action>, Misbehaviour> {
        let mut actions = Vec::new();
        let message = ToServer { drops: Vec::new(), body };
        let said = self.server.receive(client, message, &self.memory, &mut actions);
        self.server.check().expect("the state is right");
        said.map(|()| actions)
    }

    fn step(&mut self, step: impl FnOnce(&mut Server, &dyn Memory, &mut Vec<Action>)) -> Vec<Action> {
        let mut actions = Vec::new();
        step(&mut self.server, &self.memory, &mut actions);
        self.server.check().expect("the state is right");
        actions
    }
}

fn granted(actions: &[Action], client: ClientId) -> bool {
    actions.iter().any(|action| matches!(action, Action::Send(to, Answer::Granted { .. }) if *to == client))
}

#[test]
fn a_copy_that_may_have_come_from_another_client_outlives_a_failed_read() {
    let mut ground = Ground::new("fwd");
    let (one, other) = (ground.join(), ground.join());
    ground.say(one, read(copy(0, 0), 0, None)).expect("it is honest");
    let forwarded = ground.say(other, read(copy(0, 0), 0, None)).expect("it is honest");
    assert!(matches!(forwarded[..], [Action::Send(_, Answer::Forward { .. })]), "{forwarded:?}");
    // The page was slow to come, so it is asked for again; it comes from the other client, and the server cannot read it.
    ground.say(other, read(copy(0, 0), 0, None)).expect("it is honest");
    let failed = ground.step(|server, memory, actions| {
        server.failed(other, copy(0, 0), (false, "the disk is broken".to_owned()), memory, actions);
    });
    assert!(matches!(failed[..], [Action::Send(_, Answer::Failed { .. })]), "{failed:?}");
    let asked = ground.say(one, write(copy(0, 0), 1)).expect("it is honest");
    assert!(!granted(&asked, one), "the other one may read it: {asked:?}");
    // It says so if it has not got it.
    let given_up = ground.say(other, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
    assert!(granted(&given_up, one), "{given_up:?}");
}

#[test]
fn a_page_that_its_writer_sends_back_stays_writable_for_others() {
    let mut ground = Ground::new("fwd-hs");
    let (liar, other) = (ground.join(), ground.join());
    ground.say(liar, read(copy(0, 0), 0, None)).expect("it is honest so far");
    let asked = ground.say(liar, write(copy(0, 0), 0)).expect("it is honest so far");
    assert!(granted(&asked, liar));
    ground.say(liar, Request::Returned { copy: copy(0, 0), bytes: vec![1] }).expect_err("it has the write lock");
    ground.step(|server, memory, actions| server.lose(liar, memory, actions));
    ground.say(other, read(copy(0, 0), 0, None)).expect("it is honest");
    let asked = ground.say(other, write(copy(0, 0), 0)).expect("it is honest");
    assert!(granted(&asked, other), "no page is on its way here: {asked:?}");
}

#[test]
fn only_what_was_asked_back_is_taken_back() {
    let mut ground = Ground::new("cbl");
    let liar = ground.join();
    ground.say(liar, read(copy(0, 0), 0, None)).expect("it is honest so far");
    ground.say(liar, Request::Returned { copy: copy(0, 0), bytes: vec![9] }).expect_err("it was not asked for that");
    // One that it has no more was perhaps asked for before.
    ground.say(liar, Request::Returned { copy: copy(7, 7), bytes: vec![9] }).expect("it may be late");
}

#[test]
fn a_client_that_vanishes_is_sent_no_page_of_a_request_that_no_honest_one_makes() {
    let mut ground = Ground::new("fwd");
    let (holder, liar) = (ground.join(), ground.join());
    ground.say(holder, read(copy(0, 0), 0, None)).expect("it is honest");
    ground.say(liar, read(copy(0, 0), 0, None)).expect("it is honest so far");
    ground.say(liar, write(copy(0, 0), 1)).expect("it is honest so far");
    // It names a copy as leaving for which it asks a write lock, and asks for it anew.
    let _named = ground.say(liar, read(copy(1, 1), 2, Some(copy(0, 0))));
    let _asked = ground.say(liar, read(copy(0, 2), 3, None));
    ground.step(|server, memory, actions| server.lose(liar, memory, actions));
    assert_eq!(ground.server.waiting(), 0);
    let asked = ground.say(holder, write(copy(0, 0), 1)).expect("it is honest");
    assert!(granted(&asked, holder), "{asked:?}");
}

#[test]
fn a_request_that_waits_may_become_another_transactions() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    for (client, number) in [(one, 0), (other, 1)] {
        ground.say(client, read(copy(number, 0), 1, None)).expect("it is honest");
        let asked = ground.say(client, write(copy(number, 0), 1)).expect("it is honest");
        assert!(granted(&asked, client));
    }
    // Transaction 0 of the first client waits for the page of the other, ends, and its transaction 1 waits for the same page.
    ground.say(one, read(copy(1, 1), 0, None)).expect("it is honest");
    ground.say(other, read(copy(0, 1), 1, None)).expect("it is honest");
    let actions = ground.say(one, read(copy(1, 1), 1, None)).expect("it is honest");
    let is_victim = |action: &Action| matches!(action, Action::Send(_, Answer::Victim { .. }));
    assert!(actions.iter().any(is_victim), "each waits for the other: {actions:?}");
}

#[test]
fn a_commit_ends_what_its_transaction_has_asked_for() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    let transaction = Transaction(1);
    ground.say(one, read(copy(0, 0), 1, None)).expect("it is honest");
    ground.say(one, write(copy(0, 0), 1)).expect("it is honest");
    for (client, number) in [(one, 1), (other, 0)] {
        ground.say(client, read(copy(1, number), 1, None)).expect("it is honest");
    }
    let asked = ground.say(one, write(copy(1, 1), 1)).expect("it is honest");
    assert!(!granted(&asked, one));
    // It waits for that lock no longer.
    ground.say(one, commit_of_first_page()).expect("it is honest");
    ground.step(|server, memory, actions| server.committed((one, transaction), memory, actions));
    ground.say(other, Request::CalledBack { copy: copy(1, 0) }).expect("it is honest");
    assert_eq!(ground.server.writer(page(1)), None, "no transaction is there that would release it");
    assert_eq!(ground.server.waiting(), 0);
}

/// It had asked for one with its write lock, and waits for it no longer: who has that page and waits for the end of the commit is in no deadlock.
#[test]
fn a_transaction_that_commits_waits_for_nothing() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    ground.say(one, read_to_write()).expect("it is honest");
    assert!(granted(&ground.say(other, to_write(1, 0, 1)).expect("it is honest"), other));
    ground.say(one, to_write(1, 1, 1)).expect("it is honest");
    ground.say(one, commit_of_first_page()).expect("it is honest");
    let asked = ground.say(other, read(copy(0, 1), 1, None)).expect("it is honest");
    let is_victim = |action: &Action| matches!(action, Action::Send(_, Answer::Victim { .. }));
    assert!(!asked.iter().any(is_victim), "{asked:?}");
    // Another transaction of the node waits for the page by now, and what its node has asked for is still asked for.
    ground.say(one, read(copy(1, 1), 2, None)).expect("it is honest");
    ground.step(|server, memory, actions| server.committed((one, Transaction(1)), memory, actions));
    let ended = ground.say(other, Request::Abort { transaction: Transaction(1) }).expect("it is honest");
    assert!(ended.iter().any(|action| matches!(action, Action::SendPage { to, .. } if *to == one)), "{ended:?}");
    assert_eq!(ground.server.waiting(), 0);
}

/// What its transactions have looked at that it commits, others may change behind that: another node's commit could come before it otherwise,
/// and a snapshot that shows that and not this one is explained by no order.
#[test]
fn a_client_that_is_gone_keeps_its_copies_until_its_commits_have_ended() {
    for is_committed in [true, false] {
        let mut ground = Ground::new("cbl");
        let (gone, other) = (ground.join(), ground.join());
        ground.say(gone, read_to_write()).expect("it is honest");
        ground.say(gone, read(copy(1, 1), 1, None)).expect("it is honest");
        ground.say(gone, read(copy(2, 2), 3, None)).expect("it is honest");
        ground.say(gone, commit_of_first_page()).expect("it is honest");
        ground.step(|server, memory, actions| server.lose(gone, memory, actions));
        assert!(!ground.server.has_joined(gone));
        ground.say(gone, read(copy(3, 3), 4, None)).expect_err("it is not heard any more");
        ground.say(other, read(copy(1, 0), 1, None)).expect("it is honest");
        let asked = ground.say(other, write(copy(1, 0), 1)).expect("it is honest");
        assert!(!granted(&asked, other), "{asked:?}");
        let former = Former { session: Session { epoch: 1, client: gone }, secret: Secret(9), copies: Vec::new() };
        assert_eq!(ground.join_again(&former).former, Outcome::Unknown, "it was given up");
        let ended = ground.step(|server, memory, actions| {
            if is_committed {
                server.committed((gone, Transaction(1)), memory, actions);
            } else {
                server.not_committed((gone, Transaction(1)), "no log".to_owned(), memory, actions);
            }
        });
        assert!(granted(&ended, other), "{ended:?}");
        let is_told = |action: &Action| matches!(action, Action::Send(to, _) if *to == gone);
        assert!(!ended.iter().any(is_told), "{ended:?}");
        assert_eq!(ground.server.copies(page(0)), []);
        assert!(ground.server.clients().all(|client| client != gone));
    }
}

#[test]
fn a_session_goes_on_only_with_its_secret() {
    for (secret, is_believed) in [(9, true), (10, false), (109, false), (0, false)] {
        let mut ground = Ground::new("cbl");
        let (client, other) = (ground.join(), ground.join());
        ground.say(client, read(copy(0, 0), 0, None)).expect("it is honest");
        ground.say(other, read(copy(0, 0), 0, None)).expect("it is honest");
        let session = Session { epoch: 1, client };
        let joined = ground.join_again(&Former { session, secret: Secret(secret), copies: vec![copy(0, 0)] });
        assert_eq!((joined.keeps, joined.replaces.is_some()), (is_believed, is_believed), "{secret}");
        assert_eq!(ground.server.has_joined(client), !is_believed, "a stranger drives no one away");
        let expected = if is_believed { Outcome::Committed(None) } else { Outcome::Unknown };
        assert_eq!(joined.former, expected, "{secret}");
    }
}

#[test]
fn clients_of_another_epoch_keep_copies_only_while_nothing_is_granted() {
    let epochs = [(1, true, true), (1, false, false), (2, true, false), (2, false, false), (3, true, false)];
    for (epoch, gathers, is_believed) in epochs {
        let mut ground = Ground::new("fwd");
        ground.server = Server::new(algorithm::named("fwd").expect("it is one of them"), FRAMES, 2);
        ground.server.gather(Some(OF_ANY_EPOCH));
        if !gathers {
            ground.step(|server, memory, actions| server.end_gathering(memory, actions));
        }
        let session = Session { epoch, client: ClientId(0) };
        let joined = ground.join_again(&Former { session, secret: Secret(9), copies: vec![copy(0, 5)] });
        assert_eq!((joined.keeps, joined.former), (is_believed, Outcome::Unknown), "{epoch}, {gathers}");
        let client = joined.session.client;
        assert_eq!(ground.server.copies(page(0)), if is_believed { vec![(client, copy(0, 5))] } else { Vec::new() });
        // Copies are numbered on from those that it has named.
        let late = ground.say(client, read(copy(1, 5), 0, None)).expect("it is late at most");
        assert!(late.is_empty(), "{late:?}");
        assert!(!ground.say(client, read(copy(1, 6), 0, None)).expect("it is honest").is_empty());
    }
}

#[test]
fn what_a_client_names_twice_it_does_not_keep() {
    let mut ground = Ground::new("fwd");
    ground.server = Server::new(algorithm::named("fwd").expect("it is one of them"), FRAMES, 2);
    ground.server.gather(Some(OF_ANY_EPOCH));
    let session = Session { epoch: 1, client: ClientId(0) };
    let copies = vec![copy(0, 5), copy(0, 6)];
    assert!(!ground.join_again(&Former { session, secret: Secret(9), copies }).keeps);
}

#[test]
fn requests_that_are_passed_over_or_refused_are_not_kept() {
    let mut ground = Ground::new("cbl");
    let (liar, other) = (ground.join(), ground.join());
    ground.say(liar, read(copy(0, 7), 0, None)).expect("it is honest so far");
    for number in 1..100 {
        // The check of the state, after each, finds pages of which nothing is known.
        ground.say(liar, read(copy(number, 3), 0, None)).expect("it may be late");
    }
    ground.say(other, write(copy(5, 0), 0)).expect_err("it has no copy");
}

#[test]
fn no_copy_leaves_for_itself() {
    let mut ground = Ground::new("fwd");
    let (holder, liar) = (ground.join(), ground.join());
    ground.say(holder, read(copy(1, 0), 0, None)).expect("it is honest");
    for leaving in [copy(1, 0), copy(1, 7)] {
        ground.say(liar, read(copy(1, 0), 0, Some(leaving))).expect_err("it asks for what it drops");
    }
    assert_eq!(ground.server.copies(page(1)), [(holder, copy(1, 0))]);
}

/// Clients that each have one of the pages from 1 on, and one that has all and waits for their write locks.
fn awaited(ground: &mut Ground, count: u32) -> (Vec<ClientId>, ClientId) {
    let (holders, all): (Vec<ClientId>, ClientId) = ((0..count).map(|_| ground.join()).collect(), ground.join());
    for (number, holder) in (1..).zip(&holders) {
        ground.say(*holder, read(copy(number, 0), 0, None)).expect("it is honest");
        ground.say(all, read(copy(number, u64::from(number)), 0, None)).expect("it is honest");
        let asked = ground.say(all, write(copy(number, u64::from(number)), u64::from(number))).expect("it is honest");
        assert!(!granted(&asked, all));
    }
    (holders, all)
}

#[test]
fn holders_that_give_up_each_others_pages_send_none() {
    for name in ["fwd", "fwd-hs", "adaptive", "cbl"] {
        let mut ground = Ground::new(name);
        let (holders, all) = awaited(&mut ground, 2);
        let [one, other] = holders[..] else { unreachable!("there are two") };
        ground.say(one, read(copy(2, 1), 0, Some(copy(1, 0)))).expect("it may be honest");
        ground.say(other, read(copy(1, 1), 0, Some(copy(2, 0)))).expect("it may be honest");
        ground.step(|server, memory, actions| server.lose(all, memory, actions));
        assert_eq!(ground.server.waiting(), 0, "{name}");
    }
}

#[test]
fn a_copy_that_is_given_up_before_it_has_come_is_not_sent() {
    for name in ["fwd", "fwd-hs", "adaptive", "cbl"] {
        let mut ground = Ground::new(name);
        let (holders, all) = awaited(&mut ground, 3);
        let [_, one, other] = holders[..] else { unreachable!("there are three") };
        ground.say(one, read(copy(1, 1), 0, Some(copy(2, 0)))).expect("it may be honest");
        ground.say(other, read(copy(2, 1), 0, Some(copy(3, 0)))).expect("it may be honest");
        ground.say(one, read(copy(3, 2), 0, Some(copy(1, 1)))).expect("it may be honest");
        let actions = ground.step(|server, memory, actions| server.lose(all, memory, actions));
        assert_eq!(ground.server.waiting(), 0, "{name}");
        let is_sent = |action: &Action| matches!(action, Action::SendPage { to, copy: sent, .. } if *to == one && *sent == copy(1, 1));
        let is_held = ground.server.copies(page(1)).contains(&(one, copy(1, 1)));
        assert!(is_held || !actions.iter().any(is_sent), "{name}: {actions:?}");
    }
}

/// Notes what it is told.
struct Probe(Rc<RefCell<Vec<(Origin, u64)>>>);

impl Placement for Probe {
    fn source(&self, _: &[ClientId], _: u64) -> Source {
        Source::Disk
    }

    fn after_sending(&self) -> Recency {
        Recency::MostRecentlyUsed
    }

    fn on_last_copy(&self, _: bool) -> Fate {
        Fate::Dropped
    }

    fn note(&mut self, noted: Noted<'_>) {
        if let Noted::Waited(origin, waited_ns) = noted {
            self.0.borrow_mut().push((origin, waited_ns));
        }
    }
}

#[test]
fn what_a_page_costs_is_told_without_the_wait_for_a_lock() {
    let mut ground = Ground::new("cbl");
    let told: Rc<RefCell<Vec<(Origin, u64)>>> = Rc::default();
    ground.server.placement = Box::new(Probe(Rc::clone(&told)));
    ground.memory = Having(vec![page(1)]);
    let (writer, other) = (ground.join(), ground.join());
    ground.say(writer, read(copy(0, 0), 0, None)).expect("it is honest");
    ground.say(writer, write(copy(0, 0), 0)).expect("it is honest");
    ground.server.note_time(Instant::from_ns(1_000));
    assert!(ground.say(other, read(copy(0, 0), 0, None)).expect("it is honest").is_empty(), "it waits");
    ground.server.note_time(Instant::from_ns(1_700));
    ground.say(writer, Request::Abort { transaction: Transaction(0) }).expect("it is honest");
    let waited = |copy, waited_ns| Some(Wait { copy, waited_ns });
    let next = |copy, waited| Request::Read {
        copy,
        secret: Secret(5),
        transaction: Transaction(0),
        writes: false,
        leaving: None,
        waited,
    };
    ground.say(other, next(copy(1, 1), waited(copy(0, 0), 900))).expect("it is honest");
    ground.say(other, next(copy(2, 2), waited(copy(1, 1), 30))).expect("it is honest");
    // However often it says so.
    ground.say(other, next(copy(5, 3), waited(copy(1, 1), u64::MAX))).expect("it is honest");
    // What it has no copy of, or what it had to ask for again, tells nothing.
    ground.say(other, next(copy(2, 2), None)).expect("it is honest");
    ground.say(other, next(copy(3, 4), waited(copy(2, 2), 40))).expect("it is honest");
    ground.say(other, next(copy(4, 5), waited(copy(9, 9), 40))).expect("it is honest");
    assert_eq!(*told.borrow(), [(Origin::Disk, 200), (Origin::Memory, 30)]);
}

#[test]
fn a_write_lock_that_is_kept_is_called_back_for_a_reader_and_goes_with_the_copy() {
    let mut ground = Ground::new("cbl");
    let (keeper, reader) = (ground.join(), ground.join());
    let both = read_to_write();
    let asked = ground.say(keeper, both).expect("it is honest");
    assert!(granted(&asked, keeper) && asked.iter().any(|action| matches!(action, Action::SendPage { .. })));
    for (first, other) in [(1, 2), (3, 4)] {
        let pages = vec![Image { page: page(0), bytes: vec![2] }];
        let (transaction, others) = (Transaction(first), vec![Transaction(other)]);
        let commit = Request::Commit {
            transaction,
            others,
            keeps: true,
            records: Vec::new(),
            pages,
            redone: Vec::new(),
            sets: Vec::new(),
        };
        ground.say(keeper, commit).expect("the lock is its transaction's, and then its own");
        ground.step(|server, memory, actions| server.committed((keeper, transaction), memory, actions));
        assert_eq!(ground.server.writer(page(0)), Some((keeper, transaction)));
    }
    let asked = ground.say(reader, read(copy(0, 0), 1, None)).expect("it is honest");
    assert_eq!(asked, [Action::Send(keeper, Answer::CallBack { copy: copy(0, 0) })]);
    let given_up = ground.say(keeper, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
    assert!(given_up.iter().any(|action| matches!(action, Action::SendPage { to, .. } if *to == reader)));
    assert_eq!(ground.server.writer(page(0)), None);
}

/// The lock goes with the commit, so the reader that it was called back for is served, and the copy may stay.
#[test]
fn a_kept_write_lock_that_ends_while_it_is_called_back_keeps_its_copy() {
    let both = read_to_write();
    let commit = |first, keeps| Request::Commit {
        transaction: Transaction(first),
        others: Vec::new(),
        keeps,
        records: Vec::new(),
        pages: vec![Image { page: page(0), bytes: vec![2] }],
        redone: Vec::new(),
        sets: Vec::new(),
    };
    let is_withdrawn =
        |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Send(_, Answer::Withdrawn { .. })));
    for (keeps, is_refused) in [(true, true), (true, false), (false, false)] {
        let mut ground = Ground::new("cbl");
        let (keeper, reader) = (ground.join(), ground.join());
        ground.say(keeper, both.clone()).expect("it is honest");
        ground.say(keeper, commit(1, true)).expect("it is honest");
        if is_refused {
            ground.say(reader, read(copy(0, 0), 1, None)).expect("it is honest");
            let ended = ground.step(|server, memory, actions| {
                server.not_committed((keeper, Transaction(1)), "no log".to_owned(), memory, actions);
            });
            assert!(is_withdrawn(&ended), "{ended:?}");
            continue;
        }
        ground.step(|server, memory, actions| server.committed((keeper, Transaction(1)), memory, actions));
        ground.say(reader, read(copy(0, 0), 1, None)).expect("it is honest");
        let ended = if keeps { Request::Abort { transaction: Transaction(1) } } else { commit(2, false) };
        let ended = ground.say(keeper, ended).expect("it is honest");
        assert!(is_withdrawn(&ended), "{ended:?}");
    }
}

#[test]
fn a_request_that_becomes_another_transactions_comes_without_the_write_lock() {
    let mut ground = Ground::new("cbl");
    let (one, other) = (ground.join(), ground.join());
    ground.say(other, read(copy(0, 0), 1, None)).expect("it is honest");
    let wanted = copy(0, 0);
    let both = |transaction, writes| Request::Read {
        copy: wanted,
        secret: Secret(5),
        transaction: Transaction(transaction),
        writes,
        leaving: None,
        waited: None,
    };
    let called = ground.say(one, both(1, true)).expect("it is honest");
    assert!(matches!(called[..], [Action::Send(to, Answer::CallBack { .. })] if to == other), "{called:?}");
    // Transaction 1 gives up, and is committed; its transaction 2 only reads the page.
    let actions = ground.say(one, both(2, false)).expect("it is honest");
    let is_withdrawn = |action: &Action| matches!(action, Action::Send(to, Answer::Withdrawn { .. }) if *to == other);
    let is_sent = |action: &Action| matches!(action, Action::SendPage { to, .. } if *to == one);
    assert!(actions.iter().any(is_withdrawn) && actions.iter().any(is_sent), "{actions:?}");
    assert!(!granted(&actions, one), "{actions:?}");
    assert_eq!((ground.server.writer(page(0)), ground.server.waiting()), (None, 0));
}
