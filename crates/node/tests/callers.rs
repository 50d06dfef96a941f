//! Where nodes listen: what peers may cost there, and that it ends with them.

use crate::counting::{Joined, client_settings, count, joined, serve, sum};
use crate::machines::Machines;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::Error;
use entresol_node::algorithm;
use entresol_node::channel::Plain;
use entresol_node::page_client::{CALLERS_MAX, PageClient};
use entresol_node::page_server::PageServer;
use executor::{Cluster, Executor};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Connects this often and says nothing. Counts the connections that have ended.
async fn crowd(executor: Executor, at: SocketAddr, connections: usize, ended: Rc<Cell<usize>>) {
    for _ in 0..connections {
        let connection = executor.connect(at).await.expect("it listens");
        let ended = Rc::clone(&ended);
        executor.spawn(async move {
            let _end = connection.receive(&mut Vec::new()).await;
            ended.set(ended.get() + 1);
        });
    }
}

#[test]
fn strangers_at_a_node_are_few_and_for_a_short_time() {
    const CROWD: usize = 3 * CALLERS_MAX;
    let Joined { mut cluster, executors, server, clients, counters } = joined((3, "fwd-hs"), 12, |settings| settings);
    let (mut added, ended) = (0, Rc::new(Cell::new(0)));
    for round in 0..2 {
        let counting = [0, 1]
            .map(|node| executors[node + 1].spawn(count(clients[node].clone(), counters, 2 * round + node as u64, 40)));
        added += counting.map(|counting| cluster.run(counting).expect("they go on").0).iter().sum::<u64>();
        assert!(server.counts().forwards > 0);
        if round == 0 {
            assert_eq!(clients[0].callers(), (0, 1), "the other client's connection stays");
            let at = Machines::new(3).address(1);
            executors[0].spawn(crowd(executors[0].clone(), at, CROWD, Rc::clone(&ended)));
            cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
            assert_eq!((clients[0].callers(), ended.get()), ((CALLERS_MAX, 1), CROWD - CALLERS_MAX));
            cluster.run_until(cluster.now().plus_ns(10 * SECOND_NS)).expect("they go on");
            assert_eq!((clients[0].callers(), ended.get()), ((0, 1), CROWD));
        }
    }
    let reading = clients[0].clone();
    let read = executors[1].spawn(async move { sum(&reading, counters).await });
    assert_eq!(cluster.run(read).expect("they go on"), Ok(added));
    executors.iter().for_each(Executor::stop);
}

#[test]
fn a_node_that_is_gone_leaves_its_address_to_the_next_one() {
    let machines = Machines::new(2);
    let (server, node) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), node.clone()]);
    let (at, own) = (machines.address(0), machines.address(1));
    let serving = server.spawn(serve(server.clone(), at, algorithm::named("cbl").expect("it is one of them")));
    let _server = cluster.run(serving).expect("it starts");
    let executor = node.clone();
    let joining = node.spawn(async move {
        for _ in 0..3 {
            let transport = Rc::new(Plain(executor.clone()));
            drop(PageClient::join(&executor, transport, at, client_settings(own, 12)).await?);
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        Ok::<_, Error>(())
    });
    assert_eq!(cluster.run(joining).expect("they go on"), Ok(()));
    [server, node].iter().for_each(Executor::stop);
}

#[test]
fn a_server_that_is_closed_or_gone_leaves_its_address() {
    for is_closed in [true, false] {
        let machines = Machines::new(2);
        let (server, at) = (machines.server(), machines.address(0));
        let executor = server.clone();
        let listening = server.run(async {
            let algorithm = algorithm::named("cbl").expect("it is one of them");
            let (page_server, _) = serve(executor.clone(), at, algorithm).await;
            let page_server = Some(page_server).filter(|_| is_closed);
            page_server.iter().for_each(PageServer::close);
            executor.sleep_ns(MILLISECOND_NS).await;
            executor.listen(at).await.map(drop)
        });
        assert_eq!(listening, Ok(Ok(())), "closed: {is_closed}");
        server.stop();
    }
}
