//! A database that still frees what was deleted is served when that is done: nodes would not learn which pages it changes.

use crate::machines::Machines;
use base::Random;
use base::time::MILLISECOND_NS;
use engine::checkpoint::Policy;
use engine::{Database, Error, PartitionSpec, Settings, Transaction, buffer, log};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::page_client::{ClientSettings, PageClient};
use entresol_node::page_server::{PageServer, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;

const VALUES: u32 = 120;
const RECORDS: u32 = 100;

fn buffer_settings() -> buffer::Settings {
    buffer::Settings { frames: 64, page_size: 1024, cleaner: false, ..buffer::Settings::default() }
}

fn settings() -> Settings {
    Settings {
        buffer: buffer_settings(),
        log: log::Settings { capacity: 128 << 10, ..log::Settings::default() },
        checkpoint: Policy { log_bytes: Some(32 << 10), interval_ns: None },
        ..Settings::default()
    }
}

/// A tree of long values that were all deleted, whose pages take far more of the log to be freed than it has, beside a transaction that
/// holds the log and never ends.
async fn delete_long_values(executor: &Executor) {
    let database = Database::create(executor, settings()).await.expect("the medium is empty");
    for name in ["texts", "notes"] {
        database.create_partition(PartitionSpec::b_tree(name)).await.expect("there is room");
    }
    let [texts, notes] = ["texts", "notes"].map(|name| database.partition(name).expect("it exists"));
    for number in 0..VALUES {
        let put = async |tx: &mut Transaction| tx.put(texts, &number.to_be_bytes(), &[7; 30_000]).await;
        database.transaction(put).await.expect("there is room");
    }
    database.checkpoint().await.expect("the medium is sound");
    let mut held = database.begin().await.expect("it is open");
    held.put(notes, b"held", &[1; 200]).await.expect("there is room");
    let delete = async |tx: &mut Transaction| {
        for number in 0..VALUES {
            tx.delete(texts, &number.to_be_bytes()).await?;
        }
        Ok::<_, Error>(())
    };
    database.transaction(delete).await.expect("it commits");
    std::mem::forget(held);
}

async fn serve(executor: Executor, address: SocketAddr) -> PageServer {
    let database = Database::open(&executor, settings(), "texts").await.expect("it opens");
    assert!(database.is_freeing(), "there is nothing to wait for");
    let algorithm = algorithm::named("cbl").expect("it is one of them");
    let settings = ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: false, grants: None };
    PageServer::serve(&database, Rc::new(Plain(executor.for_users())), address, settings)
        .await
        .expect("the port is free")
}

async fn put_records(executor: Executor, server: SocketAddr, address: SocketAddr) {
    let patience_ns = 60_000 * MILLISECOND_NS;
    let settings = ClientSettings {
        buffer: buffer_settings(),
        address,
        message_size_min: 0,
        transactions: 8,
        keeps_write_locks: false,
        commits_pages: true,
        lock_wait_ns_max: None,
        patience_ns,
    };
    let client = PageClient::join(&executor, Rc::new(Plain(executor.for_users())), server, settings).await;
    let client = client.expect("the server listens");
    let texts = client.partition("texts").await.expect("it is there").id();
    for number in 0..RECORDS {
        let mut tx = client.begin().await;
        tx.put(texts, &number.to_be_bytes(), &[3; 200]).await.expect("there is room");
        tx.commit().await.expect("it alone changes these pages");
    }
}

async fn check_records(executor: &Executor) {
    let database = Database::open(executor, settings(), "texts").await.expect("it opens");
    let texts = database.partition("texts").expect("it exists");
    for number in 0..RECORDS {
        let found = database.transaction(async |tx| tx.get(texts, &number.to_be_bytes()).await).await;
        assert_eq!(found, Ok(Some(vec![3; 200])), "record {number}");
    }
    while database.is_freeing() {
        executor.sleep_ns(MILLISECOND_NS).await;
    }
    let report = database.check(|_| {}).await.expect("the medium is sound");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn nothing_is_served_while_pages_are_freed() {
    let machines = Machines::new(5);
    let mut random = Random::stream(5, "power cuts");
    let executor = machines.server();
    executor.run(delete_long_values(&executor)).expect("it goes on");
    executor.stop();
    machines.cut_power(&mut random);

    let executors = [machines.server(), machines.client(1)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let (at, own) = (machines.address(0), machines.address(1));
    let serving = executors[0].spawn(serve(executors[0].clone(), at));
    let server = cluster.run(serving).expect("they go on");
    let writing = executors[1].spawn(put_records(executors[1].clone(), at, own));
    cluster.run(writing).expect("they go on");
    executors.iter().for_each(Executor::stop);
    drop(server);
    machines.cut_power(&mut random);

    let executor = machines.server();
    executor.run(check_records(&executor)).expect("it goes on");
}
