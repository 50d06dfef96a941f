//! A server and its clients on this machine: a thread for each, files for the server, TCP over the loopback between them.

#![expect(clippy::disallowed_methods, reason = "each node has a thread, as a program has")]

use crate::counting::{PAGE_SIZE, client_settings, count, serve, settings, sum};
use base::time::MILLISECOND_NS;
use driver::FaultKind;
use engine::{Database, Error};
use entresol_node::algorithm;
use entresol_node::channel::Plain;
use entresol_node::message::{self, Answer, Request, ToServer};
use entresol_node::page_client::{NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Executor, Order};
use real_driver::{Options, RealDriver};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

const CLIENTS: u64 = 3;

fn machine(directory: &Path) -> Executor {
    let driver = RealDriver::open(Options::new("disk", directory)).expect("the directory can be used");
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// One client's work: it counts, waits until all others have counted, and returns what it has added and what it then reads in all.
fn run_client(number: u64, server: SocketAddr, done: &std::sync::Barrier) -> (u64, u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let executor = machine(directory.path());
    let counters = base::PartitionId(0);
    let joined = executor.run(async {
        let transport = Rc::new(Plain(executor.for_users()));
        PageClient::join(&executor, transport, server, client_settings(loopback(), 12)).await
    });
    let client = joined.expect("the machine goes on").expect("the server listens");
    client.attach(counters);
    let (added, _) = executor.run(count(client.clone(), counters, 7 * number, 100)).expect("the machine goes on");
    // While this thread waits it answers nothing that others ask of it, so it goes on until all have counted.
    let (sender, all) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            done.wait();
            sender.send(()).expect("it is waited for");
        });
        while all.try_recv().is_err() {
            executor.run(executor.sleep_ns(MILLISECOND_NS)).expect("the machine goes on");
        }
    });
    let read = executor.run(sum(&client, counters)).expect("the machine goes on").expect("all can be read");
    // Others may still ask for pages that are here.
    executor.run(executor.sleep_ns(300 * MILLISECOND_NS)).expect("the machine goes on");
    executor.stop();
    (added, read)
}

#[test]
fn nodes_on_this_machine_count_as_simulated_ones_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tell, address) = mpsc::channel();
    let path = directory.path().to_owned();
    let serving = thread::spawn(move || {
        let executor = machine(&path);
        let algorithm = algorithm::named("fwd-hs").expect("it is one of them");
        let started = executor.run(serve(executor.clone(), loopback(), algorithm));
        let (server, counters) = started.expect("the machine goes on");
        assert_eq!(counters, base::PartitionId(0));
        tell.send(server.address()).expect("it is waited for");
        executor
            .run(async {
                while server.protocol().clients().count() < CLIENTS as usize {
                    executor.sleep_ns(MILLISECOND_NS).await;
                }
                while server.protocol().clients().count() > 0 {
                    executor.sleep_ns(MILLISECOND_NS).await;
                }
            })
            .expect("the machine goes on");
        let forwards = server.counts().forwards;
        executor.stop();
        forwards
    });
    let server = address.recv().expect("the server starts");
    let done = std::sync::Barrier::new(CLIENTS as usize);
    let found: Vec<(u64, u64)> = thread::scope(|scope| {
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|number| {
                scope.spawn({
                    let done = &done;
                    move || run_client(number, server, done)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("it ends well")).collect()
    });
    let expected: u64 = found.iter().map(|(added, _)| added).sum();
    assert!(found.iter().all(|(_, read)| *read == expected), "{found:?}");
    assert!(serving.join().expect("it ends well") > 0, "pages went from client to client");
    let executor = machine(directory.path());
    let reopened = executor.run(Database::open(&executor, settings(), "counters")).expect("the machine goes on");
    reopened.expect("what was committed is there");
    executor.stop();
}

fn unprotected<T>(answer: engine::Result<T>) {
    match answer.map(drop).expect_err("it is off loopback") {
        Error::Input(fault) if fault.kind == FaultKind::Denied => {
            assert!(fault.message.contains("TLS and mutual authentication"), "{fault}");
        }
        error => panic!("{error}"),
    }
}

#[test]
fn off_loopback_nothing_is_served_or_sought_without_protection() {
    let directory = tempfile::tempdir().expect("a directory");
    let executor = machine(directory.path());
    let plain = || Rc::new(Plain(executor.for_users()));
    let done = executor.run(async {
        let database = Database::create(&executor, settings()).await.expect("the directory is empty");
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7000"] {
            let address: SocketAddr = address.parse().expect("an address");
            let settings = ServerSettings {
                algorithm: algorithm::named("fwd").expect("it is one of them"),
                chances: algorithm::CHANCES,
                message_size_min: 0,
                has_leases: true,
                grants: None,
            };
            unprotected(PageServer::serve(&database, plain(), address, settings).await);
            unprotected(PageClient::join(&executor, plain(), address, client_settings(loopback(), 12)).await);
        }
    });
    done.expect("the machine goes on");
    executor.stop();
}

#[test]
fn a_local_process_has_no_pages_sent_elsewhere() {
    let directory = tempfile::tempdir().expect("a directory");
    let executor = machine(directory.path());
    let refused = executor.run(async {
        let algorithm = algorithm::named("fwd").expect("it is one of them");
        let (server, _) = serve(executor.clone(), loopback(), algorithm).await;
        let connection = executor.connect(server.address()).await.expect("it listens");
        let address = "192.0.2.1:7000".parse().expect("an address");
        let hello = Request::Hello { page_size: PAGE_SIZE as u32, address, former: None };
        let (mut frame, mut heard) = (Vec::new(), Vec::new());
        message::encode(&ToServer { drops: Vec::new(), body: hello }, 0, &mut frame);
        connection.send(&frame).await.expect("it is taken");
        connection.receive(&mut heard).await.expect("it is answered");
        heard
    });
    let answer = message::decode(&refused.expect("the machine goes on"));
    assert!(matches!(&answer, Ok(Answer::Refusal { reason }) if reason.contains("192.0.2.1:7000")), "{answer:?}");
    executor.stop();
}
