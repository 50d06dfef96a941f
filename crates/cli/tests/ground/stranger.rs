//! A peer that says anything: bytes of no form, messages with bytes changed, and messages in form that no honest node says.

use base::{PageId, PartitionId, Random};
use node::message::{
    self, ClientId, Copy, Former, Image, Leaving, PastAsk, RecordLock, Request, Secret, Session, SetAsk, SetEntry,
    SetQuestion, SetRange, SetRecord, SetValue, SetWrite, SnapshotRequest, ToServer, Transaction, Wait, WaitsFor,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The size of the pages of the database that is served, in bytes.
const PAGE_SIZE: u32 = 8 << 10;

/// What a stranger wants something of: the partitions with pages, one of them shared with honest nodes, and a set.
#[derive(Clone, Copy)]
pub struct Targets {
    pub pages: [PartitionId; 2],
    pub set: PartitionId,
}

/// Passes over what has come, and says whether that was all.
fn has_ended(stream: &mut TcpStream) -> bool {
    let mut passed_over = [0; 1 << 16];
    loop {
        match stream.read(&mut passed_over) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }
}

/// What a stranger knows in a session: most copies that it speaks of are such as it has asked for, so that it is heard for long.
struct Known {
    targets: Targets,
    numbers: RefCell<BTreeMap<PageId, u64>>,
}

/// Sends this number of messages, over as many connections as that takes: the server hangs up again and again.
pub fn harass(server: SocketAddr, targets: Targets, messages: u64, seed: u64) {
    let mut random = Random::stream(seed, "stranger");
    let mut sent = 0;
    while sent < messages {
        let mut stream = TcpStream::connect(server).expect("it listens");
        stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a socket can");
        stream.set_read_timeout(Some(Duration::from_micros(1))).expect("a socket can");
        stream.set_nodelay(true).expect("a socket can");
        let known = Known { targets, numbers: RefCell::default() };
        let is_known = random.chance(0.98);
        let mut frames = Vec::new();
        if is_known {
            frame(&hello(&mut random, &known), &mut frames);
        }
        let most = random.between(1, 2_000).min(messages - sent);
        for number in 0..most {
            frames.extend(bytes(&mut random, &known));
            sent += 1;
            // What it hears is of no interest, and neither is it to read all of it.
            if number % 64 == 0 || number + 1 == most {
                let is_gone = stream.write_all(&frames).is_err();
                frames.clear();
                if is_gone || random.chance(0.9) && has_ended(&mut stream) {
                    break;
                }
            }
        }
    }
}

fn frame(body: &Request, out: &mut Vec<u8>) {
    message::encode(&ToServer { drops: Vec::new(), body: body.clone() }, 0, out);
}

fn hello(random: &mut Random, known: &Known) -> Request {
    let former = random.chance(0.1).then(|| Former {
        session: Session { epoch: random.word(), client: ClientId(random.below(100) as u32) },
        secret: Secret(random.word().into()),
        copies: (0..random.below(20)).map(|_| copy(random, known)).collect(),
    });
    Request::Hello { page_size: PAGE_SIZE, address: "127.0.0.1:9".parse().expect("an address"), former }
}

fn copy(random: &mut Random, known: &Known) -> Copy {
    let partition = match random.below(20) {
        0 => known.targets.set,
        1 => PartitionId(1_000 + random.below(8) as u16),
        2..10 => known.targets.pages[0],
        _ => known.targets.pages[1],
    };
    let page = if random.chance(0.002) { random.word() as u32 >> 8 } else { random.below(64) as u32 };
    let (page, mut numbers) = (PageId::new(partition, page), known.numbers.borrow_mut());
    let next = numbers.len() as u64;
    let number = *numbers.entry(page).or_insert(next);
    Copy { page, number: if random.chance(0.001) { random.word() } else { number } }
}

fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; random.below(most) as usize];
    random.fill(&mut bytes);
    bytes
}

/// The bytes of a message, or of what is none.
fn bytes(random: &mut Random, known: &Known) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame(&request(random, known), &mut bytes);
    match random.below(10_000) {
        0 => noise(random, 200),
        1 => {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1 << random.below(8);
            bytes
        }
        2 => {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            bytes
        }
        _ => bytes,
    }
}

fn lock(random: &mut Random) -> RecordLock {
    let slot = if random.chance(0.5) { random.below(4) as u16 } else { random.word() as u16 };
    RecordLock { slot, transaction: Transaction(random.below(16)), writes: random.chance(0.5) }
}

fn range(random: &mut Random) -> SetRange {
    let value = |random: &mut Random| SetValue(noise(random, 20));
    let behind = random.chance(0.2).then(|| (value(random), value(random)));
    let to = random.chance(0.5).then(|| value(random));
    SetRange { index: random.below(3) as u16, from: noise(random, 20), to, behind }
}

fn commit(random: &mut Random, (transaction, pages): (Transaction, Vec<Image>), sets: Vec<SetWrite>) -> Request {
    let others = (0..random.below(3)).map(Transaction).collect();
    let (keeps, records, redone) = (random.chance(0.5), noise(random, 500), Vec::new());
    Request::Commit { transaction, others, keeps, records, pages, redone, sets }
}

/// A message about a set, or of one that is seen as it was.
fn of_set(random: &mut Random, set: PartitionId) -> Request {
    let partition = if random.chance(0.9) { set.0 } else { random.below(1_000) as u16 };
    let (transaction, number) = (Transaction(random.below(16)), random.below(64));
    match random.below(8) {
        0..3 => {
            let (key, writes) = (vec![random.below(8) as u8], random.chance(0.5));
            Request::SetRecord(SetRecord { partition, key, transaction, writes })
        }
        3 => {
            let writes = (0..random.below(4)).map(|_| {
                let value = random.chance(0.7).then(|| SetValue(noise(random, 300)));
                SetWrite { partition, key: vec![random.below(8) as u8], value }
            });
            let writes = writes.collect();
            commit(random, (transaction, Vec::new()), writes)
        }
        4 => {
            let ask = match random.below(3) {
                0 => PastAsk::Record(noise(random, 20)),
                1 => PastAsk::Range(range(random)),
                _ => PastAsk::Scan(random.word()),
            };
            Request::Snapshot { number, request: SnapshotRequest::Set { question: random.below(64), partition, ask } }
        }
        _ => {
            let ask = match random.below(4) {
                0 => SetAsk::Arrival,
                1 => SetAsk::Scan(if random.chance(0.5) { 0 } else { random.word() }),
                2 => SetAsk::Entries(vec![SetEntry { index: random.below(3) as u16, of: noise(random, 20) }]),
                _ => SetAsk::Range(range(random)),
            };
            Request::Set(SetQuestion { transaction, number, partition, ask })
        }
    }
}

/// A message of any kind but those of sets. Those that end the connection are few, for what comes behind is not heard then.
fn request(random: &mut Random, known: &Known) -> Request {
    let transaction = Transaction(random.below(16));
    let wanted = copy(random, known);
    match random.below(20) {
        12 | 13 => of_set(random, known.targets.set),
        14 => {
            let pair = |random: &mut Random| WaitsFor {
                transaction: Transaction(random.below(16)),
                other: Transaction(random.below(16)),
            };
            Request::Waits { pairs: (0..random.below(6)).map(|_| pair(random)).collect() }
        }
        15 if random.chance(0.005) => Request::Leave,
        15 if random.chance(0.2) => Request::Catalog,
        15 if random.chance(0.02) => Request::Decline { page: wanted.page },
        16 if random.chance(0.01) => {
            let (secret, leaving) = (Secret(random.word().into()), None);
            Request::Accept { copy: wanted, secret, leaving }
        }
        17 if random.chance(0.02) => {
            Request::Fell { copy: wanted, locks: (0..random.below(5)).map(|_| lock(random)).collect() }
        }
        18 => Request::Record { page: wanted.page, lock: lock(random) },
        0 if random.chance(0.002) => Request::Survey { page: Some(("account".to_owned(), random.word() as u32)) },
        0 => Request::Renew { sent: random.word() },
        1 => Request::InUse { copy: wanted, by: (0..random.below(8)).map(Transaction).collect() },
        2 => Request::CalledBack { copy: wanted },
        3 => Request::Refused { wanted, to: ClientId(random.below(100) as u32) },
        4 => {
            let redone = if random.chance(0.02) { vec![wanted.page] } else { Vec::new() };
            let first = Transaction(random.word());
            let mut said = commit(random, (first, Vec::new()), Vec::new());
            if let Request::Commit { redone: pages, .. } = &mut said {
                *pages = redone;
            }
            said
        }
        5 if random.chance(0.02) => {
            let image = Image { page: wanted.page, bytes: noise(random, 9_000) };
            commit(random, (transaction, vec![image]), Vec::new())
        }
        6 => Request::Abort { transaction },
        // Without a copy it ends the connection, and what comes behind is not heard.
        7 if random.chance(0.05) => Request::Write { copy: wanted, transaction },
        8 if random.chance(0.005) => hello(random, known),
        9 if random.chance(0.02) => Request::Returned { copy: wanted, bytes: noise(random, 9_000) },
        10 => {
            let request = match random.below(4) {
                // One more than it may have ends the connection.
                0 if random.chance(0.05) => SnapshotRequest::Begin,
                0 | 1 => SnapshotRequest::End,
                _ => SnapshotRequest::Read { page: wanted.page },
            };
            Request::Snapshot { number: if random.chance(0.9) { random.below(64) } else { random.word() }, request }
        }
        _ => {
            let leaving = random.chance(0.2).then(|| Leaving {
                copy: copy(random, known),
                unused_ns: random.word(),
                was_used: random.chance(0.5),
            });
            let waited_ns = [0, 1, u64::MAX][random.below(3) as usize];
            let waited = random.chance(0.5).then(|| Wait { copy: copy(random, known), waited_ns });
            let (secret, writes) = (Secret(random.word().into()), random.chance(0.1));
            Request::Read { copy: wanted, secret, transaction, writes, leaving, waited }
        }
    }
}
