//! A creation that is cut off at any moment leaves a database, or what can be created again.

use base::Random;
use driver::{Halt, OpKind};
use entresol_engine::second_level::{self, CacheSettings};
use entresol_engine::tier_file::WriteBufferSettings;
use entresol_engine::{Database, Error, PartitionSpec, Settings, buffer, log};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

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

fn with_log_on_flash() -> Settings {
    Settings { log_device: "flash".into(), ..settings() }
}

/// Runs `work` on a machine whose power goes at this event, if at any.
fn run<T>(media: &Media, power_cut_at: Option<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    run_with(media, (FaultPlan { power_cut_at, ..FaultPlan::default() }, 0), work)
}

fn run_with<T>(
    media: &Media,
    (faults, seed): (FaultPlan, u64),
    work: impl AsyncFnOnce(&Executor) -> T,
) -> Result<T, Halt> {
    let options = Options { faults: Some(faults), seed, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

/// What a creation has left.
enum Found {
    Database,
    Unfinished,
    Nothing,
}

async fn open_or_create(executor: &Executor, settings: Settings) -> Result<(Database, Found), Error> {
    match Database::open(executor, settings.clone(), "here").await {
        Ok(database) => Ok((database, Found::Database)),
        Err(Error::Unfinished { .. }) => Ok((Database::create(executor, settings).await?, Found::Unfinished)),
        Err(Error::NotADatabase { detail, .. }) if detail.contains("holds no file") => {
            Ok((Database::create(executor, settings).await?, Found::Nothing))
        }
        Err(error) => Err(error),
    }
}

async fn use_and_close(database: Database) -> Result<(), Error> {
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    assert!(database.check(|_| {}).await?.is_clean());
    database.close().await
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
                let (database, found) = open_or_create(executor, settings()).await?;
                match found {
                    Found::Database => opened += 1,
                    Found::Unfinished => unfinished += 1,
                    Found::Nothing => never_begun += 1,
                }
                use_and_close(database).await
            });
            assert_eq!(usable, Ok(Ok(())), "event {event}, seed {seed}");
        }
        if completed {
            break;
        }
    }
    assert!(opened > 8 && unfinished > 8 && never_begun > 8, "{opened} {unfinished} {never_begun}");
}

/// A write may have happened though it is said to have failed: then there is a whole superblock while the other files go.
#[test]
fn a_creation_that_fails_and_is_cut_off_while_its_files_go_begins_again() {
    for nth in 1.. {
        let errors = vec![ErrorAt { kind: OpKind::Write, device: None, nth }];
        let create = |media: &Media, power_cut_at, seed| {
            let faults = FaultPlan { errors: errors.clone(), power_cut_at, ..FaultPlan::default() };
            run_with(media, (faults, seed), async |executor| {
                let devices = ["flash".to_owned(), "disk".to_owned()];
                Database::create_or_nothing(executor, with_log_on_flash(), &devices).await.is_ok()
            })
        };
        if create(&Media::new(), None, 0) == Ok(true) {
            assert!(nth > 4, "writes fail");
            break;
        }
        for event in 1.. {
            let media = Media::new();
            let seed = nth + event;
            let ended = create(&media, Some(event), seed);
            media.power_cut(&mut Random::stream(seed, "creation"), &PowerCut { lost: 0.0, torn: 0.0 });
            let usable = run(&media, None, async |executor| {
                use_and_close(open_or_create(executor, with_log_on_flash()).await?.0).await
            });
            assert_eq!(usable, Ok(Ok(())), "write {nth}, event {event}");
            if ended.is_ok() {
                break;
            }
        }
    }
}
