//! A log that is full when the machine stops, and machines that stop again and again while they open the database: openings
//! take nothing of the log for good.

use base::Random;
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::log::{Acknowledged, Second, SyncMethod};
use entresol_engine::{Database, Internals, PartitionSpec, Result, Settings, buffer, log};
use executor::{Executor, Order};
use std::cell::Cell;
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

const ROWS: u64 = 20;

fn settings(second: Option<Acknowledged>, method: SyncMethod) -> Settings {
    let second = second.map(|acknowledged| Second { device: "flash".into(), acknowledged });
    let sync_method = Some(method);
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { page_size: 512, capacity: 128 << 10, second, sync_method, ..log::Settings::default() },
        checkpoint: Policy::OFF,
        ..Settings::default()
    }
}

/// Runs `work` on a machine whose power goes at this event, if it gets so far.
fn on<T>(media: &Media, cut: Option<u64>, seed: u64, work: impl AsyncFnOnce(&Executor) -> T) -> Option<T> {
    let faults = Some(FaultPlan { power_cut_at: cut, ..FaultPlan::default() });
    let options = Options { seed, faults, jitter: true, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::Seeded(seed));
    let result = executor.run(work(&executor));
    assert!(result.is_ok() || result.as_ref().err() == Some(&Halt::PowerCut), "{:?}", result.err());
    executor.stop();
    media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut::default());
    result.ok()
}

/// Changes of a set fill the log, which begins with them until a sweep, beside a transaction that does not end.
async fn fill(executor: &Executor, settings: Settings) -> Result<u8> {
    let database = Database::create(executor, settings).await?;
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let stock = database.create_partition(PartitionSpec::new("stock", organization, Locking::Record)).await?;
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    let mut round = 0_u8;
    while !database.log().is_crowded() {
        round += 1;
        let change = async |tx: &mut entresol_engine::Transaction| {
            for row in 0..ROWS {
                tx.put(stock, &row.to_be_bytes(), &[round; 50]).await?;
            }
            tx.put(notes, b"round", &[round]).await
        };
        database.transaction(change).await?;
        if round == 10 {
            let mut unfinished = database.begin().await?;
            for row in 0..ROWS {
                unfinished.put(notes, &row.to_be_bytes(), &[7; 100]).await?;
            }
            std::mem::forget(unfinished);
        }
    }
    database.log().flush(database.log().end()).await?;
    Ok(round)
}

/// Everything that was committed is there and nothing else; says how much of the log is in use.
async fn check(database: &Database, round: u8) -> Result<u64> {
    let used = database.log().used();
    let (stock, notes) = (database.partition("stock")?, database.partition("notes")?);
    let mut tx = database.begin().await?;
    for row in 0..ROWS {
        assert_eq!(tx.get(stock, &row.to_be_bytes()).await?, Some(vec![round; 50]));
        assert_eq!(tx.get(notes, &row.to_be_bytes()).await?, None, "it was not committed");
    }
    assert_eq!(tx.get(notes, b"round").await?, Some(vec![round]));
    tx.rollback().await?;
    Ok(used)
}

fn survives_openings(settings: &Settings, openings: u64) {
    let media = Media::new();
    let filled = on(&media, None, 0, async |executor| fill(executor, settings.clone()).await);
    let round = filled.expect("the power stays").expect("fills the log");
    let (mut opened, mut random) = (0, Random::stream(5, "cuts"));
    for opening in 1..=openings {
        // Now and then, work goes on for some time after the opening.
        let cut = (1.0 + random.exponential(5.0)).exp2() as u64;
        let ends = Cell::new(false);
        on(&media, Some(cut), opening, async |executor| {
            let database = Database::open(executor, settings.clone(), "test").await;
            let database = database.unwrap_or_else(|error| panic!("opening {opening}: {error}"));
            ends.set(true);
            assert!(database.log().used() <= settings.log.capacity, "opening {opening}");
        });
        opened += u64::from(ends.get());
    }
    assert!(opened > openings / 10 && opened < openings * 9 / 10, "{opened} openings came to their ends");
    let used = on(&media, None, openings + 1, async |executor| {
        let database = Database::open(executor, settings.clone(), "test").await?;
        let used = check(&database, round).await?;
        let stock = database.partition("stock")?;
        for _ in 0..200 {
            let change = async |tx: &mut entresol_engine::Transaction| tx.put(stock, b"more", &[9; 1_000]).await;
            database.transaction(change).await?;
        }
        Ok::<u64, entresol_engine::Error>(used)
    });
    let used = used.expect("the power stays").expect("opens and works");
    assert!(used > settings.log.capacity / 2, "the log was full all the time, not of {used} bytes");
}

#[test]
fn openings_take_nothing_of_a_full_log() {
    survives_openings(&settings(None, SyncMethod::SyncWrite), 1_000);
    survives_openings(&settings(None, SyncMethod::WriteThenSync), 120);
}

#[test]
fn openings_take_nothing_of_a_full_log_on_two_devices() {
    survives_openings(&settings(Some(Acknowledged::Both), SyncMethod::WriteThenSync), 120);
    survives_openings(&settings(Some(Acknowledged::First), SyncMethod::SyncWrite), 120);
}
