//! A page server hears any messages of its clients, in any order, and gives up those that misbehave: its state stays right, and
//! those that are left are served.
#![no_main]

use base::{Lsn, PageId, PartitionId};
use libfuzzer_sys::fuzz_target;
use node::algorithm::{ALGORITHMS, Frames};
use node::grants::{Access, Right};
use node::message::{
    ClientId, Copy, HEAD_SIZE, Image, Leaving, PastAsk, RecordLock, Request, Secret, SetAsk, SetEntry, SetQuestion,
    SetRange, SetRecord, SnapshotRequest, ToServer, Transaction, Wait, WaitsFor, decode, place_in_set,
};
use node::server::{Action, Memory, Newcomer, Server, SetSight, span_of_index, span_of_records};
use std::ops::Bound;

/// A memory that has every second page.
struct Half;

impl Memory for Half {
    fn has(&self, page: PageId) -> bool {
        page.number % 2 == 0
    }

    fn has_left_as(&self, page: PageId, _: &[u8]) -> bool {
        page.number % 2 == 0
    }

    fn page_size(&self) -> usize {
        4096
    }

    fn is_set(&self, partition: PartitionId) -> bool {
        partition == SET
    }
}

/// The partition that has pages.
const PAGES: PartitionId = PartitionId(1);
/// The one that is a set.
const SET: PartitionId = PartitionId(2);

/// One may do everything, one may read pages and write the set, and one may write pages and has no grant for the set.
fn join(server: &mut Server, place: usize, actions: &mut Vec<Action>) -> ClientId {
    let address = "10.0.0.1:7000".parse().expect("an address");
    let access = match place {
        0 => Access::All,
        1 => Access::Granted([(PAGES, Right::Read), (SET, Right::Write)].into()),
        _ => Access::Granted([(PAGES, Right::Write)].into()),
    };
    let newcomer = Newcomer { address, name: Some(format!("node-{place}")), access };
    server.join(newcomer, (None, Secret::default()), &Half, actions).session.client
}

fn lock(number: u8, transaction: Transaction) -> RecordLock {
    RecordLock { slot: u16::from(number % 4), transaction, writes: number > 127 }
}

/// A request about one of a few pages, so that clients are in each other's way; `None` for one of any bytes.
fn likely(bytes: &[u8; 4]) -> Option<Request> {
    let [kind, page, number, transaction] = *bytes;
    // Now and then where records of the set are locked.
    let of_set = place_in_set(SET, &[page % 2]).0;
    let wanted = if kind >> 4 == 15 { of_set } else { PageId::new(PAGES, u32::from(page % 4)) };
    let copy = Copy { page: wanted, number: u64::from(number % 16) };
    let transaction = Transaction(u64::from(transaction % 4));
    let earlier = Copy { page: PageId::new(PAGES, u32::from(page >> 2) % 4), number: u64::from(number >> 4) };
    let unused_ns = transaction.0;
    let leaving = (page > 127).then_some(Leaving { copy: earlier, unused_ns, was_used: number % 2 == 0 });
    Some(match kind % 19 {
        0 | 1 => {
            let waited_ns = [0, 1, 1 << 20, u64::MAX][usize::from(kind >> 6)];
            let waited = (page % 128 > 31).then_some(Wait { copy: earlier, waited_ns });
            let transaction = if kind == 1 { Transaction::NONE } else { transaction };
            Request::Read { copy, secret: Secret(1), transaction, writes: number > 127, leaving, waited }
        }
        2 => Request::Write { copy, transaction },
        3 => Request::InUse { copy, by: vec![transaction] },
        4 => Request::CalledBack { copy },
        5 => Request::Refused { wanted: copy, to: ClientId(u32::from(page >> 6)) },
        6 => {
            let pages = (page > 127).then(|| Image { page: copy.page, bytes: Vec::new() }).into_iter().collect();
            let others = (number > 127).then_some(Transaction(u64::from(number % 4))).into_iter().collect();
            let redone = (page % 3 == 0).then_some(copy.page).into_iter().collect();
            Request::Commit {
                transaction,
                others,
                keeps: number % 2 == 0,
                records: Vec::new(),
                pages,
                redone,
                sets: Vec::new(),
            }
        }
        7 => Request::Abort { transaction },
        8 => Request::Returned { copy, bytes: vec![0; 8] },
        9 => Request::Waits { pairs: vec![WaitsFor { transaction, other: Transaction(u64::from(number % 4)) }] },
        10 => Request::Accept { copy, secret: Secret(1), leaving },
        11 => Request::Decline { page: copy.page },
        12 | 13 => {
            let request = match page >> 6 {
                0 => SnapshotRequest::Begin,
                1 if number > 191 => {
                    SnapshotRequest::Set { question: 1, partition: SET.0, ask: PastAsk::Record(vec![page]) }
                }
                1 => SnapshotRequest::End,
                _ => SnapshotRequest::Read { page: copy.page },
            };
            Request::Snapshot { number: copy.number, request }
        }
        14 => Request::Record { page: copy.page, lock: lock(number, transaction) },
        15 => {
            let locks = (0..number % 4).map(|more| lock(number / 4 + more, transaction)).collect();
            Request::Fell { copy, locks }
        }
        16 | 17 => {
            let record = SetRecord { partition: SET.0, key: vec![page % 2], transaction, writes: number > 127 };
            Request::SetRecord(record)
        }
        18 | 19 => {
            let of = vec![page % 4];
            let ask = match number >> 6 {
                0 => SetAsk::Arrival,
                1 => SetAsk::Scan(u64::from(page)),
                2 => SetAsk::Entries(vec![SetEntry { index: u16::from(page >> 7), of }]),
                _ => SetAsk::Range(SetRange { index: u16::from(page >> 7), from: of, to: None, behind: None }),
            };
            Request::Set(SetQuestion { transaction, number: u64::from(number % 8), partition: SET.0, ask })
        }
        _ => return None,
    })
}

/// Ends one of the things that the server has begun.
fn end(server: &mut Server, pending: &mut Vec<Action>, which: u8, actions: &mut Vec<Action>) {
    if pending.is_empty() {
        return;
    }
    match pending.swap_remove(usize::from(which) % pending.len()) {
        Action::SendPage { to, copy, .. } => server.failed(to, copy, (false, "no disk".to_owned()), &Half, actions),
        Action::Keep(image) => server.kept(image.page, &Half, actions),
        Action::ReadSnapshot { client, number, page } => drop(server.as_of((client, number), page, actions)),
        Action::BeginSnapshot { client, number, .. } if which % 2 == 0 => {
            server.undecided_snapshot((client, number), "no log".to_owned(), actions);
        }
        Action::BeginSnapshot { .. } => {}
        Action::Commit { client, transaction, pages, redone, .. } if which % 2 == 0 => {
            // The log goes on with each, and what it changes is at hand now and then.
            let at = Lsn(server.counts().commits + 2);
            let before = |page: PageId| (page.number % 2 == 0).then(|| [0; 64].into());
            server.applied(at, pages.iter().map(|image| image.page).chain(redone), before, actions);
            server.committed((client, transaction), &Half, actions);
        }
        Action::Commit { client, transaction, .. } => {
            server.not_committed((client, transaction), "no log".to_owned(), &Half, actions);
        }
        Action::AnswerSet { client, question } => {
            let owner = (client, question.transaction);
            let spans = match &question.ask {
                SetAsk::Range(range) => vec![span_of_index(range.index, &range.from, Bound::Included(&[which % 5]))],
                SetAsk::Scan(_) => vec![span_of_records()],
                SetAsk::Entries(_) | SetAsk::Arrival => {
                    server.reserve_arrival(owner, question.number, (SET, u64::from(which)));
                    return;
                }
            };
            let _: SetSight = server.read_set(owner, question.number, (SET, spans), &Half, actions);
        }
        Action::SendRecord { .. }
        | Action::ReadPastOfSet { .. }
        | Action::SendSetRecord { .. }
        | Action::Send(..)
        | Action::PassOn(..)
        | Action::SendCatalog(_)
        | Action::Touch(_) => {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut server = Server::new(&ALGORITHMS[usize::from(*first) % ALGORITHMS.len()], Frames::lru(4), 1);
    server.set_snapshot_room(2_000);
    let mut actions = Vec::new();
    let mut clients = [0, 1, 2].map(|place| join(&mut server, place, &mut actions));
    let mut pending = Vec::new();
    while let Some(([step, said @ ..], behind)) = rest.split_first_chunk::<5>() {
        rest = behind;
        let place = usize::from(step % 3);
        let client = &mut clients[place];
        match step / 3 % 8 {
            0 => end(&mut server, &mut pending, said[0], &mut actions),
            1 => server.lose(*client, &Half, &mut actions),
            _ => {
                let any = || {
                    let length = usize::from(said[1]).min(behind.len());
                    let mut frame = vec![0; HEAD_SIZE];
                    frame.extend_from_slice(&behind[..length]);
                    decode::<ToServer>(&frame).ok()
                };
                let message = likely(said).map(|body| ToServer { drops: Vec::new(), body }).or_else(any);
                let Some(message) = message else { continue };
                if server.receive(*client, message, &Half, &mut actions).is_err() {
                    server.lose(*client, &Half, &mut actions);
                }
            }
        }
        if !server.has_joined(*client) {
            *client = join(&mut server, place, &mut actions);
        }
        let is_said = |action: &Action| {
            matches!(action, Action::Send(..) | Action::PassOn(..) | Action::SendCatalog(_) | Action::Touch(_))
        };
        pending.extend(actions.drain(..).filter(|action| !is_said(action)));
        server.check().expect("the state is right");
    }
    clients.iter().for_each(|client| server.lose(*client, &Half, &mut actions));
    assert_eq!(server.waiting(), 0, "nothing waits when all are gone");
    assert_eq!(server.snapshots(), (0, 0), "nothing is kept for those that are gone");
});
