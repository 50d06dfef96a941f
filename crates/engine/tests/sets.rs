//! Memory-resident sets in a database: transactions over sets and pages together, savepoints, sweeps, restart.

use crate::ground::machine::run;
use base::{PartitionId, Random};
use driver::{OpKind, Work};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, checkpoint, log};
use executor::{Executor, Step};
use std::collections::BTreeMap;
use virtual_driver::{Media, PowerCut};

fn settings() -> Settings {
    swept(checkpoint::SweepSettings::default())
}

fn swept(sweep: checkpoint::SweepSettings) -> Settings {
    Settings {
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        sweep,
        ..Settings::default()
    }
}

/// Segments small enough that the tests have several.
fn set(name: &str, arrivals: bool) -> PartitionSpec {
    let organization = Organization::Set { arrivals, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new(name, organization, Locking::Record)
}

async fn create(executor: &Executor) -> (Database, [PartitionId; 3]) {
    let database = Database::create(executor, settings()).await.expect("creates");
    let stock = database.create_partition(set("stock", false)).await.expect("creates a set");
    let orders = database.create_partition(set("orders", true)).await.expect("creates a set");
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates a b-tree");
    (database, [stock, orders, notes])
}

async fn open(executor: &Executor) -> Database {
    Database::open(executor, settings(), "test").await.expect("opens")
}

async fn contents(database: &Database, partition: PartitionId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let tx = database.begin().await.expect("begins");
    let mut all = BTreeMap::new();
    tx.scan_set(partition, |key, value| {
        all.insert(key.to_vec(), value.to_vec());
        true
    })
    .await
    .expect("scans");
    tx.rollback().await.expect("rolls back");
    all
}

#[test]
fn a_transaction_changes_sets_and_pages_together_or_neither() {
    let media = Media::new();
    run(&media, async |executor| {
        let (database, [stock, orders, notes]) = create(executor).await;
        let work = async |tx: &mut entresol_engine::Transaction| {
            tx.insert(stock, b"bolt", b"100").await?;
            tx.put(stock, b"bolt", b"a longer value").await?;
            tx.append(orders, b"first").await?;
            tx.put(notes, b"k", b"v").await
        };
        let mut abandoned = database.begin().await.expect("begins");
        work(&mut abandoned).await.expect("works");
        abandoned.rollback().await.expect("rolls back");
        assert!(contents(&database, stock).await.is_empty() && contents(&database, orders).await.is_empty());
        database.transaction(work).await.expect("commits");
        let mut tx = database.begin().await.expect("begins");
        assert_eq!(tx.get(stock, b"bolt").await, Ok(Some(b"a longer value".to_vec())));
        assert_eq!(tx.insert(stock, b"bolt", b"x").await, Err(Error::Duplicate("stock".into())));
        assert_eq!(tx.modify(stock, b"nut", |_| ()).await, Err(Error::NoRecord("stock".into())));
        let position = tx.savepoint();
        assert_eq!(tx.delete(stock, b"bolt").await, Ok(true));
        tx.put(notes, b"k", b"w").await.expect("puts");
        assert_eq!(tx.get(stock, b"bolt").await, Ok(None));
        tx.rollback_to(position).await.expect("goes back");
        tx.modify(stock, b"bolt", |value| value[0] = b'A').await.expect("modifies");
        assert_eq!(tx.get(notes, b"k").await, Ok(Some(b"v".to_vec())));
        tx.commit().await.expect("commits");
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
    run(&media, async |executor| {
        let database = open(executor).await;
        let stock = database.partition("stock").expect("it exists");
        let orders = database.partition("orders").expect("it exists");
        assert_eq!(contents(&database, stock).await, BTreeMap::from([(b"bolt".to_vec(), b"A longer value".to_vec())]));
        // The number that was rolled back may be given out again only because no transaction had seen it.
        assert_eq!(contents(&database, orders).await.into_values().collect::<Vec<_>>(), [b"first"]);
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
}

/// One random transaction on the set and on its model.
async fn change(database: &Database, set: PartitionId, random: &mut Random, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut tx = database.begin().await.expect("begins");
    let mut changed = model.clone();
    for _ in 0..random.between(1, 6) {
        let key = random.below(300).to_be_bytes();
        let length = random.between(0, 600) as usize;
        match random.below(4) {
            0 => assert_eq!(tx.delete(set, &key).await, Ok(changed.remove(&key[..]).is_some())),
            1 => {
                let byte = random.below(256) as u8;
                let alter = |value: &mut [u8]| value.iter_mut().step_by(7).for_each(|at| *at = byte);
                let altered = tx.modify(set, &key, alter).await;
                match changed.get_mut(&key[..]) {
                    Some(value) => alter(value),
                    None => assert_eq!(altered, Err(Error::NoRecord("stock".into()))),
                }
            }
            _ => {
                let value = vec![random.below(256) as u8; length];
                tx.put(set, &key, &value).await.expect("puts");
                changed.insert(key.to_vec(), value);
            }
        }
    }
    if random.chance(0.7) {
        tx.commit().await.expect("commits");
        *model = changed;
    } else {
        tx.rollback().await.expect("rolls back");
    }
}

#[test]
fn restarts_find_what_was_committed_wherever_sweeps_were() {
    for seed in 0..12 {
        let media = Media::new();
        let mut random = Random::stream(seed, "sets");
        let mut model = BTreeMap::new();
        run(&media, async |executor| {
            create(executor).await;
        });
        for _ in 0..5 {
            run(&media, async |executor| {
                let database = open(executor).await;
                let stock = database.partition("stock").expect("it exists");
                assert_eq!(contents(&database, stock).await, model, "seed {seed}");
                for _ in 0..random.below(120) {
                    change(&database, stock, &mut random, &mut model).await;
                    if random.chance(0.05) {
                        database.checkpoint().await.expect("sweeps");
                    }
                }
                assert!(database.check(|_| {}).await.expect("checks").is_clean());
                for _ in 0..random.below(40) {
                    change(&database, stock, &mut random, &mut model).await;
                }
            });
        }
    }
}

#[test]
fn sweeps_of_every_strategy_and_transactions_go_on_together() {
    for strategy in checkpoint::Strategy::ALL {
        for spool in [true, false] {
            let media = Media::new();
            let sweep = checkpoint::SweepSettings { strategy, spool, ..Default::default() };
            run(&media, async |executor| {
                let database = Database::create(executor, swept(sweep)).await.expect("creates");
                let stock = database.create_partition(set("stock", false)).await.expect("creates a set");
                let records = (0..600_u64).map(|number| (number.to_be_bytes(), [0; 100]));
                database.load_set(stock, records, |_| {}).await.expect("loads");
                // Each transaction moves one from a record to another, mostly in another segment.
                let client = |database: Database, seed| async move {
                    let mut random = Random::stream(seed, "client");
                    for _ in 0..60 {
                        let (from, to) = (random.below(600), random.below(600));
                        let work = async |tx: &mut entresol_engine::Transaction| {
                            tx.modify(stock, &from.to_be_bytes(), |value| value[0] = value[0].wrapping_sub(1)).await?;
                            tx.executor().sleep_ns(30_000).await;
                            tx.modify(stock, &to.to_be_bytes(), |value| value[0] = value[0].wrapping_add(1)).await
                        };
                        database.transaction(work).await.expect("commits");
                    }
                };
                let clients: Vec<_> = (0..6).map(|seed| executor.spawn(client(database.clone(), seed))).collect();
                while !clients.iter().all(executor::JoinHandle::is_finished) {
                    database.checkpoint().await.expect("sweeps");
                    executor.sleep_ns(100_000).await;
                }
                assert!(database.statistics().sweeps.get() > 3, "{strategy:?}");
                assert!(database.check(|_| {}).await.expect("checks").is_clean());
            });
            run(&media, async |executor| {
                let database = open(executor).await;
                let stock = database.partition("stock").expect("it exists");
                let found = contents(&database, stock).await;
                let sum = found.values().fold(0_u8, |sum, value| sum.wrapping_add(value[0]));
                assert_eq!((found.len(), sum), (600, 0), "{strategy:?}, spool {spool}");
            });
        }
    }
}

#[test]
fn sweeps_are_charged_with_their_locks_and_copies() {
    for strategy in checkpoint::Strategy::ALL {
        for spool in [true, false] {
            run(&Media::new(), async |executor| {
                let sweep = checkpoint::SweepSettings { strategy, spool, ..Default::default() };
                let database = Database::create(executor, swept(sweep)).await.expect("creates");
                let stock = database.create_partition(set("stock", false)).await.expect("creates a set");
                let records = (0..2_000_u64).map(|number| (number.to_be_bytes(), [7; 100]));
                database.load_set(stock, records, |_| {}).await.expect("loads");
                database.checkpoint().await.expect("the other copy");
                let all = database.segments_written(stock).expect("a set") / 2;
                let counts = || executor.work_counts();
                let since = |before: [u64; Work::ALL.len()]| {
                    [Work::LockPair, Work::SegmentAllocation, Work::SegmentCopy].map(|work| {
                        let (now, before) = (counts()[work as usize], before[work as usize]);
                        now - before
                    })
                };
                let before = counts();
                let touch = async |tx: &mut entresol_engine::Transaction| {
                    for number in 0..2_000_u64 {
                        tx.modify(stock, &number.to_be_bytes(), |value| value[0] += 1).await?;
                    }
                    Ok::<_, Error>(())
                };
                database.transaction(touch).await.expect("commits");
                assert_eq!(since(before), [4_000, 0, 0], "a lock for each record, and one for its segment");
                let before = counts();
                database.checkpoint().await.expect("sweeps");
                let locks = if strategy == checkpoint::Strategy::Fuzzy { 0 } else { all };
                let copies = if spool { all } else { 0 };
                assert_eq!(since(before), [locks, copies, copies * 16], "{strategy:?}, spool {spool}");
            });
        }
    }
}

#[test]
fn a_commit_is_charged_with_what_it_saves_for_a_sweep() {
    let sweep = checkpoint::SweepSettings {
        strategy: checkpoint::Strategy::ActionCopyOnUpdate,
        spool: false,
        ..Default::default()
    };
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, swept(sweep)).await.expect("creates");
        let stock = database.create_partition(set("stock", false)).await.expect("creates a set");
        let records = (0..8_000_u64).map(|number| (number.to_be_bytes(), [7; 100]));
        database.load_set(stock, records, |_| {}).await.expect("loads");
        let before = executor.work_counts();
        let other = database.clone();
        let sweeping = executor.spawn(async move { other.checkpoint().await });
        let mut rounds = 0;
        while !sweeping.is_finished() {
            let touch = async |tx: &mut entresol_engine::Transaction| {
                tx.modify(stock, &(8_000_u64 - 1 - rounds).to_be_bytes(), |value| value[0] += 1).await
            };
            database.transaction(touch).await.expect("commits");
            rounds += 1;
        }
        sweeping.join().await.expect("sweeps");
        let now = executor.work_counts();
        let grown = |work: Work| now[work as usize] - before[work as usize];
        let saved = grown(Work::SegmentAllocation);
        assert!(saved > 0 && grown(Work::SegmentCopy) == 16 * saved, "{saved} segments, {rounds} rounds");
    });
}

/// Sweeps that do not spool take segments away while they write them.
#[test]
fn a_scan_beside_a_sweep_shows_every_record() {
    const RECORDS: u64 = 3_000;
    let sweep = checkpoint::SweepSettings {
        strategy: checkpoint::Strategy::ActionCopyOnUpdate,
        spool: false,
        ..Default::default()
    };
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, swept(sweep)).await.expect("creates");
        let stock = database.create_partition(set("stock", false)).await.expect("creates a set");
        let orders = database.create_partition(set("orders", true)).await.expect("creates a set");
        for first in (0..RECORDS).step_by(50) {
            let fill = async |tx: &mut entresol_engine::Transaction| {
                for number in first..first + 50 {
                    tx.put(stock, &number.to_be_bytes(), &[7; 100]).await?;
                    tx.append(orders, &[7; 100]).await?;
                }
                Ok::<_, Error>(())
            };
            database.transaction(fill).await.expect("commits");
        }
        let other = database.clone();
        let sweeping = executor.spawn(async move { other.checkpoint().await });
        let mut scans = 0;
        while !sweeping.is_finished() {
            let mut tx = database.begin().await.expect("begins");
            let (mut in_stock, mut ordered) = (0, 0);
            let count = |count: &mut u64| {
                *count += 1;
                true
            };
            tx.scan_set(stock, |_, _| count(&mut in_stock)).await.expect("scans");
            tx.scan_appended(orders, |_, _| count(&mut ordered)).await.expect("scans");
            assert_eq!((in_stock, ordered), (RECORDS, RECORDS), "in scan {scans}");
            tx.commit().await.expect("commits");
            executor.sleep_ns(1_000).await;
            scans += 1;
        }
        assert!(scans > 3, "{scans} scans");
        sweeping.join().await.expect("sweeps");
    });
}

#[test]
fn sweeps_write_only_what_has_changed_and_free_the_log() {
    run(&Media::new(), async |executor| {
        let (database, [stock, ..]) = create(executor).await;
        let records = (0..2_000_u64).map(|number| (number.to_be_bytes(), [7; 100]));
        database.load_set(stock, records, |_| {}).await.expect("loads");
        assert_eq!(database.set_records(stock), Some(2_000));
        let loaded = database.segments_written(stock).expect("a set");
        assert!(loaded > 10, "{loaded} segments");
        database.checkpoint().await.expect("the other copy");
        assert_eq!(database.segments_written(stock).expect("a set"), 2 * loaded);
        database.checkpoint().await.expect("nothing to do");
        assert_eq!(database.segments_written(stock).expect("a set"), 2 * loaded);
        let touch = async |tx: &mut entresol_engine::Transaction| {
            tx.modify(stock, &5_u64.to_be_bytes(), |value| value[0] += 1).await
        };
        database.transaction(touch).await.expect("commits");
        database.checkpoint().await.expect("one segment");
        database.checkpoint().await.expect("the same in the other copy");
        assert_eq!(database.segments_written(stock).expect("a set"), 2 * loaded + 2);
        assert!(database.log().used() < 64 << 10, "{} bytes of log are kept", database.log().used());
        let refused = database.load_set(stock, [(b"k", b"v")], |_| {}).await;
        assert!(matches!(refused, Err(Error::NotEmpty(_))), "{refused:?}");
    });
}

#[test]
fn writers_of_one_record_wait_for_each_other() {
    run(&Media::new(), async |executor| {
        let (database, [stock, ..]) = create(executor).await;
        database.transaction(async |tx| tx.insert(stock, b"n", &[0; 8]).await).await.expect("commits");
        let add = |database: Database| async move {
            for _ in 0..50 {
                let work = async |tx: &mut entresol_engine::Transaction| {
                    let count = tx.get_for_update(stock, b"n").await?.expect("it is there")[0];
                    tx.executor().yield_now().await;
                    tx.modify(stock, b"n", |value| value[0] = count + 1).await
                };
                database.transaction(work).await.expect("commits");
            }
        };
        let tasks: Vec<_> = (0..4).map(|_| executor.spawn(add(database.clone()))).collect();
        for task in tasks {
            task.join().await;
        }
        let sum = database.transaction(async |tx| tx.get(stock, b"n").await).await.expect("reads");
        assert_eq!(sum.expect("it is there")[0], 200);
    });
}

#[test]
fn a_set_with_keys_has_to_be_locked() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let create = async |arrivals, locking| {
            let organization = Organization::Set { arrivals, segment_size: 16 << 10, reserve_percent: 10 };
            database.create_partition(PartitionSpec::new("stock", organization, locking)).await
        };
        let refused = create(false, Locking::None).await.expect_err("two transactions could change one record");
        assert_eq!(refused.to_string(), "partition 'stock': a set whose records have keys is locked by record");
        create(true, Locking::None).await.expect("records that are only added need no locks");
    });
}

#[test]
fn many_that_fill_a_set_at_once_share_memory_that_was_touched_ahead() {
    let media = Media::new();
    run(&media, async |executor| {
        let (database, [_, orders, _]) = create(executor).await;
        let before = database.segment_bytes();
        executor.record_steps();
        let fill = |database: Database| async move {
            for _ in 0..50 {
                database
                    .transaction(async |tx| {
                        tx.append(orders, &[7; 1000]).await?;
                        tx.append(orders, &[8; 1000]).await.map(|_| ())
                    })
                    .await?;
            }
            Ok::<_, Error>(())
        };
        let clients: Vec<_> = (0..16).map(|_| executor.spawn(fill(database.clone()))).collect();
        for client in clients {
            client.join().await.expect("fills");
        }
        let regions = executor.take_steps().into_iter().filter(|step| *step == Step::Op(OpKind::Compute)).count();
        let segments = (database.segment_bytes() - before) >> 14;
        assert_eq!(database.set_records(orders), Some(1_600));
        // Fifteen records fill a segment, but for its reserve.
        assert!((107..=123).contains(&segments), "{segments} segments");
        assert!((10..50).contains(&regions), "{regions} regions");
    });
}

/// The first set is created behind records that are not durable, and the power takes these.
#[test]
fn a_set_outlives_the_end_of_the_log_behind_which_it_was_created() {
    let media = Media::new();
    let cut = |seed| media.power_cut(&mut Random::stream(seed, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates a b-tree");
        let mut tx = database.begin().await.expect("begins");
        tx.put(notes, b"note", &[7; 2_000]).await.expect("puts");
        database.create_partition(set("stock", false)).await.expect("creates a set");
        let log = database.log();
        assert!(log.durable() < log.end(), "nothing asks for what has not ended");
        std::mem::forget(tx);
    });
    cut(1);
    run(&media, async |executor| {
        let database = open(executor).await;
        let stock = database.partition("stock").expect("it was created");
        database.transaction(async |tx| tx.put(stock, b"screws", b"100").await).await.expect("commits");
    });
    cut(2);
    run(&media, async |executor| {
        let database = open(executor).await;
        let stock = database.partition("stock").expect("it was created");
        let found = database.transaction(async |tx| tx.get(stock, b"screws").await).await;
        assert_eq!(found, Ok(Some(b"100".to_vec())), "its commit was acknowledged");
    });
}

#[cfg(feature = "canary")]
mod planted {
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn a_backup_that_begins_behind_the_log_is_found() {
        plant(Some(Canary::LostBackupBegin));
        let found = std::panic::catch_unwind(super::a_set_outlives_the_end_of_the_log_behind_which_it_was_created);
        plant(None);
        assert!(found.is_err(), "nothing notices it");
    }
}

#[cfg(feature = "canary")]
#[test]
fn a_scan_that_leaves_out_what_a_sweep_writes_is_found() {
    use crate::ground::planting::is_found;
    is_found(entresol_engine::canary::Canary::UnseenSegment, a_scan_beside_a_sweep_shows_every_record);
}
