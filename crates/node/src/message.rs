//! What nodes say to each other, and its form in bytes.
//!
//! A message is a frame: the number of bytes that follow, four of them in little-endian order, then the version, then the message
//! as `postcard` has it. Everything that is read from a peer has a limit, and bytes that are no message are an error, never a panic:
//! what a length claims is not allocated before it has come, and lists, whose elements are longer in memory than in a message, are
//! refused before they are read if they are too long.

mod form;
mod frame;
mod kind;
mod leaving;
mod page;
mod peer;
mod schema;
mod sets;
mod snapshot;

use crate::survey::Survey;
use base::PageId;
use engine::catalog::Organization;
pub(crate) use form::list;
use form::{packed, packed_list, raw};
pub use frame::{MessageError, decode, encode, frame_size};
pub use kind::Message;
pub use leaving::{Leaving, LeavingFate};
pub use page::PageAnswer;
pub use peer::ToPeer;
pub(crate) use schema::SCHEMAS_MAX;
pub use schema::{DescribedIndex, DescribedSchema};
use serde::{Deserialize, Serialize};
pub use sets::{
    SET_ASK_MAX, SetAnswer, SetAsk, SetEntry, SetFound, SetQuestion, SetRange, SetRecord, SetValue, SetWrite,
    place_in_set,
};
pub use snapshot::{PastAsk, SnapshotAnswer, SnapshotRequest};
use std::net::SocketAddr;

/// The version of the messages. Nodes of different versions do not talk to each other.
pub const VERSION: u8 = 20;
/// The bytes before a message: its length and its version.
pub const HEAD_SIZE: usize = 5;
/// The longest message, in bytes: a commit of some thousands of pages.
pub const SIZE_MAX: usize = 64 << 20;
/// The most elements of a list in a message.
pub const LIST_MAX: usize = 1 << 16;
/// The most waits of its transactions for each other that a node tells at a time.
pub const WAITS_MAX: usize = 1024;
/// The longest first message, in bytes, of a peer that is not known yet: one that names as many copies as a list may have.
pub const HELLO_MAX: usize = 2 << 20;

/// Names a node at its server, for as long as its connection lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u32);

/// Names the connection of a client to a server for ever: names of clients begin anew with each start of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Session {
    /// The start of the server: greater than that of all earlier ones.
    pub epoch: u64,
    /// The client.
    pub client: ClientId,
}

/// Drawn at random, so that it cannot be guessed. It is not shown.
///
/// A session has one, by which its client is known when it joins again. A client draws another one for each copy that it asks for, which
/// the server tells the client that is to send the page, and no other.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub u128);

impl Secret {
    /// That of a session, from what was drawn: the lower half says with a server of which database, so that one of another database, which may
    /// come to the same address, does not believe what the client says of its copies.
    pub fn of_session(drawn: u128, database: u64) -> Secret {
        Secret(drawn >> 64 << 64 | u128::from(database))
    }

    /// Whether it is that of a session with a server of this database.
    pub fn is_of(self, database: u64) -> bool {
        self.0 as u64 == database
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret")
    }
}

/// Names a transaction of one client. A client gives each number once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Transaction(pub u64);

impl Transaction {
    /// No transaction has this number: a page comes for it that was offered, or is asked for ahead of a scan.
    pub const NONE: Transaction = Transaction(u64::MAX);
}

/// A copy of a page at a client, from the request for it until it is dropped. The client gives each number once, so a message
/// about a copy that is gone is never taken for one about the next copy of the same page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Copy {
    /// The page.
    #[serde(with = "packed")]
    pub page: PageId,
    /// The copy's number.
    pub number: u64,
}

/// The bytes of a page, sealed with its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The page.
    #[serde(with = "packed")]
    pub page: PageId,
    /// Its bytes.
    #[serde(with = "raw")]
    pub bytes: Vec<u8>,
}

/// A message from a client to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToServer {
    /// Copies that the client has dropped since its last message: piggybacked, and processed first.
    #[serde(with = "list")]
    pub drops: Vec<Copy>,
    /// What it says beside that.
    pub body: Request,
}

/// What a client says to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first message: who it is.
    Hello {
        /// The size of its pages, in bytes.
        page_size: u32,
        /// Where it accepts connections of other clients that send it pages.
        address: SocketAddr,
        /// The session that it had, if its connection broke.
        former: Option<Former>,
    },
    /// In place of the first message, of one that only looks: what the server knows of its nodes, and of this page.
    Survey {
        /// A partition's name, and the number of a page of it.
        page: Option<(String, u32)>,
    },
    /// It is there, and wants its lease prolonged.
    Renew {
        /// When it has said so, by its own clock, in nanoseconds: it comes back with the answer.
        sent: u64,
    },
    /// It leaves, and uses no copy any more.
    Leave,
    /// It wants to know what partitions there are.
    Catalog,
    /// It wants a page, and the read lock that comes with the copy. Said again if the page does not come, which may have been lost on
    /// its way from another client, and if another transaction waits for it now. Said first for [`Transaction::NONE`] it is asked for ahead, and
    /// waits for no one: it comes, or [`Answer::WouldBlock`].
    Read {
        /// The copy that it will be; one that it has already, if the page has left its memory while it is in use.
        copy: Copy,
        /// What another client has to show that sends it. The same when this is said again.
        secret: Secret,
        /// For which transaction.
        transaction: Transaction,
        /// Whether that wants to write it: then the page comes when the transaction has its write lock.
        writes: bool,
        /// The copy that has to make room for it.
        leaving: Option<Leaving>,
        /// How long another page took to come.
        waited: Option<Wait>,
    },
    /// It takes a page that it was offered, though no transaction of its wants that.
    Accept {
        /// The copy that it will be.
        copy: Copy,
        /// What another client has to show that sends it.
        secret: Secret,
        /// The copy that has to make room for it.
        leaving: Option<Leaving>,
    },
    /// It does not take a page that it was offered: it has no room for it, or has work to do.
    Decline {
        /// Which.
        #[serde(with = "packed")]
        page: PageId,
    },
    /// It wants the write lock of a page of which it has a copy that the transaction uses.
    Write {
        /// The copy.
        copy: Copy,
        /// For which transaction.
        transaction: Transaction,
    },
    /// It cannot give up the copy that it was called back before these transactions have ended.
    InUse {
        /// The copy.
        copy: Copy,
        /// Transactions that use it.
        #[serde(with = "list")]
        by: Vec<Transaction>,
    },
    /// It has given up the copy that was called back or could not be had, and its write lock if it had that, or had no such copy any more.
    CalledBack {
        /// The copy.
        copy: Copy,
    },
    /// It cannot send a page to another client, as it was told to.
    Refused {
        /// The page, and the number of the copy that the other client waits for.
        wanted: Copy,
        /// The other client.
        to: ClientId,
    },
    /// It has given up a copy that was called back though transactions use it: from now on they have locks of these records of it alone,
    /// and nothing of the page beside.
    Fell {
        /// The copy.
        copy: Copy,
        /// The locks. One that is of a change needs the page's write lock until now.
        #[serde(with = "list")]
        locks: Vec<RecordLock>,
    },
    /// It wants a record of a page, and its lock, without a copy of the page.
    Record {
        /// The page.
        #[serde(with = "packed")]
        page: PageId,
        /// Of which record, and for which transaction.
        lock: RecordLock,
    },
    /// It wants a record of a set, and its lock.
    SetRecord(SetRecord),
    /// It asks about a set.
    Set(SetQuestion),
    /// Which of its transactions wait for which others of its own, all that do so. What was said of that before is over.
    Waits {
        /// Who for whom.
        #[serde(with = "list")]
        pairs: Vec<WaitsFor>,
    },
    /// Transactions are to be committed, all of them or none.
    Commit {
        /// The first, by which all are known.
        transaction: Transaction,
        /// The others.
        #[serde(with = "list")]
        others: Vec<Transaction>,
        /// Whether the node keeps the write locks of these pages: it gives each up with its copy.
        keeps: bool,
        /// Their log records, one after another, in the engine's form but for their transaction's number. Changes of records of which they
        /// have locks, and not their pages', have the sequence number 0: the server numbers them.
        #[serde(with = "raw")]
        records: Vec<u8>,
        /// Pages that they have changed. Of these, and of those that are redone, they or the node have write locks, or they have those of
        /// records.
        #[serde(with = "list")]
        pages: Vec<Image>,
        /// The other pages that they have changed: the server redoes the log records on its own.
        #[serde(with = "packed_list")]
        redone: Vec<PageId>,
        /// What they have changed in sets, in this order. Of these records they have the locks.
        #[serde(with = "list")]
        sets: Vec<SetWrite>,
    },
    /// A transaction is rolled back, or has changed nothing: its write locks are released, and it wants no more.
    Abort {
        /// Which.
        transaction: Transaction,
    },
    /// A dropped page that the server has asked for.
    Returned {
        /// The copy.
        copy: Copy,
        /// Its bytes.
        #[serde(with = "raw")]
        bytes: Vec<u8>,
    },
    /// Something of one of its snapshots.
    Snapshot {
        /// Which: it gives each number once.
        number: u64,
        /// What.
        request: SnapshotRequest,
    },
}

/// A lock of a record of a page, until its transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLock {
    /// The record's place among those of its page, from 0; on a leaf of a b-tree what stands for its key ([`crate::leaf_records`]).
    pub slot: u16,
    /// Whose it is.
    pub transaction: Transaction,
    /// Whether it is for a change.
    pub writes: bool,
}

/// A transaction waits for another one of the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsFor {
    /// Which.
    pub transaction: Transaction,
    /// For which one.
    pub other: Transaction,
}

/// How long a page took to come, from the request to its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Which copy.
    pub copy: Copy,
    /// The time, in nanoseconds of the client's clock.
    pub waited_ns: u64,
}

/// A partition of the server's database, as far as clients have to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Its number, which no other partition of the database ever has.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// How its records are found.
    pub organization: Organization,
    /// What its records consist of and how they can be read, if they have a type.
    pub schema: Option<DescribedSchema>,
    /// The partition that it is a secondary index of, if it is one: only what changes that changes it.
    pub index_of: Option<u16>,
}

/// A session that has ended with its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Which.
    pub session: Session,
    /// Its secret.
    pub secret: Secret,
    /// The copies of it that the client has and would keep. None if its lease was over when it said this.
    #[serde(with = "list")]
    pub copies: Vec<Copy>,
}

/// What the server says to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The client has joined.
    Joined {
        /// The session that begins.
        session: Session,
        /// Its secret. No other client is told it.
        secret: Secret,
        /// How long a lease lasts, in nanoseconds. The first one begins with the message that this answers.
        lease_ns: u64,
        /// Whether it has all copies that it would keep, with their numbers; otherwise it has none.
        keeps: bool,
        /// Whether the bytes of copies that leave its memory may be wanted, so that it keeps them until that is decided.
        wants_leaving: bool,
        /// How many pages commits that are sent together may have, so that the server has frames for all of them beside other work. One
        /// that has more by itself is sent by itself.
        pages_together: u32,
        /// What became of the transactions of the session that it had.
        former: Outcome,
    },
    /// The client's lease is prolonged.
    Renewed {
        /// When the client has asked for that, by its own clock.
        sent: u64,
    },
    /// The partitions that there are.
    Catalog {
        /// All of them.
        #[serde(with = "list")]
        partitions: Vec<Described>,
    },
    /// What the server knows of its nodes.
    Surveyed(Box<Survey>),
    /// The client may not join, or may not look.
    Refusal {
        /// Why, in words.
        reason: String,
    },
    /// The page that the client asked for.
    Page {
        /// Which copy it is.
        copy: Copy,
        /// Its bytes.
        #[serde(with = "raw")]
        bytes: Vec<u8>,
        /// What becomes of the copy that leaves the client's memory for it.
        fate: LeavingFate,
    },
    /// The page that the client asked for cannot be had. If it still waits for it, it answers that it has no such copy
    /// ([`Request::CalledBack`]); until then the copy is in the server's directory.
    Failed {
        /// Which copy it would have been.
        copy: Copy,
        /// Whether it is that the client has no grant to read it.
        is_denied: bool,
        /// Whether it is that the page's file finds no room to become longer.
        is_full: bool,
        /// Why, in words.
        reason: String,
    },
    /// A page that was asked for ahead is not to be had without a wait for others. The client has no such copy.
    WouldBlock {
        /// Which copy it would have been.
        copy: Copy,
    },
    /// A transaction does not get the write lock that it asked for, since its client has no grant for that.
    Denied {
        /// Which.
        transaction: Transaction,
        /// Why, in words.
        reason: String,
    },
    /// A transaction has the write lock that it asked for.
    Granted {
        /// Of which copy's page.
        copy: Copy,
        /// Which transaction.
        transaction: Transaction,
    },
    /// The client is to give up a copy.
    CallBack {
        /// Which.
        copy: Copy,
    },
    /// The client is to give up a copy. If transactions use it that do with locks of its records, it may do so at once, and say which
    /// locks these are.
    Fall {
        /// Which.
        copy: Copy,
    },
    /// The page that the client asked for is kept from it by locks of its records. It may ask for records in place of the page, and gives
    /// up the copy that it would have been.
    ByRecords {
        /// Which copy it would be.
        copy: Copy,
    },
    /// A transaction has the lock of a record that it asked for, and this is the record as it was committed last.
    Record {
        /// The page.
        #[serde(with = "packed")]
        page: PageId,
        /// The lock.
        lock: RecordLock,
        /// Whether no other client wants anything of the page, so that the page may be asked for the next time.
        is_alone: bool,
        /// The record; of a leaf all that have this number, as they stand on it.
        #[serde(with = "raw")]
        bytes: Vec<u8>,
    },
    /// The page of which a transaction has asked for a record is no leaf of a b-tree any more: it is run again, and asks for the page.
    NoLeaf {
        /// The page.
        #[serde(with = "packed")]
        page: PageId,
        /// The lock that it asked for.
        lock: RecordLock,
    },
    /// A transaction does not get a record.
    NoRecord {
        /// The page.
        #[serde(with = "packed")]
        page: PageId,
        /// The lock that it asked for.
        lock: RecordLock,
        /// Whether it is that the client has no grant for that.
        is_denied: bool,
        /// Why, in words.
        reason: String,
    },
    /// A transaction has the lock of a record of a set that it asked for, and this is the record as it was committed last.
    SetRecord {
        /// Which, and in which way.
        record: SetRecord,
        /// Its value, if there is such a record.
        value: Option<SetValue>,
    },
    /// A transaction has waited for the lock of a record of a set, and has it now: it asks for the record once more, and gets it.
    SetGranted {
        /// The place of the lock.
        #[serde(with = "packed")]
        page: PageId,
        /// The lock.
        lock: RecordLock,
    },
    /// A transaction does not get a record of a set.
    NoSetRecord {
        /// Which.
        record: SetRecord,
        /// Whether it is that the client has no grant for that.
        is_denied: bool,
        /// Why, in words.
        reason: String,
    },
    /// The answer to what a transaction has asked about a set.
    Set {
        /// Which transaction.
        transaction: Transaction,
        /// The number of its question.
        number: u64,
        /// What.
        said: SetAnswer,
    },
    /// It need not do so any more: the transaction that wanted the write lock is gone.
    Withdrawn {
        /// Which copy may stay.
        copy: Copy,
    },
    /// The client may have a page that is about to leave all memories: it accepts that or declines it.
    Offer {
        /// Which.
        #[serde(with = "packed")]
        page: PageId,
    },
    /// Of a page that was passed on to the client, which keeps it for others, there is no other copy any more.
    LastCopy {
        /// The client's copy.
        copy: Copy,
    },
    /// The client is to send a page to another.
    Forward {
        /// The client's own copy.
        copy: Copy,
        /// The number of the copy that the other client waits for.
        wanted: u64,
        /// The other client.
        to: ClientId,
        /// Where that accepts connections.
        address: SocketAddr,
        /// The name that it has to prove.
        name: Option<String>,
        /// What to show it: what it has named with its request.
        secret: Secret,
        /// What becomes of the copy that leaves its memory.
        fate: LeavingFate,
    },
    /// Another client is gone that was to send pages. The client asks again for those that have not come.
    AskAgain {
        /// Which copies they would be.
        #[serde(with = "list")]
        copies: Vec<Copy>,
    },
    /// A transaction is a deadlock's victim and has to be rolled back.
    Victim {
        /// Which.
        transaction: Transaction,
        /// The copies that it waited for and will not get.
        #[serde(with = "list")]
        withdrawn: Vec<Copy>,
    },
    /// A transaction is committed, and durably so.
    Committed {
        /// Which.
        transaction: Transaction,
    },
    /// A transaction is refused, and nothing of it was logged. Of one whose outcome is not known before the next start of the server
    /// nothing is said: the connection ends.
    NotCommitted {
        /// Which.
        transaction: Transaction,
        /// Why, in words.
        reason: String,
    },
    /// Something of one of the client's snapshots.
    Snapshot {
        /// Which.
        number: u64,
        /// What.
        said: SnapshotAnswer,
    },
}

/// What is known of the transactions of a session that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing: the server was started again, or had given the client up.
    Unknown,
    /// This one was committed last, and none after it is.
    Committed(Option<Transaction>),
}

#[cfg(test)]
mod tests;
