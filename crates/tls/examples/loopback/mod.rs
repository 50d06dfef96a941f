//! Answers of one size over the loopback with nothing behind them: what the sockets, the ring and the executor cost by themselves.

#![allow(clippy::disallowed_methods, reason = "a node has a thread, as a program has")]

#[path = "../../tests/ground/mod.rs"]
pub mod ground;

use base::time::SECOND_NS;
use ground::{Ground, files, loopback};
use node::channel::{Plain, Transport};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;

/// The size of a request and of an answer, in bytes.
const REQUEST: usize = 32;
const ANSWER: usize = 4096;
/// How long one run takes, in nanoseconds.
pub const RUN_NS: u64 = SECOND_NS;

/// What a run has shown.
pub struct Rate {
    pub answers_per_second: f64,
    /// CPU time of the server and of the client for each answer, in microseconds.
    pub cpu_us: [f64; 2],
}

/// Plain sockets, or with the credentials of a directory TLS.
pub fn transport(ground: &Ground, credentials: Option<&Path>) -> Rc<dyn Transport> {
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

/// Asks for as long as a run takes, with this many requests outstanding.
pub fn echo(outstanding: usize, server: Option<&Path>, client: Option<&Path>) -> Rate {
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
        Rate {
            answers_per_second: answers * 1e9 / elapsed_ns,
            cpu_us: [server_ns, cpu_ns].map(|ns| ns / answers / 1e3),
        }
    })
}
