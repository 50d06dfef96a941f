//! The cache changes while the database runs, and the power goes, or a device fails, is full or does not answer.

use crate::ground::flash_cache::{cache, settings};
use crate::ground::machine::run;
use base::Instant;
use base::time::SECOND_NS;
use driver::{FaultKind, Halt};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::CacheSettings;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings};
use executor::{Executor, Order};
use std::cell::Cell;
use virtual_driver::{FaultPlan, Hardware, Media, Options, Slow, VirtualDriver};

const PAGES: u64 = 30;

async fn create(executor: &Executor, settings: Settings) -> Result<Database> {
    let database = Database::create(executor, settings).await?;
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 4000 };
    database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await?;
    Ok(database)
}

/// Gives every object this value.
async fn change(database: &Database, value: u8) -> Result<()> {
    let partition = database.partition("objects")?;
    for number in 0..PAGES {
        database.transaction(async |tx| tx.modify_object(partition, number, |bytes| bytes[0] = value).await).await?;
    }
    Ok(())
}

async fn values(database: &Database) -> Result<Vec<u8>> {
    let partition = database.partition("objects")?;
    let mut values = Vec::new();
    for number in 0..PAGES {
        let read = database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await;
        values.push(read?);
    }
    database.buffer().tiers().into_iter().for_each(|tiers| tiers.check().expect("consistent"));
    Ok(values)
}

fn run_with<T>(
    hardware: Hardware,
    media: &Media,
    faults: FaultPlan,
    work: impl AsyncFnOnce(&Executor) -> T,
) -> std::result::Result<T, Halt> {
    let options = Options { faults: Some(faults), ..Options::default() };
    let executor =
        Executor::new(Box::new(VirtualDriver::new(hardware, options, media.clone())), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

#[test]
fn a_power_cut_at_any_instant_of_a_change_is_recovered_from() {
    let before = Some(cache("lazy-cleaning", 40));
    let nvem = CacheSettings { device: "nvem".to_owned(), table: Some(false), ..cache("face", 40) };
    let after = [None, Some(cache("face", 40)), Some(cache("lazy-cleaning", 12)), Some(nvem)];
    for after in &after {
        let mut is_complete = false;
        let mut cuts = 0;
        // Few of them before the change begins.
        for cut in (300..).step_by(3) {
            if is_complete {
                break;
            }
            let (media, done) = (Media::new(), Cell::new(0));
            let faults = FaultPlan { power_cut_at: Some(cut), ..FaultPlan::default() };
            let halted = run_with(Hardware::ideal(), &media, faults, async |executor| {
                let database = create(executor, settings(before.clone())).await.expect("works");
                change(&database, 1).await.expect("works");
                database.checkpoint().await.expect("works");
                change(&database, 2).await.expect("works");
                done.set(2);
                database.set_cache(after.clone()).await.expect("works");
                for value in 3..5 {
                    change(&database, value).await.expect("works");
                    done.set(value);
                    database.checkpoint().await.expect("works");
                }
            });
            is_complete = halted.is_ok();
            if done.get() == 0 {
                continue;
            }
            cuts += 1;
            for reopened in [&before, after, &None] {
                run(&media.copy(), async |executor| {
                    let opened = Database::open(executor, settings(reopened.clone()), "here").await;
                    let database = opened.unwrap_or_else(|error| panic!("cut at {cut}, {after:?}: {error}"));
                    let values = values(&database).await.expect("all can be read");
                    let is_right = |value: &u8| (done.get()..=done.get() + 1).contains(value);
                    assert!(values.iter().all(is_right), "cut at {cut}, {after:?}: {values:?}, not {}", done.get());
                });
            }
        }
        assert!(cuts > 20, "{cuts} cuts");
    }
}

#[test]
fn a_cache_that_was_given_up_is_not_believed_when_it_is_configured_again() {
    for between in [None, Some(cache("lazy-cleaning", 12))] {
        let media = Media::new();
        run(&media, async |executor| {
            let database = create(executor, settings(Some(cache("lazy-cleaning", 40)))).await.expect("creates");
            change(&database, 1).await.expect("works");
            database.checkpoint().await.expect("works");
            assert_eq!(values(&database).await, Ok(vec![1; PAGES as usize]));
            database.set_cache(between).await.expect("changes");
            change(&database, 2).await.expect("works");
            database.checkpoint().await.expect("works");
            // The next opening redoes nothing of what the first cache lacks.
            database.set_cache(None).await.expect("goes off");
            change(&database, 3).await.expect("works");
            database.checkpoint().await.expect("works");
        });
        run(&media, async |executor| {
            let reopened = settings(Some(cache("lazy-cleaning", 40)));
            let database = Database::open(executor, reopened, "here").await.expect("opens");
            assert_eq!(values(&database).await, Ok(vec![3; PAGES as usize]));
        });
    }
}

#[test]
fn a_cache_of_another_design_is_warm_after_a_kill() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = create(executor, settings(Some(cache("dual-write", 40)))).await.expect("creates");
        change(&database, 1).await.expect("works");
        database.set_cache(Some(cache("lazy-cleaning", 40))).await.expect("changes");
        change(&database, 2).await.expect("works");
        database.checkpoint().await.expect("works");
        assert_eq!(values(&database).await, Ok(vec![2; PAGES as usize]));
        change(&database, 3).await.expect("works");
        executor.sleep_ns(SECOND_NS).await;
    });
    run(&media, async |executor| {
        let reopened = settings(Some(cache("lazy-cleaning", 40)));
        let database = Database::open(executor, reopened, "here").await.expect("opens");
        assert_eq!(values(&database).await, Ok(vec![3; PAGES as usize]));
        assert!(database.tiers()[0].reads > PAGES / 2, "{:?}", database.tiers()[0]);
    });
}

/// From this moment on the cache's device answers nothing.
fn hung_from(ns: u64) -> FaultPlan {
    let from = Instant::from_ns(ns);
    let slow = Slow { device: "flash".into(), from, until: Instant::NEVER, factor: Slow::HUNG };
    FaultPlan { slow: vec![slow], ..FaultPlan::default() }
}

#[test]
fn a_change_while_the_device_does_not_answer_is_refused_and_loses_nothing() {
    for design in ["lazy-cleaning", "face", "dual-write"] {
        let media = Media::new();
        let was_changed = run_with(Hardware::ideal(), &media, hung_from(SECOND_NS), async |executor| {
            let database = create(executor, settings(Some(cache(design, 40)))).await.expect("works");
            change(&database, 1).await.expect("works");
            change(&database, 2).await.expect("works");
            executor.sleep_ns(2 * SECOND_NS).await;
            let mut was_changed = false;
            for other in [Some(cache("clean-write", 40)), Some(cache(design, 12)), None] {
                let is_off = other.is_none();
                match database.set_cache(other).await {
                    // Nothing was there alone.
                    Ok(()) => was_changed = is_off,
                    Err(error) => {
                        assert!(matches!(error, Error::Input(_) | Error::DamagedPage { .. }), "{design}: {error}");
                        assert!(error.to_string().contains("'flash'"), "{design}: {error}");
                    }
                }
            }
            if was_changed {
                assert_eq!(values(&database).await, Ok(vec![2; PAGES as usize]));
            } else {
                assert_eq!(database.cache(), Some(cache(design, 40)), "it stays");
            }
            assert!(executor.now().since_ns(Instant::from_ns(0)) < 60 * SECOND_NS, "that is noticed soon");
            was_changed
        });
        assert_eq!(was_changed, Ok(design == "dual-write"), "{design}");
        run(&media, async |executor| {
            let database = Database::open(executor, settings(Some(cache(design, 40))), "here").await.expect("opens");
            assert_eq!(values(&database).await, Ok(vec![2; PAGES as usize]), "{design}");
        });
    }
}

#[test]
fn a_cache_that_its_device_does_not_create_in_time_is_given_up() {
    let done = run_with(Hardware::ideal(), &Media::new(), hung_from(0), async |executor| {
        let database = create(executor, settings(None)).await.expect("works");
        change(&database, 1).await.expect("works");
        let error = database.set_cache(Some(cache("lazy-cleaning", 40))).await.expect_err("it does not answer");
        assert!(error.to_string().contains("device 'flash' may hang"), "{error}");
        assert_eq!(database.cache(), None);
        change(&database, 2).await.expect("works");
        database.checkpoint().await.expect("nothing waits for the device");
        assert_eq!(values(&database).await, Ok(vec![2; PAGES as usize]));
        database.close().await.expect("closes");
    });
    done.expect("the machine goes on");
}

#[test]
fn a_cache_larger_than_its_device_is_refused_by_setting_and_file() {
    let mut hardware = Hardware::ideal();
    hardware.device_mut("flash").capacity = Some(1 << 20);
    let is_named = |error: &Error| {
        let text = error.to_string();
        let is_full = matches!(error, Error::Input(fault) if fault.kind == FaultKind::NoSpace);
        assert!(is_full && text.contains("[cache]") && text.contains("cache.tier"), "{text}");
    };
    let media = Media::new();
    let done = run_with(hardware.clone(), &media, FaultPlan::default(), async |executor| {
        let refused = create(executor, settings(Some(cache("lazy-cleaning", 1_000)))).await.map(|_| ());
        is_named(&refused.expect_err("it has no room"));
    });
    done.expect("the machine goes on");
    let media = Media::new();
    let done = run_with(hardware, &media, FaultPlan::default(), async |executor| {
        let database = create(executor, settings(Some(cache("lazy-cleaning", 40)))).await.expect("works");
        change(&database, 1).await.expect("works");
        is_named(&database.set_cache(Some(cache("lazy-cleaning", 1_000))).await.expect_err("it has no room"));
        assert_eq!(database.cache(), None, "the one before is gone");
        change(&database, 2).await.expect("works");
        assert_eq!(values(&database).await, Ok(vec![2; PAGES as usize]));
        database.set_cache(Some(cache("lazy-cleaning", 50))).await.expect("the room of what failed is free");
        change(&database, 3).await.expect("works");
        assert_eq!(values(&database).await, Ok(vec![3; PAGES as usize]));
    });
    done.expect("the machine goes on");
    let done = run_with(Hardware::ideal(), &media, FaultPlan::default(), async |executor| {
        let reopened = settings(Some(cache("lazy-cleaning", 50)));
        let database = Database::open(executor, reopened, "here").await.expect("opens");
        assert_eq!(values(&database).await, Ok(vec![3; PAGES as usize]));
    });
    done.expect("the machine goes on");
}
