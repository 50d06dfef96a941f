//! Records of a scan that are shown where they are, long values among them, and what is read one by one behind them.

use crate::ground::machine::run;
use base::time::MICROSECOND_NS;
use base::{PartitionId, Random};
use entresol_engine::{Database, Direction, Error, Isolation, PartitionSpec, Result, Settings, buffer};
use executor::{Executor, JoinHandle, Order, catch_panic};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

type Model = BTreeMap<[u8; 2], Vec<u8>>;

fn key(number: u64) -> [u8; 2] {
    (number as u16).to_be_bytes()
}

/// A bound among the keys below `keys`, or none.
fn bound(random: &mut Random, keys: u64) -> Bound<[u8; 2]> {
    match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random.below(keys))),
        _ => Bound::Excluded(key(random.below(keys))),
    }
}

fn expected(model: &Model, range: (Bound<[u8; 2]>, Bound<[u8; 2]>), direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_above = |key: &[u8; 2]| match range.0 {
        Bound::Included(lower) => *key >= lower,
        Bound::Excluded(lower) => *key > lower,
        Bound::Unbounded => true,
    };
    let is_below = |key: &[u8; 2]| match range.1 {
        Bound::Included(upper) => *key <= upper,
        Bound::Excluded(upper) => *key < upper,
        Bound::Unbounded => true,
    };
    let within = model.iter().filter(|(key, _)| is_above(key) && is_below(key));
    let mut records: Vec<_> = within.map(|(key, value)| (key.to_vec(), value.clone())).collect();
    if direction == Direction::Backward {
        records.reverse();
    }
    records
}

#[test]
fn looks_and_calls_for_the_next_record_share_the_way() {
    for (seed, isolation) in (1..5).flat_map(|seed| Isolation::ALL.map(|isolation| (seed, isolation))) {
        let outcome = run(&Media::new(), async |executor| {
            let buffer = buffer::Settings { frames: 256, page_size: 1024, ..buffer::Settings::default() };
            let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let (mut random, mut model) = (Random::stream(seed, "looks"), Model::new());
            let keys = 300;
            for _ in 0..30 {
                let mut tx = database.begin_at(isolation).await?;
                for _ in 0..random.below(40) {
                    let number = random.below(keys);
                    if random.chance(0.3) {
                        tx.delete(tree, &key(number)).await?;
                        model.remove(&key(number));
                    } else {
                        let length = if random.chance(0.1) { 3_000 } else { random.below(60) };
                        let value = vec![number as u8; length as usize];
                        tx.put(tree, &key(number), &value).await?;
                        model.insert(key(number), value);
                    }
                }
                for direction in [Direction::Forward, Direction::Backward] {
                    let range = (bound(&mut random, keys), bound(&mut random, keys));
                    let expected = expected(&model, range, direction);
                    let mut found = Vec::new();
                    let mut scan = tx.scan(tree, range, direction);
                    loop {
                        let mut more = random.below(20);
                        let mut shown = 0;
                        let note = |key: &[u8], value: &[u8]| {
                            found.push((key.to_vec(), value.to_vec()));
                            shown += 1;
                            more = more.saturating_sub(1);
                            more > 0
                        };
                        scan.look(note).await?;
                        let Some(record) = scan.next().await? else { break };
                        assert!(shown > 0, "what is left would have been shown");
                        found.push(record);
                    }
                    assert_eq!(found, expected, "{range:?} {direction:?} {isolation:?}, seed {seed}");
                }
                tx.commit().await?;
            }
            Ok::<_, Error>(())
        });
        outcome.expect("nothing fails");
    }
}

/// How long the machine's disk takes for a page of 1 KiB.
const DISK: &str = "[device.disk]\nmedium.service = \"100 us\"\n";

/// Commits that follow each other, each with all that there is from then on. Each counts under the keys of `COUNTED`, too.
struct Commits {
    database: Database,
    tree: PartitionId,
    models: RefCell<Vec<Model>>,
}

const COUNTED: [u64; 4] = [0, 333, 666, 999];

impl Commits {
    /// Changes some records at random in one transaction, and remembers what there is then. False if it was a deadlock's victim.
    async fn commit(&self, random: &mut Random) -> Result<bool> {
        let (mut tx, mut changes) = (self.database.begin().await?, BTreeMap::new());
        let number = COUNTED[random.below(COUNTED.len() as u64) as usize];
        let count = tx.get_for_update(self.tree, &key(number)).await?.expect("it is there")[0];
        for number in COUNTED {
            changes.insert(key(number), Some(vec![count.wrapping_add(1); 3]));
        }
        for _ in 0..random.below(30) {
            let number = random.below(1_000);
            if !COUNTED.contains(&number) {
                let length = if random.chance(0.1) { 3_000 } else { 1 + random.below(90) };
                changes.insert(key(number), (!random.chance(0.4)).then(|| vec![random.word() as u8; length as usize]));
            }
        }
        let mut order: Vec<_> = changes.iter().collect();
        order.sort_by_cached_key(|_| random.word());
        for (key, value) in order {
            let changed = match value {
                Some(value) => tx.put(self.tree, key, value).await,
                None => tx.delete(self.tree, key).await.map(|_| ()),
            };
            match changed {
                Err(Error::Deadlock) => return Ok(false),
                changed => changed?,
            }
        }
        // In the order of the commits: all of them change the same records.
        let mut model = self.models.borrow().last().expect("there is a first one").clone();
        for (key, value) in changes {
            match value {
                Some(value) => _ = model.insert(key, value),
                None => _ = model.remove(&key),
            }
        }
        self.models.borrow_mut().push(model);
        tx.commit().await?;
        Ok(true)
    }

    /// Reads a range twice in one transaction, which shows the same each time, and what there was at one moment.
    async fn read(&self, random: &mut Random, isolation: Isolation) -> Result<bool> {
        let mut tx = self.database.begin_at(isolation).await?;
        let (range, mut seen) = ((bound(random, 1_000), bound(random, 1_000)), Vec::new());
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Vec::new();
            let mut scan = tx.scan(self.tree, range, direction);
            loop {
                let mut more = 1 + random.below(50);
                let note = |key: &[u8], value: &[u8]| {
                    found.push((key.to_vec(), value.to_vec()));
                    more -= 1;
                    more > 0
                };
                let next = match scan.look(note).await {
                    Ok(()) => scan.next().await,
                    Err(error) => Err(error),
                };
                match next {
                    Err(Error::Deadlock) => return Ok(false),
                    next => match next? {
                        Some(record) => found.push(record),
                        None => break,
                    },
                }
            }
            if direction == Direction::Backward {
                found.reverse();
            }
            seen.push(found);
        }
        tx.commit().await?;
        assert_eq!(seen[0], seen[1], "{range:?} {isolation:?}");
        let is_of = |model: &Model| expected(model, range, Direction::Forward) == seen[0];
        assert!(
            self.models.borrow().iter().any(is_of),
            "{range:?} {isolation:?}: {} records of no moment",
            seen[0].len()
        );
        Ok(true)
    }
}

/// Others divide and merge the leaves, and hold locks, while a scan waits.
#[test]
fn what_a_scan_shows_is_of_one_moment_whatever_others_change_meanwhile() {
    for (seed, isolation) in (1..4).flat_map(|seed| [(seed, Isolation::Serializable), (seed, Isolation::Snapshot)]) {
        let driver =
            VirtualDriver::new(Hardware::parse(DISK, "test").expect("a description"), Options::default(), Media::new());
        let executor = &Executor::new(Box::new(driver), Order::FirstInFirstOut);
        let work = async {
            let buffer = buffer::Settings { frames: 96, page_size: 1024, ..buffer::Settings::default() };
            let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            let model: Model = (0..1_000).step_by(3).map(|number| (key(number), vec![0; 30])).collect();
            for (key, value) in &model {
                database.transaction(async |tx| tx.put(tree, key, value).await).await?;
            }
            let commits = Rc::new(Commits { database, tree, models: RefCell::new(vec![model]) });
            let writers: Vec<_> = (0..3_u64)
                .map(|writer| {
                    let (commits, mut random) = (Rc::clone(&commits), Random::stream(seed * 100 + writer, "writers"));
                    executor.spawn(async move {
                        let mut done = 0;
                        for _ in 0..40 {
                            done += u64::from(commits.commit(&mut random).await?);
                        }
                        Ok::<_, Error>(done)
                    })
                })
                .collect();
            let (mut random, mut read) = (Random::stream(seed, "reader"), 0);
            while !writers.iter().all(JoinHandle::is_finished) {
                read += u64::from(commits.read(&mut random, isolation).await?);
                executor.sleep_ns(MICROSECOND_NS).await;
            }
            let mut done = 0;
            for writer in writers {
                done += writer.join().await?;
            }
            assert!(read > 5 && done > 20, "{read} reads, {done} commits");
            Ok::<_, Error>(())
        };
        let outcome = executor.run(work);
        executor.stop();
        outcome.expect("the machine goes on").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_scan_goes_on_behind_the_record_whose_look_has_panicked() {
    let outcome = run(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let mut tx = database.begin().await?;
        for number in 0..100 {
            tx.put(tree, &key(number), &[1; 10]).await?;
        }
        for panicking in [0, 1, 3, 4, 5, 19, 20, 50, 99] {
            let mut shown = Vec::new();
            let mut scan = tx.scan(tree, .., Direction::Forward);
            let note = |key: &[u8], _: &[u8]| {
                shown.push(key.to_vec());
                assert!(shown.len() <= panicking, "enough");
                true
            };
            catch_panic(scan.look(note)).await.expect_err("it panics").downcast::<&str>().expect("as it said");
            scan.look(|key, _| {
                shown.push(key.to_vec());
                true
            })
            .await?;
            assert_eq!(shown, (0..100).map(|number| key(number).to_vec()).collect::<Vec<_>>(), "at {panicking}");
        }
        tx.commit().await
    });
    outcome.expect("nothing fails");
}
