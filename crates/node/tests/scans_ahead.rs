//! Scans at a node of what it does not have: the pages ahead of them come while they go on.

use crate::machines::Machines;
use crate::things::{PAGE_SIZE, serve_database, settings};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PageId, Random};
use engine::catalog::{Locking, Organization};
use engine::organization::allocator;
use engine::{Database, Direction, Error, PartitionSpec, Result, buffer};
use entresol_node::algorithm::ALGORITHMS;
use entresol_node::channel::Plain;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals};
use executor::{Cluster, Executor, JoinHandle, WholeExecutor};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Bound;
use std::rc::Rc;
use std::task::Poll;

const RECORDS: u32 = 2_000;
/// From a node to the server and back.
const ROUND_TRIP_NS: u64 = 2 * MILLISECOND_NS;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; 100]
}

/// Some hundred leaves of a b-tree, and as many pages of an append partition.
async fn fill(database: &Database) -> Result<()> {
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
    database.load_b_tree(tree, (0..RECORDS).map(|number| (key(number), value(number))), |_| {}).await?;
    let organization = Organization::Append { blocking_factor: 0 };
    let history = database.create_partition(PartitionSpec::new("history", organization, Locking::None)).await?;
    for first in (0..RECORDS).step_by(100) {
        let append = async |tx: &mut engine::Transaction| {
            for number in first..first + 100 {
                tx.append(history, &value(number)).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(append).await?;
    }
    Ok(())
}

/// A server and two nodes, far from each other.
struct Far {
    cluster: Cluster,
    executors: Vec<Executor>,
    server: PageServer,
    clients: Vec<PageClient>,
}

impl Far {
    fn new(seed: u64, frames: usize) -> Far {
        let machines = Machines::far_apart(seed, ROUND_TRIP_NS / 2);
        let executors = vec![machines.server(), machines.client(1), machines.client(2)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let (at, executor) = (machines.address(0), executors[0].clone());
        let serving = executors[0].spawn(async move {
            let database = Database::create(&executor, settings()).await?;
            fill(&database).await?;
            Ok::<_, Error>(serve_database(&database, at, seed as usize, None).await)
        });
        let server = cluster.run(serving).expect("it starts").expect("there is room");
        let mut clients = Vec::new();
        for number in 1..=2 {
            let (executor, address) = (executors[number as usize].clone(), machines.address(number));
            let joining = executors[number as usize].spawn(async move {
                let buffer =
                    buffer::Settings { frames, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() };
                let settings = ClientSettings {
                    buffer,
                    address,
                    message_size_min: 0,
                    transactions: 8,
                    keeps_write_locks: seed % 2 == 1,
                    commits_pages: true,
                    lock_wait_ns_max: None,
                    patience_ns: 60 * SECOND_NS,
                };
                PageClient::join(&executor, Rc::new(Plain(executor.for_users())), at, settings).await
            });
            clients.push(cluster.run(joining).expect("they go on").expect("the server listens"));
        }
        // Until then leases of an earlier server might not be over.
        cluster.run_until(cluster.now().plus_ns(3 * SECOND_NS)).expect("they go on");
        Far { cluster, executors, server, clients }
    }

    /// Has a node do something.
    fn start<T: 'static>(
        &self,
        node: usize,
        work: impl AsyncFnOnce(&PageClient) -> Result<T> + 'static,
    ) -> JoinHandle<Result<T>> {
        let client = self.clients[node].clone();
        self.executors[node + 1].spawn(async move { work(&client).await })
    }

    fn wait<T: 'static>(&mut self, task: JoinHandle<Result<T>>) -> T {
        self.cluster.run(task).expect("they go on").unwrap_or_else(|error| panic!("{error}"))
    }

    fn run<T: 'static>(&mut self, node: usize, work: impl AsyncFnOnce(&PageClient) -> Result<T> + 'static) -> T {
        let task = self.start(node, work);
        self.wait(task)
    }

    /// How many pages a node has asked for.
    fn asked(&self, node: usize) -> u64 {
        self.sent(node, "read")
    }

    fn sent(&self, node: usize, kind: &str) -> u64 {
        self.clients[node].traffic().kinds.borrow().get(kind).map_or(0, |sent| sent.messages)
    }

    /// For how long, in nanoseconds, a node does something, and how many pages it asks for.
    fn timed(&mut self, node: usize, work: impl AsyncFnOnce(&PageClient) -> Result<()> + 'static) -> (u64, u64) {
        let (began, asked) = (self.cluster.now(), self.asked(node));
        self.run(node, work);
        let took_ns = self.cluster.now().since_ns(began);
        self.cluster.run_until(self.cluster.now().plus_ns(SECOND_NS)).expect("they go on");
        (took_ns, self.asked(node) - asked)
    }

    fn end(self) {
        self.server.protocol().check().expect("the directory is right");
        assert_eq!(self.server.protocol().waiting(), 0, "nothing waits");
        let Far { cluster, executors, server, clients } = self;
        drop((clients, server));
        executors.iter().for_each(Executor::stop);
        drop(cluster);
    }
}

async fn scan_tree(client: &PageClient, direction: Direction, limit: usize) -> Result<()> {
    let mut tx = client.begin().await;
    let tree = tx.partition("tree").await?.id();
    let found = tx.scan_range(tree, .., direction).take(limit).await?;
    let mut expected: Vec<u32> = (0..RECORDS).collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    let expected = expected.into_iter().take(limit).map(|number| (key(number).to_vec(), value(number)));
    assert!(found.into_iter().eq(expected));
    tx.commit().await
}

async fn scan_history(client: &PageClient) -> Result<()> {
    let mut tx = client.begin().await;
    let history = tx.partition("history").await?.id();
    let mut count = 0;
    let look = |_, record: &[u8]| {
        assert_eq!(record, value(count));
        count += 1;
        true
    };
    tx.scan_appended(history, look).await?;
    assert_eq!(count, RECORDS);
    tx.commit().await
}

async fn scan_snapshot(client: &PageClient) -> Result<()> {
    let mut snapshot = client.snapshot().await?;
    let tree = snapshot.partition("tree").await?.id();
    let history = snapshot.partition("history").await?.id();
    let mut count = 0;
    let look = |found: &[u8], record: &[u8]| {
        assert_eq!((found, record), (&key(count)[..], &value(count)[..]));
        count += 1;
        true
    };
    snapshot.scan(tree, Bound::Unbounded, look).await?;
    assert_eq!(count, RECORDS);
    let look = |_, _: &[u8]| {
        count -= 1;
        true
    };
    snapshot.scan_appended(history, look).await?;
    assert_eq!(count, 0);
    Ok(())
}

#[test]
fn a_scan_waits_for_a_few_of_its_round_trips_only() {
    for seed in 0..ALGORITHMS.len() as u64 {
        let mut far = Far::new(seed, 1_024);
        let name = ALGORITHMS[seed as usize].name();
        let forward = far.timed(0, async |client| scan_tree(client, Direction::Forward, usize::MAX).await);
        let backward = far.timed(1, async |client| scan_tree(client, Direction::Backward, usize::MAX).await);
        let appended = far.timed(0, async |client| scan_history(client).await);
        for (way, (took_ns, asked)) in [("forward", forward), ("backward", backward), ("appended", appended)] {
            assert!(asked > 150, "{name}, {way}: {asked}");
            let trips = took_ns / ROUND_TRIP_NS;
            assert!(trips < asked / 8, "{name}, {way}: {asked} pages in {trips} round trips");
        }
        far.end();
        // Of a snapshot nothing enters the buffer.
        let mut far = Far::new(seed, 1_024);
        let (took_ns, _) = far.timed(0, async |client| scan_snapshot(client).await);
        let asked = far.sent(0, "snapshot read");
        assert!(asked > 400 && took_ns / ROUND_TRIP_NS < asked / 8, "{name}: {asked} pages in {took_ns} ns");
        let pages = far.run(0, async |client| {
            let history = client.partition("history").await?.id();
            let mut tx = client.begin().await;
            let (pages, _) = tx.read(PageId::new(history, 0), |page| allocator::read(page).page_count).await?;
            Ok(u64::from(pages))
        });
        // The tree has about as many.
        assert!(asked < 2 * pages + pages / 3, "{name}: {asked} pages are asked for, {pages} are appended");
        far.end();
    }
}

#[test]
fn a_short_range_asks_for_no_page_in_vain_and_a_longer_one_for_few() {
    let mut far = Far::new(0, 1_024);
    let (_, few) = far.timed(0, async |client| scan_tree(client, Direction::Forward, 4).await);
    // A leaf, its parent and the root.
    assert!(few <= 3, "{few}");
    let (_, all) = far.timed(1, async |client| scan_tree(client, Direction::Forward, 100).await);
    // Some 13 leaves.
    assert!(all <= few + 2 * 13 + 2, "{all}");
    far.end();
}

#[test]
fn a_small_buffer_is_not_filled_with_what_comes_later() {
    let mut far = Far::new(0, 1_024);
    let (_, once) = far.timed(0, async |client| scan_tree(client, Direction::Forward, usize::MAX).await);
    far.end();
    for frames in [16, 40, 100] {
        let mut far = Far::new(0, frames);
        let (_, asked) = far.timed(0, async |client| scan_tree(client, Direction::Forward, usize::MAX).await);
        assert!(asked <= once + once / 20, "{frames} frames: {asked} pages, {once} with many");
        far.end();
    }
}

/// A writer at another node has a leaf that a scan asks for ahead and never comes to, and waits for the scan: that is no deadlock, nor
/// anything that the scan waits for.
#[test]
fn a_scan_waits_for_no_writer_of_a_page_that_it_does_not_come_to() {
    for seed in 0..2 * ALGORITHMS.len() as u64 {
        let mut far = Far::new(seed, 1_024);
        let (wants_more, goes_on) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let [wants, goes] = [&wants_more, &goes_on].map(Rc::clone);
        let writing = far.start(1, async move |client| {
            let mut tx = client.begin().await;
            let tree = tx.partition("tree").await?.id();
            tx.put(tree, &key(70), &[1; 10]).await?;
            goes.set(true);
            while !wants.get() {
                client.executor().sleep_ns(MILLISECOND_NS).await;
            }
            // The scan has it.
            tx.put(tree, &key(0), &[1; 10]).await?;
            tx.commit().await
        });
        let scanning = far.start(0, async move |client| {
            while !goes_on.get() {
                client.executor().sleep_ns(MILLISECOND_NS).await;
            }
            let mut tx = client.begin().await;
            let tree = tx.partition("tree").await?.id();
            let mut scan = tx.scan_range(tree, .., Direction::Forward);
            let began = client.executor().now();
            assert_eq!(scan.take(45).await?.len(), 45);
            wants_more.set(true);
            client.executor().sleep_ns(100 * ROUND_TRIP_NS).await;
            assert_eq!(scan.take(5).await?.len(), 5);
            let took_ns = client.executor().now().since_ns(began) - 100 * ROUND_TRIP_NS;
            assert!(took_ns < 20 * ROUND_TRIP_NS, "it waits for {took_ns} ns");
            tx.commit().await
        });
        far.wait(scanning);
        far.wait(writing);
        assert_eq!(far.server.protocol().counts().victims, 0, "seed {seed}");
        far.end();
    }
}

/// A transaction has a leaf locked in its node and does not wait for it to come: a call that has waited for the lock is over. The scan of another
/// transaction asks for that leaf ahead, which a writer at another node has, and the writer waits for the first: that is no deadlock.
#[test]
fn a_scan_asks_for_no_page_in_the_name_of_a_transaction_that_does_not_wait_for_it() {
    for seed in (0..2 * ALGORITHMS.len()).filter(|seed| !ALGORITHMS[seed % ALGORITHMS.len()].falls()) {
        let mut far = Far::new(seed as u64, 1_024);
        let [is_locked, is_written, is_asked] = [0; 3].map(|_| Rc::new(Cell::new(false)));
        let [locked, written, asked] = [&is_locked, &is_written, &is_asked].map(Rc::clone);
        let writing = far.start(1, async move |client| {
            let mut tx = client.begin().await;
            let tree = tx.partition("tree").await?.id();
            until(client, &locked).await;
            tx.put(tree, &key(70), &[1; 10]).await?;
            written.set(true);
            until(client, &asked).await;
            assert!(tx.get(tree, &key(1_500)).await?.is_some_and(|value| value == [2; 10]));
            tx.commit().await
        });
        let scanning = far.start(0, async move |client| {
            let (mut first, mut other) = (client.begin().await, client.begin().await);
            let tree = first.partition("tree").await?.id();
            first.put(tree, &key(70), &[2; 10]).await?;
            other.put(tree, &key(1_500), &[2; 10]).await?;
            let wanted = key(70);
            let mut call = Box::pin(other.get(tree, &wanted));
            for _ in 0..5 {
                let is_done = poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
                assert!(!is_done, "the leaf is locked");
                client.executor().sleep_ns(MILLISECOND_NS).await;
            }
            // It gets the lock, and comes to nothing more.
            drop(first);
            drop(call);
            is_locked.set(true);
            until(client, &is_written).await;
            let mut tx = client.begin().await;
            let mut scan = tx.scan_range(tree, .., Direction::Forward);
            assert_eq!(scan.take(45).await?.len(), 45);
            client.executor().sleep_ns(10 * ROUND_TRIP_NS).await;
            is_asked.set(true);
            client.executor().sleep_ns(10 * ROUND_TRIP_NS).await;
            other.commit().await?;
            tx.commit().await
        });
        far.wait(scanning);
        far.wait(writing);
        let counts = far.server.protocol().counts();
        assert_eq!(counts.victims, 0, "seed {seed}");
        assert!(counts.would_block > 0, "seed {seed}: the scan asks for the leaf");
        far.end();
    }
}

async fn until(client: &PageClient, is_so: &Cell<bool>) {
    while !is_so.get() {
        client.executor().sleep_ns(MILLISECOND_NS).await;
    }
}

/// What a scan has asked for ahead when it ends, its transaction with it, is in no one's way.
#[test]
fn nothing_is_left_of_what_was_asked_for_when_a_transaction_ends() {
    for seed in 0..2 * ALGORITHMS.len() as u64 {
        let mut far = Far::new(seed, 200);
        for limit in [30, 60, 150, 400] {
            far.run(0, async move |client| {
                let mut tx = client.begin().await;
                let tree = tx.partition("tree").await?.id();
                let found = tx.scan_range(tree, .., Direction::Forward).take(limit).await?;
                assert_eq!(found.len(), limit);
                if limit % 20 == 0 {
                    return tx.commit().await;
                }
                drop(tx);
                Ok(())
            });
            // At once, while pages are on their way.
            let (took_ns, _) = far.timed(1, async |client| {
                let mut tx = client.begin().await;
                let tree = tx.partition("tree").await?.id();
                for number in (0..600).step_by(10) {
                    tx.put(tree, &key(number), &value(number)).await?;
                }
                tx.commit().await
            });
            assert!(took_ns < 5 * SECOND_NS, "seed {seed}: {took_ns} ns");
        }
        assert_eq!(far.server.protocol().counts().victims, 0, "seed {seed}");
        far.run(0, async |client| scan_tree(client, Direction::Forward, usize::MAX).await);
        far.end();
    }
}

const WRITES: usize = 30;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a writer has committed, in order: how many of these are acknowledged, and how many are begun.
#[derive(Default)]
struct Written {
    states: RefCell<Vec<Model>>,
    acknowledged: Cell<usize>,
}

/// Changes, adds and deletes records, so that leaves split and merge.
async fn write(client: &PageClient, written: &Written, random: &mut Random) -> Result<()> {
    let executor = client.executor().whole().clone();
    for _ in 0..WRITES {
        let mut after = written.states.borrow().last().cloned().expect("it begins with one");
        let from = random.below(u64::from(RECORDS)) as u32;
        let changes: Vec<(u32, Option<Vec<u8>>)> = (0..random.between(1, 20))
            .map(|_| {
                let number = (from + random.below(60) as u32) % (2 * RECORDS);
                let length = random.below(300) as usize;
                (number, random.chance(0.7).then(|| vec![random.below(256) as u8; length]))
            })
            .collect();
        for (number, value) in &changes {
            match value {
                Some(value) => drop(after.insert(key(*number).to_vec(), value.clone())),
                None => drop(after.remove(&key(*number)[..])),
            }
        }
        written.states.borrow_mut().push(after);
        loop {
            match change(client, &changes).await {
                Ok(()) => break,
                Err(Error::Deadlock) => {}
                Err(error) => return Err(error),
            }
        }
        written.acknowledged.set(written.states.borrow().len() - 1);
        executor.sleep_ns(random.below(20 * MILLISECOND_NS)).await;
    }
    Ok(())
}

async fn change(client: &PageClient, changes: &[(u32, Option<Vec<u8>>)]) -> Result<()> {
    let mut tx = client.begin().await;
    let tree = tx.partition("tree").await?.id();
    for (number, value) in changes {
        match value {
            Some(value) => tx.put(tree, &key(*number), value).await?,
            None => drop(tx.delete(tree, &key(*number)).await?),
        }
    }
    tx.commit().await
}

/// One range of a scan: what it has shown.
async fn look(client: &PageClient, (from, to): (u32, u32), direction: Direction) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut tx = client.begin().await;
    let tree = tx.partition("tree").await?.id();
    let (from, to) = (key(from), key(to));
    let range = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    let found = tx.scan_range(tree, range, direction).take(usize::MAX).await?;
    tx.commit().await.map(|()| found)
}

#[test]
fn scans_show_one_moment_whatever_another_node_writes_ahead_of_them() {
    for seed in 0..2 * ALGORITHMS.len() as u64 {
        let frames = [48, 128, 400][seed as usize % 3];
        let mut far = Far::new(seed, frames);
        let written = Rc::new(Written::default());
        let first = (0..RECORDS).map(|number| (key(number).to_vec(), value(number))).collect();
        written.states.borrow_mut().push(first);
        let (here, mut random) = (Rc::clone(&written), Random::stream(seed, "writer"));
        let writing = far.start(1, async move |client| write(client, &here, &mut random).await);
        let (here, mut random) = (Rc::clone(&written), Random::stream(seed, "scans"));
        let scanning = far.start(0, async move |client| {
            let mut compared = 0;
            while here.acknowledged.get() < WRITES {
                let from = random.below(u64::from(2 * RECORDS)) as u32;
                let to = from + random.below(u64::from(RECORDS / 4)) as u32;
                let direction = if random.chance(0.5) { Direction::Forward } else { Direction::Backward };
                let least = here.acknowledged.get();
                let found = match look(client, (from, to), direction).await {
                    Ok(found) => found,
                    Err(Error::Deadlock) => continue,
                    Err(error) => return Err(error),
                };
                let is_it = |state: &Model| {
                    let within = state.range(key(from).to_vec()..key(to).to_vec());
                    let found = found.iter().map(|(key, value)| (key, value));
                    match direction {
                        Direction::Forward => within.eq(found),
                        Direction::Backward => within.rev().eq(found),
                    }
                };
                assert!(here.states.borrow()[least..].iter().any(is_it), "seed {seed}: {from} to {to}, {direction:?}");
                compared += 1;
                client.executor().sleep_ns(random.below(20 * MILLISECOND_NS)).await;
            }
            Ok(compared)
        });
        far.wait(writing);
        let compared = far.wait(scanning);
        assert!(compared > 5, "seed {seed}: {compared}");
        far.end();
    }
}
