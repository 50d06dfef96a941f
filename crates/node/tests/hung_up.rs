//! Newcomers that hang up while they wait for a place: they do not join, and no other node loses its own for them.

use crate::cluster::sit;
use crate::counting::{PAGE_SIZE, client_settings, counters, settings};
use crate::machines::Machines;
use base::PageId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::log::GroupCommit;
use engine::{Database, Error, Settings, log};
use entresol_node::channel::Plain;
use entresol_node::message::{self, Request, ToServer};
use entresol_node::page_client::PageClient;
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use entresol_node::server::CLIENTS_MAX;
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;

/// Serves a database whose commits take so long, in nanoseconds.
async fn serve(executor: Executor, address: SocketAddr, commit_ns: u64) -> PageServer {
    let log = log::Settings { group_commit: GroupCommit::Delay { ns: commit_ns }, ..log::Settings::default() };
    let database = Database::create(&executor, Settings { log, ..settings() }).await.expect("the medium is empty");
    database.create_partition(counters()).await.expect("there is room");
    let transport = Rc::new(Plain(executor.for_users()));
    PageServer::serve(&database, transport, address, ServerSettings::default()).await.expect("the port is free")
}

/// Joins, and leaves while it commits.
async fn leave(executor: Executor, (server, own): (SocketAddr, SocketAddr)) -> engine::Result<()> {
    let transport = Rc::new(Plain(executor.for_users()));
    let client = PageClient::join(&executor, transport, server, client_settings(own, 12)).await?;
    let counters = client.partition("counters").await?.id();
    let mut transaction = client.begin().await;
    transaction.write(PageId::new(counters, 3), 32, &[1]).await?;
    let committed = executor.within(100 * MILLISECOND_NS, transaction.commit()).await;
    assert!(committed.is_none(), "it takes longer");
    Ok::<(), Error>(())
}

/// Says who it is, and hangs up after so long if it is not answered.
async fn hang_up(executor: Executor, (server, own): (SocketAddr, SocketAddr), patience_ns: u64) {
    let connection = executor.connect(server).await.expect("it listens");
    let mut frame = Vec::new();
    let hello = Request::Hello { page_size: PAGE_SIZE as u32, address: own, former: None };
    message::encode(&ToServer { drops: Vec::new(), body: hello }, 0, &mut frame);
    connection.send(&frame).await.expect("it listens");
    executor.sleep_ns(patience_ns).await;
}

/// All places are taken by nodes without names, and the one that is to be free is that of a node that has left and still commits.
#[test]
fn who_hangs_up_before_it_has_a_place_neither_joins_nor_costs_another_node_its_own() {
    for (commit_ns, patience_ns) in [(12 * SECOND_NS, 5 * SECOND_NS), (3 * SECOND_NS, 2 * SECOND_NS)] {
        let machines = Machines::new(6);
        let (server, crowd, node) = (machines.server(), machines.client(1), machines.client(2));
        let mut cluster = Cluster::new([server.clone(), crowd.clone(), node.clone()]);
        let address = machines.address(0);
        let page_server = cluster.run(server.spawn(serve(server.clone(), address, commit_ns))).expect("it starts");
        cluster.run_until(cluster.now().plus_ns(3 * SECOND_NS)).expect("they go on");
        for _ in 1..CLIENTS_MAX {
            crowd.spawn(sit(crowd.clone(), (address, machines.address(1))));
            cluster.run_until(cluster.now().plus_ns(MILLISECOND_NS)).expect("they go on");
        }
        // From now on any of them may lose its place.
        cluster.run_until(cluster.now().plus_ns(11 * SECOND_NS)).expect("they go on");
        let leaving = node.spawn(leave(node.clone(), (address, machines.address(2))));
        cluster.run(leaving).expect("they go on").expect("there is a place");
        cluster.run_until(cluster.now().plus_ns(200 * MILLISECOND_NS)).expect("they go on");
        let protocol = || page_server.protocol();
        assert_eq!((protocol().clients().count(), protocol().counts().joined as usize), (CLIENTS_MAX - 1, CLIENTS_MAX));
        node.spawn(hang_up(node.clone(), (address, machines.address(3)), patience_ns));
        cluster.run_until(cluster.now().plus_ns(15 * SECOND_NS)).expect("they go on");
        assert_eq!(protocol().counts().joined as usize, CLIENTS_MAX, "{commit_ns}: it does not join");
        assert_eq!(protocol().clients().count(), CLIENTS_MAX - 1, "{commit_ns}: all others stay");
        protocol().check().expect("the directory is right");
        drop(page_server);
        [server, crowd, node].iter().for_each(Executor::stop);
    }
}

/// All places are taken by nodes without names that do nothing, and no other one leaves.
#[test]
fn who_hangs_up_soon_costs_no_idle_node_its_place() {
    let machines = Machines::new(7);
    let (server, crowd, node) = (machines.server(), machines.client(1), machines.client(2));
    let mut cluster = Cluster::new([server.clone(), crowd.clone(), node.clone()]);
    let address = machines.address(0);
    let page_server = cluster.run(server.spawn(serve(server.clone(), address, 0))).expect("it starts");
    for _ in 0..CLIENTS_MAX {
        crowd.spawn(sit(crowd.clone(), (address, machines.address(1))));
        cluster.run_until(cluster.now().plus_ns(MILLISECOND_NS)).expect("they go on");
    }
    cluster.run_until(cluster.now().plus_ns(12 * SECOND_NS)).expect("they go on");
    for _ in 0..3 {
        node.spawn(hang_up(node.clone(), (address, machines.address(2)), SECOND_NS));
        cluster.run_until(cluster.now().plus_ns(5 * SECOND_NS)).expect("they go on");
    }
    let protocol = || page_server.protocol();
    assert_eq!((protocol().clients().count(), protocol().counts().joined as usize), (CLIENTS_MAX, CLIENTS_MAX));
    // One that stays gets a place.
    node.spawn(hang_up(node.clone(), (address, machines.address(2)), 5 * SECOND_NS));
    cluster.run_until(cluster.now().plus_ns(5 * SECOND_NS)).expect("they go on");
    assert_eq!(protocol().counts().joined as usize, CLIENTS_MAX + 1);
    protocol().check().expect("the directory is right");
    drop(page_server);
    [server, crowd, node].iter().for_each(Executor::stop);
}
