//! What a page server and its nodes do for messages, pages and commits, beside what the system takes for them: they run on one thread, and
//! bytes go from memory to memory. The server's directory of copies is asked by itself, too.

use super::cpu::{Calls, EngineRun, configuration, fill};
use super::in_process::InProcess;
use super::seldom::{Bench, counted, median, per};
use crate::Failure;
use base::time::MILLISECOND_NS;
use base::{PageId, PartitionId, Random};
use driver::Work;
use entresol::network::client_settings;
use entresol::{Database, PartitionSpec};
use executor::{Executor, WholeExecutor};
use node::algorithm::{ALGORITHMS, Frames};
use node::message::{Copy, Request, Secret, ToServer, Transaction};
use node::page_client::{PageClient, PageTransaction};
use node::page_server::{PageServer, ServerSettings};
use node::server::{Memory, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use workload::at_node::{self, AtNode};
use workload::{Length, NodePlan, Unwatched};

/// How the names of runs of nodes begin, and that of the directory.
pub const NODES: &str = "nodes on the server's thread";
pub const DIRECTORY: &str = "directory of copies";

/// What nodes do, each with one client.
#[derive(Clone, Copy)]
pub struct NodeCalls {
    nodes: u32,
    /// Records of the partition, and how many bytes of pages a node has memory for.
    records: u64,
    memory: u64,
    reads: u32,
    changes: u32,
}

const LARGE: u64 = 16 << 20;
const SMALL: u64 = 512 << 10;
/// Few records are in the nodes' memories until another node changes them; many are not.
const FEW: u64 = 2_000;
const MANY: u64 = 40_000;

/// Commits of one and of many changes, pages that are fetched to be read and to be changed, pages that are called back.
pub const NODE_CALLS: [NodeCalls; 5] = [
    NodeCalls { nodes: 1, records: FEW, memory: LARGE, reads: 0, changes: 1 },
    NodeCalls { nodes: 1, records: FEW, memory: LARGE, reads: 0, changes: 12 },
    NodeCalls { nodes: 1, records: MANY, memory: SMALL, reads: 4, changes: 0 },
    NodeCalls { nodes: 1, records: MANY, memory: SMALL, reads: 0, changes: 2 },
    NodeCalls { nodes: 2, records: FEW, memory: LARGE, reads: 1, changes: 1 },
];

impl NodeCalls {
    /// The run's name.
    pub fn name(self) -> String {
        let NodeCalls { nodes, records, memory, reads, changes } = self;
        let place = if memory == LARGE { "kept" } else { "fetched" };
        format!("{NODES}, {nodes} with {reads} reads and {changes} changes of {records} records, {place}")
    }
}

impl AtNode for Calls {
    async fn run_at_node(&self, tx: &mut PageTransaction, first: &u64) -> entresol::Result<()> {
        let mut keys = self.keys(*first);
        for _ in 0..self.reads {
            tx.get(self.partition, &keys()).await?;
        }
        for _ in 0..self.changes {
            tx.modify(self.partition, &keys(), |record| record[0] ^= 1).await?;
        }
        Ok(())
    }
}

fn address(number: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1 + number as u16))
}

/// How long it takes until all have heard that this is the end, in nanoseconds.
const FAREWELL_NS: u64 = 10 * MILLISECOND_NS;

impl Bench<'_> {
    /// A server and its nodes, for each of their transactions.
    pub fn nodes(&self, calls: NodeCalls) -> Result<EngineRun, Failure> {
        let name = format!("shared-{}", calls.records);
        let store = self.opening(&name, |_| ()).open()?;
        let partition = match store.database().partition("b-tree") {
            Ok(partition) => partition,
            Err(_) => fill(&store, PartitionSpec::b_tree("b-tree"), calls.records)?,
        };
        let workload = || Calls { partition, records: calls.records, reads: calls.reads, changes: calls.changes };
        let (described, span_ns) = (self.described, self.span_ns);
        let once = async |database: &Database, nodes: &[PageClient], span_ns: u64| {
            let executor = database.executor().whole();
            let counted = |executor: &Executor| executor.work_counts().map(|count| count as f64);
            let before = (counted(executor), executor.thread_use(), real_driver::process_cpu_ns());
            let started = nodes.iter().zip(1..).map(|(node, seed)| {
                let (node, workload) = (node.clone(), workload());
                let measure = Length::Time(span_ns);
                let plan = NodePlan { clients: 1, warm_up: Length::Transactions(0), measure, seed };
                executor.spawn(async move { at_node::run(&node, workload, &plan, &mut Unwatched).await })
            });
            let mut transactions = 0;
            for node in Vec::from_iter(started) {
                transactions += node.join().await?.transactions;
            }
            let cpu_ns = (real_driver::process_cpu_ns() - before.2) as f64;
            let after = counted(executor);
            let steps = std::array::from_fn(|work| after[work] - before.0[work]);
            let thread = executor.thread_use().since(before.1).counts().map(|times| times as f64);
            Ok::<_, entresol::Error>((steps, thread, cpu_ns, transactions.max(1) as f64))
        };
        let found = store.run(async |database| {
            let transport = Rc::new(InProcess::new(database.executor().whole()));
            let server = PageServer::serve(database, transport.clone(), address(0), ServerSettings::default()).await?;
            let mut nodes = Vec::new();
            for number in 1..=calls.nodes {
                let settings =
                    client_settings(&configuration(described, false, LARGE), Some(calls.memory), address(number));
                nodes.push(
                    PageClient::join(database.executor().whole(), transport.clone(), address(0), settings).await?,
                );
            }
            once(database, &nodes, span_ns / 4).await?;
            let mut found = Vec::new();
            for _ in 0..3 {
                found.push(once(database, &nodes, span_ns / 4).await?);
            }
            drop(nodes);
            server.close();
            database.executor().sleep_ns(FAREWELL_NS).await;
            Ok(found)
        })?;
        let runs = found.into_iter().map(|(steps, thread, cpu_ns, transactions)| {
            per(EngineRun { steps, thread, cpu_ns, ..EngineRun::unnamed(&store) }, transactions)
        });
        let runs: [EngineRun; 3] = Vec::from_iter(runs).try_into().map_err(|_| "there are three runs")?;
        let run = median(runs);
        store.close()?;
        Ok(run)
    }

    /// Reads of pages that a node asks the server's side of the protocol for, each in place of another one.
    pub fn directory(&self) -> Result<EngineRun, Failure> {
        let store = self.opening("small", |_| ()).open()?;
        let executor = store.executor().whole().clone();
        let mut asked = Asked::new();
        let mut ask = || {
            counted(&store, f64::from(LOOKS), || {
                for _ in 0..LOOKS {
                    executor.charge(Work::LockPair);
                    executor.charge(Work::CopyRegistration);
                    asked.read();
                }
                Ok(())
            })
        };
        ask()?;
        let run = median([ask()?, ask()?, ask()?]);
        store.close()?;
        Ok(run)
    }
}

const LOOKS: u32 = 100_000;
/// How many pages there are, and how many of them a node has: more than caches hold.
const PAGES: u32 = 200_000;
const COPIES: u64 = 50_000;

/// The server's side of the protocol, whose memory has all pages, and what a node has asked it for.
struct Asked {
    server: Server,
    client: node::message::ClientId,
    random: Random,
    copies: std::collections::VecDeque<Copy>,
    next: u64,
    held: Vec<bool>,
}

struct AllPages;

impl Memory for AllPages {
    fn has(&self, _: PageId) -> bool {
        true
    }

    fn has_left_as(&self, _: PageId, _: &[u8]) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        8192
    }
}

impl Asked {
    fn new() -> Asked {
        let mut server = Server::new(&ALGORITHMS[0], Frames::lru(PAGES as usize), 1);
        let joined = server.join(address(1), (None, Secret(1)), &AllPages, &mut Vec::new());
        let (client, random) = (joined.session.client, Random::stream(1, "directory"));
        Asked { server, client, random, copies: Default::default(), next: 0, held: vec![false; PAGES as usize] }
    }

    /// One message: a page that the node does not have, and the copy that it has had longest and drops.
    fn read(&mut self) {
        let page = loop {
            let page = self.random.below(u64::from(PAGES)) as usize;
            if !std::mem::replace(&mut self.held[page], true) {
                break page as u32;
            }
        };
        let copy = Copy { page: PageId::new(PartitionId(1), page), number: self.next };
        self.next += 1;
        let mut drops = Vec::new();
        if self.copies.len() as u64 == COPIES {
            let dropped = self.copies.pop_front().expect("there are some");
            self.held[dropped.page.number as usize] = false;
            drops.push(dropped);
        }
        self.copies.push_back(copy);
        let (secret, transaction) = (Secret(u128::from(self.next)), Transaction(1));
        let body = Request::Read { copy, secret, transaction, writes: false, leaving: None, waited: None };
        let heard = self.server.receive(self.client, ToServer { drops, body }, &AllPages, &mut Vec::new());
        heard.expect("an honest node asks so");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_has_what_was_asked_for_and_not_dropped() {
        let mut asked = Asked::new();
        (0..1_000).for_each(|_| asked.read());
        assert_eq!(asked.server.registered(), 1_000);
        assert_eq!(asked.server.last_misbehaviour(), None);
    }
}
