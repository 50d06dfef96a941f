//! Answers of one size over the loopback with nothing behind them, or no more than pages' bytes: what the sockets, the ring and the executor
//! cost by themselves.

#![allow(clippy::disallowed_methods, reason = "a node has a thread, as a program has")]

#[path = "../../tests/ground/mod.rs"]
pub mod ground;

use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use engine::page::{PageKind, header};
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

/// What answers are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// The same bytes again and again, which no one looks at.
    Bytes,
    /// Pages of the server's memory, of which that computes the checksums; the client verifies them and copies them into its own.
    Pages,
}

/// How many pages the server has, how far those that are sent one after the other lie from each other, and how many the client keeps.
pub const PAGES: u32 = 8_192;
pub const STRIDE: u32 = 4_099;
pub const FRAMES_OF_NODE: usize = 1_024;

/// Which page is sent behind `before` others.
fn page_at(before: u64) -> PageId {
    PageId::new(PartitionId(1), (before * u64::from(STRIDE) % u64::from(PAGES)) as u32)
}

fn memory_of(pages: usize, kind: Answers) -> Vec<u8> {
    let mut memory = vec![1; if kind == Answers::Pages { pages * ANSWER } else { 0 }];
    for (page, number) in memory.chunks_mut(ANSWER).zip(0..) {
        header::format(page, PageId::new(PartitionId(1), number));
        header::set_kind(page, PageKind::Direct);
    }
    memory
}

/// Plain sockets, or with the credentials of a directory TLS.
pub fn transport(ground: &Ground, credentials: Option<&Path>) -> Rc<dyn Transport> {
    match credentials {
        None => Rc::new(Plain(ground.executor.for_users())),
        Some(directory) => Rc::new(ground.tls(files(directory))),
    }
}

/// Answers one connection until it ends. Returns the CPU time that this took, in nanoseconds.
fn serve(kind: Answers, credentials: Option<&Path>, tell: &mpsc::Sender<SocketAddr>) -> u64 {
    let mut memory = memory_of(PAGES as usize, kind);
    let ground = Ground::new();
    let transport = transport(&ground, credentials);
    ground.run(async || {
        let acceptor = transport.listen(loopback()).await.expect("a port is free");
        tell.send(acceptor.address()).expect("it is waited for");
        let channel = acceptor.accept().await.expect("it comes");
        let began = real_driver::thread_cpu_ns();
        let (mut asked, mut answers, mut sent) = (Vec::new(), Vec::new(), 0);
        while let Ok(1..) = channel.receive(&mut asked).await {
            let count = asked.len() / REQUEST;
            asked.drain(..count * REQUEST);
            if kind == Answers::Pages {
                answers.clear();
                for before in sent..sent + count as u64 {
                    let at = page_at(before).number as usize * ANSWER;
                    header::seal(&mut memory[at..at + ANSWER]);
                    answers.extend_from_slice(&memory[at..at + ANSWER]);
                }
                sent += count as u64;
            }
            answers.resize(count * ANSWER, 7);
            if channel.send(&answers).await.is_err() {
                break;
            }
        }
        real_driver::thread_cpu_ns() - began
    })
}

/// Asks for as long as a run takes, with this many requests outstanding.
pub fn echo(kind: Answers, outstanding: usize, server: Option<&Path>, client: Option<&Path>) -> Rate {
    let (tell, address) = mpsc::channel();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || serve(kind, server, &tell));
        let mut frames = memory_of(FRAMES_OF_NODE, kind);
        let ground = Ground::new();
        let transport = transport(&ground, client);
        let address = address.recv().expect("it listens");
        let (answers, elapsed_ns, cpu_ns) = ground.run(async || {
            let channel = transport.connect(address, None).await.expect("it listens");
            let (began, cpu) = (ground.executor.now(), real_driver::thread_cpu_ns());
            let (mut heard, mut answers) = (Vec::new(), 0_usize);
            channel.send(&vec![1; outstanding * REQUEST]).await.expect("it is there");
            while ground.executor.now().since_ns(began) < RUN_NS {
                assert!(channel.receive(&mut heard).await.expect("it is there") > 0);
                let count = heard.len() / ANSWER;
                if kind == Answers::Pages {
                    for (bytes, before) in heard.chunks_exact(ANSWER).zip(answers..) {
                        assert_eq!(header::verify(bytes, page_at(before as u64)), Ok(true));
                        let at = before % FRAMES_OF_NODE * ANSWER;
                        frames[at..at + ANSWER].copy_from_slice(bytes);
                    }
                }
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
