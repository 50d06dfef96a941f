//! Partitions that are created or bulk-loaded beside readers of earlier moments, against every committed state.

use super::*;
use crate::version::UndoSettings;
use structures::set::{FieldType, FieldValue, RecordType};

/// A record of the model: its partition, its key, and a number that its value is made of.
type Numbers = BTreeMap<(usize, u8), u32>;

const KEYS: u64 = 12;
const TREE: usize = 0;
const SET: usize = 1;
const INDEX: usize = 2;

fn typed() -> RecordType {
    RecordType::new([("group", FieldType::U32), ("number", FieldType::U32)]).expect("different names")
}

/// The value of a record whose number is this.
fn stored(partition: usize, number: u32) -> Vec<u8> {
    let mut value = vec![0; 20];
    value[..4].copy_from_slice(&number.to_le_bytes());
    if partition == INDEX {
        value.clear();
        typed().encode(&[FieldValue::U32(number % 3), FieldValue::U32(number)], &mut value).expect("it is of the type");
    }
    value
}

fn organization(arrivals: bool) -> Organization {
    Organization::Set { segment_size: *SEGMENT_SIZES.start() as u32, reserve_percent: 10, arrivals }
}

/// The partitions that can be loaded.
async fn create(database: &Database) -> Result<[PartitionId; 3]> {
    let index = PartitionSpec::new("index", organization(false), Locking::Record).record(typed());
    Ok([
        database.create_partition(PartitionSpec::b_tree("tree")).await?,
        database.create_partition(PartitionSpec::new("set", organization(false), Locking::Record)).await?,
        database.create_partition(index.secondary("by_group", &["group"])).await?,
    ])
}

async fn load(database: &Database, id: PartitionId, records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    if database.set_records(id).is_some() {
        database.load_set(id, records, |_| {}).await
    } else {
        database.load_b_tree(id, records, |_| {}).await
    }
}

/// All records of a partition that a transaction sees, in order, in all ways in which it can look for them.
async fn seen(tx: &mut Transaction, ids: [PartitionId; 3], partition: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (id, mut found) = (ids[partition], Vec::new());
    if partition == TREE {
        for direction in [Direction::Backward, Direction::Forward] {
            let other: Vec<_> = found.drain(..).rev().collect();
            let mut cursor = tx.cursor(id, Bound::Unbounded, Bound::Unbounded, direction);
            while let Some(record) = tx.next(&mut cursor).await? {
                found.push(record);
            }
            assert!(direction == Direction::Backward || other == found);
        }
    } else {
        let keep = |key: &[u8], value: &[u8]| {
            found.push((key.to_vec(), value.to_vec()));
            true
        };
        tx.scan_set(id, keep).await?;
        found.sort();
    }
    if partition == INDEX {
        let mut ordered = Vec::new();
        let keep = |key: &[u8], value: &[u8]| {
            ordered.push((key.to_vec(), value.to_vec()));
            true
        };
        tx.range(id, 0, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, keep).await?;
        let group = |value: &[u8]| typed().bytes(value, 0).expect("it is of the type").to_vec();
        assert!(ordered.is_sorted_by_key(|(key, value)| (group(value), key.clone())), "{ordered:?}");
        ordered.sort();
        assert_eq!(ordered, found);
    }
    for key in 0..KEYS as u8 {
        let of = found.iter().find(|(other, _)| *other == [key]).map(|(_, value)| value.clone());
        assert_eq!(tx.get(id, &[key]).await?, of, "partition {partition}, key {key}");
    }
    Ok(found)
}

async fn compare(tx: &mut Transaction, ids: [PartitionId; 3], numbers: &Numbers) -> Result<()> {
    for partition in [TREE, SET, INDEX] {
        let expected: Vec<(Vec<u8>, Vec<u8>)> = numbers
            .range((partition, 0)..=(partition, u8::MAX))
            .map(|((_, key), number)| (vec![*key], stored(partition, *number)))
            .collect();
        assert_eq!(seen(tx, ids, partition).await?, expected, "partition {partition}");
    }
    Ok(())
}

/// A transaction at the level of a snapshot.
struct Writer {
    tx: Transaction,
    began: usize,
    sees: Numbers,
}

/// A random history of changes, partitions that are emptied and loaded again, and readers of all moments.
async fn history(executor: &Executor, seed: u64) -> Result<usize> {
    let mut random = Random::stream(seed, "loads");
    let mut undo =
        UndoSettings { lazy_commits: if seed.is_multiple_of(3) { 0 } else { 1024 }, ..UndoSettings::default() };
    if seed % 2 == 1 {
        (undo.cluster_size, undo.memory) = (512, 0);
    }
    let keeps_all = seed % 4 >= 2;
    undo.retention_ns = if keeps_all { 1_000 * SECOND_NS } else { 0 };
    let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
    let ids = create(&database).await?;
    let (mut committed, mut changed) = (Numbers::new(), BTreeMap::<(usize, u8), usize>::new());
    let (mut commits, mut loads, mut fresh) = (0, [0; 3], 0);
    let mut pasts: Vec<(Lsn, Numbers)> = Vec::new();
    let (mut snapshots, mut writers): (Vec<(Snapshot, Numbers)>, Vec<Writer>) = Default::default();
    for _ in 0..400 {
        let partition = random.below(3) as usize;
        match random.below(12) {
            0 | 1 if snapshots.len() < 4 => snapshots.push((database.snapshot().await?, committed.clone())),
            2 if !snapshots.is_empty() => drop(snapshots.remove(random.below(snapshots.len() as u64) as usize)),
            3 if writers.len() < 2 => {
                let tx = database.begin_at(Isolation::Snapshot).await?;
                writers.push(Writer { tx, began: commits, sees: committed.clone() });
            }
            // It changes one record and ends, so that no other transaction waits for it.
            4 | 5 if !writers.is_empty() => {
                let mut writer = writers.remove(random.below(writers.len() as u64) as usize);
                compare(&mut writer.tx, ids, &writer.sees).await?;
                let key = random.below(KEYS) as u8;
                let since = changed.get(&(partition, key)).copied().unwrap_or(0).max(loads[partition]);
                fresh += 1;
                let done = writer.tx.put(ids[partition], &[key], &stored(partition, fresh)).await;
                assert_eq!(since > writer.began, matches!(done, Err(Error::WriteConflict(_))), "{done:?}");
                if done.is_ok() {
                    writer.sees.insert((partition, key), fresh);
                    compare(&mut writer.tx, ids, &writer.sees).await?;
                    writer.tx.commit().await?;
                    commits += 1;
                    changed.insert((partition, key), commits);
                    committed.insert((partition, key), fresh);
                }
            }
            6 | 7 => {
                let is_cleared = random.chance(0.7);
                let mut tx = database.begin().await?;
                commits += 1;
                for key in 0..KEYS as u8 {
                    let name = (partition, key);
                    if is_cleared || random.chance(0.2) {
                        let deleted = tx.delete(ids[partition], &[key]).await?;
                        assert_eq!(committed.remove(&name).is_some(), deleted);
                        if deleted {
                            changed.insert(name, commits);
                        }
                    } else if random.chance(0.5) {
                        fresh += 1;
                        tx.put(ids[partition], &[key], &stored(partition, fresh)).await?;
                        committed.insert(name, fresh);
                        changed.insert(name, commits);
                    }
                }
                tx.commit().await?;
            }
            8 | 9 if !committed.keys().any(|(of, _)| *of == partition) => {
                let mut records = Vec::new();
                for key in 0..KEYS as u8 {
                    if random.chance(0.6) {
                        fresh += 1;
                        committed.insert((partition, key), fresh);
                        records.push((vec![key], stored(partition, fresh)));
                    }
                }
                load(&database, ids[partition], records).await?;
                commits += 1;
                loads[partition] = commits;
            }
            _ => {}
        }
        pasts.push((database.0.engine.versions.present(), committed.clone()));
        if !snapshots.is_empty() {
            let index = random.below(snapshots.len() as u64) as usize;
            let (snapshot, numbers) = &mut snapshots[index];
            compare(snapshot.as_transaction(), ids, numbers).await?;
        }
        if keeps_all && random.chance(0.3) {
            let (moment, numbers) = random.choose(&pasts).expect("there is one");
            compare(database.as_of(*moment).await?.as_transaction(), ids, numbers).await?;
        }
    }
    compare(&mut database.begin().await?, ids, &committed).await?;
    drop(snapshots);
    for writer in writers {
        writer.tx.rollback().await?;
    }
    let is_noted = |id| database.0.engine.versions.versions.borrow().loads.first_after(id, Lsn::ZERO) > Lsn::ZERO;
    assert!(keeps_all || !ids.into_iter().any(is_noted), "no view reads the time before any more");
    Ok(loads.iter().filter(|commit| **commit > 0).count())
}

#[test]
fn no_reader_sees_a_load_that_ended_after_its_moment() {
    let mut loads = 0;
    for seed in 0..12 {
        let done = on_a_machine(async |executor| history(executor, seed).await);
        loads += done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(loads > 30, "{loads} partitions were loaded");
}

#[test]
fn a_load_under_way_is_seen_by_no_reader_of_a_moment() {
    on_a_machine(async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let ids = create(&database).await?;
        for (partition, id) in ids.into_iter().enumerate() {
            let records = (0..2_000_u32).map(move |number| (number.to_be_bytes().to_vec(), stored(partition, number)));
            let mut before = database.snapshot().await?;
            let loading = database.clone();
            let loading = executor.spawn(async move { load(&loading, id, records.collect()).await });
            let mut looks = 0;
            while !loading.is_finished() {
                let mut now = database.snapshot().await?;
                // What has ended meanwhile is seen whole.
                let found = seen(now.as_transaction(), ids, partition).await?.len();
                assert!(found == 0 || found == 2_000 && loading.is_finished(), "{found} of partition {partition}");
                assert!(seen(before.as_transaction(), ids, partition).await?.is_empty());
                looks += 1;
                executor.sleep_ns(1_000).await;
            }
            assert!(looks > 3, "the load of partition {partition} went on for {looks} looks");
            loading.join().await?;
            let mut after = database.snapshot().await?;
            let change = async |tx: &mut Transaction| {
                tx.delete(id, &7_u32.to_be_bytes()).await?;
                tx.put(id, &8_u32.to_be_bytes(), &stored(partition, 3)).await
            };
            database.transaction(change).await?;
            assert!(seen(before.as_transaction(), ids, partition).await?.is_empty());
            let found = seen(after.as_transaction(), ids, partition).await?;
            let expected = |number: u32| (number.to_be_bytes().to_vec(), stored(partition, number));
            assert!(found.into_iter().eq((0..2_000).map(expected)));
        }
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_load_that_fails_leaves_nothing_to_any_reader() {
    on_a_machine(async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let ids = create(&database).await?;
        let mut before = database.snapshot().await?;
        let records = (0..3_000_u32).map(|number| {
            let value = if number < 2_500 { stored(INDEX, number) } else { vec![0; 3] };
            (number.to_be_bytes(), value)
        });
        let failed = database.load_set(ids[INDEX], records, |_| {}).await;
        assert!(matches!(failed, Err(Error::Field { .. })), "{failed:?}");
        assert_eq!(seen(before.as_transaction(), ids, INDEX).await?, []);
        let mut after = database.snapshot().await?;
        assert_eq!(seen(after.as_transaction(), ids, INDEX).await?, []);
        assert_eq!(seen(before.as_transaction(), ids, INDEX).await?, []);
        executor.sleep_ns(SECOND_NS).await;
        assert_eq!(database.set_records(ids[INDEX]), Some(0));
        Ok(())
    })
    .expect("nothing else fails");
}

#[test]
fn a_tree_that_has_records_is_not_loaded() {
    on_a_machine(async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let ids = create(&database).await?;
        database.transaction(async |tx| tx.put(ids[TREE], b"k", b"v").await).await?;
        let refused = load(&database, ids[TREE], vec![(b"l".to_vec(), b"w".to_vec())]).await;
        assert!(matches!(refused, Err(Error::NotEmpty(_))), "{refused:?}");
        let kept = database.transaction(async |tx| tx.get(ids[TREE], b"k").await).await?;
        assert_eq!(kept.as_deref(), Some(&b"v"[..]));
        Ok(())
    })
    .expect("nothing else fails");
}

#[test]
fn a_partition_is_empty_for_those_who_read_a_moment_before_its_creation() {
    on_a_machine(async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let mut before = database.snapshot().await?;
        let ids = create(&database).await?;
        let direct = Organization::Direct { objects: 4, blocking_factor: 2, record_size: 8 };
        let direct = database.create_partition(PartitionSpec::new("direct", direct, Locking::Record)).await?;
        let arrivals = PartitionSpec::new("arrivals", organization(true), Locking::None);
        let appended = [
            database.create_partition(PartitionSpec::append("log")).await?,
            database.create_partition(arrivals).await?,
        ];
        let fill = async |tx: &mut Transaction| {
            for (partition, id) in ids.into_iter().enumerate() {
                for key in 0..KEYS as u8 {
                    tx.put(id, &[key], &stored(partition, 7)).await?;
                }
            }
            for id in appended {
                tx.append(id, b"record").await?;
            }
            tx.modify_object(direct, 3, |bytes| bytes.fill(1)).await
        };
        let appended_to = async |snapshot: &mut Snapshot| {
            let mut count = 0;
            for id in appended {
                let look = |_, _: &[u8]| {
                    count += 1;
                    true
                };
                snapshot.scan_appended(id, look).await?;
            }
            Ok::<_, Error>(count)
        };
        database.transaction(fill).await?;
        for partition in [TREE, SET, INDEX] {
            assert_eq!(seen(before.as_transaction(), ids, partition).await?, []);
        }
        assert_eq!(appended_to(&mut before).await?, 0);
        assert_eq!(before.read_object(direct, 3, <[u8]>::to_vec).await?, [0; 8], "as it was created");
        let mut after = database.snapshot().await?;
        assert_eq!((seen(after.as_transaction(), ids, TREE).await?.len(), appended_to(&mut after).await?), (12, 2));
        Ok(())
    })
    .expect("nothing fails");
}
