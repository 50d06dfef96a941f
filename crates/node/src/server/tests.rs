//! What unlucky, dishonest and vanished clients leave behind at the server.

use super::*;
use crate::algorithm;
use crate::message::Image;
use base::PartitionId;

/// A server's memory that has these pages.
struct Having(Vec<PageId>);

impl Memory for Having {
    fn has(&self, page: PageId) -> bool {
        self.0.contains(&page)
    }
}

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
    Request::Read { copy, transaction: Transaction(transaction), leaving }
}

fn write(copy: Copy, transaction: u64) -> Request {
    Request::Write { copy, transaction: Transaction(transaction) }
}

impl Ground {
    fn new(name: &str) -> Ground {
        let algorithm = algorithm::named(name).expect("it is one of them");
        Ground { server: Server::new(algorithm, 1), memory: Having(Vec::new()) }
    }

    fn join(&mut self) -> ClientId {
        let address = "10.0.0.1:7000".parse().expect("an address");
        self.server.join(address, None, &self.memory, &mut Vec::new()).session.client
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
        server.failed(other, copy(0, 0), "the disk is broken".to_owned(), memory, actions);
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
    let pages = vec![Image { page: page(0), bytes: vec![2] }];
    ground.say(one, Request::Commit { transaction, records: Vec::new(), pages }).expect("it is honest");
    ground.step(|server, memory, actions| server.committed((one, transaction), memory, actions));
    ground.say(other, Request::CalledBack { copy: copy(1, 0) }).expect("it is honest");
    assert_eq!(ground.server.writer(page(1)), None, "no transaction is there that would release it");
    assert_eq!(ground.server.waiting(), 0);
}
