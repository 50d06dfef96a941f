//! Places at a server that are taken by nodes which are gone and whose commits are under way: they are waited for, and cost no other node its own.

use crate::cluster::sit;
use crate::counting::{client_settings, counters, settings};
use crate::machines::Machines;
use crate::named::Named;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PageId, PartitionId};
use engine::log::GroupCommit;
use engine::{Database, Result, Settings, log};
use entresol_node::channel::{Plain, Transport};
use entresol_node::page_client::{NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use entresol_node::server::{ALIKE_MAX, CLIENTS_MAX};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::{NetworkFaults, Partition};

const PAGE: PageId = PageId { partition: PartitionId(0), number: 3 };

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLISECOND_NS)
}

/// Serves a database whose commits take so long.
async fn serve(executor: Executor, transport: Rc<dyn Transport>, address: SocketAddr, commit_ns: u64) -> PageServer {
    let log = log::Settings { group_commit: GroupCommit::Delay { ns: commit_ns }, ..log::Settings::default() };
    let database = Database::create(&executor, Settings { log, ..settings() }).await.expect("the medium is empty");
    database.create_partition(counters()).await.expect("there is room");
    PageServer::serve(&database, transport, address, ServerSettings::default()).await.expect("the port is free")
}

async fn join(executor: Executor, server: SocketAddr, own: SocketAddr) -> Result<PageClient> {
    let transport = Rc::new(Plain(executor.for_users()));
    let client = PageClient::join(&executor, transport, server, client_settings(own, 12)).await?;
    client.attach(PAGE.partition);
    Ok(client)
}

/// Changes a page, and commits that. Whether it was not committed within this time, in nanoseconds.
async fn commit(executor: Executor, client: PageClient, patience_ns: u64) -> Result<bool> {
    let mut transaction = client.begin().await;
    transaction.write(PAGE, 32, &[1]).await?;
    Ok(executor.within(patience_ns, transaction.commit()).await.is_none())
}

/// All places are taken, most of them by nodes without names that do nothing. One is cut off while it commits, and comes again when its lease is
/// over and its commit is not.
#[test]
fn a_node_that_comes_again_and_still_commits_takes_no_other_ones_place() {
    const COMMIT_NS: u64 = 12 * SECOND_NS;
    let cut = Partition { machines: vec![2], from: at(64_100), until: at(67_200) };
    let machines = Machines::with(6, NetworkFaults { partitions: vec![cut], ..NetworkFaults::default() });
    let (server, crowd, node) = (machines.server(), machines.client(1), machines.client(2));
    let mut cluster = Cluster::new([server.clone(), crowd.clone(), node.clone()]);
    let (address, transport) = (machines.address(0), Rc::new(Plain(server.for_users())));
    let serving = server.spawn(serve(server.clone(), transport, address, COMMIT_NS));
    let page_server = cluster.run(serving).expect("it starts");
    assert!(cluster.now() < at(60_000), "{:?}", cluster.now());
    cluster.run_until(at(60_000)).expect("they go on");
    for _ in 1..CLIENTS_MAX {
        crowd.spawn(sit(crowd.clone(), (address, machines.address(1))));
        cluster.run_until(cluster.now().plus_ns(MILLISECOND_NS)).expect("they go on");
    }
    let joining = node.spawn(join(node.clone(), address, machines.address(2)));
    let client = cluster.run(joining).expect("they go on").expect("there is one place");
    cluster.run_until(at(64_000)).expect("they go on");
    node.spawn(commit(node.clone(), client.clone(), 60 * SECOND_NS));
    cluster.run_until(at(66_900)).expect("they go on");
    let protocol = || page_server.protocol();
    assert_eq!((protocol().clients().count(), protocol().counts().gone_committing), (CLIENTS_MAX - 1, 1));
    cluster.run_until(at(82_000)).expect("they go on");
    assert_eq!(protocol().clients().count(), CLIENTS_MAX, "it has its place again, and all others theirs");
    assert_eq!(protocol().counts().joined as usize, CLIENTS_MAX + 1);
    drop((page_server, client));
    [server, crowd, node].iter().for_each(Executor::stop);
}

/// As many nodes of one name as there may be, and one more when one of them leaves.
#[test]
fn a_node_waits_for_the_place_of_one_of_its_name_that_is_gone_and_still_commits() {
    for leaves in [true, false] {
        let machines = Machines::new(6);
        let (server, node) = (machines.server(), machines.client(1));
        let mut cluster = Cluster::new([server.clone(), node.clone()]);
        let (address, own) = (machines.address(0), machines.address(1));
        let transport = Rc::new(Named(Plain(server.for_users())));
        let serving = server.spawn(serve(server.clone(), transport, address, 2 * SECOND_NS));
        let page_server = cluster.run(serving).expect("it starts");
        // Leases of an earlier server would be over.
        cluster.run_until(cluster.now().plus_ns(3 * SECOND_NS)).expect("they go on");
        let mut join_one = |number: usize| {
            let own = SocketAddr::new(own.ip(), own.port() + number as u16);
            cluster.run(node.spawn(join(node.clone(), address, own))).expect("they go on")
        };
        let mut clients: Vec<PageClient> =
            (0..ALIKE_MAX).map(|number| join_one(number).expect("there is a place")).collect();
        let last = clients.pop().expect("they are many");
        let committing = node.spawn(commit(node.clone(), last.clone(), 100 * MILLISECOND_NS));
        assert_eq!(cluster.run(committing).expect("they go on"), Ok(true), "its commit is under way");
        let stays = (!leaves).then_some(last);
        let (executor, asked) = (node.clone(), cluster.now());
        let own = SocketAddr::new(own.ip(), own.port() + ALIKE_MAX as u16);
        let joining = node.spawn(join(executor, address, own));
        let joined = cluster.run(joining).expect("they go on");
        let waited_ns = cluster.now().since_ns(asked);
        if leaves {
            joined.expect("a place is free soon");
            assert!((SECOND_NS..3 * SECOND_NS).contains(&waited_ns), "{waited_ns} ns");
        } else {
            let refused = joined.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains("there is room for no more") && waited_ns < SECOND_NS, "{refused}");
        }
        drop((page_server, clients, stays));
        [server, node].iter().for_each(Executor::stop);
    }
}
