//! Changes of the cache that are given up, or meet devices that are slow or do not answer, and power cuts in them.

use crate::ground::flash_cache::{cache, settings};
use crate::ground::holding::holding;
use crate::ground::machine::run;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, Random};
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, WriteBudget};
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings};
use executor::{Executor, Order};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, Slow, VirtualDriver};

const PAGES: u64 = 30;

async fn create_partition(database: &Database, name: &str) -> Result<()> {
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 4000 };
    database.create_partition(PartitionSpec::new(name, organization, Locking::Page)).await.map(|_| ())
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    create_partition(&database, "objects").await.expect("creates");
    database
}

async fn change(database: &Database, value: u8) -> Result<()> {
    let partition = database.partition("objects")?;
    for number in 0..PAGES {
        database.transaction(async |tx| tx.modify_object(partition, number, |bytes| bytes[0] = value).await).await?;
    }
    Ok(())
}

async fn read(database: &Database, number: u64) -> Result<u8> {
    let partition = database.partition("objects")?;
    database.transaction(async |tx| tx.read_object(partition, number, |bytes| bytes[0]).await).await
}

async fn values(database: &Database) -> Result<Vec<u8>> {
    let mut values = Vec::new();
    for number in 0..PAGES {
        values.push(read(database, number).await?);
    }
    Ok(values)
}

fn all(value: u8) -> Result<Vec<u8>> {
    Ok(vec![value; PAGES as usize])
}

fn slow(device: &str, from_ns: u64, factor: f64) -> Slow {
    Slow { device: device.into(), from: Instant::from_ns(from_ns), until: Instant::NEVER, factor }
}

fn run_slow<T>(media: &Media, slow: Vec<Slow>, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let options = Options { faults: Some(FaultPlan { slow, ..FaultPlan::default() }), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// Polls a future once and gives it up.
async fn begin<F: Future>(future: F) {
    let mut future = pin!(future);
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

async fn sleep_until(executor: &Executor, ns: u64) {
    executor.sleep_ns(ns - executor.now().ns()).await;
}

/// One that has not begun when the database is closed would write its superblock over that of the next opening.
#[test]
fn a_change_that_was_given_up_ends_before_its_database_is_closed() {
    let media = Media::new();
    // The file of the new cache takes some time, so that the change is in its midst when the database has been opened again.
    run_slow(&media, vec![slow("flash", 0, 2_000.0)], async |executor| {
        let database = create(executor, settings(None)).await;
        change(&database, 1).await.expect("works");
        begin(database.set_cache(Some(cache("lazy-cleaning", 40)))).await;
        database.close().await.expect("closes");
        let database = Database::open(executor, settings(None), "here").await.expect("opens");
        create_partition(&database, "later").await.expect("creates");
        executor.sleep_ns(SECOND_NS).await;
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(None), "here").await.expect("opens");
        assert!(database.partition("later").is_ok(), "its creation was acknowledged");
        assert_eq!(values(&database).await, all(1));
    });
}

/// Also for what is under way then.
#[test]
fn a_longer_time_for_answers_holds_from_the_change_on() {
    run_slow(&Media::new(), vec![slow("flash", SECOND_NS, 200_000.0)], async |executor| {
        let database = create(executor, settings(Some(cache("dual-write", 40)))).await;
        change(&database, 1).await.expect("works");
        sleep_until(executor, SECOND_NS - 5 * MILLISECOND_NS).await;
        assert_eq!(values(&database).await, all(1));
        let patient = CacheSettings { silence_ns_max: 60 * SECOND_NS, ..cache("dual-write", 40) };
        database.set_cache(Some(patient)).await.expect("changes");
        sleep_until(executor, SECOND_NS + MILLISECOND_NS).await;
        // From here on an operation takes a second.
        assert_eq!(values(&database).await, all(1));
        assert_eq!(database.tiers()[0].lost, None, "an answer may take a minute");
    });
}

/// The time that operations of the cache have to end does not count while pages come to their own devices.
#[test]
fn a_cache_whose_drain_takes_minutes_is_turned_off_while_it_is_read() {
    // A read of the cache takes half a second, a write of pages to their own places 100 seconds.
    let slow = vec![slow("flash", SECOND_NS, 100_000.0), slow("disk", SECOND_NS, 10_000_000.0)];
    run_slow(&Media::new(), slow, async |executor| {
        let lazy = cache("lazy-cleaning", 40);
        let patient = CacheSettings { silence_ns_max: 60 * SECOND_NS, table: Some(false), ..lazy };
        let database = create(executor, settings(Some(patient))).await;
        change(&database, 1).await.expect("works");
        // Nothing is dirty in main memory afterwards.
        assert_eq!(values(&database).await, all(1));
        sleep_until(executor, SECOND_NS + MILLISECOND_NS).await;
        let over = Rc::new(Cell::new(false));
        for reader in 0..4_u64 {
            let (database, over) = (database.clone(), Rc::clone(&over));
            executor.spawn(async move {
                database.executor().sleep_ns(reader * 130 * MILLISECOND_NS).await;
                for number in (0..PAGES).cycle().skip(7 * reader as usize) {
                    if over.get() || read(&database, number).await.is_err() {
                        break;
                    }
                }
            });
        }
        let changed = database.set_cache(None).await;
        over.set(true);
        assert_eq!(changed, Ok(()), "each read ends within a second");
    });
}

#[test]
fn a_change_ends_where_the_device_of_a_partition_hangs() {
    run_slow(&Media::new(), vec![slow("disk", SECOND_NS, Slow::HUNG)], async |executor| {
        let database = create(executor, settings(Some(cache("lazy-cleaning", 40)))).await;
        change(&database, 1).await.expect("works");
        sleep_until(executor, SECOND_NS + MILLISECOND_NS).await;
        let changed = executor.within(600 * SECOND_NS, database.set_cache(None)).await;
        assert_eq!(changed, Some(Err(Error::CacheBusy)), "what is under way does not end");
    });
}

#[test]
fn a_budget_of_writes_holds_whether_or_not_the_cache_is_turned_off_meanwhile() {
    run(&Media::new(), async |executor| {
        let budget = WriteBudget { bytes_per_day: 1 << 20, burst_bytes: 64 << 10 };
        let budgeted = CacheSettings { write_budget: Some(budget), table: Some(false), ..cache("dual-write", 40) };
        let database = create(executor, settings(None)).await;
        let mut written = 0;
        for value in 0..10 {
            database.set_cache(Some(budgeted.clone())).await.expect("goes on");
            change(&database, value).await.expect("works");
            written += database.tiers()[0].bytes_written;
            database.set_cache(None).await.expect("goes off");
        }
        assert!(executor.now().ns() < SECOND_NS && written <= 128 << 10, "{written} bytes at once");
    });
}

/// The exhaustive test of power cuts, where what was not durable is lost.
#[test]
fn a_power_cut_at_any_instant_that_loses_what_was_not_durable() {
    let nvem = CacheSettings { device: "nvem".to_owned(), table: Some(false), ..cache("face", 40) };
    for before in [Some(cache("lazy-cleaning", 40)), Some(cache("face", 40))] {
        for after in [None, Some(cache("exclusive", 40)), Some(cache("lazy-cleaning", 12)), Some(nvem.clone())] {
            let mut is_complete = false;
            for cut in (300..).step_by(13) {
                if is_complete {
                    break;
                }
                let (media, done) = (Media::new(), Cell::new(0));
                let faults = Some(FaultPlan { power_cut_at: Some(cut), ..FaultPlan::default() });
                let options = Options { faults, seed: cut, jitter: true, ..Options::default() };
                let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
                let executor = Executor::new(Box::new(driver), Order::Seeded(cut));
                let halted = executor.run(async {
                    let database = create(&executor, settings(before.clone())).await;
                    change(&database, 1).await.expect("works");
                    database.checkpoint().await.expect("works");
                    change(&database, 2).await.expect("works");
                    done.set(2);
                    let changing = database.clone();
                    let to = after.clone();
                    let changed = executor.spawn(async move { changing.set_cache(to).await });
                    for value in 3..5 {
                        change(&database, value).await.expect("works");
                        done.set(value);
                        database.checkpoint().await.expect("works");
                    }
                    changed.join().await.expect("works");
                });
                executor.stop();
                is_complete = halted.is_ok();
                if done.get() == 0 {
                    continue;
                }
                for policy in [PowerCut { lost: 1.0, torn: 0.0 }, PowerCut { lost: 0.2, torn: 0.8 }] {
                    let cut_off = media.copy();
                    cut_off.power_cut(&mut Random::stream(cut, "cut"), &policy);
                    for reopened in [&before, &after, &None] {
                        run(&cut_off.copy(), async |executor| {
                            let opened = Database::open(executor, settings(reopened.clone()), "here").await;
                            let database = opened.unwrap_or_else(|error| panic!("cut at {cut}, {after:?}: {error}"));
                            let values = values(&database).await.expect("all can be read");
                            let is_right = |value: &u8| (done.get()..=done.get() + 1).contains(value);
                            assert!(values.iter().all(is_right), "cut at {cut}, {after:?}: {values:?}, {}", done.get());
                        });
                    }
                }
            }
        }
    }
}

/// It goes on in the driver, and its removal of the file of that name may hit the file of a later cache, which is in use.
#[test]
fn the_creation_of_a_cache_that_was_given_up_ends_before_another_begins() {
    holding(Hardware::ideal(), &Media::new(), async |executor, holder| {
        let database = create(executor, settings(None)).await;
        change(&database, 1).await.expect("works");
        let is_removal = |op: &Op| matches!(op, Op::Remove { name, .. } if name == "cache.tier");
        holder.hold(Instant::from_ns(5 * SECOND_NS), is_removal);
        database.set_cache(Some(cache("lazy-cleaning", 40))).await.expect_err("the device does not answer");
        assert!(holder.has_held());
        let again = database.set_cache(Some(cache("lazy-cleaning", 40))).await.expect_err("that has not ended");
        assert!(again.to_string().contains("still being created"), "{again}");
        sleep_until(executor, 6 * SECOND_NS).await;
        database.set_cache(Some(cache("lazy-cleaning", 40))).await.expect("it has ended");
        change(&database, 2).await.expect("works");
        executor.sleep_ns(6 * SECOND_NS).await;
        assert_eq!(values(&database).await, all(2));
    });
}
