//! What it costs a node to fetch a page of 4 KiB from a server's memory over the loopback, with this many fetches outstanding,
//! beside answers of that size with nothing behind them, plain and with TLS, in turn. Each page is a transaction of its own ("fetch"), or many
//! are read by one transaction that asks for that number ahead ("scan"). What touching their bytes costs alone is told by answers that are pages of
//! the server's memory, of which the server computes the checksums, and the client verifies them and copies the pages into its own ("bytes").
//!
//! `cargo run --release -p entresol-tls --example fetch_cost [OUTSTANDING...]`, of 1 and of 64 if nothing else is asked for

#![allow(clippy::disallowed_methods, reason = "a node has a thread, as a program has")]

mod loopback;

use base::PageId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::catalog::{Locking, Organization};
use engine::{Database, PartitionSpec, Settings, buffer};
use loopback::ground::{Authority, Ground, loopback};
use loopback::{Answers, FRAMES_OF_NODE, PAGES, RUN_NS, Rate, STRIDE, echo, transport};
use node::algorithm;
use node::page_client::{ClientSettings, NodeInternals, PageClient};
use node::page_server::{PageServer, ServerInternals, ServerSettings};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;

const PAGE_SIZE: usize = 4096;

fn buffer_of(frames: usize) -> buffer::Settings {
    buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() }
}

/// Serves the pages until its node has gone. Returns the CPU time of that in nanoseconds.
fn serve(credentials: Option<&Path>, tell: &mpsc::Sender<(SocketAddr, base::PartitionId)>) -> u64 {
    let ground = Ground::new();
    let transport = transport(&ground, credentials);
    ground.run(async || {
        let settings = Settings { buffer: buffer_of(2 * PAGES as usize), ..Settings::default() };
        let database = Database::create(&ground.executor, settings).await.expect("an empty directory");
        let organization = Organization::Direct { objects: PAGES.into(), blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("pages", organization, Locking::None);
        let pages = database.create_partition(spec).await.expect("there is room");
        for number in 0..u64::from(PAGES) {
            let change =
                async |tx: &mut engine::Transaction| tx.modify_object(pages, number, |bytes| bytes[0] = 1).await;
            database.transaction(change).await.expect("there is room");
        }
        let settings = ServerSettings {
            algorithm: algorithm::named("cbl").expect("it is one of them"),
            chances: 0,
            message_size_min: 0,
            has_leases: true,
            grants: None,
        };
        let server = PageServer::serve(&database, transport, loopback(), settings).await.expect("a port is free");
        tell.send((server.address(), pages)).expect("it is waited for");
        let wait_until = async |there: bool| {
            while (server.protocol().clients().count() > 0) != there {
                ground.executor.sleep_ns(MILLISECOND_NS).await;
            }
        };
        wait_until(true).await;
        let began = real_driver::thread_cpu_ns();
        wait_until(false).await;
        assert_eq!(server.counts().hits, server.counts().reads, "all pages are in memory");
        real_driver::thread_cpu_ns() - began
    })
}

/// How the pages are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    /// By as many transactions as there are fetches outstanding, each of one page.
    OfOnePage,
    /// By one transaction at a time, which asks for that many ahead.
    Scan,
}

/// How many pages a transaction reads that reads many.
const SCANNED: u32 = 512;

/// The next page, of those that all readers go through.
fn next_of(next: &Cell<u32>) -> u32 {
    next.replace((next.get() + STRIDE) % PAGES)
}

/// Reads pages one after the other. A quarter as many as are outstanding are asked for whenever that many have been read. Returns how many
/// these are, none of which was here.
async fn scan(client: &PageClient, pages: base::PartitionId, next: &Cell<u32>, outstanding: usize) -> u64 {
    let mut transaction = client.begin().await;
    let mut ahead = VecDeque::new();
    for left in (1..=SCANNED as usize).rev() {
        if ahead.len() <= outstanding - outstanding.div_ceil(4) {
            let more: Vec<PageId> =
                (ahead.len()..outstanding.min(left)).map(|_| PageId::new(pages, next_of(next))).collect();
            transaction.read_ahead(more.iter().copied()).await.expect("nothing is in the way");
            ahead.extend(more);
        }
        let page = ahead.pop_front().expect("one is left at least");
        transaction.read(page, |bytes| bytes.len()).await.expect("it is served");
    }
    transaction.commit().await.expect("it has read only");
    // A page comes back only after all others, of which there are more than frames.
    SCANNED.into()
}

/// Fetches pages for as long as a run takes, this many at a time.
fn fetch(readers: Readers, outstanding: usize, server: Option<&Path>, client: Option<&Path>) -> Rate {
    let (tell, address) = mpsc::channel();
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || serve(server, &tell));
        let ground = Ground::new();
        let transport = transport(&ground, client);
        let (address, pages) = address.recv().expect("it listens");
        let (answers, elapsed_ns, cpu_ns) = ground.run(async || {
            let settings = ClientSettings {
                buffer: buffer_of(FRAMES_OF_NODE),
                address: loopback(),
                message_size_min: 0,
                transactions: outstanding,
                keeps_write_locks: true,
                commits_pages: true,
                lock_wait_ns_max: None,
                patience_ns: SECOND_NS,
            };
            let client = PageClient::join(&ground.executor, transport, address, settings).await.expect("it listens");
            client.attach(pages);
            let (next, fetched) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u64)));
            let (began, cpu) = (ground.executor.now(), real_driver::thread_cpu_ns());
            let count = if readers == Readers::Scan { 1 } else { outstanding };
            let readers: Vec<_> = (0..count)
                .map(|_| {
                    let (client, executor) = (client.clone(), ground.executor.clone());
                    let (next, fetched) = (Rc::clone(&next), Rc::clone(&fetched));
                    ground.executor.spawn(async move {
                        while executor.now().since_ns(began) < RUN_NS {
                            if readers == Readers::Scan {
                                let more = scan(&client, pages, &next, outstanding).await;
                                fetched.set(fetched.get() + more);
                                continue;
                            }
                            let number = next_of(&next);
                            let mut transaction = client.begin().await;
                            let read = transaction.read(PageId::new(pages, number), |bytes| bytes.len()).await;
                            let (_, was_here) = read.expect("it is served");
                            fetched.set(fetched.get() + u64::from(!was_here));
                            transaction.commit().await.expect("it has read only");
                        }
                    })
                })
                .collect();
            for reader in readers {
                reader.join().await;
            }
            let elapsed_ns = ground.executor.now().since_ns(began);
            (fetched.get() as f64, elapsed_ns as f64, (real_driver::thread_cpu_ns() - cpu) as f64)
        });
        drop(ground);
        let server_ns = serving.join().expect("it ends well") as f64;
        Rate {
            answers_per_second: answers * 1e9 / elapsed_ns,
            cpu_us: [server_ns, cpu_ns].map(|ns| ns / answers / 1e3),
        }
    })
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::named("ours");
    let [server, client] = ["server", "client"].map(|name| directory.path().join(name));
    authority.issue(&server, &["server", "127.0.0.1"]);
    authority.issue(&client, &["client"]);
    let asked: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    for outstanding in if asked.is_empty() { vec![1, 64] } else { asked } {
        for round in 1..=5 {
            for (name, server, client) in [("plain", None, None), ("TLS", Some(&*server), Some(&*client))] {
                for (what, rate) in [
                    ("echo", echo(Answers::Bytes, outstanding, server, client)),
                    ("bytes", echo(Answers::Pages, outstanding, server, client)),
                    ("fetch", fetch(Readers::OfOnePage, outstanding, server, client)),
                    ("scan", fetch(Readers::Scan, outstanding, server, client)),
                ] {
                    let [at_server, at_client] = rate.cpu_us;
                    println!(
                        "{outstanding:>2} outstanding, round {round}, {name:<5} {what:<5}: {:>9.0}/s, {:>6.1} us each, CPU {at_server:.2} us \
                         at the server, {at_client:.2} us at the client",
                        rate.answers_per_second,
                        outstanding as f64 * 1e6 / rate.answers_per_second
                    );
                }
            }
        }
    }
}
