//! Sets whose records have a type and secondary indexes: the catalogue, fields, range reads, serializability.

use crate::ground::machine::run;
use base::{PartitionId, Random};
use driver::Halt;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Result, Settings, Transaction, checkpoint, log,
};
use executor::{Executor, Order, WholeExecutor};
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

fn settings() -> Settings {
    Settings {
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn record() -> RecordType {
    let fields = [("group", FieldType::U32), ("weight", FieldType::I64), ("name", FieldType::Text)];
    RecordType::new(fields).expect("sound")
}

fn spec(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let spec = PartitionSpec::new(name, organization, Locking::Record).record(record());
    spec.secondary("by_group", &["group", "weight"]).secondary("by_name", &["name"])
}

fn contents(group: u32, weight: i64, name: &str) -> [FieldValue<'_>; 3] {
    [FieldValue::U32(group), FieldValue::I64(weight), FieldValue::Text(name)]
}

fn stored(group: u32, weight: i64, name: &str) -> Vec<u8> {
    let mut value = Vec::new();
    record().encode(&contents(group, weight, name), &mut value).expect("suits");
    value
}

/// The keys of a range, in order.
async fn keys(
    tx: &mut Transaction,
    (set, index): (PartitionId, usize),
    from: Bound<&[FieldValue<'_>]>,
    to: Bound<&[FieldValue<'_>]>,
) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let keep = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        true
    };
    tx.range(set, index, (from, to), Direction::Forward, keep).await?;
    Ok(found)
}

#[test]
fn a_restart_finds_types_indexes_and_records() {
    let media = Media::new();
    run(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        database.create_partition(PartitionSpec::b_tree("notes")).await.expect("creates a b-tree");
        let set = database.create_partition(spec("things")).await.expect("creates a set");
        let records = (0..300_u32).map(|n| (n.to_be_bytes(), stored(n % 7, -i64::from(n), "loaded")));
        database.load_set(set, records, |_| {}).await.expect("loads");
        let weight = database.field(set, "weight").expect("it exists");
        let change = async |tx: &mut Transaction| tx.add_to_field(set, &7_u32.to_be_bytes(), weight, 1_000).await;
        assert_eq!(database.transaction(change).await, Ok(FieldValue::I64(993)));
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings(), "test").await.expect("opens");
        let set = database.partition("things").expect("it exists");
        assert_eq!(database.partitions()[0].schema, None);
        let schema = database.describe(set).expect("it exists").schema.clone().expect("it was stored");
        assert_eq!((schema.record, schema.secondaries.len()), (record(), 2));
        let by_group = database.secondary(set, "by_group").expect("it exists");
        let first = Bound::Included(&[FieldValue::U32(0)][..]);
        let mut tx = database.begin().await.expect("begins");
        let found = keys(&mut tx, (set, by_group), first, first).await.expect("reads");
        let mut expected: Vec<u32> = (0..300).filter(|n| n % 7 == 0).collect();
        expected.sort_by_key(|n| if *n == 7 { 993 } else { -i64::from(*n) });
        assert!(found.into_iter().eq(expected.into_iter().map(|n| n.to_be_bytes().to_vec())));
        tx.commit().await.expect("commits");
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
}

#[test]
fn what_does_not_suit_is_refused_by_name_and_changes_nothing() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let refused = async |spec| database.create_partition(spec).await.expect_err("refused").to_string();
        let twice = spec("s").secondary("by_name", &["weight"]);
        assert_eq!(
            refused(twice).await,
            "partition 's': there are two secondary indexes 'by_name'; names are given once"
        );
        let unknown = spec("s").secondary("by_town", &["town"]);
        assert_eq!(refused(unknown).await, "partition 's': there is no field 'town'");
        let untyped = PartitionSpec::set("s").secondary("by_name", &["name"]);
        assert!(refused(untyped).await.ends_with("give the partition a record type"));
        let paged = PartitionSpec::append("s").record(record());
        assert_eq!(refused(paged).await, "partition 's': only the records of b-trees and sets have a type");

        let set = database.create_partition(spec("things")).await.expect("creates");
        let plain = database.create_partition(PartitionSpec::set("plain")).await.expect("creates");
        assert!(matches!(database.field(plain, "name"), Err(Error::WrongOrganization { .. })));
        assert_eq!(
            database.secondary(set, "by_town").expect_err("refused").to_string(),
            "partition 'things': there is no secondary index 'by_town'"
        );
        let mut tx = database.begin().await.expect("begins");
        tx.insert_record(set, b"a", &contents(1, i64::MAX, "Ada")).await.expect("inserts");
        let [group, weight, name] = [0, 1, 2];
        let errors = [
            tx.put(set, b"a", b"no record").await.expect_err("refused"),
            tx.insert(set, b"b", &[stored(1, 1, "x"), vec![0]].concat()).await.expect_err("refused"),
            tx.insert_record(set, b"b", &contents(1, 1, "x")[..2]).await.expect_err("refused"),
            tx.modify(set, b"a", |value| value[14] = 0xff).await.expect_err("refused"),
            tx.set_field(set, b"a", group, FieldValue::U64(1)).await.expect_err("refused"),
            tx.set_field(set, b"a", 3, FieldValue::U64(1)).await.expect_err("refused"),
            tx.add_to_field(set, b"a", weight, 1).await.expect_err("refused"),
            tx.add_to_field(set, b"a", group, -2).await.expect_err("refused"),
            tx.add_to_field(set, b"a", name, 1).await.expect_err("refused"),
        ];
        for error in &errors {
            assert!(matches!(error, Error::Field { partition, .. } if partition == "things"), "{error}");
        }
        assert!(errors[6].to_string().contains("'weight' holds i64, and the sum is out of its range"));
        let missing = tx.set_field(set, b"b", group, FieldValue::U32(1)).await;
        assert_eq!(missing, Err(Error::NoRecord("things".into())));
        assert_eq!(tx.get(set, b"a").await, Ok(Some(stored(1, i64::MAX, "Ada"))));
        let mut buffer = Vec::new();
        assert_eq!(tx.get_field(set, b"a", name, &mut buffer).await, Ok(Some(FieldValue::Text("Ada"))));
        assert_eq!(tx.get_field(set, b"b", name, &mut buffer).await, Ok(None));
        tx.set_field(set, b"a", name, FieldValue::Text("Ada Lovelace")).await.expect("grows");
        assert_eq!(tx.get(set, b"a").await, Ok(Some(stored(1, i64::MAX, "Ada Lovelace"))));
        tx.commit().await.expect("commits");
        let bad = database.load_set(database.partition("plain").expect("exists"), [(b"k", b"v")], |_| {}).await;
        assert_eq!(bad, Ok(()), "what has no type takes everything");
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
}

type Model = BTreeMap<Vec<u8>, (u32, i64, String)>;

/// One random change of the set and of its model.
async fn change(tx: &mut Transaction, set: PartitionId, random: &mut Random, model: &mut Model) {
    let key = random.below(40).to_be_bytes();
    let (group, weight) = (random.below(5) as u32, random.below(9) as i64 - 4);
    let name = "xyz".repeat(random.below(30) as usize);
    let there = model.get_mut(&key[..]);
    let none = Err(Error::NoRecord("things".into()));
    match random.below(6) {
        0 => {
            assert_eq!(tx.delete(set, &key).await, Ok(there.is_some()));
            model.remove(&key[..]);
        }
        1 => match there {
            Some(there) => {
                there.1 += weight;
                assert_eq!(tx.add_to_field(set, &key, 1, weight).await, Ok(FieldValue::I64(there.1)));
            }
            None => assert_eq!(tx.add_to_field(set, &key, 1, weight).await.map(|_| ()), none),
        },
        2 => {
            let done = tx.set_field(set, &key, 2, FieldValue::Text(&name)).await;
            assert_eq!(done.is_ok(), there.is_some());
            if let Some(there) = there {
                there.2 = name;
            }
        }
        3 => {
            let done = tx.modify(set, &key, |value| value[0] = group as u8).await;
            assert_eq!(done.is_ok(), there.is_some());
            if let Some(there) = there {
                there.0 = group;
            }
        }
        _ => {
            tx.put(set, &key, &stored(group, weight, &name)).await.expect("puts");
            model.insert(key.to_vec(), (group, weight, name));
        }
    }
}

/// Compares ranges of both indexes with the model.
async fn compare(tx: &mut Transaction, set: PartitionId, random: &mut Random, model: &Model) {
    let mut bound = || {
        let values = [FieldValue::U32(random.below(6) as u32), FieldValue::I64(random.below(12) as i64 - 6)];
        (values, random.below(3) as usize, random.chance(0.5))
    };
    let (from, to) = (bound(), bound());
    fn cut<'a>((values, count, inclusive): &'a ([FieldValue<'a>; 2], usize, bool)) -> Bound<&'a [FieldValue<'a>]> {
        match (count, inclusive) {
            (0, _) => Bound::Unbounded,
            (count, true) => Bound::Included(&values[..*count]),
            (count, false) => Bound::Excluded(&values[..*count]),
        }
    }
    let place = |(group, weight, _): &(u32, i64, String), (values, count, _): &([FieldValue<'_>; 2], usize, bool)| {
        let [FieldValue::U32(other), FieldValue::I64(bound)] = values else { unreachable!("so made") };
        group.cmp(other).then(if *count == 2 { weight.cmp(bound) } else { std::cmp::Ordering::Equal })
    };
    let within = |record: &(u32, i64, String)| {
        (from.1 == 0 || if from.2 { place(record, &from).is_ge() } else { place(record, &from).is_gt() })
            && (to.1 == 0 || if to.2 { place(record, &to).is_le() } else { place(record, &to).is_lt() })
    };
    let mut expected: Vec<_> = model.iter().filter(|(_, record)| within(record)).collect();
    expected.sort_by_key(|(key, record)| (record.0, record.1, (*key).clone()));
    let found = keys(tx, (set, 0), cut(&from), cut(&to)).await.expect("reads");
    assert!(found.iter().eq(expected.iter().map(|(key, _)| *key)), "{from:?} to {to:?}: {found:?}, {expected:?}");
    let mut expected: Vec<_> = model.iter().collect();
    expected.sort_by_key(|(key, record)| (record.2.clone(), (*key).clone()));
    let found = keys(tx, (set, 1), Bound::Unbounded, Bound::Unbounded).await.expect("reads");
    assert!(found.iter().eq(expected.iter().map(|(key, _)| *key)));
}

#[test]
fn indexes_follow_every_change_rollback_and_restart() {
    for seed in 0..6 {
        let media = Media::new();
        let mut random = Random::stream(seed, "typed sets");
        let mut model = Model::new();
        for opening in 0..4 {
            run(&media, async |executor| {
                let database = if opening == 0 {
                    let database = Database::create(executor, settings()).await.expect("creates");
                    database.create_partition(spec("things")).await.expect("creates a set");
                    database
                } else {
                    Database::open(executor, settings(), "test").await.expect("opens")
                };
                let set = database.partition("things").expect("it exists");
                for _ in 0..30 {
                    let mut tx = database.begin().await.expect("begins");
                    let mut changed = model.clone();
                    for _ in 0..random.between(1, 6) {
                        change(&mut tx, set, &mut random, &mut changed).await;
                        if random.chance(0.2) {
                            let (position, before) = (tx.savepoint(), changed.clone());
                            change(&mut tx, set, &mut random, &mut changed).await;
                            tx.rollback_to(position).await.expect("goes back");
                            changed = before;
                        }
                    }
                    compare(&mut tx, set, &mut random, &changed).await;
                    if random.chance(0.7) {
                        tx.commit().await.expect("commits");
                        model = changed;
                    } else {
                        tx.rollback().await.expect("rolls back");
                    }
                    if random.chance(0.1) {
                        database.checkpoint().await.expect("sweeps");
                    }
                }
                assert!(database.check(|_| {}).await.expect("checks").is_clean(), "seed {seed}");
            });
        }
    }
}

/// How many records of a group a transaction sees, and the key of one of them.
async fn count(tx: &mut Transaction, set: PartitionId, group: u32) -> Result<(usize, Option<Vec<u8>>)> {
    let group = [FieldValue::U32(group)];
    let found = keys(tx, (set, 0), Bound::Included(&group), Bound::Included(&group)).await?;
    Ok((found.len(), found.into_iter().next()))
}

/// A client that puts a record into a group, or moves one there, only if it sees none in it.
async fn occupy(database: Database, set: PartitionId, seed: u64) -> Result<()> {
    let mut random = Random::stream(seed, "client");
    for _ in 0..40 {
        let (group, other, key) =
            (random.below(4) as u32, random.below(4) as u32, random.below(u64::MAX).to_be_bytes());
        let (action, gives_up, goes_back) = (random.below(3), random.chance(0.3), random.chance(0.3));
        let work = async |tx: &mut Transaction| {
            let executor = tx.executor().whole().clone();
            let seen = count(tx, set, group).await?;
            executor.sleep_ns(20_000).await;
            assert_eq!(count(tx, set, group).await?, seen, "a read is repeatable");
            let position = tx.savepoint();
            match seen {
                (0, _) => {
                    tx.insert_record(set, &key, &contents(group, 0, "new")).await?;
                    if goes_back {
                        tx.rollback_to(position).await?;
                    }
                }
                (1, Some(there)) if action == 0 => assert!(tx.delete(set, &there).await?),
                (1, Some(there)) if action == 1 && count(tx, set, other).await?.0 == 0 => {
                    executor.sleep_ns(10_000).await;
                    tx.set_field(set, &there, 0, FieldValue::U32(other)).await?;
                }
                (1, Some(there)) => {
                    tx.add_to_field(set, &there, 1, 1).await?;
                }
                seen => panic!("a group has one record at most, not {seen:?}"),
            }
            executor.sleep_ns(20_000).await;
            assert!(count(tx, set, group).await?.0 <= 1, "no other came");
            if gives_up { Err(Error::RolledBack("for a change".into())) } else { Ok(()) }
        };
        match database.transaction(work).await {
            Ok(()) | Err(Error::RolledBack(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[test]
fn no_phantom_enters_a_range_of_an_index() {
    for seed in 0..8 {
        let driver = VirtualDriver::new(Hardware::ideal(), Options { seed, ..Options::default() }, Media::new());
        let executor = Executor::new(Box::new(driver), Order::Seeded(seed));
        let result: std::result::Result<(), Halt> = executor.run(async {
            let database = Database::create(&executor, settings()).await.expect("creates");
            let set = database.create_partition(spec("things")).await.expect("creates a set");
            let tasks: Vec<_> =
                (0..5).map(|client| executor.spawn(occupy(database.clone(), set, 10 * seed + client))).collect();
            for task in tasks {
                assert_eq!(task.join().await, Ok(()));
            }
            assert!(database.check(|_| {}).await.expect("checks").is_clean());
            assert_eq!(database.locks().check(), Ok(()));
        });
        executor.stop();
        result.expect("the machine goes on");
    }
}

#[test]
fn arrivals_are_found_through_an_index_and_phantoms_wait() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let organization = Organization::set(true);
        let spec = PartitionSpec::new("orders", organization, Locking::Record).record(record());
        let orders = database.create_partition(spec.secondary("by_group", &["group"])).await.expect("creates");
        let add = async |tx: &mut Transaction| {
            tx.append(orders, &stored(2, 1, "first")).await?;
            tx.append(orders, &stored(1, 1, "second")).await
        };
        database.transaction(add).await.expect("commits");
        let mut reader = database.begin().await.expect("begins");
        assert_eq!(count(&mut reader, orders, 1).await, Ok((1, Some(1_u64.to_be_bytes().to_vec()))));
        let appender = {
            let database = database.clone();
            executor.spawn(async move {
                database.transaction(async |tx| tx.append(orders, &stored(1, 1, "phantom")).await).await
            })
        };
        executor.sleep_ns(1_000_000).await;
        assert!(!appender.is_finished(), "it waits for the reader");
        assert_eq!(count(&mut reader, orders, 1).await.expect("reads").0, 1);
        reader.commit().await.expect("commits");
        appender.join().await.expect("commits");
        let refused = database.transaction(async |tx| tx.append(orders, b"no record").await).await;
        assert!(matches!(refused, Err(Error::Field { .. })), "{refused:?}");
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
}

/// A reader goes on to see as many records of group 1 as `work` says, while another waits to add one without looking.
async fn holds_off(executor: &Executor, work: impl AsyncFnOnce(&mut Transaction, PartitionId) -> Result<usize>) {
    let database = Database::create(executor, settings()).await.expect("creates");
    let set = database.create_partition(spec("things")).await.expect("creates a set");
    database.transaction(async |tx| tx.insert_record(set, b"z", &contents(9, 0, "end")).await).await.expect("commits");
    let mut reader = database.begin().await.expect("begins");
    let seen = work(&mut reader, set).await.expect("works");
    let inserter = {
        let database = database.clone();
        executor.spawn(async move {
            database.transaction(async |tx| tx.insert_record(set, b"p", &contents(1, 3, "phantom")).await).await
        })
    };
    executor.sleep_ns(1_000_000).await;
    assert!(!inserter.is_finished(), "it waits for the reader");
    assert_eq!(count(&mut reader, set, 1).await.expect("reads").0, seen);
    reader.commit().await.expect("commits");
    inserter.join().await.expect("commits");
}

#[test]
fn a_gap_that_its_reader_divides_stays_closed() {
    run(&Media::new(), async |executor| {
        holds_off(executor, async |tx, set| {
            count(tx, set, 1).await?;
            tx.insert_record(set, b"own", &contents(1, 5, "own")).await.map(|()| 1)
        })
        .await;
    });
}

#[test]
fn an_entry_that_its_reader_takes_back_bounds_no_gap() {
    run(&Media::new(), async |executor| {
        holds_off(executor, async |tx, set| {
            let position = tx.savepoint();
            tx.insert_record(set, b"own", &contents(2, 5, "own")).await?;
            count(tx, set, 1).await?;
            tx.rollback_to(position).await.map(|()| 0)
        })
        .await;
    });
}
