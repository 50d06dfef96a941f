//! Backups one of whose writes fails while what is copied goes away or is copied anew: a backup that says that it is whole can be restored.

use crate::ground::backups::{on, restored, under};
use base::time::MILLISECOND_NS;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{
    BackupError, BackupSettings, Database, Error, PartitionSpec, RestoreSource, Result, Settings, log,
};
use virtual_driver::{ErrorAt, FaultPlan, Media};

fn settings() -> Settings {
    let log = log::Settings { capacity: 2 << 20, ..log::Settings::default() };
    Settings { log, checkpoint: Policy::OFF, ..Settings::default() }
}

fn set(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new(name, organization, Locking::Record)
}

fn records() -> impl ExactSizeIterator<Item = ([u8; 4], [u8; 400])> + Clone {
    (0..8_000_u32).map(|number| (number.to_be_bytes(), [7; 400]))
}

/// A closed database that `work` has filled.
fn filled(work: impl AsyncFnOnce(&Database) -> Result<()>) -> Media {
    let media = Media::new();
    on(&media, async |executor| {
        let database = Database::create(executor, settings()).await?;
        work(&database).await?;
        database.close().await
    })
    .expect("fills");
    media
}

/// Takes a backup of which this write fails and meanwhile does this. Whether the backup says that it is whole, and what a restore says then.
fn backed_up_beside(
    media: &Media,
    (nth, bytes_per_second, delay_ns): (u64, u64, u64),
    change: impl AsyncFn(&Database) -> Result<()>,
) -> Option<Result<()>> {
    let error = ErrorAt { kind: OpKind::Write, device: Some("backup".into()), nth };
    let plan = FaultPlan { errors: vec![error], ..FaultPlan::default() };
    let is_whole = under(plan, media, async |executor| {
        let database = Database::open(executor, settings(), "disk").await?;
        let other = database.clone();
        let to = BackupSettings { target: "backup".into(), base: None, bytes_per_second: Some(bytes_per_second) };
        let backup = executor.spawn(async move { other.backup(&to, |_| {}).await });
        executor.sleep_ns(delay_ns).await;
        change(&database).await?;
        let backup = backup.join().await;
        database.close().await?;
        Ok::<_, Error>(backup.is_ok())
    });
    let source = RestoreSource { backup: "backup".into(), ..RestoreSource::default() };
    let restore = async |executor: &_| restored(executor, &settings(), &source).await?.0.close().await;
    is_whole.expect("the database goes on").then(|| on(media, restore))
}

#[test]
fn a_backup_whose_write_fails_before_the_partition_is_dropped_is_not_whole_or_can_be_restored() {
    let media = filled(async |database| {
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.load_b_tree(tree, records(), |_| {}).await
    });
    for nth in 1..20 {
        let drop = async |database: &Database| database.drop_partition(database.partition("tree")?).await;
        let found = backed_up_beside(&media.copy(), (nth, 8 << 20, 300 * MILLISECOND_NS), drop);
        assert!(found.as_ref().is_none_or(Result::is_ok), "write {nth}: {found:?}");
    }
}

#[test]
fn a_backup_whose_write_fails_before_a_sweep_overtakes_it_is_not_whole_or_can_be_restored() {
    const LOADED: [&str; 3] = ["first", "second", "third"];
    let media = filled(async |database| {
        for name in ["stock"].iter().chain(&LOADED) {
            database.create_partition(set(name)).await?;
        }
        database.load_set(database.partition("stock")?, records().take(2_000), |_| {}).await
    });
    for nth in 1..60 {
        let load = async |database: &Database| {
            for name in LOADED {
                database.load_set(database.partition(name)?, records().take(20), |_| {}).await?;
            }
            Ok(())
        };
        let found = backed_up_beside(&media.copy(), (nth, 1 << 20, 400 * MILLISECOND_NS), load);
        assert!(found.as_ref().is_none_or(Result::is_ok), "write {nth}: {found:?}");
    }
}

/// What a failed backup cannot remove the next one does, unless it is a whole backup after all.
#[test]
fn a_backup_that_fails_and_cannot_be_removed_leaves_a_place_for_the_next_one() {
    let media = filled(async |database| {
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await
    });
    let to = || BackupSettings { target: "backup".into(), base: None, bytes_per_second: None };
    let (mut failed, mut whole) = (0, 0);
    for (kind, nth, removal) in [OpKind::Open, OpKind::Write, OpKind::Sync]
        .into_iter()
        .flat_map(|kind| (1..12).flat_map(move |nth| (1..6).map(move |removal| (kind, nth, removal))))
    {
        let media = media.copy();
        let error = |kind, nth| ErrorAt { kind, device: Some("backup".into()), nth };
        let errors = vec![error(kind, nth), error(OpKind::Remove, removal)];
        let first = under(FaultPlan { errors, ..FaultPlan::default() }, &media, async |executor| {
            let database = Database::open(executor, settings(), "disk").await?;
            let taken = database.backup(&to(), |_| {}).await;
            database.close().await?;
            Ok::<_, Error>(taken)
        })
        .expect("the database goes on");
        let second = on(&media, async |executor| {
            let database = Database::open(executor, settings(), "disk").await?;
            let taken = database.backup(&to(), |_| {}).await;
            database.close().await?;
            let source = RestoreSource { backup: "backup".into(), ..RestoreSource::default() };
            restored(executor, &settings(), &source).await?.0.close().await?;
            Ok::<_, Error>(taken)
        })
        .unwrap_or_else(|error| panic!("{kind:?} {nth}, removal {removal}: {first:?}, {error}"));
        failed += u32::from(first.is_err());
        whole += u32::from(second.is_err());
        let is_refused = matches!(second, Err(Error::Backup(BackupError::NotEmpty { .. })));
        assert!(second.is_ok() || is_refused, "{kind:?} {nth}, removal {removal}: {first:?}, {second:?}");
    }
    assert!(failed > 20 && whole > 5, "{failed} {whole}");
}
