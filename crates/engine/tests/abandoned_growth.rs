//! Files that become longer for tasks that do not wait for it any more.

use crate::ground::holding::holding;
use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::Op;
use entresol_engine::{Database, PartitionSpec, Settings, log};
use virtual_driver::{Hardware, Media};

/// All of the log's file is there from the beginning.
fn settings() -> Settings {
    let log = log::Settings { capacity: 8 << 20, first_extent: 8 << 20, ..log::Settings::default() };
    Settings { log, ..Settings::default() }
}

const ROWS: u32 = 3_000;

/// What comes late cuts the file, or writes zeros over what has been written since, if others go on meanwhile.
#[test]
fn growth_that_a_transaction_does_not_wait_for_is_waited_for_by_others() {
    let media = Media::new();
    holding(Hardware::ideal(), &media, async |executor, holder| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let rows = database.create_partition(PartitionSpec::b_tree("rows")).await.expect("creates");
        holder.hold(Instant::from_ns(5 * SECOND_NS), |op| matches!(op, Op::Resize { .. }));
        let put = async |number: u32| {
            database.transaction(async |tx| tx.put(rows, &number.to_be_bytes(), &[7; 1_000]).await).await
        };
        let given_up = executor.within(100 * MILLISECOND_NS, async {
            for number in 0..ROWS {
                put(number).await?;
            }
            Ok::<_, entresol_engine::Error>(())
        });
        assert!(given_up.await.is_none() && holder.has_held(), "the file does not become longer");
        for number in 0..ROWS {
            put(number).await.expect("commits");
        }
        database.checkpoint().await.expect("writes all back");
        executor.sleep_ns(6 * SECOND_NS).await;
        database.close().await.expect("closes");
        let database = Database::open(executor, settings(), "rows").await.expect("opens");
        let mut tx = database.begin().await.expect("begins");
        for number in 0..ROWS {
            let found = tx.get(rows, &number.to_be_bytes()).await.unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(found, Some(vec![7; 1_000]), "{number}");
        }
        tx.rollback().await.expect("ends");
        assert!(database.check(|_| {}).await.expect("reads").is_clean());
        database.close().await.expect("closes");
    });
}
