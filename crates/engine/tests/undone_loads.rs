//! Bulk loads that come to nothing when the log says already that they have ended: restores from the log's archive go on past them, and
//! past no others.

use crate::ground::backups as ground;
use crate::ground::cut_machine::run_up_to;
use crate::ground::restoring::{backup, plain, set, settings, to};
use base::time::MILLISECOND_NS;
use base::{PartitionId, Random};
use driver::{Halt, OpKind};
use entresol_engine::{BackupError, Database, Error, PartitionSpec, RestoreTarget, Result};
use executor::Executor;
use ground::{on, restored, under};
use std::cell::Cell;
use virtual_driver::{ErrorAt, FaultPlan, Media, PowerCut};

const LOADED: u64 = 1_000;

fn records() -> impl Iterator<Item = ([u8; 8], [u8; 50])> {
    (0..LOADED).map(|key| (key.to_be_bytes(), [7; 50]))
}

/// A set or a b-tree whose files are on a device of their own.
fn spec(is_set: bool) -> PartitionSpec {
    let spec = if is_set { set("loaded") } else { PartitionSpec::b_tree("loaded") };
    PartitionSpec { device: "flash".into(), ..spec }
}

/// A database with an empty partition and a backup.
async fn create(executor: &Executor, is_set: bool) -> Result<()> {
    let database = Database::create(executor, settings()).await?;
    database.create_partition(spec(is_set)).await?;
    database.backup(&backup(), |_| {}).await?;
    database.close().await
}

async fn load(database: &Database) -> Result<()> {
    let id = database.partition("loaded")?;
    match database.set_records(id) {
        Some(_) => database.load_set(id, records(), |_| {}).await,
        None => database.load_b_tree(id, records(), |_| {}).await,
    }
}

/// How many of the records that are loaded are there.
async fn count(database: &Database, id: PartitionId) -> Result<u64> {
    let (mut tx, mut found) = (database.begin().await?, 0);
    for key in 0..LOADED {
        found += u64::from(tx.get(id, &key.to_be_bytes()).await?.is_some());
    }
    tx.commit().await?;
    Ok(found)
}

/// Commits a record beside those that are loaded.
async fn put(database: &Database) -> Result<()> {
    let id = database.partition("loaded")?;
    database.transaction(async |tx| tx.put(id, &LOADED.to_be_bytes(), b"later").await).await
}

/// A restore of everything has the record that was put, and no others; or it names the load, if that `is_there`.
async fn check_restore(executor: &Executor, is_there: bool, what: &str) -> Result<()> {
    let found = restored(executor, &plain(), &to(RestoreTarget::End)).await;
    if is_there {
        let error = found.map(drop).expect_err("the log does not have it");
        let is_named =
            matches!(&error, Error::Backup(BackupError::LoadNotLogged { partition, .. }) if partition == "loaded");
        assert!(is_named, "{what}: {error}");
        return Ok(());
    }
    let (database, _) = found?;
    let id = database.partition("loaded")?;
    assert_eq!(count(&database, id).await?, 0, "{what}");
    let later = database.transaction(async |tx| tx.get(id, &LOADED.to_be_bytes()).await).await?;
    assert_eq!(later.as_deref(), Some(&b"later"[..]), "{what}");
    database.close().await
}

#[test]
fn a_restore_goes_on_past_a_load_of_a_set_that_failed() {
    let mut failed = 0;
    for (kind, last) in [(OpKind::Write, 4), (OpKind::Sync, 1)] {
        for nth in 1..=last {
            let (what, media) = (format!("{kind:?} {nth}"), Media::new());
            on(&media, async |executor| create(executor, true).await).expect("creates");
            let errors = vec![ErrorAt { kind, device: Some("flash".into()), nth }];
            let loaded = under(FaultPlan { errors, ..FaultPlan::default() }, &media, async |executor| {
                let database = Database::open(executor, settings(), "test").await?;
                let loaded = load(&database).await;
                put(&database).await?;
                database.close().await?;
                Ok::<_, Error>(loaded)
            });
            let is_there = loaded.expect("works").is_ok();
            failed += u32::from(!is_there);
            on(&media, async |executor| check_restore(executor, is_there, &what).await).expect("restores");
        }
    }
    assert_eq!(failed, 5);
}

#[test]
fn a_restore_names_the_load_that_came_after_one_that_failed() {
    let media = Media::new();
    on(&media, async |executor| create(executor, true).await).expect("creates");
    let errors = vec![ErrorAt { kind: OpKind::Sync, device: Some("flash".into()), nth: 1 }];
    under(FaultPlan { errors, ..FaultPlan::default() }, &media, async |executor| {
        let database = Database::open(executor, settings(), "test").await?;
        load(&database).await.expect_err("a sync fails");
        load(&database).await?;
        put(&database).await?;
        database.close().await?;
        check_restore(executor, true, "the second").await
    })
    .expect("works");
}

/// Runs `work` until the power goes.
fn until_cut(media: &Media, event: u64, work: impl AsyncFnOnce(&Executor) -> Result<()>) {
    let result = run_up_to(media, ground::hardware(), Some(event), work);
    assert!(matches!(&result, Ok(Ok(())) | Err(Halt::PowerCut)), "{result:?}");
    media.power_cut(&mut Random::stream(event, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
}

#[test]
fn a_restore_goes_on_past_a_load_that_a_power_cut_has_cut_off_and_names_one_that_it_has_not() {
    for (is_set, step) in [(true, 1), (false, 2)] {
        let (mut nothing, mut all) = (0, 0);
        let prepared = Media::new();
        on(&prepared, async |executor| create(executor, is_set).await).expect("creates");
        let mut cut = 1;
        while nothing < 5 || all < 5 {
            let (media, is_acknowledged) = (prepared.copy(), Cell::new(false));
            until_cut(&media, cut, async |executor| {
                let database = Database::open(executor, settings(), "test").await?;
                load(&database).await?;
                is_acknowledged.set(true);
                executor.sleep_ns(100 * MILLISECOND_NS).await;
                Ok(())
            });
            let what = format!("{is_set} {cut}");
            on(&media, async |executor| {
                let database = Database::open(executor, settings(), "test").await?;
                let found = count(&database, database.partition("loaded")?).await?;
                assert!(found == LOADED || found == 0 && !is_acknowledged.get(), "{what}: {found}");
                if is_acknowledged.get() {
                    all += 1;
                } else {
                    nothing += u32::from(found == 0);
                }
                put(&database).await?;
                database.close().await?;
                check_restore(executor, found == LOADED, &what).await
            })
            .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(cut < 5_000, "{nothing} times nothing, {all} times all");
            cut += step;
        }
    }
}

#[cfg(feature = "canary")]
mod canaries {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn a_load_that_comes_to_nothing_unsaid_is_found() {
        for check in [
            a_restore_goes_on_past_a_load_of_a_set_that_failed,
            a_restore_goes_on_past_a_load_that_a_power_cut_has_cut_off_and_names_one_that_it_has_not,
        ] {
            plant(Some(Canary::UnsaidUndoing));
            let found = std::panic::catch_unwind(check);
            plant(None);
            assert!(found.is_err(), "nothing notices it");
        }
    }
}
