//! A panic in a caller's own code fails that caller and nothing else.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::SECOND_NS;
use entresol_engine::server::{self, TransactionServer};
use entresol_engine::statistics::{Event, Listener};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Procedures, Result, Settings, Transaction};
use executor::{catch_panic, panic_message};
use virtual_driver::Media;

fn procedures() -> Procedures {
    let mut procedures = Procedures::new();
    procedures.register("break", async |tx, parameters| {
        for name in ["tree", "set"] {
            let partition = tx.partition(name)?;
            tx.put(partition, b"a", &[7, 7]).await?;
        }
        panic!("a mistake of parameter {}", parameters[0])
    });
    procedures
}

fn with_partitions(work: impl AsyncFn(&Database, [PartitionId; 2]) -> Result<()>) {
    run(&Media::new(), async |executor| {
        let settings = Settings { procedures: procedures(), ..Settings::default() };
        let database = Database::create(executor, settings).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let set = database.create_partition(PartitionSpec::set("set")).await?;
        for partition in [tree, set] {
            database.transaction(async |tx| tx.put(partition, b"a", &[1, 2]).await).await?;
        }
        work(&database, [tree, set]).await?;
        for partition in [tree, set] {
            let found = database.transaction(async |tx| tx.get(partition, b"a").await).await?;
            assert_eq!(found, Some(vec![1, 2]), "half of a transaction is there");
        }
        assert_eq!(database.active_transactions(), 0);
        let report = database.check(|_| {}).await?;
        assert!(report.is_clean(), "{:?}", report.findings);
        Ok::<(), Error>(())
    })
    .expect("nothing else fails");
}

#[test]
fn a_procedure_that_panics_fails_alone() {
    with_partitions(async |database, _| {
        let named = Error::Panicked { what: "break".into(), message: "a mistake of parameter 9".into() };
        assert_eq!(database.call("break", &[9]).await, Err(named.clone()));
        let server = TransactionServer::start(database, server::Settings::default())?;
        let (messages, mut responses) = (server.message_server(), Vec::new());
        messages.submit(server.procedure("break")?, 0, vec![9]).await?;
        messages.receive(&mut responses).await;
        assert_eq!(responses[0].answer, Err(named));
        server.close().await;
        Ok(())
    });
}

#[test]
fn a_panic_within_a_call_leaves_what_it_was_about_as_it_was() {
    with_partitions(async |database, partitions| {
        for partition in partitions {
            let work = async |tx: &mut Transaction| {
                tx.put(partition, b"b", &[3]).await?;
                tx.modify(partition, b"a", |value| {
                    value[0] = 9;
                    value[2]
                })
                .await
            };
            let panic = catch_panic(database.transaction(work)).await.expect_err("there are two bytes");
            assert!(panic_message(&*panic).contains("out of bounds"));
            let error = database.panicked("a test", panic);
            assert!(error.to_string().starts_with("a test panicked: index out of bounds"), "{error}");
            let looked = async |tx: &mut Transaction| tx.get_with(partition, b"a", |_| -> u8 { panic!("no") }).await;
            assert!(catch_panic(database.transaction(looked)).await.is_err());
            // Its locks are given back, and the database goes on.
            database.transaction(async |tx| tx.put(partition, b"a", &[1, 2]).await).await?;
        }
        Ok(())
    });
}

/// A procedure that panics before it gives its future.
fn hasty(_: &mut Transaction, _: &[u8]) -> std::future::Ready<Result<Vec<u8>>> {
    panic!("in haste")
}

/// Panics whenever it hears of a transaction that is run again.
#[derive(Debug)]
struct Nervous;

impl Listener for Nervous {
    fn slow_ns(&self) -> u64 {
        u64::MAX
    }

    fn hear(&self, event: &Event<'_>) {
        assert!(!matches!(event, Event::Retry { .. }), "once more");
    }
}

/// Panics whatever it is asked or told.
#[derive(Debug)]
struct Useless;

impl Listener for Useless {
    fn slow_ns(&self) -> u64 {
        panic!("it does not know")
    }

    fn hear(&self, _: &Event<'_>) {
        panic!("it does not want to know")
    }
}

#[test]
fn a_listener_that_panics_at_everything_ends_nothing() {
    let settings = || Settings { listener: Some(std::rc::Rc::new(Useless)), ..Settings::default() };
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let set = database.create_partition(PartitionSpec::set("set")).await?;
        database.transaction(async |tx| tx.put(set, b"a", &[1]).await).await?;
        assert_eq!(database.active_transactions(), 0);
        database.checkpoint().await
    })
    .expect("it is not asked");
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let set = database.partition("set")?;
        assert_eq!(database.transaction(async |tx| tx.get(set, b"a").await).await?, Some(vec![1]));
        database.close().await
    })
    .expect("opens all the same");
}

/// Calls of a transaction server with two executors, while panics of its program's tasks are contained. Their answers, by tag.
fn answers(procedures: Procedures, calls: &[(&str, &[u8])]) -> Vec<Result<Vec<u8>>> {
    let mut found = Vec::new();
    run(&Media::new(), async |executor| {
        let listener = Some(std::rc::Rc::new(Nervous) as std::rc::Rc<dyn Listener>);
        let settings = Settings { procedures, listener, ..Settings::default() };
        let database = Database::create(executor, settings).await?;
        database.contain_panics();
        let set = database.create_partition(PartitionSpec::set("set")).await?;
        for key in [b"a", b"b"] {
            database.transaction(async |tx| tx.put(set, key, &[0]).await).await?;
        }
        let settings = server::Settings { standbys: 1, ..server::Settings::default() };
        let server = TransactionServer::start(&database, settings)?;
        let (messages, mut responses) = (server.message_server(), Vec::new());
        for (tag, (name, parameters)) in (0..).zip(calls) {
            messages.submit(server.procedure(name)?, tag, parameters.to_vec()).await?;
        }
        let all = async {
            while responses.len() < calls.len() {
                messages.receive(&mut responses).await;
            }
        };
        executor.within(SECOND_NS, all).await.expect("each call is answered");
        server.close().await;
        responses.sort_by_key(|response| response.tag);
        found = responses.into_iter().map(|response| response.answer).collect();
        database.close().await
    })
    .expect("nothing else fails");
    found
}

#[test]
fn a_procedure_that_panics_before_it_begins_fails_alone() {
    let mut procedures = Procedures::new();
    procedures.register("hasty", hasty);
    procedures.register("calm", async |_, _| Ok(Vec::new()));
    let calls: Vec<(&str, &[u8])> = vec![("hasty", b""), ("hasty", b""), ("hasty", b""), ("calm", b"")];
    let found = answers(procedures, &calls);
    let named = Error::Panicked { what: "hasty".into(), message: "in haste".into() };
    assert_eq!(found, [Err(named.clone()), Err(named.clone()), Err(named), Ok(Vec::new())]);
}

#[test]
fn a_hint_that_panics_changes_nothing_of_what_its_calls_do() {
    let mut procedures = Procedures::new();
    let hinted = procedures.register("hinted", async |_, parameters| Ok(parameters.to_vec()));
    hinted.prefetch(|_, _| panic!("no hint"));
    let calls: Vec<(&str, &[u8])> = (0..8).map(|_| ("hinted", &b"x"[..])).collect();
    assert_eq!(answers(procedures, &calls), vec![Ok(b"x".to_vec()); 8]);
}

#[test]
fn a_listener_that_panics_leaves_no_call_unanswered() {
    let mut procedures = Procedures::new();
    procedures.register("swap", async |tx, keys| {
        let set = tx.partition("set")?;
        for key in keys {
            tx.modify(set, &[*key], |value| value[0] += 1).await?;
            tx.executor().sleep_ns(1_000).await;
        }
        Ok(Vec::new())
    });
    // One of them is a deadlock's victim, and is run again.
    assert_eq!(answers(procedures, &[("swap", b"ab"), ("swap", b"ba")]), vec![Ok(Vec::new()); 2]);
}
