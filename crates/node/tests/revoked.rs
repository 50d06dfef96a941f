//! A node that loses a grant while it is out of reach: its lease runs, and what it has copies of stays as it is meanwhile.

use crate::counting::{client_settings, settings};
use crate::machines::Machines;
use crate::named::Named;
use base::time::MILLISECOND_NS;
use base::{Instant, PageId, PartitionId};
use engine::canary::{self, Canary};
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::grants::Grants;
use entresol_node::page_client::{NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::{NetworkFaults, Partition};

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";

/// Two nodes may write `menu`; the first may write `other`, too, or may not any more.
fn grants(machines: &Machines, may_still: bool) -> Grants {
    let name = |number| machines.address(number).ip();
    let other = if may_still { r#", "other""# } else { "" };
    let table =
        format!(r#"{{"node": {{"{}": {{"write": ["menu"{other}]}}, "{}": {{"write": ["menu"]}}}}}}"#, name(1), name(2));
    serde_json::from_str(&table).expect("a table")
}

async fn serve(database: Database, address: SocketAddr, grants: Grants) -> PageServer {
    let algorithm = algorithm::named("cbl").expect("it is one of them");
    let settings =
        ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants: Some(grants) };
    let transport = Rc::new(Named(Plain(database.executor().clone())));
    PageServer::serve(&database, transport, address, settings).await.expect("the port is free")
}

async fn create(executor: Executor) -> Database {
    let database = Database::create(&executor, settings()).await.expect("the medium is empty");
    for name in ["menu", "other"] {
        let organization = Organization::Direct { objects: 8, blocking_factor: 1, record_size: 8 };
        let spec = PartitionSpec::new(name, organization, Locking::None);
        database.create_partition(spec).await.expect("there is room");
    }
    database
}

async fn join(executor: Executor, server: SocketAddr, own: SocketAddr) -> PageClient {
    let transport = Rc::new(Plain(executor.for_users()));
    let client = PageClient::join(&executor, transport, server, client_settings(own, 12)).await;
    let client = client.expect("it is let in");
    client.attach(PAGE.partition);
    client
}

const PAGE: PageId = PageId { partition: PartitionId(0), number: 3 };

async fn read(client: PageClient) -> Vec<u8> {
    loop {
        let mut transaction = client.begin().await;
        if let Ok((bytes, _)) = transaction.read(PAGE, |bytes| bytes[32..32 + OLD.len()].to_vec()).await
            && transaction.commit().await.is_ok()
        {
            return bytes;
        }
    }
}

async fn write(client: PageClient, bytes: &'static [u8]) {
    loop {
        let mut transaction = client.begin().await;
        if transaction.write(PAGE, 32, bytes).await.is_ok() && transaction.commit().await.is_ok() {
            return;
        }
    }
}

/// The first node is out of reach from 3 s on; at 3.05 s it loses a grant, but not that for the page of which it has a copy; from
/// 3.1 s on the other one wants to write that page.
struct Story {
    machines: Machines,
    cluster: Cluster,
    executors: Vec<Executor>,
    clients: [PageClient; 2],
    writing: executor::JoinHandle<()>,
    _server: PageServer,
}

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLISECOND_NS)
}

fn story(back_ms: u64) -> Story {
    let cut = Partition { machines: vec![1], from: at(3000), until: at(back_ms) };
    let faults = NetworkFaults { partitions: vec![cut], ..NetworkFaults::default() };
    let machines = Machines::with(5, faults);
    let executors = vec![machines.server(), machines.client(1), machines.client(2)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let creating = executors[0].spawn(create(executors[0].clone()));
    let database = cluster.run(creating).expect("no machine stops");
    let serving = executors[0].spawn(serve(database, machines.address(0), grants(&machines, true)));
    let server = cluster.run(serving).expect("no machine stops");
    let mut clients = Vec::new();
    for number in [1, 2] {
        let executor = &executors[number as usize];
        let joining = executor.spawn(join(executor.clone(), machines.address(0), machines.address(number)));
        clients.push(cluster.run(joining).expect("no machine stops"));
    }
    let clients = [clients.remove(0), clients.remove(0)];
    cluster.run(executors[2].spawn(write(clients[1].clone(), OLD))).expect("no machine stops");
    assert_eq!(cluster.run(executors[1].spawn(read(clients[0].clone()))).expect("no machine stops"), OLD);
    cluster.run_until(at(3050)).expect("no machine stops");
    server.grant(grants(&machines, false)).expect("both partitions are there");
    cluster.run_until(at(3100)).expect("no machine stops");
    let writing = executors[2].spawn(write(clients[1].clone(), NEW));
    Story { machines, cluster, executors, clients, writing, _server: server }
}

/// What the first node reads once the write is acknowledged.
fn read_behind_the_write() -> Vec<u8> {
    let mut story = story(9000);
    story.cluster.run(story.writing).expect("no machine stops");
    assert!(story.cluster.now() < at(6000), "it waits for the lease alone");
    let reading = story.executors[1].spawn(read(story.clients[0].clone()));
    story.cluster.run(reading).expect("no machine stops")
}

/// The same if the server has lost its power, and is started again before the first node can be reached.
fn read_behind_a_restart() -> Vec<u8> {
    let mut story = story(3600);
    story.cluster.run_until(at(3300)).expect("no machine stops");
    story.executors[0].stop();
    story.machines.cut_power(&mut base::Random::stream(5, "cut"));
    let again = story.machines.server();
    story.cluster.replace(0, again.clone());
    let (address, grants) = (story.machines.address(0), grants(&story.machines, false));
    let opening = again.clone();
    let serving = again.spawn(async move {
        let database = Database::open(&opening, settings(), "menu").await.expect("it is recovered");
        serve(database, address, grants).await
    });
    let server = story.cluster.run(serving).expect("no machine stops");
    story.cluster.run(story.writing).expect("no machine stops");
    story.cluster.run_until(at(9000)).expect("no machine stops");
    let reading = story.executors[1].spawn(read(story.clients[0].clone()));
    let found = story.cluster.run(reading).expect("no machine stops");
    server.protocol().check().expect("the state is right");
    found
}

#[test]
fn a_node_out_of_reach_reads_nothing_old_once_a_write_is_acknowledged() {
    assert_eq!(read_behind_the_write(), NEW);
}

#[test]
fn a_copy_from_before_a_write_is_not_believed_by_a_server_that_was_started_again() {
    assert_eq!(read_behind_a_restart(), NEW);
}

#[test]
fn a_node_that_is_given_up_at_once_reads_what_is_old() {
    canary::plant(Some(Canary::HastyRevocation));
    let found = [read_behind_the_write(), read_behind_a_restart()];
    canary::plant(None);
    assert_eq!(found, [OLD, OLD]);
}

/// As many nodes of one name as may join lose a grant at once: their sessions stay until their leases are over, and so they have to wait.
#[test]
fn all_nodes_of_a_name_come_again_that_lose_a_grant() {
    const CREW: u16 = 20;
    let machines = Machines::with(5, NetworkFaults::default());
    let (server, crew) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), crew.clone()]);
    let (at, own) = (machines.address(0), machines.address(1));
    let database = cluster.run(server.spawn(create(server.clone()))).expect("no machine stops");
    let serving = server.spawn(serve(database, at, grants(&machines, true)));
    let page_server = cluster.run(serving).expect("no machine stops");
    let other = PageId { partition: PartitionId(1), ..PAGE };
    let mut clients = Vec::new();
    for number in 1..=CREW {
        let own = SocketAddr::new(own.ip(), own.port() + number);
        let client = cluster.run(crew.spawn(join(crew.clone(), at, own))).expect("no machine stops");
        client.attach(other.partition);
        let reading = client.clone();
        let read = crew.spawn(async move {
            let mut transaction = reading.begin().await;
            transaction.read(other, |_| ()).await?;
            transaction.commit().await
        });
        cluster.run(read).expect("no machine stops").expect("it may");
        clients.push(client);
    }
    page_server.grant(grants(&machines, false)).expect("both partitions are there");
    cluster.run_until(cluster.now().plus_ns(5_000 * MILLISECOND_NS)).expect("no machine stops");
    for client in &clients {
        assert_eq!(client.failure(), None);
        cluster.run(crew.spawn(read(client.clone()))).expect("no machine stops");
    }
    assert_eq!(page_server.protocol().clients().count(), usize::from(CREW));
    [server, crew].iter().for_each(Executor::stop);
}
