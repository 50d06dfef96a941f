//! Procedures below serializable: what they see, what they may do to each other, and that a restart does not run them again.

use base::PartitionId;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::server::{self, TransactionServer};
use entresol_engine::set::Logging;
use entresol_engine::{Database, Isolation, PartitionSpec, Procedures, Result, Settings, Transaction, checkpoint};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> Result<T>) -> T {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on").expect("nothing fails")
}

/// Gives the account that the first byte names one more than the other has, after others had time to do the same.
async fn outdo(tx: &mut Transaction, parameters: &[u8]) -> Result<Vec<u8>> {
    let accounts = tx.partition("accounts")?;
    let other = tx.get(accounts, &[1 - parameters[0]]).await?.expect("it is there");
    tx.executor().clone().sleep_ns(100_000).await;
    tx.put(accounts, &parameters[..1], &[other[0] + 1]).await?;
    Ok(vec![other[0] + 1])
}

/// Adds one to the first account, after others had time to do the same.
async fn count(tx: &mut Transaction, _: &[u8]) -> Result<Vec<u8>> {
    let accounts = tx.partition("accounts")?;
    let count = tx.get(accounts, &[0]).await?.expect("it is there")[0] + 1;
    tx.executor().clone().sleep_ns(100_000).await;
    tx.put(accounts, &[0], &[count]).await?;
    Ok(vec![count])
}

/// Settings with these procedures, which count how often they run.
fn settings(logging: Logging, isolation: Isolation, runs: &Rc<Cell<u32>>) -> Settings {
    let mut procedures = Procedures::new();
    let counted = Rc::clone(runs);
    let outdo = procedures.register("outdo", async move |tx, parameters| {
        counted.set(counted.get() + 1);
        outdo(tx, parameters).await
    });
    outdo.at(isolation);
    let counted = Rc::clone(runs);
    let count = procedures.register("count", async move |tx, parameters| {
        counted.set(counted.get() + 1);
        count(tx, parameters).await
    });
    count.at(isolation);
    let sweep = SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() };
    Settings { procedures, logging, sweep, checkpoint: checkpoint::Policy::OFF, ..Settings::default() }
}

async fn accounts(database: &Database) -> Result<PartitionId> {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let accounts = PartitionSpec::new("accounts", organization, Locking::Record);
    let accounts = database.create_partition(accounts).await?;
    for account in 0..2 {
        database.transaction(async |tx| tx.put(accounts, &[account], &[0]).await).await?;
    }
    Ok(accounts)
}

async fn balances(database: &Database) -> Result<[u8; 2]> {
    let (accounts, mut now) = (database.partition("accounts")?, database.snapshot().await?);
    let mut balances = [0; 2];
    for account in 0..2 {
        balances[usize::from(account)] = now.get(accounts, &[account]).await?.expect("it is there")[0];
    }
    Ok(balances)
}

/// Two calls at once, by the transaction server or as tasks of their own.
async fn both(database: &Database, name: &'static str, is_served: bool) -> Result<()> {
    if is_served {
        let server = TransactionServer::start(database, server::Settings::default())?;
        let (messages, procedure) = (server.message_server(), server.procedure(name)?);
        for account in 0..2 {
            messages.submit(procedure, u64::from(account), vec![account]).await?;
        }
        let mut responses = Vec::new();
        while responses.len() < 2 {
            messages.receive(&mut responses).await;
        }
        server.close().await;
        return responses.into_iter().try_for_each(|response| response.answer.map(drop));
    }
    let call = |account: u8| {
        let database = database.clone();
        database.executor().clone().spawn(async move { database.call(name, &[account]).await })
    };
    let (one, other) = (call(0), call(1));
    one.join().await?;
    other.join().await.map(drop)
}

#[test]
fn a_procedure_has_the_level_that_it_was_registered_with_and_a_restart_what_it_has_done() {
    for logging in Logging::ALL {
        for (isolation, skews, loses) in [
            (Isolation::ReadCommitted, true, true),
            (Isolation::Snapshot, true, false),
            (Isolation::Serializable, false, false),
        ] {
            for is_served in [false, true] {
                let media = Media::new();
                let before = run(&media, async |executor| {
                    let database = Database::create(executor, settings(logging, isolation, &Rc::default())).await?;
                    accounts(&database).await?;
                    // Serializable, one of them sees the other's change; run again by a restart, it would see it, too.
                    both(&database, "outdo", is_served).await?;
                    let [one, other] = balances(&database).await?;
                    assert_eq!(one == other, skews, "{isolation:?}, served {is_served}: {one}, {other}");
                    both(&database, "count", is_served).await?;
                    let after = balances(&database).await?;
                    assert_eq!(after, [one + if loses { 1 } else { 2 }, other], "{isolation:?}, served {is_served}");
                    Ok(after)
                });
                // The machine vanishes, and begins again; what its procedures are registered with by then does not matter.
                run(&media, async |executor| {
                    let runs = Rc::default();
                    let settings = settings(logging, Isolation::Snapshot, &runs);
                    let database = Database::open(executor, settings, "test").await?;
                    let calls =
                        if logging == Logging::Procedures && isolation == Isolation::Serializable { 4 } else { 0 };
                    assert_eq!(runs.get(), calls, "{logging:?}, {isolation:?}");
                    assert_eq!(balances(&database).await?, before, "{logging:?}, {isolation:?}, served {is_served}");
                    Ok(())
                });
            }
        }
    }
}

#[test]
fn a_procedure_of_any_level_has_its_memory_prefetched() {
    for isolation in Isolation::ALL {
        let hints = Rc::new(Cell::new(0));
        let mut settings = settings(Logging::Values, isolation, &Rc::default());
        let counted = Rc::clone(&hints);
        settings.procedures.register("count", count).at(isolation).prefetch(move |memory, parameters| {
            counted.set(counted.get() + 1);
            memory.prefetch(memory.partition("accounts").expect("it is there"), parameters);
        });
        let [balance, _] = run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings).await?;
            accounts(&database).await?;
            let server = TransactionServer::start(&database, server::Settings::default())?;
            let (messages, procedure) = (server.message_server(), server.procedure("count")?);
            for number in 0..20 {
                messages.submit(procedure, number, vec![0]).await?;
            }
            let mut responses = Vec::new();
            while responses.len() < 20 {
                messages.receive(&mut responses).await;
            }
            server.close().await;
            balances(&database).await
        });
        assert!(hints.get() > 10, "{isolation:?}: {} hints", hints.get());
        assert_eq!(balance == 20, isolation != Isolation::ReadCommitted, "{isolation:?}: {balance}");
    }
}
