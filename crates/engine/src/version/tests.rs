//! Readers of the past against a model that keeps every committed state.

use crate::catalog::{Locking, Organization};
use crate::{Database, Direction, Error, Isolation, PartitionSpec, Result, Savepoint, Settings, Snapshot, Transaction};
use base::time::SECOND_NS;
use base::{Lsn, PartitionId, Random};
use executor::{Executor, Order};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Bound;
use std::pin::pin;
use std::task::Poll;
use structures::set::SEGMENT_SIZES;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

mod extents;
mod lazy;
mod loads;
mod parts;

/// What is in a database: by partition and key.
type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;
/// What a transaction has changed.
type Changes = BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>;

const KEYS: u64 = 24;
const OBJECTS: u64 = 6;
/// The partitions of the model.
const TREE: usize = 0;
const SET: usize = 1;
const DIRECT: usize = 2;
const ARRIVALS: usize = 3;
const APPENDED: usize = 4;

struct Client {
    tx: Transaction,
    own: Changes,
    /// What was committed when it began.
    began: State,
    began_at: usize,
    savepoints: Vec<(Savepoint, Changes)>,
}

struct Model {
    partitions: [PartitionId; 5],
    committed: State,
    /// The number of the commit that changed a record last.
    changed: BTreeMap<(usize, Vec<u8>), usize>,
    commits: usize,
}

/// Waits for `work`, but not for locks that will not be released.
pub(super) async fn unless_blocked<T>(executor: &Executor, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut patience) = (pin!(work), pin!(executor.sleep_ns(1_000_000_000)));
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        patience.as_mut().poll(context).map(|()| None)
    })
    .await
}

fn overlaid(state: &State, own: &Changes) -> State {
    let mut seen = state.clone();
    for (name, value) in own {
        match value {
            Some(value) => drop(seen.insert(name.clone(), value.clone())),
            None => drop(seen.remove(name)),
        }
    }
    seen
}

fn object(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Some value; a few are too long for a leaf.
fn value(random: &mut Random) -> Vec<u8> {
    let length = match random.below(10) {
        0 => 5_000 + random.below(9_000),
        1..4 => 8,
        _ => 1 + random.below(700),
    };
    (0..length).map(|_| random.below(256) as u8).collect()
}

impl Model {
    async fn new(database: &Database) -> Result<Model> {
        let segment_size = *SEGMENT_SIZES.start() as u32;
        let set = Organization::Set { segment_size, reserve_percent: 10, arrivals: false };
        let arrivals = Organization::Set { segment_size, reserve_percent: 10, arrivals: true };
        let direct = Organization::Direct { objects: OBJECTS, blocking_factor: 2, record_size: 16 };
        let partitions = [
            database.create_partition(PartitionSpec::b_tree("tree")).await?,
            database.create_partition(PartitionSpec::new("set", set, Locking::Record)).await?,
            database.create_partition(PartitionSpec::new("direct", direct, Locking::Page)).await?,
            database.create_partition(PartitionSpec::new("arrivals", arrivals, Locking::None)).await?,
            database.create_partition(PartitionSpec::append("appended")).await?,
        ];
        let objects = (0..OBJECTS).map(|number| ((DIRECT, object(number)), vec![0; 16]));
        Ok(Model { partitions, committed: objects.collect(), changed: BTreeMap::new(), commits: 0 })
    }

    fn commit(&mut self, own: Changes) {
        self.commits += 1;
        for name in own.keys() {
            self.changed.insert(name.clone(), self.commits);
        }
        self.committed = overlaid(&self.committed, &own);
    }

    fn of(&self, state: &State, partition: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let of = state.iter().filter(|((of, _), _)| *of == partition);
        of.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    /// Compares all that a transaction sees with what it should see, and one key in particular.
    async fn compare(&self, tx: &mut Transaction, seen: &State, random: &mut Random) -> Result<()> {
        let key = vec![random.below(KEYS) as u8];
        for partition in [TREE, SET] {
            let found = tx.get(self.partitions[partition], &key).await?;
            assert_eq!(found.as_ref(), seen.get(&(partition, key.clone())), "partition {partition}, key {key:?}");
        }
        let direction = if random.chance(0.5) { Direction::Forward } else { Direction::Backward };
        let (low, high) = (vec![random.below(KEYS) as u8], vec![random.below(KEYS) as u8]);
        let bound = |key: &'static str, random: &mut Random| match (key, random.below(3)) {
            (_, 0) => None,
            (_, kind) => Some(kind == 1),
        };
        let (lower, upper) = (bound("lower", random), bound("upper", random));
        let as_bound = |kind: Option<bool>, key: &[u8]| -> Bound<Vec<u8>> {
            match kind {
                None => Bound::Unbounded,
                Some(true) => Bound::Included(key.to_vec()),
                Some(false) => Bound::Excluded(key.to_vec()),
            }
        };
        let (lower, upper) = (as_bound(lower, &low), as_bound(upper, &high));
        let (from, to) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        let mut cursor = tx.cursor(self.partitions[TREE], from, to, direction);
        let mut found = Vec::new();
        while let Some(record) = tx.next(&mut cursor).await? {
            found.push(record);
        }
        let is_above = |key: &[u8]| match from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        let is_below = |key: &[u8]| match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        };
        let mut expected = self.of(seen, TREE);
        expected.retain(|(key, _)| is_above(key) && is_below(key));
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected, "{lower:?} to {upper:?} {direction:?}");
        let mut found = Vec::new();
        tx.scan_set(self.partitions[SET], |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            true
        })
        .await?;
        found.sort();
        assert_eq!(found, self.of(seen, SET));
        for partition in [ARRIVALS, APPENDED] {
            let mut found = Vec::new();
            tx.scan_appended(self.partitions[partition], |_, record| {
                found.push(record.to_vec());
                true
            })
            .await?;
            found.sort();
            let expected: Vec<Vec<u8>> = self.of(seen, partition).into_iter().map(|(_, record)| record).collect();
            assert_eq!(found, expected, "partition {partition}");
        }
        let number = random.below(OBJECTS);
        let found = tx.read_object(self.partitions[DIRECT], number, <[u8]>::to_vec).await?;
        assert_eq!(Some(&found), seen.get(&(DIRECT, object(number))));
        Ok(())
    }

    /// Makes some change; what it should come to is noted if it succeeds.
    async fn change(&self, client: &mut Client, random: &mut Random) -> Result<()> {
        let present = overlaid(&self.committed, &client.own);
        let partition = random.below(5) as usize;
        if partition >= ARRIVALS {
            // The record is its own name: no two are alike.
            let record = random.word().to_be_bytes().to_vec();
            client.tx.append(self.partitions[partition], &record).await?;
            client.own.insert((partition, record.clone()), Some(record));
            return Ok(());
        }
        let key = if partition == DIRECT { object(random.below(OBJECTS)) } else { vec![random.below(KEYS) as u8] };
        let (name, id) = ((partition, key.clone()), self.partitions[partition]);
        let is_conflict = client.tx.isolation() == Isolation::Snapshot
            && self.changed.get(&name).is_some_and(|commit| *commit > client.began_at);
        let (tx, mut new) = (&mut client.tx, present.get(&name).cloned());
        let done = match random.below(4) {
            _ if partition == DIRECT => {
                let byte = random.below(256) as u8;
                let place = random.below(16) as usize;
                new.as_mut().expect("objects are there")[place] = byte;
                let number = u64::from_be_bytes(key.try_into().expect("eight bytes"));
                tx.modify_object(id, number, |bytes| bytes[place] = byte).await
            }
            0 => {
                new = None;
                tx.delete(id, &key).await.map(|_| ())
            }
            1 if new.as_ref().is_some_and(|value| (1..500).contains(&value.len())) => {
                let value = new.as_mut().expect("it is there");
                let (place, byte) = (random.below(value.len() as u64) as usize, random.below(256) as u8);
                value[place] = byte;
                tx.modify(id, &key, |bytes| bytes[place] = byte).await
            }
            _ => {
                let value = value(random);
                new = Some(value.clone());
                tx.put(id, &key, &value).await
            }
        };
        assert_eq!(is_conflict, matches!(done, Err(Error::WriteConflict(_))), "{name:?}: {done:?}");
        // An object is written as it is given, a record only where it differs.
        if done.is_ok() && (partition == DIRECT || new != present.get(&name).cloned()) {
            client.own.insert(name, new);
        }
        done
    }
}

/// A random history; in one of odd number all that can goes to the undo space at once. Returns how often that was read.
async fn history(executor: &Executor, seed: u64) -> Result<u64> {
    let mut random = Random::stream(seed, "versions");
    let small = super::UndoSettings { cluster_size: 512, memory: 0, ..super::UndoSettings::default() };
    let undo = if seed % 2 == 1 { small } else { super::UndoSettings::default() };
    let retention_ns = if seed % 3 == 2 { 1_000_000_000_000 } else { 0 };
    let age_ns = if seed % 4 >= 2 { Some(1_000 * (seed % 8)) } else { None };
    let undo = super::UndoSettings { retention_ns, age_ns, ..undo };
    let keeps_all = retention_ns > 0;
    let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
    let mut pasts: Vec<(Lsn, State)> = Vec::new();
    let mut model = Model::new(&database).await?;
    let (mut clients, mut snapshots): (Vec<Client>, Vec<(Snapshot, State)>) = Default::default();
    for _ in 0..500 {
        match random.below(20) {
            0..3 if clients.len() < 5 => {
                // A transaction that reads what is committed keeps versions from being left out.
                let isolation = Isolation::ALL[random.between(u64::from(!seed.is_multiple_of(4)), 2) as usize];
                let tx = database.begin_at(isolation).await?;
                let began = model.committed.clone();
                let (own, savepoints) = Default::default();
                clients.push(Client { tx, own, began, began_at: model.commits, savepoints });
            }
            3 if snapshots.len() < 3 => snapshots.push((database.snapshot().await?, model.committed.clone())),
            4 if !snapshots.is_empty() => drop(snapshots.remove(random.below(snapshots.len() as u64) as usize)),
            5 | 6 if !clients.is_empty() => {
                let client = clients.remove(random.below(clients.len() as u64) as usize);
                client.tx.commit().await?;
                model.commit(client.own);
                pasts.push((database.0.engine.versions.present(), model.committed.clone()));
            }
            7 if !clients.is_empty() => {
                let client = clients.remove(random.below(clients.len() as u64) as usize);
                client.tx.rollback().await?;
            }
            _ if clients.is_empty() => {}
            8 => {
                let index = random.below(clients.len() as u64) as usize;
                let client = &mut clients[index];
                client.savepoints.push((client.tx.savepoint(), client.own.clone()));
            }
            9 => {
                let index = random.below(clients.len() as u64) as usize;
                let client = &mut clients[index];
                if let Some((savepoint, own)) = client.savepoints.pop() {
                    client.tx.rollback_to(savepoint).await?;
                    client.own = own;
                }
            }
            10..17 => {
                let index = random.below(clients.len() as u64) as usize;
                let done = unless_blocked(executor, model.change(&mut clients[index], &mut random)).await;
                if matches!(done, Some(Err(_))) {
                    clients.remove(index).tx.rollback().await?;
                }
            }
            _ => {
                let index = random.below(clients.len() as u64) as usize;
                let Client { tx, own, began, .. } = &mut clients[index];
                let seen = match tx.isolation() {
                    Isolation::Serializable => continue,
                    Isolation::Snapshot => overlaid(began, own),
                    Isolation::ReadCommitted => overlaid(&model.committed, own),
                };
                model.compare(tx, &seen, &mut random).await?;
            }
        }
        if keeps_all && random.chance(0.2) && !pasts.is_empty() {
            let (moment, seen) = &pasts[random.below(pasts.len() as u64) as usize];
            model.compare(database.as_of(*moment).await?.as_transaction(), seen, &mut random).await?;
        }
        if let Some((snapshot, seen)) = snapshots.first_mut() {
            model.compare(snapshot.as_transaction(), seen, &mut random).await?;
        }
        database.0.engine.versions.versions.borrow().verify();
    }
    drop(snapshots);
    for client in clients {
        client.tx.rollback().await?;
    }
    let mut last = database.snapshot().await?;
    model.compare(last.as_transaction(), &model.committed.clone(), &mut random).await?;
    drop(last);
    assert_eq!(database.0.engine.versions.is_kept(), keeps_all, "no view reads the past any more");
    let report = database.versions();
    assert_eq!((report.snapshots, report.given_up, &report.failure), (0, 0, &None));
    assert_eq!(report.versions > 0, keeps_all);
    database.check(|_| ()).await?;
    Ok(database.0.engine.versions.space.statistics().reads)
}

/// Runs `work` on an ideal machine.
pub(crate) fn on_a_machine<T>(work: impl AsyncFnOnce(&Executor) -> Result<T>) -> Result<T> {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = executor.run(work(&executor));
    executor.stop();
    done.expect("the machine goes on")
}

#[test]
fn every_reader_sees_its_moment() {
    let mut reads = 0;
    for seed in 0..40 {
        let done = on_a_machine(async |executor| history(executor, seed).await);
        reads += done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(reads > 100, "the undo space was read {reads} times");
}

/// A database whose versions all go to the undo space at once, and its partition of a hundred records.
async fn spilling(executor: &Executor, size: u64) -> Result<(Database, PartitionId)> {
    let undo = super::UndoSettings { cluster_size: 512, memory: 0, size, ..super::UndoSettings::default() };
    let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    for key in 0..100_u8 {
        database.transaction(async |tx| tx.put(notes, &[key], &[key; 200]).await).await?;
    }
    Ok((database, notes))
}

async fn overwrite(database: &Database, notes: PartitionId, rounds: u8) -> Result<()> {
    for round in 0..rounds {
        for key in 0..100_u8 {
            database.transaction(async |tx| tx.put(notes, &[key], &[round; 200]).await).await?;
        }
    }
    Ok(())
}

#[test]
fn a_long_reader_costs_one_version_of_each_record() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut long = database.snapshot().await?;
        overwrite(&database, notes, 20).await?;
        assert_eq!(database.versions().versions, 100);
        assert_eq!(long.get(notes, &[7]).await?, Some(vec![7; 200]));
        drop(long);
        assert_eq!((database.versions().versions, database.0.engine.versions.space.statistics().bytes_in_use), (0, 0));
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_reader_for_which_there_is_no_room_is_told_so_and_stops_no_writer() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 8 << 10).await?;
        let mut old = database.snapshot().await?;
        overwrite(&database, notes, 1).await?;
        assert!(database.versions().bytes <= 8 << 10, "{:?}", database.versions());
        let failed = old.get(notes, &[7]).await;
        assert!(matches!(failed, Err(Error::SnapshotTooOld { .. })), "{failed:?}");
        assert_eq!(database.snapshot().await?.get(notes, &[7]).await?, Some(vec![0; 200]));
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_scan_that_would_have_to_show_what_was_given_up_is_told_so() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 8 << 10).await?;
        let mut old = database.snapshot().await?;
        for key in 0..100_u8 {
            database.transaction(async |tx| tx.delete(notes, &[key]).await.map(|_| ())).await?;
        }
        assert!(database.versions().given_up > 0);
        let mut cursor = old.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
        let next = old.next(&mut cursor).await;
        assert!(matches!(next, Err(Error::SnapshotTooOld { .. })), "{next:?}");
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_database_is_closed_while_versions_are_on_their_way() {
    on_a_machine(async |executor| {
        for steps in 0..40 {
            let (database, notes) = spilling(executor, 1 << 30).await?;
            let mut long = database.snapshot().await?;
            overwrite(&database, notes, 1).await?;
            for _ in 0..steps {
                executor.sleep_ns(10_000).await;
            }
            database.clone().close().await?;
            // A reader whose versions went with the undo space is told that the database is closed; others find theirs in memory.
            let read = long.get(notes, &[7]).await;
            assert!(matches!(&read, Err(Error::Closed)) || read == Ok(Some(vec![7; 200])), "{read:?}");
            executor.sleep_ns(SECOND_NS).await;
        }
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn old_versions_leave_memory_although_there_is_room() {
    on_a_machine(async |executor| {
        let undo = super::UndoSettings { age_ns: Some(10 * SECOND_NS), ..super::UndoSettings::default() };
        let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        overwrite(&database, notes, 1).await?;
        let mut snapshots = Vec::new();
        for round in 1..4_u8 {
            snapshots.push((round - 1, database.snapshot().await?));
            for key in 0..100_u8 {
                database.transaction(async |tx| tx.put(notes, &[key], &[round; 200]).await).await?;
            }
            let young = database.versions();
            assert!(
                young.memory_bytes > 0 && young.memory_age_ns.is_some_and(|age_ns| age_ns < SECOND_NS),
                "{young:?}"
            );
            executor.sleep_ns(9 * SECOND_NS).await;
            assert_eq!(database.versions().memory_bytes, young.memory_bytes, "they are not old yet");
            executor.sleep_ns(2 * SECOND_NS).await;
            let old = database.versions();
            assert_eq!((old.versions, old.memory_bytes, old.memory_age_ns), (100 * u64::from(round), 0, None));
        }
        for (round, snapshot) in &mut snapshots {
            for key in 0..100_u8 {
                assert_eq!(snapshot.get(notes, &[key]).await?, Some(vec![*round; 200]));
            }
        }
        assert!(database.0.engine.versions.space.statistics().reads > 0);
        drop(snapshots);
        assert_eq!((database.versions().versions, database.0.engine.versions.space.statistics().bytes_in_use), (0, 0));
        Ok(())
    })
    .expect("nothing fails");
}

#[test]
fn a_damaged_version_is_named() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let mut old = database.snapshot().await?;
        overwrite(&database, notes, 1).await?;
        let device = crate::io::device(executor, "disk")?;
        let (file, length) = executor.open(device, super::FILE, false).await?;
        let mut zeros = executor.frames(1, 4096)?.pop().expect("one was asked for");
        zeros.fill(0);
        assert!(length > 4096);
        let access = driver::Access::Asynchronous;
        let op = driver::Op::Write { file, offset: 0, length: 4096, buffer: zeros, durable: false, access };
        executor.perform(op).await.result?;
        let failed = old.get(notes, &[0]).await;
        assert!(matches!(failed, Err(Error::DamagedTemp { .. })), "{failed:?}");
        Ok(())
    })
    .expect("nothing else fails");
}

/// The first bytes of the undo space, which are replaced by `bytes` if there are any.
async fn undo_space(executor: &Executor, bytes: Option<driver::Frame>) -> Result<driver::Frame> {
    let device = crate::io::device(executor, "disk")?;
    let (file, _) = executor.open(device, super::FILE, false).await?;
    let (offset, access) = (0, driver::Access::Asynchronous);
    let op = match bytes {
        Some(buffer) => driver::Op::Write { file, offset, length: SPACE as u32, buffer, durable: false, access },
        None => {
            let buffer = executor.frames(1, SPACE)?.pop().expect("one was asked for");
            driver::Op::Read { file, offset, length: SPACE as u32, buffer, access }
        }
    };
    let completion = executor.perform(op).await;
    completion.result?;
    Ok(completion.buffer.expect("it comes back"))
}

const SPACE: usize = 32 << 10;

#[test]
fn a_version_of_an_earlier_extent_at_the_same_place_is_named() {
    on_a_machine(async |executor| {
        let (database, notes) = spilling(executor, 1 << 30).await?;
        let first = database.snapshot().await?;
        overwrite(&database, notes, 1).await?;
        executor.sleep_ns(SECOND_NS).await;
        let earlier = undo_space(executor, None).await?;
        drop(first);
        let mut second = database.snapshot().await?;
        overwrite(&database, notes, 3).await?;
        executor.sleep_ns(SECOND_NS).await;
        assert_eq!(second.get(notes, &[0]).await?, Some(vec![0; 200]), "what the first round left");
        undo_space(executor, Some(earlier)).await?;
        for key in 0..100_u8 {
            let read = second.get(notes, &[key]).await;
            let is_named = matches!(read, Err(Error::DamagedTemp { .. }));
            assert!(is_named || read == Ok(Some(vec![0; 200])), "{key}: {read:?}");
        }
        let failed = second.get(notes, &[1]).await;
        assert!(matches!(failed, Err(Error::DamagedTemp { .. })), "{failed:?}");
        Ok(())
    })
    .expect("nothing else fails");
}

#[test]
fn moments_are_forgotten_where_no_transaction_keeps_versions() {
    on_a_machine(async |executor| {
        let undo = super::UndoSettings { retention_ns: SECOND_NS, ..super::UndoSettings::default() };
        let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
        let direct = Organization::Direct { objects: 4, blocking_factor: 2, record_size: 16 };
        let objects = database.create_partition(PartitionSpec::new("objects", direct, Locking::None)).await?;
        for round in 0..300 {
            executor.sleep_ns(SECOND_NS / 50).await;
            database
                .transaction(async |tx| tx.modify_object(objects, 1, |object| object.fill(round as u8)).await)
                .await?;
            let count = database.0.engine.versions.versions.borrow().moments.count();
            assert!(count <= 60, "{count} moments after {round} transactions");
        }
        let age_ns = SECOND_NS / 2;
        database.as_of_age(age_ns).await.map(|_| ())
    })
    .expect("nothing fails");
}
