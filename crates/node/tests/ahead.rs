//! Pages that a transaction asks for together.

use crate::counting::{Joined, joined, joined_on};
use base::PageId;
use base::time::SECOND_NS;
use engine::catalog::{Locking, Organization};
use engine::{PartitionSpec, Result};
use entresol_node::algorithm::ALGORITHMS;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server::ServerInternals;
use executor::{Cluster, Executor, JoinHandle};

/// Eight pages may be asked for ahead with them.
const FRAMES: usize = 64;
const LONG_NS: u64 = 10 * SECOND_NS;

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

/// Runs something at a node while the others go on.
fn at<T: 'static, F: Future<Output = engine::Result<T>> + 'static>(
    cluster: &mut Cluster,
    (client, executor): (&PageClient, &Executor),
    work: impl FnOnce(PageClient, Executor) -> F,
) -> T {
    let task = executor.spawn(work(client.clone(), executor.clone()));
    cluster.run_until(cluster.now().plus_ns(LONG_NS)).expect("they go on");
    assert!(task.is_finished(), "it goes on and on");
    cluster.run(task).expect("they go on").unwrap_or_else(|error| panic!("{error}"))
}

async fn add(client: PageClient, page: PageId) -> engine::Result<u64> {
    let mut transaction = client.begin().await;
    let (found, _) = transaction.read(page, value).await?;
    transaction.write(page, 32, &(found + 1).to_le_bytes()).await?;
    transaction.commit().await.map(|()| found)
}

#[test]
fn pages_that_are_asked_for_together_are_waited_for_together() {
    let Joined { mut cluster, executors, server, clients, counters } = joined((3, "cbl"), FRAMES, |settings| settings);
    let pages = (0..9).map(move |number| PageId::new(counters, number));
    // From now on they are in the server's memory.
    let all = pages.clone();
    at(&mut cluster, (&clients[1], &executors[2]), async move |client, _| {
        let mut transaction = client.begin().await;
        for page in all {
            transaction.read(page, value).await?;
        }
        transaction.commit().await
    });
    at(&mut cluster, (&clients[0], &executors[1]), async move |client, executor| {
        let mut transaction = client.begin().await;
        let began = executor.now();
        transaction.read(PageId::new(counters, 0), value).await?;
        let alone_ns = executor.now().since_ns(began);
        let began = executor.now();
        transaction.read_ahead(pages.clone().skip(1)).await?;
        assert_eq!(executor.now(), began, "nothing is waited for");
        for page in pages.skip(1) {
            transaction.read(page, value).await?;
        }
        let together_ns = executor.now().since_ns(began);
        assert!(together_ns < 3 * alone_ns, "eight pages in {together_ns} ns, one in {alone_ns} ns");
        let asked = client.traffic().kinds.borrow().get("read").map_or(0, |reads| reads.messages);
        assert_eq!(asked, 9, "each is asked for once");
        transaction.commit().await
    });
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}

/// Nothing is left of what was asked for and not looked at; and what another transaction writes is looked at when that has ended.
#[test]
fn what_is_asked_for_ahead_is_in_no_ones_way_for_longer_than_its_transaction() {
    for algorithm in ALGORITHMS {
        let Joined { mut cluster, executors, server, clients, counters } =
            joined((4, algorithm.name()), FRAMES, |settings| settings);
        let page = move |number| PageId::new(counters, number);
        at(&mut cluster, (&clients[0], &executors[1]), async move |client, executor| {
            let mut writer = client.begin().await;
            writer.lock(page(3)).await?;
            let mut ahead = client.begin().await;
            ahead.read_ahead((0..6).map(page)).await?;
            writer.write(page(3), 32, &7_u64.to_le_bytes()).await?;
            // One ends before anything has come, and one when all has.
            let mut early = client.begin().await;
            early.read_ahead((6..12).map(page)).await?;
            early.commit().await?;
            executor.sleep_ns(SECOND_NS).await;
            writer.commit().await?;
            let (found, _) = ahead.read(page(3), value).await?;
            assert_eq!(found, 7);
            ahead.commit().await
        });
        for number in 0..12 {
            for (client, executor) in clients.iter().zip(&executors[1..]) {
                at(&mut cluster, (client, executor), async move |client, _| add(client, page(number)).await);
            }
        }
        server.protocol().check().expect("the directory is right");
        assert_eq!(server.protocol().waiting(), 0, "nothing waits");
        drop((server, clients));
        executors.iter().for_each(Executor::stop);
    }
}

fn many_counters() -> PartitionSpec {
    let organization = Organization::Direct { objects: 1_000, blocking_factor: 1, record_size: 8 };
    PartitionSpec::new("counters", organization, Locking::None)
}

/// A scan of the pages with these numbers, which asks for them ahead.
async fn scan(client: PageClient, pages: impl Iterator<Item = PageId> + Clone) -> Result<()> {
    let mut transaction = client.begin().await;
    transaction.read_ahead(pages.clone()).await?;
    for page in pages {
        transaction.read(page, value).await?;
    }
    transaction.commit().await
}

/// All of them have ended by now, each well.
fn end(cluster: &mut Cluster, tasks: Vec<JoinHandle<Result<()>>>, otherwise: &str) {
    for task in tasks {
        assert!(task.is_finished(), "{otherwise}");
        cluster.run(task).expect("they go on").unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Pages that another node writes take their frames until it has ended, and it may wait for a transaction that needs one more.
#[test]
fn what_is_asked_for_ahead_leaves_frames_to_others() {
    let Joined { mut cluster, executors, server, clients, counters } =
        joined_on(many_counters(), (5, "cbl", true), FRAMES, |settings| settings);
    let page = move |number| PageId::new(counters, number);
    let (client, executor) = (clients[1].clone(), executors[2].clone());
    let writing = executors[2].spawn(async move {
        let mut writer = client.begin().await;
        for number in 0..56 {
            writer.lock(page(number)).await?;
        }
        executor.sleep_ns(3 * SECOND_NS).await;
        writer.lock(page(100)).await?;
        writer.commit().await
    });
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let (client, executor) = (clients[0].clone(), executors[1].clone());
    let needy = executors[1].spawn(async move {
        let mut needy = client.begin().await;
        for number in 100..108 {
            needy.lock(page(number)).await?;
        }
        executor.sleep_ns(4 * SECOND_NS).await;
        needy.read(page(200), value).await?;
        needy.commit().await
    });
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let ahead =
        (0..7).map(|number| executors[1].spawn(scan(clients[0].clone(), (8 * number..8 * number + 8).map(page))));
    let all: Vec<_> = [writing, needy].into_iter().chain(ahead).collect();
    cluster.run_until(cluster.now().plus_ns(2 * LONG_NS)).expect("they go on");
    end(&mut cluster, all, "one waits for another, and that for a frame");
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}

/// A client that has many requests waiting has those of its transactions ended that have several.
#[test]
fn who_asks_ahead_is_no_victim_for_having_asked_for_much() {
    let Joined { mut cluster, executors, server, clients, counters } =
        joined_on(many_counters(), (6, "cbl", true), 8_192, |settings| ClientSettings { transactions: 16, ..settings });
    let page = move |number| PageId::new(counters, number);
    let (client, executor) = (clients[1].clone(), executors[2].clone());
    let writing = executors[2].spawn(async move {
        let mut writer = client.begin().await;
        for number in 0..640 {
            writer.lock(page(number)).await?;
        }
        executor.sleep_ns(LONG_NS).await;
        writer.commit().await
    });
    cluster.run_until(cluster.now().plus_ns(LONG_NS)).expect("they go on");
    let ahead =
        (0..10).map(|number| executors[1].spawn(scan(clients[0].clone(), (64 * number..64 * number + 64).map(page))));
    let all: Vec<_> = std::iter::once(writing).chain(ahead).collect();
    cluster.run_until(cluster.now().plus_ns(6 * LONG_NS)).expect("they go on");
    end(&mut cluster, all, "it goes on and on");
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}
