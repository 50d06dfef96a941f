//! Clients that write records of the same trees: what they split, merge and append is there for all, and after the power has gone.

use crate::machines::Machines;
use base::time::MILLISECOND_NS;
use base::{PartitionId, Random};
use engine::{Database, Direction, Error, PartitionSpec, Settings, buffer, log};
use entresol_node::algorithm::{ALGORITHMS, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::page_client::{ClientSettings, PageClient, PageTransaction};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::rc::Rc;

const CLIENTS: u32 = 3;
const PAGE_SIZE: usize = 1024;
const COUNTER: &[u8] = b"~counter";

fn buffer_settings(frames: usize) -> buffer::Settings {
    buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() }
}

fn settings() -> Settings {
    let log = log::Settings { capacity: 4 << 20, ..log::Settings::default() };
    Settings { buffer: buffer_settings(400), log, ..Settings::default() }
}

async fn serve(executor: Executor, address: SocketAddr, number: usize) -> PageServer {
    let database = Database::create(&executor, settings()).await.expect("the medium is empty");
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("there is room");
    database.create_partition(PartitionSpec::append("history")).await.expect("there is room");
    let counter = async |tx: &mut engine::Transaction| tx.put(tree, COUNTER, &[0; 8]).await;
    database.transaction(counter).await.expect("there is room");
    let settings = ServerSettings {
        algorithm: &ALGORITHMS[number % ALGORITHMS.len()],
        chances: CHANCES,
        message_size_min: 0,
        has_leases: true,
        grants: None,
    };
    PageServer::serve(&database, Rc::new(Plain(executor.for_users())), address, settings)
        .await
        .expect("the port is free")
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a client knows of its own records.
#[derive(Clone, Default)]
struct Own {
    committed: Records,
    commits: u64,
    /// What its records are if the transaction that it commits is committed.
    pending: Option<Records>,
}

struct Writer {
    executor: Executor,
    client: PageClient,
    number: u32,
    tree: PartitionId,
    history: PartitionId,
    random: Random,
    own: Rc<RefCell<Own>>,
}

impl Writer {
    async fn join(executor: Executor, server: SocketAddr, address: SocketAddr, number: u32, seed: u64) -> Writer {
        executor.sleep_ns(1_000).await;
        let transport = Rc::new(Plain(executor.for_users()));
        let settings = ClientSettings {
            buffer: buffer_settings(120),
            address,
            message_size_min: 0,
            transactions: 8,
            keeps_write_locks: false,
            commits_pages: number.is_multiple_of(2),
            lock_wait_ns_max: None,
            patience_ns: 60_000_000_000,
        };
        let client = PageClient::join(&executor, transport, server, settings).await.expect("the server listens");
        let number_of = async |name| client.partition(name).await.expect("it is there").id();
        let (tree, history) = (number_of("tree").await, number_of("history").await);
        let random = Random::stream(seed, &format!("writer {number}"));
        Writer { executor, client, number, tree, history, random, own: Rc::default() }
    }

    fn key(&self, random: &mut Random) -> Vec<u8> {
        // Keys of all are mixed, so that they share leaves.
        format!("{:03}/{}/{}", random.below(150), self.number, "k".repeat(random.below(40) as usize)).into()
    }

    async fn run(mut self, transactions: u64) -> Writer {
        for _ in 0..transactions {
            let (seed, mut tries) = (self.random.word(), 0);
            loop {
                match self.transaction(&mut Random::stream(seed, "transaction")).await {
                    Ok(()) => break,
                    // Others have to come to an end meanwhile, or all would be victims again.
                    Err(Error::Deadlock) => {
                        tries = (tries + 1).min(6);
                        let pause_ns = self.random.below(MILLISECOND_NS << tries);
                        self.executor.sleep_ns(pause_ns).await;
                    }
                    Err(error) => panic!("client {}: {error}", self.number),
                }
            }
        }
        self
    }

    async fn transaction(&self, random: &mut Random) -> engine::Result<()> {
        let mut records = self.own.borrow().committed.clone();
        let mut tx = self.client.begin().await;
        for _ in 0..random.between(1, 30) {
            let key = self.key(random);
            match random.below(10) {
                0..5 => {
                    // Some are too long for a leaf.
                    let length_max = if random.chance(0.15) { 4_000 } else { 100 };
                    let value = vec![random.word() as u8; random.below(length_max) as usize];
                    tx.put(self.tree, &key, &value).await?;
                    records.insert(key, value);
                }
                5..8 => {
                    let was_there = records.remove(&key).is_some();
                    assert_eq!(tx.delete(self.tree, &key).await?, was_there);
                }
                _ => assert_eq!(tx.get(self.tree, &key).await?, records.get(&key).cloned()),
            }
        }
        if random.chance(0.1) {
            self.compare(&mut tx, &records).await?;
        }
        tx.modify(self.tree, COUNTER, |value| {
            let count = u64::from_le_bytes((&*value).try_into().expect("eight bytes")) + 1;
            value.copy_from_slice(&count.to_le_bytes());
        })
        .await?;
        tx.append(self.history, &self.number.to_le_bytes()).await?;
        if random.chance(0.1) {
            // It is rolled back.
            return Ok(());
        }
        self.own.borrow_mut().pending = Some(records);
        tx.commit().await?;
        let mut own = self.own.borrow_mut();
        own.committed = own.pending.take().expect("it is there");
        own.commits += 1;
        Ok(())
    }

    async fn compare(&self, tx: &mut PageTransaction, expected: &Records) -> engine::Result<()> {
        let (mut found, own) = (Records::new(), format!("/{}/", self.number));
        tx.scan(self.tree, Bound::Unbounded, |key, value| {
            if String::from_utf8_lossy(key).contains(&own) {
                found.insert(key.to_vec(), value.to_vec());
            }
            true
        })
        .await?;
        assert_eq!(&found, expected);
        Ok(())
    }
}

struct Found {
    records: Records,
    counter: u64,
    /// Records of each client in the history.
    appended: BTreeMap<u32, u64>,
}

/// What another opening finds, which has checked every page.
fn found(machines: &Machines) -> Found {
    let executor = machines.server();
    let found = executor.run(async {
        let database = Database::open(&executor, settings(), "records").await?;
        let report = database.check(|_| {}).await?;
        assert!(report.is_clean(), "{:?}", report.findings);
        let (tree, history) = (database.partition("tree")?, database.partition("history")?);
        let mut found = Found { records: Records::new(), counter: 0, appended: BTreeMap::new() };
        let mut tx = database.begin().await?;
        let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((key, value)) = tx.next(&mut cursor).await? {
            found.records.insert(key, value);
        }
        let counter = found.records.remove(COUNTER).expect("it is never deleted");
        found.counter = u64::from_le_bytes(counter.try_into().expect("eight bytes"));
        tx.scan_appended(history, |_, record| {
            *found.appended.entry(u32::from_le_bytes(record.try_into().expect("four bytes"))).or_default() += 1;
            true
        })
        .await?;
        tx.rollback().await?;
        database.close().await?;
        Ok::<_, Error>(found)
    });
    let found = found.expect("the machine goes on").expect("the database is opened");
    executor.stop();
    found
}

/// Has clients write for as long as `until_ns` says, or until they have done their transactions. Returns what they know then.
fn write(machines: &Machines, seed: u64, until_ns: Option<u64>, transactions: u64) -> Vec<Own> {
    let server = machines.server();
    let clients: Vec<Executor> = (1..=CLIENTS).map(|number| machines.client(number)).collect();
    let mut cluster = Cluster::new([server.clone()].into_iter().chain(clients.iter().cloned()));
    let at = machines.address(0);
    let page_server = cluster.run(server.spawn(serve(server.clone(), at, seed as usize))).expect("it starts");
    let (mut own, mut tasks) = (Vec::new(), Vec::new());
    for (executor, number) in clients.iter().zip(1..) {
        let joining = Writer::join(executor.clone(), at, machines.address(number), number, seed);
        let writer = cluster.run(executor.spawn(joining)).expect("it joins");
        own.push(Rc::clone(&writer.own));
        tasks.push(executor.spawn(writer.run(transactions)));
    }
    match until_ns {
        Some(ns) => cluster.run_until(cluster.now().plus_ns(ns)).expect("they go on"),
        None => {
            for task in tasks {
                cluster.run(task).unwrap_or_else(|stop| panic!("{seed}: {stop:?}"));
            }
            cluster.run_until(cluster.now().plus_ns(1_000_000_000)).expect("they go on");
            page_server.protocol().check().expect("the directory is right");
        }
    }
    drop(page_server);
    clients.iter().for_each(Executor::stop);
    server.stop();
    own.into_iter().map(|own| own.borrow().clone()).collect()
}

#[test]
fn what_clients_write_to_the_same_tree_is_there_and_its_pages_are_sound() {
    for seed in 0..5 {
        let machines = Machines::new(seed);
        let own = write(&machines, seed, None, 40);
        let found = found(&machines);
        let expected: Records = own.iter().flat_map(|own| own.committed.clone()).collect();
        assert!(expected.len() > 100, "the tree grows: {}", expected.len());
        assert_eq!(found.records, expected, "{seed}");
        assert_eq!(found.counter, own.iter().map(|own| own.commits).sum::<u64>(), "{seed}");
        assert_eq!(found.appended.values().sum::<u64>(), found.counter, "{seed}");
    }
}

#[test]
fn a_power_cut_leaves_what_was_acknowledged_and_nothing_in_part() {
    let mut all = 0;
    for seed in 100..106 {
        let machines = Machines::new(seed);
        let mut random = Random::stream(seed, "cut");
        // Write locks are granted when leases of a server before this one would be over.
        let own = write(&machines, seed, Some(random.between(2_501_000_000, 2_506_000_000)), 10_000);
        machines.cut_power(&mut random);
        let found = found(&machines);
        let mut counted = 0;
        for (own, number) in own.iter().zip(1..) {
            let marked = format!("/{number}/");
            let is_its = |key: &&Vec<u8>| String::from_utf8_lossy(key).contains(&marked);
            let left: Records =
                found.records.keys().filter(is_its).map(|key| (key.clone(), found.records[key].clone())).collect();
            let appended = found.appended.get(&number).copied().unwrap_or(0);
            if appended == own.commits {
                assert_eq!(left, own.committed, "{seed}: client {number}");
            } else {
                assert_eq!(appended, own.commits + 1, "{seed}: client {number}");
                assert_eq!(Some(left), own.pending, "{seed}: client {number}");
            }
            counted += appended;
        }
        assert_eq!(found.counter, counted, "{seed}");
        all += counted;
    }
    assert!(all > 300, "they have come to something: {all}");
}
