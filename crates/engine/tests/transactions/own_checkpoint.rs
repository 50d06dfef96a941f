//! A checkpoint that waits for a transaction of the task which awaits it.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::{MILLISECOND_NS, SECOND_NS};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings};
use virtual_driver::Media;

/// Longer than any wait that ends.
const PATIENCE_NS: u64 = 60 * SECOND_NS;

/// Runs `work` in a task of its own, which has to end, on a database with a set.
fn in_a_task<F: AsyncFn(&Database, PartitionId) -> Result<()> + 'static>(strategy: Strategy, work: F) {
    run(&Media::new(), async |executor| {
        let sweep = SweepSettings { strategy, ..SweepSettings::default() };
        let database = Database::create(executor, Settings { sweep, ..Settings::default() }).await?;
        let stock = database.create_partition(PartitionSpec::set("stock")).await?;
        database.transaction(async |tx| tx.put(stock, b"pens", &[1]).await).await?;
        let task = executor.spawn({
            let database = database.clone();
            async move { work(&database, stock).await }
        });
        executor.sleep_ns(PATIENCE_NS).await;
        assert!(task.is_finished(), "the task waits for itself");
        task.join().await?;
        database.checkpoint().await
    })
    .expect("nothing else fails");
}

#[test]
fn a_checkpoint_in_a_transaction_that_it_waits_for_is_refused_and_taken_later() {
    in_a_task(Strategy::TransactionBlackWhite, async |database, stock| {
        let mut holder = None;
        database
            .transaction(async |tx| {
                tx.put(stock, b"pens", &[2]).await?;
                let taken = database.checkpoint().await;
                assert!(matches!(&taken, Err(Error::OwnCheckpoint { holders }) if *holders == [tx.id()]), "{taken:?}");
                holder = Some(tx.id());
                tx.put(stock, b"ink", &[3]).await
            })
            .await?;
        assert!(holder.is_some());
        let mut by_hand = database.begin().await?;
        by_hand.put(stock, b"pens", &[4]).await?;
        let began = database.executor().now();
        let taken = database.checkpoint().await;
        assert!(matches!(taken, Err(Error::OwnCheckpoint { .. })), "{taken:?}");
        assert!(database.executor().now().since_ns(began) >= 100 * MILLISECOND_NS, "another task might have had it");
        by_hand.commit().await?;
        database.checkpoint().await
    });
}

#[test]
fn one_that_waits_for_others_or_for_nothing_is_taken() {
    in_a_task(Strategy::TransactionBlackWhite, async |database, stock| {
        let mut other = database.begin().await?;
        let task = database.executor().spawn(async move {
            other.put(stock, b"pens", &[2]).await?;
            other.executor().clone().sleep_ns(SECOND_NS).await;
            other.commit().await
        });
        database.executor().sleep_ns(MILLISECOND_NS).await;
        // It has changed nothing in sets itself.
        database.transaction(async |tx| tx.get(stock, b"ink").await.map(drop)).await?;
        let mut reads = database.begin().await?;
        assert_eq!(reads.get(stock, b"ink").await?, None);
        database.checkpoint().await?;
        reads.commit().await?;
        task.join().await
    });
    for strategy in [Strategy::TransactionCopyOnUpdate, Strategy::Fuzzy] {
        in_a_task(strategy, async |database, stock| {
            database
                .transaction(async |tx| {
                    tx.put(stock, b"pens", &[2]).await?;
                    database.checkpoint().await
                })
                .await
        });
    }
}

#[test]
fn a_closing_ends_though_a_transaction_of_another_task_does_not() {
    let closed = run(&Media::new(), async |executor| {
        let sweep = SweepSettings { strategy: Strategy::TransactionBlackWhite, ..SweepSettings::default() };
        let database = Database::create(executor, Settings { sweep, ..Settings::default() }).await?;
        let stock = database.create_partition(PartitionSpec::set("stock")).await?;
        let other = database.clone();
        executor.spawn(async move {
            let mut left = other.begin().await?;
            left.put(stock, b"pens", &[1]).await?;
            std::future::pending::<()>().await;
            left.commit().await.map(drop)
        });
        executor.sleep_ns(MILLISECOND_NS).await;
        Ok::<_, Error>(executor.within(PATIENCE_NS, database.close()).await)
    });
    let closed = closed.expect("nothing else fails");
    assert!(matches!(&closed, Some(Err(Error::Unended { holders })) if holders.len() == 1), "{closed:?}");
}
