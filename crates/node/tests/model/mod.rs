//! The protocol against a naive model: random interleavings of what a server and its clients do, with memories that hold version
//! numbers in place of pages. After each step no client may have read what is not the latest committed version, none may write what
//! another reads, and the server must know of every copy; at the end every transaction must have ended.

mod node;
mod records;
mod world;

use crate::counting::read_of;
use base::{Instant, PageId};
use engine::canary::{self, Canary};
use engine::lock::Mode;
use entresol_node::algorithm::{self, ALGORITHMS};
use entresol_node::client::{Client, PageLock};
use entresol_node::grants::Access;
use entresol_node::lease::Lease;
use entresol_node::message::{
    Answer, ClientId, Copy, Former, Image, Leaving, LeavingFate, Request, Secret, Session, ToServer, Transaction,
};
use entresol_node::server::{Action, Believed, Counts, Memory, Newcomer, Server};
use std::collections::BTreeMap;
use world::{FRAMES, Faults, Plan, World};

/// Runs seeds until one fails; that one's failure.
fn first_failure(seeds: std::ops::Range<u64>, faults: Faults) -> Option<String> {
    seeds.into_iter().find_map(|seed| {
        let algorithm = &ALGORITHMS[seed as usize % ALGORITHMS.len()];
        let chances = (seed % 3) as u8;
        let snapshot_room = if seed % 5 == 0 { 2_000 } else { usize::MAX };
        let plan = Plan { algorithm, clients: 3, pages: 2 + seed % 7, transactions: 8, chances, snapshot_room, faults };
        let failure = World::new(plan, seed).run().err()?;
        Some(format!("seed {seed}, {}: {failure}", algorithm.name()))
    })
}

#[test]
fn whatever_the_order_no_read_is_stale_and_every_transaction_ends() {
    assert_eq!(first_failure(0..700, Faults::Nothing), None);
}

#[test]
fn clients_that_vanish_take_nothing_with_them() {
    assert_eq!(first_failure(0..300, Faults::Clients), None);
}

#[test]
fn a_server_that_is_started_again_takes_nothing_with_it() {
    assert_eq!(first_failure(0..300, Faults::All), None);
}

/// Few pages, of whose records all want some, while snapshots read the pages: what has come of that, among it all that snapshots have read,
/// or the first failure.
fn contention(seeds: std::ops::Range<u64>) -> Result<Counts, String> {
    let mut total = Counts::default();
    for seed in seeds {
        let faults = [Faults::Nothing, Faults::Clients, Faults::All][seed as usize % 3];
        let algorithm = algorithm::named("ps-aa").expect("it is one of them");
        let (pages, snapshot_room) = (1 + seed / 3 % 4, usize::MAX);
        let plan = Plan { algorithm, clients: 4, pages, transactions: 6, chances: 0, snapshot_room, faults };
        let mut world = World::new(plan, seed);
        world.run().map_err(|failure| format!("seed {seed}, {faults:?}: {failure}"))?;
        let Counts { falls, records, reads, victims, .. } = world.counts();
        total.falls += falls;
        total.records += records;
        total.reads += reads;
        total.victims += victims;
        total.snapshot_reads += world.snapshot_counts().0;
    }
    Ok(total)
}

#[test]
fn locks_fall_to_records_and_rise_and_no_read_is_stale() {
    let counts = contention(0..300).expect("no read is stale");
    let all = [counts.falls, counts.records, counts.reads, counts.snapshot_reads];
    assert!(all.iter().all(|count| *count > 1_000), "{counts:?}");
}

#[test]
fn pages_that_are_asked_for_ahead_come_or_not() {
    for algorithm in ALGORITHMS {
        let (mut ahead, mut would_block) = (0, 0);
        for seed in 0..20 {
            let faults = Faults::Nothing;
            let plan =
                Plan { algorithm, clients: 3, pages: 6, transactions: 8, chances: 2, snapshot_room: 2_000, faults };
            let mut world = World::new(plan, seed);
            world.run().expect("it ends well");
            (ahead, would_block) = (ahead + world.counts().ahead, would_block + world.counts().would_block);
        }
        assert!(ahead > 100 && would_block > 10, "{}: {ahead}, {would_block}", algorithm.name());
    }
}

#[test]
fn the_same_seed_gives_the_same_course() {
    let course = |seed| {
        let (algorithm, faults) = (&ALGORITHMS[4], Faults::All);
        let plan = Plan { algorithm, clients: 3, pages: 4, transactions: 8, chances: 2, snapshot_room: 2_000, faults };
        let mut world = World::new(plan, seed);
        world.run().expect("it ends well");
        world.steps()
    };
    assert_eq!(course(7), course(7));
}

/// What comes late from other clients is passed over, and a lease counts from the question. The first thing that is not so.
fn late_arrival() -> Option<String> {
    let (own, page) = (Session { epoch: 2, client: ClientId(1) }, node::page(0));
    let mut client = Client::default();
    let (secret, wrong) = (Secret(2), Secret(1));
    client.join(own, wrong);
    let transaction = client.begin();
    assert_eq!(client.lock(transaction, page, Mode::Shared), PageLock::Held);
    let asked = client.request((page, secret), transaction, false).0.body;
    let Request::Read { copy, .. } = asked else { return Some(format!("it asks by {asked:?}")) };
    for other in [Session { epoch: 1, ..own }, Session { client: ClientId(0), ..own }] {
        if client.arrived_from_peer((other, secret), copy, LeavingFate::Dropped).is_some() {
            return Some(format!("a page for {other:?} is taken by {own:?}"));
        }
    }
    if client.arrived_from_peer((own, wrong), copy, LeavingFate::Dropped).is_some() {
        return Some("a page is taken of a stranger".to_owned());
    }
    if client.arrived_from_peer((own, secret), copy, LeavingFate::Dropped).is_none() {
        return Some("a page in time is not taken".to_owned());
    }
    client.left(page);
    client.request((page, secret), transaction, false);
    // One that was asked for first, and was on its way for long.
    if client.arrived_from_peer((own, secret), copy, LeavingFate::Dropped).is_some() {
        return Some("a page is taken from another client that was here before".to_owned());
    }
    client.arrived(copy, LeavingFate::Dropped).is_none().then(|| "it does not come from the server".to_owned())
}

struct Everything;

impl Memory for Everything {
    fn has(&self, _: PageId) -> bool {
        true
    }

    fn has_left_as(&self, _: PageId, _: &[u8]) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

struct Nothing;

impl Memory for Nothing {
    fn has(&self, _: PageId) -> bool {
        false
    }

    fn has_left_as(&self, _: PageId, _: &[u8]) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

/// A client whose connection broke keeps a copy that is in the way of a write: it is called back again, for it may not have heard that.
fn lost_callback() -> Option<String> {
    let page = node::page(0);
    let address: std::net::SocketAddr = "10.0.0.1:1".parse().expect("an address");
    let (mut server, mut actions) = (Server::new(&ALGORITHMS[0], FRAMES, 1), Vec::new());
    let copy = Copy { page, number: 0 };
    let transaction = Transaction(0);
    let [reader, writer] =
        [(); 2].map(|()| server.join(address, (None, Secret::default()), &Everything, &mut actions).session);
    let says = |body| ToServer { drops: Vec::new(), body };
    let read = || says(read_of(copy, None));
    for (client, said) in
        [(reader.client, read()), (writer.client, read()), (writer.client, says(Request::Write { copy, transaction }))]
    {
        if let Err(error) = server.receive(client, said, &Everything, &mut actions) {
            return Some(error.to_string());
        }
    }
    actions.clear();
    let former = Former { session: reader, secret: Secret::default(), copies: vec![copy] };
    let joined = server.join(address, (Some(&former), Secret::default()), &Everything, &mut actions);
    let called = Action::Send(joined.session.client, Answer::CallBack { copy });
    (!joined.keeps || !actions.contains(&called)).then(|| format!("{joined:?}, {actions:?}"))
}

/// A copy is asked back, then written and committed, then returned as it was before. What the server does with it.
fn stale_return() -> Option<String> {
    let (copy, next) = (Copy { page: node::page(0), number: 0 }, Copy { page: node::page(1), number: 1 });
    let transaction = Transaction(0);
    let sending = ALGORITHMS.iter().find(|algorithm| algorithm.name() == "fwd-s").expect("it is one of them");
    let (mut server, mut actions) = (Server::new(sending, FRAMES, 1), Vec::new());
    let address: std::net::SocketAddr = "10.0.0.1:1".parse().expect("an address");
    let client = server.join(address, (None, Secret::default()), &Nothing, &mut actions).session.client;
    let pages = vec![Image { page: copy.page, bytes: vec![2] }];
    let leaving = Some(Leaving { copy, unused_ns: 0, was_used: true });
    let said = [
        read_of(copy, None),
        read_of(next, leaving),
        Request::Write { copy, transaction },
        Request::Commit {
            transaction,
            others: Vec::new(),
            keeps: false,
            records: Vec::new(),
            pages,
            redone: Vec::new(),
            sets: Vec::new(),
        },
    ];
    for body in said {
        if let Err(error) = server.receive(client, ToServer { drops: Vec::new(), body }, &Nothing, &mut actions) {
            return Some(error.to_string());
        }
    }
    server.committed((client, transaction), &Nothing, &mut actions);
    if !actions.iter().any(|action| matches!(action, Action::SendPage { fate: LeavingFate::Returned, .. })) {
        return Some(format!("it is not asked back: {actions:?}"));
    }
    let returned = ToServer { drops: Vec::new(), body: Request::Returned { copy, bytes: vec![1] } };
    actions.clear();
    let _refused = server.receive(client, returned, &Nothing, &mut actions);
    (!actions.is_empty()).then(|| format!("what is older than the commit is taken: {actions:?}"))
}

/// A node without grants says that it had a copy before the server was started again.
fn ungranted_copy() -> Option<String> {
    let (mut server, mut actions) = (Server::new(&ALGORITHMS[0], FRAMES, 2), Vec::new());
    server.gather(Some(Believed { database: 0, since: 0 }));
    let (session, copies) = (Session { epoch: 1, client: ClientId(0) }, vec![Copy { page: node::page(0), number: 0 }]);
    let former = Former { session, secret: Secret::default(), copies };
    let access = Access::Granted(BTreeMap::new());
    let address = "10.0.0.1:1".parse().expect("an address");
    let newcomer = Newcomer { address, name: Some("stranger".to_owned()), access };
    server.join(newcomer, (Some(&former), Secret::default()), &Nothing, &mut actions);
    server.check().err()
}

/// A client without a lease names no copies when it joins again.
fn kept_copy() -> Option<String> {
    let (own, page) = (Session { epoch: 2, client: ClientId(1) }, node::page(0));
    let mut client = Client::default();
    client.join(own, Secret(1));
    let transaction = client.begin();
    assert_eq!(client.lock(transaction, page, Mode::Shared), PageLock::Held);
    let asked = client.request((page, Secret(2)), transaction, false).0.body;
    let Request::Read { copy, .. } = asked else { return Some(format!("it asks by {asked:?}")) };
    client.arrived(copy, LeavingFate::Dropped);
    client.committed_unchanged(transaction);
    let named = [client.disconnect(true), client.disconnect(false)];
    (named != [vec![copy], Vec::new()]).then(|| format!("{named:?} with a lease and without"))
}

fn overlong_lease() -> Option<String> {
    let (mut lease, at) = (Lease::new(800), Instant::from_ns);
    lease.renew(at(100), at(400));
    let is_right = lease.is_valid(at(899)) && !lease.is_valid(at(900));
    (!is_right).then(|| format!("{lease:?} was asked for at 100"))
}

#[test]
fn snapshots_read_much_and_are_lost_for_want_of_room_alone() {
    let counts = |snapshot_room| {
        let worlds = (0..40).map(|seed| {
            let (algorithm, faults) = (&ALGORITHMS[seed as usize % ALGORITHMS.len()], Faults::Nothing);
            let plan = Plan { algorithm, clients: 3, pages: 6, transactions: 8, chances: 2, snapshot_room, faults };
            let mut world = World::new(plan, seed);
            world.run().expect("it ends well");
            world.snapshot_counts()
        });
        worlds.fold((0, 0), |(reads, lost), (more, more_lost)| (reads + more, lost + more_lost))
    };
    let (reads, lost) = counts(usize::MAX);
    assert!(reads > 1_000 && lost == 0, "{reads} reads, {lost} snapshots lost");
    let (reads, lost) = counts(400);
    assert!(reads > 500 && lost > 50, "{reads} reads, {lost} snapshots lost");
}

#[test]
fn what_is_late_or_lost_does_no_harm() {
    let found = [late_arrival(), kept_copy(), overlong_lease(), lost_callback(), stale_return(), ungranted_copy()];
    assert_eq!(found, [const { None }; 6]);
}

#[test]
fn what_is_planted_is_found() {
    type Search = fn() -> Option<String>;
    let calm: Search = || first_failure(0..700, Faults::Nothing);
    let clients: Search = || first_failure(0..300, Faults::Clients);
    let all: Search = || first_failure(0..300, Faults::All);
    let falling: Search = || contention(0..300).err();
    let planted = [
        (Canary::UncalledCopies, calm),
        (Canary::UnnumberedCopies, calm),
        (Canary::SilentUse, calm),
        (Canary::EarlyRelease, calm),
        (Canary::KeptArrival, calm),
        (Canary::LeaseFromAnswer, overlong_lease),
        (Canary::MarginlessTerm, clients),
        (Canary::EndlessLease, clients),
        (Canary::KeptCopies, kept_copy),
        (Canary::HastyGrant, all),
        (Canary::MisaddressedPage, late_arrival),
        (Canary::OvertakenPage, late_arrival),
        (Canary::HeededGhost, clients),
        (Canary::ForgottenCallback, lost_callback),
        (Canary::ForgottenCopy, clients),
        (Canary::StaleReturn, stale_return),
        (Canary::UngrantedCopies, ungranted_copy),
        (Canary::UnenteredReceiver, calm),
        (Canary::EndlessChances, calm),
        (Canary::PresentForMoment, calm),
        (Canary::YoungCopies, calm),
        (Canary::PresentForMoment, falling),
        (Canary::YoungCopies, falling),
        (Canary::ForgottenWaiter, calm),
        (Canary::UnlockedRecord, calm),
        (Canary::UntoldRecord, calm),
    ];
    let is_missed = |(canary, search): &(Canary, Search)| {
        canary::plant(Some(*canary));
        let found = std::panic::catch_unwind(search);
        canary::plant(None);
        matches!(found, Ok(None))
    };
    let missed: Vec<_> = planted.into_iter().filter(is_missed).map(|(canary, _)| canary).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
