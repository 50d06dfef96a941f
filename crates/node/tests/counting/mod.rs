//! Transactions that add to counters on pages: what nodes do in these tests.

use crate::machines::Machines;
use base::time::SECOND_NS;
use base::{PageId, PartitionId, Random};
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec, Settings, buffer};
use entresol_node::algorithm::{self, Algorithm, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::message::{Copy, Leaving, Request, Secret, Transaction};
use entresol_node::page_client::{self, NodeInternals, PageClient};
use entresol_node::page_server::{self, PageServer};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;

pub const PAGES: u64 = 40;
pub const PAGE_SIZE: usize = 1024;

pub fn settings() -> Settings {
    let buffer = buffer::Settings { frames: 12, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() };
    Settings { buffer, ..Settings::default() }
}

/// What a client says that wants to read a page, with this copy leaving for it.
pub fn read_of(copy: Copy, leaving: Option<Leaving>) -> Request {
    let (secret, transaction) = (Secret(5), Transaction(0));
    Request::Read { copy, secret, transaction, writes: false, leaving, waited: None }
}

pub fn counters() -> PartitionSpec {
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 8 };
    PartitionSpec::new("counters", organization, Locking::None)
}

pub async fn serve(
    executor: Executor,
    address: SocketAddr,
    algorithm: &'static Algorithm,
) -> (PageServer, PartitionId) {
    serve_as(executor, address, algorithm, (true, counters())).await
}

/// The same with leases or without, of this partition.
async fn serve_as(
    executor: Executor,
    address: SocketAddr,
    algorithm: &'static Algorithm,
    (has_leases, spec): (bool, PartitionSpec),
) -> (PageServer, PartitionId) {
    let database = Database::create(&executor, settings()).await.expect("the medium is empty");
    let counters = database.create_partition(spec).await.expect("there is room");
    let transport = Rc::new(Plain(executor.for_users()));
    let settings =
        page_server::ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases, grants: None };
    (PageServer::serve(&database, transport, address, settings).await.expect("the port is free"), counters)
}

/// A server and two clients that have joined it.
pub struct Joined {
    pub cluster: Cluster,
    pub executors: [Executor; 3],
    pub server: PageServer,
    pub clients: [PageClient; 2],
    pub counters: PartitionId,
}

/// Has two clients with this many frames join a server, and lets the time pass in which leases of an earlier server would not be over:
/// until then no write lock is granted.
pub fn joined(
    (seed, algorithm): (u64, &str),
    frames: usize,
    suit: impl Fn(page_client::ClientSettings) -> page_client::ClientSettings,
) -> Joined {
    joined_as((seed, algorithm, true), frames, suit)
}

/// The same with leases or without.
pub fn joined_as(
    how: (u64, &str, bool),
    frames: usize,
    suit: impl Fn(page_client::ClientSettings) -> page_client::ClientSettings,
) -> Joined {
    joined_on(counters(), how, frames, suit)
}

/// The same, where this partition is served.
pub fn joined_on(
    spec: PartitionSpec,
    (seed, algorithm, has_leases): (u64, &str, bool),
    frames: usize,
    suit: impl Fn(page_client::ClientSettings) -> page_client::ClientSettings,
) -> Joined {
    let machines = Machines::new(seed);
    let executors = [machines.server(), machines.client(1), machines.client(2)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let (at, algorithm) = (machines.address(0), algorithm::named(algorithm).expect("it is one of them"));
    let serving = executors[0].spawn(serve_as(executors[0].clone(), at, algorithm, (has_leases, spec)));
    let (server, counters) = cluster.run(serving).expect("it starts");
    let clients = [1, 2].map(|number: u32| {
        let executor = executors[number as usize].clone();
        let settings = suit(client_settings(machines.address(number), frames));
        let joining = executor.clone().spawn(async move {
            let transport = Rc::new(Plain(executor.for_users()));
            PageClient::join(&executor, transport, at, settings).await
        });
        let client = cluster.run(joining).expect("they go on").expect("the server listens");
        client.attach(counters);
        client
    });
    cluster.run_until(cluster.now().plus_ns(3 * SECOND_NS)).expect("they go on");
    Joined { cluster, executors, server, clients, counters }
}

/// Adds one to some counters, transaction after transaction. Each is run again until it is committed. Returns how often it was not.
pub async fn count(client: PageClient, counters: PartitionId, seed: u64, transactions: u64) -> (u64, u64) {
    let mut random = Random::stream(seed, "transactions");
    let (mut added, mut victims) = (0, 0);
    for _ in 0..transactions {
        let pages: Vec<(u32, bool)> =
            (0..random.between(1, 5)).map(|_| (random.below(PAGES) as u32, random.chance(0.5))).collect();
        loop {
            match add(&client, counters, &pages).await {
                Ok(()) => break,
                Err(Error::Deadlock) => victims += 1,
                Err(error) => panic!("{error}"),
            }
        }
        added += pages.iter().filter(|(_, writes)| *writes).count() as u64;
    }
    (added, victims)
}

async fn add(client: &PageClient, counters: PartitionId, pages: &[(u32, bool)]) -> engine::Result<()> {
    let mut transaction = client.begin().await;
    for (number, writes) in pages {
        let page = PageId::new(counters, *number);
        let value = |bytes: &[u8]| u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        let (value, _) = transaction.read(page, value).await?;
        if *writes {
            transaction.write(page, 32, &(value + 1).to_le_bytes()).await?;
        }
    }
    transaction.commit().await
}

pub async fn sum(client: &PageClient, counters: PartitionId) -> engine::Result<u64> {
    let mut transaction = client.begin().await;
    let mut sum = 0;
    for number in 0..PAGES as u32 {
        let page = PageId::new(counters, number);
        let value = |bytes: &[u8]| u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        sum += transaction.read(page, value).await?.0;
    }
    transaction.commit().await?;
    Ok(sum)
}

/// A node of its own that has joined, with room for forty pages.
pub async fn join(executor: Executor, (server, own): (SocketAddr, SocketAddr), counters: PartitionId) -> PageClient {
    let transport = Rc::new(Plain(executor.for_users()));
    let client = PageClient::join(&executor, transport, server, client_settings(own, 40)).await;
    let client = client.expect("it is let in");
    client.attach(counters);
    client
}

pub fn client_settings(address: SocketAddr, frames: usize) -> page_client::ClientSettings {
    let buffer = buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() };
    page_client::ClientSettings {
        buffer,
        address,
        message_size_min: 0,
        transactions: 8,
        keeps_write_locks: false,
        commits_pages: true,
        lock_wait_ns_max: None,
        patience_ns: 60_000_000_000,
    }
}
