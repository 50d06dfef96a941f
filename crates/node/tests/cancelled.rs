//! Whatever a client's program stops waiting for: locks, pages and commits of abandoned futures leave nothing behind, neither at the
//! node nor at its server.

use crate::counting::{Joined, PAGES, joined, joined_on};
use crate::things::ServedThings;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PageId, PartitionId};
use engine::catalog::{Locking, Organization};
use engine::{Error, PartitionSpec, Result};
use entresol_node::algorithm::ALGORITHMS;
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient};
use entresol_node::page_server::{PageServer, ServerInternals};
use executor::{Cluster, Executor, JoinHandle};

/// A server and two clients.
struct Ground {
    cluster: Cluster,
    executors: [Executor; 3],
    server: PageServer,
    clients: [PageClient; 2],
    counters: PartitionId,
}

/// Few, so that pages have to leave.
const FRAMES: usize = 6;
/// Far longer than anything takes here that is not for ever.
const LONG_NS: u64 = 10 * SECOND_NS;

impl Ground {
    fn new(algorithm: &str) -> Ground {
        Ground::with(algorithm, FRAMES)
    }

    /// With clients that have this number of frames.
    fn with(algorithm: &str, frames: usize) -> Ground {
        let Joined { cluster, executors, server, clients, counters } =
            joined((5, algorithm), frames, |settings| settings);
        Ground { cluster, executors, server, clients, counters }
    }

    fn page(&self, number: u32) -> PageId {
        PageId::new(self.counters, number)
    }

    /// Runs something at one of the clients.
    fn at<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        client: usize,
        work: impl FnOnce(PageClient, Executor) -> F,
    ) -> T {
        let executor = self.executors[client + 1].clone();
        let task = executor.spawn(work(self.clients[client].clone(), executor.clone()));
        self.cluster.run_until(self.cluster.now().plus_ns(LONG_NS)).expect("they go on");
        assert!(task.is_finished(), "it goes on and on");
        self.cluster.run(task).expect("they go on")
    }

    /// Adds one to a counter at a client and returns what was there.
    fn add(&mut self, client: usize, number: u32) -> u64 {
        let page = self.page(number);
        let added = self.at(client, async move |client, _| {
            let mut transaction = client.begin().await;
            let (found, _) = transaction.read(page, value).await?;
            transaction.write(page, 32, &(found + 1).to_le_bytes()).await?;
            transaction.commit().await.map(|()| found)
        });
        added.unwrap_or_else(|error: Error| panic!("{error}"))
    }

    fn end(self) {
        self.server.protocol().check().expect("the directory is right");
        assert_eq!(self.server.protocol().waiting(), 0, "nothing waits");
        drop((self.server, self.clients));
        self.executors.iter().for_each(Executor::stop);
    }
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

/// A transaction at the second client reads a page, so that no one else may write it for two seconds; meanwhile the first client does
/// this with it.
fn beside_a_reader<T: 'static, F: Future<Output = engine::Result<T>> + 'static>(
    ground: &mut Ground,
    work: impl FnOnce(PageClient, Executor, PageId) -> F,
) -> T {
    let page = ground.page(0);
    let (reader, executor) = (ground.clients[1].clone(), ground.executors[2].clone());
    executor.clone().spawn(async move {
        let mut transaction = reader.begin().await;
        transaction.read(page, value).await.expect("it can be read");
        executor.sleep_ns(2 * SECOND_NS).await;
        transaction.commit().await.expect("it has only read");
    });
    ground.cluster.run_until(ground.cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
    let done = ground.at(0, |client, executor| work(client, executor, page));
    done.unwrap_or_else(|error| panic!("{error}"))
}

const PATIENCE_NS: u64 = 500 * MILLISECOND_NS;

#[test]
fn a_lock_that_is_not_waited_for_ends_with_its_transaction() {
    for waits_for_more in [false, true] {
        let mut ground = Ground::new("cbl");
        beside_a_reader(&mut ground, async move |client, executor, page| {
            let mut transaction = client.begin().await;
            let locked = executor.within(PATIENCE_NS, transaction.lock(page)).await;
            assert!(locked.is_none(), "another client reads it");
            if waits_for_more {
                // It is granted meanwhile.
                executor.sleep_ns(3 * SECOND_NS).await;
            }
            transaction.commit().await
        });
        assert_eq!(ground.add(1, 0), 0);
        assert_eq!(ground.add(0, 0), 1);
        ground.end();
    }
}

#[test]
fn a_lock_that_is_not_waited_for_may_be_asked_for_again() {
    let mut ground = Ground::new("cbl");
    beside_a_reader(&mut ground, async move |client, executor, page| {
        let mut transaction = client.begin().await;
        assert!(executor.within(PATIENCE_NS, transaction.lock(page)).await.is_none());
        transaction.write(page, 32, &7_u64.to_le_bytes()).await?;
        transaction.commit().await
    });
    assert_eq!(ground.add(1, 0), 7);
    ground.end();
}

#[test]
fn a_commit_takes_no_harm_from_a_lock_that_is_not_waited_for() {
    let mut ground = Ground::new("fwd-hs");
    let other = ground.page(1);
    beside_a_reader(&mut ground, async move |client, executor, page| {
        let mut transaction = client.begin().await;
        transaction.write(other, 32, &3_u64.to_le_bytes()).await?;
        assert!(executor.within(PATIENCE_NS, transaction.lock(page)).await.is_none());
        transaction.commit().await
    });
    assert_eq!(ground.add(1, 0), 0);
    assert_eq!(ground.add(1, 1), 3);
    ground.end();
}

#[test]
fn a_commit_that_is_not_waited_for_goes_on() {
    let mut ground = Ground::new("fwd");
    let page = ground.page(0);
    let session = ground.clients[0].session();
    let done: engine::Result<()> = ground.at(0, async move |client, executor| {
        let mut transaction = client.begin().await;
        transaction.write(page, 32, &4_u64.to_le_bytes()).await?;
        assert!(executor.within(1, transaction.commit()).await.is_none(), "it takes longer");
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ground.clients[0].session(), session, "it stays where it was");
    assert_eq!(ground.add(1, 0), 4);
    assert_eq!(ground.add(0, 0), 5);
    ground.end();
}

#[test]
fn a_locked_page_stays_though_it_is_not_written() {
    let mut ground = Ground::new("fwd-hs");
    let counters = ground.counters;
    let done: engine::Result<()> = ground.at(0, async move |client, _| {
        let mut transaction = client.begin().await;
        transaction.lock(PageId::new(counters, 0)).await?;
        for number in 1..PAGES as u32 {
            transaction.read(PageId::new(counters, number), value).await?;
        }
        transaction.commit().await
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ground.add(1, 0), 0);
    ground.end();
}

#[test]
fn a_page_that_is_not_waited_for_makes_no_deadlock_that_is_not_found() {
    let mut ground = Ground::new("cbl");
    let (one, two) = (ground.page(1), ground.page(2));
    let (second, executor) = (ground.clients[1].clone(), ground.executors[2].clone());
    let other = executor.clone().spawn(async move {
        let mut transaction = second.begin().await;
        transaction.write(one, 32, &1_u64.to_le_bytes()).await?;
        executor.sleep_ns(2 * SECOND_NS).await;
        transaction.read(two, value).await?;
        transaction.commit().await
    });
    ground.cluster.run_until(ground.cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
    let own: engine::Result<()> = ground.at(0, async move |client, executor| {
        let mut given_up = client.begin().await;
        assert!(executor.within(PATIENCE_NS, given_up.read(one, value)).await.is_none());
        drop(given_up);
        let mut transaction = client.begin().await;
        transaction.write(two, 32, &1_u64.to_le_bytes()).await?;
        transaction.read(one, value).await?;
        transaction.commit().await
    });
    assert!(other.is_finished());
    let other = ground.cluster.run(other).expect("they go on");
    assert!(own.is_ok() != other.is_ok(), "one is a victim: {own:?}, {other:?}");
    ground.end();
}

/// Another transaction of the node had asked for the page and has ended: the one that goes on waits for no one by that, and another one waits
/// for it until it has committed.
#[test]
fn a_page_that_is_not_waited_for_makes_no_deadlock_of_a_transaction_that_goes_on() {
    let mut ground = Ground::with("cbl", 24);
    let (one, two) = (ground.page(1), ground.page(2));
    let (second, executor) = (ground.clients[1].clone(), ground.executors[2].clone());
    let other: JoinHandle<Result<u64>> = executor.clone().spawn(async move {
        let mut transaction = second.begin().await;
        transaction.write(one, 32, &1_u64.to_le_bytes()).await?;
        executor.sleep_ns(2 * SECOND_NS).await;
        let (found, _) = transaction.read(two, value).await?;
        transaction.commit().await.map(|()| found)
    });
    ground.cluster.run_until(ground.cluster.now().plus_ns(100 * MILLISECOND_NS)).expect("they go on");
    let own: Result<()> = ground.at(0, async move |client, executor| {
        let (mut ended, mut transaction) = (client.begin().await, client.begin().await);
        transaction.write(two, 32, &1_u64.to_le_bytes()).await?;
        let asking = executor.clone();
        let asked =
            executor.spawn(async move { asking.within(2 * PATIENCE_NS, ended.read(one, value)).await.is_none() });
        assert!(executor.within(PATIENCE_NS, transaction.read(one, value)).await.is_none());
        assert!(asked.join().await, "another node writes it");
        executor.sleep_ns(4 * SECOND_NS).await;
        transaction.commit().await
    });
    assert_eq!(own, Ok(()));
    assert_eq!(ground.cluster.run(other).expect("they go on"), Ok(1));
    assert_eq!(ground.server.protocol().counts().victims, 0);
    ground.end();
}

/// More than a server lets one node have waiting.
const MANY: u32 = entresol_node::server::WAITING_MAX as u32 + 50;

/// The partition of this name.
async fn named(client: &PageClient, name: &str) -> Result<PartitionId> {
    client.partition(name).await.map(|found| found.id())
}

/// The second node has changed this many records of a set, and commits in ten seconds. The first one runs `work` before that.
fn beside_a_writer_of_sets<T: 'static>(
    records: u32,
    work: impl AsyncFnOnce(PageClient, Executor, PartitionId) -> Result<T> + 'static,
) -> T {
    let mut served = ServedThings::new(3, 2, None);
    let (writer, executor) = (served.clients[1].clone(), served.nodes[1].clone());
    let writing = executor.clone().spawn(async move {
        let stock = named(&writer, "stock").await?;
        let mut transaction = writer.begin().await;
        for number in 0..records {
            transaction.put(stock, &number.to_be_bytes(), b"new").await?;
        }
        executor.sleep_ns(10 * SECOND_NS).await;
        transaction.commit().await
    });
    served.cluster.run_until(served.cluster.now().plus_ns(5 * SECOND_NS)).expect("they go on");
    let own = served.nodes[0].clone();
    let done = served.run(async move |client| {
        let stock = named(&client, "stock").await?;
        work(client, own, stock).await
    });
    assert_eq!(served.cluster.run(writing).expect("they go on"), Ok(()));
    served.cluster.run_until(served.cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let protocol = served.page_server.protocol();
    protocol.check().expect("the state is right");
    assert_eq!((protocol.waiting(), protocol.last_misbehaviour()), (0, None));
    for client in &served.clients {
        assert_eq!((protocol.records_held(client.id()), protocol.set_ranges_held(client.id())), (0, 0));
    }
    drop(protocol);
    let found = done.unwrap_or_else(|error| panic!("{error}"));
    served.open(async |_| Ok(()));
    found
}

#[test]
fn questions_that_are_not_waited_for_do_not_add_up() {
    let found = beside_a_writer_of_sets(MANY, async |client, executor, stock| {
        let session = client.session();
        let mut transaction = client.begin().await;
        for number in 0..MANY {
            let got = executor.within(MILLISECOND_NS, transaction.get(stock, &number.to_be_bytes())).await;
            assert!(got.is_none(), "another one changes it: {got:?}");
        }
        // As if it had never asked for it before.
        let found = transaction.get(stock, &7_u32.to_be_bytes()).await?;
        assert_eq!(transaction.get(stock, &8_u32.to_be_bytes()).await?, found);
        assert_eq!(client.session(), session, "it stays where it was");
        transaction.commit().await.map(|()| found)
    });
    assert_eq!(found.as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_record_that_is_not_waited_for_locks_nothing_behind_the_commit() {
    for writes in [false, true] {
        beside_a_writer_of_sets(1, async move |client, executor, stock| {
            let mut transaction = client.begin().await;
            transaction.put(stock, b"own", b"1").await?;
            let key = 0_u32.to_be_bytes();
            let got = if writes {
                executor.within(MILLISECOND_NS, transaction.get_for_update(stock, &key)).await
            } else {
                executor.within(MILLISECOND_NS, transaction.get(stock, &key)).await
            };
            assert!(got.is_none(), "another one changes it: {got:?}");
            transaction.commit().await
        });
    }
}

/// Those of a page that has fallen.
#[test]
fn an_object_that_is_not_waited_for_may_be_asked_for_again() {
    let falling = ALGORITHMS.iter().position(|algorithm| algorithm.name() == "ps-aa").expect("it is one of them");
    let mut served = ServedThings::new(falling as u64, 2, None);
    let (writer, executor) = (served.clients[1].clone(), served.nodes[1].clone());
    let writing = executor.clone().spawn(async move {
        let cells = named(&writer, "cells").await?;
        let mut transaction = writer.begin().await;
        executor.sleep_ns(4 * SECOND_NS).await;
        for number in [0, 1] {
            transaction.modify_object(cells, number, |object| object[0] = 9).await?;
        }
        executor.sleep_ns(2 * SECOND_NS).await;
        transaction.commit().await
    });
    let own = served.nodes[0].clone();
    let found: Result<(u8, u8)> = served.run(async move |client| {
        let cells = named(&client, "cells").await?;
        own.sleep_ns(3 * SECOND_NS).await;
        let mut transaction = client.begin().await;
        transaction.read_object(cells, 5, |_| ()).await?;
        own.sleep_ns(2 * SECOND_NS).await;
        for number in [0, 1] {
            let got = own.within(PATIENCE_NS, transaction.read_object(cells, number, |object| object[0])).await;
            assert!(got.is_none(), "another one changes it: {got:?}");
        }
        let first = transaction.read_object(cells, 0, |object| object[0]).await?;
        let second = transaction.read_object(cells, 1, |object| object[0]).await?;
        transaction.commit().await.map(|()| (first, second))
    });
    assert_eq!(served.cluster.run(writing).expect("they go on"), Ok(()));
    assert_eq!(found, Ok((9, 9)));
    assert_eq!(served.page_server.counts().falls, 1);
    served.open(async |_| Ok(()));
}

/// Its page comes together with its write lock when another node has given it up. If it is not waited for any more then, it is the transaction's
/// all the same, and stays while that changes it.
#[test]
fn a_page_that_comes_to_be_written_when_it_is_not_waited_for_is_written_later() {
    let mut served = ServedThings::new(0, 2, None);
    let (reader, executor) = (served.clients[1].clone(), served.nodes[1].clone());
    let reading: JoinHandle<Result<()>> = executor.clone().spawn(async move {
        let history = named(&reader, "history").await?;
        reader.transaction(async |tx| tx.append(history, b"first").await.map(drop)).await?;
        let mut transaction = reader.begin().await;
        transaction.scan_appended(history, |_, _| true).await?;
        executor.sleep_ns(5 * SECOND_NS).await;
        transaction.commit().await
    });
    let own = served.nodes[0].clone();
    let added: Result<()> = served.run(async move |client| {
        let history = named(&client, "history").await?;
        own.sleep_ns(4 * SECOND_NS).await;
        let mut transaction = client.begin().await;
        let first = own.within(PATIENCE_NS, transaction.append(history, b"second")).await;
        assert_eq!(first, None, "the other node reads the page");
        own.sleep_ns(5 * SECOND_NS).await;
        transaction.append(history, b"third").await?;
        transaction.commit().await
    });
    assert_eq!(added, Ok(()));
    assert_eq!(served.cluster.run(reading).expect("they go on"), Ok(()));
    served.open(async |_| Ok(()));
}

/// No transaction waits for the bytes of a page that has come when it was not waited for any more: its locks fall as soon as another node wants
/// a record.
#[test]
fn a_page_that_was_not_waited_for_falls_as_others_do() {
    let falling = ALGORITHMS.iter().position(|algorithm| algorithm.name() == "ps-aa").expect("it is one of them");
    let mut served = ServedThings::new(falling as u64, 2, None);
    let (writer, executor) = (served.clients[1].clone(), served.nodes[1].clone());
    let writing: JoinHandle<Result<u64>> = executor.clone().spawn(async move {
        let cells = named(&writer, "cells").await?;
        let mut transaction = writer.begin().await;
        transaction.lock(PageId::new(cells, 0)).await?;
        executor.sleep_ns(5 * SECOND_NS).await;
        transaction.commit().await?;
        executor.sleep_ns(SECOND_NS).await;
        let began = executor.now();
        writer.transaction(async |tx| tx.modify_object(cells, 7, |object| object[0] = 1).await).await?;
        Ok(executor.now().since_ns(began))
    });
    let own = served.nodes[0].clone();
    let read: Result<()> = served.run(async move |client| {
        let cells = named(&client, "cells").await?;
        own.sleep_ns(4 * SECOND_NS).await;
        let mut transaction = client.begin().await;
        let read = own.within(PATIENCE_NS, transaction.read_object(cells, 5, |_| ())).await;
        assert_eq!(read, None, "the other node has locked its page");
        own.sleep_ns(20 * SECOND_NS).await;
        transaction.commit().await
    });
    assert_eq!(read, Ok(()));
    let waited_ns = served.cluster.run(writing).expect("they go on").expect("its server is there");
    assert!(waited_ns < SECOND_NS, "{waited_ns}");
    served.open(async |_| Ok(()));
}

/// The second node writes this many pages, and is done with them in a hundred seconds. The first one, which runs this number of transactions at
/// a time, does `work` before that, and is to stay where it was.
fn beside_a_writer_of_many_pages<T: 'static>(
    transactions: usize,
    work: impl AsyncFnOnce(PageClient, Executor, PartitionId) -> T + 'static,
) -> T {
    let organization = Organization::Direct { objects: MANY.into(), blocking_factor: 1, record_size: 8 };
    let spec = PartitionSpec::new("wide", organization, Locking::None);
    let suit = |settings| ClientSettings { transactions, ..settings };
    let Joined { mut cluster, executors, server, clients, counters: wide } =
        joined_on(spec, (5, "cbl", true), 8 * MANY as usize, suit);
    let [client, writer] = clients.clone();
    let (own, others) = (executors[1].clone(), executors[2].clone());
    let writing = executors[2].spawn(async move {
        let mut transaction = writer.begin().await;
        for number in 0..MANY {
            transaction.lock(PageId::new(wide, number)).await?;
        }
        others.sleep_ns(100 * SECOND_NS).await;
        transaction.commit().await
    });
    cluster.run_until(cluster.now().plus_ns(50 * SECOND_NS)).expect("they go on");
    assert!((0..MANY).all(|number| server.protocol().writer(PageId::new(wide, number)).is_some()));
    let session = client.session();
    let done = cluster.run(executors[1].spawn(async move { work(client, own, wide).await })).expect("they go on");
    assert_eq!(clients[0].session(), session, "it stays where it was");
    assert_eq!(cluster.run(writing).expect("they go on"), Ok(()));
    Ground { cluster, executors, server, clients, counters: wide }.end();
    done
}

/// Of a transaction each, as a program asks that tries one after the other for a short time.
#[test]
fn pages_that_are_not_waited_for_do_not_add_up() {
    let taken = beside_a_writer_of_many_pages(8, async |client, executor, wide| {
        for number in 0..MANY {
            let mut transaction = client.begin().await;
            let got = executor.within(MILLISECOND_NS, transaction.read(PageId::new(wide, number), value)).await;
            assert!(got.is_none(), "another one writes it: {got:?}");
        }
        executor.sleep_ns(SECOND_NS).await;
        client.buffer().pool().borrow().taken_count()
    });
    assert_eq!(taken, 0, "no frame is kept for what does not come");
}

/// However many its program would have.
#[test]
fn a_node_runs_no_more_transactions_than_may_wait_at_its_server() {
    beside_a_writer_of_many_pages(usize::MAX, async |client, executor, wide| {
        let reading: Vec<_> = (0..MANY)
            .map(|number| {
                let client = client.clone();
                executor.spawn(async move {
                    let mut transaction = client.begin().await;
                    transaction.read(PageId::new(wide, number), value).await?;
                    transaction.commit().await
                })
            })
            .collect();
        for reading in reading {
            assert_eq!(reading.join().await, Ok(()));
        }
    });
}
