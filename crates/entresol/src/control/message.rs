//! What is said at the socket of a database, and its form in bytes: the number of bytes that follow, four of them in little-endian order,
//! then the version, then the message as `postcard` has it. Bytes that are no message are an error, never a panic, and what a length claims
//! is not read if it is over the limit.

use super::ask::WaitsElsewhere;
use base::TransactionId;
use engine::catalog::Locking;
use engine::lock::Mode;
use engine::{BackupError, BackupProgress, BackupReport, BackupSettings, LockWait};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use thiserror::Error;

/// The version of the messages.
const VERSION: u8 = 1;
/// The bytes before a message: its length and its version.
const HEAD: usize = 5;
/// The longest message, in bytes: no path is longer than 4 KiB.
pub const MESSAGE_MAX: usize = 64 << 10;
/// The longest words of a failure, in bytes.
const WORDS_MAX: usize = 16 << 10;
/// How many bytes of waits are told at most: each has a holder for each that queues before it, so there is no other limit.
const WAITS_MAX: usize = 48 << 10;

/// What is asked. One question is asked in a connection, and its client closes that to take it back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// A backup; its places are absolute paths.
    Backup(BackupSettings),
    /// What waits for a lock.
    Waits,
    /// What transactions reference for this number of nanoseconds, at most this number of references.
    Record(u64, u64),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// How far it is; more comes.
    Progress(BackupProgress),
    /// It is whole.
    Done(BackupReport),
    /// It was not done.
    Failed(Failure),
    /// What waits for a lock.
    Waits(Waits),
    /// A partition that was referenced; more comes.
    Partition(PartitionWords),
    /// References, as they follow each other; more comes.
    References(Vec<ReferenceWords>),
    /// All was said of what transactions have referenced; whether there was no room for more.
    Recorded(bool),
}

/// A partition's number, its name, how many objects it has and how many a page, and what transactions lock.
pub type PartitionWords = (u16, String, Option<u64>, u32, Locking);

/// Whether a transaction begins with it, the partition's number, the page's, the slot, and whether the object is changed.
pub type ReferenceWords = (bool, u16, u32, u16, bool);

/// How many references are said at once: of up to 13 bytes each.
pub const REFERENCES_AT_ONCE: usize = 4_000;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Failure {
    /// The database was closed.
    Closed,
    /// The database's program runs nothing in it.
    Idle,
    /// The backup could not be taken.
    Backup(BackupError),
    /// Anything else, in words.
    Other(String),
}

/// What waits in a database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    locks: Vec<Wait>,
    beginning: u64,
    left_out: u64,
}

/// A [`LockWait`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wait {
    transaction: u64,
    resource: String,
    mode: Mode,
    waited_ns: u64,
    holders: Vec<u64>,
}

impl Waits {
    /// Of these, the longest first, as many as a message takes, and how many tasks wait to begin a transaction.
    pub fn new(all: Vec<LockWait>, beginning: usize) -> Waits {
        let (count, mut size) = (all.len(), 0);
        let is_told = |wait: &Wait| {
            size += postcard::experimental::serialized_size(wait).expect("it has a size");
            size <= WAITS_MAX
        };
        let locks: Vec<Wait> = all.into_iter().map(Wait::from).take_while(is_told).collect();
        Waits { left_out: (count - locks.len()) as u64, locks, beginning: beginning as u64 }
    }
}

impl From<Waits> for WaitsElsewhere {
    fn from(told: Waits) -> WaitsElsewhere {
        let Waits { locks, beginning, left_out } = told;
        WaitsElsewhere { locks: locks.into_iter().map(LockWait::from).collect(), left_out, beginning }
    }
}

impl From<LockWait> for Wait {
    fn from(wait: LockWait) -> Wait {
        let LockWait { transaction, resource, mode, waited_ns, holders } = wait;
        let holders = holders.into_iter().map(|holder| holder.0).collect();
        Wait { transaction: transaction.0, resource, mode, waited_ns, holders }
    }
}

impl From<Wait> for LockWait {
    fn from(wait: Wait) -> LockWait {
        let Wait { transaction, resource, mode, waited_ns, holders } = wait;
        let holders = holders.into_iter().map(TransactionId).collect();
        LockWait { transaction: TransactionId(transaction), resource, mode, waited_ns, holders }
    }
}

impl Failure {
    pub(super) fn other(words: &str) -> Failure {
        Failure::Other(words[..words.floor_char_boundary(WORDS_MAX)].to_owned())
    }
}

/// Why bytes are no message.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// Another version.
    #[error("messages of the other program have version {0}, this one's {VERSION}: run the same release of both")]
    Version(u8),
    /// Too long.
    #[error("a message of {0} bytes is over the limit of {MESSAGE_MAX}")]
    TooLong(usize),
    /// Not the form of one.
    #[error("bytes of the other program are no message: {0}")]
    Malformed(postcard::Error),
    /// More than one.
    #[error("bytes of the other program are no message: there is more behind its end")]
    Excess,
    /// They did not come, or not all of them.
    #[error("the other program does not talk: {0}")]
    Silent(#[from] io::Error),
}

/// A message with what stands before it.
pub fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let body = postcard::to_allocvec(message).expect("memory takes any message");
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.push(VERSION);
    bytes.extend(body);
    bytes
}

/// How long the message is that stands behind this.
fn length(head: [u8; HEAD]) -> Result<usize, Unreadable> {
    let [length @ .., version] = head;
    match u32::from_le_bytes(length) as usize {
        _ if version != VERSION => Err(Unreadable::Version(version)),
        length if length > MESSAGE_MAX => Err(Unreadable::TooLong(length)),
        length => Ok(length),
    }
}

/// The message that these bytes are.
///
/// # Errors
/// [`Unreadable`].
pub fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, Unreadable> {
    let (message, rest) = postcard::take_from_bytes(body).map_err(Unreadable::Malformed)?;
    if rest.is_empty() { Ok(message) } else { Err(Unreadable::Excess) }
}

/// Waits for something that is said; nothing if the other end is closed.
pub(super) fn receive<M: DeserializeOwned>(stream: &mut impl Read) -> Result<Option<M>, Unreadable> {
    let mut head = [0; HEAD];
    loop {
        match stream.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    stream.read_exact(&mut head[1..])?;
    let mut body = vec![0; length(head)?];
    stream.read_exact(&mut body)?;
    decode(&body).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask() -> Ask {
        let (target, base) = ("/mnt/backup/monday".to_owned(), Some("/mnt/backup/sunday".to_owned()));
        Ask::Backup(BackupSettings { target, base, bytes_per_second: Some(50 << 20) })
    }

    fn read(bytes: &[u8]) -> Result<Option<Ask>, Unreadable> {
        receive(&mut &bytes[..])
    }

    #[test]
    fn what_was_sent_is_received_and_no_part_of_it_is() {
        let bytes = encode(&ask());
        assert_eq!(read(&bytes).expect("it is a message"), Some(ask()));
        assert!(matches!(read(&[]), Ok(None)));
        for length in 1..bytes.len() {
            assert!(matches!(read(&bytes[..length]), Err(Unreadable::Silent(_))), "{length} bytes");
        }
    }

    #[test]
    fn another_version_and_a_message_over_the_limit_are_refused_by_their_heads() {
        let mut bytes = encode(&ask());
        bytes[4] = 9;
        assert!(matches!(read(&bytes), Err(Unreadable::Version(9))));
        let claimed = [&u32::MAX.to_le_bytes()[..], &[VERSION]].concat();
        assert!(matches!(read(&claimed), Err(Unreadable::TooLong(_))));
        let longest = Failure::other(&"é".repeat(MESSAGE_MAX));
        assert!(encode(&Answer::Failed(longest)).len() < MESSAGE_MAX);
        let references = Answer::References(vec![(true, u16::MAX, u32::MAX, u16::MAX, true); REFERENCES_AT_ONCE]);
        assert!(encode(&references).len() < MESSAGE_MAX);
    }

    #[test]
    fn waits_beyond_a_message_are_counted() {
        let wait = |transaction| LockWait {
            transaction: TransactionId(transaction),
            resource: "record 7 of 'notes'".to_owned(),
            mode: Mode::Exclusive,
            waited_ns: 1 << 40,
            holders: (0..transaction).map(TransactionId).collect(),
        };
        let told = Waits::new((0..1000).map(wait).collect(), 3);
        assert!(encode(&Answer::Waits(told.clone())).len() < MESSAGE_MAX);
        let WaitsElsewhere { locks, left_out, beginning } = told.into();
        assert!(locks.len() > 100 && locks.len() as u64 + left_out == 1000 && beginning == 3);
        assert_eq!(locks[17], wait(17));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            for is_answer in [false, true] {
                let again = match is_answer {
                    false => decode::<Ask>(&body).ok().map(|ask| decode::<Ask>(&encode(&ask)[HEAD..]).is_ok_and(|same| same == ask)),
                    true => decode::<Answer>(&body).ok().map(|answer| decode::<Answer>(&encode(&answer)[HEAD..]).is_ok_and(|same| same == answer)),
                };
                prop_assert!(again.unwrap_or(true));
            }
            let _ = read(&body);
        }
    }
}
