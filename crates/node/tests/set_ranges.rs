//! Records of sets that follow each other, at nodes: in the order of an index or all of them, as the engine shows them, with what the
//! transaction has changed itself, and without anything that comes or goes meanwhile.

use crate::ill_clients::Script;
use crate::things::{ServedThings, fields, stored};
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use engine::canary::{self, Canary};
use engine::set::FieldValue;
use engine::{Direction, Error, Result};
use entresol_node::message::{
    Answer, Request, SetAnswer, SetAsk, SetEntry, SetQuestion, SetRange, SetRecord, SetValue, SetWrite, Transaction,
};
use entresol_node::page_client::{PageClient, PageSnapshot, PageTransaction};
use entresol_node::page_server::ServerInternals;
use executor::Executor;
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Records = Vec<(Vec<u8>, Vec<u8>)>;

const GROUPS: u32 = 4;

async fn number(client: &PageClient, name: &str) -> Result<PartitionId> {
    client.partition(name).await.map(|found| found.id())
}

/// What a range of groups shows, as a node sees it.
async fn by_group(
    tx: &mut PageTransaction,
    offers: PartitionId,
    (from, to): (u32, u32),
    direction: Direction,
) -> Result<Records> {
    let by_group = tx.secondary(offers, "by_group").await?;
    let (mut found, from, to) = (Vec::new(), [FieldValue::U32(from)], [FieldValue::U32(to)]);
    let look = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        true
    };
    tx.range(offers, by_group, (Bound::Included(&from), Bound::Included(&to)), direction, look).await?;
    Ok(found)
}

/// The same of the model.
fn expected(model: &Model, (from, to): (u32, u32), direction: Direction) -> Records {
    let within = |value: &[u8]| (from..=to).contains(&fields(value).0);
    let mut records: Vec<_> = model.iter().filter(|(_, value)| within(value)).collect();
    records.sort_by_key(|(key, value)| (fields(value).0, fields(value).1, (*key).clone()));
    if direction == Direction::Backward {
        records.reverse();
    }
    records.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

async fn scanned(tx: &mut PageTransaction, set: PartitionId) -> Result<Model> {
    let mut found = Model::new();
    let look = |key: &[u8], value: &[u8]| {
        assert_eq!(found.insert(key.to_vec(), value.to_vec()), None, "it is shown once");
        true
    };
    tx.scan_set(set, look).await?;
    Ok(found)
}

fn drawn(random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let key = random.below(60).to_be_bytes()[6..].to_vec();
    let name = "x".repeat(random.below(40) as usize);
    (key, stored(random.below(u64::from(GROUPS)) as u32, random.below(9) as i64 - 4, &name))
}

/// Changes something, as the model has it, too.
async fn change(tx: &mut PageTransaction, offers: PartitionId, random: &mut Random, model: &mut Model) -> Result<()> {
    let (key, value) = drawn(random);
    match random.below(6) {
        0..3 => {
            tx.put(offers, &key, &value).await?;
            model.insert(key, value);
        }
        3 => match tx.insert(offers, &key, &value).await {
            Err(Error::Duplicate(_)) => assert!(model.contains_key(&key)),
            inserted => {
                inserted?;
                assert_eq!(model.insert(key, value), None);
            }
        },
        4 => assert_eq!(tx.delete(offers, &key).await?, model.remove(&key).is_some()),
        _ => {
            let group = random.below(u64::from(GROUPS)) as u32;
            match tx.set_field(offers, &key, 0, FieldValue::U32(group)).await {
                Err(Error::NoRecord(_)) => assert!(!model.contains_key(&key)),
                changed => {
                    changed?;
                    let value = model.get_mut(&key).expect("it is there");
                    let (_, weight, name) = fields(value);
                    *value = stored(group, weight, &name);
                }
            }
        }
    }
    Ok(())
}

/// One transaction, and what is there behind it.
async fn transact(client: &PageClient, random: &mut Random, before: &Model) -> Result<Model> {
    let offers = number(client, "offers").await?;
    let (mut tx, mut model) = (client.begin().await, before.clone());
    let mut savepoint = None;
    for _ in 0..random.between(1, 12) {
        match random.below(10) {
            0 => savepoint = Some((tx.savepoint(), model.clone())),
            1 => {
                if let Some((savepoint, then)) = savepoint.take() {
                    tx.rollback_to(savepoint).await?;
                    model = then;
                }
            }
            2 => assert_eq!(scanned(&mut tx, offers).await?, model),
            3..6 => {
                let from = random.below(u64::from(GROUPS)) as u32;
                let groups = (from, from + random.below(2) as u32);
                let direction = if random.chance(0.3) { Direction::Backward } else { Direction::Forward };
                assert_eq!(by_group(&mut tx, offers, groups, direction).await?, expected(&model, groups, direction));
            }
            _ => change(&mut tx, offers, random, &mut model).await?,
        }
    }
    if random.chance(0.3) {
        return Ok(before.clone());
    }
    tx.commit().await.map(|()| model)
}

#[test]
fn ranges_and_scans_of_sets_show_what_is_there_with_what_the_transaction_has_changed() {
    for seed in 0..6 {
        let mut served = ServedThings::new(seed, 2, None);
        let nodes = served.clients.clone();
        let model = served.run(async move |_| {
            let (mut random, mut model) = (Random::stream(seed, "offers"), Model::new());
            for _ in 0..60 {
                // Not both nodes at a time: the other one's locks are over.
                model = transact(&nodes[0], &mut random, &model).await?;
            }
            Ok::<_, Error>(model)
        });
        let model = model.expect("nothing fails");
        let (before, other) = (model.clone(), served.clients[1].clone());
        let task =
            served.nodes[1].spawn(async move { transact(&other, &mut Random::stream(seed, "2"), &before).await });
        let model = served.cluster.run(task).expect("they go on").expect("nothing fails");
        assert!(!model.is_empty());
        served.open(async |database| {
            let (offers, mut left) = (database.partition("offers")?, Model::new());
            let tx = database.begin().await?;
            let look = |key: &[u8], value: &[u8]| {
                left.insert(key.to_vec(), value.to_vec());
                true
            };
            tx.scan_set(offers, look).await?;
            tx.rollback().await?;
            assert_eq!(left, model, "seed {seed}");
            Ok(())
        });
    }
}

/// More than a portion has, and records of which one is as much as that.
#[test]
fn many_records_and_large_ones_come_in_portions() {
    let mut served = ServedThings::new(4, 1, None);
    let done = served.run(async |client| {
        let (stock, offers) = (number(&client, "stock").await?, number(&client, "offers").await?);
        let (mut model, mut large) = (Model::new(), Model::new());
        for part in 0..4_u32 {
            let mut tx = client.begin().await;
            for record in 0..700_u32 {
                let key = (part * 700 + record).to_be_bytes().to_vec();
                let value = stored(record % 3, 7, "one of many");
                tx.insert(offers, &key, &value).await?;
                model.insert(key, value);
            }
            for record in 0..3_u32 {
                let (key, value) = ((part * 3 + record).to_be_bytes().to_vec(), vec![part as u8; 200 << 10]);
                tx.insert(stock, &key, &value).await?;
                large.insert(key, value);
            }
            tx.commit().await?;
        }
        let mut tx = client.begin().await;
        assert!(scanned(&mut tx, offers).await? == model);
        assert!(scanned(&mut tx, stock).await? == large);
        assert!(
            by_group(&mut tx, offers, (1, 2), Direction::Forward).await?
                == expected(&model, (1, 2), Direction::Forward)
        );
        let mut snapshot = client.snapshot().await?;
        for (set, expected) in [(offers, &model), (stock, &large)] {
            let mut found = Model::new();
            let look = |key: &[u8], value: &[u8]| found.insert(key.to_vec(), value.to_vec()).is_none();
            snapshot.scan_set(set, look).await?;
            assert!(found == *expected);
        }
        let (mut seen, everything) = (0, (Bound::Unbounded, Bound::Unbounded));
        let look = |_: &[u8], _: &[u8]| {
            seen += 1;
            true
        };
        snapshot.range_of_set(offers, 1, everything, Direction::Forward, look).await?;
        assert_eq!(seen, model.len());
        let (mut count, by_name) = (0, tx.secondary(offers, "by_name").await?);
        let look = |_: &[u8], _: &[u8]| {
            count += 1;
            count < 5
        };
        tx.range(offers, by_name, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, look).await?;
        assert_eq!(count, 5);
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
}

/// Adds a record to a group with the number of those that are there as its weight.
async fn enlarge(client: &PageClient, random: &mut Random, executor: &Executor, scans: bool) -> Result<()> {
    let offers = number(client, "offers").await?;
    let mut tx = client.begin().await;
    let group = random.below(2) as u32;
    let count = if scans {
        scanned(&mut tx, offers).await?.values().filter(|value| fields(value).0 == group).count()
    } else {
        by_group(&mut tx, offers, (group, group), Direction::Forward).await?.len()
    };
    executor.sleep_ns(random.below(200 * MICROSECOND_NS)).await;
    tx.insert(offers, &random.word().to_be_bytes(), &stored(group, count as i64, "")).await?;
    tx.commit().await
}

/// The weights of two groups after many transactions, and how many of these were victims.
fn enlarge_everywhere(seed: u64, scans: bool) -> (bool, u64) {
    let mut served = ServedThings::new(seed, 3, None);
    let mut tasks = Vec::new();
    for worker in 0..6 {
        let (executor, client) = (served.nodes[worker % 3].clone(), served.clients[worker % 3].clone());
        tasks.push(executor.clone().spawn(async move {
            let (mut random, mut victims) = (Random::stream(seed, &format!("worker {worker}")), 0);
            for _ in 0..8 {
                while let Err(error) = enlarge(&client, &mut random, &executor, scans).await {
                    assert_eq!(error, Error::Deadlock);
                    victims += 1;
                    executor.sleep_ns(random.below(20 * MILLISECOND_NS)).await;
                }
            }
            victims
        }));
    }
    let victims = tasks.into_iter().map(|task| served.cluster.run(task).expect("they go on")).sum();
    assert_eq!(served.page_server.counts().refused_commits, 0);
    assert_eq!(served.page_server.protocol().check(), Ok(()));
    let is_counted = served.open(async |database| {
        let mut groups = [Vec::new(), Vec::new()];
        let tx = database.begin().await?;
        let look = |_: &[u8], value: &[u8]| {
            groups[fields(value).0 as usize].push(fields(value).1);
            true
        };
        tx.scan_set(database.partition("offers")?, look).await?;
        tx.rollback().await?;
        groups.iter_mut().for_each(|group| group.sort());
        Ok(groups.iter().all(|group| group.iter().copied().eq(0..group.len() as i64)))
    });
    (is_counted, victims)
}

#[test]
fn nothing_comes_to_be_where_another_transaction_has_read() {
    let mut all = 0;
    for seed in 0..4 {
        for scans in [false, true] {
            let (is_counted, victims) = enlarge_everywhere(seed, scans);
            assert!(is_counted, "seed {seed} {scans}");
            all += victims;
        }
    }
    assert!(all > 10, "deadlocks of ranges: {all}");
    canary::plant(Some(Canary::UnlockedSetRange));
    let found = (0..4).any(|seed| !enlarge_everywhere(seed, seed % 2 == 0).0);
    canary::plant(None);
    assert!(found, "two count the same records");
}

/// Adds records, each with the number of those that are there, and sees them in their order.
async fn arrive(client: &PageClient, random: &mut Random, executor: &Executor) -> Result<bool> {
    let arrivals = number(client, "arrivals").await?;
    let mut tx = client.begin().await;
    let (mut before, mut last) = (0, None);
    let look = |position, _: &[u8]| {
        assert!(last.replace(position) < Some(position), "in the order of their numbers");
        before += 1_u64;
        true
    };
    tx.scan_appended(arrivals, look).await?;
    executor.sleep_ns(random.below(200 * MICROSECOND_NS)).await;
    let count = random.between(1, 3);
    let mut own = Vec::new();
    for record in 0..count {
        own.push(tx.append(arrivals, &(before + record).to_le_bytes()).await?);
    }
    let savepoint = tx.savepoint();
    tx.append(arrivals, b"nothing").await?;
    tx.rollback_to(savepoint).await?;
    let mut seen = Vec::new();
    let look = |position, record: &[u8]| {
        seen.push((position, u64::from_le_bytes(record.try_into().expect("eight bytes"))));
        true
    };
    tx.scan_appended(arrivals, look).await?;
    let numbers = seen.iter().map(|(_, record)| *record);
    assert!(numbers.eq(0..before + count), "{seen:?}");
    let found: Vec<_> = seen[before as usize..].iter().map(|(position, _)| *position).collect();
    assert_eq!(found, own);
    if random.chance(0.3) {
        return Ok(false);
    }
    tx.commit().await.map(|()| true)
}

#[test]
fn records_that_nodes_add_have_numbers_of_their_own_and_are_seen_whole() {
    for seed in 0..4 {
        let mut served = ServedThings::new(seed, 3, None);
        let mut tasks = Vec::new();
        for worker in 0..6 {
            let (executor, client) = (served.nodes[worker % 3].clone(), served.clients[worker % 3].clone());
            tasks.push(executor.clone().spawn(async move {
                let (mut random, mut committed) = (Random::stream(seed, &format!("worker {worker}")), 0);
                for _ in 0..8 {
                    committed += loop {
                        match arrive(&client, &mut random, &executor).await {
                            Ok(is_committed) => break u64::from(is_committed),
                            Err(error) => assert_eq!(error, Error::Deadlock),
                        }
                        executor.sleep_ns(random.below(20 * MILLISECOND_NS)).await;
                    };
                }
                committed
            }));
        }
        let committed: u64 = tasks.into_iter().map(|task| served.cluster.run(task).expect("they go on")).sum();
        assert!(committed > 10 && served.page_server.counts().refused_commits == 0);
        assert_eq!(served.page_server.protocol().check(), Ok(()));
        served.open(async |database| {
            let arrivals = database.partition("arrivals")?;
            let (mut tx, mut expected) = (database.begin().await?, 0);
            let look = |_, record: &[u8]| {
                assert_eq!(u64::from_le_bytes(record.try_into().expect("eight bytes")), expected);
                expected += 1;
                true
            };
            tx.scan_appended(arrivals, look).await?;
            assert!(expected >= committed);
            // The engine goes on with numbers of its own.
            tx.append(arrivals, b"of the engine").await?;
            tx.commit().await
        });
    }
}

/// A node may add records under the numbers that it was given for that transaction, and do nothing else with a set that numbers them.
#[test]
fn records_come_under_no_other_numbers_than_were_given() {
    let mut served = ServedThings::new(6, 1, None);
    let machine = served.nodes[0].clone();
    let (at, own) = (served.machines.address(0), served.machines.address(1));
    let arrivals = served.run(async |client| number(&client, "arrivals").await).expect("it is there");
    let task = machine.clone().spawn(async move {
        machine.sleep_ns(3 * SECOND_NS).await;
        let mut script = Script::join(&machine, at, own).await;
        let ask = |transaction, partition, ask| {
            let transaction = Transaction(transaction);
            Request::Set(SetQuestion { transaction, number: 1, partition, ask })
        };
        let said = script.ask(ask(1, arrivals.0, SetAsk::Arrival)).await;
        let transaction = Transaction(1);
        assert_eq!(said, Answer::Set { transaction, number: 1, said: SetAnswer::Number(0) });
        let refused = script.ask(ask(1, 0, SetAsk::Arrival)).await;
        assert!(matches!(refused, Answer::Set { said: SetAnswer::Failed { is_denied: false, .. }, .. }), "{refused:?}");
        let write = |key: &[u8], value: Option<&[u8]>| {
            let value = value.map(|value| SetValue(value.to_vec()));
            SetWrite { partition: arrivals.0, key: key.to_vec(), value }
        };
        let given = 0_u64.to_be_bytes();
        // Of another transaction, of a number that was not given out, of none, and a deletion.
        let wrong = [
            (2, write(&given, Some(b"record"))),
            (3, write(&(1_u64 << 61).to_be_bytes(), Some(b"record"))),
            (4, write(b"key", Some(b"record"))),
            (1, write(&given, None)),
        ];
        for (transaction, write) in wrong {
            let transaction = Transaction(transaction);
            let record = SetRecord { partition: arrivals.0, key: write.key.clone(), transaction, writes: true };
            assert!(matches!(script.ask(Request::SetRecord(record)).await, Answer::SetRecord { value: None, .. }));
            let commit = Request::Commit {
                transaction,
                others: Vec::new(),
                keeps: false,
                records: Vec::new(),
                pages: Vec::new(),
                redone: Vec::new(),
                sets: vec![write],
            };
            let said = script.ask(commit).await;
            assert!(matches!(&said, Answer::NotCommitted { reason, .. } if reason.contains("add")), "{said:?}");
        }
        script
    });
    let _script = served.cluster.run(task).expect("they go on");
    served.open(async |database| {
        let arrivals = database.partition("arrivals")?;
        assert_eq!(database.set_records(arrivals), Some(0));
        Ok(())
    });
}

/// What a snapshot of a node shows of sets, with what was there when it was begun.
async fn look_back(client: &PageClient, snapshot: &mut PageSnapshot, then: &(Model, Records)) -> Result<()> {
    let (model, arrived) = then;
    let (offers, arrivals) = (number(client, "offers").await?, number(client, "arrivals").await?);
    let mut found = Model::new();
    let look = |key: &[u8], value: &[u8]| {
        assert_eq!(found.insert(key.to_vec(), value.to_vec()), None, "it is shown once");
        true
    };
    snapshot.scan_set(offers, look).await?;
    assert_eq!(found, *model);
    for direction in [Direction::Forward, Direction::Backward] {
        let (mut ranged, from, to) = (Vec::new(), [FieldValue::U32(1)], [FieldValue::U32(2)]);
        let look = |key: &[u8], value: &[u8]| {
            ranged.push((key.to_vec(), value.to_vec()));
            true
        };
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        snapshot.range_of_set(offers, 1, bounds, direction, look).await?;
        assert_eq!(ranged, expected(model, (1, 2), direction));
    }
    for key in model.keys().take(3).cloned().chain([b"none".to_vec()]) {
        assert_eq!(snapshot.get(offers, &key).await?, model.get(&key).cloned());
    }
    let mut numbered = Vec::new();
    let look = |_, record: &[u8]| {
        numbered.push(record.to_vec());
        true
    };
    snapshot.scan_appended(arrivals, look).await?;
    assert!(numbered.iter().eq(arrived.iter().map(|(_, record)| record)), "{numbered:?}");
    Ok(())
}

fn snapshots_see_their_moments(seed: u64) {
    let mut served = ServedThings::new(seed, 2, None);
    let nodes = served.clients.clone();
    let done = served.run(async move |_| {
        let mut random = Random::stream(seed, "snapshots");
        let (mut state, mut open): ((Model, Records), Vec<_>) = Default::default();
        for _ in 0..50 {
            let which = random.below(2) as usize;
            if random.chance(0.3) {
                open.push((which, nodes[which].snapshot().await?, state.clone()));
            }
            state.0 = transact(&nodes[0], &mut random, &state.0).await?;
            if random.chance(0.5) {
                let mut tx = nodes[0].begin().await;
                let arrivals = number(&nodes[0], "arrivals").await?;
                let record = vec![random.word() as u8; random.below(300) as usize];
                tx.append(arrivals, &record).await?;
                tx.commit().await?;
                state.1.push((Vec::new(), record));
            }
            if open.len() > 3 {
                let (which, mut snapshot, then) = open.swap_remove(random.below(open.len() as u64) as usize);
                look_back(&nodes[which], &mut snapshot, &then).await?;
            }
        }
        for (which, mut snapshot, then) in open {
            look_back(&nodes[which], &mut snapshot, &then).await?;
        }
        Ok::<_, Error>(())
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn a_snapshot_shows_sets_as_they_were() {
    (0..4).for_each(snapshots_see_their_moments);
    canary::plant(Some(Canary::PresentSetForMoment));
    let found = std::panic::catch_unwind(|| snapshots_see_their_moments(0));
    canary::plant(None);
    assert!(found.is_err(), "it shows what was committed since");
}

/// Transfers between a set and a b-tree: a snapshot sees both sides of each, or none.
#[test]
fn a_snapshot_sees_pages_and_sets_of_one_moment() {
    let mut served = ServedThings::new(8, 3, None);
    let mut tasks = Vec::new();
    for node in 0..3 {
        let (executor, client) = (served.nodes[node].clone(), served.clients[node].clone());
        tasks.push(executor.clone().spawn(async move {
            let mut random = Random::stream(8, &format!("node {node}"));
            let (stock, notes) = (number(&client, "stock").await?, number(&client, "notes").await?);
            let count = |value: Option<Vec<u8>>| {
                value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")))
            };
            for _ in 0..40 {
                if node == 0 {
                    let mut snapshot = client.snapshot().await?;
                    let mut sum = 0_u64;
                    for key in 0..4_u64 {
                        sum = sum.wrapping_add(count(snapshot.get(stock, &key.to_be_bytes()).await?));
                        sum = sum.wrapping_add(count(snapshot.get(notes, &key.to_be_bytes()).await?));
                    }
                    assert_eq!(sum, 0, "a half transaction");
                    continue;
                }
                let (from, to) = (random.below(4).to_be_bytes(), random.below(4).to_be_bytes());
                loop {
                    let mut tx = client.begin().await;
                    let moved = async {
                        let old = count(tx.get_for_update(stock, &from).await?);
                        tx.put(stock, &from, &old.wrapping_sub(1).to_le_bytes()).await?;
                        let old = count(tx.get_for_update(notes, &to).await?);
                        tx.put(notes, &to, &old.wrapping_add(1).to_le_bytes()).await?;
                        tx.commit().await
                    };
                    match moved.await {
                        Err(Error::Deadlock) => executor.sleep_ns(random.below(3 * MILLISECOND_NS)).await,
                        moved => break moved?,
                    }
                }
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        assert_eq!(served.cluster.run(task).expect("they go on"), Ok(()));
    }
    assert!(served.page_server.counts().snapshots >= 40);
}

/// Locks of where entries are and will be are asked for by honest nodes alone; a commit without them does nothing.
#[test]
fn who_commits_entries_without_their_locks_commits_nothing() {
    let mut served = ServedThings::new(5, 1, None);
    let machine = served.nodes[0].clone();
    let (at, own) = (served.machines.address(0), served.machines.address(1));
    let offers = served.run(async |client| number(&client, "offers").await).expect("it is there");
    let task = machine.clone().spawn(async move {
        // Nodes of an earlier server are gone by then.
        machine.sleep_ns(3 * SECOND_NS).await;
        let mut script = Script::join(&machine, at, own).await;
        let (transaction, key) = (Transaction(1), b"key".to_vec());
        let question = |number, ask| Request::Set(SetQuestion { transaction, number, partition: offers.0, ask });
        let record = SetRecord { partition: offers.0, key: key.clone(), transaction, writes: true };
        assert!(matches!(script.ask(Request::SetRecord(record)).await, Answer::SetRecord { value: None, .. }));
        let odd = SetRange { index: 7, from: vec![9; 40], to: Some(SetValue(Vec::new())), behind: None };
        let said = script.ask(question(1, SetAsk::Range(odd))).await;
        assert!(matches!(said, Answer::Set { said: SetAnswer::Failed { is_denied: false, .. }, .. }), "{said:?}");
        let said = script.ask(question(2, SetAsk::Scan(u64::MAX))).await;
        assert!(matches!(&said, Answer::Set { number: 2, said: SetAnswer::Records { records, .. }, .. } if records.is_empty()), "{said:?}");
        let elsewhere = SetEntry { index: 0, of: b"elsewhere".to_vec() };
        let said = script.ask(question(3, SetAsk::Entries(vec![elsewhere]))).await;
        assert_eq!(said, Answer::Set { transaction, number: 3, said: SetAnswer::Granted });
        let commit = Request::Commit {
            transaction,
            others: Vec::new(),
            keeps: false,
            records: Vec::new(),
            pages: Vec::new(),
            redone: Vec::new(),
            sets: vec![SetWrite { partition: offers.0, key, value: Some(SetValue(stored(1, 2, "pen"))) }],
        };
        let said = script.ask(commit).await;
        assert!(matches!(&said, Answer::NotCommitted { reason, .. } if reason.contains("entry")), "{said:?}");
        script
    });
    let _script = served.cluster.run(task).expect("they go on");
    let found = served.run(async move |client| {
        let mut tx = client.begin().await;
        scanned(&mut tx, offers).await
    });
    assert_eq!(found, Ok(Model::new()));
}
