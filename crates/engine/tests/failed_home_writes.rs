//! A write from the cache to a page's own place fails, and tears the page there: the copy in the cache is the whole one, also
//! where a newer version has taken its place, until the page's own device has it.

use crate::ground::cached::{self, cache, change, create, read};
use base::Random;
use driver::OpKind;
use entresol_engine::second_level::{CacheSettings, Design, Parameters};
use entresol_engine::{Database, Error, Settings};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

const PAGES: u64 = 60;

/// Runs `work` on a machine that tears pages, then lets it vanish. If it `fails`, every third write to the pages' own device
/// does, and leaves a part of what it was to write.
fn on<T>(media: &Media, (seed, fails): (u64, bool), work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let mut hardware = Hardware::ideal();
    ["disk", "flash", "nvem"].iter().for_each(|device| hardware.device_mut(device).atomic_write = 512);
    let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("disk".into()), nth };
    let errors = if fails { (1..3_000).step_by(3).map(error).collect() } else { Vec::new() };
    let options = Options { seed, faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// Nothing but pages is on the device whose writes fail.
fn settings(design: Design, table: bool) -> Settings {
    let parameters = Parameters { dirty_max_percent: 50, group_pages: 2, ..Parameters::default() };
    let cache = CacheSettings { parameters, table: Some(table), ..cache(design, 30) };
    Settings { home_device: "flash".into(), log_device: "flash".into(), ..cached::settings(cache) }
}

/// Opens a database, again where a write fails.
async fn opened(executor: &Executor, settings: &Settings) -> Database {
    for _ in 0..100 {
        match Database::open(executor, settings.clone(), "here").await {
            Ok(database) => return database,
            Err(error) => assert!(error.to_string().contains("(injected)"), "{error}"),
        }
    }
    panic!("no opening succeeds");
}

/// Changes objects at random beside checkpoints. The values of all of them then, and how many requests have failed.
async fn changed(database: &Database, random: &mut Random) -> (Vec<u8>, u32) {
    let partition = database.partition("objects").expect("it exists");
    let (mut values, mut failures) = (vec![1; PAGES as usize], 0);
    let mut failed = |error: Error| {
        assert!(error.to_string().contains("(injected)"), "{error}");
        failures += 1;
    };
    for step in 0..300 {
        let (number, value) = (random.below(PAGES), 2 + (step % 250) as u8);
        let change = async |tx: &mut entresol_engine::Transaction| {
            tx.modify_object(partition, number, |bytes| bytes[0] = value).await
        };
        match database.transaction(change).await {
            Ok(()) => values[number as usize] = value,
            Err(error) => failed(error),
        }
        if random.chance(0.05)
            && let Err(error) = database.checkpoint().await
        {
            failed(error);
        }
    }
    (values, failures)
}

#[test]
fn what_a_failed_write_has_torn_is_there_after_a_restart() {
    for name in ["lazy-cleaning", "rotating", "exclusive", "face", "frequency"] {
        let design = Design::named(name).expect("it has this name");
        let mut failures = 0;
        for seed in 0..12 {
            let (media, settings) = (Media::new(), settings(design, seed % 2 == 0));
            on(&media, (seed, false), async |executor| {
                let database = create(executor, settings.clone(), PAGES).await;
                change(&database, 0..PAGES, 1).await;
                database.close().await.expect("closes");
            });
            let (values, failed) = on(&media, (seed, true), async |executor| {
                let database = opened(executor, &settings).await;
                changed(&database, &mut Random::stream(seed, "changes")).await
            });
            failures += failed;
            on(&media, (seed, false), async |executor| {
                let opened = Database::open(executor, settings.clone(), "here").await;
                let database = opened.unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}"));
                assert_eq!(read(&database, 0..PAGES).await, values, "{name}, seed {seed}");
            });
        }
        assert!(failures > 20, "{name}: {failures} requests have failed");
    }
}
