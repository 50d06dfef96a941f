//! Records of memory-resident sets at nodes: read and changed by their keys, with locks of their own, and committed together with pages.

use crate::ill_clients::Script;
use crate::things::{ServedThings, stored};
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use base::{PartitionId, Random};
use engine::canary::{self, Canary};
use engine::set::FieldValue;
use engine::{Direction, Error, Result};
use entresol_node::message::{Answer, LIST_MAX, Request, SetRecord, SetValue, SetWrite, Transaction};
use entresol_node::page_client::PageClient;
use executor::Executor;
use std::collections::BTreeMap;

const KEYS: u64 = 6;
const NODES: u32 = 3;
const TRANSACTIONS: u64 = 40;

async fn number(client: &PageClient, name: &str) -> Result<PartitionId> {
    client.partition(name).await.map(|found| found.id())
}

fn count(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes")))
}

/// Moves something from one record to another, of the set or of a b-tree.
async fn transfer(client: &PageClient, random: &mut Random, executor: &Executor) -> Result<()> {
    let (stock, notes) = (number(client, "stock").await?, number(client, "notes").await?);
    let mut tx = client.begin().await;
    for amount in [u64::MAX, 1] {
        let table = if random.chance(0.7) { stock } else { notes };
        let key = random.below(KEYS).to_be_bytes();
        let found =
            if random.chance(0.5) { tx.get(table, &key).await? } else { tx.get_for_update(table, &key).await? };
        executor.sleep_ns(random.below(200 * MICROSECOND_NS)).await;
        let sum = count(found).wrapping_add(amount);
        tx.put(table, &key, &sum.to_le_bytes()).await?;
        assert_eq!(count(tx.get(table, &key).await?), sum, "it sees what it has written");
    }
    tx.commit().await
}

/// The sum of all after many transfers, and how many of these were victims.
fn transfer_everywhere(seed: u64) -> (u64, u64) {
    let mut served = ServedThings::new(seed, NODES, None);
    let mut tasks = Vec::new();
    for worker in 0..2 * NODES as usize {
        let which = worker % NODES as usize;
        let (executor, client) = (served.nodes[which].clone(), served.clients[which].clone());
        tasks.push(executor.clone().spawn(async move {
            let mut random = Random::stream(seed, &format!("worker {worker}"));
            let mut victims = 0;
            for _ in 0..TRANSACTIONS {
                while let Err(error) = transfer(&client, &mut random, &executor).await {
                    assert_eq!(error, Error::Deadlock);
                    victims += 1;
                    executor.sleep_ns(random.below(3 * MILLISECOND_NS)).await;
                }
            }
            victims
        }));
    }
    let victims = tasks.into_iter().map(|task| served.cluster.run(task).expect("they go on")).sum();
    assert_eq!(served.page_server.counts().refused_commits, 0);
    let sum = served.open(async |database| {
        let (stock, notes) = (database.partition("stock")?, database.partition("notes")?);
        let (mut tx, mut sum) = (database.begin().await?, 0_u64);
        for table in [stock, notes] {
            for key in 0..KEYS {
                sum = sum.wrapping_add(count(tx.get(table, &key.to_be_bytes()).await?));
            }
        }
        tx.commit().await.map(|()| sum)
    });
    (sum, victims)
}

#[test]
fn nothing_is_lost_between_nodes_that_change_the_same_records() {
    let mut all = 0;
    for seed in 0..8 {
        let (sum, victims) = transfer_everywhere(seed);
        assert_eq!(sum, 0, "seed {seed}");
        all += victims;
    }
    assert!(all > 10, "deadlocks of sets and pages: {all}");
    canary::plant(Some(Canary::UnlockedSetRead));
    let found =
        (0..8).any(|seed| std::panic::catch_unwind(|| transfer_everywhere(seed)).map_or(true, |(sum, _)| sum != 0));
    canary::plant(None);
    assert!(found, "two change what both have read");
}

#[test]
fn records_of_sets_are_read_and_changed_as_those_of_trees() {
    let mut served = ServedThings::new(2, 2, None);
    let other = served.clients[1].clone();
    let done = served.run(async move |client| {
        let (stock, prices) = (number(&client, "stock").await?, number(&client, "prices").await?);
        let mut tx = client.begin().await;
        assert_eq!(tx.get(stock, b"pen").await?, None);
        assert!(!tx.delete(stock, b"pen").await?);
        tx.insert(stock, b"pen", &7_u64.to_le_bytes()).await?;
        assert_eq!(tx.insert(stock, b"pen", b"").await, Err(Error::Duplicate("stock".into())));
        assert_eq!(tx.add(stock, b"pen", 0..8, -2).await?, 5);
        assert!(matches!(tx.add(stock, b"pen", 4..12, 1).await, Err(Error::TooLarge { .. })));
        assert_eq!(tx.modify(stock, b"ink", |_| ()).await, Err(Error::NoRecord("stock".into())));
        let savepoint = tx.savepoint();
        assert!(tx.delete(stock, b"pen").await?);
        tx.put(stock, b"ink", b"blue").await?;
        tx.rollback_to(savepoint).await?;
        assert_eq!((count(tx.get(stock, b"pen").await?), tx.get(stock, b"ink").await?), (5, None));
        // With a type.
        let contents = [FieldValue::U32(3), FieldValue::I64(-5), FieldValue::Text("pen")];
        tx.insert_record(prices, b"pen", &contents).await?;
        let weight = tx.field(prices, "weight").await?;
        assert_eq!(tx.add_to_field(prices, b"pen", weight, 12).await?, FieldValue::I64(7));
        tx.set_field(prices, b"pen", 0, FieldValue::U32(4)).await?;
        let mut buffer = Vec::new();
        assert_eq!(tx.get_field(prices, b"pen", weight, &mut buffer).await?, Some(FieldValue::I64(7)));
        let odd = tx.put(prices, b"ink", b"no record of the type").await;
        assert!(matches!(odd, Err(Error::Field { .. })), "{odd:?}");
        let long = tx.put(stock, &[0; 70_000], b"").await;
        assert!(matches!(long, Err(Error::TooLarge { .. })), "{long:?}");
        let large = tx.put(stock, b"large", &vec![0; 256 << 10]).await;
        assert!(matches!(large, Err(Error::TooLarge { .. })), "{large:?}");
        tx.commit().await?;
        let mut tx = other.begin().await;
        assert_eq!(count(tx.get(stock, b"pen").await?), 5);
        assert_eq!(tx.get(prices, b"pen").await?, Some(stored(4, 7, "pen")));
        assert!(tx.delete(stock, b"pen").await?);
        drop(tx);
        let mut tx = other.begin().await;
        assert_eq!(count(tx.get(stock, b"pen").await?), 5, "it was rolled back");
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
    served.open(async |database| {
        let (stock, mut left) = (database.partition("stock")?, BTreeMap::new());
        let tx = database.begin().await?;
        let look = |key: &[u8], value: &[u8]| {
            left.insert(key.to_vec(), value.to_vec());
            true
        };
        tx.scan_set(stock, look).await?;
        tx.rollback().await?;
        assert_eq!(left, BTreeMap::from([(b"pen".to_vec(), 5_u64.to_le_bytes().to_vec())]));
        Ok(())
    });
}

#[test]
fn what_nodes_cannot_do_with_sets_is_refused_in_words() {
    let mut served = ServedThings::new(3, 1, None);
    let done = served.run(async |client| {
        let stock = number(&client, "stock").await?;
        let arrivals = number(&client, "arrivals").await?;
        let mut tx = client.begin().await;
        let refused = |found: Error, words: &str| {
            assert!(matches!(found, Error::WrongOrganization { .. }), "{found:?}");
            assert!(found.to_string().contains(words), "{found}");
        };
        let things = number(&client, "things").await?;
        refused(tx.scan_set(things, |_, _| true).await.expect_err("a b-tree"), "range of keys");
        refused(tx.get(arrivals, &7_u64.to_be_bytes()).await.expect_err("numbered"), "have no keys");
        refused(tx.put(arrivals, &7_u64.to_be_bytes(), b"").await.expect_err("numbered"), "have no keys");
        refused(tx.append(stock, b"record").await.expect_err("keyed"), "have keys");
        refused(tx.scan_appended(stock, |_, _| true).await.expect_err("keyed"), "have keys");
        refused(tx.scan_range(stock, .., Direction::Forward).next().await.expect_err("a range"), "by their keys");
        tx.put(stock, b"key", b"value").await?;
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
}

/// Nothing of such a commit is done, and the server goes on.
#[test]
fn who_commits_records_without_their_locks_commits_nothing() {
    let mut served = ServedThings::new(4, 1, None);
    let machine = served.nodes[0].clone();
    let (at, own) = (served.machines.address(0), served.machines.address(1));
    let stock = served.run(async |client| number(&client, "stock").await).expect("it is there");
    let task = machine.clone().spawn(async move {
        // Nodes of an earlier server are gone by then.
        machine.sleep_ns(3 * SECOND_NS).await;
        let mut script = Script::join(&machine, at, own).await;
        let transaction = Transaction(1);
        let wanted = |key: &[u8], writes| SetRecord { partition: stock.0, key: key.to_vec(), transaction, writes };
        let came = script.ask(Request::SetRecord(wanted(b"read", false))).await;
        assert_eq!(came, Answer::SetRecord { record: wanted(b"read", false), value: None });
        let came = script.ask(Request::SetRecord(wanted(b"written", true))).await;
        assert_eq!(came, Answer::SetRecord { record: wanted(b"written", true), value: None });
        let other = SetRecord { partition: 0, ..wanted(b"key", true) };
        assert!(matches!(script.ask(Request::SetRecord(other)).await, Answer::NoSetRecord { is_denied: false, .. }));
        for (number, keys) in [(1, &[&b"written"[..], b"read"][..]), (2, &[b"other"]), (3, &[])] {
            let write =
                |key: &&[u8]| SetWrite { partition: stock.0, key: key.to_vec(), value: Some(SetValue(vec![7])) };
            let mut sets: Vec<SetWrite> = keys.iter().map(write).collect();
            if keys.is_empty() {
                // Of what is no set.
                sets.push(SetWrite { partition: 0, key: b"key".to_vec(), value: None });
            }
            let commit = Request::Commit {
                transaction: Transaction(number),
                others: Vec::new(),
                keeps: false,
                records: Vec::new(),
                pages: Vec::new(),
                redone: Vec::new(),
                sets,
            };
            let refused = script.ask(commit).await;
            assert!(matches!(&refused, Answer::NotCommitted { .. }), "{refused:?}");
        }
        script
    });
    let _script = served.cluster.run(task).expect("they go on");
    let found = served.run(async move |client| {
        let mut tx = client.begin().await;
        Ok::<_, Error>((
            tx.get(stock, b"written").await?,
            tx.get(stock, b"read").await?,
            tx.get(stock, b"other").await?,
        ))
    });
    assert_eq!(found, Ok((None, None, None)));
}

/// A commit carries a record once, however often its transaction has changed it.
#[test]
fn a_record_may_be_changed_more_often_than_a_commit_has_records() {
    let mut served = ServedThings::new(1, 1, None);
    let done = served.run(async |client| {
        let stock = number(&client, "stock").await?;
        let mut tx = client.begin().await;
        tx.put(stock, b"count", &0_u64.to_le_bytes()).await?;
        for _ in 0..=LIST_MAX {
            tx.add(stock, b"count", 0..8, 1).await?;
        }
        tx.commit().await?;
        let mut tx = client.begin().await;
        let found = tx.get(stock, b"count").await?;
        tx.commit().await.map(|()| count(found))
    });
    assert_eq!(done, Ok(LIST_MAX as u64 + 1));
}
