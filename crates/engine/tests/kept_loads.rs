//! What comes past the log, or reaches it in part, at moments that are read after an opening: bulk loads, and commits of sets that were cut off.

use crate::ground::cut_machine::{run_under, run_up_to};
use crate::ground::kept::{HOUR_NS, on, open, put, settings};
use base::time::SECOND_NS;
use base::{Instant, Lsn, PartitionId, Random};
use driver::OpKind;
use entresol_engine::{Database, Direction, Error, PartitionSpec, Result, Settings, Snapshot, Transaction, checkpoint};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Media, PowerCut, Slow};

/// Keys of records that are loaded.
const LOADED: u64 = 3_000;

/// How many records of a set a snapshot shows.
async fn count_of(past: &mut Snapshot, set: PartitionId) -> Result<usize> {
    let mut count = 0;
    past.scan_set(set, |_, _| {
        count += 1;
        true
    })
    .await?;
    Ok(count)
}

/// The same of a set, a tree and another tree.
async fn counts(past: &mut Snapshot, [set, tree, other]: [PartitionId; 3]) -> Result<[usize; 3]> {
    let mut found = [count_of(past, set).await?, 0, 0];
    for (count, tree) in found[1..].iter_mut().zip([tree, other]) {
        let mut cursor = past.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        while past.next(&mut cursor).await?.is_some() {
            *count += 1;
        }
    }
    Ok(found)
}

/// A tree is loaded while the sweep of a set's load goes on, and others commit beside it.
#[test]
fn what_was_loaded_is_there_from_the_end_of_its_load_on() {
    for seed in 0..6 {
        let (media, settings) = (Media::new(), settings(HOUR_NS, 8 << 20));
        let moments = on(&media, 100 * SECOND_NS, async |executor| {
            let (database, [set, tree, other]) = with_partitions(executor, &settings).await?;
            let mut random = Random::stream(seed, "moments of loads");
            let records = || (0..LOADED).map(|number| (number.to_be_bytes(), [7; 100]));
            let this = database.clone();
            let loading = executor.spawn(async move { this.load_set(set, records(), |_| {}).await });
            let (this, pause) = (database.clone(), random.below(3) * SECOND_NS / 1000);
            let own = executor.clone();
            let loading_tree = executor.spawn(async move {
                own.sleep_ns(pause).await;
                this.load_b_tree(tree, records(), |_| {}).await
            });
            let mut moments = Vec::new();
            for number in 0_u64.. {
                let is_over = loading.is_finished() && loading_tree.is_finished();
                put(&database, other, number as u8, &[1]).await?;
                let mut now = database.snapshot().await?;
                moments.push((now.moment(), counts(&mut now, [set, tree, other]).await?));
                executor.sleep_ns(random.below(SECOND_NS / 2000)).await;
                if is_over {
                    break;
                }
            }
            loading.join().await?;
            loading_tree.join().await?;
            Ok(moments)
        });
        for which in 0..2 {
            let states: BTreeSet<usize> = moments.iter().map(|(_, counts)| counts[which]).collect();
            assert_eq!(states, BTreeSet::from([0, LOADED as usize]), "seed {seed}");
        }
        for opening in 2..4 {
            on(&media, opening * 100 * SECOND_NS, async |executor| {
                let database = open(executor, &settings).await?;
                let ids = ["set", "tree", "other"].map(|name| database.partition(name).expect("it is there"));
                for (moment, expected) in &moments {
                    let mut past = database.as_of(*moment).await?;
                    assert_eq!(counts(&mut past, ids).await?, *expected, "seed {seed} as of {moment}");
                }
                Ok(())
            });
        }
    }
}

/// Creates a set, a tree and another tree.
async fn with_partitions(executor: &Executor, settings: &Settings) -> Result<(Database, [PartitionId; 3])> {
    let database = Database::create(executor, settings.clone()).await?;
    let mut ids = Vec::new();
    for spec in [PartitionSpec::set("set"), PartitionSpec::b_tree("tree"), PartitionSpec::b_tree("other")] {
        ids.push(database.create_partition(spec).await?);
    }
    Ok((database, ids.try_into().expect("three")))
}

/// Checkpoints of pages go on beside the load of a set, so that a restart need not read what the log says of its beginning.
#[test]
fn a_load_that_was_cut_off_behind_its_end_is_there_from_the_next_opening_on() {
    let (settings, mut full) = (settings(HOUR_NS, 8 << 20), 0);
    for event in (1..).step_by(3) {
        let (media, is_created) = (Media::new(), Cell::new(false));
        let ended = run_up_to(&media, Hardware::ideal(), Some(event), async |executor| {
            executor.sleep_ns(100 * SECOND_NS).await;
            let (database, [set, _, other]) = with_partitions(executor, &settings).await?;
            put(&database, other, 1, &[1]).await?;
            is_created.set(true);
            let this = database.clone();
            let records = (0..300_u64).map(|number| (number.to_be_bytes(), [7; 100]));
            let loading = executor.spawn(async move { this.load_set(set, records, |_| {}).await });
            while !loading.is_finished() {
                database.checkpoint().await?;
                put(&database, other, 2, &[1]).await?;
            }
            loading.join().await
        });
        media.power_cut(&mut Random::stream(event, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
        if is_created.get() {
            let mut moments = Vec::new();
            for opening in 2..5 {
                on(&media, opening * 100 * SECOND_NS, async |executor| {
                    let database = open(executor, &settings).await?;
                    let (set, other) = (database.partition("set")?, database.partition("other")?);
                    for (moment, expected) in &moments {
                        let found = count_of(&mut database.as_of(*moment).await?, set).await?;
                        assert_eq!(found, *expected, "cut at {event}: as of {moment} in opening {opening}");
                    }
                    for _ in 0..2 {
                        let mut now = database.snapshot().await?;
                        moments.push((now.moment(), count_of(&mut now, set).await?));
                        put(&database, other, 3, &[1]).await?;
                    }
                    Ok(())
                });
            }
            full += usize::from(moments.first().is_some_and(|(_, count)| *count > 0));
        }
        if ended.is_ok() {
            break;
        }
    }
    assert!(full > 1, "{full} loads were whole when they were cut off");
}

/// No one commits while the set's load is written to a slow device.
#[test]
fn by_the_calendar_a_load_is_there_from_its_end_on() {
    let (media, settings) = (Media::new(), settings(HOUR_NS, 8 << 20));
    let slow = Slow { device: "disk".into(), from: Instant::START, until: Instant::from_ns(HOUR_NS), factor: 1_000.0 };
    let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
    let lived = run_under(&media, Hardware::ideal(), faults, async |executor| {
        executor.sleep_ns(100 * SECOND_NS).await;
        let (database, [set, ..]) = with_partitions(executor, &settings).await?;
        let this = database.clone();
        let records = (0..LOADED).map(|number| (number.to_be_bytes(), [7; 100]));
        let loading = executor.spawn(async move { this.load_set(set, records, |_| {}).await });
        let mut seen = Vec::new();
        while !loading.is_finished() {
            executor.sleep_ns(SECOND_NS / 200).await;
            seen.push((executor.unix_ns(), count_of(&mut database.snapshot().await?, set).await?));
            executor.sleep_ns(SECOND_NS / 200).await;
        }
        loading.join().await?;
        database.close().await?;
        Ok::<_, Error>(seen)
    });
    let mut seen = lived.expect("the machine goes on").expect("works");
    // Of the last one it is not certain that it is before the end.
    seen.pop();
    assert!(seen.len() > 10 && seen.iter().all(|(_, count)| *count == 0), "{seen:?}");
    on(&media, 200 * SECOND_NS, async |executor| {
        let database = open(executor, &settings).await?;
        let set = database.partition("set")?;
        for (unix_ns, count) in seen {
            assert_eq!(count_of(&mut database.as_of_unix_ns(unix_ns).await?, set).await?, count, "at {unix_ns} ns");
        }
        assert_eq!(count_of(&mut database.snapshot().await?, set).await?, LOADED as usize);
        Ok(())
    });
}

const RETENTION_NS: u64 = 3 * SECOND_NS;

/// What is seen of a set beside its load, which takes about two thirds of the retention, and whether it was acknowledged.
struct SeenLoad {
    media: Media,
    seen: Vec<(Lsn, usize)>,
    until: Instant,
    is_acknowledged: bool,
}

fn load_slowly(settings: &Settings, power_cut_at: u64) -> SeenLoad {
    let (media, seen) = (Media::new(), RefCell::new(Vec::new()));
    let (until, is_acknowledged) = (Cell::new(Instant::START), Rc::new(Cell::new(false)));
    let slow =
        Slow { device: "flash".into(), from: Instant::START, until: Instant::from_ns(HOUR_NS), factor: 60_000.0 };
    let faults = FaultPlan { slow: vec![slow], power_cut_at: Some(power_cut_at), ..FaultPlan::default() };
    let mut hardware = Hardware::ideal();
    hardware.device_mut("flash");
    let _ = run_under(&media, hardware, faults, async |executor| {
        executor.sleep_ns(100 * SECOND_NS).await;
        let database = Database::create(executor, settings.clone()).await?;
        let set = PartitionSpec { device: "flash".into(), ..PartitionSpec::set("set") };
        let (set, other) =
            (database.create_partition(set).await?, database.create_partition(PartitionSpec::b_tree("other")).await?);
        let (this, is_over) = (database.clone(), Rc::clone(&is_acknowledged));
        let loading = executor.spawn(async move {
            let records = (0..LOADED).map(|number| (number.to_be_bytes(), [7; 100]));
            this.load_set(set, records, |_| {}).await?;
            is_over.set(true);
            Ok::<_, Error>(())
        });
        for round in 0_u8.. {
            for key in 0..64 {
                put(&database, other, key, &[round; 1_500]).await?;
            }
            let mut now = database.snapshot().await?;
            let found = count_of(&mut now, set).await?;
            seen.borrow_mut().push((now.moment(), found));
            until.set(executor.now());
            executor.sleep_ns(SECOND_NS / 20).await;
            if loading.is_finished() {
                break;
            }
        }
        loading.join().await
    });
    media.power_cut(&mut Random::stream(power_cut_at, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    SeenLoad { media, seen: seen.into_inner(), until: until.get(), is_acknowledged: is_acknowledged.get() }
}

/// The retention has passed what the log says of the load's beginning when the database is opened, but not moments at which the set was seen
/// without what was loaded. No restart needs the log from there on.
#[test]
fn a_load_is_no_earlier_for_having_begun_before_the_retention() {
    let checkpoint = checkpoint::Policy { log_bytes: Some(128 << 10), interval_ns: None };
    let settings = Settings { checkpoint, ..settings(RETENTION_NS, 8 << 20) };
    let (mut low, mut high) = (0, 1 << 14);
    assert!(load_slowly(&settings, high).is_acknowledged);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if load_slowly(&settings, middle).is_acknowledged { high = middle } else { low = middle }
    }
    let (mut full, mut compared) = (0, 0);
    for event in high - 12..high {
        let SeenLoad { media, seen, until, .. } = load_slowly(&settings, event);
        on(&media, until.ns() + RETENTION_NS - SECOND_NS / 3, async |executor| {
            let database = open(executor, &settings).await?;
            let set = database.partition("set")?;
            let is_full = count_of(&mut database.snapshot().await?, set).await? > 0;
            full += usize::from(is_full);
            for (moment, expected) in seen {
                match database.as_of(moment).await {
                    Ok(mut past) => {
                        assert_eq!(count_of(&mut past, set).await?, expected, "cut at {event}: as of {moment}");
                        compared += usize::from(is_full);
                    }
                    Err(Error::SnapshotTooOld { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
    }
    assert!(full > 1 && compared > 1, "{full} full, {compared} compared");
}

/// The log has said that its end comes, and the write of the set's backup fails.
#[test]
fn a_load_that_has_failed_hides_nothing_that_was_committed_behind_it() {
    let (settings, mut failed) = (settings(HOUR_NS, 8 << 20), 0);
    for nth in 1..8 {
        let media = Media::new();
        let error = ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth };
        let faults = FaultPlan { errors: vec![error], ..FaultPlan::default() };
        let lived = run_under(&media, Hardware::ideal(), faults, async |executor| {
            executor.sleep_ns(100 * SECOND_NS).await;
            let database = Database::create(executor, settings.clone()).await?;
            let set = PartitionSpec { device: "flash".into(), ..PartitionSpec::set("set") };
            let set = database.create_partition(set).await?;
            let records = (0..LOADED).map(|number| (number.to_be_bytes(), [7; 100]));
            if database.load_set(set, records, |_| {}).await.is_ok() {
                return Ok(None);
            }
            let mut moments = Vec::new();
            for key in 0..3 {
                let mut now = database.snapshot().await?;
                moments.push((now.moment(), count_of(&mut now, set).await?));
                put(&database, set, key, &[1]).await?;
            }
            let mut now = database.snapshot().await?;
            moments.push((now.moment(), count_of(&mut now, set).await?));
            drop(now);
            database.close().await?;
            Ok::<_, Error>(Some(moments))
        });
        let Ok(Ok(Some(moments))) = lived else { continue };
        failed += 1;
        assert_eq!(moments.last().expect("four of them").1, 3);
        on(&media, 200 * SECOND_NS, async |executor| {
            let database = open(executor, &settings).await?;
            let set = database.partition("set")?;
            for (moment, expected) in moments {
                let found = count_of(&mut database.as_of(moment).await?, set).await?;
                assert_eq!(found, expected, "write {nth} failed: as of {moment}");
            }
            Ok(())
        });
    }
    assert!(failed > 0, "no load failed");
}

/// How many records the commit changes that is cut off.
const CHANGED: u8 = 40;

/// What such a commit says of records before is short and may be in the log without it. The same records are changed later.
#[test]
fn a_commit_that_was_cut_off_hides_no_moment() {
    let change = async |tx: &mut Transaction, set: PartitionId, value: u8| {
        for key in 0..CHANGED {
            tx.put(set, &[key], &[value; 1_000]).await?;
        }
        Ok::<(), Error>(())
    };
    let mut settings = settings(HOUR_NS, 8 << 20);
    // A page survives or not.
    settings.log.page_size = 512;
    for (event, cut) in (1..).flat_map(|event| (0..20).map(move |cut| (event, cut))) {
        let (media, before) = (Media::new(), Cell::new(None));
        let ended = run_up_to(&media, Hardware::ideal(), Some(event), async |executor| {
            let database = open_or_create(executor, &settings, true).await?;
            let set = database.partition("set")?;
            before.set(Some(put(&database, set, CHANGED, &[1]).await?));
            database.transaction(async |tx| change(tx, set, 1).await).await
        });
        media.power_cut(&mut Random::stream(cut, "cut"), &PowerCut::default());
        let Some(before) = before.get() else { continue };
        let mut moments = vec![(before, None)];
        for opening in 2..5_u8 {
            on(&media, u64::from(opening) * 100 * SECOND_NS, async |executor| {
                let database = open_or_create(executor, &settings, false).await?;
                let set = database.partition("set")?;
                for (moment, value) in &moments {
                    let mut past = database.as_of(*moment).await?;
                    for key in 0..CHANGED {
                        let expected = value.map(|value: u8| vec![value; 1_000]);
                        assert_eq!(past.get(set, &[key]).await?, expected, "cut at {event}, {cut}: {moment}");
                    }
                }
                database.transaction(async |tx| change(tx, set, opening).await).await?;
                moments.push((put(&database, set, CHANGED, &[1]).await?, Some(opening)));
                Ok(())
            });
        }
        if ended.is_ok() {
            break;
        }
    }
}

async fn open_or_create(executor: &Executor, settings: &Settings, is_new: bool) -> Result<Database> {
    if !is_new {
        return open(executor, settings).await;
    }
    let database = Database::create(executor, settings.clone()).await?;
    database.create_partition(PartitionSpec::set("set")).await?;
    Ok(database)
}

#[cfg(feature = "canary")]
#[test]
fn what_is_loaded_at_moments_before_its_load_is_found() {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;
    is_found(Canary::PresentForPast, what_was_loaded_is_there_from_the_end_of_its_load_on);
}
