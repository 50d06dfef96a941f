//! A database that an opening has left to undo a large transaction is served when that is done: nodes have no part in its locks, and would
//! read, and overwrite, what was never committed.

use crate::counting::client_settings;
use crate::machines::Machines;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use engine::canary::{self, Canary};
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec, Result, Settings, Transaction, UndoProgress, buffer};
use entresol_node::channel::Plain;
use entresol_node::page_client::{PageClient, PageTransaction};
use entresol_node::page_server::{PageServer, ServerSettings};
use executor::{Cluster, Executor};
use std::net::SocketAddr;
use std::rc::Rc;
use virtual_driver::Hardware;

const RECORDS: u32 = 200;
const PARTITIONS: [&str; 3] = ["objects", "tree", "set"];

fn settings() -> Settings {
    let buffer = buffer::Settings { frames: 16, page_size: 1024, cleaner: false, ..buffer::Settings::default() };
    Settings { buffer, undone_first_max: 10, ..Settings::default() }
}

fn specs() -> [PartitionSpec; 3] {
    let organization = Organization::Direct { objects: u64::from(RECORDS), blocking_factor: 10, record_size: 8 };
    let objects = PartitionSpec::new(PARTITIONS[0], organization, Locking::Record);
    [objects, PartitionSpec::b_tree(PARTITIONS[1]), PartitionSpec::set(PARTITIONS[2])]
}

/// Gives all records this value.
async fn write_all(tx: &mut Transaction, [objects, tree, set]: [PartitionId; 3], value: u64) -> Result<()> {
    for number in 0..RECORDS {
        let (key, bytes) = (number.to_be_bytes(), value.to_le_bytes());
        tx.modify_object(objects, u64::from(number), |object| object.copy_from_slice(&bytes)).await?;
        tx.put(tree, &key, &bytes).await?;
        tx.put(set, &key, &bytes).await?;
    }
    Ok(())
}

/// All records are 1; a transaction that gives them other values has not ended when the machine stops.
async fn leave(executor: &Executor) {
    let database = Database::create(executor, settings()).await.expect("the medium is empty");
    for spec in specs() {
        database.create_partition(spec).await.expect("there is room");
    }
    let partitions = PARTITIONS.map(|name| database.partition(name).expect("it exists"));
    database.transaction(async |tx| write_all(tx, partitions, 1).await).await.expect("commits");
    let mut tx = database.begin().await.expect("it is open");
    for value in 2..12 {
        write_all(&mut tx, partitions, value).await.expect("there is room");
    }
    std::mem::forget(tx);
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("there is room");
    database.transaction(async |tx| tx.put(notes, b"behind", b"1").await).await.expect("commits");
}

/// Opens the database and serves it at once. Returns how much of that was left to be undone then, and how much when it was served.
async fn serve(executor: Executor, address: SocketAddr) -> (PageServer, Database, [UndoProgress; 2]) {
    let database = Database::open(&executor, settings(), "here").await.expect("it opens");
    let before = database.undoing();
    let settings = ServerSettings { has_leases: false, ..ServerSettings::default() };
    let server = PageServer::serve(&database, Rc::new(Plain(executor.for_users())), address, settings).await;
    let now = database.undoing();
    (server.expect("the port is free"), database, [before, now])
}

async fn value_of(
    tx: &mut PageTransaction,
    [objects, tree, set]: [PartitionId; 3],
    number: u32,
) -> Result<[Option<u64>; 3]> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
    let key = number.to_be_bytes();
    let object = tx.read_object(objects, u64::from(number), word).await?;
    let [in_tree, in_set] = [tx.get(tree, &key).await?, tx.get(set, &key).await?];
    Ok([object, in_tree.and_then(|value| word(&value)), in_set.and_then(|value| word(&value))])
}

/// Reads all records several times, adding 1 to some of them. The first that is not what it should be.
async fn read_and_add(executor: Executor, server: SocketAddr, address: SocketAddr) -> Result<Option<String>> {
    let client =
        PageClient::join(&executor, Rc::new(Plain(executor.for_users())), server, client_settings(address, 60)).await?;
    let mut partitions = [PartitionId(0); 3];
    for (name, partition) in PARTITIONS.into_iter().zip(&mut partitions) {
        *partition = client.partition(name).await?.id();
    }
    for round in 0..4 {
        for number in 0..RECORDS {
            let wanted = 1 + if number % 7 == 0 { round } else { 0 };
            let mut tx = client.begin().await;
            let found = value_of(&mut tx, partitions, number).await?;
            if found != [Some(wanted); 3] {
                return Ok(Some(format!("record {number} is {found:?}, and was committed as {wanted}")));
            }
            if number % 7 == 0 {
                let (key, bytes) = (number.to_be_bytes(), (wanted + 1).to_le_bytes());
                let [objects, tree, set] = partitions;
                tx.modify_object(objects, u64::from(number), |object| object.copy_from_slice(&bytes)).await?;
                tx.put(tree, &key, &bytes).await?;
                tx.put(set, &key, &bytes).await?;
            }
            tx.commit().await?;
        }
        executor.sleep_ns(MILLISECOND_NS).await;
    }
    Ok(None)
}

/// What a node finds wrong.
fn wrong(seed: u64) -> Option<String> {
    let machines = Machines::new(seed);
    let executor = machines.server();
    executor.run(leave(&executor)).expect("it goes on");
    executor.stop();
    machines.cut_power(&mut Random::stream(seed, "power cuts"));
    let slow = Hardware::parse("[device.disk]\nmedium.service = \"500 us\"\n", "slow").expect("a description");
    let executors = [machines.server_on(slow), machines.client(1)];
    let mut cluster = Cluster::new(executors.iter().cloned());
    let (at, own) = (machines.address(0), machines.address(1));
    let serving = executors[0].spawn(serve(executors[0].clone(), at));
    let (server, database, [before, now]) = cluster.run(serving).expect("they go on");
    assert!(before.transactions == 1 && before.changes > 1_000, "nothing was left: {before:?}");
    let working = executors[1].spawn(read_and_add(executors[1].clone(), at, own));
    let found = cluster.run(working).expect("they go on");
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let early = (now != UndoProgress::default()).then(|| format!("it is served while {now:?} is left"));
    drop((server, database, cluster));
    executors.iter().for_each(Executor::stop);
    let found = found.unwrap_or_else(|error: Error| Some(error.to_string()));
    early.into_iter().chain(found).reduce(|early, found| format!("{early}; {found}"))
}

#[test]
fn nothing_is_served_while_an_opening_undoes_what_was_left() {
    for seed in 0..4 {
        assert_eq!(wrong(seed), None, "of {seed}");
    }
    canary::plant(Some(Canary::ServedLoser));
    let found = (0..4).find_map(wrong);
    canary::plant(None);
    assert!(found.as_ref().is_some_and(|found| found.contains("was committed as")), "{found:?}");
}
