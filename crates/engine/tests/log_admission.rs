//! Transactions of sets and the room in the log: their records come with the commit, all at once. One that is too large ends
//! itself alone, one that fits later waits for a sweep or is run again, and none takes the room of others' rollbacks.

use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Policy, Strategy, SweepSettings};
use entresol_engine::log::{Acknowledged, Second};
use entresol_engine::server::{self, TransactionServer};
use entresol_engine::set::Logging;
use entresol_engine::{
    Database, Error, Internals, PartitionSpec, Procedures, Result, Settings, Transaction, buffer, log,
};
use executor::{Executor, Order, WaitQueue, WholeExecutor};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, PowerCut, VirtualDriver};

const LOG: u64 = 256 << 10;
const ORGANIZATION: Organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
const ARRIVALS: Organization = Organization::Set { arrivals: true, segment_size: 16 << 10, reserve_percent: 10 };
const BY_SIZE: Policy = Policy { log_bytes: Some(64 << 10), interval_ns: None };

fn settings(logging: Logging, strategy: Strategy, checkpoint: Policy) -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 200, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: LOG, ..log::Settings::default() },
        log_device: "log".into(),
        sweep: SweepSettings { strategy, ..SweepSettings::default() },
        procedures: procedures(),
        checkpoint,
        logging,
        ..Settings::default()
    }
}

/// Puts a number of records of one length under keys that begin with the first byte of the parameters.
fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    procedures.register("fill", async |tx, parameters| {
        let stock = tx.partition("stock")?;
        let [tag, count, padding @ ..] = parameters else { return Err(Error::Argument("two bytes at least".into())) };
        for number in 0..*count {
            tx.put(stock, &[*tag, number], &[*tag; 1_000]).await?;
        }
        Ok(vec![padding.len() as u8])
    });
    procedures
}

/// A machine whose device `data` takes its time, and fails at the writes from the `failing`th on.
fn machine(media: &Media, data_us: u64, failing: Option<u64>) -> Executor {
    let device = |(name, us): (&str, u64)| format!("[device.{name}]\nmedium.service = \"{us} us\"\n");
    let text: String = [("disk", 20), ("log", 20), ("log2", 90), ("data", data_us)].into_iter().map(device).collect();
    let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("data".into()), nth };
    let errors = failing.into_iter().flat_map(|first| (first..first + 10_000).map(error)).collect();
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let options = Options { faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
    Executor::new(Box::new(VirtualDriver::new(hardware, options, media.clone())), Order::FirstInFirstOut)
}

/// Runs `work`, which must end within a minute of the machine's time, then takes the power away.
fn on<T: 'static>(executor: &Executor, media: &Media, work: impl Future<Output = T> + 'static) -> T {
    let result = executor.run(async {
        let work = executor.spawn(work);
        let deadline = executor.now().plus_ns(60 * SECOND_NS);
        while !work.is_finished() {
            assert!(executor.now() < deadline, "a transaction waits for ever");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        work.join().await
    });
    executor.stop();
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    result.expect("the machine goes on")
}

async fn create(executor: &Executor, settings: Settings) -> (Database, PartitionId, PartitionId) {
    let database = Database::create(executor, settings).await.expect("creates");
    let spec = |name, organization| PartitionSpec {
        device: "data".into(),
        ..PartitionSpec::new(name, organization, Locking::Record)
    };
    let stock = database.create_partition(spec("stock", ORGANIZATION)).await.expect("creates a set");
    database.create_partition(spec("orders", ARRIVALS)).await.expect("creates arrivals");
    let notes = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("notes") };
    let notes = database.create_partition(notes).await.expect("creates a tree");
    (database, stock, notes)
}

/// Puts `count` records of 1,000 bytes under keys that begin with `tag`.
async fn fill(tx: &mut Transaction, tag: u8, count: u16) -> Result<()> {
    let stock = tx.partition("stock")?;
    for number in 0..count {
        tx.put(stock, &[&[tag][..], &number.to_be_bytes()].concat(), &[tag; 1_000]).await?;
    }
    Ok(())
}

/// How many records have keys that begin with `tag`; each has a value of that.
async fn count(database: &Database, tag: u8) -> usize {
    let stock = database.partition("stock").expect("it exists");
    let tx = database.begin().await.expect("begins");
    let mut count = 0;
    tx.scan_set(stock, |key, value| {
        assert!(value.iter().all(|byte| *byte == key[0]), "a record of another");
        count += usize::from(key[0] == tag);
        true
    })
    .await
    .expect("scans");
    tx.rollback().await.expect("ends");
    count
}

/// Every strategy with every log that it goes with.
fn pairs() -> impl Iterator<Item = (Logging, Strategy)> {
    let logs = [Logging::Values, Logging::Actions, Logging::Procedures];
    let all = logs.into_iter().flat_map(|logging| Strategy::ALL.map(|strategy| (logging, strategy)));
    all.filter(|(logging, strategy)| strategy.check(*logging).is_ok())
}

#[test]
fn a_transaction_larger_than_the_log_ends_itself_alone() {
    for (logging, strategy) in pairs() {
        let (media, settings) = (Media::new(), settings(logging, strategy, BY_SIZE));
        let executor = machine(&media, 20, None);
        let (own, created) = (executor.clone(), settings.clone());
        on(&executor, &media, async move {
            let (database, stock, notes) = create(&own, created).await;
            let error = database.transaction(async |tx| fill(tx, 1, 500).await).await.expect_err("too large");
            let text = error.to_string();
            assert!(matches!(error, Error::LogFull { needed: 500_000.., capacity: LOG }), "{error:?}");
            assert!(text.contains(&LOG.to_string()) && text.contains("bytes of a log of"), "both sizes: {text}");
            // By hand, with pages, as an arrival.
            let orders = database.partition("orders").expect("it exists");
            let mut tx = database.begin().await.expect("begins");
            tx.put(notes, b"note", b"of a large one").await.expect("puts");
            for _ in 0..500 {
                tx.append(orders, &[3; 1_000]).await.expect("appends");
            }
            let error = tx.commit().await.expect_err("too large");
            assert!(matches!(error, Error::LogFull { .. }), "{error:?}");
            assert_eq!(database.active_transactions(), 0, "it was rolled back");
            for number in 0..200_u8 {
                let small = async |tx: &mut Transaction| tx.put(stock, &[2, number], &[2; 1_000]).await;
                database.transaction(small).await.unwrap_or_else(|error| panic!("{logging:?} {strategy:?}: {error}"));
            }
            assert_eq!(database.transaction(async |tx| tx.get(notes, b"note").await).await, Ok(None));
            assert_eq!(database.set_records(orders), Some(0));
            assert_eq!((count(&database, 1).await, count(&database, 2).await), (0, 200));
        });
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let database = Database::open(&own, settings, "test").await.expect("opens");
            assert_eq!((count(&database, 1).await, count(&database, 2).await), (0, 200));
        });
    }
}

/// Each transaction wants 60 percent of the log, so that every one but the first needs a sweep before its commit.
#[test]
fn what_fits_after_a_sweep_is_committed_after_it() {
    for checkpoint in [Policy::OFF, BY_SIZE] {
        for (logging, strategy) in pairs() {
            let quiesces = strategy == Strategy::TransactionCopyOnUpdate;
            for (quiesce, paged) in [(false, false), (false, true), (quiesces, true)] {
                let (media, mut settings) = (Media::new(), settings(logging, strategy, checkpoint));
                settings.sweep.quiesce = quiesce;
                let executor = machine(&media, 20, None);
                let (own, created) = (executor.clone(), settings.clone());
                on(&executor, &media, async move {
                    let (database, _, notes) = create(&own, created).await;
                    for tag in 0..4 {
                        let work = async |tx: &mut Transaction| {
                            if paged {
                                tx.put(notes, &[tag], &[tag; 100]).await?;
                            }
                            fill(tx, tag, 155).await
                        };
                        let done = database.transaction(work).await;
                        assert_eq!(done, Ok(()), "{logging:?} {strategy:?} {quiesce} {paged} {tag}");
                    }
                });
                let executor = machine(&media, 20, None);
                let own = executor.clone();
                on(&executor, &media, async move {
                    let database = Database::open(&own, settings, "test").await.expect("opens");
                    for tag in 0..4 {
                        assert_eq!(count(&database, tag).await, 155);
                    }
                });
            }
        }
    }
}

/// Many transactions that were all admitted while the log had room come to their commits behind a slow sweep, or one that
/// fails. Beside them, transactions of pages take themselves back.
fn many_at_once(settings: &Settings, failing: Option<u64>) {
    const CLIENTS: u8 = 60;
    let what = format!("{:?} {:?} {failing:?}", settings.sweep.strategy, settings.log.second);
    let (media, committed) = (Media::new(), Rc::new(Cell::new(0_usize)));
    let executor = machine(&media, 2_000, failing);
    let (own, created, counted) = (executor.clone(), settings.clone(), Rc::clone(&committed));
    let told = what.clone();
    on(&executor, &media, async move {
        let (database, stock, notes) = create(&own, created).await;
        let client = |tag: u8| {
            let (database, counted) = (database.clone(), Rc::clone(&counted));
            own.spawn(async move {
                for round in 0..4_u8 {
                    let work = async |tx: &mut Transaction| {
                        if tag.is_multiple_of(10) {
                            tx.put(notes, &[tag, round], &[tag; 200]).await?;
                        }
                        for number in 0..10 {
                            tx.put(stock, &[tag, round, number], &[tag; 1_000]).await?;
                        }
                        // All hold what they hold at the same time.
                        tx.executor().clone().sleep_ns(5 * MILLISECOND_NS).await;
                        if tag.is_multiple_of(20) { Err(Error::RolledBack("so it is".into())) } else { Ok(()) }
                    };
                    match database.transaction(work).await {
                        Ok(()) => counted.set(counted.get() + 1),
                        Err(Error::RolledBack(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in clients {
            let result = client.join().await;
            match failing {
                None => assert_eq!(result, Ok(()), "{told}"),
                Some(_) => assert!(matches!(result, Ok(()) | Err(Error::LogNotRelieved { .. })), "{told}: {result:?}"),
            }
        }
        assert_eq!(database.log().failure(), None, "{told}");
        assert_eq!(database.active_transactions(), 0, "{told}");
    });
    let committed = committed.get();
    assert!(if failing.is_some() { committed > 5 } else { committed == 57 * 4 }, "{what}: {committed} were committed");
    let executor = machine(&media, 20, None);
    let (own, settings) = (executor.clone(), settings.clone());
    on(&executor, &media, async move {
        let database = Database::open(&own, settings, "test").await.expect("opens");
        let stock = database.partition("stock").expect("it exists");
        assert_eq!(database.set_records(stock), Some(10 * committed as u64), "{what}");
        // Work goes on.
        database.transaction(async |tx| fill(tx, 200, 100).await).await.expect("commits");
        database.transaction(async |tx| fill(tx, 201, 100).await).await.expect("commits");
    });
}

#[test]
fn many_small_ones_at_once_wait_for_a_slow_sweep_and_learn_of_one_that_fails() {
    let seconds = [None, Some(Acknowledged::Both), Some(Acknowledged::First)];
    let policies = [(Policy::OFF, false), (BY_SIZE, false), (BY_SIZE, true)];
    for (number, strategy) in Strategy::ALL.into_iter().enumerate() {
        for (turn, (checkpoint, quiesce)) in policies.into_iter().enumerate() {
            let mut settings = settings(Logging::Values, strategy, checkpoint);
            settings.sweep.quiesce = quiesce;
            let second = seconds[(number + turn) % 3];
            settings.log.second = second.map(|acknowledged| Second { device: "log2".into(), acknowledged });
            many_at_once(&settings, (number % 2 == turn % 2).then_some(0));
        }
    }
}

/// A transaction that has changed sets and pages runs out of log. Another has changed sets and waits for its lock.
#[test]
fn no_transaction_waits_for_a_sweep_that_waits_for_it() {
    for strategy in Strategy::ALL {
        let (media, settings) = (Media::new(), settings(Logging::Values, strategy, Policy::OFF));
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let (database, stock, notes) = create(&own, settings).await;
            database.transaction(async |tx| fill(tx, 1, 150).await).await.expect("commits");
            let mixed = {
                let database = database.clone();
                let work = async move |tx: &mut Transaction| {
                    tx.put(stock, b"of the first", b"first").await?;
                    for number in 0..150_u8 {
                        tx.put(notes, &[number], &[7; 200]).await?;
                        tx.executor().clone().sleep_ns(MILLISECOND_NS / 10).await;
                    }
                    Ok::<_, Error>(())
                };
                own.spawn(async move { database.transaction(work).await })
            };
            own.sleep_ns(MILLISECOND_NS).await;
            let other = async |tx: &mut Transaction| {
                tx.put(stock, b"of another", b"another").await?;
                tx.put(stock, b"of the first", b"another").await
            };
            assert_eq!(database.transaction(other).await, Ok(()), "{strategy:?}");
            assert_eq!(mixed.join().await, Ok(()), "{strategy:?}");
            assert_eq!(database.active_transactions(), 0);
        });
    }
}

/// A procedure with parameters that the log cannot take is refused alone, and those that fit come through, one after another.
#[test]
fn servers_answer_requests_that_the_log_has_no_room_for() {
    for (logging, strategy) in pairs() {
        let (media, settings) = (Media::new(), settings(logging, strategy, Policy::OFF));
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let (database, ..) = create(&own, settings).await;
            let server = TransactionServer::start(&database, server::Settings::default()).expect("starts");
            let (messages, fill) = (server.message_server(), server.procedure("fill").expect("it is there"));
            let large = if logging == Logging::Procedures { (1, 400_000) } else { (250, 0) };
            for tag in 0..12_u8 {
                let (count, padding) = match tag % 6 {
                    3 => large,
                    _ if logging == Logging::Procedures => (1, 100_000),
                    _ => (100, 0),
                };
                let parameters = [vec![tag, count], vec![0; padding]].concat();
                messages.submit(fill, u64::from(tag), parameters).await.expect("takes it");
            }
            let mut responses = Vec::new();
            while responses.len() < 12 {
                messages.receive(&mut responses).await;
            }
            for response in &responses {
                let expected = response.tag % 6 != 3;
                match &response.answer {
                    Ok(_) => assert!(expected, "{logging:?} {strategy:?}: {}", response.tag),
                    Err(Error::LogFull { .. }) => assert!(!expected, "{logging:?} {strategy:?}: {}", response.tag),
                    Err(error) => panic!("{logging:?} {strategy:?}: {error}"),
                }
            }
            server.close().await;
            assert_eq!(database.log().failure(), None);
        });
    }
}

/// Transactions that were all admitted while the log had room change their first pages at the same time.
#[test]
fn first_changes_of_many_leave_room_for_their_rollbacks() {
    for commits in [false, true] {
        let (media, settings) = (Media::new(), settings(Logging::Values, Strategy::Fuzzy, Policy::OFF));
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let (database, _, notes) = create(&own, settings).await;
            database.transaction(async |tx| fill(tx, 1, 180).await).await.expect("commits");
            let client = |tag: u8| {
                let database = database.clone();
                own.spawn(async move {
                    let work = async |tx: &mut Transaction| {
                        tx.executor().clone().sleep_ns(MILLISECOND_NS).await;
                        for number in 0..3_u8 {
                            tx.put(notes, &[tag, number], &[tag; 400]).await?;
                            tx.executor().clone().sleep_ns(20 * MILLISECOND_NS).await;
                        }
                        if commits { Ok(()) } else { Err(Error::RolledBack("so it is".into())) }
                    };
                    database.transaction(work).await
                })
            };
            let clients: Vec<_> = (0..200).map(client).collect();
            for client in clients {
                let done = client.join().await;
                assert!(if commits { done.is_ok() } else { matches!(done, Err(Error::RolledBack(_))) }, "{done:?}");
            }
            assert_eq!(database.log().failure(), None);
        });
    }
}

#[test]
fn a_small_transaction_behind_which_others_have_filled_the_log_is_run_again() {
    let media = Media::new();
    let executor = machine(&media, 20, None);
    let settings = settings(Logging::Values, Strategy::Fuzzy, Policy::OFF);
    let work = {
        let executor = executor.clone();
        async move {
            let (database, _, notes) = create(&executor, settings).await;
            let tries = Rc::new(Cell::new(0));
            let small = async |tx: &mut Transaction| {
                tries.set(tries.get() + 1);
                tx.put(notes, b"first", &[1; 100]).await?;
                if tries.get() == 1 {
                    // What others log stays, because it lies behind the first record of this one.
                    let others = database.clone();
                    executor.spawn(async move {
                        for _ in 0..1_000 {
                            let other = async |tx: &mut Transaction| tx.put(notes, b"other", &[2; 500]).await;
                            others.transaction(other).await.expect("commits");
                        }
                    });
                    executor.sleep_ns(SECOND_NS).await;
                }
                for number in 0..60_u8 {
                    tx.put(notes, &[number], &[3; 400]).await?;
                }
                Ok::<_, Error>(())
            };
            let done = database.transaction(small).await;
            (done, tries.get())
        }
    };
    let (done, tries) = on(&executor, &media, work);
    assert_eq!(done, Ok(()), "after {tries} tries");
    assert!(tries > 1, "others have not filled the log");
}

/// Commits that have more to do than to log all ask while the log has room for any one of them, and none has logged yet.
#[test]
fn commits_with_long_values_to_free_leave_one_another_room() {
    for reader in [false, true] {
        let (media, settings) = (Media::new(), settings(Logging::Values, Strategy::Fuzzy, Policy::OFF));
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let (database, _, notes) = create(&own, settings).await;
            for tag in 0..6_u8 {
                database.transaction(async |tx| tx.put(notes, &[tag], &[tag; 5_000]).await).await.expect("puts");
            }
            database.checkpoint().await.expect("checkpoints");
            // For it the long values are copied before they go.
            let snapshot = if reader { Some(database.snapshot().await.expect("begins")) } else { None };
            let (gate, is_open) = (Rc::new(WaitQueue::new()), Rc::new(Cell::new(false)));
            let client = |tag: u8| {
                let (database, gate, is_open) = (database.clone(), Rc::clone(&gate), Rc::clone(&is_open));
                own.spawn(async move {
                    let work = async |tx: &mut Transaction| {
                        fill(tx, tag, 110).await?;
                        let found = tx.delete(notes, &[tag]).await?;
                        // All come to their commits at the same time.
                        if !is_open.get() {
                            gate.wait(tx.executor().whole()).await;
                        }
                        Ok::<_, Error>(found)
                    };
                    database.transaction(work).await
                })
            };
            let clients: Vec<_> = (0..6).map(client).collect();
            own.sleep_ns(SECOND_NS).await;
            is_open.set(true);
            gate.wake_all(&own);
            for client in clients {
                assert_eq!(client.join().await, Ok(true), "reader: {reader}");
            }
            assert_eq!(database.log().failure(), None);
            drop(snapshot);
        });
    }
}

#[test]
fn forced_commits_of_servers_leave_one_another_room() {
    for (force, hold_locks) in [(true, false), (false, true)] {
        let media = Media::new();
        let settings = Settings { force, hold_locks, ..settings(Logging::Values, Strategy::Fuzzy, Policy::OFF) };
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let (database, ..) = create(&own, settings).await;
            let server = TransactionServer::start(&database, server::Settings::default()).expect("starts");
            let (messages, fill) = (server.message_server(), server.procedure("fill").expect("it is there"));
            for tag in 0..12_u8 {
                messages.submit(fill, u64::from(tag), vec![tag, 80]).await.expect("takes it");
            }
            let mut responses = Vec::new();
            while responses.len() < 12 {
                messages.receive(&mut responses).await;
            }
            for response in &responses {
                assert!(response.answer.is_ok(), "{force} {hold_locks}: {:?}", response.answer);
            }
            server.close().await;
            assert_eq!(database.log().failure(), None);
        });
    }
}

/// Where a checkpoint makes room beside what one transaction was promised, others do not wait for the end of that one.
#[test]
fn nothing_waits_for_one_that_was_promised_room_if_a_checkpoint_makes_some() {
    for checkpoint in [Policy::OFF, Policy { log_bytes: Some(LOG), interval_ns: None }] {
        let (media, settings) = (Media::new(), settings(Logging::Values, Strategy::Fuzzy, checkpoint));
        let executor = machine(&media, 20, None);
        let own = executor.clone();
        on(&executor, &media, async move {
            let (database, _, notes) = create(&own, settings).await;
            let mut refused = database.begin().await.expect("begins");
            refused.put(notes, b"first", &[1; 100]).await.expect("puts");
            database.transaction(async |tx| fill(tx, 1, 80).await).await.expect("commits");
            fill(&mut refused, 2, 155).await.expect("puts");
            let age = refused.began();
            let crowded = refused.commit().await;
            assert!(matches!(crowded, Err(Error::LogCrowded { .. })), "{crowded:?}");
            let promised = database.begin_aged(Some(age)).await.expect("begins");
            for tag in 3..13 {
                database.transaction(async |tx| fill(tx, tag, 10).await).await.expect("commits");
            }
            promised.commit().await.expect("ends");
        });
    }
}

#[cfg(feature = "canary")]
mod planted {
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn commits_that_free_whatever_room_there_is_are_found() {
        plant(Some(Canary::UnadmittedFreeing));
        let found = std::panic::catch_unwind(super::commits_with_long_values_to_free_leave_one_another_room);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }
}
