//! A peer that says anything: bytes of no form, messages with bytes changed, and messages in form that no honest node says.

use base::{PageId, PartitionId, Random};
use node::message::{
    self, ClientId, Copy, Former, Image, Leaving, Request, Secret, Session, SnapshotRequest, ToServer, Transaction,
    Wait,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The size of the pages of the database that is served, in bytes.
const PAGE_SIZE: u32 = 8 << 10;

/// Sends this number of messages, over as many connections as that takes: the server hangs up again and again.
pub fn harass(server: SocketAddr, messages: u64, seed: u64) {
    let mut random = Random::stream(seed, "stranger");
    let mut sent = 0;
    while sent < messages {
        let mut stream = TcpStream::connect(server).expect("it listens");
        stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a socket can");
        stream.set_read_timeout(Some(Duration::from_micros(1))).expect("a socket can");
        stream.set_nodelay(true).expect("a socket can");
        let is_known = random.chance(0.8);
        let mut frames = Vec::new();
        if is_known {
            frame(&hello(&mut random, PAGE_SIZE), &mut frames);
        }
        let most = random.between(1, 2_000).min(messages - sent);
        for number in 0..most {
            frames.extend(bytes(&mut random));
            sent += 1;
            // What it hears is of no interest, and neither is it to read all of it.
            if number % 64 == 0 || number + 1 == most {
                let is_gone = stream.write_all(&frames).is_err();
                frames.clear();
                if is_gone || random.chance(0.5) && matches!(stream.read(&mut [0; 1 << 16]), Ok(0)) {
                    break;
                }
            }
        }
    }
}

fn frame(body: &Request, out: &mut Vec<u8>) {
    message::encode(&ToServer { drops: Vec::new(), body: body.clone() }, 0, out);
}

fn hello(random: &mut Random, page_size: u32) -> Request {
    let former = random.chance(0.1).then(|| Former {
        session: Session { epoch: random.word(), client: ClientId(random.below(100) as u32) },
        secret: Secret(random.word().into()),
        copies: (0..random.below(20)).map(|_| copy(random)).collect(),
    });
    Request::Hello { page_size, address: "127.0.0.1:9".parse().expect("an address"), former }
}

fn copy(random: &mut Random) -> Copy {
    let number = if random.chance(0.1) { random.word() } else { random.below(64) };
    let partition = PartitionId(random.below(8) as u16);
    let page = if random.chance(0.05) { random.word() as u32 >> 8 } else { random.below(64) as u32 };
    Copy { page: PageId::new(partition, page), number }
}

fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; random.below(most) as usize];
    random.fill(&mut bytes);
    bytes
}

/// The bytes of a message, or of what is none.
fn bytes(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame(&request(random), &mut bytes);
    match random.below(400) {
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

fn request(random: &mut Random) -> Request {
    let transaction = Transaction(random.below(16));
    let wanted = copy(random);
    match random.below(12) {
        0 if random.chance(0.02) => Request::Survey { page: Some(("account".to_owned(), random.word() as u32)) },
        0 => Request::Renew { sent: random.word() },
        1 => Request::InUse { copy: wanted, by: (0..random.below(8)).map(Transaction).collect() },
        2 => Request::CalledBack { copy: wanted },
        3 => Request::Refused { wanted, to: ClientId(random.below(100) as u32) },
        4 => {
            let others = (0..random.below(3)).map(Transaction).collect();
            let (transaction, keeps) = (Transaction(random.word()), random.chance(0.5));
            let redone = if random.chance(0.5) { vec![wanted.page] } else { Vec::new() };
            Request::Commit {
                transaction,
                others,
                keeps,
                records: noise(random, 500),
                pages: Vec::new(),
                redone,
                sets: Vec::new(),
            }
        }
        5 if random.chance(0.05) => {
            let image = Image { page: wanted.page, bytes: noise(random, 9_000) };
            Request::Commit {
                transaction,
                others: Vec::new(),
                keeps: false,
                records: noise(random, 100),
                pages: vec![image],
                redone: Vec::new(),
                sets: Vec::new(),
            }
        }
        6 => Request::Abort { transaction },
        // Without a copy it ends the connection, and what comes behind is not heard.
        7 if random.chance(0.05) => Request::Write { copy: wanted, transaction },
        8 if random.chance(0.02) => hello(random, PAGE_SIZE),
        9 if random.chance(0.05) => Request::Returned { copy: wanted, bytes: noise(random, 9_000) },
        10 => {
            let request = match random.below(4) {
                // One more than it may have ends the connection.
                0 if random.chance(0.2) => SnapshotRequest::Begin,
                0 | 1 => SnapshotRequest::End,
                _ => SnapshotRequest::Read { page: wanted.page },
            };
            Request::Snapshot { number: if random.chance(0.9) { random.below(64) } else { random.word() }, request }
        }
        _ => {
            let leaving = random.chance(0.2).then(|| Leaving {
                copy: copy(random),
                unused_ns: random.word(),
                was_used: random.chance(0.5),
            });
            let waited_ns = [0, 1, u64::MAX][random.below(3) as usize];
            let waited = random.chance(0.5).then(|| Wait { copy: copy(random), waited_ns });
            let (secret, writes) = (Secret(random.word().into()), random.chance(0.1));
            Request::Read { copy: wanted, secret, transaction, writes, leaving, waited }
        }
    }
}
