//! A creation that is cut off at any moment leaves a database, or what can be created again.

use base::Random;
use driver::Halt;
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Error, PartitionSpec, Settings, buffer, log};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

fn settings() -> Settings {
    let cache = CacheSettings::new("disk", 16);
    let write_buffer = WriteBufferSettings { device: "disk".into(), pages: 8, log_bytes: 32 << 10, volatile: None };
    Settings {
        buffer: buffer::Settings { frames: 32, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        hierarchy: second_level::Settings {
            cache: Some(cache),
            write_buffer: Some(write_buffer),
            ..second_level::Settings::default()
        },
        ..Settings::default()
    }
}

/// Runs `work` on a machine whose power goes at this event, if at any.
fn run<T>(media: &Media, power_cut_at: Option<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    let faults = Some(FaultPlan { power_cut_at, ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

#[test]
fn a_creation_that_was_cut_off_begins_again() {
    let (mut opened, mut unfinished, mut never_begun) = (0, 0, 0);
    for event in 1.. {
        let mut completed = false;
        for seed in 0..8 {
            let media = Media::new();
            let created =
                run(&media, Some(event), async |executor| Database::create(executor, settings()).await.is_ok());
            completed = created == Ok(true);
            media.power_cut(&mut Random::stream(seed, "creation"), &PowerCut::default());
            let usable = run(&media, None, async |executor| {
                let database = match Database::open(executor, settings(), "here").await {
                    Ok(database) => {
                        opened += 1;
                        database
                    }
                    Err(Error::Unfinished { .. }) => {
                        unfinished += 1;
                        Database::create(executor, settings()).await?
                    }
                    Err(Error::NotADatabase { detail, .. }) if detail.contains("holds no file") => {
                        never_begun += 1;
                        Database::create(executor, settings()).await?
                    }
                    Err(error) => panic!("event {event}, seed {seed}: {error}"),
                };
                let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
                database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
                assert!(database.check(|_| {}).await?.is_clean());
                database.close().await
            });
            assert_eq!(usable, Ok(Ok(())), "event {event}, seed {seed}");
        }
        if completed {
            break;
        }
    }
    assert!(opened > 8 && unfinished > 8 && never_begun > 8, "{opened} {unfinished} {never_begun}");
}
