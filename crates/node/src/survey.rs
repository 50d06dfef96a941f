//! What a page server knows of its nodes at a moment, for those who look: as plain data, and how another process asks for it.
//!
//! Who asks need not join. Where nodes are told apart, one that may read all partitions may look, and no other.

use crate::channel::{Incoming, Transport};
use crate::message::{Answer, ClientId, LIST_MAX, Request, ToServer, Transaction, encode, list};
use crate::outbox::Amount;
use driver::{Fault, FaultKind};
use engine::Result;
use executor::{Executor, UserExecutor, WholeExecutor};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The most entries of a list in a survey.
pub(crate) const ENTRIES_MAX: usize = LIST_MAX;

/// What a server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survey {
    /// What becomes of copies: the algorithm's name.
    pub algorithm: String,
    /// For how long it has served, in nanoseconds.
    pub served_ns: u64,
    /// Whether it still waits for nodes of the server before it, and grants no write lock.
    pub is_gathering: bool,
    /// The nodes, in the order in which they have joined.
    #[serde(with = "list")]
    pub nodes: Vec<NodeState>,
    /// What they have, by node and partition.
    #[serde(with = "list")]
    pub held: Vec<CopyCount>,
    /// Copies that are called back and not given up yet, the oldest call first.
    #[serde(with = "list")]
    pub callbacks: Vec<Callback>,
    /// How many entries the lists would have beyond those.
    pub left_off: u64,
    /// What nodes have sent to the server.
    #[serde(with = "list")]
    pub received: Vec<KindAmount>,
    /// What the server has sent to nodes.
    #[serde(with = "list")]
    pub sent: Vec<KindAmount>,
    /// The page that was asked about.
    pub page: Option<PageState>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Which.
    pub client: ClientId,
    /// The name that it has proven.
    pub name: Option<String>,
    /// Where other nodes reach it.
    pub address: SocketAddr,
    /// For how long it has been joined, in nanoseconds.
    pub joined_ns: u64,
    /// After how long it is given up if it is not heard before, in nanoseconds. None if it has no lease.
    pub lease_left_ns: Option<u64>,
    /// Whether it has lost a grant, and is heard no more.
    pub is_revoked: bool,
    /// Whether it has left or was given up, and has its place and its copies only until its commits have ended.
    pub is_gone: bool,
    /// How many of its requests wait.
    pub waiting: u64,
}

/// What a node has of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCount {
    /// The node.
    pub client: ClientId,
    /// The partition's name; its number if it has none any more.
    pub partition: String,
    /// Pages that it has copies, and so read locks, of.
    pub copies: u64,
    /// Pages of which its transactions have the write locks.
    pub locks: u64,
}

/// A copy that is called back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// The partition's name.
    pub partition: String,
    /// The page's number.
    pub page: u32,
    /// The node that has it.
    pub holder: ClientId,
    /// Its transactions that use it, as far as it has said so.
    pub users: u64,
    /// The node that wants to write.
    pub writer: ClientId,
    /// How long ago it was called back, in nanoseconds.
    pub age_ns: u64,
}

/// Messages of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindAmount {
    /// The kind.
    pub kind: String,
    /// How many.
    pub amount: Amount,
}

/// What is known of one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageState {
    /// The partition's name.
    pub partition: String,
    /// The page's number.
    pub page: u32,
    /// The transaction that has the write lock.
    pub writer: Option<(ClientId, Transaction)>,
    /// The nodes that have copies.
    #[serde(with = "list")]
    pub holders: Vec<Holder>,
    /// The requests that wait, the first of them first.
    #[serde(with = "list")]
    pub waiting: Vec<Waiter>,
}

/// A node that has a copy of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Which.
    pub client: ClientId,
    /// Its transactions that use it, as far as it has said so.
    pub users: u64,
    /// How long ago it was called back, in nanoseconds, if it was.
    pub called_ns: Option<u64>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Whose.
    pub client: ClientId,
    /// For which of its transactions. None if the one that has asked commits by now, or has ended.
    pub transaction: Option<Transaction>,
    /// Whether it is for the write lock, rather than for a copy.
    pub is_write: bool,
}

/// Asks a server what it knows of its nodes, and of a page of a partition.
///
/// # Errors
/// The driver's; [`Error::Input`](engine::Error::Input) with [`FaultKind::Denied`] if the server does not tell this peer, or knows no such partition.
pub async fn ask(
    executor: &UserExecutor,
    transport: &dyn Transport,
    server: SocketAddr,
    page: Option<(String, u32)>,
) -> Result<Survey> {
    let asked = executor.within(ANSWER_NS, try_ask(executor.whole(), transport, server, page)).await;
    let silent = || Fault::new(FaultKind::TimedOut, format!("the server at {server} does not answer")).into();
    asked.unwrap_or_else(|| Err(silent()))
}

/// How long a server may take to answer, in nanoseconds.
const ANSWER_NS: u64 = 5 * base::time::SECOND_NS;

async fn try_ask(
    executor: &Executor,
    transport: &dyn Transport,
    server: SocketAddr,
    page: Option<(String, u32)>,
) -> Result<Survey> {
    let channel = transport.connect(server, None).await?;
    let mut frame = Vec::new();
    encode(&ToServer { drops: Vec::new(), body: Request::Survey { page } }, 0, &mut frame);
    channel.send(&frame).await?;
    let fault = |kind, words: String| Fault::new(kind, format!("the server at {server} {words}"));
    match Incoming::new(&channel, executor).next().await {
        Ok(Some(Answer::Surveyed(survey))) => Ok(*survey),
        Ok(Some(Answer::Refusal { reason })) => Err(fault(FaultKind::Denied, format!("refuses: {reason}")).into()),
        Ok(_) => Err(fault(FaultKind::Reset, "hangs up".to_owned()).into()),
        Err(error) => Err(fault(FaultKind::Reset, format!("is lost: {error}")).into()),
    }
}
