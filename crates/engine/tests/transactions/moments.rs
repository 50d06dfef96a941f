//! Moments that are still to come cannot be read, nor those that are too long ago.

use crate::ground::machine::run;
use base::Lsn;
use base::time::SECOND_NS;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, version};
use virtual_driver::Media;

#[test]
fn the_future_cannot_be_read() {
    for retention_ns in [0, 3600 * SECOND_NS] {
        run(&Media::new(), async |executor| {
            let undo = version::UndoSettings { retention_ns, ..version::UndoSettings::default() };
            let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            database.transaction(async |tx| tx.put(tree, b"a", &[1]).await).await?;
            executor.sleep_ns(SECOND_NS).await;
            let (now, end) = (executor.now(), database.log().end());
            for later_ns in [1, SECOND_NS] {
                let read = database.as_of_time(now.plus_ns(later_ns)).await.map(|snapshot| snapshot.moment());
                assert!(matches!(read, Err(Error::FutureMoment { .. })), "{read:?}");
            }
            let read = database.as_of(Lsn(end.0 + 1)).await.map(|snapshot| snapshot.moment());
            assert!(matches!(read, Err(Error::FutureMoment { .. })), "{read:?}");
            if retention_ns > 0 {
                let mut present = database.as_of_time(now).await?;
                assert_eq!(present.get(tree, b"a").await?, Some(vec![1]));
                assert_eq!(database.as_of(present.moment()).await?.get(tree, b"a").await?, Some(vec![1]));
            }
            Ok::<(), Error>(())
        })
        .expect("nothing fails");
    }
}

/// What had been added since a moment is forgotten when that is too long ago; it must not show there then.
#[test]
fn a_moment_before_the_retention_is_refused() {
    run(&Media::new(), async |executor| {
        let undo = version::UndoSettings { retention_ns: SECOND_NS, ..version::UndoSettings::default() };
        let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let put = async |key: &[u8]| database.transaction(async |tx| tx.put(tree, key, &[1]).await).await;
        put(b"a").await?;
        let before = database.snapshot().await?.moment();
        put(b"b").await?;
        for key in [b"c", b"d", b"e"] {
            executor.sleep_ns(SECOND_NS).await;
            put(key).await?;
        }
        let read = match database.as_of(before).await {
            Ok(mut snapshot) => snapshot.get(tree, b"b").await,
            Err(error) => Err(error),
        };
        assert!(matches!(read, Err(Error::SnapshotTooOld { .. })), "{read:?}");
        Ok::<(), Error>(())
    })
    .expect("nothing fails");
}

#[cfg(feature = "canary")]
#[test]
fn a_future_that_can_be_read_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::ReadFuture));
    let found = std::panic::catch_unwind(the_future_cannot_be_read);
    plant(None);
    assert!(found.is_err(), "nothing notices that the future is read");
}
