//! The checkpoint server of memory-resident sets: its clock, its failures, what it does to transactions.

use crate::ground::machine::run;
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::{Policy, Strategy, SweepSettings};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result, Settings, Transaction, log};
use executor::{Executor, Order};
use std::cell::Cell;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, Options, VirtualDriver};

const RECORDS: u64 = 2_000;

fn settings(sweep: SweepSettings, checkpoint: Policy) -> Settings {
    let log = log::Settings { capacity: 64 << 20, ..log::Settings::default() };
    Settings { log, checkpoint, sweep, ..Settings::default() }
}

/// A database with a set of many small segments on a device of its own, and a paged partition.
async fn create(executor: &Executor, settings: Settings) -> (Database, PartitionId, PartitionId) {
    let database = Database::create(executor, settings).await.expect("creates");
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let spec = PartitionSpec { device: "flash".into(), ..PartitionSpec::new("stock", organization, Locking::Record) };
    let stock = database.create_partition(spec).await.expect("creates a set");
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates a b-tree");
    let records = (0..RECORDS).map(|number| (number.to_be_bytes(), [0; 100]));
    database.load_set(stock, records, |_| {}).await.expect("loads");
    (database, stock, notes)
}

/// Moves one from a record to another, with a pause between.
async fn transfer(tx: &mut Transaction, stock: PartitionId, from: u64, to: u64) -> Result<()> {
    tx.modify(stock, &from.to_be_bytes(), |value| value[0] = value[0].wrapping_sub(1)).await?;
    tx.executor().sleep_ns(20_000).await;
    tx.modify(stock, &to.to_be_bytes(), |value| value[0] = value[0].wrapping_add(1)).await
}

async fn client(database: Database, stock: PartitionId, seed: u64, transactions: u32) {
    let mut random = Random::stream(seed, "client");
    for _ in 0..transactions {
        let (from, to) = (random.below(RECORDS), random.below(RECORDS));
        database.transaction(async |tx| transfer(tx, stock, from, to).await).await.expect("commits");
    }
}

async fn run_clients(executor: &Executor, database: &Database, stock: PartitionId, transactions: u32) {
    let clients: Vec<_> =
        (0..6).map(|seed| executor.spawn(client(database.clone(), stock, seed, transactions))).collect();
    for client in clients {
        client.join().await;
    }
}

/// The sum over all records, and how many there are.
async fn sum(database: &Database, stock: PartitionId) -> (u64, u8) {
    let tx = database.begin().await.expect("begins");
    let (mut count, mut sum) = (0, 0_u8);
    tx.scan_set(stock, |_, value| {
        (count, sum) = (count + 1, sum.wrapping_add(value[0]));
        true
    })
    .await
    .expect("scans");
    tx.rollback().await.expect("rolls back");
    (count, sum)
}

#[test]
fn sets_are_swept_on_a_clock_of_their_own() {
    for interval_ns in [0, 20 * MILLISECOND_NS] {
        let media = Media::new();
        let sweep = SweepSettings { interval_ns: Some(interval_ns), spread_percent: 0, ..SweepSettings::default() };
        let settings = settings(sweep, Policy::OFF);
        run(&media, async |executor| {
            let (database, stock, notes) = create(executor, settings.clone()).await;
            database.transaction(async |tx| tx.put(notes, b"k", b"v").await).await.expect("commits");
            let began = executor.now();
            database.statistics().restart();
            run_clients(executor, &database, stock, 2_000).await;
            let passed_ns = executor.now().since_ns(began);
            let statistics = database.statistics();
            let sweeps = statistics.sweeps.get();
            assert_eq!(statistics.checkpoints.get(), 0, "nothing asked for a checkpoint of pages");
            let used = database.log().used();
            if let Some(expected) = passed_ns.checked_div(interval_ns) {
                assert!((expected..=expected + 1).contains(&sweeps), "{sweeps} sweeps, {expected} intervals");
            } else {
                // The server had been idle, and looks every 20 ms then.
                let idle_ns = passed_ns.saturating_sub(statistics.sweep_ns.get() + 20 * MILLISECOND_NS);
                assert!(
                    sweeps > 3 && idle_ns < passed_ns / 10,
                    "{sweeps} sweeps, idle for {idle_ns} of {passed_ns} ns"
                );
                assert!(used > 100 << 10, "pages need the log from their first change on, {used} bytes are kept");
            }
            database.checkpoint().await.expect("checkpoints");
            assert!(database.log().used() < 64 << 10, "{} bytes are kept", database.log().used());
            executor.sleep_ns(100 * MILLISECOND_NS).await;
            let sweeps = statistics.sweeps.get();
            executor.sleep_ns(500 * MILLISECOND_NS).await;
            assert_eq!(statistics.sweeps.get(), sweeps, "nothing is swept for nothing");
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "test").await.expect("opens");
            let stock = database.partition("stock").expect("it exists");
            assert_eq!(sum(&database, stock).await, (RECORDS, 0));
        });
    }
}

#[test]
fn the_log_is_given_up_by_sweeps_that_follow_its_growth() {
    let policy = Policy { log_bytes: Some(128 << 10), interval_ns: None };
    run(&Media::new(), async |executor| {
        let (database, stock, _) = create(executor, settings(SweepSettings::default(), policy)).await;
        database.statistics().restart();
        run_clients(executor, &database, stock, 2_000).await;
        let (sweeps, used) = (database.statistics().sweeps.get(), database.log().used());
        let written = database.log().end().0;
        assert!(sweeps > 3 && used < written / 3, "{sweeps} sweeps, {used} bytes of {written} are kept");
    });
}

#[test]
fn black_and_white_transactions_begin_again_and_are_counted() {
    for (strategy, spool) in [(Strategy::TransactionBlackWhite, true), (Strategy::TransactionCopyOnUpdate, false)] {
        let sweep = SweepSettings { strategy, spool, interval_ns: Some(0), ..SweepSettings::default() };
        run(&Media::new(), async |executor| {
            let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
            run_clients(executor, &database, stock, 1_000).await;
            let statistics = database.statistics();
            let (restarts, waits) = (statistics.restarts_by_colour.get(), statistics.segment_waits.get());
            assert_eq!(restarts > 0, strategy == Strategy::TransactionBlackWhite, "{restarts} restarts");
            assert_eq!(statistics.rollbacks.get(), restarts + statistics.deadlocks.get() + 1, "one is the load's");
            assert_eq!(waits > 0, !spool, "{waits} waits for segments");
            assert_eq!(sum(&database, stock).await, (RECORDS, 0));
        });
    }
}

#[test]
fn a_transaction_that_a_black_and_white_sweep_refuses_does_not_commit() {
    let strategy = Strategy::TransactionBlackWhite;
    let sweep = SweepSettings { strategy, interval_ns: Some(0), ..SweepSettings::default() };
    run(&Media::new(), async |executor| {
        let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
        let mut refused = [0; 3];
        let mut random = Random::stream(1, "records");
        for round in 0..3_000 {
            let kind = round % 3;
            // Something new for the next sweep.
            let (from, to) = (random.below(RECORDS), random.below(RECORDS));
            database.transaction(async |tx| transfer(tx, stock, from, to).await).await.expect("commits");
            let mut tx = database.begin().await.expect("begins");
            let mut result = Ok(());
            for _ in 0..3 {
                let key = random.below(RECORDS).to_be_bytes();
                result = result.and(match kind {
                    0 => tx.add(stock, &key, 1..2, 1).await.map(|_| ()),
                    1 => tx.modify(stock, &key, |value| value[1] += 1).await,
                    _ => tx.get(stock, &key).await.map(|_| ()).and(tx.delete(stock, &key).await.map(|_| ())),
                });
                // Sweeps go on between two changes.
                executor.sleep_ns(100_000).await;
            }
            match result {
                Err(Error::MixedColours(_)) => {
                    refused[kind] += 1;
                    assert!(matches!(tx.commit().await, Err(Error::Aborted { .. })), "kind {kind}");
                }
                _ => tx.rollback().await.expect("rolls back"),
            }
        }
        assert!(refused.iter().all(|count| *count > 0), "{refused:?}");
    });
}

#[test]
fn a_quiescing_sweep_begins_between_transactions() {
    let strategy = Strategy::TransactionCopyOnUpdate;
    let sweep = SweepSettings { strategy, quiesce: true, interval_ns: Some(0), ..SweepSettings::default() };
    run(&Media::new(), async |executor| {
        let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
        // One transaction that lasts delays the beginnings of all others until it ends.
        let mut long = database.begin().await.expect("begins");
        long.modify(stock, &0_u64.to_be_bytes(), |value| value[1] = 1).await.expect("modifies");
        let began = executor.now();
        let touch = |database: Database| async move {
            let work = async |tx: &mut Transaction| tx.modify(stock, &1_u64.to_be_bytes(), |value| value[1] += 1).await;
            database.transaction(work).await.expect("commits");
        };
        // It lets a sweep begin.
        touch(database.clone()).await;
        executor.sleep_ns(30 * MILLISECOND_NS).await;
        let sweeps = database.statistics().sweeps.get();
        let waiting = executor.spawn(touch(database.clone()));
        executor.sleep_ns(100 * MILLISECOND_NS).await;
        assert_eq!((waiting.is_finished(), database.statistics().sweeps.get()), (false, sweeps));
        long.commit().await.expect("commits");
        waiting.join().await;
        assert!(executor.now().since_ns(began) < 200 * MILLISECOND_NS);
        run_clients(executor, &database, stock, 100).await;
        assert!(database.statistics().sweeps.get() > sweeps);
        // Not for ever: a transaction that lasts longer is left out of the images.
        let mut long = database.begin().await.expect("begins");
        long.modify(stock, &0_u64.to_be_bytes(), |value| value[1] = 2).await.expect("modifies");
        database.checkpoint().await.expect("sweeps");
        long.rollback().await.expect("rolls back");
    });
}

#[test]
fn after_a_failed_write_the_other_copy_stands_and_the_next_sweep_tries_again() {
    for strategy in Strategy::ALL {
        for goes_on in [false, true] {
            let media = Media::new();
            let sweep = SweepSettings { strategy, spool: goes_on, ..SweepSettings::default() };
            let settings = settings(sweep, Policy::OFF);
            let segments = RECORDS.div_ceil(((16 << 10) - (16 << 10) / 10 - 64) / 128);
            let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth: segments + 5 }];
            let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
            let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, media.clone());
            let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
            let lived = executor.run(async {
                let (database, stock, _) = create(&executor, settings.clone()).await;
                run_clients(&executor, &database, stock, 50).await;
                let failed = database.checkpoint().await;
                assert!(matches!(failed, Err(Error::Input(_))), "{strategy:?}: {failed:?}");
                assert_eq!(database.checkpoint_failure(), failed.err());
                run_clients(&executor, &database, stock, 50).await;
                if goes_on {
                    database.checkpoint().await.expect("the next sweep writes what is missing");
                    assert_eq!(database.checkpoint_failure(), None);
                    run_clients(&executor, &database, stock, 50).await;
                }
            });
            lived.expect("the machine goes on");
            executor.stop();
            run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "test").await.expect("opens");
                let stock = database.partition("stock").expect("it exists");
                assert_eq!(sum(&database, stock).await, (RECORDS, 0), "{strategy:?}");
                assert!(database.check(|_| {}).await.expect("checks").is_clean());
            });
        }
    }
}

#[test]
fn the_log_of_several_openings_serves_sets_until_a_sweep_succeeds() {
    let media = Media::new();
    let settings = settings(SweepSettings::default(), Policy::OFF);
    run(&media, async |executor| {
        let (database, stock, _) = create(executor, settings.clone()).await;
        run_clients(executor, &database, stock, 50).await;
    });
    let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth: 1 }];
    let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let lived = executor.run(async {
        let database = Database::open(&executor, settings.clone(), "test").await.expect("opens");
        let stock = database.partition("stock").expect("it exists");
        assert_eq!(database.statistics().sweeps.get(), 0, "the backup and the log that were there go on to serve");
        run_clients(&executor, &database, stock, 50).await;
        assert!(matches!(database.checkpoint().await, Err(Error::Input(_))), "pages are checkpointed, sets are not");
        run_clients(&executor, &database, stock, 50).await;
    });
    lived.expect("the machine goes on");
    executor.stop();
    run(&media, async |executor| {
        let database =
            Database::open(executor, settings.clone(), "test").await.expect("what the sets need is still there");
        let stock = database.partition("stock").expect("it exists");
        assert_eq!(sum(&database, stock).await, (RECORDS, 0));
    });
}

#[test]
fn a_sweep_keeps_its_pace_and_its_depth() {
    let interval_ns = 3 * MILLISECOND_NS;
    let sweep = SweepSettings { segments_in_flight: 1, segment_interval_ns: interval_ns, ..SweepSettings::default() };
    run(&Media::new(), async |executor| {
        let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
        run_clients(executor, &database, stock, 200).await;
        let (before, began) = (database.segments_written(stock).expect("a set"), executor.now());
        database.checkpoint().await.expect("sweeps");
        let (written, passed_ns) =
            (database.segments_written(stock).expect("a set") - before, executor.now().since_ns(began));
        assert!(written > 3, "{written} segments");
        assert!(
            (interval_ns * written..interval_ns * (written + 3)).contains(&passed_ns),
            "{written} in {passed_ns} ns"
        );
    });
}

/// A sweep of its own takes its share of the interval, another is through at once.
#[test]
fn sweeps_spread_their_writes_unless_a_transaction_waits() {
    let interval_ns = 400 * MILLISECOND_NS;
    for (spread_percent, shortest_ns, longest_ns) in
        [(0, 0, interval_ns / 20), (80, interval_ns * 6 / 10, interval_ns * 9 / 10)]
    {
        let sweep = SweepSettings {
            interval_ns: Some(interval_ns),
            spread_percent,
            segments_in_flight: 1,
            ..Default::default()
        };
        run(&Media::new(), async |executor| {
            let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
            run_clients(executor, &database, stock, 200).await;
            let before = (database.segments_written(stock).expect("a set"), database.statistics().sweeps.get());
            while database.segments_written(stock).expect("a set") == before.0 {
                executor.sleep_ns(MILLISECOND_NS / 10).await;
            }
            let began = executor.now();
            while database.statistics().sweeps.get() == before.1 {
                executor.sleep_ns(MILLISECOND_NS / 10).await;
            }
            let passed_ns = executor.now().since_ns(began);
            assert!(database.segments_written(stock).expect("a set") - before.0 > 10);
            assert!((shortest_ns..longest_ns).contains(&passed_ns), "{spread_percent} percent: {passed_ns} ns");

            run_clients(executor, &database, stock, 200).await;
            let began = executor.now();
            database.checkpoint().await.expect("sweeps");
            assert!(executor.now().since_ns(began) < interval_ns / 4, "a transaction waits");
        });
    }
}

/// A sweep of its own writes for its share of the time, another is through at once.
#[test]
fn sweeps_leave_the_device_to_others_unless_a_transaction_waits() {
    let segment_ns = |device_percent: u8, segments_in_flight: usize, is_awaited: bool| {
        let interval_ns = Some(0);
        let sweep = SweepSettings { interval_ns, device_percent, segments_in_flight, ..Default::default() };
        let taken_ns = Cell::new(0);
        run(&Media::new(), async |executor| {
            let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
            let (under_load, own) = (database.clone(), executor.clone());
            let load = executor.spawn(async move { run_clients(&own, &under_load, stock, 1_000).await });
            let sweep_ends = async |count: u64| {
                while database.statistics().sweeps.get() < count {
                    executor.sleep_ns(MILLISECOND_NS / 100).await;
                }
            };
            sweep_ends(2).await;
            let (began, before) = (executor.now(), database.segments_written(stock).expect("a set"));
            if is_awaited {
                database.checkpoint().await.expect("sweeps");
            } else {
                sweep_ends(3).await;
            }
            let written = database.segments_written(stock).expect("a set") - before;
            assert!(written > 10, "{written} segments");
            taken_ns.set(executor.now().since_ns(began) / written);
            load.join().await;
        });
        taken_ns.get()
    };
    for segments_in_flight in [1, 8] {
        let (full_ns, tenth_ns) = (segment_ns(100, 8, false), segment_ns(10, segments_in_flight, false));
        assert!(tenth_ns > 5 * full_ns, "{tenth_ns} and {full_ns} ns for each segment");
        assert!(segment_ns(10, segments_in_flight, true) < tenth_ns / 3, "a transaction waits");
    }
}

#[test]
fn sweeps_leave_a_full_log_its_reserve() {
    let media = Media::new();
    let log = log::Settings { capacity: 256 << 10, ..log::Settings::default() };
    let settings = Settings { log, ..settings(SweepSettings::default(), Policy::OFF) };
    run(&media, async |executor| {
        let (database, stock, notes) = create(executor, settings.clone()).await;
        let mut holder = database.begin().await.expect("begins");
        holder.put(notes, b"k", b"v").await.expect("puts");
        while !database.log().is_crowded() {
            run_clients(executor, &database, stock, 1).await;
        }
        // As long as the transaction goes on, no sweep can give up log. Each must find a beginning of its own.
        for _ in 0..200 {
            database.checkpoint().await.expect("sweeps");
        }
        assert!(database.log().free() > database.log().capacity() / 8, "{} bytes are free", database.log().free());
        drop(holder);
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "test").await.expect("opens");
        let stock = database.partition("stock").expect("it exists");
        assert_eq!(sum(&database, stock).await, (RECORDS, 0));
    });
}

/// Spread over its interval, the sweep would take 20 ms for each of its segments.
#[test]
fn a_drop_hurries_the_sweep_that_it_waits_for() {
    run(&Media::new(), async |executor| {
        let interval_ns = Some(3_600 * SECOND_NS);
        let sweep = SweepSettings { interval_ns, spread_percent: 90, ..SweepSettings::default() };
        let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
        database.transaction(async |tx| transfer(tx, stock, 1, 2).await).await.expect("commits");
        let (began, before) = (executor.now(), database.statistics().segments_written.get());
        database.drop_partition(stock).await.expect("drops");
        let written = database.statistics().segments_written.get() - before;
        assert!(written > 10, "{written} segments were swept");
        let passed_ns = executor.now().since_ns(began);
        assert!(passed_ns < 20 * MILLISECOND_NS, "{passed_ns} ns");
    });
}

/// A transaction that began after the drop keeps a segment of another set from being swept.
#[test]
fn a_drop_gives_up_when_others_keep_its_sweep_from_going_on() {
    run(&Media::new(), async |executor| {
        let strategy = Strategy::TransactionBlackWhite;
        let sweep = SweepSettings { strategy, segment_interval_ns: MILLISECOND_NS, ..SweepSettings::default() };
        let (database, stock, _) = create(executor, settings(sweep, Policy::OFF)).await;
        let other = database.create_partition(PartitionSpec::set("other")).await.expect("creates a set");
        database.transaction(async |tx| tx.put(other, b"held", b"before").await).await.expect("commits");
        let dropping = {
            let database = database.clone();
            executor.spawn(async move { database.drop_partition(stock).await })
        };
        executor.sleep_ns(MILLISECOND_NS).await;
        let mut late = database.begin().await.expect("begins");
        late.put(other, b"held", b"until the end").await.expect("puts");
        let deadline = executor.now().plus_ns(12 * SECOND_NS);
        while !dropping.is_finished() {
            assert!(executor.now() < deadline, "the drop waits for ever");
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        assert_eq!(dropping.join().await, Err(Error::PartitionInUse("stock".into())));
        assert_eq!(database.partition("stock"), Ok(stock));
        late.commit().await.expect("commits");
        assert_eq!(sum(&database, stock).await, (RECORDS, 0));
        assert_eq!(database.drop_partition(stock).await, Ok(()));
        assert!(database.partition("stock").is_err());
    });
}
