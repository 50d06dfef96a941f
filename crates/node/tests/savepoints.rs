//! Savepoints at nodes, against a model that keeps copies of everything: nodes write records of the same pages, each its own ones, go back to
//! savepoints in any order, and see what the model has; so does who opens the database afterwards.

use crate::things::{ServedThings, fields, stored};
use base::time::MILLISECOND_NS;
use base::{PartitionId, Random};
use engine::canary::{self, Canary};
use engine::{Direction, Error, Result};
use entresol_node::algorithm::ALGORITHMS;
use entresol_node::page_client::{PageClient, PageSavepoint, PageTransaction};
use executor::Executor;
use std::collections::BTreeMap;
use std::ops::Bound;

const NODES: u64 = 2;
const KEYS: u64 = 24;
const CELLS: u64 = 12;

/// What a node has written.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    notes: BTreeMap<Vec<u8>, Vec<u8>>,
    things: BTreeMap<Vec<u8>, Vec<u8>>,
    cells: BTreeMap<u64, u64>,
    history: Vec<Vec<u8>>,
    stock: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Places {
    notes: PartitionId,
    things: PartitionId,
    cells: PartitionId,
    history: PartitionId,
    stock: PartitionId,
    by_group: usize,
}

impl Places {
    async fn find(client: &PageClient) -> Result<Places> {
        let number = async |name| client.partition(name).await.map(|found| found.id());
        let (notes, things) = (number("notes").await?, number("things").await?);
        let (cells, history, stock) = (number("cells").await?, number("history").await?, number("stock").await?);
        let by_group = client.begin().await.secondary(things, "by_group").await?;
        Ok(Places { notes, things, cells, history, stock, by_group })
    }
}

/// A node's keys are among the other's.
fn key(random: &mut Random, node: u64) -> Vec<u8> {
    (random.below(KEYS) * NODES + node).to_be_bytes().to_vec()
}

struct Writer {
    node: u64,
    executor: Executor,
    places: Places,
    random: Random,
}

impl Writer {
    async fn change(&mut self, tx: &mut PageTransaction, model: &mut Model) -> Result<()> {
        let (random, places) = (&mut self.random, self.places);
        match random.below(11) {
            0..3 => {
                let (key, length) = (key(random, self.node), random.below(60));
                let length = if random.chance(0.2) { random.between(400, 3_000) } else { length };
                let value = vec![random.word() as u8; length as usize];
                tx.put(places.notes, &key, &value).await?;
                model.notes.insert(key, value);
            }
            3 => {
                let key = key(random, self.node);
                assert_eq!(tx.delete(places.notes, &key).await?, model.notes.remove(&key).is_some());
            }
            4 => {
                let key = key(random, self.node);
                let name = format!("{} of node {}", random.word(), self.node);
                let value = stored(random.below(4) as u32, random.below(9) as i64, &name);
                tx.put(places.things, &key, &value).await?;
                model.things.insert(key, value);
            }
            5 => {
                let key = key(random, self.node);
                assert_eq!(tx.delete(places.things, &key).await?, model.things.remove(&key).is_some());
            }
            6 => {
                let record = random.word().to_be_bytes().into_iter().chain([self.node as u8]).collect::<Vec<u8>>();
                tx.append(places.history, &record).await?;
                model.history.push(record);
            }
            8..10 => {
                let (key, value) = (key(random, self.node), vec![random.word() as u8; random.below(90) as usize]);
                tx.put(places.stock, &key, &value).await?;
                model.stock.insert(key, value);
            }
            10 => {
                let key = key(random, self.node);
                assert_eq!(tx.delete(places.stock, &key).await?, model.stock.remove(&key).is_some());
            }
            _ => {
                let (number, value) = (random.below(CELLS) * NODES + self.node, random.word());
                let change = |cell: &mut [u8]| cell.copy_from_slice(&value.to_le_bytes());
                tx.modify_object(places.cells, number, change).await?;
                model.cells.insert(number, value);
            }
        }
        Ok(())
    }

    /// What the transaction sees is what the model has.
    async fn compare(&mut self, tx: &mut PageTransaction, model: &Model) -> Result<()> {
        let key = key(&mut self.random, self.node);
        assert_eq!(tx.get(self.places.notes, &key).await?.as_ref(), model.notes.get(&key), "node {}", self.node);
        assert_eq!(tx.get(self.places.things, &key).await?.as_ref(), model.things.get(&key));
        assert_eq!(tx.get(self.places.stock, &key).await?.as_ref(), model.stock.get(&key));
        let number = self.random.below(CELLS) * NODES + self.node;
        let found = tx.read_object(self.places.cells, number, value).await?;
        assert_eq!(found, model.cells.get(&number).copied().unwrap_or_default(), "cell {number}");
        if self.random.chance(0.1) {
            let of_node = |key: &[u8]| u64::from(key[7]) % NODES == self.node;
            let mut found = BTreeMap::new();
            let look = |key: &[u8], value: &[u8]| {
                found.extend(of_node(key).then(|| (key.to_vec(), value.to_vec())));
                true
            };
            let all = (Bound::Unbounded, Bound::Unbounded);
            tx.range(self.places.things, self.places.by_group, all, Direction::Backward, look).await?;
            assert_eq!(found, model.things);
        }
        Ok(())
    }

    /// Runs a transaction. Returns whether it is committed, and how often it went back.
    async fn transact(&mut self, client: &PageClient, committed: &mut Model) -> Result<u64> {
        let mut tx = client.begin().await;
        let (mut model, mut went_back) = (committed.clone(), 0);
        let mut savepoints: Vec<(PageSavepoint, Model)> = Vec::new();
        for _ in 0..self.random.between(1, 30) {
            self.executor.sleep_ns(self.random.below(MILLISECOND_NS / 2)).await;
            match self.random.below(10) {
                0..2 => savepoints.push((tx.savepoint(), model.clone())),
                2..4 if !savepoints.is_empty() => {
                    let index = self.random.below(savepoints.len() as u64) as usize;
                    tx.rollback_to(savepoints[index].0).await?;
                    savepoints.truncate(index + 1);
                    model = savepoints[index].1.clone();
                    went_back += 1;
                    self.compare(&mut tx, &model).await?;
                }
                4 => self.compare(&mut tx, &model).await?,
                _ => self.change(&mut tx, &mut model).await?,
            }
        }
        if self.random.chance(0.8) {
            tx.commit().await?;
            *committed = model;
        }
        Ok(went_back)
    }
}

fn value(cell: &[u8]) -> u64 {
    u64::from_le_bytes(cell.try_into().expect("eight bytes"))
}

/// Has all nodes run transactions, and compares. Returns how often these went back, and how often locks fell.
fn run(seed: u64) -> (u64, u64) {
    let mut served = ServedThings::new(seed, NODES as u32, None);
    let mut tasks = Vec::new();
    for (node, (executor, client)) in served.nodes.iter().zip(&served.clients).enumerate() {
        let (executor, client, node) = (executor.clone(), client.clone(), node as u64);
        tasks.push(executor.clone().spawn(async move {
            let places = Places::find(&client).await.expect("they are there");
            let random = Random::stream(seed, &format!("savepoints of node {node}"));
            let mut writer = Writer { node, executor, places, random };
            let (mut model, mut went_back) = (Model::default(), 0);
            for _ in 0..40 {
                match writer.transact(&client, &mut model).await {
                    Ok(times) => went_back += times,
                    Err(Error::Deadlock) => {}
                    Err(error) => panic!("seed {seed}, node {node}: {error}"),
                }
            }
            (model, went_back)
        }));
    }
    let (mut all, mut went_back) = (Model::default(), 0);
    for task in tasks {
        let (model, times) = served.cluster.run(task).expect("they go on");
        all.notes.extend(model.notes);
        all.things.extend(model.things);
        all.cells.extend(model.cells);
        all.history.extend(model.history);
        all.stock.extend(model.stock);
        went_back += times;
    }
    all.history.sort();
    let falls = served.page_server.counts().falls;
    let found = served.open(async |database| {
        let number = |name| database.partition(name);
        let mut found = Model::default();
        let mut tx = database.begin().await?;
        let all = usize::MAX;
        found.notes.extend(tx.scan(number("notes")?, .., Direction::Forward).take(all).await?);
        found.things.extend(tx.scan(number("things")?, .., Direction::Forward).take(all).await?);
        for cell in 0..CELLS * NODES {
            let value = tx.read_object(number("cells")?, cell, value).await?;
            found.cells.extend((value != 0).then_some((cell, value)));
        }
        let look = |_, record: &[u8]| {
            found.history.push(record.to_vec());
            true
        };
        tx.scan_appended(number("history")?, look).await?;
        found.history.sort();
        let look = |key: &[u8], value: &[u8]| {
            found.stock.insert(key.to_vec(), value.to_vec());
            true
        };
        tx.scan_set(number("stock")?, look).await?;
        tx.commit().await.map(|()| found)
    });
    assert_eq!(found, all, "seed {seed}");
    (went_back, falls)
}

#[test]
fn a_transaction_goes_back_to_what_a_model_has() {
    let (mut times, mut falls) = (0, 0);
    for seed in 0..16 {
        let (went_back, fell) = run(seed);
        (times, falls) = (times + went_back, falls + fell);
    }
    assert!(times > 500 && falls > 10, "{times} times, with {falls} falls, by {} algorithms", ALGORITHMS.len());
    canary::plant(Some(Canary::IgnoredSavepoint));
    let planted = std::panic::catch_unwind(|| run(0));
    canary::plant(None);
    assert!(planted.is_err());
}

#[test]
fn a_savepoint_is_of_its_transaction_until_that_goes_back_behind_it() {
    let mut served = ServedThings::new(1, 1, None);
    let done = served.run(async |client| {
        let Places { notes, things, .. } = Places::find(&client).await?;
        let mut tx = client.begin().await;
        let (empty, same) = (tx.savepoint(), tx.savepoint());
        assert_eq!(empty, same, "nothing was done between them");
        tx.put(notes, b"a", b"1").await?;
        let first = tx.savepoint();
        tx.put(notes, b"a", b"2").await?;
        let second = tx.savepoint();
        // Often, and what is behind it is as if it had never been.
        for _ in 0..3 {
            tx.put(notes, b"a", b"3").await?;
            tx.rollback_to(second).await?;
            assert_eq!(tx.get(notes, b"a").await?.as_deref(), Some(&b"2"[..]));
        }
        tx.rollback_to(first).await?;
        assert_eq!(tx.get(notes, b"a").await?.as_deref(), Some(&b"1"[..]));
        tx.put(notes, b"a", b"4").await?;
        assert!(matches!(tx.rollback_to(second).await, Err(Error::Argument(_))));
        assert_eq!(tx.get(notes, b"a").await?.as_deref(), Some(&b"4"[..]), "nothing was done");
        let mut other = client.begin().await;
        assert!(matches!(other.rollback_to(empty).await, Err(Error::Argument(_))));
        drop(other);
        tx.rollback_to(empty).await?;
        assert_eq!(tx.get(notes, b"a").await?, None);
        tx.put(things, b"thing", &stored(1, 2, "pen")).await?;
        let pen = tx.savepoint();
        // It was not to have that name; what the call has done in vain is nothing to go back from.
        tx.put(things, b"other", &stored(1, 2, "pen")).await.expect_err("it is another one's");
        tx.delete(things, b"thing").await?;
        tx.put(things, b"other", &stored(1, 2, "pen")).await?;
        tx.rollback_to(pen).await?;
        let found = tx.get(things, b"thing").await?.expect("it is there again");
        assert_eq!(fields(&found), (1, 2, "pen".to_owned()));
        tx.commit().await?;
        // One that takes all back and commits has changed nothing, and leaves its pages to others.
        let mut tx = client.begin().await;
        let empty = tx.savepoint();
        tx.put(notes, b"b", &[7; 3_000]).await?;
        tx.rollback_to(empty).await?;
        tx.commit().await?;
        let mut tx = client.begin().await;
        assert_eq!(tx.get(notes, b"b").await?, None);
        tx.put(notes, b"b", b"1").await?;
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
    served.open(async |database| {
        let notes = database.partition("notes")?;
        let left = database.transaction(async |tx| tx.scan(notes, .., Direction::Forward).take(9).await).await?;
        assert_eq!(left, [(b"b".to_vec(), b"1".to_vec())]);
        Ok(())
    });
}

/// A change that was not waited for and is made in part: no savepoint helps.
#[test]
fn no_savepoint_helps_a_transaction_that_has_made_a_change_in_part() {
    let mut served = ServedThings::new(2, 1, None);
    let executor = served.nodes[0].clone();
    let done = served.run(async move |client| {
        let Places { notes, .. } = Places::find(&client).await?;
        for wait_ns in (0..).step_by(20_000) {
            let mut tx = client.begin().await;
            let empty = tx.savepoint();
            let put = executor.within(wait_ns, tx.put(notes, b"long", &[5; 3_000])).await;
            if put.is_some() {
                break;
            }
            match tx.rollback_to(empty).await {
                Ok(()) => assert_eq!(tx.get(notes, b"long").await?, None),
                Err(error) => assert_eq!(error, Error::Abandoned),
            }
        }
        Ok::<_, Error>(())
    });
    assert_eq!(done, Ok(()));
}

/// By then the server grants write locks, in nanoseconds.
const START_NS: u64 = 3_000 * MILLISECOND_NS;

/// Two records share their page, which falls to locks of them behind a savepoint.
#[test]
fn what_others_have_changed_beside_a_record_is_not_taken_back() {
    let records = ALGORITHMS.iter().position(|algorithm| algorithm.name() == "ps-aa").expect("it is one of them");
    let mut served = ServedThings::new(records as u64, 2, None);
    let value = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let set = |to: u64| move |bytes: &mut [u8]| bytes.copy_from_slice(&to.to_le_bytes());
    let (first, second) = (served.clients[0].clone(), served.clients[1].clone());
    let (at_first, at_second) = (served.nodes[0].clone(), served.nodes[1].clone());
    let going_back = served.nodes[0].spawn(async move {
        let Places { cells, .. } = Places::find(&first).await?;
        at_first.sleep_ns(START_NS).await;
        let mut tx = first.begin().await;
        let nothing = tx.savepoint();
        tx.modify_object(cells, 0, set(5)).await?;
        at_first.sleep_ns(200 * MILLISECOND_NS).await;
        let seen = tx.read_object(cells, 1, value).await?;
        tx.rollback_to(nothing).await?;
        let again = tx.read_object(cells, 1, value).await?;
        let own = tx.read_object(cells, 0, value).await?;
        tx.modify_object(cells, 1, set(again + 1)).await?;
        tx.commit().await?;
        Ok::<_, Error>((seen, again, own))
    });
    let changing = served.nodes[1].spawn(async move {
        let Places { cells, .. } = Places::find(&second).await?;
        at_second.sleep_ns(START_NS + 50 * MILLISECOND_NS).await;
        let mut tx = second.begin().await;
        tx.modify_object(cells, 1, set(7)).await?;
        tx.commit().await
    });
    assert_eq!(served.cluster.run(changing).expect("they go on"), Ok(()));
    assert_eq!(served.cluster.run(going_back).expect("they go on"), Ok((7, 7, 0)));
    assert!(served.page_server.counts().falls > 0);
    let found = served.open(async |database| {
        let cells = database.partition("cells")?;
        let mut tx = database.begin().await?;
        let found = (tx.read_object(cells, 0, value).await?, tx.read_object(cells, 1, value).await?);
        tx.commit().await.map(|()| found)
    });
    assert_eq!(found, (0, 8));
}
