//! Transactions of one node beside each other: what one has not committed no other one sees or overwrites, what several have committed is
//! sent together, and what they wait for in the node is known at the server.

use crate::counting::{Joined, count, joined, sum};
use crate::replaced::{go_on, open};
use crate::things::ServedThings;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use base::{PageId, PartitionId};
use engine::canary::{self, Canary};
use engine::organization::b_tree::ROOT;
use engine::{Error, Result};
use entresol_node::page_client::{ClientSettings, NodeInternals, PageClient, PageTransaction};
use entresol_node::page_server::{PageServer, ServerInternals};
use executor::{Cluster, Executor};
use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

const FRAMES: usize = 60;
const TASKS: u64 = 6;
const TRANSACTIONS: u64 = 20;

/// A server and two nodes.
struct Ground {
    cluster: Cluster,
    executors: [Executor; 3],
    server: PageServer,
    nodes: [PageClient; 2],
    counters: PartitionId,
}

impl Ground {
    fn new(keeps_write_locks: bool) -> Ground {
        Ground::with(keeps_write_locks, TASKS as usize)
    }

    fn with(keeps_write_locks: bool, transactions: usize) -> Ground {
        let suit = |settings| ClientSettings { keeps_write_locks, transactions, ..settings };
        let Joined { cluster, executors, server, clients, counters } = joined((11, "fwd"), FRAMES, suit);
        Ground { cluster, executors, server, nodes: clients, counters }
    }

    fn page(&self, number: u32) -> PageId {
        PageId::new(self.counters, number)
    }

    /// Runs tasks at nodes, each of which is given its node, until all have ended. `None` if some never do.
    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &mut self,
        tasks: impl IntoIterator<Item = (usize, F)>,
    ) -> Option<Vec<T>> {
        let spawned: Vec<_> = tasks.into_iter().map(|(node, task)| self.executors[node + 1].spawn(task)).collect();
        let end = self.cluster.now().plus_ns(100 * SECOND_NS);
        while self.cluster.now() < end && spawned.iter().any(|task| !task.is_finished()) {
            self.cluster.run_until(self.cluster.now().plus_ns(SECOND_NS)).expect("they go on");
        }
        if spawned.iter().any(|task| !task.is_finished()) {
            return None;
        }
        Some(spawned.into_iter().map(|task| self.cluster.run(task).expect("they go on")).collect())
    }

    fn end(self) -> std::result::Result<(), String> {
        let sound = self.server.protocol().check();
        drop((self.server, self.nodes));
        self.executors.iter().for_each(Executor::stop);
        sound
    }
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"))
}

async fn set(transaction: &mut PageTransaction, page: PageId, value: u64) -> Result<()> {
    transaction.write(page, 32, &value.to_le_bytes()).await
}

/// Many add to the same counters at both nodes. What is lost of that, or never ends.
fn wrong_sum(keeps: bool) -> Option<String> {
    let mut ground = Ground::new(keeps);
    let counters = ground.counters;
    let tasks: Vec<_> = (0..2 * TASKS)
        .map(|task| {
            let node = (task % 2) as usize;
            (node, count(ground.nodes[node].clone(), counters, task, TRANSACTIONS))
        })
        .collect();
    let Some(counted) = ground.run(tasks) else { return Some("some never end".to_owned()) };
    let added: u64 = counted.iter().map(|(added, _)| added).sum();
    let node = ground.nodes[1].clone();
    let found = ground.run([(1, async move { sum(&node, counters).await })])?.pop()?;
    if found != Ok(added) {
        return Some(format!("{added} were added, and {found:?} are there"));
    }
    ground.end().err()
}

#[test]
fn nothing_is_lost_of_what_transactions_of_a_node_add_to_the_same_pages() {
    assert_eq!([false, true].map(wrong_sum), [None, None]);
}

#[test]
fn those_that_commit_while_a_commit_is_on_its_way_are_sent_together() {
    let mut ground = Ground::new(true);
    let page = ground.page(7);
    let add = |node: PageClient| async move {
        for _ in 0..TRANSACTIONS {
            let mut transaction = node.begin().await;
            transaction.lock(page).await?;
            let (found, _) = transaction.read(page, value).await?;
            set(&mut transaction, page, found + 1).await?;
            transaction.commit().await?;
        }
        Ok::<(), Error>(())
    };
    let tasks: Vec<_> = (0..TASKS).map(|_| (0, add(ground.nodes[0].clone()))).collect();
    let ended = ground.run(tasks).expect("they end");
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let commits = ground.server.counts().commits;
    assert!(commits * 2 < TASKS * TRANSACTIONS, "{commits} messages for {} commits", TASKS * TRANSACTIONS);
    let node = ground.nodes[1].clone();
    let found = ground.run([(1, async move { node.begin().await.read(page, value).await })]).expect("it ends");
    assert_eq!(found[0].as_ref().map(|(found, _)| *found), Ok(TASKS * TRANSACTIONS));
    ground.end().expect("the directory is right");
}

/// How long the transactions of many tasks at both nodes take, in microseconds of the machines' time, each of which writes a page of its own and
/// two that all write; and how many messages go to and from the server.
fn cost_of_all(keeps: bool, transactions: usize) -> (u64, u64) {
    let mut ground = Ground::with(keeps, transactions);
    let hot = [0, 1].map(|number| ground.page(number));
    let tasks: Vec<_> = (0..2 * TASKS)
        .map(|task| {
            let (at, own) = ((task % 2) as usize, ground.page(2 + task as u32));
            let (node, executor) = (ground.nodes[at].clone(), ground.executors[at + 1].clone());
            let run = async move {
                for _ in 0..TRANSACTIONS {
                    while !add_to(&node, &[own, hot[0], hot[1]]).await {
                        executor.sleep_ns(MILLISECOND_NS / 10 * (1 + task)).await;
                    }
                }
                executor.now().ns()
            };
            (at, run)
        })
        .collect();
    let began = ground.cluster.now().ns();
    let ends = ground.run(tasks).expect("they end");
    let traffic = ground.server.traffic();
    let messages = traffic.messages.get() + ground.nodes.iter().map(|node| node.traffic().messages.get()).sum::<u64>();
    ground.end().expect("the directory is right");
    ((ends.into_iter().max().expect("there are some") - began) / MICROSECOND_NS, messages)
}

/// Adds one to each of some counters; false if the transaction was a deadlock's victim.
async fn add_to(node: &PageClient, pages: &[PageId]) -> bool {
    let mut transaction = node.begin().await;
    for page in pages {
        let added = async {
            transaction.lock(*page).await?;
            let (found, _) = transaction.read(*page, value).await?;
            set(&mut transaction, *page, found + 1).await
        };
        match added.await {
            Ok(()) => {}
            Err(Error::Deadlock) => return false,
            Err(error) => panic!("{error}"),
        }
    }
    transaction.commit().await.is_ok()
}

#[test]
fn transactions_beside_each_other_take_less_time_and_far_fewer_messages() {
    let (one_by_one, beside) = (cost_of_all(false, 1), cost_of_all(true, TASKS as usize));
    let told = format!("{one_by_one:?} one by one, {beside:?} beside each other");
    println!("{} transactions: {told} (us, messages)", 2 * TASKS * TRANSACTIONS);
    assert!(beside.0 < one_by_one.0 && 2 * beside.1 < one_by_one.1, "{told}");
}

/// One commits, another one changes the same page before the server has answered, and is rolled back. What a third one finds.
fn found_behind_a_rollback() -> Option<Result<u64>> {
    let mut ground = Ground::new(true);
    let (node, page) = (ground.nodes[0].clone(), ground.page(3));
    let found = ground.run([(0, {
        let executor = ground.executors[1].clone();
        async move {
            for number in 1..=2 {
                let mut transaction = node.begin().await;
                set(&mut transaction, page, number).await?;
                let committing = executor.spawn(transaction.commit());
                executor.yield_now().await;
                let mut rolled_back = node.begin().await;
                set(&mut rolled_back, page, 99).await?;
                let is_early = !committing.is_finished();
                drop(rolled_back);
                let (found, _) = node.begin().await.read(page, value).await?;
                committing.join().await?;
                if found != number || (number == 2 && !is_early) {
                    return Ok(found);
                }
            }
            Ok(0)
        }
    })]);
    ground.end().ok()?;
    found?.pop()
}

#[test]
fn a_rollback_leaves_what_others_have_committed_and_the_server_has_not_answered() {
    assert_eq!(found_behind_a_rollback(), Some(Ok(0)));
}

/// Two transactions of the first node and one of the second wait for each other in a ring. How many are victims.
fn victims_of_a_ring(keeps: bool) -> Option<usize> {
    let mut ground = Ground::new(keeps);
    let pages = [0, 1, 2].map(|number| ground.page(number));
    let tasks: Vec<_> = [(0, 0, 1), (0, 1, 2), (1, 2, 0)]
        .into_iter()
        .map(|(at, own, next)| {
            let (node, executor) = (ground.nodes[at].clone(), ground.executors[at + 1].clone());
            let task = async move {
                let mut transaction = node.begin().await;
                set(&mut transaction, pages[own], 1).await?;
                executor.sleep_ns(500 * MILLISECOND_NS).await;
                set(&mut transaction, pages[next], 2).await?;
                transaction.commit().await
            };
            (at, task)
        })
        .collect();
    let ended: Vec<Result<()>> = ground.run(tasks)?;
    ground.end().ok()?;
    Some(ended.into_iter().filter(|ended| *ended == Err(Error::Deadlock)).count())
}

#[test]
fn a_deadlock_by_way_of_two_transactions_of_a_node_is_ended() {
    assert_eq!([false, true].map(victims_of_a_ring), [Some(1), Some(1)]);
}

/// How a transaction has come to have a page locked that it has not looked at.
#[derive(Clone, Copy, Debug)]
enum LockedUnseen {
    /// It was asked for ahead.
    Ahead,
    /// A call has got the lock that it has waited for, and was given up before it went on.
    GivenUp,
}

const KEY: &[u8] = b"key";

/// One transaction changes a note and commits. Before that is answered another one of its node finds what it has changed, on a page that it has
/// locked so, and commits, too; then the server ends, which has committed neither. What both are told, the second one last.
fn told_of_what_was_lost(how: LockedUnseen) -> [Result<()>; 2] {
    let mut served = ServedThings::new(1, 1, None);
    let notes = served.run(async |client| {
        let written = client.transaction(async |tx| {
            let notes = tx.partition("notes").await?.id();
            tx.put(notes, KEY, b"old").await.map(|()| notes)
        });
        written.await.expect("it is alone")
    });
    let executor = served.nodes[0].clone();
    let committing = served.run(async move |client| {
        let (mut writer, mut reader) = (client.begin().await, client.begin().await);
        writer.put(notes, KEY, b"new").await.expect("it is alone");
        let first = match how {
            LockedUnseen::Ahead => {
                let first = executor.spawn(writer.commit());
                executor.yield_now().await;
                executor.yield_now().await;
                let taken = reader.read_ahead([PageId::new(notes, ROOT)]).await;
                assert_eq!(taken, Ok(1));
                first
            }
            LockedUnseen::GivenUp => {
                let mut given_up = Box::pin(reader.get(notes, KEY));
                for _ in 0..10 {
                    let is_pending = poll_fn(|context| Poll::Ready(given_up.as_mut().poll(context).is_pending()));
                    assert!(is_pending.await, "the other one has the page");
                    executor.yield_now().await;
                }
                let first = executor.spawn(writer.commit());
                executor.yield_now().await;
                first
            }
        };
        assert_eq!(reader.get(notes, KEY).await, Ok(Some(b"new".to_vec())));
        let second = executor.spawn(reader.commit());
        executor.yield_now().await;
        assert!(!first.is_finished(), "it is not answered yet");
        [first, second]
    });
    let database = go_on(&mut served, async |executor| open(executor).await);
    let told = committing.map(|committing| served.cluster.run(committing).expect("the node goes on"));
    let found = served.run(async move |client| client.begin().await.get(notes, KEY).await);
    assert_eq!(found, Ok(Some(b"old".to_vec())), "{how:?}: neither was committed");
    drop(database);
    served.open(async |_| Ok(()));
    told
}

#[test]
fn what_is_seen_of_a_page_that_was_locked_before_is_acknowledged_when_it_is_committed() {
    for how in [LockedUnseen::Ahead, LockedUnseen::GivenUp] {
        let [first, second] = told_of_what_was_lost(how);
        assert!(first.is_err() && second.is_err(), "{how:?}: {first:?}, {second:?}");
    }
}

#[test]
fn what_is_planted_among_the_transactions_of_a_node_is_found() {
    type Finds = fn() -> bool;
    let planted: [(Canary, Finds); 4] = [
        (Canary::SeenUnnoted, || {
            [LockedUnseen::Ahead, LockedUnseen::GivenUp].into_iter().all(|how| told_of_what_was_lost(how)[1].is_ok())
        }),
        (Canary::SharedChanges, || wrong_sum(true).is_some()),
        (Canary::UndoneTogether, || found_behind_a_rollback() != Some(Ok(0))),
        (Canary::UntoldWaits, || victims_of_a_ring(true).is_none()),
    ];
    for (canary, finds) in planted {
        canary::plant(Some(canary));
        // A panic is a find, too.
        let found = std::panic::catch_unwind(finds).unwrap_or(true);
        canary::plant(None);
        assert!(found, "{canary:?}");
    }
}

/// Others begin the next one as soon as they have ended one.
#[test]
fn a_transaction_that_waits_to_begin_is_passed_by_none() {
    let mut ground = Ground::new(false);
    let (node, own) = (ground.nodes[0].clone(), ground.executors[1].clone());
    let end = ground.cluster.now().plus_ns(3 * SECOND_NS);
    for _ in 0..TASKS {
        let (node, own) = (node.clone(), own.clone());
        ground.executors[1].spawn(async move {
            while own.now() < end {
                let transaction = node.begin().await;
                own.sleep_ns(MILLISECOND_NS).await;
                transaction.commit().await.expect("it has done nothing");
            }
        });
    }
    ground.cluster.run_until(ground.cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    let waiting = own.spawn(async move { node.begin().await.commit().await });
    ground.cluster.run_until(ground.cluster.now().plus_ns(SECOND_NS)).expect("they go on");
    assert!(waiting.is_finished(), "one of them ends each millisecond, or more");
    ground.cluster.run_until(end.plus_ns(SECOND_NS)).expect("they go on");
    ground.end().expect("the state is right");
}

/// What the transactions of a node that change nothing have seen of others of it, which are not answered, comes before what other nodes change
/// of what else they have looked at: some order explains both to a snapshot.
#[test]
fn readers_of_what_is_not_answered_and_snapshots_agree_on_an_order() {
    let mut ground = Ground::with(true, 3 * TASKS as usize);
    let pages = [ground.page(1), ground.page(2)];
    let (mut tasks, seen) =
        (Vec::<(usize, Pin<Box<dyn Future<Output = ()>>>)>::new(), Rc::new(RefCell::new(Vec::new())));
    for (at, page) in [(0, pages[0]), (1, pages[1])] {
        for task in 0..TASKS / 2 {
            let (node, executor) = (ground.nodes[at].clone(), ground.executors[at + 1].clone());
            tasks.push((
                at,
                Box::pin(async move {
                    for _ in 0..10 * TRANSACTIONS {
                        while !add_to(&node, &[page]).await {
                            executor.sleep_ns(MILLISECOND_NS / 10 * (1 + task)).await;
                        }
                    }
                }),
            ));
        }
    }
    for reader in 0..TASKS {
        let (node, executor, noted) = (ground.nodes[0].clone(), ground.executors[1].clone(), Rc::clone(&seen));
        tasks.push((
            0,
            Box::pin(async move {
                for _ in 0..10 * TRANSACTIONS {
                    let mut transaction = node.begin().await;
                    let read = async {
                        let (first, _) = transaction.read(pages[0], value).await?;
                        let (second, _) = transaction.read(pages[1], value).await?;
                        Ok::<_, Error>([first, second])
                    };
                    if let Ok(found) = read.await
                        && transaction.commit().await.is_ok()
                    {
                        noted.borrow_mut().push(found);
                    }
                    executor.sleep_ns(MILLISECOND_NS / 10 * reader).await;
                }
            }),
        ));
        let (node, executor, noted) = (ground.nodes[1].clone(), ground.executors[2].clone(), Rc::clone(&seen));
        tasks.push((
            1,
            Box::pin(async move {
                for _ in 0..10 * TRANSACTIONS {
                    let mut snapshot = node.snapshot().await.expect("the server is there");
                    let first = snapshot.read(pages[0], value).await.expect("it is kept");
                    let second = snapshot.read(pages[1], value).await.expect("it is kept");
                    noted.borrow_mut().push([first, second]);
                    executor.sleep_ns(MILLISECOND_NS / 10 * reader).await;
                }
            }),
        ));
    }
    ground.run(tasks).expect("they end");
    let seen = seen.take();
    assert!(seen.len() as u64 > 15 * TASKS * TRANSACTIONS, "{}", seen.len());
    let apart = seen
        .iter()
        .find_map(|one| seen.iter().find(|other| one[0] > other[0] && one[1] < other[1]).map(|other| (one, other)));
    assert_eq!(apart, None, "each of them has seen what the other has not");
    ground.end().expect("the directory is right");
}
