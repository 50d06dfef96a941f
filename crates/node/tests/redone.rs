//! Nodes whose commits carry log records alone: the server has what it would have if they carried pages, also where other nodes change these,
//! and after it has lost its power.

use crate::counting::{Joined, PAGE_SIZE, PAGES, client_settings, count, counters, joined, settings, sum};
use crate::machines::Machines;
use base::time::{MICROSECOND_NS, SECOND_NS};
use base::{PageId, PartitionId, Random};
use engine::page::header;
use engine::second_level::design::Pattern;
use engine::{Database, Error, Internals, PartitionSpec, Result, buffer};
use entresol_node::algorithm::{self, CHANCES};
use entresol_node::channel::Plain;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals, ServerSettings};
use executor::{Cluster, Executor};
use std::rc::Rc;

/// The pages of each partition that are looked at.
const LOOKED_AT: u32 = 6;

/// A server of counters, a tree and a history, and one node.
struct Ground {
    machines: Machines,
    cluster: Cluster,
    executors: [Executor; 2],
    server: PageServer,
    node: PageClient,
    partitions: [PartitionId; 3],
}

impl Ground {
    fn new(commits_pages: bool) -> Ground {
        let machines = Machines::new(5);
        let executors = [machines.server(), machines.client(1)];
        let mut cluster = Cluster::new(executors.iter().cloned());
        let (at, own) = (machines.address(0), machines.address(1));
        let executor = executors[0].clone();
        let serving = executors[0].spawn(async move {
            let database = Database::create(&executor, settings()).await?;
            let mut partitions = [PartitionId(0); 3];
            let specs = [counters(), PartitionSpec::b_tree("tree"), PartitionSpec::append("history")];
            for (partition, spec) in partitions.iter_mut().zip(specs) {
                *partition = database.create_partition(spec).await?;
            }
            let algorithm = algorithm::named("cbl").expect("it is one of them");
            let settings =
                ServerSettings { algorithm, chances: CHANCES, message_size_min: 0, has_leases: true, grants: None };
            let server = PageServer::serve(&database, Rc::new(Plain(executor.for_users())), at, settings).await?;
            Ok::<_, Error>((server, partitions))
        });
        let (server, partitions) = cluster.run(serving).expect("they go on").expect("it starts");
        let executor = executors[1].clone();
        let joining = executors[1].spawn(async move {
            let settings = ClientSettings { commits_pages, ..client_settings(own, 60) };
            let client = PageClient::join(&executor, Rc::new(Plain(executor.for_users())), at, settings).await?;
            // Until a second server would have heard of the first one's clients no write lock is granted.
            executor.sleep_ns(3 * SECOND_NS).await;
            Ok::<_, Error>(client)
        });
        let node = cluster.run(joining).expect("they go on").expect("the server listens");
        node.attach(partitions[0]);
        Ground { machines, cluster, executors, server, node, partitions }
    }

    fn run<T: 'static>(&mut self, work: impl Future<Output = T> + 'static) -> T {
        let task = self.executors[1].spawn(work);
        self.cluster.run(task).expect("they go on")
    }

    /// The server loses its power. What is on its pages after the next start, behind their headers.
    fn contents_after_a_cut(self) -> Vec<(u64, Vec<u8>)> {
        let Ground { machines, cluster, executors, server, node, partitions } = self;
        drop((server, node, cluster));
        executors.iter().for_each(Executor::stop);
        machines.cut_power(&mut Random::stream(5, "cut"));
        let executor = machines.server();
        let found = executor.run(async {
            let database = Database::open(&executor, settings(), "redone").await?;
            contents(&database, partitions).await
        });
        executor.stop();
        found.expect("the machine goes on").expect("it is opened")
    }
}

/// What pages have, behind the number of their changes.
async fn contents(database: &Database, partitions: [PartitionId; 3]) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut all = Vec::new();
    for partition in partitions {
        for number in 0..LOOKED_AT {
            let (page, mut pins) = (PageId::new(partition, number), buffer::Pins::new(database.buffer()));
            database.buffer().resolve(engine::Need::Page(page), Pattern::Random, &mut pins).await?;
            let pool = database.buffer().pool().borrow();
            let bytes = pool.bytes(pool.frame_in_use(page));
            all.push((header::sequence(bytes), bytes[header::HEADER_SIZE..].to_vec()));
        }
    }
    Ok(all)
}

/// Changes records of all kinds: some small, some so that pages are divided, and some pages so often that they are shorter than that.
async fn change_all(node: PageClient, [counters, tree, history]: [PartitionId; 3]) -> Result<()> {
    let mut random = Random::stream(5, "changes");
    for _ in 0..60 {
        let mut tx = node.begin().await;
        tx.modify_object(counters, random.below(4), |object| object[0] += 1).await?;
        tx.append(history, &[7; 30]).await?;
        let key = random.below(60).to_be_bytes();
        match random.below(4) {
            0 => drop(tx.delete(tree, &key).await?),
            _ => tx.put(tree, &key, &vec![1; random.between(10, 60) as usize]).await?,
        }
        tx.commit().await?;
    }
    let mut tx = node.begin().await;
    for number in 0..30 {
        tx.write(PageId::new(counters, 5), 100, &[number; 100]).await?;
    }
    tx.commit().await
}

/// What the server has in the end, how many bytes its node's commits had, and how many pages came without their bytes.
fn changed(commits_pages: bool) -> (Vec<(u64, Vec<u8>)>, u64, u64) {
    let mut ground = Ground::new(commits_pages);
    let work = change_all(ground.node.clone(), ground.partitions);
    ground.run(work).expect("nothing is in its way");
    let bytes = ground.node.traffic().kinds.borrow().get("commit").map_or(0, |commits| commits.bytes);
    let redone = ground.server.counts().redone;
    (ground.contents_after_a_cut(), bytes, redone)
}

#[test]
fn a_server_has_the_same_whether_commits_carry_pages_or_records_alone() {
    let (of_pages, of_records) = (changed(true), changed(false));
    assert!(of_pages.0 == of_records.0, "pages differ");
    assert!(of_pages.0.iter().filter(|(sequence, _)| *sequence > 0).count() > 8);
    let told = format!("{} bytes with pages, {} with records", of_pages.1, of_records.1);
    println!("61 commits: {told}");
    assert!(4 * of_records.1 < of_pages.1, "{told}");
    assert_eq!(of_pages.2, 0);
    assert!(of_records.2 > 100, "{}", of_records.2);
}

#[test]
fn a_page_whose_records_are_longer_than_it_is_sent() {
    let mut ground = Ground::new(false);
    let (node, page) = (ground.node.clone(), PageId::new(ground.partitions[0], 5));
    let mut redone = Vec::new();
    // Both have the bytes before and after in their records, twice as many as they write.
    for times in [1, PAGE_SIZE / 200 + 1] {
        let node = node.clone();
        let write = async move {
            let mut tx = node.begin().await;
            for number in 0..times {
                tx.write(page, 100, &[number as u8 + 1; 100]).await?;
            }
            tx.commit().await
        };
        ground.run(write).expect("nothing is in its way");
        redone.push(ground.server.counts().redone);
    }
    assert_eq!(redone, [1, 1]);
}

/// Two nodes, of which the second one's commits carry pages if that is wanted.
fn two(seed: u64, is_mixed: bool) -> Joined {
    let suit = |settings: ClientSettings| {
        let is_second = settings.address.ip().to_string().ends_with('3');
        ClientSettings { commits_pages: is_mixed && is_second, keeps_write_locks: seed.is_multiple_of(2), ..settings }
    };
    joined((seed, "fwd-hs"), 80, suit)
}

#[test]
fn transactions_that_commit_together_are_redone_together() {
    for (seed, is_mixed) in [(1, false), (2, true), (3, true), (4, false)] {
        let Joined { mut cluster, executors, server, clients, counters } = two(seed, is_mixed);
        let tasks: Vec<_> = (0..12)
            .map(|task| {
                let node = task as usize % 2;
                executors[node + 1].spawn(count(clients[node].clone(), counters, 100 * seed + task, 20))
            })
            .collect();
        let added: u64 = tasks.into_iter().map(|task| cluster.run(task).expect("they go on").0).sum();
        let reader = clients[1].clone();
        let found = cluster.run(executors[2].spawn(async move { sum(&reader, counters).await })).expect("they go on");
        assert_eq!(found, Ok(added), "{seed}");
        let counts = server.counts();
        assert!(counts.redone > 0 && counts.commits < 240 && counts.refused_commits == 0, "{counts:?}");
        server.protocol().check().expect("the directory is right");
        drop((server, clients));
        executors.iter().for_each(Executor::stop);
    }
}

/// Adds one to both counters and commits.
async fn add_to_both(node: PageClient, counters: PartitionId, pair: u32) -> Result<()> {
    let mut tx = node.begin().await;
    for number in [2 * pair, 2 * pair + 1] {
        tx.modify_object(counters, number.into(), |object| object[0] += 1).await?;
    }
    tx.commit().await
}

#[test]
fn no_commit_is_refused_for_the_frames_that_those_need_which_it_is_sent_with() {
    for commits_pages in [false, true] {
        let mut ground = Ground::new(commits_pages);
        let pairs = PAGES as u32 / 2;
        assert!(PAGES as usize > 3 * settings().buffer.frames, "they would not all find frames together");
        for round in 0..3 {
            let commits = |pair| add_to_both(ground.node.clone(), ground.partitions[0], pair);
            let tasks: Vec<_> = (0..pairs).map(|pair| ground.executors[1].spawn(commits(pair))).collect();
            for task in tasks {
                let committed = ground.cluster.run(task).expect("they go on");
                assert_eq!(committed, Ok(()), "with pages: {commits_pages}, round {round}");
            }
        }
        let counts = ground.server.counts();
        assert!(counts.refused_commits == 0 && counts.commits < 3 * u64::from(pairs), "{counts:?}");
        ground.executors.iter().for_each(Executor::stop);
    }
}

#[test]
fn no_commit_is_refused_for_the_frames_that_those_of_another_node_need() {
    for commits_pages in [false, true] {
        let suit = |settings| ClientSettings { commits_pages, transactions: 12, ..settings };
        let Joined { mut cluster, executors, server, clients, counters } = joined((5, "cbl"), 160, suit);
        for round in 0..3 {
            let pairs = (0..PAGES as u32 / 2).map(|pair| (pair, pair as usize % 2));
            let commit = |(pair, node): (u32, usize)| {
                executors[1 + node].spawn(add_to_both(clients[node].clone(), counters, pair))
            };
            for task in Vec::from_iter(pairs.map(commit)) {
                let committed = cluster.run(task).expect("they go on");
                assert_eq!(committed, Ok(()), "with pages: {commits_pages}, round {round}");
            }
        }
        let counts = server.counts();
        assert!(counts.refused_commits == 0 && counts.commits < 3 * PAGES / 2, "{counts:?}");
        executors.iter().for_each(Executor::stop);
    }
}

/// What both of two pages have, as another node finds them.
async fn pair(node: PageClient, pages: [PageId; 2]) -> Result<[u64; 2]> {
    let value = |bytes: &[u8]| u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
    let mut tx = node.begin().await;
    let mut found = [0; 2];
    for (found, page) in found.iter_mut().zip(pages) {
        *found = tx.read(page, value).await?.0;
    }
    Ok(found)
}

#[test]
fn of_a_node_that_vanishes_as_it_commits_all_is_there_or_nothing() {
    let (mut there, mut lost) = (0, 0);
    for after in 0..40 {
        let Joined { mut cluster, executors, server, clients, counters } = two(9, false);
        let [vanishing, other] = clients;
        let pages = [0, 1].map(|number| PageId::new(counters, number));
        let committing = executors[1].spawn(async move {
            for number in 1..=3_u64 {
                let mut tx = vanishing.begin().await;
                for page in pages {
                    tx.write(page, 32, &number.to_le_bytes()).await?;
                }
                tx.commit().await?;
            }
            Ok::<(), Error>(())
        });
        cluster.run_until(cluster.now().plus_ns(after * 50 * MICROSECOND_NS)).expect("they go on");
        let is_done = committing.is_finished();
        executors[1].stop();
        let found = cluster.run(executors[2].spawn(pair(other.clone(), pages))).expect("they go on");
        let [first, second] = found.expect("they can be read");
        assert!(first == second && first <= 3 && (!is_done || first == 3), "{after}: {first} {second} {is_done}");
        there += u32::from(first > 0);
        lost += u32::from(!is_done);
        // Others write the pages when its lease is over.
        let adding = executors[2].spawn(async move {
            let mut tx = other.begin().await;
            for page in pages {
                tx.write(page, 32, &8_u64.to_le_bytes()).await?;
            }
            tx.commit().await?;
            pair(other.clone(), pages).await
        });
        assert_eq!(cluster.run(adding).expect("they go on"), Ok([8, 8]), "{after}");
        server.protocol().check().expect("the directory is right");
        drop(server);
        executors.iter().for_each(Executor::stop);
    }
    assert!(there > 0 && lost > 0, "{there} {lost}");
}

/// Commits that find all frames in use are tried again one at a time, each for a second from its turn on.
#[test]
fn a_commit_that_has_waited_for_its_turn_is_tried_as_long_as_any_other() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((11, "cbl"), 80, |settings| settings);
    let buffer = Rc::clone(server.buffer());
    let executor = executors[0].clone();
    executors[0].spawn(async move {
        // Behind what the clients have read, and before they commit.
        executor.sleep_ns(SECOND_NS / 10).await;
        let mut pins = buffer::Pins::new(&buffer);
        for number in 20..PAGES as u32 {
            let page = engine::Need::Page(PageId::new(counters, number));
            if buffer.resolve(page, Pattern::Random, &mut pins).await.is_err() {
                break;
            }
        }
        executor.sleep_ns(SECOND_NS * 3 / 2).await;
    });
    let commits = clients.iter().zip(0..).map(|(client, number)| {
        let (client, executor) = (client.clone(), executors[number as usize + 1].clone());
        executors[number as usize + 1].spawn(async move {
            let (mut tx, page) = (client.begin().await, PageId::new(counters, number));
            tx.read(page, |_| ()).await?;
            tx.write(page, 100, &[1]).await?;
            executor.sleep_ns(SECOND_NS / 5).await;
            tx.commit().await
        })
    });
    let commits: Vec<_> = commits.collect();
    let mut refused = 0;
    for commit in commits {
        match cluster.run(commit).expect("they go on") {
            Ok(()) => {}
            Err(Error::CommitRefused(_)) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 1, "frames are free before the second one's second is over");
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}
