//! A cache whose device does not answer any more, before its database is closed or while redo of an opening is left, and the openings
//! behind that.

use crate::left_redo::{SLOTS, left};
use crate::quick_restarts::{End, change, check_all, filled, objects, read, run, run_under, settings};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PageId, Random};
use entresol_engine::{Database, Error, Internals, Settings, checkpoint};
use executor::Executor;
use virtual_driver::{FaultPlan, Media, PowerCut, Slow};

const DESIGNS: [&str; 4] = ["dual-write", "tac", "lazy-cleaning", "face"];

/// How long anything may wait, in nanoseconds: far longer than a cache's device may take for an answer.
const PATIENCE_NS: u64 = 60 * SECOND_NS;

/// The cache's device does not answer from this moment on.
fn silent_from(from_ns: u64) -> FaultPlan {
    let from = Instant::START.plus_ns(from_ns);
    let slow = Slow { device: "flash".into(), from, until: from.plus_ns(1_000_000 * SECOND_NS), factor: Slow::HUNG };
    FaultPlan { slow: vec![slow], ..FaultPlan::default() }
}

/// Uses a database until its cache is off, and a while longer. Whether it was closed as it should be.
async fn use_past_silence(executor: &Executor, settings: &Settings, values: &mut [u8], ends: End) -> bool {
    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
    executor.sleep_ns(6 * SECOND_NS).await;
    let mut random = Random::stream(2, "silent");
    let tiers = database.buffer().tiers().expect("there is a cache");
    let mut rest = 200;
    while rest > 0 {
        rest -= u64::from(tiers.is_lost());
        let number = random.below(values.len() as u64);
        // What only the cache has is refused.
        if change(&database, number, rest as u8).await.is_ok() {
            values[number as usize] = rest as u8;
        }
    }
    ends == End::Close && database.close().await.is_ok()
}

/// How long an opening takes that follows one whose cache was switched off because its device did not answer, in nanoseconds.
fn opening_after_silence_ns(design: &str, slots: u32, end: End) -> u64 {
    let (media, what) = (Media::new(), format!("{design}, {slots} slots, {end:?}"));
    let mut values = filled(&media, (design, slots), End::Close);
    let settings = settings(design, slots, checkpoint::Policy::OFF);
    let is_closed = run_under(silent_from(5 * SECOND_NS), &media, async |executor| {
        use_past_silence(executor, &settings, &mut values, end).await
    });
    assert!(is_closed || end != End::Close || ["lazy-cleaning", "face"].contains(&design), "{what}");
    if end == End::PowerCut {
        media.power_cut(&mut Random::stream(5, "power cut"), &PowerCut { lost: 0.4, torn: 0.2 });
    }
    let opened_ns = run(&media, async |executor| {
        let began = executor.now();
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let opened_ns = executor.now().since_ns(began);
        check_all(&database, &values, &what).await;
        database.buffer().tiers().expect("there is a cache").check().expect("consistent");
        opened_ns
    });
    // It serves again, and is as warm as any behind that.
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        check_all(&database, &values, &what).await;
        check_all(&database, &values, &what).await;
        assert!(database.tiers()[0].reads > u64::from(slots) / 4, "{what}: {} hits", database.tiers()[0].reads);
        database.close().await.expect("closes");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        check_all(&database, &values, &what).await;
        assert!(database.tiers()[0].reads > u64::from(slots) / 8, "{what}: {} hits", database.tiers()[0].reads);
    });
    opened_ns
}

#[test]
fn an_opening_behind_a_cache_that_was_switched_off_looks_at_no_slots() {
    for design in DESIGNS {
        for end in [End::Close, End::Kill, End::PowerCut] {
            let [small, large] = [250, 2_000].map(|slots| opening_after_silence_ns(design, slots, end));
            assert!(large < 2 * small + 100 * MILLISECOND_NS, "{design}, {end:?}: {small} and {large} ns");
        }
    }
}

/// Reads all, changes some, takes a checkpoint and closes: none of it waits for the cache's device for long.
async fn go_on(executor: &Executor, database: Database, values: &mut [u8], what: &str) {
    // What only the cache has is refused, and not written to its own place.
    let lost = || database.buffer().tiers().and_then(|tiers| tiers.lost_cache());
    let is_told = |error: Option<&Error>| error.is_none() || error == lost().as_ref();
    let is_refused = |number: u64, error: &Error| {
        let id = PageId::new(database.partition("objects").expect("it exists"), number as u32);
        is_told(Some(error)) && database.buffer().tiers().is_some_and(|tiers| tiers.is_pending(id))
    };
    let reads: Vec<_> = (0..objects(SLOTS))
        .rev()
        .map(|number| {
            let database = database.clone();
            (number, executor.spawn(async move { read(&database, number).await }))
        })
        .collect();
    let mut refused = Vec::new();
    for (number, reading) in reads {
        let value = executor.within(PATIENCE_NS, reading.join()).await;
        match value.unwrap_or_else(|| panic!("{what}: {number} is waited for")) {
            Ok(value) => assert_eq!(value, values[number as usize], "{what}: {number}"),
            Err(error) => {
                // A read that was under way in the cache is refused; the next one comes by what the log has.
                assert!(is_told(Some(&error)), "{what}: {number}: {error}");
                match executor.within(PATIENCE_NS, read(&database, number)).await.expect("it ends") {
                    Ok(value) => assert_eq!(value, values[number as usize], "{what}: {number}"),
                    Err(error) => {
                        assert!(is_refused(number, &error), "{what}: {number}: {error}");
                        refused.push(number);
                    }
                }
            }
        }
    }
    assert!(left(&database).iter().all(|number| refused.contains(number)), "{what}: {:?}", left(&database));
    for number in (0..objects(SLOTS)).step_by(7) {
        let changing = executor.within(PATIENCE_NS, change(&database, number, 200)).await;
        match changing.unwrap_or_else(|| panic!("{what}: {number} is waited for")) {
            Ok(()) => values[number as usize] = 200,
            Err(error) => assert!(is_refused(number, &error), "{what}: {number}: {error}"),
        }
    }
    let checkpoint = executor.within(PATIENCE_NS, database.checkpoint()).await;
    let checkpoint = checkpoint.unwrap_or_else(|| panic!("{what}: the checkpoint waits"));
    assert!(is_told(checkpoint.as_ref().err()), "{what}: {checkpoint:?}");
    let closed = executor.within(2 * PATIENCE_NS, database.clone().close()).await;
    let closed = closed.unwrap_or_else(|| panic!("{what}: the closing waits"));
    assert!(is_told(closed.as_ref().err()), "{what}: {closed:?}");
}

/// While redo is left the cache falls silent: readers of left pages, checkpoints and the closing go on.
#[test]
fn a_cache_that_falls_silent_while_redo_is_left_costs_nothing() {
    for design in DESIGNS {
        for end in [End::Kill, End::PowerCut] {
            let media = Media::new();
            let values = filled(&media, (design, SLOTS), end);
            let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
            let opened_ns = run(&media.copy(), async |executor| {
                Database::open(executor, settings.clone(), "here").await.expect("opens");
                executor.now().since_ns(Instant::START)
            });
            for behind_ns in [0, 5, 50, 300].map(|ms| ms * MILLISECOND_NS) {
                let (media, what) = (media.copy(), format!("{design}, {end:?}, {behind_ns} ns"));
                let mut values = values.clone();
                run_under(silent_from(opened_ns + behind_ns), &media, async |executor| {
                    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                    assert!(left(&database).len() > 100, "{what}: redo is left of {} pages", left(&database).len());
                    go_on(executor, database, &mut values, &what).await;
                });
                run(&media, async |executor| {
                    let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                    check_all(&database, &values, &what).await;
                    database.close().await.expect("closes");
                });
            }
        }
    }
}
