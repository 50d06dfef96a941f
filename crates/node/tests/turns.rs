//! Many short messages that come together: others have their turn between them.

use crate::counting::{PAGE_SIZE, read_of, serve};
use crate::machines::Machines;
use base::PageId;
use entresol_node::algorithm::ALGORITHMS;
use entresol_node::message::{self, Copy, Request, SnapshotRequest, ToServer};
use entresol_node::page_server::{PageServer, ServerInternals};
use executor::{Cluster, Executor};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

/// All that is said of them is in one packet.
const SNAPSHOTS: u64 = 500;

fn put(body: Request, into: &mut Vec<u8>) {
    message::encode(&ToServer { drops: Vec::new(), body }, 0, into);
}

/// Says everything in one piece.
async fn say_all(executor: Executor, (server, own): (SocketAddr, SocketAddr), page: PageId) {
    let connection = executor.connect(server).await.expect("it listens");
    let (mut hello, mut heard) = (Vec::new(), Vec::new());
    put(Request::Hello { page_size: PAGE_SIZE as u32, address: own, former: None }, &mut hello);
    connection.send(&hello).await.expect("it listens");
    connection.receive(&mut heard).await.expect("it answers");
    let mut all = Vec::new();
    // The page is in the server's memory by the second time.
    for number in 0..2 {
        put(read_of(Copy { page: PageId { number, ..page }, number: u64::from(number) }, None), &mut all);
        if number == 0 {
            connection.send(&std::mem::take(&mut all)).await.expect("it listens");
            executor.sleep_ns(1_000_000_000).await;
        }
    }
    for number in 0..SNAPSHOTS {
        put(Request::Snapshot { number, request: SnapshotRequest::Begin }, &mut all);
        put(Request::Snapshot { number, request: SnapshotRequest::End }, &mut all);
    }
    connection.send(&all).await.expect("it listens");
    executor.sleep_ns(1_000_000_000).await;
}

/// Counts the most messages that are heard before another task has its turn.
async fn watch(executor: Executor, server: PageServer, most: Rc<Cell<u64>>) {
    let (mut last, mut idle) = (server.counts().snapshots, 0);
    while last < SNAPSHOTS {
        executor.yield_now().await;
        let now = server.counts().snapshots;
        most.set(most.get().max(now - last));
        idle = if now == last { idle + 1 } else { 0 };
        if idle > 100 {
            // The rest has not come yet.
            executor.sleep_ns(1_000).await;
        }
        last = now;
    }
}

#[test]
fn other_tasks_of_a_server_have_their_turn_between_messages_that_come_together() {
    let machines = Machines::new(8);
    let executors = [machines.server(), machines.client(1)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let serving = executors[0].spawn(serve(executors[0].clone(), machines.address(0), &ALGORITHMS[0]));
    let (server, counters) = cluster.run(serving).expect("it starts");
    let most = Rc::<Cell<u64>>::default();
    let (executor, watched, shared) = (executors[0].clone(), server.clone(), Rc::clone(&most));
    server.observe(Box::new(move |_, page, _| {
        if page.number == 1 {
            executor.spawn(watch(executor.clone(), watched.clone(), Rc::clone(&shared)));
        }
    }));
    let addresses = (machines.address(0), machines.address(1));
    let said = executors[1].spawn(say_all(executors[1].clone(), addresses, PageId::new(counters, 0)));
    cluster.run(said).expect("they go on");
    assert_eq!(server.counts().snapshots, SNAPSHOTS);
    assert!((1..=SNAPSHOTS / 2).contains(&most.get()), "{}", most.get());
    server.observe(Box::new(|_, _, _| {}));
    drop(server);
    executors.iter().for_each(Executor::stop);
}
