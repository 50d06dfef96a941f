//! System M's servers: order, standby executors, restarts, bounds, durability, the same events again.

use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::server::{self, MessageServer, ServerReport, TransactionServer};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Procedures, Settings, Transaction};
use executor::{Executor, Order, WholeExecutor};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// One step of a transaction: an operation and its argument.
const ADD: u8 = 0;
const WAIT: u8 = 1;
const FAIL: u8 = 2;

/// Does what its parameters say: eight bytes that name it, then steps of three bytes. A record of its name says that it ran.
async fn work(tx: &mut Transaction, parameters: &[u8]) -> entresol_engine::Result<Vec<u8>> {
    let (name, steps) = parameters.split_at(8);
    let counters = tx.partition("counters")?;
    let journal = tx.partition("journal")?;
    for step in steps.chunks_exact(3) {
        match *step {
            [ADD, key, amount] => tx.modify(counters, &[key], |count| count[0] = count[0].wrapping_add(amount)).await?,
            [WAIT, time, _] => tx.executor().clone().sleep_ns(u64::from(time) * 1_000).await,
            _ => return Err(Error::RolledBack("as asked for".into())),
        }
    }
    tx.insert(journal, name, b"done").await?;
    Ok(name.to_vec())
}

struct Ground {
    database: Database,
    server: TransactionServer,
    counters: PartitionId,
    journal: PartitionId,
}

const KEYS: u8 = 6;

/// A database of sets.
fn on_ground<T>(order: Order, settings: server::Settings, test: impl AsyncFnOnce(Rc<Ground>) -> T) -> T {
    on_any_ground(order, settings, false, test)
}

/// A database whose journal is in pages if it is to be, so that transactions wait for devices.
fn on_any_ground<T>(
    order: Order,
    settings: server::Settings,
    paged: bool,
    test: impl AsyncFnOnce(Rc<Ground>) -> T,
) -> T {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), order);
    let result = executor.run(async {
        let ground = ground(&executor, settings, paged).await.expect("a database with a server");
        test(Rc::new(ground)).await
    });
    executor.stop();
    result.expect("the machine goes on")
}

async fn ground(executor: &Executor, settings: server::Settings, paged: bool) -> entresol_engine::Result<Ground> {
    let mut procedures = Procedures::new();
    procedures.register("work", work);
    let database = Database::create(executor, Settings { procedures, ..Settings::default() }).await?;
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let counters = database.create_partition(PartitionSpec::new("counters", organization, Locking::Record)).await?;
    let journal = if paged {
        PartitionSpec::b_tree("journal")
    } else {
        PartitionSpec::new("journal", organization, Locking::Record)
    };
    let journal = database.create_partition(journal).await?;
    database
        .transaction(async |tx| {
            for key in 0..KEYS {
                tx.insert(counters, &[key], &[0]).await?;
            }
            Ok::<_, Error>(())
        })
        .await?;
    let server = TransactionServer::start(&database, settings)?;
    Ok(Ground { database, server, counters, journal })
}

impl Ground {
    async fn submit(&self, messages: &MessageServer, tag: u64, steps: &[[u8; 3]]) {
        let parameters = [&tag.to_be_bytes()[..], &steps.concat()].concat();
        let work = self.server.procedure("work").expect("it is registered");
        messages.submit(work, tag, parameters).await.expect("the server is open");
    }

    /// The tags of `count` responses, in order of arrival.
    async fn receive(&self, messages: &MessageServer, count: usize) -> Vec<u64> {
        let mut batch = Vec::new();
        while batch.len() < count {
            messages.receive(&mut batch).await;
        }
        batch.into_iter().map(|response| response.answer.map(|_| response.tag).expect("it commits")).collect()
    }

    async fn counts(&self) -> Vec<u8> {
        let read = async |tx: &mut Transaction| {
            let mut counts = Vec::new();
            for key in 0..KEYS {
                counts.push(tx.get(self.counters, &[key]).await?.expect("it was inserted")[0]);
            }
            Ok::<_, Error>(counts)
        };
        self.database.transaction(read).await.expect("reads")
    }

    async fn ran(&self, tag: u64) -> bool {
        let found = self.database.transaction(async |tx| tx.get(self.journal, &tag.to_be_bytes()).await).await;
        found.expect("reads").is_some()
    }
}

#[test]
fn transactions_that_do_not_wait_run_one_after_another_without_standbys() {
    let settings = server::Settings { queue: 10, standbys: 3, ..server::Settings::default() };
    on_ground(Order::FirstInFirstOut, settings, async |ground| {
        let messages = ground.server.message_server();
        let received = ground.receive(&messages, 200);
        let submitted = async {
            for tag in 0..200 {
                ground.submit(&messages, tag, &[[ADD, (tag % 3) as u8, 1], [ADD, 5, 1]]).await;
            }
        };
        let (tags, ()) = both(received, submitted).await;
        assert_eq!(tags, (0..200).collect::<Vec<_>>(), "in the order of their submission");
        let report = ground.server.report();
        assert_eq!((report.transactions, report.takeovers, report.restarts), (200, 0, 0));
        assert_eq!(report.queue_max, 10, "the submitter ran ahead and had to wait");
        assert!(
            ground.database.log().statistics().writes < 100,
            "they share log writes: no client waits for one alone"
        );
    });
}

/// Polls two futures until both are done.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(context)
        {
            first = Some(value);
        }
        if second.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(context)
        {
            second = Some(value);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (first.expect("done"), second.expect("done"))
}

#[test]
fn a_standby_takes_over_while_the_priority_executor_is_blocked() {
    for (standbys, expected) in [(0, [0, 1, 2]), (1, [1, 2, 0])] {
        let settings = server::Settings { standbys, ..server::Settings::default() };
        let report = on_ground(Order::FirstInFirstOut, settings, async |ground| {
            let messages = ground.server.message_server();
            ground.submit(&messages, 0, &[[ADD, 0, 1], [WAIT, 200, 0]]).await;
            ground.submit(&messages, 1, &[[ADD, 1, 1]]).await;
            ground.submit(&messages, 2, &[[ADD, 2, 1]]).await;
            assert_eq!(ground.receive(&messages, 3).await, expected);
            ground.server.report()
        });
        assert_eq!(report.takeovers, if standbys == 0 { 0 } else { 2 });
    }
}

#[test]
fn a_transaction_that_was_begun_is_not_starved_by_new_ones() {
    on_ground(Order::FirstInFirstOut, server::Settings { queue: 4, ..server::Settings::default() }, async |ground| {
        let messages = ground.server.message_server();
        let answered_at = Cell::new(None);
        // The priority executor waits long, a standby begins and waits shortly; then the queue is never empty.
        ground.submit(&messages, 0, &[[WAIT, 100, 0]]).await;
        ground.submit(&messages, 1, &[[WAIT, 250, 0]]).await;
        let submit = async {
            for tag in 2..2_000 {
                ground.submit(&messages, tag, &[[ADD, 1, 1], [WAIT, (tag % 2) as u8, 0]]).await;
            }
        };
        let receive = async {
            let (mut batch, mut seen) = (Vec::new(), 0);
            while seen < 2_000 {
                messages.receive(&mut batch).await;
                for response in batch.drain(..) {
                    if response.tag == 1 {
                        answered_at.set(Some(seen));
                    }
                    seen += 1;
                }
            }
        };
        both(receive, submit).await;
        let place = answered_at.get().expect("it was answered");
        assert!(place < 1_500, "answered as number {place}");
    });
}

#[test]
fn a_conflicts_victim_is_run_again_after_the_retry_interval() {
    let settings = server::Settings { standbys: 2, retry_interval_ns: 5_000_000, ..server::Settings::default() };
    on_ground(Order::FirstInFirstOut, settings, async |ground| {
        let messages = ground.server.message_server();
        let began = ground.database.executor().now();
        ground.submit(&messages, 1, &[[ADD, 0, 1], [WAIT, 50, 0], [ADD, 1, 1]]).await;
        ground.submit(&messages, 2, &[[ADD, 1, 1], [WAIT, 50, 0], [ADD, 0, 1]]).await;
        let first = ground.receive(&messages, 1).await;
        let at_first = ground.database.executor().now().since_ns(began);
        let second = ground.receive(&messages, 1).await;
        let at_second = ground.database.executor().now().since_ns(began);
        assert_ne!(first, second);
        assert!(at_first < 5_000_000 && at_second > 5_000_000, "{at_first} {at_second}");
        let report = ground.server.report();
        assert_eq!((report.transactions, report.restarts, report.restarting), (2, 1, 0));
        assert_eq!(report.by_restarts.map(|answered| answered.requests), [1, 1, 0, 0, 0, 0]);
        let [once, twice, ..] = report.by_restarts.map(|answered| answered.response_ns);
        assert!(once < 5_000_000 && twice > 5_000_000, "{once} {twice}");
        assert_eq!(ground.counts().await[..2], [2, 2]);
    });
}

#[test]
fn a_response_is_released_when_its_transaction_is_durable() {
    on_ground(Order::FirstInFirstOut, server::Settings::default(), async |ground| {
        let messages = ground.server.message_server();
        for tag in 0..20 {
            ground.submit(&messages, tag, &[[ADD, 0, 1]]).await;
            ground.receive(&messages, 1).await;
            let log = ground.database.log();
            assert_eq!(log.durable(), log.end(), "nothing else runs");
        }
    });
}

#[test]
fn a_closed_server_has_answered_everything_and_takes_no_more() {
    on_ground(Order::FirstInFirstOut, server::Settings::default(), async |ground| {
        let messages = ground.server.message_server();
        for tag in 0..50 {
            ground.submit(&messages, tag, &[[ADD, 0, 1], [WAIT, 3, 0]]).await;
        }
        ground.server.close().await;
        assert_eq!(ground.server.report().transactions, 50);
        let work = ground.server.procedure("work").expect("it is registered");
        assert_eq!(messages.submit(work, 51, Vec::new()).await, Err(Error::Closed));
        let unknown = ground.server.procedure("play").expect_err("there is none");
        assert!(unknown.to_string().contains("registered are: work"));
    });
}

/// Two close it, of whom one has no patience: neither waits for what is not answered any more.
#[test]
fn who_closes_a_server_does_not_wait_for_what_another_one_has_given_up() {
    on_ground(Order::FirstInFirstOut, server::Settings::default(), async |ground| {
        let (executor, messages) = (ground.database.executor().whole(), ground.server.message_server());
        let mut holder = ground.database.begin().await.expect("begins");
        holder.modify(ground.counters, &[0], |_| ()).await.expect("changes");
        ground.submit(&messages, 1, &[[ADD, 0, 1]]).await;
        let server = ground.server.clone();
        let closing = executor.spawn(async move { server.close().await });
        executor.sleep_ns(MILLISECOND_NS).await;
        assert!(!closing.is_finished(), "the request waits for a lock");
        ground.server.close_within(MILLISECOND_NS).await;
        executor.within(SECOND_NS, closing.join()).await.expect("it is told");
        executor.within(SECOND_NS, ground.server.close()).await.expect("nothing is left to wait for");
        holder.rollback().await.expect("rolls back");
        assert_eq!(ground.counts().await, [0; KEYS as usize]);
    });
}

#[test]
fn a_server_that_is_given_up_waits_for_no_retry() {
    let settings =
        server::Settings { standbys: 2, retry_interval_ns: 3_600_000_000_000, ..server::Settings::default() };
    on_ground(Order::FirstInFirstOut, settings, async |ground| {
        let messages = ground.server.message_server();
        ground.submit(&messages, 1, &[[ADD, 0, 1], [WAIT, 50, 0], [ADD, 1, 1]]).await;
        ground.submit(&messages, 2, &[[ADD, 1, 1], [WAIT, 50, 0], [ADD, 0, 1]]).await;
        ground.receive(&messages, 1).await;
        assert_eq!(ground.server.report().restarting, 1);
        let executor = ground.database.executor().whole();
        let began = executor.now();
        ground.server.close_within(1_000_000).await;
        let took_ns = executor.now().since_ns(began);
        assert!(took_ns < 1_000_000_000, "{took_ns}");
    });
}

/// What message servers of one run saw: when each response came, and whether its transaction committed.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    responses: Vec<(u64, u64, bool)>,
    counts: Vec<u8>,
    report: ServerReport,
}

/// A message server that submits random requests and hears of each exactly once.
async fn client(
    ground: Rc<Ground>,
    number: u64,
    mut random: Random,
    outcome: Rc<RefCell<Outcome>>,
) -> BTreeMap<u64, Vec<[u8; 3]>> {
    let messages = ground.server.message_server();
    let executor = ground.database.executor().whole().clone();
    let count = random.between(5, 40);
    let (mut open, mut committed, mut batch) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for request in 0..=count {
        if request < count {
            let tag = number << 32 | request;
            let steps: Vec<[u8; 3]> = (0..random.between(1, 5))
                .map(|_| match random.below(12) {
                    0..3 => [WAIT, random.between(1, 60) as u8, 0],
                    3 if random.chance(0.3) => [FAIL, 0, 0],
                    _ => [ADD, random.below(KEYS.into()) as u8, random.between(1, 9) as u8],
                })
                .collect();
            ground.submit(&messages, tag, &steps).await;
            open.insert(tag, steps);
        }
        while !open.is_empty() && (request == count || random.chance(0.3)) {
            messages.receive(&mut batch).await;
            for response in batch.drain(..) {
                let steps = open.remove(&response.tag).expect("each request is answered once, at its message server");
                let fails = steps.iter().any(|step| step[0] == FAIL);
                outcome.borrow_mut().responses.push((executor.now().ns(), response.tag, !fails));
                match response.answer {
                    Ok(name) => assert_eq!((name, fails), (response.tag.to_be_bytes().to_vec(), false)),
                    Err(error) => assert_eq!((error, fails), (Error::RolledBack("as asked for".into()), true)),
                }
                if !fails {
                    committed.insert(response.tag, steps);
                }
            }
        }
    }
    committed
}

fn play(seed: u64) -> Outcome {
    let mut random = Random::stream(seed, "servers");
    let settings = server::Settings {
        standbys: random.below(5) as u8,
        queue: random.between(1, 8) as usize,
        retry_interval_ns: random.between(0, 300_000),
    };
    let order = if random.chance(0.5) { Order::FirstInFirstOut } else { Order::Seeded(seed) };
    on_any_ground(order, settings, seed.is_multiple_of(2), async |ground| {
        let outcome = Rc::new(RefCell::new(Outcome::default()));
        let executor = ground.database.executor().whole().clone();
        let clients: Vec<_> = (0..random.between(1, 4))
            .map(|number| {
                let stream = Random::stream(seed, &format!("client {number}"));
                let task = client(Rc::clone(&ground), number, stream, Rc::clone(&outcome));
                executor.spawn_in(ground.server.message_group(), 0, task)
            })
            .collect();
        let mut expected = [0_u8; KEYS as usize];
        for client in clients {
            for (tag, steps) in client.join().await {
                assert!(ground.ran(tag).await, "seed {seed}: what was acknowledged is there");
                for [_, key, amount] in steps.into_iter().filter(|step| step[0] == ADD) {
                    expected[usize::from(key)] = expected[usize::from(key)].wrapping_add(amount);
                }
            }
        }
        let mut outcome = outcome.take();
        outcome.counts = ground.counts().await;
        assert_eq!(outcome.counts, expected, "seed {seed}: every transaction ran once");
        outcome.report = ground.server.report();
        let committed = outcome.responses.iter().filter(|(.., committed)| *committed).count() as u64;
        let report = &outcome.report;
        assert_eq!((report.transactions, report.failures), (committed, outcome.responses.len() as u64 - committed));
        assert_eq!(
            report.by_restarts.iter().map(|answered| answered.requests).sum::<u64>(),
            committed,
            "each counts once"
        );
        assert!(report.queue_max <= settings.queue as u64, "seed {seed}: the queue is bounded");
        assert_eq!(report.restarting, 0, "seed {seed}: no request is left in the restart queue");
        assert!(
            settings.standbys > 0 || report.takeovers + report.restarts == 0,
            "seed {seed}: alone, no request conflicts"
        );
        ground.server.close().await;
        ground.database.locks().check().expect("the lock table is sound");
        outcome
    })
}

#[test]
fn nothing_is_lost_whatever_waits_fails_or_conflicts() {
    let outcomes: Vec<Outcome> = (0..60).map(play).collect();
    assert!(outcomes.iter().any(|outcome| outcome.report.restarts > 3), "some conflict");
    assert!(outcomes.iter().any(|outcome| outcome.report.takeovers > 3), "some wait");
}

#[test]
fn the_same_seed_gives_the_same_responses_at_the_same_moments() {
    for seed in 100..106 {
        assert_eq!(play(seed), play(seed));
    }
}
