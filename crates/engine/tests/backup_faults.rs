//! Backups and restores of which something comes in between: drops, faults, and what an earlier database has left.

#[path = "ground/backups.rs"]
mod ground;

use base::PartitionId;
use base::time::MILLISECOND_NS;
use driver::{Op, OpKind};
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldType, Logging, RecordType};
use entresol_engine::{
    BackupSettings, Database, Error, PartitionSpec, Procedures, RestoreSource, Result, Settings, Transaction,
    checkpoint, log,
};
use ground::{lose, names, on, restored, under};
use virtual_driver::{ErrorAt, FaultPlan, Media};

/// Puts a record into "stock" whose value says whether there is a partition "flag", and 2 if it has an index.
async fn note(tx: &mut Transaction, key: &[u8]) -> Result<Vec<u8>> {
    let stock = tx.partition("stock")?;
    let index = |flag| 1 + u8::from(tx.catalog().secondary(flag, "by_group").is_ok());
    let answer = vec![tx.partition("flag").map_or(0, index)];
    tx.put(stock, key, &answer).await?;
    Ok(answer)
}

fn settings() -> Settings {
    let mut procedures = Procedures::new();
    procedures.register("note", note);
    Settings {
        procedures,
        logging: Logging::Procedures,
        sweep: SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn set(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new(name, organization, Locking::Record)
}

fn source() -> RestoreSource {
    RestoreSource { backup: "backup".into() }
}

/// Restores a backup during whose copy of the sets a procedure is called and the catalog is changed; what the call has noted then.
fn noted(
    flag: &PartitionSpec,
    change: impl AsyncFn(&Database, PartitionId) -> Result<()>,
) -> (Vec<u8>, Option<Vec<u8>>) {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        for name in ["stock", "some", "more"] {
            let id = database.create_partition(set(name)).await?;
            database.transaction(async |tx| tx.put(id, b"first", b"x").await).await?;
        }
        let flag = database.create_partition(flag.clone()).await?;
        let other = database.clone();
        // One segment a second.
        let slow = BackupSettings { target: "backup".into(), bytes_per_second: Some(1 << 14), base: None };
        let backup = executor.spawn(async move { other.backup(&slow, |_| {}).await });
        executor.sleep_ns(300 * MILLISECOND_NS).await;
        let noted = database.call("note", &[0]).await?;
        change(&database, flag).await?;
        backup.join().await?;
        database.close().await?;
        let (database, _) = restored(executor, &settings(), &source()).await?;
        let stock = database.partition("stock")?;
        let found = database.transaction(async |tx| tx.get(stock, &[0]).await).await?;
        database.close().await?;
        Ok::<_, Error>((noted, found))
    })
    .expect("works")
}

#[test]
fn a_partition_that_is_dropped_behind_the_copy_of_the_sets_changes_no_call() {
    let dropped = noted(&set("flag"), async |database, flag| database.drop_partition(flag).await);
    assert_eq!(dropped, (vec![1], Some(vec![1])));
}

#[test]
fn an_index_that_is_created_or_dropped_behind_the_copy_of_the_sets_changes_no_call() {
    let record = RecordType::new([("group", FieldType::U32)]).expect("sound");
    let tree = PartitionSpec::b_tree("flag").record(record);
    let create = async |database: &Database, flag| {
        database.create_index(flag, IndexSpec::new("by_group", &["group"])).await.map(drop)
    };
    assert_eq!(noted(&tree, create), (vec![1], Some(vec![1])));
    let indexed = tree.secondary("by_group", &["group"]);
    let dropped = noted(&indexed, async |database, flag| database.drop_index(flag, "by_group").await);
    assert_eq!(dropped, (vec![2], Some(vec![2])));
}

/// A backup of a small database without calls, which is closed.
fn backed_up() -> Media {
    let media = Media::new();
    on(&media, async |executor| {
        let database = Database::create(executor, plain()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await?;
        database
            .backup(&BackupSettings { target: "backup".into(), bytes_per_second: None, base: None }, |_| {})
            .await?;
        database.close().await
    })
    .expect("backs up");
    media
}

fn plain() -> Settings {
    Settings { procedures: Procedures::new(), logging: Logging::Values, ..settings() }
}

#[test]
fn a_restore_that_fails_anywhere_can_be_begun_again() {
    let media = backed_up();
    on(&media, async |executor| lose(executor, &["disk", "flash"]).await);
    for kind in [OpKind::Write, OpKind::Resize, OpKind::Sync] {
        for nth in 1..40 {
            let media = media.copy();
            let errors = vec![ErrorAt { kind, device: Some("disk".into()), nth }];
            let plan = FaultPlan { errors, ..FaultPlan::default() };
            let restore = async |executor: &_| Database::restore(executor, &plain(), &source(), |_| {}).await;
            let first = under(plan, &media, restore);
            let again = on(&media, async |executor| match Database::open(executor, plain(), "disk").await {
                Ok(database) => database.close().await,
                Err(Error::NotADatabase { .. } | Error::Unfinished { .. }) => restore(executor).await.map(drop),
                Err(error) => Err(error),
            });
            assert_eq!(again, Ok(()), "{kind:?} {nth}, {first:?}");
        }
    }
}

#[test]
fn copies_of_pages_that_an_earlier_database_has_left_are_none_of_the_restored_ones() {
    let media = backed_up();
    on(&media, async |executor| {
        let device = executor.device("disk").expect("the machine has it");
        for name in names(executor, "disk").await.into_iter().filter(|name| name != "double-write") {
            executor.perform(Op::Remove { device, name }).await.result.expect("removes");
        }
        assert_eq!(names(executor, "disk").await, ["double-write"]);
        Database::restore(executor, &plain(), &source(), |_| {}).await.expect("restores");
        assert!(!names(executor, "disk").await.contains(&"double-write".to_owned()));
    });
}
