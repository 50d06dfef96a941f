//! Openings of a database with a long catalog, whose log is full, and whose archive is away: they are refused, and change nothing.

use crate::ground::archived as ground;
use base::Instant;
use base::time::SECOND_NS;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Asked, Database, Error, PartitionSpec, Result, Settings, log};
use executor::Executor;
use ground::{PAGE, added_keys, histories, on, under};
use std::cell::Cell;
use virtual_driver::{ErrorAt, FaultPlan, Media, Slow};

/// What the catalog says of this number of partitions is longer than the log's reserve.
const PARTITIONS: usize = 400;

fn settings() -> Settings {
    let archived = ground::settings();
    Settings { log: log::Settings { reserve: 0.1, ..archived.log }, ..archived }
}

async fn create(executor: &Executor) -> Result<()> {
    let database = Database::create(executor, settings()).await?;
    database.create_partition(PartitionSpec::b_tree("rows")).await?;
    for number in 0..PARTITIONS {
        let organization = Organization::Append { blocking_factor: 0 };
        let name = format!("{number:0>64}");
        database.create_partition(PartitionSpec::new(&name, organization, Locking::Page)).await?;
    }
    database.close().await
}

/// Adds records until one is refused.
async fn fill(database: &Database, added: &Cell<u64>) -> Error {
    let rows = database.partition("rows").expect("it exists");
    loop {
        let key = added.get().to_be_bytes();
        match database.transaction(async |tx| tx.put(rows, &key, &[7; 400]).await).await {
            Ok(()) => added.set(added.get() + 1),
            Err(error) => return error,
        }
    }
}

/// Whatever is asked of the archive fails.
fn away() -> FaultPlan {
    let kinds = [OpKind::Open, OpKind::List, OpKind::Read, OpKind::Write, OpKind::Sync];
    let error = |kind, nth| ErrorAt { kind, device: Some("archive".into()), nth };
    let errors = kinds.into_iter().flat_map(|kind| (1..300).map(move |nth| error(kind, nth))).collect();
    FaultPlan { errors, ..FaultPlan::default() }
}

/// It does not answer.
fn silent() -> FaultPlan {
    let until = Instant::from_ns(10_000 * SECOND_NS);
    let slow = vec![Slow { device: "archive".into(), from: Instant::START, until, factor: Slow::HUNG }];
    FaultPlan { slow, ..FaultPlan::default() }
}

/// A database with a full log, and how many records were acknowledged.
fn filled() -> (Media, u64) {
    let (media, added) = (Media::new(), Cell::new(0));
    on(&media, create).expect("creates");
    under(away(), &media, async |executor| {
        let database = Database::open(executor, settings(), "full").await.expect("the log has room");
        let refused = fill(&database, &added).await;
        assert!(matches!(refused, Error::LogNotArchived { .. }), "{refused}");
    });
    (media, added.get())
}

#[test]
fn an_opening_is_refused_until_the_archive_is_back() {
    let (media, added) = filled();
    for faults in [away(), away(), silent(), away(), away()] {
        let refused = under(faults, &media, async |executor| {
            Database::open(executor, settings(), "full").await.map(drop).expect_err("the log has no room")
        });
        assert!(matches!(refused, Error::LogNotArchived { .. }), "{refused}");
    }
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "full").await?;
        let (rows, mut tx) = (database.partition("rows")?, database.begin().await?);
        for key in 0..added {
            assert!(tx.get(rows, &key.to_be_bytes()).await?.is_some(), "{key} of {added}");
        }
        tx.commit().await?;
        database.transaction(async |tx| tx.put(rows, &added.to_be_bytes(), b"more").await).await?;
        database.close().await
    })
    .expect("opens");
    let histories = histories(&media, PAGE).expect("the archive is whole");
    let [history] = &histories.values().collect::<Vec<_>>()[..] else { panic!("{} histories", histories.len()) };
    // One that was refused at its commit was added and taken back before it was added again.
    let mut archived = added_keys(history, PAGE);
    archived.dedup();
    assert!(archived.into_iter().eq((0..=added).map(|key| key.to_be_bytes().to_vec())));
}

#[test]
fn a_log_that_would_never_hold_what_its_archive_is_told_is_refused_by_name() {
    let media = Media::new();
    on(&media, create).expect("creates");
    for (size, is_large) in [(32 << 10, false), (512 << 10, true)] {
        let settings = Settings { asked: Asked { log_size: Some(size), ..Asked::default() }, ..settings() };
        let opened = on(&media, async |executor| Database::open(executor, settings, "sized").await?.close().await);
        match opened {
            Ok(()) => assert!(is_large),
            Err(Error::Setting(why)) => assert!(!is_large && why.contains("ask for a larger log"), "{why}"),
            Err(error) => panic!("{error}"),
        }
    }
}
