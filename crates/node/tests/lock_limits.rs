//! No call of a node waits for a lock for longer than it may, whichever transaction has it, and one that was given up leaves nothing behind.

use crate::counting::{Joined, joined};
use crate::things::ServedThings;
use base::PageId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::Error;
use entresol_node::client::SNAPSHOTS_MAX;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server::ServerInternals;
use executor::Executor;
use std::time::Duration;

const LIMIT_NS: u64 = 200 * MILLISECOND_NS;

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

/// Until a second server would have heard of the first one's clients no write lock is granted.
const BEGINS_NS: u64 = 5 * SECOND_NS;

/// Two clients of a server.
fn ground(lock_wait_ns_max: Option<u64>) -> Joined {
    let mut joined = joined((5, "cbl"), 40, |settings| ClientSettings { lock_wait_ns_max, ..settings });
    joined.cluster.run_until(joined.cluster.now().plus_ns(BEGINS_NS)).expect("they go on");
    joined
}

/// A transaction that keeps a page for two seconds.
async fn keep(client: PageClient, executor: Executor, page: PageId, writes: bool) -> engine::Result<()> {
    let mut tx = client.begin().await;
    match writes {
        true => tx.write(page, 32, &1_u64.to_le_bytes()).await?,
        false => tx.read(page, value).await.map(drop)?,
    }
    executor.sleep_ns(2 * SECOND_NS).await;
    tx.commit().await
}

fn is_over(result: engine::Result<()>, named: &str) {
    match result {
        Err(Error::LockTimeout { resource, waited_ns, .. }) => {
            assert!(resource.contains(named), "{resource}");
            assert!((LIMIT_NS..2 * LIMIT_NS).contains(&waited_ns), "{waited_ns} ns");
        }
        other => panic!("{other:?}"),
    }
}

/// Reads or writes a page that another transaction has until the limit is over, writes another page, and commits.
async fn give_up(client: PageClient, limit: Option<Duration>, pages: [PageId; 2], writes: bool) -> engine::Result<()> {
    let mut tx = client.begin().await;
    tx.wait_at_most(limit);
    let refused = match writes {
        true => tx.write(pages[0], 32, &9_u64.to_le_bytes()).await,
        false => tx.read(pages[0], value).await.map(drop),
    };
    is_over(refused, &pages[0].to_string());
    tx.write(pages[1], 32, &7_u64.to_le_bytes()).await?;
    tx.commit().await
}

#[test]
fn pages_of_other_nodes_and_of_the_own_are_waited_for_until_the_limit_is_over() {
    // Whether the one that has the page is another node's, and what both want with it.
    for (is_elsewhere, holder_writes, writes) in
        [(true, true, false), (true, true, true), (true, false, true), (false, true, false), (false, false, true)]
    {
        for of_node in [false, true] {
            let case = (is_elsewhere, holder_writes, writes, of_node);
            let Joined { mut cluster, executors, server, clients, counters } = ground(of_node.then_some(LIMIT_NS));
            let pages = [PageId::new(counters, 0), PageId::new(counters, 1)];
            let at = usize::from(is_elsewhere);
            let keeping = keep(clients[at].clone(), executors[at + 1].clone(), pages[0], holder_writes);
            let keeping = executors[at + 1].spawn(keeping);
            cluster.run_until(cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
            let limit = (!of_node).then(|| Duration::from_nanos(LIMIT_NS));
            let giving_up = executors[1].spawn(give_up(clients[0].clone(), limit, pages, writes));
            cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
            assert!(giving_up.is_finished(), "{case:?}: it waits on");
            cluster.run(giving_up).expect("they go on").unwrap_or_else(|error| panic!("{case:?}: {error}"));
            cluster.run(keeping).expect("they go on").unwrap_or_else(|error| panic!("{case:?}: {error}"));
            let client = clients[0].clone();
            let read = executors[1].spawn(async move {
                let mut tx = client.begin().await;
                let found = [tx.read(pages[0], value).await?.0, tx.read(pages[1], value).await?.0];
                tx.commit().await.map(|()| found)
            });
            let found =
                cluster.run(read).expect("they go on").unwrap_or_else(|error: Error| panic!("{case:?}: {error}"));
            assert_eq!(found, [u64::from(holder_writes), 7], "{case:?}");
            server.protocol().check().expect("the directory is right");
            assert_eq!(server.protocol().waiting(), 0, "{case:?}: nothing waits");
            drop((server, clients));
            executors.iter().for_each(Executor::stop);
        }
    }
}

/// Many transactions of a node wait for one page of another node's, and give up one after the other. Which one waits at the server in the name
/// of all is told when that one has given up, not with each.
#[test]
fn many_that_give_up_a_page_one_after_the_other_say_little_of_that() {
    const MANY: u64 = 60;
    let suit = |settings| ClientSettings { transactions: MANY as usize, ..settings };
    let Joined { mut cluster, executors, server, clients, counters } = joined((5, "cbl"), 10 * MANY as usize, suit);
    cluster.run_until(cluster.now().plus_ns(BEGINS_NS)).expect("they go on");
    let page = PageId::new(counters, 0);
    let keeping = executors[2].spawn(keep(clients[1].clone(), executors[2].clone(), page, true));
    cluster.run_until(cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
    let said = |kind| clients[0].traffic().kinds.borrow().get(kind).map_or(0, |amount| amount.messages);
    let mut waiting = Vec::new();
    for _ in 0..MANY {
        let client = clients[0].clone();
        waiting.push(executors[1].spawn(async move {
            let mut tx = client.begin().await;
            tx.wait_at_most(Some(Duration::from_nanos(LIMIT_NS)));
            is_over(tx.read(page, value).await.map(drop), &page.to_string());
            tx.commit().await
        }));
        cluster.run_until(cluster.now().plus_ns(MILLISECOND_NS)).expect("they go on");
    }
    let before = ["waits", "read"].map(said);
    cluster.run_until(cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    for task in waiting {
        assert!(task.is_finished(), "it waits on");
        cluster.run(task).expect("they go on").expect("nothing is in its way");
    }
    let more = ["waits", "read"].map(said);
    let more = [more[0] - before[0], more[1] - before[1]];
    assert!(more[0] < MANY / 4 && more[1] < MANY / 4, "{more:?} messages more");
    cluster.run(keeping).expect("they go on").expect("it has the page");
    server.protocol().check().expect("the directory is right");
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}

#[test]
fn records_and_ranges_of_sets_are_waited_for_until_the_limit_is_over() {
    for scans in [false, true] {
        let mut served = ServedThings::new(5, 2, None);
        served.cluster.run_until(served.cluster.now().plus_ns(BEGINS_NS)).expect("they go on");
        let (other, executor) = (served.clients[1].clone(), served.nodes[1].clone());
        let keeping = served.nodes[1].spawn(async move {
            let stock = other.partition("stock").await?.id();
            let mut tx = other.begin().await;
            tx.put(stock, b"milk", b"two").await?;
            executor.sleep_ns(2 * SECOND_NS).await;
            tx.commit().await
        });
        served.cluster.run_until(served.cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
        let executor = served.nodes[0].clone();
        let took_ns = served.run(async move |client| {
            let began = executor.now();
            let stock = client.partition("stock").await?.id();
            let mut tx = client.begin().await;
            tx.wait_at_most(Some(Duration::from_nanos(LIMIT_NS)));
            let refused = match scans {
                true => tx.scan_set(stock, |_, _| true).await,
                false => tx.put(stock, b"milk", b"three").await,
            };
            is_over(refused, "set");
            tx.put(stock, b"bread", b"one").await?;
            tx.commit().await.map(|()| executor.now().since_ns(began))
        });
        let took_ns = took_ns.unwrap_or_else(|error: Error| panic!("scans {scans}: {error}"));
        assert!(took_ns < SECOND_NS, "scans {scans}: {took_ns} ns");
        served.cluster.run(keeping).expect("they go on").unwrap_or_else(|error: Error| panic!("{error}"));
        let found = served.run(async |client| {
            let stock = client.partition("stock").await?.id();
            let mut tx = client.begin().await;
            let found = [tx.get(stock, b"milk").await?, tx.get(stock, b"bread").await?];
            tx.commit().await.map(|()| found)
        });
        let found = found.unwrap_or_else(|error: Error| panic!("{error}"));
        assert_eq!(found, [Some(b"two".to_vec()), Some(b"one".to_vec())]);
        served.open(async |_| Ok(()));
    }
}

#[test]
fn a_snapshot_is_refused_where_no_other_ends_for_that_long() {
    let Joined { mut cluster, executors, server, clients, .. } = ground(Some(LIMIT_NS));
    let (client, executor) = (clients[0].clone(), executors[1].clone());
    let task = executors[1].spawn(async move {
        let mut open = Vec::new();
        for _ in 0..SNAPSHOTS_MAX {
            open.push(client.snapshot().await?);
        }
        let began = executor.now();
        let waiting = [client.clone(), client.clone()]
            .map(|client| executor.spawn(async move { client.snapshot().await.map(drop) }));
        for waiting in waiting {
            let refused = waiting.join().await;
            assert!(matches!(refused, Err(Error::TooManySnapshots { level: SNAPSHOTS_MAX })), "{refused:?}");
            assert_eq!(executor.now().since_ns(began), LIMIT_NS);
        }
        drop(open.pop());
        client.snapshot().await.map(drop)
    });
    cluster.run(task).expect("they go on").unwrap_or_else(|error| panic!("{error}"));
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}

/// Each of as many as may run waits for one that it has begun itself.
#[test]
fn a_transaction_waits_to_begin_until_the_limit_is_over() {
    let joined = joined((5, "cbl"), 40, |settings| ClientSettings {
        lock_wait_ns_max: Some(LIMIT_NS),
        transactions: 2,
        ..settings
    });
    let Joined { mut cluster, executors, server, clients, counters } = joined;
    let page = PageId::new(counters, 0);
    let nesting: Vec<_> = (0..2)
        .map(|_| {
            let (client, executor) = (clients[0].clone(), executors[1].clone());
            executors[1].spawn(async move {
                let nested = client.transaction(async |tx| {
                    tx.read(page, value).await?;
                    executor.sleep_ns(MILLISECOND_NS).await;
                    is_over(
                        client.transaction(async |own| own.read(page, value).await.map(drop)).await,
                        "2 transactions",
                    );
                    let mut own = client.begin().await;
                    is_over(own.read(page, value).await.map(drop), "2 transactions");
                    is_over(own.commit().await, "2 transactions");
                    // The other one gives up a little later.
                    executor.sleep_ns(LIMIT_NS).await;
                    tx.read(page, value).await.map(drop)
                });
                nested.await
            })
        })
        .collect();
    cluster.run_until(cluster.now().plus_ns(10 * SECOND_NS)).expect("they go on");
    assert!(nesting.iter().all(|nesting| nesting.is_finished()), "they wait on");
    for nesting in nesting {
        cluster.run(nesting).expect("they go on").unwrap_or_else(|error: Error| panic!("{error}"));
    }
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}

/// One task watches the limits of all waits, and none of those that have ended.
#[test]
fn waits_that_have_ended_leave_no_watch_behind() {
    let Joined { mut cluster, executors, server, clients, counters } = ground(Some(60 * SECOND_NS));
    let adding: Vec<_> = (0..2)
        .map(|at| {
            let (client, page) = (clients[at].clone(), PageId::new(counters, 0));
            executors[at + 1].spawn(async move {
                for _ in 0..200 {
                    client
                        .transaction(async |tx| {
                            let (found, _) = tx.read(page, value).await?;
                            tx.write(page, 32, &(found + 1).to_le_bytes()).await
                        })
                        .await?;
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    for adding in adding {
        cluster.run(adding).expect("they go on").unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(clients.iter().all(|client| client.limited_waits() == 0));
    drop((server, clients));
    executors.iter().for_each(Executor::stop);
}
