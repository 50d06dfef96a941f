//! Compactions beside bulk loads, and loads behind them.

use crate::ground::kinds::{prepared, settings, whole};
use base::PartitionId;
use entresol_engine::{Database, Error, PartitionSpec, Result};

const COUNT: u32 = 150_000;

fn records() -> impl Iterator<Item = ([u8; 4], [u8; 50])> {
    (0..COUNT).map(|number| (number.to_be_bytes(), [number as u8; 50]))
}

async fn verify(database: &Database, id: PartitionId) -> Result<()> {
    let mut tx = database.begin().await?;
    for (key, value) in records().step_by(37) {
        assert_eq!(tx.get(id, &key).await?.as_deref(), Some(&value[..]));
    }
    tx.rollback().await?;
    let checked = database.check(|_| {}).await?;
    assert!(checked.is_clean(), "{:?}", checked.findings);
    Ok(())
}

#[test]
fn a_compaction_cuts_nothing_off_that_a_bulk_load_has_written() {
    for pause_ns in (0..12).map(|step| 15_000 * step) {
        whole(&prepared(), async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            let id = database.create_partition(PartitionSpec::b_tree("loaded")).await?;
            let loading = database.clone();
            let load = executor.spawn(async move { loading.load_b_tree(id, records(), |_| {}).await });
            executor.sleep_ns(pause_ns).await;
            let compacted = database.compact_partition(id).await;
            assert!(matches!(compacted, Ok(_) | Err(Error::PartitionInUse(_))), "{compacted:?}");
            load.join().await?;
            verify(&database, id).await
        })
        .expect("nothing fails");
    }
}

#[test]
fn a_partition_that_was_compacted_is_not_loaded() {
    whole(&prepared(), async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let id = database.create_partition(PartitionSpec::b_tree("used")).await?;
        let all: Vec<_> = records().take(3_000).collect();
        for some in all.chunks(100) {
            let put = database.transaction(async |tx| {
                for (key, value) in some {
                    tx.put(id, key, value).await?;
                }
                Ok::<_, Error>(())
            });
            put.await?;
        }
        for some in all.chunks(100) {
            let delete = database.transaction(async |tx| {
                for (key, _) in some {
                    tx.delete(id, key).await?;
                }
                Ok::<_, Error>(())
            });
            delete.await?;
        }
        assert!(database.compact_partition(id).await?.given_back > 0);
        let loaded = database.load_b_tree(id, records(), |_| {}).await;
        assert!(matches!(loaded, Err(Error::NotEmpty(_))), "{loaded:?}");
        Ok::<_, Error>(())
    })
    .expect("nothing fails");
}
