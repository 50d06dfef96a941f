//! What the server decides, as its owner is to do it, and what it counts.

use crate::algorithm::Recency;
use crate::message::{
    Answer, ClientId, Copy, Image, LeavingFate, PastAsk, RecordLock, SetQuestion, SetRecord, SetWrite, Transaction,
};
use base::{Lsn, PageId, PartitionId};
use std::collections::BTreeSet;
use thiserror::Error;

/// What is to be done because of what was said, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say this to a client.
    Send(ClientId, Answer),
    /// Say this to a client, which sends a page to another that was offered it.
    PassOn(ClientId, Answer),
    /// Send a client the page that it waits for, from memory or from disk.
    SendPage {
        /// To whom.
        to: ClientId,
        /// Which copy it will be.
        copy: Copy,
        /// What becomes of the copy that leaves the client's memory.
        fate: LeavingFate,
        /// What becomes of the server's copy then.
        recency: Recency,
        /// Where it is, as far as was known.
        found: Found,
    },
    /// Send a client the record whose lock a transaction has got, as it is here.
    SendRecord {
        /// To whom.
        to: ClientId,
        /// The page.
        page: PageId,
        /// The lock.
        lock: RecordLock,
        /// Whether no other client wants anything of the page.
        is_alone: bool,
    },
    /// Send a client a record of a set whose lock a transaction has.
    SendSetRecord {
        /// To whom.
        to: ClientId,
        /// Which.
        record: SetRecord,
    },
    /// Look at a set and ask for the locks of what was seen ([`Server::read_set`](super::Server::read_set)), to answer a client.
    AnswerSet {
        /// Whom.
        client: ClientId,
        /// What it asks.
        question: SetQuestion,
    },
    /// Tell a client what partitions there are.
    SendCatalog(ClientId),
    /// Tell a client of its snapshot when all up to its moment is durable, or [`Server::undecided_snapshot`](super::Server::undecided_snapshot).
    BeginSnapshot {
        /// Whose.
        client: ClientId,
        /// Which.
        number: u64,
        /// Its moment.
        moment: Lsn,
    },
    /// Send a client a page as it was at the moment of its snapshot ([`Server::as_of`](super::Server::as_of)).
    ReadSnapshot {
        /// Whose.
        client: ClientId,
        /// Which.
        number: u64,
        /// The page.
        page: PageId,
    },
    /// Send a client something of a set as it was at the moment of its snapshot.
    ReadPastOfSet {
        /// Whose.
        client: ClientId,
        /// Which.
        number: u64,
        /// The number of what it asks.
        question: u64,
        /// The set.
        partition: PartitionId,
        /// What.
        ask: PastAsk,
    },
    /// The page in the server's memory counts as used just now.
    Touch(PageId),
    /// Take a page that no client has any more into the server's memory, as used just now; then [`Server::kept`](super::Server::kept).
    Keep(Image),
    /// Log a transaction, install its pages and redo its records on the others, durably; then [`Server::committed`](super::Server::committed) or [`Server::not_committed`](super::Server::not_committed).
    Commit {
        /// Whose transaction.
        client: ClientId,
        /// Which.
        transaction: Transaction,
        /// Its log records.
        records: Vec<u8>,
        /// Its pages.
        pages: Vec<Image>,
        /// The others that it has changed.
        redone: Vec<PageId>,
        /// Those of them of which it has locks of records alone: no change of anything else of them may be in it.
        by_records: BTreeSet<PageId>,
        /// What it has changed in sets.
        sets: Vec<SetWrite>,
    },
}

/// Where a page was found that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In the server's memory.
    Memory,
    /// Nowhere but on its disk.
    Disk,
    /// Not where it was expected, at another client.
    Refused,
}

/// What an honest client never says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("client {} has {what} {page}: its connection is closed", .client.0)]
pub struct Misbehaviour {
    /// Which client.
    pub client: ClientId,
    /// What it has done.
    pub what: &'static str,
    /// With which page.
    pub page: PageId,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients that have joined, also those that had a session before.
    pub joined: u64,
    /// Clients with copies that were given up because they had not been heard for longer than their leases last.
    pub unheard: u64,
    /// Clients that had left, or were given up, while commits of theirs were under way.
    pub gone_committing: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Pages that clients asked for and got.
    pub reads: u64,
    /// Those of them that were in the server's memory.
    pub hits: u64,
    /// Those that another client was asked to send.
    pub forwards: u64,
    /// Those that the other client could not send.
    pub refusals: u64,
    /// Pages that clients asked for ahead of a scan and got.
    pub ahead: u64,
    /// Those that they did not get, because they would have waited for others.
    pub would_block: u64,
    /// Copies that were called back.
    pub callbacks: u64,
    /// Copies that were given up while they were in use, so that locks of pages have fallen to locks of records.
    pub falls: u64,
    /// Records that were sent without their pages.
    pub records: u64,
    /// Records of sets that were sent.
    pub set_records: u64,
    /// Portions of sets that were sent, of an index or of all records.
    pub set_portions: u64,
    /// Transactions that were a deadlock's victims.
    pub victims: u64,
    /// Requests of clients that have no grant for them.
    pub denials: u64,
    /// Pages of commits that came without them.
    pub redone: u64,
    /// Commits that were refused: their records and pages do not fit together or what is here, or there was no room for them.
    pub refused_commits: u64,
    /// Commits that were logged when the log failed: what becomes of them shows at the next start.
    pub undecided_commits: u64,
    /// Clients that have said what no honest one does ([`Misbehaviour`]).
    pub misbehaviours: u64,
    /// Copies that left a client's memory as it asked for a page.
    pub leaving: u64,
    /// Those of them that were asked back.
    pub returned: u64,
    /// Those of them that other clients were offered, however often.
    pub offers: u64,
    /// Offers that were accepted, so that the page was passed on.
    pub passed_on: u64,
    /// Snapshots that were begun.
    pub snapshots: u64,
    /// Pages that were asked for as they were at a snapshot's moment.
    pub snapshot_reads: u64,
    /// Snapshots that were told that what they see is not known any more.
    pub snapshots_lost: u64,
}

pub(super) fn misbehaved(client: ClientId, what: &'static str, page: PageId) -> Misbehaviour {
    Misbehaviour { client, what, page }
}
