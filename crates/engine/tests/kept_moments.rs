//! Moments before an opening can be read after it, as far as the retention says and the log has them.

use crate::ground::kept::{HOUR_NS, on, open, put, settings};
use crate::ground::things;
use crate::quick_restarts;
use base::time::SECOND_NS;
use base::{Instant, Lsn, PartitionId, Random};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{Database, Direction, Error, PartitionSpec, Result, Settings, Snapshot, Transaction, version};
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::{FaultPlan, Media, PowerCut, Slow};

fn is_too_old<T>(read: &Result<T>) -> bool {
    matches!(read, Err(Error::SnapshotTooOld { .. }))
}

#[test]
fn moments_are_read_by_position_time_and_age_after_closings_and_cuts() {
    let (media, settings) = (Media::new(), settings(HOUR_NS, 1 << 20));
    let mut moments = on(&media, SECOND_NS, async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let first = (put(&database, tree, 1, &[0]).await?, executor.unix_ns());
        executor.sleep_ns(SECOND_NS).await;
        let second = (put(&database, tree, 1, &[1]).await?, executor.unix_ns());
        executor.sleep_ns(SECOND_NS).await;
        database.close().await?;
        Ok(vec![first, second])
    });
    for opening in 1..6_u8 {
        let found = on(&media, u64::from(opening) * 100 * SECOND_NS, async |executor| {
            let database = open(executor, &settings).await?;
            let tree = database.partition("tree")?;
            let report = database.recovery();
            assert!(report.moments_log_bytes > 0 && report.oldest_moment.is_some_and(|oldest| oldest <= moments[0].0));
            for (number, (moment, unix_ns)) in moments.iter().enumerate() {
                let expected = Some(vec![number as u8]);
                assert_eq!(database.as_of(*moment).await?.get(tree, &[1]).await?, expected);
                assert_eq!(database.as_of_unix_ns(*unix_ns).await?.get(tree, &[1]).await?, expected, "{opening}");
                let age_ns = executor.unix_ns() - unix_ns;
                assert_eq!(database.as_of_age(age_ns).await?.get(tree, &[1]).await?, expected);
            }
            assert!(is_too_old(&database.as_of_unix_ns(5).await));
            let new = (put(&database, tree, 1, &[opening + 1]).await?, executor.unix_ns());
            executor.sleep_ns(SECOND_NS).await;
            if opening.is_multiple_of(2) {
                database.close().await?;
            }
            Ok(new)
        });
        moments.push(found);
    }
}

#[test]
fn the_retention_ends_at_its_time_also_over_openings() {
    let (media, settings) = (Media::new(), settings(100 * SECOND_NS, 1 << 20));
    let moments = on(&media, 0, async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let mut moments = Vec::new();
        for value in 0..10 {
            moments.push(put(&database, tree, 1, &[value]).await?);
            executor.sleep_ns(10 * SECOND_NS).await;
        }
        Ok(moments)
    });
    on(&media, 155 * SECOND_NS, async |executor| {
        let database = open(executor, &settings).await?;
        let tree = database.partition("tree")?;
        for (number, moment) in moments.iter().enumerate() {
            match database.as_of(*moment).await {
                // What was committed last before the retention begins is needed for its front.
                Ok(mut past) if number >= 5 => assert_eq!(past.get(tree, &[1]).await?, Some(vec![number as u8])),
                read => assert!(number < 5 && is_too_old(&read), "{number}"),
            }
        }
        Ok(())
    });
}

#[test]
fn a_clock_that_begins_anew_ends_no_retention() {
    let (media, settings) = (Media::new(), settings(HOUR_NS, 1 << 20));
    let moments = on(&media, 0, async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        Ok([put(&database, tree, 1, &[0]).await?, put(&database, tree, 1, &[1]).await?])
    });
    on(&media, 0, async |executor| {
        let database = open(executor, &settings).await?;
        let tree = database.partition("tree")?;
        put(&database, tree, 1, &[2]).await?;
        for (moment, value) in moments.iter().zip(0..) {
            assert_eq!(database.as_of(*moment).await?.get(tree, &[1]).await?, Some(vec![value]));
        }
        Ok(())
    });
}

#[test]
fn openings_without_a_retention_interrupt_it() {
    let media = Media::new();
    let (kept, unkept) = (settings(HOUR_NS, 1 << 20), settings(0, 1 << 20));
    let first = on(&media, 0, async |executor| {
        let database = Database::create(executor, kept.clone()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        put(&database, tree, 1, &[1]).await
    });
    on(&media, 100 * SECOND_NS, async |executor| {
        let database = open(executor, &unkept).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("loaded")).await?;
        database.load_b_tree(tree, [([1], [1])], |_| {}).await?;
        put(&database, database.partition("tree")?, 1, &[2]).await
    });
    let third = on(&media, 200 * SECOND_NS, async |executor| {
        let database = open(executor, &kept).await?;
        let moment = put(&database, database.partition("tree")?, 1, &[3]).await?;
        put(&database, database.partition("tree")?, 1, &[4]).await?;
        Ok(moment)
    });
    on(&media, 300 * SECOND_NS, async |executor| {
        let database = open(executor, &kept).await?;
        assert!(is_too_old(&database.as_of(first).await));
        let tree = database.partition("tree")?;
        assert_eq!(database.as_of(third).await?.get(tree, &[1]).await?, Some(vec![3]));
        Ok(())
    });
}

/// Also where it is open before its checkpoint has written anything: the first commit comes after that.
#[test]
fn an_opening_without_a_retention_that_is_cut_off_at_once_interrupts_it() {
    let media = Media::new();
    let settings = |retention_ns| Settings {
        home_device: "next".into(),
        undo: version::UndoSettings { retention_ns, ..version::UndoSettings::default() },
        ..quick_restarts::settings("face", 640, Policy::OFF)
    };
    let write = async |database: &Database, value: u8| {
        let stock = database.partition("stock")?;
        database.transaction(async |tx| tx.put(stock, b"key", &[value]).await).await
    };
    let first = quick_restarts::run_under(FaultPlan::default(), &media, async |executor| {
        let database = Database::create(executor, settings(HOUR_NS)).await?;
        database.create_partition(PartitionSpec::set("stock")).await?;
        let spec = PartitionSpec { device: "volume".into(), ..PartitionSpec::b_tree("tree") };
        let tree = database.create_partition(spec).await?;
        write(&database, 1).await?;
        let moment = database.snapshot().await?.moment();
        for key in 0..100 {
            put(&database, tree, key, &[7; 500]).await?;
        }
        database.close().await?;
        Ok::<_, Error>(moment)
    });
    let slow =
        Slow { device: "next".into(), from: Instant::START, until: Instant::START.plus_ns(HOUR_NS), factor: 50_000.0 };
    let faults = FaultPlan { slow: vec![slow], ..FaultPlan::default() };
    let second = quick_restarts::run_under(faults, &media, async |executor| {
        let database = open(executor, &settings(0)).await?;
        write(&database, 2).await
    });
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut::default());
    let third = quick_restarts::run_under(FaultPlan::default(), &media, async |executor| {
        let database = open(executor, &settings(HOUR_NS)).await?;
        let stock = database.partition("stock")?;
        assert_eq!(database.snapshot().await?.get(stock, b"key").await?, Some(vec![2]));
        let past = database.as_of(first.clone()?).await;
        assert!(is_too_old(&past), "what the set was is not in the log");
        Ok::<_, Error>(())
    });
    assert_eq!((second, third), (Ok(()), Ok(())));
}

#[test]
fn what_the_log_cannot_give_back_is_refused_by_partition() {
    let (media, settings) = (Media::new(), settings(HOUR_NS, 1 << 20));
    let (before, after) = on(&media, 0, async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        for name in ["tree", "loaded", "long", "truncated"] {
            database.create_partition(PartitionSpec::b_tree(name)).await?;
        }
        let [tree, loaded, long, truncated] =
            ["tree", "loaded", "long", "truncated"].map(|name| database.partition(name).expect("it is there"));
        put(&database, tree, 1, &[1]).await?;
        put(&database, long, 1, &vec![7; 100_000]).await?;
        let before = put(&database, truncated, 1, &[1]).await?;
        database.load_b_tree(loaded, (0..100_u8).map(|key| ([key], [key])), |_| {}).await?;
        let truncated = database.truncate_partition(truncated).await?;
        put(&database, long, 1, &[8]).await?;
        put(&database, tree, 1, &[2]).await?;
        let after = put(&database, truncated, 1, &[2]).await?;
        for partition in [tree, loaded, long, truncated] {
            put(&database, partition, 1, &[9]).await?;
        }
        Ok((before, after))
    });
    on(&media, 100 * SECOND_NS, async |executor| {
        let database = open(executor, &settings).await?;
        let (mut then, mut later) = (database.as_of(before).await?, database.as_of(after).await?);
        assert_eq!(then.get(database.partition("tree")?, &[1]).await?, Some(vec![1]));
        assert_eq!(then.get(database.partition("long")?, &[1]).await?, Some(vec![7; 100_000]));
        for (name, value) in [("tree", 2), ("loaded", 1), ("long", 8), ("truncated", 2)] {
            let partition = database.partition(name)?;
            assert_eq!(later.get(partition, &[1]).await?, Some(vec![value]), "{name}");
        }
        assert_eq!(then.get(database.partition("loaded")?, &[1]).await?, None);
        let truncated = database.partition("truncated")?;
        let mut cursor = then.cursor(truncated, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        assert!(is_too_old(&then.get(truncated, &[1]).await) && is_too_old(&then.next(&mut cursor).await));
        Ok(())
    });
}

#[test]
fn what_is_loaded_was_not_there_before_the_log_has_said_a_time() {
    let (media, settings) = (Media::new(), settings(HOUR_NS, 1 << 20));
    let (before, after) = on(&media, 0, async |executor| {
        let database = Database::create(executor, settings.clone()).await?;
        let [tree, loaded] = ["tree", "loaded"].map(PartitionSpec::b_tree);
        let (tree, loaded) = (database.create_partition(tree).await?, database.create_partition(loaded).await?);
        let before = put(&database, tree, 1, &[7]).await?;
        database.load_b_tree(loaded, [([1], [8])], |_| {}).await?;
        let after = put(&database, loaded, 2, &[9]).await?;
        put(&database, loaded, 3, &[10]).await?;
        assert!(executor.unix_ns() < 1_000_000, "the log says no time in a clock's first millisecond");
        Ok((before, after))
    });
    on(&media, 0, async |executor| {
        let database = open(executor, &settings).await?;
        let loaded = database.partition("loaded")?;
        assert_eq!(database.as_of(before).await?.get(loaded, &[1]).await?, None);
        let mut later = database.as_of(after).await?;
        assert_eq!(later.get(loaded, &[1]).await?, Some(vec![8]));
        assert_eq!((later.get(loaded, &[2]).await?, later.get(loaded, &[3]).await?), (Some(vec![9]), None));
        Ok(())
    });
}

/// The partitions of the model, by their places in it.
const NAMES: [&str; 5] = ["tree", "long", "direct", "appended", "set"];
const LONG: usize = 1;
const DIRECT: usize = 2;
const APPENDED: usize = 3;
const SET: usize = 4;
const OBJECTS: u64 = 30;

/// What a database holds, by partition and key.
type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

async fn create(database: &Database) -> Result<()> {
    let direct = Organization::Direct { objects: OBJECTS, blocking_factor: 5, record_size: 8 };
    for spec in [
        PartitionSpec::b_tree("tree"),
        PartitionSpec::b_tree("long"),
        PartitionSpec::new("direct", direct, Locking::Record),
        PartitionSpec::append("appended"),
        PartitionSpec::set("set"),
    ] {
        database.create_partition(spec).await?;
    }
    Ok(())
}

/// Makes a random change, also in the model.
async fn change(tx: &mut Transaction, ids: &[PartitionId], state: &mut State, random: &mut Random) -> Result<()> {
    let place = random.below(NAMES.len() as u64) as usize;
    let id = ids[place];
    let mut key = vec![b'k'; random.below(3) as usize];
    key.push(random.below(30) as u8);
    let mut value = vec![0; random.between(1, 60) as usize];
    random.fill(&mut value);
    match place {
        DIRECT => {
            let number = random.below(OBJECTS);
            value.resize(8, 0);
            tx.modify_object(id, number, |object| object.copy_from_slice(&value)).await?;
            state.insert((place, number.to_be_bytes().to_vec()), value);
        }
        APPENDED => {
            let at = tx.append(id, &value).await?;
            state.insert((place, format!("{at:?}").into_bytes()), value);
        }
        _ => {
            if place == LONG && random.chance(0.1) {
                value.resize(8_000, 1);
            }
            let present = state.get_mut(&(place, key.clone()));
            match (random.below(4), present) {
                (0, present) => {
                    let is_there = present.is_some();
                    assert_eq!(tx.delete(id, &key).await?, is_there);
                    state.remove(&(place, key));
                }
                (1, Some(present)) if present.len() < 1000 => {
                    let at = random.below(present.len() as u64) as usize;
                    tx.modify(id, &key, |bytes| bytes[at] = value[0]).await?;
                    present[at] = value[0];
                }
                _ => {
                    tx.put(id, &key, &value).await?;
                    state.insert((place, key), value);
                }
            }
        }
    }
    Ok(())
}

/// What a snapshot shows of a partition.
async fn contents(past: &mut Snapshot, id: PartitionId, place: usize) -> Result<State> {
    let mut found = State::new();
    match place {
        DIRECT => {
            for number in 0..OBJECTS {
                let object = past.read_object(id, number, <[u8]>::to_vec).await?;
                found.insert((place, number.to_be_bytes().to_vec()), object);
            }
            found.retain(|_, object| object.iter().any(|byte| *byte != 0));
        }
        APPENDED => {
            past.scan_appended(id, |at, record| {
                found.insert((place, format!("{at:?}").into_bytes()), record.to_vec());
                true
            })
            .await?;
        }
        SET => {
            past.scan_set(id, |key, value| {
                found.insert((place, key.to_vec()), value.to_vec());
                true
            })
            .await?;
        }
        _ => {
            let mut cursor = past.cursor(id, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((key, value)) = past.next(&mut cursor).await? {
                assert_eq!(past.get(id, &key).await?.as_ref(), Some(&value));
                found.insert((place, key), value);
            }
        }
    }
    Ok(found)
}

/// What was read, by partition, and how many moments were refused.
#[derive(Debug, Default)]
struct Reads {
    right: [usize; 5],
    too_old: usize,
}

async fn compare(
    database: &Database,
    ids: &[PartitionId],
    (moment, state): &(Lsn, State),
    reads: &mut Reads,
) -> Result<()> {
    let mut past = match database.as_of(*moment).await {
        Err(Error::SnapshotTooOld { oldest, .. }) => {
            assert!(*moment < oldest);
            reads.too_old += 1;
            return Ok(());
        }
        past => past?,
    };
    for (place, id) in ids.iter().enumerate() {
        let expected: State =
            state.iter().filter(|((of, _), _)| *of == place).map(|(k, v)| (k.clone(), v.clone())).collect();
        let found = contents(&mut past, *id, place).await?;
        assert_eq!(found, expected, "'{}' as of {moment}", NAMES[place]);
        reads.right[place] += 1;
    }
    Ok(())
}

/// Random transactions and openings, some behind closings and some behind power cuts.
fn history(seed: u64) -> Reads {
    let mut random = Random::stream(seed, "kept moments");
    let (media, mut reads) = (Media::new(), Reads::default());
    let mut settings = settings(HOUR_NS, if seed.is_multiple_of(2) { 8 << 20 } else { 256 << 10 });
    if seed.is_multiple_of(3) {
        (settings.undo.memory, settings.undo.cluster_size) = (0, 512);
    }
    let (mut state, mut moments) = (State::new(), Vec::<(Lsn, State)>::new());
    for opening in 0..5 {
        on(&media, (1 + opening) * 100 * SECOND_NS + seed, async |executor| {
            let database = match opening {
                0 => {
                    let database = Database::create(executor, settings.clone()).await?;
                    create(&database).await?;
                    // No moment that is asked for is before the partitions.
                    let direct = database.partition("direct")?;
                    let begin = async |tx: &mut Transaction| {
                        tx.modify_object(direct, 0, |object| object.copy_from_slice(&[1; 8])).await
                    };
                    database.transaction(begin).await?;
                    state.insert((DIRECT, 0_u64.to_be_bytes().to_vec()), vec![1; 8]);
                    database
                }
                _ => open(executor, &settings).await?,
            };
            let ids = NAMES.map(|name| database.partition(name).expect("it is there"));
            let opened = database.snapshot().await?.moment();
            if opening > 0 {
                moments.push((opened, state.clone()));
            }
            let is_whole = seed.is_multiple_of(2);
            for moment in moments.iter().filter(|_| opening > 0) {
                let before = reads.too_old;
                compare(&database, &ids, moment, &mut reads).await?;
                assert!(!is_whole || reads.too_old == before, "the log has all of it");
            }
            let mut left = Vec::new();
            let rounds = random.between(20, 60);
            for round in 0..rounds {
                let (mut tx, mut then) = (database.begin().await?, state.clone());
                let mut savepoints = Vec::new();
                let mut failed = false;
                for _ in 0..random.between(1, 8) {
                    match random.below(8) {
                        0 => savepoints.push((tx.savepoint(), then.clone())),
                        1 if !savepoints.is_empty() => {
                            let (savepoint, at) = savepoints.pop().expect("there is one");
                            tx.rollback_to(savepoint).await?;
                            then = at;
                        }
                        _ => {
                            let changing = change(&mut tx, &ids, &mut then, &mut random);
                            failed = executor.within(SECOND_NS, changing).await.is_none_or(|done| done.is_err());
                        }
                    }
                    if failed {
                        break;
                    }
                }
                match random.below(10) {
                    0..2 => tx.rollback().await?,
                    _ if failed => tx.rollback().await?,
                    // What does not end keeps the log from going round.
                    2 | 3 if round + 6 > rounds => left.push(tx),
                    _ => {
                        tx.commit().await?;
                        state = then;
                        if random.chance(0.5) {
                            moments.push((database.snapshot().await?.moment(), state.clone()));
                        }
                    }
                }
                executor.sleep_ns(random.below(SECOND_NS / 20)).await;
                if random.chance(0.2) {
                    let moment = random.choose(&moments).cloned();
                    if let Some(moment) = moment {
                        compare(&database, &ids, &moment, &mut reads).await?;
                    }
                }
            }
            database.snapshot().await?;
            if random.chance(0.4) {
                for tx in left {
                    tx.rollback().await?;
                }
                database.close().await?;
            } else {
                std::mem::forget(left);
            }
            Ok(())
        });
    }
    reads
}

#[test]
fn random_histories_are_read_as_they_were_after_openings() {
    let mut whole = Reads::default();
    for seed in 0..24 {
        let reads = history(seed);
        for place in 0..NAMES.len() {
            whole.right[place] += reads.right[place];
        }
        whole.too_old += reads.too_old;
    }
    assert!(whole.right.iter().all(|right| *right > 500) && whole.too_old > 100, "{whole:?}");
}

#[test]
fn the_index_of_a_set_leads_to_what_its_records_were_before_openings() {
    let (media, settings) = (Media::new(), settings(HOUR_NS, 8 << 20));
    let (mut model, mut moments) = (things::Model::new(), Vec::new());
    let mut random = Random::stream(7, "kept moments of an index");
    for opening in 0..4 {
        on(&media, (1 + opening) * 100 * SECOND_NS, async |executor| {
            let database = if opening == 0 {
                let spec = PartitionSpec::set("things").record(things::record());
                let database = Database::create(executor, settings.clone()).await?;
                database.create_partition(spec.secondary("by_group", &["group", "weight"])).await?;
                database
            } else {
                open(executor, &settings).await?
            };
            let set = database.partition("things")?;
            let index = database.secondary(set, "by_group")?;
            for _ in 0..60 {
                for (moment, then) in moments.iter().filter(|_| random.chance(0.2)) {
                    let (mut past, mut found) = (database.as_of(*moment).await?, Vec::new());
                    let keep = |key: &[u8], _: &[u8]| {
                        found.push(key.to_vec());
                        true
                    };
                    past.range(set, index, things::ALL, Direction::Forward, keep).await?;
                    assert_eq!(found, things::by_group_in(then), "as of {moment}");
                }
                let (key, is_deleted) = (vec![random.below(12) as u8], random.chance(0.4));
                let thing = things::thing(random.below(4) as u32, random.below(2) as i64, "it");
                let change = async |tx: &mut Transaction| match is_deleted {
                    true => tx.delete(set, &key).await.map(drop),
                    false => tx.put(set, &key, &things::stored(&thing)).await,
                };
                database.transaction(change).await?;
                if is_deleted {
                    model.remove(&key);
                } else {
                    model.insert(key, thing);
                }
                moments.push((database.snapshot().await?.moment(), model.clone()));
            }
            Ok(())
        });
    }
}

#[cfg(feature = "canary")]
#[test]
fn a_set_that_shows_the_present_for_the_past_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::PresentForPast));
    let found = std::panic::catch_unwind(random_histories_are_read_as_they_were_after_openings);
    plant(None);
    assert!(found.is_err(), "nothing notices that a set shows the present");
}
