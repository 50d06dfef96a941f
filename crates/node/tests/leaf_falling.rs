//! Nodes that change records of the same few leaves of a b-tree: with `ps-aa` locks fall to records, and what is committed of one leaf by several
//! nodes comes together at the server, also after a power cut. Some transactions insert, delete, and give values other lengths meanwhile, which
//! takes the leaf.

use crate::counting::client_settings;
use crate::machines::Machines;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use engine::canary::{self, Canary};
use engine::{Database, Direction, Error, PartitionSpec, Result, Settings, buffer};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::leaf_records::number_of;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient, PageSavepoint, PageTransaction};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use entresol_node::server::Counts;
use executor::{Cluster, Executor, JoinHandle};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::OnceLock;

const NODES: u32 = 3;
const PAGE_SIZE: usize = 1024;
/// Far longer than all of it takes that is not for ever.
const LONG_NS: u64 = 100 * SECOND_NS;
/// How many bytes a value has beside its amount that does not fit its leaf.
const LONG: usize = 600;

/// What is run.
#[derive(Clone, Copy)]
struct Load {
    algorithm: &'static str,
    seed: u64,
    /// How many records there are, and how many bytes each has beside its amount.
    keys: u64,
    filling: usize,
    /// How many nodes work, how many of their transactions run at a time, and how many each of these runs one after the other.
    nodes: u32,
    workers: u32,
    transactions: u32,
    /// How long a transaction rests behind each operation, in nanoseconds.
    rest_ns: u64,
    keeps_write_locks: bool,
    commits_pages: bool,
    /// The probability that an operation is one for which a leaf is taken.
    structure: f64,
    /// Whether many records are locked together, for what is made of their keys is the same.
    is_alike: bool,
    /// The probability that an operation is not waited for to its end, if it takes long, and taken back.
    abandons: f64,
}

const LOAD: Load = Load {
    algorithm: "ps-aa",
    seed: 1,
    keys: 12,
    filling: 8,
    nodes: NODES,
    workers: 3,
    transactions: 12,
    rest_ns: MILLISECOND_NS,
    keeps_write_locks: true,
    commits_pages: false,
    structure: 0.0,
    is_alike: false,
    abandons: 0.0,
};

fn settings() -> Settings {
    let buffer = buffer::Settings { frames: 60, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() };
    Settings { buffer, ..Settings::default() }
}

/// How many keys there are in all, and how many numbers under which their records are locked where these are alike.
const KEYS_MAX: u64 = 90;
const NUMBERS: u64 = 5;

impl Load {
    fn key(&self, number: u64) -> [u8; 8] {
        if self.is_alike { alike()[number as usize] } else { number.to_be_bytes() }
    }
}

/// Keys in the order of their numbers, of which every few have the same number on their leaf.
fn alike() -> &'static [[u8; 8]] {
    static KEYS: OnceLock<Vec<[u8; 8]>> = OnceLock::new();
    let key = |number: u64| {
        let tried = (number << 32..).map(u64::to_be_bytes);
        let is_it = |key: &[u8; 8]| u64::from(number_of(key)) == number % NUMBERS;
        tried.into_iter().find(is_it).expect("one of 65,536 is one")
    };
    KEYS.get_or_init(|| (0..KEYS_MAX).map(key).collect())
}

fn amount(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("eight bytes"))
}

fn stored(amount: u64, filling: usize) -> Vec<u8> {
    let mut value = amount.to_le_bytes().to_vec();
    value.resize(8 + filling, 7);
    value
}

/// What a transaction has seen of records, with what it has changed.
type Seen = BTreeMap<u64, Option<u64>>;

/// Moves amounts between records, so that their sum stays what it was, and goes back to savepoints now and then. All that it sees is as it has
/// seen it before, or has left it.
struct Mover<'a> {
    tx: PageTransaction,
    table: PartitionId,
    load: Load,
    random: &'a mut Random,
    seen: Seen,
    /// What it has seen that cannot be.
    wrong: &'a mut Option<String>,
}

impl Mover<'_> {
    fn agree(&mut self, number: u64, found: Option<u64>) {
        let before = self.seen.insert(number, found);
        if before.is_some_and(|before| before != found) {
            self.wrong.get_or_insert(format!("record {number} was {before:?}, and is {found:?}"));
        }
    }

    async fn get(&mut self, number: u64) -> Result<Option<u64>> {
        let found = if self.random.chance(0.3) {
            self.tx.get_for_update(self.table, &self.load.key(number)).await?
        } else {
            self.tx.get(self.table, &self.load.key(number)).await?
        };
        let found = found.map(|value| amount(&value));
        self.agree(number, found);
        Ok(found)
    }

    /// Adds to a record, in one of several ways. False if there is none.
    async fn add(&mut self, number: u64, more: u64) -> Result<bool> {
        let (table, key) = (self.table, self.load.key(number));
        let changed = match self.random.below(3) {
            0 => self.tx.add(table, &key, 0..8, more as i64).await,
            1 => return self.replace(number, more).await,
            _ => {
                let change = |value: &mut [u8]| {
                    let new = amount(value).wrapping_add(more);
                    value[..8].copy_from_slice(&new.to_le_bytes());
                    new
                };
                self.tx.modify(table, &key, change).await
            }
        };
        let new = match changed {
            Ok(new) => Some(new),
            Err(Error::NoRecord(_)) => None,
            // A long value is replaced whole.
            Err(Error::TooLarge { .. }) => return self.replace(number, more).await,
            Err(error) => return Err(error),
        };
        self.agree(number, new.map(|new| new.wrapping_sub(more)));
        self.seen.insert(number, new);
        Ok(new.is_some())
    }

    async fn replace(&mut self, number: u64, more: u64) -> Result<bool> {
        let Some(old) = self.get(number).await? else { return Ok(false) };
        let new = old.wrapping_add(more);
        self.tx.put(self.table, &self.load.key(number), &stored(new, self.load.filling)).await?;
        self.seen.insert(number, Some(new));
        Ok(true)
    }

    /// Sees which records there are between two, and what they are.
    async fn scan(&mut self, first: u64, last: u64) -> Result<()> {
        let (from, to) = (self.load.key(first), self.load.key(last));
        let mut found = BTreeMap::new();
        let look = |key: &[u8], value: &[u8]| {
            let is_within = key <= &to[..];
            found.extend(is_within.then(|| (key.to_vec(), amount(value))));
            is_within
        };
        self.tx.scan(self.table, Bound::Included(&from[..]), look).await?;
        for number in first..=last {
            self.agree(number, found.get(&self.load.key(number)[..]).copied());
        }
        Ok(())
    }

    /// Changes which records there are, or how long one is.
    async fn restructure(&mut self, number: u64, other: u64) -> Result<()> {
        let (table, key) = (self.table, self.load.key(number));
        match self.get(number).await? {
            Some(old) if self.random.chance(0.5) => {
                if self.add(other, old).await? {
                    let is_gone = self.tx.delete(table, &key).await?;
                    self.agree(number, is_gone.then_some(old));
                    self.seen.insert(number, None);
                }
            }
            Some(old) => {
                let length = self.random.below(2 + self.load.filling as u64) as usize;
                let length = if self.random.chance(0.2) { LONG } else { length };
                self.tx.put(table, &key, &stored(old, length)).await?;
            }
            None => {
                if self.add(other, 1_u64.wrapping_neg()).await? {
                    self.tx.insert(table, &key, &stored(1, self.load.filling)).await?;
                    self.seen.insert(number, Some(1));
                }
            }
        }
        Ok(())
    }

    async fn step(&mut self) -> Result<()> {
        let [one, other] = [(); 2].map(|()| self.random.below(self.load.keys));
        if one == other || self.random.chance(0.3) {
            return self.get(one).await.map(drop);
        }
        if self.random.chance(self.load.structure) {
            return match self.random.chance(0.2) {
                true => self.scan(one.min(other), one.max(other)).await,
                false => self.restructure(one, other).await,
            };
        }
        let amount = self.random.between(1, 9);
        if self.add(one, amount.wrapping_neg()).await? && !self.add(other, amount).await? {
            self.add(one, amount).await?;
        }
        Ok(())
    }

    /// Goes back to where it had seen this. What was seen first behind that, and changed, is not known here any more.
    async fn go_back(&mut self, (savepoint, seen): &(PageSavepoint, Seen)) -> Result<()> {
        self.tx.rollback_to(*savepoint).await?;
        self.seen.clone_from(seen);
        for number in self.seen.clone().into_keys() {
            self.get(number).await?;
        }
        Ok(())
    }

    /// Waits for a step, or abandons it and goes back to where it has begun.
    async fn try_step(&mut self, executor: &Executor) -> Result<()> {
        if !self.random.chance(self.load.abandons) {
            return self.step().await;
        }
        let (before, patience_ns) = ((self.tx.savepoint(), self.seen.clone()), self.random.below(MILLISECOND_NS));
        match executor.within(patience_ns, self.step()).await {
            Some(done) => done,
            None => self.go_back(&before).await,
        }
    }

    async fn run(mut self, executor: &Executor) -> Result<()> {
        let mut savepoints = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            if self.random.chance(0.3) {
                savepoints.push((self.tx.savepoint(), self.seen.clone()));
            }
            self.try_step(executor).await?;
            executor.sleep_ns(self.load.rest_ns).await;
            if self.random.chance(0.2)
                && let Some(savepoint) = savepoints.last()
            {
                self.go_back(savepoint).await?;
            }
        }
        if self.random.chance(0.1) { Ok(()) } else { self.tx.commit().await }
    }
}

/// How often one was a victim, and what one has seen that cannot be.
async fn work(
    (client, executor): (PageClient, Executor),
    table: PartitionId,
    seed: u64,
    load: Load,
) -> (u64, Option<String>) {
    let mut random = Random::stream(seed, "movers");
    let (mut victims, mut wrong) = (0, None);
    for _ in 0..load.transactions {
        loop {
            let tx = client.begin().await;
            let (random, seen, wrong) = (&mut random, Seen::new(), &mut wrong);
            let mover = Mover { tx, table, load, random, seen, wrong };
            match mover.run(&executor).await {
                Ok(()) => break,
                // What was not waited for may be made in part.
                Err(Error::Deadlock | Error::Abandoned) => {
                    victims += 1;
                    executor.sleep_ns(random.below(5 * MILLISECOND_NS)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    (victims, wrong)
}

/// Sums of all records, as transactions read them one by one in any order.
async fn sum_often((client, executor): (PageClient, Executor), table: PartitionId, seed: u64, load: Load) -> Vec<u64> {
    let mut random = Random::stream(seed, "sums");
    let mut sums = Vec::new();
    while sums.len() < 6 {
        match sum((&client, &executor), table, &mut random, load).await {
            Ok(sum) => sums.push(sum),
            Err(Error::Deadlock) => executor.sleep_ns(random.below(5 * MILLISECOND_NS)).await,
            Err(error) => panic!("{error}"),
        }
        executor.sleep_ns(random.below(20 * MILLISECOND_NS)).await;
    }
    sums
}

async fn sum(
    (client, executor): (&PageClient, &Executor),
    table: PartitionId,
    random: &mut Random,
    load: Load,
) -> Result<u64> {
    let mut sum = 0_u64;
    let first = random.below(load.keys);
    let numbers = (0..load.keys).map(|number| (first + number) % load.keys);
    if random.chance(0.3) {
        let mut snapshot = client.snapshot().await?;
        for number in numbers {
            executor.sleep_ns(random.below(MILLISECOND_NS)).await;
            let found = snapshot.get(table, &load.key(number)).await?;
            sum = sum.wrapping_add(found.map_or(0, |value| amount(&value)));
        }
        return Ok(sum);
    }
    let mut tx = client.begin().await;
    for number in numbers {
        let found = tx.get(table, &load.key(number)).await?;
        sum = sum.wrapping_add(found.map_or(0, |value| amount(&value)));
    }
    tx.commit().await?;
    Ok(sum)
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
        [machines.server()].into_iter().chain((1..=load.nodes).map(|number| machines.client(number))).collect();
    let mut cluster = Cluster::new(executors.iter().cloned());
    let (at, executor) = (machines.address(0), executors[0].clone());
    let serving = executors[0].spawn(async move {
        let database = Database::create(&executor, settings()).await?;
        let table = database.create_partition(PartitionSpec::b_tree("table")).await?;
        for number in 0..load.keys {
            let put =
                async |tx: &mut engine::Transaction| tx.put(table, &load.key(number), &stored(0, load.filling)).await;
            database.transaction(put).await?;
        }
        let algorithm = algorithm::named(load.algorithm).expect("it is one of them");
        let settings =
            ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants: None };
        let server = PageServer::serve(&database, Rc::new(Plain(executor.for_users())), at, settings).await?;
        Ok::<_, Error>((server, table))
    });
    let (server, table) = cluster.run(serving).expect("they go on").expect("it starts");
    let mut clients = Vec::new();
    for number in 1..=load.nodes {
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

struct Ran {
    counts: Counts,
    victims: u64,
    wrong: Option<String>,
    sums: Vec<u64>,
    /// The sum of all records after the server has lost its power.
    left: u64,
}

fn run(load: Load) -> Ran {
    let Started { machines, executors, mut cluster, server, clients, table } = start(load);
    let (mut workers, mut readers) = (Vec::new(), Vec::new());
    for (client, executor) in clients.iter().zip(&executors[1..]) {
        let at = || (client.clone(), executor.clone());
        for _ in 0..load.workers {
            let seed = load.seed * 1000 + workers.len() as u64;
            workers.push(executor.spawn(work(at(), table, seed, load)));
        }
        readers.push(executor.spawn(sum_often(at(), table, load.seed * 1000 + readers.len() as u64, load)));
    }
    let end = cluster.now().plus_ns(LONG_NS);
    while !(workers.iter().all(JoinHandle::is_finished) && readers.iter().all(JoinHandle::is_finished)) {
        assert!(cluster.now() < end, "seed {}: they wait and wait: {:?}", load.seed, server.counts());
        cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    }
    let sums = readers.into_iter().flat_map(|reader| cluster.run(reader).expect("they go on")).collect();
    let (mut victims, mut wrong) = (0, None);
    for worker in workers {
        let (more, found) = cluster.run(worker).expect("they go on");
        (victims, wrong) = (victims + more, wrong.or(found));
    }
    server.protocol().check().expect("the server's state is right");
    let counts = server.counts();
    drop((server, clients, cluster));
    executors.iter().for_each(Executor::stop);
    machines.cut_power(&mut Random::stream(load.seed, "cut"));
    let executor = machines.server();
    let left = executor.run(async {
        let database = Database::open(&executor, settings(), "falling").await?;
        assert!(database.check(|_| {}).await?.findings.is_empty(), "the database is sound");
        let mut transaction = database.begin().await?;
        let mut left = 0_u64;
        let mut cursor = transaction.cursor(table, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while let Some((_, value)) = transaction.next(&mut cursor).await? {
            left = left.wrapping_add(amount(&value));
        }
        Ok::<_, Error>(left)
    });
    executor.stop();
    Ran { counts, victims, wrong, sums, left: left.expect("the machine goes on").expect("it is opened") }
}

#[test]
fn what_nodes_change_of_the_same_leaves_comes_together_at_the_server() {
    let (mut falls, mut records) = (0, 0);
    for seed in 0..24 {
        let load = Load {
            seed,
            keys: [6, 12, 90][seed as usize / 8 % 3],
            filling: [8, 20, 40][seed as usize / 8 % 3],
            keeps_write_locks: seed % 2 == 0,
            commits_pages: seed % 5 == 0,
            rest_ns: if seed % 4 == 3 { 0 } else { MILLISECOND_NS },
            structure: [0.0, 0.05, 0.3][seed as usize / 3 % 3],
            is_alike: seed % 4 >= 2,
            abandons: if seed % 8 < 3 { 0.0 } else { 0.5 },
            ..LOAD
        };
        let ran = run(load);
        let told = format!("seed {seed}, {} victims: {:?}", ran.victims, ran.counts);
        assert_eq!(ran.wrong, None, "{told}");
        assert!(ran.sums.iter().all(|sum| *sum == 0), "{told}: {:?}", ran.sums);
        assert_eq!(ran.left, 0, "{told}");
        assert_eq!((ran.counts.refused_commits, ran.counts.misbehaviours), (0, 0), "{told}");
        (falls, records) = (falls + ran.counts.falls, records + ran.counts.records);
    }
    assert!(falls > 50 && records > 500, "{falls} falls, {records} records");
}

/// The first seed whose sums are not what they have to be.
fn first_wrong(seeds: std::ops::Range<u64>) -> Option<u64> {
    seeds.into_iter().find(|seed| {
        let ran = run(Load { seed: *seed, structure: 0.1, ..LOAD });
        ran.left != 0 || ran.wrong.is_some() || ran.sums.iter().any(|sum| *sum != 0)
    })
}

#[test]
fn a_node_that_forgets_which_keys_were_read_is_found() {
    canary::plant(Some(Canary::UnnotedKey));
    let found = first_wrong(0..48);
    canary::plant(None);
    assert!(found.is_some());
}

/// How long it takes in virtual time that two nodes change two records each of one leaf in each transaction, in nanoseconds, and how many
/// messages there are for that.
fn change_apart(algorithm: &'static str, rest_ns: u64) -> (u64, u64, Counts) {
    const TRANSACTIONS: u64 = 200;
    let load = Load { algorithm, nodes: 2, keys: 8, ..LOAD };
    let Started { executors, mut cluster, server, clients, table, .. } = start(load);
    let messages = || {
        let sent =
            clients.iter().map(PageClient::traffic).chain([server.traffic()]).map(|traffic| traffic.messages.get());
        sent.sum::<u64>()
    };
    let (began, before) = (cluster.now(), messages());
    let workers: Vec<_> = clients
        .iter()
        .zip(&executors[1..])
        .zip(0..)
        .map(|((client, executor), node): (_, u64)| {
            let (client, pause) = (client.clone(), executor.clone());
            executor.spawn(async move {
                for _ in 0..TRANSACTIONS {
                    let added = client.transaction(async |tx| {
                        for number in [node, node + 2] {
                            tx.add(table, &load.key(number), 0..8, 1).await?;
                            pause.sleep_ns(rest_ns).await;
                        }
                        Ok::<_, Error>(())
                    });
                    added.await.expect("the server is there");
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| cluster.run(worker).expect("they go on"));
    let (elapsed_ns, sent, counts) = (cluster.now().since_ns(began), messages() - before, server.counts());
    drop((server, clients, cluster));
    executors.iter().for_each(Executor::stop);
    (elapsed_ns, sent, counts)
}

#[test]
fn nodes_that_change_different_records_of_one_leaf_do_not_take_turns() {
    for rest_ns in [0, MILLISECOND_NS] {
        let [pages, records] = ["cbl", "ps-aa"].map(|algorithm| change_apart(algorithm, rest_ns));
        for (name, (elapsed_ns, messages, counts)) in [("cbl", &pages), ("ps-aa", &records)] {
            println!("{name}, rest {rest_ns}: {} us, {messages} messages, {counts:?}", elapsed_ns / 1000);
        }
        assert!(rest_ns == 0 || 3 * records.0 < 2 * pages.0, "{} {}", pages.0, records.0);
    }
}
