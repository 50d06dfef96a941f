//! What TLS costs on the loopback: answers of 4 KiB, with 1 and with 64 requests outstanding, plain and sealed in turn.
//!
//! `cargo run --release -p entresol-tls --example sealed_cost`

#![allow(clippy::disallowed_methods, reason = "a node has a thread, as a program has")]

#[path = "../tests/ground/mod.rs"]
mod ground;

use base::time::SECOND_NS;
use ground::{Authority, Ground, files, loopback};
use node::channel::{Plain, Transport};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;

/// The size of a request and of an answer, in bytes.
const REQUEST: usize = 32;
const ANSWER: usize = 4096;
/// How long one run takes, in nanoseconds.
const RUN_NS: u64 = SECOND_NS;

fn transport(ground: &Ground, credentials: Option<&Path>) -> Rc<dyn Transport> {
    match credentials {
        None => Rc::new(Plain(ground.executor.clone())),
        Some(directory) => Rc::new(ground.tls(files(directory))),
    }
}

/// Answers one connection until it ends. Returns the CPU time that this took, in nanoseconds.
fn serve(credentials: Option<&Path>, tell: &mpsc::Sender<SocketAddr>) -> u64 {
    let ground = Ground::new();
    let transport = transport(&ground, credentials);
    ground.run(async || {
        let acceptor = transport.listen(loopback()).await.expect("a port is free");
        tell.send(acceptor.address()).expect("it is waited for");
        let channel = acceptor.accept().await.expect("it comes");
        let began = real_driver::thread_cpu_ns();
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        while let Ok(1..) = channel.receive(&mut asked).await {
            let count = asked.len() / REQUEST;
            asked.drain(..count * REQUEST);
            answers.resize(count * ANSWER, 7);
            if channel.send(&answers).await.is_err() {
                break;
            }
        }
        real_driver::thread_cpu_ns() - began
    })
}

/// Asks for as long as a run takes. Returns the answers per second, and the CPU time of both sides for each in microseconds.
fn measure(outstanding: usize, server: Option<&Path>, client: Option<&Path>) -> (f64, [f64; 2]) {
    let (tell, address) = mpsc::channel();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || serve(server, &tell));
        let ground = Ground::new();
        let transport = transport(&ground, client);
        let address = address.recv().expect("it listens");
        let (answers, elapsed_ns, cpu_ns) = ground.run(async || {
            let channel = transport.connect(address, None).await.expect("it listens");
            let (began, cpu) = (ground.executor.now(), real_driver::thread_cpu_ns());
            let (mut heard, mut answers) = (Vec::new(), 0);
            channel.send(&vec![1; outstanding * REQUEST]).await.expect("it is there");
            while ground.executor.now().since_ns(began) < RUN_NS {
                assert!(channel.receive(&mut heard).await.expect("it is there") > 0);
                let count = heard.len() / ANSWER;
                heard.drain(..count * ANSWER);
                answers += count;
                channel.send(&vec![1; count * REQUEST]).await.expect("it is there");
            }
            let elapsed_ns = ground.executor.now().since_ns(began);
            (answers as f64, elapsed_ns as f64, (real_driver::thread_cpu_ns() - cpu) as f64)
        });
        drop(ground);
        let server_ns = serving.join().expect("it ends well") as f64;
        (answers * 1e9 / elapsed_ns, [server_ns / answers / 1e3, cpu_ns / answers / 1e3])
    })
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::named("ours");
    let [server, client] = ["server", "client"].map(|name| directory.path().join(name));
    authority.issue(&server, &["server", "127.0.0.1"]);
    authority.issue(&client, &["client"]);
    for outstanding in [1, 64] {
        for round in 1..=5 {
            for (name, server, client) in [("plain", None, None), ("TLS", Some(&*server), Some(&*client))] {
                let (rate, [at_server, at_client]) = measure(outstanding, server, client);
                println!(
                    "{outstanding:>2} outstanding, round {round}, {name:<5}: {rate:>9.0} answers/s, CPU {at_server:.2} us at the server, \
                     {at_client:.2} us at the client"
                );
            }
        }
    }
}
