//! Records with fields and secondary indexes at nodes: their entries change with them, unique indexes stay so, ranges show all.

use crate::things::{ServedThings, fields, open, stored};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, PageId, PartitionId, Random};
use engine::canary::{self, Canary};
use engine::set::{FieldError, FieldValue, NotUnique};
use engine::{Direction, Error, Result};
use entresol_node::page_client::{PageClient, PageTransaction};
use entresol_node::page_server::ServerInternals;
use executor::Executor;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

type Bounds<'a> = (Bound<&'a [FieldValue<'a>]>, Bound<&'a [FieldValue<'a>]>);

const ALL: Bounds<'static> = (Bound::Unbounded, Bound::Unbounded);

/// The keys of a range of an index, in its order.
async fn keys(
    tx: &mut PageTransaction,
    (things, index): (PartitionId, usize),
    bounds: Bounds<'_>,
    direction: Direction,
) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let keep = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        true
    };
    tx.range(things, index, bounds, direction, keep).await?;
    Ok(found)
}

fn not_unique(contents: &str, present: &[u8], refused: &[u8]) -> Error {
    let (contents, present, refused) = (contents.to_owned(), present.to_vec(), refused.to_vec());
    let what = NotUnique { index: "by_name".into(), contents, present, refused };
    Error::Field { partition: "things".into(), error: FieldError::NotUnique(Box::new(what)) }
}

#[test]
fn a_unique_index_of_a_set_refuses_a_second_record_at_nodes() {
    let mut served = ServedThings::new(2, 2, None);
    let (first, second) = (served.clients[0].clone(), served.clients[1].clone());
    let taken = |present: &[u8], refused: &[u8]| {
        let Error::Field { error, .. } = not_unique("name \"pen\"", present, refused) else { unreachable!() };
        Err(Error::Field { partition: "seats".into(), error })
    };
    let beside = served.nodes[1].spawn({
        let executor = served.nodes[1].clone();
        async move {
            let seats = second.partition("seats").await?.id();
            // A new server grants the first locks after some three seconds.
            executor.sleep_ns(5 * SECOND_NS).await;
            let mut tx = second.begin().await;
            // It waits for the one that has deleted it, and is not the first.
            let refused = tx.put(seats, b"z", &stored(1, 1, "pen")).await;
            assert!(executor.now().since_ns(Instant::START) > 7 * SECOND_NS, "it has not waited");
            tx.put(seats, b"y", &stored(1, 1, "ink")).await?;
            tx.commit().await.map(|()| refused)
        }
    });
    let done = served.run(async move |client| {
        let seats = client.partition("seats").await?.id();
        let mut tx = client.begin().await;
        tx.put(seats, b"a", &stored(1, 1, "pen")).await?;
        assert_eq!(tx.put(seats, b"b", &stored(1, 1, "pen")).await, taken(b"a", b"b"));
        tx.put(seats, b"b", &stored(1, 1, "cup")).await?;
        tx.commit().await?;
        let mut tx = client.begin().await;
        assert_eq!(tx.insert(seats, b"c", &stored(9, 9, "pen")).await, taken(b"a", b"c"));
        // They come to each other's places.
        tx.put(seats, b"a", &stored(1, 1, "between")).await?;
        tx.put(seats, b"b", &stored(1, 1, "pen")).await?;
        tx.put(seats, b"a", &stored(1, 1, "cup")).await?;
        client.executor().sleep_ns(5 * SECOND_NS).await;
        tx.commit().await?;
        Ok::<_, Error>(first.partition("seats").await?.id())
    });
    done.expect("commits");
    let refused = served.cluster.run(beside).expect("they go on").expect("commits");
    assert_eq!(refused, taken(b"b", b"z"));
    let names = served.open(async |database| {
        let seats = database.partition("seats")?;
        let mut names = Vec::new();
        for key in [b"a", b"b", b"y", b"z"] {
            let value = database.transaction(async |tx| tx.get(seats, key).await).await?;
            names.push(value.map(|value| crate::things::fields(&value).2));
        }
        Ok(names)
    });
    assert_eq!(
        names,
        ["cup", "pen", "ink"].map(|name| Some(name.to_owned())).into_iter().chain([None]).collect::<Vec<_>>()
    );
}

#[test]
fn fields_are_read_and_changed_and_indexes_follow() {
    let mut served = ServedThings::new(1, 1, None);
    let done = served.run(async |client| {
        let things = client.partition("things").await?.id();
        let mut tx = client.begin().await;
        let (weight, name) = (tx.field(things, "weight").await?, tx.field(things, "name").await?);
        let (by_group, by_name) = (tx.secondary(things, "by_group").await?, tx.secondary(things, "by_name").await?);
        let contents = [FieldValue::U32(3), FieldValue::I64(-5), FieldValue::Text("pen")];
        tx.insert_record(things, b"a", &contents).await?;
        let twice = tx.insert_record(things, b"a", &contents).await;
        assert_eq!(twice, Err(Error::Duplicate("things".into())));
        assert_eq!(tx.insert_record(things, b"b", &contents).await, Err(not_unique("name \"pen\"", b"a", b"b")));
        tx.put(things, b"b", &stored(1, 9, "ink")).await?;
        assert_eq!(tx.add_to_field(things, b"a", weight, 12).await?, FieldValue::I64(7));
        let taken = tx.set_field(things, b"b", name, FieldValue::Text("pen")).await;
        assert_eq!(taken, Err(not_unique("name \"pen\"", b"a", b"b")));
        tx.set_field(things, b"b", name, FieldValue::Text("ink, blue")).await?;
        tx.modify(things, b"b", |value| value[..4].copy_from_slice(&3_u32.to_le_bytes())).await?;
        let mut buffer = Vec::new();
        assert_eq!(tx.get_field(things, b"b", 0, &mut buffer).await?, Some(FieldValue::U32(3)));
        assert_eq!(tx.get_field(things, b"c", 0, &mut buffer).await?, None);
        let index = (things, by_group);
        assert_eq!(keys(&mut tx, index, ALL, Direction::Forward).await?, [b"a", b"b"]);
        assert_eq!(keys(&mut tx, index, ALL, Direction::Backward).await?, [b"b", b"a"]);
        let light = [FieldValue::U32(3), FieldValue::I64(7)];
        let above = (Bound::Excluded(&light[..]), Bound::Unbounded);
        assert_eq!(keys(&mut tx, index, above, Direction::Forward).await?, [b"b"]);
        let blue = [FieldValue::Text("ink, blue")];
        let exactly = (Bound::Included(&blue[..]), Bound::Included(&blue[..]));
        assert_eq!(keys(&mut tx, (things, by_name), exactly, Direction::Forward).await?, [b"b"]);
        tx.commit().await?;
        let mut tx = client.begin().await;
        assert!(tx.delete(things, b"a").await?);
        // Its place in the unique index is free.
        tx.set_field(things, b"b", name, FieldValue::Text("pen")).await?;
        assert_eq!(
            tx.set_field(things, b"a", name, FieldValue::Text("x")).await,
            Err(Error::NoRecord("things".into()))
        );
        let damaged = tx.put(things, b"c", b"no record of the type").await;
        assert!(matches!(damaged, Err(Error::Field { .. })), "{damaged:?}");
        let long = "x".repeat(400);
        let contents = [FieldValue::U32(1), FieldValue::I64(1), FieldValue::Text(&long)];
        let too_long = tx.insert_record(things, b"c", &contents).await;
        assert!(matches!(too_long, Err(Error::TooLarge { .. })), "its entry is longer than a key may be");
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
    served.open(async |database| {
        let things = database.partition("things")?;
        let left = database.transaction(async |tx| tx.scan(things, .., Direction::Forward).take(9).await).await?;
        assert_eq!(left, [(b"b".to_vec(), stored(3, 9, "pen"))]);
        Ok(())
    });
}

#[test]
fn what_nodes_cannot_use_is_refused_in_words() {
    let mut served = ServedThings::new(2, 1, None);
    let done = served.run(async |client| {
        let number = async |name| client.partition(name).await.map(|found| found.id());
        let (stock, notes, index) = (number("stock").await?, number("notes").await?, number("things.by_name").await?);
        let mut tx = client.begin().await;
        let refused = |found: Error, words: &str| {
            assert!(matches!(found, Error::WrongOrganization { .. }), "{found:?}");
            assert!(found.to_string().contains(words), "{found}");
        };
        let in_memory = "in the server's memory";
        refused(tx.append(stock, b"value").await.expect_err("a set"), "have keys");
        refused(tx.read_object(stock, 1, |_| ()).await.expect_err("a set"), in_memory);
        refused(tx.scan_range(stock, .., Direction::Forward).next().await.expect_err("a set"), in_memory);
        refused(tx.put(index, b"key", b"value").await.expect_err("an index"), "it is a secondary index");
        refused(tx.field(notes, "name").await.expect_err("untyped"), "no fields");
        let (mut snapshot, other) = (client.snapshot().await?, client.snapshot().await?);
        assert_eq!(snapshot.get(stock, b"key").await?, None);
        refused(snapshot.scan_set(notes, |_, _| true).await.expect_err("a b-tree"), "range of keys");
        refused(snapshot.scan(stock, Bound::Unbounded, |_, _| true).await.expect_err("a set"), in_memory);
        refused(snapshot.scan_appended(stock, |_, _| true).await.expect_err("a set"), "have keys");
        refused(snapshot.read_object(stock, 1, |_| ()).await.expect_err("a set"), in_memory);
        refused(snapshot.get(index, b"key").await.expect_err("an index"), "it is a secondary index");
        // What looks at a page may do what it wants beside that.
        snapshot.read(PageId::new(notes, 0), |_| drop(other)).await?;
        tx.put(notes, b"key", b"value").await?;
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn ranges_of_keys_go_both_ways_and_show_what_a_model_has() {
    let mut served = ServedThings::new(3, 1, None);
    let done = served.run(async |client| {
        let notes = client.partition("notes").await?.id();
        let (mut random, mut model) = (Random::stream(3, "ranges"), BTreeMap::new());
        for _ in 0..20 {
            let mut tx = client.begin().await;
            for _ in 0..20 {
                let key = vec![b'k'; random.between(1, 3) as usize].into_iter().chain([random.word() as u8]).collect();
                let key: Vec<u8> = key;
                let value = vec![1; random.below(60) as usize];
                tx.put(notes, &key, &value).await?;
                model.insert(key, value);
            }
            tx.commit().await?;
        }
        let mut tx = client.begin().await;
        for _ in 0..300 {
            let mut bound = || {
                let key = vec![b'k'; random.below(4) as usize].into_iter().chain([random.word() as u8]).collect();
                let key: Vec<u8> = key;
                match random.below(3) {
                    0 => Bound::Unbounded,
                    1 => Bound::Included(key),
                    _ => Bound::Excluded(key),
                }
            };
            let (lower, upper) = (bound(), bound());
            let is_within = |key: &Vec<u8>| {
                (match &lower {
                    Bound::Unbounded => true,
                    Bound::Included(lower) => key >= lower,
                    Bound::Excluded(lower) => key > lower,
                }) && match &upper {
                    Bound::Unbounded => true,
                    Bound::Included(upper) => key <= upper,
                    Bound::Excluded(upper) => key < upper,
                }
            };
            let mut expected: Vec<_> = model.clone().into_iter().filter(|(key, _)| is_within(key)).collect();
            let range = (lower.clone(), upper.clone());
            let forward = tx.scan_range(notes, range.clone(), Direction::Forward).take(usize::MAX).await?;
            assert_eq!(forward, expected, "{range:?}");
            let backward = tx.scan_range(notes, range.clone(), Direction::Backward).take(usize::MAX).await?;
            expected.reverse();
            assert_eq!(backward, expected, "{range:?}");
        }
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
}

#[test]
fn integers_in_values_are_added_to() {
    let mut served = ServedThings::new(4, 1, None);
    let done = served.run(async |client| {
        let notes = client.partition("notes").await?.id();
        let mut tx = client.begin().await;
        tx.put(notes, b"key", &[1, 0, 255, 7]).await?;
        assert_eq!(tx.add(notes, b"key", 0..2, 300).await?, 301);
        assert_eq!(tx.add(notes, b"key", 2..3, 2).await?, 1);
        assert_eq!(tx.get_for_update(notes, b"key").await?, Some(vec![45, 1, 1, 7]));
        assert!(matches!(tx.add(notes, b"key", 0..3, 1).await, Err(Error::Argument(_))));
        assert!(matches!(tx.add(notes, b"key", 3..5, 1).await, Err(Error::TooLarge { .. })));
        assert!(matches!(tx.add(notes, b"none", 0..2, 1).await, Err(Error::NoRecord(_))));
        tx.put(notes, b"long", &[7; 9_000]).await?;
        let Err(Error::TooLarge { found: 9_000, limit, .. }) = tx.modify(notes, b"long", |_| ()).await else {
            panic!("a long value is not changed in place")
        };
        tx.put(notes, b"long", &vec![7; limit]).await?;
        tx.modify(notes, b"long", |value| value[0] = 8).await?;
        tx.put(notes, b"long", &vec![7; limit + 1]).await?;
        assert!(matches!(tx.modify(notes, b"long", |_| ()).await, Err(Error::TooLarge { .. })));
        tx.commit().await
    });
    assert_eq!(done, Ok(()));
}

/// The most things of a group.
const GROUP_MAX: usize = 12;
const GROUPS: u64 = 4;
/// How many names all share.
const NAMES: u64 = 150;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A client that changes things of its own, whose names and groups are of all.
struct Changer {
    executor: Executor,
    client: PageClient,
    number: usize,
    things: PartitionId,
    by_group: usize,
    by_name: usize,
    committed: Rc<RefCell<Model>>,
    pending: Rc<RefCell<Option<Model>>>,
    /// How often a name was another's, and a group was full.
    refused: (u64, u64),
}

impl Changer {
    async fn join(executor: Executor, client: PageClient, number: usize) -> Changer {
        let things = client.partition("things").await.expect("it is there").id();
        let tx = client.begin().await;
        let by_group = tx.secondary(things, "by_group").await.expect("it is there");
        let by_name = tx.secondary(things, "by_name").await.expect("it is there");
        drop(tx);
        let (committed, pending) = (Rc::default(), Rc::default());
        Changer { executor, client, number, things, by_group, by_name, committed, pending, refused: (0, 0) }
    }

    async fn run(mut self, seed: u64, transactions: u64) -> Changer {
        let mut random = Random::stream(seed, &format!("changer {}", self.number));
        for _ in 0..transactions {
            let (word, mut tries) = (random.word(), 0);
            loop {
                match self.transact(&mut Random::stream(word, "transaction")).await {
                    Ok(()) => break,
                    Err(Error::Deadlock) => {
                        tries = (tries + 1).min(6);
                        self.executor.sleep_ns(random.below(MILLISECOND_NS << tries)).await;
                    }
                    Err(error) => panic!("client {}: {error}", self.number),
                }
            }
        }
        self
    }

    async fn transact(&mut self, random: &mut Random) -> Result<()> {
        let mut model = self.committed.borrow().clone();
        let mut tx = self.client.begin().await;
        for _ in 0..random.between(1, 6) {
            self.change(&mut tx, &mut model, random).await?;
        }
        if random.chance(0.1) {
            return Ok(());
        }
        self.pending.replace(Some(model.clone()));
        tx.commit().await?;
        self.committed.replace(model);
        self.pending.replace(None);
        Ok(())
    }

    async fn change(&mut self, tx: &mut PageTransaction, model: &mut Model, random: &mut Random) -> Result<()> {
        let key = format!("{:02}/{}", random.below(30), self.number).into_bytes();
        let (group, name) = (random.below(GROUPS) as u32, format!("name {}", random.below(NAMES)));
        if random.chance(0.2) {
            assert_eq!(tx.delete(self.things, &key).await?, model.remove(&key).is_some());
            return Ok(());
        }
        let of_group = [FieldValue::U32(group)];
        let bounds = (Bound::Included(&of_group[..]), Bound::Included(&of_group[..]));
        let present = keys(tx, (self.things, self.by_group), bounds, Direction::Forward).await?;
        if present.len() >= GROUP_MAX && !present.contains(&key) {
            self.refused.1 += 1;
            return Ok(());
        }
        let value = stored(group, random.below(50) as i64 - 25, &name);
        let of_name = [FieldValue::Text(&name)];
        let exactly = (Bound::Included(&of_name[..]), Bound::Included(&of_name[..]));
        match tx.put(self.things, &key, &value).await {
            Ok(()) => {
                let with_name = keys(tx, (self.things, self.by_name), exactly, Direction::Forward).await?;
                assert_eq!(with_name, std::slice::from_ref(&key), "its entry is missing from an index");
                model.insert(key, value);
            }
            Err(Error::Field { error: FieldError::NotUnique(_), .. }) => {
                // Whose it is can be seen, and nothing was changed.
                let others = keys(tx, (self.things, self.by_name), exactly, Direction::Backward).await?;
                assert!(others.len() == 1 && others[0] != key, "{others:?}");
                assert_eq!(tx.get(self.things, &key).await?.as_ref(), model.get(&key));
                self.refused.0 += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Has three clients change things until the time has come, if there is one, or until they have done this number of transactions. What each
/// knows then: what is committed, and what is if its last commit is.
fn change_things(
    served: &mut ServedThings,
    seed: u64,
    until_ns: Option<u64>,
    transactions: u64,
) -> Vec<(Model, Option<Model>)> {
    let (mut known, mut tasks) = (Vec::new(), Vec::new());
    for (number, executor) in served.nodes.clone().into_iter().enumerate() {
        let joining = Changer::join(executor.clone(), served.clients[number].clone(), number);
        let changer = served.cluster.run(executor.spawn(joining)).expect("it joins");
        known.push((Rc::clone(&changer.committed), Rc::clone(&changer.pending)));
        tasks.push(executor.spawn(changer.run(seed, transactions)));
    }
    match until_ns {
        Some(ns) => served.cluster.run_until(served.cluster.now().plus_ns(ns)).expect("they go on"),
        None => {
            let mut refused = (0, 0);
            for task in tasks {
                let done = served.cluster.run(task).expect("they go on").refused;
                refused = (refused.0 + done.0, refused.1 + done.1);
            }
            assert!(refused.0 > 3 && refused.1 > 3, "{refused:?}");
            served.cluster.run_until(served.cluster.now().plus_ns(SECOND_NS)).expect("they go on");
            served.page_server.protocol().check().expect("the directory is right");
        }
    }
    known.iter().map(|(committed, pending)| (committed.borrow().clone(), pending.borrow().clone())).collect()
}

/// All things, by their keys, of which groups have no more than they may.
async fn found(database: &engine::Database) -> Result<Model> {
    let things = database.partition("things")?;
    let all = database.transaction(async |tx| tx.scan(things, .., Direction::Forward).take(usize::MAX).await).await?;
    let mut groups: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, value) in &all {
        *groups.entry(fields(value).0).or_default() += 1;
    }
    assert!(groups.values().all(|count| *count <= GROUP_MAX), "a range has not shown all: {groups:?}");
    Ok(all.into_iter().collect())
}

fn nodes_keep_indexes(seed: u64) {
    let mut served = ServedThings::new(seed, 3, None);
    let known = change_things(&mut served, seed, None, 40);
    let found = served.open(found);
    let expected: Model = known.into_iter().flat_map(|(committed, _)| committed).collect();
    assert!(expected.len() > 30, "{}", expected.len());
    assert_eq!(found, expected, "{seed}");
}

#[test]
fn what_nodes_change_at_a_time_is_in_indexes_and_no_range_misses_any() {
    (10..14).for_each(nodes_keep_indexes);
}

#[test]
fn an_entry_that_a_node_forgets_is_found() {
    canary::plant(Some(Canary::ForgottenEntry));
    let found = std::panic::catch_unwind(|| nodes_keep_indexes(10));
    canary::plant(None);
    let panic = found.expect_err("nothing notices");
    let words = panic.downcast_ref::<String>().expect("words");
    assert!(words.contains("does not agree with its records") || words.contains("missing from"), "{words}");
}

#[test]
fn a_power_cut_leaves_records_with_their_entries() {
    for seed in 20..26 {
        let mut served = ServedThings::new(seed, 3, None);
        let mut random = Random::stream(seed, "cut");
        let known = change_things(&mut served, seed, Some(random.between(2_501_000_000, 2_520_000_000)), 10_000);
        let ServedThings { machines, cluster, server, page_server, nodes, clients } = served;
        drop((clients, page_server));
        nodes.iter().for_each(Executor::stop);
        server.stop();
        drop(cluster);
        machines.cut_power(&mut random);
        let all = open(&machines, found);
        for (number, (committed, pending)) in known.into_iter().enumerate() {
            let own = format!("/{number}").into_bytes();
            let left: Model = all.clone().into_iter().filter(|(key, _)| key.ends_with(&own)).collect();
            assert!(left == committed || Some(left) == pending, "{seed}: client {number}");
        }
    }
}
