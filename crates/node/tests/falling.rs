//! Nodes that change objects of the same few pages: with `ps-aa` locks fall to objects, and what is committed of one page by several nodes
//! comes together at the server, also after a power cut.

use crate::counting::{client_settings, settings};
use crate::machines::Machines;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use engine::canary::{self, Canary};
use engine::catalog::{Locking, Organization};
use engine::{Database, Error, PartitionSpec, Result};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::page_client::{ClientSettings, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use entresol_node::server::Counts;
use executor::{Cluster, Executor};
use std::rc::Rc;

const NODES: u32 = 3;
/// How many objects there are, and on a page: each node may have a page of its own.
const OBJECTS: u64 = 36;
const ON_PAGE: u32 = 12;

/// What is run.
#[derive(Clone, Copy)]
struct Load {
    algorithm: &'static str,
    seed: u64,
    /// How many transactions of a node run at a time, and how many each of these runs one after the other.
    workers: u32,
    transactions: u32,
    /// How long a transaction rests between two objects, in nanoseconds.
    rest_ns: u64,
    keeps_write_locks: bool,
    commits_pages: bool,
    /// Whether each node has objects of its own.
    is_apart: bool,
}

struct Ran {
    counts: Counts,
    /// What was added by transactions that are committed, and how often one was a victim.
    added: u64,
    victims: u64,
    elapsed_ns: u64,
    /// The sum of all objects after the server has lost its power.
    sum: u64,
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// One transaction that adds to some objects, and reads others. How much it has added.
async fn add(
    (client, executor): (&PageClient, &Executor),
    table: PartitionId,
    steps: &[(u64, bool)],
    rest_ns: u64,
) -> Result<u64> {
    let mut added = 0;
    let mut seen = std::collections::BTreeMap::new();
    let mut transaction = client.begin().await;
    for (number, writes) in steps {
        let found = if *writes {
            let change = |object: &mut [u8]| {
                let found = value(object);
                object.copy_from_slice(&(found + 1).to_le_bytes());
                found
            };
            added += 1;
            transaction.modify_object(table, *number, change).await?
        } else {
            transaction.read_object(table, *number, value).await?
        };
        let before = seen.insert(*number, found + u64::from(*writes));
        assert!(before.is_none_or(|before| before == found), "object {number} was {before:?}, and is {found}");
        executor.sleep_ns(rest_ns).await;
    }
    transaction.commit().await?;
    Ok(added)
}

async fn work(
    (client, executor): (PageClient, Executor),
    table: PartitionId,
    (node, seed): (u64, u64),
    load: Load,
) -> (u64, u64) {
    let on_page = u64::from(ON_PAGE);
    let objects = if load.is_apart { node * on_page..(node + 1) * on_page } else { 0..2 * on_page };
    let mut random = Random::stream(seed, "transactions");
    let (mut added, mut victims) = (0, 0);
    for _ in 0..load.transactions {
        let steps: Vec<(u64, bool)> = (0..random.between(2, 5))
            .map(|_| (random.between(objects.start, objects.end - 1), random.chance(0.5)))
            .collect();
        loop {
            match add((&client, &executor), table, &steps, load.rest_ns).await {
                Ok(more) => {
                    added += more;
                    break;
                }
                Err(Error::Deadlock) => {
                    victims += 1;
                    executor.sleep_ns(random.below(5 * MILLISECOND_NS)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    (added, victims)
}

/// A server with one table, and its nodes.
struct Started {
    machines: Machines,
    executors: Vec<Executor>,
    cluster: Cluster,
    server: PageServer,
    clients: Vec<PageClient>,
    table: PartitionId,
}

fn start(load: Load) -> Started {
    let machines = Machines::new(load.seed);
    let executors: Vec<Executor> =
        [machines.server()].into_iter().chain((1..=NODES).map(|number| machines.client(number))).collect();
    let mut cluster = Cluster::new(executors.iter().cloned());
    let (at, executor) = (machines.address(0), executors[0].clone());
    let serving = executors[0].spawn(async move {
        let database = Database::create(&executor, settings()).await?;
        let organization = Organization::Direct { objects: OBJECTS, blocking_factor: ON_PAGE, record_size: 8 };
        let table = database.create_partition(PartitionSpec::new("table", organization, Locking::None)).await?;
        let algorithm = algorithm::named(load.algorithm).expect("it is one of them");
        let settings =
            ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants: None };
        let server = PageServer::serve(&database, Rc::new(Plain(executor.for_users())), at, settings).await?;
        Ok::<_, Error>((server, table))
    });
    let (server, table) = cluster.run(serving).expect("they go on").expect("it starts");
    let mut clients = Vec::new();
    for number in 1..=NODES {
        let executor = executors[number as usize].clone();
        let settings = ClientSettings {
            keeps_write_locks: load.keeps_write_locks,
            commits_pages: load.commits_pages,
            ..client_settings(machines.address(number), 80)
        };
        let joining = executor.clone().spawn(async move {
            PageClient::join(&executor, Rc::new(Plain(executor.for_users())), at, settings).await
        });
        clients.push(cluster.run(joining).expect("they go on").expect("the server listens"));
    }
    // Until a second server would have heard of the first one's clients no write lock is granted.
    cluster.run_until(cluster.now().plus_ns(3 * SECOND_NS)).expect("they go on");
    Started { machines, executors, cluster, server, clients, table }
}

fn run(load: Load) -> Ran {
    let Started { machines, executors, mut cluster, server, clients, table } = start(load);
    let began = cluster.now();
    let mut workers = Vec::new();
    for ((client, executor), node) in clients.iter().zip(&executors[1..]).zip(0..) {
        for _ in 0..load.workers {
            let seed = load.seed * 1000 + workers.len() as u64;
            workers.push(executor.spawn(work((client.clone(), executor.clone()), table, (node, seed), load)));
        }
    }
    let (mut added, mut victims) = (0, 0);
    for worker in workers {
        let (more, given_up) = cluster.run(worker).expect("they go on");
        (added, victims) = (added + more, victims + given_up);
    }
    let elapsed_ns = cluster.now().since_ns(began);
    server.protocol().check().expect("the server's state is right");
    let counts = server.counts();
    drop((server, clients, cluster));
    executors.iter().for_each(Executor::stop);
    machines.cut_power(&mut Random::stream(load.seed, "cut"));
    let executor = machines.server();
    let sum = executor.run(async {
        let database = Database::open(&executor, settings(), "falling").await?;
        assert!(database.check(|_| {}).await?.findings.is_empty(), "the database is sound");
        let mut transaction = database.begin().await?;
        let mut sum = 0;
        for number in 0..OBJECTS {
            sum += transaction.read_object(table, number, value).await?;
        }
        Ok::<_, Error>(sum)
    });
    executor.stop();
    Ran { counts, added, victims, elapsed_ns, sum: sum.expect("the machine goes on").expect("it is opened") }
}

const LOAD: Load = Load {
    algorithm: "ps-aa",
    seed: 1,
    workers: 3,
    transactions: 12,
    rest_ns: MILLISECOND_NS,
    keeps_write_locks: true,
    commits_pages: false,
    is_apart: false,
};

#[test]
fn what_nodes_change_of_the_same_pages_comes_together_at_the_server() {
    let mut falls = 0;
    for seed in 0..12 {
        let (keeps_write_locks, commits_pages) = (seed % 2 == 0, seed % 3 == 0);
        let rest_ns = if seed % 4 == 3 { 0 } else { MILLISECOND_NS };
        let ran = run(Load { seed, keeps_write_locks, commits_pages, rest_ns, ..LOAD });
        assert!(ran.added > 0);
        assert_eq!(ran.sum, ran.added, "seed {seed}: {:?}", ran.counts);
        assert_eq!((ran.counts.refused_commits, ran.counts.misbehaviours), (0, 0), "seed {seed}: {:?}", ran.counts);
        falls += ran.counts.falls;
    }
    assert!(falls > 12, "{falls}");
}

#[test]
fn nodes_that_want_different_objects_of_the_same_pages_do_not_take_turns() {
    let [pages, records] =
        ["cbl", "ps-aa"].map(|algorithm| run(Load { algorithm, workers: 1, transactions: 60, ..LOAD }));
    for ran in [&pages, &records] {
        assert_eq!(ran.sum, ran.added);
    }
    let told = |ran: &Ran| format!("{} ms, {} victims, {:?}", ran.elapsed_ns / MILLISECOND_NS, ran.victims, ran.counts);
    println!("cbl: {}; ps-aa: {}", told(&pages), told(&records));
    assert!(2 * records.elapsed_ns < pages.elapsed_ns, "cbl: {}; ps-aa: {}", told(&pages), told(&records));
}

#[test]
fn nodes_that_want_objects_of_different_pages_have_copies_as_ever() {
    let load = Load { workers: 1, transactions: 60, is_apart: true, ..LOAD };
    let [pages, records] = ["cbl", "ps-aa"].map(|algorithm| run(Load { algorithm, ..load }));
    assert_eq!((records.counts, records.elapsed_ns), (pages.counts, pages.elapsed_ns));
    assert_eq!((records.counts.falls, records.counts.records, records.sum), (0, 0, records.added));
}

/// Moves something from one object to another, transaction after transaction, so that the sum of all stays what it was.
async fn move_much((client, executor): (PageClient, Executor), table: PartitionId, seed: u64) {
    let mut random = Random::stream(seed, "moves");
    for _ in 0..40 {
        let [one, other] = [(); 2].map(|()| random.below(OBJECTS));
        let add = |amount: u64| {
            move |object: &mut [u8]| {
                let changed = value(object).wrapping_add(amount);
                object.copy_from_slice(&changed.to_le_bytes());
            }
        };
        let is_rolled_back = random.chance(0.1);
        let moved = async {
            let mut transaction = client.begin().await;
            transaction.modify_object(table, one, add(u64::MAX)).await?;
            executor.sleep_ns(MILLISECOND_NS).await;
            transaction.modify_object(table, other, add(1)).await?;
            if is_rolled_back { Ok(()) } else { transaction.commit().await }
        };
        match moved.await {
            Ok(()) | Err(Error::Deadlock) => executor.sleep_ns(random.below(2 * MILLISECOND_NS)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sums of all objects as snapshots see them, each in any order.
async fn sum_often((client, executor): (PageClient, Executor), table: PartitionId, seed: u64) -> Vec<u64> {
    let mut random = Random::stream(seed, "sums");
    let mut sums = Vec::new();
    for _ in 0..40 {
        let mut snapshot = client.snapshot().await.expect("the server is there");
        let (mut sum, first) = (0_u64, random.below(OBJECTS));
        for number in (0..OBJECTS).map(|number| (first + number) % OBJECTS) {
            if random.chance(0.2) {
                executor.sleep_ns(random.below(MILLISECOND_NS)).await;
            }
            sum = sum.wrapping_add(snapshot.read_object(table, number, value).await.expect("there is room"));
        }
        sums.push(sum);
    }
    sums
}

/// The sums that snapshots see while locks fall and rise, and what the server has counted.
fn sums_of_snapshots(seed: u64) -> (Vec<u64>, Counts) {
    let (keeps_write_locks, commits_pages) = (seed.is_multiple_of(2), seed.is_multiple_of(3));
    let Started { executors, mut cluster, server, clients, table, .. } =
        start(Load { seed, keeps_write_locks, commits_pages, ..LOAD });
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for task in 0..2 * u64::from(NODES) {
        let node = (task % u64::from(NODES)) as usize;
        let at = || (clients[node].clone(), executors[node + 1].clone());
        writers.push(executors[node + 1].spawn(move_much(at(), table, 100 * seed + task)));
        readers.push(executors[node + 1].spawn(sum_often(at(), table, 100 * seed + task)));
    }
    let sums = readers.into_iter().flat_map(|reader| cluster.run(reader).expect("they go on")).collect();
    writers.into_iter().for_each(|writer| cluster.run(writer).expect("they go on"));
    let counts = server.counts();
    drop((server, clients, cluster));
    executors.iter().for_each(Executor::stop);
    (sums, counts)
}

#[test]
fn snapshots_see_each_moment_as_it_was_while_locks_fall_and_rise() {
    let (mut falls, mut reads) = (0, 0);
    for seed in 0..6 {
        let (sums, counts) = sums_of_snapshots(seed);
        assert!(sums.iter().all(|sum| *sum == 0), "seed {seed}: {sums:?}");
        (falls, reads) = (falls + counts.falls, reads + counts.snapshot_reads);
    }
    assert!(falls > 12 && reads > 100, "{falls} falls, {reads} pages were asked for");
    canary::plant(Some(Canary::PresentForMoment));
    let (sums, _) = sums_of_snapshots(1);
    canary::plant(None);
    assert!(sums.iter().any(|sum| *sum != 0), "a snapshot that shows what is there now is found");
}
