//! A node that leaves its server while its commit waits there for a page from the disk.

use crate::counting::{counters, join, settings};
use crate::machines::Machines;
use base::time::MILLISECOND_NS;
use base::{Instant, PageId, PartitionId};
use engine::canary::{self, Canary};
use engine::{Database, Result, Settings};
use entresol_node::channel::Plain;
use entresol_node::page_client::PageClient;
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::Hardware;

/// A page of the disk takes as long as hundreds of messages.
const HARDWARE: &str = "
[device.disk]
medium.service = \"100 ms\"
write_cache = \"volatile\"

[device.flash]
medium.service = \"5 us\"
write_cache = \"volatile\"
";

/// What is on the page first that the node changes.
const BEFORE: u64 = 7;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MILLISECOND_NS)
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

async fn serve(executor: Executor, address: SocketAddr) -> (PageServer, PartitionId) {
    let settings = Settings { log_device: "flash".to_owned(), ..settings() };
    let database = Database::create(&executor, settings).await.expect("the media are empty");
    let counters = database.create_partition(counters()).await.expect("there is room");
    let transport = Rc::new(Plain(executor.for_users()));
    let server = PageServer::serve(&database, transport, address, ServerSettings::default()).await;
    (server.expect("the port is free"), counters)
}

/// Reads one page and changes another one, commits that when the server has that on its disk alone, and leaves at once.
async fn commit_and_leave(client: PageClient, executor: Executor, [written, read]: [PageId; 2]) -> Result<()> {
    let mut first = client.begin().await;
    first.write(written, 32, &BEFORE.to_le_bytes()).await?;
    first.commit().await?;
    let mut transaction = client.begin().await;
    transaction.read(read, value).await?;
    transaction.write(written, 32, &1_u64.to_le_bytes()).await?;
    executor.sleep_until(at(30_000)).await;
    assert!(executor.within(MILLISECOND_NS, transaction.commit()).await.is_none(), "it takes longer");
    Ok(())
}

/// Reads other pages, so that the server has no frame for the written one any more, changes what the other node has only read, and shows what a
/// snapshot sees of both then.
async fn change_and_look(client: PageClient, executor: Executor, [written, read]: [PageId; 2]) -> Result<[u64; 2]> {
    executor.sleep_until(at(20_000)).await;
    let mut transaction = client.begin().await;
    for number in 10..30 {
        transaction.read(PageId::new(read.partition, number), value).await?;
    }
    // The server has this one, too, from now on.
    transaction.read(read, value).await?;
    transaction.write(read, 32, &1_u64.to_le_bytes()).await?;
    transaction.commit().await?;
    let mut snapshot = client.snapshot().await?;
    Ok([snapshot.read(read, value).await?, snapshot.read(written, value).await?])
}

/// What a snapshot sees of a page that was changed behind what a node had read, and of one that this node has changed.
fn seen_behind_one_that_is_gone() -> [u64; 2] {
    let machines = Machines::new(5);
    let hardware = Hardware::parse(HARDWARE, "test").expect("a description");
    let executors = [machines.server_on(hardware), machines.client(1), machines.client(2)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let serving = executors[0].spawn(serve(executors[0].clone(), machines.address(0)));
    let (server, counters) = cluster.run(serving).expect("it starts");
    let [gone, other] = [1, 2].map(|number: u32| {
        let executor = &executors[number as usize];
        let addresses = (machines.address(0), machines.address(number));
        cluster.run(executor.spawn(join(executor.clone(), addresses, counters))).expect("they go on")
    });
    cluster.run_until(at(15_000)).expect("they go on");
    let pages = [0, 1].map(|number| PageId::new(counters, number));
    let leaving = executors[1].spawn(commit_and_leave(gone, executors[1].clone(), pages));
    let looking = executors[2].spawn(change_and_look(other.clone(), executors[2].clone(), pages));
    cluster.run_until(at(40_000)).expect("they go on");
    assert_eq!(cluster.run(leaving).expect("they go on"), Ok(()));
    assert_eq!((server.counts().gone_committing, server.counts().commits), (1, 3));
    let seen = cluster.run(looking).expect("they go on").unwrap_or_else(|error| panic!("{error}"));
    server.protocol().check().expect("the directory is right");
    drop((server, other));
    executors.iter().for_each(Executor::stop);
    seen
}

#[test]
fn a_snapshot_that_shows_what_was_changed_behind_a_commit_shows_that_though_its_node_is_gone() {
    assert_eq!(seen_behind_one_that_is_gone(), [1, 1]);
    canary::plant(Some(Canary::ForgottenReads));
    let seen = seen_behind_one_that_is_gone();
    canary::plant(None);
    assert_eq!(seen, [1, BEFORE], "what is planted is found");
}
