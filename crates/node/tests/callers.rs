//! Where nodes listen: what peers may cost there, and that it ends with them.

use crate::counting::{Joined, client_settings, count, joined, serve, settings, sum};
use crate::machines::Machines;
use crate::named::Named;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::{Database, Error};
use entresol_node::algorithm;
use entresol_node::channel::Plain;
use entresol_node::message::{self, Answer, HELLO_MAX, Request, ToServer};
use entresol_node::page_client::{CALLERS_MAX, NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
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
            let transport = Rc::new(Plain(executor.for_users()));
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

/// Serves the counters to one node, which may do this with them.
async fn serve_granting(executor: Executor, at: SocketAddr, node: SocketAddr, right: &str) -> PageServer {
    let database = Database::create(&executor, settings()).await.expect("the medium is empty");
    database.create_partition(crate::counting::counters()).await.expect("there is room");
    let table = format!(r#"{{"node": {{"{}": {{"{right}": ["counters"]}}}}}}"#, node.ip());
    let settings = ServerSettings {
        algorithm: algorithm::named("cbl").expect("it is one of them"),
        chances: algorithm::CHANCES,
        message_size_min: 0,
        has_leases: true,
        grants: Some(serde_json::from_str(&table).expect("a table")),
    };
    PageServer::serve(&database, Rc::new(Named(Plain(executor.for_users()))), at, settings)
        .await
        .expect("the port is free")
}

/// Joins, begins a message longer than any first one, and says whether the rest of it is waited for.
async fn say_much(executor: Executor, at: SocketAddr, own: SocketAddr) -> bool {
    let connection = executor.connect(at).await.expect("it listens");
    let hello = Request::Hello { page_size: crate::counting::PAGE_SIZE as u32, address: own, former: None };
    let (mut frame, mut heard) = (Vec::new(), Vec::new());
    message::encode(&ToServer { drops: Vec::new(), body: hello }, 0, &mut frame);
    connection.send(&frame).await.expect("it is taken");
    connection.receive(&mut heard).await.expect("it is answered");
    assert!(matches!(message::decode(&heard), Ok(Answer::Joined { .. })));
    let mut head = (HELLO_MAX as u32 + 1).to_le_bytes().to_vec();
    head.push(message::VERSION);
    connection.send(&head).await.expect("it is taken");
    executor.within(SECOND_NS, connection.receive(&mut heard)).await.is_none()
}

#[test]
fn only_who_may_write_is_heard_at_length() {
    for (right, is_heard) in [("read", false), ("write", true)] {
        let machines = Machines::new(6);
        let (server, node) = (machines.server(), machines.client(1));
        let mut cluster = Cluster::new([server.clone(), node.clone()]);
        let (at, own) = (machines.address(0), machines.address(1));
        let serving = server.spawn(serve_granting(server.clone(), at, own, right));
        let _server = cluster.run(serving).expect("it starts");
        let saying = node.spawn(say_much(node.clone(), at, own));
        assert_eq!(cluster.run(saying).expect("they go on"), is_heard, "{right}");
        [server, node].iter().for_each(Executor::stop);
    }
}

#[test]
fn who_says_who_it_is_to_a_server_that_was_closed_does_not_join() {
    let machines = Machines::new(6);
    let (server, node) = (machines.server(), machines.client(1));
    let mut cluster = Cluster::new([server.clone(), node.clone()]);
    let (at, own) = (machines.address(0), machines.address(1));
    let algorithm = algorithm::named("cbl").expect("it is one of them");
    let serving = server.spawn(serve(server.clone(), at, algorithm));
    let (page_server, _) = cluster.run(serving).expect("it starts");
    let executor = node.clone();
    let saying = node.spawn(async move {
        let connection = executor.connect(at).await.expect("it listens");
        executor.sleep_ns(SECOND_NS).await;
        let hello = Request::Hello { page_size: crate::counting::PAGE_SIZE as u32, address: own, former: None };
        let (mut frame, mut heard) = (Vec::new(), Vec::new());
        message::encode(&ToServer { drops: Vec::new(), body: hello }, 0, &mut frame);
        let _taken = connection.send(&frame).await;
        let _end = executor.within(SECOND_NS, connection.receive(&mut heard)).await;
        heard.len()
    });
    cluster.run_until(cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
    page_server.close();
    assert_eq!(cluster.run(saying).expect("they go on"), 0);
    assert_eq!((page_server.counts().joined, page_server.strangers()), (0, 0));
    [server, node].iter().for_each(Executor::stop);
}
