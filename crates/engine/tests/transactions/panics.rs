//! A panic in a caller's own code fails that caller and nothing else.

use crate::ground::machine::run;
use base::PartitionId;
use entresol_engine::server::{self, TransactionServer};
use entresol_engine::{Database, Error, PartitionSpec, Procedures, Result, Settings, Transaction};
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
